"""ViT, DeiT and rollout, each against numbers worked out another way.

That the models compute what torchvision's and Hugging Face's do is tested in `test_vit_weights.py`.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tfbook.attention import POSITIONS, GroupedQueryAttention, MultiHeadAttention, record, softmax
from tfbook.attention.efficient import Windowed
from tfbook.models.experts import MixtureOfExperts
from tfbook.models.patch_mixers import DepthwiseConvolution, LayerScaled
from tfbook.models.vit import (
    VIT_BASE,
    VIT_HUGE,
    VIT_LARGE,
    VIT_SMALL,
    VIT_TINY,
    Deit,
    Heads,
    LearnedGrid,
    PatchEmbedding,
    Vit,
    VitConfig,
    cost,
    interpolated,
    patchify,
    rollout,
    unpatchify,
)
from tfbook.training import Loss, hard_distillation, soft_distillation

LABELS = 3
LITTLE = VitConfig(d_model=8, heads=2, d_ff=12, layers=2, height=4, width=6, channels=2, patch=2)
IMAGES = torch.rand(5, 2, 4, 6, generator=torch.Generator().manual_seed(0))


def drawn(model: nn.Module) -> nn.Module:
    """With weights large enough that what a model says depends on what it sees."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4)
    return model


# ---- patches -----------------------------------------------------------------------------------------------------


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Images and a patch that fills them."""
    patch, rows, columns = (draw(st.integers(1, 4)) for _ in range(3))
    return torch.rand(draw(st.integers(0, 3)), draw(st.integers(1, 3)), rows * patch, columns * patch), patch


@given(cuts())
def test_patches_are_squares_row_by_row(cut: tuple[Tensor, int]) -> None:
    images, p = cut
    patches, (_, _, height, width) = patchify(images, p), images.shape
    corners = [(y, x) for y in range(0, height, p) for x in range(0, width, p)]
    assert patches.shape[1] == len(corners)
    for place, (y, x) in enumerate(corners):
        assert torch.equal(patches[:, place], images[:, :, y : y + p, x : x + p].flatten(1))


@given(cuts())
def test_there_and_back_is_nowhere(cut: tuple[Tensor, int]) -> None:
    images, p = cut
    grid = images.shape[2] // p, images.shape[3] // p
    patches = patchify(images, p)
    assert torch.equal(unpatchify(patches, p, grid), images)
    assert torch.equal(patchify(unpatchify(patches, p, grid), p), patches)


@given(cuts(), st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=30)
def test_linear_layer_and_convolution_are_one(cut: tuple[Tensor, int], d_model: int, seed: int) -> None:
    """As ours computes it, by its own convolution, and by PyTorch's layers with its weights, which go both ways."""
    torch.manual_seed(seed)
    images, p = cut
    ours = PatchEmbedding(images.shape[1], p, d_model)
    linear = nn.Linear(ours.weight[0].numel(), d_model)
    linear.load_state_dict({"weight": ours.weight.flatten(1), "bias": ours.bias})
    convolution = nn.Conv2d(images.shape[1], d_model, p, p)
    convolution.load_state_dict(ours.state_dict())
    found = ours(images)
    torch.testing.assert_close(linear(patchify(images, p)), found)
    torch.testing.assert_close(convolution(images).flatten(2).mT, found)
    ours.load_state_dict({"weight": linear.weight.unflatten(1, ours.weight.shape[1:]), "bias": linear.bias})
    assert torch.equal(ours(images), found)


def _convolved(embedding: PatchEmbedding, images: Tensor) -> Tensor:
    """By PyTorch's convolution, as the paper's code and torchvision have it."""
    return nn.Conv2d.forward(embedding, images).flatten(2).mT


