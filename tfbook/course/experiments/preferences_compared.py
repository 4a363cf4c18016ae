"""Pictures of lesson 12's stored runs: PPO at several β, PPO on other rewards, and the methods side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tfbook.course.experiments.preferences_drawn import LOOKS
from tfbook.course.experiments.preferences_runs import DPO_BETA, TOLD
from tfbook.plot.house import EDGE, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame, Series

    from tfbook.course.experiments.preferences_drawn import Picture

METHODS_BETA = 0.1  # of PPO's runs that are compared with the other methods
MEASURED = ["kl", "score", "generous", "consistent", "liked"]
ORANGES = ("#803300", LOOKS["PPO"][0], "#f0a868")  # PPO at several β: the smaller, the darker
PAID = {  # who scores the stories at β = 0
    "reward model": ("the reward model", ORANGES[0], "s"),
    "reader": ("the reader herself", "#1b9e77", "o"),
    "shuffled": ("the reward model, shuffled", INK, "v"),
}
TELLING = 1000  # stories that a method tells after its training, whose passes count, too
NEW = 768  # stories that best of n chooses among


def start_of(methods: DataFrame) -> Series:
    """The storyteller's row."""
    return methods[methods["method"] == "storyteller"].iloc[0]


def mean_run(runs: DataFrame) -> DataFrame:
    """Rounds of PPO, each the mean over the runs."""
    return runs.groupby("round", as_index=False)[["compute", *MEASURED]].mean()


def _ends(runs: DataFrame) -> DataFrame:
    return runs[runs["round"] == runs["round"].max()]


def smooth(rounds: DataFrame) -> DataFrame:
    """Each round the mean of itself and its neighbors; the end, which more stories have judged, as it is."""
    mean = rounds.rolling(3, min_periods=1, center=True).mean()
    mean.iloc[-1] = rounds.iloc[-1]
    return mean


def error(share: float, stories: float) -> float:
    """Two standard errors of a share of so many separate stories, in percent."""
    return 200 * math.sqrt(share * (1 - share) / stories)


def _against_kl(axes: Axes, most: float) -> None:
    """KL up to `most`, on an axis on which a nat is wider near 0 (as in Gao et al.)."""
    axes.set_xscale("function", functions=(lambda kl: np.sqrt(np.clip(kl, 0, None)), np.square))
    axes.set_xlim(0, 1.1 * most)
    axes.set_xticks([tick for tick in (0, 1, 2, 4, 8, 16, 32, 64) if tick <= most])
    axes.set_xlabel("KL from the storyteller (nats)")


def _storyteller(axes: Axes, height: float) -> None:
    """A dashed line where every method begins."""
    axes.axhline(height, color=EDGE, linestyle="--", linewidth=1.2)
    _name(axes, "storyteller", (1, height), (-2, 9), SOFT, xycoords=("axes fraction", "data"), fontsize=10)


def _name(
    axes: Axes, text: str, at: tuple[float, float], off: tuple[float, float], color: str = INK, **more: object
) -> None:
    """A label `off` points beside a mark."""
    ha = "left" if off[0] > 0 else "right" if off[0] < 0 else "center"
    axes.annotate(text, at, off, textcoords="offset points", ha=ha, va="center", color=color, **more)


