"""The bytes that each chip of a combined plan sends in a step, by cut: tensor parallel, pipeline, copies of a model."""

from __future__ import annotations

from typing import NamedTuple

from tfbook.parallel.planning import INFINIBAND, NVLINK, STAGES, Plan, all_gather_bytes, all_reduce_bytes


class Link(NamedTuple):
    """The bytes that a chip sends per step for one cut, the wire on which they go, and the seconds that takes."""

    wire: str
    bytes: float
    seconds: float


def links(plan: Plan) -> dict[str, Link]:
    """By cut, for a plan whose tensor parallelism fills a server, so that all else goes over each chip's own card.

    Tensor: four all-reduces of d numbers per token and layer. Pipeline: each token's vector to the next stage and its
    gradient back, of which each chip of a server sends its part (Narayanan et al., 2021, section 4.1), once for each of
    `turns`. Copies: gradients and weights as the plan's ZeRO stage has it. All in 16 bits. Raises ValueError for
    another plan.
    """
    if plan.tensor != plan.server:
        raise ValueError(f"tensor is {plan.tensor}; expected {plan.server}, the chips of a server")
    vectors = 2 * plan.d_model * plan.tokens_per_copy
    inside = 4 * plan.layers / plan.pipeline * all_reduce_bytes(vectors, plan.tensor)
    along = 2 * plan.turns * vectors / plan.tensor if plan.pipeline > 1 else 0.0
    between = between_copies(plan)
    return {
        "tensor": Link("NVLink", inside, inside / NVLINK),
        "pipeline": Link("card", along, along / INFINIBAND),
        "copies": Link("card", between, between / INFINIBAND),
    }


def between_copies(plan: Plan) -> float:
    """Bytes per step of gradients and weights, of which a chip has parameters / (tensor · pipeline), in 16 bits.

    Stages 0 and 1: one all-reduce. Stage 2: a reduce-scatter for each microbatch, one all-gather. Stage 3: a
    reduce-scatter and two all-gathers for each microbatch.
    """
    size = 2 * plan.parameters / (plan.tensor * plan.pipeline)
    half, stage = all_gather_bytes(size, plan.copies), STAGES.index(plan.kind)
    return {2: (plan.microbatches + 1) * half, 3: 3 * plan.microbatches * half}.get(stage, 2 * half)


def computing_seconds(plan: Plan) -> float:
    """Seconds per step that a chip of the fullest copy computes: 6 N tokens / (chips of a copy · operations/s)."""
    speed = plan.tensor * plan.pipeline * plan.utilization * plan.chip.peak
    return 6 * plan.parameters * plan.tokens_per_copy / speed
