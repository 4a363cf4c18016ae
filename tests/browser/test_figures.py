"""Figures and claims where readers meet them: in JupyterLab, trusted and not, light and dark, and in exported pages."""

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab import SETTINGS, headed, lab_with, open_in_lab
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from PIL import Image
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from figures import figures

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LESSONS = ("02_scoring_functions", "15_efficient_attention")
THEMES = ("light", "dark")
CELLS = [
    """import matplotlib.pyplot as plt
from tfbook import plot
from tfbook.course.claims import Bound, Claims
plot.style()
bounds = {1: Bound("It is large", ">=", 1, "A paper"), 2: Bound("It is small", "<=", 1, "Another paper")}
claims = Claims("sample", bounds)""",
    """figure, axes = plt.subplots(figsize=(4, 3))
plot.lines(axes, {"loss": ([0, 1, 2], [3.0, 2.0, 1.5])}, title="The loss falls", x="step", y="nats")
plot.show(figure, "A line that falls from 3 to 1.5 & more.", "It falls <always>.")
claims.check({1: 2.0, 2: 3.0})""",
    """figure, axes = plt.subplots(figsize=(4, 3))
axes.imshow([[0, 1], [1, 0]], cmap="gray")
plot.show(figure, "A board of two by two.", photograph=True)""",
    "claims.table()",
]
ALTS = ["A line that falls from 3 to 1.5 & more.", "A board of two by two."]
SUMMARY = "2 claims of this section: 1 holds, 1 fails"
FILTERS = {"light": ["none", "none"], "dark": ["invert(0.9) hue-rotate(180deg)", "none"]}
OUTPUTS = (".jp-OutputArea-output",)
CONTENTS = (*OUTPUTS, ".jp-RenderedMarkdown")
AXE = """const [selectors, done] = arguments;
const context = { include: selectors.map((selector) => [selector]), exclude: [[".highlight"], [".cm-editor"]] };
const options = { rules: { "link-in-text-block": { enabled: false } } }; // the theme's colors of code and of links
const found = axe.run(context, options);
found.then(({ violations }) => done(violations), (error) => done(String(error)));"""


@pytest.fixture(scope="module")
def notebook() -> NotebookNode:
    """Executed by a kernel of its own, as a reader would."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    executed = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    NotebookClient(executed, timeout=120).execute()
    return executed


def images(browser: Chrome) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, ".jp-OutputArea-output img")


def filters(browser: Chrome) -> list[str]:
    return [image.value_of_css_property("filter") for image in images(browser)]


def serious(browser: Chrome, axe: str, selectors: tuple[str, ...]) -> dict[str, list[str]]:
    """What axe finds wrong, minor things aside, in the parts of the page that are selected."""
    browser.execute_script(axe)
    violations: Any = browser.execute_async_script(AXE, selectors)
    assert not isinstance(violations, str), violations
    grave = [one for one in violations if one["impact"] in ("serious", "critical")]
    return {one["id"]: [node["html"][:200] for node in one["nodes"]] for one in grave}


# ---- the HTML that nbconvert exports -----------------------------------------------------------------------------


@pytest.mark.parametrize("theme", THEMES)
def test_an_exported_page_can_be_read(
    browser: Chrome, notebook: NotebookNode, axe: str, tmp_path: Path, theme: str
) -> None:
    (tmp_path / "page.html").write_text(HTMLExporter(theme=theme).from_notebook_node(notebook)[0], encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    assert [image.get_attribute("alt") for image in images(browser)] == ALTS
    assert filters(browser) == FILTERS[theme]
    browser.find_element(By.CSS_SELECTOR, "details.tfbook-claims summary").click()
    found = serious(browser, axe, OUTPUTS)
    assert found == {}, json.dumps(found, indent=1)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("lesson", LESSONS)
def test_axe_finds_nothing_serious_in_an_exported_lesson(
    browser: Chrome, axe: str, tmp_path: Path, lesson: str, theme: str
) -> None:
    page, _ = HTMLExporter(theme=theme).from_filename(str(ROOT / "notebooks" / f"{lesson}.ipynb"))
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    browser.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    found = serious(browser, axe, CONTENTS)
    assert found == {}, json.dumps(found, indent=1)


# ---- JupyterLab --------------------------------------------------------------------------------------------------


def unfolded(lesson: str) -> NotebookNode:
    """A stored lesson with every cell in sight, since JupyterLab does not draw what is folded away."""
    stored = nbformat.read(ROOT / "notebooks" / f"{lesson}.ipynb", as_version=4)
    for cell in stored.cells:
        cell.metadata = NotebookNode()
    return stored


@pytest.fixture(scope="module", params=THEMES)
def lab(
    request: pytest.FixtureRequest,
    serve: Callable[..., AbstractContextManager[str]],
    notebook: NotebookNode,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, str]]:
    """A theme, and the address of a JupyterLab in it with trusted.ipynb, foreign.ipynb and two lessons."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(SETTINGS, folder / "settings")
    settings = json.loads((SETTINGS / "overrides.json").read_text("utf-8"))
    settings["@jupyterlab/apputils-extension:themes"] = {"theme": f"JupyterLab {request.param.title()}"}
    (folder / "settings" / "overrides.json").write_text(json.dumps(settings), encoding="utf-8")
    notebooks = {name: headed(notebook, name) for name in ("trusted", "foreign")}
    notebooks |= {lesson: unfolded(lesson) for lesson in LESSONS}
    with serve(folder, lab_with(folder, notebooks, trusted=["trusted"], settings=folder / "settings")) as address:
        yield request.param, address


