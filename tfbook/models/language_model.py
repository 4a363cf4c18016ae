"""Language models out of blocks. Shapes: batch, time, d_model, vocab."""

from __future__ import annotations

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.attention.cache import StackCache
from tfbook.attention.masks import Causal, Mask
from tfbook.checks import check_ids
from tfbook.models.blocks import Config, Stack


class ScaledEmbedding(nn.Embedding):
    """√d_model times a table whose entries begin with variance 1 / d_model, so that it may be the output's matrix, too.

    (Vaswani et al., 2017, section 3.4.)
    """

    def __init__(self, vocab: int, d_model: int):
        super().__init__(vocab, d_model)
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """The vector of each word. Raises ValueError for ids outside the vocabulary."""
        check_ids("ids", ids, self.num_embeddings)
        return math.sqrt(self.embedding_dim) * super().forward(ids)


# ---- language models ---------------------------------------------------------------------------------------------


class LanguageModel(nn.Module):
    """p(next | ids so far): words, a causal stack, and the table of words again as the output's matrix."""

    mask: Mask | None = Causal()

    def __init__(self, vocab: int, sizes: Config):
        super().__init__()
        self.embed = ScaledEmbedding(vocab, sizes.d_model)
        self.stack = Stack(sizes)
        self.vocabulary = nn.Linear(sizes.d_model, vocab, bias=False)
        self.vocabulary.weight = self.embed.weight

    def forward(
        self, ids: Int[Tensor, "batch time"], *, cache: StackCache | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """Logits for the word after each; with a cache, `ids` continue what it has read."""
        return self.vocabulary(self.stack(self.embed(ids), self.mask, cache=cache))

    def cache(self) -> StackCache:
        """An empty cache for `forward`."""
        return StackCache(len(self.stack.blocks))


class BidirectionalModel(LanguageModel):
    """The same with every position in sight: for words that are hidden, not for words that come next."""

    mask = None
