"""Answers to the predictions of lesson 20: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "lonely": r"""
Two different models, and neither is the one that a single machine trains. The losses look alike, so a log would not
warn you. With the gradients added, all three agree to about $10^{-14}$, the rounding of 64-bit numbers: the gradient of
a sum is the sum of the gradients, so it doesn't matter who computes which term.
""",
        "ring_bytes": r"""
Less than twice as much: 1.97 times the gradient's size instead of 1. A ring of $n$ machines sends $2(n-1)$ pieces of
$1/n$ each, which is $2(n-1)/n$ and never reaches 2. Whoever collects all gradients on one machine needs $n - 1$ times
the size at that machine, 63 for 64. The ring pays in another coin: it has $2(n-1)$ steps one after the other, 126 for
64 machines, so for *small* messages the waiting counts, and libraries use trees instead.
""",
        "bubbles": r"""
The bubble is the same. Both wait $(p-1)/(m+p-1)$ of the time, here 27%: the first microbatch has to pass all stages
before the last stage can begin, and at the end the first stage is the last to finish. What differs is memory. GPipe
keeps the activations of all 8 microbatches until the way back begins; in the schedule below it, stage 0 never keeps
more than 4, and would not for 800 microbatches. So more microbatches become affordable, and those shrink the bubble.
""",
        "killed": r"""
They begin with step 12, the first one after the last checkpoint, so three steps were lost and are done again. Their
losses, and all later ones, lie on the gray curve of a run that nobody disturbed. Three things had to be in the
checkpoint for that: the weights, Adam's two means, and the number of the step, from which the next batch follows.
""",
    }
)
