"""Attention for long sequences: kernels that build no n × n matrix, each with settings and the signature of all others.

`MultiHeadAttention(128, 4, kernel=Banded(256))`. Exact under a mask: `Banded`, `BlockSparse`, `BigBird`, `Tiled`.
Approximate: `Lsh`, `Performer`. Something else in the softmax's place: `Linear`.
"""

from tfbook.efficient.banded import Banded
from tfbook.efficient.bigbird import BigBird
from tfbook.efficient.block_sparse import BlockSparse
from tfbook.efficient.kernel import EfficientKernel
from tfbook.efficient.layers import alternate, redraw
from tfbook.efficient.linear import Linear
from tfbook.efficient.lsh import Lsh
from tfbook.efficient.performer import Performer
from tfbook.efficient.tiled import Tiled, online_softmax

__all__ = [
    "Banded",
    "BigBird",
    "BlockSparse",
    "EfficientKernel",
    "Linear",
    "Lsh",
    "Performer",
    "Tiled",
    "alternate",
    "online_softmax",
    "redraw",
]
