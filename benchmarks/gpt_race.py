"""Time to nanoGPT's validation loss: its published settings against our recipes, on the same text.

    git clone https://github.com/karpathy/nanoGPT
    python benchmarks/gpt_race.py --nanogpt nanoGPT [--text shakespeare.txt] [--rounds 3] [--out race.json]
    python benchmarks/gpt_race.py --nanogpt nanoGPT --setting gpu                       nanoGPT's setting for a GPU
    python benchmarks/gpt_race.py --nanogpt nanoGPT --store scaling_laws.race           what lesson 10 shows
    python benchmarks/gpt_race.py --nanogpt nanoGPT --rounds 1 --factors --store scaling_laws.factors

nanoGPT runs its own train.py with the arguments of its README, without its evaluations, which would count as time. All
train in turns on the characters of tiny Shakespeare (unless given another text), ours with a new seed each round, and
are judged alike: mean loss in nats over all of the validation text, in pieces of 64 characters, 256 on a GPU. A share
is the middle of the rounds' times over nanoGPT's, compiling included; on a GPU it stops after 2,000 of its 5,000 steps,
where its loss is lowest. Exit status 1 when a recipe of ours takes more than a third, ends above nanoGPT's loss (or
above the published one) in any round, or has more parameters. `--factors` shows what each part of the recipe gains.
"""

from __future__ import annotations

import argparse
import json
import pickle
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import data, runtime, training
from tfbook.attention import POSITIONS
from tfbook.course.experiments import current_commit, machine, markdown, store
from tfbook.models.blocks import Config
from tfbook.models.feed_forward import FeedForward
from tfbook.models.gpt import GPT2, Gpt
from tfbook.pretrain.measure import evaluation_windows
from tfbook.text import Windows
from tfbook.training import next_token_loss

CONTEXT = 64
BAR = 1 / 3
ARGUMENTS = {  # its README's, but for evaluation
    "device": "cpu", "compile": False, "eval_iters": 1, "eval_interval": 10**9, "log_interval": 1,
    "block_size": CONTEXT, "batch_size": 12, "n_layer": 4, "n_head": 4, "n_embd": 128,
    "max_iters": 2000, "lr_decay_iters": 2000, "dropout": 0.0,
}  # fmt: skip
ON_GPU = {  # its config/train_shakespeare_char.py, up to the step with the lowest loss
    "device": "cuda", "compile": True, "eval_iters": 1, "eval_interval": 10**9, "log_interval": 10,
    "block_size": 256, "batch_size": 64, "max_iters": 2000, "lr_decay_iters": 5000,
}  # fmt: skip


class Entrant(NamedTuple):
    """What enters the race: a shape, the pieces of text in a batch, and how it is trained."""

    config: Config
    batch: int
    recipe: training.Recipe


GELU = partial(FeedForward, activation=F.gelu)


def shape(layers: int, d_model: int, position: str) -> Config:
    """GPT-2's architecture in small, with the activation that nanoGPT has."""
    config = {"layers": layers, "d_model": d_model, "heads": 4, "d_ff": 4 * d_model, "max_length": CONTEXT}
    return replace(GPT2, **config, position=POSITIONS[position], feed_forward=GELU, dropout=0.0)


def adamw(steps: int, lr: float) -> Entrant:
    """nanoGPT's shape, batch, optimiser and schedule."""
    schedule = training.warmup_cosine(100)
    recipe = training.Recipe(steps=steps, lr=lr, schedule=schedule, betas=(0.9, 0.99), weight_decay=0.1)
    return Entrant(shape(4, 128, "learned"), 12, recipe)


def muon(steps: int, config: Config) -> Entrant:
    """Updates of equal length in all directions, which bear a high learning rate at once."""
    schedule = training.warmup_cosine(20)
    recipe = training.Recipe(steps=steps, optimizer="muon", lr=0.03, momentum=0.9, betas=(0.9, 0.99), schedule=schedule)
    return Entrant(config, 20, recipe)


