"""Grading: solved notebooks get full marks, blank ones none, and hostile ones change nothing outside their room."""

import csv
import json
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import book
import handout

from tests.exercises.hostile_answers import HOSTILE
from tfbook.__main__ import course_command
from tfbook.course.attempts import Attempt, CheckResult
from tfbook.course.grading import verdicts
from tfbook.course.grading.handed_in import Student, answered, handed_in, lesson_of, read_notebook, student_named
from tfbook.course.grading.room import Limits
from tfbook.course.grading.tables import best, rows_as_csv, write_tables
from tfbook.course.grading.verdicts import Graded, grade_folder, grade_notebook
from tfbook.course.grading.written import UnreadableError, read_attempt, write_attempt
from tfbook.course.lessons import LESSONS
from tfbook.course.progress import exercises_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot lock a process in")
WRITTEN = [lesson for lesson in LESSONS if lesson.written]
IMPORTS = "from tfbook.lessons.start_here import exercises as ex, study\nimport torch\n"


@pytest.fixture(scope="module")
def workshop() -> Iterator[None]:
    """A workshop of this process, as each process of the grader has one."""
    verdicts._prepare(Limits(seconds=20.0))
    yield
    verdicts._workshop.pop().close()


def notebook(path: Path, *cells: str) -> Path:
    """A notebook of these code cells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    path.write_text(nbformat.writes(made), encoding="utf-8")
    return path


@pytest.mark.parametrize("lesson", WRITTEN, ids=lambda lesson: lesson.slug)
def test_a_solved_notebook_gets_every_point_and_a_blank_one_none(lesson, tmp_path: Path, workshop: None) -> None:
    for kind in handout.KINDS:
        book.write(tmp_path / kind / f"{lesson.name}.ipynb", handout.prepared(book.lessons([lesson.slug])[0], kind))
    blank, solved = (grade_notebook(read_notebook(each.path, tmp_path)) for each in handed_in(tmp_path)[::-1])
    assert [verdict.exercise for verdict in solved.verdicts] == exercises_of(lesson)
    assert {f"{v.exercise}: {v.message}" for v in solved.verdicts if not v.points} == set()
    assert blank.points == 0
    assert {verdict.status for verdict in blank.verdicts} <= {"not attempted", "not yet", "not quite"}


def test_a_wrong_answer_gets_the_message_that_its_student_got(tmp_path: Path, workshop: None) -> None:
    cell = "def softmax(scores):\n    return torch.exp(scores)\n\n\nex.softmax.check(softmax)"
    graded = grade_notebook(read_notebook(notebook(tmp_path / "00_start_here.ipynb", IMPORTS, cell), tmp_path))
    [verdict] = [verdict for verdict in graded.verdicts if verdict.exercise == "softmax"]
    assert verdict.status == "not quite"
    from tfbook.lessons.start_here import exercises as ex

    assert verdict.message == ex.softmax.judge(lambda scores: torch.exp(scores)).message


def test_an_answer_sees_the_functions_and_values_above_it_and_waits_for_no_training(tmp_path, workshop: None) -> None:
    above = "FACTOR = 2 / 2\nmodel = study.nothing_of_that_name()\ndef helper(x):\n    return x.exp() * FACTOR"
    answer = "def soft(scores):\n    e = helper(scores - scores.amax(-1, True))\n    return e / e.sum(-1, True)"
    cell = f"%time\n{answer}\n\nex.softmax.check(soft)"
    path = notebook(tmp_path / "Copy of 00_start_here (1).ipynb", IMPORTS, above, cell)
    graded = grade_notebook(read_notebook(path, tmp_path))
    assert [verdict.status for verdict in graded.verdicts if verdict.exercise == "softmax"] == ["correct"]


# ---- hostile answers ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def treasure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file outside every room that hostile answers are after."""
    file = tmp_path_factory.mktemp("outside") / "treasure.txt"
    file.write_text("untouched", encoding="utf-8")
    return file


@pytest.fixture
def strict(workshop: None) -> Iterator[None]:
    """The workshop with narrow limits."""
    [shop] = verdicts._workshop
    wide, shop.limits = shop.limits, Limits(seconds=2.0, memory=1 << 30, output=4 << 20)
    yield
    shop.limits = wide


