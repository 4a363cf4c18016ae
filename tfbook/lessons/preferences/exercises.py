"""Exercises of lesson 12: KL, advantages, the clipped objective, DPO's loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.preferences.first_exercises import best_rows as best_rows, pair_loss as pair_loss

# ---- KL from samples ---------------------------------------------------------------------------------------------


def _log_probs() -> list[tuple[Tensor, Tensor, Tensor]]:
    policy, reference = -randn(3, 5, seed=4).abs(), -randn(3, 5, seed=5).abs()
    answered = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0], [0, 0, 1, 1, 1]]).bool()
    return [
        (
            torch.tensor([[-0.7, -1.4], [-0.1, -9.0]]),
            torch.tensor([[-1.4, -1.4], [-0.3, -3.0]]),
            torch.tensor([[True, True], [True, False]]),
        ),
        (policy, reference, answered),
        (policy - 120, reference - 121, answered),  # exp underflows
    ]


@exercise(
    cases=_log_probs,
    hints=[
        "KL is a mean, over stories that the policy wrote, of log π(story) − log π_ref(story). What is the "
        "log-probability of a story, given those of its tokens?",
        "Multiply the difference by `answered`, sum over the tokens (dim 1), and take the mean over the stories.",
    ],
    differentiable=False,
)
def estimated_kl(policy: Tensor, reference: Tensor, answered: Tensor) -> Tensor:
    return ((policy - reference) * answered).sum(dim=1).mean()


estimated_kl.mistakes(
    {
        "`answered` is the wrong way around: it is True where a token belongs to the story": (
            lambda policy, reference, answered: estimated_kl.reference(policy, reference, ~answered)
        ),
        "backward: KL(π ‖ π_ref) begins with the policy, which wrote the stories": (
            lambda policy, reference, answered: ((reference - policy) * answered).sum(dim=1).mean()
        ),
        "padding counts here: where `answered` is False, no token was chosen": (
            lambda policy, reference, answered: (policy - reference).sum(dim=1).mean()
        ),
        "this is KL per token; we want that of a whole story, whose log-probability is a sum": (
            lambda policy, reference, answered: (policy - reference)[answered].mean()
        ),
        "this is the mean over tokens of each story; the log-probability of a story is the sum over its tokens": (
            lambda policy, reference, answered: (
                ((policy - reference) * answered).sum(dim=1) / answered.sum(dim=1)
            ).mean()
        ),
        "the probability p is in there a second time: the stories were drawn from π, which weighs them already": (
            lambda policy, reference, answered: (policy.exp() * (policy - reference) * answered).sum(dim=1).mean()
        ),
        "a token may well be less likely under π than under the reference: without its sign, KL comes out too large": (
            lambda policy, reference, answered: ((policy - reference).abs() * answered).sum(dim=1).mean()
        ),
        "exp underflows to 0 where a token is unlikely: stay with the logarithms and subtract them": (
            lambda policy, reference, answered: (
                (policy.exp() / reference.exp()).log().masked_fill(~answered, 0.0).sum(dim=1).mean()
            )
        ),
        "this is the sum over the stories; we want their mean": (
            lambda policy, reference, answered: ((policy - reference) * answered).sum()
        ),
        "return the mean over the stories, one number": (
            lambda policy, reference, answered: ((policy - reference) * answered).sum(dim=1)
        ),
        "this estimates KL in another way, by e^x − 1 − x with x = log π_ref − log π: take the mean of −x": (
            lambda policy, reference, answered: (
                (((reference - policy).exp() - 1 - (reference - policy)) * answered).sum(dim=1).mean()
            )
        ),
    }
)

# ---- advantages --------------------------------------------------------------------------------------------------


def _surprises() -> list[tuple[Tensor, Tensor, float, float]]:
    return [
        (torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.2, 0.4, 0.8]]), 1.0, 0.5),
        (randn(2, 6, seed=6), randn(2, 6, seed=7), 0.9, 0.8),
        (randn(2, 4, seed=8), randn(2, 4, seed=9), 1.0, 1.0),
        (randn(2, 4, seed=8), randn(2, 4, seed=9), 0.7, 0.0),
    ]


@exercise(
    cases=_surprises,
    hints=[
        "First the surprises δ_t = r_t + γ V_{t+1} − V_t. What is V after the last token, when nothing comes any more?",
        "Go from the last token to the first: A_t = δ_t + γ λ A_{t+1}.",
    ],
    differentiable=False,
)
def advantages(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    later = after = values.new_zeros(len(values))
    found: list[Tensor] = []
    for r, v in zip(reversed(rewards.unbind(dim=1)), reversed(values.unbind(dim=1)), strict=True):
        later = r + gamma * after - v + gamma * lam * later
        after = v
        found.insert(0, later)
    return torch.stack(found, dim=1)


def _gae(rewards: Tensor, values: Tensor, after: Tensor, gamma: float, weight: float) -> Tensor:
    surprises = rewards + gamma * after - values
    steps = torch.arange(values.shape[1])
    distance = (steps[:, None] - steps).clamp(min=0)  # of a later surprise (row) from a token (column)
    return surprises @ ((torch.tensor(weight) ** distance) * (steps[:, None] >= steps))


def _after(values: Tensor) -> Tensor:
    return torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)


def _forwards(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    surprises, found = rewards + gamma * _after(values) - values, list[Tensor]()
    for surprise in surprises.unbind(dim=1):
        found.append(surprise + gamma * lam * found[-1] if found else surprise)
    return torch.stack(found, dim=1)


advantages.mistakes(
    {
        "`roll` brings the first value behind the last token: nothing comes after it, so the value there is 0": (
            lambda rewards, values, gamma, lam: _gae(rewards, values, values.roll(-1, dims=1), gamma, gamma * lam)
        ),
        "these are the surprises δ alone: a later reward has to reach the earlier tokens, too": (
            lambda rewards, values, gamma, lam: rewards + gamma * _after(values) - values
        ),
        "this goes from the first token to the last: what a token led to comes after it, so go backwards": _forwards,
        "after the last token nothing comes, so the value there is 0, not the last value again": (
            lambda rewards, values, gamma, lam: _gae(
                rewards, values, torch.cat([values[:, 1:], values[:, -1:]], dim=1), gamma, gamma * lam
            )
        ),
        "later surprises fade by γ · λ at each step, not by λ alone": (
            lambda rewards, values, gamma, lam: _gae(rewards, values, _after(values), gamma, lam)
        ),
        "later surprises fade by γ · λ at each step, not by γ alone": (
            lambda rewards, values, gamma, lam: _gae(rewards, values, _after(values), gamma, gamma)
        ),
        "the value of what comes next is discounted: δ_t = r_t + γ V_{t+1} − V_t": (
            lambda rewards, values, gamma, lam: _gae(rewards, values, _after(values), 1.0, gamma * lam)
        ),
        "δ_t lacks the value after the token: r_t + γ V_{t+1} − V_t": (
            lambda rewards, values, gamma, lam: _gae(rewards, values, torch.zeros_like(values), gamma, gamma * lam)
        ),
        "this is the return: subtract what the critic expected already, V_t": (
            lambda rewards, values, gamma, lam: _gae(rewards, values, _after(values), gamma, gamma * lam) + values
        ),
        "the sign: what is better than the critic expected has a positive advantage": (
            lambda rewards, values, gamma, lam: -_gae(rewards, values, _after(values), gamma, gamma * lam)
        ),
        "normalized: many do so before the loss, but here the advantages are returned as they are": (
            lambda *episode: ((found := advantages.reference(*episode)) - found.mean()) / (found.std() + 1e-8)
        ),
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------


def _ratios() -> list[tuple[Tensor, Tensor, Tensor, float]]:
    old = torch.tensor([-1.0, -1.0, -1.0, -1.0, -1.0, -1.0])
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5, 1.1, 0.9])
    gains = torch.tensor([2.0, 2.0, -2.0, -2.0, 1.0, -1.0])
    return [
        (old + ratio.log(), old, gains, 0.2),
        (randn(4, 3, seed=1), randn(4, 3, seed=2), randn(4, 3, seed=3), 0.1),
        (old + ratio.log() - 120, old - 120, gains, 0.2),  # exp underflows
    ]


@exercise(
    cases=_ratios,
    hints=[
        "Let the advantage be −2 and the ratio 1.5: a bad token has become likelier. Does the given code still push it "
        "down, or is its gradient 0?",
        "Compare ratio · advantage with its clipped version, token by token, and keep the smaller of the two.",
    ],
    differentiable=("new",),
)
def clipped(new: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    ratio = (new - old).exp()
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


@clipped.given
def _(new: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    ratio = (new - old).exp()
    return ratio.clamp(1 - clip, 1 + clip) * advantages


clipped.mistakes(
    {
        "a quotient of log-probabilities is no ratio of probabilities: subtract them, then take exp": (
            lambda new, old, advantages, clip: torch.minimum(
                (ratio := new / old) * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
            )
        ),
        "keep the smaller of the two products, not the larger: the objective should never look better than it is": (
            lambda new, old, advantages, clip: torch.maximum(
                (new - old).exp() * advantages, (new - old).exp().clamp(1 - clip, 1 + clip) * advantages
            )
        ),
        "the ratio is clipped, not the product: the advantage may be as large as it likes": (
            lambda new, old, advantages, clip: torch.minimum(
                (new - old).exp() * advantages, ((new - old).exp() * advantages).clamp(1 - clip, 1 + clip)
            )
        ),
        "the smaller ratio is not the smaller product: a negative advantage turns the order round": (
            lambda new, old, advantages, clip: (
                torch.minimum((new - old).exp(), (new - old).exp().clamp(1 - clip, 1 + clip)) * advantages
            )
        ),
        "nothing is clipped now: a good token may become as likely as it likes in one batch": (
            lambda new, old, advantages, clip: (new - old).exp() * advantages
        ),
        "this ratio is upside down: π(token) / π_old(token), the new one on top": (
            lambda new, old, advantages, clip: torch.minimum(
                (old - new).exp() * advantages, (old - new).exp().clamp(1 - clip, 1 + clip) * advantages
            )
        ),
        "exp(new) and exp(old) underflow to 0 where a token is unlikely: subtract the logarithms, then take exp": (
            lambda new, old, advantages, clip: torch.minimum(
                new.exp() / old.exp() * advantages, (new.exp() / old.exp()).clamp(1 - clip, 1 + clip) * advantages
            )
        ),
        "a difference of logarithms is the logarithm of the ratio: `exp` is missing": (
            lambda new, old, advantages, clip: torch.minimum(
                (new - old) * advantages, (new - old).clamp(1 - clip, 1 + clip) * advantages
            )
        ),
        "the sign: the objective is to be made large; PPO's loss is its negative": (
            lambda new, old, advantages, clip: -clipped.reference(new, old, advantages, clip)
        ),
    }
)

# ---- DPO's loss --------------------------------------------------------------------------------------------------


def _answers() -> list[tuple[Tensor, Tensor, Tensor, Tensor, float]]:
    one = torch.tensor
    return [
        (one([-50.0]), one([-62.0]), one([-54.0]), one([-61.0]), 0.1),
        (randn(6, seed=1), randn(6, seed=2), randn(6, seed=3), randn(6, seed=4), 0.5),
        (one([-900.0]), one([-10.0]), one([-20.0]), one([-30.0]), 2.0),
    ]


@exercise(
    cases=_answers,
    hints=[
        "The implied reward of an answer is β (log π − log π_ref). DPO's loss is the loss of a pair for these rewards.",
        "Two differences, one for the chosen and one for the rejected answer, then `-F.logsigmoid(…).mean()`.",
    ],
    differentiable=("chosen", "rejected"),
)
def dpo_loss(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float) -> Tensor:
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()


dpo_loss.mistakes(
    {
        "these are ratios of probabilities: DPO compares their logarithms, chosen − ref_chosen": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -F.logsigmoid(beta * (chosen.exp() / ref_chosen.exp() - rejected.exp() / ref_rejected.exp())).mean()
            )
        ),
        "the reference is missing: without it, an answer that was unlikely before is held against the policy": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: -F.logsigmoid(beta * (chosen - rejected)).mean()
        ),
        "backward: this makes the rejected answer likelier": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -F.logsigmoid(beta * ((rejected - ref_rejected) - (chosen - ref_chosen))).mean()
            )
        ),
        "the reference's difference has the wrong sign: subtract what the reference preferred already": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -F.logsigmoid(beta * ((chosen - rejected) + (ref_chosen - ref_rejected))).mean()
            )
        ),
        "β multiplies the difference inside σ; outside, it only scales the gradient": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -beta * F.logsigmoid((chosen - ref_chosen) - (rejected - ref_rejected)).mean()
            )
        ),
        "β is missing: multiply the difference by it": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -F.logsigmoid((chosen - ref_chosen) - (rejected - ref_rejected)).mean()
            )
        ),
        "multiply by β instead of dividing by it: a small β lets the policy go far": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -F.logsigmoid(((chosen - ref_chosen) - (rejected - ref_rejected)) / beta).mean()
            )
        ),
        "the sign: a loss is the surprise −log σ, which is never negative": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: F.logsigmoid(
                beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
            ).mean()
        ),
        "where a pair is far off, σ underflows to 0 and exp overflows, so this loss is infinite: use `F.logsigmoid`": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -torch.sigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected))).log().mean()
            )
        ),
        "return the mean over the pairs, one number": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -F.logsigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))
            )
        ),
        "this is the sum over the pairs; we want their mean": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -F.logsigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected))).sum()
            )
        ),
        "β multiplies both differences, that of the rejected answer as well": (
            lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
                -F.logsigmoid(beta * (chosen - ref_chosen) - (rejected - ref_rejected)).mean()
            )
        ),
    }
)
