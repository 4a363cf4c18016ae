"""Parts of blocks: grouped queries, SwiGLU, RMS norms, what each counts of itself, and its cache."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from unittest import mock

import pytest
import torch
from drawn_configs import attending, configs_of_every_part
from hypothesis import given, settings, strategies as st
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tfbook.attention import (
    POSITIONS,
    Causal,
    GroupedQueryAttention,
    Lengths,
    MultiHeadAttention,
    Rotary,
    positions,
    record,
    softmax,
)
from tfbook.course.invariants import TOLERANCE, attention_report, language_model_report
from tfbook.generation.frozen import Frozen
from tfbook.models.blocks import Block, Config, PreNorm, Stack
from tfbook.models.feed_forward import FeedForward, SwiGLU
from tfbook.models.gpt import Gpt
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.models.norms import BatchNorm, LayerNorm, RMSNorm
from tfbook.parts import Part

SMALL = Config(d_model=16, heads=4, d_ff=24, dropout=0.1, position=POSITIONS["rotary"])
LLAMA = replace(SMALL, norm=RMSNorm, feed_forward=SwiGLU, mixer=partial(GroupedQueryAttention, groups=2, bias=False))

# ---- each part against another way to compute it -----------------------------------------------------------------


@given(shape=st.lists(st.integers(1, 4), max_size=2), width=st.integers(1, 8), eps=st.sampled_from([1e-6, 0.1]))
@settings(max_examples=30)
def test_rms_norm_is_the_formula(shape: list[int], width: int, eps: float) -> None:
    norm, x = RMSNorm(width, eps=eps).double(), torch.randn(*shape, width, dtype=torch.float64)
    nn.init.normal_(norm.weight)
    torch.testing.assert_close(norm(x), norm.weight * x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt())


def test_batch_norm_is_the_formula() -> None:
    """In training over all vectors of the batch; in eval mode by running means, which no other vector changes."""
    norm, x = BatchNorm(3), 2 + 3 * torch.randn(4, 5, 3)
    rows = x.flatten(0, 1)
    expected = (rows - rows.mean(dim=0)) / (rows.var(dim=0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(norm(x), expected.view_as(x))
    norm.eval()
    torch.testing.assert_close(norm(x)[:1], norm(x[:1]))
    assert norm.parameter_count() == 6 == sum(weight.numel() for weight in norm.parameters())
    assert norm.flops(7) == 0


def test_swiglu_is_the_formula() -> None:
    """(swish(x W) ⊙ x V) W₂ with swish(z) = z σ(z) (Shazeer, 2020, equations 5 and 6)."""
    part, x = SwiGLU(6, 10).double(), torch.randn(2, 3, 6, dtype=torch.float64)
    gate, up = x @ part.gate.weight.T, x @ part.up.weight.T
    torch.testing.assert_close(part(x), (gate * torch.sigmoid(gate) * up) @ part.down.weight.T)


@pytest.mark.parametrize("mask", [None, Causal(), Lengths(torch.tensor([5, 2]))], ids=["none", "causal", "lengths"])
def test_as_many_groups_as_heads_are_multi_head_attention(mask: object) -> None:
    """Exactly: the same numbers drawn, the same output, the same gradients."""
    layers = []
    for make in (MultiHeadAttention, partial(GroupedQueryAttention, groups=4)):
        torch.manual_seed(0)
        layers.append(make(16, 4))
    x, outputs = torch.randn(2, 5, 16), []
    for layer in layers:
        outputs.append(layer(x, mask=mask, position=Rotary(4)))
        outputs[-1].square().sum().backward()
    assert torch.equal(*outputs)
    plain, grouped = (dict(layer.named_parameters()) for layer in layers)
    assert plain.keys() == grouped.keys()
    assert all(torch.equal(weight.grad, grouped[name].grad) for name, weight in plain.items())


@pytest.mark.parametrize("groups", [1, 2])
def test_heads_of_a_group_share_keys_and_values(groups: int) -> None:
    """Which is multi-head attention whose matrices for keys and values repeat those of the group."""
    grouped, plain = GroupedQueryAttention(16, 4, groups=groups), MultiHeadAttention(16, 4)
    state = grouped.state_dict()
    for name in ("W_K.weight", "W_K.bias", "W_V.weight", "W_V.bias"):
        rows = state[name].unflatten(0, (groups, 4))
        state[name] = rows.repeat_interleave(4 // groups, dim=0).flatten(0, 1)
    plain.load_state_dict(state)
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(grouped(x, mask=Causal()), plain(x, mask=Causal()))
    with record(grouped) as weights:
        grouped(x)
    assert weights[""].shape == (2, 4, 5, 5)


def test_a_group_keeps_one_head_of_keys() -> None:
    layer = GroupedQueryAttention(16, 4, groups=1)
    cache = layer.new_cache()
    with torch.no_grad():
        layer(torch.randn(2, 3, 16), cache=cache)
    assert [tuple(kept.shape) for kept in cache.seen()] == [(2, 1, 3, 4)] * 2


@pytest.mark.parametrize("groups", [0, 3])
def test_groups_have_to_divide_the_heads(groups: int) -> None:
    with pytest.raises(ValueError, match=f"groups is {groups} and heads is 4; expected groups to divide heads"):
        GroupedQueryAttention(16, 4, groups=groups)


# ---- invariants --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_queries_have_every_property_of_attention(groups: int) -> None:
    layer = GroupedQueryAttention(16, 4, groups=groups, dropout=0.2)
    report = attention_report(layer, torch.randn(2, 6, 16), torch.tensor([6, 3]))
    assert {name: gap for name, gap in report.items() if gap > TOLERANCE} == {}


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize("kind", [LanguageModel, Gpt, BidirectionalModel])
def test_a_model_of_other_parts_has_every_property(kind: type[LanguageModel]) -> None:
    report = language_model_report(kind(11, LLAMA), torch.randint(11, (2, 9)))
    assert {name: gap for name, gap in report.items() if gap > TOLERANCE} == {}


# ---- counts ------------------------------------------------------------------------------------------------------


def _counted(run: Callable[[], Tensor], model: nn.Module) -> int:
    """PyTorch's count of the operations of all matrix products, attention and rotations written out."""
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):
            layer.implementation = softmax
    plain = mock.patch.object(positions, "packaged", return_value=False)  # a decoder's rotations are products
    with plain, FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    return counter.get_total_flops()


