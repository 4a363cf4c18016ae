"""Study of lesson 06: how decoding methods write, how much time a cache saves, and how well a model is calibrated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence, Set as AbstractSet
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook import data, runtime, training
from tfbook.attention.positions import POSITIONS
from tfbook.course.cost import in_turns
from tfbook.course.experiments import experiment
from tfbook.course.metrics import bleu
from tfbook.course.translators import Task, quality
from tfbook.generation.sampling import Filter, generate, greedy, temperature, top_p
from tfbook.generation.search import NEVER_GENERATED, Penalty, beam_search, gnmt_penalty, mean_penalty, translate
from tfbook.lessons.decoding.answers import answer as answer
from tfbook.lessons.decoding.claims import CLAIMS as CLAIMS
from tfbook.lessons.transformer.study import LESSON, SMALL, Variant, forced, next_words, trained
from tfbook.models.blocks import Config
from tfbook.models.language_model import LanguageModel
from tfbook.models.transformer import Transformer
from tfbook.text.pairs import Pair, filter_by_length
from tfbook.text.vocabulary import EOS, PAD
from tfbook.text.windows import Windows
from tfbook.text.words import detokenize
from tfbook.training.losses import next_token_loss

if TYPE_CHECKING:
    from pandas import DataFrame


def claims_of_times(frame: DataFrame) -> dict[int, float]:
    """Claims 1 and 2: recomputed ÷ cached time at the longest text; cached time at the longest ÷ at the shortest."""
    first, last = frame.iloc[0], frame.iloc[-1]
    return {1: last["recomputed"] / last["cached"], 2: last["cached"] / first["cached"]}


def claims_of_likelihood(frame: DataFrame) -> dict[int, float]:
    """Claims 3 to 5: human text against the beam's and against samples, and how much greedy text repeats."""
    nats, repeats = (frame.pivot(index="seed", columns="way", values=column) for column in ("nats", "repeated"))
    gap = (nats["human"] - nats["full softmax"]).abs().max()
    return {3: (nats["human"] / nats["beam of 8"]).min(), 4: gap, 5: repeats["greedy"].min()}


def claims_of_searches(frame: DataFrame) -> dict[int, float]:
    """Claims 6 and 7: how much wide beams shorten, and the gain of a beam of 4, both without a penalty."""
    table = frame.pivot_table(index=["penalty", "width"], columns="seed", values=["bleu", "length"])
    plain = table.loc["none"]
    shrunk = (plain.loc[16, "length"] / plain.loc[1, "length"]).mean()
    return {6: shrunk, 7: (plain.loc[4, "bleu"] - plain.loc[1, "bleu"]).min()}


def claims_of_smoothing(frame: DataFrame) -> dict[int, float]:
    """Claims 8 to 10: perplexity with many sentences, calibration with few, and calibration with many."""
    table = frame.pivot_table(index=["sentences", "seed"], columns="variant", values=["loss", "calibration error"])
    hard, smooth = SMOOTHING
    many, few = (table.loc[amount] for amount in AMOUNTS)
    loss = many["loss"].mean()
    error = few["calibration error"]
    perplexities = math.exp(loss[smooth] - loss[hard])
    return {8: perplexities, 9: (error[hard] - error[smooth]).min(), 10: many["calibration error"][smooth].mean()}


# ---- flaws of a text -------------------------------------------------------------------------------------------------


def pairs_of(texts: Sequence[Sequence[str]]) -> set[tuple[str, str]]:
    """All pairs of neighboring words."""
    return {pair for text in texts for pair in pairwise(text)}


def flaws(texts: Sequence[Sequence[str]], known: AbstractSet[tuple[str, str]]) -> tuple[float, float]:
    """Share of three-word sequences that the text has had before, and of word pairs that are not `known`."""
    pairs = [pair for text in texts for pair in pairwise(text)]
    return repeated(texts, size=3), sum(pair not in known for pair in pairs) / max(1, len(pairs))


# ---- a small translator ----------------------------------------------------------------------------------------------

LEARNER = Variant(config=SMALL, tied=False, lr=5e-3, warmup=40)
LONGEST = 9  # words in the source


