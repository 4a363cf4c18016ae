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
            0.65,
            "Sukhbaatar et al. (2015), table 1, on other tasks; measured here, best of three seeds",
        ),
        3: Bound(
            "A second hop helps there (gain in right answers, from the best seed to the worst)",
            ">=",
            0.25,
            "Sukhbaatar et al. (2015), table 1, on other tasks; measured here",
        ),
        4: Bound(
            "With two hops, the first looks at the first fact and the second at the second (least share of both)",
            ">=",
            0.6,
            "measured here, least of three seeds",
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
            "Places in the bag help to tell receivers from givers (loss without them on “Who has x?”)",
            ">=",
            0.04,
            "measured here, mean of three seeds",
        ),
        9: Bound(
            "Ages help to tell the last walk from the others (loss without them on “Where is A?”)",
            ">=",
            0.15,
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
