"""Losses at the extremes, against float64 and limits by hand, gradients included; and ids of every integer type."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.special import log_softmax, softmax
from torch import Tensor, nn

from tfbook.generation.best_of_n import best_of_n, expected_best
from tfbook.generation.sampling import generate, repetition_penalty
from tfbook.generation.search import beam_search, greedy_search
from tfbook.models.bert import BERT, Bert, BertForPretraining, MaskedLanguageModel
from tfbook.models.bert_variants import Electra
from tfbook.models.blocks import Config
from tfbook.models.experts import gates, load_balance, top_experts
from tfbook.models.gpt import Gpt
from tfbook.models.reward import RewardModel, ValueModel
from tfbook.models.seq2seq import BahdanauDecoder, RecurrentEncoder, Seq2SeqConfig, Translator
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.text import Answers, join_answers
from tfbook.text.masking import IGNORE_INDEX, Masked
from tfbook.training import (
    PpoRecipe,
    Rollout,
    answer_log_probs,
    answer_loss,
    assess,
    clipped_objective,
    distillation_loss,
    electra_loss,
    exact_kl,
    generalized_advantages,
    hard_distillation,
    log_probs,
    masked_loss,
    masked_token_loss,
    next_token_loss,
    penalized_rewards,
    ppo_loss,
    pretraining_loss,
    soft_distillation,
    token_log_probs,
)

pytestmark = pytest.mark.usefixtures("float32")

INF = torch.inf
LOGITS = st.lists(st.sampled_from([-INF, -1e4, -200.0, -3.0, 0.0, 0.5, 4.0, 90.0, 1e4]), min_size=4, max_size=4).filter(
    lambda row: max(row) > -INF
)


def log_ratios(p: list[float], q: list[float]) -> np.ndarray:
    """log p − log q of the softmaxes in float64, and 0 where p is 0."""
    log_p, log_q = log_softmax(p), log_softmax(q)
    return np.subtract(log_p, log_q, out=np.zeros(len(p)), where=softmax(p) > 0)


def divergence(p: list[float], q: list[float]) -> float:
    """KL of the softmaxes in float64, 0 log 0 being 0."""
    a = softmax(p)
    return float(np.sum(np.multiply(a, log_ratios(p, q), out=np.zeros(len(p)), where=a > 0)))


# ---- divergences -------------------------------------------------------------------------------------------------


def test_a_token_that_both_rule_out_adds_nothing_to_a_divergence() -> None:
    """Value and gradient are those without the token, whose own gradient is 0."""
    p, q = torch.randn(2, 3, 5)
    ruled_out = torch.full((3, 1), -INF)
    for loss in (lambda p, q: exact_kl(p, q).sum(), lambda p, q: distillation_loss(q, p, temperature=1.5).mean):
        small = [x.clone().requires_grad_() for x in (p, q)]
        large = [torch.cat([x, ruled_out], dim=1).requires_grad_() for x in (p, q)]
        expected, found = loss(*small), loss(*large)
        torch.testing.assert_close(found, expected)
        expected.backward()
        found.backward()
        for wide, narrow in zip(large, small, strict=True):
            if narrow.grad is not None:  # a teacher has none
                torch.testing.assert_close(wide.grad, torch.cat([narrow.grad, torch.zeros(3, 1)], dim=1))


@given(p=LOGITS, q=LOGITS)
def test_divergences_at_the_extremes_are_those_in_float64(p: list[float], q: list[float]) -> None:
    """Infinite where q rules out what p does not; the student's gradient is softmax(q) − softmax(p) all the same."""
    expected = divergence(p, q)
    if any(math.isinf(b) and 0 < share < 1e-37 for b, share in zip(q, softmax(p), strict=True)):
        return  # a share that float32 rounds to 0
    student = torch.tensor([q], requires_grad=True)
    loss = distillation_loss(student, torch.tensor([p]), temperature=1.0).mean
    assert loss.item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert exact_kl(torch.tensor([p]), torch.tensor([q])).item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    loss.backward()
    np.testing.assert_allclose(student.grad[0].numpy(), softmax(q) - softmax(p), atol=1e-6)


