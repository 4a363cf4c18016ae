"""The training loop: schedules, recipe, history, evaluation, stopping, and what it refuses."""

import json
import math
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention.positions import POSITIONS
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt
from tfbook.models.seq2seq import LuongDecoder, RecurrentEncoder, Seq2SeqConfig, Translator
from tfbook.text import BOS, PAD, Batch
from tfbook.training import (
    History,
    Loss,
    LossFunction,
    NonFiniteLoss,
    Recipe,
    constant,
    decay_groups,
    fit,
    inverse_sqrt,
    load_checkpoint,
    next_token_loss,
    running_mean,
    translation_loss,
    warmup_cosine,
)

pytestmark = pytest.mark.usefixtures("float32")

ROOT = Path(__file__).parents[2]
TRUTH = torch.tensor([[1.0, -2.0, 0.5]])


def model_of(seed: int = 0) -> nn.Module:
    """A line with dropout on its inputs, so that each step draws random numbers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Dropout(0.2), nn.Linear(3, 1))


def batches(step: int) -> Tensor:
    """Sixteen points of `TRUTH`, other ones at every step."""
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(step))
    return torch.cat([x, x @ TRUTH.T], dim=1)


def squared_error(model: nn.Module, batch: Tensor) -> Tensor:
    return (model(batch[:, :3]) - batch[:, 3:]).pow(2).mean()


# ---- schedules and recipe ----------------------------------------------------------------------------------------


def test_the_constant_schedule_is_one() -> None:
    assert [constant(step, 10) for step in range(10)] == [1.0] * 10


@given(warmup=st.integers(0, 20), final=st.floats(0, 1), steps=st.integers(1, 60))
def test_warmup_cosine_is_its_closed_form(warmup: int, final: float, steps: int) -> None:
    """A ramp that ends at 1, then half a cosine that starts at 1 and never rises."""
    factor = warmup_cosine(warmup, final)
    values = [factor(step, steps) for step in range(steps)]
    for step, value in enumerate(values):
        if step < warmup:
            expected = (step + 1) / warmup
        else:
            expected = final + (1 - final) / 2 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
        assert value == pytest.approx(expected, abs=1e-12)
    falling = values[max(0, warmup - 1) :]
    assert falling == sorted(falling, reverse=True)
    if steps > warmup:
        assert factor(steps, steps) == pytest.approx(final)


@pytest.mark.parametrize(("warmup", "final"), [(-1, 0.1), (10, -0.1), (10, 1.1), (10, math.nan)])
def test_warmup_cosine_refuses_bad_arguments(warmup: int, final: float) -> None:
    with pytest.raises(ValueError, match=f"warmup is {warmup} and final is {final}; expected warmup ≥ 0 and 0 ≤ final"):
        warmup_cosine(warmup, final)


@given(warmup=st.integers(1, 40), d_model=st.integers(1, 512), steps=st.integers(1, 100))
def test_inverse_sqrt_is_the_paper_s_schedule(warmup: int, d_model: int, steps: int) -> None:
    """Vaswani et al. (2017), equation 3, once √(d_model · warmup) is taken out; the peak is 1, at t = warmup."""
    factor = inverse_sqrt(warmup)
    for step in range(steps):
        paper = d_model**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)
        assert factor(step, steps) * (d_model * warmup) ** -0.5 == pytest.approx(paper, rel=1e-12)
    values = [factor(step, steps) for step in range(2 * warmup)]
    assert max(values) == values[warmup - 1] == 1
    assert values[:warmup] == sorted(values[:warmup])
    assert values[warmup - 1 :] == sorted(values[warmup - 1 :], reverse=True)


@pytest.mark.parametrize("warmup", [0, -3])
def test_inverse_sqrt_refuses_a_warm_up_without_steps(warmup: int) -> None:
    with pytest.raises(ValueError, match=f"warmup is {warmup}; expected 1 or more steps"):
        inverse_sqrt(warmup)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps is 0; expected more than 0"),
        ({"lr": -1e-3}, "lr is -0.001; expected more than 0"),
        ({"lr": math.nan}, "lr is nan; expected more than 0"),
        ({"clip": 0.0}, "clip is 0.0; expected more than 0"),
        ({"evaluate_every": 0}, "evaluate_every is 0; expected more than 0"),
        ({"checkpoint_every": -5}, "checkpoint_every is -5; expected more than 0"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1; expected 0 or more"),
        ({"embedding_decay_factor": -1}, "embedding_decay_factor is -1; expected 0 or more"),
        ({"accumulate": 0}, "accumulate is 0; expected more than 0"),
        ({"rms": 0.0}, "rms is 0.0; expected more than 0"),
        ({"momentum": 1.0}, "momentum is 1.0; expected 0 ≤ momentum < 1"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; expected 'adamw' or 'muon'"),
    ],
    ids=str,
)
def test_a_recipe_names_the_number_that_is_impossible(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**({"steps": 10} | change))


# ---- the loss and the groups of the optimizer --------------------------------------------------------------------


class Says(nn.Module):
    """A translator with the same logits whatever it reads."""

    def __init__(self, logits: Tensor):
        super().__init__()
        self.logits = logits

    def forward(self, *read: Tensor) -> "Says":
        return self


def words(targets: Tensor) -> Batch:
    """A batch with these targets, of which the rest does not matter."""
    ones = torch.ones(len(targets), dtype=torch.int64)
    return Batch(source=ones[:, None], source_lengths=ones, target_in=targets, target_out=targets, target_lengths=ones)


@given(
    rows=st.integers(2, 4),
    vocab=st.integers(2, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.5, 0.99]),
    time=st.integers(1, 4),
)
def test_a_smoothed_loss_is_its_formula(rows: int, time: int, vocab: int, smoothing: float) -> None:
    """Total, count and gradient, with targets that do not count (Szegedy et al., 2016, section 7)."""
    logits = torch.randn(rows, time, vocab, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(vocab, (rows, time))
    targets[0], targets[1] = PAD, 1
    found = translation_loss(Says(logits), words(targets), smoothing=smoothing)
    q = (1 - smoothing) * F.one_hot(targets, vocab) + smoothing / vocab
    expected = -(q * logits.log_softmax(dim=-1)).sum(dim=-1)[targets != PAD].mean()
    torch.testing.assert_close(found.mean, expected.float(), atol=1e-5, rtol=1e-5)
    assert found.counts == [(targets != PAD).sum()]
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (found.mean, expected)]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)


def test_smoothing_is_computed_in_single_precision() -> None:
    """Under autocast logits come in bfloat16, in which 1,000 probabilities would not sum to 1."""
    logits, targets = torch.randn(4, 1, 1000), torch.arange(1, 5)[:, None]
    coarse = logits.bfloat16()
    found = translation_loss(Says(coarse), words(targets), smoothing=0.1).mean
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, F.cross_entropy(coarse[:, 0].float(), targets[:, 0], label_smoothing=0.1))


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, math.nan])
def test_a_smoothing_outside_zero_to_one_is_refused(smoothing: float) -> None:
    with pytest.raises(ValueError, match=f"smoothing is {smoothing}; expected 0 ≤ smoothing < 1"):
        translation_loss(Says(torch.zeros(1, 1, 3)), words(torch.tensor([[1]])), smoothing=smoothing)


def test_a_loss_of_two_terms_is_the_sum_of_two_means() -> None:
    """Each over its own count, and 0 where that is 0."""
    first, second = Loss(torch.tensor(6.0), 4), Loss(torch.tensor(5.0), torch.tensor(2))
    assert (first + second).mean == first.mean + second.mean == 4
    assert (first + second + first).mean == 5.5
    assert (first + Loss(torch.tensor(0.0), 0)).mean == 1.5
    assert (first + second).over([12, 10]) == 1


def test_fit_shrinks_matrices_alone() -> None:
    """A loss that depends on nothing leaves the weight decay: a factor 1 − lr · decay a step."""
    model = nn.Linear(3, 2)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    fit(model, lambda model, x: 0 * model(x[:, :3]).sum(), batches, Recipe(steps=3, lr=0.1, weight_decay=0.5))
    torch.testing.assert_close(model.weight, nn.Parameter(before["weight"] * (1 - 0.1 * 0.5) ** 3))
    assert torch.equal(model.bias, before["bias"])


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_tied_embedding_shrinks_by_its_factor(optimizer: str) -> None:
    """A loss that depends on nothing leaves 1 − lr · decay · factor; the positions are no such embedding."""
    torch.manual_seed(1)
    model = Gpt(9, Config(d_model=8, heads=2, d_ff=16, layers=1, position=POSITIONS["learned"]))
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    recipe = Recipe(steps=1, lr=0.1, weight_decay=0.5, embedding_decay_factor=0.2, optimizer=optimizer)
    fit(model, lambda model, ids: 0 * model(ids).sum(), lambda step: torch.arange(8)[None], recipe)
    kept = {name: 0.95 if weight.ndim >= 2 else 1.0 for name, weight in before.items()} | {"embed.weight": 0.99}
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight, nn.Parameter(kept[name] * before[name]))


# ---- what a run does and writes down -----------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_tied_embedding_learns_faster_by_its_factor(optimizer: str) -> None:
    """The first step of Adam is lr · sign(gradient)."""
    torch.manual_seed(1)
    model = Gpt(9, Config(d_model=8, heads=2, d_ff=16, layers=1))
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    recipe = Recipe(steps=1, lr=1e-3, embedding_lr_factor=4, optimizer=optimizer)
    fit(model, next_token_loss, lambda step: torch.arange(8)[None], recipe)
    moved = {name: (weight - before[name]).abs().max().item() for name, weight in model.named_parameters()}
    assert moved["embed.weight"] == pytest.approx(4e-3, rel=0.01)
    assert moved["stack.norm.weight"] == pytest.approx(1e-3, rel=0.01)


def test_fit_is_adamw_with_clipping_and_schedule() -> None:
    """Against PyTorch's own loop, step for step: weights, losses, rates and norms."""
    betas = (0.8, 0.98)
    recipe = Recipe(steps=12, lr=0.1, schedule=warmup_cosine(3), betas=betas, weight_decay=0.01, clip=0.5)
    found, expected = model_of(), model_of()
    torch.manual_seed(1)
    history = fit(found, squared_error, batches, recipe)
    torch.manual_seed(1)
    shrinking = {"params": [expected[1].weight], "weight_decay": 0.01}
    staying = {"params": [expected[1].bias], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([shrinking, staying], lr=0.1, betas=betas)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.schedule(step, 12))
    for step in range(12):
        optimizer.zero_grad()
        value = squared_error(expected, batches(step))
        value.backward()
        norm = nn.utils.clip_grad_norm_(expected.parameters(), 0.5)
        assert history.loss[step] == pytest.approx(value.item(), rel=1e-5)
        assert history.grad_norm[step] == pytest.approx(norm.item(), rel=1e-5)
        assert history.lr[step] == pytest.approx(scheduler.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        scheduler.step()
    torch.testing.assert_close(found.state_dict(), expected.state_dict())
    assert history.steps == 12
    assert not history.interrupted
    assert max(history.grad_norm) > 0.5, "nothing was clipped, so the test says nothing about clipping"


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_of_several_batches_is_a_step_of_one_large_batch(optimizer: str) -> None:
    """In double precision, losses, norms and weights of three batches a step are those of one batch of their size."""
    texts = torch.randint(9, (50, 4, 6))

    def trained(read: Callable[[int], Tensor], accumulate: int) -> tuple[History, nn.Module]:
        torch.manual_seed(0)
        model = Gpt(9, Config(d_model=8, heads=2, d_ff=12)).double()
        options = {"clip": 0.3, "weight_decay": 0.1, "schedule": warmup_cosine(2), "optimizer": optimizer}
        return fit(model, next_token_loss, read, Recipe(steps=5, lr=0.05, accumulate=accumulate, **options)), model

    history, small = trained(lambda number: texts[number], 3)
    expected, large = trained(lambda step: texts[3 * step : 3 * step + 3].flatten(0, 1), 1)
    assert history.loss == pytest.approx(expected.loss, rel=1e-6)
    assert history.grad_norm == pytest.approx(expected.grad_norm, rel=1e-6)
    assert max(history.grad_norm) > 0.3, "nothing was clipped, so the norm might be that of a part"
    torch.testing.assert_close(small.state_dict(), large.state_dict(), rtol=0, atol=1e-6)


def pairs(lengths: Sequence[int]) -> Batch:
    """Sentences of three words, each with a target of so many tokens; one row is the same whatever its neighbors."""
    tokens = [torch.randint(4, 9, [length], generator=torch.Generator().manual_seed(length)) for length in lengths]
    target = nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=PAD)
    source = torch.tensor(lengths)[:, None] % torch.tensor([2, 3, 5]) + 4
    return Batch(
        source=source,
        source_lengths=torch.full([len(lengths)], 3),
        target_in=F.pad(target, (1, -1), value=BOS),
        target_out=target,
        target_lengths=torch.tensor(lengths),
    )


