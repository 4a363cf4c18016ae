"""Fine-tunes the storyteller on plays, the story world's other dialect: all weights, the last layer, LoRA, new rows.

python -m tfbook.pretrain.finetune --method lora --out adapted     minutes on two cores; the same command resumes
python -m tfbook.pretrain.finetune --method full --lr 0.003 --out other

Shapes: batch, time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from tfbook import files, runtime, training
from tfbook.data.stories import WORLD, story, story_ids, told, words_of_plays_alone, world_words
from tfbook.data.stories.corpus import split_seed
from tfbook.models.adapters import add_lora, lora_state, trained_count
from tfbook.models.gpt import Gpt
from tfbook.pretrain import driver
from tfbook.pretrain.options import MOST, RunOptions, check_seed, option
from tfbook.pretrain.storyteller import MODELS, check_model, load_storyteller, story_loss
from tfbook.text.vocabulary import Vocabulary

PLAYS = replace(WORLD, dialect="play")
RATES = {"full": 1e-3, "last": 1e-2, "lora": 1e-2, "rows": 1e-1}  # learning rates that serve each method here
RANK, ALPHA, WHERE = 2, 2, ("W_Q", "W_K", "W_V", "W_O", "up", "down")
HELD_OUT = 60  # plays, and as many tales, that an evaluation reads
SEEDS = {"train": range(50_000_000, 90_000_000), "valid": range(90_000_000, 100_000_000)}  # of plays alone


@dataclass(frozen=True, kw_only=True)
class Finetuning(RunOptions):
    """The options of a run. Raises ValueError for an unknown model or method, and for numbers out of bounds."""

    model: str = option("storyteller", f"model to fine-tune: {' or '.join(MODELS)}")
    method: str = option("lora", f"weights to train: {', '.join(RATES)}")
    steps: int = option(200, "steps in total, including those before an interruption", least=1, most=MOST)
    lr: float | None = option(None, "peak learning rate; by default one that serves the method")
    rank: int = option(RANK, "rank of LoRA's matrices", least=1, most=MOST)
    batch: int = option(8, "plays per batch", least=1, most=MOST)
    seed: int = option(0, "seed of new weights and of the plays")
    out: str = option("finetuned", "folder of the run; a run that is there is resumed")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model("model", self.model)
        if self.method not in RATES:
            raise ValueError(f"method is {self.method!r}; expected one of {', '.join(map(repr, RATES))}")
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"lr is {self.lr}; expected more than 0")
        check_seed(self.seed)


# ---- plays -------------------------------------------------------------------------------------------------------


def play(split: str, number: int) -> tuple[str, ...]:
    """The words of the play of this number in the split "train" or "valid"; raises ValueError as `split_seed` does."""
    return story(split_seed(SEEDS, split, number), PLAYS).words


def plays(vocabulary: Vocabulary, count: int, *, split: str = "valid", first: int = 0) -> Int64[Tensor, "batch time"]:
    """The ids of `count` plays, padded to the longest."""
    return story_ids([play(split, first + number) for number in range(count)], vocabulary)


def tales(vocabulary: Vocabulary, count: int) -> Int64[Tensor, "batch time"]:
    """The ids of `count` held-out tales, the dialect that the storyteller knew before."""
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
    """Freezes all weights but those that `method` trains; returns the model, which it changes.

    "rows" trains the rows of the embedding whose words never occur in tales; "last" and "lora" train them, too. "last"
    adds the output matrix, untied from the embedding, so that old words are read as before; "lora" adds adapters to
    every matrix of the blocks.
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
    """The ids of the words that occur in plays and never in tales."""
    return Vocabulary([world_words()]).encode(words_of_plays_alone())


def changed_count(model: Gpt, method: str) -> int:
    """The number of parameters that training changes; of a frozen embedding it counts the new words' rows alone."""
    if method == "full":
        return trained_count(model)
    return trained_count(model) - (len(model.embed.weight) - len(new_words())) * model.embed.embedding_dim


def recipe(options: Finetuning) -> training.Recipe:
    """AdamW, a short warm-up and a cosine down to 0."""
    return training.Recipe(
        steps=options.steps,
        lr=options.lr or RATES[options.method],
        schedule=training.warmup_cosine(min(10, options.steps)),
        evaluate_every=max(1, options.steps // 4),
        checkpoint_every=max(1, options.steps // 10),
    )


def batches(options: Finetuning, vocabulary: Vocabulary) -> Callable[[int], Int64[Tensor, "batch time"]]:
    """Maps a step to plays that no other step has; each seed has its own, and none is held out."""
    first = options.seed * 1_000_000
    return lambda step: plays(vocabulary, options.batch, split="train", first=first + step * options.batch)


def finetune(options: Finetuning) -> training.History:
    """Fine-tunes, or resumes the run in `options.out`: a line of log per evaluation, the trained weights at the end.

    Raises what `driver.run` raises, and ValueError for more than the machine's memory.
    """
    config = MODELS[options.model]
    rows = options.batch * PLAYS.shortest + 8 * options.rank * len(WHERE)
    driver.check_memory(2 * rows * config.layers * config.d_model)
    return driver.run(options, partial(_set_up, options))


def _set_up(options: Finetuning) -> driver.Job:
    runtime.seed(options.seed)
    teller = load_storyteller(options.model)
    model = prepare(teller.model, options.method, rank=options.rank).to(runtime.device())
    before = losses(model, teller.vocabulary)
    print(f"trains {changed_count(model, options.method):,} parameters; losses before: {before}")
    return driver.Job(
        model=model,
        loss=story_loss,
        batches=batches(options, teller.vocabulary),
        recipe=recipe(options),
        evaluate=lambda model: losses(model, teller.vocabulary),
        report=driver.say_row,
        finish=partial(save, model, options.method, options.folder / "trained.safetensors"),
    )


def save(model: Gpt, method: str, path: Path) -> None:
    """Saves what `method` changed: all weights, or the rows `new_words` with the output matrix or the adapters."""
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


def finetune_command(arguments: list[str] | None = None) -> None:
    """Fine-tunes as the command line says; an error is one line."""
    driver.run_command_line(Finetuning, finetune, "python -m tfbook.pretrain.finetune", __doc__, arguments)


if __name__ == "__main__":
    finetune_command()
