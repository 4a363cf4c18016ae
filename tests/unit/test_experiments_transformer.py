"""The Transformer's measurements on cases worked out by hand, and its comparisons on a corpus of a few sentences."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tfbook import data, runtime, training
from tfbook.attention import POSITIONS
from tfbook.course.experiments import transformer as study
from tfbook.course.experiments import transformer_inside as inside
from tfbook.course.experiments import translators
from tfbook.course.experiments.transformer import Variant
from tfbook.course.experiments.translators import Task
from tfbook.data.translation import Translations
from tfbook.models.blocks import Config
from tfbook.models.language_model import LanguageModel
from tfbook.models.transformer import Transformer
from tfbook.text import Pair

pytestmark = pytest.mark.usefixtures("float32")

TINY = Config(d_model=8, heads=2, d_ff=16, layers=1, position=POSITIONS["rotary"])
SHORT = Variant(config=TINY, warmup=2, steps=4)


@pytest.fixture
def corpus(pairs: list[Pair]) -> Translations:
    linked = [pair._replace(sure=frozenset({(0, 0)}), possible=frozenset({(0, 0), (0, 1)})) for pair in pairs]
    return Translations(
        name="toy",
        source_language="english",
        target_language="french",
        splits=dict.fromkeys(("train", "valid", "test", "long", "template"), linked),
        references={pair.source: [pair.target] for pair in linked},
    )


@pytest.fixture
def task(corpus: Translations) -> Task:
    return Task.of(corpus, corpus["train"])


@pytest.fixture
def model(task: Task) -> Transformer:
    runtime.seed(3)
    return SHORT.build(task).eval()


# ---- variants ----------------------------------------------------------------------------------------------------


def test_a_variant_is_what_it_says(task: Task) -> None:
    """Untied, the decoder has a second table; Xavier's weights are larger than PyTorch's own and have no biases."""
    plain, untied = SHORT.build(task), replace(SHORT, tied=False).build(task)
    table = len(task.target_vocab) * TINY.d_model
    assert study.parameters(untied) - study.parameters(plain) == table
    runtime.seed(1)
    larger = replace(SHORT, xavier=True).build(task).encoder.stack.blocks[0].feed_forward.branch
    assert not larger.up.bias.any()
    bound = math.sqrt(6 / (8 + 16))  # of Glorot & Bengio's uniform distribution; PyTorch's own is 1 / √8
    assert 1 / math.sqrt(8) < float(larger.up.weight.detach().abs().max()) <= bound


def test_a_run_follows_its_variant_and_its_seed(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    fit = training.fit
    monkeypatch.setattr(training, "fit", lambda *given, **options: (seen.append(given[3]), fit(*given, **options))[1])
    variant = replace(SHORT, weight_decay=0.5, lr=1e-3, smoothing=0.2)
    one, same, other = (study.trained(variant, task, task.corpus["train"], seed=seed)[1].loss for seed in (1, 1, 2))
    assert one == same != other
    assert (seen[0].steps, seen[0].lr, seen[0].weight_decay, seen[0].betas) == (4, 1e-3, 0.5, (0.9, 0.98))
    assert [seen[0].schedule(step, 4) for step in (0, 1, 4)] == [0.5, 1.0, 0.0]
    plain = study.trained(replace(variant, smoothing=0.0), task, task.corpus["train"], seed=1)[1].loss
    assert plain[0] != one[0], "smoothing reaches the loss"


# ---- how good, and how sure --------------------------------------------------------------------------------------


def test_a_word_is_right_where_the_likeliest_one_is_the_true_one(task: Task, model: Transformer) -> None:
    words = study.next_words(model, task.corpus["test"], task)
    assert torch.equal(words.right, torch.isclose(words.confidence.log(), words.logp))
    assert (words.confidence >= words.logp.exp() - 1e-6).all()


# ---- stored comparisons, in small --------------------------------------------------------------------------------


@pytest.fixture
def few(corpus: Translations, monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus of a few sentences in the place of the real ones, and runs of a few steps."""
    monkeypatch.setattr(data, "load", lambda name: corpus)
    monkeypatch.setattr(study, "SMALL", TINY)
    for table in ("PARTS", "REGULARIZERS", "NORMS", "RIVALS"):
        short = {
            name: replace(v, config=replace(v.config, **vars(_small(v)))) for name, v in getattr(study, table).items()
        }
        monkeypatch.setattr(study, table, {name: replace(v, steps=20, warmup=2) for name, v in short.items()})
    monkeypatch.setattr(translators, "LENGTHS", ((1, 4),))


def _small(variant: Variant) -> Config:
    return replace(TINY, dropout=variant.config.dropout, residual=variant.config.residual)


@pytest.mark.usefixtures("few")
def test_comparisons_have_a_row_for_each_variant_and_seed() -> None:
    for experiment, table in ((study.parts, study.PARTS), (study.regularizers, study.REGULARIZERS)):
        found = experiment((1, 2), longest=4)
        assert [(row["seed"], row["variant"]) for row in found] == [(seed, name) for seed in (1, 2) for name in table]
        assert all(row["curve"][-1][0] == 20 for row in found)
        assert all(math.isfinite(row["loss"]) and row["train loss"] > 0 for row in found)


@pytest.mark.usefixtures("few")
def test_norms_keep_a_mean_of_each_ten_updates() -> None:
    found = study.norms((1,), longest=4)
    assert [row["variant"] for row in found] == list(study.NORMS)
    assert all(len(row["curve"]) == 2 for row in found)


