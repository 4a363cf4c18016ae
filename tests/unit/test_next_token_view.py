"""The next-token explorer as Python writes it: a tree of texts, a table of the first choices, the same every time.

What the script makes of it is tested in a browser (tests/browser).
"""

import math
import random
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from html_pages import HOSTILE, Page, needs_nothing

from tfbook import plot
from tfbook.plot import next_token_view
from tfbook.plot.views import explorer

Row = list[tuple[str, float]]
FIRST = [(" dog", 0.25), (" fox", 0.5), (",", 0.0), (" cat", 0.125)]
LETTERS = "abcd"


def always(row: Row, *, seen: list[list[tuple[str, ...]]] | None = None) -> object:
    """A model that says the same of every text; `seen` collects what it was given."""

    def predict(texts: list[tuple[str, ...]]) -> list[Row]:
        if seen is not None:
            seen.append(texts)
        return [row] * len(texts)

    return predict


def uneven(texts: Sequence[tuple[str, ...]]) -> list[Row]:
    """A model in which every text has probabilities of its own, some sure and some not."""
    rows = []
    for text in texts:
        dice = random.Random("".join(text))
        weights = [dice.random() ** 3 + 1e-3 for _ in LETTERS]
        rows.append([(letter, weight / sum(weights)) for letter, weight in zip(LETTERS, weights, strict=True)])
    return rows


def likelihood(text: tuple[str, ...]) -> float:
    steps = (dict(uneven([text[:place]])[0])[piece] for place, piece in enumerate(text))
    return math.prod(steps)


def page(*arguments: object, **options: object) -> Page:
    return Page(next_token_view(*arguments, **options)._repr_html_())


def test_the_tree_holds_the_likeliest_texts_of_any_length() -> None:
    """Compared with all texts there are; parents come with their children, and what `predict` says is kept."""
    every = [text for length in range(6) for text in product(LETTERS, repeat=length)]
    certain = [text for text in every if len(text) <= 1]
    others = sorted((text for text in every if len(text) > 1), key=likelihood, reverse=True)
    tree = next_token_view("", uneven, breadth=4, depth=6, limit=60).tree
    assert set(tree) == {*certain, *others[: 60 - len(certain)]}
    assert max(map(len, tree)) == 5, "deep where the model is sure"
    assert all(text[:-1] in tree for text in tree)
    for text, choices in tree.items():
        assert choices == sorted(uneven([text])[0], key=lambda choice: -choice[1])


def test_each_list_that_the_model_is_given_has_texts_of_one_length() -> None:
    seen: list[list[tuple[str, ...]]] = []
    view = next_token_view("the", always(FIRST, seen=seen), breadth=2, depth=4, limit=8)
    assert seen[:2] == [[()], [(" fox",), (" dog",)]]
    assert [{len(text) for text in texts} for texts in seen] == [{0}, {1}, {2}, {3}]
    assert all(text in {text for texts in seen for text in texts} for text in view.tree)
    assert len(view.tree) == 8


def test_the_likeliest_come_first_and_what_cannot_be_is_left_out() -> None:
    """Ties stay in the order that they came in."""
    assert next_token_view("the", always(FIRST), depth=1).tree == {(): [(" fox", 0.5), (" dog", 0.25), (" cat", 0.125)]}
    equal = [(letter, 0.25) for letter in "dbca"]
    assert next_token_view("", always(equal), breadth=3, depth=1).tree[()] == equal[:3]


def test_every_first_choice_leads_on() -> None:
    row = [("a", 0.9998), ("b", 0.0001), ("c", 0.0001)]
    tree = next_token_view("", always(row), breadth=3, depth=30, limit=8).tree
    assert {("b",), ("c",)} < set(tree)
    assert len(tree) == 8


def test_a_sure_model_goes_to_the_end() -> None:
    """Also where a longer text is as likely as a shorter one, or both round to 0."""
    for share in (1.0, 1e-200):
        tree = next_token_view("", always([(" a", share)]), depth=9).tree
        assert [len(text) for text in tree] == list(range(9))


def test_no_tokens_say_that_the_text_is_complete() -> None:
    def predict(texts: list[tuple[str, ...]]) -> list[Row]:
        return [[] if text[-1:] == (".",) else [(".", 0.75), (" on", 0.25)] for text in texts]

    view = next_token_view("Go", predict, depth=3)
    assert view.tree[(".",)] == view.tree[" on", "."] == []
    assert page("Go", predict, depth=2).data["bars"] == [[0, 288, []], [1, 1386, [[0, 288], [1, 1386]]]]
    assert "the text becomes: “Go.”" in view._repr_html_()


def test_the_data_is_a_tree_of_pieces_and_surprises() -> None:
    shown = page("the", always(FIRST), breadth=2, depth=2)
    assert shown.data["start"] == "the"
    assert shown.data["pieces"] == [" fox", " dog"]
    leaves = [[0, 693], [1, 1386]]  # thousandths of −ln p
    assert shown.data["bars"] == [[0, 693, leaves], [1, 1386, leaves]]


def test_the_table_says_the_first_choices_and_one_text() -> None:
    """It is what remains where scripts do not run: on GitHub, in a notebook that is not trusted."""
    view = next_token_view("the", always(FIRST), depth=3)
    assert Page(view._repr_html_()).rows == [
        ["", "probability", "surprise −ln p (nats)"],
        ["fox", "0.50", "0.69"],
        ["dog", "0.25", "1.39"],
        ["cat", "0.12", "2.08"],
        ["everything else", "0.12", ""],
    ]
    assert "With the likeliest token each time, the text becomes: “the fox fox fox …”" in view._repr_html_()
    assert "<p>At the beginning: the likeliest" in next_token_view("", always(FIRST), depth=1)._repr_html_()


