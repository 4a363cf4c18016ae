"""The Neural Turing Machine (Graves et al., 2014): a small network that reads and writes a memory outside itself.

Numbers of equations are that paper's.

Shapes: batch, time, slot (a place of the memory), width (of a slot), shift (−reach … reach).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tfbook.checks import check_positive
from tfbook.models.config import Savable

EMPTY = 1e-2  # what every number of an empty memory is: a constant, so that a memory may have any number of slots

# ---- addressing: four steps from a head's parameters to weights over slots ---------------------------------------


def content_weights(
    memory: Float[Tensor, "batch slot width"], key: Float[Tensor, "batch width"], strength: Float[Tensor, "batch 1"]
) -> Float[Tensor, "batch slot"]:
    """softmax over slots of β · cosine(key, slot): what resembles the key (eq. 5)."""
    return torch.softmax(strength * F.cosine_similarity(memory, key[:, None], dim=-1), dim=-1)


def gated(
    content: Float[Tensor, "batch slot"], previous: Float[Tensor, "batch slot"], gate: Float[Tensor, "batch 1"]
) -> Float[Tensor, "batch slot"]:
    """g · content + (1 − g) · previous: a closed gate stays where it was (eq. 7)."""
    return gate * content + (1 - gate) * previous


def shifted(weights: Float[Tensor, "batch slot"], shift: Float[Tensor, "batch shift"]) -> Float[Tensor, "batch slot"]:
    """w'(i) = Σ_j w(j) s(i − j), with the slots in a circle (eq. 8).

    Column 0 of `shift` is the offset −reach, the middle one 0, the last one +reach.
    """
    reach = shift.shape[-1] // 2
    moved = torch.stack([weights.roll(offset, dims=-1) for offset in range(-reach, reach + 1)], dim=-1)
    return (moved * shift[:, None]).sum(dim=-1)


def sharpened(weights: Float[Tensor, "batch slot"], sharpness: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch slot"]:
    """w^γ / Σ w^γ with γ ≥ 1: undoes the blur that each shift leaves (eq. 9)."""
    powered = (weights / weights.amax(dim=-1, keepdim=True)) ** sharpness  # no underflow
    return powered / powered.sum(dim=-1, keepdim=True)


class Head(NamedTuple):
    """Orders to a head: key k, strength β > 0, gate g in (0, 1), shift s (which sums to 1), sharpness γ ≥ 1."""

    key: Float[Tensor, "batch width"]
    strength: Float[Tensor, "batch 1"]
    gate: Float[Tensor, "batch 1"]
    shift: Float[Tensor, "batch shift"]
    sharpness: Float[Tensor, "batch 1"]


class Addressing(NamedTuple):
    """The weights after each of the four steps; the last are those that read or write."""

    content: Float[Tensor, "batch slot"]
    gated: Float[Tensor, "batch slot"]
    shifted: Float[Tensor, "batch slot"]
    weights: Float[Tensor, "batch slot"]


def address(memory: Float[Tensor, "batch slot width"], previous: Float[Tensor, "batch slot"], head: Head) -> Addressing:
    """sharpen(shift(interpolate(content, previous))): by content and by location."""
    content = content_weights(memory, head.key, head.strength)
    mixed = gated(content, previous, head.gate)
    moved = shifted(mixed, head.shift)
    return Addressing(content, mixed, moved, sharpened(moved, head.sharpness))


# ---- reading and writing -----------------------------------------------------------------------------------------


def read_memory(
    memory: Float[Tensor, "batch slot width"], weights: Float[Tensor, "batch slot"]
) -> Float[Tensor, "batch width"]:
    """Σ_i w(i) M(i): attention whose values are the slots (eq. 2)."""
    return (weights[:, None] @ memory)[:, 0]


def write_memory(
    memory: Float[Tensor, "batch slot width"],
    weights: Float[Tensor, "batch slot"],
    erase: Float[Tensor, "batch width"],
    add: Float[Tensor, "batch width"],
) -> Float[Tensor, "batch slot width"]:
    """M(i) ← M(i) ⊙ (1 − w(i) e) + w(i) a, a new tensor (eq. 3 and 4)."""
    where = weights[..., None]
    return memory * (1 - where * erase[:, None]) + where * add[:, None]


# ---- controllers -------------------------------------------------------------------------------------------------


class FeedForwardController(nn.Module):
    """tanh(W x): remembers nothing itself, so that all that lasts is in the memory and in the places of the heads."""

    def __init__(self, d_input: int, d_hidden: int):
        super().__init__()
        self.layer, self.d_hidden = nn.Linear(d_input, d_hidden), d_hidden

    def start(self, like: Float[Tensor, "batch d"]) -> tuple[Tensor, ...]:
        """An empty state."""
        return ()

    def forward(
        self, x: Float[Tensor, "batch d_input"], state: tuple[Tensor, ...]
    ) -> tuple[Float[Tensor, "batch d_hidden"], tuple[Tensor, ...]]:
        """The hidden vector, and the state as it was."""
        return torch.tanh(self.layer(x)), state


class LstmController(nn.Module):
    """An LSTM, whose own state is a second, small memory beside the slots."""

    def __init__(self, d_input: int, d_hidden: int):
        super().__init__()
        self.cell, self.d_hidden = nn.LSTMCell(d_input, d_hidden), d_hidden

    def start(self, like: Float[Tensor, "batch d"]) -> tuple[Tensor, ...]:
        """Hidden state and cell of zeros, one row per row of `like`."""
        return (like.new_zeros(len(like), self.d_hidden),) * 2

    def forward(
        self, x: Float[Tensor, "batch d_input"], state: tuple[Tensor, ...]
    ) -> tuple[Float[Tensor, "batch d_hidden"], tuple[Tensor, ...]]:
        """The new hidden state, and hidden state and cell together."""
        state = self.cell(x, state)
        return state[0], state


CONTROLLERS: dict[str, type[Any]] = {"feed_forward": FeedForwardController, "lstm": LstmController}

# ---- the machine -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MachineConfig(Savable):
    """Sizes of a machine. A head moves by at most `reach` slots a step; a run may ask for another number of slots."""

    d_input: int
    d_output: int
    slots: int = 32
    width: int = 12
    d_hidden: int = 48
    reach: int = 1
    controller: str = "feed_forward"  # or "lstm"

    def __post_init__(self) -> None:
        check_positive(**{name: getattr(self, name) for name in ("d_input", "d_output", "width", "d_hidden", "reach")})
        if self.controller not in CONTROLLERS:
            raise ValueError(f"controller is {self.controller!r}; expected one of {', '.join(CONTROLLERS)}")
        self.check_slots(self.slots)

    def check_slots(self, slots: int) -> None:
        """Raises ValueError when a head could move around the whole circle in one step."""
        if slots <= 2 * self.reach:
            raise ValueError(f"slots is {slots}; expected more than 2 · reach = {2 * self.reach}")


class MachineState(NamedTuple):
    """All that lasts from one step to the next."""

    memory: Float[Tensor, "batch slot width"]
    reading: Float[Tensor, "batch slot"]  # weights of the read head
    writing: Float[Tensor, "batch slot"]  # weights of the write head
    read: Float[Tensor, "batch width"]
    controller: tuple[Tensor, ...]


class MachineRun(NamedTuple):
    """Logits of a run, where its heads were at each step, and what the memory held at the end."""

    logits: Float[Tensor, "batch time d_output"]
    reading: Float[Tensor, "batch time slot"]
    writing: Float[Tensor, "batch time slot"]
    memory: Float[Tensor, "batch slot width"]


class TuringMachine(nn.Module):
    """A controller with one write head and one read head on a memory of slots; each step writes, then reads.

    Both heads start at slot 0. The weights do not depend on the number of slots, so a machine trained with 32 runs with
    any number. `address` and `write` may be exchanged for functions of the same kind.
    """

    def __init__(self, config: MachineConfig):
        super().__init__()
        width, shifts = config.width, 2 * config.reach + 1
        self.config = config
        self.address: Callable[..., Addressing] = address
        self.write: Callable[..., Tensor] = write_memory
        self.controller = CONTROLLERS[config.controller](config.d_input + width, config.d_hidden)
        self.sizes = (width, 1, 1, shifts, 1)  # of a Head
        self.read_head = nn.Linear(config.d_hidden, sum(self.sizes))
        self.write_head = nn.Linear(config.d_hidden, sum(self.sizes))
        self.change = nn.Linear(config.d_hidden, 2 * width)  # erase and add
        self.output = nn.Linear(config.d_hidden + width, config.d_output)

    def start(self, like: Float[Tensor, "batch d"], slots: int | None = None) -> MachineState:
        """An empty memory of `slots` (the config's if None) with both heads at slot 0, one per row of `like`."""
        slots = self.config.slots if slots is None else slots
        self.config.check_slots(slots)
        memory = like.new_full((len(like), slots, self.config.width), EMPTY)
        first = (torch.arange(slots, device=like.device) == 0).to(like.dtype).expand(len(like), slots)
        return MachineState(memory, first, first, read_memory(memory, first), self.controller.start(like))

    def head(self, told: Float[Tensor, "batch numbers"]) -> Head:
        """A head's parameters from unbounded numbers: each is brought into its range."""
        key, strength, gate, shift, sharpness = told.split(self.sizes, dim=-1)
        return Head(key, F.softplus(strength), gate.sigmoid(), shift.softmax(-1), 1 + F.softplus(sharpness))

    def step(
        self, x: Float[Tensor, "batch d_input"], state: MachineState
    ) -> tuple[Float[Tensor, "batch d_output"], MachineState]:
        """The controller sees x and what was read before; the heads move, write, and read."""
        hidden, kept = self.controller(torch.cat([x, state.read], dim=-1), state.controller)
        erase, add = self.change(hidden).chunk(2, dim=-1)
        writing = self.address(state.memory, state.writing, self.head(self.write_head(hidden))).weights
        memory = self.write(state.memory, writing, erase.sigmoid(), torch.tanh(add))
        reading = self.address(memory, state.reading, self.head(self.read_head(hidden))).weights
        read = read_memory(memory, reading)
        return self.output(torch.cat([hidden, read], dim=-1)), MachineState(memory, reading, writing, read, kept)

    def forward(self, inputs: Float[Tensor, "batch time d_input"], slots: int | None = None) -> MachineRun:
        """Runs the machine over the inputs from an empty memory. Raises ValueError when `slots` is too small."""
        state, steps = self.start(inputs[:, 0], slots), []
        for x in inputs.unbind(dim=1):
            logits, state = self.step(x, state)
            steps.append((logits, state.reading, state.writing))
        logits, reading, writing = (torch.stack(made, dim=1) for made in zip(*steps, strict=True))
        return MachineRun(logits, reading, writing, state.memory)
