"""Fine-tuning the storyteller on plays, the story world's other dialect: all weights, the last layer, LoRA, new rows.

python -m tfbook.pretrain.finetune --method lora --out adapted     minutes on two cores; the same command resumes
python -m tfbook.pretrain.finetune --method full --lr 0.003 --out other

Shapes: batch, time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from tfbook import files, runtime, training
from tfbook.checks import check_positive
from tfbook.data.stories import WORLD, story, story_ids, told, words_of_plays_alone, world_words
from tfbook.models.adapters import add_lora, lora_state, trained_count
from tfbook.models.gpt import Gpt
from tfbook.pretrain.run import alone_in
from tfbook.pretrain.storyteller import MODELS, Storyteller, load_storyteller, story_loss
from tfbook.text.vocabulary import Vocabulary

PLAYS = replace(WORLD, dialect="play")
RATES = {"full": 1e-3, "last": 1e-2, "lora": 1e-2, "rows": 1e-1}  # learning rates that serve each method here
RANK, ALPHA, WHERE = 2, 2, ("W_Q", "W_K", "W_V", "W_O", "up", "down")
HELD_OUT = 60  # plays, and as many tales, that an evaluation reads
_FIRST_SEED = {"train": 50_000_000, "valid": 90_000_000}  # of plays; those of tales lie below


@dataclass(frozen=True, kw_only=True)
class Finetuning:
    """What a run is. Raises ValueError for an unknown model or method, or for numbers that are not positive."""

    model: str = "storyteller"
    method: str = "lora"
    steps: int = 200
    lr: float | None = None  # that of RATES
    rank: int = RANK
    batch: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (("model", MODELS), ("method", RATES)):
            if getattr(self, name) not in known:
                names = ", ".join(map(repr, known))
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {names}")
        check_positive(steps=self.steps, rank=self.rank, batch=self.batch)
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"lr is {self.lr}; expected more than 0")


# ---- plays -------------------------------------------------------------------------------------------------------


def play(split: str, number: int) -> tuple[str, ...]:
    """The words of the play of this number in the split "train" or "valid"."""
    return story(_FIRST_SEED[split] + number, PLAYS).words


def plays(vocabulary: Vocabulary, count: int, *, split: str = "valid", first: int = 0) -> Int64[Tensor, "batch time"]:
    """The ids of `count` plays, padded to the longest."""
    return story_ids([play(split, first + number) for number in range(count)], vocabulary)


def tales(vocabulary: Vocabulary, count: int) -> Int64[Tensor, "batch time"]:
    """The ids of `count` held-out tales: what the storyteller knew before."""
    return story_ids([told("valid", number).words for number in range(count)], vocabulary)


@torch.no_grad()
def losses(model: Gpt, vocabulary: Vocabulary, count: int | None = None) -> dict[str, float]:
    """Nats per token on held-out plays (`new`) and on held-out tales (`old`)."""
    device = next(model.parameters()).device
    count = count or HELD_OUT
    texts = {"new": plays(vocabulary, count), "old": tales(vocabulary, count)}
    return {name: float(story_loss(model, ids.to(device)).mean) for name, ids in texts.items()}


# ---- what is trained ---------------------------------------------------------------------------------------------


def prepare(model: Gpt, method: str, *, rank: int = RANK) -> Gpt:
    """Leaves trainable what `method` trains; returns the model, changed.

    "rows" is those of the embedding whose words tales never have; "last" and "lora" train them, too. "last" adds the
    output's matrix, untied from the embedding, so that old words are read as before; "lora" adds adapters to every
    matrix of the blocks.
    """
    if method == "full":
        return model
    model.requires_grad_(requires_grad=False)
    if method == "lora":
        add_lora(model, rank=rank, alpha=ALPHA, where=WHERE)
    if method == "last":
        model.unembed.weight = nn.Parameter(model.unembed.weight.detach().clone())
    rows = torch.zeros(len(model.embed.weight), 1, device=model.embed.weight.device)
    rows[new_words()] = 1
    model.embed.weight.requires_grad_().register_hook(lambda gradient: gradient * rows.to(gradient.device))
    return model


def new_words() -> list[int]:
    """The ids of the words that plays are told in and tales never."""
    return Vocabulary([world_words()]).encode(words_of_plays_alone())


def changed_count(model: Gpt, method: str) -> int:
    """How many numbers training changes; of the embedding, unless all of it is trained, the new words' rows alone."""
    if method == "full":
        return trained_count(model)
    return trained_count(model) - (len(model.embed.weight) - len(new_words())) * model.embed.embedding_dim


