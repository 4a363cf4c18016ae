"""Products with a packed copy of the matrix: against PyTorch's own, and what a frozen model does with them."""

import copy

import pytest
import torch
from torch import nn

from tfbook.generation import packed_products
from tfbook.generation.engine import Engine, Request
from tfbook.generation.frozen import Frozen, Product
from tfbook.generation.packed_products import ROWS, PackedProduct, can_pack
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt

pytestmark = [
    pytest.mark.usefixtures("float32"),
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN"),
]

SHAPES = [(1, 1), (2, 1), (1, ROWS - 1), (1, ROWS), (3, 5), (2, 100), (2, 0), (0, 3)]
DTYPES = [torch.float32, torch.bfloat16]


def drawn(dtype: torch.dtype, *, bias: bool = True) -> PackedProduct:
    weight = torch.randn(24, 40).to(dtype)
    if not can_pack(weight):
        pytest.skip(f"this processor has no products in {dtype}")
    return PackedProduct(weight, torch.randn(24).to(dtype) if bias else None)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_product_with_the_matrix(shape: tuple[int, int], dtype: torch.dtype, bias: bool) -> None:
    product, x = drawn(dtype, bias=bias), torch.randn(*shape, 40)
    offset = 0 if product.bias is None else product.bias.double()
    exact = x.to(dtype).double() @ product.weight.double().T + offset
    found = product(x)
    assert found.dtype == torch.float32
    assert found.shape == (*shape, 24)
    error = 1e-5 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(found.double(), exact, atol=50 * error, rtol=error)


def test_a_few_rows_read_the_packed_copy_and_one_row_does_not() -> None:
    product = drawn(torch.float32)
    product.weight.zero_()
    one, several = (product(torch.ones(1, rows, 40)) for rows in (ROWS - 1, ROWS))
    assert torch.equal(one[0, 0], product.bias)
    assert not torch.equal(several[0, 0], product.bias)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda product: product.to(torch.float32)], ids=["copied", "moved"])
def test_a_copy_has_its_own_packed_matrix(again: object) -> None:
    product, x = drawn(torch.float32), torch.randn(1, 4, 40)
    assert torch.equal(again(product)(x), product(x))  # type: ignore[operator]


@pytest.mark.parametrize("weight", [torch.ones(2, 2, dtype=torch.float16), torch.ones(2, 2, device="meta")], ids=str)
def test_other_matrices_are_refused(weight: torch.Tensor) -> None:
    assert not can_pack(weight)
    with pytest.raises(ValueError, match="expected float32 on a CPU with oneDNN"):
        PackedProduct(weight, None)


def test_without_onednn_a_frozen_model_has_the_plain_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Gpt(11, Config(d_model=16, heads=2, d_ff=32)).eval()
    assert any(isinstance(part, PackedProduct) for part in Frozen(model, packed=True).modules())
    monkeypatch.setattr(packed_products.torch.backends.mkldnn, "is_available", lambda: False)
    kinds = {type(part) for part in Frozen(model, packed=True).modules()}
    assert Product in kinds
    assert PackedProduct not in kinds


def test_the_engine_writes_the_same_texts() -> None:
    model = Gpt(11, Config(d_model=16, heads=2, d_ff=32)).eval()
    with torch.no_grad():
        nn.init.normal_(model.embed.weight)
    texts = []
    for frozen in (Frozen(model), Frozen(model, packed=True)):
        requests = [Request(prompt=[1, 2 + each], max_new_tokens=9, seed=each) for each in range(5)]
        Engine(frozen, blocks=64).run(requests)
        texts.append([request.tokens for request in requests])
    assert texts[0] == texts[1]
