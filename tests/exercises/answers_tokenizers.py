"""A stranger's answers to lesson 07: the wrong ones are refused, the right ones in other styles accepted."""

import codecs
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

from tfbook.course.exercises import Exercise
from tfbook.lessons.tokenizers import exercises as tokenizers
from tfbook.lessons.tokenizers.exercises import Pair, Words

# ---- what a learner would write, with places in which it can be wrong ---------------------------------------------

Merge = Callable[[list[str], Pair], list[str]]


def merge_where(fits: Callable[[str, str, Pair], bool], word: list[str], pair: Pair) -> list[str]:
    tokens = list(word)
    i = 0
    while i < len(tokens) - 1:
        if fits(tokens[i], tokens[i + 1], pair):
            tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]
        i += 1
    return tokens


merge = partial(merge_where, lambda a, b, pair: (a, b) == pair)
merge_in_any_order = partial(merge_where, lambda a, b, pair: {a, b} == {*pair})
merge_by_spelling = partial(merge_where, lambda a, b, pair: a + b == "".join(pair))
merge_ignoring_case = partial(merge_where, lambda a, b, pair: (a.lower(), b.lower()) == pair)


def merge_from_the_right(word: list[str], pair: Pair) -> list[str]:
    tokens = list(word)
    for i in range(len(tokens) - 2, -1, -1):
        if tuple(tokens[i : i + 2]) == pair:
            tokens[i : i + 2] = ["".join(pair)]
    return tokens


def without_overlap(word: Iterable[str]) -> list[Pair]:
    found: list[Pair] = []
    last = -1  # where the last pair of equal tokens began
    for i, pair in enumerate(pairwise(word)):
        if pair[0] != pair[1] or not (found and found[-1] == pair and last == i - 1):
            found.append(pair)
            last = i
    return found


def smallest(counts: Counter[Pair]) -> Pair:
    return min(counts, key=lambda pair: (-counts[pair], pair))


def smallest_by_first_token(counts: Counter[Pair]) -> Pair:
    return min(counts, key=lambda pair: (-counts[pair], pair[0]))


def counts_of(words: Words, of: Callable[..., Iterable[Pair]] = pairwise) -> Counter[Pair]:
    counts = Counter[Pair]()
    for word, times in words.items():
        for pair in of(word):
            counts[pair] += times
    return counts


def next_pair(
    text: str, merges: list[Pair], *, merge: Merge = merge, of: Callable[..., Iterable[Pair]] = pairwise
) -> Pair:
    words = [list(word) for word in text.split()]
    for pair in merges:
        words = [merge(word, pair) for word in words]
    return smallest(Counter(pair for word in words for pair in of(word)))


def learn(
    words: Words,
    count: int,
    *,
    merge: Merge = merge,
    of: Callable[..., Iterable[Pair]] = pairwise,
    best: Callable[[Counter[Pair]], Pair] = smallest,
) -> list[Pair]:
    rows, merges = [(list(word), times) for word, times in words.items()], list[Pair]()
    while len(merges) < count:
        counts = sum(
            (Counter({pair: n * times for pair, n in Counter(of(row)).items()}) for row, times in rows), Counter()
        )
        if not counts:
            break
        merges.append(best(counts))
        rows = [(merge(row, merges[-1]), times) for row, times in rows]
    return merges


def encode(word: list[str], merges: list[Pair], *, merge: Merge = merge) -> list[str]:
    for pair in merges:
        word = merge(word, pair)
    return list(word)


def merge_words(words: list[str], first: str, second: str, *, merge: Merge = merge) -> list[str]:
    return [" ".join(merge(word.split(" "), (first, second))) for word in words]


def in_lowercase(words: Words) -> Words:
    return dict(sum((Counter({tuple(map(str.lower, word)): n}) for word, n in words.items()), Counter()))


def without_marks(words: Words) -> Words:
    return {tuple(filter(str.isalnum, word)): times for word, times in words.items()}


def decode_with(decoder: Any, tokens: list[bytes]) -> list[str]:
    return [decoder.decode(token, i == len(tokens) - 1) for i, token in enumerate(tokens)]


# ---- wrong -------------------------------------------------------------------------------------------------------


def ten_most_frequent(words: Words) -> list[tuple[Pair, int]]:
    return tokenizers.counted_pairs.reference(words)[:10]


def pairs_in_lowercase(words: Words) -> list[tuple[Pair, int]]:
    return tokenizers.counted_pairs.reference(in_lowercase(words))


def next_in_lowercase(text: str, merges: list[Pair]) -> Pair:
    return next_pair(text.lower(), merges)


def next_of_letters(text: str, merges: list[Pair]) -> Pair:
    return next_pair(" ".join(re.findall(r"\w+", text)), merges)


def encoded_in_lowercase(word: list[str], merges: list[Pair]) -> list[str]:
    return encode([letter.lower() for letter in word], merges)


