"""Claims of lesson 14: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "vision_beyond",
    {
        1: Bound(
            "Attention in windows that never shift only guesses: right answers, best of three learning rates",
            "<=",
            55,
            "Stored result, vision_beyond.rates; guessing has 50",
            "%",
        ),
        2: Bound(
            "A ConvMixer learns to compare two places without attention: right answers, worst of three rates",
            ">=",
            70,
            "Stored result; Trockman & Kolter (2022) ask it of ImageNet",
            "%",
        ),
        3: Bound(
            "A ViT that compares colors does not notice a jigsaw: right answers lost, worse of two seeds",
            "<=",
            5,
            "Stored result, vision_beyond.learners",
            " points",
        ),
        4: Bound(
            "The captioner's words are right, one seed",
            ">=",
            90,
            "Stored result, vision_beyond.captions",
            "%",
        ),
        5: Bound(
            "The captioner looks at the object that it names or right beside it: share of its attention, one seed",
            ">=",
            80,
            "Measured here; Xu et al. (2015) show it on examples",
            "%",
        ),
        6: Bound(
            "DETR finds the objects: recall at an IoU of one half, worst seed",
            ">=",
            85,
            "Stored result, vision_beyond.detections",
            "%",
        ),
    },
)
