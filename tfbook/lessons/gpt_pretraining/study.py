"""Study of lesson 09: a GPT on the story world beside counting words, what it learns first, and how it picks a name.

Shapes: batch, time, d_model, vocab.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tfbook import data, runtime, training
from tfbook.attention.positions import POSITIONS
from tfbook.attention.recording import record
from tfbook.course.batches import SortedBatches
from tfbook.course.equality import renamed
from tfbook.course.experiments import experiment
from tfbook.data.stories import WORLD, Story, Verdict, check_story, summary, told, words_of, world_words, written
from tfbook.data.stories.lexicon import NAMES, NOUNS, PLACES
from tfbook.lessons.gpt_pretraining.claims import CLAIMS as CLAIMS
from tfbook.lessons.gpt_pretraining.variance import residual as residual
from tfbook.models import gpt
from tfbook.models.feed_forward import FeedForward
from tfbook.pretrain.storyteller import BATCH as TOLD_AT_ONCE, STEPS as STEPS_OF, Storyteller, tell
from tfbook.text.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from tfbook.training.losses import next_token_loss

if TYPE_CHECKING:
    from pandas import DataFrame


Predict = Callable[[Sequence[Sequence[str]]], list[list[tuple[str, float]]]]

# ---- the lesson's model in the package -------------------------------------------------------------------------------

RENAME = {"blocks.": "stack.blocks.", "norm.": "stack.norm."}
SIZES = (128, 4, 256, 2)  # d_model, heads, d_ff and layers of the stored runs
LONGEST = 128  # positions


def package_gpt(vocab: int, d_model: int, heads: int, d_ff: int, layers: int) -> gpt.Gpt:
    """The package's GPT with the lesson's parts: rotary positions, GELU, no dropout."""
    config = replace(
        gpt.GPT2,
        d_model=d_model,
        heads=heads,
        d_ff=d_ff,
        layers=layers,
        max_length=LONGEST,
        position=POSITIONS["rotary"],
        feed_forward=partial(FeedForward, activation=F.gelu),
        dropout=0.0,
    )
    return gpt.Gpt(vocab, config).eval()


def for_package(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the lesson's own model, renamed for `package_gpt`."""
    return {renamed(name, RENAME): weight for name, weight in weights.items()}


def story_rows(texts: Sequence[str], vocabulary: Vocabulary) -> list[Tensor]:
    """A row of ids per story, `<bos>` first and `<eos>` last."""
    return [torch.tensor([BOS, *vocabulary.encode(words_of(text)), EOS]) for text in texts]


def judged(texts: Sequence[Sequence[str]]) -> dict[str, float]:
    """Shares of sentences that the world allows, of stories without a wrong name, and of entirely right stories."""
    found = summary([check_story(list(words)) for words in texts])
    return {"sentences": found["sentences"], "names": found["names"], "all": found["consistent"]}


def first_mistakes(texts: Sequence[Sequence[str]]) -> dict[str, int]:
    """Number of stories by the kind of their first mistake, the most frequent kind first.

    A story without a contradiction still counts as wrong if it has no ending, or a sentence that the world never tells.
    """
    verdicts = [check_story(list(words)) for words in texts]
    return dict(Counter(_first_mistake(verdict) for verdict in verdicts if not verdict.consistent).most_common())


def _first_mistake(verdict: Verdict) -> str:
    if verdict.faults:
        return verdict.faults[0].kind
    return "sentence" if verdict.unread else "no end"


def predictor(model: nn.Module, vocabulary: Vocabulary, start: str, *, count: int = 12) -> Predict:
    """The `predict` function for `plot.next_token_view`: likeliest next pieces for several texts that continue `start`.

    A piece is the text that a token appends, such as " fox". Where a story is most likely over, there is none.
    """

    @torch.no_grad()
    def predict(texts: Sequence[Sequence[str]]) -> list[list[tuple[str, float]]]:
        words = [words_of(start + "".join(pieces)) for pieces in texts]
        device = next(model.parameters()).device
        ids = torch.tensor([[BOS, *vocabulary.encode(each)] for each in words], device=device)
        shares = model(ids)[:, -1].float().softmax(dim=-1).cpu()
        return [_pieces(before, row, vocabulary, count) for before, row in zip(words, shares, strict=True)]

    return predict


