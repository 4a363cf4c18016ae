"""Stored continuations of lesson 17's melodies, as a table and as sounds."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.data.sounds import from_mu_law, wav_bytes
from tfbook.lessons.state_spaces.convolution_contest import asked_melodies, unpacked
from tfbook.lessons.state_spaces.convolutions import PROMPT, RATE

if TYPE_CHECKING:
    from IPython.display import HTML
    from pandas import DataFrame

TUNE = "Dilation keeps time; ten samples keep some pitch and no rhythm"  # title of the figure
TUNE_ALT = (
    "Waveforms and spectrograms of one melody and four continuations of its first three notes. The dilated network "
    "plucks notes at even intervals, the other one at irregular times; "
    "linear prediction and the ringing string fade away."
)
SCORED = ("bits", "in tune", "a neighbor follows", "in time")
HEARD = ("the melody", "dilated", "not dilated", "linear prediction", "the string rings on")
Row = Mapping[str, Any]


def convolve(x: Tensor, w: Tensor, dilation: int) -> Tensor:
    """Σ_i w_i x_{t − (k − 1 − i)·d}: x is (time, d_in), w (kernel, d_in, d_out); zeros stand before the sound."""
    padded = F.pad(x, (0, 0, (len(w) - 1) * dilation, 0))
    return torch.stack([padded[i * dilation :][: len(x)] @ weight for i, weight in enumerate(w)]).sum(dim=0)


def melody_scores(rows: Sequence[Row]) -> DataFrame:
    """Each score of each kind: its mean over the seeds and, where there are several, the smallest and largest."""
    import pandas as pd

    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    kinds.sort(key=lambda kind: HEARD.index(kind) if kind in HEARD else len(HEARD))
    table = {}
    for kind in kinds:
        own = [row for row in rows if row["kind"] == kind]
        table[kind] = {name: _told(name, [row[name] for row in own if name in row]) for name in SCORED}
    return pd.DataFrame(table).T.rename(columns={"bits": "bits per sample"})


def _told(name: str, numbers: Sequence[float]) -> str:
    if not numbers:
        return ""
    write = "{:.2f}".format if name == "bits" else "{:.0%}".format
    mean = write(sum(numbers) / len(numbers))
    return mean if len(numbers) == 1 else f"{mean} ({write(min(numbers))} to {write(max(numbers))})"


def first_melody(rows: Sequence[Row]) -> tuple[Float[Tensor, " time"], dict[str, Float[Tensor, " longer"]]]:
    """The prompt of the first melody, and by kind the prompt with what follows, of the first seed."""
    prompt = from_mu_law(asked_melodies()[0, :PROMPT])
    first: dict[str, Tensor] = {}
    for row in rows:
        if row["kind"] in HEARD:
            first.setdefault(row["kind"], torch.cat([prompt, unpacked(row["sound"])]))
    return prompt, {kind: first[kind] for kind in HEARD}


def player(sound: Float[Tensor, " time"], rate: int = RATE) -> HTML:
    """Plays a sound in the browser: a WAV file of 8 bits, each sample twice, since some players want 8,000 a second."""
    from IPython.display import HTML

    file = base64.b64encode(wav_bytes(sound.repeat_interleave(2), 2 * rate)).decode()
    return HTML(f'<audio controls preload="none" src="data:audio/wav;base64,{file}"></audio>')
