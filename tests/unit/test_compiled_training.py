"""A recipe that compiles: the same run, and the model as it was given."""

from functools import partial
from typing import Any

import pytest
import torch
from small_training import Probe, texts, two_terms
from torch import Tensor, nn

from tfbook.training import (
    Loss,
    LossFunction,
    Recipe,
    fit,
    next_token_loss,
    recipe,
)

pytestmark = pytest.mark.usefixtures("float32")


# ---- compiling ---------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled: traced as everywhere, but run without a compiler of C++."""
    found, compile_with = [], torch.compile

    def trace(function: Any) -> Any:
        found.append(function)
        return compile_with(function, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", trace)
    return found


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    "loss", [next_token_loss, partial(next_token_loss, pad=1), two_terms], ids=["one", "pad", "two"]
)
def test_a_compiled_run_is_the_plain_one(compiled: list[Any], loss: LossFunction, accumulate: int) -> None:
    """The loss function is compiled; what is evaluated, saved and returned is the model as it was given."""
    compiling, runs = [], []

    def watched(model: nn.Module, ids: Tensor) -> Loss:
        compiling.append(torch.compiler.is_compiling())
        return loss(model, ids)

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"nats": float(watched(model, texts(9)).mean)}

    for chosen in (False, True):
        torch.manual_seed(0)
        model = Probe()
        model.dropout.p = 0.0
        plan = Recipe(steps=3, lr=0.1, accumulate=accumulate, evaluate_every=3, compile=chosen)
        runs.append((fit(model, loss, texts, plan, evaluate=evaluate), model))
    assert compiled == [loss]
    assert compiling == [False, False]
    (expected, plain), (found, model) = runs
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert found.curve("nats")[1] == pytest.approx(expected.curve("nats")[1], rel=1e-5)
    assert type(model) is Probe
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("compile", "device", "weights", "steps", "expected"),
    [
        (None, "cuda", recipe.COMPILED_WEIGHTS, recipe.COMPILED_STEPS, True),
        (None, "cuda", recipe.COMPILED_WEIGHTS - 1, recipe.COMPILED_STEPS, False),
        (None, "cuda", recipe.COMPILED_WEIGHTS, recipe.COMPILED_STEPS - 1, False),
        (None, "cpu", recipe.COMPILED_WEIGHTS, recipe.COMPILED_STEPS, False),
        (True, "cpu", 1, 1, True),
        (False, "cuda", recipe.COMPILED_WEIGHTS, recipe.COMPILED_STEPS, False),
    ],
)
def test_large_models_are_compiled_on_cuda_where_it_pays(
    monkeypatch: pytest.MonkeyPatch,
    compile: bool | None,
    device: str,
    weights: int,
    steps: int,
    expected: bool,
) -> None:
    """A model that exists on paper alone."""
    monkeypatch.setattr(recipe, "_has_compilers", lambda: True)
    with torch._subclasses.FakeTensorMode():
        model = nn.ParameterList([torch.empty(weights, device=device)])
    assert Recipe(steps=steps, compile=compile).compiles(model, steps) is expected


@pytest.mark.parametrize(
    ("triton", "found", "expected"),
    [(True, "gcc", True), (True, "cc", True), (True, None, False), (False, "gcc", False)],
)
def test_nothing_is_compiled_without_compilers(
    monkeypatch: pytest.MonkeyPatch, triton: bool, found: str | None, expected: bool
) -> None:
    """Of itself, that is: who asks for it gets PyTorch's message."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(recipe, "has_triton", lambda: triton)
    monkeypatch.setattr(recipe.shutil, "which", lambda name: name if name == found else None)
    with torch._subclasses.FakeTensorMode():
        model = nn.ParameterList([torch.empty(recipe.COMPILED_WEIGHTS, device="cuda")])
    assert Recipe(steps=1).compiles(model, recipe.COMPILED_STEPS) is expected


@pytest.mark.gpu
def test_a_compiled_run_on_cuda_saves_what_an_uncompiled_one_goes_on_from(tmp_path: Any) -> None:
    path = tmp_path / "run.pt"
    for steps, chosen in ((3, True), (6, False)):
        fit(Probe().cuda(), next_token_loss, texts, Recipe(steps=steps, compile=chosen), checkpoint=path)
    assert all(name in Probe().state_dict() for name in torch.load(path)["model"])
