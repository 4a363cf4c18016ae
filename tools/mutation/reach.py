"""Which tests run which lines of the package, and processes in which tests are run.

Measured by coverage.py, which pytest's nbval brings along.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import coverage
import pytest

from .mutants import Mutant
from .processes import ROOT, forked, run_pytest, wait

ROOMS = [ROOT / "tfbook" / room for room in ("attention", "models", "training", "generation", "text")]
SUITES = ("unit", "invariants", "data")
LEFT_OUT = ("test_lesson_", "test_random_cases")  # tests of lessons, and random cases, which take minutes
OWN = {"tfbook", "tests", "tools", "__main__"}


def _test_files() -> list[Path]:
    """Those that import the rooms; in the first two suites also those that import what does."""
    found = []
    for path in sorted(path for suite in SUITES for path in (ROOT / "tests" / suite).glob("test_*.py")):
        imported = _imports(path)
        steps = [] if path.parent.name == "data" else [_imports(each) for each in map(_file, imported) if each]
        if any(_is_in_rooms(each) for each in imported.union(*steps)) and not path.stem.startswith(LEFT_OUT):
            found.append(path)
    return found


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Recorder:
    """A plugin of pytest that notes seconds and failures, and tells `switch` which file or test is running."""

    def __init__(self, switch: Callable[[str], None]):
        self.switch, self.seconds, self.failed = switch, dict[str, float](), set[str]()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        if isinstance(collector, pytest.Module):
            self.switch(collector.nodeid)
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.switch(item.nodeid)
        begin = time.process_time()
        yield
        self.seconds[item.nodeid] = time.process_time() - begin

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)


def measure(kept: dict[str, Path]) -> None:
    """Writes what files of tests run: seconds of the tests that pass, and for each line of a module the tests as bits.

    Signatures are not checked, which takes half of the time; tests that fail for that are tried once more.
    """
    os.environ["TFBOOK_CHECK"] = "0"
    measured = coverage.Coverage(data_file=None, config_file=False, include=[f"{room}/*" for room in ROOMS])
    recorder = Recorder(measured.switch_context)
    with measured.collect():
        run_pytest([*kept], recorder)
    data, modules = measured.get_data(), [name for name in sys.modules if name.split(".")[0] not in OWN]
    for file, path in kept.items():
        tests = [name for name in recorder.seconds if name.startswith(f"{file}::")]
        bits = {name: 1 << i for i, name in enumerate(tests)} | {file: (1 << len(tests)) - 1}
        lines = {}
        for module in data.measured_files():
            found = {
                line: hex(_union(bits.get(each, 0) for each in contexts))
                for line, contexts in data.contexts_by_lineno(module).items()
            }
            lines[Path(module).relative_to(ROOT).as_posix()] = {
                line: each for line, each in found.items() if each != "0x0"
            }
        seconds = [(name, recorder.seconds[name], name in recorder.failed) for name in tests]
        path.write_text(json.dumps({"tests": seconds, "lines": lines, "modules": modules}))


def confirm(kept: Path) -> None:
    """Leaves out the tests that fail when signatures are checked, too."""
    found = json.loads(kept.read_text())
    recorder = Recorder(lambda name: None)
    if doubtful := [name for name, _, failed in found["tests"] if failed]:
        run_pytest(doubtful, recorder)
    found["tests"] = [(name, None if name in recorder.failed else seconds) for name, seconds, _ in found["tests"]]
    kept.write_text(json.dumps(found))


class Tests:
    """Which tests run which lines, measured again where a file of tests or the package has changed."""

    def __init__(self, folder: Path):
        package = "".join(_hash(path.read_bytes()) for room in ROOMS for path in sorted(room.rglob("*.py")))
        kept = {}
        for path in _test_files():
            version = _hash(package.encode() + path.read_bytes())[:12]
            name = path.relative_to(ROOT).as_posix()
            kept[name] = folder / f"{path.parent.name}-{path.stem}-{version}.json"
        if missing := {name: path for name, path in kept.items() if not path.exists()}:
            print(f"measuring {len(missing)} files of tests", flush=True)
            wait(forked(lambda: measure(missing)), math.inf)
            for path in missing.values():
                wait(forked(lambda path=path: confirm(path)), math.inf)
        self.files = {name: json.loads(path.read_text()) for name, path in kept.items()}
        self.imports = {name: _imports(ROOT / name) for name in kept}

    def import_all(self) -> None:
        """Imports what tests need, so that no mutant has to."""
        for module in dict.fromkeys(module for found in self.files.values() for module in found["modules"]):
            with contextlib.suppress(Exception):
                importlib.import_module(module)

    def of(self, mutant: Mutant) -> list[tuple[str, float]]:
        """Tests and their seconds, the likeliest to fail first: by the name of their file, its imports, their speed.

        All tests of a module are asked about what is not in a function, or in the head of one.
        """
        module, chosen = mutant.module.removesuffix(".py").replace("/", "."), []
        room, _, stem = module.rpartition(".")
        for file, found in self.files.items():
            lines = {int(line): int(bits, 16) for line, bits in found["lines"].get(mutant.module, {}).items()}
            all_tests = (1 << len(found["tests"])) - 1
            hit = _union(bits for line, bits in lines.items() if line in mutant.lines)
            if not mutant.function or mutant.before.startswith("def "):
                hit = _union(bits for bits in lines.values() if bits != all_tests)
            rank = 0 if stem in file else 1 if {module, room} & self.imports[file] else 2
            tests = enumerate(found["tests"])
            chosen += [(rank, seconds, test) for i, (test, seconds) in tests if seconds is not None and hit >> i & 1]
        return [(test, seconds) for _, seconds, test in sorted(chosen)]


def _union(every: Iterator[int]) -> int:
    bits = 0
    for each in every:
        bits |= each
    return bits


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _file(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.exists()), None)


def _is_in_rooms(module: str) -> bool:
    return any(module.startswith(f"tfbook.{room.name}") for room in ROOMS)
