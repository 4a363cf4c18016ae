"""Claims of lesson 14: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "vision_beyond",
    {
        1: Bound(
            "Attention along rows and columns names the color in the ring's row: right answers, worst run",
            ">=",
            95,
            "Stored result, vision_beyond.attending",
            "%",
        ),
        2: Bound(
            "A bag of patches guesses, with or without positions: right answers, best run",
            "<=",
            37,
            "Stored result, vision_beyond.fixed; guessing has 33",
            "%",
        ),
        3: Bound(
            "A ConvMixer of two blocks answers at a distance of 4: right answers, worst run at its best rate",
            ">=",
            95,
            "Stored result, vision_beyond.fixed",
            "%",
        ),
        4: Bound(
            "The same ConvMixer guesses at a distance of 5: right answers, best run at its best rate",
            "<=",
            42,
            "Stored result, vision_beyond.fixed; guessing has 33",
            "%",
        ),
        5: Bound(
            "A bag of patches with batch norms tells whether two colors are the same: right answers, worse seed",
            ">=",
            65,
            "Stored result, vision_beyond.bag_learners; always “no” has 54",
            "%",
        ),
        6: Bound(
            "The captioner's words are right, one seed",
            ">=",
            90,
            "Stored result, vision_beyond.captions",
            "%",
        ),
        7: Bound(
            "The captioner looks at the object that it names or right beside it: share of its attention, one seed",
            ">=",
            80,
            "Measured here; Xu et al. (2015) show it on examples",
            "%",
        ),
        8: Bound(
            "DETR finds the objects: recall at an IoU of one half, one seed",
            ">=",
            85,
            "Stored result, vision_beyond.detections",
            "%",
        ),
    },
)
