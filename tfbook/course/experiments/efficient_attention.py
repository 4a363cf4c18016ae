"""What attention costs in time and memory, how implementations reduce it, and what they can retrieve."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from tfbook import runtime, training
from tfbook.attention import POSITIONS
from tfbook.attention.efficient.banded import Banded
from tfbook.attention.efficient.bigbird import BigBird
from tfbook.attention.efficient.block_sparse import BlockSparse
from tfbook.attention.efficient.linear import Linear
from tfbook.attention.efficient.lsh import Lsh
from tfbook.attention.efficient.performer import Performer, log_features, projection
from tfbook.attention.efficient.tiled import Tiled
from tfbook.attention.implementations import Implementation, attention_weights, fastest, softmax
from tfbook.attention.masks import Causal
from tfbook.course.claims import Bound, Claims
from tfbook.course.experiments import experiment
from tfbook.course.experiments.cost import attend, convolve, count_flops, exponent, in_turns, peak_memory, recur
from tfbook.course.experiments.efficient_book import Book, hide
from tfbook.course.experiments.efficient_drawn import (
    draw_distances,
    draw_hashing,
    draw_ingredients,
    draw_memory,
    draw_orders,
    draw_ratios,
    draw_reach,
    draw_recall,
    draw_tiles,
    draw_traffic,
)
from tfbook.models.blocks import Config, alternate
from tfbook.models.feed_forward import FeedForward
from tfbook.models.language_model import BidirectionalModel, LanguageModel

__all__ = [
    "draw_distances",
    "draw_hashing",
    "draw_ingredients",
    "draw_memory",
    "draw_orders",
    "draw_ratios",
    "draw_reach",
    "draw_recall",
    "draw_tiles",
    "draw_traffic",
    "hide",
]

CLAIMS = Claims(
    "efficient_attention",
    {
        1: Bound(
            "The memory of written-out attention grows with the square of the length: distance of the exponent from 2",
            "<=",
            0.1,
            "Counted exactly",
        ),
        2: Bound(
            "Tiled attention reads 16,384 tokens in at most 50 MB, where one matrix of weights takes 1,074",
            "<=",
            50,
            "Dao et al. (2022), Theorem 1; counted exactly",
            " MB",
        ),
        3: Bound(
            "With eight rounds, hashing meets most of the 8 top keys of tight clusters: recall",
            ">=",
            0.85,
            "Measured here",
        ),
        4: Bound(
            "Without structure, four rounds miss many of the top keys: recall",
            "<=",
            0.6,
            "Measured here",
        ),
        5: Bound(
            "Windowed layers alone only guess beyond their reach: right answers minus guessing, best of three seeds",
            "<=",
            0.03,
            "Stored result, efficient_attention.long_range",
        ),
        6: Bound(
            "One dense and one windowed layer answer the far questions: right answers, worst of three seeds",
            ">=",
            0.97,
            "Stored result; Brown et al. (2020), Section 2.1",
        ),
        7: Bound(
            "At 8,192 tokens a window of 256 is much faster than PyTorch's dense attention",
            ">=",
            5,
            "Stored result, efficient_attention.times",
            " ×",
        ),
        8: Bound(
            "The error of products of random features falls as 1/√m: distance of the exponent from −½",
            "<=",
            0.1,
            "Choromanski et al. (2021); exact for independent directions",
        ),
        9: Bound(
            "The products are unbiased: distance of the mean over 400 draws, in standard errors",
            "<=",
            2,
            "Choromanski et al. (2021), Lemma 1",
        ),
        10: Bound(
            "The quotient of attention is biased: bias over what chance alone would show, 8 features",
            ">=",
            1.5,
            "Measured here",
            " ×",
        ),
    },
)

Key = TypeVar("Key", bound=Hashable)

# ---- operations: the table of Vaswani et al. (2017) --------------------------------------------------------------


def restrict(n: int, d: int, r: int = 32) -> Callable[[], Tensor]:
    """Scores and mixture of one head, each of n vectors of width d with the r up to itself."""
    x = torch.randn(n, d)

    def run() -> Tensor:
        window = F.pad(x, (0, 0, r - 1, 0)).unfold(0, r, 1)  # (n, d, r)
        weights = (x[:, None] @ window / math.sqrt(d)).softmax(dim=-1)
        return weights @ window.mT

    return run


LAYERS: dict[str, Callable[..., Callable[[], Tensor]]] = {
    "self-attention": attend,
    "recurrent": recur,
    "convolution": partial(convolve, k=4),
    "restricted": restrict,
}
REACH = {"convolution": "k", "restricted": "r"}  # the third size of a layer, as its argument is called


@torch.no_grad()
def cost_exponents(config: Sequence[int] = (64, 128, 256, 512), fixed: int = 64) -> dict[str, dict[str, float]]:
    """For each of `LAYERS` the exponents of its operations in n, in d and, where it has one, in its reach k or r."""
    found = {}
    for name, layer in LAYERS.items():
        runs = {"n": [layer(n, fixed) for n in config], "d": [layer(fixed, d) for d in config]}
        if name in REACH:
            runs[REACH[name]] = [layer(fixed, fixed, **{REACH[name]: reach}) for reach in config]
        found[name] = {size: exponent(config, [count_flops(run) for run in each]) for size, each in runs.items()}
    return found


# ---- seconds and bytes of the implementations --------------------------------------------------------------------


def strided(blocks: int) -> Bool[Tensor, "block block"]:
    """√blocks neighbors and every √blocks-th of the others (Child et al., 2019, section 4.2)."""
    stride, number = math.isqrt(blocks), torch.arange(blocks)
    away = number[:, None] - number
    return (away.abs() < stride) | (away % stride == 0)


WINDOW = 256
WRITTEN_OUT, FUSED = "dense, written out", "dense, PyTorch's"
IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {  # of queries, keys and values, all causal
    WRITTEN_OUT: partial(softmax, mask=Causal()),
    FUSED: partial(F.scaled_dot_product_attention, is_causal=True),
    "tiled": partial(Tiled(), mask=Causal()),
    "banded": partial(Banded(WINDOW), mask=Causal()),
    "block-sparse": partial(BlockSparse(strided), mask=Causal()),
    "BigBird": partial(BigBird(), mask=Causal()),
    "LSH": partial(Lsh(), mask=Causal()),
    "linear": partial(Linear(), mask=Causal()),
    "Performer": partial(Performer(64), mask=Causal()),
}
HEADS, D_HEAD = 4, 32


def forward_backward(name: str, n: int) -> Callable[[], None]:
    """One of `IMPLEMENTATIONS` on one sequence of n positions, and the gradient of the sum of its output."""
    return with_gradient(IMPLEMENTATIONS[name], n)


def with_gradient(attend: Callable[..., Tensor], n: int) -> Callable[[], None]:
    """The same for any function of queries, keys and values."""
    generator, shape = torch.Generator().manual_seed(0), (1, HEADS, n, D_HEAD)
    qkv = [torch.randn(shape, generator=generator).to(runtime.device()).requires_grad_() for _ in range(3)]

    def run() -> None:
        torch.autograd.grad(attend(*qkv).sum(), qkv, allow_unused=True)  # shared-key LSH reads no keys

    return run


def seconds(names: Sequence[str], lengths: Sequence[int], rounds: int = 3) -> dict[str, list[float]]:
    """Least seconds of `forward_backward` over some rounds, for each name a number for each length."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for n in lengths:
        times = in_turns({name: forward_backward(name, n) for name in names}, rounds)
        for name in names:
            found[name].append(min(times[name]))
    return found


