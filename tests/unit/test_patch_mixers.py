"""Mixer, ResMLP and ConvMixer against references written in another way; SAGAN's attention on a feature map."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tfbook.attention import record
from tfbook.course.cost import parameters
from tfbook.course.invariants import TOLERANCE, convexity
from tfbook.models.attentive_cnn import AttentiveCnn, FeatureAttention
from tfbook.models.blocks import Stack
from tfbook.models.cnn import Cnn
from tfbook.models.conv_mixer import ConvMixer, ConvMixerConfig
from tfbook.models.patch_mixers import (
    DepthwiseConvolution,
    LayerScaled,
    TokenLinear,
    TokenMlp,
    convolutional,
    mlp_mixer,
    patch_bag,
    res_mlp,
)
from tfbook.models.vit import Vit, VitConfig, patchify

LABELS = 3
SIZES = VitConfig(d_model=8, heads=2, d_ff=12, layers=2, height=6, width=8, channels=2, patch=2)
IMAGES = torch.rand(4, 2, 6, 8, generator=torch.Generator().manual_seed(0))
MODELS: dict[str, Callable[[], VitConfig]] = {
    "mixer": lambda: mlp_mixer(SIZES, d_tokens=5),
    "ResMLP": lambda: res_mlp(SIZES),
    "convolution": lambda: convolutional(SIZES),
}


def drawn(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def weights_of(model: nn.Module, kind: str) -> list[list[Tensor]]:
    """(weight, bias) of each layer of this kind, in order."""
    return [list(layer.parameters()) for layer in model.modules() if type(layer).__name__ == kind]


# ---- references: einsum and plain formulas on (patch, channel) ----------------------------------------------------


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def layer_normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centered = x - x.mean(dim=-1, keepdim=True)
    return centered / (centered.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() * weight + bias


@torch.no_grad()
def test_the_mixer_is_the_paper_s_equation() -> None:
    """U = X + W₂ σ(W₁ LN(X)), Y = U + W₄ σ(W₃ LN(U)) (eq. 1), with X as (patch, channel)."""
    model = drawn(Vit(LABELS, mlp_mixer(SIZES, d_tokens=5)))
    linear, norms = weights_of(model, "Linear"), weights_of(model, "LayerNorm")
    patches = model.patches
    for image, found in zip(IMAGES, model(IMAGES), strict=True):
        x = patchify(image[None], 2)[0] @ patches.weight.flatten(1).T + patches.bias
        for layer in range(2):
            (w1, b1), (w2, b2), (w3, b3), (w4, b4) = linear[4 * layer : 4 * layer + 4]
            hidden = gelu(torch.einsum("tc,ht->hc", layer_normed(x, *norms[2 * layer]), w1) + b1[:, None])
            x = x + torch.einsum("hc,th->tc", hidden, w2) + b2[:, None]
            x = x + gelu(layer_normed(x, *norms[2 * layer + 1]) @ w3.T + b3) @ w4.T + b4
        torch.testing.assert_close(found, linear[-1][0] @ layer_normed(x, *norms[-1]).mean(dim=0) + linear[-1][1])


@torch.no_grad()
def test_res_mlp_is_the_paper_s_equation() -> None:
    """Z = X + Aff((A Aff(X)ᵀ)ᵀ), Y = Z + Aff(C GELU(B Aff(Z))) (eq. 2 and 3), the outer ones scales alone."""
    model = drawn(Vit(LABELS, res_mlp(SIZES)))
    linear, affine = weights_of(model, "Linear"), weights_of(model, "Affine")
    scales = [layer.scale for layer in model.modules() if isinstance(layer, LayerScaled)]
    for image, found in zip(IMAGES, model(IMAGES), strict=True):
        x = patchify(image[None], 2)[0] @ model.patches.weight.flatten(1).T + model.patches.bias
        for layer in range(2):
            (a, a0), (b, b0), (c, c0) = linear[3 * layer : 3 * layer + 3]
            (one, shift), (other, second) = affine[2 * layer : 2 * layer + 2]
            x = x + (a @ (x * one + shift) + a0[:, None]) * scales[2 * layer]
            x = x + (gelu((x * other + second) @ b.T + b0) @ c.T + c0) * scales[2 * layer + 1]
        expected = linear[-1][0] @ (x * affine[-1][0] + affine[-1][1]).mean(dim=0) + linear[-1][1]
        torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_a_depthwise_convolution_is_its_loops() -> None:
    layer, x = DepthwiseConvolution(3, 1, columns=4, kernel=3), torch.randn(2, 12, 3)
    weight, bias = layer.convolution.weight[:, 0], layer.convolution.bias
    grid, expected = x.view(2, 3, 4, 3), bias.expand(2, 3, 4, 3).clone()
    for row in range(3):
        for column in range(4):
            for down in (-1, 0, 1):
                for across in (-1, 0, 1):
                    if 0 <= row + down < 3 and 0 <= column + across < 4:
                        neighbor = grid[:, row + down, column + across]
                        expected[:, row, column] += weight[:, down + 1, across + 1] * neighbor
    torch.testing.assert_close(layer(x), expected.flatten(1, 2))


@torch.no_grad()
@pytest.mark.parametrize("training", [False, True])
def test_conv_mixer_is_its_formula(training: bool) -> None:
    """With unfolded neighborhoods instead of convolutions, and batch norm by hand."""
    config = ConvMixerConfig(d_model=6, layers=2, kernel=3, patch=2, channels=2)
    model = drawn(ConvMixer(LABELS, config))
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.train(training)

    def normalized(x: Tensor, name: str) -> Tensor:
        mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        if training:
            mean, variance = x.mean(dim=(0, 1)), x.var(dim=(0, 1), correction=0)
        return (x - mean) / (variance + 1e-5).sqrt() * state[f"{name}.weight"] + state[f"{name}.bias"]

    x = patchify(IMAGES, 2) @ state["patches.0.weight"].flatten(1).T + state["patches.0.bias"]
    x = normalized(gelu(x), "patches.2")
    for number in range(2):
        name = f"blocks.{number}."
        near = F.unfold(x.mT.unflatten(2, (3, 4)), 3, padding=1).unflatten(1, (6, 9))
        mixed = torch.einsum("bcnt,cn->btc", near, state[name + "places.0.weight"].flatten(1))
        x = x + normalized(gelu(mixed + state[name + "places.0.bias"]), name + "places.2")
        pointwise = x @ state[name + "channels.0.weight"].flatten(1).T + state[name + "channels.0.bias"]
        x = normalized(gelu(pointwise), name + "channels.2")
    expected = x.mean(dim=1) @ state["head.weight"].T + state["head.bias"]
    torch.testing.assert_close(model(IMAGES), expected, atol=1e-5, rtol=1e-5)


def test_the_published_conv_mixers_have_the_published_parameters() -> None:
    """ConvMixer-1536/20 and -768/32, kernels 9 and 7, patch 7: 51.6 and 21.1 million (table 1)."""
    for d_model, layers, kernel, millions in ((1536, 20, 9, 51.6), (768, 32, 7, 21.1)):
        with torch.device("meta"):
            model = ConvMixer(1000, ConvMixerConfig(d_model=d_model, layers=layers, kernel=kernel, patch=7))
        assert parameters(model) / 1e6 == pytest.approx(millions, abs=0.05)


def test_the_published_mixers_have_the_published_parameters() -> None:
    """Mixer-B/16 and -S/16: 59 and 18 million (table 1); ResMLP-12 and -24: 15 and 30 million (table 1)."""
    base = VitConfig(d_model=768, heads=1, d_ff=3072, layers=12, height=224, width=224, patch=16)
    small = replace(base, d_model=512, d_ff=2048, layers=8)
    twelve = replace(base, d_model=384, d_ff=1536)
    for config, millions in (
        (mlp_mixer(base, d_tokens=384), 59.9),
        (mlp_mixer(small, d_tokens=256), 18.5),
        (res_mlp(twelve), 15.4),
        (res_mlp(replace(twelve, layers=24)), 30.0),
    ):
        with torch.device("meta"):
            assert parameters(Vit(1000, config)) / 1e6 == pytest.approx(millions, abs=0.06)


# ---- who sees whom -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sees"),
    [
        (partial(TokenMlp, time=12, d_tokens=20), 12),
        (partial(TokenLinear, time=12), 12),
        (partial(DepthwiseConvolution, columns=4), 9),
    ],
    ids=["mlp", "linear", "convolution"],
)
def test_a_mixer_moves_between_places_and_never_between_channels(make: Callable[..., nn.Module], sees: int) -> None:
    """Place 5 of 3 × 4, which has all neighbors."""
    layer, x = make(3, 1), torch.randn(1, 12, 3)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x)[0, 5], x)[:, 0]  # (output channel, place, channel)
    assert int((jacobian.abs().sum(dim=(0, 2)) > 0).sum()) == sees
    assert not jacobian[~torch.eye(3, dtype=torch.bool)[:, None].expand(-1, 12, -1)].any()


@torch.no_grad()
@pytest.mark.parametrize("name", ["mixer", "ResMLP"])
def test_patches_in_another_order_are_one_permutation_of_the_weights(name: str) -> None:
    """A model of shuffled patches is as good as one of whole images: its token weights, shuffled alike, undo it."""
    model, order = drawn(Vit(LABELS, MODELS[name]())), torch.randperm(12)
    x = torch.randn(2, 12, 8)
    expected = model.stack(x)
    for block in model.stack.blocks:
        mixer = getattr(block.mixer.branch, "part", block.mixer.branch)
        if isinstance(mixer, TokenMlp):
            first, last = mixer.mlp.up, mixer.mlp.down
        else:
            first = last = mixer.W
        first.weight.copy_(first.weight[:, order])
        last.weight.copy_(last.weight[order])
        last.bias.copy_(last.bias[order])
    torch.testing.assert_close(model.stack(x[:, order]), expected[:, order])


# ---- counts, names, refusals -------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_bag_leaves_each_patch_alone() -> None:
    """Changing one patch changes its own vector only, and operations are the feed-forward networks' alone."""
    model = drawn(Vit(LABELS, patch_bag(SIZES)))
    other = IMAGES.clone()
    other[:, :, :2, :2] += 1
    changed = (model.representations(other) - model.representations(IMAGES)).abs().amax(dim=(0, 2)) > 0
    assert changed.tolist() == [True] + [False] * 11
    assert model.stack.parameter_count() == parameters(model.stack)
    assert model.stack.flops(12) == 2 * 12 * 2 * (2 * 8 * 12)


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_parts_count_their_parameters_and_operations(name: str) -> None:
    stack = Stack(MODELS[name]())
    assert stack.parameter_count() == parameters(stack)
    with FlopCounterMode(display=False) as counter:
        stack(torch.randn(3, 12, 8))
    assert counter.get_total_flops() == 3 * stack.flops(12)


