"""The answers to the predictions of lesson 00: what came out, and why."""

from __future__ import annotations

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "axes": """\
Not the rows. Shapes line up at the last axis, so the sums of shape (27,) are treated as a row, which is
repeated downward: *column* $j$ gets divided by the total of letter $j$. The columns come out (almost) right,
because in a running text each letter begins as many pairs as it ends, except for the first and the last one.
So the careless table isn't nonsense, which makes it worse: it answers another question, how probable each
*current* letter is when you know the next one. With `keepdim=True` the sums are a column, which is
repeated across, and each row meets its own sum.""",
        "contexts": """\
More letters help, and then they hurt. On the text that we counted the loss keeps
falling: the longer a context, the more often a single letter was all that ever followed it. On `valid`
it turns around after five letters: more and more contexts were never seen, and for those the table can only
shrug and give every letter the same probability. A model **overfits** when it learns what holds only in the text
that it has seen: the gap to unseen text grows, and in the end the loss there rises, as here. That is why we
choose, and judge, on text that was not counted.""",
        "rows": """\
The first two rows get the same weights, since only differences between scores matter: adding 80 to every
score multiplies every exponential by the same $e^{80}$, which cancels. Multiplying the scores does change
the weights. With differences ten times as large, the winner takes practically everything.""",
        "first_loss": """\
It starts at $\\ln 27 = 3.30$, since equal logits mean equal probabilities: **where the logits start out nearly
equal, the loss starts at $\\ln(\\text{number of classes})$**, and a first loss far above that says that the model
is sure of something before it has learned anything. (So it would be here without the zeros: an `nn.Embedding`
starts with random numbers around 0 that are mostly between −2 and 2, and the loss near 3.8.)

A step of AdamW changes a logit by about the rate. With 0.0005, 2,000 steps come to about 1 in all, and training is
still on its way. With 5 the steps are too long to stay near the best place. With 0.02 it ends close to counting. On
the text that was counted, no table of single letters can beat the relative frequencies of the next letters. On other
text one could, but the parts of our text are much alike.""",
    }
)
