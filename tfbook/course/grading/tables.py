"""Grades as tables: one for people, one for Canvas, one for Moodle, and a report with every message."""

from __future__ import annotations

import csv
import html
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tfbook.course.attempts import MARKS
from tfbook.course.grading.handed_in import Student
from tfbook.course.grading.verdicts import ExerciseVerdict, Graded
from tfbook.course.lessons import Lesson
from tfbook.course.progress import exercises_of
from tfbook.files import write_text

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so is computed by spreadsheets
Grades = dict[Student, dict[Lesson, Graded]]


def best(graded: Iterable[Graded]) -> Grades:
    """Student → lesson → the notebook with the most points; the later path where two have as many."""
    found: Grades = defaultdict(dict)
    for each in graded:
        lesson = each.handed_in.lesson
        if lesson and not each.handed_in.fault:
            known = found[each.handed_in.student].get(lesson)
            if known is None or each.points >= known.points:
                found[each.handed_in.student][lesson] = each
    return dict(sorted(found.items(), key=lambda item: (item[0].name.lower(), item[0].number)))


def write_tables(graded: Sequence[Graded], folder: Path) -> list[Path]:
    """Writes grades.csv, canvas.csv, moodle.csv, exercises.csv and report.md into a folder; returns their paths."""
    grades = best(graded)
    lessons = sorted({lesson for found in grades.values() for lesson in found}, key=lambda lesson: lesson.number)
    texts = {
        "grades.csv": rows_as_csv(grade_rows(grades, lessons)),
        "canvas.csv": rows_as_csv(canvas_rows(grades, lessons)),
        "moodle.csv": rows_as_csv(moodle_rows(grades, lessons)),
        "exercises.csv": rows_as_csv(exercise_rows(graded)),
        "report.md": report(graded, grades),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def rows_as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV in which no cell is a formula."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([_harmless(value) for value in row] for row in rows)
    return file.getvalue()


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def grade_rows(grades: Grades, lessons: Sequence[Lesson]) -> Iterable[Sequence[Any]]:
    """A row for each student: points of each lesson, and their sum."""
    most = [len(exercises_of(lesson)) for lesson in lessons]
    yield "student", "id", *(f"{each.name} (of {n})" for each, n in zip(lessons, most, strict=True)), "sum", "of"
    for student, found in grades.items():
        points = [found[lesson].points if lesson in found else 0 for lesson in lessons]
        yield student.name, student.number, *points, sum(points), sum(most)


def canvas_rows(grades: Grades, lessons: Sequence[Lesson]) -> Iterable[Sequence[Any]]:
    """The table that Canvas imports: a column for each lesson, and a row with the points that are possible.

    Canvas wants the columns about the student in this order, up to Section. It knows a student by the ID, and an
    assignment by its title, or else makes a new one (canvas-lms, lib/gradebook_importer.rb).
    """
    yield "Student", "ID", "SIS User ID", "SIS Login ID", "Section", *(lesson.name for lesson in lessons)
    yield "    Points Possible", "", "", "", "", *(len(exercises_of(lesson)) for lesson in lessons)
    for student, found in grades.items():
        points = [found[lesson].points if lesson in found else "" for lesson in lessons]
        yield student.name, student.number, "", "", "", *points


def moodle_rows(grades: Grades, lessons: Sequence[Lesson]) -> Iterable[Sequence[Any]]:
    """Moodle's offline grading worksheet: one grade for each participant, and the messages as feedback.

    Moodle wants Identifier, Grade and the time, and keeps what somebody has graded after that time
    (mod/assign/feedback/offline/importgradeslib.php and locallib.php).
    """
    yield "Identifier", "Full name", "Grade", "Maximum grade", "Last modified (grade)", "Feedback comments"
    now = datetime.now(UTC).isoformat(timespec="seconds")
    most = sum(len(exercises_of(lesson)) for lesson in lessons)
    for student, found in grades.items():
        verdicts = [verdict for each in found.values() for verdict in each.verdicts if not verdict.points]
        feedback = "<br>".join(html.escape(f"{verdict.exercise}: {_reason(verdict)}") for verdict in verdicts)
        identifier = f"Participant {student.number}" if student.number else ""
        yield identifier, student.name, sum(each.points for each in found.values()), most, now, feedback


def exercise_rows(graded: Iterable[Graded]) -> Iterable[Sequence[Any]]:
    """A row for each exercise of each notebook."""
    yield "student", "id", "file", "lesson", "exercise", "points", "status", "message", "remark"
    for each in graded:
        handed = each.handed_in
        row = (
            handed.student.name,
            handed.student.number,
            handed.path.name,
            handed.lesson.name if handed.lesson else "",
        )
        if handed.fault:
            yield *row, "", 0, "not graded", handed.fault, ""
        for verdict in each.verdicts:
            yield *row, verdict.exercise, verdict.points, verdict.status, verdict.message, verdict.remark


def report(graded: Sequence[Graded], grades: Grades) -> str:
    """Every student's messages as Markdown, and what could not be graded."""
    lines = ["# Grades", ""]
    lines += [
        f"- **not graded**: {_text(each.handed_in.path.name)} ({_text(each.handed_in.student.name)}): "
        f"{_text(each.handed_in.fault)}"
        for each in graded
        if each.handed_in.fault
    ]
    for student, found in grades.items():
        lines += ["", f"## {_text(student.name)}"]
        for lesson, each in sorted(found.items(), key=lambda item: item[0].number):
            lines += ["", f"### {lesson.name}: {each.points} of {len(each.verdicts)}", ""]
            lines += [_line(verdict) for verdict in each.verdicts]
    return "\n".join(lines) + "\n"


def _line(verdict: ExerciseVerdict) -> str:
    remark = f" *Look at it: {_text(verdict.remark)}.*" if verdict.remark else ""
    return f"- {MARKS[verdict.status]} `{verdict.exercise}`: {_text(_reason(verdict))}{remark}"


def _reason(verdict: ExerciseVerdict) -> str:
    return f"{verdict.status}: {verdict.message}" if verdict.message else verdict.status


def _text(words: str) -> str:
    """Words of a stranger as plain text of Markdown, in one line."""
    line = html.escape(" ".join(words.split()), quote=False)
    return "".join(f"\\{letter}" if letter in "\\`*_[]|#" else letter for letter in line)
