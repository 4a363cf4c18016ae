"""What the figures and the claims in the outputs of a notebook must be like; `rules.py` gathers these rules."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import book
import ledger
from figures import figures
from PIL import Image

if TYPE_CHECKING:
    from rules import Lesson

IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
MARKUP = re.compile(r"<figcaption>[^<]*(\*\w+\*|`|\$[A-Za-z])")  # a caption is plain text: its marks would be shown
WITHOUT_ALT = re.compile(r"<img\b(?![^>]*\balt=\"[^\"]+\")")


def has_sound_figures(lesson: Lesson) -> Iterator[str]:
    """A browser draws black what lies outside of a picture's palette; the corners of a card are transparent."""
    for number, output in lesson.outputs:
        for figure in figures(output):
            if complaint := _fault(figure.png):
                yield f"cell {number}: {complaint}; execute it again"


def _fault(png: bytes) -> str:
    """What is wrong with the picture, if anything."""
    picture = Image.open(io.BytesIO(png))
    if picture.mode != "P":
        return ""
    colors = len(picture.getpalette() or []) // 3
    if picture.getextrema()[1] >= colors:
        return f"its figure paints color {picture.getextrema()[1]}, and its palette has {colors}"
    return "the corners of its figure are not transparent" if picture.convert("RGBA").getpixel((0, 0))[3] else ""


def describes_its_images(lesson: Lesson) -> Iterator[str]:
    for number, output in lesson.outputs:
        data = output.get("data", {})
        bare = [mime for mime in data if mime.startswith("image/")]
        described = all(output.metadata.get(mime, {}).get("alt", "").strip() for mime in bare)
        if not described or WITHOUT_ALT.search(data.get("text/html", "")):
            yield f"cell {number}: the figure has no alt text"
        if markup := MARKUP.search(data.get("text/html", "")):
            yield f"cell {number}: the caption shows its mark {markup[1]!r}"
    for number, text in lesson.prose:
        for alt in IMAGE.findall(text):
            if not alt.strip():
                yield f"cell {number}: an image has no alt text"
        if WITHOUT_ALT.search(text):
            yield f"cell {number}: an <img> has no alt text"


def shows_its_claims(lesson: Lesson) -> Iterator[str]:
    """Each claim is shown once, in a cell without a tag, and its key belongs to the lesson."""
    seen: set[str] = set()
    for number, cell in lesson.code:
        shown = (output.get("data", {}).get(ledger.MIME, []) for output in cell.outputs)
        records = [record for records in shown for record in records]
        if "CLAIMS.table()" in cell.source and not records:
            yield f"cell {number}: its table shows no claim"
        if records and cell.metadata.get("tags", ()):
            yield f"cell {number}: a claim is in a cell that is not compared strictly; take its tags away"
        for record in records:
            if record["verdict"] == "not enforced":
                yield f"cell {number}: claim {record['key']} is not enforced; execute at scale cpu"
            if record["lesson"] != lesson.path.stem[3:] or record["key"] in seen:
                yield f"cell {number}: the key {record['key']} is another lesson's or used twice"
            seen.add(record["key"])


def numbers_its_claims_in_order(lesson: Lesson) -> Iterator[str]:
    """A reader meets claim 1 first, then claim 2."""
    numbers = [int(claim["key"].partition(".")[2]) for claim in ledger.claims(lesson.notebook)]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"shows its claims in the order {numbers}; number them in the order of reading"


def says_what_is_stored(lesson: Lesson) -> Iterator[str]:
    """A caption ends with "Stored runs, three seeds." or the like where the cell reads a stored result."""
    for number, cell in lesson.code:
        draws = "plot.show(" in cell.source and re.search(r"\bstored\(", cell.source) and not book.is_woven(cell)
        whole = re.sub(r'"\s*f?"', "", cell.source)  # captions in one piece
        told = re.search(r"\b[Ss]tored (?:run|measurement)", whole)
        if draws and not told:
            yield f"cell {number}: draws stored runs; say so in the last words of the caption"


def has_tables_of_claims(lesson: Lesson) -> Iterator[str]:
    """A section, `## …` or `### …`, that measures claims shows them in a table after the last of them."""
    sections = {number for number, marks, _ in lesson.headings if marks in ("##", "###")}
    waiting: int | None = None  # the cell that measures claims which no table shows yet
    for number, cell in enumerate([*lesson.notebook.cells, None]):
        if waiting is not None and (cell is None or number in sections):
            yield f"cell {waiting}: measures claims; end the section with a cell `study.CLAIMS.table()`"
            waiting = None
        if cell is not None and cell.cell_type == "code" and not book.is_woven(cell):
            waiting = number if "CLAIMS.check(" in cell.source else waiting
            waiting = None if "CLAIMS.table()" in cell.source else waiting
