"""Ask a picture: tiles of a scene, seen by the reader's own tower, stand in front of the words of a question.

Shapes: scene, tile, word (padded), place (tiles, then words), vocab.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tfbook import runtime, training
from tfbook.attention.masks import Prefix
from tfbook.course.captioning import images_of
from tfbook.data.scenes import COLORS, GROUNDS, KINDS, Scene, SceneObject, compose
from tfbook.data.scenes.corpus import drawn_scenes
from tfbook.lessons.modalities.pictures_and_words import CLOSE, looks_of, recipe
from tfbook.models.blocks import Config, Stack, init_weights
from tfbook.text.vocabulary import PAD, Vocabulary

if TYPE_CHECKING:
    from pandas import DataFrame

GRID = 2  # rows and columns of tiles
TILES = GRID**2
QUARTERS = ("top left", "top right", "bottom left", "bottom right")
END = "."
FORMS = ("what color", "what kind", "where", "what is at")
D_TOKEN = 64  # numbers of a tile's token
SPEAKER = Config(d_model=64, heads=4, d_ff=128, layers=2, max_length=32)
_PLAIN = ["what", "color", "is", "the", "thing", "where", "a", "nothing", "?"]
WORDS = Vocabulary([sorted({*KINDS, *COLORS, *" ".join(QUARTERS).split(), *_PLAIN, END})])


# ---- scenes and questions --------------------------------------------------------------------------------------------


def quarter_of(thing: SceneObject) -> str:
    """The tile in which an object has its center, as words."""
    return QUARTERS[GRID * int(thing.y * GRID) + int(thing.x * GRID)]


def in_quarter(
    kind: str, color: str, quarter: str, *, off: tuple[float, float] = (0.0, 0.0), size: float = 0.31, tilt: float = 0.0
) -> SceneObject:
    """An object in the middle of a tile, moved by `off`, a share of the tile. Raises ValueError for another place."""
    if quarter not in QUARTERS:
        raise ValueError(f"quarter is {quarter!r}; expected one of {', '.join(QUARTERS)}")
    row, column = divmod(QUARTERS.index(quarter), GRID)
    return SceneObject(kind, color, (column + 0.5 + off[0]) / GRID, (row + 0.5 + off[1]) / GRID, size, tilt)


@cache  # the page asks for the same scenes again: its scoreboard counts their most frequent answers
def in_quarters(split: str, count: int) -> list[Scene]:
    """Scenes of two or three objects of different kinds and colors, each in a quarter of its own."""
    rng, looks = random.Random(f"quarters {split}"), looks_of()
    things: list[list[SceneObject]] = []
    while len(things) < count:
        chosen = rng.sample(looks, rng.choice((2, 3)))
        if min(len({look[part] for look in chosen}) for part in (0, 1)) < len(chosen):
            continue
        own = []
        for (kind, color), quarter in zip(chosen, rng.sample(QUARTERS, len(chosen)), strict=True):
            off = rng.uniform(-0.1, 0.1), rng.uniform(-0.1, 0.1)
            own.append(
                in_quarter(kind, color, quarter, off=off, size=rng.uniform(0.25, 0.37), tilt=rng.uniform(-12, 12))
            )
        things.append(own)
    grounds = [rng.choice(list(GROUNDS)) for _ in things]
    return drawn_scenes(things, grounds, [rng.getrandbits(32) for _ in things], GRID * CLOSE)


def composed(things: dict[str, str], ground: str = "sand") -> Scene:
    """The scene of these things: {"top left": "red star"}."""
    objects = []
    for quarter, look in things.items():
        color, kind = look.split()
        objects.append(in_quarter(kind, color, quarter))
    return compose(objects, ground=ground, side=GRID * CLOSE)


def question_and_answer(scene: Scene, form: str, rng: random.Random) -> tuple[str, str]:
    """A question of this form about a scene, and its true answer; the thing or the quarter is drawn."""
    thing = rng.choice(scene.objects)
    if form == "what is at":
        quarter = rng.choice(QUARTERS)
        there = {quarter_of(one): str(one) for one in scene.objects}
        return f"what is {quarter} ?", there.get(quarter, "nothing")
    return {
        "what color": (f"what color is the {thing.kind} ?", thing.color),
        "what kind": (f"what is the {thing.color} thing ?", f"a {thing.kind}"),
        "where": (f"where is the {thing.kind} ?", quarter_of(thing)),
    }[form]


def word_ids(text: str) -> list[int]:
    """The ids of a text's words. Raises ValueError for a word that no question and no answer has."""
    words = text.lower().replace("?", " ?").split()
    unknown = [word for word in words if word not in WORDS]
    if unknown or not words:
        raise ValueError(
            f"{text!r} has the unknown word {unknown[:1]}; expected words of: {' '.join(WORDS.tokens[4:])}"
        )
    return WORDS.encode(words)


