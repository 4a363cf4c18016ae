"""Pretended machines: collectives deliver the sum and send the formula's bytes; each kind equals one machine."""

import itertools
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tfbook.models.gpt import GPT2, Gpt
from tfbook.parallel.data import data_parallel
from tfbook.parallel.overlap import step_timeline
from tfbook.parallel.passes import copied, gathered, summed
from tfbook.parallel.pipeline import Stage, pipeline, put_together, tied
from tfbook.parallel.planning import (
    H100,
    INFINIBAND,
    MIXED,
    NVLINK,
    STAGES,
    V100,
    Plan,
    Shape,
    activation_bytes,
    all_gather_bytes,
    all_reduce_bytes,
    memory_by_part,
    tensor_sending,
    tokens_to_hide,
    wire_bytes,
)
from tfbook.parallel.schedules import bubble, gpipe, held_at_once, one_forward_one_backward, timetable
from tfbook.parallel.servers import all_reduce_in_servers, over_cards
from tfbook.parallel.sharded import sharded
from tfbook.parallel.tensor import join_blocks, split_blocks, tensor_parallel
from tfbook.parallel.whole import alone, flat_gradient, largest_difference, predicted, set_gradient, total_loss
from tfbook.parallel.wire import Wire

CONFIG = replace(GPT2, d_model=16, heads=4, d_ff=32, layers=4, max_length=12, dropout=0.0)
VOCAB, STEPS = 24, 10
KINDS: dict[str, Callable[..., Any]] = {
    "data": data_parallel,
    "sharded": sharded,
    "tensor": tensor_parallel,
    "pipeline": pipeline,
}


def small_gpt(seed: int = 1) -> Gpt:
    torch.manual_seed(seed)
    return Gpt(VOCAB, CONFIG).double()


def some_batches(rows: int = 8, steps: int = STEPS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(0, VOCAB, (rows, 9), generator=generator) for _ in range(steps)]


def shape_of(model: Gpt, rows: int = 8) -> Shape:
    blocks = sum(weight.numel() for weight in model.stack.blocks.parameters())
    whole = sum(weight.numel() for weight in model.parameters())
    return Shape(whole - blocks, blocks, CONFIG.layers, CONFIG.d_model, model.embed.weight.numel(), rows * 8)


