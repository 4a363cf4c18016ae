"""The view of hand-set matrices in a page, driven by mouse and keyboard; its numbers are the package's."""

from collections.abc import Callable, Sequence

import pytest
import torch
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys

from tfbook.plot import painter_view
from tfbook.plot.views.painter import GOOD_K, GOOD_Q, SCENES, TOKENS, painter_weights

pytestmark = pytest.mark.slow

FIRST = next(iter(SCENES))
SWAPPED = [GOOD_Q[1], GOOD_Q[0], *GOOD_Q[2:]]  # asks for the other shape
ZEROS = [[0, 0]] * 4
ONE_HEAD, TWO_PARTS, TWO_HEADS = 0, 1, 2


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(painter_view())
    return mounted(browser, "painter")[0]


def choose(view: Mounted, level: int) -> None:
    view.one("select.level").send_keys(*[Keys.ARROW_DOWN] * level)


def fill(view: Mounted, matrix: int, numbers: Sequence[Sequence[int]]) -> None:
    """Types the numbers of a matrix: 0 and 1 are W_Q and W_K of head 1, 2 and 3 those of head 2."""
    inputs = view.all(".numbers")[matrix].find_elements("css selector", "input")
    for field, number in zip(inputs, (number for row in numbers for number in row), strict=True):
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(str(number))


def weights(view: Mounted, head: int) -> list[list[str]]:
    rows = view.all(".head")[head].find_elements("css selector", ".matrix tbody tr")
    return [[cell.text for cell in row.find_elements("css selector", "td")] for row in rows]


def expected(W_Q: Sequence[Sequence[int]], W_K: Sequence[Sequence[int]]) -> list[list[str]]:
    found = painter_weights(torch.tensor(W_Q), torch.tensor(W_K), FIRST)
    return [[f"{weight:.2f}" for weight in row] for row in found]


def test_zeros_are_the_average_and_paint_mud(view: Mounted) -> None:
    assert weights(view, 0) == expected(ZEROS, ZEROS) == [["0.25"] * 4] * 4
    assert view.texts(".mark") == ["given", "given", "not yet", "not yet"] * 2
    assert view.summary.startswith("You: 0 of 4 right, error 0.09")


def test_good_numbers_paint_every_gray_shape(view: Mounted) -> None:
    fill(view, 0, GOOD_Q)
    fill(view, 1, GOOD_K)
    assert weights(view, 0) == expected(GOOD_Q, GOOD_K)
    assert view.texts(".mark") == ["given", "given", "inside ✓", "inside ✓"] * 2
    assert view.summary.startswith("You: 4 of 4 right")


def test_arrow_keys_change_a_number_and_keep_the_focus(view: Mounted) -> None:
    field = view.all("input")[0]
    field.send_keys(Keys.ARROW_UP, Keys.ARROW_UP)
    assert field.get_attribute("value") == "2"
    assert view.run("return root.activeElement.getAttribute('aria-label')") == "W_Q, ●, column 1, head 1"
    view.one(".clear").click()
    assert field.get_attribute("value") == "0"


def test_one_head_paints_half_of_insides_and_rims_and_two_paint_all(view: Mounted) -> None:
    choose(view, TWO_PARTS)
    fill(view, 0, GOOD_Q)
    fill(view, 1, GOOD_K)
    assert view.summary.startswith("You: 4 of 8 right")
    assert not view.all(".head")[1].is_displayed()
    choose(view, 1)
    fill(view, 2, SWAPPED)
    fill(view, 3, GOOD_K)
    assert weights(view, 1) == expected(SWAPPED, GOOD_K)
    assert view.summary.startswith("You: 8 of 8 right")


def test_training_tries_and_can_be_beaten(view: Mounted) -> None:
    """One head cannot do both parts, whoever sets its numbers; two can."""
    assert view.one(".take").get_attribute("disabled")
    view.one(".train").click()
    assert "Training, 30 steps: 4 of 4 right" in view.summary
    assert view.summary.endswith("Its error is smaller.")
    fill(view, 0, GOOD_Q)
    fill(view, 1, [[9, 0], [0, 9], [9, 9], [9, 9]])
    assert view.summary.endswith("you beat the training.")
    choose(view, TWO_PARTS)
    view.one(".train").click()
    assert "of 8 right" in view.summary
    assert "8 of 8" not in view.summary.partition("Training")[2]
    choose(view, 1)
    view.one(".train").click()
    view.one(".take").click()
    assert view.summary.count("8 of 8 right") == 2
    assert view.summary.endswith("It is a tie.")


def test_two_views_are_independent(browser: Chrome, show: Callable[..., None]) -> None:
    show(painter_view(), painter_view())
    first, second = mounted(browser, "painter", 2)
    fill(first, 0, GOOD_Q)
    assert weights(second, 0) == [["0.25"] * 4] * 4


def test_what_is_painted_is_said(view: Mounted) -> None:
    labels = [picture.get_attribute("aria-label") for picture in view.all("svg")]
    assert labels[:4] == [
        f"{token} of scene 1: {said}" for token, said in zip(TOKENS, view.texts(".mark"), strict=False)
    ]


@pytest.mark.parametrize(("ink", "ground"), [("#222", "#fff"), ("#e6e6e6", "#111"), ("#d5d5d5", "#383838")], ids=str)
def test_text_can_be_read_in_either_theme(view: Mounted, ink: str, ground: str) -> None:
    choose(view, TWO_HEADS)
    view.one(".train").click()
    assert view.faint_texts(ink, ground) == {}