def train_translator(steps: int, seed: int = 1) -> tuple[Transformer, Task, list[Pair]]:
    """A Transformer that still makes mistakes, its task, and held-out sentences of the lengths it was trained on."""
    corpus = data.load("english-french")
    pairs, held_out = (filter_by_length(corpus[split], 3, LONGEST) for split in ("train", "test"))
    task = Task.of(corpus, corpus["train"])
    model, _ = trained(replace(LEARNER, steps=steps, warmup=min(LEARNER.warmup, steps)), task, pairs, seed=seed)
    return model.eval(), task, held_out


Ids = list[int]


def translating(
    model: Transformer, task: Task
) -> tuple[Callable[[Sequence[str], list[Ids]], Tensor], Callable[[Ids], str]]:
    """Two functions: log-probabilities of the next word after each text, (text, vocab), and ids as a sentence."""
    device = next(model.parameters()).device

    @torch.no_grad()
    def next_logp(source: Sequence[str], texts: list[Ids]) -> Float[Tensor, "text vocab"]:
        ids = torch.tensor([[*task.source_vocab.encode(source), EOS]] * len(texts), device=device)
        lengths = torch.full((len(texts),), ids.shape[1], device=device)
        logits = model(ids, lengths, torch.tensor(texts, device=device)).logits[:, -1]
        logp = logits.log_softmax(dim=-1).cpu()
        logp[:, NEVER_GENERATED] = -torch.inf  # <pad>, <bos> and <unk> are only read
        return logp

    def spelled(ids: Ids) -> str:
        return detokenize(task.target_vocab.decode(ids), "french")

    return next_logp, spelled


Found = tuple[Pair, list[int], list[int]]  # a sentence, the ids of its greedy translation and of the beam's


def clearest(found: Sequence[Found], spelled: Callable[[list[int]], str], count: int) -> list[Found]:
    """The sentences whose translations differ, those first that only the beam translates as the corpus does."""
    differing = [each for each in found if each[1] != each[2]] or list(found)

    def order(each: Found) -> tuple[bool, int]:
        pair, _, beam = each
        return spelled(beam) != detokenize(pair.target, "french"), len(pair.source)

    return sorted(differing, key=order)[:count]


def tally(found: Sequence[Found], spelled: Callable[[list[int]], str]) -> tuple[int, int, int]:
    """How many translations differ, and how many match the corpus word for word: greedy decoding's, the beam's."""
    differ = sum(greedy != beam for _, greedy, beam in found)
    goals = [detokenize(pair.target, "french") for pair, _, _ in found]
    by_greedy, by_beam = (
        sum(spelled(ids) == goal for ids, goal in zip(texts, goals, strict=True))
        for texts in ([greedy for _, greedy, _ in found], [beam for _, _, beam in found])
    )
    return differ, by_greedy, by_beam


def examples(found: Sequence[Found], spelled: Callable[[list[int]], str], count: int) -> str:
    """Sentences whose translations differ, with both translations and the corpus's; the `clearest` come first."""
    blocks = [
        f"  {detokenize(pair.source, 'english')}\n    greedy   {spelled(greedy)}\n    beam     {spelled(beam)}\n"
        f"    correct  {detokenize(pair.target, 'french')}"
        for pair, greedy, beam in clearest(found, spelled, count)
    ]
    return "\n\n".join(blocks)


TOY = {  # two-word texts that greedy decoding gets wrong: first word, its probability, and what may follow it
    "A": (0.55, {"x": 0.38, "y": 0.34, "z": 0.28}),
    "B": (0.35, {"x": 0.8, "y": 0.2}),
    "C": (0.1, {"x": 1.0}),
}

# ---- stored: what a cache saves --------------------------------------------------------------------------------------

TIMED = Config(d_model=256, heads=4, d_ff=1024, layers=4)


