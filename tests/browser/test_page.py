"""A model's page in a browser: its numbers are PyTorch's, its tokens Python's, and every part works by keyboard."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import regex
import torch
from mounted import FAINT_TEXTS, requested, said
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.support.ui import WebDriverWait
from torch import Tensor, nn

from tfbook import page
from tfbook.attention import recording
from tfbook.data import load
from tfbook.data.stories import words_of, written
from tfbook.generation import sampling
from tfbook.models.blocks import Config
from tfbook.models.gpt import GPT2, Gpt
from tfbook.page import Subject
from tfbook.text.tokenizer import Tokenizer
from tfbook.text.vocabulary import BOS, UNK, CharacterVocabulary

pytestmark = pytest.mark.slow

CLOSE = 1e-3
PROSE = "Wer reitet so spät durch Nacht und Wind?\nEs ist der Vater mit seinem Kind. “Yes,” we’ve 12 naïve 🦊s\t\u0085\ufeff"
LEARNED = replace(GPT2, d_model=24, d_ff=40, heads=3, layers=2, max_length=32, dropout=0.0)
ROTARY = replace(LEARNED, heads=2, layers=3, position="rotary")
TEXTS = {
    "words": page.storyteller().start,
    "characters": "Es ist der Vater",
    "bytes": "Nacht und Wind, 🦊 and naïve",
}


def random_gpt(vocab: int, config: Config) -> Gpt:
    """With weights so large that heads look somewhere, and rounded as the page rounds them."""
    torch.manual_seed(1)
    model = Gpt(vocab, config)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.4)
    return model.half().float().eval()


def subjects() -> dict[str, Subject]:
    characters, bytes_ = CharacterVocabulary(PROSE), Tokenizer.learn([PROSE * 3], 300)
    common = {"title": "A <model>", "lead": "Of & in a test.", "longest": 32}
    return {
        "words": page.storyteller(),
        "characters": Subject(
            random_gpt(len(characters), LEARNED),
            characters,
            start=TEXTS["characters"],
            other="Es ist das Kind",
            **common,
        ),
        "bytes": Subject(random_gpt(len(bytes_), ROTARY), bytes_, start=TEXTS["bytes"], other="Wind", **common),
    }


@pytest.fixture(scope="module")
def written_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Subject, Path]]:
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, subject in subjects().items():
        page.write_page(subject, folder / f"{name}.html")
        found[name] = subject, folder / f"{name}.html"
    return found


class Opened:
    """A page in the browser, ready to be used."""

    def __init__(self, browser: Chrome, subject: Subject, path: Path):
        self.browser, self.subject, self.path = browser, subject, path
        browser.get(path.as_uri())
        WebDriverWait(browser, 60).until(lambda chrome: chrome.execute_script("return session !== null"))

    def run(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)

    def text(self, name: str) -> str:
        return self.browser.find_element("id", name).text

    def click(self, name: str) -> None:
        self.browser.find_element("id", name).click()

    def press(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()

    def focus(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).focus()", selector)

    def type(self, name: str, text: str) -> None:
        """Puts a text into a box, as typing does."""
        self.run(
            "const box = $(arguments[0]); box.value = arguments[1]; box.dispatchEvent(new Event('input'));", name, text
        )

    def write_on(self) -> None:
        """Until the text ends."""
        self.click("write")
        WebDriverWait(self.browser, 60).until(lambda _: self.text("write") == "Write on")

    @property
    def ids(self) -> list[int]:
        return self.run("return session.ids")

    @property
    def best(self) -> str:
        """The likeliest next token after the chosen place."""
        return self.run("return document.querySelector('#bars .name').textContent")


@pytest.fixture
def story(browser: Chrome, written_pages: dict[str, tuple[Subject, Path]]) -> Opened:
    return Opened(browser, *written_pages["words"])


@pytest.fixture(params=TEXTS)
def any_page(request: pytest.FixtureRequest, browser: Chrome, written_pages: dict[str, Any]) -> Opened:
    return Opened(browser, *written_pages[request.param])


# ---- every number is PyTorch's ---------------------------------------------------------------------------------------


class Implant(NamedTuple):
    """A vector at a place: of a head's output in a layer, or of the residual stream before it where head is None."""

    layer: int
    head: int | None
    place: int
    vector: Tensor


