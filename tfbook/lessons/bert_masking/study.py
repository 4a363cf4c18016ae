"""Study of lesson 08: a trained BERT's attention, fine-tuning on few labels, and the numbers of the stored runs.

Shapes: batch, time, d_model, vocab.
"""

from __future__ import annotations

import copy
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tfbook import runtime
from tfbook.attention.recording import record
from tfbook.course.experiments import experiment, stored
from tfbook.course.summaries import Interval, interval
from tfbook.data.stories import sentences, told
from tfbook.data.stories.lexicon import SPECIES
from tfbook.lessons.bert_masking.answers import answer as answer
from tfbook.lessons.bert_masking.claims import CLAIMS as CLAIMS
from tfbook.lessons.bert_masking.search import (
    EXAMPLE as EXAMPLE,
    WordIndex as WordIndex,
    answers as answers,
    course_passages as course_passages,
)
from tfbook.lessons.bert_masking.stories import (
    FAVORED,
    KINDS,
    LIVE,
    RATES,
    RENAME as RENAME,
    ReadsPadding as ReadsPadding,
    baselines as baselines,
    comes_later as comes_later,
    encode as encoded,
    left_guesses as left_guesses,
    left_to_right as left_to_right,
    load_blanks,
    package_bert as package_bert,
    package_filler,
    padded,
    pretrain,
    seeded as seeded,
    share_right as share_right,
)
from tfbook.models.bert import Bert
from tfbook.text.masking import IGNORE_INDEX, MASK
from tfbook.text.vocabulary import PAD

if TYPE_CHECKING:
    from pandas import DataFrame


# ---- stories without their last event --------------------------------------------------------------------------------


def ending_stories(split: str, numbers: Sequence[int]) -> tuple[list[list[str]], list[int]]:
    """The words of these stories without their last event, and 1 for a good end, 0 for a bad one."""
    stories = [told(split, number) for number in numbers]
    return [list(story.words[: story.told[-1].begin]) for story in stories], [int(story.happy) for story in stories]


def ending_batch(split: str, numbers: range) -> tuple[Int[Tensor, "batch time"], Int[Tensor, " batch"]]:
    """Ids of stories without their last event, and 1 for those that end well."""
    texts, labels = ending_stories(split, numbers)
    ids, _ = padded([encoded(words) for words in texts])
    return ids, torch.tensor(labels, device=ids.device)


# ---- live: where it looks --------------------------------------------------------------------------------------------


@torch.no_grad()
def looks_of_blank(bert: nn.Module, ids: Int[Tensor, " time"], answer: int) -> dict[str, tuple[int, list[float]]]:
    """The position of the blank, and its weights on all positions in the last block.

    They come from the head with the largest weight on the id `answer`; the title names it.
    """
    position = ids.tolist().index(MASK)
    with record(bert) as weights:
        bert(ids[None])
    rows = list(weights.values())[-1][0, :, position].float().cpu()  # (head, time)
    head = int(rows[:, ids.cpu() == answer].sum(dim=1).argmax())
    return {f"block {len(weights)}, head {head + 1}: weights of the blank": (position, rows[head].tolist())}


@contextmanager
def cut(block: nn.Module, ids: Int[Tensor, " time"], answer: int) -> Iterator[None]:
    """A context in which the blank of this text cannot attend to the id `answer` in any head of `block`.

    The block takes a Boolean mask, (batch, 1, 1, time) or wider, as its second input.
    """
    allowed = ~((ids == MASK)[:, None] & (ids == answer)[None, :])  # (query, key)
    handle = block.register_forward_pre_hook(lambda module, inputs: (inputs[0], inputs[1] & allowed, *inputs[2:]))
    try:
        yield
    finally:
        handle.remove()


# ---- texts with tags -------------------------------------------------------------------------------------------------

TAGS = ("name", "animal", "thing", "place")
ROLES = ("hero", "other")
_WORDS = {"name": KINDS["names"], "animal": SPECIES, "thing": KINDS["things"], "place": KINDS["places"]}
TAG_OF = {word: TAGS.index(kind) for kind, words in _WORDS.items() for word in words}
FIRST = 100_000  # number of the first labeled story; the pretraining corpus ends before it


