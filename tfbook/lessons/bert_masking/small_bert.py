"""Small BERTs: text as rows of tokens, pretraining on masked tokens and pairs of spans, fine-tuning on few labels."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.data.sentences import LabeledText, LabeledTexts
from tfbook.models.bert import BERT, Bert, BertForPretraining, Classifier, MaskedLanguageModel
from tfbook.models.bert_variants import FactorizedEmbedding
from tfbook.models.blocks import Config, PreNorm
from tfbook.text.masking import (
    BERT_SPECIALS,
    IGNORE_INDEX,
    Masked,
    Masking,
    NextSentence,
    join_segments,
    mask_tokens,
    next_sentence_pairs,
)
from tfbook.text.tokenizer import Tokenizer
from tfbook.text.vocabulary import PAD
from tfbook.training.losses import Loss, masked_loss, masked_token_loss, pretraining_loss

VOCAB = 2000
LONGEST = 48  # tokens that a classifier reads
SPAN = 22  # tokens at most of a "sentence" of a pair: any span of contiguous text (Devlin et al., 2019, section 3)
SMALL = replace(BERT, d_model=64, heads=4, d_ff=256, layers=2, max_length=LONGEST, residual=PreNorm, dropout=0.0)
RARE = 1e-3  # the frequency up to which a token is masked at the full rate
OFTEN = Masking(rate=0.6)  # of the rare tokens; two in five of all tokens
MASK_ONLY = Masking(mask=1.0, random=0.0)  # for evaluation: every selected token becomes [MASK]

# ---- texts as tokens -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Texts as padded ids, the segment of each token, and the label of each text."""

    ids: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    segments: Int[Tensor, "batch time"]
    labels: Int[Tensor, " batch"]

    @classmethod
    def of(cls, pairs: Sequence[NextSentence]) -> Rows:
        """Rows of one or two segments, joined by `join_segments`."""
        ids, segments = zip(*(join_segments(pair.first, pair.second) for pair in pairs), strict=True)
        return cls(
            _padded(ids),
            torch.tensor([len(row) for row in ids]),
            _padded(segments),
            torch.tensor([p.label for p in pairs]),
        )

    def to(self, device: torch.device | str) -> Rows:
        """The same rows on another device."""
        return Rows(*(tensor.to(device) for tensor in vars(self).values()))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, chosen: slice | Int[Tensor, " chosen"]) -> Rows:
        """A selection of rows, cut to the length of the longest one."""
        longest = int(self.lengths[chosen].max())
        return Rows(
            self.ids[chosen, :longest], self.lengths[chosen], self.segments[chosen, :longest], self.labels[chosen]
        )