def peaks(names: Sequence[str], lengths: Sequence[int]) -> dict[str, list[int]]:
    """Bytes at the peak of `forward_backward` beyond those of the inputs, for each name a number for each length."""
    return {name: [peak_memory(forward_backward(name, n)) for n in lengths] for name in names}


LONGEST_WRITTEN_OUT = 4096  # beyond, the matrices of weights take gigabytes


def _up_to(n: int) -> list[str]:
    return [name for name in IMPLEMENTATIONS if name != WRITTEN_OUT or n <= LONGEST_WRITTEN_OUT]


@experiment
def times(lengths: Sequence[int] = (128, 256, 512, 1024, 2048, 4096, 8192), rounds: int = 3) -> list[dict[str, Any]]:
    """The least seconds of each implementation at each length."""
    found = {n: seconds(_up_to(n), [n], rounds) for n in lengths}
    return [{"implementation": name, "n": n, "seconds": found[n][name][0]} for n in lengths for name in found[n]]


ROUNDS = (1, 2, 4, 8)  # of hashing


def processor_seconds(runs: Mapping[Key, Callable[[], object]], turns: int) -> dict[Key, float]:
    """The least seconds that the processor spends on each of `runs`, which take turns: waiting does not count."""
    found: dict[Key, list[float]] = {key: [] for key in runs}
    for _ in range(turns + 1):  # the first warms up
        for key, run in runs.items():
            start = time.process_time()
            run()
            found[key].append(time.process_time() - start)
    return {key: min(seconds[1:]) for key, seconds in found.items()}


