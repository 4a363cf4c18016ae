"""Lesson 19's questions about pictures: true answers, a sequence that leaks nothing, a loss by hand."""

import random
from collections.abc import Callable

import pytest
import torch

from tfbook import runtime
from tfbook.lessons.modalities import asking_pictures as asking, asking_rivals as rivals

pytestmark = pytest.mark.usefixtures("float32")
TEXTS = [("where is the ring ?", "top left"), ("what is bottom right ?", "a blue star")]


def batch() -> asking.Asked:
    runtime.seed(1)
    return asking.asked_of(torch.randn(2, asking.TILES, asking.D_TOKEN), TEXTS)


def speaker() -> asking.PictureSpeaker:
    runtime.seed(2)
    return asking.PictureSpeaker().eval()


def test_answers_are_true_of_a_composed_scene() -> None:
    scene = asking.composed({"top right": "red star", "bottom left": "blue ring"})
    found = {asking.question_and_answer(scene, form, random.Random(n)) for form in asking.FORMS for n in range(40)}
    assert found == {
        ("what color is the star ?", "red"),
        ("what color is the ring ?", "blue"),
        ("what is the red thing ?", "a star"),
        ("what is the blue thing ?", "a ring"),
        ("where is the star ?", "top right"),
        ("where is the ring ?", "bottom left"),
        ("what is top left ?", "nothing"),
        ("what is top right ?", "a red star"),
        ("what is bottom left ?", "a blue ring"),
        ("what is bottom right ?", "nothing"),
    }


def test_tiles_are_the_quarters_row_by_row() -> None:
    image = torch.zeros(1, 3, 64, 64)
    for number, (row, column) in enumerate([(0, 0), (0, 32), (32, 0), (32, 32)]):
        image[:, :, row : row + 32, column : column + 32] = number
    assert asking.tiles_of(image).mean(dim=(1, 2, 3)).tolist() == [0, 1, 2, 3]


def test_a_guess_sees_no_later_word_but_every_tile_and_the_question() -> None:
    model, asked = speaker(), batch()
    before = model(asked.tiles, asked.ids, asked.lengths)
    ids = asked.ids.clone()
    ids[0, 6] = asking.word_ids("red")[0]  # "left" in "where is the ring ? top left ."
    after = model(asked.tiles, ids, asked.lengths)
    torch.testing.assert_close(after[0, : asking.TILES + 6], before[0, : asking.TILES + 6])
    assert not torch.allclose(after[0, asking.TILES + 6], before[0, asking.TILES + 6])
    tiles = asked.tiles.clone()
    tiles[0, 3] = tiles[0, 3].flip(0)
    assert not torch.allclose(model(tiles, asked.ids, asked.lengths)[0, 0], before[0, 0])


def test_the_loss_counts_the_answers_words_and_their_end() -> None:
    model, asked = speaker(), batch()
    logits = model(asked.tiles, asked.ids, asked.lengths)
    by_hand = []
    for row, (question, answer) in enumerate(TEXTS):
        first = asking.TILES + len(question.split()) - 1
        for number, word in enumerate([*answer.split(), "."]):
            by_hand.append(-logits[row, first + number].log_softmax(dim=0)[asking.word_ids(word)[0]])
    loss = asking.plain_ask_loss(logits, asked.ids, asked.answer)
    torch.testing.assert_close(loss, torch.stack(by_hand).mean())


def test_an_unknown_word_is_named() -> None:
    with pytest.raises(ValueError, match="'cow'"):
        asking.word_ids("where is the cow ?")


def test_a_written_answer_ends_before_its_end() -> None:
    said = asking.answers_to(speaker(), torch.randn(1, asking.TILES, asking.D_TOKEN), ["where is the ring?"])
    assert asking.END not in said[0].text.split()
    assert 0 < said[0].chance <= 1


def test_classes_of_the_rivals_are_the_answers() -> None:
    asked = batch()
    assert [rivals.ANSWERS[number] for number in rivals.answer_classes(asked)] == ["top left", "a blue star"]