class Tagged(NamedTuple):
    """A text and the index of each word's tag, `IGNORE_INDEX` where it has none."""

    words: list[str]
    tags: list[int]


def tagged(words: Sequence[str]) -> Tagged:
    """A text with the kind of each word that has one; in this world it never depends on the context."""
    return Tagged(list(words), [TAG_OF.get(word, IGNORE_INDEX) for word in words])


def roles(words: Sequence[str]) -> Tagged:
    """A text with the role of each name: the hero, who is named first, or another, from the second name on."""
    names = {position: word for position, word in enumerate(words) if word in KINDS["names"]}
    hero = next(iter(names.values()))
    start = next((position for position, name in names.items() if name != hero), len(words))
    after = {position: int(name != hero) for position, name in names.items() if position > start}
    return Tagged(list(words), [after.get(position, IGNORE_INDEX) for position in range(len(words))])


def labeled_words(count: int, *, seed: int) -> list[Tagged]:
    """Sentences that pretraining has not read, with the kind of one word each; the four kinds take turns."""
    return _labeled(count, lambda words: [tagged(sentence) for sentence in sentences(words)], len(TAGS), seed)


def labeled_names(count: int, *, seed: int) -> list[Tagged]:
    """Stories that pretraining has not read, with the role of one name each; hero and other take turns."""
    return _labeled(count, lambda words: [roles(words)], len(ROLES), seed)


def _labeled(count: int, texts_of: Callable[[Sequence[str]], list[Tagged]], kinds: int, seed: int) -> list[Tagged]:
    """Texts with one tag each. Stories without the tag whose turn it is are skipped."""
    found: list[Tagged] = []
    number = FIRST + 1000 * seed
    while len(found) < count:
        due, drawn = len(found) % kinds, random.Random(number)
        texts = texts_of(told("train", number).words)
        positions = [(words, i) for words, tags in texts for i, tag in enumerate(tags) if tag == due]
        if positions:
            words, position = drawn.choice(positions)
            found.append(Tagged(words, [due if i == position else IGNORE_INDEX for i in range(len(words))]))
        number += 1
    return found


def tagged_stories(count: int) -> list[Tagged]:
    """Stories of the split "test" with the kinds of their words."""
    return [tagged(told("test", number).words) for number in range(count)]


def hero_stories(count: int) -> list[Tagged]:
    """Stories of the split "test" with the roles of their names."""
    return [roles(told("test", number).words) for number in range(count)]


def look_up(labeled: Sequence[Tagged]) -> Callable[[Sequence[str]], list[int]]:
    """A tagger without a network: a word's own tag, or the most common tag after the previous word, or "name"."""
    of_word: dict[str, int] = {}
    after: dict[str, Counter[int]] = defaultdict(Counter)
    for words, tags in labeled:
        for before, word, tag in zip(["", *words], words, tags, strict=False):
            if tag != IGNORE_INDEX:
                of_word[word] = tag
                after[before][tag] += 1

    def guess(before: str, word: str) -> int:
        return of_word.get(word, max(after[before], key=after[before].__getitem__, default=0))

    return lambda words: [guess(*pair) for pair in zip(["", *words], words, strict=False)]


def majority(labeled: Sequence[Tagged]) -> Callable[[Sequence[str]], list[int]]:
    """A tagger that always returns the most common tag of the labels, the first one if several are equally common."""
    counts = Counter(tag for _, tags in labeled for tag in tags if tag != IGNORE_INDEX)
    return lambda words: [max(sorted(counts), key=counts.__getitem__)] * len(words)


def score(guessed: Sequence[Sequence[int]], texts: Sequence[Tagged], labeled: Sequence[Tagged]) -> dict[str, float]:
    """Shares of right tags: over all words that have one, and over those among them that were never labeled."""
    known = {word for text in labeled for word, tag in zip(*text, strict=True) if tag != IGNORE_INDEX}
    hits = [
        (word, tag == guess)
        for text, guesses in zip(texts, guessed, strict=True)
        for word, tag, guess in zip(*text, guesses, strict=True)
        if tag != IGNORE_INDEX
    ]
    new = [hit for word, hit in hits if word not in known]
    return {"all": fmean(hit for _, hit in hits), "new": fmean(new) if new else float("nan")}


