"""Every object whose source a lesson shows can be edited there: `runtime.use` puts it everywhere, `restore` back."""

from __future__ import annotations
import __future__

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import book
import pytest
import weave

import tfbook
from tfbook import runtime


def woven() -> Iterator[str]:
    """The classes, functions and methods that cells of the lessons hold."""
    for path in book.lessons():
        for cell in book.read(path).cells:
            if cell.cell_type == "code" and (found := weave.WOVEN.fullmatch(weave.first_line(cell))):
                yield found[1]


def holders(thing: object) -> set[tuple[str, str]]:
    """Each module of tfbook that holds the object, with the name that it has there."""
    return {
        (module.__name__, name) for module in runtime._modules() for name, held in vars(module).items() if held is thing
    }


@pytest.fixture(scope="module", autouse=True)
def everything_is_loaded() -> None:
    """The hardest case: a name that two modules use differently is found."""
    for module in pkgutil.walk_packages(tfbook.__path__, "tfbook."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    runtime.restore()


@pytest.mark.parametrize("name", sorted(set(woven())))
def test_an_edited_copy_is_used_by_every_module_until_it_is_restored(name: str) -> None:
    """A method is edited with its class."""
    owner = name.rpartition(".")[0]
    name = owner if inspect.isclass(pkgutil.resolve_name(owner)) else name
    original = pkgutil.resolve_name(name)
    module, _, short = name.rpartition(".")
    source = compile(weave.source_of(name), "a cell", "exec", flags=__future__.annotations.compiler_flag)
    namespace = dict(vars(import_module(module)))
    exec(source, namespace)
    edited = namespace[short]
    before = holders(original)
    assert (module, short) in before
    assert runtime.use(edited) is edited
    assert holders(edited) == before
    assert holders(original) == set()
    runtime.restore()
    assert holders(original) == before
    assert holders(edited) == set()
