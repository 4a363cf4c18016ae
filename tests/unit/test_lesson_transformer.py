"""The Transformer's measurements on cases worked out by hand, and its comparisons on a corpus of a few sentences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn import functional as F
from toy_translators import SHORT, TINY

from tfbook import data, runtime, training
from tfbook.attention import POSITIONS
from tfbook.course import translators
from tfbook.course.translators import Task
from tfbook.data.translation import Translations
from tfbook.lessons.transformer import figures, schematics, stacks, study
from tfbook.lessons.transformer.study import Variant
from tfbook.models.blocks import Config, PostNorm, PreNorm
from tfbook.models.transformer import Transformer
from tfbook.text import Pair

pytestmark = pytest.mark.usefixtures("float32")


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
    for table in ("PARTS", "REGULARIZERS", "RECIPES", "RIVALS"):
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
def test_recipes_have_a_row_for_each_recipe_and_seed() -> None:
    found = study.recipes((1, 2), longest=4)
    assert [(row["seed"], row["recipe"]) for row in found] == [
        (seed, name) for seed in (1, 2) for name in study.RECIPES
    ]
    assert all(row["parameters"] > 0 and 0 <= row["test"] <= 100 for row in found)


def test_the_recipe_of_2017_follows_its_formula() -> None:
    """d^(−1/2) · min(t^(−1/2), t · warmup^(−3/2)) with 300 steps of warm-up; everything else as in the paper."""
    variant = study.RECIPES["recipe of 2017"]
    recipe, d = variant.recipe(), variant.config.d_model
    for t in (1, 300, 900):
        rate = recipe.lr * recipe.schedule(t - 1, variant.steps)
        assert rate == pytest.approx(d**-0.5 * min(t**-0.5, t * 300**-1.5))
    assert (variant.config.residual, variant.config.dropout, variant.smoothing) == (PostNorm, 0.1, 0.1)
    assert (variant.tied, variant.xavier, recipe.betas) == (True, True, (0.9, 0.98))


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


def test_claims_against_lesson_01_take_the_worse_run() -> None:
    """The Transformer leads by 2 and 4 up to 20 words, and falls behind by 10 and 20 beyond."""
    lengths = ((3, 8), (9, 14), (15, 20), (21, 30))
    bleu = {("recurrent", 1): (80, 80, 80, 60), ("Transformer", 1): (84, 84, 82, 50)}
    bleu |= {("recurrent", 2): (80, 80, 80, 60), ("Transformer", 2): (84, 84, 84, 40)}
    rows = [
        row | {"by_length": [[*length, b] for length, b in zip(lengths, bleu[row["model"], row["seed"]], strict=True)]}
        for row in RACE
    ]
    assert study.against_lesson_01(pd.DataFrame(rows)) == {6: math.inf, 7: 2, 8: 10}


# ---- deep stacks -------------------------------------------------------------------------------------------------

SHALLOW = replace(TINY, layers=2, position=POSITIONS["none"])


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("branches", [True, False])
def test_norms_that_are_left_out_are_gone(branches: bool, last: bool) -> None:
    """With branches that find nothing, a pre-norm stack passes its input on, through its last norm if it has one."""
    model = stacks.StackVariant(config=SHALLOW, branch_norms=branches, last_norm=last).build()
    kept = [name for name, _ in model.named_parameters() if name.endswith("norm.weight")]
    assert len(kept) == 4 * branches + last
    with torch.no_grad():
        for block in model.stack.blocks:
            for part in (block.mixer, block.feed_forward):
                for linear in (m for m in part.branch.modules() if isinstance(m, nn.Linear)):
                    linear.weight.zero_()
                    linear.bias.zero_()
    x = model.embed(torch.arange(5)[None])
    torch.testing.assert_close(model.stack(x), F.layer_norm(x, (8,)) if last else x)


def test_a_stack_warms_up_and_repeats_itself() -> None:
    """The first step of a warm-up of ten is a tenth as long; the same seed gives the same losses."""
    cold, warm = stacks.StackVariant(config=SHALLOW), stacks.StackVariant(config=SHALLOW, warmup=10)
    losses = [variant.trained(lr=lr, steps=2, seed=1) for variant, lr in ((cold, 1e-3), (cold, 1e-3), (warm, 1e-2))]
    assert losses[0] == losses[1]
    assert losses[2] == pytest.approx(losses[0])
    assert cold.trained(lr=1e-3, steps=2, seed=2) != losses[0]


def test_a_run_that_becomes_infinite_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "reversal_loss", lambda model, rows: model(rows).sum() * torch.inf)
    assert len(stacks.StackVariant(config=SHALLOW).trained(lr=1.0, steps=5, seed=1)) == 1
    monkeypatch.setattr(stacks, "VARIANTS", {"one": stacks.StackVariant(config=SHALLOW)})
    assert {row["last"] for row in stacks.norms((1,), steps=3)} == {stacks.DIVERGED}


def test_what_is_learned_is_read_from_the_right_rows() -> None:
    """Pre-norm: the worst run at the best rate. Post-norm: the best run at any rate."""
    found = {"pre-norm": {1e-3: (0.1, 2.0), 1e-2: (0.3, 0.4)}, "post-norm": {1e-3: (2.0, 1.5), 1e-2: (2.2, 1.8)}}
    rows = [
        {"variant": variant, "lr": lr, "seed": seed, "last": last}
        for variant, rates in found.items()
        for lr, losses in rates.items()
        for seed, last in enumerate(losses)
    ]
    assert stacks.learned(pd.DataFrame(rows)) == {9: 0.4, 10: 1.5}


def test_adding_keeps_what_differs_between_positions() -> None:
    """A layer that says the same at every position: alone nothing differs any more, added something does."""
    found = stacks.spreads(lambda: nn.Sequential(nn.Linear(8, 8), Mean()), 2, 8, positions=4)
    assert found["attention alone"][1:] == pytest.approx([0, 0], abs=1e-6)
    assert min(found["with residuals"]) > 0.1


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=1, keepdim=True).expand_as(x)


def test_patience_follows_each_run_through_its_steps() -> None:
    found = stacks.patience((1,), at=(20, 21))
    assert len(found) == 1 * 2 * 3 * 2
    table = stacks.with_patience(pd.DataFrame(found))
    assert list(table.columns) == ["after 20 steps", "after 21 steps"]
    assert len(table) == 6
    assert "post-norm, warm-up, rate 0.003" in table.index


def test_norms_have_a_row_for_each_variant_rate_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        name: replace(v, config=replace(SHALLOW, residual=v.config.residual)) for name, v in stacks.VARIANTS.items()
    }
    monkeypatch.setattr(stacks, "VARIANTS", small)
    found = stacks.norms((1, 2), steps=3)
    assert len(found) == 2 * len(small) * len(stacks.RATES)
    assert all(math.isfinite(row["first"]) and row["last"] > 0 for row in found)


def test_the_task_is_to_reverse_a_row() -> None:
    """The same row whenever a step is asked for; a model that is right with certainty has loss 0."""
    row = stacks.reversal(3, rows=2)
    assert torch.equal(row, stacks.reversal(3, rows=2))
    assert not torch.equal(row, stacks.reversal(4, rows=2))
    backwards = nn.Module()
    backwards.forward = lambda rows: 50 * F.one_hot(rows.flip(1), 10).float()
    assert stacks.reversal_loss(backwards, row) < 1e-6


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
def test_gradients_by_layer_are_those_of_the_loss(residual: type[PreNorm]) -> None:
    """A finite difference along the gradient of one matrix has the gradient's norm as its slope."""
    found = stacks.gradient_by_layer(3, residual, seed=2)
    assert len(found) == 3
    runtime.seed(2)
    model, ids = stacks.untrained(3, residual)
    matrix = model.double().stack.blocks[1].feed_forward.branch.down.weight

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    (gradient,) = torch.autograd.grad(loss(), matrix)
    with torch.no_grad():
        before, step = loss(), 1e-4 * gradient / gradient.norm()
        matrix += step
        slope = float(loss() - before) / 1e-4
    assert found[1] == pytest.approx(slope, rel=1e-2)


