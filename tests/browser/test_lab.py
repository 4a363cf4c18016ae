"""What a learner meets after `make lab`: copies to work on, folded as tools/folding.py says, and no questions."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab import open_in_lab
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("make") is None, reason="`make lab` needs make")]

ROOT = Path(__file__).parents[2]
COURSE = ("Makefile", "pyproject.toml", "README.md", "CLAIMS.md", ".github", "notebooks", "tools")
NAME = "99_folds.ipynb"
ANSWER = new_output("stream", name="stdout", text="Scores:\n0.25 and 0.75\n")
CELLS = [
    new_markdown_cell("# 99 · Is it folded?"),
    new_code_cell("# @title Setup: here\nready = True"),
    new_code_cell("import math\nimport cmath"),
    new_code_cell("steps = runtime.pick(quick=1)"),
    new_markdown_cell("## 1. Ask\n\n> **Predict** Which is larger?"),
    new_code_cell('print("Scores:")\nprint("0.25 and 0.75")', outputs=[ANSWER]),
    *(new_markdown_cell(f"## {n}. Section\n\n" + 30 * "A paragraph.\n\n") for n in range(2, 9)),
    new_markdown_cell("## Going further\n\nWhat can wait."),
    new_markdown_cell("### A proof\n\nIt is long."),
    new_markdown_cell("Its end."),
    new_markdown_cell("## References\n\nA paper."),
]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the course with one more lesson, tidied, and with an environment that is installed."""
    folder = tmp_path_factory.mktemp("course")
    for name in COURSE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "pip"):
        program = folder / ".venv" / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    (folder / ".venv" / "lab.stamp").touch()
    lesson = folder / "notebooks" / NAME
    nbformat.write(new_notebook(cells=CELLS, metadata={"kernelspec": {"name": "python3", "display_name": "P"}}), lesson)
    subprocess.run([sys.executable, "tools/tidy.py", lesson], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def lab(serve: Callable[..., AbstractContextManager[str]], course: Path) -> Iterator[str]:
    """The address of a file in the JupyterLab that `make lab` starts."""
    with serve(course, lambda port, options: ["make", "lab", f"PORT={port}", f"LAB_ARGS={options}"]) as address:
        yield address


@pytest.fixture
def page(browser: Chrome, lab: str) -> Chrome:
    """The browser, in which the lesson was opened a moment ago."""
    browser.get_log("performance")
    open_in_lab(browser, lab.format(NAME))
    wait(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, ".jp-Notebook-cell")) == len(CELLS))
    return browser


def wait(browser: Chrome, condition: Callable[[], Any]) -> Any:
    """What the condition gives as soon as it is true. A page that is still being drawn may exchange its parts."""
    redrawn = (StaleElementReferenceException, ElementClickInterceptedException)
    return WebDriverWait(browser, 60, ignored_exceptions=redrawn).until(lambda _: condition())


def unfold(page: Chrome, number: int, placeholder: str, part: str) -> list[str]:
    """The texts of a part of a cell, after a click on its placeholder; a page that is being drawn loses a click."""

    def opened() -> list[str]:
        for button in cell(page, number).find_elements(By.CSS_SELECTOR, f"{placeholder} .jp-Placeholder-content"):
            button.click()
        return shown(cell(page, number), part)

    return wait(page, opened)


def cell(page: Chrome, number: int) -> WebElement:
    return page.find_elements(By.CSS_SELECTOR, ".jp-Notebook-cell")[number]


def shown(element: WebElement, selector: str) -> list[str]:
    """The texts of the parts of an element that can be seen."""
    return [part.text for part in element.find_elements(By.CSS_SELECTOR, selector) if part.is_displayed()]


def visible(page: Chrome) -> list[bool]:
    """Which cells are not hidden under a heading."""
    return [element.is_displayed() for element in page.find_elements(By.CSS_SELECTOR, ".jp-Notebook-cell")]


def files(page: Chrome) -> dict[str, WebElement]:
    """What the file browser lists."""
    return {item.text: item for item in page.find_elements(By.CSS_SELECTOR, ".jp-DirListing-item")}


def test_the_learner_finds_copies_and_is_asked_nothing(page: Chrome, lab: str, course: Path) -> None:
    lessons = {path.name for path in (course / "notebooks").glob("*.ipynb")}
    listed = {name.split("\n")[0] for name in files(page)}
    assert listed == {*lessons, "README.md", "CLAIMS.md", "alignment.png"}
    assert page.find_elements(By.CSS_SELECTOR, ".jp-Dialog, .Toastify__toast") == []
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {url.split("/")[2] for url in urls if not url.startswith(("data:", "blob:"))} == {lab.split("/")[2]}


