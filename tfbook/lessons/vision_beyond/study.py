"""Study of lesson 14: the two shipped models at work, and models that run with the reader's own pieces.

Shapes: batch, head, row and column (of a grid of patches), place = row · column, d; word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.efficient import Axial, GridAttention, Neighborhood, Windowed
from tfbook.attention.windows import allowed_in_windows, into_windows, out_of_windows, window_numbers
from tfbook.data.download import File, fetch
from tfbook.data.images import LabeledImages
from tfbook.data.scenes import COLORS, KINDS, Scene
from tfbook.lessons.vision_beyond import contest, finding, rows
from tfbook.lessons.vision_beyond.answers import answer as answer
from tfbook.lessons.vision_beyond.claims import CLAIMS as CLAIMS
from tfbook.lessons.vision_beyond.tables import (
    best_runs as best_runs,
    by_away as by_away,
    by_images as by_images,
    by_shift as by_shift,
    colors as colors,
    cost_by_side as cost_by_side,
    costs as costs,
    detr_costs as detr_costs,
    row_runs as row_runs,
    scoreboard as scoreboard,
    spread as spread,
)
from tfbook.models.attentive_cnn import FeatureAttention
from tfbook.models.blocks import alternate
from tfbook.models.captioner import Captioner, describe
from tfbook.models.detr import Detr
from tfbook.models.patch_mixers import without_attention
from tfbook.models.vit import Vit
from tfbook.parts import Part
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
    """A caption and where the model looked at each of its words."""

    words: tuple[str, ...]
    looks: Float[Tensor, "word row column"]

    def __str__(self) -> str:
        return " ".join(self.words).replace(" ,", ",")


def tell(model: Captioner, scene: Scene) -> Told:
    """The caption that the model writes, word by word."""
    said = describe(model, scene.image[None])
    words = tuple(finding.SCENES.vocabulary.decode(said.tokens[0]))
    return Told(words, said.weights[0, : len(words)].unflatten(1, model.config.grid))


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


# ---- models with the reader's pieces -----------------------------------------------------------------------------

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # of grids (batch, row, column, d)


@dataclass(frozen=True)
class OnGrid:
    """A function of grids as an attention implementation: every head is a grid of its own."""

    attend: Attend

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, **context: Any) -> Tensor:
        """Without masks, biases or dropout."""
        grids = (rearrange(x, "b h (r c) d -> (b h) r c d", r=rows.SIX) for x in (q, k, v))
        return rearrange(self.attend(*grids), "(b h) r c d -> b h (r c) d", b=len(q))


class Mixing(Part):
    """A token-mixing MLP whose formula is given: `mix(x, W1, b1, W2, b2)`."""

    def __init__(self, d_model: int, heads: int, *, mix: Callable[..., Tensor], hidden: int, dropout: float = 0.0):
        super().__init__()
        self.up, self.down = nn.Linear(rows.SIX**2, hidden), nn.Linear(hidden, rows.SIX**2)
        self.mix, self.d_model = mix, d_model

    def forward(self, x: Float[Tensor, "batch place d"], **context: Any) -> Float[Tensor, "batch place d"]:
        """The given formula, with this part's weights."""
        return self.mix(x, self.up.weight, self.up.bias, self.down.weight, self.down.bias)

    def parameter_count(self) -> int:
        """Two matrices and two biases."""
        return sum(weight.numel() for weight in self.parameters())

    def flops(self, time: int, **context: Any) -> int:
        """Two products for each channel."""
        return 4 * self.up.weight.numel() * self.d_model


def with_windows(*attends: Attend) -> nn.Module:
    """The contest's ViT, its blocks attending by these functions of grids in turn."""
    model = Vit(len(rows.PALETTE), rows.FORM)
    alternate(model.stack, *(OnGrid(attend) for attend in attends))
    return model