@experiment
def rounds_of_hashing(n: int = 2048, turns: int = 5) -> list[dict[str, Any]]:
    """Seconds of the processor for hashing, forward and backward, with each number of rounds."""
    runs = {r: with_gradient(partial(Lsh(rounds=r), mask=Causal()), n) for r in ROUNDS}
    return [{"rounds": r, "n": n, "seconds": spent} for r, spent in processor_seconds(runs, turns).items()]


@experiment
def hashing_against_dense(
    lengths: Sequence[int] = (512, 1024, 2048, 4096, 8192), turns: int = 3
) -> list[dict[str, Any]]:
    """Seconds of the processor for hashing with four rounds and for PyTorch's dense attention, at each length."""
    rows = []
    for n in lengths:
        spent = processor_seconds({name: forward_backward(name, n) for name in ("LSH", FUSED)}, turns)
        rows += [{"implementation": name, "n": n, "seconds": seconds} for name, seconds in spent.items()]
    return rows


KINDS = {  # of operations, by what their names contain; the first kind that fits
    "matrix products": ("mm", "scaled_dot_product", "flash_attention"),
    "sort, gather, copy": (
        "sort",
        "gather",
        "scatter",
        "index",
        "take",
        "cat",
        "copy",
        "pad",
        "zero",
        "fill_",
        "slice",
    ),
    "softmax and masks": ("exp", "softmax", "masked", "where", "mul", "div", "sub", "sum", "add", "max", "lt", "ge"),
    "everything else": ("",),
}
PROFILED = ("tiled", "banded", "LSH", "linear")


@experiment
def profiles(n: int = 4096) -> list[dict[str, Any]]:
    """The share of the time that each kind of operation takes, forward and backward, of each of `PROFILED`."""
    rows = []
    for name in PROFILED:
        run = forward_backward(name, n)
        run()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            run()
        spent = dict.fromkeys(KINDS, 0.0)
        for event in profiler.key_averages():
            kind = next(kind for kind, parts in KINDS.items() if any(part in event.key for part in parts))
            spent[kind] += event.self_cpu_time_total
        total = sum(spent.values())
        rows += [{"implementation": name, "kind": kind, "share": part / total} for kind, part in spent.items()]
    return rows


@experiment
def memory(lengths: Sequence[int] = (1024, 2048, 4096, 8192, 16384)) -> list[dict[str, Any]]:
    """The bytes at the peak of each implementation at each length."""
    runs = [(name, n) for n in lengths for name in _up_to(n)]
    return [{"implementation": name, "n": n, "bytes": peaks([name], [n])[name][0]} for name, n in runs]


