"""The tests' own set-up does what it says: signatures are checked, skips give their reason, seeds are equal."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
MARKED = """
import pytest

@pytest.mark.gpu
def test_gpu(): pass

@pytest.mark.real
def test_real(): pass
"""


@pytest.mark.skipif(os.environ.get("TFBOOK_CHECK") == "0", reason="TFBOOK_CHECK=0 switches the checks off")
def test_signatures_are_checked_at_run_time() -> None:
    """The import hook came before every import of tfbook: lengths must be integers, though floats would do here."""
    from tfbook.attention import padding_mask

    with pytest.raises(jaxtyping.TypeCheckError, match="lengths"):
        padding_mask(torch.ones(2), 3)


@pytest.mark.parametrize("time", ["first", "second"])
def test_random_numbers_are_the_same_in_every_test(time: str) -> None:
    """The first draws after seed 0, whatever ran before."""
    draws = [random.random(), np.random.rand(), torch.rand(()).item()]  # noqa: NPY002
    assert draws == pytest.approx([0.844421851, 0.548813504, 0.496256590], abs=1e-6), time


@pytest.mark.parametrize(
    ("variables", "real"),
    [({}, "skipped"), ({"TFBOOK_REAL": "1"}, "passed")],
    ids=["no leave", "leave"],
)
def test_marked_tests_run_only_where_they_can(tmp_path: Path, variables: dict[str, str], real: str) -> None:
    """`real` needs a mirror or leave to use the network, `gpu` a GPU; a skip says so."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_marked.py").write_text(MARKED, encoding="utf-8")
    shutil.copy(ROOT / "tests/conftest.py", tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TFBOOK_", "PYTEST_"))}
    env |= {"CUDA_VISIBLE_DEVICES": "", **variables}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert f"test_real {real.upper()}" in result.stdout, result.stdout
    assert "test_gpu SKIPPED" in result.stdout
    assert "needs a CUDA device" in result.stdout
    assert ("set TFBOOK_MIRROR" in result.stdout) == (real == "skipped")
