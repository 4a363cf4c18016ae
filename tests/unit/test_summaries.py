"""Summaries of stored rows over seeds, on cases worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from tfbook.course import summaries
from tfbook.course.summaries import Interval, bands, half_range, interval, mean_and_range, unnest


def run(model: str, seed: int, bleu: list[float], pace: float) -> dict[str, Any]:
    curve = [{"step": 10 * i, "seconds": pace * i, "bleu": b} for i, b in enumerate(bleu, start=1)]
    pairs = [[10 * i, b] for i, b in enumerate(bleu, start=1)]
    return {
        "model": model,
        "seed": seed,
        "curve": curve,
        "pairs": pairs,
        "scores": bleu,
        "test": bleu[-1],
        "size": 7000,
    }


RUNS = pd.DataFrame(
    [
        run("recurrent", 1, [20.0, 60.0, 80.0], pace=10.0),
        run("Transformer", 1, [50.0, 80.0, 90.0], pace=5.0),
        run("recurrent", 2, [20.0, 60.0, 95.0], pace=20.0),
        run("Transformer", 2, [50.0, 80.0, 90.0], pace=5.0),
    ]
)


class TestInterval:
    def test_it_is_students(self) -> None:
        mean, half = interval([1.0, 2.0, 3.0])
        assert math.isclose(mean, 2.0)
        assert math.isclose(half, 4.302653 / math.sqrt(3), rel_tol=1e-6)

    def test_one_value_has_none(self) -> None:
        with pytest.raises(ValueError, match="values holds 1 number; expected two or more"):
            interval([1.0])

    def test_equal_values_have_no_width(self) -> None:
        assert interval(pd.Series([2.0, 2.0, 2.0])) == (2.0, 0.0)

    @pytest.mark.parametrize(
        ("spec", "text"), [(".1f", "0.1 ± 0.0"), ("+.2f", "+0.12 ± 0.04"), (".0%", "12% ± 4%")], ids=str
    )
    def test_it_is_written_with_its_half_width(self, spec: str, text: str) -> None:
        assert f"{Interval(0.1234, 0.0443):{spec}}" == text


class TestUnnest:
    def test_points_are_rows_beside_the_rest_of_their_row(self) -> None:
        points = unnest(RUNS, "curve")
        assert len(points) == 12
        last = points.iloc[-1]
        assert (last["model"], last["seed"], last["test"]) == ("Transformer", 2, 90.0)
        assert (last["step"], last["seconds"], last["bleu"], last["place"]) == (30, 15.0, 90.0, 2)

    @pytest.mark.parametrize(("column", "names"), [("pairs", ["step", "bleu"]), ("scores", ["bleu"])])
    def test_points_without_names_are_given_some(self, column: str, names: list[str]) -> None:
        points = unnest(RUNS, column, names)
        assert points["bleu"].tolist() == unnest(RUNS, "curve")["bleu"].tolist()
        assert points["place"].tolist() == [0, 1, 2] * 4

    def test_rows_without_a_list_have_no_points(self) -> None:
        frame = pd.DataFrame([{"model": "a", "probes": [1.0, 2.0]}, {"model": "b", "probes": None}])
        assert unnest(frame, "probes", ["R²"])["model"].tolist() == ["a", "a"]

    def test_a_list_without_points_has_no_row(self) -> None:
        """Where pandas makes one of NaN (pandas issue 39915)."""
        frame = pd.DataFrame({"seed": [1, 2], "pairs": [[], [[10, 0.5], [20, None]]]})
        points = unnest(frame, "pairs", ["step", "bleu"])
        assert points["seed"].tolist() == [2, 2]
        assert points["step"].tolist() == [10, 20]
        assert points["place"].tolist() == [0, 1]

    def test_a_point_overrules_its_row(self) -> None:
        frame = pd.DataFrame([{"seconds": 9.0, "curve": [{"seconds": 1.0}, {"seconds": 2.0}]}])
        assert unnest(frame, "curve")["seconds"].tolist() == [1.0, 2.0]


def test_bands_are_means_with_half_the_range() -> None:
    found = bands(unnest(RUNS, "curve"), "model", "step", "bleu")
    assert list(found) == ["recurrent", "Transformer"]
    assert found["recurrent"] == ([10, 20, 30], [20.0, 60.0, 87.5], [0.0, 0.0, 7.5])


def test_points_of_equal_steps_are_averaged_in_both_directions() -> None:
    found = bands(unnest(RUNS, "curve"), "model", "seconds", "bleu", at="step")
    assert found["recurrent"] == ([15.0, 30.0, 45.0], [20.0, 60.0, 87.5], [0.0, 0.0, 7.5])


def test_bands_may_be_confidence_intervals() -> None:
    _, means, halves = bands(RUNS, "model", "size", "test", around=interval)["recurrent"]
    assert (means, halves) == ([87.5], [interval([80.0, 95.0]).half])
    assert half_range([80.0, 95.0]) == (87.5, 7.5)


def test_ranges_are_shown_of_what_it_is_asked_for() -> None:
    shown = summaries.ranges(RUNS, "model", {"size": 0, "test": 2})
    assert list(shown.columns) == ["size", "test"]
    assert shown.loc["recurrent"].tolist() == ["7,000", "87.50 (80.00–95.00)"]
    assert shown.loc["Transformer"].tolist() == ["7,000", "90.00"], "both seeds have the same"


def test_what_no_seed_has_is_a_dash() -> None:
    assert mean_and_range([math.nan, math.nan]) == "–"
    assert mean_and_range([math.nan, 2.0]) == "2.0"


def test_numbers_are_written_in_a_format_and_holes_left_blank() -> None:
    frame = pd.DataFrame({"a": [0.5, math.nan]})
    assert summaries.formatted(frame, ".0%")["a"].tolist() == ["50%", ""]


def test_what_is_written_does_not_hang_on_the_last_bit() -> None:
    frame = pd.DataFrame({"a": [82.25, math.nextafter(82.25, 83), math.nextafter(82.25, 82)]})
    assert summaries.formatted(frame, ".1f")["a"].tolist() == ["82.2"] * 3
