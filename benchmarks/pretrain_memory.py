"""The most memory that each process of a pretraining run has on a CPU, beside what the formula says.

    python benchmarks/pretrain_memory.py

Four processes train a small GPT replicated, sharded, and split in pairs. Freed memory goes back to the system at once,
which a run otherwise prevents (`runtime.keep_memory`), so this counts what is in use. Linux only.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tfbook import runtime
from tfbook.models.gpt import Gpt
from tfbook.parallel.counting import Peak
from tfbook.pretrain.corpus import read_vocabulary
from tfbook.pretrain.options import Options
from tfbook.pretrain.run import pretrain
from tfbook.training import distributed

PROCESSES, LAYERS, WIDTH = 4, 4, 448
SHORT: dict[str, Any] = {"corpus": "python-reference", "context": 16, "batch": 4, "warmup": 1, "evaluate_on": 64}
SHORT |= {"precision": "float32", "compile": False, "sample": 0, "layers": LAYERS, "heads": 4, "steps": 3}
KINDS: dict[str, dict[str, Any]] = {
    "replicated": {},
    "--shard": {"shard": True},
    "--tensor-parallel 2": {"tensor_parallel": 2},
}


def work(folder: Path) -> None:
    """Two runs for each kind, a small one before the large one, so that libraries have made their own buffers."""
    runtime.keep_memory = lambda *_: True  # type: ignore[assignment]
    peaks = {}
    with distributed.processes(), contextlib.redirect_stdout(io.StringIO()):
        for kind, flags in KINDS.items():
            for width in (32, WIDTH):
                with Peak() as peak:
                    pretrain(Options(**SHORT, **flags, d_model=width, out=str(folder / f"{kind} {width}")))
            peaks[kind] = peak.bytes
        (folder / f"{distributed.rank()}.json").write_text(json.dumps(peaks), encoding="utf-8")


def formulas(model: Gpt) -> dict[str, float]:
    """16 bytes for each parameter, or each process's share of them, and blocks at work or on their way.

    Replicated: two blocks of gradients. Sharded: four blocks. Split in pairs: the same two, of half blocks.
    """
    whole, block = model.parameter_count(), model.stack.blocks[0].parameter_count()
    half = whole - LAYERS * block / 2
    return dict(
        zip(KINDS, (16 * whole + 8 * block, 16 * whole / PROCESSES + 16 * block, 16 * half + 4 * block), strict=True)
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        distributed.launch(Path(__file__), name, processes=PROCESSES, environment=Peak.PRECISE)
        options = Options(**SHORT, d_model=WIDTH)
        model = Gpt(len(read_vocabulary(Path(name, f"replicated {WIDTH}"))), options.config)
        found = [json.loads(Path(name, f"{n}.json").read_text(encoding="utf-8")) for n in range(PROCESSES)]
    print(f"{model.parameter_count():,} parameters of 16 bytes, {LAYERS} blocks; MB of processes 0 to {PROCESSES - 1}")
    for kind, expected in formulas(model).items():
        peaks = ", ".join(f"{each[kind] / 1e6:.0f}" for each in found)
        print(f"{kind}: {peaks}; by formula {expected / 1e6:.0f}")


if __name__ == "__main__":
    work(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
