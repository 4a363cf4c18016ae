"""The tasks of self-attention are what they say, and its models are as able as the lesson needs, on small sizes."""

import math

import pytest
import torch

from tfbook import training
from tfbook.attention import softmax
from tfbook.course.experiments import self_attention as study
from tfbook.course.experiments.cost import attend, count_flops
from tfbook.course.experiments.self_attention import EITHER, TAGS, Guests, Party, TaggedBatch, WordTagger
from tfbook.text import Vocabulary


def test_each_sentence_has_one_word_that_can_be_both() -> None:
    """And the word before it decides: an article or adjective for the noun, a pronoun or adverb for the verb."""
    for sentence in study.sentences(200, seed=1):
        (place,) = (i for i, word in enumerate(sentence.words) if word in EITHER)
        before, tag = (TAGS[sentence.tags[i]] for i in (place - 1, place))
        assert tag == ("noun" if before in ("article", "adjective") else "verb")


def test_nouns_and_verbs_are_equally_frequent() -> None:
    tags = [TAGS[tag] for s in study.sentences(2000, seed=1) for word, tag in zip(*s, strict=True) if word in EITHER]
    assert 0.45 < tags.count("noun") / len(tags) < 0.55


def test_padding_has_no_tag_and_no_influence() -> None:
    tagged = study.sentences(6, seed=3)
    vocabulary = Vocabulary(sentence.words for sentence in tagged)
    batch = TaggedBatch.of(tagged, vocabulary)
    assert batch.lengths.tolist() == [len(sentence.words) for sentence in tagged]
    assert ((batch.tags < 0).sum(dim=1) == batch.ids.shape[1] - batch.lengths).all()
    model = WordTagger(len(vocabulary), heads=2).eval()
    alone = TaggedBatch.of(tagged[:1], vocabulary)
    torch.testing.assert_close(
        model(batch.ids, batch.lengths)[:1, : alone.ids.shape[1]], model(alone.ids, alone.lengths)
    )


def test_accuracy_counts_the_words_asked_for() -> None:
    tagged = study.sentences(20, seed=4)
    vocabulary = Vocabulary(sentence.words for sentence in tagged)
    model = WordTagger(len(vocabulary)).eval()
    with torch.no_grad():
        model.tag.weight.zero_()
        model.tag.bias.copy_(torch.eye(len(TAGS))[TAGS.index("noun")])  # predicts noun, whatever comes
    tags = [(word, TAGS[tag]) for sentence in tagged for word, tag in zip(*sentence, strict=True)]
    either = [tag for word, tag in tags if word in EITHER]
    assert math.isclose(
        study.accuracy(model, tagged, vocabulary), sum(t == "noun" for _, t in tags) / len(tags), rel_tol=1e-6
    )
    assert math.isclose(
        study.accuracy(model, tagged, vocabulary, EITHER), either.count("noun") / len(either), rel_tol=1e-6
    )


def test_a_guest_follows_and_avoids_two_others_and_gets_the_difference() -> None:
    party = Party.draw(5, seed=1, people=6, gift=3)
    names, follows, avoids, gifts = party.guests.split([6, 6, 6, 3], dim=-1)
    for b in range(5):
        by_name = {int(name.argmax()): gift for name, gift in zip(names[b], gifts[b], strict=True)}
        assert sorted(by_name) == list(range(6))
        for i in range(6):
            followed, avoided = int(follows[b, i].argmax()), int(avoids[b, i].argmax())
            assert len({int(names[b, i].argmax()), followed, avoided}) == 3
            torch.testing.assert_close(party.outcome[b, i], by_name[followed] - by_name[avoided])
            assert int(names[b, party.follows[b, i]].argmax()) == followed
            assert int(names[b, party.avoids[b, i]].argmax()) == avoided


def test_all_numbers_of_heads_have_the_same_parameters() -> None:
    counts = {sum(p.numel() for p in Guests(heads=heads, d_model=32).parameters()) for heads in (1, 2, 8, 32)}
    assert len(counts) == 1


def test_fetching_one_gift_explains_half() -> None:
    """The ceiling of one head that the lesson derives: p instead of p − r leaves one of two variances."""
    party = Party.draw(2000, seed=2)
    gifts = party.guests[..., -4:]
    followed = gifts.gather(1, party.follows[..., None].expand(-1, -1, 4))
    left = (party.outcome - followed).var() / party.outcome.var()
    assert abs(float(left) - 0.5) < 0.02


@pytest.mark.parametrize("heads", [1, 2])
def test_training_reduces_the_error(heads: int) -> None:
    model, history = study.heads_learn(heads, seed=1, steps=30, d_model=16)
    assert training.running_mean(history.loss, 5)[-1] < history.loss[0]
    assert study.explained(model) <= 1


def test_operations_are_those_of_the_paper_s_table() -> None:
    found = study.cost_exponents(sizes=(8, 16, 32), fixed=8)
    expected = {"self-attention": (2, 1), "recurrent": (1, 2), "convolution": (1, 2)}
    assert {name: tuple(round(p, 6) for p in powers) for name, powers in found.items()} == expected


def test_the_whole_layer_adds_four_projections() -> None:
    projections = count_flops(study.attention_layer(10, 8, softmax)) - count_flops(attend(10, 8))
    assert projections == 2 * 4 * 10 * 8 * 8


def test_each_layer_is_timed_at_each_length() -> None:
    found = study.seconds((4, 8), d=4, rounds=1)
    assert found.keys() == study.TIMED.keys()
    assert all(len(times) == 2 and min(times) > 0 for times in found.values())


@pytest.mark.parametrize(("n", "window", "layers"), [(64, None, 1), (16, 1, 15), (16, 3, 5), (17, 3, 6), (1, None, 0)])
def test_a_window_hands_information_on(n: int, window: int | None, layers: int) -> None:
    assert study.layers_until_seen(n, window) == layers


def test_what_would_never_end_or_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="window is 0; expected 1 or more"):
        study.layers_until_seen(4, 0)
    with pytest.raises(ValueError, match="people is 2; expected 3 or more"):
        Party.draw(1, seed=0, people=2)
