"""What lesson 10 measures: the law of losses and its frontier, heads that copy."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tfbook.course.experiments import stored
from tfbook.data.text import Text
from tfbook.lessons.scaling_laws import figures, study
from tfbook.lessons.scaling_laws.study import Fit, Law
from tfbook.models import gpt
from tfbook.models.gpt import GPT2, Gpt
from tfbook.text import Windows
from tfbook.training.optimizers import orthogonal

pytestmark = pytest.mark.usefixtures("float32")

TINY = replace(GPT2, d_model=32, heads=2, d_ff=64, layers=2, max_length=64, dropout=0.0)


@pytest.fixture
def text() -> Text:
    """The alphabet again and again, so that one character says what comes next."""
    return Text.split("letters", "abcdefghijklmnopqrstuvwxyz" * 400)


# ---- loss against parameters and tokens --------------------------------------------------------------------------

LAW = Law(E=0.9, A=8.0, alpha=0.3, B=60.0, beta=0.35)


def losses(law: Law, *, noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """The rows that `scaling` would return if the law held."""
    generator = np.random.default_rng(seed)
    config = [gpt.matrix_count(0, study.small(*shape)) for shape in study.SHAPES]
    rows = [
        (n, d, s, law.loss(n, d) * math.exp(noise * generator.standard_normal()))
        for s, n, d in product((1, 2), config, study.TOKENS)
    ]
    return pd.DataFrame(rows, columns=["parameters", "tokens", "seed", "loss"])


def test_the_grid_spans_what_a_study_of_scaling_needs() -> None:
    config = [gpt.matrix_count(0, study.small(*shape)) for shape in study.SHAPES]
    assert len(config) >= 4
    assert config[-1] / config[0] >= 20
    assert len(study.TOKENS) >= 4
    assert study.TOKENS[-1] / study.TOKENS[0] >= 8
    assert all(tokens % (study.BATCH * study.CONTEXT) == 0 for tokens in study.TOKENS)


def test_every_size_is_trained_on_every_number_of_tokens(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study.data, "load", lambda name: text)
    monkeypatch.setattr(study, "SHAPES", ((16, 1), (32, 2)))
    rows = study.scaling((1, 2), tokens=(4096, 32_768))
    found = [(row["seed"], row["width"], row["layers"], row["tokens"]) for row in rows]
    assert found == [(s, *shape, t) for t in (4096, 32_768) for s in (1, 2) for shape in ((16, 1), (32, 2))]
    assert {row["parameters"] for row in rows} == {12 * 16**2, 2 * 12 * 32**2}
    assert all(long["loss"] < short["loss"] for short, long in zip(rows[:4], rows[4:], strict=True))


def test_each_run_has_a_schedule_that_ends_with_it(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss on the way of a longer run is higher, since its learning rate has not come down yet."""
    seen = []
    fit = study.training.fit

    def spy(*arguments: Any, **options: Any) -> Any:
        seen.append(fit(*arguments, **options))
        return seen[-1]

    monkeypatch.setattr(study.training, "fit", spy)
    monkeypatch.setattr(study.data, "load", lambda name: text)
    monkeypatch.setattr(study, "SHAPES", ((16, 1),))
    study.scaling((1,), tokens=(30 * 1024, 50 * 1024))
    assert [history.steps for history in seen] == [30, 50]
    assert all(history.lr[-1] < 0.15 * max(history.lr) for history in seen)


def test_a_law_is_found_again() -> None:
    found = study.fit_scaling(losses(LAW), resamples=3)
    assert found.law == pytest.approx(LAW, rel=1e-3)
    assert all(law == pytest.approx(LAW, rel=1e-3) for law in found.resampled)


def test_one_bad_run_does_not_move_the_law() -> None:
    frame = losses(LAW)
    frame.loc[7, "loss"] *= 1.2
    assert study.fit_scaling(frame, resamples=1).law == pytest.approx(LAW, rel=0.02)


def test_intervals_hold_the_exponents_of_noisy_runs_and_narrow_with_the_noise() -> None:
    loud, quiet = (study.fit_scaling(losses(LAW, noise=noise, seed=3), resamples=60) for noise in (0.01, 0.001))
    low, high = loud.interval(lambda law: law.exponent)
    assert low < LAW.exponent < high
    near, far = quiet.interval(lambda law: law.exponent)
    assert far - near < 0.5 * (high - low)


