"""Lesson 09's measures on the story world: words that a story determines, what heads look at, what counting lacks."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional

from tfbook import data
from tfbook.course import batches
from tfbook.course.experiments import stored
from tfbook.data.stories import check_story, told, words_of
from tfbook.lessons.gpt_pretraining import (
    attention_exercise,
    beginnings,
    determined,
    exercises,
    figures,
    heads,
    ladder,
    shakespeare,
    study,
)
from tfbook.models.gpt import Gpt
from tfbook.plot import shading
from tfbook.pretrain.storyteller import Storyteller
from tfbook.text import BOS, EOS, PAD, Vocabulary
from tfbook.training.optimizers import Muon

pytestmark = pytest.mark.usefixtures("float32")

SIZES = (16, 2, 32, 2)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return data.load("stories").vocabulary


@pytest.fixture
def model(vocabulary: Vocabulary) -> Any:
    torch.manual_seed(1)
    return study.package_gpt(len(vocabulary), *SIZES)


@pytest.fixture(scope="module")
def rows(vocabulary: Vocabulary) -> list[torch.Tensor]:
    return study.story_rows([told("valid", number).text for number in range(4)], vocabulary)


# ---- the lesson's page ---------------------------------------------------------------------------------------------


def page() -> list[str]:
    """The sources of the notebook's cells."""
    notebook = Path(__file__).parents[2] / "notebooks" / "09_gpt_pretraining.ipynb"
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]]


@pytest.mark.parametrize("name", ["story_loss", "next_word", "attend", "implant"])
def test_the_version_that_the_lesson_unfolds_is_right(name: str) -> None:
    """The code in its `<details>`, run with the names of the page, passes the check of the exercise."""
    (shown,) = [text for text in page() if f"```python\ndef {name}(" in text]
    names: dict[str, Any] = {"F": functional, "math": math, "rotated": attention_exercise.rotated}
    exec(shown.partition("```python\n")[2].partition("```")[0], names)
    assert getattr(exercises, name).judge(names[name]).status == "correct"


# ---- the models of the page ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(vocabulary: Vocabulary) -> dict[str, Any]:
    """The names that the page's cells define, from the frame of a GPT to the block."""
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": functional, "math": math, "d_model": 128, "heads": 4}
    names |= {"vocabulary": vocabulary, "attend": exercises.attend.reference, "residual": exercises.residual.reference}
    for cell in page():
        if cell.startswith(("class GPT", "def rotated", "class FeedForward", "class Residual", "def orthogonal")):
            exec(cell.partition("\n\ngrow(")[0].partition("\n\n\nG =")[0], names)
        if cell.startswith("class Muon"):
            exec(cell, names)
    return names


