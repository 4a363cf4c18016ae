"""Study of lesson 11: what fine-tuning gains and forgets, how many labels a head needs, what in-prompt examples add."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count, product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention.positions import POSITIONS
from tfbook.course.experiments import experiment
from tfbook.data.stories import endings, story_ids, told, words_of, written
from tfbook.lessons.adapting.answers import answer as answer
from tfbook.lessons.adapting.claims import CLAIMS as CLAIMS
from tfbook.lessons.adapting.figures import undominated
from tfbook.lessons.adapting.texts import (
    TASKS as TASKS,
    best_runs as best_runs,
    claims_of_texts as claims_of_texts,
    task_texts as task_texts,
)
from tfbook.models.experts import MixtureOfExperts, dense_dispatch, sparse_dispatch
from tfbook.models.gpt import GPT2, Gpt
from tfbook.pretrain import finetune
from tfbook.pretrain.storyteller import MODELS, Storyteller, load_storyteller, tell, untrained
from tfbook.text.vocabulary import BOS, EOS, PAD, Vocabulary

if TYPE_CHECKING:
    from pandas import DataFrame


# ---- live: plays after tales -----------------------------------------------------------------------------------------


def write(teller: Storyteller, model: Gpt, beginning: str, *, seed: int = 1) -> str:
    """The text that `model` writes after a beginning, sampled at temperature 0.4, in lines of 95 characters at most."""
    model.eval()
    (words,) = tell(teller._replace(model=model), 1, temperature=0.4, seed=seed, beginning=beginning)
    return textwrap.fill(written(words), 95)


@torch.no_grad()
def loss_after(teller: Storyteller, count: int, *, words: int = 60) -> dict[str, float]:
    """Nats per token on the first words of plays: alone, after as many words of a tale, and after another play.

    Two whole texts would be longer than any sequence that the storyteller was trained on.
    """
    numbers = range(count)
    plays = [finetune.play("valid", number)[:words] for number in numbers]
    others = [finetune.play("valid", count + number)[:words] for number in numbers]
    tales = [told("valid", number).words[:words] for number in numbers]
    examples: dict[str, Sequence[Sequence[str]]] = {
        "after nothing": [()] * count,
        "after a tale": tales,
        "after another play": others,
    }
    return {name: round(_second(teller, each, plays), 2) for name, each in examples.items()}


def _second(teller: Storyteller, first: Sequence[Sequence[str]], second: Sequence[Sequence[str]]) -> float:
    """Mean loss on the second texts alone, each preceded by a first one; all texts of one side have the same length."""
    ids = torch.tensor([[BOS, *teller.vocabulary.encode([*a, *b])] for a, b in zip(first, second, strict=True)])
    return float(F.cross_entropy(teller.model(ids[:, :-1]).mT[..., len(first[0]) :], ids[:, 1 + len(first[0]) :]))


def table(
    curves: Mapping[str, Sequence[tuple[int, float, float]]], models: Mapping[str, Gpt], rates: Mapping[str, float]
) -> DataFrame:
    """For each method: trained parameters, learning rate, losses before and after, share of full fine-tuning's gain."""
    import pandas as pd

    start, end = curves["full"][0], curves["full"][-1]
    rows = {
        name: {
            "trained parameters": f"{trained(model):,}",
            "learning rate": f"{rates[name]:g}",
            "loss on plays": f"{curves[name][-1][1]:.2f}",
            "gain": f"{(start[1] - curves[name][-1][1]) / (start[1] - end[1]):.0%}",
            "loss on tales": f"{curves[name][-1][2]:.2f}",
        }
        for name, model in models.items()
    }
    before = {"trained parameters": "0", "learning rate": "", "loss on plays": f"{start[1]:.2f}", "gain": "0%"}
    rows = {"before": before | {"loss on tales": f"{start[2]:.2f}"}} | rows
    return pd.DataFrame(rows).T


def trained(model: Gpt) -> int:
    """Number of trained parameters; of an embedding beside frozen blocks, only the rows of the new words count."""
    every = all(parameter.requires_grad for parameter in model.parameters())
    return finetune.changed_count(model, "full" if every else "rows")