def test_the_server_says_its_address_and_little_else(page: Chrome, course: Path) -> None:
    """Not the twenty lines about its extensions."""
    said = (course / "log").read_text(encoding="utf-8")
    assert "JupyterLab starts at http://localhost:" in said
    assert "[I " not in said


@pytest.mark.parametrize(
    ("number", "title", "line"),
    [(1, "Setup: here", "ready = True"), (2, "Imports", "import cmath"), (3, "Hyperparameters", "steps = runtime")],
)
def test_a_source_is_hidden_until_it_is_clicked(page: Chrome, number: int, title: str, line: str) -> None:
    wait(page, lambda: shown(cell(page, number), ".jp-InputPlaceholder") == [f"# @title {title}"])
    assert shown(cell(page, number), ".jp-InputArea-editor") == []
    assert line in unfold(page, number, ".jp-InputPlaceholder", ".jp-InputArea-editor")[0]


def test_an_answer_is_hidden_until_it_is_clicked(page: Chrome) -> None:
    wait(page, lambda: shown(cell(page, 5), ".jp-OutputPlaceholder") == ["Scores:"])
    assert "print" in shown(cell(page, 5), ".jp-InputArea-editor")[0]
    assert shown(cell(page, 5), ".jp-OutputArea-output") == []
    assert unfold(page, 5, ".jp-OutputPlaceholder", ".jp-OutputArea-output") == ["Scores:\n0.25 and 0.75"]


def test_running_a_cell_shows_its_answer(page: Chrome) -> None:
    cell(page, 5).find_element(By.CSS_SELECTOR, ".jp-InputArea-editor").click()
    page.find_element(By.CSS_SELECTOR, "[data-command='notebook:run-cell-and-select-next']").click()
    assert wait(page, lambda: shown(cell(page, 5), ".jp-OutputArea-output")) == ["Scores:\n0.25 and 0.75"]


def test_going_further_opens_section_by_section(page: Chrome) -> None:
    """A button below the heading, then a triangle beside each heading in it; the next section is seen all the time."""
    further, proof, _, last = range(len(CELLS) - 4, len(CELLS))
    wait(page, lambda: visible(page)[further:] == [True, False, False, True])
    wait(page, lambda: shown(cell(page, further), ".jp-showHiddenCellsButton") == ["2 cells hidden"])
    cell(page, further).find_element(By.CSS_SELECTOR, ".jp-showHiddenCellsButton").click()
    wait(page, lambda: visible(page)[further:] == [True, True, False, True])
    cell(page, proof).find_element(By.CSS_SELECTOR, ".jp-collapseHeadingButton").click()
    wait(page, lambda: visible(page)[further:] == [True, True, True, True])
    assert shown(cell(page, last), "h2")[0].startswith("References")


def test_a_click_in_the_table_of_contents_scrolls(page: Chrome) -> None:
    page.find_element(By.CSS_SELECTOR, ".jp-SideBar [data-id='table-of-contents']").click()
    entries = wait(page, lambda: page.find_elements(By.CSS_SELECTOR, ".jp-tocItem-content"))
    far, near = (next(entry for entry in entries if entry.text == f"{n}. Section") for n in (8, 2))
    assert not in_window(page, "8. Section")
    far.click()
    wait(page, lambda: in_window(page, "8. Section") and not in_window(page, "2. Section"))
    near.click()
    wait(page, lambda: in_window(page, "2. Section") and not in_window(page, "8. Section"))
    page.find_element(By.CSS_SELECTOR, ".jp-SideBar [data-id='filebrowser']").click()


def in_window(page: Chrome, title: str) -> bool:
    """Whether the heading can be seen without scrolling."""
    heading = next(found for found in page.find_elements(By.CSS_SELECTOR, "h2") if found.text.startswith(title))
    script = "const box = arguments[0].getBoundingClientRect(); return 0 < box.top && box.bottom < innerHeight"
    return page.execute_script(script, heading)


def test_the_readme_is_a_page_whose_links_open_the_copies(page: Chrome) -> None:
    readme = next(item for name, item in files(page).items() if name.startswith("README.md"))
    ActionChains(page).double_click(readme).perform()
    link = wait(page, lambda: page.find_elements(By.CSS_SELECTOR, ".jp-MarkdownViewer table a"))[0]
    assert link.text == "Start here"
    picture = page.find_element(By.CSS_SELECTOR, ".jp-MarkdownViewer img[alt^='Attention weights']")
    assert wait(page, lambda: int(picture.get_attribute("naturalWidth"))) > 0
    link.click()
    tab = ".jp-mod-current .lm-TabBar-tabLabel, .lm-mod-current .lm-TabBar-tabLabel"
    wait(page, lambda: "00_start_here.ipynb" in shown(page.find_element(By.ID, "jp-main-dock-panel"), tab))
