"""Costs: layers take turns, a power is found again, and what is counted agrees with formulas."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tfbook.course import cost
from tfbook.models.vit import Vit, VitConfig


def test_runs_take_turns_and_the_first_round_is_not_counted() -> None:
    order: list[str] = []
    runs = {name: partial(order.append, name) for name in ("a", "b")}
    seconds = cost.in_turns(runs, rounds=2)
    assert order == ["a", "b"] * 3
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}
    assert all(time >= 0 for times in seconds.values() for time in times)


def test_the_exponent_of_a_power_is_found() -> None:
    assert math.isclose(cost.exponent([10, 20, 40], [3 * n**1.5 for n in (10, 20, 40)]), 1.5)


@pytest.mark.parametrize("k", [3, 4])
def test_a_convolution_has_as_many_outputs_as_vectors(k: int) -> None:
    assert cost.convolve(10, 8, k)().shape == (1, 8, 10)
    assert cost.count_flops(cost.convolve(10, 8, k)) == 2 * 10 * 8 * 8 * k


def test_recurrence_and_attention_have_the_operations_of_their_formulas() -> None:
    """Two matrices a step; scores and mixture."""
    assert cost.count_flops(cost.recur(10, 8)) == 10 * 2 * (2 * 8 * 8)
    assert cost.count_flops(cost.attend(10, 8)) == 2 * (2 * 10 * 10 * 8)


@pytest.mark.parametrize("gradient", [False, True])
def test_fused_attention_counts_its_pairs(gradient: bool) -> None:
    """Scores and mixture of each head, though the CPU computes them in one kernel that PyTorch's counter misses."""
    batch, heads, n, d = 2, 3, 10, 8
    q, k, v = (torch.randn(batch, heads, n, d, requires_grad=gradient) for _ in range(3))
    pairs = 2 * (2 * n * n * d) * heads * batch
    assert cost.count_flops(lambda: F.scaled_dot_product_attention(q, k, v)) == pairs


def test_a_vit_counts_as_its_blocks_report() -> None:
    """Patches, blocks and head: 2 operations for each weight of a matrix and place, and the pairs."""
    config = VitConfig(height=8, width=8, patch=2, tokens=0, d_model=16, heads=2, d_ff=24, layers=2)
    model, image = Vit(3, config).eval(), torch.zeros(1, 3, 8, 8)
    expected = 2 * 16 * 12 * 16 + model.stack.flops(16) + 2 * 16 * 3
    with torch.no_grad():
        assert cost.count_flops(lambda: model(image)) == expected


def test_a_tied_matrix_counts_once() -> None:
    layer = nn.Linear(4, 3)
    assert cost.parameters(nn.ModuleList([layer, layer])) == 15


def test_what_is_kept_are_activations_and_no_parameters() -> None:
    """A square keeps its input; a linear layer keeps its input as well, but not its weights."""
    layer, x = nn.Linear(8, 4), torch.randn(5, 8)
    assert cost.kept_bytes(layer, lambda: layer(x).square().sum()) == 4 * (5 * 8 + 5 * 4)


@pytest.mark.parametrize("on_gpu", [0, 5000])
def test_the_peak_counts_both_allocators_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch, on_gpu: int) -> None:
    """Lessons measure tensors of the CPU there, too; counted on the GPU alone, their growth was 0/0."""
    monkeypatch.setattr("tfbook.runtime.device", lambda: torch.device("cuda"))
    monkeypatch.setattr("torch.cuda.reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda: 100)
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda: 100 + on_gpu)
    assert cost.peak_memory(lambda: torch.zeros(1000)) == 4000 + on_gpu
