"""Changes of Python code that its tests should notice: another operator, axis, constant, bound, argument or call.

`tools/mutate.py` changes the package and `tests/exercises/mutants.py` the solutions of the exercises.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Any

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
        ("maximum", "minimum"),
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
BOUNDS = {"max", "min", "maximum", "minimum"}
FINITE = 20.0  # what attention masks with in the place of infinity, where nobody looked twice


Change = Callable[[Any], ast.AST]  # a node → what stands in its place, itself or another


def changes(node: ast.AST, parameters: list[str]) -> Iterator[Change]:
    """What can be done to a node of this kind, in a function of these parameters."""
    match node:
        case ast.BinOp() | ast.AugAssign():
            for operator in OPERATORS.get(type(node.op), ()):
                yield setting(op=operator())
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div | ast.MatMult):
                yield swapping("left", "right")
        case ast.Compare(ops=[op]):
            for comparison in COMPARISONS[type(op)]:
                yield setting(ops=[comparison()])
        case ast.BoolOp():
            yield setting(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield lambda node: node.operand
        case ast.Constant(value=bool()):
            yield setting(value=not node.value)
        case ast.Constant(value=int()):
            yield setting(value=node.value + 1)
            yield setting(value=node.value - 1)
        case ast.Constant(value=float()):
            yield setting(value=node.value * 2 + 0.1)
        case ast.Slice():
            for bound in ("lower", "upper", "step"):
                if getattr(node, bound) and ast.unparse(getattr(node, bound)) != "0":
                    yield setting(**{bound: None})
        case ast.Tuple(ctx=ast.Load()) if len(node.elts) > 1:
            for i in range(len(node.elts) - 1):
                yield exchanging("elts", i)
        case ast.Attribute(attr="inf"):
            yield lambda node: ast.Constant(FINITE)
        case ast.Attribute(attr="T" | "mT"):
            yield lambda node: node.value
        case ast.Attribute(attr=name) if name in NAMES:
            yield setting(attr=NAMES[name])
        case ast.Name(id=name) if name in {"max", "min", "any", "all"}:
            yield setting(id=NAMES[name])
        case ast.Name(id=name, ctx=ast.Load()) if name in parameters and len(parameters) > 1:
            yield setting(id=parameters[parameters.index(name) - 1])
        case ast.Call():
            yield from _changes_of_call(node)
        case ast.IfExp():
            yield lambda node: node.body
            yield lambda node: node.orelse
        case ast.comprehension():
            for i in range(len(node.ifs)):
                yield dropping("ifs", i)


def _changes_of_call(node: ast.Call) -> Iterator[Change]:
    """Without one of its options, with two neighbors of its arguments exchanged, or not called at all."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    for i in range(len(node.keywords)):
        yield dropping("keywords", i)
    for i in range(len(node.args) - 1):
        if name != "transpose":  # whose axes have no order
            yield exchanging("args", i)
    method = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in {"torch", "F", "math", "nn"}
    if method:
        yield lambda node: node.func.value
    elif node.args and not isinstance(node.args[0], ast.Starred | ast.GeneratorExp):
        yield lambda node: node.args[0]
    if name in BOUNDS and len(node.args) > 1:
        yield lambda node: node.args[1]


def setting(**values: Any) -> Change:
    def change(node: ast.AST) -> ast.AST:
        for name, value in values.items():
            setattr(node, name, value)
        return node

    return change


def swapping(one: str, other: str) -> Change:
    return lambda node: setting(**{one: getattr(node, other), other: getattr(node, one)})(node)


def dropping(name: str, index: int) -> Change:
    return lambda node: setting(**{name: [each for i, each in enumerate(getattr(node, name)) if i != index]})(node)


def exchanging(name: str, index: int) -> Change:
    def change(node: ast.AST) -> ast.AST:
        items = getattr(node, name)
        items[index : index + 2] = items[index + 1], items[index]
        return node

    return change
