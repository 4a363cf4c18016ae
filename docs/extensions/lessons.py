"""Lessons as pages: copies of the executed notebooks, folded as they are in JupyterLab, with their figures as files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import green
from docutils import nodes
from links import linked
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from tfbook.course.lessons import LESSONS, Lesson

ROOT = Path(__file__).resolve().parents[2]
PICTURE = re.compile(r'<img ([^>]*?)src="data:image/png;base64,([^"]+)"')
BADGE = re.compile(r"^\[!\[Open in Colab\].*$", re.MULTILINE)
TITLE = re.compile(r"# @title (.*)\n")
SIGNATURE = re.compile(r"(?<=<span class=\"sig-paren\">\(</span>)\s*<dl>.*?</dl>", re.DOTALL)
SETUP = "setup-cell"  # a tag, which the style makes a class: paper needs no cell that installs the package
FOLDED = "folded when the page opens"
Node = dict[str, Any]


def write_lessons(app: Sphinx) -> None:
    """Writes a page for each lesson where Sphinx reads, and its figures where Sphinx copies from."""
    source = Path(app.srcdir)
    figures = source / "_build/extra/figures" if app.builder.name == "html" else Path(app.outdir) / "figures"
    repository = app.config.repository
    for lesson in LESSONS:
        if lesson.written:
            notebook = json.loads((ROOT / f"notebooks/{lesson.name}.ipynb").read_text(encoding="utf-8"))
            page = prepared(notebook, lesson, repository, figures)
            write_changed(source / f"lessons/{lesson.name}.ipynb", json.dumps(page, ensure_ascii=False).encode())


def prepared(notebook: Node, lesson: Lesson, repository: str, figures: Path) -> Node:
    """The notebook as its page shows it."""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = linked(text, repository, "notebooks")
            if cell["metadata"].get("jp-MarkdownHeadingCollapsed"):
                text = re.sub(r"^(#+ .*)$", rf"\1\n\n% {FOLDED}\n", text, count=1, flags=re.MULTILINE)
        else:
            fold(cell, text)
            text = TITLE.sub("", text, count=1)
        cell["source"] = text
        for output in cell.get("outputs", ()):
            move_pictures(output, figures)
    first = notebook["cells"][0]
    first["source"] = BADGE.sub(lambda _: doors(lesson, repository), first["source"], count=1)
    return notebook


def fold(cell: Node, text: str) -> None:
    """JupyterLab's marks of what is collapsed, as myst-nb's; the title of a cell is what stands for its code."""
    jupyter, tags = cell["metadata"].get("jupyter", {}), cell["metadata"].setdefault("tags", [])
    if jupyter.get("source_hidden"):
        tags.append("hide-input")
        title = TITLE.match(text)
        if title and title[1].startswith("Setup:"):
            tags.append(SETUP)
        cell["metadata"]["mystnb"] = {"code_prompt_show": f"Code: {title[1] if title else 'open'}"}
    if jupyter.get("outputs_hidden") or cell["metadata"].get("collapsed"):
        tags.append("hide-output")


def move_pictures(output: Node, folder: Path) -> None:
    """Pictures become files with a size that is known before they arrive; claims' records are for the ledger alone."""
    data = output.get("data", {})
    if "text/html" in data:
        html = "".join(data["text/html"])
        data["text/html"] = PICTURE.sub(lambda found: picture(found[1], base64.b64decode(found[2]), folder), html)
    for kind in [kind for kind in data if kind.startswith("application/vnd.tfbook")]:
        del data[kind]


def picture(attributes: str, png: bytes, folder: Path) -> str:
    """The element up to its source; height follows from the width that it has and from the file's first bytes."""
    name = f"{hashlib.sha256(png).hexdigest()[:16]}.png"
    write_changed(folder / name, png)
    wide, high = (int.from_bytes(png[start : start + 4]) for start in (16, 20))
    width = re.search(r'width="(\d+)"', attributes)
    height = round(int(width[1]) * high / wide) if width else high
    size = f'height="{height}"' if width else f'width="{wide}" height="{height}"'
    return f'<img {attributes}{size} loading="lazy" decoding="async" src="../figures/{name}"'


def doors(lesson: Lesson, repository: str) -> str:
    """Where the lesson runs, and when all of it last ran; raw HTML that a book leaves away."""
    slug = repository.removeprefix("https://github.com/")
    path = f"notebooks/{lesson.name}.ipynb"
    links = {
        "Open in Colab": f"https://colab.research.google.com/github/{slug}/blob/main/{path}",
        "Open in Binder": f"https://mybinder.org/v2/gh/{slug}/main?urlpath=lab/tree/{path}",
        "See it on GitHub": f"{repository}/blob/main/{path}",
    }
    items = "".join(f'<li><a href="{address}">{name}</a></li>' for name, address in links.items())
    where = f'<ul aria-label="Where this lesson runs">{items}</ul>'
    return f'<div class="doors">{where}<p>{green.sentence(path)}</p></div>'


def anchor(heading: str) -> str:
    """The name of a heading in a link, as JupyterLab makes it: "4.-Attention-in-code"."""
    return heading.strip().replace(" ", "-")


def write_changed(path: Path, content: bytes) -> None:
    """Writes a file only when it differs, so that Sphinx reads again only what changed."""
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class Fold(SphinxTransform):
    """Sections that JupyterLab shows closed are closed here, too, under their headings."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        marks = [mark for mark in self.document.findall(nodes.comment) if mark.astext() == FOLDED]
        sections = [mark.parent for mark in marks]
        for mark, section in zip(marks, sections, strict=True):
            section.remove(mark)
            inner = [one for one in section.children if not isinstance(one, nodes.title | nodes.section)]
            if inner and not any(isinstance(one, nodes.section) for one in section.children):
                opened = '<details class="folded"><summary>Open this optional section</summary>'
                section.children[1:1] = [nodes.raw("", opened, format="html")]
                section.append(nodes.raw("", "</details>", format="html"))


def as_lines(signature: re.Match[str]) -> str:
    """A long signature's parameters, each on a line of its own."""
    opened = signature[0].replace("<dl>", "<span>").replace("<dd>", '<span class="sig-line">')
    return opened.replace("</dd>", "</span>").replace("</dl>", "</span>")


def mended(app: Sphinx, page: str, template: str, context: Node, doctree: nodes.document | None) -> None:
    """What myst-nb, Sphinx and furo write that a screen reader could not make sense of.

    What opens a cell is called by what it says; the lines of a long signature are no list of definitions; a heading has
    its level.
    """
    body = context.get("body", "").replace('<summary aria-label="Toggle hidden content">', "<summary>")
    context["body"] = SIGNATURE.sub(as_lines, body)
    if tree := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("repository", "", "env")
    app.connect("builder-inited", write_lessons)
    app.connect("html-page-context", mended, priority=800)
    app.add_transform(Fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
