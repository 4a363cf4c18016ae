"""Blocks, stacks and models against PyTorch's with the same weights, forwards and backwards.

A post-norm block ends with a norm, so our stacks add another only after pre-norm blocks. `nn.Transformer` always adds
one; its peers here are therefore built from stacks of its own that were given none.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import torch
from drawn_configs import ACTIVATIONS
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import POSITIONS, Causal, Lengths, MultiHeadAttention
from tfbook.course import invariants
from tfbook.models.blocks import Block, Config, PostNorm, PreNorm, Stack
from tfbook.models.feed_forward import FeedForward
from tfbook.models.language_model import BidirectionalModel, LanguageModel, ScaledEmbedding
from tfbook.models.norms import LayerNorm, layer_norm
from tfbook.models.transformer import Decoder, Encoder, Memory, Transformer
from tfbook.parts import Identity

SMALL = Config(d_model=8, heads=2, d_ff=12, layers=2, position=POSITIONS["none"])


def _randomised(model: nn.Module) -> nn.Module:
    """In double precision, with scales and biases that are not 1 and 0, so that an exchange of two norms is seen."""
    for parameter in model.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


# ---- PyTorch's stacks with our weights ---------------------------------------------------------------------------

NAMES = {
    "blocks.": "layers.",
    "mixer.branch.": "self_attn.",
    "cross.branch.": "multihead_attn.",
    "W_Q.": "in_proj_",
    "W_K.": "in_proj_",
    "W_V.": "in_proj_",
    "W_O.": "out_proj.",
    "feed_forward.branch.up.": "linear1.",
    "feed_forward.branch.down.": "linear2.",
    "mixer.norm.": "norm1.",
    "cross.norm.": "norm2.",
}


def _as_pytorch(ours: dict[str, Tensor], cross: bool) -> dict[str, Tensor]:
    """Weights or gradients of one of our stacks under PyTorch's names; it keeps W_Q, W_K and W_V in one matrix."""
    theirs: dict[str, Tensor] = {}
    for name, tensor in ours.items():
        for old, new in (NAMES | {"feed_forward.norm.": "norm3." if cross else "norm2."}).items():
            name = name.replace(old, new)
        theirs[name] = torch.cat([theirs[name], tensor]) if name in theirs else tensor
    return theirs


def _peer(stack: Stack, config: Config, cross: bool = False) -> nn.Module:
    """PyTorch's stack of the same sizes and weights, without a last norm where ours has none."""
    kind, layer = (nn.TransformerEncoder, nn.TransformerEncoderLayer)
    if cross:
        kind, layer = (nn.TransformerDecoder, nn.TransformerDecoderLayer)
    eps, activation = config.norm(1).eps, config.feed_forward(1, 1, dropout=0.0).activation
    pre_norm = stack.blocks[0].mixer.ends_with_norm
    options = {"activation": activation, "norm_first": pre_norm, "batch_first": True, "dropout": 0.0}
    block = layer(config.d_model, config.heads, config.d_ff, layer_norm_eps=eps, **options)
    norm = nn.LayerNorm(config.d_model, eps) if pre_norm else None
    peer = kind(block, config.layers, norm, **({} if cross else {"enable_nested_tensor": False})).double()
    peer.load_state_dict(_as_pytorch(_shared(stack), cross))  # strict: every weight has its place
    return peer.train(stack.training)


def _shared(stack: Stack) -> dict[str, Tensor]:
    """The weights that PyTorch's stack has as well: all but those of positions."""
    return {name: parameter for name, parameter in stack.named_parameters() if not name.startswith("position")}


def _gradients(output: Tensor, named: dict[str, Tensor]) -> dict[str, Tensor]:
    loss = (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)).sum()
    return dict(zip(named, torch.autograd.grad(loss, list(named.values()), retain_graph=True), strict=True))


def _assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-6) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        gap = (tensor - expected[name]).abs().max()
        assert gap <= tolerance * max(1, expected[name].abs().max()), f"{name}: {gap}"


