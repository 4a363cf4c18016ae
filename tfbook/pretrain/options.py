"""What a pretraining run can be told."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from tfbook import training
from tfbook.attention.positions import POSITIONS
from tfbook.models import gpt
from tfbook.models.blocks import Config


def _option(default: Any, meaning: str, choices: tuple[str, ...] | None = None) -> Any:
    return field(default=default, metadata={"help": meaning, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a run can be told; the defaults are nanoGPT's published setting for a small CPU."""

    corpus: str = _option("tiny-shakespeare", "tiny-shakespeare, python-reference or the path of a text file")
    vocab: int = _option(0, "tokens of a byte-pair encoding; 0: characters")
    layers: int = _option(4, "blocks")
    heads: int = _option(4, "heads of each attention")
    d_model: int = _option(128, "width; the feed-forward layers are four times as wide")
    position: str = _option("learned", "encoding of positions", tuple(POSITIONS))
    dropout: float = _option(0.0, "share of numbers dropped in training")
    context: int = _option(64, "tokens that the model sees at once")
    batch: int = _option(12, "pieces of text in a batch, over all processes")
    accumulate: int = _option(1, "batches that make one step")
    steps: int = _option(2000, "steps in all, those before an interruption included")
    lr: float = _option(1e-3, "highest learning rate")
    embedding_lr_factor: float = _option(1.0, "factor on it for the tied embedding")
    warmup: int = _option(100, "steps over which it rises")
    final: float = _option(0.1, "share of it at the end of the cosine")
    beta2: float = _option(0.99, "AdamW's memory of squared gradients")
    weight_decay: float = _option(0.1, "share of lr by which matrices shrink each step")
    clip: float = _option(1.0, "bound on the norm of the gradient")
    optimizer: str = _option("adamw", "muon: for the matrices of the blocks", ("adamw", "muon"))
    precision: str = _option("auto", "of matrix products; auto: what is faster here", ("auto", "float32", "bfloat16"))
    evaluate_every: int = _option(250, "steps between evaluations")
    evaluate_on: int = _option(100_000, "tokens of the validation text that are guessed, at most")
    checkpoint_every: int = _option(250, "steps between checkpoints")
    sample: int = _option(300, "tokens of text said at the end")
    seed: int = _option(0, "of weights and batches")
    out: str = _option("pretrained", "folder of the run; it goes on from what is there")

    def __post_init__(self) -> None:
        for name in ("context", "batch", "evaluate_on"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        for name in ("vocab", "sample", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
        _ = self.config, self.recipe  # which refuse what is impossible

    @property
    def config(self) -> Config:
        """Those of the model, GPT-2 in small."""
        named = {name: getattr(self, name) for name in ("layers", "heads", "d_model", "position", "dropout")}
        return replace(gpt.GPT2, **named, d_ff=4 * self.d_model, max_length=self.context)

    @property
    def recipe(self) -> training.Recipe:
        """How it is trained."""
        names = {field.name for field in fields(training.Recipe)} & {field.name for field in fields(self)}
        schedule = training.warmup_cosine(self.warmup, self.final)
        return training.Recipe(
            **{name: getattr(self, name) for name in names}, schedule=schedule, betas=(0.9, self.beta2)
        )
