"""Scoring functions: memories are what they say, scores learn what they can, and numbers agree with formulas."""

from __future__ import annotations

import math
import re

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from tfbook import runtime
from tfbook.attention import SCORES, DotScore, LocationScore
from tfbook.course.translators import Quality
from tfbook.lessons.scoring_functions import figures, study, translation
from tfbook.lessons.scoring_functions.exercises import general_lookup
from tfbook.lessons.scoring_functions.study import RELATIONS, ProjectedScore, Recaller, accuracy, learn, make, recall
from tfbook.models.seq2seq import RecurrentEncoder, Seq2SeqConfig, Translator

pytestmark = pytest.mark.usefixtures("float32")
every_relation = pytest.mark.parametrize("relation", RELATIONS)


@every_relation
def test_memories_come_from_their_seed_alone(relation: str) -> None:
    """The same seed, the same batch; another seed, another; nobody else's random numbers are used."""
    before = torch.get_rng_state()
    one, same, other = (recall(relation, seed=seed, rows=4) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.query, same.query)
    assert torch.equal(one.keys, same.keys)
    assert torch.equal(one.values, same.values)
    assert torch.equal(one.answer, same.answer)
    assert not torch.equal(one.keys, other.keys)


@every_relation
def test_a_memory_holds_every_value_once(relation: str) -> None:
    batch = recall(relation, seed=1, pairs=6, width=4, rows=50)
    assert batch.query.shape == (50, 4)
    assert batch.keys.shape == (50, 6, 4)
    assert torch.equal(batch.values.sort(dim=1).values, torch.arange(6).expand(50, 6))
    assert set(batch.answer.tolist()) == set(range(6))


def _wanted(relation: str, monkeypatch: pytest.MonkeyPatch) -> tuple[study.Recall, torch.Tensor, torch.Tensor]:
    """A batch without noise, the key that its query asks for, and that key's place."""
    monkeypatch.setattr(study, "NOISE", 0.0)
    batch = recall(relation, seed=1)
    place = (batch.values == batch.answer[:, None]).int().argmax(dim=1)
    return batch, batch.keys[torch.arange(len(place)), place], place


