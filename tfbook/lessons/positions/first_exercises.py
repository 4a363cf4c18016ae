"""The first exercises of lesson 04; the others are in exercises.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn

# ---- waves -------------------------------------------------------------------------------------------------------


def _positions_and_widths() -> list[tuple[Tensor, int]]:
    far = torch.tensor([5.0, 40_000.0])  # beyond any table; with the one frequency of width 2, which is 1, still exact
    return [(torch.tensor([0.0, 1.0, 2.0, 3.0]), 8), (torch.tensor([100.0, 7.0]), 6), (far, 2)]


@exercise(
    cases=_positions_and_widths,
    hints=[
        "One frequency for each pair of columns: `torch.arange(0, d_model, 2)` holds the exponents' 2i.",
        "`torch.outer(positions, frequencies)` is (time, d_model / 2). Its sines go to the columns `0::2`, its cosines "
        "to `1::2`.",
    ],
    differentiable=False,
)
def waves(positions: Tensor, d_model: int) -> Tensor:
    frequencies = 10_000 ** (-torch.arange(0, d_model, 2) / d_model)
    angles = torch.outer(positions, frequencies)
    encoding = torch.empty(len(positions), d_model)
    encoding[:, 0::2], encoding[:, 1::2] = angles.sin(), angles.cos()
    return encoding


def _angles(positions: Tensor, width: int, steepness: float = 1.0) -> Tensor:
    return torch.outer(positions, 10_000 ** (-steepness * torch.arange(0, width, 2) / width))


def _waves(positions: Tensor, d_model: int, *, steepness: float) -> Tensor:
    angles = _angles(positions, d_model, steepness)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def _a_frequency_a_column(positions: Tensor, d_model: int) -> Tensor:
    columns = torch.arange(d_model)
    angles = torch.outer(positions, 10_000 ** (-columns / d_model))
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos())


def _apart(x: Tensor) -> Tensor:
    """All first ones of the pairs of neighbors, then all second ones."""
    return x.unflatten(-1, (-1, 2)).mT.flatten(-2)


waves.mistakes(
    {
        "all sines stand before all cosines; here each sine stands beside its cosine, in columns 2i and 2i + 1": (
            lambda positions, d_model: _apart(waves.reference(positions, d_model))
        ),
        "sine and cosine are exchanged: at position 0 the even columns are sin 0 = 0": (
            lambda positions, d_model: waves.reference(positions, d_model).unflatten(1, (-1, 2)).flip(-1).flatten(1)
        ),
        "the frequencies fall half as fast as they should: pair i has the exponent 2i / d_model, not i / d_model": (
            partial(_waves, steepness=0.5)
        ),
        "the frequencies fall twice as fast as they should: `torch.arange(0, d_model, 2)` holds 2i already": (
            partial(_waves, steepness=2.0)
        ),
        "the exponents are 2i / d_model, not 2i / (d_model − 2): the last frequency only comes near 1/10000": (
            lambda positions, d_model: _waves(positions, d_model, steepness=d_model / max(d_model - 2, 1))
        ),
        "you multiplied by 10000^(2i / d_model): the waves must get slower from left to right, so divide": (
            partial(_waves, steepness=-1.0)
        ),
        "each column has a frequency of its own: a sine and its cosine share one, "
        "or no shift is a rotation": _a_frequency_a_column,
        "one position too far: positions count from 0, and all angles of position 0 are 0": (
            lambda positions, d_model: waves.reference(positions + 1, d_model)
        ),
        "you counted the rows: `positions` says where each one stands, and the second case begins at 100": (
            lambda positions, d_model: waves.reference(torch.arange(len(positions)).float(), d_model)
        ),
        "`//` rounds 2i / d_model down to 0, so that all frequencies are 1: divide with `/`": (
            lambda positions, d_model: _waves(positions, d_model, steepness=0.0)
        ),
        "you subtracted the first position: `positions` need not start at 0, and 100 is a position like any other": (
            lambda positions, d_model: waves.reference(positions - positions[0], d_model)
        ),
        "the angles are in radians already: nothing here is a degree": (
            lambda positions, d_model: waves.reference(positions.deg2rad(), d_model)
        ),
    }
)

# ---- rotary ------------------------------------------------------------------------------------------------------


def _heads_and_positions() -> list[tuple[Tensor, Tensor]]:
    # as many heads as positions and pairs, so that a wrong axis gives a wrong number and not an error about shapes
    return [
        (randn(2, 3, 3, 6, seed=1), torch.tensor([0.0, 1.0, 2.0])),
        (randn(1, 2, 2, 4, seed=2), torch.tensor([100.0, 4.0])),
        (randn(2, 3, 5, 8, seed=12), torch.tensor([3.0, 0.0, 7.0, 2.0, 9.0])),
        (randn(1, 2, 2, 2, seed=18), torch.tensor([40_000.0, 5.0])),  # beyond any table
    ]


@exercise(
    cases=_heads_and_positions,
    hints=[
        "The angles are an outer product, (time, d_head / 2). `x[..., 0::2]` and `x[..., 1::2]` are the two "
        "coordinates of the pairs, and the angles broadcast to both.",
        "(a, b) turned by φ is (a cos φ − b sin φ, a sin φ + b cos φ). `torch.stack([…], dim=-1).flatten(-2)` puts "
        "pairs side by side again.",
    ],
    differentiable=("x",),
)
def rotary(x: Tensor, positions: Tensor) -> Tensor:
    d_head = x.shape[-1]
    angles = torch.outer(positions, 10_000 ** (-torch.arange(0, d_head, 2) / d_head))
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., 0::2], x[..., 1::2]
    return torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1).flatten(-2)


def _rotation(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return a * cos - b * sin, a * sin + b * cos


def _turned(
    x: Tensor, positions: Tensor, *, formula: Callable[..., tuple[Tensor, Tensor]] = _rotation, steepness: float = 1.0
) -> Tensor:
    angles = _angles(positions, x.shape[-1], steepness)
    return torch.stack(formula(x[..., 0::2], x[..., 1::2], angles.cos(), angles.sin()), dim=-1).flatten(-2)


def _angles_of_halves(x: Tensor, positions: Tensor) -> Tensor:
    angles = _angles(positions, x.shape[-1]).repeat(1, 2)
    partners = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * angles.cos() + partners * angles.sin()


def _partners_of_halves(x: Tensor, positions: Tensor) -> Tensor:
    angles = _angles(positions, x.shape[-1]).repeat_interleave(2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


rotary.mistakes(
    {
        "these pairs are halves, x_i and x_{i + d_head/2}, as in the package; here neighbors are turned together": (
            lambda x, positions: _apart(rotary.reference(x.unflatten(-1, (2, -1)).mT.flatten(-2), positions))
        ),
        "the right pairs, turned, but all first coordinates come before all second ones: put them side by side again": (
            lambda x, positions: _apart(rotary.reference(x, positions))
        ),
        "the partners are neighbors, but the angles are laid out for halves: "
        "both of a pair turn by the same angle": _angles_of_halves,
        "the angles are laid out for neighbors, but the partners stand half a head away: "
        "change one of the two": _partners_of_halves,
        "turned backwards: the minus belongs to the first coordinate, a cos φ − b sin φ": (
            lambda x, positions: rotary.reference(x, -positions)
        ),
        "both signs are plus, which is no rotation: the length of a pair changes": (
            partial(_turned, formula=lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos))
        ),
        "cosine and sine are exchanged: at position 0 every pair must stay as it is": (
            partial(_turned, formula=lambda a, b, cos, sin: (a * sin - b * cos, a * cos + b * sin))
        ),
        "the second coordinate is made from the first one after it was turned; both need the values as they came": (
            partial(_turned, formula=lambda a, b, cos, sin: (c := a * cos - b * sin, c * sin + b * cos))
        ),
        "the angles lie along the heads: head 1 is turned as position 1; all heads share the angles of a position": (
            lambda x, positions: rotary.reference(x.transpose(1, 2), positions).transpose(1, 2)
        ),
        "you counted the vectors: `positions` says where each one stands, and the second case begins at 100": (
            lambda x, positions: rotary.reference(x, torch.arange(len(positions)).float())
        ),
        "all pairs turn at the same speed: θ_i = 10000^(−2i / d_head) falls with i": partial(_turned, steepness=0.0),
        "the speeds fall half as fast as they should: the exponent is −2i / d_head, not −i / d_head": (
            partial(_turned, steepness=0.5)
        ),
        "the speeds fall twice as fast as they should: `torch.arange(0, d_head, 2)` holds 2i already": (
            partial(_turned, steepness=2.0)
        ),
    }
)

# ---- neighbors and halves ---------------------------------------------------------------------------------------


def _matrices_and_heads() -> list[tuple[Tensor, int]]:
    # with a d_head of 4 the right order would be its own inverse
    return [(randn(12, 12, seed=3), 2), (randn(24, 24, seed=4), 3), (randn(12, 24, seed=11), 2)]


@exercise(
    cases=_matrices_and_heads,
    hints=[
        "Take one head with d_head = 6. Where must the coordinates 0, 1, 2, 3, 4, 5 stand, so that (0, 1), (2, 3) and "
        "(4, 5) are the pairs of places (0, 3), (1, 4) and (2, 5)?",
        "First all first partners, then all second ones: 0, 2, 4, 1, 3, 5. Cut the rows into (heads, d_head / 2, 2) "
        "and exchange the last two of these axes.",
    ],
    differentiable=False,
)
def pair_up(W: Tensor, heads: int) -> Tensor:
    pairs = W.view(heads, -1, 2, W.shape[1])
    return pairs.transpose(1, 2).reshape(W.shape)


pair_up.mistakes(
    {
        "the rows are as they came: the package would turn coordinate 0 together with d_head/2, not with 1": (
            lambda W, heads: W.clone()
        ),
        "this is the inverse: it brings rows that were trained as halves to neighbors; "
        "here row 2i of a head goes to i": (
            lambda W, heads: W.view(heads, 2, -1, W.shape[1]).transpose(1, 2).reshape(W.shape)
        ),
        "second partners stand before first ones: "
        "every pair turns backwards, and scores depend on n − m instead of m − n": (
            lambda W, heads: W.view(heads, -1, 2, W.shape[1]).flip(2).transpose(1, 2).reshape(W.shape)
        ),
        "the halves of each head are exchanged, and neighbors are as far from their partners' places as before": (
            lambda W, heads: W.view(heads, 2, -1, W.shape[1]).flip(1).reshape(W.shape)
        ),
        "the order runs through all rows, so that those of one head end up in others; "
        "each head is reordered by itself": lambda W, heads: pair_up.reference(W, 1),
        "you reordered the columns, which are inputs; the coordinates of queries and keys are the rows": (
            lambda W, heads: pair_up.reference(W.T.contiguous(), heads).T
        ),
    }
)

# ---- ALiBi -------------------------------------------------------------------------------------------------------


def _scores() -> list[tuple[Tensor]]:
    return [(randn(2, 4, 3, 3, seed=5),), (randn(1, 2, 2, 5, seed=6),), (randn(1, 16, 1, 3, seed=7),)]


@exercise(
    cases=_scores,
    hints=[
        "Slopes first: with 4 heads they are 2^−2, 2^−4, 2^−6, 2^−8. Then the distances |i − j|, (query, key).",
        "With n queries and m keys, query i stands at position m − n + i. `slopes[:, None, None] * distances` is "
        "(head, query, key).",
    ],
)
def alibi_bias(scores: Tensor) -> Tensor:
    heads, queries, keys = scores.shape[1:]
    slopes = 2 ** (-8 / heads * torch.arange(1, heads + 1))
    places = torch.arange(keys)
    distances = (places[keys - queries :, None] - places).abs()
    return -slopes[:, None, None] * distances


def _slopes(scores: Tensor, of: int | None = None) -> Tensor:
    """(head, 1, 1): the slopes of all heads, or as many of those that `of` heads would have."""
    heads = scores.shape[1]
    return 2 ** (-8 / (of or heads) * torch.arange(1, heads + 1)[:, None, None])


def _ahead(scores: Tensor) -> Tensor:
    """j − i: how far each key stands behind its query in the text."""
    queries, keys = scores.shape[2:]
    return torch.arange(keys) - torch.arange(keys - queries, keys)[:, None]


alibi_bias.mistakes(
    {
        "the sign: what is far should count less, and here distance is rewarded": (
            lambda scores: -alibi_bias.reference(scores)
        ),
        "keys before the query are right; those after it are rewarded for their distance: it is |i − j|": (
            lambda scores: _slopes(scores) * _ahead(scores)
        ),
        "the far past is rewarded and the future is not: i − j has a sign, the distance |i − j| has none": (
            lambda scores: -_slopes(scores) * _ahead(scores)
        ),
        "keys after the query have bias 0: under a causal mask nobody minds, but the formula has |i − j|": (
            lambda scores: _slopes(scores) * _ahead(scores).clamp(max=0)
        ),
        "m · j is m · (j − i) and one number a row, which a causal softmax drops: the same weights there; "
        "but the formula gives 0 on the diagonal": (
            lambda scores: (_slopes(scores) * torch.arange(scores.shape[3])).repeat(1, scores.shape[2], 1)
        ),
        "the diagonal is not 0: a position is at distance 0 from itself": (
            lambda scores: -_slopes(scores) * (_ahead(scores).abs() + 1)
        ),
        "2^−1, 2^−2, … are the slopes of 8 heads; with h heads the exponents are 8/h, 16/h, …, 8": (
            lambda scores: -_slopes(scores, of=8) * _ahead(scores).abs()
        ),
        "8 / heads is not a whole number with 16 heads: divide with /, not with //": (
            lambda scores: (
                -(2.0 ** (-(8 // scores.shape[1]) * torch.arange(1, scores.shape[1] + 1)))[:, None, None]
                * _ahead(scores).abs()
            )
        ),
        "the first slope is 1: your heads count from 0, and the exponents begin at 8/h": (
            lambda scores: alibi_bias.reference(scores) * 2 ** (8 / scores.shape[1])
        ),
        "the slopes are the wrong way round: the first head has the steepest, 2^(−8/h), and the last one 2^−8": (
            lambda scores: alibi_bias.reference(scores).flip(0)
        ),
        "right for as many queries as keys; fewer queries are the last positions, and yours begin at 0: "
        "the newest word would favor the first": lambda scores: (
            -_slopes(scores) * (torch.arange(scores.shape[3]) - torch.arange(scores.shape[2])[:, None]).abs()
        ),
        "the future is blocked as well: that is the mask's job, and an encoder has no such mask": (
            lambda scores: alibi_bias.reference(scores).masked_fill(_ahead(scores) > 0, -torch.inf)
        ),
        "these are the scores with the bias; return what is added to them, (head, query, key)": (
            lambda scores: scores + alibi_bias.reference(scores)
        ),
        "the numbers are right; leave out the axis of the batch, since (head, query, key) broadcasts to the scores": (
            lambda scores: alibi_bias.reference(scores)[None]
        ),
    }
)