class Case(NamedTuple):
    """Sizes, a padded source and a target."""

    config: Config
    lengths: Tensor
    source: int
    target: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Every choice that PyTorch's layers have, and ragged batches of any size."""
    heads, batch = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    config = Config(
        d_model=heads * draw(st.sampled_from([2, 4])),
        heads=heads,
        d_ff=draw(st.integers(1, 9)),
        layers=draw(st.integers(1, 3)),
        residual=draw(st.sampled_from([PreNorm, PostNorm])),
        feed_forward=draw(st.sampled_from(ACTIVATIONS)),
        norm=draw(st.sampled_from([LayerNorm, partial(LayerNorm, eps=1e-2)])),
        position=POSITIONS["none"],
    )
    torch.manual_seed(draw(st.integers(0, 2**31)))
    lengths = torch.tensor(draw(st.lists(st.integers(1, 5), min_size=batch, max_size=batch)))
    return Case(config, lengths, int(lengths.max()) + draw(st.integers(0, 1)), draw(st.integers(1, 5)))


def _blocked(case: Case) -> tuple[Tensor, Tensor]:
    """PyTorch's masks of the padding and of the future, in which True means blocked."""
    padding = torch.arange(case.source) >= case.lengths[:, None]
    return padding, torch.ones(case.target, case.target, dtype=torch.bool).triu(1)


def _vectors(case: Case, time: int) -> Tensor:
    return torch.randn(len(case.lengths), time, case.config.d_model, dtype=torch.float64, requires_grad=True)


@given(case=cases(), training=st.booleans())
@settings(max_examples=40)
def test_an_encoder_stack_is_pytorchs(case: Case, training: bool) -> None:
    """Pre- and post-norm, under a padding mask: outputs, and the gradients of the input and of all weights."""
    stack, x = _randomised(Stack(case.config)).train(training), _vectors(case, case.source)
    peer, (padding, _) = _peer(stack, case.config), _blocked(case)
    found, expected = stack(x, Lengths(case.lengths)), peer(x, src_key_padding_mask=padding)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    ours = _gradients(found, {"input": x} | dict(stack.named_parameters()))
    theirs = _gradients(expected, {"input": x} | dict(peer.named_parameters()))
    _assert_equal(_as_pytorch(ours, cross=False), theirs)


@given(case=cases(), training=st.booleans())
@settings(max_examples=40)
def test_a_decoder_stack_is_pytorchs(case: Case, training: bool) -> None:
    """The same under a causal mask, with a padded memory to read."""
    stack = _randomised(Stack(case.config, cross=True)).train(training)
    x, memory = _vectors(case, case.target), _vectors(case, case.source)
    peer, (padding, later) = _peer(stack, case.config, cross=True), _blocked(case)
    found = stack(x, Causal(), memory=memory, memory_mask=Lengths(case.lengths))
    expected = peer(x, memory, tgt_mask=later, memory_key_padding_mask=padding)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    inputs = {"input": x, "memory": memory}
    ours = _gradients(found, inputs | dict(stack.named_parameters()))
    theirs = _gradients(expected, inputs | dict(peer.named_parameters()))
    _assert_equal(_as_pytorch(ours, cross=True), theirs)


WORDS = 9


@given(case=cases(), position=st.sampled_from(["none", "sinusoidal", "learned"]), tied=st.booleans())
@settings(max_examples=40)
def test_a_whole_transformer_is_pytorchs(case: Case, position: str, tied: bool) -> None:
    """From ids to logits, in train mode: what is added to the embeddings and both tables get their gradients, too."""
    config = replace(case.config, position=POSITIONS[position])
    model = _randomised(Transformer(Encoder(WORDS, config), Decoder(WORDS, config, tied=tied)))
    source = torch.randint(WORDS, (len(case.lengths), case.source))
    target = torch.randint(WORDS, (len(case.lengths), case.target))
    found = model(source, case.lengths, target).logits
    peer = _of_pytorch(model, config)
    expected = _logits_of(peer, model, source, target, *_blocked(case))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)

    outside = dict(model.named_parameters())
    for half, cross in (("encoder", False), ("decoder", True)):
        shared, theirs = _shared(getattr(model, half).stack), dict(getattr(peer, half).named_parameters())
        _assert_equal(_as_pytorch(_gradients(found, shared), cross), _gradients(expected, theirs))
        outside = {name: p for name, p in outside.items() if name.removeprefix(f"{half}.stack.") not in shared}
    assert len(outside) == 2 + (not tied) + 2 * (position == "learned")
    _assert_equal(_gradients(found, outside), _gradients(expected, outside))


