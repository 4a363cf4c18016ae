"""The views where readers meet them: in a page that nbconvert makes, and in JupyterLab, trusted and not."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import nbformat
import pytest
from lab import headed, lab_with, open_in_lab
from mounted import mounted, requested, said
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.slow


CELLS = [
    """import torch
from tfbook.plot import attention_view, decoding_view, mask_view, next_token_view, sampling_view
tokens, weights = ["the", "dog", "ran"], torch.tensor([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.2, 0.3]])""",
    "attention_view(torch.stack([weights, weights.flip(0)]), tokens)",
    "decoding_view(tokens, ['le', 'chien', 'courut'], weights, [[('le', 0.9)], [('chien', 0.8)], [('courut', 0.7)]])",
    "mask_view(torch.zeros(3, 3), tokens)",
    "sampling_view({'the': torch.tensor([2.0, 1.0, 0.0])}, ['dog', 'cat', 'sea'])",
    "next_token_view('the', lambda texts: [[(' dog', 0.7), (' cat', 0.3)]] * len(texts))",
]
KINDS = ["attention", "stepper", "masks", "sampling", "explorer"]
TABLES = [  # without scripts: a table for each view, three for the mask builder
    [["the", "0.75", "0.10", "0.15"], ["dog", "0.25", "0.75", "0.00"], ["ran", "0.75", "0.10", "0.15"]],
    [["le", "1.00", "0.00", "0.00"], ["chien", "0.25", "0.75", "0.00"], ["courut", "0.50", "0.20", "0.30"]],
    [["the", "0.0", "0.0", "0.0"], ["dog", "0.0", "0.0", "0.0"], ["ran", "0.0", "0.0", "0.0"]],
    [["the", "0.0", "−∞", "−∞"], ["dog", "0.0", "0.0", "−∞"], ["ran", "0.0", "0.0", "0.0"]],
    [["the", "1.00", "0", "0"], ["dog", "0.50", "0.50", "0"], ["ran", "0.33", "0.33", "0.33"]],
    [["dog", "0.67", "0.87", "0.67"], ["cat", "0.24", "0.12", "0.24"], ["sea", "0.09", "0.02", "0.09"]],
    [["dog", "0.70", "0.36"], ["cat", "0.30", "1.20"]],
]


@pytest.fixture(scope="module")
def notebook() -> NotebookNode:
    """Executed by a kernel of its own, as a reader would."""
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    executed = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    NotebookClient(executed, timeout=120).execute()
    return executed


def tables(browser: Chrome) -> list[list[list[str]]]:
    """The rows below the heads of all tables in outputs, without the likeliest words."""
    found = browser.find_elements(By.CSS_SELECTOR, "[class^=tfbook] table")
    rows = [[row.text.split()[:4] for row in table.find_elements(By.TAG_NAME, "tr")[1:]] for table in found]
    return [table for table in rows if table]


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


def test_nothing_is_fetched_and_nothing_goes_wrong(browser: Chrome, exported: dict[str, str]) -> None:
    """Beyond what nbconvert itself asks for in a page without any view."""
    found = {}
    for name, url in exported.items():
        requested(browser), said(browser)
        browser.get(url)
        if name == "views":
            attention, stepper, masks, sampling, explorer = (mounted(browser, kind)[0] for kind in KINDS)
            attention.one("select.head").send_keys("2")
            attention.all(".matrix button")[1].click()
            attention.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
            stepper.one(".next").click()
            masks.all(".panel button")[0].click()
            masks.one(".length").send_keys(Keys.ARROW_LEFT)
            sampling.one("input.k").send_keys(Keys.HOME)
            sampling.one(".many").click()
            explorer.all(".bars button")[1].click()
            explorer.press(Keys.ENTER, "2", Keys.BACKSPACE)
        found[name] = requested(browser) - {url}, said(browser)
    assert found["views"] == found["empty"]


def test_without_scripts_the_tables_are_there(browser: Chrome, exported: dict[str, str]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(exported["views"])
        assert tables(browser) == TABLES
        assert browser.find_elements(By.CSS_SELECTOR, "[data-mounted]") == []
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


# ---- JupyterLab --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(
    serve: Callable[..., AbstractContextManager[str]], notebook: NotebookNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a JupyterLab that holds the notebook twice: trusted.ipynb and foreign.ipynb."""
    folder = tmp_path_factory.mktemp("lab")
    copies = {name: headed(notebook, name) for name in ("trusted", "foreign")}
    with serve(folder, lab_with(folder, copies, trusted=["trusted"])) as address:
        yield address


def test_in_jupyterlab_the_views_mount_and_keep_their_keys(browser: Chrome, lab: str) -> None:
    """Keys move in the view, not from cell to cell; nothing but this server is asked; no script complains."""
    requested(browser), said(browser)
    open_in_lab(browser, lab.format("trusted.ipynb"))
    attention, stepper, masks, sampling, explorer = (mounted(browser, kind)[0] for kind in KINDS)

    attention.all(".matrix button")[0].click()
    selected = browser.execute_script(ACTIVE_CELL)
    attention.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    assert (attention.focused, attention.texts("tr.chosen td")) == ("ran", ["1.00", "0.00", "0.00"])
    assert browser.execute_script(ACTIVE_CELL) == selected

    stepper.one(".next").click()
    selected = browser.execute_script(ACTIVE_CELL)
    stepper.press(Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.SPACE)
    assert stepper.one(".place").text == "word 3 of 3"
    assert browser.execute_script(ACTIVE_CELL) == selected

    masks.run("root.querySelector('pre').scrollIntoView({ block: 'center' })")  # from under JupyterLab's status bar
    masks.all(".panel button")[6].click()
    selected = browser.execute_script(ACTIVE_CELL)
    masks.press(Keys.ARROW_RIGHT, Keys.SPACE, Keys.ARROW_RIGHT, Keys.ENTER)
    assert masks.texts(".panel:last-child tr.chosen td") == ["0", "0", "0", "0"]
    assert browser.execute_script(ACTIVE_CELL) == selected

    sampling.run("root.querySelector('.many').scrollIntoView({ block: 'center' })")
    sampling.one(".many").click()
    selected = browser.execute_script(ACTIVE_CELL)
    sampling.one("input.k").send_keys(Keys.HOME)
    assert sampling.summary == "1 of 3 tokens is left; the likeliest has 100%."
    assert browser.execute_script(ACTIVE_CELL) == selected

    explorer.run("root.querySelector('.sum').scrollIntoView({ block: 'center' })")
    explorer.all(".bars button")[0].click()
    selected = browser.execute_script(ACTIVE_CELL)
    explorer.press("2", Keys.ARROW_DOWN, Keys.ENTER, Keys.BACKSPACE, "1")
    assert explorer.texts("mark") == ["dog", "cat", "dog"]
    assert browser.execute_script(ACTIVE_CELL) == selected

    assert {url.split("/")[2] for url in requested(browser)} == {lab.split("/")[2]}
    assert [message for message in said(browser) if "tfbook" in message or "Uncaught" in message] == []


ACTIVE_CELL = "return [...document.querySelectorAll('.jp-Cell')].findIndex(c => c.classList.contains('jp-mod-active'))"


def test_in_a_notebook_that_is_not_trusted_the_tables_stay(browser: Chrome, lab: str) -> None:
    """JupyterLab removes scripts from what somebody else ran."""
    browser.get(lab.format("foreign.ipynb"))
    found = WebDriverWait(browser, 60).until(lambda page: len(rows := tables(page)) == len(TABLES) and rows)
    assert found == TABLES
    assert browser.find_elements(By.CSS_SELECTOR, "[data-mounted]") == []
