"""The mask builder in a page, driven by mouse and keyboard; its numbers are the package's."""

from collections.abc import Callable

import pytest
import torch
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys
from torch import Tensor

from tfbook.attention import Causal, Lengths
from tfbook.attention.implementations import masked_softmax
from tfbook.plot import mask_view

pytestmark = pytest.mark.slow

TOKENS = ["the", "cat", "<b>it</b>", "slept"]
SCORES = torch.tensor([[0.4, -2.3, 3.1, 0], [-1.9, 0.6, -1.4, -0.3], [-2.9, 30, 1.2, -3.8], [1.3, -2.9, 0.25, 1]])
CAUSAL = Causal().dense(4, 4)


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(mask_view(SCORES, TOKENS))
    return mounted(browser, "masks")[0]


def matrix(view: Mounted, panel: int) -> list[list[str]]:
    """The cells of one of the three matrices: scores, masked scores, weights."""
    rows = view.all(".panel")[panel].find_elements("css selector", "tbody tr")
    return [[cell.text for cell in row.find_elements("css selector", "td")] for row in rows]


def shows(view: Mounted, mask: Tensor) -> None:
    """Asserts that everything in the view is what the package computes under this mask."""
    mask = mask.expand(4, 4)
    weights = masked_softmax(SCORES, mask)
    scores = [[f"{score:.1f}".replace("-", "−") for score in row] for row in SCORES.double().tolist()]
    assert matrix(view, 0)[:3] == scores[:3]  # 0.25 is a tie: Python rounds it down, JavaScript up
    masked = [[s if may else "−∞" for s, may in zip(*row, strict=True)] for row in zip(scores, mask, strict=True)]
    assert matrix(view, 1)[:3] == masked[:3]
    sums = ["1.00" if may.any() else "0" for may in mask]
    expected = [
        [*(f"{w:.2f}" if may else "0" for w, may in zip(*row, strict=True)), total]
        for *row, total in zip(weights.tolist(), mask, sums, strict=True)
    ]
    assert matrix(view, 2) == expected
    assert view.run("return root.querySelector('pre').textContent") == repr(mask)
    blocked = view.run("return [...root.querySelectorAll('.panel')].map((p) => p.querySelectorAll('.blocked').length)")
    assert blocked == [0, int((~mask).sum()), int((~mask).sum())]


def click(view: Mounted, query: int, key: int) -> None:
    view.all(".panel button")[4 * query + key].click()


def test_it_begins_with_the_causal_mask(view: Mounted) -> None:
    shows(view, CAUSAL)
    assert view.texts(".panel:first-child thead span") == TOKENS
    assert view.texts(".panel:first-child tbody th") == TOKENS
    assert view.summary == "“<b>it</b>” may attend to 3 of 4: “the”, “cat”, “<b>it</b>”. Its weights sum to 1."
    assert not view.one(".note").is_displayed()


def test_without_any_mask_it_is_the_softmax(view: Mounted) -> None:
    view.one(".causal").click()
    shows(view, torch.ones(4, 4, dtype=torch.bool))
    assert "may attend to 4 of 4" in view.summary


def test_the_slider_makes_padding(view: Mounted) -> None:
    """By keyboard, as the browser does it; the last tokens become padding, as keys and as queries."""
    view.one(".causal").click()
    view.one(".length").send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    shows(view, Lengths(torch.tensor([2])).dense(4, 4)[0, 0])
    assert view.one(".words").text == "2 of 4, the rest is padding"
    assert view.texts(".panel:first-child thead span") == ["the", "cat", "<pad>", "<pad>"]
    view.one(".causal").click()
    shows(view, CAUSAL & Lengths(torch.tensor([2])).dense(4, 4)[0, 0])


