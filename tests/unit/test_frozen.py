"""A frozen model says what the model says, for every position encoding, all at once and a token at a time."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from drawn_configs import ACTIVATIONS, configs
from hypothesis import given, settings, strategies as st
from torch import nn

from tfbook import runtime
from tfbook.attention import POSITIONS, Causal, GroupedQueryAttention, fused, softmax
from tfbook.attention.efficient.banded import Banded
from tfbook.course import invariants
from tfbook.generation import frozen, sampling
from tfbook.generation.frozen import Frozen, FrozenBlock, Product
from tfbook.models.blocks import Block, Config, PostNorm
from tfbook.models.gpt import GPT2, Gpt
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.models.norms import LayerNorm

VOCAB = 11
SIZES = replace(GPT2, d_model=16, heads=2, d_ff=24, layers=2, max_length=24, dropout=0.3)
SMALL_SIZES = configs(max_length=st.just(12), feed_forward=st.sampled_from(ACTIVATIONS))

pytestmark = pytest.mark.usefixtures("float32")


def drawn(kind: type[LanguageModel] = Gpt, **choices: object) -> LanguageModel:
    """Untrained and lively: weights of the size that trained ones have."""
    model = kind(VOCAB, replace(SIZES, **choices))
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model.eval()


# ---- the same function -------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    config=SMALL_SIZES,
    batch=st.integers(1, 3),
    time=st.integers(1, 12),
    kind=st.sampled_from([LanguageModel, Gpt]),
    packed=st.booleans(),
)
def test_a_frozen_model_has_the_logits_of_the_model(
    config: Config, batch: int, time: int, kind: type, packed: bool
) -> None:
    model, ids = kind(VOCAB, config).eval(), torch.randint(VOCAB, (batch, time))
    with torch.no_grad():
        torch.testing.assert_close(Frozen(model, packed=packed)(ids), model(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("pieces", [(1,) * 9, (4, 1, 1, 3), (9,)], ids=str)
def test_a_piece_at_a_time_equals_all_at_once(position: str, pieces: tuple[int, ...], packed: bool) -> None:
    model, ids = drawn(position=POSITIONS[position]), torch.randint(VOCAB, (2, 9))
    swift = Frozen(model, packed=packed)
    cache = swift.new_cache()
    with torch.no_grad():
        said = torch.cat([swift(piece, cache=cache) for piece in ids.split(pieces, dim=1)], dim=1)
        torch.testing.assert_close(said, model(ids), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("filters", [[sampling.greedy], [sampling.top_k(3)], []], ids=["greedy", "top-k", "all"])
def test_it_says_the_same_text(filters: list[sampling.Filter]) -> None:
    model, prompt = drawn(), torch.randint(VOCAB, (3, 4))
    texts = [
        sampling.generate(
            speaker, prompt, max_new_tokens=20, filters=filters, stop=[3], generator=torch.Generator().manual_seed(1)
        )
        for speaker in (model, Frozen(model))
    ]
    assert torch.equal(*texts)


@pytest.mark.parametrize("implementation", [softmax, fused])
def test_either_exact_kernel_is_frozen(implementation: Callable) -> None:
    model, ids = drawn(), torch.randint(VOCAB, (2, 6))
    for block in model.stack.blocks:
        block.mixer.branch.implementation = implementation
    with torch.no_grad():
        torch.testing.assert_close(Frozen(model)(ids), model(ids), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("position", POSITIONS)
def test_heads_that_share_keys_and_values_are_frozen(position: str, groups: int) -> None:
    mixer = partial(GroupedQueryAttention, groups=groups)
    model, ids = drawn(position=position, heads=4, mixer=mixer), torch.randint(VOCAB, (2, 9))
    swift = Frozen(model)
    cache = swift.new_cache()
    with torch.no_grad():
        said = torch.cat([swift(piece, cache=cache) for piece in ids.split((5, 1, 1, 2), dim=1)], dim=1)
        torch.testing.assert_close(said, model(ids), atol=1e-4, rtol=1e-4)
    assert cache.blocks[0].past.seen()[0].shape == (2, groups, 9, 4)


def test_a_step_does_not_copy_the_keys_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies for each head would cost more than the smaller cache saves."""
    swift = Frozen(drawn(heads=4, position=POSITIONS["rotary"], mixer=partial(GroupedQueryAttention, groups=2)))
    cache, ids = swift.new_cache(), torch.randint(VOCAB, (2, 6))
    copied: list[int] = []
    plain = torch.Tensor.repeat_interleave
    monkeypatch.setattr(torch.Tensor, "repeat_interleave", lambda x, *n, **how: copied.append(1) or plain(x, *n, **how))
    with torch.no_grad():
        swift(ids[:, :5], cache=cache)
        assert copied
        copied.clear()
        swift(ids[:, 5:], cache=cache)
    assert not copied


