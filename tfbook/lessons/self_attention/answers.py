"""The answers to the predictions of lesson 03."""

from __future__ import annotations

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "average": (
            "**Practically none with the first two, most with the third.** The first two paint mud: under the squared "
            "error a color in the middle is the safest bet."
        ),
        "unscaled": (
            "**Few, and in most runs hardly any: training stalls.** The idea is right, since our numbers on the napkin "
            "work. Something goes wrong while the scores are learned."
        ),
        "mask": (
            "**The rows sum to less than 1**: the hidden key has already taken its share. Divided by what is left, "
            "they are the same as with scores of −∞. But with large scores the hidden key takes everything, and what "
            "is left is 0/0, NaN. So mask the scores."
        ),
        "heads": (
            "**About half with one head, most with two.** A head that looks at one shape has to guess the other color, "
            "and a blend serves neither. This network behind the head is no substitute for a second look."
        ),
        "layers": (
            "**Two layers do, unless a run stalls. The average and one layer choose like a coin.** In one layer, the "
            "query of *it* and the keys of the animals come from a word and its position alone, so the *ratio* of the "
            "two animals' weights is the same for every reason. The reason's own value is added, too. But a linear map "
            "can only let it favor certain animals, not the first or the second one."
        ),
        "reading": (
            "**In seed 0 the one that hides it from *it*, in seed 1 the one that hides it from the first animal.** In "
            "seed 1 the *first* animal reads the reason in the first layer, which changes its vector, and then *it* "
            "looks at one animal or the other. The second animal need not read anything."
        ),
    }
)
