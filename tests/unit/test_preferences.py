"""Answers and their log-probabilities, reward models, Bradley and Terry's loss, DPO, and the best of n."""

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from tfbook.attention import Prefix
from tfbook.course.invariants import TOLERANCE, future_leak, idle_key_biases, missing_gradients, round_trip_gap
from tfbook.generation.best_of_n import best_of_n, best_of_n_kl, expected_best
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt
from tfbook.models.reward import RewardModel, ValueModel
from tfbook.text import EOS, PAD, Answers, Comparison, generated_answers, join_answers
from tfbook.training import (
    Recipe,
    answer_log_probs,
    answer_loss,
    bradley_terry_loss,
    dpo_loss,
    fit,
    implied_rewards,
    log_probs,
    next_token_loss,
)

pytestmark = pytest.mark.usefixtures("float32")

VOCAB = 9
SIZES = Config(d_model=8, heads=2, d_ff=12)
NUMBERS = st.floats(-5, 5)


@pytest.fixture
def model() -> Gpt:
    torch.manual_seed(1)
    found = Gpt(VOCAB, SIZES)
    for parameter in found.parameters():
        nn.init.normal_(parameter, std=0.5)
    return found.eval()


@pytest.fixture
def answers() -> Answers:
    """Of different lengths, so that both prompts and padding are there."""
    return join_answers([[1, 4, 5], [1, 6], [1]], [[7, EOS], [4, 4, 8, EOS], [5]])


# ---- answers -----------------------------------------------------------------------------------------------------


def test_answers_say_which_tokens_are_whose(answers: Answers) -> None:
    assert answers.ids.tolist() == [[1, 4, 5, 7, EOS, PAD], [1, 6, 4, 4, 8, EOS], [1, 5, PAD, PAD, PAD, PAD]]
    assert answers.answered.int().tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 1, 1, 1, 1], [0, 1, 0, 0, 0, 0]]
    assert answers.lengths.tolist() == [5, 6, 2]
    assert answers.prompts.tolist() == [3, 2, 1]
    assert len(answers) == 3
    kept = answers.select(torch.tensor([2, 0]))
    assert kept.ids.tolist() == [answers.ids[2].tolist(), answers.ids[0].tolist()]
    assert kept.lengths.tolist() == [2, 5]
    moved = Comparison(answers, kept).to("cpu")
    assert torch.equal(moved.rejected.ids, kept.ids)


def test_a_generated_answer_ends_with_its_first_stop() -> None:
    """The stop itself belongs to it, its repetitions do not; one in the prompt is no end."""
    ids = torch.tensor([[EOS, 1, 5, EOS, EOS], [1, 1, 5, 6, 7], [1, 1, EOS, EOS, EOS]])
    found = generated_answers(ids, 2)
    assert found.answered.int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 1, 0, 0]]
    assert found.lengths.tolist() == [4, 5, 3]


@pytest.mark.parametrize(("prompts", "answered"), [([[1]], []), ([[1], [1]], [[2], []]), ([[]], [[2]])])
def test_a_missing_prompt_or_answer_is_refused(prompts: list, answered: list) -> None:
    with pytest.raises(ValueError, match="expected as many, each of one token or more"):
        join_answers(prompts, answered)


# ---- log-probabilities -------------------------------------------------------------------------------------------


def test_log_probabilities_are_those_of_the_softmax(model: Gpt, answers: Answers) -> None:
    """Token by token; of an answer they are summed, whatever stands in the padding."""
    with torch.no_grad():
        p = model(answers.ids).softmax(dim=-1)
        found = log_probs(model, answers.ids)
        sums = answer_log_probs(model, answers)
        for row in range(3):
            own = [
                math.log(p[row, t - 1, answers.ids[row, t]]) if answers.answered[row, t] else None for t in range(1, 6)
            ]
            for t, value in enumerate(own):
                assert value is None or value == pytest.approx(found[row, t].item(), abs=1e-5)
            assert sums[row].item() == pytest.approx(sum(value for value in own if value is not None), abs=1e-5)
        other = Answers(answers.ids.masked_fill(answers.ids == PAD, 3), answers.answered)
        torch.testing.assert_close(answer_log_probs(model, other), sums)


