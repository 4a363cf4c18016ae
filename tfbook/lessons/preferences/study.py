"""Study of lesson 12: the reward model's accuracy, and the numbers and tables made from the stored runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tfbook.course.experiments import experiment
from tfbook.data.stories import check_story, words_of, written
from tfbook.lessons.preferences.answers import answer as answer
from tfbook.lessons.preferences.claims import CLAIMS as CLAIMS
from tfbook.lessons.preferences.feedback import (
    HELD_OUT,
    SEEDS,
    Pool,
    advantages as advantages,
    as_answers as as_answers,
    critic_of as critic_of,
    demonstrations as demonstrations,
    dpo_loss as dpo_loss,
    generous,
    pair_loss as pair_loss,
    pairs as pairs,
    pool_of,
    right_order,
    sample,
    scores_of,
    shares,
    trained_reward,
    two_of as two_of,
)
from tfbook.lessons.preferences.runs import DPO_BETA

if TYPE_CHECKING:
    from IPython.display import HTML
    from pandas import DataFrame, Series


# ---- stored: accuracy of the reward model ----------------------------------------------------------------------------


@experiment
def accuracy(
    sizes: Sequence[int] = (1, 4, 16, 64), seeds: Sequence[int] = SEEDS, pool: int = 512, held_out: int = HELD_OUT
) -> list[dict[str, Any]]:
    """The reward model's accuracy on pairs of unseen stories, by number of better stories in training."""
    known, teller = pool_of(pool, seed=100)
    new = Pool(sample(teller.model, held_out, seed=101), teller.vocabulary)
    rows = []
    for most in sizes:
        for seed in seeds:
            found = scores_of(trained_reward(known, seed, most), new.ids)
            rows.append({"stories": most, "seed": seed, "accuracy": right_order(found, new)})
    return rows


# ---- live: stories ---------------------------------------------------------------------------------------------------


def side_by_side(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> HTML:
    """Stories in two columns, each headed by whether it is generous and consistent."""
    from IPython.display import HTML

    style = 'style="width:50%; text-align:left; vertical-align:top; white-space:normal"'
    rows = []
    for pair in zip(before, after, strict=True):
        cells = [f"<td {style}><b>{_label(words)}</b><br>{escape(written(words))}</td>" for words in pair]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th {style}>{name}</th>" for name in ("before", "after"))
    return HTML(f"<table><tr>{head}</tr>{''.join(rows)}</table>")


def _label(words: Sequence[str]) -> str:
    found = shares([words])
    names = [name if share else f"not {name}" for name, share in found.items()]
    return ", ".join(names)


# ---- claims and tables from the stored runs --------------------------------------------------------------------------

METHODS_BETA = 0.1  # of the PPO runs that are compared with other methods
MEASURED = ["kl", "score", "generous", "consistent", "liked"]


def start_of(methods: DataFrame) -> Series:
    """The row of the storyteller, from which all methods start."""
    return methods[methods["method"] == "storyteller"].iloc[0]


def mean_run(runs: DataFrame) -> DataFrame:
    """PPO's rounds, averaged over runs."""
    return runs.groupby("round", as_index=False)[["compute", *MEASURED]].mean()


def _end(runs: DataFrame) -> Series:
    return mean_run(runs).iloc[-1]


def _dpo(methods: DataFrame) -> DataFrame:
    return methods[(methods["method"] == "DPO") & (methods["beta"] == DPO_BETA)]


def claims_of_dpo(methods: DataFrame) -> dict[int, float]:
    """Claims 2 to 4: generosity that DPO gains, consistency that it loses, and its KL."""
    start, after = start_of(methods), _dpo(methods)
    return {
        2: after["generous"].min() - start["generous"],
        3: start["liked"] / start["generous"] - after["liked"].mean() / after["generous"].mean(),
        4: after["kl"].max(),
    }


def claims_of_hacking(ppo: DataFrame, methods: DataFrame) -> dict[int, float]:
    """Claims 5 to 7: the score's rise and consistency's fall without a penalty, and the liked share that one saves."""
    start, free, held = start_of(methods), _end(ppo[ppo["beta"] == 0]), _end(ppo[ppo["beta"] == METHODS_BETA])
    return {
        5: free["score"] - start["score"],
        6: start["consistent"] - free["consistent"],
        7: held["liked"] - free["liked"],
    }


def claims_of_methods(methods: DataFrame, ppo: DataFrame) -> dict[int, float]:
    """Claims 8 and 9: DPO against PPO at about the same compute, and against best of n at no higher KL."""
    after, rounds = _dpo(methods)[["compute", *MEASURED]].mean(), mean_run(ppo[ppo["beta"] == METHODS_BETA])
    at = (rounds["compute"] - after["compute"]).abs().idxmin()
    best = methods[(methods["method"] == "best of n") & (methods["kl"] <= after["kl"])].iloc[-1]
    return {8: abs(after["liked"] - rounds.loc[at, "liked"]), 9: best["generous"] - after["generous"]}


def _in_percent(kinds: dict[str, DataFrame]) -> DataFrame:
    """One row per kind, in percent and nats: means over its runs."""
    from pandas import DataFrame

    means = {name: frame[["kl", "generous", "consistent", "liked"]].mean() for name, frame in kinds.items()}
    shown = DataFrame(means).T
    shown.insert(3, "consistent if generous", shown["liked"] / shown["generous"])
    shares = [name for name in shown if name != "kl"]
    shown[shares] *= 100
    return shown.round({"kl": 1} | dict.fromkeys(shares, 0))


def _ends(runs: DataFrame, by: str) -> dict[Any, DataFrame]:
    return dict(list(runs[runs["round"] == runs["round"].max()].groupby(by)))


def table(methods: DataFrame, ppo: DataFrame) -> DataFrame:
    """The methods side by side: means over their runs."""
    kinds = {name: methods[methods["method"] == name] for name in ("storyteller", "SFT")}
    kinds |= {f"PPO, β = {METHODS_BETA:g}": _ends(ppo, "beta")[METHODS_BETA], f"DPO, β = {DPO_BETA:g}": _dpo(methods)}
    best = methods[methods["method"] == "best of n"]
    return _in_percent(kinds | {"best of 16": best[best["n"] == 16]})


def ends_by_beta(methods: DataFrame, ppo: DataFrame) -> DataFrame:
    """The storyteller, and the last round of PPO at each β."""
    start = {"storyteller": methods[methods["method"] == "storyteller"]}
    return _in_percent(start | {f"β = {beta:g}": end for beta, end in _ends(ppo, "beta").items()})


def ends_by_reward(ppo: DataFrame, control: DataFrame) -> DataFrame:
    """The last round of PPO without a penalty, by who scored the stories."""
    return _in_percent(_ends(ppo[ppo["beta"] == 0], "reward") | _ends(control, "reward"))


def hacked(ppo: DataFrame, number: int = 3) -> None:
    """Prints stories of the run without a penalty that has drifted furthest, each with its score and verdict."""
    ends = ppo[(ppo["beta"] == 0) & (ppo["round"] == ppo["round"].max())]
    last = ends.loc[ends["kl"].idxmax()]
    for text, score in list(zip(last["stories"], last["scores"], strict=True))[:number]:
        verdict = check_story(text)
        wrong = len(verdict.faults) + len(verdict.unread)
        kind = "generous" if generous(words_of(text)) else "not generous"
        print(f"score {score:.1f}, {kind}, {wrong} contradictions or sentences that make no sense:")
        print(textwrap.fill(text, 95), "\n", sep="")
