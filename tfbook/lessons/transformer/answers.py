"""Answers to lesson 05's predictions: what happened and why."""

from __future__ import annotations

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "alone": """
A few right words, and an early end. The decoder finds words of the source, but it can tell neither their order nor what
it has written so far: each word is chosen from the *last* one alone.
""",
        "more": """
Much worse: it translates nothing at all now. Its loss is not far below 5.3 nats, which is what a model reaches that
knows only how frequent each word is.
""",
        "spread": """
After a few layers of attention alone, all twelve positions hold practically the same vector, because every layer
replaces each vector by an average. Where the layer's output is *added* to its input (the second curve), the positions
stay as different as they were. [Dong, Cordonnier, and Loukas (2021)](https://arxiv.org/abs/2103.03404) proved that the
spread of attention alone shrinks doubly exponentially with depth, unless the weights are large, and gave their paper a
title to match: *Attention is not all you need*. (PyTorch's small initial weights speed it up here.)
""",
        "normalized": """
All three come out the same: layer norm removes size and offset, and keeps the pattern.
""",
        "norms": """
They make it *worse*, for now. The feed-forward layers helped, but with norms the machine learns more slowly at first.
We keep them for what this row does not show: at higher rates (Section 8) and in deeper stacks
([Going further](#What-layer-norm-buys)), machines without them break down.
""",
        "live": """
Lower, and the BLEU is 0. In training the answer to each position stands one place to the right, in the decoder's own
input, and copying it is far easier than translating. When the model writes, there is nothing to copy. A low loss proves
nothing until you know what the model was allowed to see.
""",
        "places": """
PLACES
""",
        "lengths": """
Within the lengths of training both Transformers win. The smaller one has two thirds of the recurrent translator's
weights and needs about a quarter of its time to reach the same quality. Past 20 words both fall steeply and end up 14
to 25 points behind: at 31 to 40 words they reach 20 to 30 BLEU, and the recurrent translator 47 to 48. That fits lesson
04's warning: their attention meets distances between words that training never showed, while a recurrent network takes
one more step of the same kind.
""",
        "attentions": """
ATTENTIONS
""",
    }
)
