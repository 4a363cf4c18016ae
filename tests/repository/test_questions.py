"""The question bank: complete, checked by the lessons and by arithmetic, and read back from what is exported."""

import html
import math
import re
import statistics
import sys
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path

import nbformat
import pytest
import torch
from torch.nn import functional as F

from tfbook.course.lessons import LESSONS, Lesson

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import questions  # noqa: E402
from questions import Option, Question  # noqa: E402

BANK = questions.bank()
EVERY = [question for asked in BANK.values() for question in asked]
NUMBER = re.compile(r"[−-]?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?")
HEADING = re.compile(r"^#{2,4} +(.+?)\s*$", re.MULTILINE)
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)


@cache
def notebook(lesson: Lesson) -> nbformat.NotebookNode:
    """A lesson as it was executed."""
    return nbformat.read(ROOT / "notebooks" / f"{lesson.name}.ipynb", as_version=4)


@cache
def headings(lesson: Lesson) -> frozenset[str]:
    """Titles of sections, and the numbers of those that have one."""
    text = "\n".join(cell.source for cell in notebook(lesson).cells if cell.cell_type == "markdown")
    titles = HEADING.findall(text)
    return frozenset(titles) | {found[1] for title in titles if (found := re.match(r"(\d+)\. ", title))}


@cache
def words(lesson: Lesson) -> str:
    """All that a lesson says and shows, in one line."""
    parts = []
    for cell in notebook(lesson).cells:
        parts.append(cell.source)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            parts += [output.get("text", ""), data.get("text/plain", ""), data.get("text/markdown", "")]
            parts.append(re.sub(r'<img[^>]*alt="([^"]*)"[^>]*>|<[^>]*>', r"\1", data.get("text/html", "")))
            parts.append(output.get("metadata", {}).get("image/png", {}).get("alt", ""))
    return one_line(html.unescape(" ".join(parts)))


def one_line(text: str) -> str:
    """A text without line breaks and double spaces."""
    return " ".join(text.split())


def first_number(text: str) -> tuple[float, float] | None:
    """The first number that a text states and half a unit of its last digit; None where it states none."""
    if not (found := NUMBER.search(text.replace("√", ""))):
        return None
    shown = found[0].replace("−", "-").replace(",", "")
    decimals = len(shown.partition(".")[2]) if "/" not in shown else 9
    return float(Fraction(shown)), 0.5 * 10**-decimals + 1e-9


def agrees(value: object, text: str) -> bool:
    """Whether an option states a computed value: its first number to the digits shown, or its words."""
    if isinstance(value, str):
        return bool(value) and value in text
    stated = first_number(text)
    return stated is not None and abs(float(value) - stated[0]) <= stated[1]


def computed(expression: str) -> object:
    """The value of a question's expression."""
    value = eval(expression, {"math": math, "torch": torch, "F": F})
    return value if isinstance(value, str) else float(value)


def test_there_are_enough_questions() -> None:
    """At least 200, and about ten on each lesson."""
    assert len(EVERY) >= 200
    assert {lesson.name: len(asked) for lesson, asked in BANK.items() if not 9 <= len(asked) <= 16} == {}
    assert list(BANK) == list(LESSONS)


@each_lesson
def test_a_question_is_complete(lesson: Lesson) -> None:
    """Three or four options that differ, each with its reason, a kind that exists, and a place that exists."""
    for question in BANK[lesson]:
        texts = [one_line(option.text).casefold().rstrip(".") for option in question.options]
        reasons = [option.reason for option in question.options]
        assert len(texts) in {3, 4}, question.full_name
        assert len(set(texts)) == len(set(reasons)) == len(texts), question.full_name
        assert all(len(o.reason) >= (4 if o.right else 15) for o in question.options), question.full_name
        assert question.kind in questions.KINDS, question.full_name
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", question.name), question.full_name
        assert str(question.section) in headings(lesson), question.full_name


@each_lesson
def test_the_right_option_is_what_the_lesson_says_or_what_is_computed(lesson: Lesson) -> None:
    """And no other option states the computed number."""
    for question in BANK[lesson]:
        assert bool(question.compute) != bool(question.quotes), f"{question.full_name}: give one of compute and quotes"
        if question.compute:
            value = computed(question.compute)
            agreeing = [option.right for option in question.options if agrees(value, option.text)]
            assert agreeing == [True], question.full_name
        else:
            found = one_line(question.quotes) in words(lesson)
            assert found, f"{question.full_name}: the lesson does not say: {question.quotes}"


@each_lesson
def test_numbers_that_are_quoted_are_the_lesson_s(lesson: Lesson) -> None:
    """Those of the question and of the right option, where nothing is computed: another run may change them."""
    for question in BANK[lesson]:
        said = f"{question.ask} {question.options[0].text}"
        unknown = [number for number in NUMBER.findall(said) if number not in words(lesson)]
        assert question.compute or unknown == [], question.full_name


