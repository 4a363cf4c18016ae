"""The first exercises of lesson 07; the others are in exercises.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from itertools import pairwise
from random import Random
from typing import Any, TypeVar

from tfbook.course.exercises import exercise

Pair = tuple[str, str]
Words = dict[tuple[str, ...], int]
Item = TypeVar("Item")


def drawn(choices: Sequence[Item], count: int, seed: int) -> list[Item]:
    """Random choices for a case, the same at every check."""
    return Random(seed).choices(choices, k=count)


# ---- count pairs -------------------------------------------------------------------------------------------------


def _words() -> list[tuple[Words]]:
    return [
        ({tuple("banana"): 2, tuple("bandana"): 1},),
        ({tuple("aaab"): 3, tuple("ba"): 4, tuple("c"): 9},),
        ({("lo", "w"): 1, ("n", "e", "w"): 2, ("w", "e"): 2},),
        ({("a", "c"): 1, ("a", "b"): 1, ("ab", "a"): 1, ("a", "bc"): 1},),  # ties that only the whole pair decides
        ({tuple("Thequickbrownfoxjumpsoverthelazydog"): 2},),  # many pairs, and a capital
        ({},),
        ({tuple(drawn("aAb!", 6, seed)): 1 + seed % 3 for seed in range(8)},),
    ]


@exercise(
    cases=_words,
    hints=[
        "`itertools.pairwise(word)` gives the neighbors. Each of them stands in the text as often as its word does.",
        "Sort by two things at once: `sorted(counts.items(), key=lambda item: (-item[1], item[0]))`.",
    ],
)
def counted_pairs(words: Words) -> list[tuple[Pair, int]]:
    counts: Counter[Pair] = Counter()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def pairs(words: Words, of: Callable[[tuple[str, ...]], Iterable[Pair]] = pairwise) -> Counter[Pair]:
    counts = Counter[Pair]()
    for word, times in words.items():
        for pair in of(word):
            counts[pair] += times
    return counts


def _sorted(counts: Counter[Pair], sign: int = -1) -> list[tuple[Pair, int]]:
    return sorted(counts.items(), key=lambda item: (sign * item[1], item[0]))


counted_pairs.mistakes(
    {
        "each word is counted once; its pairs stand in the text as often as the word does": (
            lambda words: counted_pairs.reference(dict.fromkeys(words, 1))
        ),
        "this is a dict, in the right order: return a list of (pair, count)": (
            lambda words: dict(counted_pairs.reference(words))
        ),
        "the pairs are right and so are their counts; the most frequent comes first": (
            lambda words: _sorted(pairs(words), sign=1)
        ),
        (
            "counts are right; among pairs of one count the smaller one comes first, or two tokenizers learn different "
            "merges from the same text"
        ): lambda words: pairs(words).most_common(),
        "ties are broken by the first token alone: among pairs that begin alike, the smaller second token decides": (
            lambda words: sorted(pairs(words).items(), key=lambda item: (-item[1], item[0][0]))
        ),
        "ties are broken by the joined string: compare the pairs themselves, in which ('a', 'bc') < ('ab', 'a')": (
            lambda words: sorted(pairs(words).items(), key=lambda item: (-item[1], "".join(item[0])))
        ),
        "`reverse=True` reverses the ties as well, so the larger pair comes first: sort by the negative count": (
            lambda words: sorted(pairs(words).items(), key=lambda item: (item[1], item[0]), reverse=True)
        ),
        "the order within a pair counts: 'an' and 'na' are two pairs": (
            lambda words: _sorted(pairs(words, lambda word: ((min(pair), max(pair)) for pair in pairwise(word))))
        ),
        "pairs do not reach from one word into the next: count within each word": (
            lambda words: counted_pairs.reference({tuple(token for word in words for token in word * words[word]): 1})
        ),
        "each pair is counted once a word; 'banana' holds 'an' twice": (
            lambda words: _sorted(pairs(words, lambda word: set(pairwise(word))))
        ),
        "every second pair is skipped: the neighbors of 'ban' are 'ba' and 'an', they share a letter": (
            lambda words: _sorted(pairs(words, lambda word: zip(word[::2], word[1::2], strict=False)))
        ),
    }
)

# ---- merge -------------------------------------------------------------------------------------------------------


def _word_pair_and_token() -> list[tuple[list[int], tuple[int, int], int]]:
    return [
        ([2, 0, 1, 0, 1, 0], (0, 1), 9),
        ([7, 7, 7, 4, 7, 7, 7, 7], (7, 7), 8),
        ([5, 3, 3, 5, 6], (3, 5), 7),
        ([1, 2], (2, 1), 3),
        ([1, 21, 11, 2, 1, 2], (1, 2), 5),  # the digits of 1 2 also stand in 1 21 and in 11 2
        ([257, 2, 1, 2], (1, 2), 300),  # no bytes, in which 257 would be 1
        ([], (1, 2), 3),
        (drawn([0, 1, 300], 40, seed=1), (1, 1), 2),
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


def _merged(word: list[Any], pairs: list[tuple[Any, Any]], token: Any, *, stop: int) -> list[Any]:
    """Merges any of these pairs, walking to the place `stop`."""
    tokens, i = [], 0
    while i < stop:
        found = tuple(word[i : i + 2]) in pairs
        tokens.append(token if found else word[i])
        i += 2 if found else 1
    return tokens


def merged_once(word: list[Any], pair: tuple[Any, Any], token: Any) -> list[Any]:
    for i, found in enumerate(pairwise(word)):
        if found == pair:
            return [*word[:i], token, *word[i + 2 :]]
    return list(word)


def _replaced(word: list[int], pair: tuple[int, int], token: int, *, pad: str) -> list[int]:
    """Merges in the text of the ids, each with its neighbors' spaces when padded."""
    text = pad + " ".join(map(str, word)) + pad
    return [*map(int, text.replace(f"{pad}{pair[0]} {pair[1]}{pad}", f"{pad}{token}{pad}").split())]


