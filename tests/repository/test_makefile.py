"""The commands of the README, run with stand-ins for Python and make that write down what they were asked to do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = {"help", "lab", "refresh", "edit", "test", "test-units", "test-notebooks", "test-real"}
COMMANDS |= {"pretended-gpu", "check", "lesson", "notebooks", "weave", "tidy", "lint", "student", "solutions", "clean"}
COMMANDS |= {"slides"}
RECORDER = """#!/bin/sh
{ printf '%s\\n' "$*"; env | grep -E '^(TFBOOK|NB)_' | sort; echo; } >> "$RECORD"
"""

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("make") is None, reason="the Makefile needs make and a POSIX shell"
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the Makefile and an installed .venv whose Python records its calls in `record`."""
    folder = tmp_path / "a clone with spaces"
    for name in ("Makefile", "pyproject.toml", "notebooks/", "work/", ".venv/bin/"):
        target = folder / name
        if name.endswith("/"):
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, target)
    executable(folder / ".venv/bin/python", RECORDER)
    executable(folder / ".venv/bin/pip", RECORDER)
    for extra in ("lab", "test"):
        (folder / f".venv/{extra}.stamp").touch()
    return folder


def executable(path: Path, text: str) -> None:
    """Write a script that can be run."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def make(clone: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run make as a user would, not as a child of the `make test` that may have started these tests."""
    ours = ("MAKE", "MFLAGS", "TFBOOK_", "NB_", "DISPLAY", "WAYLAND_DISPLAY")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env |= {"RECORD": str(clone / "record"), **variables}
    return subprocess.run(["make", *arguments], cwd=clone, env=env, capture_output=True, text=True, timeout=60)


def calls(clone: Path) -> list[list[str]]:
    """Return the recorded calls: the arguments, then the TFBOOK_ and NB_ variables that they ran under."""
    return [call.splitlines() for call in (clone / "record").read_text(encoding="utf-8").strip().split("\n\n")]


def test_make_alone_lists_every_command(clone: Path) -> None:
    """A command that help does not name is one that nobody finds."""
    listed = set(re.findall(r"^  ([a-z-]+) ", make(clone).stdout, flags=re.MULTILINE))
    assert listed == COMMANDS


@pytest.mark.parametrize(
    "command", ["lab", "refresh", "edit", "test", "test-real", "lesson", "notebooks", "weave", "tidy", "lint"]
)
def test_a_second_run_installs_nothing(clone: Path, command: str) -> None:
    """The stamps are newer than pyproject.toml, so that neither venv nor pip is called."""
    assert make(clone, command, "N=01").returncode == 0
    assert [call[0] for call in calls(clone) if "pip" in call[0] or "venv" in call[0].split()] == []


@pytest.mark.parametrize(("command", "extra"), [("lab", "lab"), ("test-units", "test"), ("lint", "test")])
def test_a_changed_pyproject_installs_again(clone: Path, command: str, extra: str) -> None:
    """Only the extra that the command needs, once."""
    later = (clone / ".venv/lab.stamp").stat().st_mtime + 10
    os.utime(clone / "pyproject.toml", (later, later))
    make(clone, command)
    assert calls(clone)[0][0].endswith(f"pip install --disable-pip-version-check --editable .[{extra}]")


