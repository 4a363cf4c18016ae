"""Answers to lesson 05's predictions: what happened and why."""

from __future__ import annotations

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
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
        "live": """
After a third of its training, the whole machine has begun to translate. Without residuals, the loss is still above 4
nats, not far below the 5.3 of knowing only how frequent each word is, and the BLEU is 0. Nothing else was changed,
neither a sentence nor a first weight.
""",
        "first_loss": """
The one without the causal mask: its loss falls to almost 0, and its BLEU is 0. In training the answer to each position
stands one place to the right, in the decoder's own input, and copying it is far easier than translating. When the model
writes, there is nothing to copy. A low loss proves nothing until you know what the model was allowed to see.
""",
        "lengths": """
Within the lengths of training both Transformers win. The smaller one has two thirds of the recurrent translator's
weights and needs about a quarter of its time to reach the same quality. Past 20 words both fall steeply and end up 14
to 25 points behind: at 31 to 40 words they reach 20 to 30 BLEU, and the recurrent translator 47 to 48. That fits lesson
04's warning: their attention meets distances between words that training never showed, while a recurrent network takes
one more step of the same kind.
""",
        "attentions": """
Three of them do. Without any self-attention, each word is read and written with no regard to its neighbors, except
through the decoder's look at the source. That still gives 76 BLEU: in short sentences most words can be translated one
by one and put into place. Putting them into place takes positions, and without these it is 58. Without cross-attention
nothing of the English sentence reaches the decoder, and it can only guess. (Two machines were best at the highest rate
that was tried, so their numbers are what they reach at least.)

The fourth machine is as good as the whole one. So in this translator the feed-forward layers were worth their size, not
their kind: give the same number of weights to more attention layers, and nothing is lost.
""",
    }
)
