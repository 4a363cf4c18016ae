"""Ids in a file, as many as the disk holds: written once, then read where they lie.

Shapes: time.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Integer
from torch import Tensor

from tfbook import files

HEADER = struct.Struct("<8sIIQ")  # magic, size of the vocabulary, checksum of the ids, how many there are
MAGIC = b"tfbook 1"
SMALL_VOCABULARY = 2**16  # vocabularies of this size and below take two bytes an id


class Tokens(NamedTuple):
    """Ids that the operating system brings into memory as they are read, and the vocabulary that they are from."""

    ids: Integer[Tensor, " time"]  # uint16 or uint32
    vocab: int


def write_tokens(path: str | Path, ids: Int[Tensor, " time"], vocab: int) -> None:
    """Writes the ids at one stroke, two bytes each, or four for more than 65,536 tokens.

    Raises ValueError when there are none, or one is outside the vocabulary.
    """
    if not len(ids):
        raise ValueError("ids is empty; expected one or more")
    if ids.min() < 0 or ids.max() >= vocab:
        raise ValueError(f"ids lie between {ids.min()} and {ids.max()}; expected 0 to {vocab - 1}, the vocabulary")
    content = ids.numpy().astype(_kind(vocab))
    with files.at_one_stroke(path) as file:
        file.write(HEADER.pack(MAGIC, vocab, zlib.crc32(content, vocab), len(content)))
        file.write(content.data)


def read_tokens(path: str | Path) -> Tokens:
    """Maps a file of `write_tokens` into memory. Raises FileNotFoundError, and ValueError when it is damaged."""
    path = Path(path)
    with path.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise ValueError(f"{path} holds no tokens: it begins with {header[: len(MAGIC)]!r}; expected {MAGIC!r}")
    _, vocab, checksum, count = HEADER.unpack(header)
    found, expected = path.stat().st_size, HEADER.size + count * _kind(vocab).itemsize
    if found != expected:
        raise ValueError(f"{path} is damaged: it holds {found:,} bytes; expected {expected:,}")
    ids = np.memmap(path, _kind(vocab), mode="c", offset=HEADER.size)
    if zlib.crc32(ids, vocab) != checksum:
        raise ValueError(f"{path} is damaged: the checksum of its ids is wrong; delete it and write it again")
    return Tokens(torch.from_numpy(ids), vocab)


def _kind(vocab: int) -> np.dtype:
    return np.dtype("<u2" if vocab <= SMALL_VOCABULARY else "<u4")
