"""Exercises of lesson 15: online softmax, a band, causal sums, a leaking mask, operations, random features."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn

State = tuple[Tensor, Tensor, Tensor]  # of the online softmax: highest and total (query, 1), mixture (query, d)


def _state(keys: int, shift: float, seed: int) -> State:
    """Of three queries and some keys; without any key, of what has not begun."""
    scores, values = randn(3, keys, seed=seed) + shift, randn(keys, 2, seed=seed + 10)
    if not keys:
        return torch.full((3, 1), -torch.inf), torch.zeros(3, 1), torch.zeros(3, 2)
    highest = scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - highest)
    return highest, weights.sum(dim=-1, keepdim=True), weights @ values


def _states() -> list[tuple[State, State]]:
    """Where either holds the highest score, where one or both have seen nothing, and where exp(score) is infinite."""
    return [
        (_state(5, 0.0, 1), _state(4, 3.0, 21)),
        (_state(4, 0.0, 2), _state(6, -3.0, 22)),
        (_state(0, 0.0, 3), _state(3, 0.0, 23)),
        (_state(3, 0.0, 5), _state(0, 0.0, 25)),
        (_state(0, 0.0, 6), _state(0, 0.0, 26)),
        (_state(3, 200.0, 4), _state(5, 203.0, 24)),
    ]


# ---- one step of the online softmax ------------------------------------------------------------------------------


def _tiles() -> list[tuple[State, Tensor, Tensor, Tensor, Tensor]]:
    """Where all is seen, and nothing came before; a triangle; a query that sees nothing, now or ever; large scores."""
    part = torch.ones(3, 4, dtype=torch.bool).tril(1)
    hidden = torch.tensor([[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    kinds = [
        (_state(0, 0.0, 1), 1.0, part | True),
        (_state(5, 0.0, 2), 1.0, part),
        (_state(4, -3.0, 3), 1.0, hidden),
        (_state(0, 0.0, 4), 1.0, hidden),
        (_state(5, 200.0, 5), 20.0, part),
    ]
    return [
        (state, size * randn(3, 5, seed=i + 30), size * randn(4, 5, seed=i + 40), randn(4, 2, seed=i + 50), seen)
        for i, (state, size, seen) in enumerate(kinds)
    ]


@exercise(
    cases=_tiles,
    hints=[
        "These are the five lines of the formula. Scores that are not seen become −∞ before the maximum is taken.",
        "`m.maximum(scores.amax(dim=-1, keepdim=True))` is the new maximum; c = exp(m − m_new) shrinks the total and "
        "the mixture that are there, and exp(scores − m_new) are the weights of the new keys.",
        "A query that has seen nothing has m_new = −∞, and −∞ − (−∞) is NaN. Its total and mixture are 0, its weights "
        "should be 0: `nan_to_num()` after exp makes them so.",
    ],
    differentiable=False,
)
def tile_step(
    state: State,
    Q: Float[Tensor, "query d"],
    K: Float[Tensor, "key d"],
    V: Float[Tensor, "key d_v"],
    seen: Bool[Tensor, "query key"],
) -> State:
    m, total, mixture = state
    scores = (Q @ K.T / math.sqrt(Q.shape[-1])).masked_fill(~seen, -torch.inf)
    m_new = m.maximum(scores.amax(dim=-1, keepdim=True))
    c, weights = (torch.exp(x - m_new).nan_to_num() for x in (m, scores))
    return m_new, c * total + weights.sum(dim=-1, keepdim=True), c * mixture + weights @ V


def _stepped(state: State, Q: Tensor, K: Tensor, V: Tensor, seen: Tensor, kind: str, fill: float = -torch.inf) -> State:
    """One step with a mistake of some kind."""
    m, total, mixture = state
    scale = 1.0 if kind == "scale" else math.sqrt(Q.shape[-1])
    scores = (Q @ K.T / scale).masked_fill(~seen, fill)
    highest = scores.amax(dim=-1, keepdim=True)
    m_new = highest if kind == "own maximum" else m.maximum(highest)
    exponents = {"upside down": m_new - m}.get(kind, m - m_new)
    c, weights = (torch.exp(x) if kind == "nan" else torch.exp(x).nan_to_num() for x in (exponents, scores - m_new))
    c_total, c_mixture = (torch.ones_like(c) if kind in (part, "none") else c for part in ("total", "mixture"))
    after = c_total * total + weights.sum(dim=-1, keepdim=True), c_mixture * mixture + weights @ V
    return m_new, after[0], after[1] / after[0] if kind == "divided" else after[1]


tile_step.mistakes(
    {
        "nothing shrinks: when the maximum rises, total and mixture are multiplied by c": partial(
            _stepped, kind="none"
        ),
        "the total shrinks, the mixture does not: multiply both by c": partial(_stepped, kind="mixture"),
        "the mixture shrinks, the total does not: multiply both by c": partial(_stepped, kind="total"),
        "the factor is upside down: c = exp(m_old − m_new) is at most 1": partial(_stepped, kind="upside down"),
        "this maximum is the tile's own: the new one is the larger of it and the one before": partial(
            _stepped, kind="own maximum"
        ),
        "divided too early: the mixture stays a sum, and is divided by the total after the last tile": partial(
            _stepped, kind="divided"
        ),
        "scores are divided by √d, in a tile as anywhere": partial(_stepped, kind="scale"),
        "a key that is not seen has the score 0 here, and e⁰ = 1 gives it weight. Use −∞": partial(
            _stepped, kind="", fill=0.0
        ),
        "a query that sees nothing must keep its state; yours averages hidden keys, since −1e9 is a score like any "
        "other where no score is larger. Use −∞": partial(_stepped, kind="", fill=-1e9),
        "a query that sees nothing must keep its state; yours averages hidden keys, since the lowest float is a score "
        "like any other where no score is larger. Use −∞": partial(
            _stepped, kind="", fill=torch.finfo(torch.float32).min
        ),
        "`seen` is not used: a key that is not seen gets the score −∞": (
            lambda state, Q, K, V, seen: tile_step.reference(state, Q, K, V, seen | True)
        ),
        "a query that has seen nothing gives NaN, since −∞ − (−∞) is NaN: its total and mixture stay 0": partial(
            _stepped, kind="nan"
        ),
    }
)

# ---- two states of the online softmax, merged --------------------------------------------------------------------


@exercise(
    cases=_states,
    hints=[
        "What is exp(s − new) when you have exp(s − old)? The two differ by one factor for all the keys of a machine.",
        "With `higher`, the maximum of the two, that factor is exp(highest − higher), one for each machine. Total and "
        "mixture both hold exponentials, so both are multiplied by it; then add.",
        "Where neither machine has a key, −∞ − (−∞) is NaN. The sums there are 0, so any finite factor will do.",
    ],
    differentiable=False,
)
def merge(one: State, other: State) -> State:
    higher = one[0].maximum(other[0])
    first, second = (torch.exp(highest - higher).nan_to_num() for highest, _, _ in (one, other))
    return higher, first * one[1] + second * other[1], first * one[2] + second * other[2]


def _merged(one: State, other: State, first: Callable = torch.exp, second: Callable = torch.exp) -> State:
    """With factors that are other functions of how far each state's maximum is from the higher one, a number ≤ 0."""
    higher = one[0].maximum(other[0])
    a, b = first(one[0] - higher), second(other[0] - higher)
    return higher, a * one[1] + b * other[1], a * one[2] + b * other[2]