def megabytes(attend: Callable[[Tensor, Tensor, Tensor], Tensor], book: Book) -> float:
    """The most memory that tensors take at once while attention reads the book, in millions of bytes."""
    return peak_memory(partial(attend, book.x, book.x, book.v)) / 1e6


State = tuple[Tensor, Tensor, Tensor]  # of the online softmax: highest, total, mixture


def tile_step(state: State, Q: Tensor, K: Tensor, V: Tensor, seen: Bool[Tensor, "query key"]) -> State:
    """The state of a block of queries after one more tile of keys, of which each query sees some or none."""
    m, total, mixture = state
    scores = (Q @ K.T / math.sqrt(Q.shape[-1])).masked_fill(~seen, -torch.inf)
    m_new = m.maximum(scores.amax(dim=-1, keepdim=True))
    c, weights = (torch.exp(x - m_new).nan_to_num() for x in (m, scores))  # −∞ − (−∞) where nothing was seen
    return m_new, c * total + weights.sum(dim=-1, keepdim=True), c * mixture + weights @ V


def merge(one: State, other: State) -> State:
    """The state of all keys, from those of two machines that have read some each."""
    higher = one[0].maximum(other[0])
    first, second = torch.exp(one[0] - higher), torch.exp(other[0] - higher)
    return higher, first * one[1] + second * other[1], first * one[2] + second * other[2]


def two_machines(book: Book, merge: Callable[[State, State], State]) -> Float[Tensor, "n character"]:
    """Attention of the asked positions to the halves of the book, merged; zeros elsewhere."""
    states, half = [], len(book.x) // 2
    for keys in (slice(0, half), slice(half, None)):
        scores = book.x[book.asked] @ book.x[keys].T / math.sqrt(book.x.shape[1])
        highest = scores.amax(dim=-1, keepdim=True)
        weights = torch.exp(scores - highest)
        states.append((highest, weights.sum(dim=-1, keepdim=True), weights @ book.v[keys]))
    _, total, mixture = merge(*states)
    output = torch.zeros_like(book.v)
    output[book.asked] = mixture / total
    return output


STORED = {"window": "banded", "dense, window": "dense, banded"}  # what the rows call what the lesson names so


def shown(name: str) -> str:
    """What the lesson calls an implementation."""
    return {stored: name for name, stored in STORED.items()}.get(name, name)


def time_ratios(times: Any, names: Sequence[str]) -> dict[str, tuple[list[int], list[float]]]:
    """Lengths, and seconds over those of PyTorch's dense attention, by name; from rows of `times`."""
    table = times.pivot(index="n", columns="implementation", values="seconds")
    columns = {name: table[STORED.get(name, name)] for name in names}
    return {name: (table.index.tolist(), (column / table[FUSED]).tolist()) for name, column in columns.items()}


def time_shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Implementation → kind of operation → share, from the rows of `profiles`."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(shown(row["implementation"]), {})[row["kind"]] = row["share"]
    return found


# ---- patterns ----------------------------------------------------------------------------------------------------


def layers_until_met(layout: Bool[Tensor, "block block"]) -> int:
    """Layers until every block has read every other one that it may ever reach, through others."""
    reach, layers = layout.float(), 1
    while True:
        further = ((layout.float() @ reach) > 0).float()
        if torch.equal(further, reach):
            return layers
        reach, layers = further, layers + 1


# ---- random features ---------------------------------------------------------------------------------------------


class Errors(NamedTuple):
    """Of random features, over many draws: root mean squares over all entries."""

    product: float  # of φ(q) · φ(k) about exp(q · k / √d)
    off: float  # of the mean product about the same, in standard errors: about 1 where nothing is biased
    output: float  # of the normalized output about the softmax's
    bias: float  # of the mean output about the same
    chance: float  # what `bias` would be about without any, from the spread of the draws
    mean: float  # of the values' plain mean, for comparison: no attention at all


