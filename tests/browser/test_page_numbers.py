"""A model's page in a browser: every number is PyTorch's, every token Python's."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import regex
import torch
from opened_page import PROSE, TEXTS, Implant, Opened, Traced, traced
from selenium.webdriver import Chrome
from torch import Tensor

from tfbook.data import load
from tfbook.data.stories import words_of, written
from tfbook.generation import sampling
from tfbook.models.gpt import Gpt
from tfbook.text.vocabulary import BOS, UNK

pytestmark = pytest.mark.slow

CLOSE = 1e-3


# ---- every number is PyTorch's ---------------------------------------------------------------------------------------


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
    silenced: Sequence[tuple[int, int]] = (),
    implants: Sequence[Implant] = (),
) -> dict[str, Any]:
    keys = [f"{layer}.{head}" for layer, head in silenced]
    return opened.run(READ, ids, keys, [one._asdict() | {"vector": one.vector.tolist()} for one in implants])


def assert_same(found: Mapping[str, Any], expected: Traced, model: Gpt) -> None:
    for name, tensors in expected._asdict().items():
        if name != "weights":
            tensors = tensors if isinstance(tensors, Tensor) else torch.stack(tensors)
            torch.testing.assert_close(torch.tensor(found[name], dtype=torch.float32), tensors, atol=CLOSE, rtol=0)
    for layer, weights in enumerate(expected.weights):
        for head, rows in enumerate(found["weights"][layer]):
            for place, row in enumerate(rows):
                row = torch.tensor(row, dtype=torch.float32)
                torch.testing.assert_close(row, weights[head, place, : place + 1], atol=CLOSE, rtol=0)
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
    """Of a head's output, the stream between blocks, an embedding and the last stream, beside a silenced head."""
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
    last = story.run(
        "return [...document.querySelectorAll('#lens tbody tr:last-child td')].map((one) => one.textContent)"
    )
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
    script = "try { return session.tokenizer.encode(arguments[0]) } catch (error) { return error.message }"
    known, unknown = drawn_texts(PROSE, 100), [f"{text}X" for text in drawn_texts(f"{PROSE}xXé😀", 100)]
    for text in known:
        found = opened.run(script, text)
        assert found == vocabulary.encode(text).tolist()
        assert opened.run("return session.tokenizer.pieces(arguments[0]).join('')", found) == text
    for text in unknown:
        with pytest.raises(ValueError, match="which is none of the") as refused:
            vocabulary.encode(text)
        assert opened.run(script, text).split("“")[1][0] == str(refused.value).split("'")[1]


def test_byte_pairs_are_those_of_python(browser: Chrome, written_pages: dict[str, Any]) -> None:
    opened = Opened(browser, *written_pages["bytes"])
    tokenizer = opened.subject.vocabulary
    spaces = " \n\t\x1c\x85\xa0\u2003\u2028\u3000\ufeff"
    texts = [
        *drawn_texts(PROSE, 300),
        *drawn_texts(f"{spaces} der 12½²'s'LL", 500),
        *drawn_texts("日本語é́😀👩‍🚀 ", 200),
        *drawn_texts("oooh ", 200),  # where equal pairs overlap, the left one is merged
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
        torch.testing.assert_close(torch.tensor([found], dtype=torch.float32), expected.softmax(-1), atol=1e-5, rtol=0)


def test_temperature_0_takes_the_likeliest(story: Opened) -> None:
    greedy = story.run("session.settings.temperature = 0; while (session.step()); return session.ids")
    logits = traced(story.subject.model, greedy).logits
    begun = len(words_of(TEXTS["words"]))
    assert logits[begun:-1].argmax(-1).tolist() == greedy[begun + 1 :]
    assert greedy[-1] in story.subject.vocabulary.encode([".", "”", "!"])


def test_samples_follow_the_probabilities(story: Opened) -> None:
    """Within five standard deviations."""
    script = "return Array.from({ length: 4000 }, () => drawFrom(arguments[0], session.random()))"
    drawn = story.run(script, [0.5, 0, 0.3, 0.2])
    assert {number: drawn.count(number) / 4000 for number in range(4)} == pytest.approx(
        {0: 0.5, 1: 0, 2: 0.3, 3: 0.2}, abs=0.04
    )
