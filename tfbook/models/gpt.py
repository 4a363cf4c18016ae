"""GPT-2 out of the shared blocks, and its size and work by formula.

Shapes: batch, time, d_model, vocab.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.cache import StackCache
from tfbook.checks import check_ids
from tfbook.models.bert import init_weights
from tfbook.models.blocks import Config
from tfbook.models.language_model import LanguageModel

GPT2 = Config(position="learned", longest=1024, activation=partial(F.gelu, approximate="tanh"), dropout=0.1)
GPT2_SMALL = replace(GPT2, d_model=768, heads=12, d_ff=3072, layers=12)  # 124 million parameters with 50,257 tokens
GPT2_MEDIUM = replace(GPT2, d_model=1024, heads=16, d_ff=4096, layers=24)  # 355 million
GPT2_LARGE = replace(GPT2, d_model=1280, heads=20, d_ff=5120, layers=36)  # 774 million
GPT2_XL = replace(GPT2, d_model=1600, heads=25, d_ff=6400, layers=48)  # 1,558 million


class Gpt(LanguageModel):
    """A causal stack with the norm before each branch and one at the end, the table of words again as the output.

    (Radford et al., 2019, section 2.3.) The matrices that write into the residual sum begin smaller by √(2 · layers),
    since so many branches add up in it.
    """

    def __init__(self, vocab: int, sizes: Config):
        super().__init__(vocab, sizes)
        self.embed = nn.Embedding(vocab, sizes.d_model)  # as it is: `Words` multiplies by √d_model
        self.vocabulary.weight = self.embed.weight
        self.apply(init_weights)
        for block in self.stack.blocks:
            for writes in (block.mixer.branch.W_O, block.feed_forward.branch.down):
                nn.init.normal_(writes.weight, std=0.02 / (2 * sizes.layers) ** 0.5)

    def forward(
        self, ids: Int[Tensor, "batch time"], *, cache: StackCache | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """Logits for the token after each; with a cache, `ids` continue what it has read.

        Raises ValueError for ids outside the vocabulary and for texts longer than the positions that it has learned.
        """
        check_ids("ids", ids, self.embed.num_embeddings)
        return super().forward(ids, cache=cache)


# ---- size and work by formula ------------------------------------------------------------------------------------


def matrix_count(vocab: int, sizes: Config) -> int:
    """layers · (4 d² + 2 d · d_ff) + vocab · d: the weights that every token is multiplied by, the output's among them.

    With d_ff = 4 d that is 12 · layers · d² + vocab · d.
    """
    d = sizes.d_model
    return sizes.layers * (4 * d * d + 2 * d * sizes.d_ff) + vocab * d


def parameter_count(vocab: int, sizes: Config) -> int:
    """All trained numbers of a `Gpt`: its matrices, a vector for each learned position, biases, gains and shifts."""
    d = sizes.d_model
    with torch.device("meta"):  # shapes alone, nothing is drawn
        positions = sum(table.numel() for table in sizes.encoding().parameters())
    biases = 4 * d + sizes.d_ff + d
    norms = 2 * sizes.layers + sizes.pre_norm
    return matrix_count(vocab, sizes) + positions + sizes.layers * biases + norms * 2 * d


def flops(vocab: int, sizes: Config, time: int) -> int:
    """2 N + 4 · layers · time · d_model, the floating-point operations a token on the way forward.

    N is `matrix_count`: each weight is one product and one sum. The second term is queries times keys and weights times
    values, over all `time` keys: a causal kernel may skip half of them, which the convention does not count. The way
    back takes twice as many, so training takes 3 times this, 6 N + 12 · layers · time · d_model (Chowdhery et al.,
    2022, appendix B). Raises ValueError when `time` < 1.
    """
    if time < 1:
        raise ValueError(f"time is {time}; expected 1 or more positions")
    return 2 * matrix_count(vocab, sizes) + 4 * sizes.layers * time * sizes.d_model


def utilization(tokens_per_second: float, vocab: int, sizes: Config, time: int, *, peak: float) -> float:
    """The share of the machine's `peak`, in operations a second, that training spends on the model's own operations.

    3 · `flops` · tokens a second / peak: what is computed twice to save memory counts once (Chowdhery et al., 2022,
    section 4.1). Raises ValueError unless `peak` > 0.
    """
    if not peak > 0:
        raise ValueError(f"peak is {peak}; expected more than 0 operations a second")
    return 3 * flops(vocab, sizes, time) * tokens_per_second / peak
