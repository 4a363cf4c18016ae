"""The output of a decoder."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor


class Decoded(NamedTuple):
    """Logits for the given words, with attention weights and the decoder's state."""

    logits: Float[Tensor, "batch target vocab"]
    weights: Float[Tensor, "batch target source"] | None  # attention; None for a decoder without recorded attention
    state: Any  # after the given words: a `DecoderState` or a `StackCache`
