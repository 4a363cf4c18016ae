"""The next-token explorer in a page, driven by mouse and keyboard; its numbers are the ones that Python was given."""

import math
from collections import Counter
from collections.abc import Callable

import pytest
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys

from tfbook.plot import next_token_view

pytestmark = pytest.mark.slow

START = "The dog saw"
ROWS = {
    "": [(" a", 0.5), (" <b>the</b>", 0.25), (".", 0.13)],
    " a": [(" cat", 0.75), (" fox", 0.25)],
    " a cat": [(".", 0.9), (",", 0.1)],
    " a fox": [(".", 1.0)],
    " <b>the</b>": [("\n", 0.6), (" sea", 0.3), (" cat", 0.0004)],
}
ENDS = (" a cat.", " a fox.", ".")  # where the text is complete; whatever else has no row is not in the tree


def predict(texts: list[tuple[str, ...]]) -> list[list[tuple[str, float]]]:
    return [ROWS.get("".join(text), [] if "".join(text) in ENDS else [(" and", 1e-9)]) for text in texts]


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(next_token_view(START, predict, breadth=4, depth=3))
    return mounted(browser, "explorer")[0]


def shows(view: Mounted, *chosen: str) -> None:
    """Asserts that text, bars and surprises are those after these pieces."""
    assert view.run("return root.querySelector('.prose').textContent") == START + "".join(chosen)
    assert view.run("return [...root.querySelectorAll('mark')].map((one) => one.textContent)") == [
        piece.lstrip(" ") for piece in chosen
    ]
    row = ROWS["".join(chosen)]
    bars = [(piece.strip() or "↵", share) for piece, share in row]
    rest = 1 - sum(share for _, share in row)
    if rest > 0.0005:
        bars.append(("everything else", rest))
    assert visible(view, ".name") == [name for name, _ in bars]
    assert visible(view, ".share") == [_percent(share) for _, share in bars]
    track = view.run("return root.querySelector('.track').clientWidth")
    end = "for (const line of root.querySelectorAll('.line')) line.style.transition = 'none'; "
    widths = view.run(end + "return [...root.querySelectorAll('li:not([hidden]) .line')].map((one) => one.offsetWidth)")
    assert widths == pytest.approx([track * share for _, share in bars], abs=1.5)
    surprises = [-math.log(dict(ROWS["".join(chosen[:i])])[piece]) for i, piece in enumerate(chosen)]
    assert [float(text.split()[-1]) for text in view.texts(".term")] == [round(one, 2) for one in surprises]
    if chosen:
        total = sum(round(one, 2) for one in surprises)
        assert view.one(".sum").text.endswith(f" = {total:.2f} nats, {total / len(chosen):.2f} per token")
        assert view.summary.endswith(f", so its surprise −ln p is {surprises[-1]:.2f} nats.")


def visible(view: Mounted, selector: str) -> list[str]:
    return [text for text in view.texts(f".bars {selector}") if text]


def _percent(share: float) -> str:
    if share < 0.001:
        return "< 0.1%"
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%"


def test_it_begins_with_the_first_distribution(view: Mounted) -> None:
    shows(view)
    assert view.summary == "Likeliest next: “a”, 50%. What would you write?"
    assert view.one(".summary").get_attribute("aria-live") == "polite"
    assert view.one(".sum").text == ""
    disabled = [view.one(name).get_attribute("aria-disabled") for name in (".back", ".restart", ".sample")]
    assert disabled == ["true", "true", "false"]


def test_a_click_on_a_bar_appends_its_token(view: Mounted) -> None:
    view.all(".bars button")[0].click()
    shows(view, " a")
    assert view.summary == "“a” had probability 50%, so its surprise −ln p is 0.69 nats."
    view.all(".bars button")[0].click()
    shows(view, " a", " cat")
    assert view.one("mark:last-of-type").get_attribute("title") == "probability 75%, surprise 0.29 nats"


def test_pieces_are_joined_as_they_are(view: Mounted) -> None:
    """A bar names its token without the space; blanks alone are seen; nothing opens a tag."""
    view.all(".bars button")[1].click()
    shows(view, " <b>the</b>")
    view.all(".bars button")[0].click()
    assert view.run("return root.querySelector('.prose').textContent") == f"{START} <b>the</b>↵\n"
    assert view.texts(".term") == ["<b>the</b> 1.39", "↵ 0.51"]


def test_digits_choose_wherever_the_focus_is(view: Mounted) -> None:
    view.one(".sample").send_keys("1")
    shows(view, " a")
    view.press("7", "3")
    shows(view, " a")
    view.press("2")
    shows(view, " a", " fox")
    view.press("1")
    assert view.texts("mark") == ["a", "fox", "."]


def test_arrow_keys_move_and_enter_chooses(view: Mounted) -> None:
    view.one(".sample").send_keys(Keys.ARROW_DOWN)
    for key, place in [
        (Keys.ARROW_DOWN, 2),
        (Keys.ARROW_DOWN, 2),
        (Keys.ARROW_UP, 1),
        (Keys.HOME, 0),
        (Keys.ARROW_UP, 0),
        (Keys.END, 2),
        (Keys.ARROW_UP, 1),
    ]:
        view.press(key)
        assert view.focused.startswith(str(place + 1))
    view.press(Keys.ENTER)
    shows(view, " <b>the</b>")
    assert view.focused.startswith("1"), "the likeliest of the next"


