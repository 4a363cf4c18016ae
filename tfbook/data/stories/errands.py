"""Errands: stories in which people walk about and things change hands, with questions that rules of thumb get wrong.

`errand(seed)` tells one, from a seed of its own: it shares no random numbers with `story`. A sentence is an `Act`: a
wording and the names in its slots. `read_errand` and `read_question` turn a reader's own text into the same, whatever
the names are. Names reach a model as numbered placeholders (Hermann et al., 2015), see `placeholders`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from tfbook.data.stories.lexicon import NAMES, NOUNS, PLACES

# Slots: A and B are people, x a thing, p a place.
WORDINGS = {
    "home": ("A lived in p", "A had a house in p"),
    "go": ("A went to p", "A walked to p", "A traveled to p", "A hurried to p", "A set off for p", "A went back to p"),
    "take": ("A took x", "A picked up x", "A got x", "A grabbed x"),
    "drop": ("A dropped x", "A put down x", "A left x there", "A threw away x"),
    "give": ("A gave x to B", "A handed x to B", "A passed x on to B"),
    "dream": ("A dreamed of p", "A talked about p", "A told B about p"),
    "want": ("A looked for x", "A asked about x", "A thought of x"),
    "idle": ("A slept", "A sang", "A wept", "A laughed"),
}
ASKING = {
    "person": "Where is A",
    "holder": "Who has x",
    "thing": "Where is x",
    "before": "Where was A before p",
}
FACTS = {"person": 1, "holder": 1, "thing": 2, "before": 2}  # how many sentences an answer follows from
KINDS = {"A": "person", "B": "person", "x": "thing", "p": "place"}
MOST = {"person": 6, "thing": 4, "place": 8}  # placeholders of each kind
NOBODY = "nobody"
LONGEST = 16  # sentences of a story, also of one that a reader types


class Act(NamedTuple):
    """One sentence: what happens, its wording with slots, and (slot, name) for each slot."""

    event: str
    wording: str
    names: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """The sentence as it is written, with its period, or a question with its question mark."""
        names = dict(self.names)
        words = " ".join(names.get(word, word) for word in self.wording.split())
        return words[0].upper() + words[1:] + ("?" if self.event in ASKING else ".")

    def words(self, stands_for: dict[str, str]) -> list[str]:
        """Its words in lower case, each name replaced by its placeholder."""
        names = dict(self.names)
        return [stands_for[names[word]] if word in names else word.lower() for word in self.wording.split()]


class ErrandQuestion(NamedTuple):
    """A question, the name (or "nobody") that answers it, and the numbers of the sentences it follows from.

    The first of these shares a name with the question, the second one with the first.
    """

    act: Act
    answer: str
    support: tuple[int, ...]

    @property
    def kind(self) -> str:
        """ "person", "holder", "thing" or "before"."""
        return self.act.event


class Errand(NamedTuple):
    """A story as a list of acts, and questions about it."""

    acts: tuple[Act, ...]
    questions: tuple[ErrandQuestion, ...] = ()

    def text(self) -> str:
        """The story as one paragraph."""
        return " ".join(act.text() for act in self.acts)


def vocabulary() -> list[str]:
    """Every word of the wordings in lower case, "nobody", and the placeholders; an index is an id, 0 is padding."""
    wordings = [*(wording for each in WORDINGS.values() for wording in each), *ASKING.values()]
    words = {word.lower() for wording in wordings for word in wording.split() if word not in KINDS}
    stand_ins = [f"{kind}{number}" for kind, most in MOST.items() for number in range(most)]
    return ["", *sorted(words), NOBODY, *stand_ins]


def placeholders(acts: Iterable[Act]) -> dict[str, str]:
    """A numbered placeholder for each name, in the order in which names appear. Raises ValueError for too many."""
    stands_for: dict[str, str] = {NOBODY: NOBODY}
    counts = dict.fromkeys(MOST, 0)
    for act in acts:
        for slot, name in act.names:
            kind = KINDS[slot]
            if name not in stands_for:
                if counts[kind] == MOST[kind]:
                    raise ValueError(f"{name!r} is {kind} number {counts[kind] + 1}; the model has {MOST[kind]}")
                stands_for[name] = f"{kind}{counts[kind]}"
                counts[kind] += 1
            elif not stands_for[name].startswith(kind):
                raise ValueError(f"{name!r} is used as a {stands_for[name].rstrip('0123456789')} and as a {kind}")
    return stands_for


# ---- telling -----------------------------------------------------------------------------------------------------


class _World:
    """Who is where, who holds what, and where each fact was told; -1 is "was not told"."""

    def __init__(self, people: Sequence[str], things: Sequence[str], places: Sequence[str], dice: random.Random):
        self.people, self.things, self.places, self.dice = people, things, places, dice
        self.at = {name: dice.choice(places) for name in people}
        self.holder: dict[str, str | None] = dict.fromkeys(things)
        self.lies = {thing: dice.choice(places) for thing in things}
        self.acts: list[Act] = []

    def tell(self, event: str, **names: str) -> None:
        """Adds a sentence in one of the event's wordings; who is told something is drawn."""
        known = {("A", names["A"]), ("p", names.get("p", ""))}
        been = any(act.event == "go" and known <= {*act.names} for act in self.acts)
        wording = self.dice.choice([each for each in WORDINGS[event] if been or "back" not in each])
        if "B" in wording.split() and "B" not in names:
            names["B"] = self.dice.choice([name for name in self.people if name != names["A"]])
        slots = [(slot, names[slot]) for slot in wording.split() if slot in KINDS]
        self.acts.append(Act(event, wording, tuple(slots)))

    def step(self) -> None:
        """One event, drawn so that things change hands often."""
        draw = self.dice.random()
        name = self.dice.choice(self.people)
        elsewhere = self.dice.choice([place for place in self.places if place != self.at[name]])
        if draw < 0.34:
            self.at[name] = elsewhere
            self.tell("go", A=name, p=elsewhere)
        elif draw < 0.64:
            self._change_hands(self.dice.choice(self.things))
        elif draw < 0.82:
            self.tell("dream", A=name, p=elsewhere)
        elif draw < 0.97:
            self.tell("want", A=name, x=self.dice.choice(self.things))
        else:
            self.tell("idle", A=name)

    def _change_hands(self, thing: str) -> None:
        holder = self.holder[thing]
        where = self.lies[thing] if holder is None else self.at[holder]
        near = [name for name in self.people if self.at[name] == where and name != holder]
        if holder is not None and near and self.dice.random() < 0.75:
            receiver = self.holder[thing] = self.dice.choice(near)
            self.tell("give", A=holder, x=thing, B=receiver)
        elif holder is not None:
            self.holder[thing], self.lies[thing] = None, where
            self.tell("drop", A=holder, x=thing)
        elif near:
            finder = self.holder[thing] = self.dice.choice(near)
            self.tell("take", A=finder, x=thing)
        else:  # somebody comes for it
            name = self.dice.choice(self.people)
            self.at[name] = where
            self.tell("go", A=name, p=where)