@given(
    config=configs_of_every_part(), cross=st.booleans(), rows=st.integers(1, 2), time=st.integers(1, 6), data=st.data()
)
@settings(max_examples=100)
def test_a_stack_counts_its_parameters_and_operations(
    config: Config, cross: bool, rows: int, time: int, data: st.DataObject
) -> None:
    """Of every part, also where keys and values of what came before are cached."""
    stack, d = Stack(attending(config) if cross else config, cross=cross).eval(), config.d_model
    assert stack.parameter_count() == sum(weight.numel() for weight in stack.parameters())
    past, source = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 4)) if cross else None
    memory = None if source is None else torch.randn(rows, source, d)
    cache = stack.new_cache()
    if past and not cross:
        with torch.no_grad():
            stack(torch.randn(rows, past, d), Causal(), cache=cache)
    before = cache.length
    found = _counted(lambda: stack(torch.randn(rows, time, d), Causal(), memory=memory, cache=cache), stack)
    assert found == rows * stack.flops(time, past=before, source=source)


def test_a_part_that_is_used_several_times_counts_once() -> None:
    """As the block of ALBERT."""
    stack = Stack(SMALL)
    stack.blocks = nn.ModuleList([stack.blocks[0]] * 3)
    assert stack.parameter_count() == sum(weight.numel() for weight in stack.parameters())


# ---- the seam: a mixer that nobody here knows ---------------------------------------------------------------------


class _Recent:
    """The inputs that a convolution still needs."""

    def __init__(self) -> None:
        self.inputs: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        self.inputs = None if self.inputs is None else self.inputs[rows]


class _Convolution(Part):
    """y_t = Σ_i w_i ⊙ x_{t−i} over the last few positions: what a stranger might add."""

    def __init__(self, d_model: int, heads: int, *, dropout: float = 0.0, reach: int = 3):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(d_model, 1, reach) / reach)

    def forward(
        self, x: Float[Tensor, "batch time d_model"], cache: _Recent | None = None, **context: object
    ) -> Float[Tensor, "batch time d_model"]:
        width, reach = x.shape[2], self.kernel.shape[2]
        before = None if cache is None else cache.inputs
        before = x.new_zeros(len(x), reach - 1, width) if before is None else before
        seen = torch.cat([before, x], dim=1)
        if cache is not None:
            cache.inputs = seen[:, seen.shape[1] - reach + 1 :]
        return F.conv1d(seen.mT, self.kernel, groups=width).mT

    def new_cache(self) -> _Recent:
        return _Recent()

    def parameter_count(self) -> int:
        return self.kernel.numel()

    def flops(self, time: int, *, past: int = 0, **context: object) -> int:
        return 2 * time * self.kernel.numel()


