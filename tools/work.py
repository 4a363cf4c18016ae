"""Copies the lessons into work/, where a learner may change them.

    python tools/work.py                 adds the lessons that work/ lacks, and renews README.md and CLAIMS.md there
    python tools/work.py --refresh 01    puts a fresh copy of lesson 01 there; the old one stays under a new name

A copy is made once and never overwritten. Git ignores work/: JupyterLab changes a notebook that it merely shows, and
`git pull` refuses to touch a tracked file that has changed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from datetime import date
from hashlib import sha256
from itertools import count
from pathlib import Path

import address
import book
import nbformat

from tfbook.files import atomic_write, write_text

WORK = book.ROOT / "work"
PAGES = ("README.md", "CLAIMS.md")
PICTURES = (".github/alignment.png",)
BADGE = re.compile(r"\[!\[([\w ]+)\]\(https://[\w./-]+\.svg\)\](?=\()")  # a link that shows a picture of another site
LINK = re.compile(r"(?<=\]\()[\w./-]+(?=[)#\s])")  # the file that a link of Markdown leads to
FEW = 3  # lessons that are named; more are counted
RECORD = ".copied.json"  # by the name of a lesson: what it was copied from, so that a revision is noticed


def relinked(text: str, folder: Path) -> str:
    """A text from `folder` for work/: links lead to what lies there too, and else to GitHub; badges need no network."""

    def follow(match: re.Match[str]) -> str:
        file = (folder / match[0]).resolve()
        if not file.is_file() or not file.is_relative_to(book.ROOT):  # no link, but a formula
            return match[0]
        name = file.relative_to(book.ROOT).as_posix()
        if file.parent == book.NOTEBOOKS or name in PAGES + PICTURES:
            return file.name
        return f"https://github.com/{address.slug()}/blob/main/{name}"

    return LINK.sub(follow, BADGE.sub(r"[\1]", text))


def copied(original: Path) -> str:
    """The file of a lesson as work/ gets it."""
    notebook = book.read(original)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = relinked(cell.source, original.parent)
    return nbformat.writes(notebook) + "\n"


def digest(original: Path) -> str:
    return sha256(original.read_bytes()).hexdigest()


def record() -> dict[str, str]:
    """The digests of the lessons as they were when they were copied; none where the file is missing or damaged."""
    file = WORK / RECORD
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (ValueError, RecursionError):
        found = {}
    return {name: each for name, each in found.items() if isinstance(each, str)} if isinstance(found, dict) else {}


def place(originals: list[Path]) -> None:
    """Copies the lessons, replacing earlier copies."""
    WORK.mkdir(exist_ok=True)
    for original in originals:
        write_text(WORK / original.name, copied(original))
    known = record() | {original.name: digest(original) for original in originals}
    write_text(WORK / RECORD, json.dumps(known, indent=1) + "\n")


def update() -> Iterator[str]:
    """Adds missing lessons and renews the pages; yields messages for the learner."""
    missing = [original for original in book.lessons() if not (WORK / original.name).exists()]
    place(missing)
    for page in PAGES:
        text = (book.ROOT / page).read_text(encoding="utf-8")
        write_text(WORK / page, relinked(text, book.ROOT))
    for picture in PICTURES:
        with atomic_write(WORK / Path(picture).name) as file:
            file.write((book.ROOT / picture).read_bytes())
    if missing:
        names = [original.name for original in missing] if len(missing) <= FEW else [f"{len(missing)} lessons"]
        yield f"copied into work/, to read and to change: {', '.join(names)}"
    known = record()
    for original in book.lessons():
        if known.get(original.name, digest(original)) != digest(original):
            number = original.name[:2]
            yield f"lesson {number} was revised since you got it; a fresh copy beside yours: make refresh N={number}"


def refresh(name: str) -> str:
    """Puts a fresh copy of a lesson into work/ and renames the old one; returns a message for the learner."""
    original = book.NOTEBOOKS / book.lessons([name])[0].name
    copy = WORK / original.name
    if copy.is_file() and copy.read_text(encoding="utf-8") == copied(original):
        return f"work/{copy.name} is the lesson as it stands; nothing to do"
    kept = _kept(copy) if copy.is_file() else None
    if kept:
        copy.rename(kept)
    place([original])
    return f"work/{copy.name} is fresh" + (f"; yours is now work/{kept.name}" if kept else "")


def _kept(copy: Path) -> Path:
    """A free name for the learner's copy, with the day until which it was the current one."""
    names = (f"{copy.stem} (before {date.today()}{f', {n}' if n > 1 else ''}){copy.suffix}" for n in count(1))
    return next(path for path in map(copy.with_name, names) if not path.exists())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refresh", metavar="LESSON", help="number or slug")
    name = parser.parse_args(arguments).refresh
    for line in [refresh(name)] if name else update():
        print(line)


if __name__ == "__main__":
    main()
