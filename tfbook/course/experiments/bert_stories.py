"""BERT on the story world: words that a story determines, and models that fill them in.

Shapes: batch, time, d_model, vocab.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial, wraps
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from tfbook import data, runtime, training
from tfbook.attention.positions import Learned, Rotary
from tfbook.attention.recording import record
from tfbook.course.claims import Bound, Claims
from tfbook.course.experiments import experiment, stored
from tfbook.course.experiments.bert_stories_drawn import (
    draw_asked,
    draw_filled,
    draw_heads,
    draw_input,
    draw_masking,
    draw_sides,
)
from tfbook.course.experiments.gpt_stories import SortedBatches
from tfbook.course.experiments.gpt_stories_drawn import draw_looks
from tfbook.course.experiments.passages import QUESTIONS, Passage, WordIndex, course_passages
from tfbook.data.stories import WORLD, check_story, sentences, story_ids, told, words_of, world_words
from tfbook.data.stories.lexicon import NAMES, NOUNS, PLACES
from tfbook.interop.hub import load_minilm
from tfbook.models.bert import BERT, Bert, MaskedLanguageModel
from tfbook.models.blocks import PreNorm
from tfbook.models.norms import LayerNorm
from tfbook.models.sentence_encoder import Found, SemanticIndex
from tfbook.pretrain.storyteller import load_storyteller
from tfbook.text.masking import BERT_SPECIALS, CLS, MASK, SEP, Masking, mask_tokens
from tfbook.text.vocabulary import BOS, PAD
from tfbook.training.losses import Loss, masked_loss

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "CLAIMS",
    "EXAMPLE",
    "KINDS",
    "QUESTIONS",
    "RENAME",
    "Passage",
    "WordIndex",
    "answers",
    "baselines",
    "blank_rates",
    "claims_of_runs",
    "comes_later",
    "course_passages",
    "cut",
    "draw_asked",
    "draw_filled",
    "draw_heads",
    "draw_input",
    "draw_looks",
    "draw_masking",
    "draw_sides",
    "ending_stories",
    "hit_rates",
    "left_guesses",
    "left_to_right",
    "load_blanks",
    "looks_of_blank",
    "package_bert",
    "seeded",
    "sentences",
    "share_right",
]

CLAIMS = Claims(
    "bert_masking",
    {
        1: Bound(
            "A GPT that reads left to right seldom fills in a name that comes only after the blank (share)",
            "<=",
            0.3,
            "Measured here, held-out stories",
        ),
        2: Bound(
            "Shape and vocabulary alone give the published sizes of BASE and LARGE (larger relative error)",
            "<=",
            0.02,
            "Devlin et al. (2019), Section 3: 110 and 340 million",
        ),
        3: Bound(
            "After the lesson's training, BERT fills at least six in ten of the blanks that a story determines",
            ">=",
            0.6,
            "Stored result, bert_stories.pretraining, smallest of three runs",
        ),
        4: Bound(
            "Twice the blocks and six times the steps fill at least nine in ten",
            ">=",
            0.9,
            "Stored result, bert_stories.longer, one run",
        ),
        5: Bound(
            "With 15% of all words masked instead, as many steps fill fewer on average (difference of shares)",
            ">=",
            0.1,
            "Stored result, bert_stories.pretraining, means of three runs",
        ),
        6: Bound(
            "With 16 labels, fine-tuning beats training from scratch by at least 15 points (lower end of the interval)",
            ">=",
            15,
            "Stored result, bert_tagging.few_labels, 95% interval over three seeds",
            " points",
        ),
        7: Bound(
            "MiniLM has a right passage among its first three more often than counted words (difference of shares)",
            ">=",
            0.1,
            "Stored result, bert_stories.search, 20 questions",
        ),
        8: Bound(
            "With 16 labels of who is the hero, pretrained blocks beat their embeddings (lower end of the interval)",
            ">=",
            10,
            "Stored result, bert_tagging.heroes, 95% interval over three seeds",
            " points",
        ),
    },
)

# ---- words that a story determines -----------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, ...]] = {
    "names": NAMES[: WORLD.names],
    "things": tuple(NOUNS[: WORLD.things]),
    "places": tuple(PLACES[: WORLD.places]),
    "pronouns": ("he", "she", "him", "her", "his"),
}
KIND_OF = {word: kind for kind, words in KINDS.items() for word in words}
STORIES, TRIED = 400, 3  # held-out stories, and words of each that are tried


held_out = cache(partial(told, "valid"))  # a story of that number, told once


class Blank(NamedTuple):
    """A word that the rest of its story determines: its story in the split "valid", its place among the words."""

    story: int
    place: int
    kind: str


def determined(words: Sequence[str], place: int) -> bool:
    """Whether every other word of the vocabulary, in this place, contradicts something in the story or in grammar."""
    others = dict.fromkeys((*KIND_OF, *world_words()))  # the likeliest to fit come first
    others.pop(words[place], None)
    return not any(check_story([*words[:place], word, *words[place + 1 :]]).consistent for word in others)


def find_blanks(numbers: Sequence[int]) -> list[Blank]:
    """Of `TRIED` names, things, places and pronouns of each of these held-out stories, those that are determined."""
    found = []
    for number in numbers:
        words = held_out(number).words
        places = [place for place, word in enumerate(words) if word in KIND_OF]
        tried = sorted(random.Random(number).sample(places, TRIED))
        found += [Blank(number, place, KIND_OF[words[place]]) for place in tried if determined(words, place)]
    return found


@experiment
def blanks(count: int = STORIES) -> list[dict[str, Any]]:
    """The blanks by which models are judged, one row per kind: "story:place" of each."""
    found = find_blanks(range(count))
    return [
        {"kind": kind, "where": " ".join(f"{each.story}:{each.place}" for each in found if each.kind == kind)}
        for kind in KINDS
    ]


def load_blanks(rows: Sequence[Mapping[str, str]]) -> list[Blank]:
    """From the rows that `blanks` returned, in the order of the stories."""
    pairs = [(row["kind"], where.split(":")) for row in rows for where in row["where"].split()]
    return sorted(Blank(int(story), int(place), kind) for kind, (story, place) in pairs)


Guess = Callable[[list[list[str]], Sequence[Blank]], Sequence[str]]  # texts with one "[MASK]" each


def share_right(guess: Guess, of: Sequence[Blank]) -> dict[str, float]:
    """Which share of all blanks, and of those of each kind, a guesser fills with the right word."""
    hits: dict[str, list[bool]] = {"all": [], **{kind: [] for kind in KINDS}}
    for start in range(0, len(of), 64):
        part = of[start : start + 64]
        texts = [list(held_out(blank.story).words) for blank in part]
        right = [words[blank.place] for words, blank in zip(texts, part, strict=True)]
        for words, blank in zip(texts, part, strict=True):
            words[blank.place] = "[MASK]"
        for blank, word, answer in zip(part, guess(texts, part), right, strict=True):
            hits["all"].append(word == answer)
            hits[blank.kind].append(word == answer)
    return {kind: fmean(found) for kind, found in hits.items() if found}


def baselines(texts: Sequence[Sequence[str]]) -> dict[str, Guess]:
    """Guessers that are told the kind of a blank: its most frequent word in `texts`, or the story's first of it."""
    counts = Counter(word for words in texts for word in words)
    often = {kind: max(words, key=counts.__getitem__) for kind, words in KINDS.items()}

    def first(words: list[str], kind: str) -> str:
        return next((word for word in words if KIND_OF.get(word) == kind), "")

    return {
        "most frequent of its kind": lambda texts, of: [often[blank.kind] for blank in of],
        "first of its kind": lambda texts, of: [first(*pair) for pair in zip(texts, (b.kind for b in of), strict=True)],
    }


