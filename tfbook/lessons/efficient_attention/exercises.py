"""Exercises of lesson 15: online softmax, a band, causal sums, a leaking mask, operations, random features."""

from __future__ import annotations

import math
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.efficient_attention.first_exercises import merge as merge, tile_step as tile_step

# ---- a band without n × n ----------------------------------------------------------------------------------------

LONG = 300_000  # positions whose matrix of scores would take 360 gigabytes


def _bands() -> list[tuple[Tensor, Tensor, int]]:
    long = torch.full((1, 1), 0.5).expand(LONG, 1)
    return [
        (randn(6, 4, seed=1), randn(6, 4, seed=2), 2),
        (randn(5, 2, seed=3), randn(5, 2, seed=4), 0),
        (long, long, 1),
        (torch.eye(3, 4), torch.eye(3, 4).flip(0), 3),  # as many keys on either side as there are; scores of 0
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
        "a key that exists may have the score 0: find those that don't by their place, not by their score": (
            lambda q, k, reach: (scores := band_scores.reference(q, k, reach).nan_to_num(neginf=0.0)).masked_fill(
                scores == 0, -torch.inf
            )
        ),
        "the width is 2 · reach + 1: the query's own key stands in the middle": (
            lambda q, k, reach: band_scores.reference(q, k, reach)[:, 1:]
        ),
        "the first queries see the last keys: `roll` goes round the circle": _round_the_circle,
        "scores are divided by √d, in a band as anywhere": (
            lambda q, k, reach: band_scores.reference(q, k, reach) * math.sqrt(q.shape[1])
        ),
        "one key too late: column c of row i is key i − reach + c, so the query's own stands in the middle": (
            lambda q, k, reach: band_scores.reference(q, k, reach + 1)[:, 2:]
        ),
        "one key too early: column c of row i is key i − reach + c, so the query's own stands in the middle": (
            lambda q, k, reach: band_scores.reference(q, k, reach + 1)[:, :-2]
        ),
        "−1e9 stands where no key exists: the score asked for is −∞": (
            lambda q, k, reach: band_scores.reference(q, k, reach).nan_to_num(neginf=-1e9)
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
        "this sums over j ≥ i, the later keys: a causal model reads those up to i": (
            lambda q, k, v: causal_linear.reference(q.flip(0), k.flip(0), v.flip(0)).flip(0)
        ),
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
        "φ is applied once more: q and k are features already": (
            lambda q, k, v: causal_linear.reference(F.elu(q) + 1, F.elu(k) + 1, v)
        ),
        "a position does not see itself: the sum runs over j ≤ i. The first then sees nothing at all": (
            lambda q, k, v: (weights := (q @ k.mT).tril(-1)) @ v / weights.sum(dim=1, keepdim=True).clamp(min=1e-12)
        ),
    }
)

# ---- find the bug: a leak ----------------------------------------------------------------------------------------


def _layouts() -> list[tuple[Tensor, int, int]]:
    """Where a block may read a later one but not the other way round, and where the text ends early in its block."""
    strided = torch.tensor([[1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1]], dtype=torch.bool)
    ones, eye = torch.ones(2, 2, dtype=torch.bool), torch.eye(3, dtype=torch.bool)
    return [(strided, 4, 13), (ones, 2, 4), (eye, 2, 6), (~eye, 2, 5)]


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
        "blocks have `size` positions each, however long the text is: it may end early in the last one": (
            lambda layout, size, n: (
                layout[(place := torch.arange(n) * len(layout) // n)[:, None], place]
                & torch.ones(n, n, dtype=torch.bool).tril()
            )
        ),
        "row i of the layout says what block i may read; that a later block may read it back does not count": (
            lambda layout, size, n: block_mask.reference(layout | layout.T, size, n)
        ),
        "the other half: `triu` keeps what comes later, and nothing else": (
            lambda layout, size, n: layout.repeat_interleave(size, 0).repeat_interleave(size, 1)[:n, :n].triu()
        ),
        "`repeat` lays copies of the layout side by side; `repeat_interleave` makes each entry a square": (
            lambda layout, size, n: layout.repeat(size, size)[:n, :n].tril()
        ),
        "nothing is causal: wherever the layout allows it, a position sees later ones": (
            lambda layout, size, n: layout.repeat_interleave(size, 0).repeat_interleave(size, 1)[:n, :n]
        ),
    }
)

# ---- count the operations of a pattern ---------------------------------------------------------------------------


def _patterns() -> list[tuple[Tensor, int, int]]:
    """Also of about 2,000 positions, whose operations are more than an int32 holds, or a float32 tells apart."""
    small = [(layout, size, d) for (layout, size, _), d in zip(_layouts(), (8, 5, 2, 1), strict=True)]
    return [*small, (torch.ones(8, 8, dtype=torch.bool).tril(), 251, 299)]


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
        "so many operations do not fit into 32 bits: count in Python's integers, as with `int(layout.sum())`": (
            lambda layout, size, d: (layout.sum().int() * torch.tensor(4 * d * size**2, dtype=torch.int32)).item()
        ),
        "pairs, not operations: each takes 2 d for its score and 2 d for its part of the mixture": (
            lambda layout, size, d: size**2 * int(layout.sum())
        ),
        "half of each block: a block is multiplied as a whole, whatever a mask hides in it afterwards": (
            lambda layout, size, d: 2 * d * size * (size + 1) * int(layout.sum())
        ),
        "blocks above the diagonal count as well, if the layout allows them: it need not be causal": (
            lambda layout, size, d: operations.reference(layout.tril(), size, d)
        ),
    }
)

# ---- unbiased features -------------------------------------------------------------------------------------------


def _vectors() -> list[tuple[Tensor, Tensor]]:
    """Also of a long vector along which directions lie, where exp(w · x) alone overflows."""
    along = F.normalize(randn(1, 4, seed=8), dim=1)
    some = [(randn(n, d, seed=n), randn(m, d, seed=m)) for n, d, m in ((4, 3, 5), (2, 16, 7), (6, 2, 1))]
    return [*some, (18.4 * along, torch.tensor([[6.9], [7.0], [7.1]]) * along)]


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
        "exp(w · x) overflows where x is long: subtract ‖x‖² / 2 first, then take exp": (
            lambda x, directions: (
                _phi(x, directions, half=0.0) * (-x.square().sum(1, True) / 2 / x.shape[1] ** 0.5).exp()
            )
        ),
        "a sum over m features, not a mean: each is divided by √m, so that products are by m": (
            partial(_phi, m_power=0.0)
        ),
        "divided by m: a product of two features is then divided by m²; take √m": partial(_phi, m_power=1.0),
        "the length is not squared: what has to be taken off is ‖x‖² / 2": (
            lambda x, directions: (
                ((scaled := x / x.shape[1] ** 0.25) @ directions.T - scaled.norm(dim=1, keepdim=True) / 2).exp()
                / math.sqrt(len(directions))
            )
        ),
        "a row's maximum was subtracted: it cancels in attention's quotient, but the features alone become smaller": (
            lambda x, directions: (
                (features := positive_features.reference(x, directions))
                / features.amax(dim=1, keepdim=True)
                / math.sqrt(len(directions))
            )
        ),
    }
)
