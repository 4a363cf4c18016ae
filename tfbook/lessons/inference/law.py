"""The law of lesson 16, bytes ÷ bandwidth, where it can be seen: models of growing size here, and one H100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import torch

from tfbook.course.roofline import H100, Roofline, Work, decode_work, weight_bytes
from tfbook.generation.frozen import Frozen
from tfbook.lessons.inference.prices import CONTEXT, GPT2_SHAPE, LLAMA_7B, LLAMA_70B, SMALL_SHAPE, Shape
from tfbook.lessons.inference.timing import reading, seconds
from tfbook.models.gpt import Gpt
from tfbook.pretrain.storyteller import MODELS

# ---- on this machine -----------------------------------------------------------------------------------------------

LAYERS, VOCAB = 2, 64


def random_model(d_model: int) -> Gpt:
    """Two layers with random weights, 96 d_model² bytes: how long they take doesn't depend on their values."""
    config = replace(MODELS["storyteller"], d_model=d_model, d_ff=4 * d_model, heads=4, layers=LAYERS)
    return Gpt(VOCAB, config).eval()


@torch.no_grad()
def heavier(model: Gpt, d_ff: int) -> Gpt:
    """The storyteller with `d_ff` neurons in each feed-forward network: what the new ones say is multiplied by zero.

    It is the same function, and reads as many bytes as any model of its size. Raises ValueError for fewer neurons than
    the storyteller has.
    """
    own, config = model.state_dict(), MODELS["storyteller"]
    if d_ff < config.d_ff:
        raise ValueError(f"d_ff is {d_ff}; expected at least the storyteller's {config.d_ff}")
    heavy = Gpt(model.unembed.out_features, replace(config, d_ff=d_ff)).eval()
    for name, weight in heavy.state_dict().items():
        if name.endswith("down.weight"):
            weight.zero_()
        weight[tuple(slice(size) for size in own[name].shape)] = own[name]
    return heavy


class Step(NamedTuple):
    """A step: the bytes that it reads, the seconds that the law predicts, and those that it took."""

    bytes: float
    predicted: float
    measured: float


def law_steps(works: Mapping[int, Work], took: Mapping[int, float], floor: float, machine: Roofline) -> dict[int, Step]:
    """Each step's prediction: the time of its calls, `floor`, plus the roofline's, that of bytes or of operations."""
    return {key: Step(work.bytes, floor + machine.seconds(work), took[key]) for key, work in works.items()}


# ---- the cache -----------------------------------------------------------------------------------------------------


class Rate(NamedTuple):
    """Tokens per second, as predicted and as measured, and the work of a step."""

    predicted: float
    measured: float
    work: Work


def rates(
    models: Mapping[str, Gpt], pasts: Sequence[int], sizes: Sequence[int], machine: Roofline, calls: float, rounds: int
) -> dict[int, dict[str, dict[int, Rate]]]:
    """After so many tokens, for each model and number of texts; each panel's runs take turns."""
    frozen = {name: Frozen(model, packed=True) for name, model in models.items()}
    found: dict[int, dict[str, dict[int, Rate]]] = {}
    for past in pasts:
        runs = {(name, b): reading(each, batch=b, past=past) for name, each in frozen.items() for b in sizes}
        took, found[past] = seconds(runs, rounds, repeats=2), {name: {} for name in models}
        for name, b in runs:
            work = decode_work(models[name], past, batch=b)
            rate = Rate(b / (calls + machine.seconds(work)), b / took[name, b], work)
            found[past][name][b] = rate
    return found


def critical_batch(
    parameters: float, layers: int, d_model: int, context: int, width: float, machine: Roofline, shared: int = 1
) -> float:
    """How many texts meet the ridge: b(2N + 4Ldn) = ridge · w(N + 2bLdn/s), solved for b; infinite where none do.

    `shared` is s, the heads of queries for each head of keys and values.
    """
    past = layers * d_model * context
    gained = 2 * parameters + 4 * past - machine.ridge * width * 2 * past / shared  # per text, beside the bytes it adds
    return machine.ridge * width * parameters / gained if gained > 0 else inf


def critical_table(heavy: Gpt, pasts: Sequence[int], machine: Roofline) -> Any:
    """The critical batches of the heavy model here, after so many tokens, and of two published ones on H100s."""
    import pandas as pd

    config, weights = MODELS["storyteller"], weight_bytes(heavy) / 4
    rows = [
        ("heavy storyteller, this core", past, critical_batch(weights, config.layers, config.d_model, past, 4, machine))
        for past in pasts
    ]
    for shape in (LLAMA_7B, LLAMA_70B):
        numbers = shape.parameters, shape.layers, shape.d_model
        for past in (0, CONTEXT):
            texts = critical_batch(*numbers, past, 2, H100, shape.heads // shape.kv_heads)
            rows.append((f"{shape.name}, H100s", past, texts))
    columns = {
        "tokens before": [past for _, past, _ in rows],
        "critical batch": ["none" if texts == inf else f"{texts:,.0f}" for *_, texts in rows],
    }
    return pd.DataFrame(columns, index=[name for name, *_ in rows])


# ---- on one H100 ---------------------------------------------------------------------------------------------------

CASES: tuple[tuple[Shape, str, int], ...] = (
    (SMALL_SHAPE, "6 × 384", 1),
    (GPT2_SHAPE, "124M", 1),
    (GPT2_SHAPE, "124M", 64),
)
POSITIONS = 16 + 256 // 2  # of the benchmark: half of what is generated, after the prompt


class FarStep(NamedTuple):
    """A decoding step on the H100: its model's shape, texts, work, and the seconds that it took."""

    shape: Shape
    texts: int
    work: Work
    took: float


def far_steps(rows: Sequence[Mapping[str, Any]]) -> list[FarStep]:
    """Our frozen models in the stored benchmark."""
    speeds = {(row["task"], row["size"]): row["per second"] for row in rows if row["by"] == "tfbook, frozen"}
    return [
        FarStep(shape, batch, shape.step(batch, POSITIONS), batch / speeds[f"generating, batch {batch}", size])
        for shape, size, batch in CASES
    ]


def seconds_per_layer(step: FarStep) -> float:
    """The rest of a step without the time of its bytes, for each layer."""
    return (step.took - H100.seconds(step.work)) / step.shape.layers


def h100_factor(rows: Sequence[Mapping[str, Any]]) -> float:
    """By how much the prediction with layers misses a step of GPT-2's, at most: the larger over the smaller."""
    small, *others = far_steps(rows)
    fixed = seconds_per_layer(small)
    quotients = [step.took / (fixed * step.shape.layers + H100.seconds(step.work)) for step in others]
    return max(max(quotient, 1 / quotient) for quotient in quotients)


def h100_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Milliseconds per step by bytes alone, with the fixed cost per layer of the first row, and as measured."""
    import pandas as pd

    steps = far_steps(rows)
    fixed = seconds_per_layer(steps[0])
    predicted = [fixed * step.shape.layers + H100.seconds(step.work) for step in steps]
    columns = {
        "texts": [step.texts for step in steps],
        "MB read": [f"{step.work.bytes / 1e6:.0f}" for step in steps],
        "bytes alone, ms": [f"{1e3 * H100.seconds(step.work):.3f}" for step in steps],
        "and layers, ms": ["", *(f"{1e3 * seconds:.2f}" for seconds in predicted[1:])],
        "measured, ms": [f"{1e3 * step.took:.2f}" for step in steps],
    }
    return pd.DataFrame(columns, index=[step.shape.name for step in steps])
