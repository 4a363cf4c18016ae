"""Losses, each as a total and a count; those of preferences are in `preferences` and `ppo`.

Shapes: batch, time, vocab, label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention.masks import padding_mask
from tfbook.checks import may_look
from tfbook.text.masking import IGNORE_INDEX, Masked
from tfbook.text.pairs import Batch
from tfbook.text.vocabulary import PAD

# ---- totals and counts -------------------------------------------------------------------------------------------


class Loss:
    """A total over a batch and the count to divide it by; training minimizes the `mean`.

    Kept separate, they can be summed: over batches and processes Σ total / Σ count is the mean over one large batch,
    however uneven the parts. `a + b` is a loss with two terms, each with its own count; its mean is the sum of both
    means.
    """

    def __init__(self, total: Float[Tensor, ""], count: int | Int[Tensor, ""]):
        self.totals: list[Tensor] = [total]
        self.counts: list[int | Tensor] = [count]

    @classmethod
    def of(cls, totals: Sequence[Float[Tensor, ""]], counts: Sequence[int | Int[Tensor, ""]]) -> Loss:
        """The loss with these terms, of which there is at least one."""
        loss = cls(totals[0], counts[0])
        loss.totals, loss.counts = [*totals], [*counts]
        return loss

    @property
    def mean(self) -> Float[Tensor, ""]:
        """Σ total / count over the terms; 0, and not 0/0, for a term that counts nothing."""
        return self.over(self.counts)

    def over(self, counts: Sequence[float | Tensor]) -> Float[Tensor, ""]:
        """The totals over other counts, such as those of all batches of a step."""
        shares = (total / at_least_one(count) for total, count in zip(self.totals, counts, strict=True))
        return sum(shares)  # type: ignore[return-value] # there is at least one term, so the sum is not the int 0

    def __add__(self, other: Loss) -> Loss:
        return Loss.of(self.totals + other.totals, self.counts + other.counts)


def at_least_one(count: float | Tensor) -> Tensor:
    """The count as a divisor, at least 1, without waiting for the device that holds it."""
    return torch.as_tensor(count).clamp(min=1)


def weighted(weight: float, total: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """weight · total; a weight of 0 leaves out even an infinite term, since 0 · ∞ would be NaN."""
    return weight * total if weight else torch.zeros_like(total)


# ---- language models and translation -----------------------------------------------------------------------------


def next_token_loss(model: nn.Module, ids: Int[Tensor, "batch time"], *, pad: int = IGNORE_INDEX) -> Loss:
    """−log p of each id but the first, given those before it, in nats; counts these ids, excluding padding (`pad`)."""
    targets = ids[:, 1:].flatten().long()
    logits = model(ids[:, :-1]).flatten(0, 1).float()
    total = F.cross_entropy(logits, targets, ignore_index=pad, reduction="sum")
    return Loss(total, (targets != pad).sum())


def translation_loss(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Loss:
    """−(1 − ε) log p(token) − ε mean_v log p(v), in nats; counts the target tokens, excluding padding.

    ε is `smoothing` (Szegedy et al., 2016, section 7); at 0 this is the cross-entropy. Raises ValueError unless
    0 ≤ ε < 1.
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}; expected 0 ≤ smoothing < 1")
    logits = model(batch.source, batch.source_lengths, batch.target_in).logits.flatten(0, 1).float()
    targets = batch.target_out.flatten()
    total = F.cross_entropy(logits, targets, ignore_index=PAD, label_smoothing=smoothing, reduction="sum")
    return Loss(total, (targets != PAD).sum())


def caption_loss(
    model: nn.Module,
    images: Float[Tensor, "batch channel height width"],
    ids: Int[Tensor, "batch time"],
    *,
    even: float = 0.0,
) -> Loss:
    """−log p of each word of a caption but `<bos>`, in nats, excluding padding; counts these words.

    `even` adds λ Σ_i (1 − Σ_t α_ti)² for each caption, a term with a count of its own: every place i should be looked
    at about equally often ("doubly stochastic attention", Xu et al., 2015, eq. 14).
    """
    decoded, targets = model(images, ids[:, :-1]), ids[:, 1:]
    logits = decoded.logits.flatten(0, 1).float()
    words = targets != PAD
    loss = Loss(F.cross_entropy(logits, targets.flatten(), ignore_index=PAD, reduction="sum"), words.sum())
    if not even:
        return loss
    looked = (decoded.weights.float() * words[..., None]).sum(dim=1)
    return loss + Loss(even * (1 - looked).square().sum(), len(ids))


