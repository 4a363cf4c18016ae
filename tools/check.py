"""Checks what you changed, in minutes: the unit tests that belong to it, then every notebook at scale quick.

    python tools/check.py                  what differs from the last commit
    python tools/check.py --since main     what differs from a branch

A test belongs to a changed file when it is that file, bears its name, is of its lesson, imports it, or, of what is no
Python, names it. Of many the closest are run, without those marked slow. The whole suite, `make test`, is what decides.
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
MOST = 12  # test files of one check
NO_TESTS = 5  # pytest's exit status where every test was left out


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
    """The test files that belong to changed files, the closest first: themselves, by name, by import.

    Of those that only import or name a changed file, who imports least comes first: it tests little else.
    """
    modules = {re.sub(r"(/__init__)?\.py$", "", file).replace("/", ".") for file in files if file.endswith(".py")}
    modules |= {module.removeprefix("tools.") for module in modules}
    others = {Path(file).name for file in files if not file.endswith((".py", ".ipynb"))}
    names = {f"test_{module.rpartition('.')[2]}" for module in modules}
    lessons = tuple(f"test_lesson_{part}" for file in files for part in re.findall(r"lessons/(\w+)/", file))
    found = []
    for test in sorted(TESTS.rglob("test_*.py")):
        name, uses = test.relative_to(book.ROOT).as_posix(), set(imported(test))
        if name in files:
            found.append((0, 0, name))
        elif test.stem in names or (lessons and test.stem.startswith(lessons)):
            found.append((1, 0, name))
        elif uses & modules or any(other in test.read_text(encoding="utf-8") for other in others):
            found.append((2, len(uses), name))
    return [name for *_, name in sorted(found)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default="HEAD", help="the commit to compare with; HEAD by default")
    options = parser.parse_args()
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2"]
    belonging = tests_of(changed(options.since))
    tests = belonging[:MOST]
    print(f"{len(belonging)} test files belong to what changed", *tests, sep="\n  ", flush=True)
    if rest := len(belonging) - len(tests):
        print(f"  and {rest} more, which `make test-units` runs, as it does those marked slow", flush=True)
    units = [*pytest, "-m", "not slow", "--dist", "loadfile", *tests]
    failed = subprocess.run(units, cwd=book.ROOT).returncode if tests else 0
    failed = 0 if failed == NO_TESTS else failed
    lax = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", "-p", "no:cacheprovider"]
    quick = os.environ | {"TFBOOK_SCALE": "quick", "NB_BUDGET_S": "inf", "NB_CELL_BUDGET_S": "inf"}
    command = [*pytest, "--dist", "loadscope", *lax, "notebooks"]
    return failed or subprocess.run(command, cwd=book.ROOT, env=quick).returncode


if __name__ == "__main__":
    sys.exit(main())
