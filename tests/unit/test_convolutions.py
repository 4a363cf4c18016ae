"""Causal convolutions, WaveNet and PixelCNN: PyTorch's own layers, derivatives as measure, pieces like the whole."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tfbook.generation import sampling
from tfbook.models.blocks import Config
from tfbook.models.convolutions import (
    CausalConvolution,
    DilatedConvolution,
    GatedConvolution,
    receptive_field,
)
from tfbook.models.gpt import Gpt
from tfbook.models.pixel_cnn import MaskedConvolution, PixelCnn, PixelCnnConfig, raster_filter
from tfbook.models.wave_net import WaveNet, WaveNetConfig, generate_sound

KINDS = [DilatedConvolution, GatedConvolution]
SMALL = WaveNetConfig(levels=7, d_model=6, d_skip=5, dilations=(1, 2, 4))


def convolved(x: Tensor, layer: nn.Linear, kernel: int, dilation: int) -> Tensor:
    """PyTorch's convolution with the same weights, after zeros."""
    weight = layer.weight.unflatten(1, (kernel, -1)).movedim(1, 2)  # (output, input, kernel)
    return F.conv1d(F.pad(x.mT, ((kernel - 1) * dilation, 0)), weight, layer.bias, dilation=dilation).mT


# ---- receptive fields --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernels", "dilations", "strides", "expected"),
    [
        ([3, 3], None, None, 5),  # 3 × 3 twice is 5 × 5
        ([5], None, None, 5),
        ([3], [2], None, 5),  # one with a gap
        ([3], None, [2], 3),  # a stride alone widens nothing …
        ([3, 3], None, [2, 1], 7),  # … but the layers after it
        ([2] * 10, [2**i for i in range(10)], None, 1024),
        ([2] * 10, None, None, 11),
        ([], None, None, 1),
    ],
)
def test_receptive_fields_that_papers_state(kernels: Any, dilations: Any, strides: Any, expected: int) -> None:
    assert receptive_field(kernels, dilations, strides) == expected


@given(layers=st.lists(st.tuples(*[st.integers(1, 3)] * 3), max_size=4))
@settings(max_examples=60)
def test_the_formula_is_what_derivatives_measure(layers: list[tuple[int, int, int]]) -> None:
    """Inputs between the first and the last with a derivative, in a stack of PyTorch's convolutions."""
    lists = [list(numbers) for numbers in zip(*layers, strict=True)] or [[], [], []]
    x = torch.ones(1, 1, 200, requires_grad=True)
    y: Tensor = x
    for kernel, dilation, stride in layers:
        y = F.conv1d(y, torch.ones(1, 1, kernel), dilation=dilation, stride=stride)
    (gradient,) = torch.autograd.grad(y[0, 0, 1], x)
    places = gradient[0, 0].nonzero().flatten()
    assert int(places[-1] - places[0]) + 1 == receptive_field(*lists)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([2, 2], [1]), "kernels, dilations and strides hold 2, 1, 2 numbers; expected one per layer in each"),
        (([0],), "kernel is 0"),
        (([2], [0]), "dilation is 0"),
        (([2], [1], [0]), "stride is 0"),
    ],
)
def test_impossible_layers_have_no_receptive_field(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        receptive_field(*arguments)


# ---- mixers ------------------------------------------------------------------------------------------------------


@given(kernel=st.integers(1, 4), dilation=st.integers(1, 5), time=st.integers(1, 9))
@settings(max_examples=40)
def test_mixers_are_pytorch_s_convolutions(kernel: int, dilation: int, time: int) -> None:
    x = torch.randn(2, time, 6, dtype=torch.float64)
    plain = DilatedConvolution(6, 1, kernel=kernel, dilation=dilation).double()
    torch.testing.assert_close(plain(x), convolved(x, plain.W, kernel, dilation))
    gated = GatedConvolution(6, 1, kernel=kernel, dilation=dilation).double()
    filtered, gate = (convolved(x, layer, kernel, dilation) for layer in (gated.filter, gated.gate))
    torch.testing.assert_close(gated(x), gated.W_O(filtered.tanh() / (1 + (-gate).exp())))


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_depends_on_kernel_inputs_exactly(kind: type[CausalConvolution]) -> None:
    layer, x = kind(4, 1, kernel=3, dilation=4), torch.randn(1, 12, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0, 9].sum(), x)
    assert gradient[0].abs().sum(dim=1).nonzero().flatten().tolist() == [1, 5, 9]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pieces", [(1,) * 9, (4, 5), (2, 0, 7)], ids=str)
