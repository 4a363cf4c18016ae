"""Reads a story back and counts what contradicts its facts.

The wordings of `events.txt` become patterns; of what a sentence may mean, the reading with the fewest faults counts.
A story is consistent when every sentence can be read, no need of an event is broken, and it ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

from tfbook.data.stories.lexicon import (
    KIND,
    LOOKS,
    MALE,
    MEAN,
    NAMES,
    NOUNS,
    OBSTACLES,
    PREPOSITIONS,
    PRONOUNS,
    SPECIES,
    SPOTS,
    TASTES,
    USES,
    Person,
    Thing,
    Value,
    key,
    sentences,
    words_of,
)
from tfbook.data.stories.world import EVENTS, PEOPLE, THINGS, Event, Need, Slot, State, Told, Wording

KINDS = {  # of faults, by what is not so
    "name": ("new", "known"),
    "thing": ("owner", "lies", "free", "spot", "knows", "holds", "prize"),
    "place": ("at", "near", "home"),
    "ability": ("able", "unable", "way"),
    "nature": ("nature",),
    "plot": ("trouble", "broken", "asleep", "end"),
}
_KIND_OF = {predicate: kind for kind, predicates in KINDS.items() for predicate in predicates}


class Fault(NamedTuple):
    """A fault with its location; its kind is one of `KINDS`, "pronoun" or "use"."""

    kind: str
    words: str


@dataclass(frozen=True)
class Verdict:
    """The events and faults read from a story."""

    told: tuple[Told, ...]
    faults: tuple[Fault, ...]
    unread: tuple[str, ...]  # sentences that the world never tells
    sentences: int
    ended: bool
    state: State

    @property
    def consistent(self) -> bool:
        """True if every sentence could be read, nothing is contradicted, and the story has an end."""
        return self.ended and not self.faults and not self.unread

    def free_of(self, *kinds: str) -> bool:
        """True if the story has no fault of these kinds."""
        return not any(fault.kind in kinds for fault in self.faults)


def check_story(story: str | Sequence[str]) -> Verdict:
    """Read a story, as text or as words, in either dialect."""
    words = words_of(story) if isinstance(story, str) else list(story)
    text, at = "".join(f"{word} " for word in words), 0
    state, told, faults, unread = State(), list[Told](), list[Fault](), list[str]()
    while at < len(text):
        readings = list(_readings(text, at, state))
        if not readings:
            sentence = " ".join(sentences(text[at:].split())[0])
            unread.append(sentence)
            faults += [Fault("name", sentence) for word in sentence.split() if _stranger(word, state)]
            at += len(sentence) + 1
            continue
        best = min(readings, key=lambda reading: len(reading.faults))
        ended = any(predicate == "end" for predicate, _ in state.facts)
        kinds = [*best.faults, "plot"] if ended else best.faults
        faults += [Fault(kind, text[at : best.end].strip()) for kind in kinds]
        begin, end = text[:at].count(" "), text[: best.end].count(" ")
        told.append(Told(best.event.name, {role: key(value) for role, value in best.roles.items()}, begin, end))
        state.apply(best.event, best.roles, best.wording)
        at = best.end
    closes = bool(told) and told[-1].end == len(words) and any(predicate == "end" for predicate, _ in state.facts)
    return Verdict(tuple(told), tuple(faults), tuple(unread), len(sentences(words)), closes, state)


def _stranger(word: str, state: State) -> bool:
    return word in NAMES and word not in state.people


# ---- patterns --------------------------------------------------------------------------------------------------------


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_NAME, _KIN, _TRAIT, _NOUN = map(_any, (NAMES, SPECIES, {*KIND, *MEAN}, NOUNS))
_LOOK, _PLACE, _SPOT, _USE = map(_any, ({*LOOKS, *TASTES}, PREPOSITIONS, SPOTS, set(USES.values())))
_PERSON = {
    "": f"{_NAME}|he|she|the (?:{_KIN})",
    "to": f"{_NAME}|the (?:{_KIN})",
    "name": _NAME,
    "a": f"an? (?:{_TRAIT}) (?:{_KIN})",
    "kin": f"an? (?:{_KIN})",
} | {part: "|".join(words) for part, words in PRONOUNS.items()}
_THING = {
    "": f"the (?:(?:{_LOOK}) )?(?:{_NOUN})|it",
    "to": f"the (?:(?:{_LOOK}) )?(?:{_NOUN})",
    "a": f"an? (?:{_LOOK}) (?:{_NOUN})",
    "noun": _NOUN,
    "full": f"(?:{_LOOK}) (?:{_NOUN})",
    "use": _USE,
}


def _slot_pattern(slot: Slot) -> str:
    if slot.role in PEOPLE:
        return _PERSON[slot.part]
    if slot.role in THINGS:
        return _THING[slot.part]
    if slot.role == "k":
        return _any(words[slot.part] for words in OBSTACLES.values())
    if slot.role == "s":
        return _SPOT
    return f"(?:in|at|by|on) the (?:{_PLACE})" if slot.part == "in" else f"the (?:{_PLACE})"


def _pattern(wording: Wording) -> re.Pattern[str]:
    pattern = ""
    for piece in wording.pieces:
        if isinstance(piece, Slot):
            pattern += f"({_slot_pattern(piece)}) "
        else:
            pattern += f"(?:{_any(' '.join(run) for run in piece)}) "
    return re.compile(pattern)


@cache
def _patterns() -> list[tuple[Event, Wording, re.Pattern[str]]]:
    return [
        (event, wording, _pattern(wording))
        for event in EVENTS.values()
        for wordings in event.wordings.values()
        for wording in wordings
    ]


# ---- what a match may mean -------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """One reading of the words up to `end`: who plays which role, and the faults it implies."""

    event: Event
    wording: Wording
    end: int
    roles: dict[str, Value]
    faults: list[str]


def _readings(text: str, at: int, state: State) -> Iterator[Reading]:
    """The readings of the longest run of words that the world could have told."""
    found = [(match, event, wording) for event, wording, pattern in _patterns() if (match := pattern.match(text, at))]
    longest = max((match.end() for match, _, _ in found), default=at)
    for match, event, wording in found:
        if match.end() == longest:
            names = _Names(event, state)
            for slot, words in zip(wording.slots, match.groups(), strict=True):
                names.hear(slot, words)
            roles, unmet = _completed(event, names.finished(), state)
            faults = names.faults + [_KIND_OF[need.predicate] for need in unmet]
            yield Reading(event, wording, longest, roles, faults)


class _Names:
    """Resolves whom and what the slots of a wording name, and records disagreements."""

    def __init__(self, event: Event, state: State):
        self.state, self.roles, self.faults = state, dict[str, Value](), list[str]()
        self.new = {need.of for need in event.needs if need.predicate in ("new", "free")}
        self.described = dict[str, tuple[str, str]]()  # trait and species of newcomers
        self.pronouns = list[tuple[str, str]]()
        self.uses = list[tuple[str, str]]()

    def hear(self, slot: Slot, words: str) -> None:
        """Resolves one slot."""
        if slot.role in PEOPLE:
            self._person(slot, words)
        elif slot.role in THINGS:
            self._thing(slot, words)
        elif slot.role == "k":
            obstacle = next(name for name, parts in OBSTACLES.items() if parts[slot.part] == words)
            self._agree(slot.role, obstacle, "ability")
        elif slot.role == "s":
            self._agree(slot.role, words, "thing")
        else:
            preposition, place = words.split()[0], words.split()[-1]
            self._agree(slot.role, place, "place")
            if slot.part == "in" and preposition != PREPOSITIONS[place]:
                self.faults.append("place")

    def _agree(self, role: str, value: Value, kind: str) -> None:
        if key(self.roles.setdefault(role, value)) != key(value):
            self.faults.append(kind)

    def _person(self, slot: Slot, words: str) -> None:
        last = words.split()[-1]
        if slot.part == "a":
            _, trait, species = words.split()
            self.described[slot.role] = trait, species
        elif slot.part == "kin":
            person = self.roles.get(slot.role)
            if isinstance(person, Person) and person.species != last:
                self.faults.append("name")
        elif words in NAMES:
            self._agree(slot.role, self._known(slot.role, words), "name")
        elif words.startswith("the "):
            same = [person for person in self.state.people.values() if person.species == last]
            if same:
                self._agree(slot.role, same[0], "name")
            else:
                self.faults.append("name")
        else:
            self._pronoun(slot, words)

    def _known(self, role: str, name: str) -> Person:
        if name not in self.state.people and role not in self.new:
            self.faults.append("name")
        return self.state.people.get(name) or Person(name, "?", "?")

    def _pronoun(self, slot: Slot, words: str) -> None:
        if slot.part == "" and (self.roles.keys() | self.described) & set(PEOPLE):
            self.faults.append("pronoun")  # it would mean who was named before it
        if slot.part == "" or slot.role not in self.roles | self.described:
            part = slot.part or "he"
            meant = [name for name in self.state.people if self.state.may_mean(part, name)]
            agreeing = [name for name in meant if (name in MALE) == (words in ("he", "him", "his"))]
            if not agreeing:
                self.faults.append("pronoun")
                return
            self._agree(slot.role, self.state.people[agreeing[0]], "pronoun")
        self.pronouns.append((slot.role, words))

    def _thing(self, slot: Slot, words: str) -> None:
        if slot.part == "use":
            self.uses.append((slot.role, words))
        elif words == "it":
            if self.state.object is None:
                self.faults.append("thing")
            else:
                self._agree(slot.role, self.state.things[self.state.object], "thing")
        else:
            *before, noun = words.split()
            look = before[-1] if before and before[-1] not in ("the", "a", "an") else ""
            known = self.state.things.get(noun)
            if (known is None and slot.role not in self.new) or (known and look and known.look != look):
                self.faults.append("thing")
            self._agree(slot.role, known or Thing(noun, look), "thing")

    def finished(self) -> dict[str, Value]:
        """The characters and objects named, new ones with their description."""
        for role, (trait, species) in self.described.items():
            person = self.roles.get(role)
            if isinstance(person, Person) and person.species == "?":
                self.roles[role] = Person(person.name, species, trait)
        for role, words in self.pronouns:
            name = key(self.roles[role]) if role in self.roles else ""
            if (name in MALE) != (words in ("he", "him", "his")):
                self.faults.append("pronoun")
        for role, use in self.uses:
            if role in self.roles and USES[key(self.roles[role])] != use:
                self.faults.append("use")
        return self.roles


def _completed(event: Event, roles: dict[str, Value], state: State) -> tuple[dict[str, Value], list[Need]]:
    """Fills the roles that the words leave open so that the fewest needs are violated."""
    unsaid = sorted({role for need in (*event.needs, *event.changes) for role in need.roles} - roles.keys())
    taken = {key(value) for value in roles.values()}
    best: tuple[dict[str, Value], list[Need]] | None = None
    for chosen in product(*(_candidates(role, state, taken) for role in unsaid)):
        if len({key(value) for value in chosen}) < len(chosen):
            continue
        full = roles | dict(zip(unsaid, chosen, strict=True))
        unmet = state.unmet(event, full)
        if best is None or len(unmet) < len(best[1]):
            best = full, unmet
        if not unmet:
            break
    return best or (roles, state.unmet(event, roles))


def _candidates(role: str, state: State, taken: set[str]) -> list[Value]:
    """The known characters and objects, most recently mentioned first."""
    values: list[Value]
    if role in PEOPLE:
        values = [state.people[name] for name in sorted(state.people, key=lambda name: name != state.subject)]
    elif role in THINGS:
        values = [state.things[noun] for noun in sorted(state.things, key=lambda noun: noun != state.object)]
    else:
        predicates = {"p": ("at", "lies", "home"), "s": ("spot",), "k": ("way",)}[role]
        values = [value for (predicate, _), value in state.facts.items() if predicate in predicates]
    return [value for value in dict.fromkeys(values) if key(value) not in taken]


def summary(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """The share of sentences that can be read, and of stories that end, get each kind of thing right, are consistent.

    Raises ValueError for no stories.
    """
    count = len(verdicts)
    if not count:
        raise ValueError("verdicts is empty; expected one story or more")

    def share(*kinds: str) -> float:
        return sum(verdict.free_of(*kinds) for verdict in verdicts) / count

    read = sum(verdict.sentences for verdict in verdicts)
    return {
        "sentences": 1 - sum(len(verdict.unread) for verdict in verdicts) / max(1, read),
        "ends": sum(verdict.ended for verdict in verdicts) / count,
        "names": share("name"),
        "pronouns": share("pronoun"),
        "things": share("thing", "use"),
        "places": share("place"),
        "plot": share("plot", "nature", "ability"),
        "consistent": sum(verdict.consistent for verdict in verdicts) / count,
    }
