"""Variants of BERT, each a small difference: ALBERT, ELECTRA and DistilBERT.

Shapes: batch, time, d_model, label. RoBERTa's dynamic masks are `mask_tokens` anew for every batch.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.models.bert import Bert, MaskedLanguageModel, Tagger, init_weights
from tfbook.models.blocks import Config


class FactorizedEmbedding(nn.Embedding):
    """A narrow table and a matrix that widens: vocab · d_embed + d_embed · d_model numbers (Lan et al., 2020)."""

    def __init__(self, vocab: int, d_embed: int, d_model: int):
        super().__init__(vocab, d_embed)
        self.up = nn.Linear(d_embed, d_model)

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """As wide as the blocks."""
        return self.up(super().forward(ids))


class Albert(Bert):
    """BERT with factorised words and one block that is used `layers` times (Lan et al., 2020, section 3.1)."""

    def __init__(self, vocab: int, sizes: Config, *, d_embed: int, segments: int = 2):
        super().__init__(vocab, sizes, segments=segments)
        self.words = FactorizedEmbedding(vocab, d_embed, sizes.d_model).apply(init_weights)
        self.stack.blocks = nn.ModuleList([self.stack.blocks[0]] * sizes.layers)


class Electra(nn.Module):
    """A small generator fills hidden words in; the discriminator says of every token if it was replaced.

    (Clark et al., 2020, section 3.) Both share the table of words; raises ValueError when theirs differ in shape.
    """

    def __init__(self, generator: MaskedLanguageModel, discriminator: Bert):
        super().__init__()
        table, other = generator.bert.words.weight, discriminator.words.weight
        if table.shape != other.shape:
            message = f"the generator's table of words has shape {tuple(table.shape)}, the discriminator's"
            raise ValueError(f"{message} {tuple(other.shape)}; expected one that both can share")
        self.generator = generator
        self.discriminator = Tagger(discriminator, 1)
        discriminator.words.weight = table


def student_of(teacher: Bert, layers: int) -> Bert:
    """A copy with `layers` evenly spaced blocks of the teacher, as DistilBERT begins (Sanh et al., 2019, section 3).

    Raises ValueError when the teacher has fewer.
    """
    if not 1 <= layers <= teacher.sizes.layers:
        raise ValueError(f"layers is {layers}; expected 1 to {teacher.sizes.layers}, the teacher's")
    student = copy.deepcopy(teacher)
    student.sizes = replace(teacher.sizes, layers=layers)
    student.stack.blocks = nn.ModuleList(
        student.stack.blocks[i * teacher.sizes.layers // layers] for i in range(layers)
    )
    return student