def test_the_query_is_the_key_itself_turned_stretched_or_squared(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, key, _ = _wanted("same", monkeypatch)
    assert torch.equal(batch.query, key)
    batch, key, _ = _wanted("turned", monkeypatch)
    turn = torch.linalg.lstsq(key, batch.query).solution
    torch.testing.assert_close(key @ turn, batch.query, rtol=0, atol=1e-4)
    torch.testing.assert_close(turn @ turn.T, torch.eye(16), rtol=0, atol=1e-4)
    batch, key, _ = _wanted("stretched", monkeypatch)
    torch.testing.assert_close(torch.cosine_similarity(batch.query, key), torch.ones(128))
    assert batch.keys.norm(dim=-1).std() > 3 * recall("same", seed=1).keys.norm(dim=-1).std()
    batch, key, _ = _wanted("squared", monkeypatch)
    torch.testing.assert_close(batch.query, key**2 - 1)


def test_the_query_names_the_place_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same place, the same query, whatever stands there; `marked place` adds its code to the key."""
    batch, key, place = _wanted("place", monkeypatch)
    codes = torch.stack([batch.query[place == j][0] for j in range(16)])
    assert torch.equal(batch.query, codes[place])
    marked, marked_key, _ = _wanted("marked place", monkeypatch)
    assert torch.equal(marked.query, batch.query)
    torch.testing.assert_close(marked_key, key + batch.query)


def test_a_recaller_mixes_values_by_weight() -> None:
    """Worked out by hand: two keys, scores 1 and 0, values in reverse order."""
    batch = study.Recall(
        query=torch.tensor([[1.0, 0.0]]),
        keys=torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]),
        values=torch.tensor([[1, 0]]),
        answer=torch.tensor([1]),
    )
    p = math.e / (math.e + 1)
    model = Recaller(DotScore(2, 2, 2))
    torch.testing.assert_close(model(batch), torch.tensor([[1 - p, p]]))
    assert study.recall_loss(model, batch) == pytest.approx(-math.log(p))


def test_a_score_without_parameters_needs_no_training() -> None:
    assert accuracy(learn(make("dot"), "same", steps=10**9), "same") >= 0.9


def test_content_and_location_are_strangers() -> None:
    """Each is near chance, one in eight, where the other decides, and far above it where it decides itself."""
    runtime.seed(1)
    location, general = (make(name, pairs=8) for name in ("location", "general"))
    assert accuracy(learn(location, "place", steps=60, pairs=8), "place", pairs=8) > 0.9
    assert accuracy(location_model := Recaller(location), "same", pairs=8) < 0.25
    assert location_model.score.longest == 8
    assert accuracy(learn(general, "turned", steps=150, pairs=8), "turned", pairs=8) > 0.8
    assert accuracy(Recaller(general), "place", pairs=8) < 0.25


def test_the_additive_score_pays_for_every_pair() -> None:
    """Its hidden layer is (query, key, d_score); the others keep (query, key)."""
    small, large = (study.costs(pairs=pairs, width=8, rows=2, rounds=2) for pairs in (8, 32))
    assert small.keys() == SCORES.keys()
    assert all(cost.seconds > 0 for cost in small.values())
    assert [small[name].parameters for name in ("dot", "cosine", "general", "location")] == [0, 1, 64, 64]
    assert large["location"].parameters == 32 * 8, "a row of W for each place"
    hidden = 2 * 32 * 32 * 8 * 4  # bytes of the tanh
    assert large["additive"].kept >= hidden
    assert large["general"].kept < hidden


def test_a_projected_score_is_the_product_of_two_maps() -> None:
    """(W₁ q)ᵀ (W₂ k) / √d_score = qᵀ (W₁ᵀ W₂) k / √d_score, of rank d_score at most."""
    score = ProjectedScore(5, 4, 2)
    query, keys = torch.randn(1, 3, 5), torch.randn(1, 6, 4)
    W = score.f.weight.T @ score.g.weight
    torch.testing.assert_close(score(query, score.project(keys)), query @ W @ keys.mT / math.sqrt(2))
    assert torch.linalg.matrix_rank(W.detach()) == 2
    assert sum(p.numel() for p in ProjectedScore(5, 4, 2, hidden=7).parameters()) == (5 * 7 + 7 + 16) + (4 * 7 + 7 + 16)


def test_a_wider_key_finds_more() -> None:
    found = study.by_key_width((1, 16), steps=120)
    assert found[16] > found[1] + 0.3


def test_spread_agrees_with_the_formulas() -> None:
    """Variance d, or 1 when scaled; the even softmax of equal scores has entropy log n."""
    for width in (4, 64):
        assert study.spread(width, scaled=False).variance == pytest.approx(width, rel=0.1)
        assert study.spread(width, scaled=True).variance == pytest.approx(1, rel=0.1)
    assert study.spread(256, scaled=False).entropy < 0.5 < study.spread(256, scaled=True).entropy < math.log(32)
    assert study.spread(1024, scaled=False).gradient < 0.5 * study.spread(1024, scaled=True).gradient
    assert study.spread(4, scaled=False).gradient > study.spread(4, scaled=True).gradient, "only wide ones fade"
    wide = study.spread(64, scaled=True)
    assert wide.looked_at == pytest.approx(math.exp(wide.entropy))


def test_with_one_head_the_headed_decoder_is_luongs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same parameters; four heads compute something else, with weights that still sum to 1."""
    config = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8, d_encoder=4, dropout=0.0)
    headed = translation.HeadedDecoder(config)
    plain = translation.TRANSLATORS["general / √d"](config)
    plain.load_state_dict(headed.state_dict())
    encoder, source = RecurrentEncoder(config), torch.randint(4, 9, (2, 6))
    inputs = source, torch.tensor([6, 4]), torch.randint(4, 9, (2, 3))
    expected, found = (Translator(encoder, decoder)(*inputs) for decoder in (plain, headed))
    assert not torch.allclose(expected.logits, found.logits)
    torch.testing.assert_close(found.weights.sum(dim=-1), torch.ones(2, 3))
    monkeypatch.setattr(translation.HeadedDecoder, "heads", 1)
    torch.testing.assert_close(Translator(encoder, headed)(*inputs).logits, expected.logits)


