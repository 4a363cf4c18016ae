"""Stories told from a plan over the world's facts, deterministic from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tfbook.checks import check_positive
from tfbook.data.stories.lexicon import (
    FOOD,
    KIND,
    LOOKS,
    MALE,
    NAMES,
    NOUNS,
    OBSTACLES,
    PLACES,
    PREPOSITIONS,
    PRONOUNS,
    SPECIES,
    SPEECH,
    TASTES,
    USES,
    Person,
    Thing,
    Value,
    article,
    key,
    written,
)
from tfbook.data.stories.world import EVENTS, PEOPLE, THINGS, Slot, State, Told, Wording

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class World:
    """The difficulty of the world and its style of telling. Raises ValueError for sizes that leave no story.

    More names and places are harder to keep apart; `by_species` is how often a character is called "the fox" instead of
    by its name; `rare` tells stories whose characters and things are all combinations (name and species, look and noun)
    that other stories never hold.
    """

    names: int = 24  # of 60, common ones first
    places: int = len(PLACES)
    things: int = len(NOUNS)
    by_species: float = 0.0
    dialect: str = "tale"  # or "play"
    rare: bool = False
    shortest: int = 45  # tokens
    longest: int = 124

    def __post_init__(self) -> None:
        check_positive(names=self.names, places=self.places, shortest=self.shortest)
        if not 8 <= self.names <= len(NAMES):
            raise ValueError(f"names is {self.names}; expected 8 to {len(NAMES)}")
        if not 8 <= self.places <= len(PLACES):
            raise ValueError(f"places is {self.places}; expected 8 to {len(PLACES)}")
        if not 8 <= self.things <= len(NOUNS):
            raise ValueError(f"things is {self.things}; expected 8 to {len(NOUNS)}")
        if not 0 <= self.by_species <= 1:
            raise ValueError(f"by_species is {self.by_species}; expected 0 to 1")
        if self.dialect not in ("tale", "play"):
            raise ValueError(f"dialect is {self.dialect!r}; expected 'tale' or 'play'")
        if self.longest < max(100, self.shortest):
            raise ValueError(f"longest is {self.longest}; expected {max(100, self.shortest)} or more")


@dataclass(frozen=True)
class Story:
    """A story with its facts as of its end."""

    words: tuple[str, ...]
    plot: str
    told: tuple[Told, ...]
    state: State
    bits: float  # −log₂ of the probability of what was drawn, which bounds the story's information from above

    @property
    def text(self) -> str:
        """The text with capitals and spacing as a person would write it."""
        return written(self.words)

    @property
    def happy(self) -> bool:
        """True if the story ends well."""
        return "happy" in (value for (predicate, _), value in self.state.facts.items() if predicate == "end")


class Stuck(Exception):
    """A plan found nobody to play a part; the story is drawn again."""


@dataclass
class Teller:
    """Draws and tells one story; `draws` counts the bits."""

    world: World
    random: random.Random
    state: State = field(default_factory=State)
    words: list[str] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    bits: float = 0.0
    used: set[str] = field(default_factory=set)

    # ---- what is drawn

    def one(self, of: Sequence[T]) -> T:
        """One of several, all equally likely. Raises Stuck when there is none."""
        if not of:
            raise Stuck
        self.bits += math.log2(len(of))
        return of[int(self.random.random() * len(of))]

    def chance(self, p: float) -> bool:
        """True with probability p."""
        if not 0 < p < 1:
            return p == 1
        happens = self.random.random() < p
        self.bits -= math.log2(p if happens else 1 - p)
        return happens

    def new(self, of: Iterable[str]) -> str:
        """One that the story has not used."""
        found = self.one([word for word in of if word not in self.used])
        self.used.add(found)
        return found

    def ranked(self, of: Sequence[str]) -> str:
        """One that the story has not used, the first ones most often: as in life, few are common and most are rare."""
        weights = {word: 1 / (4 + rank) for rank, word in enumerate(of) if word not in self.used}
        if not weights:
            raise Stuck
        (found,) = self.random.choices(tuple(weights), tuple(weights.values()))
        self.bits -= math.log2(weights[found] / sum(weights.values()))
        self.used.add(found)
        return found

    def place(self) -> str:
        """A new place."""
        return self.ranked(PLACES[: self.world.places])

    def person(self, traits: Iterable[str] = KIND, species: Iterable[str] = SPECIES) -> Person:
        """A new character."""
        name = self.ranked(NAMES[: self.world.names])
        fitting = [kin for kin in species if Person(name, kin, "").rare == self.world.rare]
        return Person(name, self.new(fitting), self.new(traits))

    def thing(self, of: Collection[str] = NOUNS) -> Thing:
        """A new object, one of these."""
        noun = self.ranked([noun for noun in NOUNS[: self.world.things] if noun in of])
        looks = TASTES if noun in FOOD else LOOKS
        return Thing(noun, self.new([look for look in looks if Thing(noun, look).rare == self.world.rare]))

    # ---- what is told

    def say(self, name: str, **roles: Value) -> None:
        """Tell an event. Raises ValueError when the facts do not allow it: the plan has a fault."""
        event = EVENTS[name]
        if unmet := self.state.unmet(event, roles):
            raise ValueError(f"{name} needs {unmet[0]}, which is not so with {roles}")
        wording = self.one([form for form in event.wordings[self.world.dialect] if self._fits(form, roles)])
        begin = len(self.words)
        self.words += self._words(wording, roles)
        self.state.apply(event, roles, wording)
        self.told.append(Told(name, {role: key(value) for role, value in roles.items()}, begin, len(self.words)))

    def _fits(self, wording: Wording, roles: Mapping[str, Value]) -> bool:
        """True if every role is filled and a pronoun that precedes its name is unambiguous."""
        return wording.roles <= roles.keys() and all(
            self.state.may_mean(slot.part, key(roles[slot.role])) for slot in wording.leans
        )

    def _words(self, wording: Wording, roles: Mapping[str, Value]) -> list[str]:
        words: list[str] = []
        named: set[str] = set()
        for piece in wording.pieces:
            if isinstance(piece, Slot):
                alike = PEOPLE if piece.role in PEOPLE else THINGS
                free = named.isdisjoint(alike) and not (words and words[-1] in SPEECH)
                words += self._phrase(roles[piece.role], piece.part, free)
                named.add(piece.role)
            else:
                words += self.one(piece)
        return words

    def _phrase(self, value: Value, part: str, free: bool) -> Sequence[str]:
        """The words for one slot; `free` allows a pronoun."""
        if isinstance(value, Person):
            if not part and free and value.name == self.state.subject and self.chance(0.5):
                part = "he"
            elif part in ("", "to"):
                known = value.name in self.state.people
                part = "the" if known and self.chance(self.world.by_species) else "name"
        elif isinstance(value, Thing) and part in ("", "to"):
            if not part and free and value.noun == self.state.object and self.chance(0.3):
                return ("it",)
            part = "the full" if self.chance(0.25) else "the"
        return phrase(value, part)


def phrase(value: Value, part: str) -> Sequence[str]:
    """The words for a person, a thing, a place, a spot or an obstacle."""
    if isinstance(value, Person):
        he = value.name in MALE
        match part:
            case "name":
                return (value.name,)
            case "a":
                return (article(value.trait), value.trait, value.species)
            case "kin":
                return (article(value.species), value.species)
            case "the":
                return ("the", value.species)
        return (PRONOUNS[part][he],)
    if isinstance(value, Thing):
        match part:
            case "a":
                return (article(value.look), value.look, value.noun)
            case "noun":
                return (value.noun,)
            case "full":
                return (value.look, value.noun)
            case "use":
                return (USES[value.noun],)
            case "the":
                return ("the", value.noun)
        return ("the", value.look, value.noun)
    if value in OBSTACLES:
        return OBSTACLES[value][part].split()
    if value in PREPOSITIONS:
        return (PREPOSITIONS[value], "the", value) if part == "in" else ("the", value)
    return value.split()
