"""Running text: characters and their ids, two parts, windows; what the two texts hold."""

import hashlib
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import pytest
import torch
from hypothesis import given, strategies as st

from tfbook import data, pretrain
from tfbook.data.registry import DATASETS
from tfbook.data.text import Text, read_text_file, read_tiny_shakespeare
from tfbook.text import CharacterVocabulary, Windows


class TestCharacters:
    def test_ids_follow_the_order_of_unicode(self) -> None:
        characters = CharacterVocabulary("hallo\n")
        assert characters.tokens == ("\n", "a", "h", "l", "o")
        assert characters.encode("allo").tolist() == [1, 3, 3, 4]
        assert len(characters) == 5

    @given(st.text(min_size=1))
    def test_text_survives_the_way_back(self, text: str) -> None:
        characters = CharacterVocabulary(text)
        assert characters.decode(characters.encode(text)) == text

    def test_nothing_is_encoded_as_nothing(self) -> None:
        ids = CharacterVocabulary("ab").encode("")
        assert ids.shape == (0,)
        assert ids.dtype == torch.int64

    def test_what_is_not_there_is_refused(self) -> None:
        with pytest.raises(ValueError, match="text holds 'x', which is none of the 2 characters"):
            CharacterVocabulary("ab").encode("abx")
        with pytest.raises(ValueError, match="text is empty; expected at least one character"):
            CharacterVocabulary("")


class TestText:
    def test_the_first_nine_tenths_are_for_training(self) -> None:
        text = Text.split("letters", "abcdefghijklmnopqrst")
        assert (text.train, text.valid) == ("abcdefghijklmnopqr", "st")

    def test_characters_are_those_of_both_parts(self) -> None:
        assert Text.split("letters", "aaaaaaaaab").characters.tokens == ("a", "b")

    def test_it_says_its_size(self) -> None:
        assert str(Text.split("letters", "ab" * 1000)) == "letters: 1,800 characters train, 200 valid, 2 different ones"


class TestWindows:
    def test_each_row_is_a_piece_of_the_text(self) -> None:
        windows = Windows(torch.arange(100), length=7, size=50, seed=1)
        batch = windows(3)
        assert batch.shape == (50, 7)
        assert torch.equal(batch - batch[:, :1], torch.arange(7).expand(50, 7))

    def test_every_place_is_drawn_the_last_one_too(self) -> None:
        windows = Windows(torch.arange(9), length=7, size=200, seed=1)
        assert set(windows(0)[:, 0].tolist()) == {0, 1, 2}
        assert torch.equal(Windows(torch.arange(7), length=7, size=1, seed=1)(0), torch.arange(7)[None])

    def test_a_step_s_batch_depends_on_seed_and_step_alone(self) -> None:
        ids = torch.arange(1000)
        one, same, other = (Windows(ids, length=5, size=20, seed=seed) for seed in (1, 1, 2))
        before = torch.get_rng_state()
        assert torch.equal(one(4), same(4))
        assert not torch.equal(one(4), one(5))
        assert not torch.equal(one(4), other(4))
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize("ranks", [1, 2, 3, 6])
    def test_the_shares_of_several_processes_are_the_batch_of_one(self, ranks: int) -> None:
        ids = torch.arange(1000)
        whole = Windows(ids, length=5, size=6, seed=1)(4)
        shares = [Windows(ids, length=5, size=6, seed=1, rank=rank, ranks=ranks)(4) for rank in range(ranks)]
        assert {len(share) for share in shares} == {6 // ranks}
        assert sorted(torch.cat(shares).tolist()) == sorted(whole.tolist())

    @pytest.mark.parametrize(("rank", "ranks"), [(0, 4), (2, 2), (-1, 2)])
    def test_shares_that_are_not_equal_are_refused(self, rank: int, ranks: int) -> None:
        with pytest.raises(ValueError, match=f"size is 6, rank {rank} of {ranks}; expected 0 ≤ rank < ranks and equal"):
            Windows(torch.arange(10), length=2, size=6, seed=0, rank=rank, ranks=ranks)

    @pytest.mark.parametrize(("length", "size"), [(0, 1), (11, 1), (5, 0)])
    def test_what_cannot_be_cut_is_refused(self, length: int, size: int) -> None:
        message = (
            f"length is {length} and size is {size}; expected 1 ≤ length ≤ 10, the length of the text, and size ≥ 1"
        )
        with pytest.raises(ValueError, match=message):
            Windows(torch.arange(10), length=length, size=size, seed=0)

    def test_a_negative_step_is_refused(self) -> None:
        with pytest.raises(ValueError, match="step is -1; expected 0 or more"):
            Windows(torch.arange(10), length=2, size=1, seed=0)(-1)


TEXT = "Erste Zeile – äé漢🙂\n\nzweite\tZeile\x0cnach\u2028Umbruch\x85.\n"


class TestTextFiles:
    """As editors and systems write them."""

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_marks_and_line_ends_leave_no_trace(self, tmp_path: Path, encoding: str, end: str) -> None:
        """And all else that some call a line end stays as it is."""
        mark = b"" if encoding == "utf-8" else "\ufeff".encode(encoding.removesuffix("-sig"))[-4:]
        content = mark * encoding.endswith(("le", "be")) + TEXT.replace("\n", end).encode(encoding)
        (tmp_path / "text.txt").write_bytes(content)
        assert read_text_file(tmp_path / "text.txt") == TEXT
        assert read_tiny_shakespeare(tmp_path / "text.txt").train == Text.split("", TEXT).train

    def test_marks_between_joined_files_vanish_too(self, tmp_path: Path) -> None:
        (tmp_path / "text.txt").write_bytes("one\n".encode("utf-8-sig") + "two\n".encode("utf-8-sig"))
        assert read_text_file(tmp_path / "text.txt") == "one\ntwo\n"
        assert "\ufeff" not in pretrain.load_text(str(tmp_path / "text.txt")).characters.tokens

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "text.txt: the text is empty; expected at least one character"),
            ("\ufeff".encode(), "text.txt: the text is empty; expected at least one character"),
            (b"caf\xe9", r"text.txt is not a UTF-8 text \(.*position 3.*\); save it as UTF-8"),
            (b"\xed\xa0\x80", r"text.txt is not a UTF-8 text"),  # a lone surrogate
            (b"\xff\xfea", r"text.txt is not a UTF-16-LE text"),
            (b"\xff\xfe\x00\xd8a\x00", r"text.txt is not a UTF-16-LE text"),
            ("text".encode("utf-16-le"), "text.txt holds a NUL character at 1; expected a text in UTF-8, not binary"),
            (b"text\0", "text.txt holds a NUL character at 4"),
            (b"\x89PNG\r\n\x1a\n", r"text.txt is not a UTF-8 text"),
        ],
    )
    def test_what_is_no_text_is_refused_in_one_sentence(self, tmp_path: Path, content: bytes, message: str) -> None:
        (tmp_path / "text.txt").write_bytes(content)
        for read in (read_text_file, read_tiny_shakespeare, lambda path: pretrain.load_text(str(path))):
            with pytest.raises(ValueError, match=message):
                read(tmp_path / "text.txt")

    def test_lone_surrogates_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"text holds a lone surrogate, U\+D800 at 1"):
            CharacterVocabulary("a\ud800")


