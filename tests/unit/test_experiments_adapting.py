"""What lesson 11 measures: say here what has to be true of it."""

from tfbook.course.experiments import adapting as study


def test_a_run_depends_on_its_seed_alone() -> None:
    assert study.measure(1) == study.measure(1) != study.measure(2)