merge.mistakes(
    {
        "each is relative to its own maximum: both have to be brought to the higher of the two before you add": (
            partial(_merged, first=torch.ones_like, second=torch.ones_like)
        ),
        "one of them only is brought to the common maximum: either machine may have seen the higher score": (
            partial(_merged, second=torch.ones_like)
        ),
        "the factors are upside down: what is lower shrinks by exp(highest − higher)": (
            partial(_merged, first=lambda below: torch.exp(-below), second=lambda below: torch.exp(-below))
        ),
        "the totals shrink, the mixtures do not: both are sums of exponentials relative to an old maximum": (
            lambda one, other: (*_merged(one, other)[:2], one[2] + other[2])
        ),
        "divided too early: the mixture stays a sum, and is divided by the total once, at the very end": (
            lambda one, other: (*(state := _merged(one, other))[:2], state[2] / state[1])
        ),
        "two machines without keys give NaN, since −∞ − (−∞) is NaN: together they still have −∞, 0, and 0": _merged,
        "two machines without keys have a highest score of −∞; yours became a number": (
            lambda one, other: (merge.reference(one, other)[0].nan_to_num(), *merge.reference(one, other)[1:])
        ),
    }
)

# ---- a band without n × n ----------------------------------------------------------------------------------------

LONG = 300_000  # positions whose matrix of scores would take 360 gigabytes