def _of_pytorch(model: Transformer, config: Config) -> nn.Transformer:
    """Its constructor gives even the stacks that it is given new weights; they get ours afterwards."""
    halves = {"custom_encoder": _peer(model.encoder.stack, config)}
    halves |= {"custom_decoder": _peer(model.decoder.stack, config, cross=True)}
    peer = nn.Transformer(config.d_model, **halves, batch_first=True)
    peer.encoder.load_state_dict(_as_pytorch(_shared(model.encoder.stack), cross=False))
    peer.decoder.load_state_dict(_as_pytorch(_shared(model.decoder.stack), cross=True))
    return peer


def _logits_of(
    peer: nn.Transformer, model: Transformer, source: Tensor, target: Tensor, padding: Tensor, later: Tensor
) -> Tensor:
    """PyTorch's model between our tables of words and positions."""
    embedded = [
        half.stack.position.add(math.sqrt(half.embed.embedding_dim) * half.embed.weight[ids])
        for half, ids in ((model.encoder, source), (model.decoder, target))
    ]
    masks = {"tgt_mask": later, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    return peer(*embedded, **masks) @ model.decoder.unembed.weight.T


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_attention_without_biases_is_attention_whose_biases_are_zero(cross: bool) -> None:
    config = Config(d_model=8, heads=2, d_ff=8)
    bare, block = (
        Block(replace(config, mixer=partial(MultiHeadAttention, bias=False)), cross=cross),
        Block(config, cross=cross),
    )
    left_out = block.load_state_dict(bare.state_dict(), strict=False).missing_keys
    layers = ["cross", "mixer"] if cross else ["mixer"]
    assert sorted(left_out) == [f"{name}.branch.W_{which}.bias" for name in layers for which in "KOQV"]
    for name in left_out:
        nn.init.zeros_(block.get_parameter(name))
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 4, 8) if cross else None
    torch.testing.assert_close(bare(x, memory=memory), block(x, memory=memory))


@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])
def test_in_single_precision_output_and_gradients_are_pytorchs_to_five_digits(pre_norm: bool) -> None:
    """At a size that lessons use, weights as they are initialised, errors relative to the largest entry."""
    config = Config(
        d_model=64, heads=4, d_ff=256, layers=2, position=POSITIONS["none"], residual=PreNorm if pre_norm else PostNorm
    )
    case = Case(config, torch.tensor([12, 7, 1]), 12, 10)
    model = Transformer(Encoder(WORDS, config), Decoder(WORDS, config)).double()
    peer = _of_pytorch(model, config).float()
    model.float()
    source, target = torch.randint(WORDS, (3, 12)), torch.randint(WORDS, (3, 10))
    found = model(source, case.lengths, target).logits
    expected = _logits_of(peer, model, source, target, *_blocked(case))
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    for half, cross in (("encoder", False), ("decoder", True)):
        ours = _gradients(found, _shared(getattr(model, half).stack))
        theirs = _gradients(expected, dict(getattr(peer, half).named_parameters()))
        _assert_equal(_as_pytorch(ours, cross), theirs, tolerance=1e-5)


# ---- the parts of a block ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [F.relu, F.gelu], ids=["relu", "gelu"])
def test_feed_forward_is_that_of_pytorchs_encoder_layer(activation: object) -> None:
    """Without its residual branch and norm, the second half of `nn.TransformerEncoderLayer`."""
    ours = FeedForward(6, 10, activation=activation, dropout=0.5).double().eval()
    theirs = nn.TransformerEncoderLayer(6, 2, 10, activation=activation, dtype=torch.float64).eval()
    theirs.linear1.load_state_dict(ours.up.state_dict())
    theirs.linear2.load_state_dict(ours.down.state_dict())
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs._ff_block(x))


def test_feed_forward_is_position_wise_in_train_mode_as_well() -> None:
    layer = FeedForward(4, 8, dropout=0.3).double()
    config = invariants.dependence(layer, torch.randn(1, 5, 4, dtype=torch.float64))
    assert torch.equal(config, torch.diag(config.diag()))
    assert config.diag().any()


