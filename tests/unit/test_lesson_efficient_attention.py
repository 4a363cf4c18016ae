"""Efficient attention: operations, crossings, errors of features, recall of hashing, and a task of facts."""

import math

import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from tfbook.attention import Band, Causal, attention_weights, fastest, softmax
from tfbook.attention.efficient.banded import Banded
from tfbook.attention.efficient.bigbird import BigBird
from tfbook.attention.efficient.lsh import Lsh
from tfbook.lessons.efficient_attention import costs, facts, figures, study
from tfbook.lessons.efficient_attention.costs import FUSED
from tfbook.lessons.efficient_attention.facts import BEYOND, CONTEXT, KEYS, QUESTION, QUESTIONS, VALUES, Facts
from tfbook.models.blocks import alternate
from tfbook.models.language_model import LanguageModel

pytestmark = pytest.mark.usefixtures("float32")


# ---- the book ----------------------------------------------------------------------------------------------------

SECRET = "The treasure is under the old stone bridge."


def test_dense_attention_finds_the_secret_and_a_window_does_not() -> None:
    book = study.hide(SECRET, 1024)
    assert (book.x.shape, len(book.v), len(book.text)) == ((1024, 64), 1024, 1025)
    assert book.answer == SECRET[8:]
    output = softmax(*(x[None, None] for x in (book.x, book.x, book.v)))
    assert book.read(output) == book.answer
    assert book.found(output) == 1
    near = softmax(*(x[None, None] for x in (book.x, book.x, book.v)), Band(100, 100))
    assert book.found(near) < 0.5


def test_the_question_holds_no_answer_and_equal_characters_have_equal_vectors() -> None:
    book = study.hide(SECRET, 1024)
    assert not book.v[-len(SECRET) :].any()
    assert torch.equal(book.v[: -len(SECRET)].sum(dim=1), torch.ones(1024 - len(SECRET)))
    first = book.text.index(SECRET)
    assert first < 300
    assert torch.equal(book.x[first + 7], book.x[1024 - len(SECRET) + 7])
    assert not torch.equal(book.x[first + 7], book.x[first + 8])


def test_a_row_of_zeros_is_an_empty_answer_and_vectors_are_as_wide_as_asked() -> None:
    book = study.hide(SECRET, 1024, d_head=128)
    assert book.x.shape == (1024, 128)
    output = torch.zeros(1024, len(book.alphabet))
    assert book.read(output) == "·" * len(book.answer)
    output[book.asked.start, book.alphabet.index("q")] = 1e-20
    assert book.read(output) == "q" + "·" * (len(book.answer) - 1)


@pytest.mark.parametrize("secret", ["too short", "x" * 101])
def test_a_secret_has_a_length_that_fits(secret: str) -> None:
    with pytest.raises(ValueError, match="expected 24 to 100"):
        study.hide(secret, 1024)


def test_two_machines_find_what_one_finds() -> None:
    book = study.hide(SECRET, 1024)
    output = study.two_machines(book, study.merge)
    expected = softmax(*(x[None, None] for x in (book.x, book.x, book.v)))[0, 0]
    torch.testing.assert_close(output[book.asked], expected[book.asked])


def test_steps_over_tiles_are_causal_attention_and_need_no_key_in_a_tile() -> None:
    q, k, v = torch.randn(3, 10, 4, generator=torch.Generator().manual_seed(1))
    state = torch.full((10, 1), -torch.inf), torch.zeros(10, 1), torch.zeros(10, 4)
    place = torch.arange(10)
    for j in (place[6:], place[:6]):  # some queries see nothing of the first tile
        state = study.tile_step(state, q, k[j], v[j], j <= place[:, None])
    expected = softmax(*(x[None, None] for x in (q, k, v)), Causal())[0, 0]
    torch.testing.assert_close(state[2] / state[1], expected)


def test_megabytes_count_the_largest_tensors() -> None:
    book = study.hide(SECRET, 512)
    assert study.megabytes(lambda q, k, v: q @ k.T, book) == pytest.approx(512 * 512 * 4 / 1e6, rel=0.01)


