"""The contest of lesson 14: one block, one coloring book, one recipe, and nine ways to carry things between places.

Shapes: batch; place (row · column of the grid); row, column; window; d, d_ff; color.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention.windows import allowed_in_windows, into_windows, out_of_windows, window_numbers
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment, stored
from tfbook.lessons.vision_beyond.pictures import (
    BLANK,
    EIGHT,
    PALETTE,
    PIXELS,
    Pictures,
    jigsaw,
    moved,
    pictures,
)
from tfbook.models.blocks import on_paper
from tfbook.models.conv_mixer import ConvMixer, ConvMixerConfig
from tfbook.models.patch_mixers import DepthwiseConvolution, TokenMlp
from tfbook.models.swin import relative_places
from tfbook.models.vit import patchify
from tfbook.text.batching import LengthGroupedSampler

WINDOW, SHIFT = 4, 2  # places along a side of a window
D, HEADS, D_FF, BLOCKS = 32, 4, 64, 4  # of the model with global attention
LEARN, ASK = 4000, 500  # pictures to train on; pictures of "valid" and of "test"
STEPS, BATCH = 600, 16
RATES = (0.003, 0.01)
LONGER = {"pool": 4000, "MLP-Mixer": 1200}  # steps by twin, at the lower rate
SEEDS = (1, 2, 3)
LEARNED = 60.0  # percent of right answers over which a model under the rule "twin" got its other seeds at once

# ---- the page's classes ------------------------------------------------------------------------------------------


class GridAttention(nn.Module):
    """Attention in windows of the grid, with a bias for each head and relative place: Swin's (Liu et al., 2021, eq. 4).

    A window as large as the grid is global attention.
    """

    def __init__(self, d: int, window: int, shift: int = 0, heads: int = HEADS):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))

    def forward(self, x: Float[Tensor, "batch place d"]) -> Float[Tensor, "batch place d"]:
        """All windows of all pictures are one batch."""
        sides, by = (self.window, self.window), (self.shift, self.shift)
        cut = into_windows(self.qkv(x).unflatten(1, (EIGHT, EIGHT)), sides, by)  # batch, window, place, 3 d
        q, k, v = cut.unflatten(-1, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)
        seen = allowed_in_windows(window_numbers((EIGHT, EIGHT), sides, by, x.device), sides, by)
        bias = self.table[relative_places(self.window).to(x.device)].movedim(-1, 0)  # head, query, key
        scores = (q @ k.mT / math.sqrt(q.shape[-1]) + bias).masked_fill(~seen[:, None], -torch.inf)
        mixed = (scores.softmax(dim=-1) @ v).transpose(2, 3).flatten(3)
        return self.out(out_of_windows(mixed, (EIGHT, EIGHT), sides, by).flatten(1, 2))


class MixerBlock(nn.Module):
    """x + mixer(norm(x)), then x + MLP(norm(x)): lesson 05's block with one word left open."""

    def __init__(self, mixer: nn.Module, d: int, d_ff: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mixer = mixer
        self.mlp = nn.Sequential(nn.Linear(d, d_ff), nn.GELU(), nn.Linear(d_ff, d))

    def forward(self, x: Float[Tensor, "batch place d"]) -> Float[Tensor, "batch place d"]:
        """Between places, then inside each place."""
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Painter(nn.Module):
    """Patches through blocks; each place says which color it would give to what is there."""

    def __init__(self, *blocks: nn.Module, d: int = D):
        super().__init__()
        self.embed = nn.Linear(3 * PIXELS**2, d)
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, len(PALETTE))

    def forward(self, images: Float[Tensor, "batch 3 side side"]) -> Float[Tensor, "batch place color"]:
        """One row of logits per place."""
        return self.head(self.norm(self.blocks(self.embed(patchify(images, PIXELS)))))


# ---- rivals ------------------------------------------------------------------------------------------------------


class Bag(nn.Module):
    """W · mean over places of (x + position): every place hears the same of all others."""

    def __init__(self, d: int):
        super().__init__()
        self.position = nn.Parameter(0.02 * torch.randn(EIGHT**2, d))
        self.map = nn.Linear(d, d)

    def forward(self, x: Float[Tensor, "batch place d"]) -> Float[Tensor, "batch place d"]:
        """The same vector for all places."""
        return self.map(F.gelu(x + self.position).mean(dim=1, keepdim=True)).expand_as(x)


class ConvPainter(nn.Module):
    """A ConvMixer that answers at each place instead of once for the picture."""

    def __init__(self, width: int, blocks: int = BLOCKS):
        super().__init__()
        sizes = ConvMixerConfig(d_model=width, layers=blocks, kernel=3, patch=PIXELS)
        self.model = ConvMixer(len(PALETTE), sizes)

    def forward(self, images: Float[Tensor, "batch 3 side side"]) -> Float[Tensor, "batch place color"]:
        """One row of logits per place."""
        return self.model.head(self.model.blocks(self.model.patches(images)).flatten(2).mT)