LAYERS: dict[str, Callable[[dict[str, Any]], list[nn.Module]]] = {
    "one word": lambda page: [nn.Linear(128, 128)],
    "one head": lambda page: [page["Attention"](1)],
    "residual and norm": lambda page: [page["Residual"](page["Attention"](1)), nn.LayerNorm(128)],
    "four heads": lambda page: [page["Residual"](page["Attention"](4)), nn.LayerNorm(128)],
    "feed-forward": lambda page: [page["block"](), nn.LayerNorm(128)],
    "two blocks": lambda page: [page["block"](), page["block"](), nn.LayerNorm(128)],
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_stage_of_the_page_is_the_one_that_was_run(name: str, plain: dict[str, Any], vocabulary: Vocabulary) -> None:
    """Same weights, same logits as `ladder.stage`."""
    of_page, of_study = plain["GPT"](*LAYERS[name](plain)), ladder.stage(name, len(vocabulary))
    weights = of_page.state_dict()
    del weights["unembed.weight"]  # the embedding
    of_study.load_state_dict(weights)
    ids = torch.randint(len(vocabulary), (2, 9), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(of_page(ids), of_study(ids), atol=1e-5)


def test_the_pages_muon_takes_the_packages_steps(plain: dict[str, Any], vocabulary: Vocabulary) -> None:
    """Three steps of each, on the same gradients."""
    of_page, of_package = ladder.stage("two blocks", len(vocabulary)), ladder.stage("two blocks", len(vocabulary))
    of_package.load_state_dict(of_page.state_dict())
    matrices = [weight for weight in of_page.layers.parameters() if weight.ndim == 2]
    others = [weight for weight in of_package.layers.parameters() if weight.ndim == 2]
    mine, theirs = plain["Muon"](matrices), Muon(others, lr=0.03, momentum=0.9, rms=0.2)
    for step in range(3):
        for number, (one, other) in enumerate(zip(matrices, others, strict=True)):
            one.grad = torch.randn(one.shape, generator=torch.Generator().manual_seed(100 * step + number))
            other.grad = one.grad.clone()
        mine.step(0.03)
        theirs.step()
    for one, other in zip(matrices, others, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_muon_makes_all_directions_about_equally_long(plain: dict[str, Any]) -> None:
    matrices = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(2))
    lengths = torch.linalg.svdvals(plain["orthogonal"](matrices))
    assert float(lengths.max()) < 1.25
    assert float(lengths.median()) > 0.6


def test_a_model_of_the_page_goes_into_the_package(plain: dict[str, Any], vocabulary: Vocabulary) -> None:
    model = plain["GPT"](plain["block"](), plain["block"](), nn.LayerNorm(128))
    package = study.for_package(model, len(vocabulary), 128, 4, 128, 2)
    ids = torch.tensor([[BOS, 7, 8, 9]])
    assert torch.allclose(model(ids), package(ids), atol=1e-5)


def witten_bell(text: list[int], ids: list[int], longest: int, vocab: int) -> list[Fraction]:
    """Witten and Bell (1991), as the page says it: a context weighs n / (n + k), shorter ones the rest."""
    p = [Fraction(1, vocab)] * vocab
    for size in range(min(longest, len(ids)) + 1):
        context = ids[len(ids) - size :]
        if after := [text[i + size] for i in range(len(text) - size) if text[i : i + size] == context]:
            weight = Fraction(len(after), len(after) + len(set(after)))
            p = [weight * Fraction(after.count(w), len(after)) + (1 - weight) * p[w] for w in range(vocab)]
    return p


def test_the_page_counts_as_it_says_and_each_context_once() -> None:
    """Its cell on a text of five words, of which one never appears, against fractions."""
    (cell,) = [source for source in page() if "def counted(" in source]
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3, 3, 2, 4]
    names: dict[str, Any] = {"text": text, "back": 4, "vocabulary": range(5), "torch": torch, "cache": cache}
    names |= {"Counter": Counter, "defaultdict": defaultdict}
    exec(cell[cell.index("followers =") :], names)
    for ids in ([], [1], [4], [0], [1, 2], [3, 3], [2, 3, 1, 2], [4, 0, 1, 2], [0, 2, 3, 1, 2]):
        for longest in range(5):
            found = names["counted"](ids, longest)
            assert found.tolist() == pytest.approx([float(p) for p in witten_bell(text, ids, longest, 5)])
        assert names["counted"](ids) is names["counted"](ids), "worked out once"


# ---- stories -----------------------------------------------------------------------------------------------------


def test_rows_are_stories_between_their_marks(rows: list[torch.Tensor], vocabulary: Vocabulary) -> None:
    for number, ids in enumerate(rows):
        assert (int(ids[0]), int(ids[-1])) == (BOS, EOS)
        assert tuple(vocabulary.decode(ids[1:-1])) == told("valid", number).words


def test_real_stories_are_right_and_a_strange_name_is_not() -> None:
    texts = [list(told("valid", number).words) for number in range(4)]
    assert study.judged(texts) == {"sentences": 1.0, "names": 1.0, "all": 1.0}
    texts[0] = [*texts[0][:-1], "and", "Victor", "."]
    assert study.first_mistakes(texts) == {"name": 1}
    found = study.judged(texts)
    assert found["names"] == found["all"] == 0.75
    assert found["sentences"] < 1


def test_a_story_that_stops_or_makes_no_sense_is_mistaken_too() -> None:
    """So that the kinds add up to the stories that are not right."""
    whole, cut = list(told("valid", 0).words), list(told("valid", 1).words)
    stopped = cut[: told("valid", 1).told[1].end]
    assert study.first_mistakes([whole]) == {}
    assert study.first_mistakes([stopped]) == {"no end": 1}
    assert study.first_mistakes([stopped, ["the", "the", ".", *whole]]) == {"no end": 1, "sentence": 1}


def test_a_counter_is_charged_for_every_word_but_the_first() -> None:
    def half(before: list[int], longest: int) -> torch.Tensor:
        assert longest == 3
        return torch.tensor([0.0, 0.5, 0.25]) if before == [2] else torch.tensor([0.0, 1.0, 0.0])

    found = study.counting_loss(half, [torch.tensor([2, 1]), torch.tensor([2, 2, 1])], 3)
    assert found == pytest.approx((math.log(2) + math.log(4) + 0) / 3)


def test_pieces_continue_the_text(model: Any, vocabulary: Vocabulary) -> None:
    start = "Once there was a shy fox"
    (first,) = study.predictor(model, vocabulary, start)([()])
    assert len(first) >= 9
    assert all(piece and 0 <= share <= 1 for piece, share in first)
    with torch.no_grad():
        logits = model(torch.tensor([[BOS, *vocabulary.encode(words_of(start))]]))[0, -1]
    likely = [i for i in logits.topk(12).indices.tolist() if i > 3]
    assert [words_of(start + piece)[-1] for piece, _ in first] == [vocabulary.tokens[i] for i in likely]


def test_a_story_that_is_over_has_no_next_piece(vocabulary: Vocabulary) -> None:
    class Ends(nn.Linear):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return 9 * nn.functional.one_hot(torch.full_like(ids, EOS), len(vocabulary)).float()

    assert study.predictor(Ends(1, 1), vocabulary, "The end.")([()]) == [[]]


# ---- what a story determines -------------------------------------------------------------------------------------


def test_determined_words_are_those_that_nothing_can_replace() -> None:
    story = told("valid", 3)
    found = determined.determined(story)
    assert sum(map(len, found.values())) > 5
    for kind, places in found.items():
        for place in places:
            word = story.words[place]
            event = next(each for each in story.told if each.begin <= place < each.end)
            for other in determined.KINDS[kind]:
                verdict = check_story([*story.words[:place], other, *story.words[place + 1 : event.end]])
                assert (not verdict.faults and not verdict.unread) == (other == word)


def test_the_first_name_and_the_first_place_are_free() -> None:
    story = told("valid", 3)
    found, first = determined.determined(story), story.told[0]
    assert all(place >= first.end for place in (*found["names"], *found["places"]))


def test_the_right_word_competes_with_its_kind_alone(vocabulary: Vocabulary) -> None:
    """Tim has twice the odds of each other name, and all names together next to nothing."""
    tim, cat = vocabulary.encode(["Tim", "cat"])

    class Fixed(nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*ids.shape, len(vocabulary))
            logits[..., tim], logits[..., cat] = math.log(2), 20.0
            return logits

    ids = torch.tensor([[BOS, cat, tim]])
    share = determined.right_share(Fixed(), ids, {"names": [(0, 2)]}, vocabulary)
    assert share == {"names": pytest.approx(2 / (len(determined.KINDS["names"]) + 1))}


# ---- the stored runs ---------------------------------------------------------------------------------------------


def test_an_epoch_reads_every_row_once_and_neighbors_are_alike() -> None:
    rows = [torch.arange(3 + number % 7) for number in range(64)]
    sorted_rows = batches.SortedBatches(rows, size=4, seed=1)
    read = [sorted_rows(step) for step in range(16)]
    assert sorted(int((row > 0).sum()) for batch in read for row in batch) == sorted(len(row) - 1 for row in rows)
    assert all(torch.equal(one, other) for one, other in zip(read, map(sorted_rows, range(16)), strict=True))
    spread = [int((batch > 0).sum(dim=1).max() - (batch > 0).sum(dim=1).min()) for batch in read]
    assert max(spread) <= 2
    assert any(not torch.equal(sorted_rows(step), read[step - 16]) for step in range(16, 32))


@pytest.mark.parametrize("size", [0, 4])
def test_three_rows_fill_a_batch_of_one_to_three(size: int) -> None:
    with pytest.raises(ValueError, match=f"size is {size}; expected 1 to 3, the number of rows"):
        batches.SortedBatches([torch.arange(2)] * 3, size=size, seed=0)
    assert batches.SortedBatches([torch.arange(2)] * 3, size=3, seed=np.int64(0))(5).shape == (3, 2)


def test_a_run_reports_its_curve_and_its_stories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "HELD_OUT", 2)
    monkeypatch.setattr(study, "SAMPLES", 2)
    monkeypatch.setattr(study, "SIZES", SIZES)
    found = study.growth((("Muon", 0.02, (1, 2)), ("AdamW", 0.01, (1,))), steps=4, every=2)
    assert [(row["optimizer"], row["seed"]) for row in found] == [("Muon", 1), ("Muon", 2), ("AdamW", 1)]
    for row in found:
        assert [point["step"] for point in row["curve"]] == [2, 4]
        assert row["curve"][0].keys() >= {"loss", *determined.KINDS}
        assert row.keys() >= {"sentences", "names", "all"}


