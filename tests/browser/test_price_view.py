"""Guess the price in a page, played by keyboard and by mouse."""

from collections.abc import Callable

import pytest
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys

from tfbook.plot import price_view
from tfbook.plot.views.pricing import PriceQuestion

pytestmark = pytest.mark.slow

QUESTIONS = [
    PriceQuestion("How long is a step?", 4.0, "ms", "14 GB take 4 ms"),
    PriceQuestion("What does a million cost?", 0.5, "dollars", "64 tokens per step"),
]


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(price_view(QUESTIONS))
    return mounted(browser, "pricing")[0]


def test_no_answer_is_seen_before_the_guess(view: Mounted) -> None:
    assert view.one(".question").text == "1 of 2. How long is a step?"
    assert view.one(".unit").text == "ms"
    assert not view.one(".scores").is_displayed()
    assert "14 GB" not in str(view.run("return root.textContent"))


def test_a_guess_shows_the_arithmetic_and_the_next_question(view: Mounted) -> None:
    view.one("input").send_keys("40", Keys.ENTER)
    assert view.summary == "4 ms: 14 GB take 4 ms. You were off by a factor of 10."
    assert view.one(".question").text == "2 of 2. What does a million cost?"
    view.one("input").send_keys("0.05")
    view.one(".take").click()
    assert view.summary.endswith("Over all questions you were off by a factor of 10.")
    assert view.texts(".number") == ["40 ms", "4 ms", "10", "0.05 dollars", "0.5 dollars", "10"]
    assert not view.one("input").is_enabled()
    view.one(".again").click()
    assert view.one(".question").text == "1 of 2. How long is a step?"


def test_what_is_no_positive_number_is_no_guess(view: Mounted) -> None:
    for wrong in ("0", "-3", ""):
        view.one("input").send_keys(wrong)
        view.one(".take").click()
        assert view.one(".question").text == "1 of 2. How long is a step?"
