"""The benchmark of the grader: the class that it makes up, of which the grader's own tests judge every kind."""

import ast
import runpy
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/grading.py"
CELL = "def twice(x):\n    return 2 * x\n\n\nex.twice.check(twice)"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_a_slip_changes_one_number_or_operator_and_never_the_check(script: dict[str, Any]) -> None:
    slips = {script["with_a_slip"](CELL, Random(seed)) for seed in range(20)}
    assert {ast.unparse(ast.parse(slip).body[0].body[0]) for slip in slips} == {"return 3 * x", "return 2 + x"}
    assert all(slip.endswith("ex.twice.check(twice)") for slip in slips)
    assert "pass" in script["with_a_slip"]("def f(x):\n    return x", Random(0))


def test_an_endless_answer_is_endless(script: dict[str, Any]) -> None:
    assert "while True" in script["without_end"](CELL)
    assert script["without_end"](CELL).endswith("ex.twice.check(twice)")


def test_a_class_holds_answers_of_every_kind_the_same_each_time(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    book = script["book"]
    paths = book.lessons(["02"])
    monkeypatch.setattr(book, "lessons", lambda names=(): paths)
    texts = []
    for place in (tmp_path / "one", tmp_path / "two"):
        place.mkdir()
        kinds = script["write_class"](place, 30)
        texts.append([path.read_text(encoding="utf-8") for path in sorted(place.rglob("*.ipynb"))])
    assert texts[0] == texts[1]
    assert len(texts[0]) == 30
    assert kinds.keys() == script["KINDS"].keys()
    share = Counter(kinds)["right"] / sum(kinds.values())
    assert 0.5 < share < 0.7
