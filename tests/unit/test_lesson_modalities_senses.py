"""Lesson 19's sounds and images with texts: tasks by their definitions, the shipped CLIP at work, what was stored."""

import pandas as pd
import pytest
import torch

from tfbook import runtime
from tfbook.course.cost import parameters
from tfbook.course.experiments import stored
from tfbook.course.listening import audio_player
from tfbook.data.graphs import edge_matrix
from tfbook.data.scenes import RARE, SceneObject, compose
from tfbook.data.spoken import Spoken, Voice, spoken
from tfbook.lessons.modalities import (
    asking,
    order,
    picture_contest,
    picture_figures,
    pictures_and_words,
    rivals,
    sound,
    sound_figures,
)
from tfbook.lessons.modalities.rings import new_ring_reader, train_rings
from tfbook.lessons.modalities.sound_answers import SENSE_ANSWERS
from tfbook.lessons.modalities.sound_claims import FURTHER_SENSE_BOUNDS, SENSE_BOUNDS
from tfbook.models.audio import log_mel

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture(scope="module")
def clip():
    return pictures_and_words.shipped_clip()


# ---- sound -----------------------------------------------------------------------------------------------------------


def few_clips() -> Spoken:
    return spoken([0, 1])


def test_training_begins_to_hear_digits_and_uses_the_readers_cut() -> None:
    calls, data = [], few_clips()

    def cut(picture: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        calls.append(size)
        return sound.plain_cut(picture, *size)

    model = sound.listener(cut=cut)
    history = sound.train(model, data, steps=25)
    assert history.loss[-1] < 0.7 * history.loss[0]
    assert set(calls) == {(32, 4)}
    assert sound.share_heard(model, data) > 0.3


def test_a_batch_is_the_picture_moved_in_time_under_noise() -> None:
    data, model = few_clips(), sound.listener()
    batch = sound.picture_batches(data, model, seed=3)(5)
    assert torch.equal(batch.pictures, sound.picture_batches(data, model, seed=3)(5).pictures)
    pictures = model.picture(data.sounds)
    for picture, digit in zip(batch.pictures[:5], batch.digits[:5].tolist(), strict=True):
        own = pictures[data.digits == digit]
        errors = [
            float((picture - one.roll(shift, -1)).std())
            for one in own
            for shift in range(-sound.SHIFT, sound.SHIFT + 1)
        ]
        assert min(errors) == pytest.approx(sound.HISS, rel=0.1)


def test_rivals_see_the_same_bands_and_their_settings_are_chosen_elsewhere() -> None:
    data = spoken(range(3))
    rows = sound.rival_rows(data, few_clips(), few_clips())
    assert {row["model"] for row in rows} == {
        f"{kind}, {name}" for kind in ("linear", "neighbors") for name in sound.FEATURES
    }
    assert all(0 <= row["right"] <= 1 for row in rows)
    model = sound.listener()
    torch.testing.assert_close(
        sound.standardized_pictures(data.sounds), model.picture(data.sounds), rtol=1e-3, atol=1e-4
    )


def test_a_number_is_said_digit_by_digit() -> None:
    result = sound.read_back(sound.listener(), "0407", Voice())
    assert (result.said, len(result.heard), result.sounds.shape[0]) == ("0407", 4, 4)
    torch.testing.assert_close(result.chances.sum(dim=1), torch.ones(4))
    assert len(audio_player(result.sound).data) < 45_000
    with pytest.raises(ValueError, match="number is '12a'; expected 1 to 6 digits"):
        sound.say("12a", Voice())


def test_stored_digits_say_what_the_lesson_says() -> None:
    rows = stored("modalities.digits").frame
    means = rows.groupby("model").right.mean()
    ours = rows[rows.model == "Transformer, strips"].right
    assert len(ours) == 3
    assert ours.min() > 0.965
    linear = means[means.index.str.startswith("linear")]
    assert linear.idxmax() == "linear, average and spread"
    assert 0.9 < linear.max() < ours.min()
    assert means["Transformer, squares"] < linear["linear, average spectrum"]
    assert abs(means["strips without positions"] - ours.mean()) < 0.01
    assert 0.02 < ours.mean() - means["strips without attention"] < 0.05
    assert 0 < sound.sound_claims(rows)[7] <= SENSE_BOUNDS[7].threshold


def test_stored_voices_say_what_the_lesson_says() -> None:
    means = stored("modalities.harder_voices").frame.groupby("change").right.mean()
    usual = means["as in training"]
    assert usual > 0.97
    assert min(means["slow (0.65)"], means["fast (1.7)"]) > usual - 0.03
    assert 0.15 < usual - means["a child's mouth (1.35)"] < 0.25
    assert means["noise 0.4"] < 0.25


# ---- images with texts -----------------------------------------------------------------------------------------------


def two() -> object:
    things = [SceneObject("heart", "red", x=0.7, y=0.3), SceneObject("fish", "blue", x=0.28, y=0.7)]
    return compose(things, ground="sand", side=pictures_and_words.SIDE)


def test_swaps_are_false_and_hold_the_words_they_should() -> None:
    swaps = pictures_and_words.swaps_of(two())
    assert str(two()) == "a blue fish left of a red heart"
    assert swaps["places swapped"] == "a red heart left of a blue fish"
    assert swaps["colors swapped"] == "a red fish left of a blue heart"
    assert swaps["another color"] == "a yellow fish left of a red heart"
    for scene in pictures_and_words.IN_TWOS.take("test", 40):
        assert not set(pictures_and_words.swaps_of(scene).values()) & set(pictures_and_words.told(scene))


def test_twins_are_found_by_their_captions() -> None:
    scenes = pictures_and_words.ALONE.take("train", 60)
    texts = [str(scene) for scene in scenes]
    same = pictures_and_words.pairs_of(scenes, texts).same
    expected = torch.tensor([[one == other for other in texts] for one in texts])
    assert torch.equal(same, expected)
    assert same.sum() > 60, "otherwise there are no twins"


def test_foils_are_true_of_no_image() -> None:
    scenes = pictures_and_words.IN_TWOS.take("train", 30)
    pairs = pictures_and_words.batches(scenes, 16, seed=1, foils=pictures_and_words.foils_of)(0)
    assert pairs.same.shape[0] == 16
    assert pairs.same.shape[1] > 16
    assert not pairs.same[:, 16:].any()
    assert pairs.same[:, :16].diagonal().all()


@pytest.mark.parametrize(
    ("text", "message"), [("a red car", "unknown word 'car'"), ("", "has 0 words"), ("a " * 17, "has 17 words")]
)
def test_a_text_has_words_that_captions_have(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pictures_and_words.text_ids([text])


def test_close_ups_hold_no_rare_look() -> None:
    scenes = pictures_and_words.close_ups("train", 50)
    assert not {(scene.objects[0].kind, scene.objects[0].color) for scene in scenes} & RARE
    assert scenes[0].image.shape == (3, 32, 32)
    rare = pictures_and_words.close_ups("rare", 50)
    assert {(scene.objects[0].kind, scene.objects[0].color) for scene in rare} == RARE


def test_a_few_steps_with_a_readers_loss_train() -> None:
    used = []

    def loss(scores: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
        used.append(same.shape)
        return pictures_and_words.plain_loss(scores, same)

    _, history = pictures_and_words.trained_clip(
        pictures_and_words.close_ups("train", 60), loss=loss, steps=12, size=24, lr=2e-3
    )
    assert len(used) == 12
    assert sum(history.loss[-3:]) < 0.95 * sum(history.loss[:3])


def test_a_bag_of_words_cannot_see_a_swap() -> None:
    scenes = pictures_and_words.IN_TWOS.take("test", 8)
    texts = [(str(scene), pictures_and_words.swaps_of(scene)["places swapped"]) for scene in scenes]
    for one, other in texts:
        assert torch.equal(*picture_contest.bags([one, other]))


def test_histograms_are_shares() -> None:
    scenes = pictures_and_words.ALONE.take("test", 3)
    shares = picture_contest.histograms(scenes, cells=2).square().unflatten(1, (64, 4))
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(3, 4))


def test_the_shipped_clip_finds_captions_and_images(clip) -> None:
    found = pictures_and_words.retrieved(pictures_and_words.scorer(clip), pictures_and_words.candidates(100))
    assert min(found.values()) > 0.85


def test_covering_an_object_matters_more_than_covering_ground(clip) -> None:
    objects, ground = [], []
    for scene in pictures_and_words.IN_TWOS.take("test", 20):
        (falls,) = asking.covered_maps(clip, scene, [str(scene)]).values()
        touched = scene.masks.any(dim=0).float().unfold(0, 8, 8).unfold(1, 8, 8).mean(dim=(2, 3))
        objects.append(float(falls[touched > 0.3].mean()))
        ground.append(float(falls[touched == 0].abs().mean()))
    assert sum(objects) > 2 * sum(ground)


def test_the_best_texts_of_a_scene_name_its_colors(clip) -> None:
    best = asking.best_texts(clip, two())
    assert len(asking.short_texts()) == 48 + 2 * 48 * 47
    assert all("red" in text and "blue" in text for text in best.caption)


def test_stored_contest_says_what_the_lesson_says() -> None:
    rows = stored("modalities.images_and_captions").frame
    claims = picture_contest.picture_claims(rows)
    assert claims[13] >= FURTHER_SENSE_BOUNDS[13].threshold
    assert claims[8] <= SENSE_BOUNDS[8].threshold
    means = rows.groupby("model")[["another color", "caption found"]].mean()
    assert means.loc["words as labels", "caption found"] > means.loc["CLIP", "caption found"]
    assert means.loc["CLIP", "another color"] > 0.97
    assert means.loc["color histograms, linear", "caption found"] > 0.3
    bags = rows[rows.model.isin(["words as labels", "color histograms, linear"])]
    assert bags[["colors swapped", "places swapped"]].eq(0.5).all(axis=None)


# ---- figures and texts -----------------------------------------------------------------------------------------------


def test_figures_draw(clip, house_style) -> None:
    import matplotlib.pyplot as plt

    result = sound.read_back(sound.listener(), 12, Voice())
    rows = stored("modalities.digits").frame
    contest = stored("modalities.images_and_captions").frame
    score = pictures_and_words.scorer(clip)
    scenes = pictures_and_words.candidates(6)
    texts = [str(scene) for scene in scenes]
    figures = [
        sound_figures.draw_chord(result.sounds[0], {"C": 262.0}),
        sound_figures.draw_from_wave_to_tokens(result.sounds[0], (8, 8), "A title"),
        sound_figures.draw_voices({"one": few_clips().sounds[:10]}),
        sound_figures.draw_digit_contest(rows, ours=[*sound.MODELS]),
        sound_figures.draw_read_back(result),
        picture_figures.draw_two_towers(48),
        picture_figures.draw_found(texts[0], scenes, score(scenes, texts[:1])[:, 0]),
        picture_figures.draw_swaps(contest, picture_contest.SWAPS),
        picture_figures.draw_places(two(), asking.place_maps(clip, two(), ["a red heart"]), "A title"),
    ]
    assert all(figure.get_axes() for figure in figures)
    plt.close("all")


def test_the_cut_picture_has_gaps_of_nothing() -> None:
    bands = log_mel(few_clips().sounds[0])
    apart = torch.from_numpy(sound_figures._apart(bands, (16, 40)))
    assert apart.shape == (33, 81)
    assert apart[16].isnan().all()
    torch.testing.assert_close(apart[:16, :40], bands[:16, :40])


def test_answers_begin_with_what_happened() -> None:
    assert {*SENSE_ANSWERS} == {"strips", "swaps", "early", "tiles", "covered"}


# ---- rivals, and a single stream -------------------------------------------------------------------------------------


def test_small_scenes_have_three_false_captions_each() -> None:
    scenes = order.with_swaps("test", 12)
    assert {scene.image.shape for scene in scenes} == {(3, order.SMALL, order.SMALL)}
    for scene in scenes:
        false = order.false_captions(scene)
        assert len({str(scene), *false}) == 4
        assert sorted(false[1].split()) == sorted(str(scene).split()) == sorted(false[2].split())


def test_the_stream_reads_no_padding_and_sees_order() -> None:
    runtime.seed(1)
    model = order.OneStream().eval()
    images, ids, lengths = order.beside(order.with_swaps("test", 1))
    scores = model(images, ids, lengths)
    padded = torch.cat([ids, torch.full((len(ids), 3), 7)], dim=1)
    torch.testing.assert_close(model(images, padded, lengths), scores)
    assert scores.unique().numel() == 4


def test_a_stream_begins_to_choose_captions() -> None:
    scenes = order.with_swaps("train", 8)
    model = order.trained_stream(scenes, seed=1, steps=40, size=8)
    batch = order.beside(scenes)
    assert float(order.choice_loss(model, batch)) < 1.2  # ln 4 = 1.39


def test_stored_streams_say_what_the_lesson_says() -> None:
    runs = order.all_orders()
    assert order.order_claims(runs)[14] >= FURTHER_SENSE_BOUNDS[14].threshold
    assert sorted(runs[runs.model == order.CNN_TOWERS].seed) == [1, 2, 3]
    assert runs[runs.model == order.TAUGHT_TOWERS][list(order.SWAPPED)].max(axis=None) < 0.85
    assert list(order.order_table(runs).columns) == ["another color", *order.SWAPPED]


def test_only_the_image_tower_of_the_rival_differs() -> None:
    ours, rival = pictures_and_words.clip(1, side=order.SMALL), order.with_cnn(1)
    assert parameters(rival.images) <= parameters(ours.images)
    for name, weight in ours.texts.state_dict().items():
        torch.testing.assert_close(rival.texts.state_dict()[name], weight)


def test_claims_of_made_up_orders_count_the_worst() -> None:
    rows = [(order.STREAM, 1.0, 0.97), (order.CNN_TOWERS, 0.96, 1.0), (order.TAUGHT_TOWERS, 0.5, 0.5)]
    runs = pd.DataFrame(rows, columns=["model", *order.SWAPPED])
    assert order.order_claims(runs) == {14: 0.96}


def test_the_diagonal_alone_pushes_twins_apart() -> None:
    scores, same = torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool)
    twins = scores.clone().requires_grad_()
    order.diagonal(twins, same).backward()
    assert (twins.grad.diagonal() < 0).all()
    shared = scores.clone().requires_grad_()
    pictures_and_words.plain_loss(shared, same).backward()
    torch.testing.assert_close(shared.grad, torch.zeros(2, 2))


def test_queries_of_zero_take_plain_means() -> None:
    model = rivals.without_scores(new_ring_reader(layers=1)).cpu()
    edges = edge_matrix({0: {1, 2}, 1: {0}, 2: {0}})[None]
    mixer = model.stack.blocks[0].mixer.branch
    x = torch.randn(1, 3, 32)
    mean = (x[:, [0, 1]]).mean(dim=1)
    torch.testing.assert_close(mixer(x, mask=model.mask(edges))[:, 1], mixer.W_O(mixer.W_V(mean)))
    train_rings(model, steps=1)
    assert not mixer.W_Q.weight.any()


def test_stored_rivals_say_what_the_lesson_says() -> None:
    means = rivals.all_digits().groupby("model").right.mean()
    assert means.idxmax() == "recurrent network (GRU)"
    assert means["recurrent network (GRU)"] - means["Transformer, strips"] < 0.02
    rings = rivals.mean_table(stored("modalities.means").frame, stored("modalities.codes").frame)
    assert list(rings.index[:2]) == ["our blocks along edges", rivals.MEAN]
    assert float(rings.loc[rivals.MEAN, "mean"].strip("%")) > 98
    runs = order.all_towers()
    towers = runs.pivot_table(index="seed", columns="model", values="right")
    assert (towers[order.ATTENDING] > towers[order.ALONE]).all()
    assert towers[order.CONVOLVING].min() > 0.95
    assert towers[order.STAYING].dropna().min() > 0.95
    held = runs[runs.model == order.ENDING]["held back"]
    assert (f"{held.min():.0%}", f"{held.max():.0%}") == ("70%", "76%")
    ours = runs[runs.model == order.ATTENDING]
    assert (ours["held back"] < ours["right"]).all()
    assert list(order.tower_table(runs).columns) == ["looks of training", "held back", "parameters"]


@pytest.mark.parametrize("name", list(rivals.EARS))
def test_rivals_for_sound_hear_after_a_few_steps(name: str) -> None:
    model, data = rivals.new_ear(name, 1), few_clips()
    history = sound.train(model, data, steps=12)
    assert history.loss[-1] < history.loss[0]
    assert model(data.sounds).shape == (20, 10)
