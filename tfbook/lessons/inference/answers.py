"""Answers to the predictions of lesson 16: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "law": """
From a few megabytes on, it takes three to four times as long. Below, a step lies on the floor: its fifty calls take
their microseconds, however small the matrix. The two largest come out at up to twice the prediction: a product doesn't
reach the bandwidth of a plain sum. The storyteller, with 8 MB and four layers, is near the bend: saving bytes saves
less time for it than for a large model.
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
25, and the texts are the same. The stories have 63 words together, so three seats need at least 21 steps. In the last
five of these 25, one story is alone, since nobody knew that it would be a long one.

A schedule decides when a word is written, never which, where the likeliest one is taken.
""",
        "uptraining": """
Nearly all of the loss, but not of the stories. With a third of the cache, the loss ends 0.01 nats above that of six
heads that were trained as long (which itself rose by 0.01). But of a hundred stories for each of three seeds, 84% are
free of contradictions with six heads, and 71% with two groups, as judged by the program that knows the stories' rules
(who gave what to whom, say). (One learning rate for all; half of it is 0.006 nats
better.)
""",
        "contexts": """
After 900 tokens, about one and a half times as fast, though the bytes promised more. After 60, much less: the cache is
a small part of the bytes. With six heads, throughput soon stops rising: from a few texts on, the step's bytes are
caches, and each new text brings its own.
""",
        "bits": """
Eight bits cost nothing that you could notice, four bits a few thousandths of a nat, and less with a scale for each 32
weights: the largest of 32 is smaller than the largest of a row. (Huge activations make it harder for large models:
[Dettmers et al., 2022](https://arxiv.org/abs/2208.07339).)

The heavy storyteller gains most, less than its bytes promise: converting takes time, too. Converted first, all is
lost: the whole matrix is written and read again. The light one gains less, because part of its step is calls. (Losses
are equal: integers of zero stay zero.)
""",
        "rule": """
Distances like that of your rule are ordinary for samples of $p$. When everything is accepted, the test says
0: these are samples of $q$. Accepted is, on average, what both distributions have in common, $\\sum \\min(p, q)$.
""",
        "speculation": """
The heavy storyteller gains two to three times. Judging several tokens waits for the same 155 MB as one, so five cost
about one and a half steps, not five, and the draft's step next to nothing. One guess alone gains little or loses:
judging two is that expensive second row.

The light storyteller gains little, or loses. Its draft has 14 times fewer weights, but nearly a third of its time. The
dotted curve knows that and still promises more: a round also draws words, compares, and forgets, and this bookkeeping
isn't among the parts.
""",
        "pairs": """
8 bits and guesses give little more than guesses alone, and with 16 texts, 8 bits gain nothing or lose. Guesses and
texts both use a weight for more rows, so both spend the arithmetic that idles while weights are on their way. And this
integer product takes longer with each row, as if it converted anew for each. That is a habit of this code, not of 8
bits: converting once for all rows would keep more.

Two groups and 16 long texts give **more** than multiplied. For one text, nearly all bytes are weights, so a smaller
cache saves nothing. A batch shares the weights, and the caches remain.

So until which batch are further texts nearly free? Until operations per byte reach the ridge: the **critical batch**.
Here that is about ten short texts. On an H100, it would be about 300 if there were no caches. Llama 2 7B after 1,000
tokens never gets there: its caches must shrink first. The 70B model with its 8 groups does, at about 900 texts.
""",
    }
)
