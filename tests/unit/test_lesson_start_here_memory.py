"""Lesson 00's rival that remembers names: counts of words, times how often each name has been said."""

import math
import statistics

import pytest
import torch

from tfbook import data
from tfbook.course.experiments import stored
from tfbook.data.stories import words_of
from tfbook.lessons.start_here import memory, study
from tfbook.lessons.start_here.memory import NEW, OLD
from tfbook.pretrain.storyteller import load_storyteller
from tfbook.text.vocabulary import BOS


def test_a_name_is_new_once_in_each_story() -> None:
    found = memory.marked(["Mia saw Leo. Mia ran.", "Leo saw Mia."], {"mia", "leo"})
    assert found == [NEW, "saw", NEW, OLD, "ran", "", NEW, "saw", NEW, ""]


def test_counts_give_what_a_recursion_by_hand_gives() -> None:
    """p_n = (count + T p_{n-1}) / (N + T), from one of three kinds of words down."""
    seen = ["a", OLD, "a", OLD, "b", OLD]
    alone = (3 + 3 / 3) / (6 + 3)  # three old names among six words of three kinds
    after_a = (2 + 1 * alone) / (2 + 1)
    after_old = (0 + 2 * alone) / (2 + 2)  # an a and a b came after an old name
    assert memory.old_name_probabilities(seen, ["a", "x", OLD, "x"], 1) == pytest.approx(
        [alone, after_a, alone, after_old]
    )
    assert memory.old_name_probabilities(seen, ["x", "a", "x"], 0) == pytest.approx([alone] * 3)


def test_each_name_gets_its_share_of_those_said_so_far() -> None:
    """Mia is one of two when she returns, then two of three; and a new story forgets."""
    stories = ["Mia saw Leo. Mia ran. Mia sat.", "Leo sat. Leo ran."]
    pairs = memory.by_memory(["Mia sat. Mia ran."], stories, ["Mia", "Leo"])
    assert [math.exp(-which) for _, which in pairs] == pytest.approx([1 / 2, 2 / 3, 1])
    assert all(comes > 0 for comes, _ in pairs)


def test_both_rivals_pay_for_the_names_that_the_other_table_counts() -> None:
    stories, names = data.load("stories")["valid"][:20], study.names_read()
    places = study.returning_names(stories)
    teller = load_storyteller()
    assert len(memory.by_memory(stories, stories, names)) == len(places)
    assert sum(len(memory.by_storyteller(teller, story, names)) for story in stories) == len(places)


@torch.no_grad()
def test_the_parts_of_a_name_sum_to_its_surprise() -> None:
    teller, story = load_storyteller(), "Mia saw Leo. Mia ran."
    ids = torch.tensor([BOS, *teller.vocabulary.encode(words_of(story))])
    whole = -teller.model(ids[None, :-1])[0].log_softmax(dim=-1)[4, ids[5]].item()
    ((comes, which),) = memory.by_storyteller(teller, story, study.names_read())
    assert min(comes, which) > 0
    assert comes + which == pytest.approx(whole, rel=1e-4)


def test_four_words_were_the_best_on_other_stories() -> None:
    corpus, names = data.load("stories"), study.names_read()
    seen = corpus["train"][:5000]
    costs = {}
    for past in (3, 4, 5):
        known = {name.lower() for name in names}
        judged = memory.marked(corpus["test"][:100], known)
        found = memory.old_name_probabilities(memory.marked(seen, known), judged, past)
        costs[past] = statistics.fmean(-math.log(p) for word, p in zip(judged, found, strict=True) if word == OLD)
    assert min(costs, key=lambda past: costs[past]) == memory.PAST


def test_remembering_names_closes_about_70_percent_of_the_gap() -> None:
    """And which name is meant is most of what is left, as the page says."""
    paid = {row["model"]: row["name"] for row in stored("start_here.names").rows}
    by_memory, by_model = stored("start_here.memory").rows
    assert by_memory["names"] == by_model["names"] == 722
    total, best = by_memory["comes"] + by_memory["which"], by_model["comes"] + by_model["which"]
    assert total == pytest.approx(1.24, abs=0.005)
    assert 0.65 < (paid["many letters"] - total) / (paid["many letters"] - paid["lesson 09"]) < 0.75
    assert best < paid["lesson 09"], "which holds punctuation marks before names, too"
    assert by_memory["which"] - by_model["which"] > (total - best) / 2
