"""`.ci/run` says what it ran, what it skipped, and fails when anything fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = """#!/bin/sh
echo "make $* with $TFBOOK_MIRROR"
case " $* " in *" $FAILING "*) echo "==== 1 failed, 2 passed in 0.1s ===="; exit 2;; esac
echo "==== 3 passed in 0.1s ===="
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32" or shutil.which("bash") is None, reason=".ci/run needs bash")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone that holds `.ci/run` and a stand-in for make."""
    folder = tmp_path / "clone"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    (folder / "bin").mkdir()
    (folder / "bin/make").write_text(MAKE, encoding="utf-8")
    (folder / "bin/make").chmod(0o755)
    return folder


def ci(clone: Path, failing: str = "nothing") -> subprocess.CompletedProcess[str]:
    """Run `.ci/run` as CI does: from anywhere, without input."""
    env = os.environ | {"PATH": f"{clone}/bin:{os.environ['PATH']}", "FAILING": failing, "CI": "true"}
    env.pop("TFBOOK_MIRROR", None)
    command = ["bash", str(clone / ".ci/run")]
    return subprocess.run(command, cwd=clone.parent, env=env, capture_output=True, text=True, timeout=60, check=False)


def mirror(clone: Path) -> Path:
    """Put a mirror of the real corpora beside the clone."""
    folder = clone.parent / "shared" / "data"
    folder.mkdir(parents=True)
    return folder


def test_without_a_mirror_it_says_what_it_skips(clone: Path) -> None:
    """The tests on the corpora that ship are enough to pass."""
    result = ci(clone)
    assert result.returncode == 0
    assert "skipped: make test-real" in result.stdout
    assert "make --keep-going test with" in result.stdout


def test_with_a_mirror_it_runs_both(clone: Path) -> None:
    """The mirror's address is absolute, so that kernels in other folders find it."""
    folder = mirror(clone)
    result = ci(clone)
    assert result.returncode == 0
    assert f"make --keep-going test-real with {folder}" in result.stdout
    assert result.stdout.splitlines()[-2:] == ["==== 3 passed in 0.1s ===="] * 2


@pytest.mark.parametrize("failing", ["test", "test-real"])
def test_a_failure_in_either_fails_the_whole(clone: Path, failing: str) -> None:
    """The other still runs, and the closing lines show both."""
    mirror(clone)
    result = ci(clone, failing)
    assert result.returncode == 1
    closing = result.stdout.splitlines()[-2:]
    assert sorted(closing) == ["==== 1 failed, 2 passed in 0.1s ====", "==== 3 passed in 0.1s ===="]


def test_a_run_without_tests_fails(clone: Path) -> None:
    """A make that does nothing must not look green."""
    (clone / "bin/make").write_text("#!/bin/sh\n", encoding="utf-8")
    assert ci(clone).returncode == 1


def test_it_can_be_run() -> None:
    """Git keeps the executable bit."""
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert os.access(ROOT / ".binder/postBuild", os.X_OK)
