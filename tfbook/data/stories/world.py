"""The physics of the story world: events with needs and changes, facts, and recent mentions.

The events stand in `events.txt`, which says how they are written. The teller and the checker share this module: one
table is both grammar and physics, so a story that is told by it can be read by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tfbook.data.stories.lexicon import ABLE, MEAN, Person, Thing, Value, key, words_of

Fact = tuple[str, str]  # a predicate and what it is said of, such as ("owner", "kite")
DIALECTS = {"-": "tale", ">": "play"}
PEOPLE, THINGS = "ABC", "oq"


@dataclass(frozen=True)
class Need:
    """A condition on facts: `sign` is "", "not" or "no"; without a value, any will do."""

    sign: str
    predicate: str
    of: str
    value: str = ""

    @cached_property
    def roles(self) -> set[str]:
        """The roles it refers to."""
        return {name for name in (self.of, self.value) if len(name) == 1}


class Slot(NamedTuple):
    """A slot in a wording, filled by whatever plays a role."""

    role: str
    part: str


Piece = Slot | tuple[tuple[str, ...], ...]  # one of several runs of words


@dataclass(frozen=True)
class Wording:
    """One way of telling an event."""

    text: str
    pieces: tuple[Piece, ...]
    roles: frozenset[str]
    subject: str | None  # the first character of its last sentence, whom a pronoun may mean in the next
    leans: tuple[Slot, ...]  # pronouns that come before their character's name

    @property
    def slots(self) -> Iterator[Slot]:
        """Its slots, in order."""
        return (piece for piece in self.pieces if isinstance(piece, Slot))


@dataclass(frozen=True)
class Event:
    """Something that happens: what it needs, what it changes, how each dialect tells it."""

    name: str
    needs: tuple[Need, ...]
    changes: tuple[Need, ...]
    wordings: Mapping[str, tuple[Wording, ...]]


class Told(NamedTuple):
    """An event of a story: who and what played its roles, and which tokens tell it."""

    event: str
    roles: dict[str, str]
    begin: int
    end: int


# ---- reading the table -----------------------------------------------------------------------------------------------

_PIECE = re.compile(r"\{(\w)(?:\.(\w+))?\}|\[([^\]]*)\]|([^{\[]+)")
_LAST_SENTENCE = re.compile(r".*[.!?] (?!”)", re.DOTALL)


def _need(text: str) -> Need:
    words = text.replace(" = ", " ").split()
    sign = words.pop(0) if words[0] in ("not", "no") else ""
    return Need(sign, *words)


def _needs(text: str) -> tuple[Need, ...]:
    return tuple(_need(part.strip()) for part in text.split(",") if part.strip())


def _slots(text: str) -> list[Slot]:
    return [Slot(match[1], match[2] or "") for match in _PIECE.finditer(text) if match[1]]


def _wording(text: str) -> Wording:
    pieces: list[Piece] = []
    for match in _PIECE.finditer(text):
        if match[1]:
            pieces.append(Slot(match[1], match[2] or ""))
        elif (words := match[3] or match[4]).strip():
            pieces.append(tuple(tuple(words_of(run)) for run in words.split("|")))
    last = [slot.role for slot in _slots(_LAST_SENTENCE.sub("", text)) if slot.role in PEOPLE]
    named: set[str] = set()
    leans = []
    for slot in _slots(text):
        if slot.role in PEOPLE and slot.part in ("he", "his", "him") and slot.role not in named:
            leans.append(slot)
        named.add(slot.role)
    return Wording(text, tuple(pieces), frozenset(named), last[0] if last else None, tuple(leans))


def _event(block: str) -> Event:
    header, *lines = block.splitlines()
    name, needs, changes = (part.strip() for part in header.split("|"))
    wordings = {
        dialect: tuple(_wording(line[1:].strip()) for line in lines if line[0] == mark)
        for mark, dialect in DIALECTS.items()
    }
    return Event(name, _needs(needs), _needs(changes), wordings)


def _read(path: Path) -> dict[str, Event]:
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    events = (_event(block) for block in text.strip().split("\n\n"))
    return {event.name: event for event in events}


EVENTS = _read(Path(__file__).with_name("events.txt"))


# ---- facts -----------------------------------------------------------------------------------------------------------


@dataclass
class State:
    """The facts of a story so far, the known characters and objects, and the most recent mentions."""

    facts: dict[Fact, str] = field(default_factory=dict)
    people: dict[str, Person] = field(default_factory=dict)
    things: dict[str, Thing] = field(default_factory=dict)
    subject: str | None = None
    object: str | None = None
    spoken: frozenset[str] = frozenset()

    def unmet(self, event: Event, roles: Mapping[str, Value]) -> list[Need]:
        """The needs of the event that do not hold; needs about roles that are not given are skipped."""
        return [need for need in event.needs if need.roles <= roles.keys() and not self._holds(need, roles)]

    def _holds(self, need: Need, roles: Mapping[str, Value]) -> bool:
        of = key(roles[need.of])
        value = key(roles[need.value]) if need.value in roles else need.value
        match need.predicate:
            case "new":
                return of not in self.people
            case "known":
                return of in self.people
            case "free":
                return ("owner", of) not in self.facts and ("lies", of) not in self.facts
            case "near":
                return self.facts.get(("at", of)) == self.facts.get(("at", value))
            case "able" | "unable":
                able = of in self.people and self.people[of].species in ABLE[value]
                return able == (need.predicate == "able")
            case "nature":
                return of in self.people and self.nature(of) == value
        found = self.facts.get((need.predicate, of))
        agrees = found == value if value else found is not None
        return agrees == (need.sign == "")

    def may_mean(self, pronoun: str, name: str) -> bool:
        """Whether he, she, him, her or his at the beginning of an event can only mean this character."""
        if pronoun == "him":
            return name in self.spoken and name != self.subject
        return name == self.subject

    def nature(self, name: str) -> str:
        """Whether a character is "kind" or "mean"."""
        return "mean" if self.people[name].trait in MEAN else "kind"

    def apply(self, event: Event, roles: Mapping[str, Value], wording: Wording) -> None:
        """Applies the event's changes and updates who was mentioned last."""
        for value in roles.values():
            if isinstance(value, Person):
                self.people.setdefault(value.name, value)
            elif isinstance(value, Thing):
                self.things.setdefault(value.noun, value)
        for change in event.changes:
            if change.roles <= roles.keys():
                fact = (change.predicate, key(roles[change.of]))
                if change.sign:
                    self.facts.pop(fact, None)
                else:
                    self.facts[fact] = key(roles[change.value]) if change.value in roles else change.value
        self._speak_of(roles, wording)

    def _speak_of(self, roles: Mapping[str, Value], wording: Wording) -> None:
        people = frozenset(key(roles[role]) for role in wording.roles if role in PEOPLE and role in roles)
        things = [slot.role for slot in wording.slots if slot.role in THINGS and slot.role in roles]
        self.spoken = people or self.spoken
        subject = roles.get(wording.subject) if wording.subject else None
        self.subject = key(subject) if subject else None
        self.object = key(roles[things[-1]]) if things else self.object
