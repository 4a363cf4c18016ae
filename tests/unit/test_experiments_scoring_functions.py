"""Scoring functions: memories are what they say, scores learn what they can, and numbers agree with formulas."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch

from tfbook import runtime
from tfbook.attention import SCORES, DotScore, LocationScore
from tfbook.course.experiments import scoring_functions as study
from tfbook.course.experiments.scoring_functions import (
    RELATIONS,
    ProjectedScore,
    Recaller,
    accuracy,
    learn,
    make,
    recall,
)
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


def test_the_table_has_six_rows_and_is_the_same_twice() -> None:
    first, again = (study.recall_table(["same", "place"], steps=2) for _ in range(2))
    assert first == again
    assert first.keys() == SCORES.keys()
    assert all(row.keys() == {"same", "place"} for row in first.values())
    assert first["cosine"]["same"] > 0.9 > first["dot"]["place"]


def test_costs_are_ratios_and_the_additive_score_pays_for_every_pair() -> None:
    """Its hidden layer is (query, key, d_score); the others keep (query, key)."""
    small, large = (study.costs(pairs=pairs, width=8, rows=2, rounds=2) for pairs in (8, 32))
    assert small.keys() == SCORES.keys()
    assert all(cost.time > 0 for cost in small.values())
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


def test_with_one_head_the_headed_decoder_is_luongs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same parameters; four heads compute something else, with weights that still sum to 1."""
    config = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8, d_encoder=4, dropout=0.0)
    headed = study.HeadedDecoder(config)
    plain = study.TRANSLATORS["general / √d"](config)
    plain.load_state_dict(headed.state_dict())
    encoder, source = RecurrentEncoder(config), torch.randint(4, 9, (2, 6))
    inputs = source, torch.tensor([6, 4]), torch.randint(4, 9, (2, 3))
    expected, found = (Translator(encoder, decoder)(*inputs) for decoder in (plain, headed))
    assert not torch.allclose(expected.logits, found.logits)
    torch.testing.assert_close(found.weights.sum(dim=-1), torch.ones(2, 3))
    monkeypatch.setattr(study.HeadedDecoder, "heads", 1)
    torch.testing.assert_close(Translator(encoder, headed)(*inputs).logits, expected.logits)


def test_growth_tests_every_length_and_trains_every_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LENGTHS", (4, 32))
    monkeypatch.setattr(study, "WIDTHS", (8,))
    rows = study.growth((1, 2), steps=1)
    assert [(row["score"], row["seed"]) for row in rows] == [(name, seed) for seed in (1, 2) for name in SCORES]
    assert all(row.keys() == {"score", "seed", "4 pairs", "32 pairs", "width 8"} for row in rows)
    dot = rows[[*SCORES].index("dot")]
    assert dot["4 pairs"] > dot["32 pairs"] > 0.5


def test_growth_curves_are_means_with_half_the_range() -> None:
    rows = [
        {"score": name, "4 pairs": low + 0.1 * i, "8 pairs": 0.5} for name in SCORES for i, low in enumerate((0.2, 0.4))
    ]
    curves = study.growth_curves(pd.DataFrame(rows), "{} pairs", (4, 8))
    assert curves.keys() == {"additive", "general", "dot", "cosine"}
    assert curves["dot"] == ([4, 8], pytest.approx([0.35, 0.5]), pytest.approx([0.15, 0]))


def test_translators_differ_in_their_score_alone() -> None:
    config = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8, d_encoder=4)
    shapes = []
    for build in study.TRANSLATORS.values():
        weights = build(config).state_dict()
        shapes.append({name: weight.shape for name, weight in weights.items() if not name.startswith("score.")})
    assert all(shape == shapes[0] for shape in shapes)
    assert isinstance(study.TRANSLATORS["location"](config).score, LocationScore)
