"""Every language model has every property of `language_model_report`, and each fails for a model that lacks it.

A later lesson adds its model as a row of `MODELS`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tfbook import runtime
from tfbook.attention import POSITIONS, ALiBi, Mask, MultiHeadAttention, Position, Rotary, Sinusoidal, sinusoid
from tfbook.course import invariants
from tfbook.course.invariants import (
    TOLERANCE,
    cached_gap,
    future_leak,
    language_model_report,
    permutation_gap,
    shift_gap,
)
from tfbook.models.blocks import Block, Config, PostNorm
from tfbook.models.experts import MixtureOfExperts, dense_dispatch
from tfbook.models.gpt import Gpt
from tfbook.models.language_model import BidirectionalModel, LanguageModel

VOCABULARY = 11
SIZES = Config(d_model=16, heads=2, d_ff=24, dropout=0.3, max_length=16)
ABSOLUTE = {"sinusoidal", "learned"}  # encodings that say where a word stands, not how far from another


def _model(kind: type[LanguageModel] = LanguageModel, **choices: object) -> LanguageModel:
    return kind(VOCABULARY, replace(SIZES, **choices))


MODELS: dict[str, Callable[[], LanguageModel]] = {name: partial(_model, position=POSITIONS[name]) for name in POSITIONS}
MODELS |= {f"{name}, both ways": partial(_model, BidirectionalModel, position=POSITIONS[name]) for name in POSITIONS}
MODELS |= {f"{name}, GPT": partial(_model, Gpt, position=POSITIONS[name]) for name in POSITIONS}
MIXTURES: dict[str, dict] = {  # what dropout draws for the tokens of an expert depends on which others come to it
    "top 2 of two experts": {"feed_forward": partial(MixtureOfExperts, experts=2, k=2)},
    "top 1 of two experts": {"feed_forward": partial(MixtureOfExperts, experts=2), "dropout": 0.0},
    "each expert for every token": {"feed_forward": partial(MixtureOfExperts, experts=2, dispatch=dense_dispatch)},
}
MODELS |= {
    f"rotary, {name}": partial(_model, Gpt, position=POSITIONS["rotary"], **parts) for name, parts in MIXTURES.items()
}
MODELS |= {"post-norm": partial(_model, position=POSITIONS["rotary"], residual=PostNorm)}

LEAKS = {"no word sees a later one (train)", "no word sees a later one (eval)"}
STEPWISE, SHIFT = "a piece at a time equals all at once", "shifting a text changes nothing"
ORDER, CONVEX = "without positions the order changes nothing", "weights are a convex combination"
SAVED, GRADIENT = "a saved model computes the same", "every parameter gets a finite gradient"
TIED = "tied weights stay tied"


def _promised(model: LanguageModel, position: str) -> set[str]:
    """Which properties a model has to have."""
    causal, relative = not isinstance(model, BidirectionalModel), position not in ABSOLUTE
    promised = {CONVEX, SAVED, GRADIENT, TIED} | (LEAKS | {STEPWISE} if causal else set())
    return promised | ({SHIFT} if relative else set()) | ({ORDER} if position == "none" and not causal else set())


@pytest.fixture
def ids() -> Tensor:
    """Two texts of seven words."""
    return torch.randint(VOCABULARY, (2, 7))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_every_model_has_every_property_that_it_promises(
    name: str, training: bool, ids: Tensor, precision: str
) -> None:
    """To 1e-4 in float32; the mode in which the model came and the random numbers are as before."""
    model = MODELS[name]().train(training)
    before = torch.get_rng_state()
    report = language_model_report(model, ids)
    assert torch.equal(torch.get_rng_state(), before)
    assert {module.training for module in model.modules()} == {training}
    assert all(parameter.grad is None for parameter in model.parameters())
    assert report.keys() == _promised(model, name.partition(", ")[0])
    assert {name: gap for name, gap in report.items() if not gap <= TOLERANCE} == {}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("precision", ["bfloat16"], indirect=True)
def test_in_bfloat16_the_properties_hold_to_its_precision(
    build: Callable[[], LanguageModel], ids: Tensor, precision: str
) -> None:
    """Sums taken in another order differ by about 2⁻⁸ of numbers near 1; what no sum depends on stays exact."""
    with runtime.autocast():
        report = language_model_report(build(), ids)
    assert {name: report[name] for name in (SAVED, GRADIENT, TIED) if report[name] != 0} == {}
    assert {name: gap for name, gap in report.items() if not gap <= 0.05} == {}


@pytest.mark.gpu
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_a_gpu_keeps_the_properties(build: Callable[[], LanguageModel], ids: Tensor, precision: str) -> None:
    """Positions, caches and masks are made where the words are."""
    report = language_model_report(build().cuda(), ids.cuda())
    assert {name: gap for name, gap in report.items() if not gap <= 1e-2} == {}


# ---- models that run, train and are wrong ------------------------------------------------------------------------


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


class _AddsWhereItShouldTurn(Position):
    """Waves added to queries and keys: their products depend on where they stand."""

    def rotate(self, x: Tensor, start: int = 0) -> Tensor:
        return x + 3 * sinusoid(torch.arange(start, start + x.shape[2]).float(), x.shape[3])


class _LosesItsMask(MultiHeadAttention):
    """Takes a mask and forgets it, as attention maps do that are computed again after the first layer."""

    def forward(self, query: Tensor, *, mask: Mask | None = None, **rest: object) -> Tensor:
        return super().forward(query, **rest)


class _LosesItsMaskInEval(MultiHeadAttention):
    """… while it is not trained."""

    def forward(self, query: Tensor, *, mask: Mask | None = None, **rest: object) -> Tensor:
        return super().forward(query, mask=mask if self.training else None, **rest)


class _LosesItsMaskInTraining(MultiHeadAttention):
    """… while it is."""

    def forward(self, query: Tensor, *, mask: Mask | None = None, **rest: object) -> Tensor:
        return super().forward(query, mask=None if self.training else mask, **rest)


class _KnowsPositions(MultiHeadAttention):
    """Adds its position to each vector."""

    def forward(self, query: Tensor, **rest: object) -> Tensor:
        return super().forward(query + torch.arange(query.shape[1])[:, None], **rest)


class _KeepsNothing(Block):
    """Is given a cache and does without."""

    def forward(self, *inputs: Tensor, cache: object = None, **rest: object) -> Tensor:
        return super().forward(*inputs, **rest)


class _Detached(Block):
    """Cuts the gradient to everything before it, the table in front of the stack included."""

    def forward(self, x: Tensor, *inputs: Tensor, **rest: object) -> Tensor:
        return super().forward(x.detach(), *inputs, **rest)


class _LooseTensor(Block):
    """Multiplies by a random tensor that the state dict does not find."""

    def forward(self, x: Tensor, *inputs: Tensor, **rest: object) -> Tensor:
        return super().forward(self.scale * x, *inputs, **rest)


class _NotANumber(Block):
    """Divides by zero."""

    def forward(self, *inputs: Tensor, **rest: object) -> Tensor:
        return super().forward(*inputs, **rest) / 0 * 0


ATTENTION, BLOCK = "stack.blocks.1.mixer.branch", "stack.blocks.1"


def _altered(place: str, changed: type[nn.Module], kind: type[LanguageModel] = LanguageModel) -> LanguageModel:
    """A model without positions, one of whose modules became one of another class with the same weights."""
    model = _model(kind, position=POSITIONS["none"])
    model.get_submodule(place).__class__ = changed
    return model


def _placed(encoding: Position) -> LanguageModel:
    model = _model()
    model.stack.position = encoding
    return model


def _copied() -> LanguageModel:
    """Two tables that begin as one."""
    model = _model(position=POSITIONS["none"])
    model.unembed.weight = nn.Parameter(model.embed.weight.detach().clone())
    return model


def _loose() -> LanguageModel:
    model = _altered(BLOCK, _LooseTensor)
    model.stack.blocks[1].scale = torch.rand(16)
    return model


def _with_spare() -> LanguageModel:
    model = _model(position=POSITIONS["none"])
    model.spare = nn.Linear(2, 2)
    return model


BROKEN: dict[str, tuple[Callable[[], LanguageModel], set[str]]] = {
    "adds from zero": (lambda: _placed(_AddsFromZero(16)), {STEPWISE}),
    "turns from zero": (lambda: _placed(_TurnsFromZero(8)), {STEPWISE}),
    "queries come first": (lambda: _placed(_QueriesComeFirst(2)), {STEPWISE}),
    "adds where it should turn": (lambda: _placed(_AddsWhereItShouldTurn()), {SHIFT}),
    "keeps nothing": (lambda: _altered(BLOCK, _KeepsNothing), {STEPWISE}),
    "no mask": (lambda: _altered(ATTENTION, _LosesItsMask), LEAKS | {STEPWISE, CONVEX, SHIFT}),
    "no mask in eval": (
        lambda: _altered(ATTENTION, _LosesItsMaskInEval),
        {"no word sees a later one (eval)", STEPWISE, CONVEX, SHIFT},
    ),
    "no mask in training": (
        lambda: _altered(ATTENTION, _LosesItsMaskInTraining),
        {"no word sees a later one (train)"},
    ),
    "knows positions": (lambda: _altered(ATTENTION, _KnowsPositions, BidirectionalModel), {ORDER, SHIFT}),
    "two tables": (_copied, {TIED}),
    "tensor outside the state dict": (_loose, {SAVED}),
    "unused layer": (_with_spare, {GRADIENT}),
    "gradient cut": (lambda: _altered(BLOCK, _Detached), {GRADIENT}),
}


@pytest.mark.parametrize(("build", "expected"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_a_broken_model_is_found_by_the_properties_that_it_lacks(
    build: Callable[[], LanguageModel], expected: set[str], ids: Tensor, precision: str
) -> None:
    """By those and no others, and by ten times the tolerance."""
    report = language_model_report(build(), ids)
    assert {name for name, gap in report.items() if not gap <= TOLERANCE} == expected
    assert min(report[name] for name in expected) > 10 * TOLERANCE


@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_a_model_that_is_not_a_number_has_no_property_but_its_weights(ids: Tensor, precision: str) -> None:
    """NaN is no small gap. The weights are those of before the division."""
    report = language_model_report(_altered(BLOCK, _NotANumber), ids)
    assert {name for name, gap in report.items() if gap <= TOLERANCE} == {CONVEX}


def test_every_property_is_lacked_by_something() -> None:
    """Otherwise one of them may be unable to fail."""
    lacked = set().union(*(expected for _, expected in BROKEN.values()))
    assert lacked == LEAKS | {STEPWISE, SHIFT, ORDER, CONVEX, SAVED, GRADIENT, TIED}


# ---- the single functions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", POSITIONS)
def test_only_encodings_of_distances_let_a_text_stand_anywhere(position: str, ids: Tensor) -> None:
    """Rotary, relative, ALiBi and none; waves and tables say where a word stands. In both directions and in one."""
    for kind in (LanguageModel, BidirectionalModel):
        model = _model(kind, position=POSITIONS[position]).eval()
        for parameter in model.stack.position.parameters():
            nn.init.normal_(parameter)
        gap = shift_gap(model, ids)
        assert gap > 10 * TOLERANCE if position in ABSOLUTE else gap <= TOLERANCE


def test_without_positions_the_mask_alone_tells_the_order(ids: Tensor) -> None:
    """A causal stack sees how many words stand before each; a bidirectional one sees a set; any encoding tells more."""
    gaps = {}
    for kind in (LanguageModel, BidirectionalModel):
        model = _model(kind, position=POSITIONS["none"]).eval()
        words = model.embed(ids).detach()
        gaps[kind] = permutation_gap(lambda x, m=model: m.stack(x, m.mask), words)
    assert gaps[BidirectionalModel] <= TOLERANCE
    assert gaps[LanguageModel] > 10 * TOLERANCE
    for position in POSITIONS.keys() - {"none"}:
        model = _model(BidirectionalModel, position=POSITIONS[position]).eval()
        for parameter in model.stack.position.parameters():
            nn.init.normal_(parameter)
        assert permutation_gap(model.stack, words) > 10 * TOLERANCE, position


def test_a_bidirectional_model_sees_the_future(ids: Tensor) -> None:
    """Which is why it predicts words that are hidden, and none that come next."""
    assert future_leak(_model(BidirectionalModel).eval(), ids, VOCABULARY) > 10 * TOLERANCE


def test_a_cache_is_tried_in_pieces_of_several_sizes(ids: Tensor) -> None:
    """One that is right for single words may be wrong for two at a time."""

    class Pairs(Sinusoidal):
        """Knows where a single word stands and not where a second does."""

        def add(self, x: Tensor, start: int = 0) -> Tensor:
            return super().add(x, start) if x.shape[1] != 2 else super().add(x, start + 1)

    model = _model().eval()
    assert cached_gap(model, ids) <= TOLERANCE
    model.stack.position = Pairs(16)
    assert cached_gap(model, ids) > 10 * TOLERANCE


def test_tying_gap_takes_one_step_of_a_copy() -> None:
    """Of ½ w² with rate 1 the step leads to 0; a second weight that the loss does not see stays at 3."""
    model = nn.ParameterDict({"seen": torch.tensor([3.0]), "unseen": torch.tensor([3.0])})
    loss = lambda m: m["seen"].square().sum() / 2  # noqa: E731
    assert invariants.tying_gap(model, loss, lambda m: (m["seen"], m["unseen"])) == 3
    assert invariants.tying_gap(model, loss, lambda m: (m["seen"], m["seen"])) == 0
    assert model["seen"].item() == 3
    assert model["seen"].grad is None
