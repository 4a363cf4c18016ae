"""A claim has a verdict and never raises for a number that fails; only a malformed claim is an error."""

import json
import math
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tfbook.course.claims import MIME, Bound, Claim, Claims, Table


@pytest.fixture(autouse=True)
def scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFBOOK_SCALE", "cpu")


def _claim(measured: float = 92.0, relation: str = ">=", threshold: float = 90, **rest: str) -> Claim:
    """As a lesson's `CLAIMS.check` makes it."""
    statement, source = rest.pop("statement", "Attention cures the bottleneck"), "Bahdanau et al., 2015"
    bound = Bound(statement, relation, threshold, source, **rest)
    return Claims("transformer", {2: bound}).check({2: measured}).claims[0]


@pytest.mark.parametrize(
    ("measured", "relation", "threshold", "verdict"),
    [
        (92.0, ">=", 90, "holds"),
        (90.0, ">=", 90, "holds"),
        (89.9, ">=", 90, "does not hold"),
        (0.1, "<=", 0.15, "holds"),
        (0.15, "<=", 0.15, "holds"),
        (0.2, "<=", 0.15, "does not hold"),
        (math.nan, ">=", 0, "does not hold"),
        (math.nan, "<=", 0, "does not hold"),
        (math.inf, ">=", 0, "does not hold"),
        (-math.inf, "<=", 0, "does not hold"),
    ],
)
@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_a_claim_holds_when_the_number_says_so(
    monkeypatch: pytest.MonkeyPatch, scale: str, measured: float, relation: str, threshold: float, verdict: str
) -> None:
    """The bound itself included; what is not a finite number supports nothing."""
    monkeypatch.setenv("TFBOOK_SCALE", scale)
    assert _claim(measured, relation, threshold).verdict == verdict


@pytest.mark.parametrize("measured", [0.0, 92.0, math.nan])
def test_at_scale_quick_nothing_is_enforced(monkeypatch: pytest.MonkeyPatch, measured: float) -> None:
    monkeypatch.setenv("TFBOOK_SCALE", "quick")
    assert _claim(measured).verdict == "not enforced"


def test_the_text_has_the_verdict_in_one_line_and_the_number_in_the_other() -> None:
    """So that nbval can compare the first and a reader still sees the second."""
    first, second = repr(_claim(92.345, unit=" BLEU")).splitlines()
    assert first == "Claim 2 holds: Attention cures the bottleneck"
    assert second.strip() == "measured 92.3 BLEU · required ≥ 90 BLEU · Bahdanau et al., 2015"


def _shown(*claim: Any, **rest: str) -> Table:
    """A table of one claim."""
    return Table((_claim(*claim, **rest),))


def test_the_notebook_gets_text_html_and_a_record_for_the_ledger() -> None:
    bundle = _shown(0.1, "<=", 0.15)._repr_mimebundle_()
    assert bundle["text/plain"] == f"1 claim of this section: 1 holds\n{_claim(0.1, '<=', 0.15)!r}"
    assert "2. Attention cures the bottleneck" in bundle["text/html"]
    assert bundle[MIME] == [
        {
            "key": "transformer.2",
            "lesson": "transformer",
            "statement": "Attention cures the bottleneck",
            "source": "Bahdanau et al., 2015",
            "measured": 0.1,
            "relation": "<=",
            "threshold": 0.15,
            "unit": "",
            "verdict": "holds",
        }
    ]


@pytest.mark.parametrize("measured", [math.nan, math.inf])
def test_the_record_is_json_whatever_was_measured(measured: float) -> None:
    """Jupyter sends no NaN."""
    record = json.loads(json.dumps(_shown(measured)._repr_mimebundle_()[MIME][0], allow_nan=False))
    assert record["measured"] is None
    assert record["verdict"] == "does not hold"


def test_text_is_escaped_in_html() -> None:
    """A statement may hold signs that are markup in HTML, and so may a unit."""
    page = _shown(statement="loss < 1 & <script>", unit="<b>")._repr_html_()
    assert "loss &lt; 1 &amp; &lt;script&gt;" in page
    assert "<script>" not in page
    assert "92&lt;b&gt;" in page


@pytest.mark.parametrize(
    "key", ["01.2", "transformer", "transformer.", "transformer.x", "transformer.2 ", "Bert.1", ""]
)
def test_a_key_is_slug_and_number(key: str) -> None:
    with pytest.raises(ValueError, match=f"key is {key!r}; expected slug and number such as 'transformer.12'"):
        Claim(key=key, statement="s", source="p", measured=1.0, relation=">=", threshold=0)


