"""What lesson 11 measures: forgetting, endings judged by a head, lists of examples; and the pictures of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from tfbook.course.experiments import stored
from tfbook.data.stories import told, words_of, words_of_plays_alone
from tfbook.lessons.adapting import claims, figures, study, texts
from tfbook.models.gpt import Gpt
from tfbook.pretrain import finetune
from tfbook.pretrain.storyteller import MODELS, Storyteller, story_loss, untrained
from tfbook.text.spans import SpanCorruption, corrupt_spans
from tfbook.text.vocabulary import BOS, EOS

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def teller() -> Storyteller:
    torch.manual_seed(0)
    found = untrained("draft")
    return found._replace(model=found.model.eval())


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


# ---- the other dialect -------------------------------------------------------------------------------------------


def test_words_of_plays_alone_are_in_plays_and_in_no_tale() -> None:
    alone = set(words_of_plays_alone())
    assert {"enter", "scene", ":"} <= alone
    tales = {word for number in range(150) for word in told("train", number).words}
    plays = {word for number in range(150) for word in finetune.play("train", number)}
    assert not alone & tales
    assert alone <= plays | alone
    assert len(alone & plays) > 0.9 * len(alone)


def test_a_loss_after_an_example_is_that_of_the_second_text(teller: Storyteller) -> None:
    first, second = finetune.play("valid", 1)[:9], finetune.play("valid", 2)[:7]
    found = study._second(teller, [first], [second])
    ids = [BOS, *teller.vocabulary.encode([*first, *second])]
    with torch.no_grad():
        logp = teller.model(torch.tensor([ids])).log_softmax(dim=-1)[0]
    expected = [-logp[place - 1, ids[place]].item() for place in range(10, 17)]
    assert found == pytest.approx(sum(expected) / 7, rel=1e-5)
    assert set(study.loss_after(teller, 2)) == {"after nothing", "after a tale", "after another play"}


def test_the_table_says_what_was_gained(teller: Storyteller) -> None:
    curves = {"full": [(0, 8.0, 0.5), (5, 2.0, 2.0)], "LoRA": [(0, 8.0, 0.5), (5, 5.0, 1.0)]}
    lora = finetune.prepare(untrained("draft").model, "lora")
    curves["full, replay"] = curves["full"]
    models = {"full": teller.model, "full, replay": teller.model, "LoRA": lora}
    found = study.table(curves, models, {"full": 6e-3, "full, replay": 6e-3, "LoRA": 0.04})
    assert found["learning rate"].tolist() == ["", "0.006", "0.006", "0.04"]
    assert found.loc["LoRA", "gain"] == "50%"
    assert found.loc["before", "loss on tales"] == "0.50"
    assert found.loc["LoRA", "trained parameters"] == f"{finetune.changed_count(lora, 'lora'):,}"


def runs() -> pd.DataFrame:
    rows: list[dict[str, Any]] = [{"method": "before", "lr": 0.0, "seed": 0, "share": 0.0, "new": 8.0, "old": 0.5}]
    for seed in (1, 2):
        rows += [
            {"method": "full", "lr": 0.001, "seed": seed, "share": 1.0, "new": 2.0 + seed, "old": 1.0},
            {"method": "full", "lr": 0.01, "seed": seed, "share": 1.0, "new": 1.0, "old": 3.0},
            {"method": "lora", "lr": 0.01, "seed": seed, "share": 0.019, "new": 1.0 + 0.1 * seed, "old": 2.0 + seed},
            {"method": "last", "lr": 0.01, "seed": seed, "share": 0.07, "new": 3.0, "old": 2.0},
            {"method": "rows", "lr": 0.1, "seed": seed, "share": 0.004, "new": 4.0, "old": 1.0},
        ]
    return pd.DataFrame(rows)


def test_the_best_rate_is_that_of_the_lowest_loss_on_plays() -> None:
    assert study.best_rates(runs()) == {"full": 0.01, "lora": 0.01, "last": 0.01, "rows": 0.1}


def test_claims_take_the_worst_seed() -> None:
    found = study.claims_of_dialect(runs())
    assert found[1] == pytest.approx(6.8 / 7)
    assert found[2] == 0.019
    assert found[3] == pytest.approx(1.0)
    assert found[4] == pytest.approx(min(3 - (3 - 2 * 0.1 / 2), 4 - (3 - 2 * 0.2 / 3)))


def test_runs_are_stored_with_what_they_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "load_storyteller", lambda name="draft": untrained("draft"))
    monkeypatch.setattr(study, "GRID", (("lora", 0.01), ("full", 0.003)))
    monkeypatch.setattr(finetune, "HELD_OUT", 2)
    rows = study.dialect((1,), steps=2)
    assert [row["method"] for row in rows] == ["before", "lora", "full"]
    assert rows[2]["new"] < rows[0]["new"]
    assert rows[1]["share"] < rows[2]["share"] == 1


def test_ulmfit_trains_the_top_more_or_earlier_than_the_bottom() -> None:
    assert study.depth_factors("discriminative", 7, 60, 3) == pytest.approx([1, 1 / 2.6, 1 / 2.6**2])
    turns = [study.depth_factors("gradual", step, 60, 5) for step in (0, 5, 6, 23, 24)]
    assert [sum(turn) for turn in turns] == [1, 1, 2, 4, 5]
    assert all(turn == sorted(turn, reverse=True) for turn in turns)


def test_ulmfit_is_compared_where_full_fine_tuning_has_the_same_loss_on_plays() -> None:
    thawed = pd.DataFrame(
        [{"method": way, "lr": 0.01, "seed": seed, "new": 1.5, "old": 1.0} for way in study.WAYS for seed in (1, 2)]
    )
    between = [3 - 2 * 0.5 / 2, 3 - 2 * 0.5 / 3]
    found = study.against_full(thawed, runs())
    assert found.iloc[0, 2] == pytest.approx(sum(between) / 2, abs=0.01)
    assert study.claims_of_unfreezing(thawed, runs())[9] == pytest.approx(sum(between) / 2 - 1, abs=0.01)
    worse = pd.concat([thawed, thawed.assign(lr=0.1, old=2.9)])
    assert study.claims_of_unfreezing(worse, runs())[9] == pytest.approx(sum(between) / 2 - 1, abs=0.01)


def test_ulmfit_is_not_compared_with_a_run_that_is_worse_in_both() -> None:
    worse = {"method": "full", "lr": 0.02, "seed": 1, "share": 1.0, "new": 1.01, "old": 9.0}
    frame = pd.concat([runs(), pd.DataFrame([worse])], ignore_index=True)
    for new in (1.005, 1.02, 1.5):
        assert study.forgotten_at(frame, new, 1) == pytest.approx(study.forgotten_at(runs(), new, 1))


def test_weights_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune, "HELD_OUT", 2)
    teller = untrained("draft")
    first = [parameter.clone() for parameter in study.by_depth(teller.model)[1]]
    monkeypatch.setattr(study, "load_storyteller", lambda name: teller)
    monkeypatch.setattr(study, "depth_factors", lambda way, step, steps, depths: [1, *[0] * (depths - 1)])
    before = finetune.losses(teller.model, teller.vocabulary)
    assert study._thawed("gradual", 1e-3, 1, 2)["new"] < before["new"]
    assert all(torch.equal(*pair) for pair in zip(first, study.by_depth(teller.model)[1], strict=True))


def test_every_weight_has_one_depth() -> None:
    model = untrained("storyteller").model
    ids = [id(parameter) for group in study.by_depth(model) for parameter in group]
    assert len(ids) == len(set(ids)) == len(list(model.parameters()))
    assert ids[0] == id(model.embed.weight)


def test_with_more_rank_lora_forgets_no_more_than_full_fine_tuning() -> None:
    """What the lesson says below the figure of ranks."""
    dialect, ranks = stored("adapting.dialect").frame, stored("adapting.ranks").frame
    means = ranks.groupby(["rank", "lr"])[["new", "old"]].mean()
    best = means.loc[means["new"].groupby("rank").idxmin()].droplevel("lr")
    full = dialect[dialect["method"] == "full"].groupby("lr")["new"].mean().min()
    closed = (best["new"][2] - best["new"]) / (best["new"][2] - full)
    assert 0.3 < closed[4] < 0.4
    assert 0.45 < closed[8] < 0.55
    assert 0.6 < closed[32] < 0.66
    assert best["old"].between(1.7, 2.0).all()
    more = (ranks["old"] - study.beside_full(ranks, dialect)["full"])[ranks["lr"] == 0.04].groupby(ranks["rank"]).mean()
    assert (more[[1, 2, 4]] > 0.5).all()
    assert (more[[16, 32]].abs() < 0.15).all()


def test_each_rank_is_drawn_at_its_best_rate() -> None:
    losses = {(1, 0.02): 1.5, (1, 0.04): 1.4, (2, 0.02): 1.2, (2, 0.04): 3.0}
    ranks = pd.DataFrame(
        [
            {"rank": r, "lr": lr, "seed": s, "new": v + 0.1 * s, "old": 2 * v + 0.1 * s, "full": v}
            for (r, lr), v in losses.items()
            for s in (-1, 1)
        ]
    )
    figure, alt = figures.draw_ranks(ranks, runs())
    assert "rank 1: plays 1.40, tales 2.80, full fine-tuning's there 1.40; rank 2: plays 1.20" in alt
    assert alt.endswith("Full fine-tuning's best on plays: 1.00.")
    drawn = [sorted(marks.get_offsets()[:, 1]) for axes in figure.axes for marks in axes.collections]
    assert drawn[0] == pytest.approx([1.1, 1.3, 1.3, 1.5])
    assert drawn[1] == pytest.approx([2.3, 2.5, 2.7, 2.9])
    assert drawn[2] == pytest.approx([1.2, 1.2, 1.4, 1.4])


def test_the_arrow_of_the_frontier_says_how_much_more_lora_forgets() -> None:
    """Full's means on plays are 3.5 and 1.0, LoRA's 1.15, where it has 3.5 on tales."""
    assert f"at least {3.5 - (3 - 2 * 0.15 / 2.5):.1f} nats more than full's" in figures.draw_frontier(runs())[1]


def test_the_stored_rates_are_as_the_lesson_says() -> None:
    """Half of full fine-tuning's best rate forgets far less; each rate of the last layer is beaten in both losses."""
    means = stored("adapting.dialect").frame.groupby(["method", "lr"])[["new", "old"]].mean()
    full, last = means.loc["full"], means.loc["last"]
    half, best = full.loc[0.003], full.loc[0.006]
    assert round(half["new"] - best["new"], 2) == 0.01
    assert round(best["old"] - half["old"], 1) == 1.4
    assert all((full < row).all(axis=1).any() for _, row in last.iterrows())
    assert last["new"].idxmin() == last.index.max() == 0.06
    assert round(last.loc[0.03, "new"] - last.loc[0.06, "new"], 2) == 0.02
    assert 1.9 < last.loc[0.06, "old"] / last.loc[0.03, "old"] < 2


