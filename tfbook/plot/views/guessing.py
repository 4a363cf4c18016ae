"""Shannon's game as a view: the reader guesses a text letter by letter, beside models that read the same letters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfbook.plot.views import base

ALPHABET = " abcdefghijklmnopqrstuvwxyz"  # Shannon's: 26 letters and the space
MAX_TEXT = 400  # letters that fit on a page


@dataclass(frozen=True, eq=False)
class GuessingView:
    """The view returned by `guessing_view`, which a notebook displays when it is the last line of a cell."""

    text: str
    given: int
    players: Mapping[str, Sequence[float]]
    guesses: str

    def __repr__(self) -> str:
        return f"GuessingView(letters={len(self.text) - self.given})"

    def _repr_html_(self) -> str:
        """A table, and a script that replaces it with the view; without JavaScript the table stays."""
        rounded = {name: [round(value, 4) for value in values] for name, values in self.players.items()}
        data = {"text": self.text, "given": self.given, "players": rounded, "guesses": self.guesses}
        return base.embed("guessing", data, self._table())

    def _table(self) -> str:
        """How the text begins, and each player's nats per letter over the rest of it."""
        mine = surprises_of_guesses(self.guesses, self.text[self.given :])
        everybody = {"the table's favorite letters": mine, **self.players}
        means = ((name, [base.cell(f"{math.fsum(row) / len(row):.2f}")]) for name, row in everybody.items())
        lead = f"Guess how this text goes on, letter by letter: “{self.text[: self.given]}”"
        return f"{base.paragraph(lead)}\n{base.table(['surprise in nats per letter'], means)}"


def surprises_of_guesses(guesses: str, text: str) -> list[float]:
    """−ln p of each letter of `text` for a player who names one favorite letter each time.

    When k of the n guesses so far were right, the next one has probability (k + 1) / (n + 2) (Laplace's rule of
    succession), and the other 26 letters share the rest equally.
    """
    right, surprises = 0, []
    for count, (guess, letter) in enumerate(zip(guesses, text, strict=True)):
        trust = (right + 1) / (count + 2)
        surprises.append(-math.log(trust if guess == letter else (1 - trust) / (len(ALPHABET) - 1)))
        right += guess == letter
    return surprises


def guessing_view(text: str, given: int, players: Mapping[str, Sequence[float]], guesses: str) -> GuessingView:
    """A game in which the reader guesses each letter of `text` after the first `given`, with everybody's surprise.

    `players` gives for each rival its surprise −ln p in nats at each of these letters, and `guesses` the letters that a
    button types for the reader. The reader's guesses become probabilities as in `surprises_of_guesses`. Raises
    ValueError for a text with other characters than a to z and the space, without a letter to guess or too long for a
    page, and for players and guesses of another length.
    """
    if strange := sorted(set(text + guesses) - set(ALPHABET)):
        raise ValueError(f"text and guesses hold {strange[0]!r}; expected small letters a to z and spaces")
    if not 0 <= given < len(text) <= MAX_TEXT:
        raise ValueError(f"given is {given} of {len(text)} letters; expected fewer than all, of at most {MAX_TEXT}")
    rest = len(text) - given
    for name, row in {**players, "guesses": guesses}.items():
        if len(row) != rest:
            raise ValueError(f"{name!r} has {len(row)} entries; expected {rest}, one for each letter to guess")
    return GuessingView(text, given, {name: [float(value) for value in row] for name, row in players.items()}, guesses)
