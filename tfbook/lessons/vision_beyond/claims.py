"""Claims of lesson 14: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "vision_beyond",
    {
        1: Bound(
            "By row, plain windows guess where the partner is across a border: right answers, best seed",
            "<=",
            25,
            "Stored result, vision_beyond.by_row; any color has 20",
            "%",
        ),
        2: Bound(
            "By row, shifted windows answer across borders: right answers, worst seed",
            ">=",
            95,
            "Stored result, vision_beyond.by_row",
            "%",
        ),
        3: Bound(
            "Four blocks of 3 × 3 filters answer by row at a distance of 4: right answers, worst seed",
            ">=",
            95,
            "Stored result, vision_beyond.by_row",
            "%",
        ),
        4: Bound(
            "The same filters guess at a distance of 5: right answers, best seed",
            "<=",
            27,
            "Stored result, vision_beyond.by_row; any color has 20",
            "%",
        ),
        5: Bound(
            "Global attention and the hybrid answer by twin after 600 steps, near and far: right answers, worst run",
            ">=",
            90,
            "Stored result, vision_beyond.by_twin",
            "%",
        ),
        6: Bound(
            "Plain windows answer by twin after 600 steps inside a window: right answers, worse of two seeds",
            ">=",
            75,
            "Stored results, vision_beyond.by_twin, by_twin_again",
            "%",
        ),
        7: Bound(
            "Fixed weights do not by then, even in one window: right answers, best run of four models",
            "<=",
            55,
            "Stored results, vision_beyond.by_twin, by_twin_again, wider_filters",
            "%",
        ),
        8: Bound(
            "A sum over all places, without attention, learns it in 4,000 steps: right answers, worse of two seeds",
            ">=",
            90,
            "Stored result, vision_beyond.longer",
            "%",
        ),
        9: Bound(
            "The captioner looks at places that touch what it names: share of its attention, one seed",
            ">=",
            70,
            "Measured here; Xu et al. (2015) show it on examples",
            "%",
        ),
        10: Bound(
            "Hide as many places as the object touches, the brightest: fewer words right than with others hidden",
            ">=",
            50,
            "Measured here, one captioner",
            " points",
        ),
        11: Bound(
            "Trained with a matching, three queries find more than in the order of a list: worst against best seed",
            ">=",
            40,
            "Stored result, vision_beyond.in_order, 400 steps",
            " points",
        ),
        12: Bound(
            "DETR finds the objects: recall at an IoU of one half, one seed",
            ">=",
            85,
            "Stored result, vision_beyond.detections",
            "%",
        ),
    },
)
