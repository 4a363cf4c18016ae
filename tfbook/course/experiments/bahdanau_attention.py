"""Translators with and without attention: quality by length and by alignment, per step and per second."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tfbook import data, runtime
from tfbook.attention.implementations import masked_softmax
from tfbook.attention.scoring import AdditiveScore
from tfbook.course.experiments import experiment
from tfbook.course.experiments.cost import kept_bytes, parameters
from tfbook.course.experiments.summaries import ranges
from tfbook.course.experiments.translators import (
    LENGTHS,
    Task,
    alignment_error,
    by_length,
    quality,
    random_batch,
    random_translator,
    trained,
    training_seconds,
)
from tfbook.models import seq2seq
from tfbook.models.seq2seq import RecurrentDecoder, Translator
from tfbook.text.pairs import Pair, collate, filter_by_length
from tfbook.training.losses import translation_loss

if TYPE_CHECKING:
    from pandas import DataFrame

COMPARED = ("attention", "fixed context")
DECODERS = {
    "attention": seq2seq.BahdanauDecoder,
    "attention after the recurrence": seq2seq.LuongDecoder,
    "fixed context": seq2seq.FixedContextDecoder,
}


# ---- stored: three decoders, several seeds -----------------------------------------------------------------------


@experiment
def bottleneck(seeds: Sequence[int] = (1, 2, 3), *, width: int = 192, steps: int = 1500) -> list[dict[str, Any]]:
    """Trains with and without attention, on the same batches: learning curve, quality by length, alignment error."""
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    return [
        {"decoder": name, "seed": seed, **_run(name, seed, task, width, steps)} for seed in seeds for name in COMPARED
    ]


def _run(name: str, seed: int, task: Task, width: int, steps: int) -> dict[str, Any]:
    valid = task.corpus["valid"][:200]

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"bleu": quality(model, valid, task).bleu}

    pairs = task.corpus["train"]
    decoder = DECODERS[name]
    model, history = trained(decoder, seed, task, pairs, width=width, steps=steps, dropout=0.2, evaluate=evaluate)
    test = task.corpus["test"]
    return {
        "parameters": parameters(model),
        "curve": [{key: round(value, 3) for key, value in row.items()} for row in history.evaluations],
        "by_length": [
            [*length, round(q.bleu, 2), round(q.exact, 4)] for length, q in by_length(model, task, 250).items()
        ],
        "test": round(quality(model, test, task).bleu, 2),
        "template": round(quality(model, task.corpus["template"], task).bleu, 2),
        "alignment error": round(alignment_error(model, test, task), 4) if name != "fixed context" else None,
    }


def summary_table(frame: DataFrame) -> DataFrame:
    """For each decoder: parameters, BLEU by length and on new constructions, and alignment error, over the seeds."""
    buckets = {f"{low}–{high} words": frame["by_length"].str[i].str[2] for i, (low, high) in enumerate(LENGTHS)}
    named = frame.assign(**buckets).rename(columns={"template": "new constructions"})
    scores = dict.fromkeys([*buckets, "new constructions"], 1)
    return ranges(named, "decoder", {"parameters": 0, **scores, "alignment error": 3}).T


# ---- live: gradients, time and memory ----------------------------------------------------------------------------


def gradient_reach(*, length: int, width: int = 64, relative: bool = True) -> dict[str, Float[Tensor, " distance"]]:
    """‖∂ output at the last step / ∂ input k steps earlier‖ of untrained networks, k = 0 … length − 1, batch mean.

    The LSTM's forget gates start open (bias 1, Jozefowicz et al., 2015); attention asks with its last state.
    """
    rnn, lstm = nn.RNN(width, width, batch_first=True), nn.LSTM(width, width, batch_first=True)
    with torch.no_grad():
        lstm.bias_hh_l0[width : 2 * width] = 1.0
    score = AdditiveScore(width, width, width)

    def attend(x: Tensor) -> Tensor:
        states, _ = lstm(x)
        weights = masked_softmax(score(states[:, -1:], score.project(states)), None)
        return (weights @ states)[:, 0]

    networks = {"RNN": lambda x: rnn(x)[0][:, -1], "LSTM": lambda x: lstm(x)[0][:, -1], "attention": attend}
    found = {}
    for name, network in networks.items():
        x = torch.randn(64, length, width, requires_grad=True)
        (gradient,) = torch.autograd.grad((network(x) @ torch.randn(width)).sum(), x)
        by_distance = gradient.norm(dim=-1).mean(dim=0).flip(0)
        found[name] = by_distance / by_distance[0] if relative else by_distance
    return found


def summary_reach(
    model: Translator, pairs: Sequence[Pair], task: Task, *, bins: int = 10
) -> Float[Tensor, " position"]:
    """‖∂ summary / ∂ word‖ by the word's relative position in its sentence, mean 1: what the last states remember."""
    model.eval()
    total, count = torch.zeros(bins), torch.zeros(bins)
    for pair in pairs:
        batch = collate([pair], task.source_vocab, task.target_vocab).to(runtime.device())
        words = model.encoder.embed(batch.source).detach().requires_grad_()
        _, final = model.encoder.gru(words)
        summary = torch.cat([final[0], final[1]], dim=-1)
        (gradient,) = torch.autograd.grad((summary @ torch.randn_like(summary[0])).sum(), words)
        size = gradient[0].norm(dim=-1).cpu()
        place = torch.arange(len(size)) * bins // len(size)
        total.index_add_(0, place, size / size.mean())
        count.index_add_(0, place, torch.ones_like(size))
    return total / count


def step_seconds(
    *, words: int = 13, rows: int = 128, width: int = 128, vocabulary: int = 1000, rounds: int = 7
) -> dict[str, list[float]]:
    """`training_seconds` of each of `DECODERS`."""
    batch = random_batch(rows, words, vocabulary).to(runtime.device())
    models = {name: random_translator(decoder, width, vocabulary) for name, decoder in DECODERS.items()}
    return training_seconds(models, batch, rounds)


def step_cost(**config: int) -> dict[str, float]:
    """Time of a training step of `step_seconds` beside the fixed context's: median of the ratios of each round."""
    seconds = step_seconds(**config)
    base = seconds.pop("fixed context")
    return {name: median(t / b for t, b in zip(times, base, strict=True)) for name, times in seconds.items()}


def kept_for_backward(decoder: type[RecurrentDecoder], *, words: int) -> int:
    """Bytes of activations that a translator keeps for the backward pass of 16 sentences of `words` words."""
    model, batch = random_translator(decoder, 128, 1000), random_batch(16, words, 1000).to(runtime.device())
    return kept_bytes(model, lambda: translation_loss(model, batch).mean)


# ---- stored: real sentences --------------------------------------------------------------------------------------


@experiment
def tatoeba(seeds: Sequence[int] = (1, 2, 3), *, width: int = 128, steps: int = 800) -> list[dict[str, Any]]:
    """Fixed context against attention on Tatoeba sentences of 3 to 8 words: BLEU with all references, and seconds."""
    corpus = data.load("tatoeba")
    pairs, held_out = filter_by_length(corpus["train"], 3, 8), filter_by_length(corpus["test"], 3, 8)
    task = Task.of(corpus, pairs, min_count=8)
    rows = []
    for seed in seeds:
        for name in COMPARED:
            model, history = trained(DECODERS[name], seed, task, pairs, width=width, steps=steps, dropout=0.0)
            score, seconds = quality(model, held_out, task).bleu, history.seconds[-1]
            rows.append({"decoder": name, "seed": seed, "seconds": round(seconds, 1), "bleu": round(score, 2)})
    return rows
