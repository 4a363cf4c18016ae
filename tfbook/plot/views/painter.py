"""A view in which the reader sets W_Q and W_K by hand and sees attention paint gray shapes with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Real
from torch import Tensor

from tfbook.plot.views import base

TOKENS = ("● in color", "▲ in color", "gray ●", "gray ▲")
FEATURES = ("●", "▲", "red", "blue")
RED, BLUE, GRAY = (0.85, 0.17, 0.15), (0.13, 0.35, 0.86), (0.55, 0.55, 0.55)
SCENES = {  # the colors of the four tokens; in the second scene they are exchanged
    "red ●, blue ▲": (RED, BLUE, GRAY, GRAY),
    "blue ●, red ▲": (BLUE, RED, GRAY, GRAY),
}
WIDTH = 2  # of queries and keys
NEAR = 0.25  # distance of RGB values, as in lesson 03
GOOD_Q, GOOD_K = [[9, 0], [0, 9], [0, 0], [0, 0]], [[1, 0], [0, 1], [1, 1], [1, 1]]  # of the static table


@dataclass(frozen=True)
class PainterView:
    """The view returned by `painter_view`, which a notebook displays when it is the last line of a cell."""

    def __repr__(self) -> str:
        return "PainterView(heads=2)"

    def _repr_html_(self) -> str:
        """A table of weights, and a script that replaces it with the view; without JavaScript the table stays."""
        scenes = [{"name": name, "x": tokens_of(name), "colors": colors} for name, colors in SCENES.items()]
        data = {"tokens": TOKENS, "features": FEATURES, "scenes": scenes, "width": WIDTH, "near": NEAR}
        return base.embed("painter", data, self._table(), uses=("chance",))

    def _table(self) -> str:
        weights = painter_weights(torch.tensor(GOOD_Q), torch.tensor(GOOD_K), "red ●, blue ▲")
        lead = "Weights of attention when W_Q asks for the token's own shape and W_K prefers tokens in color: "
        lead += "each gray shape (rows: who looks) finds the one of its shape that has a color."
        rows = [(name, [base.cell(f"{w:.2f}", w) for w in row]) for name, row in zip(TOKENS, weights, strict=True)]
        return f"{base.paragraph(lead)}\n{base.table(TOKENS, rows)}"


def tokens_of(scene: str) -> list[list[int]]:
    """The features of each token of a scene: (token, feature)."""
    of_shape = [[1, 0], [0, 1], [1, 0], [0, 1]]
    in_color = [[int(color == RED), int(color == BLUE)] for color in SCENES[scene]]
    return [shape + color for shape, color in zip(of_shape, in_color, strict=True)]


def painter_weights(
    W_Q: Real[Tensor, "feature width"], W_K: Real[Tensor, "feature width"], scene: str
) -> list[list[float]]:
    """The attention weights of a scene, softmax(Q Kᵀ / √width): a row for each query."""
    x = torch.tensor(tokens_of(scene), dtype=torch.float64)
    q, k = x @ W_Q.double(), x @ W_K.double()
    return (q @ k.T / WIDTH**0.5).softmax(dim=-1).tolist()


def painter_view() -> PainterView:
    """A view in which the reader sets the numbers of W_Q and W_K and watches two scenes being painted.

    Every token gets the mixture of the colors that its attention weights give. The reader starts with zeros, which is
    the average of all, and has to make each gray shape take the color of its own shape, and with two heads its rim that
    of the other shape, in both scenes. Gradient descent can be started beside it, from small random numbers.
    """
    return PainterView()
