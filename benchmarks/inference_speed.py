"""Tokens a second of the serving engine, of speculative decoding, and of weights in fewer bits.

    pip install transformers
    python benchmarks/inference_speed.py [--rounds 5] [--only alone] [--out inference.json]

Three questions, each with its cases in turns. *alone*: the engine with one request against transformers' `generate`,
256 tokens after a prompt of 16, GPT-2's architecture in two sizes, in float32 and in other precisions of the weights.
*together*: 16 such requests at once, by continuous batching, and with limits from 32 to 256 tokens, against one after
the other and static batching. *speculative*: the storyteller, and one that neurons which say nothing make 19 times as
heavy, with a draft model, and with a draft that looks words up, against plain decoding. A ratio is the middle of the
rounds' ratios. Peers that are not there are left out. Exit status
1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook import runtime
from tfbook.course.cost import in_turns
from tfbook.course.experiments import machine, markdown
from tfbook.course.roofline import decode_work, probe_machine
from tfbook.data.stories import told
from tfbook.generation import sampling
from tfbook.generation.engine import Engine, Request, Scheduler, continuous, one_by_one, static
from tfbook.generation.frozen import Frozen
from tfbook.generation.quantization import quantize
from tfbook.generation.speculative import Speculation
from tfbook.lessons.inference.guessing_ahead import Counts
from tfbook.lessons.inference.law import heavier
from tfbook.models.blocks import Config
from tfbook.models.feed_forward import FeedForward
from tfbook.models.gpt import GPT2, Gpt
from tfbook.models.language_model import LanguageModel
from tfbook.pretrain.storyteller import load_storyteller
from tfbook.text.vocabulary import BOS, EOS

VOCAB, PROMPT, NEW = 65, 16, 256
SEATS = 16
NEURONS = 24576  # in each feed-forward network of the heavy storyteller, which waits for its weights
ALONE_BAR, TOGETHER_BAR, SPECULATIVE_BAR = 2.0, 3.0, 1.3
Runs = dict[Any, Callable[[], object]]


def shape(layers: int, d_model: int, heads: int) -> Config:
    """GPT-2's architecture in small."""
    feed_forward = partial(FeedForward, activation=F.gelu)
    sizes: dict[str, Any] = {"layers": layers, "d_model": d_model, "heads": heads, "d_ff": 4 * d_model}
    return replace(GPT2, **sizes, max_length=PROMPT + NEW, feed_forward=feed_forward, dropout=0.0)


SHAPES = {"4 × 128": shape(4, 128, 4), "6 × 384": shape(6, 384, 6)}


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The middle of the rounds' ratios of their time to ours."""
    return round(median(other / own for own, other in zip(ours, theirs, strict=True)), 2)


# ---- one request alone -------------------------------------------------------------------------------------------


def formats(model: LanguageModel) -> dict[str, LanguageModel]:
    """The model frozen, with weights in each precision."""
    found: dict[str, LanguageModel] = {
        str(dtype).removeprefix("torch."): Frozen(model, dtype)
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    }
    integers = {"int8": quantize(model), "int4": quantize(model, bits=4, group=32)}
    return found | {name: Frozen(few, torch.bfloat16) for name, few in integers.items()}


def serve(engine: Engine, limits: list[int]) -> None:
    """Requests with prompts of their own, all there at once."""
    engine.run(
        [
            Request(prompt=[number % VOCAB] * PROMPT, max_new_tokens=limit, seed=number)
            for number, limit in enumerate(limits)
        ]
    )


