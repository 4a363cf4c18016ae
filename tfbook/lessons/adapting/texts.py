"""Lesson 11's text-to-text tasks: three tasks as texts, read under a causal mask, a prefix mask, or by an encoder.

Shapes: batch; source and target, whose sum is time; vocab.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tfbook import runtime, training
from tfbook.attention.masks import Causal, Prefix
from tfbook.attention.positions import POSITIONS
from tfbook.course.experiments import experiment
from tfbook.data.stories import Story, questions, sentences, told, words_of, world_words
from tfbook.data.stories.lexicon import PREPOSITIONS, SPECIES, article
from tfbook.models.blocks import Config, Stack
from tfbook.models.language_model import ScaledEmbedding
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.text.spans import SpanCorruption, corrupt_spans
from tfbook.text.vocabulary import BOS, EOS, PAD, Vocabulary

if TYPE_CHECKING:
    from pandas import DataFrame


# ---- three tasks -----------------------------------------------------------------------------------------------------

TASKS = ("answer", "restore", "retell")
WORDS = 28  # of a story, extended to the end of the sentence
SPANS = SpanCorruption(rate=0.15, mean_length=3.0)  # T5's
SENTINELS = 8


def beginning(story: Story) -> list[str]:
    """The first sentences of a story, up to the end of the sentence that reaches `WORDS` words."""
    words: list[str] = []
    for sentence in sentences(story.words):
        if len(words) < WORDS:
            words += sentence
    return words


def task_texts(story: Story, task: str, *, seed: int = 0) -> tuple[list[str], list[str]]:
    """Source and target of a task as words; the sentinels are ⟨0⟩, ⟨1⟩ and so on."""
    words = beginning(story)
    if task == "retell":
        return [*words_of("play:"), *words], as_play(story)
    if task == "restore":
        generator = torch.Generator().manual_seed(seed)
        source, target = corrupt_spans(range(len(words)), len(words), SPANS, generator=generator)
        named = [*words, *MARKS]
        return [named[i] for i in source], [named[i] for i in target]
    here = len(sentences(words))
    known = [q for q in questions(story) if q.kind in ("animal", "home") and q.support[-1] < here]
    asked = known[seed % len(known)]
    return [*words_of(asked.text), *words], [asked.answer]


def as_play(story: Story) -> list[str]:
    """The opening of a play that would tell this story: its setting, and who enters."""
    roles = story.told[0].roles
    hero, place = story.state.people[roles["A"]], roles["p"]
    who = f"{article(hero.trait)} {hero.trait} {hero.species}"
    return words_of(f"Scene: {PREPOSITIONS[place]} the {place}. Enter {hero.name}, {who}.")


class Texts(NamedTuple):
    """A padded batch: sources, their lengths, and targets that begin with `<bos>` and end with `<eos>`."""

    source: Int64[Tensor, "batch source"]
    lengths: Int64[Tensor, " batch"]
    target: Int64[Tensor, "batch target"]

    def to(self, device: torch.device | str) -> Texts:
        """The same batch on another device."""
        return Texts(*(part.to(device) for part in self))


MARKS = [f"⟨{n}⟩" for n in range(SENTINELS)]
VOCABULARY = Vocabulary([[*world_words(), *MARKS]])

_told = lru_cache(maxsize=1)(told)


@cache
def example(split: str, number: int) -> tuple[list[int], list[int]]:
    """Source and target ids of one example; consecutive numbers cycle through the tasks."""
    story, task = _told(split, number // len(TASKS)), TASKS[number % len(TASKS)]
    source, target = task_texts(story, task, seed=number // len(TASKS))
    return VOCABULARY.encode(source), [BOS, *VOCABULARY.encode(target), EOS]


def texts(split: str, numbers: Sequence[int]) -> Texts:
    """The examples with these numbers as one batch."""
    pairs = [[torch.tensor(ids) for ids in example(split, number)] for number in numbers]
    source, target = (pad_sequence(list(s), batch_first=True, padding_value=PAD) for s in zip(*pairs, strict=True))
    return Texts(source, torch.tensor([len(pair[0]) for pair in pairs]), target)


# ---- three models of equal size --------------------------------------------------------------------------------------

SIZES: dict[str, Any] = {"d_model": 64, "heads": 4, "position": POSITIONS["rotary"]}
DECODER = Config(**SIZES, d_ff=256, layers=4)
HALF = Config(**SIZES, d_ff=192, layers=2)  # half of an encoder–decoder; the smaller d_ff makes up for cross-attention


class OneStack(nn.Module):
    """A decoder of source and target as one sequence, under a causal mask or one that shows the whole source."""

    def __init__(self, mask: str):
        super().__init__()
        self.mask = mask
        self.embed, self.stack = ScaledEmbedding(len(VOCABULARY), DECODER.d_model), Stack(DECODER)

    def forward(self, batch: Texts) -> Float[Tensor, "batch target vocab"]:
        """Logits for the token after each target token."""
        ids = F.pad(batch.source, (0, batch.target.shape[1]), value=PAD)
        positions = batch.lengths[:, None] + torch.arange(batch.target.shape[1], device=ids.device)
        ids = ids.scatter(1, positions, batch.target)
        states = self.stack(self.embed(ids), Prefix(batch.lengths) if self.mask == "prefix" else Causal())
        written = states.gather(1, positions[..., None].expand(-1, -1, states.shape[-1]))
        return written @ self.embed.weight.T

    def flops(self, source: int, target: int) -> int:
        """Operations of one example's forward pass; only target positions go through the output matrix."""
        return self.stack.flops(source + target) + 2 * target * self.embed.weight.numel()


