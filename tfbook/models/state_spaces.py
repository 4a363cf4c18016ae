"""State-space layers: S4D, the same decays at every position, and Mamba, whose input sets them.

Both come from h'(t) = A h(t) + B u(t), y = C h, cut into steps of size Δ.

Shapes: batch, time, d_model, width (channels), state (numbers kept for each channel), rank (of Δ's projection).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.checks import check_dropout, check_positive
from tfbook.models.scans import Scan, chunked_scan, parallel_scan
from tfbook.models.states import Recurrence, RecurrentState, only_shown, short_convolution, wide


def step_sizes(width: int, low: float = 0.001, high: float = 0.1) -> Float[Tensor, " width"]:
    """Steps Δ drawn between `low` and `high`, evenly in their logarithm: channels that forget fast and slowly."""
    return torch.empty(width).uniform_(math.log(low), math.log(high)).exp()


# ---- S4 with a diagonal A ----------------------------------------------------------------------------------------


def exp_minus_one(z: Complex[Tensor, "*rows"]) -> Complex[Tensor, "*rows"]:
    """e^z − 1 without losing the digits of a small z: e^x cos y − 1 = (e^x − 1) cos y − 2 sin²(y/2)."""
    x, y = z.real, z.imag
    return torch.complex(torch.expm1(x) * torch.cos(y) - 2 * torch.sin(y / 2) ** 2, torch.exp(x) * torch.sin(y))


def zero_order_hold(
    A: Complex[Tensor, "*rows state"], step: Float[Tensor, "*rows"]
) -> tuple[Complex[Tensor, "*rows state"], Complex[Tensor, "*rows state"]]:
    """Ā = e^{ΔA} and B̄ = (e^{ΔA} − 1) / A for B = 1: exact where the input stays the same for one step Δ."""
    z = step[..., None] * A
    return torch.exp(z), exp_minus_one(z) / A


def fft_convolution(
    u: Float[Tensor, "batch width time"], kernel: Float[Tensor, "width time"]
) -> Float[Tensor, "batch width time"]:
    """y_t = Σ_{s ≤ t} K_{t−s} u_s in O(n log n); padded to twice the length, so that the end does not wrap around."""
    size = 2 * u.shape[2]
    return torch.fft.irfft(torch.fft.rfft(u, size) * torch.fft.rfft(kernel, size), size)[..., : u.shape[2]]


class S4D(Recurrence):
    """y_t = 2 Re Σ_n C_n h_{n,t} + D u_t, h_{n,t} = Ā_n h_{n,t−1} + B̄_n u_t: S4 with a diagonal A (Gu et al., 2022).

    Each of `d_model` channels keeps `state` complex numbers, which begin at A_n = −1/2 + iπn (S4D-Lin). Without a cache
    it is a convolution with the kernel K_l = 2 Re Σ_n C_n Ā_nˡ B̄_n; with one it is the recurrence. A GELU and a matrix
    mix the channels. Raises ValueError when `state` < 1.
    """

    UNDECAYED = ("log_decay", "frequency")  # where they shrink to, time scales change

    def __init__(self, d_model: int, heads: int, *, state: int = 16, dropout: float = 0.0):
        super().__init__()
        check_dropout(dropout)
        check_positive(state=state)
        self.log_step = nn.Parameter(step_sizes(d_model).log())
        self.log_decay = nn.Parameter(torch.full((d_model, state), 0.5).log())
        self.frequency = nn.Parameter(math.pi * torch.arange(state).expand(d_model, -1).clone())
        self.C = nn.Parameter(torch.randn(d_model, state, 2) * 0.5**0.5)
        self.D = nn.Parameter(torch.ones(d_model))
        self.W_O = nn.Linear(d_model, d_model)

    def continuous(self) -> tuple[Complex[Tensor, "d_model state"], Float[Tensor, " d_model"]]:
        """A and Δ, in float32 at least."""
        A = torch.complex(-torch.exp(wide(self.log_decay)), wide(self.frequency))
        return A, torch.exp(wide(self.log_step))

    def discrete(self) -> tuple[Complex[Tensor, "d_model state"], Complex[Tensor, "d_model state"]]:
        """Ā and 2 C B̄."""
        decay, inflow = zero_order_hold(*self.continuous())
        return decay, 2 * torch.view_as_complex(wide(self.C)) * inflow

    def kernel(self, time: int) -> Float[Tensor, "d_model time"]:
        """K_l = Re Σ_n (2 C B̄)_n e^{l Δ A_n}: what an input still adds l positions later."""
        A, step = self.continuous()
        exponents = (step[:, None] * A)[..., None] * torch.arange(time, device=A.device)
        return (self.discrete()[1][..., None] * torch.exp(exponents)).sum(dim=1).real

    def by_recurrence(
        self, u: Float[Tensor, "batch time d_model"], cache: RecurrentState
    ) -> Float[Tensor, "batch time d_model"]:
        """The same numbers from states, of which the cache keeps the last; C B̄ weights them when they are read."""
        decay, weight = self.discrete()
        new = u[..., None].expand(*u.shape, decay.shape[1]).to(decay.dtype)
        h = parallel_scan(decay.expand_as(new), new, cache.get("h"))
        if u.shape[1]:
            cache.kept["h"] = h[:, -1]
        return (weight * h).sum(dim=-1).real

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, cache: RecurrentState | None = None, **context: Any
    ) -> Float[Tensor, "batch time d_model"]:
        """W_O GELU(y_t). Raises ValueError when another sequence is given as `key`."""
        u = wide(only_shown(x, self.shown(x, context)))
        if cache is not None or not x.shape[1]:
            y = self.by_recurrence(u, RecurrentState() if cache is None else cache)
        else:
            y = fft_convolution(u.mT, self.kernel(x.shape[1])).mT
        return self.W_O(F.gelu(y + self.D * u).to(x.dtype))

    def parameter_count(self) -> int:
        """4 d_model · state + 2 d_model, and the output matrix."""
        d = self.W_O.in_features
        return self.log_decay.numel() * 4 + 2 * d + d * d + d

    def flops(self, time: int, **context: Any) -> int:
        """Those of the output matrix: the convolution is a product of Fourier transforms, not of matrices."""
        return 2 * time * self.W_O.weight.numel()


# ---- Mamba --------------------------------------------------------------------------------------------------------


def selective_scan(
    x: Float[Tensor, "batch time width"],
    step: Float[Tensor, "batch time width"],
    A: Float[Tensor, "width state"],
    B: Float[Tensor, "batch time state"],
    C: Float[Tensor, "batch time state"],
    start: Float[Tensor, "batch width state"],
    *,
    scan: Scan = chunked_scan,
) -> tuple[Float[Tensor, "batch time width"], Float[Tensor, "batch width state"]]:
    """h_t = e^{Δ_t A} ⊙ h_{t−1} + Δ_t x_t B_tᵀ, y_t = h_t C_t, and the last h (Gu and Dao, 2023, algorithm 2).

    A large Δ_t replaces the state by the input, one near 0 keeps it: the step is the gate.
    """
    decays = torch.exp(step[..., None] * A)
    h = scan(decays, (step * x)[..., None] * B[:, :, None], start)
    if not h.shape[1]:
        return x, start
    return (h @ C[..., None])[..., 0], h[:, -1]


class Mamba(Recurrence):
    """W_O (y ⊙ SiLU(z)), y = selective_scan(u) + D ⊙ u, u = SiLU(convolution(W_in x)) (Gu and Dao, 2023, figure 3).

    `state` numbers for each of `width` channels (2 d_model unless given), whose decays begin at −1 … −`state`; Δ, B
    and C come from u, Δ through `rank` numbers (d_model / 16 unless given). `selective` is the scan. Raises
    ValueError for a size < 1.
    """

    UNDECAYED = ("A_log",)  # as in the code of the paper

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        width: int | None = None,
        state: int = 16,
        reach: int = 4,
        rank: int | None = None,
        dropout: float = 0.0,
        selective: Any = selective_scan,
    ):
        super().__init__()
        check_dropout(dropout)
        check_positive(width=width, state=state, reach=reach, rank=rank)
        width, self.rank, self.state = width or 2 * d_model, rank or math.ceil(d_model / 16), state
        self.W_in = nn.Linear(d_model, 2 * width, bias=False)
        self.kernel = nn.Parameter(torch.empty(width, reach).uniform_(-(reach**-0.5), reach**-0.5))
        self.kernel_bias = nn.Parameter(torch.zeros(width))
        self.W_x = nn.Linear(width, self.rank + 2 * state, bias=False)
        self.W_step = nn.Linear(self.rank, width, bias=False)
        self.step_bias = nn.Parameter(step_sizes(width).expm1().log())  # softplus of it is the step
        self.A_log = nn.Parameter(torch.arange(1.0, state + 1).log().expand(width, -1).clone())
        self.D = nn.Parameter(torch.ones(width))
        self.W_O = nn.Linear(width, d_model, bias=False)
        self.selective = selective

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, cache: RecurrentState | None = None, **context: Any
    ) -> Float[Tensor, "batch time d_model"]:
        """Raises ValueError when another sequence is given as `key`."""
        shown = self.shown(x, context)
        u, z = self.W_in(only_shown(x, shown)).chunk(2, dim=-1)
        u = only_shown(F.silu(short_convolution(u, self.kernel, self.kernel_bias, cache)), shown)
        step, B, C = self.W_x(u).split([self.rank, self.state, self.state], dim=-1)
        step = F.softplus(wide(self.W_step(step) + self.step_bias))
        A, start = -torch.exp(wide(self.A_log)), None if cache is None else cache.get("h")
        if start is None:
            start = step.new_zeros(len(x), *A.shape)
        y, last = self.selective(wide(u), step, A, wide(B), wide(C), start)
        if cache is not None:
            cache.kept["h"] = last
        return self.W_O((y.to(x.dtype) + self.D * u) * F.silu(z))

    def parameter_count(self) -> int:
        """Of the four matrices, and width · (reach + state + 3)."""
        matrices = sum(layer.weight.numel() for layer in (self.W_in, self.W_x, self.W_step, self.W_O))
        return matrices + self.kernel.numel() + self.A_log.numel() + 3 * self.W_O.in_features

    def flops(self, time: int, **context: Any) -> int:
        """2 for each weight of a matrix and for each number of the state, which C reads, at each position."""
        matrices = sum(layer.weight.numel() for layer in (self.W_in, self.W_x, self.W_step, self.W_O))
        return 2 * time * (matrices + self.A_log.numel())
