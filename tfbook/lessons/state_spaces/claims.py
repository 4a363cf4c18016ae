"""Claims of lesson 17: each statement, its bound and its source."""

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "state_spaces",
    {
        1: Bound(
            "Readers trained with fixed decays lose the lantern: right answers beyond 48 words, best of three seeds",
            "<=",
            0.4,
            "Measured here",
        ),
        2: Bound(
            "Readers trained with decays set by the input keep it: right answers beyond 48 words, worst of three seeds",
            ">=",
            0.95,
            "Measured here; Gers et al. (2000) for an LSTM's gate",
        ),
        3: Bound(
            "Attention recalls 16 facts: right answers, worst of two seeds",
            ">=",
            0.99,
            "Stored result, state_spaces.recall",
        ),
        4: Bound(
            "A window that holds 4 positions cannot recall 16 facts: right answers, best of two seeds",
            "<=",
            0.2,
            "Stored result, state_spaces.recall",
        ),
        5: Bound(
            "A minGRU's 256 numbers recall 16 facts after a product, ReLU or SiLU with the question: worst of nine",
            ">=",
            0.85,
            "Stored result, state_spaces.asked",
        ),
        6: Bound(
            "Read as they are, through a ReLU alone, or with the question only added, they do not: best of nine runs",
            "<=",
            0.35,
            "Stored result, state_spaces.asked",
        ),
        7: Bound(
            "One more word takes a state no longer after 8,192 words than after 512: the largest ratio of three mixers",
            "<=",
            1.2,
            "Stored result, state_spaces.per_word",
            " ×",
        ),
        8: Bound(
            "After 8,192 words attention keeps far more bytes than Mamba's state has",
            ">=",
            1000,
            "Counted exactly",
            " ×",
        ),
    },
)
