"""Answers to lesson 19's predictions on sound and on images with texts."""

SENSE_ANSWERS = {
    "strips": (
        "Strips are ahead of squares, at the same width and after the same 200 steps. A strip holds a whole spectrum; "
        "but we have not tested whether that is why, and longer training may close the gap.\n\n"
        "The recurrent network is at the top, 98.4% with 38,922 parameters; your model has 97.2% with 77,258. That is "
        "five clips of 400, about one standard error. A linear model is at 95.8%."
    ),
    "swaps": (
        "A color that is not in the image is noticed nearly always. With swapped colors or places every word is right, "
        "and CLIP's 53 and 54% (49 to 57% by seed) can't be told from a coin: over 200 scenes, one seed's error is 3.5 "
        "points. The prepared one gets 62% (58 to 66%, two seeds). Yuksekgonul et al. (2023) found both in large "
        "models. A likely reason: to tell a batch's captions apart, a bag of words is nearly enough.\n\n"
        "So CLIP knows which words belong to an image, but hardly who is where."
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
    "tiles": (
        "About 15% as the mean over the forms (14 to 16% with three seeds), where your kind of model has 96 to 97%.\n\n"
        "The rivals choose one of all answers, with the same tower, scenes, and recipe. *Meeting late* multiplies a "
        "vector of the question with one of the whole picture (close to Antol et al., 2015). In *two glances* the "
        "question's vector attends to the tiles, twice (Yang et al., 2016); it learns *where* with one seed of three. "
        "*Sum over tiles* has no attention: a small MLP reads a tile, its place, and the question's words; another "
        "reads the sum of the four.\n\n"
        "At equal steps one sequence is ahead of the sum with each seed: 96.6% against 90.8%. With four times the "
        "steps the sum has 98.6%, more than one sequence after its 400. (We have not trained that one for longer.) So "
        "one sequence learned sooner, but attention was not needed."
    ),
    "covered": (
        "Mostly the patches on the two objects, although nobody has said where anything is. But a map does not belong "
        'to its text alone: for "a blue fish" covering the *heart* matters most, since every patch changes the one '
        "vector of the whole image. So this shows where CLIP is sensitive, not where it sees a word."
    ),
}
