"""Proximal policy optimization of a language model: a token is an action, the text so far is the state.

Shapes: batch, time; next (the time − 1 tokens that have one before them), vocab. Position t of `next` is the choice of
token t + 1: its log-probability, the value before it, its reward and its advantage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook.checks import check_positive
from tfbook.text.answers import Answers
from tfbook.training.losses import Loss, divergence
from tfbook.training.optimizers import Optimizer
from tfbook.training.preferences import log_probs, token_log_probs


@dataclass(frozen=True, kw_only=True)
class PpoRecipe:
    """How one batch of answers is turned into steps.

    `beta` weighs the KL divergence from the reference, `gamma` discounts later rewards, and `lam` trades the variance
    of advantages for bias. `clip` is how far a ratio of probabilities may move from 1. The answers are read `epochs`
    times, `minibatch` of them per step.
    """

    beta: float = 0.1
    gamma: float = 1.0
    lam: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    epochs: int = 4
    minibatch: int = 32
    max_norm: float = 1.0  # of the gradient

    def __post_init__(self) -> None:
        check_positive(epochs=self.epochs, minibatch=self.minibatch)
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 to 1")
        for name in ("beta", "value_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
        for name in ("clip", "max_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")


# ---- the divergence from the reference ---------------------------------------------------------------------------


def kl_estimate(log_probs: Float[Tensor, "*rows"], reference: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """log π(token) − log π_ref(token) of tokens sampled from π, in nats: an unbiased estimate of KL(π ‖ π_ref)."""
    return log_probs - reference


def exact_kl(logits: Float[Tensor, "*rows vocab"], reference: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows"]:
    """KL(π ‖ π_ref) = Σ_v π(v) (log π(v) − log π_ref(v)) over the whole vocabulary, in nats, from both's logits."""
    return divergence(*(scores.float().log_softmax(dim=-1) for scores in (logits, reference)))


def penalized_rewards(
    scores: Float[Tensor, " batch"],
    kl: Float[Tensor, "batch next"],
    answered: Bool[Tensor, "batch next"],
    *,
    beta: float,
) -> Float[Tensor, "batch next"]:
    """−β kl_t for each token of the answer, plus its score for the last of them; 0 elsewhere.

    (Ziegler et al., 2019, eq. 2.)
    """
    last = answered & (answered.flip(1).cumsum(dim=1).flip(1) == 1)
    penalty = (beta * kl).masked_fill(~answered, 0.0) if beta else torch.zeros_like(kl)  # not 0 · ∞
    return torch.where(last, scores[:, None], torch.zeros_like(penalty)) - penalty


# ---- advantages --------------------------------------------------------------------------------------------------


def generalized_advantages(
    rewards: Float[Tensor, "batch next"],
    values: Float[Tensor, "batch next"],
    answered: Bool[Tensor, "batch next"],
    *,
    gamma: float,
    lam: float,
) -> Float[Tensor, "batch next"]:
    """Â_t = δ_t + γ λ Â_{t+1} with δ_t = r_t + γ V_{t+1} − V_t: Σ_l (γλ)^l δ_{t+l} (Schulman et al., 2016, eq. 16).

    The value after the answer's last token is 0, since nothing follows. Outside the answer the advantage is 0.
    """
    rewards, values = (numbers.masked_fill(~answered, 0.0) for numbers in (rewards, values))
    advantages = torch.zeros_like(values)
    later, value_after = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        surprise = rewards[:, t] + gamma * value_after - values[:, t]
        later, value_after = surprise + gamma * lam * later, values[:, t]
        advantages[:, t] = later
    return advantages * answered


def standardized(x: Float[Tensor, "batch next"], answered: Bool[Tensor, "batch next"]) -> Float[Tensor, "batch next"]:
    """(x − mean) / standard deviation over the answers' tokens; 0 elsewhere."""
    inside = x[answered]
    return ((x - inside.mean()) / (inside.std(correction=0) + 1e-8)).masked_fill(~answered, 0.0)


# ---- the two losses ----------------------------------------------------------------------------------------------


