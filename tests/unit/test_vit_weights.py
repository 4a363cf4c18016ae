"""ViT of torchvision and of Hugging Face, and ours: the same weights give the same logits, and names go both ways."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torchvision.models import VisionTransformer
from torchvision.models.vision_transformer import interpolate_embeddings

from tfbook.attention import POSITIONS
from tfbook.interop import hugging_face, torch_vision
from tfbook.interop.hugging_face import Loaded
from tfbook.models.gpt import GPT2, Gpt
from tfbook.models.vit import Deit, Vit, VitConfig

LABELS = 3
POOLER = ("pooler.dense.weight", "pooler.dense.bias")  # in their body, and used by no head


@st.composite
def configurations(draw: st.DrawFn) -> VitConfig:
    heads, patch = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    side = patch * draw(st.integers(1, 4))
    return VitConfig(
        d_model=heads * draw(st.integers(2, 5)),
        heads=heads,
        d_ff=draw(st.integers(1, 12)),
        layers=draw(st.integers(1, 3)),
        height=side,
        width=side,
        patch=patch,
    )


LITTLE = VitConfig(d_model=8, heads=2, d_ff=12, layers=2, height=8, width=8, patch=2)


def torchvision_s(config: VitConfig) -> VisionTransformer:
    """It reads colour images alone."""
    shape = {"image_size": config.height, "patch_size": config.patch, "num_layers": config.layers}
    width = {"num_heads": config.heads, "hidden_dim": config.d_model, "mlp_dim": config.d_ff}
    return VisionTransformer(**shape, **width, num_classes=LABELS)


def hugging_face_s(
    kind: type[transformers.PreTrainedModel], made: type[transformers.PretrainedConfig]
) -> Callable[[VitConfig], transformers.PreTrainedModel]:
    """Without dropout; attention written out, which ours is not."""

    def build(config: VitConfig) -> transformers.PreTrainedModel:
        shape = {"image_size": config.height, "patch_size": config.patch, "num_hidden_layers": config.layers}
        width = {"num_attention_heads": config.heads, "hidden_size": config.d_model, "intermediate_size": config.d_ff}
        drops = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
        return kind(made(**shape, **width, **drops, num_labels=LABELS, attn_implementation="eager"))

    return build


class Peer(NamedTuple):
    """A model of theirs, how its weights and sizes are read, ours, and what theirs says of images."""

    theirs: Callable[[VitConfig], nn.Module]
    load: Callable[[nn.Module, Mapping[str, Tensor]], Loaded]
    save: Callable[[nn.Module], dict[str, Tensor]]
    config: Callable[..., VitConfig]
    ours: type[Vit]
    said: Callable[[nn.Module, Tensor], Tensor]


TORCH_VISION = torch_vision.load_torchvision, torch_vision.save_torchvision, torch_vision.torchvision_config
HUGGING_FACE = hugging_face.load_hugging_face, hugging_face.save_hugging_face, hugging_face.vit_config
PEERS = {
    "torchvision": Peer(torchvision_s, *TORCH_VISION, Vit, lambda model, images: model(images)),
    "ViT": Peer(
        hugging_face_s(transformers.ViTForImageClassification, transformers.ViTConfig),
        *HUGGING_FACE,
        Vit,
        lambda model, images: model(images).logits,
    ),
    "DeiT": Peer(
        hugging_face_s(transformers.DeiTForImageClassificationWithTeacher, transformers.DeiTConfig),
        *HUGGING_FACE,
        Deit,
        lambda model, images: model(images).logits,
    ),
}
every_peer = pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)


def theirs_with(peer: Peer, config: VitConfig) -> nn.Module:
    """Every weight is drawn, those that begin as 0 or 1 as well."""
    model = peer.theirs(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


def ours_of(peer: Peer, theirs: nn.Module, config: VitConfig) -> Vit:
    """Our model with other weights, in the sizes of theirs."""
    return peer.ours(LABELS, peer.config(theirs.state_dict(), heads=config.heads)).eval()


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    """Within `tolerance` of the numbers' own size."""
    scale = max(1.0, float(theirs.detach().std(correction=0)))
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * scale)


# ---- the same numbers --------------------------------------------------------------------------------------------


