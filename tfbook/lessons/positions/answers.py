"""Answers to the predictions of lesson 04: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "no_positions": """
It is not sure either way, and above all, the two rows are the same. No amount of training could make them
differ: the layer sums over all words, a sum does not depend on the order of its terms, and so the two sentences
are the same input to it.
""",
        "integer": r"""
The table shows the shares of right answers on 500 new sentences of 12 words, for each of three runs from
different random weights. Without positions, about half of the nouns are right, which is what guessing gives.
(For the word before, the model is right four times as often as random guessing among 18 words would be: it sees
which words are in the sentence, and can name a repeated one.)

The integer gets the order, but not the neighbor. A line of algebra shows why the neighbor is hard. The key of
the word at position $j$ is $W_K(w_j + j\,u)$, so its score for a query $q$ is $q \cdot W_K w_j + j\,(q \cdot W_K
u)$. The second term is all that the positions of the keys contribute, and for one query it is a constant times
$j$: **a straight line in $j$**. A straight line is highest at one of its ends. It can say "look far left" or
"look far right". It cannot say "look at the place before mine", which needs a peak. (Smaller numbers and longer
training help a little.)

Order is easier, because scores are not the only route. The values and the word's own vector carry the number
too, and comparing two numbers gives order.
""",
        "rotary": """
Both, with few errors.
""",
        "alibi": """
Neither! Look at the formula: $|i - j|$ is the same to the left and to the right. Read the sentence backwards,
and every score stays as it was, so *dog bites man* and *man bites dog* are the same again.

The neighbor is hard for two reasons: symmetry cannot tell the word before from the word after, and with two
heads the slopes, $1/16$ and $1/256$, are too gentle to single out even these two. ALiBi was made for causal
models, where the mask shows the past alone, and Section 9 will show it there at its best. What it gives up: its
bias is largest at distance 0, so by positions alone no head can point at "three back".
""",
        "twice_the_length": """
The sinusoids break: order falls to about chance, and the neighbor to a little over half. Rotary positions lose
less. Their angles go on forever, but training never met those beyond position 11. (If training texts begin at
random positions, sinusoids keep about 90% of the order and 70 to 83% of the neighbors, in three runs of ours.)

Being *defined* beyond the trained length is not the same as *working* there. Relative positions find the
neighbor wherever it is, because "one to the left" was in every training sentence. And the plain integer still
knows most of the order: a later word still has a larger number.

Relative positions lose order because distances that training never met have rows that were never trained. The
next cell tests that.

Of those that knew both, sinusoidal positions lose the most. Only relative positions still find the word before
nearly always.
""",
        "addition": """
Sinusoids, ALiBi, and no encoding had not even learned to add 8-digit numbers in the same 1,000 steps, so their
rows say little about length. Learned positions do not refuse here: their table has 48 rows, of which training
met 23. ALiBi's straight line has no peak: a single head cannot say "exactly three back" by positions alone, and
several heads and layers make up for only part of it.
""",
        "addition_by_digits": """
Relative positions add numbers of 16 digits after training on 8. Rotary positions manage 12, learned positions
almost never 9.
""",
    }
)
