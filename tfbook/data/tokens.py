"""Token ids in a file, written once and then memory-mapped, so that a corpus may be larger than the memory.

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

HEADER = struct.Struct("<8sIIQ")  # magic, vocabulary size, checksum of the ids, number of ids
MAGIC = b"tfbook 1"
SMALL_VOCABULARY = 2**16  # up to this size an id takes two bytes


class Tokens(NamedTuple):
    """Memory-mapped ids, which the operating system loads as they are read, and the size of their vocabulary."""

    ids: Integer[Tensor, " time"]  # uint16 or uint32
    vocab: int


def write_tokens(path: str | Path, ids: Int[Tensor, " time"], vocab: int) -> None:
    """Writes the ids atomically, two bytes each, or four when the vocabulary has more than 65,536 tokens.

    Raises ValueError when there are none, or one is outside the vocabulary.
    """
    if ids.ndim != 1 or not 0 < vocab < 2**32:
        raise ValueError(
            f"ids has shape {tuple(ids.shape)} and vocab is {vocab}; expected one axis, 1 to 2³² − 1 tokens"
        )
    if not len(ids):
        raise ValueError("ids is empty; expected one or more")
    if ids.min() < 0 or ids.max() >= vocab:
        raise ValueError(f"ids lie between {ids.min()} and {ids.max()}; expected 0 to {vocab - 1}, the vocabulary")
    content = ids.numpy().astype(_dtype(vocab))
    with files.atomic_write(path) as file:
        file.write(HEADER.pack(MAGIC, vocab, zlib.crc32(content.data, vocab), len(content)))
        file.write(content.data)


def read_tokens(path: str | Path) -> Tokens:
    """Memory-maps a file that `write_tokens` wrote. Raises FileNotFoundError, and ValueError when it is damaged."""
    path = Path(path)
    with path.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise ValueError(f"{path} is not a file of tokens: it begins with {header[: len(MAGIC)]!r}; expected {MAGIC!r}")
    _, vocab, checksum, count = HEADER.unpack(header)
    found, expected = path.stat().st_size, HEADER.size + count * _dtype(vocab).itemsize
    if found != expected:
        raise ValueError(f"{path} is damaged: it holds {found:,} bytes; expected {expected:,}")
    if not count:
        raise ValueError(f"{path} is damaged: it holds no ids; expected one or more")
    ids = np.memmap(path, _dtype(vocab), mode="c", offset=HEADER.size)
    if zlib.crc32(ids.data, vocab) != checksum:
        raise ValueError(f"{path} is damaged: the checksum of its ids is wrong; delete it and write it again")
    return Tokens(torch.from_numpy(ids), vocab)


def _dtype(vocab: int) -> np.dtype:
    return np.dtype("<u2" if vocab <= SMALL_VOCABULARY else "<u4")
