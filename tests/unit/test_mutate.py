"""The tool that tries mutants of the package: which it makes, and in a small repository which of them are found."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutation.mutants import mutants

ROOT = Path(__file__).parents[2]
SOURCE = '''"""A module."""

from __future__ import annotations

import torch

Name = list[int]
LIMIT = 3


def larger(x: int, y: int = 1) -> int:
    """The larger of two numbers, 1 of them known."""
    if x > y:
        return x
    return y


class Sum:
    """A sum."""

    def __repr__(self) -> str:
        return f"Sum({1 + 1})"

    def add(self, x: torch.Tensor) -> float:
        if not x.numel():
            raise ValueError(f"x has {0 + 0} elements")
        self.total = x[:, 1:].sum(
            dim=-1,  # a comment
        )
        return float(self.total)
'''
EXPECTED = {
    ("", "LIMIT = 3"): {"LIMIT = 2", "LIMIT = 4"},
    ("", "def larger(x, y=1):"): {"def larger(x, y=0):", "def larger(x, y=2):"},
    ("larger", "if x > y:"): {
        *("if x >= y:", "if x < y:", "if y > y:", "if x > x:", "if True:", "if False:"),
    },
    ("larger", "return x"): {"return y"},
    ("larger", "return y"): {"return x"},
    ("Sum.add", "if not x.numel():"): {"if x.numel():", "if not x:", "if True:", "if False:"},
    ("Sum.add", "self.total = x[:, 1:].sum(dim=-1)"): {
        *("pass", "self.total = x[:, 1:]", "self.total = x[:, 1:].sum()", "self.total = x[:, 1:].sum(dim=1)"),
        *(
            "self.total = x[:, 1:].sum(dim=-2)",
            "self.total = x[:, 1:].sum(dim=-0)",
            "self.total = x[:, 1:].mean(dim=-1)",
        ),
        *("self.total = x[:, 2:].sum(dim=-1)", "self.total = x[:, 0:].sum(dim=-1)", "self.total = x[:, :].sum(dim=-1)"),
        "self.total = x[1:, :].sum(dim=-1)",
    },
    ("Sum.add", "return float(self.total)"): {"return self.total"},
}


def test_every_known_mutant_of_a_module_is_made() -> None:
    """Of its code alone: not of texts, annotations, errors, `__repr__` and names of types."""
    found: dict[tuple[str, str], set[str]] = {}
    for mutant in mutants("module.py", SOURCE.encode()):
        found.setdefault((mutant.function, mutant.before), set()).add(mutant.after)
    assert found == EXPECTED


def test_a_mutant_differs_in_one_statement_and_moves_no_line() -> None:
    lines = SOURCE.splitlines()
    for mutant in mutants("module.py", SOURCE.encode()):
        compile(mutant.source, "module.py", "exec")
        changed = mutant.source.decode().splitlines()
        assert len(changed) == len(lines)
        differing = {i + 1 for i, (one, other) in enumerate(zip(lines, changed, strict=True)) if one != other}
        assert differing
        assert differing <= set(mutant.lines)


def test_keys_do_not_depend_on_lines() -> None:
    later = SOURCE.replace("LIMIT", "\n# a comment\n\nLIMIT")
    keys = [[mutant.key for mutant in mutants("module.py", text.encode())] for text in (SOURCE, later)]
    assert keys[0] == keys[1]


# ---- the command, in a repository of one module ------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With a module, a test of it that passes, one that fails without any mutant, and a line that none runs."""
    root = tmp_path / "repository"
    for folder in ("tfbook/text", "tests/unit"):
        (root / folder).mkdir(parents=True)
    shutil.copytree(ROOT / "tools/mutation", root / "tools/mutation", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tools/mutate.py", root / "tools")
    (root / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\npythonpath = ["."]'
    )
    for package in ("tfbook", "tfbook/text"):
        (root / package / "__init__.py").touch()
    (root / "tfbook/text/order.py").write_text(
        "def larger(x, y):\n    if x > y:\n        return x\n    return y\n\n\ndef unused(x):\n    return -x\n"
    )
    (root / "tests/unit/test_order.py").write_text(
        "from tfbook.text.order import larger\n\n\ndef test_larger():\n"
        "    assert (larger(1, 2), larger(2, 1)) == (2, 2)\n\n\ndef test_wrong():\n    assert larger(1, 2) == 1\n"
    )
    return root


def mutate(root: Path, *options: str) -> list[str]:
    command = [sys.executable, "tools/mutate.py", f"--results={root.parent / 'results'}", *options]
    quick = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=root, env=os.environ | quick, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants live in forks, which this system does not have")
def test_mutants_that_differ_are_found_and_equal_ones_survive(repository: Path) -> None:
    """Of nine, x ≥ y is no other function, and nothing runs the last two lines until a test is written.

    Each run goes on where the one before stopped, does not count what is listed as equal, and leaves the files alone.
    """
    before = files(repository)
    *_, survived, x, y, unused, u, v, share = mutate(repository)
    assert [survived, x, y] == ["survived: tfbook/text/order.py:2 larger", "  - if x > y:", "  + if x >= y:"]
    assert [unused, u, v] == ["not run: tfbook/text/order.py:8 unused", "  - return -x", "  + return x"]
    assert share == "{'found': 7, 'survived': 1, 'not run': 1}: 77.8% of those that differ are found"
    assert files(repository) == before
    (repository / "tests/mutants.toml").write_text(
        '[[mutant]]\nmodule = "tfbook/text/order.py"\nfunction = "larger"\nbefore = "if x > y:"\nafter = "if x >= y:"\n'
        'equal = "the numbers are the same"\n'
    )
    share = "{'found': 7, 'equal': 1, 'not run': 1}: 87.5% of those that differ are found"
    assert mutate(repository) == [unused, u, v, share]
    with (repository / "tests/unit/test_order.py").open("a") as file:
        file.write("\n\ndef test_unused():\n    from tfbook.text.order import unused\n    assert unused(1) == -1\n")
    assert mutate(repository, "--again")[-1] == "{'found': 8, 'equal': 1}: 100.0% of those that differ are found"