def estimates(q: Tensor, k: Tensor, features: int, draws: int) -> Float[Tensor, "draw query key"]:
    """φ(q) · φ(k) for each draw of the directions, where q and k are (query, d_head) and (key, d_head)."""
    found = []
    for seed in range(draws):
        directions = projection(features, q.shape[-1], torch.Generator().manual_seed(seed)).to(q)
        found.append(log_features(q, directions).exp() @ log_features(k, directions).exp().mT)
    return torch.stack(found)


def performer_errors(features: int, draws: int = 400, *, n: int = 16, d: int = 8, size: float = 0.4) -> Errors:
    """Errors of `Performer(features)` on n queries and keys whose entries have the standard deviation `size`."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, n, d, dtype=torch.float64, generator=generator)
    q, k = size * q, size * k
    products, exact = estimates(q, k, features, draws), (q @ k.mT / math.sqrt(d)).exp()
    shaped = [x[None, None] for x in (q, k, v)]
    expected = softmax(*shaped)
    outputs = torch.stack([Performer(features, seed=seed)(*shaped) for seed in range(draws)])
    error = products.std(dim=0) / math.sqrt(draws)
    return Errors(
        product=_rms(products - exact),
        off=_rms((products.mean(dim=0) - exact) / error),
        output=_rms(outputs - expected),
        bias=_rms(outputs.mean(dim=0) - expected),
        chance=_rms(outputs.std(dim=0) / math.sqrt(draws)),
        mean=_rms(v.mean(dim=0) - expected),
    )


def _rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


# ---- hashing -----------------------------------------------------------------------------------------------------


def clustered(n: int, noise: float, *, d: int = 32, kinds: int = 32, seed: int = 0) -> Float[Tensor, "1 1 n d"]:
    """n vectors of one head, around `kinds` directions, with normal numbers of size `noise` added to each.

    All are as long as makes q · k / √d equal to 8 for a vector and its own direction: a sharp softmax.
    """
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(kinds, d, generator=generator)
    x = centers[torch.randint(kinds, (n,), generator=generator)] + noise * torch.randn(n, d, generator=generator)
    return 8 * math.sqrt(d) * F.normalize(x, dim=-1)[None, None]


class Recall(NamedTuple):
    """What hashing finds of dense attention."""

    top: float  # share of each query's keys of largest weight that it meets
    weight: float  # share of the weights that is on keys that it meets
    pairs: float  # share of all allowed pairs that meet: what as many keys drawn at random would find


@torch.no_grad()
def recall(implementation: Lsh, x: Float[Tensor, "1 1 n d"], top: int = 8) -> Recall:
    """Of the causal attention of x to x, where keys are x divided by their lengths and no query is its own key."""
    n = x.shape[2]
    others = torch.ones(n, n, dtype=torch.bool).tril(-1)
    met = implementation.mask(x, x, Causal()).dense(n, n)[0, 0] & others
    weights = torch.where(others, attention_weights(x, F.normalize(x, dim=-1), Causal())[0, 0], 0.0)
    late = torch.arange(n) >= top  # these have as many keys
    best = weights[late].topk(top, dim=-1).indices
    found = met[late].gather(1, best).float().mean()
    shares = (weights * met).sum(dim=-1)[1:] / weights.sum(dim=-1)[1:]
    return Recall(float(found), float(shares.mean()), float(met.sum() / others.sum()))


def recalls(x: Float[Tensor, "1 1 n d"]) -> list[Recall]:
    """The recall of 32 buckets and a window of 64, for each of `ROUNDS`."""
    return [recall(Lsh(buckets=32, window=64, rounds=rounds), x) for rounds in ROUNDS]


# ---- stored: a task that needs long range ------------------------------------------------------------------------

KEYS, VALUES, NOISE = 8, 8, 8  # kinds of each
QUESTION = KEYS * VALUES  # the first id of each kind of token; facts begin at 0
ANSWER = QUESTION + KEYS
FIRST_NOISE = ANSWER + VALUES
VOCABULARY = FIRST_NOISE + NOISE
CONTEXT, QUESTIONS = 256, 64
BAND = 32  # the window of the banded layers of the stored models
GELU = partial(FeedForward, activation=F.gelu)
SIZES = Config(d_model=32, heads=2, d_ff=128, layers=2, position=POSITIONS["none"], feed_forward=GELU)
BEYOND = SIZES.layers * (BAND - 1)  # no farther than this do they see through all layers


class Facts(NamedTuple):
    """Texts of facts, questions and noise. A fact is one token, a key with its value; a question is a key alone."""

    ids: Int64[Tensor, "batch time"]
    answers: Int64[Tensor, "batch time"]  # the value of the key asked for; −100 where nothing is asked
    distance: Int64[Tensor, "batch time"]  # from a question back to its fact; 0 where nothing is asked

    @classmethod
    def draw(cls, count: int, seed: int, *, context: int = CONTEXT, questions: int = QUESTIONS) -> Facts:
        """Each text states one value of each key, somewhere in its first half; every question follows its fact."""
        generator = torch.Generator().manual_seed(seed)
        ids = FIRST_NOISE + torch.randint(NOISE, (count, context), generator=generator)
        place = torch.rand(count, context // 2, generator=generator).argsort(dim=1)[:, :KEYS].sort(dim=1).values
        key = torch.rand(count, KEYS, generator=generator).argsort(dim=1)
        value = torch.randint(VALUES, (count, KEYS), generator=generator)
        known = (place[:, None] < torch.arange(context)[:, None]).sum(dim=-1)  # facts before each position
        about = (torch.rand(count, context, generator=generator) * known).long()
        luck = torch.rand(count, context, generator=generator).masked_fill(known == 0, -1.0).scatter(1, place, -1.0)
        asked = luck.argsort(dim=1, descending=True)[:, :questions]
        fact = about.gather(1, asked)
        ids = ids.scatter(1, place, key * VALUES + value).scatter(1, asked, QUESTION + key.gather(1, fact))
        answers = torch.full_like(ids, -100).scatter(1, asked, ANSWER + value.gather(1, fact))
        return cls(ids, answers, torch.zeros_like(ids).scatter(1, asked, asked - place.gather(1, fact)))

    def to(self, device: torch.device | str) -> Facts:
        """The same texts on another device."""
        return Facts(*(part.to(device) for part in self))


def answer_loss(model: LanguageModel, facts: Facts) -> Float[Tensor, ""]:
    """Mean cross-entropy of the answers, in nats; nothing else is asked of the model."""
    return F.cross_entropy(model(facts.ids).flatten(0, 1).float(), facts.answers.flatten())


EDGES = (1, 16, 32, 48, BEYOND + 1, 96, 128, 160, 192, CONTEXT)  # of the bins of distance; each begins at its edge


@torch.inference_mode()
def right(model: LanguageModel, facts: Facts) -> dict[str, Any]:
    """Share of right answers: of all, by distance, and of those beyond the reach of two banded layers."""
    facts = facts.to(runtime.device())
    hit = (model(facts.ids).argmax(dim=-1) == facts.answers).float()
    asked, away = facts.answers >= 0, facts.distance
    bins = [float(hit[(away >= low) & (away < high)].mean()) for low, high in pairwise(EDGES)]
    return {"all": float(hit[asked].mean()), "far": float(hit[away > BEYOND].mean()), "bins": bins}


ALSO_TRAINED = {  # what the table calls it: the stored experiment
    "dense, both ways": "both_directions",
    "BigBird, both ways": "layouts",
}


def by_distance(runs: Any, names: Sequence[str]) -> dict[str, tuple[list[float], ...]]:
    """For each name the middles of the bins of distance, mean right answers, the least and the greatest over seeds."""
    middle = [(low + high - 1) / 2 for low, high in pairwise(EDGES)]
    curves: dict[str, tuple[list[float], ...]] = {}
    for name in names:
        columns = list(zip(*runs[runs["implementation"] == STORED.get(name, name)]["bins"], strict=True))
        means = [sum(column) / len(column) for column in columns]
        curves[name] = (
            middle,
            means,
            [min(column) for column in columns],
            [max(column) for column in columns],
        )
    return curves


def far_answers(runs: Any) -> dict[str, tuple[float, float]]:
    """For each implementation the least and the greatest share of right answers beyond the windows' reach."""
    far = runs.groupby("implementation", sort=False)["far"]
    return {shown(name): (float(values.min()), float(values.max())) for name, values in far}


