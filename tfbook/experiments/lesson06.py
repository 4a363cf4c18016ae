"""Lesson 06: what a vocabulary does to a language model, what padding costs, and vectors learned from neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import data, runtime, train
from tfbook.data import Text, Windows
from tfbook.experiments.lesson04 import next_loss
from tfbook.tokenization import Tokenizer
from tfbook.transformer import LanguageModel, Sizes

# ---- stored: vocabulary against the loss of a language model -----------------------------------------------------

VOCABULARIES = (256, 512, 1024, 2048, 4096)
SIZES = Sizes(d_model=64, heads=4, d_ff=256, layers=2, position="rotary")
WINDOW = 128  # tokens that a model reads at once
BATCH = 16
JUDGED = 2**15  # characters of validation text


@torch.inference_mode()
def bits_per_byte(model: LanguageModel, text: str, tokenizer: Tokenizer) -> float:
    """−log₂ p of the tokens of `text` over the bytes that they spell, each with half a window or more before it.

    Windows overlap by half, and of each the second half is judged. Raises ValueError when there is no whole window.
    """
    ids = torch.tensor(tokenizer.encode(text))
    if len(ids) <= WINDOW:
        raise ValueError(f"text has {len(ids)} tokens; expected more than {WINDOW}, one window")
    windows = ids.unfold(0, WINDOW + 1, WINDOW // 2)
    judged = windows[:, -(WINDOW // 2) :]
    nats = 0.0
    for window, targets in zip(windows.split(32), judged.split(32), strict=True):
        logits = model(window[:, :-1].to(runtime.device()))[:, -(WINDOW // 2) :].float()
        nats += float(F.cross_entropy(logits.flatten(0, 1), targets.flatten().to(logits.device), reduction="sum"))
    return nats / math.log(2) / len(tokenizer.decode_bytes(judged.flatten().tolist()))


def vocabularies(seeds: Sequence[int] = (1, 2), *, steps: int = 800) -> list[dict[str, Any]]:
    """Bits per byte while small language models learn the same text, cut into tokens of each of `VOCABULARIES`.

    A step is as many tokens for all of them, so that larger vocabularies read more bytes a step. The learning rate
    depends on the step alone: each point of a curve is a training that ends there.
    """
    text = data.load("tiny-shakespeare", fallback="python-reference")
    tokenizers = [Tokenizer.learn([text.train], vocab) for vocab in VOCABULARIES]
    return [{"seed": seed, **_run(tokenizer, text, seed, steps)} for seed in seeds for tokenizer in tokenizers]


def _run(tokenizer: Tokenizer, text: Text, seed: int, steps: int) -> dict[str, Any]:
    def evaluate(model: LanguageModel) -> dict[str, float]:
        return {"bits": bits_per_byte(model, text.valid[:JUDGED], tokenizer)}

    runtime.seed(seed)
    ids = torch.tensor(tokenizer.encode(text.train))
    model = LanguageModel(len(tokenizer), SIZES).to(runtime.device())
    windows = Windows(ids, length=WINDOW + 1, size=BATCH, seed=seed)
    recipe = train.Recipe(steps=steps, lr=3e-3, schedule=train.inverse_sqrt(100))
    history = train.fit(model, next_loss, windows, recipe, evaluate=evaluate)
    return {
        "vocab": len(tokenizer),
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes a token": round(len(text.train.encode()) / len(ids), 4),
        "curve": [{key: round(value, 4) for key, value in row.items()} for row in history.evaluations],
    }
