"""Figures of lesson 12: a pair and its loss, PPO's four models, two loss curves, accuracy, and the stored runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfbook.lessons.preferences.runs import DPO_BETA, TOLD
from tfbook.lessons.preferences.study import mean_run
from tfbook.plot.house import COLORS, EDGE, GREEN, INK, MARKERS, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

    Picture = tuple[Figure, str]


LOOKS = {  # one color and marker for each method, in every figure
    "DPO": (COLORS[0], MARKERS[0]),
    "PPO": (COLORS[1], MARKERS[1]),
    "best of n": (COLORS[2], MARKERS[2]),
    "SFT": (COLORS[3], MARKERS[3]),
}

# ---- schematics ------------------------------------------------------------------------------------------------------


def draw_pair(chosen: float, rejected: float) -> Picture:
    """Two stories pass through one reward model; the difference of their scores gives a probability and a loss."""
    from tfbook.plot import Schematic

    picture = Schematic("One model scores both stories; only the difference counts", gap=(20, 22))
    p = 1 / (1 + math.exp(rejected - chosen))
    first = picture.tokens(["…", "gave", "it", "to", "Sam"], (0, 0), "stream", label="preferred")
    second = picture.tokens(["…", "cried", "all", "the", "way"], (0, 1), "stream", label="rejected")
    scores = []
    for row, (words, reward) in enumerate(((first, chosen), (second, rejected))):
        model = picture.box("reward model", (1, row), "parameter", note="same weights")
        scores.append(picture.box(f"r = {reward:g}", (2, row), "value"))
        picture.arrow(words, model)
        picture.arrow(model, scores[-1])
    difference = picture.box(
        f"σ({chosen:g} − {rejected:g}) = {p:.2f}",
        (3, (0, 1)),
        "weight",
        note="probability that\nthe preferred one wins",
    )
    loss = picture.box(f"−ln {p:.2f} = {-math.log(p):.2f}", (4, (0, 1)), note="loss (nats)")
    for score in scores:
        picture.arrow(score, difference)
    picture.arrow(difference, loss)
    alt = (
        f"A preferred and a rejected story pass through the same reward model, which gives {chosen:g} and "
        f"{rejected:g}. The sigmoid of the difference is {p:.2f}, the loss −ln {p:.2f} = {-math.log(p):.2f}."
    )
    return picture.figure(), alt


def draw_four() -> Picture:
    """Policy and critic are trained, reference and reward model are frozen; PPO's steps go to the former two."""
    from tfbook.plot import Schematic

    picture = Schematic("Four models around one story: two learn, two are frozen", gap=(34, 20))
    policy = picture.box("policy π", (0, (0, 3)), "parameter", note="writes; is trained", width=120)
    story = picture.box("story", (1, (0, 3)), "stream", note="sampled tokens", width=110)
    picture.arrow(policy, story, "writes")
    reward = picture.box("reward model r", (2, 0), "plain", note="frozen", width=150)
    reference = picture.box(r"reference $\pi_\mathrm{ref}$", (2, 1), "plain", note="frozen: the storyteller", width=150)
    again = picture.box("policy π", (2, 2), "parameter", note="the same model", width=150)
    critic = picture.box("critic V", (2, 3), "parameter", note="trained", width=150)
    score = picture.box("score of the story", (3, 0), "value", width=150)
    kl = picture.box("KL of each token", (3, (1, 2)), "value", width=150)
    value = picture.box("expected reward", (3, 3), "value", note="before each token", width=150)
    update = picture.box("PPO", (4, (0, 3)), "weight", note="advantages,\nclipped steps", width=110)
    steps = picture.box("gradient steps", (2, 4), "weight", note="then the next round", width=150)
    for model in (reward, reference, again, critic):
        picture.arrow(story, model, sides=("right", "left"))
    for model, out in ((reward, score), (reference, kl), (again, kl), (critic, value)):
        picture.arrow(model, out)
    picture.arrow(score, update)
    picture.arrow(kl, update)
    picture.arrow(value, update, sides=("right", "bottom"), lane=-24)
    picture.arrow(update, steps, role="weight", sides=("bottom", "right"))
    picture.arrow(steps, policy, role="weight", sides=("left", "bottom"))
    picture.arrow(steps, critic, role="weight", sides=("top", "bottom"))
    alt = (
        "The policy writes a story, which four models read: the frozen reward model gives it a score, the frozen "
        "reference and the policy give the KL of each token, and the critic the reward it expects. PPO turns these "
        "into gradient steps, which go back to the policy and the critic; then the next round begins."
    )
    return picture.figure(), alt


