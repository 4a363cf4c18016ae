"""The engine of the exercises: every answer, however strange, gets a verdict with a message and never a traceback."""

import copy
import inspect
import json
import random
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tfbook.course import exercises as engine, solved
from tfbook.course.exercises import CheckResult, Exercise, exercise, randn, source_of


def _made() -> Exercise:
    """Doubling, with two mistakes and code that has a bug."""

    @exercise(cases=lambda: [(torch.tensor([1.0, -2.0]), [3]), (torch.tensor([0.5]), [1, 2])], hints=["Add.", "x + x"])
    def double(x: Tensor, notes: list[int]) -> Tensor:
        return x + x

    double.mistakes({"this squares": lambda x, notes: x * x, "this overflows": lambda x, notes: x / 0})

    @double.given
    def _(x: Tensor, notes: list[int]) -> Tensor:
        return x + 1

    return double


@pytest.fixture
def double() -> Exercise:
    return _made()


def judge(exercise: Exercise, answer: object, capsys: pytest.CaptureFixture[str]) -> str:
    """The first line that `check` prints; only what shows the case follows it, and nothing goes to stderr."""
    capsys.readouterr()
    assert exercise.check(answer) is None
    printed, errors = capsys.readouterr()
    assert errors == ""
    first, *details = printed.splitlines()
    assert all(line.startswith("    ") for line in details)
    return first


# ---- verdicts ----------------------------------------------------------------------------------------------------


