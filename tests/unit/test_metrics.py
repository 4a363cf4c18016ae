"""BLEU against sacrebleu and against the definition worked out by hand; exact matches; alignments."""

import math
from collections.abc import Callable
from inspect import unwrap

import pytest
import sacrebleu
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tfbook.course.metrics import Link, alignment_error_rate, bleu, exact_match, hard_alignment

SENTENCES = ["the cat sat on the mat .", "a dog runs in the park today .", "she reads ."]
REFERENCES = [
    ["the cat sat on a mat .", "a cat was on the mat ."],
    ["a dog runs in the park today ."],
    ["she is reading .", "she reads .", "reading , she is ."],
]


# ---- BLEU and exact match ----------------------------------------------------------------------------------------


def test_bleu_is_the_definition() -> None:
    """Clipped counts of one to four words, by hand, and the penalty for being short."""
    found = bleu(["the the cat sat down"], [["the cat sat down here"]])
    precisions = [4 / 5, 3 / 4, 2 / 3, 1 / 2]  # the second "the" and what it begins are not in the reference
    assert found.score == pytest.approx(100 * math.prod(precisions) ** 0.25)
    shorter = bleu(["the cat sat down"], [["the cat sat down here"]])
    assert shorter.score == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_bleu_of_several_references_is_that_of_sacrebleu() -> None:
    """sacrebleu wants streams, the k-th reference of every sentence, and None where a sentence has fewer."""
    streams = [[row[k] if k < len(row) else None for row in REFERENCES] for k in range(3)]
    found = bleu(SENTENCES, REFERENCES)
    assert found.score == pytest.approx(sacrebleu.corpus_bleu(SENTENCES, streams).score)
    assert 0 < found.score < 100
    assert "tok:13a" in found.signature
    assert f"version:{sacrebleu.__version__}" in found.signature


def test_bleu_counts_the_corpus_not_the_mean_of_its_sentences() -> None:
    """One reference each: the same as sacrebleu's, and not the mean of the scores of the sentences."""
    references = [[row[0]] for row in REFERENCES]
    found = bleu(SENTENCES, references).score
    assert found == pytest.approx(sacrebleu.corpus_bleu(SENTENCES, [[row[0] for row in REFERENCES]]).score)
    mean = sum(bleu([h], [r]).score for h, r in zip(SENTENCES, references, strict=True)) / len(SENTENCES)
    assert found != pytest.approx(mean, abs=1)


def test_a_perfect_translation_has_bleu_100_by_any_of_its_references() -> None:
    assert bleu(SENTENCES, [[sentence] for sentence in SENTENCES]).score == pytest.approx(100)
    assert bleu(SENTENCES, [["nothing like it", s] for s in SENTENCES]).score == pytest.approx(100)


def test_exact_match_is_the_share_that_equals_a_reference() -> None:
    assert exact_match(SENTENCES, REFERENCES) == pytest.approx(2 / 3)
    assert exact_match(["a"], [["b", "c"]]) == 0
    assert exact_match(["cat"], [["cats"]]) == 0


@pytest.mark.parametrize("metric", [bleu, exact_match])
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([], [], "hypotheses holds 0 and references 0 lists; expected the same number of each, at least one"),
        (["a", "b"], [["a"]], "hypotheses holds 2 and references 1 lists; expected the same number of each"),
        (["a"], [[]], "expected the same number of each, at least one, and no empty list"),
        (["the cat"], ["the cat"], "each row of references must be lists of strings; got a string"),
        ("the cat", [["the cat"]] * 7, "hypotheses and each row of references must be lists of strings; got a string"),
    ],
    ids=["none", "one missing", "no reference", "references not in lists", "a string for a corpus"],
)
def test_a_corpus_that_does_not_fit_is_refused(
    metric: Callable[..., object], hypotheses: list[str], references: list[list[str]], message: str
) -> None:
    """A reference that is no list would otherwise be read as a list of letters, without an error."""
    with pytest.raises(ValueError, match=message):
        metric(hypotheses, references)


# ---- alignments --------------------------------------------------------------------------------------------------


