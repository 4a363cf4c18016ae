"""Lesson 20: one small GPT trained by many machines, simulated and real; what each holds and sends; runs on paper."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from math import exp, log
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfbook import data
from tfbook.attention.masks import Causal
from tfbook.course.cost import kept_bytes
from tfbook.course.exercises import source_of
from tfbook.course.experiments import experiment
from tfbook.lessons.gpt_pretraining.stories import story_rows
from tfbook.lessons.scaling_out.answers import answer as answer
from tfbook.lessons.scaling_out.claims import CLAIMS as CLAIMS
from tfbook.lessons.scaling_out.facts import (
    GPT_3 as GPT_3,
    LLAMA_3 as LLAMA_3,
    LLAMA_405B as LLAMA_405B,
    LLAMA_PLANS as LLAMA_PLANS,
    SHARDING_ALONE as SHARDING_ALONE,
)
from tfbook.lessons.scaling_out.on_paper import (
    against_published as against_published,
    beat_sharding as beat_sharding,
    cut_table as cut_table,
    plan_table as plan_table,
)
from tfbook.lessons.scaling_out.walkthroughs import (
    alone_or_together as alone_or_together,
    counted_ring as counted_ring,
    meet as meet,
)
from tfbook.models.gpt import GPT2, GPT2_SMALL, Gpt, parameter_count
from tfbook.parallel.clock import launch_clock
from tfbook.parallel.data import data_parallel
from tfbook.parallel.launch import Launched, launch_elastic as launch_elastic, launch_kinds as launch_kinds
from tfbook.parallel.pipeline import pipeline
from tfbook.parallel.planning import (
    DOUBLE,
    PARTS,
    STAGES,
    Shape,
    held_numbers,
    memory_by_part,
    tokens_to_hide,
    wire_bytes,
)
from tfbook.parallel.sharded import sharded
from tfbook.parallel.tensor import tensor_parallel
from tfbook.parallel.whole import Batches, alone, largest_difference, predicted, total_loss
from tfbook.parallel.wire import Wire
from tfbook.parallel.worker import KINDS as REAL

if TYPE_CHECKING:
    from pandas import DataFrame

CONFIG = replace(GPT2, d_model=32, heads=4, d_ff=128, layers=4, max_length=32, dropout=0.0)
TIME = 16  # tokens that a row predicts
KINDS: dict[str, Callable[..., Any]] = {
    "data": data_parallel,
    "sharded": sharded,
    "tensor": tensor_parallel,
    "pipeline": pipeline,
}

# ---- the model and its text ------------------------------------------------------------------------------------------


def small_model() -> Gpt:
    """A GPT of four blocks that reads the story world, in float64, which shows small differences; on the CPU."""
    generator_state = torch.random.get_rng_state()
    torch.manual_seed(20)
    model = Gpt(_stories()[0], CONFIG).double()
    torch.random.set_rng_state(generator_state)
    return model


@cache
def _stories(count: int = 600) -> tuple[int, Int[Tensor, " token"]]:
    """The size of the story world's vocabulary, and its first texts as ids, one after the other."""
    corpus = data.load("stories")
    return len(corpus.vocabulary), torch.cat(story_rows(corpus["train"][:count], corpus.vocabulary))


def story_batches(steps: int, rows: int = 8) -> list[Int[Tensor, "rows time"]]:
    """A batch for each step: consecutive windows of the story world's texts."""
    windows = _stories()[1][: steps * rows * (TIME + 1)].view(steps, rows, TIME + 1)
    return [window.long().clone() for window in windows]  # copies: a view would keep, and send, the whole text


def one_machine(batches: Batches) -> tuple[Gpt, list[float]]:
    """The small model trained alone, and its losses: what every kind has to equal."""
    model = small_model()
    return model, alone(model, batches)


def shape_of(model: Gpt, batches: Batches) -> Shape:
    """The sizes that the formulas of `wire_bytes` need."""
    blocks = sum(weight.numel() for weight in model.stack.blocks.parameters())
    around = sum(weight.numel() for weight in model.parameters()) - blocks
    tokens = predicted(batches[0])
    return Shape(around, blocks, CONFIG.layers, CONFIG.d_model, model.embed.weight.numel(), tokens)


# ---- the scoreboard --------------------------------------------------------------------------------------------------


def scoreboard(found: Mapping[str, Launched], one: tuple[Gpt, list[float]], batches: Batches) -> DataFrame:
    """For each kind on real processes: how far its weights are from one machine's, and bytes sent."""
    import pandas as pd

    rows = []
    for kind, each in found.items():
        machines = len(each.held)
        sent = sum(sum(by_kind.values()) for by_kind in each.sent)
        formula = len(batches) * wire_bytes(kind, shape_of(one[0], batches), machines)
        rows.append(
            {
                "cut": kind,
                "weights differ by": f"{difference(one[0], each.state):.0e}",
                "final loss": f"{each.losses[-1]:.6f}",
                "all sent, MB": round(sent / 1e6, 2),
                "formula, MB": round(formula / 1e6, 2),
            }
        )
    return pd.DataFrame(rows).set_index("cut")


