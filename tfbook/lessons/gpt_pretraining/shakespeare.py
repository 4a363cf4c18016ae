"""The lesson's kind of model on the characters of Shakespeare's plays, beside published losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tfbook import data, runtime, training
from tfbook.course.experiments import experiment
from tfbook.generation import sampling
from tfbook.lessons.gpt_pretraining.heads import LONGEST, package_gpt
from tfbook.pretrain.measure import evaluation_windows
from tfbook.text import Windows
from tfbook.training.losses import next_token_loss

if TYPE_CHECKING:
    from pandas import DataFrame

SIZES = (128, 4, 256, 2)  # d_model, heads, d_ff and layers
BATCH, STEPS = 20, 1000
PUBLISHED = {  # nanoGPT's README: parameters, and its lowest loss on random batches of the validation text
    "nanoGPT, its setting for a small CPU": (804_096, 1.88),
    "nanoGPT, its setting for a GPU": (10_745_088, 1.4697),
}


@experiment
def shakespeare(*, steps: int = STEPS, seed: int = 1, written: int = 400) -> list[dict[str, Any]]:
    """Trains on the characters of tiny Shakespeare: the loss on all of its validation text, and what it writes."""
    text = data.load("tiny-shakespeare")
    characters = text.characters
    runtime.seed(seed)
    model = package_gpt(len(characters), *SIZES).to(runtime.device())
    windows = Windows(characters.encode(text.train), length=LONGEST + 1, size=BATCH, seed=seed)
    training.fit(model, training.next_token_loss, windows, recipe(steps))
    prompt = characters.encode("\n")[None].to(runtime.device())
    filters = [sampling.temperature(0.8)]
    ids = sampling.generate(model.eval(), prompt, max_new_tokens=written, filters=filters)
    return [
        {
            "vocab": len(characters),
            "parameters": model.parameter_count(),
            "loss": round(_loss_of_all(model, characters.encode(text.valid)), 4),
            "sample": characters.decode(ids[0].cpu()).strip(),
        }
    ]


def recipe(steps: int) -> training.Recipe:
    """The lesson's recipe, for training on characters."""
    return training.Recipe(
        steps=steps,
        optimizer="muon",
        lr=0.02,
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(20),
        mixed_precision=False,
    )


@torch.no_grad()
def _loss_of_all(model: nn.Module, ids: Tensor) -> float:
    """The mean loss per character of a text, in pieces as long as the model reads."""
    pieces = evaluation_windows(ids, LONGEST, limit=len(ids)).to(runtime.device())
    losses = [float(next_token_loss(model, part).mean) * len(part) for part in pieces.split(32)]
    return sum(losses) / len(pieces)


def beside_published(frame: DataFrame) -> DataFrame:
    """The stored run and nanoGPT's published ones: parameters and validation loss."""
    import pandas as pd

    (run,) = frame.to_dict("records")
    rows = {"this one": (run["parameters"], run["loss"]), **PUBLISHED}
    columns = ["parameters", "validation loss (nats per character)"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.assign(parameters=table["parameters"].map("{:,}".format)).round(2)
