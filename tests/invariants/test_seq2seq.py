"""Every translator has every property of `tfbook.course.invariants`, and each property fails for a model that lacks it.

A later lesson adds its model as a row of `MODELS`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime
from tfbook.attention import (
    POSITIONS,
    SCORES,
    ALiBi,
    Mask,
    MultiHeadAttention,
    Position,
    Rotary,
    Sinusoidal,
    masked_softmax,
)
from tfbook.course import invariants
from tfbook.course.invariants import TOLERANCE, translator_report
from tfbook.lessons.scoring_functions.translation import HeadedDecoder
from tfbook.models import transformer
from tfbook.models.blocks import Block, Config, PostNorm
from tfbook.models.outputs import Decoded
from tfbook.models.seq2seq import (
    Annotations,
    BahdanauDecoder,
    DecoderState,
    FixedContextDecoder,
    LuongDecoder,
    RecurrentDecoder,
    RecurrentEncoder,
    Seq2SeqConfig,
    Translator,
)
from tfbook.models.transformer import Transformer
from tfbook.text import Batch, Pair, Vocabulary, collate
from tfbook.training import Loss, translation_loss

PAIRS = [
    Pair(tuple("abcdef"), tuple("uvwxyz")),
    Pair(tuple("fa"), tuple("zu")),
    Pair(tuple("cde"), tuple("wxyzuvw")),
    Pair(("b",), ("v",)),
]
SOURCE, TARGET = (Vocabulary(words) for words in zip(*((pair.source, pair.target) for pair in PAIRS), strict=True))
SIZES = Seq2SeqConfig(source_vocab=len(SOURCE), target_vocab=len(TARGET), d_embed=16, d_hidden=16, dropout=0.3)

HALF = replace(SIZES, d_encoder=8)  # queries and keys equally wide, as some scores need them


def _translator(config: Seq2SeqConfig, decoder: Callable[[Seq2SeqConfig], RecurrentDecoder]) -> Translator:
    return Translator(RecurrentEncoder(config), decoder(config))


BLOCKS = Config(d_model=16, heads=2, d_ff=24, dropout=0.3, max_length=16)


def _transformer(*, tied: bool = True, **choices: object) -> Transformer:
    config = replace(BLOCKS, **choices)
    return Transformer(transformer.Encoder(len(SOURCE), config), transformer.Decoder(len(TARGET), config, tied=tied))


MODELS: dict[str, Callable[[], Translator | Transformer]] = {
    "fixed context": partial(_translator, SIZES, FixedContextDecoder),
    "Bahdanau": partial(_translator, SIZES, BahdanauDecoder),
    "Luong": partial(_translator, SIZES, LuongDecoder),
    "four heads": partial(_translator, HALF, HeadedDecoder),
}
MODELS |= {
    f"{order}, {name}": partial(_translator, HALF, partial(decoder, score=score))
    for order, decoder in (("Bahdanau", BahdanauDecoder), ("Luong", LuongDecoder))
    for name, score in SCORES.items()
}
MODELS |= {f"Transformer, {name}": partial(_transformer, position=POSITIONS[name]) for name in POSITIONS}
MODELS |= {
    "Transformer, post-norm": partial(_transformer, residual=PostNorm),
    "Transformer, two tables": partial(_transformer, tied=False),
}
PROPERTIES = {
    "no word sees a later one (train)",
    "no word sees a later one (eval)",
    "padding changes nothing",
    "padding does not count in the loss",
    "one word at a time equals all at once",
    "weights are a convex combination",
    "a saved model computes the same",
    "every parameter gets a finite gradient",
}


@pytest.fixture
def batch() -> Batch:
    return collate(PAIRS, SOURCE, TARGET)


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_every_model_has_every_property(
    build: Callable[[], Translator | Transformer], training: bool, batch: Batch, precision: str
) -> None:
    """To 1e-4 in float32; the mode in which the model came and the random numbers are as before."""
    model = build().train(training)
    before = torch.get_rng_state()
    report = translator_report(model, batch)
    assert torch.equal(torch.get_rng_state(), before)
    assert {module.training for module in model.modules()} == {training}
    without = {"weights are a convex combination"} if isinstance(model.decoder, FixedContextDecoder) else set()
    assert report.keys() == PROPERTIES - without
    assert {name: gap for name, gap in report.items() if not gap <= TOLERANCE} == {}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("precision", ["bfloat16"], indirect=True)
def test_in_bfloat16_the_properties_hold_to_its_precision(
    build: Callable[[], Translator | Transformer], batch: Batch, precision: str
) -> None:
    """Sums taken in another order differ by about 2⁻⁸ of numbers near 1; what no sum depends on stays exact."""
    model = build()
    with runtime.autocast():
        report = translator_report(model, batch)
    exact = {"every parameter gets a finite gradient", "a saved model computes the same"}
    assert {name: report[name] for name in exact if report[name] != 0} == {}
    assert {name: gap for name, gap in report.items() if not gap <= 0.02} == {}


# ---- models that run, train and are wrong ------------------------------------------------------------------------


class _ReadsPadding(RecurrentEncoder):
    """Forgets the lengths: the backward direction begins in the padding."""

    def forward(self, source: Tensor, lengths: Tensor) -> Annotations:
        states, final = self.gru(self.dropout(self.embed(source)))
        return super().forward(source, lengths)._replace(states=states, summary=torch.cat([final[0], final[1]], dim=-1))


class _SummaryOfPadding(RecurrentEncoder):
    """The right states, but the sentence is summed up at the last column, which may be padding."""

    def forward(self, source: Tensor, lengths: Tensor) -> Annotations:
        memory = super().forward(source, lengths)
        return memory._replace(summary=memory.summary + memory.states.mean(dim=1))


class _Unmasked(LuongDecoder):
    """Attends to padding."""

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        return super().unroll(words, memory._replace(mask=torch.ones_like(memory.mask)), state)


class _UnmaskedInEval(LuongDecoder):
    """A mask that is there in training alone, as Dive into Deep Learning once had it."""

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        mask = memory.mask if self.training else torch.ones_like(memory.mask)
        return super().unroll(words, memory._replace(mask=mask), state)


class _NotNormalised(LuongDecoder):
    """Sets weights to 0 after the softmax, so that they no longer sum to 1."""

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        hidden, _ = self.gru(words, state.hidden[None])
        weights = torch.softmax(self.score(hidden, state.keys), dim=-1) * memory.mask[:, None]
        return hidden, weights @ memory.states, weights


class _ReadsAhead(LuongDecoder):
    """Reads the target from both ends."""

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        hidden, context, weights = super().unroll(words, memory, state)
        return hidden, context + words.flip(1).cumsum(1).flip(1).mean(dim=-1, keepdim=True), weights


class _ReadsAheadInTraining(_ReadsAhead):
    """… but only while it trains."""

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        return (
            super().unroll(words, memory, state) if self.training else LuongDecoder.unroll(self, words, memory, state)
        )


class _Forgets(BahdanauDecoder):
    """Hands back the state with which it began: each call starts the sentence again."""

    def forward(self, target: Tensor, memory: Annotations, state: DecoderState) -> Decoded:
        return super().forward(target, memory, state)._replace(state=state)


class _CountsFromZero(BahdanauDecoder):
    """Adds a position that restarts at 0 in every call."""

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        return super().unroll(words + torch.arange(words.shape[1])[:, None] / 10, memory, state)


class _Unused(BahdanauDecoder):
    """Holds a layer that nothing goes through."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__(config)
        self.spare = nn.Linear(2, 2)