def clipped_objective(
    log_probs: Float[Tensor, "*rows"],
    old: Float[Tensor, "*rows"],
    advantages: Float[Tensor, "*rows"],
    *,
    clip: float,
) -> Float[Tensor, "*rows"]:
    """min(ρ Â, clip(ρ, 1 − ε, 1 + ε) Â) with the ratio ρ = π(token) / π_old(token) (Schulman et al., 2017, eq. 7).

    Once the ratio has passed the clip in the direction that Â favors, the gradient is 0.
    """
    log_ratio = log_probs - old
    bounded = log_ratio.clamp(max=math.log1p(clip) + 1)  # far past the clip the gradient is 0, but exp would overflow
    ratio = torch.where(advantages > 0, bounded, log_ratio.masked_fill(~(advantages < 0), 0.0)).exp()
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


@dataclass(frozen=True)
class Rollout:
    """Answers that the policy sampled, with the estimates made at sampling time: nothing here has a gradient."""

    answers: Answers
    log_probs: Float[Tensor, "batch next"]  # by the policy that sampled them
    kl: Float[Tensor, "batch next"]  # its `kl_estimate` from the reference; 0 outside the answer
    advantages: Float[Tensor, "batch next"]
    returns: Float[Tensor, "batch next"]  # the targets of the critic

    @property
    def answered(self) -> Bool[Tensor, "batch next"]:
        """True at the tokens that the policy chose."""
        return self.answers.answered[:, 1:]

    def select(self, rows: Int[Tensor, " kept"]) -> Rollout:
        """The answers `rows`, in that order."""
        tensors = (self.log_probs, self.kl, self.advantages, self.returns)
        return Rollout(self.answers.select(rows), *(tensor[rows] for tensor in tensors))


@torch.no_grad()
def assess(
    policy: nn.Module,
    reference: nn.Module,
    critic: nn.Module,
    answers: Answers,
    scores: Float[Tensor, " batch"],
    recipe: PpoRecipe,
) -> Rollout:
    """Log-probabilities, advantages and returns of answers that `policy` sampled at temperature 1, without filters.

    `scores` are their rewards, `critic` a `ValueModel`. The advantages are standardized, the returns are not.
    """
    ids, answered = answers.ids, answers.answered[:, 1:]
    old = log_probs(policy, ids)
    kl = kl_estimate(old, log_probs(reference, ids)).masked_fill(~answered, 0.0)
    rewards = penalized_rewards(scores, kl, answered, beta=recipe.beta)
    values = critic(ids[:, :-1]).float()
    advantages = generalized_advantages(rewards, values, answered, gamma=recipe.gamma, lam=recipe.lam)
    return Rollout(answers, old, kl, standardized(advantages, answered), (advantages + values) * answered)


def ppo_loss(policy: nn.Module, critic: nn.Module, rollout: Rollout, recipe: PpoRecipe) -> Loss:
    """−`clipped_objective` + c (V − return)² over the answers' tokens, c being `value_weight`; counts these tokens.

    (Schulman et al., 2017, eq. 9, with the KL penalty in place of the entropy bonus.)
    """
    ids, answered = rollout.answers.ids, rollout.answered
    new = token_log_probs(policy(ids[:, :-1]), ids[:, 1:])
    advantages = rollout.advantages.masked_fill(~answered, 0.0)
    objective = clipped_objective(new, rollout.log_probs, advantages, clip=recipe.clip)
    error = (critic(ids[:, :-1]).float() - rollout.returns).masked_fill(~answered, 0.0).square()
    return Loss((recipe.value_weight * error - objective).sum(), answered.sum())


def ppo_update(
    policy: nn.Module,
    critic: nn.Module,
    optimizer: Optimizer,
    rollout: Rollout,
    recipe: PpoRecipe,
    *,
    generator: torch.Generator | None = None,
) -> list[float]:
    """Reads the answers `epochs` times in shuffled minibatches, one step of `optimizer` for each; returns the losses.

    `optimizer` holds the weights of both models. Their modes stay as they are: with dropout, the ratio would not start
    at 1.
    """
    losses = []
    for _ in range(recipe.epochs):
        for rows in torch.randperm(len(rollout.answers), generator=generator).split(recipe.minibatch):
            loss = ppo_loss(policy, critic, rollout.select(rows), recipe).mean
            optimizer.zero_grad()
            loss.backward()
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            nn.utils.clip_grad_norm_(weights, recipe.max_norm)
            optimizer.step()
            losses.append(loss.detach())
    return [float(loss) for loss in losses]  # here, since a look at one waits for the device