class TwoStacks(nn.Module):
    """An encoder that reads the source in both directions and a decoder that attends to it, half the blocks each."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Transformer(Encoder(len(VOCABULARY), HALF), Decoder(len(VOCABULARY), HALF))
        self.model.encoder.embed = self.model.decoder.embed

    def forward(self, batch: Texts) -> Float[Tensor, "batch target vocab"]:
        """Logits for the token after each target token."""
        return self.model(batch.source, batch.lengths, batch.target).logits

    def flops(self, source: int, target: int) -> int:
        """Operations of one example's forward pass."""
        encoder, decoder = self.model.encoder, self.model.decoder
        work = encoder.stack.flops(source) + decoder.stack.flops(target, source=source)
        return work + 2 * target * decoder.embed.weight.numel()


MODELS: dict[str, Callable[[], Any]] = {
    "causal": lambda: OneStack("causal"),
    "prefix": lambda: OneStack("prefix"),
    "encoder–decoder": TwoStacks,
}

# ---- training and scores ---------------------------------------------------------------------------------------------

STEPS, BATCH, JUDGED = 300, 24, 600  # a batch has equally many examples of every task
PAIRS = 3000  # examples in which pairs of consecutive words are counted
RATES = (0.01, 0.02)  # learning rates of Muon
KINDS = {"causal": 1, "prefix": 1, "encoder–decoder": 2}  # × `STEPS`: an example costs an encoder–decoder half


@experiment
def text_to_text(seeds: Sequence[int] = (1, 2, 3), *, steps: int = STEPS, judged: int = JUDGED) -> list[dict[str, Any]]:
    """Scores on three tasks that one model learns: every rate with the first seed, the best rate with all seeds."""
    held_out = texts("valid", range(judged))
    simple = _scores(_word_pairs(held_out), held_out) | {"answer": first_named(range(0, judged, len(TASKS)))}
    rows = [{"kind": "baseline", "lr": 0.0, "seed": 0, **_rounded(simple)}]
    for kind in KINDS:
        first = [_run(kind, lr, seeds[0], steps, held_out) for lr in RATES]
        best = max(first, key=lambda row: sum(row[task] for task in TASKS))["lr"]
        rows += [*first, *(_run(kind, best, seed, steps, held_out) for seed in seeds[1:])]
    return rows


