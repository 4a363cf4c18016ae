"""Adaptive computation time: halting against the paper's definitions in a loop, and a step that can be followed."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tfbook.models.adaptive import AdaptiveSteps, halting


def by_definition(h: list[float], enough: float) -> tuple[list[float], int, float]:
    """N(t), R(t) and p of Graves (2016), eq. 5 to 7, with the last step ending what has not ended."""
    total, steps = 0.0, len(h)
    for n, each in enumerate(h, start=1):
        total += each
        if total >= 1 - enough:
            steps = n
            break
    remainder = 1 - sum(h[: steps - 1])
    return h[: steps - 1] + [remainder] + [0.0] * (len(h) - steps), steps, remainder


@given(st.lists(st.lists(st.floats(0.001, 0.999), min_size=5, max_size=5), min_size=1, max_size=4))
def test_halting_is_the_paper_s(rows: list[list[float]]) -> None:
    h = torch.tensor(rows, dtype=torch.float64)
    found = halting(h, 0.01)
    for row, each in enumerate(h.tolist()):
        weights, steps, remainder = by_definition(each, 0.01)
        if abs(sum(each[:steps]) - 0.99) < 1e-9:
            continue  # sums in another order may fall on the other side
        assert found.weights[row].tolist() == pytest.approx(weights, abs=1e-9)
        assert int(found.steps[row]) == steps
        assert float(found.remainder[row]) == pytest.approx(remainder, abs=1e-9)


def test_a_napkin() -> None:
    found = halting(torch.tensor([[0.5, 0.3, 0.4, 0.9], [0.995, 0.5, 0.5, 0.5], [0.1, 0.1, 0.1, 0.1]]))
    torch.testing.assert_close(found.weights[0], torch.tensor([0.5, 0.3, 0.2, 0.0]))
    assert found.weights[1].tolist() == [1, 0, 0, 0]
    torch.testing.assert_close(found.weights[2], torch.tensor([0.1, 0.1, 0.1, 0.7]))
    assert found.steps.tolist() == [3, 1, 4]
    torch.testing.assert_close(found.ponder, torch.tensor([3.2, 2.0, 4.7]))


def test_the_cost_s_gradient_is_that_of_the_remainder() -> None:
    """−1 for each probability before the last step, 0 for the others: halting sooner costs less."""
    h = torch.tensor([[0.5, 0.3, 0.4, 0.9]], requires_grad=True)
    halting(h).ponder.sum().backward()
    assert h.grad is not None
    assert h.grad.tolist() == [[-1, -1, 0, 0]]


def plus_one(state: Tensor) -> Tensor:
    return state + 1


def chooser(most: int, bias: float, weight: float = 0.0) -> AdaptiveSteps:
    """Halts at each step with probability sigmoid(weight · state + bias)."""
    model = AdaptiveSteps(plus_one, 1, most=most)
    torch.nn.init.constant_(model.halt.weight, weight)
    torch.nn.init.constant_(model.halt.bias, bias)
    return model


@torch.no_grad()
def test_the_result_is_the_mean_of_the_states() -> None:
    """States 1, 2, 3 with weights ½, ½, 0: h = ½ each, so that the second one ends it."""
    found = chooser(5, 0.0)(torch.zeros(2, 1))
    assert found.state.tolist() == [[1.5], [1.5]]
    assert found.halting.steps.tolist() == [2, 2]


@torch.no_grad()
def test_each_row_takes_its_own_time() -> None:
    """Sure to halt above 4 and sure not to below: from 0, 2 and 4 that takes five, three and one steps."""
    found = chooser(9, -450.0, 100.0)(torch.tensor([[0.0], [2.0], [4.0]]))
    assert found.halting.steps.tolist() == [5, 3, 1]
    torch.testing.assert_close(found.state, torch.full((3, 1), 5.0))
    assert found.halting.weights.shape == (3, 5), "nothing is computed after the last row has halted"


@torch.no_grad()
def test_most_ends_it() -> None:
    found = chooser(4, -50.0)(torch.zeros(1, 1))
    assert found.halting.steps.tolist() == [4]
    torch.testing.assert_close(found.state, torch.full((1, 1), 4.0))


def test_halting_learns_from_the_result() -> None:
    model = chooser(5, -1.0)
    model(torch.zeros(2, 1)).state.sum().backward()
    assert model.halt.bias.grad is not None
    assert model.halt.bias.grad.item() < 0, "to halt sooner makes these states smaller"


def test_context_goes_to_every_step() -> None:
    seen: list[int] = []

    def step(state: Tensor, count: int) -> Tensor:
        seen.append(count)
        return state

    AdaptiveSteps(step, 3, most=2)(torch.zeros(1, 3), 7)
    assert seen == [7, 7]


def test_errors_name_what_came() -> None:
    with pytest.raises(ValueError, match="most is 0; expected 1 or more"):
        AdaptiveSteps(plus_one, 1, most=0)
    with pytest.raises(ValueError, match=r"enough is 1\.5; expected 0 < enough < 1"):
        AdaptiveSteps(plus_one, 1, enough=1.5)
