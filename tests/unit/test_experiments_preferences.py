"""What lesson 12 measures: who gives, pairs, best of n by a proxy, the critic's start, small runs, pictures."""

from itertools import combinations

import pandas as pd
import pytest
import torch

from tfbook.course.experiments import preferences as study
from tfbook.data.stories import story_ids, told, words_of
from tfbook.models.gpt import Gpt
from tfbook.models.reward import RewardModel
from tfbook.pretrain.storyteller import MODELS, Storyteller, load_storyteller
from tfbook.text.vocabulary import BOS, EOS, PAD

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def draft() -> Storyteller:
    return load_storyteller("draft")


@pytest.fixture
def pool(draft: Storyteller) -> study.Pool:
    return study.Pool(study.sample(draft.model.cpu(), 24, seed=1), draft.vocabulary)


# ---- stories -------------------------------------------------------------------------------------------------------


def test_generous_is_read_from_the_words_alone() -> None:
    stories = [told("valid", number) for number in range(40)]
    known = [any(event.event in study.GIVING for event in story.told) for story in stories]
    assert [study.generous(story.words) for story in stories] == known
    assert 0 < sum(known) < len(known)
    assert study.shares([story.words for story in stories]) == {"generous": sum(known) / 40, "consistent": 1}


def test_demonstrations_are_generous() -> None:
    shown = study.demonstrations(5)
    assert len(set(shown)) == 5
    assert study.shares(shown) == {"generous": 1, "consistent": 1}


def test_samples_are_padded_after_their_end() -> None:
    torch.manual_seed(0)
    model = Gpt(30, MODELS["draft"]).eval()
    with torch.no_grad():
        model.embed.weight[EOS] += 0.3  # so that some stories end soon
    ids = study.sample(model, 20, seed=3)
    assert torch.equal(ids, study.sample(model, 20, seed=3))
    assert (ids[:, 0] == BOS).all()
    for row in ids.tolist():
        after = row[row.index(EOS) + 1 :] if EOS in row else []
        assert set(after) <= {PAD}
    answers = study.as_answers(ids)
    assert not answers.answered[:, 0].any()
    ended = (ids == EOS).any(dim=1)
    assert torch.equal(answers.lengths[ended], (ids[ended] == EOS).int().argmax(dim=1) + 1)
    assert (answers.lengths[~ended] == ids.shape[1]).all()


def test_pairs_have_the_better_story_first_and_use_each_before_any_comes_again(draft: Storyteller) -> None:
    found = [told("valid", number).words for number in range(12)]
    spoilt = [(*words[:-2], "kite", ".") for words in found if study.generous(words)][:1]
    pool = study.Pool(story_ids([*found, *spoilt], draft.vocabulary), draft.vocabulary)
    better = [row for row, words in enumerate(found) if study.generous(words)]
    worse = [row for row in range(12) if row not in better]
    assert (pool.better.tolist(), pool.worse.tolist()) == (better, worse), "a generous story with a fault is neither"
    source = study.pairs(pool, len(better), seed=1)
    chosen, rejected = (torch.cat(side).tolist() for side in zip(*(next(source) for _ in range(12)), strict=True))
    assert sorted(chosen[: len(better)]) == better == sorted(chosen[len(better) : 2 * len(better)])
    assert sorted(rejected[: len(worse)]) == worse
    few = study.pairs(pool, 2, seed=1, most=1)
    assert {tuple(rows.tolist()) for rows in next(few)} == {(better[0],) * 2, (worse[0],) * 2}
    with pytest.raises(ValueError, match="has 0 better and 1 worse stories"):
        next(study.pairs(study.Pool(pool.ids[worse[:1]], draft.vocabulary), 2, seed=1))


# ---- rewards -------------------------------------------------------------------------------------------------------


def test_best_by_score_is_the_share_over_all_choices() -> None:
    scores, good = torch.tensor([0.3, 2.0, -1.0, 0.7, 0.1]), [True, False, True, True, False]
    for row in study.best_by_score(scores, good, (1, 2, 3, 5)):
        choices = list(combinations(range(5), int(row["n"])))
        expected = sum(good[max(choice, key=lambda i: float(scores[i]))] for choice in choices) / len(choices)
        assert row["share"] == pytest.approx(expected)
    assert study.best_by_score(scores, good, (1,))[0]["kl"] == 0


def test_right_order_counts_pairs(draft: Storyteller) -> None:
    pool = study.Pool(torch.zeros(4, 2, dtype=torch.long), draft.vocabulary)
    vars(pool).update(better=torch.tensor([0, 3]), worse=torch.tensor([1, 2]))
    assert study.right_order(torch.tensor([1.0, 0.0, 2.0, -1.0]), pool) == pytest.approx(1 / 4)


def test_the_critic_begins_as_the_standardized_reward(draft: Storyteller, pool: study.Pool) -> None:
    torch.manual_seed(1)
    reward = RewardModel(draft.model)
    scores = study.scores_of(reward, pool.ids)
    critic = study.critic_of(reward, float(scores.mean()), float(scores.std()))
    last = critic(pool.ids)[torch.arange(24), study.as_answers(pool.ids).lengths - 1]
    torch.testing.assert_close(last, (scores - scores.mean()) / scores.std(), atol=1e-4, rtol=1e-4)


