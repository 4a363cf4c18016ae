"""Claims of lesson 00: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "start_here",
    {
        1: Bound(
            "Trained for 300 steps by training.fit, the model comes within 0.05 of the counted probabilities",
            "<=",
            0.05,
            "Bishop (2006), eq. 2.33",
        ),
    },
)
