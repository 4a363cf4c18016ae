"""Exercises of lesson 04: waves, rotations and biases from their formulas, a probe, and a cache that cannot count."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tfbook.course.exercises import exercise, randn
from tfbook.course.extremes import BY_HAND, FILLED, ZERO_IS_BLOCKED, Softmax, with_scores, zero_is_blocked
from tfbook.lessons.positions.first_exercises import (
    alibi_bias as alibi_bias,
    pair_up as pair_up,
    rotary,
    waves as waves,
)

# ---- relative positions ------------------------------------------------------------------------------------------


def _queries_and_tables() -> list[tuple[Tensor, Tensor]]:
    sizes = [(2, 2, 5, 4, 2), (1, 3, 4, 2, 1), (1, 1, 2, 3, 3), (2, 3, 6, 5, 2)]  # batch, head, time, d_head, reach
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

    states, positions = sample(20, 3, 19)
    misled = states, positions, sample(20, 3, 21)[0], positions  # the positions are those of other states: R² < 0
    return [(*sample(30, 4, 11), *sample(20, 4, 13)), (*sample(12, 3, 15), *sample(25, 3, 17)), misled]


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
        "R² falls below 0 where the mean would predict better than the probe: leave it negative": (
            lambda *case: max(0.0, linear_probe.reference(*case))
        ),
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
        (*inputs(3, 1, 2, 4, 80), _turn),
        (q, keys[:, :, 1:], values[:, :, 1:], keys[:, :, :1], values[:, :, :1], lambda x, start=0: x),
        (*_zero_and_one(), lambda x, start=0: x),
    ]


def _zero_and_one() -> tuple[Tensor, ...]:
    """A query whose allowed scores are 0 and 1, with one key in the cache."""
    q, keys = with_scores(torch.tensor([[[[0.0, 1.0]]]]))
    values = randn(1, 1, 2, 4, seed=71)
    return q, keys[:, :, 1:], values[:, :, 1:], keys[:, :, :1], values[:, :, :1]


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
        "the positions are right now, but the mask is gone: new words must not see the new words after them": (
            partial(_weighed, weigh=lambda scores, seen: scores.softmax(dim=-1))
        ),
        "what is found is right, but only the new keys and values are kept: the next step needs the old ones as well": (
            lambda q, k, v, past_k, past_v, turn: (
                attend_with_past.reference(q, k, v, past_k, past_v, turn)[0],
                turn(k, past_k.shape[2]),
                v,
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
    | {ZERO_IS_BLOCKED: partial(_weighed, weigh=zero_is_blocked)}
)