def test_nothing_else_has_no_row() -> None:
    assert [row[0] for row in page("", always([(" a", 2 / 3), (" b", 1 / 3)]), depth=1).rows] == ["", "a", "b"]
    assert page("", always([(" a", 1.0)]), depth=1).rows[1] == ["a", "1.00", "0.00"]


@pytest.mark.parametrize(
    ("start", "row", "named"),
    [
        ("the", [(" fox", 0.5), (",", 0.3), ("\n", 0.2)], ["fox", ",", "↵"]),
        ("“", [("Yes", 0.6), (" ", 0.4)], ["Yes", "␣"]),
        ("the", [(" fox", 0.5), ("n", 0.3), (" ", 0.2)], ["␣fox", "n", "␣"]),
    ],
    ids=["words", "after a quotation mark", "parts of words"],
)
def test_spaces_are_seen_where_tokens_are_parts_of_words(start: str, row: Row, named: list[str]) -> None:
    rows = page(start, always(row), depth=1).rows[1:]
    assert [row[0] for row in rows] == named


def test_pieces_are_text_whatever_they_hold() -> None:
    """No tag, attribute or script that a piece could open, in the table and in the data; MathJax leaves them alone."""
    hostile = page(HOSTILE[0], always([(piece, 0.25) for piece in HOSTILE]), depth=2)
    plain = page("a", always([(piece, 0.25) for piece in [" a", " b", " c", " d"]]), depth=2)
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert [row[0] for row in hostile.rows[1:]] == hostile.data["pieces"] == HOSTILE
    assert hostile.data["start"] == HOSTILE[0]
    assert hostile.script == plain.script
    assert "mathjax_ignore" in hostile.tags[0][1]["class"].split()


def test_the_page_needs_nothing_from_elsewhere() -> None:
    needs_nothing(page("the", always(FIRST)))


def test_it_is_the_same_every_time_and_short_as_text() -> None:
    """nbval compares both kinds of output."""
    first, second = (next_token_view("", uneven, limit=50) for _ in range(2))
    assert first._repr_html_() == second._repr_html_()
    assert repr(first) == repr(second) == "NextTokenView(choices=4, texts=50)"
    assert next_token_view is plot.next_token_view


@pytest.mark.parametrize("breadth", range(2, explorer.MAX_BREADTH + 1))
def test_the_largest_stays_below_40_kilobytes(breadth: int) -> None:
    """With 300 pieces, twice as many as a tree of stories has."""

    def predict(texts: list[tuple[str, ...]]) -> list[Row]:
        dice = random.Random(len(texts))
        return [[(f" word-{i:03}", 0.1) for i in dice.sample(range(300), 9)] for _ in texts]

    view = next_token_view("a" * explorer.MAX_START, predict, breadth=breadth)
    assert len(view.tree) == explorer.MAX_BARS // breadth
    assert len(view._repr_html_().encode()) < 40_000


def test_a_tensor_of_one_number_is_a_number() -> None:
    assert next_token_view("", always([("a", torch.tensor(0.5))]), depth=1).tree == {(): [("a", 0.5)]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "predict returned no tokens after “the”; expected one or more"),
        ([("", 0.5)], "predict returned an empty piece after “the”; expected the letters that the token appends"),
        ([(" a", float("nan"))], "“ a” after “the” has probability nan; expected 0 to 1"),
        ([(" a", 0.5), (" b", -0.1)], "“ b” after “the” has probability -0.1; expected 0 to 1"),
        ([(" a", 1.5)], r"“ a” after “the” has probability 1\.5; expected 0 to 1"),
        ([(" a", 0.7), (" b", 0.4)], r"probabilities after “the” sum to 1\.1; expected more than 0 and at most 1"),
        ([(" a", 0.0)], "probabilities after “the” sum to 0; expected more than 0"),
        ([(" a", 0.4), (" b", 0.2), (" a", 0.2)], "predict returned “ a” twice after “the”; expected another piece"),
    ],
    ids=["none", "empty", "not a number", "negative", "above 1", "sum above 1", "all zero", "twice"],
)
def test_what_no_model_would_say_is_named(row: Row, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        next_token_view("the", always(row))


def test_an_error_names_the_text_that_it_came_after() -> None:
    def predict(texts: list[tuple[str, ...]]) -> list[Row]:
        return [[(" fox", 0.5 if len(text) < 2 else 2.0)] for text in texts]

    with pytest.raises(ValueError, match="“ fox” after “the fox fox” has probability 2; expected 0 to 1"):
        next_token_view("the", predict)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "a" * 601}, "start holds 601 letters; expected at most 600, which fit on a page"),
        ({"breadth": 0}, "breadth is 0; expected 2 to 9"),
        ({"breadth": 10}, "breadth is 10; expected 2 to 9, so that each bar has a digit for a key"),
        ({"depth": 0}, "depth is 0; expected 1 or more tokens to choose"),
        ({"limit": 5}, "limit is 5; with 5 bars for each text, expected 6 to 200 texts"),
        ({"breadth": 8, "limit": 126}, "limit is 126; with 8 bars for each text, expected 9 to 125 texts"),
        ({"predict": lambda texts: []}, "predict returned 0 lists for 1 texts; expected one for each"),
    ],
    ids=["start", "no bars", "too many bars", "depth", "too few texts", "too many texts", "no lists"],
)
def test_what_does_not_fit_is_named(options: dict[str, object], message: str) -> None:
    given = {"start": "the", "predict": always(FIRST)} | options
    with pytest.raises(ValueError, match=message):
        next_token_view(given.pop("start"), given.pop("predict"), **given)
