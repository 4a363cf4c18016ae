"""The view of a broken model in a browser: switches by mouse and keyboard, changed words, names for screen readers."""

from collections.abc import Callable

import pytest
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys

from tfbook.plot import break_view

pytestmark = pytest.mark.slow

VERSIONS = {
    "whole": lambda text: "le chat noir dort .",
    "no residuals": lambda text: "le le le .",
    "no norms": lambda text: "le chat <b>dort</b> .",
}
SCORES = {"whole": 80.0, "no residuals": 0.1, "no norms": 40.0}


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(break_view("the black cat sleeps .", VERSIONS, SCORES, unit="BLEU"))
    return mounted(browser, "breaking")[0]


def shows(view: Mounted, name: str, marked: list[str]) -> None:
    assert view.one(".output").text == VERSIONS[name]("")
    assert view.texts(".output mark") == marked
    assert view.one("label.chosen .name").text == name
    assert (
        view.run("return root.querySelector('input:checked').closest('label').querySelector('.name').textContent")
        == name
    )


def test_it_begins_with_the_whole_model(view: Mounted) -> None:
    shows(view, "whole", [])
    assert view.texts(".score") == ["80", "0.1", "40"]
    widths = view.run(
        "return [...root.querySelectorAll('.line')].map((e) => e.offsetWidth / e.parentElement.offsetWidth)"
    )
    assert widths == pytest.approx([0.8, 0.0, 0.4], abs=0.01)


def test_a_click_takes_a_part_out_and_marks_what_changed(view: Mounted) -> None:
    view.all("label")[1].click()
    shows(view, "no residuals", ["le", "le"])
    view.all("label")[2].click()
    shows(view, "no norms", ["<b>dort</b>"])
    view.all("label")[0].click()
    shows(view, "whole", [])


def test_arrows_move_between_the_switches(view: Mounted) -> None:
    view.all("input")[0].send_keys(Keys.ARROW_DOWN)
    shows(view, "no residuals", ["le", "le"])
    view.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    shows(view, "whole", [])


def test_a_screen_reader_is_told_the_group_and_the_change(view: Mounted) -> None:
    assert view.one("legend").text == "Take out one part (bars: BLEU)"
    assert view.all("input")[1].accessible_name.split() == ["no", "residuals", "0.1"]
    assert view.one(".output").get_attribute("aria-live") == "polite"


def test_two_views_are_independent(browser: Chrome, show: Callable[..., None]) -> None:
    show(*[break_view("a", VERSIONS, SCORES, unit="BLEU")] * 2)
    first, second = mounted(browser, "breaking", 2)
    first.all("label")[1].click()
    shows(second, "whole", [])


@pytest.mark.parametrize(("ink", "ground"), [("#222", "#fff"), ("#e6e6e6", "#111"), ("#d5d5d5", "#383838")], ids=str)
def test_text_can_be_read_in_either_theme(view: Mounted, ink: str, ground: str) -> None:
    view.all("label")[1].click()
    assert view.faint_texts(ink, ground) == {}
