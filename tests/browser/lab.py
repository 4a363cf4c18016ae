"""Notebooks in a JupyterLab of their own; the fixture `serve` starts it."""

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SETTINGS = Path(__file__).parents[2] / "tools" / "jupyterlab"
IDLE = ".jp-Notebook-ExecutionIndicator[data-status=idle]"  # until then JupyterLab may draw outputs anew


def lab_with(
    folder: Path, notebooks: Mapping[str, NotebookNode], trusted: Collection[str], settings: Path = SETTINGS
) -> Callable[[int, str], list[str]]:
    """Writes notebooks, `name.ipynb`, into a folder, some of them trusted; gives the command for `serve` to start."""
    for name in ("notebooks", "DATA"):
        (folder / name).mkdir()
    for name, notebook in notebooks.items():
        nbformat.write(notebook, folder / "notebooks" / f"{name}.ipynb")
        if name in trusted:
            NotebookNotary(data_dir=str(folder / "DATA")).sign(notebook)
    fixed = [f"--LabApp.app_settings_dir={settings}", f"--ServerApp.root_dir={folder / 'notebooks'}"]
    return lambda port, options: [sys.executable, "-m", "jupyterlab", f"--port={port}", *options.split(), *fixed]


def headed(notebook: NotebookNode, name: str) -> NotebookNode:
    """A copy that begins with its name: a signature is of the contents, so two copies must differ."""
    copy = nbformat.from_dict(notebook)
    copy.cells.insert(0, nbformat.v4.new_markdown_cell(name))
    return copy


def open_in_lab(browser: Chrome, address: str) -> None:
    """Opens a notebook and waits until JupyterLab has drawn it."""
    browser.get(address)
    WebDriverWait(browser, 60).until(lambda page: page.find_elements(By.CSS_SELECTOR, IDLE))
