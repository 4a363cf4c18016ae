"""Exercises of lesson 07: byte-pair encoding from counting pairs to a whole learner and encoder, streams, a bug."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from tfbook.course.exercises import exercise
from tfbook.lessons.tokenizers.first_exercises import (
    Pair,
    Words,
    counted_pairs,
    drawn,
    encoded,
    merged as merged,
    merged_once,
    next_merge as next_merge,
    pairs,
)

# ---- the whole training loop -------------------------------------------------------------------------------------


def _words_and_counts() -> list[tuple[Words, int]]:
    return [
        ({tuple("sing"): 1, tuple("ring"): 2, tuple("king"): 1, tuple("spring"): 1}, 4),
        ({tuple("banana"): 2, tuple("bandana"): 1}, 5),
        ({tuple("aaab"): 3, tuple("ba"): 4, tuple("c"): 9}, 3),
        ({tuple("aba"): 1, tuple("abc"): 1, tuple("bc"): 1, tuple("cab"): 1}, 3),
        ({tuple("ab"): 2}, 3),  # no pair is left after the first merge
        ({tuple("ab"): 1}, 0),
        ({}, 2),
        ({tuple("Ac"): 1, tuple("Ab"): 1, tuple("ab"): 1}, 1),  # a tie that only the whole pair decides
        ({("ab", "c"): 2, ("a", "bc"): 1, ("a", "!"): 3}, 3),  # the second pair is not the first, though spelled alike
        ({tuple(drawn("aAb", 6, seed)): 1 + seed % 3 for seed in range(8)}, 12),
        ({tuple("abab"): 1, tuple("ab"): 1, tuple("xy"): 2, tuple("xyz"): 1}, 2),
    ]


@exercise(
    cases=_words_and_counts,
    hints=[
        "A loop over `range(count)` with three steps: count the pairs of the words as they are now, take the best one, "
        "and write all words with it.",
        "`words = {merge(word, best, best[0] + best[1]): times for word, times in words.items()}`, with the `merge` of "
        "this page. When there are no pairs left, stop.",
    ],
)
def learned(words: Words, count: int) -> list[Pair]:
    def merge(word: tuple[str, ...], pair: Pair) -> tuple[str, ...]:
        tokens: list[str] = []
        for token in word:
            if tokens and (tokens[-1], token) == pair:
                tokens[-1] += token
            else:
                tokens.append(token)
        return tuple(tokens)

    merges: list[Pair] = []
    for _ in range(count):
        counts: Counter[Pair] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                counts[pair] += times
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        words = {merge(word, best): times for word, times in words.items()}
        merges.append(best)
    return merges


def _learned(
    words: Words,
    count: int,
    *,
    best: Callable[[Counter[Pair]], Pair] = lambda counts: min(counts, key=lambda pair: (-counts[pair], pair)),
    merge: Callable[..., list[str]] = lambda word, pair, new: encoded.reference(word, [pair]),
    weigh: Callable[[int], int] = lambda times: times,
    least: int = 1,
) -> list[Pair]:
    merges: list[Pair] = []
    while len(merges) < count and (counts := pairs({word: weigh(times) for word, times in words.items()})):
        pair = best(counts)
        if counts[pair] < least:
            break
        words = {tuple(merge(list(word), pair, "".join(pair))): times for word, times in words.items()}
        merges.append(pair)
    return merges


learned.mistakes(
    {
        "one merge too many: stop when there are `count`": (lambda words, count: learned.reference(words, count + 1)),
        "the pairs are counted once and then taken in order; every merge changes the words, so count them again": (
            lambda words, count: [pair for pair, _ in counted_pairs.reference(words)[:count]]
        ),
        "each different word counts once; its pairs are as frequent as the word is": partial(
            _learned, weigh=lambda times: 1
        ),
        "right but for ties: among pairs that are equally frequent the smaller one wins, not the one met first": (
            partial(_learned, best=lambda counts: counts.most_common(1)[0][0])
        ),
        "among pairs that are equally frequent the larger one wins here; it should be the smaller one": (
            partial(_learned, best=lambda counts: max((times, pair) for pair, times in counts.items())[1])
        ),
        "only the first place in a word is merged; the pair may occur in it several times": (
            partial(_learned, merge=merged_once)
        ),
        "these are the tokens; return the pairs that they are made of, or an encoder will not know what to merge": (
            lambda words, count: list(map("".join, learned.reference(words, count)))
        ),
        "you stop where the best pair occurs only once; stop early only where no pair is left": (
            partial(_learned, least=2)
        ),
        "ties are broken by the joined string: compare the pairs themselves, in which ('a', 'bc') < ('ab', 'a')": (
            partial(_learned, best=lambda counts: min(counts, key=lambda pair: (-counts[pair], "".join(pair))))
        ),
        "one merge is missing at the end: `count` merges, if there are that many": (
            lambda words, count: learned.reference(words, count - 1)
        ),
    }
)

# ---- decode a stream ---------------------------------------------------------------------------------------------


# characters of one to four bytes, beginnings of such, and a byte that begins none
_PIECES = [b"a", b"\xff", *map(str.encode, "é€🤖"), b"\xc3", b"\xe2", b"\xe2\x82", b"\xf0\x9f", b"\xa4"]


def _streams() -> list[tuple[list[bytes]]]:
    robot, tea, euro = "🤖".encode(), "thé".encode(), "€".encode()
    return [
        ([b"I ", robot[:2], robot[2:3], robot[3:], b"!"],),
        ([tea[:3], tea[3:] + b" ", robot[:1], robot[1:] + robot[:3], robot[3:]],),
        ([b"a", b"\xff", b"b", robot[:2], b"c"],),
        ([b"end ", robot[:3]],),
        ([robot[:2], b""],),  # unfinished at the end, and nothing new
        ([euro[:2], euro[2:], euro[:2]],),  # the last token stands there before
        ([b"\xff" + robot[:2], robot[2:]],),
        ([b"", robot[:3], b"", robot[3:]],),
        ([euro[:1], euro[1:2], euro[2:] + euro[:2], b"."],),  # three bytes
        ([b"a\xa9", b"\x80b", tea[3:4], b"\x80\xbf"],),  # continuation bytes that continue nothing
        ([b"\xc0", b"\xafx", b"\xc1\x81", b"\xf5", b"\x80"],),  # bytes that start no character
        ([b"\xef\xbb", b"\xbf\r", b"\n\0\xef\xbf\xbd"],),  # a byte-order mark, a line's end and U+FFFD are characters
        ([b"".join(drawn(_PIECES, 3, seed)) for seed in range(30)],),
        ([],),
    ]


@exercise(
    cases=_streams,
    hints=[
        "A character of UTF-8 has up to four bytes, and a token may end in the midst of one. What may be printed now, "
        "and what has to wait for the next token?",
        "Python has such a decoder: `codecs.getincrementaldecoder('utf-8')(errors='replace')`. Its `.decode(token)` "
        "remembers what is unfinished; `final=True` says that nothing follows.",
    ],
)
def streamed(tokens: list[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(token, final=i == len(tokens) - 1) for i, token in enumerate(tokens)]


_Decoder = codecs.getincrementaldecoder("utf-8")


def _held_back(tokens: list[bytes], *, waits: Callable[[bytes], bool]) -> list[str]:
    """Shows nothing while the bytes that are kept should wait, and at the end whatever there is."""
    shown, kept = [], b""
    for place, token in enumerate(tokens, start=1):
        kept += token
        more = place < len(tokens) and waits(kept)
        shown.append("" if more else kept.decode("utf-8", errors="replace"))
        kept = kept if more else b""
    return shown


def _replaced_byte_by_byte(tokens: list[bytes]) -> list[str]:
    decoder = _Decoder("surrogateescape")
    single = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")  # what stands for a byte that does not decode
    return [decoder.decode(token, final=i == len(tokens) - 1).translate(single) for i, token in enumerate(tokens)]


def _with_the_rest_apart(tokens: list[bytes]) -> list[str]:
    decoder = _Decoder("replace")
    texts = [*map(decoder.decode, tokens), decoder.decode(b"", final=True)]
    return texts if texts[-1] else texts[:-1]


def _cut_off_by_length(tokens: list[bytes]) -> list[str]:
    texts = [b"".join(tokens[:end]).decode("utf-8", errors="replace") for end in range(len(tokens) + 1)]
    return [text[len(before) :] for before, text in pairwise(texts)]


streamed.mistakes(
    {
        "one string too many: what is left at the end belongs to the last token's string": (
            lambda tokens: [
                *map((decoder := _Decoder(errors="replace")).decode, tokens),
                decoder.decode(b"", final=True),
            ]
        ),
        (
            "each token is decoded alone, so half a character becomes U+FFFD, and so does its other half: keep the "
            "bytes of an unfinished character until the next token"
        ): lambda tokens: [token.decode("utf-8", errors="replace") for token in tokens],
        "characters that two tokens share are lost: keep their bytes instead of ignoring them": (
            lambda tokens: [token.decode("utf-8", errors="ignore") for token in tokens]
        ),
        "the text is right, and comes all at once at the end; show what is whole as soon as it is": (
            partial(_held_back, waits=lambda kept: True)
        ),
        (
            "one byte that belongs to no character holds back all that follows: what can never become whole is U+FFFD "
            "at once"
        ): partial(_held_back, waits=lambda kept: "\ufffd" in kept.decode("utf-8", errors="replace")),
        (
            "an unfinished character at the end of a token holds back the whole ones before it: print 'th' while 'é' "
            "is half there"
        ): partial(_held_back, waits=lambda kept: _Decoder("replace").decode(kept) != kept.decode("utf-8", "replace")),
        "what cannot become a character is left out: each byte of that kind and each broken start is one U+FFFD": (
            lambda tokens: list(map(_Decoder("ignore").decode, tokens))
        ),
        "each byte of a broken character is one U+FFFD; its start, however many bytes, is one in all": (
            _replaced_byte_by_byte
        ),
        "one string for each token: what is left at the end belongs to the last one, not into a string of its own": (
            _with_the_rest_apart
        ),
        "the bytes that are left at the end are lost: nothing follows, so they become U+FFFD": (
            lambda tokens: list(map(_Decoder("replace").decode, tokens))
        ),
        (
            "what is new is cut off by length: an unfinished character was shown as U+FFFD, and the whole one has the "
            "same length, so it never appears"
        ): _cut_off_by_length,
    }
)

# ---- find the bug ------------------------------------------------------------------------------------------------


def _spelled_words() -> list[tuple[list[str], str, str]]:
    return [
        (["n e w e s t", "s e e s"], "e", "s"),
        (["n e w e st", "w i d e st", "th e s e", "e s e s"], "e", "s"),
        (["a b a b a b", "ca b", "a ba"], "a", "b"),
        (["a a a a a", "aa a a"], "a", "a"),
        ([". e s", "a e . b", "e . . e"], "e", "."),
        (["1 21 11 2 1 2", "1"], "1", "2"),
        (["b a", "a b", "b a"], "b", "a"),  # a word that repeats
        ([r"\ n a", r"a \ n"], "\\", "n"),
        (["a bc ab c", "AB c"], "ab", "c"),  # a, bc and AB, c are other pairs
        ([" ".join(drawn(["a", "b", "ab"], 12, seed)) for seed in range(6)], "a", "b"),
    ]


@exercise(
    cases=_spelled_words,
    hints=[
        "Try it on `'n e w e st'` and the pair `e`, `s`. Which two tokens did it join?",
        "`replace` looks for letters and has no notion of tokens. `word.split(' ')` gives the tokens; then do as in "
        "exercise 2.",
    ],
)
def merged_words(words: list[str], first: str, second: str) -> list[str]:
    merged = []
    for word in words:
        tokens, i = word.split(" "), 0
        while i < len(tokens) - 1:
            if (tokens[i], tokens[i + 1]) == (first, second):
                tokens[i : i + 2] = [first + second]
            i += 1
        merged.append(" ".join(tokens))
    return merged


@merged_words.given
def _(words: list[str], first: str, second: str) -> list[str]:
    return [word.replace(f"{first} {second}", first + second) for word in words]


def _joined(pattern: Callable[[str, str], str]) -> Callable[[list[str], str, str], list[str]]:
    """Joins the pair wherever `pattern(first, second)` is found."""
    return lambda words, first, second: [
        re.sub(pattern(first, second), lambda found: first + second, word) for word in words
    ]


merged_words.mistakes(
    {
        "the second token of the pair stays behind the new one: both give way to it": (
            lambda words, first, second: [
                re.sub(rf"(?<!\S){re.escape(first)} (?={re.escape(second)}(?!\S))", lambda _: f"{first}{second} ", word)
                for word in words
            ]
        ),
        (
            "the end of the pair is guarded, not its beginning: in 'ca b' it joins b to the token 'ca', whose last "
            "letter is a"
        ): _joined(lambda first, second: rf"{re.escape(first)} {re.escape(second)}(?!\S)"),
        (
            "the beginning of the pair is guarded, not its end: in 'e st' it joins e with the token 'st', whose first "
            "letter is s"
        ): _joined(lambda first, second: rf"(?<!\S){re.escape(first)} {re.escape(second)}"),
        (
            "of two pairs in a row the second is missed: they share the space between them, and replace has used it up"
        ): lambda words, first, second: [
            f" {word} ".replace(f" {first} {second} ", f" {first}{second} ").strip(" ") for word in words
        ],
        "the bounds are right, but only the first place in each word is joined; there may be several": (
            lambda words, first, second: [
                " ".join(merged_once(word.split(" "), (first, second), first + second)) for word in words
            ]
        ),
        "the bounds are right; but a full stop in a pattern is any character: `re.escape` the tokens": (
            _joined(lambda first, second: rf"(?<!\S){first} {second}(?!\S)")
        ),
        "the bounds are right; but `re.sub` reads a backslash in the replacement: give it a function that returns it": (
            lambda words, first, second: [
                re.sub(rf"(?<!\S){re.escape(first)} {re.escape(second)}(?!\S)", first + second, word) for word in words
            ]
        ),
        "all spaces are gone, so each word is one token: only the two of the pair are joined": (
            lambda words, first, second: [word.replace(" ", "") for word in words]
        ),
    }
)
