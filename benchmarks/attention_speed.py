"""Time of `tfbook.attention.MultiHeadAttention` against PyTorch's and x-transformers' layer, forward and backward.

    pip install x-transformers
    python benchmarks/attention_speed.py [--rounds 30] [--kernels] [--out speed.json]

Self-attention of 16 sequences of 256 positions, without a mask and causal, at two widths, in float32 and bfloat16
autocast. The layers take turns; a ratio is the middle of the rounds' ratios to ours, above 1 where ours is faster.
`--implementations` compares our kernels with each other instead, by length: from it comes the choice of `fastest`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from tfbook import runtime
from tfbook.attention import Causal, MultiHeadAttention, fused, softmax
from tfbook.course.cost import in_turns
from tfbook.course.experiments import machine, markdown

BATCH, LENGTH, WIDTHS = 16, 256, {128: 4, 384: 6}  # d_model → heads
KERNEL_LENGTHS = (64, 256, 1024, 2048)

Layer = Callable[[Tensor], Tensor]


def layers(d_model: int, heads: int, *, causal: bool) -> dict[str, Layer]:
    """Each layer as it is fastest: PyTorch's returns no weights, x-transformers' with and without its fused path.

    x-transformers has no biases, and so ours is there twice.
    """
    from x_transformers.x_transformers import Attention

    device = runtime.device()
    with_bias, without = (MultiHeadAttention(d_model, heads, bias=bias).to(device) for bias in (True, False))
    theirs = nn.MultiheadAttention(d_model, heads, batch_first=True).to(device)
    sizes = {"dim": d_model, "heads": heads, "dim_head": d_model // heads, "causal": causal}
    plain, flash = (Attention(**sizes, flash=flash).to(device) for flash in (False, True))
    mask = Causal() if causal else None
    later = ~Causal().dense(LENGTH, LENGTH, device) if causal else None
    return {
        "tfbook": lambda x: with_bias(x, mask=mask),
        "torch.nn": lambda x: theirs(x, x, x, need_weights=False, attn_mask=later, is_causal=causal)[0],
        "tfbook without biases": lambda x: without(x, mask=mask),
        "x-transformers": plain,
        "x-transformers, flash": flash,
    }


PEERS = {
    "torch.nn": "tfbook",
    "x-transformers": "tfbook without biases",
    "x-transformers, flash": "tfbook without biases",
}


def step(layer: Layer, x: Tensor) -> None:
    """Forward and backward, down to the gradient of the input."""
    x = x.detach().requires_grad_()
    with runtime.autocast():
        out = layer(x)
    out.float().sum().backward()


def seconds_of(candidates: dict[str, Layer], x: Tensor, rounds: int) -> dict[str, list[float]]:
    """Seconds of a step of each candidate in each round."""
    return in_turns({name: partial(step, layer, x) for name, layer in candidates.items()}, rounds)


def against_peers(rounds: int) -> list[dict[str, Any]]:
    """A row for each width, mask and peer."""
    rows = []
    for (d_model, heads), causal in product(WIDTHS.items(), (False, True)):
        runtime.seed(0)
        x = torch.randn(BATCH, LENGTH, d_model, device=runtime.device())
        seconds = seconds_of(layers(d_model, heads, causal=causal), x, rounds)
        for peer, ours in PEERS.items():
            ratio = median(theirs / own for theirs, own in zip(seconds[peer], seconds[ours], strict=True))
            milliseconds = {
                "ours ms": round(1000 * median(seconds[ours]), 2),
                "peer ms": round(1000 * median(seconds[peer]), 2),
            }
            rows.append(
                {
                    "width": d_model,
                    "mask": "causal" if causal else "none",
                    "peer": peer,
                    **milliseconds,
                    "ratio": round(ratio, 2),
                }
            )
    return rows


def between_implementations(rounds: int) -> list[dict[str, Any]]:
    """A row for each length and mask: the written-out kernel's time over the fused one's, 4 heads of width 32."""
    rows = []
    for length, causal in product(KERNEL_LENGTHS, (False, True)):
        runtime.seed(0)
        layer = {
            name: MultiHeadAttention(128, 4, implementation=implementation).to(runtime.device())
            for name, implementation in (("softmax", softmax), ("fused", fused))
        }
        mask = Causal() if causal else None
        x = torch.randn(max(1, 4096 // length), length, 128, device=runtime.device())
        seconds = seconds_of({name: partial(each, mask=mask) for name, each in layer.items()}, x, rounds)
        ratio = median(written / kept for written, kept in zip(seconds["softmax"], seconds["fused"], strict=True))
        rows.append({"length": length, "mask": "causal" if causal else "none", "softmax ÷ fused": round(ratio, 2)})
    return rows


def main() -> int:
    """Measures, prints the table and where it comes from; exit status 1 when a peer is faster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--kernels", action="store_true", help="compare our kernels with each other")
    parser.add_argument("--out", type=Path, help="a JSON file for rows, machine and date")
    arguments = parser.parse_args()
    rows = between_implementations(arguments.rounds) if arguments.implementations else against_peers(arguments.rounds)
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    print(f"{markdown(rows)}\n\n{' · '.join(where.values())}")
    if arguments.out:
        arguments.out.write_text(json.dumps({**where, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return int(any(row.get("ratio", 1.0) < 1.0 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