def both_terms(model: nn.Module, batch: Batch) -> Loss:
    """A loss of two terms: the one counts tokens and the other sentences."""
    first = model(batch.source, batch.source_lengths, batch.target_in).logits[:, 0, :].float()
    return translation_loss(model, batch) + Loss(first.square().sum(), len(first))


def shared_weight(model: nn.Module, batch: Batch) -> Loss:
    """Two terms, the second of which has a gradient in one weight alone."""
    return translation_loss(model, batch) + Loss(
        model.encoder.embed.weight[batch.source].square().sum(), batch.source.numel()
    )


@pytest.mark.parametrize(
    "loss", [translation_loss, partial(translation_loss, smoothing=0.1), both_terms, shared_weight]
)
@pytest.mark.parametrize("lengths", [(1, 1, 12, 12), (2, 7, 3, 1)], ids=str)
def test_batches_of_uneven_length_make_one_mean(loss: LossFunction, lengths: tuple[int, ...]) -> None:
    """A token of a short batch counts no more than one of a long batch: Σ total / Σ count, not a mean of means."""

    def trained(read: Callable[[int], Batch], accumulate: int) -> tuple[History, nn.Module]:
        torch.manual_seed(0)
        config = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8, dropout=0.0)
        model = Translator(RecurrentEncoder(config), LuongDecoder(config)).double()
        return fit(model, loss, read, Recipe(steps=3, lr=0.01, accumulate=accumulate, clip=1e9)), model

    history, uneven = trained(lambda number: pairs(lengths[2 * (number % 2) :][:2]), 2)
    expected, whole = trained(lambda step: pairs(lengths), 1)
    assert history.loss == pytest.approx(expected.loss, rel=1e-6)
    assert history.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    torch.testing.assert_close(uneven.state_dict(), whole.state_dict(), rtol=0, atol=1e-6)


