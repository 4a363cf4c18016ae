"""Every page in Chromium: console, axe in light and dark; views by keyboard; search; the model; a phone's width."""

from __future__ import annotations

import json
from typing import Any

import pytest
from built import PAGES
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.support.ui import WebDriverWait

OPEN = "for (const one of document.querySelectorAll('details')) one.open = true"
AXE = """const [options, done] = arguments;
axe.run({exclude: options.exclude}, {resultTypes: ['violations'], ...options}).then(({violations}) => done(
  violations.filter(({impact}) => ['serious', 'critical'].includes(impact))
    .map(({id, nodes}) => [id, nodes.slice(0, 5).map(({target}) => target.join(' '))])));"""
THOROUGH = ("index.html", "lessons/04_positions.html", "reference/attention.html")
VIEWS = {
    "guessing": "00_start_here",
    "stepper": "01_bahdanau_attention",
    "painter": "03_self_attention",
    "attention": "03_self_attention",
    "masks": "03_self_attention",
    "rotary": "04_positions",
    "breaking": "05_transformer",
    "sampling": "06_decoding",
    "bpe": "07_tokenizers",
    "explorer": "09_gpt_pretraining",
    "pricing": "16_inference",
    "story": "18_memory",
    "tape": "18_memory",
}


def complaints(browser: Chrome) -> list[str]:
    """The console's errors since it was last asked."""
    return [one["message"] for one in browser.get_log("browser") if one["level"] == "SEVERE"]


