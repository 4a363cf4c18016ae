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
case " $* " in *" $HANGING "*) exec sleep 50;; esac
case " $* " in *" $FAILING "*) echo "==== 1 failed, 2 passed in 0.1s ===="; exit 2;; esac
echo "==== 3 passed in 0.1s ===="
"""

APT = """#!/bin/sh
echo "$*" >>"$0.log"
exit "$APT_STATUS"
"""
TOOLS = ("bash", "dirname", "env", "grep", "mktemp", "rm", "sh", "sleep", "tee", "timeout")

pytestmark = pytest.mark.skipif(sys.platform == "win32" or shutil.which("bash") is None, reason=".ci/run needs bash")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone that holds `.ci/run`, the tools it calls, a stand-in for make and another for apt-get."""
    folder = tmp_path / "clone"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    (folder / "bin").mkdir()
    for tool in TOOLS:
        (folder / "bin" / tool).symlink_to(shutil.which(tool))
    for name, program in (("make", MAKE), ("apt-get", APT), ("chromedriver", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(program, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    return folder


def ci(clone: Path, failing: str = "nothing", apt_status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `.ci/run` as CI does: from anywhere, without input. Nothing but the clone's tools can be called."""
    env = (
        {"HANGING": "nothing"}
        | os.environ
        | {"PATH": f"{clone}/bin", "FAILING": failing, "APT_STATUS": str(apt_status), "CI": "true"}
    )
    env.pop("TFBOOK_MIRROR", None)
    command = [shutil.which("bash"), str(clone / ".ci/run")]
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


def test_with_a_mirror_it_runs_all_four(clone: Path) -> None:
    """The mirror's address is absolute, so that kernels in other folders find it."""
    folder = mirror(clone)
    result = ci(clone)
    assert result.returncode == 0
    assert f"make --keep-going test-real with {folder}" in result.stdout
    assert "== make pretended-gpu" in result.stdout
    assert "== make test-site" in result.stdout
    assert result.stdout.splitlines()[-4:] == ["==== 3 passed in 0.1s ===="] * 4


def test_without_twenty_minutes_left_it_says_what_it_skips(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that lessons as on a GPU never end what came before them."""
    monkeypatch.setenv("CI_LIMIT_S", "1100")
    result = ci(clone)
    assert result.returncode == 0
    assert "== make pretended-gpu" not in result.stdout
    assert "== skipped: make pretended-gpu (less than 20 minutes are left)" in result.stdout


@pytest.mark.parametrize(
    ("limit", "failing", "reason"),
    [
        ("900", "nothing", "less than 15 minutes are left"),
        ("5160", ".venv/site.stamp", "pip could not install Sphinx, myst-nb and furo"),
    ],
)
def test_the_web_site_is_skipped_with_the_reason(
    clone: Path, monkeypatch: pytest.MonkeyPatch, limit: str, failing: str, reason: str
) -> None:
    """Neither fails the run: the course is what is tested first."""
    monkeypatch.setenv("CI_LIMIT_S", limit)
    result = ci(clone, failing)
    assert result.returncode == 0
    assert f"== skipped: make test-site ({reason})" in result.stdout
    assert "== make test-site" not in result.stdout


@pytest.mark.parametrize("failing", ["test", "test-real", "pretended-gpu", "test-site"])
def test_a_failure_in_any_fails_the_whole(clone: Path, failing: str) -> None:
    """The others still run, and the closing lines show all."""
    mirror(clone)
    result = ci(clone, failing)
    assert result.returncode == 1
    closing = result.stdout.splitlines()[-4:]
    assert sorted(closing) == ["==== 1 failed, 2 passed in 0.1s ====", *["==== 3 passed in 0.1s ===="] * 3]


def test_a_run_without_tests_fails(clone: Path) -> None:
    """A make that does nothing must not look green."""
    (clone / "bin/make").write_text("#!/bin/sh\n", encoding="utf-8")
    assert ci(clone).returncode == 1


def test_a_browser_that_is_there_is_left_alone(clone: Path) -> None:
    """A developer's machine is not changed."""
    assert ci(clone).returncode == 0
    assert not (clone / "bin/apt-get.log").exists()


def test_a_browser_that_is_missing_is_installed(clone: Path) -> None:
    """Before the tests that drive it."""
    (clone / "bin/chromedriver").unlink()
    result = ci(clone)
    assert result.returncode == 0
    commands = (clone / "bin/apt-get.log").read_text(encoding="utf-8").splitlines()
    assert commands == ["update", "install --yes --no-install-recommends chromium chromium-driver"]
    assert "skipped: the tests in a browser" not in result.stdout
    assert result.stdout.index("== apt-get install") < result.stdout.index("== make")


def test_without_a_browser_the_other_tests_run(clone: Path) -> None:
    """No network, no root, no apt-get: it says so and goes on."""
    (clone / "bin/chromedriver").unlink()
    result = ci(clone, apt_status=100)
    assert result.returncode == 0
    assert "== skipped: the tests in a browser (apt-get could not install one)" in result.stdout
    assert "make --keep-going test with" in result.stdout


def test_it_can_be_run() -> None:
    """Git keeps the executable bit."""
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert os.access(ROOT / ".binder/postBuild", os.X_OK)


def test_what_hangs_is_stopped_and_fails(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The closing lines of the other are still printed."""
    mirror(clone)
    monkeypatch.setenv("HANGING", "test-real")
    monkeypatch.setenv("CI_LIMIT_S", "2")
    result = ci(clone)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-2:] == ["== closing lines", "==== 3 passed in 0.1s ===="]
