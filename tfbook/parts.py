"""What every part of a block can say of itself, so that no count of a model is written down twice."""

from __future__ import annotations

from typing import Any

from torch import nn


class Part(nn.Module):
    """A part of a block: it makes its own empty cache, and reports its parameters and its floating-point operations.

    The counts are formulas of the part's own sizes; a test compares them with what PyTorch counts.
    """

    def new_cache(self) -> Any:
        """An empty cache for decoding piece by piece; None for a part that looks at one position at a time."""
        return None

    @property
    def output(self) -> nn.Linear | None:
        """The layer that writes into the residual stream, if that is one layer; GPT-2 initializes it smaller."""
        return None

    @property
    def outputs(self) -> list[nn.Linear]:
        """`output`, or all of them where a part has several, of which some write at a time."""
        return [] if self.output is None else [self.output]

    def parameter_count(self) -> int:
        """How many numbers are trained."""
        raise NotImplementedError

    def flops(self, time: int, *args: Any, **context: Any) -> int:
        """Floating-point operations of the matrix products for one sequence; a product and a sum are two."""
        raise NotImplementedError


class Identity(Part):
    """Does nothing, in the place of a part that a model does not have."""

    def forward(self, x: Any) -> Any:
        """x itself."""
        return x

    def parameter_count(self) -> int:
        """None."""
        return 0

    def flops(self, time: int) -> int:
        """None."""
        return 0