MODELS: dict[str, tuple[Implementation, ...]] = {  # of the layers, in turn
    "dense": (fastest,),
    "banded": (Banded(BAND, block=BAND),),
    "dense, banded": (fastest, Banded(BAND, block=BAND)),
    "block-sparse": (BlockSparse(strided, block=16),),
    "LSH": (Lsh(buckets=16, window=BAND, rounds=4),),
    "linear": (Linear(),),
    "Performer": (Performer(64),),
}
TESTED = 128  # texts


@experiment
def long_range(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 400, batch: int = 16) -> list[dict[str, Any]]:
    """Answers of the same small model with each of `MODELS`, and with the weights that it learned with dense attention.

    `trained` is False for the latter: the implementation was put into the finished model.
    """
    test, rows = Facts.draw(TESTED, seed=10**6), []
    for seed in seeds:
        for name, implementations in MODELS.items():
            model, curve, spent = trained_on_facts(implementations, seed, steps, batch, test)
            rows.append({"implementation": name, "seed": seed, "trained": True, "curve": curve, "seconds": spent})
            rows[-1] |= right(model, test)
            dense = model if name == "dense" else dense
            alternate(dense.stack, *implementations)
            rows.append({"implementation": name, "seed": seed, "trained": False, **right(dense, test)})
    return rows


