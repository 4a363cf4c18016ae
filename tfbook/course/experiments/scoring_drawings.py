"""The schematics of the lesson on scoring functions, drawn from numbers that the lesson has computed."""

from __future__ import annotations

import torch
from torch import Tensor

from tfbook.plot import Schematic
from tfbook.plot.schematic.nodes import Item

CELL = (40, 30)


def draw_soft_dictionary(
    names: tuple[str, ...], query: Tensor, records: Tensor, keys: Tensor, values: Tensor, scores: Tensor
) -> Schematic:
    """One row for each record, from left to right: record, key, score, weight, value; below, query and answer."""
    weights = torch.softmax(scores, dim=-1)
    answer = weights @ values
    picture = Schematic("A soft dictionary: read along one row to see what happens to one record", gap=(30, 26))
    look = {"cell": CELL, "numbers": "{:.0f}"}
    x = picture.matrix(records, (0, 1), label="records $X$", shape="3 × 4", rows=names, **look)
    k = picture.matrix(keys, (1, 1), "key", label="keys $K$", shape="3 × 2", **look)
    e = picture.matrix(scores[:, None], (2, 1), "weight", label="scores", shape="3", cell=CELL, numbers="{:.1f}")
    a = picture.matrix(
        weights[:, None], (3, 1), "weight", label="weights", shape="sum to 1", cell=(50, 30), numbers="{:.2f}"
    )
    v = picture.matrix(values, (4, 1), "value", label="values $V$", shape="3 × 2", **look)
    q = picture.matrix(
        query[None], (1, 2), "query", label="", shape="query $q$: meow, bark", cell=CELL, numbers="{:.1f}"
    )
    y = picture.matrix(answer[None], (4, 2), "value", shape="answer: kg, legs", cell=CELL, numbers="{:.1f}")
    picture.arrow(x, k, "$W_K$", "key")
    picture.arrow(x, v, "$W_V$", "value", sides=("top", "top"))
    picture.arrow(k, e, "$K q$", "weight")
    picture.arrow(e, a, "softmax", "weight")
    picture.arrow(a, v, "mix", "weight")
    picture.arrow(q, k, "", "query")
    picture.arrow(v, y, "", "value")
    return picture


class _Panel:
    """One score as a pipeline on two rows: the query above, the keys below, and what they become to the right."""

    def __init__(self, picture: Schematic, row: int, query: Tensor, keys: Tensor, names: tuple[str, ...]):
        self.picture, self.row, self.names = picture, row, names
        self.nodes: list[Item] = []
        self.query = self.numbers(query[None], 0, 0, "query", label="$q$", beside="left")
        self.keys = self.numbers(keys, 0, 1, "key", label="$K$", shape="3 × 2", beside="left")

    def keep(self, node: Item) -> Item:
        self.nodes.append(node)
        return node

    def numbers(self, values: Tensor, column: float, row: float, role: str, **look: object) -> Item:
        look = {"cell": (36, 22), "numbers": "{:.1f}"} | look
        return self.keep(self.picture.matrix(values, (column, self.row + row), role, **look))

    def box(self, text: str, column: float, row: float, role: str = "plain") -> Item:
        return self.keep(self.picture.box(text, (column, self.row + row), role))

    def chain(self, *nodes: Item, role: str = "plain") -> Item:
        """Arrows from each to the next; returns the last."""
        for one, other in zip(nodes, nodes[1:], strict=False):
            self.picture.arrow(one, other, "", role)
        return nodes[-1]

    def join(self, query: Item, keys: Item, symbol: str) -> Item:
        """A circle at the end of the keys' way, into which the query's bends down."""
        circle = self.keep(self.picture.circle(symbol, (3, self.row + 1)))
        self.picture.arrow(query, circle, "", "query", sides=("right", "top"))
        self.picture.arrow(keys, circle, "", "key")
        return circle

    def end(self, last: Item, scores: Tensor, names: tuple[str, ...] = (), row: int = 1) -> None:
        """The scores with the names of the keys, the largest outlined."""
        found = self.numbers(scores[:, None], 7, row, "weight", rows=names or self.names)
        self.picture.arrow(last, found, "", "weight")
        self.picture.outline(found.cell(int(scores.argmax()), 0))


def draw_plain_scores(names, query, keys, beta, scores) -> Schematic:
    picture = Schematic("Dot, scaled dot, cosine: compare entry by entry", gap=(20, 14))
    dot, scaled, cosine = (_Panel(picture, row, query, keys, names) for row in (0, 2, 4))
    dot.end(dot.join(dot.query, dot.keys, "·"), scores["dot"])
    root = scaled.box(r"$\div\sqrt{2}$", 4, 1)
    scaled.end(scaled.chain(scaled.join(scaled.query, scaled.keys, "·"), root), scores["scaled dot"])
    q = cosine.numbers(query[None] / query.norm(), 2, 0, "query")
    k = cosine.numbers(keys / keys.norm(dim=-1, keepdim=True), 2, 1, "key")
    cosine.chain(cosine.query, cosine.box("÷ length", 1, 0), q, role="query")
    cosine.chain(cosine.keys, cosine.box("÷ length", 1, 1), k, role="key")
    sharpness = cosine.box(rf"$\times\,\beta$", 4, 1, "parameter")
    cosine.end(cosine.chain(cosine.join(q, k, "·"), sharpness), scores["cosine"])
    for panel, label in zip((dot, scaled, cosine), ("dot", "scaled dot", "cosine"), strict=True):
        picture.frame(panel.nodes, label)
    return picture


def draw_learned_scores(names, query, keys, weights, scores) -> Schematic:
    picture = Schematic("General, additive, location: learned weights (yellow) decide what matches", gap=(20, 14))
    general, additive, location = (_Panel(picture, row, query, keys, names) for row in (0, 2, 4))
    (W,) = weights["general"]
    w = general.numbers(W, 1, 0, "parameter", label="$W$", beside="left")
    q = general.numbers((query @ W)[None], 2, 0, "query", shape="$qW$")
    general.chain(general.query, w, q, role="query")
    general.end(general.join(q, general.keys, "·"), scores["general"])

    W, U, v = weights["additive"]
    w, u = (
        additive.numbers(m, 1, i, "parameter", label=n, beside="left")
        for i, (m, n) in enumerate(((W, "$W$"), (U, "$U$")))
    )
    q = additive.numbers((query @ W)[None], 2, 0, "query")
    k = additive.numbers(keys @ U, 2, 1, "key")
    additive.chain(additive.query, w, q, role="query")
    additive.chain(additive.keys, u, k, role="key")
    hidden = additive.numbers(torch.tanh(query @ W + keys @ U), 5, 1, "weight", shape="one row per pair")
    v = additive.numbers(v[:, None], 6, 1, "parameter", label="$v$", beside="left")
    tanh = additive.box("tanh", 4, 1)
    additive.end(additive.chain(additive.join(q, k, "+"), tanh, hidden, v), scores["additive"])

    (W,) = weights["location"]
    w = location.numbers(W, 1, 0, "parameter", label="$W$", beside="left")
    location.chain(location.query, w, role="query")
    location.end(w, scores["location"], ("place 1", "place 2", "place 3"), row=0)
    location.keep(
        picture.text("one row of $W$ for each place; the keys are never read", ((1, 5), 5), size=9.5, align="left")
    )
    for panel, label in zip((general, additive, location), ("general", "additive", "location"), strict=True):
        picture.frame(panel.nodes, label)
    return picture
