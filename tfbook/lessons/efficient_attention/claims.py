"""Claims of lesson 15: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "efficient_attention",
    {
        1: Bound(
            "Tiled attention reads 16,384 tokens in at most 50 MB, where one matrix of weights takes 1,074",
            "<=",
            50,
            "Dao et al. (2022), Theorem 1; counted exactly",
            " MB",
        ),
        2: Bound(
            "Windowed layers alone only guess beyond their reach: right answers minus guessing, best of three seeds",
            "<=",
            0.03,
            "Stored result, efficient_attention.long_range",
        ),
        3: Bound(
            "One dense and one windowed layer answer the far questions: right answers, worst of three seeds",
            ">=",
            0.97,
            "Stored result; Brown et al. (2020), Section 2.1",
        ),
        4: Bound(
            "At 8,192 tokens a window of 256 is much faster than PyTorch's dense attention",
            ">=",
            5,
            "Stored result, efficient_attention.times",
            " ×",
        ),
        5: Bound(
            "With eight rounds, hashing meets most of the 8 top keys of tight clusters: recall",
            ">=",
            0.85,
            "Measured here",
        ),
        6: Bound(
            "Without structure, four rounds miss many of the top keys: recall",
            "<=",
            0.6,
            "Measured here",
        ),
        7: Bound(
            "The quotient of attention is biased: bias over what chance alone would show, 8 features",
            ">=",
            1.5,
            "Measured here",
            " ×",
        ),
    },
)
