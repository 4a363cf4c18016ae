"""Text from a language model, a token at a time: what may be said next, and how likely each is to be drawn.

Shapes: batch, time, vocab.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tfbook.attention.positions import Learned
from tfbook.checks import check_ids
from tfbook.generation.search import evaluating
from tfbook.models.language_model import LanguageModel

# ---- filters: from logits to logits ------------------------------------------------------------------------------

Filter = Callable[
    [Tensor, Tensor], Tensor
]  # logits (batch, vocab), ids so far (batch, time) → logits; −∞ is never drawn


def greedy(logits: Float[Tensor, "batch vocab"], ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
    """Keeps the most probable token alone, the first of equals."""
    best = logits.argmax(dim=-1, keepdim=True)
    return torch.full_like(logits, -torch.inf).scatter(-1, best, 0.0)


def temperature(t: float) -> Filter:
    """logits / t: below 1 likely tokens become likelier, above 1 rarer ones do. Raises ValueError unless t > 0."""
    if not t > 0:
        raise ValueError(f"t is {t}; expected more than 0 (`greedy` is its limit)")
    return lambda logits, ids: logits / t


def top_k(k: int) -> Filter:
    """Keeps the k most probable tokens, and those that equal the last of them (Fan et al., 2018, section 5.4).

    Raises ValueError when `k` < 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}; expected 1 or more tokens")

    def keep(logits: Float[Tensor, "batch vocab"], ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
        least = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
        return logits.masked_fill(logits < least, -torch.inf)

    return keep


def top_p(p: float) -> Filter:
    """Keeps the fewest tokens whose probabilities sum to p or more (Holtzman et al., 2020, section 3.1).

    Raises ValueError unless 0 < p ≤ 1.
    """
    if not 0 < p <= 1:
        raise ValueError(f"p is {p}; expected 0 < p ≤ 1")

    def keep(logits: Float[Tensor, "batch vocab"], ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
        ordered, places = logits.sort(dim=-1)  # the least probable first, so that small numbers are not lost in the sum
        drop = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - p
        drop[:, -1] = False
        return torch.empty_like(logits).scatter(-1, places, ordered.masked_fill(drop, -torch.inf))

    return keep


def repetition(penalty: float) -> Filter:
    """Divides the logit of each token that is in the text by `penalty`, or multiplies it where it is negative.

    (Keskar et al., 2019, section 4.1, who found 1.2 to be a good value.) Raises ValueError unless `penalty` > 0.
    """
    if not penalty > 0:
        raise ValueError(f"penalty is {penalty}; expected more than 0; 1 changes nothing")

    def lower(logits: Float[Tensor, "batch vocab"], ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
        said = logits.gather(-1, ids)
        return logits.scatter(-1, ids, torch.where(said < 0, said * penalty, said / penalty))

    return lower


# ---- token by token ----------------------------------------------------------------------------------------------


def stream(
    model: LanguageModel,
    ids: Int[Tensor, "batch time"],
    *,
    limit: int,
    filters: Sequence[Filter] = (),
    stop: Collection[int] = (),
    generator: torch.Generator | None = None,
) -> Iterator[Int[Tensor, "batch 1"]]:
    """Continues each row of `ids`: draws a token from softmax(filtered logits), yields it, reads it, up to `limit`.

    A row that has said one of the tokens `stop` repeats it until all rows have, which ends the stream. The filters act
    in their order and see the text so far. The model is in eval mode until the stream ends or is closed. Raises
    ValueError, before the first token, for an empty prompt, a `limit` < 1, more positions than the model has learned, a
    stop outside the vocabulary, or a model that sees both ways; and when the filters leave a row no token.
    """
    _check(model, ids, limit, stop)
    return _stream(model, ids, limit, filters, torch.tensor([*stop], dtype=ids.dtype, device=ids.device), generator)


def _check(model: LanguageModel, ids: Tensor, limit: int, stop: Collection[int]) -> None:
    """Here and not in the generator, which does nothing before it is asked for the first token."""
    if model.mask is None:
        raise ValueError(
            f"model is a {type(model).__name__} that sees both ways; expected one that predicts what comes"
        )
    if ids.ndim != 2 or not ids.numel():
        raise ValueError(f"ids has shape {tuple(ids.shape)}; expected (batch, time), a prompt of one token or more")
    if limit < 1:
        raise ValueError(f"limit is {limit}; expected 1 or more tokens")
    vocab, position = model.unembed.out_features, model.stack.position
    check_ids("ids", ids, vocab)
    if unknown := [token for token in stop if not 0 <= token < vocab]:
        raise ValueError(f"stop holds {unknown[0]}; expected tokens from 0 to {vocab - 1}, the model's vocabulary")
    read = ids.shape[1] + limit - 1  # the last token is said and never read
    if isinstance(position, Learned) and read > position.embedding.num_embeddings:
        learned = f"the model has learned {position.embedding.num_embeddings} positions"
        raise ValueError(f"a prompt of {ids.shape[1]} and limit {limit} need {read} positions; {learned}")


def _stream(
    model: LanguageModel,
    ids: Tensor,
    limit: int,
    filters: Sequence[Filter],
    stop: Tensor,
    generator: torch.Generator | None,
) -> Iterator[Tensor]:
    with evaluating(model):
        cache, new, ended = model.new_cache(), ids, None
        for _ in range(limit):
            with torch.inference_mode():  # not around `yield`, which hands over to whoever reads the stream
                logits = model(new, cache=cache)[:, -1].float()
                for keep in filters:
                    logits = keep(logits, ids)
                drawn = _drawn(logits, generator)
                new = drawn if ended is None else torch.where(ended, new[:, -1:], drawn)
            yield new
            ids = torch.cat([ids, new], dim=1)
            if len(stop) and (ended := torch.isin(new, stop)).all():
                return


def _drawn(logits: Float[Tensor, "batch vocab"], generator: torch.Generator | None) -> Int[Tensor, "batch 1"]:
    """One token a row with the probabilities p = softmax(logits).

    Token i rings after a time E_i / p_i, E_i exponential with mean 1, and is the first with probability p_i. So draws
    `torch.multinomial`, too; its checks take longer than the draw.
    """
    rings = torch.empty_like(logits).exponential_(generator=generator)
    first, drawn = (logits.softmax(dim=-1) / rings).max(dim=-1, keepdim=True)
    if first.isnan().any():  # 0/0, and then the whole row is
        raise ValueError("logits are −∞ for every token of a row, or no numbers; expected filters that leave one token")
    return drawn


def generate(
    model: LanguageModel,
    ids: Int[Tensor, "batch time"],
    *,
    limit: int,
    filters: Sequence[Filter] = (),
    stop: Collection[int] = (),
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch longer"]:
    """`ids` and all that `stream` says after them; raises what it raises."""
    tokens = stream(model, ids, limit=limit, filters=filters, stop=stop, generator=generator)
    return torch.cat([ids, *tokens], dim=1)


def print_text(tokens: Iterable[Int[Tensor, "1 1"]], decode: Callable[[list[int]], str]) -> None:
    """Prints a text as it comes. Bytes that are no whole character yet, U+FFFD at the end, wait for their others.

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
