"""Summaries of stored results over seeds: tables, intervals, and curves with bands."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pandas import DataFrame

Curve = tuple[list[float], list[float], list[float]]  # x, mean and half-width of the band, as `plot.lines` draws it


class Interval(NamedTuple):
    """A mean and the half-width of the interval around it. `f"{interval:.1f}"` gives, for example, "5.7 ± 0.8"."""

    mean: float
    half: float

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}} ± {self.half:{spec.lstrip('+')}}"


def interval(values: Collection[float]) -> Interval:
    """Student's 95% confidence interval for the mean of independent values. Raises ValueError for fewer than two."""
    from scipy import stats

    if len(values) < 2:
        raise ValueError(f"values holds {len(values)} number; expected two or more")
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(list(values))
    return Interval(fmean(values), float(half))


def half_range(values: Collection[float]) -> Interval:
    """The mean, and half the distance from the lowest to the highest value."""
    return Interval(fmean(values), (max(values) - min(values)) / 2)


def unnest(frame: DataFrame, column: str, names: Sequence[str] | None = None) -> DataFrame:
    """One row per point of the lists in `column`, with the other columns of the list's row repeated.

    Dictionary points keep their own keys; `names` are the columns for tuples or single numbers. The column `place` is
    the index of a point in its list, from 0. A list without points has no row.
    """
    import pandas as pd

    listed = frame.dropna(subset=column)
    rows = listed[listed[column].map(len) > 0].explode(column)  # which makes NaN of an empty list
    points = pd.DataFrame(rows[column].tolist(), columns=names, index=rows.index)
    points["place"] = rows.groupby(level=0).cumcount()
    rest = rows.drop(columns=[column, *points.columns], errors="ignore")
    return pd.concat([rest, points], axis=1).reset_index(drop=True)


def bands(
    frame: DataFrame,
    by: str,
    x: str,
    y: str,
    *,
    at: str | None = None,
    around: Callable[[Collection[float]], Interval] = half_range,
) -> dict[str, Curve]:
    """One curve per value of `by`: the mean of `y` over seeds at each `x`, with the interval `around` it.

    Where x differs between seeds, as seconds do, points that agree in `at` are grouped and x is averaged, too.
    """

    def curve(runs: DataFrame) -> Curve:
        points = [(fmean(each[x]), *around(each[y])) for _, each in runs.groupby(at or x)]
        xs, means, halves = map(list, zip(*points, strict=True))
        return xs, means, halves

    return {name: curve(runs) for name, runs in frame.groupby(by, sort=False)}


def mean_and_range(values: Collection[float], digits: int = 1) -> str:
    """Text such as "65.0 (60.0–70.0)"; one number if all values are the same, and – if there is none."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "–"
    mean, low, high = (f"{value:,.{digits}f}" for value in (fmean(known), min(known), max(known)))
    return mean if min(known) == max(known) else f"{mean} ({low}–{high})"


def ranges(frame: DataFrame, by: str, digits: Mapping[str, int]) -> DataFrame:
    """`mean_and_range` over seeds for each value of `by`, for the columns in `digits`, which gives their decimals."""
    cells = {column: partial(mean_and_range, digits=count) for column, count in digits.items()}
    return frame.groupby(by, sort=False).agg(cells).rename_axis(None)


def formatted(frame: DataFrame, spec: str) -> DataFrame:
    """The numbers as text in a format such as ".1f", empty where there is none.

    Floating-point noise is rounded away first, so that every version of pandas gives the same text.
    """
    return frame.map(lambda value: "" if math.isnan(value) else format(round(value, 9), spec))
