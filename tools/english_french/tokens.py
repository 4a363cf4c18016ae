"""Tokens of two languages that know what they mean, and the word alignment that follows from it."""

from collections import defaultdict
from typing import NamedTuple


class Meaning:
    """What an English and a French token have in common; every derivation makes its own."""

    __slots__ = ()


class Features(NamedTuple):
    """What a word agrees with."""

    gender: str = "m"
    plural: bool = False
    person: int = 3


class Token(NamedTuple):
    """A word, the meanings that it surely carries, and those to which it only contributes."""

    text: str
    sure: frozenset[Meaning] = frozenset()
    possible: frozenset[Meaning] = frozenset()
    before_vowel: str = ""  # bel for beau: a form that only some uses of the word take
    article: bool = False  # le and les contract with de and à as articles (du), not as pronouns (de le voir)

    def spelled(self, text: str) -> "Token":
        """Return the same token with another text."""
        return self if text == self.text else self._replace(text=text)

    def merged(self, other: "Token", text: str) -> "Token":
        """Return one token for two: du carries what de and le carry."""
        return Token(text, self.sure | other.sure, self.possible | other.possible)


class Phrase(NamedTuple):
    """The two sides of a piece of a sentence."""

    english: tuple[Token, ...] = ()
    french: tuple[Token, ...] = ()


def words(text: str, *sure: Meaning, possible: tuple[Meaning, ...] = (), article: bool = False) -> tuple[Token, ...]:
    """Split a text into tokens that all carry the same meanings."""
    if not text:
        return ()
    carried, hinted = frozenset(sure), frozenset(possible)
    return tuple([Token(word, carried, hinted, "", article) for word in text.split()])


def concat(*phrases: Phrase) -> Phrase:
    """Put phrases one after another in both languages."""
    return Phrase(sum((p.english for p in phrases), ()), sum((p.french for p in phrases), ()))


def align(english: list[Token], french: list[Token]) -> str:
    """Link tokens that share a meaning: "i-j" where both surely carry it, "i?j" where one only contributes."""
    carriers: dict[Meaning, dict[int, bool]] = defaultdict(dict)
    for i, token in enumerate(english):
        for meaning in token.possible:
            carriers[meaning][i] = False
        for meaning in token.sure:
            carriers[meaning][i] = True
    links: dict[tuple[int, int], bool] = {}
    for j, token in enumerate(french):
        for meaning in token.sure | token.possible:
            for i, sure in carriers[meaning].items():
                links[i, j] = links.get((i, j), False) or (sure and meaning in token.sure)
    return " ".join(f"{i}-{j}" if sure else f"{i}?{j}" for (i, j), sure in sorted(links.items()))