def test_a_failed_installation_is_tried_again(clone: Path) -> None:
    """No stamp is left behind by a pip that failed, and nothing runs after it."""
    (clone / ".venv/test.stamp").unlink()
    executable(clone / ".venv/bin/python", RECORDER + "exit 1\n")
    assert make(clone, "test").returncode != 0
    assert not (clone / ".venv/test.stamp").exists()
    assert len(calls(clone)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch's usual build is the one for CPUs")
def test_without_a_gpu_pytorch_comes_from_its_own_index(clone: Path) -> None:
    """Before the rest, which then finds it installed; the index's libraries are the smaller ones."""
    (clone / ".venv/lab.stamp").unlink()
    make(clone, "lab", "CPU=1")
    torch, rest = [call[0] for call in calls(clone)][:2]
    assert torch.endswith("--index-url https://download.pytorch.org/whl/cpu torch torchvision")
    assert rest.endswith("--editable .[lab]")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch's usual build is the one for CPUs")
def test_where_that_index_cannot_be_reached_the_usual_build_follows(clone: Path) -> None:
    """With a sentence that says so."""
    (clone / ".venv/lab.stamp").unlink()
    executable(clone / ".venv/bin/python", RECORDER + 'case "$*" in *whl/cpu*) exit 1;; esac\n')
    result = make(clone, "lab", "CPU=1")
    assert result.returncode == 0
    assert "cannot be reached. Its usual build follows" in result.stderr
    assert (clone / ".venv/lab.stamp").exists()


@pytest.mark.parametrize("kind", ["student", "solutions"])
def test_the_lessons_of_a_class_go_into_a_folder(clone: Path, kind: str) -> None:
    """One of them, or all."""
    make(clone, kind, "N=03", "FOLDER=a class")
    assert [call[0] for call in calls(clone)] == [f"tools/handout.py {kind} a class 03"]


def test_slides_are_of_the_lesson_that_is_named(clone: Path) -> None:
    """And a lesson has to be named."""
    make(clone, "slides", "N=03")
    assert [call[0] for call in calls(clone)] == ["tools/slides.py 03"]
    assert "Say which lesson" in make(clone, "slides").stderr


def test_check_knows_no_network(clone: Path) -> None:
    """As `make test`."""
    make(clone, "check", TFBOOK_MIRROR="/a/mirror")
    [call] = calls(clone)
    assert call[0] == "tools/check.py"
    assert "TFBOOK_OFFLINE=1" in call


def test_test_runs_units_then_notebooks_as_without_network(clone: Path) -> None:
    """No mirror and an empty cache, whatever the user's environment says."""
    leftover = clone / ".venv/no-data/corpus.zip"
    leftover.parent.mkdir()
    leftover.touch()
    make(clone, "test", TFBOOK_MIRROR="/a/mirror", TFBOOK_REAL="1", TFBOOK_DATA="/my/cache", TFBOOK_SCALE="gpu")
    units, notebooks = calls(clone)
    assert units[0] == "-m pytest -n 2 --dist loadfile"
    assert "--nbval --nbval-current-env" in notebooks[0]
    assert notebooks[0].endswith("notebooks")
    expected = [f"TFBOOK_DATA={clone}/.venv/no-data", "TFBOOK_OFFLINE=1", "TFBOOK_SCALE=cpu"]
    assert units[1:] == expected
    assert notebooks[1:] == ["NB_BUDGET_S=90", "NB_CELL_BUDGET_S=60", *expected]
    assert not leftover.exists()


def test_notebooks_run_as_on_another_machine(clone: Path) -> None:
    """Its kernels round otherwise, and no budget fails for their slowness."""
    make(clone, "test-notebooks", "ELSEWHERE=1")
    [notebooks] = calls(clone)
    assert "--nbval" in notebooks[0]
    assert {"NB_SLOWNESS=20", "TFBOOK_PRECISION=float32", "TFBOOK_OFFLINE=1"} <= {*notebooks[1:]}


def test_test_real_offers_the_real_corpora(clone: Path) -> None:
    """The mirror and the user's cache are kept; the unit tests are those marked `real`."""
    make(clone, "test-real", TFBOOK_MIRROR="/a/mirror", TFBOOK_OFFLINE="1", TFBOOK_DATA="/my/cache")
    units, notebooks = calls(clone)
    assert units[0] == "-m pytest -m real"
    assert "--nbval" in notebooks[0]
    expected = ["TFBOOK_DATA=/my/cache", "TFBOOK_MIRROR=/a/mirror", "TFBOOK_REAL=1", "TFBOOK_SCALE=cpu"]
    assert units[1:] == expected
    assert notebooks[1:] == ["NB_BUDGET_S=180", "NB_CELL_BUDGET_S=60", *expected]


def test_lessons_as_on_a_gpu_run_two_at_a_time(clone: Path) -> None:
    """Without network, and only when asked for: `make test` leaves them out."""
    make(clone, "pretended-gpu", TFBOOK_MIRROR="/a/mirror")
    [call] = calls(clone)
    assert call[0] == "-m pytest -n 2 --dist worksteal tests/pretended_gpu/test_lessons.py"
    assert call[1:] == [
        f"TFBOOK_DATA={clone}/.venv/no-data",
        "TFBOOK_OFFLINE=1",
        "TFBOOK_PRETENDED=1",
        "TFBOOK_SCALE=cpu",
    ]


def test_lab_opens_copies_of_the_lessons(clone: Path) -> None:
    """Root needs leave to serve, and a machine without a display has no browser to open."""
    make(clone, "lab", "PORT=9999", "LAB_ARGS=--ip=0.0.0.0")
    copies, call = calls(clone)
    assert copies[0] == "tools/work.py"
    assert call[0].startswith("-m jupyterlab --log-level=WARN --LabApp.log_level=WARN --port=9999 ")
    assert f"--ServerApp.root_dir={clone}/work " in call[0]
    assert f"--LabApp.app_settings_dir={clone}/tools/jupyterlab " in call[0]
    assert call[0].endswith("--ip=0.0.0.0")
    assert ("--allow-root" in call[0]) == (os.geteuid() == 0)
    assert ("--no-browser" in call[0]) == (sys.platform != "darwin")


def test_lab_opens_a_browser_where_there_is_a_display(clone: Path) -> None:
    """X11 and Wayland each say that there is one."""
    make(clone, "lab", DISPLAY=":0")
    make(clone, "lab", WAYLAND_DISPLAY="wayland-0")
    assert len([call for call in calls(clone) if "jupyterlab" in call[0]]) == 2
    assert "--no-browser" not in (clone / "record").read_text(encoding="utf-8")


def test_edit_opens_the_lessons_themselves(clone: Path) -> None:
    """For who changes the course; no copies are made."""
    make(clone, "edit")
    (call,) = calls(clone)
    assert f"--ServerApp.root_dir={clone}/notebooks " in call[0]


@pytest.mark.parametrize("command", ["lesson", "refresh"])
def test_a_command_for_one_lesson_asks_which(clone: Path, command: str) -> None:
    """Without a number nothing runs and the message shows how to give one."""
    result = make(clone, command)
    assert result.returncode != 0
    assert f"make {command} N=01" in result.stderr
    assert not (clone / "record").exists()


def test_refresh_names_the_lesson(clone: Path) -> None:
    """The tool copies it and keeps the old one."""
    make(clone, "refresh", "N=01")
    assert [call[0] for call in calls(clone)] == ["tools/work.py --refresh 01"]


def test_notebooks_renews_the_ledger_and_the_map(clone: Path) -> None:
    """CLAIMS.md and the map of the course are generated from all lessons, so they follow the executed ones."""
    make(clone, "notebooks", "N=01")
    assert [call[0] for call in calls(clone)] == ["tools/notebooks.py 01", "tools/ledger.py", "tools/others.py"]


@pytest.mark.parametrize(
    ("interpreter", "message"),
    [
        ("#!/bin/sh\nexit 1\n", "tfbook needs Python 3.11 or newer"),
        ('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\n', "apt-get install python3-venv"),
    ],
    ids=["too old", "without ensurepip"],
)
def test_an_unfit_python_is_refused_with_the_mend(clone: Path, interpreter: str, message: str) -> None:
    """Before anything is made, so that the next run starts clean."""
    shutil.rmtree(clone / ".venv")
    executable(clone / "unfit", interpreter)
    result = make(clone, "lab", "PYTHON=./unfit")
    assert result.returncode != 0
    assert message in result.stderr
    assert not (clone / ".venv").exists()


def test_a_python_that_does_not_start_is_passed_over(clone: Path) -> None:
    """Version managers put commands on PATH that fail when called; the next name is tried."""
    shutil.rmtree(clone / ".venv")
    broken = clone / "broken"
    broken.mkdir()
    executable(broken / "python3.13", "#!/bin/sh\nexit 127\n")
    executable(broken / "python3.12", RECORDER)
    make(clone, "lab", PATH=f"{broken}:{os.environ['PATH']}")
    assert [call[0] for call in calls(clone)][-1] == "-m venv .venv"


def test_clean_leaves_what_cannot_be_made_again(clone: Path) -> None:
    """The environment and caches go; sources and what the learner wrote stay."""
    (clone / "tfbook/__pycache__").mkdir(parents=True)
    assert make(clone, "clean").returncode == 0
    left = sorted(path.name for path in clone.rglob("*"))
    assert left == ["Makefile", "notebooks", "pyproject.toml", "tfbook", "work"]
