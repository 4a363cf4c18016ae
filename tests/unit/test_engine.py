"""The engine: each request gets what it gets alone, whatever arrives beside it, however small the cache."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from tfbook.attention import POSITIONS, GroupedQueryAttention, InterpolatedRotary
from tfbook.attention.efficient import Banded
from tfbook.attention.grouped_query import with_groups
from tfbook.attention.masks import Band
from tfbook.generation import sampling
from tfbook.generation.engine import (
    Engine,
    Request,
    Room,
    Scheduler,
    StepClock,
    Turn,
    WallClock,
    continuous,
    one_by_one,
    static,
)
from tfbook.generation.frozen import Frozen
from tfbook.generation.paging import PagedLayer, Rows, side_by_side
from tfbook.generation.quantization import quantize
from tfbook.models.blocks import Config, PostNorm
from tfbook.models.experts import MixtureOfExperts
from tfbook.models.feed_forward import SwiGLU
from tfbook.models.gpt import GPT2, Gpt
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.models.norms import RMSNorm

VOCAB = 13
SIZES = replace(GPT2, d_model=16, heads=4, d_ff=24, layers=2, max_length=40, dropout=0.3)
SCHEDULERS: dict[str, Scheduler] = {"continuous": continuous, "static": static, "one by one": one_by_one}

pytestmark = pytest.mark.usefixtures("float32")


def drawn(**choices: Any) -> LanguageModel:
    """Untrained and lively: what comes next depends on all that was read."""
    torch.manual_seed(0)
    model = Gpt(VOCAB, replace(SIZES, **choices))
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.3)
    return model


def interpolated(d_model: int, heads: int, max_length: int) -> InterpolatedRotary:
    return InterpolatedRotary(d_model // heads, stretch=2.0)


MODELS: dict[str, Callable[[], LanguageModel]] = {
    **{name: partial(drawn, position=name) for name in POSITIONS},
    "interpolated": partial(drawn, position=interpolated),
    "frozen": lambda: Frozen(drawn(position="rotary")),
    "frozen, learned": lambda: Frozen(drawn()),
    "frozen, ALiBi": lambda: Frozen(drawn(position="ALiBi")),
    "grouped, SwiGLU, RMS norm": partial(
        drawn, position="rotary", mixer=partial(GroupedQueryAttention, groups=2), feed_forward=SwiGLU, norm=RMSNorm
    ),
    "frozen, grouped": lambda: Frozen(with_groups(drawn(position="rotary"), 2)),
    "8 bits": lambda: quantize(drawn(position="rotary")),
    "frozen, 4 bits": lambda: Frozen(quantize(drawn(position="rotary"), bits=4, group=8)),
    "post-norm": partial(drawn, residual=PostNorm),
    "experts": partial(drawn, feed_forward=partial(MixtureOfExperts, experts=3, k=2)),
}
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9, 10, 11, 12, 0, 1, 2], [1, 2, 3, 4, 9], [1, 2, 3, 4, 5, 6, 7], [3, 3]]
LIMITS = [9, 14, 4, 1, 7, 20]


def requests(filters: list[sampling.Filter], **options: Any) -> list[Request]:
    """Texts of all lengths that come one after the other, some with the same beginning."""
    return [
        Request(prompt=prompt, max_new_tokens=limit, filters=filters, seed=number, arrives=number * 1.5, **options)
        for number, (prompt, limit) in enumerate(zip(PROMPTS, LIMITS, strict=True))
    ]


def alone(model: LanguageModel, request: Request) -> list[int]:
    """The tokens that the same request gets by itself, from another part of the package."""
    options: dict[str, Any] = {"max_new_tokens": request.max_new_tokens, "filters": request.filters}
    options |= {"stop": request.stop, "generator": torch.Generator().manual_seed(request.seed)}
    return sampling.generate(model, torch.tensor([request.prompt]), **options)[0, len(request.prompt) :].tolist()


# ---- the same as alone -------------------------------------------------------------------------------------------


FILTERS = {"greedy": [sampling.greedy], "sampled": [sampling.repetition_penalty(1.5), sampling.top_k(6)]}


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("name", MODELS)
def test_each_request_gets_what_it_gets_alone(name: str, filters: list[sampling.Filter]) -> None:
    """Greedy, and sampled with its own seed; in train mode too, since generating has no dropout."""
    model = MODELS[name]().train(not name.startswith("frozen"))
    served = Engine(model, seats=3, block_size=4, clock=StepClock()).run(requests(filters))
    for request in served.requests:
        assert request.new == alone(model, request)


@pytest.mark.parametrize("name", MODELS)
def test_the_logits_are_those_of_the_text_alone(name: str) -> None:
    """To 1e-5, at every step, whoever is beside it."""
    model, seen = MODELS[name]().eval(), {}

    def spy(logits: Tensor, ids: Tensor) -> Tensor:
        seen[tuple(ids[0].tolist())] = logits
        return logits

    Engine(model, seats=4, block_size=4, clock=StepClock()).run(requests([spy]))
    assert len(seen) > 40
    with torch.no_grad():
        for text, logits in seen.items():
            torch.testing.assert_close(logits, model(torch.tensor([text]))[:, -1], atol=1e-5, rtol=1e-5)


@settings(max_examples=40)
@given(data=st.data())
def test_nothing_beside_a_request_changes_it(data: st.DataObject) -> None:
    """Any prompts from few tokens, so that many share beginnings; any seats, blocks, schedule and arrivals."""
    model = MODELS["frozen"]()
    block_size = data.draw(st.integers(1, 5))
    texts = data.draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=6))
    made = [
        Request(
            prompt=text,
            max_new_tokens=data.draw(st.integers(1, 8)),
            stop=(3, 4),
            seed=number,
            arrives=data.draw(st.integers(0, 9)),
        )
        for number, text in enumerate(texts)
    ]
    longest = max(len(request.prompt) + request.max_new_tokens for request in made)
    engine = Engine(
        model,
        schedule=data.draw(st.sampled_from([continuous, static, one_by_one])),
        seats=data.draw(st.integers(1, 4)),
        blocks=-(-longest // block_size) + data.draw(st.integers(0, 6)),
        block_size=block_size,
        reuse=data.draw(st.booleans()),
        clock=StepClock(),
    )
    engine.run(made)
    assert [request.new for request in made] == [alone(model, request) for request in made]
    assert engine.pool.free == engine.blocks  # nothing is lost
    assert [*engine.coming, *engine.waiting, *engine.running] == []


def test_a_small_cache_preempts_and_changes_nothing() -> None:
    model = MODELS["rotary"]()
    served = Engine(model, seats=6, blocks=7, block_size=4, clock=StepClock()).run(requests([]))
    assert sum(request.preempted for request in served.requests) > 0
    for request in served.requests:
        assert request.new == alone(model, request)


def test_a_stop_token_ends_a_request() -> None:
    model = MODELS["rotary"]()
    served = Engine(model, block_size=4, clock=StepClock()).run(requests([sampling.greedy], stop=range(0, VOCAB, 3)))
    for request in served.requests:
        assert request.new == alone(model, request)
    assert any(len(request.new) < request.max_new_tokens for request in served.requests)


def test_the_global_random_numbers_and_the_mode_are_untouched() -> None:
    model, before = drawn().train(), torch.get_rng_state()
    Engine(model, clock=StepClock()).run(requests([]))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(module.training for module in model.modules())


# ---- prefix reuse ------------------------------------------------------------------------------------------------


def test_a_known_beginning_is_not_read_again() -> None:
    """Whole blocks of it, but never the last token; a text that was generated is known as well."""
    model = MODELS["rotary"]()
    embedded: list[int] = []
    model.embed.register_forward_hook(lambda module, inputs, output: embedded.append(inputs[0].shape[1]))
    engine, text = Engine(model, block_size=4, clock=StepClock()), list(range(12))
    first = Request(prompt=text, max_new_tokens=5)
    engine.run([first])
    second = Request(prompt=text, max_new_tokens=1)
    third = Request(prompt=[*first.tokens, 1, 2], max_new_tokens=1)
    other = Request(prompt=[*text[:6], 0, 0, 0], max_new_tokens=1)
    for request, reused in ((second, 8), (third, 16), (other, 4)):
        embedded.clear()
        engine.run([request])
        assert request.reused == reused
        assert embedded == [len(request.prompt) - reused]
        assert request.new == alone(model, request)


def test_without_reuse_everything_is_read() -> None:
    engine = Engine(MODELS["rotary"](), block_size=4, reuse=False, clock=StepClock())
    for _ in range(2):
        request = Request(prompt=list(range(12)), max_new_tokens=1)
        engine.run([request])
        assert request.reused == 0


def test_requests_that_share_a_beginning_share_its_blocks() -> None:
    engine = Engine(MODELS["rotary"](), block_size=4, blocks=20, clock=StepClock())
    engine.run([Request(prompt=list(range(12)), max_new_tokens=1)])
    twins = [Request(prompt=[*range(12), number], max_new_tokens=3) for number in (1, 2)]
    for twin in twins:
        engine.submit(twin)
    engine.step()
    assert twins[0].table[:3] == twins[1].table[:3]
    assert twins[0].table[3] != twins[1].table[3]
    assert engine.pool.free == 20 - 3 - 2


# ---- schedules ---------------------------------------------------------------------------------------------------


def numbers(served: list[Request], step: list[Request]) -> list[int]:
    return [served.index(request) for request in step]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (continuous, [([0, 1], []), ([], [0, 1]), ([2], [0]), ([], [0, 2])]),
        (static, [([0, 1], []), ([], [0, 1]), ([], [0]), ([], [0]), ([2], []), ([], [2])]),
        (one_by_one, [([0], []), *[([], [0])] * 3, ([1], []), ([], [1]), ([2], []), ([], [2])]),
    ],
    ids=["continuous", "static", "one by one"],
)
def test_who_is_in_which_step(schedule: Scheduler, expected: list[tuple[list[int], list[int]]]) -> None:
    """Two seats; the first needs four tokens, the others two: by hand."""
    made = [Request(prompt=[1, 2], max_new_tokens=limit) for limit in (4, 2, 2)]
    served = Engine(MODELS["rotary"](), schedule=schedule, seats=2, clock=StepClock()).run(made)
    assert [(numbers(made, step.prefill), numbers(made, step.decode)) for step in served.steps] == expected


def test_times_and_rates_are_those_of_the_clock() -> None:
    """Steps of 1; the second request arrives at 5, when nothing is left to do, and is served at once."""
    made = [Request(prompt=[1], max_new_tokens=3), Request(prompt=[2], max_new_tokens=2, arrives=5.0)]
    served = Engine(MODELS["rotary"](), clock=StepClock()).run(made)
    assert made[0].times == [0.0, 1.0, 2.0]
    assert made[1].times == [5.0, 6.0]
    assert (made[0].time_to_first_token, made[1].time_to_first_token) == (0.0, 0.0)
    assert made[0].tokens_per_second == 1.0
    assert math.isnan(Request(prompt=[1], max_new_tokens=1).tokens_per_second)
    assert served.time == 7.0
    assert served.throughput == 5 / 7
    summary = served.summary()
    assert summary["mean requests per step"] == 1.0
    assert summary["longest time to first token"] == 0.0
    assert summary["share of prompts reused"] == 0.0


def test_by_the_wall_clock_a_request_waits_for_its_arrival() -> None:
    clock = WallClock()
    arrives = clock.now() + 0.05
    made = [Request(prompt=[1], max_new_tokens=2, arrives=arrives)]
    served = Engine(MODELS["rotary"](), clock=clock).run(made)
    assert made[0].times[0] >= arrives
    assert made[0].time_to_first_token > 0
    assert 0.05 <= served.time < 5


@pytest.mark.parametrize(
    ("table", "run"), [([3], slice(12, 16)), ([2, 3, 4], slice(8, 20)), ([3, 2], None), ([1, 3], None)]
)
def test_a_lone_texts_blocks_are_read_where_they_lie(table: list[int], run: slice | None) -> None:
    """A view of the memory where they follow each other, a copy where they don't: the same keys and values."""
    layer, (k, v) = PagedLayer(6, 4), torch.randn(2, 1, 2, 1, 3)
    new = 4 * len(table) - 2  # the last position but one of the last block
    layer.rows = Rows([new], [new + 1], [table], 4, 6)
    assert (side_by_side(table, 4), layer.rows.run) == (run, run)
    keys, values = layer.extend(k, v)
    assert layer.memory is not None
    assert (keys.untyped_storage().data_ptr() == layer.memory.untyped_storage().data_ptr()) == (run is not None)
    by_hand = layer.memory[torch.tensor(table)].flatten(0, 1)[: new + 1]  # (key, 2, head, d_head)
    assert torch.equal(keys[0], by_hand[:, 0].transpose(0, 1))
    assert torch.equal(values[0], by_hand[:, 1].transpose(0, 1))
    assert torch.equal(values[0, :, -1:], v[0])
    two = Rows([new, new], [new + 1, new + 1], [table, table], 4, 6)
    assert two.run is None


