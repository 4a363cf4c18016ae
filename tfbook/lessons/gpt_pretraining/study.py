"""Study of lesson 09: a GPT on the story world beside counting words, what it learns first, and how it picks a name.

Shapes: batch, time, d_model, vocab.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from tfbook import data, runtime, training
from tfbook.course.batches import SortedBatches
from tfbook.course.experiments import experiment
from tfbook.data.stories import Story, told, words_of, world_words, written
from tfbook.lessons.gpt_pretraining.answers import answer as answer
from tfbook.lessons.gpt_pretraining.beginnings import (
    claim_of_beginnings as claim_of_beginnings,
    table_of_beginnings as table_of_beginnings,
)
from tfbook.lessons.gpt_pretraining.claims import CLAIMS as CLAIMS
from tfbook.lessons.gpt_pretraining.determined import KINDS, determined, right_share
from tfbook.lessons.gpt_pretraining.heads import (
    SPEAKING as SPEAKING,
    for_package as for_package,
    head_output as head_output,
    implanted as implanted,
    names_right as names_right,
    names_without as names_without,
    notes as notes,
    package_gpt as package_gpt,
    rename as rename,
    without as without,
)
from tfbook.lessons.gpt_pretraining.ladder import (
    STAGES as STAGES,
    WITHOUT as WITHOUT,
    ladder as ladder,
    overfit as overfit,
)
from tfbook.lessons.gpt_pretraining.places import places_by_home as places_by_home
from tfbook.lessons.gpt_pretraining.shakespeare import beside_published as beside_published, recipe as recipe
from tfbook.lessons.gpt_pretraining.stories import (
    first_mistakes as first_mistakes,
    judged as judged,
    story_rows as story_rows,
    training_rows,
)
from tfbook.lessons.gpt_pretraining.variance import residual as residual
from tfbook.models import gpt
from tfbook.pretrain.storyteller import BATCH as TOLD_AT_ONCE, STEPS as STEPS_OF, Storyteller, tell
from tfbook.text.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from tfbook.training.losses import next_token_loss

if TYPE_CHECKING:
    from pandas import DataFrame


Predict = Callable[[Sequence[Sequence[str]]], list[list[tuple[str, float]]]]

# ---- what comes next ---------------------------------------------------------------------------------------------


def predictor(model: nn.Module, vocabulary: Vocabulary, start: str, *, count: int = 12) -> Predict:
    """The `predict` function for `plot.next_token_view`: likeliest next pieces for several texts that continue `start`.

    A piece is the text that a token appends, such as " fox". Where a story is most likely over, there is none.
    """

    @torch.no_grad()
    def predict(texts: Sequence[Sequence[str]]) -> list[list[tuple[str, float]]]:
        words = [words_of(start + "".join(pieces)) for pieces in texts]
        device = next(model.parameters()).device
        ids = torch.tensor([[BOS, *vocabulary.encode(each)] for each in words], device=device)
        shares = model(ids)[:, -1].float().softmax(dim=-1).cpu()
        return [_pieces(before, row, vocabulary, count) for before, row in zip(words, shares, strict=True)]

    return predict


def _pieces(words: list[str], shares: Tensor, vocabulary: Vocabulary, count: int) -> list[tuple[str, float]]:
    likely = shares.topk(count).indices.tolist()
    if likely[0] == EOS:
        return []
    text = written(words)
    return [(written([*words, vocabulary.tokens[i]])[len(text) :], float(shares[i])) for i in likely if i > UNK]


def counting_loss(counted: Callable[[list[int], int], Tensor], rows: Sequence[Tensor], longest: int) -> float:
    """Mean −ln p of every word but the first, where `counted(ids before it, longest)` gives the probabilities."""
    texts = [ids.tolist() for ids in rows]
    return fmean(-math.log(counted(ids[:t], longest)[ids[t]]) for ids in texts for t in range(1, len(ids)))


# ---- stored: what is learned first -----------------------------------------------------------------------------------

SIZES = (128, 4, 256, 2)  # d_model, heads, d_ff and layers
RUNS = (  # optimizer, learning rate, seeds
    ("Muon", 0.02, (1, 2, 3)),
    ("AdamW", 0.002, (1,)),
    ("AdamW", 0.004, (1,)),
)
BATCH, STEPS, WARMUP = 16, 1000, 20
HELD_OUT, SAMPLES = 60, 200
FIRST_LOSS = math.log(len(world_words()) + 4)  # a uniform guess over the words and the four special tokens


@experiment
def growth(
    runs: Sequence[tuple[str, float, Sequence[int]]] = RUNS, *, steps: int = STEPS, every: int = 20
) -> list[dict[str, Any]]:
    """The lesson's run with Muon and with AdamW: loss and right words by kind during training, stories at the end."""
    vocabulary, stories = data.load("stories").vocabulary, [told("valid", number) for number in range(HELD_OUT)]
    places, rows = _places(stories), training_rows()
    ids = pad_sequence(story_rows([story.text for story in stories], vocabulary), batch_first=True, padding_value=PAD)
    found = []
    for optimizer, lr, seed in ((name, lr, seed) for name, lr, seeds in runs for seed in seeds):
        runtime.seed(seed)
        model = package_gpt(len(vocabulary), *SIZES).to(runtime.device())
        history = training.fit(
            model,
            partial(next_token_loss, pad=PAD),
            SortedBatches(rows, size=BATCH, seed=seed),
            _recipe(optimizer, lr, steps, every),
            evaluate=partial(_evaluate, ids=ids.to(runtime.device()), places=places, vocabulary=vocabulary),
        )
        texts = tell(Storyteller(model, vocabulary), SAMPLES, temperature=0.7)
        curve = [{name: round(value, 4) for name, value in point.items()} for point in history.evaluations]
        row = {"optimizer": optimizer, "lr": lr, "seed": seed, "curve": curve}
        found.append(row | {name: round(value, 4) for name, value in judged(texts).items()})
    return found