def test_an_untrained_model_names_no_place() -> None:
    frame = stored("adapting.shots").frame
    assert (frame.loc[frame["step"] == 0, "accuracy"] == 0).all()


# ---- does it end well? -------------------------------------------------------------------------------------------


def test_unfinished_stories_lack_their_end() -> None:
    texts, targets = study.unfinished("valid", 6)
    for number, (words, target) in enumerate(zip(texts, targets.tolist(), strict=True)):
        story = told("valid", number)
        assert target == story.happy
        assert len(words) < len(story.words)
        assert list(story.words[: len(words)]) == words


def test_a_judge_reads_the_vector_at_the_end_of_a_padded_text(teller: Storyteller) -> None:
    judge = study.Judge(teller.model)
    short, long = words_of("Tim had a kite."), words_of("Tim had a red kite and a ball.")
    ids = study.story_ids([short, long], teller.vocabulary)
    both = judge(ids)[0]
    for row, words in enumerate((short, long)):
        alone = torch.tensor([[BOS, *teller.vocabulary.encode(words), EOS]])
        torch.testing.assert_close(judge(alone)[0][0], both[row])


def test_a_bag_says_which_words_occur(teller: Storyteller) -> None:
    words = words_of("Tim had a kite. Tim had a ball.")
    found = study.bag([words], teller.vocabulary)
    assert found.sum() == len(set(words))


