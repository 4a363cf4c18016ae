"""Claims of lesson 10: each statement, its bound and its source."""

from __future__ import annotations

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "scaling_laws",
    {
        1: Bound(
            "Of five models that cost about the same, the largest ends far above the best one",
            ">=",
            0.3,
            "Stored result, scaling_laws.scaling, mean of two seeds",
            " nats",
        ),
        2: Bound(
            "6ND at 40% utilization gives the GPU hours reported for Llama 3 405B (relative error)",
            "<=",
            0.2,
            "Llama 3.1's model card: 30.84 million hours of H100",
        ),
        3: Bound(
            "On a larger fifth size, the law errs less than the better of two simple guesses (ratio of mean errors)",
            "<=",
            0.8,
            "Stored result, scaling_laws.scaling, both seeds; Hoffmann et al. (2022), Equation 2",
        ),
        4: Bound(
            "Counting all of the work brings the exponent nearer to 0.5 (lower end of the 95% interval of by how much)",
            ">=",
            0.02,
            "Stored result, scaling_laws.scaling; compare Pearce and Song (2024)",
        ),
        5: Bound(
            "With nanoGPT's own shape, our recipe goes below its published loss in a fraction of its time",
            "<=",
            1 / 3,
            "benchmarks/gpt_race.py, three rounds, float32",
        ),
        6: Bound(
            "With two blocks, a head that copies appears: its prefix-matching score",
            ">=",
            0.4,
            "Stored result, lowest of three seeds; Olsson et al. (2022), Argument 1",
        ),
        7: Bound(
            "With one block, none does: the highest score of any head",
            "<=",
            0.1,
            "Stored result, three seeds and two widths; Olsson et al. (2022)",
        ),
        8: Bound(
            "Two blocks copy random characters, which they were never trained on: their loss in the second reading",
            "<=",
            1.5,
            "Stored result, highest of three seeds; guessing among all characters costs 4.63",
            " nats",
        ),
    },
)
