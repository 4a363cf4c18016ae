"""How a notebook asks for predictions and answers them; `rules.py` gathers these rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from folding import ANSWERS
from nbformat import NotebookNode

if TYPE_CHECKING:
    from rules import Lesson

PREDICTIONS = 3
BOX = re.compile(r"^> \*\*Predict\*\*", re.MULTILINE)
KEY = re.compile(re.escape(ANSWERS) + r'"(\w+)"\):$', re.MULTILINE)


def asks_for_predictions(lesson: Lesson) -> Iterator[str]:
    boxes = sum(len(BOX.findall(text)) for _, text in lesson.prose)
    if boxes < PREDICTIONS:
        yield f"{boxes} quoted boxes begin with **Predict**; expected at least {PREDICTIONS}"


def answers_its_predictions(lesson: Lesson) -> Iterator[str]:
    """Each box ends its cell, its answer is the first that is shown after it, and each text is used once."""
    cells = lesson.notebook.cells
    for number, text in lesson.prose:
        boxes = [match.start() for match in BOX.finditer(text)]
        if len(boxes) > 1 or (boxes and re.search(r"^[^>]", text[boxes[0] :], re.MULTILINE)):
            yield f"cell {number}: a Predict box ends its cell"
        if boxes and not _is_answered(cells[number + 1 :]):
            yield f"cell {number}: expected its answer in the next cell, `{ANSWERS}…):`"
    keys = [(number, key) for number, cell in lesson.code for key in KEY.findall(cell.source)]
    uses = Counter(key for _, key in keys)
    for key in sorted(uses.keys() | lesson.answers.keys()):
        if uses[key] != 1 or key not in lesson.answers:
            texts = int(key in lesson.answers)
            yield f"the key {key!r} is used {uses[key]} times and has {texts} texts in answers.py; expected one each"
    for number, key in keys:
        following = next((cell.source for cell in cells[number + 1 :] if cell.cell_type == "markdown"), "")
        if following.startswith(_first_sentence(lesson.answers.get(key, "?"))):
            yield f"cell {number}: the text after it repeats the answer {key!r}"


def _is_answered(cells: Sequence[NotebookNode]) -> bool:
    """Whether an answer is the first that these cells show: what it needs may be computed before."""
    for cell in takewhile(lambda cell: cell.cell_type == "code", cells):
        if KEY.search(cell.source) or cell.outputs:
            return KEY.search(cell.source) is not None
    return False


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:!?])\s", text, maxsplit=1)[0]