def transformers_generate(config: Config, dtype: torch.dtype) -> Callable[[], object]:
    """GPT2LMHeadModel with its default cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    names: dict[str, Any] = {"n_layer": config.layers, "n_head": config.heads, "n_embd": config.d_model}
    tokens: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    theirs = GPT2Config(**names, **tokens, n_positions=config.max_length, vocab_size=VOCAB, activation_function="gelu")
    model, ids = GPT2LMHeadModel(theirs).eval().to(dtype), torch.ones(1, PROMPT, dtype=torch.int64)
    return partial(model.generate, ids, max_new_tokens=NEW, do_sample=True, top_k=0)


def alone_rows(rounds: int) -> list[dict[str, Any]]:
    """A row each; in float32 and in its best precision the engine has to reach the bar against every peer.

    A roofline's ratio is the share of it that the engine reaches.
    """
    found, limits = [], probe_machine()
    for name, config in SHAPES.items():
        model = Gpt(VOCAB, config).eval()
        runs: Runs = {
            ("engine", bits): partial(serve, Engine(frozen, reuse=False), [NEW])
            for bits, frozen in formats(model).items()
        }
        if find_spec("transformers"):
            for dtype in (torch.float32, torch.bfloat16):
                bits = str(dtype).removeprefix("torch.")
                runs["transformers", bits] = transformers_generate(config, dtype)
        seconds = in_turns(runs, rounds)
        best = min((times for (who, _), times in seconds.items() if who == "engine"), key=median)
        for (who, bits), times in seconds.items():
            row = {"size": name, "by": who, "weights": bits, "tokens/s": round(NEW / median(times))}
            row |= {"float32": ratio(seconds["engine", "float32"], times), "best": ratio(best, times), "bar": ""}
            if who == "transformers":
                row["bar"] = ALONE_BAR
            found.append(row)
        bound = 1 / limits.seconds(decode_work(model, PROMPT + NEW // 2))
        ratios = {"float32": round(NEW / median(seconds["engine", "float32"]) / bound, 2), "best": "", "bar": ""}
        found.append({"size": name, "by": "roofline", "weights": "float32", "tokens/s": round(bound), **ratios})
    return found


# ---- many requests together --------------------------------------------------------------------------------------

SCHEDULES: dict[str, Scheduler] = {"continuous": continuous, "static": static, "one after another": one_by_one}
LIMITS = {"all 256": [NEW] * SEATS, "32 to 256": [32 + (each * 37) % 225 for each in range(3 * SEATS)]}


def together_rows(rounds: int) -> list[dict[str, Any]]:
    """A row each: tokens a second of all requests, and how many times faster continuous batching is."""
    found = []
    for name, config in SHAPES.items():
        model = Frozen(Gpt(VOCAB, config).eval())
        for kind, limits in LIMITS.items():
            runs: Runs = {
                how: partial(serve, Engine(model, schedule=schedule, seats=SEATS, blocks=512, reuse=False), limits)
                for how, schedule in SCHEDULES.items()
            }
            seconds = in_turns(runs, rounds)
            for how, times in seconds.items():
                row = {"size": name, "limits": kind, "by": how, "tokens/s": round(sum(limits) / median(times))}
                row["ratio"] = ratio(seconds["continuous"], times)
                row["bar"] = TOGETHER_BAR if (how, kind) == ("one after another", "all 256") else ""
                found.append(row)
    return found


# ---- speculation -------------------------------------------------------------------------------------------------


def speculative_rows(rounds: int, k: int = 4, stories: int = 5, known: int = 2000) -> list[dict[str, Any]]:
    """A row for each model and draft: acceptance, tokens per pass, and the speed beside plain decoding."""
    teller, small = load_storyteller(), load_storyteller("draft")
    texts = [[BOS, *teller.vocabulary.encode(told("train", number).words), EOS] for number in range(known)]
    drafts: dict[str, Any] = {
        "draft model": Frozen(small.model),
        "lookup": Counts(texts, len(teller.vocabulary), longest=4),
    }
    models = {"storyteller": teller.model, "heavy storyteller": heavier(teller.model, NEURONS)}
    return [
        row
        for name, model in models.items()
        for row in _speculative_rows(name, Frozen(model, packed=True), drafts, rounds, k, stories)
    ]


def _speculative_rows(
    size: str, large: Frozen, drafts: dict[str, Any], rounds: int, k: int, stories: int
) -> list[dict[str, Any]]:
    start = torch.tensor([[BOS]])
    options: dict[str, Any] = {"max_new_tokens": 100, "filters": [sampling.temperature(0.7)]}

    def write(generate: Callable[..., Tensor]) -> None:
        for seed in range(stories):
            generate(start, **options, generator=torch.Generator().manual_seed(seed))

    speculations = {name: Speculation(large, draft, k=k) for name, draft in drafts.items()}
    runs: Runs = {name: partial(write, each.generate) for name, each in speculations.items()}
    runs |= {"plain": partial(write, partial(sampling.generate, large))}
    found = []
    for name, times in (seconds := in_turns(runs, rounds)).items():
        row: dict[str, Any] = {"size": size, "by": name, "tokens/s": round(100 * stories / median(times))}
        row |= {"ratio": ratio(times, seconds["plain"]), **dict.fromkeys(("acceptance", "per pass", "bar"), "")}
        if name in speculations:
            passes = speculations[name].passes
            row |= {"acceptance": round(passes.acceptance, 2), "per pass": round(passes.tokens_per_pass, 2)}
            row["bar"] = SPECULATIVE_BAR if size == "heavy storyteller" else ""
        found.append(row)
    return found


# ---- the command -------------------------------------------------------------------------------------------------


def missed(alone: list[dict[str, Any]], together: list[dict[str, Any]], speculative: list[dict[str, Any]]) -> list[str]:
    """The bars that are missed, in words: in float32, in each one's best precision, together, by the best draft."""
    judged = [(row, "float32") for row in alone if row["weights"] == "float32"]
    judged += [(row, "best") for row in alone]
    judged += [(row, "ratio") for row in together]
    judged += [(row, "ratio") for row in sorted(speculative, key=lambda row: -row["ratio"]) if row["bar"]][:1]
    return [
        f"{row['size']}, {row['by']}: {key} is {row[key]}, below {row['bar']}"
        for row, key in judged
        if row["bar"] and row[key] < row["bar"]
    ]


PARTS = {"alone": alone_rows, "together": together_rows, "speculative": speculative_rows}


def main() -> int:
    """Measures, prints the tables and where they come from; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=tuple(PARTS), help="one of the three")
    parser.add_argument("--out", type=Path, help="a JSON file for rows, machine and date")
    arguments = parser.parse_args()
    runtime.setup(0)
    chosen = {name: arguments.only in (None, name) for name in PARTS}
    rows = {name: measure(arguments.rounds) if chosen[name] else [] for name, measure in PARTS.items()}
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    tables = [f"{markdown(found)}\n" for found in rows.values() if found]
    print("\n".join([*tables, " · ".join(where.values()), *missed(**rows)]))
    if arguments.out:
        arguments.out.write_text(json.dumps({**where, **rows}, indent=1) + "\n", encoding="utf-8")
    return int(bool(missed(**rows)))


if __name__ == "__main__":
    sys.exit(main())
