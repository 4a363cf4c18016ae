"""Lesson 19's tables and graphs: what a reader types, the learner's pieces in the models, and every figure."""

import pandas as pd
import pytest
import torch
from torch import Tensor

from tfbook.course.experiments import stored
from tfbook.data.graphs import clubs as clubs_of
from tfbook.data.tables import cones_sold, ice_cream, read_table
from tfbook.lessons.modalities import exercises as ex, figures, study

pytestmark = pytest.mark.usefixtures("float32")
HOUR = {"temperature": 30, "hour": 15, "price": 2.5, "distance": 1, "sky": "sun", "day": "weekend"}
FRIENDS = "Ann-Bo-Cy-Ann Cy-Dee-Eve-Flo-Dee"


# ---- the stand -------------------------------------------------------------------------------------------------------


def test_an_hour_in_words_is_a_row_that_the_rule_reads() -> None:
    rows = study.stand.hours(HOUR, HOUR | {"sky": "rain", "price": 4})
    assert cones_sold(rows.numbers, rows.categories).tolist() == [54, 12]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sky": "snow"}, "sky is 'snow'; expected sun, clouds, rain"),
        ({"wind": 3}, "no column 'wind'"),
    ],
)
def test_hours_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study.stand.hours(HOUR | change)
    with pytest.raises(ValueError, match="an hour has no 'temperature'"):
        study.stand.hours({"sky": "sun"})


def test_standardized_cones_come_back() -> None:
    table = study.stand.stand()
    parts = study.stand.parts()
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(study.stand.SEED))
    expected = table.rows.target[order[600:1200]]
    torch.testing.assert_close(study.stand.in_cones(parts.test.target), expected, atol=1e-3, rtol=1e-4)
    assert study.stand.miss(parts.test.target, parts.test) == 0


def test_the_learners_tokens_run_in_the_model() -> None:
    rows = study.stand.parts().test[:4]
    mine, package = study.stand.learners_ft(ex.number_tokens.reference), study.stand.new_ft(study.stand.stand())
    torch.testing.assert_close(
        study.stand.predictions(mine.eval(), rows), study.stand.predictions(package.eval(), rows)
    )
    wrong = study.stand.learners_ft(lambda x, weight, bias: x[:, :, None] * weight)
    assert not torch.allclose(study.stand.predictions(wrong.eval(), rows), study.stand.predictions(mine, rows))


def test_training_at_the_stand_beats_the_mean() -> None:
    model = study.stand.new_ft(study.stand.stand(), layers=1)
    study.stand.train_table(model, study.stand.parts().train, steps=60, lr=1e-2)
    errors = study.stand.board(model).iloc[:, 0]
    assert errors["your FT-Transformer"] < 0.8 * errors["the mean"]
    assert errors["boosted trees"] < errors["ridge regression"] < errors["the mean"]


def test_every_contestant_runs_on_labels_and_on_numbers() -> None:
    for table in (read_table("wine"), ice_cream(200, seed=1)):
        split = table.split(1)
        for name in ("boosted trees", "linear model", "MLP", "trivial"):
            row = study.contest.best_of(name, table, split, trials=1, seed=3)
            assert row["model"] == name
            assert row["test"] > -0.2 if name == "trivial" else row["test"] > 0.3


def test_stored_reasons_say_what_the_lesson_says() -> None:
    means = study.contest.all_reasons().groupby(["variant", "model"])["test"].mean()
    turned, lost = means["axes turned"], means["as it is"] - means["16 useless columns"]
    assert turned["MLP"] > turned[["boosted trees", "FT-Transformer"]].max() + 0.05
    assert abs(means["as it is"]["MLP"] - turned["MLP"]) < 0.01
    assert 0.09 < lost["MLP"] < 0.11
    assert lost.drop("MLP").max() < 0.035


def test_the_scoreboard_hides_no_table_and_no_rival() -> None:
    board = {row.task: row for row in study.board.scoreboard()}
    assert {name: row.rival for name, row in board.items()} == {
        "table: ice cream (R²)": "boosted trees",
        "table: wine": "linear model",
        "table: breast cancer": "linear model",
        "table: diabetes (R²)": "linear model",
        "graph: clubs": "top eigenvector",
        "graph: rings": "plain means",
        "sound: digits": "recurrent network (GRU)",
        "image, text: caption of 100": "words as labels",
        "image, text: look, 180 steps": "CNN tower",
        "image, text: who is where": "CNN tower",
        "image, text: questions": "sum over tiles",
    }


def test_on_the_scoreboard_only_questions_have_our_blocks_a_point_ahead() -> None:
    ahead = []
    for row in study.board.scoreboard():
        ours, rival, trivial = (sum(scores) / len(scores) for scores in row.scores)
        assert trivial < min(ours, rival)
        ahead += [row.task] * (ours > rival + 0.01)
    assert ahead == ["image, text: questions"]