# ---- the wire --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("numbers", [1, 6, 30])
def test_collectives_deliver_what_they_promise(n: int, numbers: int) -> None:
    xs = [torch.randn(numbers, dtype=torch.float64) for _ in range(n)]
    before = [x.clone() for x in xs]
    whole = sum(xs)
    wire = Wire(n)
    for found in wire.all_reduce(xs):
        torch.testing.assert_close(found, whole)
    for x, copy in zip(xs, before, strict=True):
        assert torch.equal(x, copy)
    pieces = wire.reduce_scatter(xs)
    torch.testing.assert_close(torch.cat(pieces)[:numbers], whole)
    for found in wire.all_gather(pieces):
        torch.testing.assert_close(found[:numbers], whole)
    for found in wire.broadcast(xs[0]):
        assert torch.equal(found, xs[0])


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_ring_sends_as_many_bytes_as_the_formulas_say(n: int) -> None:
    xs = [torch.randn(12) for _ in range(n)]
    size = 12 * 4
    wire = Wire(n)
    wire.all_reduce(xs)
    assert wire.sent == [all_reduce_bytes(size, n)] * n
    assert len(wire.log) == n * 2 * (n - 1)
    assert {message.step for message in wire.log} == set(range(1, 2 * (n - 1) + 1))
    assert all(message.target == (message.source + 1) % n for message in wire.log)
    for ask in (lambda w: w.reduce_scatter(xs), lambda w: w.all_gather([x[: 12 // n] for x in xs])):
        wire = Wire(n)
        ask(wire)
        assert wire.sent == [all_gather_bytes(size, n)] * n
    wire = Wire(n)
    wire.broadcast(xs[0], root=1)
    assert wire.sent == [0 if (1 + n - 1) % n == m else size for m in range(n)]


def test_what_arrives_is_a_copy() -> None:
    wire, x = Wire(2), torch.zeros(3)
    arrived = wire.send(x, 0, 1)
    x += 1
    assert arrived.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("source", "target"), [(0, 0), (0, 2), (-1, 0)])
def test_a_message_needs_two_machines(source: int, target: int) -> None:
    with pytest.raises(ValueError, match=f"from {source} to {target}; expected two of 2 machines"):
        Wire(2).send(torch.zeros(1), source, target)
    with pytest.raises(ValueError, match="pieces holds 1 tensors; expected 2"):
        Wire(2).exchange([torch.zeros(1)])


def test_collectives_have_partners_in_the_backward_pass() -> None:
    """By the definition: the gradient of Σ (all machines' outputs · weights), with what each input contributes to."""
    n, weights = 3, [torch.randn(6, dtype=torch.float64) for _ in range(3)]

    def backward(collective: object, size: int) -> list[Tensor]:
        xs = [torch.randn(size, dtype=torch.float64, requires_grad=True) for _ in range(n)]
        outputs = collective(xs, Wire(n))  # type: ignore[operator]
        torch.autograd.backward([(out * w).sum() for out, w in zip(outputs, weights, strict=True)])
        return [x.grad for x in xs]  # type: ignore[misc]

    total = sum(weights)
    for gradient in backward(copied, 6):
        torch.testing.assert_close(gradient, total)
    for gradient, own in zip(backward(summed, 6), weights, strict=True):
        assert torch.equal(gradient, own)
    torch.testing.assert_close(torch.cat(backward(gathered, 2)), total)


# ---- each kind is one machine's model --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 4])
def test_every_kind_trains_the_same_model_and_sends_the_formulas_bytes(n: int) -> None:
    model, batches = small_gpt(), some_batches()
    one = deepcopy(model)
    losses = alone(one, batches)
    for kind, train in KINDS.items():
        wire = Wire(n)
        trained, found = train(model, batches, wire)
        trained = trained[-1] if isinstance(trained, list) else trained
        assert largest_difference(one, trained) < 1e-10, kind
        assert found == pytest.approx(losses, abs=1e-12), kind
        assert sum(wire.sent) == pytest.approx(STEPS * wire_bytes(kind, shape_of(model), n), rel=0.01), kind
    assert largest_difference(model, small_gpt()) == 0, "the start has to stay as it was"


def test_shares_may_differ_in_size() -> None:
    """Seven rows on three machines: 3, 2 and 2."""
    model, batches = small_gpt(), some_batches(rows=7, steps=3)
    one = deepcopy(model)
    alone(one, batches)
    assert largest_difference(one, data_parallel(model, batches, Wire(3))[0][2]) < 1e-10
    assert largest_difference(one, sharded(model, batches, Wire(3))[0]) < 1e-10
    assert largest_difference(one, pipeline(model, batches, Wire(2), schedule=gpipe(2, 3))[0]) < 1e-10


def test_in_single_precision_the_models_agree_to_rounding() -> None:
    model, batches = small_gpt().float(), some_batches()
    one = deepcopy(model)
    alone(one, batches)
    assert largest_difference(one, data_parallel(model, batches, Wire(4))[0][0]) < 1e-5


@pytest.mark.parametrize("make", [gpipe, one_forward_one_backward])
def test_either_schedule_trains_the_same_model(make: object) -> None:
    model, batches = small_gpt(), some_batches(steps=2)
    one = deepcopy(model)
    alone(one, batches)
    found = pipeline(model, batches, Wire(3), schedule=make(3, 4))[0]  # type: ignore[operator]
    assert largest_difference(one, found) < 1e-10
    with pytest.raises(ValueError, match="schedule has 2 stages; expected 3"):
        pipeline(model, batches, Wire(3), schedule=gpipe(2, 4))


def test_blocks_are_cut_and_joined() -> None:
    model = small_gpt()
    parts = [split_blocks(model, m, 4) for m in range(4)]
    assert parts[0].stack.blocks[0].mixer.branch.W_Q.weight.shape == (4, 16)
    assert parts[3].stack.blocks[0].feed_forward.branch.down.weight.shape == (16, 8)
    assert largest_difference(join_blocks(parts, small_gpt(2)), model) == 0
    with pytest.raises(ValueError, match="4 heads; expected a multiple of 3"):
        split_blocks(model, 0, 3)


def test_stages_share_out_all_blocks() -> None:
    model = small_gpt()
    stages = [Stage(model, s, 3) for s in range(3)]
    assert sum(len(stage.blocks) for stage in stages) == 4
    assert min(len(stage.blocks) for stage in stages) >= 1
    assert largest_difference(put_together(stages, small_gpt(2)), model) == 0
    with pytest.raises(ValueError, match="stage 1 has no embedding"):
        tied(stages[1])
    with pytest.raises(ValueError, match="at most 4, the number of blocks"):
        Stage(model, 0, 5)


def test_a_flat_gradient_goes_back_where_it_came_from() -> None:
    model, (ids,) = small_gpt(), some_batches(steps=1)
    (total_loss(model(ids[:, :-1]), ids) / predicted(ids)).backward()
    before = [weight.grad.clone() for weight in model.parameters()]
    set_gradient(model, flat_gradient(model))
    for weight, gradient in zip(model.parameters(), before, strict=True):
        assert torch.equal(weight.grad, gradient)


# ---- schedules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [gpipe, one_forward_one_backward])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 1), (3, 2), (4, 8), (4, 4)])
def test_a_schedule_ends_and_its_bubble_is_the_formula(make: object, stages: int, microbatches: int) -> None:
    schedule = make(stages, microbatches)  # type: ignore[operator]
    for passes in schedule:
        assert sorted(passes) == [(kind, k) for kind in "BF" for k in range(microbatches)]
    timed = timetable(schedule)
    assert bubble(timed) == pytest.approx((stages - 1) / (microbatches + stages - 1))


def test_one_forward_one_backward_keeps_few_microbatches() -> None:
    assert held_at_once(gpipe(4, 8)) == [8, 8, 8, 8]
    assert held_at_once(one_forward_one_backward(4, 8)) == [4, 3, 2, 1]
    assert one_forward_one_backward(2, 2) == [
        [("F", 0), ("F", 1), ("B", 0), ("B", 1)],
        [("F", 0), ("B", 0), ("F", 1), ("B", 1)],
    ]


def test_a_schedule_that_waits_for_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="never ends: stage 0 waits to do B0, stage 1 waits to do F1"):
        timetable([[("F", 0), ("B", 0), ("F", 1), ("B", 1)], [("F", 0), ("F", 1), ("B", 0), ("B", 1)]])


# ---- planning --------------------------------------------------------------------------------------------------------


def test_memory_of_zero_is_what_its_paper_says() -> None:
    """Rajbhandari et al. (2020), figure 1: 7.5 billion parameters on 64 machines, in GB."""
    found = [sum(memory_by_part(7.5e9, 64, kind).values()) / 1e9 for kind in STAGES]
    assert found == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)
    assert (
        memory_by_part(10, 1, "ZeRO-3")
        == memory_by_part(10, 1)
        == dict(zip(("weights", "gradients", "optimizer"), [20, 20, 120], strict=True))
    )
    with pytest.raises(ValueError, match="expected one of data parallel, ZeRO-1"):
        memory_by_part(1, 1, "ZeRO-4")
    assert sum(MIXED) == 16


def test_plans_agree_with_what_was_published() -> None:
    """Brown et al. (2020), table D.1, and Patterson et al. (2021), table 4; Llama 3.1's paper and model card."""
    gpt_3 = Plan(parameters=174.6e9, tokens=300e9, chips=10_000, chip=V100, utilization=24.6 / 125, carbon=0.429)
    assert gpt_3.operations == pytest.approx(3.14e23, rel=0.01)
    assert gpt_3.days == pytest.approx(14.8, rel=0.02)
    assert gpt_3.megawatt_hours == pytest.approx(1287, rel=0.02)
    assert gpt_3.tonnes == pytest.approx(552, rel=0.02)
    llama = Plan(parameters=405e9, tokens=15.6e12, chips=16_384, chip=H100, utilization=0.4, overhead=1)
    assert llama.operations == pytest.approx(3.8e25, rel=0.01)
    assert llama.chip_hours == pytest.approx(30.84e6, rel=0.2)
    assert llama.days == pytest.approx(llama.chip_hours / 16_384 / 24)
    assert llama.rent == pytest.approx(2 * llama.chip_hours * llama.slowdown)
    assert gpt_3.power_bill == pytest.approx(128_700, rel=0.02)
    with pytest.raises(ValueError, match="utilization is 40"):
        replace(llama, utilization=40)
    assert 14_400 * H100.price == 504e6


def test_checkpointed_activations_are_the_inputs_of_the_layers() -> None:
    assert activation_bytes(2, 8, 10, checkpointed=True) == 2 * 2 * 8 * 10
    assert activation_bytes(2, 8, 10) == 17 * activation_bytes(2, 8, 10, checkpointed=True)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="kind is 'both'; expected data, sharded"):
        wire_bytes("both", Shape(1, 1, 1, 1, 1, 1), 2)


