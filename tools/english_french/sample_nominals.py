"""Random noun phrases that make sense, in as many words as there is room for."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from .entries import Adjective, Noun
from .lexicon import ADJECTIVES, NAMES, NOUNS, NUMERALS, PREPOSITIONS
from .syntax import Name, NounPhrase, Prepositional, Relative, Several
from .tokens import Features

T = TypeVar("T")
Determiners = dict[str, dict[str, float]]  # weights by number

PEOPLE = frozenset({"person", "adult"})
SUBJECT: Determiners = {
    "mass": {"the": 8, "some": 5, "possessive": 3, "this": 2},
    "singular": {"the": 10, "a": 5, "possessive": 6, "this": 2, "every": 0.7},
    "plural": {"the": 7, "a": 5, "possessive": 5, "this": 2.5, "numeral": 3, "several": 1, "many": 1.5, "all": 1.5},
}


def _only(*names: str) -> Determiners:
    return {number: {name: row[name] for name in row if name in names} for number, row in SUBJECT.items()}


OBJECT = _only("the", "a", "some", "possessive", "this", "numeral", "several", "many", "all")
NEGATED = _only("the", "a", "some", "possessive", "this")  # "many" or "all" in the scope of a negation are unclear
PLACE = _only("the", "a", "possessive", "this")
EXISTING = _only("a", "some", "several", "many")  # there is a, there are many, but not: there is the
NOT_EXISTING = _only("a", "some")

_FIXED = frozenset({"place", "open", "nature", "landmark"})
_PUBLIC = _FIXED | PEOPLE | {"animal"}  # one's own only where "own" says so
_PARTS = ("door", "window", "wall", "key", "garden", "kitchen", "bedroom")  # of a building
_SMALL = frozenset({"thing", "text", "food", "drink"})  # what may lie on a table
_KINDS = ("opinion", "size", "state", "age", "novelty", "color", "origin")
_EXCLUSIVE = ("age", "novelty")
_NEIGHBOURHOODS = {"behind": 1, "in front of": 1, "near": 2, "far from": 0.6, "between": 0.6}
_POSSESSIVES = {(1, False): "my", (1, True): "our", (2, True): "your", (3, True): "their"}
_OWNERS = {"the": 4, "a": 2, "this": 1, "my": 1, "our": 1, "your": 1, "his": 1, "her": 1}
LED_TO_BY_RELATIVES = (
    "object-relative-on-subject", "negation-in-relative", "clitic-in-relative", "that-clause-in-relative",
)  # fmt: skip


@dataclass(frozen=True)
class Actor:
    """What must be known of a subject to say something sensible of it."""

    classes: frozenset[str]
    features: Features
    plain: bool = True  # not "every man" or "all the men", which do not go well with a negation
    described: tuple[Adjective, ...] = ()  # what has been said of it: no "the big cat is small"


@cache
def _nouns(classes: frozenset[str]) -> list[Noun]:
    return [noun for noun in NOUNS.values() if not noun.classes.isdisjoint(classes)]


@cache
def _adjectives(classes: frozenset[str]) -> list[Adjective]:
    return [adjective for adjective in ADJECTIVES.values() if not adjective.classes.isdisjoint(classes)]


def _ownable(noun: Noun) -> bool:
    return "own" in noun.classes or noun.classes.isdisjoint(_PUBLIC)


class NominalSampler(ABC):
    """Draws noun phrases.

    `room` counts the English words that are left; `licensed` names the held-out construction that may come, if any.
    """

    def __init__(self, rng: random.Random, licensed: str = "") -> None:
        self.rng = rng
        self.licensed = licensed
        self.room = 0
        self.names = list(NAMES)
        self.on_subject = False  # whether a subject is being drawn
        self.plurals = False  # whether a plural was named, to which "they" and "them" would refer

    @abstractmethod
    def relative(self, antecedent: NounPhrase) -> Relative | None:
        """Draw a relative clause; None where none suits."""

    # Chance

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def likely(self, probability: float, *constructions: str) -> bool:
        """True with this probability, or nearly always where it leads to the construction that is licensed."""
        return self.chance(0.9 if self.licensed in constructions else probability)

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of the options."""
        return options[int(self.rng.random() * len(options))]

    def weighted(self, weights: Mapping[T, float]) -> T:
        """Draw a key with probability proportional to its weight."""
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def within(self, words: int, draw: Callable[[], T]) -> T:
        """Draw with at most so many words."""
        rest = max(0, self.room - words)
        self.room -= rest
        drawn = draw()
        self.room += rest
        return drawn

    # Noun phrases

    def noun(self, classes: Collection[str]) -> Noun:
        """Draw a noun of one of the classes."""
        return self.pick(_nouns(frozenset(classes)))

    def adjective(self, classes: Collection[str], kinds: Collection[str]) -> Adjective | None:
        """Draw an adjective of one of these kinds that suits a noun of these classes; None where there is none."""
        options = [adjective for adjective in _adjectives(frozenset(classes)) if adjective.kind in kinds]
        return self.pick(options) if options else None

    def noun_phrase(
        self, noun: Noun, determiners: Determiners, actor: Actor | None = None, heavy: bool = True
    ) -> NounPhrase:
        """Draw what goes around a noun; a heavy phrase may end in a relative clause or a prepositional phrase."""
        plural = not noun.mass and self.chance(0.12 if noun.classes & {"place", "open"} else 0.38)
        self.plurals = self.plurals or plural
        self.room -= 2
        phrase = self._determined(NounPhrase(noun=noun, plural=plural), determiners, actor)
        if self.room > 0 and self.chance(0.42):
            phrase = replace(phrase, adjectives=self._described(noun))
        definite = phrase.determiner == "the" and not phrase.numeral
        if self.room >= 2 and definite and _ownable(noun) and self.chance(0.25):
            return self._owned(phrase)
        if not heavy or (determiners is NEGATED and phrase.determiner in ("a", "some")):
            return phrase
        if self.room >= 4 and self.likely(min(0.9, 0.35 + self.room / 20), *LED_TO_BY_RELATIVES):
            return replace(phrase, relative=self.relative(phrase))
        if self.room >= 3 and self.chance(0.25):
            return replace(phrase, modifier=self._modifier(noun))
        return phrase

    def name(self) -> Name:
        """Draw a name that is not yet in the sentence."""
        self.room -= 1
        name = self.pick(self.names)
        self.names.remove(name)
        return Name(name)

    def person(self, heavy: bool = False) -> NounPhrase | Name:
        """Draw someone."""
        return self.name() if self.chance(0.15) else self.noun_phrase(self.noun(["person"]), OBJECT, heavy=heavy)

    def several(self, draw: Callable[[], NounPhrase | Name], conjunction: str = "and") -> NounPhrase | Name | Several:
        """Draw two or three parts, or one where there is no room for more."""
        parts = [draw()]
        while self.room >= 3 and len(parts) < 3 and (len(parts) == 1 or self.chance(0.35)):
            self.room -= 1
            parts.append(draw())
        if len(parts) == 1:
            return parts[0]
        self.plurals = True
        return Several(tuple(parts), conjunction)

    def location(self, classes: Collection[str] = PEOPLE, heavy: bool = True) -> Prepositional:
        """Draw where something of these classes is: in the garden, on the table, between the church and the school."""
        weights = _NEIGHBOURHOODS if _FIXED.intersection(classes) else _NEIGHBOURHOODS | {"in": 6, "under": 1}
        weights = weights | {"on": 4} if _SMALL.intersection(classes) else weights
        preposition = PREPOSITIONS[self.weighted(weights)]
        self.room -= len(preposition.english.split())
        if preposition.english != "between":
            return Prepositional(preposition, self.noun_phrase(self.noun(preposition.classes), PLACE, heavy=heavy))
        self.room -= 1
        sides = [self.noun_phrase(self.noun(preposition.classes), PLACE, heavy=False) for _ in range(2)]
        return Prepositional(preposition, Several(tuple(sides)))

    def _determined(self, phrase: NounPhrase, determiners: Determiners, actor: Actor | None) -> NounPhrase:
        weights = dict(determiners["mass" if phrase.noun.mass else "plural" if phrase.plural else "singular"])
        if not _ownable(phrase.noun):
            weights.pop("possessive", None)
        determiner = self.weighted(weights)
        self.room -= determiner == "all"
        if determiner == "possessive":
            return replace(phrase, determiner=self._possessive(actor))
        if determiner != "numeral":
            return replace(phrase, determiner=determiner)
        numeral = self.pick(list(NUMERALS))
        if self.room < 1 or self.chance(0.5):
            return replace(phrase, determiner="", numeral=numeral)
        self.room -= 1
        return replace(phrase, determiner=self.pick(["the", "this"]), numeral=numeral)

    def _possessive(self, actor: Actor | None) -> str:
        """Draw a possessive, mostly that of the subject: she loses her key."""
        if actor is None or self.chance(0.25):
            return self.pick(["my", "our", "your", "his", "her", "their"])
        gender, plural, person = actor.features
        if person == 3 and not plural:
            return "his" if gender == "m" else "her"
        return _POSSESSIVES[person, plural]

    def _described(self, noun: Noun) -> tuple[Adjective, ...]:
        """Draw one to three adjectives of different kinds."""
        kinds = list(_KINDS)
        chosen: list[Adjective] = []
        while self.room > 0 and len(chosen) < 3 and (not chosen or self.chance(0.25)):
            adjective = self.adjective(noun.classes, kinds)
            if adjective is None:
                break
            self.room -= 1
            chosen.append(adjective)
            used = _EXCLUSIVE if adjective.kind in _EXCLUSIVE else (adjective.kind,)
            kinds = [kind for kind in kinds if kind not in used]
        return tuple(chosen)

    def _owned(self, phrase: NounPhrase) -> NounPhrase:
        """Draw whose it is: paul 's, the old teacher 's."""
        self.room -= 1
        if self.room < 2 or self.chance(0.35):
            return replace(phrase, owner=self.name())
        self.room -= 2
        noun = self.noun(["person"])
        weights = {name: weight for name, weight in _OWNERS.items() if _ownable(noun) or name in PLACE["singular"]}
        adjectives = self.within(1, lambda: self._described(noun)) if self.chance(0.25) else ()
        return replace(phrase, owner=NounPhrase(noun=noun, determiner=self.weighted(weights), adjectives=adjectives))

    def _modifier(self, noun: Noun) -> Prepositional:
        """Draw where it is, or what it is a part of."""
        if noun.english in _PARTS:
            self.room -= 1
            whole = self.noun_phrase(self.noun(["building"]), PLACE, heavy=False)
            return Prepositional(PREPOSITIONS["of"], whole)
        return self.location(noun.classes)
