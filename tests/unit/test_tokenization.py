"""Byte-level BPE against the `tokenizers` library, against its own plain form, and against every string there is."""

import argparse
import inspect
import json
import os
import random
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
import tokenizers
from hypothesis import example, given, settings, strategies as st

from tfbook import data
from tfbook.text import GPT2_PATTERN, Tokenizer, bytes_to_letters, learn_merges, letters_to_bytes, pre_tokenize
from tfbook.text.bpe import BpeVocabulary, _PairIndex, count_pairs, learn_merges_naively, merge
from tfbook.text.byte_level import BYTE_ID, BYTE_LETTERS, BYTES

GPT2 = Path(os.environ.get("TFBOOK_MIRROR", "")) / "gpt2"
SPECIALS = ("<pad>", "<|endoftext|>")
DIGITS = r"\d{1,3}|\s+|[^\d\s]+"  # a pattern of somebody else's choice
SCRIPTS = [
    "abcdefgh",
    "éèüñßøåÆ",
    "абвгдежз",
    "αβγδεζηθ",
    "漢字仮名交文",
    "한국어문장",
    "ابجدهوز",
    "कखगघङ\u093f",
    "a\u0301e\u0308",
]
EMOJI = ["🙂", "👍🏽", "👩‍👩‍👧‍👦", "🇫🇷", "❤️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"]


def english() -> str:
    return data.load("python-reference").train[:120_000]


def mixed() -> str:
    """Words of many scripts, each drawn more than once, between them emoji and odd spaces."""
    rng = random.Random(0)
    words = ["".join(rng.choices(rng.choice(SCRIPTS), k=rng.randint(1, 6))) for _ in range(4000)] + EMOJI * 20
    return "".join(
        rng.choice(words) + rng.choice([" ", " ", " ", "  ", "\n", "\u3000", "\u00a0", "!? ", "42 "])
        for _ in range(30_000)
    )


def code() -> str:
    modules: list[ModuleType] = [argparse, inspect, json.decoder, random, textwrap]
    return "\n".join(map(inspect.getsource, modules))


CORPORA = {"english": english, "mixed scripts": mixed, "source code": code}


@cache
def corpus(name: str) -> str:
    return CORPORA[name]()


