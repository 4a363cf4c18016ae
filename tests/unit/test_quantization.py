"""Integers and scales: error bounds, packing, models and caches in few bits, and their sizes."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from tfbook.attention import Cache
from tfbook.course import invariants
from tfbook.course.invariants import TOLERANCE
from tfbook.generation import sampling
from tfbook.generation.frozen import Frozen
from tfbook.generation.quantization import (
    QuantizedCache,
    QuantizedLinear,
    integers_and_scale,
    packed,
    quantize,
    quantized_cache,
    size_in_bytes,
    unpacked,
)
from tfbook.models.gpt import GPT2, Gpt
from tfbook.models.language_model import LanguageModel

VOCAB = 11
SIZES = replace(GPT2, d_model=16, heads=2, d_ff=32, layers=2, max_length=24, position="rotary", dropout=0.1)
FORMATS = [(8, None), (8, 8), (4, None), (4, 8)]

pytestmark = pytest.mark.usefixtures("float32")


def drawn(**choices: Any) -> LanguageModel:
    """Untrained and lively."""
    torch.manual_seed(0)
    model = Gpt(VOCAB, replace(SIZES, **choices))
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model.eval()


# ---- numbers -----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=4), min_size=1, max_size=3),
    st.sampled_from([4, 8]),
)
def test_no_number_is_off_by_more_than_half_a_step(rows: list[list[float]], bits: int) -> None:
    x = torch.tensor(rows)
    codes, scale = integers_and_scale(x, bits)
    assert int(codes.abs().max()) <= 2 ** (bits - 1) - 1
    assert ((x - codes * scale).abs() <= scale / 2 * (1 + 1e-5)).all()
    for row, (code, step) in zip(rows, zip(codes, scale, strict=True), strict=True):
        if max(map(abs, row)) > 1e-30:
            assert int(code.abs().max()) == 2 ** (bits - 1) - 1  # the largest uses the whole range
            torch.testing.assert_close(float(step), max(map(abs, row)) / (2 ** (bits - 1) - 1))


def test_zeros_stay_zeros() -> None:
    codes, scale = integers_and_scale(torch.zeros(2, 3))
    assert not codes.any()
    assert torch.equal(scale, torch.ones(2, 1))


def test_every_pair_of_numbers_is_packed_and_found_again() -> None:
    numbers = torch.arange(-8, 8, dtype=torch.int8)
    pairs = torch.cartesian_prod(numbers, numbers)
    assert packed(pairs).shape == (256, 1)
    assert len(packed(pairs).unique()) == 256
    assert torch.equal(unpacked(packed(pairs)), pairs)
    row = torch.tensor([[1, 2, 3, 4, 5, 6]], dtype=torch.int8)
    assert torch.equal(unpacked(packed(row)), row)
    with pytest.raises(ValueError, match="x has rows of 3 numbers; expected an even width"):
        packed(row[:, :3])


# ---- a layer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("bits", "group"), FORMATS)
def test_a_layer_multiplies_by_its_weights(bits: int, group: int | None, bias: bool) -> None:
    """Which are each within half a step of the original; the steps of groups are smaller."""
    linear, x = nn.Linear(16, 6, bias=bias), torch.randn(2, 3, 16)
    layer = QuantizedLinear(linear, bits, group)
    expected = x @ layer.weight.T + (linear.bias if bias else 0)
    torch.testing.assert_close(layer(x), expected.detach())
    gap = (linear.weight - layer.weight).unflatten(1, (-1, layer.group)).abs()
    assert (gap <= layer.scale[..., None] / 2 * (1 + 1e-5)).all()
    assert layer.scale.shape == (6, 16 // (group or 16))
    assert layer.codes.shape == (6, 8 if bits == 4 else 16)


@pytest.mark.parametrize(("bits", "group"), FORMATS)
def test_layers_are_joined_row_by_row(bits: int, group: int | None) -> None:
    layers = [QuantizedLinear(nn.Linear(16, rows), bits, group) for rows in (2, 3)]
    whole, x = QuantizedLinear.joined(*layers), torch.randn(1, 4, 16)
    assert whole.out_features == 5
    torch.testing.assert_close(whole(x), torch.cat([layer(x) for layer in layers], dim=-1))
    assert layers[0].out_features == 2
    assert whole.state_dict().keys() == layers[0].state_dict().keys()
    with pytest.raises(ValueError, match="layers have"):
        QuantizedLinear.joined(layers[0], QuantizedLinear(nn.Linear(16, 2), 8, 4))


@pytest.mark.parametrize(
    ("bits", "group", "message"),
    [
        (3, None, "bits is 3; expected 8 or 4"),
        (8, 5, "group is 5; expected one that divides a row of 16 weights"),
        (8, -1, "group is -1"),
    ],
)
def test_formats_that_do_not_exist_are_refused(bits: int, group: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantize(drawn(), bits, group)


# ---- models ------------------------------------------------------------------------------------------------------


def test_more_bits_and_smaller_groups_are_closer() -> None:
    """The error of 4 bits is about 127 / 7 times that of 8, in the weights and in the logits."""
    linear, errors = nn.Linear(128, 64), {}
    for bits, group in FORMATS:
        errors[bits, group] = float((QuantizedLinear(linear, bits, group).weight - linear.weight.detach()).std())
    assert errors[8, 8] < errors[8, None] < errors[4, 8] < errors[4, None]
    assert errors[4, None] / errors[8, None] == pytest.approx(127 / 7, rel=0.05)
    model, ids = drawn(d_model=64, d_ff=128), torch.randint(VOCAB, (4, 20))
    with torch.no_grad():
        exact = model(ids)
        eight, four = (float((quantize(model, bits)(ids) - exact).std() / exact.std()) for bits in (8, 4))
    assert 0.001 < eight < 0.03
    assert 5 < four / eight < 40


@pytest.mark.parametrize(("bits", "group"), FORMATS)
def test_a_quantized_model_is_the_model_with_other_weights(bits: int, group: int | None) -> None:
    """Put back into the model, dequantized weights give the same logits; frozen, too."""
    model, ids = drawn(), torch.randint(VOCAB, (2, 9))
    few = quantize(model, bits, group)
    twin = copy.deepcopy(model)
    twin.unembed.weight = nn.Parameter(twin.unembed.weight.detach().clone())
    for name, layer in few.named_modules():
        if isinstance(layer, QuantizedLinear):
            twin.get_submodule(name).weight.data = layer.weight
    with torch.no_grad():
        torch.testing.assert_close(few(ids), twin(ids), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(Frozen(few)(ids), twin(ids), atol=1e-4, rtol=1e-4)
        assert torch.equal(few.embed.weight, model.embed.weight)
    assert few.flops(7) == model.flops(7)
    assert not any(weight.requires_grad for weight in few.parameters())
    assert all(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize("make", [quantize, lambda model, *how: Frozen(quantize(model, *how))], ids=["plain", "frozen"])
@pytest.mark.parametrize(("bits", "group"), FORMATS)
def test_it_has_the_properties_of_a_decoder(make: Callable[..., Any], bits: int, group: int | None) -> None:
    """Those of `language_model_report` that are not about training."""
    model, ids = make(drawn(), bits, group).eval(), torch.randint(VOCAB, (2, 7))
    assert invariants.future_leak(model, ids, VOCAB) == 0
    assert invariants.cached_gap(model, ids) <= TOLERANCE
    assert invariants.shift_gap(model, ids) <= TOLERANCE
    assert invariants.round_trip_gap(model, lambda m: m(ids)) == 0


def test_sizes_are_the_bytes_of_the_tensors() -> None:
    """By hand: 8 bits are a byte per weight and four per row; 4 bits half a byte, and four per group."""
    layer = nn.Linear(32, 6)
    assert size_in_bytes(layer) == 4 * (32 * 6 + 6)
    assert size_in_bytes(QuantizedLinear(layer)) == 32 * 6 + 4 * 6 + 4 * 6
    assert size_in_bytes(QuantizedLinear(layer, 4, 8)) == 32 * 6 // 2 + 4 * (6 * 4) + 4 * 6
    model = drawn()
    assert size_in_bytes(model) == 4 * model.parameter_count()  # the tied embedding once


# ---- the cache ---------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_cache_in_8_bits_is_within_half_a_step(pieces: list[int]) -> None:
    """Of each head and position; what came earlier does not change."""
    exact, few = Cache(), QuantizedCache()
    for time in pieces:
        new = torch.randn(2, 3, time, 4), torch.randn(2, 3, time, 4)
        for wanted, found in zip(exact.extend(*new), few.extend(*new), strict=True):
            step = wanted.abs().amax(dim=-1, keepdim=True) / 127
            assert ((wanted - found).abs() <= step / 2 * (1 + 1e-5)).all()
    assert few.length == sum(pieces)
    few.select(torch.tensor([1, 1]))
    for wanted, found in zip(exact.seen(), few.seen(), strict=True):
        assert torch.equal(found[0], found[1])
        assert float((wanted[1] - found[1]).abs().max()) < 0.05
    assert few.bytes_per_position() == 2 * 3 * (4 + 4)  # keys and values, 3 heads: 4 integers and a scale of 4 bytes


def test_another_batch_size_is_refused() -> None:
    few = QuantizedCache()
    few.extend(torch.ones(2, 1, 1, 4), torch.ones(2, 1, 1, 4))
    with pytest.raises(ValueError, match="k holds 3 sequences; the cache holds 2"):
        few.extend(torch.ones(3, 1, 1, 4), torch.ones(3, 1, 1, 4))


@pytest.mark.parametrize("make", [lambda model: model, Frozen], ids=["model", "frozen"])
def test_a_model_decodes_with_a_cache_in_8_bits(make: Callable[[LanguageModel], LanguageModel]) -> None:
    """Inside, and only there; pieces of any size give the same, and close to exact logits."""
    model, ids = make(drawn()), torch.randint(VOCAB, (2, 9))
    with torch.no_grad(), quantized_cache(model):
        few = [
            torch.cat([model(piece, cache=cache) for piece in ids.split(size, dim=1)], dim=1)
            for size in (1, 4, 9)
            if (cache := model.new_cache())
        ]
        assert isinstance(cache.blocks[0].past, QuantizedCache)
        exact = model(ids)
    for logits in few:
        torch.testing.assert_close(logits, few[0], atol=TOLERANCE, rtol=TOLERANCE)
    assert 0 < float((few[0] - exact).std() / exact.std()) < 0.05
    assert type(model.new_cache().blocks[0].past) is Cache
    with quantized_cache(model):
        text: Tensor = sampling.generate(model, ids, max_new_tokens=3, filters=[sampling.greedy])
    assert text.shape == (2, 12)