@every_peer
@given(config=configurations(), rows=st.integers(1, 3), seed=st.integers(0, 2**32))
@settings(max_examples=25)
@torch.no_grad()
def test_the_same_weights_give_the_same_logits(peer: Peer, config: VitConfig, rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    theirs = theirs_with(peer, config)
    ours = ours_of(peer, theirs, config)
    assert peer.load(ours, theirs.state_dict()) == Loaded((), ())
    images = torch.randn(rows, 3, config.height, config.width)
    close(ours(images), peer.said(theirs, images))


@given(config=configurations(), new=st.integers(1, 6), seed=st.integers(0, 2**32))
@settings(max_examples=25)
@torch.no_grad()
def test_torchvision_s_at_another_resolution(config: VitConfig, new: int, seed: int) -> None:
    """Its own function makes the positions of its larger or smaller model."""
    torch.manual_seed(seed)
    peer, side = PEERS["torchvision"], new * config.patch
    theirs = theirs_with(peer, config)
    ours = ours_of(peer, theirs, config)
    torch_vision.load_torchvision(ours, theirs.state_dict())
    other = torchvision_s(replace(config, height=side, width=side)).eval()
    other.load_state_dict(interpolate_embeddings(side, config.patch, theirs.state_dict()))
    images = torch.randn(2, 3, side, side)
    close(ours.at(side, side, corners=True)(images), other(images), 1e-4)


@given(config=configurations(), rows=st.integers(1, 6), columns=st.integers(1, 6), seed=st.integers(0, 2**32))
@settings(max_examples=25)
@torch.no_grad()
def test_hugging_face_s_at_another_resolution(config: VitConfig, rows: int, columns: int, seed: int) -> None:
    """Theirs interpolates as DINO's code does, as soon as the images are of another size."""
    torch.manual_seed(seed)
    peer = PEERS["ViT"]
    theirs = theirs_with(peer, config)
    ours = ours_of(peer, theirs, config)
    hugging_face.load_hugging_face(ours, theirs.state_dict())
    images = torch.randn(2, 3, rows * config.patch, columns * config.patch)
    found = ours.at(*images.shape[2:])(images)
    close(found, theirs(images, interpolate_pos_encoding=True).logits, 1e-4)


@every_peer
def test_every_gradient_is_the_same(peer: Peer) -> None:
    """Theirs are loaded into a model of ours as if they were weights: packed ones come apart as those do."""
    theirs = theirs_with(peer, LITTLE).train()
    ours = ours_of(peer, theirs, LITTLE).train()
    peer.load(ours, theirs.state_dict())
    images = torch.randn(3, 3, 8, 8)
    ours(images).square().sum().backward()
    peer.said(theirs, images).square().sum().backward()
    gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    twin = ours_of(peer, theirs, LITTLE)
    assert peer.load(twin, gradients) == Loaded((), ())
    for (name, weight), other in zip(ours.named_parameters(), twin.parameters(), strict=True):
        slack = 1e-5 * max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(weight.grad, other.detach(), rtol=1e-4, atol=slack, msg=name)


# ---- files -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def same(peer: Peer, ours: Vit, theirs: nn.Module) -> bool:
    """Whether the two agree on one batch."""
    images = torch.randn(2, 3, LITTLE.height, LITTLE.width)
    return torch.allclose(ours(images), peer.said(theirs, images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["ViT", "DeiT"])
def test_what_save_pretrained_wrote_is_loaded_and_the_other_way_round(name: str, tmp_path: Path) -> None:
    """Whatever the names in memory are, and they changed with transformers 5, files keep theirs."""
    peer = PEERS[name]
    theirs = theirs_with(peer, LITTLE)
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    state, ours = load_file(file), ours_of(peer, theirs, LITTLE)
    assert not same(peer, ours, theirs)
    assert hugging_face.load_hugging_face(ours, state) == Loaded((), ())
    assert same(peer, ours, theirs)
    found = hugging_face.save_hugging_face(ours)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], weight) for name, weight in state.items())
    for weight in ours.parameters():
        weight.data.neg_()
    save_file(hugging_face.save_hugging_face(ours), file, metadata={"format": "pt"})
    assert same(peer, ours, type(theirs).from_pretrained(tmp_path).eval())


def test_what_is_saved_is_a_state_dict_of_torchvision_s() -> None:
    theirs = theirs_with(PEERS["torchvision"], LITTLE)
    ours = ours_of(PEERS["torchvision"], theirs, LITTLE)
    theirs.load_state_dict(torch_vision.save_torchvision(ours), strict=True)
    assert same(PEERS["torchvision"], ours, theirs)


def test_torchvision_s_files_of_2022_are_loaded() -> None:
    """Their feed-forward layers had other names, under which torchvision's own model reads them as well."""
    theirs = theirs_with(PEERS["torchvision"], LITTLE)
    old = {
        name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): weight
        for name, weight in theirs.state_dict().items()
    }
    assert sum("mlp.linear_" in name for name in old) == 8
    ours = ours_of(PEERS["torchvision"], theirs, LITTLE)
    assert torch_vision.load_torchvision(ours, old) == Loaded((), ())
    assert same(PEERS["torchvision"], ours, theirs)


def test_a_body_comes_alone_and_leaves_the_head_as_it_was() -> None:
    body = hugging_face_s(transformers.ViTModel, transformers.ViTConfig)(LITTLE).eval()
    config = hugging_face.vit_config(body.state_dict(), heads=2)
    ours = Vit(LABELS, config).eval()
    assert hugging_face.load_hugging_face(ours, body.state_dict()) == Loaded(("head.weight", "head.bias"), POOLER)
    images = torch.randn(2, 3, 8, 8)
    close(ours.representations(images), body(images).last_hidden_state)


