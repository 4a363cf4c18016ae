"""Reads the figures in the outputs of a notebook: their alt text, their PNGs, and how they were drawn."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser

from nbformat import NotebookNode

SOURCE = "data:image/png;base64,"


@dataclass(frozen=True)
class Figure:
    """A picture in an output."""

    alt: str
    png: bytes
    schematic: bool


def figures(output: NotebookNode) -> list[Figure]:
    """The figures of an output in order: those that `plot.show` wrote as HTML, and a bare image with its metadata."""
    data, metadata = output.get("data", {}), output.get("metadata", {}).get("image/png", {})
    page = _Page()
    page.feed(data.get("text/html", ""))
    return [*page.figures, *_bare(data, metadata)]


def _bare(data: dict[str, str], metadata: dict[str, object]) -> Iterator[Figure]:
    if "image/png" in data:
        png = base64.b64decode(data["image/png"])
        yield Figure(str(metadata.get("alt", "")), png, "schematic" in metadata)


class _Page(HTMLParser):
    """Collects the pictures in HTML whose bytes are in it."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: list[Figure] = []
        self.kinds: list[str] = []  # the classes of the <figure> that was opened last

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "figure":
            self.kinds = found.get("class", "").split()
        elif tag == "img" and found.get("src", "").startswith(SOURCE):
            png = base64.b64decode(found["src"].removeprefix(SOURCE))
            self.figures.append(Figure(found.get("alt", ""), png, "schematic" in self.kinds))
