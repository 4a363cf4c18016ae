"""Every loss of the course. Shapes: batch, time, vocab, label."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.masks import padding_mask
from tfbook.models.bert import BertForPretraining, MaskedLanguageModel
from tfbook.models.bert_variants import Electra
from tfbook.models.vit import Heads
from tfbook.text.masking import IGNORE_INDEX, Masked
from tfbook.text.pairs import Batch
from tfbook.text.vocabulary import PAD

# ---- the loop ----------------------------------------------------------------------------------------------------


def smoothed_cross_entropy(
    logits: Float[Tensor, "*rows vocab"], targets: Int[Tensor, "*rows"], *, smoothing: float, ignore: int = -100
) -> Float[Tensor, ""]:
    """−(1 − ε) log p(target) − ε mean_v log p(v), mean over targets but `ignore` (Szegedy et al., 2016, section 7).

    ε is `smoothing`; at 0 it is the cross-entropy. Raises ValueError unless 0 ≤ ε < 1.
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}; expected 0 ≤ smoothing < 1")
    logp, counted = torch.log_softmax(logits.float(), dim=-1), targets != ignore
    right = logp.gather(-1, targets.masked_fill(~counted, 0)[..., None])[..., 0]
    losses = (1 - smoothing) * right + smoothing * logp.mean(dim=-1)
    return -losses[counted].mean()


def translation_loss(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats a target word, padding left out; `smoothing` as in `smoothed_cross_entropy`."""
    logits = model(batch.source, batch.source_lengths, batch.target_in).logits
    return smoothed_cross_entropy(logits, batch.target_out, smoothing=smoothing, ignore=PAD)


def next_token_loss(model: nn.Module, ids: Int[Tensor, "batch time"]) -> Float[Tensor, ""]:
    """Mean cross-entropy of each id but the first, given those before it, in nats."""
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())


def masked_token_loss(logits: Float[Tensor, "word vocab"], words: Int[Tensor, " word"]) -> Float[Tensor, ""]:
    """−mean log p(word) in nats, from the logits at the words that were drawn; 0, and not 0/0, where none was."""
    return F.cross_entropy(logits.float(), words, reduction="sum") / max(1, len(words))


def masked_loss(
    model: MaskedLanguageModel,
    masked: Masked,
    lengths: Int[Tensor, " batch"],
    segments: Int[Tensor, "batch time"] | None = None,
) -> Float[Tensor, ""]:
    """−mean log p(word | text with words hidden) over the words that were drawn, in nats; 0 where none was.

    Only their positions go through the head, which is the larger part of a small model's work.
    """
    asked = masked.targets != IGNORE_INDEX
    return masked_token_loss(model.head(model.bert(masked.ids, lengths, segments)[asked]), masked.targets[asked])


def pretraining_loss(
    model: BertForPretraining,
    masked: Masked,
    lengths: Int[Tensor, " batch"],
    segments: Int[Tensor, "batch time"],
    labels: Int[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """`masked_loss` + −mean log p(label | both sentences): both tasks after one reading (section A.2)."""
    asked = masked.targets != IGNORE_INDEX
    x = model.bert(masked.ids, lengths, segments)
    return masked_token_loss(model.head(x[asked]), masked.targets[asked]) + F.cross_entropy(
        model.next_sentence(x).float(), labels
    )


def electra_loss(
    model: Electra, masked: Masked, lengths: Int[Tensor, " batch"], *, weight: float = 50.0
) -> Float[Tensor, ""]:
    """Masked loss of the generator + `weight` · binary cross-entropy over all tokens (Clark et al., 2020, eq. 1).

    What the generator draws reaches the discriminator as ids, through which no gradient flows. Where it draws the
    right word, nothing was replaced.
    """
    asked = masked.targets != IGNORE_INDEX
    words = masked.targets[asked]
    logits = model.generator.head(model.generator.bert(masked.ids, lengths)[asked])
    drawn = torch.multinomial(logits.detach().float().softmax(dim=-1), 1)[:, 0]
    said = model.discriminator(masked.ids.masked_scatter(asked, drawn), lengths)[..., 0].float()
    replaced = torch.zeros_like(said).masked_scatter(asked, (drawn != words).float())
    there = padding_mask(lengths, said.shape[1])
    return masked_token_loss(logits, words) + weight * F.binary_cross_entropy_with_logits(said[there], replaced[there])


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


def hard_distillation(
    said: Heads, labels: Int[Tensor, " batch"], teacher: Float[Tensor, "batch label"]
) -> Float[Tensor, ""]:
    """½ CE(label's head, label) + ½ CE(teacher's head, the teacher's first guess) (Touvron et al., 2021, eq. 3)."""
    own = F.cross_entropy(said.label.float(), labels)
    return (own + F.cross_entropy(said.teacher.float(), teacher.argmax(dim=-1))) / 2


def soft_distillation(
    said: Heads,
    labels: Int[Tensor, " batch"],
    teacher: Float[Tensor, "batch label"],
    *,
    temperature: float = 3.0,
    share: float = 0.1,
) -> Float[Tensor, ""]:
    """(1 − λ) CE(label's head, label) + λ T² KL(teacher ‖ teacher's head), both softened by T (eq. 2).

    λ is `share`. Raises ValueError unless 0 ≤ λ ≤ 1 and T > 0.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; expected 0 to 1")
    imitated = distillation_loss(said.teacher, teacher, temperature=temperature)
    return (1 - share) * F.cross_entropy(said.label.float(), labels) + share * imitated