def test_sending_hides_when_each_chip_reads_enough_tokens() -> None:
    """At 4e14 operations and 5e10 bytes a second: 8,000 tokens; half of them, and the backward pass lasts twice."""
    assert tokens_to_hide(4e14, INFINIBAND) == 8000
    assert tensor_sending(8, 8192, 4e14, INFINIBAND) == pytest.approx(2 * 7 / (9 * 8192) * 8000)
    plan = Plan(
        parameters=7e9, tokens=1e11, chips=10, utilization=4e14 / H100.peak, batch=80_000, server=1, kind="ZeRO-1"
    )
    assert plan.tokens_per_copy == 8000
    assert replace(plan, batch=80_010).hides
    assert replace(plan, batch=80_010).speedup == 10
    crowded = replace(plan, batch=40_000)
    assert not crowded.hides
    assert crowded.speedup == pytest.approx(10 / (1 / 3 + 4 / 3))
    assert replace(crowded, chips=1, batch=10).hides  # one chip sends nothing
    assert replace(plan, server=8).tokens_to_hide == 1000  # eight cards together
    assert replace(plan, server=8, chips=160, tensor=8).tokens_to_hide == 8000  # each card has its own slice's gradient
    assert replace(plan, chips=8, server=8).tokens_to_hide == pytest.approx(4e14 / NVLINK)
    short = replace(plan, text=16_000)
    assert short.slowdown == 2  # ten copies, five texts
    assert short.megawatt_hours == pytest.approx(1.5 * plan.megawatt_hours, rel=1e-3)
    with pytest.raises(ValueError, match="not copies of 4 × 1"):
        replace(plan, tensor=4)


