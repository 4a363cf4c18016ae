"""A view in which the reader changes temperature, top-k and top-p, sees what is left, and samples from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tfbook.plot.views import base

MAX_TOKENS = 1000  # of the vocabulary: more would make a notebook large
MAX_CONTEXTS = 6
LISTED = 12  # tokens in the table, the likeliest
DECIMALS = 2  # of the logits that the view computes with


@dataclass(frozen=True, eq=False)
class SamplingView:
    """The view returned by `sampling_view`, which a notebook displays when it is the last line of a cell."""

    contexts: Sequence[str]
    tokens: Sequence[str]
    logits: Tensor  # (context, token), rounded

    def __repr__(self) -> str:
        return f"SamplingView(contexts={len(self.contexts)}, tokens={len(self.tokens)})"

    def _repr_html_(self) -> str:
        """A table, and a script that replaces it with the view; without JavaScript the table stays."""
        rows = [[round(logit, DECIMALS) for logit in row] for row in self.logits.tolist()]
        data = {"contexts": self.contexts, "tokens": self.tokens, "logits": rows}
        return base.embed("sampling", data, self._table(), uses=["chance"])

    def _table(self) -> str:
        """The likeliest tokens of the first context, as they are and under three settings."""
        logits = self.logits[0]
        shares = torch.stack(
            [filtered(logits), filtered(logits, t=0.5), filtered(logits, k=5), filtered(logits, p=0.8)]
        )
        listed = logits.argsort(descending=True, stable=True)[:LISTED].tolist()
        lead = f"“{self.contexts[0]}”: the likeliest next tokens and their probabilities, as they are and reshaped."
        columns = ["as it is", "temperature 0.5", "top-k 5", "top-p 0.8"]
        rows = ((self.tokens[token], _cells(shares[:, token].tolist())) for token in listed)
        return f"{base.paragraph(lead)}\n{base.table(columns, rows)}"


def _cells(shares: Sequence[float]) -> Iterator[str]:
    return (base.cell(f"{share:.2f}" if share else "0", share) for share in shares)


def filtered(logits: Tensor, *, t: float = 1.0, k: int | None = None, p: float = 1.0) -> Tensor:
    """Probabilities after temperature, then top-k, then top-p, as the view computes them; ties by order of tokens."""
    ordered, places = (logits / t).sort(descending=True, stable=True)
    ordered = ordered.masked_fill(torch.arange(len(ordered)) >= (k or len(ordered)), -torch.inf)
    shares = ordered.softmax(dim=-1)
    shares = shares.masked_fill(shares.cumsum(dim=-1) - shares >= p - 1e-6, 0.0) if p < 1 else shares
    return torch.zeros_like(shares).scatter(0, places, shares / shares.sum())


def sampling_view(logits: Mapping[str, Tensor], tokens: Sequence[str]) -> SamplingView:
    """A view of the next token's distribution after each context, with temperature, k and p chosen by the reader.

    `logits` maps a context to a row of logits, one for each of `tokens`. Temperature comes first, then top-k, then
    top-p; the reader can sample from what is left and count. Raises ValueError when there are no contexts or more than
    fit, when a row does not match the tokens or is not finite, and when the vocabulary is too large for a page.
    """
    if not 1 <= len(logits) <= MAX_CONTEXTS:
        raise ValueError(f"logits holds {len(logits)} contexts; expected 1 to {MAX_CONTEXTS}")
    if not 2 <= len(tokens) <= MAX_TOKENS:
        raise ValueError(f"tokens holds {len(tokens)}; expected 2 to {MAX_TOKENS}, which fit on a page")
    rows = {context: row.detach().float().cpu() for context, row in logits.items()}
    for context, row in rows.items():
        if tuple(row.shape) != (len(tokens),):
            raise ValueError(f"logits of “{context}” have shape {tuple(row.shape)}; expected ({len(tokens)},)")
        if not row.isfinite().all():
            raise ValueError(
                f"logits of “{context}” hold infinities or NaN; expected finite numbers, before any filter"
            )
    return SamplingView(list(rows), list(tokens), torch.stack([*rows.values()]).round(decimals=DECIMALS))
