"""Guess the price as Python writes it: closed answers, and data for the script, which is tested in a browser."""

import pytest
from html_pages import Page, needs_nothing

from tfbook.plot import price_view
from tfbook.plot.views.pricing import PriceQuestion

QUESTIONS = [
    PriceQuestion("How long is a step?", 4.1567, "ms", "14 GB take 4.2 ms"),
    PriceQuestion("And <b>?", 0.62, "dollars", "64 tokens"),
]


def page() -> Page:
    return Page(price_view(QUESTIONS)._repr_html_())


def test_the_data_holds_the_questions() -> None:
    assert page().data == {
        "questions": [
            {"question": "How long is a step?", "answer": 4.1567, "unit": "ms", "why": "14 GB take 4.2 ms"},
            {"question": "And <b>?", "answer": 0.62, "unit": "dollars", "why": "64 tokens"},
        ]
    }


def test_without_scripts_the_answers_are_in_a_closed_table() -> None:
    assert page().rows == [
        ["", "answer", "arithmetic"],
        ["How long is a step?", "4.16 ms", "14 GB take 4.2 ms"],
        ["And <b>?", "0.62 dollars", "64 tokens"],
    ]
    html = price_view(QUESTIONS)._repr_html_()
    assert html.index("<details>") < html.index("<table>") < html.index("</details>")
    assert "open" not in html[html.index("<details") : html.index("<summary")]


def test_it_needs_nothing_from_elsewhere() -> None:
    needs_nothing(page())


def test_it_is_named_in_a_terminal() -> None:
    assert repr(price_view(QUESTIONS)) == "PriceView(questions=2)"


def test_questions_and_positive_answers_are_needed() -> None:
    with pytest.raises(ValueError, match="questions is empty"):
        price_view([])
    with pytest.raises(ValueError, match=r"the answer to 'free' is 0.0; expected a positive"):
        price_view([PriceQuestion("free", 0.0, "ms", "")])
