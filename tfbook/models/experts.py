"""Mixture of experts: many feed-forward networks, of which each token uses one or two.

Shapes: batch, time, d_model; token (batch · time), expert, choice (1 to k).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook.checks import check_positive
from tfbook.models.feed_forward import FeedForward
from tfbook.parts import Part

# ---- routing: which token goes where -----------------------------------------------------------------------------


class Routes(NamedTuple):
    """The experts of each token, first choice first."""

    probabilities: Float[Tensor, "token expert"]  # softmax of the router's logits
    chosen: Int[Tensor, "token choice"]  # numbers of experts
    weights: Float[Tensor, "token choice"]  # of their outputs
    real: Bool[Tensor, " token"] | None = None  # False at padding, which is not routed; None: no padding


def top_experts(logits: Float[Tensor, "token expert"], k: int, *, real: Bool[Tensor, " token"] | None = None) -> Routes:
    """The k experts of the largest probability p, weighted by p / Σ p over the k; a single one by p itself.

    Several experts follow GShard (Lepikhin et al., 2021, algorithm 1), a single one Switch (Fedus et al., 2022, eq. 2):
    p divided by itself would be 1 and give the router no gradient. `real` is False at padding.
    """
    probabilities = logits.float().softmax(dim=-1)
    weights, chosen = probabilities.topk(k, dim=-1)
    return Routes(probabilities, chosen, weights if k == 1 else weights / weights.sum(dim=-1, keepdim=True), real)


def _sent(routes: Routes) -> Int[Tensor, "choice token expert"]:
    """1 where a token is routed to an expert; padding is routed nowhere."""
    experts = torch.arange(routes.probabilities.shape[1], device=routes.chosen.device)
    sent = (routes.chosen.T[..., None] == experts).long()
    return sent if routes.real is None else sent * routes.real[:, None]


def gates(routes: Routes, capacity: int | Tensor | None = None) -> Float[Tensor, "token expert"]:
    """The factor on each expert's output for each token: 0 where the token is not routed.

    An expert takes `capacity` tokens, first choices before second ones and earlier tokens before later ones. A token
    beyond the capacity gets gate 0; if all its gates are 0, it passes through the residual stream only.
    """
    sent = _sent(routes)
    if capacity is not None:
        position = sent.flatten(0, 1).cumsum(dim=0).unflatten(0, sent.shape[:2])  # in the expert's queue, from 1 on
        sent = sent * (position <= capacity)
    return (sent * routes.weights.T[..., None]).sum(dim=0)


def load_balance(routes: Routes) -> Float[Tensor, ""]:
    """N Σ_i f_i P_i over the N experts: 1 when the load is balanced, N when one expert gets all tokens.

    f_i is the share of choices that fall on expert i, without a gradient, and P_i its mean probability, with one (Fedus
    et al., 2022, eq. 4, there times α = 0.01). Padding is not counted; without any other tokens it is 0.
    """
    probabilities = routes.probabilities
    real = probabilities.new_ones(len(probabilities)) if routes.real is None else routes.real.to(probabilities.dtype)
    tokens = real.sum().clamp(min=1)
    busy = _sent(routes).sum(dim=(0, 1)) / (tokens * routes.chosen.shape[1])
    return probabilities.shape[1] * (busy * (real @ probabilities) / tokens).sum()


# ---- dispatch: two ways to compute the same ----------------------------------------------------------------------


def dense_dispatch(
    x: Float[Tensor, "token d_model"], gates: Float[Tensor, "token expert"], experts: nn.ModuleList
) -> Float[Tensor, "token d_model"]:
    """Σ_i gate_i(x) · expert_i(x), every expert for every token: the definition, and experts / k times the work."""
    answers = torch.stack([expert(x[None])[0] for expert in experts])
    return torch.einsum("te,etd->td", gates.to(answers.dtype), answers)


def sparse_dispatch(
    x: Float[Tensor, "token d_model"], gates: Float[Tensor, "token expert"], experts: nn.ModuleList
) -> Float[Tensor, "token d_model"]:
    """The same sum, where each expert processes only the tokens whose gate is not 0, dropout included."""
    y = torch.zeros_like(x)
    for expert, gate in zip(experts, gates.T, strict=True):
        (tokens,) = gate.nonzero(as_tuple=True)
        answers = expert(x[tokens][None])[0]
        y = y.index_add(0, tokens, (gate[tokens, None] * answers).to(y.dtype))
    return y


# ---- the part ----------------------------------------------------------------------------------------------------

Dispatch = Callable[[Tensor, Tensor, nn.ModuleList], Tensor]


class MixtureOfExperts(Part):
    """y = Σ_i gate_i(x) · expert_i(x) over the k experts that a router W x ranks first (Shazeer et al., 2017, eq. 1).

    In a block: `Config(feed_forward=partial(MixtureOfExperts, experts=8, k=2))`; `expert` makes one of them, such as
    `GPT2.feed_forward`. With a `capacity_factor` c, an expert takes c · k · tokens / experts of a batch and drops the
    rest (Fedus et al., 2022, eq. 3). The output then depends on the other tokens of the batch, so decoding token by
    token differs slightly from one parallel pass. Raises ValueError unless 1 ≤ k ≤ `experts`.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        experts: int,
        k: int = 1,
        capacity_factor: float | None = None,
        expert: Callable[..., Part] = FeedForward,
        dispatch: Dispatch = sparse_dispatch,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_positive(experts=experts)
        if not 1 <= k <= experts:
            raise ValueError(f"k is {k}; expected 1 to {experts}, the number of experts")
        if capacity_factor is not None and not capacity_factor > 0:
            raise ValueError(f"capacity_factor is {capacity_factor}; expected more than 0, or None")
        self.k, self.capacity_factor, self.dispatch = k, capacity_factor, dispatch
        self.router = nn.Linear(d_model, experts, bias=False)
        self.experts: Any = nn.ModuleList(expert(d_model, d_ff, dropout=dropout) for _ in range(experts))

    def forward(
        self, x: Float[Tensor, "batch time d_model"], *, real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Routes the tokens of all sequences together; padding, where `real` is False, gets 0."""
        tokens = x.flatten(0, 1)
        routes = self.route(tokens, None if real is None else real.flatten())
        count = len(tokens) if routes.real is None else routes.real.sum()
        return self.dispatch(tokens, gates(routes, self.capacity(count)), self.experts).view_as(x)

    def route(self, tokens: Float[Tensor, "token d_model"], real: Bool[Tensor, " token"] | None = None) -> Routes:
        """The k experts of each token."""
        return top_experts(self.router(tokens), self.k, real=real)

    def capacity(self, tokens: int | Tensor) -> int | Tensor | None:
        """The number of a batch's tokens that an expert takes; None for no limit."""
        if self.capacity_factor is None:
            return None
        share = Fraction(self.capacity_factor).limit_denominator(10**9) * self.k / len(self.experts)
        return -(-share.numerator * tokens // share.denominator)  # rounded up in integers: 1.1 · 50 is no more than 55

    @property
    def outputs(self) -> list[nn.Linear]:
        """Those of the experts."""
        return [output for expert in self.experts for output in expert.outputs]

    def parameter_count(self) -> int:
        """All experts, and the router's d_model · experts."""
        return self.router.weight.numel() + sum(expert.parameter_count() for expert in self.experts)

    def flops(self, time: int) -> int:
        """k experts and the router's 2 d_model · experts for each position, for sparse dispatch that drops no token."""
        return 2 * time * self.router.weight.numel() + self.k * self.experts[0].flops(time)


@contextmanager
def record_routes(model: nn.Module, *, real: Bool[Tensor, "batch time"] | None = None) -> Iterator[dict[str, Routes]]:
    """Records, inside the context, the routes of each mixture of experts in `model` under its name, with gradients.

    `with record_routes(model) as routes: loss = next_token_loss(model, ids)`, to which 0.01 times the mean of
    `load_balance` over `routes.values()` is added. A mixture that is called twice keeps its last routes. With padding,
    `real=ids[:, :-1] != PAD` (what the model reads) keeps it out of routes, capacities and balance. Raises ValueError
    when the model has no mixture, and for a `real` of another size than what a mixture reads.
    """
    mixtures = {name: part for name, part in model.named_modules() if isinstance(part, MixtureOfExperts)}
    if not mixtures:
        raise ValueError(f"model, a {type(model).__name__}, holds no mixture of experts")
    routes: dict[str, Routes] = {}

    def seen(name: str, mixture: MixtureOfExperts, tokens: Tensor, own: Tensor | None = None) -> Routes:
        if real is not None and real.numel() != len(tokens):
            raise ValueError(f"real has shape {tuple(real.shape)}; expected one value for each of {len(tokens)} tokens")
        routes[name] = type(mixture).route(mixture, tokens, own if real is None else real.flatten())
        return routes[name]

    try:
        for name, mixture in mixtures.items():
            mixture.route = partial(seen, name, mixture)  # type: ignore[method-assign]
        yield routes
    finally:
        for mixture in mixtures.values():
            del mixture.route