def test_growth_tests_every_length_and_trains_every_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LENGTHS", (4, 32))
    monkeypatch.setattr(study, "WIDTHS", (8,))
    rows = study.growth((1, 2), steps=1)
    assert [(row["score"], row["seed"]) for row in rows] == [(name, seed) for seed in (1, 2) for name in SCORES]
    assert all(row.keys() == {"score", "seed", "4 pairs", "32 pairs", "width 8"} for row in rows)
    dot = rows[[*SCORES].index("dot")]
    assert dot["4 pairs"] > dot["32 pairs"] > 0.5


def test_translators_differ_in_their_score_alone() -> None:
    config = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8, d_encoder=4)
    shapes = []
    for build in translation.TRANSLATORS.values():
        weights = build(config).state_dict()
        shapes.append({name: weight.shape for name, weight in weights.items() if not name.startswith("score.")})
    assert all(shape == shapes[0] for shape in shapes)
    assert isinstance(translation.TRANSLATORS["location"](config).score, LocationScore)


# ---- what the lesson's cells use ---------------------------------------------------------------------------------

LEARNED = {  # shapes of the learned numbers in the lesson's formulas, for queries and keys of width 3 and 5 keys
    "dot": (),
    "scaled dot": (),
    "cosine": ((),),
    "general": ((3, 3),),
    "additive": ((3, 4), (3, 4), (4,), (4,)),
    "location": ((5, 3),),
}


@pytest.mark.parametrize("name", SCORES)
def test_the_package_takes_the_weights_of_the_lessons_formula(name: str) -> None:
    """Worked out here once more, in the order and orientation that the lesson uses."""
    weights = [torch.rand(shape) + 0.5 for shape in LEARNED[name]]
    q, K = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    expected = {
        "dot": lambda: q @ K.mT,
        "scaled dot": lambda: q @ K.mT / math.sqrt(3),
        "cosine": lambda beta: beta * torch.cosine_similarity(q[:, :, None], K[:, None], dim=-1),
        "general": lambda W: q @ W @ K.mT,
        "additive": lambda W, U, b, v: torch.tanh((q @ W)[:, :, None] + (K @ U + b)[:, None]) @ v,
        "location": lambda W: q @ W.mT,
    }[name](*weights)
    package = study.package_score(name)
    torch.testing.assert_close(package(q, K, *weights), expected)
    assert package.__name__ == SCORES[name].__name__


def test_a_learners_lookup_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    study.train_lookup(general_lookup.reference, steps=150)
    before, after = map(int, re.findall(r"(\d+)%", capsys.readouterr().out)[:2])
    assert before < 30 < 80 < after


def test_a_blank_lookup_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    def general_lookup(query: object, keys: object, values: object, W: object) -> object:
        return ...

    study.train_lookup(general_lookup, steps=10**9)
    assert capsys.readouterr().out == "○ write general_lookup first, then run this cell again\n"


def test_each_score_is_judged_at_its_best_learning_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is chosen with seed 0 and reported with the others; without parameters there is none to choose."""
    tried: list[tuple[str, int, float]] = []

    def learn(score: object, relation: str, *, steps: int, seed: int, lr: float) -> tuple[int, float]:
        tried.append((relation, seed, lr))
        return seed, lr

    monkeypatch.setattr(study, "RELATIONS", {"same": RELATIONS["same"]})
    monkeypatch.setattr(study, "SCORES", {name: SCORES[name] for name in ("general", "dot")})
    monkeypatch.setattr(study, "RECALL_RATES", (0.1, 0.2, 0.3))
    monkeypatch.setattr(study, "learn", learn)
    monkeypatch.setattr(study, "accuracy", lambda model, relation, seed: 1 - abs(model[1] - 0.2))
    rows = study.relations((1, 2), steps=5)
    assert [row["lr"] for row in rows] == [0.2, 0.2, 0.1, 0.1]
    assert [row["seed"] for row in rows] == [1, 2, 1, 2]
    assert [lr for _, seed, lr in tried if seed == 0] == [0.1, 0.2, 0.3, 0.1]
    assert rows[0] == {"score": "general", "relation": "same", "seed": 1, "lr": 0.2, "accuracy": 1.0}


def test_additive_and_networks_are_compared_at_equal_parameters() -> None:
    sizes = [sum(p.numel() for p in build().parameters()) for build in study.SIZES.values()]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.04)
    assert sizes[2] == pytest.approx(sizes[3], rel=0.01)


def test_nonlinear_scores_keep_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "RECALL_RATES", (1e-2,))
    rows = study.nonlinear((1,), steps=2, pairs=32)
    assert [row["score"] for row in rows] == [*study.SIZES]
    kept = {row["score"]: row["kept"] for row in rows}
    assert kept["additive, width 125"] >= 32 * 32 * 125 * 4 > kept["network before dot, hidden 64"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Translators of two steps that nobody asks to translate."""
    monkeypatch.setattr(translation, "RATES", (1e-2,))
    monkeypatch.setattr(translation, "quality", lambda *_: Quality(50.0, 0.5, ""))
    monkeypatch.setattr(translation, "BATCH", 8)