def theme(browser: Chrome, name: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": name}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_error_and_axe_finds_nothing(browser: Chrome, address: str, axe: str, page: str) -> None:
    """All rules in light; in dark, which changes colors alone, that of contrast. Everything closed is opened.

    What is the same everywhere, the list of pages and the colors of code, is looked at on the `THOROUGH` pages.
    """
    browser.set_script_timeout(120)
    theme(browser, "light")
    browser.get(f"{address}/{page}")
    browser.execute_script(OPEN)
    browser.execute_script(axe)
    same = [] if page in THOROUGH else [[".sidebar-drawer"], [".highlight-ipython3"], [".sig"]]
    found = {"light": browser.execute_async_script(AXE, {"exclude": same})}
    theme(browser, "dark")
    found["dark"] = browser.execute_async_script(AXE, {"exclude": same, "runOnly": ["color-contrast"]})
    assert found == {"light": [], "dark": []}, json.dumps(found, indent=1)
    assert complaints(browser) == []


CHANGES = """const { shadowRoot } = document.querySelector(arguments[0]);
return shadowRoot.innerHTML + [...shadowRoot.querySelectorAll('input, select')].map((one) => one.value);"""
REACHED = """const root = document.querySelector(arguments[0]).shadowRoot;
return root.activeElement ? 1 : 0;"""


@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_is_reached_and_changed_by_keyboard(browser: Chrome, address: str, kind: str) -> None:
    """From the text before it, Tab leads into the view, and a key changes what it shows."""
    browser.get(f"{address}/lessons/{VIEWS[kind]}.html")
    host = f".tfbook-{kind}"
    browser.execute_script(OPEN)
    browser.execute_script(
        """const before = document.createElement('button');
        document.querySelector(arguments[0]).before(before); before.focus();""",
        host,
    )
    before, changed = browser.execute_script(CHANGES, host), False
    for _ in range(12):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        if not browser.execute_script(REACHED, host):
            break
        for key in (Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.SPACE, Keys.ENTER, "e"):
            ActionChains(browser).send_keys(key).perform()
            changed = changed or browser.execute_script(CHANGES, host) != before
        if changed:
            break
    assert changed
    assert complaints(browser) == []


def test_every_view_is_alive(browser: Chrome, address: str) -> None:
    """On the lessons' pages each of them has replaced its table, and there is no kind of which we know nothing."""
    kinds = set()
    for name in sorted(set(VIEWS.values())):
        browser.get(f"{address}/lessons/{name}.html")
        script = """return [...document.querySelectorAll('[data-view]')].map(
          (one) => [one.classList[0].slice(7), (one.shadowRoot?.childElementCount ?? 0) > 1])"""
        hosts = browser.execute_script(script)
        assert [kind for kind, alive in hosts if not alive] == []
        kinds |= {kind for kind, _ in hosts}
    assert kinds == set(VIEWS)


def test_the_search_finds_rotary(browser: Chrome, address: str) -> None:
    """The lesson that explains it is among the first, with the words around it, not those at the head of the page."""
    browser.get(f"{address}/search.html?q=rotary")
    links = "return [...document.querySelectorAll('#search-results li a')].map((one) => one.getAttribute('href'))"
    WebDriverWait(browser, 20).until(lambda _: len(browser.execute_script(links)) > 3)
    assert any("lessons/04_positions.html" in link for link in browser.execute_script(links))
    told = """return [...document.querySelectorAll('#search-results li')].find(
      (one) => one.querySelector('a').href.includes('lessons/04_')).querySelector('p')?.textContent ?? ''"""
    WebDriverWait(browser, 20).until(lambda _: "rotary" in browser.execute_script(told))
    assert "Open in Colab" not in browser.execute_script(told)
    assert complaints(browser) == []


def test_the_model_of_the_front_page_writes(browser: Chrome, address: str) -> None:
    """Inside of its frame, which is as high as the desk, in the theme that the reader chose."""
    theme(browser, "light")
    browser.get(f"{address}/index.html")
    browser.switch_to.frame("model")
    words = "return document.getElementById('words').childElementCount"
    WebDriverWait(browser, 30).until(lambda _: browser.execute_script(words) > 10)
    before = browser.execute_script(words)
    browser.execute_script("document.getElementById('one').click()")
    assert browser.execute_script(words) == before + 1
    hidden = "return getComputedStyle(document.querySelector('.insight')).display"
    assert browser.execute_script(hidden) == "none"
    browser.switch_to.default_content()
    high = "return document.getElementById('model').clientHeight"
    inside = browser.execute_script(high)
    assert inside > 500
    browser.execute_script("document.body.dataset.theme = 'dark'")
    browser.switch_to.frame("model")
    WebDriverWait(browser, 5).until(
        lambda _: browser.execute_script("return document.documentElement.style.colorScheme") == "dark"
    )
    browser.switch_to.default_content()


MOVES = """window.moved = 0;
new PerformanceObserver((list) => list.getEntries().forEach(({ value }) => (moved += value)))
  .observe({ type: "layout-shift", buffered: true });"""


def test_the_front_page_stands_still_while_the_model_comes(browser: Chrome, address: str) -> None:
    """What is seen does not move, wide or narrow; and a window that becomes wider leaves no gap below the model."""
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": MOVES})
    high = "return document.getElementById('model').clientHeight"
    heights = {}
    try:
        for width in (390, 1280):
            metrics = {"width": width, "height": 950, "deviceScaleFactor": 1, "mobile": width < 400}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            browser.get(f"{address}/index.html")
            WebDriverWait(browser, 30).until(
                lambda _: browser.execute_script("return document.getElementById('model').style.height")
            )
            WebDriverWait(browser, 30).until(
                lambda _: browser.execute_script("return document.readyState") == "complete"
            )
            browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 200))")
            heights[width] = browser.execute_script(high)
            assert browser.execute_script("return moved") < 0.005
        narrow = {"width": 390, "height": 950, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
        WebDriverWait(browser, 10).until(lambda _: browser.execute_script(high) > heights[1280] + 50)
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow | {"width": 1280})
        WebDriverWait(browser, 10).until(lambda _: abs(browser.execute_script(high) - heights[1280]) < 5)
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("page", ["index.html", "lessons/04_positions.html", "ledger.html", "reference/attention.html"])
def test_no_page_scrolls_sideways_on_a_phone(browser: Chrome, address: str, page: str) -> None:
    metrics: dict[str, Any] = {"width": 360, "height": 780, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.get(f"{address}/{page}")
        browser.execute_script(OPEN)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
