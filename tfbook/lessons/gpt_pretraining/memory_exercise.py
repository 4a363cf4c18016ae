"""The exercise of lesson 09 in which a vector of one text is put into another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.course.exercises import exercise, randn

# ---- a vector of another text ------------------------------------------------------------------------------------


class _Layer(nn.Linear):
    """A linear layer whose state says how many hooks it has, so that one which stays is noticed."""

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        hooks = len(self._forward_pre_hooks) + len(self._forward_hooks)
        destination[f"{prefix}hooks"] = torch.tensor(hooks)


class _Reader(nn.Module):
    """Two layers in a residual stream, each of which reads a running sum that the stream needs as well."""

    advice = "is your hook still on it? Keep the handle that registering returns, and call `handle.remove()` at the end"

    def __init__(self, vocab: int, d: int, seed: int):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.first, self.second = _Layer(d, d), _Layer(d, d)
        for number, weight in enumerate(self.parameters()):
            weight.data = randn(*weight.shape, seed=seed + number)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in (self.first, self.second):
            mixed = x.cumsum(dim=1).tanh()
            x = layer(mixed) + mixed + x
        return x @ self.embed.weight.T


Case = tuple[_Reader, nn.Module, Tensor, int | slice, slice, Tensor]


def _stories() -> list[Case]:
    one, other = _Reader(7, 6, seed=10), _Reader(9, 8, seed=20)
    return [
        (
            one,
            one.first,
            torch.tensor([[1, 4, 2, 5], [3, 0, 6, 1], [2, 2, 4, 3]]),
            2,
            slice(2, 4),
            3 * randn(2, seed=1),
        ),
        (other, other.second, torch.tensor([[1, 8, 2]]), 1, slice(4, 8), randn(4, seed=2)),
        (one, one.second, torch.tensor([[6, 1, 0, 2], [2, 2, 5, 5]]), slice(None), slice(0, 3), torch.zeros(3)),
    ]


@exercise(
    cases=_stories,
    hints=[
        "The hook gets what the layer is about to read as `inputs[0]`, (batch, n, width). Which entries of it change?",
        "`x = inputs[0].clone()`, then `x[:, place, part] = vector`, and the hook returns `x`. Keep the handle, run "
        "the model, remove the handle.",
    ],
    differentiable=False,
)
def implant(model: Any, layer: Any, ids: Tensor, place: int | slice, part: slice, vector: Tensor) -> Tensor:
    def hook(layer: Any, inputs: tuple[Tensor]) -> Tensor:
        x = inputs[0].clone()
        x[:, place, part] = vector
        return x

    handle = layer.register_forward_pre_hook(hook)
    logits = model(ids)
    handle.remove()
    return logits


Write = Callable[[Tensor, Any, slice, Tensor], Any]  # changes what the layer reads, in place


def _hooked(model: Any, layer: Any, ids: Tensor, hook: Callable[..., Any], *, after: bool = False) -> Tensor:
    handle = (layer.register_forward_hook if after else layer.register_forward_pre_hook)(hook)
    logits = model(ids)
    handle.remove()
    return logits


def _written_by(
    model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor, *, write: Write
) -> Tensor:
    """The right answer but for how the vector is written into what the layer reads."""

    def hook(_: Any, inputs: tuple[Tensor]) -> Tensor:
        x = inputs[0].clone()
        write(x, place, part, vector)
        return x

    return _hooked(model, layer, ids, hook)


def _in_place(model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor) -> Tensor:
    def hook(_: Any, inputs: tuple[Tensor]) -> None:
        inputs[0][:, place, part] = vector

    with torch.no_grad():
        return _hooked(model, layer, ids, hook)


def _unused(model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor) -> Tensor:
    return model(ids)


def _behind(model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor) -> Tensor:
    def hook(_: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        changed = output.clone()
        changed[:, place, part] = vector
        return changed

    return _hooked(model, layer, ids, hook, after=True)


def _only_the_layer(model: Any, layer: Any, ids: Tensor, place: Any, part: slice, vector: Tensor) -> Tensor:
    read: list[Tensor] = []
    _hooked(model, layer, ids, lambda _, inputs: read.append(inputs[0]))
    x = read[0].clone()
    x[:, place, part] = vector
    return layer(x)


def _write(x: Tensor, place: Any, part: slice, vector: Tensor, *, how: str) -> None:
    match how:
        case "everywhere":
            x[:, :, part] = vector
        case "all entries":
            x[:, place] = 0.0
            x[:, place, part] = vector
        case "added":
            x[:, place, part] += vector
        case "zeros":
            x[:, place, part] = 0.0
        case "first text":
            x[0, place, part] = vector
        case "one text":
            x[place, :, part] = vector
        case "one before":
            x[:, place - 1 if isinstance(place, int) else place, part] = vector
        case "first entries":
            x[:, place, : len(vector)] = vector


WRITTEN_WRONGLY = {
    "the vector is put in at every position: change only `place`": "everywhere",
    "the other heads are wiped out: change only the entries `part`, and leave the rest of the vector": "all entries",
    "the vector is added to the old one: it should take its place": "added",
    "zeros silence the head; `vector` should speak in its place": "zeros",
    "only the first text of the batch is changed: `place` is meant in each of them": "first text",
    "the first axis is the texts of the batch: the positions are on the second": "one text",
    "one position too early: row t of what the layer reads belongs to word t of `ids`, <bos> included": "one before",
    "put at the beginning of the vector: the head's entries are `part`": "first entries",
}
implant.mistakes(
    {message: partial(_written_by, write=partial(_write, how=how)) for message, how in WRITTEN_WRONGLY.items()}
    | {
        "nothing has changed: the hook has to return the changed tensor, and be registered before the model runs": (
            _unused
        ),
        "written into the tensor itself, which the rest of the model reads as well: change a `clone()` and return it": (
            _in_place
        ),
        "this changes what the layer returns: a *pre*-hook changes what it reads": _behind,
        "this is what the layer returns: run the whole `model` while the hook is in place": _only_the_layer,
    }
)
