"""Weights of torchvision's VisionTransformer by name, as `hugging_face` has them for another library, and of its Swin.

Theirs keeps W_Q, W_K and W_V below one another in one matrix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor, nn

from tfbook.interop import hugging_face
from tfbook.interop.hugging_face import Library, Loaded
from tfbook.models.swin import Swin
from tfbook.models.vit import VitConfig

_LAYER = "encoder.layers.encoder_layer_{}."
_BRANCH = "stack.blocks.{}.mixer.branch.W_"
_VIT = {
    "class_token": ("tokens.0",),
    "conv_proj": ("patches",),
    "encoder.pos_embedding": ("stack.position.embedding",),
    _LAYER + "ln_1": ("stack.blocks.{}.mixer.norm",),
    _LAYER + "self_attention.in_proj_weight": tuple(f"{_BRANCH}{name}.weight" for name in "QKV"),
    _LAYER + "self_attention.in_proj_bias": tuple(f"{_BRANCH}{name}.bias" for name in "QKV"),
    _LAYER + "self_attention.out_proj": (f"{_BRANCH}O",),
    _LAYER + "ln_2": ("stack.blocks.{}.feed_forward.norm",),
    _LAYER + "mlp.0": ("stack.blocks.{}.feed_forward.branch.up",),
    _LAYER + "mlp.3": ("stack.blocks.{}.feed_forward.branch.down",),
    "encoder.ln": ("stack.norm",),
    "heads.head": ("head",),
}
_OLD = {  # in the files of 2022, which torchvision still offers
    _LAYER + "mlp.linear_1": _VIT[_LAYER + "mlp.0"],
    _LAYER + "mlp.linear_2": _VIT[_LAYER + "mlp.3"],
}
TORCHVISION = Library({"Vit": _VIT}, {"Vit": _OLD})


def load_torchvision(model: nn.Module, state: Mapping[str, Tensor]) -> Loaded:
    """Copies a state dict of torchvision's into a `Vit` of the same shape, name by name.

    Raises TypeError for another model and for anything but a tensor, and ValueError for a weight of another shape and
    for one that is not finite floating-point numbers, as `load_hugging_face` does; then no weight has changed.
    """
    return hugging_face.load_hugging_face(model, state, TORCHVISION)


def save_torchvision(model: nn.Module) -> dict[str, Tensor]:
    """The model's weights under torchvision's names, for `load_state_dict` of their model with the same sizes.

    Raises TypeError for another model than `Vit`, and ValueError for one without learned positions or a class token.
    """
    return hugging_face.save_hugging_face(model, TORCHVISION)


def torchvision_config(state: Mapping[str, Tensor], *, heads: int) -> VitConfig:
    """Sizes of a state dict of torchvision's; the number of heads is in no shape and has to be given.

    Raises ValueError when the state dict has another form.
    """
    return hugging_face.vit_config(state, heads=heads, library=TORCHVISION, eps=1e-6)


# ---- Swin --------------------------------------------------------------------------------------------------------

_SWIN = {
    r"features\.0\.0\.": "patches.",
    r"features\.0\.2\.": "patch_norm.",
    r"\.norm1\.": ".mixer.norm.",
    r"\.norm2\.": ".feed_forward.norm.",
    r"\.attn\.proj\.": ".mixer.branch.attention.W_O.",
    r"\.attn\.relative_position_bias_table": ".mixer.branch.table",
    r"\.mlp\.0\.": ".feed_forward.branch.up.",
    r"\.mlp\.3\.": ".feed_forward.branch.down.",
}


def _swin_place(theirs: re.Match[str]) -> str:
    """Their features are, after the patches, a stage, a merging, a stage, …; ours of a merging begin its stage."""
    number, rest = int(theirs[1]), theirs[2]
    return f"stages.{number // 2}.blocks.{rest}" if number % 2 else f"stages.{number // 2}.merging.{rest}"


def _swin_names(theirs: str) -> tuple[str, ...]:
    """Our names for a weight of theirs; three for the joined W_Q, W_K and W_V, none for what is computed."""
    ours = theirs
    for pattern, name in _SWIN.items():
        ours = re.sub(pattern, name, ours)
    ours = re.sub(r"^features\.(\d+)\.(.*)", _swin_place, ours)
    if ours.endswith("relative_position_index"):
        return ()
    if ".attn.qkv." in ours:
        return tuple(ours.replace(".attn.qkv.", f".mixer.branch.attention.W_{name}.") for name in "QKV")
    return (ours,)


def load_torchvision_swin(model: Swin, state: Mapping[str, Tensor]) -> None:
    """Copies a state dict of torchvision's `swin_t`, `swin_s` or `swin_b` into a `Swin` of the same sizes.

    Raises RuntimeError, as `load_state_dict` does, for weights that are missing, left over or of another shape.
    """
    renamed: dict[str, Tensor] = {}
    for theirs, weight in state.items():
        names = _swin_names(theirs)
        renamed.update(zip(names, weight.chunk(max(len(names), 1)), strict=False))
    model.load_state_dict(renamed)
