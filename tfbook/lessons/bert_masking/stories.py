"""BERT on the story world: blanks that the rest of a story determines, and models that fill them in.

Shapes: batch, time, d_model, vocab.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial, wraps
from statistics import fmean
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from tfbook import data, runtime, training
from tfbook.attention.positions import Learned, Rotary, Start
from tfbook.course.batches import SortedBatches
from tfbook.course.experiments import experiment, stored
from tfbook.data.stories import WORLD, check_story, story_ids, told, words_of, world_words
from tfbook.data.stories.lexicon import NAMES, NOUNS, PLACES
from tfbook.models.bert import BERT, Bert, MaskedLanguageModel
from tfbook.models.blocks import PreNorm
from tfbook.models.norms import LayerNorm
from tfbook.pretrain.storyteller import load_storyteller
from tfbook.text.masking import BERT_SPECIALS, CLS, MASK, SEP, Masking, mask_tokens
from tfbook.text.vocabulary import BOS, PAD
from tfbook.training.losses import Loss, masked_loss

# ---- blanks that a story determines ----------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, ...]] = {
    "names": NAMES[: WORLD.names],
    "things": tuple(NOUNS[: WORLD.things]),
    "places": tuple(PLACES[: WORLD.places]),
    "pronouns": ("he", "she", "him", "her", "his"),
}
KIND_OF = {word: kind for kind, words in KINDS.items() for word in words}
STORIES, TRIED = 400, 3  # held-out stories, and words tried in each

held_out = cache(partial(told, "valid"))  # the story of that number, generated once


class Blank(NamedTuple):
    """A word that the rest of its story determines: its story in the split "valid", and its position in it."""

    story: int
    place: int
    kind: str


def determined(words: Sequence[str], place: int) -> bool:
    """Whether every other word of the vocabulary, at this position, contradicts the story or the grammar."""
    others = dict.fromkeys((*KIND_OF, *world_words()))  # those most likely to fit come first
    others.pop(words[place], None)
    return not any(check_story([*words[:place], word, *words[place + 1 :]]).consistent for word in others)


def find_blanks(numbers: Sequence[int]) -> list[Blank]:
    """The determined ones among `TRIED` names, things, places and pronouns of each of these held-out stories."""
    found = []
    for number in numbers:
        words = held_out(number).words
        places = [place for place, word in enumerate(words) if word in KIND_OF]
        tried = sorted(random.Random(number).sample(places, TRIED))
        found += [Blank(number, place, KIND_OF[words[place]]) for place in tried if determined(words, place)]
    return found


@experiment
def blanks(count: int = STORIES) -> list[dict[str, Any]]:
    """The blanks used for evaluation, one row per kind: "story:position" of each."""
    found = find_blanks(range(count))
    return [
        {"kind": kind, "where": " ".join(f"{each.story}:{each.place}" for each in found if each.kind == kind)}
        for kind in KINDS
    ]


def load_blanks(rows: Sequence[Mapping[str, str]]) -> list[Blank]:
    """The blanks from the rows that `blanks` returned, in the order of the stories."""
    pairs = [(row["kind"], where.split(":")) for row in rows for where in row["where"].split()]
    return sorted(Blank(int(story), int(place), kind) for kind, (story, place) in pairs)


Guess = Callable[[list[list[str]], Sequence[Blank]], Sequence[str]]  # texts with one "[MASK]" each


def share_right(guess: Guess, of: Sequence[Blank]) -> dict[str, float]:
    """Share of blanks that a guesser fills with the right word, overall and for each kind."""
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
    """Guessers that are told the blank's kind: its most frequent word in `texts`, or the first one in the story."""
    counts = Counter(word for words in texts for word in words)
    often = {kind: max(words, key=counts.__getitem__) for kind, words in KINDS.items()}

    def first(words: list[str], kind: str) -> str:
        return next((word for word in words if KIND_OF.get(word) == kind), "")

    return {
        "most frequent of its kind": lambda texts, of: [often[blank.kind] for blank in of],
        "first of its kind": lambda texts, of: [first(*pair) for pair in zip(texts, (b.kind for b in of), strict=True)],
    }


