"""A lesson's skeleton, made in a copy of the repository, keeps every rule for notebooks and passes the tests there."""

from __future__ import annotations

from pathlib import Path

import book
import new_lesson
import pytest
from rules import RULES, Lesson
from samples import run_python, run_tool

from tfbook.course.lessons import LESSONS, Lesson as MapLesson

PLANNED = MapLesson(len(LESSONS), "planned_nets", "Planned nets", "Can one plan a net?", None, LESSONS[-1].part)
FOLDER = ("__init__", "exercises", "study", "figures", "answers", "claims")
FILES = [
    f"notebooks/{PLANNED.name}.ipynb",
    *(f"tfbook/lessons/{PLANNED.slug}/{name}.py" for name in FOLDER),
    f"tests/unit/test_lesson_{PLANNED.slug}.py",
]


@pytest.fixture
def planning(copy: Path) -> Path:
    """The copy, with one lesson more on its map, which nobody has written."""
    file = copy / "tfbook/course/lessons.py"
    values = f'{PLANNED.number}, "{PLANNED.slug}", "{PLANNED.title}", "{PLANNED.question}", None, {PLANNED.part}'
    row = f"    Lesson({values}),"
    before, last, after = file.read_text(encoding="utf-8").partition("\n)\n\n\ndef slug_of")
    file.write_text(f"{before}\n{row}{last}{after}", encoding="utf-8")
    run_tool(copy, "tables")
    return copy


@pytest.mark.slow
def test_a_planned_lesson_is_begun(planning: Path) -> None:
    copy = planning
    assert run_tool(copy, "new_lesson", PLANNED.slug).split()[: len(FILES)] == FILES
    run_tool(copy, "notebooks", PLANNED.slug)
    run_tool(copy, "ledger")
    path = copy / FILES[0]
    lesson = Lesson(path, book.read(path))
    assert [complaint for rule in RULES for complaint in rule(lesson)] == []
    assert lesson.notebook.cells[0].source.startswith(f"# {PLANNED.number:02} · {PLANNED.question}\n")
    assert f"({FILES[0]}) | {PLANNED.question} | 5 min |" in (copy / "README.md").read_text(encoding="utf-8")
    for tool, *names in (["tables"], ["ledger"], ["weave", PLANNED.slug]):
        run_tool(copy, tool, *names, "--check")
    tests = ["tests/exercises/test_exercises.py", "tests/notebooks/test_course_map.py", FILES[-1]]
    passed = run_python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", f"lesson or {PLANNED.slug}")
    assert passed.returncode == 0, passed.stdout


def test_a_lesson_that_nobody_planned_gets_a_free_number(copy: Path) -> None:
    question = 'Is "deep" enough?'
    number = f"{len(LESSONS):02}"
    arguments = ("deep_nets", "--number", number, "--title", "Deep nets", "--question", question)
    assert f"notebooks/{number}_deep_nets.ipynb" in run_tool(copy, "new_lesson", *arguments)
    assert f"# {number} · {question}\n" in book.read(copy / f"notebooks/{number}_deep_nets.ipynb").cells[0].source
    row = f"""    Lesson({number}, "deep_nets", "Deep nets", "Is \\"deep\\" enough?", 5, {LESSONS[-1].part}),\n)\n"""
    assert row in (copy / "tfbook/course/lessons.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["transformer"], "lesson transformer is written, as notebooks/05_transformer.ipynb"),
        (["nets", "--number", "21"], "the map has no lesson 'nets'; say --title, --question"),
        (["nets", "--number", "5", "--title", "N", "--question", "?"], "transformer is lesson 05; make room with"),
        (["Nets", "--number", "21", "--title", "N", "--question", "?"], "the slug is 'Nets'; expected lower-case"),
    ],
)
def test_what_cannot_be_begun_is_refused_and_nothing_is_written(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(book, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=message):
        new_lesson.main(arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(book, "ROOT", tmp_path)
    existing = tmp_path / FILES[1]
    existing.parent.mkdir(parents=True)
    existing.touch()
    with pytest.raises(SystemExit, match=f"{FILES[1]} exists; expected none of the lesson's files"):
        new_lesson.main([PLANNED.slug, "--number", "21", "--title", PLANNED.title, "--question", PLANNED.question])
    assert existing.read_text(encoding="utf-8") == ""