def test_dropout_stands_between_the_two_maps() -> None:
    """With every hidden unit dropped only the last bias is left."""
    layer = FeedForward(4, 8, dropout=1.0)
    torch.testing.assert_close(layer(torch.randn(1, 2, 4)), layer.down.bias.expand(1, 2, 4))


@given(shape=st.lists(st.integers(1, 4), max_size=2), width=st.integers(1, 8), eps=st.sampled_from([1e-5, 1e-12, 0.1]))
@settings(max_examples=30)
def test_layer_norm_is_pytorchs(shape: list[int], width: int, eps: float) -> None:
    """The function and the layer: outputs, and the gradients of the input, the scale and the bias."""
    ours, theirs = _randomised(LayerNorm(width, eps=eps)), nn.LayerNorm(width, eps).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(*shape, width, dtype=torch.float64, requires_grad=True)
    expected = theirs(x)
    wanted = list(_gradients(expected, {"x": x} | dict(theirs.named_parameters())).values())
    for found in (ours(x), layer_norm(x, ours.weight, ours.bias, eps)):
        torch.testing.assert_close(found, expected)
        gradients = _gradients(found, {"x": x, "weight": ours.weight, "bias": ours.bias})
        torch.testing.assert_close(list(gradients.values()), wanted)


def test_the_gradient_of_layer_norm_is_that_of_finite_differences() -> None:
    x, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, 5), (5,), (5,))
    )
    assert torch.autograd.gradcheck(layer_norm, (x, weight, bias))


def test_layer_norm_gives_each_vector_mean_zero_and_variance_one() -> None:
    """Whatever its scale and offset; a constant vector becomes the bias, not NaN."""
    normal = LayerNorm(64)(7 + 100 * torch.randn(2, 3, 64))
    torch.testing.assert_close(normal.mean(dim=-1), torch.zeros(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.var(dim=-1, correction=0), torch.ones(2, 3), atol=1e-4, rtol=0)
    weight, bias = torch.ones(4), torch.arange(4.0)
    torch.testing.assert_close(layer_norm(torch.full((1, 4), 3.0), weight, bias), bias[None])


@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])
def test_dropout_acts_on_what_a_branch_found_alone(pre_norm: bool) -> None:
    """With all of it dropped, x passes: as it is through pre-norm blocks, through three norms in post-norm ones."""
    block, x = Block(replace(SMALL, residual=PreNorm if pre_norm else PostNorm), cross=True), torch.randn(2, 3, 8)
    for branch in (block.mixer, block.cross, block.feed_forward):
        branch.dropout.p = 1.0
    passed = block(x, Causal(), memory=torch.randn(2, 4, 8))
    torch.testing.assert_close(passed, x if pre_norm else F.layer_norm(x, [8]), atol=1e-4, rtol=1e-4)


def test_dropout_acts_on_words_with_their_positions() -> None:
    """With all of them dropped, nothing enters the blocks."""
    stack, plain = Stack(replace(SMALL, position=POSITIONS["sinusoidal"])), Stack(SMALL)
    plain.load_state_dict(stack.state_dict())
    stack.dropout.p = 1.0
    torch.testing.assert_close(stack(torch.randn(2, 3, 8)), plain(torch.zeros(2, 3, 8)))


def test_dropout_is_in_every_place_in_train_mode_and_nowhere_in_eval_mode() -> None:
    """Embeddings, attention weights, hidden units and branches: of each the rate is the one in the sizes."""
    config = replace(SMALL, dropout=0.25)
    stack, x = Stack(config, cross=True), torch.randn(2, 4, 8)
    rates = {name: m.p if isinstance(m, nn.Dropout) else m.dropout for name, m in stack.named_modules() if _drops(m)}
    inside = {"mixer.branch", "mixer.dropout", "cross.branch", "cross.dropout"}
    inside |= {"feed_forward.branch.dropout", "feed_forward.dropout"}
    assert rates == {"dropout": 0.25} | {f"blocks.{i}.{name}": 0.25 for i in range(2) for name in inside}
    plain = Stack(replace(config, dropout=0.0), cross=True)
    plain.load_state_dict(stack.state_dict())
    memory = torch.randn(2, 3, 8)
    assert torch.equal(stack.eval()(x, Causal(), memory=memory), plain(x, Causal(), memory=memory))
    assert not torch.equal(stack.train()(x, Causal(), memory=memory), stack(x, Causal(), memory=memory))


