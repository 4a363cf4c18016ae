"""Decoding by one CUDA graph: a token costs one launch instead of hundreds.

A small model's token takes less time on a GPU than Python needs to launch its operations one by one. A graph records
them once and replays them, on tensors that stay where they are. So the cache has one size, its length lies on the
device, and nothing in a step depends on the value of a tensor. Shapes: batch, time, head, d_head, vocab.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.attention.cache import FixedCache
from tfbook.attention.grouped_query import GroupedQueryAttention
from tfbook.attention.implementations import fastest, fused, softmax
from tfbook.attention.masks import Causal, Mask
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.attention.positions import (
    ALiBi,
    InterpolatedRotary,
    Learned,
    Position,
    Relative,
    Rotary,
    Sinusoidal,
)
from tfbook.checks import trusted
from tfbook.generation.frozen import Frozen, FrozenBlock, FrozenStack, Product
from tfbook.models.blocks import Block, BlockCache, PostNorm, PreNorm, Stack, StackCache
from tfbook.models.feed_forward import FeedForward, SwiGLU
from tfbook.models.gpt import Gpt
from tfbook.models.language_model import LanguageModel, ScaledEmbedding
from tfbook.models.norms import LayerNorm, RMSNorm
from tfbook.parts import Identity, exactly

KNOWN = (
    *(LanguageModel, Gpt, Frozen, Stack, FrozenStack, Block, FrozenBlock, PreNorm, PostNorm, Identity),
    *(MultiHeadAttention, GroupedQueryAttention, FeedForward, SwiGLU, LayerNorm, RMSNorm, Product),
    *(Position, Sinusoidal, Learned, Rotary, InterpolatedRotary, Relative, ALiBi),
    *(nn.Linear, nn.Embedding, ScaledEmbedding, nn.Dropout, nn.ModuleList),
)


def can_be_captured(model: LanguageModel) -> bool:
    """Whether a step of the model is the same program for every token: it has parts of the package alone, and no hooks.

    An edited part or one that records may do more than compute tensors, which a graph would not replay.
    """
    return exactly(model.mask, Causal) and all(map(_repeats, model.modules()))


def _repeats(part: nn.Module) -> bool:
    hooks = part._forward_hooks or part._forward_pre_hooks
    implementation = getattr(part, "implementation", fastest)
    return exactly(part, *KNOWN) and not hooks and implementation in (fastest, fused, softmax)


class FixedCaches(StackCache):
    """The caches of causal blocks in memory of one size, `room` for each; the length lies on the device."""

    def __init__(self, rooms: list[Float[Tensor, "batch head longest d_head"]]):
        length = torch.zeros((), dtype=torch.long, device=rooms[0].device)
        super().__init__([BlockCache(FixedCache(room, length), None) for room in rooms])
        self.length, self.longest = length, rooms[0].shape[2]

    @classmethod
    def after(cls, cache: StackCache, longest: int) -> FixedCaches:
        """A copy of a cache that grows, with room for `longest` positions."""
        kept = [block.past.seen() for block in cache.blocks]
        fixed = cls([k.new_zeros(*k.shape[:2], longest, k.shape[3]) for k, _ in kept])
        for block, (k, v) in zip(fixed.blocks, kept, strict=True):
            block.past.extend(k, v)
        fixed.length.fill_(cache.length)
        fixed.padding = cache.padding
        return fixed

    def mask(self, mask: Mask | None, time: int) -> Mask:
        """Causal, for queries that begin at the length: a position sees itself and those before it, no empty room."""
        places = torch.arange(self.longest, device=self.length.device)
        return self.without_padding(places <= (self.length + places[:time])[:, None])


Record = Callable[[Callable[[], None]], Callable[[], None]]  # a step → what repeats it


def cuda_graph(step: Callable[[], None]) -> Callable[[], None]:
    """Records a step, which writes to the same memory each time, as a CUDA graph; returns what replays it.

    A first run outside lets libraries allocate what they keep. Under autocast the casts are recorded, too: cached ones
    would be freed when the context ends. Where recording fails, a warning says why and the step itself is returned.
    """
    cached, stream, graph = torch.is_autocast_cache_enabled(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.set_autocast_cache_enabled(False)
    try:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
    except RuntimeError as error:
        warnings.warn(f"a step could not be recorded as a CUDA graph, so it runs as it is: {error}", stacklevel=2)
        return step
    finally:
        torch.set_autocast_cache_enabled(cached)
    return graph.replay


class Captured:
    """Reads a prompt and then one token at a time, by one recorded step; returns the logits after the last token.

    `longest` positions fit. The logits of a call are overwritten by the next one. `padding` is that of a `StackCache`.
    """

    def __init__(
        self,
        model: LanguageModel,
        longest: int,
        *,
        padding: Int[Tensor, " batch"] | None = None,
        record: Record = cuda_graph,
    ):
        self.model, self.longest, self.record = model, longest, record
        self.cache = model.new_cache()
        self.cache.padding = padding
        self.step: Callable[[], None] | None = None

    def __call__(self, new: Int[Tensor, "batch new"]) -> Float[Tensor, "batch vocab"]:
        """The logits after the newest token, which the model has read."""
        if not isinstance(self.cache, FixedCaches):
            self.logits = self.model(new, cache=self.cache)[:, -1]
            self.cache = FixedCaches.after(self.cache, self.longest)
            return self.logits
        with trusted():
            if self.step is None:
                self.step = self._recorded(new)
            self.new.copy_(new)
            self.step()
        return self.logits

    def _recorded(self, new: Tensor) -> Callable[[], None]:
        """The step that reads `self.new`; what its runs before the first token have changed is undone."""
        self.new, self.logits = new.clone(), torch.empty_like(self.logits)
        length = self.cache.length.clone()
        step = self.record(self._step)
        self.cache.length.copy_(length)
        return step

    def _step(self) -> None:
        self.logits.copy_(self.model(self.new, cache=self.cache)[:, -1])
