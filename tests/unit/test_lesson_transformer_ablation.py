"""The translator without its parts: what is really gone, what ships, and what the tables of its runs say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor
from toy_translators import TINY

from tfbook import data, runtime
from tfbook.attention import POSITIONS
from tfbook.course.cost import parameters
from tfbook.course.experiments import stored
from tfbook.course.translators import Quality, Task
from tfbook.data.translation import Translations
from tfbook.lessons.transformer import ablation, broken, inside, localized
from tfbook.models.transformer import Transformer
from tfbook.text import Pair, collate, filter_by_length

pytestmark = pytest.mark.usefixtures("float32")
SMALL = replace(TINY, layers=2, position=POSITIONS["sinusoidal"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "PAGE", SMALL)


def built(name: str, task: Task) -> Transformer:
    runtime.seed(1)
    return (ablation.MACHINES | ablation.WITHOUT_ATTENTION)[name].build(task)


def scores(model: Transformer, task: Task) -> Tensor:
    batch = collate(task.corpus["train"][:2], task.source_vocab, task.target_vocab)
    with torch.no_grad():
        return model(batch.source, batch.source_lengths, batch.target_in).logits


# ---- what is gone ------------------------------------------------------------------------------------------------


def test_every_machine_computes_something_else_but_for_the_schedule(task: Task) -> None:
    whole = scores(built("the whole machine", task), task)
    same = [name for name in ablation.MACHINES if torch.equal(scores(built(name, task), task), whole)]
    assert same == ["the whole machine", "no warm-up"]


def test_without_residuals_a_branch_that_finds_nothing_leaves_nothing(task: Task) -> None:
    model = built("no residuals", task)
    down = model.encoder.stack.blocks[0].feed_forward.branch.down
    torch.nn.init.zeros_(down.weight), torch.nn.init.zeros_(down.bias)
    x = model.encoder.stack.blocks[0](torch.randn(1, 3, SMALL.d_model))
    assert not x.any()


def test_without_norms_only_the_last_one_of_each_stack_is_left(task: Task) -> None:
    kept = [name for name, _ in built("no norms", task).named_parameters() if name.endswith("norm.weight")]
    assert kept == ["encoder.stack.norm.weight", "decoder.stack.norm.weight"]


def test_without_feed_forward_two_thirds_of_an_encoder_block_are_gone(task: Task) -> None:
    def count(name: str) -> int:
        return sum(w.numel() for n, w in built(name, task).encoder.stack.blocks.named_parameters() if "weight" in n)

    attention, feed_forward = 4 * SMALL.d_model**2, 2 * SMALL.d_model * SMALL.d_ff
    assert count("the whole machine") - count("no feed-forward") == 2 * (feed_forward + SMALL.d_model)
    assert count("no feed-forward") == 2 * (attention + SMALL.d_model)


def test_without_the_mask_and_only_then_a_word_changes_the_scores_before_it(task: Task) -> None:
    source, lengths = torch.tensor([[4, 5]]), torch.tensor([2])
    one, other = torch.tensor([[1, 4, 5]]), torch.tensor([[1, 4, 6]])
    for name, leaks in (("the whole machine", False), ("no causal mask", True)):
        model = built(name, task)
        with torch.no_grad():
            first, second = (model(source, lengths, target).logits[:, :2] for target in (one, other))
        assert torch.allclose(first, second, atol=1e-6) != leaks


SOURCE, TARGET = torch.tensor([[4, 5, 6]]), torch.tensor([[1, 4, 5]])


def last_scores(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    with torch.no_grad():
        return model(source, torch.tensor([source.shape[1]]), target).logits[:, -1]


def test_without_cross_attention_and_only_then_the_source_does_not_matter(task: Task) -> None:
    for name in ("the whole machine", "no self-attention", "no positions", "no cross-attention"):
        model = built(name, task)
        first, second = (last_scores(model, source, TARGET) for source in (SOURCE, SOURCE.flip(1)[:, :2]))
        assert torch.allclose(first, second, atol=1e-6) == (name == "no cross-attention"), name


def test_without_self_attention_the_words_before_the_last_do_not_matter(task: Task) -> None:
    for name, matter in (("the whole machine", True), ("no self-attention", False)):
        model = built(name, task)
        first, second = (last_scores(model, SOURCE, target) for target in (TARGET, torch.tensor([[1, 6, 5]])))
        assert torch.allclose(first, second, atol=1e-6) != matter


def test_without_positions_the_order_of_the_source_does_not_matter(task: Task) -> None:
    for name, matters in (("the whole machine", True), ("no positions", False)):
        model = built(name, task)
        first, second = (last_scores(model, source, TARGET) for source in (SOURCE, SOURCE.flip(1)))
        assert torch.allclose(first, second, atol=1e-5) != matters


def test_five_blocks_without_feed_forward_have_about_as_many_weights(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()

    def matrices(name: str) -> int:
        return sum(w.numel() for n, w in built(name, task).named_parameters() if "blocks" in n and w.ndim == 2)

    assert matrices("no feed-forward, five blocks") / matrices("the whole machine") == pytest.approx(60 / 56)


@pytest.mark.parametrize("name", list(ablation.WITHOUT_ATTENTION))
def test_a_machine_without_a_part_still_writes_word_by_word(name: str, task: Task) -> None:
    """Decoding with caches gives the scores of one pass."""
    model = built(name, task).eval()
    with torch.no_grad():
        whole = model(SOURCE, torch.tensor([3]), TARGET).logits
        memory = model.encoder(SOURCE, torch.tensor([3]))
        state = model.decoder.start(memory)
        steps = [model.decoder(TARGET[:, t : t + 1], memory, state).logits for t in range(3)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-5, rtol=1e-4)


CHAINED = {
    "nowhere": set(),
    "decoder's self-attention": {"decoder mixer"},
    "cross-attention": {"decoder cross"},
    "encoder's self-attention": {"encoder mixer"},
    "the whole decoder": {"decoder mixer", "decoder cross", "decoder feed_forward"},
    "the whole encoder": {"encoder mixer", "encoder feed_forward"},
    "everywhere": {
        *("decoder mixer", "decoder cross", "decoder feed_forward"),
        *("encoder mixer", "encoder feed_forward"),
    },
}


@pytest.mark.parametrize("place", localized.PLACES)
def test_residuals_are_gone_in_their_place_and_only_there(place: str, task: Task) -> None:
    model, found = localized.PLACES[place].build(task), set()
    for half in ("encoder", "decoder"):
        for block in getattr(model, half).stack.blocks:
            parts = ("mixer", "cross", "feed_forward")
            found |= {f"{half} {part}" for part in parts if isinstance(getattr(block, part), ablation.Chain)}
    assert found == CHAINED[place]


def test_a_memory_of_equal_vectors_has_no_spread(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, model = task.corpus["test"], built("the whole machine", task)
    assert 0.3 < localized.memory_spread(model, pairs, task) <= 1
    torch.nn.init.zeros_(model.encoder.embed.weight)
    model.encoder.stack.position = built("no positions", task).encoder.stack.position
    assert localized.memory_spread(model, pairs, task) < 1e-5


def test_the_experiment_of_places_has_a_row_for_each_place_and_seed(
    corpus: Translations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "load", lambda name: corpus)
    names = ("nowhere", "the whole encoder")
    monkeypatch.setattr(localized, "PLACES", {name: localized.PLACES[name] for name in names})
    found = localized.places((1, 2), steps=ablation.STEPS // 6 + 1)
    assert [(row["machine"], row["seed"]) for row in found] == [(name, seed) for seed in (1, 2) for name in names]
    assert all(row["lr"] == ablation.RATES[0] and row["loss"] > 0 for row in found)
    table = localized.places_table(pd.DataFrame(found))
    assert table.index.tolist() == list(names)
    assert float(table["spread, untrained"]["nowhere"].split()[0]) > 0.3


def test_the_rate_goes_up_a_ramp_and_down_to_nothing() -> None:
    recipe = ablation.MACHINES["the whole machine"].recipe(1.0, 700)
    assert [recipe.schedule(step, 700) for step in (0, 115, 116, 408)] == pytest.approx([1 / 116, 1, 1, 0.5])
    assert ablation.MACHINES["no warm-up"].recipe(1.0, 700).schedule(0, 700) == 1


def test_runs_sweep_the_rates_with_one_seed_and_take_the_best_with_the_others(
    corpus: Translations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "load", lambda name: corpus)
    names = ("the whole machine", "no residuals")
    monkeypatch.setattr(ablation, "MACHINES", {name: ablation.MACHINES[name] for name in names})

    def trained(machine: Any, task: Task, pairs: Any, *, lr: float, seed: int, steps: int) -> tuple[Transformer, float]:
        model = machine.build(task)
        best = 2e-3 if machine is ablation.MACHINES["no residuals"] else 5e-3
        model.score = 50.0 if lr == best else 10.0
        return model, 0.0

    def judged(model: Any, pairs: Any, task: Any) -> Quality:
        return Quality(model.score, 0.0, "")

    monkeypatch.setattr(ablation, "trained", trained)
    monkeypatch.setattr(ablation, "quality", judged)
    found = [(row["machine"], row["lr"], row["seed"]) for row in ablation.ablation((1, 2), (5e-3, 2e-3))]
    sweep = [(name, lr, 1) for lr in (5e-3, 2e-3) for name in names]
    assert found == [*sweep, ("the whole machine", 5e-3, 2), ("no residuals", 2e-3, 2)]


# ---- what ships --------------------------------------------------------------------------------------------------


def test_weights_in_8_bits_are_off_by_half_a_step(task: Task) -> None:
    model = built("the whole machine", task)
    weights = model.state_dict()
    found = broken.unpacked(broken.packed(weights))
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        if weight.ndim == 2:
            step = weight.abs().amax(dim=1, keepdim=True) / 127
            assert ((found[name] - weight).abs() <= 0.51 * step + 1e-3 * weight.abs()).all(), name
        else:
            torch.testing.assert_close(found[name], weight, rtol=1e-3, atol=1e-6)


def test_saved_models_come_back(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {name: built(name, task) for name in ablation.MACHINES}
    broken.save(models, tmp_path / "all.safetensors")
    monkeypatch.setattr(broken, "fetch", lambda file: tmp_path / "all.safetensors")
    for name, model in broken.load(task).items():
        torch.testing.assert_close(scores(model, task), scores(models[name], task), atol=0.1, rtol=0.05)
    english = " ".join(task.corpus["train"][0].source)
    assert all(isinstance(version(english), str) for version in broken.versions(task).values())


def test_the_stored_translators_are_as_good_as_their_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the first test sentences, within what so few of them say."""
    monkeypatch.undo()
    corpus = data.load("english-french")
    versions = broken.versions(Task.of(corpus, corpus["train"]))
    assert versions.keys() == ablation.MACHINES.keys()
    assert versions[broken.WHOLE]("the small red house is very old.") == "la petite maison rouge est très vieille."
    assert versions["no residuals"]("the small red house is very old.") != "la petite maison rouge est très vieille."


