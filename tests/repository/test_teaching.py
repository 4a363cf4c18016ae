"""The pages for instructors: links, commands, sections, hours and licenses are those that exist."""

import re
import sys
from functools import cache
from pathlib import Path

import nbformat
import pytest

from tfbook.__main__ import COMMANDS
from tfbook.course.lessons import LESSONS, Lesson
from tfbook.data.registry import DATASETS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import tables  # noqa: E402

TEACHING = ROOT / "docs" / "teaching"
PAGES = sorted(TEACHING.rglob("*.md"))
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:|mailto:)([^)\s]*)\)")
FENCED = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,4} +(.+?)\s*$", re.MULTILINE)
PARTS = ("Show", "Ask", "Wrong", "In class", "Leave out", "Homework")


def read(path: Path) -> str:
    """A page's text."""
    return path.read_text(encoding="utf-8")


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def text(lesson: Lesson) -> str:
    """The text cells of a lesson."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{lesson.name}.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def sections(lesson: Lesson) -> set[int]:
    """The numbers of a lesson's sections."""
    return {int(number) for number in re.findall(r"^## (\d+)\. ", text(lesson), re.MULTILINE)}


def exercises(lesson: Lesson) -> set[int]:
    """The numbers of a lesson's exercises."""
    return {int(number) for number in re.findall(r"^#{3,4} Exercise (\d+) · ", text(lesson), re.MULTILINE)}


def numbers(said: str, what: str) -> set[int]:
    """The numbers that a text names after a word: "Sections 2 to 4 and 6" → 2, 3, 4, 6."""
    found: set[int] = set()
    for listed in re.findall(rf"{what}s? (\d+(?:(?:, | and | to | or |, then )\d+)*)", said):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", listed):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def plans() -> dict[Lesson, str]:
    """Lesson → its plan."""
    found = re.split(r"^## (\d\d) · .*$", read(TEACHING / "sessions.md"), flags=re.MULTILINE)[1:]
    return {LESSONS[int(number)]: plan for number, plan in zip(found[::2], found[1::2], strict=True)}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """To files that exist, and to headings that these have."""
    for target in LINK.findall(FENCED.sub("", read(page))):
        path, _, section = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if section and file.suffix == ".md":
            assert section in map(anchor, HEADING.findall(FENCED.sub("", read(file)))), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    """Of make, of the package and of tools/."""
    said = read(page)
    targets = set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", said)) <= targets
    assert set(re.findall(r"-m tfbook ([a-z]+)", said)) <= set(COMMANDS)
    assert [name for name in re.findall(r"python (tools/\w+\.py)", said) if not (ROOT / name).is_file()] == []


def test_every_lesson_has_a_plan_with_all_its_parts() -> None:
    """In order, and neither a slogan nor a lecture."""
    found = plans()
    assert list(found) == list(LESSONS)
    for lesson, plan in found.items():
        assert re.findall(r"^- \*\*([\w ]+)\*\*", plan, re.MULTILINE) == list(PARTS), lesson.name
        assert 110 <= len(plan.split()) <= 220, lesson.name


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_plan_names_sections_and_exercises_that_exist(lesson: Lesson) -> None:
    """And at least four sections and three exercises."""
    plan = " ".join(plans()[lesson].split())
    assert numbers(plan, "Section") <= sections(lesson)
    assert numbers(plan, "Exercise") <= exercises(lesson)
    assert len(numbers(plan, "Section")) >= 4
    assert len(numbers(plan, "Exercise")) >= 3


def test_other_pages_name_sections_that_exist() -> None:
    """ "Sections 2 and 5 of lesson 02" and "lesson 02, Section 5"."""
    said = " ".join(f"{read(TEACHING / 'weeks.md')} {read(TEACHING / 'paths.md')}".split())
    named = [(number, places) for places, number in re.findall(r"(Sections? [\d, and to]+) of lesson (\d\d)", said)]
    named += re.findall(r"(?:lesson )?(\d\d)(?: [A-Z][\w -]+)?, (Sections? \d[\d, and to]*)", said)
    assert len(named) >= 12
    for number, places in named:
        assert numbers(places, "Section") <= sections(LESSONS[int(number)]), (number, places)


def needs(number: int) -> set[int]:
    """The lessons that a lesson needs."""
    return set(tables.needs_of(text(LESSONS[number])))


def test_paths_hold_what_their_lessons_need() -> None:
    """Six paths; what a lesson needs is taken whole before it, or in part. (`tools/tables.py` writes their hours.)"""
    paths = re.split(r"^## \d · ", read(TEACHING / "paths.md"), flags=re.MULTILINE)[1:]
    assert len(paths) == 6
    for path in paths:
        [listed] = re.findall(r"\*\*Lessons\*\* ([\d, ]+) · reading \S+ h, with exercises \S+ h$", path, re.MULTILINE)
        taken = [int(number) for number in listed.split(", ")]
        in_part = {int(number) for number in re.findall(r"of\s+lesson\s+(\d\d)", path)}
        for place, number in enumerate(taken):
            assert needs(number) <= {*taken[:place], *in_part}, f"{path.splitlines()[0]}: {number}"


def test_weeks_hold_every_lesson_after_what_it_needs() -> None:
    """In the plan of fourteen weeks all of them, in that of seven those before the branch."""
    fourteen, seven = re.split(r"^## Seven", read(TEACHING / "weeks.md"), flags=re.MULTILINE)
    titles = "|".join(re.escape(lesson.title) for lesson in LESSONS)
    for plan, expected in ((fourteen, set(range(21))), (seven.partition("| branch")[0], {0, 1, 2, 3, 4, 5, 6, 9, 10})):
        order = [int(number) for number in re.findall(rf"\| (\d\d) (?:{titles})\b", plan)]
        assert set(order) == expected
        assert len(order) == len(expected)
        assert all(needs(number) <= set(order[:place]) for place, number in enumerate(order))


def test_every_data_set_is_listed_with_its_license() -> None:
    """As the registry states it."""
    rows = [row for row in read(TEACHING / "index.md").splitlines() if row.startswith("| `")]
    for name, dataset in DATASETS.items():
        [row] = [row for row in rows if f"`{name}`" in row.split("|")[1]]
        assert row.split("|")[3].strip() == dataset.license, name