# ---- BERT and ELECTRA --------------------------------------------------------------------------------------------


if TYPE_CHECKING:

    class MaskedModel(Protocol):
        """A body and a head, as a `MaskedLanguageModel` has them."""

        @property
        def bert(self) -> Callable[..., Tensor]:
            """From ids, lengths and segments to a vector for each token."""

        @property
        def head(self) -> Callable[[Tensor], Tensor]:
            """From the vector of a token to its logits."""

    class PretrainedModel(MaskedModel, Protocol):
        """A masked model that also says whether the second sentence follows the first, as a `BertForPretraining`."""

        @property
        def next_sentence(self) -> Callable[[Tensor], Tensor]:
            """From the vectors of all tokens to two logits."""

    class ReplacedTokenModel(Protocol):
        """A model that fills in masked tokens and one that finds them, as an `Electra` has them."""

        @property
        def generator(self) -> MaskedModel:
            """Fills in masked tokens."""

        @property
        def discriminator(self) -> Callable[..., Tensor]:
            """From ids and lengths to a logit for each token: was it replaced?"""

        def parameters(self) -> Iterator[nn.Parameter]:
            """The weights of both."""

else:  # from Python 3.12 on, `isinstance` with a protocol does not find the submodules of a module
    MaskedModel = PretrainedModel = ReplacedTokenModel = nn.Module


def masked_token_loss(logits: Float[Tensor, "token vocab"], targets: Int[Tensor, " token"]) -> Loss:
    """−log p(target) in nats, from the logits at the masked tokens; counts these.

    Tokens whose target is `IGNORE_INDEX` are left out.
    """
    total = F.cross_entropy(logits.float(), targets.long(), ignore_index=IGNORE_INDEX, reduction="sum")
    return Loss(total, (targets != IGNORE_INDEX).sum())


def _at_masked(
    x: Float[Tensor, "batch time d_model"], targets: Int[Tensor, "batch time"]
) -> tuple[Float[Tensor, "token d_model"], Int[Tensor, " token"]]:
    """Vectors and targets of the masked tokens; all tokens' unless `may_look`."""
    if not may_look():
        return x.flatten(0, 1), targets.flatten()
    asked = targets != IGNORE_INDEX
    return x[asked], targets[asked]


def masked_loss(
    model: MaskedModel,
    masked: Masked,
    lengths: Int[Tensor, " batch"],
    segments: Int[Tensor, "batch time"] | None = None,
) -> Loss:
    """−log p(token | masked text) in nats, by a `MaskedLanguageModel`; counts the masked tokens.

    Only their positions go through the head, which does most of a small model's work; where a device runs ahead, all
    do, since to count them is to wait.
    """
    x, targets = _at_masked(model.bert(masked.ids, lengths, segments), masked.targets)
    return masked_token_loss(model.head(x), targets)


def pretraining_loss(
    model: PretrainedModel,
    masked: Masked,
    lengths: Int[Tensor, " batch"],
    segments: Int[Tensor, "batch time"],
    labels: Int[Tensor, " batch"],
) -> Loss:
    """`masked_loss` + next-sentence prediction, −log p(label | both sentences), which counts pairs (section A.2).

    The model is a `BertForPretraining`; one pass serves both tasks.
    """
    vectors = model.bert(masked.ids, lengths, segments)
    x, targets = _at_masked(vectors, masked.targets)
    next_sentence = F.cross_entropy(model.next_sentence(vectors).float(), labels.long(), reduction="sum")
    return masked_token_loss(model.head(x), targets) + Loss(next_sentence, len(labels))


def electra_loss(
    model: ReplacedTokenModel, masked: Masked, lengths: Int[Tensor, " batch"], *, weight: float = 50.0
) -> Loss:
    """Masked loss of the generator + `weight` · binary cross-entropy over all tokens (Clark et al., 2020, eq. 1).

    The tokens that the generator samples reach the discriminator as ids, through which no gradient flows. Where it
    samples the right token, nothing was replaced. Without any tokens the loss is 0.
    """
    if not masked.ids.numel():
        return Loss(next(model.parameters())[:0].sum(), 0)
    x, targets = _at_masked(model.generator.bert(masked.ids, lengths), masked.targets)
    logits = model.generator.head(x)
    ids = _filled(masked, _drawn(logits.detach()))
    real = padding_mask(lengths, ids.shape[1])
    scores = model.discriminator(ids, lengths)[..., 0].float().masked_fill(~real, 0.0)
    replaced = (masked.targets != IGNORE_INDEX) & (ids != masked.targets)
    total = F.binary_cross_entropy_with_logits(scores, replaced.float(), weight=real.float(), reduction="sum")
    return masked_token_loss(logits, targets) + Loss(weighted(weight, total), real.sum())


