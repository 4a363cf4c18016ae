"""Copying with a tape, and without one: the runs of the Neural Turing Machine and of its rivals.

Shapes: batch, time, bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention.masks import Causal
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.data.download import File, fetch
from tfbook.models.blocks import Config, Stack
from tfbook.models.turing_machine import (
    Addressing,
    Head,
    MachineConfig,
    MachineRun,
    TuringMachine,
    content_weights,
    gated,
    read_memory,
    sharpened,
    shifted as shifted,
    write_memory as write_memory,
)
from tfbook.plot import tape_view

if TYPE_CHECKING:
    from pandas import DataFrame

    from tfbook.plot.views.tape import TapeView

BITS = 6
LONGEST = 10  # vectors of the longest sequence in training
LENGTHS = (5, 10, 12, 15, 20, 30)
PAST = (30, 32, 33, 36, 40)  # to the end of a tape of 32 slots, and past it
CHOSEN_AT = 15  # the length at which every machine's learning rate is chosen: beyond training, short of the test
SIZES = MachineConfig(d_input=BITS + 1, d_output=BITS, slots=32, width=10, d_hidden=32)
WEIGHTS = "machines/{}.safetensors"  # in data/

# ---- the task --------------------------------------------------------------------------------------------------------


class Copying(NamedTuple):
    """Random bits as −1 and +1 with a last column that marks their end, then silence; and the bits to say then."""

    inputs: Float[Tensor, "batch time bit"]
    target: Float[Tensor, "batch said bit"]

    def to(self, device: torch.device) -> Copying:
        """The same on a device."""
        return Copying(*(part.to(device) for part in self))


def copies(count: int, length: int, *, repeats: int = 1, generator: torch.Generator) -> Copying:
    """`count` sequences of `length` random vectors, to be said `repeats` times after the mark."""
    bits = torch.randint(0, 2, (count, length, BITS), generator=generator).float()
    inputs = torch.zeros(count, length + 1 + length * repeats, BITS + 1)
    inputs[:, :length, :BITS], inputs[:, length, BITS] = 2 * bits - 1, 1
    return Copying(inputs, bits.repeat(1, repeats, 1))


def said(model: nn.Module, task: Copying) -> Float[Tensor, "batch said bit"]:
    """The model's logits while it is its turn."""
    run = model(task.inputs)
    logits = run.logits if isinstance(run, MachineRun) else run
    return logits[:, -task.target.shape[1] :]


def bit_loss(model: nn.Module, task: Copying) -> Float[Tensor, ""]:
    """Nats per bit."""
    return F.binary_cross_entropy_with_logits(said(model, task), task.target)


@torch.no_grad()
def bit_error(model: nn.Module, task: Copying) -> float:
    """The share of bits said wrongly; 0.5 is a coin."""
    task = task.to(next(model.parameters()).device)
    return float(((said(model, task) > 0) != (task.target > 0)).float().mean())


# ---- rivals without a tape -------------------------------------------------------------------------------------------


class LstmReader(nn.Module):
    """An LSTM that has to hold all bits in its state."""

    def __init__(self, d_hidden: int):
        super().__init__()
        self.lstm = nn.LSTM(BITS + 1, d_hidden, batch_first=True)
        self.output = nn.Linear(d_hidden, BITS)

    def forward(self, inputs: Float[Tensor, "batch time bit"]) -> Float[Tensor, "batch time output"]:
        """Logits at every step."""
        return self.output(self.lstm(inputs)[0])


class CausalReader(nn.Module):
    """A small causal Transformer with relative positions, which can look back at all the inputs."""

    def __init__(self, config: Config):
        super().__init__()
        self.input = nn.Linear(BITS + 1, config.d_model)
        self.stack = Stack(config)
        self.output = nn.Linear(config.d_model, BITS)

    def forward(self, inputs: Float[Tensor, "batch time bit"]) -> Float[Tensor, "batch time output"]:
        """Logits at every step."""
        return self.output(self.stack(self.input(inputs), Causal()))


