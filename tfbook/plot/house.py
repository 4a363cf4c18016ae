"""The style of every figure, and its alt text for readers who cannot see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Four of Petroff's ten colors (2021), distinct for the color-blind; markers and labels tell lines apart in gray.
COLORS = ("#3f90da", "#e76300", "#832db6", "#717581")
MARKERS = ("o", "s", "^", "D")
INK, FAINT, EDGE = "#222222", "#f2f2f2", "#9a9a9a"


def style() -> None:
    """Sets the style of the figures in this notebook, and makes their PNGs the same on every run."""
    import matplotlib as mpl
    import seaborn as sns
    from cycler import cycler

    sns.set_theme(context="notebook", style="ticks", rc={"figure.figsize": (7, 4), "figure.dpi": 100})
    mpl.rcParams |= {
        "axes.prop_cycle": cycler(color=COLORS) + cycler(marker=MARKERS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.titlesize": 12,
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "lines.linewidth": 2,
        "lines.markersize": 5,
        "figure.constrained_layout.use": True,
        "font.family": ["DejaVu Sans"],
    }


def show(figure: Figure, alt: str) -> None:
    """Displays a figure with alt text. Raises ValueError when `alt` is empty.

    The PNG has a palette of 256 colors, which looks the same and takes a third of the space.
    """
    import io

    import matplotlib.pyplot as plt
    from IPython.display import Image, display
    from PIL import Image as Picture

    if not alt.strip():
        raise ValueError("alt is empty; describe what the figure shows in a sentence")
    rendered, file = io.BytesIO(), io.BytesIO()
    figure.savefig(rendered, format="png", bbox_inches="tight")
    plt.close(figure)
    picture = Picture.open(rendered).convert("RGB").quantize(256, dither=Picture.Dither.NONE)
    picture.save(file, format="PNG", optimize=True)
    display(Image(file.getvalue()), metadata={"image/png": {"alt": alt}})
