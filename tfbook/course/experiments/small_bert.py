"""Small BERTs: text as rows of tokens, pretraining on hidden words and pairs of spans, fine-tuning on few labels."""

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
from tfbook.models.blocks import Config
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
from tfbook.training.losses import masked_loss, masked_token_loss, pretraining_loss

VOCAB = 2000
LONGEST = 48  # tokens that a classifier reads
SPAN = 22  # tokens at most of a "sentence" of a pair: any span of contiguous text (Devlin et al., 2019, section 3)
SMALL = replace(BERT, d_model=64, heads=4, d_ff=256, layers=2, longest=LONGEST, pre_norm=True, dropout=0.0)
RARE = 1e-3  # the frequency up to which a token is hidden at the full rate
OFTEN = Masking(rate=0.6)  # of the rare tokens; of all that is two in five
ALL_HIDDEN = Masking(mask=1.0, random=0.0)  # to judge by: every drawn word is [MASK]


# ---- texts as tokens ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Texts as ids, padded, the segment of each token and the label of each text."""

    ids: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    segments: Int[Tensor, "batch time"]
    labels: Int[Tensor, " batch"]

    @classmethod
    def of(cls, pairs: Sequence[NextSentence]) -> Rows:
        """One or two segments a row, put together by `join_segments`."""
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
        """Some of the rows, cut to the longest of them."""
        longest = int(self.lengths[chosen].max())
        return Rows(
            self.ids[chosen, :longest], self.lengths[chosen], self.segments[chosen, :longest], self.labels[chosen]
        )