def errand(seed: int) -> Errand:
    """The story of this seed: two to four people, one to three things, three to five places, 4 to 16 sentences."""
    dice = random.Random(f"errand {seed}")
    people = dice.sample(NAMES, dice.randint(2, 4))
    things = [f"the {noun}" for noun in dice.sample(NOUNS, dice.randint(1, 3))]
    places = [f"the {place}" for place in dice.sample(PLACES, dice.randint(3, 5))]
    world = _World(people, things, places, dice)
    events = ["home"] * 2 + ["step"] * dice.randint(2, 14)
    dice.shuffle(events)
    residents = iter(dice.sample(people, 2))
    for event in events:
        if event == "home":
            world.tell("home", A=next(residents), p=dice.choice(places))
        else:
            world.step()
    acts = tuple(world.acts)
    asked = list(errand_questions(acts))
    return Errand(acts, tuple(dice.sample(asked, len(asked))))


# ---- asking ------------------------------------------------------------------------------------------------------


def errand_questions(acts: Sequence[Act]) -> Iterable[ErrandQuestion]:
    """Everything that these sentences answer, in the order of `ASKING`: the facts are read off the acts alone."""
    stands_for = placeholders(acts)
    for name, stand_in in stands_for.items():
        if stand_in.startswith("person"):
            yield from _about_a_person(acts, name)
        if stand_in.startswith("thing"):
            yield from _about_a_thing(acts, name)


def _about_a_person(acts: Sequence[Act], name: str) -> Iterable[ErrandQuestion]:
    if moves := _moves(acts, name, len(acts)):
        yield _asked("person", {"A": name}, dict(acts[moves[-1]].names)["p"], moves[-1:])
    if len(moves) > 2:  # with two, the other place that is named along with the person would do
        yield from _places_before(acts, name, moves)


