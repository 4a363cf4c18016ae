"""Claims of lesson 09: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

LADDER = "Stored result, gpt_pretraining.ladder"

CLAIMS = Claims(
    "gpt_pretraining",
    {
        1: Bound(
            "A network that reads one word comes to the loss of counting one word back (distance)",
            "<=",
            0.1,
            f"{LADDER}, mean of three runs",
            " nats",
        ),
        2: Bound(
            "Two blocks without residuals and norms end at a higher loss than one block with them (difference)",
            ">=",
            0.1,
            f"{LADDER}, lowest of three runs minus highest of three",
            " nats",
        ),
        3: Bound(
            "At temperature 0.7, more than a third of the page's model's stories are right in every respect (share)",
            ">=",
            0.35,
            "Stored result, gpt_pretraining.notes, smallest of three runs",
        ),
        4: Bound(
            "When nine tenths of the loss's drop are done, the right thing still has a small share of the probability",
            "<=",
            0.4,
            "Stored result, gpt_pretraining.growth, largest of three runs",
        ),
        5: Bound(
            "In three stored runs, without one head of block 2, the right name's share of all names is at most 0.3",
            "<=",
            0.3,
            "Stored result, gpt_pretraining.notes, largest of three runs",
        ),
        6: Bound(
            "A vector from another story, put in at one word, makes that story's name the likelier one (share)",
            ">=",
            0.5,
            "Stored result, gpt_pretraining.notes, smallest of three runs",
        ),
        7: Bound(
            "A model that counts up to four words back keeps the facts in at most two stories in a hundred",
            "<=",
            0.02,
            "Measured here, 100 stories at temperature 0.7",
        ),
        8: Bound(
            "A larger model, after more stories, gets the names of nearly all of its own stories right (share)",
            ">=",
            0.92,
            "The storyteller that comes with tfbook, 200 stories at temperature 0.7",
        ),
        9: Bound(
            "On 100 stories, the loss on other stories ends far above its lowest point (difference)",
            ">=",
            0.3,
            "Stored result, gpt_pretraining.overfit, smallest of its runs",
            " nats",
        ),
        10: Bound(
            "With AdamW in place of Muon, the same number of steps leads to fewer right stories (difference of shares)",
            ">=",
            0.2,
            f"{LADDER}, each at its best rate; lowest of three runs minus highest of three",
        ),
        11: Bound(
            "The GPT finds a story more probable than the same story with one wrong name (share of stories)",
            ">=",
            0.9,
            "Measured here, held-out stories",
        ),
        12: Bound(
            "A hidden name is guessed from both sides far more often than from the left (difference of shares)",
            ">=",
            0.4,
            "Measured here, held-out stories; Bayes' rule",
        ),
        13: Bound(
            "Before training, the loss is about that of an even guess: distance from ln(vocab)",
            "<=",
            0.3,
            "By definition of a model that knows nothing",
            " nats",
        ),
        14: Bound(
            "From PyTorch's default weights, the loss after the same steps is higher than from small ones (difference)",
            ">=",
            0.15,
            "Stored result, gpt_pretraining.beginnings, lowest of three runs minus highest of three",
            " nats",
        ),
        15: Bound(
            "Unscaled, the variance of the stream grows with depth: after 48 blocks ÷ after 12",
            ">=",
            3,
            "Measured here, untrained; independent additions of one size would give about 4",
            " ×",
        ),
        16: Bound(
            "Scaled by 1/√(2 · layers), it does not: after 48 blocks ÷ after 12",
            "<=",
            1.3,
            "Radford et al. (2019), Section 2.3",
            " ×",
        ),
    },
)
