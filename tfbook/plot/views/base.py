"""Shared parts of the views: standalone HTML, tables for readers without JavaScript, weights as bytes."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

import torch
from torch import Tensor

COLORED_FROM = 0.05  # share from which a static cell has a color, so that long tables stay short
TINT = "160,60,148"  # purple, the course's color of weights, as in base.css
STRONGEST = 0.6  # how opaque a full cell is: the page's ink stays readable on it, be it dark or light


def embed(kind: str, data: Mapping[str, object], static: str, *, uses: Sequence[str] = ()) -> str:
    """`static`, and a script that replaces it with the view named `kind`; without JavaScript `static` stays.

    The script is base.js and `kind`.js, with the files that it `uses` in between; its style is base.css and `kind`.css.
    `data` is the view's content.
    """
    script = _joined("js", "base", *uses, kind)
    style = _joined("css", "base", kind)
    host = f'<div class="tfbook-{kind} mathjax_ignore" data-view="{html.escape(json.dumps(data))}">'
    mount = f"<script>(() => {{\n{script}\nmountViews({json.dumps(kind)}, {json.dumps(style)});\n}})();</script>"
    return f"{host}\n{static}\n</div>\n{mount}"


def _joined(suffix: str, *names: str) -> str:
    folder = resources.files("tfbook.plot.views")
    return "\n".join((folder / f"{name}.{suffix}").read_text(encoding="utf-8") for name in names)


def paragraph(text: str) -> str:
    """A paragraph above a static table."""
    return f"<p>{html.escape(text)}</p>"


def table(columns: Sequence[str], rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    """A static table: the names of its columns, and for each row its name and its cells (see `cell`)."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = [f"<tr><th>{html.escape(name)}</th>{''.join(cells)}</tr>" for name, cells in rows]
    return "\n".join(["<table>", f"<tr><th></th>{head}</tr>", *body, "</table>"])


def cell(text: str, share: float = 0) -> str:
    """A cell of a static table, more strongly colored for a larger `share`, 0 to 1."""
    colored = share >= COLORED_FROM
    color = f' style="background:rgba({TINT},{STRONGEST * share:.2f})"' if colored else ""
    return f"<td{color}>{html.escape(text)}</td>"


def hundredths(weights: Tensor) -> Tensor:
    """Weights as bytes from 0 to 100. Raises ValueError when one is outside 0 to 1."""
    if not ((weights > -1e-3) & (weights < 1 + 1e-3)).all():  # not all: NaN fails too
        found = f"{weights.min():.3g} to {weights.max():.3g}"
        raise ValueError(f"weights run from {found}; expected 0 to 1, a softmax without dropout")
    return (100 * weights).round().clamp(0, 100).to(torch.uint8)


def encoded(cells: Tensor) -> str:
    """Bytes as text, which `bytesOf` in base.js decodes."""
    return base64.b64encode(cells.numpy().tobytes()).decode()
