"""Rules of thumb that answer questions about errands without reading them, to see what a network has to beat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tfbook.data.stories.errand_sets import ErrandSet
from tfbook.data.stories.errands import ASKING, KINDS, NOBODY, Act, Errand, ErrandQuestion

Rule = Callable[[Sequence[Act], Act], str]


def candidates(acts: Iterable[Act], question: Act) -> list[str]:
    """The names in these sentences that could answer: people for "Who has …?", else places; none of the question's."""
    kind = "person" if question.event == "holder" else "place"
    asked = {name for _, name in question.names}
    return [name for act in acts for slot, name in act.names if KINDS[slot] == kind and name not in asked]


def beside(acts: Sequence[Act], question: Act) -> list[str]:
    """The candidates in sentences that share a name with the question; all candidates where there are none."""
    asked = {name for _, name in question.names}
    near = [act for act in acts if asked & {name for _, name in act.names}]
    return candidates(near, question) or candidates(acts, question)


def _first(names: Sequence[str]) -> str:
    return names[0] if names else NOBODY


def _last(names: Sequence[str]) -> str:
    return names[-1] if names else NOBODY


def _most(names: Sequence[str]) -> str:
    return Counter(names).most_common(1)[0][0] if names else NOBODY


RULES: dict[str, Rule] = {
    "first mention": lambda acts, question: _first(candidates(acts, question)),
    "last mention": lambda acts, question: _last(candidates(acts, question)),
    "most mentioned": lambda acts, question: _most(candidates(acts, question)),
    "always “nobody”": lambda acts, question: NOBODY,
    "last mention beside the asked name": lambda acts, question: _last(beside(acts, question)),
    "most mentioned beside the asked name": lambda acts, question: _most(beside(acts, question)),
}


def share_right(rule: Rule, errands: ErrandSet) -> dict[str, float]:
    """The share of questions of each kind that a rule answers."""
    return {
        kind: _mean(rule(story.acts, question.act) == question.answer for story, question in _of(errands, kind))
        for kind in ASKING
    }


def _of(errands: ErrandSet, kind: str) -> list[tuple[Errand, ErrandQuestion]]:
    return [(story, question) for story, question in errands.asked if question.kind == kind]


def _mean(right: Iterable[bool]) -> float:
    found = [*right]
    return sum(found) / len(found)