def test_one_bar_is_reached_by_tab(view: Mounted) -> None:
    view.one(".sample").send_keys(Keys.TAB)
    assert view.focused.startswith("1")
    view.press(Keys.ARROW_DOWN)
    view.all(".bars button")[1].send_keys(Keys.SHIFT, Keys.TAB)
    assert view.focused == "sample"


def test_backspace_undoes_and_stays_where_it_was(view: Mounted) -> None:
    view.all(".bars button")[0].click()
    view.press("2", Keys.BACKSPACE)
    shows(view, " a")
    assert view.focused.startswith("2")
    view.press(Keys.ENTER)
    shows(view, " a", " fox")
    view.press(Keys.BACKSPACE, Keys.BACKSPACE, Keys.BACKSPACE)
    shows(view)


def test_buttons_undo_and_start_again(view: Mounted) -> None:
    view.one(".back").click()
    view.all(".bars button")[0].click()
    view.all(".bars button")[1].click()
    view.one(".back").click()
    shows(view, " a")
    view.one(".restart").click()
    shows(view)


def test_a_click_on_the_text_gives_the_bars_the_keys(view: Mounted) -> None:
    view.one(".prose").click()
    view.press("2")
    shows(view, " <b>the</b>")


def test_where_the_tree_ends_it_says_so(view: Mounted) -> None:
    """And Enter goes back, or the reader starts again; a text that is complete is told apart."""
    assert view.one(".end").text == ""
    view.all(".bars button")[0].click()
    view.press("1", "2")
    assert view.one(".end").text.startswith("The tree ends here. Only the likeliest texts were worked out in advance")
    assert visible(view, ".name") == []
    assert view.one(".sample").get_attribute("aria-disabled") == "true"
    view.one(".sample").click()
    view.press("1", Keys.ARROW_DOWN)
    assert view.texts("mark") == ["a", "cat", ","]
    assert view.focused == "← back"
    view.press(Keys.ENTER)
    shows(view, " a", " cat")
    view.one(".restart").click()
    view.all(".bars button")[2].click()
    assert view.one(".end").text.startswith("The text is complete.")


def test_samples_are_drawn_by_their_probabilities(view: Mounted) -> None:
    """Among the tokens shown; everything else is left out."""
    drawn = view.run("""return Array.from({ length: 1000 }, () => {
        root.querySelector('.sample').click();
        const word = root.querySelector('mark').textContent;
        root.querySelector('.back').click();
        return word;
    })""")
    counts = Counter(drawn)
    assert set(counts) == {"a", "<b>the</b>", "."}
    for word, share in (("a", 0.5 / 0.88), ("<b>the</b>", 0.25 / 0.88), (".", 0.13 / 0.88)):
        assert abs(counts[word] / 1000 - share) < 0.065, "four standard deviations"


def test_sample_goes_on_by_enter(view: Mounted) -> None:
    view.one(".sample").send_keys(Keys.ENTER, Keys.ENTER, Keys.ENTER, Keys.ENTER)
    assert 1 <= len(view.texts("mark")) <= 3
    assert view.focused == "sample"
    assert view.one(".end").text


def test_parts_of_words_show_their_spaces(browser: Chrome, show: Callable[..., None]) -> None:
    show(next_token_view("the", lambda texts: [[(" fox", 0.5), ("n", 0.3), (" ", 0.2)] for _ in texts]))
    (view,) = mounted(browser, "explorer")
    assert visible(view, ".name") == ["␣fox", "n", "␣"]
    view.all(".bars button")[2].click()
    view.press("2")
    assert view.run("return root.querySelector('.prose').textContent") == "the n"


def test_two_explorers_are_independent(browser: Chrome, show: Callable[..., None]) -> None:
    show(*[next_token_view(START, predict, breadth=4, depth=3)] * 2)
    first, second = mounted(browser, "explorer", 2)
    first.all(".bars button")[0].click()
    shows(first, " a")
    shows(second)


def test_it_fits_a_page_of_400_pixels_and_bars_stay_in_place(browser: Chrome, show: Callable[..., None]) -> None:
    row = [(" extraordinary", 0.6), (" a", 0.3), (" b", 0.05)]
    show(next_token_view("Once", lambda texts: [row] * len(texts), breadth=3, depth=9), width=400)
    (view,) = mounted(browser, "explorer")
    top = "return root.querySelector('.sum').getBoundingClientRect().top"
    before = view.run(top)
    view.all(".bars button")[1].click()
    view.press("2")
    assert view.run(top) == before
    view.press(*"111111")
    assert view.run("return root.querySelector('.view').scrollWidth <= 400")
    names = view.run("return [...root.querySelectorAll('.name')].every((one) => one.scrollWidth <= one.clientWidth)")
    assert names, "no name reaches into its bar"


@pytest.mark.parametrize(("ink", "ground"), [("#222", "#fff"), ("#e6e6e6", "#111"), ("#d5d5d5", "#383838")], ids=str)
def test_text_can_be_read_in_either_theme(view: Mounted, ink: str, ground: str) -> None:
    """With a token of the strongest color, which comes after the last bar, and without."""
    assert view.faint_texts(ink, ground) == {}
    view.all(".bars button")[1].click()
    view.press("3")
    assert view.faint_texts(ink, ground) == {}
