"""Claims of lesson 19: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims
from tfbook.lessons.modalities.sound_claims import FURTHER_SENSE_BOUNDS, SENSE_BOUNDS

CLAIMS = Claims(
    "modalities",
    {
        1: Bound(
            "Your FT-Transformer learns the stand's rule (typical error as a share of ridge regression's)",
            "<=",
            0.6,
            "measured here",
        ),
        2: Bound(
            "On no small table is FT-Transformer far ahead of the better of trees and linear model (its largest lead)",
            "<=",
            0.05,
            "stored, means of three splits",
        ),
        3: Bound("Your reader finds the clubs of unseen people (right answers)", ">=", 0.8, "measured here"),
        4: Bound("Your reader sees the rings of unseen molecules (right answers)", ">=", 0.9, "measured here"),
        5: Bound(
            "Return probabilities show rings that neighbors do not (gain in right rings, from best seed to worst)",
            ">=",
            0.2,
            "Dwivedi et al. (2022), on other tasks; stored, three seeds",
        ),
        **SENSE_BOUNDS,
        10: Bound(
            "Turned axes cost both, trees and FT-Transformer (loss in R², the smaller of the two)",
            ">=",
            0.05,
            "of trees: Grinsztajn et al. (2022); stored, means of two stands",
        ),
        11: Bound(
            "Four blocks along edges hear what one does not (gain in right clubs, from best seed to worst)",
            ">=",
            0.1,
            "stored, three seeds",
        ),
        12: Bound(
            "A graph read in a line is read worse than along its edges (the smallest lead of edges in right clubs)",
            ">=",
            0.05,
            "stored, three orders, three seeds each",
        ),
        **FURTHER_SENSE_BOUNDS,
    },
)
