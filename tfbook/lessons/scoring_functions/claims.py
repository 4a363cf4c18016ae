"""Claims of lesson 02: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "scoring_functions",
    {
        1: Bound(
            "Where content decides, the location score is no better than guessing (its best accuracy; guessing has 6%)",
            "<=",
            0.12,
            "measured here; the score is defined in Luong et al. (2015), section 3.1",
        ),
        2: Bound(
            "Where the place decides, the location score finds it and all others guess (its lead in accuracy)",
            ">=",
            0.8,
            "measured here, 16 pairs",
        ),
        3: Bound(
            "Where keys are rescaled at random, cosine is the most accurate score (its lead over the next)",
            ">=",
            0.1,
            "measured here; the score is defined in Graves et al. (2014), section 3.3.1",
        ),
        4: Bound(
            "A learned matrix matches rotated keys, which a plain dot product cannot (difference in accuracy)",
            ">=",
            0.7,
            "measured here; the score is defined in Luong et al. (2015), section 3.1",
        ),
        5: Bound(
            "The additive score learns a relation that no matrix can express (its lead over the general score)",
            ">=",
            0.2,
            "measured here; the score is defined in Bahdanau et al. (2015), A.1.2",
        ),
        6: Bound(
            "After 15 steps, the unscaled general score looks at far fewer words than the scaled one (ratio)",
            "<=",
            0.5,
            "Stored result, scoring_functions.collapse; width 128",
        ),
        7: Bound(
            "Dividing the general score by √d improves the translator (worst seed with it minus best seed without)",
            ">=",
            15,
            "Stored result, scoring_functions.collapse; width 128",
            " BLEU",
        ),
        8: Bound(
            "The additive score keeps many times as much memory for the backward pass as a dot product",
            ">=",
            15,
            "Vaswani et al. (2017), section 3.2.1, compare the two",
            " ×",
        ),
    },
)