def test_an_interval_leaves_out_a_twentieth() -> None:
    fit = Fit(LAW, [LAW._replace(E=float(i)) for i in range(201)])
    assert fit.interval(lambda law: law.E) == (5.0, 195.0)


@pytest.mark.parametrize("key", ["parameters", "tokens"])
def test_too_small_a_grid_has_no_law(key: str) -> None:
    frame = losses(LAW)
    two = sorted(frame[key].unique())[:2]
    with pytest.raises(ValueError, match=f"frame holds 2 different {key}; expected 3 or more"):
        study.fit_scaling(frame[frame[key].isin(two)])


def test_nothing_of_equal_cost_beats_the_optimum() -> None:
    cheap, expensive = LAW.optimum(1e10), LAW.optimum(1e12)
    for compute, (parameters, tokens) in ((1e10, cheap), (1e12, expensive)):
        assert 6 * parameters * tokens == pytest.approx(compute)
        others = [parameters * factor for factor in (0.5, 0.9, 1.1, 2)]
        assert all(LAW.loss(n, compute / 6 / n) > LAW.loss(parameters, tokens) for n in others)
    assert expensive[0] / cheap[0] == pytest.approx(100**LAW.exponent)


def test_sizes_are_counted_in_three_ways() -> None:
    frame = study.counted(pd.DataFrame([{"width": 16, "layers": 2}, {"width": 64, "layers": 4}]))
    assert frame["without"].tolist() == [2 * 12 * 16**2, 4 * 12 * 64**2]
    assert (frame["with"] - frame["without"]).tolist() == [study.KINDS * 16, study.KINDS * 64]
    attention = frame["work"] - frame["with"]
    assert attention.tolist() == [2 * 2 * study.CONTEXT * 16, 2 * 4 * study.CONTEXT * 64]


def test_a_budget_has_one_run_per_size_and_the_largest_reads_least() -> None:
    found = study.same_budget(study.counted(stored("scaling_laws.scaling").frame))
    assert len(found) == len(study.SHAPES)
    assert found["tokens"].tolist() == sorted(study.TOKENS, reverse=True)
    assert found["compute"].max() < 2 * found["compute"].min()
    assert found["compute"].idxmax() == found["loss"].idxmax() == len(found) - 1


def test_what_costs_nearly_a_budget_is_found_in_the_grid() -> None:
    """Costs of 0.8, 1.1 and 1.2 times the budget; the second has two seeds."""
    rows = [(100, 80, 3.0), (100, 110, 2.0), (100, 110, 1.0), (200, 60, 0.5)]
    frame = pd.DataFrame(rows, columns=["with", "tokens", "loss"])
    found = study.near_budget(frame, 6 * 100 * 100)
    assert found[["with", "tokens", "loss"]].to_numpy().tolist() == [[100, 110, 1.5]]
    assert found["cost"].tolist() == pytest.approx([1.1])
    assert len(study.near_budget(frame, 6 * 100 * 100, within=0.25)) == 3


def test_counting_more_work_brings_the_exponent_down() -> None:
    frame = study.counted(stored("scaling_laws.scaling").frame)
    found = study.claims_of_counting(frame, resamples=5)
    without, including, work = (found["exponents"][name][0] for name in ("without", "with", "work"))
    assert without > including > work > 0.5
    assert found["nearer"] > 0


def test_the_race_is_claimed_for_the_same_shape() -> None:
    rows = [{"by": "tfbook", "share": 0.1}, {"by": "tfbook, nanoGPT's shape", "share": 0.2}]
    assert study.claims_of_race(rows) == {5: 0.2}


# ---- directions of a gradient ------------------------------------------------------------------------------------


