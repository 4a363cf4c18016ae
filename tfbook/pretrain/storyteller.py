"""The storyteller: a GPT trained on the story world, whose weights come with tfbook. This command trained it.

python -m tfbook.pretrain.storyteller --out run                    an hour on one core, minutes on a GPU; resumes
python -m tfbook.pretrain.storyteller --model draft --out draft    a small one of the same vocabulary, in minutes
python -m tfbook.pretrain.storyteller --judge 1000                 how many stories of the weights that ship are right

Shapes: batch, time.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

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
    """The trained model "storyteller", or its small relative "draft". Raises ValueError for another name."""
    from safetensors.torch import load_file

    if name not in MODELS:
        raise ValueError(f"name is {name!r}; expected one of {', '.join(map(repr, MODELS))}")
    teller = untrained(name)
    weights = load_file(fetch(File(path=f"storyteller/{name}.safetensors")))
    teller.model.load_state_dict({key: weight.float() for key, weight in weights.items()}, strict=False)
    teller.model.unembed.weight = teller.model.embed.weight
    return Storyteller(teller.model.to(runtime.device()).eval(), teller.vocabulary)


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


@torch.no_grad()
def tell(
    teller: Storyteller, count: int, *, temperature: float = 1.0, seed: int = 0, beginning: str = ""
) -> list[list[str]]:
    """`count` stories in words, sampled from `beginning` on; one that does not end is cut at `LONGEST` tokens."""
    prompt = [BOS, *teller.vocabulary.encode(words_of(beginning))]
    device = next(teller.model.parameters()).device
    ids = torch.tensor([prompt] * count, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    generated = sampling.generate(
        teller.model,
        ids,
        max_new_tokens=LONGEST - len(prompt),
        filters=[sampling.temperature(temperature)],
        stop=[EOS],
        generator=generator,
    )
    return [list(teller.vocabulary.decode(row)) for row in generated]


def entropy_bound(stories: list[Story]) -> float:
    """Nats per token: no less than what a model that knows the world needs, since the draws of a story tell it all."""
    return math.log(2) * sum(story.bits for story in stories) / sum(len(story.words) + 1 for story in stories)


def judge(teller: Storyteller, count: int, *, temperature: float, seed: int = 0) -> dict[str, float]:
    """Which share of `count` sampled stories is right in which respect (`tfbook.data.stories.summary`)."""
    return summary([check_story(words) for words in tell(teller, count, temperature=temperature, seed=seed)])


@torch.no_grad()
def evaluate(teller: Storyteller, ids: Int64[Tensor, "batch time"], *, seed: int = 0) -> dict[str, float]:
    """Loss on held-out stories, and which share of sampled ones, at temperature 0.7, is right in which respect."""
    device = next(teller.model.parameters()).device
    loss = float(story_loss(teller.model, ids.to(device)).mean)
    return {"loss": loss, **judge(teller, len(ids) // 2, temperature=0.7, seed=seed)}


# ---- training --------------------------------------------------------------------------------------------------------


def train(name: str, out: Path, steps: int) -> Storyteller:
    """Trains a model, or resumes its run in `out`; a line of log for each evaluation, the weights at the end."""
    runtime.seed(0)
    out.mkdir(parents=True, exist_ok=True)
    teller = untrained(name)
    teller.model.to(runtime.device())
    held_out = [told("valid", number) for number in range(HELD_OUT)]
    ids = story_ids([story.words for story in held_out], teller.vocabulary)
    recipe = training.Recipe(
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

    def log(history: training.History) -> None:
        row = {name: round(value, 4) for name, value in history.evaluations[-1].items()}
        line = json.dumps(row | {"minutes": round(history.elapsed / 60, 1)})
        with (out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)

    print(f"{teller.model.parameter_count():,} parameters; entropy bound {entropy_bound(held_out):.4f} nats per token")
    training.fit(
        teller.model,
        story_loss,
        StoryBatches(size=BATCH),
        recipe,
        evaluate=lambda model: evaluate(Storyteller(model, teller.vocabulary), ids),
        checkpoint=out / "checkpoint.pt",
        report=log,
    )
    save_storyteller(teller, out / f"{name}.safetensors")
    return teller


def run_command(arguments: list[str] | None = None) -> None:
    """Trains as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m tfbook.pretrain.storyteller",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", choices=tuple(MODELS), default="storyteller")
    parser.add_argument("--steps", type=int, help="of 32 stories (4000; draft 1500)")
    parser.add_argument("--out", type=Path, default=Path("storyteller"), help="folder of the run (storyteller)")
    parser.add_argument(
        "--judge", type=int, metavar="COUNT", help="instead, judge so many stories of the weights that ship"
    )
    options = parser.parse_args(arguments)
    try:
        if options.judge:
            for temperature in (1.0, 0.7):
                found = judge(load_storyteller(options.model), options.judge, temperature=temperature)
                print(f"temperature {temperature}:", *(f"{name} {share:.3f}" for name, share in found.items()))
        else:
            train(options.model, options.out, options.steps or STEPS[options.model])
    except (ValueError, OSError, training.CheckpointError, training.NonFiniteLoss) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")


if __name__ == "__main__":
    run_command()