def draw_betas(ppo: DataFrame, start: Series) -> Picture:
    """PPO at several β against KL: the reward model's score, which it optimizes, beside what the reader likes."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2))
    for axes, kind, scale in zip(panels, ("score", "liked"), (1, 100), strict=True):
        for (beta, runs), color, off in zip(ppo.groupby("beta"), ORANGES, ((10, 0), (-12, 6), (-10, 4)), strict=True):
            mean, ends = smooth(mean_run(runs)), _ends(runs)
            kl, height = [0.0, *mean["kl"].clip(lower=0)], [scale * each for each in (start[kind], *mean[kind])]
            axes.plot(kl, height, color=color, marker="none")
            axes.plot(ends["kl"], scale * ends[kind], "s", color=color, markersize=4.5, alpha=0.55)
            axes.plot(kl[-1:], height[-1:], "s", color=color, markersize=10)
            _name(axes, f"β = {beta:g}", (kl[-1], height[-1]), off)
        _storyteller(axes, scale * start[kind])
        _against_kl(axes, ppo["kl"].max())
    panels[0].set(title="The proxy: the score climbs …", ylabel="reward model's score (std. dev.)")
    panels[1].set(title="… the truth climbs, then turns", ylabel="stories the reader likes (%)")
    panels[1].set_ylim(0, 130 * _ends(ppo)["liked"].max())
    means = _ends(ppo).groupby("beta")[["kl", "score", "liked"]].mean()
    found = [f"β = {beta:g}: KL {kl:.1f}, score {r:.1f}, liked {good:.0%}" for beta, kl, r, good in means.itertuples()]
    return figure, f"The reader likes {start['liked']:.0%} at first. Means of PPO's ends: {'; '.join(found)}."


def draw_control(ppo: DataFrame, control: DataFrame, start: Series) -> Picture:
    """Consistency against KL at the end of each run without a penalty, by who scored the stories."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 4))
    paid = {"reward model": ppo[ppo["beta"] == 0], **dict(list(control.groupby("reward")))}
    said = []
    for who, (name, color, marker) in PAID.items():
        ends = _ends(paid[who]).sort_values("kl")
        bars = [error(share, TOLD) for share in ends["consistent"]]
        look = {"color": color, "marker": marker, "markersize": 8, "linestyle": "none", "elinewidth": 1.2}
        look |= {"markerfacecolor": "white"} if who == "shuffled" else {}
        axes.errorbar(ends["kl"], 100 * ends["consistent"], bars, label=name, **look)
        said.append(
            name + "".join(f", {s:.0%} at {kl:.1f}" for kl, s in zip(ends["kl"], ends["consistent"], strict=True))
        )
    _storyteller(axes, 100 * start["consistent"])
    _against_kl(axes, max(_ends(runs)["kl"].max() for runs in paid.values()))
    axes.set(
        title="Consistency falls with KL, even for shuffled scores", ylabel="consistent stories (%)", ylim=(0, 100)
    )
    axes.legend(loc="lower left", fontsize=10, title="stories scored by", title_fontsize=10, alignment="left")
    return (
        figure,
        f"Consistent stories at the KL of each run's end, {start['consistent']:.0%} at first: {'; '.join(said)}.",
    )


def draw_frontier(methods: DataFrame, rounds: DataFrame, start: Series) -> Picture:
    """What the reader likes against compute and against KL: PPO's mean run, DPO, SFT, best of n."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True)
    means = methods[methods["method"] != "best of n"].groupby(["method", "beta"], dropna=False).mean(numeric_only=True)
    best = methods[methods["method"] == "best of n"].assign(compute=lambda frame: TELLING * (frame["n"] - 1))
    dpo = means.loc["DPO"].sort_values("kl")
    paths = {"best of n": best, "PPO": smooth(rounds), "DPO": dpo, "SFT": means.loc["SFT"]}
    ends = {name: path.iloc[-1] for name, path in paths.items()} | {"DPO": dpo.loc[DPO_BETA]}
    judged = {name: len(methods["seed"].dropna().unique()) * TOLD for name in paths}
    judged["best of n"] = NEW / best["n"].max()
    beside = {"DPO": (10, -8), "SFT": (-10, -7), "best of n": (-10, 2)}
    for axes, across, ppo in zip(panels, ("compute", "kl"), ((-10, 10), (10, -6)), strict=True):
        for name, path in paths.items():
            (color, marker), end, more = LOOKS[name], ends[name], TELLING if across == "compute" else 0
            if name != "DPO":
                axes.plot(more + path[across], 100 * path["liked"], color=color, marker=marker, markersize=4, alpha=0.6)
            elif across == "kl":  # at several β, which cost the same
                axes.plot(path[across], 100 * path["liked"], "o", color=color, markersize=5)
            at, bar = (more + end[across], 100 * end["liked"]), error(end["liked"], judged[name])
            axes.errorbar(*at, bar, color=color, marker=marker, markersize=10, elinewidth=1.4)
            label = f"best of {best['n'].max():.0f}" if name == "best of n" else name
            _name(axes, label, at, {**beside, "PPO": ppo}[name], color, fontweight="bold")
        _storyteller(axes, 100 * start["liked"])
    panels[0].set_xscale("log")
    panels[0].set(title="A trained policy pays once …", xlabel=f"passes to train, then write {TELLING:,} stories")
    panels[0].set(xlim=(900, 20_000), ylabel="stories the reader likes (%)", ylim=(0, 80))
    panels[0].set_xticks(ticks := [1000, 2000, 4000, 8000, 16_000], [f"{tick:,}" for tick in ticks])
    panels[0].minorticks_off()
    _against_kl(panels[1], max(path["kl"].max() for path in paths.values()))
    panels[1].set_title("… best of n stays closer to the storyteller")
    said = [f"{name} {end['liked']:.0%} at KL {end['kl']:.1f}" for name, end in ends.items()]
    return figure, f"The reader likes {start['liked']:.0%} at first, and of the methods' stories: {', '.join(said)}."