def test_the_plateau_by_hand() -> None:
    def curve(last: float) -> list[dict[str, float]]:
        return [{"loss": 5.0, "things": 0.1}, {"loss": 1.0, "things": 0.3}, {"loss": last, "things": 0.9}]

    frame = pd.DataFrame([{"optimizer": "Muon", "curve": curve(0.5)}, {"optimizer": "AdamW", "curve": curve(0.8)}])
    assert study.claims_of_growth(frame) == pytest.approx({4: 0.3})


@pytest.fixture
def rungs() -> pd.DataFrame:
    """Three stages with two runs each at the best rate, and one at another."""

    def rows(stage: str, optimizer: str, losses: list[float], shares: list[float]) -> list[dict[str, Any]]:
        runs = enumerate(zip(losses, shares, strict=True), 1)
        best = [{"loss": loss, "all": share, "names": share, "sentences": 1.0, "seed": i} for i, (loss, share) in runs]
        same = {"stage": stage, "optimizer": optimizer}
        return [row | same | {"best": True, "lr": 0.1} for row in best] + [
            same | {"loss": 9.0, "seed": 1, "best": False, "lr": 0.2}
        ]

    return pd.DataFrame(
        rows("one word", "Muon", [2.2, 2.4], [0.0, 0.0])
        + rows("feed-forward", "Muon", [0.8, 0.9], [0.0, 0.1])
        + rows("two blocks", "Muon", [0.5, 0.6], [0.4, 0.5])
        + rows("two blocks, without branches", "Muon", [1.2, 1.1], [0.0, 0.0])
        + rows("two blocks", "AdamW", [0.7, 0.8], [0.1, 0.0])
    )


