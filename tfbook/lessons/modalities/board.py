"""The scoreboard of lesson 19: every task with our blocks, the best rival, and the trivial answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tfbook.course.experiments import stored
from tfbook.lessons.modalities.asking_pictures import in_quarters, most_frequent_answers
from tfbook.lessons.modalities.asking_rivals import GLANCES, LATE, SPEAKING, SUMS, TAUGHT, UNSEEN, answering_means
from tfbook.lessons.modalities.clubs import EIGENVECTOR_RULE, rule_shares, share_right, unseen_clubs
from tfbook.lessons.modalities.order import ATTENDING, CNN_TOWERS, CONVOLVING, STREAM, SWAPPED, all_orders
from tfbook.lessons.modalities.pictures_and_words import LOOKS
from tfbook.lessons.modalities.rings import most_frequent
from tfbook.lessons.modalities.rivals import MEAN, all_digits
from tfbook.lessons.modalities.sound import MODELS

if TYPE_CHECKING:
    from pandas import DataFrame

CLASSICAL, OURS = ("boosted trees", "linear model"), "our blocks along edges"


class BoardRow(NamedTuple):
    """A task, the name of the best rival, and the scores of our blocks, of that rival and of the trivial answer."""

    task: str
    rival: str
    scores: tuple[Sequence[float], Sequence[float], Sequence[float]]


def _of(runs: DataFrame, score: str, **wanted: object) -> list[float]:
    """The scores of the runs whose columns have these values."""
    for column, value in wanted.items():
        runs = runs[runs[column] == value]
    return [float(each) for each in runs[score]]


def _best(runs: DataFrame, score: str, column: str, names: Sequence[str]) -> tuple[str, list[float]]:
    """The one of these models whose mean is highest, and its scores."""
    found = {name: _of(runs, score, **{column: name}) for name in names}
    best = max(found, key=lambda name: sum(found[name]) / len(found[name]))
    return best, found[best]


def scoreboard() -> list[BoardRow]:
    """The stored scores of each task; R² where a number is asked, shares of right answers elsewhere."""
    return [*_of_tables(), *_of_graphs(), _of_digits(), *_of_pictures(), _of_questions()]


def _row(task: str, ours: Sequence[float], best: tuple[str, Sequence[float]], trivial: Sequence[float]) -> BoardRow:
    return BoardRow(task, best[0], (ours, best[1], trivial))


def _of_tables() -> list[BoardRow]:
    tables, stand = stored("modalities.tables").frame, stored("modalities.reasons").frame
    usual, rows = stand[stand["variant"] == "as it is"], []
    small = {f"table: {name}": tables[tables["table"] == name] for name in ("wine", "breast cancer", "diabetes")}
    for task, runs in {"table: ice cream": usual, **small}.items():
        ours, best = _of(runs, "test", model="FT-Transformer"), _best(runs, "test", "model", CLASSICAL)
        asked_a_number = task.endswith(("cream", "diabetes"))
        rows.append(_row(task + " (R²)" * asked_a_number, ours, best, _of(runs, "test", model="trivial") or [0.0]))
    return rows


def _of_graphs() -> list[BoardRow]:
    hops, codes = stored("modalities.hops").frame, stored("modalities.codes").frame
    deep, walks = hops[hops["layers"] == 4], codes[codes["sight"] == "+ return probabilities"]
    means = stored("modalities.means").frame
    return [
        _row(
            "graph: clubs",
            _of(deep, "right", reader=OURS),
            (EIGENVECTOR_RULE, [rule_shares()[EIGENVECTOR_RULE]]),
            [share_right(unseen_clubs().target * 0, unseen_clubs())],
        ),
        _row(
            "graph: rings",
            _of(walks, "right", reader=OURS),
            ("plain means", _of(means, "right", reader=MEAN)),
            [most_frequent()],
        ),
    ]


def _of_digits() -> BoardRow:
    digits = all_digits()
    listeners = [name for name in digits["model"].unique() if name not in MODELS]
    ours = _of(digits, "right", model="Transformer, strips")
    return _row("sound: digits", ours, _best(digits, "right", "model", listeners), [0.1])


def _of_pictures() -> list[BoardRow]:
    pairs, looks = stored("modalities.images_and_captions").frame, stored("modalities.towers").frame
    order = all_orders().assign(worse=lambda runs: runs[list(SWAPPED)].min(axis=1))
    named = _best(pairs, "caption found", "model", ("color histograms, linear", "words as labels"))
    looked = "CNN tower", _of(looks, "right", model=CONVOLVING)
    told = "CNN tower", _of(order, "worse", model=CNN_TOWERS)
    return [
        _row("image, text: caption of 100", _of(pairs, "caption found", model="CLIP"), named, [0.01]),
        _row("image, text: look, 180 steps", _of(looks, "right", model=ATTENDING), looked, [1 / len(LOOKS)]),
        _row("image, text: who is where", _of(order, "worse", model=STREAM), told, [0.5]),
    ]


def _of_questions() -> BoardRow:
    means = answering_means()
    frequent = most_frequent_answers(in_quarters("train", TAUGHT), in_quarters("test", UNSEEN))
    trivial = sum(frequent.values()) / len(frequent)
    best = max((LATE, GLANCES, SUMS), key=lambda name: sum(means[name]))  # at equal steps
    return _row("image, text: questions", means[SPEAKING], (best, means[best]), [trivial])