def opened(browser: Chrome, address: str, name: str) -> None:
    """The notebook, as soon as JupyterLab draws no output anew."""
    open_in_lab(browser, address.format(name))
    WebDriverWait(browser, 60).until(images)


@pytest.mark.parametrize("name", ["trusted.ipynb", "foreign.ipynb"])
def test_in_jupyterlab_figures_have_their_alt_texts_and_claims_are_closed(
    browser: Chrome, lab: tuple[str, str], axe: str, name: str
) -> None:
    """From the page of somebody else JupyterLab takes style sheets, so figures keep their colors there."""
    theme, address = lab
    opened(browser, address, name)
    assert [image.get_attribute("alt") for image in images(browser)] == ALTS
    assert browser.find_element(By.CSS_SELECTOR, "figcaption").text == "It falls <always>."
    assert filters(browser) == (FILTERS[theme] if name == "trusted.ipynb" else ["none", "none"])
    details = browser.find_element(By.CSS_SELECTOR, "details.tfbook-claims")
    assert details.text == SUMMARY
    details.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    WebDriverWait(browser, 10).until(lambda _: "1. It is large" in details.text)
    assert details.find_element(By.CSS_SELECTOR, "tbody tr").text == "1. It is large holds 2 ≥ 1 A paper"
    found = serious(browser, axe, OUTPUTS)
    assert found == {}, json.dumps(found, indent=1)


@pytest.mark.parametrize("lesson", LESSONS)
def test_in_jupyterlab_every_figure_of_a_lesson_has_its_alt_text(
    browser: Chrome, lab: tuple[str, str], axe: str, lesson: str
) -> None:
    """And axe finds nothing serious in the texts and outputs."""
    _, address = lab
    count = sum(len(figures(output)) for cell in unfolded(lesson).cells for output in cell.get("outputs", ()))
    opened(browser, address, f"{lesson}.ipynb")
    WebDriverWait(browser, 60).until(lambda page: len(images(page)) == count > 5)
    assert all(image.get_attribute("alt").strip() for image in images(browser))
    found = serious(browser, axe, CONTENTS)
    assert found == {}, json.dumps(found, indent=1)


def test_in_jupyterlab_the_corners_of_a_card_are_clear(browser: Chrome, lab: tuple[str, str]) -> None:
    """They show the page, and the card shows letters: no black nibs."""
    theme, address = lab
    opened(browser, address, "trusted.ipynb")
    picture = Image.open(io.BytesIO(images(browser)[0].screenshot_as_png)).convert("L")
    corners = [picture.getpixel((x, y)) for x in (1, picture.width - 2) for y in (1, picture.height - 2)]
    card = picture.getpixel((picture.width // 2, 3))
    assert (min(corners) > 230, card > 230) == ((True, True) if theme == "light" else (False, False))
    assert max(corners) - min(corners) < 3
