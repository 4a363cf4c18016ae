"""Contrast as WCAG 2.2 asks for it, on light and on dark pages: letters at least 4.5, lines and bars at least 3."""

import re
from itertools import combinations
from pathlib import Path

import matplotlib.style
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from tfbook.course.claims import CHIPS
from tfbook.lessons.efficient_attention.figures import BUCKETS, INGREDIENTS, METHODS as EFFICIENT
from tfbook.lessons.preferences.figures import ORANGES
from tfbook.plot import house

ROOT = Path(__file__).resolve().parents[2]
WHITE = "#ffffff"
SHADES = [ROLE.shade(share) for ROLE in house.ROLES.values() for share in np.linspace(0, 1, 11)]
LABELS = [  # a color of letters and the ground below it
    *((color, WHITE) for color in (*house.COLORS, house.INK, house.SOFT)),
    *((color, house.FAINT) for color in (house.INK, house.SOFT)),
    *((method.color, WHITE) for method in (*house.METHODS.values(), *EFFICIENT.values())),
    *((role.ink, role.fill) for role in house.ROLES.values()),
    *((role.edge, WHITE) for role in house.ROLES.values()),
    *((letters, ground) for ground, letters in SHADES),
    *((WHITE, color) for color in (*CHIPS.values(), *BUCKETS)),
]
LINES = [*(color for color, ground in LABELS if ground == WHITE), house.EDGE, *ORANGES, *INGREDIENTS.values()]
HUE_ROTATED = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])  # by 180°, CSS filters
SEEN = {  # linear RGB as the color-blind see it: Machado, Oliveira & Fernandes (2009), severity 1
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])


def linear(color: str | tuple[float, ...]) -> np.ndarray:
    parts = np.array(to_rgb(color))
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(XYZ[1] @ linear(color)) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def on_a_dark_page(color: str) -> str:
    """The color after the filter of the style sheet, `invert(0.9) hue-rotate(180deg)`."""
    inverted = 0.9 - 0.8 * np.array(to_rgb(color))
    return to_hex(np.clip(HUE_ROTATED @ inverted, 0, 1))


def test_the_contrast_is_that_of_the_definition() -> None:
    assert contrast("black", "white") == pytest.approx(21)
    assert contrast("#777777", "white") == pytest.approx(4.48, abs=0.01)
    assert "filter: invert(0.9) hue-rotate(180deg)" in house.STYLESHEET
    assert to_rgb(on_a_dark_page("white")) == pytest.approx([0.1] * 3, abs=0.003)
    assert to_rgb(on_a_dark_page("black")) == pytest.approx([0.9] * 3, abs=0.003)


@pytest.mark.parametrize(("letters", "ground"), sorted(set(LABELS)))
def test_letters_can_be_read(letters: str, ground: str) -> None:
    assert contrast(letters, ground) >= 4.5
    if ground in (WHITE, house.FAINT, *(role.fill for role in house.ROLES.values())):
        assert contrast(on_a_dark_page(letters), on_a_dark_page(ground)) >= 4.5


@pytest.mark.parametrize("color", sorted(set(LINES)))
def test_lines_and_bars_can_be_seen(color: str) -> None:
    assert contrast(color, WHITE) >= 3
    assert contrast(on_a_dark_page(color), on_a_dark_page(WHITE)) >= 3


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB, in which distances are about what is seen."""
    share = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", SEEN)
def test_the_color_blind_tell_lines_apart_as_with_petroff_s_colors(kind: str) -> None:
    """The four colors that ours were darkened from are made for that; their closest two are the measure."""

    def closest(colors: tuple[str, ...]) -> float:
        seen = [lab(np.array(SEEN[kind]) @ linear(color)) for color in colors]
        return min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2))

    petroff = matplotlib.style.library["petroff10"]["axes.prop_cycle"].by_key()["color"]
    chosen = ("#3f90da", "#e76300", "#832db6", "#717581")
    assert set(chosen) <= set(petroff)
    assert closest(house.COLORS) >= 0.75 * closest(chosen)


GROUNDS = {  # of boxes and cells, and what only separates or decorates
    "lesson 03: borders between cells": ("#d8dce0",),
    "lesson 15: shares side by side, with borders": ("#b4bcc5", "#e2e6ea"),
    "tokens in alternating tints": ("#d3e6f8", "#e9e9e9"),
    "what a mask blocks": ("#f3f5f7", "#c4cad1", "#b8b8b8"),
    "grid": ("#e6e6e6",),
    "lesson 14: windows, with borders": (
        *("#b9d5ee", "#f3cfae", "#d9c6e6", "#cfe3d2", "#e8e2b4", "#efc9c9", "#c9d3da", "#d8c3b4", "#bfe0e0"),
    ),
    "lesson 14: places in reach, with borders": ("#e3c8df", "#f6d5bd"),
    "lesson 16: requests, with borders and names": (
        *("#cfe2f3", "#f9d9c0", "#e0d0ea", "#d5e8d4", "#f3e6b8", "#dcdfe3", "#b9a7cf"),
    ),
    "lesson 16: what is rejected, hatched, with a border": ("#d4d8dd",),
    "lesson 17: words that see a name through the filter": ("#f2b8a8",),
    "lesson 17: places that an output doesn't see, and words that left the state": ("#d5dae0", "#9aa3ad"),
    "lesson 17: pixels seen and not seen, beside each other": ("#8fb8dd", "#e59a86"),
    "lesson 18: attention elsewhere, and lengths that training saw": ("#d5d9de", "#eef1f4"),
    "a frame on a dark map": ("#ff5e5e",),
    "lesson 14: frames on darkened pictures": ("#ffb000", "#ff7eb6"),
    "lesson 19: nodes with borders": ("#d7dbe0", "#f4f4f4"),
}


def test_figures_have_no_faint_colors_of_their_own() -> None:
    """Every color that is written out where figures are drawn can be seen on white, except grounds and decoration."""
    grounds = {color for colors in GROUNDS.values() for color in colors} | {house.FAINT}
    grounds |= {color for role in house.ROLES.values() for color in (role.fill, role.dark)}
    files = [*(ROOT / "tfbook/plot").rglob("*.py"), *(ROOT / "tfbook/lessons").rglob("*.py")]
    found = {(file.name, color) for file in files for color in re.findall(r'"(#[0-9a-f]{6})"', file.read_text("utf-8"))}
    assert [each for each in sorted(found) if each[1] not in grounds and contrast(each[1], WHITE) < 3] == []
