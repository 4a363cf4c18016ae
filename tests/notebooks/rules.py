"""What every notebook must be like: each rule yields a complaint for each place that breaks it.

A rule is a function of a `Lesson`, and `RULES` are all of them.
"""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

import address
import book
import folding
import layout
import measure
import nbformat
import others
import tables
import weave
from nbformat import NotebookNode
from output_rules import (
    describes_its_images,
    has_sound_figures,
    has_tables_of_claims,
    numbers_its_claims_in_order,
    says_what_is_stored,
    shows_its_claims,
)
from prediction_rules import KEY, answers_its_predictions, asks_for_predictions
from solutions import hides_its_solutions

import notebooks
from tfbook.course.attempts import MARKS
from tfbook.course.lessons import LESSONS

MAX_BYTES = 1_000_000
MAX_PARAGRAPH = 600  # characters: about five lines
MAX_LINES = 25  # of code in a cell
EXERCISES = 5
IGNORED, VARIES, OFFLINE = "nbval-ignore-output", "varies", "offline"  # tags that notebooks/conftest.py reads
REASONS = {  # why nothing of an output can be compared: each cell that is ignored has one of these tags
    "trained": "its words follow from a training in the lesson: what the model chooses, which one is best, an order",
    "sampled": "what a model writes, or another random draw that differs between machines",
    "time": "its words follow from the speed or the memory of the machine",
    "corpus": "shows data or weights that were fetched",
}
TAGS = {IGNORED, VARIES, OFFLINE, *REASONS}
MAX_IGNORED = 0.15  # share of all code cells
COLAB = {"provenance": [], "toc_visible": True}
ENDING = ["What to remember", "Common mistakes", "References"]

FORBIDDEN = re.compile(r"\b(simply|just|obviously|(?:it is|it's) easy to see)\b", re.IGNORECASE)
HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
EXERCISE = re.compile(r"Exercise (\d+)\b")
SECTION = re.compile(r"(\d+)\. ")  # a numbered heading
SECTIONS = re.compile(r"\b[Ss]ections? (\d+(?:(?:, | to | and |, and )\d+)*)\b(?!\.\d)")  # not a paper's, "Section 4.3"
PIXELS = re.compile(r'"data:image/png;base64,[^"]*"')
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|!?\[[^\]]*\]\([^)]*\))*\]\(([^)\s]+)[^)]*\)")
LOCAL_PATH = re.compile(
    r"(?<![\w.:/~-])/(?:home|root|Users|tmp|private|var|opt|mnt|work|content)/\S+|\b[A-Z]:\\Users\\"
)
WARNING = re.compile(r"\b\w*Warning:")
PREVIEWED = ("text/html", "image/svg+xml", "application/pdf", "text/markdown", "text/plain", "text")
SILENCED = re.compile(r"warnings\.(?:filterwarnings|simplefilter)")


