"""Caches against a plain `torch.cat` of everything that went in, and after calls that were interrupted."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tfbook.attention import POSITIONS, Cache, Causal, GroupedQueryAttention, MultiHeadAttention, Rotary
from tfbook.generation.frozen import Frozen
from tfbook.models.blocks import Config, Stack, StackCache
from tfbook.models.language_model import LanguageModel
from tfbook.models.seq2seq import (
    BahdanauDecoder,
    FixedContextDecoder,
    LuongDecoder,
    RecurrentDecoder,
    RecurrentEncoder,
    Seq2SeqConfig,
)
from tfbook.models.transformer import Decoder, Encoder, Transformer


def _filled(batch: int, time: int) -> tuple[Cache, Tensor, Tensor]:
    """A cache, and the keys and values in it."""
    cache, k, v = Cache(), torch.randn(batch, 2, time, 3), torch.randn(batch, 2, time, 3)
    cache.extend(k, v)
    return cache, k, v


@given(chunks=st.lists(st.integers(1, 5), min_size=1, max_size=8), batch=st.integers(1, 3))
@settings(max_examples=50)
def test_a_cache_returns_all_that_it_was_given(chunks: list[int], batch: int) -> None:
    """However the positions are cut into pieces."""
    cache, k, v = Cache(), torch.randn(batch, 2, sum(chunks), 3), torch.randn(batch, 2, sum(chunks), 3)
    for piece in zip(k.split(chunks, dim=2), v.split(chunks, dim=2), strict=True):
        before = cache.length
        found = cache.extend(*piece)
        assert cache.length == before + piece[0].shape[2]
        assert torch.equal(found[0], k[:, :, : cache.length])
        assert torch.equal(found[1], v[:, :, : cache.length])
        assert all(torch.equal(*pair) for pair in zip(found, cache.seen(), strict=True))


@given(rows=st.lists(st.integers(0, 2), min_size=1, max_size=7))
def test_selected_rows_go_on_as_copies(rows: list[int]) -> None:
    """In the order asked for, some several times, some never; what is then appended to one is not in its twin."""
    cache, k, v = _filled(3, 4)
    cache.select(torch.tensor(rows))
    new = torch.randn(2, len(rows), 2, 2, 3)
    found = cache.extend(*new)
    for all_of_it, before, after in zip(found, (k, v), new, strict=True):
        assert torch.equal(all_of_it, torch.cat([before[rows], after], dim=2))


def test_memory_is_enlarged_rarely() -> None:
    """It doubles, so that of n steps only log₂ n copy what is there."""
    cache, places = Cache(), []
    for _ in range(64):
        k, _ = cache.extend(torch.randn(1, 1, 1, 2), torch.randn(1, 1, 1, 2))
        places.append(k.data_ptr())
    assert sum(one != other for one, other in pairwise(places)) <= 6


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_cache_keeps_the_dtype(dtype: torch.dtype) -> None:
    k = torch.randn(1, 1, 2, 3, dtype=dtype)
    assert [part.dtype for part in Cache().extend(k, k)] == [dtype] * 2


@pytest.mark.parametrize("batch", [1, 3])
def test_another_batch_is_refused_and_changes_nothing(batch: int) -> None:
    """Not even one that would broadcast."""
    cache, k, v = _filled(2, 4)
    with pytest.raises(ValueError, match=f"k holds {batch} sequences; the cache holds 2"):
        cache.extend(torch.randn(batch, 2, 1, 3), torch.randn(batch, 2, 1, 3))
    assert cache.length == 4
    assert torch.equal(cache.seen()[0], k)
    assert torch.equal(cache.seen()[1], v)


def test_a_stack_selects_in_every_block_past_and_memory() -> None:
    """And returns itself, as the states of recurrent decoders do; what is empty stays empty."""
    stack, rows = Stack(Config(d_model=8, layers=2), cross=True).new_cache(), torch.tensor([1, 1, 0])
    kept: list[tuple[Cache, Tensor]] = []
    assert stack.length == 0
    for block in stack.blocks:
        for cache, time in ((block.past, 3), (block.memory, 5)):
            k, v = torch.randn(2, 2, 2, time, 3)
            cache.extend(k, v)
            kept.append((cache, k))
    assert stack.select(rows) is stack
    assert all(torch.equal(cache.seen()[0], k[rows]) for cache, k in kept)
    assert len({id(cache) for cache, _ in kept}) == 4
    assert Stack(Config(d_model=8)).new_cache().select(rows).length == 0


# ---- calls that are interrupted ----------------------------------------------------------------------------------


class _Interrupt(TorchFunctionMode):
    """Raises KeyboardInterrupt before the `n`-th call of PyTorch; reading a shape or a length counts, too."""

    def __init__(self, n: int):
        super().__init__()
        self.left = n

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return function(*args, **(kwargs or {}))

    def stops(self, call: Callable[..., object], *inputs: object) -> bool:
        """Whether it did; the call may have fewer."""
        try:
            with self:
                call(*inputs)
        except KeyboardInterrupt:
            return True
        return False


IDS, SOURCE, LENGTHS = torch.arange(18).view(2, 9) * 7 % 11, torch.arange(8).view(2, 4), torch.tensor([4, 2])
SIZES = Config(d_model=8, heads=2, d_ff=8, layers=2, max_length=16)
ROTARY, ALIBI = (replace(SIZES, position=POSITIONS[name]) for name in ("rotary", "ALiBi"))


def _refuses(call: Callable[[], object], after: int) -> bool:
    """Whether a call raises what an interrupted cache raises."""
    try:
        call()
    except ValueError as error:
        return str(error).startswith(f"cache was left half updated after {after} positions")
    return False


Read = Callable[[Tensor, StackCache | None], Tensor]  # ids and what was read before → logits


def _reader(config: Config) -> tuple[Read, Callable[[], StackCache]]:
    model = LanguageModel(11, config).eval()
    return lambda ids, cache: model(ids, cache=cache), model.new_cache


def _frozen_reader(config: Config) -> tuple[Read, Callable[[], StackCache]]:
    model = Frozen(LanguageModel(11, config))
    return lambda ids, cache: model(ids, cache=cache), model.new_cache


def _translating_reader(config: Config) -> tuple[Read, Callable[[], StackCache]]:
    model = Transformer(Encoder(11, config), Decoder(11, config)).eval()
    memory = model.encoder(SOURCE, LENGTHS)
    return lambda ids, cache: model.decoder(ids, memory, cache).logits, lambda: model.decoder.start(memory)


READERS: dict[str, Callable[[], tuple[Read, Callable[[], StackCache]]]] = {
    "learned": lambda: _reader(replace(SIZES, position=POSITIONS["learned"])),
    "rotary": lambda: _reader(ROTARY),
    "grouped queries": lambda: _reader(replace(ALIBI, mixer=partial(GroupedQueryAttention, groups=1))),
    "frozen": lambda: _frozen_reader(ROTARY),
    "encoder and decoder": lambda: _translating_reader(ROTARY),
}
every_reader = pytest.mark.parametrize("build", READERS.values(), ids=READERS)


@every_reader
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
def test_an_interrupted_call_changes_nothing_or_all_or_the_cache_is_refused(
    build: Callable[[], tuple[Read, Callable[[], StackCache]]], before: int
) -> None:
    """Before each of its lines: the first call, or one for which memory is enlarged. Then reading goes on."""
    (read, new_cache), refused, rest = build(), list[bool](), list[Tensor]()
    expected = read(IDS, None)
    for n in count(1):
        cache = new_cache()
        if before:
            read(IDS[:, :before], cache)
        if not _Interrupt(n).stops(read, IDS[:, before:7], cache):
            break
        start = cache.length
        refused.append(_refuses(lambda start=start, cache=cache: rest.append(read(IDS[:, start:], cache)), start))
        if not refused[-1]:
            torch.testing.assert_close(rest.pop(), expected[:, start:], atol=1e-5, rtol=1e-5)
    assert 0 < sum(refused) < len(refused), "some lines are before the first block changes or after the last"


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
def test_an_interrupted_selection_leaves_rows_that_fit_together_or_the_cache_is_refused() -> None:
    """All blocks have the old rows or all have the new ones; lengths would not tell."""
    (read, new_cache), rows, refused = READERS["encoder and decoder"](), torch.tensor([1, 0]), list[bool]()
    for n in count(1):
        cache = new_cache()
        read(IDS[:, :3], cache)
        parts = [part for block in cache.blocks for part in (block.past, block.memory)]
        old = [part.seen()[0].clone() for part in parts]
        if not _Interrupt(n).stops(cache.select, rows):
            break
        moved = {torch.equal(part.seen()[0], keys[rows]) for part, keys in zip(parts, old, strict=True)}
        refused.append(_refuses(partial(cache.select, rows), after=3))
        assert refused[-1] or len(moved) == 1
    assert any(refused)


@pytest.mark.parametrize("crosses", [False, True], ids=["its own past", "a memory"])
@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
def test_an_interrupted_layer_has_read_a_piece_or_has_not(crosses: bool) -> None:
    """A cache without a stack: what a layer keeps fits together at any time, and a memory is not read twice."""
    layer, x, memory = MultiHeadAttention(8, 2), torch.randn(2, 6, 8), torch.randn(2, 4, 8)
    options = {"key": memory} if crosses else {"mask": Causal()}
    expected, position, starts = layer(x, **options, position=Rotary(4)), Rotary(4), set[int]()
    for n in count(1):
        cache = Cache()
        read = partial(layer, **options, position=position, cache=cache)
        if not _Interrupt(n).stops(read, x[:, :3]):
            break
        start = cache.queries if crosses else cache.length
        torch.testing.assert_close(read(x[:, start:]), expected[:, start:], atol=1e-5, rtol=1e-5)
        assert cache.length == (4 if crosses else 6)
        starts.add(start)
    assert starts == {0, 3}


@torch.no_grad()
def test_a_memory_is_projected_once_even_if_nothing_was_asked_of_it() -> None:
    """A first piece without positions fills the cache; the next one reads it."""
    layer, x, memory, cache = MultiHeadAttention(8, 2), torch.randn(2, 3, 8), torch.randn(2, 4, 8), Cache()
    expected = layer(x, memory)
    pieces = [layer(piece, memory, cache=cache) for piece in x.split([0, 1, 0, 2], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected)
    assert cache.length == 4


@pytest.mark.parametrize("decoder", [FixedContextDecoder, BahdanauDecoder, LuongDecoder])
@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
def test_an_interrupted_recurrent_decoder_leaves_its_state_alone(decoder: type[RecurrentDecoder]) -> None:
    """The state is a value: whoever asks again gets the same answer."""
    sizes = Seq2SeqConfig(source_vocab=11, target_vocab=11, d_embed=4, d_hidden=4)
    memory, model = RecurrentEncoder(sizes).eval()(SOURCE, LENGTHS), decoder(sizes).eval()
    state = model(IDS[:, :3], memory, model.start(memory)).state
    expected = model(IDS[:, 3:], memory, state).logits
    for n in count(1):
        if not _Interrupt(n).stops(model, IDS[:, 3:], memory, state):
            break
        assert torch.equal(model(IDS[:, 3:], memory, state).logits, expected)
    assert n > 5
