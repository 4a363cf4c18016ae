"""Answers to the predictions of lesson 16: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "limit": """
None of them comes close, and the smaller the model, the smaller the share. A pass is more than a hundred calls of
PyTorch's operations, and each takes some microseconds however small its matrix is. And a product of a small matrix
may read memory less smoothly than the plain sum with which we measured the bandwidth. We did not take the two apart.
The wide model comes closest.

Keep this in mind for the rest of the lesson: a lever that saves bytes saves less time here than it does on a large
model. (The limit isn't quite strict for a small model, since its weights may stay in the processor's own cache.)
""",
        "prefill": """
The weights are now shared by 100 tokens, so there are almost 100 times as many operations per byte. That isn't 100
times as fast: right of the **ridge**, where the two lines meet, arithmetic is the limit, and the roofline allows five
to ten times on processors like this one. By the clock it was even more here, because 100 tokens share the time of the
calls as well.
""",
        "prices": """
For one text, a step of the 7B model reads 13.4 GB of weights and 0.5 GB of cache, which takes 4.2 ms. With 64 texts
it takes 14 ms: 3.4 times as long for 64 times as many tokens. What grew is the cache, from 0.5 to 34 GB, because
nobody shares that; arithmetic would take 0.9 ms. The 70B model has a smaller cache for each text (Section 4 shows
how), so its step hardly grows, and a million tokens cost 62 cents in place of 34 dollars. That is why nobody is
served alone. On this core, however, arithmetic becomes the limit.
""",
        "timeline": """
25, and the texts are the same. The stories have 63 words together, so three seats need at least 21 steps. In the last
five of these 25, one story is alone: nobody may overtake, and nobody knew that it would be a long one.

A schedule decides when a word is written, never which: the rows of a batch do not see each other.
""",
        "uptraining": """
Nearly all of it. With two groups, a third of the cache, the loss ends 0.01 nats above that of six heads that were
trained as long (which itself rose by 0.01). And the mean, which began worse, ends better by far, in all three runs.

The loss hides a part of the price, however: of 100 stories each, 84% are free of contradictions with six heads, 71%
with two groups of means, and 15% with two first heads. 2% of the training is little; the paper takes 5%.
""",
        "bits": """
Eight bits cost nothing that you could notice. Four bits cost a few thousandths of a nat, and less when each 32 weights
have their own scale, because the largest of 32 weights is smaller than the largest of a whole row. (In large language
models a few numbers of the activations are huge, which makes 8 bits harder than here: [Dettmers et al.,
2022](https://arxiv.org/abs/2208.07339).)

But this core gains little, or loses. PyTorch multiplies floating-point numbers here, so the integers are converted
first, at every step, and that takes about as long as the reading saves, or longer. Real systems multiply the integers
themselves, or convert them inside of the product. Whether bfloat16 helps depends on your processor's instructions.
""",
        "rule": """
Distances like that of your rule are ordinary for samples of $p$. When everything is accepted, the test says
0: these are samples of $q$. Accepted is, on average, what both distributions have in common, $\\sum \\min(p, q)$.
""",
        "speculation": """
With a draft that is 14 times as fast, the formula promises 3.3 times. But its step is only about 5 times as fast, as in
Section 1, and with that $c$ the formula promises 2.3 times. The clock said 1.5, and with $k = 1$ there was nothing to
gain.

The formula takes judging five tokens to cost one step. On this core it costs 1.6 to 2 steps: less where the weights
come from memory, more where they stay in the processor's cache. With that, the table predicts 1.5 to 2.0 times (gray).
The draft model stays below even this at every $k$, so these two causes are not all that it lacks.

The table of counts is accepted less often and costs almost nothing, and comes out about even. Both are ways to pay
less; being exact, neither changes a word's probability.
""",
    }
)
