"""Answers to the predictions of lesson 10: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "five_models": """
The best ones are in between. The largest is the worst by far. We think that it read too little (warmup takes
almost a third of its run, too; a higher learning rate did not help). It even cost 1.6 times as much as the
smallest.

So "larger is better" is wrong for a fixed budget, and every budget is fixed.
""",
        "memory_and_cost": """
GPT-3 needs 35 GPUs for these bytes alone, and about half a million dollars at today's prices and 40%
utilization. (The $5 million often quoted is close to an estimate of 2020, for renting V100 GPUs.) For Llama 3's
largest model we estimate 26.6 million hours, and [its model
card](https://huggingface.co/meta-llama/Llama-3.1-405B) reports 30.8 million. $6ND$ over all these hours makes
35% of the peak; [the paper](https://arxiv.org/abs/2407.21783) reports 38 to 43% while training ran.
""",
        "fifth_size": r"""
Four of five losses are inside the range, and on average the law is closer than both guesses. (That lead is not
certain: fitted to one seed alone, it errs 0.37 times as much as the line in $\log N$, with the other 1.1 times.)
But on the longest runs the star is well above the range.
""",
        "one_budget": """
The law's choice ends far lower than ours: with three seeds at 1.41, 1.44, and 1.44, close to the predicted 1.44
(1.42 to 1.45), and 80 × 4 at 1.66 to 1.72. That gap is over three times the spread between seeds. But the grid
did equally well: its two runs, for 2% and 11% more compute, reached 1.44 with 40,000 and with 88,000 parameters.
Near its lowest point, an isoFLOP curve is that flat. And the law of the shorter runs asks for half the size and
twice the text (over four readings, far outside what it was fitted to).

So the law avoids bad splits, but isn't shown to be sharp. Where you have a grid, look there.
""",
        "optimizers": """
Muon's best run ends far lower than AdamW's best. With three seeds we found 2.79 to 2.88 for AdamW at 0.01 and
2.30 to 2.36 for Muon at 0.1. (A threefold rate for the embedding alone brought AdamW from 2.88 to 2.77, so
tuning would close part of the gap. And Muon's steps cost more, here about 11%.)

Why is a rate ten times higher best, if the steps are equally long? A likely reason: AdamW puts most of that
length into a few directions and soon overshoots along them. Muon spreads it over nearly all.

These losses are not to be compared with the grid: they are of the first 4,096 held-out characters, which are
harder. Over all of them, Muon at 0.03 ends at 2.34, not 2.57.
""",
        "distance": """
At distance 31: the same character stands 32 places back, and what followed it is one place closer. The mean
weight there is called the **prefix-matching score**. The heads of block 2 score high, and none of block 1; one
place back, it is a head of block 1.
""",
        "blocks_and_width": r"""
With two blocks the loss drops over about 120 steps, between 80 and 200, and in that time both heads appear; the
head that copies keeps improving. (Our data force this: everything repeats.) With one block the loss falls
slowly, and adding width does not help. Random characters, which none of them was trained on, cost the two-block
models 0.6 nats. The others do worse than guessing among all 103 characters would ($\ln 103 = 4.63$). So what the
deeper models learned is largely a procedure.
""",
    }
)