def test_texts_stay_whole_and_the_fullest_microbatch_is_what_all_wait_for() -> None:
    plan = Plan(parameters=30e9, tokens=600e9, chips=1024, batch=1e6, text=2048, kind="ZeRO-1", tensor=2, pipeline=16)
    with pytest.raises(
        ValueError, match="488 whole texts for 32 copies: at most 16 each, too few for 256 microbatches"
    ):
        replace(plan, microbatches=256)
    assert replace(plan, microbatches=16).waits["no text"] == pytest.approx(32 * 16 / 488 - 1)  # uneven shares
    assert replace(plan, microbatches=16).tokens_per_microbatch == 2048
    assert replace(plan, microbatches=9).waits["no text"] == pytest.approx(32 * 9 * 2 / 488 - 1)  # 16 texts in 9
    eight = replace(plan, tensor=8, pipeline=1)
    assert eight.tokens_per_copy == 4 * 2048  # 488 texts for 128 copies: the slowest has 4, not 3.8
    assert eight.waits["no text"] == pytest.approx(512 / 488 - 1)
    idle = replace(plan, tensor=1, pipeline=1)
    assert (idle.reading, idle.waits["no text"]) == (488, pytest.approx(1024 / 488 - 1))
    with pytest.raises(ValueError, match="no whole text of 2,048"):
        replace(plan, batch=2000)


def test_gradients_that_stay_sharded_are_sent_for_each_microbatch() -> None:
    """Whole gradients are sent once and take their memory; a shard's reduce-scatter comes with every microbatch."""
    plan = Plan(parameters=7e9, tokens=1e9, chips=64, tensor=8, batch=8 * 4 * 1000, text=1000, microbatches=4)
    needed = plan.tokens_to_hide / 1000
    found = {kind: replace(plan, kind=kind) for kind in STAGES}
    assert found["ZeRO-1"].waits["copies"] == pytest.approx(2 / 3 * (needed - 1) / 4)
    assert found["ZeRO-2"].waits["copies"] == pytest.approx(2 / 3 * (needed / 2 - 1) + (needed - 1) / 12)
    assert found["ZeRO-3"].waits["copies"] == pytest.approx(needed - 1)
    heavy = {kind: replace(plan, kind=kind, gradient_bytes=4).waits["copies"] for kind in STAGES}
    assert heavy["data parallel"] == pytest.approx(2 / 3 * (2 * needed - 1) / 4)
    assert heavy["ZeRO-1"] == pytest.approx(2 / 3 * (1.5 * needed - 1) / 4)
    assert heavy["ZeRO-2"] == pytest.approx(2 / 3 * (needed - 1) + (needed - 1) / 12)
    assert heavy["ZeRO-3"] == pytest.approx((needed - 1) / 3 + 2 / 3 * (1.5 * needed - 1))
    assert found["ZeRO-1"].bytes_by_part["gradients"] == 2 * 7e9 / 8
    assert found["ZeRO-2"].bytes_by_part["gradients"] == 2 * 7e9 / 64


