"""Attention on a grid: windows, neighbors and lines equal dense attention under masks that loops write down."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tfbook.attention import Causal, MultiHeadAttention, record, softmax
from tfbook.attention.efficient import Axial, GridAttention, Neighborhood, Windowed
from tfbook.attention.windows import into_windows, out_of_windows, same_window
from tfbook.course.invariants import TOLERANCE, convexity
from tfbook.models.blocks import Config, Stack, alternate

side = st.integers(1, 7)


def pairs(size: tuple[int, int]) -> list[tuple[int, int]]:
    return [(row, column) for row in range(size[0]) for column in range(size[1])]


def in_one_window(one: tuple[int, int], other: tuple[int, int], window: int, shift: int) -> bool:
    """Windows are drawn from `shift` − `window` on, whole ones only, until all of the grid is in one."""
    for top in range(shift - window, 8, window):
        for left in range(shift - window, 8, window):
            inside = [top <= row < top + window and left <= column < left + window for row, column in (one, other)]
            if all(inside):
                return True
    return False


def by_loops(attention: GridAttention, size: tuple[int, int], heads: int) -> Tensor:
    """Who sees whom, pair by pair."""
    places, rows = pairs(size), []
    for head in range(heads):
        for one in places:
            for other in places:
                if isinstance(attention, Windowed):
                    rows.append(in_one_window(one, other, attention.window, attention.shift))
                elif isinstance(attention, Neighborhood):
                    rows.append(max(abs(one[0] - other[0]), abs(one[1] - other[1])) <= attention.reach)
                else:
                    axis = 0 if head < (heads + 1) // 2 else 1
                    rows.append(one[axis] == other[axis])
    return torch.tensor(rows).view(heads, len(places), len(places))


@st.composite
def cases(draw: st.DrawFn) -> tuple[GridAttention, tuple[int, int]]:
    size, window = (draw(side), draw(side)), draw(st.integers(1, 5))
    windowed = Windowed(size[1], window, draw(st.integers(0, window - 1)))
    return draw(st.sampled_from([windowed, Neighborhood(size[1], draw(st.integers(1, 3))), Axial(size[1])])), size


@given(case=cases(), heads=st.integers(1, 3), rows=st.integers(1, 2))
@settings(max_examples=120)
def test_on_a_grid_it_is_dense_attention_under_the_mask(
    case: tuple[GridAttention, tuple[int, int]], heads: int, rows: int
) -> None:
    """Outputs and gradients; also where windows have to be filled up."""
    attention, size = case
    q, k, v = (torch.randn(rows, heads, size[0] * size[1], 4, dtype=torch.double) for _ in range(3))
    allowed, found = by_loops(attention, size, heads), []
    for compute in (attention, partial(softmax, mask=allowed)):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        output = compute(*inputs)
        found.append([output, *torch.autograd.grad(output.square().sum(), inputs)])
    for ours, dense in zip(*found, strict=True):
        torch.testing.assert_close(ours, dense)
    assert torch.equal(attention.sees(size, heads).expand(heads, -1, -1), allowed)


@given(size=st.tuples(side, side), window=st.tuples(side, side), data=st.data())
@settings(max_examples=40)
def test_windows_come_apart_and_together_again(
    size: tuple[int, int], window: tuple[int, int], data: st.DataObject
) -> None:
    shift = tuple(data.draw(st.integers(0, each - 1)) for each in window)
    grid = torch.randn(2, *size, 3)
    apart = into_windows(grid, window, shift)
    assert apart.shape[2] == window[0] * window[1]
    assert torch.equal(out_of_windows(apart, size, window, shift), grid)


def test_two_layers_with_shifted_windows_reach_farther_than_one() -> None:
    first, second = (same_window((8, 8), (4, 4), (shift, shift)) for shift in (0, 2))
    both = (second.float() @ first.float()) > 0
    assert int(first.sum()) == 64 * 16
    assert int(both[27].sum()) == 64, "the middle sees everything"
    assert not both.all(), "a corner does not"


def test_two_axial_layers_connect_every_pair() -> None:
    row, column = Axial(5).sees((4, 5), 2).float()
    assert bool((row @ column > 0).all())
    assert not bool(((row + column) > 0).all())


@pytest.mark.parametrize(
    "attention", [Windowed(4, 2, 1), Neighborhood(4), Axial(4)], ids=lambda each: type(each).__name__
)
def test_in_a_layer_weights_are_recorded_and_dropped(attention: GridAttention) -> None:
    layer, x = MultiHeadAttention(8, 2, implementation=attention, dropout=0.5), torch.randn(2, 12, 8)
    with record(layer.eval()) as weights:
        expected = layer(x)
    torch.testing.assert_close(layer(x), expected)
    assert convexity(weights[""], by_loops(attention, (3, 4), 2)) < TOLERANCE
    torch.manual_seed(0)
    assert not torch.isclose(layer.train()(x), expected).all()


@pytest.mark.parametrize(("attention", "near"), [(Windowed(8, 4), 16), (Neighborhood(8), 9), (Axial(8), 8)])
def test_the_work_is_that_of_what_is_seen(attention: GridAttention, near: int) -> None:
    """4 d_head for each pair that is computed, on 8 × 8 positions."""
    q = torch.randn(1, 2, 64, 4)
    with FlopCounterMode(display=False) as counter:
        attention(q, q, q)
    assert counter.get_total_flops() == 2 * 64 * near * 4 * 4


def test_it_is_one_word_in_a_block_and_can_be_saved() -> None:
    for attention in (Windowed(4, 2), Neighborhood(4, 2), Axial(4)):
        config = Config(d_model=8, heads=2, mixer=partial(MultiHeadAttention, implementation=attention))
        assert Config.from_dict(config.to_dict()) == config
        assert Stack(config)(torch.randn(1, 12, 8)).shape == (1, 12, 8)
    stack = alternate(Stack(Config(d_model=8, heads=2)), Windowed(4, 2), Windowed(4, 2, 1))
    assert [block.mixer.branch.implementation.shift for block in stack.blocks] == [0, 1]


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused() -> None:
    x = torch.randn(1, 2, 9, 4)
    for call, error, message in (
        (lambda: Windowed(0, 2), ValueError, "columns is 0; expected 1 or more"),
        (lambda: Windowed(4, 0), ValueError, "window is 0; expected 1 or more"),
        (lambda: Windowed(4, 2, 2), ValueError, "shift is 2 and window is 2; expected 0 ≤ shift < window"),
        (lambda: Neighborhood(4, 0), ValueError, "reach is 0; expected 1 or more"),
        (lambda: Axial(4)(x, x, x), ValueError, "there are 9 positions; expected whole rows of 4, and no class token"),
        (lambda: Axial(3)(x[:, :, :3], x, x), ValueError, "Axial got 3 queries and 9 keys; expected as many of both"),
        (lambda: Axial(3)(x, x, x, mask=Causal()), NotImplementedError, "Axial supports no masks; got Causal"),
        (lambda: Axial(3)(x, x, x, bias=torch.zeros(9, 9)), NotImplementedError, "Axial supports no bias"),
    ):
        with pytest.raises(error, match=message):
            call()
