"""The mask builder as Python writes it: three tables under the causal mask, data for the script, the same every time.

What the script makes of it is tested in a browser (tests/browser).
"""

import pytest
import torch
from html_pages import HOSTILE, Page, needs_nothing

from tfbook import plot
from tfbook.attention.implementations import masked_softmax
from tfbook.plot import mask_view

TOKENS = ["the", "cat", "ate"]
SCORES = torch.tensor([[0.41234, -2.3, 100.0], [-0.04, 1.5, 0.7], [-2.9, 3.6, 1.2]])
CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()


def page(*arguments: object) -> Page:
    return Page(mask_view(*arguments)._repr_html_())


def test_the_data_holds_scores_in_thousandths() -> None:
    shown = page(SCORES.double().requires_grad_(), tuple(TOKENS))
    assert shown.data["tokens"] == TOKENS
    assert shown.data["scores"] == [[0.412, -2.3, 100.0], [-0.04, 1.5, 0.7], [-2.9, 3.6, 1.2]]


def test_the_tables_say_scores_masked_scores_and_weights() -> None:
    """They are what remains where scripts do not run: on GitHub, in a notebook that is not trusted."""
    rows = page(SCORES, TOKENS).rows
    scores, masked, weights = (rows[start : start + 4] for start in (0, 4, 8))
    assert scores == [
        ["", *TOKENS],
        ["the", "0.4", "−2.3", "100.0"],
        ["cat", "0.0", "1.5", "0.7"],
        ["ate", "−2.9", "3.6", "1.2"],
    ]
    assert [row[1:] for row in masked[1:]] == [["0.4", "−∞", "−∞"], ["0.0", "1.5", "−∞"], ["−2.9", "3.6", "1.2"]]
    expected = masked_softmax(SCORES, CAUSAL).tolist()
    said = [
        [f"{weight:.2f}" if key <= query else "0" for key, weight in enumerate(row)]
        for query, row in enumerate(expected)
    ]
    assert [row[1:] for row in weights[1:]] == said


def test_equal_scores_have_equal_weights() -> None:
    rows = page(torch.zeros(2, 2), ["a", "b"]).rows
    assert rows[-1] == ["b", "0.50", "0.50"]


def test_tokens_are_text_whatever_they_hold() -> None:
    """No tag, attribute or script that a token could open, in the tables and in the data; MathJax leaves them alone."""
    hostile, plain = page(torch.eye(4), HOSTILE), page(torch.eye(4), list("abcd"))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.rows[0][1:] == hostile.data["tokens"] == HOSTILE
    assert hostile.script == plain.script
    assert "mathjax_ignore" in hostile.tags[0][1]["class"].split()


def test_the_page_needs_nothing_from_elsewhere() -> None:
    needs_nothing(page(SCORES, TOKENS))


def test_it_is_the_same_every_time_and_short_as_text() -> None:
    """nbval compares both kinds of output."""
    first, second = (mask_view(SCORES, TOKENS) for _ in range(2))
    assert first._repr_html_() == second._repr_html_()
    assert repr(first) == repr(second) == "MaskView(tokens=3)"
    assert mask_view is plot.mask_view


def test_the_largest_stays_below_40_kilobytes() -> None:
    scores = torch.linspace(-12.345, 12.345, 36).view(6, 6)
    assert len(mask_view(scores, ["a-long-token"] * 6)._repr_html_().encode()) < 40_000


@pytest.mark.parametrize(
    ("scores", "tokens", "message"),
    [
        (SCORES, [], "tokens holds 0; expected 1 to 6, which fit on a page"),
        (torch.eye(7), list("abcdefg"), "tokens holds 7; expected 1 to 6"),
        (SCORES[:2], TOKENS, r"scores has shape \(2, 3\); expected \(3, 3\): query × key"),
        (SCORES[None], TOKENS, r"scores has shape \(1, 3, 3\); expected \(3, 3\)"),
        (SCORES.masked_fill(~CAUSAL, -torch.inf), TOKENS, "scores holds infinities or NaN; expected finite numbers"),
        (SCORES * torch.nan, TOKENS, "scores holds infinities or NaN"),
    ],
    ids=["no tokens", "too many tokens", "rectangle", "batch", "masked", "not a number"],
)
def test_what_does_not_fit_is_named(scores: torch.Tensor, tokens: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mask_view(scores, tokens)