def _drops(module: nn.Module) -> bool:
    return isinstance(module, nn.Dropout) or isinstance(getattr(module, "dropout", None), float)


def test_what_enters_is_changed_once_it_has_its_position() -> None:
    """As BERT normalises the sum of word and position."""
    stack, x = (
        Stack(replace(SMALL, position=POSITIONS["sinusoidal"]), embed_norm=_randomised(LayerNorm(8)).float()),
        torch.randn(2, 3, 8),
    )
    plain = Stack(SMALL)
    plain.load_state_dict(_shared(stack), strict=False)
    torch.testing.assert_close(stack(x), plain(stack.embed_norm(stack.position.add(x))))
    assert not torch.allclose(stack(x), plain(stack.position.add(x)))


def test_only_a_pre_norm_stack_ends_with_a_norm_of_its_own() -> None:
    assert isinstance(Stack(SMALL).norm, LayerNorm)
    assert isinstance(Stack(replace(SMALL, residual=PostNorm)).norm, Identity)


# ---- models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "later"), [(LanguageModel, True), (BidirectionalModel, False)], ids=["causal", "both"]
)
def test_a_language_model_is_pytorchs_encoder_between_one_table(kind: type[LanguageModel], later: bool) -> None:
    """√d_model · E in front, Eᵀ behind; the causal one under PyTorch's mask of the future, the other under none."""
    model, ids = _randomised(kind(WORDS, SMALL)), torch.randint(WORDS, (2, 5))
    x = math.sqrt(8) * model.embed.weight[ids]
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if later else None
    expected = _peer(model.stack, SMALL)(x, mask=mask) @ model.embed.weight.T
    torch.testing.assert_close(model(ids), expected, atol=1e-6, rtol=1e-6)


def test_tied_matrices_are_one_parameter() -> None:
    """It is counted once, listed once and saved under both names; untied ones are two."""
    tied, untied = Decoder(WORDS, SMALL), Decoder(WORDS, SMALL, tied=False)
    assert tied.unembed.weight is tied.embed.weight
    assert untied.unembed.weight is not untied.embed.weight
    model = LanguageModel(WORDS, SMALL)
    assert model.unembed.weight is model.embed.weight
    assert {"embed.weight", "unembed.weight"} < tied.state_dict().keys() == untied.state_dict().keys()
    count = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731
    assert count(untied) - count(tied) == WORDS * 8
    d, d_ff = 8, 12
    block = 4 * (d * d + d) + (2 * d * d_ff + d_ff + d) + 2 * 2 * d
    assert count(model) == WORDS * d + 2 * block + 2 * d


def test_words_enter_with_variance_one_and_leave_with_logits_of_variance_one() -> None:
    """The table's entries have variance 1 / d_model, the embedded words √d_model times their size."""
    words = ScaledEmbedding(500, 64)
    assert words.weight.var().item() == pytest.approx(1 / 64, rel=0.05)
    ids = torch.tensor([[3, 0], [499, 3]])
    torch.testing.assert_close(words(ids), 8 * words.weight[ids])
    assert (torch.randn(100, 64) @ words.weight.T).var().item() == pytest.approx(1, rel=0.05)


def test_a_memory_keeps_the_sentences_asked_for() -> None:
    memory = Memory(torch.randn(3, 4, 8), torch.tensor([4, 1, 2]))
    chosen = memory.select(torch.tensor([2, 0, 2]))
    assert torch.equal(chosen.states, memory.states[[2, 0, 2]])
    assert chosen.lengths.tolist() == [2, 4, 2]


