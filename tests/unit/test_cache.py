"""Caches against a plain `torch.cat` of everything that went in."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tfbook.attention import Cache
from tfbook.models.blocks import Config, Stack


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
