"""A small serving engine: requests arrive, share one model and one paged cache, and leave when they are done.

Decoding reads all weights for each step, whether one text or sixteen get a token from it. So an engine keeps its batch
full: with continuous batching, a request joins as soon as another leaves (Yu et al., 2022, section 4.1). Who reads its
prompt and who generates in a step is decided by a plain function, the scheduler.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tfbook.attention.cache import Cache
from tfbook.attention.masks import Causal
from tfbook.attention.positions import Learned
from tfbook.checks import check_positive, trusted
from tfbook.generation.paging import BlockPool, PagedLayer, Placed, Rows, padded
from tfbook.generation.sampling import Filter, apply_filters, sample_now
from tfbook.models.blocks import BlockCache
from tfbook.models.language_model import LanguageModel
from tfbook.modes import evaluating
from tfbook.parts import exactly

# ---- requests ----------------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class Request:
    """A prompt to continue, as by `sampling.generate` with these options, and how far the engine has come with it.

    `arrives` is the time at which the engine sees it, in the units of its clock.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    filters: Sequence[Filter] = ()
    stop: Collection[int] = ()
    seed: int = 0
    arrives: float = 0.0

    new: list[int] = field(default_factory=list, init=False)  # the tokens generated so far
    times: list[float] = field(default_factory=list, init=False)  # when each of them came
    table: list[int] = field(default_factory=list, init=False)  # its blocks, in order
    cached: int = field(default=0, init=False)  # positions whose keys and values are in these blocks
    reused: int = field(default=0, init=False)  # positions that it found there, read by an earlier request
    preempted: int = field(default=0, init=False)  # how often it had to give up its blocks
    generator: Any = field(default=None, init=False, repr=False)

    @property
    def tokens(self) -> list[int]:
        """The prompt and what was generated."""
        return [*self.prompt, *self.new]

    @property
    def length(self) -> int:
        """The number of its tokens."""
        return len(self.prompt) + len(self.new)

    @property
    def ended(self) -> bool:
        """Whether its last token is a stop token, or it has as many as it asked for."""
        return bool(self.new) and (self.new[-1] in self.stop or len(self.new) == self.max_new_tokens)

    @property
    def time_to_first_token(self) -> float:
        """From its arrival to its first token."""
        return self.times[0] - self.arrives

    @property
    def tokens_per_second(self) -> float:
        """The rate after its first token; NaN when there is no second one."""
        return (len(self.new) - 1) / (self.times[-1] - self.times[0]) if len(self.new) > 1 else float("nan")


# ---- schedulers --------------------------------------------------------------------------------------------------


