"""Answers to lesson 19's predictions on sound and on images with texts."""

SENSE_ANSWERS = {
    "strips": (
        "Strips are ahead of squares, at the same width and after the same 200 steps. We have not tested why. A strip "
        "holds a whole spectrum, so its first layer already sees which formants stand together; a square sees a few "
        "bands for a moment, and the blocks have to put the spectrum together. Longer training may close the gap. "
        "The audio spectrogram Transformer's authors also found strips better without pretraining, and chose squares "
        "because those let them start from an image model.\n\n"
        "Look at the rivals before you praise attention. The recurrent network is at the top, 98.4% with 38,922 "
        "parameters; your model has 97.2% with 77,258, a difference of five clips of 400, about one standard error. A "
        "linear model on each band's average and spread is at 95.8%. Strips without positions do as well as with them, "
        "so for these ten words the order of the spectra hardly matters. Without attention the strips lose three "
        "points, or twelve clips; but they also have 43% fewer parameters."
    ),
    "swaps": (
        "A color that is not in the image is noticed nearly always, so CLIP knows *which* words belong. With "
        "swapped colors or places all words are right, and its 53% (49 to 57% by seed, over 200 scenes, where one "
        "seed's error is 3.5 points) can't be told from a coin. Yuksekgonul et al. (2023) found this in large models. "
        "A likely reason: the other captions of a batch are mostly about other objects, so a bag of words is nearly "
        "enough to tell them apart.\n\n"
        "Their cure puts swapped captions into the batch as false ones (green). Here it brings 62% (58 to 66%, two "
        "seeds) in 1,800 steps."
    ),
    "early": (
        "The single stream and the towers with a CNN: with each of three seeds both refuse nearly every swapped "
        "caption (98 to 100%), where our towers stay at 65 to 82%. So meeting late does not keep towers from "
        "telling who is where: one dot product of two vectors can be enough, if the loss asks for it. What differs "
        "after equal steps is how soon it is learned. Why a CNN and the stream are sooner we have not tested, nor how "
        "many steps our towers would need. (The stream also has another loss, larger word vectors and fixed waves as "
        "positions.)\n\n"
        "The cost differs, too: to compare 1,000 texts with 1,000 images, towers need 2,000 passes and one product of "
        "matrices, a stream a million passes."
    ),
    "blind picture": (
        "About 15% (14 to 16% with three seeds), where your kind of model has 96 to 97%. Without the picture it can "
        "only guess from the question, and it does worse than the most frequent answer (21%): for *what is top left ?* "
        "that is *nothing* (37% of the scenes), while the blind model writes word by word and hardly ever says it (we "
        "think because *a* is the likelier first word).\n\n"
        "*Meeting late* is close to the baseline of 2015 (Antol et al.): one vector for the picture, made of the same "
        "four tokens, times one vector of a recurrent network for the question, then a class for each answer. After "
        "the same 400 steps it has 56%, at the best of three rates, the largest that we tried. This is no proof that "
        "early beats late: the optimizers differ, too (Muon on your blocks, AdamW on the rival, which has no blocks)."
    ),
    "covered": (
        "Mostly the patches on the two objects, although nobody has said where anything is. But a map does not belong "
        'to its text alone: for "a blue fish" covering the *heart* matters most, since every patch changes the one '
        "vector of the whole image. So this shows where CLIP is sensitive, not where it sees a word."
    ),
}