def library(pattern: str | None = None) -> tokenizers.Tokenizer:
    """The library's byte-level BPE with nothing learned."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    parts = tokenizers.pre_tokenizers
    by_bytes = parts.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [] if pattern is None else [parts.Split(tokenizers.Regex(pattern), "isolated")]
    made.pre_tokenizer = parts.Sequence([*split, by_bytes]) if split else by_bytes
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def trained(text: str, vocab: int, specials: tuple[str, ...] = (), pattern: str | None = None) -> tokenizers.Tokenizer:
    made = library(pattern)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=alphabet, special_tokens=list(specials), show_progress=False
    )
    made.train_from_iterator([text], trainer)
    return made


def merges_of(made: tokenizers.Tokenizer) -> list[tuple[str, str]]:
    return [(first, second) for first, second in json.loads(made.to_str())["model"]["merges"]]


def written_merges(ours: Tokenizer) -> list[tuple[str, str]]:
    return [
        (bytes_to_letters(ours.tokens[first]), bytes_to_letters(ours.tokens[second])) for first, second in ours.merges
    ]


def vocabulary_of(ours: Tokenizer) -> dict[str, int]:
    return {bytes_to_letters(token): number for number, token in ours.tokens.items()} | ours.specials


def plainly(ours: Tokenizer, text: str) -> list[int]:
    """Encoding as it is described: of all pairs in a chunk, join the one that was learned first, and again."""
    ids: list[int] = []
    id_of = {token: number for number, token in ours.tokens.items()}
    for chunk in pre_tokenize(text, ours.pattern):
        word = tuple(id_of[bytes([byte])] for byte in chunk.encode())
        while pairs := set(pairwise(word)).intersection(ours.merges):
            first, second = pair = min(pairs, key=ours.merges.index)
            word = merge(word, pair, id_of[ours.tokens[first] + ours.tokens[second]])
        ids += word
    return ids


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    """Learned from all three corpora, with specials."""
    return Tokenizer.learn(map(corpus, CORPORA), 1500, specials=SPECIALS)


class TestSpelling:
    def test_bytes_are_written_as_the_library_writes_them(self) -> None:
        assert sorted(BYTE_LETTERS) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        assert bytes_to_letters(b" \n\x00") == "ĠĊĀ"
        assert [letters_to_bytes(bytes_to_letters(byte)) for byte in BYTES] == BYTES

    def test_a_letter_that_stands_for_no_byte_is_named(self) -> None:
        with pytest.raises(ValueError, match="token 'a漢' holds '漢', which stands for no byte"):
            letters_to_bytes("a漢")

    @pytest.mark.parametrize("name", CORPORA)
    def test_the_chunks_are_those_of_the_library(self, name: str) -> None:
        text = corpus(name) + "  it's we'LL\t\r\n 3.14  \x1c\x85\u2028\u180e\u200b end   "
        theirs = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
        assert pre_tokenize(text) == [text[start:end] for _, (start, end) in theirs]

    def test_a_lone_surrogate_is_refused(self, ours: Tokenizer) -> None:
        for text in ("ab\ud83d", "\udc00", "a\udfffb"):
            with pytest.raises(
                ValueError, match=r"text holds a lone surrogate, U\+D[89A-F]\w\w at \d: half a character"
            ):
                ours.encode(text)
        assert ours.decode(ours.encode("ab\U0001f642")) == "ab🙂"

    def test_a_pattern_may_hold_groups(self) -> None:
        assert pre_tokenize("ab 12 cd", r"( ?)([a-z]+|\d+)") == ["ab", " 12", " cd"]

    def test_a_pattern_that_leaves_text_out_is_refused(self) -> None:
        with pytest.raises(
            ValueError, match=r"pattern '\\\\w\+' leaves out part of 'a b'; expected one that matches all"
        ):
            pre_tokenize("a b", r"\w+")

    def test_what_is_no_pattern_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"pattern '\(' is not a regular expression \(missing \)"):
            pre_tokenize("a b", "(")


class TestLearning:
    @pytest.mark.parametrize("vocab", [300, 1000, 4000])
    @pytest.mark.parametrize("name", CORPORA)
    def test_merges_and_ids_are_those_of_the_library(self, name: str, vocab: int) -> None:
        mine = Tokenizer.learn([corpus(name)], vocab, specials=SPECIALS)
        theirs = trained(corpus(name), vocab, SPECIALS)
        assert len(mine) == vocab
        assert written_merges(mine) == merges_of(theirs)
        assert vocabulary_of(mine) == theirs.get_vocab()
        for other in CORPORA:
            text = corpus(other)[-20_000:]
            assert mine.encode(text) == theirs.encode(text).ids

    @pytest.mark.parametrize("name", CORPORA)
    def test_so_they_are_with_another_pattern(self, name: str) -> None:
        mine = Tokenizer.learn([corpus(name)], 1000, pattern=DIGITS)
        theirs = trained(corpus(name), 1000, pattern=DIGITS)
        assert written_merges(mine) == merges_of(theirs)
        text = corpus("english")[-20_000:]
        assert mine.encode(text) == theirs.encode(text).ids

    @settings(max_examples=300)
    @given(st.text("ab c", max_size=60))
    @example("aaaaaaaa aaa aaaaa")
    @example("abab baba abba ba ab")
    def test_so_they_are_where_pairs_overlap_and_counts_are_equal(self, text: str) -> None:
        """Two letters make runs, ties and pairs that spell what another pair has spelled."""
        mine, theirs = Tokenizer.learn([text], 290), trained(text, 290)
        assert written_merges(mine) == merges_of(theirs)
        assert vocabulary_of(mine) == theirs.get_vocab()
        assert mine.encode(text) == theirs.encode(text).ids

    @pytest.mark.parametrize("name", CORPORA)
    def test_the_naive_form_learns_the_same(self, name: str) -> None:
        text = corpus(name)[:20_000]
        assert learn_merges_naively(text, 60) == learn_merges([text], 256 + 60).merges

    @given(st.lists(st.text("ab", min_size=1, max_size=12), min_size=1, max_size=6))
    def test_the_counts_are_right_after_every_merge(self, words: list[str]) -> None:
        """And no two merges spell the same, though the letters are two."""
        vocabulary, frequencies = BpeVocabulary(), list(range(1, len(words) + 1))
        index = _PairIndex([[BYTE_ID[byte] for byte in word.encode()] for word in words], frequencies)
        while (pair := index.most_frequent()) is not None:
            index.merge(pair, vocabulary.add(pair))
            counts = Counter[tuple[int, int]]()
            for word, frequency in zip(index.words, frequencies, strict=True):
                counts.update(count_pairs({tuple(word): frequency}))
            assert {pair: count for pair, count in index.counts.items() if count} == counts
        assert len(set(vocabulary.tokens)) == 256 + len(vocabulary.merges)

    def test_overlapping_pairs_are_joined_from_the_left(self) -> None:
        assert count_pairs({(7, 7, 7): 2, (7, 8): 1}) == {(7, 7): 4, (7, 8): 1}
        assert merge((7, 7, 7, 8, 7, 7), (7, 7), 9) == (9, 7, 8, 9)
        assert Tokenizer.learn(["aaaa"], 258).merges == [(BYTE_ID[97], BYTE_ID[97]), (256, 256)]

    def test_among_equals_the_smaller_pair_is_first(self) -> None:
        a, b, c, d = (BYTE_ID[byte] for byte in b"abcd")
        assert learn_merges(["cd", "ab", "cb"], 258).merges == learn_merges_naively("cd\nab\ncb", 2) == [(a, b), (c, b)]
        assert learn_merges(["cd"], 1000).merges == [(c, d)]  # and no pair is left

    @pytest.mark.parametrize(
        ("pattern", "name"), [(GPT2_PATTERN, "english"), (GPT2_PATTERN, "mixed scripts"), (DIGITS, "source code")]
    )
    def test_merges_never_cross_chunks(self, pattern: str, name: str) -> None:
        within = {chunk.encode() for chunk in pre_tokenize(corpus(name), pattern)}
        tokens = learn_merges([corpus(name)], 2000, pattern=pattern).tokens[256:]
        everything = b"\xff".join(within)  # which no text in UTF-8 holds
        assert all(token in everything for token in tokens)

    def test_nor_texts(self) -> None:
        assert learn_merges(["a", "b", "a", "b"], 300).merges == []

    def test_errors_name_the_argument(self) -> None:
        with pytest.raises(ValueError, match="vocab is 255; expected 256 or more, one token for each byte"):
            learn_merges(["a"], 255)
        with pytest.raises(
            ValueError, match="vocab is 257; expected 256 or more, one token for each byte, and 2 specials"
        ):
            Tokenizer.learn(["a"], 257, specials=SPECIALS)
        with pytest.raises(ValueError, match=r"specials is \['<a>', '<a>'\]; expected each name once"):
            Tokenizer.learn(["a"], 300, specials=("<a>", "<a>"))
        with pytest.raises(TypeError, match="texts is the string 'a text'; expected several texts, or one in a list"):
            Tokenizer.learn("a text", 300)


class TestEncoding:
    @settings(max_examples=10_000)
    @given(text=st.text())
    def test_every_string_comes_back(self, ours: Tokenizer, text: str) -> None:
        ids = ours.encode(text)
        assert ours.decode(ids) == text
        assert ours.decode_bytes(ids) == text.encode()

    @settings(max_examples=10_000)
    @given(content=st.binary())
    def test_every_byte_string_comes_back(self, ours: Tokenizer, content: bytes) -> None:
        ids = [len(SPECIALS) + BYTE_ID[byte] for byte in content]
        assert ours.decode_bytes(ids) == content
        assert ours.decode(ids) == content.decode(errors="replace")

    @settings(max_examples=300)
    @given(text=st.text("the in8 \n'é漢") | st.text())
    def test_the_ids_are_those_of_the_plain_form(self, ours: Tokenizer, text: str) -> None:
        assert ours.encode(text) == plainly(ours, text)

    def test_a_pair_learned_first_is_joined_first_wherever_it_stands(self) -> None:
        tokens = dict(enumerate([*BYTES, b"bc", b"ab", b"abc"]))
        a, b, c = (BYTE_ID[byte] for byte in b"abc")
        made = Tokenizer(tokens, [(b, c), (a, b), (257, c), (a, 256)])
        assert [made.encode(text) for text in ("abc", "ab", "abab", "abcab")] == [[258], [257], [257, 257], [258, 257]]

    def test_the_cache_changes_nothing(self, ours: Tokenizer) -> None:
        text = corpus("mixed scripts")[:5000]
        fresh = Tokenizer(ours.tokens, ours.merges, ours.specials)
        first = fresh.encode(text)
        assert (
            fresh.encode(text)
            == first
            == [number for chunk in pre_tokenize(text) for number in fresh._merge_chunk(chunk)]
        )
        first.append(0)
        assert fresh.encode(text) == first[:-1]

    @pytest.mark.parametrize("alphabet", ["a", "etaoinsrhld", "漢字仮名交じり文"])
    def test_a_chunk_without_end_takes_no_time_without_end(self, ours: Tokenizer, alphabet: str) -> None:
        chunk = "".join(random.Random(0).choices(alphabet, k=50_000))
        start = time.process_time()
        ids = ours.encode(chunk)
        assert time.process_time() - start < 2  # 0.1 s; joining one pair at a time took minutes
        assert ours.decode(ids) == chunk

    def test_specials_are_text_unless_they_are_asked_for(self, ours: Tokenizer) -> None:
        text = "<pad>a<|endoftext|><|endof<pad>"
        assert not set(ours.specials.values()) & set(ours.encode(text))
        assert ours.encode(text, specials=True) == [0, *ours.encode("a"), 1, *ours.encode("<|endof"), 0]
        assert ours.decode(ours.encode(text)) == ours.decode(ours.encode(text, specials=True)) == text

    def test_the_longest_special_is_taken(self) -> None:
        made = Tokenizer.learn(["a"], 258, specials=["<a", "<a>"])
        assert made.encode("<a><a", specials=True) == [1, 0]
        assert made.encode("", specials=True) == made.encode("") == []

    def test_part_of_a_character_is_shown_as_such(self, ours: Tokenizer) -> None:
        ids = Tokenizer.learn([""], 256).encode("é漢")
        alone = Tokenizer(dict(enumerate(BYTES)), [])
        assert [alone.decode(ids[:n]) for n in range(6)] == ["", "\ufffd", "é", "é\ufffd", "é\ufffd", "é漢"]
        assert alone.decode_bytes(ids[:4]) + alone.decode_bytes(ids[4:]) == "é漢".encode()

    @pytest.mark.parametrize("wrong", [-1, 1500, 10**9])
    def test_an_id_that_is_no_tokens_is_refused(self, ours: Tokenizer, wrong: int) -> None:
        with pytest.raises(ValueError, match=f"ids holds {wrong}; expected ids of this tokenizer's 1,500 tokens"):
            ours.decode([0, wrong])


class TestConstruction:
    TOKENS: ClassVar = dict(enumerate(BYTES))

    def test_every_byte_has_to_be_a_token(self) -> None:
        with pytest.raises(ValueError, match="tokens lacks 1 of the 256 bytes, such as b'!'; expected all of them"):
            Tokenizer({number: token for number, token in self.TOKENS.items() if token != b"!"}, [])

    def test_two_ids_for_one_token_are_refused(self) -> None:
        with pytest.raises(ValueError, match="tokens spells 1 byte strings twice"):
            Tokenizer(self.TOKENS | {256: b"a"}, [])

    @pytest.mark.parametrize("pair", [(64, 65), (64, 999)])
    def test_a_merge_has_to_spell_a_token(self, pair: tuple[int, int]) -> None:
        with pytest.raises(
            ValueError, match=rf"merges holds \({pair[0]}, {pair[1]}\); expected two tokens that spell a"
        ):
            Tokenizer(self.TOKENS, [pair])

    @pytest.mark.parametrize("specials", [{"<a>": 5}, {"<a>": 300, "<b>": 300}, {"": 300}])
    def test_a_special_has_a_name_and_an_id_of_its_own(self, specials: dict[str, int]) -> None:
        with pytest.raises(ValueError, match=r"specials is .*; expected names, each with an id of its own"):
            Tokenizer(self.TOKENS, [], specials)


class TestJson:
    @pytest.mark.parametrize("pattern", [GPT2_PATTERN, DIGITS])
    def test_the_library_reads_what_is_saved(self, tmp_path: Path, pattern: str) -> None:
        mine = Tokenizer.learn([corpus("source code")], 700, specials=SPECIALS, pattern=pattern)
        mine.save(tmp_path / "ours.json")
        theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "ours.json"))
        text = corpus("mixed scripts")[:20_000] + "<|endoftext|>"
        assert theirs.encode(text).ids == mine.encode(text, specials=True)
        assert theirs.decode(mine.encode(text, specials=True), skip_special_tokens=False) == text
        again = Tokenizer.load(tmp_path / "ours.json")
        assert (again.tokens, again.merges, again.specials, again.pattern) == (
            mine.tokens,
            mine.merges,
            mine.specials,
            pattern,
        )

    @pytest.mark.parametrize("pattern", [None, DIGITS])
    @pytest.mark.parametrize("older", [False, True])
    def test_what_the_library_saves_is_read(self, tmp_path: Path, pattern: str | None, older: bool) -> None:
        """Older files write a merge as `a b` and say nothing of a pattern; the library puts specials first."""
        theirs = trained(corpus("english"), 700, SPECIALS, pattern)
        content = json.loads(theirs.to_str())
        if older:
            content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
            if pattern is None:
                del content["pre_tokenizer"]["use_regex"]
        (tmp_path / "theirs.json").write_text(json.dumps(content), encoding="utf-8")
        mine = Tokenizer.load(tmp_path / "theirs.json")
        assert mine.specials == {"<pad>": 0, "<|endoftext|>": 1}
        text = corpus("mixed scripts")[:20_000] + "<pad>"
        assert mine.encode(text, specials=True) == theirs.encode(text).ids

    @pytest.mark.parametrize("behavior", ["removed", "merged_with_next"])
    def test_a_split_is_read_when_it_keeps_all_matches(self, tmp_path: Path, behavior: str) -> None:
        made = trained(corpus("english")[:2000], 300, pattern=DIGITS)
        parts = tokenizers.pre_tokenizers
        split = parts.Split(tokenizers.Regex(DIGITS), behavior, invert=behavior == "removed")
        made.pre_tokenizer = parts.Sequence([split, parts.ByteLevel(add_prefix_space=False, use_regex=False)])
        made.save(str(tmp_path / "file.json"))
        if behavior == "removed":
            assert Tokenizer.load(tmp_path / "file.json").encode("a 1234") == made.encode("a 1234").ids
        else:
            with pytest.raises(ValueError, match="expected ByteLevel, alone or after one Split by a pattern"):
                Tokenizer.load(tmp_path / "file.json")

    def test_a_chunk_that_is_a_token_may_stay_whole(self, tmp_path: Path) -> None:
        """`ignore_merges`, as Llama 3's file has it: tokens to which no merge leads are found all the same."""
        content = json.loads(trained(corpus("english"), 700).to_str())
        content["model"]["ignore_merges"] = True
        content["model"]["merges"] = content["model"]["merges"][:100]
        (tmp_path / "file.json").write_text(json.dumps(content), encoding="utf-8")
        theirs, text = tokenizers.Tokenizer.from_file(str(tmp_path / "file.json")), corpus("mixed scripts")[:20_000]
        mine = Tokenizer.load(tmp_path / "file.json")
        assert mine.encode(text) == theirs.encode(text).ids
        assert mine.encode(text) != Tokenizer(mine.tokens, mine.merges).encode(text)
        mine.save(tmp_path / "again.json")
        assert Tokenizer.load(tmp_path / "again.json").encode(text) == mine.encode(text)
        with pytest.raises(ValueError, match="whole_chunks is True, which GPT-2's files cannot say"):
            mine.save_gpt2(tmp_path)

    def test_an_added_token_takes_its_whitespace_along(self, tmp_path: Path) -> None:
        """RoBERTa's `<mask>`."""
        made = trained(corpus("english")[:2000], 261)
        made.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
        made.save(str(tmp_path / "file.json"))
        mine, text = Tokenizer.load(tmp_path / "file.json"), "of <mask> a<mask>b"
        assert mine.encode(text, specials=True) == made.encode(text).ids
        plain = Tokenizer(mine.tokens, mine.merges, mine.specials)
        assert len(mine.encode(text, specials=True)) == len(plain.encode(text, specials=True)) - 1

    def test_a_known_word_may_be_added(self, tmp_path: Path) -> None:
        """It keeps its id, merges still lead to it, and it is found within words; a byte may be added, too."""
        made = trained(corpus("english"), 700, SPECIALS)
        assert made.add_tokens(["the", "e", "a new one"]) == 3
        made.save(str(tmp_path / "file.json"))
        mine = Tokenizer.load(tmp_path / "file.json")
        text = "the other theme<pad> then a new one here"
        assert mine.encode(text, specials=True) == made.encode(text).ids
        assert mine.decode(made.encode(text).ids) == text
        assert mine.specials == {"<pad>": 0, "<|endoftext|>": 1}

    def test_what_a_post_processor_adds_is_added_with_specials(self, tmp_path: Path) -> None:
        """Llama 3's beginning of a text."""
        made = trained(corpus("english"), 400, SPECIALS)
        template = tokenizers.processors.TemplateProcessing(
            single="<|endoftext|> $A", pair="$A $B", special_tokens=[("<|endoftext|>", 1)]
        )
        made.post_processor = template
        made.save(str(tmp_path / "file.json"))
        mine = Tokenizer.load(tmp_path / "file.json")
        assert mine.encode("the", specials=True) == made.encode("the").ids == [1, *mine.encode("the")]
        with pytest.raises(ValueError, match="added or template says more than GPT-2's files can"):
            mine.save_gpt2(tmp_path)

    DAMAGES: ClassVar[dict[str, tuple[Callable[[str], str], str]]] = {
        "cut off": (lambda text: text[:-20], "Expecting"),
        "a list": (lambda text: "[1]", "list indices"),
        "no merges": (lambda text: text.replace('"merges"', '"joins"'), "'merges'"),
        "a merge of three": (lambda text: text.replace('"merges": [', '"merges": ["a b c",'), "too many values"),
        "an unknown merge": (lambda text: text.replace('"merges": [', '"merges": ["a 漢",'), "a merge holds '漢'"),
        "a byte less": (lambda text: text.replace('"!": 2,', ""), "a merge holds '!', which is not a token"),
        "another model": (lambda text: text.replace('"BPE"', '"WordLevel"'), "asks for {'type': 'WordLevel'}"),
        "a normalizer": (lambda text: text.replace('"normalizer": null', '"normalizer": {"type": "NFC"}'), "'NFC'"),
        "dropout": (lambda text: text.replace('"dropout": null', '"dropout": 0.1'), "asks for {'dropout': 0.1}"),
        "a prefix": (lambda text: text.replace('"add_prefix_space": false', '"add_prefix_space": true'), "ByteLevel"),
        "no chunks": (lambda text: text.replace('"pre_tokenizer": {', '"pre_tokenizer": null, "old": {'), "is None"),
        "no bytes": (lambda text: text.replace('"type": "ByteLevel"', '"type": "Whitespace"'), "Whitespace"),
    }

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_damaged_file_is_named(self, tmp_path: Path, ours: Tokenizer, damage: str) -> None:
        change, message = self.DAMAGES[damage]
        file = tmp_path / "file.json"
        ours.save(file)
        before = file.read_text(encoding="utf-8")
        file.write_text(change(before), encoding="utf-8")
        assert file.read_text(encoding="utf-8") != before
        with pytest.raises(ValueError, match=rf"file\.json is not a byte-level BPE.*{message}"):
            Tokenizer.load(file)

    def test_a_special_that_is_a_token_cannot_be_saved(self, tmp_path: Path) -> None:
        made = Tokenizer.learn(["the the the"], 260, specials=["the"])
        for save in (lambda: made.save(tmp_path / "file.json"), lambda: made.save_gpt2(tmp_path)):
            with pytest.raises(ValueError, match=r"specials \['the'\] are tokens too; expected names"):
                save()