def recipe(options: Finetuning, *, evaluate_every: int | None = None) -> training.Recipe:
    """AdamW, a short warm-up and a cosine down to 0."""
    return training.Recipe(
        steps=options.steps,
        lr=options.lr or RATES[options.method],
        schedule=training.warmup_cosine(min(10, options.steps)),
        evaluate_every=evaluate_every or max(1, options.steps // 4),
        checkpoint_every=max(1, options.steps // 10),
    )


def batches(options: Finetuning, vocabulary: Vocabulary) -> Callable[[int], Int64[Tensor, "batch time"]]:
    """Step → plays that no other step has; each seed has its own."""
    first = options.seed * 1_000_000
    return lambda step: plays(vocabulary, options.batch, split="train", first=first + step * options.batch)


def finetune(options: Finetuning, out: Path) -> Storyteller:
    """Fine-tunes, or resumes the run in `out`: a line of log per evaluation, and what was trained in the end."""
    with alone_in(out):
        _same_options(options, out / "options.json")
        runtime.seed(options.seed)
        teller = load_storyteller(options.model)
        model = prepare(teller.model, options.method, rank=options.rank).to(runtime.device())
        before = losses(model, teller.vocabulary)
        print(f"trains {changed_count(model, options.method):,} parameters; losses before: {before}")

        def log(history: training.History) -> None:
            line = json.dumps({name: round(value, 4) for name, value in history.evaluations[-1].items()})
            with (out / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            print(line, flush=True)

        training.fit(
            model,
            story_loss,
            batches(options, teller.vocabulary),
            recipe(options),
            evaluate=lambda model: losses(model, teller.vocabulary),
            checkpoint=out / "checkpoint.pt",
            report=log,
        )
        save(model, options.method, out / "trained.safetensors")
        return teller


def save(model: Gpt, method: str, path: Path) -> None:
    """What `method` changed, as safetensors: all weights, or the `new_words` with the output's matrix or adapters."""
    from safetensors.torch import save as packed

    state = model.state_dict()
    rows = {"new_words": state["embed.weight"][new_words()]}
    if method == "full":
        kept = {name: weight for name, weight in state.items() if name != "unembed.weight"}  # the embedding
    elif method == "last":
        kept = rows | {"unembed.weight": state["unembed.weight"]}
    else:
        kept = rows | lora_state(model)
    with files.atomic_write(path) as file:
        file.write(packed({name: weight.cpu().contiguous() for name, weight in kept.items()}))


# ---- the folder of a run -----------------------------------------------------------------------------------------


def _same_options(options: Finetuning, path: Path) -> None:
    """Writes the options of a new run; raises ValueError when the folder holds a run with others."""
    now = asdict(options)
    if path.exists() and (was := json.loads(path.read_text(encoding="utf-8"))) != now:
        name = next(name for name in now if was.get(name) != now[name])
        raise ValueError(f"{path.parent} holds a run with {name} {was.get(name)!r}, and {name} is {now[name]!r}")
    path.write_text(json.dumps(now), encoding="utf-8")


def finetune_command(arguments: list[str] | None = None) -> None:
    """Fine-tunes as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m tfbook.pretrain.finetune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, value in asdict(Finetuning()).items():
        kind = float if name == "lr" else type(value)
        parser.add_argument(f"--{name}", type=kind, default=value, help=f"({value})")
    parser.add_argument("--out", type=Path, default=Path("finetuned"), help="folder of the run (finetuned)")
    chosen = vars(parser.parse_args(arguments))
    out = chosen.pop("out")
    try:
        finetune(Finetuning(**chosen), out)
    except (ValueError, OSError, training.CheckpointError, training.NonFiniteLoss) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")


if __name__ == "__main__":
    finetune_command()
