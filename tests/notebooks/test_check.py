"""`make check` chooses the tests that belong to what changed, the closest first, and no more than take two minutes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import book
import check
import pytest

NARROW = "from tfbook.models.blocks import Config\n"
WIDE = "import torch\nimport tfbook.models.blocks\nfrom tfbook import runtime\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a few tests."""
    texts = {
        "unit/test_a_wide_one.py": WIDE,
        "unit/test_blocks.py": "",
        "unit/test_gpt.py": NARROW,
        "unit/test_lesson_decoding_texts.py": "",
        "repository/test_files.py": "NAME = 'README.md'\n",
        "unit/test_other.py": "import torch\n",
        "unit/samples.py": NARROW,
    }
    for name, text in texts.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(check, "TESTS", tmp_path / "tests")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("tfbook/models/blocks.py", ["unit/test_blocks.py", "unit/test_gpt.py", "unit/test_a_wide_one.py"]),
        ("tfbook/lessons/decoding/study.py", ["unit/test_lesson_decoding_texts.py"]),
        ("tests/unit/test_other.py", ["unit/test_other.py"]),
        ("README.md", ["repository/test_files.py"]),
        ("tfbook/runtime.py", ["unit/test_a_wide_one.py"]),
        ("notebooks/00_start_here.ipynb", []),
    ],
)
def test_which_tests_belong_to_a_file(tree: Path, changed: str, tests: list[str]) -> None:
    assert check.tests_of([changed]) == [f"tests/{name}" for name in tests]


def test_of_many_the_closest_run_and_the_rest_is_said(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then every notebook; pytest's status 5, where all tests are marked slow, is no failure."""
    calls: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if command[0] == "git":
            return subprocess.CompletedProcess(command, 0, stdout="tfbook/models/blocks.py\n" * ("diff" in command))
        calls.append(command)
        return subprocess.CompletedProcess(command, check.NO_TESTS if len(calls) == 1 else 0)

    monkeypatch.setattr(check, "MOST", 2)
    monkeypatch.setattr(check.subprocess, "run", run)
    monkeypatch.setattr("sys.argv", ["check.py"])
    assert check.main() == 0
    units, notebooks = calls
    assert units[-2:] == ["tests/unit/test_blocks.py", "tests/unit/test_gpt.py"]
    assert notebooks[-1] == "notebooks"
    assert "and 1 more, which `make test-units` runs" in capsys.readouterr().out