def test_the_reference_and_whatever_equals_it_are_correct(double: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    """To the precision of float32, sums taken in another order."""
    for answer in (
        double.reference,
        lambda x, notes: 2 * x,
        lambda x, notes: (x + x) * (1 + 1e-6),
        lambda x, notes: 2 * x.double(),
    ):
        assert judge(double, answer, capsys) == "✓ correct"


def test_a_blank_is_not_attempted(double: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    def todo(x: Tensor, notes: list[int]) -> Tensor:
        raise NotImplementedError

    def bare(x: Tensor, notes: list[int]) -> Tensor:
        """Your code here."""

    for answer in (None, ..., todo):
        assert judge(double, answer, capsys) == "○ not attempted"
    for answer in (bare, lambda x, notes: ..., lambda x, notes: x + x if len(x) == 2 else None):
        assert judge(double, answer, capsys) == "○ not attempted: the function returns nothing yet"


def test_the_given_code_is_told_that_it_still_has_its_bug(double: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    """Also when it was written differently and has the same bug; whoever tried is not told that nobody did."""
    expected = f"○ not yet: {engine.STILL_GIVEN.format(double.name)}"
    assert judge(double, double.start, capsys) == expected
    assert judge(double, lambda x, notes: 1 + x, capsys) == expected


def test_a_known_mistake_gets_its_message(double: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    """However it was made, and when its result is infinite or NaN, too."""
    assert judge(double, lambda x, notes: x**2, capsys) == "✗ not quite: this squares"
    assert judge(double, lambda x, notes: x * torch.inf, capsys) == "✗ not quite: this overflows"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x, notes: 3 * x, "case 1 of 2: at index (0,) the result is 3; expected 2"),
        (lambda x, notes: 2 * x if len(x) == 2 else -x, "case 2 of 2: at index (0,) the result is -0.5; expected 1"),
        (lambda x, notes: x * torch.nan, "case 1 of 2: the result holds NaN or infinity"),
        (lambda x, notes: 2 * x[None], "case 1 of 2: the result has shape (1, 2); expected (2,)"),
        (lambda x, notes: (2 * x).long(), "case 1 of 2: the result has dtype torch.int64; expected torch.float32"),
        (lambda x, notes: (2 * x).to("meta"), "case 1 of 2: the result has device meta; expected cpu"),
        (lambda x, notes: (2 * x).to_sparse(), "case 1 of 2: the result has layout torch.sparse_coo; expected torch."),
        (lambda x, notes: (2 * x).tolist(), "case 1 of 2: the result is list; expected a torch.Tensor"),
        (lambda x, notes: (2 * x).numpy(), "case 1 of 2: the result is ndarray; expected a torch.Tensor"),
        (lambda x, notes: (2 * x, x), "case 1 of 2: the result is tuple; expected a torch.Tensor"),
        (lambda x, notes: print, "case 1 of 2: the result is builtin_function_or_method; expected a torch.Tensor"),
    ],
    ids=[
        "value",
        "second case",
        "NaN",
        "shape",
        "integers",
        "other device",
        "sparse",
        "list",
        "numpy",
        "tuple",
        "function",
    ],
)
def test_any_other_wrong_result_is_described(
    double: Exercise, capsys: pytest.CaptureFixture[str], answer: Callable[..., Any], message: str
) -> None:
    assert judge(double, answer, capsys).startswith(f"✗ not quite: {message}")


def test_a_generic_refusal_shows_the_case(double: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    """What went in, what came out and what should have."""
    double.check(lambda x, notes: 3 * x)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    x: tensor of shape (2,): 1, -2",
        "    notes: [3]",
        "    your result: tensor of shape (2,): 3, -6",
        "    expected: tensor of shape (2,): 2, -4",
    ]


class _Unspeakable(Exception):
    """Its text, representation and comparison raise."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def test_long_inputs_are_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line stays readable, whatever the case holds."""
    case = (torch.arange(1000), "a" * 1000, list(range(1000)), [torch.ones(3)], len, torch.ones(0))

    @exercise(cases=lambda: [case], hints=[])
    def zero(numbers: Tensor, text: str, items: list, tensors: list, function: Any, empty: Tensor) -> float:
        return 0.0

    details = zero.judge(lambda *arguments: 1.25).details
    assert all(len(line) <= 120 for line in details), details
    assert details[0] == "numbers: tensor of shape (1000,): 0, 1, 2, 3, 4, 5, 6, 7, …"
    assert details[4] == "function: a function, len"


@pytest.mark.parametrize(
    "answer", [torch.ones(2), 3.0, "x + x", [lambda x: x]], ids=["tensor", "number", "text", "list"]
)
def test_a_result_in_place_of_the_function_is_named(
    double: Exercise, capsys: pytest.CaptureFixture[str], answer: object
) -> None:
    expected = f"✗ not quite: expected the function itself, got {type(answer).__name__}"
    assert judge(double, answer, capsys) == expected


# ---- answers that misbehave --------------------------------------------------------------------------------------


def _inside(x: Tensor, notes: list[int]) -> Tensor:
    y = x + x
    return y @ torch.ones(7)


def _deeper(x: Tensor, notes: list[int]) -> Tensor:

    def helper() -> Tensor:
        return {}["key"]

    return helper()


def _endless(x: Tensor, notes: list[int]) -> Tensor:
    return _endless(x, notes)


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        (_inside, ["RuntimeError: ", "(line 3 of _inside: return y @ torch.ones(7))"]),
        (_deeper, ["KeyError: 'key'", "(line 6 of _deeper: return helper())"]),
        (_endless, ["RecursionError: ", "of _endless: return _endless(x, notes))"]),
        (lambda x, notes: 1 / 0, ["ZeroDivisionError: division by zero (line 1 of <lambda>"]),
        (lambda x: x, ["TypeError: ", "takes 1 positional argument but 2 were given"]),
        (lambda x, notes: sys.exit("stop"), ["SystemExit: stop"]),
        (lambda x, notes: torch.softmax(x.long(), -1), ["NotImplementedError: ", "not implemented for 'Long'"]),
        (np.linalg.inv, ["raised an error"]),
    ],
    ids=["raises", "in a helper", "endless", "lambda", "signature", "exits", "not implemented", "no code of its own"],
)
def test_an_answer_that_raises_is_told_what_and_where(
    double: Exercise, capsys: pytest.CaptureFixture[str], answer: Callable[..., Any], parts: list[str]
) -> None:
    """The line is that of the answer, not of what it called; PyTorch's NotImplementedError is no blank."""
    printed = judge(double, answer, capsys)
    assert printed.startswith("✗ raised an error")
    for part in parts:
        assert part in printed


