"""The first exercises of lesson 08; the others are in exercises.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn
from tfbook.text.masking import BERT_SPECIALS, CLS, IGNORE_INDEX, MASK, SEP
from tfbook.text.vocabulary import PAD

# ---- hiding words ------------------------------------------------------------------------------------------------


def _texts_and_dice() -> list[tuple[Tensor, int, Tensor, Tensor, Tensor]]:
    def inputs(vocab: int, seed: int) -> tuple[Tensor, int, Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(len(BERT_SPECIALS), vocab, (12, 24), generator=generator)
        ids[:, 0], ids[:, 9], ids[:, 20], ids[:, 21:] = CLS, SEP, SEP, PAD
        ids[:, 6], ids[:, 7] = BERT_SPECIALS.index("[UNK]"), MASK
        draw, kind, other = torch.rand(3, *ids.shape, generator=generator, dtype=torch.float64)
        draw[0], draw[1, 1:6] = 0.0, 0.15  # row 0 draws every token it may, row 1 just misses five
        kind[0, 1:6] = torch.tensor([0.0, 0.8, 0.8, 0.9, 0.9], dtype=torch.float64)
        other[0, 2] = 0.2  # of 25 words, exactly number 5
        ids[0, 3] = len(BERT_SPECIALS) + int(other[0, 3] * (vocab - len(BERT_SPECIALS)))  # swapped for itself
        return ids, vocab, draw, kind, other

    return [inputs(30, 1), inputs(12, 2)]


@exercise(
    cases=_texts_and_dice,
    hints=[
        "Begin with a Boolean tensor, say `selected`: `draw < 0.15`, and the token is no special one. All that "
        "follows happens where it is True and nowhere else.",
        "There are `vocab - len(BERT_SPECIALS)` words, and the first is number `len(BERT_SPECIALS)`. `torch.where` "
        "three times: `[MASK]`, another word, targets.",
    ],
)
def hide(ids: Tensor, vocab: int, draw: Tensor, kind: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    chosen = (draw < 0.15) & (ids >= len(BERT_SPECIALS))
    words = len(BERT_SPECIALS) + (other * (vocab - len(BERT_SPECIALS))).long()
    hidden = torch.where(chosen & (kind < 0.8), MASK, ids)
    hidden = torch.where(chosen & (kind >= 0.8) & (kind < 0.9), words, hidden)
    return hidden, torch.where(chosen, ids, IGNORE_INDEX)


def _hidden(
    ids: Tensor,
    vocab: int,
    draw: Tensor,
    kind: Tensor,
    other: Tensor,
    *,
    drawn: Callable[[Tensor], Tensor] = lambda ids: ids >= len(BERT_SPECIALS),
    share: float = 0.15,
    first: int = len(BERT_SPECIALS),
    reserved: int = len(BERT_SPECIALS),
    masked: float = 0.8,
    swapped: float = 0.1,
) -> tuple[Tensor, Tensor]:
    """A `share` is chosen of the tokens that may be `drawn`; words are the `vocab - reserved` ids from `first` on."""
    chosen = (draw < share) & drawn(ids)
    hidden = torch.where(chosen & (kind < masked), MASK, ids)
    words = first + (other * (vocab - reserved)).long()
    hidden = torch.where(chosen & (kind >= masked) & (kind < masked + swapped), words, hidden)
    return hidden, torch.where(chosen, ids, IGNORE_INDEX)


def _asked(
    ids: Tensor, *rest: int | Tensor, targets: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Hidden as it should be, with targets made of the ids, of what is hidden of them, and of the right targets."""
    hidden, right = hide.reference(ids, *rest)
    return hidden, targets(ids, hidden, right)


