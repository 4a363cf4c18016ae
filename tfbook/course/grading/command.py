"""`python -m tfbook grade FOLDER`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tqdm import tqdm

from tfbook import console
from tfbook.course.grading.room import Limits
from tfbook.course.grading.tables import best, write_tables
from tfbook.course.grading.verdicts import Graded, grade_folder
from tfbook.files import expanded

DESCRIPTION = """\
Grade the notebooks below a folder, as Canvas, Moodle or Colab give them: a point for each exercise that is right. Each
answer runs alone in a locked process, without the rest of its notebook, so a lesson takes seconds. Written are
grades.csv, canvas.csv, moodle.csv, exercises.csv and report.md."""


def grade_command(arguments: list[str] | None = None) -> None:
    """Grades a folder; an error is one line."""
    parser = argparse.ArgumentParser(prog="python -m tfbook grade", description=DESCRIPTION)
    parser.add_argument("folder", help="the folder with what was handed in, unpacked")
    parser.add_argument("--out", default="grades", help="the folder for the tables; grades by default")
    parser.add_argument("--replace", action="store_true", help="replace tables that are there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; one for each core by default")
    parser.add_argument("--seconds", type=float, default=Limits.seconds, help="that one answer may take; 20 by default")
    with console.command(parser, ValueError, OSError):
        options = parser.parse_args(arguments)
        if not options.seconds > 0:
            raise ValueError(f"--seconds is {options.seconds:g}; expected more than 0")
        grade(expanded("folder", options.folder), expanded("out", options.out), options)


def grade(folder: Path, out: Path, options: argparse.Namespace) -> None:
    """Grades and writes the tables. Raises FileExistsError unless tables that are there may be replaced."""
    if (out / "grades.csv").exists() and not options.replace:
        raise FileExistsError(f"{out} holds grades; give another folder with --out, or --replace")
    with tqdm(desc="Notebooks graded", unit="") as bar:

        def finished(graded: Graded) -> None:
            bar.update()

        graded = grade_folder(folder, jobs=options.jobs, limits=Limits(seconds=options.seconds), finished=finished)
    paths = write_tables(graded, out)
    faults = [each for each in graded if each.handed_in.fault]
    for each in faults:
        print(f"not graded: {each.handed_in.path}: {each.handed_in.fault}")
    print(f"{len(graded) - len(faults)} notebooks of {len(best(graded))} students graded: {', '.join(map(str, paths))}")
