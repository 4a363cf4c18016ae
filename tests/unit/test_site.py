"""How lessons become pages, without Sphinx: folding, figures, dates, the map."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> dict[str, ModuleType]:
    """The modules of docs/extensions, which need Sphinx."""
    pytest.importorskip("sphinx", reason="the web site's tools come with the `site` extra")
    pytest.importorskip("myst_nb", reason="the web site's tools come with the `site` extra")
    sys.path[:0] = [str(ROOT / "docs/extensions"), str(ROOT / "tools")]
    import course_map
    import green
    import lessons
    import links
    import pages

    return {"course_map": course_map, "green": green, "lessons": lessons, "links": links, "pages": pages}


def test_a_collapsed_cell_is_hidden_under_its_title(site: dict[str, ModuleType]) -> None:
    cell = {"metadata": {"jupyter": {"source_hidden": True}}}
    site["lessons"].fold(cell, "# @title Imports\nimport torch")
    assert cell["metadata"]["tags"] == ["hide-input"]
    assert cell["metadata"]["mystnb"] == {"code_prompt_show": "Code: Imports"}
    setup = {"metadata": {"jupyter": {"source_hidden": True}}}
    site["lessons"].fold(setup, "# @title Setup: run this cell first\nimport sys")
    assert setup["metadata"]["tags"] == ["hide-input", "setup-cell"]
    other = {"metadata": {"collapsed": True, "tags": ["nbval-ignore-output"]}}
    site["lessons"].fold(other, "1 + 1")
    assert other["metadata"]["tags"] == ["nbval-ignore-output", "hide-output"]


def test_a_picture_becomes_a_file_of_known_size(site: dict[str, ModuleType], tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("L", (80, 20)).save(file, format="PNG")
    encoded = base64.b64encode(file.getvalue()).decode()
    output = {"data": {"text/html": [f'<img alt="Bars" width="40" src="data:image/png;base64,{encoded}">']}}
    site["lessons"].move_pictures(output, tmp_path)
    (written,) = tmp_path.iterdir()
    assert written.read_bytes() == file.getvalue()
    assert 'alt="Bars" width="40" height="10"' in output["data"]["text/html"]
    assert f'src="../figures/{written.name}"' in output["data"]["text/html"]


def test_a_day_is_shown_only_for_what_ran(site: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    green = site["green"]
    monkeypatch.delenv("TFBOOK_GREEN", raising=False)
    assert green.sentence("notebooks/00_start_here.ipynb").startswith("Last green: not yet (")
    monkeypatch.setenv("TFBOOK_GREEN", "2026-11-28 0000000")
    assert green.sentence("notebooks/00_start_here.ipynb") == "Last green: not yet for this version"
    monkeypatch.setattr(green, "changed_since", lambda commit, notebook: False)
    assert green.sentence("notebooks/00_start_here.ipynb").startswith("Last green: November 28, 2026 (")
    monkeypatch.setenv("TFBOOK_GREEN", "yesterday")
    with pytest.raises(ValueError, match="yesterday"):
        green.sentence("notebooks/00_start_here.ipynb")


def test_links_lead_to_pages_or_to_the_repository(site: dict[str, ModuleType]) -> None:
    text = "[a](../../notebooks/04_positions.ipynb#x) [b](../../CLAIMS.md) [c](other.md) [d](../../data/README.md) [e](https://f.g)"
    expected = "[a](/lessons/04_positions.ipynb#x) [b](/ledger.md) [c](other.md) [d](R/blob/main/data/README.md) [e](https://f.g)"
    assert site["links"].linked(text, "R", "docs/teaching") == expected


def test_the_ledger_begins_with_what_failed(site: dict[str, ModuleType]) -> None:
    rows = ["| **01.1** A | unlike B (2020) | 1 | ≥ 2 | does not hold |", "| **01.2** C | D | 3 | ≥ 2 | holds |"]
    text = "# Claims\n\nText.\n\n## [01](notebooks/01_a.ipynb)\n\n" + "\n".join(rows) + "\n"
    found = site["pages"].ledger(text, "R")
    assert "**1 of 2 rows hold.**" in found
    first, second = found.split("## [01]")
    assert rows[0] in first
    assert rows[1] not in first
    assert rows[0] in second


def test_the_map_has_each_lesson_below_what_it_needs(site: dict[str, ModuleType]) -> None:
    """Arrows that another way says as well are left out; one that crosses a row has a place there."""
    course_map = site["course_map"]
    graph = {0: (), 1: (0,), 2: (0, 1), 3: (1,), 4: (2,), 5: (4, 3)}
    assert course_map.direct(graph)[2] == (1,)
    at = course_map.places(graph)
    assert at[0] == (0, 0)
    assert at[1] == (1, 0)
    assert (at[2][1], at[3][1], at[4][1], at[5][1]) == (1, 1, 2, 3)
    assert at[(3, 5, 2)][1] == 2
    assert course_map.needs()[5] == (1, 3, 4)