def _about_a_thing(acts: Sequence[Act], name: str) -> Iterable[ErrandQuestion]:
    if (last := _last_hands(acts, name)) is None:
        return
    names = dict(acts[last].names)
    dropped = acts[last].event == "drop"
    holder = names.get("B", names["A"])
    yield _asked("holder", {"x": name}, NOBODY if dropped else holder, [last])
    if came := _moves(acts, holder, last if dropped else len(acts)):
        yield _asked("thing", {"x": name}, dict(acts[came[-1]].names)["p"], [last, came[-1]])


def _places_before(acts: Sequence[Act], name: str, moves: Sequence[int]) -> Iterable[ErrandQuestion]:
    went = [dict(acts[move].names)["p"] for move in moves]
    for number in range(1, len(moves)):
        if went.count(went[number]) == 1:
            names = {"A": name, "p": went[number]}
            yield _asked("before", names, went[number - 1], [moves[number], moves[number - 1]])


def _asked(kind: str, names: dict[str, str], answer: str, support: Sequence[int]) -> ErrandQuestion:
    return ErrandQuestion(Act(kind, ASKING[kind], tuple(names.items())), answer, tuple(support))


def _moves(acts: Sequence[Act], name: str, before: int) -> list[int]:
    return [n for n, act in enumerate(acts[:before]) if act.event == "go" and ("A", name) in act.names]


def _last_hands(acts: Sequence[Act], thing: str) -> int | None:
    events = ("take", "drop", "give")
    found = [n for n, act in enumerate(acts) if act.event in events and ("x", thing) in act.names]
    return found[-1] if found else None


# ---- reading what somebody typed ---------------------------------------------------------------------------------

_NAME = r"(?:[Tt]he )?\w[\w'’-]*(?: [A-Z][\w'’-]*)?"  # Bilbo, the ring, Mount Doom, the Grey Havens


@cache
def _pattern(wording: str) -> re.Pattern[str]:
    parts = [rf"(?P<{word}>{_NAME})" if word in KINDS else re.escape(word) for word in wording.split()]
    return re.compile(" ".join(parts))


def read_errand(text: str) -> tuple[Act, ...]:
    """The acts of a story whose sentences end with periods. Raises ValueError, naming a sentence it cannot read."""
    sentences = [" ".join(each.split()) for each in re.split(r"[.!;\n]", text) if each.strip()]
    acts = tuple(_read(sentence) for sentence in sentences)
    if not 0 < len(acts) <= LONGEST:
        raise ValueError(f"the story has {len(acts)} sentences; expected 1 to {LONGEST}")
    placeholders(acts)
    return acts


def _read(sentence: str) -> Act:
    for event, wordings in WORDINGS.items():
        for wording in wordings:
            if match := _pattern(wording).fullmatch(sentence):
                return Act(event, wording, tuple((slot, _plain(name)) for slot, name in match.groupdict().items()))
    verbs = ", ".join(
        " ".join(w for w in wording.split() if w not in KINDS) for e in WORDINGS.values() for wording in e
    )
    raise ValueError(f"no wording fits {sentence + '.'!r}. After a name, the world knows: {verbs}")


def _plain(name: str) -> str:
    return name[0].lower() + name[1:] if name.startswith("The ") else name


def read_question(text: str, acts: Sequence[Act]) -> Act:
    """A question about these acts. Raises ValueError where it is none of the four, or asks about an unknown name."""
    asked = re.sub(r"\s*(now|at the end)?\s*\?*\s*$", "", " ".join(text.split()))
    stands_for = placeholders(acts)
    kinds = {name: stand_in.rstrip("0123456789") for name, stand_in in stands_for.items()}
    for kind, wording in ASKING.items():
        if match := _pattern(wording).fullmatch(asked):
            names = {slot: _plain(name) for slot, name in match.groupdict().items()}
            if all(kinds.get(name) == KINDS[slot] for slot, name in names.items()):
                return Act(kind, wording, tuple(names.items()))
    known = ", ".join(name for name in stands_for if name != NOBODY)
    forms = ", ".join(f"{wording}?" for wording in ASKING.values())
    raise ValueError(f"cannot read {text!r}; ask {forms} (A a person, x a thing, p a place) about {known}")
