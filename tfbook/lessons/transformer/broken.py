"""The translators of `ablation` that ship: one of each machine, its matrices in 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from tfbook.course.translators import Task
from tfbook.data.download import File, fetch
from tfbook.generation.search import translate
from tfbook.lessons.transformer.ablation import MACHINES, WITHOUT_ATTENTION
from tfbook.models.transformer import Transformer
from tfbook.text.pairs import Pair
from tfbook.text.words import detokenize, tokenize

if TYPE_CHECKING:
    from pandas import DataFrame, Series

WHOLE = "the whole machine"
TIED = "decoder.unembed.weight"  # is the decoder's embedding

# ---- weights in 8 bits -----------------------------------------------------------------------------------------------


def packed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as bytes with a scale for each row, w ≈ scale · byte, and vectors in half precision."""
    small = {}
    for name, weight in weights.items():
        if name == TIED:
            continue
        if weight.ndim == 2:
            small[name], small[f"{name}/scale"] = _bytes(weight)
        else:
            small[name] = weight.half()
    return small


def _bytes(weight: Float[Tensor, "row column"]) -> tuple[Int8[Tensor, "row column"], Float[Tensor, "row 1"]]:
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-6).div(127).half()
    return (weight / scale.float()).round().clamp(-127, 127).to(torch.int8), scale


def unpacked(small: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of which `packed` made bytes, in float32, each off by at most half a step of its scale."""
    weights = {name: part.float() for name, part in small.items() if not name.endswith("/scale")}
    for name in weights:
        if (scale := small.get(f"{name}/scale")) is not None:
            weights[name] = weights[name] * scale.float()
    return weights | {TIED: weights["decoder.embed.weight"]}


def save(models: Mapping[str, Transformer], path: Path) -> None:
    """Writes the models' weights to one file, under the machines' names."""
    from safetensors.torch import save_file

    parts = {name: packed({key: w.detach().cpu() for key, w in m.state_dict().items()}) for name, m in models.items()}
    save_file({f"{name}:{key}": part for name, small in parts.items() for key, part in small.items()}, path)


def load(task: Task) -> dict[str, Transformer]:
    """The stored translators by the names of `MACHINES`, on the chosen device. Raises KeyError when one is missing."""
    from safetensors.torch import load_file

    stored = load_file(fetch(File(path="translators/broken.safetensors")))
    models = {}
    for name, machine in MACHINES.items():
        small = {key.removeprefix(f"{name}:"): part for key, part in stored.items() if key.startswith(f"{name}:")}
        models[name] = machine.build(task)
        models[name].load_state_dict(unpacked(small))
    return models


# ---- in the lesson ---------------------------------------------------------------------------------------------------


def translated(model: Transformer, task: Task, text: str) -> str:
    """The model's greedy translation of an English sentence."""
    pair = Pair(tuple(tokenize(text, task.corpus.source_language)), ())
    [found] = translate(model, [pair], task.source_vocab, task.target_vocab, max_length=20)
    return detokenize(found.words, task.corpus.target_language)


def versions(task: Task) -> dict[str, Callable[[str], str]]:
    """For each machine that ships, a function from an English sentence to its translation, as `break_view` takes it."""
    return {name: partial(translated, model, task) for name, model in load(task).items()}


def best_runs(runs: DataFrame) -> DataFrame:
    """The runs of `ablation`, or `attentions`, at each machine's best rate on validation sentences, in their order."""
    order = [*MACHINES, *WITHOUT_ATTENTION]
    first = runs[runs["seed"] == runs["seed"].min()]
    best = first.loc[first.groupby("machine")["valid"].idxmax()].set_index("machine")["lr"]
    chosen = runs[runs["lr"] == runs["machine"].map(best)]
    return chosen.sort_values("machine", key=lambda names: names.map(order.index), kind="stable")


def scores(runs: DataFrame) -> dict[str, float]:
    """Mean BLEU of each machine at its best rate."""
    means = best_runs(runs).groupby("machine", sort=False)["bleu"].mean()
    return {str(name): float(mean) for name, mean in means.items()}


def losses(runs: DataFrame) -> Series:
    """Mean training loss of each machine in the runs that `scores` takes."""
    return best_runs(runs).groupby("machine", sort=False)["loss"].mean().rename_axis(None)


def scoreboard(runs: DataFrame) -> DataFrame:
    """BLEU of each machine at each rate: one run, or the mean and range of several."""
    from tfbook.course.summaries import mean_and_range

    cells = runs.groupby(["machine", "lr"])["bleu"].apply(partial(mean_and_range, digits=1)).unstack("lr")
    cells.columns = [f"rate {rate:g}" for rate in cells.columns]
    return cells.loc[best_runs(runs)["machine"].unique()].rename_axis(None)