class Traced(NamedTuple):
    """A text as PyTorch reads it: logits, weights of each layer, heads' outputs side by side, stream before each layer."""

    logits: Tensor
    weights: list[Tensor]
    mixed: list[Tensor]
    stream: list[Tensor]


@torch.no_grad()
def traced(model: Gpt, ids: list[int], silenced: list[tuple[int, int]] = [], implants: list[Implant] = []) -> Traced:  # noqa: B006
    """By hooks on the package's own model."""
    mixed: dict[int, Tensor] = {}
    stream: dict[int, Tensor] = {}
    hooks = []

    def into_stream(layer: int, x: Tensor) -> Tensor:
        x = x.clone()
        for one in implants:
            if one.head is None and one.layer == layer:
                x[0, one.place] = one.vector
        stream[layer] = x[0]
        return x

    def into_heads(layer: int, x: Tensor) -> Tensor:
        x = x.clone().unflatten(-1, (model.stack.blocks[0].mixer.branch.heads, -1))
        for number, head in silenced:
            if number == layer:
                x[:, :, head] = 0
        for one in implants:
            if one.head is not None and one.layer == layer:
                x[0, one.place, one.head] = one.vector
        mixed[layer] = x[0].flatten(1)
        return x.flatten(2)

    for layer, block in enumerate(model.stack.blocks):
        hooks.append(block.register_forward_pre_hook(lambda _, given, layer=layer: (into_stream(layer, given[0]),)))
        output = block.mixer.branch.W_O
        hooks.append(output.register_forward_pre_hook(lambda _, given, layer=layer: (into_heads(layer, given[0]),)))
    last = len(model.stack.blocks)
    hooks.append(model.stack.norm.register_forward_pre_hook(lambda _, given: (into_stream(last, given[0]),)))
    with recording.record(model) as weights:
        logits = model(torch.tensor([ids]))[0]
    for hook in hooks:
        hook.remove()
    order = range(last)
    return Traced(
        logits, [w[0] for w in weights.values()], [mixed[i] for i in order], [stream[i] for i in range(last + 1)]
    )


READ = """
const implants = arguments[2].map((one) => ({ ...one, vector: Float32Array.from(one.vector) }));
const reading = session.model.read(arguments[0], { silenced: new Set(arguments[1]), implants });
const list = (vectors) => vectors.map((vector) => [...vector]);
return {
  logits: list(reading.logits),
  weights: reading.weights.map((heads) => heads.map(list)),
  mixed: reading.mixed.map(list),
  stream: reading.stream.map(list),
  lens: reading.logits.map((_, place) => list(lensOf(session.model, reading, place))),
};
"""


def read_in_page(
    opened: Opened,
    ids: list[int],
    silenced: list[tuple[int, int]] = [],
    implants: list[Implant] = [],  # noqa: B006
) -> dict[str, Any]:
    keys = [f"{layer}.{head}" for layer, head in silenced]
    return opened.run(READ, ids, keys, [one._asdict() | {"vector": one.vector.tolist()} for one in implants])


def assert_same(found: Mapping[str, Any], expected: Traced, model: Gpt) -> None:
    for name, tensors in expected._asdict().items():
        if name != "weights":
            tensors = tensors if isinstance(tensors, Tensor) else torch.stack(tensors)
            torch.testing.assert_close(torch.tensor(found[name]), tensors, atol=CLOSE, rtol=0)
    for layer, weights in enumerate(expected.weights):
        for head, rows in enumerate(found["weights"][layer]):
            for place, row in enumerate(rows):
                torch.testing.assert_close(torch.tensor(row), weights[head, place, : place + 1], atol=CLOSE, rtol=0)
    with torch.no_grad():
        lens = model.unembed(model.stack.norm(torch.stack(expected.stream, dim=1))).softmax(-1)
    torch.testing.assert_close(torch.tensor(found["lens"]), lens, atol=CLOSE, rtol=0)


