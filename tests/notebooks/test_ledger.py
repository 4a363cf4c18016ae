"""The ledger shows each claim of the executed notebooks; its check sees verdicts and overlooks numbers."""

from __future__ import annotations

from pathlib import Path

import book
import ledger
import pytest
from nbformat import NotebookNode
from samples import code, mimebundle, notebook, prose, save

from tfbook.course.claims import Bound, Claims


def lesson(measured: float) -> NotebookNode:
    """A notebook that has shown two claims, through the package's own display."""
    bounds = {
        1: Bound("Attention | fixed", ">=", 80.0, "Bahdanau et al. (2015), Fig. 2", " BLEU"),
        12: Bound("Errors are few", "<=", 0.15, "Och & Ney (2003)"),
    }
    claims = Claims("attention", bounds)
    cells = []
    for number, value in ((1, measured), (12, 0.1234)):
        claims.check({number: value})
        cells.append(code("CLAIMS.table()", mimebundle(claims.table()._repr_mimebundle_())))
    return notebook(prose("# Can a decoder look back?\n\nText."), *cells)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lesson 01 with claims and lesson 00 without, and a ledger written from them."""
    monkeypatch.setenv("TFBOOK_SCALE", "cpu")
    monkeypatch.setattr(book, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(ledger, "LEDGER", tmp_path / "CLAIMS.md")
    save(tmp_path / "00_start.ipynb", notebook(prose("# Start here")))
    save(tmp_path / "01_attention.ipynb", lesson(93.1))
    ledger.main([])
    return tmp_path


def test_the_table(shelf: Path) -> None:
    text = (shelf / "CLAIMS.md").read_text(encoding="utf-8")
    assert text == ledger.INTRODUCTION + (
        "\n## [01 · Can a decoder look back?](notebooks/01_attention.ipynb)\n\n"
        "| Claim | Source | Measured | Required | Verdict |\n"
        "|---|---|---|---|---|\n"
        "| **01.1** Attention \\| fixed | Bahdanau et al. (2015), Fig. 2 | 93.1 BLEU | ≥ 80 BLEU | holds |\n"
        "| **01.12** Errors are few | Och & Ney (2003) | 0.123 | ≤ 0.15 | holds |\n"
    )


def test_a_claim_without_a_number_is_a_row_like_the_others(shelf: Path) -> None:
    """Jupyter stores no NaN."""
    save(shelf / "01_attention.ipynb", lesson(float("nan")))
    ledger.main([])
    text = (shelf / "CLAIMS.md").read_text(encoding="utf-8")
    assert "Fig. 2 | not a number | ≥ 80 BLEU | does not hold |\n" in text


def test_another_number_is_in_step(shelf: Path) -> None:
    save(shelf / "01_attention.ipynb", lesson(90.2))
    ledger.main(["--check"])


def test_another_verdict_is_not(shelf: Path) -> None:
    save(shelf / "01_attention.ipynb", lesson(79.0))
    before = (shelf / "CLAIMS.md").read_bytes()
    with pytest.raises(SystemExit, match=r"\| … \| ≥ 80 BLEU \| does not hold \|\n.*run `python tools/ledger.py`"):
        ledger.main(["--check"])
    assert (shelf / "CLAIMS.md").read_bytes() == before


def test_a_new_lesson_or_a_missing_ledger_is_not(shelf: Path) -> None:
    save(shelf / "02_scores.ipynb", lesson(93.1))
    with pytest.raises(SystemExit, match="02 · Can a decoder"):
        ledger.main(["--check"])
    (shelf / "CLAIMS.md").unlink()
    with pytest.raises(SystemExit, match=r"CLAIMS.md differs"):
        ledger.main(["--check"])