# ---- patterns ----------------------------------------------------------------------------------------------------


def test_layers_are_counted_until_nothing_new_is_met() -> None:
    """A chain of five needs four layers, everything at once one; a star two."""
    number = torch.arange(5)
    assert study.layers_until_met((number[:, None] - number).abs() <= 1) == 4
    assert study.layers_until_met(torch.ones(5, 5, dtype=torch.bool)) == 1
    assert study.layers_until_met((number[:, None] == number) | (number == 0) | (number[:, None] == 0)) == 2


def test_bigbird_meets_in_two_layers_with_every_layout_in_both_directions() -> None:
    for seed in range(20):
        assert study.layers_until_met(BigBird(random_blocks=2, seed=seed).layout(64, causal=False)) == 2


# ---- summaries ---------------------------------------------------------------------------------------------------


def test_ratios_shares_and_far_answers_are_read_from_rows() -> None:
    rows = [{"implementation": i, "n": n, "seconds": s * n} for i, s in ((FUSED, 1.0), ("LSH", 3.0)) for n in (2, 4)]
    assert costs.time_ratios(pd.DataFrame(rows), ("LSH",)) == {"LSH": ([2, 4], [3.0, 3.0])}
    shares = costs.time_shares([{"implementation": "a", "kind": "b", "share": 0.5}])
    assert shares == {"a": {"b": 0.5}}
    bins = [[share] * (len(facts.EDGES) - 1) for share in (0.2, 0.6)]
    runs = pd.DataFrame(
        [{"implementation": "a", "far": far, "bins": each} for far, each in zip((0.2, 0.6), bins, strict=True)]
    )
    assert facts.far_answers(runs) == {"a": (0.2, 0.6)}
    assert facts.far_answers(runs.assign(implementation="banded")) == {"window": (0.2, 0.6)}
    distance, mean, low, high = facts.by_distance(runs, ("a",))["a"]
    assert facts.by_distance(runs.assign(implementation="dense, banded"), ("dense, window",)).keys() == {
        "dense, window"
    }
    assert (len(distance), mean[0], low[0], high[0]) == (len(facts.EDGES) - 1, pytest.approx(0.4), 0.2, 0.6)


def test_hashing_is_timed_by_rounds_and_against_dense() -> None:
    rows = costs.rounds_of_hashing(64, turns=1)
    assert [row["rounds"] for row in rows] == [1, 2, 4, 8]
    against = costs.hashing_against_dense((64,), turns=1)
    assert [row["implementation"] for row in against] == ["LSH", FUSED]
    assert all(row["seconds"] > 0 for row in rows + against)


def test_shares_of_a_profile_sum_to_one() -> None:
    rows = costs.profiles(128)
    for name in costs.PROFILED:
        assert sum(row["share"] for row in rows if row["implementation"] == name) == pytest.approx(1)


# ---- drawings ----------------------------------------------------------------------------------------------------


def test_tiles_are_drawn_with_the_numbers_of_the_softmax() -> None:
    """The last column is the dense output."""
    scores, values = torch.tensor([[1.0, 3.0, 2.0, 5.0]]), torch.tensor([[10.0], [20.0], [30.0], [40.0]])
    shown = {text.get_text() for text in figures.draw_tiles(scores, values, tile=2).axes[0].texts}
    assert f"{float(scores.softmax(dim=1) @ values):.2f}" in shown
    weights = torch.exp(scores[:, :2] - scores[:, :2].amax())  # of the first tile
    assert {"tile 1", "tile 2", "5.0", *(f"{weight:.2f}" for weight in weights[0].tolist())} <= shown


def test_the_drawn_reach_is_that_of_stacked_windows() -> None:
    """The tokens from which a chain of steps within the window leads to the last one."""
    axes = figures.draw_reach(window=3, layers=2, tokens=9).axes[0]
    title = axes.get_title(loc="left") + axes.get_title()  # the house style writes it on the left
    near = torch.ones(9, 9).tril().triu(-2)
    back = int((near @ near)[-1].count_nonzero()) - 1
    assert title.endswith(f"reach {back} tokens back")


