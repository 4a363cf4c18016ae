"""The setup cell uses an installed tfbook, else the clone around it, else installs one and keeps torch as it is."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace

import address
import pytest
import weave

SOURCE = weave.SETUP_CELL.read_text(encoding="utf-8")
find_spec = util.find_spec


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An empty folder where no tfbook is installed; gathers the commands that the cell runs."""
    found: list[list[str]] = []

    def run(command: list[str], *, capture_output: bool, text: bool) -> subprocess.CompletedProcess[str]:
        assert capture_output, "pip's lines would be seen"
        found.append(command)
        return subprocess.CompletedProcess(command, 0, "a line of pip", "")

    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "tfbook" else find_spec(name))
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return found


def test_it_is_short_and_lean() -> None:
    assert SOURCE.count("\n") <= 19
    assert "ipywidgets" not in SOURCE
    assert "print" not in SOURCE


def test_an_installed_tfbook_is_used(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", find_spec)
    before = list(sys.path)
    exec(SOURCE, {})
    assert commands == []
    assert sys.path == before


@pytest.mark.parametrize("folder", ["notebooks", "work", "work/deep"])
def test_the_clone_around_the_notebook_is_used(
    commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / "tfbook").mkdir()
    (tmp_path / "tfbook" / "__init__.py").touch()
    (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / folder)
    exec(SOURCE, {})
    assert sys.path[0] == str(tmp_path)
    assert commands == []


@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)], ids=["nothing", "a bare folder called tfbook"])
def test_elsewhere_it_is_installed_beside_the_present_torch(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, spec: object
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: spec if name == "tfbook" else find_spec(name))
    exec(SOURCE, {})
    [command] = commands
    assert command[:5] == [sys.executable, "-m", "pip", "install", "-q"]
    assert command[5] == f"tfbook @ git+https://github.com/{address.slug()}"
    assert command[6:] == [f"{name}=={metadata.version(name)}" for name in ("torch", "torchvision", "numpy")]


def test_without_torch_pip_may_choose_one(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    exec(SOURCE, {})
    assert len(commands[0]) == 6


def test_what_pip_says_is_seen_only_when_it_fails(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    exec(SOURCE, {})
    assert capfd.readouterr() == ("", "")
    failed = subprocess.CompletedProcess([], 1, "Collecting tfbook\n", "ERROR: no network\n")
    monkeypatch.setattr(subprocess, "run", lambda command, **options: failed)
    with pytest.raises(RuntimeError, match=r"(?s)could not install tfbook:\nCollecting tfbook\nERROR: no network"):
        exec(SOURCE, {})


def test_it_can_run_twice(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    exec(SOURCE, {})
    monkeypatch.setattr(util, "find_spec", find_spec)  # now it is installed
    exec(SOURCE, {})
    assert len(commands) == 1
