"""A training run on paper: operations, days, money, energy, carbon, and the memory of each machine by part."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from tfbook.checks import check_positive

STAGES = ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")
PARTS = ("weights", "gradients", "optimizer")  # what each stage shards, the last part first


class Precision(NamedTuple):
    """Bytes for each parameter, by part."""

    weights: float
    gradients: float
    optimizer: float


MIXED = Precision(2, 2, 12)  # 16 bits; the optimizer has a copy of the weights and Adam's two means in 32 bits
SINGLE = Precision(4, 4, 8)
DOUBLE = Precision(8, 8, 16)  # what this lesson's machines use


def memory_by_part(
    parameters: float, machines: int, kind: str = "data parallel", precision: Precision = MIXED
) -> dict[str, float]:
    """Bytes of weights, gradients and optimizer on one of `machines` (Rajbhandari et al., 2020, figure 1).

    ZeRO-1 shards the optimizer, ZeRO-2 the gradients, too, ZeRO-3 (FSDP) also the weights. Activations come on top, and
    with ZeRO-3 the whole weights of the layer at work. Raises ValueError for an unknown kind.
    """
    check_positive(machines=machines)
    if kind not in STAGES:
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(STAGES)}")
    sharded = PARTS[len(PARTS) - STAGES.index(kind) :]
    return {
        part: parameters * each / (machines if part in sharded else 1)
        for part, each in zip(PARTS, precision, strict=True)
    }


def activation_bytes(layers: int, d_model: int, tokens: int, *, checkpointed: bool = False, each: float = 2) -> float:
    """About 17 · each bytes per token, layer and unit of d_model; with checkpointing, the layers' inputs alone.

    Without the scores, which fused attention doesn't keep (Korthikanti et al., 2022, section 4.1: 34 s b h per layer at
    16 bits).
    """
    return (1 if checkpointed else 17) * each * layers * d_model * tokens


# ---- bytes on the wire -----------------------------------------------------------------------------------------------


def all_reduce_bytes(size: float, machines: int) -> float:
    """2 (n − 1) / n · size, which each machine of a ring sends."""
    return 2 * all_gather_bytes(size, machines)


def all_gather_bytes(size: float, machines: int) -> float:
    """(n − 1) / n · size, which each machine of a ring sends, `size` being the whole; a reduce-scatter's, too."""
    return (machines - 1) / machines * size


class Shape(NamedTuple):
    """The sizes on which the bytes of a step depend: parameters around and in the blocks, and the sizes of a batch."""

    around: int  # embedding, positions, last norm
    blocks: int  # all blocks' parameters together
    layers: int
    d_model: int
    tied: int  # the embedding's, which both ends of a pipeline have
    tokens: int  # read per step
    number: int = 8  # bytes of a number


def wire_bytes(kind: str, shape: Shape, machines: int) -> float:
    """Bytes that all machines together send per step. Raises ValueError for an unknown kind.

    Data: one all-reduce of the gradients. Sharded: a reduce-scatter of them, and the blocks' weights gathered twice,
    the others' once. Tensor: four all-reduces of the activations per layer. Pipeline: activations and their gradients
    from stage to stage, and the tied gradient both ways.
    """
    n, around, blocks = machines, shape.around * shape.number, shape.blocks * shape.number
    vectors = shape.tokens * shape.d_model * shape.number
    if kind == "data":
        return n * all_reduce_bytes(around + blocks, n)
    if kind == "sharded":
        return n * (all_gather_bytes(around + 2 * blocks, n) + all_gather_bytes(around + blocks, n))
    if kind == "tensor":
        return n * shape.layers * 4 * all_reduce_bytes(vectors, n)
    if kind == "pipeline":
        return 2 * (n - 1) * vectors + 2 * shape.tied * shape.number * (n > 1)
    raise ValueError(f"kind is {kind!r}; expected data, sharded, tensor or pipeline")


def held_numbers(kind: str, shape: Shape, machines: int) -> float:
    """Parameters on the fullest machine; gradients are as many, and Adam's means twice as many.

    A tensor-parallel machine has norms and the biases of layers that are cut by inputs whole, 6 d_model per layer; the
    first and the last stage of a pipeline have all that is around the blocks. Raises ValueError for an unknown kind.
    """
    n, whole = machines, shape.around + shape.blocks
    uncut = 6 * shape.d_model * shape.layers
    held = {
        "data": whole,
        "sharded": whole / n,
        "tensor": shape.around + uncut + (shape.blocks - uncut) / n,
        "pipeline": shape.around + shape.blocks / n,
    }
    if kind not in held:
        raise ValueError(f"kind is {kind!r}; expected {', '.join(held)}")
    return held[kind]


def peak_bytes(kind: str, shape: Shape, machines: int) -> float:
    """Bytes of the fullest machine at the moment when it has most, in training with Adam and without activations.

    Four numbers for each parameter that it holds; data parallel, a message with all gradients; sharded, four blocks
    whole: weights and gradients of the one at work, the next one's weights, and a message; pipeline, the whole model
    from which it took its stage. Raises ValueError for an unknown kind.
    """
    whole = shape.around + shape.blocks
    beside = {"data": whole, "sharded": 4 * shape.blocks / shape.layers, "pipeline": whole}
    return shape.number * (4 * held_numbers(kind, shape, machines) + beside.get(kind, 0.0))


# ---- bytes to seconds ------------------------------------------------------------------------------------------------

NVLINK = 450e9  # bytes per second that an H100 sends to the others of its server, one direction
INFINIBAND = 50e9  # to another server: each GPU's own card, 400 gigabits per second
SERVER = 8  # GPUs


def all_reduce_speed(machines: int, sharing: int = SERVER) -> float:
    """Bytes per second and GPU at which a large all-reduce runs: NVLINK, or min(NVLINK, sharing · INFINIBAND).

    Beyond one server the `sharing` GPUs of a server reduce-scatter, each sums its 1/sharing with the GPUs of the same
    number in the other servers, over its own card, and they gather again; in chunks, so that both wires work at once.
    """
    check_positive(machines=machines, sharing=sharing)
    return NVLINK if machines <= sharing else min(NVLINK, sharing * INFINIBAND)


def tokens_to_hide(operations_per_second: float, bytes_per_second: float) -> float:
    """Tokens per chip and step from which on sending hides behind computing: operations/s over bytes/s.

    At 16 bits an all-reduce sends about 4 N bytes, and the backward pass takes 4 N operations per token: N cancels.
    With ZeRO-3 the same holds for each pass: 2 N of both in the forward, 4 N in the backward pass.
    """
    check_positive(operations_per_second=operations_per_second, bytes_per_second=bytes_per_second)
    return operations_per_second / bytes_per_second


def tensor_sending(machines: int, d_model: float, operations_per_second: float, bytes_per_second: float) -> float:
    """Seconds that tensor parallelism sends for each second that it computes: 2 (n − 1) / (9 d) · tokens_to_hide.

    Per layer and token at 16 bits: four all-reduces of d numbers, 16 (n − 1) / n · d bytes, and 72 d² / n operations
    for 12 d² weights, without attention's scores.
    """
    return 2 * (machines - 1) / (9 * d_model) * tokens_to_hide(operations_per_second, bytes_per_second)


def interleaved_bubble(stages: int, microbatches: int, turns: int = 1) -> float:
    """Waiting per second of computing: (p − 1) / (v m) with m ≥ p microbatches (Narayanan et al., 2021, section 2.2).

    A chip has v short stages, and its next one can begin when a microbatch is back from the other chips. With m < p
    it waits for that in each turn, however short: (p v + m − 1) / (m v) − 1, which for v = 1 is (p − 1) / m.
    """
    p, m, v = stages, microbatches, turns
    return (p - 1) / (v * m) if m >= p else (p * v + m - 1) / (m * v) - 1


def sending_wait(needed: float, kind: str, microbatches: int = 1, gradient_bytes: float = 2) -> float:
    """Seconds that sending between copies sticks out, per second of computing; 0 from `needed` = 1 down at 16 bits.

    `needed` is tokens_to_hide / tokens of a microbatch. Whole gradients hide behind the last microbatch's backward
    pass, 2/3 of its time. ZeRO-2 keeps only its shard, so each microbatch sends: a reduce-scatter, half an all-reduce,
    behind its backward pass; the other half, the new weights, follows once, behind a forward pass. ZeRO-3 sends in
    every pass of every microbatch. Weights travel in 16 bits; gradients have `gradient_bytes` per number.
    """
    heavier = gradient_bytes / 2
    mixed = (1 + heavier) / 2  # of gradients one way, and weights the other
    if kind == "ZeRO-3":
        return max(0.0, needed - 1) / 3 + 2 / 3 * max(0.0, mixed * needed - 1)
    if kind == "ZeRO-2":
        return 2 / 3 * max(0.0, heavier * needed / 2 - 1) + max(0.0, needed - 1) / (3 * microbatches)
    return 2 / 3 * max(0.0, (mixed if kind == "ZeRO-1" else heavier) * needed - 1) / microbatches