# ---- stored: three methods -------------------------------------------------------------------------------------------

GRID = (
    *(("full", lr) for lr in (3e-4, 1e-3, 3e-3, 6e-3, 1.2e-2)),
    *(("lora", lr) for lr in (1e-2, 2e-2, 4e-2, 8e-2)),
    *(("last", lr) for lr in (3e-3, 1e-2, 3e-2, 6e-2)),
    *(("rows", lr) for lr in (3e-2, 1e-1, 3e-1)),
)


@experiment
def dialect(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 60) -> list[dict[str, Any]]:
    """Losses on plays (`new`) and tales (`old`) before and after the storyteller is trained on 8 plays per step."""
    teller = load_storyteller()
    before = finetune.losses(teller.model, teller.vocabulary)
    rows: list[dict[str, Any]] = [{"method": "before", "lr": 0.0, "seed": 0, "share": 0.0, **_rounded(before)}]
    for seed, (method, lr) in product(seeds, GRID):
        options = finetune.Finetuning(method=method, lr=lr, seed=seed, steps=steps)
        rows.append({"method": method, "lr": lr, "seed": seed, **_rounded(_adapted(options))})
    return rows


def _adapted(options: finetune.Finetuning) -> dict[str, float]:
    runtime.seed(options.seed)
    teller = load_storyteller(options.model)
    total = teller.model.parameter_count()
    model = finetune.prepare(teller.model, options.method, rank=options.rank).to(runtime.device())
    batches = finetune.batches(options, teller.vocabulary)
    training.fit(model, finetune.story_loss, batches, finetune.recipe(options))
    return {"share": finetune.changed_count(model, options.method) / total, **finetune.losses(model, teller.vocabulary)}


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


RANKS = (1, 2, 4, 8, 16, 32)


@experiment
def ranks(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 60) -> list[dict[str, Any]]:
    """The same losses for LoRA at several ranks, all with the same α, each at several learning rates."""
    runs = [
        finetune.Finetuning(method="lora", lr=lr, rank=rank, seed=seed, steps=steps)
        for seed, rank, lr in product(seeds, RANKS, (2e-2, 4e-2, 8e-2))
    ]
    return [{"rank": run.rank, "lr": run.lr, "seed": run.seed, **_rounded(_adapted(run))} for run in runs]


SHRINK = 2.6  # ULMFiT's factor from a layer to the one below
WAYS = ("discriminative", "gradual")


@experiment
def unfreezing(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 60) -> list[dict[str, Any]]:
    """The same losses for ULMFiT's two ways to train all weights, at rates around full fine-tuning's best."""
    return [
        {"method": way, "lr": lr, "seed": seed, **_rounded(_thawed(way, lr, seed, steps))}
        for seed, way, lr in product(seeds, WAYS, (3e-3, 6e-3, 1.2e-2))
    ]


def _thawed(way: str, lr: float, seed: int, steps: int) -> dict[str, float]:
    """Like `_adapted`, with one parameter group per depth: a lower learning rate for each, or a later start."""
    runtime.seed(seed)
    options = finetune.Finetuning(method="full", lr=lr, seed=seed, steps=steps)
    teller, recipe = load_storyteller(options.model), finetune.recipe(options)
    batches = finetune.batches(options, teller.vocabulary)
    teller.model.cpu()  # where the texts are
    optimizer = torch.optim.AdamW([{"params": group} for group in by_depth(teller.model)], weight_decay=0)
    for step in range(steps):
        factors = depth_factors(way, step, steps, len(optimizer.param_groups))
        for factor, group in zip(factors, optimizer.param_groups, strict=True):
            group["lr"] = lr * factor * recipe.schedule(step, steps)
        optimizer.zero_grad()
        finetune.story_loss(teller.model, batches(step)).mean.backward()
        nn.utils.clip_grad_norm_(teller.model.parameters(), recipe.clip)
        optimizer.step()
    return finetune.losses(teller.model, teller.vocabulary)


