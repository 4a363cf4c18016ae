"""What lesson 12 measures: who gives, pairs, best of n by a proxy, the critic's start, small runs, pictures."""

import copy
from collections.abc import Iterator
from io import StringIO
from itertools import combinations
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor
from tqdm import tqdm

from tfbook.course.experiments import stored
from tfbook.data.stories import story_ids, told, words_of
from tfbook.generation.best_of_n import best_of_n_kl
from tfbook.generation.sampling import generate
from tfbook.lessons.preferences import claims, feedback, figures, runs, study
from tfbook.models.gpt import Gpt
from tfbook.models.reward import RewardModel
from tfbook.pretrain.storyteller import LONGEST, MODELS, Storyteller, load_storyteller
from tfbook.text.vocabulary import BOS, EOS, PAD
from tfbook.training.ppo import PpoRecipe, assess

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def draft() -> Storyteller:
    return load_storyteller("draft")


@pytest.fixture
def pool(draft: Storyteller) -> feedback.Pool:
    return feedback.Pool(feedback.sample(draft.model.cpu(), 24, seed=1), draft.vocabulary)


# ---- stories -------------------------------------------------------------------------------------------------------


def test_generous_is_read_from_the_words_alone() -> None:
    stories = [told("valid", number) for number in range(40)]
    known = [any(event.event in feedback.GIVING for event in story.told) for story in stories]
    assert [feedback.generous(story.words) for story in stories] == known
    assert 0 < sum(known) < len(known)
    share = sum(known) / 40
    assert feedback.shares([story.words for story in stories]) == {"generous": share, "consistent": 1, "liked": share}


def test_demonstrations_are_generous() -> None:
    shown = feedback.demonstrations(5)
    assert len(set(shown)) == 5
    assert feedback.shares(shown) == {"generous": 1, "consistent": 1, "liked": 1}


def test_only_stories_that_are_both_are_liked(draft: Storyteller) -> None:
    words = next(story.words for story in (told("valid", i) for i in range(40)) if feedback.generous(story.words))
    spoilt = (*words[:-2], "kite", ".")
    plain = next(story.words for story in (told("valid", i) for i in range(40)) if not feedback.generous(story.words))
    stories = [words, spoilt, plain]
    assert feedback.shares(stories) == pytest.approx({"generous": 2 / 3, "consistent": 2 / 3, "liked": 1 / 3})
    pool = feedback.Pool(story_ids(stories, draft.vocabulary), draft.vocabulary)
    assert pool.generous.tolist() == [True, True, False]
    assert pool.consistent.tolist() == [True, False, True]
    assert pool.liked.tolist() == [True, False, False]


