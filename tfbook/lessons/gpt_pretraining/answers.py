"""Answers to lesson 09's predictions: what happened and why."""

from __future__ import annotations

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "counting": """
Any few neighboring words look fine, and often a whole sentence does. But names and things appear out of nowhere and are
soon forgotten. The checker's numbers are the sentences that are possible in this world, the stories without a wrong
name, and the stories right in **every** respect.
""",
        "one_word": """
Before training, the loss is close to $\\ln V$, that of an even guess. Look at this number first in any run: far above
it, the model starts out confidently wrong; far below it, the measurement is wrong, or the weights are not fresh. And a
network that sees one word can at best know what counting one word back knows: that is where it is heading.
""",
        "branches": """
In one layer, the suspect was innocent: the norm does it all, 1.94 alone and 1.97 with the sum. But in two, the norm
alone is lost (4.04), and the sum alone does better (3.06). Only with both do two layers learn as quickly as one. So the
straight path matters as soon as there is depth.
""",
        "ladder": """
Attention, by far: one head takes the loss from 2.35 to 0.72, below that of counting four words back. Three more heads
take off 0.15, and a second block 0.05. The feed-forward network takes off 0.01, hardly more than runs differ, and two
blocks *without* it end within 0.01 of the whole, with as many right stories.

The surprise is the branch. It made the first 60 steps quick, and after 600, one head is no better with it (0.70 to 0.80
in three runs; 0.71 to 0.73 without), and four heads are equal. But without branches, each further layer makes it worse:
0.62, 0.68, and 0.81 with two blocks (which diverge at twice their best rate), none of whose stories is right.
With branches, the same layers go down to 0.60 and 0.55. A branch buys speed at first, and it makes depth pay.
""",
        "training": """
First come frequent words, then words that follow each other, then whole sentences that don't belong together. Only
after that do the stories start to make sense.
""",
        "growth": """
By then (dashed), pronouns and names are hardly better than an even guess, and a thing gets at most 2.4 times its even
share: the sentences are fluent, but about no particular kite. Later, each kind rises within a few hundred steps, names
last in all three runs.

All of this barely moves the loss. One word in 25 is a determined name, and an even guess at it costs $\\ln 12 \\approx
2.5$ nats, or 0.1 per word of the story; with the other kinds it is about 0.15 of the six nats. And yet one wrong word
spoils a story.
""",
        "overfit": """
The first curve falls to 0.047. The second one falls along with it to 2.2 at 40 steps, after eight readings (we looked
at 30, 40, and 80), and then climbs above 4, two thirds of an even guess: the model **overfits**. And it recites: every
story that it writes is one of the 100, word for word. The number 0.047 says the same: choosing one story of 100 takes
$\\ln 100 = 4.6$ nats, once per story of some 98 words, and the rest is memorized. That is why one looks at held-out
text, stops when its loss turns, and, better, gets more text.
""",
        "adamw": """
With its best rate, AdamW ends at 0.86 to 0.90 nats, about 0.3 above Muon, and **none** of its stories is right in every
respect, since nearly all have a wrong name. More steps may well get it there. In the same 600 steps, though, the
optimizer decides about twice as much as the whole growth of the model from its first head on. (Both began from the same
kind of random weights, which were tuned for neither; and AdamW had one rate for all of its weights.)
""",
        "patch": """
Lucy speaks, whom this text never mentions. 32 numbers at one word have renamed the speaker: you have rewritten the
model's memory of who was introduced. That had to be at the name or a later word, such as the period after it: before
the name, the two stories are equal.

Is that a quirk of one run? Below are three more, from other random weights (**stored runs**).
""",
        "hours": """
Nearly nine in ten. All that extra work buys about 40 to 45 more right stories per 100 than runs like yours have, for
0.05 nats per word. To two decimals, its loss is a perfect model's, and yet more than one story in ten contradicts
itself, even at temperature 0.7. A 13% chance of that costs at least $-\\ln 0.87 = 0.14$ nats per *story*, 0.0014 per
word. The loss hardly shows it.
""",
        "places": """
The hill gets 0.04 where it is her home and 0.12 where her home is in the park or by the river. So the model knows where
she lives? No: it gets the same 0.04 if she lives *on* the farm. In every row the first two columns are close. What
it avoids is not her home but all places that take the **same preposition** as her home, some strongly and some
slightly: a shortcut, right about home, and wrong about the farm.

It never had to learn better. Ruling out home and nothing else would save little, at a few words in a hundred, and
no story complains. A good loss cannot tell you that a fact was learned; a question that separates the fact from its
shortcut can.
""",
        "blank": """
From both sides it is nearly always right. In each of these stories the hidden name recurs further right, so finding it
is no feat, but the model was trained to read from the left only.
""",
        "variance": """
Unscaled, the variance grows about in proportion to the depth (independent additions of one size would give 4); scaled,
the final variance doesn't depend on the depth. With our two blocks it hardly matters.
""",
    }
)
