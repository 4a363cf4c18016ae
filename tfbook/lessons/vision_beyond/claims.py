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
            "Global attention learns to answer by twin in 600 steps: right answers, worse of two seeds",
            ">=",
            95,
            "Stored result, vision_beyond.by_twin",
            "%",
        ),
        6: Bound(
            "Models without an attention to all places have not learned it by then: right answers, best run",
            "<=",
            65,
            "Stored results, vision_beyond.by_twin, by_twin_again, pooled",
            "%",
        ),
        7: Bound(
            "One global attention among three convolutions learns it in 600 steps: right answers, worse of two seeds",
            ">=",
            90,
            "Stored result, vision_beyond.by_twin",
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
            "Hide what the named object touches, and its neighbors: fewer words right than with as many others hidden",
            ">=",
            60,
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
