"""Study of lesson 01: translators with and without attention, their quality by length, gradients, time and memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tfbook import data, runtime
from tfbook.attention.implementations import masked_softmax
from tfbook.attention.scoring import AdditiveScore
from tfbook.course.cost import kept_bytes, parameters
from tfbook.course.equality import prove_equal
from tfbook.course.experiments import experiment
from tfbook.course.metrics import alignment_error_rate, hard_alignment
from tfbook.course.summaries import ranges, unnest
from tfbook.course.translators import (
    LENGTHS,
    Task,
    alignment_error,
    by_length,
    gold_links,
    lead_at_equal_seconds,
    quality,
    random_batch,
    random_translator,
    trained,
    training_seconds,
)
from tfbook.lessons.bahdanau_attention.answers import answer as answer
from tfbook.lessons.bahdanau_attention.claims import CLAIMS as CLAIMS
from tfbook.models import seq2seq
from tfbook.models.seq2seq import Annotations, DecoderState, FixedContextDecoder, RecurrentDecoder
from tfbook.text.pairs import Batch, Pair, filter_by_length
from tfbook.text.vocabulary import Sentence, Vocabulary
from tfbook.text.words import tokenize
from tfbook.training.losses import translation_loss

if TYPE_CHECKING:
    from pandas import DataFrame

    from tfbook.data.translation import Translations


COMPARED = ("attention", "fixed context")
DECODERS = {
    "attention": seq2seq.BahdanauDecoder,
    "attention after the recurrence": seq2seq.LuongDecoder,
    "fixed context": seq2seq.FixedContextDecoder,
}

# ---- stored: three decoders, several seeds ---------------------------------------------------------------------------


@experiment
def bottleneck(seeds: Sequence[int] = (1, 2, 3), *, width: int = 192, steps: int = 1500) -> list[dict[str, Any]]:
    """Trains with and without attention on the same batches: learning curve, quality by length, alignment error."""
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
        "by_length": _quality_by_length(model, task),
        "test": round(quality(model, test, task).bleu, 2),
        "template": round(quality(model, task.corpus["template"], task).bleu, 2),
        "alignment error": round(alignment_error(model, test, task), 4) if name != "fixed context" else None,
    }


def _quality_by_length(model: nn.Module, task: Task) -> list[list[float]]:
    """Rows of shortest length, longest length, BLEU, and share of exact translations."""
    return [[*length, round(q.bleu, 2), round(q.exact, 4)] for length, q in by_length(model, task, 250).items()]


def summary_table(frame: DataFrame) -> DataFrame:
    """For each decoder, over seeds: parameters, BLEU by length and on new constructions, and alignment error."""
    buckets = {f"{low}–{high} words": frame["by_length"].str[i].str[2] for i, (low, high) in enumerate(LENGTHS)}
    named = frame.assign(**buckets).rename(columns={"template": "new constructions"})
    scores = dict.fromkeys([*buckets, "new constructions"], 1)
    return ranges(named, "decoder", {"parameters": 0, **scores, "alignment error": 3}).T


def growth_of_the_gain(frame: DataFrame) -> list[float]:
    """For each seed: attention's gain over the fixed context at 15–20 words, minus its gain at 3–8 words."""
    grown = []
    for _, runs in frame.groupby("seed"):
        ours, theirs = (runs[runs["decoder"] == name]["by_length"].iloc[0] for name in COMPARED)
        gains = {(low, high): bleu - theirs[i][2] for i, (low, high, bleu, _) in enumerate(ours)}
        grown.append(gains[15, 20] - gains[3, 8])
    return grown


def verdicts(
    attention: Mapping[tuple[int, int], float], fixed: Mapping[tuple[int, int], float], frame: DataFrame
) -> dict[int, float]:
    """The numbers of claims 1 to 4, from BLEU by length in the live run and from the stored result of three seeds."""
    gains = [attention[length] - fixed[length] for length in LENGTHS[:3]]
    ours = frame[frame["decoder"] == "attention"]
    leads = lead_at_equal_seconds(unnest(frame, "curve"), "decoder", *COMPARED)
    return {
        1: sum(gains) / len(gains),
        2: min(growth_of_the_gain(frame)),
        3: ours["test"].min(),
        4: min(leads),
    }


def alignment_errors(maps: Sequence[Float[Tensor, "target source"]], pairs: Sequence[Pair]) -> tuple[float, float]:
    """The alignment error rate of each map's largest weights, and that of the diagonal."""
    gold = gold_links(pairs)
    diagonal = [{(min(t, len(pair.source) - 1), t) for t in range(len(pair.target))} for pair in pairs]
    found = [hard_alignment(weights) for weights in maps]
    return alignment_error_rate(found, *gold), alignment_error_rate(diagonal, *gold)


# ---- live: plain equals package --------------------------------------------------------------------------------------


def prove_package_equal(fixed: nn.Module, attention: nn.Module, corpus: Translations, batch: Batch) -> None:
    """Copies the weights of the lesson's two translators into the package's and prints whether all outputs agree."""
    batch = batch.to(runtime.device())
    inputs = batch.source, batch.source_lengths, batch.target_in
    task = Task.of(corpus, corpus["train"])
    width = cast("nn.GRUCell", fixed.get_submodule("decoder.cell")).hidden_size
    cell = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    names = {f"decoder.cell.{name}": f"decoder.gru.{name}_l0" for name in cell}
    package = task.translator(FixedContextDecoder, width=width)
    prove_equal(fixed, package, inputs, rename=names, outputs=["logits"])
    names = {f"decoder.{name}.": f"decoder.score.{name}." for name in "WUv"}
    package = task.translator(seq2seq.BahdanauDecoder, width=width)
    prove_equal(attention, package, inputs, rename=names, outputs=["logits", "weights"])


