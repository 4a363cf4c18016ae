"""Claims of lesson 16: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "inference",
    {
        1: Bound(
            "The two largest models' steps stay near the time of their calls and bytes: measured over predicted",
            "<=",
            2.5,
            "Measured here",
            " ×",
        ),
        2: Bound(
            "A token of a prompt of 100 is read much faster than a token is written",
            ">=",
            3,
            "Pope et al. (2022), Section 2; measured here",
            " ×",
        ),
        3: Bound(
            "Sixteen texts together get more tokens per second than one",
            ">=",
            3,
            "Measured here",
            " ×",
        ),
        4: Bound(
            "Continuous batching writes the same texts in fewer steps than static batching",
            ">=",
            1.2,
            "Yu et al. (2022), Section 3; counted exactly",
            " ×",
        ),
        5: Bound(
            "Two groups of keys and values after 2% of the training steps: loss above six heads, trained as long",
            "<=",
            0.05,
            "Stored result, inference.uptraining; Ainslie et al. (2023), Section 2.2",
            " nats",
        ),
        6: Bound(
            "16 texts after 900 tokens: two groups write faster than six heads, the light storyteller",
            ">=",
            1.2,
            "Ainslie et al. (2023), Section 3.2; measured here",
            " ×",
        ),
        7: Bound("Weights in 8 bits change the loss by almost nothing", "<=", 0.01, "Measured here", " nats"),
        8: Bound(
            "With 4 bits, a scale for each 32 weights loses less than one for each row",
            ">=",
            1.2,
            "Measured here",
            " ×",
        ),
        9: Bound(
            "With 8 bits that are converted inside the product, the heavy storyteller writes faster",
            ">=",
            1.4,
            "Measured here",
            " ×",
        ),
        10: Bound(
            "Accepted and replaced tokens have the large model's distribution: chi-square, probability of so large a "
            "distance by chance",
            ">=",
            0.001,
            "Leviathan et al. (2023), Appendix A.1; measured here",
        ),
        11: Bound(
            "Guessing ahead makes the heavy storyteller faster: times as fast as plain decoding, best k",
            ">=",
            1.3,
            "Leviathan et al. (2023), Table 2; measured here",
            " ×",
        ),
        12: Bound(
            "8 bits with guesses, and with 16 texts, give less than their levers multiplied: larger share",
            "<=",
            0.9,
            "Measured here",
        ),
        13: Bound(
            "A fixed cost per layer and bytes ÷ bandwidth predict GPT-2's steps on an H100: larger factor",
            "<=",
            1.3,
            "Stored result, inference.one_h100",
            " ×",
        ),
        14: Bound(
            "The mean of heads ends better than the first head of each group, which begins better: loss of two groups",
            ">=",
            0.02,
            "Stored result, inference.uptraining; Ainslie et al. (2023), Section 3.3",
            " nats",
        ),
    },
)
