"""What the suites of invariants share: each precision in turn."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfbook import runtime

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).parents[1] / "unit"),
]  # for `drawn_cases` and `drawn_configs`


@pytest.fixture(params=runtime.PRECISIONS)
def precision(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The precision of the backward pass, and of whatever runs under `runtime.autocast()`."""
    monkeypatch.setenv("TFBOOK_PRECISION", request.param)
    runtime.precision.cache_clear()
    yield request.param
    runtime.precision.cache_clear()