# ---- tables ------------------------------------------------------------------------------------------------------

RUNS = pd.DataFrame(
    [
        {"machine": "no residuals", "lr": 0.1, "seed": 1, "loss": 4.8, "valid": 1.0, "bleu": 2.0},
        {"machine": "no residuals", "lr": 0.2, "seed": 1, "loss": 4.3, "valid": 0.0, "bleu": 90.0},
        {"machine": "the whole machine", "lr": 0.1, "seed": 1, "loss": 0.1, "valid": 70.0, "bleu": 70.0},
        {"machine": "the whole machine", "lr": 0.2, "seed": 1, "loss": 0.2, "valid": 80.0, "bleu": 60.0},
        {"machine": "the whole machine", "lr": 0.2, "seed": 2, "loss": 0.4, "valid": 10.0, "bleu": 80.0},
    ]
)


def test_a_machine_is_judged_at_the_rate_that_is_best_on_validation_sentences() -> None:
    assert broken.scores(RUNS) == {"the whole machine": 70.0, "no residuals": 2.0}
    table = broken.scoreboard(RUNS)
    assert table.columns.tolist() == ["rate 0.1", "rate 0.2"]
    assert table.loc["the whole machine"].tolist() == ["70.0", "70.0 (60.0–80.0)"]
    assert table.loc["no residuals"].tolist() == ["2.0", "90.0"]


