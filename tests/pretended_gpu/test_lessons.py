"""Every lesson runs whole where tensors lie elsewhere: what would fail on a GPU alone fails here.

`make pretended-gpu` runs these; they take minutes, so `make test` leaves them out.
"""

import os
from pathlib import Path

import kernels
import nbformat
import pytest

LESSONS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9][0-9]_*.ipynb"))
SECONDS = 600  # for one lesson

pytestmark = [
    pytest.mark.skipif(os.environ.get("TFBOOK_PRETENDED") != "1", reason="lessons elsewhere: `make pretended-gpu`"),
    pytest.mark.timeout(SECONDS + 60),
]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_runs_elsewhere(path: Path) -> None:
    """At scale quick, with the corpora that ship; no cell raises and no proof prints ✗."""
    lesson = nbformat.read(path, as_version=4)
    found = kernels.failures(lesson.cells, path.parent, SECONDS)
    assert found == [], "\n\n".join(f"cell {each.cell}: {each.trace}" for each in found)
