"""Checks that many modules share: each raises ValueError that names the argument, what came and what was expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_TRUSTED = ContextVar("trusted", default=False)


@contextmanager
def trusted(applies: bool = True) -> Iterator[None]:
    """Inside, if it `applies`, the values of tensors are not checked: each look waits for the device that holds them.

    For the steps of a loop whose first inputs were checked; shapes and types are checked as ever.
    """
    before = _TRUSTED.set(_TRUSTED.get() or applies)
    try:
        yield
    finally:
        _TRUSTED.reset(before)


def may_look() -> bool:
    """Whether the values of tensors may be looked at: neither inside `trusted` nor while a graph is traced."""
    return not (torch.compiler.is_compiling() or _TRUSTED.get())


def surely_all(condition: Tensor) -> bool:
    """Whether a condition is known to hold everywhere, which takes a look; False where none may be taken."""
    return may_look() and bool(condition.all())


def check_positive(**settings: int | float | None) -> None:
    """Checks that each setting is None or at least 1."""
    for name, value in settings.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; expected 1 or more")


def check_dropout(dropout: float) -> None:
    """Checks that a dropout probability is at least 0 and less than 1."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}; expected 0 ≤ dropout < 1")


def check_heads(d_model: int, heads: int) -> None:
    """Checks that the heads divide the width."""
    if heads < 1 or d_model < 1 or d_model % heads:
        raise ValueError(f"heads is {heads} and d_model is {d_model}; expected heads to divide d_model")


def check_ids(name: str, ids: Tensor, vocab: int) -> None:
    """Checks for at least one token per row and, where `may_look`, that each id is one from 0 to `vocab` − 1."""
    if ids.ndim != 2 or not ids.numel() or ids.is_floating_point():
        expected = f"ids of shape (batch, {name}), at least one token per row"
        raise ValueError(f"{name} has shape {tuple(ids.shape)}, {ids.dtype}; expected {expected}")
    if not may_look():
        return
    low, high = map(int, ids.aminmax())
    if low < 0 or high >= vocab:
        raise ValueError(f"{name} holds ids from {low} to {high}; expected 0 to {vocab - 1}, the model's vocabulary")


def check_lengths(lengths: Tensor, rows: int, of: str) -> None:
    """Checks for one length per row."""
    if len(lengths) != rows:
        raise ValueError(f"lengths holds {len(lengths)} numbers; expected one for each of {rows} {of}")


def check_rows(target: Tensor, rows: int) -> None:
    """Checks for one target per source sentence."""
    if len(target) != rows:
        raise ValueError(f"target has {len(target)} rows; expected {rows}, one for each source sentence")


def check_scores(scores: Tensor, mask: Tensor | None) -> None:
    """Checks for floating-point scores and a Boolean mask that broadcasts to them; TypeError for other dtypes."""
    if not scores.is_floating_point():
        raise TypeError(f"scores has dtype {scores.dtype}; expected floating-point numbers")
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise TypeError(f"mask has dtype {mask.dtype}; expected torch.bool, where True means 'may attend'")
    if not broadcasts(mask, scores.shape):
        expected = f"one that broadcasts to scores, {tuple(scores.shape)}"
        raise ValueError(f"mask has shape {tuple(mask.shape)}; expected {expected}")


def check_logits(logits: Tensor) -> None:
    """Checks, where `may_look`, that each row has a finite maximum: no NaN, no +∞, and not −∞ alone."""
    if not may_look():
        return
    highest = logits.amax(dim=-1)
    if not highest.isfinite().all():
        row = int(highest.isfinite().int().argmin())
        found = f"logits of row {row} have the maximum {float(highest[row])}"
        raise ValueError(f"{found}; expected a finite one: −∞ forbids a token, NaN and +∞ cannot be compared")


def broadcasts(tensor: Tensor, shape: Sequence[int]) -> bool:
    """Whether the tensor broadcasts to this shape without enlarging it."""
    pairs = zip(tensor.shape[::-1], shape[::-1], strict=False)
    return tensor.ndim <= len(shape) and all(n in (1, m) for n, m in pairs)
