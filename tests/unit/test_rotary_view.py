"""The view of rotary positions as Python writes it: a table of all scores, data for the script, the same every time.

What the script makes of it is tested in a browser (tests/browser).
"""

import pytest
import torch
from html_pages import HOSTILE, Page, needs_nothing

from tfbook import plot
from tfbook.attention import Rotary
from tfbook.plot import rotary_view
from tfbook.plot.views.rotary import rotary_scores

TOKENS = ["old", "dog", "bites", "man"]
QUERY, KEY = torch.tensor([[0.0, 1.0], [0.8, 0.6]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
SPEEDS = [1.0, 0.01]  # of rotary positions of width 4


def page(*arguments: object) -> Page:
    return Page(rotary_view(*arguments)._repr_html_())


def test_the_data_holds_vectors_and_speeds() -> None:
    shown = page(tuple(TOKENS), QUERY.double().requires_grad_(), KEY, torch.tensor([1.0, 1 / 3]))
    assert shown.data["tokens"] == TOKENS
    assert shown.data["query"] == [[0, 1], [0.8, 0.6]]
    assert shown.data["speeds"] == [1, 0.3333]


def test_the_scores_are_those_of_the_package() -> None:
    """Its pairs are halves: all first coordinates, then all second ones."""
    size = 6
    q, k = (vector.T.flatten().expand(1, 1, size, -1) for vector in (QUERY, KEY))
    rotary = Rotary(4)
    expected = (rotary.rotate(q) @ rotary.rotate(k).mT)[0, 0]
    found = rotary_scores(QUERY, KEY, torch.tensor(SPEEDS), size)
    torch.testing.assert_close(found.float(), expected, atol=1e-5, rtol=0)


def test_the_table_says_every_score_and_diagonals_are_equal() -> None:
    """It is what remains where scripts do not run: on GitHub, in a notebook that is not trusted."""
    rows = page(TOKENS, QUERY, KEY, SPEEDS).rows
    assert rows[0] == ["", *TOKENS]
    scores = rotary_scores(QUERY, KEY, torch.tensor(SPEEDS), 4).tolist()
    said = [[f"{score:z.2f}".replace("-", "−") for score in row] for row in scores]
    assert [row[1:] for row in rows[1:]] == said
    assert [rows[1 + i][1 + i] for i in range(4)] == [said[0][0]] * 4


def test_tokens_are_text_whatever_they_hold() -> None:
    """No tag, attribute or script that a token could open, in the table and in the data; MathJax leaves them alone."""
    hostile, plain = page(HOSTILE, QUERY, KEY, SPEEDS), page(list("abcd"), QUERY, KEY, SPEEDS)
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.rows[0][1:] == hostile.data["tokens"] == HOSTILE
    assert hostile.script == plain.script
    assert "mathjax_ignore" in hostile.tags[0][1]["class"].split()


def test_the_page_needs_nothing_from_elsewhere() -> None:
    needs_nothing(page(TOKENS, QUERY, KEY, SPEEDS))


def test_it_is_the_same_every_time_and_short_as_text() -> None:
    """nbval compares both kinds of output."""
    first, second = (rotary_view(TOKENS, QUERY, KEY, SPEEDS) for _ in range(2))
    assert first._repr_html_() == second._repr_html_()
    assert repr(first) == repr(second) == "RotaryView(tokens=4, pairs=2)"
    assert rotary_view is plot.rotary_view


def test_the_largest_stays_below_40_kilobytes() -> None:
    vectors = torch.linspace(-1.2345, 1.2345, 6).view(3, 2)
    view = rotary_view(["a-long-token"] * 12, vectors, vectors, [1, 0.1, 0.01])
    assert len(view._repr_html_().encode()) < 40_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["dog"], QUERY, KEY, SPEEDS), "tokens holds 1; expected 2 to 12, which fit on a page"),
        ((["dog"] * 13, QUERY, KEY, SPEEDS), "tokens holds 13; expected 2 to 12"),
        ((TOKENS, QUERY, KEY, []), r"speeds has shape \(0,\); expected 1 to 3 numbers, one for each pair"),
        ((TOKENS, QUERY, KEY, torch.ones(1, 2)), r"speeds has shape \(1, 2\)"),
        ((TOKENS, QUERY.T[:1], KEY, SPEEDS), r"query has shape \(1, 2\); expected \(2, 2\): pair × coordinates"),
        ((TOKENS, QUERY, KEY[0], SPEEDS), r"key has shape \(2,\); expected \(2, 2\)"),
        ((TOKENS, QUERY * torch.nan, KEY, SPEEDS), "query, key or speeds holds infinities or NaN"),
    ],
    ids=["one token", "too many tokens", "no pairs", "speeds of a matrix", "one pair short", "flat key", "NaN"],
)
def test_what_does_not_fit_is_named(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rotary_view(*arguments)
