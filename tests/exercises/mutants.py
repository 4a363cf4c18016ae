"""Mutants of a function: its source with one operator, axis, constant, bound, method or statement changed."""

import __future__

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any

from tfbook.course.exercises.engine import source_of

OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
NAMES = {
    one: other
    for pair in [
        ("max", "min"),
        ("amax", "amin"),
        ("argmax", "argmin"),
        ("mean", "sum"),
        ("tril", "triu"),
        ("zeros", "ones"),
        ("zeros_like", "ones_like"),
        ("cos", "sin"),
        ("exp", "log"),
        ("softmax", "log_softmax"),
        ("any", "all"),
        ("repeat", "repeat_interleave"),
        ("cat", "stack"),
    ]
    for one, other in (pair, pair[::-1])
}


def mutants(function: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each mutant with the statement that differs, such as "return x - y"; those that do not compile are left out."""
    tree = ast.parse(source_of(function))
    body = tree.body[0]
    assert isinstance(body, ast.FunctionDef)
    body.decorator_list = []
    seen = {ast.unparse(tree)}
    for number, node in enumerate(ast.walk(body)):
        for change in _changes(node):
            mutant = copy.deepcopy(tree)
            target = next(each for i, each in enumerate(ast.walk(mutant.body[0])) if i == number)
            change(target)
            text = ast.unparse(ast.fix_missing_locations(mutant))
            if text in seen:
                continue
            seen.add(text)
            names = dict(function.__globals__)
            exec(compile(text, f"<mutant of {function.__name__}>", "exec", __future__.annotations.compiler_flag), names)
            yield _changed_line(ast.unparse(tree), text), names[function.__name__]


def _changed_line(before: str, after: str) -> str:
    old, new = before.splitlines(), after.splitlines()
    where = next(i for i, (one, other) in enumerate(zip(old, [*new, ""], strict=False)) if one != other)
    if len(old) > len(new):
        return f"without {old[where].strip()}"
    return new[where].strip()


Change = Callable[[Any], None]


def _changes(node: ast.AST) -> Iterator[Change]:
    """What can be done to a node of this kind, each as a function that changes a copy of it."""
    match node:
        case ast.BinOp() | ast.AugAssign():
            for operator in OPERATORS.get(type(node.op), ()):
                yield _setting(op=operator())
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div | ast.MatMult):
                yield _swap_operands
        case ast.Compare(ops=[op]):
            for comparison in COMPARISONS[type(op)]:
                yield _setting(ops=[comparison()])
        case ast.BoolOp():
            yield _setting(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield _setting(op=ast.UAdd()) if isinstance(node.op, ast.USub) else _double
        case ast.Constant(value=bool()):
            yield _setting(value=not node.value)
        case ast.Constant(value=int()):
            yield _setting(value=node.value + 1)
            yield _setting(value=node.value - 1)
        case ast.Constant(value=float()):
            yield _setting(value=node.value * 2 + 0.1)
        case ast.Slice():
            if node.lower:
                yield _setting(lower=None)
            if node.upper:
                yield _setting(upper=None)
        case ast.Attribute(attr=name) if name in NAMES:
            yield _setting(attr=NAMES[name])
        case ast.Name(id=name) if name in {"max", "min", "any", "all"}:
            yield _setting(id=NAMES[name])
        case ast.Call():
            for i in range(len(node.keywords)):
                yield _dropping("keywords", i)
            if len(node.args) > 1:
                yield _swap_arguments
            if isinstance(node.func, ast.Attribute) and not node.args:
                yield _call_nothing
        case ast.comprehension():
            for i in range(len(node.ifs)):
                yield _dropping("ifs", i)
        case ast.FunctionDef() | ast.For() | ast.While() | ast.If() | ast.With():
            for i, statement in enumerate(node.body):
                if not isinstance(statement, ast.Return | ast.FunctionDef) and len(node.body) > 1:
                    yield _dropping("body", i)


def _setting(**values: Any) -> Change:
    def change(node: ast.AST) -> None:
        for name, value in values.items():
            setattr(node, name, value)

    return change


def _dropping(name: str, index: int) -> Change:
    return lambda node: getattr(node, name).pop(index)


def _swap_operands(node: ast.BinOp) -> None:
    node.left, node.right = node.right, node.left


def _swap_arguments(node: ast.Call) -> None:
    node.args[-2:] = node.args[:-3:-1]


def _double(node: ast.UnaryOp) -> None:
    """Undoes a negation by one more."""
    node.operand = ast.UnaryOp(op=node.op, operand=node.operand)


def _call_nothing(node: ast.Call) -> None:
    """`x.sqrt()` becomes `+x`… of whatever it was called on."""
    assert isinstance(node.func, ast.Attribute)
    node.func = ast.Lambda(
        args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]), body=node.func.value
    )
    node.keywords = []
