"""The comparison of outputs is itself tested: nbval runs on cells of which some must pass and some must fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nbformat import NotebookNode
from samples import IGNORED, NEVER, OFFLINE, VARIES, WIDGET, code, display, mimebundle, notebook, result, save, stream

from tfbook.course.claims import Bound, Claims
from tfbook.plot.house import STYLESHEET

ROOT = Path(__file__).resolve().parents[2]
CLAIM = """
from tfbook.course.claims import Bound, Claims
bound = Bound("Attention holds on long sentences.", ">=", 80, "Bahdanau et al. (2015)")
claims = Claims("sample", {{1: bound}})
claims.check({{1: {measured}}})
claims.table()
"""


def claim_output(verdict: str, measured: float) -> NotebookNode:
    """What such a cell has stored."""
    bound = Bound("Attention holds on long sentences.", ">=", 80, "Bahdanau et al. (2015)")
    claims = Claims("sample", {1: bound})
    claims.check({1: measured})
    stored = claims.table()
    assert stored.claims[0].verdict == verdict
    return mimebundle(stored._repr_mimebundle_())


FIGURE = """
import matplotlib.pyplot as plt
from tfbook import plot
plt.plot([1, {end}])
plot.show(plt.gcf(), "the {alt}", "{caption}")
"""


def figure_output(alt: str, caption: str) -> NotebookNode:
    """What such a cell has stored, with other pixels and another width."""
    img = f'<img alt="the {alt}" width="7" src="data:image/png;base64,QUJD+/=">'
    below = f"<figcaption>{caption}</figcaption>"
    page = f'<figure class="tfbook-figure">\n{img}\n{below}\n</figure>{STYLESHEET}'
    return mimebundle({"text/html": page, "text/plain": f"the {alt}"})


def shown(**data: Any) -> str:
    return f"from IPython.display import display\ndisplay({data}, raw=True)".replace("_", "/")


def framed(table: dict[str, list[float]]) -> tuple[str, NotebookNode]:
    """A cell that shows a frame of pandas, and what is stored where it has other numbers."""
    import pandas as pd

    other = pd.DataFrame(table) * 7 + 1000
    stored = display(text_html=other.to_html(notebook=True), text_plain=repr(other))
    return f"import pandas as pd\nfrom IPython.display import display\ndisplay(pd.DataFrame({table}))", stored


def varying(source: str, *outputs: NotebookNode | str) -> NotebookNode:
    return code(source, *outputs, metadata=VARIES)


MACHINE = "cpu (x86_64, 2 threads) · bfloat16 · scale cpu · torch 2.14.1+cu130"
FRAME, FRAME_STORED = framed({"loss": [0.5, 2.25], "right": [1.0, 0.0]})
PASSES = {
    "equal": code("print('to be')", "to be\n"),
    "rounding": code("print(0.12345678, [-0.0], 2.0)", "0.12345679  [0.0]  2.0\n"),
    "last of three decimals": code("0.124", result("0.123")),
    "rounding in HTML": code(shown(text_html="<b>1.00001</b>"), display(text_html="<b>1.00002</b>")),
    "progress on stderr": code("import sys\nprint('50%|##  |', file=sys.stderr)"),
    "stored stderr": code("print(1)", "1\n", stream("UserWarning: old\n", "stderr")),
    "widget": code("from IPython.display import display\ndisplay({'" + WIDGET + "': {}}, raw=True)"),
    "address in memory": code("print('<f at 0x7f0000000000>')", "<f at 0x7fedcba98765>\n"),
    "no notes of a learner": code(
        "import os\nprint(os.listdir(os.path.dirname(os.environ['TFBOOK_PROGRESS'])))", "[]\n"
    ),
    "tagged": code("print('here')", "there\n", metadata=IGNORED),
    "another drawing": code(FIGURE.format(end=2, alt="line", caption="Up."), figure_output("line", "Up.")),
    "another machine": code("from tfbook import runtime\nhere = runtime.setup()", MACHINE + "\n"),
    "varying number": varying("print('0.13 nats, 1,024 of 99 right, -2e-05')", "1.2 nats, 7 of 100 right, 0.3\n"),
    "varying bars": varying("print('right 40% ████')", "right 90% █████████\n"),
    "varying table": varying(FRAME, FRAME_STORED),
    "varying color": varying(
        shown(text_html="<i style='color:#a1b2c3'>1</i>"), display(text_html="<i style='color:#000fff'>2</i>")
    ),
    "varying figure": varying(
        FIGURE.format(end=2, alt="line to 2", caption="Up 3."), figure_output("line to 4", "Up 5.")
    ),
    "offline": code("print('here')", "here\n", metadata=OFFLINE),
    "another number of a claim": code(CLAIM.format(measured=91.5), claim_output("holds", 93.1)),
}
if sys.platform != "win32":  # where ipykernel does not capture what other processes print
    PASSES["output of a child"] = code("import subprocess\n_ = subprocess.run(['echo', 'child'])", "child\n")
FAILS = {
    "word": (code("print('to be')", "not to be\n"), "Cell outputs differ"),
    "float": (code("print(0.13)", "0.12\n"), "Cell outputs differ"),
    "integer": (code("print(10001)", "10002\n"), "Cell outputs differ"),
    "one number more": (code("print(1.5, 2.5)", "1.5\n"), "Cell outputs differ"),
    "result in place of print": (
        code("'a'", "'a'\n"),
        "kinds of output: ['stdout'] are stored, ['text/plain'] came now",
    ),
    "lost image": (code(shown(text_plain="figure"), display(text_plain="figure", image_png="AAAA")), "kinds of output"),
    "new image": (code(shown(text_plain="figure", image_png="AAAA"), display(text_plain="figure")), "kinds of output"),
    "lost output": (code("a = 1", "1\n"), "kinds of output: ['stdout'] are stored, [] came now"),
    "alt text": (code(FIGURE.format(end=2, alt="line", caption="Up."), figure_output("bar", "Up.")), "outputs differ"),
    "caption": (
        code(FIGURE.format(end=2, alt="line", caption="Up."), figure_output("line", "Down.")),
        "outputs differ",
    ),
    "varying word": (varying("print('to be 1')", "not to be 2\n"), "Cell outputs differ"),
    "varying name": (varying("print('int8 1')", "int4 1\n"), "Cell outputs differ"),
    "one varying number more": (varying("print('1.5 2.5')", "1.5\n"), "Cell outputs differ"),
    "not a number": (varying("print(float('nan'))", "0.5\n"), "Cell outputs differ"),
    "varying table with another row": (varying(FRAME, framed({"loss": [0.5], "right": [1.0]})[1]), "outputs differ"),
    "varying table with another column": (varying(FRAME, framed({"loss": [0.5, 2.25]})[1]), "Cell outputs differ"),
    "varying figure without its picture": (
        varying(shown(text_plain="the line", text_html="<figure></figure>"), figure_output("line", "Up.")),
        "Cell outputs differ",
    ),
    "varying figure without its text": (
        varying(FIGURE.format(end=2, alt="", caption="Up."), figure_output("line", "Up.")),
        "Cell outputs differ",
    ),
    "lost varying output": (varying("a = 1", "1\n"), "kinds of output: ['stdout'] are stored, [] came now"),
    "word offline": (code("print('here')", "there\n", metadata=OFFLINE), "Cell outputs differ"),
    "another scale": (
        code("from tfbook import runtime\nhere = runtime.setup()", MACHINE.replace("cpu ·", "gpu ·") + "\n"),
        "Cell outputs differ",
    ),
    "error": (code("1 / 0"), "ZeroDivisionError"),
    "error in a tagged cell": (code("1 / 0", metadata=IGNORED), "ZeroDivisionError"),
    "another verdict of a claim": (code(CLAIM.format(measured=79.9), claim_output("holds", 93.1)), "outputs differ"),
    "out of turn": (code("1", result("1"), execution_count=99), "stored execution count is 99, expected "),
    "never executed": (code("1", execution_count=NEVER), "stored execution count is None, expected "),
    "dead kernel": (code("import os\nos._exit(1)"), "the kernel died"),
}


@dataclass(frozen=True)
class Outcome:
    seconds: float
    message: str  # empty where the cell passed


def run_nbval(folder: Path, **environment: str) -> dict[str, list[Outcome]]:
    """Calls nbval as the Makefile does, on a folder of notebooks; returns the outcomes of each notebook's cells."""
    shutil.copy(ROOT / "notebooks" / "conftest.py", folder)
    options = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=30"]
    options += [f"--nbval-sanitize-with={ROOT}/tests/notebooks/sanitize.cfg"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        *options,
        "-p",
        "no:cacheprovider",
        "--color=no",
        "--junitxml=report.xml",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TFBOOK_SCALE": "cpu", **environment}
    finished = subprocess.run([*command, "."], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    (folder / "stdout.txt").write_text(finished.stdout, encoding="utf-8")
    assert finished.returncode in (0, 1), finished.stdout + finished.stderr
    outcomes = defaultdict(list)
    for test in ElementTree.parse(folder / "report.xml").iter("testcase"):
        message = "".join(f"{node.attrib['message']}\n{node.text}" for node in test)
        outcomes[test.attrib["classname"]].append(Outcome(float(test.attrib["time"]), message))
    return outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """The outcome of each case. All are cells of one notebook, after an empty cell, which Jupyter does not count."""
    folder = tmp_path_factory.mktemp("nbval")
    cases = [*PASSES.values(), *(cell for cell, _ in FAILS.values())]
    save(folder / "cases.ipynb", notebook(code(""), *cases))
    return dict(zip([*PASSES, *FAILS], run_nbval(folder, TFBOOK_OFFLINE="1")["cases.ipynb"], strict=True))


@pytest.mark.parametrize("name", PASSES)
def test_what_did_not_change_passes(outcomes: dict[str, Outcome], name: str) -> None:
    assert outcomes[name].message == ""


@pytest.mark.parametrize("name", FAILS)
def test_what_changed_fails(outcomes: dict[str, Outcome], name: str) -> None:
    assert FAILS[name][1] in outcomes[name].message


def test_a_dead_kernel_is_noticed_within_seconds(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["dead kernel"].seconds < 10


def test_where_corpora_can_be_fetched_some_cells_only_run(tmp_path: Path) -> None:
    """As in `make test-real`: what a cell tagged `offline` shows is that of another corpus."""
    cells = [code("print('here')", "there\n", metadata=tags) for tags in (OFFLINE, {})]
    save(tmp_path / "cases.ipynb", notebook(*cells, code("1 / 0", metadata=OFFLINE)))
    tagged, plain, error = run_nbval(tmp_path, TFBOOK_OFFLINE="")["cases.ipynb"]
    assert tagged.message == ""
    assert "Cell outputs differ" in plain.message
    assert "ZeroDivisionError" in error.message


def test_a_slow_notebook_fails_its_budget(tmp_path: Path) -> None:
    nap = "import time\ntime.sleep({})"
    save(tmp_path / "quick.ipynb", notebook(code("1", result("1"))))
    save(tmp_path / "slow_cell.ipynb", notebook(code(nap.format(2.1))))
    save(tmp_path / "slow.ipynb", notebook(*(code(nap.format(1.1)) for _ in range(4))))
    budgets = {"NB_BUDGET_S": "2", "NB_CELL_BUDGET_S": "1.35"}
    outcomes = run_nbval(tmp_path, NB_SLOWNESS="1", **budgets)  # half as much again is allowed
    messages = {name: [cell.message.strip() for cell in cells] for name, cells in outcomes.items()}
    assert messages["quick.ipynb"] == [""]
    assert "s; NB_CELL_BUDGET_S is 1.35" in messages["slow_cell.ipynb"][0]
    assert [bool(message) for message in messages["slow.ipynb"]] == [False, False, True, False]
    assert "in this cell the notebook passes 1.5 times the 2 s of NB_BUDGET_S" in messages["slow.ipynb"][2]
    report = (tmp_path / "stdout.txt").read_text(encoding="utf-8")
    assert " s, slowest cell " in report
    assert report.count("OVER ITS BUDGET") == 2
    on_a_slow_machine = run_nbval(tmp_path, NB_SLOWNESS="2", **budgets)
    assert not any(cell.message for cells in on_a_slow_machine.values() for cell in cells)


def test_every_rule_of_the_sanitiser_is_read() -> None:
    """nbval drops a rule silently when its second line is malformed."""
    from nbval.plugin import get_sanitize_patterns

    text = (ROOT / "tests" / "notebooks" / "sanitize.cfg").read_text(encoding="utf-8")
    assert len(get_sanitize_patterns(text)) == sum(line.startswith("regex:") for line in text.splitlines())
