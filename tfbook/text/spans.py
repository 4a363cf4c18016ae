"""T5's pretraining task: spans of a text are cut out, and the target is what was cut (Raffel et al., 2020).

Shapes: time. A text is a list of ids; the sentinels are the ids from `first_sentinel` on, behind the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SpanCorruption:
    """Cuts the share `rate` of a text's tokens, in spans of `mean_length` tokens on average.

    The defaults are T5's (Raffel et al., 2020, sections 3.3.3 and 3.3.4). Raises ValueError unless 0 < `rate` < 1 and
    `mean_length` ≥ 1.
    """

    rate: float = 0.15
    mean_length: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ValueError(f"rate is {self.rate}; expected a share between 0 and 1")
        if not self.mean_length >= 1:  # which NaN is not
            raise ValueError(f"mean_length is {self.mean_length}; expected 1 or more")

    def counts(self, time: int) -> tuple[int, int]:
        """How many tokens of a text are cut, and in how many spans: the same for all texts of that length.

        Rounded; each span has one token or more, and so has what is kept between two. Raises ValueError for a text of
        less than two tokens.
        """
        if time < 2:
            raise ValueError(f"the text has {time} tokens; expected two or more, one to cut and one to keep")
        cut = min(max(round(self.rate * time), 1), time - 1)
        return cut, min(max(round(cut / self.mean_length), 1), cut, time - cut + 1)


class Corrupted(NamedTuple):
    """A text with a sentinel in the place of each span; and each sentinel with its span, then one more sentinel."""

    source: list[int]
    target: list[int]


def span_mask(
    time: int, corruption: SpanCorruption, *, generator: torch.Generator | None = None
) -> Bool[Tensor, " time"]:
    """True at the tokens to cut; every mask with this many cut tokens and spans is equally likely.

    T5's own function, made for joined texts, always keeps the first token and cuts the last.
    """
    cut, spans = corruption.counts(time)
    kept_runs = _composition(time - cut + 2, spans + 1, generator)
    kept_runs[[0, -1]] -= 1  # the first and the last may be empty
    runs = torch.zeros(2 * spans + 1, dtype=torch.int64)
    runs[::2], runs[1::2] = kept_runs, _composition(cut, spans, generator)
    return (torch.arange(2 * spans + 1) % 2 == 1).repeat_interleave(runs)


def _composition(total: int, parts: int, generator: torch.Generator | None) -> Tensor:
    """`parts` lengths of 1 or more that sum to `total`: the distances between places drawn without repetition."""
    places = 1 + torch.randperm(total - 1, generator=generator)[: parts - 1].sort().values
    return torch.cat([torch.tensor([0]), places, torch.tensor([total])]).diff()


def corrupt_spans(
    ids: Sequence[int],
    first_sentinel: int,
    corruption: SpanCorruption,
    *,
    generator: torch.Generator | None = None,
) -> Corrupted:
    """Thank you ‹for inviting› me to your party ‹last› week: two spans cut (Raffel et al., 2020, figure 2).

    The source is Thank you <0> me to your party <1> week, the target <0> for inviting <1> last <2>. A model needs
    1 + spans ids for sentinels; `SpanCorruption.counts` says how many spans there are. Raises ValueError for an id that
    is a sentinel and for a text of less than two tokens.
    """
    if sentinels := [token for token in ids if token >= first_sentinel]:
        raise ValueError(f"ids holds {sentinels[0]}; expected ids below first_sentinel, {first_sentinel}")
    mask = span_mask(len(ids), corruption, generator=generator).tolist()
    starts = [now and not before for before, now in pairwise([False, *mask])]
    source, target, sentinel = [], [], first_sentinel
    for token, cut, start in zip(ids, mask, starts, strict=True):
        if start:
            source.append(sentinel)
            target.append(sentinel)
            sentinel += 1
        (target if cut else source).append(token)
    return Corrupted(source, [*target, sentinel])


def restore_spans(source: Sequence[int], target: Sequence[int], first_sentinel: int) -> list[int]:
    """The text again: each sentinel of the source is replaced by what follows it in the target, up to the next one.

    A sentinel that is missing from the target, which a model may have written, stands for nothing.
    """
    spans: dict[int, list[int]] = {}
    span: list[int] = []  # what comes before the first sentinel belongs nowhere
    for token in target:
        if token >= first_sentinel:
            span = spans.setdefault(token, [])
        else:
            span.append(token)
    pieces = (spans.get(token, []) if token >= first_sentinel else [token] for token in source)
    return [token for piece in pieces for token in piece]
