"""Training and evaluation mode: dropout and its kin act in the first alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn

_held: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()  # contexts a module is in, its own mode
_lock = threading.Lock()


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
            contexts, training = _held.get(module, (0, False))
            _held[module] = contexts + 1, training or module.training
            module.training = False


def _release(modules: list[nn.Module]) -> None:
    with _lock:
        for module in modules:
            contexts, training = _held.pop(module)
            if contexts > 1:
                _held[module] = contexts - 1, training
            else:
                module.training = training
