"""Measures the lessons: words, visible lines of code, cells, figures, schematics, claims and minutes of reading.

    python tools/measure.py            a table with a line for the core of each lesson and one for what follows it
    python tools/measure.py 01 --write also writes the minutes of core and exercises into the line of facts under the
                                       title, from where those of the core have to go to tfbook/course/lessons.py

The core is what comes before `## Exercises` or `## Going further`, without the exercises that stand between its
sections: each goes from its heading to the cell with its check, or to the next heading. Reading takes a minute for 200
words, one for each figure and one for each visible code cell. Exercises take what their headings say.
"""

from __future__ import annotations

import argparse
import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from book import lessons, read, write
from figures import figures
from folding import title
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from tfbook.course.claims import MIME

HEADING = re.compile(r"^#{2,} +(.+)$", re.MULTILINE)
PARTS = re.compile(r"^(?=#{2,} )", re.MULTILINE)  # of a cell with headings
CHECK = re.compile(r"^(?:ex|study)\.(?!CLAIMS)\w+\.check\(", re.MULTILINE)
CORE_ENDS = ("Exercises", "Going further")
NOT_WORDS = re.compile(  # fenced code, formulas, links' addresses, comments, rows of tables
    r"```.*?```|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)|<!--.*?-->|^\|[^\n]*$", re.DOTALL | re.MULTILINE
)
EXPLANATION = re.compile(r'<div class="tfbook-explanation">(.*)</div></details>', re.DOTALL)
NOT_SAID = re.compile(  # formulas, tables and tags in HTML
    r"<math\b.*?</math>|<table>.*?</table>|<[^>]*>", re.DOTALL
)
FACTS = re.compile(r"^\*Core: (\d+) minutes · exercises: (\d+) minutes · runs in ", re.MULTILINE)
EXERCISE = re.compile(r"^#{3,4} Exercise \d+ · .* · (\d+) min$", re.MULTILINE)
WORDS_PER_MINUTE = 200
ROUND_TO = 5  # minutes
TABLE = "study.CLAIMS.table()"  # a cell that shows a closed table is no code to read


@dataclass(frozen=True)
class Measure:
    """The contents of a part of a lesson, counted."""

    words: int
    lines: int  # of code that is not collapsed
    cells: int
    figures: int
    schematics: int
    claims: int
    minutes: int


def core_and_rest(notebook: NotebookNode) -> tuple[list[NotebookNode], list[NotebookNode]]:
    """The cells of the core, and those of exercises and optional sections."""
    core: list[NotebookNode] = []
    rest: list[NotebookNode] = []
    ended = inside = False
    for part in (part for cell in notebook.cells for part in parts(cell)):
        if part.cell_type == "markdown" and (heading := HEADING.match(part.source)):
            ended = ended or heading[1].startswith(CORE_ENDS)
            inside = heading[1].startswith("Exercise ")
        (rest if ended or inside else core).append(part)
        inside = inside and not CHECK.search(part.source)
    return core, rest


def parts(cell: NotebookNode) -> list[NotebookNode]:
    """A cell of text as one cell for each of its headings, since an exercise may begin in the middle."""
    if cell.cell_type != "markdown":
        return [cell]
    return [new_markdown_cell(text) for text in PARTS.split(cell.source) if text.strip()]


def measure(cells: Iterable[NotebookNode]) -> Measure:
    """Counts a part of a lesson."""
    cells = list(cells)
    prose = [NOT_WORDS.sub(" ", cell.source) for cell in cells if cell.cell_type == "markdown"]
    code = [cell for cell in cells if cell.cell_type == "code"]
    visible = [cell for cell in code if title(cell) is None and cell.source != TABLE]
    outputs = [output for cell in code for output in cell.outputs]
    shown = [figure for output in outputs for figure in figures(output)]
    explanations = [text for output in outputs for text in explained(output)]
    words = sum(len(re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text)) for text in [*prose, *explanations])
    return Measure(
        words=words,
        lines=sum(len(cell.source.splitlines()) for cell in visible),
        cells=len(cells),
        figures=len(shown),
        schematics=sum(figure.schematic for figure in shown),
        claims=sum(len(output.get("data", {}).get(MIME, [])) for output in outputs),
        minutes=round(words / WORDS_PER_MINUTE) + len(shown) + len(visible),
    )


def explained(output: NotebookNode) -> list[str]:
    """The words that explain the answer to a prediction, which stand in its output."""
    pages = EXPLANATION.findall(output.get("data", {}).get("text/html", ""))
    return [html.unescape(NOT_SAID.sub(" ", page)) for page in pages]


def stated_minutes(notebook: NotebookNode) -> tuple[int, int] | None:
    """The minutes of core and exercises in the line of facts."""
    found = FACTS.search(notebook.cells[0].source)
    return (int(found[1]), int(found[2])) if found else None


def minutes_to_state(notebook: NotebookNode) -> tuple[int, int]:
    """The minutes of core and exercises, rounded as the line of facts has them."""
    core, exercises = measure(core_and_rest(notebook)[0]).minutes, sum(exercise_minutes(notebook))
    return ROUND_TO * round(core / ROUND_TO), ROUND_TO * round(exercises / ROUND_TO)


def exercise_minutes(notebook: NotebookNode) -> list[int]:
    """The minutes of each exercise, as its heading says."""
    return [int(minutes) for cell in notebook.cells for minutes in EXERCISE.findall(cell.source)]


def state(path: Path) -> None:
    """Writes the measured minutes into the line of facts."""
    notebook = read(path)
    first, (core, exercises) = notebook.cells[0], minutes_to_state(notebook)
    first.source = FACTS.sub(f"*Core: {core} minutes · exercises: {exercises} minutes · runs in ", first.source)
    write(path, notebook)


def line(name: str, part: Measure) -> str:
    figures = f"{part.figures:>3} figures ({part.schematics} drawn)"
    return (
        f"{name:<32}{part.words:>6} words {part.lines:>4} lines {part.cells:>4} cells {figures} "
        f"{part.claims:>3} claims {part.minutes:>4} minutes"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lesson", nargs="*", help="number, slug or path; all lessons when left out")
    parser.add_argument("--write", action="store_true", help="write the minutes into the line of facts")
    options = parser.parse_args(arguments)
    for path in lessons(options.lesson):
        if options.write:
            state(path)
        core, rest = core_and_rest(read(path))
        print(line(path.stem, measure(core)))
        print(line("   exercises and going further", measure(rest)))


if __name__ == "__main__":
    main()