def test_no_word_sees_a_later_one() -> None:
    assert invariants.future_leak(Frozen(drawn()), torch.randint(VOCAB, (2, 7)), VOCAB) == 0


# ---- fewer bits --------------------------------------------------------------------------------------------------


def test_float16_is_closer_than_bfloat16_and_both_are_close() -> None:
    model, ids = drawn(d_model=64, d_ff=128), torch.randint(VOCAB, (4, 20))
    with torch.no_grad():
        exact = model(ids)
        bfloat16, float16 = (
            float((Frozen(model, dtype)(ids) - exact).std() / exact.std()) for dtype in (torch.bfloat16, torch.float16)
        )
    assert 1e-5 < float16 < bfloat16 / 4 < 0.02 / 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("position", POSITIONS)
def test_what_stays_in_few_bits_on_a_gpu_is_as_close(
    position: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here on the CPU, beside converting back after each product: one error of rounding more or less."""
    model, ids = drawn(d_model=64, d_ff=128, position=position), torch.randint(VOCAB, (4, 20))
    swift = Frozen(model, dtype)
    with torch.no_grad():
        exact, converted = model(ids), swift(ids)
        monkeypatch.setattr(frozen, "STAYS_ON", ("cpu",))
        cache = swift.new_cache()
        kept = torch.cat([swift(piece, cache=cache) for piece in ids.split((15, 1, 1, 3), dim=1)], dim=1)
    assert kept.dtype == torch.float32
    assert all(each.dtype == dtype for each in cache.blocks[0].past.seen())
    assert 0 < (kept - exact).std() < 1.5 * (converted - exact).std()


def test_a_product_is_kept_in_few_bits_and_gives_what_comes_in() -> None:
    layers = [nn.Linear(6, rows) for rows in (2, 3)]
    joined, x = Product(*layers, dtype=torch.bfloat16), torch.randn(1, 4, 6)
    assert (joined.weight.dtype, joined.bias.dtype, joined.out_features) == (torch.bfloat16, torch.bfloat16, 5)
    assert joined(x).dtype == torch.float32
    expected = torch.cat([layer(x) for layer in layers], dim=-1)
    torch.testing.assert_close(joined(x), expected, atol=0.03, rtol=0.03)
    torch.testing.assert_close(Product(*layers, dtype=torch.float32)(x), expected)


@pytest.mark.parametrize(("rows", "width"), [(3, 8), (8, 8), (24, 8)])
def test_the_longer_side_of_a_matrix_is_contiguous(rows: int, width: int) -> None:
    layer, x = nn.Linear(width, rows), torch.randn(2, 3, width)
    product = Product(layer, dtype=torch.float32)
    assert product.weight.stride() == ((1, rows) if rows > width else (width, 1))
    assert torch.equal(product.weight, layer.weight)
    torch.testing.assert_close(product(x), layer(x))
    assert Product(layer, dtype=torch.float16).weight.is_contiguous()


# ---- a copy ------------------------------------------------------------------------------------------------------


def test_the_model_stays_as_it_was_and_the_copy_follows_no_training() -> None:
    model, ids = drawn().train(), torch.randint(VOCAB, (1, 5))
    swift = Frozen(model)
    before = swift(ids)
    assert model.training
    assert all(weight.requires_grad for weight in model.parameters())
    assert not before.requires_grad
    with torch.no_grad():
        for weight in model.parameters():
            weight += 1
    assert torch.equal(swift(ids), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_its_state_is_complete(dtype: torch.dtype) -> None:
    """Every matrix, bias and norm of another model goes in by `load_state_dict`, and the logits with them."""
    model, other, ids = drawn(), drawn(), torch.randint(VOCAB, (1, 5))
    swift, target = Frozen(model, dtype), Frozen(other, dtype)
    state = swift.state_dict()
    count = sum(weight.numel() for weight in model.parameters()) + model.unembed.weight.numel()  # no longer tied
    assert sum(tensor.numel() for tensor in state.values()) == count
    assert not torch.equal(swift(ids), target(ids))
    target.load_state_dict(state)
    assert torch.equal(swift(ids), target(ids))
    assert {tensor.dtype for name, tensor in state.items() if "product" in name} == {dtype}


def test_a_model_that_moves_computes_as_before() -> None:
    """Also where its tensors are replaced by others, as `to` does between devices."""
    swift, ids = Frozen(drawn()), torch.randint(VOCAB, (1, 5))
    expected = swift(ids)
    swift._apply(lambda tensor: tensor.clone())
    torch.testing.assert_close(swift(ids), expected)
    torch.testing.assert_close(swift.double()(ids), expected.double(), atol=1e-5, rtol=1e-5)


# ---- refused -----------------------------------------------------------------------------------------------------


def test_what_sees_both_ways_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model, a BidirectionalModel, has the mask None; expected Causal\(\)"):
        Frozen(drawn(BidirectionalModel))


def test_a_narrower_mask_is_refused() -> None:
    class Strict(Causal):
        """Stands for any mask under which the newest position does not see all."""

    model = drawn()
    model.mask = Strict()
    with pytest.raises(ValueError, match=r"model, a Gpt, has the mask .*; expected Causal\(\)"):
        Frozen(model)


def test_an_edited_mask_or_layer_in_the_packages_place_is_refused() -> None:
    """`runtime.use` makes it what the package calls by that name, so its name alone says nothing."""
    edited_mask = type("Causal", (Causal,), {"__module__": "__main__"})
    edited_layer = type("LayerNorm", (LayerNorm,), {"__module__": "__main__"})
    for edited, message in ((edited_mask, "has the mask"), (edited_layer, "norm is an edited LayerNorm")):
        runtime.use(edited)
        try:
            with pytest.raises(ValueError, match=message):
                Frozen(drawn(LanguageModel))
        finally:
            runtime.restore()
    Frozen(drawn(LanguageModel))


def test_norms_after_the_sums_and_memories_are_refused() -> None:
    with pytest.raises(ValueError, match="a residual branch is a PostNorm; a frozen model supports PreNorm only"):
        FrozenBlock(Block(replace(SIZES, residual=PostNorm)), torch.float32)
    with pytest.raises(ValueError, match="block reads a memory; expected one without cross-attention"):
        FrozenBlock(Block(SIZES, cross=True), torch.float32)


def test_another_kernel_is_refused() -> None:
    model = drawn()
    model.stack.blocks[1].mixer.branch.implementation = Banded(3)
    with pytest.raises(ValueError, match=r"block has the implementation .*expected fastest, fused or softmax"):
        Frozen(model)


@pytest.mark.parametrize("kind", [Gpt, LanguageModel])
def test_a_prompt_outside_the_vocabulary_is_refused(kind: type[LanguageModel]) -> None:
    for model in (drawn(kind), Frozen(drawn(kind))):
        with pytest.raises(ValueError, match=r"ids holds ids from 11 to 11; expected 0 to 10"):
            sampling.generate(model, torch.tensor([[VOCAB]]), max_new_tokens=1)


def test_positions_beyond_the_last_learned_one_are_refused() -> None:
    swift: Frozen = Frozen(drawn(position=POSITIONS["learned"]))
    with pytest.raises(ValueError, match="need 25 positions; the model has learned 24"):
        sampling.generate(swift, torch.zeros(1, 20, dtype=torch.int64), max_new_tokens=6)
