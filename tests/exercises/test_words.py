"""A wrong answer is told what is wrong in words, also where nobody has foreseen it, and numbers can be told apart."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tfbook.course import exercises as engine
from tfbook.course.comparing import shown_apart
from tfbook.course.exercises import Exercise, exercise, randn
from tfbook.course.slips import variants
from tfbook.lessons.start_here.exercises import descend


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy, and checks of signatures, make the search slow."""
    monkeypatch.setattr(engine, "SEARCH", 10.0)


def _inputs() -> list[tuple[Tensor, ...]]:
    found = []
    for b, h, n, m, d in ((2, 3, 4, 5, 2), (1, 2, 3, 3, 5)):
        mask = torch.arange(m) < torch.tensor([m - 1, 2])[:b, None]
        found.append((randn(b, h, n, d, seed=1), randn(b, h, m, d, seed=2), randn(b, h, m, 3, seed=3), mask))
    return found


@exercise(cases=_inputs, hints=["None."])
def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
    return torch.softmax(scores, dim=-1) @ v


@exercise(cases=_inputs, hints=["None."])
def weigh(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(~mask[:, None, None], -torch.inf), dim=-1)


def _weights(q: Tensor, k: Tensor, mask: Tensor, scale: float, dim: int = -1) -> Tensor:
    return torch.einsum("bhnd,bhmd->bhnm", q, k).div(scale).masked_fill(~mask[:, None, None], -1e30).softmax(dim)


def _root(q: Tensor) -> float:
    return q.shape[-1] ** 0.5


def _after(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    return _weights(q, k, torch.ones_like(mask), _root(q)) * mask[:, None, None]


SLIPS: list[tuple[Exercise, Callable[..., Any], str]] = [
    (attend, lambda q, k, v, m: _weights(q, k, ~m, _root(q)) @ v, "the other way round"),
    (attend, lambda q, k, v, m: _weights(q, k, torch.ones_like(m), _root(q)) @ v, "is not used"),
    (attend, lambda q, k, v, m: _weights(q, k, m, 1.0) @ v, "a square root is missing (of q)"),
    (attend, lambda q, k, v, m: _weights(q, k, m, q.shape[-1]) @ v, "the size itself where its square root belongs"),
    (attend, lambda q, k, v, m: _weights(q, k, m, _root(q) * q.shape[1] ** 0.5) @ v, "that of d_model, all heads"),
    (attend, lambda q, k, v, m: _weights(q, k, m, k.shape[2] ** 0.5) @ v, "that of another size, k.shape[-2]"),
    (
        attend,
        lambda q, k, v, m: (_after(q, k, m)[..., None] * v[:, :, None]).sum(dim=3),
        "each row is a multiple of the expected one: are there weights that do not sum to 1?",
    ),
    (attend, lambda q, k, v, m: attend.reference(q, k, v, m).mT, "the axes are in another order"),
    (attend, lambda q, k, v, m: -attend.reference(q, k, v, m), "the sign is the other way round"),
    (attend, lambda q, k, v, m: attend.reference(q, k, v, m) / q.shape[1], "it is 1/(q.shape[1]) times the expected"),
    (attend, lambda q, k, v, m: attend.reference(q, k, v, m)[:, None], "an axis of length 1 is missing or too many"),
    (attend, lambda q, k, v, m: attend.reference(q, k, v, m).flip(2), "in reverse order along axis 2"),
    (
        attend,
        lambda q, k, v, m: attend.reference(q, k, v, m).transpose(1, 2).reshape(*q.shape[:3], 3),
        "the numbers are right, but in other places",
    ),
    (attend, lambda q, k, v, m: attend.reference(q, k, v, m).sum(dim=1), "have been added up"),
    (attend, lambda q, k, v, m: attend.reference(q, k, v, m).mean(dim=(1, 2)), "this is the mean of the numbers"),
    (attend, lambda q, k, v, m: torch.zeros_like(attend.reference(q, k, v, m)), "it is 0 everywhere"),
    (
        attend,
        lambda q, k, v, m: _weights(q, k, ~m, 1.0) @ v,
        "a square root is missing (of q)",  # two slips at once
    ),
    (weigh, lambda q, k, v, m: _after(q, k, m), "block before the softmax, not after it"),
    (weigh, lambda q, k, v, m: _weights(q, k, torch.ones_like(m), _root(q), dim=-2), "sum to 1 along axis -2"),
    (weigh, lambda q, k, v, m: _weights(q, k, m, _root(q)).log_softmax(-1), "one log_softmax too many"),
]


@pytest.mark.parametrize(("asked", "answer", "words"), SLIPS, ids=[f"{e.name}: {words}" for e, _, words in SLIPS])
def test_a_slip_is_told_in_words(asked: Exercise, answer: Callable[..., Any], words: str) -> None:
    verdict = asked.judge(answer)
    assert verdict.status == "not quite"
    assert words in verdict.message
    assert not verdict.details, "numbers would only distract"


def test_two_slips_at_once_are_both_told() -> None:
    message = attend.judge(lambda q, k, v, m: _weights(q, k, ~m, 1.0) @ v).message
    assert "the other way round" in message
    assert "; and " in message


def _cubes() -> list[tuple[Tensor]]:
    return [(randn(2, 3, seed=seed) + 3,) for seed in (1, 2, 3)]


@exercise(cases=_cubes, hints=["None."])
def cubed(x: Tensor) -> Tensor:
    return math.prod([x] * 3, start=torch.tensor(1.0))


cubed.mistakes({"this is the fourth power": lambda x: x * x * x * x})


def test_a_slip_that_makes_no_sense_is_tried_without_a_word() -> None:
    """`(2)[0]`, of which Python warns: not the learner's code, and nothing for an instructor's screen."""
    with warnings.catch_warnings(action="error"):
        assert len([*variants("def f(x):\n    return (2 * x)[0]", {}, slips=1)]) > 3


def test_a_mistake_and_something_else_are_both_told() -> None:
    message = cubed.judge(lambda x: x.pow(4) * x.shape[1]).message
    assert "two slips: this is the fourth power; and apart from that, it is (x.shape[1]) times" in message


def test_a_mistake_is_named_that_explains_most_cases() -> None:
    last = cubed.cases()[-1][0]
    message = cubed.judge(lambda x: x.cos() if torch.equal(x, last) else x.pow(4)).message
    assert "this is the fourth power (this explains 2 of 3 cases)" in message


def test_a_mistake_that_explains_one_case_alone_is_not_named() -> None:
    first = cubed.cases()[0][0]
    message = cubed.judge(lambda x: x.pow(4) if torch.equal(x, first) else x.cos()).message
    assert "fourth power" not in message


def test_words_are_looked_for_in_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SEARCH", 0.0)
    verdict = attend.judge(lambda q, k, v, m: _weights(q, k, m, 1.0) @ v)
    assert "In words" not in verdict.message
    assert verdict.details[-1].startswith("expected: tensor of shape")


def test_what_is_not_related_is_shown_in_numbers() -> None:
    verdict = attend.judge(lambda q, k, v, m: attend.reference(q, k, v, m) + torch.arange(3) ** 2 / 7)
    assert "In words" not in verdict.message
    assert len(verdict.details) == 6


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            lambda q, k, v, m: (q @ k.mT).masked_fill(~m, 0.0),
            "v has shape (2, 3, 5, 3) and m has shape (2, 5); is an axis of length 1 missing, as by [:, None]?",
        ),
        (
            lambda q, k, v, m: q[0, 0] @ k[0, 0],
            "v has shape (2, 3, 5, 3) and m has shape (2, 5); is a transpose missing",
        ),
        (lambda q, k, v, m: q.sum(dim=7), "IndexError: Dimension out of range"),
    ],
)
def test_an_error_of_pytorch_is_told_with_the_shapes_that_met(answer: Callable[..., Any], words: str) -> None:
    verdict = attend.judge(answer)
    assert verdict.status == "raised an error"
    assert words in verdict.message
    assert "here q has shape (2, 3, 4, 2)" in verdict.message