@dataclass(frozen=True)
class Lesson:
    """A notebook with its place."""

    path: Path
    notebook: NotebookNode

    @cached_property
    def code(self) -> list[tuple[int, NotebookNode]]:
        """The code cells with their positions in the notebook."""
        return [(number, cell) for number, cell in enumerate(self.notebook.cells) if cell.cell_type == "code"]

    @cached_property
    def answers(self) -> dict[str, str]:
        """The texts that explain the answers to its predictions, by key."""
        path = self.path.parents[1] / "tfbook" / "lessons" / self.path.stem[3:] / "answers.py"
        return runpy.run_path(str(path))["answer"].explanations if path.exists() else {}

    @cached_property
    def prose(self) -> list[tuple[int, str]]:
        """The texts of the Markdown cells and of the answers, without fenced code, with their positions."""
        texts = [
            (number, cell.source) for number, cell in enumerate(self.notebook.cells) if cell.cell_type == "markdown"
        ]
        answers = [
            (number, self.answers.get(key, "")) for number, cell in self.code for key in KEY.findall(cell.source)
        ]
        return [
            (number, re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
            for number, text in sorted(texts + answers)
        ]

    @cached_property
    def outputs(self) -> list[tuple[int, NotebookNode]]:
        """The outputs with the positions of their cells."""
        return [(number, output) for number, cell in self.code for output in cell.outputs]

    @cached_property
    def headings(self) -> list[tuple[int, str, str]]:
        """Position of the cell, marks such as "##", and text."""
        return [(number, *heading) for number, text in self.prose for heading in HEADING.findall(text)]


Rule = Callable[[Lesson], Iterator[str]]


# ---- beginning and metadata --------------------------------------------------------------------------------------


def begins_with_title_and_badge(lesson: Lesson) -> Iterator[str]:
    first = lesson.notebook.cells[0]
    if first.cell_type != "markdown" or not re.match(r"# \S", first.source):
        yield "cell 0: expected a Markdown cell that begins with the title, `# …`"
    badge = address.badge(lesson.path.name)
    if badge not in first.source:
        yield f"cell 0: expected the badge {badge}"
    if sum(marks == "#" for _, marks, _ in lesson.headings) > 1:
        yield "there are two titles `# …`; sections are `## …`"


def numbers_lessons_as_files_do(lesson: Lesson) -> Iterator[str]:
    """In the title, and where the label of a link is a number; `tools/renumber.py` changes both."""
    if not lesson.notebook.cells[0].source.startswith(f"# {lesson.path.name[:2]} · "):
        yield f"cell 0: expected a title that begins with the lesson's number, `# {lesson.path.name[:2]} · `"
    for number, text in lesson.prose:
        for label, target in re.findall(r"\[(\d\d)\]\((\d\d_\w+\.ipynb)", text):
            if label != target[:2]:
                yield f"cell {number}: the link to {target} is labelled {label}"


def has_setup_cell(lesson: Lesson) -> Iterator[str]:
    numbers = [number for number, cell in lesson.code if book.first_line(cell).startswith(book.SETUP)]
    if numbers != [number for number, _ in lesson.code][:1]:
        yield f"expected one setup cell, as the first code cell; found it at {numbers}"


def has_sizes_cell(lesson: Lesson) -> Iterator[str]:
    count = sum("runtime.pick(" in cell.source for _, cell in lesson.code)
    if count != 1:
        yield f"expected one cell that picks the sizes with `runtime.pick(`; found {count}"


def states_its_minutes(lesson: Lesson) -> Iterator[str]:
    """Under the title, for core and exercises, as `tools/measure.py` counts them."""
    stated, measured = measure.stated_minutes(lesson.notebook), measure.minutes_to_state(lesson.notebook)
    if stated != measured:
        yield f"cell 0: says {stated} minutes of core and exercises; run `python tools/measure.py --write`: {measured}"


def has_woven_cells_in_step(lesson: Lesson) -> Iterator[str]:
    for changed in weave.weave(deepcopy(lesson.notebook)):
        yield f"{changed}: differs from its source; run `make weave`"


def has_known_metadata(lesson: Lesson) -> Iterator[str]:
    """Apart from what is collapsed, which `is_as_executed` compares."""
    metadata = lesson.notebook.metadata
    colab = {name: value for name, value in metadata.get("colab", {}).items() if name != "collapsed_sections"}
    if colab != COLAB:
        yield f"metadata.colab is {colab}; expected {COLAB}"
    if metadata.get("kernelspec", {}).get("name") != "python3":
        yield "metadata.kernelspec.name is not python3"
    for number, cell in enumerate(lesson.notebook.cells):
        for tag in set(cell.metadata.get("tags", ())) - TAGS:
            yield f"cell {number}: the tag {tag!r} is none of {', '.join(sorted(TAGS))}"


def gives_reasons_for_its_tags(lesson: Lesson) -> Iterator[str]:
    """A cell is compared, compared but for its numbers, or not compared for one known reason (CONTRIBUTING.md)."""
    for number, cell in lesson.code:
        tags = set(cell.metadata.get("tags", ()))
        reasons = tags & set(REASONS)
        if IGNORED in tags and len(reasons) != 1:
            yield f"cell {number}: is not compared; tag it with one reason out of {', '.join(REASONS)}"
        if IGNORED in tags and tags & {VARIES, OFFLINE}:
            yield f"cell {number}: is not compared, so take its tag {min(tags & {VARIES, OFFLINE})} away"
        if IGNORED not in tags and reasons:
            yield f"cell {number}: has the reason {min(reasons)} and no tag {IGNORED}"
        plain = "".join(
            output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in cell.outputs
        )
        if VARIES in tags and not re.search(r"\d|█|^<", plain):  # "<IPython.core.display.HTML object>" has a page alone
            yield f"cell {number}: is tagged {VARIES} and shows no number; compare it"
        if IGNORED in tags and not cell.outputs:
            yield f"cell {number}: shows nothing; compare it"


def is_as_executed(lesson: Lesson) -> Iterator[str]:
    """Byte for byte as tools/notebooks.py writes it: folded, without widget state, timings, versions, progress bars."""
    cleaned = deepcopy(lesson.notebook)
    notebooks.normalize(cleaned)
    if cleaned != lesson.notebook or lesson.path.read_text(encoding="utf-8") != nbformat.writes(cleaned) + "\n":
        yield "the file holds what `make notebooks` and `make tidy` would remove or write differently"
    if (size := lesson.path.stat().st_size) > MAX_BYTES:
        yield f"the file has {size:,} bytes; at most {MAX_BYTES:,} are allowed"


# ---- outputs -----------------------------------------------------------------------------------------------------


def was_run_from_top_to_bottom(lesson: Lesson) -> Iterator[str]:
    for turn, (number, cell) in enumerate(lesson.code, start=1):
        if cell.execution_count != turn:
            yield f"cell {number}: the execution count is {cell.execution_count}, expected {turn}"
    if not lesson.outputs:
        yield "no cell has an output"


def has_clean_outputs(lesson: Lesson) -> Iterator[str]:
    for number, output in lesson.outputs:
        if output.output_type == "error":
            yield f"cell {number}: shows the error {output.ename}"
        elif output.get("name") == "stderr":
            yield f"cell {number}: writes to stderr: {output.text[:80]!r}"
        elif WARNING.search(text_of(output)):
            yield f"cell {number}: shows a warning"


def shows_other_lessons_as_they_are(lesson: Lesson) -> Iterator[str]:
    """The map of the course counts everybody's exercises, and lesson 08 searches everybody's text."""
    now = others.renewed(lesson.notebook, lesson.path.parent)
    for number, (cell, renewed) in enumerate(zip(lesson.notebook.cells, now.cells, strict=True)):
        if cell != renewed:
            yield f"cell {number}: shows other lessons as they were; run `python tools/others.py`"


def names_no_local_path(lesson: Lesson) -> Iterator[str]:
    texts = [(number, cell.source) for number, cell in enumerate(lesson.notebook.cells)]
    for number, text in [*texts, *((number, text_of(output)) for number, output in lesson.outputs)]:
        for path in LOCAL_PATH.finditer(text):
            yield f"cell {number}: names a path of one machine, {path[0]}"


def text_of(output: NotebookNode) -> str:
    """All that an output says in text, whatever its kind."""
    data = output.get("data", {})
    texts = [output.get("text", ""), *(data[mime] for mime in data if mime.startswith("text/"))]
    return PIXELS.sub('""', "\n".join(texts))


# ---- prose -------------------------------------------------------------------------------------------------------


def has_short_paragraphs(lesson: Lesson) -> Iterator[str]:
    for number, text in lesson.prose:
        for block in re.split(r"\n\s*\n", re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)):
            visible = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block).strip()
            if not re.match(r"[|#<]|[-*+] |\d+\. ", visible) and len(visible) > MAX_PARAGRAPH:
                yield f"cell {number}: {len(visible)} characters in the paragraph {visible[:40]!r}; split it"


