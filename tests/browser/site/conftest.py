"""The built site, served on this machine alone; `make test-site` builds it and asks for these tests."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the module beside the tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("TFBOOK_SITE") != "1":
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="the web site: `make test-site`"))


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and writes no line about each."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where the site is served."""
    from built import SITE

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
