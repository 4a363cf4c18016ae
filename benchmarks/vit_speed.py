"""Images a second that a ViT is trained on, against the SimpleViT of vit-pytorch.

    pip install vit-pytorch
    python benchmarks/vit_speed.py [--rounds 10] [--out speed.json]

Colour images of 32 × 32 pixels in patches of 4, width 128, 4 blocks with 4 heads, batches of 128. All take the same
steps (loss, gradient, clipping, AdamW) at the same precision and take turns. Ours in SimpleViT's shape reads the mean
of 64 patches and has no biases in its attention; it has the bar. The others have these biases, and one a class token, a
65th position. SimpleViT has fixed positions and two more norms. A ratio is the middle of the rounds' ratios of ours to
theirs, above 1 where ours is faster. Exit status 1 when SimpleViT is faster than ours in its shape.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tfbook import runtime
from tfbook.attention import MultiHeadAttention
from tfbook.course.cost import in_turns
from tfbook.course.experiments import machine, markdown
from tfbook.data.images import LabeledImages
from tfbook.models.vit import Vit, VitConfig
from tfbook.training import optimizers

LABELS, BATCH, STEPS = 10, 128, 5
SAME_SHAPE = "tfbook, SimpleViT's shape"
SIZES = VitConfig(d_model=128, heads=4, d_ff=512, layers=4, height=32, width=32, patch=4)


def simple_vit(sizes: VitConfig = SIZES, *, labels: int = LABELS) -> nn.Module:
    """vit-pytorch's, in the same sizes."""
    from vit_pytorch.simple_vit import SimpleViT

    blocks = {"dim": sizes.d_model, "depth": sizes.layers, "heads": sizes.heads, "mlp_dim": sizes.d_ff}
    shape = {"image_size": sizes.height, "patch_size": sizes.patch, "channels": sizes.channels}
    return SimpleViT(**blocks, **shape, dim_head=sizes.d_model // sizes.heads, num_classes=labels)


def models() -> dict[str, nn.Module]:
    """Ours in the peer's shape and in its own, and the peer."""
    found = {
        SAME_SHAPE: Vit(LABELS, replace(SIZES, tokens=0, mixer=partial(MultiHeadAttention, bias=False))),
        "tfbook, mean of the patches": Vit(LABELS, replace(SIZES, tokens=0)),
        "tfbook, class token": Vit(LABELS, SIZES),
        "SimpleViT": simple_vit(),
    }
    return {name: model.to(runtime.device()) for name, model in found.items()}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: LabeledImages) -> None:
    """`STEPS` steps on one batch."""
    for _ in range(STEPS):
        with runtime.autocast():
            loss = F.cross_entropy(model(batch.images).float(), batch.labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def speeds(rounds: int) -> dict[str, list[float]]:
    """Who → images a second in each round."""
    runtime.setup(0)
    shape = (BATCH, SIZES.channels, SIZES.height, SIZES.width)
    batch = LabeledImages(torch.rand(shape), torch.randint(LABELS, (BATCH,))).to(runtime.device())
    runs = {}
    for name, model in models().items():
        vectors = optimizers.added_vectors(model)
        optimizer = optimizers.adamw(
            model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05, vectors=vectors
        )
        runs[name] = partial(train, model.train(), optimizer, batch)
    return {name: [STEPS * BATCH / each for each in seconds] for name, seconds in in_turns(runs, rounds).items()}


def rows(speeds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """A row each; ours with their ratio to SimpleViT."""
    found = []
    for name, speed in speeds.items():
        ratio = median(own / theirs for own, theirs in zip(speed, speeds["SimpleViT"], strict=True))
        bar = "≥ 1" if name == SAME_SHAPE else ""
        found.append({"by": name, "images/s": round(median(speed)), "ratio": round(ratio, 2), "bar": bar})
    return found


def main() -> int:
    """Measures, prints the table and where it comes from; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, help="a JSON file for rows, machine and date")
    arguments = parser.parse_args()
    found = rows(speeds(arguments.rounds))
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    print(f"{markdown(found)}\n\n{' · '.join(where.values())}")
    if arguments.out:
        arguments.out.write_text(json.dumps({**where, "rows": found}, indent=1) + "\n", encoding="utf-8")
    return int(any(row["bar"] and row["ratio"] < 1.0 for row in found))


if __name__ == "__main__":
    sys.exit(main())
