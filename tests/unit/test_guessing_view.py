"""Shannon's game as Python writes it: a table of everybody's surprise, and data for the script.

What the script makes of it is tested in a browser (tests/browser).
"""

import math
import re

import pytest
from html_pages import Page, needs_nothing

from tfbook.plot import guessing_view
from tfbook.plot.views.guessing import surprises_of_guesses

TEXT, GUESSES = "a sea shell", "shelf"
PLAYERS = {"nobody": [math.log(27)] * 5, "<b>": [0.0, 1.0, 2.0, 3.0, 4.00004]}


def page() -> Page:
    return Page(guessing_view(TEXT, 6, PLAYERS, GUESSES)._repr_html_())


def test_the_data_holds_text_players_and_guesses() -> None:
    assert page().data == {
        "text": TEXT,
        "given": 6,
        "players": {"nobody": [3.2958] * 5, "<b>": [0.0, 1.0, 2.0, 3.0, 4.0]},
        "guesses": GUESSES,
    }


def test_without_scripts_a_table_says_everybodys_surprise() -> None:
    mine = surprises_of_guesses(GUESSES, "shell")
    assert page().rows == [
        ["", "surprise in nats per letter"],
        ["the table's favorite letters", f"{sum(mine) / 5:.2f}"],
        ["nobody", "3.30"],
        ["<b>", "2.00"],
    ]


def test_guesses_become_probabilities_by_the_rule_of_succession() -> None:
    """Right, right, wrong, right: 1/2, 2/3, and then 1 − 3/4 for the 26 others, 3/5."""
    expected = [1 / 2, 2 / 3, 1 / 4 / 26, 3 / 5]
    assert surprises_of_guesses("abxd", "abcd") == pytest.approx([-math.log(p) for p in expected])


def test_these_probabilities_sum_to_1_over_the_alphabet() -> None:
    letters = " abcdefghijklmnopqrstuvwxyz"
    last = [math.exp(-surprises_of_guesses("abz", f"ax{letter}")[2]) for letter in letters]
    assert math.fsum(last) == pytest.approx(1)


def test_the_view_needs_nothing_from_elsewhere_and_is_the_same_every_time() -> None:
    needs_nothing(page())
    assert page().script == page().script
    assert repr(guessing_view(TEXT, 6, PLAYERS, GUESSES)) == "GuessingView(letters=5)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": "A sea shell"}, "text and guesses hold 'A'; expected small letters a to z and spaces"),
        ({"guesses": "she!f"}, "text and guesses hold '!'"),
        ({"given": 11}, "given is 11 of 11 letters; expected fewer than all"),
        ({"given": -1}, "given is -1 of 11 letters"),
        ({"text": "a" * 401, "given": 396}, "given is 396 of 401 letters; expected fewer than all, of at most 400"),
        ({"guesses": "she"}, "'guesses' has 3 entries; expected 5, one for each letter to guess"),
        ({"players": {"nobody": [1.0]}}, "'nobody' has 1 entries; expected 5"),
    ],
)
def test_what_is_no_game_is_refused(change: dict[str, object], message: str) -> None:
    arguments = {"text": TEXT, "given": 6, "players": PLAYERS, "guesses": GUESSES} | change
    with pytest.raises(ValueError, match=re.escape(message)):
        guessing_view(**arguments)