def _drawn(logits: Float[Tensor, "token vocab"]) -> Int[Tensor, " token"]:
    """A token for each row with the probabilities softmax(logits), as `torch.multinomial`, which waits, draws them.

    If the E_i are exponential with mean 1, then p_i / E_i is the largest of them with probability p_i.
    """
    p = logits.float().softmax(dim=-1)
    return (p / torch.empty_like(p).exponential_().clamp_(min=torch.finfo(p.dtype).tiny)).argmax(dim=-1)


def _filled(masked: Masked, drawn: Int[Tensor, " token"]) -> Int[Tensor, "batch time"]:
    """The ids with the tokens drawn at `_at_masked` in the place of masked ones."""
    asked, drawn = masked.targets != IGNORE_INDEX, drawn.to(masked.ids.dtype)
    if len(drawn) == asked.numel():
        return torch.where(asked, drawn.view_as(masked.ids), masked.ids)
    return masked.ids.masked_scatter(asked, drawn)


# ---- distillation ------------------------------------------------------------------------------------------------


def divergence(log_p: Float[Tensor, "*rows label"], log_q: Float[Tensor, "*rows label"]) -> Float[Tensor, "*rows"]:
    """KL(p ‖ q) = Σ p (log p − log q), in nats, with 0 log 0 = 0: labels of probability 0 under p add nothing.

    Infinite where q gives probability 0 to a label that has more under p.
    """
    p = log_p.exp()
    return (p * (log_p - log_q).masked_fill(~(p > 0), 0.0)).sum(dim=-1)


def distillation_loss(
    student: Float[Tensor, "*rows label"], teacher: Float[Tensor, "*rows label"], *, temperature: float = 2.0
) -> Loss:
    """T² KL(softmax(teacher / T) ‖ softmax(student / T)); counts rows (Hinton et al., 2015, section 2).

    T² keeps the gradient's size as T grows; none flows into the teacher. Raises ValueError unless `temperature` > 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; expected more than 0")
    soft, own = (torch.log_softmax(logits.float() / temperature, dim=-1) for logits in (teacher.detach(), student))
    divergences = divergence(soft, own)
    return Loss(temperature**2 * divergences.sum(), divergences.numel())


def hard_distillation(
    heads: tuple[Float[Tensor, "batch label"], Float[Tensor, "batch label"]],
    labels: Int[Tensor, " batch"],
    teacher: Float[Tensor, "batch label"],
) -> Loss:
    """½ CE(first head, label) + ½ CE(second head, the teacher's most probable label); counts images.

    `heads` are the logits of a `Deit`'s two heads, `teacher` those of its teacher (Touvron et al., 2021, eq. 3).
    """
    own, imitating = heads
    total = F.cross_entropy(own.float(), labels.long(), reduction="sum")
    imitated = F.cross_entropy(imitating.float(), teacher.argmax(dim=-1), reduction="sum")
    return Loss((total + imitated) / 2, len(labels))


def soft_distillation(
    heads: tuple[Float[Tensor, "batch label"], Float[Tensor, "batch label"]],
    labels: Int[Tensor, " batch"],
    teacher: Float[Tensor, "batch label"],
    *,
    temperature: float = 3.0,
    share: float = 0.1,
) -> Loss:
    """(1 − λ) CE(first head, label) + λ T² KL(teacher ‖ second head), both softened by T; counts images (eq. 2).

    λ is `share`. Raises ValueError unless 0 ≤ λ ≤ 1 and T > 0.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; expected 0 to 1")
    own, imitating = heads
    (imitated,) = distillation_loss(imitating, teacher, temperature=temperature).totals
    total = F.cross_entropy(own.float(), labels.long(), reduction="sum")
    return Loss(weighted(1 - share, total) + weighted(share, imitated), len(labels))
