"""Tables of lesson 14: the stored runs by model, images and shift, what each model costs, the scoreboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from tfbook.course.cost import count_flops, parameters
from tfbook.course.experiments import stored
from tfbook.lessons.vision_beyond import finding, rows
from tfbook.models.vit import VIT_SMALL, cost

if TYPE_CHECKING:
    from pandas import DataFrame

# ---- tables ------------------------------------------------------------------------------------------------------


def costs() -> DataFrame:
    """Parameters and operations for one image of each model of the contest about rows."""
    import pandas as pd

    lines, image = [], torch.zeros(1, 3, rows.SIX * rows.EIGHT, rows.SIX * rows.EIGHT)
    for name in rows.WORDS:
        model = rows.of_this_size(name).eval()
        with torch.no_grad():
            operations = count_flops(partial(model, image))
        lines.append({"model": name, "parameters": parameters(model), "MFLOPs": round(operations / 1e6, 1)})
    return pd.DataFrame(lines).set_index("model")


def row_runs() -> DataFrame:
    """The stored runs of the contest about rows."""
    import pandas as pd

    return pd.concat([stored(f"vision_beyond.{name}").frame for name in ("attending", "fixed", "cnns")])


def best_runs(runs: DataFrame) -> DataFrame:
    """The runs of each model at the rate whose first seed is best on "valid"; of equal ones, at the lower rate."""
    first = runs[runs["seed"] == 1].sort_values(["valid", "lr"], ascending=[False, True]).drop_duplicates("model")
    return runs[runs["lr"] == runs["model"].map(dict(zip(first["model"], first["lr"], strict=True)))]


def by_images(runs: DataFrame, fewer: DataFrame) -> dict[str, dict[int, float]]:
    """Right answers in percent by the number of training images, at the lower rate with the first seed."""
    import pandas as pd

    both = pd.concat([fewer, runs[runs["model"].isin(fewer["model"])]])
    same = both[(both["lr"] == rows.LOW) & (both["seed"] == 1)]
    return {
        name: dict(zip(some["images"], 100 * some["test"], strict=True))
        for name, some in same.sort_values("images").groupby("model", sort=False)
    }


def by_shift(runs: DataFrame, names: Sequence[str]) -> dict[str, dict[int, float]]:
    """Right answers in percent by the pixels that test images are shifted by: means over seeds at the best rate."""
    best, found = best_runs(runs), {}
    for name in names:
        shifted = list(best.loc[best["model"] == name, "shifted"])
        found[name] = {pixels: 100 * sum(run[str(pixels)] for run in shifted) / len(shifted) for pixels in range(5)}
    return found


def by_away(runs: DataFrame) -> dict[str, dict[int, list[float]]]:
    """Right answers in percent by the distance between the ring and the object: one per run at the best rate."""
    return {
        name: {away: [100 * run[str(away)] for run in some["by_away"]] for away in range(1, rows.SIX)}
        for name, some in best_runs(runs).groupby("model", sort=False)
    }


def colors(kind: str = "rates") -> DataFrame:
    """The stored runs of the question about colors, with the bags': "rates" on "valid" or "learners" on "test"."""
    import pandas as pd

    return pd.concat([stored(f"vision_beyond.{part}{kind}").frame for part in ("", "bag_")])


def spread(frame: DataFrame, column: str = "accuracy") -> dict[str, list[float]]:
    """The stored values of each model in percent, one per run."""
    return {name: list(100 * runs[column]) for name, runs in frame.groupby("model", sort=False)}


def scoreboard(runs: DataFrame, colors: DataFrame) -> DataFrame:
    """Costs, and percent right: rows at two rates on "valid" and on "test", colors at the best rate."""
    columns = (100 * runs[runs["seed"] == 1].pivot(index="model", columns="lr", values="valid")).round(1)
    columns["row, test"] = (100 * best_runs(runs).groupby("model")["test"].mean()).round(1)
    named_so = colors.replace({"model": {"bag, batch norms": "bag"}})
    columns["same color"] = (100 * named_so.groupby("model")["accuracy"].max()).round(1)
    named = columns.rename(columns={rate: f"row, rate {rate}" for rate in (rows.LOW, rows.HIGH)})
    return costs().join(named).astype(object).fillna("")


def cost_by_side(sides: Sequence[int] = (224, 448, 896)) -> DataFrame:
    """Billions of operations of a ViT-S with patches of 16 pixels, by the image's side: what each part costs."""
    import pandas as pd

    lines, window = [], 7
    for side in sides:
        whole = cost(replace(VIT_SMALL, height=side, width=side, tokens=0))
        local = whole.attention * window**2 / whole.time
        named = {"inside places": whole.matrices, "global attention": whole.attention, "windows of 7 × 7": local}
        lines.append({"side": side} | {name: operations / 1e9 for name, operations in named.items()})
    return pd.DataFrame(lines).set_index("side")


def detr_costs() -> DataFrame:
    """Parameters and operations of the parts of DETR for one image."""
    import pandas as pd

    model, image, lines = finding.new_detr().eval(), torch.zeros(1, 3, 64, 64), []
    with torch.no_grad():
        features = model.project(model.backbone(image)).flatten(2).mT
        runs: dict[str, tuple[list[nn.Module], Callable[[], object]]] = {
            "backbone": ([model.backbone, model.project], lambda: model.project(model.backbone(image))),
            "encoder": ([model.encoder], lambda: model.encoder(features)),
            "all": ([model], lambda: model(image)),
        }
        for name, (parts, run) in runs.items():
            row = {"part": name, "parameters": sum(map(parameters, parts))}
            lines.append(row | {"MFLOPs": round(count_flops(run) / 1e6, 1)})
    return pd.DataFrame(lines).set_index("part")