class PoolPainter(nn.Module):
    """MLP(own vector, sum over places of MLP(patch)): no attention, no positions, the same sum for all places."""

    def __init__(self, width: int):
        super().__init__()
        first, wide = nn.Linear(3 * PIXELS**2, width), nn.Linear(2 * width, width)
        self.tell = nn.Sequential(first, nn.GELU(), nn.Linear(width, width), nn.GELU())
        inner, last = nn.Linear(width, width), nn.Linear(width, len(PALETTE))
        self.hear = nn.Sequential(wide, nn.GELU(), inner, nn.GELU(), last)

    def forward(self, images: Float[Tensor, "batch 3 side side"]) -> Float[Tensor, "batch place color"]:
        """One row of logits per place."""
        told = self.tell(patchify(images, PIXELS))
        return self.hear(torch.cat([told, told.sum(dim=1, keepdim=True).expand_as(told)], dim=-1))


MakeMixer = Callable[[], nn.Module]


def convolving(kernel: int = 3) -> nn.Module:
    """A filter of `kernel` × `kernel` places for each channel."""
    return DepthwiseConvolution(D, HEADS, columns=EIGHT, kernel=kernel)


MIXERS: dict[str, tuple[MakeMixer, ...]] = {  # block by block, repeated as needed
    "bag": (partial(Bag, D),),
    "windows": (partial(GridAttention, D, WINDOW),),
    "shifted windows": (partial(GridAttention, D, WINDOW), partial(GridAttention, D, WINDOW, SHIFT)),
    "global attention": (partial(GridAttention, D, EIGHT),),
    "MLP-Mixer": (partial(TokenMlp, D, HEADS, time=EIGHT**2, d_tokens=64),),
    "convolution": (convolving,),
    "hybrid": (convolving, convolving, partial(GridAttention, D, EIGHT), convolving),
}
WIDER = {"convolution, 5 × 5": (partial(convolving, 5),)}  # the control of reach
WHOLE: dict[str, Callable[[int], nn.Module]] = {"ConvMixer": ConvPainter, "pool": PoolPainter}  # by width
NAMES = (*MIXERS, *WHOLE)


def of_width(name: str, d_ff: int) -> nn.Module:
    """The model of this name with MLPs of this width; of a ConvMixer and a pool, the width of all."""
    if name in WHOLE:
        return WHOLE[name](d_ff)
    mixers = (MIXERS | WIDER)[name]
    return Painter(*(MixerBlock(mixers[block % len(mixers)](), D, d_ff) for block in range(BLOCKS)))


def build(name: str) -> nn.Module:
    """The widest model of this name with no more parameters than global attention, whose MLPs have D_FF."""
    most = parameters(on_paper(lambda: of_width("global attention", D_FF)))
    widths = range(1, 1024)
    return of_width(
        name, bisect_right(widths, most, key=lambda d_ff: parameters(on_paper(lambda: of_width(name, d_ff))))
    )


# ---- training ----------------------------------------------------------------------------------------------------