def test_samples_are_those_of_generate_and_a_bar_counts_their_tokens(
    draft: Storyteller, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[tqdm] = []

    def watched(tokens: Iterator[Tensor], **options: Any) -> tqdm:
        bars.append(tqdm(tokens, file=StringIO(), **options))
        return bars[-1]

    monkeypatch.setattr("tfbook.training.progress.tqdm", watched)
    ids = feedback.sample(draft.model.cpu(), 3, seed=5)
    start, generator = torch.full((3, 1), BOS), torch.Generator().manual_seed(5)
    same = generate(draft.model, start, max_new_tokens=LONGEST - 1, stop=[EOS], generator=generator)
    assert torch.equal(ids, same.masked_fill((same == EOS).cumsum(dim=1) > 1, PAD))
    assert [(bar.total, bar.n) for bar in bars] == [(LONGEST - 1, same.shape[1] - 1)]


def test_samples_are_padded_after_their_end() -> None:
    torch.manual_seed(0)
    model = Gpt(30, MODELS["draft"]).eval()
    with torch.no_grad():
        model.embed.weight[EOS] += 0.3  # so that some stories end soon
    ids = feedback.sample(model, 20, seed=3)
    assert torch.equal(ids, feedback.sample(model, 20, seed=3))
    assert (ids[:, 0] == BOS).all()
    for row in ids.tolist():
        after = row[row.index(EOS) + 1 :] if EOS in row else []
        assert set(after) <= {PAD}
    answers = feedback.as_answers(ids)
    assert not answers.answered[:, 0].any()
    ended = (ids == EOS).any(dim=1)
    assert torch.equal(answers.lengths[ended], (ids[ended] == EOS).int().argmax(dim=1) + 1)
    assert (answers.lengths[~ended] == ids.shape[1]).all()


def test_pairs_have_the_better_story_first_and_use_each_before_any_comes_again(draft: Storyteller) -> None:
    found = [told("valid", number).words for number in range(12)]
    spoilt = [(*words[:-2], "kite", ".") for words in found if feedback.generous(words)][:1]
    pool = feedback.Pool(story_ids([*found, *spoilt], draft.vocabulary), draft.vocabulary)
    better = [row for row, words in enumerate(found) if feedback.generous(words)]
    worse = [row for row in range(12) if row not in better]
    assert (pool.better.tolist(), pool.worse.tolist()) == (better, worse), "a generous story with a fault is neither"
    source = feedback.pairs(pool, len(better), seed=1)
    chosen, rejected = (torch.cat(side).tolist() for side in zip(*(next(source) for _ in range(12)), strict=True))
    assert sorted(chosen[: len(better)]) == better == sorted(chosen[len(better) : 2 * len(better)])
    assert sorted(rejected[: len(worse)]) == worse
    few = feedback.pairs(pool, 2, seed=1, most=1)
    assert {tuple(rows.tolist()) for rows in next(few)} == {(better[0],) * 2, (worse[0],) * 2}
    with pytest.raises(ValueError, match="has 0 better and 1 worse stories"):
        next(feedback.pairs(feedback.Pool(pool.ids[worse[:1]], draft.vocabulary), 2, seed=1))


# ---- rewards -------------------------------------------------------------------------------------------------------


def test_best_by_score_is_the_share_over_all_choices() -> None:
    scores, good = torch.tensor([0.3, 2.0, -1.0, 0.7, 0.1]), torch.tensor([True, False, True, True, False])
    numbers = (1, 2, 3, 5)
    for n, share in zip(numbers, runs.best_by_score(scores, good, numbers), strict=True):
        choices = list(combinations(range(5), n))
        expected = sum(bool(good[max(choice, key=lambda i: float(scores[i]))]) for choice in choices) / len(choices)
        assert share == pytest.approx(expected)


def test_right_order_counts_pairs(draft: Storyteller) -> None:
    pool = feedback.Pool(torch.zeros(4, 2, dtype=torch.long), draft.vocabulary)
    vars(pool).update(generous=torch.tensor([True, False, False, True]), consistent=torch.ones(4, dtype=torch.bool))
    assert feedback.right_order(torch.tensor([1.0, 0.0, 2.0, -1.0]), pool) == pytest.approx(1 / 4)


def test_the_critic_begins_as_the_standardized_reward(draft: Storyteller, pool: feedback.Pool) -> None:
    torch.manual_seed(1)
    reward = RewardModel(draft.model)
    scores = feedback.scores_of(reward, pool.ids)
    critic = feedback.critic_of(reward, float(scores.mean()), float(scores.std()))
    last = critic(pool.ids)[torch.arange(24), feedback.as_answers(pool.ids).lengths - 1]
    torch.testing.assert_close(last, (scores - scores.mean()) / scores.std(), atol=1e-4, rtol=1e-4)


def test_the_lessons_own_answers_are_the_papers() -> None:
    w, l, rw, rl = torch.tensor([[-50.0], [-62.0], [-54.0], [-61.0]])  # noqa: E741
    assert feedback.dpo_loss(w, l, rw, rl, 0.3).item() == pytest.approx(0.2014, abs=1e-4)
    assert feedback.pair_loss(torch.tensor([2.0]), torch.tensor([1.0])).item() == pytest.approx(0.3133, abs=1e-4)
    found = feedback.advantages(torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.2, 0.4, 0.8]]), 1.0, 0.5)
    torch.testing.assert_close(found, torch.tensor([[0.45, 0.5, 0.2]]))


# ---- small runs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft in the storyteller's place, whose stories all count as consistent, and few steps."""
    right = property(lambda pool: torch.ones(len(pool.ids), dtype=torch.bool))
    monkeypatch.setattr(feedback.Pool, "consistent", right)
    monkeypatch.setattr(feedback, "load_storyteller", lambda name="draft": load_storyteller("draft"))
    for module, name in ((feedback, "REWARD_STEPS"), (runs, "WARM_STEPS"), (runs, "DPO_STEPS"), (runs, "SFT_STEPS")):
        monkeypatch.setattr(module, name, 2)


@pytest.mark.usefixtures("small")
def test_ppo_shares_its_first_round_and_pays_for_each() -> None:
    rows = runs.ppo(betas=(0.0, 0.5), seeds=(1,), pool=24, rounds=2, size=4, told=3)
    assert [(row["beta"], row["round"]) for row in rows] == [(0.0, 1), (0.0, 2), (0.5, 1), (0.5, 2)]
    assert [row["compute"] for row in rows] == 2 * [24 * 6, 24 * 6 + 4 * 9]
    first, other = ({key: row[key] for key in ("score", "kl", "liked")} for row in (rows[0], rows[2]))
    assert first == pytest.approx(other)
    assert rows[1]["kl"] != pytest.approx(rows[3]["kl"], abs=1e-6)
    assert len(rows[-1]["stories"]) == 3 == len(rows[-1]["scores"])


