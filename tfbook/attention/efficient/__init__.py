"""Attention for long sequences: implementations that build no n × n matrix, each with settings.

`MultiHeadAttention(128, 4, implementation=Banded(256))`. Exact under a mask: `Banded`, `BlockSparse`, `BigBird`,
`Tiled`, and on a grid of positions `Axial`, `Neighborhood`, `Windowed`. Approximate: `Lsh`, `Performer`. With another
weighting than the softmax: `Linear`.
"""

from tfbook.attention.efficient.banded import Banded
from tfbook.attention.efficient.base import (
    NARROWED_BY,
    EfficientAttention,
    Visibility,
    check_same_length,
    in_float32,
)
from tfbook.attention.efficient.bigbird import BigBird, random_scores
from tfbook.attention.efficient.block_sparse import BlockAttention, Blocks, BlockSparse, similar_rows
from tfbook.attention.efficient.grid import Axial, GridAttention, Neighborhood, Windowed
from tfbook.attention.efficient.linear import Linear, LinearState, all_at_once, causal_sums, elu_plus_one, step
from tfbook.attention.efficient.lsh import (
    SELF_SCORE,
    Items,
    Lsh,
    attend_in_window,
    hashed,
    in_window,
    interleave,
    sort_by_bucket,
    window_scores,
    with_neighbors,
)
from tfbook.attention.efficient.performer import (
    RISE,
    Performer,
    PerformerState,
    attend_chunk,
    attend_chunks,
    log_features,
    projection,
    relative_queries,
    stable_causal_sums,
)
from tfbook.attention.efficient.tiled import (
    FLOOR,
    Tiled,
    attend_by_tiles,
    attended,
    gradients,
    online_softmax,
    slices,
    tile_scores,
)

__all__ = [
    "FLOOR",
    "NARROWED_BY",
    "RISE",
    "SELF_SCORE",
    "Axial",
    "Banded",
    "BigBird",
    "BlockAttention",
    "BlockSparse",
    "Blocks",
    "EfficientAttention",
    "GridAttention",
    "Items",
    "Linear",
    "LinearState",
    "Lsh",
    "Neighborhood",
    "Performer",
    "PerformerState",
    "Tiled",
    "Visibility",
    "Windowed",
    "all_at_once",
    "attend_by_tiles",
    "attend_chunk",
    "attend_chunks",
    "attend_in_window",
    "attended",
    "causal_sums",
    "check_same_length",
    "elu_plus_one",
    "gradients",
    "hashed",
    "in_float32",
    "in_window",
    "interleave",
    "log_features",
    "online_softmax",
    "projection",
    "random_scores",
    "relative_queries",
    "similar_rows",
    "slices",
    "sort_by_bucket",
    "stable_causal_sums",
    "step",
    "tile_scores",
    "window_scores",
    "with_neighbors",
]
