"""Checks what you changed, in minutes: the unit tests that import it, then every notebook at scale quick.

    python tools/check.py                  what differs from the last commit
    python tools/check.py --since main     what differs from a branch

A test belongs to a changed module when it imports it, directly or through another test's module, or bears its name.
The whole suite, `make test`, is what decides.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import book

TESTS = book.ROOT / "tests"


def changed(since: str) -> list[str]:
    """The files that differ from a commit, those that git doesn't know included. Raises CalledProcessError."""
    commands = (["diff", "--name-only", since], ["ls-files", "--others", "--exclude-standard"])
    found = [
        subprocess.run(["git", *command], cwd=book.ROOT, check=True, capture_output=True, text=True).stdout
        for command in commands
    ]
    return sorted(set("".join(found).split()))


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, and the names that it imports from them, each as module.name."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tests_of(files: list[str]) -> list[str]:
    """The test files that belong to changed files, themselves included."""
    modules = {re.sub(r"(/__init__)?\.py$", "", file).replace("/", ".") for file in files if file.endswith(".py")}
    modules |= {module.removeprefix("tools.") for module in modules}
    tests = sorted(TESTS.rglob("test_*.py"))
    uses = {test: set(imported(test)) for test in tests}
    names = {f"test_{module.rpartition('.')[2]}" for module in modules}
    lessons = {f"test_lesson_{part}" for file in files for part in re.findall(r"lessons/(\w+)/", file)}
    return [
        test.relative_to(book.ROOT).as_posix()
        for test in tests
        if test.relative_to(book.ROOT).as_posix() in files
        or uses[test] & modules
        or test.stem in names
        or any(test.stem.startswith(lesson) for lesson in lessons)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default="HEAD", help="the commit to compare with; HEAD by default")
    options = parser.parse_args()
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2"]
    tests = tests_of(changed(options.since))
    print(f"{len(tests)} test files belong to what changed", *tests, sep="\n  ", flush=True)
    failed = subprocess.run([*pytest, "--dist", "loadfile", *tests], cwd=book.ROOT).returncode if tests else 0
    lax = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", "-p", "no:cacheprovider"]
    quick = os.environ | {"TFBOOK_SCALE": "quick", "NB_BUDGET_S": "inf", "NB_CELL_BUDGET_S": "inf"}
    command = [*pytest, "--dist", "loadscope", *lax, "notebooks"]
    return failed or subprocess.run(command, cwd=book.ROOT, env=quick).returncode


if __name__ == "__main__":
    sys.exit(main())