def step_of(change: Callable[[Any, float], Any]) -> Callable[..., Tensor]:
    """Gradient descent with another way to change the weights."""

    def descend(w: Tensor, x: Tensor, y: Tensor, lr: float, steps: int) -> Tensor:
        w = w.clone().requires_grad_()
        for _ in range(steps):
            ((x @ w - y) ** 2).mean().backward()
            w = change(w, lr)
        return w.detach()

    return descend


def made_anew(w: Any, lr: float) -> Any:
    with torch.no_grad():
        return w - lr * w.grad


def in_place_while_recording(w: Any, lr: float) -> Any:
    w -= lr * w.grad
    return w


def cleared_as_a_module(w: Any, lr: float) -> Any:
    w.zero_grad()
    return w


def cleared_before_it_is_there(w: Any, lr: float) -> Any:
    w = w.detach().clone().requires_grad_()
    w.grad.zero_()
    return w


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (made_anew, "`name -= …` keeps the old one"),
        (in_place_while_recording, "inside `with torch.no_grad():`"),
        (cleared_as_a_module, "`.grad = None` or `.grad.zero_()`"),
        (cleared_before_it_is_there, "before the first `backward()` there is no `.grad`"),
    ],
)
def test_an_error_of_autograd_is_told_with_what_helps(change: Callable[[Any, float], Any], words: str) -> None:
    verdict = descend.judge(step_of(change))
    assert verdict.status == "raised an error"
    assert words in verdict.message


def test_a_gradient_of_a_tensor_made_anew_is_none_and_told_so() -> None:
    with pytest.warns(UserWarning, match="not a leaf"):  # by PyTorch, about the learner's own line
        verdict = descend.judge(step_of(lambda w, lr: w - lr * w.grad))
    assert "a tensor made anew by `name = …` has no `.grad`" in verdict.message


def test_looking_for_words_warns_of_nothing() -> None:
    """Otherwise the learner reads warnings about code that they did not write."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert descend.judge(lambda w, *_: w + 7.123).status == "not quite"
    assert not said


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (torch.tensor([1.0, 2.0001]), torch.tensor([1.0, 2.0])),
        (torch.cat([torch.zeros(100), torch.ones(1)]), torch.zeros(101)),
        (torch.tensor([123456, 1]), torch.tensor([123456, 2])),
        ([0] * 500 + [1], [0] * 501),
        ("a" * 500 + "b", "a" * 501),
        (torch.zeros(3), torch.zeros(4)),
        (0.123456789, 0.123456788),
    ],
)
def test_two_values_never_look_the_same(result: Any, expected: Any) -> None:
    shown = shown_apart(result, expected)
    assert shown[0] != shown[1]
    assert all(len(line) < 250 for line in shown)
