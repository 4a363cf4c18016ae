"""Claims of lesson 03: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "self_attention",
    {
        1: Bound(
            "With the average of all tokens, a model paints no more gray shapes right than guessing does (25%)",
            "<=",
            0.25,
            "measured here, best of three runs",
        ),
        2: Bound(
            "With one head of self-attention, the same model paints nearly all of them right",
            ">=",
            0.95,
            "measured here, worst of three runs",
        ),
        3: Bound(
            "With two colors to fetch and a linear map after it, one head misses many of them",
            "<=",
            0.7,
            "measured here, best of three runs",
        ),
        4: Bound(
            "Two heads with the same number of weights get nearly all of them right",
            ">=",
            0.95,
            "Vaswani et al. (2017), section 3.2.2; measured here, worst of three runs",
        ),
        5: Bound(
            "The work of scores and mixture grows with the square of the length (fitted exponent)",
            ">=",
            1.95,
            "Vaswani et al. (2017), Table 1: O(n² d)",
        ),
        6: Bound(
            "The work of a recurrent layer grows in proportion to the length (fitted exponent)",
            "<=",
            1.05,
            "Vaswani et al. (2017), Table 1: O(n d²)",
        ),
        7: Bound(
            "For 256 tokens a recurrent layer takes longer than an attention layer that does more work",
            ">=",
            1.5,
            "Vaswani et al. (2017), Table 1, on sequential operations; time ÷ time, stored",
        ),
    },
)
