"""Encoder, decoders and loss against the same computation done one sentence and one word at a time."""

from dataclasses import replace
from inspect import unwrap

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import SCORES, AdditiveScore, DotScore
from tfbook.models.recurrent import CellWeights, gru_step
from tfbook.models.seq2seq import (
    Annotations,
    BahdanauDecoder,
    FixedContextDecoder,
    LuongDecoder,
    RecurrentDecoder,
    RecurrentEncoder,
    Seq2SeqConfig,
    Translator,
)
from tfbook.text import BOS, EOS, PAD, Batch
from tfbook.training import Recipe, fit, translation_loss

CLOSE = {"rtol": 0, "atol": 1e-12}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_vocab": 0}, "source_vocab is 0; expected 1 or more"),
        ({"target_vocab": -3}, "target_vocab is -3; expected 1 or more"),
        ({"d_embed": 0}, "d_embed is 0; expected 1 or more"),
        ({"d_hidden": 0}, "d_hidden is 0; expected 1 or more"),
        ({"d_encoder": 0}, "d_encoder is 0; expected 1 or more"),
        ({"dropout": 1.0}, "dropout is 1.0; expected 0 ≤ dropout < 1"),
        ({"dropout": -0.1}, "dropout is -0.1; expected 0 ≤ dropout < 1"),
    ],
    ids=str,
)
def test_sizes_name_the_one_that_is_impossible(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Seq2SeqConfig(**({"source_vocab": 5, "target_vocab": 5} | change))


@pytest.mark.parametrize(("d_encoder", "d_memory"), [(None, 8), (3, 6), (4, 8)])
def test_an_annotation_is_both_directions_side_by_side(
    config: Seq2SeqConfig, batch: Batch, d_encoder: int | None, d_memory: int
) -> None:
    """As wide as the decoder each, unless the sizes say otherwise."""
    config = replace(config, d_encoder=d_encoder)
    memory = RecurrentEncoder(config)(batch.source, batch.source_lengths)
    assert config.d_memory == memory.states.shape[-1] == memory.summary.shape[-1] == d_memory


# ---- the encoder -------------------------------------------------------------------------------------------------


def test_the_encoder_reads_each_sentence_as_if_it_were_alone(config: Seq2SeqConfig, batch: Batch) -> None:
    """Against nn.GRU on the sentence without padding; padded positions get state 0 and are masked."""
    encoder = RecurrentEncoder(config).double().eval()
    memory = encoder(batch.source, batch.source_lengths)
    for row, length in enumerate(batch.source_lengths.tolist()):
        states, final = encoder.gru(encoder.embed(batch.source[row : row + 1, :length]))
        torch.testing.assert_close(memory.states[row, :length], states[0], **CLOSE)
        torch.testing.assert_close(memory.summary[row], final.flatten(), **CLOSE)
        assert memory.mask[row].tolist() == [j < length for j in range(batch.source.shape[1])]
    assert not memory.states[~memory.mask].any()


def test_each_annotation_has_read_the_sentence_from_both_ends(config: Seq2SeqConfig, batch: Batch) -> None:
    """→h_j changes with the words up to j alone, ←h_j with the words from j on."""
    encoder, middle = RecurrentEncoder(config).eval(), 2
    changed = batch.source.clone()
    changed[0, middle] += 1
    moved = encoder(changed, batch.source_lengths).states[0] != encoder(batch.source, batch.source_lengths).states[0]
    forward, backward = moved[: batch.source_lengths[0]].split(config.d_hidden, dim=-1)
    assert [bool(row.any()) for row in forward] == [False, False, True, True, True]
    assert [bool(row.any()) for row in backward] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("source", "lengths", "message"),
    [
        (torch.ones(2, 3, dtype=torch.int64), torch.tensor([3, 0]), "lengths holds a 0; every source sentence needs"),
        (torch.ones(2, 3, dtype=torch.int64), torch.tensor([3, 4]), "lengths run from 3 to 4; expected 0 to size = 3"),
        (torch.ones(2, 3, dtype=torch.int64), torch.tensor([3]), "lengths holds 1 numbers; expected one for each of 2"),
        (torch.tensor([[1, 12]]), torch.tensor([2]), "source holds ids from 1 to 12; expected 0 to 11, the model's"),
        (torch.tensor([[-1, 1]]), torch.tensor([2]), "source holds ids from -1 to 1; expected 0 to"),
        (torch.ones(2, 3), torch.tensor([3, 3]), r"source has shape \(2, 3\), torch.float32; expected ids of shape"),
        (torch.ones(3, dtype=torch.int64), torch.tensor([3]), r"source has shape \(3,\), torch.int64; expected ids"),
        (torch.ones(0, 3, dtype=torch.int64), torch.ones(0), r"source has shape \(0, 3\), torch.int64; expected ids"),
    ],
    ids=["length 0", "too long", "lengths missing", "id too large", "id negative", "floats", "one axis", "empty batch"],
)
def test_the_encoder_names_the_argument_that_does_not_fit(
    config: Seq2SeqConfig, source: Tensor, lengths: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        unwrap(RecurrentEncoder.forward)(RecurrentEncoder(config), source, lengths)


# ---- the decoders ------------------------------------------------------------------------------------------------


def _cell(decoder: RecurrentDecoder) -> CellWeights:
    if isinstance(decoder, BahdanauDecoder):
        cell = decoder.cell
        return CellWeights(cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    return CellWeights.of(decoder.gru)


def _attend(decoder: RecurrentDecoder, s: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and context of one step; the additive score is written out word by word, the others have own tests."""
    score = decoder.score
    if isinstance(score, AdditiveScore):
        W, U, b, v = score.W.weight, score.U.weight, score.U.bias, score.v.weight[0]
        energies = torch.stack([v @ torch.tanh(W @ s + U @ h + b) for h in states])
    else:
        energies = score(s[None, None], score.project(states[None]))[0, 0]
    weights = torch.softmax(energies, dim=0)
    return weights, sum(weight * h for weight, h in zip(weights, states, strict=True))


def _by_hand(
    decoder: RecurrentDecoder, target: Tensor, states: Tensor, summary: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Logits and weights for one sentence without padding: a loop over words, as the papers write it."""
    s, cell, logits, alphas = torch.tanh(decoder.begin(summary)), _cell(decoder), [], []
    for index in target:
        y = decoder.embed.weight[index]
        if isinstance(decoder, FixedContextDecoder):
            context = summary
            s = gru_step(torch.cat([y, context])[None], s[None], cell)[0]
        elif isinstance(decoder, BahdanauDecoder):
            alpha, context = _attend(decoder, s, states)
            s = gru_step(torch.cat([y, context])[None], s[None], cell)[0]
            alphas.append(alpha)
        else:
            s = gru_step(y[None], s[None], cell)[0]
            alpha, context = _attend(decoder, s, states)
            alphas.append(alpha)
        merged = torch.tanh(decoder.merge.weight @ torch.cat([s, context, y]) + decoder.merge.bias)
        logits.append(decoder.unembed.weight @ merged + decoder.unembed.bias)
    return torch.stack(logits), torch.stack(alphas) if alphas else None


def test_each_decoder_computes_its_formulas(translator: Translator, batch: Batch) -> None:
    """The batch against every sentence alone; a padded source word gets weight 0."""
    memory = translator.encoder(batch.source, batch.source_lengths)
    decoded = translator.decoder(batch.target_in, memory, translator.decoder.start(memory))
    assert decoded.logits.shape == (*batch.target_in.shape, translator.decoder.unembed.out_features)
    for row, (length, words) in enumerate(zip(batch.source_lengths, batch.target_lengths, strict=True)):
        states, target = memory.states[row, :length], batch.target_in[row, :words]
        logits, weights = _by_hand(translator.decoder, target, states, memory.summary[row])
        torch.testing.assert_close(decoded.logits[row, :words], logits, **CLOSE)
        if weights is None:
            assert decoded.weights is None
        else:
            torch.testing.assert_close(decoded.weights[row, :words, :length], weights, **CLOSE)
            assert not decoded.weights[row, :, length:].any()


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("kind", [BahdanauDecoder, LuongDecoder])
def test_decoders_take_every_score(
    kind: type[RecurrentDecoder], score: type[nn.Module], config: Seq2SeqConfig, batch: Batch
) -> None:
    """By one argument; with an encoder half as wide in each direction, queries and keys are equally wide."""
    config = replace(config, d_encoder=config.d_hidden // 2)
    model = Translator(RecurrentEncoder(config), kind(config, score=score)).double().eval()
    assert type(model.decoder.score) is score
    test_each_decoder_computes_its_formulas(model, batch)
    test_the_state_carries_on_where_the_words_ended(model, batch)


@pytest.mark.parametrize("kind", [BahdanauDecoder, LuongDecoder])
def test_without_the_argument_the_score_is_additive(kind: type[RecurrentDecoder], config: Seq2SeqConfig) -> None:
    """The same parameters from the same random numbers as when it is named."""
    torch.manual_seed(3)
    left_out = kind(config).state_dict()
    torch.manual_seed(3)
    named = kind(config, score=AdditiveScore).state_dict()
    assert left_out.keys() == named.keys()
    assert all(torch.equal(left_out[name], named[name]) for name in named)


@pytest.mark.parametrize("kind", [BahdanauDecoder, LuongDecoder])
def test_a_score_that_needs_equal_widths_says_so(kind: type[RecurrentDecoder], config: Seq2SeqConfig) -> None:
    with pytest.raises(ValueError, match="d_query is 4 and d_key is 8; DotScore expects them to be equal"):
        kind(config, score=DotScore)


def test_a_location_score_refuses_a_longer_sentence(config: Seq2SeqConfig) -> None:
    model = Translator(RecurrentEncoder(config), LuongDecoder(config, score=SCORES["location"]))
    source, target = torch.ones(1, 65, dtype=torch.int64), torch.ones(1, 2, dtype=torch.int64)
    assert model(source[:, 1:], torch.tensor([64]), target).weights.shape == (1, 2, 64)
    with pytest.raises(ValueError, match="keys has 65 positions; this LocationScore has 64 at most"):
        model(source, torch.tensor([65]), target)


def test_a_translator_is_its_encoder_and_its_decoder(translator: Translator, batch: Batch) -> None:
    """Beginning at s_0 = tanh(W summary)."""
    memory = translator.encoder(batch.source, batch.source_lengths)
    start = translator.decoder.start(memory)
    begin = translator.decoder.begin
    expected = torch.tanh(memory.summary @ begin.weight.T + begin.bias)
    torch.testing.assert_close(start.hidden, expected, **CLOSE)
    together = translator(batch.source, batch.source_lengths, batch.target_in)
    torch.testing.assert_close(
        together.logits, translator.decoder(batch.target_in, memory, start).logits, rtol=0, atol=0
    )


def test_the_state_carries_on_where_the_words_ended(translator: Translator, batch: Batch) -> None:
    """The target in two parts, the state handed over, gives the logits of the whole."""
    memory = translator.encoder(batch.source, batch.source_lengths)
    whole = translator.decoder(batch.target_in, memory, translator.decoder.start(memory))
    first = translator.decoder(batch.target_in[:, :2], memory, translator.decoder.start(memory))
    second = translator.decoder(batch.target_in[:, 2:], memory, first.state)
    torch.testing.assert_close(torch.cat([first.logits, second.logits], dim=1), whole.logits, **CLOSE)
    torch.testing.assert_close(second.state.hidden, whole.state.hidden, **CLOSE)


def test_dropout_acts_in_training_alone(translator: Translator, batch: Batch) -> None:
    """On the source words, the target words and what is merged for the output."""
    inputs, dropped = (batch.source, batch.source_lengths, batch.target_in), []
    assert torch.equal(translator(*inputs).logits, translator(*inputs).logits)
    translator.train()
    assert not torch.equal(translator(*inputs).logits, translator(*inputs).logits)
    for module in translator.modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda module, given, result: dropped.append(tuple(result.shape)))
    translator(*inputs)
    assert dropped == [(*batch.source.shape, 5), (*batch.target_in.shape, 5), (*batch.target_in.shape, 5)]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.ones(4, 0, dtype=torch.int64), r"target has shape \(4, 0\), .*; expected .* at least one token per row"),
        (torch.full((4, 1), 14), "target holds ids from 14 to 14; expected 0 to 13, the model's vocabulary"),
        (torch.ones(3, 2, dtype=torch.int64), "target has 3 rows; expected 4, one for each source sentence"),
        (torch.ones(4, 2), r"target has shape \(4, 2\), torch.float32; expected ids of shape \(batch, target\)"),
    ],
    ids=["no words", "id too large", "rows missing", "floats"],
)
def test_decoders_name_the_argument_that_does_not_fit(
    translator: Translator, batch: Batch, target: Tensor, message: str
) -> None:
    memory: Annotations = translator.encoder(batch.source, batch.source_lengths)
    with pytest.raises(ValueError, match=message):
        unwrap(RecurrentDecoder.forward)(translator.decoder, target, memory, translator.decoder.start(memory))


