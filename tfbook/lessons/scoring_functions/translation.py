"""Scores in recurrent translators: stored runs of lesson 02, and the tables made from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook import data, runtime, training
from tfbook.attention.implementations import masked_softmax
from tfbook.attention.scoring import SCORES, GeneralScore, Score
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment
from tfbook.course.summaries import mean_and_range, ranges
from tfbook.course.translators import Task, alignment_error, forced_weights, quality
from tfbook.models.seq2seq import Annotations, DecoderState, LuongDecoder, RecurrentDecoder, Seq2SeqConfig, Translator
from tfbook.text.pairs import Batches, Pair, filter_by_length
from tfbook.training.losses import translation_loss

if TYPE_CHECKING:
    from pandas import DataFrame


# ---- stored: every score in a recurrent translator -------------------------------------------------------------------


class ScaledGeneralScore(GeneralScore):
    """score(q, k) = qᵀ W k / √d_query: the general score at the temperature of the scaled dot product."""

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_query"]
    ) -> Float[Tensor, "batch query key"]:
        """The general score, divided by √d_query."""
        return super().forward(query, projected) / math.sqrt(query.shape[-1])


class EqualScore(Score):
    """score(q, k) = 0 for every key: equal weights, so the context is the mean of the states. A trivial baseline."""

    def forward(
        self, query: Float[Tensor, "batch query d_query"], projected: Float[Tensor, "batch key d_key"]
    ) -> Float[Tensor, "batch query key"]:
        """Zeros."""
        return query.new_zeros(*query.shape[:2], projected.shape[1])


class HeadedDecoder(LuongDecoder):
    """Attention with several heads: each compares its part of q with W k and mixes its part of the values h."""

    heads = 4
    shown: int | None = None  # the head whose weights are returned; None for the mean of all

    def __init__(self, config: Seq2SeqConfig):
        super().__init__(config, ScaledGeneralScore)

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        """Luong's attention, once per head."""
        hidden, _ = self.gru(words, state.hidden[None].contiguous())
        contexts, weights = [], []
        keyed = cast(Tensor, state.keys)  # `start` has projected them
        parts = (tensor.chunk(self.heads, dim=-1) for tensor in (hidden, keyed, memory.states))
        for query, keys, values in zip(*parts, strict=True):
            weights.append(masked_softmax(self.score(query, keys), memory.mask[:, None]))
            contexts.append(weights[-1] @ values)
        shown = torch.stack(weights).mean(dim=0) if self.shown is None else weights[self.shown]
        return hidden, torch.cat(contexts, dim=-1), shown


HEADS, EQUAL = "general / √d, 4 heads", "equal weights"
TRANSLATORS: dict[str, Callable[[Seq2SeqConfig], RecurrentDecoder]] = {
    **{name: partial(LuongDecoder, score=score) for name, score in SCORES.items()},
    "general / √d": partial(LuongDecoder, score=ScaledGeneralScore),
    EQUAL: partial(LuongDecoder, score=EqualScore),
    HEADS: HeadedDecoder,
}
RATES = (3e-3, 1e-2, 3e-2)  # learning rates to choose from, for each score
PAIR_OF_SCORES = ("general", "general / √d")
LONGEST, BATCH = 10, 64  # words per training sentence; sentences per batch
WATCHED, DRAWN = 64, (0, 15, 400)  # validation sentences to watch; steps at which one of them is drawn
LOOKS = ("words", "right", "end")
EXAMPLE = ("there", "was", "a", "strong", "black", "cat", ".")


@experiment
def translators(seeds: Sequence[int] = (1, 2, 3), *, width: int = 128, steps: int = 400) -> list[dict[str, Any]]:
    """A small recurrent translator in Luong's order with each score; the general ones are in `collapse`.

    Training sentences have 3 to 10 words; `long` is the BLEU on sentences of 11 to 20. Each direction of the encoder is
    half as wide as the decoder, so that states and annotations can be multiplied. Each score uses the learning rate
    that is best for it with seed 0, by BLEU on validation sentences.
    """
    names = [name for name in TRANSLATORS if name not in PAIR_OF_SCORES]
    return [row for name in names for row in _tuned(name, seeds, width, steps)]