@torch.no_grad()
def test_pieces_give_what_the_whole_gives(kind: type[CausalConvolution], pieces: tuple[int, ...]) -> None:
    """And the cache holds `reach` inputs, however many came."""
    layer, x = kind(4, 1, kernel=3, dilation=2), torch.randn(2, 9, 4)
    cache = layer.new_cache()
    found = [layer(piece, cache=cache) for piece in x.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(found, dim=1), layer(x))
    torch.testing.assert_close(cache.inputs, x[:, -4:])


@torch.no_grad()
def test_rows_of_a_cache_are_selected() -> None:
    layer, x = DilatedConvolution(4, 1, dilation=3), torch.randn(2, 6, 4)
    cache = layer.new_cache()
    cache.select(torch.tensor([0]))  # nothing is there yet
    layer(x[:, :5], cache=cache)
    cache.select(torch.tensor([1, 1, 0]))
    torch.testing.assert_close(layer(x[[1, 1, 0], 5:], cache=cache), layer(x)[[1, 1, 0], 5:])
    with pytest.raises(ValueError, match="x holds 2 sequences; the cache holds 3"):
        layer(x, cache=cache)


@pytest.mark.parametrize("kind", KINDS)
def test_mixers_count_themselves(kind: type[CausalConvolution]) -> None:
    layer, x = kind(6, 1, kernel=3, dilation=2), torch.randn(1, 5, 6)
    assert layer.parameter_count() == sum(weight.numel() for weight in layer.parameters())
    with FlopCounterMode(display=False) as counter:
        layer(x)
    assert counter.get_total_flops() == layer.flops(5)


