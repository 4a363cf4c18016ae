"""The paged cache: keys and values in blocks of a pool, from which each text takes what it needs (Kwon et al., 2023).

A text's keys and values may lie anywhere: its table lists its blocks in order. So no memory is kept for tokens that may
never come, and texts that begin alike share blocks. Shapes: batch, head, new and key (positions), d_head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook.attention.cache import Cache
from tfbook.attention.masks import Causal, Dense, Mask
from tfbook.attention.positions import Position, Rotary, Rotation

# ---- who has which block -----------------------------------------------------------------------------------------


class BlockPool:
    """Which blocks are free, how many texts use each, and which full blocks hold the beginning of a known text.

    A block that nobody uses keeps its contents until it is taken again; the one that was released first is taken first.
    """

    def __init__(self, blocks: int, size: int):
        self.size = size
        self._free = dict.fromkeys(range(blocks))  # a dict keeps their order
        self._users = [0] * blocks
        self._block_of: dict[tuple[int, ...], int] = {}  # all tokens up to the end of a full block → the block
        self._tokens_of: dict[int, tuple[int, ...]] = {}

    @property
    def free(self) -> int:
        """The number of blocks that nobody uses."""
        return len(self._free)

    def blocks_for(self, positions: int) -> int:
        """⌈positions / size⌉."""
        return -(-positions // self.size)

    def take(self) -> int:
        """A free block, whose contents are forgotten. Raises ValueError when there is none."""
        if not self._free:
            raise ValueError(f"all {len(self._users)} blocks are in use; expected a free one")
        block = next(iter(self._free))
        del self._free[block]
        if block in self._tokens_of:
            del self._block_of[self._tokens_of.pop(block)]
        self._users[block] = 1
        return block

    def release(self, table: Sequence[int]) -> None:
        """Gives up a text's blocks, its last one first: beginnings are the likeliest to be needed again."""
        for block in reversed(table):
            self._users[block] -= 1
            if not self._users[block]:
                self._free[block] = None

    def remember(self, tokens: Sequence[int], table: Sequence[int], start: int = 0) -> None:
        """Notes the blocks that `tokens` fill, from position `start` on, so that `share` finds them."""
        for number in range(start // self.size, len(tokens) // self.size):
            prefix, block = tuple(tokens[: (number + 1) * self.size]), table[number]
            if prefix not in self._block_of and block not in self._tokens_of:
                self._block_of[prefix], self._tokens_of[block] = block, prefix

    def share(self, tokens: Sequence[int]) -> list[int]:
        """The known blocks of the longest beginning of `tokens`, each with one user more.

        The dictionary hashes a block's tokens and all before them, on which its keys and values depend. The last token
        is never among them: a model has to read it to say what follows.
        """
        table: list[int] = []
        for end in range(self.size, len(tokens), self.size):
            block = self._block_of.get(tuple(tokens[:end]))
            if block is None:
                break
            self._free.pop(block, None)
            self._users[block] += 1
            table.append(block)
        return table


# ---- one pass of a model over new tokens of several texts ------------------------------------------------------------


class Rows:
    """New tokens of several texts, one text a row: where they stand, where they are stored, and what they see.

    Row b holds the positions `starts[b]` … `ends[b]` − 1 of a text whose table is `tables[b]`. Shorter rows are padded;
    padding is stored in the block after the last one, which no text has.
    """

    def __init__(
        self, starts: Sequence[int], ends: Sequence[int], tables: Sequence[Sequence[int]], size: int, pad: int
    ):
        self.starts, self.ends = starts, ends
        self.time, self.keys = max(end - start for start, end in zip(starts, ends, strict=True)), max(ends)
        width = -(-self.keys // size)
        self.run = side_by_side(tables[0][:width], size) if len(tables) == 1 else None
        self.tables = torch.tensor([[*table[:width], *[pad] * (width - len(table))] for table in tables])
        self.slots = torch.tensor(
            [
                table[place // size] * size + place % size if place < end else pad * size
                for start, end, table in zip(starts, ends, tables, strict=True)
                for place in range(start, start + self.time)
            ]
        )
        self.positions = torch.tensor(
            [
                [min(place, end - 1) for place in range(start, start + self.time)]
                for start, end in zip(starts, ends, strict=True)
            ]
        )

    def to(self, device: torch.device) -> Rows:
        """Moves the tensors, and returns itself."""
        self.tables, self.slots, self.positions = (t.to(device) for t in (self.tables, self.slots, self.positions))
        return self

    def mask(self) -> Mask | None:
        """A position sees those before it in its own text; None where each row is one token that sees all keys."""
        if len(set(self.ends)) == 1 and self.time == 1:
            return None
        if len(set(self.ends)) == 1 and not any(self.starts):
            return Causal()
        places = torch.arange(self.keys, device=self.positions.device)
        return Dense((places <= self.positions[..., None])[:, None])


def side_by_side(table: Sequence[int], size: int) -> slice | None:
    """The slots of blocks that follow each other in memory; None where they do not."""
    first = table[0]
    return slice(first * size, (first + len(table)) * size) if [*table] == [*range(first, first + len(table))] else None


class PagedLayer(Cache):
    """The keys and values of one layer in blocks: `extend` writes those of the current `rows` and gathers all they see.

    The memory is allocated by the first call, which shows how many heads it needs and how wide they are.
    """

    rows: Rows  # of the current call

    def __init__(self, blocks: int, size: int):
        super().__init__()
        self.blocks, self.size = blocks, size
        self.memory: Tensor | None = None

    def extend(
        self, k: Float[Tensor, "batch head new d_head"], v: Float[Tensor, "batch head new d_head"]
    ) -> tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_head"]]:
        """Writes each new position to its slot; returns the rows' keys and values, side by side from position 0 on.

        Those of one text whose blocks follow each other are not copied.
        """
        if self.memory is None:
            self.memory = k.new_zeros(self.blocks + 1, self.size, 2, k.shape[1], k.shape[3])
        rows, memory = self.rows, self.memory
        new = torch.stack([k, v], dim=1).permute(0, 3, 1, 2, 4).flatten(0, 1)  # (batch · new, 2, head, d_head)
        slots = memory.view(-1, *memory.shape[2:])
        slots.index_copy_(0, rows.slots, new)
        if rows.run is not None:
            held = slots[None, rows.run]
        else:
            held = memory.index_select(0, rows.tables.flatten()).view(len(rows.tables), -1, *memory.shape[2:])
        keys, values = held[:, : rows.keys].permute(2, 0, 3, 1, 4).unbind()  # from (batch, key, 2, head, d_head)
        return keys, values


class Placed(Position):
    """An encoding for texts whose new tokens begin at different positions, those of `rows`.

    `start` is ignored. Rotary angles are computed for all positions at once, biases text by text.
    """

    def __init__(self, encoding: Position, rows: Rows):
        super().__init__()
        self.encoding, self.rows, self.rotation = encoding, rows, None
        self.rotates, self.biases = (
            getattr(type(encoding), name) is not getattr(Position, name) for name in ("rotate", "bias")
        )
        if isinstance(encoding, Rotary) and isinstance(encoding.prepared(0, 1), Rotation):
            self.rotation = Rotation(encoding.angles(rows.positions.flatten().float()), 0)

    def add(self, x: Float[Tensor, "batch time d_model"], start: object = 0) -> Float[Tensor, "batch time d_model"]:
        """Each token as a text of its own."""
        return self.encoding.add(x.flatten(0, 1)[:, None], self.rows.positions.view(-1, 1)).view(x.shape)

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], start: object = 0
    ) -> Float[Tensor, "batch head time d_head"]:
        """All texts side by side as one, where angles are given by position."""
        if self.rotation is not None:
            one = self.rotation.rotate(x.transpose(0, 1).flatten(1, 2)[None])[0]
            return one.unflatten(1, (x.shape[0], -1)).transpose(0, 1)
        if not self.rotates:
            return x
        texts = zip(x.split(1), self.rows.starts, strict=True)
        return torch.cat([self.encoding.rotate(text, start) for text, start in texts])

    def bias(
        self, q: Float[Tensor, "batch head query d_head"], keys: int, start: object = None
    ) -> Float[Tensor, "batch head query key"] | None:
        """That of each text; None for encodings that bias no scores."""
        if not self.biases:
            return None
        texts = zip(q.split(1), self.rows.starts, strict=True)
        biases: list[Any] = [self.encoding.bias(text, keys, start) for text, start in texts]
        return torch.cat(biases)


def padded(new: Sequence[Sequence[int]], time: int) -> Int[Tensor, "batch new"]:
    """Rows of ids, each filled up with zeros to `time`."""
    return torch.tensor([[*ids, *[0] * (time - len(ids))] for ids in new])
