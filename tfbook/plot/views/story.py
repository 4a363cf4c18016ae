"""A view of a story and questions about it: the sentences that a memory network looks at light up, hop by hop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from tfbook.plot.views import base

MAX_SENTENCES, MAX_QUESTIONS, MAX_HOPS = 40, 12, 6


@dataclass(frozen=True, kw_only=True)
class AskedStory:
    """A question, the answer with its probability, and each hop's weight on each sentence."""

    question: str
    answer: str
    probability: float
    weights: Sequence[Sequence[float]]  # hop, sentence


@dataclass(frozen=True, eq=False)
class StoryView:
    """The view returned by `story_view`, which a notebook displays when it is the last line of a cell."""

    sentences: Sequence[str]
    asked: Sequence[AskedStory]

    def __repr__(self) -> str:
        return f"StoryView(sentences={len(self.sentences)}, questions={len(self.asked)})"

    def _repr_html_(self) -> str:
        """A table per question, and a script that replaces them with the view; without JavaScript the tables stay."""
        asked = [
            {
                "question": each.question,
                "answer": each.answer,
                "probability": round(each.probability, 2),
                "weights": base.hundredths(torch.tensor(each.weights)).tolist(),
            }
            for each in self.asked
        ]
        return base.embed("story", {"sentences": [*self.sentences], "asked": asked}, "\n".join(self._tables()))

    def _tables(self) -> Iterator[str]:
        for each in self.asked:
            yield base.paragraph(f"{each.question} {each.answer} ({each.probability:.0%})")
            columns = zip(*each.weights, strict=True)
            rows = [[base.cell(f"{100 * w:.0f}", w) for w in weights] for weights in columns]
            hops = [f"hop {number + 1}, %" for number in range(len(each.weights))]
            yield base.table(hops, zip(self.sentences, rows, strict=True))


def story_view(sentences: Sequence[str], asked: Sequence[AskedStory]) -> StoryView:
    """A view of one story: choose a question, then step through the hops and see which sentences each reads.

    Raises ValueError when there is nothing to show or too much of it, and when weights do not fit the sentences.
    """
    for name, parts, most in (("sentences", sentences, MAX_SENTENCES), ("asked", asked, MAX_QUESTIONS)):
        if not 1 <= len(parts) <= most:
            raise ValueError(f"{name} holds {len(parts)}; expected 1 to {most}")
    for each in asked:
        if not 1 <= len(each.weights) <= MAX_HOPS:
            raise ValueError(f"“{each.question}” has {len(each.weights)} hops; expected 1 to {MAX_HOPS}")
        if {len(hop) for hop in each.weights} != {len(sentences)}:
            raise ValueError(f"“{each.question}” has hops over {[len(hop) for hop in each.weights]} sentences; "
                             f"expected {len(sentences)} in each")  # fmt: skip
    return StoryView(tuple(sentences), tuple(asked))
