"""Claims of lesson 07: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

RUNS = "Stored result, tokenizers.vocabularies, two runs each"

CLAIMS = Claims(
    "tokenizers",
    {
        1: Bound(
            "A frequent word with two letters swapped needs more tokens (tokens ÷ tokens)", ">=", 1.6, "Measured here"
        ),
        2: Bound(
            "A sentence in a script that training never saw needs more tokens than in English (least of four)",
            ">=",
            3,
            "Measured here; Petrov et al. (2023) find up to 15 in tokenizers that are in use",
            " ×",
        ),
        3: Bound(
            "A tokenizer that has also read French needs far fewer tokens for new sentences of the same corpus (ratio)",
            "<=",
            0.6,
            "Measured here",
        ),
        4: Bound(
            "On new words of several tokens, a letter counter is right on more than the words without that letter",
            ">=",
            0.1,
            "Measured here, difference of the shares",
        ),
        5: Bound("The largest vocabulary makes held-out text this much shorter", ">=", 2.6, "Measured here", " ×"),
        6: Bound(
            "The last doubling of the vocabulary adds less than the first did (bytes per token, ratio)",
            "<=",
            0.6,
            "Measured here",
        ),
        7: Bound("After the same number of tokens, a vocabulary of 4,096 beats 256", ">=", 0.3, RUNS, " bits per byte"),
        8: Bound(
            "With equal compute, the means of 1,024 to 4,096 differ by less than going from 256 to 512 gains (ratio)",
            "<=",
            0.6,
            RUNS,
        ),
        9: Bound("Without splitting, many learned tokens cross a word's edge (share)", ">=", 0.15, "Measured here"),
        10: Bound(
            "Unigram cuts held-out text into about as many tokens as BPE of the same size (tokens ÷ tokens)",
            "<=",
            1.1,
            "Measured here; Kudo (2018)",
        ),
        11: Bound(
            "Sorting within pools of 50 batches leaves little of the padding of shuffled batches (padding ÷ padding)",
            "<=",
            0.2,
            "Measured here, 64 sentences per batch",
        ),
        12: Bound(
            "The nearest word of a person, animal, food, or place is of the same kind (share)",
            ">=",
            0.9,
            "Measured here; skip-gram as in Mikolov et al. (2013)",
        ),
    },
)