def test_their_gradients_are_one_as_well() -> None:
    embedding, image = PatchEmbedding(2, 2, 8), IMAGES.clone().requires_grad_()
    inputs = (image, embedding.weight, embedding.bias)
    one, other = (
        torch.autograd.grad(embed(image).square().sum(), inputs)
        for embed in (embedding, lambda image: _convolved(embedding, image))
    )
    for own, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(own, theirs)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: patchify(IMAGES, 4), "patch is 4 and images are 4 × 6; expected patch to divide both sides"),
        (lambda: patchify(IMAGES, 0), "patch is 0 and images are 4 × 6"),
        (
            lambda: unpatchify(torch.ones(1, 6, 8), 2, (2, 4)),
            r"patches has shape \(1, 6, 8\); expected 2 · 4 patches of a multiple of 2² numbers",
        ),
        (lambda: unpatchify(torch.ones(1, 6, 6), 2, (2, 3)), r"patches has shape \(1, 6, 6\)"),
        (lambda: PatchEmbedding(2, 3, 8)(IMAGES), "patch is 3 and images are 4 × 6"),
    ],
)
def test_what_cannot_be_cut_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# ---- positions ---------------------------------------------------------------------------------------------------


def cubic(distance: float) -> float:
    """The convolution kernel that goes through its points, with slope −0.75 at 1 (Keys, 1981, eq. 4)."""
    x, a = abs(distance), -0.75
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


def surface(old: int, new: int, *, corners: bool) -> Tensor:
    """new × old: how much each old place counts in each new one, along one side; the last place goes on beyond it."""
    weights = torch.zeros(new, old, dtype=torch.double)
    for place in range(new):
        exact = place * (old - 1) / max(new - 1, 1) if corners else (place + 0.5) * old / new - 0.5
        for neighbour in range(math.floor(exact) - 1, math.floor(exact) + 3):
            weights[place, min(max(neighbour, 0), old - 1)] += cubic(exact - neighbour)
    return weights


side = st.integers(1, 6)


@given(old=st.tuples(side, side), new=st.tuples(side, side), tokens=st.integers(0, 2), corners=st.booleans())
def test_positions_are_interpolated_by_the_cubic_kernel(
    old: tuple[int, int], new: tuple[int, int], tokens: int, corners: bool
) -> None:
    """Along rows, then along columns; those of tokens stay."""
    table = torch.randn(1, tokens + old[0] * old[1], 3, dtype=torch.double)
    found = interpolated(table, old, new, corners=corners)
    rows, columns = (surface(*config, corners=corners) for config in zip(old, new, strict=True))
    expected = torch.einsum("ay,bx,yxd->abd", rows, columns, table[0, tokens:].unflatten(0, old)).flatten(0, 1)
    torch.testing.assert_close(found[0, tokens:], expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(found[:, :tokens], table[:, :tokens])


@given(grid=st.tuples(side, side), tokens=st.integers(0, 2), corners=st.booleans())
def test_at_its_own_size_a_table_is_what_it_was(grid: tuple[int, int], tokens: int, corners: bool) -> None:
    table = torch.randn(1, tokens + grid[0] * grid[1], 4)
    assert torch.equal(interpolated(table, grid, grid, corners=corners), table)


def test_a_grid_adds_its_vectors_in_order_and_no_part_of_them() -> None:
    position = LearnedGrid((2, 3), 8, tokens=1)
    x = torch.randn(2, 7, 8)
    assert torch.equal(position.add(x) - x, (x + position.embedding) - x)
    assert float(position.embedding.detach().std()) == pytest.approx(0.02, rel=0.4)
    for start, part in ((0, x[:, :6]), (1, x[:, :6]), (1, x)):
        message = f"x holds {part.shape[1]} positions from {start} on; expected 7 positions from 0 on, 2 × 3 of them"
        with pytest.raises(ValueError, match=message):
            position.add(part, start)


# ---- ViT ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (VIT_TINY, 5_717_416),
        (VIT_SMALL, 22_050_664),
        (VIT_BASE, 86_567_656),
        (VIT_LARGE, 304_326_632),
        (VIT_HUGE, 632_045_800),
    ],
    ids=["tiny", "small", "base", "large", "huge"],
)
def test_the_published_sizes_have_the_published_parameters(config: VitConfig, count: int) -> None:
    """5, 22 and 86 million in DeiT's table 1; 86, 307 and 632 million in ViT's, which rounds in its own way."""
    with torch.device("meta"):
        assert sum(weight.numel() for weight in Vit(1000, config).parameters()) == count


