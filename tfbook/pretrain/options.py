"""Options: a field of a dataclass is an option of the command line and an entry of a run's `options.json`."""

from __future__ import annotations

import json
import math
from argparse import ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from tfbook import training
from tfbook.attention.positions import POSITIONS
from tfbook.files import expanded
from tfbook.models import gpt
from tfbook.models.blocks import Config, Stack, on_paper
from tfbook.models.tensor_parallel import check_tensor_parallel

SEEDS = 2**63  # PyTorch's generators take no larger ones
ORDERS = ("random", "text")
MOST = 10**9  # of whatever is counted one by one: layers, steps, tokens, stories


R = TypeVar("R", bound="RunOptions")


def option(
    default: Any, meaning: str, *, least: int | None = None, most: float | None = None, choices: Any = None
) -> Any:
    """A field with its help; `least` and `most` bound its number, and `choices` are all that the command line takes."""
    return field(default=default, metadata={"help": meaning, "least": least, "most": most, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options that runs share. Raises ValueError for a number that is out of bounds or infinite."""

    out: str = option("run", "folder of the run; a run that is there is resumed")

    may_change = frozenset({"out"})  # when a run is resumed
    log = "log.jsonl"  # the file in the folder, a line per evaluation

    def __post_init__(self) -> None:
        for option in fields(self):
            value, bounds = getattr(self, option.name), option.metadata
            if bounds["least"] is not None and value is not None and value < bounds["least"]:
                raise ValueError(f"{option.name} is {value}; expected {bounds['least']} or more")
            if bounds["most"] is not None and value is not None and value > bounds["most"]:
                raise ValueError(f"{option.name} is {value}; expected at most {bounds['most']:,}")
            if value == math.inf and bounds["most"] != math.inf:
                raise ValueError(f"{option.name} is inf; expected a finite number")

    @property
    def folder(self) -> Path:
        """The folder `out`. Raises ValueError for an empty name and for `~` with an unknown user."""
        return expanded("out", self.out, "a folder" if self.out else "a folder, new or that of a run")

    @property
    def fixed(self) -> dict[str, Any]:
        """The options that a run keeps for good."""
        return {name: value for name, value in asdict(self).items() if name not in self.may_change}


def parser_of(options: type[RunOptions], prog: str, description: str | None) -> ArgumentParser:
    """A parser with an argument for each option."""
    parser = ArgumentParser(prog=prog, description=description, formatter_class=RawDescriptionHelpFormatter)
    kinds = _kinds(options)
    for option in fields(options):
        kind, choices = kinds[option.name][0], option.metadata["choices"]
        name = f"--{option.name.replace('_', '-')}"
        if kind is bool:
            parser.add_argument(
                name, action=BooleanOptionalAction, default=option.default, help=option.metadata["help"]
            )
            continue
        default = "" if option.default is None else f" ({option.default})"
        parser.add_argument(
            name,
            type=kind,
            default=option.default,
            choices=choices,
            metavar=None if choices else kind.__name__,
            help=option.metadata["help"] + default,
        )
    return parser


def read(kind: type[R], path: Path) -> R:
    """The options in a file. Raises FileNotFoundError, and ValueError for anything but options of this kind."""
    try:
        return kind(**check_kinds(kind, json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} does not hold the options of a run ({error})") from error


def _kinds(options: type[RunOptions]) -> dict[str, tuple[type, ...]]:
    """The types of each option, the one that the command line reads first."""
    hints = get_type_hints(options)
    return {option.name: get_args(hints[option.name]) or (hints[option.name],) for option in fields(options)}


def check_kinds(options: type[RunOptions], content: Any) -> dict[str, Any]:
    """Returns the values of some options. Raises ValueError for anything but an object of values of their types."""
    if not isinstance(content, dict):
        raise ValueError(f"it is a {type(content).__name__}; expected an object")
    for name, allowed in _kinds(options).items():
        value = content.get(name, allowed[0]())
        if type(value) not in allowed and not (float in allowed and type(value) is int):
            expected = " or ".join(kind.__name__ for kind in allowed if kind is not NoneType)
            raise ValueError(f"{name} is {value!r}; expected {expected}")
    return content


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """The options of a pretraining run; the defaults are nanoGPT's published ones for a small CPU."""

    corpus: str = option("tiny-shakespeare", "tiny-shakespeare, python-reference or the path of a text file")
    vocab: int = option(0, "size of a byte-pair vocabulary; 0: characters", least=0, most=MOST)
    layers: int = option(4, "blocks", most=MOST)
    heads: int = option(4, "attention heads per block")
    d_model: int = option(128, "width of the residual stream; feed-forward layers are four times as wide", most=MOST)
    position: str = option("learned", "positional encoding", choices=tuple(POSITIONS))
    dropout: float = option(0.0, "dropout probability")
    context: int = option(64, "tokens that the model sees at once", least=1)
    order: str = option("random", "of windows: drawn from the text, or one after another", choices=ORDERS)
    batch: int = option(12, "windows per batch, over all processes", least=1, most=MOST)
    accumulate: int = option(1, "batches per step", most=MOST)
    steps: int = option(2000, "steps in total, including those before an interruption", most=MOST)
    lr: float = option(1e-3, "peak learning rate")
    embedding_lr_factor: float = option(1.0, "factor on it for the tied embedding")
    warmup: int = option(100, "steps over which the learning rate rises")
    final: float = option(0.1, "final learning rate as a fraction of the peak")
    beta2: float = option(0.99, "AdamW's decay rate of squared gradients")
    weight_decay: float = option(0.1, "weight decay of matrices")
    clip: float = option(1.0, "maximum norm of the gradient", most=math.inf)
    optimizer: str = option("adamw", "muon: for the matrices of the blocks", choices=("adamw", "muon"))
    precision: str = option(
        "auto",
        "of matrix products; auto: the faster one on this machine",
        choices=("auto", "float32", "bfloat16"),
    )
    compile: bool | None = option(None, "run torch.compile; by default where it pays")
    checkpoint_activations: bool = option(
        default=False, meaning="compute each block again in the backward pass, to save memory"
    )
    shard: bool = option(default=False, meaning="share weights, gradients and moments among processes (FSDP)")
    tensor_parallel: int = option(1, "processes that split each block's matrices among themselves", least=1)
    evaluate_every: int = option(250, "steps between evaluations")
    evaluate_on: int = option(100_000, "validation tokens per evaluation, at most", least=1)
    checkpoint_every: int = option(250, "steps between checkpoints")
    sample: int = option(300, "tokens to generate at the end", least=0, most=MOST)
    seed: int = option(0, "seed of weights and batches")
    out: str = option("pretrained", "folder of the run; a run that is there is resumed")

    may_change = frozenset(
        {"steps", "evaluate_every", "checkpoint_every", "sample", "out"}
        | {"compile", "checkpoint_activations", "shard", "tensor_parallel"}
    )
    log = "history.json"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seed(self.seed)
        if self.order not in ORDERS:
            raise ValueError(f"order is {self.order!r}; expected one of {', '.join(map(repr, ORDERS))}")
        _ = self.recipe  # it checks the options of training, and the config those of the model
        on_paper(replace(self.config, max_length=1).encoding)  # some encodings need an even width
        if self.tensor_parallel != 1:
            one = replace(self.config, layers=1, max_length=1)
            check_tensor_parallel(on_paper(lambda: Stack(one)), self.tensor_parallel)

    @property
    def fixed(self) -> dict[str, Any]:
        """The options that a run keeps for good, the order only where it differs from what older runs had."""
        return {name: value for name, value in super().fixed.items() if (name, value) != ("order", ORDERS[0])}

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


def check_seed(seed: int) -> None:
    """Raises ValueError for a seed that PyTorch's generators do not take."""
    if not 0 <= seed < SEEDS:
        raise ValueError(f"seed is {seed}; expected 0 to 2⁶³ − 1")