def test_directions_of_a_gradient_are_lifted() -> None:
    torch.manual_seed(0)
    G = torch.randn(12, 8) @ torch.diag(torch.logspace(-1.2, 0, 8))
    found = study.spectra(G, lambda x, steps: orthogonal(x[None], steps)[0])
    assert found.farthest < 0.4
    assert found.values.keys() == found.polynomial.keys()
    before, after = (found.values[name][1] for name in ("0 rounds", "5 rounds"))
    assert before[0] > 5 * before[-1]
    assert max(after) < 1.3
    s, y = found.polynomial["1 round"]
    assert y[-1] == pytest.approx(sum(study.QUINTIC), abs=1e-5)
    assert s[-1] == pytest.approx(1)


# ---- pictures ----------------------------------------------------------------------------------------------------


def with_range(N: float, D: float) -> tuple[float, float, float]:
    loss = LAW.loss(N, D)
    return loss, loss - 0.1, loss + 0.1


def test_every_picture_has_an_alt_text() -> None:
    runs = study.counted(stored("scaling_laws.scaling").frame)
    copying = study.copying_curves(stored("scaling_laws.induction").rows)
    found = study.spectra(torch.randn(6, 4), lambda x, steps: orthogonal(x[None], steps)[0])
    pictures = [
        figures.draw_budget(study.same_budget(runs)),
        figures.draw_budget(study.same_budget(runs), lambda N, D: 1 + 100 / N + 1e4 / D),
        figures.draw_power_law([1, 10, 100, 1000], [1.8, 1.4, 1.2, 1.1], [1.0, 0.8, 1.08]),
        figures.draw_six(torch.ones(2, 3), torch.ones(3), torch.ones(2)),
        figures.draw_directions(found.polynomial, found.values),
        figures.draw_rates({"Muon": {0.01: 2.0, 0.1: 1.0}, "AdamW": {0.01: 2.5, 0.1: 3.0}}),
        figures.draw_race(stored("scaling_laws.factors").rows),
        figures.draw_prediction(
            runs, with_range, {name: [0.01] * len(study.TOKENS) for name in ("law", "guess", "line")}
        ),
        figures.draw_frontier(runs, [1e10, 1e11], [(1e4, 2e5, 1.9), (3e4, 6e5, 1.6)]),
        figures.draw_circuit("wug dax wu"),
        figures.draw_head_maps("wug", {"head 1.1": torch.eye(3)}),
        figures.draw_copying(copying.losses, copying.looks),
    ]
    for figure, alt in pictures:
        assert figure.axes
        assert len(alt) > 40


def test_the_stored_runs_give_the_claims_of_heads_that_copy() -> None:
    copying = study.copying_curves(stored("scaling_laws.induction").rows)
    claims = copying.claims
    assert claims.keys() == {6, 7, 8}
    assert claims[6] > 0.4 > 0.1 > claims[7]
    assert claims[8] < 1.5
    assert copying.random["two blocks"] <= claims[8] < math.log(study.KINDS) < copying.random["one wide block"]


# ---- heads that copy ---------------------------------------------------------------------------------------------


def test_rows_read_their_first_tokens_again_and_again() -> None:
    windows = Windows(torch.arange(1000), length=65, size=200, seed=1)
    read = study.read_again(windows)
    ids = read(3)
    assert torch.equal(ids, read(3))
    assert not torch.equal(ids, read(4))
    periods = [row.tolist().index(row[0], 1) for row in ids]
    assert set(periods) == set(range(study.PERIODS[0], study.PERIODS[1] + 1))
    for row, before, period in zip(ids, windows(3), periods, strict=True):
        assert torch.equal(row[:period], before[:period])
        assert torch.equal(row[period:], row[:-period])


