"""Answers to the predictions of lesson 18: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "rules": """
The keyword search gets 65% of *Where is Ann?*: she may have dreamed of a place since her last walk, or been
mentioned with her house. It gets 34% of *Where is the ring?*, because the place isn't in any sentence about the ring.

The number to beat is the largest of each column, and all of them are below two thirds.
""",
        "order": """
The distance is 0. The two sentences have the same words, and a sum doesn't care about order. A network that reads
such bags could not tell from this sentence who has the ring now.
""",
        "one_hop": """
Questions that follow from one fact are answered almost always, by one hop as by three. *Where is the ring?* is
right 56% of the time with one hop, and 92% with two. A third hop adds little.

*Where was Ann before the mill?* lies in between: 70%, then 89%. Both of its facts name Ann, so a single hop can
look at both. But which walk came right before the one to the mill depends on the age of that one.
""",
        "parts": """
Ages matter everywhere: without them, *Where is Ann?* falls from almost 100% to 77%, and *Where was Ann before
the mill?* from 91% to 61%. Without places in the bag, *Who has the ring?* loses 6 points.

Only 6? Giver and receiver matter only where the last fact is a giving: that is 11% of these questions. On those alone,
the whole network gets 97 to 99% right, and one with plain bags 41 to 46%: no better than a coin. And *Where is the
ring?* is even 2 points better with plain bags, for all three seeds.

Stand-ins without kinds cost 11 points on *Where is the ring?*, and 1 to 2 elsewhere: knowing which words can be places
is a help that our world gives its readers.
""",
        "tape": """
It jumps. While the machine listens, the read head is spread thin; at the mark it is suddenly at slot 31, where the
first vector was written. There its gate opens to 0.9: addressing by content. Shut the gate at this one step, and almost
half of the bits are wrong.

From there on it walks one slot per step, along the same path: addressing by location. The gate stays near 0.4, but
content now fits all slots alike, so the place of the step before decides. (The tape is a circle: both heads begin at
slot 0 and walk over its end. What is read at the last step is never said.)
""",
        "copying": """
The machine copies up to 32 vectors. At 20, at most one bit in a hundred is wrong, with every seed. At 33 it is
suddenly half.

The small LSTM gets a fifth of the bits wrong at 5 vectors already. The large one copies 5, gets an eighth
wrong at 10 and a third at 20. After five times as many steps (dashed) only 2% are wrong at 10, but about 30% still
are at 20.

And attention over all that was heard? A causal Transformer with two layers, relative positions and 18,134 numbers gets
20 to 28% wrong at 10 after the same 2,000 steps, at the best of the same three rates. More steps may well help it; we
did not try.
""",
        "pondering": """
As many as there are hops: 1, 3, and 5, nearly (means of three seeds). It stops when it reads that the place it has
come to is a home. A walker that may take one step only answers the walks of one hop and no other.
""",
    }
)