# ---- batches ---------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """Tokens of scenes, each with the words of a question and its answer; where the answer's words and its end are."""

    tiles: Float[Tensor, "scene tile d_token"]
    ids: Int[Tensor, "scene word"]
    lengths: Int[Tensor, " scene"]  # of the questions
    answer: Bool[Tensor, "scene word"]

    def to(self, device: torch.device) -> Asked:
        """The same on a device."""
        return Asked(*(part.to(device) for part in self))


def asked_of(tiles: Float[Tensor, "scene tile d_token"], texts: Sequence[tuple[str, str]]) -> Asked:
    """Questions with their answers as one padded sequence of words each."""
    questions = [word_ids(question) for question, _ in texts]
    rows = [torch.tensor(ids + word_ids(f"{answer} {END}")) for ids, (_, answer) in zip(questions, texts, strict=True)]
    ids, lengths = pad_sequence(rows, batch_first=True, padding_value=PAD), torch.tensor([len(q) for q in questions])
    answer = (torch.arange(ids.shape[1]) >= lengths[:, None]) & (ids != PAD)
    return Asked(tiles, ids, lengths, answer)


def tiles_of(images: Float[Tensor, "scene 3 height width"]) -> Float[Tensor, "tile 3 row column"]:
    """The tiles of each image, row by row, as small images of their own."""
    parts = images.unflatten(-1, (GRID, -1)).unflatten(-3, (GRID, -1))  # scene, 3, row, height, column, width
    return parts.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)


@torch.no_grad()
def tile_tokens(tower: nn.Module, scenes: Sequence[Scene]) -> Float[Tensor, "scene tile d_token"]:
    """For each tile the mean of its patches' vectors in a tower that is not trained further."""
    tower = tower.cpu().eval()
    chunks = [scenes[first : first + 100] for first in range(0, len(scenes), 100)]
    found = [tower.representations(tiles_of(images_of(chunk))).mean(dim=1) for chunk in chunks]  # type: ignore[operator]
    return torch.cat(found).unflatten(0, (-1, TILES))


def asked_batches(
    scenes: Sequence[Scene], tiles: Float[Tensor, "scene tile d_token"], size: int, seed: int
) -> Callable[[int], Asked]:
    """Maps a step to `size` scenes, each with a question of a random form."""

    def batch(step: int) -> Asked:
        rng = random.Random(f"{seed} {step}")
        rows = rng.sample(range(len(scenes)), size)
        return asked_of(tiles[rows], [question_and_answer(scenes[row], rng.choice(FORMS), rng) for row in rows])

    return batch


# ---- the model -------------------------------------------------------------------------------------------------------


class PictureSpeaker(nn.Module):
    """A small language model that reads tiles through one linear layer, and goes on writing after a question."""

    def __init__(self, config: Config = SPEAKER):
        super().__init__()
        d = config.d_model
        self.link = nn.Sequential(nn.LayerNorm(D_TOKEN), nn.Linear(D_TOKEN, d))
        self.row, self.column = (nn.Parameter(torch.randn(GRID, d)) for _ in range(2))
        self.embed = nn.Embedding(len(WORDS), d)
        self.stack = Stack(config)
        self.head = nn.Linear(d, len(WORDS))
        self.stack.apply(init_weights)

    def forward(
        self, tiles: Float[Tensor, "scene tile d_token"], ids: Int[Tensor, "scene word"], lengths: Int[Tensor, " scene"]
    ) -> Float[Tensor, "scene place vocab"]:
        """The logits of the next word at each place; tiles and question see each other, an answer what is before it."""
        places = (self.row[:, None] + self.column).flatten(0, 1)
        x = torch.cat([self.link(tiles) + places, self.embed(ids)], dim=1)
        return self.head(self.stack(x, Prefix(lengths + TILES)))


