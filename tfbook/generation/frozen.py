"""A language model for generating alone: the same function without what only training needs.

For a small model a token takes more time in calls than in arithmetic, and for a large one most of the time goes into
reading weights from memory. So a frozen model makes fewer calls and larger products, and can keep its matrices in fewer
bits. Shapes: batch, time, d_model.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.cache import Cache
from tfbook.attention.grouped_query import GroupedQueryAttention
from tfbook.attention.implementations import fastest, fused, softmax
from tfbook.attention.masks import Causal, Dense, Mask
from tfbook.attention.multi_head import MultiHeadAttention, merge_heads
from tfbook.attention.positions import NOWHERE, Position
from tfbook.generation.integer_products import IntegerProduct, converts_inside
from tfbook.generation.packed_products import PackedProduct, can_pack
from tfbook.generation.quantization import QuantizedLinear
from tfbook.models.blocks import Block, BlockCache, PreNorm, Stack, StackCache
from tfbook.models.feed_forward import FeedForward
from tfbook.models.language_model import LanguageModel
from tfbook.models.norms import LayerNorm, RMSNorm
from tfbook.parts import Identity, exactly, expect


class Frozen(LanguageModel):
    """A copy of `model` that generates faster: on the model's device, without gradients, independent of the original.

    Its matrices are kept and multiplied in `dtype`, everything else in float32. Half the bits are half the memory to
    read per token: float16 has 11 bits of precision and ends at 65,504, bfloat16 has 8 and float32's range. Layers that
    are quantized (`generation.quantization`) keep their integers, whatever the `dtype`; on a CPU, bfloat16 multiplies
    these without converting the matrix first (`generation.integer_products`), much faster. With `packed`, a second copy
    of each matrix, where the processor takes one, makes passes over a few tokens or texts up to twice as fast
    (`generation.packed_products`). Raises ValueError for a model without a causal mask, and for any part that is not
    one of the package's that it rewrites.
    """

    def __init__(self, model: LanguageModel, dtype: torch.dtype = torch.float32, *, packed: bool = False):
        nn.Module.__init__(self)
        if not exactly(model.mask, Causal):  # the newest position sees all only under this one
            raise ValueError(f"model, a {type(model).__name__}, has the mask {model.mask}; expected Causal()")
        self.mask = model.mask
        self.embed = _copied(model.embed)
        self.stack = FrozenStack(model.stack, dtype, packed)
        self.unembed = cast(nn.Linear, joined(model.unembed, dtype=dtype, packed=packed))
        self.eval()


def _copied(part: nn.Module) -> Any:
    return copy.deepcopy(part).requires_grad_(requires_grad=False)


STAYS_ON = ("cuda",)  # kinds of devices where a conversion costs as much time as a small product


class Product(nn.Module):
    """x Wᵀ + b with W and b kept in `dtype`; layers that read the same x are joined in one product.

    The result is in x's dtype. With `stays`, it stays in `dtype` on a GPU, where a sum with float32 converts it for
    nothing, and attention reads half as much.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, *layers: nn.Linear, dtype: torch.dtype, stays: bool = False):
        super().__init__()
        self.stays = stays
        for layer in layers:
            expect("a frozen model supports", "a linear layer", layer, nn.Linear)
        self.out_features = sum(layer.out_features for layer in layers)
        self.register_buffer("weight", laid_out(torch.cat([layer.weight for layer in layers]).detach().to(dtype)))
        bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers]).detach().to(dtype)
        self.register_buffer("bias", bias)

    def forward(self, x: Float[Tensor, "batch time d_in"]) -> Float[Tensor, "batch time d_out"]:
        """The product, computed in `dtype`."""
        buffers: dict[str, Any] = self._buffers  # `self.weight` would take longer to find it
        weight, bias = buffers["weight"], buffers["bias"]
        if x.dtype == weight.dtype:  # even a conversion that does nothing takes a microsecond
            return F.linear(x, weight, bias)
        product = F.linear(x.to(weight.dtype), weight, bias)
        return product if self.stays and x.device.type in STAYS_ON else product.to(x.dtype)


def laid_out(weight: Float[Tensor, "out in"]) -> Float[Tensor, "out in"]:
    """The same matrix with its longer side contiguous in memory, in float32 on a CPU: long runs are read faster there.

    The product of 4 d rows of width d with a vector takes up to half as long, and not longer for a batch.
    """
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or weight.shape[0] <= weight.shape[1]:
        return weight
    return weight.t().contiguous().t()


def joined(*layers: nn.Linear, dtype: torch.dtype, stays: bool = False, packed: bool = False) -> nn.Module:
    """The layers as one product: in `dtype`, packed where it can be, or in the integers that they have.

    In bfloat16 on a CPU, integers are converted inside of the product, where PyTorch can do so.
    """
    if all(exactly(layer, QuantizedLinear) for layer in layers):
        whole = QuantizedLinear.joined(*cast(list[QuantizedLinear], layers))
        return IntegerProduct(whole) if dtype == torch.bfloat16 and converts_inside(whole) else whole
    product = Product(*layers, dtype=dtype, stays=stays)
    return PackedProduct(product.weight, product.bias) if packed and can_pack(product.weight) else product