# ---- loss and training -------------------------------------------------------------------------------------------


def test_the_loss_is_the_mean_over_real_words(translator: Translator, batch: Batch) -> None:
    """−log p of each word and `<eos>`, looked up one by one; padding is in neither sum nor count."""
    logits = translator(batch.source, batch.source_lengths, batch.target_in).logits
    costs = []
    for row, length in enumerate(batch.target_lengths.tolist()):
        for t in range(length):
            costs.append(-F.log_softmax(logits[row, t], dim=0)[batch.target_out[row, t]])
    assert len(costs) == batch.tokens
    expected = (sum(costs) / len(costs)).float()
    torch.testing.assert_close(translation_loss(translator, batch).mean, expected, rtol=0, atol=1e-6)


def test_a_smoothed_loss_is_pytorchs(translator: Translator, batch: Batch) -> None:
    """Over real words as well."""
    logits = translator(batch.source, batch.source_lengths, batch.target_in).logits.flatten(0, 1)
    expected = F.cross_entropy(logits, batch.target_out.flatten(), ignore_index=PAD, label_smoothing=0.1).float()
    torch.testing.assert_close(translation_loss(translator, batch, smoothing=0.1).mean, expected, rtol=0, atol=1e-6)
    assert (translation_loss(translator, batch).mean - expected).abs() > 1e-3