def test_the_first_token_tells_the_label_or_else_the_mean_of_the_patches() -> None:
    for tokens, read in ((1, lambda x: x[:, 0]), (3, lambda x: x[:, 0]), (0, lambda x: x.mean(dim=1))):
        model = drawn(Vit(LABELS, replace(LITTLE, tokens=tokens)))
        x = model.representations(IMAGES)
        assert x.shape == (5, tokens + 6, 8)
        torch.testing.assert_close(model(IMAGES), F.linear(read(x), model.head.weight, model.head.bias))


def test_tokens_stand_before_the_patches_under_the_positions_of_the_grid() -> None:
    """What enters the first block, by hand."""
    model, seen = drawn(Vit(LABELS, replace(LITTLE, tokens=2))), []
    model.stack.blocks[0].register_forward_pre_hook(lambda block, inputs: seen.append(inputs[0]))
    model(IMAGES)
    first, second = (token.expand(5, 1, 8) for token in model.tokens)
    patches = _convolved(model.patches, IMAGES)
    torch.testing.assert_close(seen[0], torch.cat([first, second, patches], dim=1) + model.stack.position.embedding)


@pytest.mark.parametrize("tokens", [0, 1])
@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal", "rotary"])
def test_the_order_of_patches_counts_where_positions_are_known(position: str, tokens: int) -> None:
    model = drawn(Vit(LABELS, replace(LITTLE, position=POSITIONS[position], tokens=tokens)))
    patches = patchify(IMAGES, 2)
    shuffled = unpatchify(patches[:, [3, 0, 5, 1, 4, 2]], 2, LITTLE.grid)
    assert torch.allclose(model(shuffled), model(IMAGES), atol=1e-5) == (position == "none")


@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal", "rotary", "ALiBi", "relative"])
def test_at_another_size_a_copy_reads_other_images(position: str) -> None:
    model = drawn(Vit(LABELS, replace(LITTLE, position=POSITIONS[position]))).eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    larger = model.at(8, 10)
    assert (larger.config.height, larger.config.width, larger.training) == (8, 10, False)
    images = torch.rand(2, 2, 8, 10)
    larger(images).sum().backward()
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert torch.equal(model.at(4, 6)(IMAGES), model(IMAGES))
    if position == "learned":
        table = larger.stack.position.embedding
        assert table.grad is not None
        assert torch.equal(table, interpolated(model.stack.position.embedding, (2, 3), (4, 5)))
        with_corners = model.at(8, 10, corners=True).stack.position.embedding
        assert torch.equal(with_corners, interpolated(model.stack.position.embedding, (2, 3), (4, 5), corners=True))


@pytest.mark.parametrize(
    "mixer",
    [
        partial(DepthwiseConvolution, columns=4),
        partial(LayerScaled, part=partial(DepthwiseConvolution, columns=4)),
        partial(MultiHeadAttention, implementation=Windowed(4, 2)),
    ],
)
def test_a_mixer_for_another_grid_is_refused(mixer: partial) -> None:
    """Patches of 2 × 2 on 4 × 6 pixels are a grid of three columns, which 12 positions in rows of four would hide."""
    with pytest.raises(ValueError, match="mixer is made for grids of 4 columns; the patches have 3"):
        replace(LITTLE, height=8, tokens=0, position="none", mixer=mixer)
    assert replace(LITTLE, height=8, width=8, tokens=0, position="none", mixer=mixer).grid == (4, 4)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shape", [(5, 2, 6, 4), (5, 3, 4, 6), (5, 4, 6), (5, 2, 8, 12)])