def test_the_picture_of_hashing_marks_the_keys_that_a_full_bucket_hides() -> None:
    """Six vectors in one bucket, blocks of two: the second block reads four of them."""
    angles = torch.tensor([0.0, 0.1] + [1.5 + 0.05 * i for i in range(6)])
    vectors, buckets = torch.stack([angles.cos(), angles.sin()], dim=1), torch.tensor([0] * 2 + [1] * 6)
    texts = [text.get_text() for text in figures.draw_hashing(vectors, torch.eye(2), buckets).axes[1].texts]
    assert any("not read" in text for text in texts)
    even = figures.draw_hashing(vectors, torch.eye(2), torch.arange(8) // 2).axes[1].texts
    assert not any("not read" in text.get_text() for text in even)


def test_every_drawing_is_made() -> None:
    angles = torch.arange(8) * 0.7
    buckets = torch.arange(8) % 4
    layout = torch.eye(4, dtype=torch.bool)
    recall = study.Recall(0.5, 0.5, 0.1)
    pictures = [
        figures.draw_orders(),
        figures.draw_traffic(),
        figures.draw_reach(),
        figures.draw_hashing(torch.stack([angles.cos(), angles.sin()], dim=1), torch.eye(2), buckets),
        figures.draw_ingredients(layout, layout, layout),
        figures.draw_memory((2, 4), (1.0, 4.0), (), 16),
        figures.draw_memory((2, 4, 16), (1.0, 4.0), (1.0, 1.0, 2.0), 16),
        figures.draw_recall({"a": [recall, recall]}, (1, 2)),
        figures.draw_distances({"window": ([1, 9], [1.0, 0.5], [1.0, 0.4], [1.0, 0.6])}, 4, 0.125),
        figures.draw_ratios({"LSH": ([2, 4], [2.0, 0.5])}, "title"),
    ]
    assert all(figure.axes for figure in pictures)


# ---- operations --------------------------------------------------------------------------------------------------


def test_restricted_attention_is_dense_attention_in_a_band_with_keys_of_zero_before_the_first() -> None:
    """From the position on that has all its neighbors."""
    torch.manual_seed(0)
    run = costs.restrict(12, 4, r=3)
    torch.manual_seed(0)
    x = torch.randn(12, 4)[None, None]
    expected = (attention_weights(x, x, Causal() & Band(2, 0)) @ x)[0, 0]
    torch.testing.assert_close(run()[2:, 0], expected[2:])


# ---- seconds and bytes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", costs.IMPLEMENTATIONS)
def test_every_implementation_runs_forward_and_backward(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query's weights sum to 1, so the gradients of the values sum to the number of queries in each coordinate."""
    kept, grad = [], torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *inputs, **options: kept.append(grad(*inputs, **options)))
    costs.forward_backward(name, 70)()
    ((of_q, of_k, of_v),) = [each for each in kept if each is not None]
    shape = (1, costs.HEADS, 70, costs.D_HEAD)
    assert (of_k is None) == (name == "LSH"), "shared-key LSH reads no keys"
    assert all(each.shape == shape and each.isfinite().all() for each in (of_q, of_v, of_q if of_k is None else of_k))
    assert of_q.any()
    torch.testing.assert_close(of_v.sum(dim=2), torch.full((1, costs.HEADS, costs.D_HEAD), 70.0), rtol=1e-4, atol=0)


def test_stored_rows_name_implementation_length_and_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out, attention is left out where its matrices would be too large."""
    monkeypatch.setattr(costs, "LONGEST_WRITTEN_OUT", 64)
    for rows, key in ((costs.times((64, 128), rounds=1), "seconds"), (costs.memory((64, 128)), "bytes")):
        expected = [(name, n) for n in (64, 128) for name in costs.IMPLEMENTATIONS if n == 64 or "written" not in name]
        assert [(row["implementation"], row["n"]) for row in rows] == expected
        assert all(row[key] > 0 for row in rows)


def test_the_strided_layout_reaches_everything_in_two_layers() -> None:
    for blocks in (4, 9, 16, 30):
        layout = costs.strided(blocks).tril().float()
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
    drawn = Facts.draw(20, seed=3)
    for ids, answers, distance in zip(*(part.tolist() for part in drawn), strict=True):
        stated = {i // VALUES: (place, i % VALUES) for place, i in enumerate(ids) if i < QUESTION}
        assert len(stated) == KEYS == sum(i < QUESTION for i in ids)
        assert all(place < CONTEXT // 2 for place, _ in stated.values())
        questions = [place for place, i in enumerate(ids) if QUESTION <= i < facts.ANSWER]
        assert questions == [place for place, answer in enumerate(answers) if answer >= 0]
        assert len(questions) == QUESTIONS
        for place in questions:
            where, value = stated[ids[place] - QUESTION]
            assert where < place
            assert (answers[place], distance[place]) == (facts.ANSWER + value, place - where)


def test_answers_are_never_read_and_texts_depend_on_the_seed() -> None:
    drawn = Facts.draw(50, seed=3)
    assert not ((drawn.ids >= facts.ANSWER) & (drawn.ids < facts.FIRST_NOISE)).any()
    assert torch.equal(drawn.ids, Facts.draw(50, seed=3).ids)
    assert not torch.equal(drawn.ids, Facts.draw(50, seed=4).ids)


def test_right_counts_by_distance() -> None:
    """A model that knows the drawn up to `BEYOND` back, and no others."""
    drawn = Facts.draw(40, seed=7)

    class Near(LanguageModel):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            known = drawn.answers.where(drawn.distance <= BEYOND, facts.FIRST_NOISE).clamp(min=0)
            return F.one_hot(known, facts.VOCABULARY).float()

    found = facts.right(Near(facts.VOCABULARY, facts.SIZES), drawn)
    places = [low <= BEYOND for low in facts.EDGES[:-1]]
    assert found["bins"] == [float(near) for near in places]
    assert found["far"] == 0
    assert found["all"] == pytest.approx(float((drawn.distance[drawn.answers >= 0] <= BEYOND).float().mean()))


def test_banded_layers_reach_as_far_as_is_said() -> None:
    """And the bins of distance part there."""
    torch.manual_seed(0)
    stack = alternate(LanguageModel(facts.VOCABULARY, facts.SIZES).stack, Banded(facts.BAND, block=facts.BAND))
    x = torch.randn(1, CONTEXT, facts.SIZES.d_model, requires_grad=True)
    (stack(x, Causal())[0, -1] * torch.randn(facts.SIZES.d_model)).sum().backward()
    assert x.grad[0].abs().sum(dim=-1).nonzero()[0].item() == CONTEXT - 1 - BEYOND
    assert BEYOND + 1 in facts.EDGES


def test_each_implementation_is_trained_and_put_into_the_dense_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same start; the dense one put into the dense model changes nothing."""
    monkeypatch.setattr(facts, "MODELS", {"dense": (fastest,), "band": (Banded(8, block=8),)})
    rows = facts.long_range((1, 2), steps=2, batch=2)
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
    model, curve, _ = facts.trained_on_facts((fastest,), 1, 40, 8, few)
    first = facts.answer_loss(LanguageModel(facts.VOCABULARY, facts.SIZES), few)
    assert facts.answer_loss(model, few) < 0.6 * first
    assert curve[-1]["step"] == 40


def test_stored_runs_train_each_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of each, both ways."""
    for experiment in (facts.layouts, facts.both_directions):
        rows = experiment((1, 2), steps=2, batch=2)
        assert [row["seed"] for row in rows] == [1, 2]
        assert all(0 <= row["far"] <= 1 for row in rows)
