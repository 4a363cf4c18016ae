"""For every invariant a fault that it must find, planted in a model that is right but for it.

The suites beside this file have the faults of attention layers, translators and language models. Here are those of each
function by itself, and of what an invariant must not excuse.
"""

from collections.abc import Callable
from dataclasses import replace
from inspect import getmembers, isfunction, signature
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import POSITIONS, Causal, Lengths, Mask, MultiHeadAttention, Supports, declares, softmax
from tfbook.course import invariants
from tfbook.course.invariants import TOLERANCE, idle_key_biases, language_model_report, missing_gradients
from tfbook.models.bert import BERT, Bert, Tagger
from tfbook.models.blocks import Config, Stack
from tfbook.models.gpt import Gpt
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.models.vit import Vit, VitConfig
from tfbook.text import PAD, Batch, Pair, Vocabulary, collate
from tfbook.training import Loss as TotalAndCount, translation_loss

VOCAB = 11
SIZES = Config(d_model=16, heads=2, d_ff=24, layers=2, max_length=16)
IDS = torch.randint(VOCAB, (2, 7), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([7, 4])
IMAGES = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
WORDS = Vocabulary([tuple("abcdef")])
BATCH = collate([Pair(tuple("abc"), tuple("cab")), Pair(tuple("de"), ("f",))], WORDS, WORDS)

# ---- key biases: without effect unless positions rotate the keys -------------------------------------------------


def gpt(position: str) -> Gpt:
    return Gpt(VOCAB, replace(SIZES, position=POSITIONS[position]))


def vit(position: str) -> Vit:
    sizes = VitConfig(**vars(SIZES), height=8, width=8, channels=1, patch=4)
    return Vit(3, replace(sizes, position=POSITIONS[position]))


def tagger(position: str) -> Tagger:
    sizes = replace(BERT, d_model=16, heads=2, d_ff=24, layers=2, max_length=16)
    return Tagger(Bert(VOCAB, replace(sizes, position=POSITIONS[position])), 3)


def transformer(position: str) -> Transformer:
    config = replace(SIZES, position=POSITIONS[position])
    return Transformer(Encoder(len(WORDS), config), Decoder(len(WORDS), config))


def next_token(model: nn.Module) -> Tensor:
    return F.cross_entropy(model(IDS[:, :-1]).flatten(0, 1), IDS[:, 1:].flatten())


def labels(model: nn.Module) -> Tensor:
    return F.cross_entropy(model(IMAGES.to(next(model.parameters()).dtype)), torch.arange(3))


def tags(model: nn.Module) -> Tensor:
    return F.cross_entropy(model(IDS, LENGTHS).flatten(0, 1), torch.arange(14) % 3)


Build, Loss = Callable[[str], nn.Module], Callable[[Any], Tensor]
KINDS: dict[str, tuple[Build, Loss]] = {
    "GPT": (gpt, next_token),
    "ViT": (vit, labels),
    "BERT": (tagger, tags),
    "Transformer": (transformer, lambda model: translation_loss(model, BATCH).mean),
}
every_kind = pytest.mark.parametrize(("build", "loss"), KINDS.values(), ids=KINDS)


def large(model: nn.Module) -> nn.Module:
    """With weights so large that every output depends on every input."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model


def gradients_of_key_biases(model: nn.Module, loss: Loss) -> dict[str, float]:
    """The largest entry of each, in float64."""
    loss(model).backward()
    named = model.named_parameters()
    return {name: float(weight.grad.abs().max()) for name, weight in named if name.endswith("W_K.bias")}


@every_kind
@pytest.mark.parametrize("position", POSITIONS)
def test_key_biases_are_idle_where_their_gradient_is_zero(build: Build, loss: Loss, position: str) -> None:
    """By the gradients themselves, which are 0 to rounding or far from it."""
    model = large(build(position)).double()
    found = gradients_of_key_biases(model, loss)
    assert idle_key_biases(model) == {name for name, largest in found.items() if largest < 1e-12}
    assert all(largest > 1e-8 for name, largest in found.items() if name not in idle_key_biases(model))
    assert len(found) > len(idle_key_biases(model)) if position == "rotary" else found.keys() == idle_key_biases(model)


@every_kind
def test_a_cut_gradient_of_rotated_keys_is_found(build: Build, loss: Loss) -> None:
    """Of the first layer's key bias."""
    model = large(build("rotary"))
    assert missing_gradients(model, loss, idle_key_biases(model)) == 0
    weights = dict(model.named_parameters())
    name = next(name for name in weights if name.endswith("mixer.branch.W_K.bias"))
    weights[name].register_hook(torch.zeros_like)
    assert missing_gradients(model, loss, idle_key_biases(model)) == pytest.approx(1 / len(weights))


def test_the_reports_find_a_cut_gradient_of_rotated_keys() -> None:
    """Those of language models and of translators, whose cross-attention rotates nothing."""
    model, translator = gpt("rotary"), transformer("rotary")
    model.stack.blocks[0].mixer.branch.W_K.bias.register_hook(torch.zeros_like)
    translator.decoder.stack.blocks[0].mixer.branch.W_K.bias.register_hook(torch.zeros_like)
    name = "every parameter gets a finite gradient"
    assert language_model_report(model, IDS)[name] > 0
    assert invariants.translator_report(translator, BATCH)[name] > 0


def test_a_block_that_one_rotary_stack_uses_is_rotated() -> None:
    """Shared with a stack without positions, it still learns a key bias."""
    stacks = nn.ModuleList([Stack(replace(SIZES, position=POSITIONS[name])) for name in ("none", "rotary")])
    stacks[0].blocks = stacks[1].blocks
    assert idle_key_biases(stacks) == set()
    assert idle_key_biases(stacks[0]) == {f"blocks.{i}.mixer.branch.W_K.bias" for i in range(2)}


# ---- every function by itself: 0 without a fault, far from it with one -------------------------------------------

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
WEIGHTS = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]])
SEEN = torch.ones(3, 3, dtype=torch.bool).tril()[None]
PADDED = torch.tensor([6, 3])