def _pieces(words: list[str], shares: Tensor, vocabulary: Vocabulary, count: int) -> list[tuple[str, float]]:
    likely = shares.topk(count).indices.tolist()
    if likely[0] == EOS:
        return []
    text = written(words)
    return [(written([*words, vocabulary.tokens[i]])[len(text) :], float(shares[i])) for i in likely if i > UNK]


def counting_loss(counted: Callable[[list[int], int], Tensor], rows: Sequence[Tensor], longest: int) -> float:
    """Mean −ln p of every word but the first, where `counted(ids before it, longest)` gives the probabilities."""
    texts = [ids.tolist() for ids in rows]
    return fmean(-math.log(counted(ids[:t], longest)[ids[t]]) for ids in texts for t in range(1, len(ids)))


@torch.no_grad()
def loss_by_position(model: nn.Module, ids: Int[Tensor, "batch time"], starts: Sequence[int]) -> dict[str, float]:
    """Mean loss of the words in each range that begins at one of `starts` (the first word is 1), rounded to 0.01."""
    logp = model(ids[:, :-1]).float().log_softmax(dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    parts = {f"{a}–{b - 1}": (a, b) for a, b in pairwise(starts)} | {f"{starts[-1]}–": (starts[-1], None)}
    counts = ids != PAD
    means = {name: -logp[:, a - 1 : b and b - 1][counts[:, a:b]].mean() for name, (a, b) in parts.items()}
    return {name: round(float(mean), 2) for name, mean in means.items()}


# ---- words that a story determines -----------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, ...]] = {
    "names": NAMES[: WORLD.names],
    "things": tuple(NOUNS[: WORLD.things]),
    "places": tuple(PLACES[: WORLD.places]),
    "pronouns": ("he", "she"),
}


def determined(story: Story) -> dict[str, list[int]]:
    """Positions where a story leaves no choice: every other word of the kind contradicts what came before.

    The checker reads each story up to the end of the event, with each alternative word of that kind in turn.
    """
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for event in story.told:
        words = list(story.words[: event.end])
        for i in range(event.begin, event.end):
            for kind, alike in KINDS.items():
                if words[i] in alike and all(_contradicts(words, i, other) for other in alike):
                    found[kind].append(i)
    return found


def _contradicts(words: Sequence[str], i: int, other: str) -> bool:
    if words[i] == other:
        return True
    verdict = check_story([*words[:i], other, *words[i + 1 :]])
    return bool(verdict.faults or verdict.unread)


@torch.no_grad()
def right_share(
    model: nn.Module, ids: Int[Tensor, "batch time"], places: Mapping[str, Sequence[tuple[int, int]]], vocab: Vocabulary
) -> dict[str, float]:
    """For each kind, the probability of the right word among all words of its kind, averaged over (row, position).

    A model that knows only that a name must follow gives it about 1 / number of names.
    """
    logp = model(ids).float().log_softmax(dim=-1)
    shares = {}
    for kind, where in places.items():
        rows, columns = torch.tensor(where, device=ids.device).T
        of_kind = logp[rows, columns - 1][:, vocab.encode(KINDS[kind])].log_softmax(dim=-1)
        right = torch.tensor([KINDS[kind].index(vocab.tokens[i]) for i in ids[rows, columns].tolist()])
        shares[kind] = float(of_kind.gather(1, right.to(ids.device)[:, None]).exp().mean())
    return shares


# ---- stored: what is learned first -----------------------------------------------------------------------------------

RUNS = (  # optimizer, learning rate, seeds
    ("Muon", 0.02, (1, 2, 3)),
    ("AdamW", 0.002, (1,)),
    ("AdamW", 0.004, (1,)),
)
BATCH, STEPS, WARMUP = 16, 1000, 20
HELD_OUT, SAMPLES = 60, 200
FIRST_LOSS = math.log(len(world_words()) + 4)  # a uniform guess over the words and the four special tokens


