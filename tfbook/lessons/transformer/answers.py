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
We keep them for what this row does not show: at higher rates, machines without them break down, here (Section 8) and
in a deeper stack ([Going further](#What-layer-norm-buys)).
""",
        "live": """
Lower, and the BLEU is 0. In training the answer to each position stands one place to the right, in the decoder's own
input, and copying it is far easier than translating. When the model writes, there is nothing to copy. A low loss proves
nothing until you know what the model was allowed to see.
""",
        "places": """
In both, and neither half's loss comes near to that of losing them everywhere. In the encoder the spread shows a likely
reason: without residuals the untrained memory's vectors are practically equal, and training has to pull them apart. In
the decoder the cross-attention needs its residual most. Its values come from the *source*, so where they replace the
stream, the words written so far survive only in the queries that choose the mixture. (Its two runs differ a lot.) The
decoder's self-attention, which mixes the words written so far, needs its residual least.
""",
        "lengths": """
Within the lengths of training both Transformers win. The smaller one has two thirds of the recurrent translator's
weights and needs about a quarter of its time to reach the same quality. Past 20 words both fall steeply and end up 14
to 25 points behind: at 31 to 40 words they reach 20 to 30 BLEU, and the recurrent translator 47 to 48. That fits lesson
04's warning: their attention meets distances between words that training never showed, while a recurrent network takes
one more step of the same kind.
""",
        "attentions": """
Three of them do. Without any self-attention, each word is read and written without regard to its neighbors, except
through the decoder's look at the source. That still gives 76 BLEU: in short sentences most words can be translated one
by one. Putting them in order takes positions, and without these it is 58. (Both machines were best at the highest rate
that was tried, so they may be better still.) Without cross-attention nothing of the English sentence reaches the
decoder, and it can only guess.

The fourth machine is as good as the whole one: what the feed-forward layers give here, more attention gives as well.
But five blocks are also deeper, and this generated language has under a thousand words. A large model, which has more
to remember than a grammar, may need its feed-forward layers more.
""",
    }
)