def comes_later(blank: Blank) -> bool:
    """Whether the story says this word after the blank and not before."""
    words = held_out(blank.story).words
    word = words[blank.place]
    return word in words[blank.place + 1 :] and word not in words[: blank.place]


@torch.no_grad()
def left_guesses(before: str, count: int = 5) -> list[tuple[str, float]]:
    """The storyteller's likeliest words after a beginning, with their probabilities."""
    teller = load_storyteller()
    ids = torch.tensor([[BOS, *teller.vocabulary.encode(words_of(before))]], device=runtime.device())
    best = teller.model(ids)[0, -1].float().softmax(dim=-1).topk(count)
    words = [teller.vocabulary.tokens[number] for number in best.indices.tolist()]
    return list(zip(words, best.values.tolist(), strict=True))


@torch.no_grad()
def left_to_right(of: Sequence[Blank]) -> dict[str, float]:
    """The same for the storyteller, a GPT that has read more and sees what stands before a blank, and no more."""
    teller = load_storyteller()
    numbers = sorted({blank.story for blank in of})
    ids = story_ids([held_out(number).words for number in numbers], teller.vocabulary)
    guessed = [teller.model(part.to(runtime.device())).argmax(dim=-1).cpu() for part in ids.split(50)]
    row = dict(zip(numbers, torch.cat(guessed), strict=True))
    # the id at position `place` is the word before, since ids begin with `<bos>`
    return share_right(lambda texts, part: [teller.vocabulary.tokens[row[b.story][b.place]] for b in part], of)


