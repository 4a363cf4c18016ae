"""Answers to the predictions of lesson 02: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "temperature": """
Hot means even: at $T = 10$ each animal has about a third. Cold means hard: at $T = 0.01$ the parrot has nearly
all the weight, and we are almost back at the dictionary that cannot learn. The cat never wins, because dividing
all scores by the same positive number keeps their order. No temperature repairs that: we need another score.

Cooling exaggerates the lead of the winner, whoever that is.
""",
        "relations": """
No score wins everywhere. Dot and scaled dot are reliable only on *same*, and they agree in every panel, because
dividing all scores by the same number changes no winner.

- **stretched**: only cosine compares the keys without their lengths. With a dot product, long keys often win
against the right one.
- **turned**: only scores that learn a map for the query or the key, and then compare the two, can undo the
rotation. Dot and cosine even do worse than guessing, since this rotation happens to turn most vectors away from
themselves.
- **squared**: no matrix makes a square. Additive has a nonlinearity inside, and gets about 70%. (General ends
below dot here. $W = I$ would give dot's accuracy, but a worse loss than even weights, so training shrinks $W$
toward 0 instead.)
- **place**: the keys say nothing about where they are. Location needs only the query.
""",
        "effective_keys": r"""
At width 1,024 the unscaled softmax looks at about one key (middle panel): whichever random key is ahead wins
everything. With the division, it looks at about 20 keys at every width.

The right panel shows what this does to learning. The slope of weight $\alpha_i$ in score $e_j$ is $\alpha_i
(\delta_{ij} - \alpha_j)$, where $\delta_{ij}$ is 1 for $i = j$ and 0 otherwise. If every weight is close to 0 or
1, all of these products are close to 0, and for most queries hardly any gradient reaches the scores, if the loss
sees only the mixture. (The loss $-\ln \alpha_i$ of Section 4 escapes: its slope is $\alpha_j - \delta_{ij}$.) (A
scaled score's gradient is also divided by $\sqrt d$ on its way back, the same factor for every query, for which
Adam makes up.)

But notice that at widths 4 and 16, the unscaled softmax passes *more* gradient. So the point of $\sqrt{d}$ is
not that a variance of 1 is best, but that the softmax behaves in the same way at every width.
""",
        "after_15_steps": """
Within 15 steps, the unscaled score looks at **one** word, and from then on at hardly more than one at a time. In
the end the scaled version, too, looks at fewer than two words, but about 80% of its weight is on the right ones,
against roughly a third.

Both versions end up sure of themselves, but only one of them looked around first.
""",
        "additive_cost": """
On our machine, the additive score takes more than ten times as long and keeps 44 times as much. (Not 65 times,
because both also keep the queries and keys.) Every score needs time and memory for every pair (lesson 15 is
about that), but additive needs a whole hidden layer for each.

Its memory grows with length × length × width.
""",
        "narrow_keys": """
About half is left. A narrow key can tell fewer items apart, which limits the heads of a Transformer, too
(Bhojanapalli et al., 2020).
""",
    }
)