def _never_itself(ids: Tensor, vocab: int, draw: Tensor, kind: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    hidden, targets = hide.reference(ids, vocab, draw, kind, other)
    itself = (targets == hidden) & (kind >= 0.8) & (kind < 0.9)
    following = len(BERT_SPECIALS) + (ids + 1 - len(BERT_SPECIALS)) % (vocab - len(BERT_SPECIALS))
    return torch.where(itself, following, hidden), targets


def _words_and(specials: list[int], ids: Tensor) -> Tensor:
    return (ids >= len(BERT_SPECIALS)) | torch.isin(ids, torch.tensor(specials))


DRAWN_TOO = [
    BERT_SPECIALS,
    BERT_SPECIALS[1:],  # where padding alone is left out
    ("[CLS]", "[SEP]"),
    ("[UNK]", "[MASK]"),  # where what frames a text is left out
    ("[PAD]", "[UNK]", "[MASK]"),
    *((name,) for name in BERT_SPECIALS),
]

hide.mistakes(
    {
        "80% and 10% of all words are changed: these are shares of the 15% that are selected": (
            lambda *inputs: (_hidden(*inputs, share=1.0)[0], hide.reference(*inputs)[1])
        ),
        "every word is changed and asked for: 15% of them are selected, and the others stay and are not counted": (
            partial(_hidden, share=1.0)
        ),
        "every token is a target: copying what is in plain sight teaches nothing; the others hold IGNORE_INDEX": (
            partial(_asked, targets=lambda ids, hidden, right: ids)
        ),
        "only what became `[MASK]` is a target: then a word in sight is never asked for, and the model may pass it by; "
        "the selected words that were swapped or left are targets as well": (
            partial(_asked, targets=lambda ids, hidden, right: torch.where(hidden == MASK, ids, IGNORE_INDEX))
        ),
        "a selected word that was left as it is must be a target, too: compare no ids, keep what was selected": (
            partial(_asked, targets=lambda ids, hidden, right: torch.where(hidden != ids, ids, IGNORE_INDEX))
        ),
        "the targets are what stands there after hiding: the model would learn to answer `[MASK]`": (
            partial(_asked, targets=lambda ids, hidden, right: torch.where(right == IGNORE_INDEX, IGNORE_INDEX, hidden))
        ),
        "0 is the id of `[PAD]`, a target like any other; a position that does not count holds IGNORE_INDEX": (
            partial(_asked, targets=lambda ids, hidden, right: torch.where(right == IGNORE_INDEX, PAD, right))
        ),
        "another word may be a special token here: ids begin with those, so words count from `len(BERT_SPECIALS)`": (
            partial(_hidden, first=0, reserved=0)
        ),
        "another word may lie beyond the vocabulary: there are `vocab - len(BERT_SPECIALS)` words to draw from": (
            partial(_hidden, reserved=0)
        ),
        "the first word that is no special token has the id `len(BERT_SPECIALS)`: add it to `int(other * n)`": (
            partial(_hidden, first=0)
        ),
        "a swapped word may come out as itself, with probability 1/n: take the one that `other` says": (_never_itself),
        "every selected word became `[MASK]`, which no text has when the model is used: 10% are swapped, 10% stay": (
            partial(_hidden, masked=1.0, swapped=0.0)
        ),
        "the other 20% are all swapped: a tenth of the selected words stays as it is": partial(_hidden, swapped=0.2),
        "the other 20% all stay: a tenth of the selected words is swapped for another": partial(_hidden, swapped=0.0),
        "a selected word that stays is a target, too: what was selected is asked for, whatever became of it": (
            lambda ids, vocab, draw, kind, other: (
                (right := hide.reference(ids, vocab, draw, kind, other))[0],
                right[1].where(kind < 0.9, IGNORE_INDEX),
            )
        ),
        "a draw of exactly 0.15 is not below 0.15: select where `draw < 0.15`": partial(_hidden, share=0.15 + 1e-12),
    }
    | {
        f"`{'`, `'.join(drawn)}` can be selected here: every special token, all of BERT_SPECIALS, stays": partial(
            _hidden, drawn=partial(_words_and, [BERT_SPECIALS.index(name) for name in drawn])
        )
        for drawn in DRAWN_TOO
    }
)

# ---- the loss on hidden words ------------------------------------------------------------------------------------


def _logits_and_targets() -> list[tuple[Tensor, Tensor]]:
    some = torch.tensor([[IGNORE_INDEX, 3, IGNORE_INDEX, IGNORE_INDEX, 0], [IGNORE_INDEX, 1, 5, 2, IGNORE_INDEX]])
    return [
        (2 * randn(2, 5, 6, seed=3), some),
        (2 * randn(1, 5, 6, seed=4), torch.tensor([[4, IGNORE_INDEX, IGNORE_INDEX, 2, 2]])),
        (randn(1, 3, 6, seed=5), torch.full((1, 3), IGNORE_INDEX)),
        (torch.tensor([[[0.0, -200.0, -1.0]]]), torch.tensor([[1]])),  # a probability of 0 in float32
        (torch.tensor([[[200.0, 199.0, 198.0]]]), torch.tensor([[1]])),  # exp overflows
        (torch.tensor([[[199.0, 200.0, 198.0], [-200.0, -201.0, -199.0]]]), torch.tensor([[2, 0]])),  # far apart
    ]


@exercise(
    cases=_logits_and_targets,
    hints=[
        "Which positions count? `targets != IGNORE_INDEX` is a Boolean tensor, and it can index both logits and "
        "targets.",
        "−log softmax(logits) at the targets, added up, divided by how many there are. And where there are none?",
    ],
)
def hidden_loss(logits: Tensor, targets: Tensor) -> Tensor:
    counted = targets != IGNORE_INDEX
    logp = torch.log_softmax(logits[counted], dim=-1)
    right = logp.gather(-1, targets[counted][:, None])
    return -right.sum() / max(1, int(counted.sum()))


def losses(logits: Tensor, targets: Tensor) -> Tensor:
    """One a position, 0 where the target is `IGNORE_INDEX`."""
    return F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORE_INDEX, reduction="none")