def test_random_rows_are_read_twice_and_hold_no_token_twice_before() -> None:
    """Of 60 tokens in the text, the 48 most frequent."""
    ids = torch.cat([torch.arange(48).repeat(3), torch.arange(48, 60)])
    twice = study.random_twice(ids, count=50, seed=1)
    first, second = twice.chunk(2, dim=1)
    assert torch.equal(first, second)
    assert all(len(set(row)) == study.CONTEXT // 2 for row in first.tolist())
    assert set(twice.flatten().tolist()) == set(range(48))
    assert torch.equal(twice, study.random_twice(ids, count=50, seed=1))
    assert len({tuple(row) for row in twice.tolist()}) == 50


def test_the_score_is_the_weight_of_what_came_next_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of two heads: the first head of the second one looks where it should with 0.7 of its weight."""
    twice = study.random_twice(torch.arange(60), count=5, seed=1)
    weights = {name: torch.zeros(5, 2, 64, 64) for name in ("first", "second")}
    for query in range(1, 64):
        weights["first"][:, :, query, query - 1] = 1.0  # the token before
        weights["second"][:, 0, query, query - 31 if query >= 32 else 0] = 0.7
        weights["second"][:, 1, query, query - 32 if query >= 32 else 0] = 0.9  # the same token, not the next
    monkeypatch.setattr(study, "record", lambda model: nullcontext(weights))
    scores = study.heads_that_copy(Gpt(60, TINY), twice)
    assert scores == pytest.approx({"1.1": 0.0, "1.2": 0.0, "2.1": 0.7, "2.2": 0.0})


def test_a_head_that_looks_back_is_measured_at_its_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    twice, weights = study.random_twice(torch.arange(60), count=5, seed=1), torch.zeros(5, 1, 64, 64)
    weights[:, 0, torch.arange(1, 64), torch.arange(63)] = 0.8
    monkeypatch.setattr(study, "record", lambda model: nullcontext({"first": weights}))
    model = Gpt(60, TINY)
    assert study.heads_that_look_back(model, twice, 1) == pytest.approx({"1.1": 0.8})
    assert study.heads_that_look_back(model, twice, 2) == pytest.approx({"1.1": 0.0})


def test_the_loss_of_the_second_reading_leaves_its_first_token_out() -> None:
    """A model that is sure of what comes 32 places on, and knows nothing else."""
    twice = study.random_twice(torch.arange(60), count=5, seed=1)

    class Copies(Gpt):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*ids.shape, 60)
            logits[:, 32:] = 50.0 * torch.nn.functional.one_hot(ids[:, 1 : ids.shape[1] - 31], 60)
            return logits

    assert study.second_loss(Copies(60, TINY), twice) == pytest.approx(0.0, abs=1e-6)
    assert study.second_loss(Copies(60, TINY), twice.flip(0)) == pytest.approx(0.0, abs=1e-6)
    assert study.second_loss(Copies(60, TINY), torch.randint(60, (5, 64))) > 10


def test_an_untrained_head_looks_everywhere_alike() -> None:
    scores = study.heads_that_copy(Gpt(60, TINY).eval(), study.random_twice(torch.arange(60), count=20, seed=1))
    assert list(scores) == ["1.1", "1.2", "2.1", "2.2"]
    assert all(score == pytest.approx(1 / 48, abs=0.005) for score in scores.values())


def test_early_losses_come_before_any_repetition_and_late_ones_after() -> None:
    """A model that says each token with the probability of its place: 1/2 at first, 1/4 in the end."""
    ids = torch.zeros(3, 65, dtype=torch.int64)
    share = torch.full((64,), 0.9)
    share[4:7], share[-16:] = 0.5, 0.25

    class Placed(Gpt):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.stack([share, 1 - share], dim=-1).log().expand(len(ids), -1, -1)

    found = study.early_and_late(Placed(2, TINY), ids)
    assert found == pytest.approx({"early": math.log(2), "late": math.log(4)})


def test_both_models_have_a_curve_of_each_head(monkeypatch: pytest.MonkeyPatch, text: Text) -> None:
    monkeypatch.setattr(study.data, "load", lambda name: text)
    monkeypatch.setattr(study, "FREQUENT", 26)
    monkeypatch.setattr(study, "CONTEXT", 48)
    monkeypatch.setattr(study, "PERIODS", (4, 24))
    rows = study.induction((1,), steps=4)
    assert [(row["layers"], row["width"], row["seed"]) for row in rows] == [(2, 64, 1), (1, 64, 1), (1, 88, 1)]
    for row in rows:
        heads = {f"{block}.{head}" for block in range(1, row["layers"] + 1) for head in range(1, 5)}
        named = {f"{what} {head}" for what in ("copies", "looks back") for head in heads}
        assert all(named | {"step", "early", "late", "random"} <= point.keys() for point in row["curve"])
        assert [point["step"] for point in row["curve"]] == [1, 2, 3, 4]