def test_there_are_a_hundred_hostile_answers() -> None:
    assert len(HOSTILE) >= 100


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_changes_nothing_outside_and_ends(
    name: str, treasure: Path, tmp_path: Path, strict: None
) -> None:
    body = HOSTILE[name].replace("TREASURE", str(treasure)).replace("OUTSIDE", str(treasure.parent))
    hostile = f"{IMPORTS}import os, sys\n{body}\nex.shares.check(shares)"
    honest = "def softmax(scores):\n    return scores.softmax(-1)\n\nex.softmax.check(softmax)"
    before = sorted(treasure.parent.rglob("*"))
    start = time.monotonic()
    graded = grade_notebook(read_notebook(notebook(tmp_path / "00_start_here.ipynb", hostile, honest), tmp_path))
    verdict = {verdict.exercise: verdict for verdict in graded.verdicts}
    assert verdict["shares"].points == 0, verdict["shares"]
    assert verdict["softmax"].status == "correct"  # one hostile answer costs one exercise
    assert time.monotonic() - start < 60  # the workshop waits for 6 seconds at most
    assert treasure.read_text(encoding="utf-8") == "untouched"
    assert sorted(treasure.parent.rglob("*")) == before
    assert "untouched" not in repr(graded)


# ---- what a room leaves behind -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result",
    [1, 2.5, "two", True, [1, [2]], (torch.eye(2), [3]), {"a": torch.arange(3)}, float("nan"), torch.tensor(True)],
)
def test_an_attempt_comes_back_as_it_was(result: object, tmp_path: Path) -> None:
    write_attempt(tmp_path / "a", Attempt([result], slopes=lambda: iter([{"x": torch.ones(2)}, "no gradient"])))
    found = read_attempt(tmp_path / "a")
    assert isinstance(found, Attempt)
    assert repr(found.results) == repr([result])
    assert repr([*found.slopes()]) == repr([{"x": torch.ones(2)}, "no gradient"])


def test_of_a_foreign_result_only_the_name_of_its_kind_comes_back(tmp_path: Path) -> None:
    write_attempt(tmp_path / "a", Attempt([Student("Ada")]))
    found = read_attempt(tmp_path / "a")
    assert isinstance(found, Attempt)
    assert type(found.results[0]).__name__ == "Student"
    assert not isinstance(found.results[0], Student)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"fault": "", "results": 1, "ending": null, "late": false, "slopes": []}',
        '{"fault": "", "results": [{"code": "x"}], "ending": null, "late": false, "slopes": []}',
        '{"fault": "", "results": [{"tensor": "9"}], "ending": null, "late": false, "slopes": []}',
    ],
)
def test_a_forged_attempt_is_unreadable(text: str, tmp_path: Path) -> None:
    write_attempt(tmp_path / "a")
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableError):
        read_attempt(tmp_path / "a")


def test_an_ending_that_claims_to_be_right_is_not(tmp_path: Path) -> None:
    write_attempt(tmp_path / "a", Attempt([], CheckResult("correct")))
    found = read_attempt(tmp_path / "a")
    assert isinstance(found, Attempt)
    assert found.ending is not None
    assert found.ending.status == "not quite"


# ---- names, copies and damaged files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "student"),
    [
        ("Ada Lovelace_4711_assignsubmission_file_/03_self_attention.ipynb", Student("Ada Lovelace", "4711")),
        ("Ada Lovelace_4711_assignsubmission_file/x.ipynb", Student("Ada Lovelace", "4711")),
        ("lovelaceada_1234_5678_03_self_attention-1.ipynb", Student("lovelaceada", "1234")),
        ("lovelaceada_LATE_1234_5678_03_self_attention.ipynb", Student("lovelaceada", "1234")),
        ("ada/03_self_attention.ipynb", Student("ada")),
        ("ada_03_self_attention.ipynb", Student("ada")),
        ("Copy of 03_self_attention ada (2).ipynb", Student("ada")),
        ("03_self_attention.ipynb", Student("03_self_attention")),
    ],
)
def test_whose_a_file_is(path: str, student: Student) -> None:
    assert student_named(Path(path)) == student


def test_a_lesson_is_known_by_its_imports_before_its_name() -> None:
    cells = ("from tfbook.lessons.memory import exercises as ex",)
    assert lesson_of("03_self_attention.ipynb", cells) == lesson_of("18_memory.ipynb", ())
    assert lesson_of("homework.ipynb", ()) is None


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '{"cells": 3}', "[" * 100_000, "\udcff"])
def test_a_damaged_file_is_named_and_costs_nobody_else_anything(text: str, tmp_path: Path, workshop: None) -> None:
    (tmp_path / "bob_00_start_here.ipynb").write_text(text, encoding="utf-8", errors="surrogateescape")
    [found] = handed_in(tmp_path)
    assert found.fault.startswith("cannot be read as a notebook")
    assert grade_notebook(found).verdicts == ()