def _at_targets(values: Tensor, targets: Tensor) -> Tensor:
    """Minus the mean of the values that the hidden words have."""
    counted = targets != IGNORE_INDEX
    right = values[counted].gather(-1, targets[counted][:, None])
    return -right.sum() / max(1, len(right))


def _with_least(least: float, logits: Tensor, targets: Tensor) -> Tensor:
    """The loss with a small constant added to each probability."""
    return _at_targets((logits.softmax(dim=-1) + least).log(), targets)


def _naive_log_softmax(logits: Tensor) -> Tensor:
    return logits - logits.exp().sum(dim=-1, keepdim=True).log()


hidden_loss.mistakes(
    {
        "tokens that were not masked count as well, as if each were token 0: drop the targets IGNORE_INDEX": (
            lambda logits, targets: losses(logits, targets.clamp(min=0)).mean()
        ),
        "the sum is right, but it is divided by all positions: divide by the number that count": (
            lambda logits, targets: losses(logits, targets).mean()
        ),
        "this is the sum over the hidden words: a longer batch would have a larger loss; take the mean": (
            lambda logits, targets: losses(logits, targets).sum()
        ),
        "the target of position t is compared with the logits of t − 1: that is GPT's; BERT does not shift": (
            lambda logits, targets: hidden_loss.reference(logits[:, :-1], targets[:, 1:])
        ),
        "right, until a batch has no hidden word: then this is 0/0; its loss is 0": (
            lambda logits, targets: F.cross_entropy(logits.mT, targets, ignore_index=IGNORE_INDEX)
        ),
        "a mean for each text, then the mean of those: a hidden word of a text with few of them counts more": (
            lambda logits, targets: torch.stack([*map(hidden_loss.reference, logits, targets)]).mean()
        ),
        "the sign is missing: a log-probability is negative, a loss is not": (
            lambda logits, targets: -hidden_loss.reference(logits, targets)
        ),
        "a probability can be 0 in float32, and its logarithm is −∞: use log_softmax, not the logarithm of a softmax": (
            lambda logits, targets: _at_targets(logits.softmax(dim=-1).log(), targets)
        ),
        "exp(200) overflows in log Σ exp: torch.logsumexp and torch.log_softmax subtract the row's maximum first": (
            lambda logits, targets: _at_targets(_naive_log_softmax(logits), targets)
        ),
        "one maximum for all positions: where all logits are far below it, each exp is 0; subtract each row's own": (
            lambda logits, targets: _at_targets(_naive_log_softmax(logits - logits.max()), targets)
        ),
        "these are logits at the targets, not log-probabilities: `torch.log_softmax` comes first": _at_targets,
        "these are probabilities: the loss is −log p": (
            lambda logits, targets: _at_targets(logits.softmax(dim=-1), targets)
        ),
        "a softmax over the positions: at each position, the probabilities of all words sum to 1, so take dim=-1": (
            lambda logits, targets: _at_targets(logits.log_softmax(dim=1), targets)
        ),
        "targets of 0 are left out, but token 0 is one like any other: what does not count is IGNORE_INDEX": (
            lambda logits, targets: hidden_loss.reference(logits, targets.masked_fill(targets == 0, IGNORE_INDEX))
        ),
    }
    | {
        f"{least} beside a probability of 0 makes its loss {-math.log(least):.1f}, where it should be 200: use "
        "log_softmax, not the logarithm of a softmax": partial(_with_least, least)
        for least in (1e-8, 1e-9, 1e-10, 1e-12)
    }
)

