"""Let these tests import the tools, and the modules beside them; a copy of the repository for tools that change it."""

import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tools")]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The folders and files that the tools read and write."""
    for name in ("tools", "tfbook", "notebooks", "benchmarks", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("README.md", "CLAIMS.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path