MACHINES: dict[str, Callable[[], nn.Module]] = {
    "Turing machine": partial(TuringMachine, SIZES),
    "LSTM": partial(LstmReader, 20),
    "LSTM, 30 times the size": partial(LstmReader, 128),
    "Transformer": partial(
        CausalReader, Config(d_model=32, heads=2, d_ff=64, layers=2, max_length=64, position="relative")
    ),
}
RATES = (1e-3, 3e-3, 1e-2)

# ---- runs ------------------------------------------------------------------------------------------------------------


def batches(seed: int, *, longest: int = LONGEST, most_repeats: int = 1) -> Callable[[int], Any]:
    """Maps a step to 16 sequences of one length, drawn from 1 to `longest`, and one number of repeats."""

    def batch(step: int) -> Copying:
        generator = torch.Generator().manual_seed(1_000_000 * seed + step)
        length, repeats = (int(torch.randint(1, most + 1, (), generator=generator)) for most in (longest, most_repeats))
        return copies(16, length, repeats=repeats, generator=generator)

    return batch


def trained(build: Callable[[], nn.Module], seed: int, lr: float, steps: int, **task: int) -> nn.Module:
    """A new model after its run: AdamW, gradients clipped at norm 1, a short warm-up and a cosine down to 0."""
    runtime.seed(seed)
    model = build().to(runtime.device())
    recipe = training.Recipe(steps=steps, lr=lr, schedule=training.warmup_cosine(50), evaluate_every=steps)
    with compiled_step(model):
        training.fit(model, bit_loss, batches(seed, **task), recipe)
    return model


@contextmanager
def compiled_step(model: nn.Module) -> Iterator[None]:
    """Inside, a machine's step is compiled: a minute at first, and then a third of the time."""
    if isinstance(model, TuringMachine):
        model.__dict__["step"] = torch.compile(model.step)
    try:
        yield
    finally:
        model.__dict__.pop("step", None)


def errors(model: nn.Module, lengths: Sequence[int] = LENGTHS, count: int = 64) -> list[dict[str, float]]:
    """The share of wrong bits at each length, on sequences that are the same for every model."""
    generator = torch.Generator().manual_seed(9)
    tasks = {length: copies(count, length, generator=generator) for length in lengths}
    return [{"length": length, "error": round(bit_error(model, task), 4)} for length, task in tasks.items()]


@experiment
def copying(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 2000) -> list[dict[str, Any]]:
    """Wrong bits by length after training on 1 to 10 vectors: every rate with one seed, the better two with all.

    The stored rows were put together from several runs of these parts, a few at a time, on one machine.
    """
    rows = []
    for name, build in MACHINES.items():
        models = {(lr, seeds[0]): trained(build, seeds[0], lr, steps) for lr in RATES}
        found = {lr: errors(models[lr, seeds[0]], [CHOSEN_AT])[0]["error"] for lr in RATES}
        best, second = sorted(RATES, key=found.__getitem__)[:2]
        models |= {(lr, seed): trained(build, seed, lr, steps) for lr in (best, second) for seed in seeds[1:]}
        for (lr, seed), model in models.items():
            about = {"machine": name, "parameters": parameters(model), "lr": lr, "chosen": lr == best, "seed": seed}
            rows += [about | row for row in errors(model)]
        if name == "Turing machine":
            save(models[best, seeds[0]], "copy")
    return rows


@experiment
def longer_copying(seeds: Sequence[int] = (1, 2), *, steps: int = 10_000, lr: float = 1e-2) -> list[dict[str, Any]]:
    """Wrong bits of the large LSTM after five times the steps, at the rate that was best for it before."""
    name = "LSTM, 30 times the size"
    rows = []
    for seed in seeds:
        model = trained(MACHINES[name], seed, lr, steps)
        about = {"machine": name, "parameters": parameters(model), "lr": lr, "steps": steps, "seed": seed}
        rows += [about | row for row in errors(model)]
    return rows


