"""Parts of a block: each reports its own counts, so that none is written down twice. And whose code a part runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn

# ---- the package's own code, or a reader's -----------------------------------------------------------------------


def packaged(thing: Any) -> bool:
    """Whether a class or function is the package's own or PyTorch's, not a reader's that `runtime.use` put there."""
    return thing.__module__.partition(".")[0] in ("tfbook", "torch")


def exactly(thing: object, *kinds: type) -> bool:
    """Whether the type of `thing` is one of `kinds` as the package defines it: no subclass, no edited copy.

    Every shortcut asks this, because a subclass or an edited class may compute anything.
    """
    return type(thing) in kinds and packaged(type(thing))


def expect(support: str, role: str, part: object, *kinds: type) -> None:
    """Raises ValueError unless the part is exactly of one of these types; a subclass may compute anything.

    `support` says who asks, as in "a frozen model supports".
    """
    if not exactly(part, *kinds):
        edited = "an edited " if type(part) in kinds else "a "
        known = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{role} is {edited}{type(part).__name__}; {support} {known} only")


def in_use(make: Callable[..., Any]) -> Callable[..., Any]:
    """The class or function that `runtime.use` has put in its place, also inside a `partial`; otherwise itself."""
    if isinstance(make, partial):
        return partial(in_use(make.func), *make.args, **make.keywords)
    home = sys.modules.get(make.__module__) if packaged(make) else None
    return getattr(home, getattr(make, "__qualname__", ""), make)


@contextmanager
def method_in_place(layers: Sequence[nn.Module], name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Inside, `layer.name(…)` is `function(layer, …)` for each of these layers."""
    for layer in layers:
        setattr(layer, name, partial(function, layer))
    try:
        yield
    finally:
        for layer in layers:
            delattr(layer, name)


# ---- parts -------------------------------------------------------------------------------------------------------


class Part(nn.Module):
    """A part of a block, which makes its own empty cache and counts its parameters and floating-point operations.

    The counts are formulas in the part's own sizes; a test compares them with PyTorch's counts.
    """

    def new_cache(self) -> Any:
        """An empty cache for incremental decoding; None for a part that looks at one position at a time."""
        return None

    @property
    def output(self) -> nn.Linear | None:
        """The layer that writes into the residual stream, if that is one layer; GPT-2 initializes it smaller."""
        return None

    @property
    def outputs(self) -> list[nn.Linear]:
        """`output` in a list; a part with several such layers lists them all."""
        return [] if self.output is None else [self.output]

    def parameter_count(self) -> int:
        """The number of trained parameters."""
        raise NotImplementedError

    def flops(self, time: int, *args: Any, **context: Any) -> int:
        """Floating-point operations of the matrix products for one sequence; a multiply-add counts as two."""
        raise NotImplementedError


class Identity(Part):
    """Returns its input: a stand-in for a part that a model does not have."""

    def forward(self, x: Any) -> Any:
        """x itself."""
        return x

    def parameter_count(self) -> int:
        """0."""
        return 0

    def flops(self, time: int) -> int:
        """0."""
        return 0
