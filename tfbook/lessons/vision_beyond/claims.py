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
            "Global attention answers by twin: right answers, worst seed",
            ">=",
            95,
            "Stored result, vision_beyond.by_twin",
            "%",
        ),
        6: Bound(
            "Models without an attention to all places don't learn it in as many steps: right answers, best run",
            "<=",
            50,
            "Stored result, vision_beyond.by_twin; the most frequent color has 40",
            "%",
        ),
        7: Bound(
            "One global attention among three convolutions answers by twin: right answers, worst seed",
            ">=",
            90,
            "Stored result, vision_beyond.by_twin",
            "%",
        ),
        8: Bound(
            "The captioner's words are right, one seed",
            ">=",
            90,
            "Stored result, vision_beyond.captions",
            "%",
        ),
        9: Bound(
            "The captioner looks at the object that it names or right beside it: share of its attention, one seed",
            ">=",
            80,
            "Measured here; Xu et al. (2015) show it on examples",
            "%",
        ),
        10: Bound(
            "DETR finds the objects: recall at an IoU of one half, one seed",
            ">=",
            85,
            "Stored result, vision_beyond.detections",
            "%",
        ),
    },
)