def running_mean(x: Tensor) -> Tensor:
    """Sees no later position."""
    return x.double().cumsum(1) / torch.arange(1, x.shape[1] + 1)


def mean_of(x: Tensor, lengths: Tensor) -> Tensor:
    """Sees no padding."""
    there = torch.arange(x.shape[1]) < lengths[:, None]
    return ((x * there[..., None]).sum(1) / lengths[:, None])[:, None]


def shuffled(layer: nn.Module) -> nn.Module:
    """With an order of its inputs, drawn at random, that the state dict does not hold."""
    layer.order = torch.randperm(layer.in_features)
    return layer


def late(model: Any, stack: Stack, by: int) -> Any:
    """The model, whose caches count this many positions too many at each step."""
    make = stack.new_cache

    def new_cache() -> Any:
        cache = make()
        finish = cache.finish
        cache.finish = lambda new=0: finish(new + by)
        return cache

    stack.new_cache = new_cache
    return model.eval()


def cached_gap(by: int) -> float:
    model = gpt("learned")
    return invariants.cached_gap(late(model, model.stack, by), IDS)


def stepwise_gap(by: int) -> float:
    model = transformer("sinusoidal")
    return invariants.stepwise_gap(late(model, model.decoder.stack, by), BATCH)


def loss_on_padding(loss: Callable[[Tensor, Batch], TotalAndCount]) -> float:
    """Of a loss made from the negative log-likelihood of each target, padding included."""

    def made(model: Any, batch: Batch) -> TotalAndCount:
        logits = model(batch.source, batch.source_lengths, batch.target_in).logits
        return loss(F.cross_entropy(logits.mT, batch.target_out, reduction="none"), batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(invariants, "translation_loss", made)
        return invariants.loss_on_padding(transformer("sinusoidal").eval(), BATCH)


def untied() -> Gpt:
    model = gpt("none")
    model.unembed.weight = nn.Parameter(model.embed.weight.detach().clone())
    return model


def tables(model: Any) -> tuple[Tensor, Tensor]:
    return model.embed.weight, model.unembed.weight


def recording_its_queries(scale: float) -> MultiHeadAttention:
    """A layer whose weights are those of queries that are `scale` as large as recorded."""

    @declares(Supports())
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, *rest: object, **options: object) -> Tensor:
        return softmax(scale * q, k, v, mask)

    return MultiHeadAttention(8, 2, implementation=attend)


