"""Whether tests notice a mutant: each is tried in a process of its own, and nothing is written into the repository.

In place, the tests are collected once; a fork of that process puts the mutant's code into the function that it changes.
What is not in a function is imported anew, in a fork of a process that has not imported the package.
"""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from .mutants import Mutant
from .processes import ROOT, forked, run_pytest, wait
from .reach import Tests

BUDGET = 60.0  # seconds of the processor for tests, as measured without a mutant, that each has to survive
FIRST = 5.0  # seconds of tests in the first of two batches, which few survive
MEMORY = 12 * 2**30  # bytes that a mutant may allocate
ELSEWHERE = 99  # the exit status for a mutant that cannot be tried in place
Timed = list[tuple[str, float]]  # tests and their seconds
Attempt = Callable[[Mutant, list[str], Path], int]  # 0 when all of the tests pass; the first that fails is written


def judge(mutant: Mutant, tests: Timed, results: Path, attempt: Attempt) -> None:
    """Adds a line to the results, unless the mutant has to be tried elsewhere."""

    def limited(batch: Timed, seconds: int) -> int:
        with contextlib.suppress(ValueError):  # macOS has no limit of memory
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # a loop without end, however busy the machine
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        return attempt(mutant, [test for test, _ in batch], failed)

    begin, verdict, by = time.monotonic(), "survived" if tests else "not run", ""
    with tempfile.TemporaryDirectory() as scratch:
        failed = Path(scratch) / "failed"
        for batch in batches(tests):
            limit = int(20 + 3 * sum(seconds for _, seconds in batch))
            status = wait(forked(lambda batch=batch, limit=limit: limited(batch, limit)), 20 * limit)
            if status == ELSEWHERE:
                return
            if status != 0:
                verdict, by = "found", failed.read_text() if failed.exists() else f"status {status}"
                break
    seconds = round(time.monotonic() - begin, 1)
    row = {"key": mutant.key, "line": mutant.lines.start, "verdict": verdict, "by": by, "seconds": seconds}
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def batches(tests: Timed) -> Iterator[Timed]:
    """The first few seconds of tests, then the others that the budget allows."""
    first, rest, total = [], [], 0.0
    for test, seconds in tests:
        total += seconds
        if total <= FIRST or not first:
            first.append((test, seconds))
        elif total <= BUDGET:
            rest.append((test, seconds))
    yield from (batch for batch in (first, rest) if batch)


# ---- in place ----------------------------------------------------------------------------------------------------


class InPlace:
    """A plugin of pytest that tries mutants where it would run the tests that it has collected."""

    def __init__(self, todo: list[Mutant], tests: Tests, results: Path):
        self.todo, self.tests, self.results = todo, tests, results
        self.items: dict[str, Any] = {}
        self.failed: Path | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.functions = functions()
        gc.freeze()
        for mutant in self.todo:
            tests = [(test, seconds) for test, seconds in self.tests.of(mutant) if test in self.items]
            judge(mutant, tests, self.results, self.attempt)
        return True

    def attempt(self, mutant: Mutant, tests: list[str], failed: Path) -> int:
        self.failed = failed
        if not swap(mutant, self.functions):
            return ELSEWHERE
        for item, following in pairwise([*(self.items[test] for test in tests), None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failed.exists():
                return 1
        return 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is not None:
            self.failed.write_text(report.nodeid)


def in_place(todo: list[Mutant], tests: Tests, results: Path) -> None:
    """Tries those that are in a function."""
    run_pytest([*tests.files], InPlace(todo, tests, results))


Place = tuple[str, str, int]  # file, qualified name and first line of a function


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def functions() -> dict[Place, list[FunctionType]]:
    """All of the package that exist, decorated or not."""
    found: dict[Place, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(f"{ROOT}/tfbook/"):
            found.setdefault(_place(each.__code__), []).append(each)
    return found


def swap(mutant: Mutant, existing: dict[Place, list[FunctionType]]) -> bool:
    """Gives the function that differs its new code; False where there is none, or where it does not fit."""
    module = sys.modules.get(mutant.module.removesuffix(".py").replace("/", "."))
    if module is None or not mutant.function or mutant.before.startswith("def "):
        return False
    path = module.__file__
    compiled = [
        module.__spec__.loader.source_to_code(source, path) for source in (Path(path).read_bytes(), mutant.source)
    ]
    before, after = ({_place(code): code for code in _codes(each)} for each in compiled)
    changed = [place for place in after if place in before and before[place] != after[place] and place in existing]
    try:
        for place in changed:
            for function in existing[place]:
                function.__code__ = after[place]
    except ValueError:  # another number of variables of the function around it
        return False
    return bool(changed)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Of functions with a name, at any depth."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if "<lambda>" not in each.co_qualname:
                yield each
            yield from _codes(each)


# ---- imported anew -----------------------------------------------------------------------------------------------


class Chosen:
    """A plugin of pytest that runs some tests in a given order, and notes the first that fails."""

    def __init__(self, tests: list[str], failed: Path):
        self.order, self.failed = {test: i for i, test in enumerate(tests)}, failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = (each for each in items if each.nodeid in self.order)
        items[:] = sorted(chosen, key=lambda each: self.order[each.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.write_text(report.nodeid)


def imported(mutant: Mutant, tests: list[str], failed: Path) -> int:
    """The attempt in which the package is imported with the mutant."""
    sys.dont_write_bytecode = True
    substitute(mutant.module, mutant.source)
    return run_pytest(["-x", *dict.fromkeys(test.partition("::")[0] for test in tests)], Chosen(tests, failed))


def substitute(module: str, source: bytes) -> None:
    """From here on this process imports the source in the place of the file's, whatever its import hooks add."""
    path, read = ROOT / module, SourceFileLoader.get_data

    def get_data(loader: SourceFileLoader, wanted: str) -> bytes:
        if Path(wanted) == path:
            return source
        if wanted.endswith(".pyc") and Path(loader.path) == path:
            raise OSError("compiled from the file")
        return read(loader, wanted)

    SourceFileLoader.get_data = get_data  # type: ignore[method-assign]
