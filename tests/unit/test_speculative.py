"""Speculative decoding: the large model's distribution, exactly and in samples; the counts and the formulas."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from scipy.stats import chisquare
from torch import Tensor, nn

from tfbook.attention import POSITIONS
from tfbook.generation import sampling
from tfbook.generation.frozen import Frozen
from tfbook.generation.speculative import (
    CachedModel,
    Passes,
    Speculation,
    accept,
    expected_speedup,
    expected_tokens,
    overlap,
    residual,
    roll_back,
)
from tfbook.models.gpt import GPT2, Gpt
from tfbook.models.language_model import BidirectionalModel, LanguageModel

VOCAB = 5
SIZES = replace(GPT2, d_model=16, heads=2, d_ff=24, layers=2, max_length=40, dropout=0.3)

pytestmark = pytest.mark.usefixtures("float32")


def drawn(seed: int, vocab: int = VOCAB, **choices: Any) -> LanguageModel:
    """Untrained and lively."""
    torch.manual_seed(seed)
    model = Gpt(vocab, replace(SIZES, **choices))
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.25)
    return model


class Table(LanguageModel):
    """A model whose logits depend on the last token alone, and are looked up."""

    def __init__(self, logits: Tensor):
        super().__init__(len(logits), replace(SIZES, dropout=0.0))
        self.logits = logits

    def forward(self, ids: Tensor, *, cache: Any = None) -> Tensor:
        if cache is not None:
            cache.length += ids.shape[1]
        return self.logits[ids]


def tables(distance: float) -> tuple[Table, Table]:
    """A large model and its draft."""
    torch.manual_seed(0)
    logits = torch.randn(VOCAB, VOCAB)
    return Table(logits), Table(logits + distance * torch.randn(VOCAB, VOCAB))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Two distributions over a few tokens, with zeros."""
    vocab = draw(st.integers(2, 6))
    counts = st.lists(st.integers(0, 5), min_size=vocab, max_size=vocab).filter(any)
    p, q = (torch.tensor(draw(counts), dtype=torch.float64) for _ in range(2))
    return p / p.sum(), q / q.sum()


# ---- the rule, by exact enumeration --------------------------------------------------------------------------------


@given(pairs())
def test_one_step_has_exactly_the_large_models_distribution(pair: tuple[Tensor, Tensor]) -> None:
    """Over all proposals, and over u by the length of the interval in which it accepts: Σ is p."""
    p, q = pair
    total, rejected = torch.zeros_like(p), 0.0
    for token, chance in enumerate(q.tolist()):
        accepted = min(1.0, float(p[token] / q[token])) if chance else 0.0
        total[token] += chance * accepted
        rejected += chance * (1 - accepted)
    torch.testing.assert_close(total + rejected * residual(p, q), p)
    assert math.isclose(1 - rejected, float(overlap(p, q)), abs_tol=1e-12)
    assert math.isclose(float(overlap(p, q)), 1 - float((p - q).abs().sum()) / 2, abs_tol=1e-12)


@given(pairs(), st.integers(0, 99))
def test_a_proposal_is_accepted_below_the_ratio(pair: tuple[Tensor, Tensor], percent: int) -> None:
    p, q = pair
    for token in q.nonzero().flatten().tolist():
        assert accept(p, q, token, percent / 100) == (percent / 100 < float(p[token]) / float(q[token]))


