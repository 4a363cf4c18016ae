"""What the suites of invariants share: each precision in turn."""

from collections.abc import Iterator

import pytest

from tfbook import runtime


@pytest.fixture(params=runtime.PRECISIONS)
def precision(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The precision of the backward pass, and of whatever runs under `runtime.autocast()`."""
    monkeypatch.setenv("TFBOOK_PRECISION", request.param)
    runtime.precision.cache_clear()
    yield request.param
    runtime.precision.cache_clear()