def test_logits_attention_and_lens_are_pytorchs(any_page: Opened) -> None:
    model, ids = any_page.subject.model, any_page.ids
    assert len(ids) > 10
    assert_same(read_in_page(any_page, ids), traced(model, ids), model)


def test_silenced_heads_give_pytorchs_numbers(any_page: Opened) -> None:
    model, ids = any_page.subject.model, any_page.ids
    silenced = [(0, 1), (1, 0)]
    expected = traced(model, ids, silenced)
    assert (expected.logits - traced(model, ids).logits).abs().max() > 0.1, "otherwise there is nothing to see"
    assert_same(read_in_page(any_page, ids, silenced), expected, model)


def test_implants_give_pytorchs_numbers(any_page: Opened) -> None:
    """Of a head's output, of the stream between blocks, of an embedding and of the last stream, with a silenced head."""
    model, ids = any_page.subject.model, any_page.ids
    other = traced(model, ids[::-1])
    width, last = other.mixed[0].shape[1] // model.stack.blocks[0].mixer.branch.heads, len(other.mixed)
    implants = [
        Implant(1, 0, 4, other.mixed[1][2, :width]),
        Implant(1, None, 3, other.stream[1][5]),
        Implant(0, None, 2, other.stream[0][6]),
        Implant(last, None, 7, other.stream[last][1]),
    ]
    expected = traced(model, ids, [(0, 0)], implants)
    assert (expected.logits[-1] - traced(model, ids).logits[-1]).abs().max() > 0.1
    assert_same(read_in_page(any_page, ids, [(0, 0)], implants), expected, model)


def test_a_reading_that_goes_on_equals_one_from_the_start(any_page: Opened) -> None:
    """After a token was taken away and others came, with heads silenced and without."""
    model = any_page.subject.model
    silenced = [(1, 1)]
    any_page.run("session.toggleSilence(1, 1); session.at -= 3; session.chooseNext(5); session.step(); session.step()")
    ids = any_page.ids
    for name, expected in (("reading", traced(model, ids, silenced)), ("original", traced(model, ids))):
        found = torch.tensor(any_page.run(f"return session.{name}.logits.map((row) => [...row])"))
        torch.testing.assert_close(found, expected.logits, atol=CLOSE, rtol=0)


def test_what_the_page_shows_is_what_pytorch_computes(story: Opened) -> None:
    """Bars and the lens, from the words on the page."""
    model, vocabulary = story.subject.model, story.subject.vocabulary
    ids = [BOS, *vocabulary.encode(words_of(TEXTS["words"]))]
    assert story.ids == ids
    shares, best = traced(model, ids).logits[-1].softmax(-1).topk(10)
    names = story.run("return [...document.querySelectorAll('#bars .name')].map((one) => one.textContent)")
    assert names == [vocabulary.tokens[number] for number in best]
    widths = story.run("return [...document.querySelectorAll('#bars .line')].map((one) => parseFloat(one.style.width))")
    assert widths == pytest.approx((100 * shares).tolist(), abs=0.1)
    last = story.run("return [...document.querySelectorAll('#lens tr:last-child td')].map((one) => one.textContent)")
    assert last[0].startswith(names[0])
    assert last[-1] == last[0]


# ---- tokens are Python's ---------------------------------------------------------------------------------------------


def drawn_texts(letters: str, count: int) -> list[str]:
    dice = random.Random(0)
    return ["".join(dice.choices(letters, k=dice.randint(0, 40))) for _ in range(count)]