def _bands() -> list[tuple[Tensor, Tensor, int]]:
    long = torch.full((1, 1), 0.5).expand(LONG, 1)
    return [
        (randn(6, 4, seed=1), randn(6, 4, seed=2), 2),
        (randn(5, 2, seed=3), randn(5, 2, seed=4), 0),
        (long, long, 1),
    ]


@exercise(
    cases=_bands,
    hints=[
        "`F.pad(k, (0, 0, reach, reach))` puts `reach` rows of zeros before the first key and behind the last. Row i "
        "of the result then needs the rows i … i + 2 reach of that.",
        "`x.unfold(0, width, 1)` gives `width` rows from each i on, as (n, d, width), without copying anything. Which "
        "keys do not exist? Column c of row i is key i − reach + c.",
    ],
)
def band_scores(q: Float[Tensor, "n d"], k: Float[Tensor, "n d"], reach: int) -> Float[Tensor, "n width"]:
    (n, d), width = q.shape, 2 * reach + 1
    near = F.pad(k, (0, 0, reach, reach)).unfold(0, width, 1)  # (n, d, width)
    scores = (q[:, :, None] * near).sum(dim=1) / math.sqrt(d)
    key = torch.arange(n)[:, None] - reach + torch.arange(width)
    return scores.masked_fill((key < 0) | (key >= n), -torch.inf)


def _round_the_circle(q: Tensor, k: Tensor, reach: int) -> Tensor:
    turned = [(q * k.roll(reach - column, dims=0)).sum(dim=1) for column in range(2 * reach + 1)]
    return torch.stack(turned, dim=1) / math.sqrt(q.shape[1])


band_scores.mistakes(
    {
        "a key that does not exist has the score 0, and e⁰ = 1: the softmax would give it weight. Use −∞": (
            lambda q, k, reach: band_scores.reference(q, k, reach).nan_to_num(neginf=0.0)
        ),
        "this band looks back alone: it is to hold as many keys behind the query's own": (
            lambda q, k, reach: band_scores.reference(q, k, reach).where(
                torch.arange(2 * reach + 1) <= reach, -torch.inf
            )
        ),
        "the columns run backwards: the first is to be the key farthest before the query": (
            lambda q, k, reach: band_scores.reference(q, k, reach).flip(1)
        ),
        "the width is 2 · reach + 1: the query's own key stands in the middle": (
            lambda q, k, reach: band_scores.reference(q, k, reach)[:, 1:]
        ),
        "the first queries see the last keys: `roll` goes round the circle": _round_the_circle,
        "scores are divided by √d, in a band as anywhere": (
            lambda q, k, reach: band_scores.reference(q, k, reach) * math.sqrt(q.shape[1])
        ),
    }
)

# ---- the causal prefix sum ---------------------------------------------------------------------------------------


