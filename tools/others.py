"""Renews what a lesson shows of the other lessons, without executing it.

    python tools/others.py            all lessons
    python tools/others.py --check    change nothing, list those that show others as they were; exit 1 if there are any

That is the map of the course, which counts the exercises of every lesson, and in lesson 08 what a search finds in their
text. All else that a stored output shows is of its own lesson, of the package, or of a stored result.
"""

from __future__ import annotations

import argparse
import re
from copy import deepcopy
from pathlib import Path

from book import lessons, read, write
from nbformat import NotebookNode

from tfbook.course.progress import course_lines

MAP, SEARCH = "progress.print_course()", "study.course_passages()"  # what the cells in question call
FOUND = re.compile(r"(?<=^counted words:\n).*?\n(?=\n|\Z)", re.DOTALL | re.MULTILINE)


def renewed(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """A copy of the notebook that shows the other lessons of the course, and those in `folder`, as they are."""
    copy = deepcopy(notebook)
    for cell in copy.cells:
        for output in cell.get("outputs", ()):
            if output.get("name") == "stdout" and MAP in cell.source:
                output.text = "\n".join(course_lines({})) + "".join(output.text.partition("\n\n")[1:])
            elif output.get("name") == "stdout" and SEARCH in cell.source:
                found = "".join(f"  {line}\n" for line in _found(folder))
                output.text = FOUND.sub(lambda _, found=found: found, output.text)
    return copy


def _found(folder: Path) -> list[str]:
    """What lesson 08 finds by counted words."""
    from tfbook.lessons.bert_masking import search

    passages = search.course_passages(folder)
    return search.answers(search.WordIndex([each.text for each in passages]), passages, search.EXAMPLE)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 when a notebook would change")
    options = parser.parse_args(arguments)
    stale = {path: new for path in lessons() if (new := renewed(old := read(path), path.parent)) != old}
    for path, notebook in stale.items():
        print(path.name)
        if not options.check:
            write(path, notebook)
    if options.check and stale:
        raise SystemExit("the notebooks above show other lessons as they were: run `python tools/others.py`")


if __name__ == "__main__":
    main()
