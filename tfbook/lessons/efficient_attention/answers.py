"""Answers to the predictions of lesson 15: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "twice_the_length": r"""
Four times as much: the weights are a matrix of $n \times n$ numbers. For our book a single such matrix takes
$16{,}384^2 \cdot 4$ bytes, which is more than a gigabyte, for one head of one layer, and the scores and their
softmax exist at the same time, hence the two gigabytes in the figure. As for time, the pairs ($2n^2d$
multiplications) overtake the four projections ($4nd^2$, with $d$ the width of the model) only beyond $n = 2d$,
and a whole layer's products, feed-forward network included ($12nd^2$), beyond $n = 6d$.

On logarithmic axes a power of $n$ is a straight line, and its slope is the exponent.
""",
        "tiles": """
A few megabytes, and the sentence is there.

The distance at the right end is what the tiles save. What is left: a few tiles of fixed size, and the output,
twice (as blocks, and joined), which grows with $n$.
""",
        "window": """
One percent of the pairs, and an empty answer (“·” is a row of zeros): within the window, each query matches only
itself, and its own value is zero.
""",
        "hashing": """
Most of it (92% of the characters over twelve sets of directions, everything in one of them), although each block
of 64 reads only 192 sorted keys. That is as many as the window read, which found nothing. The vector we look for
is *exactly* the same, so no border can separate the two. The errors come from overfull buckets, where the right
key may stand too far away in the sorted order.

Against both kinds of misses, Reformer hashes several times with new directions. Our test flatters hashing, since
vectors are usually only similar; Going further measures what several rounds find then, and what they cost.
""",
        "linear": r"""
No. It answers with spaces alone, for two reasons. The first is that $\varphi$ is flat: a perfect match weighs
only a few times as much as the average key, so even the small book fails.

The second appears once we drop $\varphi$ (raw products can be negative, so we don't divide): the small book
comes back garbled but recognizable, the whole book not at all. Keys of 64 numbers can be kept fully apart (at
right angles) only if there are at most 64 of them. The small book has 131 distinct keys, the whole book 9,550.
With keys of 512 numbers (`wide`), the small book is read without an error. (Going further tries other
$\varphi$.)
""",
        "distances": """
Inside one window, the windowed model answers nearly everything. Within the reach of two layers, accuracy is
already fading (78% at about 55 tokens, where only 8 positions lie within 31 tokens of both fact and question),
and beyond that it guesses. More training cannot help there: the fact never arrives. With one dense layer of two,
every question is answered, in each of three seeds.

Linear attention answers about 90% to 100% of the far questions, although it failed on the book. Here the vectors
could be learned, and there are eight facts to keep, not a book. Keep the limits in mind: one task, one tiny
model, 256 tokens.
""",
        "layers": """
Two layers, because any two blocks meet through the global one. (The paper reads in both directions. In a
**causal** model, where no token sees a later one, the global block comes first and hears nobody, so that path is
closed.) The random blocks are shortcuts: with them, a message needs a few layers, not hundreds. And one layer
alone answers nothing. The global block can carry a message only if some layer has *put* it there, which is what
training is for.
""",
        "recall": """
With tight clusters, eight rounds find more than nine of ten top keys. Without structure, four rounds miss more
than half. The cost is linear in the rounds, so better recall has a predictable price. Whether it is a good
bargain depends on whether your model's vectors form clusters.
""",
    }
)
