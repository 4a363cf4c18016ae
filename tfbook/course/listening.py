"""Sounds in a notebook: a player that needs no file beside the page."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from tfbook.data.sounds import wav_bytes

if TYPE_CHECKING:
    from IPython.display import HTML


def audio_player(sound: Float[Tensor, " time"], rate: int = 8000) -> HTML:
    """Plays a sound in the browser: 8 bits per sample, so 11 KB per second at 8,000 samples."""
    from IPython.display import HTML

    file = base64.b64encode(wav_bytes(sound, rate)).decode()
    return HTML(f'<audio controls preload="none" src="data:audio/wav;base64,{file}"></audio>')
