"""Answers to the predictions of lesson 14: what came out, and why."""

from tfbook.course.predictions import PredictionAnswers

answer = PredictionAnswers(
    {
        "yours": """
The ViT, and only the ViT. The other two stay close to guessing.

It is not that the colors cannot meet. In the Mixer every place reaches every other in one block, and with shifted
windows two blocks are enough. In the stored runs below, which are longer and try three learning rates, both still
guess.

What the ViT has and they lack is *one* step in which a place can look for another by what is there. Attention
can ask "where is another object like me?", wherever that is. Fixed weights have to learn each pair of places, and
shifted windows have to pass a message on through other places. That is our reading of it; the runs only show who
learned it within these steps.
""",
        "contest": """
Yes. The ConvMixer gets 79% to 95% at the three rates, and the CNN 76% to 86%, where the ViT gets 70% to 86%. A CNN with
one attention layer gets 91% to 95% and is the steadiest of all. Axial attention reaches 62% at most. All others stay
at 54% or below.

So attention is not what it takes. Look at "convolution" and ConvMixer: both mix places by depthwise filters of
3 × 3, in four layers. One guesses, the other is among the best. They differ in the layout around the mixer: ConvMixer
has a nonlinearity right after the filters, batch norms for layer norms, and a single matrix for an MLP, hence almost
three times the width. We didn't test which of these it is. But "the convolution failed" would have been the wrong
conclusion from the ViT's block alone.
""",
        "looks": """
Only a third, 36%. That is three times as much as attention that is equal everywhere (12%), and far from "it looks at
what it names". With the places right beside the object it is more than nine tenths, where the center has less than
half. Look at the maps in Section 1: they fall to the lower right of the object, time and again.

Nothing forces a place to describe its own pixels. Its vector is computed from a patch of the image that is larger
than the place, so a neighbor can know the object as well. The decoder reads whatever place says it best. So a map
shows which *vectors* were read. Where these look is another question, and without known objects one would never
have noticed.
""",
        "jigsaw": """
The ViT doesn't notice at all: both of its seeds answer as well as before. It has learned to compare what patches show,
wherever they are, so a picture is nearly a bag of patches to it, as in lesson 13. (It could have used its positions;
for this question it doesn't need them.)

All others do: the ConvMixer loses 7 and 9 points, the CNNs 20 to 32. Their features are made of neighbors across the
borders of patches, and these neighbors are wrong now. One attention layer on top doesn't help: it compares what
these features say.
""",
    }
)
