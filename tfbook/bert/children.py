"""Children of BERT, each a small difference: ALBERT, ELECTRA and DistilBERT.

Shapes: batch, time, d_model, label. RoBERTa's dynamic masks are `hide_words` anew for every batch.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.bert.model import Bert, MaskedLanguageModel, Tagger, small_weights
from tfbook.bert.pretraining import IGNORED, Masked, word_loss
from tfbook.masks import padding_mask
from tfbook.transformer import Sizes


class FactorisedWords(nn.Embedding):
    """A narrow table and a matrix that widens: vocab · d_embed + d_embed · d_model numbers (Lan et al., 2020)."""

    def __init__(self, vocab: int, d_embed: int, d_model: int):
        super().__init__(vocab, d_embed)
        self.widen = nn.Linear(d_embed, d_model)

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """As wide as the blocks."""
        return self.widen(super().forward(ids))


class Albert(Bert):
    """BERT with factorised words and one block that is used `layers` times (Lan et al., 2020, section 3.1)."""

    def __init__(self, vocab: int, sizes: Sizes, *, d_embed: int, segments: int = 2):
        super().__init__(vocab, sizes, segments=segments)
        self.words = FactorisedWords(vocab, d_embed, sizes.d_model).apply(small_weights)
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


def electra_loss(
    model: Electra, masked: Masked, lengths: Int[Tensor, " batch"], *, weight: float = 50.0
) -> Float[Tensor, ""]:
    """Masked loss of the generator + `weight` · binary cross-entropy over all tokens (Clark et al., 2020, eq. 1).

    What the generator draws reaches the discriminator as ids, through which no gradient flows. Where it draws the
    right word, nothing was replaced.
    """
    asked = masked.targets != IGNORED
    words = masked.targets[asked]
    logits = model.generator.head(model.generator.bert(masked.ids, lengths)[asked])
    drawn = torch.multinomial(logits.detach().float().softmax(dim=-1), 1)[:, 0]
    said = model.discriminator(masked.ids.masked_scatter(asked, drawn), lengths)[..., 0].float()
    replaced = torch.zeros_like(said).masked_scatter(asked, (drawn != words).float())
    there = padding_mask(lengths, said.shape[1])
    return word_loss(logits, words) + weight * F.binary_cross_entropy_with_logits(said[there], replaced[there])


def distillation_loss(
    student: Float[Tensor, "*rows label"], teacher: Float[Tensor, "*rows label"], *, temperature: float = 2.0
) -> Float[Tensor, ""]:
    """T² KL(softmax(teacher / T) ‖ softmax(student / T)), mean over rows (Hinton et al., 2015, section 2).

    T² keeps the gradient's size as T grows; none flows into the teacher. Raises ValueError unless `temperature` > 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; expected more than 0")
    soft, own = (torch.log_softmax(logits.float() / temperature, dim=-1) for logits in (teacher.detach(), student))
    return temperature**2 * (soft.exp() * (soft - own)).sum(dim=-1).mean()


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
