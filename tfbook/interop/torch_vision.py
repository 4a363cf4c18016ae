"""Weights of torchvision's VisionTransformer by name, in and out, as `hugging_face` has it for another library.

Theirs keeps W_Q, W_K and W_V below one another in one matrix.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from tfbook.interop import hugging_face
from tfbook.interop.hugging_face import Library, Loaded
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