def test_the_probabilities_of_all_answers_sum_to_one(model: Gpt) -> None:
    """Of every two tokens after a prompt."""
    every = [list(pair) for pair in itertools.product(range(VOCAB), repeat=2)]
    with torch.no_grad():
        found = answer_log_probs(model, join_answers([[1, 4]] * len(every), every))
    assert found.exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_fine_tuning_counts_answers_alone(model: Gpt, answers: Answers) -> None:
    """With a prompt of one token it is the loss of language modeling."""
    loss = answer_loss(model, answers)
    assert int(loss.counts[0]) == 2 + 4 + 1
    torch.testing.assert_close(loss.totals[0], -answer_log_probs(model, answers).sum())
    whole = join_answers([[1], [1]], [[4, 5, EOS], [6, EOS]])
    torch.testing.assert_close(answer_loss(model, whole).mean, next_token_loss(model, whole.ids, pad=PAD).mean)


def test_a_prompt_may_be_read_both_ways(model: Gpt, answers: Answers) -> None:
    """A prefix language model: a prompt's tokens see all of it, an answer's see no later one; a cache is the same."""
    mask = Prefix(answers.prompts)
    read = lambda ids: model.unembed(model.stack(model.embed(ids), mask))  # noqa: E731
    with torch.no_grad():
        before = read(answers.ids)
        for place in range(1, answers.ids.shape[1]):
            ids = answers.ids.clone()
            ids[:, place] = 3
            seen = (read(ids) - before).abs().amax(dim=2) > 1e-4
            inside = (place < answers.prompts)[:, None]
            assert torch.equal(seen, inside | (torch.arange(seen.shape[1]) >= place))
        row = answers.ids[:1]
        model.mask = Prefix(answers.prompts[:1])
        cache = model.new_cache()
        pieces = [model(piece, cache=cache) for piece in row.split([3, 1, 2], dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), before[:1], atol=1e-5, rtol=1e-5)


def test_demonstrations_are_learned(model: Gpt, answers: Answers) -> None:
    history = fit(model, answer_loss, lambda step: answers, Recipe(steps=60, lr=0.02))
    assert history.loss[-1] < 0.1 < 1 < history.loss[0]


# ---- rewards -----------------------------------------------------------------------------------------------------


def test_a_reward_is_read_at_the_last_token(model: Gpt, answers: Answers) -> None:
    """From what stands before it alone: padding changes nothing; every parameter learns; a copy computes the same."""
    rewards = RewardModel(copy.deepcopy(model))
    found = rewards(answers.ids, answers.lengths)
    for row, length in enumerate(answers.lengths.tolist()):
        alone = answers.ids[row : row + 1, :length]
        torch.testing.assert_close(rewards(alone, torch.tensor([length])), found[row : row + 1])
        hidden = rewards.value.stack(rewards.value.embed(alone), model.mask)[0, -1]
        torch.testing.assert_close(rewards.value.head(hidden), found[row : row + 1])
    assert round_trip_gap(rewards, lambda m: m(answers.ids, answers.lengths)) <= TOLERANCE
    idle = idle_key_biases(rewards)
    assert missing_gradients(rewards, lambda m: m(answers.ids, answers.lengths).sin().sum(), idle) == 0


def test_a_value_sees_no_later_token(model: Gpt) -> None:
    values = ValueModel(copy.deepcopy(model))
    assert future_leak(values, torch.randint(VOCAB, (2, 6)), VOCAB) <= TOLERANCE


def test_a_head_begins_small_and_leaves_the_body_alone(model: Gpt) -> None:
    """It takes the body as it is, and not the matrix of the output."""
    values = ValueModel(model)
    assert values.embed is model.embed
    assert values.stack is model.stack
    assert not values.head.bias.any()
    wide = ValueModel(Gpt(3, Config(d_model=1024, heads=1, d_ff=2, layers=1)))
    assert wide.head.weight.std().item() == pytest.approx(1 / 32, rel=0.1)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([5, 6], "lengths holds 2 numbers; expected one for each of 3 texts"),
        ([5, 6, 0], "lengths run from 0 to 6; expected 1 to 6, the width of ids"),
        ([5, 7, 1], "lengths run from 1 to 7; expected 1 to 6"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_impossible_lengths_are_refused(model: Gpt, answers: Answers, lengths: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardModel(model)(answers.ids, torch.tensor(lengths))


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5))
@settings(max_examples=50)
def test_bradley_and_terry_by_their_formula(pairs: list[tuple[float, float, float]]) -> None:
    """−log of e^r₁ / (e^r₁ + e^r₂), in float64; only differences count."""
    chosen, rejected, shift = torch.tensor(pairs).T
    loss = bradley_terry_loss(chosen, rejected)
    expected = sum(-math.log(math.exp(a) / (math.exp(a) + math.exp(b))) for a, b, _ in pairs)
    assert loss.totals[0].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert loss.counts == [len(pairs)]
    moved = bradley_terry_loss(chosen + shift, rejected + shift)
    torch.testing.assert_close(moved.mean, loss.mean, atol=1e-5, rtol=1e-5)


