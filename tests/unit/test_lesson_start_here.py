"""The study of lesson 00: letters, tables of counts, windows, and what later lessons' models say about letters."""

import math
import statistics
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook import data
from tfbook.course.experiments import stored
from tfbook.data.stories import told, words_of
from tfbook.data.stories.lexicon import NAMES
from tfbook.lessons.start_here import exercises as ex, figures, study
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


def probability(seen: str, judged: str, context: int) -> float:
    """Of the last letter of `judged`, by blended counts."""
    return math.exp(-study.blended_surprises(seen, judged, context)[-1])


def test_blended_counts_give_what_a_recursion_by_hand_gives() -> None:
    """p_n = (count + T p_{n-1}) / (N + T), from 1/27 down, for a context that came, and for one that did not."""
    none = (3 + 3 / 27) / (6 + 3)  # three a among six letters of three kinds
    after_b = (1 + 1 * none) / (1 + 1)  # b came before one letter, an a
    assert probability("abacab", "ba", 1) == pytest.approx(after_b)
    assert probability("abacab", "xa", 1) == pytest.approx(none)


@pytest.mark.parametrize("past", ["", "n", "a t", "xyz"])
def test_probabilities_of_blended_counts_sum_to_1(past: str) -> None:
    seen = "once upon a time there was a once"
    found = [probability(seen, past + letter, len(past)) for letter in study.ALPHABET]
    assert math.fsum(found) == pytest.approx(1)


def test_the_loss_of_blended_counts_is_the_mean_of_their_surprises() -> None:
    surprises = study.blended_surprises("she sells sea shells", "he sees", 2)
    assert len(surprises) == 5
    assert study.blended_loss("she sells sea shells", "he sees", 2) == pytest.approx(statistics.fmean(surprises))


def kneser_ney(seen: str, judged: str, context: int, discount: float) -> float:
    """Probability of the last letter of `judged`, by Kneser-Ney counts."""
    return math.exp(-study.kneser_ney_surprises(seen, judged, context, discount)[-1])


def test_kneser_ney_counts_give_what_a_calculation_by_hand_gives() -> None:
    """In "abacab" an a comes after b and c, a b after a alone, a c after a alone: four kinds of pairs."""
    one_a = (2 - 0.5) / 4 + 0.5 * 3 / 4 / 27  # 2 of the 4 kinds of pairs end in a; 3 letters end some pair
    one_b = (1 - 0.5) / 4 + 0.5 * 3 / 4 / 27
    assert kneser_ney("abacab", "ba", 1, 0.5) == pytest.approx(
        (1 - 0.5) / 1 + 0.5 * 1 / 1 * one_a
    )  # b came before an a
    assert kneser_ney("abacab", "ab", 1, 0.5) == pytest.approx(
        (2 - 0.5) / 3 + 0.5 * 2 / 3 * one_b
    )  # a: b twice, c once
    assert kneser_ney("abacab", "xa", 1, 0.5) == pytest.approx(one_a), "x never came"
    assert kneser_ney("abacab", "a", 0, 0.5) == pytest.approx((3 - 0.5) / 6 + 0.5 * 3 / 6 / 27), "alone: plain counts"


@pytest.mark.parametrize("discount", [0.3, 0.9])
@pytest.mark.parametrize("past", ["", "n", "a t", "xyz", "once"])
def test_probabilities_of_kneser_ney_counts_sum_to_1(past: str, discount: float) -> None:
    seen = "once upon a time there was a once"
    found = [kneser_ney(seen, past + letter, len(past), discount) for letter in study.ALPHABET]
    assert min(found) > 0
    assert math.fsum(found) == pytest.approx(1)


def test_kneser_neys_length_and_discount_are_the_best_on_the_second_part() -> None:
    """Among their neighbors; even lengths from 6 to 18 and four discounts were tried."""
    seen, valid, _ = study.corpus_letters()
    best = study.kneser_ney_loss(seen, valid, study.LONGEST)
    others = [
        study.kneser_ney_surprises(seen, valid, study.LONGEST + longer, 0.9 + more)
        for longer, more in ((-2, 0), (2, 0), (0, -0.1), (0, 0.05))
    ]
    assert best < min(map(statistics.fmean, others))


