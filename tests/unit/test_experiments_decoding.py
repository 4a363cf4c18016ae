"""Searches, calibration and the time per token, on cases worked out by hand and a corpus of a few sentences."""

from __future__ import annotations

import pytest
import torch

from tfbook import data, runtime
from tfbook.attention import POSITIONS
from tfbook.course.experiments import decoding as study
from tfbook.course.experiments.transformer import Variant, next_words
from tfbook.course.experiments.translators import Task
from tfbook.data.translation import Translations
from tfbook.generation.search import CachedDecoder, UncachedDecoder, greedy_search, mean_penalty, translate
from tfbook.models.blocks import Config
from tfbook.models.transformer import Transformer
from tfbook.text import Pair

pytestmark = pytest.mark.usefixtures("float32")

TINY = Config(d_model=8, heads=2, d_ff=16, layers=1, position=POSITIONS["rotary"])
SHORT = Variant(config=TINY, warmup=2, steps=4)


@pytest.fixture
def corpus(pairs: list[Pair]) -> Translations:
    return Translations(
        name="toy",
        source_language="english",
        target_language="french",
        splits=dict.fromkeys(("train", "valid", "test"), pairs),
        references={pair.source: [pair.target] for pair in pairs},
    )


@pytest.fixture
def task(corpus: Translations) -> Task:
    return Task.of(corpus, corpus["train"])


@pytest.fixture
def model(task: Task) -> Transformer:
    runtime.seed(3)
    return SHORT.build(task).eval()


# ---- how good, and how sure --------------------------------------------------------------------------------------


def test_text_scores_are_sums_over_the_words_of_each_pair(task: Task, model: Transformer) -> None:
    pairs = task.corpus["test"]
    words, totals = next_words(model, pairs, task), study.text_scores(model, pairs, task)
    config = [len(pair.target) + 1 for pair in pairs]  # with <eos>
    assert len(words.logp) == sum(config)
    torch.testing.assert_close(torch.stack([part.sum() for part in words.logp.split(config)]), totals)
    alone = study.text_scores(model, pairs[1:2], task)
    torch.testing.assert_close(alone, totals[1:2], rtol=0, atol=1e-5)


def test_calibration_error_by_hand() -> None:
    """Half of the words in the bin from 0.9: they say 0.95 and half are right; a quarter each in two that are exact."""
    confidence = torch.tensor([0.95, 0.95, 0.95, 0.95, 0.5, 0.5, 1.0, 0.0])
    right = torch.tensor([True, True, False, False, True, False, True, False])
    table = study.reliability(confidence, right, bins=10)
    torch.testing.assert_close(table[5], torch.tensor([0.25, 0.5, 0.5]))
    torch.testing.assert_close(table[9], torch.tensor([5 / 8, 4.8 / 5, 3 / 5]), msg="confidence 1 is in the last bin")
    assert float(table[:, 0].sum()) == 1
    assert study.calibration_error(table) == pytest.approx(5 / 8 * (4.8 / 5 - 3 / 5))


def test_empty_bins_count_nothing() -> None:
    table = study.reliability(torch.tensor([0.65]), torch.tensor([True]))
    assert not table[[0, 9]].any()
    assert study.calibration_error(table) == pytest.approx(0.35)


# ---- searches ----------------------------------------------------------------------------------------------------


def test_searches_try_every_width_under_every_penalty(corpus: Translations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", lambda name: corpus)
    monkeypatch.setattr(study, "LESSON", SHORT)
    found = study.searches((1,), widths=(1, 2), count=1)
    assert [(row["penalty"], row["width"]) for row in found] == [(name, w) for name in study.PENALTIES for w in (1, 2)]


def test_a_search_of_width_1_finds_what_greedy_finds(task: Task, model: Transformer) -> None:
    pairs = task.corpus["test"]
    result = study.searched(model, pairs, task, width=1, penalty=mean_penalty())
    found = translate(model, pairs, task.source_vocab, task.target_vocab, max_length=80, search=greedy_search)
    texts = [pair._replace(target=t.words) for pair, t in zip(pairs, found, strict=True)]
    assert result["log p"] == pytest.approx(float(study.text_scores(model, texts, task).mean()), abs=1e-4)
    assert result["length"] == sum(len(text.target) for text in texts) / sum(len(pair.target) for pair in pairs)
    assert result["bleu"] == pytest.approx(study.bleu_of(texts, task))


def test_the_references_themselves_have_bleu_100(task: Task) -> None:
    long_enough = [pair for pair in task.corpus["test"] if len(pair.target) >= 4]
    assert study.bleu_of(long_enough, task) == pytest.approx(100)


# ---- time --------------------------------------------------------------------------------------------------------


def test_times_have_a_number_for_each_word(model: Transformer) -> None:
    for kind in (CachedDecoder, UncachedDecoder):
        seconds = study.token_seconds(model, kind, words=5, rows=2, source=3)
        assert len(seconds) == 5
        assert min(seconds) > 0