def forgetful(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Lets a query without any key see all of them."""
    return softmax(q, k, v, None)


Gap = Callable[[], float]
FAULTS: dict[str, tuple[Gap, list[Gap]]] = {  # of each function: without a fault, and with each
    "convexity": (
        lambda: invariants.convexity(WEIGHTS, SEEN),
        [
            lambda: invariants.convexity(WEIGHTS * 0.9, SEEN),  # not normalized
            lambda: invariants.convexity(WEIGHTS.flip(-1), SEEN),  # of what is masked
            lambda: invariants.convexity(4 * WEIGHTS - 3 * SEEN / SEEN.sum(-1, keepdim=True), SEEN),  # negative
            lambda: invariants.convexity(WEIGHTS.mT, SEEN),  # over the queries
            lambda: invariants.convexity(WEIGHTS / 0 * 0, SEEN),
        ],
    ),
    "future_leak": (
        lambda: invariants.future_leak(running_mean, IDS, VOCAB),
        [
            lambda: invariants.future_leak(lambda x: running_mean(x).roll(-1, 1), IDS, VOCAB),  # by one position
            lambda: invariants.future_leak(lambda x: running_mean(x) + x[:, -1:] / 100, IDS, VOCAB),  # of the last
            lambda: invariants.future_leak(lambda x: running_mean(x) / x.double().std(), IDS, VOCAB),  # a batch norm
        ],
    ),
    "padding_effect": (
        lambda: invariants.padding_effect(mean_of, X, PADDED),
        [
            lambda: invariants.padding_effect(lambda x, n: mean_of(x, torch.full_like(n, x.shape[1])), X, PADDED),
            lambda: invariants.padding_effect(lambda x, n: mean_of(x, n) * x.shape[1], X, PADDED),  # its length
            lambda: invariants.padding_effect(lambda x, n: mean_of(x, n) - mean_of(x, n).mean(0), X, PADDED),
        ],
    ),
    "permutation_gap": (
        lambda: invariants.permutation_gap(lambda x: x - x.mean(1, keepdim=True), X),
        [
            lambda: invariants.permutation_gap(lambda x: x + torch.arange(6)[:, None] / 100, X),
            lambda: invariants.permutation_gap(lambda x: x.cumsum(1), X),
        ],
    ),
    "blocked_rows": (
        lambda: invariants.blocked_rows(softmax, X[:, None], Lengths(torch.tensor([6, 0]))),
        [lambda: invariants.blocked_rows(forgetful, X[:, None], Lengths(torch.tensor([6, 0])))],
    ),
    "stepwise_gap": (lambda: stepwise_gap(0), [lambda: stepwise_gap(1)]),
    "round_trip_gap": (
        lambda: invariants.round_trip_gap(nn.Linear(8, 2), lambda m: m(X)),
        [
            lambda: invariants.round_trip_gap(shuffled(nn.Linear(8, 2)), lambda m: m(X[..., m.order])),
        ],
    ),
    "missing_gradients": (
        lambda: missing_gradients(nn.Linear(8, 2), lambda m: m(X).square().sum()),
        [
            lambda: missing_gradients(nn.Linear(8, 2), lambda m: F.linear(X, m.weight.detach(), m.bias).square().sum()),
            lambda: missing_gradients(nn.Linear(8, 2), lambda m: F.linear(X, m.weight).square().sum()),
            lambda: missing_gradients(nn.Linear(8, 2), lambda m: (m(X).square() / 0).sum()),
        ],
    ),
    "loss_on_padding": (
        lambda: loss_on_padding(lambda each, batch: TotalAndCount(each[batch.target_out != PAD].sum(), batch.tokens)),
        [
            lambda: loss_on_padding(lambda each, batch: TotalAndCount(each.sum(), batch.tokens)),  # reads it
            lambda: loss_on_padding(  # counts it
                lambda each, batch: TotalAndCount(each[batch.target_out != PAD].sum(), each.numel())
            ),
        ],
    ),
    "cached_gap": (lambda: cached_gap(0), [lambda: cached_gap(1), lambda: cached_gap(-1)]),
    "shift_gap": (
        lambda: invariants.shift_gap(gpt("rotary").eval(), IDS),
        [
            lambda: invariants.shift_gap(large(gpt("sinusoidal")).eval(), IDS),
            lambda: invariants.shift_gap(large(gpt("learned")).eval(), IDS),
        ],
    ),
    "tying_gap": (
        lambda: invariants.tying_gap(gpt("none"), next_token, tables),
        [lambda: invariants.tying_gap(untied(), next_token, tables)],
    ),
    "unused_mask": (
        lambda: invariants.unused_mask(lambda mask: MULTI(X, mask=mask), Causal()),
        [lambda: invariants.unused_mask(lambda mask: MULTI(X), Causal())],
    ),
    "record_gap": (
        lambda: invariants.record_gap(recording_its_queries(1.0), X, Causal()),
        [lambda: invariants.record_gap(recording_its_queries(3.0), X, Causal())],
    ),
}
MULTI = MultiHeadAttention(8, 2)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    """Each of them, by more than ten times the tolerance."""
    right, wrong = FAULTS[name]
    assert right() <= TOLERANCE
    assert [i for i, gap in enumerate(wrong) if not gap() > 10 * TOLERANCE] == []


def test_every_invariant_has_a_planted_fault() -> None:
    """All public functions that return a violation."""
    public = {name for name, each in getmembers(invariants, isfunction) if each.__module__ == invariants.__name__}
    violations = {name for name in public if signature(getattr(invariants, name)).return_annotation == "float"}
    assert {name for name in violations if not name.startswith("_")} == FAULTS.keys()
