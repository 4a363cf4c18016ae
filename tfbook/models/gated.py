"""Mixers that read with gates: minGRU, gated linear attention, and the LSTM as their rival.

Shapes: batch, time, d_model, width (of the state), head, d_head.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.checks import check_dropout, check_heads, check_positive
from tfbook.models.recurrent import LstmState, lstm_step
from tfbook.models.scans import Scan, chunked_scan
from tfbook.models.states import Recurrence, RecurrentState, only_shown, wide

# ---- minGRU ------------------------------------------------------------------------------------------------------


def min_gru(
    gate: Float[Tensor, "batch time width"], candidate: Float[Tensor, "batch time width"]
) -> tuple[Float[Tensor, "batch time width"], Float[Tensor, "batch time width"]]:
    """a = 1 − z and b = z ⊙ h̃ with z = σ(gate): the recurrence h_t = a_t ⊙ h_{t−1} + b_t of minGRU.

    Neither gate nor candidate looks at h, which is what a GRU gives up for a scan (Feng et al., 2024, section 3.1).
    1 − z is σ(−gate), which keeps its digits where z is near 1.
    """
    return torch.sigmoid(-gate), torch.sigmoid(gate) * candidate


class MinGru(Recurrence):
    """minGRU (Feng et al., 2024): a state of `width` numbers, each kept or replaced as the input at that position says.

    `scan` computes the states from decays and inputs. Raises ValueError when `width` < 1.
    """

    def __init__(
        self, d_model: int, heads: int, *, width: int | None = None, dropout: float = 0.0, scan: Scan = chunked_scan
    ):
        super().__init__()
        check_dropout(dropout)
        check_positive(width=width)
        width = width or d_model
        self.W_Z, self.W_H = nn.Linear(d_model, width), nn.Linear(d_model, width)
        self.W_O = nn.Linear(width, d_model)
        self.scan = scan

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, cache: RecurrentState | None = None, **context: Any
    ) -> Float[Tensor, "batch time d_model"]:
        """W_O h_t. Raises ValueError when another sequence is given as `key`."""
        shown = self.shown(x, context)
        a, b = min_gru(self.W_Z(x), self.W_H(x))
        h = self.scan(wide(a), only_shown(wide(b), shown), None if cache is None else cache.get("h"))
        if cache is not None and x.shape[1]:
            cache.kept["h"] = h[:, -1]
        return self.W_O(h.to(x.dtype))

    def parameter_count(self) -> int:
        """3 d_model · width + 2 width + d_model."""
        return 3 * self.W_O.weight.numel() + 2 * self.W_O.in_features + self.W_O.out_features

    def flops(self, time: int, **context: Any) -> int:
        """6 d_model · width for each position."""
        return 6 * time * self.W_O.weight.numel()


# ---- gated linear attention ---------------------------------------------------------------------------------------


def gated_sums(
    q: Float[Tensor, "batch head time d_head"],
    k: Float[Tensor, "batch head time d_head"],
    v: Float[Tensor, "batch head time d_head"],
    log_decay: Float[Tensor, "batch head time"],
    start: Float[Tensor, "batch head d_head d_head"],
) -> tuple[Float[Tensor, "batch head time d_head"], Float[Tensor, "batch head d_head d_head"]]:
    """Σ_{j ≤ t} (q_t · k_j) e^{D_t − D_j} v_j, where D sums the log decays, and the state Σ_j e^{D − D_j} k_j v_jᵀ.

    All exponents are at most 0, so nothing overflows (Dao and Gu, 2024, section 6; Sun et al., 2023, for fixed decays).
    """
    sums = log_decay.cumsum(dim=-1)
    apart = (sums[..., :, None] - sums[..., None, :]).tril()
    weights = (q @ k.mT) * apart.exp().tril()
    before = q * sums.exp()[..., None]
    last = sums[..., -1:] if sums.shape[-1] else sums.new_zeros(*sums.shape[:-1], 1)
    kept = k * (last - sums).exp()[..., None]
    return weights @ v + before @ start, last.exp()[..., None] * start + kept.mT @ v


class GatedLinearAttention(Recurrence):
    """S_t = a_t S_{t−1} + k_t v_tᵀ, read as q_tᵀ S_t: each head keeps a d_head × d_head matrix, however long the text.

    With `gated`, a_t = σ(w · x_t + b) for each head; without, each head has a fixed decay 1 − 2^(−5 − head), RetNet's
    (Sun et al., 2023). The output of each head is normalized. Raises ValueError when `chunk` < 1.
    """

    def __init__(self, d_model: int, heads: int, *, gated: bool = True, dropout: float = 0.0, chunk: int = 64):
        super().__init__()
        check_dropout(dropout)
        check_heads(d_model, heads)
        check_positive(chunk=chunk)
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.W_A = nn.Linear(d_model, heads, bias=False) if gated else None
        fixed = (1 - 2.0 ** (-5 - torch.arange(heads))).logit()
        self.decay: Tensor
        if gated:
            self.decay = nn.Parameter(fixed)
        else:
            self.register_buffer("decay", fixed)
        self.heads, self.chunk = heads, chunk

    def log_decay(self, x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch head time"]:
        """log a_t of each head."""
        logits = self.decay.expand(*x.shape[:2], -1) if self.W_A is None else self.decay + self.W_A(x)
        return F.logsigmoid(wide(logits)).mT

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, cache: RecurrentState | None = None, **context: Any
    ) -> Float[Tensor, "batch time d_model"]:
        """Inside a chunk as masked attention, from chunk to chunk as a recurrence.

        Raises ValueError when another sequence is given as `key`.
        """
        shown, decays = self.shown(x, context), self.log_decay(x)
        q, k, v = (W(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for W in (self.W_Q, self.W_K, self.W_V))
        k = wide(k if shown is None else k * shown[:, None]) * k.shape[3] ** -0.5
        state = None if cache is None else cache.get("S")
        if state is None:
            state = k.new_zeros(len(x), self.heads, k.shape[3], k.shape[3])
        mixed = []
        pieces = [y.split(self.chunk, dim=2) for y in (wide(q), k, wide(v), decays)]
        for queries, keys, values, logs in zip(*pieces, strict=True):
            output, state = gated_sums(queries, keys, values, logs, state)
            mixed.append(output)
        if cache is not None:
            cache.kept["S"] = state
        y = F.rms_norm(torch.cat(mixed, dim=2), (k.shape[3],), eps=1e-5)
        return self.W_O(y.transpose(1, 2).flatten(2).to(x.dtype))

    def parameter_count(self) -> int:
        """4 d_model², and with gates heads · (d_model + 1)."""
        gates = 0 if self.W_A is None else self.W_A.weight.numel() + self.heads
        return 4 * self.W_O.weight.numel() + gates

    def flops(self, time: int, **context: Any) -> int:
        """The projections, and for each head and chunk two products of its positions, and two with the state."""
        d = self.W_O.in_features
        chunks = [min(self.chunk, time - begin) for begin in range(0, time, self.chunk)] or [0]
        pairs = sum(4 * size * size * d + 4 * size * d * (d // self.heads) for size in chunks)
        gates = 0 if self.W_A is None else 2 * time * self.W_A.weight.numel()
        return 8 * time * d * d + gates + pairs


# ---- the rival ----------------------------------------------------------------------------------------------------


class Lstm(Recurrence):
    """An LSTM of `width` cells and its output matrix: gates that see the state before, so only a loop can compute it.

    The gate that keeps begins at `keep` (Jozefowicz et al., 2015, recommend 1). Raises ValueError when `width` < 1.
    """

    def __init__(self, d_model: int, heads: int, *, width: int | None = None, dropout: float = 0.0, keep: float = 1.0):
        super().__init__()
        check_dropout(dropout)
        check_positive(width=width)
        width = width or d_model
        self.W, self.U = nn.Linear(d_model, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.bias = nn.Parameter(torch.cat([torch.full((width,), keep if gate == 1 else 0.0) for gate in range(4)]))
        self.W_O = nn.Linear(width, d_model)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, cache: RecurrentState | None = None, **context: Any
    ) -> Float[Tensor, "batch time d_model"]:
        """One step after the other. Raises ValueError when another sequence is given as `key`."""
        shown, width = self.shown(x, context), self.W_O.in_features
        gates = self.W(x) + self.bias
        h, c = (None if cache is None else cache.get(name) for name in LstmState._fields)
        nothing = x.new_zeros(len(x), width)
        state = LstmState(nothing if h is None else h, nothing if c is None else c)
        outputs = []
        for step in range(x.shape[1]):
            state = lstm_step(gates[:, step], state, self.U.weight)
            if shown is not None:
                state = LstmState(*(part * shown[:, step] for part in state))
            outputs.append(state.h)
        if cache is not None:
            cache.kept.update(state._asdict())
        return self.W_O(torch.stack(outputs, dim=1) if outputs else x.new_zeros(len(x), 0, width))

    def parameter_count(self) -> int:
        """4 width · (d_model + width + 1) + d_model · (width + 1)."""
        sizes = sum(layer.weight.numel() for layer in (self.W, self.U, self.W_O))
        return sizes + 4 * self.W_O.in_features + self.W_O.out_features

    def flops(self, time: int, **context: Any) -> int:
        """2 for each weight and position."""
        return 2 * time * sum(layer.weight.numel() for layer in (self.W, self.U, self.W_O))
