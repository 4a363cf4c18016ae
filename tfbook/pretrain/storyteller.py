"""Trains the storyteller: a GPT of the story world, whose weights come with tfbook and were trained by this command.

python -m tfbook.pretrain.storyteller --out run                    an hour on one core, minutes on a GPU; resumes
python -m tfbook.pretrain.storyteller --model draft --out draft    a small one of the same vocabulary, in minutes
python -m tfbook.pretrain.storyteller --judge 1000                 the share of right stories by the weights that ship

Shapes: batch, time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from tfbook import files, runtime, training
from tfbook.attention.positions import POSITIONS
from tfbook.data.download import File, fetch
from tfbook.data.stories import Story, StoryBatches, check_story, story_ids, summary, told, words_of, world_words
from tfbook.generation import sampling
from tfbook.models.blocks import Config
from tfbook.models.gpt import GPT2, Gpt
from tfbook.pretrain import driver
from tfbook.pretrain.options import MOST, RunOptions, option
from tfbook.text.vocabulary import BOS, EOS, PAD, Vocabulary
from tfbook.training.losses import next_token_loss

LONGEST = 126  # ids of a story, with `<bos>` and `<eos>`
_BASE = replace(GPT2, max_length=128, position=POSITIONS["rotary"], dropout=0.0)
MODELS: dict[str, Config] = {
    "storyteller": replace(_BASE, d_model=192, d_ff=768, heads=6, layers=4),  # 1.9 million parameters
    "draft": replace(_BASE, d_model=64, d_ff=256, heads=2, layers=2),  # 0.14 million
}
STEPS = {"storyteller": 4000, "draft": 1500}
BATCH = 32  # stories
SPREAD = 0.2  # standard deviation of the embedding at first: with GPT-2's 0.02, words start too alike to be told apart
HELD_OUT = 300  # stories that an evaluation reads, and half as many that it samples

story_loss = partial(next_token_loss, pad=PAD)


class Storyteller(NamedTuple):
    """A model in eval mode and its vocabulary."""

    model: Gpt
    vocabulary: Vocabulary


def load_storyteller(name: str = "storyteller") -> Storyteller:
    """The trained model "storyteller", or its small relative "draft".

    Raises ValueError for another name, and for a file that lacks some of the weights or holds others.
    """
    from safetensors.torch import load_file

    check_model_name("name", name)
    teller = untrained(name)
    weights = load_file(fetch(File(path=f"storyteller/{name}.safetensors")))
    found = teller.model.load_state_dict({key: weight.float() for key, weight in weights.items()}, strict=False)
    if wrong := {*found.missing_keys, *found.unexpected_keys} - {"unembed.weight"}:  # which is the embedding
        raise ValueError(f"{name}.safetensors is another model's; these weights differ: {', '.join(sorted(wrong))}")
    return Storyteller(teller.model.to(runtime.device()).eval(), teller.vocabulary)


def check_model_name(argument: str, name: str) -> None:
    """Raises ValueError for a name that is none of `MODELS`."""
    if name not in MODELS:
        raise ValueError(f"{argument} is {name!r}; expected one of {', '.join(map(repr, MODELS))}")


def untrained(name: str) -> Storyteller:
    """The model before its training."""
    vocabulary = Vocabulary([world_words()])
    model = Gpt(len(vocabulary), MODELS[name])
    torch.nn.init.normal_(model.embed.weight, std=SPREAD)
    return Storyteller(model, vocabulary)


def save_storyteller(teller: Storyteller, path: str | Path) -> None:
    """The weights as safetensors, in half precision, the tied embedding once."""
    from safetensors.torch import save

    weights = {key: weight.half().contiguous() for key, weight in teller.model.state_dict().items()}
    del weights["unembed.weight"]
    with files.atomic_write(path) as file:
        file.write(save(weights))


# ---- telling and judging ---------------------------------------------------------------------------------------------


def tell(
    teller: Storyteller, count: int, *, temperature: float = 1.0, seed: int = 0, beginning: str = ""
) -> list[list[str]]:
    """Samples `count` stories, in words, from `beginning` on; one that does not end is cut at `LONGEST` tokens.

    It shows a progress bar, and the stop button cuts the stories where they are.
    """
    from tfbook.training.progress import tqdm  # here, because it looks for a notebook when imported

    ids, options = _request(teller, count, temperature, seed, beginning)
    tokens = sampling.stream(teller.model, ids, **options)
    shown = tqdm(tokens, total=options["max_new_tokens"], unit="token", leave=False)
    return _decoded(teller, torch.cat([ids, *shown], dim=1))


def _request(
    teller: Storyteller, count: int, temperature: float, seed: int, beginning: str = ""
) -> tuple[Int64[Tensor, "batch time"], dict[str, Any]]:
    """The prompts, and the options of sampling."""
    prompt = [BOS, *teller.vocabulary.encode(words_of(beginning))]
    device = next(teller.model.parameters()).device
    return torch.tensor([prompt] * count, device=device), {
        "max_new_tokens": LONGEST - len(prompt),
        "filters": [sampling.temperature(temperature)],
        "stop": [EOS],
        "generator": torch.Generator(device).manual_seed(seed),
    }


def _decoded(teller: Storyteller, ids: Int64[Tensor, "batch time"]) -> list[list[str]]:
    return [list(teller.vocabulary.decode(row)) for row in ids]


def entropy_bound(stories: list[Story]) -> float:
    """Nats per token, at least as many as a model that knows the world needs: a story follows from its draws."""
    return math.log(2) * sum(story.bits for story in stories) / sum(len(story.words) + 1 for story in stories)


def judge(teller: Storyteller, count: int, *, temperature: float, seed: int = 0) -> dict[str, float]:
    """The shares of `count` sampled stories that are right, by respect (`tfbook.data.stories.summary`).

    Unlike those of `tell`, no story is cut by the stop button.
    """
    ids, options = _request(teller, count, temperature, seed)
    stories = _decoded(teller, sampling.generate(teller.model, ids, **options))
    return summary([check_story(words) for words in stories])


@torch.no_grad()
def evaluate(teller: Storyteller, ids: Int64[Tensor, "batch time"], *, seed: int = 0) -> dict[str, float]:
    """Loss on held-out stories, and the shares of stories sampled at temperature 0.7 that are right, by respect."""
    device = next(teller.model.parameters()).device
    loss = float(story_loss(teller.model, ids.to(device)).mean)
    return {"loss": loss, **judge(teller, len(ids) // 2, temperature=0.7, seed=seed)}


# ---- training --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Telling(RunOptions):
    """The options of the command. Raises ValueError for an unknown model, and for numbers out of bounds."""

    model: str = option("storyteller", "model to train or judge", choices=tuple(MODELS))
    steps: int | None = option(
        None, f"steps of {BATCH} stories ({STEPS['storyteller']}; draft {STEPS['draft']})", least=1, most=MOST
    )
    judge: int | None = option(None, "instead, judge that many stories of the weights that ship", least=1, most=MOST)
    out: str = option("storyteller", "folder of the run; a run that is there is resumed")

    may_change = frozenset({"steps", "judge", "out"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model_name("model", self.model)


def train(options: Telling) -> training.History:
    """Trains a model, or resumes its run in `options.out`: a line of log per evaluation, the weights at the end.

    Raises what `driver.run` raises.
    """
    folder = options.folder
    if driver.checkpoint(folder).exists() and not driver.options_file(folder).exists():
        driver.save_options(options)  # a folder of an earlier release has none
    return driver.run(options, partial(_set_up, options))


def _set_up(options: Telling) -> driver.Job:
    runtime.seed(0)
    teller = untrained(options.model)
    teller.model.to(runtime.device())
    held_out = [told("valid", number) for number in range(HELD_OUT)]
    ids = story_ids([story.words for story in held_out], teller.vocabulary)
    print(f"{teller.model.parameter_count():,} parameters; entropy bound {entropy_bound(held_out):.4f} nats per token")
    return driver.Job(
        model=teller.model,
        loss=story_loss,
        batches=StoryBatches(size=BATCH),
        recipe=_recipe(options.steps or STEPS[options.model]),
        evaluate=lambda model: evaluate(Storyteller(model, teller.vocabulary), ids),
        report=_report,
        finish=partial(save_storyteller, teller, options.folder / f"{options.model}.safetensors"),
    )


def _recipe(steps: int) -> training.Recipe:
    return training.Recipe(
        steps=steps,
        optimizer="muon",
        lr=0.01,
        weight_decay=0.1,  # without it the weights grow until longer training no longer helps
        embedding_lr_factor=0.1,  # words that fit into one place become one if they learn faster than the blocks …
        embedding_decay_factor=0,  # … or shrink where they don't occur
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(100, 0.0),
        evaluate_every=max(1, steps // 40),
        checkpoint_every=100,
    )


def _report(history: training.History) -> None:
    for row in history.evaluations:
        row["minutes"] = round(row["seconds"] / 60, 1)
    driver.say_row(history)


def _start(options: Telling) -> None:
    if options.judge is None:
        train(options)
        return
    config = MODELS[options.model]
    driver.check_memory(4 * options.judge * LONGEST * config.layers * config.d_model)
    for temperature in (1.0, 0.7):
        found = judge(load_storyteller(options.model), options.judge, temperature=temperature)
        print(f"temperature {temperature}:", *(f"{name} {share:.3f}" for name, share in found.items()))


def run_command(arguments: list[str] | None = None) -> None:
    """Trains or judges as the command line says; an error is one line."""
    driver.run_command_line(Telling, _start, "python -m tfbook.pretrain.storyteller", __doc__, arguments)


if __name__ == "__main__":
    run_command()
