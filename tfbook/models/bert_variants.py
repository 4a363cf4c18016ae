"""Variants of BERT, each a small difference: ALBERT, ELECTRA and DistilBERT.

Shapes: batch, time, d_model, label. RoBERTa's dynamic masking is `mask_tokens`, called again for every batch.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.models.bert import Bert, MaskedLanguageModel, Tagger
from tfbook.models.blocks import Config, init_weights


class FactorizedEmbedding(nn.Embedding):
    """A narrow embedding and an up-projection: vocab · d_embed + d_embed · d_model numbers (Lan et al., 2020)."""

    def __init__(self, vocab: int, d_embed: int, d_model: int):
        super().__init__(vocab, d_embed)
        self.up = nn.Linear(d_embed, d_model)

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """The vector of each token, projected to the width of the blocks."""
        return self.up(super().forward(ids))


class Albert(Bert):
    """BERT with a factorized embedding and one block that all layers share (Lan et al., 2020, section 3.1)."""

    def __init__(self, vocab: int, config: Config, *, d_embed: int, segments: int = 2):
        super().__init__(vocab, config, segments=segments)
        self.embed = FactorizedEmbedding(vocab, d_embed, config.d_model).apply(init_weights)
        self.stack.blocks = nn.ModuleList([self.stack.blocks[0]] * config.layers)


class Electra(nn.Module):
    """A small generator fills in masked tokens, and a discriminator tells which tokens were replaced.

    (Clark et al., 2020, section 3.) Both use the generator's embedding; all other weights are those of the models that
    are given. Raises ValueError when their embeddings differ in shape.
    """

    def __init__(self, generator: MaskedLanguageModel, discriminator: Bert):
        super().__init__()
        shared, other = generator.bert.embed.weight, discriminator.embed.weight
        if shared.shape != other.shape:
            message = f"the generator's embedding has shape {tuple(shared.shape)}, the discriminator's"
            raise ValueError(f"{message} {tuple(other.shape)}; expected one that both can share")
        self.generator = generator
        kept: dict[int, Any] = {id(weight): weight for weight in discriminator.parameters()}
        self.discriminator = Tagger(copy.deepcopy(discriminator, kept | {id(other): shared}), 1)


def student_of(teacher: Bert, layers: int) -> Bert:
    """A copy with `layers` evenly spaced blocks of the teacher, as DistilBERT begins (Sanh et al., 2019, section 3).

    Raises ValueError when the teacher has fewer.
    """
    if not 1 <= layers <= teacher.config.layers:
        raise ValueError(f"layers is {layers}; expected 1 to {teacher.config.layers}, the teacher's")
    student = copy.deepcopy(teacher)
    student.config = replace(teacher.config, layers=layers)
    student.stack.blocks = nn.ModuleList(
        student.stack.blocks[i * teacher.config.layers // layers] for i in range(layers)
    )
    return student
