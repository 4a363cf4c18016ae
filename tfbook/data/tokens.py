"""Token ids in a file, written once and then memory-mapped, so that a corpus may be larger than the memory.

Shapes: time.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
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
    if not len(ids):
        raise ValueError("ids is empty; expected one or more")
    write_token_blocks(path, [ids], vocab)


def write_token_blocks(path: str | Path, blocks: Iterable[Int[Tensor, " time"]], vocab: int) -> int:
    """`write_tokens` of ids that come block by block and are never in memory together; returns their number.

    A file of none is one that `read_tokens` refuses.
    """
    if not 0 < vocab < 2**32:
        raise ValueError(f"vocab is {vocab}; expected 1 to 2³² − 1 tokens")
    count, checksum = 0, vocab
    with files.atomic_write(path) as file:
        file.write(bytes(HEADER.size))
        for ids in blocks:
            content = _content(ids, vocab)
            file.write(content.data)
            count, checksum = count + len(content), zlib.crc32(content.data, checksum)
        file.seek(0)
        file.write(HEADER.pack(MAGIC, vocab, checksum, count))
    return count


def _content(ids: Int[Tensor, " time"], vocab: int) -> np.ndarray:
    if ids.ndim != 1:
        raise ValueError(f"ids has shape {tuple(ids.shape)} and vocab is {vocab}; expected one axis")
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab:
        raise ValueError(f"ids lie between {ids.min()} and {ids.max()}; expected 0 to {vocab - 1}, the vocabulary")
    return ids.numpy().astype(_dtype(vocab))


def read_tokens(path: str | Path) -> Tokens:
    """Memory-maps a file that `write_tokens` wrote. Raises FileNotFoundError, and ValueError when it is damaged."""
    path = Path(path)
    with path.open("rb") as file:
        header = file.read(HEADER.size)
        found = files.checksum(file, HEADER.unpack(header)[1]) if len(header) == HEADER.size else 0
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise ValueError(f"{path} is not a file of tokens: it begins with {header[: len(MAGIC)]!r}; expected {MAGIC!r}")
    _, vocab, checksum, count = HEADER.unpack(header)
    size, expected = path.stat().st_size, HEADER.size + count * _dtype(vocab).itemsize
    if size != expected:
        raise ValueError(f"{path} is damaged: it holds {size:,} bytes; expected {expected:,}")
    if not count:
        raise ValueError(f"{path} is damaged: it holds no ids; expected one or more")
    if found != checksum:
        raise ValueError(f"{path} is damaged: the checksum of its ids is wrong; delete it and write it again")
    return Tokens(torch.from_numpy(np.memmap(path, _dtype(vocab), mode="c", offset=HEADER.size)), vocab)


def _dtype(vocab: int) -> np.dtype:
    return np.dtype("<u2" if vocab <= SMALL_VOCABULARY else "<u4")
