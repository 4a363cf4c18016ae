"""The closed answer to a prediction in JupyterLab: opened by mouse and by key, closed again when its cell has run."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import nbformat
import pytest
from lab import lab_with, open_in_lab
from nbclient import NotebookClient
from nbformat import NotebookNode
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.slow

Host = Callable[[Chrome, str], None]

CELLS = [
    """import torch
from IPython.display import display
from tfbook import plot
from tfbook.course.predictions import PredictionAnswers
import matplotlib.pyplot as plt
answer = PredictionAnswers({"why": "It *grows*, because $x^2$ does.", "look": "One by one."})""",
    """figure, axes = plt.subplots(figsize=(2, 1))
with answer("why"):
    print("word " * 40)
    plot.show(figure, "a square")""",
    """with answer("look"):
    display(plot.attention_view(torch.eye(2)[None], ["a", "b"]))""",
]
ACTIVE_CELL = "return [...document.querySelectorAll('.jp-Cell')].findIndex(c => c.classList.contains('jp-mod-active'))"


@pytest.fixture(scope="module")
def lab(serve: Callable[..., AbstractContextManager[str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab with the notebook, trusted and executed."""
    folder = tmp_path_factory.mktemp("lab")
    with serve(folder, lab_with(folder, {"answers": executed()}, trusted=["answers"])) as address:
        yield address


def executed() -> NotebookNode:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS], metadata=kernel)
    NotebookClient(book, timeout=120).execute()
    return book


@pytest.fixture
def page(browser: Chrome, lab: str) -> Chrome:
    open_in_lab(browser, lab.format("answers.ipynb"))
    WebDriverWait(browser, 60).until(lambda page: len(answers(page)) == 2)
    return browser


def answers(page: Chrome) -> list[WebElement]:
    return page.find_elements(By.CSS_SELECTOR, "details.tfbook-answer")


def shown(answer: WebElement) -> list[bool]:
    """Whether what was printed, the figure and the explanation can be seen."""
    return [answer.find_element(By.CSS_SELECTOR, part).is_displayed() for part in ("pre", "img", ".tfbook-explanation")]


def test_a_click_opens_outputs_and_explanation_together(page: Chrome) -> None:
    first = answers(page)[0]
    assert shown(first) == [False] * 3
    first.find_element(By.TAG_NAME, "summary").click()
    assert shown(first) == [True] * 3
    assert first.find_element(By.CSS_SELECTOR, "em").text == "grows"
    letters = first.find_element(By.TAG_NAME, "pre").value_of_css_property("font-family")
    assert "monospace" in letters
    assert page.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth", first)


def test_enter_opens_and_closes_it_and_the_notebook_stays_where_it_is(page: Chrome) -> None:
    first = answers(page)[0]
    summary = first.find_element(By.TAG_NAME, "summary")
    page.execute_script("arguments[0].focus()", summary)
    selected = page.execute_script(ACTIVE_CELL)
    for opened in (True, False):
        summary.send_keys(Keys.ENTER)
        assert shown(first) == [opened] * 3
        assert page.find_elements(By.CSS_SELECTOR, ".jp-mod-editMode") == []
    assert page.execute_script(ACTIVE_CELL) == selected


def test_a_formula_is_typeset(page: Chrome) -> None:
    first = answers(page)[0]
    first.find_element(By.TAG_NAME, "summary").click()
    assert first.find_element(By.TAG_NAME, "math").is_displayed()
    assert "$" not in first.text


def test_a_view_inside_works_once_it_is_opened(page: Chrome) -> None:
    second = answers(page)[1]
    second.find_element(By.TAG_NAME, "summary").click()
    [view] = second.find_elements(By.CSS_SELECTOR, ".tfbook-attention[data-mounted]")
    assert view.shadow_root.find_element(By.CSS_SELECTOR, ".matrix button").is_displayed()


