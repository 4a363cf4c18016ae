"""Study of lesson 10: loss by parameters and tokens, its law, the directions of a gradient, and induction heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from tfbook import data, runtime, training
from tfbook.attention.positions import POSITIONS
from tfbook.attention.recording import record
from tfbook.course.experiments import experiment
from tfbook.data.text import Text
from tfbook.lessons.scaling_laws.answers import answer as answer
from tfbook.lessons.scaling_laws.claims import CLAIMS as CLAIMS
from tfbook.models import gpt
from tfbook.models.blocks import Config
from tfbook.models.feed_forward import FeedForward
from tfbook.pretrain.corpus import byte_counts
from tfbook.pretrain.measure import evaluation_windows, score
from tfbook.text.windows import Windows
from tfbook.training.losses import next_token_loss
from tfbook.training.optimizers import QUINTIC

if TYPE_CHECKING:
    from pandas import DataFrame


# ---- the lesson's GPT ------------------------------------------------------------------------------------------------

KINDS = 103  # distinct characters in the text of the stored runs
CONTEXT, BATCH = 64, 16


def small(width: int, layers: int) -> Config:
    """A small version of lesson 09's GPT: rotary positions, two heads, texts of `CONTEXT` tokens."""
    named: dict[str, Any] = {"d_model": width, "d_ff": 4 * width, "layers": layers, "max_length": CONTEXT}
    return replace(
        gpt.GPT2,
        **named,
        heads=2,
        position=POSITIONS["rotary"],
        feed_forward=partial(FeedForward, activation=F.gelu),
        dropout=0.0,
    )


# ---- stored: loss against parameters and tokens ----------------------------------------------------------------------

SHAPES = ((16, 2), (24, 2), (32, 3), (48, 3), (64, 4))  # width, blocks
TOKENS = (2**16, 2**17, 2**18, 2**19, 2**20)  # the last is about three passes over the text


@experiment
def scaling(seeds: Sequence[int] = (1, 2), *, tokens: Sequence[int] = TOKENS) -> list[dict[str, Any]]:
    """Validation loss of a GPT of each of `SHAPES` on each number of tokens, with a schedule that ends there.

    Characters of Python's language reference; `parameters` counts the numbers in the blocks' matrices.
    """
    text = data.load("python-reference")
    grid = product(tokens, seeds, SHAPES)
    return [trained(text, width, layers, count, seed) for count, seed, (width, layers) in grid]


def trained(text: Text, width: int, layers: int, tokens: int, seed: int) -> dict[str, Any]:
    """A row of `scaling`: a GPT of this size, trained on this many characters, and its held-out loss."""
    config, steps = small(width, layers), tokens // (BATCH * CONTEXT)
    runtime.seed(seed)
    model = gpt.Gpt(len(text.characters), config).to(runtime.device())
    batches = Windows(text.characters.encode(text.train), length=CONTEXT + 1, size=BATCH, seed=seed)
    training.fit(model, next_token_loss, batches, _recipe(steps))
    valid = evaluation_windows(text.characters.encode(text.valid), CONTEXT, limit=len(text.valid))
    return {
        "width": width,
        "layers": layers,
        "seed": seed,
        "parameters": gpt.matrix_count(0, config),
        "tokens": tokens,
        "loss": round(score(model, valid, byte_counts(text.characters))["valid_loss"], 4),
    }


def _recipe(steps: int) -> training.Recipe:
    """The race's recipe: one learning rate for every width, since Muon's updates fit the size of each matrix."""
    schedule = training.warmup_cosine(20)
    return training.Recipe(steps=steps, optimizer="muon", lr=0.03, momentum=0.9, betas=(0.9, 0.99), schedule=schedule)


