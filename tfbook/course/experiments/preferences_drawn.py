"""Pictures of lesson 12: a pair and its loss, four models, two loss curves, the reward model's and DPO's training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfbook.plot.house import COLORS, EDGE, MARKERS, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    Picture = tuple[Figure, str]  # and its alt text

LOOKS = {  # one color and marker for each method, in every figure
    "DPO": (COLORS[0], MARKERS[0]),
    "PPO": (COLORS[1], MARKERS[1]),
    "best of n": (COLORS[2], MARKERS[2]),
    "SFT": (COLORS[3], MARKERS[3]),
}

# ---- schematics ----------------------------------------------------------------------------------------------------


def draw_pair(chosen: float, rejected: float) -> Picture:
    """Two stories pass through one reward model; the difference of its two numbers becomes a probability and a loss."""
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
    """Policy and critic are trained, reference and reward model are frozen; PPO's steps go back to the first two."""
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


# ---- losses as curves ----------------------------------------------------------------------------------------------


def draw_clip(clip: float) -> Picture:
    """The clipped objective of one token against the ratio of probabilities, for advantages of 1 and −1."""
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
    """DPO's loss of one pair against how much further the policy has raised the chosen answer than the rejected."""
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
    return figure, f"Two losses that fall from the left, pass ln 2 at 0 and flatten out toward 0: {found}."


# ---- accuracy and training -----------------------------------------------------------------------------------------


def draw_accuracy(frame: DataFrame) -> Picture:
    """The reward model's accuracy on held-out pairs against the better stories it has seen, and as many worse."""
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
    """How far DPO has moved the log-probability of both stories of a pair: each batch faint, a running mean bold."""
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
