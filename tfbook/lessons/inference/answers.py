"""Answers to the predictions of lesson 16: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "law": """
From a few megabytes on, it takes three to four times as long. Below, a step lies on the floor: its fifty calls take
their microseconds, however small the matrix. The two largest come out at up to twice the prediction: a product doesn't
reach the bandwidth of a plain sum.
""",
        "h100": """
0.87 ms, more than ten times as long. Even with one launch per step, a layer is a dozen small operations, one after the
other: 0.08 ms, says the smaller GPT (first row). With this fixed cost and bytes ÷ bandwidth, the other steps come out
within 20%, and 64 texts take 1.5 times as long as one. Writing one text used 0.03% of the card's arithmetic.
""",
        "prefill": """
Each weight now serves 100 tokens, with almost 100 times as many operations per byte. That isn't 100 times as fast:
right of the corner, arithmetic is the limit, and the roofline allows five to ten times. By the clock it was even more,
because 100 tokens share the calls as well.
""",
        "prices": """
For one text, a step of the 7B model reads 13.4 GB of weights and 0.5 GB of cache, which takes 4.2 ms. With 64 texts
it takes 14 ms: 3.4 times as long for 64 times as many tokens. What grew is the cache, from 0.5 to 34 GB, because
nobody shares that; arithmetic would take 0.9 ms. The 70B model has a smaller cache for each text (Section 4 shows
how), so its step hardly grows, and a million tokens cost 62 cents instead of 34 dollars. That is why nobody is
served alone. On this core, however, arithmetic becomes the limit.
""",
        "timeline": """
25, and the texts are the same. The stories have 63 words together, so three seats need at least 21 steps.

A schedule decides when a word is written, never which, where the likeliest one is taken.
""",
        "uptraining": """
Nearly all of the loss, but not of the stories. With a third of the cache, the loss ends 0.01 nats above that of six
heads that were trained as long. But of a hundred stories for each of three seeds, 84% are
free of contradictions with six heads, and 71% with two groups, by a program that knows the stories' rules (who
gave what to whom).
""",
        "contexts": """
After 900 tokens, more than one and a half times; the bytes promised more. After 60, less: the cache is a smaller part
of the bytes. With six heads, each new text soon adds little, because it brings its own cache.
""",
        "bits": """
Eight bits cost nothing that you could notice, four bits a few thousandths of a nat, and less with a scale for each 32
weights: the largest of 32 is smaller than the largest of a row. (Huge activations make it harder for large models:
[Dettmers et al., 2022](https://arxiv.org/abs/2208.07339).)

The heavy storyteller gains most, less than its bytes promise: converting takes time, too. Converted first, all is
lost: the whole matrix is written and read again. The light one gains less, because part of its step is calls.
""",
        "rule": """
Distances like that of your rule are ordinary for samples of $p$. When everything is accepted, the test says
0: these are samples of $q$. Accepted is, on average, what both distributions have in common, $\\sum \\min(p, q)$.
""",
        "speculation": """
The heavy storyteller gains two to three times. Judging several tokens waits for the same 155 MB as one, so five cost
less than two steps, not five. One guess alone gains little or loses: judging two is that expensive second row.

The light one gains little, or loses. The draft's step takes nearly a third of its own: calls. The dotted curve knows
that and promises more, but a round also draws words, compares, and forgets, which isn't among the parts.
""",
        "pairs": """
8 bits and guesses give little more than guesses alone, and with 16 texts, 8 bits gain nothing or lose. Guesses and
texts are both more rows, and spend the arithmetic that idles while weights are on their way. And this integer product
takes longer with each row, as if it converted anew for each: a habit of this code, not of 8 bits.

Two groups and 16 long texts give more than multiplied: a batch shares the weights, so the caches remain.

Until which batch are texts nearly free, then? Until operations per byte reach the ridge, at the **critical batch**:
about ten short texts here, and 295 on an H100 if there were no caches. After 1,000 tokens, Llama 2 7B never gets
there; the 70B model with its 8 groups does, at 930 texts. Where memory limits, fewer cache bytes and guesses still
help.
""",
    }
)