def with_mixing(mix: Callable[..., Tensor]) -> nn.Module:
    """The contest's MLP-Mixer, its places mixed by this function."""
    return Vit(len(rows.PALETTE), without_attention(rows.FORM, partial(Mixing, mix=mix, hidden=96)))


def accuracies(model: nn.Module, part: LabeledImages) -> dict[str, float]:
    """Right answers to the question about rows in percent: to the images as they are, and to the jigsaw."""
    pictures = {"in order": part.images, "jigsaw": contest.shuffled(part.images, rows.EIGHT)}
    return {
        name: round(100 * float(contest.right(model, images, part.labels).mean()), 1)
        for name, images in pictures.items()
    }


@torch.no_grad()
def without_gamma(model: nn.Module, part: LabeledImages) -> float:
    """Right answers in percent when every γ is 0 for once: the CNN without its attention."""
    kept = [layer.gamma.clone() for layer in feature_attention(model)]
    for layer in feature_attention(model):
        layer.gamma.zero_()
    right = 100 * float(contest.right(model, part.images, part.labels).mean())
    for layer, gamma in zip(feature_attention(model), kept, strict=True):
        layer.gamma.copy_(gamma)
    return round(right, 1)


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


def feature_attention(model: nn.Module) -> list[FeatureAttention]:
    """The layers of SAGAN's kind in a model."""
    return [layer for layer in model.modules() if isinstance(layer, FeatureAttention)]


# ---- what sees what ----------------------------------------------------------------------------------------------

EYES: dict[str, tuple[GridAttention, ...]] = {  # who sees whom, block by block
    "windows": (Windowed(rows.SIX, rows.THREE),),
    "shifted windows": (Windowed(rows.SIX, rows.THREE), Windowed(rows.SIX, rows.THREE, 1)),
    "neighborhood": (Neighborhood(rows.SIX),),
    "convolution": (Neighborhood(rows.SIX),),
    "ConvMixer": (Neighborhood(rows.SIX),),
    "axial": (Axial(rows.SIX),),
}


CONNECTS = {  # in the order of the figure: where the weights come from
    "ViT": "attention",
    "windows": "attention",
    "shifted windows": "attention",
    "neighborhood": "attention",
    "MLP-Mixer": "fixed",
    "convolution": "fixed",
}


def heard(name: str, blocks: int) -> Bool[Tensor, "place source"]:
    """Which places' vectors can arrive at which place through so many blocks."""
    everyone = torch.ones(rows.SIX**2, rows.SIX**2, dtype=torch.bool)
    nobody = torch.eye(rows.SIX**2, dtype=torch.bool)
    if name not in EYES:
        return nobody if name.startswith("bag") else everyone
    seen = nobody
    for block in reversed(range(blocks)):
        step = EYES[name][block % len(EYES[name])].sees((rows.SIX, rows.SIX), 2).any(dim=0)
        seen = (seen.float() @ step.float()) > 0
    return seen


def reaches(name: str, place: tuple[int, int]) -> list[Bool[Tensor, "row column"]]:
    """The places that one block and two blocks of a mixer bring to a place."""
    grids = (heard(name, blocks).unflatten(1, (rows.SIX, rows.SIX)) for blocks in (1, 2))
    return [grid[place[0] * rows.SIX + place[1]] for grid in grids]


def ceilings(name: str, count: int = rows.ASK) -> dict[int, float]:
    """The right answers in percent that reach allows on test scenes, by distance.

    All where some place hears from both the ring and the object in its row, a third where none does.
    """
    scenes, hears = rows.row_scenes("test", count), heard(name, rows.FORM.layers)
    found: dict[int, list[float]] = {}
    for scene in scenes:
        row, ring, column = scene.places
        both = hears[:, rows.SIX * row + ring] & hears[:, rows.SIX * row + column]
        found.setdefault(scene.away, []).append(100.0 if both.any() else 100 * rows.GUESS)
    return {away: sum(values) / len(values) for away, values in sorted(found.items())}
