"""Claims of lesson 04: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "positions",
    {
        1: Bound(
            "Without positions, a reader says who does it no better than a coin (50%)",
            "<=",
            0.6,
            "Vaswani et al. (2017), section 3.5; measured here, best of three runs",
        ),
        2: Bound(
            "With the position added as a number, it knows who does it",
            ">=",
            0.85,
            "measured here, worst of three runs",
        ),
        3: Bound(
            "But it does not know which word stands right before",
            "<=",
            0.5,
            "measured here, best of three runs",
        ),
        4: Bound(
            "With sinusoids added, it answers both questions",
            ">=",
            0.8,
            "Vaswani et al. (2017), section 3.5; measured here, worse question of the worst of three runs",
        ),
        5: Bound(
            "With relative or rotary positions, it answers both questions",
            ">=",
            0.85,
            "Shaw et al. (2018), Su et al. (2021); measured here, worse question of the worst of six runs",
        ),
        6: Bound(
            "Sinusoidal positions fail right beyond the trained length (perplexity at 96 ÷ at 64 characters)",
            ">=",
            2,
            "Press et al. (2022), Figure 1; stored, better of two runs",
        ),
        7: Bound(
            "Rotary positions last a little longer and then fail as well (perplexity at 256 ÷ at 64 characters)",
            ">=",
            3,
            "Press et al. (2022), Figure 1; stored, better of two runs",
        ),
        8: Bound(
            "ALiBi is as good at eight times the trained length (perplexity at 512 ÷ at 64 characters)",
            "<=",
            1.05,
            "Press et al. (2022), Figure 1; stored, worse of two runs",
        ),
        9: Bound(
            "Relative positions lose less than a tenth on the way (perplexity at 512 ÷ at 64 characters)",
            "<=",
            1.1,
            "measured here; stored, worse of two runs",
        ),
        10: Bound(
            "At four times the length, dividing the positions of the slow pairs repairs most (rotary ÷ divided)",
            ">=",
            2.5,
            "Peng et al. (2024), section 3.2; stored, worse of two runs",
        ),
        11: Bound(
            "With all positions divided by four and a little training, 256 characters are as good as 64 (256 ÷ 64)",
            "<=",
            1.05,
            "Chen et al. (2023); stored, worse of two runs",
        ),
        12: Bound(
            "But here the same training without dividing does better (divided and tuned ÷ only tuned, 256 characters)",
            ">=",
            1.05,
            "measured here, unlike Chen et al. (2023); stored, worse of two runs",
        ),
        13: Bound(
            "A causal model without positions learns them: the best R² of a probe after a block",
            ">=",
            0.7,
            "Haviv et al. (2022); stored, worse of two runs",
        ),
        14: Bound(
            "A bidirectional model without positions does not: its best R²",
            "<=",
            0.02,
            "Haviv et al. (2022) on masked models; stored, best of three runs",
        ),
        15: Bound(
            "Nor does a causal model that was not trained: its best R²",
            "<=",
            0.05,
            "measured here; stored, best of three runs",
        ),
        16: Bound(
            "Trained on 8 digits, a model with relative positions adds numbers of 16 digits",
            ">=",
            0.95,
            "Shen et al. (2023) on the role of positions; stored, worse of two runs",
        ),
        17: Bound(
            "One with learned positions is right at 8 digits and fails at 9 (share of sums lost)",
            ">=",
            0.7,
            "measured here; stored, the smaller loss of two runs",
        ),
        18: Bound(
            "One with rotary positions adds 10 digits but not 16 (share of sums lost)",
            ">=",
            0.8,
            "measured here; stored, the smaller loss of two runs",
        ),
    },
)
