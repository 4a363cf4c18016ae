"""Mutants of a function: its source with one operator, axis, constant, bound, argument, call or statement changed."""

import ast
import copy
import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from tfbook.course.exercises import source_of
from tools.mutation.changes import Change, changes, dropping, setting

BY_HAND = {  # stable functions and what overflows in their place
    "softmax": "({x}).exp() / ({x}).exp().sum(-1, True)",
    "log_softmax": "({x}) - ({x}).exp().sum(-1, True).log()",
    "logsumexp": "({x}).exp().sum(-1).log()",
    "logsigmoid": "({x}).sigmoid().log()",
}


def mutants(function: Callable[..., Any], *, trained: Collection[str] = ()) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each mutant with the statement that differs, such as "return x - y"; those that do not compile are left out.

    Where arguments are `trained`, gradients are cut off as well: those of the result and those of each of them.
    """
    tree = _tree(function)
    body = tree.body[0]
    assert isinstance(body, ast.FunctionDef)
    seen, sizes = {ast.unparse(tree)}, set(_read_for_size(body))
    for number, node in enumerate(ast.walk(body)):
        cuts = _cuts(node, trained) if trained and id(node) not in sizes else ()
        for change in [*_changes(node, [each.arg for each in body.args.args]), *cuts]:
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
    names["_detached"] = detached
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
    """The changes for a node of this kind, in a function of these parameters."""
    yield from changes(node, parameters)
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name in parameters and len(parameters) > 1:
            yield lambda node: ast.Constant(1.0)  # the argument is ignored
        case ast.Call():
            yield from _by_hand(node)
        case ast.FunctionDef() | ast.For() | ast.While() | ast.If() | ast.With():
            if isinstance(node, ast.If):
                yield setting(test=ast.Constant(True))
            for i, statement in enumerate(node.body):
                if not isinstance(statement, ast.Return | ast.FunctionDef) and len(node.body) > 1:
                    yield dropping("body", i)


def _by_hand(node: ast.Call) -> Iterator[Change]:
    """A stable function of the library written by hand, so that it overflows."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in BY_HAND and (of := _operand(node)):
        text = BY_HAND[name].format(x=ast.unparse(of))
        yield lambda node: ast.parse(text, mode="eval").body


def _operand(node: ast.Call) -> ast.expr | None:
    """The tensor that a function is applied to, whether as its method or as its first argument."""
    if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in {"torch", "F", "math", "nn"}:
        return node.func.value
    return node.args[0] if node.args else None


def _read_for_size(body: ast.AST) -> Iterator[int]:
    """What is read for its size, its type or its best place alone, which have no gradient."""
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute) and node.attr in {"shape", "ndim", "dtype", "new_zeros", "argmax"}:
            yield id(node.value)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            yield id(node.left)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"len", "torch.zeros_like", "torch.ones_like"}:
            yield from map(id, node.args)


def _cuts(node: ast.AST, parameters: Collection[str]) -> Iterator[Change]:
    """Without the gradient of a result, or of an argument where it is read."""
    result = isinstance(node, ast.Return) and node.value is not None
    if result or (isinstance(node, ast.Name) and node.id in parameters and isinstance(node.ctx, ast.Load)):
        text = f"_detached({ast.unparse(node.value if isinstance(node, ast.Return) else node)})"
        call = ast.parse(text, mode="eval").body
        yield setting(value=call) if result else lambda node: call


def detached(result: Any) -> Any:
    """A result without its gradients, as `no_grad` leaves it; a module or a function as it is."""
    if isinstance(result, tuple | list):
        return type(result)(map(detached, result))
    return result.detach() if isinstance(result, torch.Tensor) else result
