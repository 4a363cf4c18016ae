"""The course as one EPUB: pages as XHTML, views as the tables that they hold, all that is closed opened."""

from __future__ import annotations

from typing import Any

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import Sphinx

UNPRINTED = "script, style, .doors, .tag_setup-cell, iframe, noscript, .start-model, .headerlink"


def for_paper(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """A reader of books runs no script, so what stays of a view is its text; XHTML closes every element."""
    if app.builder.format != "html" or app.builder.name != "epub" or "body" not in context:
        return
    soup = BeautifulSoup(context["body"], "lxml")
    for one in soup.select(UNPRINTED):
        one.decompose()
    for one in soup.select("audio"):
        one.replace_with("(a sound, which the web page plays)")
    for one in soup.select("details"):
        one["open"] = "open"
    for one in soup.select("img"):
        for name in ("loading", "decoding"):
            del one[name]
    for one in soup.select("[data-view]"):
        del one["data-view"]
    context["body"] = soup.body.decode_contents(formatter="minimal") if soup.body else ""


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", for_paper, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
