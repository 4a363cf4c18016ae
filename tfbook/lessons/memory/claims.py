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
            "Your network needs the second fact in its later hops, not in the first (difference in right answers)",
            ">=",
            0.5,
            "measured here, by hiding the sentence",
        ),
        9: Bound(
            "A Turing machine trained on 1 to 10 vectors copies 20: share of wrong bits",
            "<=",
            0.05,
            "Graves et al. (2014), section 4.1; stored, worst of three runs",
        ),
        10: Bound(
            "An LSTM of equal size does not: its share of wrong bits at 20",
            ">=",
            0.3,
            "Graves et al. (2014), section 4.1; stored, best of three runs",
        ),
        11: Bound(
            "Two layers over sentences answer from two facts, too (right answers to “Where is x?”, the worse run)",
            ">=",
            0.85,
            "stored, two runs of 8,000 steps",
        ),
        12: Bound(
            "Places in the bag help to tell receivers from givers (loss without them on “Who has x?”)",
            ">=",
            0.04,
            "measured here, mean of three seeds",
        ),
        13: Bound(
            "Ages help to tell the last walk from the others (loss without them on “Where is A?”)",
            ">=",
            0.15,
            "measured here, mean of three seeds",
        ),
        14: Bound(
            "A pointer network sorts ten two-digit numbers without a mistake (share of lists)",
            ">=",
            0.95,
            "Vinyals et al. (2015); stored, worst of three runs",
        ),
        15: Bound(
            "Adaptive computation takes a step more for each hop (steps at 5 hops minus steps at 1)",
            ">=",
            3.5,
            "Graves (2016); stored, smallest over three prices and three seeds",
        ),
    },
)