def recipe(steps: int, lr: float, *, weight_decay: float = 0.05) -> training.Recipe:
    """AdamW with a warm-up over the first twentieth of the steps, then a cosine down to 0."""
    return training.Recipe(
        steps=steps,
        lr=lr,
        schedule=training.warmup_cosine(max(1, steps // 20), final=0.0),
        weight_decay=weight_decay,
        evaluate_every=steps,
        mixed_precision=False,
    )


class Batches:
    """`batches(step)` is that training step's batch: each example once per epoch, in an order drawn from the seed."""

    def __init__(self, part: Any, *, size: int, seed: int):
        self.part = part
        self.rows = LengthGroupedSampler(torch.ones(len(part), dtype=torch.int64), size=size, seed=seed)

    def __call__(self, step: int) -> Any:
        return self.part[self.rows(step)]


def loss(model: nn.Module, part: Pictures) -> Float[Tensor, ""]:
    """Mean cross-entropy of the colors of white objects, in nats."""
    return F.cross_entropy(model(part.images).flatten(0, 1), part.labels.flatten(), ignore_index=BLANK)


def trained(make: Callable[[], nn.Module], part: Pictures, *, lr: float, seed: int, steps: int = STEPS) -> nn.Module:
    """A model trained on `part`; weights, batches and their order follow from `seed`."""
    runtime.seed(seed)
    model = make().to(runtime.device())
    training.fit(model, loss, Batches(part, size=BATCH, seed=seed), recipe(steps, lr))
    return model.eval()


# ---- judging -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def said(model: nn.Module, images: Float[Tensor, "batch 3 side side"]) -> Int64[Tensor, "batch place"]:
    """The most probable color of each place, on the CPU; computed in pieces."""
    device = next(model.parameters()).device
    return torch.cat([model(piece.to(device)).argmax(dim=-1).cpu() for piece in images.split(100)])


def distances(part: Pictures) -> Int64[Tensor, "batch place"]:
    """How far each place's source is: the larger of the differences of rows and columns."""
    here = torch.arange(EIGHT**2)
    rows, columns = (part.sources // EIGHT - here // EIGHT).abs(), (part.sources % EIGHT - here % EIGHT).abs()
    return torch.maximum(rows, columns)


def in_one_window(part: Pictures) -> Bool[Tensor, "batch place"]:
    """Whether a place and its source share a window that has not been shifted."""
    number = window_numbers((EIGHT, EIGHT), (WINDOW, WINDOW)).flatten()
    return number[part.sources] == number


def percent(right: Bool[Tensor, "batch place"], where: Bool[Tensor, "batch place"]) -> float:
    """The share of right answers among some places, in percent."""
    return round(100 * float(right[where].float().mean()), 2)


def marks(model: nn.Module, part: Pictures) -> dict[str, float]:
    """Right answers in percent: all, those with the partner in one window and across a border, and to the jigsaw."""
    white, same, mixed = part.labels != BLANK, in_one_window(part), jigsaw(part)
    right = said(model, part.images) == part.labels
    return {
        "test": percent(right, white),
        "same window": percent(right, white & same),
        "across": percent(right, white & ~same),
        "jigsaw": percent(said(model, mixed.images) == mixed.labels, mixed.labels != BLANK),
    }


def scored(model: nn.Module, part: Pictures) -> dict[str, Any]:
    """The marks, and right answers by distance, and to images moved by some pixels."""
    white, far = part.labels != BLANK, distances(part)
    offset = {pixels: said(model, moved(part, pixels).images) == part.labels for pixels in range(PIXELS // 2 + 1)}
    return marks(model, part) | {
        "by_distance": {str(n): percent(offset[0], white & (far == n)) for n in range(1, EIGHT)},
        "moved": {str(pixels): percent(right, white) for pixels, right in offset.items()},
    }


# ---- stored ------------------------------------------------------------------------------------------------------


def one_run(name: str, rule: str, *, lr: float, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """A model trained on a rule and judged."""
    model = trained(partial(build, name), pictures("train", LEARN, rule), lr=lr, seed=seed, steps=steps)
    valid, test = pictures("valid", ASK, rule), pictures("test", ASK, rule)
    checked = percent(said(model, valid.images) == valid.labels, valid.labels != BLANK)
    return {"model": name, "rule": rule, "lr": lr, "seed": seed, "steps": steps, "valid": checked} | scored(model, test)


def runs_of(
    names: Iterable[str], rule: str, *, seeds: Sequence[int] = SEEDS, over: float = 0.0
) -> list[dict[str, Any]]:
    """The first seed at each rate; where "valid" is over a bound, the other seeds at the rate that it chooses."""
    rows = []
    for name in names:
        tried = [one_run(name, rule, lr=lr, seed=seeds[0]) for lr in RATES]
        best = chosen(tried)
        again = seeds[1:] if best["valid"] > over else ()
        rows += [*tried, *(one_run(name, rule, lr=best["lr"], seed=seed) for seed in again)]
    return rows


def chosen(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The run that is best on "valid"; of equal ones the first, at the lower rate."""
    return max(rows, key=lambda row: row["valid"])


MIXED = (*MIXERS, "ConvMixer")


@experiment
def by_row() -> list[dict[str, Any]]:
    """Blocks with each mixer, and the ConvMixer, under the rule "row"."""
    return runs_of(MIXED, "row")


@experiment
def by_twin() -> list[dict[str, Any]]:
    """The same under the rule "twin": the first seed of all, and the others of those that learn it."""
    return runs_of(MIXED, "twin", over=LEARNED)


@experiment
def wider_filters() -> list[dict[str, Any]]:
    """Filters of 5 × 5 places under both rules, in the same way: reach without attention."""
    return [row for rule in ("row", "twin") for row in runs_of(WIDER, rule, over=LEARNED)]


@experiment
def by_twin_again() -> list[dict[str, Any]]:
    """The second seed of those that did not learn the rule "twin" with the first: two seeds for all."""
    past = [row for name in ("by_twin", "wider_filters") for row in stored(f"vision_beyond.{name}").rows]
    rows = []
    for name in (*MIXED, *WIDER):
        best = chosen(row for row in past if (row["model"], row["rule"], row["seed"]) == (name, "twin", SEEDS[0]))
        rows += [one_run(name, "twin", lr=best["lr"], seed=SEEDS[1])] if best["valid"] <= LEARNED else []
    return rows


@experiment
def pooled() -> list[dict[str, Any]]:
    """A sum over all places under both rules: everything arrives, and nobody asks."""
    return [row for rule in ("row", "twin") for row in runs_of(("pool",), rule)]


@experiment
def longer(seeds: Sequence[int] = SEEDS[:2]) -> list[dict[str, Any]]:
    """More steps under the rule "twin" for two models without attention."""
    return [one_run(name, "twin", lr=RATES[0], seed=seed, steps=LONGER[name]) for name in LONGER for seed in seeds]


@experiment
def longer_windows(seeds: Sequence[int] = SEEDS[:2]) -> list[dict[str, Any]]:
    """Shifted windows under the rule "twin", with as many steps as the pool: does attention get across by itself?"""
    return [one_run("shifted windows", "twin", lr=RATES[0], seed=seed, steps=LONGER["pool"]) for seed in seeds]
