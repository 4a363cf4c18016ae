"""Schematics of lesson 16: where the bytes of a token travel, which heads share a cache, a round of speculation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tfbook.plot.schematic.nodes import Box

TRAVELS = {  # texts: what happens to each weight, what comes out
    "one text": ("2 operations,\nthen forgotten", "1 token"),
    "16 texts": ("32 operations,\nthen forgotten", "16 tokens"),
}
SHARING = {"multi-head: 6": 6, "grouped: 2": 2, "multi-query: 1": 1}  # heads of keys and values for six of queries


def draw_travel() -> Figure:
    """All weights go from memory to the core once per step, whether they serve one text or sixteen."""
    from tfbook.plot import Schematic

    picture = Schematic("Every step moves all weights from memory to the core", gap=(70, 18))
    for row, (texts, (work, out)) in enumerate(TRAVELS.items()):
        picture.text(texts, (0, row), align="left", size=10.5)
        memory = picture.box("memory", (1, row), "parameter", note="all N weights", width=110)
        core = picture.box(work, (2, row), "query", note="per weight, in the core", width=170)
        written = picture.box(out, (3, row), "value", width=100)
        picture.arrow(memory, core, "4N bytes", role="parameter", thickness=2.6)
        picture.arrow(core, written)
    return picture.figure()


def draw_heads() -> Figure:
    """Six heads of queries, and the heads of keys and values that they read: six, two, or one."""
    from tfbook.plot import Schematic

    picture = Schematic("Fewer heads of keys and values mean fewer bytes of cache", gap=(10, 34))
    picture.text("queries", (0, 0), align="left", size=10)
    picture.text("cached", (0, 1), align="left", size=10)
    column = 1
    for name, groups in SHARING.items():
        heads = [picture.box(f"q{i + 1}", (column + i, 0), "query", width=30, size=9) for i in range(6)]
        for group in range(groups):
            first, size = column + group * 6 // groups, 6 // groups
            kept: Box = picture.box("k v", (first + (size - 1) / 2, 1), "key", width=32, size=9)
            for head in heads[group * size : (group + 1) * size]:
                picture.arrow(head, kept, role="key", sides=("bottom", "top"), head=False)
        picture.text(name, (column + 2.5, 2), size=10)
        picture.text("", (column + 6, 2))
        column += 7
    return picture.figure()


def draw_round() -> Figure:
    """One round: the draft proposes four words one by one, the large model judges all of them in one pass."""
    from tfbook.plot import Schematic

    picture = Schematic("The draft guesses four words; the large model reads all of them at once", gap=(16, 30))
    words = ("was", "a", "kind", "bear")
    quotients = ("p/q = 1.2", "p/q = 0.9", "p/q = 2.0", "p/q = 0.1")
    verdicts = ("accept", "u = 0.4: accept", "accept", "u = 0.7: reject")
    for row, name in enumerate(("the draft, four steps", "the large model, one pass", "the rule", "the text goes on")):
        picture.text(name, (0, row), align="left", size=10)
    text = picture.tokens(["once", "there"], (1, 0), "stream", label="text so far")
    drafted = [picture.box(word, (column, 0), "key") for column, word in enumerate(words, start=2)]
    judge = picture.box("p for each place, side by side", ((1, 6), 1), "query")
    for before, box in zip([text, *drafted], drafted, strict=False):
        picture.arrow(before, box, role="key")
    judged = [
        picture.box(verdict, (column, 2), "value" if "accept" in verdict else "weight", note=quotient, size=9.5)
        for column, (quotient, verdict) in enumerate(zip(quotients, verdicts, strict=True), start=2)
    ]
    for box, verdict in zip(drafted, judged, strict=True):
        picture.arrow(box, judge, role="key", sides=("bottom", "top"))
        picture.arrow(judge, verdict, role="query", sides=("bottom", "top"))
    kept = [picture.box(word, (column, 3), "value") for column, word in enumerate(words[:3], start=2)]
    new = picture.box("fox", (5, 3), "weight", note="from max(0, p − q)")
    for verdict, box in zip(judged, [*kept, new], strict=True):
        picture.arrow(verdict, box, sides=("bottom", "top"))
    return picture.figure()
