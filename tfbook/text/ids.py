"""Ids as callers hold them: one number, several in a sequence, or an integer tensor; every vocabulary reads them alike.

Shapes: time.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from operator import index
from typing import SupportsIndex

import torch
from torch import Tensor

Ids = SupportsIndex | Iterable[SupportsIndex] | Tensor  # a tensor of any integer dtype, with one axis or none


def id_list(ids: Ids) -> list[int]:
    """The ids as a list of int. Raises ValueError for anything but whole numbers, and for a tensor of two axes."""
    if isinstance(ids, Tensor):
        if ids.ndim > 1:
            expected = "the ids of one sentence or text, such as ids[0]"
            raise ValueError(f"ids has shape {tuple(ids.shape)}; expected {expected}")
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise ValueError(f"ids has dtype {ids.dtype}; expected whole numbers, such as torch.int64")
        ids = ids.reshape(-1).tolist()
    try:
        return [index(number) for number in (ids if isinstance(ids, Iterable) else [ids])]
    except TypeError:
        raise ValueError(f"ids is {reprlib.repr(ids)}; expected whole numbers, such as [1, 2]") from None


def ids_below(vocab: int, ids: Ids) -> list[int]:
    """The ids as a list of int. Raises ValueError as `id_list` does, and for an id outside 0 to `vocab` − 1."""
    numbers = id_list(ids)
    for number in numbers:
        if not 0 <= number < vocab:
            raise ValueError(f"ids holds {number}; expected 0 to {vocab - 1}")
    return numbers
