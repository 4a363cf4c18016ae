"""The course as a picture: which lesson needs which, each a link; the same as a table for whoever cannot see it."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Mapping
from typing import ClassVar

import tables
from docutils import nodes
from lessons import ROOT
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tfbook.course.lessons import LESSONS, PARTS, Lesson

WIDTH, HEIGHT, ACROSS, DOWN = 108, 74, 122, 116  # of a box, and from box to box
LETTERS = 11  # of a title's line
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="context-stroke"/></marker></defs>'
)
Needs = Mapping[int, tuple[int, ...]]
Stop = int | tuple[int, int, int]  # a lesson, or where an arrow crosses a row: from, to, row


def needs() -> dict[int, tuple[int, ...]]:
    """The lessons that each lesson needs, as the head of its notebook says."""
    paths = {one.number: ROOT / f"notebooks/{one.name}.ipynb" for one in LESSONS if one.written}
    heads = {number: json.loads(path.read_text(encoding="utf-8"))["cells"][0] for number, path in paths.items()}
    return {number: tables.needs_of("".join(head["source"])) for number, head in heads.items()}


def direct(graph: Needs) -> dict[int, tuple[int, ...]]:
    """Without arrows that a longer way says as well."""
    return {
        number: tuple(one for one in before if not any(one in all_before(graph, other) for other in before))
        for number, before in graph.items()
    }


def all_before(graph: Needs, number: int) -> set[int]:
    return {one for before in graph[number] for one in (before, *all_before(graph, before))}


def levels(graph: Needs) -> dict[int, int]:
    """How many lessons come one after another before each lesson."""
    found: dict[int, int] = {}
    for number in sorted(graph):
        found[number] = 1 + max((found[one] for one in graph[number]), default=-1)
    return found


def places(graph: Needs) -> dict[Stop, tuple[float, int]]:
    """Column and row of each lesson: first the line that everyone walks, then a row for each level.

    An arrow that crosses rows has a stop in each of them, (from, to, row), so that it passes between boxes.
    """
    level, arrows = levels(graph), direct(graph)
    line = next(step for step in range(len(graph)) if list(level.values()).count(step) > 1)
    row = {number: max(0, step - line + 1) for number, step in level.items()}
    before: dict[Stop, tuple[Stop, ...]] = {}
    for number in sorted(graph):
        chains: list[list[Stop]] = [
            [one, *((one, number, y) for y in range(row[one] + 1, row[number]))] for one in arrows[number]
        ]
        before |= {stop: (chain[place],) for chain in chains for place, stop in enumerate(chain[1:])}
        before[number] = tuple(chain[-1] for chain in chains)
    rows = [
        [stop for stop in before if (row[stop] if isinstance(stop, int) else stop[2]) == y]
        for y in range(1 + max(row.values()))
    ]
    found: dict[Stop, tuple[float, int]] = {stop: (x, 0) for x, stop in enumerate(rows[0])}
    widest = max(sum(room(stop) for stop in stops) for stops in rows)
    for y, stops in enumerate(rows[1:], start=1):
        middle = {stop: sum(found[one][0] for one in before[stop]) / len(before[stop]) for stop in stops}
        x = (widest - sum(room(stop) for stop in stops)) / 2
        for stop in sorted(stops, key=lambda stop: (middle[stop], str(stop))):
            found[stop] = x - (1 - room(stop)) / 2, y
            x += room(stop)
    return found


def room(stop: Stop) -> float:
    """The share of a column that a box or an arrow takes."""
    return 1 if isinstance(stop, int) else 0.3


def drawing(graph: Needs) -> str:
    """The map as SVG; its colors are those of the page (site.css)."""
    at = places(graph)
    width = (max(x for x, _ in at.values()) + 1) * ACROSS
    height = max(y for _, y in at.values()) * DOWN + HEIGHT + 16
    arrows = [arrow(at, one, number) for number, before in direct(graph).items() for one in before]
    boxes = [box(lesson, at[lesson.number], graph[lesson.number]) for lesson in LESSONS if lesson.number in at]
    label = "Map of the course; the table below says the same"
    head = f'<svg class="course-map" viewBox="0 0 {width:.0f} {height}" role="group" aria-label="{label}">'
    return "\n".join([head, TIP, *arrows, *boxes, "</svg>"])


def arrow(at: Mapping[Stop, tuple[float, int]], start: int, end: int) -> str:
    """From a lesson to one that needs it: to the right in the first row, otherwise down through its stops."""
    x, y = corner(at[start])
    path = f"M{x + WIDTH:.0f} {y + HEIGHT / 2:.0f}H{corner(at[end])[0]:.0f}"
    if at[start][1] != at[end][1]:
        x, y = x + WIDTH / 2, y + HEIGHT
        path = f"M{x:.0f} {y:.0f}"
        stops: list[Stop] = [*sorted(one for one in at if isinstance(one, tuple) and one[:2] == (start, end)), end]
        for stop in stops:
            right, below = corner(at[stop])
            right += WIDTH / 2
            path += f"C{x:.0f} {(y + below) / 2:.0f} {right:.0f} {(y + below) / 2:.0f} {right:.0f} {below:.0f}"
            x, y = right, below
            if stop != end:
                path += f"v{HEIGHT}"
                y += HEIGHT
    return f'<path class="arrow" aria-hidden="true" d="{path}" marker-end="url(#tip)"/>'


def corner(place: tuple[float, int]) -> tuple[float, float]:
    return place[0] * ACROSS + (ACROSS - WIDTH) / 2, place[1] * DOWN + 8.0


def box(lesson: Lesson, place: tuple[float, int], before: tuple[int, ...]) -> str:
    x, y = corner(place)
    named = f"{lesson.number:02} {lesson.title} {lesson.minutes} min"  # as one reads it
    named += f", needs {', '.join(f'{one:02}' for one in before)}" if before else ""
    lines = " ".join(
        f'<tspan x="{x + 10:.0f}" dy="1.35em">{html.escape(line)}</tspan>'
        for line in textwrap.wrap(lesson.title, LETTERS, break_long_words=False)
    )
    return (
        f'<a href="lessons/{lesson.name}.html" aria-label="{html.escape(named)}" class="part-{lesson.part}">'
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="9"/>'
        f'<text x="{x + 10:.0f}" y="{y + 21:.0f}" class="number">{lesson.number:02}</text>'
        f' <text y="{y + 24:.0f}">{lines}</text>'
        f' <text x="{x + WIDTH - 10:.0f}" y="{y + 21:.0f}" class="minutes">{lesson.minutes} min</text></a>'
    )


def table(graph: Needs) -> str:
    """The lessons with their questions, in Markdown."""
    rows = ["| no. | lesson | question | minutes | needs |", "|---|---|---|---|---|"]
    for one in LESSONS:
        if one.number in graph:
            before = ", ".join(f"{number:02}" for number in graph[one.number]) or "–"
            link = f"[{one.title}](lessons/{one.name}.ipynb)"
            rows.append(f"| {one.number:02} | {link} | {one.question} | {one.minutes} | {before} |")
    return "\n".join(rows)


class CourseMap(SphinxDirective):
    """```{course-map}```: the picture, what its colors mean, and the table."""

    has_content = False
    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        graph = needs()
        parts = "".join(f'<li class="part-{number}">{name}</li>' for number, name in PARTS.items())
        picture = f'<div class="map-frame" tabindex="0" role="group" aria-label="Map">{drawing(graph)}</div>'
        shown = f'<figure class="map-figure">{picture}<figcaption><ul class="parts">{parts}</ul></figcaption></figure>'
        return [nodes.raw("", shown, format="html"), *self.parse_text_to_nodes(table(graph))]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("course-map", CourseMap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
