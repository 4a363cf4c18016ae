"""The attention view where readers meet it: in a page that nbconvert makes, and in JupyterLab, driven by keyboard."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

pytestmark = pytest.mark.slow

SETTINGS = Path(__file__).parents[2] / "tools" / "jupyterlab"
TOKENS = ["the", "big", "dog", "<b>ran</b>"]
CAUSAL = torch.ones(4, 4, dtype=torch.bool).tril()
WEIGHTS = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).masked_fill(~CAUSAL, -1e9).softmax(-1)
CELLS = [
    f"""import torch
from tfbook.plot.explorer import attention_view
tokens, causal = {TOKENS}, torch.ones(4, 4, dtype=torch.bool).tril()
scores = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
weights = scores.masked_fill(~causal, -1e9).softmax(-1)""",
    "attention_view(weights, tokens, mask=causal)",
    "attention_view({'cross': torch.eye(3)[None]}, ['le', 'chat', '.'], ['the', 'cat', '.'], heads=['copy'])",
]


class View:
    """An attention view as a reader sees it."""

    def __init__(self, browser: Chrome, host: WebElement):
        self.browser, self.host = browser, host

    def all(self, selector: str) -> list[WebElement]:
        return self.host.shadow_root.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        (element,) = self.all(selector)
        return element

    def press(self, *keys: str) -> None:
        """Presses keys wherever the focus is."""
        ActionChains(self.browser).send_keys(*keys).perform()

    @property
    def summary(self) -> str:
        return self.one(".summary").text

    @property
    def numbers(self) -> list[str]:
        """The chosen token's row of the matrix."""
        return [cell.text for cell in self.all(".matrix tr.chosen td")]

    @property
    def token(self) -> str:
        """The token whose button has the focus."""
        script = "return arguments[0].shadowRoot.activeElement?.textContent ?? ''"
        return self.browser.execute_script(script, self.host)


def expected(layer: int, head: int | None, query: int) -> list[str]:
    """What the row should say; head None is the mean of all."""
    maps = WEIGHTS[layer].mean(dim=0) if head is None else WEIGHTS[layer, head]
    return [f"{weight:.2f}" if may else "–" for weight, may in zip(maps[query], CAUSAL[query], strict=True)]


def views(browser: Chrome) -> list[View]:
    """The views on the page, as soon as both are mounted."""
    found = WebDriverWait(browser, 60).until(
        lambda page: len(hosts := page.find_elements(By.CSS_SELECTOR, ".tfbook-attention[data-mounted]")) == 2 and hosts
    )
    return [View(browser, host) for host in found]


def requested(browser: Chrome) -> set[str]:
    """Addresses asked for since the last call, data in the page aside."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    return {url for url in urls if not url.startswith("data:")}


def said(browser: Chrome) -> list[str]:
    """What scripts said on the console since the last call; what the network said is `requested`."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["source"] != "network"]


@pytest.fixture(scope="module")
def notebook() -> NotebookNode:
    """Executed by a kernel of its own, as a reader would."""
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    executed = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    NotebookClient(executed, timeout=120).execute()
    return executed


# ---- the HTML that nbconvert exports -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(notebook: NotebookNode, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of two pages: the notebook's, and the same without its outputs."""
    folder = tmp_path_factory.mktemp("exported")
    empty = nbformat.from_dict(notebook)
    empty.cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    for name, source in (("views", notebook), ("empty", empty)):
        (folder / f"{name}.html").write_text(HTMLExporter().from_notebook_node(source)[0], encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in ("views", "empty")}


@pytest.fixture
def page(browser: Chrome, exported: dict[str, str]) -> list[View]:
    """The two views of the exported notebook, anew for each test."""
    browser.get(exported["views"])
    return views(browser)


def test_the_view_mounts_and_says_the_mean_of_layer_1(page: list[View]) -> None:
    view, other = page
    assert view.numbers == expected(0, None, 2)
    assert re.fullmatch(r"Layer 1, mean of the heads: “dog” attends most to (“\w+” 0\.\d\d(, |\.)){3}", view.summary)
    assert other.summary == "Layer cross, head copy: “chat” attends most to “cat” 1.00."
    assert [cell.text for cell in view.all(".matrix thead th")] == TOKENS
    assert [button.text for button in view.all(".matrix button")] == TOKENS


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("head", [0, 2, None])
def test_layer_and_head_are_chosen_by_keyboard(page: list[View], layer: int, head: int | None) -> None:
    """The lists are the browser's own: a key jumps to the entry that begins with it."""
    view = page[0]
    view.one("select.layer").send_keys(str(layer + 1))
    view.one("select.head").send_keys("m" if head is None else str(head + 1))
    for query in range(4):
        view.all(".matrix button")[query].click()
        assert view.numbers == expected(layer, head, query)
    assert view.summary.startswith(
        f"Layer {layer + 1}, {'mean of the heads' if head is None else f'head {head + 1}'}: "
    )


