"""Tables of lesson 14: the stored runs by model and by distance, what each model costs, the scoreboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from tfbook.course.cost import count_flops, parameters
from tfbook.lessons.vision_beyond import contest, finding

if TYPE_CHECKING:
    from pandas import DataFrame

# ---- tables ------------------------------------------------------------------------------------------------------


def costs() -> DataFrame:
    """Parameters and operations for one image of each model of the contest."""
    import pandas as pd

    rows = []
    for name in (*contest.MODELS, contest.LINEAR):
        model, image = contest.build(name).eval(), torch.zeros(1, 3, contest.SIDE, contest.SIDE)
        with torch.no_grad():
            operations = count_flops(partial(model, image))
        rows.append({"model": name, "parameters": parameters(model), "MFLOPs": round(operations / 1e6, 1)})
    return pd.DataFrame(rows).set_index("model")


def spread(frame: DataFrame, column: str = "accuracy") -> dict[str, list[float]]:
    """The stored values of each model in percent, one per run."""
    return {name: list(100 * rows[column]) for name, rows in frame.groupby("model", sort=False)}


def by_distance(frame: DataFrame) -> dict[str, dict[float, list[float]]]:
    """For each model and each lower bound of a group of distances: right answers in percent, one per seed."""
    return {
        name: {bound: [100 * row[str(bound)] for row in rows["by_distance"]] for bound in contest.DISTANCES[:-1]}
        for name, rows in frame.groupby("model", sort=False)
    }


def scoreboard(rates: DataFrame, learners: DataFrame) -> DataFrame:
    """Costs, and percent right: validation images by learning rate, test images and their jigsaw (mean of seeds)."""
    columns = (100 * rates.pivot(index="model", columns="lr", values="accuracy")).round(1)
    again = (100 * learners.groupby("model")[["accuracy", "jigsaw"]].mean()).round(1)
    again.columns = ["test", "jigsaw"]
    return costs().join(columns.add_prefix("rate ")).join(again).astype(object).fillna("")


def detr_costs() -> DataFrame:
    """Parameters and operations of the parts of DETR for one image."""
    import pandas as pd

    model, image, rows = finding.new_detr().eval(), torch.zeros(1, 3, 64, 64), []
    with torch.no_grad():
        features = model.project(model.backbone(image)).flatten(2).mT
        runs: dict[str, tuple[list[nn.Module], Callable[[], object]]] = {
            "backbone": ([model.backbone, model.project], lambda: model.project(model.backbone(image))),
            "encoder": ([model.encoder], lambda: model.encoder(features)),
            "all": ([model], lambda: model(image)),
        }
        for name, (parts, run) in runs.items():
            row = {"part": name, "parameters": sum(map(parameters, parts))}
            rows.append(row | {"MFLOPs": round(count_flops(run) / 1e6, 1)})
    return pd.DataFrame(rows).set_index("part")


PUBLISHED = (  # Trockman & Kolter (2022), Table 1: name, millions of parameters, ImageNet in percent, kind of mixer
    ("ConvMixer-768/32", 21.1, 80.16, "convolution"),
    ("ConvMixer-1536/20", 51.6, 81.37, "convolution"),
    ("ResNet-152", 60.2, 79.64, "convolution"),
    ("DeiT-B", 86.0, 81.8, "attention"),
    ("ResMLP-B24/8", 129.0, 81.0, "mlp"),
)