@experiment
def growth(
    runs: Sequence[tuple[str, float, Sequence[int]]] = RUNS, *, steps: int = STEPS, every: int = 20
) -> list[dict[str, Any]]:
    """The lesson's run with Muon and with AdamW: loss and right words by kind during training, stories at the end."""
    corpus = data.load("stories")
    vocabulary, stories = corpus.vocabulary, [told("valid", number) for number in range(HELD_OUT)]
    places, rows = _places(stories), story_rows(corpus["train"], vocabulary)
    ids = pad_sequence(story_rows([story.text for story in stories], vocabulary), batch_first=True, padding_value=PAD)
    found = []
    for optimizer, lr, seed in ((name, lr, seed) for name, lr, seeds in runs for seed in seeds):
        runtime.seed(seed)
        model = package_gpt(len(vocabulary), *SIZES).to(runtime.device())
        history = training.fit(
            model,
            partial(next_token_loss, pad=PAD),
            SortedBatches(rows, size=BATCH, seed=seed),
            _recipe(optimizer, lr, steps, every),
            evaluate=partial(_evaluate, ids=ids.to(runtime.device()), places=places, vocabulary=vocabulary),
        )
        texts = tell(Storyteller(model, vocabulary), SAMPLES, temperature=0.7)
        curve = [{name: round(value, 4) for name, value in point.items()} for point in history.evaluations]
        row = {"optimizer": optimizer, "lr": lr, "seed": seed, "curve": curve}
        found.append(row | {name: round(value, 4) for name, value in judged(texts).items()})
    return found


def _places(stories: Sequence[Story]) -> dict[str, list[tuple[int, int]]]:
    """(story, position in its ids) of the `determined` words, by kind; ids begin with `<bos>`."""
    found = [determined(story) for story in stories]
    return {kind: [(row, at + 1) for row, each in enumerate(found) for at in each[kind]] for kind in KINDS}


def _evaluate(
    model: nn.Module, ids: Tensor, places: Mapping[str, Sequence[tuple[int, int]]], vocabulary: Vocabulary
) -> dict[str, float]:
    return {"loss": float(next_token_loss(model, ids, pad=PAD).mean), **right_share(model, ids, places, vocabulary)}


def _recipe(optimizer: str, lr: float, steps: int, every: int) -> training.Recipe:
    return training.Recipe(
        steps=steps,
        optimizer=optimizer.lower(),
        lr=lr,
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(WARMUP, 0.0),
        evaluate_every=every,
        mixed_precision=False,
    )


def claims_of_growth(frame: DataFrame, counting: float, bound: float) -> dict[int, float]:
    """Claims 3, 4, 5 and 7: final losses of the runs with Muon, their stories, and the plateau for things."""
    muon = frame[frame["optimizer"] == "Muon"]
    losses = [curve[-1]["loss"] for curve in muon["curve"]]
    return {
        3: counting - max(losses),
        4: max(losses) - bound,
        5: muon["all"].min(),
        7: max(share_at(curve, "things") for curve in muon["curve"]),
    }


def claim_of_adamw(frame: DataFrame) -> dict[int, float]:
    """Claim 6: right stories of the worst run with Muon minus those of the best run with AdamW."""
    muon, adamw = (frame[frame["optimizer"] == name]["all"] for name in ("Muon", "AdamW"))
    return {6: muon.min() - adamw.max()}


def share_at(curve: Sequence[Mapping[str, float]], kind: str, drop: float = 0.9) -> float:
    """The right word's share at the first point of a curve where the loss has done this part of its drop."""
    first, last = FIRST_LOSS, curve[-1]["loss"]
    return next(point[kind] for point in curve if first - point["loss"] >= drop * (first - last))


# ---- a larger run ----------------------------------------------------------------------------------------------------


def price(small: gpt.Gpt, large: gpt.Gpt, stories: int, judged: Mapping[str, Mapping[str, float]], samples: int) -> str:
    """The cost and the gain of the storyteller's training, compared with a GPT trained on `stories` stories.

    `judged` are the shares of right stories, of `samples` by the GPT and twice as many by the storyteller.
    """
    larger, more = large.parameter_count() / small.parameter_count(), STEPS_OF["storyteller"] * TOLD_AT_ONCE / stories
    before, after = (judged[name]["all"] for name in ("your GPT", "storyteller"))
    error = math.sqrt(before * (1 - before) / samples + after * (1 - after) / (2 * samples))
    return (
        f"{larger:.1f} times the parameters and {more:.1f} times the stories, {larger * more:.0f} times the work:\n"
        f"{round(100 * (after - before), 1):g} more of 100 stories are right in every respect (standard error "
        f"{100 * error:.0f}), and {round(100 * (1 - after), 1):g} of 100 are still wrong somewhere"
    )


# ---- probabilities of whole stories ----------------------------------------------------------------------------------


