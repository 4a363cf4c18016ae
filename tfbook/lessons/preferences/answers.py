"""Answers to the predictions of lesson 12: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "request": """
More stories are generous, but asking for a race works at least as well, so the storyteller hasn't understood. It
has never seen a request. To the model, this is one more odd sentence from the middle of some story, and it goes
on from there, with characters who were never introduced. None of these stories is consistent.
""",
        "new_pairs": """
Most pairs come out right. But in every pair, the worse story is one in which nobody gives anything. We also set
46 liked stories against 12 generous ones with a contradiction: the reward model put 50% of these pairs in the
right order. It has learned half of the reader's taste. (Thirteen better stories are a rough test, too.)
""",
        "how_many": """
Sixteen were not enough, but 64 were. Perhaps so few are enough because the draft already knew about gifts, and
had to learn only that this is what counts.
""",
        "policy": """
The score has risen, and far more stories are generous, at a small KL. The reader likes more of them, too,
although fewer are consistent. (A share of 64 stories is uncertain by about twelve points, two standard errors.)
Section 6 goes on from here.
""",
        "after_dpo": """
Most of the stories are generous now, and far more of them are liked. But fewer are consistent. Is that damage
done by DPO? Partly. When something changes hands, there is more to get wrong: of the storyteller's *own*
generous stories, only 65% were consistent, against 81% of all, and DPO hardly changes that (claim 3 below). But
stories in which nobody gives anything got worse: 85% of them were consistent before, and 68% are now (stored
runs).
""",
        "margins": """
The chosen stories became likelier, the rejected ones less likely. But only the gap is trained. In large models,
the chosen answer's own probability often *falls*, too ([Rafailov et al.,
2024](https://arxiv.org/abs/2404.12358)), and texts that nobody compared gain.
""",
        "no_leash": r"""
With $\beta = 0$, the mean score climbs, ever more slowly (in the run shown below it ends lower, at 1.7 after
2.0). The truth rises to 30%, stays there for a while, and falls: the run that drifted furthest ends at 8%, no
better than the storyteller. (A mean of 480 stories is uncertain by about 4 points, a single run by 8 at most.)
With $\beta = 0.1$, the score gets almost as far at a quarter of the KL, and she likes nearly half of the
stories. With $\beta = 0.5$, the policy stays close and gains less.
""",
        "controls": """
In both. With shuffled scores, nothing is gained, and yet consistency falls with KL, from 75% at 5 nats to 44% at
11. When the reader scores the stories herself, it falls, too: 57% at 6 nats, 32% at 16. Much of the loss is
therefore **drift** away from what pretraining taught, no matter who scores.

At about 10 nats, though, the reward model's run is the least consistent (33%, against 44% to 61% in the
controls), so some of it may be hacking: our pairs never showed the model that a contradiction counts (Section
3).
""",
        "which_method": r"""
At equal compute, DPO and PPO ($\beta = 0.1$) are about level, and the same holds at equal KL. With 1,000 stories
to write, best of n costs about as much for the same share of liked ones: PPO pays off from about 830 stories on,
DPO from about 1,130. PPO can go on, since it writes new stories, while DPO has one pool.

SFT is the cheapest, and the reader likes about as many of its stories as of the best of 16. But its
demonstrations were perfect: 128 stories, all generous and all consistent. People who can write those are
expensive; comparing two of the model's own stories is something that anyone can do. (We left out a rival: SFT on
the 48 liked stories of the pool, the same comparisons. In three short runs, the reader liked 65%, 57%, and 65% of
what it wrote, at 7 to 9 nats.)

The purple line is the one to remember. **Best of n gains the most at small KL.** At 1.8 nats, the reader likes
59% of the best of 16; DPO reaches 39% at 3 nats, and PPO 47% at 5. (Best of 16's bar is long: PPO may still be
level with it.) But best of n pays $n$ passes for each story, and a trained policy pays one. That is one reason
why people train.
""",
    }
)