# ---- taggers ---------------------------------------------------------------------------------------------------------


class Head(nn.Module):
    """A new linear head on a body: scores of the labels from the vector of each token, or of `[CLS]` alone."""

    def __init__(self, body: Callable[..., Tensor], d_model: int, labels: int):
        super().__init__()
        self.body, self.linear = body, nn.Linear(d_model, labels)

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time label"]:
        """Scores of the labels at every position."""
        return self.linear(self.body(ids))


class Whole(nn.Module):
    """A body that infers the lengths of its texts from the padding."""

    def __init__(self, bert: Bert):
        super().__init__()
        self.bert = bert

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """A vector for each token."""
        return self.bert(ids, (ids != PAD).sum(dim=1))


STARTS: dict[str, Callable[[Bert], nn.Module]] = {  # the body below the head, from a pretrained model or a new one
    "pretrained": Whole,
    "from scratch": lambda bert: Whole(package_filler().to(runtime.device()).bert),
    "embeddings alone": lambda bert: bert.embed,
}


def tag_batch(texts: Sequence[Tagged]) -> tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]:
    """Ids, and the tag of each word; `[CLS]`, `[SEP]` and padding have none."""
    ids, _ = padded([encoded(text.words) for text in texts])
    tags = [torch.tensor([IGNORE_INDEX, *text.tags, IGNORE_INDEX]) for text in texts]
    return ids, pad_sequence(tags, batch_first=True, padding_value=IGNORE_INDEX).to(ids.device)


class Plan(NamedTuple):
    """Hyperparameters of fine-tuning: learning rate and steps."""

    rate: float
    steps: int = 60


