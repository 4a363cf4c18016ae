"""A view in which the reader moves two tokens and sees their rotated query and key, and the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tfbook.plot.views import base

MAX_TOKENS, MAX_PAIRS = 12, 3  # more do not fit on a page
DECIMALS = 4  # of the numbers that the view computes with


@dataclass(frozen=True, eq=False)
class RotaryView:
    """The view returned by `rotary_view`, which a notebook displays when it is the last line of a cell."""

    tokens: Sequence[str]
    query: Tensor  # (pair, 2), before it is turned
    key: Tensor  # (pair, 2), before it is turned
    speeds: Tensor  # radians per position, of each pair

    def __repr__(self) -> str:
        return f"RotaryView(tokens={len(self.tokens)}, pairs={len(self.speeds)})"

    def _repr_html_(self) -> str:
        """A table of all scores, and a script that replaces it with the view; without JavaScript the table stays."""
        vectors = {"query": self.query, "key": self.key, "speeds": self.speeds}
        rounded = {name: _rounded(numbers.tolist()) for name, numbers in vectors.items()}
        return base.embed("rotary", {"tokens": self.tokens, **rounded}, self._table())

    def _table(self) -> str:
        """The score of every pair of positions, if every token had this query and this key."""
        scores = rotary_scores(self.query, self.key, self.speeds, len(self.tokens))
        low, high = scores.min(), scores.max()
        shares = (scores - low) / (high - low).clamp(min=1e-9)
        cells = [
            [base.cell(f"{score:z.2f}".replace("-", "−"), share) for score, share in zip(*row, strict=True)]
            for row in zip(scores.tolist(), shares.tolist(), strict=True)
        ]
        lead = "Scores of one query (rows: where it stands) with one key (columns), both turned by their positions. "
        lead += "Along each diagonal the distance is the same, and so is the score."
        rows = zip(self.tokens, cells, strict=True)
        return f"{base.paragraph(lead)}\n{base.table(self.tokens, rows)}"


def rotary_scores(query: Tensor, key: Tensor, speeds: Tensor, size: int) -> Tensor:
    """The dot product of the query rotated to position m and the key rotated to n: (m, n), both below `size`."""
    angles = torch.outer(torch.arange(size, dtype=torch.float64), speeds.double())
    turned_query, turned_key = (_turned(vector.double(), angles) for vector in (query, key))
    return turned_query @ turned_key.T


def _turned(vector: Tensor, angles: Tensor) -> Tensor:
    """(position, 2 · pair): each pair of the vector rotated by its angle at each position."""
    x, y = vector.T
    return torch.cat([x * angles.cos() - y * angles.sin(), x * angles.sin() + y * angles.cos()], dim=1)


def _rounded(numbers: list[float] | list[list[float]]) -> list[object]:
    return [_rounded(each) if isinstance(each, list) else round(each, DECIMALS) for each in numbers]


def rotary_view(tokens: Sequence[str], query: Tensor, key: Tensor, speeds: Sequence[float] | Tensor) -> RotaryView:
    """A view of rotary positions: the reader moves a query and a key along `tokens` and watches angle and score.

    `query` and `key` are (pair, 2) and the same at every position, so that all changes come from the positions alone;
    pair i turns by `speeds[i]` radians per position. Raises ValueError when there are more tokens or pairs than fit on
    a page, when the shapes do not agree, and for numbers that are not finite.
    """
    if not 2 <= len(tokens) <= MAX_TOKENS:
        raise ValueError(f"tokens holds {len(tokens)}; expected 2 to {MAX_TOKENS}, which fit on a page")
    speeds = torch.as_tensor(speeds, dtype=torch.float32).detach().cpu()
    if speeds.ndim != 1 or not 1 <= len(speeds) <= MAX_PAIRS:
        raise ValueError(
            f"speeds has shape {tuple(speeds.shape)}; expected 1 to {MAX_PAIRS} numbers, one for each pair"
        )
    query, key = (vector.detach().float().cpu() for vector in (query, key))
    for name, vector in (("query", query), ("key", key)):
        if tuple(vector.shape) != (len(speeds), 2):
            raise ValueError(f"{name} has shape {tuple(vector.shape)}; expected ({len(speeds)}, 2): pair × coordinates")
    if not all(numbers.isfinite().all() for numbers in (query, key, speeds)):
        raise ValueError("query, key or speeds holds infinities or NaN; expected finite numbers")
    return RotaryView(list(tokens), query, key, speeds)
