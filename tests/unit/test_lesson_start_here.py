"""The study of lesson 00: letters, tables of counts, windows, and what later lessons' models say about letters."""

import math
import statistics

import pytest
import torch
from torch.nn import functional as F

from tfbook import data
from tfbook.course.experiments import stored
from tfbook.data.stories import words_of
from tfbook.lessons.start_here import exercises as ex, study
from tfbook.pretrain.storyteller import load_storyteller
from tfbook.text.vocabulary import BOS

STORY = "Tim’s cat, Mia, sat down. “Oh no!” cried Ben."


def test_letters_are_shannons() -> None:
    assert study.letters_of(STORY) == "tim s cat mia sat down oh no cried ben "
    assert study.letters_of(["One. Two", "Three"], 9) == "one two t"
    assert study.ids_of(" az").tolist() == [0, 1, 26]


def test_a_table_gives_what_counting_by_hand_gives() -> None:
    """In "abacab" an a is followed by b twice and by c once; 27 letters get 0.01 more each."""
    total = 3 + 27 * 0.01
    expected = [2.01 / total, 1.01 / (1 + 27 * 0.01), 1.01 / total]  # ab, ba, ac
    found = study.table_surprises("abacab", "abac", 1)
    assert [math.exp(-nats) for nats in found] == pytest.approx(expected)


@pytest.mark.parametrize("context", [0, 1, 3])
def test_a_tables_probabilities_sum_to_1(context: int) -> None:
    past = "once upon"[:context]
    seen = "once upon a time there was a once"
    sums = math.fsum(math.exp(-study.table_surprises(seen, past + letter, context)[-1]) for letter in study.ALPHABET)
    assert sums == pytest.approx(1)


def test_losses_are_means_of_surprises() -> None:
    (loss,) = study.table_losses("she sells sea shells", "he sees", [2])
    assert loss == pytest.approx(statistics.fmean(study.table_surprises("she sells sea shells", "he sees", 2)))


def test_counts_that_fall_back_give_what_a_recursion_by_hand_gives() -> None:
    """p_n = (count + T p_{n-1}) / (N + T), from 1/27 down, for a context that came, and for one that did not."""
    none = (3 + 3 / 27) / (6 + 3)  # three a among six letters of three kinds
    after_b = (1 + 1 * none) / (1 + 1)  # b came before one letter, an a
    assert math.exp(-study.backoff_loss("abacab", "ba", 1)) == pytest.approx(after_b)
    assert math.exp(-study.backoff_loss("abacab", "xa", 1)) == pytest.approx(none)


@pytest.mark.parametrize("past", ["", "n", "a t", "xyz"])
def test_probabilities_of_counts_that_fall_back_sum_to_1(past: str) -> None:
    seen = "once upon a time there was a once"
    losses = [study.backoff_loss(seen, past + letter, len(past)) for letter in study.ALPHABET]
    assert math.fsum(math.exp(-loss) for loss in losses) == pytest.approx(1)


def test_counts_that_fall_back_do_best_with_seven_letters_and_better_than_the_network() -> None:
    text = study.letters_of(data.load("stories")["train"], study.LETTERS)
    half = study.LETTERS // 2
    six, seven, eight = (study.backoff_loss(text[:half], text[half:], context) for context in (6, 7, 8))
    assert seven < min(six, eight)
    assert seven < min(row["network"] for row in stored("start_here.networks").rows) - 0.05


def test_the_games_text_is_no_story_that_a_model_has_learned() -> None:
    corpus, view = data.load("stories"), study.guessing_game()
    learned = study.letters_of(corpus["train"], study.LETTERS)
    assert view.text not in learned
    assert view.given == len("long ago a clever elf called leo ")
    assert view.text.endswith(" lovely ball")
    means = [statistics.fmean(row) for row in view.players.values()]
    assert means == sorted(means, reverse=True), "each player is better than the one above it"
    assert means[0] == pytest.approx(math.log(27))


def test_the_tables_favorites_are_the_most_frequent_letters() -> None:
    view = study.guessing_game()
    seen = study.letters_of(data.load("stories")["train"], study.LETTERS // 2)
    before = view.text[view.given - 1 : -1]
    for letter, guess in set(zip(before, view.guesses, strict=True)):
        counts = {other: seen.count(letter + other) for other in study.ALPHABET}
        assert counts[guess] == max(counts.values())


@torch.no_grad()
def test_a_storys_surprise_is_shared_by_its_letters_and_none_is_lost() -> None:
    teller = load_storyteller()
    story = data.load("stories")["valid"][0].removesuffix(".")
    ids = torch.tensor([BOS, *teller.vocabulary.encode(words_of(story))])
    total = F.cross_entropy(teller.model(ids[None, :-1])[0], ids[1:], reduction="sum")
    shared = study.letter_surprises(teller, story)
    assert len(shared) == len(study.letters_of(story)) + 1
    assert math.fsum(shared) == pytest.approx(total.item(), rel=1e-4)


def test_a_story_begins_as_the_reader_says() -> None:
    beginning = "Once upon a time, a shy dragon lived in the castle."
    assert study.tell_on(beginning).startswith(beginning)


def test_windows_are_runs_and_the_letter_after_each() -> None:
    x, y = study.windows(torch.arange(6), 3)
    assert x.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert y.tolist() == [3, 4, 5]


def test_batches_are_drawn_together() -> None:
    x, y = study.windows(torch.arange(100), 2)
    batches = list(study.drawn(x, y, 7, 3))
    assert [len(target) for _, target in batches] == [7, 7, 7]
    assert all((inputs[:, -1] + 1 == target).all() for inputs, target in batches)


def test_the_network_learns_what_a_table_cannot_see() -> None:
    """The letter two places back decides: a table of one letter stays at ln 2."""
    torch.manual_seed(0)
    ids = torch.randint(1, 3, (400,))
    for place in range(2, 400):
        ids[place] = ids[place - 2] if place % 50 else ids[place]
    x, y = study.windows(ids, 2)
    model = study.Network(2, 4, 16)
    losses = ex.train.reference(model, study.drawn(x, y, 64, 150), 0.02)
    assert losses[0] == pytest.approx(math.log(27), abs=0.5)
    assert losses[-1] < 0.2


def test_crossings_count_pairs_of_links_that_change_places() -> None:
    assert study.crossings([(0, 0), (1, 1)]) == 0
    assert study.crossings([(0, 2), (1, 1), (2, 0)]) == 3
    assert study.crossings([(0, 0), (0, 1), (1, 0)]) == 1


def test_the_stored_translations_are_right_ones_in_which_words_change_places() -> None:
    corpus = data.load("english-french")
    translations = {pair.source: pair.target for pair in corpus["test"]}
    rows = stored("start_here.translation").rows
    assert sum("ice" in row["source"] for row in rows) == 1, "the lesson shows this one"
    for row in rows:
        assert tuple(row["target"]) == tuple(translations[tuple(row["source"])])
        assert study.crossings([tuple(link) for link in row["links"]]) >= study.CROSSINGS
        weights = torch.tensor(row["weights"])
        assert weights.sum(dim=1).tolist() == pytest.approx([1] * len(weights), abs=0.02)


def test_the_stored_table_is_the_best_table_that_the_page_counts() -> None:
    rows = stored("start_here.networks").rows
    assert [row["seed"] for row in rows] == [1, 2, 3]
    text = study.letters_of(data.load("stories")["train"], study.LETTERS)
    half = study.LETTERS // 2
    best = min(study.table_losses(text[:half], text[half:], [5]))
    assert best == pytest.approx(rows[0]["table"], abs=1e-3)
