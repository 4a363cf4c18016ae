"""Answers to lesson 19's predictions on sound and on images with texts."""

SENSE_ANSWERS = {
    "strips": (
        "Strips are ahead of squares, at the same width and after the same 200 steps. We have not tested why. A strip "
        "holds a whole spectrum, so its first layer already sees which formants stand together; a square sees a few "
        "bands for a moment, and the blocks have to put the spectrum together. Longer training may close the gap. "
        "The audio spectrogram Transformer's authors also found strips better without pretraining, and chose squares "
        "because those let them start from an image model.\n\n"
        "Look at the rivals before you praise attention: a linear model on each band's average and spread "
        "is level: 97.2% against 95.8% is a difference of six clips of 400, about one standard error. Strips without "
        "positions do as well as with them, so for these ten words the order of the spectra hardly matters. Without "
        "attention the strips lose three points, or twelve clips; they also have 43% fewer parameters."
    ),
    "swaps": (
        "A color that is not in the image is noticed nearly always, so CLIP knows *which* words belong. With "
        "swapped colors or places all words are right, and 53 or 54% over 200 scenes, where one seed's error is 3.5 "
        "points, is a coin. Yuksekgonul et al. (2023) found this in large models. A likely reason: the other captions "
        "of a batch are mostly about other objects, so a bag of words is nearly enough to tell them apart.\n\n"
        "Their cure puts swapped captions into the batch as false ones (green). Here it brings 62%, so asking is not "
        "all that is missing."
    ),
    "early": (
        "The single stream, once it has found out how. With one seed it refuses swapped captions 97 times in 100; with "
        "the other it is at 60 when its 400 steps end, and so are the towers with both. Learning to bind a word to a "
        "place comes late and suddenly. At the same moment the stream is worse than the towers at a wrong color. It "
        "is not a clean test of meeting early: the stream chooses among four captions, and begins with larger word "
        "vectors and fixed waves as positions."
    ),
    "covered": (
        "Mostly the patches on the two objects, although nobody has said where anything is. But a map does not belong "
        'to its text alone: for "a blue fish" covering the *heart* matters most, since every patch changes the one '
        "vector of the whole image. So this shows where CLIP is sensitive, not where it sees a word."
    ),
}