class _Detached(BahdanauDecoder):
    """Cuts the gradient to the encoder at the only two places where it passes."""

    def forward(self, target: Tensor, memory: Annotations, state: DecoderState) -> Decoded:
        memory = memory._replace(states=memory.states.detach())
        keys = None if state.keys is None else state.keys.detach()
        return super().forward(target, memory, DecoderState(state.hidden.detach(), keys))


class _InAList(BahdanauDecoder):
    """Keeps a layer in a Python list, where neither the optimiser nor the state dict finds it."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__(config)
        self.layers = [nn.Linear(config.d_embed, config.d_embed)]

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        return super().unroll(self.layers[0](words), memory, state)


class _LooseTensor(BahdanauDecoder):
    """Keeps a random tensor as a plain attribute."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__(config)
        self.scale = torch.rand(config.d_embed)

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        return super().unroll(self.scale * words, memory, state)


class _NotANumber(LuongDecoder):
    """Divides by zero."""

    def unroll(self, words: Tensor, memory: Annotations, state: DecoderState) -> tuple[Tensor, Tensor, Tensor]:
        hidden, context, weights = super().unroll(words, memory, state)
        return hidden / 0 * 0, context, weights * torch.nan


LEAKS = {"no word sees a later one (train)", "no word sees a later one (eval)"}
BROKEN: dict[str, tuple[type[RecurrentEncoder], type[RecurrentDecoder], set[str]]] = {
    "reads padding": (_ReadsPadding, LuongDecoder, {"padding changes nothing"}),
    "sums up padding": (_SummaryOfPadding, FixedContextDecoder, {"padding changes nothing"}),
    "no mask": (RecurrentEncoder, _Unmasked, {"padding changes nothing", "weights are a convex combination"}),
    "no mask in eval": (
        RecurrentEncoder,
        _UnmaskedInEval,
        {"padding changes nothing", "weights are a convex combination"},
    ),
    "not normalised": (
        RecurrentEncoder,
        _NotNormalised,
        {"padding changes nothing", "weights are a convex combination"},
    ),
    "reads ahead": (
        RecurrentEncoder,
        _ReadsAhead,
        LEAKS | {"one word at a time equals all at once", "padding does not count in the loss"},
    ),
    "reads ahead in training": (RecurrentEncoder, _ReadsAheadInTraining, {"no word sees a later one (train)"}),
    "forgets its state": (RecurrentEncoder, _Forgets, {"one word at a time equals all at once"}),
    "counts from zero": (RecurrentEncoder, _CountsFromZero, {"one word at a time equals all at once"}),
    "unused layer": (RecurrentEncoder, _Unused, {"every parameter gets a finite gradient"}),
    "gradient cut": (RecurrentEncoder, _Detached, {"every parameter gets a finite gradient"}),
    "layer in a list": (RecurrentEncoder, _InAList, {"a saved model computes the same"}),
    "tensor outside the state dict": (RecurrentEncoder, _LooseTensor, {"a saved model computes the same"}),
    "not a number": (RecurrentEncoder, _NotANumber, PROPERTIES),
}