def test_a_mixer_of_ones_own_is_one_class() -> None:
    """It trains, generates with its own cache, and is counted; no other file knows of it."""
    config = replace(SMALL, mixer=_Convolution, position=POSITIONS["none"])
    model, ids = Gpt(11, config).eval(), torch.randint(11, (2, 9))
    with torch.no_grad():
        expected, cache = model(ids), model.new_cache()
        pieces = [model(piece, cache=cache) for piece in ids.split([1, 3, 5], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected, atol=1e-5, rtol=1e-5)
    assert cache.length == 9
    assert model.parameter_count() == sum(weight.numel() for weight in model.parameters())
    cache.select(torch.tensor([1, 1]))
    assert cache.blocks[0].past.inputs.shape == (2, 2, 16)


# ---- what does not know a part refuses it -------------------------------------------------------------------------


class _Squared(FeedForward):
    """Computes something else under the same layers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).square()


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"mixer": _Convolution},
            "a mixer is a _Convolution; a frozen model supports MultiHeadAttention or GroupedQueryAttention only",
        ),
        ({"mixer": type("Edited", (GroupedQueryAttention,), {})}, "a mixer is a Edited"),
        ({"feed_forward": SwiGLU}, "a feed-forward network is a SwiGLU; a frozen model supports FeedForward only"),
        ({"feed_forward": _Squared}, "a feed-forward network is a _Squared"),
        (
            {"norm": type("Edited", (LayerNorm,), {})},
            "norm is a Edited; a frozen model supports LayerNorm or RMSNorm only",
        ),
        ({"residual": type("Halved", (PreNorm,), {})}, "a residual branch is a Halved; a frozen model supports"),
    ],
    ids=["mixer", "grouped", "feed-forward", "subclass", "norm", "branch"],
)
def test_a_frozen_model_refuses_a_part_that_it_does_not_know(choices: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Frozen(LanguageModel(11, replace(SMALL, **choices)))


def test_a_frozen_model_refuses_a_norm_of_the_embeddings_and_a_block_of_ones_own() -> None:
    """Once they were left out without a word."""
    model = LanguageModel(11, SMALL)
    model.stack.embed_norm = LayerNorm(16)
    with pytest.raises(ValueError, match="the norm of the embeddings is a LayerNorm; a frozen model supports Identity"):
        Frozen(model)
    model = LanguageModel(11, SMALL)
    model.stack.blocks[1].__class__ = type("Edited", (Block,), {})
    with pytest.raises(ValueError, match="a block is a Edited; a frozen model supports Block only"):
        Frozen(model)


# ---- bugs of old --------------------------------------------------------------------------------------------------


def test_attention_without_biases_is_counted_without_them() -> None:
    """4,656 numbers with width 16 and 2 layers, not 4,784."""
    config = Config(d_model=16, heads=2, d_ff=32, layers=2, position=POSITIONS["none"])
    bare = replace(config, mixer=partial(MultiHeadAttention, bias=False))
    with_biases, without = (Stack(each).parameter_count() for each in (config, bare))
    assert with_biases - without == 2 * 4 * 16


@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (2, 3), (4, 1)], ids=str)
@pytest.mark.parametrize("name", POSITIONS)
def test_cached_cross_attention_counts_its_own_queries(name: str, pieces: tuple[int, ...]) -> None:
    """Not the positions of the memory, which once came before them."""
    layer, position = MultiHeadAttention(16, 4), POSITIONS[name](16, 4, 16)
    query, memory, cache = torch.randn(2, 5, 16), torch.randn(2, 7, 16), layer.new_cache()
    with torch.no_grad():
        expected = layer(query, memory, position=position)
        found = [layer(piece, memory, position=position, cache=cache) for piece in query.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(found, dim=1), expected)


@pytest.mark.parametrize("name", ["ALiBi", "relative"])
def test_more_queries_than_keys_have_no_bias_by_position(name: str) -> None:
    """As they have no mask by position; a bias of another shape would broadcast."""
    position = POSITIONS[name](16, 4, 16)
    with pytest.raises(ValueError, match="there are 5 queries and 3 keys; a bias by position expects queries ≤ keys"):
        position.bias(torch.randn(1, 4, 5, 4), 3)


def test_a_model_that_sees_both_ways_has_no_cache() -> None:
    model, ids = BidirectionalModel(11, SMALL), torch.randint(11, (1, 4))
    with pytest.raises(ValueError, match="a BidirectionalModel is bidirectional and has no cache"):
        model.new_cache()
    with pytest.raises(ValueError, match="cache is given; a bidirectional model has to read the whole text"):
        model(ids, cache=LanguageModel(11, SMALL).new_cache())


@pytest.mark.usefixtures("unchecked")
def test_what_only_looks_like_a_mask_is_refused_at_once() -> None:
    """By one rule: a mask is a `Mask` or a Boolean tensor."""

    class Duck:
        def dense(self, queries: int, keys: int, device: object = None) -> Tensor:
            return torch.ones(queries, keys, dtype=torch.bool)

    with pytest.raises(TypeError, match=r"mask is Duck; expected a Mask such as Causal\(\), or a Boolean tensor"):
        MultiHeadAttention(8, 2)(torch.randn(1, 3, 8), mask=Duck())


def test_rms_norm_adds_1e_5_unless_told_otherwise() -> None:
    """As PyTorch's with the same ε, on vectors so small that it shows."""
    x = 1e-3 * torch.randn(4, 8)
    expected = torch.nn.functional.rms_norm(x, (8,), eps=1e-5)
    torch.testing.assert_close(RMSNorm(8)(x), expected)
