"""Lesson 08's fine-tuning: labels, a baseline that looks them up, scores by hand, and what is plotted."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pytest
import torch

from tfbook.course.experiments import stored
from tfbook.data import load
from tfbook.data.stories import told, words_of
from tfbook.lessons.bert_masking import figures, stories, study
from tfbook.lessons.bert_masking.study import Plan, Tagged
from tfbook.text.masking import CLS, IGNORE_INDEX, SEP

pytestmark = pytest.mark.usefixtures("float32")
NAME, ANIMAL, THING, PLACE = range(4)
HERO, OTHER = range(2)
NONE = IGNORE_INDEX


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model, few labels, stories and plans."""
    monkeypatch.setattr(stories, "SIZES", (16, 2, 32, 1))
    monkeypatch.setattr(study, "TESTED", 2)
    monkeypatch.setattr(study, "COUNTS", (4,))
    monkeypatch.setattr(study, "PLANS", (Plan(0.01, steps=2), Plan(0.02, steps=2)))
    monkeypatch.setattr(study, "ENDINGS", (4, 3))
    monkeypatch.setattr(study, "ENDING_PLANS", (Plan(0.01, steps=2),))
    few = stories.load_blanks(stored("bert_masking.blanks").rows)[:3]
    monkeypatch.setattr(study, "load_blanks", lambda rows: few)


# ---- labels ------------------------------------------------------------------------------------------------------


def test_each_labeled_sentence_has_one_tag_and_the_four_take_turns() -> None:
    labeled = study.labeled_words(8, seed=2)
    tags = [[tag for tag in text.tags if tag != NONE] for text in labeled]
    assert tags == [[NAME], [ANIMAL], [THING], [PLACE]] * 2
    for words, given in labeled:
        (place,) = (place for place, tag in enumerate(given) if tag != NONE)
        assert study.TAG_OF[words[place]] == given[place]
    assert study.labeled_words(8, seed=2) == labeled
    assert study.labeled_words(8, seed=3) != labeled


def test_no_model_has_read_the_labeled_stories() -> None:
    """Their numbers come after the corpus, whose stories are `told("train", number)` from 0 on."""
    corpus = load("stories")["train"]
    assert len(corpus) <= study.FIRST
    assert told("train", len(corpus) - 1).text == corpus[-1]


def test_the_four_kinds_have_no_word_in_common() -> None:
    kinds = Counter(study.TAG_OF.values())
    assert sum(kinds.values()) == sum(len(words) for words in study._WORDS.values())


def test_the_hero_is_who_was_named_first_wherever_two_have_been_named() -> None:
    words = words_of("a fox named Tim met his friend Max. Tim and Max ran. Max won.")
    found = {place: tag for place, tag in enumerate(study.roles(words).tags) if tag != NONE}
    assert found == {9: HERO, 11: OTHER, 14: OTHER}
    assert set(study.roles(words_of("a fox named Tim ran. Tim won.")).tags) == {NONE}


def test_labeled_names_are_of_heroes_and_others_in_turn() -> None:
    labeled = study.labeled_names(4, seed=2)
    assert [[tag for tag in tags if tag != NONE] for _, tags in labeled] == [[HERO], [OTHER]] * 2
    for text in labeled:
        (place,) = (place for place, tag in enumerate(text.tags) if tag != NONE)
        assert study.roles(text.words).tags[place] == text.tags[place]


def test_the_majority_is_of_the_labels() -> None:
    labeled = [Tagged(["Tim", "Max"], [HERO, OTHER]), Tagged(["Max", "ran"], [OTHER, NONE])]
    assert study.majority(labeled)(["Tim", "ran"]) == [OTHER, OTHER]
    assert study.majority(labeled[:1])(["Max"]) == [HERO]


def test_a_story_has_a_tag_for_each_word_of_the_four_kinds() -> None:
    (story,) = study.tagged_stories(1)
    for word, tag in zip(*story, strict=True):
        assert (tag == NONE) == (word not in study.TAG_OF)


def test_looking_up_knows_labels_then_the_word_before() -> None:
    tag = study.look_up([Tagged(["a", "kite", "named", "Tim"], [NONE, THING, NONE, NAME])])
    assert tag(["named", "kite", "a", "fox", "named", "Lucy", "ran"]) == [
        NAME,  # nothing is known of it or of what is before it
        THING,
        NAME,
        THING,
        NAME,
        NAME,
        NAME,
    ]


