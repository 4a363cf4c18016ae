"""The answers to the predictions of lesson 03."""

from __future__ import annotations

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "average": (
            "**Practically none, with either model.** Both paint mud: under the squared error a color in the "
            "middle is the safest bet. A gray triangle that sees only itself has nothing to go on. But why does"
            " the average fail?"
        ),
        "unscaled": (
            "**Hardly any, in the runs printed above: training has stalled.** The idea is right, since numbers set "
            "by hand do work, and so is the loop. The trouble is the size of the scores."
        ),
        "mask": (
            "**The first rows sum to less than 1**: the blocked keys have already taken their share. Divided by"
            " its sum, each row is exactly what scores of −∞ give, since $e^{-\\infty} = 0$ and the softmax "
            "shares its 1 among the keys that are left. So mask the scores."
        ),
        "heads": (
            "**About half with one head, nearly all with two.** A head that looks at one shape has to guess the"
            " other color, and a blend serves neither. The row in the middle shows that this is a limit of the "
            "head *and* the linear map: a small network gets more out of the blend."
        ),
        "layers": (
            "**One layer never gets beyond about half; two layers get nearly all, as long as they know the places.**"
            " (A run far below half has stalled: it has not even found that one of the two animals is meant.) "
            "The query of *it* comes from the word *it* alone, so one layer asks the same question in every "
            "sentence, whatever the reason is. The average knows the animals, but not which one."
        ),
        "reading": (
            "**Hiding it from the animals hurts, hiding it from *it* hardly does.** We would have bet on *it*. "
            "But the animals read the reason in the first layer, and their vectors are nudged. Where *it* looks "
            "in the second layer depends on these vectors, through their keys. In a run whose share above is "
            "near 100% *it* looks at the right animal itself; in others another word can stand in for an "
            "animal. (In one of six other runs, neither mask hurt: it had found another way.)"
        ),
    }
)
