"""The answers to the predictions of lesson 03."""

from __future__ import annotations

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "average": (
            "**Practically none with the first two, most with the third.** The first two paint mud: under the squared "
            "error a color in the middle is the safest bet. A gray triangle that sees only itself has nothing to go "
            "on."
        ),
        "unscaled": (
            "**Few, and in most runs hardly any: training stalls.** The idea is right, since the numbers that we set "
            "by hand on the napkin work, and so is the loop. The trouble is the size of the scores."
        ),
        "mask": (
            "**The rows sum to less than 1**: the hidden key has already taken its share. Divided by what is left, "
            "they are the same as with scores of −∞. But with large scores the hidden key takes everything, and what "
            "is left is 0/0, NaN. With −∞ the softmax shares its 1 among the allowed keys, "
            "with no second division. So mask the scores."
        ),
        "heads": (
            "**About half with one head, most with two.** A head that looks at one shape has to guess the other color, "
            "and a blend serves neither. The row in the middle shows that this is a limit of one head *and* a linear "
            "map: a network gets more out of the blend."
        ),
        "layers": (
            "**Two layers do, unless a run has stalled.** (A run at a half chooses between the two animals by chance, "
            "and one far below has not even found that one of them is meant.) The query of *it* comes from the word "
            "*it* and its position alone, so one layer asks the same question in every sentence."
        ),
        "reading": (
            "**Hiding it from the animals hurts, hiding it from *it* hardly does.** We would have bet on *it*. But the "
            "animals read the reason in the first layer. Where *it* looks in the second layer depends on their "
            "vectors, through their keys. (In one of six other runs neither mask hurt: it had found another way.)"
        ),
    }
)
