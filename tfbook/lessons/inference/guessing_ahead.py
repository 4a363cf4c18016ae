"""Speculative decoding in lesson 16: drafts of several qualities, the rule's distribution, and where the time goes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook.course.cost import busy_clock, in_turns
from tfbook.data.stories import told
from tfbook.generation import sampling
from tfbook.generation.speculative import (
    Accept,
    Draft,
    Residual,
    Speculation,
    accept,
    expected_speedup,
    overlap,
    residual,
)
from tfbook.lessons.inference.timing import PAST, reading, seconds
from tfbook.models.language_model import LanguageModel
from tfbook.pretrain.storyteller import Storyteller
from tfbook.text.vocabulary import BOS, EOS

TEMPERATURE = 0.7

# ---- drafts --------------------------------------------------------------------------------------------------------


class Counts:
    """A draft without a network: what followed the last `longest` words in some stories, or fewer where none are known.

    Shapes: time, vocab.
    """

    def __init__(self, texts: Sequence[Sequence[int]], vocab: int, longest: int):
        self.vocab, self.longest = vocab, longest
        self.counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for text in texts:
            for end in range(1, len(text)):
                for width in range(min(longest, end) + 1):
                    self.counts[tuple(text[end - width : end])][text[end]] += 1

    def read(self, text: Int[Tensor, "1 time"], last: int = 1) -> Float[Tensor, "last vocab"]:
        """The logarithm of the counts after the longest known context, and of a little for every token."""
        ids = text[0].tolist()
        return torch.stack([self._after(ids[:end]) for end in range(len(ids) - last + 1, len(ids) + 1)])

    def _after(self, ids: list[int]) -> Float[Tensor, " vocab"]:
        contexts = (tuple(ids[len(ids) - width :]) for width in range(min(self.longest, len(ids)), -1, -1))
        seen = next(self.counts[context] for context in contexts if context in self.counts)
        counts = torch.full((self.vocab,), 1e-3)
        counts[[*seen]] += torch.tensor([*map(float, seen.values())])
        return counts.log()


def counted_stories(teller: Storyteller, count: int) -> list[list[int]]:
    """Stories of the training set, as ids."""
    return [[BOS, *teller.vocabulary.encode(told("train", number).words), EOS] for number in range(count)]


class Acceptance(NamedTuple):
    """How good a draft is on stories, in nats per token, and Σ min(p, q), averaged over their positions."""

    name: str
    loss: float
    overlap: float


@torch.no_grad()
def acceptances(model: LanguageModel, drafts: dict[str, Draft | LanguageModel], ids: Tensor) -> list[Acceptance]:
    """For each draft; padded stories are cut at their ends."""
    found = []
    texts = [row[row != 0][None] for row in ids]
    large = [model(text)[0, :-1].div(TEMPERATURE).softmax(dim=-1) for text in texts]
    for name, draft in drafts.items():
        losses, shared = [], []
        for text, p in zip(texts, large, strict=True):
            width = text.shape[1] - 1
            logits = draft(text)[0, :-1] if isinstance(draft, LanguageModel) else draft.read(text[:, :-1], width)
            losses.append(torch.nn.functional.cross_entropy(logits, text[0, 1:], reduction="none"))
            shared.append(overlap(p, logits.div(TEMPERATURE).softmax(dim=-1)))
        found.append(Acceptance(name, float(torch.cat(losses).mean()), float(torch.cat(shared).mean())))
    return found


# ---- the distribution ----------------------------------------------------------------------------------------------


def rule_counts(p: Tensor, q: Tensor, accept: Accept, residual: Residual, draws: int) -> Float[Tensor, " vocab"]:
    """How often each token comes out of so many proposals from q, judged and replaced by the rule."""
    generator = torch.Generator().manual_seed(0)
    proposed = torch.multinomial(q, draws, replacement=True, generator=generator).tolist()
    uniform = torch.rand(draws, generator=generator).tolist()
    kept = [x for x, u in zip(proposed, uniform, strict=True) if accept(p, q, x, u)]
    counts = torch.bincount(torch.tensor(kept, dtype=torch.long), minlength=len(p)).float()
    if rejected := draws - len(kept):
        drawn = torch.multinomial(residual(p, q), rejected, replacement=True, generator=generator)
        counts += torch.bincount(drawn, minlength=len(p))
    return counts


def chi_square(counts: Float[Tensor, " vocab"], p: Float[Tensor, " vocab"], least: float = 5.0) -> float:
    """The probability of counts that are at least so far from n · p; rare tokens count as one.

    (Pearson, 1900.)
    """
    from scipy.stats import chisquare

    expected = counts.sum() * p.double() / p.double().sum()
    often = expected >= least
    pairs = [(counts[often], expected[often]), (counts[~often].sum()[None], expected[~often].sum()[None])]
    seen, wanted = (torch.cat(parts).double().numpy() for parts in zip(*pairs, strict=True))
    kept = wanted > 0
    return float(chisquare(seen[kept], wanted[kept] * seen[kept].sum() / wanted[kept].sum()).pvalue)


@torch.inference_mode()
def where_they_differ(
    large: Callable[[Tensor], Tensor],
    small: Callable[[Tensor], Tensor],
    ids: Int[Tensor, "batch time"],
    sure: float = 0.6,
) -> Int[Tensor, "1 place"]:
    """The beginning of one of these texts after which the two models agree least, by min(p, q) summed.

    Left out are places where the large model gives more than `sure` to one word, so that there is something to draw.
    """
    p, q = (model(ids).softmax(dim=-1) for model in (large, small))
    agreed = torch.minimum(p, q).sum(dim=-1) + (p.max(dim=-1).values > sure).float()
    row, place = divmod(int(agreed.argmin()), ids.shape[1])
    return ids[row : row + 1, : place + 1]


def second_words(write: Callable[..., Tensor], text: Int[Tensor, "1 time"], count: int) -> Counter[int]:
    """How often each word is the second after the text, over so many seeds."""
    counts: Counter[int] = Counter()
    for seed in range(count):
        options: dict[str, Any] = {"max_new_tokens": 2, "generator": torch.Generator().manual_seed(seed)}
        counts[int(write(text, **options)[0, -1])] += 1
    return counts


def same_source(one: Counter[int], other: Counter[int], least: int = 10) -> float:
    """The probability of two samples at least so different if both are of one distribution; rare words are one."""
    from scipy.stats import chi2_contingency

    often = [word for word, count in (one + other).items() if count >= least]
    table = [[counts[word] for word in often] for counts in (one, other)]
    rest = [counts.total() - sum(row) for counts, row in zip((one, other), table, strict=True)]
    columns = [[*row, left] if sum(rest) else row for row, left in zip(table, rest, strict=True)]
    return float(chi2_contingency(columns).pvalue)


# ---- where the time goes -------------------------------------------------------------------------------------------


class Gain(NamedTuple):
    """Guessing k tokens: what became of them, seconds per token without and with it, and those of its parts.

    `tokens` are those of a round, `step` is the large model's step, `judging` its pass over k + 1 tokens, and `draft`
    the draft's step.
    """

    k: int
    acceptance: float
    tokens: float
    plain: float
    guessing: float
    step: float
    judging: float
    draft: float

    @property
    def measured(self) -> float:
        """How many times faster than plain decoding it was."""
        return self.plain / self.guessing

    @property
    def predicted(self) -> float:
        """By the formula, from the acceptance and the times of the parts."""
        return expected_speedup(self.acceptance, self.k, self.draft / self.step, self.judging / self.step)


def gains(
    large: LanguageModel,
    draft: LanguageModel,
    ks: Sequence[int],
    rounds: int,
    *,
    rule: tuple[Accept, Residual] = (accept, residual),
    stories: int = 2,
    length: int = 40,
) -> list[Gain]:
    """For each k: stories written with and without a draft, in turns, and the parts of a round, timed alone."""
    ways = {k: Speculation(large, draft, k=k, accept=rule[0], residual=rule[1]) for k in ks}
    runs: dict[Any, Callable[..., Tensor]] = {k: way.generate for k, way in ways.items()}
    took = race({"plain": partial(sampling.generate, large), **runs}, rounds, stories=stories, length=length)
    parts: dict[Any, Callable[[], None]] = {k: reading(large, new=k + 1) for k in (0, *ks)}
    times = seconds(parts | {"draft": reading(draft)}, rounds, repeats=3)
    return [
        Gain(
            k,
            way.passes.acceptance,
            way.passes.tokens_per_pass,
            took["plain"],
            took[k],
            times[0],
            times[k],
            times["draft"],
        )
        for k, way in ways.items()
    ]


def best_gain(found: Sequence[Gain]) -> Gain:
    """The fastest of them."""
    return max(found, key=lambda gain: gain.measured)


def gain_table(models: Mapping[str, Sequence[Gain]], k: int) -> Any:
    """For each model the milliseconds of a step, of judging k + 1 tokens and of the draft's step, and the speeds."""
    import pandas as pd

    rows = {}
    for name, found in models.items():
        gain = next(gain for gain in found if gain.k == k)
        rows[name] = {
            "a step, ms": f"{1e3 * gain.step:.2f}",
            f"judging {k + 1}, ms": f"{1e3 * gain.judging:.2f}",
            "draft's step, ms": f"{1e3 * gain.draft:.2f}",
            "accepted": f"{gain.acceptance:.0%}",
            "speed that follows": f"{gain.predicted:.1f} ×",
            "measured": f"{gain.measured:.1f} ×",
        }
    return pd.DataFrame(rows).T