def test_words_are_those_of_python(story: Opened) -> None:
    """Of stories and of letters at random; what the world cannot say is one unknown word each."""
    vocabulary = story.subject.vocabulary
    letters = " abIAnn“”\"'.,:!?-_\n\t19éßﬁİı🦊\u0301\u2028" + "Lily fox "
    texts = [*load("stories")["test"][:200], *drawn_texts(letters, 1000), PROSE, "LILY lily Lily i I caught", ""]
    expected = [[BOS, *vocabulary.encode(words_of(text))] for text in texts]
    assert story.run("return arguments[0].map((text) => session.tokenizer.encode(text))", texts) == expected
    assert sum(UNK in ids for ids in expected) > 100
    joined = story.run("return arguments[0].map((ids) => session.tokenizer.pieces(ids).join(''))", expected)
    assert joined == [written(vocabulary.tokens[number] for number in ids[1:]) for ids in expected]
    assert joined[:200] == texts[:200]


def test_characters_are_those_of_python(browser: Chrome, written_pages: dict[str, Any]) -> None:
    """Unknown ones are refused on both sides, by the same name."""
    opened = Opened(browser, *written_pages["characters"])
    vocabulary = opened.subject.vocabulary
    for text in [*drawn_texts(PROSE, 100), *drawn_texts(f"{PROSE}xXé😀", 100)]:
        script = "try { return session.tokenizer.encode(arguments[0]) } catch (error) { return error.message }"
        found = opened.run(script, text)
        try:
            assert found == vocabulary.encode(text).tolist()
            assert opened.run("return session.tokenizer.pieces(arguments[0]).join('')", found) == text
        except ValueError as error:
            assert found.split("“")[1][:1] == str(error).split("'")[1][:1]


def test_byte_pairs_are_those_of_python(browser: Chrome, written_pages: dict[str, Any]) -> None:
    opened = Opened(browser, *written_pages["bytes"])
    tokenizer = opened.subject.vocabulary
    spaces = " \n\t\x1c\x85\xa0\u2003\u2028\u3000\ufeff"
    texts = [
        *drawn_texts(PROSE, 300),
        *drawn_texts(f"{spaces} der 12½²'s'LL", 500),
        *drawn_texts("日本語é́😀👩‍🚀 ", 200),
    ]
    expected = [tokenizer.encode(text) for text in texts]
    assert opened.run("return arguments[0].map((text) => session.tokenizer.encode(text))", texts) == expected
    joined = opened.run("return arguments[0].map((ids) => session.tokenizer.pieces(ids).join(''))", expected)
    assert joined == texts
    cut = expected[-1][:-1]  # a character may miss its last byte
    assert opened.run("return session.tokenizer.pieces(arguments[0]).join('')", cut) == tokenizer.decode(cut)
    assert "surrogate" in opened.run(
        "try { session.tokenizer.encode('a\\ud800') } catch (error) { return error.message }"
    )


def test_letters_and_spaces_are_those_of_the_pattern(browser: Chrome, written_pages: dict[str, Any]) -> None:
    """In all of Unicode, but for what one side's version of it does not know yet."""
    opened = Opened(browser, *written_pages["bytes"])
    script = """const found = []; const kind = new RegExp(arguments[0], "u");
    for (let code = 0; code < 0x110000; code += 1) if (kind.test(String.fromCodePoint(code))) found.push(code);
    return found;"""
    for name, ours in (("L", r"\p{L}"), ("N", r"\p{N}"), ("White_Space", r"\s")):
        pattern = regex.compile(ours)
        expected = {code for code in range(0x110000) if pattern.match(chr(code))}
        found = set(opened.run(script, f"\\p{{{name}}}"))
        assert len(found) > 20
        assert {code for code in found ^ expected if unicodedata.category(chr(code)) != "Cn"} == set()


# ---- sampling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [(0.7, 700, 1.0), (1.0, 5, 1.0), (1.3, 700, 0.9), (1.0, 20, 0.5), (1.9, 3, 0.3)])
def test_filters_are_those_of_python(story: Opened, settings: tuple[float, int, float]) -> None:
    """Temperature, top-k and top-p one after the other, on the model's own logits."""
    temperature, k, p = settings
    script = "return [...filtered(session.reading.logits[arguments[0]], arguments[1])]"
    for place in (0, 5, 20, 30):
        logits = torch.tensor([story.run("return [...session.reading.logits[arguments[0]]]", place)])
        expected = logits
        for keep in (sampling.temperature(temperature), sampling.top_k(k), sampling.top_p(p)):
            expected = keep(expected, torch.zeros(1, 0, dtype=torch.int64))
        found = story.run(script, place, {"temperature": temperature, "k": k, "p": p})
        torch.testing.assert_close(torch.tensor([found]), expected.softmax(-1), atol=1e-5, rtol=0)


