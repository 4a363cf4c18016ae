"""Sampling text from a language model, token by token, with filters such as temperature, top-k and top-p.

Shapes: batch, time, vocab.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tfbook.attention.cache import Cache
from tfbook.attention.masks import Band, Causal
from tfbook.attention.positions import Learned
from tfbook.checks import check_ids, check_logits, trusted
from tfbook.generation.captured import Captured, can_be_captured
from tfbook.models.language_model import LanguageModel
from tfbook.models.states import RecurrentState
from tfbook.modes import evaluating

# ---- filters: from logits to logits ------------------------------------------------------------------------------

# logits (batch, vocab), ids so far (batch, time) → logits; a token with −∞ is never sampled. Where texts differ in
# length, all end together, and in front a shorter one repeats its first token.
Filter = Callable[[Tensor, Tensor], Tensor]


def greedy(logits: Float[Tensor, "batch vocab"], ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
    """Keeps only the most probable token, the first of them in a tie.

    Raises ValueError for NaN or +∞, or when every token of a row has −∞.
    """
    check_logits(logits)
    best = logits.argmax(dim=-1, keepdim=True)
    return torch.full_like(logits, -torch.inf).scatter(-1, best, logits.gather(-1, best))


def temperature(t: float) -> Filter:
    """logits / t: t < 1 favors likely tokens, t > 1 unlikely ones. Raises ValueError unless t > 0."""
    if not t > 0:
        raise ValueError(f"t is {t}; expected more than 0 (`greedy` is its limit)")
    return lambda logits, ids: logits / t


def top_k(k: int) -> Filter:
    """Keeps the k most probable tokens, and any that tie with the k-th (Fan et al., 2018, section 5.4).

    Raises ValueError when `k` < 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}; expected 1 or more tokens")

    def keep(logits: Float[Tensor, "batch vocab"], ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
        smallest = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
        return logits.masked_fill(logits < smallest, -torch.inf)

    return keep


def top_p(p: float) -> Filter:
    """Keeps the smallest set of tokens whose probabilities sum to p or more (Holtzman et al., 2020, section 3.1).

    Raises ValueError unless 0 < p ≤ 1.
    """
    if not 0 < p <= 1:
        raise ValueError(f"p is {p}; expected 0 < p ≤ 1")

    def keep(logits: Float[Tensor, "batch vocab"], ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
        ordered, places = logits.sort(dim=-1)  # ascending, so that the sum does not lose small numbers
        drop = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - p
        drop[:, -1] = False
        return torch.empty_like(logits).scatter(-1, places, ordered.masked_fill(drop, -torch.inf))

    return keep


def repetition_penalty(penalty: float) -> Filter:
    """Divides the logit of each token that is already in the text by `penalty`, or multiplies it when it is negative.

    (Keskar et al., 2019, section 4.1, who found 1.2 to be a good value.) Raises ValueError unless `penalty` > 0.
    """
    if not penalty > 0:
        raise ValueError(f"penalty is {penalty}; expected more than 0; 1 changes nothing")

    def lower(logits: Float[Tensor, "batch vocab"], ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
        present = ids.long()
        repeated = logits.gather(-1, present)
        return logits.scatter(-1, present, torch.where(repeated < 0, repeated * penalty, repeated / penalty))

    return lower


# ---- token by token ----------------------------------------------------------------------------------------------


def stream(
    model: LanguageModel,
    ids: Int[Tensor, "batch time"],
    *,
    lengths: Int[Tensor, " batch"] | None = None,
    max_new_tokens: int,
    filters: Sequence[Filter] = (),
    stop: Collection[int] = (),
    generator: torch.Generator | None = None,
) -> Iterator[Int[Tensor, "batch 1"]]:
    """Continues each row of `ids`: samples a token from softmax(filtered logits), yields it, appends it, and repeats.

    With `lengths`, row b is a prompt of its first `lengths[b]` tokens; the rest is padding, which nothing sees. A row
    that has generated one of the tokens `stop` repeats it until all rows have, which ends the stream. The filters
    are applied in order and see the text so far. The model is in eval mode until the stream ends or is closed; then
    each of its modules is in its own mode again. Raises ValueError, before the first token, for an empty prompt,
    `max_new_tokens` < 1, more positions than the model has learned, a stop token outside the vocabulary, a
    bidirectional model, or prompts of different lengths for one that mixes by more than attention; and when the
    filters leave a row no token, or NaN.
    """
    prompts = _prompts(model, ids, lengths)
    stop_ids = checked_stop(model, prompts.ids, max_new_tokens, stop)
    return _stream(model, prompts, max_new_tokens, filters, stop_ids, generator, every=1)


class _Prompts(NamedTuple):
    """Prompts that end together: in front of each are `padding` positions, where it repeats its first token."""

    ids: Int[Tensor, "batch time"]
    padding: Int[Tensor, " batch"] | None = None


def _prompts(model: LanguageModel, ids: Tensor, lengths: Tensor | None) -> _Prompts:
    if lengths is None or ids.ndim != 2 or not ids.numel():
        return _Prompts(ids)
    if lengths.shape != ids.shape[:1] or lengths.is_floating_point():
        expected = f"one integer for each of {len(ids)} prompts"
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, {lengths.dtype}; expected {expected}")
    shortest, longest = map(int, lengths.aminmax())
    if shortest < 1 or longest > ids.shape[1]:
        raise ValueError(f"lengths run from {shortest} to {longest}; expected 1 to {ids.shape[1]}, the rows of ids")
    if shortest == longest:
        return _Prompts(ids[:, :longest])
    _check_sees_no_padding(model)
    padding = (longest - lengths).to(ids.device)
    places = torch.arange(longest, device=ids.device) - padding[:, None]
    return _Prompts(ids.gather(1, places.clamp(min=0)), padding)


def _check_sees_no_padding(model: LanguageModel) -> None:
    """Raises ValueError unless all mixers leave padding out, and the mask does not count from the beginning."""
    if not isinstance(model.mask, Causal | Band):
        raise ValueError(f"lengths differ and the model's mask is {model.mask}; expected Causal() or a Band")
    for block in model.new_cache().blocks:
        if not isinstance(block.past, Cache | RecurrentState):
            found = f"a mixer of the model keeps a {type(block.past).__name__}"
            raise ValueError(
                f"lengths differ and {found}; expected attention or a RecurrentState: they leave padding out"
            )


def checked_stop(model: LanguageModel, ids: Tensor, max_new_tokens: int, stop: Collection[int]) -> Tensor:
    """The stop tokens, once all arguments are checked; a generator would raise only when asked for its first token."""
    if model.mask is None:
        raise ValueError(f"model is a bidirectional {type(model).__name__}; expected one that predicts the next token")
    if ids.ndim != 2 or not ids.numel():
        raise ValueError(f"ids has shape {tuple(ids.shape)}; expected (batch, time), a prompt of one token or more")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; expected 1 or more tokens")
    vocab, position = model.unembed.out_features, model.stack.position
    check_ids("ids", ids, vocab)
    if unknown := [token for token in stop if not 0 <= token < vocab]:
        raise ValueError(f"stop holds {unknown[0]}; expected tokens from 0 to {vocab - 1}, the model's vocabulary")
    read = ids.shape[1] + max_new_tokens - 1  # the last token is generated but not read
    if isinstance(position, Learned) and read > position.embedding.num_embeddings:
        learned = f"the model has learned {position.embedding.num_embeddings} positions"
        needed = f"a prompt of {ids.shape[1]} tokens and max_new_tokens {max_new_tokens} need {read} positions"
        raise ValueError(f"{needed}; {learned}")
    return torch.tensor([*stop], dtype=ids.dtype, device=ids.device)


def _stream(
    model: LanguageModel,
    prompts: _Prompts,
    max_new_tokens: int,
    filters: Sequence[Filter],
    stop: Tensor,
    generator: torch.Generator | None,
    *,
    every: int,
) -> Iterator[Tensor]:
    """Looks at what was sampled every so many tokens: each look waits for the device."""
    with evaluating(model):
        ids = new = prompts.ids
        read, ended, failed = _reader(model, prompts, max_new_tokens), None, None
        for count in range(1, max_new_tokens + 1):
            with torch.inference_mode(), trusted(on_gpu(ids)):  # not around `yield`, where other code runs
                sampled, unusable = sample_token(apply_filters(read(new).float(), ids, filters), generator)
                new = sampled if ended is None else torch.where(ended, new[:, -1:], sampled)
                failed = unusable if failed is None else failed | unusable
            looks = count % every == 0 or count == max_new_tokens
            if looks and failed:
                raise ValueError(NO_TOKEN)
            ids = torch.cat([ids, new], dim=1)
            yield new.clone()  # outside of inference mode, so that it can be trained on
            ended = torch.isin(new, stop) if len(stop) else None
            if looks and ended is not None and ended.all():
                return


NO_TOKEN = "logits are −∞ for every token of a row, or NaN or +∞; expected filters that leave one token"


def _reader(model: LanguageModel, prompts: _Prompts, max_new_tokens: int) -> Callable[[Tensor], Tensor]:
    """Reads the tokens that follow and returns the logits after the last one: on a GPU by one graph where it can."""
    ids, padding = prompts
    if on_gpu(ids) and can_be_captured(model):
        return Captured(model, ids.shape[1] + max_new_tokens - 1, padding=padding)
    cache = model.new_cache()
    if padding is not None:
        cache.padding = padding
    return lambda new: model(new, cache=cache)[:, -1]


def apply_filters(
    logits: Float[Tensor, "batch vocab"], ids: Int[Tensor, "batch time"], filters: Sequence[Filter]
) -> Float[Tensor, "batch vocab"]:
    """The logits after each of the filters in turn, which see the text so far."""
    for keep in filters:
        logits = keep(logits, ids)
    return logits


def sample_token(
    logits: Float[Tensor, "batch vocab"], generator: torch.Generator | None
) -> tuple[Int[Tensor, "batch 1"], Bool[Tensor, ""]]:
    """One token per row with the probabilities p = softmax(logits), and whether a row has no token to sample.

    If the E_i are exponential with mean 1, then E_i / p_i is the smallest of them with probability p_i.
    `torch.multinomial` samples in the same way, but its checks take longer than the sampling.
    """
    exponential = torch.empty_like(logits).exponential_(generator=generator)
    exponential.clamp_(min=torch.finfo(logits.dtype).tiny)  # some devices draw 0, and 0/0 is NaN
    largest, sampled = (logits.softmax(dim=-1) / exponential).max(dim=-1, keepdim=True)
    return sampled, largest.isnan().any()  # 0/0 makes the whole row NaN


def sample_now(logits: Float[Tensor, "1 vocab"], generator: torch.Generator | None) -> int:
    """The token of `sample_token`, at once. Raises ValueError when there is none to sample."""
    token, failed = sample_token(logits, generator)
    if failed:
        raise ValueError(NO_TOKEN)
    return int(token)


def on_gpu(ids: Tensor) -> bool:
    """Whether a look at these tokens has to wait for a device that runs ahead."""
    return ids.is_cuda


LOOK_EVERY = 16  # tokens on a GPU, which generates on while nobody looks


def generate(
    model: LanguageModel,
    ids: Int[Tensor, "batch time"],
    *,
    lengths: Int[Tensor, " batch"] | None = None,
    max_new_tokens: int,
    filters: Sequence[Filter] = (),
    stop: Collection[int] = (),
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch longer"]:
    """The prompts `ids`, each followed by the tokens that `stream` yields. Raises what `stream` raises.

    With `lengths`, a row holds its prompt, what was generated, then its padding, up to that of the longest prompt.
    """
    prompts = _prompts(model, ids, lengths)
    stop_ids = checked_stop(model, prompts.ids, max_new_tokens, stop)
    every = LOOK_EVERY if on_gpu(ids) else 1
    tokens = torch.cat([*_stream(model, prompts, max_new_tokens, filters, stop_ids, generator, every=every)], dim=1)
    texts = torch.cat([ids[:, : prompts.ids.shape[1]], _until_all_end(tokens, stop_ids)], dim=1)
    return texts if prompts.padding is None else _padding_last(texts, prompts.ids.shape[1], prompts.padding)


def _padding_last(
    texts: Int[Tensor, "batch longer"], longest: int, padding: Int[Tensor, " batch"]
) -> Int[Tensor, "batch longer"]:
    """Rows of prompt, padding and new tokens as rows of prompt, new tokens and padding."""
    places = torch.arange(texts.shape[1], device=texts.device)
    is_padding = (places < longest) & (places >= longest - padding[:, None])
    return texts.gather(1, is_padding.int().argsort(dim=1, stable=True))


def _until_all_end(tokens: Int[Tensor, "batch new"], stop: Int[Tensor, " some"]) -> Int[Tensor, "batch fewer"]:
    """The tokens up to the first place where every row has ended; all where there is none."""
    ended = torch.isin(tokens, stop).all(dim=0)
    return tokens[:, : int((~ended).sum()) + 1]


def print_text(tokens: Iterable[Int[Tensor, "1 1"]], decode: Callable[[list[int]], str]) -> None:
    """Prints a text as it is generated; bytes that do not form a character yet (U+FFFD at the end) wait for the rest.

    Raises ValueError for a batch of several texts.
    """
    waiting: list[int] = []
    for token in tokens:
        if token.shape != (1, 1):
            raise ValueError(f"tokens come in shape {tuple(token.shape)}; expected (1, 1), one text")
        waiting.append(int(token))
        piece = decode(waiting)
        if not piece.endswith("\ufffd"):
            print(piece, end="", flush=True)
            waiting.clear()
    print(decode(waiting))