def test_in_eight_of_nine_splits_a_straight_line_is_level_or_ahead() -> None:
    assert study.contest.wins(stored("modalities.tables").frame, "FT-Transformer", "linear model") == 1


def test_the_trivial_score_of_numbers_is_zero() -> None:
    table = ice_cream(300, seed=1)
    assert study.contest.score(table, table.rows.target.mean().expand(300), table.rows) == pytest.approx(0, abs=1e-5)
    assert study.contest.score(table, table.rows.target, table.rows) == 1


# ---- graphs ----------------------------------------------------------------------------------------------------------


def test_the_learners_mask_runs_in_the_blocks() -> None:
    graphs = clubs_of(2, seed=1)
    mine, package = study.clubs.learners_blocks(ex.edge_mask.reference), study.clubs.new_blocks()
    assert (study.clubs.choices(mine.eval(), graphs) == study.clubs.choices(package.eval(), graphs)).all()
    blind = study.clubs.learners_blocks(lambda edges: torch.ones_like(edges)[:, None])
    with torch.no_grad():
        outputs = [model.eval()(graphs.features, graphs.edges) for model in (mine, blind)]
    assert not torch.allclose(*outputs)


@torch.no_grad()
def test_without_edges_all_unknown_people_are_alike() -> None:
    graphs, blind = clubs_of(3, seed=2), study.clubs.new_blocks(edges=False).eval()
    for logits, asked in zip(blind(graphs.features, graphs.edges), graphs.target >= 0, strict=True):
        rows = logits[asked]
        torch.testing.assert_close(rows, rows[:1].expand_as(rows), atol=1e-5, rtol=1e-5)
    assert study.clubs.share_right(study.clubs.choices(blind, graphs), graphs) == 0.5


def test_the_eigenvector_tells_two_groups_that_one_friendship_joins() -> None:
    graphs = study.clubs.friends("Ann-Bo-Cy-Ann Dee-Eve-Flo-Dee Cy-Dee", {"Flo": "red"})[1]
    assert study.clubs.eigenvector_sides(graphs)[0].tolist() == [1, 1, 1, 0, 0, 0]
    turned = study.clubs.friends("Ann-Bo-Cy-Ann Dee-Eve-Flo-Dee Cy-Dee", {"Flo": "blue"})[1]
    assert study.clubs.eigenvector_sides(turned)[0].tolist() == [0, 0, 0, 1, 1, 1]


def test_no_network_reaches_the_eigenvector() -> None:
    rules, hops = study.clubs.rule_shares(), stored("modalities.hops").frame
    assert rules[study.clubs.EIGENVECTOR_RULE] == pytest.approx(0.924, abs=0.001)
    assert rules[study.clubs.MEANS_RULE] == pytest.approx(0.827, abs=0.001)
    assert hops["right"].max() < rules[study.clubs.EIGENVECTOR_RULE]


def test_gat_in_plain_code_is_the_packages_layer() -> None:
    edges, W, a, x = study.clubs.named_edges("a-b-c-a c-d")[1], torch.randn(8, 4), torch.randn(2, 8), torch.randn(4, 4)
    h, allowed = x @ W.T, study.clubs.with_loops(edges)
    for weights in (ex.gat.reference, study.clubs.plain_gat):
        torch.testing.assert_close(
            weights(h, *a, allowed) @ h, study.clubs.gat_layer(W, a, edges)(x), atol=1e-5, rtol=1e-5
        )


def test_friends_in_words_are_a_graph() -> None:
    names, graphs = study.clubs.friends(FRIENDS, {"Ann": "red", "Flo": "blue"})
    assert names == ["Ann", "Bo", "Cy", "Dee", "Eve", "Flo"]
    assert graphs.features[0, 0].tolist() == [1, 0]
    assert graphs.features[0, 5].tolist() == [0, 1]
    red = study.clubs.memberships(study.clubs.new_blocks(), FRIENDS, {"Ann": "red", "Flo": "blue"})[2]
    assert red[0] == 1
    assert red[5] == 0
    with pytest.raises(ValueError, match="'Zoe', who has no friends"):
        study.clubs.friends(FRIENDS, {"Zoe": "red"})
    with pytest.raises(ValueError, match="'green'; expected red or blue"):
        study.clubs.friends(FRIENDS, {"Ann": "green"})


@pytest.mark.parametrize("order", study.clubs.ORDERS)
def test_a_graph_in_a_line_keeps_its_people(order: str) -> None:
    graphs = clubs_of(4, seed=3)
    line = study.clubs.in_a_line(graphs, order)
    assert line.target.sort(dim=1).values.tolist() == graphs.target.sort(dim=1).values.tolist()
    near = line.edges.float()
    mean = near @ line.features[..., :2] / near.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(line.features[..., 2:], mean)
    if order == "by degree":
        assert (line.edges.sum(dim=-1).diff(dim=1) >= 0).all()


