"""Lesson 12: what its stored runs say: claims, a table of the methods, and stories of a hacked policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfbook.course.claims import Bound, Claims
from tfbook.course.experiments.preferences import generous
from tfbook.course.experiments.preferences_compared import (
    MEASURED,
    METHODS_BETA,
    draw_betas,
    draw_control,
    draw_frontier,
    mean_run,
    start_of,
)
from tfbook.course.experiments.preferences_runs import DPO_BETA
from tfbook.data.stories import check_story, words_of

if TYPE_CHECKING:
    from pandas import DataFrame, Series

__all__ = [
    "CLAIMS",
    "claims_of_dpo",
    "claims_of_hacking",
    "claims_of_methods",
    "draw_betas",
    "draw_control",
    "draw_frontier",
    "ends_by_beta",
    "ends_by_reward",
    "hacked",
    "mean_run",
    "start_of",
    "table",
]

CLAIMS = Claims(
    "preferences",
    {
        1: Bound(
            "With 64 better stories, the reward model orders at least nine in ten held-out pairs as the reader does",
            ">=",
            0.9,
            "Stored result, preferences.accuracy, smallest of three runs",
        ),
        2: Bound(
            "DPO raises the share of generous stories by at least 30 points",
            ">=",
            0.3,
            "Stored result, preferences_runs.methods, smallest of three runs, 160 stories each",
        ),
        3: Bound(
            "Meanwhile, of its generous stories, the share that is consistent falls by at most 10 points",
            "<=",
            0.1,
            "Stored result, preferences_runs.methods, mean of three runs",
        ),
        4: Bound(
            "It stays within a few nats of the storyteller: KL of a story",
            "<=",
            5,
            "Stored result, preferences_runs.methods, largest of three runs",
            " nats",
        ),
        5: Bound(
            "Without a KL penalty, PPO raises the reward model's score (standard deviations)",
            ">=",
            0.7,
            "Stored result, preferences_runs.ppo, mean of three runs at their end minus the storyteller",
        ),
        6: Bound(
            "… while fewer of its stories are consistent (difference of shares)",
            ">=",
            0.3,
            "Stored result, preferences_runs.ppo, the storyteller minus the mean of three runs at their end",
        ),
        7: Bound(
            "With β = 0.1, the reader likes more of the stories in the end than without a penalty (difference)",
            ">=",
            0.1,
            "Stored result, preferences_runs.ppo, means of three runs at their end",
        ),
        8: Bound(
            "At equal compute, the reader likes about as many of DPO's stories as of PPO's (difference of shares)",
            "<=",
            0.1,
            "Stored results, preferences_runs.methods and preferences_runs.ppo, means of three runs",
        ),
        9: Bound(
            "With no more KL than DPO, best of n has more generous stories (difference of shares)",
            ">=",
            0.1,
            "Stored result, preferences_runs.methods, best of n on new stories",
        ),
    },
)


def _end(runs: DataFrame) -> Series:
    return mean_run(runs).iloc[-1]


def _dpo(methods: DataFrame) -> DataFrame:
    return methods[(methods["method"] == "DPO") & (methods["beta"] == DPO_BETA)]


def claims_of_dpo(methods: DataFrame) -> dict[int, float]:
    """What DPO's stored runs gain, lose and pay."""
    start, after = start_of(methods), _dpo(methods)
    return {
        2: after["generous"].min() - start["generous"],
        3: start["liked"] / start["generous"] - after["liked"].mean() / after["generous"].mean(),
        4: after["kl"].max(),
    }


def claims_of_hacking(ppo: DataFrame, methods: DataFrame) -> dict[int, float]:
    """How far the score rises and consistency falls without a penalty, and what the reader likes with a small one."""
    start, free, held = start_of(methods), _end(ppo[ppo["beta"] == 0]), _end(ppo[ppo["beta"] == METHODS_BETA])
    return {
        5: free["score"] - start["score"],
        6: start["consistent"] - free["consistent"],
        7: held["liked"] - free["liked"],
    }


def claims_of_methods(methods: DataFrame, ppo: DataFrame) -> dict[int, float]:
    """DPO beside PPO's round of the nearest compute, and beside best of the largest n whose KL is not above DPO's."""
    after, rounds = _dpo(methods)[["compute", *MEASURED]].mean(), mean_run(ppo[ppo["beta"] == METHODS_BETA])
    at = (rounds["compute"] - after["compute"]).abs().idxmin()
    best = methods[(methods["method"] == "best of n") & (methods["kl"] <= after["kl"])].iloc[-1]
    return {8: abs(after["liked"] - rounds.loc[at, "liked"]), 9: best["generous"] - after["generous"]}


def _in_percent(kinds: dict[str, DataFrame]) -> DataFrame:
    """A row for each kind, in percent and nats: means over its runs."""
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
    """The storyteller, and where PPO ends at each β."""
    start = {"storyteller": methods[methods["method"] == "storyteller"]}
    return _in_percent(start | {f"β = {beta:g}": end for beta, end in _ends(ppo, "beta").items()})


def ends_by_reward(ppo: DataFrame, control: DataFrame) -> DataFrame:
    """Where PPO without a penalty ends, by who scored the stories."""
    return _in_percent(_ends(ppo[ppo["beta"] == 0], "reward") | _ends(control, "reward"))


def hacked(ppo: DataFrame, number: int = 3) -> None:
    """Prints the first stories of the run without a penalty that has drifted furthest, each with score and verdict."""
    ends = ppo[(ppo["beta"] == 0) & (ppo["round"] == ppo["round"].max())]
    last = ends.loc[ends["kl"].idxmax()]
    for text, score in list(zip(last["stories"], last["scores"], strict=True))[:number]:
        verdict = check_story(text)
        wrong = len(verdict.faults) + len(verdict.unread)
        kind = "generous" if generous(words_of(text)) else "not generous"
        print(f"score {score:.1f}, {kind}, {wrong} contradictions or sentences that make no sense:\n{text}\n")
