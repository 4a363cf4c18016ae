"""Markdown with its formulas as HTML that every page shows: JupyterLab, Colab, VS Code, an exported file."""

from __future__ import annotations

import re

FORMULA = re.compile(r"(?<!\\)(\$\$?)(?=\S)((?:[^$\\]|\\.)+?)(?<=\S)\1(?!\d)", re.DOTALL)
FUNCTION = re.compile(r"(\\(?:ln|log|exp|max|min)) +(?=[\w\\])")  # MathML would set its argument close to it
ALIGNED = re.compile(r"\\(begin|end)\{aligned\}")  # which latex2mathml does not know; it means the same inside of "$$"
PLACE = "\N{OBJECT REPLACEMENT CHARACTER}"


def markdown_with_formulas(text: str) -> str:
    r"""Markdown as HTML, what stands between dollar signs as MathML, which needs no script of the page.

    Colab and VS Code typeset no formula inside of HTML. A formula may go over the end of a line; `\$` is a dollar sign.
    """
    import mistune

    formulas = [mathml(formula[2], block=formula[1] == "$$") for formula in FORMULA.finditer(text)]
    page = str(mistune.create_markdown(escape=False, plugins=["table"])(FORMULA.sub(PLACE, text)))
    for formula in formulas:
        page = page.replace(PLACE, formula, 1)
    return page


def mathml(formula: str, *, block: bool) -> str:
    """A formula of LaTeX as an element `<math>`, on a line of its own if `block`."""
    from latex2mathml.converter import convert

    known = ALIGNED.sub(r"\\\1{align*}", FUNCTION.sub(r"\1\\,", formula.strip()))
    return str(convert(known, display="block" if block else "inline"))
