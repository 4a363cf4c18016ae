"""Asks a reader about a story that somebody typed, and shows what it looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import nn

from tfbook import runtime
from tfbook.data.stories.errand_sets import IDS, ids
from tfbook.data.stories.errands import (
    KINDS,
    NOBODY,
    WORDINGS,
    Act,
    errand_questions,
    placeholders,
    read_errand,
    read_question,
)
from tfbook.plot import AskedStory, story_view

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

    from tfbook.plot.views.story import StoryView


StandIns = Callable[[list[list[str]], dict[str, str]], list[list[str]]]  # (story, kinds) → the story without its names


@torch.no_grad()
def asked(model: nn.Module, acts: Sequence[Act], question: Act, stand_ins: StandIns | None = None) -> AskedStory:
    """The most probable of "nobody" and the story's names, and the weights of each hop on each sentence."""
    stands_for = placeholders(acts) if stand_ins is None else replaced_by(stand_ins, acts)
    rows = [part.to(runtime.device()) for part in (ids(acts, stands_for)[None], ids([question], stands_for))]
    reading = model(*rows)
    names = [*stands_for]
    chances = reading.logits[0, [IDS[stands_for[name]] for name in names]].softmax(dim=0)
    best = int(chances.argmax())
    return AskedStory(
        question=question.text(),
        answer=names[best],
        probability=float(chances[best]),
        weights=reading.weights[0].tolist(),
    )


def replaced_by(stand_ins: StandIns, acts: Sequence[Act]) -> dict[str, str]:
    """The stand-in of each name of these acts, as a reader's function replaces them."""
    kinds = {name: KINDS[slot] for act in acts for slot, name in act.names}
    story = [act.words({name: name for name in kinds}) for act in acts]
    pairs = zip(chain(*story), chain(*stand_ins(story, kinds)), strict=True)
    return {NOBODY: NOBODY} | {word: new for word, new in pairs if word in kinds}


def ask(
    model: nn.Module, story: str, questions: str | Sequence[str], stand_ins: StandIns | None = None
) -> StoryView | None:
    """A view of the story with the model's answers; prints what cannot be read, and what the story does not say."""
    try:
        acts = read_errand(story)
        read = [read_question(each, acts) for each in ([questions] if isinstance(questions, str) else questions)]
    except ValueError as error:
        print(f"○ {error}")
        return None
    told = [question for question in read if truth(acts, question) is not None]
    for question in read:
        if question not in told:
            missing = NEEDED[question.event].format(**dict(question.names))
            print(f"○ {question.text()} The story does not tell: it needs {missing}")
    if not told:
        return None
    return story_view([act.text() for act in acts], [asked(model, acts, question, stand_ins) for question in told])


NEEDED = {  # kind of question → the sentences that an answer follows from
    "person": "a sentence in which {A} goes somewhere; a home or a dream is not a walk",
    "holder": "a sentence in which somebody takes, drops, or gives {x}",
    "thing": "a sentence in which somebody takes, drops, or gives {x}, and a walk of whoever had it last",
    "before": "one walk of {A} to {p}, no more, and a walk before it",
}


def truth(acts: Sequence[Act], question: Act) -> str | None:
    """The answer that follows from these sentences; None where none does."""
    if question.event != "before":
        return next((each.answer for each in errand_questions(acts) if each.act == question), None)
    names = dict(question.names)
    walks = [act for act in acts if act.event == "go" and ("A", names["A"]) in act.names]
    went = [dict(act.names)["p"] for act in walks]
    return went[went.index(names["p"]) - 1] if went.count(names["p"]) == 1 and went[0] != names["p"] else None


def break_it(model: nn.Module, story: str, question: str, stand_ins: StandIns | None = None) -> StoryView | None:
    """A view of the story with the model's answer; prints whether the story says the same."""
    view = ask(model, story, question, stand_ins)
    if view is not None:
        acts, found = read_errand(story), view.asked[0]
        right = truth(acts, read_question(question, acts))
        says = f"it says {found.answer}, with {found.probability:.0%}"
        print(f"○ not broken: {says}, and so does the story" if found.answer == right else
              f"✓ broken: {says}, but the story says {right}")  # fmt: skip
    return view


def answers(model: nn.Module, story: str, questions: Sequence[str]) -> dict[str, str]:
    """Question → the model's answer. Raises ValueError for what cannot be read."""
    acts = read_errand(story)
    return {question: asked(model, acts, read_question(question, acts)).answer for question in questions}


def verbs() -> Styler:
    """Every wording that the world knows, by what happens."""
    import pandas as pd

    shown = {"A": "Ann", "B": "Bo", "x": "the ring", "p": "the mill"}
    rows = [
        {
            "what happens": event,
            "wordings": " · ".join(" ".join(shown.get(w, w) for w in wording.split()) for wording in each),
        }
        for event, each in WORDINGS.items()
    ]
    return pd.DataFrame(rows).set_index("what happens").style.set_properties(**{"text-align": "left"})