# ---- does the second sentence follow? ----------------------------------------------------------------------------

Documents = list[list[list[int]]]
Pair = tuple[list[int], list[int], int]


def _documents_and_draws() -> list[tuple[Documents, int, int, bool, float]]:
    documents = [[[5, 6], [7, 8, 9], [10]], [[11], [12, 13]], [[14, 15, 16], [17, 18], [19]]]
    twins = [[[5, 6], [7]], [[8, 9], [7], [10]], [[5, 6], [7]]]  # two documents of the same words
    return [
        (documents, 0, 1, True, 0.3),
        (documents, 2, 0, True, 0.9),
        (documents, 1, 0, False, 0.2),
        (documents, 1, 0, False, 0.9),
        (documents, 0, 0, False, 0.1),
        (documents, 2, 1, False, 0.99),
        (documents, 1, 0, False, 0.0),
        (documents[::-1], 0, 1, False, 0.5),
        (twins, 0, 0, False, 0.45),
        (twins, 0, 0, False, 0.7),
        (twins, 0, 0, False, 0.99),  # the words of the next sentence, from another document
    ]


@exercise(
    cases=_documents_and_draws,
    hints=[
        "Where it does not follow: make a list of the sentences of all documents but this one, in order, and take the "
        "one at `int(pick * len(list))`.",
        "The pieces are `[CLS] first [SEP]` and `second [SEP]`: as many zeros as the one is long, as many ones as the "
        "other.",
    ],
)
def sentence_pair(documents: Documents, document: int, sentence: int, follows: bool, pick: float) -> Pair:
    first = documents[document][sentence]
    if follows:
        second = documents[document][sentence + 1]
    else:
        others = [other for i, text in enumerate(documents) if i != document for other in text]
        second = others[int(pick * len(others))]
    left, right = [CLS, *first, SEP], [*second, SEP]
    return left + right, [0] * len(left) + [1] * len(right), 0 if follows else 1


def _pair(
    documents: Documents,
    document: int,
    sentence: int,
    follows: bool,
    pick: float,
    *,
    further: int = 1,
    drawn: Callable[[Documents, int], Documents] = lambda documents, own: documents[:own] + documents[own + 1 :],
    begin: tuple[int, ...] = (CLS,),
    end: tuple[int, ...] = (SEP,),
    begin_second: tuple[int, ...] = (),
    end_second: tuple[int, ...] = (SEP,),
    segments: Callable[[list[int]], list[int]] = lambda right: right,
    label: Callable[[int], int] = lambda right: right,
) -> Pair:
    """With the sentence `further` on or one of those `drawn`, framed in another way, with other segments or labels."""
    text, others = documents[document], [other for each in drawn(documents, document) for other in each]
    second = text[sentence + further] if follows else others[int(pick * len(others))]
    left, right = [*begin, *text[sentence], *end], [*begin_second, *second, *end_second]
    return left + right, segments([0] * len(left) + [1] * len(right)), label(0 if follows else 1)