def test_a_fresh_model_has_the_sizes_of_the_tellers_and_other_weights(teller: Storyteller) -> None:
    found = study.fresh(teller._replace(model=teller.model.requires_grad_(False).apply(_zeroed)))
    assert type(found) is Gpt
    assert found.parameter_count() == teller.model.parameter_count()
    assert found.embed.weight.abs().max() > 0


def _zeroed(layer: nn.Module) -> None:
    for parameter in layer.parameters(recurse=False):
        parameter.zero_()


def test_judging_returns_a_row_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LABELS", (4, 6))
    rows = study.judging((1,), steps=1, tested=4)
    assert len(rows) == 1 + 2 * len(study.KINDS)
    assert rows[0]["kind"] == "always yes"


# ---- lists -------------------------------------------------------------------------------------------------------


def test_a_list_keeps_each_thing_at_its_place() -> None:
    ids = study.lists(20, torch.Generator().manual_seed(0))
    for row in ids.tolist():
        places: dict[int, int] = {}
        for thing, place in zip(row[::2], row[1::2], strict=True):
            assert thing < study.THINGS <= place < study.THINGS + study.PLACES
            assert places.setdefault(thing, place) == place
    assert len({tuple(row) for row in ids.tolist()}) == 20


def test_a_perfect_reader_is_right_as_often_as_a_count_of_draws_says() -> None:
    """A reader of lists, counted: right where the thing has come, else one guess in six."""
    ids = study.lists(4000, torch.Generator().manual_seed(1))
    for shots in (0, 1, 5, 11):
        known = [row[2 * shots] in row[: 2 * shots : 2] for row in ids.tolist()]
        share = sum(known) / len(known)
        assert study.perfect_reader(shots) == pytest.approx(share + (1 - share) / study.PLACES, abs=0.03)
    assert study.perfect_reader(0) == pytest.approx(1 / study.PLACES)


