"""For every invariant a fault that it must find, planted in a model that is right but for it.

The suites beside this file have the faults of attention layers, translators and language models. Here are those of each
function by itself, and of what an invariant must not excuse.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import POSITIONS
from tfbook.course import invariants
from tfbook.course.invariants import idle_key_biases, language_model_report, missing_gradients
from tfbook.models.bert import BERT, Bert, Tagger
from tfbook.models.blocks import Config, Stack
from tfbook.models.gpt import Gpt
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.models.vit import Vit, VitConfig
from tfbook.text import Pair, Vocabulary, collate
from tfbook.training import translation_loss

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
