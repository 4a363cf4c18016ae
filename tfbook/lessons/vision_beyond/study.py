"""Study of lesson 14: the two shipped models at work, and models that run with the reader's own pieces.

Shapes: batch, head, row and column (of a grid of patches), place = row · column, d; word.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.efficient import Neighborhood
from tfbook.attention.windows import allowed_in_windows, into_windows, out_of_windows, same_window, window_numbers
from tfbook.course.captioning import Middles, middles
from tfbook.data.download import File, fetch
from tfbook.data.scenes import COLORS, KINDS, Scene
from tfbook.lessons.vision_beyond import contest, finding
from tfbook.lessons.vision_beyond.answers import answer as answer
from tfbook.lessons.vision_beyond.claims import CLAIMS as CLAIMS
from tfbook.lessons.vision_beyond.erasing import (
    as_many_others as as_many_others,
    brightest as brightest,
    effect as effect,
    names_in as names_in,
    read_from as read_from,
    words_of as words_of,
)
from tfbook.lessons.vision_beyond.orders import (
    drawn_boxes as drawn_boxes,
    finding_in as finding_in,
    rectangles as rectangles,
    rectangles_found as rectangles_found,
)
from tfbook.lessons.vision_beyond.pictures import (
    BLANK,
    EIGHT,
    GUESS,
    PALETTE as PALETTE,
    Pictures,
    colored_in,
    pictures as pictures,
)
from tfbook.lessons.vision_beyond.tables import (
    best_runs as best_runs,
    by_distance as by_distance,
    by_reach as by_reach,
    contest_runs as contest_runs,
    cost_by_side as cost_by_side,
    costs as costs,
    detr_costs as detr_costs,
    eyes as eyes,
    frequent as frequent,
    longer_runs as longer_runs,
    scoreboard as scoreboard,
    spread as spread,
)
from tfbook.models.captioner import Captioner, describe
from tfbook.models.detr import Detr
from tfbook.training.set_prediction import corners

WEIGHTS = "vision/{}.safetensors"  # in data/, half precision

LEAST = 0.8  # the chance of any object at which the shipped DETR claims one: what "valid" chose

# ---- the two shipped models --------------------------------------------------------------------------------------


def shipped(model: nn.Module, name: str) -> Any:
    """The model with the weights that ship under this name, on the CPU, in eval mode."""
    from safetensors.torch import load_file

    weights = load_file(fetch(File(path=WEIGHTS.format(name))))
    model.load_state_dict({key: w.float() if w.is_floating_point() else w for key, w in weights.items()})
    return model.eval()


@cache
def captioner() -> Captioner:
    """The first of the stored captioners."""
    return shipped(finding.new_captioner(), "captioner")


@cache
def detr() -> Detr:
    """The first of the stored DETRs."""
    return shipped(finding.new_detr(), "detr")


class Told(NamedTuple):
    """A caption and where the model looked at each of its words, by places and by pixels."""

    words: tuple[str, ...]
    looks: Float[Tensor, "word row column"]
    light: Float[Tensor, "word height width"]

    def __str__(self) -> str:
        return " ".join(self.words).replace(" ,", ",")


def tell(model: Captioner, scene: Scene) -> Told:
    """The caption that the model writes, word by word."""
    said = describe(model, scene.image[None])
    words = tuple(finding.SCENES.vocabulary.decode(said.tokens[0]))
    looks = said.weights[0, : len(words)].unflatten(1, model.config.grid)
    return Told(words, looks, on_pixels(looks, middles(model.encoder.layers), scene.image.shape[1]))


def on_pixels(looks: Float[Tensor, "word row column"], at: Middles, side: int) -> Float[Tensor, "word side side"]:
    """Weights of places, each at the pixel in the middle of what it sees, and in between by their distances."""
    pixels = ((torch.arange(side) - at.first) / at.step).clamp(0, looks.shape[-1] - 1)
    tents = (1 - (pixels[:, None] - torch.arange(looks.shape[-1])).abs()).clamp(min=0)  # side, place
    return tents @ looks @ tents.mT


def naming(words: Sequence[str]) -> list[int]:
    """Which of the words name a kind or a color; the first six."""
    return [number for number, word in enumerate(words) if word in (*KINDS, *COLORS)][:6]


class Found(NamedTuple):
    """A claimed object: its kind, the chance of any object, and its box by corners."""

    kind: str
    chance: float
    box: Float[Tensor, "4"]


@torch.no_grad()
def find(model: Detr, scene: Scene, least: float) -> list[Found]:
    """The objects that the queries claim with a chance over `least`, the surest first."""
    logits, boxes = (part[0] for part in model(scene.image[None]))
    chance = 1 - logits.softmax(dim=-1)[:, -1]
    kinds = logits[:, :-1].argmax(dim=-1)
    rows = [
        Found(KINDS[int(kind)], float(sure), box)
        for kind, sure, box in zip(kinds, chance, corners(boxes), strict=True)
        if sure > least
    ]
    return sorted(rows, key=lambda row: -row.chance)


# ---- the page's own versions of the exercises --------------------------------------------------------------------


def partition(x: Float[Tensor, "batch row column d"], window: int, shift: int) -> Float[Tensor, "batch window place d"]:
    """The page's own version of Exercise 1."""
    return into_windows(x, (window, window), (shift, shift))


