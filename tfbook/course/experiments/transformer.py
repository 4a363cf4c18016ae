"""A Transformer against a recurrent translator with attention, and with its parts changed one at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tfbook import data, runtime, training
from tfbook.attention import POSITIONS
from tfbook.course.claims import Bound, Claims
from tfbook.course.experiments import experiment, translators
from tfbook.course.experiments.cost import parameters
from tfbook.course.experiments.summaries import unnest
from tfbook.course.experiments.translators import Task, by_length, quality
from tfbook.models.blocks import Config, PostNorm
from tfbook.models.seq2seq import BahdanauDecoder
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.text.pairs import Batch, Batches, Pair, collate, filter_by_length
from tfbook.text.vocabulary import PAD
from tfbook.training.losses import translation_loss

if TYPE_CHECKING:
    from pandas import DataFrame

_XIONG = "Xiong et al. (2020)"
_RACE = "stored, transformer.against_recurrence, worse of two runs"
CLAIMS = Claims(
    "transformer",
    {
        1: Bound(
            "Four untrained layers of attention alone make twelve positions practically equal: what is left of spread",
            "<=",
            1e-4,
            "Dong et al. (2021): it falls doubly exponentially with depth",
        ),
        2: Bound(
            "The Transformer of this page translates unseen sentences of up to ten words after 700 training steps",
            ">=",
            60,
            "measured here",
            " BLEU",
        ),
        3: Bound(
            "The smaller Transformer reaches the recurrent translator's final BLEU in a fraction of its time",
            "<=",
            0.4,
            f"{_RACE}; time ÷ time",
        ),
        4: Bound(
            "It translates better in each group of sentences up to the trained lengths: smallest lead",
            ">=",
            1,
            _RACE,
            " BLEU",
        ),
        5: Bound("On sentences of 21 to 30 words, longer than any in training, it is worse", ">=", 8, _RACE, " BLEU"),
        6: Bound(
            "Without warm-up, six pre-norm blocks learn to reverse symbols: final loss, worst run at the best rate",
            "<=",
            0.2,
            "stored, transformer_stacks.norms, three runs at each of four rates",
            " nats",
        ),
        7: Bound(
            "In the same 200 steps six post-norm blocks have not, at any of the rates: final loss, best of all runs",
            ">=",
            1.2,
            f"stored, transformer_stacks.norms; {_XIONG}",
            " nats",
        ),
        8: Bound(
            "In the last of twelve untrained blocks, post-norm's gradient is several times as large as pre-norm's",
            ">=",
            2.5,
            f"{_XIONG}, Figure 3; ratio",
        ),
        9: Bound(
            "The same first step of Adam moves the output of 16 post-norm blocks farther than that of 16 pre-norm ones",
            ">=",
            2,
            "Liu et al. (2020), section 4; ratio, mean of three models each",
        ),
    },
)

SMALL = Config(d_model=64, heads=4, d_ff=256, layers=2, position=POSITIONS["rotary"])  # of the stored comparisons


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One translator of a comparison: what it is, and how it is trained."""

    config: Config = SMALL
    tied: bool = True
    xavier: bool = False  # starts with the larger weights of `xavier`
    smoothing: float = 0.0
    weight_decay: float = 0.0
    lr: float = 4e-3
    warmup: int = 150
    inverse_sqrt: bool = False  # after the warm-up the rate falls as in 2017, not along half a cosine to 0
    steps: int = 800

    def build(self, task: Task) -> Transformer:
        """The untrained translator, on the chosen device."""
        encoder = Encoder(len(task.source_vocab), self.config)
        decoder = Decoder(len(task.target_vocab), self.config, tied=self.tied)
        model = Transformer(encoder, decoder)
        if self.xavier:
            xavier(model)
        return model.to(runtime.device())

    def recipe(self) -> training.Recipe:
        """A warm-up, then a fall."""
        if self.inverse_sqrt:
            schedule = training.inverse_sqrt(self.warmup)
        else:
            schedule = training.warmup_cosine(self.warmup, final=0.0)
        return training.Recipe(
            steps=self.steps, lr=self.lr, schedule=schedule, betas=(0.9, 0.98), weight_decay=self.weight_decay
        )