def test_the_text_is_cut_into_a_half_and_two_quarters() -> None:
    assert study.parts("abcdefgh") == ("abcd", "ef", "gh")
    assert [*map(len, study.corpus_letters())] == [100_000, 50_000, 50_000]


def test_the_lengths_of_context_are_the_best_on_the_second_part() -> None:
    seen, valid, _ = study.corpus_letters()
    losses = study.table_losses(seen, valid, range(1, 11))
    assert losses.index(min(losses)) + 1 == study.BEST_TABLE
    six, seven, eight = (study.blended_loss(seen, valid, context) for context in (6, 7, 8))
    assert study.BEST_BLEND == 7
    assert seven < min(six, eight)


def test_stored_networks_stand_where_the_page_says() -> None:
    """The best table, the network, Witten-Bell's counts, a wider network with dropout, Kneser-Ney's counts."""
    seen, _, judged = study.corpus_letters()
    (table,) = study.table_losses(seen, judged, [study.BEST_TABLE])
    blended, counts = (
        study.blended_loss(seen, judged, study.BEST_BLEND),
        study.kneser_ney_loss(seen, judged, study.LONGEST),
    )
    rows = stored("start_here.networks").rows
    assert [row["seed"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert counts < row["wider"] < blended < row["network"] < table


def test_dropout_does_most_of_what_the_wider_network_gains() -> None:
    for row, other in zip(stored("start_here.networks").rows, stored("start_here.without_dropout").rows, strict=True):
        assert row["seed"] == other["seed"]
        assert row["wider"] < other["wider"] < row["network"]
        assert other["wider"] - row["wider"] > (row["network"] - row["wider"]) / 2


def test_names_return_within_a_story_only() -> None:
    stories = ["Mia saw Leo. Mia ran, and Leo ran.", "Leo saw Mia."]
    text = "".join(map(study.letters_of, stories))
    assert [text[i:j] for i, j in study.returning_names(stories)] == ["mia ", "leo "]
    assert study.returning_names(stories)[0][0] == len("mia saw leo ")


def test_nine_in_ten_returning_names_were_last_said_out_of_sight() -> None:
    stories = data.load("stories")["valid"][:100]
    text = "".join(map(study.letters_of, stories))
    out_of_sight = [text[i:j] not in text[i - study.LONGEST : i] for i, j in study.returning_names(stories)]
    assert statistics.fmean(out_of_sight) > 0.9


def test_the_storytellers_surprises_lie_where_the_letters_do() -> None:
    """So that the places of names hold for its surprises, too."""
    teller, stories = load_storyteller(), data.load("stories")["valid"][:10]
    for story in stories:
        assert len(study.letter_surprises(teller, story)) == len(study.letters_of(story))


def test_a_cut_view_changes_only_what_lies_beyond_it() -> None:
    """Of a story whose beginning differs, a view of few tokens sees nothing at the end."""
    teller = load_storyteller()
    one, other = "Mia sat on the mat. Then the cat ran.", "Leo sat on the mat. Then the cat ran."
    whole = study.letter_surprises(teller, one)
    assert study.letter_surprises(teller, one, 99) == pytest.approx(whole, rel=1e-4)
    assert study.letter_surprises(teller, one, 4)[:12] == pytest.approx(whole[:12], rel=1e-4), "four tokens see it all"
    cut, cut_other = (study.letter_surprises(teller, story, 4)[-8:] for story in (one, other))
    assert cut == pytest.approx(cut_other, rel=1e-4)
    assert cut != pytest.approx(study.letter_surprises(teller, one)[-8:], rel=1e-4)


def test_surprises_are_averaged_by_place() -> None:
    assert study._by_place([1.0, 2.0, 3.0, 6.0], [(1, 3)]) == {"letter": 3, "name": 5, "rest": 3.5}


def test_words_that_the_model_never_read_are_named() -> None:
    assert study.unknown_in("Mia saw a dinosaur, aged 7 @ home; a dinosaur!")[0] == "dinosaur"
    assert {"7", "@", ";"} <= {*study.unknown_in("Mia saw a dinosaur, aged 7 @ home;")}
    assert study.unknown_in("Once upon a time, a shy dragon lived in the castle.\n") == []


def test_names_of_the_vocabulary_that_no_training_story_has_are_named_too() -> None:
    vocabulary = load_storyteller().vocabulary
    assert {"Zoe", "Emma", "Anna"} <= {word for word in NAMES if word in vocabulary}
    assert study.unknown_in("Zoe and Emma saw Anna.") == ["Zoe", "Emma"]
    assert len(study.names_read()) == 12
    assert "Anna" in study.names_read()


def test_later_training_stories_use_no_other_words() -> None:
    """The file holds the first 16,000 of the 128,000 that the model has read."""
    later = {word for number in range(100_000, 100_300) for word in told("train", number).words}
    assert later <= study.words_read()


def test_a_story_keeps_the_readers_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    story = study.tell_on("A zebra called Zoe sat.")
    assert story.startswith("A zebra called Zoe sat. ")
    assert "<unk>" not in story
    printed = capsys.readouterr().out
    assert "never say zebra, Zoe" in printed
    assert "Tim, Lily, Ben, Anna" in printed
    study.tell_on("Anna sat.")
    assert "never say" not in capsys.readouterr().out


def test_the_games_text_is_no_story_that_a_model_has_learned() -> None:
    corpus, view = data.load("stories"), study.guessing_game()
    learned = study.letters_of(corpus["train"], study.LETTERS)
    assert view.text not in learned
    assert view.given == len("long ago a clever elf called leo ")
    assert view.text.endswith(" lovely ball")
    means = [statistics.fmean(row) for row in view.players.values()]
    assert means == sorted(means, reverse=True), "each player is better than the one above it"
    assert means[0] == pytest.approx(math.log(27))


def test_all_players_are_judged_on_the_letters_that_were_to_be_guessed() -> None:
    game, (seen, *_) = study.guessing_game(), study.corpus_letters()
    losses = study.game_losses(game, seen)
    assert losses["lesson 09's model"] == pytest.approx(statistics.fmean(game.players["lesson 09's model"]))
    assert losses["table, one letter"] == pytest.approx(
        statistics.fmean(game.players["a table of letter pairs"]), abs=1e-3
    )
    shown = game.text[game.given - study.LONGEST :]
    assert losses["Kneser–Ney counts"] == pytest.approx(study.kneser_ney_loss(seen, shown, study.LONGEST))
    assert len(game.text) - game.given == study.TO_GUESS


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


def test_batches_are_drawn_together() -> None:
    x, y = ex.windows.reference(torch.arange(100), 2)
    batches = list(study.draw(x, y, 7, 3))
    assert [len(target) for _, target in batches] == [7, 7, 7]
    assert all((inputs[:, -1] + 1 == target).all() for inputs, target in batches)


def test_the_network_learns_what_a_table_cannot_see() -> None:
    """The letter two places back decides: a table of one letter stays at ln 2."""
    torch.manual_seed(0)
    ids = torch.randint(1, 3, (400,))
    for place in range(2, 400):
        ids[place] = ids[place - 2] if place % 50 else ids[place]
    x, y = ex.windows.reference(ids, 2)
    model = study.Network(2, 4, 16)
    losses = ex.train.reference(model, study.draw(x, y, 64, 150), 0.02)
    assert losses[0] == pytest.approx(math.log(27), abs=0.5)
    assert losses[-1] < 0.2


def test_the_wider_network_has_the_same_layers_and_leaves_out_hidden_units_in_training_only() -> None:
    torch.manual_seed(0)
    model, letters = study.wider_network(), torch.randint(27, (8, study.CONTEXT))
    assert model(letters).shape == (8, 27)
    assert not torch.equal(model(letters), model(letters))
    embed, _, hidden, _, _, out = model.eval()
    expected = out(torch.relu(hidden(embed(letters).flatten(1))))
    torch.testing.assert_close(model(letters), expected)


def test_pairs_without_a_count_are_hatched_and_others_are_not() -> None:
    """Also in the row of a letter that came rarely, where smoothing makes every pair likelier than in others."""
    counts = torch.tensor([[0.0, 90.0], [1.0, 0.0]])
    image: Any = figures.draw_table(ex.shares.reference(counts, 0.5), counts, ["a", "b"]).axes[0].images[0]
    assert image.get_array().mask.tolist() == [[True, False], [False, True]]
    assert image.norm(0.25) == pytest.approx(0.5), "colors follow the square root"


def test_held_out_losses_are_drawn_where_their_rounds_end() -> None:
    """And a loop that returns its losses as tensors can be drawn, too."""
    losses: list[float | Tensor] = [torch.tensor(3.0, requires_grad=True), 2.0, 2.0, 1.0]
    lines: list[Any] = figures.draw_training(losses, [2.5, 2.0]).axes[0].get_lines()
    assert [*lines[0].get_ydata()] == [3, 2, 2, 1]
    assert [*lines[1].get_xdata()] == [2, 4]


def test_the_figure_of_contexts_says_where_they_begin_to_hurt() -> None:
    figure = figures.draw_contexts([1, 2, 3], {"seen": [3, 2, 1], "valid": [3, 2, 2.5]})
    assert "more than 2 letters" in figure.axes[0].get_title()


def test_the_scoreboard_ranks_by_the_game_and_has_no_bar_without_a_score() -> None:
    figure = figures.draw_scores({"good": 0.5, "bad": 3.0}, {"good": 1.0, "bad": 3.3, "you": 2.0}, ["you"])
    left, right = ([text.get_text() for text in axes.texts] for axes in figure.axes)
    assert left == ["0.50", "3.00"]
    assert right == ["1.00", "2.00", "3.30"]


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


def test_a_row_is_compared_by_its_direction_from_the_mean() -> None:
    vectors = torch.tensor([[1.0, 1.0], [3.0, 1.0], [2.0, 4.0]])  # their mean is (2, 2)
    centered = vectors - 2
    expected = F.cosine_similarity(centered[:, None], centered[None], dim=2)
    torch.testing.assert_close(study.alike(vectors), expected)


def test_vowels_are_compared_with_each_other_and_with_consonants() -> None:
    """Vowels in one direction, consonants in the opposite one; then each vowel like a consonant."""
    vectors = torch.tensor([[1.0, 0.0] if letter in "aeiou" else [-1.0, 0.0] for letter in study.ALPHABET])
    found = study._vowels(vectors)
    assert found == {"vowels": pytest.approx(1), "mixed": pytest.approx(-1), "nearest": 5}
    torch.manual_seed(0)
    vectors = torch.randn(27, 40)
    vectors[[study.ALPHABET.index(letter) for letter in "aeiou"]] = vectors[
        [study.ALPHABET.index(letter) for letter in "bcdfg"]
    ]
    assert study._vowels(vectors)["nearest"] == 0


def test_in_all_stored_runs_vowels_are_a_little_more_alike_but_form_no_group() -> None:
    rows = stored("start_here.letter_embeddings").rows
    assert [(row["start"], row["seed"]) for row in rows] == [
        (s, n) for s in (1.0, study.SMALL_START) for n in (1, 2, 3)
    ]
    after = [row["after"] for row in rows]
    assert all(0.05 < found["vowels"] - found["mixed"] < 0.2 for found in after)
    for runs in (after[:3], after[3:]):
        assert sum(found["nearest"] for found in runs) < 0.5 * 15
    usual, small = ([row["loss"] for row in rows if row["start"] == start] for start in (1.0, study.SMALL_START))
    assert statistics.fmean(usual) == pytest.approx(statistics.fmean(small), abs=0.01), "both learn equally well"


def test_the_page_shows_means_of_similarities_and_all_vowels_next_to_vowels() -> None:
    frame, rows = study.vowel_runs(), stored("start_here.letter_embeddings").rows[:3]
    assert [*frame.index] == [(s, when) for s in (1.0, study.SMALL_START) for when in ("before", "after")]
    assert frame["two vowels"].iloc[1] == pytest.approx(statistics.fmean(r["after"]["vowels"] for r in rows), abs=0.005)
    assert frame["nearest is a vowel, of 15"].iloc[1] == sum(row["after"]["nearest"] for row in rows)


def test_words_that_were_read_lie_beside_words_of_their_kind() -> None:
    """70 of 76; by chance it would be 21."""
    vectors, words, kinds = study.word_vectors()
    assert len(vectors) == len(words) == len(kinds) == 76
    text = " ".join(data.load("stories")["train"])
    assert all(word in text for word in words)
    assert not {"Victor", "pancake", "gate"} & {*words}, "which no story of the training text uses"
    nearest = study.alike(vectors).fill_diagonal_(-1).argmax(dim=1).tolist()
    assert sum(kinds[word] == kinds[other] for word, other in enumerate(nearest)) == 70
    chance = sum((kinds.count(kind) - 1) / (len(kinds) - 1) for kind in kinds)
    assert round(chance) == 21


def test_the_networks_rate_is_the_best_of_the_stored_ones() -> None:
    rows = stored("start_here.network_rates").rows
    assert len(rows) == 6
    assert min(rows, key=lambda row: row["loss"])["rate"] == study.RATE


def test_the_picture_of_the_gradient_shows_what_autograd_finds() -> None:
    w, v = torch.tensor(0.5, requires_grad=True), torch.tensor([1.0, 0.5, 0.0], requires_grad=True)
    hidden = torch.relu(w * 4)
    hidden.retain_grad()
    logits = v * hidden
    logits.retain_grad()
    loss = F.cross_entropy(logits, torch.tensor(1))
    loss.backward()
    shown = [node.text for node in figures.draw_backward(4.0, 0.5, [1.0, 0.5, 0.0], 1).nodes if hasattr(node, "text")]
    assert [w.grad, hidden.grad] == [pytest.approx(float(text), abs=0.005) for text in (shown[6], shown[5])]
    assert f"loss = {loss:.2f}" in shown
    for gradient, text in ((logits.grad, shown[4]), (v.grad, shown[7])):
        assert gradient is not None
        numbers = [float(each.replace("−", "-")) for each in text.strip("()").split(", ")]
        assert numbers == pytest.approx(gradient.tolist(), abs=0.005)


def test_a_map_names_everything_that_has_room_and_draws_the_rest_as_dots() -> None:
    torch.manual_seed(0)
    words, names, kinds = torch.randn(4, 8), ["fox", "lake", "kite", "owl"], ["animals", "places", "things", "animals"]
    words[3] = words[0]  # owl would cover fox
    (axes,) = figures.draw_embeddings(words, names, kinds).axes
    assert [text.get_text() for text in axes.texts] == names[:3]


def test_the_picture_of_the_network_shows_what_it_computes() -> None:
    torch.manual_seed(0)
    network = study.Network(4, 3, 32)
    vectors, units, bars = (node for node in figures.draw_flow(network, "to a").nodes)
    ids = study.ids_of("to a")[None]
    hidden = network.hidden(network.embed(ids).flatten(1))
    torch.testing.assert_close(torch.tensor(vectors.values).float(), network.embed(ids)[0].detach())
    assert (torch.tensor(units.allowed).flatten() == (hidden[0] > 0)).all()
    best = network(ids).softmax(dim=-1)[0].topk(4)
    assert [*bars.values] == pytest.approx(best.values.tolist())
    assert [*bars.names] == [study.ALPHABET[place].replace(" ", "␣") for place in best.indices.tolist()]
