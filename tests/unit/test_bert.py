"""BERT, what it learns from, and its children, each against numbers worked out another way.

That the models compute what Hugging Face's do is tested in `test_hugging_face.py`.
"""

import copy
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import padding_mask
from tfbook.checks import trusted
from tfbook.models.bert import (
    BERT,
    BERT_BASE,
    BERT_LARGE,
    Bert,
    BertForPretraining,
    Classifier,
    MaskedLanguageModel,
    PooledHead,
    Tagger,
    init_weights,
)
from tfbook.models.bert_variants import Albert, Electra, FactorizedEmbedding, student_of
from tfbook.models.blocks import Config
from tfbook.text import (
    BERT_SPECIALS,
    CLS,
    IGNORE_INDEX,
    MASK,
    PAD,
    SEP,
    UNK,
    Masked,
    Masking,
    NextSentence,
    join_segments,
    mask_tokens,
    next_sentence_pairs,
)
from tfbook.training import distillation_loss, electra_loss, losses, masked_loss, masked_token_loss, pretraining_loss

VOCAB = 20
SMALL = replace(BERT, d_model=8, heads=2, d_ff=12, layers=2, max_length=10, dropout=0.0)
IDS = torch.tensor([[CLS, 5, 6, 7, 8, SEP], [CLS, 9, 10, SEP, PAD, PAD], [CLS, 11, 12, 13, SEP, PAD]])
LENGTHS = torch.tensor([6, 4, 5])
SEGMENTS = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]])
MASKED = Masked(
    torch.tensor([[CLS, MASK, 6, 15, 8, SEP], [CLS, 9, MASK, SEP, PAD, PAD], [CLS, 11, 12, 13, SEP, PAD]]),
    torch.tensor([[-100, 5, -100, 7, 8, -100], [-100, -100, 10, -100, -100, -100], [-100] * 6]),
)
NOTHING = Masked(IDS, torch.full_like(IDS, IGNORE_INDEX))

Model = TypeVar("Model", bound=nn.Module)


