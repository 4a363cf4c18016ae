"""The sampler as Python writes it: a table of probabilities, data for the script, the same every time.

What the script makes of it is tested in a browser (tests/browser).
"""

import pytest
import torch
from html_pages import HOSTILE, Page, needs_nothing

from tfbook import plot
from tfbook.generation import sampling
from tfbook.plot import sampling_view
from tfbook.plot.views.sampling import filtered

TOKENS = ["a", "b", "c", "d", "e"]
ROW = torch.tensor([0.25, 0.5, 0.03, 0.15, 0.07]).log()


def page(*arguments: object) -> Page:
    return Page(sampling_view(*arguments)._repr_html_())


def test_the_data_holds_logits_in_hundredths() -> None:
    shown = page({"one": ROW.double().requires_grad_(), "two": -ROW}, tuple(TOKENS))
    assert shown.data["contexts"] == ["one", "two"]
    assert shown.data["tokens"] == TOKENS
    assert shown.data["logits"][0] == [round(logit, 2) for logit in ROW.tolist()]


def test_the_table_says_what_each_filter_leaves() -> None:
    """It is what remains where scripts do not run: on GitHub, in a notebook that is not trusted."""
    rows = page({"one": ROW}, TOKENS).rows
    assert rows[0][1:] == ["as it is", "temperature 0.5", "top-k 5", "top-p 0.8"]
    assert rows[1] == ["b", "0.50", "0.74", "0.50", "0.56"]
    assert rows[4] == ["e", "0.07", "0.01", "0.07", "0"]
    assert [row[0] for row in rows[1:]] == ["b", "a", "d", "e", "c"]


@pytest.mark.parametrize(("t", "k", "p"), [(1.0, 5, 1.0), (0.5, 5, 1.0), (1.0, 2, 1.0), (1.3, 4, 0.6), (0.7, 3, 0.05)])
def test_the_filters_are_the_packages(t: float, k: int, p: float) -> None:
    expected = ROW[None]
    for keep in (sampling.temperature(t), sampling.top_k(k), sampling.top_p(p)):
        expected = keep(expected, torch.zeros(1, 1, dtype=torch.int64))
    torch.testing.assert_close(filtered(ROW, t=t, k=k, p=p), expected[0].softmax(dim=-1))


def test_where_the_sum_is_exactly_p_it_is_enough() -> None:
    equal = torch.zeros(4)
    assert filtered(equal, p=0.5).tolist() == [0.5, 0.5, 0, 0]
    assert filtered(equal, k=1).tolist() == [1, 0, 0, 0]


def test_tokens_are_text_whatever_they_hold() -> None:
    """No tag, attribute or script that a token could open, in the table and in the data; MathJax leaves them alone."""
    row = torch.arange(len(HOSTILE), 0, -1).float()
    hostile, plain = page({HOSTILE[0]: row}, HOSTILE), page({"a": row}, list("abcd"))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert [line[0] for line in hostile.rows[1:]] == hostile.data["tokens"] == HOSTILE
    assert hostile.script == plain.script
    assert "mathjax_ignore" in hostile.tags[0][1]["class"].split()


def test_the_page_needs_nothing_from_elsewhere() -> None:
    needs_nothing(page({"one": ROW}, TOKENS))


def test_it_is_the_same_every_time_and_short_as_text() -> None:
    """nbval compares both kinds of output."""
    first, second = (sampling_view({"one": ROW}, TOKENS) for _ in range(2))
    assert first._repr_html_() == second._repr_html_()
    assert repr(first) == repr(second) == "SamplingView(contexts=1, tokens=5)"
    assert sampling_view is plot.sampling_view


def test_the_largest_stays_below_90_kilobytes() -> None:
    rows = {f"context {i}": torch.linspace(-19.99, 9.99, 1000) for i in range(6)}
    assert len(sampling_view(rows, ["a-long-token"] * 1000)._repr_html_().encode()) < 90_000


@pytest.mark.parametrize(
    ("logits", "tokens", "message"),
    [
        ({}, TOKENS, "logits holds 0 contexts; expected 1 to 6"),
        (dict.fromkeys("abcdefg", ROW), TOKENS, "logits holds 7 contexts"),
        ({"one": ROW[:1]}, ["a"], "tokens holds 1; expected 2 to 1000"),
        ({"one": ROW[:4]}, TOKENS, r"logits of “one” have shape \(4,\); expected \(5,\)"),
        ({"one": ROW[None]}, TOKENS, r"have shape \(1, 5\); expected \(5,\)"),
        ({"one": ROW - torch.inf}, TOKENS, "logits of “one” hold infinities or NaN; expected finite numbers"),
    ],
    ids=["none", "too many", "one token", "too few", "batch", "filtered"],
)
def test_what_does_not_fit_is_named(logits: dict, tokens: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sampling_view(logits, tokens)
