"""Mutants of a function: its source with one operator, axis, constant, bound, argument, call or statement changed."""

import ast
import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from tfbook.course.exercises.engine import source_of
from tools.mutation.changes import Change, changes, dropping, setting


def mutants(function: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each mutant with the statement that differs, such as "return x - y"; those that do not compile are left out."""
    tree = _tree(function)
    body = tree.body[0]
    assert isinstance(body, ast.FunctionDef)
    seen = {ast.unparse(tree)}
    for number, node in enumerate(ast.walk(body)):
        for change in _changes(node, [each.arg for each in body.args.args]):
            text = ast.unparse(_changed(tree, number, change))
            if text in seen:
                continue
            seen.add(text)
            yield _changed_line(ast.unparse(tree), text), _compiled(text, function)


def recompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function made as its mutants are, with nothing changed."""
    return _compiled(ast.unparse(_tree(function)), function)


def _tree(function: Callable[..., Any]) -> ast.Module:
    """Its source without annotations, which no check depends on."""
    tree = ast.parse(source_of(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return tree


def _compiled(text: str, function: Callable[..., Any]) -> Callable[..., Any]:
    names = dict(inspect.unwrap(function).__globals__)  # those of its module, not of what checks its signature in tests
    exec(compile(text, f"<mutant of {function.__name__}>", "exec"), names)
    return names[function.__name__]


def _changed(tree: ast.Module, number: int, change: Change) -> ast.AST:
    """A copy of the tree in which the function's node with this number is changed."""
    mutant = copy.deepcopy(tree)
    target = next(each for i, each in enumerate(ast.walk(mutant.body[0])) if i == number)

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return change(node) if node is target else self.generic_visit(node)

    return ast.fix_missing_locations(Replace().visit(mutant))


def _changed_line(before: str, after: str) -> str:
    old, new = before.splitlines(), after.splitlines()
    where = next(i for i, (one, other) in enumerate(zip(old, [*new, ""], strict=False)) if one != other)
    if len(old) > len(new):
        return f"without {old[where].strip()}"
    return new[where].strip()


def _changes(node: ast.AST, parameters: list[str]) -> Iterator[Change]:
    """What can be done to a node of this kind, in a function of these parameters."""
    yield from changes(node, parameters)
    if isinstance(node, ast.FunctionDef | ast.For | ast.While | ast.If | ast.With):
        if isinstance(node, ast.If):
            yield setting(test=ast.Constant(True))
        for i, statement in enumerate(node.body):
            if not isinstance(statement, ast.Return | ast.FunctionDef) and len(node.body) > 1:
                yield dropping("body", i)
