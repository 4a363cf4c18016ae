"""WordPiece and unigram against the `tokenizers` library and against their plain definitions."""

from collections import Counter
from collections.abc import Mapping
from math import exp, isclose, log
from typing import ClassVar

import pytest
import regex
import tokenizers
from hypothesis import given, settings, strategies as st

from tfbook import data
from tfbook.text import Unigram, WordPiece, pre_tokenize, unigram as unigram_module
from tfbook.text.bpe import count_pairs, merge
from tfbook.text.wordpiece import WORD

TEXT = data.load("python-reference").train[:15_000]


@pytest.fixture(scope="module")
def wordpiece() -> WordPiece:
    return WordPiece.learn([TEXT], 400, min_count=5)


@pytest.fixture(scope="module")
def unigram() -> Unigram:
    return Unigram.learn([TEXT], 400)


class TestWordPiece:
    @settings(max_examples=300)
    @given(text=st.text("thefunction _.,3\n漢") | st.text())
    def test_the_library_encodes_the_same(self, wordpiece: WordPiece, text: str) -> None:
        assert wordpiece.encode(text) == self.library(wordpiece, text)

    def test_it_does_so_on_text(self, wordpiece: WordPiece) -> None:
        text = data.load("python-reference").valid[:5000]
        assert wordpiece.encode(text) == self.library(wordpiece, text)

    @staticmethod
    def library(wordpiece: WordPiece, text: str) -> list[int]:
        """Its ids of our words: it has other ideas of what is a letter."""
        vocabulary = {piece: number for number, piece in enumerate(wordpiece.pieces)}
        model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=10**6)
        return tokenizers.Tokenizer(model).encode(regex.findall(WORD, text), is_pretokenized=True).ids

    def test_a_word_is_cut_into_the_longest_pieces_from_the_left(self) -> None:
        made = WordPiece(["un", "una", "##ff", "##aff", "##able", "able"])
        names = [made.pieces[number] for number in made.encode("unaffable unable able unx")]
        assert names == ["una", "##ff", "##able", "[UNK]", "able", "[UNK]"]  # una, then no ##ble

    def test_words_come_back_and_spaces_do_not(self, wordpiece: WordPiece) -> None:
        assert wordpiece.decode(wordpiece.encode("The  value\nof it.")) == "The value of it ."

    @pytest.mark.parametrize("min_count", [1, 3])
    def test_the_pairs_are_those_counted_anew_each_time(self, min_count: int) -> None:
        text = "hug pug pun bun hugs hug bungee gun gugugu aaaa aaa banana bandana hug pun bun pug " * 2
        assert set(WordPiece.learn([text], 60, min_count=min_count).pieces[1:]) == plain_wordpiece(text, 60, min_count)

    def test_it_begins_with_what_is_rare_together(self) -> None:
        """q is always before u, e and n are everywhere: count(ab) alone would join e and n."""
        text = "queen queen seen seen seen keen teen teen been even need"
        joined = [piece for piece in WordPiece.learn([text], 100, min_count=2).pieces if len(piece.strip("#")) == 2]
        assert joined[0] == "qu"

    def test_it_stops_at_the_size_or_when_no_pair_is_left(self) -> None:
        assert len(WordPiece.learn([TEXT], 200, min_count=1).pieces) == 200
        assert WordPiece.learn(["ab ab"], 200, min_count=1).pieces == ("[UNK]", "##b", "a", "ab")
        assert WordPiece.learn(["ab"], 200, min_count=2).pieces == ("[UNK]", "##b", "a")

    def test_one_string_is_refused(self) -> None:
        with pytest.raises(TypeError, match="texts is the string 'ab'"):
            WordPiece.learn("ab", 200)


def plain_wordpiece(text: str, vocab: int, min_count: int) -> set[str]:
    """The same by its formula, everything counted anew."""
    names = sorted(
        {"##" * (place > 0) + letter for word in regex.findall(WORD, text) for place, letter in enumerate(word)}
    )
    words: Mapping[tuple[int, ...], int] = Counter(
        tuple(names.index("##" * (place > 0) + letter) for place, letter in enumerate(word))
        for word in regex.findall(WORD, text)
    )
    while len(names) + 1 < vocab:
        alone = Counter(piece for word, times in words.items() for piece in word for _ in range(times))
        pairs = {pair: count for pair, count in count_pairs(words).items() if count >= min_count}
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair] / (alone[pair[0]] * alone[pair[1]]), pair))
        name = names[best[0]] + names[best[1]].removeprefix("##")
        if name not in names:
            names.append(name)
        words = Counter({merge(word, best, names.index(name)): times for word, times in words.items()})
    return set(names)


