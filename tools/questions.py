"""Writes the question bank of docs/teaching/questions as pages to read, and as files that Moodle imports.

    python tools/questions.py pages            renews docs/teaching/questions/*.md from the TOML files beside them
    python tools/questions.py gift FOLDER      a file in Moodle's GIFT format per lesson (with 03 04: of two lessons)

Options are shuffled by the question's name, so that they stand in the same order in every export.
"""

from __future__ import annotations

import argparse
import html
import random
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from book import ROOT

from tfbook.course.lessons import LESSONS, Lesson
from tfbook.files import expanded, write_text

FOLDER = ROOT / "docs" / "teaching" / "questions"
KINDS = {"idea": "idea", "calculation": "calculation", "figure": "reading a figure", "design": "design"}
FIELDS = {"name", "section", "kind", "ask", "right", "because", "wrong", "compute", "quotes"}
SPECIAL = re.compile(r"[\\~=#{}:]")  # what GIFT wants a backslash before
CODE = re.compile(r"`([^`]+)`")
EMPHASIS = re.compile(r"(?<![*\w])\*([^*\s][^*]*)\*(?![*\w])")
HEADER = "<!-- written by `python tools/questions.py pages` from {name}.toml; edit that -->\n\n"


@dataclass(frozen=True)
class Option:
    """An answer to choose, and the reason why it is right or which wrong idea it catches."""

    text: str
    reason: str
    right: bool


@dataclass(frozen=True, kw_only=True)
class Question:
    """A multiple-choice question: one right option, and the evidence for it in the lesson or a calculation."""

    lesson: Lesson
    name: str  # unique in its lesson, in lower case with hyphens
    section: int | str  # the number of a section of the core, or the title of a heading
    kind: str  # one of KINDS
    ask: str
    options: tuple[Option, ...]  # the right one first
    compute: str = ""  # an expression that gives the right option's number
    quotes: str = ""  # words of the executed lesson that say what the right option says

    @property
    def full_name(self) -> str:
        """Its name in the whole bank, such as "03-causal-mask"."""
        return f"{self.lesson.number:02}-{self.name}"

    @property
    def place(self) -> str:
        """Where the lesson answers it, in words."""
        return f"Section {self.section}" if isinstance(self.section, int) else f"“{self.section}”"

    def shuffled(self) -> list[Option]:
        """The options in an order that depends on the question's name alone."""
        options = list(self.options)
        random.Random(self.full_name).shuffle(options)
        return options


def read(path: Path) -> list[Question]:
    """The questions of a file `NN_slug.toml`. Raises ValueError where a field is missing or unknown."""
    lesson = next(lesson for lesson in LESSONS if lesson.name == path.stem)
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["question"]
    return [question(lesson, entry) for entry in entries]


def question(lesson: Lesson, entry: dict[str, Any]) -> Question:
    """A question from its table in a file."""
    odd = (FIELDS - {"compute", "quotes"} - set(entry)) | (set(entry) - FIELDS)
    if odd:
        raise ValueError(f"lesson {lesson.number:02}, {entry.get('name')}: missing or unknown {sorted(odd)}")
    right = Option(str(entry["right"]), str(entry["because"]), right=True)
    wrong = [Option(text, reason, right=False) for text, reason in entry["wrong"]]
    plain = {name: entry[name] for name in FIELDS - {"right", "because", "wrong"} if name in entry}
    return Question(lesson=lesson, options=(right, *wrong), **plain)


def bank(names: Sequence[str] = ()) -> dict[Lesson, list[Question]]:
    """The questions of the lessons called `names` (numbers or slugs), or of all, by lesson."""
    wanted = {name.zfill(2) if name.isdigit() else name for name in names}
    unknown = wanted - {known for lesson in LESSONS for known in (f"{lesson.number:02}", lesson.slug)}
    if unknown:
        raise SystemExit(f"there is no lesson {sorted(unknown)[0]!r}")
    chosen = [lesson for lesson in LESSONS if not wanted or {f"{lesson.number:02}", lesson.slug} & wanted]
    return {lesson: read(FOLDER / f"{lesson.name}.toml") for lesson in chosen}