# ---- losses as curves ------------------------------------------------------------------------------------------------


def draw_clip(clip: float) -> Picture:
    """The clipped objective of one token against the probability ratio, for advantages of 1 and −1."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.4), sharex=True)
    ratio = np.linspace(0.4, 1.6, 121)
    for axes, advantage in zip(panels, (1, -1), strict=True):
        plain, cut = ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage
        axes.plot(ratio, plain, color=SOFT, linestyle="--", linewidth=1.4, marker="none")
        axes.plot(ratio, np.minimum(plain, cut), color=LOOKS["PPO"][0], marker="none")
        axes.plot([1], [advantage], color=LOOKS["PPO"][0], marker="o", linestyle="none")
        for edge in (1 - clip, 1 + clip):
            axes.axvline(edge, color=EDGE, linestyle=":", linewidth=1)
        word = "good" if advantage > 0 else "bad"
        limit = f"beyond {1 + clip:g}" if advantage > 0 else f"below {1 - clip:g}"
        axes.set(
            title=f"A {word} token (A = {advantage}): flat {limit}".replace("-", "−"),
            xlabel=r"ratio $\pi\,/\,\pi_\mathrm{old}$",
        )
        axes.set_xticks([0.4, 1 - clip, 1, 1 + clip, 1.6])
    panels[0].set_ylabel("objective")
    panels[0].text(1.5, 1.52, "without the clip", color=SOFT, ha="right", va="bottom", fontsize=10)
    alt = (
        f"The objective follows the ratio, but becomes flat beyond {1 + clip:g} for an advantage of 1, and below "
        f"{1 - clip:g} for an advantage of −1."
    )
    return figure, alt


def draw_gap(betas: Sequence[float]) -> Picture:
    """DPO's loss of one pair against how much more the policy has raised the chosen answer than the rejected one."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.4))
    gap = np.linspace(-7, 10, 201)
    for beta, style, at in zip(betas, ("-", "--"), (-5.6, -6.4), strict=True):
        axes.plot(gap, np.log1p(np.exp(-beta * gap)), color=LOOKS["DPO"][0], linestyle=style, marker="none")
        height = math.log1p(math.exp(-at * beta))
        axes.text(at + 0.3, height + 0.15, f"β = {beta:g}", color=SOFT, fontsize=10, va="center")
    axes.plot([0], [math.log(2)], color=LOOKS["DPO"][0], marker="o", linestyle="none")
    axes.annotate(
        "start: policy = reference, ln 2",
        (0, math.log(2)),
        (1.2, math.log(2) + 1.2),
        color=SOFT,
        fontsize=10,
        arrowprops={"arrowstyle": "-", "color": EDGE},
    )
    axes.set(title="A small β asks for a larger gap", ylabel="loss (nats)", xlim=(-7.3, 10.3))
    axes.set_xlabel(r"$\ln \pi/\pi_\mathrm{ref}$ of the chosen minus that of the rejected (nats)")
    axes.set_ylim(bottom=0)
    axes.set_xticks([-6, -3, 0, 3, 6, 9])
    found = ", ".join(f"{math.log1p(math.exp(-3 * beta)):.2f} at a gap of 3 for β = {beta:g}" for beta in betas)
    return figure, f"Two losses that fall from the left, pass ln 2 at 0, and flatten out toward 0: {found}."


# ---- accuracy and training -------------------------------------------------------------------------------------------