def test_claims_of_the_ladder_by_hand(rungs: pd.DataFrame) -> None:
    assert study.claims_of_ladder(rungs, one_back=2.25) == pytest.approx({1: 0.05, 2: 0.2})
    assert study.claim_of_adamw(rungs) == pytest.approx({10: 0.3})
    assert study.scores(rungs)["two blocks"] == pytest.approx(
        {"loss": 0.55, "sentences": 1, "names": 0.45, "all": 0.45}
    )
    assert study.rates(rungs).to_dict("list") == {
        "optimizer": ["AdamW", "AdamW", "Muon", "Muon"],
        "lr": [0.1, 0.2, 0.1, 0.2],
        "loss": [0.7, 9.0, 0.5, 9.0],
    }


def test_a_scoreboard_says_what_has_no_loss() -> None:
    shares = {"sentences": 0.5, "names": 0.25, "all": 0.0}
    table = study.scoreboard({"counting": shares, "GPT": shares | {"loss": 0.5}})
    assert list(table["loss (nats per word)"]) == ["", "0.50"]
    assert list(table["stories with right names"]) == ["25%", "25%"]


def test_claims_of_notes_and_of_overfitting_by_hand() -> None:
    run = {"names": 0.9, "without": {"1.1": 0.1, "1.2": 0.8, "2.1": 0.4}, "first": "1.1", "second": "2.1", "place": "."}
    run |= {"as it stands": [0.9, 0.0], "patched": [0.0, 0.8], "stories": {"all": 0.5}}
    frame = pd.DataFrame([run | {"seed": 1}, run | {"seed": 2, "patched": [0.1, 0.7], "stories": {"all": 0.4}}])
    assert study.claims_of_notes(frame) == pytest.approx({5: 0.4, 6: 0.7})
    assert study.claim_of_stories(frame) == pytest.approx({3: 0.4})
    assert list(study.table_of_notes(frame)["Lucy after"]) == [0.8, 0.7]
    curves = [[{"held out": loss} for loss in losses] for losses in ([6.0, 1.0, 2.0], [6.0, 1.5, 1.8])]
    assert study.claim_of_overfit(pd.DataFrame({"curve": curves})) == pytest.approx({9: 0.3})


def test_each_stage_runs_and_the_best_rate_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "HELD_OUT", 2)
    monkeypatch.setattr(ladder, "SAMPLES", 2)
    found = ladder.ladder((("one word", "Muon"), ("one head", "AdamW")), steps=1)
    for name in ("one word", "one head"):
        rows = [row for row in found if row["stage"] == name]
        best, others = ([row for row in rows if row["best"] == which] for which in (True, False))
        assert [row["seed"] for row in best] == [1, 2, 3]
        assert {row["seed"] for row in others} == {1}
        assert all({"sentences", "names", "all", "sample"} <= row.keys() for row in best)
        [rate] = {row["lr"] for row in best}
        assert min(row["lr"] for row in others) < rate < max(row["lr"] for row in others)
        assert not any(row["loss"] < best[0]["loss"] for row in others)


def test_a_rate_that_diverged_is_never_the_best() -> None:
    """NaN compares as false with every number, whichever comes first."""
    model = ladder.stage("one word", 8, 4)
    for losses in ((math.nan, 0.9, 0.8), (0.9, 0.8, math.nan), (0.8, math.nan, 0.9)):
        tried = dict(zip((1.0, 2.0, 3.0), ((model, {"loss": loss}) for loss in losses), strict=True))
        assert tried[ladder._best(tried)][1]["loss"] == 0.8


def test_branches_are_run_with_each_part_and_tabulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "HELD_OUT", 2)
    found = pd.DataFrame(ladder.branches((1,), steps=1))
    seeds = found.groupby("branch", sort=False)["seed"].apply(list).to_dict()
    assert seeds == {kind: [1, 2, 3] for kind in ladder.BRANCHES}
    table = study.table_of_branches(found)
    assert list(table.columns) == ["1 layer"]
    assert list(table.index) == list(ladder.BRANCHES)


def test_a_branch_has_its_norm_its_sum_or_both() -> None:
    x, zero = 3 * torch.randn(1, 2, 8), torch.nn.Linear(8, 8, bias=False)
    torch.nn.init.zeros_(zero.weight)
    same = torch.nn.Identity()
    with torch.no_grad():
        sums = {kind: torch.equal(make(zero, 8)(x), x) for kind, make in ladder.BRANCHES.items()}
        norms = {kind: float(make(same, 8)(x).std()) < 1.2 for kind, make in ladder.BRANCHES.items()}
    assert sums == {"neither": False, "sum alone": True, "norm alone": False, "both": True}
    assert norms == {"neither": False, "sum alone": False, "norm alone": True, "both": False}