@given(pairs())
def test_the_residual_is_a_distribution_without_what_was_proposed_too_often(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    rest = residual(p, q)
    assert math.isclose(float(rest.sum()), 1, abs_tol=1e-9)
    if not torch.equal(p, q):
        assert not rest[p <= q].any()
    assert torch.equal(residual(p, p), p)


# ---- texts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("k", [1, 4])
def test_greedy_is_greedy(position: str, k: int) -> None:
    """Token for token, with a draft that is often wrong, and frozen."""
    model, draft = drawn(0, position=position), drawn(1, layers=1, position=position)
    for large, small in ((model, draft), (Frozen(model), Frozen(draft))):
        for start in (0, 3):
            ids = torch.tensor([[start, 2]])
            expected = sampling.generate(large, ids, max_new_tokens=12, filters=[sampling.greedy])
            speculation = Speculation(large, small, k=k)
            found = speculation.generate(ids, max_new_tokens=12, filters=[sampling.greedy])
            assert torch.equal(found, expected)
            assert 0 <= speculation.passes.acceptance < 1


@pytest.mark.parametrize("stop", range(VOCAB))
def test_a_stop_token_ends_the_text(stop: int) -> None:
    model, draft, ids = drawn(3), drawn(4), torch.tensor([[1]])
    options: dict[str, Any] = {"max_new_tokens": 20, "filters": [sampling.greedy], "stop": [stop]}
    assert torch.equal(Speculation(model, draft).generate(ids, **options), sampling.generate(model, ids, **options))


FILTERS: dict[str, list[sampling.Filter]] = {
    "all": [],
    "filtered": [sampling.repetition_penalty(1.5), sampling.temperature(1.3), sampling.top_k(3)],
}


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("distance", [0.3, 2.0], ids=["near", "far"])
@pytest.mark.usefixtures("unchecked")
def test_samples_have_the_large_models_distribution(filters: str, distance: float) -> None:
    """Chi-square over all texts of three tokens, whose probabilities are enumerated by the model alone."""
    (model, small), ids, count = tables(distance), torch.tensor([[1, 2]]), 1200
    speculation, generator = Speculation(model, small, k=2), torch.Generator().manual_seed(0)
    found = dict.fromkeys(product(range(VOCAB), repeat=3), 0)
    for _ in range(count):
        options: dict[str, Any] = {"max_new_tokens": 3, "filters": FILTERS[filters], "generator": generator}
        found[tuple(speculation.generate(ids, **options)[0, 2:].tolist())] += 1
    wanted = {text: enumerated(model, [1, 2, *text], FILTERS[filters]) for text in found}
    assert math.isclose(sum(wanted.values()), 1, abs_tol=1e-5)
    assert not any(count for text, count in found.items() if wanted[text] == 0)
    likely = [text for text in found if wanted[text] * count >= 5]
    observed = [found[text] for text in likely] + [count - sum(found[text] for text in likely)]
    expected = [count * wanted[text] for text in likely]
    expected.append(count - sum(expected))
    if expected[-1] < 5:  # too few for the test: with the smallest of the others
        observed, expected = [*observed[:-2], sum(observed[-2:])], [*expected[:-2], sum(expected[-2:])]
    assert chisquare(observed, expected).pvalue > 0.001


@torch.no_grad()
def enumerated(model: LanguageModel, text: list[int], filters: list[sampling.Filter]) -> float:
    """p of the last three tokens, from whole passes without a cache."""
    probability = 1.0
    for end in range(len(text) - 3, len(text)):
        ids = torch.tensor([text[:end]])
        logits = model(ids)[:, -1]
        for keep in filters:
            logits = keep(logits, ids)
        probability *= float(logits.softmax(dim=-1)[0, text[end]])
    return probability


def test_a_wrong_rule_is_found_by_the_same_test() -> None:
    """Accepting everything samples from the draft; redrawing from p instead of the residual is biased towards q."""
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.3, 0.5])
    accepted = torch.minimum(p, q)
    assert not torch.allclose(accepted + (1 - accepted.sum()) * p, p)
    torch.testing.assert_close(accepted + (1 - accepted.sum()) * residual(p, q), p)


def test_the_learners_rule_runs() -> None:
    model, calls = drawn(0), []

    def never(p: Tensor, q: Tensor, proposed: int, u: float) -> bool:
        calls.append(proposed)
        return False

    speculation = Speculation(model, drawn(1), k=3, accept=never, residual=lambda p, q: p)
    speculation.generate(torch.tensor([[1]]), max_new_tokens=6, generator=torch.Generator().manual_seed(0))
    assert len(calls) == 5  # the last pass has no token to propose
    assert speculation.passes == Passes(passes=6, proposed=12, judged=5, accepted=0, tokens=6)


# ---- counts and formulas -------------------------------------------------------------------------------------------


def test_a_model_that_drafts_for_itself_is_always_accepted() -> None:
    """k + 1 tokens per pass."""
    model = drawn(0)
    speculation = Speculation(model, model, k=4)
    text = speculation.generate(torch.tensor([[1]]), max_new_tokens=20, generator=torch.Generator().manual_seed(0))
    assert text.shape == (1, 21)
    assert speculation.passes == Passes(passes=4, proposed=16, judged=16, accepted=16, tokens=20)
    assert speculation.passes.acceptance == 1
    assert speculation.passes.tokens_per_pass == 5


class Constant:
    """A draft without a model: the same logits after every text."""

    def __init__(self, logits: Tensor):
        self.logits = logits

    def read(self, text: Tensor, last: int = 1) -> Tensor:
        return self.logits.expand(last, -1)


