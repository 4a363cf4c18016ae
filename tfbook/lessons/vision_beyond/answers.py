"""Answers to the predictions of lesson 14: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "yours": """
The Mixer and the ConvMixer; the ViT with shifted windows guesses. In the Mixer, each channel can carry "here is the
ring" along its row at once, by fixed weights. In the ConvMixer, filters pass it on step by step.

Shifted windows reach far enough, too: after two blocks some place hears of everything. But their attention has to
learn *whom* to look at, by rows, before any of it pays, and within these steps it doesn't. (That is our reading: other
positions or a learned bias might help, and were not tried.)

The jigsaw sends all three back to guessing, or below: with shuffled patches no row is left, and the question has no
answer. A model that still did well would have cheated.
""",
        "contest": """
It helps, all the way: 100% in every run, where the ViT with the same parameters and *more* pairs guesses. The
question is about rows, and a head that sees nothing but its row only has to look for the ring.

So "global attention can do all that the others can" is true and beside the point. ViT, windows, shifted windows and
neighborhood guess; Swin, with layer norms, gets 20% and has not even found which colors are there, so its row says
nothing about its windows. Among fixed
weights, MLP-Mixer (96% to 100%), ResMLP (100% at one rate with one seed, 46% and less otherwise), ConvMixer (86%),
the CNNs (79% to 84%) and the convolution (51% to 68%) learned it in whole or in part. The bags guess, with or without
positions, as they must.
""",
        "looks": """
Only a third, 36%. That is three times as much as attention that is equal everywhere (12%), and far from "it looks at
what it names". With the places right beside the object it is more than nine tenths, where the center has less than
half. Look at the maps in Section 1: they fall to the lower right of the object, time and again.

A part of that is the grid: with a padding of 1 and a stride of 2, three times, what a place sees is centered 3.5
pixels to the upper left of where we draw it. The rest, nothing forbids: what a place sees is several places wide, so
a neighbor can know the object as well, and the decoder reads whatever place says it best. A map shows which *vectors*
were read. Where these look is another question.
""",
        "jigsaw": """
The bag does not guess: it gets 72% and 73% on test images (two seeds), though none of its places meet. It does not
have to compare anything. "Red twice" and "red and blue" leave different means, and two layers can tell them apart.
With layer norms it does guess (52% at most).

So much of this question needs no meeting of places. Neither the bag nor the ViT notices a jigsaw: the bag's
answers are the same by construction, and the ViT is right as often as before (75% and 93%, by seed). The
ConvMixer loses 7 and 9 points, the CNNs 20 to 32, because their features are made of neighbors across the borders of
patches.
""",
    }
)