class TestGpt2:
    def test_the_pair_of_files_is_read_by_the_library_and_back(self, tmp_path: Path, ours: Tokenizer) -> None:
        ours.save_gpt2(tmp_path)
        again = Tokenizer.load_gpt2(tmp_path)
        assert (again.tokens, again.merges, again.specials) == (ours.tokens, ours.merges, ours.specials)
        theirs = library()
        theirs.model = tokenizers.models.BPE.from_file(str(tmp_path / "encoder.json"), str(tmp_path / "vocab.bpe"))
        text = corpus("source code")[:20_000]
        assert again.encode(text) == ours.encode(text) == theirs.encode(text).ids

    def test_what_the_library_saves_is_read(self, tmp_path: Path) -> None:
        theirs = trained(corpus("english"), 700, SPECIALS)
        vocabulary, merges = theirs.model.save(str(tmp_path))
        Path(vocabulary).rename(tmp_path / "encoder.json")
        Path(merges).rename(tmp_path / "vocab.bpe")
        mine = Tokenizer.load_gpt2(tmp_path)
        assert mine.specials == {"<pad>": 0, "<|endoftext|>": 1}
        assert mine.encode(corpus("mixed scripts")) == theirs.encode(corpus("mixed scripts")).ids

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("encoder.json", '{"a"', "delimiter"),
            ("encoder.json", "[]", "list"),
            ("encoder.json", '{"a": 1}', "a merge holds 'Ġ', which is not a token"),
            ("vocab.bpe", "#version: 0.2\na b c\n", "too many values"),
            ("vocab.bpe", "#version: 0.2\na 漢\n", "'漢'"),
        ],
    )
    def test_damaged_files_are_named(
        self, tmp_path: Path, ours: Tokenizer, name: str, content: str, message: str
    ) -> None:
        ours.save_gpt2(tmp_path)
        (tmp_path / name).write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=f"does not hold GPT-2's two files .*{message}"):
            Tokenizer.load_gpt2(tmp_path)

    def test_another_pattern_is_not_saved(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"pattern is '.*'; GPT-2's files imply its own, so use save\(\)"):
            Tokenizer.learn(["a"], 256, pattern=DIGITS).save_gpt2(tmp_path)
        assert not list(tmp_path.iterdir())

    @pytest.mark.skipif(not GPT2.is_dir(), reason="needs GPT-2's two files in the folder gpt2 of TFBOOK_MIRROR")
    def test_the_published_files_give_the_published_ids(self) -> None:
        mine, theirs = Tokenizer.load_gpt2(GPT2), library()
        theirs.model = tokenizers.models.BPE.from_file(str(GPT2 / "encoder.json"), str(GPT2 / "vocab.bpe"))
        assert len(mine) == 50_257
        assert mine.encode("Hello world<|endoftext|>", specials=True) == [15496, 995, 50256]
        for name in CORPORA:
            assert mine.encode(corpus(name)) == theirs.encode(corpus(name)).ids
