"""What is measured of a language model: its loss in several units, and the machine that it is held against.

Shapes: batch, time, window.
"""

from __future__ import annotations

import math
import time

import torch
from jaxtyping import Int, Int64, Integer
from torch import Tensor, nn

from tfbook import runtime
from tfbook.training.losses import next_token_loss


def windows_of(ids: Integer[Tensor, " time"], context: int, *, most: int) -> Int64[Tensor, "window longer"]:
    """Pieces of `context` + 1 ids one after the other, at most `most` of them, spread evenly over the text.

    Each begins with the last id of the one before, so that no id is guessed twice. Raises ValueError when the text is
    shorter than one.
    """
    count = (len(ids) - 1) // context
    if count < 1:
        raise ValueError(f"the text has {len(ids)} tokens; expected context + 1 = {context + 1} or more")
    starts = torch.linspace(0, count - 1, min(count, most)).round().long() * context
    return torch.stack([ids[start : start + context + 1].long() for start in starts.tolist()])


@torch.no_grad()
def score(
    model: nn.Module, windows: Int[Tensor, "window time"], bytes_of: Int[Tensor, " vocab"], *, batch: int = 32
) -> dict[str, float]:
    """Loss in nats a token, perplexity exp(loss), and bits a byte: −Σ log₂ p(token | before) / Σ bytes of the token.

    The last does not depend on how the text is cut into tokens; `bytes_of` says how many bytes each token stands for.
    """
    device, nats = next(model.parameters()).device, 0.0
    for ids in windows.split(batch):
        nats += next_token_loss(model, ids.to(device)).mean.item() * ids[:, 1:].numel()
    targets = windows[:, 1:]
    loss, read = nats / targets.numel(), bytes_of[targets].sum().item()
    return {"valid_loss": loss, "perplexity": math.exp(loss), "bits_per_byte": nats / math.log(2) / read}


def matmul_peak(*, mixed_precision: bool = True, repeats: int = 8) -> float:
    """Floating-point operations a second of this machine in a product of two large square matrices, as measured now.

    At the runtime's precision, or in float32 without `mixed_precision`; the best of several. It is what model-FLOPs
    utilisation is a share of here, since few machines reach the number on their data sheet.
    """
    device = runtime.device()
    size = 1024 if device.type == "cpu" else 8192
    a, seconds = torch.randn(size, size, device=device), []
    with runtime.autocast(mixed_precision):
        a = a.to((a[:1, :1] @ a[:1, :1]).dtype)  # so that no cast is timed
        for _ in range(repeats + 1):  # the first also sets up the kernel
            start = time.perf_counter()
            a @ a
            runtime.synchronize()
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds[1:])