@given(st.integers(0, 5), st.integers(1, 6), st.integers(0, 2**31))
def test_hard_alignment_links_each_target_word_to_its_largest_weight(target: int, source: int, seed: int) -> None:
    weights = torch.rand(target, source, generator=torch.Generator().manual_seed(seed))
    rows = [row.tolist() for row in weights]
    assert hard_alignment(weights) == {(row.index(max(row)), t) for t, row in enumerate(rows)}


@pytest.mark.parametrize("weights", [torch.ones(3), torch.ones(1, 2, 3), torch.ones(2, 0)], ids=["1d", "3d", "empty"])
def test_hard_alignment_wants_the_weights_of_one_sentence(weights: Tensor) -> None:
    with pytest.raises(ValueError, match=r"weights has shape \(.*\); expected \(target, source\) of one sentence"):
        unwrap(hard_alignment)(weights)


DIAGONAL = {(0, 0), (1, 1), (2, 2)}


@pytest.mark.parametrize(
    ("found", "sure", "possible", "expected"),
    [
        (DIAGONAL, DIAGONAL, DIAGONAL, 0.0),
        (DIAGONAL | {(2, 1)}, DIAGONAL, DIAGONAL | {(2, 1)}, 0.0),  # a possible link more costs nothing
        ({(0, 1), (1, 2)}, DIAGONAL, DIAGONAL, 1.0),
        (set(), DIAGONAL, DIAGONAL, 1.0),
        (DIAGONAL | {(0, 2)}, DIAGONAL, DIAGONAL, 1 - 6 / 7),  # one wrong link more
        ({(0, 0)}, DIAGONAL, DIAGONAL, 1 - 2 / 4),  # two sure links missing
        ({(0, 0), (1, 1), (3, 2)}, {(0, 0)}, {(0, 0), (1, 1), (2, 2)}, 1 - (1 + 2) / (3 + 1)),
    ],
    ids=["perfect", "possible", "disjoint", "nothing found", "one too many", "two missing", "sure and possible"],
)
def test_the_alignment_error_rate_of_one_sentence(
    found: set[Link], sure: set[Link], possible: set[Link], expected: float
) -> None:
    """1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), worked out by hand; frozen sets, as the corpora hold them, do as well."""
    assert alignment_error_rate([found], [sure], [possible]) == pytest.approx(expected)
    assert alignment_error_rate([found], [frozenset(sure)], [frozenset(possible)]) == pytest.approx(expected)


def test_the_alignment_error_rate_adds_up_links_over_the_corpus() -> None:
    """A long sentence weighs more: one of four links wrong, and the only one of the other sentence."""
    found = [{(0, 0), (1, 1), (2, 2), (3, 0)}, {(0, 1)}]
    sure = [{(0, 0), (1, 1), (2, 2), (3, 3)}, {(0, 0)}]
    assert alignment_error_rate(found, sure, sure) == pytest.approx(1 - (3 + 3) / (5 + 5))


def test_sure_links_alone_make_it_one_minus_f1() -> None:
    """Where S = P, precision p and recall r give AER = 1 − 2pr / (p + r)."""
    found, gold = {(0, 0), (1, 1), (2, 1)}, {(0, 0), (1, 1), (2, 2), (3, 3)}
    precision, recall = 2 / 3, 2 / 4
    expected = 1 - 2 * precision * recall / (precision + recall)
    assert alignment_error_rate([found], [gold], [gold]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("found", "sure", "possible", "message"),
    [
        (
            [set()],
            [set(), set()],
            [set(), set()],
            "found, sure, possible hold 1, 2, 2 sentences; expected the same number of each",
        ),
        ([{(0, 0)}], [{(0, 0), (1, 1)}], [{(0, 0)}], "possible lacks a link of sure; every sure link is also possible"),
        ([set()], [set()], [set()], "found and sure hold no links at all"),
        ([], [], [], "found and sure hold no links at all"),
    ],
    ids=["sentences missing", "sure but not possible", "no links", "no sentences"],
)
def test_alignments_that_do_not_fit_are_refused(
    found: list[set[Link]], sure: list[set[Link]], possible: list[set[Link]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        alignment_error_rate(found, sure, possible)