def xavier(model: nn.Module) -> None:
    """Weights of variance 2 / (inputs + outputs) and biases 0: larger than PyTorch's own (Glorot & Bengio, 2010).

    The embedding matrix, which may be tied to the output's, stays as it is.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)


def trained(
    variant: Variant, task: Task, pairs: Sequence[Pair], *, seed: int, evaluate: training.Evaluate | None = None
) -> tuple[Transformer, training.History]:
    """A translator trained on `pairs`, 64 per batch, and its history."""
    runtime.seed(seed)
    model = variant.build(task)
    batches = Batches(pairs, task.source_vocab, task.target_vocab, size=64, seed=seed)
    loss = partial(translation_loss, smoothing=variant.smoothing)
    return model, training.fit(model, loss, batches, variant.recipe(), evaluate=evaluate)


# ---- how good, and how sure ---------------------------------------------------------------------------------------


class NextWords(NamedTuple):
    """A model's predictions of the true translations' words, each given the true words before it."""

    logp: Float[Tensor, " word"]  # of the true word
    confidence: Float[Tensor, " word"]  # probability of the likeliest word
    right: Bool[Tensor, " word"]  # whether that is the true one


def next_words(model: nn.Module, pairs: Sequence[Pair], task: Task) -> NextWords:
    """Every word of the targets of `pairs`, `<eos>` included, under teacher forcing."""
    parts = []
    for logp, batch in forced(model, pairs, task):
        words = batch.target_out != PAD
        best, place = logp.max(dim=-1)
        true = logp.gather(-1, batch.target_out[..., None])[..., 0]
        parts.append([part[words].cpu() for part in (true, best.exp(), place == batch.target_out)])
    return NextWords(*(torch.cat(part) for part in zip(*parts, strict=True)))


def forced(model: nn.Module, pairs: Sequence[Pair], task: Task) -> Iterator[tuple[Tensor, Batch]]:
    """Log-probabilities of every word at every position of the true translations, 250 pairs at a time."""
    model.eval()
    for start in range(0, len(pairs), 250):
        batch = collate(pairs[start : start + 250], task.source_vocab, task.target_vocab).to(runtime.device())
        with torch.inference_mode():
            logits = model(batch.source, batch.source_lengths, batch.target_in).logits
            logp = torch.log_softmax(logits.float(), dim=-1)
        yield logp, batch


def _judged(model: Transformer, pairs: Sequence[Pair], task: Task) -> dict[str, Any]:
    """Loss and BLEU on held-out pairs."""
    words = next_words(model, pairs, task)
    return {
        "loss": round(-float(words.logp.mean()), 4),
        "bleu": round(quality(model, pairs, task).bleu, 2),
    }


def _compared(
    variants: Mapping[str, Variant], pairs: Sequence[Pair], task: Task, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Each variant trained on `pairs` with each seed, judged on sentences of the same lengths."""
    longest = max(len(pair.source) for pair in pairs)
    valid, test = (filter_by_length(task.corpus[split], 3, longest) for split in ("valid", "test"))

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"loss": -float(next_words(model, valid[:200], task).logp.mean())}

    rows = []
    for seed in seeds:
        for name, variant in variants.items():
            model, history = trained(variant, task, pairs, seed=seed, evaluate=evaluate)
            row = {"variant": name, "seed": seed, "parameters": parameters(model)}
            row["train loss"] = round(-float(next_words(model, pairs[:1000], task).logp.mean()), 4)
            row["curve"] = [[point["step"], round(point["loss"], 4)] for point in history.evaluations]
            rows.append(row | _judged(model, test, task))
    return rows


# ---- stored: parts and regularizers -------------------------------------------------------------------------------

PARTS = {
    "as it is": Variant(),
    "untied": Variant(tied=False),
}
REGULARIZERS = {
    "nothing": Variant(),
    "dropout 0.1": Variant(config=replace(SMALL, dropout=0.1)),
    "dropout 0.3": Variant(config=replace(SMALL, dropout=0.3)),
    "weight decay 1": Variant(weight_decay=1.0),
}


@experiment
def parts(seeds: Sequence[int] = (1, 2, 3), *, longest: int = 12) -> list[dict[str, Any]]:
    """Tied and untied, on all sentences of up to `longest` words."""
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    return _compared(PARTS, filter_by_length(corpus["train"], 3, longest), task, seeds)


@experiment
def regularizers(seeds: Sequence[int] = (1, 2, 3), *, longest: int = 12, count: int = 1500) -> list[dict[str, Any]]:
    """Dropout and weight decay where `count` sentences are seen again and again."""
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    return _compared(REGULARIZERS, filter_by_length(corpus["train"], 3, longest)[:count], task, seeds)


# ---- stored: the recipe of 2017 -----------------------------------------------------------------------------------

