"""What the rows of a stored result say: choices, means, ranges and curves over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

from tfbook.course.experiments.bahdanau_attention import mean_and_range

Row = Mapping[str, Any]
Curve = tuple[list[float], list[float], list[float]]  # x, mean and half the range, as `plot.lines` draws it


def where(rows: Sequence[Row], **values: object) -> list[Row]:
    """The rows with these values. Raises ValueError when there are none."""
    found = [row for row in rows if all(row[key] == value for key, value in values.items())]
    if not found:
        raise ValueError(f"no row has {', '.join(f'{key} = {value!r}' for key, value in values.items())}")
    return found


def mean_of(rows: Sequence[Row], key: str, **values: object) -> float:
    """Mean of `key` over the rows with these values."""
    return mean(row[key] for row in where(rows, **values))


def gains(rows: Sequence[Row], key: str, better: Row, than: Row) -> list[float]:
    """For each seed: `key` of the row with the values `better`, minus that of the row with the values `than`."""
    return [
        mean_of(rows, key, seed=seed, **better) - mean_of(rows, key, seed=seed, **than)
        for seed in sorted({row["seed"] for row in rows})
    ]


def band(xs: Sequence[float], runs: Sequence[Sequence[float]]) -> Curve:
    """Mean and half the range over runs at each x."""
    points = list(zip(*runs, strict=True))
    return list(xs), [mean(point) for point in points], [(max(point) - min(point)) / 2 for point in points]


def table(
    rows: Sequence[Row], by: str, columns: Mapping[str, Callable[[Row], float]], digits: Mapping[str, int] | None = None
) -> str:
    """A line for each value of `by`, a column for each function of a row: mean over seeds (lowest–highest).

    `digits` says how many decimals a column has; left out, it is 1.
    """
    names = list(dict.fromkeys(row[by] for row in rows))
    left = max(map(len, names)) + 2
    lines = [" " * left + "".join(f"{column:>24}" for column in columns)]
    for name in names:
        chosen = where(rows, **{by: name})
        cells = [_cell([read(row) for row in chosen], (digits or {}).get(key, 1)) for key, read in columns.items()]
        lines.append(f"{name:{left}}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


def _cell(values: Sequence[float], digits: int) -> str:
    """One number where all seeds have the same, as they do for sizes."""
    return f"{values[0]:,.{digits}f}" if len(set(values)) == 1 else mean_and_range(values, digits)
