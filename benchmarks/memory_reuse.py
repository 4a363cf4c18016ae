"""What it saves to keep the memory of a training step for the next one (`runtime.keep_memory`).

    python benchmarks/memory_reuse.py [--rounds 5] [--out memory.json]

The translator of lesson 05, the ViT of vit_speed.py and a GPT of 4 × 128, each trained in a process of its own, with
glibc's allocator as it is and told to keep what it is given back; the two take turns. Pages are those that a step takes
from the system (minor faults), system the time that it spends there. A ratio is the middle of the rounds' ratios of a
step as it is to one with memory kept, above 1 where keeping is faster.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tfbook import runtime
from tfbook.attention import POSITIONS
from tfbook.course.experiments import machine, markdown
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.models.vit import Vit, VitConfig
from tfbook.training import optimizers

WARM_UP, STEPS = 10, 30
Loss = Callable[[], torch.Tensor]


def translator() -> tuple[nn.Module, Loss]:
    """Lesson 05's, on 64 sentences of 13 words."""
    config = Config(d_model=128, heads=8, d_ff=512, layers=2, position=POSITIONS["rotary"])
    model, words = Transformer(Encoder(530, config), Decoder(988, config, tied=False)), torch.randint(4, 500, (64, 14))
    lengths = torch.full((64,), 13)
    return model, lambda: _next_word(model(words[:, 1:], lengths, words[:, :-1]).logits, words[:, 1:])


def vit() -> tuple[nn.Module, Loss]:
    """32 × 32 pixels in patches of 4, 128 images."""
    config = VitConfig(d_model=128, heads=4, d_ff=512, layers=4, height=32, width=32, patch=4)
    model, images, labels = Vit(10, config), torch.rand(128, 3, 32, 32), torch.randint(10, (128,))
    return model, lambda: F.cross_entropy(model(images).float(), labels)


def gpt() -> tuple[nn.Module, Loss]:
    """4 blocks, 128 wide, 12 texts of 64 characters."""
    model, ids = Gpt(65, Config(d_model=128, heads=4, d_ff=512, layers=4)), torch.randint(65, (12, 65))
    return model, lambda: _next_word(model(ids[:, :-1]), ids[:, 1:])


def _next_word(logits: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), words.flatten())


MODELS = {"translator": translator, "ViT": vit, "GPT": gpt}


def measure(name: str) -> dict[str, float]:
    """Milliseconds, pages and milliseconds in the system, each of one step."""
    runtime.seed(0)
    model, loss = MODELS[name]()
    optimizer = optimizers.adamw(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.1)
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        with runtime.autocast():
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    pages, system = after.ru_minflt - before.ru_minflt, after.ru_stime - before.ru_stime
    return {"ms": 1000 * seconds / STEPS, "pages": pages / STEPS, "system": 1000 * system / STEPS}


def in_new_process(name: str, keep: bool) -> dict[str, float]:
    """The same in a process that has done nothing before."""
    command = [sys.executable, __file__, "--measure", name, *(["--keep"] if keep else [])]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def rows(rounds: int) -> list[dict[str, Any]]:
    """Two rows for each model: as it is, and with memory kept."""
    found = []
    for name in MODELS:
        pairs = [(in_new_process(name, keep=False), in_new_process(name, keep=True)) for _ in range(rounds)]
        ratio = median(plain["ms"] / kept["ms"] for plain, kept in pairs)
        for memory, each in zip(("as it is", "kept"), zip(*pairs, strict=True), strict=True):
            row = {"model": name, "memory": memory}
            row |= {key: round(median(one[key] for one in each), 1) for key in each[0]}
            found.append(row | {"ratio": round(ratio, 2) if memory == "kept" else ""})
    return found


def main() -> None:
    """Measures, prints the table and where it comes from."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a JSON file for rows, machine and date")
    parser.add_argument("--measure", choices=MODELS, help="one model in this process, as JSON")
    parser.add_argument("--keep", action="store_true", help="with --measure: keep memory")
    arguments = parser.parse_args()
    if arguments.measure:
        if arguments.keep and not runtime.keep_memory():
            parser.error("the allocator of this system cannot be told to keep memory")
        print(json.dumps(measure(arguments.measure)))
        return
    found = rows(arguments.rounds)
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    print(f"{markdown(found)}\n\n{' · '.join(where.values())}")
    if arguments.out:
        arguments.out.write_text(json.dumps({**where, "rows": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
