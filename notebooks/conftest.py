"""What `pytest --nbval` needs so that it compares every notebook strictly, and fails for no other reason than a change.

nbval 0.11 reruns each cell and compares its output with the one that is stored. A cell tagged `varies` is compared but
for its numbers: the same kinds of outputs, words, rows and columns, a picture where there was one. One tagged `offline`
is compared only where no corpus can be fetched, and one tagged `nbval-ignore-output` never. Here nbval also

- lets floats differ in rounding, and leaves out stderr, widgets and the records of claims;
- fails when an output changes its kind, and when a cell was not executed in its turn;
- fails at once when the kernel dies, instead of after half an hour;
- reports each notebook's seconds, and fails what takes more than `SLACK` times NB_BUDGET_S (a notebook) or
  NB_CELL_BUDGET_S (a cell). The budgets are those of a quiet machine, and a runner is seldom quiet: the limit grows
  with the time that a fixed piece of work takes here and now, unless NB_SLOWNESS says how slow the machine is.

Text that may differ in any cell is in tests/notebooks/sanitize.cfg; CONTRIBUTING.md says which cell gets which tag.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from queue import Empty
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import nbval.plugin
import pytest
import torch
from nbformat import NotebookNode
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile
from torch import nn

WIDGET = "application/vnd.jupyter.widget-view+json"
CLAIM = "application/vnd.tfbook.claim+json"
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?!\w)")
VARIES, OFFLINE = "varies", "offline"  # tags: numbers are not compared; nothing is where corpora can be fetched
CORPORA = os.environ.get("TFBOOK_OFFLINE", "") != "1"
QUANTITY = re.compile(  # what such a cell may show otherwise: a color, a bar, a number that is no part of a name
    r"#[0-9a-fA-F]{6}\b|█+|(?<!\w)[-+−]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?"
)
RELATIVE, ABSOLUTE = 1e-3, 1e-6  # the second is float32's noise around zero

NOTEBOOK_BUDGET = float(os.environ.get("NB_BUDGET_S", "inf"))
CELL_BUDGET = float(os.environ.get("NB_CELL_BUDGET_S", "inf"))
SLACK = 1.5
QUIET_SECONDS = 0.4  # of the work that `slowness` times, on two quiet cores on which lesson 05 takes 70 s
LONG_CELL = 5.0  # seconds; after such a cell the machine is timed again


# ---- comparing outputs -------------------------------------------------------------------------------------------


def same_number(stored: str, now: str) -> bool:
    """Whether two printed numbers are the same: integers exactly, floats within 0.1% or one unit of a third decimal."""
    if stored == now:
        return True
    if not any(sign in (stored + now).lower() for sign in ".e"):
        return False
    decimals = min(len(number.partition(".")[2]) if "e" not in number.lower() else 0 for number in (stored, now))
    last_place = 1.01 * 10.0**-decimals if decimals >= 3 else 0.0
    return math.isclose(float(stored), float(now), rel_tol=RELATIVE, abs_tol=max(ABSOLUTE, last_place))


def same_text(stored: str, now: str) -> bool:
    """Whether two texts differ in nothing but white space and the rounding of floats."""
    numbers = list(zip(NUMBER.findall(stored), NUMBER.findall(now), strict=False))
    words_stored, words_now = ("".join(NUMBER.sub("#", text).split()) for text in (stored, now))
    return words_stored == words_now and all(same_number(*pair) for pair in numbers)


def same_but_for_numbers(stored: str, now: str) -> bool:
    """Whether two texts have the same words, and the same number of numbers in the same places."""
    one, other = ("".join(QUANTITY.sub("#", text).split()) for text in (stored, now))
    return one == other


def kind(output: NotebookNode) -> str:
    """The stream's name or the MIME types of an output."""
    return output.name if output.output_type == "stream" else " ".join(sorted(output.get("data", {}))) or "error"


def is_compared(output: NotebookNode) -> bool:
    return kind(output) != "stderr" and WIDGET not in output.get("data", {})


class StrictCell(IPyNbCell):
    """A code cell, compared as described above."""

    turn: int  # the execution count that it must have

    def runtest(self) -> None:
        if self.cell.execution_count != self.turn:
            count = self.cell.execution_count
            self.raise_cell_error(f"The stored execution count is {count}, expected {self.turn}: run `make notebooks`")
        super().runtest()

    def compare_outputs(self, test: list[Any], ref: list[Any], skip_compare: tuple[str, ...] | None = None) -> bool:
        if CORPORA and self._has(OFFLINE):
            return True
        now, stored = ([output for output in outputs if is_compared(output)] for outputs in (test, ref))
        kinds_now, kinds_stored = ([kind(output) for output in outputs] for outputs in (now, stored))
        if kinds_now != kinds_stored:
            self.comparison_traceback = [f"kinds of output: {kinds_stored} are stored, {kinds_now} came now"]
            return False
        for output_now, output_stored in zip(now, stored, strict=True):
            self._take_over(output_now, output_stored, "text")
            data_now, data_stored = (output.get("data", {}) for output in (output_now, output_stored))
            for mime in ("text/plain", "text/html"):
                self._take_over(data_now, data_stored, mime)
            if self._has(VARIES) and data_stored.keys() >= {"text/plain", "text/html"}:
                data_now["text/plain"] = data_stored["text/plain"]  # says the same, in lines as long as its numbers are
        return super().compare_outputs(now, stored, skip_compare)

    def _has(self, tag: str) -> bool:
        return tag in self.cell.metadata.get("tags", ())

    def _take_over(self, now: dict[str, str], stored: dict[str, str], key: str) -> None:
        """Sets the new text to the stored one where they count as the same, so that nbval finds no difference."""
        same = same_but_for_numbers if self._has(VARIES) else same_text
        if key in stored and same(self.sanitize(stored[key]), self.sanitize(now[key])):
            now[key] = stored[key]