@experiment
def collapse(
    seeds: Sequence[int] = (1, 2, 3), *, widths: Sequence[int] = (16, 32, 64, 128), steps: int = 400
) -> list[dict[str, Any]]:
    """Like `translators`, with the general score and with the same over √d, by width.

    `curve` holds, on validation sentences, the step, the number of words that the weights look at (the exponential of
    their entropy), and the shares of weight on words that the true alignment allows and on `<eos>`. `example` holds the
    maps of one sentence at the steps `DRAWN`; the last column is `<eos>`.
    """
    return [row for width in widths for name in PAIR_OF_SCORES for row in _tuned(name, seeds, width, steps, curve=True)]


def _tuned(name: str, seeds: Sequence[int], width: int, steps: int, *, curve: bool = False) -> Iterator[dict[str, Any]]:
    """One translator per seed at the best of `RATES`; `tried` holds the BLEU of seed 0 at each rate."""
    corpus = data.load("english-french")
    task = Task.of(corpus, filter_by_length(corpus["train"], 3, LONGEST))
    tried = {lr: _translate(name, task, 0, lr, width, steps, curve=False)["valid"] for lr in RATES}
    best = max(tried, key=tried.__getitem__)
    for seed in seeds:
        made = _translate(name, task, seed, best, width, steps, curve=curve)
        yield {"score": name, "width": width, "seed": seed, "lr": best, "tried": [*tried.values()], **made}