# ---- the whole run ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Chip:
    """An accelerator: operations per second at best, memory, power of its whole server per chip, and prices."""

    peak: float
    memory: float = 80e9
    watts: float = 700
    price: float = 35_000  # dollars to buy one
    per_hour: float = 2.0  # dollars to rent one


H100 = Chip(peak=989e12)  # bf16, without sparsity
V100 = Chip(peak=125e12, memory=32e9, watts=330, price=10_000, per_hour=1.5)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run: how many parameters read how many tokens on how many chips, which reach `utilization` of their peak."""

    parameters: float
    tokens: float
    chips: int
    chip: Chip = H100
    utilization: float = 0.5  # of a chip that isn't waiting
    kind: str = "ZeRO-3"
    batch: float = 4e6  # tokens per step, of all chips together
    text: int = 1  # tokens of a text, which is never shared by two copies of the model, nor by two microbatches
    tensor: int = 1  # parts of each matrix
    pipeline: int = 1  # stages
    microbatches: int = 1
    turns: int = 1  # stages that a chip has, interleaved, each so much shorter
    gradient_bytes: float = 2  # of a gradient's number on the wire
    recompute: bool = False  # keep the blocks' inputs alone, and run each block twice
    server: int = SERVER  # chips of one
    waiting_power: float = 0.5  # of a waiting chip, as a share; an assumption
    per_kilowatt_hour: float = 0.10  # dollars
    carbon: float = 0.4  # kg of CO₂ per kWh; 0.02 to 0.8, depending on the country
    overhead: float = 1.1  # of the building: cooling and so on

    def __post_init__(self) -> None:
        check_positive(parameters=self.parameters, tokens=self.tokens, chips=self.chips, batch=self.batch)
        check_positive(tensor=self.tensor, pipeline=self.pipeline, microbatches=self.microbatches, turns=self.turns)
        if self.chips % (self.tensor * self.pipeline):
            raise ValueError(f"{self.chips} chips are not copies of {self.tensor} × {self.pipeline} chips")
        if self.texts < 1:
            raise ValueError(f"a batch of {self.batch:,.0f} tokens has no whole text of {self.text:,}")
        most = ceil(self.texts / self.copies)
        if self.microbatches > most:
            raise ValueError(
                f"{self.texts:,} whole texts for {self.copies:,} copies: at most {most:,} each, "
                f"too few for {self.microbatches:,} microbatches"
            )
        if self.pipeline * self.turns > max(1, ceil(self.layers)):
            raise ValueError(f"{self.pipeline} × {self.turns} stages for {self.layers:,.0f} layers: less than one each")
        if not 0 < self.utilization <= 1:
            raise ValueError(f"utilization is {self.utilization}; expected a share of the peak, 0 to 1")

    @property
    def operations(self) -> float:
        """6 N D."""
        return 6 * self.parameters * self.tokens

    @property
    def chip_hours(self) -> float:
        """Hours of all chips together that are spent computing."""
        return self.operations / (self.utilization * self.chip.peak) / 3600

    @property
    def days(self) -> float:
        """From the first step to the last, if nothing breaks and nothing waits."""
        return self.chip_hours / self.chips / 24

    @property
    def copies(self) -> int:
        """Copies of the model, among which the batch is shared: chips / (tensor · pipeline)."""
        return self.chips // (self.tensor * self.pipeline)

    @property
    def texts(self) -> int:
        """Whole texts of a batch."""
        return int(self.batch // self.text)

    @property
    def reading(self) -> int:
        """Copies that have at least one text to read."""
        return min(self.copies, self.texts)

    @property
    def tokens_per_microbatch(self) -> int:
        """Tokens of the largest microbatch, for which all wait: ⌈⌈texts / copies⌉ / microbatches⌉ whole texts."""
        return ceil(ceil(self.texts / self.copies) / self.microbatches) * self.text

    @property
    def tokens_per_copy(self) -> int:
        """Tokens for which a copy has time in each step: as many as `microbatches` of the largest have."""
        return self.tokens_per_microbatch * self.microbatches

    @property
    def tokens_to_hide(self) -> float:
        """Tokens per copy and microbatch that sending needs to hide: N / (tensor · pipeline) cancels as N does."""
        sharing = max(1, self.server // self.tensor)
        return tokens_to_hide(self.utilization * self.chip.peak, all_reduce_speed(self.copies, sharing))

    @property
    def hides(self) -> bool:
        """Whether a microbatch has so many tokens that sending hides."""
        return self.copies == 1 or self.tokens_per_microbatch >= self.tokens_to_hide

    @property
    def waits(self) -> dict[str, float]:
        """Seconds per second of computing, by cause: sending between copies, tensor's, the bubble, no text to read.

        Not counted: the time for a message to start, and a pipeline's activations.
        """
        needed = self.tokens_to_hide / self.tokens_per_microbatch if self.copies > 1 else 0.0
        speed = self.utilization * self.chip.peak
        tensor = tensor_sending(self.tensor, self.d_model, speed, all_reduce_speed(self.tensor, self.server))
        return {
            "copies": sending_wait(needed, self.kind, self.microbatches, self.gradient_bytes),
            "tensor": tensor,
            "bubble": interleaved_bubble(self.pipeline, self.microbatches, self.turns),
            "no text": self.copies * self.tokens_per_copy / (self.texts * self.text) - 1,
        }

    @property
    def slowdown(self) -> float:
        """Times as long as computing alone: with what waits, and a third more where blocks run twice."""
        waits = self.waits
        busy = 1 + waits["copies"] + waits["tensor"] + waits["bubble"] + self.recompute / 3
        return busy * (1 + waits["no text"])

    @property
    def speedup(self) -> float:
        """Times as fast as one chip that never waits."""
        return self.chips / self.slowdown

    @property
    def layers(self) -> float:
        """Of a model 128 times as wide as deep, as GPT-3 and nearly Llama 3.1 405B: 12 · 128² layers³ = N."""
        return (self.parameters / (12 * 128**2)) ** (1 / 3)

    @property
    def d_model(self) -> float:
        """128 · layers."""
        return 128 * self.layers

    @property
    def rent(self) -> float:
        """Dollars for renting the chips, waiting included."""
        return self.chip_hours * self.slowdown * self.chip.per_hour

    @property
    def megawatt_hours(self) -> float:
        """Electricity, the building's included; a waiting chip draws `waiting_power` of it."""
        drawn = 1 + self.recompute / 3 + self.waiting_power * (self.slowdown - 1 - self.recompute / 3)
        return self.chip_hours * drawn * self.chip.watts * self.overhead / 1e6

    @property
    def power_bill(self) -> float:
        """Dollars for the electricity alone."""
        return 1000 * self.megawatt_hours * self.per_kilowatt_hour

    @property
    def tonnes(self) -> float:
        """Tonnes of CO₂."""
        return self.megawatt_hours * self.carbon

    @property
    def bytes_by_part(self) -> dict[str, float]:
        """Weights, gradients, optimizer and activations of a chip; 1F1B keeps up to `pipeline` microbatches.

        With blocks that run twice, one block's activations lie beside all blocks' inputs; with ZeRO-3, one block's
        weights beside the shard.
        """
        cut = self.tensor * self.pipeline
        parts = memory_by_part(self.parameters / cut, self.copies, self.kind)
        tokens = self.tokens_per_microbatch * min(self.pipeline, self.microbatches) / cut
        whole = 34 * self.d_model
        kept = whole * self.layers * tokens
        if self.recompute:
            kept = 2 * self.d_model * self.layers * tokens + whole * self.tokens_per_microbatch / self.tensor
        block = 2 * self.parameters / self.layers / self.tensor if self.kind == "ZeRO-3" else 0.0
        return parts | {"activations": kept, "the block at work": block}

    @property
    def bytes_per_chip(self) -> float:
        """All of them."""
        return sum(self.bytes_by_part.values())

    @property
    def fits(self) -> bool:
        """Whether this is no more than the chip's memory."""
        return self.bytes_per_chip <= self.chip.memory
