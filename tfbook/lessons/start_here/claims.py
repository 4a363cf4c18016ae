"""Claims of lesson 00: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "start_here",
    {
        1: Bound(
            "Gradient descent finds the table that counting gives: their losses on held-out text hardly differ",
            "<=",
            0.02,
            "Bishop (2006), eq. 2.33",
            " nats per letter",
        ),
        2: Bound(
            "On held-out text a network that sees ten letters beats the best fixed-length table (least of three seeds)",
            ">=",
            0.05,
            "Stored result, start_here.networks; after Bengio et al. (2003)",
            " nats per letter",
        ),
        3: Bound(
            "Counts of seven letters, blended with those of shorter contexts, beat that network (least of three seeds)",
            ">=",
            0.02,
            "Stored result, start_here.networks; Witten and Bell (1991)",
            " nats per letter",
        ),
        4: Bound(
            "Kneser–Ney counts beat a network twice as wide, trained longer and with dropout (least of three seeds)",
            ">=",
            0.02,
            "Stored result, start_here.networks; Kneser and Ney (1995)",
            " nats per letter",
        ),
        5: Bound(
            "A name that has come before costs a model that sees the whole story less than Kneser–Ney counts of "
            "2,000,000 letters",
            ">=",
            2,
            "Stored result, start_here.names",
            " nats per name",
        ),
        6: Bound(
            "The same model that sees the last 30 tokens only pays more for such a name",
            ">=",
            2,
            "Stored result, start_here.names",
            " nats per name",
        ),
        7: Bound(
            "Counts of words times how often each name has been said, which remember names without looking back, pay "
            "less for such a name than the Kneser–Ney counts",
            ">=",
            1.5,
            "Stored results, start_here.names and start_here.memory",
            " nats per name",
        ),
        8: Bound(
            "Which of the names said before it is costs such counts more than the model that sees the whole story",
            ">=",
            0.5,
            "Stored result, start_here.memory",
            " nats per name",
        ),
    },
)
