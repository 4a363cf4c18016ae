"""Let these tests import the tools, and the modules beside them; the loopback server and an empty cache as fixtures."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).parent))

from loopback import Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.closing.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of its own, no mirror, and the network allowed."""
    monkeypatch.delenv("TFBOOK_MIRROR", raising=False)
    monkeypatch.delenv("TFBOOK_OFFLINE", raising=False)
    monkeypatch.setenv("TFBOOK_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"
