"""Weights of Hugging Face's models by name: which of theirs is which of ours, which are missing or left over.

Theirs differ from ours in more than names. GPT-2 keeps W_Q, W_K and W_V side by side in one matrix, and all matrices of
its blocks as (in, out), where PyTorch's `Linear` has (out, in). `torch_vision` does the same for another library.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from tfbook.interop import families
from tfbook.interop.families import Family, Settings
from tfbook.interop.names import NAMES, VIT_IN_MEMORY, Rules
from tfbook.models.bert import BERT
from tfbook.models.blocks import Config
from tfbook.models.feed_forward import FeedForward
from tfbook.models.gpt import GPT2
from tfbook.models.norms import LayerNorm
from tfbook.models.vit import VitConfig

C = TypeVar("C", bound=Config)

# ---- names -------------------------------------------------------------------------------------------------------


class Library(NamedTuple):
    """A library's names for the layers of our models, by the name of our class."""

    names: Mapping[str, Rules]
    also: Mapping[str, Rules]  # further names, which are read and never written

    def read(self, model: nn.Module) -> Rules:
        """Every name that may stand in a state dict. Raises TypeError for a model without a list of names."""
        return {**self.written(model), **self.also.get(type(model).__name__, {})}

    def written(self, model: nn.Module) -> Rules:
        """The names that files have. Raises TypeError for a model without a list of names."""
        kind = type(model).__name__
        if kind not in self.names:
            raise TypeError(f"model is a {kind}; expected one of {', '.join(self.names)}")
        return self.names[kind]


HUGGING_FACE = Library(NAMES, dict.fromkeys(("Vit", "Deit"), VIT_IN_MEMORY))
_NUMBER = re.compile(r"(?<=[._])\d+(?=\.)")  # of a block
_NORM = re.compile(r"(LayerNorm|layernorm(_\w+)?|\bln(_\w)?)$")
_OF_A_NORM = {"gamma": "weight", "beta": "bias"}  # in old files
_MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)$")  # no weights: old files of GPT-2 hold the causal mask, too


def _bare(theirs: str) -> str:
    """The name in a body that is saved alone; in a model with a head, the body's begin with `bert.` or so."""
    return re.sub(r"^(bert|transformer|vit|deit)\.", "", theirs)


def our_names(theirs: str, rules: Rules) -> tuple[str, ...]:
    """Our names for a weight of theirs, or for those that lie in it side by side; none where it has no place here."""
    number = _NUMBER.search(theirs)
    general = _bare(_NUMBER.sub("{}", theirs, count=1))
    layer, _, last = general.rpartition(".")
    known = {_bare(name): ours for name, ours in rules.items()}
    ours = known.get(general) or tuple(
        f"{name}.{_OF_A_NORM.get(last, last) if _NORM.search(layer) else last}" for name in known.get(layer, ())
    )
    return tuple(name.format(number and number[0]) for name in ours)


def _turned(theirs: str, weight: Tensor) -> Tensor:
    """From (in, out) to (out, in) or back, where GPT-2's layers, all called `c_…`, have the former."""
    return weight.mT if re.search(r"\.c_\w+\.weight$", theirs) else weight


def _joined(theirs: str, ours: Sequence[Tensor]) -> Tensor:
    """Our weights side by side as one of theirs."""
    return _turned(theirs, ours[0] if len(ours) == 1 else torch.cat([*ours])).contiguous()


def _check_form(where: str, state: Mapping[str, Any], used: Iterable[str]) -> None:
    """Raises TypeError unless the whole state is tensors, ValueError unless those used are plain floating point."""
    for name, weight in state.items():
        if not isinstance(weight, Tensor):
            raise TypeError(f"{where} has a {type(weight).__name__} as {name}; expected a Tensor")
    for name in used:
        weight = state[name]
        if not weight.is_floating_point():
            raise ValueError(f"{where} has {name} with dtype {weight.dtype}; expected floating-point numbers")
        if weight.is_meta or weight.layout != torch.strided:
            found = f"on device {weight.device} with layout {weight.layout}"
            raise ValueError(f"{where} has {name} {found}; expected numbers in memory, torch.strided")


def _check_not_quantized(state: Iterable[str], rules: Rules) -> None:
    """Raises ValueError when a layer that has a place here brings more than a weight and a bias, such as a scale."""
    layers = {_bare(theirs) for theirs in rules}
    for name in state:
        layer, _, last = _bare(_NUMBER.sub("{}", name, count=1)).rpartition(".")
        if layer in layers and last not in ("weight", "bias", *_OF_A_NORM):
            raise ValueError(f"state has {name}, as quantized models do; expected a weight and a bias for each layer")


def _places(theirs: Iterable[str], rules: Rules, own: Mapping[str, Tensor]) -> dict[str, tuple[str, ...]]:
    """Those of their names that stand for weights which the model has, and these weights."""
    return {name: ours for name in theirs if (ours := our_names(name, rules)) and own.keys() >= {*ours}}