def _labeled_by_words(following: list[list[int]], ids: list[int], segments: list[int], label: int) -> Pair:
    second = [token for token, segment in zip(ids, segments, strict=True) if segment][:-1]
    return ids, segments, 0 if second in following else 1


def _without_its_sentences(documents: Documents, own: int) -> Documents:
    return [[sentence for sentence in text if sentence not in documents[own]] for text in documents]


sentence_pair.mistakes(
    {
        "the sentence always comes from the document after this one: draw from all the others": (
            partial(_pair, drawn=lambda documents, own: [documents[(own + 1) % len(documents)]])
        ),
        "a sentence that does not follow may come from the same document here: it is on the same subject, and may even "
        "be the next one; draw from the other documents": partial(_pair, drawn=lambda documents, own: documents),
        "a sentence that does not follow must come from another document, and yours come from this one": (
            partial(_pair, drawn=lambda documents, own: [documents[own]])
        ),
        "another document with the same words is another document: leave out the one of this number": (
            partial(_pair, drawn=lambda documents, own: [text for text in documents if text != documents[own]])
        ),
        "a sentence of another document counts even if this one has it, too: leave out a document, not its words": (
            partial(_pair, drawn=_without_its_sentences)
        ),
        "the labels are flipped: 0 means that the second sentence follows, 1 that it does not": (
            partial(_pair, label=lambda right: 1 - right)
        ),
        "the choice is flipped: where `follows` is True the next sentence stands, with label 0": (
            lambda documents, document, sentence, follows, pick: _pair(documents, document, sentence, not follows, pick)
        ),
        "the label is what `follows` says: another document may hold the very words that follow here": (
            lambda documents, document, sentence, *rest: _labeled_by_words(
                documents[document][sentence + 1 : sentence + 2],
                *sentence_pair.reference(documents, document, sentence, *rest),
            )
        ),
        "every label is the same, whatever `follows` says": partial(_pair, label=lambda right: 0),
        "the sentence that follows stands at `sentence + 1`; yours stands before": partial(_pair, further=-1),
        "all tokens are of segment 0: those of the second sentence and its `[SEP]` are of segment 1": (
            partial(_pair, segments=lambda right: [0] * len(right))
        ),
        "segments 1 and 2: they count from 0, and the model has two": (
            partial(_pair, segments=lambda right: [segment + 1 for segment in right])
        ),
        "the first `[SEP]` ends the first sentence and is of its segment, 0": (
            partial(_pair, end=(), begin_second=(SEP,))
        ),
        "the last `[SEP]` ends the second sentence and is of its segment, 1": (
            partial(_pair, segments=lambda right: [*right[:-1], 0])
        ),
        "segments are given to words alone: `[CLS]` and both `[SEP]` have one, too, as long as the ids": (
            partial(_pair, segments=lambda right: right[2:-1])
        ),
        "the second sentence ends without a `[SEP]`": partial(_pair, end_second=()),
        "no `[SEP]` between the sentences: where does the first one end?": partial(_pair, end=()),
        "`[CLS]` is missing: the label is read from its vector": partial(_pair, begin=()),
        "the second sentence begins with another `[CLS]`: one stands for both": partial(_pair, begin_second=(CLS,)),
        "drawn in two steps, a document and then one of its sentences: make one list of all sentences, and draw once": (
            lambda documents, document, sentence, follows, pick: _pair(
                documents,
                document,
                sentence,
                follows,
                pick,
                drawn=lambda texts, own: [(others := texts[:own] + texts[own + 1 :])[int(pick * len(others))]],
            )
        ),
    }
)