@experiment
def layouts(seeds: Sequence[int] = (1, 2, 3, 4), *, steps: int = 400, batch: int = 16) -> list[dict[str, Any]]:
    """Answers with BigBird, bidirectional as in the paper, with a layout and a start of its own for each seed."""
    return both_ways({seed: BigBird(block=16, seed=seed) for seed in seeds}, steps, batch)


@experiment
def both_directions(seeds: Sequence[int] = (1, 2), *, steps: int = 400, batch: int = 16) -> list[dict[str, Any]]:
    """Answers of the same model with dense attention in both directions, to compare with `layouts`."""
    return both_ways(dict.fromkeys(seeds, fastest), steps, batch)


def both_ways(implementations: Mapping[int, Implementation], steps: int, batch: int) -> list[dict[str, Any]]:
    """A row for each seed: a bidirectional model with this implementation in all layers, trained, and its answers."""
    test, rows = Facts.draw(TESTED, seed=10**6), []
    for seed, implementation in implementations.items():
        model, curve, spent = trained_on_facts((implementation,), seed, steps, batch, test, BidirectionalModel)
        rows.append({"seed": seed, "curve": curve, "seconds": spent, **right(model, test)})
    return rows


def trained_on_facts(
    implementations: tuple[Implementation, ...],
    seed: int,
    steps: int,
    batch: int,
    test: Facts,
    kind: type[LanguageModel] = LanguageModel,
) -> tuple[LanguageModel, list[dict[str, float]], float]:
    """The trained model with these layers, how its answers improved, and the seconds."""
    runtime.seed(seed)
    model = kind(VOCABULARY, SIZES).to(runtime.device())
    alternate(model.stack, *implementations)
    recipe = training.Recipe(
        steps=steps,
        optimizer="muon",
        lr=0.01,
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(20),
        evaluate_every=max(1, steps // 16),
        mixed_precision=False,
    )
    few = Facts(*(part[:32] for part in test))
    history = training.fit(
        model,
        answer_loss,
        lambda step: Facts.draw(batch, seed=10**5 * seed + step),
        recipe,
        evaluate=lambda model: {"all": right(model, few)["all"]},
    )
    curve = [{"step": point["step"], "all": point["all"]} for point in history.evaluations]
    return model, curve, round(history.elapsed, 1)
