"""The tokenizer in a page, driven by mouse and keyboard; its tokens are the package's."""

from collections.abc import Callable

import pytest
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys

from tfbook.plot import bpe_view, visible
from tfbook.text import Tokenizer
from tfbook.text.byte_level import BYTES

pytestmark = pytest.mark.slow

LEARNED = Tokenizer.learn(["sing ring ring king spring, they're singing; naïve λόγος 🍓🍓 2024"], 290)
TOKENS = [*LEARNED.tokens.values()]
TEXTS = ["bringing rings", "They'll sing: I'M  naïve!\t12 λόγος", "\u3000a\u0085b\u00a0 c\ufeffd  ", "🍓 ²ⅷ e\u0301 字"]


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(bpe_view(TOKENS, LEARNED.merges, TEXTS[0]))
    return mounted(browser, "bpe")[0]


def tokens(view: Mounted) -> list[int]:
    return [int(text) for text in view.texts(".chip .id")]


def type_in(view: Mounted, text: str) -> None:
    """As if it was typed: the driver cannot type characters beyond the basic plane."""
    script = "const i = root.querySelector('.typed'); i.value = arguments[1]; i.dispatchEvent(new Event('input'));"
    view.browser.execute_script(f"const root = arguments[0].shadowRoot; {script}", view.host, text)


def test_it_begins_with_all_merges(view: Mounted) -> None:
    assert tokens(view) == LEARNED.encode(TEXTS[0])
    assert view.texts(".chip .name") == [visible(LEARNED.tokens[i]) for i in tokens(view)]
    assert view.summary.endswith(f"14 bytes, {len(tokens(view))} tokens. No other merge fits.")


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_typed_becomes_the_tokens_of_the_package(view: Mounted, text: str) -> None:
    type_in(view, text)
    assert tokens(view) == LEARNED.encode(text)
    assert view.run("return [...root.querySelectorAll('.chip .name')].map((e) => e.textContent)") == [
        visible(LEARNED.tokens[i]) for i in LEARNED.encode(text)
    ]


def test_typing_cuts_at_every_key(view: Mounted) -> None:
    field = view.one(".typed")
    field.send_keys(Keys.END, Keys.BACKSPACE, "!")
    assert tokens(view) == LEARNED.encode("bringing ring!")


def test_steps_follow_the_merges(view: Mounted) -> None:
    view.one(".first").click()
    assert tokens(view) == Tokenizer(LEARNED.tokens, []).encode(TEXTS[0])
    assert view.summary == "Before the first merge: 14 bytes, 14 tokens."
    assert [name.text.split()[0] for name in view.all(".chip.next")] == ["i", "n"] * 3
    view.one(".on").send_keys(Keys.ENTER)
    assert tokens(view) == Tokenizer(LEARNED.tokens, LEARNED.merges[:1]).encode(TEXTS[0])
    assert view.summary == "Step 1 of 4: merge 1 joins “i” and “n” into “in”. 14 bytes, 11 tokens."
    assert view.texts(".chip.made .name") == ["in"] * 3
    view.one(".back").click()
    assert len(tokens(view)) == 14
    view.one(".back").click()
    assert len(tokens(view)) == 14, "there is nothing before the bytes"


def test_the_slider_goes_to_a_step(view: Mounted) -> None:
    view.one(".place").send_keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert view.summary.startswith("Step 2 of 4")
    view.one(".last").click()
    assert tokens(view) == LEARNED.encode(TEXTS[0])


def test_equal_neighbors_are_joined_from_the_left(browser: Chrome, show: Callable[..., None]) -> None:
    show(bpe_view([*BYTES, b"aa"], [(64, 64)], "aaaaa"))
    (view,) = mounted(browser, "bpe")
    assert view.texts(".chip .name") == ["aa", "aa", "a"]
    view.one(".first").click()
    assert len(view.all(".chip.next")) == 4


def test_without_text_there_is_nothing_to_merge(view: Mounted) -> None:
    type_in(view, "")
    assert tokens(view) == []
    assert view.summary == "Before the first merge: 0 bytes, 0 tokens. No other merge fits."


def test_two_views_are_independent(browser: Chrome, show: Callable[..., None]) -> None:
    show(*[bpe_view(TOKENS, LEARNED.merges, TEXTS[0])] * 2)
    first, second = mounted(browser, "bpe", 2)
    first.one(".first").click()
    assert tokens(second) == LEARNED.encode(TEXTS[0])


def test_a_long_text_wraps(browser: Chrome, show: Callable[..., None]) -> None:
    show(bpe_view(BYTES, [], "x" * 120 + " y" * 40), width=680)
    (view,) = mounted(browser, "bpe")
    assert view.run("return root.querySelector('.view').scrollWidth <= 680")


@pytest.mark.parametrize(("ink", "ground"), [("#222", "#fff"), ("#e6e6e6", "#111"), ("#d5d5d5", "#383838")], ids=str)
def test_text_can_be_read_in_either_theme(view: Mounted, ink: str, ground: str) -> None:
    view.one(".first").click()
    view.one(".on").click()
    assert view.faint_texts(ink, ground) == {}
