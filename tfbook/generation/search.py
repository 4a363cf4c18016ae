"""Decoding: greedy search and beam search over any translator that gives the logits of the next word."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook.checks import check_logits
from tfbook.models.seq2seq import Translator
from tfbook.models.transformer import Transformer
from tfbook.modes import evaluating
from tfbook.text.pairs import Pair, collate
from tfbook.text.vocabulary import BOS, EOS, PAD, UNK, Sentence, Vocabulary

NEVER_GENERATED = [PAD, BOS, UNK]  # tokens that the model only reads


class IncrementalDecoder(Protocol):
    """The state of a model that is decoding a batch of texts; its rows can be reordered, dropped or duplicated."""

    weights: Tensor | None  # of the attention at the last word, where there is one

    def __call__(self, words: Int[Tensor, "row new"]) -> Float[Tensor, "row vocab"]:
        """Reads the next words of each row and returns the logits of the word after the last."""

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Continues with these rows, in this order; a row may occur several times."""


class CachedDecoder:
    """A translator that keeps its recurrent state, or the keys and values of the positions so far."""

    def __init__(
        self, model: Translator | Transformer, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ):
        self.decoder = model.decoder
        self.memory = model.encoder(source, lengths)
        self.state = self.decoder.start(self.memory)
        self.weights: Tensor | None = None  # of the last word

    def __call__(self, words: Int[Tensor, "row new"]) -> Float[Tensor, "row vocab"]:
        """One call of the decoder, for the new words only."""
        logits, self.weights, self.state = self.decoder(words, self.memory, self.state)
        return logits[:, -1]

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Selects the rows of the memory and of the state."""
        self.memory, self.state = self.memory.select(rows), self.state.select(rows)


class UncachedDecoder:
    """A translator that reads the whole text again for each word: slow, the reference for `CachedDecoder`."""

    def __init__(
        self, model: Translator | Transformer, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ):
        self.model, self.source, self.lengths = model, source, lengths
        self.words = source[:, :0]
        self.weights: Tensor | None = None

    def __call__(self, words: Int[Tensor, "row new"]) -> Float[Tensor, "row vocab"]:
        """One call of the model, for the source and all words so far."""
        self.words = torch.cat([self.words, words], dim=1)
        logits, weights, _ = self.model(self.source, self.lengths, self.words)
        self.weights = None if weights is None else weights[:, -1:]
        return logits[:, -1]

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Selects the rows of the source and of the words so far."""
        self.source, self.lengths, self.words = self.source[rows], self.lengths[rows], self.words[rows]


def _without_never_generated(scores: Float[Tensor, "row vocab"]) -> Float[Tensor, "row vocab"]:
    """The scores with −∞ for tokens that the model only reads; raises ValueError when that leaves a row no token."""
    allowed = scores.clone()  # the decoder may keep its own
    allowed[:, NEVER_GENERATED] = -torch.inf
    check_logits(allowed)
    return allowed


def _check_length(max_length: int) -> None:
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}; expected 1 or more")


class Decoding(NamedTuple):
    """Decoded tokens, `<pad>` after the end, and the attention weights at each of them."""

    tokens: Int[Tensor, "batch target"]
    weights: Float[Tensor, "batch target source"] | None


def greedy_search(
    model: Translator | Transformer,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    *,
    max_length: int = 64,
    decoder: Callable[..., IncrementalDecoder] = CachedDecoder,
) -> Decoding:
    """y_t = argmax p(y | y_1 … y_{t−1}, source): the most probable word each time, until `<eos>` or `max_length` words.

    Runs in eval mode and restores each module's own. Raises ValueError when `max_length` < 1, and for logits that are
    NaN or +∞, or −∞ for every word.
    """
    _check_length(max_length)
    with evaluating(model), torch.inference_mode():
        step, word = decoder(model, source, lengths), torch.full_like(source[:, :1], BOS)
        finished = torch.zeros_like(word, dtype=torch.bool)
        generated: list[tuple[Tensor, Tensor | None]] = []
        while len(generated) < max_length and not finished.all():
            logits = step(word)
            check_logits(logits)
            best = _without_never_generated(logits).argmax(dim=-1, keepdim=True)
            word = best.masked_fill(finished, PAD)
            finished = finished | (word == EOS)
            generated.append((word, step.weights))
    tokens, weights = zip(*generated, strict=True)  # joined outside of inference mode, so that they can be trained on
    return Decoding(torch.cat(tokens, dim=1), None if weights[0] is None else torch.cat(weights, dim=1))


# ---- beam search -------------------------------------------------------------------------------------------------

Penalty = Callable[[int], float]  # length, `<eos>` included → the divisor of the log-probability


def gnmt_penalty(alpha: float = 0.6) -> Penalty:
    """((5 + length) / 6)^α (Wu et al., 2016, eq. 14); α = 0 keeps the log-probability, which favors short texts.

    Raises ValueError when `alpha` is negative.
    """
    if not alpha >= 0:
        raise ValueError(f"alpha is {alpha}; expected 0 or more")
    return lambda length: ((5 + length) / 6) ** alpha


def mean_penalty(alpha: float = 1.0) -> Penalty:
    """length^α: α = 1 compares mean log-probabilities per word. Raises ValueError when `alpha` is negative."""
    if not alpha >= 0:
        raise ValueError(f"alpha is {alpha}; expected 0 or more")
    return lambda length: length**alpha


def _checked(penalty: Penalty, length: int) -> float:
    """The divisor for this length; raises ValueError when it is NaN, with which nothing can be compared."""
    if math.isnan(divisor := penalty(length)):
        raise ValueError(f"penalty({length}) is NaN; expected a number to divide log-probabilities by")
    return divisor


VASWANI_PENALTY = gnmt_penalty(0.6)  # as in Vaswani et al. (2017, section 6.1)


class BeamStep(NamedTuple):
    """The best 2 · width continuations of one step, best first; a parent is an index among the last step's `kept`."""

    parents: Int[Tensor, "batch candidate"]
    words: Int[Tensor, "batch candidate"]
    scores: Float[Tensor, "batch candidate"]  # log-probability of the whole text
    kept: Bool[Tensor, "batch candidate"]  # continues in the beam
    ended: Bool[Tensor, "batch candidate"]  # generated `<eos>` and is among the best `width`


class Beams(NamedTuple):
    """The best texts found for each source, best first, `<pad>` after the end."""

    tokens: Int[Tensor, "batch beam target"]
    scores: Float[
        Tensor, "batch beam"
    ]  # log-probability / penalty; −∞, with padding only, where fewer texts were found


def beam_search(
    model: Translator | Transformer,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    *,
    width: int = 4,
    max_length: int = 64,
    penalty: Penalty = VASWANI_PENALTY,
    decoder: Callable[..., IncrementalDecoder] = CachedDecoder,
    on_step: Callable[[BeamStep], None] | None = None,
) -> Beams:
    """Keeps the `width` most probable unfinished texts at each step; stops when none can beat the finished ones.

    Finished texts are compared by log-probability / `penalty`(length). Runs in eval mode and restores each module's
    own; `on_step` is called with each step. Raises ValueError when `width` or `max_length` < 1, for logits that are NaN
    or +∞, or −∞ for every word, and for a penalty that is NaN.
    """
    _check_length(max_length)
    if width < 1:
        raise ValueError(f"width is {width}; expected 1 or more beams")
    with evaluating(model), torch.inference_mode():
        decode, batch = decoder(model, source, lengths), len(source)
        first = torch.arange(batch, device=source.device)[:, None] * width  # the row of each source's first beam
        decode.select(first.expand(-1, width).flatten() // width)
        live = _Live(source.new_full((batch, width, 1), BOS), _only_first(batch, width, source.device))
        found = Beams(source.new_full((batch, width, max_length), PAD), torch.full_like(live.scores, -torch.inf))
        for length in range(1, max_length + 1):
            step = _candidates(decode(live.texts[:, :, -1].flatten()[:, None]), live)
            if on_step is not None:
                with torch.inference_mode(mode=False):
                    on_step(BeamStep(*(values.clone() for values in step)))
            found = _best(found, _ended(step, live, _checked(penalty, length), max_length))
            live = _continued(step, live)
            decode.select((first + _kept(step.parents, step)).flatten())
            later = (_checked(penalty, n) for n in range(min(length + 1, max_length), max_length + 1))
            if (live.scores[:, 0] / max(later) <= found.scores[:, -1]).all():  # no word adds to a log-probability
                break
        else:
            found = _best(found, Beams(live.texts[:, :, 1:], live.scores / penalty(max_length)))
    return Beams(found.tokens.clone(), found.scores.clone())  # outside of inference mode, as in `greedy_search`


class _Live(NamedTuple):
    """Unfinished texts, best first."""

    texts: Int[Tensor, "batch beam time"]  # `<bos>` and the words so far
    scores: Float[Tensor, "batch beam"]  # log-probability


def _only_first(batch: int, width: int, device: torch.device) -> Float[Tensor, "batch beam"]:
    """Scores 0, −∞, −∞, …: all beams begin with the same text, so only one of them counts."""
    scores = torch.full((batch, width), -torch.inf, device=device)
    scores[:, 0] = 0
    return scores


def _candidates(logits: Float[Tensor, "row vocab"], live: _Live) -> BeamStep:
    """The best 2 · width of all continuations: at most `width` of them end, so at least `width` can continue."""
    check_logits(logits)
    batch, width = live.scores.shape
    log_probs = _without_never_generated(torch.log_softmax(logits.float(), dim=-1))
    totals = live.scores[:, :, None] + log_probs.view(batch, width, -1)
    scores, places = totals.flatten(1).topk(2 * width)
    parents, words = places // totals.shape[2], places % totals.shape[2]
    ends = words == EOS
    ranks = torch.arange(2 * width, device=logits.device)
    return BeamStep(parents, words, scores, ~ends & ((~ends).cumsum(dim=1) <= width), ends & (ranks < width))


def _kept(values: Tensor, step: BeamStep) -> Tensor:
    """The values of the candidates that continue."""
    return values[step.kept].view(len(values), -1)


def _texts(parents: Tensor, words: Tensor, live: _Live) -> Int[Tensor, "batch beam time"]:
    """The parents' texts, each one word longer."""
    before = live.texts.gather(1, parents[:, :, None].expand(-1, -1, live.texts.shape[2]))
    return torch.cat([before, words[:, :, None]], dim=2)


def _continued(step: BeamStep, live: _Live) -> _Live:
    return _Live(_texts(_kept(step.parents, step), _kept(step.words, step), live), _kept(step.scores, step))


def _ended(step: BeamStep, live: _Live, penalty: float, max_length: int) -> Beams:
    """The candidates that ended; the score of the others is −∞."""
    texts = _texts(step.parents, step.words, live)[:, :, 1:]
    texts = nn.functional.pad(texts, (0, max_length - texts.shape[2]), value=PAD)
    return Beams(texts, (step.scores / penalty).masked_fill(~step.ended, -torch.inf))


def _best(some: Beams, others: Beams) -> Beams:
    """The best texts of both, as many as `some` holds."""
    scores, order = torch.cat([some.scores, others.scores], dim=1).topk(some.scores.shape[1])
    tokens = torch.cat([some.tokens, others.tokens], dim=1)
    best = tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.shape[2]))
    return Beams(best.masked_fill(scores.isneginf()[:, :, None], PAD), scores)


# ---- whole corpora -----------------------------------------------------------------------------------------------


class Translation(NamedTuple):
    """The translation of one sentence and its attention weights (`<eos>` included on both axes)."""

    words: Sentence
    weights: Float[Tensor, "target source"] | None


def translate(
    model: Translator | Transformer,
    pairs: Sequence[Pair],
    source_vocab: Vocabulary,
    target_vocab: Vocabulary,
    *,
    batch: int = 250,
    max_length: int = 64,
    search: Callable[..., Decoding | Beams] = greedy_search,
) -> list[Translation]:
    """Translations of the sources of `pairs`, in their order; `search` is `greedy_search` or a partial `beam_search`.

    Raises ValueError when `pairs` is empty or `batch` < 1.
    """
    if not pairs or batch < 1:
        raise ValueError(f"pairs holds {len(pairs)} and batch is {batch}; expected at least 1 of each")
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].source))  # similar lengths need little padding
    found: dict[int, Translation] = {}
    device = next(model.parameters()).device
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        inputs = collate([pairs[i] for i in rows], source_vocab, target_vocab).to(device)
        result = search(model, inputs.source, inputs.source_lengths, max_length=max_length)
        tokens, weights = (result.tokens[:, 0], None) if isinstance(result, Beams) else result
        for place, i in enumerate(rows):
            words = target_vocab.decode(tokens[place])
            size = (min(len(words) + 1, tokens.shape[1]), int(inputs.source_lengths[place]))
            own_weights = None if weights is None else weights[place, : size[0], : size[1]].float().cpu()
            found[i] = Translation(words, own_weights)
    return [found[i] for i in range(len(pairs))]