def test_far_apart_rewards_overflow_nothing() -> None:
    far = torch.tensor([1000.0])
    assert bradley_terry_loss(far, -far).mean == 0
    assert bradley_terry_loss(-far, far).mean == 2000


def test_a_reward_model_learns_an_order_from_pairs() -> None:
    """Texts with more 7s are preferred; pairs that it has not seen are ranked right."""
    torch.manual_seed(0)
    rewards = RewardModel(Gpt(VOCAB, SIZES))

    def pairs(seed: int) -> Comparison:
        ids = torch.randint(4, VOCAB, (2, 64, 6), generator=torch.Generator().manual_seed(seed))
        sevens = (ids == 7).sum(dim=2)
        ids[:, sevens[0] == sevens[1]] = torch.tensor([[7, 4, 4, 4, 4, 4], [4] * 6])[:, None]
        swap = (sevens[0] < sevens[1])[:, None]
        both = torch.where(swap, ids[1], ids[0]), torch.where(swap, ids[0], ids[1])
        return Comparison(*(Answers(each, torch.ones_like(each, dtype=torch.bool)) for each in both))

    def scores(model: RewardModel, batch: Comparison) -> tuple[Tensor, Tensor]:
        sides = (batch.chosen, batch.rejected)
        chosen, rejected = (model(side.ids, side.lengths) for side in sides)
        return chosen, rejected

    fit(rewards, lambda m, batch: bradley_terry_loss(*scores(m, batch)), pairs, Recipe(steps=100, lr=0.01))
    with torch.no_grad():
        chosen, rejected = scores(rewards, pairs(10**6))
    assert (chosen > rejected).float().mean() >= 0.9


# ---- direct preference optimization ------------------------------------------------------------------------------


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5), st.floats(0.01, 2))
@settings(max_examples=50)
def test_dpo_by_its_formula(pairs: list[tuple[float, float, float, float]], beta: float) -> None:
    """−log σ(β log π(w)/π_ref(w) − β log π(l)/π_ref(l)) (Rafailov et al., 2023, equation 7), in float64."""
    loss = dpo_loss(*torch.tensor(pairs).T, beta=beta)
    expected = sum(math.log1p(math.exp(-(beta * (w - ref_w) - beta * (x - ref_x)))) for w, x, ref_w, ref_x in pairs)
    assert loss.totals[0].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert loss.counts == [len(pairs)]