def test_what_the_lesson_says_of_norm_and_sum_holds_for_the_stored_runs() -> None:
    """One layer: the norm alone does as well as both. Two: only both are below 3. In every run."""
    losses = stored("gpt_pretraining.branches").frame.groupby(["layers", "branch"])["loss"].agg(["min", "max"])
    low, high = losses["min"], losses["max"]
    assert low[1, "norm alone"] < high[1, "both"]
    assert low[1, "both"] < high[1, "norm alone"]
    assert max(high[1, "both"], high[1, "norm alone"]) < 2 < 3 < low[1, "sum alone"]
    assert high[1, "sum alone"] < low[1, "neither"]
    assert high[2, "both"] < 2 < 3 < low[2, "sum alone"] < high[2, "sum alone"] < low[2, "norm alone"]
    assert high[2, "norm alone"] < low[2, "neither"]
    assert low[2, "both"] < high[1, "both"], "two layers learn as quickly as one"


def test_first_weights_are_drawn_in_three_ways_and_trained_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "HELD_OUT", 2)
    found = pd.DataFrame(beginnings.beginnings(steps=1, rates=(0.01, 0.02)))
    assert list(found["weights"]) == [name for name in beginnings.BEGINNINGS for _ in range(3)]
    assert list(found["seed"]) == 3 * [1, 2, 3]
    small, wide, default = (runs["first loss"] for _, runs in found.groupby("weights", sort=False))
    assert (small - math.log(681)).abs().max() < 0.3
    assert wide.min() > 100
    assert default.min() > 100
    assert list(study.table_of_beginnings(found).index) == list(beginnings.BEGINNINGS)


def test_first_weights_have_the_spread_that_is_said() -> None:
    spreads = {}
    for name, change in beginnings.BEGINNINGS.items():
        torch.manual_seed(1)
        model = ladder.stage("two blocks", 200)
        change(model)
        matrix = next(weight for key, weight in model.named_parameters() if key.endswith("W_Q.weight"))
        spreads[name] = [float(each.detach().std()) for each in (model.embed.weight, matrix)]
    expected = [[0.02, 0.02], [1, 0.02], [1, (3 * 128) ** -0.5]]  # a uniform number of ±1/√d has the variance 1/3d
    for found, right in zip(spreads.values(), expected, strict=True):
        assert found == pytest.approx(right, rel=0.05)


def test_a_large_tied_embedding_is_certain_that_each_word_repeats() -> None:
    ids = torch.arange(9)[None]
    for name in ("embedding 1, the rest 0.02", "PyTorch's default"):
        torch.manual_seed(1)
        model = ladder.stage("two blocks", 200)
        beginnings.BEGINNINGS[name](model)
        with torch.no_grad():
            assert float(model(ids).softmax(dim=-1).gather(-1, ids[..., None]).min()) > 0.99


def test_what_the_lesson_says_of_first_weights_holds_for_the_stored_runs() -> None:
    frame = stored("gpt_pretraining.beginnings").frame
    low, high = (frame.groupby("weights")[["first loss", "loss"]].agg(how) for how in ("min", "max"))
    small, wide, default = beginnings.BEGINNINGS
    assert high.loc[small, "loss"] < low.loc[wide, "loss"] < high.loc[wide, "loss"] < low.loc[default, "loss"]
    assert low.loc[[wide, default], "first loss"].min() > 120
    (claim,) = study.claim_of_beginnings(frame).values()
    assert claim == pytest.approx(low.loc[default, "loss"] - high.loc[small, "loss"])


def test_a_run_on_characters_is_judged_on_all_of_the_held_out_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = data.Text(name="small", train=400 * "to be or not\n", valid=100 * "or not to be\n")
    monkeypatch.setattr(shakespeare.data, "load", lambda name: text)
    monkeypatch.setattr(shakespeare, "SIZES", SIZES)
    (run,) = shakespeare.shakespeare(steps=40, written=20)
    assert run["vocab"] == len(text.characters)
    assert run["loss"] < math.log(run["vocab"])
    assert set(run["sample"]) <= set(text.train)
    table = study.beside_published(pd.DataFrame([run]))
    assert list(table.index) == ["this one", *shakespeare.PUBLISHED]


def test_a_loss_of_all_pieces_is_the_mean_over_characters(vocabulary: Vocabulary) -> None:
    """40 pieces, in two batches of different size, against one sum."""
    torch.manual_seed(3)
    model, ids = study.package_gpt(7, *SIZES), torch.randint(7, (40 * shakespeare.LONGEST + 1,))
    pieces = torch.stack([ids[i : i + shakespeare.LONGEST + 1] for i in range(0, len(ids) - 1, shakespeare.LONGEST)])
    with torch.no_grad():
        logp = model(pieces[:, :-1]).log_softmax(dim=-1).gather(-1, pieces[:, 1:, None])
    assert shakespeare._loss_of_all(model, ids) == pytest.approx(-float(logp.mean()), rel=1e-4)


def test_the_ladder_shows_where_its_first_stage_lies_and_the_others_apart() -> None:
    losses, bare = {"one": [2.3, 2.4], "two": [0.7, 0.8], "three": [0.55]}, {"three": [0.9]}
    figure, alt = figures.draw_ladder(losses, bare, 0.5)
    (axes,) = figure.axes
    assert axes.get_xlim()[0] < 0.5
    assert 0.9 < axes.get_xlim()[1] < 1.1
    assert [text.get_text() for text in axes.texts] == ["2.35 →", "0.75", "0.55", "0.90 without branches", "perfect"]
    dots = [(line.get_xdata(), line.get_markerfacecolor() == "none") for line in axes.lines[:3]]
    assert [(list(runs), hollow) for runs, hollow in dots] == [([0.7, 0.8], False), ([0.55], False), ([0.9], True)]
    assert "one 2.35; two 0.75; three 0.55. The same layers without branches: three 0.90." in alt