@experiment
def times(
    lengths: Sequence[int] = (64, 128, 256, 512, 1024), *, rounds: int = 7, vocab: int = 500
) -> list[dict[str, Any]]:
    """Milliseconds for one more token after texts of several lengths, with and without a cache: medians of rounds."""
    runtime.seed(1)
    model = LanguageModel(vocab, TIMED).to(runtime.device()).eval()
    rows = []
    for length in lengths:
        ids = torch.randint(vocab, (1, length), device=runtime.device())
        with torch.inference_mode():
            cache = model.new_cache()
            model(ids[:, :-1], cache=cache)
            ways: dict[str, Callable[[], object]] = {
                "cached": partial(model, ids[:, -1:], cache=cache),  # the cache grows by one token per round
                "recomputed": partial(model, ids),
            }
            seconds = in_turns(ways, rounds)
        rows.append({"length": length} | {name: round(1000 * median(each), 3) for name, each in seconds.items()})
    return rows


# ---- stored: why likely text is dull ---------------------------------------------------------------------------------

READ, WRITE = 64, 128  # characters of the prompt, and of what follows
WRITER = Config(d_model=64, heads=4, d_ff=256, layers=2, position=POSITIONS["rotary"])
WAYS: dict[str, Sequence[Filter]] = {
    "greedy": [greedy],
    "temperature 0.7": [temperature(0.7)],
    "top-p 0.9": [top_p(0.9)],
    "full softmax": [],
}


@experiment
def likelihood(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 1000, count: int = 64) -> list[dict[str, Any]]:
    """The likelihood that a model of Shakespeare's characters assigns to its own texts and to Shakespeare's.

    Nats per character, the share of sequences that repeat, and for one text the log-probability of each character.
    """
    text = data.load("tiny-shakespeare")
    rows = []
    for seed in seeds:
        model = _writer(text, steps, seed)
        ids = Windows(text.characters.encode(text.valid), length=READ + WRITE, size=count, seed=0)(0)
        ids = ids.to(runtime.device())
        generator = torch.Generator(runtime.device()).manual_seed(seed)
        texts = {"human": ids, "beam of 8": likely(model, ids[:, :READ], WRITE, width=8)}
        for name, filters in WAYS.items():
            texts[name] = generate(model, ids[:, :READ], max_new_tokens=WRITE, filters=filters, generator=generator)
        for name, written in texts.items():
            logp = log_probabilities(model, written)[:, READ - 1 :]
            row = {"seed": seed, "way": name, "nats": round(-float(logp.mean()), 4)}
            row["repeated"] = round(repeated(written[:, READ:].tolist(), size=12), 4)
            rows.append(row | {"each": [round(value, 3) for value in logp[0].tolist()]})
    return rows


def _writer(text: Any, steps: int, seed: int) -> LanguageModel:
    runtime.seed(seed)
    model = LanguageModel(len(text.characters), WRITER).to(runtime.device())
    batches = Windows(text.characters.encode(text.train), length=READ + WRITE, size=12, seed=seed)
    recipe = training.Recipe(steps=steps, lr=4e-3, schedule=training.warmup_cosine(50), betas=(0.9, 0.98))
    training.fit(model, next_token_loss, batches, recipe)
    return model.eval()


