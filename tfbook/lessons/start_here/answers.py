"""The answers to the predictions of lesson 00: what came out, and why."""

from __future__ import annotations

from tfbook.course.predictions import Answers

answer = Answers(
    {
        "axes": """\
Not the rows. Shapes line up at the last axis, so the sums of shape (27,) are taken for a row, which is
repeated downward: *column* $j$ gets divided by the total of letter $j$. The columns come out (almost) right,
because in a running text each letter begins as many pairs as it ends, except for the first and the last one.
So the careless table isn't nonsense, which makes it worse: it says how probable the *current* letter is,
given the next one. It is a language model that runs backward.""",
        "contexts": """\
More letters help, and then they hurt. On the text that we counted the loss keeps
falling, because long contexts are so rare that the table knows the text by heart. On the other half it turns
around after five letters: more and more contexts were never seen, and for those the table can only shrug and
give every letter the same probability. A model that does well on what it has seen and worse on what it hasn't
is **overfitting**. That is why we judge on the half that was not counted.""",
        "rows": """\
The first two rows get the same weights, since only differences between scores matter: adding 80 to every
score multiplies every exponential by the same $e^{80}$, which cancels. Multiplying the scores does change
the weights. With differences ten times as large, the winner takes practically everything.""",
        "first_loss": """\
It starts at $\\ln 27 = 3.30$, since equal logits mean equal probabilities: **a model that knows nothing yet
starts at $\\ln(\\text{number of classes})$**, and a loss far above that is a reason to look for a bug. It
ends where counting ends, and it can't do better. For a model that sees a single letter, nothing better exists
than the shares of the letters that follow it, and that is what counting gives.""",
    }
)