@pytest.mark.usefixtures("small")
def test_the_first_round_has_no_penalty_since_the_pool_is_the_references() -> None:
    start = runs.beginning(24)
    rewards = start.scores(start.pool.ids)
    critic = runs.warmed_critic(start, rewards)
    rollouts = [
        assess(start.teller.model, start.teller.model, critic, feedback.as_answers(start.pool.ids), rewards, recipe)
        for recipe in (PpoRecipe(beta=0), PpoRecipe(beta=5))
    ]
    torch.testing.assert_close(rollouts[0].advantages, rollouts[1].advantages)


@pytest.mark.usefixtures("small")
def test_a_learner_copied_after_the_first_round_does_not_train_the_original() -> None:
    start = runs.beginning(24)
    learner = runs.first_round(start, "shuffled", 1)
    before = copy.deepcopy(learner.policy.state_dict())
    list(runs.later_rounds(start, copy.deepcopy(learner), "shuffled", 0.0, 1, rounds=2, size=4, told=3))
    assert all(torch.equal(now, before[name]) for name, now in learner.policy.state_dict().items())
    copied = copy.deepcopy(learner)
    owned = {id(weight) for group in copied.optimizer.param_groups for weight in group["params"]}
    assert {id(weight) for weight in copied.policy.parameters()} <= owned


@pytest.mark.usefixtures("small")
def test_rewards_are_the_models_the_readers_or_the_models_in_another_order() -> None:
    start = runs.beginning(24)
    torch.manual_seed(2)
    model, reader, shuffled = (runs.REWARDS[name](start, start.pool) for name in ("reward model", "reader", "shuffled"))
    assert model.mean() == pytest.approx(0, abs=1e-5)
    torch.testing.assert_close(shuffled.sort().values, model.sort().values)
    assert not torch.equal(shuffled, model)
    assert ((reader > 0) == start.pool.liked).all()
    assert reader.std() == pytest.approx(1, abs=1e-5)


@pytest.mark.usefixtures("small")
def test_a_warmed_critic_knows_the_pool_better_than_the_mean_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "WARM_STEPS", 60)
    start = runs.beginning(24)
    rewards, answers = start.scores(start.pool.ids), feedback.as_answers(start.pool.ids)
    torch.manual_seed(0)
    critic = runs.warmed_critic(start, rewards)
    with torch.no_grad():
        errors = (critic(answers.ids[:, :-1]) - rewards[:, None]).square()[answers.answered[:, 1:]]
    assert errors.mean() < 1


@pytest.mark.usefixtures("small")
def test_the_control_differs_in_the_reward_alone() -> None:
    rows = runs.control(seeds=(1,), pool=24, rounds=1, size=4, told=3)
    assert [(row["reward"], row["beta"], row["round"]) for row in rows] == [("reader", 0.0, 1), ("shuffled", 0.0, 1)]


@pytest.mark.usefixtures("small")
def test_the_methods_are_judged_beside_best_of_n_on_new_stories() -> None:
    frame = pd.DataFrame(runs.methods(betas=(0.3,), seeds=(1,), pool=24, told=4, new=20))
    assert list(frame["method"]) == ["storyteller"] + 5 * ["best of n"] + ["SFT", "DPO"]
    assert frame[MEASURED[1:]].stack().between(0, 1).all()
    best = frame[frame["method"] == "best of n"]
    assert best["generous"].iloc[0] == pytest.approx(frame["generous"].iloc[0])
    assert list(best["kl"]) == pytest.approx([best_of_n_kl(n) for n in runs.NUMBERS])
    assert list(frame["compute"].iloc[-2:]) == [2 * 16 * 3, 2 * 24 + 2 * 2 * 24 * 3]  # 16 stories; 24 pairs


@pytest.mark.usefixtures("small")
def test_accuracy_has_a_row_for_each_number_of_pairs_and_seed() -> None:
    rows = study.accuracy(sizes=(1, 2), seeds=(1,), pool=24, held_out=24)
    assert [(row["stories"], row["seed"]) for row in rows] == [(1, 1), (2, 1)]
    assert all(0 <= row["accuracy"] <= 1 for row in rows)


# ---- claims and pictures -------------------------------------------------------------------------------------------

STORY = "Once there was a shy fox named Tim who lived by the river. And Tim was sad for a long, long time."
MEASURED = ["kl", "generous", "consistent", "liked"]


def _ppo(reward: str = "reward model", betas: tuple[float, ...] = (0.0, 0.1, 0.5), loss: float = 0.05) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"reward": reward, "beta": beta, "seed": seed, "round": i, "compute": 100 + 50 * i}
            | {"score": 0.2 * i, "kl": 0.5 * i * (2 - beta), "generous": 0.2 + 0.05 * i, "liked": 0.1 + 0.02 * i}
            | {"consistent": 0.5 - (loss * i if beta == 0 else 0) + 0.01 * (seed - 1.5)}
            | ({"stories": [STORY], "scores": [1.5]} if i == 8 else {})
            for seed in (1, 2)
            for beta in betas
            for i in range(1, 9)
        ]
    )