_OURS = Variant(  # lesson 05's own sizes
    config=Config(d_model=96, heads=4, d_ff=384, layers=2, position=POSITIONS["sinusoidal"]), lr=5e-3, steps=700
)
RECIPES = {
    "our recipe": _OURS,
    "recipe of 2017": replace(
        _OURS,
        config=replace(_OURS.config, residual=PostNorm, dropout=0.1),
        xavier=True,
        smoothing=0.1,
        lr=(_OURS.config.d_model * 300) ** -0.5,  # the peak of their formula with 300 steps of warm-up
        warmup=300,
        inverse_sqrt=True,
    ),
}


@experiment
def recipes(seeds: Sequence[int] = (1, 2, 3), *, longest: int = 12) -> list[dict[str, Any]]:
    """Lesson 05's recipe and that of Vaswani et al. (2017), whole, on sentences of up to `longest` words."""
    corpus = data.load("english-french")
    task, pairs = Task.of(corpus, corpus["train"]), filter_by_length(corpus["train"], 3, longest)
    held_out = filter_by_length(corpus["test"], 3, longest)[:300]
    rows = []
    for seed, (name, variant) in product(seeds, RECIPES.items()):
        model, _ = trained(variant, task, pairs, seed=seed)
        bleu = round(quality(model, held_out, task).bleu, 2)
        rows.append({"recipe": name, "seed": seed, "parameters": parameters(model), "test": bleu})
    return rows


# ---- stored: against a recurrent translator with attention --------------------------------------------------------

LESSON = Variant(  # larger than lesson 05's own; lesson 06 decodes with it
    config=Config(d_model=128, heads=8, d_ff=512, layers=2, position=POSITIONS["rotary"]),
    lr=4e-3,
    warmup=200,
    steps=1000,
)
RIVALS = {
    "Transformer": LESSON,
    "Transformer of equal size": replace(LESSON, config=replace(LESSON.config, d_model=160, d_ff=640), steps=2200),
}


@experiment
def against_recurrence(seeds: Sequence[int] = (1, 2), *, recurrent_steps: int = 1500) -> list[dict[str, Any]]:
    """The recurrent translator with attention, then `RIVALS`, on the same corpus: validation BLEU against seconds.

    Each with the recipe of its lesson. Seconds matter: run it on an idle machine.
    """
    corpus = data.load("english-french")
    task, pairs = Task.of(corpus, corpus["train"]), corpus["train"]

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"bleu": quality(model, corpus["valid"][:200], task).bleu}

    recurrent = partial(translators.trained, BahdanauDecoder, width=192, steps=recurrent_steps, dropout=0.2)
    rows = []
    model: nn.Module
    for seed in seeds:
        model, history = recurrent(seed, task, pairs, evaluate=evaluate)
        rows.append({"model": "recurrent", "seed": seed, **_raced(model, history, task)})
        for name, variant in RIVALS.items():
            model, history = trained(variant, task, pairs, seed=seed, evaluate=evaluate)
            rows.append({"model": name, "seed": seed, **_raced(model, history, task)})
    return rows


def _raced(model: nn.Module, history: training.History, task: Task) -> dict[str, Any]:
    """Curve and final quality, over the whole test set and by length."""
    return {
        "parameters": parameters(model),
        "curve": [{key: round(value, 3) for key, value in point.items()} for point in history.evaluations],
        "by_length": [[*length, round(q.bleu, 2)] for length, q in by_length(model, task, 250).items()],
        "test": round(quality(model, task.corpus["test"], task).bleu, 2),
        "template": round(quality(model, task.corpus["template"], task).bleu, 2),
    }


def time_to_match(frame: DataFrame, rival: str = "Transformer") -> list[float]:
    """For each seed: seconds until the rival has the recurrent translator's last validation BLEU, ÷ its seconds.

    Infinite where the rival never has it.
    """
    shares = []
    for _, runs in unnest(frame, "curve").groupby("seed"):
        recurrent, other = (runs[runs["model"] == name] for name in ("recurrent", rival))
        reached = other["seconds"][other["bleu"] >= recurrent["bleu"].iloc[-1]]
        shares.append(min(reached, default=math.inf) / recurrent["seconds"].iloc[-1])
    return shares


def against_lesson_01(race: DataFrame) -> dict[int, float]:
    """Claims 3 to 5: the share of time, the smallest lead up to 20 words and the smallest lag at 21 to 30 words."""
    by_length = unnest(race, "by_length", ["from", "to", "bleu"])
    table = by_length.pivot(index=["seed", "from"], columns="model", values="bleu")
    leads = (table["Transformer"] - table["recurrent"]).unstack("from")
    return {3: max(time_to_match(race)), 4: leads[[3, 9, 15]].min().min(), 5: -leads[21].max()}
