"""Answers to the predictions of lesson 11: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "first_play": """
Above 6.5: it does worse than a uniform guess. Words such as *Scene* and *Enter* never occurred in a tale, so the
storyteller has learned to give them next to no probability. Then it carries on with a tale.
""",
        "plays": """
It writes plays: scenes, entrances, speakers. But it has **forgotten** part of what it knew: the loss on tales
goes up from the first steps on. Nothing in the loss asks the model to keep them. This is called *catastrophic
forgetting* ([McCloskey and Cohen, 1989](https://doi.org/10.1016/S0079-7421(08)60536-8)).
""",
        "replay": """
The loss on tales ends near 0.6 nats, and that costs next to nothing on plays. The price is 25% more texts per
step, and you need the old text. (If you only downloaded the model, it can write some. With 120 tales of its own,
the loss on tales ended at 0.65 and 0.80 in two runs.)
""",
        "new_rows": """
More than half of it, with less than half a percent of the parameters. The column *gain* says how far the loss on
plays has fallen, as a share of what full fine-tuning reaches in as many steps. So a good part of any gain may
come from making 44 words possible.
""",
        "last_layer": """
No: at these rates it forgets about as much as full fine-tuning without replay, for a smaller gain. The likely
reason: it can do little except raise the scores of the words that plays use, and it does so in tales as well.
""",
        "lora": """
More than nine tenths of it. (That doesn't mean that full fine-tuning's own change has a low rank: cut to its
best rank 2 in each matrix of the blocks, it leaves 2.17 nats on plays, at rank 8 1.12.) But the new rows alone
had more than half; LoRA closes about 90% of the remaining gap. It learns plays better than the last layer did,
and at these rates, its loss on tales stays well below that of the last layer and of full fine-tuning without
replay.
""",
        "equal_gain": """
Full fine-tuning has. Near a rate of 0.001, its line crosses the dashed one, where its loss on tales is below 1.2
nats, and LoRA's is 1.8. And for each rate of the last layer, it has one that is better on both.

The rings say the opposite: with 2% of the parameters LoRA gets 96% of full fine-tuning's gain, and its loss on
tales is 1.8 nats instead of 4.1. [Biderman et al. (2024)](https://arxiv.org/abs/2405.09673) found that LoRA
learns less and forgets less, on code and mathematics with real models. They also compare both at equal gain, and
there it is no worse; here, at rank 2, it is. But equal gain can be reached in other ways than by the rate:
scaled by 0.75, our adapter has 0.96 nats on plays and 1.07 on tales, which is about full fine-tuning's line.

The arrow shows how much more LoRA forgets than full fine-tuning there. At a rate of 0.08, LoRA learns plays
badly (far right): that rate is too high.
""",
        "ranks": """
About a third, half, and less than two thirds. A higher rank lowers the loss, with diminishing returns, and even
rank 32, with almost a quarter of the parameters, doesn't reach full fine-tuning in 60 steps. LoRA's loss on
tales (right) stays between 1.7 and 2.0 nats, while full fine-tuning's at the same loss on plays rises to about
that. So at higher ranks, most of what you saw on the dashed line is gone.
""",
        "few_labels": """
With the storyteller's vectors, the head makes no mistake in our run. Nobody ever told the model what a good
ending is, but it helps to predict the last sentence, so a linear layer can read it off. A bag of words (which
words occur, in no order) is right more than 80% of the time, so much of the answer lies in single words.
""",
        "more_lines": """
Before pretraining, it names no place at all. After 200 steps one line helps, but more barely do. Then accuracy
begins to climb with the number of lines, on new lists. After 1,000 steps, one run is as good as a perfect
memory; the others reach 70% and 72%.

So few-shot accuracy grows with examples **and** with pretraining. But the skill is recall, and the model was
trained on the very task that it is tested on, while GPT-3 was trained on whatever people write.
""",
    }
)
