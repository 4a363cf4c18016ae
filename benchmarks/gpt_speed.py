"""Tokens a second of a GPT, in training and in speaking, against nanoGPT, Hugging Face and x-transformers.

    git clone https://github.com/karpathy/nanoGPT && pip install transformers x-transformers
    python benchmarks/gpt_speed.py [--nanogpt nanoGPT] [--rounds 5] [--only training] [--out speed.json]

All have one architecture, GPT-2's, in two sizes, and take turns. Training is a few steps on the same batches:
loss, gradient, clipping, AdamW; ours by `training.fit`, in float32 and in the precision that the runtime chooses,
the peers in float32 and in bfloat16 autocast. Speaking adds 256 tokens to a prompt of 16 at batch 1; ours by
`sampling.generate`, with the model as it was trained and frozen (`generation.frozen`), freezing included, and all with
weights in float32, bfloat16 and float16. nanoGPT has no cache. A ratio is the middle of the rounds' ratios of our
tokens a second to theirs. Peers that are not there are left out. Exit status 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.course.cost import in_turns
from tfbook.course.experiments import machine, markdown
from tfbook.generation import sampling
from tfbook.generation.frozen import Frozen
from tfbook.models.blocks import Config
from tfbook.models.feed_forward import FeedForward
from tfbook.models.gpt import GPT2, Gpt
from tfbook.text import Windows
from tfbook.training import next_token_loss

VOCAB, PROMPT, SPOKEN = 65, 16, 256
TRAINED, FROZEN = "tfbook, as trained", "tfbook, frozen"
WEIGHTS = runtime.PRECISIONS | {"float16": torch.float16}


class Shape(NamedTuple):
    """A model, the batches that it is trained on, steps in a turn, and how much faster than a peer it has to speak."""

    config: Config
    batch: int
    time: int
    steps: int
    bars: dict[str, float]


def small(layers: int, d_model: int, heads: int) -> Config:
    """GPT-2's architecture in small, with the positions that speaking needs."""
    config = replace(GPT2, layers=layers, d_model=d_model, heads=heads, d_ff=4 * d_model)
    return replace(
        config, max_length=PROMPT + SPOKEN, feed_forward=partial(FeedForward, activation=F.gelu), dropout=0.0
    )


SHAPES = {
    "4 × 128": Shape(small(4, 128, 4), batch=12, time=64, steps=60, bars={"nanoGPT": 5.0, "transformers": 2.0}),
    "6 × 384": Shape(small(6, 384, 6), batch=16, time=256, steps=10, bars={"nanoGPT": 8.0, "transformers": 1.7}),
}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another project's model: its loss, its optimiser and its way to speak."""

    model: nn.Module
    loss: Callable[[Tensor], Tensor]  # of ids, each guessed from those before it
    optimizer: torch.optim.Optimizer
    speak: Callable[[Tensor], Tensor]  # a prompt to the prompt and `SPOKEN` tokens


# ---- the peers ---------------------------------------------------------------------------------------------------


def nanogpt(config: Config, folder: Path, *, vocab: int = 0, spoken: int = 0) -> Peer:
    """Karpathy's, with the optimiser that it configures itself."""
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    theirs = import_module("model")
    names = {
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_embd": config.d_model,
        "block_size": config.max_length,
    }
    with redirect_stdout(StringIO()):  # it prints its size
        config = theirs.GPTConfig(**names, vocab_size=vocab or VOCAB, dropout=0.0, bias=True)
        model = theirs.GPT(config).to(runtime.device())
        optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), runtime.device().type)
    return Peer(
        model=model,
        loss=lambda ids: model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())[1],
        optimizer=optimizer,
        speak=lambda ids: model.generate(ids, spoken or SPOKEN),
    )


def written_out(peer: Peer) -> Peer:
    """nanoGPT on the way that it keeps for old versions of PyTorch, which is faster in bfloat16 on a CPU."""
    for block in peer.model.transformer.h:
        length = peer.model.config.block_size
        block.attn.flash = False
        block.attn.register_buffer("bias", torch.ones(1, 1, length, length, device=runtime.device()).tril())
    return peer