class Pair(NamedTuple):
    """Seconds per token of a model in one form: one text, plain and with guesses, and in a step of sixteen texts.

    `together` is after `PAST` tokens, `long` after `LONG` ones. `guessing` is None where it was not tried.
    """

    plain: float
    guessing: float | None
    together: float
    long: float

    def multiplied(self, key: str, first: Pair) -> float | None:
        """The speeds of its form and of the lever of `key`, each alone, multiplied; None for fewer than two levers.

        `first` has the form that is no lever.
        """
        if self is first or key == "plain" or getattr(self, key) is None:
            return None
        return first.plain / getattr(first, key) * (first.plain / self.plain)

    def share(self, key: str, first: Pair) -> float:
        """A pair's speed, divided by what its levers multiplied would give. Raises ValueError for a lone lever."""
        if (multiplied := self.multiplied(key, first)) is None:
            raise ValueError(f"{key} of this form is no pair of levers")
        return first.plain / getattr(self, key) / multiplied


LONG = 900  # tokens of a long text, fifteen times as many as PAST


def lever_pairs(
    forms: Mapping[str, LanguageModel],
    draft: LanguageModel,
    k: int,
    rule: tuple[Accept, Residual],
    rounds: int,
    *,
    texts: int = 16,
    long: int = LONG,
    unguessed: Sequence[str] = (),
) -> dict[str, Pair]:
    """Each form of a model alone, with k guesses, and with `texts` texts in a step, short and long; all take turns.

    The forms of `unguessed` are not trained further, so a draft would not guess their words.
    """
    runs: dict[Any, Callable[..., Tensor]] = {}
    steps: dict[Any, Callable[[], None]] = {}
    for name, form in forms.items():
        runs[name, "plain"] = partial(sampling.generate, form)
        if name not in unguessed:
            runs[name, "guessing"] = Speculation(form, draft, k=k, accept=rule[0], residual=rule[1]).generate
        steps |= {(name, past): reading(form, batch=texts, past=past) for past in (PAST, long)}
    took = race(runs, rounds, stories=1, length=60)
    times = seconds(steps, rounds, repeats=2)
    return {
        name: Pair(
            took[name, "plain"], took.get((name, "guessing")), times[name, PAST] / texts, times[name, long] / texts
        )
        for name in forms
    }


def tell_stories(write: Callable[..., Tensor], stories: int, length: int) -> None:
    """Stories of so many words, each from its own seed."""
    for seed in range(stories):
        options: dict[str, Any] = {"generator": torch.Generator().manual_seed(seed)}
        options["filters"] = [sampling.temperature(TEMPERATURE)]
        write(torch.tensor([[BOS]]), max_new_tokens=length, **options)


def race(
    runs: Mapping[Any, Callable[..., Tensor]], rounds: int, *, stories: int = 4, length: int = 50
) -> dict[Any, float]:
    """Seconds per token of each way to write stories, in turns; the middle of the rounds."""
    told = {name: partial(tell_stories, write, stories, length) for name, write in runs.items()}
    took = in_turns(told, rounds, clock=busy_clock)
    return {name: median(times) / (stories * length) for name, times in took.items()}