def plain_ask_loss(
    logits: Float[Tensor, "scene place vocab"], ids: Int[Tensor, "scene word"], answer: Bool[Tensor, "scene word"]
) -> Float[Tensor, ""]:
    """The mean of −log p(word) over the words of the answers, in nats; the place before a word guesses it."""
    before = logits[:, -ids.shape[1] - 1 : -1]
    return F.cross_entropy(before[answer], ids[answer])


AnswerLoss = Callable[[Tensor, Tensor, Tensor], Any]  # of logits, ids and which words are answers


def asking_recipe(steps: int) -> training.Recipe:
    """Muon for the matrices of the blocks and AdamW for the rest, both with a short warm-up and a cosine."""
    return replace(recipe(steps, 1e-2), optimizer="muon")


def train_speaker(
    model: nn.Module,
    scenes: Sequence[Scene],
    tiles: Float[Tensor, "scene tile d_token"],
    *,
    loss: AnswerLoss = plain_ask_loss,
    seed: int = 1,
    steps: int = 400,
    size: int = 96,
) -> training.History:
    """Trains on questions about scenes with `loss(logits, ids, answer)`."""

    def asked_loss(model: nn.Module, batch: Asked) -> Any:
        return loss(model(batch.tiles, batch.ids, batch.lengths), batch.ids, batch.answer)

    model.to(runtime.device())
    history = training.fit(model, asked_loss, asked_batches(scenes, tiles, size, seed), asking_recipe(steps))
    model.cpu().eval()
    return history


# ---- asking ----------------------------------------------------------------------------------------------------------


class Answered(NamedTuple):
    """The words that a model writes, without the end, and the product of their probabilities and that of the end."""

    text: str
    chance: float


@torch.no_grad()
def answers_to(
    model: nn.Module, tiles: Float[Tensor, "scene tile d_token"], questions: Sequence[str]
) -> list[Answered]:
    """The most probable next word after each question, again and again until the end, at most five words."""
    found = []
    for own, question in zip(tiles.split(1), questions, strict=True):
        start = word_ids(question)
        ids, chance = start, 1.0
        while len(ids) < len(start) + 5 and ids[-1:] != word_ids(END):
            logits = model(own, torch.tensor([ids]), torch.tensor([len(start)]))[0, -1]
            best = logits.softmax(dim=0).max(dim=0)
            ids, chance = [*ids, int(best.indices)], chance * float(best.values)
        text = " ".join(WORDS.tokens[number] for number in ids[len(start) :])
        found.append(Answered(text.removesuffix(f" {END}"), chance))
    return found


def exam(scenes: Sequence[Scene], form: str) -> list[tuple[str, str]]:
    """One question of this form about each scene, always the same."""
    rng = random.Random(f"exam {form}")
    return [question_and_answer(scene, form, rng) for scene in scenes]


@torch.no_grad()
def answered_right(
    model: nn.Module, scenes: Sequence[Scene], tiles: Float[Tensor, "scene tile d_token"]
) -> dict[str, float]:
    """For each form the share of scenes whose whole answer is right: every word most probable after those before."""
    found = {}
    for form in FORMS:
        batch = asked_of(tiles, exam(scenes, form))
        guessed = model(batch.tiles, batch.ids, batch.lengths)[:, TILES - 1 : -1].argmax(dim=-1)
        found[form] = float(((guessed == batch.ids) | ~batch.answer).all(dim=1).float().mean())
    return found


def most_frequent_answers(scenes: Sequence[Scene], asked: Sequence[Scene]) -> dict[str, float]:
    """How often the most frequent answer to questions of this form is right: an answer that sees no picture."""
    found = {}
    for form in FORMS:
        known, wanted = ([answer for _, answer in exam(some, form)] for some in (scenes, asked))
        found[form] = wanted.count(max(sorted(set(known)), key=known.count)) / len(wanted)
    return found


# ---- tables ----------------------------------------------------------------------------------------------------------


def asking_table(**shares: dict[str, float]) -> DataFrame:
    """Shares of right answers, a row for each who answers, with their mean over the forms."""
    import pandas as pd

    table = pd.DataFrame(shares).T
    table["mean"] = table.mean(axis=1)
    return table.map("{:.0%}".format).rename(index=lambda name: name.replace("_", " "))


def asking_claims(right: dict[str, float]) -> dict[int, float]:
    """The mean over the forms of the page's own model."""
    return {9: sum(right.values()) / len(right)}
