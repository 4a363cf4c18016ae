"""Asks a reader about a story that somebody typed, and shows what it looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from tfbook import runtime
from tfbook.data.stories.errand_sets import IDS, ids
from tfbook.data.stories.errands import (
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


@torch.no_grad()
def asked(model: nn.Module, acts: Sequence[Act], question: Act) -> AskedStory:
    """The most probable of "nobody" and the story's names, and the weights of each hop on each sentence."""
    stands_for = placeholders(acts)
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


def ask(model: nn.Module, story: str, questions: str | Sequence[str]) -> StoryView | None:
    """A view of the story with the model's answers; prints what cannot be read, and what the story does not say."""
    try:
        acts = read_errand(story)
        read = [read_question(each, acts) for each in ([questions] if isinstance(questions, str) else questions)]
    except ValueError as error:
        print(f"○ {error}")
        return None
    told = [question for question in read if is_told(acts, question)]
    for question in read:
        if question not in told:
            missing = NEEDED[question.event].format(**dict(question.names))
            print(f"○ {question.text()} The story does not tell: it needs {missing}")
    if not told:
        return None
    return story_view([act.text() for act in acts], [asked(model, acts, question) for question in told])


NEEDED = {  # kind of question → the sentences that an answer follows from
    "person": "a sentence in which {A} goes somewhere; a home or a dream is not a walk",
    "holder": "a sentence in which somebody takes, drops or gives {x}",
    "thing": "a sentence in which somebody takes, drops or gives {x}, and a walk of whoever had it last",
    "before": "one walk of {A} to {p}, no more, and a walk before it",
}


def is_told(acts: Sequence[Act], question: Act) -> bool:
    """Whether an answer follows from these sentences."""
    if question.event != "before":
        return any(each.act == question for each in errand_questions(acts))
    names = dict(question.names)
    walks = [act for act in acts if act.event == "go" and ("A", names["A"]) in act.names]
    went = [dict(act.names)["p"] for act in walks]
    return went.count(names["p"]) == 1 and went[0] != names["p"]


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
