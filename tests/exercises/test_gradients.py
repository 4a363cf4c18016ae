"""Whether training can learn through an answer, as a check judges it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.exercises.test_exercises import EXERCISES
from tfbook.course.exercises import CheckResult, Exercise, exercise, randn


@pytest.fixture
def loss() -> Exercise:
    @exercise(cases=lambda: [(randn(3, 4, seed=1), randn(4, seed=2))], hints=["Square."])
    def loss(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).square().mean()

    return loss


@torch.no_grad()
def _without_gradient(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).square().mean()


WITHOUT = {
    "detach": lambda x, w: (x @ w).square().mean().detach(),
    "item": lambda x, w: torch.tensor((x @ w).square().mean().item()),
    "no_grad": _without_gradient,
}


@pytest.mark.parametrize("kind", WITHOUT)
def test_a_right_result_without_a_gradient_is_refused(loss: Exercise, kind: str) -> None:
    verdict = loss.judge(WITHOUT[kind])
    assert verdict.status == "not quite"
    assert "the result is right but carries no gradient" in verdict.message
    assert ".detach()" in verdict.message


@pytest.mark.parametrize(
    ("answer", "gist"),
    [
        (lambda x, w: (x @ w.detach()).square().mean(), "no gradient reaches 'w'"),
        (lambda x, w: (x.detach() @ w).square().mean(), "no gradient reaches 'x'"),
        (lambda x, w: ((x @ w) * (x @ w).detach()).mean(), "its gradient with respect to 'x' is not: at index (0, 0)"),
        (lambda x, w: torch.tensor(x.numpy() @ w.numpy()).square().mean(), "a gradient asked for raises Runtime"),
    ],
    ids=["one argument", "another", "half", "numpy"],
)
def test_a_gradient_that_is_lost_or_wrong_is_named(loss: Exercise, answer: Callable[..., Any], gist: str) -> None:
    verdict = loss.judge(answer)
    assert verdict.status == "not quite"
    assert gist in verdict.message


def test_gradients_do_not_matter_where_an_exercise_says_so() -> None:
    """For any argument, or for those that it does not name."""

    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    cases = lambda: [(randn(3, seed=1), randn(3, seed=2))]  # noqa: E731
    for differentiable, answer in ((False, lambda x, y: (x * y).detach()), (("x",), lambda x, y: x * y.detach())):
        each = exercise(cases=cases, hints=["*"], differentiable=differentiable)(product)
        assert each.judge(answer) == CheckResult("correct")
    assert each.judge(lambda x, y: x.detach() * y).status == "not quite"


def test_gradients_of_modules_partials_and_lists_are_compared() -> None:
    def mixed(layer: nn.Module, function: Callable[[Tensor], Tensor], parts: list[Tensor]) -> Tensor:
        return layer(function(parts[0])) + parts[1]

    def case() -> list[tuple[Any, ...]]:
        layer = nn.Linear(3, 3)
        with torch.no_grad():
            layer.weight.copy_(randn(3, 3, seed=5))
            layer.bias.zero_()
        return [(layer, partial(torch.matmul, randn(2, 3, seed=3)), [randn(3, 3, seed=4), randn(2, 3, seed=6)])]

    each = exercise(cases=case, hints=["+"])(mixed)
    assert each.judge(mixed) == CheckResult("correct")
    for gist, answer in {
        "'layer.weight'": lambda layer, f, parts: F.linear(f(parts[0]), layer.weight.data, layer.bias) + parts[1],
        "'parts[1]'": lambda layer, f, parts: layer(f(parts[0])) + parts[1].detach(),
        "'function": lambda layer, f, parts: layer(f.args[0].detach() @ parts[0]) + parts[1],
    }.items():
        verdict = each.judge(answer)
        assert verdict.status == "not quite"
        assert gist in verdict.message


RIGHT: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], Tensor]] = {
    "ties": (lambda x: x.amax(), lambda x: x.max(dim=0).values, torch.tensor([2.0, 2.0, 1.0])),
    "kink": (lambda x: x.relu(), lambda x: torch.where(x >= 0, x, 0.0), torch.tensor([0.0, 1.0, -1.0])),
    "root at 0": (lambda x: x.abs().sqrt(), lambda x: (x * x) ** 0.25, torch.tensor([0.0, 1.0])),
    "own copy in place": (lambda x: x * 2, lambda x: x.clone().mul_(2), torch.tensor([1.0, 2.0])),
    "double": (lambda x: x * 2, lambda x: x.double() * 2, torch.tensor([1.0, 2.0])),
    "double, many numbers": (lambda x: x * 2, lambda x: x.double() * 2, torch.arange(16.0)),
    "a blocked row": (
        lambda x: x.masked_fill(torch.ones(2) > 0, -torch.inf).softmax(-1).nan_to_num(),
        lambda x: (x - torch.inf).softmax(-1).nan_to_num(),
        torch.tensor([1.0, 2.0]),
    ),
    "probabilities": (lambda p: p * 3, lambda p: 3 * p / p.sum(-1, keepdim=True), torch.tensor([[0.2, 0.8]])),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_another_gradient_is_right_where_there_is_more_than_one(kind: str) -> None:
    reference, answer, x = RIGHT[kind]
    each = exercise(cases=lambda: [(x.clone(),)], hints=["-"])(lambda x: reference(x))
    assert each.judge(answer) == CheckResult("correct")


LEARNS = [
    "start_here.softmax",
    "bahdanau_attention.attention_step",
    "positions.rotary",
    "transformer.pre_norm_block",
    "transformer.training_loss",
    "self_attention.multi_head",
    "bert_masking.weighted_loss",
    "gpt_pretraining.attend",
    "gpt_pretraining.story_loss",
    "adapting.lora_forward",
    "adapting.balance",
    "preferences.pair_loss",
    "preferences.dpo_loss",
    "preferences.clipped",
    "vit_patches.mean_vit",
]
TRAINED = {name: each for name, each in EXERCISES.items() if any(each._known().slopes)}


def test_what_is_trained_is_found() -> None:
    assert set(LEARNS) <= TRAINED.keys()
    assert len(TRAINED) >= 40


def _detached(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_detached, result))
    return result.detach() if isinstance(result, Tensor) else result


@pytest.mark.parametrize("name", TRAINED)
def test_a_detached_solution_is_refused(name: str) -> None:
    each = EXERCISES[name]
    verdict = each.judge(lambda *arguments: _detached(each.reference(*arguments)))
    assert verdict.status == "not quite"
    assert "carries no gradient" in verdict.message
