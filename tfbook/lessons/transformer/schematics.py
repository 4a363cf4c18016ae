"""Schematics of lesson 05: the residual stream, blocks, the whole Transformer, and its masks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from tfbook import plot
from tfbook.plot import Schematic
from tfbook.plot.house import INK, ROLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tfbook.plot.schematic.nodes import Item

    Picture = tuple[Figure, str]


ROLE = {"Q": "query", "K": "key", "V": "value"}
CHIP = 56  # pixels of a word
STREAM = 4.0  # pixels of its line

# ---- parts -----------------------------------------------------------------------------------------------------------


def _stream(picture: Schematic, *nodes: Item) -> None:
    """The residual stream from the first node up to the last."""
    for one, other in pairwise(nodes):
        up = other is nodes[-1]
        picture.arrow(one, other, role="stream", thickness=STREAM, head=up, sides=("top", "bottom"))


def _branch(
    picture: Schematic, row: int, text: str, note: str, left: int, reads: str = "", *, pre_norm: bool = True
) -> tuple[Item, Item, Item]:
    """A layer beside the stream in column left + 1, its norm, and the sum to which its output is added.

    The branch leaves the stream `row` rows above row zero. `reads` holds the letters among Q, K and V that come from
    the stream, or a blank for one unlabeled arrow. Without `pre_norm`, the norm is on the stream after the sum, in the
    next row.
    """
    layer = picture.box(text, (left, -row - 1), "weight" if reads else "plain", note=note, width=136)
    fork, add = picture.point((left + 1, -row)), picture.circle("+", (left + 1, -row - 1))
    norm = picture.box("norm", (left, -row) if pre_norm else (left + 1, -row - 2), width=70)
    picture.arrow(layer, add)
    if not pre_norm:
        picture.arrow(fork, layer, sides=("left", "bottom"))
        return layer, norm, add
    picture.arrow(fork, norm, sides=("left", "right"))
    for letter in reads or " ":
        lane = 26 * ("QKV".find(letter) - 1) * (len(reads) > 1)
        role = ROLE.get(letter, "plain")
        picture.arrow(norm, layer, letter.strip(), role, sides=("top", "bottom"), lane=lane, label_side="right")
    return layer, norm, add


# ---- the residual stream and the block -------------------------------------------------------------------------------


def draw_residual() -> Picture:
    """A chain of three layers, and the same layers as branches of a residual stream."""
    picture = Schematic("In a chain every layer replaces; beside a stream it adds", gap=(26, 30))
    rows = {0: "a chain", 1: "a stream"}
    for row, name in rows.items():
        y = 3 * row
        picture.text(name, (0, y), weight="bold")
        start, end = picture.box("$x$", (1, y), "stream"), picture.box("output", (8, y), "stream")
        layers = [picture.box(f"layer {i + 1}", (2 * i + 2.5 - row * 0.5, y - row), width=80) for i in range(3)]
        if row == 0:
            for before, after in pairwise([start, *layers, end]):
                picture.arrow(before, after, role="stream", thickness=STREAM)
            continue
        sums = [picture.circle("+", (2 * i + 3, y)) for i in range(3)]
        forks = [picture.point((2 * i + 2, y)) for i in range(3)]
        for one, other in pairwise([start, *sums, end]):
            picture.arrow(one, other, role="stream", thickness=STREAM, head=other is end, sides=("right", "left"))
        for fork, layer, add in zip(forks, layers, sums, strict=True):
            picture.arrow(fork, layer, sides=("top", "bottom"))
            picture.arrow(layer, add, sides=("right", "top"))
    alt = (
        "Above, a chain: x, layer 1, layer 2, layer 3, output. Below, a stream from x to the output with "
        "three layers beside it, each of which reads from the stream and adds to it."
    )
    return picture.figure(), alt


def draw_blocks() -> Picture:
    """The block of 2017, with norms on the stream, beside a pre-norm block."""
    picture = Schematic("Where the norm goes", gap=(26, 20))
    for left, pre_norm, title in ((0, False, "2017: post-norm"), (3, True, "2019 (GPT-2): pre-norm")):
        start, end = picture.point((left + 1, 0)), picture.point((left + 1, -7))
        attend = _branch(picture, 1, "self-attention", "", left, " ", pre_norm=pre_norm)
        feed = _branch(picture, 4, "feed-forward", "", left, pre_norm=pre_norm)
        if pre_norm:
            _stream(picture, start, attend[2], feed[2], end)
        else:
            _stream(picture, start, attend[2], attend[1], feed[2], feed[1], end)
        picture.frame([attend[0], attend[1], feed[0], feed[1], start, end], title, pad=14)
    alt = (
        "Two blocks, each a stream with self-attention and feed-forward beside it. In the block of 2017 a "
        "norm stands on the stream behind each plus. In the pre-norm block each norm stands in the branch, in "
        "front of the layer."
    )
    return picture.figure(), alt


# ---- the whole machine -----------------------------------------------------------------------------------------------


def draw_transformer(source: Sequence[str], target: Sequence[str]) -> Picture:
    """The complete encoder and decoder on a pair of sentences; `target` comes without `<bos>`."""
    picture = Schematic("The Transformer: branches read the gray stream and add to it", gap=(22, 14))
    words = picture.tokens(source, ((1, 2), 0), label="source: $n$ words", width=CHIP)
    wanted = picture.tokens(target, ((5, 6), 0), label="target: $m$ words", width=CHIP)
    shifted = picture.tokens(["<bos>", *target[:-1]], ((5, 6), -1), width=CHIP)
    picture.arrow(wanted, shifted, "shifted by one", sides=("top", "bottom"), label_side="right")
    _, below = _embedding(picture, words, 1, 1)
    tied, entrance = _embedding(picture, shifted, 5, 2)

    read = _branch(picture, 3, "self-attention", r"weights $n \times n$", 1, "QKV")
    think = _branch(picture, 5, "feed-forward", r"$d \to 4d \to d$", 1)
    memory = picture.box("norm", (2, -7), note="memory", width=78)
    _stream(picture, below, read[2], think[2], memory)
    past = _branch(picture, 4, "self-attention", r"weights $m \times m$", 5, "QKV")
    look = _branch(picture, 6, "cross-attention", r"weights $m \times n$", 5, "Q")
    decide = _branch(picture, 8, "feed-forward", r"$d \to 4d \to d$", 5)
    last = picture.box("norm", (6, -10), width=78)
    _stream(picture, entrance, past[2], look[2], decide[2], last)
    picture.arrow(memory, look[0], "K", "key", sides=("right", "left"), lane=-8, label_side="top")
    picture.arrow(memory, look[0], "V", "value", sides=("right", "left"), lane=8, label_side="bottom")

    logits = picture.box("embedding, transposed", ((5, 6), -11), "parameter")
    softmax = picture.box("softmax", ((5, 6), -12))
    written = picture.tokens(target, ((5, 6), -13), width=CHIP)
    picture.arrow(last, logits, sides=("top", "bottom"))
    picture.arrow(logits, softmax, r"$m \times$ vocabulary", sides=("top", "bottom"), label_side="right")
    picture.arrow(softmax, written, "the next words", sides=("top", "bottom"), label_side="right")
    _tie(picture, tied, logits)

    words_only = np.array([word != "<pad>" for word in source])
    real, over_words = (np.tile(words_only, (rows, 1)) for rows in (len(source), len(target)))
    causal = np.tri(len(target), dtype=bool)
    for allowed, place, layer, name in ((real, (0, -4), read[0], "padding"), (causal, (4, -5), past[0], "causal")):
        picture.arrow(_mask(picture, allowed, place, name), layer, role="weight", sides=("right", "left"))
    over = _mask(picture, over_words, (4, -8.4), "padding")
    picture.arrow(over, look[0], role="weight", sides=("right", "top"), lane=-44)
    encoder = picture.frame([read[1], think[0], think[2]], "encoder block", pad=9)
    decoder = picture.frame([past[1], decide[0], decide[2]], "decoder block", pad=9)
    for frame in (encoder, decoder):
        picture.brace([frame], r"$\times N$")
    alt = (
        "Two residual streams. Left, the encoder: source words, embedding, positions, N blocks of "
        "self-attention and feed-forward, a norm. Right, the decoder: the target shifted by one, embedding, "
        "positions, N blocks of causal self-attention, cross-attention, and feed-forward, a norm, the "
        "transposed embedding, softmax, next words. The encoder's output leads into the cross-attention as "
        "keys and values."
    )
    return picture.figure(), alt


def _embedding(picture: Schematic, words: Item, left: int, row: int) -> tuple[Item, Item]:
    """The embedding of the words and its sum with the positions, where the stream begins."""
    table = picture.box(r"embedding $\cdot \sqrt{d}$", ((left, left + 1), -row), "parameter")
    add, positions = picture.circle("+", (left + 1, -row - 1)), picture.box("positions", (left, -row - 1), width=100)
    picture.arrow(words, table, sides=("top", "bottom"))
    picture.arrow(table, add, role="stream", thickness=STREAM, head=False, sides=("top", "bottom"))
    picture.arrow(positions, add)
    return table, add


def _tie(picture: Schematic, table: Item, logits: Item) -> None:
    """A line from the decoder's embedding to its output matrix: they are tied."""
    low, high = picture.point((8, -2)), picture.point((8, -11))
    picture.arrow(table, low, role="parameter", head=False, sides=("right", "left"))
    picture.arrow(low, high, role="parameter", head=False, sides=("top", "bottom"))
    picture.arrow(high, logits, role="parameter", sides=("left", "right"))
    picture.text("one matrix:\ntied", (9, -6.5), color=ROLES["parameter"].edge)