def avoids_forbidden_words(lesson: Lesson) -> Iterator[str]:
    own_code = [(number, cell.source) for number, cell in lesson.code if not book.is_woven(cell)]
    for number, text in [*lesson.prose, *own_code]:
        for word in FORBIDDEN.findall(text):
            yield f"cell {number}: says {word!r}"


def has_links_that_resolve(lesson: Lesson) -> Iterator[str]:
    for number, text in lesson.prose:
        for target in LINK.findall(text):
            file, _, anchor = unquote(target).partition("#")
            path = (lesson.path.parent / file) if file else lesson.path
            if re.match(r"https?:|mailto:", target):
                continue
            if not path.exists():
                yield f"cell {number}: links to {target}, which does not exist"
            elif anchor and anchor not in anchors(path, lesson):
                yield f"cell {number}: links to {target}, but {path.name} has no such heading"


def anchors(path: Path, lesson: Lesson) -> set[str]:
    """The anchors of headings: Jupyter's in a notebook, GitHub's in Markdown, which drops punctuation and capitals."""
    if path.suffix == ".ipynb":
        target = lesson if path == lesson.path else Lesson(path, nbformat.read(path, as_version=4))
        return {text.replace(" ", "-") for _, _, text in target.headings}
    headings = [text for _, text in HEADING.findall(path.read_text(encoding="utf-8"))]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def ends_with_summary(lesson: Lesson) -> Iterator[str]:
    sections = [text for _, marks, text in lesson.headings if marks == "##"]
    if [text for text in sections if text in ENDING] != ENDING or sections[-1:] != ENDING[-1:]:
        yield f"the last sections must include {', '.join(ENDING)}, in this order; found {', '.join(sections[-4:])}"


