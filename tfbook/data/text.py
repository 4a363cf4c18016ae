"""Running text: what language models read, a character at a time.

Shapes: batch, time. Every id tensor is int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, Integer
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

TRAIN = 0.9  # the share of a text that training may see, its beginning


class Characters:
    """The characters of a text and their ids, in the order of Unicode."""

    def __init__(self, text: str):
        if not text:
            raise ValueError("text is empty; expected at least one character")
        self.tokens = tuple(sorted(set(text)))
        self._ids = {character: index for index, character in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Int64[Tensor, " time"]:
        """The id of each character. Raises ValueError for one that is not here."""
        if unknown := set(text) - self._ids.keys():
            raise ValueError(f"text holds {min(unknown)!r}, which is none of the {len(self)} characters")
        return torch.tensor([self._ids[character] for character in text], dtype=torch.int64)

    def decode(self, ids: Int64[Tensor, " time"] | Sequence[int]) -> str:
        """The text of these ids."""
        return "".join(self.tokens[index] for index in torch.as_tensor(ids).tolist())


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text in two parts: what models are trained on, and what follows it, on which they are judged."""

    name: str
    train: str
    valid: str

    @classmethod
    def split(cls, name: str, text: str) -> Text:
        """The first 90% for training, the rest for validation."""
        border = int(TRAIN * len(text))
        return cls(name=name, train=text[:border], valid=text[border:])

    @cached_property
    def characters(self) -> Characters:
        """The characters of both parts."""
        return Characters(self.train + self.valid)

    def __str__(self) -> str:
        sizes = f"{len(self.train):,} characters train, {len(self.valid):,} valid"
        return f"{self.name}: {sizes}, {len(self.characters)} different ones"


class Windows:
    """`windows(step)` is the batch of that training step: `size` pieces of `length` ids from random places of a text.

    The same whenever it is asked for; the places are drawn from (seed, step). The ids may lie in a file, as those of
    `read_tokens` do. Of several processes (`rank` of `ranks`) each takes its share of the batch that one would take.
    Raises ValueError when the text is shorter than a window or the shares are not equal.
    """

    def __init__(
        self, ids: Integer[Tensor, " time"], *, length: int, size: int, seed: int, rank: int = 0, ranks: int = 1
    ):
        if not 1 <= length <= len(ids) or size < 1:
            expected = f"1 ≤ length ≤ {len(ids)}, the length of the text, and size ≥ 1"
            raise ValueError(f"length is {length} and size is {size}; expected {expected}")
        if not 0 <= rank < ranks or size % ranks:
            raise ValueError(f"size is {size}, rank {rank} of {ranks}; expected 0 ≤ rank < ranks and equal shares")
        self.length, self.size, self.seed, self.share = length, size, seed, slice(rank, None, ranks)
        self._pieces = sliding_window_view(ids.numpy(), length)  # a row for each place, and no copy

    def __call__(self, step: int) -> Int64[Tensor, "batch time"]:
        if step < 0:
            raise ValueError(f"step is {step}; expected 0 or more")
        dice = torch.Generator().manual_seed((self.seed * 1_000_003 + step) % 2**32)
        places = torch.randint(len(self._pieces), (self.size,), generator=dice)[self.share]
        return torch.from_numpy(self._pieces[places.numpy()].astype(np.int64))


def read_python_reference() -> Text:
    """The topics of Python's `help()`, which are its language reference; what two topics share stands there once.

    The text is that of the running Python, so another version brings a slightly different one.
    """
    from pydoc_data.topics import topics

    paragraphs = (part for name in sorted(topics) for part in topics[name].strip("\n").split("\n\n"))
    return Text.split("python-reference", "\n\n".join(dict.fromkeys(paragraphs)))


def read_tiny_shakespeare(path: str | Path) -> Text:
    """Forty thousand lines of Shakespeare's plays, as Karpathy put them together."""
    return Text.split("tiny-shakespeare", Path(path).read_text(encoding="utf-8"))
