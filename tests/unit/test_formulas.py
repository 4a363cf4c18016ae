"""Formulas in an explanation: wherever they stand in its Markdown, they become MathML, and money stays money."""

import html
import re

import pytest

from tfbook.course.formulas import markdown_with_formulas


def read(text: str) -> str:
    """The text of the page, without tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", markdown_with_formulas(text)))).strip()


@pytest.mark.parametrize(
    ("text", "formulas", "shown"),
    [
        ("of $n^2$ scores", 1, "of n2 scores"),
        ("about $e^{3.4} \\approx\n30$ times", 1, "about e3.4≈30 times"),
        ("*one* $a_i * b_i$ and $c*d$", 2, "one ai*bi and c*d"),
        ("with $W_K(w_j + j\\,u)$", 1, "with WK(wj+ju)"),
        ("first $x$, then $y$", 2, "first x, then y"),
        ("$$x = y$$", 1, "x=y"),
        ("costs \\$5 or \\$6, $n$ times", 1, "costs $5 or $6, n times"),
        ("from $5 to $6", 0, "from $5 to $6"),
        ("a | b\n- | -\n$x$ | $|y|$", 2, "a b x |y|"),
        ("no formula", 0, "no formula"),
    ],
)
def test_a_formula_is_typeset(text: str, formulas: int, shown: str) -> None:
    page = markdown_with_formulas(text)
    assert page.count("<math ") == page.count("</math>") == formulas
    assert read(text) == shown


def test_a_formula_is_inline_or_on_a_line_of_its_own() -> None:
    assert 'display="inline"' in markdown_with_formulas("so $x$ is")
    assert 'display="block"' in markdown_with_formulas("$$x$$")


def test_a_function_stands_apart_from_its_argument() -> None:
    for argument in ("12", "V", "\\alpha"):
        assert "<mspace" in markdown_with_formulas(f"$\\ln {argument}$")
    assert "<mspace" not in markdown_with_formulas("$\\ln(12)$")


def test_lines_are_aligned() -> None:
    """Each in a row of its own, what stands left of the sign in one column, and no mark of alignment is left."""
    page = markdown_with_formulas("$$\\begin{aligned} a &= b \\\\ &= c \\end{aligned}$$")
    assert page.count("<mtr>") == 2
    assert page.count('columnalign="right"') == 2
    assert "&" not in read("$$\\begin{aligned} a &= b \\\\ &= c \\end{aligned}$$")
