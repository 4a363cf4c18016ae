"""Schematics: what is asked for is drawn, texts do not touch, and nothing depends on coordinates."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tfbook.plot import Schematic
from tfbook.plot.house import ROLES


def self_attention() -> Schematic:
    """The picture with most parts: matrices with numbers, names and shapes, a mask, arrows, outlines, a frame."""
    scores = np.arange(9.0).reshape(3, 3) - 4
    picture = Schematic("Every query meets every key", gap=(24, 40))
    x = picture.matrix((3, 4), (0, 0), label="$X$", shape="n × d", beside="left")
    q = picture.matrix((3, 2), (0, 1), "query", label="$Q$", shape="n × d", rows=["the", "black", "cat"])
    k = picture.matrix((2, 3), (1, 0), "key", cell=30, label="$K$", shape="d × n")
    s = picture.matrix(
        scores, (1, 1), "weight", cell=30, numbers="{:.1f}", label="scores", allowed=np.tri(3, dtype=bool)
    )
    v = picture.matrix(np.array([[1.0, np.nan], [2, np.nan], [3, np.nan]]), (2, 1), "value", label="$V$")
    picture.arrow(x, q, "$W_Q$", "query")
    picture.arrow(x, k, "$W_K$", "key")
    picture.arrow(s, v, "softmax", "weight")
    picture.outline(q.row(1), k.column(2), s.cell(1, 2))
    return picture


def decoder() -> Schematic:
    """Boxes, tokens, bars, a circle, a brace and a frame."""
    picture = Schematic(gap=(60, 30))
    words = picture.tokens(["the", "cat", "<eos>"], (0, 1), label="source")
    box = picture.box("attention", (0, 0), "weight", note="2 heads")
    plus = picture.circle("+", (1, 0))
    wide = picture.box("linear", ((0, 1), 2), "parameter")
    bars = picture.bars([0.7, -0.2], (2, (0, 1)), low=-0.3, names=["chat", "noir"])
    frame = picture.frame([box, plus], "block ×2")
    corner = picture.point((1, 1))
    picture.text("adds", (1.5, 2), align="left")
    picture.arrow(words, box)
    picture.arrow(box, plus)
    picture.arrow(wide, corner, head=False)
    picture.arrow(corner, plus, sides=("top", "bottom"), lane=3)
    picture.arrow(frame, bars, sides=("right", "left"))
    picture.brace([words], "3 tokens", "left")
    return picture


def extents(figure: Figure) -> list[tuple[str, Any]]:
    figure.canvas.draw()
    return [(text.get_text(), text.get_window_extent()) for text in figure.axes[0].texts if text.get_text().strip()]


@pytest.mark.parametrize("make", [self_attention, decoder])
def test_texts_neither_touch_nor_leave_the_page(make: Callable[[], Schematic]) -> None:
    figure = make().figure()
    boxes = extents(figure)
    width, height = figure.get_size_inches() * figure.dpi
    assert len(boxes) > 5
    for (one, box), (other, another) in combinations(boxes, 2):
        assert not box.padded(-1.5).overlaps(another.padded(-1.5)), (one, other)
    for text, box in boxes:
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) > 4, text


def test_columns_take_the_room_that_they_need() -> None:
    """The same grid with a longer word is wider, and neighbors stay apart."""
    widths = []
    for word in ("a", "a considerably longer word"):
        picture = Schematic(gap=(20, 20))
        one, other = picture.box(word, (0, 0)), picture.box("b", (1, 0))
        widths.append(picture.figure().get_size_inches()[0])
        assert other.rect.left - one.rect.right == pytest.approx(20)
    assert widths[1] > widths[0] + 1


def test_a_label_widens_the_gap_between_its_columns() -> None:
    picture = Schematic(gap=(10, 10))
    one, other = picture.box("a", (0, 0)), picture.box("b", (1, 0))
    picture.arrow(one, other, "softmax over the vocabulary")
    picture.figure()
    assert other.rect.left - one.rect.right > 150


def test_parts_lie_in_their_matrix() -> None:
    picture = Schematic()
    matrix = picture.matrix((3, 4), (0, 0), cell=(10, 20))
    picture.figure()
    left, top, _, _ = matrix.rect
    assert matrix.cell(1, 2).rect == pytest.approx((left + 20, top + 20, left + 30, top + 40))
    assert matrix.row(0).rect.width == matrix.rect.width
    assert matrix.column(3).rect.right == matrix.rect.right


def test_blocked_cells_are_hatched_and_missing_ones_dashed() -> None:
    picture = Schematic()
    picture.matrix(np.array([[1.0, np.nan], [2.0, 3.0]]), (0, 0), allowed=np.array([[True, True], [False, True]]))
    patches = picture.figure().axes[0].patches
    assert sum(patch.get_hatch() is not None for patch in patches) == 1
    assert sum(patch.get_linestyle() not in ("-", "solid") for patch in patches) == 1


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="role is 'kwery'; expected one of query, key, value"):
        Schematic().box("a", (0, 0), "kwery")
    wide = Schematic()
    wide.matrix((1, 100), (0, 0))
    with pytest.raises(ValueError, match=r"the drawing is \d+ pixels wide; expected at most 900"):
        wide.figure()
    with pytest.raises(ValueError, match="broadcast"):
        Schematic().matrix((2, 2), (0, 0), allowed=np.ones((3, 3), bool))


@pytest.mark.parametrize("role", ROLES)
def test_numbers_are_legible_on_every_shade(role: str) -> None:
    """Contrast of at least 4.5 to 1, as WCAG asks."""
    from matplotlib.colors import to_rgb

    def luminance(color: str) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for share in np.linspace(0, 1, 21):
        fill, ink = map(luminance, ROLES[role].shade(float(share)))
        assert (max(fill, ink) + 0.05) / (min(fill, ink) + 0.05) >= 4.5