def shift_mask(rows: int, columns: int, window: int, shift: int) -> Bool[Tensor, "window place place"]:
    """The page's own version of Exercise 2."""
    sides, by = (window, window), (shift, shift)
    return allowed_in_windows(window_numbers((rows, columns), sides, by), sides, by)


def mix_places(x: Float[Tensor, "batch place d"], W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor) -> Tensor:
    """The page's own version of Exercise 3."""
    return F.linear(F.gelu(F.linear(x.mT, W1, b1)), W2, b2).mT


def match_cost(logits: Tensor, boxes: Tensor, labels: Tensor, targets: Tensor, giou: Tensor) -> Tensor:
    """The page's own version of Exercise 4."""
    return 5 * torch.cdist(boxes, targets, p=1) - 2 * giou - logits.softmax(dim=-1)[:, labels]


def join(
    windows: Float[Tensor, "batch window place d"], window: int, shift: int
) -> Float[Tensor, "batch row column d"]:
    """The square grid that was cut into these windows: the inverse of `partition`."""
    side = round((windows.shape[1] * windows.shape[2]) ** 0.5)
    return out_of_windows(windows, (side, side), (window, window), (shift, shift))


# ---- what sees what ----------------------------------------------------------------------------------------------

BOOK = (EIGHT, EIGHT)
WHOLE = torch.ones(EIGHT**2, EIGHT**2, dtype=torch.bool)


def _near(reach: int) -> Bool[Tensor, "place source"]:
    return Neighborhood(EIGHT, reach).sees(BOOK, 1)[0]


def _shares(shift: int) -> Bool[Tensor, "place source"]:
    return same_window(BOOK, (contest.WINDOW,) * 2, (shift,) * 2)


EYES: dict[str, tuple[Bool[Tensor, "place source"], ...]] = {  # who hears whom, block by block
    "windows": (_shares(0),),
    "shifted windows": (_shares(0), _shares(contest.SHIFT)),
    "global attention": (WHOLE,),
    "MLP-Mixer": (WHOLE,),
    "convolution": (_near(1),),
    "hybrid": (_near(1), _near(1), WHOLE, _near(1)),
    "ConvMixer": (_near(1),),
    "pool": (WHOLE,),
    "convolution, 5 × 5": (_near(2),),
}
CONNECTS = {  # in the order of the figure: where the weights come from
    "windows": "attention",
    "shifted windows": "attention",
    "global attention": "attention",
    "MLP-Mixer": "fixed",
    "convolution": "fixed",
}


def heard(name: str, blocks: int = contest.BLOCKS) -> Bool[Tensor, "place source"]:
    """Which places' patches can arrive at which place through so many blocks."""
    seen = torch.eye(EIGHT**2, dtype=torch.bool)
    for block in reversed(range(blocks)):
        step = EYES[name][block % len(EYES[name])]
        seen = (seen.float() @ step.float()) > 0
    return seen


def reaches(name: str, place: tuple[int, int]) -> list[Bool[Tensor, "row column"]]:
    """The places that one block and two blocks of a mixer bring to a place."""
    grids = (heard(name, blocks).unflatten(1, BOOK) for blocks in (1, 2))
    return [grid[place[0] * EIGHT + place[1]] for grid in grids]


def ceilings(name: str, part: Pictures) -> dict[int, float]:
    """The right answers in percent that reach allows, by distance: a guess where the partner is not heard."""
    here = torch.arange(EIGHT**2).expand_as(part.sources)
    allowed = torch.where(heard(name)[here, part.sources], 100.0, GUESS)
    white, far = part.labels != BLANK, contest.distances(part)
    return {n: float(allowed[white & (far == n)].mean()) for n in range(1, EIGHT)}


# ---- painted -----------------------------------------------------------------------------------------------------


class Painted(NamedTuple):
    """Pictures in the colors that a model gave, and which of its answers are wrong."""

    images: Float[Tensor, "batch 3 side side"]
    wrong: Bool[Tensor, "batch place"]


def painted(model: nn.Module, part: Pictures) -> Painted:
    """The pictures as the model paints them."""
    said = contest.said(model, part.images)
    return Painted(colored_in(part, said), (said != part.labels) & (part.labels != BLANK))


def marks(model: nn.Module, part: Pictures) -> dict[str, float]:
    """Right answers in percent: all, partners in one window and across a border of windows, and the jigsaw."""
    scores = contest.marks(model, part)
    named = {"all": "test", "in one window": "same window", "across a border": "across", "jigsaw": "jigsaw"}
    return {name: round(scores[key], 1) for name, key in named.items()}