def test_a_step_of_no_size_changes_nothing() -> None:
    """The change grows with the learning rate, in proportion while it is small."""
    small, large = (stacks.change_by_step(2, PreNorm, lr=lr) for lr in (1e-5, 2e-5))
    assert stacks.change_by_step(2, PreNorm, lr=0.0) == 0
    assert large == pytest.approx(2 * small, rel=0.05)
    means = stacks.change_by_step(2, PreNorm, seed=1), stacks.change_by_step(2, PreNorm, seed=2)
    assert stacks.mean_change(2, PreNorm, seeds=(1, 2)) == pytest.approx(sum(means) / 2)


def test_larger_weights_make_a_larger_first_loss() -> None:
    """Without norms Xavier's weights begin far above a model that knows nothing; the last norm does most about it."""
    bare = stacks.StackVariant(branch_norms=False, last_norm=False)
    first = {xavier: stacks.first_loss(replace(bare, xavier=xavier)) for xavier in (True, False)}
    assert first[True] > 2 * first[False] > stacks.KNOWING_NOTHING
    assert stacks.first_loss(replace(bare, branch_norms=True)) < first[True] / 2
    assert stacks.first_loss(replace(bare, last_norm=True)) < stacks.KNOWING_NOTHING + 1


# ---- live --------------------------------------------------------------------------------------------------------


