"""The price of a token of a known model by arithmetic: bytes, operations, seconds and dollars."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from tfbook.course.roofline import H100, Roofline, Work
from tfbook.plot.views.pricing import PriceQuestion

H100_MEMORY = 80e9  # bytes
H100_PER_HOUR = 3.0  # dollars, what clouds ask for about; an assumption, not a measurement
CONTEXT = 1000  # tokens before the one that is generated


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a published model that its arithmetic needs."""

    name: str
    parameters: float
    layers: int
    d_model: int
    heads: int
    kv_heads: int

    @property
    def d_head(self) -> int:
        """d_model / heads."""
        return self.d_model // self.heads

    def cache(self, context: int, width: float) -> float:
        """Bytes of one text's cache: layers · context · 2 · kv_heads · d_head · width."""
        return self.layers * context * 2 * self.kv_heads * self.d_head * width

    def step(self, batch: int, context: int = CONTEXT, *, width: float = 2, new: int = 1) -> Work:
        """A step that reads `new` tokens of each text: 2 · parameters + 4 · layers · context · d_model operations each.

        The weights are read once, each text's cache once, with `width` bytes per number.
        """
        flops = batch * new * (2 * self.parameters + 4 * self.layers * context * self.d_model)
        return Work(flops, self.parameters * width + batch * self.cache(context, width))


GPT2_SHAPE = Shape(name="GPT-2 small, 124M", parameters=124e6, layers=12, d_model=768, heads=12, kv_heads=12)
SMALL_SHAPE = Shape(name="GPT of 6 × 384, 30M", parameters=29.9e6, layers=6, d_model=384, heads=6, kv_heads=6)
LLAMA_7B = Shape(name="Llama 2 7B", parameters=6.7e9, layers=32, d_model=4096, heads=32, kv_heads=32)
LLAMA_70B = Shape(name="Llama 2 70B", parameters=69e9, layers=80, d_model=8192, heads=64, kv_heads=8)
SHAPES = (GPT2_SHAPE, LLAMA_7B, LLAMA_70B)


def cards(work: Work) -> int:
    """How many H100s hold what a step reads."""
    return ceil(work.bytes / H100_MEMORY)


@dataclass(frozen=True)
class Price:
    """The price of a token: seconds of a step on some machines, tokens per second, and dollars per million on H100s."""

    shape: Shape
    batch: int
    machine: str
    step: float
    tokens_per_second: float
    dollars: float | None
    why: str


def prices(machine: Roofline, batches: tuple[int, ...] = (1, 64)) -> list[Price]:
    """For each model and batch, on this machine with 4 bytes per number, and on as many H100s as it needs with 2.

    The work is split perfectly among the cards, which in reality wait for each other.
    """
    return [
        price
        for shape in SHAPES
        for batch in batches
        for price in (_here(shape, batch, machine), _on_cards(shape, batch))
    ]


def _here(shape: Shape, batch: int, machine: Roofline) -> Price:
    work = shape.step(batch, width=4)
    step = machine.seconds(work)
    return Price(shape, batch, "this core", step, batch / step, None, _why(work, machine, 1))


def _on_cards(shape: Shape, batch: int) -> Price:
    work = shape.step(batch)
    count = cards(work)
    step = H100.seconds(work) / count
    name = "one H100" if count == 1 else f"{count} H100s"
    dollars = 1e6 * step / batch * count * H100_PER_HOUR / 3600
    return Price(shape, batch, name, step, batch / step, dollars, _why(work, H100, count))


def _why(work: Work, machine: Roofline, count: int) -> str:
    """The arithmetic in words."""
    memory, compute = work.bytes / machine.bandwidth / count, work.flops / machine.peak / count
    limit = "memory" if memory >= compute else "arithmetic"
    return (
        f"{work.bytes / 1e9:,.3g} GB take {1e3 * memory:,.3g} ms to read, {work.flops / 1e9:,.3g} GFLOP take "
        f"{1e3 * compute:,.3g} ms: {limit} is the limit"
    )


def price_table(found: list[Price]) -> Any:
    """The prices as a table."""
    import pandas as pd

    rows = {
        "texts": [price.batch for price in found],
        "on": [price.machine for price in found],
        "ms per step": [f"{1e3 * price.step:,.3g}" for price in found],
        "tokens/s": [f"{price.tokens_per_second:,.3g}" for price in found],
        "$ per million": ["" if price.dollars is None else f"{price.dollars:,.2f}" for price in found],
    }
    return pd.DataFrame(rows, index=[price.shape.name for price in found])


def price_questions(found: list[Price]) -> list[PriceQuestion]:
    """Six of them as questions: from one core to 70B for 64 people, and what a million tokens cost."""
    known = {(price.shape.name, price.batch, price.machine != "this core"): price for price in found}
    small, medium, large = (shape.name for shape in SHAPES)
    asked = [(small, 1, False), (medium, 1, True), (medium, 64, True), (large, 1, True), (large, 64, True)]
    questions = []
    for key in asked:
        price = known[key]
        texts = "one text" if price.batch == 1 else f"{price.batch} texts together"
        question = f"{price.shape.name} on {price.machine}, {texts}: how long is a step?"
        questions.append(PriceQuestion(question, 1e3 * price.step, "ms", price.why))
    dollars = known[large, 64, True].dollars or 0.0
    question = f"And what does a million tokens of {large} cost then, at ${H100_PER_HOUR:g} per card and hour?"
    return [*questions, PriceQuestion(question, dollars, "dollars", "64 tokens per step, on two rented cards")]
