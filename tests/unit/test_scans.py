"""Three scans of one recurrence, forward and backward, against the sum that it stands for."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from tfbook.models.scans import chunked_scan, combine, parallel_scan, sequential_scan

SCANS: dict[str, Callable[..., Tensor]] = {
    "loop": sequential_scan,
    "tree": parallel_scan,
    "chunks": partial(chunked_scan, chunk=3),
    "chunks of one": partial(chunked_scan, chunk=1),
    "chunks of all": partial(chunked_scan, chunk=1000),
    "default": chunked_scan,
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10, torch.complex128: 1e-10}
NUMBERS = st.integers(1, 4)


def written_out(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """h_t = Π a · start + Σ_s (Π_{r > s} a_r) b_s, every product multiplied out."""
    states: list[Tensor] = []
    for t in range(b.shape[1]):
        state = a[:, : t + 1].prod(dim=1) * start
        for s in range(t + 1):
            state = state + a[:, s + 1 : t + 1].prod(dim=1) * b[:, s]
        states.append(state)
    return torch.stack(states, dim=1) if states else b


def inputs(batch: int, time: int, state: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Decays between −1 and 1, zeros among them, inputs and a start."""
    a = 2 * torch.rand(batch, time, *state, dtype=dtype) - 1
    a = a * (torch.rand(batch, time, *state) > 0.1)
    return [a, torch.randn(batch, time, *state, dtype=dtype), torch.randn(batch, *state, dtype=dtype)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", SCANS)
@given(batch=NUMBERS, time=st.integers(0, 19), state=st.lists(NUMBERS, max_size=2), seed=st.integers(0, 999))
@settings(max_examples=12, deadline=None)
def test_every_scan_is_the_sum(
    name: str, dtype: torch.dtype, batch: int, time: int, state: list[int], seed: int
) -> None:
    """States and the gradients of decays, inputs and start."""
    torch.manual_seed(seed)
    given_inputs = [x.requires_grad_() for x in inputs(batch, time, tuple(state), dtype)]
    weights = torch.randn(batch, time, *state, dtype=dtype)
    found, expected = SCANS[name](*given_inputs), written_out(*given_inputs)
    close = {"atol": TOLERANCE[dtype], "rtol": TOLERANCE[dtype]}
    torch.testing.assert_close(found, expected, **close)
    if time:
        gradients = [torch.autograd.grad((weights * h).sum().abs(), given_inputs) for h in (found, expected)]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, **close)


@pytest.mark.parametrize("name", SCANS)
def test_without_a_start_the_state_is_zero(name: str) -> None:
    a, b, start = inputs(2, 9, (3,), torch.float64)
    torch.testing.assert_close(SCANS[name](a, b), SCANS[name](a, b, torch.zeros_like(start)))
    torch.testing.assert_close(SCANS[name](a, b), written_out(a, b, torch.zeros_like(start)))


def test_combining_is_associative() -> None:
    """Whatever is joined first."""
    one, two, three = ((torch.randn(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)) for _ in range(3))
    for left, right in zip(combine(combine(one, two), three), combine(one, combine(two, three)), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("name", SCANS)
def test_a_long_fast_decay_underflows_to_the_right_answer(name: str) -> None:
    """Where the closed form h = A Σ b / A, with A the product of all decays, divides by 0."""
    a, b = torch.full((1, 500, 1), 0.01), torch.ones(1, 500, 1)
    assert not torch.isfinite(a.cumprod(dim=1) * (b / a.cumprod(dim=1)).cumsum(dim=1)).all()
    torch.testing.assert_close(SCANS[name](a, b)[0, -1, 0], torch.tensor(1 / 0.99))


def test_the_inputs_of_a_scan_stay_as_they_were() -> None:
    a, b, start = inputs(2, 9, (3,), torch.float64)
    copies = [x.clone() for x in (a, b, start)]
    for scan in SCANS.values():
        scan(a, b, start)
    assert all(map(torch.equal, (a, b, start), copies))


@pytest.mark.usefixtures("unchecked")
def test_shapes_that_do_not_fit_are_named() -> None:
    a, b, start = inputs(2, 5, (3,), torch.float64)
    for scan in SCANS.values():
        with pytest.raises(ValueError, match=r"a has shape \(2, 4, 3\) and b \(2, 5, 3\); expected the same"):
            scan(a[:, 1:], b)
        with pytest.raises(ValueError, match=r"start \(1, 3\); expected the same for a and b"):
            scan(a, b, start[:1])
    with pytest.raises(ValueError, match="chunk is 0; expected 1 or more"):
        chunked_scan(a, b, chunk=0)