def _padded(rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch time"]:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


class Reading:
    """A corpus in tokens: what is pretrained on, and rows with a label; nothing of the test is in the former."""

    def __init__(self, corpus: LabeledTexts):
        self.corpus = corpus
        self.tokenizer = Tokenizer.learn((text.lower() for text in corpus.unlabeled), VOCAB, specials=BERT_SPECIALS)
        self.texts = [self.encode(text) for text in corpus.unlabeled]
        self.weights = rare_first(self.texts, self.vocab)
        self.test = self.rows(corpus.test)

    @property
    def vocab(self) -> int:
        """How many tokens there are."""
        return len(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        """In lower case, which makes more of a small text."""
        return self.tokenizer.encode(text.lower())

    def rows(self, labeled: Sequence[LabeledText]) -> Rows:
        """Each text as one segment; of a long one its beginning."""
        return Rows.of([NextSentence(self.encode(text)[: LONGEST - 2], (), label) for text, label in labeled])

    def windows(self) -> Rows:
        """The unlabeled texts in pieces of up to `LONGEST` tokens, `[CLS]` and `[SEP]` included."""
        width = LONGEST - 2
        pieces = [ids[start : start + width] for ids in self.texts for start in range(0, len(ids), width)]
        return Rows.of([NextSentence(piece, (), 0) for piece in pieces])

    def pairs(self, *, seed: int) -> Rows:
        """Neighbouring spans of the unlabeled texts, half of them with another text's span as the second."""
        documents = [spans(ids, seed=place) for place, ids in enumerate(self.texts)]
        return Rows.of(next_sentence_pairs(documents, seed=seed))


def spans(ids: Sequence[int], *, seed: int = 0) -> list[Sequence[int]]:
    """The ids in pieces of `SPAN` / 2 to `SPAN`, drawn at random: an even cut would tell which two belong together."""
    lengths = random.Random(seed)
    pieces = []
    while ids:
        border = lengths.randint(SPAN // 2, SPAN)
        pieces.append(ids[:border])
        ids = ids[border:]
    return pieces


def rare_first(texts: Sequence[Sequence[int]], vocab: int) -> Float[Tensor, " vocab"]:
    """√(`RARE` / frequency), at most 1: the words of which a text has few say what it is about (Mikolov et al., 2013).

    There it decides which words are read (section 2.3), here which are asked for.
    """
    counts = torch.bincount(torch.tensor([i for text in texts for i in text]), minlength=vocab)
    return (RARE * counts.sum() / counts.clamp(min=1)).sqrt().clamp(max=1.0)


def dice(*numbers: int) -> torch.Generator:
    """Random numbers that depend on all of `numbers`."""
    number = 0
    for other in numbers:
        number = (number * 1_000_003 + other) % 2**32
    return torch.Generator().manual_seed(number)


# ---- pretraining --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """What is pretrained, and how."""

    sizes: Config = SMALL
    body: Callable[[int, Config], Bert] = Bert
    masking: Masking = OFTEN
    even: bool = False  # frequent words are hidden as often as rare ones
    static: bool = False  # the same words are hidden in every pass
    pairs: bool = False  # rows are pairs, and whether the second follows is asked as well
    steps: int = 2000
    lr: float = 2e-3
    tables: float = 5.0  # factor on the learning rate of the words' table
    size: int = 32  # rows of a batch

    def recipe(self) -> training.Recipe:
        """A warm-up over a tenth of the steps, then half a cosine down to 0."""
        schedule = training.warmup_cosine(self.steps // 10, final=0.0)
        return training.Recipe(
            steps=self.steps,
            lr=self.lr,
            tables=self.tables,
            schedule=schedule,
            betas=(0.9, 0.98),
            evaluate_every=max(1, self.steps // 5),
            mixed_precision=False,  # at this width it takes longer
        )


def fresh(vocab: int, sizes: Sizes = SMALL, body: Callable[[int, Config], Bert] = Bert) -> Bert:
    """A body whose words begin ten times as wide as BERT's, whose 0.02 fits a width of 768.

    What a word is then weighs more than where it stands: a short training learns of the words themselves.
    """
    model = body(vocab, sizes)
    nn.init.normal_(model.words.weight, std=0.2)
    if isinstance(model.words, FactorizedEmbedding):  # as wide when the second factor has been at them
        nn.init.normal_(model.words.up.weight, std=model.words.embedding_dim**-0.5)
    return model.to(runtime.device())


class Hidden(NamedTuple):
    """Rows, and the same with words hidden."""

    rows: Rows
    masked: Masked

    def to(self, device: torch.device | str) -> Hidden:
        """The same on another device."""
        return Hidden(self.rows.to(device), Masked(*(tensor.to(device) for tensor in self.masked)))


def hidden_batches(rows: Rows, reading: Reading, plan: Pretraining, *, seed: int) -> Callable[[int], Hidden]:
    """Every row once a pass, in a new order; words are hidden anew each time, or once for all."""
    weights = None if plan.even else reading.weights
    hide = partial(mask_tokens, vocab=reading.vocab, masking=plan.masking, weights=weights)
    once = hide(rows.ids, generator=dice(seed)) if plan.static else None

    def batch(step: int) -> Hidden:
        turn, place = divmod(step, max(1, len(rows) // plan.size))
        order = torch.randperm(len(rows), generator=dice(seed, turn))[plan.size * place : plan.size * (place + 1)]
        chosen = rows[order]
        if once is None:
            return Hidden(chosen, hide(chosen.ids, generator=dice(seed, turn, place)))
        return Hidden(chosen, Masked(*(part[order, : chosen.ids.shape[1]] for part in once)))

    return batch


def hidden_loss(model: MaskedLanguageModel, batch: Hidden) -> Tensor:
    """Hidden words alone, as in RoBERTa (Liu et al., 2019, section 4.2)."""
    return masked_loss(model, batch.masked, batch.rows.lengths)


def both_losses(model: BertForPretraining, batch: Hidden) -> Tensor:
    """BERT's: hidden words, and does the second span follow?"""
    rows = batch.rows
    return pretraining_loss(model, batch.masked, rows.lengths, rows.segments, rows.labels)


def pretrained(plan: Pretraining, reading: Reading, *, seed: int) -> tuple[MaskedLanguageModel, training.History]:
    """A BERT that has read the unlabeled texts, and its history."""
    runtime.seed(seed)
    kind, loss = (BertForPretraining, both_losses) if plan.pairs else (MaskedLanguageModel, hidden_loss)
    rows = reading.pairs(seed=seed) if plan.pairs else reading.windows()
    model = kind(fresh(reading.vocab, plan.sizes, plan.body)).to(runtime.device())
    batches = hidden_batches(rows, reading, plan, seed=seed)
    return model, training.fit(model, loss, batches, plan.recipe(), evaluate=partial(judged, reading=reading))


@torch.no_grad()
def judged(model: MaskedLanguageModel, reading: Reading) -> dict[str, float]:
    """Of test texts with 15% of their words hidden, all by `[MASK]`: what it knows of all of them and of the rare.

    `told …` is what it knows of rare words when only rare ones may be guessed.
    """
    rows = reading.test.to(runtime.device())
    masked = mask_tokens(rows.ids, reading.vocab, ALL_HIDDEN, generator=dice(0))
    asked = masked.targets != IGNORE_INDEX
    logits, words = model.head(model.bert(masked.ids, rows.lengths)[asked]), masked.targets[asked]
    rare = reading.weights.to(words.device)[words] == 1
    told = logits[rare].masked_fill(reading.weights.to(words.device) < 1, -torch.inf)  # "the word is a rare one"
    found = scores(logits, words) | {f"rare {key}": value for key, value in scores(logits[rare], words[rare]).items()}
    return found | {f"told {key}": value for key, value in scores(told, words[rare]).items()}


def scores(logits: Float[Tensor, "word vocab"], words: Int[Tensor, " word"]) -> dict[str, float]:
    """Loss in nats, share of right first guesses, and of words that are among the first ten."""
    words = words.to(logits.device)
    first = logits.topk(min(10, logits.shape[-1])).indices == words[:, None]
    return {
        "nats": float(masked_token_loss(logits, words)),
        "right": float(first[:, 0].float().mean()),
        "in ten": float(first.any(dim=1).float().mean()),
    }


# ---- fine-tuning --------------------------------------------------------------------------------------------------

FINE = training.Recipe(steps=60, lr=2e-3, schedule=training.warmup_cosine(10, final=0.0), mixed_precision=False)


def classifier(start: MaskedLanguageModel | Bert, labels: int) -> Classifier:
    """A copy of the body under a new head; where there is one for pairs, its first layer is copied as well."""
    body = start.bert if isinstance(start, MaskedLanguageModel) else start
    model = Classifier(body, labels)
    if isinstance(start, BertForPretraining):
        model.head.pool.load_state_dict(start.next_sentence.pool.state_dict())
    return copy.deepcopy(model).to(runtime.device())


def label_loss(model: Classifier, rows: Rows) -> Tensor:
    """Mean cross-entropy in nats a text."""
    return F.cross_entropy(model(rows.ids, rows.lengths, rows.segments).float(), rows.labels)


def fine_tuned(
    start: MaskedLanguageModel | Bert, reading: Reading, count: int, *, seed: int, recipe: training.Recipe | None = None
) -> tuple[Classifier, training.History]:
    """A classifier trained on `count` texts of each label from `start`, which stays as it is."""
    runtime.seed(seed)
    model = classifier(start, len(reading.corpus.labels))
    rows = reading.rows(reading.corpus.few_shot(count, seed=seed))

    def batch(step: int) -> Rows:
        return rows[torch.randperm(len(rows), generator=dice(seed, step))[:32]]

    return model, training.fit(model, label_loss, batch, recipe or FINE)


@torch.inference_mode()
def accuracy(model: Classifier, rows: Rows) -> float:
    """Share of right labels."""
    model.eval()
    right = [model(part.ids, part.lengths, part.segments).argmax(-1) == part.labels for part in _pieces(rows)]
    return float(torch.cat(right).float().mean())


def _pieces(rows: Rows, size: int = 256) -> Iterator[Rows]:
    """The rows on the chosen device, some at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size].to(runtime.device())
