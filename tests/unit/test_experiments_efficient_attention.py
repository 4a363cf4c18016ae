"""Efficient attention: operations, crossings, errors of features, recall of hashing, and a task of facts."""

import math

import pytest
import torch
from torch.nn import functional as F

from tfbook.attention import Band, Causal, attention_weights, fastest
from tfbook.attention.efficient.banded import Banded
from tfbook.attention.efficient.lsh import Lsh
from tfbook.course.experiments import efficient_attention as study
from tfbook.course.experiments.efficient_attention import BEYOND, CONTEXT, KEYS, QUESTION, QUESTIONS, VALUES, Facts
from tfbook.models.blocks import alternate
from tfbook.models.language_model import LanguageModel

pytestmark = pytest.mark.usefixtures("float32")


# ---- operations --------------------------------------------------------------------------------------------------


def test_operations_are_those_of_the_table() -> None:
    """Two for each product and its sum, scores and mixture both; nothing else."""
    found = study.operations((10, 20), d=8)
    assert found["self-attention"] == [4 * n * n * 8 for n in (10, 20)]
    assert found["recurrent"] == [4 * n * 8 * 8 for n in (10, 20)]
    assert found["convolution"] == [2 * 4 * n * 8 * 8 for n in (10, 20)]
    assert found["restricted"] == [4 * 32 * n * 8 for n in (10, 20)]


def test_restricted_attention_is_dense_attention_in_a_band_with_keys_of_zero_before_the_first() -> None:
    """From the position on that has all its neighbors."""
    torch.manual_seed(0)
    run = study.restrict(12, 4, r=3)
    torch.manual_seed(0)
    x = torch.randn(12, 4)[None, None]
    expected = (attention_weights(x, x, Causal() & Band(2, 0)) @ x)[0, 0]
    torch.testing.assert_close(run()[2:, 0], expected[2:])


# ---- seconds and bytes -------------------------------------------------------------------------------------------


def test_a_crossing_lies_on_straight_lines_through_logarithms() -> None:
    lengths = [100, 200, 400, 800]
    theirs = [n**2 for n in lengths]
    assert study.crossing(lengths, [300 * n for n in lengths], theirs) == pytest.approx(300)
    assert study.crossing(lengths, [50 * n for n in lengths], theirs) == 100
    assert study.crossing(lengths, [900 * n for n in lengths], theirs) is None
    assert study.crossing(lengths, [1.0, 1e9, 1.0, 1.0], theirs) > 200, "the last time that they cross"


@pytest.mark.parametrize("name", study.IMPLEMENTATIONS)
def test_every_implementation_runs_forward_and_backward(name: str) -> None:
    study.forward_backward(name, 70)()


def test_stored_rows_name_implementation_length_and_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out, attention is left out where its matrices would be too large."""
    monkeypatch.setattr(study, "LONGEST_WRITTEN_OUT", 64)
    for rows, key in ((study.times((64, 128), rounds=1), "seconds"), (study.memory((64, 128)), "bytes")):
        expected = [(name, n) for n in (64, 128) for name in study.IMPLEMENTATIONS if n == 64 or "written" not in name]
        assert [(row["implementation"], row["n"]) for row in rows] == expected
        assert all(row[key] > 0 for row in rows)


def test_the_strided_layout_reaches_everything_in_two_layers() -> None:
    for blocks in (4, 9, 16, 30):
        layout = study.strided(blocks).tril().float()
        assert torch.equal((layout @ layout) > 0, torch.ones(blocks, blocks).tril() > 0)


# ---- random features ---------------------------------------------------------------------------------------------


def test_the_mean_of_many_estimates_is_the_exponential() -> None:
    q, k = 0.3 * torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = study.estimates(q, k, 256, 400)
    torch.testing.assert_close(found.mean(dim=0), (q @ k.mT / 2).exp(), rtol=0.02, atol=0)


def test_errors_of_features_fall_and_only_the_output_is_biased() -> None:
    few, many = study.performer_errors(8, 1000), study.performer_errors(64, 1000)
    assert 0.4 < few.off < 2
    assert few.bias > 3 * few.chance
    assert few.output > 2 * many.output
    assert few.product > 2 * many.product
    assert few.mean == many.mean < few.output, "a plain mean is closer than 8 features"
    assert study.performer_errors(8, 2, size=1e-6).mean < 1e-9, "where all scores are alike, attention is the mean"


# ---- hashing -----------------------------------------------------------------------------------------------------


def test_vectors_of_one_cluster_have_the_highest_score() -> None:
    """8 for a vector and its own direction."""
    x = study.clustered(60, 0.1, kinds=3)
    scores = (x @ F.normalize(x, dim=-1).mT)[0, 0] / math.sqrt(32)
    torch.testing.assert_close(scores.diagonal(), torch.full((60,), 8.0))
    assert ((scores > 7) | (scores < 6)).all()
    assert ((scores > 7).sum(dim=1) >= 5).all()


def test_recall_is_whole_where_all_pairs_meet_and_small_where_few_do() -> None:
    x = study.clustered(40, 0.3)
    assert study.recall(Lsh(buckets=2, window=40, rounds=40), x, top=4) == pytest.approx((1, 1, 1), abs=0.01)
    found = study.recall(Lsh(buckets=2, window=2, rounds=1), x, top=4)
    assert found.top < 0.5
    assert found.pairs < 0.1


def test_recall_counts_the_keys_of_largest_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against loops over queries."""
    x, implementation = study.clustered(30, 0.5), Lsh(buckets=4, window=8, rounds=2)
    met = implementation.mask(x, x, Causal()).dense(30, 30)[0, 0]
    scores = (x @ F.normalize(x, dim=-1).mT)[0, 0]
    hits = [bool(met[i, j]) for i in range(3, 30) for j in scores[i, :i].topk(3).indices.tolist()]
    assert study.recall(implementation, x, top=3).top == pytest.approx(sum(hits) / len(hits))


