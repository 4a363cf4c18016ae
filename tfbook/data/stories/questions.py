"""Questions about a story with answers and the sentences that support them, and endings to choose from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from tfbook.data.stories.lexicon import sentences, written
from tfbook.data.stories.teller import Story, phrase
from tfbook.data.stories.world import EVENTS, Slot

ASKED = (  # the words of the questions
    "What animal is it? Where did they live? Where did they meet? Who has the thing at the end? "
    "Does the story end well? yes no",
)


class Question(NamedTuple):
    """A question, its answer in one word, and the numbers of the sentences from which it follows."""

    kind: str  # "home", "animal", "meeting", "owner" or "ending"
    text: str
    answer: str
    support: tuple[int, ...]


class Endings(NamedTuple):
    """A story without its last event, the ending that follows from it and one that contradicts it."""

    beginning: str
    right: str
    wrong: str


def questions(story: Story) -> list[Question]:
    """Everything that can be asked: where characters live, what they are, where they met, who has what, how it ends."""
    return [*_about_people(story), *_about_meetings(story), *_about_things(story), _about_the_end(story)]


def _about_people(story: Story) -> Iterator[Question]:
    for name, person in story.state.people.items():
        first = next(number for number, told in enumerate(story.told) if name in told.roles.values())
        yield Question("animal", f"What animal is {name}?", person.species, _sentences(story, first))
        if home := story.state.facts.get(("home", name)):
            yield Question("home", f"Where did {name} live?", home, _sentences(story, first))


def _about_meetings(story: Story) -> Iterator[Question]:
    for number, told in enumerate(story.told):
        if told.event == "meet":
            A, B, place = told.roles["A"], told.roles["B"], told.roles["p"]
            came = _last_change(story, "at", A, before=number)
            support = _sentences(story, came, number)
            yield Question("meeting", f"Where did {A} meet {B}?", place, support)


def _about_things(story: Story) -> Iterator[Question]:
    for noun in story.state.things:
        if owner := story.state.facts.get(("owner", noun)):
            support = _sentences(story, _last_change(story, "owner", noun, before=len(story.told)))
            yield Question("owner", f"Who has the {noun} at the end?", owner, support)


def _about_the_end(story: Story) -> Question:
    answer = "yes" if story.happy else "no"
    return Question("ending", "Does the story end well?", answer, _sentences(story, len(story.told) - 1))


def _last_change(story: Story, predicate: str, of: str, *, before: int) -> int:
    """The last event before this number that established a fact."""
    return max(
        number
        for number, told in enumerate(story.told[:before])
        for change in EVENTS[told.event].changes
        if not change.sign and change.predicate == predicate and told.roles.get(change.of) == of
    )


def _sentences(story: Story, *events: int) -> tuple[int, ...]:
    """The numbers of the sentences that tell these events, from 0."""
    spans = [(story.told[event].begin, story.told[event].end) for event in events]
    found, at = [], 0
    for number, sentence in enumerate(sentences(story.words)):
        if any(begin <= at < end for begin, end in spans):
            found.append(number)
        at += len(sentence)
    return tuple(found)


def endings(story: Story, *, seed: int = 0) -> Endings:
    """A tale's own last event, and one that its facts rule out: a good end with trouble left, or a bad one without."""
    last = story.told[-1]
    event = EVENTS["sadend" if story.happy else "happyalone"]
    wording = random.Random(seed).choice([wording for wording in event.wordings["tale"] if wording.roles == {"A"}])
    hero = story.state.people[last.roles["A"]]
    wrong = [
        word
        for piece in wording.pieces
        for word in (phrase(hero, piece.part or "name") if isinstance(piece, Slot) else piece[0])
    ]
    return Endings(written(story.words[: last.begin]), written(story.words[last.begin :]), written(wrong))
