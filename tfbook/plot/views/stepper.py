"""A view that steps through a decoded sentence and shows where the decoder looks before it writes each word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from tfbook.plot.views import base

MAX_WORDS = 26  # source or target: a longer sentence is no longer seen at a glance
MAX_CANDIDATES = 5  # for a step
ROUNDING = 0.02  # how far from 1 a row of weights may add up in half precision


@dataclass(frozen=True, eq=False)
class DecodingView:
    """The view returned by `decoding_view`, which a notebook displays when it is the last line of a cell."""

    source: Sequence[str]
    target: Sequence[str]
    cells: Tensor  # uint8, (target, source), hundredths
    candidates: Sequence[Sequence[tuple[str, int]]]  # likeliest first, in hundredths; empty: none are shown

    def __repr__(self) -> str:
        return f"DecodingView(source={len(self.source)}, target={len(self.target)})"

    def _repr_html_(self) -> str:
        """A table, and a script that replaces it with the view; without JavaScript the table stays."""
        words = {"source": self.source, "target": self.target, "candidates": self.candidates}
        return base.embed("stepper", words | {"weights": base.encoded(self.cells)}, self._table())

    def _table(self) -> str:
        """A row for each step: the word written, the weights, and the likeliest words."""
        lead = "A row for each word that the decoder writes: where it looks in the source"
        lead += ", and the words that it finds likeliest." if self.candidates else "."
        columns = [*self.source, "likeliest"] if self.candidates else self.source
        rows = ((word, self._row(step)) for step, word in enumerate(self.target))
        return f"{base.paragraph(lead)}\n{base.table(columns, rows)}"

    def _row(self, step: int) -> Iterator[str]:
        for byte in self.cells[step].tolist():
            yield base.cell(f"{byte / 100:.2f}", byte / 100)
        if self.candidates:
            yield base.cell(", ".join(f"{word} {share / 100:.2f}" for word, share in self.candidates[step]))


def decoding_view(
    source: Sequence[str],
    target: Sequence[str],
    weights: Tensor,
    candidates: Sequence[Sequence[tuple[str, float]]] = (),
) -> DecodingView:
    """A view that writes `target` word by word and shows, at each step, the weights on the words of `source`.

    `weights` is (target × source): row t holds what the decoder looked at before it wrote word t, and sums to 1.
    `candidates` has, for each step, a few next words with their probabilities; without any, none are shown. Raises
    ValueError when weights or candidates do not match the words, when a row of weights is not a softmax, when a
    probability is outside 0 to 1, and when there are more words or candidates than fit on a page.
    """
    for side, words in (("source", source), ("target", target)):
        if not 1 <= len(words) <= MAX_WORDS:
            raise ValueError(f"{side} holds {len(words)} words; expected 1 to {MAX_WORDS}, which fit on a page")
    weights = weights.detach().float().cpu()
    if tuple(weights.shape) != (len(target), len(source)):
        expected = f"({len(target)}, {len(source)}): target × source words"
        raise ValueError(f"weights has shape {tuple(weights.shape)}; expected {expected}")
    cells = base.hundredths(weights)
    for row, total in enumerate(weights.sum(dim=1).tolist()):
        if abs(total - 1) > ROUNDING:
            raise ValueError(f"weights of row {row}, “{target[row]}”, sum to {total:.3g}; expected 1 (target × source)")
    return DecodingView(list(source), list(target), cells, _likeliest(candidates, len(target)))


def _likeliest(candidates: Sequence[Sequence[tuple[str, float]]], steps: int) -> list[list[tuple[str, int]]]:
    """The candidates of each step, the likeliest first, in hundredths."""
    if len(candidates) not in (0, steps):
        raise ValueError(f"candidates holds {len(candidates)} steps; expected one for each of {steps} target words")
    for step, words in enumerate(candidates):
        if not 1 <= len(words) <= MAX_CANDIDATES:
            raise ValueError(f"candidates of step {step} are {len(words)}; expected 1 to {MAX_CANDIDATES}")
        if wrong := [share for _, share in words if not 0 <= share <= 1]:
            raise ValueError(f"candidates of step {step} have probability {wrong[0]:.3g}; expected 0 to 1")
    ordered = (sorted(words, key=lambda pair: -pair[1]) for words in candidates)
    return [[(word, round(100 * share)) for word, share in words] for words in ordered]