def page(lesson: Lesson, questions: Sequence[Question]) -> str:
    """A page in Markdown: each question, its options under letters, and the answer with all reasons, closed."""
    title = f"# Questions on lesson {lesson.number:02}, {lesson.title}\n"
    link = f"[{lesson.question}](../../../notebooks/{lesson.name}.ipynb) · [all lessons](index.md)\n"
    entries = [entry(number, question) for number, question in enumerate(questions, start=1)]
    return HEADER.format(name=lesson.name) + "\n".join([title, link, *entries])


def entry(number: int, question: Question) -> str:
    """A question on its page."""
    letters = "ABCDEF"
    options = list(zip(letters, question.shuffled(), strict=False))
    right = next(letter for letter, option in options if option.right)
    reasons = [
        f"- **{letter}** {'is right' if option.right else 'is wrong'}: {option.reason}" for letter, option in options
    ]
    return "\n".join(
        [
            f"## Question {number}\n",
            f"{question.ask} *({KINDS[question.kind]}; {question.place})*\n",
            *[f"- **{letter}.** {option.text}" for letter, option in options],
            f"\n<details><summary>Answer</summary>\n\n**{right}** (`{question.full_name}`)\n",
            *reasons,
            "\n</details>\n",
        ]
    )


def index(questions: dict[Lesson, list[Question]]) -> str:
    """The page that lists the lessons with the number of their questions of each kind."""
    total = sum(map(len, questions.values()))
    rows = []
    for lesson, asked in questions.items():
        counts = [sum(one.kind == kind for one in asked) or "" for kind in KINDS]
        link = f"[{lesson.title}]({lesson.name}.md)"
        rows.append("| " + " | ".join(map(str, [f"{lesson.number:02}", link, *counts, len(asked)])) + " |")
    return (
        HEADER.format(name="the files NN_slug")
        + f"# Question bank\n\n{total} multiple-choice questions, each with one right option. Every wrong one says "
        + "which idea it catches. A test computes the right options, or finds them in the lessons' own words.\n\n"
        + "`python tools/questions.py gift FOLDER` writes them in GIFT, which Moodle imports; "
        + "Canvas needs it converted to QTI.\n\n"
        + f"| | lesson | {' | '.join(KINDS.values())} | all |\n|---|---|{'---:|' * (len(KINDS) + 1)}\n"
        + "\n".join(rows)
        + "\n"
    )


def gift(lesson: Lesson, questions: Sequence[Question]) -> str:
    """The questions in GIFT: a category, then each question with its options and what a student is told."""
    category = f"$CATEGORY: tfbook/{lesson.number:02} {lesson.title}\n"
    return "\n".join([category, *map(gift_question, questions)])


def gift_question(question: Question) -> str:
    """One question in GIFT."""
    options = [
        f"\t{'=' if option.right else '~'}{escaped(option.text)}#{escaped(option.reason)}".expandtabs(2)
        for option in question.shuffled()
    ]
    comment = f"// {KINDS[question.kind]}; {question.place}"
    return "\n".join([comment, f"::{question.full_name}::[html]{escaped(question.ask)} {{", *options, "}\n"])


def escaped(text: str) -> str:
    """A text as HTML in GIFT: one line, code and emphasis marked, a backslash before each sign that means something."""
    page = CODE.sub(r"<code>\1</code>", html.escape(" ".join(text.split()), quote=False))
    page = EMPHASIS.sub(r"<em>\1</em>", page)
    return SPECIAL.sub(r"\\\g<0>", page)


def write_pages() -> None:
    """Writes the pages beside the TOML files."""
    questions = bank()
    write_text(FOLDER / "index.md", index(questions))
    for lesson, asked in questions.items():
        write_text(FOLDER / f"{lesson.name}.md", page(lesson, asked))
    print(f"{sum(map(len, questions.values()))} questions in {FOLDER}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pages", help="renew the pages")
    export = commands.add_parser("gift", help="write files in GIFT")
    export.add_argument("folder", help="where they go; it is made")
    export.add_argument("lessons", nargs="*", help="numbers or slugs; all by default")
    options = parser.parse_args()
    if options.command == "pages":
        write_pages()
        return
    folder = expanded("folder", options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for lesson, asked in bank(options.lessons).items():
        write_text(folder / f"{lesson.name}.gift", gift(lesson, asked))
        print(folder / f"{lesson.name}.gift")


if __name__ == "__main__":
    main()
