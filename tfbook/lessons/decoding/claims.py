"""Claims of lesson 06: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "decoding",
    {
        1: Bound(
            "At 1,024 words, one more word takes several times as long without a cache as with one",
            ">=",
            5,
            "Stored result, decoding.times",
            " ×",
        ),
        2: Bound(
            "With a cache, a word after 1,024 words takes at most four times as long as one after 64",
            "<=",
            4,
            "Stored result, decoding.times",
            " ×",
        ),
        3: Bound(
            "Real text surprises the model far more than what a beam finds (nats per character ÷ nats per character)",
            ">=",
            1.5,
            "Stored result, decoding.likelihood, smallest of three runs; Holtzman et al. (2020), Figure 2",
            " ×",
        ),
        4: Bound(
            "Text sampled from the full softmax surprises the model about as much as real text does (difference)",
            "<=",
            0.15,
            "Stored result, decoding.likelihood, largest of three runs; unlike Holtzman et al. (2020), Table 1",
            " nats",
        ),
        5: Bound(
            "Greedy text repeats itself: the share of its 12-character pieces that it already contains",
            ">=",
            0.1,
            "Stored result, decoding.likelihood, smallest of three runs; Holtzman et al. (2020)",
        ),
        6: Bound(
            "Without a penalty, wide beams prefer short texts: their length at width 16 ÷ at width 1",
            "<=",
            0.9,
            "Stored result, decoding.searches, mean of two runs; Wu et al. (2016), Section 7",
        ),
        7: Bound(
            "A beam of 4 translates better than greedy decoding, even without a length penalty",
            ">=",
            2,
            "Stored result, decoding.searches, smaller gain of two runs",
            " BLEU",
        ),
        8: Bound(
            "With plenty of data, label smoothing worsens perplexity (with ÷ without)",
            ">=",
            1.03,
            "Stored result, decoding.smoothing, means of three runs; Vaswani et al. (2017), Section 5.4",
            " ×",
        ),
        9: Bound(
            "With little data, label smoothing lowers the calibration error",
            ">=",
            0.01,
            "Stored result, decoding.smoothing, smallest gain of three runs; Müller et al. (2019)",
        ),
        10: Bound(
            "With plenty of data, it makes the model underconfident: its calibration error",
            ">=",
            0.1,
            "Stored result, decoding.smoothing, mean of three runs",
        ),
    },
)
