"""Time in proportion to the text, whatever it is made of, and memory within a stated bound."""

import gc
import random
import time
import tracemalloc
from collections.abc import Callable

import pytest

from tfbook.data.text import decode_text
from tfbook.text import (
    CharacterVocabulary,
    Tokenizer,
    Unigram,
    Vocabulary,
    WordPiece,
    detokenize,
    learn_merges,
    pre_tokenize,
    tokenize,
    tokenizer as module,
)

MOST = 8  # times as long for four times the text; quadratic time is 16 times as long


def letters(count: int) -> str:
    return "".join(random.Random(0).choices("etaoinsrhld", k=count))


def words(count: int) -> str:
    """Many different ones."""
    run = letters(count)
    return " ".join(run[start : start + 6] for start in range(0, count, 6))


TEXTS: dict[str, Callable[[int], str]] = {
    "a long word": letters,
    "one letter": lambda count: "a" * count,
    "spaces": lambda count: " " * count,
    "many words": words,
    "marks": lambda count: "it's-n't' 1,2. <s>" * (count // 18),
}
BASE = Tokenizer.learn([words(20_000)], 600, specials=["<s>", "<pad>"])
PIECES, UNIGRAM = WordPiece.learn([words(20_000)], 150), Unigram.learn([words(6000)], 150)


def fresh() -> Tokenizer:
    """Without anything in its cache."""
    return Tokenizer(BASE.tokens, BASE.merges, BASE.specials)


WORK: dict[str, tuple[Callable[[str], object], int]] = {
    "BPE learns": (lambda text: learn_merges([text], 320), 10_000),
    "BPE encodes": (lambda text: fresh().encode(text), 20_000),
    "BPE encodes specials": (lambda text: fresh().encode(text.replace("e", "<s>"), specials=True), 10_000),
    "BPE decodes": (lambda text: BASE.decode(BASE.encode(text)), 20_000),
    "WordPiece learns": (lambda text: WordPiece.learn([text], 60, min_count=1), 1_000),
    "WordPiece encodes": (PIECES.encode, 10_000),
    "unigram learns": (lambda text: Unigram.learn([text], 60), 2_000),
    "unigram encodes": (UNIGRAM.encode, 10_000),
    "chunks": (pre_tokenize, 50_000),
    "English words": (lambda text: detokenize(tokenize(text, "english"), "english"), 20_000),
    "French words": (lambda text: detokenize(tokenize(text, "french"), "french"), 20_000),
    "characters": (lambda text: CharacterVocabulary(text).encode(text), 50_000),
    "a vocabulary": (lambda text: Vocabulary([["a"], text.split()]).encode(text.split()), 50_000),
    "a file": (lambda text: decode_text(text.encode(), "file"), 500_000),
}


def seconds(work: Callable[[str], object], text: str) -> float:
    """The shortest of three times; the collector, whose work depends on what other tests left, waits."""
    times = []
    gc.disable()
    try:
        for _ in range(3):
            start = time.process_time()
            work(text)
            times.append(time.process_time() - start)
    finally:
        gc.enable()
    return min(times)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("work", WORK)
def test_four_times_the_text_takes_about_four_times_as_long(work: str, text: str) -> None:
    do, size = WORK[work]
    do(TEXTS[text](1000))  # what is set up once
    assert seconds(do, TEXTS[text](4 * size)) < MOST * seconds(do, TEXTS[text](size)) + 0.003


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("text", ["many words", "a long word"])
def test_the_cache_of_a_tokenizer_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """As the memory that is really taken, for many chunks and for long ones; and the ids stay right."""
    limit = 2**19
    monkeypatch.setattr(module, "CACHED_BYTES", limit)
    made, part = fresh(), 10_000
    content = TEXTS[text](20 * part)
    expected = fresh().encode(content[:part])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for start in range(0, len(content), part):
            made.encode(content[start : start + part])
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 1.2 * limit
    assert made._ids_of.bytes <= limit
    assert made.encode(content[:part]) == expected


def test_a_cache_keeps_what_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = fresh()
    made.encode(words(3000))
    assert len(made._ids_of) == len(set(pre_tokenize(words(3000))))
    monkeypatch.setattr(module, "CACHED_BYTES", 100)
    assert fresh().encode("a long chunk") == made.encode("a long chunk")