@pytest.mark.parametrize("name", MODELS)
def test_the_configs_can_be_saved(name: str) -> None:
    config = MODELS[name]()
    assert VitConfig.from_dict(config.to_dict()) == config


def test_other_sizes_are_refused() -> None:
    for call, message in (
        (lambda: DepthwiseConvolution(8, 2, columns=4, kernel=2), "kernel is 2; expected an odd number"),
        (lambda: DepthwiseConvolution(8, 2, columns=5)(torch.ones(1, 12, 8)), "x holds 12 positions; expected whole"),
        (lambda: ConvMixerConfig(kernel=4), "kernel is 4; expected an odd number"),
        (lambda: ConvMixerConfig(layers=0), "layers is 0; expected 1 or more"),
        (lambda: ConvMixer(3, ConvMixerConfig())(torch.rand(1, 3, 6, 8)), "patch is 4 and images are 6 × 8"),
        (lambda: FeatureAttention(4), "channels is 4; expected 8 or more"),
        (lambda: FeatureAttention(4, narrower=0), "narrower is 0; expected 1 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# ---- attention on the features of a CNN --------------------------------------------------------------------------


@torch.no_grad()
def test_feature_attention_is_the_paper_s_equation() -> None:
    """β_{j,i} = softmax_i(f(x_i)ᵀ g(x_j)), o_j = v(Σ_i β_{j,i} h(x_i)), y = γ o + x, in loops (section 3)."""
    layer, x = drawn(FeatureAttention(8, narrower=4)), torch.randn(2, 8, 3, 4)
    (f, f0), (g, g0), (h, h0), (v, v0) = (
        (conv.weight[:, :, 0, 0], conv.bias) for conv in (layer.W_K, layer.W_Q, layer.W_V, layer.W_O)
    )
    for image, found in zip(x.flatten(2), layer(x).flatten(2), strict=True):
        for j in range(12):
            scores = torch.stack([(f @ image[:, i] + f0) @ (g @ image[:, j] + g0) for i in range(12)])
            weights = scores.exp() / scores.exp().sum()
            mixed = sum(weights[i] * (h @ image[:, i] + h0) for i in range(12))
            torch.testing.assert_close(found[:, j], image[:, j] + layer.gamma * (v @ mixed + v0))


def test_it_begins_as_the_cnn_that_it_was_and_can_learn() -> None:
    plain, attentive = Cnn(LABELS, channels=2, width=8), AttentiveCnn(LABELS, channels=2, width=8)
    layers = [layer for layer in attentive.layers if not isinstance(layer, FeatureAttention)]
    nn.ModuleList([attentive.stem, *layers, attentive.head]).load_state_dict(
        nn.ModuleList([plain.stem, *plain.layers, plain.head]).state_dict()
    )
    torch.testing.assert_close(attentive(IMAGES), plain(IMAGES), rtol=0, atol=0)
    attentive(IMAGES).square().sum().backward()
    (layer,) = (layer for layer in attentive.layers if isinstance(layer, FeatureAttention))
    assert layer.gamma.grad.abs() > 0
    assert not layer.W_Q.weight.grad.any(), "the first step moves γ alone"


@torch.no_grad()
def test_its_weights_are_recorded() -> None:
    model = drawn(AttentiveCnn(LABELS, channels=2, width=8))
    with record(model) as maps:
        model(IMAGES)
    (weights,) = maps.values()
    assert weights.shape == (4, 1, 12, 12)  # the second stage has 3 × 4 places
    assert convexity(weights, torch.ones(12, 12, dtype=torch.bool)) < TOLERANCE
