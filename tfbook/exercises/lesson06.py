"""Exercises of lesson 06: byte-pair encoding from counting to encoding, text that comes in tokens, a bug in merging."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from itertools import pairwise

from tfbook.exercises.engine import exercise

Pair = tuple[str, str]
Words = dict[tuple[str, ...], int]

# ---- count pairs -------------------------------------------------------------------------------------------------


def _words() -> list[tuple[Words]]:
    return [
        ({tuple("banana"): 2, tuple("bandana"): 1},),
        ({tuple("aaab"): 3, tuple("ba"): 4, tuple("c"): 9},),
        ({("lo", "w"): 1, ("n", "e", "w"): 2, ("w", "e"): 2},),
    ]


@exercise(
    cases=_words,
    hints=[
        "`itertools.pairwise(word)` gives the neighbours. Each of them stands in the text as often as its word does.",
        "Sort by two things at once: `sorted(counts.items(), key=lambda item: (-item[1], item[0]))`.",
    ],
)
def counted_pairs(words: Words) -> list[tuple[Pair, int]]:
    counts = Counter()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _sorted_pairs(counts: Counter[Pair]) -> list[tuple[Pair, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


@counted_pairs.mistake("each word is counted once; its pairs stand in the text as often as the word does")
def _(words: Words) -> list[tuple[Pair, int]]:
    return _sorted_pairs(Counter(pair for word in words for pair in pairwise(word)))


@counted_pairs.mistake("the pairs are right and so are their counts; the most frequent comes first")
def _(words: Words) -> list[tuple[Pair, int]]:
    return sorted(counted_pairs.reference(words), key=lambda item: (item[1], item[0]))


@counted_pairs.mistake(
    "counts are right; among pairs of one count the smaller one comes first, or two tokenizers learn different merges "
    "from the same text"
)
def _(words: Words) -> list[tuple[Pair, int]]:
    counts = Counter[Pair]()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return counts.most_common()


@counted_pairs.mistake("the order within a pair counts: 'an' and 'na' are two pairs")
def _(words: Words) -> list[tuple[Pair, int]]:
    counts = Counter[Pair]()
    for pair, times in counted_pairs.reference(words):
        counts[min(pair), max(pair)] += times
    return _sorted_pairs(counts)


@counted_pairs.mistake("pairs do not reach from one word into the next: count within each word")
def _(words: Words) -> list[tuple[Pair, int]]:
    return _sorted_pairs(
        Counter(pairwise(token for word, times in words.items() for _ in range(times) for token in word))
    )


@counted_pairs.mistake("each pair is counted once a word; 'banana' holds 'an' twice")
def _(words: Words) -> list[tuple[Pair, int]]:
    counts = Counter[Pair]()
    for word, times in words.items():
        for pair in set(pairwise(word)):
            counts[pair] += times
    return _sorted_pairs(counts)


@counted_pairs.mistake("every second pair is skipped: the neighbours of 'ban' are 'ba' and 'an', they share a letter")
def _(words: Words) -> list[tuple[Pair, int]]:
    counts = Counter[Pair]()
    for word, times in words.items():
        for pair in zip(word[::2], word[1::2], strict=False):
            counts[pair] += times
    return _sorted_pairs(counts)


# ---- merge -------------------------------------------------------------------------------------------------------


def _word_pair_and_token() -> list[tuple[list[int], tuple[int, int], int]]:
    return [
        ([2, 0, 1, 0, 1, 0], (0, 1), 9),
        ([7, 7, 7, 4, 7, 7, 7, 7], (7, 7), 8),
        ([5, 3, 3, 5, 6], (3, 5), 7),
        ([1, 2], (2, 1), 3),
    ]


@exercise(
    cases=_word_pair_and_token,
    hints=[
        "Walk from left to right with an index. Where the pair stands, write the token and go on two places further.",
        "`while i < len(word):` and `found = tuple(word[i : i + 2]) == pair`. How far does i move in each case?",
    ],
)
def merged(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    tokens, i = [], 0
    while i < len(word):
        found = tuple(word[i : i + 2]) == pair
        tokens.append(token if found else word[i])
        i += 2 if found else 1
    return tokens


@merged.mistake("the second of the two stays behind: after a merge go on two places further")
def _(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    return [token if tuple(word[i : i + 2]) == pair else word[i] for i in range(len(word))]


@merged.mistake("only the first place is merged; the pair may stand in a word several times")
def _(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    for i, found in enumerate(pairwise(word)):
        if found == pair:
            return [*word[:i], token, *word[i + 2 :]]
    return list(word)


@merged.mistake("merge from left to right: of three equal tokens the first two become one")
def _(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    backwards = merged.reference(word[::-1], (pair[1], pair[0]), token)
    return backwards[::-1]


@merged.mistake("the last token of the word is lost when it is in no pair")
def _(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    tokens, i = [], 0
    while i < len(word) - 1:
        found = (word[i], word[i + 1]) == pair
        tokens.append(token if found else word[i])
        i += 2 if found else 1
    return tokens


@merged.mistake("the order of the two counts: (3, 5) is merged where 3 comes first")
def _(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    tokens, i = [], 0
    while i < len(word):
        found = tuple(word[i : i + 2]) in (pair, pair[::-1])
        tokens.append(token if found else word[i])
        i += 2 if found else 1
    return tokens


@merged.mistake("the token takes the place of two neighbours together, not of each of them wherever it stands")
def _(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    return [token if old in pair else old for old in word]


# ---- predict the next merge --------------------------------------------------------------------------------------


def _texts_and_merges() -> list[tuple[str, list[Pair]]]:
    return [
        ("banana bandana banana", [("a", "n")]),
        ("banana bandana banana", [("a", "n"), ("an", "a")]),
        ("low low lower lowest newer wider", []),
        ("low low lower lowest newer wider", [("l", "o"), ("lo", "w"), ("e", "r")]),
        ("aaa aaa ab ab ab", [("a", "a")]),
    ]


@exercise(
    cases=_texts_and_merges,
    hints=[
        "Three steps: the words as tuples of letters with their counts, all merges so far in their order, then the "
        "most frequent pair.",
        "Exercises 1 and 2 are two of the steps. `min(counts, key=lambda pair: (-counts[pair], pair))` is the third.",
    ],
)
def next_merge(text: str, merges: list[Pair]) -> Pair:
    def join(word: tuple[str, ...], pair: Pair) -> tuple[str, ...]:
        if len(word) < 2:
            return word
        if word[:2] == pair:
            return ("".join(pair), *join(word[2:], pair))
        return (word[0], *join(word[1:], pair))

    words = Counter(tuple(word) for word in text.split())
    for pair in merges:
        words = Counter({join(word, pair): times for word, times in words.items()})
    counts = Counter()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return min(counts, key=lambda pair: (-counts[pair], pair))


def _split(text: str, merges: list[Pair]) -> Counter[tuple[str, ...]]:
    """The words of a text after these merges, and how often each stands there."""
    words = Counter(tuple(word) for word in text.split())
    for pair in merges:
        words = Counter({tuple(encoded.reference(list(word), [pair])): times for word, times in words.items()})
    return words


def _pairs(words: Counter[tuple[str, ...]]) -> Counter[Pair]:
    counts = Counter[Pair]()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return counts


@next_merge.mistake("this is the first merge of the text: apply the merges so far before you count")
def _(text: str, merges: list[Pair]) -> Pair:
    return next_merge.reference(text, [])


@next_merge.mistake(
    "right but for ties: among pairs that are equally frequent the smaller one wins, not the one met first"
)
def _(text: str, merges: list[Pair]) -> Pair:
    counts = _pairs(_split(text, merges))
    return max(counts, key=lambda pair: counts[pair])


@next_merge.mistake("each different word is counted once; its pairs are as frequent as the word is")
def _(text: str, merges: list[Pair]) -> Pair:
    counts = _pairs(Counter(set(_split(text, merges))))
    return min(counts, key=lambda pair: (-counts[pair], pair))


@next_merge.mistake("this is the rarest pair, which is not worth a token")
def _(text: str, merges: list[Pair]) -> Pair:
    counts = _pairs(_split(text, merges))
    return min(counts, key=lambda pair: (counts[pair], pair))


@next_merge.mistake("the pair crosses a space: split the text into words first, and count within each of them")
def _(text: str, merges: list[Pair]) -> Pair:
    counts = _pairs(Counter([tuple(encoded.reference(list(text), merges))]))
    return min(counts, key=lambda pair: (-counts[pair], pair))


@next_merge.mistake("this is the last merge once more: what was joined is gone from the words, and no longer counts")
def _(text: str, merges: list[Pair]) -> Pair:
    return merges[-1] if merges else next_merge.reference(text, merges)


# ---- encode with given merges ------------------------------------------------------------------------------------


def _words_and_merges() -> list[tuple[list[str], list[Pair]]]:
    dance = [("n", "d"), ("a", "n"), ("a", "nd"), ("b", "a"), ("an", "a")]
    return [
        (list("bandana"), dance),
        (list("banana"), dance),
        (list("unhugs"), [("u", "n"), ("h", "u"), ("hu", "g"), ("g", "s"), ("un", "hug")]),
        (list("aaaaa"), [("a", "a"), ("aa", "a"), ("aa", "aa")]),
        (list("cabs"), [("c", "a"), ("a", "b"), ("b", "s")]),
        (list("xyz"), dance),
    ]


@exercise(
    cases=_words_and_merges,
    hints=[
        "The merge that was learned first goes first, wherever in the word its pair stands. Then look again.",
        "`ranks = {pair: rank for rank, pair in enumerate(merges)}`. Among the pairs that the word holds now, which "
        "has the smallest rank? Stop when none has one.",
    ],
)
def encoded(word: list[str], merges: list[Pair]) -> list[str]:
    tokens = list(word)
    for pair in merges:
        i = 0
        while i < len(tokens) - 1:
            if (tokens[i], tokens[i + 1]) == pair:
                tokens[i : i + 2] = ["".join(pair)]
            i += 1
    return tokens


def _join_at(tokens: list[str], i: int) -> list[str]:
    return [*tokens[:i], tokens[i] + tokens[i + 1], *tokens[i + 2 :]]


@encoded.mistake(
    "merged in the order of the word; the merge that was learned first goes first, wherever in the word it is"
)
def _(word: list[str], merges: list[Pair]) -> list[str]:
    tokens = list(word)
    while places := [i for i, pair in enumerate(pairwise(tokens)) if pair in merges]:
        tokens = _join_at(tokens, places[0])
    return tokens


@encoded.mistake(
    "the longest token that fits is taken from the left, as WordPiece does; here the merges decide, in order"
)
def _(word: list[str], merges: list[Pair]) -> list[str]:
    known, text, tokens = {*word, *map("".join, merges)}, "".join(word), []
    while text:
        tokens.append(next(text[:end] for end in range(len(text), 0, -1) if text[:end] in known))
        text = text[len(tokens[-1]) :]
    return tokens


@encoded.mistake("the last merge goes first; begin with the one that was learned first")
def _(word: list[str], merges: list[Pair]) -> list[str]:
    ranks, tokens = {pair: rank for rank, pair in enumerate(merges)}, list(word)
    while places := [i for i, pair in enumerate(pairwise(tokens)) if pair in ranks]:
        tokens = _join_at(tokens, max(places, key=lambda i: ranks[tokens[i], tokens[i + 1]]))
    return tokens


@encoded.mistake("merging ends after the first pair that was found; go on until the word holds no pair of the list")
def _(word: list[str], merges: list[Pair]) -> list[str]:
    for pair in merges:
        if pair in pairwise(word):
            return encoded.reference(word, [pair])
    return list(word)


@encoded.mistake("each merge is made in one place only; it may fit in several")
def _(word: list[str], merges: list[Pair]) -> list[str]:
    tokens = list(word)
    for pair in merges:
        for i, found in enumerate(pairwise(tokens)):
            if found == pair:
                tokens = _join_at(tokens, i)
                break
    return tokens


@encoded.mistake(
    "str.replace knows no tokens: in 'ca b' it finds the pair a, b, though a is only the last letter of the token 'ca'"
)
def _(word: list[str], merges: list[Pair]) -> list[str]:
    text = " ".join(word)
    for first, second in merges:
        text = text.replace(f"{first} {second}", first + second)
    return text.split(" ")


@encoded.mistake("a merge is made from the right; of three equal tokens the first two become one")
def _(word: list[str], merges: list[Pair]) -> list[str]:
    tokens = list(word)
    for pair in merges:
        for i in reversed(range(len(tokens) - 1)):
            if tuple(tokens[i : i + 2]) == pair:
                tokens = _join_at(tokens, i)
    return tokens


# ---- decode a stream ---------------------------------------------------------------------------------------------


def _streams() -> list[tuple[list[bytes]]]:
    robot, tea = "🤖".encode(), "thé".encode()
    return [
        ([b"I ", robot[:2], robot[2:3], robot[3:], b"!"],),
        ([tea[:3], tea[3:] + b" ", robot[:1], robot[1:] + robot[:3], robot[3:]],),
        ([b"a", b"\xff", b"b", robot[:2], b"c"],),
        ([b"end ", robot[:3]],),
        ([b"\xff" + robot[:2], robot[2:]],),
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


@streamed.mistake(
    "each token is decoded alone, so half a character becomes U+FFFD, and so does its other half: keep the bytes of an "
    "unfinished character until the next token"
)
def _(tokens: list[bytes]) -> list[str]:
    return [token.decode("utf-8", errors="replace") for token in tokens]


@streamed.mistake("characters that two tokens share are lost: keep their bytes instead of ignoring them")
def _(tokens: list[bytes]) -> list[str]:
    return [token.decode("utf-8", errors="ignore") for token in tokens]


@streamed.mistake("the text is right, and comes all at once at the end; show what is whole as soon as it is")
def _(tokens: list[bytes]) -> list[str]:
    return [*[""] * (len(tokens) - 1), b"".join(tokens).decode("utf-8", errors="replace")]


@streamed.mistake(
    "one byte that belongs to no character holds back all that follows: what can never become whole is U+FFFD at once"
)
def _(tokens: list[bytes]) -> list[str]:
    shown, kept = [], b""
    for place, token in enumerate(tokens):
        kept += token
        try:
            shown.append(kept.decode("utf-8"))
            kept = b""
        except UnicodeDecodeError:
            shown.append(kept.decode("utf-8", errors="replace") if place == len(tokens) - 1 else "")
    return shown


@streamed.mistake(
    "an unfinished character at the end of a token holds back the whole ones before it: print 'th' while 'é' is "
    "half there"
)
def _(tokens: list[bytes]) -> list[str]:
    shown, kept = [], b""
    for place, token in enumerate(tokens, start=1):
        kept += token
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text = decoder.decode(kept, final=place == len(tokens))
        unfinished = bool(decoder.getstate()[0])
        shown.append("" if unfinished else text)
        kept = kept if unfinished else b""
    return shown


@streamed.mistake("each byte of a broken character is one U+FFFD; its start, however many bytes, is one in all")
def _(tokens: list[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    single = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")  # what stands for a byte that does not decode
    return [decoder.decode(token, final=i == len(tokens) - 1).translate(single) for i, token in enumerate(tokens)]


@streamed.mistake("the bytes that are left at the end are lost: nothing follows, so they become U+FFFD")
def _(tokens: list[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(token) for token in tokens]


@streamed.mistake(
    "what is new is cut off by length: an unfinished character was shown as U+FFFD, and the whole one has the same "
    "length, so it never appears"
)
def _(tokens: list[bytes]) -> list[str]:
    shown, before = [], ""
    for end in range(1, len(tokens) + 1):
        text = b"".join(tokens[:end]).decode("utf-8", errors="replace")
        shown.append(text[len(before) :])
        before = text
    return shown


# ---- find the bug ------------------------------------------------------------------------------------------------


def _spelled_words() -> list[tuple[list[str], str, str]]:
    return [
        (["n e w e s t", "s e e s"], "e", "s"),
        (["n e w e st", "w i d e st", "th e s e", "e s e s"], "e", "s"),
        (["a b a b a b", "ca b", "a ba"], "a", "b"),
        (["a a a a a", "aa a a"], "a", "a"),
        ([". e s", "a e . b", "e . . e"], "e", "."),
    ]


@exercise(
    cases=_spelled_words,
    hints=[
        "Try it on `'n e w e st'` and the pair `e`, `s`. Which two tokens did it join?",
        "`replace` looks for letters and knows nothing of tokens. `word.split(' ')` gives the tokens; then do as in "
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


@merged_words.mistake(
    "the end of the pair is guarded, not its beginning: in 'ca b' it joins b to the token 'ca', whose last letter is a"
)
def _(words: list[str], first: str, second: str) -> list[str]:
    pair = re.compile(rf"{re.escape(first)} {re.escape(second)}(?!\S)")
    return [pair.sub(lambda found: first + second, word) for word in words]


@merged_words.mistake(
    "the beginning of the pair is guarded, not its end: in 'e st' it joins e with the token 'st', whose first letter "
    "is s"
)
def _(words: list[str], first: str, second: str) -> list[str]:
    pair = re.compile(rf"(?<!\S){re.escape(first)} {re.escape(second)}")
    return [pair.sub(lambda found: first + second, word) for word in words]


@merged_words.mistake(
    "of two pairs in a row the second is missed: they share the space between them, and replace has used it up"
)
def _(words: list[str], first: str, second: str) -> list[str]:
    return [f" {word} ".replace(f" {first} {second} ", f" {first}{second} ").strip(" ") for word in words]


@merged_words.mistake("the bounds are right; but a full stop in a pattern is any character: `re.escape` the tokens")
def _(words: list[str], first: str, second: str) -> list[str]:
    pair = re.compile(rf"(?<!\S){first} {second}(?!\S)")
    return [pair.sub(lambda found: first + second, word) for word in words]


@merged_words.mistake("all spaces are gone, so each word is one token: only the two of the pair are joined")
def _(words: list[str], first: str, second: str) -> list[str]:
    return [word.replace(" ", "") for word in words]
