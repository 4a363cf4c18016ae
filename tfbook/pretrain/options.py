"""The options of a pretraining run."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from tfbook import training
from tfbook.attention.positions import POSITIONS
from tfbook.models import gpt
from tfbook.models.blocks import Config, on_paper

SEEDS = 2**63  # PyTorch's generators take no larger ones


def _option(default: Any, meaning: str, choices: tuple[str, ...] | None = None) -> Any:
    return field(default=default, metadata={"help": meaning, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run; the defaults are nanoGPT's published ones for a small CPU."""

    corpus: str = _option("tiny-shakespeare", "tiny-shakespeare, python-reference or the path of a text file")
    vocab: int = _option(0, "size of a byte-pair vocabulary; 0: characters")
    layers: int = _option(4, "blocks")
    heads: int = _option(4, "attention heads per block")
    d_model: int = _option(128, "width of the residual stream; feed-forward layers are four times as wide")
    position: str = _option("learned", "positional encoding", tuple(POSITIONS))
    dropout: float = _option(0.0, "dropout probability")
    context: int = _option(64, "tokens that the model sees at once")
    batch: int = _option(12, "windows per batch, over all processes")
    accumulate: int = _option(1, "batches per step")
    steps: int = _option(2000, "steps in total, including those before an interruption")
    lr: float = _option(1e-3, "peak learning rate")
    embedding_lr_factor: float = _option(1.0, "factor on it for the tied embedding")
    warmup: int = _option(100, "steps over which the learning rate rises")
    final: float = _option(0.1, "final learning rate as a share of the peak")
    beta2: float = _option(0.99, "AdamW's decay rate of squared gradients")
    weight_decay: float = _option(0.1, "weight decay of matrices")
    clip: float = _option(1.0, "maximum norm of the gradient")
    optimizer: str = _option("adamw", "muon: for the matrices of the blocks", ("adamw", "muon"))
    precision: str = _option(
        "auto", "of matrix products; auto: the faster one on this machine", ("auto", "float32", "bfloat16")
    )
    evaluate_every: int = _option(250, "steps between evaluations")
    evaluate_on: int = _option(100_000, "validation tokens per evaluation, at most")
    checkpoint_every: int = _option(250, "steps between checkpoints")
    sample: int = _option(300, "tokens to generate at the end")
    seed: int = _option(0, "seed of weights and batches")
    out: str = _option("pretrained", "folder of the run; a run that is there is resumed")

    def __post_init__(self) -> None:
        for name in ("context", "batch", "evaluate_on"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        for name in ("vocab", "sample"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed is {self.seed}; expected 0 to 2⁶³ − 1")
        _ = self.recipe  # it checks the options of training, and the config those of the model
        on_paper(replace(self.config, max_length=1).encoding)  # some encodings need an even width

    @property
    def config(self) -> Config:
        """The config of the model, a small GPT-2."""
        options = {name: getattr(self, name) for name in ("layers", "heads", "d_model", "dropout")}
        position = POSITIONS[self.position]
        return replace(gpt.GPT2, **options, position=position, d_ff=4 * self.d_model, max_length=self.context)

    @property
    def recipe(self) -> training.Recipe:
        """The recipe of its training."""
        names = {field.name for field in fields(training.Recipe)} & {field.name for field in fields(self)}
        schedule = training.warmup_cosine(self.warmup, self.final)
        return training.Recipe(
            **{name: getattr(self, name) for name in names}, schedule=schedule, betas=(0.9, self.beta2)
        )
