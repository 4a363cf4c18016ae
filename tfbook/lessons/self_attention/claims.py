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
            "With 16 shapes in a scene, attention paints more of them right than an average between two networks with "
            "as many parameters (share gained)",
            ">=",
            0.3,
            "Stored result, self_attention.binding, medians of three runs, each at its better learning rate",
        ),
        3: Bound(
            "With attention whose scores are not divided by √d, most runs do no better, at width 64",
            "<=",
            0.25,
            "Vaswani et al. (2017), section 3.2.1, suspect small gradients; measured here, median of three runs",
        ),
        4: Bound(
            "With the division and nothing else changed, it paints nearly all of them right",
            ">=",
            0.9,
            "measured here, median of three runs",
        ),
        5: Bound(
            "With two colors to fetch and a linear map after it, one head misses many of them",
            "<=",
            0.7,
            "measured here, best of three runs",
        ),
        6: Bound(
            "Two heads with the same number of weights get most of them right",
            ">=",
            0.8,
            "Vaswani et al. (2017), section 3.2.2; measured here, median of three runs",
        ),
        7: Bound(
            "Two layers name the animal that “it” is, for pairs of animals that never met in training",
            ">=",
            0.9,
            "measured here, median of three runs",
        ),
        8: Bound(
            "One layer of one head, with a linear map behind it, does hardly better than a rule of thumb (51%)",
            "<=",
            0.6,
            "measured here, best of three runs",
        ),
        9: Bound(
            "Most readers that learn the task name the right animal even when the last word is hidden from “it”",
            ">=",
            0.7,
            "Stored result, self_attention.pointing, share of the runs that learn it",
        ),
        10: Bound(
            "Most of them no longer do when it is hidden from the two animals",
            ">=",
            0.7,
            "Stored result, self_attention.pointing, share of the runs that learn it",
        ),
        11: Bound(
            "Without the division, W_Q that only starts at 1/8, or only learns at 1/8 of the rate, is not enough "
            "(share right)",
            "<=",
            0.7,
            "Stored result, self_attention.stall, the better of two medians of eight runs",
        ),
        12: Bound(
            "Made to look at another color, few colored tokens are still painted right",
            "<=",
            0.3,
            "measured here, median of three runs",
        ),
        13: Bound(
            "Twelve attention layers without normalization learn the sentences better with residual connections than "
            "without (share gained)",
            ">=",
            0.4,
            "Stored result, self_attention.depth, mean of three runs, each stack at its best learning rate",
        ),
        14: Bound(
            "For 256 tokens a recurrent layer takes longer than an attention layer that does more work",
            ">=",
            1.5,
            "Vaswani et al. (2017), Table 1, on sequential operations; time ÷ time, stored",
        ),
    },
)