def test_a_click_blocks_a_score_and_gives_it_back(view: Mounted) -> None:
    mask = CAUSAL.clone()
    for _ in range(2):
        mask[3, 1] = ~mask[3, 1]
        click(view, 3, 1)
        shows(view, mask)
        assert len(view.all("td.clicked")) == int(not mask[3, 1])
    assert view.summary.startswith("“slept” may attend to 4 of 4")


def test_a_rule_cannot_be_clicked_away(view: Mounted) -> None:
    """What causal mask and padding block stays blocked; the cell says why."""
    click(view, 1, 2)
    shows(view, CAUSAL)
    cell = view.all(".panel button")[6]
    assert (cell.get_attribute("aria-disabled"), cell.get_attribute("aria-pressed")) == ("true", "true")
    assert cell.get_attribute("title") == "cat → <b>it</b>, blocked by the causal mask"
    view.one(".causal").click()
    shows(view, torch.ones(4, 4, dtype=torch.bool))


def test_a_row_that_sees_nothing_is_zeros_and_says_so(view: Mounted) -> None:
    """Until something is visible again; with length 0 every row is such a row."""
    mask = CAUSAL.clone()
    mask[0, 0] = False
    click(view, 0, 0)
    shows(view, mask)
    note = "No key is visible to “the”: every score is −∞, and a softmax would divide 0 by 0 (NaN), "
    assert view.one(".note").text == note + "so the weights are set to zeros."
    assert view.summary == "“the” may attend to nothing."
    assert view.texts(".sum.empty") == ["0"]
    click(view, 0, 0)
    assert not view.one(".note").is_displayed()
    view.one(".length").send_keys(Keys.HOME)
    shows(view, torch.zeros(4, 4, dtype=torch.bool))
    assert view.one(".note").text.startswith("No key is visible to “<pad>”, “<pad>”, “<pad>”, “<pad>”:")


def test_arrow_keys_move_and_space_blocks(view: Mounted) -> None:
    """One cell is in the order of tabs, and the row of the cell with the focus is outlined in all three matrices."""
    view.one(".length").send_keys(Keys.TAB)
    view.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.SPACE)
    mask = CAUSAL.clone()
    mask[3, 1] = False
    shows(view, mask)
    assert view.run("return root.activeElement.getAttribute('aria-label')") == "slept → cat, blocked by you, −∞"
    view.press(Keys.HOME, Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.ENTER)
    mask[2, 0] = False
    shows(view, mask)
    assert len(view.all(".panel button[tabindex='0']")) == 1
    assert len(view.all("tr.chosen")) == 3
    view.press(Keys.END)
    assert view.run("return root.activeElement.title") == "<b>it</b> → slept, blocked by the causal mask"


def test_two_builders_are_independent(browser: Chrome, show: Callable[..., None]) -> None:
    show(*[mask_view(SCORES, TOKENS)] * 2)
    first, second = mounted(browser, "masks", 2)
    click(first, 3, 3)
    first.one(".causal").click()
    shows(second, CAUSAL)


@pytest.mark.parametrize("width", [680, 1000])
def test_three_matrices_fit_side_by_side(browser: Chrome, show: Callable[..., None], width: int) -> None:
    """The largest that Python lets through, with long tokens."""
    show(mask_view(torch.linspace(-9.9, -1.1, 36).view(6, 6), ["attention"] * 6), width=width)
    (view,) = mounted(browser, "masks")
    panels = "const panels = root.querySelector('.panels'); return panels.scrollWidth - panels.clientWidth"
    assert view.run(panels) == 0
    assert len({panel.rect["y"] + panel.rect["height"] for panel in view.all(".panel")}) == 1


@pytest.mark.parametrize(("ink", "ground"), [("#222", "#fff"), ("#e6e6e6", "#111"), ("#d5d5d5", "#383838")], ids=str)
def test_text_can_be_read_in_either_theme(view: Mounted, ink: str, ground: str) -> None:
    click(view, 0, 0)
    view.one(".length").send_keys(Keys.ARROW_LEFT)
    assert view.faint_texts(ink, ground) == {}