def _merged_from_the_right(word: list[Any], pair: tuple[Any, Any], token: Any) -> list[Any]:
    return _merged(word[::-1], [pair[::-1]], token, stop=len(word))[::-1]


merged.mistakes(
    {
        "the second of the two stays behind: after a merge go on two places further": (
            lambda word, pair, token: [token if tuple(word[i : i + 2]) == pair else word[i] for i in range(len(word))]
        ),
        "only the first place is merged; the pair may stand in a word several times": merged_once,
        "merge from left to right: of three equal tokens the first two become one": _merged_from_the_right,
        "the last token of the word is lost when it is in no pair": (
            lambda word, pair, token: _merged(word, [pair], token, stop=len(word) - 1)
        ),
        "the order of the two counts: (3, 5) is merged where 3 comes first": (
            lambda word, pair, token: _merged(word, [pair, pair[::-1]], token, stop=len(word))
        ),
        "replacing text joins digits of other ids: '1 2' also stands in '11 2' and in '1 21'; compare the ids": (
            partial(_replaced, pad="")
        ),
        "with a space around each id the pair is found as a whole, but two pairs in a row share a space, "
        "and the second is missed": partial(_replaced, pad=" "),
        "the token takes the place of two neighbors together, not of each of them wherever it stands": (
            lambda word, pair, token: [token if old in pair else old for old in word]
        ),
    }
)

# ---- predict the next merge --------------------------------------------------------------------------------------


