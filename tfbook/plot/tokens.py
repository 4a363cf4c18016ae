"""Tokens of a text as boxes, with one row per tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from tfbook.plot.house import COLORS, INK, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TINTS = ("#d3e6f8", "#e9e9e9")  # which alternate
SIGNS = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})  # for what would not be seen
LETTER, ROW = 0.095, 0.36  # inches: the width of a letter, the height of a row


def token_rows(axes: Axes, rows: Mapping[str, Sequence[str]], *, title: str, marked: Set[str] = frozenset()) -> None:
    """Each entry of `rows` as a line of boxes, one per token and as wide as its letters; `marked` ones stand out.

    Sets the size of the figure. Raises ValueError when there are no rows or a token is empty.
    """
    if not rows or not all(token for tokens in rows.values() for token in tokens):
        raise ValueError("rows is empty or holds an empty token; expected one letter or more per token")
    for place, tokens in enumerate(rows.values()):
        left = 0.0
        for number, token in enumerate(tokens):
            color = COLORS[1] if token in marked else TINTS[number % 2]
            axes.barh(place, len(token) + 0.4, left=left, height=0.78, color=color)
            ink = "white" if token in marked else INK
            look: dict[str, Any] = {"family": "monospace", "fontsize": 10, "color": ink}
            axes.text(left + len(token) / 2 + 0.2, place, literal(token), ha="center", va="center", **look)
            left += len(token) + 0.6
    axes.set_yticks(range(len(rows)), [f"{name} · {len(tokens)}" for name, tokens in rows.items()])
    longest = max(sum(len(token) + 0.6 for token in tokens) for tokens in rows.values())
    axes.set(title=title, xticks=[], xlim=(-0.3, longest), ylim=(len(rows) - 0.5, -0.5))
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    figure: Any = axes.figure  # never a `SubFigure`, which has no size of its own
    figure.set_size_inches(LETTER * longest + 1.8, ROW * len(rows) + 0.5)


def visible(token: bytes) -> str:
    """A token with visible white space: ␣ for a space, ↵ for a line feed, ⇥ for a tab; part of a character as hex."""
    try:
        return token.decode().translate(SIGNS)
    except UnicodeDecodeError:
        return token.hex(" ")
