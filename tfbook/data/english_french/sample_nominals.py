"""Random noun phrases that make sense, in as many words as there is room for."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeVar

from .lexicon import ADJECTIVES, NAMES, NOUNS, NUMERALS, PREPOSITIONS, PRONOUNS, Adjective, Noun, Pronoun
from .syntax import Name, Nominal, NounPhrase, Prepositional, Relative, Several
from .tokens import Features

T = TypeVar("T")
Role = Literal["subject", "object", "other"]

PERSON = frozenset({"person", "adult"})
_LOCATIONS = {"in": 6, "under": 1, "behind": 1, "in front of": 1, "near": 2, "between": 0.5}
_POSSESSIVES = {(1, False): "my", (1, True): "our", (2, True): "your", (3, True): "their"}
_DETERMINERS = {
    "mass": {"the": 8, "some": 7, "possessive": 3, "this": 2},
    "singular": {"the": 10, "a": 6, "possessive": 5, "this": 2, "every": 1},
    "plural": {"the": 7, "a": 6, "possessive": 4, "this": 2, "numeral": 3, "several": 1, "many": 1.5, "all": 1.5},
}
_PARTS = ("door", "window", "wall", "key", "garden", "kitchen", "bedroom")


@dataclass(frozen=True)
class Actor:
    """What a sampler must know of a subject to choose a verb for it."""

    classes: frozenset[str]
    features: Features
    plain: bool = True  # not "every man" or "all the men", which do not go well with a negation
    pronoun: bool = False


@cache
def _nouns(classes: frozenset[str]) -> list[Noun]:
    return [noun for noun in NOUNS.values() if not noun.classes.isdisjoint(classes)]


@cache
def _suitable_adjectives(classes: frozenset[str]) -> list[Adjective]:
    return [adjective for adjective in ADJECTIVES.values() if not adjective.classes.isdisjoint(classes)]


class NominalSampler:
    """Draws noun phrases; `room` counts the English words that are left, `licensed` names a held-out construction that may come."""

    def __init__(self, rng: random.Random, licensed: str = "") -> None:
        self.rng = rng
        self.licensed = licensed
        self.room = 0
        self.on_subject = False  # whether a subject is being drawn
        self.plurals = False  # whether a plural was named, which they and them would then refer to

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

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

    def noun(self, classes: Collection[str]) -> Noun:
        """Draw a noun of one of the classes."""
        return self.pick(_nouns(frozenset(classes)))

    def noun_phrase(self, noun: Noun, role: Role, actor: Actor | None = None, *, heavy: bool = True, negated: bool = False,
        indefinite: bool = False) -> NounPhrase:
        """Draw what stands round a noun; `heavy` allows a relative clause or a prepositional phrase after it."""
        plural = not noun.mass and self.chance(0.33)
        self.plurals = self.plurals or plural
        self.room -= 2
        phrase = self._determined(NounPhrase(noun=noun, plural=plural), role, actor, negated, indefinite)
        if self.room > 0 and self.chance(0.42):
            phrase = replace(phrase, adjectives=self._adjectives(noun))
        if self.room >= 3 and phrase.determiner == "the" and not phrase.numeral and self.chance(0.12):
            phrase = self._owned(phrase)
        if not heavy or (negated and phrase.determiner in ("a", "some")):
            return phrase
        if self.room >= 4 and self.chance(0.7 if "relative" in self.licensed else min(0.8, 0.1 + self.room / 40)):
            return replace(phrase, relative=self.relative(phrase))
        if self.room >= 3 and self.chance(0.2):
            return replace(phrase, modifier=self._modifier(noun))
        return phrase

    def relative(self, antecedent: NounPhrase) -> Relative | None:
        """Draw a relative clause; the sampler of clauses says how."""
        raise NotImplementedError

    def person(self, heavy: bool = False) -> NounPhrase | Name:
        """Draw someone."""
        if self.chance(0.15):
            self.room -= 1
            return Name(self.pick(list(NAMES)))
        return self.noun_phrase(self.noun(["person"]), "other", heavy=heavy)

    def several(self, draw: Callable[[], NounPhrase | Name]) -> NounPhrase | Name | Several:
        """Draw two or three parts, or one where there is no room for more."""
        parts = [draw()]
        while self.room >= 3 and len(parts) < 3 and (len(parts) == 1 or self.chance(0.3)):
            self.room -= 1
            parts.append(draw())
        if len(parts) == 1:
            return parts[0]
        self.plurals = True
        return Several(tuple(parts), "or" if self.chance(0.1) else "and")

    def subject(self, classes: Collection[str], tense: str) -> tuple[Nominal, Actor]:
        """Draw a subject and say what it is; the corpus has "will" only with a third person (others are "going to")."""
        human = "person" in classes
        if human and self.chance(0.36):
            return self._pronoun_subject(tense)
        if human and self.chance(0.12):
            person = self._name()
            return person, Actor(PERSON, person.features)
        if human and self.room >= 8 and self.chance(0.12):
            people = self.within(12, lambda: self.several(lambda: self.person()))
            return people, Actor(PERSON, people.features, plain=False)
        noun = self.noun(classes)
        outer, self.on_subject = self.on_subject, True
        phrase = self.noun_phrase(noun, "subject")
        self.on_subject = outer
        plain = not phrase.numeral and phrase.determiner not in ("every", "several", "many", "all", "a")
        return phrase, Actor(noun.classes, phrase.features, plain)

    def location(self, small: bool = True) -> Prepositional:
        """Draw a place: in the garden, near the old bridge, between the church and the school; small things lie on tables."""
        preposition = PREPOSITIONS[self.weighted(_LOCATIONS | ({"on": 4} if small else {}))]
        self.room -= len(preposition.english.split())
        if preposition.english == "between":
            parts = [self.noun_phrase(self.noun(preposition.classes), "other", heavy=False) for _ in range(2)]
            self.room -= 1
            return Prepositional(preposition, Several((parts[0], parts[1])))
        return Prepositional(preposition, self.place(preposition.classes))

    def place(self, classes: Collection[str]) -> NounPhrase:
        """Draw a place of one of the classes."""
        return self.noun_phrase(self.noun(classes), "other")

    def adjective(self, noun_classes: Collection[str], kinds: Collection[str]) -> Adjective | None:
        """Draw an adjective that suits a noun of these classes, of one of these kinds; None where there is none."""
        options = [a for a in _suitable_adjectives(frozenset(noun_classes)) if a.kind in kinds]
        return self.pick(options) if options else None

    def _name(self) -> Name:
        self.room -= 1
        return Name(self.pick(list(NAMES)))

    def _pronoun_subject(self, tense: str) -> tuple[Pronoun, Actor]:
        self.room -= 1
        names = ["he", "she"]
        if not self.plurals:
            names.append("they")
        if tense != "future":
            names += ["i", "we", "you"]
        name = self.pick(names)
        pronoun = next(p for p in PRONOUNS if p.english == name)
        return pronoun, Actor(PERSON, pronoun.features, pronoun=True)

    def _determined(self, phrase: NounPhrase, role: Role, actor: Actor | None, negated: bool, indefinite: bool) -> NounPhrase:
        weights = dict(_DETERMINERS["mass" if phrase.noun.mass else "plural" if phrase.plural else "singular"])
        if negated or role != "subject":
            weights.pop("every", None)
        if negated:
            weights = {name: weight for name, weight in weights.items() if name in ("the", "a", "some", "possessive", "this")}
        if indefinite:
            weights = {name: weight for name, weight in weights.items() if name in ("a", "some", "several", "many")}
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
        return replace(phrase, determiner=self.pick(["the", "my", "this"]), numeral=numeral)

    def _possessive(self, actor: Actor | None) -> str:
        """Draw a possessive, mostly that of the subject: she loses her key."""
        if actor is None or self.chance(0.25):
            return self.pick(["my", "our", "your", "his", "her", "their"])
        gender, plural, person = actor.features
        if person == 3 and not plural:
            return "his" if gender == "m" else "her"
        return _POSSESSIVES[person, plural]

    def _adjectives(self, noun: Noun) -> tuple[Adjective, ...]:
        """Draw one to three adjectives of different kinds, at most two before the French noun and one or two after."""
        kinds = ["opinion", "size", "state", "age", "colour", "origin"]
        chosen: list[Adjective] = []
        while self.room > 0 and (not chosen or self.chance(0.25)) and len(chosen) < 3:
            adjective = self.adjective(noun.classes, kinds)
            if adjective is None:
                break
            self.room -= 1
            chosen.append(adjective)
            kinds.remove(adjective.kind)
        return tuple(chosen)

    def _owned(self, phrase: NounPhrase) -> NounPhrase:
        if self.chance(0.4):
            return replace(phrase, owner=self._name())
        self.room -= 3
        noun = self.noun(["person"])
        determiner = self.weighted({"the": 4, "a": 2, "my": 1, "our": 1, "your": 1, "his": 1, "her": 1, "this": 1})
        return replace(phrase, owner=NounPhrase(noun=noun, determiner=determiner))

    def _modifier(self, noun: Noun) -> Prepositional:
        if noun.english in _PARTS:
            self.room -= 1
            return Prepositional(PREPOSITIONS["of"], self.noun_phrase(self.noun(["building"]), "other", heavy=False))
        return self.location(small=not noun.classes.isdisjoint(("thing", "text", "food", "drink")))