# ---- the lesson's model in the package -------------------------------------------------------------------------------

SIZES = (128, 4, 256, 2)  # d_model, heads, d_ff and layers of the lesson's model
LONGEST = 128  # positions
TOKENS = (*BERT_SPECIALS, *world_words())
IDS = {token: number for number, token in enumerate(TOKENS)}
RENAME = {
    "blocks.": "stack.blocks.",
    "norm.": "stack.norm.",
    "embed_norm.": "stack.embed_norm.",
    "positions.": "stack.position.embedding.",
}


class LearnedAndRotary(Learned):
    """Both: a learned vector for each position, as in BERT, and queries and keys that are turned."""

    def __init__(self, d_model: int, heads: int, max_length: int):
        super().__init__(max_length, d_model)
        self.rotary = Rotary(d_model // heads)

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], start: int = 0
    ) -> Float[Tensor, "batch head time d_head"]:
        """As `Rotary` does."""
        return self.rotary.rotate(x, start)


def package_bert(d_model: int, heads: int, d_ff: int, layers: int, body: type[Bert] = Bert) -> Bert:
    """The package's BERT with the lesson's parts: both kinds of positions, norms before the layers, no dropout."""
    config = replace(
        BERT,
        d_model=d_model,
        heads=heads,
        d_ff=d_ff,
        layers=layers,
        max_length=LONGEST,
        position=LearnedAndRotary,
        norm=lambda d_model: LayerNorm(d_model),
        residual=PreNorm,
        dropout=0.0,
    )
    bert = body(len(TOKENS), config)
    nn.init.zeros_(bert.stack.position.embedding.weight)
    return bert


def seeded(function: Callable[..., Any], *more: Any) -> Callable[..., Any]:
    """The same function, which always draws the same random numbers; `more` comes behind its inputs."""

    @wraps(function)
    def same(*inputs: Any) -> Any:
        torch.manual_seed(1)
        return function(*inputs, *more)

    return same


