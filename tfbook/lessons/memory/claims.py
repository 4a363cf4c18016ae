"""Claims of lesson 18: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "memory",
    {
        1: Bound(
            "No rule of thumb answers two thirds of any kind of question (the best of six, on its best kind)",
            "<=",
            0.67,
            "measured here, 1,000 stories",
        ),
        2: Bound(
            "One hop fails where the second fact shares no name with the question (right answers to “Where is x?”)",
            "<=",
            0.6,
            "Sukhbaatar et al. (2015), table 1, on other tasks; measured here, best of three seeds",
        ),
        3: Bound(
            "A second hop helps there (gain in right answers, from the best seed to the worst)",
            ">=",
            0.2,
            "Sukhbaatar et al. (2015), table 1, on other tasks; measured here",
        ),
        4: Bound(
            "The one hop does not find the second fact (its attention there, largest of three seeds)",
            "<=",
            0.3,
            "measured here",
        ),
        5: Bound(
            "Your network answers questions that follow from one fact (right answers, the worse of two kinds)",
            ">=",
            0.95,
            "measured here",
        ),
        6: Bound(
            "Your network answers questions that follow from two facts (right answers, the worse of two kinds)",
            ">=",
            0.85,
            "measured here",
        ),
        7: Bound(
            "It beats the best rule of thumb on every kind of question (its smallest lead)",
            ">=",
            0.2,
            "measured here",
        ),
        8: Bound(
            "Without places in the bag, receivers cannot be told from givers (loss on “Who has x?”)",
            ">=",
            0.1,
            "measured here, mean of three seeds",
        ),
        9: Bound(
            "Without ages, the last walk cannot be told from the others (loss on “Where is A?”)",
            ">=",
            0.1,
            "measured here, mean of three seeds",
        ),
        10: Bound(
            "At equal parameters, three hops beat a Transformer with three times the training time (mean lead)",
            ">=",
            0.1,
            "measured here, mean of three seeds",
        ),
    },
)
