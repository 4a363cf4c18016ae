"""Swin equals torchvision's with the same weights, and its windows equal dense attention under their mask."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import swin_b, swin_s, swin_t
from torchvision.models.swin_transformer import SwinTransformer

from tfbook.attention import MultiHeadAttention, attention_weights, merge_heads, record, split_heads
from tfbook.attention.masks import Dense
from tfbook.attention.windows import same_window
from tfbook.course.cost import parameters
from tfbook.interop.torch_vision import load_torchvision_swin
from tfbook.models.blocks import on_paper
from tfbook.models.swin import (
    SWIN_BASE,
    SWIN_SMALL,
    SWIN_TINY,
    PatchMerging,
    Swin,
    SwinConfig,
    WindowAttention,
    squares_of_four,
)

LITTLE = SwinConfig(d_model=8, depths=(2, 3), heads=(2, 4), window=3, patch=2, channels=3, expansion=2)


def drawn(model: nn.Module, std: float = 0.1) -> nn.Module:
    """Every weight is drawn, those that begin as 0 or 1 as well."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(std * torch.randn_like(weight))
    return model.eval()


# ---- torchvision's -----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_swin_t_s_logits_are_torchvision_s() -> None:
    """At 224 × 224, which windows fill, and at sizes whose grids have to be filled up and merge from odd sides."""
    theirs, ours = drawn(swin_t(), 0.02), Swin(1000, SWIN_TINY).eval()
    load_torchvision_swin(ours, theirs.state_dict())
    for size in ((224, 224), (72, 104), (36, 20)):
        images = torch.randn(1, 3, *size)
        expected = theirs(images)
        assert float(expected.std()) > 0.1
        torch.testing.assert_close(ours(images), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("window", [2, 3, 4])
def test_other_sizes_agree_too(window: int) -> None:
    """With the windows of one side covered and the other not, with an even window and an odd one."""
    theirs = SwinTransformer(
        [2, 2], 8, [2, 3], [2, 4], [window, window], mlp_ratio=2.0, stochastic_depth_prob=0.0, num_classes=5
    )
    config = SwinConfig(d_model=8, depths=(2, 3), heads=(2, 4), window=window, patch=2, expansion=2)
    drawn(theirs, 0.3)
    ours = Swin(5, config).eval()
    load_torchvision_swin(ours, theirs.state_dict())
    for size in ((24, 24), (6, 22), (14, 10), (2, 2)):
        images = torch.randn(2, 3, *size)
        torch.testing.assert_close(ours(images), theirs(images), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("config", "theirs"), [(SWIN_TINY, swin_t), (SWIN_SMALL, swin_s), (SWIN_BASE, swin_b)])
def test_the_published_sizes_have_the_published_parameters(config: SwinConfig, theirs: object) -> None:
    """28, 50 and 88 million."""
    assert parameters(on_paper(lambda: Swin(1000, config))) == parameters(on_paper(theirs))


def test_weights_of_other_sizes_are_refused() -> None:
    with pytest.raises(RuntimeError, match="Missing key"):
        load_torchvision_swin(Swin(5, LITTLE), on_paper(swin_t).state_dict())


# ---- windows -----------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("size", [(6, 9), (3, 6), (3, 3)])
def test_windowed_attention_is_dense_attention_under_its_mask(size: tuple[int, int], shift: int) -> None:
    """With the bias of each pair looked up by rows and columns, in loops."""
    layer = drawn(WindowAttention(8, 2, window=3, shift=shift), 0.5)
    x, attention = torch.randn(2, size[0] * size[1], 8), layer.attention
    places = [(row, column) for row in range(size[0]) for column in range(size[1])]
    bias = torch.zeros(2, len(places), len(places))
    for i, (row, column) in enumerate(places):
        for j, (other, beside) in enumerate(places):
            if abs(row - other) < 3 and abs(column - beside) < 3:
                bias[:, i, j] = layer.table[(row - other + 2) * 5 + column - beside + 2]
    allowed = Dense(same_window(size, (3, 3), tuple(0 if length == 3 else shift for length in size)))
    q, k, v = (split_heads(project(x), 2) for project in (attention.W_Q, attention.W_K, attention.W_V))
    expected = attention.W_O(merge_heads(attention_weights(q, k, allowed, bias) @ v))
    torch.testing.assert_close(layer(x, size=size), expected)


@torch.no_grad()
def test_a_block_sees_its_window_and_the_next_one_beyond() -> None:
    """Which pixels change patch (2, 2) of a grid of 6 × 6: those of its window, then of those that the next touches."""
    model = drawn(Swin(5, SwinConfig(d_model=8, depths=(2,), heads=(2,), window=2, patch=1)), 0.5)
    images = torch.randn(1, 3, 6, 6)
    blocks = model.stages[0].blocks

    def seen(layers: nn.ModuleList) -> int:
        def run(images: Tensor) -> Tensor:
            x = model.patch_norm(model.patches(images))
            for block in layers:
                x = block(x, (6, 6))
            return x[0, 14]

        jacobian = torch.autograd.functional.jacobian(run, images)
        return int((jacobian.abs().sum(dim=(0, 1, 2)) > 0).sum())

    assert seen(blocks[:1]) == 4
    assert seen(blocks) == 16


def test_merging_puts_four_neighbors_side_by_side() -> None:
    x = torch.arange(15.0).view(1, 15, 1)  # three rows of five
    assert squares_of_four(x, (3, 5))[0].tolist() == [
        [0, 5, 1, 6],
        [2, 7, 3, 8],
        [4, 9, 0, 0],
        [10, 0, 11, 0],
        [12, 0, 13, 0],
        [14, 0, 0, 0],
    ]
    merged, size = PatchMerging(4)(torch.randn(2, 15, 4), (3, 5))
    assert (merged.shape, size) == ((2, 6, 8), (2, 3))


def test_each_stage_is_twice_as_wide_and_half_as_high() -> None:
    grids = Swin(5, LITTLE).grids(torch.randn(1, 3, 20, 24))
    assert [tuple(grid.shape) for grid in grids] == [(1, 10, 12, 8), (1, 5, 6, 16)]


@torch.no_grad()
def test_weights_of_every_window_are_recorded() -> None:
    model = Swin(5, LITTLE).eval()
    with record(model) as weights:
        model(torch.randn(1, 3, 12, 12))
    assert [tuple(each.shape) for each in weights.values()] == [(4, 2, 9, 9)] * 2 + [(1, 4, 9, 9)] * 3


# ---- counts and refusals -----------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("size", [(6, 9), (7, 4)])
def test_a_layer_counts_its_parameters_and_operations(size: tuple[int, int]) -> None:
    """Windows that are filled up count in full."""
    layer, time = WindowAttention(8, 2, window=3, shift=1), size[0] * size[1]
    assert layer.parameter_count() == parameters(layer)
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, time, 8), size=size)
    assert counter.get_total_flops() == layer.flops(time, size=size)


@torch.no_grad()
def test_work_grows_as_the_image_does() -> None:
    """Twice as many pixels cost twice as much, where a ViT's attention would cost four times as much."""
    costs = []
    for height in (48, 96):
        with FlopCounterMode(display=False) as counter:
            Swin(5, LITTLE)(torch.randn(1, 3, height, 48))
        costs.append(counter.get_total_flops())
    assert costs[1] == pytest.approx(2 * costs[0], rel=0.001)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depths": (2,)}, r"depths is \(2,\) and heads is \(2, 4\); expected a number of blocks and one of heads"),
        ({"depths": (2, 0)}, r"depths is \(2, 0\)"),
        ({"heads": (3, 4)}, "heads is 3 and d_model is 8"),
        ({"window": 0}, "window is 0; expected 1 or more"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_impossible_sizes_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SwinConfig(**{**vars(LITTLE), **wrong})


def test_a_patch_that_does_not_divide_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="patch is 2 and images are 7 × 8"):
        Swin(5, LITTLE)(torch.randn(1, 3, 7, 8))


def test_attention_is_the_course_s_own() -> None:
    assert sum(isinstance(layer, MultiHeadAttention) for layer in Swin(5, LITTLE).modules()) == 5
