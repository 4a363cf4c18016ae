"""The view of a broken model: what it asks of Python, its static table, and what it refuses."""

import math
import re

import pytest

from tfbook.plot import break_view

VERSIONS = {"whole": str.upper, "no <b>": lambda text: "", "no words": lambda text: "? & ?"}
SCORES = {"whole": 87.6, "no <b>": 0.1, "no words": -3.0}


def test_every_version_is_called_once_with_the_text() -> None:
    calls: list[tuple[str, str]] = []
    spies = {name: (lambda text, name=name: calls.append((name, text)) or name) for name in VERSIONS}
    break_view("a cat", spies, SCORES, unit="BLEU")
    assert calls == [(name, "a cat") for name in VERSIONS]


def test_the_table_holds_each_score_and_output() -> None:
    page = break_view("a cat", VERSIONS, SCORES, unit="BLEU")._repr_html_()
    rows = re.findall(r"<tr><th>(.*?)</th><td(.*?)>(.*?)</td><td>(.*?)</td></tr>", page)
    assert [(name, score, output) for name, _, score, output in rows] == [
        ("whole", "88", "A CAT"),
        ("no &lt;b&gt;", "0.1", "(nothing)"),
        ("no words", "-3.0", "? &amp; ?"),
    ]
    assert [bool(style) for _, style, _, _ in rows] == [True, False, False], "a bar's share colors the cell"


def test_a_bar_is_a_share_of_the_top_between_0_and_1() -> None:
    view = break_view("a", VERSIONS, SCORES | {"whole": 5.0}, unit="x", top=2.0)
    assert [view._share(name) for name in VERSIONS] == [1.0, 0.05, 0.0]
    assert repr(view) == "BreakView(versions=3)"


@pytest.mark.parametrize(
    ("versions", "scores", "top", "message"),
    [
        ({"whole": str.upper}, {"whole": 1.0}, 1.0, "versions holds 1; expected 2 to 12"),
        ({str(i): str.upper for i in range(13)}, {}, 1.0, "versions holds 13; expected 2 to 12"),
        (VERSIONS, {"whole": 1.0}, 1.0, "scores are of whole; expected one for each of whole, no <b>, no words"),
        (VERSIONS, SCORES | {"whole": math.nan}, 1.0, "the score of “whole” is nan; expected a finite number"),
        (VERSIONS, SCORES, 0.0, "top is 0.0; expected more than 0"),
        (VERSIONS | {"whole": lambda text: "a" * 5000}, SCORES, 1.0, "the output of “whole” holds 5000 letters"),
    ],
    ids=["one", "many", "missing", "nan", "top", "long"],
)
def test_what_does_not_fit_is_refused(versions, scores, top, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=re.escape(message)):
        break_view("a", versions, scores, unit="BLEU", top=top)