def test_scores_by_hand() -> None:
    """Four words have a tag; “kite” was labeled, so two of the other three count as new and one is right."""
    labeled = [Tagged(["the", "kite"], [NONE, THING])]
    texts = [Tagged(["kite", "and", "Tim"], [THING, NONE, NAME]), Tagged(["kite", "forest"], [THING, PLACE])]
    found = study.score([[THING, NAME, NAME], [ANIMAL, THING]], texts, labeled)
    assert found == {"all": 2 / 4, "new": 1 / 2}


# ---- taggers -----------------------------------------------------------------------------------------------------


def test_a_batch_has_tags_at_the_words_and_none_at_specials_and_padding() -> None:
    ids, tags = study.tag_batch([Tagged(["Tim", "ran"], [NAME, NONE]), Tagged(["Tim"], [NAME])])
    assert ids[:, 0].tolist() == [CLS, CLS]
    assert int(ids[0, -1]) == SEP
    assert tags.tolist() == [[NONE, NAME, NONE, NONE], [NONE, NAME, NONE, NONE]]


@pytest.mark.usefixtures("small")
def test_fine_tuning_leaves_its_start_alone_and_learns_its_labels() -> None:
    torch.manual_seed(1)
    start = study.Whole(stories.package_filler().bert)
    before = {name: weight.clone() for name, weight in start.state_dict().items()}
    labeled = study.labeled_words(4, seed=1)
    ids, tags = study.tag_batch(labeled)
    model = study.tuned(start, ids, tags, kinds=4, plan=Plan(0.02, steps=60), seed=1)
    assert all(torch.equal(weight, before[name]) for name, weight in start.state_dict().items())
    for given, text in zip(study.tags_of(model, labeled), labeled, strict=True):
        assert all(tag in (guess, NONE) for guess, tag in zip(given, text.tags, strict=True))


@pytest.mark.usefixtures("small")
def test_endings_are_read_at_cls() -> None:
    ids, good = study.ending_batch("train", range(4))
    model = study.tuned(study.Whole(stories.package_filler().bert), ids, good, kinds=2, plan=Plan(0.01, 60), seed=1)
    assert torch.equal(model(ids)[:, 0].argmax(dim=1), good)


@pytest.mark.usefixtures("small")
def test_the_experiments_return_what_is_plotted() -> None:
    rows = pd.DataFrame(study.few_labels((1, 2), steps=2))
    best = study.at_best_plans(rows, "tags")
    heroes = study.at_best_plans(pd.DataFrame(study.heroes((1, 2), steps=2)), "roles")
    assert Counter(heroes["start"]) == dict.fromkeys((*study.STARTS, "majority"), 2)
    assert Counter(best["start"]) == dict.fromkeys((*study.STARTS, "look-up"), 2)
    assert study.gain(best, 4, "all").half >= 0
    ending = study.at_best_plans(rows, "ending")
    assert set(ending["start"]) == {"pretrained", "from scratch", "majority"}
    _, alt = figures.draw_few_labels({"kinds": best, "heroes": heroes})
    assert "kinds, pretrained, then fine-tuned" in alt
    assert "heroes, always the commonest tag" in alt


def test_the_best_plan_is_that_of_the_best_mean() -> None:
    def row(seed: int, rate: float, share: float) -> dict[str, object]:
        return {
            "task": "tags", "labels": 4, "start": "pretrained", "rate": rate, "steps": 60, "seed": seed, "all": share
        }  # fmt: skip

    frame = pd.DataFrame([row(1, 0.1, 0.9), row(2, 0.1, 0.1), row(1, 0.2, 0.6), row(2, 0.2, 0.7)])
    assert list(study.at_best_plans(frame, "tags")["all"]) == [0.6, 0.7]


def test_a_wrong_tag_is_said() -> None:
    _, alt = figures.draw_tags(["Tim", "ran", "home"], study.TAGS, [NAME, NONE, PLACE], {"one": [NAME, NAME, THING]})
    assert alt.endswith("one: 1 of 2 right.")