def test_missing_and_unexpected_weights_are_reported() -> None:
    """Of a packed weight that lacks, all three of ours; what is missing stays as it was."""
    theirs = theirs_with(PEERS["torchvision"], LITTLE)
    ours, state = ours_of(PEERS["torchvision"], theirs, LITTLE), theirs.state_dict()
    del state["encoder.layers.encoder_layer_1.self_attention.in_proj_bias"]
    state["heads.pre_logits.weight"] = torch.ones(2, 2)
    missing = tuple(f"stack.blocks.1.mixer.branch.W_{name}.bias" for name in "QKV")
    before = [ours.get_parameter(name).clone() for name in missing]
    assert torch_vision.load_torchvision(ours, state) == Loaded(missing, ("heads.pre_logits.weight",))
    assert all(torch.equal(ours.get_parameter(name), kept) for name, kept in zip(missing, before, strict=True))


# ---- refused -----------------------------------------------------------------------------------------------------


def test_positions_of_another_resolution_are_refused() -> None:
    """They have to be interpolated; the names before that one are not copied either."""
    theirs = theirs_with(PEERS["torchvision"], LITTLE)
    ours = Vit(LABELS, replace(LITTLE, height=12, width=12))
    before = ours.patches.weight.clone()
    message = r"encoder.pos_embedding has shape \(1, 17, 8\); stack.position.embedding of the model has \(1, 37, 8\)"
    with pytest.raises(ValueError, match=message):
        torch_vision.load_torchvision(ours, theirs.state_dict())
    assert torch.equal(ours.patches.weight, before)


@pytest.mark.usefixtures("unchecked")
@every_peer
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda weight: weight / 0, ValueError, "holds NaN or infinity as torch.float32; expected finite numbers"),
        (lambda weight: weight.int(), ValueError, "with dtype torch.int32; expected floating-point numbers"),
        (lambda weight: weight.bool(), ValueError, "with dtype torch.bool; expected floating-point numbers"),
        (lambda weight: weight.cfloat(), ValueError, "with dtype torch.complex64; expected floating-point numbers"),
        (lambda weight: weight.to("meta"), ValueError, "on device meta with layout torch.strided; expected numbers in"),
        (lambda weight: weight.numpy(), TypeError, "state has a ndarray as .*; expected a Tensor"),
    ],
    ids=["infinity", "integers", "Booleans", "complex", "meta", "array"],
)
def test_what_is_no_finite_floating_point_tensor_is_refused(
    peer: Peer, change: Callable[[Tensor], Any], error: type[Exception], message: str
) -> None:
    """Each weight in turn; no other one is copied."""
    theirs = theirs_with(peer, LITTLE)
    ours, state = ours_of(peer, theirs, LITTLE), theirs.state_dict()
    before = {name: weight.clone() for name, weight in ours.state_dict().items()}
    for name, weight in state.items():
        with pytest.raises(error, match=message) as caught:
            peer.load(ours, state | {name: change(weight)})
        assert name in str(caught.value)
    assert all(torch.equal(weight, before[name]) for name, weight in ours.state_dict().items())


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (Deit(LABELS, LITTLE), TypeError, "model is a Deit; expected one of Vit"),
        (Gpt(9, replace(GPT2, d_model=4, heads=1, layers=1)), TypeError, "model is a Gpt; expected one of Vit"),
        (
            Vit(LABELS, replace(LITTLE, tokens=0)),
            ValueError,
            "model has no tokens.0; theirs expects it as class_token",
        ),
        (
            Vit(LABELS, replace(LITTLE, position=POSITIONS["none"])),
            ValueError,
            "model has no stack.position.embedding; theirs expects it as encoder.pos_embedding",
        ),
    ],
    ids=["deit", "gpt", "mean", "no positions"],
)
def test_what_torchvision_s_cannot_compute_is_not_saved(model: nn.Module, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        torch_vision.save_torchvision(model)


# ---- sizes -------------------------------------------------------------------------------------------------------


@every_peer
@given(config=configurations())
@settings(max_examples=15)
def test_sizes_are_read_from_the_shapes(peer: Peer, config: VitConfig) -> None:
    """All but the heads, which no shape shows, and what is added to variances, of which each library has its own."""
    theirs = peer.theirs(config)
    found = peer.config(theirs.state_dict(), heads=config.heads)
    assert found.norm(1).eps == (1e-6 if peer.load is torch_vision.load_torchvision else theirs.config.layer_norm_eps)
    assert replace(found, norm=config.norm) == replace(config, tokens=2 if peer.ours is Deit else 1)


def test_sizes_are_refused_where_they_cannot_be() -> None:
    state = torchvision_s(LITTLE).state_dict()
    with pytest.raises(ValueError, match="heads is 3 and d_model is 8; expected heads to divide d_model"):
        torch_vision.torchvision_config(state, heads=3)
    wide = state | {"encoder.pos_embedding": torch.ones(1, 13, 8)}
    with pytest.raises(ValueError, match="state has positions for 12 patches; expected those of a square image"):
        torch_vision.torchvision_config(wide, heads=2)
    del state["conv_proj.weight"]
    with pytest.raises(ValueError, match=r"state has nothing for patches.weight, which every ViT has"):
        torch_vision.torchvision_config(state, heads=2)
