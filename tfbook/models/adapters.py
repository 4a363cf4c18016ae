"""Low-rank adapters (LoRA): a trained model learns a new task in two thin matrices beside each frozen one.

Shapes: d_in, d_out and rank of a linear layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.checks import check_positive

Model = TypeVar("Model", bound=nn.Module)


class LoraLinear(nn.Linear):
    """x Wᵀ + b + (α / rank) x Aᵀ Bᵀ, with W and b of `layer`, frozen; A and B are trained (Hu et al., 2021, eq. 3).

    A starts normal with variance 1 / d_in and B at 0, so the output is unchanged before the first step (section 4.1).
    W keeps its name `weight`, so the model's parameter counts and state dicts still work.
    """

    A: Float[Tensor, "rank d_in"]
    B: Float[Tensor, "d_out rank"]
    scale: Float[Tensor, ""]  # saved with A and B, which are meaningless without it

    def __init__(self, layer: nn.Linear, *, rank: int, alpha: float):
        check_positive(rank=rank)
        nn.Module.__init__(self)  # not nn.Linear's, which would initialize weights
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.A = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        self.B = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        self.register_buffer("scale", layer.weight.new_tensor(alpha / rank))
        nn.init.normal_(self.A, std=layer.in_features**-0.5)
        layer.requires_grad_(requires_grad=False)

    def forward(self, x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_out"]:
        """The frozen layer plus the adapter's output; B A is never built, since two thin products are cheaper."""
        return F.linear(x, self.weight, self.bias) + self.scale * F.linear(F.linear(x, self.A), self.B)


# ---- into a model ------------------------------------------------------------------------------------------------


def add_lora(model: Model, *, rank: int, alpha: float, where: Collection[str] = ("W_Q", "W_V")) -> Model:
    """Freezes `model` in place, gives each linear layer whose name is in `where` an adapter, and returns the model.

    `where` holds last names, as in "stack.blocks.0.mixer.branch.W_Q"; Hu et al. (2021, section 7.1) adapt queries and
    values. Unfreeze whatever else should be trained, such as a new head, afterwards. Raises TypeError for a single
    string, and ValueError for a rank below 1, for a name that no linear layer has, and for a layer whose weight is tied
    to another's, such as an embedding's; then nothing has changed.
    """
    check_positive(rank=rank)
    if isinstance(where, str):
        raise TypeError(f"where is {where!r}; expected a collection of names, such as [{where!r}]")
    layers = {name: layer for name, layer in _layers(model, nn.Linear).items() if _last(name) in where}
    if missing := sorted(set(where) - {_last(name) for name in layers}):
        known = sorted({_last(name) for name in _layers(model, nn.Linear)})
        raise ValueError(f"where holds {missing[0]!r}; the linear layers of model are {', '.join(known)}")
    holders = Counter(id(weight) for part in model.modules() for weight in part.parameters(recurse=False))
    for name, layer in layers.items():
        if holders[id(layer.weight)] > 1:
            raise ValueError(f"the weight of {name} is tied to another; an adapter would change one of them alone")
    model.requires_grad_(requires_grad=False)
    for name, layer in layers.items():
        _put(model, name, LoraLinear(layer, rank=rank, alpha=alpha))
    return model


def lora_state(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the adapters alone, A, B and scale of each: all that has to be saved beside the original model."""
    layers = _layers(model, LoraLinear)
    return {f"{name}.{key}": getattr(layer, key).detach().clone() for name, layer in layers.items() for key in _KEYS}


def load_lora(model: Model, state: Mapping[str, Tensor]) -> Model:
    """Replaces the adapters of `model`, in place, by those that `lora_state` returned, and returns the model.

    Raises ValueError when `state` has none, or one that does not fit a linear layer of the model.
    """
    adapters = _adapters(model, state)
    _drop(model)
    model.requires_grad_(requires_grad=False)
    for name, (a, b, scale) in adapters.items():
        layer = LoraLinear(_plain(model.get_submodule(name)), rank=len(a), alpha=float(scale) * len(a))
        with torch.no_grad():
            layer.A.copy_(a)
            layer.B.copy_(b)
        _put(model, name, layer)
    return model


def trained_count(model: nn.Module) -> int:
    """The number of trained parameters: those that require a gradient."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


# ---- layers by their names ---------------------------------------------------------------------------------------

_KEYS = ("A", "B", "scale")


def _layers(model: nn.Module, kind: type[nn.Module]) -> dict[str, Any]:
    """The layers of exactly this type, by name; a layer that is used twice is listed once."""
    return {name: layer for name, layer in model.named_modules() if type(layer) is kind}


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _put(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Puts a layer in the place of the one of this name, under all of its names."""
    old = model.get_submodule(name)
    for each in [each for each, part in model.named_modules(remove_duplicate=False) if part is old]:
        parent, _, own = each.rpartition(".")
        setattr(model.get_submodule(parent), own, layer)


def _plain(layer: Any) -> nn.Linear:
    """A linear layer that shares these weights."""
    with torch.device("meta"):  # so that no weights are initialized
        plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    plain.weight, plain.bias = layer.weight, layer.bias
    return plain


def _drop(model: Model) -> Model:
    for name, layer in _layers(model, LoraLinear).items():
        _put(model, name, _plain(layer))
    return model


def _adapters(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, ...]]:
    """A, B and scale of each layer."""
    layers = _layers(model, nn.Linear) | _layers(model, LoraLinear)
    names = dict.fromkeys(key.rpartition(".")[0] for key in state)
    if not names:
        raise ValueError("state holds no adapters; expected what `lora_state` returns")
    for name in names:
        if name not in layers or any(f"{name}.{key}" not in state for key in _KEYS):
            raise ValueError(f"state holds {name!r}; expected A, B and scale of a linear layer of model")
        a, b, layer = state[f"{name}.A"], state[f"{name}.B"], layers[name]
        rank = a.shape[0] if a.ndim else 0
        if not rank or (a.shape, b.shape) != ((rank, layer.in_features), (layer.out_features, rank)):
            found = f"{name}: A is {tuple(a.shape)} and B is {tuple(b.shape)}"
            raise ValueError(f"{found}; expected (rank, {layer.in_features}) and ({layer.out_features}, rank)")
    return {name: tuple(state[f"{name}.{key}"] for key in _KEYS) for name in names}
