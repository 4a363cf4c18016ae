"""Answers to the predictions of lesson 16: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "limit": """
None of them comes close, and the smaller the model, the smaller the share. A pass is more than a hundred calls of
PyTorch's operations, and each takes some microseconds however small its matrix is. For the draft, that is nearly
everything. The wide model comes closest; its products may read memory less smoothly than the plain sum with which we
measured the bandwidth.

Keep this in mind for the rest of the lesson: a lever that saves bytes saves less time here than it does on a large
model. (The limit isn't quite strict for a small model, since its weights may stay in the processor's own cache.)
""",
        "prefill": """
The weights are now shared by 100 tokens, so there are almost 100 times as many operations per byte. That isn't 100
times as fast: right of the **ridge**, where the two lines meet, arithmetic is the limit, and the roofline allows
five to ten times on most processors. By the clock it was even more here, because 100 tokens share the time of the
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
five of these 25, one story is alone: nobody knew that it would be a long one.

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
have their own scale, because one large weight then spoils only its own group. (In large language models a few numbers
of the activations are huge, which makes 8 bits harder than here: [Dettmers et al., 2022](https://arxiv.org/abs/2208.07339).)

But this core gains little, or loses. PyTorch multiplies floating-point numbers here, so the integers are converted
first, at every step, and that takes about as long as the reading saves, or longer. Real systems multiply the integers themselves, or convert
them inside of the product. Whether bfloat16 helps depends on your processor's instructions.
""",
        "rule": """
Distances like that of your rule are ordinary for samples of $p$. When everything is accepted, the test says
0: these are samples of $q$. Accepted is, on average, what both distributions have in common, $\\sum \\min(p, q)$.
""",
        "speculation": """
The formula promises 2.3 times. The clock said 1.5, and with $k = 1$ there was nothing to gain.

The promise assumes that judging five tokens costs one step. On this core it costs 1.6 to 2 steps. And the draft's step isn't 14 times
cheaper, but about 5 times: its time goes into calls (Section 1). The table uses the shortest of 60 passes each, and
predicts 1.5 to 2.0 times, depending on where the weights are: where they come from memory, judging adds less than
where they stay in the processor's cache.

The table of counts is accepted less often and costs almost nothing, and comes out about even. Both are ways to pay
less; being exact, neither changes a word's probability.
""",
    }
)