@pytest.mark.parametrize(("encoder", "decoder", "expected"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_a_broken_model_is_found_by_the_properties_that_it_lacks(
    encoder: type[RecurrentEncoder], decoder: type[RecurrentDecoder], expected: set[str], batch: Batch, precision: str
) -> None:
    """By those and no others, and by ten times the tolerance."""
    report = translator_report(Translator(encoder(SIZES), decoder(SIZES)), batch)
    assert {name for name, gap in report.items() if not gap <= TOLERANCE} == expected
    assert min(report[name] for name in expected) > 10 * TOLERANCE


# ---- the same of Transformers ------------------------------------------------------------------------------------


class _AddsFromZero(Sinusoidal):
    """Begins anew at every call, as the cached decoder of Dive into Deep Learning once did."""

    def add(self, x: Tensor, start: int = 0) -> Tensor:
        return super().add(x)


class _TurnsFromZero(Rotary):
    """The same mistake where positions are angles."""

    def rotate(self, x: Tensor, start: int = 0) -> Tensor:
        return super().rotate(x)


class _QueriesComeFirst(ALiBi):
    """Takes the queries for the first of the keys' positions; they are the last."""

    def bias(self, q: Tensor, keys: int, start: int | None = None) -> Tensor:
        return super().bias(q, keys, start=0)


class _LosesItsMask(MultiHeadAttention):
    """Takes a mask and forgets it."""

    def forward(self, *inputs: Tensor, mask: Mask | None = None, **rest: object) -> Tensor:
        return super().forward(*inputs, **rest)


class _LosesItsMaskInEval(MultiHeadAttention):
    """… while it is not trained."""

    def forward(self, *inputs: Tensor, mask: Mask | None = None, **rest: object) -> Tensor:
        return super().forward(*inputs, mask=mask if self.training else None, **rest)


class _LosesItsMaskInTraining(MultiHeadAttention):
    """… while it is."""

    def forward(self, *inputs: Tensor, mask: Mask | None = None, **rest: object) -> Tensor:
        return super().forward(*inputs, mask=None if self.training else mask, **rest)


class _KeepsNothing(Block):
    """Is given a cache and does without."""

    def forward(self, *inputs: Tensor, cache: object = None, **rest: object) -> Tensor:
        return super().forward(*inputs, **rest)


def _altered(place: str, kind: type[nn.Module]) -> Transformer:
    """A Transformer with one module made into another kind that has the same weights."""
    model = _transformer()
    model.get_submodule(place).__class__ = kind
    return model


def _placed(encoding: Position) -> Transformer:
    model = _transformer()
    model.decoder.stack.position = encoding
    return model


FIRST, SECOND = "decoder.stack.blocks.0", "decoder.stack.blocks.1"
PADDING = {"padding changes nothing", "weights are a convex combination"}
STEPWISE = {"one word at a time equals all at once"}
BROKEN_TRANSFORMERS: dict[str, tuple[Callable[[], Transformer], set[str]]] = {
    "adds from zero": (lambda: _placed(_AddsFromZero(16)), STEPWISE),
    "turns from zero": (lambda: _placed(_TurnsFromZero(8)), STEPWISE),
    "queries come first": (lambda: _placed(_QueriesComeFirst(2)), STEPWISE),
    "keeps nothing": (lambda: _altered(SECOND, _KeepsNothing), STEPWISE),
    "reads padding": (lambda: _altered("encoder.stack.blocks.1.mixer.branch", _LosesItsMask), PADDING),
    "attends to padding": (lambda: _altered(f"{FIRST}.cross.branch", _LosesItsMask), PADDING),
    "attends to padding in eval": (lambda: _altered(f"{SECOND}.cross.branch", _LosesItsMaskInEval), PADDING),
    "reads ahead in training": (
        lambda: _altered(f"{SECOND}.mixer.branch", _LosesItsMaskInTraining),
        {"no word sees a later one (train)"},
    ),
    "reads ahead in eval": (
        lambda: _altered(f"{SECOND}.mixer.branch", _LosesItsMaskInEval),
        {
            "no word sees a later one (eval)",
            "padding does not count in the loss",
            "weights are a convex combination",
            *STEPWISE,
        },
    ),
}


@pytest.mark.parametrize(("build", "expected"), BROKEN_TRANSFORMERS.values(), ids=BROKEN_TRANSFORMERS)
@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_a_broken_transformer_is_found_by_the_properties_that_it_lacks(
    build: Callable[[], Transformer], expected: set[str], batch: Batch, precision: str
) -> None:
    report = translator_report(build(), batch)
    assert {name for name, gap in report.items() if not gap <= TOLERANCE} == expected
    assert min(report[name] for name in expected) > 10 * TOLERANCE


def test_tied_tables_stay_tied(batch: Batch) -> None:
    """Two that began as copies part at the first step."""

    def gap(model: Transformer) -> float:
        return invariants.tying_gap(
            model,
            lambda m: translation_loss(m, batch).mean,
            lambda m: (m.decoder.embed.weight, m.decoder.unembed.weight),
        )

    copies = _transformer(tied=False)
    copies.decoder.unembed.load_state_dict(copies.decoder.embed.state_dict())
    assert gap(_transformer()) == 0
    assert gap(copies) > 10 * TOLERANCE
    assert torch.equal(copies.decoder.embed.weight, copies.decoder.unembed.weight), "a copy was trained"


@pytest.mark.gpu
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_a_gpu_keeps_the_properties(position: str, batch: Batch, precision: str) -> None:
    """Positions, caches and masks are made where the words are."""
    report = translator_report(_transformer(position=POSITIONS[position]).cuda(), batch.to("cuda"))
    assert {name: gap for name, gap in report.items() if not gap <= 1e-2} == {}


def test_a_loss_that_counts_padding_is_found(monkeypatch: pytest.MonkeyPatch, batch: Batch) -> None:
    """Cross-entropy without `ignore_index`, the commonest bug of all."""

    def careless_loss(model: Translator, batch: Batch) -> Loss:
        logits = model(batch.source, batch.source_lengths, batch.target_in).logits
        return Loss(F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten()), 1)

    model = MODELS["Luong"]().eval()
    assert invariants.loss_on_padding(model, batch) <= TOLERANCE
    monkeypatch.setattr(invariants, "translation_loss", careless_loss)
    assert invariants.loss_on_padding(model, batch) > 10 * TOLERANCE


# ---- the single functions ----------------------------------------------------------------------------------------


def test_convexity_knows_blocked_rows_and_each_way_to_fail() -> None:
    """A blocked row may and must sum to 0."""
    mask = torch.tensor([[[True, True, False], [False, False, False]]])
    weights = masked_softmax(torch.randn(1, 2, 3), mask)
    assert invariants.convexity(weights, mask) < 1e-6
    assert invariants.convexity(weights, mask[:, :1]) == pytest.approx(1), "a row that sums to 0 and should not"
    for place, value in (((0, 0, 2), 0.25), ((0, 1, 0), 0.25), ((0, 0, 0), -0.25), ((0, 0, 0), torch.nan)):
        changed = weights.clone()
        changed[place] = value
        assert invariants.convexity(changed, mask) >= 0.2


def test_future_leak_measures_the_leak() -> None:
    """The mean over the whole sequence sees the future; the running mean does not."""
    tokens = torch.tensor([[1, 2, 3, 4]])
    running = lambda x: x.float().cumsum(1) / torch.arange(1, 5)  # noqa: E731
    assert invariants.future_leak(running, tokens, 10) == 0
    assert invariants.future_leak(lambda x: x.float().mean(1, keepdim=True).expand(1, 4), tokens, 10) == 0.75


def test_padding_effect_measures_the_padding() -> None:
    tokens, lengths = torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1])
    right = lambda x, n: x.float().cumsum(1) / n[:, None]  # noqa: E731
    assert invariants.padding_effect(right, tokens, lengths) == 0
    assert invariants.padding_effect(lambda x, n: x.float() / x.shape[1], tokens, lengths) == pytest.approx(4 - 4 / 3)