def test_images_of_another_size_are_refused(shape: tuple[int, ...]) -> None:
    message = r"expected \(batch, 2, 4, 6\); `at\(height, width\)` makes a model for another size"
    with pytest.raises(ValueError, match=message):
        Vit(LABELS, LITTLE)(torch.rand(shape))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"patch": 3}, "patch is 3 and images are 4 × 6; expected patch to divide both sides"),
        ({"height": 0}, "patch is 2 and images are 0 × 6"),
        ({"channels": 0}, "channels is 0 and tokens is 1; expected channels ≥ 1 and tokens ≥ 0"),
        ({"tokens": -1}, "channels is 2 and tokens is -1"),
        ({"heads": 3}, "heads is 3 and d_model is 8"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(LITTLE, **wrong)


# ---- DeiT --------------------------------------------------------------------------------------------------------

SAID = Heads(torch.tensor([[2.0, 0.0, 1.0], [0.5, 0.5, 3.0]]), torch.tensor([[0.0, 1.0, -1.0], [1.0, 2.0, 0.0]]))
RIGHT, TEACHER = torch.tensor([0, 1]), torch.tensor([[0.0, 3.0, 1.0], [1.0, 0.0, -2.0]])


def logp(logits: list[float], label: int) -> float:
    return logits[label] - math.log(sum(map(math.exp, logits)))


def test_two_tokens_are_read_by_two_heads() -> None:
    model = drawn(Deit(LABELS, LITTLE))
    x, (label, teacher) = model.representations(IMAGES), model.heads(IMAGES)
    assert x.shape == (5, 2 + 6, 8)
    torch.testing.assert_close(label, model.head(x[:, 0]))
    torch.testing.assert_close(teacher, model.imitation(x[:, 1]))
    torch.testing.assert_close(model(IMAGES), (label + teacher) / 2)
    assert isinstance(model.at(8, 8), Deit)


def test_the_hard_loss_is_the_one_worked_out_by_hand() -> None:
    """The teacher's first guesses are 1 and 0."""
    expected = -sum(
        logp(own, right) + logp(other, guess)
        for own, right, other, guess in zip(SAID.label.tolist(), (0, 1), SAID.teacher.tolist(), (1, 0), strict=True)
    )
    assert float(hard_distillation(SAID, RIGHT, TEACHER).mean) == pytest.approx(expected / 2 / 2)


@pytest.mark.parametrize(("temperature", "share"), [(3.0, 0.1), (1.0, 1.0), (2.0, 0.0)])
def test_the_soft_loss_is_the_one_worked_out_by_hand(temperature: float, share: float) -> None:
    own = -sum(logp(row, right) for row, right in zip(SAID.label.tolist(), (0, 1), strict=True)) / 2
    divergence = 0.0
    for student, teacher in zip((SAID.teacher / temperature).tolist(), (TEACHER / temperature).tolist(), strict=True):
        divergence += sum(
            math.exp(logp(teacher, label)) * (logp(teacher, label) - logp(student, label)) for label in range(3)
        )
    expected = (1 - share) * own + share * temperature**2 * divergence / 2
    found = soft_distillation(SAID, RIGHT, TEACHER, temperature=temperature, share=share).mean
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", [hard_distillation, soft_distillation])
def test_the_teacher_learns_nothing_and_both_heads_do(loss: Callable[..., Loss]) -> None:
    said, teacher = Heads(*(logits.clone().requires_grad_() for logits in SAID)), TEACHER.clone().requires_grad_()
    loss(said, RIGHT, teacher).mean.backward()
    assert teacher.grad is None
    assert all(bool(logits.grad.any(dim=1).all()) for logits in said)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"share": 1.5}, "share is 1.5; expected 0 to 1"), ({"temperature": 0.0}, "temperature is 0.0")],
)
def test_impossible_losses_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        soft_distillation(SAID, RIGHT, TEACHER, **options)


# ---- rollout and cost --------------------------------------------------------------------------------------------