def tuned(body: nn.Module, ids: Tensor, labels: Tensor, *, kinds: int, plan: Plan, seed: int) -> Head:
    """A copy of the body under a new head, both fine-tuned with up to 16 texts per step.

    `labels` is (batch, time), or (batch,) if the vector at `[CLS]` predicts the label of a text.
    """
    torch.manual_seed(seed)
    copied = copy.deepcopy(body)
    d_model = next(copied.parameters()).shape[-1]
    model = Head(copied, d_model, kinds).to(ids.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.rate)
    for step in range(plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * (1 - step / plan.steps)
        chosen = torch.randperm(len(ids))[:16].to(ids.device)
        asked = labels[chosen]
        scores = model(ids[chosen])[:, 0] if labels.ndim == 1 else model(ids[chosen]).flatten(0, 1)
        loss = F.cross_entropy(scores, asked.flatten(), ignore_index=IGNORE_INDEX)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def tags_of(model: Callable[[Tensor], Tensor], texts: Sequence[Tagged]) -> list[list[int]]:
    """The likeliest tag of each word."""
    rows: list[list[int]] = []
    for start in range(0, len(texts), 50):
        part = texts[start : start + 50]
        best = model(tag_batch(part)[0]).argmax(dim=-1).tolist()
        rows += [row[1 : len(text.words) + 1] for row, text in zip(best, part, strict=True)]
    return rows


# ---- stored: few labels ----------------------------------------------------------------------------------------------

TESTED = 100  # stories
COUNTS = (4, 16, 64)  # labeled words
PLANS = (Plan(0.002), Plan(0.005), Plan(0.01), Plan(0.002, steps=240))
ENDINGS, ENDING_PLANS = (64, 200), (Plan(0.001), Plan(0.003))  # labeled and tested stories without their last event


class Task(NamedTuple):
    """A task for few labels: its tags, labeled and test texts, and the name and the tagger of a baseline."""

    tags: tuple[str, ...]
    labeled: Callable[..., list[Tagged]]  # from a count and a seed
    tested: Callable[[int], list[Tagged]]
    baseline: str
    tagger: Callable[[Sequence[Tagged]], Callable[[Sequence[str]], list[int]]]


TASKS = {
    "tags": Task(TAGS, labeled_words, tagged_stories, "look-up", look_up),
    "roles": Task(ROLES, labeled_names, hero_stories, "majority", majority),
}


@experiment
def few_labels(seeds: Sequence[int] = (1, 2, 3), *, steps: int = LIVE) -> list[dict[str, Any]]:
    """Fine-tuning on few labels: tags of words, and from `[CLS]` whether a story without its last event ends well.

    One row per model, number of labels, and plan.
    """
    return [
        {"seed": seed, **row}
        for seed, bert in _pretrained(seeds, steps)
        for row in (*_tag_rows(bert, seed, "tags"), *_ending_rows(bert, seed))
    ]


@experiment
def heroes(seeds: Sequence[int] = (1, 2, 3), *, steps: int = LIVE) -> list[dict[str, Any]]:
    """Fine-tuning on few labels where context matters: is a name that of the story's hero? Rows as in `few_labels`."""
    return [{"seed": seed, **row} for seed, bert in _pretrained(seeds, steps) for row in _tag_rows(bert, seed, "roles")]


def _pretrained(seeds: Sequence[int], steps: int) -> Iterator[tuple[int, Bert]]:
    of = load_blanks(stored("bert_masking.blanks").rows)
    for seed in seeds:
        yield seed, pretrain(RATES[FAVORED], steps, seed=seed, of=of, every=steps)[0].bert


def _tag_rows(bert: Bert, seed: int, name: str) -> list[dict[str, Any]]:
    task, rows = TASKS[name], []
    tested = task.tested(TESTED)
    for count in COUNTS:
        labeled = task.labeled(count, seed=seed)
        ids, tags = tag_batch(labeled)
        tagger = task.tagger(labeled)
        found = {(task.baseline, Plan(0, 0)): [tagger(text.words) for text in tested]}
        for start, plan in product(STARTS, PLANS):
            torch.manual_seed(seed)
            model = tuned(STARTS[start](bert), ids, tags, kinds=len(task.tags), plan=plan, seed=seed)
            found[start, plan] = tags_of(model, tested)
        for (start, plan), guessed in found.items():
            scores = {key: round(value, 4) for key, value in score(guessed, tested, labeled).items()}
            rows.append({"task": name, "labels": count, "start": start, **plan._asdict(), **scores})
    return rows


def _ending_rows(bert: Bert, seed: int) -> list[dict[str, Any]]:
    labels, tests = ENDINGS
    ids, good = ending_batch("train", range(FIRST + 1000 * seed, FIRST + 1000 * seed + labels))
    test_ids, test_good = ending_batch("test", range(tests))
    shares = {("majority", Plan(0, 0)): float(test_good.float().mean())}
    for name, plan in product(("pretrained", "from scratch"), ENDING_PLANS):
        torch.manual_seed(seed)
        model = tuned(STARTS[name](bert), ids, good, kinds=2, plan=plan, seed=seed)
        with torch.no_grad():
            guessed = torch.cat([model(part)[:, 0].argmax(dim=1) for part in test_ids.split(50)])
        shares[name, plan] = float((guessed == test_good).float().mean())
    return [
        {"task": "ending", "labels": labels, "start": name, **plan._asdict(), "all": round(share, 4)}
        for (name, plan), share in shares.items()
    ]


# ---- numbers of the stored runs --------------------------------------------------------------------------------------


def claims_of_runs(frame: DataFrame, longer: DataFrame) -> dict[int, float]:
    """Claims 2 to 4: the favored runs' lowest final share, the longer run's, and the recipes' difference."""
    last = {name: [curve[-1]["all"] for curve in part["curve"]] for name, part in frame.groupby("masked")}
    difference = fmean(last[FAVORED]) - fmean(last["15% of all words"])
    return {2: min(last[FAVORED]), 3: longer["curve"][0][-1]["all"], 4: difference}


def at_best_plans(frame: DataFrame, task: str) -> DataFrame:
    """For each model and number of labels, the rows of the plan with the highest mean share over seeds."""
    rows = frame[frame["task"] == task]
    keys = ["labels", "start", "rate", "steps"]
    means = rows.groupby(keys)["all"].mean()
    best = set(means.groupby(keys[:2]).idxmax())
    return rows[[key in best for key in rows[keys].itertuples(index=False, name=None)]]


def gain(rows: DataFrame, count: int, score: str, *, over: str = "from scratch") -> Interval:
    """Points that pretraining adds over another start with `count` labels, with the 95% interval over seeds."""
    shares = 100 * rows[rows["labels"] == count].pivot_table(index="seed", columns="start", values=score)
    return interval(shares["pretrained"] - shares[over])
