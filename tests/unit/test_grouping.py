"""Heads become groups by the mean of their keys' and values' matrices; with a group for each head nothing changes."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from tfbook.attention import Causal, GroupedQueryAttention, MultiHeadAttention, softmax
from tfbook.attention.grouped_query import grouped, with_groups
from tfbook.course.invariants import TOLERANCE, language_model_report
from tfbook.models.gpt import GPT2, Gpt, parameter_count

SIZES = replace(GPT2, d_model=16, heads=4, d_ff=24, layers=2, max_length=40, position="rotary", dropout=0.1)

pytestmark = pytest.mark.usefixtures("float32")


@pytest.mark.parametrize("bias", [True, False])
def test_the_groups_are_the_mean_of_their_heads(bias: bool) -> None:
    """By hand: head h of width 4 is rows 4 h … 4 h + 3; heads 0 and 1 are a group, heads 2 and 3 the other."""
    layer = MultiHeadAttention(16, 4, bias=bias, dropout=0.2, implementation=softmax).eval()
    converted = grouped(layer, 2)
    for name in ("W_K", "W_V"):
        before, after = getattr(layer, name), getattr(converted, name)
        for group in (0, 1):
            first, second = (before.weight[4 * head : 4 * head + 4] for head in (2 * group, 2 * group + 1))
            torch.testing.assert_close(after.weight[4 * group : 4 * group + 4], (first + second) / 2)
            if bias:
                first, second = (before.bias[4 * head : 4 * head + 4] for head in (2 * group, 2 * group + 1))
                torch.testing.assert_close(after.bias[4 * group : 4 * group + 4], (first + second) / 2)
    for name in ("W_Q", "W_O"):
        assert torch.equal(getattr(layer, name).weight, getattr(converted, name).weight)
    assert (converted.dropout, converted.implementation, converted.training) == (0.2, softmax, False)
    assert (converted.W_K.bias is not None) == bias


def test_as_many_groups_as_heads_change_nothing() -> None:
    model, ids = Gpt(11, SIZES).eval(), torch.randint(11, (2, 9))
    assert torch.equal(with_groups(model, 4)(ids), model(ids))


@pytest.mark.parametrize("groups", [1, 2])
def test_heads_that_are_alike_lose_nothing(groups: int) -> None:
    """Where all heads of a group have the same keys and values, the mean is each of them."""
    model, ids = Gpt(11, SIZES).eval(), torch.randint(11, (2, 9))
    for block in model.stack.blocks:
        for layer in (block.mixer.branch.W_K, block.mixer.branch.W_V):
            nn.init.normal_(layer.bias)
            for weight in (layer.weight, layer.bias):
                heads = weight.detach().unflatten(0, (groups, -1, 4))
                weight.data = heads[:, :1].expand_as(heads).flatten(0, 2).clone()
    torch.testing.assert_close(with_groups(model, groups)(ids), model(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_converted_model_is_that_of_a_config_with_groups(groups: int) -> None:
    """It is a copy, its weights load into a model that was made with groups, and it has every property."""
    model = Gpt(11, SIZES)
    before = copy.deepcopy(model.state_dict())
    converted = with_groups(model, groups)
    config = replace(SIZES, mixer=partial(GroupedQueryAttention, groups=groups))
    made, ids = Gpt(11, config), torch.randint(11, (2, 7))
    made.load_state_dict(converted.state_dict())
    assert torch.equal(made.eval()(ids), converted.eval()(ids))
    assert converted.parameter_count() == parameter_count(11, config) < parameter_count(11, SIZES)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert {name: gap for name, gap in language_model_report(converted, ids).items() if not gap <= TOLERANCE} == {}


def test_widths_of_keys_and_values_may_differ() -> None:
    layer = MultiHeadAttention(16, 4, d_key=6, d_value=10)
    converted = grouped(layer, 2)
    x, key, value = torch.randn(2, 3, 16), torch.randn(2, 3, 6), torch.randn(2, 3, 10)
    assert converted(x, key, value, mask=Causal()).shape == (2, 3, 16)


def test_groups_that_do_not_divide_the_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="groups is 3 and heads is 4; expected groups to divide heads"):
        with_groups(Gpt(11, SIZES), 3)