def _padded(rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch time"]:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


class Reading:
    """A tokenized corpus: unlabeled texts for pretraining, and labeled rows; no test text is among the former."""

    def __init__(self, corpus: LabeledTexts):
        self.corpus = corpus
        self.tokenizer = Tokenizer.learn((text.lower() for text in corpus.unlabeled), VOCAB, specials=BERT_SPECIALS)
        self.texts = [self.encode(text) for text in corpus.unlabeled]
        self.weights = rare_first(self.texts, self.vocab)
        self.test = self.rows(corpus.test)

    @property
    def vocab(self) -> int:
        """Number of tokens in the vocabulary."""
        return len(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        """The ids of a text in lower case, which makes better use of a small corpus."""
        return self.tokenizer.encode(text.lower())

    def rows(self, labelled: Sequence[LabeledText]) -> Rows:
        """Each text as one segment, truncated if it is too long."""
        return Rows.of([NextSentence(self.encode(text)[: LONGEST - 2], (), label) for text, label in labelled])

    def windows(self) -> Rows:
        """The unlabeled texts in pieces of up to `LONGEST` tokens, `[CLS]` and `[SEP]` included."""
        width = LONGEST - 2
        pieces = [ids[start : start + width] for ids in self.texts for start in range(0, len(ids), width)]
        return Rows.of([NextSentence(piece, (), 0) for piece in pieces])

    def pairs(self, *, seed: int) -> Rows:
        """Neighboring spans of the unlabeled texts; in half of them, the second span comes from another text."""
        documents = [spans(ids, seed=place) for place, ids in enumerate(self.texts)]
        return Rows.of(next_sentence_pairs(documents, seed=seed))


def spans(ids: Sequence[int], *, seed: int = 0) -> list[Sequence[int]]:
    """The ids in pieces of random length, `SPAN` / 2 to `SPAN`: a fixed one would reveal the true neighbors."""
    lengths = random.Random(seed)
    pieces = []
    while ids:
        border = lengths.randint(SPAN // 2, SPAN)
        pieces.append(ids[:border])
        ids = ids[border:]
    return pieces


def rare_first(texts: Sequence[Sequence[int]], vocab: int) -> Float[Tensor, " vocab"]:
    """min(1, √(`RARE` / frequency)): rare tokens say what a text is about (Mikolov et al., 2013).

    In the paper it decides which words are read (section 2.3), here which tokens are masked.
    """
    counts = torch.bincount(torch.tensor([i for text in texts for i in text]), minlength=vocab)
    return (RARE * counts.sum() / counts.clamp(min=1)).sqrt().clamp(max=1.0)


def seeded(*numbers: int) -> torch.Generator:
    """A generator seeded by all of `numbers`."""
    number = 0
    for other in numbers:
        number = (number * 1_000_003 + other) % 2**32
    return torch.Generator().manual_seed(number)


# ---- pretraining -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """A pretraining run: the corpus, the steps, the masking, and the optimizer's settings."""

    config: Config = SMALL
    body: Callable[[int, Config], Bert] = Bert
    masking: Masking = OFTEN
    even: bool = False  # frequent tokens are masked as often as rare ones
    static: bool = False  # the same tokens are masked in every epoch
    pairs: bool = False  # rows are pairs of spans, for next-sentence prediction as well
    steps: int = 2000
    lr: float = 2e-3
    embedding_lr_factor: float = 5.0  # factor on the learning rate of the embeddings
    size: int = 32  # rows per batch

    def recipe(self) -> training.Recipe:
        """A warm-up over a tenth of the steps, then a half cosine down to 0."""
        schedule = training.warmup_cosine(self.steps // 10, final=0.0)
        return training.Recipe(
            steps=self.steps,
            lr=self.lr,
            embedding_lr_factor=self.embedding_lr_factor,
            schedule=schedule,
            betas=(0.9, 0.98),
            evaluate_every=max(1, self.steps // 5),
            mixed_precision=False,  # slower at this width
        )


def fresh(vocab: int, config: Config = SMALL, body: Callable[[int, Config], Bert] = Bert) -> Bert:
    """An untrained body whose embeddings start ten times as large as BERT's 0.02, which suits a width of 768.

    A token then weighs more than its position: what a short run learns is about the tokens themselves.
    """
    model = body(vocab, config)
    nn.init.normal_(model.embed.weight, std=0.2)
    if isinstance(model.embed, FactorizedEmbedding):  # so that the product is as large
        nn.init.normal_(model.embed.up.weight, std=model.embed.embedding_dim**-0.5)
    return model.to(runtime.device())


class MaskedBatch(NamedTuple):
    """Rows, and the same rows with masked tokens."""

    rows: Rows
    masked: Masked

    def to(self, device: torch.device | str) -> MaskedBatch:
        """The same batch on another device."""
        return MaskedBatch(self.rows.to(device), Masked(*(tensor.to(device) for tensor in self.masked)))


def masked_batches(rows: Rows, reading: Reading, plan: Pretraining, *, seed: int) -> Callable[[int], MaskedBatch]:
    """Every row once per epoch, in a new order; tokens are masked anew each time or, if `static`, once and for all."""
    weights = None if plan.even else reading.weights
    mask = partial(mask_tokens, vocab=reading.vocab, masking=plan.masking, weights=weights)
    once = mask(rows.ids, generator=seeded(seed)) if plan.static else None

    def batch(step: int) -> MaskedBatch:
        epoch, place = divmod(step, max(1, len(rows) // plan.size))
        order = torch.randperm(len(rows), generator=seeded(seed, epoch))[plan.size * place : plan.size * (place + 1)]
        chosen = rows[order]
        if once is None:
            return MaskedBatch(chosen, mask(chosen.ids, generator=seeded(seed, epoch, place)))
        return MaskedBatch(chosen, Masked(*(part[order, : chosen.ids.shape[1]] for part in once)))

    return batch


def mlm_loss(model: MaskedLanguageModel, batch: MaskedBatch) -> Loss:
    """The loss of masked language modeling alone, as in RoBERTa (Liu et al., 2019, section 4.2)."""
    return masked_loss(model, batch.masked, batch.rows.lengths)


def mlm_and_nsp_loss(model: BertForPretraining, batch: MaskedBatch) -> Loss:
    """BERT's loss: masked language modeling plus next-sentence prediction."""
    rows = batch.rows
    return pretraining_loss(model, batch.masked, rows.lengths, rows.segments, rows.labels)


def pretrained(plan: Pretraining, reading: Reading, *, seed: int) -> tuple[MaskedLanguageModel, training.History]:
    """A BERT pretrained on the unlabeled texts, and its training history."""
    runtime.seed(seed)
    kind, loss = (BertForPretraining, mlm_and_nsp_loss) if plan.pairs else (MaskedLanguageModel, mlm_loss)
    rows = reading.pairs(seed=seed) if plan.pairs else reading.windows()
    model = kind(fresh(reading.vocab, plan.config, plan.body)).to(runtime.device())
    batches = masked_batches(rows, reading, plan, seed=seed)
    return model, training.fit(model, loss, batches, plan.recipe(), evaluate=partial(judged, reading=reading))


@torch.no_grad()
def judged(model: MaskedLanguageModel, reading: Reading) -> dict[str, float]:
    """Scores on test texts with 15% of their tokens replaced by `[MASK]`: on all of these, and on the rare ones.

    The scores `told …` are for rare tokens when only rare ones may be predicted.
    """
    rows = reading.test.to(runtime.device())
    masked = mask_tokens(rows.ids, reading.vocab, MASK_ONLY, generator=seeded(0))
    asked = masked.targets != IGNORE_INDEX
    logits, targets = model.head(model.bert(masked.ids, rows.lengths)[asked]), masked.targets[asked]
    weights = reading.weights.to(targets.device)
    rare = weights[targets] == 1
    told = logits[rare].masked_fill(weights < 1, -torch.inf)  # as if told that the token is a rare one
    found = scores(logits, targets)
    found |= {f"rare {key}": value for key, value in scores(logits[rare], targets[rare]).items()}
    return found | {f"told {key}": value for key, value in scores(told, targets[rare]).items()}


def scores(logits: Float[Tensor, "token vocab"], targets: Int[Tensor, " token"]) -> dict[str, float]:
    """Loss in nats, and how often the true token is the likeliest one and among the ten likeliest."""
    targets = targets.to(logits.device)
    first = logits.topk(min(10, logits.shape[-1])).indices == targets[:, None]
    return {
        "nats": float(masked_token_loss(logits, targets).mean),
        "right": float(first[:, 0].float().mean()),
        "in ten": float(first.any(dim=1).float().mean()),
    }


# ---- fine-tuning -----------------------------------------------------------------------------------------------------

FINE = training.Recipe(steps=60, lr=2e-3, schedule=training.warmup_cosine(10, final=0.0), mixed_precision=False)


def classifier(start: MaskedLanguageModel | Bert, labels: int) -> Classifier:
    """A copy of the body under a new head, whose first layer comes from the pair head if the model has one."""
    body = start.bert if isinstance(start, MaskedLanguageModel) else start
    model = Classifier(body, labels)
    if isinstance(start, BertForPretraining):
        model.head.pool.load_state_dict(start.next_sentence.pool.state_dict())
    return copy.deepcopy(model).to(runtime.device())


def label_loss(model: Classifier, rows: Rows) -> Tensor:
    """Mean cross-entropy of the labels, in nats per text."""
    return F.cross_entropy(model(rows.ids, rows.lengths, rows.segments).float(), rows.labels)


def fine_tuned(
    start: MaskedLanguageModel | Bert, reading: Reading, count: int, *, seed: int, recipe: training.Recipe | None = None
) -> tuple[Classifier, training.History]:
    """A classifier fine-tuned from a copy of `start` on `count` texts of each label."""
    runtime.seed(seed)
    model = classifier(start, len(reading.corpus.labels))
    rows = reading.rows(reading.corpus.few_shot(count, seed=seed))

    def batch(step: int) -> Rows:
        return rows[torch.randperm(len(rows), generator=seeded(seed, step))[:32]]

    return model, training.fit(model, label_loss, batch, recipe or FINE)


@torch.inference_mode()
def accuracy(model: Classifier, rows: Rows) -> float:
    """Share of texts whose predicted label is right."""
    model.eval()
    right = [model(part.ids, part.lengths, part.segments).argmax(-1) == part.labels for part in _pieces(rows)]
    return float(torch.cat(right).float().mean())


def _pieces(rows: Rows, size: int = 256) -> Iterator[Rows]:
    """The rows on the chosen device, a few at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size].to(runtime.device())
