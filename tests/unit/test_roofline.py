"""The arithmetic of inference: counted operations, real tensors' bytes, and the time of the slower limit."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from tfbook.attention import GroupedQueryAttention, softmax
from tfbook.attention.grouped_query import with_groups
from tfbook.course.cost import count_flops
from tfbook.course.roofline import (
    H100,
    Roofline,
    Work,
    cache_bytes,
    decode_work,
    prefill_work,
    probe_machine,
    weight_bytes,
)
from tfbook.generation.quantization import QuantizedCache, quantize, quantized_cache
from tfbook.models.gpt import GPT2, GPT2_SMALL, Gpt
from tfbook.models.language_model import LanguageModel

SIZES = replace(GPT2, d_model=16, heads=4, d_ff=32, layers=3, max_length=64, dropout=0.0)
MACHINE = Roofline(name="slow", peak=1e9, bandwidth=1e8)

pytestmark = pytest.mark.usefixtures("float32")


def model(**choices: Any) -> LanguageModel:
    return Gpt(11, replace(SIZES, **choices)).eval()


def test_operations_of_prefill_and_decode_are_those_that_pytorch_counts() -> None:
    """Attention written out, since the counter sees no operations in the fused one on a CPU."""
    gpt = model()
    for block in gpt.stack.blocks:
        block.mixer.branch.implementation = softmax
    prompt = torch.randint(11, (2, 9))
    with torch.no_grad():
        cache = gpt.new_cache()
        assert count_flops(lambda: gpt(prompt, cache=cache)) == prefill_work(gpt, 9, batch=2).flops
        assert count_flops(lambda: gpt(prompt[:, :1], cache=cache)) == decode_work(gpt, 9, batch=2).flops


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_cache_has_the_bytes_of_its_tensors(groups: int) -> None:
    gpt = model(mixer=partial(GroupedQueryAttention, groups=groups))
    cache = gpt.new_cache()
    with torch.no_grad():
        gpt(torch.randint(11, (1, 9)), cache=cache)
    held = sum(tensor.numel() * tensor.element_size() for block in cache.blocks for tensor in block.past.seen())
    assert cache_bytes(gpt, 9) == held == 3 * 9 * 2 * groups * 4 * 4


def test_a_cache_in_8_bits_has_a_scale_for_each_key_and_value() -> None:
    gpt = model()
    with torch.no_grad(), quantized_cache(gpt):
        cache = gpt.new_cache()
        gpt(torch.randint(11, (1, 9)), cache=cache)
    layers = [block.past for block in cache.blocks]
    assert all(isinstance(layer, QuantizedCache) for layer in layers)
    held = 9 * sum(layer.bytes_per_position() for layer in layers)
    assert cache_bytes(gpt, 9, bytes_per_number=1, scale_bytes=4) == held


def test_weights_are_read_once_whatever_the_batch() -> None:
    gpt = model()
    assert weight_bytes(gpt) == 4 * gpt.parameter_count()
    one, many = (decode_work(gpt, 20, batch=batch) for batch in (1, 16))
    assert many.flops == 16 * one.flops
    assert many.bytes - one.bytes == 15 * cache_bytes(gpt, 21)
    few = quantize(gpt)
    assert weight_bytes(few) < weight_bytes(gpt) / 2
    kept = [*few.buffers(), *(weight for name, weight in few.named_parameters() if name != "embed.weight")]
    assert weight_bytes(few) == sum(tensor.numel() * tensor.element_size() for tensor in kept)
    assert decode_work(few, 20).flops == one.flops
    assert cache_bytes(with_groups(gpt, 1), 20) == cache_bytes(gpt, 20) / 4


def test_gpt_2_on_an_h100_by_hand() -> None:
    """124 million weights of 4 bytes are 0.498 GB, which 3.35 TB/s read in 149 µs; the products take 0.25 µs."""
    with torch.device("meta"):
        gpt = Gpt(50257, GPT2_SMALL)
    work = decode_work(gpt, 0)
    assert math.isclose(work.bytes, 4 * 124.4e6, rel_tol=0.01)
    assert math.isclose(H100.seconds(work), 149e-6, rel_tol=0.02)
    assert math.isclose(work.flops / H100.peak, 0.25e-6, rel_tol=0.02)
    assert math.isclose(H100.ridge, 295, rel_tol=0.01)


def test_the_slower_of_the_two_limits_is_the_time() -> None:
    assert MACHINE.ridge == 10
    assert MACHINE.seconds(Work(1e9, 1e6)) == 1
    assert MACHINE.seconds(Work(1e6, 1e8)) == 1
    assert MACHINE.attainable(1) == 1e8
    assert MACHINE.attainable(100) == 1e9
    assert Work(20, 10).intensity == 2
    assert Work(20, 10) + Work(1, 2) == Work(21, 12)


def test_this_machine_is_probed() -> None:
    """Numbers that no machine misses: more than 10 MFLOP/s and 10 MB/s, and less than a petabyte."""
    found = probe_machine(seconds=0.01, megabytes=8)
    assert 1e7 < found.peak < 1e15
    assert 1e7 < found.bandwidth < 1e15
    assert "float32" in found.name
    with pytest.raises(ValueError, match="megabytes is 0"):
        probe_machine(megabytes=0)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="batch is 0"):
        decode_work(model(), 3, batch=0)
    with pytest.raises(ValueError, match="positions is 0"):
        prefill_work(model(), 0)
