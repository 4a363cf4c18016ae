"""Answers to the predictions of lesson 14: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "borders": """
Plain windows get everything right that has its partner in the same window, and guess where the vertical border stands
between the two: nothing of the partner's color ever arrives, however long we train and however many blocks we add.
(The horizontal border does no harm: a row never crosses it.)

Yours crosses the border. A shifted window spans the middle, so its places hear from both sides, and the plain windows
of the next block hand it on. With four blocks, everything can arrive everywhere.

The jigsaw brings both down to about a guess: with shuffled patches there are no rows left, and the labels of the old
picture have nothing to do with the new one. A model that still did well would have cheated.
""",
        "reach": """
Up to 4, one place for each block, and all of it; from 5 on it guesses, in each run. Filters of 5 × 5 hear two places
to each side, 8 in four blocks, and there they are right at all distances. So it *was* the reach.

The gray lines are arithmetic: right where the partner is heard, one in five where it isn't. Windows and convolution
follow their lines down to the guess. What four blocks allow, these models learn by this rule, with one exception: with
one of three seeds, the Mixer got stuck below the most frequent color.
""",
        "contest": """
Global attention does, and so does the hybrid, with one block of it instead of four. All others stay below one half,
although most of them hear from everywhere. Plain windows again guess across their borders. And reach is not what is
missing: filters of 5 × 5, which hear from everywhere, guess.

A filter or a Mixer can carry "here is a red fish" to every place, but it would have to carry this for eight kinds at
once, from any place to any other, and then sort out at the white fish which of the eight is meant. Attention does it
in one step: the white fish's query meets the red fish's key. *Whom* to ask is what depends on the image, and that is
what weights computed from the image are for. (This is our reading. What we measured is who learns it in 600 steps.)
""",
        "looks": """
Only a third, 36%. That is three times as much as attention that is equal everywhere (12%), and far from "it looks at
what it names". With the places right beside the object it is more than nine tenths, where the center has less than
half. Look at the maps in Section 1: they fall to the lower right of the object, time and again.

A part of that is the grid: with a padding of 1 and a stride of 2, three times, what a place sees is centered 3.5
pixels to the upper left of where we draw it. The rest, nothing forbids: what a place sees is several places wide, so
a neighbor can know the object as well, and the decoder reads whatever place says it best. A map shows which *vectors*
were read. Where these look is another question.
""",
    }
)
