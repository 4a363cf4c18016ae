"""Speculative decoding: a small model proposes several tokens, the large one judges all of them in one pass.

The texts have the large model's distribution, whatever the small one proposes (Leviathan et al., 2023; Chen et al.,
2023). A pass over k + 1 tokens reads the weights once, as a pass over one does. Shapes: batch (1), time, vocab, k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook.checks import check_positive, trusted
from tfbook.generation.sampling import Filter, apply_filters, checked_stop, sample_now
from tfbook.models.blocks import StackCache
from tfbook.models.language_model import LanguageModel
from tfbook.modes import evaluating

# ---- the rule ----------------------------------------------------------------------------------------------------


def accept(p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"], proposed: int, u: float) -> bool:
    """u < p(x) / q(x) for the proposed token x, drawn from q: accepted with probability min(1, p(x) / q(x)).

    p is the large model's distribution and u is uniform on [0, 1) (Leviathan et al., 2023, algorithm 1).
    """
    return u * float(q[proposed]) < float(p[proposed])


def residual(p: Float[Tensor, " vocab"], q: Float[Tensor, " vocab"]) -> Float[Tensor, " vocab"]:
    """max(0, p − q), normalized: the distribution of the token in place of a rejected one (the same, algorithm 1).

    Where p = q nothing is ever rejected, and the result is p.
    """
    above = (p - q).clamp(min=0)
    total = above.sum()
    return above / total if total > 0 else p


def overlap(p: Float[Tensor, "*rows vocab"], q: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows"]:
    """Σ min(p, q) = 1 − ½ Σ |p − q|: the probability that a proposal is accepted (the same, theorem 3.5)."""
    return torch.minimum(p, q).sum(dim=-1)


def expected_tokens(acceptance: float, k: int) -> float:
    """(1 − α^(k + 1)) / (1 − α): tokens per pass of the large model when each of k proposals is accepted with α.

    (The same, equation 1.) Raises ValueError unless 0 ≤ α ≤ 1 and k ≥ 0.
    """
    if not 0 <= acceptance <= 1 or k < 0:
        raise ValueError(f"acceptance is {acceptance} and k is {k}; expected 0 ≤ acceptance ≤ 1 and k ≥ 0")
    return sum(acceptance**i for i in range(k + 1))


def expected_speedup(acceptance: float, k: int, cost: float, judging: float = 1.0) -> float:
    """`expected_tokens` / (k · cost + judging): how much faster than plain decoding (the same, theorem 3.8).

    `cost` is the time of a draft's step, and `judging` that of a pass over k + 1 tokens; both are divided by the time
    of the large model's pass over one.
    """
    return expected_tokens(acceptance, k) / (k * cost + judging)


# ---- models that forget what was rejected ------------------------------------------------------------------------


def roll_back(cache: StackCache, length: int) -> None:
    """Forgets all positions from `length` on; later ones overwrite them. Raises ValueError when it holds fewer."""
    if not 0 <= length <= cache.length:
        raise ValueError(f"length is {length}; expected 0 to {cache.length}, the positions of the cache")
    cache.length = length
    for block in cache.blocks:
        block.past.length = block.past.queries = length


@runtime_checkable
class Draft(Protocol):
    """Anything that says what comes next in a text: `CachedModel` does, and so may a table of counts."""

    def read(self, text: Int[Tensor, "1 time"], last: int = 1) -> Float[Tensor, "last vocab"]:
        """The logits after each of the `last` tokens of the text."""


class CachedModel:
    """A language model that reads only what is new in a text, and forgets what a text no longer holds at its end."""

    def __init__(self, model: LanguageModel):
        self.model, self.cache = model, model.new_cache()

    def read(self, text: Int[Tensor, "1 time"], last: int = 1) -> Float[Tensor, "last vocab"]:
        """The logits after each of the `last` tokens.

        All before them has to be as in the call before, as far as that read it.
        """
        start = min(int(self.cache.length), text.shape[1] - last)
        roll_back(self.cache, start)
        return self.model(text[:, start:], cache=self.cache)[0, -last:].float()


# ---- decoding ----------------------------------------------------------------------------------------------------


@dataclass
class Passes:
    """Counts of speculative decoding: passes of the large model, tokens proposed, judged and accepted, and generated.

    A proposal behind a rejected one is not judged.
    """

    passes: int = 0
    proposed: int = 0
    judged: int = 0
    accepted: int = 0
    tokens: int = 0

    @property
    def acceptance(self) -> float:
        """The share α of judged proposals that were accepted; NaN before the first."""
        return self.accepted / self.judged if self.judged else math.nan

    @property
    def tokens_per_pass(self) -> float:
        """Tokens per pass of the large model; NaN before the first."""
        return self.tokens / self.passes if self.passes else math.nan


Accept = Callable[[Tensor, Tensor, int, float], bool]
Residual = Callable[[Tensor, Tensor], Tensor]


class Speculation:
    """Decoding of `model` that a `draft` speeds up by proposing `k` tokens at a time; `passes` counts what it did.

    `accept` and `residual` are the rule. A draft that is a language model has its own cache for each text; any other is
    asked for logits as it is. Raises ValueError for k < 1 and for a draft with another vocabulary.
    """

    def __init__(
        self,
        model: LanguageModel,
        draft: LanguageModel | Draft,
        *,
        k: int = 4,
        accept: Accept = accept,
        residual: Residual = residual,
    ):
        check_positive(k=k)
        if isinstance(draft, LanguageModel) and draft.unembed.out_features != model.unembed.out_features:
            theirs, ours = draft.unembed.out_features, model.unembed.out_features
            raise ValueError(f"draft has a vocabulary of {theirs} tokens; expected the model's, {ours}")
        self.model, self.draft, self.k = model, draft, k
        self.accept, self.residual = accept, residual
        self.passes = Passes()

    def generate(
        self,
        ids: Int[Tensor, "batch time"],
        *,
        max_new_tokens: int,
        filters: Sequence[Filter] = (),
        stop: Collection[int] = (),
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "1 longer"]:
        """The text and its continuation, as `sampling.generate` takes its arguments; the filters act on both models.

        Raises what `sampling.generate` raises, and ValueError for more than one text.
        """
        if len(ids) != 1:
            raise ValueError(f"ids holds {len(ids)} texts; expected one")
        models = [each for each in (self.model, self.draft) if isinstance(each, LanguageModel)]
        for each in models:
            checked_stop(each, ids, max_new_tokens, stop)
        end, large = ids.shape[1] + max_new_tokens, CachedModel(self.model)
        small = CachedModel(self.draft) if isinstance(self.draft, LanguageModel) else self.draft
        with ExitStack() as contexts:
            contexts.enter_context(torch.inference_mode())
            contexts.enter_context(trusted())
            for each in models:
                contexts.enter_context(evaluating(each))
            while ids.shape[1] < end:
                k = min(self.k, end - ids.shape[1] - 1)
                new = _until(stop, self._round(large, small, ids, k, filters, generator))
                self.passes.tokens += len(new)
                ids = torch.cat([ids, ids.new_tensor([new])], dim=1)
                if new[-1] in stop:
                    break
        return ids.clone()

    def _round(
        self,
        large: Draft,
        small: Draft,
        ids: Int[Tensor, "1 time"],
        k: int,
        filters: Sequence[Filter],
        generator: torch.Generator | None,
    ) -> list[int]:
        """One pass of the large model: the accepted proposals, and one token more, drawn by the large model."""
        start, guesses = ids.shape[1], []
        for _ in range(k):
            guesses.append(probabilities(small.read(ids), ids, filters)[0])
            ids = torch.cat([ids, ids.new_tensor([[_draw(guesses[-1], generator)]])], dim=1)
        logits, proposed = large.read(ids, k + 1), ids[0, start:].tolist()
        uniform = torch.rand(k, generator=generator, device=ids.device).tolist()
        self.passes.passes += 1
        self.passes.proposed += k
        for i, (q, token, u) in enumerate(zip(guesses, proposed, uniform, strict=True)):
            p = probabilities(logits[i : i + 1], ids[:, : start + i], filters)[0]
            self.passes.judged += 1
            if not self.accept(p, q, token, u):
                return [*proposed[:i], _draw(self.residual(p, q), generator)]
            self.passes.accepted += 1
        p = probabilities(logits[k:], ids, filters)[0]
        return [*proposed, _draw(p, generator)]


def probabilities(
    logits: Float[Tensor, "1 vocab"], ids: Int[Tensor, "1 time"], filters: Sequence[Filter] = ()
) -> Float[Tensor, "1 vocab"]:
    """softmax(filtered logits), after the text `ids`."""
    return apply_filters(logits, ids, filters).softmax(dim=-1)


def _draw(p: Float[Tensor, " vocab"], generator: torch.Generator | None) -> int:
    """A token with these probabilities. Raises ValueError for NaN, which filters leave that forbid all tokens."""
    return sample_now(p.log()[None], generator)


def _until(stop: Collection[int], tokens: list[int]) -> list[int]:
    """The tokens up to the first stop token."""
    ends = [place for place, token in enumerate(tokens, start=1) if token in stop]
    return tokens[: ends[0]] if ends else tokens