# ---- facts -------------------------------------------------------------------------------------------------------


def test_every_question_follows_its_only_fact_and_has_its_value() -> None:
    facts = Facts.draw(20, seed=3)
    for ids, answers, distance in zip(*(part.tolist() for part in facts), strict=True):
        stated = {i // VALUES: (place, i % VALUES) for place, i in enumerate(ids) if i < QUESTION}
        assert len(stated) == KEYS == sum(i < QUESTION for i in ids)
        assert all(place < CONTEXT // 2 for place, _ in stated.values())
        questions = [place for place, i in enumerate(ids) if QUESTION <= i < study.ANSWER]
        assert questions == [place for place, answer in enumerate(answers) if answer >= 0]
        assert len(questions) == QUESTIONS
        for place in questions:
            where, value = stated[ids[place] - QUESTION]
            assert where < place
            assert (answers[place], distance[place]) == (study.ANSWER + value, place - where)


def test_answers_are_never_read_and_texts_depend_on_the_seed() -> None:
    facts = Facts.draw(50, seed=3)
    assert not ((facts.ids >= study.ANSWER) & (facts.ids < study.FIRST_NOISE)).any()
    assert torch.equal(facts.ids, Facts.draw(50, seed=3).ids)
    assert not torch.equal(facts.ids, Facts.draw(50, seed=4).ids)


def test_the_commonest_value_so_far_is_right_more_often_than_chance() -> None:
    """Against a loop."""
    facts, hits = Facts.draw(10, seed=5), []
    for ids, answers in zip(facts.ids.tolist(), facts.answers.tolist(), strict=True):
        for place, answer in enumerate(answers):
            if answer >= 0:
                stated = [i % VALUES for i in ids[: place + 1] if i < QUESTION]
                best = max(range(VALUES), key=lambda value: (stated.count(value), -value))
                hits.append(answer - study.ANSWER == best)
    assert study.commonest(facts) == pytest.approx(sum(hits) / len(hits))
    assert study.commonest(Facts.draw(200, seed=6)) > 1.5 / VALUES


def test_right_counts_by_distance() -> None:
    """A model that knows the facts up to `BEYOND` back, and no others."""
    facts = Facts.draw(40, seed=7)

    class Near(LanguageModel):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            known = facts.answers.where(facts.distance <= BEYOND, study.FIRST_NOISE).clamp(min=0)
            return F.one_hot(known, study.VOCABULARY).float()

    found = study.right(Near(study.VOCABULARY, study.SIZES), facts)
    places = [low <= BEYOND for low in study.EDGES[:-1]]
    assert found["bins"] == [float(near) for near in places]
    assert found["far"] == 0
    assert found["all"] == pytest.approx(float((facts.distance[facts.answers >= 0] <= BEYOND).float().mean()))


def test_banded_layers_reach_as_far_as_is_said() -> None:
    """And the bins of distance part there."""
    torch.manual_seed(0)
    stack = alternate(LanguageModel(study.VOCABULARY, study.SIZES).stack, Banded(study.BAND, block=study.BAND))
    x = torch.randn(1, CONTEXT, study.SIZES.d_model, requires_grad=True)
    (stack(x, Causal())[0, -1] * torch.randn(study.SIZES.d_model)).sum().backward()
    assert x.grad[0].abs().sum(dim=-1).nonzero()[0].item() == CONTEXT - 1 - BEYOND
    assert BEYOND + 1 in study.EDGES


def test_each_implementation_is_trained_and_put_into_the_dense_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same start; the dense one put into the dense model changes nothing."""
    monkeypatch.setattr(study, "MODELS", {"dense": (fastest,), "band": (Banded(8, block=8),)})
    rows = study.long_range((1, 2), steps=2, batch=2)
    found = [(row["implementation"], row["seed"], row["trained"]) for row in rows]
    assert found == [
        (name, seed, trained) for seed in (1, 2) for name in ("dense", "band") for trained in (True, False)
    ]
    for dense in (rows[0:2], rows[4:6]):
        assert dense[0]["bins"] == dense[1]["bins"]
    assert [point["step"] for point in rows[0]["curve"]] == [1, 2]


def test_the_model_learns_to_fetch() -> None:
    """Short texts' worth of training: the answers leave chance."""
    few = Facts.draw(64, seed=10**6)
    model, curve, _ = study.trained((fastest,), 1, 40, 8, few)
    first = study.answer_loss(LanguageModel(study.VOCABULARY, study.SIZES), few)
    assert study.answer_loss(model, few) < 0.6 * first
    assert curve[-1]["step"] == 40