@torch.no_grad()
def log_probability(model: nn.Module, ids: Int[Tensor, "batch time"]) -> Tensor:
    """log p of each row given its first id, without padding."""
    logp = model(ids[:, :-1]).float().log_softmax(dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    return (logp * (ids[:, 1:] != PAD)).sum(dim=1).cpu()


def compare_names(model: nn.Module, rows: Sequence[Tensor], vocabulary: Vocabulary) -> dict[str, float]:
    """Shares of stories: preferred over a wrong last name; first name guessed from the left; guessed from both sides.

    The blank is the first occurrence of the first name; the same name may occur again after it.
    """
    names, device = vocabulary.encode(KINDS["names"]), next(model.parameters()).device
    found: dict[str, list[float]] = {"prefers": [], "left": [], "both": []}
    for ids in rows:
        where = [t for t, word in enumerate(ids.tolist()) if word in names]
        first, last = where[0], where[-1]
        candidates = ids.repeat(len(names), 1)
        candidates[:, first] = torch.tensor(names)
        logp = log_probability(model, candidates.to(device))
        left = log_probability(model, candidates[:, : first + 1].to(device))
        right = names.index(int(ids[first]))
        wrong = ids.clone()
        wrong[last] = names[(names.index(int(ids[last])) + 1) % len(names)]
        pair = log_probability(model, torch.stack([ids, wrong]).to(device))
        found["prefers"].append(float(pair[0] > pair[1]))
        found["left"].append(float(left.argmax() == right))
        found["both"].append(float(logp.argmax() == right))
    return {name: fmean(values) for name, values in found.items()}


# ---- where it looks --------------------------------------------------------------------------------------------------


@torch.no_grad()
def looks(model: nn.Module, ids: Int[Tensor, " time"], head: str, at: int = -1) -> Float[Tensor, " time"]:
    """The weights of a head, "block.head", from position `at` to all of `ids`; later positions get 0."""
    with record(model) as weights:
        model(ids[None].to(next(model.parameters()).device))
    block, number = (int(part) - 1 for part in head.split("."))
    return list(weights.values())[block][0, number, at].cpu()


@torch.no_grad()
def head_output(model: gpt.Gpt, ids: Int[Tensor, " time"], head: str, at: int) -> Float[Tensor, " d_head"]:
    """The output of a head, "block.head", at position `at`, before `W_O`."""
    attention, number = _attention_of(model, head)
    found: list[Tensor] = []
    handle = attention.W_O.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    try:
        model(ids[None].to(next(model.parameters()).device))
    finally:
        handle.remove()
    return found[0][0, at].chunk(attention.heads, dim=-1)[number]


@contextmanager
def without(
    model: gpt.Gpt, head: str, at: Sequence[int] | None = None, *, instead: float | Float[Tensor, " d_head"] = 0.0
) -> Iterator[None]:
    """A context in which a head's output is `instead` at these positions, or at all; a `head` of "" changes nothing."""
    if not head:
        yield
        return
    attention, number = _attention_of(model, head)

    def replace_output(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        outputs = inputs[0].clone()  # (batch, time, d_model): heads are concatenated
        of_head = outputs.chunk(attention.heads, dim=-1)[number]
        of_head[:, slice(None) if at is None else list(at)] = instead
        return (outputs,)

    handle = attention.W_O.register_forward_pre_hook(replace_output)
    try:
        yield
    finally:
        handle.remove()


def _attention_of(model: gpt.Gpt, head: str) -> tuple[Any, int]:
    """The attention layer of a head, "block.head" counted from 1, and the head's index in it, from 0."""
    block, number = (int(part) - 1 for part in head.split("."))
    return model.stack.blocks[block].mixer.branch, number


@torch.no_grad()
def names_without(model: gpt.Gpt, head: str, rows: Sequence[Tensor], vocabulary: Vocabulary) -> float:
    """Probability of the right name among all names, where a name recurs, `without` this head."""
    names = vocabulary.encode(NAMES)
    ids = pad_sequence(list(rows), batch_first=True, padding_value=PAD)
    again = [
        (row, t)
        for row, text in enumerate(ids.tolist())
        for t, word in enumerate(text)
        if word in names and word in text[:t]
    ]
    with without(model, head):
        return right_share(model, ids.to(next(model.parameters()).device), {"names": again}, vocabulary)["names"]
