"""A beam search as a tree of the texts that it kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from tfbook.plot.house import COLORS, EDGE, INK, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# parents, words, scores, kept and ended, each (batch, candidate), as `generation.BeamStep` has them
Step = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class Node(NamedTuple):
    """A text that the search kept or finished, one word longer than its parent."""

    length: int  # words so far
    parent: int  # index in the list of nodes; −1 for a text of one word
    word: int
    score: float  # log-probability of the whole text
    ended: bool


def beam_nodes(steps: Sequence[Step], row: int = 0) -> list[Node]:
    """The texts that a search kept or finished for the source `row`, from its steps, shortest first."""
    nodes: list[Node] = []
    kept: list[int] = []  # the nodes that `parents` of the next step index
    for length, step in enumerate(steps, start=1):
        live = []
        for parent, word, score, goes_on, ended in zip(*(field[row].tolist() for field in step), strict=True):
            live += [len(nodes)] * goes_on
            if (goes_on or ended) and math.isfinite(score):
                nodes.append(Node(length, kept[parent] if kept else -1, word, score, ended))
        kept = live
    return nodes


def beam_tree(
    axes: Axes,
    steps: Sequence[Step],
    word: Callable[[int], str],
    *,
    title: str,
    penalty: Callable[[int], float] = lambda length: 1.0,
) -> None:
    """One column per word, and a line from each text to its continuations; the best finished text is highlighted.

    Below each word is its probability given the text before it. Finished texts are labeled with log-probability /
    `penalty`(length), by which they are ranked; `word` maps an id to its word. Raises ValueError when no text has
    finished.
    """
    nodes = beam_nodes(steps)
    ended = [place for place, node in enumerate(nodes) if node.ended]
    if not ended:
        raise ValueError(f"steps holds {len(steps)} steps in which no text ends; expected at least one that does")
    won = set(_path(nodes, max(ended, key=lambda place: nodes[place].score / penalty(nodes[place].length))))
    heights, ends = _heights(nodes), _column_ends(nodes, word)
    for place, node in enumerate(nodes):
        color = COLORS[1] if place in won else INK if node.ended else "#6b6b6b"
        start = (ends[node.length - 1], heights[node.parent] if node.parent >= 0 else heights[-1])
        _branch(axes, start, (ends[node.length], heights[place]), COLORS[1] if place in won else EDGE)
        look: dict[str, Any] = {"color": color, "fontweight": "bold" if place in won else "normal", "fontsize": 10.5}
        axes.text(ends[node.length], heights[place] - 0.12, literal(word(node.word)), ha="right", va="bottom", **look)
        before = nodes[node.parent].score if node.parent >= 0 else 0.0
        share = f"{math.exp(node.score - before):.2f}"
        axes.text(ends[node.length], heights[place] + 0.1, share, ha="right", va="top", color=color, fontsize=8.5)
        if node.ended:
            score = f"{node.score / penalty(node.length):.2f}".replace("-", "−")
            axes.text(ends[node.length] + 0.4, heights[place], score, ha="left", va="center", **look)
    axes.set(title=title, xlim=(0, ends[-1] + 6), ylim=(max(heights.values()) + 0.5, -1.0))
    axes.axis("off")


def _path(nodes: Sequence[Node], place: int) -> Iterator[int]:
    """The node at `place` and its ancestors."""
    while place >= 0:
        yield place
        place = nodes[place].parent


def _heights(nodes: Sequence[Node]) -> dict[int, float]:
    """A height for each node, −1 for the root: each leaf has its own row, a parent the height of its best child."""
    children: dict[int, list[int]] = {}
    for place in sorted(range(len(nodes)), key=lambda place: -nodes[place].score):
        children.setdefault(nodes[place].parent, []).append(place)
    heights: dict[int, float] = {}
    rows = iter(range(len(nodes)))

    def settle(place: int) -> float:
        below = [settle(child) for child in children.get(place, ())]
        heights[place] = below[0] if below else float(next(rows))
        return heights[place]

    settle(-1)
    return heights


def _column_ends(nodes: Sequence[Node], word: Callable[[int], str]) -> list[int]:
    """The right end of each word's column in characters: a little wider than its longest word."""
    depth = max(node.length for node in nodes)
    longest = [max(len(word(node.word)) for node in nodes if node.length == column + 1) for column in range(depth)]
    return [0, *accumulate(length + 3 for length in longest)]


def _branch(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    """A line that goes down at first, then horizontally below the word."""
    bend = start[0] + 0.4
    xs, ys = (start[0], bend, bend, end[0]), (start[1], start[1], end[1], end[1])
    axes.plot(xs, ys, color=color, linewidth=1.6, marker="none", zorder=2 if color == EDGE else 3)