def test_missing_gradients_is_the_share_of_parameters() -> None:
    """One absent, one zero, one not finite and one healthy of four; gradients of before are not counted."""
    model = nn.ParameterList([torch.ones(2) for _ in range(4)])
    model[0].grad = torch.ones(2)
    with torch.autocast("cpu", enabled=False):
        share = invariants.missing_gradients(model, lambda m: (0 * m[1]).sum() + (0 * m[2]).sqrt().sum() + m[3].sum())
    assert share == 0.75
    assert all(parameter.grad is None for parameter in model)


def test_a_constant_table_may_live_outside_the_state_dict() -> None:
    """Made by the constructor and registered as a buffer, as tables of positions are."""
    model = nn.Linear(2, 2)
    model.register_buffer("table", torch.arange(2.0), persistent=False)
    assert invariants.round_trip_gap(model, lambda m: m(torch.ones(2)) + m.table) == 0


def test_the_batch_has_what_the_properties_need(batch: Batch) -> None:
    """Padding on both sides and rows of different lengths, without which several properties are empty."""
    assert len(set(batch.source_lengths.tolist())) > 2
    assert len(set(batch.target_lengths.tolist())) > 2
    shorter = replace(batch, target_in=batch.target_in[:, :1], target_out=batch.target_out[:, :1])
    assert invariants.loss_on_padding(MODELS["Luong"]().eval(), shorter) == 0
    assert translation_loss(MODELS["Luong"]().eval(), batch).mean.isfinite()
