"""Metrics for translations (BLEU, exact match) and for word alignments (AER)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

Link = tuple[int, int]  # (source position, target position), from 0
LinkSet = Set[Link]


class Bleu(NamedTuple):
    """BLEU (0 to 100) and sacrebleu's signature, which records how it was computed."""

    score: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Bleu:
    """Corpus BLEU by sacrebleu, with a list of references for each hypothesis (Papineni et al., 2002; Post, 2018).

    Raises ValueError when there are no hypotheses, or not one list of references for each of them.
    """
    from sacrebleu.metrics import BLEU

    _check_corpus(hypotheses, references)
    count = max(map(len, references))
    streams: Any = [[list(row)[i] if i < len(row) else None for row in references] for i in range(count)]
    metric = BLEU()
    return Bleu(metric.corpus_score(list(hypotheses), streams).score, str(metric.get_signature()))


def exact_match(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Share of hypotheses, 0 to 1, that equal one of their references. Raises ValueError as `bleu` does."""
    _check_corpus(hypotheses, references)
    return sum(h in row for h, row in zip(hypotheses, references, strict=True)) / len(hypotheses)


def _check_corpus(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if isinstance(hypotheses, str) or any(isinstance(row, str) for row in references):
        raise ValueError(
            "hypotheses and each row of references must be lists of strings; got a string, a list of letters"
        )
    if not hypotheses or len(hypotheses) != len(references) or not all(references):
        found = f"hypotheses holds {len(hypotheses)} and references {len(references)} lists"
        raise ValueError(f"{found}; expected the same number of each, at least one, and no empty list")


def hard_alignment(weights: Float[Tensor, "target source"]) -> set[Link]:
    """A link from each target word to the source word with the largest attention weight.

    Raises ValueError unless `weights` are those of one sentence.
    """
    if weights.ndim != 2 or not weights.shape[1]:
        raise ValueError(f"weights has shape {tuple(weights.shape)}; expected (target, source) of one sentence")
    return {(int(source), target) for target, source in enumerate(weights.argmax(dim=-1))}


def alignment_error_rate(found: Sequence[LinkSet], sure: Sequence[LinkSet], possible: Sequence[LinkSet]) -> float:
    """AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|) over a corpus, with S ⊆ P; 0 is perfect (Och & Ney, 2003, eq. 22).

    Raises ValueError when the corpora differ in length, hold no links, or a sure link is not possible.
    """
    if not len(found) == len(sure) == len(possible):
        sizes = f"{len(found)}, {len(sure)}, {len(possible)}"
        raise ValueError(f"found, sure, possible hold {sizes} sentences; expected the same number of each")
    if any(not s <= p for s, p in zip(sure, possible, strict=True)):
        raise ValueError("possible lacks a link of sure; every sure link is also possible")
    total = sum(map(len, found)) + sum(map(len, sure))
    if not total:
        raise ValueError("found and sure hold no links at all")
    agreed = sum(len(a & s) + len(a & p) for a, s, p in zip(found, sure, possible, strict=True))
    return 1 - agreed / total