def _check_halves(own: Iterable[str], filled: Iterable[str]) -> None:
    """Raises ValueError where the state has only half of a layer in every block: weights without biases, or these."""
    there = {_NUMBER.sub("{}", name, count=1) for name in filled}
    for name in own:
        kind = _NUMBER.sub("{}", name, count=1)
        layer, _, half = kind.rpartition(".")
        other = {"weight": "bias", "bias": "weight"}.get(half)
        if "{}" in kind and kind not in there and f"{layer}.{other}" in there:
            raise ValueError(f"state has a {other} and no {half} for {layer}, so it is another family's")


# ---- from theirs to ours and back --------------------------------------------------------------------------------


class Loaded(NamedTuple):
    """The weights on which a file and a model disagree."""

    missing: tuple[str, ...]  # weights of ours that it does not hold; they stay as they were
    unexpected: tuple[str, ...]  # its names that stand for nothing here

    def __str__(self) -> str:
        if not self.missing and not self.unexpected:
            return "every weight has its place"
        return f"missing: {', '.join(self.missing) or 'none'}; unexpected: {', '.join(self.unexpected) or 'none'}"


@torch.no_grad()
def load_hugging_face(
    model: nn.Module,
    state: Mapping[str, Tensor],
    library: Library = HUGGING_FACE,
    *,
    settings: Settings | None = None,
) -> Loaded:
    """Copies a state dict of the library's into one of our models of the same shape, name by name.

    `settings`, the library's config.json, says what no weight shows, such as the activation. Raises TypeError for a
    model without a list of names and for anything but a tensor, such as an array; and ValueError for a weight of
    another shape, for two that differ where the model has one, for anything but finite floating-point numbers in
    memory, where the state or the model is quantized, and for another family's state or settings. Then no weight has
    changed.
    """
    own = model.state_dict(keep_vars=True)  # the parameters themselves: those that are tied are the same object
    rules = library.read(model)
    if settings is not None:
        families.check_model(model, settings)
    places = _places(state, rules, own)
    _check_form("model", own, chain.from_iterable(places.values()))
    _check_form("state", state, places)
    _check_not_quantized(state, rules)
    if places:
        families.check_names(type(model).__name__, map(_bare, state), lambda name: bool(our_names(name, rules)))
    if settings is None:
        families.check_positions(type(model).__name__, state)
    given: dict[int, tuple[str, Tensor]] = {}
    for theirs, names in places.items():
        shape, ours = tuple(state[theirs].shape), tuple(_joined(theirs, [own[name] for name in names]).shape)
        if shape != ours:
            raise ValueError(f"{theirs} has shape {shape}; {' with '.join(names)} of the model has {ours}")
        for name, weight in zip(names, _turned(theirs, state[theirs]).chunk(len(names)), strict=True):
            if not weight.to(own[name]).isfinite().all():
                raise ValueError(f"{theirs} holds NaN or infinity as {own[name].dtype}; expected finite numbers")
            first, same = given.setdefault(id(own[name]), (theirs, weight))
            if same is not weight and not torch.equal(same, weight):
                raise ValueError(f"{first} and {theirs} differ; the model has one weight, {name}, for both")
    filled = {name: given[id(weight)][1] for name, weight in own.items() if id(weight) in given}
    _check_halves(own, filled)
    model.load_state_dict(filled, strict=False)
    left_over = (theirs for theirs in state if theirs not in places and not _MASK.search(theirs))
    return Loaded(tuple(name for name in own if name not in filled), tuple(left_over))


@torch.no_grad()
def save_hugging_face(model: nn.Module, library: Library = HUGGING_FACE) -> dict[str, Tensor]:
    """The model's weights under the library's names, as in a file of their model with the same sizes.

    Tied weights stand under each of their names, as in a state dict of theirs, and no two share memory, which files of
    safetensors refuse. Raises TypeError for a model without a
    list of names, and ValueError for one that lacks a layer of theirs, as it does without learned positions.
    """
    rules, own = library.written(model), model.state_dict(keep_vars=True)
    found: dict[str, Tensor] = {}
    given: set[int] = set()
    blocks = dict.fromkeys(number for name in own for number in re.findall(r"\.blocks\.(\d+)\.", name))
    for layer, ours in rules.items():
        for number in blocks if "{}" in layer else [""]:
            spelled = [layer.format(number) + last for last in ("", ".weight", ".bias")]
            places = _places(spelled, rules, own)
            if not places:
                raise ValueError(f"model has no {' or '.join(ours)}; theirs expects it as {layer}")
            for theirs, names in places.items():
                joined = _joined(theirs, [own[name].detach() for name in names])
                found[theirs] = joined.clone() if id(own[names[0]]) in given else joined
                given |= {id(own[name]) for name in names}
    return found