def _translate(name: str, task: Task, seed: int, lr: float, width: int, steps: int, *, curve: bool) -> dict[str, Any]:
    runtime.seed(seed)
    model = task.translator(TRANSLATORS[name], width=width, d_encoder=width // 2, dropout=0.0)
    short = {split: filter_by_length(task.corpus[split], 3, LONGEST) for split in ("train", "valid", "test")}
    batches = Batches(short["train"], task.source_vocab, task.target_vocab, size=BATCH, seed=seed)
    schedule = training.warmup_cosine(30)
    recipe = training.Recipe(steps=steps, lr=lr, schedule=schedule, evaluate_every=5 if curve else steps)
    example, watched = next(pair for pair in short["valid"] if pair.source == EXAMPLE), short["valid"][:WATCHED]
    drawn: list[list[list[float]]] = []

    def look(model: Any) -> dict[str, float]:
        drawn.append([[round(weight, 3) for weight in row] for row in _maps(model, [example], task)[0].tolist()])
        return _looks(_maps(model, watched, task), watched)

    before = look(model) if curve else {}
    history = training.fit(model, translation_loss, batches, recipe, evaluate=look if curve else None)
    test, long = short["test"][:300], filter_by_length(task.corpus["test"], LONGEST + 1, 20)[:200]
    made: dict[str, Any] = {
        "parameters": parameters(model.decoder.get_submodule("score")),
        "seconds": round(history.seconds[-1], 1),
        "loss": round(mean(history.loss[-20:]), 4),
        "valid": round(quality(model, short["valid"][:200], task).bleu, 2),
        "bleu": round(quality(model, test, task).bleu, 2),
        "long": round(quality(model, long, task).bleu, 2),
        "alignment error": round(alignment_error(model, test, task), 4),
    }
    if curve:
        points = [{"step": 0, **before}, *history.evaluations]
        made["curve"] = [[each["step"], *(each[name] for name in LOOKS)] for each in points]
        maps = {str(at["step"]): weights for at, weights in zip(points, drawn, strict=True) if at["step"] in DRAWN}
        made["example"] = {
            "source": [*example.source, "<eos>"],
            "target": [*example.target],
            "links": sorted(example.sure),
            "maps": maps,
        }
    if isinstance(model.decoder, HeadedDecoder):
        made["heads"] = [_error_of_head(model, head, test, task) for head in range(model.decoder.heads)]
    return made


def _maps(model: Translator, pairs: Sequence[Pair], task: Task) -> list[Float[Tensor, "target source"]]:
    """Weights for each word of the true translations; unlike in `forced_weights`, the last column is `<eos>`."""
    maps = forced_weights(model, pairs, task)
    return [torch.cat([weights, 1 - weights.sum(dim=-1, keepdim=True)], dim=-1).clamp(min=0) for weights in maps]


def _looks(maps: Sequence[Tensor], pairs: Sequence[Pair]) -> dict[str, float]:
    """Number of words that a row of weights looks at, and its shares on words that may be linked and on `<eos>`."""
    counts, shares, ends = [], [], []
    for weights, pair in zip(maps, pairs, strict=True):
        allowed = torch.zeros_like(weights)
        source, target = zip(*pair.possible, strict=True)
        allowed[list(target), list(source)] = 1
        counts.append(torch.special.entr(weights).sum(dim=-1).exp())
        shares.append((weights * allowed).sum(dim=-1)[allowed.any(dim=-1)])
        ends.append(weights[:, -1])
    means = (round(float(torch.cat(each).mean()), 3) for each in (counts, shares, ends))
    return dict(zip(LOOKS, means, strict=True))


def equal_weights() -> dict[str, float]:
    """The same quantities on the sentences of `collapse`, for equal weights."""
    pairs = filter_by_length(data.load("english-french")["valid"], 3, LONGEST)[:WATCHED]
    return _looks([torch.full((len(p.target), len(p.source) + 1), 1 / (len(p.source) + 1)) for p in pairs], pairs)


def _error_of_head(model: Translator, head: int, pairs: Sequence[Pair], task: Task) -> float:
    decoder: Any = model.decoder
    decoder.shown = head
    try:
        return round(alignment_error(model, pairs, task), 4)
    finally:
        decoder.shown = None


def words_after(frame: DataFrame, step: int, width: int = 128) -> dict[str, list[float]]:
    """Number of words that the weights of each score look at after this many steps, one value per seed."""
    runs = frame[frame["width"] == width]
    found: dict[str, list[float]] = {name: [] for name in runs["score"]}
    for name, curve in zip(runs["score"], runs["curve"], strict=True):
        found[name] += [words for at, words, *_ in curve if at == step]
    return found


# ---- tables ----------------------------------------------------------------------------------------------------------


def bleu_table(frame: DataFrame, width: int = 128) -> DataFrame:
    """BLEU of the general scores and of equal weights by the translator's width: mean, lowest and highest seed.

    Below it, for one width, the BLEU of seed 0 on validation sentences at each learning rate tried.
    """
    import pandas as pd

    shown = frame[frame["score"].isin([*PAIR_OF_SCORES, EQUAL])]
    table = shown.pivot_table(index="width", columns="score", values="bleu", aggfunc=mean_and_range)
    table.index = [f"width {size}, best learning rate" for size in table.index]
    tried = shown[shown["width"] == width].groupby("score")["tried"].first()
    for i, lr in enumerate(RATES):
        table.loc[f"width {width}, learning rate {lr:g}"] = [f"{tried[name][i]:.1f}" for name in table.columns]
    order = [name for name in (EQUAL, *PAIR_OF_SCORES) if name in table.columns]
    return pd.DataFrame(table[order]).fillna("").rename_axis(columns="BLEU")


def translator_table(frame: DataFrame, width: int = 128) -> DataFrame:
    """Results of each score in the translator of one width, highest BLEU first, without the multi-head decoder."""
    rows = frame[(frame["width"] == width) & (frame["score"] != HEADS)]
    order = rows.groupby("score")["bleu"].mean().sort_values(ascending=False).index
    columns = {"parameters": 0, "bleu": 1, "long": 1, "alignment error": 2}
    names = {"parameters": "learned numbers", "bleu": "BLEU, 3–10 words", "long": "BLEU, 11–20 words"}
    return ranges(rows, "score", columns).loc[order].rename(columns=names)


def heads_table(frame: DataFrame, single: DataFrame, width: int = 128) -> DataFrame:
    """One head against four: BLEU, and the alignment error of the heads' mean, of the best and of the worst head."""
    many = frame[frame["score"] == HEADS]
    one = single[(single["score"] == "general / √d") & (single["width"] == width)]
    errors = {
        "alignment error": many["alignment error"],
        "best head": many["heads"].map(min),
        "worst head": many["heads"].map(max),
    }
    text = {name: mean_and_range(values, 2) for name, values in errors.items()}
    return _frame(
        {
            "one head": {
                "BLEU": mean_and_range(one["bleu"]),
                "alignment error": mean_and_range(one["alignment error"], 2),
            },
            "four heads": {"BLEU": mean_and_range(many["bleu"]), **text},
        }
    )


def _frame(rows: dict[str, dict[str, str]]) -> DataFrame:
    import pandas as pd

    return pd.DataFrame.from_dict(rows, orient="index").fillna("")