def _texts_and_merges() -> list[tuple[str, list[Pair]]]:
    return [
        ("banana bandana banana", [("a", "n")]),
        ("banana bandana banana", [("a", "n"), ("an", "a")]),
        ("low low lower lowest newer wider", []),
        ("low low lower lowest newer wider", [("l", "o"), ("lo", "w"), ("e", "r")]),
        ("aaa aaa ab ab ab", [("a", "a")]),
        ("ac ab", []),  # ties that only the whole pair decides
        ("aba abc", [("b", "c"), ("a", "b")]),
        ("ban ban xy", [("b", "a"), ("a", "n")]),  # no a is left for the second merge
        ("anan anan Bcx Bcx Bcx", []),  # a pair that stands twice in a word
        ("Bcx bcx Bcx", [("c", "x")]),  # a capital is another letter
        ("ba! ba! xy", [("a", "b")]),  # neither is a merge in the other order made, nor a mark left out
        ("aaa aaa ab ab ab", []),  # aaa holds aa twice
        ("aaab", [("a", "a")]),  # of three, the first two are merged
        ("abc xy", [("b", "c"), ("a", "b"), ("ab", "c")]),  # a, bc is not merged, though it spells ab, c
        (" ".join("".join(drawn("aAb", 6, seed)) for seed in range(12)), [("a", "b"), ("ab", "a")]),
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
    counts: Counter[Pair] = Counter()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return min(counts, key=lambda pair: (-counts[pair], pair))


def _split(text: str, merges: list[Pair]) -> Counter[tuple[str, ...]]:
    """The words of a text after these merges, and how often each stands there."""
    return Counter(tuple(encoded.reference(list(word), merges)) for word in text.split())


def _spelled(word: Iterable[str], merges: list[Pair]) -> str:
    """The tokens of a word with a space between any two, merged by replacing text."""
    return reduce(lambda text, pair: text.replace(" ".join(pair), "".join(pair)), merges, " ".join(word))


def _most_frequent(text: str, merges: list[Pair], *, key: Callable[[Pair], str]) -> Pair:
    """Where several are, the one whose `key` is smallest, and of those the first."""
    counts = pairs(_split(text, merges))
    return min(counts, key=lambda pair: (-counts[pair], key(pair)))


next_merge.mistakes(
    {
        "this is the new token: return the pair that it is made of, a tuple of two strings": (
            lambda text, merges: "".join(next_merge.reference(text, merges))
        ),
        "this is the first merge of the text: apply the merges so far before you count": (
            lambda text, merges: next_merge.reference(text, [])
        ),
        "right but for ties: among pairs that are equally frequent the smaller one wins, not the one met first": (
            lambda text, merges: pairs(_split(text, merges)).most_common()[0][0]
        ),
        "ties are broken by the first token alone: among pairs that begin alike, the smaller second token decides": (
            partial(_most_frequent, key=lambda pair: pair[0])
        ),
        "ties are broken by the joined string: compare the pairs themselves, in which ('a', 'bc') < ('ab', 'a')": (
            partial(_most_frequent, key="".join)
        ),
        "among pairs that are equally frequent the larger one wins here; it should be the smaller one": (
            lambda text, merges: max((times, pair) for pair, times in pairs(_split(text, merges)).items())[1]
        ),
        "replacing text also merges the last letter of a token: in 'ba n' it finds the pair a, n": (
            lambda text, merges: counted_pairs.reference(
                Counter(tuple(_spelled(word, merges).split(" ")) for word in text.split())
            )[0][0]
        ),
        "each different word is counted once; its pairs are as frequent as the word is": (
            lambda text, merges: counted_pairs.reference(dict.fromkeys(_split(text, merges), 1))[0][0]
        ),
        "each pair is counted once a word; 'anan' holds 'an' twice": (
            lambda text, merges: _sorted(pairs(_split(text, merges), lambda word: set(pairwise(word))))[0][0]
        ),
        "only the last merge was applied: all merges so far count, in their order": (
            lambda text, merges: next_merge.reference(text, merges[-1:])
        ),
        "this is the rarest pair, which is not worth a token": (
            lambda text, merges: _sorted(pairs(_split(text, merges)), sign=1)[0][0]
        ),
        "the pair crosses a space: split the text into words first, and count within each of them": (
            lambda text, merges: counted_pairs.reference({tuple(encoded.reference(list(text), merges)): 1})[0][0]
        ),
        "this is the last merge once more: what was joined is gone from the words, and no longer counts": (
            lambda text, merges: merges[-1] if merges else next_merge.reference(text, merges)
        ),
    }
)

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
        (list("a"), dance),
        (list("ab"), []),
        (list("abc"), [("b", "c"), ("a", "b"), ("ab", "c")]),  # a, bc is not in the list, though it spells ab, c
        (list("Abba"), [("a", "b")]),  # neither capitals nor the other order
        (list("ababab"), [("a", "b")]),  # more places than merges
        (drawn("ab", 40, seed=3), [("a", "b"), ("b", "b"), ("ab", "a"), ("a", "a"), ("ab", "ab"), ("bb", "ab")]),
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


def _merged_everywhere(word: list[Any], pair: tuple[Any, Any], token: Any) -> list[Any]:
    return _merged(word, [pair], token, stop=len(word))


def _encoded(
    word: list[str],
    merges: list[Pair],
    *,
    rank: Callable[[Pair], int],
    merge: Callable[..., list[str]] = merged_once,
) -> list[str]:
    """One merge at a time: of the pairs that the word holds now, the first of the smallest rank."""
    tokens = list(word)
    while known := [pair for pair in pairwise(tokens) if pair in merges]:
        pair = min(known, key=rank)
        tokens = merge(tokens, pair, "".join(pair))
    return tokens


def _merge_by_merge(word: list[str], merges: list[Pair], *, merge: Callable[..., list[str]]) -> list[str]:
    return reduce(lambda tokens, pair: merge(tokens, pair, "".join(pair)), merges, word)


def _longest_known(word: list[str], merges: list[Pair]) -> list[str]:
    known, text, tokens = {*word, *map("".join, merges)}, "".join(word), []
    while text:
        tokens.append(next(text[:end] for end in range(len(text), 0, -1) if text[:end] in known))
        text = text[len(tokens[-1]) :]
    return tokens


encoded.mistakes(
    {
        "merged in the order of the word; the merge that was learned first goes first, wherever in the word it is": (
            lambda word, merges: _encoded(word, merges, rank=lambda pair: 0)
        ),
        "the leftmost pair is merged, in all its places; the one that was learned first goes first": (
            partial(_encoded, rank=lambda pair: 0, merge=_merged_everywhere)
        ),
        "the last merge goes first, in all its places; begin with the one that was learned first": (
            lambda word, merges: _encoded(word, merges, rank=lambda pair: -merges.index(pair), merge=_merged_everywhere)
        ),
        "the longest token that fits is taken from the left, as WordPiece does; here the merges decide, in order": (
            _longest_known
        ),
        "the last merge goes first; begin with the one that was learned first": (
            lambda word, merges: _encoded(word, merges, rank=lambda pair: -merges.index(pair))
        ),
        "merging ends after the first pair that was found; go on until the word holds no pair of the list": (
            lambda word, merges: encoded.reference(word, [pair for pair in merges if pair in pairwise(word)][:1])
        ),
        "a merge is known by its pair, not by its token: a, bc is not in the list because ab, c is": (
            lambda word, merges: encoded.reference(
                word, [(token[:i], token[i:]) for token in map("".join, merges) for i in range(1, len(token))]
            )
        ),
        "each merge is made in one place only; it may fit in several": partial(_merge_by_merge, merge=merged_once),
        (
            "str.replace has no notion of tokens: in 'ca b' it finds the pair a, b, though a is only the last letter "
            "of the token 'ca'"
        ): lambda word, merges: _spelled(word, merges).split(" "),
        "a merge is made from the right; of three equal tokens the first two become one": (
            partial(_merge_by_merge, merge=_merged_from_the_right)
        ),
    }
)
