"""GPT-2 out of the shared blocks, and its size and work by formula.

Shapes: batch, time, d_model, vocab.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.positions import POSITIONS
from tfbook.checks import check_ids, check_positive
from tfbook.models.blocks import Config, Stack, StackCache, init_weights, on_paper
from tfbook.models.feed_forward import FeedForward
from tfbook.models.language_model import LanguageModel

GELU = partial(F.gelu, approximate="tanh")
GPT2 = Config(
    position=POSITIONS["learned"],
    max_length=1024,
    feed_forward=lambda d_model, d_ff, dropout: FeedForward(d_model, d_ff, activation=GELU, dropout=dropout),
    dropout=0.1,
)
GPT2_SMALL = replace(GPT2, d_model=768, heads=12, d_ff=3072, layers=12)  # 124 million parameters with 50,257 tokens
GPT2_MEDIUM = replace(GPT2, d_model=1024, heads=16, d_ff=4096, layers=24)  # 355 million
GPT2_LARGE = replace(GPT2, d_model=1280, heads=20, d_ff=5120, layers=36)  # 774 million
GPT2_XL = replace(GPT2, d_model=1600, heads=25, d_ff=6400, layers=48)  # 1,558 million


class Gpt(LanguageModel):
    """A causal stack with the norm before each branch and one at the end, the embedding again as the output.

    (Radford et al., 2019, section 2.3.) The matrices that write into the residual stream begin smaller by
    √(2 · layers), since so many branches add up in it.
    """

    def __init__(self, vocab: int, config: Config):
        super().__init__(vocab, config)
        self.embed = nn.Embedding(vocab, config.d_model)  # as it is: `ScaledEmbedding` multiplies by √d_model
        self.unembed.weight = self.embed.weight
        self.apply(init_weights)
        for block in self.stack.blocks:
            for part in (block.mixer.branch, block.feed_forward.branch):
                for output in part.outputs:
                    nn.init.normal_(output.weight, std=0.02 / (2 * config.layers) ** 0.5)

    def forward(
        self, ids: Int[Tensor, "batch time"], *, cache: StackCache | None = None
    ) -> Float[Tensor, "batch time vocab"]:
        """Logits for the token after each; with a cache, `ids` continue what it has read.

        Raises ValueError for ids outside the vocabulary and for texts longer than the positions that it has learned.
        """
        check_ids("ids", ids, self.embed.num_embeddings)
        return super().forward(ids, cache=cache)


# ---- size and work by formula ------------------------------------------------------------------------------------


def matrix_count(vocab: int, config: Config) -> int:
    """layers · (4 d² + 2 d · d_ff) + vocab · d: the weights that every token is multiplied by, the output's among them.

    With d_ff = 4 d that is 12 · layers · d² + vocab · d. Other parts than GPT-2's bring other matrices.
    """
    stack = on_paper(lambda: Stack(config))
    return sum(weight.numel() for weight in stack.blocks.parameters() if weight.ndim == 2) + vocab * config.d_model


def parameter_count(vocab: int, config: Config) -> int:
    """All trained numbers of a `Gpt`: its matrices, a vector for each learned position, biases, and norms."""
    return on_paper(lambda: LanguageModel(vocab, config)).parameter_count()


def flops(vocab: int, config: Config, time: int) -> int:
    """2 N + 4 · layers · time · d_model, the floating-point operations per token on the way forward.

    N is `matrix_count`: each weight is one product and one sum. The second term is queries times keys and weights times
    values, over all `time` keys: an implementation may skip half of them, which the convention does not count. The way
    back takes twice as many, so training takes 3 times this, 6 N + 12 · layers · time · d_model (Chowdhery et al.,
    2022, appendix B). Raises ValueError when `time` < 1.
    """
    check_positive(time=time)
    return on_paper(lambda: LanguageModel(vocab, config)).flops(time) // time


def utilization(tokens_per_second: float, vocab: int, config: Config, time: int, *, peak: float) -> float:
    """The share of the machine's `peak`, in operations a second, that training spends on the model's own operations.

    3 · `flops` · tokens a second / peak: what is computed twice to save memory counts once (Chowdhery et al., 2022,
    section 4.1). Raises ValueError unless `peak` > 0.
    """
    if not peak > 0:
        raise ValueError(f"peak is {peak}; expected more than 0 operations a second")
    return 3 * flops(vocab, config, time) * tokens_per_second / peak
