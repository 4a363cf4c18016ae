"""Products whose integers are converted inside: against the plain product with the same weights."""

import copy

import pytest
import torch
from torch import nn

from tfbook.generation.frozen import Frozen
from tfbook.generation.integer_products import IntegerProduct, converts_inside
from tfbook.generation.quantization import QuantizedLinear, quantize, size_in_bytes
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt

FORMATS = [(8, None), (4, 32), (4, 64)]


def quantized(bits: int, group: int | None, *, rows: int = 24, width: int = 64, bias: bool = True) -> QuantizedLinear:
    torch.manual_seed(rows)
    return QuantizedLinear(nn.Linear(width, rows, bias=bias), bits, group)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 16, 24, 65])  # with 4 bits, PyTorch's product takes multiples of 16
@pytest.mark.parametrize(("bits", "group"), FORMATS)
def test_it_is_the_product_with_the_layers_weights(bits: int, group: int | None, rows: int, bias: bool) -> None:
    """Up to bfloat16's 8 bits of precision, in x, in the scales and in the result."""
    layer, x = quantized(bits, group, rows=rows, bias=bias), torch.randn(3, 5, 64)
    found, expected = IntegerProduct(layer)(x), layer(x)
    assert found.shape == (3, 5, rows)
    assert found.dtype == torch.float32
    size = (x.abs() @ layer.weight.abs().T).max()
    torch.testing.assert_close(found, expected, atol=float(size) * 2**-7, rtol=0)
    assert (found - expected).abs().max() > 0


@pytest.mark.parametrize("shape", [(1, 1), (2, 0), (4, 100)])
@pytest.mark.parametrize(("bits", "group"), FORMATS)
def test_it_takes_one_position_none_or_many(bits: int, group: int | None, shape: tuple[int, int]) -> None:
    layer, x = quantized(bits, group), torch.randn(*shape, 64)
    torch.testing.assert_close(IntegerProduct(layer)(x), layer(x), atol=0.05, rtol=0)


def test_it_reads_the_bytes_of_the_integers() -> None:
    """By hand: scales have two bytes with 8 bits, and four with 4, where the product takes a zero point as well."""
    eight, four = (IntegerProduct(quantized(bits, group, rows=32, bias=False)) for bits, group in FORMATS[:2])
    assert size_in_bytes(eight) == 32 * 64 + 2 * 32
    assert size_in_bytes(four) == 32 * 64 // 2 + 4 * 32 * 2


@pytest.mark.parametrize(("bits", "group", "there"), [(8, None, True), (8, 32, False), (4, None, True), (4, 16, False)])
def test_formats_without_such_a_product_are_refused(bits: int, group: int | None, there: bool) -> None:
    """A row of 64 is a group of 64."""
    layer = quantized(bits, group)
    assert converts_inside(layer) == there
    if not there:
        with pytest.raises(ValueError, match=f"layer has {bits} bits in groups of {group} on cpu, 64 wide; expected"):
            IntegerProduct(layer)


@pytest.mark.parametrize(("width", "there"), [(8, False), (16, True), (24, False), (48, True)])
def test_rows_that_the_product_would_read_beyond_are_refused(width: int, there: bool) -> None:
    layer = quantized(8, None, width=width)
    assert converts_inside(layer) == there
    if not there:
        with pytest.raises(ValueError, match=f"{width} wide; expected 8 with"):
            IntegerProduct(layer)


@pytest.mark.parametrize(("bits", "group"), FORMATS)
def test_a_frozen_model_takes_it_in_bfloat16(bits: int, group: int | None) -> None:
    """Its logits are those of the integers in float32, up to bfloat16's precision; the original is not changed."""
    config = Config(layers=2, d_model=64, heads=4, d_ff=128, dropout=0.0)
    few = quantize(Gpt(20, config).eval(), bits, group)
    before, ids = copy.deepcopy(few.state_dict()), torch.randint(20, (2, 9))
    swift, plain = Frozen(few, torch.bfloat16), Frozen(few)
    products = [each for each in swift.modules() if isinstance(each, IntegerProduct)]
    assert len(products) == 4 * 2 + 1
    assert not any(isinstance(each, IntegerProduct) for each in plain.modules())
    with torch.no_grad():
        exact = plain(ids)
        assert 0 < (swift(ids) - exact).std() < 0.02 * exact.std()
    assert all(torch.equal(before[name], tensor) for name, tensor in few.state_dict().items())
