"""Attention for long sequences: implementations that build no n × n matrix, each with settings.

`MultiHeadAttention(128, 4, implementation=Banded(256))`. Exact under a mask: `Banded`, `BlockSparse`, `BigBird`,
`Tiled`. Approximate: `Lsh`, `Performer`. Something else in place of the softmax: `Linear`.
"""

from tfbook.attention.efficient.banded import Banded
from tfbook.attention.efficient.base import READ, EfficientAttention, Seeded, Visibility, in_float32, same_length
from tfbook.attention.efficient.bigbird import BigBird
from tfbook.attention.efficient.block_sparse import BlockAttention, Blocks, BlockSparse, rows_alike
from tfbook.attention.efficient.layers import resample
from tfbook.attention.efficient.linear import Linear, LinearState, all_at_once, causal_sums, elu_plus_one, step
from tfbook.attention.efficient.lsh import ALONE, Items, Line, Lsh, attend_near, hashed, in_turn, near, with_neighbours
from tfbook.attention.efficient.performer import Performer, log_features, projection
from tfbook.attention.efficient.tiled import (
    FLOOR,
    Tiled,
    attend_by_tiles,
    cuts,
    gradients,
    online_softmax,
    tile_scores,
    touched,
)

__all__ = [
    "ALONE",
    "FLOOR",
    "READ",
    "Banded",
    "BigBird",
    "BlockAttention",
    "BlockSparse",
    "Blocks",
    "EfficientAttention",
    "Items",
    "Line",
    "Linear",
    "LinearState",
    "Lsh",
    "Performer",
    "Seeded",
    "Tiled",
    "Visibility",
    "all_at_once",
    "attend_by_tiles",
    "attend_near",
    "causal_sums",
    "cuts",
    "elu_plus_one",
    "gradients",
    "hashed",
    "in_float32",
    "in_turn",
    "log_features",
    "near",
    "online_softmax",
    "projection",
    "resample",
    "rows_alike",
    "same_length",
    "step",
    "tile_scores",
    "touched",
    "with_neighbours",
]
