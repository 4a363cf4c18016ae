"""A headless Chromium that reaches nothing but this machine; where there is none, these tests skip and say so."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

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