def test_a_relation_is_one_of_two() -> None:
    with pytest.raises(ValueError, match=r"relation is '>'; expected one of >=, <="):
        _claim(relation=">")


@pytest.fixture
def lesson() -> Claims:
    return Claims(
        "transformer",
        {
            1: Bound("Attention is better", ">=", 5, "Vaswani et al. (2017)", " BLEU"),
            2: Bound("It costs little", "<=", 2, "measured here"),
            3: Bound("It learns", ">=", 0, "measured here"),
        },
    )


def test_a_cell_that_measures_shows_nothing(lesson: Claims, capsys: pytest.CaptureFixture[str]) -> None:
    """IPython lets such an object show itself."""
    verdicts = lesson.check({1: 7.25, 2: 3})
    assert [claim.verdict for claim in verdicts.claims] == ["holds", "does not hold"]
    shell = InteractiveShell()
    assert shell.display_formatter.format(verdicts) == ({}, {})
    assert capsys.readouterr().out == ""


def test_a_table_shows_what_was_measured_since_the_last(lesson: Claims) -> None:
    """By number, in which a reader meets them, with a record each."""
    lesson.check({2: 3})
    lesson.check({1: 7.25})
    first = lesson.table()
    lesson.check({3: 1})
    assert repr(first).splitlines() == [
        "2 claims of this section: 1 holds, 1 fails",
        "Claim 1 holds: Attention is better",
        "  measured 7.25 BLEU · required ≥ 5 BLEU · Vaswani et al. (2017)",
        "Claim 2 does not hold: It costs little",
        "  measured 3 · required ≤ 2 · measured here",
    ]
    bundle = first._repr_mimebundle_()
    assert [record["key"] for record in bundle[MIME]] == ["transformer.1", "transformer.2"]
    page = bundle["text/html"]
    assert page.startswith(
        '<details class="tfbook-claims"><summary style="cursor: pointer">2 claims of this section: 1 holds, 1 fails</s'
    )
    assert page.count('<th scope="row"') == 2
    assert [claim.number for claim in lesson.table().claims] == [3]


def test_cells_that_run_again_double_no_claim(lesson: Claims) -> None:
    """The number of the last run is shown; a table without a new number comes again."""
    for measured in (1.0, 8.0):
        lesson.check({1: measured})
        lesson.check({2: 1})
        shown = lesson.table()
        assert [(claim.number, claim.measured) for claim in shown.claims] == [(1, measured), (2, 1)]
    assert lesson.table() == shown
    lesson.check({3: 1})
    assert [claim.number for claim in lesson.table().claims] == [3]
    lesson.check({1: 9})  # one of two cells of an earlier section
    assert [(claim.number, claim.measured) for claim in lesson.table().claims] == [(1, 9), (2, 1)]


def test_a_table_of_nothing_says_so(lesson: Claims) -> None:
    assert repr(lesson.table()) == "No claim of this section has been measured yet: run its cells first"
    lesson.check({3: 1})
    assert [claim.number for claim in lesson.table().claims] == [3]


@pytest.mark.parametrize(
    ("verdicts", "summary"),
    [
        ({1: 9.0}, "1 claim of this section: 1 holds"),
        ({1: 9.0, 2: 1, 3: 1}, "3 claims of this section: 3 hold"),
        ({1: 1.0, 2: 3, 3: -1}, "3 claims of this section: 3 fail"),
        ({1: 9.0, 2: 1, 3: -1}, "3 claims of this section: 2 hold, 1 fails"),
    ],
)
def test_the_closed_table_tells_how_many_hold(lesson: Claims, verdicts: dict[int, float], summary: str) -> None:
    lesson.check(verdicts)
    assert lesson.table().summary == summary


def test_at_scale_quick_the_table_says_that_nothing_is_enforced(
    lesson: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFBOOK_SCALE", "quick")
    lesson.check({1: 9.0, 2: 9.0})
    assert lesson.table().summary == "2 claims of this section: 2 not enforced"


def test_a_claim_that_the_lesson_does_not_make_is_an_error(lesson: Claims) -> None:
    with pytest.raises(ValueError, match="transformer has no claim 4; expected some of 1, 2, 3"):
        lesson.check({4: 1.0})