@pytest.mark.parametrize("position", POSITIONS)
def test_a_model_in_bfloat16_says_what_it_says_in_float32(position: str) -> None:
    """Also far behind the start, where a position in bfloat16 would be another one."""
    config = replace(SMALL, position=POSITIONS[position], max_length=600, layers=1)
    model = LanguageModel(WORDS, config)
    ids = torch.randint(WORDS, (1, 600))
    expected, found = model(ids), model.bfloat16()(ids)
    assert found.dtype == torch.bfloat16
    assert (found - expected).abs().max() < 0.1


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 0}, "d_model is 0; expected 1 or more"),
        ({"heads": -1}, "heads is -1; expected 1 or more"),
        ({"d_ff": 0}, "d_ff is 0; expected 1 or more"),
        ({"layers": 0}, "layers is 0; expected 1 or more"),
        ({"max_length": 0}, "max_length is 0; expected 1 or more"),
        ({"heads": 3}, "heads is 3 and d_model is 8; expected heads to divide d_model"),
        ({"dropout": 1.0}, "dropout is 1.0; expected 0 ≤ dropout < 1"),
        ({"dropout": -0.1}, "dropout is -0.1; expected 0 ≤ dropout < 1"),
        ({"dropout": math.nan}, "dropout is nan; expected 0 ≤ dropout < 1"),
    ],
    ids=str,
)
def test_sizes_name_what_is_impossible(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


@pytest.mark.usefixtures("unchecked")
def test_a_part_that_makes_nothing_is_refused() -> None:
    """The name of a part, say, in the place of what makes it."""
    with pytest.raises(
        ValueError, match="mixer is 'attention'; expected a class or function that makes the part, or its"
    ):
        replace(SMALL, mixer="attention")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(d_model=9, heads=3, position=POSITIONS["sinusoidal"]), "d_model is 9; expected an even number"),
        (Config(d_model=9, heads=3, position=POSITIONS["rotary"]), "d_head is 3; expected an even number"),
    ],
    ids=["sinusoidal", "rotary"],
)
def test_a_stack_refuses_an_odd_width_where_its_encoding_needs_pairs(config: Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stack(config)


LENGTHS, IDS = torch.tensor([3, 2]), torch.tensor([[1, 2, 3], [4, 5, 6]])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m(IDS + WORDS, LENGTHS, IDS),
            "ids holds ids from 10 to 15; expected 0 to 8, the model's vocabulary",
        ),
        (lambda m: m(IDS, LENGTHS, IDS - WORDS), "ids holds ids from -8 to -3; expected 0 to 8"),
        (lambda m: m(IDS[:, :0], LENGTHS, IDS), r"ids has shape \(2, 0\), torch.int64; expected ids of shape"),
        (lambda m: m(IDS, LENGTHS[:1], IDS), "lengths holds 1 numbers; expected one for each of 2 sentences"),
        (lambda m: m(IDS, LENGTHS + 1, IDS), "lengths run from 3 to 4; expected 0 to size = 3"),
        (lambda m: m(IDS, LENGTHS, IDS[:1]), "target has 1 rows; expected 2, one for each source sentence"),
        (lambda m: m(IDS, LENGTHS, IDS.repeat(1, 2)), "the sequence ends at position 5; learned positions end at 4"),
        (lambda m: m.decoder.stack(torch.randn(2, 3, 8), Causal()), "memory is missing; this block reads one"),
        (
            lambda m: m.encoder.stack(torch.randn(2, 3, 8), memory=torch.randn(2, 3, 8)),
            "memory is given; this block reads none",
        ),
    ],
    ids=["too large", "negative", "none", "a length", "long", "a target", "too far", "no memory", "a memory"],
)
def test_what_does_not_fit_is_named(call: Callable[[Transformer], object], message: str) -> None:
    config = replace(SMALL, position=POSITIONS["learned"], max_length=5)
    with pytest.raises(ValueError, match=message):
        call(Transformer(Encoder(WORDS, config), Decoder(WORDS, config)))


def test_learned_positions_end_in_cached_decoding_as_well() -> None:
    """At the same word as when all are read at once."""
    model = LanguageModel(WORDS, replace(SMALL, position=POSITIONS["learned"], max_length=5))
    ids, cache = torch.randint(WORDS, (1, 6)), model.new_cache()
    with torch.no_grad():
        model(ids[:, :3], cache=cache)
        model(ids[:, 3:5], cache=cache)
        with pytest.raises(ValueError, match="the sequence ends at position 5; learned positions end at 4"):
            model(ids[:, 5:], cache=cache)
    assert cache.length == 5