def test_few_steps_are_measured_at_their_moments() -> None:
    rows = study.shots((1,), moments=(0, 100))
    assert {row["step"] for row in rows} == {0, 100}
    assert len(rows) == 2 * study.LINES
    assert all(0 <= row["accuracy"] <= 1 for row in rows)


# ---- experts and pictures ----------------------------------------------------------------------------------------


class Plain(nn.Module):
    """The lesson's experts."""

    def __init__(self, count: int = 3, k: int = 2):
        super().__init__()
        self.router, self.k = nn.Linear(4, count, bias=False), k
        self.up = nn.ModuleList(nn.Linear(4, 6) for _ in range(count))
        self.down = nn.ModuleList(nn.Linear(6, 4) for _ in range(count))


def test_the_packages_experts_take_the_weights_of_the_lesson() -> None:
    plain, x = Plain(), torch.randn(1, 5, 4)
    run = study.package_experts(plain)
    p = plain.router(x[0]).softmax(dim=-1)
    expected = torch.zeros(5, 4)
    for token in range(5):
        first, second = p[token].argsort(descending=True)[:2].tolist()
        for expert in (first, second):
            weight = p[token, expert] / (p[token, first] + p[token, second])
            expected[token] += weight * plain.down[expert](plain.up[expert](x[0, token]).relu())
    for way in ("sparse", "dense"):
        torch.testing.assert_close(run(x, way)[0], expected)


def test_every_picture_has_an_alt_text() -> None:
    words = words_of("Tim had a kite.")
    source, target = corrupt_spans(range(5), 5, SpanCorruption(rate=0.4), generator=torch.Generator().manual_seed(0))
    dialect = stored("adapting.dialect").frame
    pictures = [
        figures.draw_curves([(0, 8.0, 0.5), (5, 3.0, 1.0)], math.log(681)),
        figures.draw_lora(),
        figures.draw_frontier(runs()),
        figures.draw_ranks(study.beside_full(stored("adapting.ranks").frame, dialect), dialect),
        figures.draw_transformations(),
        figures.draw_routing(words, [[0.5, 0.5]] * 5),
        figures.draw_spans(
            words, [False, True, False, False, True], [str(i) for i in source], [str(i) for i in target]
        ),
        figures.draw_shots(stored("adapting.shots").frame, [study.perfect_reader(n) for n in range(study.LINES)]),
        figures.draw_judging(stored("adapting.judging").frame),
        figures.draw_texts(texts.best_runs(stored("adapting.text_to_text").frame)),
    ]
    for figure, alt in pictures:
        assert figure.axes
        assert len(alt) > 40


def test_the_claims_are_those_of_the_stored_runs() -> None:
    """Otherwise the lesson would say what nobody has measured."""
    measured = (
        study.claims_of_dialect(stored("adapting.dialect").frame)
        | study.claims_of_judging(stored("adapting.judging").frame)
        | study.claims_of_shots(stored("adapting.shots").frame)
        | study.claims_of_unfreezing(stored("adapting.unfreezing").frame, stored("adapting.dialect").frame)
        | texts.claims_of_texts(stored("adapting.text_to_text").frame)
    )
    assert set(measured) == set(claims.CLAIMS.bounds)
    assert all(claim.verdict == "holds" for claim in claims.CLAIMS.check(measured).claims)


def test_the_stored_runs_have_three_seeds() -> None:
    frame = stored("adapting.dialect").frame
    assert (frame[frame["method"] != "before"].groupby(["method", "lr"])["seed"].nunique() >= 3).all()
    assert MODELS["storyteller"].d_model == 192
    assert story_loss is finetune.story_loss