def can_collapse_going_further(lesson: Lesson) -> Iterator[str]:
    """A collapsed heading hides the cells that follow, so each section of it, and the next one, begins a cell."""
    inside = False
    for number, marks, text in lesson.headings:
        was_inside = inside
        if marks == "##":
            inside = text == folding.FURTHER
        begins = lesson.notebook.cells[number].source.startswith(f"{marks} {text}")
        if (inside or was_inside) and marks in ("##", "###") and not begins:
            yield f"cell {number}: begin a cell with the heading {marks} {text}"


def leads_to_the_next_lesson(lesson: Lesson) -> Iterator[str]:
    expected = f"{tables.NEXT}\n\n{tables.next_line(LESSONS, int(lesson.path.name[:2]))}"
    if not lesson.notebook.cells[-1].source.endswith(expected):
        yield f"the last cell: expected {tables.NEXT} at its end; then run `python tools/tables.py`"


# ---- code and exercises ------------------------------------------------------------------------------------------


def has_short_cells(lesson: Lesson) -> Iterator[str]:
    """Where the source is shown: a collapsed cell may be long."""
    for number, cell in lesson.code:
        lines = cell.source.count("\n") + 1
        if not cell.source.strip():
            yield f"cell {number}: is empty"
        if lines > MAX_LINES and not folding.title(cell):
            yield f"cell {number}: {lines} lines; at most {MAX_LINES}"


def has_code_laid_out(lesson: Lesson) -> Iterator[str]:
    copy = deepcopy(lesson.notebook)
    layout.lay_out(copy)
    for number, (cell, laid_out) in enumerate(zip(lesson.notebook.cells, copy.cells, strict=True)):
        if cell.source != laid_out.source:
            yield f"cell {number}: its code is laid out differently by `make tidy`"


def keeps_its_answers(lesson: Lesson) -> Iterator[str]:
    """JupyterLab shows the first line of a collapsed output, tags included: it must not give the answer away."""
    for number, cell in lesson.code:
        line = preview(cell.outputs[0]) if cell.metadata.get("collapsed") else ""
        if re.sub(r"<[^>]*>", "", line).strip() and not line.endswith(":"):
            yield f"cell {number}: shows {line[:40]!r} while collapsed; begin with a line such as 'Scores:' or a table"


def preview(output: NotebookNode) -> str:
    """What JupyterLab shows of the first output of a cell in place of all of them."""
    data = output.get("data", {"text": output.get("text", "")})
    text = next((data[kind] for kind in PREVIEWED if kind in data), "")
    return next(filter(None, text.split("\n")), "")


def has_narrow_code(lesson: Lesson) -> Iterator[str]:
    """No line scrolls sideways in a window of 1,280 pixels."""
    for number, cell in lesson.code:
        where = " in the package" if book.is_woven(cell) else ""
        for line in cell.source.split("\n"):
            if len(line) > book.COLUMNS:
                yield f"cell {number}: {len(line)} characters in {line.strip()[:40]!r}; shorten it{where}"


def has_honest_code(lesson: Lesson) -> Iterator[str]:
    for number, cell in lesson.code:
        if SILENCED.search(cell.source):
            yield f"cell {number}: silences warnings; mend their cause"
        for comment in re.findall(r"^ *# ?(.*)$", cell.source, re.MULTILINE):
            if is_code(comment):
                yield f"cell {number}: holds code that is commented out: {comment}"


def is_code(comment: str) -> bool:
    """Whether a comment reads as a statement of Python. A name, a shape or `word: word` may well be a comment."""
    try:
        statements = ast.parse(comment.strip()).body
    except SyntaxError:
        return comment.rstrip().endswith(":") and is_code(comment + " pass")
    values = (statement.value if isinstance(statement, ast.Expr) else statement for statement in statements)
    return any(isinstance(value, ast.Call | ast.stmt) and not isinstance(value, ast.AnnAssign) for value in values)


def numbers_its_sections(lesson: Lesson) -> Iterator[str]:
    """Numbered sections run 1, 2, 3, … without a gap, and those that the lesson names exist."""
    found = [int(SECTION.match(text)[1]) for _, marks, text in lesson.headings if marks == "##" and SECTION.match(text)]
    if found != list(range(1, len(found) + 1)):
        yield f"its sections are numbered {found}; expected 1, 2, 3, … without a gap"
    for number, cell in enumerate(lesson.notebook.cells):
        for named in SECTIONS.finditer(cell.source.partition("## References")[0]):
            if not {int(each) for each in re.findall(r"\d+", named[1])} <= set(found):
                yield f"cell {number}: names {named[0]}, and the sections are {found}"


def has_exercises(lesson: Lesson) -> Iterator[str]:
    """Numbered headings with stars and minutes, each followed by a check that says "not attempted"."""
    found = [(number, text) for number, _, text in lesson.headings if EXERCISE.match(text)]
    if [int(EXERCISE.match(text)[1]) for _, text in found] != list(range(1, len(found) + 1)) or len(found) < EXERCISES:
        yield f"expected at least {EXERCISES} headings `Exercise 1 …`, numbered in order; found {len(found)}"
    if not any("find the bug" in text.lower() for _, text in found):
        yield 'no exercise is headed "Find the bug"'
    starts = [number for number, _ in found] + [len(lesson.notebook.cells)]
    for (start, text), end in zip(found, starts[1:], strict=True):
        if "★" not in text or not re.search(r"\d min", text):
            yield f"cell {start}: the heading {text!r} lacks stars or minutes"
        if not any(".check(" in cell.source for number, cell in lesson.code if start < number < end):
            yield f"cell {start}: no cell checks {text!r}"


def has_blank_stubs(lesson: Lesson) -> Iterator[str]:
    """Their checks say that nobody has tried, or that the given code still has its bug."""
    blank = [f"{MARKS[status]} {status}" for status in ("not attempted", "not yet")]
    for number, cell in lesson.code:
        shown = "".join(text_of(output) for output in cell.outputs)
        if re.search(r"(?<!CLAIMS)\.check\(", cell.source) and not any(status in shown for status in blank):
            yield f"cell {number}: the check of a blank stub says {shown.strip()!r}, expected not attempted"
        if ".solution(" in cell.source:
            yield f"cell {number}: gives the solution away"


RULES: tuple[Rule, ...] = (
    begins_with_title_and_badge,
    numbers_lessons_as_files_do,
    has_setup_cell,
    has_woven_cells_in_step,
    has_known_metadata,
    gives_reasons_for_its_tags,
    is_as_executed,
    was_run_from_top_to_bottom,
    has_clean_outputs,
    names_no_local_path,
    describes_its_images,
    has_sound_figures,
    shows_other_lessons_as_they_are,
    shows_its_claims,
    has_tables_of_claims,
    numbers_its_claims_in_order,
    says_what_is_stored,
    has_short_paragraphs,
    avoids_forbidden_words,
    has_links_that_resolve,
    has_short_cells,
    has_code_laid_out,
    has_honest_code,
    can_collapse_going_further,
    states_its_minutes,
    keeps_its_answers,
    has_narrow_code,
    leads_to_the_next_lesson,
    has_sizes_cell,
    asks_for_predictions,
    answers_its_predictions,
    ends_with_summary,
    numbers_its_sections,
    has_exercises,
    has_blank_stubs,
    hides_its_solutions,
)
