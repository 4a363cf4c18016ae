"""Answers to the predictions of lesson 20: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "lonely": r"""
Two different models, and neither is the one that a single machine trains. On fresh text their losses are close after
ten steps; after 100 we measured 4.93 and 5.01 alone against 4.71 for one machine, which a log would show. With the
gradients added, all agree to about $10^{-14}$, the rounding of 64-bit numbers: the gradient of a sum is the sum of the
gradients.
""",
        "ring_bytes": r"""
Less than twice as much: 1.97 times the gradient's size instead of 1. A ring of $n$ machines sends $2(n-1)$ pieces of
$1/n$ each, which is $2(n-1)/n$ and never reaches 2. One machine that collects all gradients gets $n - 1$ times the
size, 63 for 64. The ring costs **latency** instead, the time for a message to start: it has $2(n-1)$ steps one after
the other, 126 for 64 machines. So for *small* messages libraries use trees.
""",
        "hides": r"""
Both need the same number. A model with a thousand times the parameters sends a thousand times the bytes, and its
backward pass takes a thousand times the operations: $N$ cancels. What is left is a property of the hardware,
operations per second over bytes per second.
""",
        "bubbles": r"""
The bubble is the same. Both wait $(p-1)/(m+p-1)$ of the time, here 27%: the first microbatch has to pass all stages
before the last stage can begin, and at the end the first stage is the last to finish. What differs is memory. GPipe
keeps the activations of all 8 microbatches until the backward passes begin; 1F1B's stage 0 never keeps more than 4, and
would not for 800. So more microbatches become affordable, and those shrink the bubble.
""",
        "killed": r"""
They begin with step 12, the first one after the last save, so three steps are done again. Their losses, and all later
ones, lie on the gray curve of a run that nobody disturbed. The saved file has three things for that: the weights,
Adam's two means, and the number of the step, from which the next batch follows.
""",
    }
)
