"""Vocabularies, batches and readers, against values written by hand and properties that hold for any corpus."""

import gzip
import pickle
import random
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from tfbook import data
from tfbook.data.translation import COLUMNS, Translations, check_tatoeba, read_english_french, read_tatoeba
from tfbook.text import (
    BOS,
    EOS,
    PAD,
    UNK,
    Batch,
    Batches,
    Pair,
    Vocabulary,
    collate,
    detokenize,
    filter_by_length,
    tokenize,
)

PAIRS = [
    Pair(("the", "cat", "sleeps"), ("le", "chat", "dort")),
    Pair(("cat",), ("le", "chat")),
    Pair(("the", "dog", "and", "the", "cat"), ("le", "chien", "et", "le", "chat", "!")),
]


def vocabularies(pairs: list[Pair]) -> tuple[Vocabulary, Vocabulary]:
    return Vocabulary(pair.source for pair in pairs), Vocabulary(pair.target for pair in pairs)


SENTENCE = st.lists(st.sampled_from("abcdefgh"), max_size=9).map(tuple)
CORPUS = st.lists(st.builds(Pair, SENTENCE, SENTENCE), min_size=1, max_size=60).filter(
    lambda pairs: any(pair.source for pair in pairs) and any(pair.target for pair in pairs)
)


class TestVocabulary:
    def test_specials_come_first_then_frequent_tokens_then_the_alphabet(self) -> None:
        vocabulary = Vocabulary([["b", "a", "c", "c"], ["d", "c", "b"]])
        assert vocabulary.tokens == ("<pad>", "<bos>", "<eos>", "<unk>", "c", "b", "a", "d")
        assert len(vocabulary) == 8
        assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)

    def test_rare_tokens_are_left_out(self) -> None:
        vocabulary = Vocabulary([["b", "a", "c", "c"], ["d", "c", "b"]], min_count=2)
        assert "b" in vocabulary
        assert "a" not in vocabulary
        assert vocabulary.encode(["a", "b", "z"]) == [UNK, 5, UNK]

    def test_decoding_stops_at_the_end_and_drops_padding(self) -> None:
        vocabulary = Vocabulary([["a", "b"]])
        assert vocabulary.decode([BOS, 4, PAD, UNK, 5, EOS, 4]) == ("a", "<unk>", "b")
        assert vocabulary.decode(torch.tensor([4, 5])) == ("a", "b")

    def test_a_special_in_the_text_gets_no_second_id(self) -> None:
        assert Vocabulary([["<unk>", "a"]]).tokens == ("<pad>", "<bos>", "<eos>", "<unk>", "a")

    def test_a_special_s_name_in_the_text_is_no_special(self) -> None:
        """Else a text that quotes it would end there."""
        vocabulary = Vocabulary([["a", "<eos>", "b"]])
        assert vocabulary.encode(["a", "<eos>", "<pad>", "<bos>", "<unk>", "b"]) == [4, UNK, UNK, UNK, UNK, 5]
        assert vocabulary.decode(vocabulary.encode(["a", "<eos>", "b"])) == ("a", "<unk>", "b")
        assert "<eos>" in vocabulary

    def test_the_order_of_the_corpus_does_not_matter(self) -> None:
        assert Vocabulary([["a", "b"], ["c"]]).tokens == Vocabulary([["c"], ["b", "a"]]).tokens

    def test_it_can_be_saved(self) -> None:
        vocabulary = Vocabulary([["a", "b"]])
        assert pickle.loads(pickle.dumps(vocabulary)).encode(["b", "z"]) == vocabulary.encode(["b", "z"])

    @given(st.lists(st.lists(st.text(min_size=1), min_size=1), min_size=1))
    def test_known_sentences_survive_the_way_back(self, sentences: list[list[str]]) -> None:
        vocabulary = Vocabulary(sentences)
        for sentence in sentences:
            assert vocabulary.decode([*vocabulary.encode(sentence), EOS, PAD]) == tuple(sentence)

    def test_errors_name_the_argument(self) -> None:
        with pytest.raises(ValueError, match="min_count is 0; expected 1 or more"):
            Vocabulary([["a"]], min_count=0)
        with pytest.raises(ValueError, match="sentences holds no tokens"):
            Vocabulary([[], []])
        with pytest.raises(TypeError, match="sentences holds the string 'a cat'; expected sequences of tokens"):
            Vocabulary(["a cat"])
        vocabulary = Vocabulary([["a"]])
        with pytest.raises(TypeError, match="tokens is the string 'a'"):
            vocabulary.encode("a")
        with pytest.raises(ValueError, match="ids holds 5; expected 0 to 4"):
            vocabulary.decode([5])
        with pytest.raises(ValueError, match="ids holds -1"):
            vocabulary.decode([-1])
        with pytest.raises(ValueError, match=r"ids has shape \(1, 2\); expected the ids of one sentence"):
            vocabulary.decode(torch.tensor([[4, 2]]))