def test_the_loss_in_bfloat16_is_float32_and_close(translator: Translator, batch: Batch) -> None:
    """Mixed precision moves it by no more than bfloat16's eight bits allow."""
    translator.float()
    expected = translation_loss(translator, batch).mean
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = translation_loss(translator, batch).mean
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0)


def _copies(step: int) -> Batch:
    """Sixteen sentences of one to four of four words, to be said again."""
    dice = torch.Generator().manual_seed(step)
    lengths = torch.randint(1, 5, [16], generator=dice)
    words = torch.randint(4, 8, [16, 5], generator=dice)
    places = torch.arange(5)
    out = words.where(places < lengths[:, None], PAD).where(places != lengths[:, None], EOS)
    target_in = torch.cat([torch.full((16, 1), BOS), out[:, :-1]], dim=1).masked_fill(out == PAD, PAD)
    return Batch(
        source=out, source_lengths=lengths + 1, target_in=target_in, target_out=out, target_lengths=lengths + 1
    )


@pytest.mark.parametrize("kind", RecurrentDecoder.__subclasses__())
def test_every_decoder_learns_to_copy(kind: type[RecurrentDecoder]) -> None:
    """From the loss of guessing among five words, log 5 = 1.6 nats, to less than half, in 150 small steps."""
    config = Seq2SeqConfig(source_vocab=8, target_vocab=8, d_embed=16, d_hidden=16, dropout=0.1)
    model = Translator(RecurrentEncoder(config), kind(config))
    history = fit(model, translation_loss, _copies, Recipe(steps=150, lr=1e-2))
    assert history.loss[0] > 1.6
    assert translation_loss(model, _copies(1000)).mean < 0.8
