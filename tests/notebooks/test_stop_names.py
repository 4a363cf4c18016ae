"""Wherever the stop button ends a loop of a lesson, the names that are used after the loop are bound.

A bar's loop always finishes its first step, so what a step binds on every path is bound. What a step binds only under a
condition, such as a copy of the model after the 250th step, may be missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from book import lessons, read

BRANCHES = (ast.If, ast.Try, ast.For, ast.While, ast.With, ast.Match)


def _names(node: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}


def _bound_for_sure(statements: list[ast.stmt]) -> set[str]:
    """Names that these statements bind on every path: an `if` with `else` binds what both of its branches bind."""
    bound: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.If):
            bound |= _bound_for_sure(statement.body) & _bound_for_sure(statement.orelse)
        elif isinstance(statement, ast.With):
            bound |= _bound_for_sure(statement.body)
        elif not isinstance(statement, BRANCHES):
            bound |= _names(statement, ast.Store)
    return bound


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, field, None), list):
                yield body


def may_be_unbound(source: str) -> set[str]:
    """Names that a loop over a bar binds only under a condition, and that are read after it."""
    found: set[str] = set()
    for body in _bodies(ast.parse(source)):
        bars = {
            name
            for s in body
            if isinstance(s, ast.Assign) and "tqdm(" in ast.unparse(s.value)
            for name in _names(s, ast.Store)
        }
        for i, loop in enumerate(body):
            if not isinstance(loop, ast.For) or not (
                "tqdm(" in ast.unparse(loop.iter) or bars & _names(loop.iter, ast.Load)
            ):
                continue
            inside = set().union(*(_names(s, ast.Store) for s in loop.body))
            sure = _bound_for_sure(loop.body) | _names(loop.target, ast.Store) | _bound_for_sure(body[:i])
            after = set().union(*(_names(s, ast.Load) for s in body[i + 1 :]))
            found |= (inside - sure) & after
    return found


LOOP = """
def train(stop):
    {before}
    for step in tqdm(range(stop)):
        loss = step
        {body}
    return {after}
"""


@pytest.mark.parametrize(
    ("before", "body", "after", "expected"),
    [
        ("pass", "if step == 250: young = loss", "young", {"young"}),
        ("young = None", "if step == 250: young = loss", "young", set()),
        ("pass", "if step: young = loss\n        else: young = 0", "young", set()),
        ("pass", "young = loss", "young, step, loss", set()),
        ("pass", "if step == 250: young = loss", "loss", set()),
    ],
)
def test_a_name_that_a_stop_can_skip_is_found(before: str, body: str, after: str, expected: set[str]) -> None:
    assert may_be_unbound(LOOP.format(before=before, body=body, after=after)) == expected


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_a_stop_leaves_every_name_bound(path: Path) -> None:
    cells = [cell.source for cell in read(path).cells if cell.cell_type == "code" and "tqdm(" in cell.source]
    assert {name for source in cells for name in may_be_unbound(source)} == set()
