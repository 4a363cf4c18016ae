"""Writes the slides of a lesson: its headings, figures, formulas and predictions, from the executed notebook.

    python tools/slides.py 01 02             into slides/, with reveal.js beside them
    python tools/slides.py 01 --out FOLDER   into another folder
    python tools/slides.py 01 --cdn          link reveal.js from unpkg.com instead of bringing it along

A section is a column of slides, and answers come one slide below their predictions. The lesson's prose goes into the
speaker's notes (press S). reveal.js is fetched once, verified and kept in TFBOOK_DATA; formulas are MathML, so that the
slides need no network.
"""

from __future__ import annotations

import argparse
import html
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import nbformat
from book import SETUP, lessons, read
from folding import title
from nbformat import NotebookNode

from tfbook import files
from tfbook.course.formulas import markdown_with_formulas
from tfbook.data.download import DataUnavailable, File, fetch

VERSION = "4.6.1"
REVEAL = File(
    path=f"slides/reveal.js-{VERSION}.tgz",
    urls=(f"https://registry.npmjs.org/reveal.js/-/reveal.js-{VERSION}.tgz",),
    sha256="4f4121ef2b8e7e9398bdecd7b3b6ce5e0ee3a2f5af221708eb6c4ce03bcae6be",
)
NEEDED = re.compile(
    r"package/(LICENSE|dist/reveal\.(?:css|js)|dist/theme/(?:white\.css|fonts/source-sans-pro/.*)|plugin/notes/.*)"
)
CDN = f"https://unpkg.com/reveal.js@{VERSION}"

MOST_LINES = 10  # of code, or of printed text, on a slide
MOST_ROWS = 12  # of a table
MOST_BLOCKS = 4  # a heading, a sentence, and what belongs to them
ENDS = ("## Exercises", "## Common mistakes", "## Going further", "## References")
FIGURE = 'class="tfbook-figure'
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z*])")
EXPLANATION = re.compile(r'<div class="tfbook-explanation">.*?</div>', re.DOTALL)
ANSWER = re.compile(r'<details class="tfbook-answer">.*?</summary>(.*)</details>', re.DOTALL)
TEMPLATE = """{%- extends 'reveal/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_css -%}<style>
.reveal .slides section { text-align: left; max-height: 690px; overflow-y: auto; font-size: 22px;
  scrollbar-width: none }
.reveal .slides :is(h1, h2, h3) { text-transform: none; letter-spacing: normal; margin: 0 0 12px; font-size: 26px }
.reveal .slides h1 { font-size: 46px } .reveal .slides h2 { font-size: 36px }
.reveal .slides .where { color: #59616b; font-size: 16px; margin: 0 0 8px }
.reveal .slides figure { margin: 0 } .reveal .slides figcaption { font-size: 17px; margin: 0 }
.reveal .slides img { max-width: 100%; max-height: 430px; width: auto; height: auto; margin: 0 }
.reveal .slides blockquote { width: auto; margin: 40px 0; padding: 16px 24px; font-size: 30px; font-style: normal;
  background: #eef4fb; border-left: 6px solid #3f90da; box-shadow: none }
.reveal .slides pre { width: auto; box-shadow: none; white-space: pre-wrap }
.reveal .slides :is(pre, pre code) { font-size: 15px !important } .reveal .slides pre code { white-space: pre }
.reveal .slides math[display="block"] { margin: 24px 0; font-size: 25px }
.reveal .slides table { font-size: 18px } .jp-OutputPrompt, .jp-InputPrompt { display: none !important }
</style>{%- endblock -%}
{%- block footer_js -%}
<script src="{{ resources.reveal.url_prefix }}/dist/reveal.js"></script>
<script src="{{ resources.reveal.url_prefix }}/plugin/notes/notes.js"></script>
<script>Reveal.initialize({ hash: true, slideNumber: true, width: 960, height: 700, center: false,
  transition: "none", plugins: [RevealNotes], keyboardCondition: event =>
  !event || !event.target.closest || !event.target.closest("[data-view], input, select, button, textarea") })</script>
{%- endblock -%}"""


@dataclass
class Slide:
    """A slide: what it shows, as HTML, and what the speaker reads."""

    where: str  # the section that it belongs to
    shown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    begins: bool = False  # a new column
    is_open: bool = False  # has room for one figure


def slides(notebook: NotebookNode) -> list[Slide]:
    """The slides of a lesson's core, in the order of the page."""
    found: list[Slide] = []
    for cell in core(notebook):
        if cell.cell_type == "markdown":
            add_text(found, cell.source)
        elif shows(cell):
            for slide in of_code(cell):
                add_output(found, slide)
    return found


def add_output(found: list[Slide], slide: Slide) -> None:
    """Puts a figure below a heading that has room for it; all else gets a slide of its own."""
    last = found[-1]
    if last.is_open and len(last.shown) < 3 and FIGURE in slide.shown[0] and not slide.notes:
        last.shown += slide.shown
        last.is_open = False
    else:
        found.append(replace(slide, where=last.where))


def core(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """The cells up to the exercises at the end, and the section that says what to remember."""
    left_out = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (heading := re.match(r"## .*", cell.source)):
            left_out = heading[0].startswith(ENDS)
        if not left_out:
            yield cell


def shows(cell: NotebookNode) -> bool:
    """Whether a code cell may be on a slide: it is no setup, no collapsed code, and not an exercise or its check."""
    setup = cell.source.startswith(SETUP) or "CLAIMS.table()" in cell.source
    return not setup and not re.search(r"\bex\.\w+\.(?:check|pick)\(", cell.source)


# ---- text ----------------------------------------------------------------------------------------------------------


def add_text(found: list[Slide], source: str) -> None:
    """Adds slides for the headings and predictions of a text, and its formulas and prose to the slide that is open."""
    source = re.split(r"^(?:## Common mistakes|## Going further)", source, maxsplit=1, flags=re.MULTILINE)[0]
    in_exercise = False
    for block in blocks(source):
        if heading := re.match(r"(#{1,4}) +(.*)", block):
            in_exercise = heading[2].startswith("Exercise ")
            found.append(headed(heading, found))
        elif in_exercise or not found:
            continue
        elif block.startswith("> **Predict**"):
            found.append(Slide(found[-1].where, [rendered(block)]))
        elif is_shown(block):
            add_block(found, rendered(block))
        elif is_prose(block):
            add_prose(found[-1], block)


def headed(heading: re.Match[str], found: list[Slide]) -> Slide:
    """The slide that begins with a heading; the levels above `###` begin a column."""
    begins = len(heading[1]) < 3 or not found
    return Slide(plain(heading[2]) if begins else found[-1].where, [rendered(heading[0])], begins=begins, is_open=True)


def blocks(source: str) -> list[str]:
    """The paragraphs, lists, tables and formulas of a text; code in fences and what is closed are left out."""
    source = re.sub(r"^```.*?^```|<details>.*?</details>|<!--.*?-->", "", source, flags=re.DOTALL | re.MULTILINE)
    source = re.sub(r"^(#{1,4} .*)$", r"\n\1\n", source, flags=re.MULTILINE)
    return [block.strip() for block in re.split(r"\n\s*\n", source) if block.strip()]


def is_shown(block: str) -> bool:
    """Whether a block stands on the slide as it is: a formula, a list or a table that is not long."""
    rows = block.count("\n") + 1
    return block.startswith("$$") or (block.startswith(("- ", "1. ", "| ", "|-")) and rows <= MOST_ROWS)


def add_block(found: list[Slide], page: str) -> None:
    """Puts a formula, a list or a table on the open slide, or on one of its own below a figure or a prediction."""
    if not found[-1].is_open:
        found.append(Slide(found[-1].where, is_open=True))
    found[-1].shown.append(page)
    found[-1].is_open = len(found[-1].shown) < MOST_BLOCKS


def is_prose(block: str) -> bool:
    """Whether a block is text to say."""
    return not block.startswith(("[![", "*Core", "|", "<"))


def add_prose(slide: Slide, block: str) -> None:
    """A first sentence for a slide that has only its heading; all of the text for the speaker."""
    if slide.is_open and len(slide.shown) == 1 and slide.shown[0].startswith("<h"):
        slide.shown.append(rendered(SENTENCE.split(block)[0]))
    slide.notes.append(rendered(block))


def rendered(block: str) -> str:
    """Markdown as HTML with MathML, without links, which would lead away."""
    return markdown_with_formulas(re.sub(r"(?<!!)\[([^\]]*)\]\([^)]*\)", r"\1", block)).strip()


def plain(heading: str) -> str:
    return html.escape(re.sub(r"[*`]", "", heading))


# ---- code ----------------------------------------------------------------------------------------------------------


def of_code(cell: NotebookNode) -> Iterator[Slide]:
    """A slide for short plain code, and one for each output that is worth one."""
    lines = [line for line in cell.source.splitlines() if line.strip()]
    if title(cell) is None and len(lines) <= MOST_LINES and lines and lines[0].startswith(("def ", "class ")):
        code = html.escape(re.sub(r"\n{3,}", "\n\n", cell.source))
        yield Slide("", [f"<pre><code>{code}</code></pre>", *printed(cell)])
    for output in cell.outputs:
        if slide := of_output(output):
            yield slide


def printed(cell: NotebookNode) -> list[str]:
    """What a cell prints, where that is a few lines."""
    text = "".join(output.text for output in cell.outputs if output.output_type == "stream").rstrip()
    return [f"<pre>{html.escape(text)}</pre>"] if text and text.count("\n") < MOST_LINES else []


def of_output(output: NotebookNode) -> Slide | None:
    """The slide of an output: an answer with its explanation in the notes, a figure, a view, or a table."""
    page = output.get("data", {}).get("text/html", "")
    if found := ANSWER.search(page):
        explanation = EXPLANATION.search(found[1])
        shown = EXPLANATION.sub("", found[1]).strip()
        return Slide("", [shown or explanation[0]], [explanation[0]] if explanation else [])
    long = page.count("<tr") > MOST_ROWS + 1 and "data-view" not in page
    return Slide("", [page]) if page and not long else None


# ---- the presentation ----------------------------------------------------------------------------------------------


def as_notebook(found: Iterable[Slide], name: str) -> NotebookNode:
    """A notebook whose cells carry the metadata of slides: what is shown, then the notes."""
    notebook = nbformat.v4.new_notebook(metadata={"title": name})
    for slide in found:
        where = f'<p class="where">{slide.where}</p>' if slide.where and not slide.begins else ""
        notebook.cells.append(cell_of(where + "\n".join(slide.shown), "slide" if slide.begins else "subslide"))
        if slide.notes:
            notebook.cells.append(cell_of("\n".join(slide.notes), "notes"))
    return notebook


def cell_of(page: str, kind: str) -> NotebookNode:
    """A cell that shows HTML on a slide of a kind."""
    output = nbformat.v4.new_output("display_data", data={"text/html": page})
    return nbformat.v4.new_code_cell("", outputs=[output], metadata={"slideshow": {"slide_type": kind}})


def presentation(path: Path, reveal: str) -> str:
    """The slides of the lesson at `path` as one HTML page that loads reveal.js from `reveal`."""
    from nbconvert import SlidesExporter

    exporter = SlidesExporter(exclude_input=True, exclude_output_prompt=True, reveal_theme="white")
    exporter.reveal_url_prefix = reveal
    exporter.raw_template = TEMPLATE
    page, _ = exporter.from_notebook_node(as_notebook(slides(read(path)), path.stem))
    return str(page)


def bring_reveal(folder: Path) -> None:
    """Puts reveal.js's files into a folder, unless they are there. Raises DataUnavailable where it cannot be had."""
    if (folder / "dist/reveal.js").is_file():
        return
    with tarfile.open(fetch(REVEAL)) as archive:
        for member in archive:
            if (found := NEEDED.fullmatch(member.name)) and (content := archive.extractfile(member)):
                target = folder / found[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                with files.atomic_write(target) as beside:
                    beside.write(content.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="+", help="numbers, slugs or paths")
    parser.add_argument("--out", default="slides", help="the folder for the slides; slides by default")
    parser.add_argument(
        "--cdn", action="store_true", help="link reveal.js from unpkg.com; the slides then need the net"
    )
    options = parser.parse_args()
    folder = files.expanded("out", options.out)
    folder.mkdir(parents=True, exist_ok=True)
    if not options.cdn:
        try:
            bring_reveal(folder / "reveal.js")
        except DataUnavailable as error:
            raise SystemExit(f"{error}\nWith --cdn the slides link reveal.js from unpkg.com instead.") from error
    for path in lessons(options.lessons):
        files.write_text(folder / f"{path.stem}.html", presentation(path, CDN if options.cdn else "reveal.js"))
        print(folder / f"{path.stem}.html")


if __name__ == "__main__":
    main()