# ---- stored: attention against the plain average of all states -------------------------------------------------------


class AverageDecoder(FixedContextDecoder):
    """A decoder whose context is the plain mean of all states at every step: attention with equal weights."""

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, None]:
        average = memory.states.sum(dim=1) / memory.mask.sum(dim=1, keepdim=True)  # states of padding are 0
        return super().unroll(words, memory._replace(summary=average), state)


@experiment
def average(seeds: Sequence[int] = (1, 2, 3), *, width: int = 192, steps: int = 1500) -> list[dict[str, Any]]:
    """Trains `AverageDecoder` with the recipe of `bottleneck` and measures its quality by length, for comparison."""
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    rows = []
    for seed in seeds:
        model, _ = trained(AverageDecoder, seed, task, corpus["train"], width=width, steps=steps, dropout=0.2)
        rows.append({"decoder": "plain average", "seed": seed, "by_length": _quality_by_length(model, task)})
    return rows


# ---- live: the reader's own sentence ---------------------------------------------------------------------------------

SENTENCE = "The happy king eats a red apple in the garden."


def known_words(sentence: str, vocabulary: Vocabulary) -> Sentence:
    """The words of an English sentence; if the vocabulary lacks any, prints them and returns `SENTENCE`'s words."""
    words = tuple(tokenize(sentence, "english"))
    unknown = [word for word in words if word not in vocabulary]
    if words and not unknown:
        return words
    for word in unknown:
        similar = get_close_matches(word, vocabulary.tokens[4:], n=3)
        print(f"The translator has never seen {word!r}." + (f" Did you mean {', '.join(similar)}?" if similar else ""))
    print(f"Until you change it, the lesson goes on with: {SENTENCE}")
    return tuple(tokenize(SENTENCE, "english"))


def likeliest(scores: Float[Tensor, "target words"], vocabulary: Vocabulary) -> list[list[tuple[str, float]]]:
    """The three likeliest next words at each step, with their probabilities."""
    best = torch.softmax(scores.float(), dim=-1).topk(3)
    steps = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [[(vocabulary.tokens[i], p) for i, p in zip(*step, strict=True)] for step in steps]


# ---- live: which words are forgotten ---------------------------------------------------------------------------------


def recall_by_position(
    pairs: Sequence[Pair], translations: Sequence[Sentence], common: Collection[str], *, bins: int = 5
) -> Float[Tensor, " position"]:
    """The share of source words whose translation is written, by relative position in the sentence.

    A source word counts if one of the words with a sure link to it is not `common`; its translation may stand anywhere
    in the output.
    """
    kept, count = torch.zeros(bins), torch.zeros(bins)
    for pair, words in zip(pairs, translations, strict=True):
        for j in range(len(pair.source)):
            wanted = {pair.target[t] for i, t in pair.sure if i == j} - set(common)
            if wanted:
                part = j * bins // len(pair.source)
                kept[part] += bool(wanted & set(words))
                count[part] += 1
    return kept / count


# ---- live: gradients, time and memory --------------------------------------------------------------------------------


def gradient_reach(*, length: int, width: int = 64, relative: bool = True) -> dict[str, Float[Tensor, " distance"]]:
    """‖∂ output at the last step / ∂ input k steps earlier‖ of untrained networks, k = 0 … length − 1, batch mean.

    The LSTM's forget gates start open (bias 1, Jozefowicz et al., 2015). Attention reads the states of the GRU, with
    the last one as its query.
    """
    rnn, gru = nn.RNN(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
    lstm = nn.LSTM(width, width, batch_first=True)
    with torch.no_grad():
        lstm.get_parameter("bias_hh_l0")[width : 2 * width] = 1.0
    score = AdditiveScore(width, width, width)

    def attend(x: Tensor) -> Tensor:
        states, _ = gru(x)
        weights = masked_softmax(score(states[:, -1:], score.project(states)), None)
        return (weights @ states)[:, 0]

    networks = {
        "RNN": lambda x: rnn(x)[0][:, -1],
        "GRU": lambda x: gru(x)[0][:, -1],
        "LSTM": lambda x: lstm(x)[0][:, -1],
        "attention": attend,
    }
    found = {}
    for name, network in networks.items():
        x = torch.randn(64, length, width, requires_grad=True)
        (gradient,) = torch.autograd.grad((network(x) @ torch.randn(width)).sum(), x)
        by_distance = gradient.norm(dim=-1).mean(dim=0).flip(0)
        found[name] = by_distance / by_distance[0] if relative else by_distance
    return found


def step_seconds(
    *, words: int = 13, rows: int = 128, width: int = 128, vocabulary: int = 1000, rounds: int = 7
) -> dict[str, list[float]]:
    """`training_seconds` of each of `DECODERS`."""
    batch = random_batch(rows, words, vocabulary).to(runtime.device())
    models = {name: random_translator(decoder, width, vocabulary) for name, decoder in DECODERS.items()}
    return training_seconds(models, batch, rounds)


def step_cost(**config: int) -> dict[str, float]:
    """Time of a training step relative to the fixed context's: the median over rounds of the ratios."""
    seconds = step_seconds(**config)
    base = seconds.pop("fixed context")
    return {name: median(t / b for t, b in zip(times, base, strict=True)) for name, times in seconds.items()}


def kept_for_backward(decoder: type[RecurrentDecoder], *, words: int) -> int:
    """Bytes of activations that a translator keeps for the backward pass of 16 sentences of `words` words."""
    model, batch = random_translator(decoder, 128, 1000), random_batch(16, words, 1000).to(runtime.device())
    return kept_bytes(model, lambda: translation_loss(model, batch).mean)


# ---- stored: real sentences ------------------------------------------------------------------------------------------


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