def _mask(picture: Schematic, allowed: np.ndarray, place: tuple[float, float], name: str) -> Item:
    return picture.matrix(allowed.shape, place, "weight", cell=9, allowed=allowed, shape=name)


def _said(axes: Axes, x: float, y: float, text: str, rotation: float = 0) -> None:
    """A label on blocked cells."""
    around = {"facecolor": "white", "edgecolor": "none", "pad": 3}
    axes.text(x, y, text, rotation=rotation, ha="center", va="center", color=INK, bbox=around)


def draw_masks(
    source: Sequence[str], target: Sequence[str], encoder: Tensor, decoder: Tensor, cross: Tensor
) -> Picture:
    """The masks of the three kinds of attention, each (query, key)."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 4))
    masks = (
        ("Encoder: all words", encoder, source, source),
        ("Decoder: itself and earlier", decoder, target, target),
        ("Cross: all words of the source", cross, target, source),
    )
    for axes, (title, mask, queries, keys) in zip(panels, masks, strict=True):
        plot.mask_picture(axes, mask, queries, keys, title=title)
        axes.set(xlabel="is looked at (key)", ylabel="looks (query)")
        for column in (~mask.any(dim=0)).nonzero().flatten().tolist():
            _said(axes, column + 0.5, len(mask) / 2, "padding", rotation=90)
    _said(panels[1], 0.7 * len(target), 0.3 * len(target), "later words:\nthe answer")
    alt = (
        "Three masks of queries and keys. Encoder: every column but the padding. Decoder: on and below the "
        "diagonal. Cross-attention: every source word but the padding."
    )
    return figure, alt