@given(p=LOGITS, q=LOGITS)
def test_the_gradient_of_a_finite_divergence_is_finite_on_both_sides(p: list[float], q: list[float]) -> None:
    """Σ_v p(v) (log p(v) − log q(v) − KL) on the side of p, by hand in float64."""
    kl = divergence(p, q)
    if math.isinf(kl):
        return
    policy = torch.tensor([p], requires_grad=True)
    exact_kl(policy, torch.tensor([q])).sum().backward()
    np.testing.assert_allclose(policy.grad[0].numpy(), softmax(p) * (log_ratios(p, q) - kl), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_term_with_weight_0_adds_nothing_be_it_infinite(share: float) -> None:
    """The head that does not count rules out the label that is right."""
    impossible, possible = torch.tensor([[-INF, 0.0]]), torch.tensor([[0.3, 0.1]], requires_grad=True)
    heads = (possible, impossible) if share == 0 else (impossible, possible)
    loss = soft_distillation(heads, torch.tensor([0]), torch.tensor([[2.0, 0.0]]), share=share).mean
    assert loss.isfinite()
    loss.backward()
    assert possible.grad.isfinite().all()


def test_without_a_penalty_the_reward_is_the_score_whatever_the_reference_says() -> None:
    """β = 0 and a reference that rules the token out."""
    answered = torch.tensor([[False, True, True]])
    kl = torch.tensor([[torch.nan, INF, 0.5]])
    assert penalized_rewards(torch.tensor([2.0]), kl, answered, beta=0.0).tolist() == [[0.0, 0.0, 2.0]]
    assert penalized_rewards(torch.tensor([-INF]), 0 * kl.nan_to_num(0, 0), answered, beta=1.0).tolist() == [
        [0.0, 0.0, -INF]
    ]


def test_the_best_of_a_pool_with_answers_of_no_worth_is_that_of_those_chosen() -> None:
    """A score of −∞ has no share where n answers hold a better one for certain."""
    found = expected_best(torch.tensor([[1.0, -INF, 3.0]]), 2)
    assert found.item() == pytest.approx(1 / 3 * 1.0 + 2 / 3 * 3.0)
    assert expected_best(torch.tensor([[1.0, -INF, 3.0]]), 1).item() == -INF


# ---- ratios ------------------------------------------------------------------------------------------------------


@given(
    log_ratio=st.sampled_from([-1e30, -500.0, -89.0, -0.3, -0.1, 0.0, 0.1, 0.3, 80.0, 89.0, 500.0, 1e30, INF]),
    advantage=st.sampled_from([-2.0, -1e-3, 0.0, 1e-3, 2.0]),
    clip=st.sampled_from([0.2, 0.5, 10.0]),
)
def test_the_clipped_objective_at_the_extremes(log_ratio: float, advantage: float, clip: float) -> None:
    """With the limits by hand; a ratio beyond float32 is infinite, which counts for a negative advantage alone."""
    new = torch.tensor([log_ratio], requires_grad=True)
    found = clipped_objective(new, torch.zeros(1), torch.tensor([advantage]), clip=clip)
    ratio = math.exp(log_ratio) if log_ratio < 88.7 else INF
    held = min(ratio, 1 + clip) if advantage > 0 else max(ratio, 1 - clip)
    assert found.item() == pytest.approx(advantage * held if advantage else 0.0, rel=1e-5)
    found.sum().backward()
    assert new.grad.item() == pytest.approx(advantage * ratio if advantage and held == ratio else 0.0, rel=1e-5)


class Said(nn.Module):
    """The same logits for whatever it reads."""

    def __init__(self, logits: Tensor):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, ids: Tensor) -> Tensor:
        return self.logits[:, : ids.shape[1]]


