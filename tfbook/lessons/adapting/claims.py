"""Claims of lesson 11: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "adapting",
    {
        1: Bound(
            "LoRA, with at most 2% of the parameters, reaches most of full fine-tuning's gain (share, lowest seed)",
            ">=",
            0.9,
            "Stored result, best learning rate of each; compare Hu et al. (2021), Table 2",
        ),
        2: Bound(
            "What LoRA trains, as a share of the model's parameters",
            "<=",
            0.02,
            "Counted; rank 2 beside every matrix of the blocks, and the rows of 44 new words",
        ),
        3: Bound(
            "At those learning rates LoRA forgets less: its loss on tales minus full fine-tuning's, highest seed",
            "<=",
            -0.5,
            "Stored result; compare Biderman et al. (2024)",
            " nats",
        ),
        4: Bound(
            "Where full fine-tuning's loss on plays equals LoRA's, LoRA (rank 2) forgets more, by (lowest seed)",
            ">=",
            0.2,
            "Stored result, between two of full fine-tuning's rates; Biderman et al. (2024) compare at scale",
            " nats",
        ),
        5: Bound(
            "With 16 labels, a pretrained model judges endings better than one trained from scratch by",
            ">=",
            0.15,
            "Stored result, difference of means over seeds; compare Radford et al. (2018), Table 5",
        ),
        6: Bound(
            "The auxiliary loss changes the accuracy at the fewest labels by (λ = 0.5 minus λ = 0)",
            "<=",
            0.1,
            "Stored result, difference of means; Radford et al. (2018), Table 5, found mixed effects",
        ),
        7: Bound(
            "After pretraining, 11 examples in the prompt raise the accuracy by (lowest seed)",
            ">=",
            0.4,
            "Stored result; compare Brown et al. (2020), Figure 1.2",
        ),
        8: Bound(
            "Before pretraining, they raise it by (highest seed)",
            "<=",
            0.1,
            "Stored result: the untrained model names no place at all; compare Brown et al. (2020), Figure 1.2",
        ),
        9: Bound(
            "At the same loss on plays, neither ULMFiT method forgets much less than full fine-tuning (largest mean)",
            "<=",
            0.1,
            "Stored result, any rate; Howard and Ruder (2018), Table 7, measure errors on the new task alone",
            " nats",
        ),
        10: Bound(
            "At equal parameters and FLOPs, the encoder–decoder restores more cut words than either decoder (share)",
            ">=",
            0.05,
            "Stored result, difference of means; in Raffel et al. (2020), Table 2, it has twice the parameters",
        ),
        11: Bound(
            "A prefix mask instead of a causal one changes the share of restored words by at most",
            "<=",
            0.06,
            "Stored result, difference of means; Raffel et al. (2020), Table 2, found the prefix better",
        ),
    },
)
