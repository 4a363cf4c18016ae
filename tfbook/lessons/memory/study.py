"""Study of lesson 18: what hops, positions and ages are worth to a reader of errands, and its rivals."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tfbook import runtime
from tfbook.course.cost import parameters
from tfbook.course.experiments import experiment, stored
from tfbook.lessons.memory import (
    machines as machines,
    neighbors as neighbors,
    pointing as pointing,
    pondering as pondering,
)
from tfbook.lessons.memory.answers import answer as answer
from tfbook.lessons.memory.asking import ask as ask, break_it as break_it, verbs as verbs
from tfbook.lessons.memory.claims import CLAIMS as CLAIMS
from tfbook.lessons.memory.readers import (
    Build,
    accuracies as accuracies,
    answer_loss as answer_loss,
    looks as looks,
    new_reader as new_reader,
    new_sentence_encoder as new_sentence_encoder,
    reread_by as reread_by,
    told_for_training as told_for_training,
    train_reader as train_reader,
    unseen as unseen,
)
from tfbook.lessons.memory.tables import (
    given_share as given_share,
    hiding_claims as hiding_claims,
    hiding_table as hiding_table,
    hop_claims as hop_claims,
    layer_claims as layer_claims,
    left_behind as left_behind,
    left_behind_table as left_behind_table,
    moments_table as moments_table,
    part_claims as part_claims,
    parts_table as parts_table,
    reader_claims as reader_claims,
    readings as readings,
    rule_table as rule_table,
    scoreboard as scoreboard,
    shown as shown,
)
from tfbook.lessons.memory.variations import (
    aside_table as aside_table,
    older_counts as older_counts,
    older_table as older_table,
    plain_bag as plain_bag,
)
from tfbook.models.memory_network import (
    MemoryNetwork,
    ages as ages,
    memory_hop as memory_hop,
    weighted_bag as weighted_bag,
)
from tfbook.plot.views.base import encoded

STEPS = 4000  # of a stored run, 64 questions each


def sizes(model: MemoryNetwork) -> tuple[int, int, int, int]:
    """Words, sentences, width and hops of a network."""
    config = model.config
    return config.vocab, config.sentences, config.d_model, config.hops


def ageless_reader(seed: int) -> nn.Module:
    """A reader whose sentences do not say how old they are."""
    reader = new_reader(seed=seed)
    for weight in reader.times.parameters():
        nn.init.zeros_(weight).requires_grad = False
    return reader


def _build(**parts: Any) -> Build:
    """Builds readers of these parts."""
    return lambda seed: new_reader(seed=seed, **parts)


READERS: dict[str, Build] = {
    **{f"{hops} hop{'s' * (hops > 1)}": _build(hops=hops) for hops in (1, 2, 3)},
    "3 hops, plain bags": _build(bag=plain_bag),
    "3 hops, no ages": ageless_reader,
}


def _run(name: str, build: Build, seed: int, *, steps: int, **recipe: Any) -> dict[str, Any]:
    """One training run: accuracy by kind of question, and where the hops look."""
    model, start = build(seed), time.process_time()
    train_reader(model, steps=steps, seed=seed, **recipe)
    seconds = round(time.process_time() - start)
    right = {kind: round(share, 4) for kind, share in accuracies(model).items()}
    row = {"reader": name, "seed": seed, "parameters": parameters(model), "steps": steps, "seconds": seconds, **recipe}
    return row | {"right": right, "looks": looks(model) if getattr(model, "tables", None) else {}}


@experiment
def hops(seeds: Sequence[int] = (1, 2, 3), *, steps: int = STEPS) -> list[dict[str, Any]]:
    """Memory networks with one, two and three hops, and with three but plain bags of words or no ages."""
    return [_run(name, build, seed, steps=steps) for name, build in READERS.items() for seed in seeds]


RATES = (1e-3, 3e-3, 1e-2)


@experiment
def layered(seeds: Sequence[int] = (1, 2), *, steps: int = STEPS, tried: int = 400) -> list[dict[str, Any]]:
    """Encoders of one and of two layers that read sentences, at the best of three rates of two layers in short runs."""

    def run(layers: int, seed: int, lr: float, steps: int) -> dict[str, Any]:
        name = f"{layers} layer{'s' * (layers > 1)} over sentences"
        return _run(name, lambda seed: new_sentence_encoder(seed=seed, layers=layers), seed, steps=steps, lr=lr)

    best = max(RATES, key=lambda lr: sum(run(2, 0, lr, tried)["right"].values()))
    return [run(layers, seed, best, steps) for layers in (2, 1) for seed in seeds]


@experiment
def longer(seeds: Sequence[int] = (1, 2), *, steps: int = 2 * STEPS, lr: float = 3e-3) -> list[dict[str, Any]]:
    """Two layers over sentences with wider layers and an output of their own, for twice as many steps."""

    def wider(seed: int) -> nn.Module:
        return new_sentence_encoder(seed=seed, d_ff=64, tied=False)

    return [_run("2 layers over sentences, longer", wider, seed, steps=steps, lr=lr) for seed in seeds]


@experiment
def reader(*, steps: int = 2 * STEPS) -> list[dict[str, Any]]:
    """A network with three hops, trained for twice as long; its weights in half precision, as text."""
    model = new_reader()
    train_reader(model, steps=steps)
    model.half().float()
    right = {kind: round(share, 4) for kind, share in accuracies(model).items()}
    weights = torch.cat([weight.detach().cpu().half().flatten() for weight in model.parameters()])
    return [{"steps": steps, "right": right, "weights": encoded(weights.view(torch.uint8))}]


def stored_reader() -> MemoryNetwork:
    """The network of the experiment `memory.reader`, with the weights that were stored."""
    model = new_reader()
    text = stored("memory.reader").rows[0]["weights"]
    weights = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float16).float()
    nn.utils.vector_to_parameters(weights.to(runtime.device()), model.parameters())
    return model.eval()