@pytest.mark.usefixtures("small")
def test_where_the_weights_look_is_recorded_from_the_start() -> None:
    rows = translation.collapse((1,), widths=(8,), steps=10)
    assert [(row["score"], row["width"]) for row in rows] == [(name, 8) for name in translation.PAIR_OF_SCORES]
    for row in rows:
        assert [step for step, *_ in row["curve"]] == [0, 5, 10]
        assert all(1 <= words <= 11 and 0 <= right <= 1 and 0 <= end <= 1 for _, words, right, end in row["curve"])
        source, target, maps = (row["example"][name] for name in ("source", "target", "maps"))
        assert (source[-1], [*maps]) == ("<eos>", ["0"])
        assert torch.tensor(maps["0"]).shape == (len(target), len(source))
        assert torch.tensor(maps["0"]).sum(dim=-1).tolist() == pytest.approx([1.0] * len(target), abs=5e-3)
    assert translation.words_after(pd.DataFrame(rows), step=5, width=8).keys() == set(translation.PAIR_OF_SCORES)
    table = translation.bleu_table(pd.DataFrame(rows), width=8)
    assert table["general"].to_dict() == {
        "width 8, best learning rate": "50.0",
        "width 8, learning rate 0.01": "50.0",
    }


@pytest.mark.usefixtures("small")
def test_heads_are_judged_together_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        translation, "TRANSLATORS", {name: translation.TRANSLATORS[name] for name in ("dot", translation.HEADS)}
    )
    plain, headed = translation.translators((1,), width=8, steps=2)
    assert "heads" not in plain
    assert len(headed["heads"]) == 4
    assert len({headed["alignment error"], *headed["heads"]}) > 1
    table = translation.heads_table(
        pd.DataFrame([plain, headed]), pd.DataFrame([plain | {"score": "general / √d"}]), width=8
    )
    assert [*table.index] == ["one head", "four heads"]
    assert table.loc["one head", "best head"] == ""
    assert [*translation.translator_table(pd.DataFrame([plain, headed]), width=8).index] == ["dot"]


# ---- drawings ----------------------------------------------------------------------------------------------------

NAMES, QUERY = ("cat", "dog", "parrot"), torch.tensor([0.9, 0.1])
KEYS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


def _texts(figure: Figure) -> set[str]:
    return {text.get_text() for axes in figure.axes for text in axes.texts}


def test_the_soft_dictionary_shows_its_numbers() -> None:
    records = torch.cat([KEYS, torch.tensor([[4.0, 4.0], [20.0, 4.0], [1.0, 2.0]])], dim=1)
    drawn = _texts(figures.draw_soft_dictionary(NAMES, QUERY, records, KEYS, records[:, 2:])[0])
    assert {"0.39", "0.18", "0.43", "5.5", "3.1", "20", "records $X$: 3 × 4"} <= drawn


def test_six_scores_are_drawn_with_their_numbers() -> None:
    learned = {"dot": (), "scaled dot": (), "cosine": (torch.tensor(3.0),), "general": (KEYS[:2],)}
    learned |= {"additive": (KEYS[:2], KEYS[:2], QUERY, QUERY), "location": (7 * KEYS,)}
    drawn = _texts(figures.draw_meeting(NAMES, QUERY, KEYS, learned)[0])
    assert {"cat", "place 3", "7.0", "tanh", "$W$", "$U$", "$v$", "÷ length", "0.6", "3.0", "never\nread"} <= drawn


def test_a_bar_for_each_score_and_a_dot_for_each_seed() -> None:
    rows = [{"score": name, "relation": "same", "accuracy": 0.1 * seed} for name in SCORES for seed in (1, 2, 3)]
    figure, _ = figures.draw_accuracies(pd.DataFrame(rows), ("same",), 0.06)
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.2] * 6)
    assert [len(line.get_xdata()) for line in axes.get_lines()[:-1]] == [3] * 6
    assert axes.get_lines()[-1].get_xdata()[0] == 0.06


