"""Figures of lesson 17's convolutions: what a stack of filters sees, continued melodies, orders of pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tfbook.plot.house import COLORS, FAINT, GREEN, INK, MARKERS, SOFT, Method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {  # one look for each way to continue a melody
    "dilated": Method(COLORS[0], MARKERS[0]),
    "not dilated": Method(COLORS[1], MARKERS[1]),
    "linear prediction": Method(COLORS[2], MARKERS[2]),
    "the string rings on": Method(GREEN, MARKERS[3]),
    "the melody": Method(INK, "v"),
}


def _bare(axes: Axes) -> None:
    """No ticks, no grid, no frame."""
    axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


# ---- what a stack of filters sees ------------------------------------------------------------------------------------


def _connections(axes: Axes, kernel: int, dilations: Sequence[int], strides: Sequence[int], width: int) -> int:
    """Layers of dots, the inputs at the bottom, and lines from the last output to all that it depends on."""
    steps = [1]
    for stride in strides:
        steps.append(steps[-1] * stride)
    last = width - 1
    for layer, step in enumerate(steps):
        places = np.arange(last % step, width, step)
        axes.plot(places, np.full(len(places), layer), "o", color="#d5dae0", markersize=7, linestyle="none")
    reached = {last}
    for layer in range(len(dilations), 0, -1):
        below: set[int] = set()
        for place in sorted(reached):
            for i in range(kernel):
                source = place - i * dilations[layer - 1] * steps[layer - 1]
                below.add(source)
                axes.plot([place, source], [layer, layer - 1], color=COLORS[0], linewidth=1.3, marker="", zorder=1)
        axes.plot(sorted(reached), [layer] * len(reached), "o", color=COLORS[0], markersize=7, linestyle="none")
        reached = below
    axes.plot(sorted(reached), [0] * len(reached), "o", color=COLORS[1], markersize=8, linestyle="none")
    return last - min(reached) + 1


def draw_receptive_fields(width: int = 16) -> Figure:
    """Three layers of filters with two inputs each: plain, with dilations that double, and with strides."""
    import matplotlib.pyplot as plt

    kinds = {
        "dilations 1, 1, 1": ((1, 1, 1), (1, 1, 1)),
        "dilations 1, 2, 4": ((1, 2, 4), (1, 1, 1)),
        "strides 2, 2, 2": ((1, 1, 1), (2, 2, 2)),
    }
    figure, panels = plt.subplots(1, 3, figsize=(11.4, 3.2))
    for axes, (name, (dilations, strides)) in zip(panels, kinds.items(), strict=True):
        seen = _connections(axes, 2, dilations, strides, width)
        outputs = width // int(np.prod(strides))
        _bare(axes)
        axes.set(yticks=range(4), yticklabels=["input", "layer 1", "layer 2", "layer 3"], ylim=(-0.6, 3.4))
        axes.set_title(name, loc="center", fontweight="normal", fontsize=11)
        axes.set_xlabel(f"sees {seen} inputs · {outputs} outputs for {width} inputs", fontsize=10, color=SOFT)
    figure.suptitle("Dilation sees as far as a stride and keeps every output", fontsize=12, fontweight="bold")
    figure.set_label("schematic")
    return figure


def draw_two_filters(paths: Sequence[Tensor]) -> Figure:
    """How many paths lead from each pixel to the middle one: through one layer of 3 × 3, and through two."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(paths), figsize=(6.4, 3.1))
    titles = ("one layer, 3 × 3: 9 weights", "two layers, 3 × 3: 18 weights", "one layer, 5 × 5: 25 weights")
    for axes, counts, title in zip(panels, paths, titles, strict=False):
        axes.imshow(counts, cmap="Blues", vmin=0, vmax=12)
        for (row, column), number in np.ndenumerate(counts.numpy()):
            if number:
                axes.text(column, row, int(number), ha="center", va="center", color="white" if number > 6 else INK)
        _bare(axes)
        axes.set_title(title, loc="center", fontweight="normal", fontsize=10.5)
    figure.suptitle("3 × 3 twice sees 5 × 5", fontsize=12, fontweight="bold")
    return figure


# ---- sounds ----------------------------------------------------------------------------------------------------------


