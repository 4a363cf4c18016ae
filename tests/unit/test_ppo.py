"""PPO in its parts: divergences, advantages against the closed form, the clipped objective; and a reward that rises."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from tfbook.generation.sampling import generate
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt
from tfbook.models.reward import ValueModel
from tfbook.text import EOS, Answers, generated_answers, join_answers
from tfbook.training import (
    PpoRecipe,
    assess,
    clipped_objective,
    exact_kl,
    generalized_advantages,
    kl_estimate,
    log_probs,
    penalized_rewards,
    ppo_loss,
    ppo_update,
    standardized,
)

pytestmark = pytest.mark.usefixtures("float32")

VOCAB = 7
SIZES = Config(d_model=8, heads=2, d_ff=12)
SHARES = st.sampled_from([0.0, 0.5, 0.95, 1.0])


@pytest.fixture
def answers() -> Answers:
    return join_answers([[1, 4, 5], [1, 6], [1]], [[4, EOS], [4, 4, 5, EOS], [5]])


@pytest.fixture
def policy() -> Gpt:
    torch.manual_seed(1)
    return _loud(Gpt(VOCAB, SIZES))


@pytest.fixture
def reference() -> Gpt:
    torch.manual_seed(2)
    return _loud(Gpt(VOCAB, SIZES))


@pytest.fixture
def critic() -> ValueModel:
    torch.manual_seed(3)
    return ValueModel(_loud(Gpt(VOCAB, SIZES))).eval()


def _loud(model: Gpt) -> Gpt:
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


# ---- divergence --------------------------------------------------------------------------------------------------


def test_the_exact_divergence_is_pytorchs() -> None:
    p, q = torch.randn(2, 3, 4, VOCAB)
    expected = torch.distributions.kl_divergence(*(torch.distributions.Categorical(logits=x) for x in (p, q)))
    torch.testing.assert_close(exact_kl(p, q), expected)
    assert not exact_kl(p, p).any()


def test_the_estimate_is_the_divergence_on_average() -> None:
    """Exactly, weighted with each token's probability; and over 20,000 samples within five standard errors."""
    p, q = torch.randn(2, VOCAB)
    log_p, log_q = p.log_softmax(dim=0), q.log_softmax(dim=0)
    exact = exact_kl(p[None], q[None])[0]
    torch.testing.assert_close((log_p.exp() * kl_estimate(log_p, log_q)).sum(), exact)
    tokens = torch.multinomial(log_p.exp(), 20_000, replacement=True)
    drawn = kl_estimate(log_p[tokens], log_q[tokens])
    assert abs(drawn.mean() - exact) < 5 * drawn.std() / math.sqrt(20_000)


def test_rewards_are_the_penalty_and_at_the_last_token_the_score() -> None:
    answered = torch.tensor([[False, True, True, False], [True, True, True, True]])
    kl = torch.tensor([[9.0, 1.0, 2.0, 9.0], [0.0, -1.0, 0.0, 3.0]])
    found = penalized_rewards(torch.tensor([5.0, 7.0]), kl, answered, beta=0.1)
    torch.testing.assert_close(found, torch.tensor([[0.0, -0.1, 4.8, 0.0], [0.0, 0.1, 0.0, 6.7]]))


# ---- advantages --------------------------------------------------------------------------------------------------


def closed_form(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """Â_t = Σ_l (γλ)^l (r_{t+l} + γ V_{t+l+1} − V_{t+l}), each sum on its own (Schulman et al., 2016, equation 16)."""
    after = [*values[1:], 0.0]
    delta = [r + gamma * v_next - v for r, v, v_next in zip(rewards, values, after, strict=True)]
    return [sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, len(delta))) for t in range(len(delta))]


