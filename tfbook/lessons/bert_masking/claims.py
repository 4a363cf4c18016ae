"""Claims of lesson 08: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "bert_masking",
    {
        1: Bound(
            "A GPT that reads left to right seldom fills in a name that comes only after the blank (share)",
            "<=",
            0.3,
            "Measured here, held-out stories",
        ),
        2: Bound(
            "After the lesson's training, BERT fills at least six in ten of the blanks that a story determines",
            ">=",
            0.6,
            "Stored result, bert_masking.pretraining, smallest of three runs",
        ),
        3: Bound(
            "Twice the blocks and six times the steps fill at least nine in ten",
            ">=",
            0.9,
            "Stored result, bert_masking.longer, one run",
        ),
        4: Bound(
            "With 15% of all words masked instead, as many steps fill fewer on average (difference of shares)",
            ">=",
            0.1,
            "Stored result, bert_masking.pretraining, means of three runs",
        ),
        5: Bound(
            "With 16 labels, fine-tuning beats training from scratch by at least 15 points (lower end of the interval)",
            ">=",
            15,
            "Stored result, bert_masking.few_labels, 95% interval over three seeds",
            " points",
        ),
        6: Bound(
            "With 16 labels of who is the hero, pretrained blocks beat their embeddings (lower end of the interval)",
            ">=",
            10,
            "Stored result, bert_masking.heroes, 95% interval over three seeds",
            " points",
        ),
        7: Bound(
            "MiniLM has a right passage among its first three more often than counted words (difference of shares)",
            ">=",
            0.1,
            "Stored result, bert_masking.search, 20 questions",
        ),
        8: Bound(
            "Shape and vocabulary alone give the published sizes of BASE and LARGE (larger relative error)",
            "<=",
            0.02,
            "Devlin et al. (2019), Section 3: 110 and 340 million",
        ),
    },
)