def test_few_stories_are_watched_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in {"HELD_OUT": 2, "SAMPLES": 2, "FEW": 20, "EVERY": 1}.items():
        monkeypatch.setattr(ladder, name, number)
    (run,) = ladder.overfit(steps=2, seeds=(1,))
    assert [point["step"] for point in run["curve"]] == [0, 1, 2]
    assert run["recited"] == 0


def test_a_vector_of_another_story_is_put_where_it_renames_most(model: Any, vocabulary: Vocabulary) -> None:
    """By trying every word, and with the head cut there."""
    found = heads.patched(model, vocabulary, "1.2")
    ids = [torch.tensor([BOS, *vocabulary.encode(words_of(study.SPEAKING.format(name)))]) for name in heads.PAIR]
    lucy = vocabulary.encode(["Lucy"])

    def share(place: int) -> float:
        note = study.head_output(model, ids[1], "1.2", place)
        with study.without(model, "1.2", [place], instead=note), torch.no_grad():
            return float(model(ids[0][None])[0, -1].softmax(dim=-1)[lucy])

    assert found["patched"][1] == pytest.approx(max(map(share, range(1, len(ids[0])))), abs=1e-4)


def test_every_head_of_a_larger_model_is_patched_at_its_best_word(
    model: Any, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "load_storyteller", lambda: Storyteller(model, vocabulary))
    rows = heads.larger_notes()
    assert [row["head"] for row in rows] == ["1.1", "1.2", "2.1", "2.2"]
    words = ["<bos>", *words_of(study.SPEAKING.format("Anna"))]
    for row in rows:
        assert row["word"] == words[row["place"]]
        shares = [lucy for _, lucy in heads.implanted(model, vocabulary, row["head"])]
        assert row["renamed"] == pytest.approx(max(shares), abs=1e-4) == pytest.approx(shares[row["place"]], abs=1e-4)


def test_what_the_lesson_says_of_few_stories_holds_in_every_run() -> None:
    """The loss on other stories is lowest after 40 steps, with several looks before, and then climbs above 4."""
    for curve in stored("gpt_pretraining.overfit").frame["curve"]:
        others = {point["step"]: point["held out"] for point in curve}
        assert min(others, key=others.__getitem__) == 40
        assert len([step for step in others if step < 40]) == 6
        assert others[40] == pytest.approx(2.2, abs=0.05)
        assert others[400] > 4
        assert curve[-1]["train"] == pytest.approx(0.047, abs=0.001)


def test_what_the_lesson_says_of_the_storytellers_heads_holds_for_the_stored_run() -> None:
    """Two heads rename the speaker at all, and only at the last word; a third of the time at most."""
    frame = stored("gpt_pretraining.larger_notes").frame
    some = frame[frame["renamed"] > 0.02]
    assert len(frame) == 24
    assert list(some["head"]) == ["3.1", "4.1"]
    assert set(some["place"]) == {frame["place"].max()} == {len(words_of(study.SPEAKING.format("Anna")))}
    assert set(some["word"]) == {"said"}
    assert frame["renamed"].max() == pytest.approx(0.30, abs=0.005)


def test_a_price_counts_parameters_stories_and_what_they_buy(model: Any, vocabulary: Vocabulary) -> None:
    large = study.package_gpt(len(vocabulary), 32, 2, 64, 2)
    judged = {"your GPT": {"all": 0.5}, "storyteller": {"all": 0.7}}
    told = study.STEPS_OF["storyteller"] * study.TOLD_AT_ONCE
    larger = large.parameter_count() / model.parameter_count()
    found = study.price(model, large, told // 4, judged, samples=100)
    assert f"{larger:.1f} times the parameters and 4.0 times the stories, {4 * larger:.0f} times the work" in found
    assert "20 more of 100 stories" in found
    assert "give or take 6 by the luck of sampling\n(standard error)" in found  # √(0.25 / 100 + 0.21 / 200) = 0.06
    assert "30 of 100 are still wrong" in found


# ---- heads -------------------------------------------------------------------------------------------------------


def test_a_head_without_output_is_not_missed(model: Any, rows: list[torch.Tensor], vocabulary: Vocabulary) -> None:
    with torch.no_grad():
        for block in model.stack.blocks:
            block.mixer.branch.W_O.weight.mul_(20)
        model.stack.blocks[1].mixer.branch.W_O.weight[:, 8:] = 0
    before = copy.deepcopy(model.state_dict())
    whole = study.names_without(model, "", rows, vocabulary)
    assert study.names_without(model, "2.2", rows, vocabulary) == pytest.approx(whole, abs=1e-7)
    assert study.names_without(model, "1.1", rows, vocabulary) != pytest.approx(whole, abs=1e-7)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_right_name_is_the_whole_of_a_model_that_repeats_it(rows: list[torch.Tensor], vocabulary: Vocabulary) -> None:
    """One that always expects the text's next word gives 1, and one that knows nothing an even share of 12."""
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)

    def knowing(ids: torch.Tensor) -> torch.Tensor:
        assert torch.equal(ids, padded)
        return 50.0 * functional.one_hot(ids.roll(-1, dims=1), len(vocabulary))

    assert study.names_right(knowing, rows, vocabulary) == pytest.approx(1)
    even = study.names_right(lambda ids: torch.zeros(*ids.shape, len(vocabulary)), rows, vocabulary)
    assert even == pytest.approx(1 / 12)


