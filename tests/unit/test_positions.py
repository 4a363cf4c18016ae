"""Encodings of positions against their formulas, a naive loop and Hugging Face's models (functions alone, no weights).

Hugging Face writes ALiBi's bias as slope · j: the same but for one number a row, which no softmax notices.
"""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from tfbook import runtime
from tfbook.attention import (
    POSITIONS,
    ALiBi,
    Causal,
    InterpolatedRotary,
    Learned,
    Position,
    Relative,
    Rotary,
    Sinusoidal,
    alibi_slopes,
    attention_weights,
    position_range,
    sinusoid,
    turned,
)
from tfbook.attention.positions import AHEAD, Rotation

D_MODEL, HEADS, LONGEST = 8, 2, 12
D_HEAD = D_MODEL // HEADS
ENCODINGS: dict[str, Callable[[], Position]] = {
    name: lambda build=build: build(D_MODEL, HEADS, LONGEST) for name, build in POSITIONS.items()
} | {"interpolated": lambda: InterpolatedRotary(D_HEAD, stretch=2.5)}
every_encoding = pytest.mark.parametrize("build", ENCODINGS.values(), ids=ENCODINGS)

TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-6, torch.bfloat16: 0.03}  # angles are float32's in all of them
every_dtype = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


# ---- one interface -----------------------------------------------------------------------------------------------


def test_each_encoding_overrides_one_method_and_none_overrides_none() -> None:
    """So that an encoding reads as a diff."""
    changed = {
        name: {
            method for method in ("add", "rotate", "bias") if getattr(build(), method).__func__ is not _plain(method)
        }
        for name, build in ENCODINGS.items()
    }
    assert changed == {
        "none": set(),
        "sinusoidal": {"add"},
        "learned": {"add"},
        "relative": {"bias"},
        "rotary": {"rotate"},
        "ALiBi": {"bias"},
        "interpolated": {"rotate"},
    }


def _plain(method: str) -> Callable[..., object]:
    return getattr(Position, method)


def test_no_encoding_changes_nothing() -> None:
    x, q = torch.randn(2, 3, D_MODEL), torch.randn(2, HEADS, 3, D_HEAD)
    assert Position().add(x, 4) is x
    assert Position().rotate(q, 4) is q
    assert Position().bias(q, 7) is None


@every_encoding
@every_dtype
@pytest.mark.parametrize("start", [1, 5, 8])
def test_what_starts_later_gets_what_it_gets_among_all(
    build: Callable[[], Position], dtype: torch.dtype, start: int
) -> None:
    """As in decoding with kept keys: add and rotate from `start`, and the bias of the last queries alone."""
    position, tolerance = build().to(dtype), TOLERANCES[dtype]
    x, q = torch.randn(2, 9, D_MODEL, dtype=dtype), torch.randn(2, HEADS, 9, D_HEAD, dtype=dtype)
    pairs = [
        (position.add(x[:, start:], start), position.add(x)[:, start:]),
        (position.rotate(q[:, :, start:], start), position.rotate(q)[:, :, start:]),
    ]
    if position.bias(q, 9) is not None:
        pairs.append((position.bias(q[:, :, start:], 9), position.bias(q, 9)[:, :, start:]))
    for found, expected in pairs:
        assert found.dtype == expected.dtype == dtype
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@every_encoding
def test_the_second_position_is_not_the_first(build: Callable[[], Position]) -> None:
    """Or the test above would say nothing; only without an encoding they are the same."""
    position = build()
    x, q = torch.ones(1, 2, D_MODEL), torch.ones(1, HEADS, 2, D_HEAD)
    bias = position.bias(q, 2)
    same = [
        torch.equal(position.add(x)[:, 0], position.add(x)[:, 1]),
        torch.equal(position.rotate(q)[:, :, 0], position.rotate(q)[:, :, 1]),
        bias is None or torch.equal(bias[:, :, 1, 0], bias[:, :, 1, 1]),
    ]
    assert all(same) == (type(position) is Position)


FAR = 3001  # bfloat16 knows 2992 and 3008 and nothing in between


