"""Translators in several lessons: the task, recurrent translators, quality, alignment, and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tfbook import runtime, training
from tfbook.course.cost import in_turns
from tfbook.course.metrics import Link, alignment_error_rate, bleu, exact_match, hard_alignment
from tfbook.data.translation import Translations
from tfbook.generation.search import translate
from tfbook.models.seq2seq import RecurrentDecoder, RecurrentEncoder, Seq2SeqConfig, Translator
from tfbook.text.pairs import Batch, Batches, Pair, collate, filter_by_length
from tfbook.text.vocabulary import SPECIALS, Sentence, Vocabulary
from tfbook.text.words import detokenize
from tfbook.training.losses import translation_loss

if TYPE_CHECKING:
    from pandas import DataFrame

LENGTHS = ((3, 8), (9, 14), (15, 20), (21, 30), (31, 40), (41, 50))  # words in the source; training ends at 20
LEARNING_RATE = 7e-3  # of the recurrent translators


@dataclass(frozen=True)
class Task:
    """A corpus, and the vocabularies through which a model reads and writes it."""

    corpus: Translations
    source_vocab: Vocabulary
    target_vocab: Vocabulary

    @classmethod
    def of(cls, corpus: Translations, pairs: Sequence[Pair], *, min_count: int = 1) -> Task:
        """The task with vocabularies of the words that occur at least `min_count` times in `pairs`."""
        source = Vocabulary((pair.source for pair in pairs), min_count=min_count)
        return cls(corpus, source, Vocabulary((pair.target for pair in pairs), min_count=min_count))

    def translator(
        self,
        decoder: Callable[[Seq2SeqConfig], RecurrentDecoder],
        *,
        width: int,
        d_encoder: int | None = None,
        dropout: float = 0.1,
    ) -> Translator:
        """An untrained translator with embeddings and hidden states of one width, on the chosen device."""
        config = Seq2SeqConfig(
            source_vocab=len(self.source_vocab),
            target_vocab=len(self.target_vocab),
            d_embed=width,
            d_hidden=width,
            d_encoder=d_encoder,
            dropout=dropout,
        )
        return Translator(RecurrentEncoder(config), decoder(config)).to(runtime.device())


class Quality(NamedTuple):
    """BLEU (0 to 100), the share of exact translations, and sacrebleu's signature."""

    bleu: float
    exact: float
    signature: str


def quality(model: nn.Module, pairs: Sequence[Pair], task: Task) -> Quality:
    """Quality of greedy translations of the sources of `pairs`, against all references in the corpus."""
    translator = cast(Translator, model)  # or a Transformer; callbacks of training are typed for any module
    translations = translate(translator, pairs, task.source_vocab, task.target_vocab, max_length=80)
    return quality_of([translation.words for translation in translations], pairs, task.corpus)


def quality_of(translations: Sequence[Sentence], pairs: Sequence[Pair], corpus: Translations) -> Quality:
    """Quality of translations of the sources of `pairs`, against all references in the corpus."""
    write = partial(detokenize, language=corpus.target_language)
    hypotheses = [write(words) for words in translations]
    references = [[write(words) for words in corpus.references[pair.source]] for pair in pairs]
    score = bleu(hypotheses, references)
    return Quality(score.score, exact_match(hypotheses, references), score.signature)


def by_length(model: nn.Module, task: Task, count: int) -> dict[tuple[int, int], Quality]:
    """Quality in each length range of `LENGTHS`, on up to `count` held-out sentences each."""
    held_out = [*task.corpus["test"], *task.corpus["long"]]
    return {length: quality(model, filter_by_length(held_out, *length)[:count], task) for length in LENGTHS}