def test_dpos_gradient_is_the_papers() -> None:
    """−β σ(r_l − r_w) for the chosen and its negative for the rejected (section 4), with r implied."""
    chosen, rejected = (torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    reference = torch.randn(2, 4, dtype=torch.float64)
    dpo_loss(chosen, rejected, *reference, beta=0.3).totals[0].backward()
    r_w, r_l = (implied_rewards(*each, beta=0.3) for each in zip((chosen, rejected), reference, strict=True))
    expected = -0.3 * torch.sigmoid(r_l - r_w).detach()
    torch.testing.assert_close(chosen.grad, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(rejected.grad, -expected, atol=1e-6, rtol=1e-6)


def test_dpo_of_the_reference_itself_is_ln_2() -> None:
    x, y = torch.randn(2, 5)
    assert dpo_loss(x, y, x, y, beta=0.1).mean.item() == pytest.approx(math.log(2))


def test_the_implied_rewards_optimum_is_the_model() -> None:
    """π ∝ π_ref e^{r/β} for r = β log π/π_ref (equations 4 and 5)."""
    policy, reference = torch.randn(2, 6, dtype=torch.float64).log_softmax(dim=1)
    reward = implied_rewards(policy, reference, beta=0.7)
    torch.testing.assert_close((reference + reward / 0.7).softmax(dim=0), policy.exp())


def test_dpo_prefers_what_was_preferred(model: Gpt, answers: Answers) -> None:
    """The chosen answers become likelier against the reference than the rejected ones; the reference stays."""
    reference = copy.deepcopy(model)
    rejected = join_answers([[1, 4, 5], [1, 6], [1]], [[8, EOS], [5, EOS], [6]])

    def loss(policy: Gpt, batch: Comparison) -> object:
        sides = (batch.chosen, batch.rejected)
        with torch.no_grad():
            base = [answer_log_probs(reference, side) for side in sides]
        return dpo_loss(*(answer_log_probs(policy, side) for side in sides), *base, beta=0.5)

    history = fit(model, loss, lambda step: Comparison(answers, rejected), Recipe(steps=40, lr=0.01))
    assert history.loss[0] == pytest.approx(math.log(2), abs=1e-4)
    assert history.loss[-1] < 0.2


def test_a_beta_is_positive() -> None:
    x = torch.zeros(1)
    with pytest.raises(ValueError, match="beta is 0; expected more than 0"):
        dpo_loss(x, x, x, x, beta=0)


# ---- best of n ---------------------------------------------------------------------------------------------------


def test_the_best_of_n_is_kept(model: Gpt) -> None:
    """Of each prompt's own answers; with n = 1 it is the sample itself."""
    prompts = torch.tensor([[1, 4], [1, 5], [1, 6]])
    sevens = lambda answers: ((answers.ids == 7) & answers.answered).sum(dim=1).float()  # noqa: E731
    best = best_of_n(model, prompts, sevens, 8, max_new_tokens=5, generator=torch.Generator().manual_seed(0))
    assert best.scores.shape == (3, 8)
    assert torch.equal(best.answers.ids[:, :2], prompts)
    torch.testing.assert_close(sevens(best.answers), best.scores.amax(dim=1))
    assert best.scores.amax(dim=1).mean() > best.scores.mean()
    single = best_of_n(model, prompts, sevens, 1, max_new_tokens=5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(sevens(single.answers), single.scores[:, 0])


@pytest.mark.parametrize("n", [1, 2, 4, 16])
def test_the_divergence_of_the_best_of_n(n: int) -> None:
    """Of N = 4,000 answers, equally likely and different in reward, the k-th best has (k/N)ⁿ − ((k−1)/N)ⁿ."""
    size = 4000
    ranks = torch.arange(size + 1, dtype=torch.float64) / size
    p = (ranks**n).diff()
    assert (p * (p * size).log()).nansum().item() == pytest.approx(best_of_n_kl(n), abs=0.01)


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.integers(1, 6))
@settings(max_examples=50)
def test_the_expected_best_is_the_mean_over_all_choices(scores: list[float], n: int) -> None:
    n = min(n, len(scores))
    choices = [max(chosen) for chosen in itertools.combinations(scores, n)]
    found = expected_best(torch.tensor([scores], dtype=torch.float64), n)
    assert found.item() == pytest.approx(sum(choices) / len(choices))


def test_an_impossible_n_is_refused(model: Gpt) -> None:
    with pytest.raises(ValueError, match="n is 4; expected 1 to 3, the number of scores"):
        expected_best(torch.zeros(1, 3), 4)
    for function in (best_of_n_kl, lambda n: best_of_n(model, torch.ones(1, 1).long(), len, n, max_new_tokens=1)):
        with pytest.raises(ValueError, match="n is 0; expected 1 or more"):
            function(0)


@pytest.mark.parametrize("start", [1, 3])
@pytest.mark.parametrize("stop", [EOS, 7])
def test_an_answer_ends_with_its_first_stop(start: int, stop: int) -> None:
    """Written as a loop over the tokens; a stop in the prompt ends nothing."""
    ids = torch.randint(9, (20, 8))
    ids[:, 0] = stop
    found = generated_answers(ids, start, stop=stop).answered
    for row, answered in zip(ids.tolist(), found.tolist(), strict=True):
        end = next((time + 1 for time in range(start, 8) if row[time] == stop), 8)
        assert answered == [start <= time < end for time in range(8)]