@pytest.mark.parametrize(("layers", "send", "end"), [(4, 1.5, 13.5), (4, 2.0, 14.0), (4, 4.0, 22.0), (1, 5.0, 8.0)])
def test_gradients_hide_behind_the_backward_pass(layers: int, send: float, end: float) -> None:
    """One layer's sending sticks out if it takes at most a backward pass; else all that the wire has to do."""
    jobs = step_timeline(layers, send)
    assert max(job.end for job in jobs) == end
    assert end == layers + 2 + layers * send if send >= 2 else end == 3 * layers + send
    sent = {job.layer: job.start for job in jobs if job.kind == "send"}
    assert all(sent[job.layer] >= job.end for job in jobs if job.kind == "backward")


@pytest.mark.parametrize("send", [0.5, 2.0, 6.0])
def test_weights_arrive_before_they_are_used_and_the_wire_does_one_thing_at_a_time(send: float) -> None:
    jobs = step_timeline(4, send, gathers=True)
    for wire in (False, True):
        mine = sorted((job.start, job.end) for job in jobs if job.wire == wire)
        assert all(after[0] >= before[1] for before, after in itertools.pairwise(mine))
    for kind, needs in (("forward", 4), ("backward", 3)):
        passes = [job for job in jobs if job.kind == kind]
        assert len(passes) == 4
        gathers = [job for job in jobs if job.kind == "gather"][-needs:] if kind == "backward" else jobs
        ready = {job.layer: job.end for job in reversed(gathers) if job.kind == "gather"}
        assert all(job.start >= ready[job.layer] for job in passes if job.layer in ready)
    assert len(jobs) == 8 + 7 + 4
    if send == 0.5:  # what waits: the first fetch and the last gradient
        assert max(job.end for job in jobs) == 12 + 0.25 + 0.25


def test_memory_of_a_plan_counts_activations() -> None:
    plan = Plan(parameters=30e9, tokens=1e9, chips=64, batch=64 * 4096, kind="ZeRO-3")
    assert plan.layers == pytest.approx(53.4, abs=0.1)
    assert plan.bytes_by_part["activations"] == pytest.approx(
        activation_bytes(1, 1, 1) * plan.layers * plan.d_model * 4096
    )
    assert replace(plan, microbatches=4).bytes_by_part["activations"] == plan.bytes_by_part["activations"] / 4
    again = replace(plan, recompute=True)
    assert again.bytes_by_part["activations"] < plan.bytes_by_part["activations"] / 10
    assert again.slowdown == pytest.approx(4 / 3)
    assert plan.fits == (plan.bytes_per_chip <= 80e9)


@pytest.mark.parametrize(("machines", "server"), [(4, 2), (8, 4), (6, 3), (4, 4)])
def test_an_all_reduce_in_servers_is_the_sum_and_spares_the_cards(machines: int, server: int) -> None:
    xs = [
        torch.randn(machines * 6, dtype=torch.float64, generator=torch.Generator().manual_seed(m))
        for m in range(machines)
    ]
    wire, flat = Wire(machines), Wire(machines)
    for found in all_reduce_in_servers(xs, wire, server):
        torch.testing.assert_close(found, sum(xs))
    flat.all_reduce(xs)
    servers, size = machines // server, machines * 6 * 8
    assert over_cards(wire, server) == pytest.approx(2 * (servers - 1) / servers * size / server)
    assert over_cards(flat, server) == (2 * (machines - 1) / machines * size if servers > 1 else 0)
    with pytest.raises(ValueError, match="can't be cut"):
        all_reduce_in_servers(xs[:3], Wire(3), 2)