def test_rings_mark_the_pair_that_is_meant() -> None:
    memory = recall("same", seed=1, rows=12)
    figure, _ = figures.draw_recall(memory, {"a": torch.rand(12, 16), "b": torch.rand(12, 16)})
    rings = {(int(line.get_xdata()[0]), int(line.get_ydata()[0])) for line in figure.axes[0].get_lines()}
    assert {int(memory.values[row, pair]) for pair, row in rings} <= set(memory.answer.tolist())
    assert all(memory.values[row, pair] == memory.answer[row] for pair, row in rings)
    assert len(rings) == 12


def test_curves_are_drawn_from_what_is_given() -> None:
    failure, _ = figures.draw_failure([0.0, 1.0], {"soft": [4, 20]}, {"soft": [4, 5, 6]}, torch.tensor([4.0, 20.0]))
    assert [*failure.axes[1].get_lines()[0].get_ydata()] == [4, 5, 6]
    cooling, _ = figures.draw_temperature(torch.tensor([10.0, 1.0]), {"cat": torch.tensor([0.3, 0.4])})
    assert cooling.axes[0].xaxis_inverted()
    rows = [[study.spread(width, scaled=scaled, rows=20) for width in (4, 16)] for scaled in (False, True)]
    spread, _ = figures.draw_widths(*rows, keys=32)
    assert [*spread.axes[2].get_lines()[0].get_ydata()] == [row.gradient for row in rows[0]]
    runs = [
        {"score": name, "width": 8, "curve": [[0, 7.0, 0.1, 0.1], [5, 1.0, 0.5, 0.9]]}
        for name in translation.PAIR_OF_SCORES
    ]
    collapse, _ = figures.draw_collapse(pd.DataFrame(runs), 8, {"words": 9.0, "right": 0.2})
    assert [*collapse.axes[0].get_lines()[0].get_ydata()] == [7.0, 1.0]
    costs = {size: study.costs(pairs=size, width=8, rows=2, rounds=2) for size in (4, 8)}
    drawn, _ = figures.draw_costs(costs, costs)
    assert [*drawn.axes[1].get_lines()[0].get_ydata()] == [costs[size]["additive"].kept / 2**20 for size in (4, 8)]


def test_maps_of_one_sentence_are_drawn_with_its_links() -> None:
    maps = {"0": [[0.5, 0.5, 0.0]], "15": [[0.0, 0.1, 0.9]]}
    example = {"source": ["black", "cat", "<eos>"], "target": ["chat"], "links": [[1, 0]], "maps": maps}
    runs = [{"score": name, "width": 8, "seed": 1, "example": example} for name in translation.PAIR_OF_SCORES]
    figure, _ = figures.draw_early_maps(pd.DataFrame(runs), 8, (0, 15))
    assert [axes.get_title() for axes in figure.axes[:2]] == [
        "general: before training",
        "general: step 15",
    ]
    assert [line.get_xdata()[0] for line in figure.axes[0].get_lines()] == [1.5]


def test_equal_weights_look_at_all_words() -> None:
    found = translation.equal_weights()
    assert 4 <= found["words"] <= 11
    assert found["end"] == pytest.approx(1 / found["words"], rel=0.1)
    assert 0.05 < found["right"] < 0.25


def test_the_trivial_score_is_the_average() -> None:
    score = translation.EqualScore(4, 4, 4)
    assert torch.equal(score(torch.randn(2, 3, 4), score.project(torch.randn(2, 5, 4))), torch.zeros(2, 3, 5))


def test_growth_is_drawn_for_the_scores_that_differ() -> None:
    rows = [
        {"score": name, "4 pairs": low + 0.1 * i, "8 pairs": 0.5, "width 2": 0.6, "width 4": 0.7}
        for name in SCORES
        for i, low in enumerate((0.2, 0.4))
    ]
    figure, _ = figures.draw_growth(pd.DataFrame(rows), (4, 8), (2, 4))
    left, _ = figure.axes
    assert {line.get_label() for line in left.get_lines()} == {"additive", "general", "dot", "cosine"}
    assert [*left.get_lines()[0].get_ydata()] == pytest.approx([0.35, 0.5])
