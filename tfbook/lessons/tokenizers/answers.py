"""Answers to the predictions of lesson 07: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "three_alphabets": """
Only the bytes lose nothing, whatever you type, but no row is longer. Words lose whatever occurs fewer than two
times: new words, names, typos, emoji. Characters lose less, but there are more than 150,000 of them in Unicode,
and most never occur in your text.
""",
        "merges": """
The second merge joins `in` and `g`, because that pair occurs five times too, and the third makes `ring`, which
occurs three times. So *spring* is now `s p ring`. Nobody told the algorithm that *-ing* is a useful piece of
English. It was frequent, and that was enough.
""",
        "one_id_at_a_time": """
You see `�` four times, once for each byte of the robot: it stands for bytes that mean nothing on their own. A
program that prints while a model writes must wait for whole characters. A `�` in a chat often means that it did
not wait.
""",
        "typos": """
Nearly all of these frequent words are a single token. With two letters swapped, the same words take more than
three on average, and capitals take even more. None of these is the token for the intended word, so a model must
learn that the two mean the same.
""",
        "counting": """
The counter of bytes is right on all new words, since it has met every letter. The counter of single tokens
memorized one answer for each. Its failure is built in: a new token's value was never trained, so it stays at its
start, 0, which is right only where there is no r.
""",
        "values_of_tokens": """
The informative row is the third: in a new word of seen tokens the values add up, usually to the right number.
(Now and then it is half an r. With Shakespeare's plays, *feverous* got one half: in that small training set, `ever`
came only with `who`, and the two share the credit.)

A new token has kept its 0.
""",
        "vocabulary_size": """
Sixteen times as many tokens in the vocabulary cut Shakespeare's length in tokens to about a third, and that of
Python's reference to about a quarter: each further merge joins a rarer pair.

After the same number of tokens, larger is better: longer tokens cover more text (at 4,096, 5.3 passes over the
training text instead of 1.6), 128 of them reach further back, and the model has up to three times the
parameters. After the same amount of text it still is.

But with equal compute, counted in this way, the curve flattens at about 1,024 tokens, and at 4,096 both runs are
slightly worse. Counting attention's products as well helps the large ones: then 2,048 is best and 4,096 next.
Two runs each can't settle it. A large vocabulary makes each step more expensive, since its rows are most of the
parameters of such a small model.
""",
    }
)