class TestCollate:
    def test_ids_are_those_written_by_hand(self) -> None:
        english, french = vocabularies(PAIRS)
        the, cat, sleeps = english.encode(["the", "cat", "sleeps"])
        le, chat, dort = french.encode(["le", "chat", "dort"])
        batch = collate(PAIRS[:2], english, french)
        assert batch.source.tolist() == [[the, cat, sleeps, EOS], [cat, EOS, PAD, PAD]]
        assert batch.target_in.tolist() == [[BOS, le, chat, dort], [BOS, le, chat, PAD]]
        assert batch.target_out.tolist() == [[le, chat, dort, EOS], [le, chat, EOS, PAD]]
        assert batch.source_lengths.tolist() == [4, 2]
        assert batch.target_lengths.tolist() == [4, 3]
        assert batch.tokens == 7
        assert {tensor.dtype for tensor in vars(batch).values()} == {torch.int64}

    def test_an_empty_sentence_is_one_end(self) -> None:
        english, french = vocabularies(PAIRS)
        batch = collate([Pair((), ())], english, french)
        assert (batch.source.tolist(), batch.target_in.tolist(), batch.target_out.tolist()) == (
            [[EOS]],
            [[BOS]],
            [[EOS]],
        )

    @given(CORPUS)
    def test_every_sentence_can_be_read_back(self, pairs: list[Pair]) -> None:
        english, french = vocabularies(pairs)
        batch = collate(pairs, english, french)
        for row, pair in enumerate(pairs):
            assert english.decode(batch.source[row]) == pair.source
            assert french.decode(batch.target_in[row]) == french.decode(batch.target_out[row]) == pair.target
        assert torch.equal((batch.source != PAD).sum(1), batch.source_lengths)
        assert torch.equal((batch.target_in != PAD).sum(1), batch.target_lengths)
        assert torch.equal((batch.target_out != PAD).sum(1), batch.target_lengths)

    def test_it_moves_to_a_device_as_one(self) -> None:
        batch = collate(PAIRS, *vocabularies(PAIRS)).to("meta")
        assert isinstance(batch, Batch)
        assert {tensor.device.type for tensor in vars(batch).values()} == {"meta"}

    def test_no_pairs_are_refused(self) -> None:
        with pytest.raises(ValueError, match="pairs is empty; expected at least one Pair"):
            collate([], *vocabularies(PAIRS))


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(tensor, getattr(other, name)) for name, tensor in vars(one).items())


