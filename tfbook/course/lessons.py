"""The map of the course: a lesson's number is only here and in its notebook's file name; all else goes by its slug."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PARTS = {1: "I · Attention", 2: "II · Transformers", 3: "III · Vision", 4: "IV · Cost", 5: "V · Beyond"}


@dataclass(frozen=True)
class Lesson:
    """A lesson of the course, written or planned."""

    number: int
    slug: str  # names its exercises, experiments, stored results and claims
    title: str
    question: str
    minutes: int | None  # of reading; None while the lesson is planned
    part: int  # one of PARTS

    @property
    def name(self) -> str:
        """The name of its notebook without the suffix, such as "05_transformer"."""
        return f"{self.number:02}_{self.slug}"

    @property
    def written(self) -> bool:
        """Whether its notebook exists. A test compares this with the files, which an installed package lacks."""
        return self.minutes is not None


LESSONS = (
    Lesson(0, "start_here", "Start here", "Can you guess the next letter?", 50, 1),
    Lesson(1, "bahdanau_attention", "Bahdanau attention", "Can a decoder look back?", 55, 1),
    Lesson(2, "scoring_functions", "Scoring functions", "What makes a key match a query?", 55, 1),
    Lesson(3, "self_attention", "Self-attention", "What if every token looks at every token?", 55, 1),
    Lesson(4, "positions", "Positions", "Where is each token?", 55, 1),
    Lesson(5, "transformer", "The Transformer", "Is attention all you need?", 55, 2),
    Lesson(6, "decoding", "Decoding", "How does a model write?", 50, 2),
    Lesson(7, "tokenizers", "Tokenizers", "How does text become tokens?", 55, 2),
    Lesson(8, "bert_masking", "BERT masking", "What can a model learn by reading both ways?", 55, 2),
    Lesson(9, "gpt_pretraining", "GPT pretraining", "What does predicting the next token teach?", 55, 2),
    Lesson(10, "scaling_laws", "Scaling laws", "What makes pretraining fast, and what does scale buy?", 45, 2),
    Lesson(11, "adapting", "Adapting", "How does one model serve many tasks?", 45, 2),
    Lesson(12, "preferences", "Preferences", "How do preferences become gradients?", 50, 2),
    Lesson(13, "vit_patches", "ViT patches", "Is an image worth 16×16 words?", 55, 3),
    Lesson(14, "vision_beyond", "Vision beyond", "Do we need global attention, or attention at all?", 60, 3),
    Lesson(15, "efficient_attention", "Efficient attention", "Can we beat n²?", 40, 4),
    Lesson(16, "inference", "Inference", "How is text generated fast?", 55, 4),
    Lesson(17, "state_spaces", "State spaces", "What other ways are there to read a sequence?", 60, 5),
    Lesson(18, "memory", "Memory", "What if attention reads something other than the input?", 60, 5),
    Lesson(19, "modalities", "Modalities", "What else can be cut into tokens?", 65, 5),
    Lesson(20, "scaling_out", "Scaling out", "How do many machines train one model?", 65, 5),
)


def slug_of(function: Callable[..., Any]) -> str:
    """The slug of the lesson whose folder defines a function: "decoding" for `tfbook.lessons.decoding.study`."""
    return function.__module__.split(".")[-2]