def test_a_crossing_pair_has_neighbors_that_change_places() -> None:
    straight = Pair(("a",) * 7, ("b",) * 7, frozenset({(0, 0), (1, 1)}), frozenset())
    swapped = straight._replace(sure=frozenset({(0, 1), (1, 0)}))
    assert study.crossing([straight, swapped]) is swapped
    with pytest.raises(ValueError, match="no pair of about 7 words"):
        study.crossing([straight])


def test_the_package_model_has_the_parts_of_the_lesson() -> None:
    model = study.package_model(7, 9, 8, 2, 16, 1)
    assert model.decoder.unembed.weight is model.decoder.embed.weight
    assert isinstance(model.encoder.stack.blocks[0].mixer, PreNorm)


def test_cross_maps_are_rows_of_weights_over_each_source(task: Task) -> None:
    pairs = task.corpus["test"]
    model = replace(SHORT, config=replace(TINY, layers=2)).build(task)
    maps = study.cross_maps(model, pairs, task)
    assert [tuple(w.shape) for w in maps] == [(2, 2, len(pair.target), len(pair.source)) for pair in pairs]
    alone = study.cross_maps(model, pairs[1:2], task)[0]
    torch.testing.assert_close(alone, maps[1], rtol=0, atol=1e-5)
    assert all((w >= 0).all() and (w.sum(dim=-1) <= 1 + 1e-5).all() for w in maps), "what is left goes to <eos>"


