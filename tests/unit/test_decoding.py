"""Greedy decoding against the argmax of a fresh forward pass for every word of every sentence."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tfbook.generation.search import (
    CachedDecoder,
    IncrementalDecoder,
    UncachedDecoder,
    beam_search,
    greedy_search,
    translate,
)
from tfbook.models.seq2seq import Translator
from tfbook.models.transformer import Transformer
from tfbook.text import BOS, EOS, PAD, UNK, Batch, Pair, Vocabulary, collate

LONGEST = 12
Model = Translator | Transformer


@torch.no_grad()
def _randomise(model: Translator, seed: int) -> Translator:
    """Weights with which choices vary: some sentences end early, some late, some never."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.normal_(std=0.7)
    model.decoder.unembed.bias[EOS] += 1
    return model


@pytest.fixture
def talker(translator: Translator) -> Translator:
    return _randomise(translator, seed=0)


@torch.no_grad()
def _naive(model: Model, source: Tensor, longest: int) -> tuple[list[int], list[Tensor | None]]:
    """One sentence, everything computed anew for each word."""
    said, looked = [BOS], []
    while len(said) <= longest and said[-1] != EOS:
        decoded = model(source[None], torch.tensor([len(source)]), torch.tensor([said]))
        probable = decoded.logits[0, -1].argsort(descending=True).tolist()
        said.append(next(index for index in probable if index not in (PAD, BOS, UNK)))
        looked.append(None if decoded.weights is None else decoded.weights[0, -1])
    return said[1:], looked


def _inputs(words: int, seed: int) -> tuple[Tensor, Tensor]:
    """Twelve random sentences of one to six words."""
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 7, [12], generator=dice)
    source = torch.randint(4, words, [12, 6], generator=dice)
    return source.masked_fill(torch.arange(6) >= lengths[:, None], PAD), lengths


def test_greedy_says_the_most_probable_word_each_time(translator: Translator) -> None:
    """Words and weights of ragged batches; after `<eos>` comes padding alone, and only words and `<eos>` are said."""
    ends = set()
    for seed in range(4):
        model = _randomise(translator, seed)
        source, lengths = _inputs(model.encoder.embed.num_embeddings, seed)
        found = greedy_search(model, source, lengths, max_length=LONGEST)
        assert found.tokens.dtype == torch.int64
        for row, length in enumerate(lengths):
            said, looked = _naive(model, source[row, :length], LONGEST)
            assert found.tokens[row].tolist() == said + [PAD] * (found.tokens.shape[1] - len(said))
            ends.add(len(said) if said[-1] == EOS else None)
            if found.weights is None:
                assert set(looked) == {None}
            else:
                torch.testing.assert_close(found.weights[row, : len(said), :length], torch.stack(looked))
                assert not found.weights[row, :, length:].any()
    assert len(ends) > 2, "the sentences should end at different places, or the test says little"


def _heard(decoder: type[IncrementalDecoder], logits: list[Tensor]) -> type[IncrementalDecoder]:
    """The same decoder, whose logits are written down."""

    class Heard(decoder):
        def __call__(self, words: Tensor) -> Tensor:
            given = super().__call__(words)
            logits.append(given.clone())
            return given

    return Heard


def test_greedy_with_a_cache_is_greedy_without(speaker: Model) -> None:
    """For every decoder and every encoding of positions, a ragged batch: the same logits at each step, and words."""
    source, lengths = _inputs(speaker.encoder.embed.num_embeddings, seed=0)
    logits: dict[type, list[Tensor]] = {CachedDecoder: [], UncachedDecoder: []}
    found, expected = (
        greedy_search(speaker, source, lengths, max_length=LONGEST, decoder=_heard(decoder, logits[decoder]))
        for decoder in logits
    )
    assert torch.equal(found.tokens, expected.tokens)
    assert len(found.tokens.unique(dim=0)) > 4, "the sentences should differ, or the test says little"
    torch.testing.assert_close(*logits.values())
    torch.testing.assert_close(found.weights, expected.weights)
    for row, length in enumerate(lengths.tolist()):
        alone = greedy_search(
            speaker, source[row : row + 1, :length], lengths[row : row + 1], max_length=LONGEST
        ).tokens[0]
        assert torch.equal(found.tokens[row, : len(alone)], alone)
        assert not found.tokens[row, len(alone) :].any()


def test_greedy_stops_when_every_sentence_has_ended(talker: Translator) -> None:
    """A single `<eos>` in each row, so one column and no more."""
    with torch.no_grad():
        talker.decoder.unembed.bias[EOS] = 1e4
    source, lengths = _inputs(8, seed=1)
    assert greedy_search(talker, source, lengths).tokens.tolist() == [[EOS]] * len(source)


@pytest.mark.parametrize("longest", [1, 5])
def test_greedy_stops_at_max_length(talker: Translator, longest: int) -> None:
    with torch.no_grad():
        talker.decoder.unembed.bias[EOS] = -1e4
    source, lengths = _inputs(8, seed=1)
    tokens = greedy_search(talker, source, lengths, max_length=longest).tokens
    assert tokens.shape == (len(source), longest)
    assert EOS not in tokens