class Room(NamedTuple):
    """The room for requests that wait: seats in the batch, and free blocks of `block_size` positions each."""

    seats: int
    blocks: int
    block_size: int

    def blocks_for(self, request: Request) -> int:
        """The blocks that its text needs: ⌈tokens / block_size⌉."""
        return -(-request.length // self.block_size)


class Turn(NamedTuple):
    """Who reads a prompt in a step, and who generates from a text that is cached; each gets one token."""

    prefill: list[Request]
    decode: list[Request]


Scheduler = Callable[[list[Request], list[Request], Room], Turn]  # of who waits and who runs, in order of arrival


def continuous(waiting: list[Request], running: list[Request], room: Room) -> Turn:
    """All who run generate; who waits is admitted, in order, while there are a seat and blocks."""
    blocks = room.blocks
    admitted: list[Request] = []
    for request in waiting:
        blocks -= room.blocks_for(request)
        if len(admitted) == room.seats or blocks < 0:
            break
        admitted.append(request)
    return Turn(admitted, running)


def static(waiting: list[Request], running: list[Request], room: Room) -> Turn:
    """A batch is admitted together, and nobody else until its last request has ended."""
    return Turn([], running) if running else continuous(waiting, running, room)


def one_by_one(waiting: list[Request], running: list[Request], room: Room) -> Turn:
    """One request runs at a time."""
    return Turn([], running) if running else Turn(waiting[:1], [])


# ---- clocks ------------------------------------------------------------------------------------------------------


class WallClock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def now(self) -> float:
        """The time."""
        return time.perf_counter() - self.start

    def wait(self, until: float) -> None:
        """Sleeps until then."""
        time.sleep(max(0.0, until - self.now()))

    def tick(self) -> None:
        """Called at the end of a step, which takes the time it takes."""


class StepClock:
    """Counts the engine's steps, so that schedules can be compared on any machine."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        """The steps so far."""
        return self.time

    def wait(self, until: float) -> None:
        """Skips the steps in which there is nothing to do."""
        self.time = max(self.time, until)

    def tick(self) -> None:
        """A step takes 1."""
        self.time += 1


# ---- the engine --------------------------------------------------------------------------------------------------


class Moment(NamedTuple):
    """A step that is over: its end, who was in it, how many waited, and how many blocks were free."""

    time: float
    prefill: list[Request]
    decode: list[Request]
    waiting: int
    free: int


@dataclass(frozen=True)
class Served:
    """Requests that the engine has completed, the time that took, and its steps."""

    requests: list[Request]
    time: float
    steps: list[Moment]

    @property
    def throughput(self) -> float:
        """Generated tokens of all requests per unit of time."""
        return sum(len(request.new) for request in self.requests) / self.time

    def summary(self) -> dict[str, float]:
        """Throughput, times to the first token, the rate of a request after it, and how full steps were."""
        waits = [request.time_to_first_token for request in self.requests]
        rates = [request.tokens_per_second for request in self.requests if len(request.new) > 1]
        return {
            "throughput": self.throughput,
            "median time to first token": median(waits),
            "longest time to first token": max(waits),
            "median tokens per second": median(rates) if rates else float("nan"),
            "mean requests per step": mean(len(step.prefill) + len(step.decode) for step in self.steps),
            "share of prompts reused": sum(request.reused for request in self.requests)
            / sum(len(request.prompt) for request in self.requests),
        }


class Engine:
    """Serves requests with one model: `run` them, or `submit` some and take each `step` yourself.

    At most `seats` requests are in the batch at a time, and their keys and values in `blocks` blocks of `block_size`
    positions; with `reuse`, a prompt that begins as an earlier text did is not read again as far as blocks of that text
    are still there. Each request gets the tokens that `sampling.generate` gives it alone. Raises ValueError for sizes
    below 1 and for a model that is not causal or mixes by more than attention.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        schedule: Scheduler = continuous,
        seats: int = 16,
        blocks: int = 256,
        block_size: int = 16,
        reuse: bool = True,
        clock: WallClock | StepClock | None = None,
    ):
        check_positive(seats=seats, blocks=blocks, block_size=block_size)
        check_can_be_paged(model)
        self.model, self.schedule, self.seats, self.reuse = model, schedule, seats, reuse
        self.clock = clock or WallClock()
        self.pool, self.blocks = BlockPool(blocks, block_size), blocks
        self.layers = [PagedLayer(blocks, block_size) for _ in model.stack.blocks]
        self.coming: deque[Request] = deque()  # by their time of arrival
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.steps: list[Moment] = []
        self._device = model.embed.weight.device

    def run(self, requests: Iterable[Request]) -> Served:
        """Serves the requests until all have ended, each from its time of arrival on. Raises what `submit` raises."""
        served = list(requests)
        for each in served:
            self.submit(each)
        start, first = self.clock.now(), len(self.steps)
        with evaluating(self.model), torch.inference_mode():
            while self.coming or self.waiting or self.running:
                if not (self.waiting or self.running):
                    self.clock.wait(until=self.coming[0].arrives)
                self._step()
        return Served(served, self.clock.now() - start, self.steps[first:])

    def submit(self, request: Request) -> None:
        """Puts a request in line. Raises ValueError for one that the model or the cache is too small for."""
        self._check_request(request)
        request.generator = torch.Generator(self._device).manual_seed(request.seed)
        self.coming = deque(sorted([*self.coming, request], key=lambda each: each.arrives))

    def step(self) -> list[Request]:
        """One step of the schedule; returns the requests that got a token. Raises ValueError for a wrong `Turn`."""
        with evaluating(self.model), torch.inference_mode():
            return self._step()

    def _step(self) -> list[Request]:
        while self.coming and self.coming[0].arrives <= self.clock.now():
            self.waiting.append(self.coming.popleft())
        room = Room(self.seats - len(self.running), self._free_after(self.running), self.pool.size)
        turn = self.schedule([*self.waiting], [*self.running], room)
        self._check_turn(turn, room)
        decode = self._with_blocks(turn.decode)
        for request in turn.prefill:
            self._admit(request)
        for group in (turn.prefill, decode):
            if group:
                self._generate(group)
        self.clock.tick()
        self.steps.append(Moment(self.clock.now(), turn.prefill, decode, len(self.waiting), self.pool.free))
        return [*turn.prefill, *decode]

    def _free_after(self, decode: list[Request]) -> int:
        """The free blocks that are left when each of these requests has one for its newest token."""
        return self.pool.free - sum(request.length > len(request.table) * self.pool.size for request in decode)

    def _with_blocks(self, decode: list[Request]) -> list[Request]:
        """These requests with a block for the newest token of each.

        Where blocks run out, the last one gives up its own and reads its text again later.
        """
        decode = [*decode]
        while self._free_after(decode) < 0:
            self._preempt(decode.pop())
        for request in decode:
            self._take_blocks(request)
        return decode

    def _preempt(self, request: Request) -> None:
        self._give_up(request)
        request.preempted += 1
        self.waiting.insert(0, request)

    def _give_up(self, request: Request) -> None:
        self.running.remove(request)
        self.pool.release(request.table)
        request.table, request.cached = [], 0

    def _admit(self, request: Request) -> None:
        self.waiting.remove(request)
        self.running.append(request)
        if self.reuse:
            request.table = self.pool.share(request.tokens)
            request.cached = len(request.table) * self.pool.size
            request.reused = max(request.reused, min(request.cached, len(request.prompt)))
        self._take_blocks(request)

    def _take_blocks(self, request: Request) -> None:
        while len(request.table) < self.pool.blocks_for(request.length):
            request.table.append(self.pool.take())

    def _generate(self, requests: list[Request]) -> None:
        """One token for each: one pass over what is new in their texts, then each samples for itself."""
        logits = self._read(requests).float()
        for request, row in zip(requests, logits.split(1), strict=True):
            request.new.append(self._sample(request, row))
        now = self.clock.now()
        for request in requests:
            request.times.append(now)
            if request.ended:
                self._give_up(request)

    def _read(self, requests: list[Request]) -> Float[Tensor, "batch vocab"]:
        """Reads the tokens that are not cached yet; the logits after the last one of each text."""
        starts, ends = [request.cached for request in requests], [request.length for request in requests]
        rows = Rows(starts, ends, [request.table for request in requests], self.pool.size, self.blocks)
        ids = padded([request.tokens[start:] for request, start in zip(requests, starts, strict=True)], rows.time)
        with trusted():
            x = self._through_blocks(ids.to(self._device), rows.to(self._device))
        if rows.time > 1:
            last = torch.tensor([end - start - 1 for start, end in zip(starts, ends, strict=True)], device=self._device)
            x = x[torch.arange(len(x)), last][:, None]
        logits = self.model.unembed(self.model.stack.norm(x))[:, 0]
        for request in requests:
            if self.reuse:
                self.pool.remember(request.tokens, request.table, request.cached)
            request.cached = request.length
        return logits

    def _through_blocks(self, ids: Tensor, rows: Rows) -> Float[Tensor, "batch time d_model"]:
        """The model's stack up to its last norm, with the texts' own positions and the paged cache."""
        stack, mask = self.model.stack, rows.mask()
        position = Placed(stack.position, rows)
        x = stack.dropout(stack.embed_norm(position.add(self.model.embed(ids))))
        for block, layer in zip(stack.blocks, self.layers, strict=True):
            layer.rows = rows
            x = block(x, mask, position=position, cache=BlockCache(layer, None))
        return x

    def _sample(self, request: Request, logits: Float[Tensor, "1 vocab"]) -> int:
        """A token from softmax(filtered logits), by the request's own generator."""
        if request.filters:
            logits = apply_filters(logits, torch.tensor([request.tokens], device=self._device), request.filters)
        return sample_now(logits, request.generator)

    def _check_request(self, request: Request) -> None:
        vocab, position = self.model.unembed.out_features, self.model.stack.position
        if request.new or request.table:
            raise ValueError("request has been served before; expected a new one")
        if not request.prompt or not all(0 <= token < vocab for token in request.prompt):
            raise ValueError(f"prompt is {list(request.prompt)}; expected one or more ids from 0 to {vocab - 1}")
        check_positive(max_new_tokens=request.max_new_tokens)
        needed = len(request.prompt) + request.max_new_tokens - 1  # the last token is generated but not read
        if isinstance(position, Learned) and needed > position.embedding.num_embeddings:
            learned = position.embedding.num_embeddings
            raise ValueError(f"request needs {needed} positions; the model has learned {learned}")
        if self.pool.blocks_for(needed) > self.blocks:
            blocks = self.pool.blocks_for(needed)
            raise ValueError(f"request needs {blocks} blocks of {self.pool.size} positions; there are {self.blocks}")

    def _check_turn(self, turn: Turn, room: Room) -> None:
        """Refuses what a scheduler may get wrong."""
        for name, chosen, allowed in (("prefill", turn.prefill, self.waiting), ("decode", turn.decode, self.running)):
            if len({*map(id, chosen)}) < len(chosen) or {*map(id, chosen)} - {*map(id, allowed)}:
                who = "waits" if name == "prefill" else "runs"
                raise ValueError(f"{name} holds a request twice, or one that is not there; expected some of who {who}")
        if len(turn.prefill) > room.seats:
            raise ValueError(f"prefill holds {len(turn.prefill)} requests; there are {room.seats} free seats")
        needed = sum(map(room.blocks_for, turn.prefill))
        if turn.prefill and needed > room.blocks:
            raise ValueError(f"prefill needs {needed} blocks; {max(0, room.blocks)} are free")
        if not (turn.prefill or turn.decode) and (self.waiting or self.running):
            counts = f"{len(self.waiting)} requests wait and {len(self.running)} run"
            raise ValueError(f"the schedule lets nobody have a token while {counts}; it would never end")


def check_can_be_paged(model: LanguageModel) -> None:
    """Raises ValueError unless the model is causal and what it keeps of the past is keys and values."""
    if not exactly(model.mask, Causal):
        raise ValueError(f"model, a {type(model).__name__}, has the mask {model.mask}; expected Causal()")
    for block in model.new_cache().blocks:
        if not exactly(block.past, Cache):
            raise ValueError(f"a mixer of the model keeps a {type(block.past).__name__}; expected keys and values")
