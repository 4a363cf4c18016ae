"""A plan with three cuts: the bubble of interleaved stages, and what goes over which link."""

from dataclasses import replace

import pytest

from tfbook.lessons.scaling_out.facts import LLAMA_405B
from tfbook.parallel.mesh import between_copies, computing_seconds, links
from tfbook.parallel.planning import INFINIBAND, Plan, interleaved_bubble


def waited(stages: int, microbatches: int, turns: int) -> float:
    """Of forward passes done in groups of `stages` microbatches, each chip's short stages one after the other."""
    done: dict[tuple[int, int], float] = {}
    free = [0.0] * stages
    groups = range(0, microbatches, stages)
    order = [
        (first + k, turn) for first in groups for turn in range(turns) for k in range(min(stages, microbatches - first))
    ]
    for k, turn in order:
        for chip in range(stages):
            number = turn * stages + chip
            free[chip] = done[k, number] = max(free[chip], done.get((k, number - 1), 0.0)) + 1 / turns
    return max(free) / microbatches - 1


@pytest.mark.parametrize(
    ("stages", "microbatches", "turns"),
    [(4, 8, 1), (4, 8, 2), (4, 4, 3), (4, 3, 3), (4, 2, 2), (4, 1, 8), (2, 1, 5), (1, 3, 1), (4, 2, 1), (8, 5, 4)],
)
def test_the_bubble_is_that_of_a_schedule(stages: int, microbatches: int, turns: int) -> None:
    assert interleaved_bubble(stages, microbatches, turns) == pytest.approx(waited(stages, microbatches, turns))


def test_stages_have_a_layer_or_more() -> None:
    assert Plan(parameters=30e9, tokens=1, chips=54, pipeline=54).layers < 54  # 53.4, of which the last is small
    with pytest.raises(ValueError, match="54 × 2 stages for 53 layers"):
        Plan(parameters=30e9, tokens=1, chips=54, pipeline=54, turns=2)


def test_seconds_on_the_links_are_what_the_plan_waits_for() -> None:
    """Tensor's all; of what copies send in 16 microbatches, the reduce-scatter hides and the gather sticks out."""
    found, busy = links(LLAMA_405B), computing_seconds(LLAMA_405B)
    assert found["tensor"].seconds == pytest.approx(busy * LLAMA_405B.waits["tensor"])
    assert [link.wire for link in found.values()] == ["NVLink", "card", "card"]
    assert [round(link.bytes / 1e9, 1) for link in found.values()] == [237.7, 8.5, 106.7]
    step = LLAMA_405B.days * 86_400 / (LLAMA_405B.tokens / LLAMA_405B.batch)
    assert busy == pytest.approx(step)  # since all copies have equally many texts


@pytest.mark.parametrize(("kind", "share"), [("data parallel", 2 / 3), ("ZeRO-1", 2 / 3), ("ZeRO-3", 1.0)])
def test_copies_wait_for_what_does_not_hide(kind: str, share: float) -> None:
    """One microbatch, so that each byte meets one pass; the plan counts rings of very many copies."""
    plan = replace(LLAMA_405B, kind=kind, microbatches=1)
    short = replace(plan, batch=plan.copies * plan.text)  # a text per copy
    seconds = between_copies(short) / INFINIBAND / (1 - 1 / short.copies)
    assert seconds / computing_seconds(short) - share == pytest.approx(short.waits["copies"])


def test_links_are_those_of_whole_servers() -> None:
    with pytest.raises(ValueError, match="tensor is 4; expected 8"):
        links(replace(LLAMA_405B, tensor=4, microbatches=8))
    assert links(replace(LLAMA_405B, pipeline=1, turns=1, microbatches=1))["pipeline"].bytes == 0