def test_a_prompt_that_the_policy_rules_out_does_not_spoil_its_answer() -> None:
    """Its log-probability is −∞, and its ratio 0/0: neither counts."""
    answers = join_answers([[1, 3]], [[2, 0]])
    logits = torch.randn(1, 3, 4)
    logits[0, 0, 3] = -INF
    policy, critic = Said(logits), Said(torch.zeros(1, 3))
    expected = torch.log_softmax(logits, dim=-1)[0, [1, 2], [2, 0]].sum()
    torch.testing.assert_close(answer_log_probs(policy, answers)[0], expected)
    rollout = assess(policy, Said(logits.clone()), critic, answers, torch.ones(1), PpoRecipe())
    assert rollout.kl.isfinite().all()
    for loss in (answer_loss(policy, answers).mean, ppo_loss(policy, critic, rollout, PpoRecipe()).mean):
        policy.zero_grad()
        loss.backward()
        assert loss.isfinite()
        assert policy.logits.grad.isfinite().all()
        assert not policy.logits.grad[0, 0].any()
        assert policy.logits.grad[0, 1:].any()


def test_a_ratio_outside_the_answer_may_overflow() -> None:
    """A token of the prompt that the policy has since learned to say, e^200 times as probable."""
    answers = join_answers([[1, 3]], [[2, 0]])
    policy, critic = Said(torch.zeros(1, 3, 4)), Said(torch.zeros(1, 3))
    old = torch.tensor([[-200.0, math.log(0.25), math.log(0.25)]])
    rollout = Rollout(answers, old, torch.zeros(1, 3), torch.tensor([[-1.0, 1.0, -1.0]]), torch.zeros(1, 3))
    loss = ppo_loss(policy, critic, rollout, PpoRecipe()).mean
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert policy.logits.grad.isfinite().all()


def test_what_stands_outside_the_answer_reaches_no_advantage() -> None:
    """As a divergence of −∞ − −∞ at a prompt."""
    answered = torch.tensor([[False, True, True, False]])
    rewards, values = torch.tensor([[torch.nan, 1.0, 2.0, INF]]), torch.tensor([[INF, 0.5, 0.25, torch.nan]])
    found = generalized_advantages(rewards, values, answered, gamma=1.0, lam=1.0)
    assert found.tolist() == [[0.0, 2.5, 1.75, 0.0]]


# ---- best of n ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [[0.0, torch.nan, 1.0, 2.0]])
def test_a_score_that_is_nan_is_refused(scores: list[float]) -> None:
    """It would count as the best."""
    model = Gpt(9, Config(d_model=8, heads=2, d_ff=8))
    with pytest.raises(ValueError, match="score returned NaN for answer 1; expected numbers to compare"):
        best_of_n(model, torch.ones(2, 3, dtype=torch.int64), lambda answers: torch.tensor(scores), 2, max_new_tokens=2)


def test_scores_of_another_number_are_refused() -> None:
    model = Gpt(9, Config(d_model=8, heads=2, d_ff=8))
    with pytest.raises(ValueError, match=r"score returned shape \(3,\); expected \(4,\), one for each answer"):
        best_of_n(model, torch.ones(2, 3, dtype=torch.int64), lambda answers: torch.ones(3), 2, max_new_tokens=2)


# ---- ids of other integer types ----------------------------------------------------------------------------------

SIZES = Config(d_model=8, heads=2, d_ff=8, layers=1)
BIDIRECTIONAL = replace(BERT, d_model=8, heads=2, d_ff=8, layers=1, max_length=9, dropout=0.0)
IDS, LENGTHS, LABELS = torch.tensor([[4, 5, 6], [5, 6, 0]]), torch.tensor([3, 2]), torch.tensor([0, 1])
TARGETS = torch.tensor([[4, IGNORE_INDEX, IGNORE_INDEX], [IGNORE_INDEX, 6, IGNORE_INDEX]])
ANSWERS = join_answers([[1, 4, 5], [1]], [[4, 2], [4]])
Convert = Callable[[Tensor], Tensor]