@pytest.mark.usefixtures("few")
def test_the_race_trains_the_recurrent_translator_and_the_rivals() -> None:
    found = study.against_recurrence((1,), recurrent_steps=2)
    assert [row["model"] for row in found] == ["recurrent", "Transformer", "Transformer of equal size"]
    assert all(row["curve"][-1]["seconds"] > 0 and row["parameters"] > 0 for row in found)


def test_the_rival_of_equal_size_is_of_equal_size() -> None:
    """Within two in a hundred of the stored recurrent translator, on the corpus of both."""
    corpus = data.load("english-french")
    built = study.RIVALS["Transformer of equal size"].build(Task.of(corpus, corpus["train"]))
    assert abs(study.parameters(built) / 1_702_876 - 1) < 0.02


# ---- reading rows ------------------------------------------------------------------------------------------------


def _run(model: str, seed: int, bleu: list[float], pace: float) -> dict[str, Any]:
    curve = [{"step": 10 * i, "seconds": pace * i, "bleu": b} for i, b in enumerate(bleu, start=1)]
    return {"model": model, "seed": seed, "curve": curve, "test": bleu[-1]}


RACE = [
    _run("recurrent", 1, [20.0, 60.0, 80.0], pace=10.0),
    _run("Transformer", 1, [50.0, 80.0, 90.0], pace=5.0),
    _run("recurrent", 2, [20.0, 60.0, 95.0], pace=10.0),
    _run("Transformer", 2, [50.0, 80.0, 90.0], pace=5.0),
]


def test_time_to_match_is_a_share_of_the_recurrent_time() -> None:
    """Seed 1: 80 BLEU after 10 of 30 seconds. Seed 2: never."""
    assert study.time_to_match(pd.DataFrame(RACE)) == [pytest.approx(1 / 3), math.inf]


# ---- live --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residuals", [True, False])
@pytest.mark.parametrize("norms", [True, False])
def test_what_is_ablated_is_gone(residuals: bool, norms: bool) -> None:
    """With branches that find nothing, a stack with sums passes its input on and one without says nothing."""
    model = inside.ablated(5, replace(TINY, layers=2, position=POSITIONS["none"]), residuals=residuals, norms=norms)
    assert any(name.endswith("norm.weight") for name, _ in model.named_parameters()) == norms
    with torch.no_grad():
        for block in model.stack.blocks:
            for part in (block.mixer, block.feed_forward):
                for linear in (m for m in part.branch.modules() if isinstance(m, nn.Linear)):
                    linear.weight.zero_()
    ids = torch.arange(5)[None]
    x = model.embed(ids)
    expected = (F.layer_norm(x, (8,)) if norms else x) if residuals else torch.zeros_like(x)
    torch.testing.assert_close(model.stack(x), expected)


def test_the_task_is_to_say_a_row_backwards() -> None:
    """The same row whenever a step is asked for; a model that is right with certainty has loss 0."""
    row = inside.reversal(3, rows=2)
    assert torch.equal(row, inside.reversal(3, rows=2))
    assert not torch.equal(row, inside.reversal(4, rows=2))
    backwards = nn.Module()
    backwards.forward = lambda rows: 50 * F.one_hot(rows.flip(1), 10).float()
    assert inside.reversal_loss(backwards, row) < 1e-6


def test_gradients_by_layer_are_those_of_the_loss() -> None:
    """Finite differences of one model's loss with respect to one matrix."""
    runtime.seed(2)
    found = inside.gradient_by_layer(replace(TINY, layers=3), symbols=7, rows=2, length=4)
    assert len(found) == 3
    runtime.seed(2)
    model = LanguageModel(7, replace(TINY, layers=3))
    study.xavier(model)
    model.double()
    ids = torch.randint(7, (2, 5))
    matrix = model.stack.blocks[1].feed_forward.branch.down.weight

    def loss() -> float:
        with torch.no_grad():
            return float(F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()))

    slopes = []
    for place in range(matrix.numel()):
        ends = []
        for move in (1e-5, -2e-5):
            matrix.data.view(-1)[place] += move
            ends.append(loss())
        matrix.data.view(-1)[place] += 1e-5
        slopes.append((ends[0] - ends[1]) / 2e-5)
    assert found[1] == pytest.approx(math.hypot(*slopes), rel=1e-3)


def test_times_have_a_number_for_each_length() -> None:
    steps = inside.step_seconds((2, 3), rows=2, vocabulary=20, rounds=1)
    assert steps.keys() == {"recurrent", "Transformer"}
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in steps.values())


def test_cross_maps_are_rows_of_weights_over_each_source(task: Task) -> None:
    pairs = task.corpus["test"]
    model = replace(SHORT, config=replace(TINY, layers=2)).build(task)
    maps = inside.cross_maps(model, pairs, task)
    assert [tuple(w.shape) for w in maps] == [(2, 2, len(pair.target), len(pair.source)) for pair in pairs]
    alone = inside.cross_maps(model, pairs[1:2], task)[0]
    torch.testing.assert_close(alone, maps[1], rtol=0, atol=1e-5)
    assert all((w >= 0).all() and (w.sum(dim=-1) <= 1 + 1e-5).all() for w in maps), "what is left goes to <eos>"


def test_each_head_has_its_alignment_error(task: Task, model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One head that finds the only sure link and no other, one that finds nothing right."""
    pair = Pair(("a", "b"), ("x",), frozenset({(1, 0)}), frozenset({(1, 0)}))
    weights = torch.tensor([[[[0.1, 0.9]], [[0.8, 0.2]]]])  # (layer, head, target, source)
    monkeypatch.setattr(inside, "cross_maps", lambda model, pairs, task: [weights])
    assert inside.head_errors(model, [pair], task).tolist() == [[0.0, 1.0]]