def test_a_cell_with_a_wrong_syntax_costs_its_exercise(tmp_path: Path) -> None:
    [found] = answered(("def softmax(scores) return 1\nex.softmax.check(softmax)",), ["softmax"])
    assert found.fault.startswith("SyntaxError")


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine.ipynb").symlink_to(notebook(tmp_path / "out" / "00_start_here.ipynb", IMPORTS))
    with pytest.raises(ValueError, match="holds no notebook"):
        handed_in(tmp_path / "in")


def test_a_folder_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        handed_in(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="jobs is 0"):
        grade_folder(tmp_path, jobs=0, limits=Limits())


# ---- tables ------------------------------------------------------------------------------------------------------


def graded(path: Path, student: str, points: int) -> Graded:
    statuses = ["correct"] * points + ["not quite"] * (6 - points)
    named = [verdicts.ExerciseVerdict(f"e{i}", status, "=1+1 | <b>`x`") for i, status in enumerate(statuses)]
    from tfbook.course.grading.handed_in import HandedIn

    return Graded(HandedIn(Student(student, "7"), path, LESSONS[0]), tuple(named))


def test_of_two_copies_the_better_one_counts() -> None:
    grades = best([graded(Path("a"), "Ada", 3), graded(Path("b"), "Ada", 5), graded(Path("c"), "Ada", 4)])
    assert grades[Student("Ada", "7")][LESSONS[0]].points == 5


MOODLE_REFUSES_WITHOUT = {"Identifier", "Grade", "Last modified (grade)"}  # importgradeslib.php, init()


def canvas_knows(header: list[str]) -> bool:
    """Whether Canvas takes a header without a student's first name: gradebook_importer.rb, header? and its helpers."""
    about_the_student = 3
    if re.search(r"SIS\s+Login\s+ID", header[2]):
        about_the_student = 4
    elif re.search(r"SIS\s+User\s+ID", header[2]) and re.search(r"SIS\s+Login\s+ID", header[3]):
        about_the_student = 5
    named = len(header) > 3 and "Student" in header[0] and "ID" in header[1]
    return named and "Section" in header[about_the_student - 1]


def test_the_tables_have_what_canvas_and_moodle_read(tmp_path: Path) -> None:
    write_tables([graded(Path("a"), "=cmd()", 4)], tmp_path)
    canvas, moodle = (
        [*csv.reader((tmp_path / f"{name}.csv").read_text(encoding="utf-8").splitlines())]
        for name in ("canvas", "moodle")
    )
    assert canvas_knows(canvas[0])
    assert canvas[0][5:] == ["00_start_here"]
    assert canvas[1][0].strip() == "Points Possible"
    assert canvas[1][-1] == "6"
    assert canvas[2] == ["'=cmd()", "7", "", "", "", "4"]
    [worksheet] = [dict(zip(moodle[0], row, strict=True)) for row in moodle[1:]]
    assert MOODLE_REFUSES_WITHOUT | {"Feedback comments"} <= worksheet.keys()
    assert re.fullmatch(r"Participant \d+", worksheet["Identifier"])
    assert worksheet["Grade"] == "4"
    assert 0 <= (datetime.now(UTC) - datetime.fromisoformat(worksheet["Last modified (grade)"])).total_seconds() < 60
    assert "&lt;b&gt;" in worksheet["Feedback comments"]
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "<b>" not in report
    assert "4 of 6" in report


def test_no_cell_of_a_table_is_a_formula() -> None:
    assert rows_as_csv([["=1", "+1", "-1", "@x", 1, "a"]]) == "'=1,'+1,'-1,'@x,1,a\n"


def test_the_command_grades_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = "def softmax(scores):\n    return scores.softmax(-1)\n\nex.softmax.check(softmax)"
    notebook(tmp_path / "in" / "ada" / "00_start_here.ipynb", IMPORTS, cell)
    (tmp_path / "in" / "bob.ipynb").write_text(json.dumps({"cells": []}), encoding="utf-8")
    arguments = ["grade", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    course_command(arguments)
    printed = capsys.readouterr().out
    assert "1 notebooks of 1 students graded" in printed
    assert "bob.ipynb: belongs to no lesson" in printed
    assert "ada,,1,1,6" in (tmp_path / "out" / "grades.csv").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        course_command(arguments)
    assert "holds grades" in capsys.readouterr().err