def beside_full(runs: DataFrame, dialect: DataFrame) -> DataFrame:
    """The runs, and in a column `full` full fine-tuning's loss on tales at the same loss on plays."""
    return runs.assign(full=[forgotten_at(dialect, run.new, run.seed) for run in runs.itertuples()])


def against_full(unfreezing: DataFrame, dialect: DataFrame) -> DataFrame:
    """Mean losses by method and rate, beside full fine-tuning's loss on tales at each seed's loss on plays."""
    means = beside_full(unfreezing, dialect).groupby(["method", "lr"])[["new", "old", "full"]].mean().round(2)
    return means.set_axis(["loss on plays", "loss on tales", "full fine-tuning's at that loss on plays"], axis=1)


def claims_of_unfreezing(unfreezing: DataFrame, dialect: DataFrame) -> dict[int, float]:
    """How much less is forgotten at equal loss on plays: the largest mean over seeds of any method and rate."""
    means = against_full(unfreezing, dialect)
    return {9: (means.iloc[:, 2] - means.iloc[:, 1]).max()}


def depth_factors(way: str, step: int, steps: int, depths: int) -> list[float]:
    """Factors on the learning rate from the top layer down: ever smaller ones, or 0 until a layer is unfrozen.

    One more layer is unfrozen every tenth of the steps (Howard and Ruder, 2018, sections 3.2 and 3.3).
    """
    if way == "discriminative":
        return [SHRINK**-depth for depth in range(depths)]
    return [float(10 * step >= depth * steps) for depth in range(depths)]


def by_depth(model: Gpt) -> list[list[nn.Parameter]]:
    """Parameters from the top down: first those outside the blocks, then each block from the last to the first."""
    blocks = [list(block.parameters()) for block in reversed(model.stack.blocks)]
    inside = {id(parameter) for block in blocks for parameter in block}
    return [[parameter for parameter in model.parameters() if id(parameter) not in inside], *blocks]


def best_rates(frame: DataFrame) -> dict[str, float]:
    """For each method, the learning rate with the lowest mean loss on plays."""
    means = frame[frame["method"] != "before"].groupby(["method", "lr"])["new"].mean()
    return {str(method): float(means[method].idxmin()) for method in means.index.get_level_values(0).unique()}


def claims_of_dialect(frame: DataFrame) -> dict[int, float]:
    """LoRA's smallest share of the gain, its largest share of the parameters, and how much more it forgets, over seeds.

    The gain is full fine-tuning's. Forgetting is compared with both methods at their best rates (3), and at equal loss
    on plays (4), where full fine-tuning is interpolated between two of its rates.
    """
    start, rates = float(frame["new"].iloc[0]), best_rates(frame)
    full, lora = (
        frame[(frame["method"] == name) & (frame["lr"] == rates[name])].set_index("seed") for name in ("full", "lora")
    )
    gain = (start - lora["new"]) / (start - full["new"])
    equal = min(run["old"] - forgotten_at(frame, run["new"], seed) for seed, run in lora.iterrows())
    return {1: gain.min(), 2: lora["share"].max(), 3: (lora["old"] - full["old"]).max(), 4: equal}


def forgotten_at(frame: DataFrame, new: float, seed: Any) -> float:
    """Full fine-tuning's loss on tales where its loss on plays is `new`, interpolated between a seed's two rates.

    Runs that another run of the same seed beats on both losses are left out.
    """
    runs = undominated(frame[(frame["method"] == "full") & (frame["seed"] == seed)])
    return float(np.interp(new, runs["new"], runs["old"]))


# ---- does it end well? -----------------------------------------------------------------------------------------------


def unfinished(split: str, count: int, *, first: int = 0) -> tuple[list[list[str]], Int64[Tensor, " count"]]:
    """The words of stories without their last event, and a label for each: 1 if it ends well."""
    stories = [told(split, first + number) for number in range(count)]
    return [words_of(endings(story).beginning) for story in stories], torch.tensor([int(s.happy) for s in stories])


def bag(texts: Sequence[Sequence[str]], vocabulary: Vocabulary) -> Float[Tensor, "count vocab"]:
    """Bag of words: 1 for each word of the vocabulary that occurs in a text."""
    ids = (torch.tensor(vocabulary.encode(words)) for words in texts)
    return torch.stack([torch.bincount(row, minlength=len(vocabulary)).clamp(max=1).float() for row in ids])