def comes_later(blank: Blank) -> bool:
    """Whether the story has this word after the blank but not before."""
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
    """`share_right` for the storyteller, a GPT that has read more text but sees only the words before a blank."""
    teller = load_storyteller()
    numbers = sorted({blank.story for blank in of})
    ids = story_ids([held_out(number).words for number in numbers], teller.vocabulary)
    guessed = [teller.model(part.to(runtime.device())).argmax(dim=-1).cpu() for part in ids.split(50)]
    row = dict(zip(numbers, torch.cat(guessed), strict=True))
    # the output at position `place` predicts that word, since ids begin with `<bos>`
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
    """Both encodings: a learned vector per position, as in BERT, and rotated queries and keys."""

    def __init__(self, d_model: int, heads: int, max_length: int):
        super().__init__(max_length, d_model)
        self.rotary = Rotary(d_model // heads)

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], start: Start = 0
    ) -> Float[Tensor, "batch head time d_head"]:
        """x rotated by the angles of its positions, as in `Rotary`."""
        return self.rotary.rotate(x, start)


def package_bert(d_model: int, heads: int, d_ff: int, layers: int, body: type[Bert] = Bert) -> Bert:
    """The package's BERT with the lesson's parts: both kinds of positions, pre-norm, no dropout."""
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
    nn.init.zeros_(bert.get_parameter("stack.position.embedding.weight"))
    return bert


def seeded(function: Callable[..., Any], *more: Any) -> Callable[..., Any]:
    """The same function with a fixed seed before every call; `more` is appended to its inputs."""

    @wraps(function)
    def same(*inputs: Any) -> Any:
        torch.manual_seed(1)
        return function(*inputs, *more)

    return same


class ReadsPadding(Bert):
    """The same model, which infers the lengths from the padding, as the lesson's class does."""

    def forward(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """A vector for each token."""
        return super().forward(ids, (ids != PAD).sum(dim=1), segments)


class WordHead(nn.Linear):
    """Scores of the words from a vector: the transposed embedding, and a bias."""

    def __init__(self, bert: Bert):
        super().__init__(bert.config.d_model, bert.embed.num_embeddings)
        nn.init.zeros_(self.bias)
        self.weight = bert.embed.weight


def package_filler(layers: int = SIZES[-1]) -> MaskedLanguageModel:
    """The lesson's model: this BERT with the tied embedding as its head."""
    model = MaskedLanguageModel(package_bert(*SIZES[:-1], layers))
    model.head = WordHead(model.bert)  # type: ignore[assignment]
    return model


def encode(words: Sequence[str]) -> Tensor:
    """The ids of `[CLS]`, the words, `[SEP]`."""
    return torch.tensor([CLS, *(IDS[word] for word in words), SEP])


@torch.no_grad()
def fill(model: MaskedLanguageModel, texts: Sequence[Sequence[str]]) -> list[str]:
    """The likeliest word for the one `[MASK]` in each text."""
    ids, lengths = padded([encode(words) for words in texts])
    vectors = model.bert(ids, lengths)[ids == MASK]
    return [TOKENS[best] for best in model.head(vectors).argmax(dim=-1).tolist()]


def padded(rows: Sequence[Tensor]) -> tuple[Int[Tensor, "batch time"], Int[Tensor, " batch"]]:
    """The rows as one padded batch on the chosen device, with their lengths."""
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
    """Masking rate of every word: one for the words of the four kinds, one for all others."""
    return torch.tensor([kind if token in KIND_OF else other for token in TOKENS])


def filler_loss(model: MaskedLanguageModel, ids: Int[Tensor, "batch time"], rates: Float[Tensor, " vocab"]) -> Loss:
    """Masked language modeling with a separate masking rate for each word of the vocabulary."""
    masked = mask_tokens(ids, len(TOKENS), Masking(rate=1.0), weights=rates)
    return masked_loss(model, masked, (ids != PAD).sum(dim=1))


def pretrain(
    rates: tuple[float, float], steps: int, *, seed: int, of: Sequence[Blank], every: int, layers: int = SIZES[-1]
) -> tuple[MaskedLanguageModel, list[dict[str, float]]]:
    """A pretrained model, and the shares of blanks that it fills correctly during training."""
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
    """The same run with four blocks and more steps."""
    of = load_blanks(stored("bert_masking.blanks").rows)
    runs = {seed: pretrain(RATES[FAVORED], steps, seed=seed, of=of, every=every, layers=DEEPER) for seed in seeds}
    return [{"seed": seed, "curve": curve} for seed, (_, curve) in runs.items()]


@experiment
def pretraining(runs: Sequence[tuple[str, int, Sequence[int]]] = RUNS, *, every: int = 200) -> list[dict[str, Any]]:
    """The lesson's run with both masking recipes: share of blanks filled correctly over time."""
    of = load_blanks(stored("bert_masking.blanks").rows)
    return [
        {"masked": masked, "seed": seed, "curve": pretrain(RATES[masked], steps, seed=seed, of=of, every=every)[1]}
        for masked, steps, seeds in runs
        for seed in seeds
    ]