def test_losses_are_those_of_the_runs_on_the_scoreboard() -> None:
    """Not the lowest ones, which another rate may have reached."""
    assert broken.losses(RUNS).to_dict() == {"the whole machine": pytest.approx(0.3), "no residuals": 4.8}


def test_without_residuals_the_loss_is_just_below_the_entropy_of_single_words() -> None:
    """As the lesson says of the stored runs: 5.3 nats for a word, `<eos>` included, in sentences of training."""
    pairs = filter_by_length(data.load("english-french")["train"], 3, ablation.LONGEST)
    counts = Counter(word for pair in pairs for word in (*pair.target, "<eos>"))
    shares = torch.tensor(list(counts.values())) / counts.total()
    entropy = -float(shares @ shares.log())
    assert entropy == pytest.approx(5.26, abs=0.01)
    runs = broken.best_runs(stored("transformer.ablation").frame)
    assert runs.query("machine == 'no residuals'")["loss"].between(3, entropy).tolist() == [True] * 3


def test_feed_forward_layers_hold_57_percent_of_the_blocks_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    corpus = data.load("english-french")
    model = built("the whole machine", Task.of(corpus, corpus["train"]))
    matrices = {name: w.numel() for name, w in model.named_parameters() if "blocks" in name and w.ndim == 2}
    feed_forward = sum(size for name, size in matrices.items() if "feed_forward" in name)
    assert feed_forward / sum(matrices.values()) == pytest.approx(0.57, abs=0.005)
    assert feed_forward / parameters(model) == pytest.approx(0.4, abs=0.01)


