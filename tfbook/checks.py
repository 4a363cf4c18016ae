"""Checks of arguments that several modules share: each raises ValueError and names the argument."""

from __future__ import annotations

from torch import Tensor


def check_ids(name: str, ids: Tensor, vocabulary: int) -> None:
    """Raises ValueError unless `ids` has one word or more in every row and each id is below `vocabulary`."""
    if ids.ndim != 2 or not ids.numel() or ids.is_floating_point():
        expected = f"ids of shape (batch, {name}), one word or more a row"
        raise ValueError(f"{name} has shape {tuple(ids.shape)}, {ids.dtype}; expected {expected}")
    low, high = map(int, ids.aminmax())
    if low < 0 or high >= vocabulary:
        raise ValueError(
            f"{name} holds ids from {low} to {high}; expected 0 to {vocabulary - 1}, the model's vocabulary"
        )


def check_positive(**settings: int) -> None:
    """Raises ValueError for a setting below 1."""
    for name, value in settings.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; expected 1 or more")
