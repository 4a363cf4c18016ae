"""Slips in a solution, in words: the solution with one thing or two changed, to recognize an answer by its results."""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import Any

Change = Callable[[Any], ast.AST]  # a node → what stands in its place
Slip = tuple[int, str, Change]  # the number of a node, the words, the change

ALONG = {"softmax", "log_softmax", "logsumexp", "sum", "mean", "amax", "amin", "argmax", "argmin", "cumsum", "cumprod"}
ALONG |= {"max", "min", "norm", "normalize", "std", "var", "topk", "sort", "argsort", "cat", "flip", "any", "all"}
OTHER_NAMES = {
    "mean": ("sum", "a sum where a mean belongs"),
    "sum": ("mean", "a mean where a sum belongs"),
    "amax": ("amin", "the smallest where the largest belongs"),
    "amin": ("amax", "the largest where the smallest belongs"),
    "argmax": ("argmin", "the place of the smallest where that of the largest belongs"),
    "argmin": ("argmax", "the place of the largest where that of the smallest belongs"),
    "max": ("min", "the smaller where the larger belongs"),
    "min": ("max", "the larger where the smaller belongs"),
    "sin": ("cos", "a cosine where a sine belongs"),
    "cos": ("sin", "a sine where a cosine belongs"),
    "tril": ("triu", "the triangle is the other one: each place sees the later ones"),
    "triu": ("tril", "the triangle is the other one"),
    "repeat_interleave": ("repeat", "the whole is repeated where each entry should be"),
    "repeat": ("repeat_interleave", "each entry is repeated where the whole should be"),
    "logsigmoid": ("sigmoid", "the logarithm of the sigmoid is missing"),
    "log_softmax": ("softmax", "the logarithm of the softmax is missing"),
    "softmax": ("log_softmax", "a log_softmax where a softmax belongs"),
}
OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], str]] = {
    ast.Add: (ast.Sub, "a minus where a plus belongs"),
    ast.Sub: (ast.Add, "a plus where a minus belongs"),
    ast.Mult: (ast.Div, "a division where a product belongs"),
    ast.Div: (ast.Mult, "a product where a division belongs"),
    ast.FloorDiv: (ast.Mult, "a product where a division belongs"),
}
COMPARISONS: dict[type[ast.cmpop], list[tuple[type[ast.cmpop], str]]] = {
    ast.Lt: [(ast.LtE, "the border itself should not count"), (ast.GtE, "a comparison is the other way round")],
    ast.LtE: [(ast.Lt, "the border itself should count"), (ast.Gt, "a comparison is the other way round")],
    ast.Gt: [(ast.GtE, "the border itself should not count"), (ast.LtE, "a comparison is the other way round")],
    ast.GtE: [(ast.Gt, "the border itself should count"), (ast.Lt, "a comparison is the other way round")],
    ast.Eq: [(ast.NotEq, "a comparison is the other way round")],
    ast.NotEq: [(ast.Eq, "a comparison is the other way round")],
}


