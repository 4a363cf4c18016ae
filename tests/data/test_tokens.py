"""Ids in a file: the way there and back, windows over them, and files that are not whole."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from tfbook.data.tokens import HEADER, read_tokens, write_tokens
from tfbook.text import Windows


@given(vocab=st.sampled_from([1, 2, 65, 2**16, 2**16 + 1, 2**31]), ids=st.lists(st.integers(0, 2**31), min_size=1))
def test_ids_survive_the_way_there_and_back(
    tmp_path_factory: pytest.TempPathFactory, vocab: int, ids: list[int]
) -> None:
    """Any number of them, from vocabularies on both sides of two bytes."""
    path, written = tmp_path_factory.mktemp("tokens") / "text.tokens", torch.tensor(ids) % vocab
    write_tokens(path, written, vocab)
    found = read_tokens(path)
    assert found.vocab == vocab
    assert found.ids.dtype == (torch.uint16 if vocab <= 2**16 else torch.uint32)
    assert torch.equal(found.ids.long(), written)
    assert path.stat().st_size == HEADER.size + len(ids) * (2 if vocab <= 2**16 else 4)


def test_the_file_is_flat_and_little_endian(tmp_path: Path) -> None:
    """So that NumPy or C read it alone, after 24 bytes."""
    path = tmp_path / "text.tokens"
    write_tokens(path, torch.tensor([1, 258, 3]), 300)
    assert path.read_bytes()[24:] == b"\x01\x00\x02\x01\x03\x00"
    assert np.fromfile(path, "<u2", offset=24).tolist() == [1, 258, 3]


@pytest.mark.parametrize("vocab", [100, 100_000])
def test_windows_over_a_file_are_those_over_its_ids(tmp_path: Path, vocab: int) -> None:
    ids = torch.randint(vocab, (500,))
    write_tokens(tmp_path / "text.tokens", ids, vocab)
    options = {"length": 9, "size": 20, "seed": 3}
    there, here = Windows(read_tokens(tmp_path / "text.tokens").ids, **options), Windows(ids, **options)
    for step in range(3):
        assert there(step).dtype == torch.int64
        assert torch.equal(there(step), here(step))


def test_what_is_changed_in_memory_stays_out_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "text.tokens"
    write_tokens(path, torch.arange(5), 9)
    read_tokens(path).ids.numpy()[0] = 7
    assert read_tokens(path).ids.tolist() == [0, 1, 2, 3, 4]


def test_ids_that_are_no_tokens_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.tokens"
    for ids in ([0, 3], [-1, 2]):
        with pytest.raises(ValueError, match=f"ids lie between {ids[0]} and {ids[1]}; expected 0 to 2, the vocabulary"):
            write_tokens(path, torch.tensor(ids), 3)
    with pytest.raises(ValueError, match="ids is empty; expected one or more"):
        write_tokens(path, torch.tensor([], dtype=torch.int64), 3)
    assert not path.exists()


def _flip(place: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", r"text.tokens is not a file of tokens: it begins with b''; expected b'tfbook 1'"),
        (lambda content: content[:20], r"text.tokens is not a file of tokens: it begins with b'tfbook 1'"),
        (
            lambda content: b"To be, or not to be, that is",
            r"is not a file of tokens: it begins with b'To be, o'; expected",
        ),
        (lambda content: content[:-1], r"text.tokens is damaged: it holds 2,023 bytes; expected 2,024"),
        (lambda content: content + b"\0", r"text.tokens is damaged: it holds 2,025 bytes; expected 2,024"),
        (_flip(8), r"text.tokens is damaged: the checksum of its ids is wrong; delete it"),  # the vocabulary
        (_flip(12), r"text.tokens is damaged: the checksum of its ids is wrong; delete it"),  # the checksum
        (_flip(24), r"text.tokens is damaged: the checksum of its ids is wrong; delete it"),  # the first id
        (_flip(2023), r"text.tokens is damaged: the checksum of its ids is wrong; delete it"),  # the last one
        (lambda content: content[:16] + struct.pack("<Q", 10) + content[24:], r"it holds 2,024 bytes; expected 44"),
    ],
    ids=["empty", "half a header", "text", "cut", "longer", "vocabulary", "checksum", "first id", "last id", "count"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    path = tmp_path / "text.tokens"
    write_tokens(path, torch.randint(65, (1000,)), 65)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        read_tokens(path)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text.tokens"
    write_tokens(path, torch.arange(5), 9)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_tokens(path, torch.arange(7), 9)
    assert read_tokens(path).ids.tolist() == [0, 1, 2, 3, 4]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.tokens"):
        read_tokens(tmp_path / "missing.tokens")