# ---- sizes -------------------------------------------------------------------------------------------------------


def bert_config(state: Mapping[str, Tensor], *, heads: int, settings: Settings | None = None) -> tuple[int, Config]:
    """Vocabulary and sizes of a BERT-shaped state dict; the number of heads is in no shape and has to be given.

    ε and the activation are those of `settings`, the library's config.json, or else those of the published BERT. Raises
    ValueError when the state dict is not BERT-shaped or the settings are another family's, and TypeError when the state
    holds more than tensors.
    """
    words, positions = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
    wide = "encoder.layer.0.intermediate.dense.bias"
    vocab, config = _config("BERT", BERT, heads, state, words, positions, wide)
    return vocab, config if settings is None else _following(families.BERT, settings, config)


def gpt_config(state: Mapping[str, Tensor], *, heads: int, settings: Settings | None = None) -> tuple[int, Config]:
    """The same for a GPT-2-shaped state dict."""
    vocab, config = _config("GPT-2", GPT2, heads, state, "wte.weight", "wpe.weight", "h.0.mlp.c_fc.bias")
    return vocab, config if settings is None else _following(families.GPT, settings, config)


def _following(family: Family, settings: Settings, config: C) -> C:
    """The config with the ε and the activation of the library's."""
    epsilon, activation = families.read_settings(family, settings, config.heads)
    norm = partial(LayerNorm, eps=epsilon)
    return replace(config, norm=norm, feed_forward=partial(FeedForward, activation=activation))


def _config(
    kind: str, default: Config, heads: int, state: Mapping[str, Tensor], words: str, positions: str, wide: str
) -> tuple[int, Config]:
    _check_form("state", state, ())
    shapes = {_bare(name): tuple(weight.shape) for name, weight in state.items()}
    for name, axes in ((words, 2), (positions, 2), (wide, 1)):
        if name not in shapes:
            raise ValueError(f"state lacks {name!r}, which every {kind} has")
        if len(shapes[name]) != axes:
            raise ValueError(f"{name} has shape {shapes[name]}; expected {axes} axes")
    (vocab, d_model), (max_length, _), (d_ff,) = shapes[words], shapes[positions], shapes[wide]
    layers = 1 + max(int(number) for name in shapes for number in re.findall(r"^(?:encoder\.layer|h)\.(\d+)\.", name))
    return vocab, replace(default, d_model=d_model, heads=heads, d_ff=d_ff, layers=layers, max_length=max_length)


def vit_config(
    state: Mapping[str, Tensor],
    *,
    heads: int,
    library: Library = HUGGING_FACE,
    eps: float = 1e-12,
    settings: Settings | None = None,
) -> VitConfig:
    """Sizes of a ViT-shaped or DeiT-shaped state dict of square images.

    The heads and the ε that is added to variances are in no shape; `settings`, the library's config.json, has both.
    Raises ValueError when the state dict has another form or the settings are another family's, and TypeError when the
    state holds more than tensors.
    """
    rules = {**library.names.get("Deit", {}), **library.names["Vit"], **library.also["Vit"]}
    _check_form("state", state, ())
    shapes = {ours: tuple(weight.shape) for name, weight in state.items() for ours in our_names(name, rules)}
    needed = ("patches.weight", "stack.position.embedding", "stack.blocks.0.feed_forward.branch.up.bias")
    if lacking := [name for name in needed if name not in shapes]:
        raise ValueError(f"state has nothing for {lacking[0]}, which every ViT has")
    if [len(shapes[name]) for name in needed] != [4, 3, 1] or shapes[needed[0]][2] != shapes[needed[0]][3]:
        found = " and ".join(str(shapes[name]) for name in needed[:2])
        raise ValueError(
            f"state has patches and positions of shapes {found}; expected (d, channels, p, p), (1, time, d)"
        )
    (d_model, channels, patch, _), (_, time, _), (d_ff,) = (shapes[name] for name in needed)
    tokens = sum(name.startswith("tokens.") for name in shapes)
    side = math.isqrt(time - tokens)
    if side**2 != time - tokens:
        raise ValueError(f"state has positions for {time - tokens} patches; expected those of a square image")
    layers = 1 + max(int(number) for name in shapes for number in re.findall(r"^stack\.blocks\.(\d+)\.", name))
    sizes: dict[str, Any] = {
        "d_model": d_model,
        "heads": heads,
        "d_ff": d_ff,
        "layers": layers,
        "norm": partial(LayerNorm, eps=eps),
    }
    square: dict[str, Any] = {
        "height": side * patch,
        "width": side * patch,
        "channels": channels,
        "patch": patch,
        "tokens": tokens,
    }
    config = VitConfig(**sizes, **square)
    return config if settings is None else _following(families.VIT, settings, config)