def translators() -> list[Any]:
    config = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8)
    recurrent = Translator(RecurrentEncoder(config), BahdanauDecoder(config))
    return [recurrent, Transformer(Encoder(9, SIZES), Decoder(9, SIZES))]


def rollout(policy: Gpt, to: Convert) -> Rollout:
    answers = Answers(to(ANSWERS.ids), ANSWERS.answered)
    return assess(policy, Gpt(9, SIZES), ValueModel(Gpt(9, SIZES)), answers, torch.ones(2), PpoRecipe())


def electra() -> Electra:
    return Electra(MaskedLanguageModel(Bert(9, BIDIRECTIONAL)), Bert(9, BIDIRECTIONAL))


HEADS = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
LOGITS_OF_IDS = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(0))
ON_IDS: dict[str, Callable[[Convert], Any]] = {
    "next_token_loss": lambda to: next_token_loss(Gpt(9, SIZES), to(IDS), pad=0).mean,
    "masked_token_loss": lambda to: masked_token_loss(LOGITS_OF_IDS[0], to(IDS[0])).mean,
    "masked_loss": lambda to: (
        masked_loss(MaskedLanguageModel(Bert(9, BIDIRECTIONAL)), Masked(to(IDS), to(TARGETS)), to(LENGTHS)).mean
    ),
    "pretraining_loss": lambda to: (
        pretraining_loss(
            BertForPretraining(Bert(9, BIDIRECTIONAL)),
            Masked(to(IDS), to(TARGETS)),
            to(LENGTHS),
            to(torch.zeros_like(IDS)),
            to(LABELS),
        ).mean
    ),
    "electra_loss": lambda to: electra_loss(electra(), Masked(to(IDS), to(TARGETS)), to(LENGTHS)).mean,
    "hard_distillation": lambda to: hard_distillation((HEADS[0], HEADS[1]), to(LABELS), HEADS[2]).mean,
    "soft_distillation": lambda to: soft_distillation((HEADS[0], HEADS[1]), to(LABELS), HEADS[2]).mean,
    "token_log_probs": lambda to: token_log_probs(LOGITS_OF_IDS, to(IDS)),
    "log_probs": lambda to: log_probs(Gpt(9, SIZES), to(IDS)),
    "answer_loss": lambda to: answer_loss(Gpt(9, SIZES), Answers(to(ANSWERS.ids), ANSWERS.answered)).mean,
    "ppo_loss": lambda to: (
        ppo_loss(policy := Gpt(9, SIZES), ValueModel(Gpt(9, SIZES)), rollout(policy, to), PpoRecipe()).mean
    ),
    "reward": lambda to: RewardModel(Gpt(9, SIZES))(to(IDS), to(LENGTHS)),
    "generate": lambda to: generate(
        Gpt(9, SIZES), to(IDS), max_new_tokens=3, stop=[2], filters=[repetition_penalty(1.3)]
    ),
    "greedy_search": lambda to: [greedy_search(m, to(IDS), to(LENGTHS), max_length=3).tokens for m in translators()],
    "beam_search": lambda to: [beam_search(m, to(IDS), to(LENGTHS), max_length=3).tokens for m in translators()],
    "gates": lambda to: gates((routes := top_experts(LOGITS_OF_IDS[0], 2))._replace(chosen=to(routes.chosen)), 1),
    "load_balance": lambda to: load_balance(
        (routes := top_experts(LOGITS_OF_IDS[0], 2))._replace(chosen=to(routes.chosen))
    ),
}


@pytest.mark.parametrize("compute", ON_IDS.values(), ids=ON_IDS)
def test_ids_of_32_bits_do_as_those_of_64(compute: Callable[[Convert], Any]) -> None:
    """The signatures allow any integers, and embeddings take both."""
    torch.manual_seed(0)
    expected = compute(Tensor.long)
    torch.manual_seed(0)
    torch.testing.assert_close(compute(Tensor.int), expected)
