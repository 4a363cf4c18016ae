"""Lesson 19's study: say here what has to be true of it."""

from tfbook.lessons.modalities import figures, study


def test_a_run_depends_on_its_seed_alone() -> None:
    assert study.measure(1) == study.measure(1) != study.measure(2)


def test_every_run_is_drawn() -> None:
    assert len(figures.draw_runs([0.1, 0.2]).axes[0].patches) == 2