class ReadsPadding(Bert):
    """The same, which reads the lengths off the padding, as the page's class does."""

    def forward(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """A vector for each token."""
        return super().forward(ids, (ids != PAD).sum(dim=1), segments)


class WordHead(nn.Linear):
    """Scores of the words from a vector: the embedding again, and a bias."""

    def __init__(self, bert: Bert):
        super().__init__(bert.config.d_model, bert.embed.num_embeddings)
        nn.init.zeros_(self.bias)
        self.weight = bert.embed.weight


def package_filler(layers: int = SIZES[-1]) -> MaskedLanguageModel:
    """The lesson's model: this BERT, and a head that is the embedding alone."""
    model = MaskedLanguageModel(package_bert(*SIZES[:-1], layers))
    model.head = WordHead(model.bert)  # type: ignore[assignment]
    return model


def encode(words: Sequence[str]) -> Tensor:
    """`[CLS]`, the words, `[SEP]`."""
    return torch.tensor([CLS, *(IDS[word] for word in words), SEP])


@torch.no_grad()
def fill(model: MaskedLanguageModel, texts: Sequence[Sequence[str]]) -> list[str]:
    """The likeliest word for the one `[MASK]` of each text."""
    ids, lengths = padded([encode(words) for words in texts])
    vectors = model.bert(ids, lengths)[ids == MASK]
    return [TOKENS[best] for best in model.head(vectors).argmax(dim=-1).tolist()]


def padded(rows: Sequence[Tensor]) -> tuple[Int[Tensor, "batch time"], Int[Tensor, " batch"]]:
    """One batch on the chosen device, with the lengths of its rows."""
    ids = pad_sequence(list(rows), batch_first=True, padding_value=PAD).to(runtime.device())
    return ids, torch.tensor([len(row) for row in rows], device=ids.device)


# ---- stored: pretraining ---------------------------------------------------------------------------------------------

DEEPER = 4  # blocks of the model that is trained for longer
LIVE = 1000  # steps of the lesson's own run
FAVORED = "the four kinds 40%, other words 10%"
RATES = {FAVORED: (0.4, 0.1), "15% of all words": (0.15, 0.15)}  # words of the four kinds, other words
RUNS = (  # what is masked, steps, seeds
    (FAVORED, LIVE, (1, 2, 3)),
    ("15% of all words", LIVE, (1, 2, 3)),
)


def blank_rates(kind: float, other: float) -> Float[Tensor, " vocab"]:
    """How often each word is masked: those of the four kinds, and all other words."""
    return torch.tensor([kind if token in KIND_OF else other for token in TOKENS])


def filler_loss(model: MaskedLanguageModel, ids: Int[Tensor, "batch time"], rates: Float[Tensor, " vocab"]) -> Loss:
    """Masked language modeling with a rate for each word of the vocabulary."""
    masked = mask_tokens(ids, len(TOKENS), Masking(rate=1.0), weights=rates)
    return masked_loss(model, masked, (ids != PAD).sum(dim=1))


def pretrain(
    rates: tuple[float, float], steps: int, *, seed: int, of: Sequence[Blank], every: int, layers: int = SIZES[-1]
) -> tuple[MaskedLanguageModel, list[dict[str, float]]]:
    """A model, and which shares of the blanks it fills correctly during training."""
    runtime.seed(seed)
    rows = [encode(words_of(text)) for text in data.load("stories")["train"]]
    model = package_filler(layers).to(runtime.device())
    recipe = training.Recipe(
        steps=steps,
        optimizer="muon",
        lr=0.02,
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(20, 0.0),
        evaluate_every=every,
        mixed_precision=False,
    )
    history = training.fit(
        model,
        partial(filler_loss, rates=blank_rates(*rates)),
        SortedBatches(rows, size=16, seed=seed),
        recipe,
        evaluate=lambda model: share_right(lambda texts, _: fill(model, texts), of),
    )
    curve = [{name: round(value, 4) for name, value in point.items()} for point in history.evaluations]
    return model, curve


LONGER = 6000  # steps of a model with twice as many blocks


@experiment
def longer(seeds: Sequence[int] = (1,), *, steps: int = LONGER, every: int = 200) -> list[dict[str, Any]]:
    """The same with four blocks and for longer."""
    of = load_blanks(stored("bert_stories.blanks").rows)
    runs = {seed: pretrain(RATES[FAVORED], steps, seed=seed, of=of, every=every, layers=DEEPER) for seed in seeds}
    return [{"seed": seed, "curve": curve} for seed, (_, curve) in runs.items()]


@experiment
def pretraining(runs: Sequence[tuple[str, int, Sequence[int]]] = RUNS, *, every: int = 200) -> list[dict[str, Any]]:
    """The lesson's run with both ways to choose what is masked: blanks filled correctly over time."""
    of = load_blanks(stored("bert_stories.blanks").rows)
    return [
        {"masked": masked, "seed": seed, "curve": pretrain(RATES[masked], steps, seed=seed, of=of, every=every)[1]}
        for masked, steps, seeds in runs
        for seed in seeds
    ]


def claims_of_runs(frame: DataFrame, longer: DataFrame) -> dict[int, float]:
    """Claims 3 to 5: the lowest last share of the favored runs, that of the longer one; the two recipes' means."""
    last = {name: [curve[-1]["all"] for curve in part["curve"]] for name, part in frame.groupby("masked")}
    difference = fmean(last[FAVORED]) - fmean(last["15% of all words"])
    return {3: min(last[FAVORED]), 4: longer["curve"][0][-1]["all"], 5: difference}


# ---- stories without their end ---------------------------------------------------------------------------------------


def ending_stories(split: str, numbers: Sequence[int]) -> tuple[list[list[str]], list[int]]:
    """The words of these stories without their last event, and 1 for a good end, 0 for a bad one."""
    stories = [told(split, number) for number in numbers]
    return [list(story.words[: story.told[-1].begin]) for story in stories], [int(story.happy) for story in stories]


# ---- where it looks --------------------------------------------------------------------------------------------------


@torch.no_grad()
def looks_of_blank(bert: nn.Module, ids: Int[Tensor, " time"], answer: int) -> dict[str, tuple[int, list[float]]]:
    """Where the blank is, and its weights on all positions in the last block.

    They are those of the head that puts the largest weight on the id `answer`; the title names it.
    """
    place = ids.tolist().index(MASK)
    with record(bert) as weights:
        bert(ids[None])
    rows = list(weights.values())[-1][0, :, place].float().cpu()  # (head, time)
    head = int(rows[:, ids.cpu() == answer].sum(dim=1).argmax())
    return {f"block {len(weights)}, head {head + 1}: weights of the blank": (place, rows[head].tolist())}


@contextmanager
def cut(block: nn.Module, ids: Int[Tensor, " time"], answer: int) -> Iterator[None]:
    """Inside the context, the blank of this text cannot read the id `answer` in `block`, by all of its heads.

    The block takes a Boolean mask, (batch, 1, 1, time) or wider, as its second input.
    """
    allowed = ~((ids == MASK)[:, None] & (ids == answer)[None, :])  # (query, key)
    handle = block.register_forward_pre_hook(lambda module, inputs: (inputs[0], inputs[1] & allowed, *inputs[2:]))
    try:
        yield
    finally:
        handle.remove()


# ---- stored: search --------------------------------------------------------------------------------------------------


EXAMPLE = "How can I make generated text less boring?"


@runtime_checkable
class Index(Protocol):
    """Something to search in."""

    def nearest(self, query: str, count: int = 3) -> list[Found]:
        """The nearest texts, the nearest first."""
        ...


def hit_rates(index: Index, passages: Sequence[Passage]) -> dict[str, float]:
    """Of `QUESTIONS`, how many find a passage of a lesson that answers them, in first place and among three."""
    found = {"first": 0, "among three": 0}
    for question, lessons in QUESTIONS.items():
        right = [int(passages[each.place].lesson[:2]) in lessons for each in index.nearest(question)]
        found["first"] += right[0]
        found["among three"] += any(right)
    return {name: count / len(QUESTIONS) for name, count in found.items()}


@experiment
def search() -> list[dict[str, Any]]:
    """Search of the lessons' text by counted words and by MiniLM, which has to be at hand."""
    passages = course_passages()
    texts = [passage.text for passage in passages]
    indices: dict[str, Index] = {"counted words": WordIndex(texts), "MiniLM": SemanticIndex(load_minilm(), texts)}
    return [
        {"by": name, "passages": len(texts), **hit_rates(index, passages), "answers": answers(index, passages, EXAMPLE)}
        for name, index in indices.items()
    ]


def answers(index: Index, passages: Sequence[Passage], question: str) -> list[str]:
    """The lessons and beginnings of the two nearest passages."""
    nearest = (passages[each.place] for each in index.nearest(question, count=2))
    return [f"{passage.lesson}: {passage.text[:150]} …" for passage in nearest]
