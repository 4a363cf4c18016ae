"""Language models out of blocks. Shapes: batch, time, d_model, vocab."""

from __future__ import annotations

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.attention.masks import Causal, Mask
from tfbook.checks import check_ids
from tfbook.models.blocks import Config, Stack, StackCache


class ScaledEmbedding(nn.Embedding):
    """√d_model · E[id], where E starts with variance 1 / d_model, so that it can be tied to the output's matrix.

    (Vaswani et al., 2017, section 3.4.)
    """

    def __init__(self, vocab: int, d_model: int):
        super().__init__(vocab, d_model)
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """The scaled vector of each token."""
        return math.sqrt(self.embedding_dim) * super().forward(ids)


class LanguageModel(nn.Module):
    """p(next | ids so far): an embedding, a causal stack, and an output matrix that is tied to the embedding."""

    def __init__(self, vocab: int, config: Config):
        super().__init__()
        self.mask: Mask | None = Causal()
        self.embed: nn.Embedding = ScaledEmbedding(vocab, config.d_model)
        self.stack = Stack(config)
        self.unembed = nn.Linear(config.d_model, vocab, bias=False)
        self.unembed.weight = self.embed.weight

    def forward(
        self, ids: Int[Tensor, "batch time"], *, cache: StackCache | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """Logits for the token after each; with a cache, `ids` continue the text that it has read.

        Raises ValueError for ids outside the vocabulary and for texts longer than learned positions reach.
        """
        check_ids("ids", ids, self.embed.num_embeddings)
        return self.unembed(self.stack(self.embed(ids), self.mask, cache=cache))

    def new_cache(self) -> StackCache:
        """An empty cache for `forward`."""
        return self.stack.new_cache()

    def parameter_count(self) -> int:
        """The embedding, tied to the output, and the stack."""
        return self.embed.weight.numel() + self.stack.parameter_count()

    def flops(self, time: int, *, past: int = 0) -> int:
        """Floating-point operations of a forward pass over `time` tokens after `past` cached ones."""
        return self.stack.flops(time, past=past) + 2 * time * self.unembed.weight.numel()


class BidirectionalModel(LanguageModel):
    """The same without a mask, so that every position sees all: for masked tokens, not for the next one."""

    def __init__(self, vocab: int, config: Config):
        super().__init__(vocab, config)
        self.mask = None

    def forward(
        self, ids: Int[Tensor, "batch time"], *, cache: StackCache | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """Logits at every position. Raises ValueError for a cache, since earlier positions see later ones."""
        if cache is not None:
            raise ValueError("cache is given; a bidirectional model has to read the whole text at once")
        return super().forward(ids)

    def new_cache(self) -> StackCache:
        """Raises ValueError: a new token changes the vectors of all earlier ones."""
        raise ValueError(f"a {type(self).__name__} is bidirectional and has no cache; read the whole text at once")
