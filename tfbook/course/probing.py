"""Linear probes on frozen activations: the information that a model's vectors hold, for any layer of any model.

A probe is a linear regression from the vectors of a layer to a property of their tokens (Alain & Bengio, 2017). What it
predicts is linearly encoded there; what it cannot predict may still be there in another form.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from tfbook.modes import evaluating


@torch.no_grad()
def activations(model: nn.Module, *inputs: Any, layers: Sequence[str]) -> dict[str, Tensor]:
    """Outputs of `layers` as the model reads `inputs` in eval mode; afterwards each module is in its own mode again.

    Layers are named as in `model.named_modules()`. Raises ValueError for an unknown name, TypeError for a layer whose
    output is not a tensor, and RuntimeError for a layer that did not run.
    """
    modules = dict(model.named_modules())
    if unknown := [name for name in layers if name not in modules]:
        raise ValueError(f"layers holds {unknown[0]!r}; {type(model).__name__} has {', '.join(filter(None, modules))}")
    outputs: dict[str, Tensor] = {}
    hooks = [modules[name].register_forward_hook(partial(_keep, outputs, name)) for name in layers]
    try:
        with evaluating(model):
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if missing := [name for name in layers if name not in outputs]:
        raise RuntimeError(f"the layer {missing[0]!r} did not run on these inputs")
    return {name: outputs[name] for name in layers}


def _keep(outputs: dict[str, Tensor], name: str, module: nn.Module, inputs: object, output: object) -> None:
    if not isinstance(output, Tensor):
        raise TypeError(f"the layer {name!r} returns a {type(output).__name__}; a probe needs a Tensor")
    outputs[name] = output.detach().clone()  # the next layer may work in place, as nn.ReLU(inplace=True) does


def probe(x: Float[Tensor, "row *tokens width"], y: Real[Tensor, "row *tokens"], *, ridge: float = 1e-3) -> float:
    """R² of a linear regression from x to y, fitted on the first half of the rows and evaluated on the second.

    w = (XᵀX / n + ridge · I)⁻¹ Xᵀy / n with X standardized. 1 is perfect, predicting the mean of y scores 0, and a fit
    that does not generalize can be below 0. The tokens of a row are never in both halves. Raises ValueError for fewer
    than two rows, and where y is constant in the second half, so that there is nothing to predict.
    """
    if len(x) < 2:
        raise ValueError(f"x has {len(x)} row; expected 2 or more, half to fit and half to evaluate")
    half, x, y = len(x) // 2, x.cpu(), y.cpu()  # some devices lack float64
    fit_x, test_x = (part.flatten(0, -2).double() for part in (x[:half], x[half:]))
    fit_y, test_y = (part.flatten().double() for part in (y[:half], y[half:]))
    if test_y.min() == test_y.max():
        raise ValueError(f"y is {test_y[0]:g} throughout its second half; expected values that differ")
    mean, std = fit_x.mean(dim=0), fit_x.std(dim=0, correction=0).clamp(min=1e-12)
    fit_x, test_x = (fit_x - mean) / std, (test_x - mean) / std
    covariance = fit_x.T @ fit_x / len(fit_x) + ridge * torch.eye(fit_x.shape[1], dtype=fit_x.dtype)
    weights = torch.linalg.solve(covariance, fit_x.T @ (fit_y - fit_y.mean()) / len(fit_x))
    residuals = test_y - fit_y.mean() - test_x @ weights
    return 1 - float(residuals.square().mean() / test_y.var(correction=0))


def probe_layers(
    model: nn.Module, *inputs: Any, y: Real[Tensor, "row *tokens"], layers: Sequence[str], ridge: float = 1e-3
) -> dict[str, float]:
    """R² of a probe for `y` on each of `layers`: `activations`, then `probe`."""
    return {name: probe(x.float(), y, ridge=ridge) for name, x in activations(model, *inputs, layers=layers).items()}
