"""All mutants of a module: its source with one statement changed, in every way that `changes.py` knows.

Left alone are what no test should depend on: docstrings, annotations, decorators, type aliases, `__repr__`, formatted
texts and what is raised.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .changes import Change, changes

PARTS = ("body", "orelse", "finalbody")  # where a compound statement has others


@dataclass(frozen=True)
class Mutant:
    """A module with one statement changed. Lines keep their numbers."""

    module: str  # "tfbook/attention/masks.py"
    function: str  # "Band.dense"; "" at the top of the module
    before: str  # the statement; of a compound one its head
    after: str
    lines: range  # of the statement's head
    source: bytes

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The module, the function and the statement before and after: the same wherever the lines are moved to."""
        return self.module, self.function, self.before, self.after


def mutants(module: str, source: bytes) -> Iterator[Mutant]:
    """Each mutant once."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen = set()
    for statement, function, parameters in _statements(ast.parse(source).body, "", []):
        head = _head(statement)
        before = _text(head)
        for node, change, whole in _sites(head, parameters):
            after, text = _changed(head, node, change, whole)
            mutant = Mutant(module, function, before, after, _lines(statement), _spliced(source, starts, whole, text))
            if before != after and mutant.key not in seen:
                seen.add(mutant.key)
                yield mutant


def _spliced(source: bytes, starts: list[int], whole: Any, text: str) -> bytes:
    """The source with a text in the place of a node, on as many lines."""
    text += "\n" * (whole.end_lineno - whole.lineno)
    text = f"({text})" if isinstance(whole, ast.expr) else text
    begin, end = starts[whole.lineno - 1] + whole.col_offset, starts[whole.end_lineno - 1] + whole.end_col_offset
    return source[:begin] + text.encode() + source[end:]


# ---- statements --------------------------------------------------------------------------------------------------


def _statements(body: list[Any], function: str, parameters: list[str]) -> Iterator[tuple[Any, str, list[str]]]:
    """Statements to change, each with the function around it and that function's parameters."""
    for each in body:
        if _is_left_alone(each, function):
            continue
        if isinstance(each, ast.ClassDef):
            yield from _statements(each.body, f"{function}.{each.name}".lstrip("."), [])
            continue
        yield each, function, parameters
        inside = function, parameters
        if isinstance(each, ast.FunctionDef):
            names = [name.arg for name in (*each.args.args, *each.args.kwonlyargs) if name.arg != "self"]
            inside = f"{function}.{each.name}".lstrip("."), names
        for part in PARTS:
            yield from _statements(getattr(each, part, []), *inside)
        for handler in getattr(each, "handlers", []):
            yield from _statements(handler.body, *inside)


def _is_left_alone(statement: Any, function: str) -> bool:
    """Imports, docstrings, errors, `__repr__`, `if TYPE_CHECKING` and names of types."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Raise() | ast.Assert() | ast.Pass():
            return True
        case ast.Expr(value=ast.Constant()) | ast.FunctionDef(name="__repr__") | ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp()):
            return not function and not name.isupper()
    return False


def _head(statement: Any) -> Any:
    """The statement without what is inside of it, decorators and annotations of arguments."""
    head = copy.copy(statement)
    if hasattr(head, "body"):
        head.body = [ast.Pass()]
    for part in (*PARTS[1:], "handlers"):
        if hasattr(head, part):
            setattr(head, part, [])
    if isinstance(head, ast.Try):
        head.finalbody = [ast.Pass()]
    head = copy.deepcopy(head)
    for node in ast.walk(head):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list, node.returns = [], None
        if isinstance(node, ast.arg):
            node.annotation = None
    return head


def _lines(statement: Any) -> range:
    """Of its head."""
    body = getattr(statement, "body", None)
    last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno
    return range(statement.lineno, last + 1)


def _text(head: ast.AST) -> str:
    return ast.unparse(head).removesuffix("\n    pass")


def _can_go(head: Any) -> bool:
    """A call, or an assignment without which its names still exist."""
    match head:
        case ast.Expr() | ast.AugAssign():
            return True
        case ast.Assign(targets=[target]):
            used = {node.id for node in ast.walk(head.value) if isinstance(node, ast.Name)}
            return not isinstance(target, ast.Name) or target.id in used
    return False


# ---- inside of a statement ---------------------------------------------------------------------------------------


def _sites(head: Any, parameters: list[str]) -> Iterator[tuple[ast.AST, Change, Any]]:
    """A node, a change of it, and the smallest expression or statement around it that has a text of its own."""
    if _can_go(head):
        yield head, lambda node: ast.Pass(), head
    if isinstance(head, ast.If):
        for value in (True, False):
            yield head.test, lambda node, value=value: ast.Constant(value), head.test
    if isinstance(head, ast.While):
        yield head.test, lambda node: ast.UnaryOp(ast.Not(), node), head.test
    yield from _inside(head, None if hasattr(head, "body") else head, parameters)


def _inside(node: ast.AST, whole: Any, parameters: list[str]) -> Iterator[tuple[ast.AST, Change, Any]]:
    whole = node if _stands_alone(node) else whole
    if whole is not None:
        yield from ((node, change, whole) for change in changes(node, parameters))
    for name, field in ast.iter_fields(node):
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and name != "annotation" and not isinstance(child, ast.JoinedStr):
                yield from _inside(child, whole, parameters)


def _stands_alone(node: ast.AST) -> bool:
    """Whether it may be put in parentheses."""
    has_slices = isinstance(node, ast.Tuple) and any(isinstance(each, ast.Slice) for each in node.elts)
    is_target = isinstance(getattr(node, "ctx", None), ast.Store)
    return isinstance(node, ast.expr) and not (has_slices or is_target or isinstance(node, ast.Slice | ast.Starred))


def _changed(head: Any, node: ast.AST, change: Change, whole: Any) -> tuple[str, str]:
    """The texts of the statement and of `whole` after the change."""
    copies: dict[int, Any] = {}
    twin = copy.deepcopy(head, copies)
    target, outer = copies[id(node)], copies[id(whole)]
    changed = change(target)

    class Replace(ast.NodeTransformer):
        def visit(self, each: ast.AST) -> ast.AST:
            return changed if each is target else self.generic_visit(each)

    twin = Replace().visit(twin)
    return _text(twin), ast.unparse(changed if outer is target else outer)