def test_arrow_keys_move_the_token_and_change_the_head(page: list[View]) -> None:
    """Focus goes with the token, and stops at the ends."""
    view = page[0]
    view.one("select.head").send_keys(Keys.TAB)
    assert view.token == "dog"
    for key, query, head in [
        (Keys.ARROW_UP, 1, None),
        (Keys.ARROW_UP, 0, None),
        (Keys.ARROW_UP, 0, None),
        (Keys.ARROW_LEFT, 0, 2),
        (Keys.END, 3, 2),
        (Keys.ARROW_DOWN, 3, 2),
        (Keys.ARROW_LEFT, 3, 1),
        (Keys.ARROW_UP, 2, 1),
        (Keys.ARROW_RIGHT, 2, 2),
        (Keys.HOME, 0, 2),
    ]:
        view.press(key)
        assert (view.token, view.numbers) == (TOKENS[query], expected(0, head, query))
        assert Select(view.one("select.head")).first_selected_option.text == ("mean" if head is None else str(head + 1))
        pressed = [button.get_attribute("aria-pressed") for button in view.all(".matrix button")]
        assert pressed == ["true" if place == query else "false" for place in range(4)]


def test_the_text_for_screen_readers_follows(page: list[View]) -> None:
    """The strongest first, at most three, none that is 0 or blocked."""
    view = page[0]
    assert view.one(".summary").get_attribute("aria-live") == "polite"
    view.one("select.layer").send_keys("2")
    view.one("select.head").send_keys("1")
    view.all(".matrix button")[1].click()
    most = sorted(zip(expected(1, 0, 1)[:2], TOKENS, strict=False), reverse=True)
    told = ", ".join(f"“{token}” {weight}" for weight, token in most)
    assert view.summary == f"Layer 2, head 1: “big” attends most to {told}."


def test_a_click_on_a_map_chooses_layer_and_head(page: list[View]) -> None:
    view = page[0]
    assert len(view.all("canvas")) == 8
    view.all("canvas")[4 + 2].click()
    assert view.numbers == expected(1, 2, 2)
    assert [canvas.get_attribute("class") for canvas in view.all("canvas")].index("chosen") == 6
    assert page[1].all("canvas") == []


def test_lines_and_colours_show_the_same_weights(page: list[View]) -> None:
    """A line for each weight from 0.02 on, the chosen token's last; a blocked cell is hatched and has no color."""
    view = page[0]
    view.one("select.head").send_keys("1")
    view.all(".matrix button")[3].click()
    drawn = [line.value_of_css_property("stroke-width") for line in view.all("path.chosen")]
    shown = [weight for weight in map(float, expected(0, 0, 3)) if weight >= 0.02]
    assert [float(width.removesuffix("px")) for width in drawn] == pytest.approx([0.5 + 6 * w for w in shown], abs=0.01)
    assert [line.get_attribute("class") for line in view.all("path")][-len(drawn) :] == ["chosen"] * len(drawn)
    assert [text.text for text in view.all("text.number")] == expected(0, 0, 3)
    assert len(view.all("td.blocked")) == 6
    assert "gradient" in view.all("td.blocked")[0].value_of_css_property("background-image")


def test_two_views_are_independent(page: list[View]) -> None:
    view, other = page
    before = other.summary, other.numbers
    view.one("select.layer").send_keys("2")
    view.all(".matrix button")[0].click()
    view.press(Keys.ARROW_DOWN)
    assert (other.summary, other.numbers) == before
    other.all(".matrix button")[0].click()
    assert view.numbers == expected(1, None, 1)
    assert other.numbers == ["1.00", "0.00", "0.00"]


def test_nothing_is_fetched_and_nothing_goes_wrong(browser: Chrome, exported: dict[str, str]) -> None:
    """Beyond what nbconvert itself asks for in a page without any view."""
    found = {}
    for name, url in exported.items():
        requested(browser), said(browser)
        browser.get(url)
        if name == "views":
            view = views(browser)[0]
            view.one("select.head").send_keys("2")
            view.all(".matrix button")[1].click()
            view.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
        found[name] = requested(browser) - {url}, said(browser)
    assert found["views"] == found["empty"]