def draw_accuracy(frame: DataFrame) -> Picture:
    """The reward model's accuracy on held-out pairs by number of better stories in training, and as many worse."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    means = frame.groupby("stories")["accuracy"].mean()
    axes.plot(means.index, 100 * means, color=COLORS[0], marker="none")
    axes.plot(frame["stories"], 100 * frame["accuracy"], color=COLORS[0], linestyle="none", marker="o", markersize=5)
    axes.axhline(50, color=EDGE, linestyle="--", linewidth=1.2)
    axes.text(max(means.index), 51, "a coin", color=SOFT, ha="right", va="bottom", fontsize=10)
    axes.set(
        xscale="log", xlabel="stories of each kind in training (logarithmic)", ylabel="right order, held-out pairs (%)"
    )
    axes.set_xticks(list(means.index), [str(n) for n in means.index])
    axes.minorticks_off()
    axes.set(
        title=f"{max(means.index)} stories of each kind are enough for {100 * means.iloc[-1]:.0f}%", ylim=(45, 102)
    )
    found = ", ".join(f"{n} stories {share:.0%}" for n, share in means.items())
    return figure, f"Mean accuracy of the reward model on held-out pairs: {found}."


def draw_margins(chosen: Sequence[float], rejected: Sequence[float], window: int = 9) -> Picture:
    """How far DPO has moved the log-probability of both stories of a pair: batches faint, running mean bold."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 3.4))
    for values, name, color in ((chosen, "chosen", COLORS[0]), (rejected, "rejected", COLORS[3])):
        around = [values[max(0, i - window // 2) : i + window // 2 + 1] for i in range(len(values))]
        means = [sum(near) / len(near) for near in around]
        steps = range(1, len(values) + 1)
        axes.plot(steps, values, color=color, marker="none", alpha=0.35, linewidth=1)
        axes.plot(steps, means, color=color, marker="none")
        axes.text(len(values) + 0.6, means[-1], name, color=color, va="center")
    axes.axhline(0, color=EDGE, linestyle="--", linewidth=1.2)
    axes.set(xlabel="step", ylabel=r"$\ln \pi/\pi_\mathrm{ref}$ of a story (nats)", xlim=(0, 1.14 * len(chosen)))
    axes.set_title("The two stories of a pair move apart")
    last = [sum(values[-window:]) / len(values[-window:]) for values in (chosen, rejected)]
    alt = f"Log-ratios by step; over the last steps the chosen average {last[0]:.1f}, the rejected {last[1]:.1f} nats."
    return figure, alt


# ---- stored runs against KL ------------------------------------------------------------------------------------------

ORANGES = ("#803300", LOOKS["PPO"][0], "#d9772a")  # PPO at several β: the smaller, the darker
PAID = {  # who scores the stories at β = 0
    "reward model": ("the reward model", ORANGES[0], "s"),
    "reader": ("the reader herself", GREEN, "o"),
    "shuffled": ("the reward model, shuffled", INK, "v"),
}
TELLING = 1000  # stories that a method writes after training, whose passes count, too
NEW = 768  # stories from which best of n chooses


def _ends(runs: DataFrame) -> DataFrame:
    return runs[runs["round"] == runs["round"].max()]


def smooth(rounds: DataFrame) -> DataFrame:
    """Running mean of three rounds; the last round, evaluated on more stories, is left unchanged."""
    mean = rounds.rolling(3, min_periods=1, center=True).mean()
    mean.iloc[-1] = rounds.iloc[-1]
    return mean


def error(share: float, stories: float) -> float:
    """Two standard errors of a share among this many independent stories, in percent."""
    return 200 * math.sqrt(share * (1 - share) / stories)


def _against_kl(axes: Axes, most: float) -> None:
    """An axis of KL up to `most` that widens near 0, by the square root (as in Gao et al.)."""
    axes.set_xscale("function", functions=(lambda kl: np.sqrt(np.clip(kl, 0, None)), np.square))
    axes.set_xlim(0, 1.1 * most)
    axes.set_xticks([tick for tick in (0, 1, 2, 4, 8, 16, 32, 64) if tick <= most])
    axes.set_xlabel("KL from the storyteller (nats)")


def _storyteller(axes: Axes, height: float) -> None:
    """A dashed line at the starting point of every method."""
    axes.axhline(height, color=EDGE, linestyle="--", linewidth=1.2)
    _name(axes, "storyteller", (1, height), (-2, 9), SOFT, xycoords=("axes fraction", "data"), fontsize=10)


def _name(
    axes: Axes, text: str, at: tuple[float, float], off: tuple[float, float], color: str = INK, **more: Any
) -> None:
    """A label `off` points away from a mark."""
    ha = "left" if off[0] > 0 else "right" if off[0] < 0 else "center"
    axes.annotate(text, at, off, textcoords="offset points", ha=ha, va="center", color=color, **more)


def draw_betas(ppo: DataFrame, start: Series) -> Picture:
    """PPO at several β against KL: the score that it optimizes, beside the share of stories that the reader likes."""
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
        look: dict[str, Any] = {
            "color": color,
            "marker": marker,
            "markersize": 8,
            "linestyle": "none",
            "elinewidth": 1.2,
        }
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
    """Share that the reader likes against compute and against KL: PPO's mean run, DPO, SFT, best of n."""
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
            elif across == "kl":  # several β, at the same cost
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
