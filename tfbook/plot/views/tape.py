"""The tape of a Turing machine as a view: step by step or played, with the places of both heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook.plot.views import base

FULL = 1.0  # the number in a slot that has its strongest color, of either sign
SURE = 0.05  # weights below are not mentioned in the static table


@dataclass(frozen=True, eq=False)
class TapeView:
    """The view returned by `tape_view`, which a notebook displays when it is the last line of a cell."""

    memory: Float[Tensor, "step slot width"]
    writing: Float[Tensor, "step slot"]
    reading: Float[Tensor, "step slot"]
    heard: Float[Tensor, "step bit"]
    said: Float[Tensor, "step said_bit"]

    def __repr__(self) -> str:
        return f"TapeView(steps={len(self.memory)}, slots={self.memory.shape[1]})"

    def _repr_html_(self) -> str:
        """A table of the heads' places, and a script that replaces it with the view."""
        data = {
            "sizes": [*self.memory.shape, self.heard.shape[1], self.said.shape[1]],
            "memory": base.encoded(_signed(self.memory / FULL)),
            "writing": base.encoded(base.hundredths(self.writing)),
            "reading": base.encoded(base.hundredths(self.reading)),
            "heard": base.encoded(_signed(self.heard)),
            "said": base.encoded(_signed(2 * self.said - 1)),
        }
        return base.embed("tape", data, self._table())

    def _table(self) -> str:
        """Each step with the likeliest slot of either head and its weight."""
        heads = (self.writing, self.reading)
        rows = (
            (f"step {step}", [base.cell(_place(head[step]), float(head[step].max())) for head in heads])
            for step in range(len(self.memory))
        )
        lead = "Where the heads of the machine are at each step; a head that looks everywhere has no place."
        return f"{base.paragraph(lead)}\n{base.table(['writes to', 'reads from'], rows)}"


def _signed(values: Tensor) -> Tensor:
    """Numbers from −1 to 1 as bytes from 0 to 200; larger ones are cut."""
    return (100 * values.clamp(-1, 1) + 100).round().to(torch.uint8)


def _place(weights: Tensor) -> str:
    largest = weights.max()
    return f"slot {int(weights.argmax())} ({float(largest):.2f})" if largest > 1.5 / len(weights) + SURE else "nowhere"


def tape_view(
    memory: Float[Tensor, "step slot width"],
    writing: Float[Tensor, "step slot"],
    reading: Float[Tensor, "step slot"],
    heard: Float[Tensor, "step bit"],
    said: Float[Tensor, "step said_bit"],
) -> TapeView:
    """A tape after each step, with the weights of both heads, the inputs from −1 to 1 and the chances of the outputs.

    Raises ValueError without a step, and for weights or chances outside 0 to 1.
    """
    if not len(memory):
        raise ValueError("memory has no steps; expected one or more")
    for name, values in (("writing", writing), ("reading", reading), ("said", said)):
        if not ((values > -1e-3) & (values < 1 + 1e-3)).all():
            raise ValueError(f"{name} runs from {values.min():.3g} to {values.max():.3g}; expected 0 to 1")
    return TapeView(memory, writing, reading, heard, said)
