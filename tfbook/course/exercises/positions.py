"""Exercises of lesson 04: waves, rotations and biases from their formulas, a probe, and a cache that cannot count."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises.engine import exercise, randn
from tfbook.course.exercises.extremes import BY_HAND, FILLED, Softmax, with_scores

# ---- waves -------------------------------------------------------------------------------------------------------


def _positions_and_widths() -> list[tuple[Tensor, int]]:
    return [(torch.tensor([0.0, 1.0, 2.0, 3.0]), 8), (torch.tensor([100.0, 7.0]), 6), (torch.tensor([5.0]), 2)]


@exercise(
    cases=_positions_and_widths,
    hints=[
        "One frequency for each pair of columns: `torch.arange(0, d_model, 2)` holds the exponents' 2i.",
        "`torch.outer(positions, frequencies)` is (time, d_model / 2). Its sines go to the columns `0::2`, its cosines "
        "to `1::2`.",
    ],
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
    """All first ones of the pairs of neighbours, then all second ones."""
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
    ]


@exercise(
    cases=_heads_and_positions,
    hints=[
        "The angles are an outer product, (time, d_head / 2). `x[..., 0::2]` and `x[..., 1::2]` are the two "
        "coordinates of the pairs, and the angles broadcast to both.",
        "(a, b) turned by φ is (a cos φ − b sin φ, a sin φ + b cos φ). `torch.stack([…], dim=-1).flatten(-2)` puts "
        "pairs side by side again.",
    ],
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
        "these pairs are halves, x_i and x_{i + d_head/2}, as in the package; here neighbours are turned together": (
            lambda x, positions: _apart(rotary.reference(x.unflatten(-1, (2, -1)).mT.flatten(-2), positions))
        ),
        "the right pairs, turned, but all first coordinates come before all second ones: put them side by side again": (
            lambda x, positions: _apart(rotary.reference(x, positions))
        ),
        "the partners are neighbours, but the angles are laid out for halves: "
        "both of a pair turn by the same angle": _angles_of_halves,
        "the angles are laid out for neighbours, but the partners stand half a head away: "
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


# ---- neighbours and halves ---------------------------------------------------------------------------------------


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
)
def pair_up(W: Tensor, heads: int) -> Tensor:
    pairs = W.view(heads, -1, 2, W.shape[1])
    return pairs.transpose(1, 2).reshape(W.shape)


pair_up.mistakes(
    {
        "the rows are as they came: the package would turn coordinate 0 together with d_head/2, not with 1": (
            lambda W, heads: W.clone()
        ),
        "this is the inverse: it brings rows that were trained as halves to neighbours; "
        "here row 2i of a head goes to i": (
            lambda W, heads: W.view(heads, 2, -1, W.shape[1]).transpose(1, 2).reshape(W.shape)
        ),
        "second partners stand before first ones: "
        "every pair turns backwards, and scores depend on n − m instead of m − n": (
            lambda W, heads: W.view(heads, -1, 2, W.shape[1]).flip(2).transpose(1, 2).reshape(W.shape)
        ),
        "the halves of each head are exchanged, and neighbours are as far from their partners' places as before": (
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
        "the newest word would favour the first": lambda scores: (
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


# ---- relative positions ------------------------------------------------------------------------------------------


def _queries_and_tables() -> list[tuple[Tensor, Tensor]]:
    sizes = [(2, 2, 5, 4, 2), (1, 3, 4, 2, 1), (1, 1, 2, 3, 3)]  # batch, head, time, d_head, reach
    return [
        (randn(b, h, t, d, seed=7 + 2 * i), randn(2 * reach + 1, d, seed=8 + 2 * i))
        for i, (b, h, t, d, reach) in enumerate(sizes)
    ]


@exercise(
    cases=_queries_and_tables,
    hints=[
        "The table has 2 · reach + 1 rows: row 0 is the distance −reach, row `reach` the distance 0. Build the matrix "
        "of distances j − i, (query, key), clamp it, and turn it into row numbers.",
        "`table[rows]` is (query, key, d_head): the vector of each pair. "
        "`torch.einsum('bhqd,qkd->bhqk', q, …)` takes the products.",
    ],
)
def relative_bias(q: Tensor, table: Tensor) -> Tensor:
    reach, places = len(table) // 2, torch.arange(q.shape[2])
    rows = (places - places[:, None]).clamp(-reach, reach) + reach
    return torch.einsum("bhqd,qkd->bhqk", q, table[rows]) / math.sqrt(q.shape[-1])


def _read(q: Tensor, table: Tensor, *, rows: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The products with the rows that `rows` finds from all j − i and reach."""
    places = torch.arange(q.shape[2])
    vectors = table[rows(places - places[:, None], len(table) // 2)]
    return torch.einsum("bhqd,qkd->bhqk", q, vectors) / math.sqrt(q.shape[-1])


relative_bias.mistakes(
    {
        "the table is read backwards, by i − j: keys after the query use the vectors of those before it": (
            lambda q, table: relative_bias.reference(q, table.flip(0))
        ),
        "the sign: the product is added as it is; whether far counts less is learned": (
            lambda q, table: -relative_bias.reference(q, table)
        ),
        "√d_head is missing: the whole score is divided by it, q · (k + a) / √d_head": (
            lambda q, table: relative_bias.reference(q * math.sqrt(q.shape[-1]), table)
        ),
        "you divided by d_head; the scores are divided by its root": (
            lambda q, table: relative_bias.reference(q / math.sqrt(q.shape[-1]), table)
        ),
        "distances beyond reach get 0, as if they had no vector; they share that of reach on their side": (
            lambda q, table: relative_bias.reference(q, table).tril(len(table) // 2).triu(-(len(table) // 2))
        ),
        "distances beyond reach go on at the other end of the table: clamp them, do not wrap them": (
            partial(_read, rows=lambda gaps, reach: (gaps + reach) % (2 * reach + 1))
        ),
        "row 0 is the distance −reach: without adding reach, negative rows are counted from the end": (
            partial(_read, rows=lambda gaps, reach: gaps.clamp(-reach, reach))
        ),
        "all keys before the query share the vector of distance 0: clamp to −reach … reach, not 0 … reach": (
            partial(_read, rows=lambda gaps, reach: gaps.clamp(0, reach) + reach)
        ),
        "before and after use the same vectors: j − i has a sign, and |j − i| forgets it": (
            partial(_read, rows=lambda gaps, reach: gaps.abs().clamp(max=reach) + reach)
        ),
        "a distance's vector meets the q of the key's position: row i of the result belongs to query i": (
            lambda q, table: relative_bias.reference(q, table.flip(0)).mT
        ),
    }
)


# ---- a linear probe ----------------------------------------------------------------------------------------------


def _states_and_positions() -> list[tuple[Tensor, ...]]:
    """Activations around a mean that is not 0, from which a linear map reads the position, but not exactly."""

    def sample(count: int, width: int, seed: int) -> tuple[Tensor, Tensor]:
        states = 1 + randn(count, width, seed=seed)
        positions = 10 + 3 * states[:, 0] - 2 * states[:, 1] + randn(count, seed=seed + 1)
        return states, positions

    return [(*sample(30, 4, 11), *sample(20, 4, 13)), (*sample(12, 3, 15), *sample(25, 3, 17))]


@exercise(
    cases=_states_and_positions,
    hints=[
        "A constant is a weight for a column of ones: `torch.cat([states, torch.ones(len(states), 1)], dim=1)`. "
        "`torch.linalg.lstsq(inputs, targets).solution` gives the best weights; both of its arguments are matrices.",
        "The weights come from `states`, the score from `new_states`: "
        "1 − Σ(target − prediction)² / Σ(target − mean of the targets)².",
    ],
)
def linear_probe(states: Tensor, positions: Tensor, new_states: Tensor, new_positions: Tensor) -> float:
    inputs, new_inputs = (torch.cat([x, torch.ones(len(x), 1)], dim=1) for x in (states, new_states))
    weights = torch.linalg.lstsq(inputs, positions[:, None]).solution[:, 0]
    wrong = (new_positions - new_inputs @ weights).square().sum()
    spread = (new_positions - new_positions.mean()).square().sum()
    return 1 - (wrong / spread).item()


def _explained(targets: Tensor, predictions: Tensor) -> float:
    return 1 - ((targets - predictions).square().sum() / (targets - targets.mean()).square().sum()).item()


def _scored(x: Tensor, y: Tensor, new_x: Tensor, new_y: Tensor, *, score: Callable[..., Tensor | float]) -> float:
    """A right probe, scored by `score(predictions, targets, y)`."""
    inputs, new_inputs = (torch.cat([states, torch.ones(len(states), 1)], dim=1) for states in (x, new_x))
    return float(score(new_inputs @ torch.linalg.lstsq(inputs, y[:, None]).solution[:, 0], new_y, y))


linear_probe.mistakes(
    {
        "scored on what it was fitted to: the score belongs to texts that the probe has not seen": (
            lambda x, y, *new: linear_probe.reference(x, y, x, y)
        ),
        "fitted to the very texts that it is scored on: the weights come from `states` and `positions` alone": (
            lambda x, y, *new: linear_probe.reference(*new, *new)
        ),
        "the new texts took part in the fit: the probe must not know them before it is scored": (
            lambda x, y, *new: linear_probe.reference(torch.cat([x, new[0]]), torch.cat([y, new[1]]), *new)
        ),
        "the constant is missing: states of 0 would stand at position 0; give the states a column of ones": (
            lambda x, y, new_x, new_y: _explained(new_y, new_x @ torch.linalg.lstsq(x, y[:, None]).solution[:, 0])
        ),
        "(count,) minus (count, 1) is (count, count): every prediction met every position; make both (count,)": (
            partial(_scored, score=lambda p, t, y: _explained(t, p[:, None]))
        ),
        "the probe says the mean of the positions, whatever it reads: if you train it, "
        "is one side of its loss (count, 1)?": lambda x, y, new_x, new_y: _explained(new_y, y.mean()),
        "this is the share that is left unexplained; R² is 1 minus it": lambda *case: 1 - linear_probe.reference(*case),
        "this is the mean squared error; R² compares it with the variance of the positions": (
            partial(_scored, score=lambda p, t, y: (t - p).square().mean())
        ),
        "the denominator is Σp²: a probe that says the mean every time would score well; subtract the mean first": (
            partial(_scored, score=lambda p, t, y: 1 - (t - p).square().sum() / t.square().sum())
        ),
        "p̄ is the mean of the new positions; you took that of the positions the probe was fitted to": (
            partial(_scored, score=lambda p, t, y: 1 - (t - p).square().sum() / (t - y.mean()).square().sum())
        ),
        "`var` divides by n − 1 and the mean of the squares by n: take two sums, or two means": (
            partial(_scored, score=lambda p, t, y: 1 - (t - p).square().mean() / t.var())
        ),
        "the variance of the errors forgives a probe that is off by one number everywhere: add up their squares": (
            partial(_scored, score=lambda p, t, y: 1 - (t - p).var() / t.var())
        ),
        "this is the squared correlation, which forgives a wrong offset and a wrong scale; R² forgives neither": (
            partial(_scored, score=lambda p, t, y: torch.corrcoef(torch.stack([p, t]))[0, 1].square())
        ),
        "the new states are centred by their own mean: what is subtracted comes from the fit, like the weights": (
            lambda x, y, new_x, new_y: linear_probe.reference(x, y, new_x - new_x.mean(dim=0) + x.mean(dim=0), new_y)
        ),
    }
)


# ---- find the bug: the cache -------------------------------------------------------------------------------------

Step = tuple[Tensor, Tensor, Tensor]  # what was found, and all keys and values for the next step
Turn = Callable[..., Tensor]  # turn(x, start): vectors (batch, head, time, d_head) of the positions start, start + 1, …


def _turn(x: Tensor, start: int = 0) -> Tensor:
    return rotary.reference(x, torch.arange(start, start + x.shape[2], dtype=torch.float32))


def _newest_and_past() -> list[tuple[object, ...]]:
    def inputs(batch: int, heads: int, past: int, new: int, seed: int) -> tuple[Tensor, ...]:
        sizes = (new, new, new, past, past)
        return tuple(randn(batch, heads, size, 4, seed=seed + i) for i, size in enumerate(sizes))

    extreme = torch.tensor([[-40.0, -41.0, -90.0, -90.0], [-2000.0, -2001.0, -2002.0, 5.0], [200.0, 199.0, 5.0, 4.0]])
    q, keys = with_scores(extreme[None, None])
    values = randn(1, 1, 4, 4, seed=70)
    return [
        *((*inputs(2, 2, past, new, 10 * past + 20), _turn) for past, new in ((0, 3), (3, 1), (4, 2))),
        (q, keys[:, :, 1:], values[:, :, 1:], keys[:, :, :1], values[:, :, :1], lambda x, start=0: x),
    ]


@exercise(
    cases=_newest_and_past,
    hints=[
        "Ask for the same text twice, in one call and word by word. From which word on do the outputs differ?",
        "`turn(x, start)` turns its first vector as position `start` and takes 0 when nobody says otherwise. Where "
        "does the newest word stand when five are kept?",
    ],
)
def attend_with_past(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, turn: Turn) -> Step:
    start = past_k.shape[2]
    q, k = turn(q, start), turn(k, start)
    k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
    later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1 + start)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(later, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v, k, v


@attend_with_past.given
def _(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
    q, k = turn(q), turn(k)
    k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
    later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1 + past_k.shape[2])
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(later, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v, k, v


def _placed(
    starts: Callable[..., tuple[int, int]], q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, turn: Turn
) -> Step:
    """The queries begin at the first position that `starts(past, new)` names, the new keys at the second."""
    start_q, start_k = starts(past_k.shape[2], k.shape[2])
    return attend_with_past.reference(turn(q, start_q), turn(k, start_k), v, past_k, past_v, lambda x, start: x)


def _kept_as_they_came(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, turn: Turn) -> Step:
    found, _, v = attend_with_past.reference(q, k, v, turn(past_k), past_v, turn)
    return found, torch.cat([past_k, k], dim=2), v


def _under_square_mask(
    q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, turn: Turn, *, placed: bool
) -> Step:
    start = past_k.shape[2] if placed else 0
    q, k, v = turn(q, start), torch.cat([past_k, turn(k, start)], dim=2), torch.cat([past_v, v], dim=2)
    later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(later, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v, k, v


def _weighed(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, turn: Turn, *, weigh: Softmax) -> Step:
    start = past_k.shape[2]
    k, v = torch.cat([past_k, turn(k, start)], dim=2), torch.cat([past_v, v], dim=2)
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(start)
    return weigh(turn(q, start) @ k.mT / math.sqrt(q.shape[-1]), seen) @ v, k, v


attend_with_past.mistakes(
    {
        "one position too far: positions count from 0, so behind 5 kept words the newest stands at 5": (
            partial(_placed, lambda past, new: (past + 1, past + 1))
        ),
        "you start behind the new words; the first of them stands right behind the kept ones": (
            partial(_placed, lambda past, new: (past + new, past + new))
        ),
        "the queries are right now; the new keys still believe that they begin the text": (
            partial(_placed, lambda past, new: (past, 0))
        ),
        "the keys are right now; the new queries still believe that they begin the text": (
            partial(_placed, lambda past, new: (0, past))
        ),
        "the kept keys are turned again at each step: they are turned already when they are kept": (
            lambda q, k, v, past_k, past_v, turn: attend_with_past.reference(q, k, v, turn(past_k), past_v, turn)
        ),
        "these keys are kept as they came and turned at each step; "
        "the kept ones here are turned already": _kept_as_they_came,
        "the values are turned as well: where a word stands decides who finds it, not what is found there": (
            lambda q, k, v, past_k, past_v, turn: attend_with_past.reference(
                q, k, turn(v, past_k.shape[2]), past_k, past_v, turn
            )
        ),
        "the positions are right now, but the mask was, too: with `triu(1)` the newest word sees the first alone": (
            partial(_under_square_mask, placed=True)
        ),
        "the mask was right: with `triu(1)` the newest word sees the first alone; and positions begin at 0 still": (
            partial(_under_square_mask, placed=False)
        ),
    }
    | {message: partial(_weighed, weigh=weigh) for message, weigh in (FILLED | BY_HAND).items()}
)
