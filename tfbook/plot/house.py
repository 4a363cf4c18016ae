"""The style of all figures, and their alt text for readers who cannot see them."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image as Picture

# Four of Petroff's ten colors (2021), dark enough for letters on white: contrast at least 4.5, as WCAG asks of text.
# Distinct for the color-blind; markers and labels tell lines apart in gray.
COLORS = ("#2d78bf", "#c04c00", "#5e1a8c", "#717581")
GREEN, KHAKI, BROWN, RED = "#14785a", "#7f7330", "#9a5c4a", "#bd1f01"  # where four are too few
MARKERS = ("o", "s", "^", "D")
INK, SOFT, FAINT, EDGE = "#1f2328", "#59636e", "#f2f2f2", "#868686"
SHARPNESS = 1.5  # pixels of the file for one on the page
CORNER = 14  # radius of a card's corners
TRANSPARENT = 255  # the last color of a picture's palette


class Role(NamedTuple):
    """The colors of one role in all schematics and maps."""

    fill: str  # of boxes
    edge: str  # of lines and letters
    dark: str  # of the darkest cell of a matrix

    @property
    def ink(self) -> str:
        """The color of text in a box."""
        return INK if self.fill == "white" else self.edge

    def shade(self, share: float) -> tuple[str, str]:
        """A color between white and `dark`, and black or white for text on it, whichever is more legible."""
        from matplotlib.colors import to_hex, to_rgb

        depth = 0.06 + 0.94 * min(max(share, 0.0), 1.0)
        r, g, b = (1 - depth * (1 - channel) for channel in to_rgb(self.dark))
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (r, g, b))
        luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue  # as WCAG defines it; above 0.179 black is better
        return to_hex((r, g, b)), "black" if luminance > 0.179 else "white"


# The same thing has the same color in every lesson; each bears its letter, too.
ROLES = {
    "query": Role("#d3e7f5", "#0066a1", "#2b8ccb"),
    "key": Role("#fde6c0", "#9c4d00", "#f0a02a"),
    "value": Role("#cdeee2", "#00735a", "#12a37c"),
    "weight": Role("#f0deee", "#7a2a70", "#8c3280"),
    "stream": Role("#e6e9ed", "#59636e", "#9aa3ad"),
    "parameter": Role("#fbf6cf", "#75690a", "#d8cd58"),
    "plain": Role("white", INK, INK),
}


class Method(NamedTuple):
    """The look of a method's curve in every figure."""

    color: str
    marker: str


METHODS = {
    "attention": Method(COLORS[0], "o"),
    "fixed context": Method(COLORS[1], "s"),
    "self-attention": Method(COLORS[0], "o"),
    "recurrent": Method(COLORS[2], "^"),
    "Transformer": Method(COLORS[0], "o"),
    "smaller Transformer": Method(COLORS[0], "o"),
    "Transformer of equal size": Method(COLORS[1], "s"),
    "convolution": Method(COLORS[1], "s"),
    "plain average": Method(COLORS[2], "^"),
    "RNN": Method(COLORS[2], "^"),
    "GRU": Method(COLORS[3], "D"),
    "scaled dot": Method(COLORS[0], "o"),
    "dot": Method(COLORS[1], "s"),
    "general": Method(COLORS[2], "^"),
    "general / √d": Method(COLORS[0], "o"),
    "additive": Method(GREEN, "D"),
    "cosine": Method(KHAKI, "v"),
    "location": Method(COLORS[3], "X"),
    "none": Method(COLORS[3], "X"),
    "none, both sides": Method(BROWN, "v"),
    "integer": Method(KHAKI, "v"),
    "sinusoidal": Method(COLORS[0], "o"),
    "learned": Method(COLORS[1], "s"),
    "relative": Method(GREEN, "D"),
    "rotary": Method(COLORS[2], "^"),
    "ALiBi": Method(RED, "P"),
}

# With each figure, since Colab shows each output in a frame of its own. On a dark page light and dark are exchanged and
# hues kept; photographs are left as they are.
STYLESHEET = """<style>
.tfbook-figure { margin: 0 0 1em }
.tfbook-figure img { max-width: 100%; height: auto }
.tfbook-figure figcaption { max-width: 60em; margin-top: 0.2em; font-size: 0.93em }
:is([data-jp-theme-light="false"], html[theme="dark"], .vscode-dark) .tfbook-figure:not(.photograph) img {
  filter: invert(0.9) hue-rotate(180deg);
}
</style>"""


def style() -> None:
    """Sets the style of the figures in this notebook, and makes their PNGs identical on every run."""
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


def show(figure: Figure, alt: str, caption: str = "", *, photograph: bool = False) -> None:
    """Displays a figure on a card with alt text, and below it a caption that says what to look at.

    All of it is HTML, because JupyterLab shows no alt text of a bare image. On a dark page light and dark are swapped,
    except in a `photograph`. The PNG has a palette of 256 colors, which looks the same and takes a third of the space.
    Raises ValueError when `alt` is empty.
    """
    import io

    import matplotlib.pyplot as plt
    from IPython.display import display
    from PIL import Image as Picture

    if not alt.strip():
        raise ValueError("alt is empty; describe what the figure shows in a sentence")
    rendered, file = io.BytesIO(), io.BytesIO()
    figure.savefig(rendered, format="png", bbox_inches="tight", pad_inches=0.14, dpi=SHARPNESS * figure.dpi)
    plt.close(figure)
    picture = _on_a_card(Picture.open(rendered).convert("RGB"))
    picture.save(file, format="PNG", optimize=True, transparency=TRANSPARENT)
    image = image_element(file.getvalue(), alt, round(picture.width / SHARPNESS))
    kinds = {"schematic": figure.get_label() == "schematic", "photograph": photograph}
    names = " ".join(["tfbook-figure", *(kind for kind, applies in kinds.items() if applies)])
    below = f"<figcaption>{html.escape(caption, quote=False)}</figcaption>\n" if caption else ""
    page = f'<figure class="{names}">\n{image}\n{below}</figure>{STYLESHEET}'
    display({"text/html": page, "text/plain": alt}, raw=True)


def image_element(png: bytes, alt: str, width: int | None = None) -> str:
    """A picture as an element of HTML that holds all of it; `width` is in pixels of the page."""
    import base64

    size = "" if width is None else f'width="{width}" '
    return f'<img alt="{html.escape(alt)}" {size}src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def literal(text: str) -> str:
    """The text as matplotlib draws it letter by letter: a dollar sign in a reader's words starts no formula."""
    return text.replace("$", r"\$")


def _on_a_card(picture: Picture) -> Picture:
    """The picture in at most 255 colors, with the color `TRANSPARENT` outside its rounded corners."""
    from PIL import Image, ImageDraw

    outside = Image.new("L", picture.size, 255)
    right, bottom = picture.width - 1, picture.height - 1
    ImageDraw.Draw(outside).rounded_rectangle((0, 0, right, bottom), radius=CORNER, fill=0)
    palette = picture.quantize(TRANSPARENT, dither=Image.Dither.NONE)
    colors = palette.getpalette() or []  # as many as the picture has; an index beyond the last one would be drawn black
    palette.putpalette(colors + [255] * (3 * (TRANSPARENT + 1) - len(colors)))
    palette.paste(TRANSPARENT, mask=outside)
    return palette