class TestBatches:
    @given(CORPUS, st.integers(1, 70), st.integers(-5, 5))
    def test_an_epoch_holds_every_pair_once(self, pairs: list[Pair], size: int, seed: int) -> None:
        english, french = vocabularies(pairs)
        batches = Batches(pairs, english, french, size=size, seed=seed)
        assert len(batches) == -(-len(pairs) // size)
        for epoch in range(2):
            steps = range(epoch * len(batches), (epoch + 1) * len(batches))
            seen = [
                (english.decode(source), french.decode(target))
                for batch in map(batches, steps)
                for source, target in zip(batch.source, batch.target_out, strict=True)
            ]
            assert Counter(seen) == Counter((pair.source, pair.target) for pair in pairs)

    def test_a_step_is_the_same_whatever_was_asked_before(self) -> None:
        vocabulary = vocabularies(PAIRS)
        forward = Batches(PAIRS, *vocabulary, size=2, seed=3)
        backward = Batches(PAIRS, *vocabulary, size=2, seed=3)
        there = [forward(step) for step in range(12)]
        back = [backward(step) for step in reversed(range(12))]
        assert all(map(same, there, reversed(back)))

    def test_epochs_and_seeds_differ(self) -> None:
        """Also in who shares a batch, and not only in their order, even when no two sentences have the same length."""
        pairs = [Pair(("a",) * length, ("b",)) for length in range(1, 301)]
        vocabulary = vocabularies(pairs)
        batches, other = (Batches(pairs, *vocabulary, size=2, seed=seed) for seed in (0, 1))
        first, second, third = (
            [frozenset(drawn(step).source_lengths.tolist()) for step in steps]
            for drawn, steps in [(batches, range(150)), (batches, range(150, 300)), (other, range(150))]
        )
        assert len(set(first) & set(second)) < 75
        assert len(set(first) & set(third)) < 75

    def test_an_epoch_is_shuffled_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        batches = Batches(PAIRS * 50, *vocabularies(PAIRS), size=2, seed=0)
        randperm, lengths = torch.randperm, []
        monkeypatch.setattr(torch, "randperm", lambda n, **dice: (lengths.append(n), randperm(n, **dice))[1])
        for step in range(len(batches)):
            batches(step)
        assert lengths == [150, 75]  # pairs, then batches

    def test_little_is_padding_and_lengths_are_mixed_over_time(self) -> None:
        dice = random.Random(0)
        pairs = [Pair(("a",) * dice.randint(1, 9), ("b",) * dice.randint(1, 9)) for _ in range(4000)]
        batches = Batches(pairs, *vocabularies(pairs), size=10, seed=0)
        epoch = [batches(step) for step in range(len(batches))]
        for side, limit in {"source": 0.05, "target_out": 0.2}.items():  # 37% of either when drawn blindly
            ids = [getattr(batch, side) for batch in epoch]
            assert sum(int((rows == PAD).sum()) for rows in ids) / sum(rows.numel() for rows in ids) < limit
        means = torch.stack([batch.source_lengths.float().mean() for batch in epoch])
        assert abs(float(means[:200].mean() - means[200:].mean())) < 1

    def test_errors_name_the_argument(self) -> None:
        vocabulary = vocabularies(PAIRS)
        with pytest.raises(ValueError, match="pairs is empty"):
            Batches([], *vocabulary, size=2, seed=0)
        with pytest.raises(ValueError, match="size is 0; expected 1 or more per batch"):
            Batches(PAIRS, *vocabulary, size=0, seed=0)
        with pytest.raises(ValueError, match="step is -1; expected 0 or more"):
            Batches(PAIRS, *vocabulary, size=2, seed=0)(-1)


def test_between_counts_source_tokens_and_includes_both_ends() -> None:
    assert filter_by_length(PAIRS, 3, 5) == [PAIRS[0], PAIRS[2]]
    assert filter_by_length(PAIRS, 0, 1) == [PAIRS[1]]
    with pytest.raises(ValueError, match="low is 4 and high is 3; expected 0 ≤ low ≤ high"):
        filter_by_length(PAIRS, 4, 3)
    with pytest.raises(ValueError, match="low is -1"):
        filter_by_length(PAIRS, -1, 3)


def tsv(path: Path, *lines: str) -> Path:
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


class TestEnglishFrench:
    HEADER = "\t".join(COLUMNS)

    def test_columns_become_pairs(self, tmp_path: Path) -> None:
        corpus = read_english_french(
            tsv(
                tmp_path / "corpus.tsv.gz",
                self.HEADER,
                "train\tplain\tthe cat sleeps\tle chat dort\t0-0 1-1 2-2 0?2",
                "test\tquestion\twho ?\tqui ?\t",
                "test\tplain\twho ?\tqui donc ?\t0-0",
            )
        )
        (pair,) = corpus["train"]
        assert pair == Pair(
            source=("the", "cat", "sleeps"),
            target=("le", "chat", "dort"),
            sure=frozenset({(0, 0), (1, 1), (2, 2)}),
            possible=frozenset({(0, 0), (1, 1), (2, 2), (0, 2)}),
            template="plain",
        )
        assert corpus.references == {("who", "?"): [("qui", "?"), ("qui", "donc", "?")]}
        assert str(corpus) == "english-french: english to french, 1 train, 2 test"
        with pytest.raises(KeyError, match="split is 'valid'; english-french has 'train', 'test'"):
            corpus["valid"]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("train\tplain\tthe cat\tle chat", "line 2 .* expected the columns split, template, english"),
            ("train\tplain\tthe\tle\t0+0", r"alignment holds '0\+0'; expected links such as 0-0 or 3\?4"),
            ("train\tplain\tthe\tle\t0-0x 1-1", "alignment holds '0-0x'; expected links"),
            ("train\tplain\tthe\tle\t0-", "alignment holds '0-'; expected links"),
        ],
    )
    def test_a_wrong_line_is_named(self, tmp_path: Path, line: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            read_english_french(tsv(tmp_path / "corpus.tsv.gz", self.HEADER, line))

    @pytest.mark.parametrize("lines", [(), (HEADER,)], ids=["empty", "header"])
    def test_a_corpus_without_pairs_is_refused(self, tmp_path: Path, lines: tuple[str, ...]) -> None:
        with pytest.raises(ValueError, match="english-french holds no pairs of sentences; expected one or more"):
            read_english_french(tsv(tmp_path / "corpus.tsv.gz", *lines))

    def test_a_bomb_is_not_unpacked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tfbook.data.translation.MOST", 10**6)
        path = tsv(tmp_path / "corpus.tsv.gz", self.HEADER, " " * 10**7)
        assert path.stat().st_size < 10**5
        with pytest.raises(ValueError, match=r"corpus\.tsv\.gz unpacks to more than 1,000,000 bytes"):
            read_english_french(path)

    def test_another_header_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"line 1 .* expected the columns split"):
            read_english_french(tsv(tmp_path / "corpus.tsv.gz", self.HEADER.replace("english", "german")))