def hugging_face(config: Config, *, vocab: int = 0, spoken: int = 0, **options: Any) -> Peer:
    """GPT2LMHeadModel with its fused attention, and the cache that `generate` uses unless `options` choose another."""
    from transformers import GPT2Config, GPT2LMHeadModel

    names = {
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_embd": config.d_model,
        "n_positions": config.max_length,
    }
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    tokens = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = GPT2Config(**names, **drops, **tokens, vocab_size=vocab or VOCAB, activation_function="gelu")
    model = GPT2LMHeadModel(config).to(runtime.device())
    return Peer(
        model=model,
        loss=lambda ids: F.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1).float(), ids[:, 1:].flatten()),
        optimizer=fused_adamw(model),
        speak=lambda ids: model.generate(ids, max_new_tokens=spoken or SPOKEN, do_sample=True, top_k=0, **options),
    )


def x_transformers(config: Config) -> Peer:
    """Its decoder with fused attention, and the wrapper that samples with a cache."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    names = {"dim": config.d_model, "depth": config.layers, "heads": config.heads}
    blocks = Decoder(**names, attn_dim_head=config.d_model // config.heads, attn_flash=True)
    model = TransformerWrapper(num_tokens=VOCAB, max_seq_len=config.max_length, attn_layers=blocks, tie_embedding=True)
    wrapper = AutoregressiveWrapper(model).to(runtime.device())
    return Peer(
        model=wrapper,
        loss=wrapper,
        optimizer=fused_adamw(model),
        speak=lambda ids: wrapper.generate(ids, SPOKEN, cache_kv=True),
    )


def fused_adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The fastest that a user of the library would take."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)


def peers(config: Config, folder: Path | None) -> dict[str, Peer]:
    """Those that are there."""
    found = {} if folder is None else {"nanoGPT": nanogpt(config, folder)}
    for name, build in (("transformers", hugging_face), ("x_transformers", x_transformers)):
        if find_spec(name):
            found[name] = build(config)
    return found


# ---- training ----------------------------------------------------------------------------------------------------


def train_peer(peer: Peer, batches: Windows, steps: int, bfloat16: bool) -> None:
    """Steps as nanoGPT's train.py takes them."""
    peer.model.train()
    for step in range(steps):
        ids = batches(step).to(runtime.device())
        with torch.autocast(runtime.device().type, torch.bfloat16, enabled=bfloat16):
            loss = peer.loss(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(peer.model.parameters(), 1.0)
        peer.optimizer.step()
        peer.optimizer.zero_grad(set_to_none=True)
        loss.item()


def train_ours(model: Gpt, batches: Windows, steps: int, mixed_precision: bool) -> None:
    """The same by `training.fit`."""
    recipe = training.Recipe(steps=steps, betas=(0.9, 0.99), weight_decay=0.1, mixed_precision=mixed_precision)
    training.fit(model, next_token_loss, batches, recipe)


def trained(shape: Shape, folder: Path | None, rounds: int) -> dict[tuple[str, str], list[float]]:
    """(who, precision) → tokens a second in each round."""
    runtime.setup(0)
    text = torch.randint(VOCAB, (100 * shape.time,))
    batches = Windows(text, length=shape.time + 1, size=shape.batch, seed=0)
    chosen = {"float32": False, runtime.precision(): runtime.precision() != "float32"}
    runs = {
        ("tfbook", precision): partial(
            train_ours, Gpt(VOCAB, shape.config).to(runtime.device()), batches, shape.steps, mixed
        )
        for precision, mixed in chosen.items()
    }
    others = peers(shape.config, folder)
    if folder is not None:
        others["nanoGPT, attention written out"] = written_out(nanogpt(shape.config, folder))
    for name, peer in others.items():
        runs |= {
            (name, precision): partial(train_peer, peer, batches, shape.steps, precision == "bfloat16")
            for precision in runtime.PRECISIONS
        }
    tokens = shape.steps * shape.batch * shape.time
    return {who: [tokens / each for each in seconds] for who, seconds in in_turns(runs, rounds).items()}


def training_rows(name: str, speeds: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
    """A row each; ours in float32 has to reach nanoGPT's, ours in the chosen precision every peer's every setting."""
    found, chosen = [], speeds["tfbook", runtime.precision()]
    for (who, precision), speed in speeds.items():
        plain = middle_ratio(speeds["tfbook", "float32"], speed)
        row = {"size": name, "by": who, "precision": precision, "tokens/s": round(median(speed))}
        row |= {"float32": plain, "chosen": middle_ratio(chosen, speed), "bars": ""}
        if who != "tfbook":
            row["bars"] = "≥ 1, ≥ 1" if (who, precision) == ("nanoGPT", "float32") else "–, ≥ 1"
        found.append(row)
    return found


# ---- speaking ----------------------------------------------------------------------------------------------------


def speaking(shape: Shape, folder: Path | None, rounds: int) -> dict[tuple[str, str], list[float]]:
    """(who, precision of the weights) → tokens a second in each round."""
    runtime.setup(0)
    prompt = torch.randint(VOCAB, (1, PROMPT), device=runtime.device())
    model = Gpt(VOCAB, shape.config).to(runtime.device()).eval()
    runs = {(TRAINED, "float32"): partial(sampling.generate, model, prompt, max_new_tokens=SPOKEN)}
    for precision, dtype in WEIGHTS.items():
        runs[FROZEN, precision] = partial(speak_frozen, model, dtype, prompt)
        for name, peer in peers(shape.config, folder).items():
            peer.model.eval().to(dtype)
            runs[name, precision] = partial(peer.speak, prompt)
    return {who: [SPOKEN / each for each in seconds] for who, seconds in in_turns(runs, rounds).items()}


def speak_frozen(model: Gpt, dtype: torch.dtype, prompt: Tensor) -> Tensor:
    """Freezing is part of the work."""
    return sampling.generate(Frozen(model, dtype), prompt, max_new_tokens=SPOKEN)


def speaking_rows(name: str, speeds: dict[tuple[str, str], list[float]]) -> list[dict[str, Any]]:
    """A row each; the ratio and its bar are those of our fastest precision to it, whatever its own."""
    best = max((speed for (who, _), speed in speeds.items() if who == FROZEN), key=median)
    return [
        {
            "size": name,
            "by": who,
            "weights": precision,
            "tokens/s": round(median(speed)),
            "ratio": middle_ratio(best, speed),
            "bar": SHAPES[name].bars.get(who, ""),
        }
        for (who, precision), speed in speeds.items()
    ]


def middle_ratio(ours: list[float], theirs: list[float]) -> float:
    """The middle of the rounds' ratios."""
    return round(median(own / other for own, other in zip(ours, theirs, strict=True)), 2)


# ---- the command -------------------------------------------------------------------------------------------------


def missed(trained: list[dict[str, Any]], spoken: list[dict[str, Any]]) -> list[str]:
    """The bars that are missed, in words."""
    rows = [(row, "chosen", 1.0) for row in trained if row["by"] != "tfbook"]
    rows += [(row, "float32", 1.0) for row in trained if (row["by"], row["precision"]) == ("nanoGPT", "float32")]
    rows += [(row, "ratio", row["bar"]) for row in spoken if row["bar"]]
    return [f"{_name(row)}: {key} is {row[key]}, below {bar}" for row, key, bar in rows if row[key] < bar]


def _name(row: dict[str, Any]) -> str:
    return ", ".join(row[key] for key in ("size", "by", "precision", "weights") if key in row)


def main() -> int:
    """Measures, prints the tables and where they come from; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, help="the folder of a clone of karpathy/nanoGPT")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("training", "speaking"), help="one of the two")
    parser.add_argument("--out", type=Path, help="a JSON file for rows, machine and date")
    arguments = parser.parse_args()
    learned, spoken = [], []
    for name, shape in SHAPES.items():
        if arguments.only != "speaking":
            learned += training_rows(name, trained(shape, arguments.nanogpt, arguments.rounds))
        if arguments.only != "training":
            spoken += speaking_rows(name, speaking(shape, arguments.nanogpt, arguments.rounds))
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    tables = [f"{markdown(found)}\n" for found in (learned, spoken) if found]
    print("\n".join([*tables, " · ".join(where.values()), *missed(learned, spoken)]))
    if arguments.out:
        content = {**where, "training": learned, "speaking": spoken}
        arguments.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return int(bool(missed(learned, spoken)))


if __name__ == "__main__":
    sys.exit(main())