# ---- tables of the page ----------------------------------------------------------------------------------------------


def test_the_scoreboard_has_a_row_for_each_machine_in_order() -> None:
    said = "mot " * 30
    table = inside.growth({"one": (4.816, 0.2, ""), "two": (0.5, 35.6, said)})
    assert table.index.tolist() == ["one", "two"]
    assert table.loc["one"].tolist() == ["4.82", "0", "–"]
    assert table["BLEU"]["two"] == "36"
    assert len(table["your sentence"]["two"]) <= 45
    assert table["your sentence"]["two"].endswith("mot …")


def test_steps_are_those_of_the_first_word() -> None:
    table = inside.steps({"x": torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), "y": torch.tensor([[[-0.5, 0.0]]])})
    assert table.index.tolist() == ["x", "y"]
    assert table.to_numpy().tolist() == [["1.00", "2.00"], ["-0.50", "0.00"]]


def test_neighbors_that_swap_have_one_link_each() -> None:
    """In the second pair, one of the two words is linked to another word as well."""
    source, target = ("red", "car"), ("voiture", "rouge")
    swap = frozenset({(0, 1), (1, 0)})
    assert inside.swapped(Pair(source, target, sure=swap)) == [(0, 1), (1, 0)]
    assert inside.swapped(Pair(source, (*target, "la"), sure=swap | {(1, 2)})) == []
    assert inside.swapped(Pair(source, target, sure=frozenset({(0, 0), (1, 1)}))) == []