@torch.inference_mode()
def forced_weights(model: Translator, pairs: Sequence[Pair], task: Task) -> list[Float[Tensor, "target source"]]:
    """Attention weights for each word of the true translations, under teacher forcing, without `<eos>`."""
    model.eval()
    batch = collate(pairs, task.source_vocab, task.target_vocab).to(runtime.device())
    weights = model(batch.source, batch.source_lengths, batch.target_in).weights.float().cpu()
    return [weights[i, : len(pair.target), : len(pair.source)] for i, pair in enumerate(pairs)]


def alignment_error(model: Translator, pairs: Sequence[Pair], task: Task) -> float:
    """Alignment error rate of the largest weights against the gold links of `pairs`."""
    found = [hard_alignment(weights) for weights in forced_weights(model, pairs, task)]
    return alignment_error_rate(found, *gold_links(pairs))


def gold_links(pairs: Sequence[Pair]) -> tuple[list[set[Link]], list[set[Link]]]:
    """The sure and the possible links of each pair, as `alignment_error_rate` takes them."""
    return [set(pair.sure) for pair in pairs], [set(pair.possible) for pair in pairs]


# ---- recurrent translators ---------------------------------------------------------------------------------------


def trained(
    decoder: Callable[[Seq2SeqConfig], RecurrentDecoder],
    seed: int,
    task: Task,
    pairs: Sequence[Pair],
    *,
    width: int,
    steps: int,
    dropout: float,
    d_encoder: int | None = None,
    evaluate: training.Evaluate | None = None,
) -> tuple[Translator, training.History]:
    """A translator trained on `pairs` with the recipe of all stored comparisons, and its history."""
    runtime.seed(seed)
    model = task.translator(decoder, width=width, d_encoder=d_encoder, dropout=dropout)
    batches = Batches(pairs, task.source_vocab, task.target_vocab, size=128, seed=seed)
    recipe = training.Recipe(steps=steps, lr=LEARNING_RATE, schedule=training.warmup_cosine(30))
    return model, training.fit(model, translation_loss, batches, recipe, evaluate=evaluate)


def random_batch(rows: int, words: int, vocabulary: int) -> Batch:
    """Sentences of `words` random words each, as many in the source as in the target."""
    source, target = (torch.randint(len(SPECIALS), vocabulary, (rows, words)) for _ in range(2))
    lengths = torch.full((rows,), words)
    return Batch(source=source, source_lengths=lengths, target_in=target, target_out=target, target_lengths=lengths)


def random_translator(decoder: type[RecurrentDecoder], width: int, vocabulary: int) -> Translator:
    """An untrained translator with one width throughout."""
    config = Seq2SeqConfig(source_vocab=vocabulary, target_vocab=vocabulary, d_embed=width, d_hidden=width)
    return Translator(RecurrentEncoder(config), decoder(config)).to(runtime.device())


def training_seconds(models: Mapping[str, nn.Module], batch: Batch, rounds: int) -> dict[str, list[float]]:
    """Seconds per training step of each model on `batch`, one per round; they take turns, after a round to warm up."""
    optimizers = {name: torch.optim.AdamW(model.parameters(), fused=True) for name, model in models.items()}

    def step(name: str) -> None:
        with runtime.autocast():
            loss = translation_loss(models[name], batch).mean
        optimizers[name].zero_grad()
        loss.backward()
        optimizers[name].step()

    return in_turns({name: partial(step, name) for name in models}, rounds)


def lead_at_equal_seconds(points: DataFrame, by: str, one: str, other: str) -> list[float]:
    """For each seed: validation BLEU of `one` minus that of `other`, at the time when the first of them finishes.

    `points` are unnested learning curves; `by` is the column that names the two.
    """
    leads = []
    for _, runs in points.groupby("seed"):
        curves = [runs[runs[by] == name].sort_values("seconds") for name in (one, other)]  # as `np.interp` expects
        end = min(curve["seconds"].max() for curve in curves)
        ours, theirs = (float(np.interp(end, curve["seconds"], curve["bleu"])) for curve in curves)
        leads.append(ours - theirs)
    return leads
