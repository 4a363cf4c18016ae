"""The attention view in a page, driven by mouse and keyboard."""

import re
from collections.abc import Callable

import pytest
import torch
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.support.ui import Select

from tfbook.plot import attention_view

pytestmark = pytest.mark.slow

TOKENS = ["the", "big", "dog", "<b>ran</b>"]
CAUSAL = torch.ones(4, 4, dtype=torch.bool).tril()
WEIGHTS = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).masked_fill(~CAUSAL, -1e9).softmax(-1)
OTHER = attention_view({"cross": torch.eye(3)[None]}, ["le", "chat", "."], ["the", "cat", "."], heads=["copy"])


def numbers(view: Mounted) -> list[str]:
    """The chosen token's row of the matrix."""
    return view.texts(".matrix tr.chosen td")


def expected(layer: int, head: int | None, query: int) -> list[str]:
    """What the row should say; head None is the mean of all."""
    maps = WEIGHTS[layer].mean(dim=0) if head is None else WEIGHTS[layer, head]
    return [f"{weight:.2f}" if may else "–" for weight, may in zip(maps[query], CAUSAL[query], strict=True)]


@pytest.fixture
def page(browser: Chrome, show: Callable[..., None]) -> list[Mounted]:
    """Two views, anew for each test."""
    show(attention_view(WEIGHTS, TOKENS, mask=CAUSAL), OTHER)
    return mounted(browser, "attention", 2)


def test_the_view_mounts_and_says_the_mean_of_layer_1(page: list[Mounted]) -> None:
    view, other = page
    assert numbers(view) == expected(0, None, 2)
    assert re.fullmatch(r"Layer 1, mean of the heads: “dog” attends most to (“\w+” 0\.\d\d(, |\.)){3}", view.summary)
    assert other.summary == "Layer cross, head copy: “chat” attends most to “cat” 1.00."
    assert view.texts(".matrix thead th") == TOKENS
    assert view.texts(".matrix button") == TOKENS


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("head", [0, 2, None])
def test_layer_and_head_are_chosen_by_keyboard(page: list[Mounted], layer: int, head: int | None) -> None:
    """The lists are the browser's own: a key jumps to the entry that begins with it."""
    view = page[0]
    view.one("select.layer").send_keys(str(layer + 1))
    view.one("select.head").send_keys("m" if head is None else str(head + 1))
    for query in range(4):
        view.all(".matrix button")[query].click()
        assert numbers(view) == expected(layer, head, query)
    assert view.summary.startswith(
        f"Layer {layer + 1}, {'mean of the heads' if head is None else f'head {head + 1}'}: "
    )


def test_arrow_keys_move_the_token_and_change_the_head(page: list[Mounted]) -> None:
    """Focus goes with the token, and stops at the ends."""
    view = page[0]
    view.one("select.head").send_keys(Keys.TAB)
    assert view.focused == "dog"
    for key, query, head in [
        (Keys.ARROW_UP, 1, None),
        (Keys.ARROW_UP, 0, None),
        (Keys.ARROW_UP, 0, None),
        (Keys.ARROW_LEFT, 0, 2),
        (Keys.END, 3, 2),
        (Keys.ARROW_DOWN, 3, 2),
        (Keys.ARROW_LEFT, 3, 1),
        (Keys.ARROW_UP, 2, 1),
        (Keys.ARROW_RIGHT, 2, 2),
        (Keys.HOME, 0, 2),
    ]:
        view.press(key)
        assert (view.focused, numbers(view)) == (TOKENS[query], expected(0, head, query))
        assert Select(view.one("select.head")).first_selected_option.text == ("mean" if head is None else str(head + 1))
        pressed = [button.get_attribute("aria-pressed") for button in view.all(".matrix button")]
        assert pressed == ["true" if place == query else "false" for place in range(4)]


def test_the_text_for_screen_readers_follows(page: list[Mounted]) -> None:
    """The strongest first, at most three, none that is 0 or blocked."""
    view = page[0]
    assert view.one(".summary").get_attribute("aria-live") == "polite"
    view.one("select.layer").send_keys("2")
    view.one("select.head").send_keys("1")
    view.all(".matrix button")[1].click()
    most = sorted(zip(expected(1, 0, 1)[:2], TOKENS, strict=False), reverse=True)
    told = ", ".join(f"“{token}” {weight}" for weight, token in most)
    assert view.summary == f"Layer 2, head 1: “big” attends most to {told}."


def test_a_click_on_a_map_chooses_layer_and_head(page: list[Mounted]) -> None:
    view = page[0]
    assert len(view.all("canvas")) == 8
    view.all("canvas")[4 + 2].click()
    assert numbers(view) == expected(1, 2, 2)
    assert [canvas.get_attribute("class") for canvas in view.all("canvas")].index("chosen") == 6
    assert page[1].all("canvas") == []


def test_lines_and_colours_show_the_same_weights(page: list[Mounted]) -> None:
    """A line for each weight from 0.02 on, the chosen token's last; a blocked cell is hatched and has no color."""
    view = page[0]
    view.one("select.head").send_keys("1")
    view.all(".matrix button")[3].click()
    drawn = [line.value_of_css_property("stroke-width") for line in view.all("path.chosen")]
    shown = [weight for weight in map(float, expected(0, 0, 3)) if weight >= 0.02]
    assert [float(width.removesuffix("px")) for width in drawn] == pytest.approx([0.5 + 6 * w for w in shown], abs=0.01)
    assert [line.get_attribute("class") for line in view.all("path")][-len(drawn) :] == ["chosen"] * len(drawn)
    assert view.texts("text.number") == expected(0, 0, 3)
    assert len(view.all("td.blocked")) == 6
    assert "gradient" in view.all("td.blocked")[0].value_of_css_property("background-image")


def test_two_views_are_independent(page: list[Mounted]) -> None:
    view, other = page
    before = other.summary, numbers(other)
    view.one("select.layer").send_keys("2")
    view.all(".matrix button")[0].click()
    view.press(Keys.ARROW_DOWN)
    assert (other.summary, numbers(other)) == before
    other.all(".matrix button")[0].click()
    assert numbers(view) == expected(1, None, 1)
    assert numbers(other) == ["1.00", "0.00", "0.00"]


@pytest.mark.parametrize(("ink", "ground"), [("#222", "#fff"), ("#e6e6e6", "#111"), ("#d5d5d5", "#383838")], ids=str)
def test_text_can_be_read_in_either_theme(page: list[Mounted], ink: str, ground: str) -> None:
    """Ink and ground are the page's."""
    assert page[0].faint_texts(ink, ground) == {}
    assert page[0].one(".view").value_of_css_property("background-color") == "rgba(0, 0, 0, 0)"
