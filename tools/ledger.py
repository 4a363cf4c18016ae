"""Writes CLAIMS.md, the ledger of measured claims, from the executed notebooks.

    python tools/ledger.py            write it
    python tools/ledger.py --check    compare it; exit 1 if it differs

Measured numbers are not compared, since they vary between machines; verdicts are.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book import ROOT, lessons, read
from nbformat import NotebookNode

from tfbook.course.claims import MIME, SIGNS
from tfbook.files import write_text

LEDGER = ROOT / "CLAIMS.md"
COLUMNS = ("Claim", "Source", "Measured", "Required", "Verdict")
INTRODUCTION = """# Claims, measured

What the papers say, tested at a small scale. Each row is a cell of a lesson, which runs the experiment and shows the
number. Numbers vary a little between machines; verdicts do not, and the tests compare them.

<!-- Made by tools/ledger.py from the executed notebooks: run `make notebooks`, do not edit. -->
"""


def claims(notebook: NotebookNode) -> Iterator[dict[str, Any]]:
    """The records of the claims in the notebook's outputs, in order."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if MIME in output.get("data", {}):
                yield from output.data[MIME]


def title(notebook: NotebookNode) -> str:
    """The notebook's first heading, without the lesson number."""
    return re.sub(r"^# +(\d\d · )?", "", notebook.cells[0].source.partition("\n")[0]).strip()


def row(claim: dict[str, Any], lesson: str) -> str:
    """The claim as a line of a Markdown table; its key there is the lesson's number and its own."""
    unit, measured, number = claim["unit"], claim["measured"], claim["key"].partition(".")[2]
    cells = (
        f"**{lesson}.{number}** {claim['statement']}",
        claim["source"],
        "not a number" if measured is None else f"{measured:.3g}{unit}",
        f"{SIGNS[claim['relation']]} {claim['threshold']:g}{unit}",
        claim["verdict"],
    )
    return "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


def section(path: Path, notebook: NotebookNode) -> str:
    """The lesson's heading, with a link to its notebook, and the table of its claims; empty if there are none."""
    number = path.name[:2]
    rows = [row(claim, number) for claim in claims(notebook)]
    if not rows:
        return ""
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    return "\n".join([f"\n## [{number} · {title(notebook)}](notebooks/{path.name})\n", *head, *rows, ""])


def ledger(paths: list[Path]) -> str:
    """The text of CLAIMS.md."""
    return INTRODUCTION + "".join(section(path, read(path)) for path in paths)


def without_numbers(text: str) -> list[str]:
    """The lines of a ledger with the column Measured left blank."""
    lines = []
    for line in text.splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) == len(COLUMNS) + 2 and cells[1].strip() != COLUMNS[0]:
            cells[1 + COLUMNS.index("Measured")] = " … "
        lines.append("|".join(cells))
    return lines


def differences(written: str, expected: str) -> list[str]:
    """The lines, marked - and +, in which two ledgers differ apart from the measured numbers."""
    lines = difflib.unified_diff(without_numbers(written), without_numbers(expected), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 when CLAIMS.md differs")
    options = parser.parse_args(arguments)
    text = ledger(lessons())
    if not options.check:
        write_text(LEDGER, text)
        return
    written = LEDGER.read_text(encoding="utf-8") if LEDGER.exists() else ""
    if differing := differences(written, text):
        raise SystemExit("\n".join([*differing, "CLAIMS.md differs from the notebooks: run `python tools/ledger.py`"]))


if __name__ == "__main__":
    main()