# ---- running cells -----------------------------------------------------------------------------------------------


class WatchedKernel(RunningKernel):
    """A kernel whose death is noticed within a second or two."""

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return super().await_reply(msg_id, timeout=1)
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("the kernel died while it ran this cell (out of memory?)") from None
                if time.monotonic() > deadline:
                    raise


nbval.plugin.RunningKernel = WatchedKernel  # nbval has no other way to choose the kernel's class


class StrictNotebook(IPyNbFile):
    """A notebook whose code cells are `StrictCell`s."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.skip_compare += (CLAIM,)

    def collect(self) -> Iterator[StrictCell]:
        turn = 0
        for item in super().collect():
            cell = StrictCell.from_parent(
                self, name=item.name, cell_num=item.cell_num, cell=item.cell, options=item.options
            )
            if cell.cell.source.strip():  # Jupyter does not count an empty cell
                turn += 1
                cell.turn = turn
                yield cell

    def setup(self) -> None:
        test = os.environ.pop("PYTEST_CURRENT_TEST")  # ipykernel would not capture what other processes print
        self.nothing_solved = TemporaryDirectory()  # else kept answers would run in place of the page's pieces
        with patch.dict(os.environ, TFBOOK_PROGRESS=str(Path(self.nothing_solved.name) / "progress.json")):
            super().setup()
        os.environ["PYTEST_CURRENT_TEST"] = test

    def teardown(self) -> None:
        super().teardown()
        self.nothing_solved.cleanup()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Generator[None, list[Any], list[Any]]:
    collectors = yield
    return [
        StrictNotebook.from_parent(parent, path=file_path) if isinstance(collector, IPyNbFile) else collector
        for collector in collectors
    ]


# ---- time --------------------------------------------------------------------------------------------------------

_seconds: dict[str, float] = defaultdict(float)  # by notebook
_slowness: dict[str, float] = {}  # of the machine, the largest that was measured during a notebook
_late: set[str] = set()  # notebooks of which it was said


def slowness() -> float:
    """How many times a quiet machine's seconds a fixed piece of work takes now: many small products, as in lessons."""
    if "NB_SLOWNESS" in os.environ:
        return float(os.environ["NB_SLOWNESS"])
    model, words = nn.GRU(128, 128), torch.ones(20, 64, 128)
    model(words)
    start = time.perf_counter()
    for _ in range(40):
        model(words)[0].sum().backward()
    return max(1.0, (time.perf_counter() - start) / QUIET_SECONDS)


def excess(notebook: str, cell_seconds: float) -> str:
    """What a cell, just run, makes its notebook or itself take too long for, in words."""
    _seconds[notebook] += cell_seconds
    if cell_seconds > LONG_CELL or notebook not in _slowness:
        _slowness[notebook] = max(_slowness.get(notebook, 1.0), slowness())
    slack = SLACK * _slowness[notebook]
    if cell_seconds > slack * CELL_BUDGET:
        limit = f"NB_CELL_BUDGET_S is {CELL_BUDGET:g}, the limit {slack:.1f} times that"
        return f"this cell took {cell_seconds:.1f} s; {limit}"
    if notebook not in _late and _seconds[notebook] > slack * NOTEBOOK_BUDGET:
        _late.add(notebook)
        return f"in this cell the notebook passes {slack:.1f} times the {NOTEBOOK_BUDGET:g} s of NB_BUDGET_S"
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if isinstance(item, StrictCell) and call.when == "call":
        over = excess(item.parent.nodeid, call.duration)
        report.slowness = _slowness[item.parent.nodeid]  # travels with the report, from whichever process it is
        if over and report.passed:
            report.outcome, report.longrepr = "failed", over
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    notebooks: dict[str, list[float]] = defaultdict(list)
    slow: dict[str, float] = defaultdict(float)
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if getattr(report, "when", "") == "call" and ".ipynb::" in report.nodeid:
            name = report.nodeid.partition("::")[0]
            notebooks[name].append(report.duration)
            slow[name] = max(slow[name], getattr(report, "slowness", 1.0))
    for name, seconds in sorted(notebooks.items()):
        late = sum(seconds) > NOTEBOOK_BUDGET or max(seconds) > CELL_BUDGET
        machine = f"(machine {slow[name]:.1f}×)"
        line = f"{sum(seconds):6.1f} s, slowest cell {max(seconds):5.1f} s  {machine}  {name}"
        terminalreporter.line(line + "  OVER ITS BUDGET" * late)