ENTRANTS = {
    "tfbook, nanoGPT's shape": muon(200, shape(4, 128, "rotary")),
    "tfbook": muon(300, shape(2, 64, "rotary")),
}
FACTORS = {  # one after the other, each in about as few steps as reach the published loss
    "its recipe in tfbook": adamw(2000, 1e-3),
    "+ four times the learning rate": adamw(1200, 4e-3),
    "+ Muon, batches of 20": muon(290, shape(4, 128, "learned")),
    "+ rotary positions": muon(175, shape(4, 128, "rotary")),
    "+ a smaller shape": muon(260, shape(2, 64, "rotary")),
}


class Setting(NamedTuple):
    """What nanoGPT is called with, its published loss over random batches of its validation text, and who enters."""

    arguments: dict[str, Any]
    published: float
    entrants: dict[str, Entrant]


def large() -> Entrant:
    """nanoGPT's shape and batch on a GPU, with rotary positions and Muon."""
    sizes = {"layers": 6, "d_model": 384, "heads": 6, "d_ff": 1536, "max_length": 256, "dropout": 0.2}
    schedule = training.warmup_cosine(40)
    recipe = training.Recipe(
        steps=700, optimizer="muon", lr=0.01, betas=(0.9, 0.99), weight_decay=0.1, schedule=schedule
    )
    return Entrant(replace(shape(6, 384, "rotary"), **sizes), 64, recipe)


SMALL = Setting(ARGUMENTS, 1.886, ENTRANTS)
SETTINGS = {"cpu": SMALL, "gpu": Setting(ON_GPU, 1.4697, {"tfbook, nanoGPT's shape": large()})}


class Outcome(NamedTuple):
    """What one training took and what came of it."""

    seconds: float
    loss: float
    parameters: int
    read: int  # characters


# ---- the two sides -----------------------------------------------------------------------------------------------


def ours(entrant: Entrant, text: data.Text, seed: int) -> Outcome:
    """Trains a `Gpt` as the entrant says."""
    train_ids, valid_ids = (text.characters.encode(part) for part in (text.train, text.valid))
    start = time.perf_counter()
    runtime.seed(seed)
    model = Gpt(len(text.characters), entrant.config).to(runtime.device())
    context = entrant.config.max_length
    windows = Windows(train_ids, length=context + 1, size=entrant.batch, seed=seed)
    training.fit(model, next_token_loss, windows, entrant.recipe)
    seconds = time.perf_counter() - start
    read = entrant.recipe.steps * entrant.batch * context
    return Outcome(seconds, loss_on(valid_ids, model, context), weights_of(model), read)


def theirs(folder: Path, text: data.Text, setting: Setting = SMALL) -> Outcome:
    """Runs nanoGPT's train.py with the arguments of a setting, its output swallowed."""
    arguments = setting.arguments
    with TemporaryDirectory() as corpus, script_of(folder, corpus, arguments), redirect_stdout(StringIO()):
        write_corpus(Path(corpus), text)
        start = time.perf_counter()
        model = runpy.run_path("train.py")["model"]
        seconds = time.perf_counter() - start
    steps, context = arguments["max_iters"] + 1, arguments["block_size"]  # it takes one step more than it is told
    loss = loss_on(text.characters.encode(text.valid), lambda ids: model.eval()(ids, ids)[0], context)
    return Outcome(seconds, loss, weights_of(model), steps * arguments["batch_size"] * context)


@contextmanager
def script_of(folder: Path, corpus: str, arguments: dict[str, Any]) -> Iterator[None]:
    """Inside, `train.py` is nanoGPT's, called as from the command line; it reads the corpus and writes beside it."""
    options = [f"--{name}={value}" for name, value in arguments.items()]
    places = [f"--dataset={corpus}", f"--out_dir={corpus}"]
    path, called = sys.path, sys.argv
    with chdir(folder):
        sys.path = [str(Path.cwd()), *path]
        sys.argv = ["train.py", "config/train_shakespeare_char.py", *options, *places]
        try:
            yield
        finally:
            sys.path, sys.argv = path, called


def write_corpus(folder: Path, text: data.Text) -> None:
    """The text in nanoGPT's files."""
    for name, part in (("train", text.train), ("val", text.valid)):
        text.characters.encode(part).numpy().astype(np.uint16).tofile(folder / f"{name}.bin")
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(text.characters)}))


