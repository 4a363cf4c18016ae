"""The decoding view in a page, driven by mouse and keyboard, moving and still."""

from collections.abc import Callable, Iterator

import pytest
import torch
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.support.ui import WebDriverWait

from tfbook.plot import decoding_view

pytestmark = pytest.mark.slow

SOURCE, TARGET = ["the", "black", "cat", "<eos>"], ["le", "chat", "<i>noir</i>"]
SCORES = 3 * torch.tensor([[1, 0, 0.2, -1], [-1, 0.5, 1, 0], [0, 1, 0.9, 0.9]])
WEIGHTS = SCORES.softmax(-1)
CANDIDATES = [[("le", 0.83), ("la", 0.09)], [("noir", 0.15), ("chat", 0.73)], [("<i>noir</i>", 0.5)]]


def move(browser: Chrome, wish: str) -> None:
    """Says what the reader wishes of motion: "reduce" or "no-preference"."""
    features = [{"name": "prefers-reduced-motion", "value": wish}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Iterator[Mounted]:
    """Without motion, so that each step shows at once."""
    move(browser, "reduce")
    show(decoding_view(SOURCE, TARGET, WEIGHTS, CANDIDATES))
    yield mounted(browser, "stepper")[0]
    move(browser, "no-preference")


def written(view: Mounted) -> list[str]:
    return view.texts("g.word:not(.ahead) text")


def heights(view: Mounted) -> list[float]:
    """Of the bars, in pixels."""
    return view.run("return [...root.querySelectorAll('rect.bar')].map((bar) => bar.height.baseVal.value)")


def test_it_begins_before_the_first_word(view: Mounted) -> None:
    assert view.texts("g.key text") == SOURCE
    assert written(view) == ["le"]
    assert view.one(".place").text == "word 1 of 3"
    assert view.summary == "At the start, the decoder looks most at “the” (0.87) and writes “le”."
    assert view.one(".summary").get_attribute("aria-live") == "polite"
    assert view.one("svg").get_attribute("aria-label") == "Written: le"


def test_a_step_shows_the_weights_of_its_word(view: Mounted) -> None:
    """As numbers, bars and lines, the softmax of the scores; lines begin where the query is."""
    for step, row in enumerate(WEIGHTS.tolist()):
        assert view.texts("text.number") == [f"{weight:.2f}" for weight in row]
        assert heights(view) == pytest.approx([64 * weight for weight in row], abs=0.4)
        widths = [line.value_of_css_property("stroke-width") for line in view.all("path.line")]
        drawn = [9 * weight if round(weight, 2) >= 0.02 else 0 for weight in row]
        assert [float(width.removesuffix("px")) for width in widths] == pytest.approx(drawn, abs=0.06)
        assert written(view) == TARGET[: step + 1]
        assert view.texts("g.now text") == [TARGET[step]]
        view.one(".next").click()
    assert written(view) == TARGET


def test_every_step_looks_somewhere_else(view: Mounted) -> None:
    """The query moves to the right, and what earlier steps looked at stays as a trace."""
    places, traces = [], []
    for _ in TARGET:
        places.append(float(view.one("g.query").get_attribute("transform")[len("translate(") :].split()[0]))
        traces.append(len(view.all("g.trace:not(.ahead)")))
        view.one(".next").click()
    assert places == sorted(set(places))
    assert traces == [0, 1, 2]


def test_candidates_are_bars_and_the_written_word_is_marked(view: Mounted) -> None:
    def shown() -> list[str]:
        return [item.text.replace("\n", " ") for item in view.all("li") if item.is_displayed()]

    assert shown() == ["le 0.83", "la 0.09"]
    view.one(".next").click()
    assert shown() == ["chat 0.73", "noir 0.15"]
    assert view.texts("li.written .word") == ["chat"]
    view.one(".next").click()
    assert shown() == ["<i>noir</i> 0.50"]


def test_without_candidates_there_is_no_list(browser: Chrome, show: Callable[..., None]) -> None:
    show(decoding_view(SOURCE, TARGET, WEIGHTS))
    assert mounted(browser, "stepper")[0].all("li") == []


def test_arrow_keys_step_and_stop_at_the_ends(view: Mounted) -> None:
    view.one(".next").click()
    for key, place in [
        (Keys.ARROW_RIGHT, 3),
        (Keys.ARROW_RIGHT, 3),
        (Keys.ARROW_LEFT, 2),
        (Keys.HOME, 1),
        (Keys.ARROW_LEFT, 1),
        (Keys.END, 3),
    ]:
        view.press(key)
        assert view.one(".place").text == f"word {place} of 3"
        assert view.focused == "Next →"
        ends = [view.one(name).get_attribute("aria-disabled") for name in (".back", ".next")]
        assert ends == [str(place == 1).lower(), str(place == 3).lower()]


def test_a_click_into_the_drawing_gives_it_the_keys(view: Mounted) -> None:
    view.one("svg").click()
    view.press(Keys.ARROW_RIGHT)
    assert view.one(".place").text == "word 2 of 3"


def test_space_plays_to_the_end_and_pauses(view: Mounted) -> None:
    """Playing from the end begins anew; a step by hand pauses."""
    place, play = view.one(".place"), view.one(".play")
    wait = WebDriverWait(view.browser, 10)
    view.one(".back").send_keys(Keys.TAB, Keys.SPACE)
    assert (place.text, play.text) == ("word 2 of 3", "Pause")
    wait.until(lambda _: (place.text, play.text) == ("word 3 of 3", "Play"))
    view.press(Keys.SPACE)
    assert (place.text, play.text) == ("word 1 of 3", "Pause")
    view.press(Keys.ARROW_RIGHT)
    assert (place.text, play.text) == ("word 2 of 3", "Play")
    view.press(Keys.SPACE, Keys.SPACE)
    assert (place.text, play.text) == ("word 3 of 3", "Play")


def test_bars_and_query_glide_unless_the_reader_wants_no_motion(view: Mounted) -> None:
    step = "root.querySelector('.next').click(); return root.querySelectorAll('rect.bar')[2].height.baseVal.value"
    assert view.run(step) == pytest.approx(64 * WEIGHTS[1, 2].item(), abs=0.4)
    move(view.browser, "no-preference")
    assert view.run(step) == pytest.approx(64 * WEIGHTS[1, 2].item(), abs=0.4)
    goal = pytest.approx([64 * weight for weight in WEIGHTS[2].tolist()], abs=0.4)
    WebDriverWait(view.browser, 10).until(lambda _: heights(view) == goal)


def test_it_fits_a_page_of_680_pixels(browser: Chrome, show: Callable[..., None]) -> None:
    """A sentence of usual length; a longer one scrolls inside the view and keeps its query in sight."""
    long = [f"word{i}" for i in range(20)]
    show(decoding_view(long[:8], long[:7], torch.eye(8)[:7]), decoding_view(long, long, torch.eye(20)), width=680)
    short, scrolled = mounted(browser, "stepper", 2)
    beyond = "const scene = root.querySelector('.scene'); return scene.scrollWidth - scene.clientWidth"
    assert short.run(beyond) == 0
    scrolled.one(".next").send_keys(Keys.END)
    inside = """const edges = (name) => root.querySelector(name).getBoundingClientRect();
        const [query, scene] = ['g.query', '.scene'].map(edges);
        return query.left >= scene.left && query.right <= scene.right"""
    WebDriverWait(browser, 10).until(lambda _: scrolled.run(inside))
    assert scrolled.run(beyond) > 0
    assert browser.execute_script("return document.body.scrollWidth") == 680


@pytest.mark.parametrize(("ink", "ground"), [("#222", "#fff"), ("#e6e6e6", "#111"), ("#d5d5d5", "#383838")], ids=str)
def test_text_can_be_read_in_either_theme(view: Mounted, ink: str, ground: str) -> None:
    view.one(".next").click()
    assert view.faint_texts(ink, ground) == {}
