"""Answers to the predictions of lesson 18: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "rules": """
The keyword search gets 65% of *Where is Ann?* and 34% of *Where is the ring?*. The first is good, but not good
enough: Ann may have dreamed of a place since her last walk, told somebody about one, or been introduced with her
house. The second is hardly a guess, because the place is not in any sentence about the ring.

In every column, the best of the six rules stays below two thirds. So there is something to learn here, and the
number to beat is the largest of each column.
""",
        "order": """
Not at all: the distance is 0. The two sentences have the same words, and a sum does not care about order. A
network that reads such bags could not tell from this sentence who has the ring now.
""",
        "one_hop": """
Questions that follow from one fact are answered almost always, by one hop as by three. *Where is the ring?* is
right 57% of the time with one hop, and 92% with two. A third hop adds little.

*Where was Ann before the mill?* lies in between: 70%, then 89%. Both of its facts name Ann, so a single hop can
look at both. But which of her other walks came right before the one to the mill? That depends on the age of the
walk to the mill, which has to be read first.
""",
        "parts": """
Ages matter everywhere: without them, *Where is Ann?* falls from almost 100% to 77%, and *Where was Ann before
the mill?* from 91% to 61%. Without places in the bag, *Who has the ring?* loses 6 points.

Only 6? The network found another way to tell giver from receiver: who gave the ring away had taken it, or been
given it, in an earlier sentence. And *Where is the ring?* is even 2 points better with plain bags, for all three
seeds. So places are worth having for the question that needs them, and not for free.
""",
    }
)
