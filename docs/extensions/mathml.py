"""Formulas as MathML, which browsers and book readers show without a script or a font from elsewhere."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from tfbook.course.formulas import mathml


def visit_inline(translator: Any, node: nodes.Element) -> None:
    translator.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    translator.body.append(f'<div class="formula">{mathml(node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