def zipped(path: Path, text: str | bytes, *, member: str = "fra.txt") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_about.txt", "about")
        archive.writestr(member, text)
    return path


VALID = ["168", "190", "198"]  # among "Number 0." to "Number 199."
TEST = ["46", "65", "70", "89", "160", "176"]


class TestTatoeba:
    def read(self, path: Path, *lines: str) -> Translations:
        return read_tatoeba(zipped(path / "fra-eng.zip", "".join(f"{line}\n" for line in lines)))

    def test_no_english_words_are_in_two_splits(self, tmp_path: Path) -> None:
        lines = [f"Number {n}{sign}\tNombre {n}{sign}" for n in range(500) for sign in (".", "!", " ?")]
        corpus = self.read(tmp_path, *lines)
        words = {split: {pair.source[:2] for pair in pairs} for split, pairs in corpus.splits.items()}
        assert sum(map(len, words.values())) == 500
        assert all(len(words[split]) > 2 for split in ("train", "valid", "test"))
        assert sum(map(len, corpus.splits.values())) == 1500

    def test_a_newer_file_moves_no_sentence(self, tmp_path: Path) -> None:
        lines = [f"Number {n}.\tNombre {n}." for n in range(300)]
        old, new = self.read(tmp_path, *lines[::2]), self.read(tmp_path, *lines[::-1])
        for split, pairs in old.splits.items():
            assert set(pairs) <= set(new[split])

    def test_the_split_of_a_sentence_is_fixed_for_good(self, tmp_path: Path) -> None:
        corpus = self.read(tmp_path, *(f"Number {n}.\tNombre {n}." for n in range(200)))
        assert [pair.source[1] for pair in corpus["valid"]] == VALID
        assert [pair.source[1] for pair in corpus["test"]] == TEST

    def test_training_has_every_translation_and_tests_have_references(self, tmp_path: Path) -> None:
        lines = [f"Number {n}.\t{french} {n}." for n in range(200) for french in ("Nombre", "Numéro", "Nombre")]
        corpus = self.read(tmp_path, *lines)
        assert len(corpus["train"]) == 2 * (200 - len(VALID) - len(TEST))
        assert len(corpus["test"]) == len(TEST)
        assert set(corpus.references) == {pair.source for pair in corpus["valid"] + corpus["test"]}
        number = TEST[0]
        assert corpus.references["number", number, "."] == [("nombre", number, "."), ("numéro", number, ".")]

    def test_a_sentence_with_many_translations_takes_no_longer(self, tmp_path: Path) -> None:
        """A file in which every line translates the same sentence is read in a second and not in an hour."""
        start = time.perf_counter()
        corpus = self.read(tmp_path, *(f"Go.\tVa {n} !" for n in range(30_000)))
        assert len(corpus["train"]) == 30_000
        assert time.perf_counter() - start < 5

    def test_newer_files_have_a_third_column(self, tmp_path: Path) -> None:
        corpus = self.read(tmp_path, "Go.\tVa !\tCC-BY 2.0 (France) Attribution: tatoeba.org #2877272")
        (pair,) = corpus["train"]
        assert pair == Pair(("go", "."), ("va", "!"))

    def test_a_side_without_words_is_left_out(self, tmp_path: Path) -> None:
        corpus = self.read(tmp_path, "Go.\tVa !", "Go.\t ", "\tVa !", "\u200b\t", "Stop.\tStop !\r")
        assert [pair[:2] for pairs in corpus.splits.values() for pair in pairs] == [
            (("go", "."), ("va", "!")),
            (("stop", "."), ("stop", "!")),
        ]

    @pytest.mark.parametrize("line", ["Go.\t ", " \tVa !", "\t"])
    def test_a_corpus_without_pairs_is_refused(self, tmp_path: Path, line: str) -> None:
        with pytest.raises(ValueError, match="tatoeba holds no pairs of sentences; expected one or more"):
            self.read(tmp_path, line)

    def test_a_line_without_a_tab_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"line 2 of fra.txt is 'Go. Va !'; expected English, a tab, French"):
            self.read(tmp_path, "Go.\tVa !", "Go. Va !")