def test_fit_reports_after_each_evaluation_what_the_checkpoint_will_hold(tmp_path: Path) -> None:
    """So that a report can add to the row of that evaluation."""
    seen = []

    def report(history: History) -> None:
        seen.append((history.steps, len(history.evaluations)))
        history.evaluations[-1]["extra"] = float(history.steps)

    path, recipe = tmp_path / "run.pt", Recipe(steps=5, evaluate_every=2)
    fit(model_of(), squared_error, batches, recipe, evaluate=lambda m: {"one": 1.0}, checkpoint=path, report=report)
    assert seen == [(2, 1), (4, 2), (5, 3)]
    again = fit(model_of(), squared_error, batches, recipe, checkpoint=path)
    assert again.curve("extra") == ([2, 4, 5], [2.0, 4.0, 5.0])


def test_fit_finds_the_weights_of_a_line() -> None:
    """A regression without noise: loss near 0, weights near the truth, model in eval mode."""
    model = nn.Sequential(nn.Linear(3, 1))
    history = fit(model, squared_error, batches, Recipe(steps=300, lr=0.05))
    assert history.loss[-1] < 1e-3 < history.loss[0]
    torch.testing.assert_close(model[0].weight.data, TRUTH, atol=0.05, rtol=0)
    assert not model.training