def draw_sounds(sounds: Mapping[str, Tensor], rate: int, prompt: int, note: int, title: str) -> Figure:
    """Each sound as a waveform beside its spectrogram; a line where the prompt ends, ticks at the beats."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(len(sounds), 2, figsize=(9.2, 1.15 * len(sounds) + 0.7), dpi=75, sharex=True)
    for (left, right), (name, sound) in zip(panels, sounds.items(), strict=True):
        seconds = np.arange(len(sound)) / rate
        left.plot(seconds, sound, color=METHODS[name].color, linewidth=0.8, marker="")
        left.set(ylim=(-1, 1), yticks=[])
        left.set_ylabel(name.replace(" ", "\n"), rotation=0, ha="right", va="center", color=METHODS[name].color)
        right.specgram(
            sound.numpy() + 1e-5 * np.cos(np.arange(len(sound))),
            NFFT=256,
            Fs=rate,
            noverlap=192,
            cmap=plt.get_cmap("Greys", 8),  # few shades: a small file
            vmin=-90,
            vmax=-25,
            interpolation="nearest",
        )
        right.set(ylim=(0, 1000), yticks=(0, 500, 1000))
        for axes in (left, right):
            axes.grid(visible=False)
            axes.axvline(prompt / rate, color=COLORS[3], linewidth=1.2, linestyle="--")
            axes.set_xticks(np.arange(0, len(sound) + 1, 2 * note) / rate)
    panels[0, 0].set_title("waveform", loc="center", fontweight="normal", fontsize=10.5)
    panels[0, 1].set_title("spectrogram, Hz", loc="center", fontweight="normal", fontsize=10.5)
    for axes in panels[-1]:
        axes.set_xlabel("seconds")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    return figure


# ---- orders of pixels ------------------------------------------------------------------------------------------------


def draw_orders(size: int = 5) -> Figure:
    """The order in which pixels are generated, and two in which a recurrent network can read a known image."""
    import matplotlib.pyplot as plt

    row, column = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    orders = {
        "to generate: raster order": row * size + column,
        "Row LSTM's states": row,
        "Diagonal BiLSTM's states": row + column,
    }
    figure, panels = plt.subplots(1, 3, figsize=(8.4, 3.1))
    for axes, (name, order) in zip(panels, orders.items(), strict=True):
        axes.imshow(order, cmap="Blues", vmin=-0.4 * float(order.max()), vmax=1.6 * float(order.max()))
        for (i, j), number in np.ndenumerate(order.numpy()):
            axes.text(j, i, int(number) + 1, ha="center", va="center", color=INK, fontsize=10)
        _bare(axes)
        axes.set_title(name, loc="center", fontweight="normal", fontsize=10.5)
        axes.set_xlabel(f"{int(order.max()) + 1} steps", fontsize=10, color=SOFT)
    figure.suptitle("What has the same number is computed together", fontsize=12, fontweight="bold")
    return figure


def draw_blind_spot(sights: Mapping[str, Tensor], place: tuple[int, int]) -> Figure:
    """For each model, the pixels on which the one at `place` depends; red: earlier in raster order but never seen."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import to_rgb

    figure, panels = plt.subplots(1, len(sights), figsize=(3.0 * len(sights), 3.9))
    for axes, (name, sight) in zip(panels, sights.items(), strict=True):
        rows, columns = sight.shape
        number = torch.arange(rows * columns).view(rows, columns)
        earlier = number < number[place]
        picture = np.empty((rows, columns, 3))
        picture[:] = to_rgb(FAINT)
        picture[(earlier & (sight > 0)).numpy()] = to_rgb("#8fb8dd")
        picture[(earlier & (sight == 0)).numpy()] = to_rgb("#e59a86")
        axes.imshow(picture)
        axes.set_xticks(np.arange(columns + 1) - 0.5, labels=[])
        axes.set_yticks(np.arange(rows + 1) - 0.5, labels=[])
        axes.tick_params(length=0)
        axes.grid(color="white", linewidth=1)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.plot(place[1], place[0], "o", color=INK, markersize=7)
        missed = int((earlier & (sight == 0)).sum())
        axes.set_title(name, loc="center", fontweight="normal", fontsize=10.5)
        axes.set_xlabel(f"misses {missed} of {int(earlier.sum())}", fontsize=10, color=SOFT)
    figure.suptitle("Masked filters leave a blind spot that depth does not fill", fontsize=12, fontweight="bold")
    return figure
