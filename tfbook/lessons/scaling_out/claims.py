"""Claims of lesson 20: each statement, its bound and its source."""

from tfbook.course.claims import Bound, Claims

CLAIMS = Claims(
    "scaling_out",
    {
        1: Bound(
            "Two machines that read half a batch each and never talk end with different models: largest difference",
            ">=",
            1e-3,
            "Measured here",
        ),
        2: Bound(
            "With gradients added over the wire they have one machine's model after ten steps: largest difference",
            "<=",
            1e-10,
            "Measured here",
        ),
        3: Bound(
            "In a ring, each of 64 machines sends less than twice the gradient: times its size",
            "<=",
            2,
            "Counted exactly; Patarasuk and Yuan (2009)",
            " ×",
        ),
        4: Bound(
            "Sharded on simulated machines, the model is one machine's: largest difference of a weight after ten steps",
            "<=",
            1e-10,
            "Measured here; Rajbhandari et al. (2020)",
        ),
        5: Bound(
            "Recomputing the blocks cuts the bytes kept for the backward pass: share that is left",
            "<=",
            0.4,
            "Measured here; Chen et al. (2016)",
        ),
        6: Bound(
            "A tensor-parallel model is one machine's, and so is a pipelined one: largest difference after ten steps",
            "<=",
            1e-10,
            "Measured here; Shoeybi et al. (2019), Huang et al. (2019)",
        ),
        7: Bound(
            "1F1B keeps fewer microbatches on stage 0 than GPipe, of 8 on 4 stages",
            "<=",
            4,
            "Counted exactly; Narayanan et al. (2021)",
        ),
        8: Bound(
            "Real processes train one machine's model, whatever the cut: largest difference of a weight, worst of four",
            "<=",
            1e-5,
            "Measured here",
        ),
        9: Bound(
            "What they hand over to the wire is the formula's bytes: largest deviation, worst of four",
            "<=",
            0.1,
            "Measured here",
        ),
        10: Bound(
            "A process was killed, and the resumed losses are the unbroken run's: largest difference",
            "<=",
            1e-5,
            "Measured here",
        ),
        11: Bound(
            "6ND and 40% are consistent with Llama 3.1 405B's GPU hours: how far off",
            "<=",
            0.2,
            "Llama 3.1's model card: 30.84 million hours of H100",
        ),
        12: Bound(
            "The electricity for training GPT-3 cost far less than $5 million: million dollars at $0.10 per kWh",
            "<=",
            0.5,
            "Patterson et al. (2021): 1,287 MWh",
        ),
    },
)
