"""Answers to the predictions of lesson 16: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "law": """
From a few megabytes on, about: three to four times. Below, a step lies on the floor: its fifty calls take their
microseconds, however small the matrix. Above, times rise beside the line, at up to twice the prediction: a product
reads memory less smoothly than a plain sum. The storyteller, with 8 MB and four layers, is near the bend: saving bytes
saves less time for it than for a large model.
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
how), so its step hardly grows, and a million tokens cost 62 cents in place of 34 dollars. That is why nobody is
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
free of contradictions with six heads, and 71% with two groups. (One learning rate for all; half of it is 0.006 nats
better.)
""",
        "bits": """
Eight bits cost nothing that you could notice, four bits a few thousandths of a nat, and less with a scale for each 32
weights: the largest of 32 is smaller than the largest of a row. (Huge activations make it harder for large models:
[Dettmers et al., 2022](https://arxiv.org/abs/2208.07339).)

The heavy storyteller gains most, less than its bytes promise, because converting is arithmetic. Converted first, all is
lost: the whole matrix is written and read again. The light one gains little. (Losses are equal: integers of zero stay
zero.)
""",
        "rule": """
Distances like that of your rule are ordinary for samples of $p$. When everything is accepted, the test says
0: these are samples of $q$. Accepted is, on average, what both distributions have in common, $\\sum \\min(p, q)$.
""",
        "speculation": """
For the heavy storyteller, two to three times. Judging several tokens waits for the same 155 MB as one, so five cost
about one and a half steps, not five, and the draft's step next to nothing. The speed that follows is close to what was
measured.

The light storyteller gains little, or loses. The draft has calls, too, so fourteen times fewer weights don't help where
weights are not what takes the time.
""",
        "pairs": """
8 bits and guesses give little more than guesses alone. With 16 texts, 8 bits gain nothing or lose, and guesses little.
All of them spend the same thing: the arithmetic that idles while weights are on their way. One text does half an
operation per byte, and sixteen texts, or six guesses, use up what this core can do. From there on a step waits for
arithmetic, and converting integers is more of it. (bfloat16 is the exception on a processor that multiplies it
directly: half the bytes, and cheaper arithmetic.)

So there is a **critical batch**: $b$ texts do $b/2$ operations per byte in float32, and meet the ridge at twice its
number, about ten texts here. On an H100, with two bytes per weight, it is about 300. Below it, guess or save bits;
above it, neither helps much.
""",
    }
)