@given(time=st.integers(1, 8), data=st.data(), gamma=SHARES, lam=SHARES)
@settings(max_examples=60)
def test_advantages_are_the_closed_form(time: int, data: st.DataObject, gamma: float, lam: float) -> None:
    """Of each answer alone: what stands before and behind it has no part in it, whatever the critic says there."""
    rewards, values = torch.randn(2, 3, time, dtype=torch.float64)
    answered, expected = torch.zeros(3, time, dtype=torch.bool), torch.zeros(3, time, dtype=torch.float64)
    for row in range(3):
        start = data.draw(st.integers(0, time - 1))
        own = slice(start, data.draw(st.integers(start + 1, time)))
        answered[row, own] = True
        alone = closed_form(rewards[row, own].tolist(), values[row, own].tolist(), gamma, lam)
        expected[row, own] = torch.tensor(alone, dtype=torch.float64)
    torch.testing.assert_close(generalized_advantages(rewards, values, answered, gamma=gamma, lam=lam), expected)


def test_advantages_at_both_ends_of_lambda() -> None:
    """λ = 1: all rewards to come less the value; λ = 0: the surprise of one step."""
    rewards, values = torch.randn(2, 1, 5)
    all_of_it = torch.ones(1, 5, dtype=torch.bool)
    to_come = rewards.flip(1).cumsum(dim=1).flip(1)
    one = generalized_advantages(rewards, values, all_of_it, gamma=1, lam=1)
    torch.testing.assert_close(one, to_come - values)
    zero = generalized_advantages(rewards, values, all_of_it, gamma=1, lam=0)
    torch.testing.assert_close(zero, rewards + torch.cat([values[:, 1:], torch.zeros(1, 1)], dim=1) - values)
    perfect = generalized_advantages(rewards, to_come, all_of_it, gamma=1, lam=0.95)
    torch.testing.assert_close(perfect, torch.zeros(1, 5), atol=1e-6, rtol=0)


def test_standardized_numbers_have_mean_0_and_deviation_1() -> None:
    answered = torch.rand(4, 6) < 0.5
    found = standardized(3 + 5 * torch.randn(4, 6), answered)
    assert found[answered].mean().item() == pytest.approx(0, abs=1e-6)
    assert found[answered].std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert not found[~answered].any()
    assert not standardized(torch.ones(4, 6), answered).any(), "equal numbers are no NaN"


# ---- the clipped objective ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.1, 2.0, 2.2, 2.0),
        (1.5, 2.0, 2.4, 0.0),  # likelier by more than ε already: no more
        (0.5, 2.0, 1.0, 2.0),  # it went the wrong way: back
        (0.5, -2.0, -1.6, 0.0),
        (1.5, -2.0, -3.0, -2.0),
    ],
)
def test_the_clipped_objective_by_hand(ratio: float, advantage: float, expected: float, slope: float) -> None:
    """Schulman et al. (2017), figure 1, at ε = 0.2: the value and its slope in the ratio."""
    ratios = torch.tensor([ratio], dtype=torch.float64, requires_grad=True)
    old = torch.full((1,), -1.3, dtype=torch.float64)
    found = clipped_objective(ratios.log() + old, old, torch.tensor([advantage], dtype=torch.float64), clip=0.2)
    found.backward()
    assert (found.item(), ratios.grad.item()) == pytest.approx((expected, slope))


# ---- a batch, by hand --------------------------------------------------------------------------------------------


def test_an_assessment_is_its_formulas(policy: Gpt, reference: Gpt, critic: ValueModel, answers: Answers) -> None:
    """Answer by answer, without padding and without tensors of several texts."""
    recipe, scores = PpoRecipe(beta=0.3, gamma=0.9, lam=0.8), torch.tensor([1.0, -2.0, 0.5])
    rollout = assess(policy, reference, critic, answers, scores, recipe)
    found, raw = [], []
    with torch.no_grad():
        for row, length in enumerate(answers.lengths.tolist()):
            ids = answers.ids[row : row + 1, :length]
            kl = (log_probs(policy, ids) - log_probs(reference, ids))[0]
            own = answers.answered[row, 1:length]
            rewards = (-0.3 * kl)[own].tolist()
            rewards[-1] += scores[row].item()
            values = critic(ids[:, :-1])[0][own].tolist()
            advantages = closed_form(rewards, values, 0.9, 0.8)
            raw += advantages
            returns = [a + v for a, v in zip(advantages, values, strict=True)]
            torch.testing.assert_close(rollout.returns[row, : length - 1][own], torch.tensor(returns))
            torch.testing.assert_close(rollout.kl[row, : length - 1][own], kl[own])
            found += rollout.advantages[row, : length - 1][own].tolist()
    raw = torch.tensor(raw)
    torch.testing.assert_close(torch.tensor(found), (raw - raw.mean()) / raw.std(correction=0), atol=1e-4, rtol=1e-4)
    assert not rollout.returns[~rollout.answered].any()
    assert not any(tensor.requires_grad for tensor in (rollout.log_probs, rollout.kl, rollout.returns))


def test_the_first_gradient_is_that_of_the_policy(
    policy: Gpt, reference: Gpt, critic: ValueModel, answers: Answers
) -> None:
    """At ratio 1: −Σ Â ∇ log π, as REINFORCE with a baseline; and the critic's is that of a squared error."""
    recipe = PpoRecipe(value_weight=0.5)
    rollout = assess(policy, reference, critic, answers, torch.randn(3), recipe)
    loss, answered = ppo_loss(policy, critic, rollout, recipe), rollout.answered
    assert int(loss.counts[0]) == int(answered.sum()) == 7
    loss.totals[0].backward()
    found = [parameter.grad.clone() for parameter in policy.parameters()]
    plain = -(rollout.advantages * log_probs(policy, answers.ids) * answered).sum()
    torch.testing.assert_close(found, list(torch.autograd.grad(plain, list(policy.parameters()))))
    error = 0.5 * ((critic(answers.ids[:, :-1]) - rollout.returns)[answered] ** 2).sum()
    learned = list(critic.parameters())
    torch.testing.assert_close(
        [parameter.grad for parameter in learned], list(torch.autograd.grad(error, learned)), atol=1e-5, rtol=1e-4
    )


def test_prompts_and_padding_have_no_part_in_the_loss(
    policy: Gpt, reference: Gpt, critic: ValueModel, answers: Answers
) -> None:
    """Other tokens behind the answers change nothing; nor does a batch in two pieces."""
    recipe, scores = PpoRecipe(), torch.tensor([1.0, -2.0, 0.5])
    rollout = assess(policy, reference, critic, answers, scores, recipe)
    behind = torch.arange(answers.ids.shape[1]) >= answers.lengths[:, None]
    other = Answers(answers.ids.masked_fill(behind, 5), answers.answered)
    changed = assess(policy, reference, critic, other, scores, recipe)
    whole = ppo_loss(policy, critic, rollout, recipe)
    torch.testing.assert_close(ppo_loss(policy, critic, changed, recipe).mean, whole.mean)
    pieces = [ppo_loss(policy, critic, rollout.select(rows), recipe) for rows in torch.arange(3).split(2)]
    torch.testing.assert_close(sum(piece.totals[0] for piece in pieces), whole.totals[0])
    assert sum(int(piece.counts[0]) for piece in pieces) == int(whole.counts[0])


# ---- learning ----------------------------------------------------------------------------------------------------


def sample(policy: Gpt, count: int, seed: int) -> Answers:
    ids = torch.full((count, 1), 1)
    generator = torch.Generator().manual_seed(seed)
    return generated_answers(generate(policy, ids, max_new_tokens=4, stop=[EOS], generator=generator), 1)


def fives(answers: Answers) -> Tensor:
    """How many of an answer's tokens are 5."""
    return ((answers.ids == 5) & answers.answered).sum(dim=1).float()


