"""The stop button ends the loop of a progress bar after the current step, and what follows runs."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tfbook.pretrain import storyteller
from tfbook.training import Recipe, fit
from tfbook.training.progress import tqdm

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def handler() -> Iterator[Any]:
    """Python's handler, which is there again after the test; a process started in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    found = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert found is signal.default_int_handler


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def silent(items: Any, **options: Any) -> tqdm:
    return tqdm(items, file=StringIO(), **options)


def test_the_loop_ends_after_the_step_in_which_it_was_pressed(handler: Any) -> None:
    begun, done = [], []
    for step in silent(range(7)):
        begun.append(step)
        if step == 2:
            press()
        done.append(step)
    assert begun == done == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "stopped after 3 of 7 steps:  43%"),
        ({"leave": False}, "stopped after 3 of 7 steps:  43%"),
        ({"unit": "token"}, "stopped after 3 of 7 tokens:  43%"),
        ({"total": 700}, "stopped after 3 of 700 steps:   0%"),
    ],
)
def test_the_bar_stays_and_says_where_it_was_stopped(options: dict[str, Any], expected: str) -> None:
    line = StringIO()
    for step in tqdm(range(7), file=line, **options):
        if step == 2:
            press()
    assert line.getvalue().splitlines()[-1].startswith(expected)
    assert "3/7" in line.getvalue().splitlines()[-1]
    assert line.getvalue().endswith("\n")


def test_items_without_a_number_are_counted_too() -> None:
    line = StringIO()
    for step in tqdm(itertools.count(), file=line):
        if step == 4:
            press()
    assert "stopped after 5 steps: : 5it" in line.getvalue()


def test_a_press_in_the_last_step_stops_nothing() -> None:
    line = StringIO()
    for step in tqdm(range(3), file=line):
        if step == 2:
            press()
    assert "stopped" not in line.getvalue()


def test_a_second_press_raises_at_once(handler: Any) -> None:
    done = []

    def train() -> None:
        for step in silent(range(7)):
            press()
            press()
            done.append(step)

    with pytest.raises(KeyboardInterrupt):
        train()
    assert done == []
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_press_in_the_inner_loop_ends_both() -> None:
    done = []
    for run in silent(range(3)):
        for step in silent(range(4)):
            if (run, step) == (1, 2):
                press()
            done.append((run, step))
    assert done[-1] == (1, 2)
    assert len(done) == 7


def test_a_press_between_inner_loops_lets_the_next_one_finish() -> None:
    """It belongs to the outer loop's current step; a press in the inner loop ends that one, too."""
    done = []
    for run in silent(range(3)):
        press()
        for step in silent(range(4)):
            if step == 2:
                press()
            done.append((run, step))
    assert done == [(0, 0), (0, 1), (0, 2)]


def test_a_press_in_a_training_inside_a_loop_ends_both() -> None:
    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        if len(seen) == 5:
            press()
        seen.append(batch)
        return model(batch).square().sum()

    seen, histories = list[Tensor](), []
    for _ in silent(range(3)):
        histories.append(fit(nn.Linear(1, 1), loss, lambda number: torch.ones(1, 1), Recipe(steps=4)))
    assert [history.steps for history in histories] == [4, 2]


def test_fit_says_where_it_was_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        press()
        return model(batch).square().sum()

    fit(nn.Linear(1, 1), loss, lambda number: torch.ones(1, 1), Recipe(steps=4))
    assert "stopped after 1 of 4 steps" in capsys.readouterr().err


def test_a_loop_that_zips_the_bar_loses_no_item() -> None:
    items, done = iter("abcdef"), []
    for step, item in zip(silent(range(5)), items, strict=False):
        if step == 1:
            press()
        done.append(item)
    assert done == ["a", "b"]
    assert next(items) == "c"


def test_a_generator_around_a_bar_ends_too() -> None:
    def train() -> Iterator[int]:
        for step in silent(range(5)):
            if step == 2:
                press()
            yield step

    assert list(train()) == [0, 1, 2]


@pytest.mark.parametrize("leaves", ["break", "error"])
def test_a_loop_that_is_left_restores_the_handler(leaves: str, handler: Any) -> None:
    try:
        for _ in silent(range(3)):
            if leaves == "break":
                break
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert signal.getsignal(signal.SIGINT) is handler


def test_bars_that_end_in_another_order_restore_the_handler(handler: Any) -> None:
    first, second = (iter(silent(range(3))) for _ in range(2))
    next(first), next(second)
    first.close()
    second.close()
    assert signal.getsignal(signal.SIGINT) is handler
    with pytest.raises(KeyboardInterrupt):
        press()


def test_a_disabled_bar_is_stopped_as_well() -> None:
    done = []
    for step in tqdm(range(5), disable=True):
        if step == 1:
            press()
        done.append(step)
    assert done == [0, 1]


def test_a_bar_can_be_iterated_twice() -> None:
    bar = silent([1, 2, 3])
    assert [sum(bar), sum(bar)] == [6, 6]
    assert len(bar) == 3


def test_a_thread_other_than_the_main_one_needs_no_handler(handler: Any) -> None:
    handlers, done = [], []

    def work() -> None:
        for step in silent(range(3)):
            handlers.append(signal.getsignal(signal.SIGINT))
            done.append(step)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=60)
    assert done == [0, 1, 2]
    assert handlers == 3 * [handler]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to a process")
def test_a_process_that_is_interrupted_goes_on_after_the_loop() -> None:
    code = (
        "import sys, time\n"
        "from tfbook.training.progress import tqdm\n"
        "for step in tqdm(range(6000)):\n"
        "    print(step, flush=True)\n"
        "    time.sleep(0.01)\n"
        "print('after', step, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    last = int(out.split()[-1])
    assert out.splitlines()[-1] == f"after {last}"
    assert f"stopped after {last + 1} of 6000 steps" in err


def test_stories_are_cut_where_telling_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    teller = storyteller.load_storyteller("draft")
    whole = storyteller.tell(teller, 2, seed=3)
    calls = itertools.count(1)

    def pressed(logits: Tensor, ids: Tensor) -> Tensor:
        if next(calls) == 5:
            press()
        return logits

    monkeypatch.setattr(storyteller.sampling, "temperature", lambda value: pressed)
    assert storyteller.tell(teller, 2, seed=3) == [words[:5] for words in whole]