def test_each_head_has_its_alignment_error(task: Task, model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One head that finds the only sure link and no other, one that finds nothing right."""
    pair = Pair(("a", "b"), ("x",), frozenset({(1, 0)}), frozenset({(1, 0)}))
    weights = torch.tensor([[[[0.1, 0.9]], [[0.8, 0.2]]]])  # (layer, head, target, source)
    monkeypatch.setattr(study, "cross_maps", lambda model, pairs, task: [weights])
    assert study.head_errors(model, [pair], task).tolist() == [[0.0, 1.0]]


def test_the_best_head_has_the_lowest_error(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = task.corpus["test"]
    model = replace(SHORT, config=replace(TINY, layers=2)).build(task)
    monkeypatch.setattr(study, "head_errors", lambda *given: torch.tensor([[0.4, 0.3], [0.2, 0.5]]))
    monkeypatch.setattr(study, "crossing", lambda pairs: pairs[0])
    found = study.best_head(model, pairs, task)
    assert found.place == (1, 0)
    assert found.errors == pytest.approx([0.4, 0.3, 0.2, 0.5])
    torch.testing.assert_close(found.weights, study.cross_maps(model, pairs[:1], task)[0][1, 0])


def test_a_head_misses_the_words_whose_largest_weight_has_no_link() -> None:
    pair = Pair(("a", "b"), ("x", "y", "z"), frozenset({(0, 0), (0, 1), (1, 2)}), frozenset())
    weights = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    assert study.Head((0, 0), [0.1], pair, weights).misses() == ["y"]


# ---- pictures ----------------------------------------------------------------------------------------------------

SOURCE, TARGET = ["the", "cat", "<eos>"], ["le", "chat", "<eos>"]
RUNS = pd.DataFrame(
    {"variant": name, "lr": lr, "seed": 1, "last": 1.0, "first": 2.0} for name in stacks.VARIANTS for lr in stacks.RATES
)
LENGTHS = pd.DataFrame([{"model": "recurrent", "seed": seed, "by_length": [[3, 8, 90.0]]} for seed in (1, 2)])
PICTURES: dict[str, Callable[[], tuple[Figure, str]]] = {
    "residual stream": schematics.draw_residual,
    "blocks": schematics.draw_blocks,
    "the whole machine": lambda: schematics.draw_transformer(SOURCE, TARGET),
    "masks": lambda: schematics.draw_masks(SOURCE, TARGET, *[torch.ones(3, 3).tril().bool()] * 3),
    "spreads": lambda: figures.draw_spreads({"attention alone": [1.0, 0.1]}),
    "training": lambda: figures.draw_training([3.0, 1.0], 9),
    "three attentions": lambda: figures.draw_three_attentions(
        [study.AttentionMap("title", torch.eye(3), SOURCE, SOURCE)] * 3, Pair(tuple(SOURCE), tuple(TARGET))
    ),
    "norms": lambda: figures.draw_norms(RUNS),
    "sweep": lambda: figures.draw_sweep(RUNS),
    "first step": lambda: figures.draw_first_step({"pre-norm": [1.0, 2.0]}, (2, 4), {"pre-norm": [0.1, 0.2]}),
    "lengths": lambda: figures.draw_lengths(LENGTHS),
}


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn_and_described(name: str) -> None:
    figure, alt = PICTURES[name]()
    figure.canvas.draw()
    assert len(alt.split()) > 10
    assert alt.endswith(".")


def test_a_ring_stands_in_the_row_of_the_word_that_is_written() -> None:
    """Link (source 2, target 0): the row that reads `<bos>` and writes the first word."""
    pair = Pair(("a", "b", "c"), ("x", "y"), frozenset({(2, 0), (0, 1)}))
    cross = study.AttentionMap("cross", torch.full((3, 4), 0.25), ["x", "y", "<eos>"], ["a", "b", "c", "<eos>"])
    others = [study.AttentionMap("self", torch.eye(3), SOURCE, SOURCE)] * 2
    figure, _ = figures.draw_three_attentions([*others, cross], pair)
    rings = [{tuple(line.get_xydata()[0] - 0.5) for line in axes.lines} for axes in figure.axes[:3]]
    assert rings == [set(), set(), {(2, 0), (0, 1)}]


def test_the_machine_is_complete() -> None:
    """Seven norms, three attentions, two feed-forward layers, masks, and targets that are shifted by one."""
    figure, _ = schematics.draw_transformer(SOURCE, TARGET)
    texts = [text.get_text() for text in figure.axes[0].texts]
    expected = {"norm": 7, "self-attention": 2, "cross-attention": 1, "feed-forward": 2, "causal": 1, "padding": 2}
    assert {name: texts.count(name) for name in expected} == expected
    assert [texts.count(letter) for letter in "QKV"] == [3, 3, 3]
    assert (texts.count("<bos>"), texts.count("chat")) == (1, 3)