def test_room_is_for_whole_blocks() -> None:
    room = Room(seats=2, blocks=3, block_size=4)
    lengths = [4, 5, 1, 1]
    made = [Request(prompt=[1] * length, max_new_tokens=1) for length in lengths]
    assert [room.blocks_for(request) for request in made] == [1, 2, 1, 1]
    assert continuous(made, [], room).prefill == made[:2]
    assert continuous(made[2:] + made[:1], [], room).prefill == made[2:]  # seats
    assert continuous(made[1:2] * 2, [], room).prefill == made[1:2]  # blocks


# ---- refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (lambda waiting, running, room: Turn([], []), "nobody have a token while 3 requests wait and 0 run"),
        (lambda waiting, running, room: Turn(waiting, []), "prefill holds 3 requests; there are 2 free seats"),
        (lambda waiting, running, room: Turn([waiting[0]] * 2, []), "prefill holds a request twice"),
        (lambda waiting, running, room: Turn([], waiting), "decode holds a request twice, or one that is not there"),
    ],
)
def test_a_scheduler_that_is_wrong_is_told(schedule: Scheduler, message: str) -> None:
    made = [Request(prompt=[1] * 6, max_new_tokens=4) for _ in range(3)]
    with pytest.raises(ValueError, match=message):
        Engine(MODELS["rotary"](), schedule=schedule, seats=2, clock=StepClock()).run(made)


