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
            "With random keys a matrix holds about as many facts as a key has numbers, or fewer: largest ratio of nine",
            "<=",
            1.1,
            "Measured here",
            " × the numbers",
        ),
        4: Bound(
            "With keys of 8 numbers attention recalls 64 facts: right answers, worst of three seeds",
            ">=",
            0.99,
            "Stored result, state_spaces.overflow",
        ),
        5: Bound(
            "With such keys a matrix of 64 numbers does not: right answers, best of six runs",
            "<=",
            0.4,
            "Stored result, state_spaces.overflow",
        ),
        6: Bound(
            "Mamba keeps the lantern: right answers beyond 48 words, worst of three seeds",
            ">=",
            0.8,
            "Stored result, state_spaces.chosen",
        ),
        7: Bound(
            "With steps that no word sets, it loses the lantern: right answers beyond 48 words, best of three seeds",
            "<=",
            0.75,
            "Stored result, state_spaces.chosen",
        ),
        8: Bound(
            "A minGRU's 256 numbers recall 16 facts after a product, ReLU, or SiLU with the question: worst of nine",
            ">=",
            0.85,
            "Stored result, state_spaces.asked",
        ),
        9: Bound(
            "Read as they are, through a ReLU alone, or with the question only added, they do not: best of nine runs",
            "<=",
            0.35,
            "Stored result, state_spaces.asked",
        ),
        10: Bound(
            "One more word takes a state no longer after 8,192 words than after 512: the largest ratio of three mixers",
            "<=",
            1.2,
            "Stored result, state_spaces.per_word",
            " ×",
        ),
        11: Bound(
            "After 8,192 words attention keeps far more bytes than Mamba's state has",
            ">=",
            1000,
            "Counted exactly",
            " ×",
        ),
    },
)
