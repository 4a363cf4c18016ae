"""The answers to the predictions of lesson 03."""

from __future__ import annotations

from tfbook.course.predictions import Answers

answer = Answers(
    {
        "average": (
            "**Practically none, with either model.** Both paint mud: under the squared error a color in the "
            "middle is the safest bet. For the first model that is no surprise, since a gray triangle that sees "
            "only itself has nothing to go on. The average is the surprise, and the next cell shows why it fails."
        ),
        "unscaled": (
            "**Hardly any: the training has stalled.** The idea is right (the numbers on the napkin work), and "
            "yet most runs never find the twin. Nothing is wrong with the loop either. The trouble sits in a "
            "single line, in the size of the scores."
        ),
        "mask": (
            "**The first rows sum to less than 1**, because the blocked keys have already taken their share. "
            "Divide each row by its sum, and you get exactly the weights that scores of −∞ give: $e^{-\\infty} = "
            "0$, so the softmax shares its 1 among the keys that are left. So mask the scores, and the sums take "
            "care of themselves."
        ),
        "heads": (
            "**About half with one head, nearly all with two.** A head that looks at one shape can paint one of "
            "the two colors and has to guess the other, and a blend of both serves neither. The row in the middle"
            " shows that this is a limit of the head *and* the linear map after it: a small network gets some "
            "more out of the blend."
        ),
        "layers": (
            "**One layer stays at half; two layers get nearly everything right, as long as they know the "
            "places.** The query of *it* comes from the word *it* alone, and that is the same in every sentence, "
            "so one layer asks the same question whatever the reason is. The rules of thumb and the average get "
            "half, too: they know the animals, not which one."
        ),
        "reading": (
            "**Hiding it from the animals hurts, in most runs; hiding it from *it* does not.** We would have bet "
            "on *it*. But in most runs the animals read the reason, *small*, in the first layer, and their "
            "vectors are nudged: one of them now says *I am the one*. In the second layer *it* finds that one by "
            "its key. (In six other runs, hiding it from *it* left 100% right each time. Hiding it from the "
            "animals left 46% to 51% in five of them, and 100% in the sixth, which had found another way.)"
        ),
    }
)