def test_calculations_are_computed() -> None:
    """A number that is asked for is not taken on trust."""
    assert [q.full_name for q in EVERY if q.kind == "calculation" and not q.compute] == []


def test_no_question_and_no_name_comes_twice() -> None:
    """In the whole bank."""
    for said in (lambda question: question.full_name, lambda question: one_line(question.ask).casefold()):
        assert [text for text, times in Counter(map(said, EVERY)).items() if times > 1] == []


def test_all_kinds_are_asked_for() -> None:
    """Ideas, calculations, figures and designs, none of them a rarity."""
    counts = Counter(question.kind for question in EVERY)
    assert set(counts) == set(questions.KINDS)
    assert min(counts.values()) >= 25


def test_the_right_option_cannot_be_told_by_its_length() -> None:
    """Among options in words, it is the longest about as often as any other one would be, and seldom the shortest."""
    worded = [question for question in EVERY if statistics.mean(len(o.text) for o in question.options) > 25]
    longest = [max(question.options, key=lambda option: len(option.text)).right for question in worded]
    shortest = [min(question.options, key=lambda option: len(option.text)).right for question in worded]
    assert len(worded) > 100
    assert statistics.mean(longest) <= 0.4
    assert statistics.mean(shortest) <= 0.4


def test_the_right_option_cannot_be_told_by_its_place() -> None:
    """Options are shuffled, and always in the same way."""
    places = Counter(
        next(place for place, option in enumerate(question.shuffled()) if option.right)
        for question in EVERY
        if len(question.options) == 4
    )
    assert set(places) == {0, 1, 2, 3}
    assert min(places.values()) >= 0.15 * places.total()
    assert [question.shuffled() for question in EVERY] == [question.shuffled() for question in questions_again()]


def questions_again() -> list[Question]:
    """The bank, read once more."""
    return [question for asked in questions.bank().values() for question in asked]


def test_the_pages_are_renewed() -> None:
    """`python tools/questions.py pages` after a change."""
    stale = [
        lesson.name
        for lesson, asked in BANK.items()
        if (questions.FOLDER / f"{lesson.name}.md").read_text(encoding="utf-8") != questions.page(lesson, asked)
    ]
    assert stale == []
    assert (questions.FOLDER / "index.md").read_text(encoding="utf-8") == questions.index(BANK)


# ---- GIFT, by the rules of Moodle's manual -----------------------------------------------------------------------


def unescaped(text: str) -> str:
    """What an importer makes of a text in GIFT."""
    page = re.sub(r"\\([\\~=#{}:])", r"\1", text)
    return html.unescape(re.sub(r"</?em>", "*", re.sub(r"</?code>", "`", page))).strip()


def parsed(gift: str) -> dict[str, tuple[str, dict[str, tuple[bool, str]]]]:
    """Questions of a file in GIFT: name → text and, for each option, whether it is right and its feedback."""
    lines = [line for line in gift.splitlines() if not line.startswith(("//", "$"))]
    found = {}
    for block in re.split(r"\n\s*\n", "\n".join(lines)):
        if not block.strip():
            continue
        name, text, answers = re.fullmatch(
            r"\s*::(.+?)::\[html\](.*?)(?<!\\)\{(.*)(?<!\\)\}\s*", block, re.DOTALL
        ).groups()
        options = {}
        for sign, option in re.findall(r"(?<!\\)([=~])((?:\\.|[^=~\\])*)", answers, re.DOTALL):
            answer, reason = re.fullmatch(r"((?:\\.|[^#\\])*)#(.*)", option, re.DOTALL).groups()
            options[unescaped(answer)] = (sign == "=", unescaped(reason))
        found[name] = unescaped(text), options
    return found


@each_lesson
def test_gift_reads_back_as_it_was(lesson: Lesson) -> None:
    """A parser that knows only the rules of the format finds every question, option and reason."""
    found = parsed(questions.gift(lesson, BANK[lesson]))
    assert list(found) == [question.full_name for question in BANK[lesson]]
    for question in BANK[lesson]:
        text, options = found[question.full_name]
        assert text == one_line(question.ask)
        assert options == {one_line(o.text): (o.right, one_line(o.reason)) for o in question.options}


def test_gift_escapes_what_means_something() -> None:
    """Signs, braces, code and a backslash, in the question and in the options."""
    options = (Option("{1: 2} = a~b", "as #1 says: \\x", right=True), Option("`f(x=1)`", "is < 2 & so on", right=False))
    question = Question(lesson=LESSONS[0], name="odd", section=1, kind="idea", ask="Is `x = {}` ~ #2?", options=options)
    found = parsed(questions.gift(LESSONS[0], [question]))
    assert found == {
        "00-odd": ("Is `x = {}` ~ #2?", {o.text: (o.right, o.reason) for o in options}),
    }


def test_an_unknown_field_is_refused() -> None:
    """A typing error in a file is an error."""
    with pytest.raises(ValueError, match="missing or unknown"):
        questions.question(LESSONS[0], {"name": "x", "asks": "y"})
