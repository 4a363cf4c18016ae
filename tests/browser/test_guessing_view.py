"""Shannon's game in a page, played by keyboard; its numbers are the package's."""

from collections.abc import Callable
from statistics import fmean

import pytest
from mounted import Mounted, mounted
from selenium.webdriver import Chrome

from tfbook.plot import guessing_view
from tfbook.plot.views.guessing import surprises_of_guesses

pytestmark = pytest.mark.slow

TEXT, GIVEN, GUESSES = "she sells sea shells", 4, "she s sea shells"
REST = TEXT[GIVEN:]
RIVAL = [0.25 * place for place in range(len(REST))]


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(guessing_view(TEXT, GIVEN, {"a rival": RIVAL}, GUESSES))
    return mounted(browser, "guessing")[0]


def shows(view: Mounted, typed: str) -> None:
    """Asserts that the text and all scores are those after these guesses."""
    shown = view.run("return root.querySelector('.prose').textContent")
    assert str(shown).replace("␣", " ").removesuffix("?") == TEXT[: GIVEN + len(typed)]
    wrong = sum(guess != letter for guess, letter in zip(typed, REST, strict=False))
    assert len(view.all(".prose i")) == wrong
    assert len(view.all(".prose b")) == len(typed) - wrong
    mine = fmean(surprises_of_guesses(typed, REST[: len(typed)]))
    assert view.texts(".number") == [f"{mine:.2f}", f"{fmean(RIVAL[: len(typed)]):.2f}"]
    assert f"{len(typed) - wrong} of {len(typed)} guesses right" in view.summary


def test_it_begins_without_a_score(view: Mounted) -> None:
    assert view.texts(".number") == ["–", "–"]
    assert view.one(".prose").text == "she ?"
    assert view.summary == "Your score starts with your first guess."


def test_letters_that_are_typed_are_guesses_capitals_and_spaces_too(view: Mounted) -> None:
    view.one("input").send_keys("Se", "x", "l")
    shows(view, "sexl")
    assert view.summary.startswith("Right, “l”.")
    view.one("input").send_keys(" ")
    shows(view, "sexl ")
    assert view.summary.startswith("It was “s”, not “␣”.")


def test_what_is_no_letter_is_no_guess(view: Mounted) -> None:
    view.one("input").send_keys("7", "s", "é", "!")
    shows(view, "s")


def test_the_table_plays_to_the_end_and_the_game_starts_again(view: Mounted) -> None:
    view.one("input").send_keys("x")
    view.one(".play").click()
    shows(view, "x" + GUESSES[1:])
    assert not view.one("input").is_enabled()
    assert not view.all(".caret")
    view.one(".again").click()
    assert view.texts(".number") == ["–", "–"]
    view.press("s")
    shows(view, "s")


@pytest.mark.parametrize(("ink", "ground"), [("#000", "#fff"), ("#fff", "#111")], ids=["light", "dark"])
def test_every_text_can_be_read_on_a_light_and_a_dark_page(view: Mounted, ink: str, ground: str) -> None:
    view.one("input").send_keys("sx")
    assert view.faint_texts(ink, ground) == {}