def held_rows(found: Mapping[str, Launched], one: tuple[Gpt, list[float]], batches: Batches) -> list[dict[str, float]]:
    """For each kind, bytes by part on the fullest machine, and by formula."""
    rows, shape = [], shape_of(one[0], batches)
    for kind, each in found.items():
        numbers = held_numbers(kind, shape, len(each.held))
        row = {part: float(max(parts[part] for parts in each.held)) for part in PARTS}
        rows.append(row | {"formula " + p: numbers * size for p, size in zip(PARTS, DOUBLE, strict=True)})
    return rows


def held_table(found: Mapping[str, Launched], one: tuple[Gpt, list[float]], batches: Batches) -> DataFrame:
    """Kilobytes by part that the fullest process really held before a step, each beside the formula's."""
    import pandas as pd

    rows = [
        {part: f"{row[part] / 1e3:,.0f} ({row['formula ' + part] / 1e3:,.0f})" for part in PARTS}
        for row in held_rows(found, one, batches)
    ]
    return pd.DataFrame(rows, index=list(found))


def difference(one: Gpt, state: Mapping[str, Tensor]) -> float:
    """The largest difference between a model's weights and others."""
    other = deepcopy(one)
    other.load_state_dict(dict(state))
    return largest_difference(one, other)


def worst(found: Mapping[str, Launched], one: tuple[Gpt, list[float]], batches: Batches) -> dict[str, float]:
    """Over all kinds: the largest difference of a weight, of a loss, and of bytes sent and held from the formulas."""
    shape = shape_of(one[0], batches)
    sent = {
        kind: sum(sum(each.values()) for each in ran.sent) / (len(batches) * wire_bytes(kind, shape, len(ran.held)))
        for kind, ran in found.items()
    }
    held = [row[part] / row["formula " + part] for row in held_rows(found, one, batches) for part in PARTS]
    return {
        "weights": max(difference(one[0], each.state) for each in found.values()),
        "loss": max(abs(each.losses[-1] - one[1][-1]) for each in found.values()),
        "sent": max(abs(ratio - 1) for ratio in sent.values()),
        "held": max(abs(ratio - 1) for ratio in held),
    }


# ---- the diff --------------------------------------------------------------------------------------------------------


def real_diff(kind: str) -> list[str]:
    """The lines by which a kind's real function differs from the simulated one, without docstrings."""
    diff = difflib.unified_diff(_code(KINDS[kind]), _code(REAL[kind]), n=1, lineterm="")
    return [line for line in diff if not line.startswith(("---", "+++"))]


def _code(function: Callable[..., Any]) -> list[str]:
    """The lines of a function without its docstring."""
    tree = ast.parse(source_of(function))
    docstring = tree.body[0].body[0]  # type: ignore[attr-defined]
    lines = source_of(function).splitlines()
    return lines[: docstring.lineno - 1] + lines[docstring.end_lineno :]


def changed_lines(kind: str) -> int:
    """How many lines of the diff are taken away or added."""
    return sum(line[0] in "+-" for line in real_diff(kind))


# ---- memory ----------------------------------------------------------------------------------------------------------


def gpt2_table() -> DataFrame:
    """Gigabytes of weights, gradients and optimizer of GPT-2 (124M) on each of 1, 8 and 64 GPUs, in mixed precision."""
    import pandas as pd

    count = parameter_count(50_257, GPT2_SMALL)
    columns = {
        f"{machines} GPU{'s' * (machines > 1)}": [
            round(sum(memory_by_part(count, machines, kind).values()) / 1e9, 3) for kind in STAGES
        ]
        for machines in (1, 8, 64)
    }
    return pd.DataFrame(columns, index=list(STAGES))


def activations_kept(rows: int = 8) -> dict[str, float]:
    """Bytes kept for the backward pass, with and without checkpoints, and the largest difference of a gradient."""
    (ids,) = story_batches(1, rows)
    found, gradients = {}, []
    for name, run in {"all kept": _plain, "checkpoints": _checkpointed}.items():
        model = small_model()
        found[name] = float(kept_bytes(model, partial(run, model, ids)))
        run(model, ids).backward()
        gradients.append([weight.grad for weight in model.parameters()])
    pairs = zip(*gradients, strict=True)
    return found | {"gradients differ by": max(float((a - b).abs().max()) for a, b in pairs)}


def _plain(model: Gpt, ids: Tensor) -> Tensor:
    return total_loss(model(ids[:, :-1]), ids) / predicted(ids)


