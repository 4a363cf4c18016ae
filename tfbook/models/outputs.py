"""What a decoder returns."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor


class Decoded(NamedTuple):
    """What a decoder returns for the words it was given."""

    logits: Float[Tensor, "batch target vocab"]
    weights: Float[Tensor, "batch target source"] | None  # attention; None where the decoder has none of its own
    state: Any  # what the decoder has read: a `DecoderState` or a `StackCache`
