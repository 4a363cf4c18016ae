"""The tokenizer's view as Python writes it: a table of steps, data for the script, the same every time.

What the script makes of it is tested in a browser (tests/browser).
"""

import pytest
from html_pages import HOSTILE, Page, needs_nothing

from tfbook import plot
from tfbook.plot import bpe_view, visible
from tfbook.plot.views.bpe import MAX_MERGES, MAX_TEXT, PATTERN, steps
from tfbook.text import GPT2_PATTERN, Tokenizer, learn_merges
from tfbook.text.byte_level import BYTES

LEARNED = learn_merges(["sing ring ring king spring"], 260)
MERGES = LEARNED.merges


def spell(merges: list[tuple[int, int]]) -> list[bytes]:
    """The bytes of each token; a merge of what is not there makes nothing."""
    tokens = list(BYTES)
    for pair in merges:
        tokens.append(b"".join(tokens[number] for number in pair if 0 <= number < len(tokens)))
    return tokens


def page(merges: list[tuple[int, int]], text: str) -> Page:
    return Page(bpe_view(spell(merges), merges, text)._repr_html_())


def test_the_pattern_is_gpt_2s() -> None:
    assert PATTERN == GPT2_PATTERN


def test_a_step_is_a_merge_that_changes_something() -> None:
    found = [(made, sum(map(len, words))) for made, words in steps(LEARNED.tokens, MERGES, "bringing rap")]
    assert [made for made, _ in found] == [None, 256, 257, 258]
    assert [count for _, count in found] == [12, 10, 8, 7]


def test_the_last_step_is_what_the_tokenizer_returns() -> None:
    text = "It's 12\n\n 3 naïve 🍓  ring"
    tokenizer = Tokenizer.learn(["sing ring ring king spring, it's naïve"], 280)
    *_, (_, words) = steps([*tokenizer.tokens.values()], tokenizer.merges, text)
    assert [number for word in words for number in word] == tokenizer.encode(text)


def test_the_data_holds_the_bytes_in_their_order_and_the_merges() -> None:
    data = page(MERGES, "ringing").data
    assert data["text"] == "ringing"
    assert data["merges"] == [number for pair in MERGES for number in pair]
    assert len(data["bytes"]) == 344


def test_the_table_shows_the_steps() -> None:
    """It is what remains where scripts do not run: on GitHub, in a notebook that is not trusted."""
    rows = page(MERGES, "bringing é").rows
    assert rows[0][1:] == ["merge", "tokens", "text"]
    assert rows[1] == ["0 of 3", "bytes", "11", "b|r|i|n|g|i|n|g|␣|c3|a9"]
    assert rows[-1] == ["3 of 3", "ring", "6", "b|ring|ing|␣|c3|a9"]


def test_a_long_text_shows_some_of_its_steps() -> None:
    text = "the quick brown fox jumps over the lazy dog and runs away from the other dogs again"
    rows = page(learn_merges([text], 300).merges, text).rows
    assert len(rows) == 13
    assert [rows[1][0].split()[0], rows[-1][0].split()[0]] == ["0", rows[-1][0].split()[-1]]


def test_without_merges_there_are_bytes() -> None:
    assert page([], "ab").rows[1:] == [["0 of 0", "bytes", "2", "a|b"]]


@pytest.mark.parametrize("text", HOSTILE)
def test_the_text_is_text_whatever_it_holds(text: str) -> None:
    """No tag, attribute or script that it could open, in the table and in the data; MathJax leaves it alone."""
    hostile, plain = page([], text), page([], "abc")
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.data["text"] == text
    assert hostile.script == plain.script
    assert "mathjax_ignore" in hostile.tags[0][1]["class"].split()


def test_the_page_needs_nothing_from_elsewhere() -> None:
    needs_nothing(page(MERGES, "ringing"))


def test_it_is_the_same_every_time_and_short_as_text() -> None:
    """nbval compares both kinds of output."""
    first, second = (bpe_view(LEARNED.tokens, MERGES, "ringing") for _ in range(2))
    assert first._repr_html_() == second._repr_html_()
    assert repr(first) == repr(second) == "BpeView(merges=4, text='ringing')"
    assert bpe_view is plot.bpe_view


def test_the_largest_stays_below_90_kilobytes() -> None:
    merges = [(i % 256, 255 + i) for i in range(MAX_MERGES)]
    assert len(bpe_view(spell(merges), merges, "é" * MAX_TEXT)._repr_html_().encode()) < 90_000


@pytest.mark.parametrize(
    ("merges", "text", "message"),
    [
        ([(0, 1)] * (MAX_MERGES + 1), "a", "merges holds 5,001; expected at most 5,000"),
        ([(0, 1), (3, 257)], "a", r"merge 2 is \(3, 257\); expected two earlier ids that spell token 257"),
        ([(-1, 1)], "a", r"merge 1 is \(-1, 1\); expected two earlier ids that spell token 256"),
        ([], "", "text has 0 characters; expected 1 to 200"),
        ([], "a" * 201, "text has 201 characters"),
        ([], "a\ud83e", "surrogates not allowed"),
    ],
    ids=["too many", "not yet", "negative", "empty", "long", "half a character"],
)
def test_what_does_not_fit_is_named(merges: list[tuple[int, int]], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bpe_view(spell(merges), merges, text)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (LEARNED.tokens[1:], "does not begin with the 256 single bytes"),
        (LEARNED.tokens[:-1], "tokens holds 259; expected 260, the bytes and a token per merge"),
        ([*LEARNED.tokens[:-1], b"?!"], r"merge 4 is \(.*\); expected two earlier ids that spell token 259"),
    ],
    ids=["no bytes", "too few", "another token"],
)
def test_tokens_have_to_be_those_of_the_merges(tokens: list[bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bpe_view(tokens, MERGES, "a")


@pytest.mark.parametrize(
    ("token", "expected"),
    [(b" the", "␣the"), (b"\n\t", "↵⇥"), ("é".encode(), "é"), (b"\xf0\x9f", "f0 9f"), (b"", "")],
)
def test_a_token_can_be_seen(token: bytes, expected: str) -> None:
    assert visible(token) == expected