# ---- inside ------------------------------------------------------------------------------------------------------


def test_names_of_the_page_lead_to_every_parameter_of_the_package() -> None:
    model = inside.package_model(7, 9, 8, 2, 16, 12)
    prefixes = inside.parameter_names(12).values()
    names = [name for name, _ in model.named_parameters() if "embed" not in name]
    assert all(sum(name.startswith(prefix) for prefix in prefixes) == 1 for name in names)


def test_the_package_is_called_as_the_page_calls_its_own() -> None:
    model = inside.package_model(7, 9, 8, 2, 16, 1)
    source, target = torch.tensor([[4, 5, 0]]), torch.tensor([[1, 4]])
    expected = Transformer.forward(model, source, torch.tensor([2]), target).logits
    torch.testing.assert_close(model(source, target), expected)


def test_three_maps_are_rows_of_weights_with_their_words(task: Task) -> None:
    model, pair = built("the whole machine", task), task.corpus["train"][0]
    encoder, decoder, cross = inside.three_maps(model, pair, task, (1, 0))
    assert encoder.keys == encoder.queries == [*pair.source, "<eos>"]
    assert decoder.keys == decoder.queries == ["<bos>", *pair.target]
    assert cross.queries == [*pair.target, "<eos>"]
    assert cross.keys == encoder.keys
    for found in (encoder, decoder, cross):
        assert found.weights.shape == (len(found.queries), len(found.keys))
        torch.testing.assert_close(found.weights.sum(dim=-1), torch.ones(len(found.queries)))
    assert not decoder.weights.triu(1).any()


def test_what_the_lesson_says_of_ranges_holds_for_the_stored_runs() -> None:
    """Below all runs of the whole machine without feed-forward layers, among them without norms or warm-up."""
    runs = broken.best_runs(stored("transformer.ablation").frame).groupby("machine")["bleu"]
    low, high = runs.min(), runs.max()
    assert high["no feed-forward"] < low["the whole machine"]
    for part in ("no norms", "no warm-up"):
        assert low["the whole machine"] < high[part]
        assert low[part] < high["the whole machine"]


def test_what_the_lesson_says_of_attention_holds_for_the_stored_runs() -> None:
    whole = (
        broken.best_runs(stored("transformer.ablation").frame).groupby("machine")["bleu"].agg(["min", "max", "mean"])
    )
    more = (
        broken.best_runs(stored("transformer.attentions").frame).groupby("machine")["bleu"].agg(["min", "max", "mean"])
    )
    lost = whole["mean"]["the whole machine"] - more["mean"]
    assert round(lost["no self-attention"]) == 6
    assert round(lost["no positions"]) == 24
    assert more["max"]["no self-attention"] < whole["min"]["the whole machine"]
    assert more["max"]["no cross-attention"] < 1
    assert more["min"]["no feed-forward, five blocks"] < whole["mean"]["the whole machine"]
    assert more["max"]["no feed-forward, five blocks"] > whole["mean"]["the whole machine"]


def test_what_the_lesson_says_of_places_holds_for_the_stored_runs() -> None:
    runs = stored("transformer.places").frame.groupby("machine")
    low, high = runs["loss"].min(), runs["loss"].max()
    for half in ("the whole encoder", "the whole decoder"):
        assert high["nowhere"] + 1 < low[half]
        assert high[half] + 1 < low["everywhere"]
    assert high["cross-attention"] > low["cross-attention"] + 1, "two runs that differ a lot"
    places = ("decoder's self-attention", "cross-attention", "encoder's self-attention")
    assert runs["loss"].mean()[[*places]].idxmin() == places[0]
    spread = runs["spread before"]
    for place in localized.PLACES:
        alike = "encoder" in place or place == "everywhere"
        assert (spread.max()[place] < 1e-3) if alike else (spread.min()[place] > 0.8)