def _places(stories: Sequence[Story]) -> dict[str, list[tuple[int, int]]]:
    """(story, position in its ids) of the `determined` words, by kind; ids begin with `<bos>`."""
    found = [determined(story) for story in stories]
    return {kind: [(row, at + 1) for row, each in enumerate(found) for at in each[kind]] for kind in KINDS}


def _evaluate(
    model: nn.Module, ids: Tensor, places: Mapping[str, Sequence[tuple[int, int]]], vocabulary: Vocabulary
) -> dict[str, float]:
    return {"loss": float(next_token_loss(model, ids, pad=PAD).mean), **right_share(model, ids, places, vocabulary)}


def _recipe(optimizer: str, lr: float, steps: int, every: int) -> training.Recipe:
    return training.Recipe(
        steps=steps,
        optimizer=optimizer.lower(),
        lr=lr,
        momentum=0.9,
        betas=(0.9, 0.99),
        schedule=training.warmup_cosine(WARMUP, 0.0),
        evaluate_every=every,
        mixed_precision=False,
    )


def claims_of_growth(frame: DataFrame) -> dict[int, float]:
    """Claim 4: the plateau for things."""
    muon = frame[frame["optimizer"] == "Muon"]
    return {4: max(share_at(curve, "things") for curve in muon["curve"])}


def share_at(curve: Sequence[Mapping[str, float]], kind: str, drop: float = 0.9) -> float:
    """The right word's share at the first point of a curve where the loss has done this part of its drop."""
    first, last = FIRST_LOSS, curve[-1]["loss"]
    return next(point[kind] for point in curve if first - point["loss"] >= drop * (first - last))


# ---- stored: the ladder ----------------------------------------------------------------------------------------------


def best_runs(frame: DataFrame, optimizer: str = "Muon") -> DataFrame:
    """The three runs of each stage with its best learning rate."""
    return frame[frame["best"] & (frame["optimizer"] == optimizer)]


def scores(frame: DataFrame, optimizer: str = "Muon") -> dict[str, dict[str, float]]:
    """Mean loss and shares of right stories by stage."""
    means = best_runs(frame, optimizer).groupby("stage", sort=False)[["loss", "sentences", "names", "all"]].mean()
    return {str(stage): row.to_dict() for stage, row in means.iterrows()}


def losses_of(frame: DataFrame) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Losses of the best runs by stage: of the stages with branches, and of the same layers without them."""
    runs = {str(stage): [*losses] for stage, losses in best_runs(frame).groupby("stage", sort=False)["loss"]}
    bare = {stage.removesuffix(WITHOUT): losses for stage, losses in runs.items() if stage.endswith(WITHOUT)}
    return {stage: losses for stage, losses in runs.items() if not stage.endswith(WITHOUT)}, bare


def claims_of_ladder(frame: DataFrame, one_back: float) -> dict[int, float]:
    """Claims 1 and 2: one word beside counting, and two blocks without branches beside one with them."""
    muon = best_runs(frame)
    losses = {stage: runs["loss"] for stage, runs in muon.groupby("stage")}
    bare, one = losses[f"two blocks{WITHOUT}"], losses["feed-forward"]
    return {
        1: abs(float(losses["one word"].mean()) - one_back),
        2: float(bare.min() - one.max()),
    }


def claim_of_adamw(frame: DataFrame) -> dict[int, float]:
    """Claim 10: right stories of the worst of three runs with Muon minus those of the best of three with AdamW."""
    muon, adamw = (best_runs(frame, name).query("stage == 'two blocks'")["all"] for name in ("Muon", "AdamW"))
    return {10: float(muon.min() - adamw.max())}


def rates(frame: DataFrame) -> DataFrame:
    """Loss on held-out stories of the whole model by optimizer and learning rate, of the first seed."""
    first = frame[(frame["stage"] == "two blocks") & (frame["seed"] == 1)].sort_values(["optimizer", "lr"])
    return first[["optimizer", "lr", "loss"]].reset_index(drop=True)


def table_of_branches(frame: DataFrame) -> DataFrame:
    """Loss on held-out stories by the parts of a branch and the number of layers: mean and range of the seeds."""
    from tfbook.course.summaries import mean_and_range

    cells = (
        frame.groupby(["branch", "layers"], sort=False)["loss"]
        .apply(partial(mean_and_range, digits=2))
        .unstack("layers")
    )
    cells.columns = [f"{count} layer{'s' * (count > 1)}" for count in cells.columns]
    return cells.rename_axis(None)


def scoreboard(rows: Mapping[str, Mapping[str, float]]) -> DataFrame:
    """The loss and the shares of right stories of all that was tried, in percent."""
    import pandas as pd

    table = pd.DataFrame(
        {
            name: {
                "loss (nats per word)": f"{row['loss']:.2f}" if "loss" in row else "",
                "possible sentences": f"{row['sentences']:.0%}",
                "stories with right names": f"{row['names']:.0%}",
                "stories right in every respect": f"{row['all']:.0%}",
            }
            for name, row in rows.items()
        }
    )
    return table.T


def claim_of_overfit(frame: DataFrame) -> dict[int, float]:
    """Claim 9: how far the loss on other stories has risen from its lowest point, in the run where it rose least."""
    curves = [[point["held out"] for point in curve] for curve in frame["curve"]]
    return {9: min(curve[-1] - min(curve) for curve in curves)}


def claim_of_stories(frame: DataFrame) -> dict[int, float]:
    """Claim 3: the share of right stories in the worst of three runs like the page's."""
    return {3: min(shares["all"] for shares in frame["stories"])}


