"""Exercises of lesson 11: LoRA's forward pass and size, switching adapters, inputs of pairs, spans, balance."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.adapting.first_exercises import count_adapters as count_adapters, lora_forward as lora_forward

# ---- find the bug ------------------------------------------------------------------------------------------------

Adapter = tuple[Tensor, Tensor]


def _merged() -> list[tuple[Tensor, Adapter, Adapter, float]]:
    """A merged W, its adapter and the next one; in the second case the ranks are equal, and the bug hides."""
    cases = []
    for i, (d_in, d_out, old, new, alpha) in enumerate(((4, 3, 1, 2, 6.0), (3, 5, 2, 2, 3.0), (2, 2, 4, 1, 2.0))):
        adapters = [
            (randn(rank, d_in, seed=i + 7 * j), randn(d_out, rank, seed=i + 7 * j + 3))
            for j, rank in enumerate((old, new))
        ]
        cases.append((randn(d_out, d_in, seed=50 + i), *adapters, alpha))
    return cases


@exercise(
    cases=_merged,
    hints=[
        "If both adapters have the same rank, the given code is right. What is different when they don't?",
        "Each adapter has a factor of its own, α divided by its own rank, `len(A)`.",
    ],
    differentiable=False,
)
def switch(W: Tensor, old: Adapter, new: Adapter, alpha: float) -> Tensor:
    (A_old, B_old), (A_new, B_new) = old, new
    without = W - alpha / len(A_old) * (B_old @ A_old)
    return without + alpha / len(A_new) * (B_new @ A_new)


@switch.given
def _(W: Tensor, old: Adapter, new: Adapter, alpha: float) -> Tensor:
    (A_old, B_old), (A_new, B_new) = old, new
    scale = alpha / len(A_old)
    return W + scale * (B_new @ A_new - B_old @ A_old)


def _switched(out: Callable[[float, int, int], float], into: Callable[[float, int, int], float]) -> Callable:
    def switched(W: Tensor, old: Adapter, new: Adapter, alpha: float) -> Tensor:
        ranks = len(old[0]), len(new[0])
        return W - out(alpha, *ranks) * (old[1] @ old[0]) + into(alpha, *ranks) * (new[1] @ new[0])

    return switched


switch.mistakes(
    {
        "one factor for both, from the mean of the ranks: each adapter has its own, α / r": (
            _switched(lambda alpha, old, new: 2 * alpha / (old + new), lambda alpha, old, new: 2 * alpha / (old + new))
        ),
        "the rank of the new adapter is used for both: the old one was merged with a factor of its own": _switched(
            lambda alpha, old, new: alpha / new, lambda alpha, old, new: alpha / new
        ),
        "the old adapter is still in: subtract what was merged": _switched(
            lambda alpha, old, new: 0, lambda alpha, old, new: alpha / new
        ),
        "the old adapter is out, but the new one isn't in": _switched(
            lambda alpha, old, new: alpha / old, lambda alpha, old, new: 0
        ),
        "α is missing: each product is multiplied by α / r": _switched(
            lambda alpha, old, new: 1 / old, lambda alpha, old, new: 1 / new
        ),
        "the two ranks have changed places": _switched(
            lambda alpha, old, new: alpha / new, lambda alpha, old, new: alpha / old
        ),
        "the signs have changed places: take the old one out and add the new one": _switched(
            lambda alpha, old, new: -alpha / old, lambda alpha, old, new: -alpha / new
        ),
        "no factor at all: each product is multiplied by α / r": _switched(
            lambda alpha, old, new: 1, lambda alpha, old, new: 1
        ),
        "α is divided by the width of W, not by a rank: the rank is the number of A's rows, `len(A)`": (
            lambda W, old, new, alpha: W + alpha / W.shape[1] * (new[1] @ new[0] - old[1] @ old[0])
        ),
        "α is divided by the height of W, not by a rank: B is (d_out, r), so `len(B)` is d_out": (
            lambda W, old, new, alpha: W + alpha / len(W) * (new[1] @ new[0] - old[1] @ old[0])
        ),
    }
)

# ---- a pair as texts ---------------------------------------------------------------------------------------------


def _pairs() -> list[tuple[list[int], list[int], int, int, int]]:
    return [
        ([5, 6, 7], [8, 9], 1, 2, 3),
        ([4], [4, 5], 0, 9, 8),
        ([6, 5], [7, 8, 9, 10], 3, 1, 2),
        ([7, 5, 7], [9, 4, 9], 1, 2, 3),
        ([5, 6], [5, 6], 1, 2, 3),  # the same sentence twice
    ]


@exercise(
    cases=_pairs,
    hints=[
        "The first row is start, a, delimiter, b, extract. What changes in the second?",
        "The second is start, b, delimiter, a, extract. `[start, *a, delim]` puts the ids of `a` into a list.",
    ],
)
def pair_inputs(a: list[int], b: list[int], start: int, delim: int, extract: int) -> list[list[int]]:
    return [[start, *first, delim, *second, extract] for first, second in ((a, b), (b, a))]


def _rows(row: Callable[..., list[int]]) -> Callable[..., list[list[int]]]:
    return lambda a, b, *special: [row(a, b, *special), row(b, a, *special)]


pair_inputs.mistakes(
    {
        "this is one order: neither sentence comes first, so return both orders, two rows": (
            lambda a, b, start, delim, extract: [[start, *a, delim, *b, extract]]
        ),
        "both rows have the same order: the second begins with b": lambda a, b, start, delim, extract: (
            [[start, *a, delim, *b, extract]] * 2
        ),
        "two equal sentences make two rows as well: every pair has as many": lambda a, b, *special: (
            pair_inputs.reference(a, b, *special)[: 1 if a == b else 2]
        ),
        "the delimiter is missing: the model could not tell where b begins": _rows(
            lambda a, b, start, delim, extract: [start, *a, *b, extract]
        ),
        "the last token is missing: the head reads the vector at extract": _rows(
            lambda a, b, start, delim, extract: [start, *a, delim, *b]
        ),
        "the start token is missing": _rows(lambda a, b, start, delim, extract: [*a, delim, *b, extract]),
        "a causal model reads extract last, so it has to stand at the end": _rows(
            lambda a, b, start, delim, extract: [extract, *a, delim, *b, start]
        ),
        "extract stands after both sentences here: once, at the end, is enough": _rows(
            lambda a, b, start, delim, extract: [start, *a, extract, delim, *b, extract]
        ),
        "the sentences are read backwards: exchange the sentences, not their words": (
            lambda a, b, start, delim, extract: [
                [start, *a, delim, *b, extract],
                [start, *b[::-1], delim, *a[::-1], extract],
            ]
        ),
        "both orders are joined into one list: return two, a text each": (
            lambda *pair: [token for row in pair_inputs.reference(*pair) for token in row]
        ),
    }
)

# ---- T5's targets ------------------------------------------------------------------------------------------------


def _texts() -> list[tuple[list[int], list[bool], int]]:
    """Spans in the middle, at both ends, of one token and of more; sentinels from an id on."""
    masks = ("0011000100", "1100001", "0101", "111", "0110111", "000", "01111101111111")
    texts = [
        ([10 + (3 * i + 7 * n) % 40 for i in range(len(mask))], [c == "1" for c in mask], 100 + n)
        for n, mask in enumerate(masks)
    ]
    return [*texts, ([5, 5, 6, 5, 5, 6], [True, False, True, False, True, True], 50)]  # ids that repeat


@exercise(
    cases=_texts,
    hints=[
        "Walk along the text. A new span begins where `cut` is True and was not True just before. What is written to "
        "`source` there, and what to `target`?",
        "At the start of a span, append the sentinel to both and count it up. Then append the token to `target` "
        "if it is cut, else to `source`. At the end, `target` gets one more sentinel.",
    ],
)
def span_targets(ids: list[int], cut: list[bool], sentinel: int) -> tuple[list[int], list[int]]:
    source: list[int] = []
    target: list[int] = []
    before = False
    for token, gone in zip(ids, cut, strict=True):
        if gone and not before:
            source.append(sentinel)
            target.append(sentinel)
            sentinel += 1
        (target if gone else source).append(token)
        before = gone
    return source, [*target, sentinel]


def _spans(ids: list[int], cut: list[bool], sentinel: int) -> list[tuple[bool, list[int]]]:
    runs: list[tuple[bool, list[int]]] = []
    for token, gone in zip(ids, cut, strict=True):
        if not runs or runs[-1][0] != gone:
            runs.append((gone, []))
        runs[-1][1].append(token)
    return runs


def _one_sentinel(ids: list[int], cut: list[bool], sentinel: int) -> tuple[list[int], list[int]]:
    source: list[int] = []
    target: list[int] = []
    for gone, run in _spans(ids, cut, sentinel):
        source += [sentinel] if gone else run
        target += [sentinel, *run] if gone else []
    return source, [*target, sentinel]


def _token_by_token(ids: list[int], cut: list[bool], sentinel: int) -> tuple[list[int], list[int]]:
    source: list[int] = []
    target: list[int] = []
    for token, gone in zip(ids, cut, strict=True):
        if gone:
            source.append(sentinel)
            target += [sentinel, token]
            sentinel += 1
        else:
            source.append(token)
    return source, [*target, sentinel]


def _cut_short(ids: list[int], cut: list[bool], sentinel: int) -> tuple[list[int], list[int]]:
    """With a new sentinel after three tokens of a span."""
    source: list[int] = []
    target: list[int] = []
    for gone, run in _spans(ids, cut, sentinel):
        for part in [run[i : i + 3] for i in range(0, len(run), 3)] if gone else [run]:
            source += [sentinel] if gone else part
            target += [sentinel, *part] if gone else []
            sentinel += gone
    return source, [*target, sentinel]


def _without_last_span(ids: list[int], cut: list[bool]) -> tuple[list[int], list[bool]]:
    """Without the cut tokens at the end."""
    kept = max((i + 1 for i, gone in enumerate(cut) if not gone), default=0)
    return ids[:kept], cut[:kept]


def _edited(change: Callable[[list[int], list[int], int], tuple[list[int], list[int]]]) -> Callable:
    return lambda ids, cut, sentinel: change(*span_targets.reference(ids, cut, sentinel), sentinel)


span_targets.mistakes(
    {
        "the source still holds what was cut: each span gives way to its sentinel": (
            lambda ids, cut, sentinel: (ids, span_targets.reference(ids, cut, sentinel)[1])
        ),
        "`cut` is the wrong way around: True marks what leaves the source": (
            lambda ids, cut, sentinel: span_targets.reference(ids, [not gone for gone in cut], sentinel)
        ),
        "the last sentinel is missing: it tells the model where to stop": _edited(lambda s, t, first: (s, t[:-1])),
        "each cut token has a sentinel of its own: one for a whole span": _token_by_token,
        "all spans have the same sentinel: count up, so that they can be told apart": _one_sentinel,
        "a long span has several sentinels: neighbors belong to one span, however many they are": _cut_short,
        "source and target have changed places": _edited(lambda s, t, first: (t, s)),
        "the target has no sentinels: nobody could tell which span is which": _edited(
            lambda s, t, first: (s, [token for token in t if token < first])
        ),
        "the source has no sentinels: the model could not see where something is missing": _edited(
            lambda s, t, first: ([token for token in s if token < first], t)
        ),
        "the last sentinel is the one before it again: it needs an id of its own, one higher": _edited(
            lambda s, t, first: (s, [*t[:-1], t[-1] - 1])
        ),
        "the sentinels count down, as in T5's own vocabulary: here they are `sentinel`, `sentinel + 1`, and so on": (
            _edited(lambda s, t, first: tuple([min(token, 2 * first - token) for token in ids] for ids in (s, t)))
        ),
        "a span at the end of the text is lost: what is still open when the loop ends has to be written, too": (
            lambda ids, cut, sentinel: span_targets.reference(*_without_last_span(ids, cut), sentinel)
        ),
    }
)

# ---- balance -----------------------------------------------------------------------------------------------------


def _routers() -> list[tuple[Tensor, int]]:
    cases = [(randn(12, 4, seed=1).softmax(dim=-1), 1), (randn(9, 3, seed=2).softmax(dim=-1), 2)]
    one, tied = (torch.tensor([row]).repeat(6, 1) for row in ([0.9, 0.05, 0.05], [0.4, 0.4, 0.2]))
    return [*cases, (one, 1), ((2 * randn(7, 5, seed=3)).softmax(dim=-1), 3), (tied, 1)]


@exercise(
    cases=_routers,
    hints=[
        "`p.topk(k, dim=-1).indices` are the chosen experts, (token, k). What share of them is expert i?",
        "`F.one_hot(chosen, N).float().mean(dim=(0, 1))` is f, (N,), and `p.mean(dim=0)` is P. Multiply them, "
        "add up, times N.",
    ],
)
def balance(p: Tensor, k: int) -> Tensor:
    count = p.shape[1]
    chosen = p.topk(k, dim=-1).indices
    f = F.one_hot(chosen, count).float().mean(dim=(0, 1))
    return count * (f * p.mean(dim=0)).sum()


def _balanced(p: Tensor, k: int, choices: int | None = None) -> tuple[Tensor, Tensor, int]:
    count = p.shape[1]
    chosen = p.topk(choices or k, dim=-1).indices
    return F.one_hot(chosen, count).float().mean(dim=(0, 1)), p.mean(dim=0), count


balance.mistakes(
    {
        "p holds probabilities already: this is one softmax too many": (
            lambda p, k: (parts := _balanced(p, k))[2] * (parts[0] * p.softmax(dim=-1).mean(dim=0)).sum()
        ),
        "the factor N is missing: with it, a perfect balance gives 1": lambda p, k: (
            balance.reference(p, k) / p.shape[1]
        ),
        "f counts the first choice alone: with k = 2, both choices keep an expert busy": lambda p, k: balance.reference(
            p, 1
        ),
        "f is not a share: divide by all choices, tokens times k": lambda p, k: balance.reference(p, k) * k,
        "f is a count: divide by all choices, tokens times k": lambda p, k: balance.reference(p, k) * k * len(p),
        "more than k experts are counted where probabilities are equal: each token makes k choices": lambda p, k: (
            p.shape[1] / k * ((p >= p.topk(k).values[:, -1:]).float().mean(dim=0) * p.mean(dim=0)).sum()
        ),
        "this is N Σ P²: f counts what was chosen": lambda p, k: p.shape[1] * (p.mean(dim=0) ** 2).sum(),
        "this is N Σ f², which has no gradient: multiply f by the mean probability P": lambda p, k: (
            p.shape[1] * (_balanced(p, k)[0] ** 2).sum()
        ),
        "P is the mean probability of all tokens, not its sum": lambda p, k: balance.reference(p, k) * len(p),
        "this is the mean over the experts: add them up, times N": lambda p, k: (
            balance.reference(p, k) / p.shape[1] ** 2
        ),
    }
)
