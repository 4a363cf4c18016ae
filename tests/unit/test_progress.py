"""Solved exercises are remembered on this machine, and the map of the course shows them."""

import json
from pathlib import Path

import pytest

from tfbook.__main__ import course_command
from tfbook.course import progress, solved as session
from tfbook.course.solved import note, progress_file, solved
from tfbook.lessons.decoding import exercises as decoding
from tfbook.lessons.start_here import exercises as start_here


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TFBOOK_DATA", str(tmp_path))
    return tmp_path


def test_a_passed_check_is_noted_and_a_failed_one_is_not() -> None:
    """Once, however often it passes."""
    for _ in range(2):
        start_here.softmax.check(start_here.softmax.reference)
    decoding.beam_step.check(lambda *arguments: 0)
    assert solved() == {"start_here": ["softmax"]}


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 1}', "null"])
def test_a_file_that_cannot_be_read_counts_as_empty(text: str) -> None:
    progress_file().write_text(text, encoding="utf-8")
    assert solved() == {}
    note("transformer", "normalize")
    assert solved() == {"transformer": ["normalize"]}


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("TFBOOK_DATA", str(folder / "file" / "below"))
    note("transformer", "normalize")
    assert solved() == {}


def test_without_a_setting_it_lies_with_the_data_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFBOOK_DATA")
    assert progress_file().name == "progress.json"
    assert "tfbook" in progress_file().parts


def test_a_setting_names_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFBOOK_PROGRESS", str(folder / "elsewhere.json"))
    note("transformer", "normalize")
    assert (folder / "elsewhere.json").is_file()
    assert solved() == {"transformer": ["normalize"]}


def test_the_map_shows_every_lesson_with_what_is_solved(capsys: pytest.CaptureFixture[str]) -> None:
    progress_file().write_text(json.dumps({"start_here": ["softmax", "an old name"]}), encoding="utf-8")
    progress.print_course()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "I · Attention"
    assert lines[1].split() == ["00", "Start", "here", "○●○○○○", "1", "of", "6"]
    assert sum("not written yet" in line for line in lines) == sum(not each.written for each in progress.LESSONS)


def test_the_map_says_whose_pieces_ran_and_how_answers_travel(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_running", {})
    progress.print_course()
    shown = capsys.readouterr().out
    assert "Pieces" not in shown
    assert "progress.save_answers()" in shown
    assert "progress.load_answers()" in shown
    start_here.softmax.pick(start_here.softmax.reference, lambda scores: scores)
    decoding.beam_step.pick(lambda *arguments: None, decoding.beam_step.reference)
    decoding.beam_step.pick(lambda *arguments: None, decoding.beam_step.reference)
    progress.print_course()
    assert "\nPieces in this page's run: softmax yours, beam_step the page's.\n" in capsys.readouterr().out


def test_the_command_prints_the_map_alone(capsys: pytest.CaptureFixture[str]) -> None:
    course_command([])
    assert capsys.readouterr().out == "\n".join(progress.course_lines({})) + "\n"