def test_more_blocks_than_are_free_are_refused() -> None:
    made = [Request(prompt=[1] * 6, max_new_tokens=2) for _ in range(2)]
    greedy = lambda waiting, running, room: Turn(waiting, running)  # noqa: E731
    with pytest.raises(ValueError, match="prefill needs 4 blocks; 3 are free"):
        Engine(MODELS["rotary"](), schedule=greedy, blocks=3, block_size=4, clock=StepClock()).run(made)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": []}, r"prompt is \[\]; expected one or more ids from 0 to 12"),
        ({"prompt": [VOCAB]}, r"prompt is \[13\]; expected one or more ids"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"max_new_tokens": 40}, "request needs 41 positions; the model has learned 40"),
        ({"max_new_tokens": 20}, "request needs 6 blocks of 4 positions; there are 5"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(options: dict[str, Any], message: str) -> None:
    engine = Engine(drawn(), blocks=5, block_size=4)
    with pytest.raises(ValueError, match=message):
        engine.submit(Request(**{"prompt": [1, 2], "max_new_tokens": 2} | options))


def test_a_request_is_served_once() -> None:
    engine, request = Engine(drawn(), clock=StepClock()), Request(prompt=[1], max_new_tokens=1)
    engine.run([request])
    with pytest.raises(ValueError, match="request has been served before"):
        engine.submit(request)


def test_filters_that_leave_no_token_are_refused() -> None:
    forbid = lambda logits, ids: torch.full_like(logits, -torch.inf)  # noqa: E731
    with pytest.raises(ValueError, match="expected filters that leave one token"):
        Engine(drawn()).run([Request(prompt=[1], max_new_tokens=1, filters=[forbid])])


def test_models_that_cannot_be_paged_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a BidirectionalModel, has the mask None; expected Causal\(\)"):
        Engine(BidirectionalModel(VOCAB, Config(d_model=8, heads=2)))
    windowed = drawn()
    windowed.mask = Band(3, 0)
    with pytest.raises(ValueError, match=r"has the mask Band\(.*expected Causal"):
        Engine(windowed)
    for name in ("seats", "blocks", "block_size"):
        with pytest.raises(ValueError, match=f"{name} is 0"):
            Engine(drawn(), **{name: 0})


def test_a_kernel_that_is_not_exact_refuses_the_masks_of_a_batch() -> None:
    model = drawn()
    for block in model.stack.blocks:
        block.mixer.branch.implementation = Banded(3)
    with pytest.raises(NotImplementedError, match="supports"):
        Engine(model).run([Request(prompt=[1, 2], max_new_tokens=1), Request(prompt=[1], max_new_tokens=1)])
