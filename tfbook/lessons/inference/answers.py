"""Answers to the predictions of lesson 16: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "law": """
From a few megabytes on, about: three to four times. Below, a step lies on the floor: its fifty calls take their
microseconds, however small the matrix. Above, times rise beside the line, at up to twice the prediction: a product
reads memory less smoothly than a plain sum. (A few megabytes may also stay in the processor's own cache.)

The storyteller, with 8 MB and four layers, spends about half of a step on calls. So saving bytes saves less time for
it than for a large model.
""",
        "h100": """
0.87 ms, more than ten times as long. Even with one launch per step, a layer is a dozen small operations, one after the
other, and each takes microseconds however little it reads: 0.08 ms per layer, says the smaller GPT (first row). With
this fixed cost and bytes ÷ bandwidth, the other steps come out within 20%, and 64 texts take 1.5 times as long as one.

*Training* this GPT-2 on that card reached 39% of the peak of arithmetic; writing one text, 0.03%.
""",
        "prefill": """
The weights are now shared by 100 tokens, so there are almost 100 times as many operations per byte. That isn't 100
times as fast: right of the **ridge**, where the two lines meet, arithmetic is the limit, and the roofline allows five
to ten times. By the clock it was even more, because 100 tokens share the calls as well.
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

A schedule decides when a word is written, never which, where the likeliest one is taken: the rows of a batch do not see
each other. (Where words are drawn, the order of the draws would change as well.)
""",
        "uptraining": """
Nearly all of the loss, but not of the stories. With two groups, a third of the cache, the loss ends 0.01 nats above
that of six heads that were trained as long (which itself rose by 0.01). And the mean, which began worse, ends better
by far, in all three runs.

The loss hides a part of the price, however: of 100 stories each, 84% are free of contradictions with six heads, 71%
with two groups of means, and 15% with two first heads. (All had one learning rate; on other stories, half of it is
0.006 nats better.)
""",
        "bits": """
Eight bits cost nothing that you could notice. Four bits cost a few thousandths of a nat, and less with a scale for each
32 weights, because the largest of 32 is smaller than the largest of a whole row. (In large language models a few
activations are huge, which makes 8 bits harder: [Dettmers et al., 2022](https://arxiv.org/abs/2208.07339).)

The heavy storyteller gets more than twice as fast with 8 bits and with 4, where they are converted inside of the
product. Their bytes promise more, but converting is arithmetic. Converted first, all is lost: the whole matrix is
written and read again. The light storyteller gains little. (Its losses are the heavy one's, too: integers of zero stay
zero.)
""",
        "rule": """
Distances like that of your rule are ordinary for samples of $p$. When everything is accepted, the test says
0: these are samples of $q$. Accepted is, on average, what both distributions have in common, $\\sum \\min(p, q)$.
""",
        "speculation": """
For the heavy storyteller, two to three times. A step waits for 155 MB, and judging several tokens waits for the same
bytes: five tokens cost about one and a half steps, not five. The draft's step costs next to nothing beside that. What
follows from the three times is close to what was measured.

The light storyteller gains little, or loses. Calls take half of its step, and the draft has calls, too: its step costs
a third of the large one's, and judging costs almost two. The formula still promises a little, and the clock takes it
away: it also counts the draws and the bookkeeping. Fourteen times fewer weights don't help where weights are not what
takes the time.
""",
        "pairs": """
They don't multiply: 8 bits and guesses together are not much more than guesses alone, and with 16 texts, 8 bits gain
nothing or lose. All of them spend the same thing, the arithmetic that idles while weights are on their way. One text
does half an operation per byte, and this core could do about five. Sixteen texts, or six guesses, use that up. From
there on a step waits for arithmetic, and converting integers is more of it. (bfloat16 is the exception on a processor
that multiplies it directly: half the bytes, and cheaper arithmetic.)

So there is a **critical batch**: $b$ texts do $b/2$ operations per byte in float32, which meets the ridge at $b = 2
\\times$ operations per byte, about ten texts here. An H100 does 295 operations per byte, and weights of two bytes give
$b$ operations per byte, so about 300 texts. Below it, guess or save bits; above it, neither helps.
""",
    }
)