def test_seconds_count_training_and_leave_evaluation_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only moves when a batch is made (2 s) or the model evaluated (100 s)."""
    now = 0.0
    monkeypatch.setattr(training.loop.time, "perf_counter", lambda: now)

    def slow_batches(step: int) -> Tensor:
        nonlocal now
        now += 2
        return batches(step)

    def slow_evaluation(model: nn.Module) -> dict[str, float]:
        nonlocal now
        now += 100
        return {"error": 0.0}

    history = fit(model_of(), squared_error, slow_batches, Recipe(steps=3, evaluate_every=1), evaluate=slow_evaluation)
    assert history.seconds == [2, 4, 6]
    assert [row["seconds"] for row in history.evaluations] == [2, 4, 6]
    assert history.elapsed == 6


@pytest.mark.parametrize(
    ("steps", "every", "expected"), [(10, 5, [5, 10]), (7, 3, [3, 6, 7]), (2, 100, [2])], ids=["even", "rest", "once"]
)
def test_the_model_is_evaluated_every_so_often_and_at_the_end(steps: int, every: int, expected: list[int]) -> None:
    """In eval mode, without gradients, and never twice for one step."""
    seen = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        seen.append((model.training, torch.is_grad_enabled()))
        return {"error": float(len(seen))}

    recipe = Recipe(steps=steps, evaluate_every=every)
    history = fit(model_of(), squared_error, batches, recipe, evaluate=evaluate)
    assert [row["step"] for row in history.evaluations] == expected
    assert seen == [(False, False)] * len(expected)
    assert history.curve("error") == (expected, [float(i + 1) for i in range(len(expected))])
    assert history.curve("error", against="seconds")[0] == [history.seconds[step - 1] for step in expected]


def test_evaluation_does_not_change_the_training() -> None:
    """Whatever it draws or seeds, the dropout of the next step is what it would have been."""

    def evaluate(model: nn.Module) -> dict[str, float]:
        runtime.seed(3)
        return {"noise": torch.rand(()).item() + random.random() + float(np.random.rand())}  # noqa: NPY002

    runtime.seed(5)
    plain = fit(model_of(), squared_error, batches, Recipe(steps=6))
    runtime.seed(5)
    evaluated = fit(model_of(), squared_error, batches, Recipe(steps=6, evaluate_every=1), evaluate=evaluate)
    assert evaluated.loss == plain.loss


def test_a_curve_names_what_was_evaluated() -> None:
    history = History(evaluations=[{"step": 1, "seconds": 0.1, "bleu": 3.0, "loss": 1.0}])
    with pytest.raises(KeyError, match="metric 'blue' was never evaluated; known: bleu, loss"):
        history.curve("blue")
    with pytest.raises(KeyError, match="metric 'bleu' was never evaluated; known: none"):
        History().curve("bleu")


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [nn.Tanh(), nn.Linear(3, 1).requires_grad_(False)], ids=["none", "frozen"])
def test_a_model_without_weights_to_train_is_refused(model: nn.Module) -> None:
    with pytest.raises(ValueError, match=f"model {type(model).__name__} has nothing to train; expected parameters"):
        fit(model, squared_error, batches, Recipe(steps=1))


def test_frozen_weights_stay_as_they_are() -> None:
    model = model_of()
    model[1].bias.requires_grad_(False)
    before = model[1].bias.clone()
    fit(model, squared_error, batches, Recipe(steps=3, weight_decay=0.1))
    assert torch.equal(model[1].bias, before)


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda model, x: model(x[:, :3]), r"a Tensor of shape \(16, 1\), requires_grad True"),
        (lambda model, x: x.mean(), r"a Tensor of shape \(\), requires_grad False"),
        (lambda model, x: squared_error(model, x).item(), "a float"),
        (lambda model, x: Loss(x.mean(), 1), r"a Loss of a Tensor of shape \(\), requires_grad False"),
    ],
    ids=["not one number", "no weights in it", "no tensor", "no weights in a Loss"],
)
def test_a_loss_that_cannot_be_minimized_is_refused(loss: LossFunction, found: str) -> None:
    with pytest.raises(
        ValueError, match=rf"loss returned {found}; expected a Loss, or a Tensor of shape \(\), that depends on"
    ):
        fit(model_of(), loss, batches, Recipe(steps=1))


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=str)
def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(value: float) -> None:
    """With the history up to there, and the weights of the step before."""
    model = model_of()

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        return squared_error(model, batch) * (value if batch.sum() == batches(4).sum() else 1.0)

    torch.manual_seed(1)
    with pytest.raises(NonFiniteLoss, match=f"the loss is {value} at step 5") as caught:
        fit(model, loss, batches, Recipe(steps=10))
    torch.manual_seed(1)
    until_then = model_of()
    torch.manual_seed(1)
    assert caught.value.history.loss == fit(until_then, squared_error, batches, Recipe(steps=4)).loss
    torch.testing.assert_close(model.state_dict(), until_then.state_dict(), rtol=0, atol=0)


def test_a_gradient_that_is_not_finite_stops_the_run_before_it_spoils_the_weights() -> None:
    """√0 is finite and its slope is not: the loss would be NaN one step later, the checkpoint spoilt by then."""
    model = model_of()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(NonFiniteLoss, match="the norm of the gradient is nan at step 1") as caught:
        fit(model, lambda m, batch: (0 * m(batch[:, :3])).sum().sqrt(), batches, Recipe(steps=10))
    assert caught.value.history.steps == 0
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


# ---- the stop button ---------------------------------------------------------------------------------------------


def _stopping(step: int, times: int = 1) -> Callable[[int], Tensor]:
    """Batches that press stop while `step` is being trained."""

    def stop_there(number: int) -> Tensor:
        if number + 1 == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        return batches(number)

    return stop_there


def test_stop_ends_the_run_after_the_step_with_everything_kept(tmp_path: Path) -> None:
    """The step is finished, evaluated and saved; the same call then goes on to the end."""
    path, recipe, model = tmp_path / "run.pt", Recipe(steps=8), model_of()
    handler = signal.getsignal(signal.SIGINT)
    history = fit(model, squared_error, _stopping(3), recipe, evaluate=lambda m: {"one": 1.0}, checkpoint=path)
    assert history.interrupted
    assert history.steps == 3
    assert [row["step"] for row in history.evaluations] == [3]
    assert signal.getsignal(signal.SIGINT) is handler
    resumed = fit(model_of(1), squared_error, batches, recipe, checkpoint=path)
    assert not resumed.interrupted
    assert resumed.steps == 8
    assert resumed.loss[:3] == history.loss


def test_stop_during_an_evaluation_loses_no_step(tmp_path: Path) -> None:
    """The evaluation of step 4 is interrupted: one more step, and that one is saved."""
    path, presses = tmp_path / "run.pt", iter([True])

    def evaluate(model: nn.Module) -> dict[str, float]:
        if next(presses, False):
            signal.raise_signal(signal.SIGINT)
        return {"one": 1.0}

    recipe = Recipe(steps=8, evaluate_every=4)
    history = fit(model_of(), squared_error, batches, recipe, evaluate=evaluate, checkpoint=path)
    assert [row["step"] for row in history.evaluations] == [4, 5]
    fresh = model_of()
    assert load_checkpoint(path, fresh, torch.optim.AdamW(decay_groups(fresh.parameters(), 0.0))).steps == 5


def test_a_second_stop_raises_at_once_and_the_handler_is_restored() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit(model_of(), squared_error, _stopping(2, times=2), Recipe(steps=4))
    assert signal.getsignal(signal.SIGINT) is handler


def test_fit_works_outside_the_main_thread() -> None:
    """Where Python allows no signal handlers: a dashboard or a queue of experiments may train there."""
    histories = []
    thread = threading.Thread(target=lambda: histories.append(fit(model_of(), squared_error, batches, Recipe(steps=3))))
    thread.start()
    thread.join(timeout=60)
    assert [history.steps for history in histories] == [3]


@pytest.mark.parametrize(("mixed_precision", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_recipe_may_do_without_mixed_precision(
    monkeypatch: pytest.MonkeyPatch, mixed_precision: bool, dtype: torch.dtype
) -> None:
    monkeypatch.setenv("TFBOOK_PRECISION", "bfloat16")
    runtime.precision.cache_clear()
    seen = []

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        output = model(batch)
        seen.append(output.dtype)
        return output.float().square().mean()

    training.fit(nn.Linear(2, 2), loss, lambda step: torch.ones(1, 2), Recipe(steps=1, mixed_precision=mixed_precision))
    assert seen == [dtype]


# ---- the progress bar --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ipywidgets", [True, False])
def test_a_notebook_trains_without_a_warning(ipywidgets: bool) -> None:
    """As in a kernel of Jupyter's, with ipywidgets and in a base install, where a line of text takes their place."""
    code = (
        "import sys, types\n"
        "import IPython\n"
        "IPython.get_ipython = types.SimpleNamespace\n"
        "sys.modules['ipykernel.zmqshell'] = types.ModuleType('ipykernel.zmqshell')\n"
        f"if not {ipywidgets}: sys.modules['ipywidgets'] = None\n"
        "from tfbook.training.progress import tqdm\n"
        "print('tqdm.notebook' in {base.__module__ for base in tqdm.__mro__})\n"
        "assert sum(tqdm(range(4), leave=False)) == 6\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == str(ipywidgets)
    assert "Warning" not in done.stderr
    assert "ipywidgets" not in done.stderr


@pytest.mark.parametrize("window", [1, 2, 3, 10])
def test_a_running_mean_is_that_of_pandas(window: int) -> None:
    """Over as many values as there are at the beginning."""
    values = torch.randn(7, dtype=torch.float64).tolist()
    expected = pd.Series(values).rolling(window, min_periods=1).mean().tolist()
    assert running_mean(values, window) == pytest.approx(expected)


def test_a_running_mean_of_no_values_is_refused() -> None:
    with pytest.raises(ValueError, match="window is 0; expected 1 or more"):
        running_mean([1.0], 0)


def test_a_weight_that_a_step_does_not_use_stays() -> None:
    """An expert that no token comes to, say: it neither decays nor goes on by its momentum."""
    model, seen = nn.ParameterList([torch.ones(2, 2), torch.ones(2, 2)]), []

    def first_then_second(model: nn.Module, step: Tensor) -> Tensor:
        seen.append(model[0].detach().clone())
        return model[min(int(step), 1)].square().sum()

    fit(model, first_then_second, torch.tensor, Recipe(steps=4, lr=0.1, weight_decay=0.5))
    assert not torch.equal(seen[0], seen[1])
    assert all(torch.equal(each, seen[1]) for each in (*seen[2:], model[0]))


def test_a_recipe_has_the_learning_rate_of_adam() -> None:
    """Kingma & Ba (2015), algorithm 1: 0.001."""
    assert Recipe(steps=1).lr == 0.001


@pytest.mark.parametrize("steps", [1, 50, 100])
def test_after_its_last_step_a_cosine_stays_where_it_ended(steps: int) -> None:
    """And does not rise again, as half a period later (nanoGPT keeps the minimum, too)."""
    factor = warmup_cosine(10, 0.1)
    assert [factor(step, steps) for step in (max(steps, 11), 150, 190)] == pytest.approx([0.1] * 3)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_resumed_run_follows_the_recipe_that_it_is_given(optimizer: str, tmp_path: Path) -> None:
    """Weight decay, betas and momentum, too, not only the learning rate (ipex-llm issue 347)."""
    model, path = Gpt(9, Config(d_model=8, heads=2, d_ff=16, layers=1)), tmp_path / "run.pt"
    recipe = Recipe(steps=1, optimizer=optimizer, weight_decay=0.1, momentum=0.9)
    for each in (recipe, replace(recipe, steps=2, weight_decay=0.5, betas=(0.8, 0.9), momentum=0.5)):
        fit(model, next_token_loss, lambda step: torch.arange(8)[None], each, checkpoint=path)
    state = torch.load(path, weights_only=True)["optimizer"]
    groups = [group for part in state.get("parts", [state]) for group in part["param_groups"]]
    assert {group["weight_decay"] for group in groups} == {0.5, 0.0}
    assert all(group.get("betas", (0.8, 0.9)) == (0.8, 0.9) for group in groups)
    assert all(group.get("momentum", 0.5) == 0.5 for group in groups)


@pytest.mark.parametrize("kind", [np.float32, np.float64, torch.tensor, int])
def test_metrics_may_be_numbers_of_numpy_or_pytorch(kind: Callable[[float], Any], tmp_path: Path) -> None:
    """A checkpoint that holds NumPy's cannot be read again (coqui-ai-Trainer pull request 19)."""
    model = Gpt(9, Config(d_model=8, heads=2, d_ff=16, layers=1))
    for steps in (1, 2):
        history = fit(
            model,
            next_token_loss,
            lambda step: torch.arange(8)[None],
            Recipe(steps=steps),
            checkpoint=tmp_path / "run.pt",
            evaluate=lambda model: {"right": kind(1)},
        )
    assert [row["right"] for row in history.evaluations] == [1.0, 1.0]
    assert json.loads(json.dumps(history.evaluations)) == history.evaluations