def test_temperature_0_takes_the_likeliest(story: Opened) -> None:
    greedy = story.run("session.settings.temperature = 0; while (session.step()); return session.ids")
    logits = traced(story.subject.model, greedy).logits
    begun = len(words_of(TEXTS["words"]))
    assert logits[begun:-1].argmax(-1).tolist() == greedy[begun + 1 :]
    assert greedy[-1] in story.subject.vocabulary.encode([".", "”", "!"])


def test_samples_follow_the_probabilities(story: Opened) -> None:
    script = """const counts = {}; const shares = [0.5, 0, 0.3, 0.2];
    for (let i = 0; i < 4000; i += 1) { const id = drawFrom(shares, session.random()); counts[id] = (counts[id] ?? 0) + 1; }
    return counts;"""
    counts = story.run(script)
    assert set(counts) == {"0", "2", "3"}
    assert counts["0"] / 4000 == pytest.approx(0.5, abs=0.04)
    assert counts["2"] / 4000 == pytest.approx(0.3, abs=0.04)


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
    """An implant alone makes the story go on with a name that it never mentioned; a silenced head alone makes it forget."""
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
    assert "At place 10 of 45, “who”" in story.text("status")
    assert story.text("next-lead") == "After “… a shy fox named Lily who”"
    for key, place in (
        (Keys.ARROW_LEFT, 9),
        (Keys.END, 45),
        (Keys.ARROW_RIGHT, 45),
        (Keys.HOME, 1),
        (Keys.ARROW_DOWN, 2),
    ):
        story.press(key)
        assert f"At place {place} of 45" in story.text("status")
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
    assert other.text("notice").startswith("The text holds “X”, which is none of the ")
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
    assert "the most that the model has seen in training" in story.text("status")
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
    assert "At place 23 of 45" in story.text("status")


# ---- for every reader ------------------------------------------------------------------------------------------------


def emulate(browser: Chrome, *, width: int = 1200, height: int = 1400, theme: str = "light") -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture
def emulated(browser: Chrome) -> Any:
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
    any_page.run(
        "$('implant').click(); $('silence').click(); $('start').value += '¤'; $('start').dispatchEvent(new Event('input'))"
    )
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
    nameless = """return [...document.querySelectorAll("button, input, select, textarea, canvas[role], section, [role=listbox]")]
    .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim()
      || document.getElementById(one.getAttribute("aria-labelledby")))).map((one) => one.outerHTML)"""
    assert any_page.run(nameless) == []
    assert any_page.run("return [...document.querySelectorAll('section')].every((one) => one.querySelector('details'))")


def test_headings_go_down_one_by_one(story: Opened) -> None:
    levels = story.run("return [...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, which is fetched for this test alone."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("needs npm, which fetches axe-core")
    command = [npm, "install", "--prefix", str(folder), "--fetch-retries=0", "--fetch-timeout=20000", "axe-core@4"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not get axe-core in 90 seconds")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.exists():
        pytest.skip(f"npm does not get axe-core: {done.stderr.strip().splitlines()[-1:]}")
    return script.read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(any_page: Opened, axe: str, emulated: None, theme: str) -> None:
    emulate(any_page.browser, theme=theme)
    any_page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    any_page.run("$('implant').click(); $('silence').click()")
    any_page.run(axe)
    script = "const done = arguments[0]; axe.run().then(({ violations }) => done(violations))"
    violations = any_page.browser.execute_async_script(script)
    found = {one["id"]: [node["html"][:200] for node in one["nodes"]] for one in violations}
    assert found == {}, json.dumps(found, indent=1)
