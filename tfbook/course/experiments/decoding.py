"""How a trained model writes: searches compared, what a token costs, and how sure a model is of its words."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tfbook import data, runtime
from tfbook.course.experiments import experiment
from tfbook.course.experiments.transformer import LESSON, forced, trained
from tfbook.course.experiments.translators import Task, random_batch
from tfbook.course.metrics import bleu
from tfbook.generation.search import (
    IncrementalDecoder,
    Penalty,
    beam_search,
    gnmt_penalty,
    mean_penalty,
    translate,
)
from tfbook.models.transformer import Transformer
from tfbook.text.pairs import Pair, filter_by_length
from tfbook.text.vocabulary import PAD, SPECIALS
from tfbook.text.words import detokenize

# ---- how good, and how sure ---------------------------------------------------------------------------------------


def text_scores(model: nn.Module, pairs: Sequence[Pair], task: Task) -> Float[Tensor, " pair"]:
    """log p(target | source) of each pair, in nats, `<eos>` included."""
    totals = []
    for logp, batch in forced(model, pairs, task):
        true = logp.gather(-1, batch.target_out[..., None])[..., 0]
        totals.append(true.masked_fill(batch.target_out == PAD, 0.0).sum(dim=1).cpu())
    return torch.cat(totals)


def reliability(
    confidence: Float[Tensor, " word"], right: Bool[Tensor, " word"], *, bins: int = 10
) -> Float[Tensor, "bin 3"]:
    """Share of the words, mean confidence and accuracy, in each of `bins` equal intervals of confidence."""
    place = (confidence * bins).long().clamp(max=bins - 1)
    count = torch.zeros(bins).index_add(0, place, torch.ones_like(confidence))
    sums = [torch.zeros(bins).index_add(0, place, part.float()) for part in (confidence, right)]
    return torch.stack([count / count.sum(), *(total / count.clamp(min=1) for total in sums)], dim=1)


def calibration_error(table: Float[Tensor, "bin 3"]) -> float:
    """Σ share · |accuracy − confidence| over the bins of `reliability` (Guo et al., 2017, eq. 3)."""
    share, confidence, accuracy = table.unbind(dim=1)
    return float((share * (accuracy - confidence).abs()).sum())


# ---- stored: beams of several widths, on real sentences ------------------------------------------------------------


def searched(
    model: Transformer, pairs: Sequence[Pair], task: Task, *, width: int, penalty: Penalty
) -> dict[str, float]:
    """What a beam of `width` finds: BLEU, the model's mean log-probability of it, and its length ÷ the reference's.

    The reference's own log-probability is given as well: where it is higher than that of the text that was found, the
    search has missed something, and where it is lower, the model prefers another text.
    """
    search = partial(beam_search, width=width, penalty=penalty)
    found = translate(model, pairs, task.source_vocab, task.target_vocab, max_length=80, search=search)
    generated = [pair._replace(target=translation.words) for pair, translation in zip(pairs, found, strict=True)]
    lengths = [sum(len(pair.target) for pair in texts) for texts in (generated, pairs)]
    return {
        "width": width,
        "bleu": bleu_of(generated, task),
        "log p": float(text_scores(model, generated, task).mean()),
        "log p of the reference": float(text_scores(model, pairs, task).mean()),
        "length": lengths[0] / lengths[1],
    }


def bleu_of(translations: Sequence[Pair], task: Task) -> float:
    """BLEU of the targets of `translations` with all references that the corpus has for their sources."""
    write = partial(detokenize, language=task.corpus.target_language)
    references = [[write(words) for words in task.corpus.references[pair.source]] for pair in translations]
    return bleu([write(pair.target) for pair in translations], references).score


PENALTIES = {"none": gnmt_penalty(0.0), "GNMT, α = 0.6": gnmt_penalty(0.6), "mean": mean_penalty(1.0)}


@experiment
def searches(
    seeds: Sequence[int] = (1, 2), *, widths: Sequence[int] = (1, 2, 4, 8, 16), count: int = 1000, steps: int = 800
) -> list[dict[str, Any]]:
    """Beams of several widths under several penalties, on Tatoeba sentences of 3 to 8 words."""
    corpus = data.load("tatoeba")
    pairs, held_out = filter_by_length(corpus["train"], 3, 8), filter_by_length(corpus["test"], 3, 8)[:count]
    task = Task.of(corpus, pairs, min_count=8)
    rows = []
    for seed in seeds:
        model, _ = trained(replace(LESSON, steps=steps), task, pairs, seed=seed)
        for (name, penalty), width in product(PENALTIES.items(), widths):
            row = searched(model, held_out, task, width=width, penalty=penalty)
            rows.append({"seed": seed, "penalty": name} | {key: round(value, 4) for key, value in row.items()})
    return rows


# ---- time --------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def token_seconds(
    model: Transformer, steps: Callable[..., IncrementalDecoder], *, words: int, rows: int = 16, source: int = 20
) -> list[float]:
    """Seconds for each of `words` tokens while the texts of a batch grow, whatever is generated."""
    model.eval()
    batch = random_batch(rows, source, len(SPECIALS) + 1).to(runtime.device())
    run, tokens = steps(model, batch.source, batch.source_lengths), batch.source[:, :1]
    seconds = []
    for _ in range(words):
        start = time.perf_counter()
        run(tokens)
        runtime.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds
