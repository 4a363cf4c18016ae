"""From a trained model to words: greedy decoding and beam search, over any model that gives the next word's logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook.models.seq2seq import Translator
from tfbook.models.transformer import Transformer
from tfbook.text.pairs import Pair, collate
from tfbook.text.vocabulary import BOS, EOS, PAD, UNK, Sentence, Vocabulary

NEVER_SAID = [PAD, BOS, UNK]  # the model reads them and never says them


class Steps(Protocol):
    """A model on its way through a batch of texts, whose rows can be reordered, dropped or doubled."""

    def __call__(self, words: Int[Tensor, "row new"]) -> Float[Tensor, "row vocab"]:
        """Reads the next words of each row and returns the logits of the word after the last."""

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Goes on with the rows `rows` in that order; one may be taken several times."""


class Cached:
    """A translator that keeps what it has read: its state, or the keys and values of the positions so far."""

    def __init__(
        self, model: Translator | Transformer, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ):
        self.decoder = model.decoder
        self.memory = model.encoder(source, lengths)
        self.state = self.decoder.start(self.memory)
        self.weights: Tensor | None = None  # with which the last word was chosen

    def __call__(self, words: Int[Tensor, "row new"]) -> Float[Tensor, "row vocab"]:
        """One call of the decoder for the new words alone."""
        logits, self.weights, self.state = self.decoder(words, self.memory, self.state)
        return logits[:, -1]

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Memory and state together."""
        self.memory, self.state = self.memory.select(rows), self.state.select(rows)


class Recomputed:
    """A translator that reads the whole text again for each word: slow, and what `Cached` must equal."""

    def __init__(
        self, model: Translator | Transformer, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ):
        self.model, self.source, self.lengths = model, source, lengths
        self.words = source[:, :0]
        self.weights: Tensor | None = None

    def __call__(self, words: Int[Tensor, "row new"]) -> Float[Tensor, "row vocab"]:
        """One call of the model for everything."""
        self.words = torch.cat([self.words, words], dim=1)
        logits, weights, _ = self.model(self.source, self.lengths, self.words)
        self.weights = None if weights is None else weights[:, -1:]
        return logits[:, -1]

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Source and words so far."""
        self.source, self.lengths, self.words = self.source[rows], self.lengths[rows], self.words[rows]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; the model comes back in the mode it came."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _check_length(max_length: int) -> None:
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}; expected 1 or more")


class Decoding(NamedTuple):
    """Decoded words, `<pad>` after the end, and the attention weights with which each was chosen."""

    tokens: Int[Tensor, "batch target"]
    weights: Float[Tensor, "batch target source"] | None


@torch.inference_mode()
def greedy_search(
    model: Translator | Transformer,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    *,
    max_length: int = 64,
    steps: Callable[..., Steps] = Cached,
) -> Decoding:
    """y_t = argmax p(y | y_1 … y_{t−1}, source): the most probable word each time, until `<eos>` or `max_length` words.

    Runs in eval mode and gives the model back in the mode it came. `steps` says how the model goes from word to word.
    Raises ValueError when `max_length` < 1.
    """
    _check_length(max_length)
    with evaluating(model):
        run, word = steps(model, source, lengths), torch.full_like(source[:, :1], BOS)
        finished, said = torch.zeros_like(word, dtype=torch.bool), []
        while len(said) < max_length and not finished.all():
            logits = run(word)
            logits[:, NEVER_SAID] = -torch.inf
            word = logits.argmax(dim=-1, keepdim=True).masked_fill(finished, PAD)
            finished = finished | (word == EOS)
            said.append((word, run.weights))
    tokens, weights = zip(*said, strict=True)
    return Decoding(torch.cat(tokens, dim=1), None if weights[0] is None else torch.cat(weights, dim=1))


# ---- beam search -------------------------------------------------------------------------------------------------

Penalty = Callable[[int], float]  # words, `<eos>` included → what the log-probability is divided by


def gnmt_penalty(alpha: float = 0.6) -> Penalty:
    """((5 + length) / 6)^α (Wu et al., 2016, eq. 14); α = 0 leaves the log-probability, which favours short texts.

    Raises ValueError when `alpha` is negative.
    """
    if alpha < 0:
        raise ValueError(f"alpha is {alpha}; expected 0 or more")
    return lambda length: ((5 + length) / 6) ** alpha


def mean_penalty(alpha: float = 1.0) -> Penalty:
    """length^α: α = 1 compares mean log-probabilities a word. Raises ValueError when `alpha` is negative."""
    if alpha < 0:
        raise ValueError(f"alpha is {alpha}; expected 0 or more")
    return lambda length: length**alpha


VASWANI = gnmt_penalty(0.6)  # as in Vaswani et al. (2017, section 6.1)


class BeamStep(NamedTuple):
    """The best 2 · width continuations of one step, best first; a parent is a place among the last step's `kept`."""

    parents: Int[Tensor, "batch candidate"]
    words: Int[Tensor, "batch candidate"]
    scores: Float[Tensor, "batch candidate"]  # log-probability of the whole text
    kept: Bool[Tensor, "batch candidate"]  # goes on
    ended: Bool[Tensor, "batch candidate"]  # said `<eos>` among the best `width`


class Beams(NamedTuple):
    """The best texts that were found for each source, best first, `<pad>` after the end."""

    tokens: Int[Tensor, "batch beam target"]
    scores: Float[Tensor, "batch beam"]  # log-probability / penalty; −∞ and no words where texts are too few


@torch.inference_mode()
def beam_search(
    model: Translator | Transformer,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    *,
    width: int = 4,
    max_length: int = 64,
    penalty: Penalty = VASWANI,
    steps: Callable[..., Steps] = Cached,
    seen: Callable[[BeamStep], None] | None = None,
) -> Beams:
    """Keeps the `width` most probable unfinished texts each step; ends when none of them can beat the finished ones.

    Finished texts are compared by log-probability / `penalty`(words). Runs in eval mode and gives the model back in the
    mode it came; `seen` is shown each step. Raises ValueError when `width` or `max_length` < 1.
    """
    _check_length(max_length)
    if width < 1:
        raise ValueError(f"width is {width}; expected 1 or more beams")
    with evaluating(model):
        run, batch = steps(model, source, lengths), len(source)
        first = torch.arange(batch, device=source.device)[:, None] * width  # the row of each source's first beam
        run.select(first.expand(-1, width).flatten() // width)
        live = _Live(source.new_full((batch, width, 1), BOS), _only_first(batch, width, source.device))
        found = Beams(source.new_full((batch, width, max_length), PAD), torch.full_like(live.scores, -torch.inf))
        for length in range(1, max_length + 1):
            step = _candidates(run(live.texts[:, :, -1].flatten()[:, None]), live)
            if seen is not None:
                seen(step)
            found = _best(found, _ended(step, live, penalty(length), max_length))
            live = _continued(step, live)
            run.select((first + _kept(step.parents, step)).flatten())
            if (live.scores[:, 0] / penalty(max_length) <= found.scores[:, -1]).all():
                return found
    return _best(found, Beams(live.texts[:, :, 1:], live.scores / penalty(max_length)))


class _Live(NamedTuple):
    """Unfinished texts, best first."""

    texts: Int[Tensor, "batch beam time"]  # `<bos>` and the words so far
    scores: Float[Tensor, "batch beam"]  # log-probability


def _only_first(batch: int, width: int, device: torch.device) -> Float[Tensor, "batch beam"]:
    """At the start all beams are the same text, so one of them counts."""
    scores = torch.full((batch, width), -torch.inf, device=device)
    scores[:, 0] = 0
    return scores


def _candidates(logits: Float[Tensor, "row vocab"], live: _Live) -> BeamStep:
    """The best 2 · width of all continuations: at most `width` of them end, so `width` are left to go on."""
    batch, width = live.scores.shape
    said = torch.log_softmax(logits.float(), dim=-1)
    said[:, NEVER_SAID] = -torch.inf
    totals = live.scores[:, :, None] + said.view(batch, width, -1)
    scores, places = totals.flatten(1).topk(2 * width)
    parents, words = places // totals.shape[2], places % totals.shape[2]
    ends = words == EOS
    ranks = torch.arange(2 * width, device=logits.device)
    return BeamStep(parents, words, scores, ~ends & ((~ends).cumsum(dim=1) <= width), ends & (ranks < width))


def _kept(values: Tensor, step: BeamStep) -> Tensor:
    """Those of the candidates that go on."""
    return values[step.kept].view(len(values), -1)


def _texts(parents: Tensor, words: Tensor, live: _Live) -> Int[Tensor, "batch beam time"]:
    """The parents' texts, each one word longer."""
    before = live.texts.gather(1, parents[:, :, None].expand(-1, -1, live.texts.shape[2]))
    return torch.cat([before, words[:, :, None]], dim=2)


def _continued(step: BeamStep, live: _Live) -> _Live:
    return _Live(_texts(_kept(step.parents, step), _kept(step.words, step), live), _kept(step.scores, step))


def _ended(step: BeamStep, live: _Live, penalty: float, size: int) -> Beams:
    """The candidates that ended, the others with score −∞."""
    texts = _texts(step.parents, step.words, live)[:, :, 1:]
    texts = nn.functional.pad(texts, (0, size - texts.shape[2]), value=PAD)
    return Beams(texts, torch.where(step.ended, step.scores / penalty, -torch.inf))


def _best(some: Beams, others: Beams) -> Beams:
    """As many of both as there are of the first, best first."""
    scores, order = torch.cat([some.scores, others.scores], dim=1).topk(some.scores.shape[1])
    tokens = torch.cat([some.tokens, others.tokens], dim=1)
    best = tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.shape[2]))
    return Beams(best.masked_fill(scores.isneginf()[:, :, None], PAD), scores)


# ---- whole corpora -----------------------------------------------------------------------------------------------


class Translation(NamedTuple):
    """The words that the model said for one sentence, and where it looked for each (`<eos>` included on both axes)."""

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
    """Translations of the sources of `pairs`, in their order, by `greedy_search` or, with its options set, `beam_search`.

    Raises ValueError when `pairs` is empty or `batch` < 1.
    """
    if not pairs or batch < 1:
        raise ValueError(f"pairs holds {len(pairs)} and batch is {batch}; expected at least 1 of each")
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].source))  # sentences of one length waste no padding
    found: dict[int, Translation] = {}
    device = next(model.parameters()).device
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        inputs = collate([pairs[i] for i in rows], source_vocab, target_vocab).to(device)
        said = search(model, inputs.source, inputs.source_lengths, max_length=max_length)
        tokens, weights = (said.tokens[:, 0], None) if isinstance(said, Beams) else said
        for place, i in enumerate(rows):
            words = target_vocab.decode(tokens[place])
            size = (min(len(words) + 1, tokens.shape[1]), int(inputs.source_lengths[place]))
            looked = None if weights is None else weights[place, : size[0], : size[1]].float().cpu()
            found[i] = Translation(words, looked)
    return [found[i] for i in range(len(pairs))]
