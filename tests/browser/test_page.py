"""A model's page in a browser: it works by mouse and keyboard, on a phone, in the dark and for a screen reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from mounted import FAINT_TEXTS, requested, said
from opened_page import TEXTS, Opened, emulate, traced
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.support.ui import WebDriverWait

from tfbook.text.vocabulary import BOS, UNK

pytestmark = pytest.mark.slow

CLOSE = 1e-3


# ---- what a reader does ----------------------------------------------------------------------------------------------


def test_it_paints_at_once_and_asks_for_nothing(browser: Chrome, written_pages: dict[str, Any]) -> None:
    requested(browser), said(browser)
    opened = Opened(browser, *written_pages["words"])
    opened.write_on()
    opened.click("implant")
    assert requested(browser) == {opened.path.as_uri()}
    assert said(browser) == []
    paint = opened.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert paint < 2000


def test_the_tips_of_the_storyteller_hold(story: Opened) -> None:
    """A silenced head makes it forget the name; an implant makes it go on with a name that it never mentioned."""
    lily, mia = story.subject.vocabulary.encode(["Lily", "Mia"])
    share = "return softmax(session.reading.logits[session.at])[arguments[0]]"
    assert story.best == "Lily"
    assert story.run(share, lily) == pytest.approx(0.99, abs=0.005)
    story.click("silence")
    assert story.text("changes").startswith("Block 3, head 1 is silenced.")
    assert story.run(share, lily) == pytest.approx(0.05, abs=0.01)
    assert "with your changes it is" in story.text("effect")
    story.click("silence")
    assert story.text("effect") == "Nothing is changed."
    story.click("implant")
    assert story.best == "Mia"
    assert story.run(share, mia) > 0.95
    begun = len(story.ids)
    story.write_on()
    assert mia in story.ids[begun:]
    assert lily not in story.ids[begun:]
    assert mia not in story.ids[:begun]
    story.click("again")
    assert (story.best, len(story.ids)) == ("Mia", begun)
    story.click("restore")
    assert story.best == "Lily"


def test_an_implant_goes_with_the_text_before_it(story: Opened) -> None:
    story.click("implant")
    story.type("start", f"{TEXTS['words']} Lily. “")
    assert story.run("return session.implants.length") == 1
    story.type("start", TEXTS["words"].replace("shy", "brave"))
    assert story.run("return session.implants.length") == 0


def test_a_word_is_chosen_by_click_and_by_key(story: Opened) -> None:
    story.browser.find_elements("css selector", "#words [role=option]")[9].click()
    assert "Place 10 of 45, “who”." in story.text("status")
    assert story.text("next-lead") == "After “… shy fox named Lily who”"
    for key, place in (
        (Keys.ARROW_LEFT, 9),
        (Keys.END, 45),
        (Keys.ARROW_RIGHT, 45),
        (Keys.HOME, 1),
        (Keys.ARROW_DOWN, 2),
    ):
        story.press(key)
        assert f"Place {place} of 45" in story.text("status")
        chosen = story.run("return document.activeElement.getAttribute('aria-selected')")
        assert chosen == "true"


def test_the_text_shows_where_the_chosen_head_looks(story: Opened) -> None:
    weights = traced(story.subject.model, story.ids).weights
    for keys, (layer, head) in (
        ("", (2, 0)),
        (Keys.ARROW_RIGHT, (2, 1)),
        (Keys.ARROW_UP, (1, 1)),
        (Keys.ARROW_LEFT, (1, 0)),
    ):
        story.focus("#heads [aria-checked=true]")
        story.press(keys)
        script = "return [...$('words').children].map((one) => Number(one.style.getPropertyValue('--weight')))"
        assert story.run(script) == pytest.approx(weights[layer][head, -1].tolist(), abs=CLOSE)
        assert story.text("looks").startswith(f"Block {layer + 1}, head {head + 1} looks from “said” at ")
        name = story.run("return document.activeElement.getAttribute('aria-label')")
        assert name == f"block {layer + 1}, head {head + 1}"


def test_tab_reaches_the_text_and_the_heads_once_each(story: Opened) -> None:
    """Each is one stop, at what is chosen in it."""
    story.focus("#start")
    stops = []
    while not stops or stops[-1] != "implant":
        story.press(Keys.TAB)
        stops.append(story.run("const one = document.activeElement; return one.id || one.getAttribute('role')"))
    assert [stops.count(role) for role in ("option", "radio")] == [1, 1]
    assert {"write", "one", "again", "temperature", "k", "p", "silence", "other", "vector", "source", "target"} <= {
        *stops
    }


def test_s_silences_the_chosen_head(story: Opened) -> None:
    story.focus("#heads [aria-checked=true]")
    story.press("s")
    assert story.run("return [...session.silenced]") == ["2.0"]
    assert story.run("return document.activeElement.getAttribute('aria-label')") == "block 3, head 1, silenced"
    assert story.run("return $('silence').getAttribute('aria-pressed')") == "true"
    story.press("S")
    assert story.run("return session.silenced.size") == 0


def test_a_bar_puts_its_token_behind_the_chosen_word(story: Opened) -> None:
    story.run("$('words').children[7].click()")
    name = story.run("return document.querySelectorAll('#bars .name')[1].textContent")
    story.focus("#bars button")
    story.press(Keys.ARROW_DOWN, Keys.ENTER)
    assert story.subject.vocabulary.decode(story.ids)[-1] == name
    assert len(story.ids) == 9


def test_writing_stops_on_demand_and_goes_on_word_by_word(story: Opened) -> None:
    story.run("$('write').click(); $('write').click()")
    WebDriverWait(story.browser, 20).until(lambda _: story.text("write") == "Write on")
    begun = len(story.ids)
    assert begun < 60
    story.click("one")
    assert len(story.ids) == begun + 1
    assert story.text("status").endswith(" tokens per second.")
    story.write_on()
    assert " The text ends here." in story.text("status")
    assert story.run("return $('write').getAttribute('aria-disabled')") == "true"


def test_unknown_words_and_characters_are_named(browser: Chrome, written_pages: dict[str, Any]) -> None:
    story = Opened(browser, *written_pages["words"])
    story.type("start", "Once there was a quark.")
    assert story.text("notice") == "The model has never met “quark”; it reads ⟨unknown⟩ there."
    assert story.ids[5] == UNK
    story.type("start", "Once")
    assert story.text("notice") == ""
    other = Opened(browser, *written_pages["characters"])
    before = other.ids
    other.type("start", "Xylophon")
    assert other.text("notice").startswith("The text holds “X”, none of the ")
    assert other.ids == before
    other.type("start", "")
    assert other.text("status") == "Write something for the model to go on from."
    other.click("implant")
    other.click("write")
    assert other.ids == []


def test_a_story_ends_where_the_model_has_seen_no_more(story: Opened) -> None:
    story.type("start", "Once there was a fox. " * 40)
    assert len(story.ids) == story.subject.longest
    assert story.ids[0] == BOS
    assert "128 tokens are the most that the model can read." in story.text("status")
    assert story.run("return session.step()") is False


def test_endless_text_goes_on_with_the_newer_half(browser: Chrome, written_pages: dict[str, Any]) -> None:
    """What the model has forgotten is text, and its numbers are those of what it still sees."""
    opened = Opened(browser, *written_pages["characters"])
    opened.click("silence")
    opened.write_on()
    model, longest = opened.subject.model, opened.subject.longest
    past = opened.run("return session.past")
    assert 16 <= len(opened.ids) <= longest
    assert len(past) + len(opened.ids) == len(TEXTS["characters"]) + 4 * longest
    assert past.startswith(TEXTS["characters"])
    assert opened.run("return $('past').textContent") == past
    found = torch.tensor(opened.run("return session.reading.logits.map((row) => [...row])"))
    torch.testing.assert_close(found, traced(model, opened.ids, [(0, 0)]).logits, atol=CLOSE, rtol=0)


def test_what_is_forgotten_is_the_older_half(browser: Chrome, written_pages: dict[str, Any]) -> None:
    opened = Opened(browser, *written_pages["characters"])
    text = "Wer reitet so spät durch Nacht und Wind?"
    opened.type("start", text)
    vocabulary, longest = opened.subject.vocabulary, opened.subject.longest
    assert opened.ids == vocabulary.encode(text[-longest:]).tolist()
    opened.click("one")
    assert opened.ids[:-1] == vocabulary.encode(text[-longest // 2 :]).tolist()
    assert opened.run("return session.past") == text[: -longest // 2]


def test_blanks_are_seen_and_break_the_line(browser: Chrome, written_pages: dict[str, Any]) -> None:
    opened = Opened(browser, *written_pages["characters"])
    opened.type("start", "es\ni  st")
    assert opened.run("return $('words').textContent") == "es↵\ni␣␣st"
    opened.run("$('words').children[2].click()")
    assert opened.text("next-lead") == "After “es↵”"
    assert opened.text("status").startswith("Place 3 of 8, “↵”.")


def test_the_cache_fills_from_left_to_right(story: Opened) -> None:
    script = """const { width, height } = $("cache");
    const pixels = $("cache").getContext("2d").getImageData(0, 0, width, height).data;
    const filled = (x) => [...Array(height).keys()].some((y) => pixels[4 * (y * width + x) + 3]);
    return [...Array(width).keys()].filter(filled);"""
    assert story.run(script) == list(range(45))
    assert story.text("cache-caption").startswith(
        "45 of 128 places are filled: 45 × 4 blocks × 2 (key and value) × 192"
    )
    story.click("one")
    assert story.run(script) == list(range(46))


def test_a_row_of_the_map_chooses_its_place(story: Opened) -> None:
    chart = story.browser.find_element("id", "map")
    ActionChains(story.browser).move_to_element_with_offset(chart, 0, 0).click().perform()
    assert "Place 23 of 45" in story.text("status")


# ---- for every reader ------------------------------------------------------------------------------------------------


@pytest.fixture
def emulated(browser: Chrome) -> Iterator[None]:
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_it_fits_a_phone(any_page: Opened, emulated: None) -> None:
    """360 pixels: nothing makes the page scroll sideways, whatever is opened and changed."""
    emulate(any_page.browser, width=360, height=780)
    any_page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    any_page.run("$('implant').click(); $('write').click()")
    WebDriverWait(any_page.browser, 60).until(lambda _: any_page.text("write") == "Write on")
    assert any_page.run("return innerWidth") == 360
    assert any_page.run("return document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_in_either_theme(any_page: Opened, emulated: None, theme: str) -> None:
    emulate(any_page.browser, theme=theme)
    any_page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    any_page.run("$('implant').click(); $('silence').click()")
    any_page.type("start", f"{any_page.subject.start} Xylophon ¤")
    assert any_page.run(f"const root = document; {FAINT_TEXTS}") == []


def test_the_theme_can_be_chosen(story: Opened, emulated: None) -> None:
    emulate(story.browser)
    ground = "return getComputedStyle(document.body).backgroundColor"
    assert (story.run(ground), story.text("theme")) == ("rgb(255, 255, 255)", "dark page")
    story.click("theme")
    assert (story.run(ground), story.text("theme")) == ("rgb(22, 24, 28)", "light page")
    emulate(story.browser, theme="dark")
    assert story.run(ground) == "rgb(22, 24, 28)"


def test_every_section_and_control_has_a_name(any_page: Opened) -> None:
    """And every number is explained where it stands."""
    nameless = """const kinds = "button, input, select, textarea, canvas[role], section, [role=listbox], [role=radio]";
    const titleOf = (one) => document.getElementById(one.getAttribute("aria-labelledby"));
    const isNamed = (one) => one.getAttribute("aria-label") || one.labels?.length || one.innerText || titleOf(one);
    return [...document.querySelectorAll(kinds)].filter((one) => !isNamed(one)).map((one) => one.outerHTML);"""
    assert any_page.run(nameless) == []
    assert any_page.run("return [...document.querySelectorAll('section')].every((one) => one.querySelector('details'))")


def test_headings_go_down_one_by_one(story: Opened) -> None:
    levels = story.run("return [...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(any_page: Opened, axe: str, emulated: None, theme: str) -> None:
    emulate(any_page.browser, theme=theme)
    any_page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    any_page.run("$('implant').click(); $('silence').click()")
    any_page.write_on()
    any_page.run(axe)
    script = "const done = arguments[0]; axe.run().then(({ violations }) => done(violations))"
    violations = any_page.browser.execute_async_script(script)
    found = {one["id"]: [node["html"][:200] for node in one["nodes"]] for one in violations}
    assert found == {}, json.dumps(found, indent=1)
