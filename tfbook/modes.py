"""Training and evaluation mode: dropout and its kin act in the first alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from torch import nn


@dataclass
class _Held:
    """A module in eval mode: the contexts that hold it, and the mode that it goes back to."""

    contexts: int = 0
    training: bool = False


_held: WeakKeyDictionary[nn.Module, _Held] = WeakKeyDictionary()
_lock = threading.RLock()  # garbage collection may end a stream at any time, here as well


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards each module of `model` is in its own mode again, as a block that was in eval mode.

    Contexts may overlap, as those of two open streams do: a module leaves eval mode with the last one that holds it.
    """
    modules = list(model.modules())
    _hold(modules)
    try:
        yield
    finally:
        _release(modules)


def _hold(modules: list[nn.Module]) -> None:
    with _lock:
        for module in modules:
            held = _held.setdefault(module, _Held())
            held.contexts += 1
            held.training |= module.training
            module.training = False


def _release(modules: list[nn.Module]) -> None:
    with _lock:
        for module in modules:
            held = _held[module]
            held.contexts -= 1
            if not held.contexts:
                del _held[module]
                module.training = held.training