class FrozenBlock(nn.Module):
    """The function of a `Block` in eval mode: one product for queries, keys and values, no dropout, no checks.

    Raises ValueError when the block has cross-attention, and for a part or an attention implementation that it does not
    know.
    """

    def __init__(self, block: Block, dtype: torch.dtype, packed: bool = False):
        super().__init__()
        expect("a frozen model supports", "a block", block, Block)
        if block.cross is not None:
            raise ValueError("block reads a memory; expected one without cross-attention")
        for branch in (block.mixer, block.feed_forward):
            expect("a frozen model supports", "a residual branch", branch, PreNorm)
            expect("a frozen model supports", "a norm", branch.norm, LayerNorm, RMSNorm)
        expect("a frozen model supports", "a mixer", block.mixer.branch, MultiHeadAttention, GroupedQueryAttention)
        expect("a frozen model supports", "a feed-forward network", block.feed_forward.branch, FeedForward)
        attention = cast(MultiHeadAttention, block.mixer.branch)
        feed_forward = cast(FeedForward, block.feed_forward.branch)
        if attention.implementation not in (fastest, fused, softmax):
            found = f"block has the implementation {attention.implementation}"
            raise ValueError(f"{found}; expected fastest, fused or softmax")
        self.heads, self.activation = attention.heads, feed_forward.activation
        self.groups = attention.groups if isinstance(attention, GroupedQueryAttention) else attention.heads
        self.norms = nn.ModuleList(_copied(branch.norm) for branch in (block.mixer, block.feed_forward))
        linears = (
            (attention.W_Q, attention.W_K, attention.W_V),
            (attention.W_O,),
            (feed_forward.up,),
            (feed_forward.down,),
        )
        self.products = nn.ModuleList(joined(*layers, dtype=dtype, stays=True, packed=packed) for layers in linears)
        # `forward` itself, since to call a module takes as long as a small product
        self._norm, self._feed_forward_norm = (norm.forward for norm in self.norms)
        self._read, self._write, self._up, self._down = (product.forward for product in self.products)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        mask: Mask | None = None,
        *,
        memory: None = None,
        memory_mask: None = None,
        position: Position = NOWHERE,
        cache: BlockCache | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """As `Block.forward`; there is never a memory."""
        past = Cache() if cache is None else cache.past
        (batch, time, _), start = x.shape, past.length
        heads = self._read(self._norm(x)).view(batch, time, self.heads + 2 * self.groups, -1).transpose(1, 2)
        qk, v = heads.split_with_sizes((self.heads + self.groups, self.groups), dim=1)
        q, k = position.rotate(qk, start).split_with_sizes((self.heads, self.groups), dim=1)
        k, v = past.extend(k, v)
        bias = position.bias(q, k.shape[2], start)
        if self.groups < self.heads:
            if time == 1 and bias is None and not isinstance(mask, Dense):
                return self._after(x, newest(q, k, v))
            k, v = (each.repeat_interleave(self.heads // self.groups, dim=1) for each in (k, v))
        if time > 1:
            mixed = fastest(q, k, v, mask, bias)
        else:  # the newest position sees all that the cache holds, unless that has empty room
            added = shown(mask, bias, q.dtype) if isinstance(mask, Dense) else bias
            mixed = F.scaled_dot_product_attention(q, k, v, added)
        return self._after(x, mixed)

    def _after(self, x: Float[Tensor, "batch time d_model"], mixed: Float[Tensor, "batch head time d_head"]) -> Tensor:
        x = x + self._write(merge_heads(mixed))
        return x + self._down(self.activation(self._up(self._feed_forward_norm(x))))


def newest(
    q: Float[Tensor, "batch head 1 d_head"], k: Float[Tensor, "batch group key d_head"], v: Tensor
) -> Float[Tensor, "batch head 1 d_head"]:
    """The newest position's attention to all keys: a group's queries stand side by side, and no key is copied."""
    return F.scaled_dot_product_attention(q.reshape(len(q), k.shape[1], -1, q.shape[-1]), k, v).reshape(q.shape)


def shown(mask: Dense, bias: Float[Tensor, "..."] | None, dtype: torch.dtype) -> Tensor:
    """Mask and bias in one, as `scaled_dot_product_attention` takes them."""
    return mask.added(dtype) if bias is None else bias.masked_fill(~mask.allowed, -torch.inf)


class FrozenStack(Stack):
    """`Stack` with frozen blocks. Raises ValueError for an unknown part, and for post-norm blocks."""

    def __init__(self, stack: Stack, dtype: torch.dtype, packed: bool = False):
        nn.Module.__init__(self)
        expect("a frozen model supports", "the stack", stack, Stack)
        expect("a frozen model supports", "the norm of the embeddings", stack.embed_norm, Identity)
        expect("a frozen model supports", "the last norm", stack.norm, LayerNorm, RMSNorm)
        self.position, self.norm = _copied(stack.position), _copied(stack.norm)
        self.frozen = nn.ModuleList(FrozenBlock(block, dtype, packed) for block in stack.blocks)
        self.blocks = [block.forward for block in self.frozen]
        self.embed_norm = self.dropout = cast(Any, unchanged)  # no modules either

    def new_cache(self) -> StackCache:
        """An empty cache, as that of `Stack`."""
        return StackCache([BlockCache(Cache(), None) for _ in self.blocks])


def unchanged(x: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time d_model"]:
    """x itself."""
    return x