@pytest.mark.parametrize("training", [True, False])
def test_greedy_decodes_in_eval_mode_and_restores_the_mode(talker: Translator, training: bool) -> None:
    """Dropout must not act; and an error leaves the mode as it came, too."""
    source, lengths = _inputs(8, seed=2)
    expected = greedy_search(talker, source, lengths).tokens
    talker.train(training)
    assert torch.equal(greedy_search(talker, source, lengths).tokens, expected)
    assert {module.training for module in talker.modules()} == {training}
    with pytest.raises(ValueError, match="lengths holds a 0"):
        greedy_search(talker, source, torch.zeros_like(lengths))
    assert {module.training for module in talker.modules()} == {training}


def _spoiled(value: float, places: list[int], row: int | slice = -1) -> type[CachedDecoder]:
    """A decoder some of whose logits are `value`."""

    class Spoiled(CachedDecoder):
        def __call__(self, words: Tensor) -> Tensor:
            logits = super().__call__(words)
            logits[row, places] = value
            return logits

    return Spoiled


SEARCHES: dict[str, Callable[..., Any]] = {"greedy": greedy_search, "beam": partial(beam_search, width=2)}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


@every_search
@pytest.mark.parametrize("place", [PAD, EOS, 5])
@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
def test_logits_that_cannot_be_compared_are_refused(
    talker: Translator, search: Callable[..., Any], place: int, value: float
) -> None:
    """In the last row, for one token, be it one that is never generated: the softmax of all of them is NaN."""
    with pytest.raises(ValueError, match=rf"logits of row \d+ have the maximum {value}; expected a finite one"):
        search(talker, *_inputs(8, seed=1), decoder=_spoiled(value, [place]))


@every_search
def test_logits_of_minus_infinity_forbid_words_but_not_all(talker: Translator, search: Callable[..., Any]) -> None:
    """One word may be left to generate; without any, or with those alone that are never generated, a row is refused."""
    inputs, words = _inputs(8, seed=1), range(talker.decoder.unembed.out_features)
    others = [word for word in words if word != 6]
    found = search(talker, *inputs, max_length=3, decoder=_spoiled(-torch.inf, others, slice(None))).tokens
    assert set(found.flatten().tolist()) <= {6, PAD}
    assert (found.view(len(inputs[0]), -1, 3)[:, 0] == 6).all()
    for left in ([], [PAD, BOS, UNK]):
        with pytest.raises(ValueError, match=r"logits of row \d+ have the maximum -inf; expected a finite one"):
            search(talker, *inputs, decoder=_spoiled(-torch.inf, [word for word in words if word not in left]))


@pytest.mark.parametrize("longest", [0, -1])
def test_greedy_refuses_a_max_length_without_words(talker: Translator, longest: int) -> None:
    with pytest.raises(ValueError, match=f"max_length is {longest}; expected 1 or more"):
        greedy_search(talker, *_inputs(8, seed=0), max_length=longest)


@pytest.mark.parametrize("batch", [1, 3, 250])
def test_translate_gives_each_sentence_its_words_in_order(
    talker: Translator, pairs: list[Pair], source_vocab: Vocabulary, target_vocab: Vocabulary, batch: int
) -> None:
    """However they are batched: the words of greedy decoding, alone, and its weights with `<eos>` on both axes."""
    found = translate(talker, pairs, source_vocab, target_vocab, batch=batch, max_length=LONGEST)
    assert len(found) == len(pairs)
    for pair, translation in zip(pairs, found, strict=True):
        alone: Batch = collate([pair], source_vocab, target_vocab)
        tokens, weights = greedy_search(talker, alone.source, alone.source_lengths, max_length=LONGEST)
        assert translation.words == target_vocab.decode(tokens[0])
        if weights is None:
            assert translation.weights is None
        else:
            assert translation.weights.shape == (min(len(translation.words) + 1, LONGEST), len(pair.source) + 1)
            torch.testing.assert_close(translation.weights, weights[0].float())


def test_translate_by_beam_search_says_the_best_text(
    talker: Translator, pairs: list[Pair], source_vocab: Vocabulary, target_vocab: Vocabulary
) -> None:
    """Without weights, since no single path chose its words."""
    search = partial(beam_search, width=3)
    found = translate(talker, pairs, source_vocab, target_vocab, max_length=LONGEST, search=search)
    for pair, translation in zip(pairs, found, strict=True):
        alone = collate([pair], source_vocab, target_vocab)
        best = search(talker, alone.source, alone.source_lengths, max_length=LONGEST).tokens[0, 0]
        assert translation == (target_vocab.decode(best), None)


def test_translate_refuses_nothing_to_do(
    translator: Translator, pairs: list[Pair], source_vocab: Vocabulary, target_vocab: Vocabulary
) -> None:
    with pytest.raises(ValueError, match="pairs holds 0 and batch is 250; expected at least 1 of each"):
        translate(translator, [], source_vocab, target_vocab)
    with pytest.raises(ValueError, match="pairs holds 4 and batch is 0; expected at least 1 of each"):
        translate(translator, pairs, source_vocab, target_vocab, batch=0)