@pytest.mark.parametrize("sizes", [{"kernel": 0}, {"dilation": 0}, {"dropout": 1.0}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_impossible_convolutions_are_refused(kind: Callable[..., Any], sizes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(sizes))):
        kind(4, 1, **sizes)


# ---- in a stack --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpt_of_dilated_convolutions_sees_as_far_as_the_formula_says(kind: type[CausalConvolution]) -> None:
    config = Config(d_model=8, heads=1, d_ff=8, layers=3, position="none", mixer=kind)
    model = Gpt(9, config).eval()
    for block, dilation in zip(model.stack.blocks, (1, 2, 4), strict=True):
        block.mixer.branch.dilation = dilation
    x = torch.randn(1, 12, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.stack(x)[0, 10].square().sum(), x)
    assert gradient[0].abs().sum(dim=1).nonzero().flatten().tolist() == list(range(3, 11))
    assert receptive_field([2, 2, 2], [1, 2, 4]) == 8


def test_prompts_of_different_lengths_are_refused() -> None:
    """No mask hides the padding from a convolution."""
    model = Gpt(9, Config(d_model=8, heads=1, d_ff=8, mixer=DilatedConvolution)).eval()
    with pytest.raises(ValueError, match="a mixer of the model keeps a RecentInputs; expected attention"):
        sampling.stream(model, torch.ones(2, 4, dtype=torch.long), lengths=torch.tensor([4, 2]), max_new_tokens=2)


# ---- WaveNet -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_wave_net_is_the_paper_s_figure() -> None:
    """Figure 4 with PyTorch's convolutions: residual and skip outputs of each gate, ReLU and 1 × 1 twice at the end."""
    model, ids = WaveNet(SMALL).double(), torch.randint(7, (2, 10))
    x: Tensor = model.embed(ids)
    total = torch.zeros(2, 10, 5, dtype=torch.float64)
    for layer, dilation in zip(model.layers, SMALL.dilations, strict=True):
        parts: Any = layer.convolution
        z = convolved(x, parts.filter, 2, dilation).tanh() * convolved(x, parts.gate, 2, dilation).sigmoid()
        total, x = total + layer.skip(z), x + parts.W_O(z)
    torch.testing.assert_close(model(ids), model.unembed(F.relu(model.mix(F.relu(total)))))


def test_a_wave_net_sees_its_receptive_field_and_nothing_later() -> None:
    model = WaveNet(replace(SMALL, kernel=3)).double()
    x = torch.randn(1, 30, 6, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.from_vectors(x)[0, 20].square().sum(), x)
    seen = gradient[0].abs().sum(dim=1).nonzero().flatten().tolist()
    assert seen == list(range(6, 21))
    assert len(seen) == model.config.receptive_field == 15


@torch.no_grad()
def test_sounds_are_generated_as_if_all_were_read_again() -> None:
    """Drawn from the logits of the whole, at a low temperature the likeliest; the caches keep their size."""
    model, prompt = WaveNet(SMALL).eval(), torch.randint(7, (2, 4))
    for temperature in (1.0, 1e-4):
        found = generate_sound(model, prompt, 12, temperature=temperature, generator=torch.Generator().manual_seed(3))
        ids, generator = prompt, torch.Generator().manual_seed(3)
        for _ in range(12):
            p = (model(ids)[:, -1] / temperature).softmax(dim=-1)
            ids = torch.cat([ids, torch.multinomial(p, 1, generator=generator)], dim=1)
        assert torch.equal(found, ids[:, 4:])
    cache = model.new_cache()
    model(ids, cache=cache)
    assert [tuple(kept.inputs.shape) for kept in cache] == [(2, 1, 6), (2, 2, 6), (2, 4, 6)]
    assert generate_sound(model, prompt, 0).shape == (2, 0)
    with pytest.raises(ValueError, match="temperature is 0; expected more than 0"):
        generate_sound(model, prompt, 1, temperature=0)


def test_a_wave_net_refuses_what_is_no_level_and_what_has_no_layer() -> None:
    with pytest.raises(ValueError, match="ids holds ids from 7 to 7; expected 0 to 6"):
        WaveNet(SMALL)(torch.tensor([[7]]))
    for choices, message in (
        ({"dilations": ()}, "dilations is empty"),
        ({"dilations": (1, 0)}, "dilation is 0"),
        ({"d_skip": 0}, "d_skip is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            WaveNetConfig(**choices)


def test_configs_come_back_from_json() -> None:
    for config in (SMALL, PixelCnnConfig(levels=4)):
        assert type(config).from_dict(config.to_dict()) == config


# ---- PixelCNN ----------------------------------------------------------------------------------------------------


def test_masks_a_and_b_by_hand() -> None:
    assert raster_filter(3, center=False).int().tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert raster_filter(3, center=True).int().tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    with pytest.raises(ValueError, match="kernel is 2; expected an odd number"):
        raster_filter(2, center=True)


@pytest.mark.parametrize("center", [False, True])
def test_a_masked_convolution_is_a_convolution_of_what_came_before(center: bool) -> None:
    layer, x = MaskedConvolution(2, 3, 3, center=center), torch.randn(1, 2, 4, 5)
    weight, rows = layer.weight.detach().clone(), F.pad(x, (1, 1, 1, 1))
    weight[:, :, 2] = 0
    weight[:, :, 1, 1 if not center else 2 :] = 0
    expected = torch.einsum("ocij,bcxyij->boxy", weight, rows.unfold(2, 3, 1).unfold(3, 3, 1))
    torch.testing.assert_close(layer(x), expected + layer.bias[:, None, None])


def test_a_pixel_depends_on_earlier_pixels_but_for_the_blind_spot() -> None:
    """Everything in raster order before it, but for the pixels up right of the diagonal, which no layer reaches."""
    config = PixelCnnConfig(d_model=16, layers=6, first_kernel=3)
    model = PixelCnn(config).double()
    x = torch.randn(1, 7, 9, 16, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.from_vectors(x)[0, 5, 4].square().sum(), x)
    seen = gradient[0].abs().sum(dim=-1) > 0
    row, column = torch.meshgrid(torch.arange(7), torch.arange(9), indexing="ij")
    earlier = (row < 5) | ((row == 5) & (column < 4))
    reached = column - 4 <= 5 - row
    assert torch.equal(seen, earlier & reached)
    assert int((earlier & ~seen).sum()) == 3 + 2 + 1  # rows 4, 3 and 2: right of the diagonal up to the edge


def test_impossible_pixel_cnns_are_refused() -> None:
    for choices in ({"kernel": 4}, {"first_kernel": 2}, {"layers": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(choices))} is"):
            PixelCnnConfig(**choices)