@pytest.mark.usefixtures("unchecked")
def test_acceptance_and_tokens_per_pass_are_those_of_the_theorems() -> None:
    """α = Σ min(p, q) and (1 − α^(k + 1)) / (1 − α), where both hold by assumption: tokens are independent."""
    p, q, k = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6]), 3
    speculation = Speculation(Table(p.log().expand(3, -1)), Constant(q.log()), k=k)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        speculation.generate(torch.tensor([[1]]), max_new_tokens=39, generator=generator)
    alpha = float(overlap(p, q))
    assert math.isclose(alpha, 0.6, abs_tol=1e-6)
    assert abs(speculation.passes.acceptance - alpha) < 0.03
    assert abs(speculation.passes.tokens_per_pass - expected_tokens(alpha, k)) < 0.1


@given(st.floats(0, 0.99), st.integers(0, 12))
def test_expected_tokens_is_the_closed_form(alpha: float, k: int) -> None:
    assert math.isclose(expected_tokens(alpha, k), (1 - alpha ** (k + 1)) / (1 - alpha), rel_tol=1e-9)
    assert expected_tokens(1.0, k) == k + 1
    assert expected_speedup(alpha, k, 0.0) == expected_tokens(alpha, k)


def test_expected_speedup_by_hand() -> None:
    """α = 0.8, k = 2: 1 + 0.8 + 0.64 = 2.44 tokens for two steps of the draft and a pass that takes 1.2."""
    assert math.isclose(expected_speedup(0.8, 2, 0.1, 1.2), 2.44 / 1.4)


@pytest.mark.parametrize(("alpha", "k"), [(-0.1, 2), (1.1, 2), (0.5, -1)])
def test_impossible_rates_are_refused(alpha: float, k: int) -> None:
    with pytest.raises(ValueError, match=f"acceptance is {alpha} and k is {k}; expected 0 ≤ acceptance ≤ 1 and k ≥ 0"):
        expected_tokens(alpha, k)


def test_nothing_was_counted_yet() -> None:
    assert math.isnan(Passes().acceptance)
    assert math.isnan(Passes().tokens_per_pass)


# ---- caches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("make", [lambda model: model, Frozen], ids=["model", "frozen"])
def test_a_cache_forgets_what_was_rejected(position: str, make: Any) -> None:
    model = make(drawn(0, position=position).eval())
    reader = CachedModel(model)
    text = torch.randint(VOCAB, (1, 12))
    with torch.no_grad():
        reader.read(text[:, :8], 3)
        changed = torch.cat([text[:, :6], (text[:, 6:] + 1) % VOCAB], dim=1)
        torch.testing.assert_close(reader.read(changed, 6), model(changed)[0, -6:], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(reader.read(changed, 1), model(changed)[0, -1:], atol=1e-5, rtol=1e-5)


def test_more_than_the_cache_holds_cannot_stay() -> None:
    with pytest.raises(ValueError, match="length is 1; expected 0 to 0, the positions of the cache"):
        roll_back(drawn(0).new_cache(), 1)


# ---- refused -------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused() -> None:
    model, ids = drawn(0), torch.tensor([[1]])
    with pytest.raises(ValueError, match="k is 0"):
        Speculation(model, model, k=0)
    with pytest.raises(ValueError, match="draft has a vocabulary of 4 tokens; expected the model's, 5"):
        Speculation(model, drawn(0, vocab=4))
    with pytest.raises(ValueError, match="ids holds 2 texts; expected one"):
        Speculation(model, model).generate(ids.expand(2, -1), max_new_tokens=2)
    with pytest.raises(ValueError, match="the model has learned 8"):
        Speculation(model, drawn(0, max_length=8)).generate(ids, max_new_tokens=9)
    with pytest.raises(ValueError, match="model is a bidirectional BidirectionalModel"):
        Speculation(BidirectionalModel(VOCAB, SIZES), model).generate(ids, max_new_tokens=2)
    forbid = lambda logits, ids: torch.full_like(logits, -torch.inf)  # noqa: E731
    with pytest.raises(ValueError, match="expected filters that leave one token"):
        Speculation(model, model).generate(ids, max_new_tokens=2, filters=[forbid])


def test_the_modes_are_as_before() -> None:
    model, draft = drawn(0).train(), drawn(1).eval()
    text = Speculation(model, draft).generate(torch.tensor([[1]]), max_new_tokens=3)
    assert model.training
    assert not draft.training
    assert not text.is_inference()
