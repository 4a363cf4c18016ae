"""A view in which the reader builds a mask and sees scores, masked scores and weights side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tfbook.plot.views import base

MAX_TOKENS = 6  # three matrices of more do not fit side by side
DECIMALS = 3  # of the scores that the view computes with


@dataclass(frozen=True, eq=False)
class MaskView:
    """The view returned by `mask_view`, which a notebook displays when it is the last line of a cell."""

    tokens: Sequence[str]
    scores: Tensor  # (query, key), rounded

    def __repr__(self) -> str:
        return f"MaskView(tokens={len(self.tokens)})"

    def _repr_html_(self) -> str:
        """Three tables, and a script that replaces them with the view; without JavaScript the tables stay."""
        rows = [[round(score, DECIMALS) for score in row] for row in self.scores.tolist()]
        return base.embed("masks", {"tokens": self.tokens, "scores": rows}, self._tables())

    def _tables(self) -> str:
        """Scores, masked scores and weights under the initial, causal mask."""
        allowed = torch.ones_like(self.scores, dtype=torch.bool).tril()
        low, high = self.scores.min(), self.scores.max()
        scores = _cells(self.scores, (self.scores - low) / (high - low).clamp(min=1e-9), "z.1f")
        weights = self.scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
        pictures = {
            "Scores: a row for each query, a column for each key.": scores,
            "Masked scores: the causal mask sets the score of every later key to −∞.": _masked(scores, allowed, "−∞"),
            "Weights: the softmax of each row. What was masked gets 0, and every row still sums to 1.": _masked(
                _cells(weights, weights, ".2f"), allowed, "0"
            ),
        }
        named = {lead: zip(self.tokens, rows, strict=True) for lead, rows in pictures.items()}
        return "\n".join(f"{base.paragraph(lead)}\n{base.table(self.tokens, rows)}" for lead, rows in named.items())


def _cells(numbers: Tensor, shares: Tensor, form: str) -> list[list[str]]:
    """A matrix as cells of a static table, colored by `shares`, 0 to 1."""
    pairs = torch.stack([numbers, shares], dim=-1).tolist()
    return [[base.cell(f"{number:{form}}".replace("-", "−"), share) for number, share in row] for row in pairs]


def _masked(cells: list[list[str]], allowed: Tensor, text: str) -> list[list[str]]:
    """`cells`, with `text` where the mask does not allow them."""
    rows = zip(cells, allowed.tolist(), strict=True)
    return [[cell if may else base.cell(text) for cell, may in zip(*row, strict=True)] for row in rows]


def mask_view(scores: Tensor, tokens: Sequence[str]) -> MaskView:
    """A view of self-attention `scores` (query × key) in which the reader chooses what each token may attend to.

    The reader switches the causal mask, shortens the sentence to make padding, and blocks single cells; the view shows
    the masked scores, their softmax and the mask, True where a query may attend. It begins with the causal mask. A row
    that sees nothing has weights 0, as in `masked_softmax`. Raises ValueError when the scores are not a square matrix
    of finite numbers with a row for each token, and when there are more tokens than fit on a page.
    """
    if not 1 <= len(tokens) <= MAX_TOKENS:
        raise ValueError(f"tokens holds {len(tokens)}; expected 1 to {MAX_TOKENS}, which fit on a page")
    scores = scores.detach().float().cpu()
    if tuple(scores.shape) != (len(tokens), len(tokens)):
        expected = f"({len(tokens)}, {len(tokens)}): query × key"
        raise ValueError(f"scores has shape {tuple(scores.shape)}; expected {expected}")
    if not scores.isfinite().all():
        raise ValueError("scores holds infinities or NaN; expected finite numbers, the scores before any mask")
    return MaskView(list(tokens), scores.round(decimals=DECIMALS))
