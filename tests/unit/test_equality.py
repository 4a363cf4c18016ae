"""`prove_equal` says that two versions agree, or in which case they do not; it never raises for a difference."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tfbook.course.equality import prove_equal


class Plain(nn.Module):
    """A linear layer under another name, with dropout."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.map, self.drop, self.scale = nn.Linear(3, 2), nn.Dropout(0.5), scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.map(self.drop(x))


def said(capsys: pytest.CaptureFixture[str], *arguments: object, **options: object) -> str:
    prove_equal(*arguments, **options)  # type: ignore[arg-type]
    return capsys.readouterr().out.strip()


def test_modules_share_weights_and_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    """By name, in evaluation mode, and left in the mode that they were in."""
    plain, package = Plain(), nn.Linear(3, 2)
    text = said(capsys, plain, package, (torch.randn(4, 3),), (torch.randn(1, 3),), rename={"map.": ""})
    assert text == "✓ Plain equals PyTorch's Linear: same 2 weight tensors, same outputs on 2 inputs"
    assert torch.equal(plain.map.weight, package.weight)
    assert plain.training
    assert package.training


def test_tied_weights_count_once(capsys: pytest.CaptureFixture[str]) -> None:
    plain, package = (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(2))
    plain[1].weight = plain[0].weight
    text = said(capsys, plain, package, (torch.randn(1, 2),))
    assert text.endswith("same 3 weight tensors, same outputs on 1 input")


def test_what_differs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, Plain(scale=2), nn.Linear(3, 2), (torch.zeros(0, 3),), (torch.ones(4, 3),), rename={"map.": ""})
    assert text.startswith("✗ Plain differs from PyTorch's Linear in case 2: the largest difference is ")


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (torch.tensor([True, False]), torch.tensor([True, True]), "1"),
        (torch.tensor([1, 2]), torch.tensor([4, 2]), "3"),
        (torch.tensor(1.0, dtype=torch.float64), torch.tensor(1.5, dtype=torch.float32), "0.5"),
        (torch.tensor(0.0), torch.tensor(torch.nan), "nan"),
    ],
)
def test_results_of_any_type_are_compared(
    capsys: pytest.CaptureFixture[str], one: Tensor, other: Tensor, difference: str
) -> None:
    """Masks and ids, too, which cannot be subtracted as they are; and functions without arguments."""
    assert said(capsys, lambda: one, lambda: one, ()).startswith("✓")
    assert said(capsys, lambda: one, lambda: other, ()).endswith(f"in case 1: the largest difference is {difference}")


@pytest.mark.parametrize(
    ("one", "other", "mark"),
    [
        ([20.0, 0.001], [20.0, 0.001 + 1.6e-5], "✓"),  # sums of numbers around 20 are rounded so
        ([20.0, 0.001], [20.0, 0.002], "✗"),
        ([0.5, 0.001], [0.5, 0.001 + 1.6e-5], "✗"),
        ([torch.inf, 0.001], [torch.inf, 0.001 + 1.6e-5], "✗"),  # infinity is no excuse
    ],
)
def test_rounding_is_relative_to_the_largest_entry(
    capsys: pytest.CaptureFixture[str], one: list[float], other: list[float], mark: str
) -> None:
    """Logits of a trained model, around 20, differed by 1.6e-5 when sums were taken in another order."""
    assert said(capsys, lambda: torch.tensor(one), lambda: torch.tensor(other), ()).startswith(mark)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_precision_decides_how_much_is_rounding(capsys: pytest.CaptureFixture[str], dtype: torch.dtype) -> None:
    """A product in half precision equals one in float32 to its own precision, and no further."""
    a, b = torch.randn(8, 16), torch.randn(16, 8)
    product = (a.to(dtype) @ b.to(dtype)).float()
    assert said(capsys, lambda: product.to(dtype), lambda: a @ b, ()).startswith("✓")
    assert said(capsys, lambda: product, lambda: a @ b, ()).startswith("✗")
    assert said(capsys, lambda: 1.1 * product.to(dtype), lambda: a @ b, ()).startswith("✗")


def test_large_integers_are_compared_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    ids = torch.tensor([250_000, 3])
    assert said(capsys, lambda: ids, lambda: ids + torch.tensor([1, 0]), ()).startswith("✗")


@pytest.fixture
def tf32() -> Iterator[None]:
    """TF32 in products and in convolutions."""
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("tf32")
def test_tf32_is_off_inside_and_as_before_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    """On a GPU its 11 bits made two proofs print ✗; also restored when a function raises."""

    def settings() -> Tensor:
        return torch.tensor([torch.get_float32_matmul_precision() == "highest", not torch.backends.cudnn.allow_tf32])

    def raising() -> Tensor:
        raise ArithmeticError

    assert said(capsys, settings, lambda: torch.tensor([True, True]), ()).startswith("✓")
    with pytest.raises(ArithmeticError):
        prove_equal(settings, raising, ())
    assert torch.get_float32_matmul_precision() == "medium"
    assert torch.backends.cudnn.allow_tf32


def test_functions_with_several_results_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x + x

    def also(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, 2 * x

    def once(x: Tensor) -> Tensor:
        return x

    def flat(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x.flatten()

    case = (torch.randn(2, 2),)
    assert said(capsys, twice, also, case) == "✓ twice equals tfbook's also: same outputs on 1 input"
    assert said(capsys, twice, once, case).endswith("it returns 2 tensors; expected 1")
    assert said(capsys, twice, flat, case).endswith("the shape is (2, 2); expected (4,)")


def test_only_the_named_outputs_count(capsys: pytest.CaptureFixture[str]) -> None:
    class Result(NamedTuple):
        twice: Tensor
        weights: Tensor | None
        state: Tensor

    def package(x: Tensor) -> Result:
        return Result(2 * x, None, x)

    case = (torch.randn(2, 2),)
    text = said(capsys, lambda x: (x + x, None), package, case, outputs=["twice", "weights"])
    assert text.endswith("same outputs on 1 input")
    assert said(capsys, lambda x: x + x, package, case).endswith("it returns 1 tensors; expected 2")


def test_weights_that_do_not_fit_are_an_error() -> None:
    """A proof about other weights would prove nothing."""
    with pytest.raises(RuntimeError, match="Missing key"):
        prove_equal(Plain(), nn.Linear(3, 2), (torch.ones(1, 3),))


def test_a_case_may_end_with_keywords(capsys: pytest.CaptureFixture[str]) -> None:
    def plain(x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x if mask is None else x.masked_fill(mask, 0)

    def package(x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        return x

    x, mask = torch.randn(3), torch.tensor([True, False, False])
    assert said(capsys, plain, package, (x,), (x, {"mask": ~mask & mask})).endswith("same outputs on 2 inputs")
    assert "differs from tfbook's package in case 2" in said(capsys, plain, package, (x,), (x, {"mask": mask}))


def test_pytorch_s_own_functions_are_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1) @ v

    text = said(capsys, plain, torch.nn.functional.scaled_dot_product_attention, tuple(torch.randn(3, 1, 4, 2)))
    assert text == "✓ plain equals PyTorch's scaled_dot_product_attention: same outputs on 1 input"
