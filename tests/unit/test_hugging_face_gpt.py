"""GPT-2 of Hugging Face and ours: the same weights give the same logits and the same text, and names go both ways."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import POSITIONS
from tfbook.generation.sampling import generate, greedy, top_k
from tfbook.interop.hugging_face import Loaded, gpt_config, load_hugging_face, save_hugging_face
from tfbook.models.blocks import Config, PostNorm
from tfbook.models.feed_forward import FeedForward
from tfbook.models.gpt import GPT2, GPT2_LARGE, GPT2_MEDIUM, GPT2_SMALL, GPT2_XL, Gpt

EXACT = replace(GPT2, feed_forward=partial(FeedForward, activation=F.gelu))  # without the approximation by tanh
ACTIVATIONS = {"gelu_new": GPT2, "gelu": EXACT}


def config(**sizes: int | str) -> transformers.GPT2Config:
    """Without dropout, so that training is as exact as the rest; attention written out, which ours is not."""
    return transformers.GPT2Config(
        **{"vocab_size": 30, "n_embd": 12, "n_head": 3, "n_layer": 2, "n_inner": 20, "n_positions": 16} | sizes,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        **dict.fromkeys(("bos_token_id", "eos_token_id")),
        attn_implementation="eager",
    )


def theirs_with(config: transformers.GPT2Config) -> transformers.GPT2LMHeadModel:
    """Every weight is drawn, those that begin as 0 or 1 as well."""
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


def ours_of(theirs: transformers.GPT2LMHeadModel) -> Gpt:
    """Our model with other weights, in the sizes of theirs and without dropout."""
    vocab, sizes = gpt_config(theirs.state_dict(), heads=theirs.config.n_head)
    feed_forward = ACTIVATIONS[theirs.config.activation_function].feed_forward
    return Gpt(vocab, replace(sizes, feed_forward=feed_forward, dropout=0.0)).eval()


@pytest.fixture
def theirs() -> transformers.GPT2LMHeadModel:
    return theirs_with(config())


@pytest.fixture
def ours(theirs: transformers.GPT2LMHeadModel) -> Gpt:
    return ours_of(theirs)


@torch.no_grad()
def same(ours: Gpt, theirs: transformers.GPT2LMHeadModel) -> bool:
    """Whether the two agree on one batch."""
    ids = torch.randint(theirs.config.vocab_size, (3, theirs.config.n_positions))
    return torch.allclose(ours(ids), theirs(ids).logits, rtol=1e-4, atol=1e-5)


# ---- the same numbers --------------------------------------------------------------------------------------------


@st.composite
def configurations(draw: st.DrawFn) -> transformers.GPT2Config:
    heads = draw(st.integers(1, 4))
    return config(
        vocab_size=draw(st.integers(2, 40)),
        n_embd=heads * draw(st.integers(1, 6)),
        n_head=heads,
        n_layer=draw(st.integers(1, 4)),
        n_inner=draw(st.integers(1, 30)),
        n_positions=draw(st.integers(2, 20)),
        activation_function=draw(st.sampled_from([*ACTIVATIONS])),
    )


@given(config=configurations(), rows=st.integers(1, 4), data=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=60)
@torch.no_grad()
def test_the_same_weights_give_the_same_logits(
    config: transformers.GPT2Config, rows: int, data: st.DataObject, seed: int
) -> None:
    """Over sizes and both GELUs: within 1e-5 of the logits' own size."""
    torch.manual_seed(seed)
    theirs = theirs_with(config)
    ours = ours_of(theirs)
    assert load_hugging_face(ours, theirs.state_dict()) == Loaded((), ())
    ids = torch.randint(config.vocab_size, (rows, data.draw(st.integers(1, config.n_positions))))
    other = theirs(ids).logits
    torch.testing.assert_close(ours(ids), other, rtol=1e-5, atol=1e-5 * max(1.0, float(other.std(correction=0))))