def variants(source: str, names: Mapping[str, Any], *, slips: int) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A function, given by its source and the names that it sees, with each set of `slips` changes, and their words."""
    tree = ast.parse(source)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    for node in ast.walk(tree):  # annotations decide nothing
        if isinstance(node, ast.arg):
            node.annotation = None
    parameters, seen = [each.arg for each in function.args.args], {ast.unparse(tree)}
    found = _slips(tree, parameters)  # the likeliest first, and so are pairs of them
    for places in sorted(combinations(range(len(found)), slips), key=sum):
        chosen = tuple(found[place] for place in places)
        try:
            text = ast.unparse(_with(tree, chosen))
            with warnings.catch_warnings(action="ignore"):  # such as that a number cannot be called
                code = compile(text, f"<a slip in {function.name}>", "exec")
        except (SyntaxError, ValueError, AttributeError):
            continue
        if text not in seen:
            seen.add(text)
            namespace = dict(names)
            exec(code, namespace)  # the lesson's own code but for the slips
            yield "; and ".join(dict.fromkeys(words for _, words, _ in chosen)), namespace[function.name]


def _slips(tree: ast.Module, parameters: list[str]) -> list[Slip]:
    found = [
        (number, words, change) for number, node in enumerate(ast.walk(tree)) for words, change in _at(node, parameters)
    ]
    order = ["other way round", "along another axis", "square root", "missing", "exchanged"]
    return sorted(found, key=lambda slip: next((i for i, word in enumerate(order) if word in slip[1]), len(order)))


def _with(tree: ast.Module, slips: tuple[Slip, ...]) -> ast.Module:
    copied = copy.deepcopy(tree)
    nodes = list(ast.walk(copied))
    changes = {id(nodes[number]): change for number, _, change in slips}

    class Changed(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            change = changes.get(id(node))
            self.generic_visit(node)
            return change(node) if change else node

    return ast.fix_missing_locations(Changed().visit(copied))


# ---- slips at a node ---------------------------------------------------------------------------------------------


def _at(node: ast.AST, parameters: list[str]) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.BinOp():
            yield from _at_operator(node, parameters)
        case ast.Call():
            yield from _at_call(node, parameters)
        case ast.Compare(ops=[op]):
            for other, words in COMPARISONS.get(type(op), []):
                yield words, _setting(ops=[other()])
        case ast.UnaryOp(op=ast.Invert() | ast.Not()):
            yield f"True and False are the other way round{_of(node, parameters)}", lambda node: node.operand
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant | ast.Attribute):
            yield f"a minus sign is missing{_of(node, parameters)}", lambda node: node.operand
        case ast.Attribute(attr="T" | "mT"):
            yield f"a transpose is missing{_of(node, parameters)}", lambda node: node.value
        case ast.Subscript(slice=ast.Tuple(elts=elements)) if any(_is_none(each) for each in elements):
            yield f"an axis of length 1 is missing, as by [:, None]{_of(node, parameters)}", lambda node: node.value
            yield "an axis of length 1 is in another place", partial(_rolled, by=1)
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            for near in (value + 1, value - 1):
                yield f"{near} where {value} belongs: off by one?", _setting(value=near)
        case ast.If() | ast.IfExp():
            for taken in (True, False):
                words = f"the special case{_of(node.test, parameters)} is not treated as one"
                yield words, _setting(test=ast.Constant(taken))
        case ast.Return(value=ast.Tuple(elts=elements)) if len(elements) > 1:
            yield "the results are exchanged", lambda node: ast.Return(ast.Tuple(node.value.elts[::-1], ast.Load()))
        case ast.arguments(args=args) if len(args) > 1:
            for i, j in combinations(range(len(args)), 2):
                yield f"{parameters[i]} and {parameters[j]} are exchanged", partial(_swapped, i=i, j=j)
        case ast.Slice():
            for bound in ("lower", "upper"):
                if getattr(node, bound):
                    yield "a slice begins or ends in another place", _setting(**{bound: None})


def _at_operator(node: ast.BinOp, parameters: list[str]) -> Iterator[tuple[str, Change]]:
    if type(node.op) in OPERATORS:
        other, words = OPERATORS[type(node.op)]
        yield words, _setting(op=other())
    for side, missing in (("left", node.right), ("right", node.left)):
        kind = "square root" if _is_root(missing) else "term" if isinstance(node.op, ast.Add | ast.Sub) else "factor"
        if isinstance(node.op, ast.Pow):
            kind = "power"
        yield f"a {kind} is missing{_of(missing, parameters)}", partial(_part, side=side)
    if isinstance(node.op, ast.MatMult):
        yield (
            "the factors of a matrix product are exchanged",
            lambda node: _setting(left=node.right, right=node.left)(node),
        )
        for side in ("left", "right"):
            part = getattr(node, side)
            if isinstance(part, ast.Name):
                yield f"{part.id} is transposed where it should not be", partial(_transposed, side=side)
    if isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant) and node.right.value == 0.5:
        yield from _other_roots(parameters, lambda size: _setting(left=size))


def _at_call(node: ast.Call, parameters: list[str]) -> Iterator[tuple[str, Change]]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    inner = _inside(node)
    if name in ALONG:
        yield from _along_others(node, name)
    if name == "masked_fill" and len(node.args) >= 2:
        mask = f"the mask{_of(node.args[-2], parameters)}"
        yield f"{mask} is not used", lambda node: _inside(node)
        yield (
            f"{mask} is the other way round",
            partial(_argument, place=-2, change=lambda x: ast.UnaryOp(ast.Invert(), x)),
        )
        yield (
            "what is blocked gets 0 before the softmax; exp(0) is 1, so it needs −∞",
            partial(_argument, place=-1, change=lambda x: ast.Constant(0.0)),
        )
    if name == "where" and len(node.args) == 3:
        yield (
            "the two cases of a condition are exchanged",
            lambda node: _setting(args=[node.args[0], node.args[2], node.args[1]])(node),
        )
    if name in OTHER_NAMES and isinstance(node.func, ast.Attribute | ast.Name):
        other, words = OTHER_NAMES[name]
        key = "attr" if isinstance(node.func, ast.Attribute) else "id"
        yield words, partial(_renamed, key=key, name=other)
    if name == "sqrt":
        yield "the size itself where its square root belongs", lambda node: _inside(node)
        yield from _other_roots(parameters, lambda size: _setting(args=[size]))
    for i, keyword in enumerate(node.keywords):
        if keyword.arg != "dim":
            words = f"{keyword.arg}={ast.unparse(keyword.value)} is missing"
            yield words, partial(_without, keyword=i)
    if inner is not None and name not in ("masked_fill", "range", "len"):
        yield f"the {name} is missing{_of(inner, parameters)}", lambda node: _inside(node)


def _along_others(node: ast.Call, name: str) -> Iterator[tuple[str, Change]]:
    """The same function along each other axis."""
    keyword = next((i for i, each in enumerate(node.keywords) if each.arg == "dim"), None)
    value = node.keywords[keyword].value if keyword is not None else node.args[-1] if node.args else None
    axis = _integer(value)
    for other in {0, 1, 2, -1, -2} - {axis} if axis is not None else ():
        words = f"the {name} runs along another axis ({other}) than expected"
        yield words, partial(_axis_set, keyword=keyword, axis=other)


def _axis_set(node: ast.Call, *, keyword: int | None, axis: int) -> ast.Call:
    if keyword is None:
        node.args[-1] = ast.Constant(axis)
    else:
        node.keywords[keyword].value = ast.Constant(axis)
    return node


def _other_roots(parameters: list[str], change: Callable[[ast.expr], Change]) -> Iterator[tuple[str, Change]]:
    """The root of another size."""
    for name in parameters:
        yield f"the square root is that of {name} and not of the expected size", change(ast.Name(name, ast.Load()))
        words = f"the square root is that of d_model, all heads of {name} together, and not of one head"
        yield words, change(ast.parse(f"{name}.shape[-1] * {name}.shape[1]", mode="eval").body)
        for axis in (-1, -2, 0, 1):
            size = f"{name}.shape[{axis}]"
            yield f"the square root is that of another size, {size}", change(ast.parse(size, mode="eval").body)


# ---- small changes -----------------------------------------------------------------------------------------------


def _setting(**fields: Any) -> Change:
    def change(node: Any) -> ast.AST:
        for name, value in fields.items():
            setattr(node, name, value)
        return node

    return change


def _argument(node: ast.Call, *, place: int, change: Callable[[ast.expr], ast.expr]) -> ast.Call:
    node.args[place] = change(node.args[place])
    return node


def _part(node: ast.BinOp, *, side: str) -> ast.expr:
    return node.left if side == "left" else node.right


def _transposed(node: ast.BinOp, *, side: str) -> ast.AST:
    return _setting(**{side: ast.Attribute(_part(node, side=side), "mT", ast.Load())})(node)


def _renamed(node: ast.Call, *, key: str, name: str) -> ast.AST:
    return _setting(func=_setting(**{key: name})(node.func))(node)


def _without(node: ast.Call, *, keyword: int) -> ast.Call:
    del node.keywords[keyword]
    return node


def _rolled(node: ast.Subscript, *, by: int) -> ast.Subscript:
    assert isinstance(node.slice, ast.Tuple)
    node.slice.elts = [*node.slice.elts[by:], *node.slice.elts[:by]]
    return node


def _swapped(node: ast.arguments, *, i: int, j: int) -> ast.arguments:
    node.args[i], node.args[j] = node.args[j], node.args[i]
    return node


def _inside(node: ast.Call) -> Any:
    """What a call is applied to: the receiver of a method, else its first argument."""
    if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in {"torch", "F", "math", "nn"}:
        return node.func.value
    return node.args[0] if node.args and not isinstance(node.args[0], ast.Starred | ast.GeneratorExp) else None


def _integer(node: ast.expr | None) -> int | None:
    try:
        value = ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
    return value if type(value) is int else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_root(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return "sqrt" in text or text.endswith("** 0.5")


def _of(node: ast.AST, parameters: list[str]) -> str:
    """The arguments of the exercise that a piece of the solution holds, such as " (of query and keys)"."""
    names = list(
        dict.fromkeys(each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in parameters)
    )
    return f" (of {' and '.join(names)})" if names else ""
