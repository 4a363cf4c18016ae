"""Figures of lesson 19's sounds: a chord, from a wave to tokens, ten digits, the contest, and a number read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tfbook.data.spoken import DIGITS, RATE
from tfbook.models.audio import cut_into_pieces, log_mel, mel_bands, spectrogram
from tfbook.plot.house import COLORS, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tfbook.lessons.modalities.sound import ReadBack

SHADES = "magma"
SOUND_ALTS = {  # of the figures that answer predictions: a lesson's code does not give them away
    "digits": (
        "Share of right digits of 40 held-out speakers. A recurrent network and strips of all bands with attention are "
        "at the top, then a linear model on average and spread; strips without attention, a CNN and squares are behind."
    ),
}


def _bare(axes: Axes, title: str = "", size: float = 10) -> None:
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.set_title(title, fontsize=size, fontweight="normal", loc="center")


# ---- a chord ---------------------------------------------------------------------------------------------------------


def draw_chord(
    sound: Float[Tensor, " time"],
    pitches: Mapping[str, float],
    energies: Callable[[Tensor, int, int], Tensor] = spectrogram,
    *,
    windows: Sequence[int] = (256, 1024),
    top: float = 700,
) -> Figure:
    """A part of the wave, and `energies` up to `top` Hz by frames of each length, with the notes' pitches named."""
    import matplotlib.pyplot as plt

    figure, (left, *panels) = plt.subplots(1, 1 + len(windows), figsize=(10.4, 3.1), dpi=70)
    few = sound[: int(0.04 * RATE)]
    left.plot(1000 * np.arange(len(few)) / RATE, few, color=COLORS[0], marker="none", linewidth=1.2)
    left.set(xlabel="milliseconds", ylabel="amplitude")
    left.set_title("the wave", fontsize=11)
    for axes, window in zip(panels, windows, strict=True):
        energy = energies(sound, window, 64).add(1e-6).log()
        bins = round(top / (RATE / window))
        extent = (0.0, len(sound) / RATE, 0.0, bins * RATE / window)
        axes.imshow(
            energy[:bins], origin="lower", aspect="auto", cmap=SHADES, interpolation="nearest", vmin=-2, extent=extent
        )
        axes.grid(visible=False)
        axes.set(xlabel="seconds", ylabel="Hz")
        axes.set_title(f"frames of {window:,} samples", fontsize=11)
    for name, pitch in pitches.items():
        axes.annotate(
            f"{name} {pitch:.0f}", (extent[1], pitch), xytext=(5, 0), textcoords="offset points",
            va="center", color=INK, fontsize=9.5, annotation_clip=False,
        )  # fmt: skip
    figure.suptitle("A long frame shows the three notes, a short one a blur", x=0.01, ha="left", fontsize=12,
                    fontweight="bold")  # fmt: skip
    return figure


# ---- from a wave to tokens -------------------------------------------------------------------------------------------