def _control() -> pd.DataFrame:
    return pd.concat([_ppo("reader", (0.0,), 0.01), _ppo("shuffled", (0.0,))])


def _methods() -> pd.DataFrame:
    start = {"generous": 0.2, "consistent": 0.5, "liked": 0.1, "kl": 0.0}
    rows = [start | {"method": "storyteller", "score": 0.0}]
    rows += [start | {"method": "best of n", "n": n, "kl": 0.1 * n, "liked": 0.1 + 0.01 * n} for n in (1, 2, 4, 16, 64)]
    rows += [start | {"method": "SFT", "seed": seed, "compute": 90, "kl": 3.0} for seed in (1, 2)]
    rows += [
        {"method": "DPO", "beta": beta, "seed": seed, "compute": 200, "kl": 1 / beta, "score": 1.0}
        | {"generous": 0.79 + 0.005 * (2 * seed - 1), "consistent": 0.5, "liked": 0.4}
        for beta, seed in ((0.1, 1), (1.0, 1), (1.0, 2))
    ]
    return pd.DataFrame(rows)


def test_claims_are_differences(capsys: pytest.CaptureFixture[str]) -> None:
    assert study.claims_of_dpo(_methods()) == pytest.approx({2: 0.595, 3: 0.5 - 0.4 / 0.8, 4: 1.0})
    assert study.claims_of_hacking(_ppo(), _methods()) == pytest.approx({5: 1.6, 6: 0.4, 7: 0.0})
    assert study.claims_of_methods(_methods(), _ppo()) == pytest.approx({8: 0.4 - 0.14, 9: 0.2 - 0.8})
    study.hacked(_ppo())
    said = " ".join(capsys.readouterr().out.split())  # the story is wrapped
    assert STORY in said
    assert "score 1.5, not generous" in said


def test_the_stored_runs_hold_what_is_claimed() -> None:
    accuracy = stored("preferences.accuracy").frame
    ppo, methods = (stored(f"preferences.{name}").frame for name in ("ppo", "methods"))
    measured = {1: accuracy[accuracy["stories"] == 64]["accuracy"].min()}
    measured |= study.claims_of_dpo(methods) | study.claims_of_hacking(ppo, methods)
    measured |= study.claims_of_methods(methods, ppo)
    assert set(measured) == set(claims.CLAIMS.bounds)
    assert all(claim.verdict == "holds" for claim in claims.CLAIMS.check(measured).claims)


def test_the_table_has_the_mean_of_each_methods_runs() -> None:
    rows = study.table(_methods(), _ppo())
    assert list(rows.index) == ["storyteller", "SFT", "PPO, β = 0.1", "DPO, β = 1", "best of 16"]
    assert rows.loc["PPO, β = 0.1", "liked"] == 26
    assert rows.loc["best of 16", "liked"] == 26
    assert rows.loc["DPO, β = 1", "kl"] == 1
    assert rows.loc["DPO, β = 1", "consistent if generous"] == 50


def test_the_ends_are_told_by_beta_and_by_reward() -> None:
    by_beta, by_reward = study.ends_by_beta(_methods(), _ppo()), study.ends_by_reward(_ppo(), _control())
    assert list(by_beta.index) == ["storyteller", "β = 0", "β = 0.1", "β = 0.5"]
    assert by_beta.loc["β = 0", "kl"] == 8
    assert by_beta.loc["β = 0", "consistent"] == 10
    assert list(by_reward.index) == ["reward model", "reader", "shuffled"]
    assert by_reward.loc["reader", "consistent"] == 42


def test_a_smooth_run_keeps_its_end() -> None:
    rounds = pd.DataFrame({"liked": [0.0, 3.0, 6.0, 0.0]})
    assert figures.smooth(rounds)["liked"].tolist() == [1.5, 3.0, 3.0, 0.0]


def test_bars_are_two_standard_errors() -> None:
    assert figures.error(0.5, 100) == pytest.approx(10)


def test_every_picture_describes_itself() -> None:
    frame = pd.DataFrame({"stories": [2, 2, 8, 8], "accuracy": [0.6, 0.8, 0.9, 1.0]})
    pictures = [
        figures.draw_pair(2, 1),
        figures.draw_four(),
        figures.draw_clip(0.2),
        figures.draw_gap((0.3, 0.1)),
        figures.draw_margins([0.0, 1.0], [0.0, -1.0]),
        figures.draw_accuracy(frame),
        figures.draw_betas(_ppo(), study.start_of(_methods())),
        figures.draw_control(_ppo(), _control(), study.start_of(_methods())),
        figures.draw_frontier(_methods(), study.mean_run(_ppo()), study.start_of(_methods())),
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