def test_it_is_closed_after_run_all(page: Chrome) -> None:
    for answer in answers(page):
        answer.find_element(By.TAG_NAME, "summary").click()
    before = answers(page)[0]
    assert page.execute_script("return document.querySelectorAll('details.tfbook-answer[open]').length") == 2
    run_all(page)
    WebDriverWait(page, 120).until(lambda _: gone(before) and len(answers(page)) == 2)
    assert page.find_elements(By.CSS_SELECTOR, "details.tfbook-answer[open]") == []


def run_all(page: Chrome) -> None:
    """By the menu, as a reader would."""
    page.find_element(By.XPATH, "//div[contains(@class,'lm-MenuBar-itemLabel') and text()='Run']").click()
    entry = "//li[@data-command='runmenu:run-all']"
    WebDriverWait(page, 30).until(lambda _: page.find_elements(By.XPATH, entry))[0].click()


def gone(element: WebElement) -> bool:
    try:
        element.is_displayed()
    except StaleElementReferenceException:
        return True
    return False


# ---- in other pages than JupyterLab's --------------------------------------------------------------------------------


def in_a_frame(page: Chrome, output: str) -> None:
    """As Colab shows an output: a document of its own in a frame that may run scripts and nothing else."""
    page.execute_script(
        """const frame = document.createElement("iframe");
        Object.assign(frame, { srcdoc: arguments[0], width: 800, height: 600 });
        frame.sandbox = "allow-scripts";
        document.body.replaceChildren(frame);""",
        output,
    )
    page.switch_to.frame(0)
    WebDriverWait(page, 60).until(answers)


def in_an_element(page: Chrome, output: str) -> None:
    """As VS Code shows an output: put into an element, its scripts made anew so that they run."""
    page.execute_script(
        """const host = document.createElement("div");
        host.innerHTML = arguments[0];
        document.body.replaceChildren(host);
        for (const old of host.querySelectorAll("script")) {
          const fresh = document.createElement("script");
          fresh.textContent = old.textContent;
          for (const { name, value } of old.attributes) fresh.setAttribute(name, value);
          old.replaceWith(fresh);
        }""",
        output,
    )


@pytest.fixture(scope="module")
def outputs() -> list[str]:
    """What the two cells with answers show."""
    return [cell.outputs[0].data["text/html"] for cell in executed().cells[1:]]


@pytest.fixture(params=[in_a_frame, in_an_element], ids=["as in Colab", "as in VS Code"])
def host(request: pytest.FixtureRequest, browser: Chrome, tmp_path: Path) -> Iterator[Host]:
    """A page without JupyterLab's scripts that shows outputs."""
    (tmp_path / "host.html").write_text("<!doctype html><meta charset='utf-8'><body></body>", encoding="utf-8")
    browser.get((tmp_path / "host.html").as_uri())
    yield request.param
    browser.switch_to.default_content()


def test_elsewhere_click_and_key_open_all_that_belongs_to_it(host: Host, browser: Chrome, outputs: list[str]) -> None:
    host(browser, outputs[0])
    [answer] = answers(browser)
    summary = answer.find_element(By.TAG_NAME, "summary")
    assert shown(answer) == [False] * 3
    summary.click()
    assert shown(answer) == [True] * 3
    assert answer.find_element(By.TAG_NAME, "math").is_displayed()
    assert "$" not in answer.text
    for opened in (False, True):
        summary.send_keys(Keys.ENTER)
        assert shown(answer) == [opened] * 3


def test_elsewhere_a_view_inside_works(host: Host, browser: Chrome, outputs: list[str]) -> None:
    host(browser, outputs[1])
    [answer] = answers(browser)
    answer.find_element(By.TAG_NAME, "summary").click()
    [view] = answer.find_elements(By.CSS_SELECTOR, ".tfbook-attention[data-mounted]")
    assert view.shadow_root.find_element(By.CSS_SELECTOR, ".matrix button").is_displayed()