@pytest.mark.parametrize("build", rivals.CHOOSERS.values(), ids=list(rivals.CHOOSERS))
def test_a_rival_does_not_read_the_answer(build: Callable[[], torch.nn.Module]) -> None:
    asked, model = batch(), build().eval()
    other = asked.ids.masked_fill(asked.answer, asking.word_ids("nothing")[0])
    torch.testing.assert_close(
        model(asked.tiles, other, asked.lengths), model(asked.tiles, asked.ids, asked.lengths), atol=0, rtol=0
    )


def test_a_glance_is_attention_of_the_question_over_the_tiles() -> None:
    asked, model = batch(), rivals.Glances(1).eval()
    question, tiles = model.question(asked.ids, asked.lengths), model.norm(asked.tiles)
    query, mix = model.queries[0](question), model.mixes[0]
    for scene in range(len(tiles)):
        keys, values = (layer(tiles[scene]) + model.places for layer in (model.key, model.value))
        weights = torch.stack([key @ query[scene] for key in keys]).div(128**0.5).softmax(dim=0)
        seen = sum(weight * value for weight, value in zip(weights, values, strict=True))
        expected = model.head(question[scene] + mix(torch.cat([question[scene], seen])))
        torch.testing.assert_close(model(asked.tiles, asked.ids, asked.lengths)[scene], expected)


def test_a_sum_over_tiles_forgets_no_place_and_no_word() -> None:
    asked, model = batch(), rivals.SumOverTiles().eval()
    before = model(asked.tiles, asked.ids, asked.lengths)
    turned = model(asked.tiles.flip(1), asked.ids, asked.lengths)
    assert not torch.allclose(turned, before)  # a tile at another place
    for scene, word in ((0, 4), (1, 3)):  # the last words of the questions
        ids = asked.ids.clone()
        ids[scene, word] = asking.word_ids("star")[0]
        changed = (model(asked.tiles, ids, asked.lengths) != before).any(dim=1)
        assert changed.tolist() == [scene == 0, scene == 1]
    with torch.no_grad():
        model.places.zero_()
    once, again = (model(tiles, asked.ids, asked.lengths) for tiles in (asked.tiles, asked.tiles.flip(1)))
    torch.testing.assert_close(once, again)  # without places the order of the tiles is lost


def test_the_longest_question_fits_the_sum_over_tiles() -> None:
    scenes = asking.in_quarters("test", 20)
    questions = [question for form in asking.FORMS for question, _ in asking.exam(scenes, form)]
    assert max(len(question.split()) for question in questions) == rivals.LONGEST


def test_stored_runs_tell_who_is_ahead() -> None:
    runs = rivals.all_answers()
    assert runs.groupby("model").seed.nunique().eq(3).all()
    worst, best = (runs.groupby("model")[list(asking.FORMS)].agg(way) for way in ("min", "max"))
    assert worst.loc[rivals.SPEAKING].min() > 0.92
    assert best.loc[rivals.BLIND].max() < 0.25
    assert best.loc[rivals.LATE + rivals.LONGER, ["what color", "what kind", "what is at"]].max() < 0.9
    assert worst.loc[rivals.GLANCES, ["what color", "what kind", "what is at"]].min() > 0.92
    late, glancing = (runs[runs.model == rivals.GLANCES + more]["where"] for more in ("", rivals.LONGER))
    assert (late > 0.9).sum() == (glancing > 0.9).sum() == 1  # one seed of three learns where
    means = rivals.answering_means()
    assert min(means[rivals.SPEAKING]) > max(means[rivals.SUMS]) + 0.02  # at equal steps
    assert min(means[rivals.SUMS + rivals.LONGER]) > max(means[rivals.SPEAKING])
    told = {name: f"{sum(found) / len(found):.1%}" for name, found in means.items()}
    assert [told[name] for name in (rivals.SPEAKING, rivals.SUMS, rivals.SUMS + rivals.LONGER)] == [
        "96.6%", "90.8%", "98.6%",
    ]  # fmt: skip


def test_means_are_over_the_forms() -> None:
    means = rivals.answering_means()[rivals.SPEAKING]
    assert means == pytest.approx([0.958, 0.967, 0.973], abs=5e-4)