def test_without_scripts_the_table_is_there(browser: Chrome, exported: dict[str, str]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(exported["views"])
        table, other = browser.find_elements(By.CSS_SELECTOR, ".tfbook-attention table")
        rows = [row.text.split() for row in table.find_elements(By.TAG_NAME, "tr")]
        assert rows == [TOKENS, *([token, *expected(0, None, query)] for query, token in enumerate(TOKENS))]
        assert other.is_displayed()
        assert browser.find_elements(By.CSS_SELECTOR, "[data-mounted]") == []
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_view_reads_in_a_dark_theme(browser: Chrome, exported: dict[str, str]) -> None:
    """Ink and ground are the page's: text is light where the page's is light."""
    browser.get(exported["views"])
    view = views(browser)[0]
    inks = []
    for ink, ground in (("rgb(34, 34, 34)", "white"), ("rgb(230, 230, 230)", "rgb(17, 17, 17)")):
        script = "arguments[0].parentElement.style.color = arguments[1]; document.body.style.background = arguments[2]"
        browser.execute_script(script, view.host, ink, ground)
        inks.append(view.all(".matrix button")[0].value_of_css_property("color"))
        assert view.one(".view").value_of_css_property("background-color") == "rgba(0, 0, 0, 0)"
    assert inks == ["rgba(34, 34, 34, 1)", "rgba(230, 230, 230, 1)"]


# ---- JupyterLab --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(
    serve: Callable[..., AbstractContextManager[str]], notebook: NotebookNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a JupyterLab that holds the notebook twice: trusted.ipynb and foreign.ipynb."""
    folder = tmp_path_factory.mktemp("lab")
    for name in ("notebooks", "DATA"):
        (folder / name).mkdir()
    for name in ("trusted", "foreign"):
        copy = nbformat.from_dict(notebook)
        copy.cells.insert(0, nbformat.v4.new_markdown_cell(name))  # a signature is of the contents, so they must differ
        nbformat.write(copy, folder / "notebooks" / f"{name}.ipynb")
        if name == "trusted":
            NotebookNotary(data_dir=str(folder / "DATA")).sign(copy)
    fixed = [f"--LabApp.app_settings_dir={SETTINGS}", f"--ServerApp.root_dir={folder / 'notebooks'}"]

    def command(port: int, options: str) -> list[str]:
        return [sys.executable, "-m", "jupyterlab", f"--port={port}", *options.split(), *fixed]

    with serve(folder, command) as address:
        yield address


def test_in_jupyterlab_the_view_mounts_and_keeps_its_keys(browser: Chrome, lab: str) -> None:
    """Arrow keys move the token, not the notebook's cells; nothing but this server is asked; no script complains."""
    requested(browser), said(browser)
    browser.get(lab.format("trusted.ipynb"))
    idle = ".jp-Notebook-ExecutionIndicator[data-status=idle]"  # until then JupyterLab may draw outputs anew
    WebDriverWait(browser, 60).until(lambda page: page.find_elements(By.CSS_SELECTOR, idle))
    view, other = views(browser)
    assert view.numbers == expected(0, None, 2)
    view.all(".matrix button")[1].click()
    selected = browser.execute_script(ACTIVE_CELL)
    view.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    assert (view.token, view.numbers) == (TOKENS[3], expected(0, 2, 3))
    view.one("select.layer").send_keys("2")
    assert view.numbers == expected(1, 2, 3)
    assert other.numbers == ["0.00", "1.00", "0.00"]
    assert browser.execute_script(ACTIVE_CELL) == selected
    assert {url.split("/")[2] for url in requested(browser)} == {lab.split("/")[2]}
    assert [message for message in said(browser) if "tfbook" in message or "Uncaught" in message] == []


ACTIVE_CELL = "return [...document.querySelectorAll('.jp-Cell')].findIndex(c => c.classList.contains('jp-mod-active'))"


def test_in_a_notebook_that_is_not_trusted_the_table_stays(browser: Chrome, lab: str) -> None:
    """JupyterLab removes scripts from what somebody else ran."""
    browser.get(lab.format("foreign.ipynb"))
    tables = WebDriverWait(browser, 60).until(
        lambda page: len(found := page.find_elements(By.CSS_SELECTOR, ".jp-OutputArea table")) == 2 and found
    )
    rows = [row.text.split() for row in tables[0].find_elements(By.TAG_NAME, "tr")]
    assert rows == [TOKENS, *([token, *expected(0, None, query)] for query, token in enumerate(TOKENS))]
    assert browser.find_elements(By.CSS_SELECTOR, "[data-mounted]") == []