def short(optimizer: str, lr: float, steps: int) -> training.Recipe:
    """The short runs that compare optimizers: all is the same but their names and learning rates."""
    schedule = training.warmup_cosine(steps // 4)
    return replace(_recipe(steps), optimizer=optimizer.lower(), lr=lr, schedule=schedule)


def counted(frame: DataFrame) -> DataFrame:
    """The runs with three counts of N: the blocks' matrices, `with` the embedding, and half of all `work` per token."""
    sizes = [small(width, layers) for width, layers in zip(frame["width"], frame["layers"], strict=True)]
    counts = {
        "without": [gpt.matrix_count(0, each) for each in sizes],
        "with": [gpt.matrix_count(KINDS, each) for each in sizes],
        "work": [gpt.flops(KINDS, each, CONTEXT) / 2 for each in sizes],
    }
    return frame.assign(**counts)


def near_budget(frame: DataFrame, compute: float, within: float = 0.15) -> DataFrame:
    """The grid's runs that cost nearly `compute`: sizes, tokens, mean loss over seeds, and `cost` as a ratio."""
    means = frame.groupby(["with", "tokens"], as_index=False)["loss"].mean()
    means = means.assign(cost=6 * means["with"] * means["tokens"] / compute)
    return means[means["cost"].between(1 - within, 1 + within)]


def same_budget(frame: DataFrame) -> DataFrame:
    """One run per size, smaller ones longer, all at about the same cost; means over seeds, sorted by N."""
    sizes = sorted(frame["with"].unique())
    tokens = dict(zip(sizes, sorted(frame["tokens"].unique(), reverse=True), strict=True))
    runs = frame[frame["tokens"] == frame["with"].map(tokens)]
    means = runs.groupby("with", as_index=False)[["tokens", "loss"]].mean()
    return means.assign(compute=6 * means["with"] * means["tokens"])


# ---- the law of the losses -------------------------------------------------------------------------------------------


class Law(NamedTuple):
    """L(N, D) = E + A / N^α + B / D^β, for N parameters and D tokens (Hoffmann et al., 2022, equation 2)."""

    E: float  # the irreducible loss
    A: float
    alpha: float
    B: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """The predicted loss in nats."""
        return self.E + self.A / parameters**self.alpha + self.B / tokens**self.beta

    @property
    def exponent(self) -> float:
        """a in N_opt ∝ C^a: β / (α + β). Parameters and tokens grow at the same rate when it is 0.5."""
        return self.beta / (self.alpha + self.beta)

    def optimum(self, compute: float) -> tuple[float, float]:
        """The N and D with the lowest loss at 6 N D = `compute` operations (Hoffmann et al., 2022, equation 4)."""
        ratio = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
        parameters = ratio * (compute / 6) ** self.exponent
        return parameters, compute / 6 / parameters


class Fit(NamedTuple):
    """The law fitted to all runs, and the laws fitted to bootstrap resamples of the runs."""

    law: Law
    resampled: list[Law]

    def interval(self, of: Callable[[Law], float]) -> tuple[float, float]:
        """The 2.5th and 97.5th percentile of `of` over the resampled laws (Efron's bootstrap)."""
        low, high = np.percentile([of(law) for law in self.resampled], [2.5, 97.5])
        return float(low), float(high)


def fit_scaling(frame: DataFrame, *, resamples: int = 200, seed: int = 0) -> Fit:
    """The law with the least Huber loss between its log L and the logarithms of the measured losses.

    (Hoffmann et al., 2022, section 3.3, with its threshold of 10⁻³.) Raises ValueError for fewer than three sizes or
    numbers of tokens, since each term has two parameters and E is one.
    """
    for key in ("parameters", "tokens"):
        if (found := frame[key].nunique()) < 3:
            raise ValueError(f"frame holds {found} different {key}; expected 3 or more")
    points = frame[["parameters", "tokens", "loss"]].to_numpy(float)
    starts = [np.array([-0.5, -1.0, alpha, -1.0, beta]) for alpha, beta in product((0.3, 0.8), repeat=2)]
    best = _minimum(points, starts)
    generator = np.random.default_rng(seed)
    draws = (points[generator.integers(len(points), size=len(points))] for _ in range(resamples))
    return Fit(_law(points, best), [_law(draw, _minimum(draw, [best])) for draw in draws])


def _minimum(points: np.ndarray, starts: Sequence[np.ndarray]) -> np.ndarray:
    """log E, the logarithms of both terms at the mean of log N and log D, and their exponents."""
    from scipy.optimize import least_squares

    n, d, measured = np.log(points).T
    n, d = n - n.mean(), d - d.mean()

    def error(x: np.ndarray) -> np.ndarray:
        terms = np.broadcast_arrays(x[0], x[1] - x[2] * n, x[3] - x[4] * d)
        return np.logaddexp.reduce(terms) - measured

    bounds = [-5, -8, 0.01, -8, 0.01], [3, 3, 3, 3, 3]
    found = [least_squares(error, start, bounds=bounds, loss="huber", f_scale=1e-3) for start in starts]
    return min(found, key=lambda each: each.cost).x


def _law(points: np.ndarray, x: np.ndarray) -> Law:
    n, d = np.log(points[:, :2]).mean(axis=0)
    E, a, alpha, b, beta = x.tolist()
    return Law(math.exp(E), math.exp(a + alpha * n), alpha, math.exp(b + beta * d), beta)


def claims_of_counting(frame: DataFrame, *, resamples: int = 60) -> dict[str, Any]:
    """Exponents by what counts as N, with 95% intervals, and how much closer to 0.5 counting all work brings them.

    The last number is the lower end of the difference's interval, over the same bootstrap samples.
    """
    fits = {
        name: fit_scaling(frame.assign(parameters=frame[name]), resamples=resamples)
        for name in ("without", "with", "work")
    }
    exponents = {name: (fit.law.exponent, *fit.interval(lambda law: law.exponent)) for name, fit in fits.items()}
    pairs = zip(fits["without"].resampled, fits["work"].resampled, strict=True)
    nearer = [less.exponent - more.exponent for less, more in pairs]
    return {"exponents": exponents, "nearer": float(np.percentile(nearer, 2.5))}


# ---- the race to nanoGPT's loss --------------------------------------------------------------------------------------


def claims_of_race(rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Our recipe's time as a share of nanoGPT's, for the same model shape."""
    return {5: next(row["share"] for row in rows if row["by"] == "tfbook, nanoGPT's shape")}


# ---- the directions of a gradient ------------------------------------------------------------------------------------


class Spectra(NamedTuple):
    """Singular values after 1, 3 and 5 rounds: any value's, and those of a gradient; "0 rounds" is the input.

    Both dictionaries have the same keys: x and y of one line each.
    """

    polynomial: dict[str, tuple[list[float], list[float]]]
    values: dict[str, tuple[range, list[float]]]
    farthest: float  # largest distance from 1, of values above a hundredth of the norm


def spectra(G: Float[Tensor, "rows columns"], orthogonal: Callable[..., Tensor]) -> Spectra:
    """The spectra of a gradient before and after 1, 3 and 5 rounds of `orthogonal`, in its singular directions."""
    U, own, Vh = torch.linalg.svd(G, full_matrices=False)
    before, s = own / own.norm(), torch.logspace(-4, 0, 200)
    kept = int((before > 1e-4).sum())
    polynomial = {"0 rounds": (s.tolist(), s.tolist())}
    values = {"0 rounds": (range(1, kept + 1), before[:kept].tolist())}
    for rounds in (1, 3, 5):
        name = f"{rounds} round{'s' * (rounds > 1)}"
        after = (U.mT @ orthogonal(G, rounds) @ Vh.mT).diag()
        values[name] = (range(1, kept + 1), after[:kept].tolist())
        y = s
        for _ in range(rounds):
            a, b, c = QUINTIC
            y = a * y + b * y**3 + c * y**5
        polynomial[name] = (s.tolist(), y.tolist())
    return Spectra(polynomial, values, float((after[before > 0.01] - 1).abs().max()))


# ---- stored: heads that copy -----------------------------------------------------------------------------------------

PERIODS = (8, 32)  # shortest and longest passage that repeats, in characters
FREQUENT = 48  # characters that random texts consist of; the others are rare in training
COPIERS = ((2, 64), (1, 64), (1, 88))  # blocks and width; the last has almost as many parameters as the first


@experiment
def induction(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400) -> list[dict[str, Any]]:
    """Head scores, and losses early, late and on random text, during the training of GPTs of two blocks and of one.

    The training text is passages of Python's language reference, 8 to 32 characters each, repeated again and again.
    Heads are scored on random characters repeated once, and so is the loss `random`, on the second half.
    """
    text = data.load("python-reference")
    return [
        {"layers": layers, "width": width, "seed": seed, "curve": _copying(text, width, layers, seed, steps)}
        for seed, (layers, width) in product(seeds, COPIERS)
    ]


def _copying(text: Text, width: int, layers: int, seed: int, steps: int) -> list[dict[str, float]]:
    ids, valid = (text.characters.encode(part) for part in (text.train, text.valid))
    judged = read_again(Windows(valid, length=CONTEXT + 1, size=64, seed=seed))(0).to(runtime.device())
    twice = random_twice(ids, count=64, seed=seed).to(runtime.device())

    def evaluate(model: gpt.Gpt) -> dict[str, float]:
        scores = {"copies": heads_that_copy(model, twice), "looks back": heads_that_look_back(model, twice, 1)}
        heads = {f"{what} {head}": score for what, each in scores.items() for head, score in each.items()}
        return early_and_late(model, judged) | {"random": second_loss(model, twice)} | heads

    _, history = copier(text, width, layers, seed, steps, evaluate)
    return [{name: round(value, 4) for name, value in point.items()} for point in history.evaluations]


def copier(
    text: Text, width: int, layers: int, seed: int, steps: int, evaluate: Callable[[gpt.Gpt], dict[str, float]]
) -> tuple[gpt.Gpt, training.History]:
    """A GPT of four heads per block, trained on passages of `text` that repeat, and its history."""
    runtime.seed(seed)
    model = gpt.Gpt(len(text.characters), replace(small(width, layers), heads=4)).to(runtime.device())
    ids = text.characters.encode(text.train)
    batches = read_again(Windows(ids, length=CONTEXT + 1, size=32, seed=seed))
    recipe = replace(_recipe(steps), evaluate_every=max(1, steps // 20))
    return model, training.fit(model, next_token_loss, batches, recipe, evaluate=evaluate)


def read_again(windows: Windows) -> Callable[[int], Int64[Tensor, "batch time"]]:
    """Batches whose rows repeat their first tokens, a number drawn anew from `PERIODS`, to the end."""

    def batch(step: int) -> Int64[Tensor, "batch time"]:
        ids, generator = windows(step), torch.Generator().manual_seed(step)
        periods = torch.randint(PERIODS[0], PERIODS[1] + 1, (len(ids), 1), generator=generator)
        return ids.gather(1, torch.arange(ids.shape[1]) % periods)

    return batch


def random_twice(ids: Int64[Tensor, " text"], *, count: int, seed: int) -> Int64[Tensor, "count time"]:
    """Rows of `CONTEXT` / 2 distinct tokens in random order, repeated once: only copying predicts the second half.

    They are drawn from the `FREQUENT` most frequent of `ids`.
    """
    frequent = ids.bincount().argsort(descending=True)[:FREQUENT]
    generator = torch.Generator().manual_seed(seed)
    orders = torch.rand(count, len(frequent), generator=generator).argsort(dim=1)[:, : CONTEXT // 2]
    return frequent[orders].repeat(1, 2)


def heads_that_copy(model: gpt.Gpt, twice: Int64[Tensor, "batch time"]) -> dict[str, float]:
    """The prefix-matching score of each head, named "block.head" from 1 on (Olsson et al., 2022).

    The mean weight from a token of the second half to the one after its first occurrence, which is what comes next.
    """
    return heads_that_look_back(model, twice, twice.shape[1] // 2 - 1)


@torch.no_grad()
def heads_that_look_back(model: gpt.Gpt, twice: Int64[Tensor, "batch time"], distance: int) -> dict[str, float]:
    """Mean weight of each head from a token of the second half to the one `distance` before it."""
    half = twice.shape[1] // 2
    second = torch.arange(half, 2 * half - 1, device=twice.device)
    with record(model) as weights:
        model(twice)
    means = [layer[:, :, second, second - distance].mean(dim=(0, 2)).tolist() for layer in weights.values()]
    return {f"{i}.{j}": score for i, heads in enumerate(means, 1) for j, score in enumerate(heads, 1)}


@torch.no_grad()
def second_loss(model: gpt.Gpt, twice: Int64[Tensor, "batch time"]) -> float:
    """Mean loss on the second half, except its first token, which nothing predicts."""
    half = twice.shape[1] // 2
    return float(F.cross_entropy(model(twice[:, :-1]).mT[..., half:], twice[:, half + 1 :]))


@torch.no_grad()
def early_and_late(model: gpt.Gpt, ids: Int64[Tensor, "batch time"]) -> dict[str, float]:
    """Mean loss before anything repeats, and in the last quarter, where everything does.

    Their difference measures in-context learning (Olsson et al., 2022).
    """
    losses = F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:], reduction="none")
    early, late = losses[:, PERIODS[0] // 2 : PERIODS[0] - 1], losses[:, -CONTEXT // 4 :]
    return {"early": float(early.mean()), "late": float(late.mean())}


class Copying(NamedTuple):
    """Curves of the stored runs by name, final mean losses on random text, and the numbers of three claims."""

    losses: dict[str, tuple[list[float], list[float], list[float]]]
    looks: dict[str, tuple[list[float], list[float], list[float]]]
    random: dict[str, float]
    claims: dict[int, float]


def copying_curves(rows: Sequence[dict[str, Any]]) -> Copying:
    """Means and standard deviations over seeds of the losses on repeated text and of the highest scores."""
    shapes = dict(zip(("two blocks", "one block", "one wide block"), COPIERS, strict=True))

    def curve(name: str, value: Callable[[dict[str, float]], float]) -> tuple[list[float], list[float], list[float]]:
        curves = [row["curve"] for row in rows if (row["layers"], row["width"]) == shapes[name]]
        found = np.array([[value(point) for point in each] for each in curves])
        return [point["step"] for point in curves[0]], found.mean(axis=0).tolist(), found.std(axis=0).tolist()

    def ends(name: str, value: Callable[[dict[str, float]], float]) -> np.ndarray:
        return np.array([value(row["curve"][-1]) for row in rows if (row["layers"], row["width"]) == shapes[name]])

    def highest(what: str) -> Callable[[dict[str, float]], float]:
        return lambda point: max(score for name, score in point.items() if name.startswith(what))

    copies, late, random = highest("copies"), itemgetter("late"), itemgetter("random")
    looks = {
        "copies, two blocks": curve("two blocks", copies),
        "copies, one block": curve("one block", copies),
        "looks one back, first of two": curve("two blocks", highest("looks back 1")),
    }
    claims = {
        6: ends("two blocks", copies).min(),
        7: max(ends(name, copies).max() for name in ("one block", "one wide block")),
        8: ends("two blocks", random).max(),
    }
    means = {name: float(ends(name, random).mean()) for name in shapes}
    return Copying({name: curve(name, late) for name in shapes}, looks, means, claims)