def claims_of_copying(rows: DataFrame) -> dict[int, float]:
    """Wrong bits at 20 vectors: the Turing machine's worst seed, and the best one of the LSTM of its size."""
    at = rows[(rows.length == 2 * LONGEST) & rows.chosen].groupby("machine").error
    return {9: at.max()["Turing machine"], 10: at.min()["LSTM"]}


REPEATING = {"longest": 6, "most_repeats": 3}
ASKED = tuple(product((6, 12), (1, 3, 6)))  # vectors, repeats


@experiment
def repeating(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 4000, lr: float = 3e-3) -> list[dict[str, Any]]:
    """Wrong bits of Turing machines trained to say 1 to 6 vectors one to three times, by length and repeats."""
    rows, generator = [], torch.Generator().manual_seed(9)
    tasks = {(n, times): copies(64, n, repeats=times, generator=generator) for n, times in ASKED}
    for seed in seeds:
        model = trained(MACHINES["Turing machine"], seed, lr, steps, **REPEATING)
        for (length, times), task in tasks.items():
            rows.append({"seed": seed, "length": length, "repeats": times, "error": round(bit_error(model, task), 4)})
        if seed == seeds[0]:
            save(model, "repeat")
    return rows


# ---- the machines that ship ------------------------------------------------------------------------------------------


def save(model: nn.Module, name: str) -> None:
    """Writes the weights to the checkout's data/machines."""
    from safetensors.torch import save_file

    path = Path(__file__).parents[3] / "data" / WEIGHTS.format(name)
    path.parent.mkdir(exist_ok=True)
    save_file({key: weight.detach().cpu().contiguous() for key, weight in model.state_dict().items()}, path)


def shipped(model: nn.Module, name: str) -> Any:
    """The model with the weights that ship under this name, on the CPU, in eval mode."""
    from safetensors.torch import load_file

    model.load_state_dict(load_file(fetch(File(path=WEIGHTS.format(name)))))
    return model.eval()


def machine(name: str = "copy") -> TuringMachine:
    """The trained machine "copy" or "repeat"."""
    return shipped(TuringMachine(SIZES), name)


class Tape(NamedTuple):
    """The tape after each step of one sequence, and where the heads were."""

    memory: Float[Tensor, "time slot width"]
    writing: Float[Tensor, "time slot"]
    reading: Float[Tensor, "time slot"]
    heard: Float[Tensor, "time bit"]
    said: Float[Tensor, "time bit"]
    gate: Float[Tensor, " time"]  # of the read head


@torch.no_grad()
def play(model: TuringMachine, task: Copying, slots: int | None = None) -> Tape:
    """Runs the machine over the first sequence of a task and keeps the tape after each step; `said` are chances."""
    state, kept = model.start(task.inputs[:1, 0], slots), []
    for x in task.inputs[:1].unbind(dim=1):
        hidden, _ = model.controller(torch.cat([x, state.read], dim=-1), state.controller)
        gate = model.head(model.read_head(hidden)).gate[0, 0]
        logits, state = model.step(x, state)
        kept.append((state.memory[0], state.writing[0], state.reading[0], x[0], logits[0].sigmoid(), gate))
    return Tape(*(torch.stack(parts) for parts in zip(*kept, strict=True)))


class Written(NamedTuple):
    """One write to the slot that the write head looks at most: its weight w, and the vectors M, e, a and the new M."""

    slot: int
    weight: float
    before: Float[Tensor, " width"]
    erase: Float[Tensor, " width"]
    add: Float[Tensor, " width"]
    after: Float[Tensor, " width"]