def test_friends_are_nearer_breadth_first() -> None:
    graphs = clubs_of(30, seed=4)
    apart = {order: study.clubs.line_distance(study.clubs.in_a_line(graphs, order)) for order in study.clubs.ORDERS}
    assert apart["breadth first"] < 0.8 * apart["random"]
    with pytest.raises(ValueError, match="expected one of random"):
        study.clubs.in_a_line(graphs, "by name")


def test_the_learners_codes_feed_the_reader_of_rings() -> None:
    names, graphs = study.rings.bonds("a-b-c-a c-d-e")
    mine, package = study.rings.with_codes(ex.returns.reference)(graphs), study.rings.with_walks(graphs)
    torch.testing.assert_close(mine.features, package.features)
    model = study.rings.new_ring_reader(study.rings.with_walks)
    assert study.rings.rings_of(model, "a-b-c-a c-d-e")[0] == names
    assert graphs.target.tolist() == [[1, 1, 1, 0, 0]]


def test_signs_are_drawn_anew_and_the_rest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = study.rings.with_vectors(study.rings.bonds("a-b-c-d-a d-e")[1], 3)
    batch = study.rings.molecule_batches(shown, signs=3)(0)
    one = shown.features[0]
    assert (batch.features[..., :4] == one[:, :4]).all()
    assert (batch.features[..., 4:].abs() - one[:, 4:].abs()).abs().max() == 0
    assert len({tuple(row) for row in batch.features[:, 0, 4:].sign().tolist()}) > 2


# ---- further, figures ------------------------------------------------------------------------------------------------


def _edges() -> Tensor:
    return study.clubs.named_edges(FRIENDS)[1]


def test_figures_show_what_they_are_given() -> None:
    names = study.clubs.named_edges(FRIENDS)[0]
    friends = figures.draw_friends(names, _edges(), [1.0, 0.9, 0.8, 0.2, 0.1, 0.0], ["Ann", "Flo"], "Who?")
    assert {text.get_text() for text in friends.axes[0].texts} == {*names}
    assert len(friends.axes[0].lines) == int(_edges().sum()) // 2
    rings = figures.draw_rings(names, _edges(), [3, 3, 3, 3, 3, 0], "Rings")
    assert [text.get_text() for text in rings.axes[0].get_legend().get_texts()] == ["in no ring", "ring of 3"]
    mask = figures.draw_mask(names, _edges())
    assert sum(text.get_text() == "yes" for text in mask.axes[1].texts) == int(_edges().sum()) + 6
    assert "the same" in "".join(text.get_text() for text in figures.draw_landscape().axes[0].texts)
    row = figures.draw_row_tokens(("a", "b"), ("1", "2"), ("1 · w", "2 · w"), torch.zeros(2, 3))
    assert sum(text.get_text() == "0.0" for text in row.axes[0].texts) == 6


def test_places_keep_steps_apart() -> None:
    line = study.clubs.named_edges("a-b-c-d-e")[1]
    at = figures.layout(line)
    torch.testing.assert_close(torch.cdist(at, at)[0], torch.arange(5.0), atol=0.05, rtol=0.05)
    assert figures.steps_apart(torch.zeros(2, 2, dtype=torch.bool)).tolist() == [[0, 1], [1, 0]]


def test_the_scoreboard_draws_every_task_and_names_its_rival() -> None:
    rows = [study.board.BoardRow(task, f"rival of {task}", ([0.9, 0.8], [0.7], [0.5])) for task in ("one", "two")]
    axes = figures.draw_scoreboard(rows).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    assert {text.get_text() for text in axes.texts} == {
        "85  our blocks", "70  rival of one", "70  rival of two"
    }  # fmt: skip


def test_tables_are_compared_split_by_split() -> None:
    axes = figures.draw_tables(stored("modalities.tables").frame).axes[0]
    leads = {round(float(x), 4) for points in axes.collections for x in points.get_offsets()[:, 0]}
    assert {-0.1386, 0.0175, 0.0819, 0.0} <= leads
    assert sum(len(points.get_offsets()) for points in axes.collections) == 18


def test_claims_of_made_up_runs() -> None:
    hops = pd.DataFrame(
        [
            {"reader": "our blocks along edges", "layers": layers, "right": right}
            for layers, right in ((1, 0.7), (1, 0.72), (4, 0.9), (4, 0.88))
        ]
    )
    assert study.clubs.hop_claims(hops) == {11: pytest.approx(0.16)}
    names = ("FT-Transformer", "boosted trees", "linear model")
    tables = pd.DataFrame([{"table": "t", "model": m, "test": s} for m, s in zip(names, (0.9, 0.8, 0.85), strict=True)])
    assert study.contest.table_claims(tables) == {2: pytest.approx(0.05)}