def _features() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Also of features so small that 1e-6 added to the divisor shows; 1e-9 stays below rounding."""
    sizes = [(5, 1.0), (1, 1.0), (9, 1.0), (4, 0.1), (4, 0.01)]
    return [
        (scale * randn(n, 3, seed=n).exp(), scale * randn(n, 3, seed=n + 1).exp(), randn(n, 2, seed=n + 2))
        for n, scale in sizes
    ]


@exercise(
    cases=_features,
    hints=[
        "q_i is the same for all j: Σ_j (q_i · k_j) v_j = q_i (Σ_j k_j v_jᵀ). The sum in brackets for every i is one "
        "`cumsum` over positions of the outer products, (n, feature, d).",
        "The divisor is the same with 1 in the place of v: q_i · Σ_j k_j, and that sum runs over j ≤ i as well.",
    ],
)
def causal_linear(
    q: Float[Tensor, "n feature"], k: Float[Tensor, "n feature"], v: Float[Tensor, "n d"]
) -> Float[Tensor, "n d"]:
    sums = (k[:, :, None] * v[:, None]).cumsum(dim=0)
    totals = k.cumsum(dim=0)
    return (q[:, None] @ sums)[:, 0] / (q * totals).sum(dim=1, keepdim=True)


causal_linear.mistakes(
    {
        "every query sees all keys, the later ones too: sum up to each position with `cumsum`": (
            lambda q, k, v: q @ (k.mT @ v) / (q @ k.sum(dim=0))[:, None]
        ),
        "nothing is divided: the weights of a query do not sum to 1, and grow with its position": (
            lambda q, k, v: (q @ k.mT).tril() @ v
        ),
        "the divisor counts later keys, too: it is a sum up to the position, as the mixture is": (
            lambda q, k, v: (q @ k.mT).tril() @ v / (q @ k.sum(dim=0))[:, None]
        ),
        "your result uses later keys: the divisor stops at the position, but the sum above it runs over all keys": (
            lambda q, k, v: q @ (k.mT @ v) / (q @ k.mT).tril().sum(dim=1, keepdim=True)
        ),
        "a divisor below 1 is raised to 1: small features are as good as large ones, since their weights sum to 1": (
            lambda q, k, v: (weights := (q @ k.mT).tril()) @ v / weights.sum(dim=1, keepdim=True).clamp(min=1)
        ),
        "a constant was added to the divisor: where features are small, it is all that counts": (
            lambda q, k, v: (weights := (q @ k.mT).tril()) @ v / (weights.sum(dim=1, keepdim=True) + 1e-6)
        ),
        "divided by the number of keys: the weights are q_i · k_j, so their sum is the divisor": (
            lambda q, k, v: (q @ k.mT).tril() @ v / torch.arange(1, len(q) + 1)[:, None]
        ),
        "a position does not see itself: the sum runs over j ≤ i. The first then has 0 divided by 0": (
            lambda q, k, v: (weights := (q @ k.mT).tril(-1)) @ v / weights.sum(dim=1, keepdim=True)
        ),
        "a softmax over q · k: these are features already, and their products the weights": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
        ),
    }
)

# ---- find the bug: a leak ----------------------------------------------------------------------------------------


def _layouts() -> list[tuple[Tensor, int, int]]:
    strided = torch.tensor([[1, 0, 1, 0], [1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1]], dtype=torch.bool)
    ones, eye = torch.ones(2, 2, dtype=torch.bool), torch.eye(3, dtype=torch.bool)
    return [(strided, 3, 11), (ones, 2, 4), (eye, 2, 6), (~eye, 2, 5)]


@exercise(
    cases=_layouts,
    hints=[
        "Print the mask for a layout of ones with two blocks of two. Which entries above the diagonal are True?",
        "A block on the diagonal holds pairs of both kinds. Causality is a rule about positions: apply it to them.",
    ],
)
def block_mask(layout: Bool[Tensor, "block block"], size: int, n: int) -> Bool[Tensor, "n n"]:
    squares = layout.repeat_interleave(size, dim=0).repeat_interleave(size, dim=1)
    return squares[:n, :n].tril()


@block_mask.given
def _(layout: Tensor, size: int, n: int) -> Tensor:
    causal = layout.tril()
    return causal.repeat_interleave(size, dim=0).repeat_interleave(size, dim=1)[:n, :n]


block_mask.mistakes(
    {
        "no leak, and too little: the blocks on the diagonal are gone, with every position's neighbors": (
            lambda layout, size, n: block_mask.reference(layout.tril(-1), size, n)
        ),
        "a position does not see itself any more: the diagonal of positions stays": (
            lambda layout, size, n: block_mask.reference(layout, size, n).tril(-1)
        ),
        "every position sees itself here, but the layout decides: a block that may not read itself has no diagonal": (
            lambda layout, size, n: block_mask.reference(layout, size, n) | torch.eye(n, dtype=torch.bool)
        ),
        "every block reads itself here, but the layout decides: a block may be barred from its own positions": (
            lambda layout, size, n: block_mask.reference(layout | torch.eye(len(layout), dtype=torch.bool), size, n)
        ),
        "the last block is whole here, but the text ends inside it: cut the mask to n × n": (
            lambda layout, size, n: block_mask.reference(layout, size, size * len(layout))
        ),
        "the layout is forgotten: this is the mask of dense causal attention": (
            lambda layout, size, n: torch.ones(n, n, dtype=torch.bool).tril()
        ),
        "the other half: `triu` keeps what comes later, and nothing else": (
            lambda layout, size, n: layout.repeat_interleave(size, 0).repeat_interleave(size, 1)[:n, :n].triu()
        ),
        "`repeat` lays copies of the layout side by side; `repeat_interleave` makes each entry a square": (
            lambda layout, size, n: layout.repeat(size, size)[:n, :n].tril()
        ),
    }
)

# ---- count the operations of a pattern ---------------------------------------------------------------------------


def _patterns() -> list[tuple[Tensor, int, int]]:
    return [(layout, size, d) for (layout, size, _), d in zip(_layouts(), (8, 5, 2, 1), strict=True)]


@exercise(
    cases=_patterns,
    hints=[
        "One pair of a query and a key: how many products has the score, how many the mixture? Each comes with a sum.",
        "A pair takes 2 d operations for the score and 2 d for the mixture. A True in the layout is size² pairs; a "
        "False is none, and that is all that is saved.",
    ],
)
def operations(layout: Bool[Tensor, "block block"], size: int, d: int) -> int:
    return 4 * d * size**2 * int(layout.sum())


operations.mistakes(
    {
        "half: the scores are counted, the mixture of the values is not": (
            lambda layout, size, d: 2 * d * size**2 * int(layout.sum())
        ),
        "too few: an entry of the layout is a square of size × size pairs": (
            lambda layout, size, d: 4 * d * size * int(layout.sum())
        ),
        "these are the operations of dense attention: count the blocks that are True": (
            lambda layout, size, d: 4 * d * size**2 * layout.numel()
        ),
        "only the allowed half of a causal pattern: whole blocks are multiplied, and masked afterwards": (
            lambda layout, size, d: 4 * d * int(block_mask.reference(layout, size, size * len(layout)).sum())
        ),
        "pairs, not operations: each takes 2 d for its score and 2 d for its part of the mixture": (
            lambda layout, size, d: size**2 * int(layout.sum())
        ),
    }
)

# ---- unbiased features -------------------------------------------------------------------------------------------


def _vectors() -> list[tuple[Tensor, Tensor]]:
    return [(randn(n, d, seed=n), randn(m, d, seed=m)) for n, d, m in ((4, 3, 5), (2, 16, 7), (6, 2, 1))]


@exercise(
    cases=_vectors,
    hints=[
        "For w with standard normal entries, the mean of exp(w · x) is exp(‖x‖² / 2). Put x = a + b and multiply out: "
        "what has to be taken off so that exp(a · b) is left?",
        "φ(x) = exp(w · x − ‖x‖² / 2) for each w, and the sum over m of them is to be a mean. For q · k / √d each of "
        "the two is divided by √√d first, and the length is that of the divided vector.",
    ],
    differentiable=("x",),
)
def positive_features(x: Float[Tensor, "n d"], directions: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    x = x / x.shape[1] ** 0.25
    return torch.exp(x @ directions.T - x.square().sum(dim=1, keepdim=True) / 2) / math.sqrt(len(directions))


def _phi(x: Tensor, directions: Tensor, *, power: float = 0.25, half: float = 0.5, m_power: float = 0.5) -> Tensor:
    x = x / x.shape[1] ** power
    return torch.exp(x @ directions.T - half * x.square().sum(dim=1, keepdim=True)) / len(directions) ** m_power


positive_features.mistakes(
    {
        "without − ‖x‖² / 2 products are exp(‖q + k‖² / 2 √d) on average: long vectors win all": (
            partial(_phi, half=0.0)
        ),
        "½ is missing: what has to be taken off is half of the squared length": partial(_phi, half=1.0),
        "the wrong sign: half of the squared length is taken off, not added": partial(_phi, half=-0.5),
        "this estimates exp(q · k): both are divided by √√d, so that their product is by √d": partial(_phi, power=0.0),
        "divided twice: queries and keys by √d each makes q · k / d; take √√d": partial(_phi, power=0.5),
        "a sum over m features, not a mean: each is divided by √m, so that products are by m": (
            partial(_phi, m_power=0.0)
        ),
        "divided by m: a product of two features is then divided by m²; take √m": partial(_phi, m_power=1.0),
    }
)