@torch.no_grad()
def written(model: TuringMachine, task: Copying, step: int) -> Written:
    """The machine's write at this step, counted from 1, of a task's first sequence."""
    usual, kept = model.write, []

    def keeping(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
        after, slot = usual(memory, weights, erase, add), int(weights[0].argmax())
        vectors = memory[0, slot], erase[0], add[0], after[0, slot]
        kept.append(Written(slot, float(weights[0, slot]), *vectors))
        return after

    model.write = keeping
    try:
        model(task.inputs[:1])
    finally:
        model.write = usual
    return kept[step - 1]


class Jump(NamedTuple):
    """Of some tasks: did the read head reach the first vector's slot at the mark, and the bits said wrongly."""

    landed: Int[Tensor, " batch"]  # slots from the first vector on
    said: Bool[Tensor, "batch said bit"]
    target: Bool[Tensor, "batch said bit"]

    @property
    def wrong(self) -> float:
        """The share of bits said wrongly."""
        return float((self.said != self.target).float().mean())

    @property
    def wrong_from_there(self) -> float:
        """The same if the vectors are counted from the slot where the head landed, up to the last one."""
        pairs = [
            (said[: len(said) - by] != target[by:]).flatten()
            for by, said, target in zip(self.landed.tolist(), self.said, self.target, strict=True)
        ]
        return float(torch.cat(pairs).float().mean())


@torch.no_grad()
def jump(model: TuringMachine, length: int, slots: int = SIZES.slots, *, by_hand: bool = False) -> Jump:
    """64 tasks, and where the read head is after the mark; `by_hand` puts it on the slot of the first vector."""
    task = copies(64, length, generator=torch.Generator().manual_seed(9))
    state, logits = model.start(task.inputs[:, 0], slots), []
    first = landed = torch.zeros(64, dtype=torch.long)
    for step, x in enumerate(task.inputs.unbind(dim=1)):
        out, state = model.step(x, state)
        logits.append(out)
        if step == 0:
            first = state.writing.argmax(dim=1)
        if step == length and by_hand:
            reading = F.one_hot(first, slots).to(state.reading)
            state = state._replace(reading=reading, read=read_memory(state.memory, reading))
        if step == length:
            landed = (first - state.reading.argmax(dim=1)) % slots
    return Jump(landed, torch.stack(logits, dim=1)[:, -length:] > 0, task.target > 0)


def jump_table(jumps: Mapping[str, Jump]) -> DataFrame:
    """How many jumps reach the first vector, and the share of wrong bits, from the beginning and from the landing."""
    import pandas as pd

    rows = {
        name: {
            "jumps to the first vector": f"{int(each.landed.eq(0).sum())} of {len(each.landed)}",
            "wrong bits": f"{each.wrong:.1%}",
            "wrong, counted from where it landed": f"{each.wrong_from_there:.1%}",
        }
        for name, each in jumps.items()
    }
    return pd.DataFrame(rows).T


Focus = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # content, previous, gate, shift, sharpness


def played(tape: Tape) -> TapeView:
    """The tape as a view that plays; while the machine listens, it says nothing."""
    listening = tape.heard.ne(0).any(dim=1, keepdim=True)
    said = torch.where(listening, 0.5, tape.said)
    return tape_view(tape.memory, tape.writing, tape.reading, tape.heard, said)


def focus_by(move: Callable[[Tensor, Tensor], Tensor]) -> Focus:
    """The package's three steps after the content, with a reader's shift in the middle."""
    return lambda content, previous, gate, shift, sharpness: sharpened(
        move(gated(content, previous, gate), shift), sharpness
    )


plain_focus = focus_by(shifted)


def focused_by(focus: Focus) -> Callable[[Tensor, Tensor, Head], Addressing]:
    """A machine's addressing whose steps after the content are a reader's: `machine.address = focused_by(focus)`."""

    def addressed(memory: Tensor, previous: Tensor, head: Head) -> Addressing:
        content = content_weights(memory, head.key, head.strength)
        weights = focus(content, previous, head.gate, head.shift, head.sharpness)
        return Addressing(content, gated(content, previous, head.gate), weights, weights)

    return addressed