def test_implanting_by_hand_is_what_the_stored_runs_did(plain: dict[str, Any], vocabulary: Vocabulary) -> None:
    """The exercise on the page's model, `without` and `head_output` on the package's: same names, same shares."""
    page_model = plain["GPT"](plain["block"](), plain["block"](), nn.LayerNorm(128))
    package = study.for_package(page_model, len(vocabulary), 128, 4, 128, 2)
    one, other = (torch.tensor([BOS, *vocabulary.encode(words_of(study.SPEAKING.format(name)))]) for name in heads.PAIR)
    W_O, part = page_model.layers[0][0].branch.W_O, slice(32, 64)  # head 1.2
    vector = study.head_output(package, other, "1.2", 9)
    with torch.no_grad():
        by_hand = exercises.implant.reference(page_model, W_O, one[None], 9, part, vector)
        with study.without(package, "1.2", [9], instead=vector):
            assert torch.allclose(by_hand, package(one[None]), atol=1e-5)


def test_a_head_can_be_cut_at_some_words(model: Any, rows: list[torch.Tensor]) -> None:
    """Cut at word 3, nothing changes before it; cut at every word, it is as if its part of W_O were zero."""
    ids = rows[0][None, :9]
    zeroed = copy.deepcopy(model)
    with torch.no_grad():
        zeroed.stack.blocks[0].mixer.branch.W_O.weight[:, 8:] = 0
        whole = model(ids)
        with study.without(model, "1.2", [3]):
            cut = model(ids)
        with study.without(model, "1.2"):
            assert torch.allclose(model(ids), zeroed(ids), atol=1e-6)
        with study.without(model, ""):
            assert torch.equal(model(ids), whole)
        assert torch.equal(model(ids), whole)
    assert torch.allclose(cut[:, :3], whole[:, :3], atol=1e-6)
    assert not torch.allclose(cut[:, 3], whole[:, 3], atol=1e-6)


def test_a_head_hands_on_its_part_of_what_w_o_reads(model: Any, rows: list[torch.Tensor]) -> None:
    """Put back where it came from, it changes nothing; from another story, it is as if `W_O` had read it there."""
    one, other = rows[0][:9], rows[1][:9]
    own, foreign = (study.head_output(model, ids, "1.2", 4) for ids in (one, other))
    read: list[torch.Tensor] = []
    W_O = model.stack.blocks[0].mixer.branch.W_O
    handle = W_O.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    with torch.no_grad():
        whole = model(one[None])
        handle.remove()
        with study.without(model, "1.2", [4], instead=own):
            assert torch.equal(model(one[None]), whole)
        with study.without(model, "1.2", [4], instead=foreign):
            patched = model(one[None])
    assert torch.equal(own, read[0][0, 4, 8:])
    assert not torch.allclose(own, foreign, atol=1e-3)
    assert torch.allclose(patched[:, :4], whole[:, :4], atol=1e-6)
    assert not torch.allclose(patched[:, 4], whole[:, 4], atol=1e-6)


def test_places_are_compared_by_the_preposition_of_home(vocabulary: Vocabulary) -> None:
    """A model that avoids whatever follows the first home's preposition, told by the ids that it reads."""
    on, hill, farm, park = vocabulary.encode(["on", "hill", "farm", "park"])

    class Shy(nn.Linear):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*ids.shape, len(vocabulary))
            logits[..., [hill, farm]] -= 9.0 * (ids == on).any(dim=1).float()[:, None, None]
            logits[..., park] -= 9.0 * (ids == park).any(dim=1).float()[:, None]
            return logits

    found = study.places_by_home(Storyteller(cast(Gpt, Shy(1, 1)), vocabulary))
    even = 1 / len(vocabulary)
    assert list(found.loc["on the hill"]) == pytest.approx([0, 0, even], abs=2e-4)
    assert list(found.loc["in the park"]) == pytest.approx([0, even, even], abs=2e-4)


# ---- going further -----------------------------------------------------------------------------------------------


