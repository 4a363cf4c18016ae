"""A page of HTML as a test reads it."""

import json
from html.parser import HTMLParser
from typing import Any

HOSTILE = ["<script>alert(1)</script>", '"> <b>', "&amp;", "$x$ 😀"]


class Page(HTMLParser):
    """Tags with their attributes, the table's texts row by row, and what stands in the script."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.script = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.script += data
        elif self.rows and self.tags[-1][0] in ("th", "td") and data.strip():
            self.rows[-1][-1] += data

    @property
    def data(self) -> dict[str, Any]:
        """What the script reads."""
        return json.loads(self.tags[0][1]["data-view"])


def needs_nothing(page: Page) -> None:
    """Asserts: no address but the name of SVG, no id that could clash, one script that ends where it should."""
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert {name for _, attributes in page.tags for name in attributes} <= {"class", "data-view", "style"}
    assert "://" not in page.script.replace("http://www.w3.org/2000/svg", "")
    for word in ("fetch(", "import(", "XMLHttpRequest", "innerHTML", "Math.random", "Date", "@import", "url("):
        assert word not in page.script
    assert page.script.rstrip().endswith("})();")