def streamed_without_a_check_for_none(tokens: list[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = list(map(decoder.decode, tokens))
    texts[-1] += decoder.decode(b"", True)
    return texts


def merged_as_bytes(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    small = bytes(each % 256 for each in word).replace(bytes(pair), bytes([token % 256]))
    return [token if each == token % 256 else each for each in small]


def encoded_with_one_place_per_merge(word: list[str], merges: list[Pair]) -> list[str]:
    tokens = list(word)
    for _ in merges:
        places = [(merges.index(pair), i) for i, pair in enumerate(pairwise(tokens)) if pair in merges]
        if places:
            _, i = min(places)
            tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]
    return tokens


def streamed_without_empty_tokens(tokens: list[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return [decoder.decode(token, i == len(tokens) - 1) if token else "" for i, token in enumerate(tokens)]


def streamed_until_the_last_token(tokens: list[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return [decoder.decode(token, token == tokens[-1]) for token in tokens]


def streamed_without_the_mark(tokens: list[bytes]) -> list[str]:
    return decode_with(codecs.getincrementaldecoder("utf-8-sig")("replace"), tokens)


def streamed_with_one_line_end(tokens: list[bytes]) -> list[str]:
    return decode_with(io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), True), tokens)


def streamed_without_line_ends(tokens: list[bytes]) -> list[str]:
    return [text.strip("\r\n\0") for text in decode_with(codecs.getincrementaldecoder("utf-8")("replace"), tokens)]


def words_with_a_raw_replacement(words: list[str], first: str, second: str) -> list[str]:
    pattern = rf"(?<!\S){re.escape(f'{first} {second}')}(?!\S)"
    return [re.sub(pattern, first + second, word) for word in words]


def once_per_word(word: Iterable[str]) -> set[Pair]:
    return set(pairwise(word))


def learned_while_pairs_repeat(words: Words, count: int) -> list[Pair]:
    merges: list[Pair] = []
    while len(merges) < count:
        counts: Counter[Pair] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                counts[pair] += times
        best = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
        if best is None or counts[best] < 2:
            break
        merges.append(best)
        words = {tuple(tokenizers.encoded.reference([*word], [best])): times for word, times in words.items()}
    return merges


def encoded_from_the_left(word: list[str], merges: list[Pair]) -> list[str]:
    tokens = list(word)
    while known := [pair for pair in pairwise(tokens) if pair in merges]:
        tokens = tokenizers.encoded.reference(tokens, known[:1])
    return tokens


def streamed_with_the_rest_at_the_end(tokens: list[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = [decoder.decode(token) for token in tokens]
    if rest := decoder.decode(b"", final=True):
        texts.append(rest)
    return texts


def streamed_without_what_is_broken(tokens: list[bytes]) -> list[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    return [decoder.decode(token, i == len(tokens) - 1) for i, token in enumerate(tokens)]


def joined_once_in_each_word(words: list[str], first: str, second: str) -> list[str]:
    pair = re.compile(rf"(?<!\S){re.escape(first)} {re.escape(second)}(?!\S)")
    return [pair.sub(lambda _: first + second, word, count=1) for word in words]


WRONG: list[tuple[Exercise, Callable[..., Any], str]] = [
    (
        tokenizers.next_merge,
        lambda text, merges: "".join(tokenizers.next_merge.reference(text, merges)),
        "a tuple of two strings",
    ),
    (tokenizers.learned, lambda words, count: tokenizers.learned.reference(words, count + 1), "one merge too many"),
    (tokenizers.streamed, lambda tokens: [*tokenizers.streamed.reference([*tokens, b""])], "one string too many"),
    (tokenizers.counted_pairs, ten_most_frequent, "has 10 items"),
    (tokenizers.counted_pairs, pairs_in_lowercase, "has 32 items"),
    (tokenizers.merged, merged_as_bytes, "has 2 items"),
    (tokenizers.next_merge, partial(next_pair, of=once_per_word), "once a word"),
    (tokenizers.next_merge, partial(next_pair, of=without_overlap), "expected 'a'"),
    (tokenizers.next_merge, partial(next_pair, merge=merge_from_the_right), "the result is 'aa'"),
    (tokenizers.next_merge, partial(next_pair, merge=merge_in_any_order), "the result is 'ba'"),
    (tokenizers.next_merge, partial(next_pair, merge=merge_by_spelling), "the result is 'x'"),
    (tokenizers.next_merge, next_in_lowercase, "expected 'B'"),
    (tokenizers.next_merge, next_of_letters, "expected 'a'"),
    (tokenizers.learned, partial(learn, best=smallest_by_first_token), "expected 'b'"),
    (tokenizers.learned, partial(learn, merge=merge_by_spelling), "has 2 items"),
    (tokenizers.learned, lambda words, count: learn(in_lowercase(words), count), "expected 'A'"),
    (tokenizers.learned, lambda words, count: learn(without_marks(words), count), "has 2 items"),
    (tokenizers.encoded, partial(encode, merge=merge_by_spelling), "is known by its pair"),
    (tokenizers.encoded, partial(encode, merge=merge_in_any_order), "has 3 items"),
    (tokenizers.encoded, encoded_in_lowercase, "has 3 items"),
    (tokenizers.streamed, streamed_without_a_check_for_none, "IndexError"),
    (tokenizers.encoded, encoded_with_one_place_per_merge, "has 5 items"),
    (tokenizers.streamed, streamed_without_empty_tokens, "expected '�'"),
    (tokenizers.streamed, streamed_until_the_last_token, "expected ''"),
    (tokenizers.streamed, streamed_without_the_mark, "'\\ufeff"),
    (tokenizers.streamed, streamed_with_one_line_end, "expected '\\ufeff\\r'"),
    (tokenizers.streamed, streamed_without_line_ends, "expected '\\ufeff\\r'"),
    (tokenizers.merged_words, words_with_a_raw_replacement, "reads a backslash"),
    (tokenizers.merged_words, partial(merge_words, merge=merge_by_spelling), "the result is 'abc abc'"),
    (tokenizers.merged_words, partial(merge_words, merge=merge_ignoring_case), "the result is 'ABc'"),
    (tokenizers.counted_pairs, lambda words: dict(tokenizers.counted_pairs.reference(words)), "this is a dict"),
    (tokenizers.learned, learned_while_pairs_repeat, "you stop where the best pair occurs only once"),
    (tokenizers.encoded, encoded_from_the_left, "the leftmost pair is merged"),
    (tokenizers.streamed, streamed_with_the_rest_at_the_end, "not into a string of its own"),
    (tokenizers.streamed, streamed_without_what_is_broken, "what cannot become a character is left out"),
    (tokenizers.merged_words, joined_once_in_each_word, "only the first place in each word is joined"),
]


def merged_at_the_beginning(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    return [*tokenizers.merged.reference(word[:9], pair, token), *word[9:]]


def next_from_the_beginning(text: str, merges: list[Pair]) -> Pair:
    return next_pair(" ".join(text.split()[:8]), merges)


def learned_at_the_beginning(words: Words, count: int) -> list[Pair]:
    return learn(words, min(count, 6))


def encoded_at_the_beginning(word: list[str], merges: list[Pair]) -> list[str]:
    return [*encode(word[:9], merges), *word[9:]]


def streamed_at_the_beginning(tokens: list[bytes]) -> list[str]:
    later = [token.decode(errors="replace") for token in tokens[8:]]
    return decode_with(codecs.getincrementaldecoder("utf-8")("replace"), tokens[:8]) + later


def words_at_the_beginning(words: list[str], first: str, second: str) -> list[str]:
    return merge_words(words[:4], first, second) + words[4:]


BEGINNINGS: list[tuple[Exercise, Callable[..., Any]]] = [
    (tokenizers.merged, merged_at_the_beginning),
    (tokenizers.next_merge, next_from_the_beginning),
    (tokenizers.learned, learned_at_the_beginning),
    (tokenizers.encoded, encoded_at_the_beginning),
    (tokenizers.streamed, streamed_at_the_beginning),
    (tokenizers.merged_words, words_at_the_beginning),
]


# ---- right -------------------------------------------------------------------------------------------------------


def pairs_by_two_sorts(words: Words) -> list[tuple[Pair, int]]:
    found = sorted(counts_of(words).items())
    found.sort(key=lambda item: item[1], reverse=True)
    return found


def merged_by_recursion(word: list[int], pair: tuple[int, int], token: int) -> list[int]:
    if len(word) < 2:
        return list(word)
    found = (word[0], word[1]) == pair
    return [token if found else word[0], *merged_by_recursion(word[2 if found else 1 :], pair, token)]


def encoded_one_place_at_a_time(word: list[str], merges: list[Pair]) -> list[str]:
    tokens = word[:]
    while places := [(merges.index(pair), i) for i, pair in enumerate(pairwise(tokens)) if pair in merges]:
        _, i = min(places)
        tokens = [*tokens[:i], tokens[i] + tokens[i + 1], *tokens[i + 2 :]]
    return tokens


def streamed_by_differences(tokens: list[bytes]) -> list[str]:
    texts = [""]
    for end in range(1, len(tokens) + 1):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        texts.append(decoder.decode(b"".join(tokens[:end]), end == len(tokens)))
    return [text[len(before) :] for before, text in pairwise(texts)]


def words_by_a_pattern(words: list[str], first: str, second: str) -> list[str]:
    pattern = re.compile(r"(?<!\S)" + re.escape(f"{first} {second}") + r"(?!\S)")
    return [pattern.sub(lambda found: first + second, word) for word in words]


RIGHT: list[tuple[Exercise, Callable[..., Any]]] = [
    (tokenizers.counted_pairs, pairs_by_two_sorts),
    (tokenizers.merged, merged_by_recursion),
    (tokenizers.next_merge, next_pair),
    (tokenizers.learned, learn),
    (tokenizers.encoded, encode),
    (tokenizers.encoded, encoded_one_place_at_a_time),
    (tokenizers.streamed, streamed_by_differences),
    (tokenizers.merged_words, merge_words),
    (tokenizers.merged_words, words_by_a_pattern),
]