def test_a_probability_is_a_product_that_padding_leaves_alone(model: Any, rows: list[torch.Tensor]) -> None:
    ids = rows[0][None]
    found = study.log_probability(model, torch.cat([ids, torch.full((1, 3), PAD)], dim=1))
    with torch.no_grad():
        logp = model(ids[:, :-1]).log_softmax(dim=-1)
    expected = sum(float(logp[0, t, ids[0, t + 1]]) for t in range(ids.shape[1] - 1))
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_a_model_that_wants_what_was_said_fills_blanks(rows: list[torch.Tensor], vocabulary: Vocabulary) -> None:
    """A model of how often the present text has had each word: it prefers the name that comes again."""

    class Echo(nn.Linear):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return nn.functional.one_hot(ids, len(vocabulary)).cumsum(dim=1).float()

    found = study.compare_names(Echo(1, 1), rows, vocabulary)
    assert found["both"] > found["left"]


# ---- pictures ----------------------------------------------------------------------------------------------------


def test_every_picture_has_an_alt_text() -> None:
    words = words_of("Tim had a red kite.")
    curve = [{"step": s, "loss": 1 / s} | dict.fromkeys(determined.KINDS, 1 - 1 / s) for s in (1, 2, 4, 8, 16)]
    frame = pd.DataFrame([{"optimizer": "Muon", "lr": 0.02, "seed": seed, "curve": curve} for seed in (1, 2)])
    variance = {(layers, scaled): [1.0] * (layers + 1) for layers in (2, 4) for scaled in (False, True)}
    pictures = [
        figures.draw_questions(["Tim", "had", "a"], [0.5, 0.25]),
        figures.draw_gpt(words, SIZES, 681),
        figures.draw_ladder({"one": [2.0, 2.1], "two": [1.0]}, {"two": [1.2]}, 0.5),
        figures.draw_overfit([[{"step": s, "train": 1 / s, "held out": 1.0} for s in (1, 2)]]),
        figures.draw_training([6.0, 3.0, 1.0], {"even": 6.5}, [0, 1]),
        figures.draw_growth(frame, 6.5),
        figures.draw_growth(frame.assign(lr=[0.1, 0.2], optimizer="AdamW"), 6.5, "AdamW"),
        shading.shaded_text(words, {"2.1": (3, [0.0, 0.1, 0.9, 0.0, 0.0, 0.0]), "1.1": (2, [0.2] * len(words))}),
        figures.draw_variance(variance),
    ]
    for figure, alt in pictures:
        assert figure.axes
        assert len(alt) > 40


def test_the_picture_of_patches_says_what_it_shows() -> None:
    figure, alt = figures.draw_patches(["Anna", ".", "said"], [0.1, 0.93, 0.2], "1.4")
    assert "word 2, “.”, with probability 0.93" in alt
    assert "attention" not in alt
    assert any("0.93" in text.get_text() for axes in figure.axes for text in axes.texts)


def best_rate(frame: pd.DataFrame, stage: str) -> float:
    """The learning rate of the best runs of a stage."""
    (rate,) = set(frame[frame["stage"] == stage]["lr"])
    return rate


def test_what_the_lesson_says_of_each_part_holds_for_the_stored_runs() -> None:
    """In every run: what a rung gains, and that layers help with branches and hurt without them."""
    frame = study.best_runs(stored("gpt_pretraining.ladder").frame)
    low, high = (frame.groupby("stage")["loss"].agg(how) for how in ("min", "max"))
    bare = [f"{stage}{study.WITHOUT}" for stage in ("four heads", "feed-forward", "two blocks")]
    for worse, better in (
        ("one word", "one head"),
        ("residual and norm", "four heads"),
        ("four heads", "feed-forward"),
        ("feed-forward", "two blocks"),
        ("one head", bare[0]),
        (bare[1], bare[0]),
        (bare[2], bare[1]),
        (bare[1], "feed-forward"),
        (bare[2], "two blocks"),
    ):
        assert high[better] < low[worse], f"{better} is below {worse}"
    assert low["residual and norm"] < high["one head"] < high["residual and norm"], "the branch alone gains nothing"
    assert high["one head"] < frame[frame["stage"] == "residual and norm"]["loss"].mean(), "a lone branch is worse"
    tried = stored("gpt_pretraining.ladder").frame.query("stage == @bare[2]").set_index("lr")["loss"]
    assert math.isnan(tried[2 * best_rate(frame, bare[2])]), "at twice its best rate, the bare stack diverges"
    assert low["four heads"] < high[bare[0]] < low["four heads"] + 0.02
    assert frame[frame["stage"] == bare[2]]["all"].max() == 0


def test_losses_are_those_of_the_page_and_of_the_same_layers_without_branches(rungs: pd.DataFrame) -> None:
    of_page, bare = study.losses_of(rungs)
    assert of_page == {"one word": [2.2, 2.4], "feed-forward": [0.8, 0.9], "two blocks": [0.5, 0.6]}
    assert bare == {"two blocks": [1.2, 1.1]}


def test_attention_alone_ends_where_two_blocks_do() -> None:
    """As the answer to the prediction says: losses within 0.02, and about as many right stories."""
    runs = study.best_runs(stored("gpt_pretraining.ladder").frame).groupby("stage")[["loss", "all"]]
    alone, whole = (runs.mean().loc[name] for name in ("two blocks, attention alone", "two blocks"))
    assert 0 < alone["loss"] - whole["loss"] < 0.02
    assert abs(alone["all"] - whole["all"]) < 0.05