def _checkpointed(model: Gpt, ids: Tensor) -> Tensor:
    """The same, but each block keeps its input alone and is run once more on the way back."""
    x = model.stack.position.add(model.embed(ids[:, :-1]))
    for block in model.stack.blocks:
        x = checkpoint(block, x, Causal(), use_reentrant=False)
    return total_loss(model.unembed(model.stack.norm(x)), ids) / predicted(ids)


def accumulated(model: nn.Module, ids: Tensor, parts: int) -> list[Any]:
    """The gradient of a batch, read in so many parts one after the other."""
    for part in ids.tensor_split(parts):
        (total_loss(model(part[:, :-1]), part) / predicted(ids)).backward()
    return [weight.grad for weight in model.parameters()]


# ---- stored ----------------------------------------------------------------------------------------------------------


@experiment
def on_the_loopback(processes: int = 4, steps: int = 20, rows: int = 8) -> list[dict[str, Any]]:
    """Bytes that the system counts on its loopback while each kind trains, beside the formula's.

    Run where nobody else sends: `unshare -n sh -c "ip link set lo up; python tools/experiment.py …"`.
    """
    batches, model = story_batches(steps, rows), small_model()
    found = launch_kinds(model, batches, list(KINDS), processes=processes)
    return [
        {
            "kind": kind,
            "processes": processes,
            "steps": steps,
            "formula": steps * wire_bytes(kind, shape_of(model, batches), processes),
            "counted": each.loopback,
            "sharded_by_gloo": _sharded_by_gloo(shape_of(model, batches), processes, steps)
            if kind == "sharded"
            else None,
        }
        for kind, each in found.items()
    ]


def _sharded_by_gloo(shape: Shape, machines: int, steps: int) -> float:
    """The formula with a reduce-scatter that sends what an all-reduce does, as gloo's."""
    more = (machines - 1) * (shape.around + shape.blocks) * shape.number
    return steps * (wire_bytes("sharded", shape, machines) + more)


CLOCKED = replace(CONFIG, d_model=256, heads=8, d_ff=1024)  # enough computing to measure


@experiment
def on_a_clock(rounds: int = 25, most: int = 128) -> list[dict[str, Any]]:
    """Seconds of computing a gradient and of adding two, on one and on two real processes, for batches of 2 to `most`.

    Run where nothing else computes: each process has one thread, so two of them need two idle cores.
    """
    torch.manual_seed(20)
    model = Gpt(_stories()[0], CLOCKED)
    sizes = [rows for rows in (2, 8, 32, 128) if rows <= most]
    batches = [story_batches(1, rows)[0] for rows in sizes]
    numbers = sum(weight.numel() for weight in model.parameters())
    return [row | {"parameters": numbers} for row in launch_clock(model, batches, rounds=rounds)]


def clock_table(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Milliseconds for a gradient, alone and together, and how many times as fast the two processes are."""
    import pandas as pd

    lines = [
        {
            "tokens per step": row["tokens"],
            "one: computing, ms": round(1e3 * row["alone computing"], 1),
            "two: computing, ms": round(1e3 * row["together computing"], 1),
            "two: the sum, ms": round(1e3 * (row["together waiting"] + row["together sum"]), 1),
            "times as fast": round(row["times as fast"], 2),
        }
        for row in rows
    ]
    return pd.DataFrame(lines).set_index("tokens per step")


def break_even(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Tokens per step from which on two processes that don't overlap are faster: by formula, and as clocked.

    Half of the computing is saved, 3 N operations per token, and 4 N bytes of float32 gradients are sent:
    4/3 · (operations/s) / (bytes/s), from the largest batch. As clocked: between two batches, on a logarithmic axis.
    """
    largest = rows[-1]
    speed = 6 * largest["parameters"] * largest["tokens"] / largest["alone computing"]
    rate = 4 * largest["parameters"] / largest["together sum"]
    below = max(row["tokens"] for row in rows if row["times as fast"] < 1)
    pair = [row for row in rows if row["tokens"] >= below][:2]
    (x, y), (low, high) = ([log(row[key]) for row in pair] for key in ("tokens", "times as fast"))
    return 4 / 3 * tokens_to_hide(speed, rate), exp(x - low * (y - x) / (high - low))


def loopback_table(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Megabytes by formula and as counted, and their ratio."""
    import pandas as pd

    lines = [
        {
            "cut": row["kind"],
            "formula, MB": round(row["formula"] / 1e6, 1),
            "counted, MB": round(row["counted"] / 1e6, 1),
            "ratio": round(row["counted"] / row["formula"], 2),
        }
        for row in rows
    ]
    return pd.DataFrame(lines).set_index("cut")


def simulated(kind: str, batches: Batches, wire: Wire) -> tuple[Gpt, list[float]]:
    """The small model trained by simulated machines."""
    trained, losses = KINDS[kind](small_model(), batches, wire)
    return (trained[0] if isinstance(trained, list) else trained), losses
