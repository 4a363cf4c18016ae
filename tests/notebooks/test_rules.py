"""Each rule is tested: a good lesson passes them all, and the lesson with one thing broken is refused by its rule."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import address
import folding
import nbformat
import pytest
import rules
import tables
import weave
from nbformat import NotebookNode
from PIL import Image
from rules import Lesson, Rule
from samples import IGNORED, VARIES, WIDGET, code, display, mimebundle, notebook, prose, save, stream

from tfbook.course.claims import MIME
from tfbook.course.lessons import LESSONS

NAME = "01_sample.ipynb"
BADGE = address.badge(NAME)
ENDING = "## What to remember\n\n## Common mistakes"
REFERENCES = f"## References\n\n{tables.NEXT}\n\n{tables.next_line(LESSONS, 1)}"
RECORD = {"key": "sample.1", "lesson": "sample", "verdict": "holds"}
TABLE = {MIME: [dict(RECORD)], "text/plain": "1 claim"}


def exercise(number: int, heading: str) -> list[NotebookNode]:
    check = f"def answer_{number}(x):\n    return ...\n\n\nex.answer_{number}.check(answer_{number})"
    return [
        prose(f"### Exercise {number} · {heading} · ★☆☆ · 5 min\n\nWrite it."),
        code(check, "○ not attempted: the function returns nothing yet\n"),
    ]


def prediction(key: str) -> list[NotebookNode]:
    bundle = {"text/html": f"<details>{key}</details>", "text/plain": f"1\n\nIt is {key}."}
    shown = code(f'with study.answer("{key}"):\n    print(1)', mimebundle(bundle))
    return [prose(f"> **Predict** {key}."), shown]


ANSWERS = """from types import SimpleNamespace
answer = SimpleNamespace(explanations={"a": "It is a. It is so.", "b": "It is b.", "c": "It is c."})
"""


def painted(index: int, **options: Any) -> str:
    """A picture of one color of a palette that has 17."""
    file, picture = io.BytesIO(), Image.new("P", (4, 4), index)
    picture.putpalette([255] * 3 * 17)
    picture.save(file, format="PNG", **options)
    return base64.b64encode(file.getvalue()).decode()


PNG = painted(1, transparency=1)


def figure(png: str | None = None, alt: str = "two bars") -> str:
    """As `plot.show` writes it."""
    return f'<figure class="tfbook-figure">\n<img alt="{alt}" src="data:image/png;base64,{png or PNG}"></figure>'


def good() -> NotebookNode:
    """A lesson that keeps every rule."""
    woven = "tfbook.text.bpe.merge"
    book = notebook(
        prose(f"# 01 · Can it pass?\n\n{BADGE}\n\n*Core: 5 minutes · exercises: 25 minutes · runs in a second*"),
        code(weave.SETUP_CELL.read_text(encoding="utf-8").rstrip()),
        code("steps = runtime.pick(quick=1, cpu=2, gpu=3)"),
        prose("## First section\n\n![a cat](../README.md)"),
        code(f"# {woven}\n{weave.source_of(woven)}"),
        code("print(steps)  # (batch, word)", "2\n"),
        code("plot.bars(steps)", display(text_html=figure(), text_plain="two bars")),
        code("study.CLAIMS.check({1: 1})\nstudy.CLAIMS.table()", mimebundle(TABLE)),
        prose("## Exercises"),
        *(cell for number in range(1, 5) for cell in exercise(number, "write it")),
        *exercise(5, "find the bug"),
        prose(ENDING),
        *(cell for key in "abc" for cell in prediction(key)),
        prose("## Going further\n\nThe [first section](#First-section)."),
        prose("### More"),
        prose(REFERENCES),
    )
    book.metadata.colab = deepcopy(rules.COLAB)
    folding.fold(book)
    return book


def complaints(folder: Path, rule: Rule, book: NotebookNode) -> str:
    written = folder / "tfbook" / "lessons" / "sample" / "answers.py"
    written.parent.mkdir(parents=True)
    written.write_text(ANSWERS, encoding="utf-8")
    (folder / "notebooks").mkdir(exist_ok=True)
    path = save(folder / "notebooks" / NAME, book)
    return "\n".join(rule(Lesson(path, nbformat.read(path, as_version=4))))


@pytest.mark.parametrize("rule", rules.RULES)
def test_a_good_lesson_passes(tmp_path: Path, rule: Rule) -> None:
    (tmp_path / "notebooks").mkdir()
    for linked in ("README.md", *(f"notebooks/{lesson.name}.ipynb" for lesson in LESSONS)):
        (tmp_path / linked).touch()
    assert complaints(tmp_path, rule, good()) == ""


Break = Callable[[NotebookNode], object]


def say(text: str) -> Break:
    """Adds a Markdown cell with this text before the end."""
    return lambda book: book.cells.insert(-1, prose(text))


def cell(number: int, **changes: object) -> Break:
    """Changes fields of a cell."""
    return lambda book: book.cells[number].update(changes)


def replace(old: str, new: str) -> Break:
    """Replaces text in the sources of all cells."""
    return lambda book: [each.update(source=each.source.replace(old, new)) for each in book.cells]


def tagged(*tags: str, number: int = 5) -> Break:
    """Gives a cell these tags."""
    return lambda book: book.cells[number].metadata.update(tags=list(tags))


def strip_outputs(book: NotebookNode) -> None:
    for each in book.cells:
        if each.cell_type == "code":
            each.outputs = []


def show(output: NotebookNode) -> Break:
    """Lets cell 5 show another output."""
    return lambda book: book.cells[5].outputs.append(output)


def answer(output: NotebookNode) -> Break:
    """Lets cell 5 be the answer to a prediction."""
    return cell(5, outputs=[output], metadata={"collapsed": True})


BROKEN: list[tuple[Rule, Break, str]] = [
    (rules.begins_with_title_and_badge, replace("# 01", "01"), "begins with the title"),
    (rules.begins_with_title_and_badge, replace("notebooks/01_", "notebooks/02_"), "expected the badge"),
    (rules.begins_with_title_and_badge, replace("github/", "github/some"), "expected the badge"),
    (rules.begins_with_title_and_badge, say("# Another title"), "two titles"),
    (rules.numbers_lessons_as_files_do, replace("# 01 · ", "# 02 · "), "begins with the lesson's number, `# 01 · `"),
    (rules.numbers_lessons_as_files_do, say("lesson [02](03_a.ipynb)"), "the link to 03_a.ipynb is labelled 02"),
    (rules.has_setup_cell, replace("Setup:", "Set up:"), "found it at []"),
    (rules.has_setup_cell, lambda book: book.cells.insert(1, code("1")), "found it at [2]"),
    (rules.has_sizes_cell, replace("runtime.pick(", "dict("), "found 0"),
    (rules.has_woven_cells_in_step, replace("i += 2", "i += 3"), "cell 4: # tfbook.text.bpe.merge"),
    (rules.has_woven_cells_in_step, replace("import sys", "import os"), "cell 1: # @title Setup:"),
    (rules.has_known_metadata, lambda book: book.metadata.pop("colab"), "metadata.colab is {}"),
    (rules.has_known_metadata, lambda book: book.metadata.kernelspec.update(name="my-env"), "is not python3"),
    (rules.has_known_metadata, cell(5, metadata={"tags": ["nbval-skip"]}), "the tag 'nbval-skip' is none of"),
    (
        rules.gives_reasons_for_its_tags,
        tagged("nbval-ignore-output"),
        "cell 5: is not compared; tag it with one reason",
    ),
    (rules.gives_reasons_for_its_tags, tagged("nbval-ignore-output", "time", "trained"), "tag it with one reason"),
    (rules.gives_reasons_for_its_tags, tagged("nbval-ignore-output", "time", "varies"), "so take its tag varies away"),
    (rules.gives_reasons_for_its_tags, tagged("sampled"), "cell 5: has the reason sampled and no tag nbval-ignore"),
    (rules.gives_reasons_for_its_tags, tagged("varies", number=6), "cell 6: is tagged varies and shows no number"),
    (rules.gives_reasons_for_its_tags, tagged("varies", number=4), "cell 4: is tagged varies and shows no number"),
    (rules.gives_reasons_for_its_tags, tagged("nbval-ignore-output", "time", number=4), "cell 4: shows nothing"),
    (rules.is_as_executed, lambda book: book.metadata.update(widgets={}), "would remove"),
    (rules.is_as_executed, cell(5, metadata={"execution": {}}), "would remove"),
    (rules.is_as_executed, show(mimebundle({WIDGET: {}})), "would remove"),
    (rules.is_as_executed, cell(5, metadata={"jupyter": {"source_hidden": True}}), "would remove"),
    (rules.is_as_executed, cell(1, metadata={}), "would remove"),
    (rules.is_as_executed, lambda book: book.metadata.colab.pop("collapsed_sections"), "would remove"),
    (rules.is_as_executed, say("x" * rules.MAX_BYTES), "bytes; at most 1,000,000"),
    (rules.was_run_from_top_to_bottom, cell(5, execution_count=9), "cell 5: the execution count is 9, expected 4"),
    (rules.was_run_from_top_to_bottom, cell(5, execution_count=None), "is None, expected 4"),
    (rules.was_run_from_top_to_bottom, strip_outputs, "no cell has an output"),
    (rules.has_clean_outputs, show(nbformat.v4.new_output("error", ename="KeyError")), "shows the error KeyError"),
    (rules.has_clean_outputs, show(stream("UserWarning: old", "stderr")), "writes to stderr: 'UserWarning: old'"),
    (rules.has_clean_outputs, show(stream("FutureWarning: soon")), "cell 5: shows a warning"),
    (rules.names_no_local_path, show(stream("saved to /home/ada/x.pt")), "cell 5: names a path of one machine, /home/"),
    (rules.names_no_local_path, show(display(text_html="<i>C:\\Users\\ada</i>")), "C:\\Users"),
    (rules.names_no_local_path, cell(5, source="open('/tmp/x')"), "/tmp/x"),
    (rules.describes_its_images, show(display(image_png="")), "cell 5: the figure has no alt text"),
    (rules.describes_its_images, show(display(text_html=figure(alt=""))), "cell 5: the figure has no alt text"),
    (rules.describes_its_images, say("![](cat.png)"), "an image has no alt text"),
    (rules.describes_its_images, show(display(text_html="<figcaption>The *same*</figcaption>")), "its mark '*same*'"),
    (rules.has_sound_figures, show(display(image_png=painted(1))), "cell 5: the corners of its figure"),
    (rules.has_sound_figures, show(display(text_html=figure(painted(1)))), "cell 5: the corners of its figure"),
    (rules.has_sound_figures, show(display(text_html=figure(painted(17)))), "paints color 17, and its palette has 17"),
    (
        rules.shows_other_lessons_as_they_are,
        lambda book: book.cells.insert(-1, code("progress.print_course()", "I · Attention\n\nRest\n")),
        "shows other lessons as they were; run",
    ),
    (rules.describes_its_images, say('<img src="cat.png" alt="">'), "an <img> has no alt text"),
    (rules.shows_its_claims, cell(7, outputs=[]), "cell 7: its table shows no claim"),
    (rules.says_what_is_stored, cell(5, source='plot.show(stored("a.b").frame, "a line")'), "cell 5: draws stored"),
    (rules.numbers_its_claims_in_order, show(mimebundle({MIME: [RECORD | {"key": "sample.2"}]})), "order [2, 1]"),
    (rules.has_tables_of_claims, cell(7, source="study.CLAIMS.check({1: 1})"), "cell 7: measures claims; end the"),
    (rules.has_tables_of_claims, lambda book: book.cells.append(code("study.CLAIMS.check({1: 1})")), "measures claims"),
    (rules.shows_its_claims, cell(7, metadata=IGNORED), "cell that is not compared strictly"),
    (rules.shows_its_claims, cell(7, metadata=VARIES), "cell that is not compared strictly"),
    (rules.shows_its_claims, show(mimebundle({MIME: [RECORD | {"verdict": "not enforced"}]})), "is not enforced"),
    (rules.shows_its_claims, show(mimebundle({MIME: [RECORD]})), "used twice"),
    (
        rules.shows_its_claims,
        show(mimebundle({MIME: [RECORD | {"key": "other.1", "lesson": "other"}]})),
        "another lesson's",
    ),
    (rules.has_short_paragraphs, say("word " * 130), "649 characters in the paragraph"),
    (rules.has_short_paragraphs, say("> " + "word " * 130), "characters in the paragraph"),
    (rules.avoids_forbidden_words, say("It is easy to see."), "says 'It is easy to see'"),
    (rules.avoids_forbidden_words, cell(5, source="1  # Simply one"), "says 'Simply'"),
    (rules.has_links_that_resolve, say("[lost](../lost.md)"), "links to ../lost.md, which does not exist"),
    (rules.has_links_that_resolve, say("[lost](#Lost)"), "links to #Lost, but 01_sample.ipynb has no such heading"),
    (rules.asks_for_predictions, replace("> **Predict** c", "> Predict c"), "2 quoted boxes"),
    (rules.answers_its_predictions, replace("Predict** a.", "Predict** a.\n\nThen."), "a Predict box ends its cell"),
    (rules.answers_its_predictions, replace("> **Predict** b", "> **Predict** b\n\n> **Predict** d"), "box ends its"),
    (
        rules.answers_its_predictions,
        replace('with study.answer("a")', "if True"),
        "expected its answer in the next cell",
    ),
    (rules.answers_its_predictions, say("> **Predict** d."), "expected its answer in the next cell"),
    (rules.answers_its_predictions, replace('answer("a")', 'answer("b")'), "'b' is used 2 times and has 1 texts"),
    (rules.answers_its_predictions, replace('answer("a")', 'answer("d")'), "'d' is used 1 times and has 0 texts"),
    (rules.answers_its_predictions, replace('answer("a")', 'answer("d")'), "'a' is used 0 times and has 1 texts"),
    (rules.answers_its_predictions, replace("> **Predict** b", "It is a. > **Predict** b"), "repeats the answer 'a'"),
    (rules.ends_with_summary, replace("## Common mistakes", "## Mistakes"), "must include What to remember, Common"),
    (rules.ends_with_summary, say("## References\n\n## More"), "must include"),
    (rules.has_short_cells, cell(5, source="x = 1\n" * 26), "cell 5: 27 lines; at most 25"),
    (rules.has_short_cells, cell(5, source=""), "cell 5: is empty"),
    (rules.has_code_laid_out, cell(5, source="x  =  1"), "cell 5: its code is laid out differently by `make tidy`"),
    (rules.keeps_its_answers, answer(stream("\n1.5 times as long\n")), "shows '1.5 times as long' while collapsed"),
    (rules.keeps_its_answers, answer(display(text_html="<b>longer</b>")), "shows '<b>longer</b>' while collapsed"),
    (rules.states_its_minutes, replace("Core: 5 ", "Core: 50 "), "says (50, 25) minutes of core and exercises; run"),
    (rules.has_narrow_code, cell(5, source="x" * 96), "cell 5: 96 characters in 'xxxx"),
    (rules.has_narrow_code, replace("i += 2", "i += 2" + 90 * " "), "; shorten it in the package"),
    (
        rules.can_collapse_going_further,
        replace("### More", "Text\n\n### More"),
        "a cell with the heading ### More",
    ),
    (rules.can_collapse_going_further, say("Text\n\n## References"), "a cell with the heading ## References"),
    (rules.leads_to_the_next_lesson, replace("02_", "03_"), "expected <!-- next --> at its end; then run"),
    (rules.has_honest_code, cell(5, source="warnings.filterwarnings('ignore')"), "silences warnings"),
    (rules.has_honest_code, cell(5, source="# print(x)\nx"), "commented out: print(x)"),
    (rules.has_honest_code, cell(5, source="if x:\n    # for y in x:\n    pass"), "commented out: for y in x:"),
    (rules.numbers_its_sections, say("## 1. One\n\n## 3. Three"), "its sections are numbered [1, 3]"),
    (rules.numbers_its_sections, say("## 1. One\n\nAs in Section 2."), "names Section 2, and the sections are [1]"),
    (rules.numbers_its_sections, say("## 1. One\n\nSections 1 and 2 say why."), "names Sections 1 and 2, and the"),
    (rules.numbers_its_sections, cell(5, source="1  # section 4"), "cell 5: names section 4, and the sections are []"),
    (rules.has_exercises, replace("Exercise 2", "Exercise 3"), "numbered in order"),
    (rules.has_exercises, replace("Exercise 5", "Task 5"), "found 4"),
    (rules.has_exercises, replace("find the bug", "a bug"), "no exercise is headed"),
    (rules.has_exercises, replace("★☆☆", "easy"), "lacks stars or minutes"),
    (rules.has_exercises, replace("5 min", "short"), "lacks stars or minutes"),
    (rules.has_exercises, replace("ex.answer_2.check", "print"), "cell 11: no cell checks"),
    (rules.has_blank_stubs, cell(10, outputs=[stream("✓ correct")]), "says '✓ correct', expected not attempted"),
    (rules.has_blank_stubs, cell(5, source="ex.answer_2.solution()"), "gives the solution away"),
    (
        rules.hides_its_solutions,
        cell(5, source="def answer_2(x):\n    return 2 * x"),
        "ex.answer_2 stands open above it",
    ),
    (rules.hides_its_solutions, say("### Exercise 6\nWrite it from memory."), "'from memory' says that a solution"),
]


@pytest.mark.parametrize(("rule", "damage", "message"), BROKEN, ids=[f"{b[0].__name__}-{b[2]}" for b in BROKEN])
def test_a_broken_lesson_is_refused(tmp_path: Path, rule: Rule, damage: Break, message: str) -> None:
    book = good()
    damage(book)
    assert message in complaints(tmp_path, rule, book)


@pytest.mark.parametrize(
    ("code_above", "complaint"),
    [
        ("def general(q, K, W):\n    return q @ W @ K.mT", "the solution of ex.general_score stands open above it"),
        ("class Score:\n    def forward(self, q, K, W):\n        return q @ W @ K.mT", "ex.general_score stands open"),
        ("def general(q, K, W):\n    return q @ W.mT @ K.mT", ""),
        ("%time\ndef general(q, K, W):\n    return q @ W @ K.mT", ""),
    ],
)
def test_a_solution_in_other_names_is_known(tmp_path: Path, code_above: str, complaint: str) -> None:
    stub = "def general_score(query, keys, W):\n    return ...\n\n\nex.general_score.check(general_score)"
    path = tmp_path / "02_scoring_functions.ipynb"
    for cells, expected in (
        ([code(code_above), code(stub)], complaint),
        ([code(stub), code(code_above)], ""),
        ([code(code_above, metadata={"jupyter": {"source_hidden": True}}), code(stub)], ""),
    ):
        found = "".join(rules.hides_its_solutions(Lesson(path, notebook(*cells))))
        assert expected in found
        assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    "tags", [(), ("varies",), ("offline",), ("offline", "varies"), ("nbval-ignore-output", "time")]
)
def test_tags_that_say_why_are_accepted(tmp_path: Path, tags: tuple[str, ...]) -> None:
    book = good()
    tagged(*tags)(book)
    assert complaints(tmp_path, rules.gives_reasons_for_its_tags, book) == ""


def test_every_rule_has_been_broken() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(rules.RULES)


@pytest.mark.parametrize(
    "output",
    [
        stream("Scores:\n1.5\n"),
        display(text_html="<table>\n<td>1.5</td>", text_plain="1.5"),
        display(image_png="", text_plain="<Image object>"),
        display(image_png=""),
    ],
    ids=["a heading", "a table", "a figure with text", "a figure"],
)
def test_an_answer_that_stays_hidden_is_accepted(tmp_path: Path, output: NotebookNode) -> None:
    book = good()
    answer(output)(book)
    assert complaints(tmp_path, rules.keeps_its_answers, book) == ""


@pytest.mark.parametrize("comment", ["(batch, word)", "weights", "Shapes: batch", "the sum of x", "e = vᵀ tanh(Ws)"])
def test_a_comment_in_words_is_no_code(comment: str) -> None:
    assert not rules.is_code(comment)


def test_anchors_follow_github_in_markdown_and_jupyter_in_notebooks(tmp_path: Path) -> None:
    readme, path = tmp_path / "README.md", tmp_path / NAME
    readme.write_text("# What's new?\n\n## Two words\n", encoding="utf-8")
    save(path, notebook(prose("# What's new?")))
    assert rules.anchors(readme, Lesson(path, notebook())) == {"whats-new", "two-words"}
    assert rules.anchors(path, Lesson(readme, notebook())) == {"What's-new?"}
