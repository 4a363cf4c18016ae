"""Configs that can be saved: every part has a name, and `to_dict` writes what JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from tfbook.attention.positions import POSITIONS

DEFINED_IN = {  # name of a part, or of a function that is an option of one → the module that defines it
    **dict.fromkeys(("relu", "gelu", "silu"), "torch.nn.functional"),
    **dict.fromkeys(("softmax", "fused", "fastest"), "tfbook.attention.implementations"),
    **dict.fromkeys(("Banded", "BigBird", "Linear", "Lsh", "Performer", "Tiled"), "tfbook.attention.efficient"),
    **dict.fromkeys(("Axial", "Neighborhood", "Windowed"), "tfbook.attention.efficient.grid"),
    "MultiHeadAttention": "tfbook.attention.multi_head",
    "GroupedQueryAttention": "tfbook.attention.grouped_query",
    **dict.fromkeys(("FeedForward", "SwiGLU"), "tfbook.models.feed_forward"),
    **dict.fromkeys(("MixtureOfExperts", "dense_dispatch", "sparse_dispatch"), "tfbook.models.experts"),
    **dict.fromkeys(("DilatedConvolution", "GatedConvolution"), "tfbook.models.convolutions"),
    **dict.fromkeys(
        ("TokenMlp", "TokenLinear", "DepthwiseConvolution", "Affine", "LayerScaled"), "tfbook.models.patch_mixers"
    ),
    **dict.fromkeys(("sequential_scan", "parallel_scan", "chunked_scan"), "tfbook.models.scans"),
    **dict.fromkeys(("MinGru", "GatedLinearAttention", "Lstm"), "tfbook.models.gated"),
    **dict.fromkeys(("S4D", "Mamba", "selective_scan"), "tfbook.models.state_spaces"),
    **dict.fromkeys(("LayerNorm", "RMSNorm"), "tfbook.models.norms"),
    **dict.fromkeys(("PreNorm", "PostNorm"), "tfbook.models.blocks"),
}

SavedConfig = TypeVar("SavedConfig", bound="Savable")


class WithOptions(partial):
    """A `partial` that equals another one of the same function and options, so that configs can be compared."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, partial):
            return NotImplemented
        return (self.func, self.args, self.keywords) == (other.func, other.args, other.keywords)

    def __hash__(self) -> int:
        return hash((self.func, self.args, *self.keywords))


# ---- names -------------------------------------------------------------------------------------------------------


def named(name: str) -> Any:
    """The class or function of that name. Raises ValueError for a name that is neither in POSITIONS nor DEFINED_IN."""
    if name in POSITIONS:
        return POSITIONS[name]
    if name not in DEFINED_IN:
        raise ValueError(f"{name!r} is not the name of a part; expected one of {', '.join([*POSITIONS, *DEFINED_IN])}")
    return getattr(import_module(DEFINED_IN[name]), name)


def name_of(part: Any) -> str:
    """The name by which `named` finds it again. Raises ValueError when it has none."""
    for name, encoding in POSITIONS.items():
        if part is encoding:
            return name
    name = getattr(part, "__name__", "")
    if name not in DEFINED_IN or named(name) is not part:
        raise ValueError(f"{part!r} has no name in tfbook.models.config.DEFINED_IN, so it cannot be saved")
    return name


def as_part(field: str, part: Any) -> Any:
    """The class or function that makes a part, given by itself or by its name; a `partial` that can be compared.

    A tuple of mixers holds one for each layer in turn. Raises ValueError for an unknown name and TypeError for a part
    that cannot be called; both name the `field`.
    """
    expected = "a class or function that makes the part, or its name"
    if isinstance(part, tuple) and part and field == "mixer":
        return tuple(as_part(field, one) for one in part)
    if isinstance(part, str):
        try:
            return named(part)
        except ValueError as error:
            raise ValueError(f"{field} is {part!r}; expected {expected}: {error}") from None
    if not callable(part):
        raise TypeError(f"{field} is {part!r}; expected {expected}")
    return WithOptions(part.func, *part.args, **part.keywords) if isinstance(part, partial) else part


# ---- to JSON and back --------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON holds it: a tuple as a list, a class or function as {"name": …, options}.

    Raises ValueError for a class or function without a name.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, partial):
        if value.args:
            raise ValueError(f"{value!r} has arguments without a name, so it cannot be saved")
        return {"name": name_of(value.func), **{name: plain(option) for name, option in value.keywords.items()}}
    if is_dataclass(value) and not isinstance(value, type):  # an efficient implementation with its settings
        settings = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"name": name_of(type(value)), **settings}
    return {"name": name_of(value)}


def unplain(value: Any) -> Any:
    """The value of which `plain` made this. Raises ValueError for a name that is not known."""
    if isinstance(value, list):
        return tuple(unplain(item) for item in value)
    if not isinstance(value, Mapping):
        return value
    options = {name: unplain(option) for name, option in value.items() if name != "name"}
    found = named(value.get("name", ""))
    if is_dataclass(found) and isinstance(found, type):  # settings, such as those of an efficient implementation
        return found(**options)
    return WithOptions(found, **options) if options else found


class Savable:
    """A frozen dataclass of sizes and parts that JSON can hold: `from_dict(to_dict())` gives an equal one."""

    def to_dict(self) -> dict[str, Any]:
        """All fields; a part as its name, or as {"name": …} with its options.

        Raises ValueError for a part that has no name, such as a lambda.
        """
        written = {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        bare = {name: value["name"] for name, value in written.items() if isinstance(value, dict) and len(value) == 1}
        return written | bare

    @classmethod
    def from_dict(cls: type[SavedConfig], written: Mapping[str, Any]) -> SavedConfig:
        """The config that `to_dict` wrote; a field that is missing has its default.

        Raises ValueError for unknown fields or names.
        """
        known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        if unknown := sorted(set(written) - set(known)):
            raise ValueError(f"written holds {unknown[0]!r}; {cls.__name__} has {', '.join(known)}")
        return cls(**{name: unplain(value) for name, value in written.items()})
