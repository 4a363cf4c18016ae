"""A headless Chromium that reaches nothing but this machine; where there is none, these tests skip and say so."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import SessionNotCreatedException

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside the tests

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,1400"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-quic", "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
)
OPTIONS = ("--no-browser", "--allow-root", "--ip=127.0.0.1", "--IdentityProvider.token=secret")
Serve = Callable[[Path, Callable[[int, str], Sequence[str]]], AbstractContextManager[str]]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One for all tests, with its own profile; its logs hold what the console says and what pages ask for."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs Chromium and its driver; on Debian: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")  # the driver is a server on this machine
        patch.setenv("no_proxy", "127.0.0.1,localhost")
        try:
            chromium = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        except (
            SessionNotCreatedException
        ) as error:  # another version of the driver, or a browser in a sandbox of its own
            pytest.skip(f"Chromium does not start: {str(error.msg).splitlines()[0]}")
        yield chromium
        chromium.quit()


@pytest.fixture
def show(browser: webdriver.Chrome, tmp_path: Path) -> Callable[..., None]:
    """Opens a page that holds what objects display in a notebook; `width` is the page's, in pixels."""

    def open_page(*shown: object, width: int = 1000) -> None:
        outputs = "\n".join(one._repr_html_() for one in shown)
        body = f"<body style='width: {width}px; margin: 0'>{outputs}</body>"
        (tmp_path / "page.html").write_text(f"<!doctype html><meta charset='utf-8'>{body}", encoding="utf-8")
        browser.get((tmp_path / "page.html").as_uri())

    return open_page


@pytest.fixture(scope="session")
def serve(browser: webdriver.Chrome) -> Serve:
    """Starts JupyterLab in a folder, by the command made of a port and options; gives the address of a file in it.

    Its settings and signatures are in that folder, so that nobody's own are changed.
    """

    @contextmanager
    def running(folder: Path, command: Callable[[int, str], Sequence[str]]) -> Iterator[str]:
        port, log = free_port(), folder / "log"
        env = os.environ | {f"JUPYTER_{name}_DIR": str(folder / name) for name in ("CONFIG", "DATA", "RUNTIME")}
        start = command(port, " ".join(OPTIONS))
        with log.open("wb") as file:
            server = subprocess.Popen(start, cwd=folder, env=env, stdout=file, stderr=file, start_new_session=True)
        try:
            wait_for(f"http://127.0.0.1:{port}/api?token=secret", server, log)
            yield f"http://127.0.0.1:{port}/lab/tree/{{}}?token=secret&reset"
        finally:
            browser.get("about:blank")  # no page asks for a server that is gone
            stop(server)

    return running


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def stop(server: subprocess.Popen[bytes]) -> None:
    """Ends the server with all that it started, its kernels and `make` among them."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Returns once the server answers; fails with its log when it ends or takes more than a minute."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < end:
        try:
            opener.open(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"JupyterLab does not answer:\n{log.read_text()}")


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, which is fetched for these tests alone."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("needs npm, which fetches axe-core")
    command = [npm, "install", "--prefix", str(folder), "--fetch-retries=0", "--fetch-timeout=20000", "axe-core@4"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not get axe-core in 90 seconds")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.exists():
        pytest.skip(f"npm does not get axe-core: {done.stderr.strip().splitlines()[-1:]}")
    return script.read_text(encoding="utf-8")


# ---- pages of a model -----------------------------------------------------------------------------------------------

PAGES = ("words", "characters", "bytes")  # by the kind of their vocabularies


@pytest.fixture(scope="session")
def written_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Path]]:
    """The page of each model of `opened_page`, with what it was made of."""
    from opened_page import subjects  # here, because it loads the package, which other tests do not need

    from tfbook import page

    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, subject in subjects().items():
        page.write_page(subject, folder / f"{name}.html")
        found[name] = subject, folder / f"{name}.html"
    return found


@pytest.fixture
def story(browser: webdriver.Chrome, written_pages: dict[str, tuple[Any, Path]]) -> Any:
    """The page of the storyteller, opened."""
    from opened_page import Opened

    return Opened(browser, *written_pages["words"])


@pytest.fixture(params=PAGES)
def any_page(request: pytest.FixtureRequest, browser: webdriver.Chrome, written_pages: dict[str, Any]) -> Any:
    """The page of each kind of vocabulary, opened."""
    from opened_page import Opened

    return Opened(browser, *written_pages[request.param])
