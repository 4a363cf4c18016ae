"""Lesson 09's measures on the story world: words that a story determines, what heads look at, what counting lacks."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional

from tfbook import data
from tfbook.course import batches
from tfbook.data.stories import check_story, told, words_of
from tfbook.lessons.gpt_pretraining import exercises, figures, first_exercises, study
from tfbook.plot import shading
from tfbook.text import BOS, EOS, PAD, Vocabulary

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


def test_the_version_that_the_lesson_unfolds_is_right() -> None:
    """The code in its `<details>`, run with the names of the page, passes the check of the exercise."""
    (shown,) = [text for text in page() if text.startswith("<details><summary>The lesson's own version")]
    names: dict[str, Any] = {"F": functional, "rotated": first_exercises.rotated}
    exec(shown.partition("```python\n")[2].partition("```")[0], names)
    assert exercises.attend.judge(names["attend"]).status == "correct"


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


def test_weights_take_the_names_of_the_package(model: Any) -> None:
    """Names of the page, made by undoing the renaming, are the package's again."""
    weights = model.state_dict()
    plain = {name.removeprefix("stack."): weight for name, weight in weights.items()}
    assert study.for_package(plain).keys() == weights.keys()


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
    found = study.determined(story)
    assert sum(map(len, found.values())) > 5
    for kind, places in found.items():
        for place in places:
            word = story.words[place]
            event = next(each for each in story.told if each.begin <= place < each.end)
            for other in study.KINDS[kind]:
                verdict = check_story([*story.words[:place], other, *story.words[place + 1 : event.end]])
                assert (not verdict.faults and not verdict.unread) == (other == word)


def test_the_first_name_and_the_first_place_are_free() -> None:
    story = told("valid", 3)
    found, first = study.determined(story), story.told[0]
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
    share = study.right_share(Fixed(), ids, {"names": [(0, 2)]}, vocabulary)
    assert share == {"names": pytest.approx(2 / (len(study.KINDS["names"]) + 1))}


def test_losses_by_position_add_up_to_the_loss(model: Any, rows: list[torch.Tensor]) -> None:
    """Weighted by their words, without padding; the first part is the loss of the words that it names."""
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    found = study.loss_by_position(model, ids, (1, 11))
    early, later = (ids[:, 1:11] != PAD).sum(), (ids[:, 11:] != PAD).sum()
    mean = (found["1–10"] * early + found["11–"] * later) / (early + later)
    with torch.no_grad():
        whole, beginning = (float(study.next_token_loss(model, part, pad=PAD).mean) for part in (ids, ids[:, :11]))
    assert float(mean) == pytest.approx(whole, abs=0.006)
    assert found["1–10"] == pytest.approx(beginning, abs=0.006)


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
        assert row["curve"][0].keys() >= {"loss", *study.KINDS}
        assert row.keys() >= {"sentences", "names", "all"}


def test_claims_of_growth_by_hand() -> None:
    def curve(last: float) -> list[dict[str, float]]:
        return [{"loss": 5.0, "things": 0.1}, {"loss": 1.0, "things": 0.3}, {"loss": last, "things": 0.9}]

    frame = pd.DataFrame(
        [
            {"optimizer": "Muon", "lr": 1, "seed": 1, "curve": curve(0.5), "all": 0.5},
            {"optimizer": "Muon", "lr": 1, "seed": 2, "curve": curve(0.6), "all": 0.6},
            {"optimizer": "AdamW", "lr": 1, "seed": 1, "curve": curve(0.8), "all": 0.1},
            {"optimizer": "AdamW", "lr": 2, "seed": 1, "curve": curve(0.8), "all": 0.2},
        ]
    )
    found = study.claims_of_growth(frame, counting=1.0, bound=0.5)
    assert found == pytest.approx({3: 0.4, 4: 0.1, 5: 0.5, 7: 0.3})
    assert study.claim_of_adamw(frame) == pytest.approx({6: 0.3})


def test_a_price_counts_parameters_stories_and_what_they_buy(model: Any, vocabulary: Vocabulary) -> None:
    large = study.package_gpt(len(vocabulary), 32, 2, 64, 2)
    judged = {"your GPT": {"all": 0.5}, "storyteller": {"all": 0.7}}
    told = study.STEPS_OF["storyteller"] * study.TOLD_AT_ONCE
    larger = large.parameter_count() / model.parameter_count()
    found = study.price(model, large, told // 4, judged, samples=100)
    assert f"{larger:.1f} times the parameters and 4.0 times the stories, {4 * larger:.0f} times the work" in found
    assert "20 more of 100 stories" in found
    assert "(standard error 6)" in found  # √(0.25 / 100 + 0.21 / 200) = 0.06
    assert "30 of 100 are still wrong" in found


# ---- heads -------------------------------------------------------------------------------------------------------


def test_a_head_looks_back_and_never_ahead(model: Any, rows: list[torch.Tensor]) -> None:
    weights = study.looks(model, rows[0], "2.1", at=5)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-5)
    assert float(weights[6:].sum()) == 0
    with study.record(model) as recorded, torch.no_grad():
        model(rows[0][None])
    assert torch.equal(weights, list(recorded.values())[1][0, 0, 5])


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
    curve = [{"step": s, "loss": 1 / s} | dict.fromkeys(study.KINDS, 1 - 1 / s) for s in (1, 2, 4, 8, 16)]
    frame = pd.DataFrame([{"optimizer": "Muon", "lr": 0.02, "seed": seed, "curve": curve} for seed in (1, 2)])
    judged = {name: {"sentences": 0.5, "names": 0.0, "all": 0.0} for name in ("counting", "GPT")}
    variance = {(layers, scaled): [1.0] * (layers + 1) for layers in (2, 4) for scaled in (False, True)}
    pictures = [
        figures.draw_questions(["Tim", "had", "a"], [0.5, 0.25]),
        figures.draw_gpt(words, SIZES, 681),
        figures.draw_counting([6.0, 2.0, 1.0], 0.5),
        figures.draw_training([6.0, 3.0, 1.0], {"even": 6.5}, [0, 1]),
        figures.draw_growth(frame, 6.5),
        figures.draw_growth(frame.assign(lr=[0.1, 0.2], optimizer="AdamW"), 6.5, "AdamW"),
        figures.draw_judged(judged),
        shading.shaded_text(words, {"2.1": (3, [0.0, 0.1, 0.9, 0.0, 0.0, 0.0]), "1.1": (2, [0.2] * len(words))}),
        figures.draw_variance(variance),
    ]
    for figure, alt in pictures:
        assert figure.axes
        assert len(alt) > 40