LINE = "Go.\tVa !\tCC-BY\n"


class TestCheckTatoeba:
    @pytest.mark.parametrize("member", ["fra.txt", "fra-eng/fra.txt"])
    @pytest.mark.parametrize("line", [LINE, "Go.\tVa !\r\n", "Allez\u2028!\tVa !\n"])
    def test_files_of_the_right_form_pass(self, tmp_path: Path, line: str, member: str) -> None:
        check_tatoeba(zipped(tmp_path / "fra-eng.zip", line * 100_000, member=member))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (LINE * 99_999, "fra.txt has 99,999 pairs of sentences; expected 100,000 or more"),
            ("Go.\t \n" * 100_000, "fra.txt has 0 pairs of sentences; expected 100,000 or more"),
            ("\t\n" * 100_000 + LINE, "fra.txt has 1 pairs of sentences; expected 100,000 or more"),
            ("?\t!\n" * 100_000, "fra.txt has 0 pairs of sentences; expected 100,000 or more"),
            (LINE * 100_000 + "\n" + LINE, "line 100001 of fra.txt is ''"),
            (LINE.replace("\t", " ") * 100_000, "line 1 of fra.txt"),
            (b"\xff" + LINE.encode() * 100_000, "'utf-8' codec can't decode"),
        ],
    )
    def test_files_of_another_form_are_refused(self, tmp_path: Path, text: str | bytes, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            check_tatoeba(zipped(tmp_path / "fra-eng.zip", text))

    def test_an_archive_without_sentences_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"holds no fra\.txt"):
            check_tatoeba(zipped(tmp_path / "fra-eng.zip", LINE * 100_000, member="deu.txt"))

    @pytest.mark.parametrize("read", [check_tatoeba, read_tatoeba])
    def test_a_bomb_is_refused_by_its_size(self, tmp_path: Path, read: Callable[[Path], object]) -> None:
        """A gigabyte in a megabyte, in the right form."""
        path = tmp_path / "fra-eng.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            with archive.open("fra.txt", "w") as file:
                for _ in range(140):
                    file.write(LINE.encode() * (2**20 // len(LINE)))
            archive.getinfo("fra.txt").file_size = 10**9  # in the directory, which is written last
        start = time.perf_counter()
        with pytest.raises(ValueError, match=r"fra\.txt unpacks to 1,000,000,000 bytes; expected at most 134,217,728"):
            read(path)
        assert time.perf_counter() - start < 1

    def test_a_size_that_is_a_lie_is_noticed(self, tmp_path: Path) -> None:
        """What is longer than the directory says is not unpacked, and has another checksum."""
        path = tmp_path / "fra-eng.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("fra.txt", LINE * 200_000)
            archive.getinfo("fra.txt").file_size = len(LINE) * 100_000
        with pytest.raises(zipfile.BadZipFile, match="Bad CRC-32"):
            check_tatoeba(path)

    @pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_another_compression_is_refused(self, tmp_path: Path, kind: int) -> None:
        """Python unpacks these in one piece, however long it is."""
        with zipfile.ZipFile(tmp_path / "fra-eng.zip", "w", kind) as archive:
            archive.writestr("fra.txt", LINE * 100)
        with pytest.raises(ValueError, match=rf"fra\.txt has compression type {kind}; expected stored or deflated"):
            check_tatoeba(tmp_path / "fra-eng.zip")

    @given(st.data())
    def test_a_cut_archive_is_refused(self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
        path = zipped(tmp_path_factory.mktemp("cut") / "fra-eng.zip", LINE * 100_000)
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        with pytest.raises(zipfile.BadZipFile):
            check_tatoeba(path)


@pytest.fixture(scope="module", params=["english-french", pytest.param("tatoeba", marks=pytest.mark.real)])
def corpus(request: pytest.FixtureRequest) -> Translations:
    return data.load(request.param)


class TestEveryCorpus:
    def test_english_is_in_one_split_only(self, corpus: Translations) -> None:
        seen = Counter(source for pairs in corpus.splits.values() for source in {pair.source for pair in pairs})
        assert set(seen.values()) == {1}

    def test_held_out_sentences_have_references(self, corpus: Translations) -> None:
        held_out = [pair for split in corpus.splits if split != "train" for pair in corpus[split]]
        assert all(pair.target in corpus.references[pair.source] for pair in held_out)
        assert len(corpus.references) == len({pair.source for pair in held_out})

    @pytest.mark.parametrize("side", ["source", "target"])
    def test_sentences_survive_the_way_back(self, corpus: Translations, side: str) -> None:
        language = corpus.source_language if side == "source" else corpus.target_language
        for tokens in {getattr(pair, side) for pairs in corpus.splits.values() for pair in pairs}:
            assert tokenize(detokenize(tokens, language), language) == tokens

    def test_links_stay_inside_the_sentences(self, corpus: Translations) -> None:
        for pairs in corpus.splits.values():
            for pair in pairs:
                assert pair.sure <= pair.possible
                assert all(i < len(pair.source) and j < len(pair.target) for i, j in pair.possible)


@pytest.mark.parametrize("corpus", [pytest.param("tatoeba", marks=pytest.mark.real)], indirect=True)
def test_tatoeba_is_as_large_as_it_should_be(corpus: Translations) -> None:
    assert len(corpus["train"]) > 130_000
    assert all(1_500 < len(corpus[split]) < 0.05 * len(corpus["train"]) for split in ("valid", "test"))
