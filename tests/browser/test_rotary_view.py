"""The view of rotary positions in a page, driven by mouse and keyboard; its numbers are the package's."""

import math
from collections.abc import Callable

import pytest
import torch
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys

from tfbook.plot import rotary_view
from tfbook.plot.views.rotary import rotary_scores

pytestmark = pytest.mark.slow

TOKENS = ["old", "dog", "<b>b</b>", "a", "man", "today"]
QUERY, KEY = torch.tensor([[0.0, 1.0], [0.8, 0.6]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
SPEEDS = [0.7, 0.1]
SCORES = rotary_scores(QUERY, KEY, torch.tensor(SPEEDS), len(TOKENS))


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(rotary_view(TOKENS, QUERY, KEY, SPEEDS))
    return mounted(browser, "rotary")[0]


def said(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


def shows(view: Mounted, m: int, n: int) -> None:
    """Asserts that everything in the view is what the package computes for a query at m and a key at n."""
    assert view.texts("output") == [str(m), str(n)]
    marks = [[mark.text for mark in word.find_elements("css selector", ".marks b")] for word in view.all("li")]
    assert marks == [["query"] * (place == m) + ["key"] * (place == n) for place in range(len(TOKENS))]
    assert view.one(".total").text == said(float(SCORES[m, n]))
    starts = (math.pi / 2, math.atan2(0.6, 0.8))  # from key to query at position 0
    angles = [math.remainder(start + speed * (m - n), 2 * math.pi) for start, speed in zip(starts, SPEEDS, strict=True)]
    degrees = [f"{round(math.degrees(angle))}°".replace("-", "−") for angle in angles]
    assert view.texts(".clock .said b") == degrees
    products = [said(math.cos(angle)) for angle in angles]
    assert [text.split()[-1] for text in view.texts(".clock .said")] == products
    assert view.summary.startswith(f"“{TOKENS[m]}” at {m} looks at “{TOKENS[n]}” at {n}: the score is")
    assert view.one(".total").text in view.summary
    dot, each = (view.run(f"return root.querySelectorAll('.{name}')") for name in ("here", "each"))
    at = [(circle.get_attribute("cx"), circle.get_attribute("cy")) for circle in (*dot, *each)]
    assert at[0] == at[1 + m - n + len(TOKENS) - 1]  # on the curve, above the distance


def test_it_begins_two_words_apart(view: Mounted) -> None:
    shows(view, 3, 1)
    assert view.texts(".word") == TOKENS
    assert view.summary.endswith("Every other pair with m − n = 2 has the same score.")


def test_the_sliders_move_query_and_key(view: Mounted) -> None:
    """By keyboard, as the browser does it."""
    view.one("input.query").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    shows(view, 5, 1)
    view.one("input.key").send_keys(Keys.HOME)
    shows(view, 5, 0)
    assert view.summary.endswith(f"the score is {said(float(SCORES[5, 0]))}.")  # no other pair is as far apart
    view.one("input.query").send_keys(Keys.HOME)
    view.one("input.key").send_keys(Keys.END)
    shows(view, 0, 5)


def test_moving_both_leaves_the_score_alone(view: Mounted) -> None:
    """Up to the ends of the sentence, where the button rests."""
    score = view.one(".total").text
    view.one(".on").click()
    shows(view, 4, 2)
    view.one(".on").click()
    shows(view, 5, 3)
    assert view.one(".total").text == score
    assert not view.one(".on").is_enabled()
    for _ in range(3):
        view.one(".back").click()
    shows(view, 2, 0)
    assert not view.one(".back").is_enabled()


def test_arrows_have_the_angles_of_their_vectors(view: Mounted) -> None:
    """The query of pair 1 points up at position 0; at position 3 it has turned by 2.1 radians."""
    tip = view.run("return root.querySelector('.head.query:not(.start)').getAttribute('d')")
    x, y = (float(part) for part in str(tip)[1:].split("L")[0].split(","))
    assert math.remainder(math.atan2(-y, x) - (math.pi / 2 + 2.1), 2 * math.pi) == pytest.approx(0, abs=1e-6)


def test_two_views_are_independent(browser: Chrome, show: Callable[..., None]) -> None:
    show(*[rotary_view(TOKENS, QUERY, KEY, SPEEDS)] * 2)
    first, second = mounted(browser, "rotary", 2)
    first.one(".on").click()
    shows(second, 3, 1)


@pytest.mark.parametrize("width", [680, 1000])
def test_it_is_not_wider_than_the_page(browser: Chrome, show: Callable[..., None], width: int) -> None:
    show(rotary_view(["attention"] * 12, *[torch.eye(3)[:, :2]] * 2, [1, 0.1, 0.01]), width=width)
    (view,) = mounted(browser, "rotary")
    assert view.run("const view = root.querySelector('.view'); return view.scrollWidth - view.clientWidth") == 0


@pytest.mark.parametrize(("ink", "ground"), [("#222", "#fff"), ("#e6e6e6", "#111"), ("#d5d5d5", "#383838")], ids=str)
def test_text_can_be_read_in_either_theme(view: Mounted, ink: str, ground: str) -> None:
    view.one("input.key").send_keys(Keys.HOME)
    assert view.faint_texts(ink, ground) == {}