def test_an_answer_may_be_an_object(double: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    """Which has no name, and shows the code of what it calls."""

    class Caller:
        __code__ = _inside.__code__

        def __call__(self, x: Tensor, notes: list[int]) -> Tensor:
            return _inside(x, notes)

    printed = judge(double, Caller(), capsys)
    assert printed.endswith("(line 3 of _inside: return y @ torch.ones(7))")


def test_an_error_in_code_without_a_file_has_a_line_number(
    double: Exercise, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `exec`; notebooks do have files."""
    namespace: dict[str, Any] = {}
    exec(textwrap.dedent("def answer(x, notes):\n    raise ValueError('first line\\nsecond line')\n"), namespace)
    printed = judge(double, namespace["answer"], capsys)
    assert printed == "✗ raised an error: ValueError: first line (line 2 of answer)"


@pytest.mark.parametrize("name", ["x", "notes"])
def test_an_answer_that_changes_its_argument_is_told_which(
    double: Exercise, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Even when its result is right."""

    def answer(x: Tensor, notes: list[int]) -> Tensor:
        result = x + x
        x.add_(1) if name == "x" else notes.append(1)
        return result

    expected = f"✗ not quite: your function changes its argument {name!r}; leave it as it came"
    assert judge(double, answer, capsys) == expected
    assert judge(double, double.reference, capsys) == "✓ correct", "the cases are made afresh"


def test_an_argument_may_say_how_it_is_left_unchanged() -> None:
    """In place of the general words."""

    class Advising(nn.Linear):
        advice = "take the hook off"

    def answer(module: nn.Module) -> Tensor:
        with torch.no_grad():
            return module.weight.zero_()

    each = exercise(cases=lambda: [(Advising(1, 1),)], hints=["+"])(lambda module: torch.zeros(1, 1))
    assert each.judge(answer) == CheckResult(
        "not quite", "your function changes its argument 'module'; take the hook off"
    )


def _first(x: Tensor) -> Tensor:
    return x + 1


def _second(x: Tensor) -> Tensor:
    return x * 2


CONTAINERS: dict[str, Callable[[list, nn.Module, partial], object]] = {
    "functions": lambda functions, module, bound: functions.reverse(),
    "module": lambda functions, module, bound: module.weight.data.zero_(),
    "bound": lambda functions, module, bound: bound.args[0].add_(1),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_changes_inside_an_argument_are_seen(name: str) -> None:
    """The order of functions in a list, the weights of a module, and what a `partial` holds."""

    def total(functions: list, module: nn.Module, bound: partial) -> Tensor:
        return functions[0](module(torch.ones(2))) + bound(torch.ones(2))

    def answer(functions: list, module: nn.Module, bound: partial) -> Tensor:
        result = total(functions, module, bound)
        CONTAINERS[name](functions, module, bound)
        return result

    case = [_first, _second], nn.Linear(2, 2), partial(torch.add, torch.ones(2))
    each = exercise(cases=lambda: [copy.deepcopy(case)], hints=["+"])(total)
    assert each.judge(total) == CheckResult("correct")
    assert each.judge(answer) == CheckResult(
        "not quite", f"your function changes its argument {name!r}; leave it as it came"
    ), name


def test_what_the_solution_changes_an_answer_may_change() -> None:
    """Such as a model that both train."""

    def trained(module: nn.Module) -> Tensor:
        module.weight.data.add_(1)
        return module.weight.detach().clone()

    module = nn.Linear(2, 2)
    each = exercise(cases=lambda: [(copy.deepcopy(module),)], hints=["+"])(trained)
    assert each.judge(trained) == CheckResult("correct")


def test_a_mistake_is_named_where_it_raises_in_a_later_case() -> None:
    """A transposed matrix fits as long as it is square."""

    @exercise(cases=lambda: [(randn(2, 2, seed=1),), (randn(2, 3, seed=2),)], hints=["@"])
    def product(x: Tensor) -> Tensor:
        return x @ torch.ones(x.shape[1], 1)

    product.mistakes({"rows and columns are exchanged": lambda x: x.mT @ torch.ones(x.shape[1], 1)})
    answer = lambda x: x.T @ torch.ones(x.shape[1], 1)  # noqa: E731
    assert product.judge(answer) == CheckResult("not quite", "rows and columns are exchanged")
    assert product.judge(lambda x: x @ torch.ones(2, 1)).status == "raised an error", "its first result is right"


def test_a_check_leaves_the_random_numbers_alone(double: Exercise) -> None:
    """Whatever the answer draws or seeds."""

    def answer(x: Tensor, notes: list[int]) -> Tensor:
        torch.manual_seed(1)
        return x + torch.rand(len(x)) + random.random() + float(np.random.rand())  # noqa: NPY002

    def draws() -> list[float]:
        return [random.random(), float(np.random.rand()), torch.rand(()).item()]  # noqa: NPY002

    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    expected = draws()
    random.setstate(before[0])
    np.random.set_state(before[1])  # noqa: NPY002
    torch.set_rng_state(before[2])
    double.judge(answer)
    assert draws() == expected


def _raises_what_has_no_text(x: Tensor, notes: list[int]) -> Tensor:
    raise _Unspeakable


def _raises_no_exception(x: Tensor, notes: list[int]) -> Tensor:
    raise BaseException("odd")


class _Pretender:
    """Does not even say what it is."""

    @property
    def __class__(self) -> type:
        raise RuntimeError


STRANGE: dict[str, Callable[..., Any]] = {
    "more digits than Python prints": lambda x, notes: 10**5000,
    "quantized": lambda x, notes: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "pretender": lambda x, notes: _Pretender(),
    "fraction": lambda x, notes: Fraction(1, 3),
    "nested": lambda x, notes: torch.nested.nested_tensor([x, x[:0]]),
    "meta": lambda x, notes: x.to("meta"),
    "uncomparable": lambda x, notes: _Unspeakable(),
    "raises without text": _raises_what_has_no_text,
    "raises a BaseException": _raises_no_exception,
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("expected", [torch.ones(2), 0.5, [1], {1: 2}], ids=["tensor", "number", "list", "dict"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:.*quantize_per_tensor")
def test_a_check_never_raises(name: str, expected: object, capsys: pytest.CaptureFixture[str]) -> None:
    exercise(cases=lambda: [(torch.ones(2), [1])], hints=[])(lambda x, notes: expected).check(STRANGE[name])
    assert capsys.readouterr().out.startswith("✗")


def test_a_check_works_without_gradients() -> None:
    """A solution may need gradients although the notebook has switched them off."""

    @exercise(cases=lambda: [(3.0,)], hints=[])
    def slope(x: float) -> Tensor:
        at = torch.tensor(x, requires_grad=True)
        return torch.autograd.grad(at * at, at)[0]

    with torch.no_grad():
        assert slope.judge(slope.reference) == CheckResult("correct")
    with torch.inference_mode():
        assert slope.judge(slope.reference) == CheckResult("correct")


def test_a_check_restores_what_an_answer_sets(double: Exercise) -> None:
    """PyTorch's default dtype and device, its modes and threads; and the verdict does not depend on the dtype."""

    def answer(x: Tensor, notes: list[int]) -> Tensor:
        result = x + x
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        torch.set_num_threads(threads + 1)
        torch.autograd.set_detect_anomaly(True)
        torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("medium")
        return result

    threads = torch.get_num_threads()

    assert double.judge(answer) == CheckResult("correct")
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_default_device() == torch.device("cpu")
    assert torch.is_grad_enabled()
    assert torch.get_num_threads() == threads
    assert not torch.is_anomaly_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "highest"
    torch.set_default_dtype(torch.float64)
    try:
        assert double.judge(double.reference) == CheckResult("correct")
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("suppressed", [Exception, BaseException])
def test_a_check_is_bounded_in_time(
    double: Exercise, suppressed: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that never ends is ended, and suppressing whatever is raised in it, as `except:` does, does not help."""

    def endless(x: Tensor, notes: list[int]) -> Tensor:
        while True:
            with suppress(suppressed):
                len(notes)

    monkeypatch.setattr(engine, "TIME_LIMIT", 0.2)
    start = time.perf_counter()
    verdict = double.judge(endless)
    assert time.perf_counter() - start < 5
    assert verdict == CheckResult("not quite", "case 1 did not finish within 0.2 seconds; does a loop never end?")
    assert double.judge(double.reference) == CheckResult("correct")


def test_known_results_are_computed_once() -> None:
    """Naming a mistake costs nothing the second time, however long the solution takes."""
    calls = []

    @exercise(cases=lambda: [(1.0,)], hints=[])
    def slow(x: float) -> float:
        calls.append(x)
        return x

    for _ in range(3):
        slow.judge(lambda x: 2 * x)
    assert len(calls) == 1


def test_the_stop_button_stops_a_check(double: Exercise) -> None:
    """An endless loop must not be uninterruptible."""

    def answer(x: Tensor, notes: list[int]) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        double.judge(answer)


# ---- results that are no tensors ---------------------------------------------------------------------------------


def _returning(expected: object) -> Exercise:
    return exercise(cases=lambda: [()], hints=[])(lambda: expected)


@pytest.mark.parametrize(
    ("expected", "result"),
    [
        (0.5, 0.5 + 1e-9),
        (2.0, 2),
        (0.5, torch.tensor([0.5])),
        (0.5, np.float32(0.5)),
        (float("inf"), float("inf")),
        ({(0, 1)}, {(0, 1)}),
        ((torch.ones(2), 0.5), (torch.ones(2), 0.5 + 1e-9)),
        ([torch.ones(2), "a"], [torch.ones(2), "a"]),
        ((torch.ones(2), 3), [torch.ones(2), 3]),
        (torch.tensor([True, False]), torch.tensor([True, False])),
        (torch.tensor(3), torch.tensor(3)),
        (torch.tensor(3), torch.tensor(3, dtype=torch.int32)),
        (torch.tensor([0.5]), torch.tensor([0.5], dtype=torch.float64)),
        (3, np.int64(3)),
        ({"a": 2}, Counter("aa")),
        (torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 1.0])),
    ],
    ids=str,
)
def test_numbers_sets_and_tuples_are_compared_by_value(expected: object, result: object) -> None:
    assert _returning(expected).judge(lambda: result) == CheckResult("correct")


@pytest.mark.parametrize(
    ("expected", "result", "message"),
    [
        (0.5, 0.6, "the result is 0.6; expected 0.5"),
        (0.5, float("nan"), "the result is nan; expected 0.5"),
        (1.0, True, "the result is bool; expected a number"),
        (0.5, "0.5", "the result is str; expected a number"),
        (0.5, torch.ones(2), "the result is Tensor; expected a number"),
        (0.5, 1j, "the result is complex; expected a number"),
        (3, 3.0, "the result is float; expected int"),
        ({(0, 1)}, {(1, 0)}, "the result is {(1, 0)}; expected {(0, 1)}"),
        ({(0, 1)}, [(0, 1)], "the result is list; expected set"),
        ((torch.ones(2), 0.5), (torch.ones(2), 0.7), "item 1: the result is 0.7; expected 0.5"),
        ((torch.ones(2), 0.5), (torch.ones(2),), "the result has 1 items; expected 2"),
        ([torch.ones(2)], [torch.ones(3)], "item 0: the result has shape (3,); expected (2,)"),
        (-1.607, -1.60704, "the result is -1.60704; expected -1.607"),
        (torch.tensor([1.607]), torch.tensor([1.6075]), "at index (0,) the result is 1.6075; expected 1.607"),
        (["W_Q", "W_K", "W_V"], ["W_Q", "W_V", "W_K"], "the items of the result are right, but in another order, from"),
        ([1, 2], [2, 1], "the items of the result are right, but in another order, from item 0 on"),
        ([1, 2], [2, 2], "item 0: the result is 2; expected 1"),
        (torch.tensor([True]), torch.tensor([1]), "the result has dtype torch.int64; expected torch.bool"),
        (torch.tensor([True]), torch.tensor([False]), "at index (0,) the result is 0; expected 1"),
        (torch.tensor(3.0), torch.tensor(4.0), "at index () the result is 4; expected 3"),
        (torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 2.0]), "at index (1,) the result is 2; expected 1"),
    ],
    ids=str,
)
def test_what_differs_is_described(expected: object, result: object, message: str) -> None:
    verdict = _returning(expected).judge(lambda: result)
    assert verdict.status == "not quite"
    assert verdict.message.startswith(f"case 1 of 1: {message}")


# ---- hints and solution ------------------------------------------------------------------------------------------


def test_hints_come_one_by_one_and_begin_again(double: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        double.hint()
    expected = ["Hint 1 of 2: Add.", "Hint 2 of 2: x + x", "Hint 1 of 2: Add."]
    assert capsys.readouterr().out.splitlines() == expected


def test_the_solution_is_the_code_that_runs_without_its_decorator(
    double: Exercise, capsys: pytest.CaptureFixture[str]
) -> None:
    double.solution()
    printed = capsys.readouterr().out
    assert printed == "def double(x: Tensor, notes: list[int]) -> Tensor:\n    return x + x\n"
    assert source_of(double.reference) == printed
    assert double.name == "double"


# ---- going on with an answer -------------------------------------------------------------------------------------


def test_a_lesson_goes_on_with_a_right_answer(double: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    def own(x: Tensor, notes: list[int]) -> Tensor:
        return 2 * x

    assert double.pick(own, double.reference) is own
    assert capsys.readouterr().out == "The lesson goes on with your version.\n"


@pytest.mark.parametrize("answer", [lambda x, notes: ..., lambda x, notes: 3 * x, lambda x, notes: 1 / 0])
def test_otherwise_it_goes_on_with_its_own(
    double: Exercise, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert double.pick(answer, double.reference) is double.reference
    assert capsys.readouterr().out == "The lesson goes on with its own version.\n"


BLANK = [lambda x, notes: ..., lambda x, notes: x + 1, None]  # the second is the given code


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Keeps a source as an earlier session would have."""
    monkeypatch.setenv("TFBOOK_PROGRESS", str(tmp_path / "progress.json"))

    def keep(source: str) -> None:
        solved.answers_file().write_text(json.dumps({"exercises": {"double": source}}), encoding="utf-8")

    return keep


@pytest.mark.parametrize("blank", BLANK)
@pytest.mark.parametrize(
    "source",
    [
        "def double(x, notes):\n    return 2 * x\n",
        "def mine(x, notes):\n    return 2 * x\n",
        "def double(x, notes):\n    return torch.add(x, x)\n",
        "def double(x, notes):\n    return BLANK and 2 * x\n",
    ],
)
def test_a_kept_answer_runs_where_none_was_attempted(
    double: Exercise, kept: Callable[[str], None], blank: Any, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under another name, too, and with the names of the exercise's module and of the page."""
    kept(source)
    chosen = double.pick(blank, double.reference)
    assert chosen is not double.reference
    assert chosen(torch.tensor([3.0]), [1]) == 6
    assert capsys.readouterr().out == "The lesson goes on with your version from before.\n"
    assert inspect.getsource(chosen).startswith(source.splitlines()[0]), "tracebacks show its lines"


def test_an_attempt_goes_before_a_kept_answer(
    double: Exercise, kept: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    kept("def double(x, notes):\n    return 2 * x\n")
    assert double.pick(lambda x, notes: 3 * x, double.reference) is double.reference

    def own(x: Tensor, notes: list[int]) -> Tensor:
        return x + x

    assert double.pick(own, double.reference) is own
    assert "before" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def double(x, notes):\n    return 3 * x\n", "not quite: case 1 of 2: at index (0,) the result is 3"),
        ("def double(x):\n    return 2 * x\n", "raised an error: TypeError"),
        ("def double(x, notes):\n    return lost(x)\n", "raised an error: NameError: name 'lost' is not defined"),
        ("def double(x, notes=lost):\n    return 2 * x\n", "raised an error: NameError: name 'lost' is not defined"),
        ("def double(x, notes=exit()):\n    return 2 * x\n", "raised an error: SystemExit"),
        ("def double(x, notes):\n    exit()\n", "raised an error: SystemExit"),
        ("def double(x, notes:\n    return 2 * x\n", "raised an error: SyntaxError"),
        ("double = 3\n", "raised an error: ValueError: the answer defines no function"),
        ("\0", "raised an error: "),
        ("", "raised an error: ValueError"),
        ("def double(x, notes):\n    while True: pass\n", "not quite: case 1 did not finish"),
        ("while True: pass\ndef double(x, notes): pass\n", "not quite: its definition does not finish"),
    ],
)
def test_a_kept_answer_that_does_not_pass_harms_nothing(
    double: Exercise,
    kept: Callable[[str], None],
    source: str,
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as one from before the exercise was changed; one line says why."""
    monkeypatch.setattr(engine, "TIME_LIMIT", 0.2)
    kept(source)
    before = solved.answers_file().read_text(encoding="utf-8")
    assert double.pick(BLANK[0], double.reference) is double.reference
    printed = capsys.readouterr().out
    assert printed.startswith("The lesson goes on with its own version, since yours from before does not pass here (")
    assert why in printed
    assert printed.count("\n") == 1
    assert solved.answers_file().read_text(encoding="utf-8") == before


def test_a_kept_answer_leaves_the_page_alone(double: Exercise, kept: Callable[[str], None]) -> None:
    kept("BLANK = 3\ndef double(x, notes):\n    global BLANK\n    BLANK = 4\n    return 2 * x\n")
    double.pick(BLANK[0], double.reference)
    assert len(BLANK) == 3


def test_the_stop_button_stops_a_kept_answer(double: Exercise, kept: Callable[[str], None]) -> None:
    kept("def double(x, notes=(_ for _ in ()).throw(KeyboardInterrupt)): return 2 * x\n")
    with pytest.raises(KeyboardInterrupt):
        double.pick(BLANK[0], double.reference)


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"exercises": {"double": 3}}', '{"exercises": ["double"]}'])
def test_a_damaged_file_of_answers_counts_as_none(
    double: Exercise, kept: Callable[[str], None], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    solved.answers_file().write_text(damage, encoding="utf-8")
    assert double.pick(BLANK[0], double.reference) is double.reference
    assert capsys.readouterr().out == "The lesson goes on with its own version.\n"


def test_a_tensor_may_stand_for_true_or_false() -> None:
    @exercise(cases=lambda: [(1.0,), (-1.0,)], hints=["Compare."], differentiable=False)
    def positive(x: float) -> bool:
        return x > 0

    assert positive.judge(lambda x: torch.tensor(x) > 0).status == "correct"
    assert positive.judge(lambda x: torch.tensor(x) < 0).status == "not quite"
    assert "expected bool" in positive.judge(lambda x: torch.tensor([x, x]) > 0).message
    assert "expected bool" in positive.judge(lambda x: torch.tensor(float(x > 0))).message