class TestPythonReference:
    def test_it_is_there_without_a_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = data.load("python-reference")
        size, license = capsys.readouterr().out.splitlines()
        assert size == str(text)
        assert size.startswith("python-reference: ")
        assert license == "license PSF-2.0, Python's language reference, as pydoc_data.topics holds it"
        assert data.available("python-reference")

    def test_it_is_a_text_of_some_length(self) -> None:
        text = data.load("python-reference")
        assert 250_000 < len(text.train) < 1_000_000
        assert 60 < len(text.characters) < 200

    def test_every_paragraph_of_every_topic_stands_there_once(self) -> None:
        """So nothing of the validation text was trained on."""
        text = data.load("python-reference")
        paragraphs = (text.train + text.valid).split("\n\n")
        assert max(Counter(paragraphs).values()) == 1
        assert {part for topic in topics.values() for part in topic.strip("\n").split("\n\n")} == set(paragraphs)


class TestTinyShakespeare:
    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "text.txt").write_text("To be, or not to be")
        (file,) = DATASETS["tiny-shakespeare"].files
        with pytest.raises(ValueError, match=r"sha256 is .*; expected 86c4e6aa"):
            file.verify(tmp_path / "text.txt")

    def test_its_reader_splits_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "text.txt").write_text("Ay, Sir.\n\n", encoding="utf-8", newline="\n")
        text = read_tiny_shakespeare(tmp_path / "text.txt")
        assert (text.name, text.train, text.valid) == ("tiny-shakespeare", "Ay, Sir.\n", "\n")

    def test_python_s_reference_takes_its_place(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TFBOOK_OFFLINE", "1")
        assert data.load("tiny-shakespeare", fallback="python-reference").name == "python-reference"
        assert "tiny-shakespeare isn't available here, so python-reference takes its place" in capsys.readouterr().out

    @pytest.mark.real
    def test_the_real_one_is_typed_and_announced(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = data.load("tiny-shakespeare")
        assert len(text.train) == 1_003_854
        assert len(text.valid) == 111_540
        assert len(text.characters) == 65
        assert text.train.startswith("First Citizen:\nBefore we proceed")
        whole = hashlib.sha256((text.train + text.valid).encode()).hexdigest()
        assert whole == DATASETS["tiny-shakespeare"].files[0].sha256
        size, license = capsys.readouterr().out.splitlines()
        assert size == "tiny-shakespeare: 1,003,854 characters train, 111,540 valid, 65 different ones"
        assert license == "license public domain, William Shakespeare, collected by Andrej Karpathy for char-rnn"