@given(config=configurations(), rows=st.integers(1, 3), data=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=25)
def test_the_same_weights_give_the_same_text(
    config: transformers.GPT2Config, rows: int, data: st.DataObject, seed: int
) -> None:
    """Token by token with a cache, to the last position that was learned."""
    torch.manual_seed(seed)
    theirs = theirs_with(config)
    ours = ours_of(theirs)
    load_hugging_face(ours, theirs.state_dict())
    time = data.draw(st.integers(1, config.n_positions - 1))
    ids, limit = torch.randint(config.vocab_size, (rows, time)), config.n_positions - time
    wanted = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, do_sample=False)
    assert torch.equal(generate(ours, ids, max_new_tokens=limit, filters=[greedy]), wanted)
    assert torch.equal(generate(ours, ids, max_new_tokens=limit, filters=[top_k(1)]), wanted)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_loss_and_every_gradient_are_the_same(activation: str) -> None:
    """Ours are compared under their names: gradients are packed and turned as weights are."""
    theirs = theirs_with(config(activation_function=activation)).train()
    ours = ours_of(theirs).train()
    load_hugging_face(ours, theirs.state_dict())
    ids = torch.randint(30, (3, 16))
    loss = F.cross_entropy(ours(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    other = theirs(ids, labels=ids).loss
    torch.testing.assert_close(loss, other, rtol=1e-5, atol=0)
    loss.backward()
    other.backward()
    for weight in ours.parameters():
        weight.data = weight.grad
    found = save_hugging_face(ours)
    for name, weight in theirs.named_parameters():
        torch.testing.assert_close(found[name], weight.grad, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    "sizes", [GPT2_SMALL, GPT2_MEDIUM, GPT2_LARGE, GPT2_XL], ids=["small", "medium", "large", "XL"]
)
def test_every_size_has_the_shapes_of_theirs(sizes: Config) -> None:
    """Name by name; nothing is computed here."""
    with torch.device("meta"):
        shape = {"n_embd": sizes.d_model, "n_head": sizes.heads, "n_layer": sizes.layers}
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).state_dict()
        ours = save_hugging_face(Gpt(50_257, sizes))
    assert {name: weight.shape for name, weight in ours.items()} == {name: w.shape for name, w in theirs.items()}


# ---- files -------------------------------------------------------------------------------------------------------


def test_what_save_pretrained_wrote_is_loaded(theirs: transformers.GPT2LMHeadModel, ours: Gpt, tmp_path: Path) -> None:
    """Its file holds the tied table once, which is no weight missing."""
    theirs.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in state
    assert not same(ours, theirs)
    assert load_hugging_face(ours, state) == Loaded((), ())
    assert same(ours, theirs)


def test_a_body_is_loaded_whose_names_have_no_prefix(theirs: transformers.GPT2LMHeadModel, ours: Gpt) -> None:
    """As in the first files of GPT-2, which were those of GPT2Model."""
    state = theirs.transformer.state_dict()
    assert not any(name.startswith("transformer.") for name in state)
    assert load_hugging_face(ours, state) == Loaded((), ())
    assert same(ours, theirs)


def test_the_masks_in_old_files_are_known(theirs: transformers.GPT2LMHeadModel, ours: Gpt) -> None:
    """They were buffers of each block; of a layer's own bias, nothing is overlooked."""
    mask = torch.ones(1, 1, 16, 16).tril()
    old = {f"transformer.h.{n}.attn.bias": mask for n in range(2)}
    old |= {f"transformer.h.{n}.attn.masked_bias": torch.tensor(-1e4) for n in range(2)}
    assert load_hugging_face(ours, theirs.state_dict() | old) == Loaded((), ())
    assert same(ours, theirs)


def test_missing_and_unexpected_weights_are_reported(theirs: transformers.GPT2LMHeadModel, ours: Gpt) -> None:
    """Of a packed weight that lacks, all three of ours; what is missing stays as it was."""
    state = dict(theirs.state_dict())
    del state["transformer.h.1.attn.c_attn.bias"]
    state |= {"transformer.h.2.ln_1.bias": torch.ones(12), "score.weight": torch.ones(2, 12)}
    missing = tuple(f"stack.blocks.1.mixer.branch.W_{name}.bias" for name in "QKV")
    before = [ours.get_parameter(name).clone() for name in missing]
    assert load_hugging_face(ours, state) == Loaded(missing, ("transformer.h.2.ln_1.bias", "score.weight"))
    assert all(torch.equal(ours.get_parameter(name), kept) for name, kept in zip(missing, before, strict=True))


def test_a_model_without_learned_positions_says_what_it_left(theirs: transformers.GPT2LMHeadModel) -> None:
    ours = Gpt(30, replace(GPT2, d_model=12, heads=3, d_ff=20, layers=2, position=POSITIONS["rotary"]))
    assert load_hugging_face(ours, theirs.state_dict()) == Loaded((), ("transformer.wpe.weight",))


# ---- from ours to theirs -----------------------------------------------------------------------------------------


@given(config=configurations(), seed=st.integers(0, 2**32))
@settings(max_examples=25)
def test_what_is_saved_is_a_state_dict_of_theirs(config: transformers.GPT2Config, seed: int) -> None:
    """No name missing, none left over; and it comes back bit by bit."""
    torch.manual_seed(seed)
    theirs = theirs_with(config)
    ours = ours_of(theirs)
    state = save_hugging_face(ours)
    assert state.keys() == theirs.state_dict().keys()
    assert all(weight.is_contiguous() for weight in state.values())
    theirs.load_state_dict(state, strict=True)
    assert same(ours, theirs)
    twin = ours_of(theirs)
    assert load_hugging_face(twin, state) == Loaded((), ())
    for name, weight in ours.state_dict().items():
        assert torch.equal(weight, twin.state_dict()[name])


def test_what_is_saved_is_what_was_loaded(theirs: transformers.GPT2LMHeadModel, ours: Gpt) -> None:
    load_hugging_face(ours, theirs.state_dict())
    for name, weight in save_hugging_face(ours).items():
        assert torch.equal(weight, theirs.state_dict()[name]), name


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"position": POSITIONS["rotary"]},
            "model has no stack.position.embedding; theirs expects it as transformer.wpe",
        ),
        ({"residual": PostNorm}, "model has no stack.norm; theirs expects it as transformer.ln_f"),
    ],
)
def test_what_theirs_cannot_compute_is_not_saved(choices: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        save_hugging_face(Gpt(30, replace(GPT2, d_model=12, heads=3, d_ff=20, layers=2, **choices)))


def test_a_model_without_names_is_not_saved() -> None:
    with pytest.raises(TypeError, match=r"model is a Linear; expected one of Bert, .*, Gpt"):
        save_hugging_face(nn.Linear(2, 2))


# ---- refused -----------------------------------------------------------------------------------------------------


def refused(model: Gpt, state: Mapping[str, Any], message: str, error: type[Exception] = ValueError) -> None:
    """The message, and no weight changed."""
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(error, match=message):
        load_hugging_face(model, state)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_a_packed_weight_of_another_shape_is_refused(theirs: transformers.GPT2LMHeadModel, ours: Gpt) -> None:
    """In the shape in which their file has it: (in, out), three side by side."""
    branch = r"stack.blocks.0.mixer.branch.W_"
    message = (
        r"transformer.h.0.attn.c_attn.weight has shape \(36, 12\); "
        rf"{branch}Q.weight with {branch}K.weight with {branch}V.weight of the model has \(12, 36\)"
    )
    state = dict(theirs.state_dict())
    state["transformer.h.0.attn.c_attn.weight"] = state["transformer.h.0.attn.c_attn.weight"].T
    refused(ours, state, message)


def _quantized(weight: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch will not have these for ever
        return torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8)


def _with(weight: Tensor, number: float) -> Tensor:
    changed = weight.clone()
    changed[-1, -1] = number
    return changed


LAST = "transformer.h.1.mlp.c_proj.weight"  # whose block comes after others that could be copied before
NOT_FINITE = rf"{LAST} holds NaN or infinity as torch.float32; expected finite numbers"
NOT_FLOATING = rf"state has {LAST} with dtype {{}}; expected floating-point numbers"
NOT_A_TENSOR = rf"state has a {{}} as {LAST}; expected a Tensor"
UNUSABLE: dict[str, tuple[Callable[[Tensor], Any], type[Exception], str]] = {
    "NaN": (lambda w: _with(w, float("nan")), ValueError, NOT_FINITE),
    "infinity": (lambda w: _with(w, float("inf")), ValueError, NOT_FINITE),
    "minus infinity": (lambda w: _with(w, float("-inf")), ValueError, NOT_FINITE),
    "beyond float32": (lambda w: _with(w.double(), 1e300), ValueError, NOT_FINITE),
    "integers": (lambda w: w.long(), ValueError, NOT_FLOATING.format("torch.int64")),
    "bytes": (lambda w: w.to(torch.int8), ValueError, NOT_FLOATING.format("torch.int8")),
    "Booleans": (lambda w: w > 0, ValueError, NOT_FLOATING.format("torch.bool")),
    "complex": (lambda w: w.to(torch.complex64), ValueError, NOT_FLOATING.format("torch.complex64")),
    "quantized": (_quantized, ValueError, NOT_FLOATING.format("torch.qint8")),
    "meta": (lambda w: w.to("meta"), ValueError, f"state has {LAST} on device meta with layout torch.strided"),
    "sparse": (lambda w: w.to_sparse(), ValueError, f"state has {LAST} on device cpu with layout torch.sparse_coo"),
    "array": (lambda w: w.numpy(), TypeError, NOT_A_TENSOR.format("ndarray")),
    "list": (lambda w: w.tolist(), TypeError, NOT_A_TENSOR.format("list")),
    "nothing": (lambda w: None, TypeError, NOT_A_TENSOR.format("NoneType")),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", UNUSABLE)
def test_what_is_no_finite_floating_point_tensor_is_refused(
    theirs: transformers.GPT2LMHeadModel, ours: Gpt, kind: str
) -> None:
    """In the last weight of the file, after everything else has been looked at, and in a packed one."""
    made, error, message = UNUSABLE[kind]
    for name in (LAST, "transformer.h.0.attn.c_attn.weight"):
        state = dict(theirs.state_dict())
        refused(ours, state | {name: made(state[name])}, message.replace(LAST, name), error)


def test_other_floating_point_numbers_are_taken(theirs: transformers.GPT2LMHeadModel, ours: Gpt) -> None:
    """As are parameters, and infinity where it stands for no weight."""
    for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn):
        state = dict(theirs.state_dict())
        state[LAST] = nn.Parameter(state[LAST].to(dtype))
        state["transformer.h.0.attn.masked_bias"] = torch.tensor(float("-inf"))
        assert load_hugging_face(ours, state) == Loaded((), ())
        assert torch.equal(ours.stack.blocks[1].feed_forward.branch.down.weight, state[LAST].float().T)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("qweight", torch.ones(2, 3, dtype=torch.int32), ValueError, "c_fc.qweight, as quantized models do; expected"),
        ("weight_scale", torch.ones(1), ValueError, "c_fc.weight_scale, as quantized models do; expected a weight and"),
        ("SCB", torch.ones(20), ValueError, "c_fc.SCB, as quantized models do; expected a weight and a bias"),
        ("_packed_params.dtype", torch.qint8, TypeError, "state has a dtype as .*c_fc._packed_params.dtype; expected"),
        ("_packed_params._packed_params", (torch.ones(2), None), TypeError, "state has a tuple as .*; expected a Tens"),
    ],
)
def test_the_state_of_a_quantized_model_is_refused(
    theirs: transformers.GPT2LMHeadModel, ours: Gpt, name: str, value: Any, error: type[Exception], message: str
) -> None:
    """Whose layers have other parts in place of a weight, or beside it; nothing is loaded without them."""
    state = dict(theirs.state_dict())
    del state["transformer.h.1.mlp.c_fc.weight"]
    refused(ours, state | {f"transformer.h.1.mlp.c_fc.{name}": value}, message, error)
    if error is TypeError:
        with pytest.raises(TypeError, match=message):
            gpt_config(state | {f"transformer.h.1.mlp.c_fc.{name}": value}, heads=3)


