"""Which models of the library compute what ours do: by the names in a state dict, and by the settings in a config.json.

Many families give their layers BERT's, GPT-2's or ViT's names and compute something else with them. Most have weights
in their blocks or embeddings that ours lack. The rest differ only in what no weight shows: RoBERTa's positions begin
at 2, some GPT-2s have another activation, some ViTs another ε. Their config.json says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.models.feed_forward import FeedForward
from tfbook.models.gpt import GELU
from tfbook.models.norms import LayerNorm

Settings = Mapping[str, Any]  # a config.json


class Family(NamedTuple):
    """The families that our models of one kind can stand for; a missing setting has the first of its values."""

    kinds: Mapping[str, float]  # model_type → ε of the norms, unless the file has another one
    settings: Mapping[str, tuple[Any, ...]]  # under which ours compute the same
    heads: str  # the name of each of these settings
    epsilon: str
    activation: str
    default: str  # activation


BERT = Family(
    kinds=dict.fromkeys(("bert", "electra", "ernie", "splinter"), 1e-12),
    settings={
        "hidden_act": ("gelu", "gelu_python"),
        "position_embedding_type": ("absolute", None),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "use_task_id": (False,),
    },
    heads="num_attention_heads",
    epsilon="layer_norm_eps",
    activation="hidden_act",
    default="gelu",
)
GPT = Family(
    kinds={"gpt2": 1e-5},
    settings={
        "activation_function": (
            "gelu_new",
            "gelu_pytorch_tanh",
            "gelu",
            "gelu_python",
            "relu",
            "silu",
            "swish",
            "tanh",
        ),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    heads="n_head",
    epsilon="layer_norm_epsilon",
    activation="activation_function",
    default="gelu_new",
)
VIT = Family(
    kinds={"vit": 1e-12, "deit": 1e-12, "vit_mae": 1e-12, "vit_msn": 1e-6, "ijepa": 1e-6},
    settings={"hidden_act": ("gelu", "gelu_python"), "qkv_bias": (True,)},
    heads="num_attention_heads",
    epsilon="layer_norm_eps",
    activation="hidden_act",
    default="gelu",
)
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_python": F.gelu,
    "gelu_new": GELU,
    "gelu_pytorch_tanh": GELU,
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": torch.tanh,
}
_OF_BERT = ("Bert", "MaskedLanguageModel", "BertForPretraining", "Classifier", "Tagger")
FAMILIES = dict.fromkeys(_OF_BERT, BERT) | {"Gpt": GPT, "Vit": VIT, "Deit": VIT}  # by the name of our class

_PADDING = 1  # RoBERTa's id of it, and its position
_FROM_2 = "whose positions begin at 2, behind those of padding"
_BECAUSE = {
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "data2vec-text", "mra", "yoso", "nystromformer"), _FROM_2),
    "big_bird": "whose attention is sparse on long texts",
    "gpt_neo": "whose scores are not divided by √d_head",
}


class Chosen(NamedTuple):
    """The settings that a `Config` of ours follows."""

    epsilon: float
    activation: Callable[[Tensor], Tensor]


def read_settings(family: Family, settings: Settings, heads: int | None = None) -> Chosen:
    """The choices in a config.json. Raises ValueError for one that our models do not compute, and for other heads."""
    kind = str(settings.get("model_type"))
    if kind not in family.kinds:
        because = f", {_BECAUSE[kind]}" if kind in _BECAUSE else ""
        raise ValueError(f"settings are of model_type {kind}{because}; expected {' or '.join(family.kinds)}")
    for name, values in family.settings.items():
        if (found := settings.get(name, values[0])) not in values:
            expected = " or ".join(map(repr, values))
            raise ValueError(f"settings have {name} {found!r}, which our model does not compute; expected {expected}")
    if heads is not None and (found := settings.get(family.heads, heads)) != heads:
        raise ValueError(f"heads is {heads}; settings have {family.heads} {found}")
    activation = settings.get(family.activation, family.default)
    return Chosen(settings.get(family.epsilon, family.kinds[kind]), ACTIVATIONS[activation])


def check_model(model: nn.Module, settings: Settings) -> None:
    """Raises ValueError unless the parts of the model, which no weight shows, are those that the settings name."""
    family, sample = FAMILIES[type(model).__name__], torch.linspace(-3.0, 3.0, 13)
    chosen = read_settings(family, settings)
    for name, part in model.named_modules():
        if isinstance(heads := getattr(part, "heads", None), int):
            read_settings(family, settings, heads)
        if isinstance(part, LayerNorm) and part.eps != chosen.epsilon:
            raise ValueError(f"{name} of the model has eps {part.eps:g}; settings have {chosen.epsilon:g}")
        if isinstance(part, FeedForward) and not torch.allclose(part.activation(sample), chosen.activation(sample)):
            expected = settings.get(family.activation, family.default)
            raise ValueError(f"{name} of the model has another activation; settings have {expected}")


# ---- what a state dict shows -------------------------------------------------------------------------------------

_BODY = re.compile(r"(\w*embed\w*|encoder|decoder|layers?|blocks?|h|wte|wpe|rotary\w*)\.|pooler\.weight$")
_NO_WEIGHTS = re.compile(r"\.(position_ids|token_type_ids|mask_token|attn\.bias|attn\.masked_bias)$")
_BESIDE = re.compile(r"decoder\.")  # of a ViT that was trained to fill in patches


def check_names(kind: str, bare: Iterable[str], known: Callable[[str], bool]) -> None:
    """Raises ValueError for a weight in the embeddings or blocks for which ours have no place: what it does is lost."""
    for name in bare:
        beside = kind in ("Vit", "Deit") and _BESIDE.match(name)
        if _BODY.match(name) and not (known(name) or beside or _NO_WEIGHTS.search(f".{name}")):
            raise ValueError(f"state has {name}, for which a {kind} has no place, so it is another family's")


def check_positions(kind: str, state: Mapping[str, Tensor]) -> None:
    """Raises ValueError for a body that shows a sign of RoBERTa, since without a prefix no name tells it from BERT.

    RoBERTa and its kin have one type of tokens unless told otherwise, a position for padding, whose vector stays 0,
    and two positions more than the longest text, 514 or 4,098.
    """
    if kind in _OF_BERT and (sign := _sign_of_roberta(state)):
        found = f"state has {sign} and names without a prefix, as RoBERTa, XLM-R and CamemBERT have"
        raise ValueError(f"{found}, {_FROM_2}; expected its config.json as settings, to say that it is BERT's")


def _sign_of_roberta(state: Mapping[str, Tensor]) -> str | None:
    types = state.get("embeddings.token_type_embeddings.weight")
    if types is not None and types.shape[:1] == (1,):
        return "one type of tokens"
    positions = state.get("embeddings.position_embeddings.weight")
    if positions is None or positions.ndim != 2 or len(positions) < 3:
        return None
    if positions.any() and not positions[_PADDING].any():
        return f"zeros as position {_PADDING}"
    longest = len(positions) - 2
    return f"{len(positions)} positions" if longest >= 128 and longest.bit_count() == 1 else None
