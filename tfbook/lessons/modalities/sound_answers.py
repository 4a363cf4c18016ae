"""Answers to lesson 19's predictions on sound and on images with texts."""

SENSE_ANSWERS = {
    "strips": (
        "Strips win, at the same width and number of steps. A strip holds a whole spectrum, so its first layer "
        "already sees which formants stand together, and what remains is to follow them in time. A square sees a "
        "few bands for a moment, and *where* it lies says what it means; the blocks have to put the spectrum "
        "together first. With 200 steps they are not done. The audio spectrogram Transformer's authors found the "
        "same without pretraining, and chose squares because those let them start from an image model.\n\n"
        "Look at the rivals before you praise attention: a linear model on each band's average and spread is "
        "close behind, and strips without positions do as well as with them. For ten words, which spectra occur "
        'matters more than their order. Attention is worth the distance to "strips without attention".'
    ),
    "swaps": (
        "A color that is not in the image is noticed nearly always, so CLIP knows *which* words belong. With "
        "swapped colors or places all words are right, and it does little better than a coin. The loss never "
        "asked for more: the other captions of a batch are about other objects, so a bag of words is enough to "
        "tell them apart. Yuksekgonul et al. (2023) found this in large models. Their cure, swapped captions in the "
        "batch as false ones (green), helps a little here and is far from enough."
    ),
    "covered": (
        "The patches on the objects count and those on the ground hardly do, although nobody has said where "
        'anything is. But a map does not belong to its text alone: for "a red heart" covering the fish changes '
        "the score, too, since it changes the one vector of the whole image."
    ),
}