def test_rollout_is_the_one_worked_out_by_hand() -> None:
    """One image, two heads, two positions: the heads' means are [[½, ½], [0, 1]] and [[1, 0], [½, ½]]."""
    first = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]])
    second = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]])
    torch.testing.assert_close(rollout([first]), torch.tensor([[[0.75, 0.25], [0.0, 1.0]]]))
    torch.testing.assert_close(rollout([first, second]), torch.tensor([[[0.75, 0.25], [0.1875, 0.8125]]]))
    torch.testing.assert_close(rollout([second, first]), torch.tensor([[[0.8125, 0.1875], [0.25, 0.75]]]))


@torch.no_grad()
def test_rollout_takes_what_was_recorded() -> None:
    """Rows stay convex combinations; each layer's matrix is multiplied from the left, in the order of the layers."""
    model = drawn(Vit(LABELS, replace(LITTLE, layers=3)))
    with record(model) as weights:
        model(IMAGES)
    assert list(weights) == [f"stack.blocks.{layer}.mixer.branch" for layer in range(3)]
    found = rollout(weights.values())
    expected = torch.eye(7)
    for layer in weights.values():
        expected = (layer.mean(dim=1) + torch.eye(7)) / 2 @ expected
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(5, 7))
    assert float(found.min()) >= 0


def test_rollout_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="weights is empty; expected those of one layer or more"):
        rollout([])


@given(
    heads=st.integers(1, 3),
    grid=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    layers=st.integers(1, 3),
    tokens=st.integers(0, 2),
)
@settings(max_examples=20)
@torch.no_grad()
def test_the_formula_counts_the_operations(heads: int, grid: tuple[int, int], layers: int, tokens: int) -> None:
    """Exactly as PyTorch counts those of the blocks' matrix products, and the numbers in the recorded weights."""
    shape = {"d_model": 4 * heads, "heads": heads, "layers": layers, "tokens": tokens}
    config = replace(LITTLE, **shape, height=2 * grid[0], width=2 * grid[1])
    model, found = Vit(LABELS, config), cost(config)
    for block in model.stack.blocks:
        block.mixer.branch.implementation = softmax
    images = torch.rand(1, 2, config.height, config.width)
    x = model.representations(images)
    assert found.time == x.shape[1]
    with FlopCounterMode(display=False) as counter:
        model.stack(x)
    assert counter.get_total_flops() == found.attention + found.matrices
    with record(model) as weights:
        model(images)
    assert sum(layer.numel() for layer in weights.values()) == found.weights


@pytest.mark.parametrize(
    "parts",
    [
        {"feed_forward": "SwiGLU"},
        {"mixer": partial(GroupedQueryAttention, groups=1)},
        {"feed_forward": partial(MixtureOfExperts, experts=3, k=2)},
        {"position": "relative"},
    ],
    ids=lambda parts: next(iter(parts)),
)
@torch.no_grad()
def test_other_parts_are_asked_what_they_cost(parts: dict[str, Any]) -> None:
    """Counted by PyTorch at two sizes, whose squares and numbers of positions the two terms go with."""
    config = replace(LITTLE, d_model=8, heads=2, tokens=0, **parts)
    for size in (2, 4):
        found = cost(replace(config, height=size, width=size))
        model = Vit(LABELS, replace(config, height=size, width=size))
        for block in model.stack.blocks:
            block.mixer.branch.implementation = softmax
        with FlopCounterMode(display=False) as counter:
            model.stack(torch.randn(1, found.time, 8))
        assert counter.get_total_flops() == found.attention + found.matrices
        assert found.attention == 4 * config.layers * found.time**2 * 8


def test_a_pixel_a_word_costs_65_thousand_times_the_weights() -> None:
    """224 × 224 pixels against 14 × 14 patches: 256 times as many positions, 256² times as many pairs."""
    pixels, patches = (cost(replace(VIT_BASE, patch=patch, tokens=0)) for patch in (1, 16))
    assert (pixels.time, patches.time) == (50_176, 196)
    assert pixels.weights == 256**2 * patches.weights
    assert pixels.attention == 256**2 * patches.attention
    assert pixels.matrices == 256 * patches.matrices