@pytest.mark.usefixtures("unchecked")
def test_the_reward_rises_and_beta_holds_it_back() -> None:
    """A model that likes no token more than another learns to say 5; the larger β, the closer it stays."""
    torch.manual_seed(0)
    base = Gpt(VOCAB, SIZES).eval()
    rewards, divergences = {}, {}
    for beta in (0.0, 1.0):
        policy, critic = copy.deepcopy(base), ValueModel(copy.deepcopy(base))
        recipe = PpoRecipe(beta=beta, epochs=2, minibatch=32)
        optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=5e-3)
        for step in range(12):
            answers = sample(policy, 64, step)
            rollout = assess(policy, base, critic, answers, fives(answers), recipe)
            losses = ppo_update(policy, critic, optimizer, rollout, recipe)
        answers = sample(policy, 200, 999)
        with torch.no_grad():
            kl = exact_kl(policy(answers.ids), base(answers.ids))[:, :-1]
        rewards[beta] = fives(answers).mean().item()
        divergences[beta] = kl[answers.answered[:, 1:]].mean().item()
        assert len(losses) == 4
        assert all(map(math.isfinite, losses))
    start = fives(sample(base, 200, 999)).mean().item()
    assert rewards[0.0] > start + 1.5
    assert start < rewards[1.0] < rewards[0.0]
    assert divergences[1.0] < divergences[0.0] / 2


def test_an_update_changes_policy_and_critic_and_nothing_else(
    policy: Gpt, reference: Gpt, critic: ValueModel, answers: Answers
) -> None:
    recipe = PpoRecipe(epochs=3, minibatch=2)
    before = [copy.deepcopy(model.state_dict()) for model in (policy, reference, critic)]
    rollout = assess(policy, reference, critic, answers, torch.randn(3), recipe)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-2)
    losses = ppo_update(policy, critic, optimizer, rollout, recipe, generator=torch.Generator().manual_seed(0))
    assert len(losses) == 3 * 2
    changed = [
        any(not torch.equal(old[name], new) for name, new in model.state_dict().items())
        for old, model in zip(before, (policy, reference, critic), strict=True)
    ]
    assert changed == [True, False, True]
    assert not policy.training


# ---- refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": -0.1}, "beta is -0.1; expected 0 or more"),
        ({"gamma": 1.1}, "gamma is 1.1; expected 0 to 1"),
        ({"lam": -1.0}, "lam is -1.0; expected 0 to 1"),
        ({"clip": 0.0}, "clip is 0.0; expected more than 0"),
        ({"max_norm": math.nan}, "max_norm is nan; expected more than 0"),
        ({"value_weight": -1.0}, "value_weight is -1.0; expected 0 or more"),
        ({"epochs": 0}, "epochs is 0; expected 1 or more"),
        ({"minibatch": 0}, "minibatch is 0; expected 1 or more"),
    ],
)
def test_an_impossible_recipe_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PpoRecipe(**options)


@pytest.mark.parametrize("max_norm", [0.1, 1e6], ids=["clipped", "whole"])
def test_an_update_takes_the_steps_written_out(
    policy: Gpt, reference: Gpt, critic: ValueModel, answers: Answers, max_norm: float
) -> None:
    """w ← w − rate · g · min(1, max_norm / ‖g‖) with the gradient of that step alone, all answers in one minibatch."""
    recipe = PpoRecipe(epochs=3, minibatch=3, max_norm=max_norm)
    rollout = assess(policy, reference, critic, answers, torch.randn(3), recipe)
    pair = copy.deepcopy((policy, critic))
    weights = [*dict.fromkeys(weight for model in pair for weight in model.parameters())]
    for _ in range(3):
        gradients = torch.autograd.grad(ppo_loss(*pair, rollout, recipe).mean, weights, allow_unused=True)
        norm = math.sqrt(sum(float(each.square().sum()) for each in gradients if each is not None))
        for weight, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                weight.data -= 0.5 * min(1, max_norm / norm) * gradient
    optimizer = torch.optim.SGD([*dict.fromkeys([*policy.parameters(), *critic.parameters()])], lr=0.5)
    ppo_update(policy, critic, optimizer, rollout, recipe)
    for model, expected in zip((policy, critic), pair, strict=True):
        torch.testing.assert_close(model.state_dict(), expected.state_dict(), rtol=1e-3, atol=1e-4)