@pytest.mark.usefixtures("unchecked")
def test_a_model_that_cannot_take_them_is_refused(theirs: transformers.GPT2LMHeadModel, ours: Gpt) -> None:
    """Quantized, without numbers, or of complex ones."""
    state = theirs.state_dict()
    with pytest.raises(ValueError, match=r"model has embed\.weight on device meta .*; expected numbers in memory"):
        load_hugging_face(ours_of(theirs).to("meta"), state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(ours_of(theirs).to(torch.complex64), state, r"model has embed\.weight with dtype torch\.complex64")

    class Packed(nn.Linear):
        """Has more than tensors in its state, as the layers of quantized models have."""

        def get_extra_state(self) -> str:
            return "packed"

    ours.stack.blocks[1].feed_forward.branch.up = Packed(12, 20)
    with pytest.raises(TypeError, match=r"model has a str as stack\.blocks\.1\..*up\._extra_state; expected a Tens"):
        load_hugging_face(ours, state)


def test_another_head_than_the_table_is_refused(theirs: transformers.GPT2LMHeadModel, ours: Gpt) -> None:
    """Untied, theirs computes what ours cannot."""
    state = theirs.state_dict() | {"lm_head.weight": torch.zeros(30, 12)}
    message = "transformer.wte.weight and lm_head.weight differ; the model has one weight, unembed.weight, for both"
    refused(ours, state, message)


# ---- sizes -------------------------------------------------------------------------------------------------------


@given(config=configurations(), bare=st.booleans())
@settings(max_examples=25)
def test_sizes_are_read_from_the_shapes(config: transformers.GPT2Config, bare: bool) -> None:
    """All but the heads, which no shape shows, and the activation."""
    theirs = transformers.GPT2LMHeadModel(config)
    vocab, sizes = gpt_config((theirs.transformer if bare else theirs).state_dict(), heads=config.n_head)
    assert vocab == config.vocab_size
    assert sizes == replace(
        GPT2,
        d_model=config.n_embd,
        heads=config.n_head,
        d_ff=config.n_inner,
        layers=config.n_layer,
        max_length=config.n_positions,
    )


def test_sizes_are_refused_where_they_cannot_be(theirs: transformers.GPT2LMHeadModel) -> None:
    with pytest.raises(ValueError, match="heads is 5 and d_model is 12; expected heads to divide d_model"):
        gpt_config(theirs.state_dict(), heads=5)
    with pytest.raises(ValueError, match=r"state lacks 'wte.weight', which every GPT-2 has"):
        gpt_config(transformers.BertModel(transformers.BertConfig(num_hidden_layers=1)).state_dict(), heads=3)