def table_of_notes(frame: DataFrame) -> DataFrame:
    """For each run: names without the heads that are needed most, and who speaks before and after the patch."""
    import pandas as pd

    rows = [
        {
            "all heads": run["names"],
            "without one of block 1": run["without"][run["first"]],
            "without one of block 2": run["without"][run["second"]],
            "patched at": run["place"],
            "Anna before": run["as it stands"][0],
            "Lucy after": run["patched"][1],
        }
        for run in frame.to_dict("records")
    ]
    return pd.DataFrame(rows, index=[f"run {seed}" for seed in frame["seed"]]).round(2)


def claims_of_notes(frame: DataFrame) -> dict[int, float]:
    """Claims 5 and 6: names without the needed head of block 2, and the new name's share; the worst of three runs."""
    missing = [row["without"][row["second"]] for _, row in frame.iterrows()]
    return {5: max(missing), 6: min(shares[1] for shares in frame["patched"])}


# ---- a larger run ----------------------------------------------------------------------------------------------------


def price(small: gpt.Gpt, large: gpt.Gpt, stories: int, judged: Mapping[str, Mapping[str, float]], samples: int) -> str:
    """The cost and the gain of the storyteller's training, compared with a GPT trained on `stories` stories.

    `judged` are the shares of right stories, of `samples` by the GPT and twice as many by the storyteller.
    """
    larger, more = large.parameter_count() / small.parameter_count(), STEPS_OF["storyteller"] * TOLD_AT_ONCE / stories
    before, after = (judged[name]["all"] for name in ("your GPT", "storyteller"))
    error = math.sqrt(before * (1 - before) / samples + after * (1 - after) / (2 * samples))
    return (
        f"{larger:.1f} times the parameters and {more:.1f} times the stories, {larger * more:.0f} times the work:\n"
        f"{round(100 * (after - before), 1):g} more of 100 stories are right in every respect, give or take "
        f"{100 * error:.0f} by the luck of sampling\n(standard error), and {round(100 * (1 - after), 1):g} of 100 are "
        "still wrong somewhere"
    )


# ---- probabilities of whole stories ----------------------------------------------------------------------------------


@torch.no_grad()
def log_probability(model: nn.Module, ids: Int[Tensor, "batch time"]) -> Tensor:
    """log p of each row given its first id, without padding."""
    logp = model(ids[:, :-1]).float().log_softmax(dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    return (logp * (ids[:, 1:] != PAD)).sum(dim=1).cpu()


def compare_names(model: nn.Module, rows: Sequence[Tensor], vocabulary: Vocabulary) -> dict[str, float]:
    """Shares of stories: preferred over a wrong last name; first name guessed from the left; guessed from both sides.

    The blank is the first occurrence of the first name; the same name may occur again after it.
    """
    names, device = vocabulary.encode(KINDS["names"]), next(model.parameters()).device
    found: dict[str, list[float]] = {"prefers": [], "left": [], "both": []}
    for ids in rows:
        where = [t for t, word in enumerate(ids.tolist()) if word in names]
        first, last = where[0], where[-1]
        candidates = ids.repeat(len(names), 1)
        candidates[:, first] = torch.tensor(names)
        logp = log_probability(model, candidates.to(device))
        left = log_probability(model, candidates[:, : first + 1].to(device))
        right = names.index(int(ids[first]))
        wrong = ids.clone()
        wrong[last] = names[(names.index(int(ids[last])) + 1) % len(names)]
        pair = log_probability(model, torch.stack([ids, wrong]).to(device))
        found["prefers"].append(float(pair[0] > pair[1]))
        found["left"].append(float(left.argmax() == right))
        found["both"].append(float(logp.argmax() == right))
    return {name: fmean(values) for name, values in found.items()}
