"""AGENTS.md names what there is: an agent that cannot find a hint writes the solution instead."""

import re
import subprocess
import sys
from pathlib import Path

from tfbook.course.exercises import Exercise
from tfbook.lessons.decoding import exercises as ex

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "AGENTS.md").read_text(encoding="utf-8")


def test_what_it_says_of_an_exercise_is_true() -> None:
    named = set(re.findall(r"`ex\.\w+\.(\w+)", TEXT))
    assert {"check", "hint", "solution", "reference", "start"} <= named
    assert [name for name in named if not hasattr(ex.top_p, name)] == []
    assert isinstance(ex.top_p, Exercise)


def test_its_command_prints_the_first_hint_and_no_other() -> None:
    [command] = re.findall(r"`\.venv/bin/python -c \"(.*)\"`", TEXT)
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ex.top_p.hints[0]


def test_the_files_and_commands_that_it_names_are_there() -> None:
    paths = [path for path in re.findall(r"`([\w*/.]+(?:/|\.py|\.md))`", TEXT) if path not in ("work/", "handout/")]
    assert len(paths) > 5
    assert [path for path in paths if not [*ROOT.glob(path)]] == []
    commands = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", TEXT)) <= commands