@torch.inference_mode()
def log_probabilities(model: LanguageModel, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch less"]:
    """log p of every token but the first, given those before it."""
    logp = model(ids[:, :-1]).float().log_softmax(dim=-1)
    return logp.gather(-1, ids[:, 1:, None])[..., 0].cpu()


@torch.inference_mode()
def likely(
    model: LanguageModel, ids: Int[Tensor, "batch time"], new: int, *, width: int
) -> Int[Tensor, "batch longer"]:
    """A beam search without `<eos>`: the likeliest continuation by `new` tokens that `width` beams find."""
    batch, vocab = len(ids), model.unembed.out_features
    cache, texts = model.new_cache(), ids.repeat_interleave(width, dim=0)
    scores = torch.full((batch, width), -torch.inf, device=ids.device)
    scores[:, 0] = 0  # at first, all beams hold the same text
    logits = model(texts, cache=cache)[:, -1]
    first = torch.arange(batch, device=ids.device)[:, None] * width
    for step in range(new):
        totals = scores[:, :, None] + logits.float().log_softmax(dim=-1).view(batch, width, vocab)
        scores, candidates = totals.flatten(1).topk(width)
        rows = (first + candidates // vocab).flatten()
        texts = torch.cat([texts[rows], (candidates % vocab).flatten()[:, None]], dim=1)
        if step < new - 1:
            logits = model(texts[:, -1:], cache=cache.select(rows))[:, -1]
    return texts.view(batch, width, -1)[:, 0]


def repeated(texts: Sequence[Sequence[Any]], *, size: int) -> float:
    """Share of the sequences of `size` tokens that have occurred before in their text, averaged over texts.

    In a text of fewer tokens nothing is repeated.
    """
    shares = []
    for text in texts:
        pieces = Counter(tuple(text[i : i + size]) for i in range(len(text) - size + 1))
        shares.append(1 - len(pieces) / pieces.total() if pieces else 0.0)
    return sum(shares) / len(shares)


# ---- stored: beams of several widths, on real sentences --------------------------------------------------------------


def searched(
    model: Transformer, pairs: Sequence[Pair], task: Task, *, width: int, penalty: Penalty
) -> dict[str, float]:
    """Results of a beam of `width`: BLEU, mean log-probability of its translations, and length ÷ the reference's.

    The reference's own log-probability is included: where it is higher than that of the translation found, the search
    has missed something; where it is lower, the model prefers another text.
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
    """BLEU of `translations` against all references that the corpus has for their sources."""
    write = partial(detokenize, language=task.corpus.target_language)
    references = [[write(words) for words in task.corpus.references[pair.source]] for pair in translations]
    return bleu([write(pair.target) for pair in translations], references).score


PENALTIES = {"none": gnmt_penalty(0.0), "GNMT, α = 0.6": gnmt_penalty(0.6), "mean": mean_penalty(1.0)}


@experiment
def searches(
    seeds: Sequence[int] = (1, 2), *, widths: Sequence[int] = (1, 2, 4, 8, 16), count: int = 1000, steps: int = 800
) -> list[dict[str, Any]]:
    """Beams of several widths with several length penalties, on Tatoeba sentences of 3 to 8 words."""
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


# ---- stored: label smoothing, on many sentences and on few -----------------------------------------------------------

SMOOTHING = {"hard targets": Variant(config=SMALL), "label smoothing 0.1": Variant(config=SMALL, smoothing=0.1)}
AMOUNTS = {"all sentences": None, "1,500 sentences": 1500}


@experiment
def smoothing(seeds: Sequence[int] = (1, 2, 3), *, longest: int = 12) -> list[dict[str, Any]]:
    """Translators with and without label smoothing, trained on many sentences of up to `longest` words and on few."""
    corpus = data.load("english-french")
    task = Task.of(corpus, corpus["train"])
    pairs, test = (filter_by_length(corpus[split], 3, longest) for split in ("train", "test"))
    rows = []
    for (amount, count), seed, (name, variant) in product(AMOUNTS.items(), seeds, SMOOTHING.items()):
        model, _ = trained(variant, task, pairs[:count], seed=seed)
        rows.append({"sentences": amount, "variant": name, "seed": seed} | _judged(model, test, task))
    return rows


def _judged(model: Transformer, pairs: Sequence[Pair], task: Task) -> dict[str, Any]:
    """Loss, BLEU and calibration on held-out pairs."""
    words = next_words(model, pairs, task)
    table = reliability(words.confidence, words.right)
    return {
        "loss": round(-float(words.logp.mean()), 4),
        "bleu": round(quality(model, pairs, task).bleu, 2),
        "calibration error": round(calibration_error(table), 4),
        "reliability": [[round(value, 4) for value in row] for row in table.tolist()],
    }


# ---- how good, and how sure ------------------------------------------------------------------------------------------


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
    """Share of the words, mean confidence, and accuracy in each of `bins` equal intervals of confidence."""
    interval = (confidence * bins).long().clamp(max=bins - 1)
    count = torch.zeros(bins).index_add(0, interval, torch.ones_like(confidence))
    sums = [torch.zeros(bins).index_add(0, interval, part.float()) for part in (confidence, right)]
    return torch.stack([count / count.sum(), *(total / count.clamp(min=1) for total in sums)], dim=1)


def calibration_error(table: Float[Tensor, "bin 3"]) -> float:
    """Σ share · |accuracy − confidence| over the bins of `reliability` (Guo et al., 2017, eq. 3)."""
    share, confidence, accuracy = table.unbind(dim=1)
    return float((share * (accuracy - confidence).abs()).sum())