def test_the_lessons_own_answers_are_the_papers() -> None:
    w, l, rw, rl = torch.tensor([[-50.0], [-62.0], [-54.0], [-61.0]])  # noqa: E741
    assert study.dpo_loss(w, l, rw, rl, 0.3).item() == pytest.approx(0.2014, abs=1e-4)
    assert study.pair_loss(torch.tensor([2.0]), torch.tensor([1.0])).item() == pytest.approx(0.3133, abs=1e-4)
    found = study.advantages(torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.2, 0.4, 0.8]]), 1.0, 0.5)
    torch.testing.assert_close(found, torch.tensor([[0.45, 0.5, 0.2]]))


# ---- small runs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft in the storyteller's place, whose stories need not be consistent, and few steps."""
    generous = property(
        lambda pool: torch.tensor([row for row, words in enumerate(pool.stories) if study.generous(words)])
    )
    monkeypatch.setattr(study.Pool, "better", generous)
    monkeypatch.setattr(study, "load_storyteller", lambda name="draft": load_storyteller("draft"))
    monkeypatch.setattr(study, "REWARD_STEPS", 2)
    monkeypatch.setattr(study, "DPO_STEPS", 2)


@pytest.mark.usefixtures("small")
def test_ppo_begins_at_the_storyteller_and_pays_for_each_round() -> None:
    rows = study.ppo(betas=(0.1,), rounds=1, size=4, pool=24)
    assert [row["round"] for row in rows] == [0, 1]
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-4)
    assert rows[1]["kl"] != 0
    assert [row["compute"] for row in rows] == [24, 24 + 4 * 9]
    assert len(rows[-1]["stories"]) == 3 == len(rows[-1]["scores"])


@pytest.mark.usefixtures("small")
def test_dpo_is_judged_beside_best_of_n() -> None:
    frame = pd.DataFrame(study.dpo(runs=((0.3, 1),), pool=24, told=4))
    assert list(frame["method"]) == ["storyteller"] + 5 * ["best of n"] + ["DPO"]
    assert frame["generous"].between(0, 1).all()
    best = frame[frame["method"] == "best of n"]
    assert best["generous"].iloc[0] == pytest.approx(frame["generous"].iloc[0])
    assert frame["compute"].iloc[-1] == 2 * 24 + 2 * 16 * 3


@pytest.mark.usefixtures("small")
def test_accuracy_has_a_row_for_each_number_of_pairs_and_seed() -> None:
    rows = study.accuracy(sizes=(1, 2), seeds=(1,), pool=24, held_out=24)
    assert [(row["stories"], row["seed"]) for row in rows] == [(1, 1), (2, 1)]
    assert all(0 <= row["accuracy"] <= 1 for row in rows)


# ---- claims and pictures -------------------------------------------------------------------------------------------

STORY = "Once there was a shy fox named Tim who lived by the river. And Tim was sad for a long, long time."


def _ppo() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"beta": beta, "round": i, "compute": 100 + 50 * i, "score": 0.2 * i, "kl": 0.5 * i * (2 - beta)}
            | {"generous": 0.2 + 0.05 * i, "consistent": 0.5 - (0.05 * i if beta == 0 else 0)}
            | ({"stories": [STORY], "scores": [1.5]} if i in (0, 8) else {})
            for beta in (0.0, 0.1, 0.5)
            for i in range(9)
        ]
    )


def _runs() -> pd.DataFrame:
    rows = [{"method": "storyteller", "kl": 0.0, "generous": 0.2, "consistent": 0.5}]
    rows += [
        {"method": "best of n", "n": n, "kl": 0.1 * n, "generous": 0.2 + 0.04 * n, "consistent": 0.5} for n in (1, 2, 4)
    ]
    rows += [
        {"method": "DPO", "beta": beta, "seed": seed, "compute": 200, "kl": 1 / beta, "score": 1.0}
        | {"generous": 0.6 + 0.01 * seed, "consistent": 0.5}
        for beta, seed in ((0.1, 1), (0.3, 1), (0.3, 2))
    ]
    return pd.DataFrame(rows)


def test_claims_are_differences_from_the_storyteller(capsys: pytest.CaptureFixture[str]) -> None:
    assert study.claims_of_dpo(_runs()) == pytest.approx({2: 0.41, 3: 0.0, 4: 1 / 0.3})
    assert study.claims_of_betas(_ppo()) == pytest.approx({5: 1.4, 6: 0.35, 7: 0.0})
    assert study.claims_of_methods(_runs(), _ppo()) == pytest.approx({8: 0.315, 9: 0.36 - 0.615})
    study.hacked(_ppo())
    said = capsys.readouterr().out
    assert STORY in said
    assert "score 1.5, not generous" in said


def test_every_picture_describes_itself() -> None:
    frame = pd.DataFrame({"stories": [2, 2, 8, 8], "accuracy": [0.6, 0.8, 0.9, 1.0]})
    pictures = [
        study.draw_pair(2, 1),
        study.draw_four(),
        study.draw_clip(0.2),
        study.draw_gap(0.3),
        study.draw_margins([0.0, 1.0], [0.0, -1.0]),
        study.draw_accuracy(frame),
        study.draw_betas(_ppo()),
        study.draw_frontier(study.methods_of(_runs(), _ppo()), _runs()),
    ]
    for figure, alt in pictures:
        assert len(alt) > 60
        assert figure.get_size_inches()[0] <= 12
    assert "0.73" in pictures[0][1]


def test_stories_stand_side_by_side_with_what_they_are() -> None:
    shown = study.side_by_side([words_of(STORY)], [words_of(STORY.replace("Tim", "Sam"))]).data
    assert shown.count("<tr>") == 2
    assert "not generous" in shown
    assert "named Sam" in shown
