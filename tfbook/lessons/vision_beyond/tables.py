"""What the stored runs of lesson 14 say: by model, by distance and by shift; what each model costs; the scoreboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from tfbook.course.cost import count_flops, parameters
from tfbook.lessons.vision_beyond import contest, finding

if TYPE_CHECKING:
    from pandas import DataFrame

# ---- tables ------------------------------------------------------------------------------------------------------


def costs() -> DataFrame:
    """Parameters and operations for one image of each model of the contest, with eight labels."""
    import pandas as pd

    rows = []
    for name in (*contest.MODELS, contest.LINEAR):
        model = contest.build(name, "kind").eval()
        image = torch.zeros(1, 3, contest.SIDE, contest.SIDE)
        with torch.no_grad():
            operations = count_flops(partial(model, image))
        rows.append({"model": name, "parameters": parameters(model), "MFLOPs": round(operations / 1e6, 1)})
    return pd.DataFrame(rows).set_index("model")


def spread(
    frame: DataFrame, question: str, column: str = "accuracy", images: int | None = None
) -> dict[str, list[float]]:
    """The stored values of each model, one per seed, in percent."""
    own = frame[frame["question"] == question]
    own = own[own["images"] == (images or own["images"].max())]
    return {name: list(100 * rows[column]) for name, rows in own.groupby("model", sort=False)}


def by_key(
    frame: DataFrame, question: str, column: str, images: int | None = None
) -> dict[str, dict[float, list[float]]]:
    """For each model: what the dictionaries in a column hold under each key, one per seed, in percent."""
    own = frame[frame["question"] == question]
    own = own[own["images"] == (images or own["images"].max())]
    return {
        name: {float(key): [100 * row[key] for row in rows[column]] for key in rows[column].iloc[0]}
        for name, rows in own.groupby("model", sort=False)
    }


def worst(values: Mapping[str, Sequence[float]], name: str) -> float:
    """The worst seed of a model."""
    return min(values[name])


def scoreboard(frame: DataFrame, least: int) -> DataFrame:
    """Mean percent right of each model: kinds from few and many images, shuffled, shifted; and the same color."""
    import pandas as pd

    few, many = (spread(frame, "kind", images=images) for images in (least, None))
    jigsaw, color = spread(frame, "kind", "jigsaw"), spread(frame, "same color")
    moved = {name: row[contest.SHIFTS[-1]] for name, row in by_key(frame, "kind", "by_shift").items()}
    columns = {f"kind, {least} images": few, "kind, all": many, "jigsaw": jigsaw, "shifted": moved, "same color": color}
    means = {title: {name: sum(v) / len(v) for name, v in values.items()} for title, values in columns.items()}
    return costs().join(pd.DataFrame(means).round(1))


def minus(some: Mapping[str, Sequence[float]], others: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """The differences of the same model and seed."""
    return {name: [a - b for a, b in zip(values, others[name], strict=True)] for name, values in some.items()}


def detr_costs() -> DataFrame:
    """Parameters and operations of the parts of DETR for one image."""
    import pandas as pd

    model, image, rows = finding.new_detr().eval(), torch.zeros(1, 3, 64, 64), []
    with torch.no_grad():
        features = model.project(model.backbone(image)).flatten(2).mT
        runs = {
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
