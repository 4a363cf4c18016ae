"""A view of attention weights in which the reader chooses the layer, the head and the token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tfbook.plot.attention import blocked_cells
from tfbook.plot.views import base

MAX_TOKENS = 64  # queries or keys: a larger matrix is not legible
MAX_CELLS = 200_000  # one byte each: more would make a notebook large
BLOCKED_BYTE = 255  # the byte of a cell that the mask blocks; the others hold hundredths, 0 to 100


@dataclass(frozen=True, eq=False)
class AttentionView:
    """The view returned by `attention_view`, which a notebook displays when it is the last line of a cell."""

    layers: Sequence[str]
    heads: Sequence[str]  # the last one is their mean where there are several
    queries: Sequence[str]
    keys: Sequence[str]
    cells: Tensor  # uint8, (layer, head, query, key)

    def __repr__(self) -> str:
        heads = max(1, len(self.heads) - 1)
        sizes = f"layers={len(self.layers)}, heads={heads}, queries={len(self.queries)}, keys={len(self.keys)}"
        return f"AttentionView({sizes})"

    def _repr_html_(self) -> str:
        """A table, and a script that replaces it with the view; without JavaScript the table stays."""
        names = {"layers": self.layers, "heads": self.heads, "queries": self.queries, "keys": self.keys}
        return base.embed("attention", names | {"cells": base.encoded(self.cells)}, self._table())

    def _table(self) -> str:
        """The first layer and the last head as static HTML."""
        head = "mean of the heads" if len(self.heads) > 1 else f"head {self.heads[0]}"
        lead = f"Layer {self.layers[0]}, {head}: a row for each query, a column for each key."
        rows = zip(self.queries, self.cells[0, -1].tolist(), strict=True)
        return f"{base.paragraph(lead)}\n{base.table(self.keys, ((name, map(_cell, row)) for name, row in rows))}"


def _cell(byte: int) -> str:
    return base.cell("–") if byte == BLOCKED_BYTE else base.cell(f"{byte / 100:.2f}", byte / 100)


def attention_view(
    weights: Tensor | Sequence[Tensor] | Mapping[str, Tensor],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    heads: Sequence[str] | None = None,
    mask: Tensor | None = None,
) -> AttentionView:
    """A view of a sentence's attention in which the reader chooses the layer, the head and the token.

    `weights` is (layer × head × query × key) or (head × query × key), or has such heads for each layer: a list, or a
    mapping from the names of layers. Keys default to the queries and the names of heads to their numbers; with several
    heads their mean is added. `mask`, True where a query may attend, broadcasts to the weights. Raises ValueError when
    tokens, names or mask do not match the weights, when a weight is outside 0 to 1 or not 0 where the mask blocks, and
    when there are more weights than fit on a page; TypeError when the mask is not Boolean.
    """
    keys = queries if keys is None else keys
    layers, stacked = _layers(weights)
    if stacked.shape[2:] != (len(queries), len(keys)):
        expected = f"{len(queries)} queries × {len(keys)} keys"
        raise ValueError(f"weights has heads of {stacked.shape[2]} × {stacked.shape[3]}; expected {expected}")
    names = [str(head) for head in range(1, stacked.shape[1] + 1)] if heads is None else list(heads)
    if len(names) != stacked.shape[1]:
        raise ValueError(f"heads holds {len(names)} names; expected one for each of {stacked.shape[1]} heads")
    blocked = None if mask is None else blocked_cells(stacked, mask)
    if len(names) > 1:
        names.append("mean")
        stacked = torch.cat([stacked, stacked.mean(dim=1, keepdim=True)], dim=1)
        blocked = None if blocked is None else torch.cat([blocked, blocked.all(dim=1, keepdim=True)], dim=1)
    return AttentionView(layers, names, list(queries), list(keys), _hundredths(stacked, blocked))


def _layers(weights: Tensor | Sequence[Tensor] | Mapping[str, Tensor]) -> tuple[list[str], Tensor]:
    """The names of the layers, and their weights as one tensor (layer, head, query, key)."""
    if isinstance(weights, Tensor):
        if weights.ndim not in (3, 4):
            found = tuple(weights.shape)
            raise ValueError(f"weights has shape {found}; expected (head, query, key) or (layer, head, query, key)")
        weights = weights[None] if weights.ndim == 3 else weights
    names = list(weights) if isinstance(weights, Mapping) else [str(i) for i in range(1, len(weights) + 1)]
    tensors = list(weights.values() if isinstance(weights, Mapping) else weights)
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) != 1 or any(len(shape) != 3 or 0 in shape for shape in shapes):
        kinds = " and ".join(map(str, sorted(shapes))) or "none"
        raise ValueError(f"weights holds layers of shape {kinds}; expected (head, query, key), the same in each layer")
    return names, torch.stack([tensor.detach().float().cpu() for tensor in tensors])


def _hundredths(weights: Tensor, blocked: Tensor | None) -> Tensor:
    """The weights as bytes, `BLOCKED_BYTE` where blocked. Raises ValueError for too many, or one outside 0 to 1."""
    layers, heads, queries, keys = weights.shape
    if max(queries, keys) > MAX_TOKENS or weights.numel() > MAX_CELLS:
        found = f"{layers} layers × {heads} maps (heads and their mean) × {queries} queries × {keys} keys"
        limits = f"at most {MAX_TOKENS} tokens per side and {MAX_CELLS:,} cells"
        raise ValueError(f"weights holds {found} = {weights.numel():,} cells; {limits} fit on a page: show fewer")
    cells = base.hundredths(weights)
    return cells if blocked is None else cells.masked_fill(blocked, BLOCKED_BYTE)
