"""Answers to the predictions of lesson 01: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "length": """
It falls from the start. Even sentences of 9 to 14 words, the most frequent length in training, come out far
worse than the shortest ones.
""",
        "softmax": r"""
About 20 times: softmax turns a *difference* of scores into a *ratio* of weights, and $e^{3.45 - 0.48} \approx
19.5$ (19.6 before rounding). The context is the weighted average of the three states, $0.04 \cdot (-1, -1) +
0.05 \cdot (-1, 1) + 0.91 \cdot (1, -1) = (0.82, -0.91)$, up to rounding. That is nearly the state of *cat*, so
the decoder now looks at *cat*. (Our toy states say only "noun"; a real state also says which one, and *chat* can
follow.)
""",
        "adjective": """
*black* gets 0.91, because the two entries have changed roles. The states are the same as before; a different
query reads them differently. Also note that the weight of a real word is never exactly 0, and that the weights
change smoothly with the scores. That is what makes attention trainable: if a little more weight on the right
word makes the loss a little smaller, the gradient says so.
""",
        "first_steps": """
It takes a while. At first both models learn which French words are frequent and follow each other, for which no
source is needed. For some dozens of steps the weights are nearly the same for every French word: first even,
then stuck on one place, then even again (in three seeds that we tried). So the context is nearly the same at
every step, and attention has no advantage. As the weights begin to differ from word to word, its loss keeps
falling where the other's slows down. (Lesson 02 watches the weights while this happens.)
""",
        "long_sentences": """
Only partly. Up to 20 words the curve falls only a little, and beyond that it drops. Attention removes the
bottleneck, but everything else in the model still has to work at lengths that it has never seen. Which part
fails first, we have not tested. (Bahdanau et al., with far more and longer training sentences, saw no drop up to
50 words.)
""",
        "changed_order": """
For two rows they run backward. To write *université*, the decoder looks past *grey*, and then it comes back for
it.

The model found most of the gold links from translations alone.
""",
        "gradient": """
At 20 steps, about a ten-millionth is left in the RNN, and less than a ten-thousandth in the GRU. (Orthogonal
matrices, or a larger bias of the update gate, keep far more.) With attention the curve is level: the distance
makes no difference. (It lies above 1 because an early word also flows into all states after it.)

Note that all curves are relative to $k = 0$. An untrained network gives each of $n$ words a weight of about
$1/n$, so its gradient is diluted by the *number* of words, but not by their distance. Nearly even weights are
also what the plain average of Section 6 has, and that one did not translate well. So short paths are not enough:
the weights also have to learn which word to choose. Networks can learn to remember for longer than this; it is
only where training starts.

You may read elsewhere that attention's gradient "never vanishes". That goes too far: a word with a weight near 0
gets next to no gradient. What attention avoids is loss *with distance*. *Going further* looks at both.
""",
        "forgotten": """
Those at the beginning, and even of those only about a fifth survive. The middle is lost, and so is the end. This
translator starts writing at the beginning of the sentence, which is when its state is freshest, and that may
matter more than where the readers end. Words at the beginning may also be easier. With other languages or more
training the picture may change.
""",
        "order_cost": """
Bahdanau's order takes about 1.4 times as long, and Luong's only a little longer than no attention.
""",
    }
)