def fresh(teller: Storyteller) -> Gpt:
    """A model with the same config and new random weights."""
    torch.manual_seed(0)
    same = next(name for name, sizes in MODELS.items() if sizes.d_model == teller.model.embed.embedding_dim)
    return untrained(same).model.eval()


LABELS = (16, 64, 256)
KINDS: dict[str, tuple[bool, float, float]] = {  # pretrained, learning rate, λ
    "from scratch": (False, 1e-3, 0.0),
    "λ = 0": (True, 1e-3, 0.0),
    "λ = 0.5": (True, 1e-3, 0.5),
    "λ = 2": (True, 1e-3, 2.0),
}


class Judge(nn.Module):
    """A GPT with a linear head that maps its vector at `<eos>` to two labels, as in GPT-1's classifier."""

    def __init__(self, model: Gpt):
        super().__init__()
        self.body, self.head = model, nn.Linear(model.embed.embedding_dim, 2)

    def forward(self, ids: Int64[Tensor, "batch time"]) -> tuple[Tensor, Tensor]:
        """Logits of the labels, (batch, 2), and of the next tokens, (batch, time, vocab)."""
        states = self.body.stack(self.body.embed(ids), self.body.mask)
        position = (ids == EOS).int().argmax(dim=1)
        return self.head(states[torch.arange(len(ids)), position]), self.body.unembed(states)


@experiment
def judging(seeds: Sequence[int] = (1, 2, 3), *, steps: int = 60, tested: int = 100) -> list[dict[str, Any]]:
    """Accuracy on held-out stories by number of labels: the draft from scratch, and pretrained with three λ."""
    texts, targets = unfinished("test", tested)
    rows: list[dict[str, Any]] = []
    for seed, labels, kind in product(seeds, LABELS, KINDS):
        judge, vocabulary = _trained_judge(seed, labels, KINDS[kind], steps)
        with torch.no_grad():
            right = judge(story_ids(texts, vocabulary))[0].argmax(dim=1) == targets
        rows.append({"kind": kind, "labels": labels, "seed": seed, "accuracy": round(float(right.float().mean()), 4)})
    return [{"kind": "always yes", "labels": 0, "seed": 0, "accuracy": float(targets.float().mean())}, *rows]


