"""What do a model's vectors know? Linear probes on frozen activations: one call, any model, any layer.

A probe is a linear regression from the vectors of one layer to a fact about their tokens. What it can read off is
written there in the open; what it cannot may still be there in another form (Alain & Bengio, 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn


@torch.no_grad()
def activations(model: nn.Module, *inputs: Any, layers: Sequence[str]) -> dict[str, Tensor]:
    """What each of `layers` gives out when the model reads `inputs`, in eval mode; the model comes back as it was.

    A layer is named as in `model.named_modules()`. Raises ValueError for a name that is not there, TypeError for a
    layer that gives out something else than a tensor, and RuntimeError for one that was not run.
    """
    modules, training = dict(model.named_modules()), model.training
    if unknown := [name for name in layers if name not in modules]:
        raise ValueError(f"layers holds {unknown[0]!r}; {type(model).__name__} has {', '.join(filter(None, modules))}")
    seen: dict[str, Tensor] = {}
    hooks = [modules[name].register_forward_hook(partial(_keep, seen, name)) for name in layers]
    try:
        model.eval()(*inputs)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    if missing := [name for name in layers if name not in seen]:
        raise RuntimeError(f"the layer {missing[0]!r} was not run on these inputs")
    return {name: seen[name] for name in layers}


def _keep(seen: dict[str, Tensor], name: str, module: nn.Module, inputs: object, output: object) -> None:
    if not isinstance(output, Tensor):
        raise TypeError(f"the layer {name!r} gives out a {type(output).__name__}; a probe needs a Tensor")
    seen[name] = output.detach()


def probe(x: Float[Tensor, "row *tokens width"], y: Real[Tensor, "row *tokens"], *, ridge: float = 1e-3) -> float:
    """R² of a linear regression from x to y, fitted to the first half of the rows and judged on the second.

    w = (XᵀX / n + ridge · I)⁻¹ Xᵀy / n with X standardized: 1 is perfect, 0 what the mean of y would reach, and less
    than that a fit that does not carry over. The tokens of one row are never in both halves. Raises ValueError for
    fewer than two rows.
    """
    if len(x) < 2:
        raise ValueError(f"x has {len(x)} row; expected 2 or more, half to fit and half to judge")
    half = len(x) // 2
    fit_x, test_x = (part.flatten(0, -2).double() for part in (x[:half], x[half:]))
    fit_y, test_y = (part.flatten().double() for part in (y[:half], y[half:]))
    mean, spread = fit_x.mean(dim=0), fit_x.std(dim=0, correction=0).clamp(min=1e-12)
    fit_x, test_x = (fit_x - mean) / spread, (test_x - mean) / spread
    covariance = fit_x.T @ fit_x / len(fit_x) + ridge * torch.eye(fit_x.shape[1], dtype=fit_x.dtype, device=x.device)
    weights = torch.linalg.solve(covariance, fit_x.T @ (fit_y - fit_y.mean()) / len(fit_x))
    left = test_y - fit_y.mean() - test_x @ weights
    return 1 - float(left.square().mean() / test_y.var(correction=0))


def probe_layers(
    model: nn.Module, *inputs: Any, y: Real[Tensor, "row *tokens"], layers: Sequence[str], ridge: float = 1e-3
) -> dict[str, float]:
    """R² of a probe for `y` on each of `layers`: `activations`, then `probe`."""
    return {name: probe(x.float(), y, ridge=ridge) for name, x in activations(model, *inputs, layers=layers).items()}