@torch.no_grad()
def loss_on(ids: Tensor, logits_of: Callable[[Tensor], Tensor], context: int = CONTEXT) -> float:
    """Mean cross-entropy, in nats, of all ids but the first few; each is guessed once, with up to 64 or 256 before."""
    windows, device = evaluation_windows(ids, context, limit=len(ids)), runtime.device()
    nats = 0.0
    for piece in windows.to(device).split(64):
        logits = logits_of(piece[:, :-1].contiguous())
        nats += F.cross_entropy(logits.flatten(0, 1).float(), piece[:, 1:].flatten(), reduction="sum").item()
    return nats / windows[:, 1:].numel()


def weights_of(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())


# ---- the race ----------------------------------------------------------------------------------------------------


def race(
    folder: Path, text: data.Text, rounds: int, entrants: Mapping[str, Entrant], setting: Setting = SMALL
) -> dict[str, list[Outcome]]:
    """The outcomes of each in each round; they take turns, in an order that is turned around each time."""
    runs: dict[str, Callable[[int], Outcome]] = {"nanoGPT": lambda seed: theirs(folder, text, setting)}
    runs |= {name: partial(ours, one, text) for name, one in entrants.items()}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in runs}
    for seed in range(rounds):
        for name in list(runs)[:: -1 if seed % 2 else 1]:
            outcomes[name].append(runs[name](seed))
    return outcomes


def rows(outcomes: dict[str, list[Outcome]]) -> list[dict[str, Any]]:
    """Each one's middle time, its share of nanoGPT's, and the mean and highest loss of its rounds."""
    found = []
    for name, rounds in outcomes.items():
        shares = [own.seconds / peer.seconds for own, peer in zip(rounds, outcomes["nanoGPT"], strict=True)]
        found.append(
            {
                "by": name,
                "parameters": rounds[0].parameters,
                "characters read": rounds[0].read,
                "loss": round(mean(one.loss for one in rounds), 4),
                "highest": round(max(one.loss for one in rounds), 4),
                "seconds": round(median(one.seconds for one in rounds), 1),
                "share": round(median(shares), 3),
                "bar": f"≤ {BAR:.2f}" if name in ENTRANTS else "",
            }
        )
    return found


def missed(found: list[dict[str, Any]], published: float = SMALL.published) -> list[str]:
    """The bars that our rows miss, in words; those of factors have none."""
    peer, *own = found
    goal = min(peer["loss"], published)
    return [
        f"{row['by']}: {name} is {row[name]}, more than {limit:.4g}"
        for row in own
        if row["bar"]
        for name, limit in (("share", BAR), ("highest", goal), ("parameters", peer["parameters"]))
        if row[name] > limit
    ]


def main() -> int:
    """Races, prints the table and where it comes from; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, required=True, help="the folder of a clone of karpathy/nanoGPT")
    parser.add_argument("--text", type=Path, help="another text than tiny Shakespeare")
    parser.add_argument("--setting", choices=SETTINGS, default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--factors", action="store_true", help="show what each part of the recipe gains instead")
    parser.add_argument("--out", type=Path, help="a JSON file for rows, machine and date")
    parser.add_argument("--store", metavar="NAME", help="a stored result for a lesson, under data/results")
    arguments = parser.parse_args()
    given = arguments.text and data.Text.split(arguments.text.stem, data.read_text_file(arguments.text))
    text, setting = given or data.load("tiny-shakespeare"), SETTINGS[arguments.setting]
    entrants = FACTORS if arguments.factors else setting.entrants
    commit, start = current_commit(), time.perf_counter()
    found = rows(race(arguments.nanogpt, text, arguments.rounds, entrants, setting))
    seconds = time.perf_counter() - start
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    print("\n".join([markdown(found), "", " · ".join(where.values()), *missed(found, setting.published)]))
    if arguments.out:
        arguments.out.write_text(json.dumps({**where, "rows": found}, indent=1) + "\n", encoding="utf-8")
    if arguments.store:
        store(arguments.store, found, command=" ".join(["python", *sys.argv]), commit=commit, seconds=seconds)
    return int(bool(missed(found, setting.published)))


if __name__ == "__main__":
    sys.exit(main())
