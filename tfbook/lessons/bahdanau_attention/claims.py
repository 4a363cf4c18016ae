"""Claims of lesson 01: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "bahdanau_attention",
    {
        1: Bound(
            "After the same number of steps, attention translates unseen sentences far better than a fixed context",
            ">=",
            15,
            "same direction as in Bahdanau et al. (2015), Table 1",
            " BLEU",
        ),
        2: Bound(
            "Attention gains more on sentences of 15–20 words than on sentences of 3–8 words (least of three seeds)",
            ">=",
            20,
            "Bahdanau et al. (2015), Fig. 2; stored result bahdanau_attention.bottleneck",
            " BLEU",
        ),
        3: Bound(
            "Trained for 1,500 steps, attention translates unseen sentences well (worst of three seeds)",
            ">=",
            90,
            "stored result bahdanau_attention.bottleneck",
            " BLEU",
        ),
        4: Bound(
            "Attention also leads after the same training time (smallest lead of three seeds)",
            ">=",
            5,
            "stored result bahdanau_attention.bottleneck",
            " BLEU",
        ),
        5: Bound(
            "Attention weights find word alignments that nobody showed the model (error below the diagonal's)",
            ">=",
            0.2,
            "Bahdanau et al. (2015), Fig. 3",
        ),
        6: Bound(
            "Trained for 1,500 steps, the weights agree with most gold links (worst alignment error of three seeds)",
            "<=",
            0.15,
            "stored result bahdanau_attention.bottleneck",
        ),
        7: Bound(
            "In an untrained RNN (PyTorch's default), less than a thousandth of the gradient is left after 20 steps",
            "<=",
            1e-3,
            "Bengio et al. (1994); Pascanu et al. (2013)",
        ),
        8: Bound(
            "With attention over an untrained GRU, at least half of the gradient is left after 40 steps",
            ">=",
            0.5,
            "measured here",
        ),
        9: Bound(
            "Forget gates at 0.73 slow the decay but do not stop it (an LSTM's share after 40 steps)",
            "<=",
            0.02,
            "Gers et al. (2000)",
        ),
    },
)