def _trained_judge(seed: int, labels: int, kind: tuple[bool, float, float], steps: int) -> tuple[Judge, Vocabulary]:
    pretrained, lr, weight = kind
    runtime.seed(seed)
    teller = load_storyteller("draft") if pretrained else untrained("draft")
    judge = Judge(teller.model.cpu())  # where the texts are
    texts, targets = unfinished("train", labels, first=100_000 + 1000 * seed)
    ids = story_ids(texts, teller.vocabulary)
    optimizer = torch.optim.AdamW(judge.parameters(), lr=lr, weight_decay=0.01)
    for step in range(steps):
        chosen = torch.randperm(labels)[:16]
        optimizer.param_groups[0]["lr"] = lr * min(1, (step + 1) / 5) * (1 - step / steps)
        answers, following = judge(ids[chosen])
        loss = F.cross_entropy(answers, targets[chosen])
        if weight:
            loss = loss + weight * F.cross_entropy(following[:, :-1].mT, ids[chosen, 1:], ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
        optimizer.step()
    return judge, teller.vocabulary


def claims_of_judging(frame: DataFrame) -> dict[int, float]:
    """With the fewest labels: the accuracy that pretraining adds, and the change due to the auxiliary loss."""
    means = frame[frame["labels"] == LABELS[0]].groupby("kind")["accuracy"].mean()
    return {5: means["λ = 0"] - means["from scratch"], 6: abs(means["λ = 0.5"] - means["λ = 0"])}


# ---- experts ---------------------------------------------------------------------------------------------------------


def package_experts(plain: Any) -> Callable[[Tensor, str], Tensor]:
    """The package's mixture of experts with the lesson's weights; the second argument is "sparse" or "dense"."""
    d_model, d_ff, count = plain.router.in_features, plain.up[0].out_features, len(plain.up)
    mixture = MixtureOfExperts(d_model, d_ff, experts=count, k=plain.k)
    mixture.router.load_state_dict(plain.router.state_dict())
    for expert, up, down in zip(mixture.experts, plain.up, plain.down, strict=True):
        expert.up.load_state_dict(up.state_dict())
        expert.down.load_state_dict(down.state_dict())
    ways = {"sparse": sparse_dispatch, "dense": dense_dispatch}

    def run(x: Tensor, way: str) -> Tensor:
        mixture.dispatch = ways[way]
        return mixture(x)

    return run


# ---- stored: examples in the prompt ----------------------------------------------------------------------------------

THINGS, PLACES, LINES = 4, 6, 12
MOMENTS = (0, 200, 400, 600, 1000)  # steps of pretraining


def lists(count: int, generator: torch.Generator) -> Int64[Tensor, "count time"]:
    """Lists of `LINES` lines, each naming a thing and its place; every list draws the places anew.

    Things have ids from 0, places ids from `THINGS`.
    """
    places = torch.randint(PLACES, (count, THINGS), generator=generator)
    things = torch.randint(THINGS, (count, LINES), generator=generator)
    return torch.stack([things, THINGS + places.gather(1, things)], dim=-1).flatten(1)


def perfect_reader(lines: int) -> float:
    """Expected accuracy, after so many lines, of a reader that remembers all of them and otherwise guesses."""
    new = (1 - 1 / THINGS) ** lines
    return 1 - new + new / PLACES


@experiment
def shots(seeds: Sequence[int] = (1, 2, 3), *, moments: Sequence[int] = MOMENTS) -> list[dict[str, Any]]:
    """Accuracy by number of lines before the question, at several points in the pretraining of a two-block GPT."""
    return [row for seed in seeds for row in _grown(seed, moments)]


def _grown(seed: int, moments: Sequence[int]) -> list[dict[str, Any]]:
    runtime.seed(seed)
    sizes = replace(GPT2, d_model=64, heads=4, d_ff=256, layers=2, max_length=2 * LINES, dropout=0.0)
    model = Gpt(THINGS + PLACES, replace(sizes, position=POSITIONS["rotary"]))
    judged = lists(1000, torch.Generator().manual_seed(10_000 + seed))
    rows: list[dict[str, Any]] = []

    def measured(step: int) -> None:
        with torch.no_grad():
            right = (model(judged)[:, ::2].argmax(dim=-1) == judged[:, 1::2]).float().mean(dim=0)
        rows.extend(
            {"seed": seed, "step": step, "shots": n, "accuracy": round(share, 4)}
            for n, share in enumerate(right.tolist())
        )

    moment = count(100, 100)  # the steps of the evaluations

    def evaluate(model: nn.Module) -> dict[str, float]:
        measured(next(moment))
        return {}

    def batches(step: int) -> Int64[Tensor, "count time"]:
        return lists(32, torch.Generator().manual_seed(1_000_000 * seed + step))

    measured(0)
    recipe = training.Recipe(
        steps=moments[-1],
        optimizer="muon",
        lr=0.01,
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(20),
        evaluate_every=100,
    )
    training.fit(model, _loss_of_places, batches, recipe, evaluate=evaluate)
    return [row for row in rows if row["step"] in moments]


def _loss_of_places(model: nn.Module, ids: Int64[Tensor, "batch time"]) -> Tensor:
    """Loss on the places alone: which thing comes next is random."""
    return F.cross_entropy(model(ids)[:, ::2].flatten(0, 1), ids[:, 1::2].flatten())


def claims_of_shots(frame: DataFrame) -> dict[int, float]:
    """The accuracy that in-context examples add after pretraining, and before it."""
    wide = frame.pivot_table(index=["step", "seed"], columns="shots", values="accuracy")
    added = (wide[LINES - 1] - wide[0]).unstack("step")
    return {7: added[added.columns.max()].min(), 8: added[0].max()}