def drawn(model: Model) -> Model:
    """With weights large enough that what a model says depends on what it reads."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4)
    return model


def count(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


# ---- the body ----------------------------------------------------------------------------------------------------


def parameters(vocab: int, config: Config, segments: int = 2) -> int:
    """Of the body: tables and a norm; in each block four matrices and two, all with biases, and two norms."""
    d, wide = config.d_model, config.d_ff
    block = 4 * (d * d + d) + (d * wide + wide) + (wide * d + d) + 2 * 2 * d
    return (vocab + config.max_length + segments) * d + 2 * d + config.layers * block


@pytest.mark.parametrize(
    ("config", "body", "millions"),
    [(BERT_BASE, 108_891_648, 110), (BERT_LARGE, 334_092_288, 340)],
    ids=["base", "large"],
)
def test_base_and_large_have_110_and_340_million_parameters(config: Config, body: int, millions: int) -> None:
    """By formula and by counting (Devlin et al., 2019, section 3, to two digits, with what pretraining adds)."""
    with torch.device("meta"):
        model = BertForPretraining(Bert(30_522, config))
    d = config.d_model
    assert count(model.bert) == parameters(30_522, config) == body
    heads = (d * d + d + 2 * d + 30_522) + (d * d + d + 2 * d + 2)  # the output's matrix is the table of words
    assert count(model) == body + heads
    assert round(count(model) / 1e7) == millions / 10


def test_weights_begin_small() -> None:
    """Matrices and tables with deviation 0.02, biases 0, norms as if they were not there."""
    torch.manual_seed(0)
    model = BertForPretraining(Bert(500, replace(SMALL, d_model=64, d_ff=256)))
    for name, weight in model.state_dict().items():
        if weight.ndim == 2:
            slack = 4.5 / math.sqrt(2 * weight.numel())
            assert abs(float(weight.std()) / 0.02 - 1) < slack, name
            assert abs(float(weight.mean())) < 4.5 * 0.02 / math.sqrt(weight.numel()), name
        else:
            assert bool((weight == float(name.endswith("norm.weight"))).all()), name


def test_small_weights_takes_layers_without_bias() -> None:
    layer = nn.Linear(200, 200, bias=False).apply(init_weights)
    assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=0.05)


def test_a_text_is_of_segment_0_unless_told_otherwise() -> None:
    model = drawn(Bert(VOCAB, SMALL))
    alone = model(IDS, LENGTHS)
    assert torch.equal(alone, model(IDS, LENGTHS, torch.zeros_like(IDS)))
    told = model(IDS, LENGTHS, SEGMENTS)
    assert torch.equal(alone[2], told[2])
    assert not torch.isclose(alone[0], told[0]).all(dim=-1).any()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("ids", "lengths", "segments", "message"),
    [
        (IDS + 15, LENGTHS, None, "ids holds ids from 15 to 28; expected 0 to 19"),
        (IDS, LENGTHS, SEGMENTS + 1, "segments holds ids from 1 to 2; expected 0 to 1"),
        (IDS.repeat(1, 2), LENGTHS, None, "ends at position 11; learned positions end at 9"),
        (IDS, LENGTHS[:1], None, "lengths holds 1 numbers; expected one for each of 3 texts"),
        (IDS, LENGTHS + 1, None, "lengths run from 5 to 7; expected 0 to size = 6"),
    ],
)
def test_what_it_cannot_read_is_refused(ids: Tensor, lengths: Tensor, segments: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bert(VOCAB, SMALL)(ids, lengths, segments)


# ---- heads -------------------------------------------------------------------------------------------------------


def test_a_label_of_a_text_is_read_from_its_first_vector_alone() -> None:
    x = torch.randn(2, 5, 8, requires_grad=True)
    drawn(PooledHead(SMALL, 3))(x).sum().backward()
    assert bool(x.grad[:, 0].all())
    assert not x.grad[:, 1:].any()


def test_heads_say_one_row_a_text_or_a_token() -> None:
    bert = drawn(Bert(VOCAB, SMALL))
    x = bert(IDS, LENGTHS, SEGMENTS)
    tagger, words, text = Tagger(bert, 4), MaskedLanguageModel(bert), Classifier(bert, 3)
    assert torch.equal(tagger(IDS, LENGTHS, SEGMENTS), tagger.head(x))
    assert torch.equal(words(IDS, LENGTHS, SEGMENTS), words.head(x))
    assert torch.equal(text(IDS, LENGTHS, SEGMENTS), text.head(x))
    assert [tuple(head(x).shape) for head in (tagger.head, words.head, text.head)] == [(3, 6, 4), (3, 6, 20), (3, 3)]
    torch.testing.assert_close(tagger.head(x[:, 2:3]), tagger.head(x)[:, 2:3])


def test_dropout_is_where_bert_has_it() -> None:
    """In the heads that fine-tuning adds; not in those of pretraining."""
    x, config = torch.randn(2, 5, 8), replace(SMALL, dropout=0.5)
    model = BertForPretraining(Bert(VOCAB, config))
    for head, drops in (
        (PooledHead(config, 3), True),
        (Tagger(model.bert, 3).head, True),
        (model.head, False),
        (model.next_sentence, False),
    ):
        assert torch.equal(drawn(head)(x), head(x)) != drops


# ---- hiding words ------------------------------------------------------------------------------------------------

WORDS = 45


def million() -> Tensor:
    """Texts of 1,000 tokens with each special token at many places, padded to different lengths."""
    torch.manual_seed(1)
    ids = torch.randint(len(BERT_SPECIALS), len(BERT_SPECIALS) + WORDS, (1200, 1000))
    ids[:, 0] = CLS
    for special in (UNK, SEP, MASK):
        ids[torch.rand(ids.shape) < 0.02] = special
    return ids.masked_fill(torch.arange(1000) >= torch.randint(900, 1001, (1200, 1)), PAD)


def far(found: Tensor | float, trials: Tensor | float, share: float) -> float:
    """How many standard deviations of a binomial `found` lies from its mean, at most."""
    found, trials = torch.as_tensor(found, dtype=torch.double), torch.as_tensor(trials, dtype=torch.double)
    if share in (0, 1):
        return 0.0 if bool((found == share * trials).all()) else math.inf
    return float(((found - share * trials) / (share * (1 - share) * trials).sqrt()).abs().max())


MASKINGS = {
    "BERT's": Masking(),
    "all hidden": Masking(mask=1.0, random=0.0),
    "all swapped": Masking(rate=0.4, mask=0.0, random=1.0),
    "all left": Masking(rate=0.4, mask=0.0, random=0.0),
    "thirds": Masking(rate=0.6, mask=1 / 3, random=1 / 3),
    "everything": Masking(rate=1.0),
}


@pytest.mark.parametrize("masking", MASKINGS.values(), ids=MASKINGS)
def test_each_share_is_binomial_over_a_million_words(masking: Masking) -> None:
    """Within 5 standard deviations: how many are drawn of every word and at every place, and what becomes of them."""
    ids = million()
    hidden, targets = mask_tokens(ids, len(BERT_SPECIALS) + WORDS, masking)
    words, asked = ids >= len(BERT_SPECIALS), targets != IGNORE_INDEX
    assert words.sum() > 1_000_000
    assert not (asked & ~words).any()
    assert torch.equal(targets[asked], ids[asked])
    assert torch.equal(hidden[~asked], ids[~asked])
    assert far(asked.sum(), words.sum(), masking.rate) < 5
    assert far(ids[asked].bincount(minlength=50)[5:], ids[words].bincount()[5:], masking.rate) < 5
    assert far(asked.sum(dim=0)[words.any(dim=0)], words.sum(dim=0)[words.any(dim=0)], masking.rate) < 5
    became, was, many = hidden[asked], ids[asked], asked.sum()
    assert far((became == MASK).sum(), many, masking.mask) < 5
    stay = 1 - masking.mask - masking.random + masking.random / WORDS  # a word is now and then swapped for itself
    assert far((became == was).sum(), many, max(0.0, stay)) < 5
    others = became[(became != MASK) & (became != was)]
    assert not torch.isin(others, torch.arange(len(BERT_SPECIALS))).any()


def test_at_rate_0_nothing_is_hidden() -> None:
    hidden, targets = mask_tokens(IDS, VOCAB, Masking(rate=0.0))
    assert torch.equal(hidden, IDS)
    assert bool((targets == IGNORE_INDEX).all())


def test_another_word_is_any_word_with_the_same_probability() -> None:
    """Whatever it replaces: a table of what was there against what stands there now."""
    ids = million()
    hidden, targets = mask_tokens(ids, len(BERT_SPECIALS) + WORDS, Masking(rate=1.0, mask=0.0, random=1.0))
    asked = targets != IGNORE_INDEX
    pairs = (ids[asked] - 5) * WORDS + hidden[asked] - 5
    assert int(hidden[asked].min()) == len(BERT_SPECIALS)
    assert int(hidden[asked].max()) == len(BERT_SPECIALS) + WORDS - 1
    assert far(pairs.bincount(minlength=WORDS**2), asked.sum(), 1 / WORDS**2) < 5.5
    assert far(hidden[asked].bincount()[5:], asked.sum(), 1 / WORDS) < 5


def test_words_are_drawn_one_by_one() -> None:
    """Two neighbours are both drawn with the square of the rate, and what becomes of one says nothing of the next."""
    ids = torch.randint(len(BERT_SPECIALS), 50, (1000, 1000))
    hidden, targets = mask_tokens(ids, 50, Masking())
    for what, share in ((targets != IGNORE_INDEX, 0.15), (hidden == MASK, 0.12)):
        for both in (what[:, 1:] & what[:, :-1], what[1:] & what[:-1]):
            assert far(both.sum(), both.numel(), share**2) < 8  # neighbouring pairs share a word: √3 wider at most


def test_masks_are_static_when_kept_and_dynamic_when_drawn_anew() -> None:
    """After k draws a word was asked for at least once with probability 1 − (1 − rate)^k."""
    ids, dice = torch.randint(len(BERT_SPECIALS), 50, (100, 1000)), torch.Generator().manual_seed(3)
    draws = [mask_tokens(ids, 50, Masking(), generator=dice).targets != IGNORE_INDEX for _ in range(10)]
    assert not any(torch.equal(draws[0], other) for other in draws[1:])
    assert far(torch.stack(draws).any(dim=0).sum(), ids.numel(), 1 - 0.85**10) < 5
    once, again = (mask_tokens(ids, 50, Masking(), generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(once.ids, again.ids)
    assert torch.equal(once.targets, again.targets)


def test_weights_are_factors_on_the_rate_of_each_word() -> None:
    ids = torch.tensor([7, 8, 9]).repeat(100_000, 1)
    weights = torch.zeros(10).index_copy_(0, torch.tensor([7, 8]), torch.tensor([1.0, 0.25]))
    drawn = mask_tokens(ids, 10, Masking(rate=0.6), weights=weights).targets != IGNORE_INDEX
    for word, rate in enumerate((0.6, 0.15, 0.0)):
        assert far(drawn[:, word].sum(), len(ids), rate) < 5


def test_without_a_generator_the_global_one_is_drawn_from() -> None:
    torch.manual_seed(4)
    first = mask_tokens(IDS, VOCAB, Masking(rate=0.5))
    torch.manual_seed(4)
    assert all(map(torch.equal, first, mask_tokens(IDS, VOCAB, Masking(rate=0.5))))


def test_the_text_that_came_is_left_alone() -> None:
    ids = IDS.clone()
    mask_tokens(ids, VOCAB, Masking(rate=1.0))
    assert torch.equal(ids, IDS)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"rate": 1.5}, "rate is 1.5; expected a share, 0 to 1"),
        ({"mask": -0.1}, "mask is -0.1; expected a share, 0 to 1"),
        ({"random": math.nan}, "random is nan; expected a share, 0 to 1"),
        ({"mask": 0.8, "random": 0.3}, "mask is 0.8 and random is 0.3; expected a sum of 1 or less"),
    ],
)
def test_shares_that_are_none_are_refused(shares: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Masking(**shares)


# ---- losses ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["masked tokens are counted", "no value is looked at"])
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """The second as in a step of training on CUDA."""
    with trusted(request.param):
        yield


def by_hand(model: MaskedLanguageModel, masked: Masked, segments: Tensor | None) -> float:
    """Word by word: −log of the probability that the softmax of all logits gives to the word that was there."""
    logits, losses = model(masked.ids, LENGTHS, segments), []
    for row, targets in enumerate(masked.targets.tolist()):
        for place, word in enumerate(targets):
            if word != IGNORE_INDEX:
                scores = [math.exp(score) for score in logits[row, place].tolist()]
                losses.append(-math.log(scores[word] / sum(scores)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("segments", [None, SEGMENTS], ids=["one segment", "two"])
@pytest.mark.usefixtures("either_way")
@torch.no_grad()
def test_the_loss_is_the_one_worked_out_by_hand(segments: Tensor | None) -> None:
    """Over the four words that were drawn, one of them swapped and one left, and no other position."""
    model = drawn(MaskedLanguageModel(Bert(VOCAB, SMALL)))
    assert float(masked_loss(model, MASKED, LENGTHS, segments).mean) == pytest.approx(by_hand(model, MASKED, segments))


@pytest.mark.usefixtures("either_way")
@torch.no_grad()
def test_both_losses_are_added() -> None:
    """The second is −mean log p(label)."""
    model, labels = drawn(BertForPretraining(Bert(VOCAB, SMALL))), torch.tensor([1, 0, 1])
    follows = torch.softmax(model.next_sentence(model.bert(MASKED.ids, LENGTHS, SEGMENTS)), dim=-1)
    second = -sum(math.log(follows[row, label]) for row, label in enumerate(labels.tolist())) / 3
    found = float(pretraining_loss(model, MASKED, LENGTHS, SEGMENTS, labels).mean)
    assert found == pytest.approx(by_hand(model, MASKED, SEGMENTS) + second)


@pytest.mark.usefixtures("either_way")
def test_where_nothing_was_drawn_the_loss_is_0_and_its_gradient_finite() -> None:
    """A short text among few has no hidden word now and then: 0/0 would end the training."""
    model = drawn(MaskedLanguageModel(Bert(VOCAB, SMALL)))
    loss = masked_loss(model, NOTHING, LENGTHS).mean
    loss.backward()
    assert loss.item() == 0
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert gradients
    assert not any(gradient.any() for gradient in gradients)  # NaN is True


def test_gradients_do_not_depend_on_a_look() -> None:
    """Of three texts, the third has no masked token."""
    model, found = drawn(MaskedLanguageModel(Bert(VOCAB, SMALL))).double(), []
    for looks in (True, False):
        with trusted(not looks):
            loss = masked_loss(model, MASKED, LENGTHS)
        assert list(map(int, loss.counts)) == [4]
        found.append(torch.autograd.grad(loss.mean, [*model.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-7)


def test_tokens_are_drawn_as_multinomial_draws_them() -> None:
    logits = torch.randn(500, VOCAB)
    torch.manual_seed(0)
    expected = torch.multinomial(logits.softmax(dim=-1), 1)[:, 0]
    torch.manual_seed(0)
    assert torch.equal(losses._drawn(logits), expected)


def test_the_loss_is_computed_in_float32() -> None:
    """A log-probability near −8 has steps of 1/32 in bfloat16."""
    logits = torch.randn(7, 500).bfloat16()
    loss = masked_token_loss(logits, torch.arange(7)).mean
    assert loss.dtype == torch.float32
    assert torch.equal(loss, F.cross_entropy(logits.float(), torch.arange(7)))


# ---- pairs of sentences ------------------------------------------------------------------------------------------


def test_two_segments_share_one_text() -> None:
    assert join_segments([7, 8], [9]) == ([CLS, 7, 8, SEP, 9, SEP], [0, 0, 0, 0, 1, 1])
    assert join_segments([7, 8]) == ([CLS, 7, 8, SEP], [0, 0, 0, 0])
    assert join_segments((7,), (8, 9, 10)) == ([CLS, 7, SEP, 8, 9, 10, SEP], [0, 0, 0, 1, 1, 1, 1])


def library(documents: int, sentences: int) -> list[list[tuple[int, int]]]:
    """Documents whose sentences say where they stand: (document, sentence)."""
    return [[(number, place) for place in range(sentences)] for number in range(documents)]


def test_each_sentence_with_a_successor_is_paired_once() -> None:
    """In the documents' order; a positive is followed by its successor, a negative by another document's sentence."""
    pairs = next_sentence_pairs(library(4, 500), seed=0)
    assert [pair.first for pair in pairs] == [(number, place) for number in range(4) for place in range(499)]
    for first, second, label in pairs:
        if label:
            assert first[0] != second[0]
        else:
            assert second == (first[0], first[1] + 1)


def test_labels_are_balanced_and_negatives_come_from_everywhere() -> None:
    """Half of the pairs follow; each other document, and each of its sentences, is as likely as the next."""
    pairs = next_sentence_pairs(library(5, 4001), seed=1)
    labels = torch.tensor([pair.label for pair in pairs])
    assert far(labels.sum(), len(labels), 0.5) < 5
    ordered = Counter((pair.first[0], pair.second[0]) for pair in pairs if pair.label)
    assert len(ordered) == 20
    assert far(torch.tensor([*ordered.values()]), labels.sum(), 1 / 20) < 5
    halves = torch.tensor([pair.second[1] < 2000 for pair in pairs if pair.label])
    assert far(halves.sum(), len(halves), 2000 / 4001) < 5


def test_the_same_seed_gives_the_same_pairs() -> None:
    documents = library(3, 50)
    assert next_sentence_pairs(documents, seed=2) == next_sentence_pairs(documents, seed=np.int64(2))
    assert next_sentence_pairs(documents, seed=2) != next_sentence_pairs(documents, seed=3)


def test_short_documents_are_no_obstacle() -> None:
    """One of one sentence begins no pair but may end one; an empty one does neither."""
    documents = [[], [(1, 0)], [(2, 0), (2, 1)], []]
    pairs = [pair for seed in range(40) for pair in next_sentence_pairs(documents, seed=seed)]
    assert len(pairs) == 40
    assert {*pairs} == {NextSentence((2, 0), (2, 1), 0), NextSentence((2, 0), (1, 0), 1)}
    assert next_sentence_pairs([[(0, 0)], [(1, 0)]], seed=0) == []


@pytest.mark.parametrize(("documents", "found"), [([], 0), ([[], [[5], [6]]], 1)])
def test_one_document_has_no_others_to_draw_from(documents: list[list[list[int]]], found: int) -> None:
    with pytest.raises(ValueError, match=f"documents holds {found} with sentences; expected two or more"):
        next_sentence_pairs(documents, seed=0)


# ---- ALBERT ------------------------------------------------------------------------------------------------------


def test_albert_has_one_block_and_a_narrow_table() -> None:
    """In ALBERT-base, with words of width 128, 11 million numbers do for 109 (Lan et al., 2020, Table 1, says 12)."""
    with torch.device("meta"):
        model = Albert(30_000, BERT_BASE, d_embed=128)
    one = parameters(30_000, replace(BERT_BASE, layers=1)) - 30_000 * 768
    assert count(model) == one + 30_000 * 128 + 128 * 768 + 768
    assert count(model) < parameters(30_000, BERT_BASE) / 9
    assert len(model.stack.blocks) == 12


def test_a_word_is_looked_up_and_widened() -> None:
    words = drawn(FactorizedEmbedding(VOCAB, 3, 8))
    expected = words.weight[IDS] @ words.up.weight.T + words.up.bias
    torch.testing.assert_close(words(IDS), expected)


def unshared(model: Albert) -> Albert:
    """The same numbers with a block of its own for every layer."""
    twin = copy.deepcopy(model)
    twin.stack.blocks = nn.ModuleList(copy.deepcopy(block) for block in twin.stack.blocks)
    return twin


def test_a_shared_block_gathers_the_gradients_of_all_its_uses() -> None:
    """As many blocks with the same numbers compute the same; the gradients of the one are the sums of theirs."""
    model = drawn(Albert(VOCAB, replace(SMALL, layers=3), d_embed=4))
    twin = unshared(model)
    out, other = model(IDS, LENGTHS, SEGMENTS), twin(IDS, LENGTHS, SEGMENTS)
    torch.testing.assert_close(out, other)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    (other * weights).sum().backward()
    for name, weight in model.stack.blocks[0].named_parameters():
        gradients = torch.stack([block.get_parameter(name).grad for block in twin.stack.blocks])
        torch.testing.assert_close(weight.grad, gradients.sum(dim=0), rtol=1e-4, atol=1e-4)
        assert bool(gradients.flatten(1).any(dim=1).all()), name


def test_a_narrow_table_is_the_matrix_of_the_output_as_well() -> None:
    model = MaskedLanguageModel(Albert(VOCAB, SMALL, d_embed=4))
    assert model.head.unembed.weight is model.bert.embed.weight
    assert model(IDS, LENGTHS).shape == (3, 6, VOCAB)


# ---- ELECTRA -----------------------------------------------------------------------------------------------------


def electra() -> Electra:
    """The generator has one block, the discriminator two."""
    generator = MaskedLanguageModel(Bert(VOCAB, replace(SMALL, layers=1)))
    return drawn(Electra(generator, Bert(VOCAB, SMALL)))


def says_always(model: Electra, word: int) -> None:
    """The generator draws this word, whatever it reads, and is not surprised beyond measure by another."""
    with torch.no_grad():
        model.generator.head.unembed.weight.zero_()
        model.generator.head.unembed.bias.copy_(F.one_hot(torch.tensor(word), VOCAB) * 200.0)


@pytest.mark.usefixtures("either_way")
@torch.no_grad()
def test_what_the_generator_guesses_right_was_not_replaced() -> None:
    """It fills 7 in everywhere, which is right in one of four places; all tokens count, padding does not."""
    model = electra()
    says_always(model, 7)
    filled = torch.tensor([[CLS, 7, 6, 7, 7, SEP], [CLS, 9, 7, SEP, PAD, PAD], [CLS, 11, 12, 13, SEP, PAD]])
    replaced = torch.tensor([[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    p = torch.sigmoid(model.discriminator(filled, LENGTHS)[..., 0])
    right = torch.where(replaced.bool(), p, 1 - p)[padding_mask(LENGTHS, 6)]
    for weight in (0.0, 1.0, 50.0):
        expected = masked_loss(model.generator, MASKED, LENGTHS).mean - weight * right.log().mean()
        torch.testing.assert_close(electra_loss(model, MASKED, LENGTHS, weight=weight).mean, expected)
    default = masked_loss(model.generator, MASKED, LENGTHS).mean - 50 * right.log().mean()
    torch.testing.assert_close(electra_loss(model, MASKED, LENGTHS).mean, default)


@pytest.mark.usefixtures("either_way")
@torch.no_grad()
def test_what_stands_in_is_drawn_from_the_generator() -> None:
    """Not its best guess: where it gives a word probability 1/4, it stands there in a quarter of the draws."""
    model, seen = electra(), []
    model.generator.head.unembed.weight.zero_()
    model.generator.head.unembed.bias.fill_(-100.0)[[6, 7, 8, 9]] = 0.0
    model.discriminator.bert.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0]))
    electra_loss(model, Masked(*(part.repeat(1000, 1) for part in MASKED)), LENGTHS.repeat(1000))
    filled, asked = seen[0].unflatten(0, (1000, 3)), MASKED.targets != IGNORE_INDEX
    assert bool((filled[:, ~asked] == MASKED.ids[~asked]).all())
    assert far(filled[:, asked].flatten().bincount(minlength=VOCAB)[[6, 7, 8, 9]], 4000, 1 / 4) < 5
    assert far(filled[:, asked][:, :2].eq(6).all(dim=1).sum(), 1000, 1 / 16) < 5


@pytest.mark.usefixtures("either_way")
def test_no_gradient_flows_through_the_draw() -> None:
    """What is the generator's alone learns from its own loss, however much weight the discriminator's has."""
    model = electra()
    electra_loss(model, MASKED, LENGTHS).mean.backward()
    found = {name: weight.grad.clone() for name, weight in model.generator.named_parameters()}
    model.zero_grad()
    masked_loss(model.generator, MASKED, LENGTHS).mean.backward()
    for name, weight in model.generator.named_parameters():
        assert torch.equal(found[name], weight.grad) == (name != "bert.embed.weight"), name


def test_generator_and_discriminator_have_one_table_of_words() -> None:
    model = electra()
    assert model.discriminator.bert.embed.weight is model.generator.bert.embed.weight
    assert model.generator.head.unembed.weight is model.generator.bert.embed.weight
    names = [name for name, _ in model.named_parameters()]
    assert [name for name in names if name.endswith("embed.weight")] == ["generator.bert.embed.weight"]
    message = r"embedding has shape \(20, 8\), the discriminator's \(20, 16\); expected one that both can share"
    with pytest.raises(ValueError, match=message):
        Electra(model.generator, Bert(VOCAB, replace(SMALL, d_model=16)))


def test_a_bert_that_becomes_a_discriminator_keeps_its_own_embedding() -> None:
    """It may be part of another model; its other weights are those that are trained."""
    bert = Bert(VOCAB, SMALL)
    before, embedding = dict(bert.named_parameters()), bert.embed.weight
    model = Electra(MaskedLanguageModel(Bert(VOCAB, replace(SMALL, layers=1))), bert)
    assert bert.embed.weight is embedding
    shared = dict(model.discriminator.bert.named_parameters())
    assert all(shared[name] is weight for name, weight in before.items() if name != "embed.weight")
    assert shared["embed.weight"] is model.generator.bert.embed.weight


@pytest.mark.usefixtures("either_way")
def test_electra_trains_on_where_nothing_was_drawn() -> None:
    """All tokens are original then, and that is what the discriminator learns."""
    model = electra()
    loss = electra_loss(model, NOTHING, LENGTHS).mean
    loss.backward()
    assert loss.item() > 0
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)
    assert not any(weight.grad.any() for weight in model.generator.head.layer.parameters())


@pytest.mark.parametrize("shape", [(2, 0), (0, 6)], ids=["empty texts", "no texts"])
def test_without_any_tokens_the_loss_of_electra_is_0(shape: tuple[int, int]) -> None:
    """And so is its gradient: a batch may be empty where batches are cut from a stream."""
    model, ids = electra(), torch.zeros(shape, dtype=torch.int64)
    loss = electra_loss(model, Masked(ids, ids), torch.zeros(len(ids), dtype=torch.int64))
    assert loss.mean.item() == 0
    loss.mean.backward()
    assert not any(weight.grad.any() for weight in model.parameters() if weight.grad is not None)


@torch.no_grad()
def test_texts_of_length_0_do_not_count_in_the_loss_of_electra() -> None:
    loss = electra_loss(electra(), NOTHING, torch.zeros_like(LENGTHS))
    assert [float(total) for total in loss.totals] == [float(count) for count in loss.counts] == [0, 0]


# ---- distillation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 3, 7)], ids=str)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_loss_of_a_student_is_t_squared_times_kl(shape: tuple[int, ...], temperature: float) -> None:
    """As `F.kl_div` has it, which takes logarithms first and the target second."""
    student, teacher = torch.randn(shape), torch.randn(shape)
    logs = [torch.log_softmax(logits.reshape(-1, 7) / temperature, dim=-1) for logits in (student, teacher)]
    expected = temperature**2 * F.kl_div(*logs, reduction="batchmean", log_target=True)
    torch.testing.assert_close(distillation_loss(student, teacher, temperature=temperature).mean, expected)
    assert distillation_loss(teacher, teacher, temperature=temperature).mean.item() == 0


def test_the_default_temperature_is_2() -> None:
    student, teacher = torch.randn(2, 4, 7)
    default, two = distillation_loss(student, teacher), distillation_loss(student, teacher, temperature=2.0)
    assert torch.equal(default.mean, two.mean)


def test_the_gradient_keeps_its_size_as_the_temperature_grows() -> None:
    """Towards (student − teacher) / labels, both centred (Hinton et al., 2015, eq. 4), a row of the mean each."""
    student, teacher = torch.randn(3, 7, requires_grad=True), torch.randn(3, 7)
    limit = ((student - student.mean(dim=-1, keepdim=True)) - (teacher - teacher.mean(dim=-1, keepdim=True))) / 7 / 3
    config = []
    for temperature in (1.0, 4.0, 16.0, 64.0, 256.0):
        loss = distillation_loss(student, teacher, temperature=temperature).mean
        (gradient,) = torch.autograd.grad(loss, student)
        config.append(float(gradient.norm() / limit.detach().norm()))
    assert config[-1] == pytest.approx(1, abs=0.02)
    assert 0.5 < min(config) < max(config) < 2
    torch.testing.assert_close(gradient, limit.detach(), rtol=0.05, atol=1e-3)


def test_no_gradient_flows_into_the_teacher() -> None:
    student, teacher = torch.randn(2, 4, 7, requires_grad=True)
    student.retain_grad()
    teacher.retain_grad()
    distillation_loss(student, teacher).mean.backward()
    assert bool(student.grad.any())
    assert teacher.grad is None


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_is_positive(temperature: float) -> None:
    with pytest.raises(ValueError, match=f"temperature is {temperature}; expected more than 0"):
        distillation_loss(torch.ones(1, 2), torch.ones(1, 2), temperature=temperature)


def numbered(layers: int) -> Bert:
    """A teacher whose blocks say which they are."""
    teacher = drawn(Bert(VOCAB, replace(SMALL, layers=layers)))
    for number, block in enumerate(teacher.stack.blocks):
        nn.init.constant_(block.feed_forward.branch.down.bias, float(number))
    return teacher


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        (12, [*range(12)]),
        (6, [0, 2, 4, 6, 8, 10]),
        (5, [0, 2, 4, 7, 9]),
        (4, [0, 3, 6, 9]),
        (11, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (1, [0]),
    ],
)
def test_a_student_begins_with_evenly_spaced_blocks(layers: int, kept: list[int]) -> None:
    """Each a `floor` of its share of the way, so that no two gaps differ by more than one."""
    teacher = numbered(12)
    student = student_of(teacher, layers)
    assert [int(block.feed_forward.branch.down.bias[0]) for block in student.stack.blocks] == kept
    assert student.config == replace(teacher.config, layers=layers)
    for block, number in zip(student.stack.blocks, kept, strict=True):
        own, other = block.state_dict(), teacher.stack.blocks[number].state_dict()
        assert all(torch.equal(own[name], other[name]) for name in other)
    for name in ("embed.weight", "segments.weight", "stack.position.embedding.weight", "stack.embed_norm.weight"):
        assert torch.equal(student.get_parameter(name), teacher.get_parameter(name))


def test_a_student_shares_no_memory_with_its_teacher() -> None:
    """Training it leaves the teacher alone."""
    teacher = numbered(4)
    before, said = copy.deepcopy(teacher.state_dict()), teacher(IDS, LENGTHS)
    student = student_of(teacher, 4)
    torch.testing.assert_close(student(IDS, LENGTHS), said)
    with torch.no_grad():
        for weight in student.parameters():
            weight.add_(1.0)
    assert all(torch.equal(weight, before[name]) for name, weight in teacher.state_dict().items())
    assert len(teacher.stack.blocks) == 4
    assert teacher.config.layers == 4


def test_a_student_of_albert_shares_its_block_as_well() -> None:
    student = student_of(Albert(VOCAB, replace(SMALL, layers=4), d_embed=4), 2)
    assert len(student.stack.blocks) == 2
    assert student.stack.blocks[0] is student.stack.blocks[1]


@pytest.mark.parametrize("layers", [0, 3])
def test_a_student_has_no_more_layers_than_its_teacher(layers: int) -> None:
    with pytest.raises(ValueError, match=f"layers is {layers}; expected 1 to 2, the teacher's"):
        student_of(Bert(VOCAB, SMALL), layers)
