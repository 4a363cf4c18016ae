"""Tables of lesson 14: the stored runs by model, rule and distance, what each model costs, the scoreboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F

from tfbook.course.cost import count_flops, parameters
from tfbook.course.experiments import stored
from tfbook.lessons.vision_beyond import contest, finding
from tfbook.lessons.vision_beyond.pictures import BLANK, EIGHT, GUESS, PALETTE, RULES, SIDE, Pictures
from tfbook.models.vit import VIT_SMALL, cost

if TYPE_CHECKING:
    from pandas import DataFrame

    from tfbook.data.scenes import Scene
    from tfbook.models.captioner import Captioner

# ---- tables ------------------------------------------------------------------------------------------------------


def contest_runs() -> DataFrame:
    """The stored runs of the contest, all with the same number of steps: three seeds by row, two by twin."""
    import pandas as pd

    names = ("by_row", "by_twin", "wider_filters", "by_twin_again", "pooled")
    runs = pd.concat([stored(f"vision_beyond.{name}").frame for name in names])
    return runs[(runs["rule"] == "row") | runs["seed"].isin(contest.SEEDS[:2])]  # by twin, not all have the third


REACHES = {"test": "all", "same window": "in one window", "across": "across a border"}


def longer_runs() -> DataFrame:
    """Right answers by twin in percent, all and by reach, one column for each seed, of models given more steps."""
    import pandas as pd

    runs = pd.concat([stored(f"vision_beyond.{name}").frame for name in ("longer", "longer_windows")])
    return runs.rename(columns=REACHES).pivot(index=["model", "steps"], columns="seed", values=list(REACHES.values()))


SIDES = (  # the rows of the contest: weights from the image, a sum, weights that are the same for every image
    *("windows", "shifted windows", "global attention", "hybrid"),
    *("pool", "bag"),
    *("MLP-Mixer", "convolution", "convolution, 5 × 5", "ConvMixer"),
)


def by_reach(runs: DataFrame) -> dict[str, dict[str, list[float]]]:
    """Right answers in percent by row, and by twin with the partner in one plain window and across a border."""
    best = best_runs(runs)
    panels = {
        "by row": spread(best, "row"),
        "by twin, in one window": spread(best, "twin", "same window"),
        "by twin, across a border": spread(best, "twin", "across"),
    }
    return {title: {name: values[name] for name in SIDES} for title, values in panels.items()}


def eyes(model: Captioner, scenes: Sequence[Scene]) -> DataFrame:
    """Shares of the attention in percent at words that name: on the named object, on another, and two baselines."""
    import pandas as pd

    seen = {
        "even tiles touch it": finding.looks_at(model, scenes, tiles=True),
        "true places touch it": finding.looks_at(model, scenes),
        "… or stand beside it": finding.looks_at(model, scenes, margin=1),
        "their middles are on it": finding.looks_at(model, scenes, middle=True),
    }
    table = 100 * pd.DataFrame(seen.values(), index=list(seen))
    names = {"model": "named object", "other": "another object", "uniform": "if equal", "center": "if central"}
    return table.rename(columns=names)[list(names.values())]


def best_runs(runs: DataFrame) -> DataFrame:
    """The runs of each model and rule at the rate whose first seed is best on "valid"; of equal ones, at the lower."""
    first = runs[runs["seed"] == 1].sort_values(["valid", "lr"], ascending=[False, True])
    best = first.drop_duplicates(["model", "rule"])[["model", "rule", "lr"]]
    return runs.merge(best, on=["model", "rule", "lr"])


def spread(runs: DataFrame, rule: str, column: str = "test") -> dict[str, list[float]]:
    """The values of each model under a rule, one per run."""
    return {name: list(some[column]) for name, some in runs[runs["rule"] == rule].groupby("model", sort=False)}


def by_distance(runs: DataFrame, rule: str = "row") -> dict[str, dict[int, list[float]]]:
    """Right answers in percent by the distance of the partner: one per run at the best rate."""
    best = best_runs(runs)
    return {
        name: {far: [run[str(far)] for run in some["by_distance"]] for far in range(1, EIGHT)}
        for name, some in best[best["rule"] == rule].groupby("model", sort=False)
    }


def frequent(part: Pictures) -> float:
    """Right answers in percent when all of a picture is painted in its most frequent color (of equal ones, the first).

    Needs the rule "row", under which the labels of a picture are the colors of its colored objects.
    """
    counts = F.one_hot(part.labels.clamp(min=0), len(PALETTE)) * (part.labels != BLANK)[..., None]
    return round(100 * float(counts.sum(dim=1).amax(dim=-1).float().mean()) / EIGHT, 1)


def costs(names: Sequence[str] = (*contest.NAMES, *contest.WIDER)) -> DataFrame:
    """Parameters, and operations for one picture, of each model of the contest."""
    import pandas as pd

    lines, image = [], torch.zeros(1, 3, SIDE, SIDE)
    for name in names:
        model = contest.build(name).eval()
        with torch.no_grad():
            operations = count_flops(partial(model, image))
        lines.append({"model": name, "parameters": parameters(model), "MFLOPs": round(operations / 1e6, 1)})
    return pd.DataFrame(lines).set_index("model")


def scoreboard(runs: DataFrame) -> DataFrame:
    """Costs, and percent right: means over the seeds at each model's best rate, and trivial baselines at the end."""
    import pandas as pd

    best, columns = best_runs(runs), dict[str, Any]()
    for rule in RULES:
        means = best[best["rule"] == rule].groupby("model")[["test", "jigsaw"]].mean()
        columns |= {rule: means["test"], f"{rule}, jigsaw": means["jigsaw"]}
    off = best[best["rule"] == "row"].groupby("model")["moved"]
    for pixels in (1, 2, 4):
        key = str(pixels)
        columns[f"{pixels} px off"] = off.agg(lambda some, key=key: sum(run[key] for run in some) / len(some))
    board = costs().join(pd.DataFrame(columns)).round(1).astype(object)
    most = frequent(contest.pictures("test", contest.ASK))
    board.loc["most frequent color", ["row", "twin"]] = most
    board.loc["any color", ["row", "twin"]] = GUESS
    return board.fillna("")


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