def _run(kind: str, lr: float, seed: int, steps: int, held_out: Texts) -> dict[str, Any]:
    runtime.seed(seed)
    model, steps, first = MODELS[kind](), KINDS[kind] * steps, seed * 1_000_000

    def batches(step: int) -> Texts:
        return texts("train", range(first + step * BATCH, first + (step + 1) * BATCH))

    recipe = training.Recipe(
        steps=steps,
        optimizer="muon",
        lr=lr,
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(20),
        evaluate_every=steps,
    )
    training.fit(model, text_loss, batches, recipe)
    with torch.no_grad():
        found = _scores(model(_shifted(held_out)).argmax(dim=-1), held_out)
    work = 3 * steps * BATCH * model.flops(*mean_lengths(held_out))
    size = sum(parameter.numel() for parameter in model.parameters())
    return {"kind": kind, "lr": lr, "seed": seed, "parameters": size, "teraflops": work / 1e12, **_rounded(found)}


def text_loss(model: nn.Module, batch: Texts) -> Tensor:
    """Mean cross-entropy of the target tokens, in nats; source tokens add nothing to the loss."""
    return F.cross_entropy(model(_shifted(batch)).flatten(0, 1), batch.target[:, 1:].flatten(), ignore_index=PAD)


def mean_lengths(batch: Texts) -> tuple[int, int]:
    """Mean number of source and of target tokens per example, rounded."""
    return round(float(batch.lengths.float().mean())), round(
        float((batch.target[:, 1:] != PAD).sum() / len(batch.target))
    )


def _shifted(batch: Texts) -> Texts:
    return batch._replace(target=batch.target[:, :-1])


def _scores(predicted: Int64[Tensor, "batch written"], batch: Texts) -> dict[str, float]:
    """For each task the share of targets without an error; for cut spans, the share of correct words.

    Every word is predicted given the true words before it. If all of them are right, greedy decoding would write the
    whole target.
    """
    wanted = batch.target[:, 1:]
    right, marks = predicted == wanted, torch.tensor([PAD, EOS, *VOCABULARY.encode(MARKS)])
    scores = {}
    for number, task in enumerate(TASKS):
        mine = slice(number, None, len(TASKS))
        if task == "restore":
            words = ~torch.isin(wanted[mine], marks)
            scores[task] = float(right[mine][words].float().mean())
        else:
            scores[task] = float((right | (wanted == PAD))[mine].all(dim=1).float().mean())
    return scores


def _word_pairs(batch: Texts) -> Int64[Tensor, "batch written"]:
    """A baseline: the word that follows the previous one most often in the targets of the same task."""
    wanted = torch.empty_like(batch.target[:, 1:])
    for number in range(len(TASKS)):
        seen = texts("train", range(number, PAIRS, len(TASKS))).target
        follows = torch.zeros(len(VOCABULARY), len(VOCABULARY))
        follows.index_put_((seen[:, :-1], seen[:, 1:]), torch.tensor(1.0), accumulate=True)
        mine = slice(number, None, len(TASKS))
        wanted[mine] = follows[batch.target[mine, :-1]].argmax(dim=-1)
    return wanted


def first_named(numbers: Sequence[int]) -> float:
    """A baseline: how often the answer is the first animal, or the first place, that a held-out story names."""
    right = []
    for number in numbers:
        words, target = (VOCABULARY.decode(ids) for ids in example("valid", number))
        kind: Collection[str] = SPECIES if words[0] == "what" else PREPOSITIONS
        right.append(next(word for word in words if word in kind) == target[0])
    return sum(right) / len(right)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def best_runs(frame: DataFrame) -> DataFrame:
    """For each kind of model the runs at the rate that has the most seeds, and the baseline."""
    counts = frame.groupby(["kind", "lr"])["seed"].transform("count")
    return frame[counts == counts.groupby(frame["kind"]).transform("max")]


def claims_of_texts(frame: DataFrame) -> dict[int, float]:
    """On restored words: the encoder–decoder's lead over both decoders, and the effect of the mask."""
    means = best_runs(frame).groupby("kind")["restore"].mean()
    lead = means["encoder–decoder"] - means[["causal", "prefix"]].max()
    return {10: lead, 11: abs(means["prefix"] - means["causal"])}