@pytest.mark.parametrize("autocast", [False, True], ids=["bfloat16", "autocast"])
def test_a_coarse_model_still_counts_its_positions_one_by_one(autocast: bool) -> None:
    """Waves and angles are float32's, whatever `.bfloat16()` or autocast make of the rest."""
    positions = torch.arange(FAR, FAR + 4, dtype=torch.float64)
    waves, rotary = Sinusoidal(D_MODEL).bfloat16(), Rotary(D_HEAD).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        added = waves.add(torch.zeros(1, 4, D_MODEL, dtype=torch.bfloat16), FAR)
        angles = rotary.angles(positions.float())
        found = rotary.rotate(torch.ones(1, 1, 4, D_HEAD, dtype=torch.bfloat16), FAR)
    assert (added[0] - _waves(positions, D_MODEL)).abs().max() < 0.005
    assert (angles - _angles(positions, D_HEAD)).abs().max() < 0.001
    exact = turned(torch.ones(1, 1, 4, D_HEAD, dtype=torch.float64), _angles(positions, D_HEAD))
    assert (found - exact).abs().max() < 0.02


def _angles(positions: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """p / base^(2i / width), in double precision."""
    return torch.tensor([[p / base ** (2 * i / width) for i in range(width // 2)] for p in positions.tolist()]).double()


def _waves(positions: Tensor, d_model: int) -> Tensor:
    """The sines and cosines of Vaswani et al. (2017), one number at a time."""
    angles = [
        (p, 10_000 ** (2 * (column // 2) / d_model), column % 2)
        for p in positions.tolist()
        for column in range(d_model)
    ]
    waves = [math.cos(p / length) if odd else math.sin(p / length) for p, length, odd in angles]
    return torch.tensor(waves, dtype=torch.float64).view(len(positions), d_model)


# ---- added to the embeddings -------------------------------------------------------------------------------------


@given(half=st.integers(1, 40), start=st.integers(0, 200), count=st.integers(1, 20))
@settings(max_examples=40)
def test_the_sinusoid_is_its_closed_form(half: int, start: int, count: int) -> None:
    """Every entry by `math.sin` and `math.cos`; `Sinusoidal` adds it."""
    positions = torch.arange(start, start + count)
    expected = _waves(positions, 2 * half)
    torch.testing.assert_close(sinusoid(positions.float(), 2 * half).double(), expected, atol=1e-4, rtol=0)
    x = torch.randn(2, count, 2 * half)
    torch.testing.assert_close(Sinusoidal(2 * half).add(x, start), x + expected.float(), atol=1e-4, rtol=0)


@given(half=st.integers(1, 16), shift=st.integers(-20, 20))
@settings(max_examples=40)
def test_a_shift_of_the_sinusoid_is_one_rotation_for_all_positions(half: int, shift: int) -> None:
    """PE(p + k) = R_k PE(p), with a block of [cos kω, sin kω; −sin kω, cos kω] for each frequency ω."""
    positions = torch.arange(20, 60).float()
    cos, sin = (f(_angles(torch.tensor([shift]), 2 * half))[0].float() for f in (torch.cos, torch.sin))
    rotation = torch.block_diag(*torch.stack([cos, sin, -sin, cos], dim=1).view(-1, 2, 2))
    shifted = sinusoid(positions + shift, 2 * half)
    torch.testing.assert_close(sinusoid(positions, 2 * half) @ rotation.T, shifted, atol=5e-5, rtol=0)
    products = (sinusoid(positions, 2 * half) * shifted).sum(dim=1)
    torch.testing.assert_close(products, cos.sum().expand_as(products), atol=5e-4, rtol=0)


def test_learned_positions_are_the_rows_of_their_table() -> None:
    """Each gets a gradient where it was used and none where it was not."""
    learned, x = Learned(LONGEST, D_MODEL), torch.randn(3, 4, D_MODEL)
    torch.testing.assert_close(learned.add(x, 5) - x, learned.embedding.weight[5:9].expand(3, 4, D_MODEL))
    learned.add(x, 5).sum().backward()
    assert torch.equal(
        learned.embedding.weight.grad, torch.zeros(LONGEST, D_MODEL).index_fill(0, torch.arange(5, 9), 3.0)
    )


@pytest.mark.parametrize(("start", "count"), [(0, LONGEST + 1), (LONGEST, 1), (LONGEST - 2, 3)])
def test_learned_positions_end_at_the_last_trained_one(start: int, count: int) -> None:
    learned = Learned(LONGEST, D_MODEL)
    assert learned.add(torch.zeros(1, 2, D_MODEL), LONGEST - 2).any()
    message = f"the sequence ends at position {start + count - 1}; learned positions end at 11"
    with pytest.raises(ValueError, match=message):
        learned.add(torch.zeros(1, count, D_MODEL), start)


# ---- queries and keys rotated ------------------------------------------------------------------------------------


def _of_llama(q: Tensor, k: Tensor, places: Tensor, base: float, **options: object) -> tuple[Tensor, Tensor]:
    config = llama.LlamaConfig(hidden_size=q.shape[3] * 2, num_attention_heads=2, rope_theta=base, **options)
    return llama.apply_rotary_pos_emb(q, k, *llama.LlamaRotaryEmbedding(config)(q, places[None]))


def _of_gpt_neox(q: Tensor, k: Tensor, places: Tensor, base: float) -> tuple[Tensor, Tensor]:
    config = gpt_neox.GPTNeoXConfig(
        hidden_size=q.shape[3] * 2, num_attention_heads=2, rotary_emb_base=base, rotary_pct=1.0
    )
    return gpt_neox.apply_rotary_pos_emb(q, k, *gpt_neox.GPTNeoXRotaryEmbedding(config)(q, places[None]))


rows = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 8), st.integers(1, 8))  # …, time, d_head / 2


@given(shape=rows, start=st.integers(0, 50), base=st.sampled_from([10_000.0, 500_000.0, 100.0]))
@settings(max_examples=25)
def test_rotary_is_that_of_llama_and_gpt_neox(shape: tuple[int, ...], start: int, base: float) -> None:
    """Both turn halves, at every base and from every position."""
    q, k = torch.randn(2, *shape[:3], 2 * shape[3])
    places, rotary = torch.arange(start, start + shape[2]), Rotary(2 * shape[3], base=base)
    for peer in (_of_llama, _of_gpt_neox):
        for found, expected in zip((q, k), peer(q, k, places, base), strict=True):
            torch.testing.assert_close(rotary.rotate(found, start), expected, atol=5e-5, rtol=0)


@given(shape=rows, start=st.integers(0, 50))
@settings(max_examples=25)
def test_rotary_is_that_of_gpt_j_after_a_permutation_of_the_columns(shape: tuple[int, ...], start: int) -> None:
    """GPT-J turns neighbours, as the paper does: coordinates 0, 2, 4, … are our first half, 1, 3, 5, … the second."""
    neighbours = torch.randn(*shape[:3], 2 * shape[3])
    order = torch.cat([torch.arange(0, 2 * shape[3], 2), torch.arange(1, 2 * shape[3], 2)])
    sin, cos = gptj.create_sinusoidal_positions(start + shape[2], 2 * shape[3])[None, start:].chunk(2, dim=-1)
    expected = gptj.apply_rotary_pos_emb(neighbours.transpose(1, 2), sin, cos).transpose(1, 2)
    found = Rotary(2 * shape[3]).rotate(neighbours[..., order], start)
    torch.testing.assert_close(found, expected[..., order], atol=5e-5, rtol=0)


@given(shape=rows, start=st.integers(0, 50), stretch=st.sampled_from([1.0, 2.0, 3.5]))
@settings(max_examples=25)
def test_interpolated_rotary_is_llamas_linear_scaling(shape: tuple[int, ...], start: int, stretch: float) -> None:
    """And the position stretch · p is turned as p was."""
    q, interpolated = torch.randn(*shape[:3], 2 * shape[3]), InterpolatedRotary(2 * shape[3], stretch=stretch)
    places = torch.arange(start, start + shape[2])
    expected, _ = _of_llama(q, q, places, 10_000.0, rope_scaling={"rope_type": "linear", "factor": stretch})
    torch.testing.assert_close(interpolated.rotate(q, start), expected, atol=5e-5, rtol=0)
    found = interpolated.angles(stretch * places.float())
    torch.testing.assert_close(found, Rotary(2 * shape[3]).angles(places.float()), atol=1e-4, rtol=1e-5)


@given(m=st.integers(0, 40), n=st.integers(0, 40), shift=st.integers(0, 60))
@settings(max_examples=40)
def test_a_product_of_rotated_vectors_depends_on_their_distance_alone(m: int, n: int, shift: int) -> None:
    """And on that it does depend; lengths stay as they are."""
    torch.manual_seed(0)
    rotary, q, k = Rotary(6), torch.randn(1, 1, 1, 6), torch.randn(1, 1, 1, 6)
    product = lambda m, n: (rotary.rotate(q, m) * rotary.rotate(k, n)).sum()  # noqa: E731
    torch.testing.assert_close(product(m + shift, n + shift), product(m, n), atol=1e-4, rtol=0)
    torch.testing.assert_close(rotary.rotate(q, m).norm(), q.norm())
    assert (product(m, n) - product(m + 1, n)).abs() > 1e-3


# ---- scores biased -----------------------------------------------------------------------------------------------


@given(
    reach=st.integers(1, 5),
    keys=st.integers(1, 9),
    missing=st.integers(0, 8),
    d_head=st.integers(1, 5),
    batch=st.integers(1, 2),
)
@settings(max_examples=50)
def test_relative_scores_are_those_of_a_double_loop(
    reach: int, keys: int, missing: int, d_head: int, batch: int
) -> None:
    """Shaw et al. (2018), equations 3 to 5: for every head q_i · a_clip(j − i) / √d_head; and the table's gradient."""
    relative, queries = Relative(d_head, reach=reach).double(), max(1, keys - missing)
    q = torch.randn(batch, 2, queries, d_head, dtype=torch.float64)
    expected = torch.zeros(batch, 2, queries, keys, dtype=torch.float64)
    for row, i in enumerate(range(keys - queries, keys)):
        for j in range(keys):
            vector = relative.embedding.weight[max(-reach, min(reach, j - i)) + reach]
            expected[:, :, row, j] = q[:, :, row] @ vector / math.sqrt(d_head)
    found, upstream = relative.bias(q, keys), torch.randn_like(expected)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(scores, relative.embedding.weight, upstream)[0] for scores in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 33])
def test_alibi_gives_the_weights_of_bloom_and_mpt(heads: int) -> None:
    """After the softmax, under the causal mask; also where the number of heads is no power of two."""
    q, k = torch.randn(2, 2, heads, 9, 4)
    found = attention_weights(q, k, Causal(), ALiBi(heads).bias(q, 9))
    theirs = {
        "Bloom": build_alibi_tensor(torch.ones(2, 9), heads, torch.float32).view(2, heads, 1, 9),
        "MPT": build_mpt_alibi_tensor(heads, 9)[None],
    }
    for name, bias in theirs.items():
        expected = attention_weights(q, k, Causal(), bias)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_alibi_is_its_formula_in_both_directions() -> None:
    """Slopes ½ … 1/256 for eight heads, as in the paper; keys to the right count less as well."""
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(3).tolist() == [2.0**-4, 2.0**-8, 2.0**-2]
    bias = ALiBi(3).bias(torch.zeros(4, 3, 2, 5), 6)
    assert bias.shape == (1, 3, 2, 6)
    for head, slope in enumerate(alibi_slopes(3).tolist()):
        assert bias[0, head].tolist() == [[-slope * abs(i - j) for j in range(6)] for i in (4, 5)]


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sinusoid(torch.zeros(1), 7), "d_model is 7; expected an even number, a sine and a cosine for each"),
        (lambda: sinusoid(torch.zeros(1), 0), "d_model is 0; expected an even number"),
        (lambda: Sinusoidal(5), "d_model is 5; expected an even number"),
        (lambda: Learned(0, 4), "max_length is 0; expected 1 or more positions"),
        (lambda: Rotary(3), "d_head is 3; expected an even number, since pairs of coordinates are rotated"),
        (lambda: Rotary(0), "d_head is 0; expected an even number"),
        (lambda: InterpolatedRotary(5, stretch=2.0), "d_head is 5; expected an even number"),
        (lambda: InterpolatedRotary(4, stretch=0.5), "stretch is 0.5; expected 1 or more: the new length over the"),
        (lambda: Relative(4, reach=0), "reach is 0; expected 1 or more positions"),
        (lambda: alibi_slopes(0), "heads is 0; expected 1 or more"),
        (lambda: ALiBi(-1), "heads is -1; expected 1 or more"),
    ],
)
def test_an_impossible_size_is_refused_at_once(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


# ---- rotations computed once for all layers ---------------------------------------------------------------------


@pytest.mark.parametrize("position", [Rotary(8), InterpolatedRotary(8, stretch=2.0)], ids=["rotary", "interpolated"])
@pytest.mark.parametrize("start", [0, 7])
def test_a_prepared_rotation_rotates_as_the_encoding_does(position: Rotary, start: int) -> None:
    x = torch.randn(2, 3, 5, 8)
    rotation = position.prepared(start, 5, x.device)
    assert isinstance(rotation, Rotation)
    torch.testing.assert_close(rotation.rotate(x, start), position.rotate(x, start))
    torch.testing.assert_close(rotation.rotate(x[:, :, 2:], start + 2), position.rotate(x[:, :, 2:], start + 2))
    assert rotation.rotate(x.bfloat16(), start).dtype == torch.bfloat16


@pytest.mark.parametrize("position", [Rotary(8), InterpolatedRotary(8, stretch=2.0)], ids=["rotary", "interpolated"])
def test_rotations_computed_ahead_rotate_as_the_encoding_does_and_are_renewed(position: Rotary) -> None:
    x, kept = torch.randn(2, 3, 1, 8), None
    for start in (5, 6, 4 + AHEAD, 5 + AHEAD, 2):  # the last two are out of reach
        earlier, kept = kept, position.prepared(start, 1, x.device, kept)
        torch.testing.assert_close(kept.rotate(x, start), position.rotate(x, start))
        assert (kept is earlier) == (start in (6, 4 + AHEAD))
    assert kept is not None
    assert kept.rotate(x.bfloat16(), 2).dtype == torch.bfloat16
    assert Rotary(8).prepared(2, 1, x.device, kept) is not kept


def test_an_edited_rotation_is_not_passed_over() -> None:
    """Neither that of a subclass nor that of a class which took the package's place."""

    class Backwards(Rotary):
        def rotate(self, x: Tensor, start: int = 0) -> Tensor:
            return super().rotate(x.flip(-1), start)

    edited = Backwards(8)
    assert edited.prepared(0, 4) is edited
    Backwards.__name__ = "Rotary"
    runtime.use(Backwards)
    try:
        position = POSITIONS["rotary"](16, 2, 4)
        assert type(position) is Backwards
        assert position.prepared(0, 4) is position
    finally:
        runtime.restore()


@pytest.mark.parametrize("name", sorted(set(POSITIONS) - {"rotary"}))
def test_other_encodings_have_nothing_to_prepare(name: str) -> None:
    position = POSITIONS[name](16, 2, 4)
    assert position.prepared(0, 4) is position


def test_relative_embeddings_start_small() -> None:
    """With a standard deviation of 0.02, as BERT's and GPT-2's embeddings do."""
    assert Relative(64, reach=50).embedding.weight.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_dtype_changes_no_frequency(dtype: torch.dtype) -> None:
    """In bfloat16, positions beyond 256 would share their angles and distances (transformers issue 25681)."""
    positions = position_range(0, 600)

    def made() -> list[Tensor]:
        bias = ALiBi(12).bias(torch.zeros(1, 12, 1, 4, dtype=torch.float32), 600)
        return [sinusoid(positions, 8), Rotary(8).angles(positions), alibi_slopes(12), bias]

    expected = made()
    torch.set_default_dtype(dtype)
    try:
        found = made()
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)