class TestUnigram:
    SCORES: ClassVar = {"a": -3.0, "b": -3.5, "ab": -4.25, "abb": -9.0, "c": -4.0, "bc": -5.5}

    @settings(max_examples=300)
    @given(text=st.text("thefunction _.,3\n漢") | st.text())
    def test_the_library_cuts_the_same(self, unigram: Unigram, text: str) -> None:
        assert unigram.encode(text) == self.library(unigram, text)

    def test_it_does_so_on_text(self, unigram: Unigram) -> None:
        text = data.load("python-reference").valid[:5000]
        assert unigram.encode(text) == self.library(unigram, text)

    @staticmethod
    def library(unigram: Unigram, text: str) -> list[int]:
        """Its ids of our chunks."""
        vocabulary = [("<unk>", 0.0), *unigram.scores.items()]
        model = tokenizers.models.Unigram(vocabulary, unk_id=0)
        return tokenizers.Tokenizer(model).encode(pre_tokenize(text), is_pretokenized=True).ids

    @given(st.text("abc", min_size=1, max_size=8))
    def test_no_other_cut_has_a_larger_sum(self, chunk: str) -> None:
        def best(rest: str) -> float:
            ends = (end for end in range(1, len(rest) + 1) if rest[:end] in self.SCORES)
            return max((self.SCORES[rest[:end]] + best(rest[end:]) for end in ends), default=0.0)

        pieces = Unigram(self.SCORES).split(chunk)
        assert "".join(pieces) == chunk
        assert isclose(sum(self.SCORES[piece] for piece in pieces), best(chunk))

    def test_unknown_characters_are_one_token_a_run(self) -> None:
        made = Unigram(self.SCORES)
        names = [made.pieces[number] for number in made.encode("ab漢字c字 字")]
        assert names == ["ab", "<unk>", "c", "<unk>", "<unk>"]  # the space begins a chunk

    def test_known_text_comes_back_with_its_spaces(self, unigram: Unigram) -> None:
        assert unigram.decode(unigram.encode(TEXT)) == TEXT

    def test_the_scores_are_logarithms_of_probabilities(self, unigram: Unigram) -> None:
        assert isclose(sum(map(exp, unigram.scores.values())), 1.0, rel_tol=1e-9)
        assert list(unigram.scores.values()) == sorted(unigram.scores.values(), reverse=True)

    def test_every_character_keeps_a_piece(self, unigram: Unigram) -> None:
        assert set(TEXT) <= set(unigram.scores)
        assert 380 < len(unigram.pieces) <= 400

    def test_what_is_frequent_is_kept_and_shortens_the_text(self, unigram: Unigram) -> None:
        assert {" the", " is", "ing"} & set(unigram.pieces)
        assert len(unigram.encode(TEXT)) < len(TEXT) / 2
        assert len(Unigram.learn([TEXT], 150).encode(TEXT)) > len(unigram.encode(TEXT))

    def test_what_is_dropped_is_needed_least(self) -> None:
        """Of two pieces as frequent, that whose parts are rare elsewhere is needed more."""
        made = Unigram({"x": log(0.01), "y": log(0.01), "a": log(0.4), "b": log(0.4), "xy": log(0.09), "ab": log(0.09)})
        assert made._most_needed(Counter({"xy": 10, "ab": 10})) == ["xy", "ab"]
        assert made._most_needed(Counter({"xy": 1, "ab": 1000})) == ["xy", "ab"]  # a loss below none: a · b is likelier

    def test_errors_name_the_argument(self) -> None:
        with pytest.raises(ValueError, match="vocab is 3; expected 4 or more, one for each character and <unk>"):
            Unigram.learn(["abc"], 3)
        with pytest.raises(TypeError, match="texts is the string 'ab'"):
            Unigram.learn("ab", 200)
        with pytest.raises(ValueError, match="text holds a lone surrogate"):
            Unigram(self.SCORES).encode("\ud800")


def test_both_read_the_chunks_of_byte_pair_encoding() -> None:
    """No piece crosses a chunk."""
    within = set(pre_tokenize(TEXT))
    for piece in Unigram.learn([TEXT], 300).scores:
        assert any(piece in chunk for chunk in within)


def test_unigram_keeps_three_quarters_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the pieces that are left, down to those that fit beside <unk>."""
    counted, pruned = Unigram._piece_counts, Unigram._most_needed
    before: list[int] = []
    after: list[int] = []
    monkeypatch.setattr(
        Unigram, "_piece_counts", lambda self, chunks: [after.append(len(self.scores)), counted(self, chunks)][1]
    )
    monkeypatch.setattr(
        Unigram, "_most_needed", lambda self, counts: [before.append(len(self.scores)), pruned(self, counts)][1]
    )
    Unigram.learn([TEXT], 300)
    assert len(before) > 3
    assert after[1:] == [max(299, 3 * size // 4) for size in before]


@pytest.mark.parametrize(("longest", "count"), [(2, 3), (4, 5), (4, 100)])
def test_unigram_starts_from_the_substrings_that_cover_most(longest: int, count: int) -> None:
    """Occurrences × length, of those that occur more than once; all single characters whatever they cover."""
    chunks = {"abab": 3, "abcd": 2, "bcdx": 1, "zz": 1}
    parts = Counter[str]()
    for chunk, times in chunks.items():
        for size in range(1, longest + 1):
            for start in range(len(chunk) - size + 1):
                parts[chunk[start : start + size]] += times
    longer = sorted((-times * len(part), part) for part, times in parts.items() if len(part) > 1 and times > 1)
    kept = {part for _, part in longer[:count]} | set("abcdxz")
    assert unigram_module._substrings(chunks, longest, count) == {part: parts[part] for part in kept}
