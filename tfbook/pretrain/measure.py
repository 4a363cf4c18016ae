"""Measurements: the loss of a language model in several units, and the peak speed of the machine.

Shapes: batch, time, window.
"""

from __future__ import annotations

import math
import time

import torch
from jaxtyping import Float, Int, Int64, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime
from tfbook.checks import check_positive


def evaluation_windows(ids: Integer[Tensor, " time"], context: int, *, limit: int) -> Int64[Tensor, "window longer"]:
    """Windows of `context` + 1 ids, one after the other, or at most `limit` of them, spread evenly over the text.

    Each starts with the last id of the one before, so that no id is predicted twice. Raises ValueError when the text is
    shorter than a window, and when `context` or `limit` is less than 1.
    """
    check_positive(context=context, limit=limit)
    count = (len(ids) - 1) // context
    if count < 1:
        raise ValueError(f"the text has {len(ids)} tokens; expected context + 1 = {context + 1} or more")
    starts = torch.linspace(0, count - 1, min(count, limit)).round().long() * context
    return torch.stack([ids[start : start + context + 1].long() for start in starts.tolist()])


@torch.no_grad()
def score(
    model: nn.Module, windows: Int[Tensor, "window time"], token_bytes: Int[Tensor, " vocab"], *, batch: int = 32
) -> dict[str, float]:
    """Loss in nats per token, perplexity exp(loss), and bits per byte: −Σ log₂ p(token | before) / Σ bytes of a token.

    Bits per byte can be compared between tokenizers; `token_bytes` is the number of bytes of each token. Special
    tokens, which have 0 bytes, count in the loss and not in the bits, since other tokenizers do not have them.
    """
    device, sizes = next(model.parameters()).device, token_bytes[windows[:, 1:].long()]
    losses = torch.cat([_token_losses(model, ids.to(device)).cpu() for ids in windows.split(batch)]).double()
    loss, text = losses.mean().item(), losses[sizes > 0].sum().item()
    perplexity = torch.tensor(loss, dtype=torch.float64).exp().item()  # inf where `math.exp` would raise
    bits_per_byte = text / math.log(2) / sizes.sum().item() if sizes.any() else math.nan
    return {"valid_loss": loss, "perplexity": perplexity, "bits_per_byte": bits_per_byte}


def _token_losses(model: nn.Module, ids: Int[Tensor, "window time"]) -> Float[Tensor, "window predicted"]:
    """−log p of each id but the first, given those before it, in nats."""
    return F.cross_entropy(model(ids[:, :-1]).float().mT, ids[:, 1:].long(), reduction="none")


def matmul_peak(*, mixed_precision: bool = True, repeats: int = 8) -> float:
    """Floating-point operations per second in a product of two large square matrices, measured on this machine.

    It uses the runtime's precision, or float32 without `mixed_precision`, and takes the best of several products.
    Model-FLOPs utilization is relative to it, since few machines reach the number on their data sheet.
    """
    device = runtime.device()
    size = 8192 if device.type == "cuda" else 1024
    a, seconds = torch.randn(size, size, device=device), []
    with runtime.autocast(mixed_precision):
        a = a.to((a[:1, :1] @ a[:1, :1]).dtype)  # so that the cast is not timed
        for _ in range(repeats + 1):  # the first one includes a setup
            start = time.perf_counter()
            a @ a
            runtime.synchronize()
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds[1:])
