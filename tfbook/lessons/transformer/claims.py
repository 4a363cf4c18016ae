"""Claims of lesson 05: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

_XIONG = "Xiong et al. (2020)"
_RACE = "stored, transformer.against_recurrence, worse of two runs"
_PARTS = "stored, transformer.ablation, mean of the runs at the best rate"
CLAIMS = Claims(
    "transformer",
    {
        1: Bound(
            "Four untrained layers of attention alone make twelve positions practically equal: what is left of spread",
            "<=",
            1e-4,
            "Dong et al. (2021): it falls doubly exponentially with depth",
        ),
        2: Bound(
            "The Transformer of this page translates unseen sentences of up to ten words after 700 training steps",
            ">=",
            60,
            "measured here",
            " BLEU",
        ),
        3: Bound(
            "Without residuals the same translator, two blocks deep on either side, learns next to nothing",
            "<=",
            5,
            f"{_PARTS}; He et al. (2016)",
            " BLEU",
        ),
        4: Bound(
            "Trained without the causal mask, the translator cannot write",
            "<=",
            5,
            f"{_PARTS}; Vaswani et al. (2017), section 3.2.3",
            " BLEU",
        ),
        5: Bound(
            "Without feed-forward layers it still translates, but worse: how far its mean is below the whole machine's",
            ">=",
            2,
            _PARTS,
            " BLEU",
        ),
        6: Bound(
            "The smaller Transformer reaches the recurrent translator's final BLEU in a fraction of its time",
            "<=",
            0.4,
            f"{_RACE}; time ÷ time",
        ),
        7: Bound(
            "It translates better in each group of sentences up to the trained lengths: smallest lead",
            ">=",
            1,
            _RACE,
            " BLEU",
        ),
        8: Bound("On sentences of 21 to 30 words, longer than any in training, it is worse", ">=", 8, _RACE, " BLEU"),
        9: Bound(
            "Without warm-up, six pre-norm blocks learn to reverse symbols: final loss, worst run at the best rate",
            "<=",
            0.2,
            "stored, transformer.norms, three runs at each of four rates",
            " nats",
        ),
        10: Bound(
            "In the same 200 steps six post-norm blocks have not, at any of the rates: final loss, best of all runs",
            ">=",
            1.2,
            f"stored, transformer.norms; {_XIONG}",
            " nats",
        ),
        11: Bound(
            "In the last of twelve untrained blocks, post-norm's gradient is several times as large as pre-norm's",
            ">=",
            2.5,
            f"{_XIONG}, Figure 3; ratio",
        ),
        12: Bound(
            "The same first step of Adam moves the output of 16 post-norm blocks farther than that of 16 pre-norm ones",
            ">=",
            2,
            "Liu et al. (2020), section 4; ratio, mean of three models each",
        ),
    },
)
