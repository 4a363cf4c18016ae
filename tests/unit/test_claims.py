"""A claim prints its verdict and never raises for a number that fails; only a malformed claim is an error."""

import json
import math

import pytest

from tfbook.course.claims import MIME, Bound, Claim, Claims


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


def test_the_notebook_gets_text_html_and_a_record_for_the_ledger() -> None:
    bundle = _claim(0.1, "<=", 0.15)._repr_mimebundle_()
    assert bundle["text/plain"] == repr(_claim(0.1, "<=", 0.15))
    assert "Claim 2 " in bundle["text/html"]
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
    record = json.loads(json.dumps(_claim(measured)._repr_mimebundle_()[MIME][0], allow_nan=False))
    assert record["measured"] is None
    assert record["verdict"] == "does not hold"


def test_text_is_escaped_in_html() -> None:
    """A statement may hold signs that are markup in HTML, and so may a unit."""
    page = _claim(statement="loss < 1 & <script>", unit="<b>")._repr_html_()
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


LESSON = Claims(
    "transformer",
    {
        1: Bound("Attention is better", ">=", 5, "Vaswani et al. (2017)", " BLEU"),
        2: Bound("It costs little", "<=", 2, "measured here"),
    },
)


def test_claims_measured_together_are_one_table_with_a_record_each() -> None:
    verdicts = LESSON.check({1: 7.25, 2: 3})
    assert repr(verdicts).splitlines() == [
        "Claim 1 holds: Attention is better",
        "  measured 7.25 BLEU · required ≥ 5 BLEU · Vaswani et al. (2017)",
        "Claim 2 does not hold: It costs little",
        "  measured 3 · required ≤ 2 · measured here",
    ]
    bundle = verdicts._repr_mimebundle_()
    assert bundle["text/html"].count("<tr>") == 2
    assert [record["key"] for record in bundle[MIME]] == ["transformer.1", "transformer.2"]


def test_a_claim_that_the_lesson_does_not_make_is_an_error() -> None:
    with pytest.raises(ValueError, match="transformer has no claim 3; expected some of 1, 2"):
        LESSON.check({3: 1.0})