def draw_from_wave_to_tokens(sound: Float[Tensor, " time"], piece: tuple[int, int], title: str) -> Figure:
    """The wave, |DFT|² of each frame, the triangles that gather its bins, the bands, and the pieces: the tokens."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 5, figsize=(12, 2.9), width_ratios=(1, 1, 0.6, 1, 1.25), dpi=72)
    wave, energies, weights, mels, tokens = panels
    seconds, energy, bands = len(sound) / RATE, spectrogram(sound).add(1e-6).log(), log_mel(sound)
    wave.plot(np.arange(len(sound)) / RATE, sound, color=COLORS[0], marker="none", linewidth=0.5)
    wave.set(title="1  wave", xlabel="seconds")
    look = {"origin": "lower", "aspect": "auto", "cmap": SHADES, "interpolation": "nearest", "vmin": -6}
    energies.imshow(energy, **look, extent=(0, seconds, 0, RATE / 2000))
    energies.set(title="2  spectrogram", xlabel="seconds", ylabel="kHz")
    _triangles(weights, len(bands))
    mels.imshow(bands, **look)
    mels.set(title="4  mel bands", xlabel="frame", ylabel="band")
    tokens.imshow(_apart(bands, piece), **look)
    _bare(tokens)
    tokens.set_title(f"5  {len(cut_into_pieces(bands, piece))} tokens", loc="left")
    tokens.set_xlabel(f"{piece[0]} bands × {piece[1]} frames each")
    for axes in panels:
        axes.grid(visible=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _triangles(axes: Axes, count: int) -> None:
    """The weights of every fourth band over frequency, which runs upward as in the spectrogram."""
    hz = torch.linspace(0, RATE / 2, 1001)
    for weights in mel_bands(count, len(hz), RATE)[3::4]:
        there = weights > 0
        axes.fill_betweenx(hz[there] / 1000, weights[there], color=COLORS[1], alpha=0.5)
        axes.plot(weights[there], hz[there] / 1000, color=COLORS[1], marker="none", linewidth=0.7)
    axes.set(title="3  triangles", xlabel="weight", ylim=(0, RATE / 2000), xlim=(0, 1.05), xticks=(0, 1))


def _apart(bands: Float[Tensor, "mel frame"], piece: tuple[int, int], gap: int = 1) -> np.ndarray:
    """The pieces with a gap of nothing between them."""
    height, width = (side // part for side, part in zip(bands.shape, piece, strict=True))
    apart = torch.full((bands.shape[0] + gap * (height - 1), bands.shape[1] + gap * (width - 1)), torch.nan)
    for row in range(height):
        for column in range(width):
            top, left = row * (piece[0] + gap), column * (piece[1] + gap)
            cut = bands[row * piece[0] :][: piece[0], column * piece[1] :][:, : piece[1]]
            apart[top : top + piece[0], left : left + piece[1]] = cut
    return apart.numpy()


def draw_voices(sounds: Mapping[str, Float[Tensor, "digit time"]]) -> Figure:
    """The mel bands of the ten digits, a row for each voice."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(len(sounds), 10, figsize=(11, 1.35 * len(sounds) + 0.5), dpi=75)
    for number, (row, (name, clips)) in enumerate(zip(np.atleast_2d(panels), sounds.items(), strict=True)):
        for digit, (axes, clip) in enumerate(zip(row, clips, strict=True)):
            axes.imshow(log_mel(clip), origin="lower", aspect="auto", cmap=SHADES, interpolation="nearest", vmin=-6)
            _bare(axes, "" if number else DIGITS[digit], 12)
        row[0].set_ylabel(name, fontsize=9.5)
    figure.suptitle("Ten words, two mouths: the same paths, moved", x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


# ---- the contest -----------------------------------------------------------------------------------------------------


def draw_digit_contest(rows: DataFrame, *, ours: Sequence[str]) -> Figure:
    """The share of right digits of each model: a colored dot for the mean, small ones for seeds; `ours` in blue."""
    import matplotlib.pyplot as plt

    means = rows.groupby("model").right.mean().sort_values()
    figure, axes = plt.subplots(figsize=(8, 0.34 * len(means) + 1.3), dpi=80)
    for y, (name, mean) in enumerate(means.items()):
        color = COLORS[0] if name in ours else COLORS[1]
        axes.plot([100 * mean], [y], "o", color=color, markersize=9)
        seeds = 100 * rows[rows.model == name].right
        if len(seeds) > 1:
            axes.plot(seeds, [y] * len(seeds), "o", color=INK, markersize=3)
        axes.text(100.5, y, f"{100 * mean:.1f}", va="center", color=color, fontsize=9.5)
    axes.set_yticks(range(len(means)), list(means.index))
    axes.set(
        title="A recurrent network hears as well, with half the parameters",
        xlabel="% of digits right, 40 held-out speakers",
        xlim=(75, 103),
    )
    return figure


# ---- a number read back ----------------------------------------------------------------------------------------------


def draw_read_back(result: ReadBack) -> Figure:
    """For each digit its mel bands and, below, the probability of each of the ten."""
    import matplotlib.pyplot as plt

    count = len(result.said)
    figure, panels = plt.subplots(
        2, count, figsize=(max(2.1 * count, 4.2), 3.6), squeeze=False, height_ratios=(1.2, 1), dpi=90
    )
    for column, (said, heard, sound, chances) in enumerate(
        zip(result.said, result.heard, result.sounds, result.chances, strict=True)
    ):
        above, below = panels[:, column]
        above.imshow(log_mel(sound), origin="lower", aspect="auto", cmap=SHADES, interpolation="nearest", vmin=-6)
        _bare(above, f"said {said}")
        below.bar(range(10), chances, color=COLORS[0] if said == heard else COLORS[1])
        below.set(ylim=(0, 1.05), xticks=range(10), yticks=[0, 0.5, 1] if not column else [])
        below.tick_params(labelsize=8.5)
        below.set_title(f"heard {heard}", fontsize=10, loc="center")
    panels[1, 0].set_ylabel("probability", fontsize=9.5)
    figure.suptitle(f"It wrote down {result.heard}", x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure
