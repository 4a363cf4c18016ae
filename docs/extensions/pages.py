"""Pages made of the repository's own files: the ledger, CONTRIBUTING, and the model of the front page."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from lessons import ROOT, write_changed
from links import linked
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tfbook import page

VERDICT = re.compile(r"^\| \*\*[\d.]+\*\* .* \| ([^|]+) \|$", re.MULTILINE)
MODEL = "model.html"
HEAD = "| Claim | Source | Measured | Required | Verdict |\n|---|---|---|---|---|"
MEANING = (
    "That is no score: a bound is written down with a margin after the experiment has been seen, and the tests then "
    "compare it on every run. So the ledger shows that results repeat. Where a paper's claim did not come out at our "
    "size, its row says what came out instead."
)


def write_pages(app: Sphinx) -> None:
    """Writes what Sphinx reads besides the sources."""
    source, repository = Path(app.srcdir), app.config.repository
    write_changed(source / "ledger.md", ledger((ROOT / "CLAIMS.md").read_text(encoding="utf-8"), repository).encode())
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    write_changed(source / "contributing.md", linked(contributing, repository).encode())
    if app.builder.name == "html":
        write_model(source / "_build/extra" / MODEL)


def read_from_repository(app: Sphinx, page: str, content: list[str]) -> None:
    """What is written for teaching is read on GitHub, too, with links from where it lies; one page lists all of it."""
    if page == "instructors":
        found = sorted(one for one in app.env.found_docs if one.startswith("teaching/"))
        found.sort(key=lambda one: (one.count("/"), not one.endswith("/index")))
        listed = "\n".join(["```{toctree}", ":maxdepth: 1", "", *found, "```"])
        content[0] = content[0].replace("<!-- teaching -->", listed if found else "")
    if page.startswith("teaching/"):
        folder = f"docs/{page.rpartition('/')[0]}"
        content[0] = linked(content[0], app.config.repository, folder)


def ledger(text: str, repository: str) -> str:
    """The ledger, with what its verdicts mean and the rows that fail or speak against a paper ahead of the others."""
    verdicts = {found[0]: found[1] for found in VERDICT.finditer(text)}
    rows, hold = list(verdicts), list(verdicts.values()).count("holds")
    other = [row for row in rows if verdicts[row] != "holds" or re.search(r"\bunlike\b", row)]
    said = f"**{hold} of {len(rows)} rows hold.** {MEANING if hold == len(rows) else ''}"
    failed = ["## What failed, or came out unlike the paper", "", HEAD, *other, ""] if other else []
    head, mark, body = text.partition("\n## ")
    return linked("\n".join([head, said, "", *failed]) + f"{mark}{body}", repository)


def write_model(path: Path) -> None:
    """The storyteller's page in eight bits; inside of the front page it shows the desk alone and tells its height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        page.write_page(page.storyteller(), path, bits=8)
        icon = '<link rel="icon" href="_static/favicon.svg">\n</head>'
        path.write_text(path.read_text(encoding="utf-8").replace("</head>", icon, 1), encoding="utf-8")


class Model(SphinxDirective):
    """```{model}```: the desk of the model's page, which is loaded once this page stands."""

    def run(self) -> list[nodes.Node]:
        frame = f'<iframe id="model" title="A small GPT that writes on" data-source="{MODEL}"></iframe>'
        without = f'<noscript><p>The model needs JavaScript. <a href="{MODEL}">Its page</a></p></noscript>'
        return [nodes.raw("", f'<div class="model">{frame}{without}</div>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("model", Model)
    app.connect("builder-inited", write_pages)
    app.connect("source-read", read_from_repository)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
