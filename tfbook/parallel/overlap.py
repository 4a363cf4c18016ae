"""Sending beside computing, in time: which layer is computed and which one is on the wire, and when."""

from __future__ import annotations

from typing import NamedTuple

from tfbook.checks import check_positive


class Stint(NamedTuple):
    """Something that the GPU or its wire does; `kind` is forward, backward, gather or send."""

    wire: bool
    kind: str
    layer: int
    start: float
    end: float


def step_timeline(layers: int, send: float, *, gathers: bool = False) -> list[Stint]:
    """One step: a layer's forward pass takes 1, its backward pass 2, sending its gradient `send`, one after another.

    With `gathers`, as ZeRO-3: a layer's weights are fetched before each pass, while the layer before is computed, and
    its gradient is scattered; each takes `send` / 2, as half of an all-reduce. The top layer is fetched once.
    Raises ValueError for no time.
    """
    check_positive(layers=layers)
    if send <= 0:
        raise ValueError(f"send is {send}; expected a time")
    jobs: list[Stint] = []
    order = [("forward", layer) for layer in range(layers)]
    order += [("backward", layer) for layer in reversed(range(layers))]
    done = free = began = 0.0  # when the GPU has done its last pass, the wire is free, the last pass began
    late: Stint | None = None  # a gradient that goes out after the next layer's weights were asked for

    def on_the_wire(kind: str, layer: int, ready: float, length: float) -> float:
        start = max(free, ready)
        jobs.append(Stint(True, kind, layer, start, start + length))
        return start + length

    for kind, layer in order:
        if gathers and (kind, layer) != ("backward", layers - 1):
            free = on_the_wire("gather", layer, began, send / 2)
            done = max(done, free)
        if late:
            free = on_the_wire("send", late.layer, late.end, send / 2 if gathers else send)
        began, done = done, done + (1 if kind == "forward" else 2)
        jobs.append(Stint(False, kind, layer, began, done))
        late = jobs[-1] if kind == "backward" else None
    on_the_wire("send", 0, done, send / 2 if gathers else send)
    return jobs
