"""The captioner against its formulas in plain code, and the score of where it looks against hand-made attention."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tfbook.course.captioning import (
    attention_on_objects,
    bell,
    caption_ids,
    images_of,
    middles,
    places_of,
    standard_captions,
    words_right,
)
from tfbook.course.invariants import TOLERANCE, convexity
from tfbook.data.scenes import SceneObject, Scenes, compose
from tfbook.models.captioner import Captioner, CaptionerConfig, ImageEncoder, describe
from tfbook.text.vocabulary import BOS, EOS, PAD
from tfbook.training.losses import caption_loss

LITTLE = CaptionerConfig(
    vocab=9, height=8, width=12, channels=2, backbone=(4, 5), d_features=6, d_embed=4, d_hidden=5, dropout=0.1
)
IMAGES = torch.rand(3, 2, 8, 12, generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([[BOS, 4, 5, 6, EOS], [BOS, 7, EOS, PAD, PAD], [BOS, 8, 4, EOS, PAD]])
SCENES = Scenes(side=32, counts=(1, 2))
SOME = SCENES.take("train", 6)


def drawn(model: nn.Module) -> Captioner:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.4 * torch.randn_like(weight))
        model.decoder.embed.weight[PAD] = 0
    return model.eval()


# ---- the model ---------------------------------------------------------------------------------------------------


def lstm(x: Tensor, h: Tensor, c: Tensor, cell: nn.LSTMCell) -> tuple[Tensor, Tensor]:
    """The gates of PyTorch's order: input, forget, candidate, output."""
    i, f, g, o = (cell.weight_ih @ x + cell.bias_ih + cell.weight_hh @ h + cell.bias_hh).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@torch.no_grad()
def test_each_word_follows_from_the_paper_s_equations() -> None:
    model = drawn(Captioner(LITTLE))
    found, decoder = model(IMAGES, IDS), model.decoder
    features = model.encoder.layers(IMAGES).flatten(2).mT + model.encoder.position.embedding
    assert features.shape == (3, 6, 6)
    for row in range(3):
        places = features[row]
        h, c = torch.tanh(decoder.begin(places.mean(dim=0))).chunk(2)
        for t, number in enumerate(IDS[row].tolist()):
            word, score = decoder.embed.weight[number], decoder.score
            scores = torch.stack(
                [score.v.weight[0] @ torch.tanh(score.W.weight @ h + score.U(place)) for place in places]
            )
            weights = scores.exp() / scores.exp().sum()
            gate = 1 / (1 + torch.exp(-(decoder.gate.weight[0] @ h + decoder.gate.bias)))
            context = gate * sum(weight * place for weight, place in zip(weights, places, strict=True))
            h, c = lstm(torch.cat([word, context]), h, c, decoder.lstm)
            logits = decoder.unembed(torch.tanh(decoder.merge(torch.cat([h, context, word]))))
            torch.testing.assert_close(found.weights[row, t], weights)
            torch.testing.assert_close(found.logits[row, t], logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_word_by_word_is_all_at_once() -> None:
    model = drawn(Captioner(LITTLE))
    whole, memory = model(IMAGES, IDS), model.encoder(IMAGES)
    state, logits = model.decoder.start(memory), []
    for word in IDS.split(1, dim=1):
        said = model.decoder(word, memory, state)
        state = said.state
        logits.append(said.logits)
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits)
    kept = torch.tensor([2, 0])
    selected = model.decoder(IDS[kept, :1], memory.select(kept), model.decoder.start(memory).select(kept))
    torch.testing.assert_close(selected.logits, whole.logits[kept, :1])


@torch.no_grad()
def test_no_word_knows_a_later_one_and_weights_are_convex() -> None:
    model, other = drawn(Captioner(LITTLE)), IDS.clone()
    other[:, 3:] = 4
    torch.testing.assert_close(model(IMAGES, other).logits[:, :3], model(IMAGES, IDS).logits[:, :3])
    assert convexity(model(IMAGES, IDS).weights, torch.ones(5, 6, dtype=torch.bool)) < TOLERANCE


@torch.no_grad()
def test_describing_takes_the_most_probable_word_each_time() -> None:
    """Against reading the whole text again for each word; the mode of the model stays."""
    model = drawn(Captioner(LITTLE)).train()
    found = describe(model, IMAGES, max_length=6)
    assert model.training
    model.eval()
    for row, image in enumerate(IMAGES):
        words = [BOS]
        while len(words) <= 6 and words[-1] != EOS:
            logits, weights, _ = model(image[None], torch.tensor([words]))
            torch.testing.assert_close(found.weights[row, len(words) - 1], weights[0, -1])
            best = max((float(logit), number) for number, logit in enumerate(logits[0, -1]) if number not in (PAD, BOS))
            words.append(best[1])
        said = found.tokens[row].tolist()
        assert said[: len(words) - 1] == words[1:]
        assert set(said[len(words) - 1 :]) <= {PAD}


@torch.no_grad()
def test_its_work_can_be_counted() -> None:
    model = drawn(Captioner(LITTLE))
    with FlopCounterMode(display=False) as counter:
        model(IMAGES, IDS)
    convolutions = 2 * 9 * (24 * 2 * 4 + 6 * 4 * 5 + 6 * 5 * 6 + 6 * 6 * 6)
    start = 2 * (6 * 10 + 6 * 6 * 5)
    word = 2 * (5 * 5 + 6 * 5 + 5 + 6 * 6 + 20 * (10 + 5) + 15 * 4 + 4 * 9)
    assert counter.get_total_flops() == 3 * (convolutions + start + 5 * word)


# ---- loss --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_the_loss_is_the_one_worked_out_by_hand() -> None:
    model = drawn(Captioner(LITTLE))
    decoded, total, uneven = model(IMAGES, IDS[:, :-1]), 0.0, 0.0
    for row in range(3):
        looked = torch.zeros(6)
        for t, number in enumerate(IDS[row, 1:].tolist()):
            if number != PAD:
                total -= float(decoded.logits[row, t].log_softmax(dim=0)[number])
                looked += decoded.weights[row, t]
        uneven += float((1 - looked).square().sum())
    loss = caption_loss(model, IMAGES, IDS)
    assert float(loss.mean) == pytest.approx(total / 9, rel=1e-5)
    even = caption_loss(model, IMAGES, IDS, even=0.5)
    assert float(even.mean) == pytest.approx(total / 9 + 0.5 * uneven / 3, rel=1e-5)


# ---- where it looks ----------------------------------------------------------------------------------------------


def test_attention_on_the_object_itself_has_all_its_mass() -> None:
    """Hand-made: all on the first object, then evenly over everything."""
    scene = compose([SceneObject("ball", "red", 0.25, 0.25, 0.3), SceneObject("star", "blue", 0.75, 0.7, 0.3)], side=32)
    touched, caption = places_of(scene.masks, (8, 8)), scene.captions[0]
    weights = (touched[0].float() / touched[0].sum()).expand(1, len(caption.words), -1)
    names = [number for number in caption.named if number is not None]
    found = attention_on_objects(weights, [scene], [caption], (8, 8))
    assert found.model == pytest.approx(names.count(0) / len(names))
    even = attention_on_objects(torch.full((1, len(caption.words), 64), 1 / 64), [scene], [caption], (8, 8))
    assert even.model == pytest.approx(even.uniform)
    assert even.uniform == pytest.approx(sum(float(touched[number].sum()) for number in names) / 64 / len(names))
    middle = compose([SceneObject("ball", "red", size=0.6)], side=32)
    words = len(middle.captions[0].words)
    centered = attention_on_objects(bell((8, 8)).expand(1, words, -1), [middle], middle.captions[:1], (8, 8))
    assert centered.model == pytest.approx(centered.center)
    assert centered.center > centered.uniform


def test_places_are_those_that_an_object_touches() -> None:
    masks = torch.zeros(2, 4, 6, dtype=torch.bool)
    masks[0, 1, 2] = masks[1, 3, 5] = masks[1, 2, 0] = True
    assert places_of(masks, (2, 3)).nonzero().tolist() == [[0, 1], [1, 3], [1, 5]]
    with pytest.raises(ValueError, match=r"grid is \(3, 3\) and masks are \(4, 6\); expected the grid to divide them"):
        places_of(masks, (3, 3))


def test_a_bell_is_a_product_of_two_normal_densities() -> None:
    density = torch.distributions.Normal(0.5, 0.25)
    rows, columns = (density.log_prob((torch.arange(side) + 0.5) / side).exp() for side in (4, 6))
    expected = torch.outer(rows, columns).flatten()
    torch.testing.assert_close(bell((4, 6)), expected / expected.sum())


def test_attention_without_named_objects_is_refused() -> None:
    with pytest.raises(ValueError, match="captions names no object"):
        attention_on_objects(torch.zeros(0, 4, 64), [], [], (8, 8))


# ---- captions of scenes ------------------------------------------------------------------------------------------


def test_captions_become_rows_of_ids() -> None:
    vocabulary = SCENES.vocabulary
    ids = caption_ids(standard_captions(SOME), vocabulary)
    for row, scene in zip(ids, SOME, strict=True):
        assert row[0] == BOS
        assert vocabulary.decode(row) == scene.captions[0].words
    assert images_of(SOME).shape == (6, 3, 32, 32)


def test_right_words_are_counted() -> None:
    """A captioner learns six scenes by heart; before, it knows next to nothing."""
    torch.manual_seed(0)
    vocabulary = SCENES.vocabulary
    model = Captioner(replace(LITTLE, vocab=len(vocabulary), height=32, width=32, channels=3, d_hidden=32, dropout=0.0))
    assert words_right(model, SOME, vocabulary).captions == 0
    images, ids = images_of(SOME), caption_ids(standard_captions(SOME), vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for _ in range(120):
        optimizer.zero_grad()
        caption_loss(model, images, ids).mean.backward()
        optimizer.step()
    for _ in range(20):  # batch norm catches up
        model(images, ids)
    found = words_right(model, SOME, vocabulary)
    with torch.no_grad():
        said = model.eval()(images, ids[:, :-1]).logits.argmax(dim=-1)
    real = ids[:, 1:] != PAD
    assert found.words == pytest.approx(float((said == ids[:, 1:])[real].float().mean()))
    assert found.words > 0.9
    assert found.captions > 0.7


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: replace(LITTLE, height=10), "patch is 4 and images are 10 × 12"),
        (lambda: replace(LITTLE, d_hidden=0), "d_hidden is 0; expected 1 or more"),
        (lambda: Captioner(LITTLE)(IMAGES[:, :1], IDS), r"images has shape .*; expected \(batch, 2, 8, 12\)"),
        (lambda: Captioner(LITTLE)(IMAGES, IDS + 5), "target holds ids from 5 to 13; expected 0 to 8"),
        (lambda: Captioner(LITTLE)(IMAGES, IDS[:2]), "target has 2 rows; expected 3"),
        (lambda: describe(Captioner(LITTLE), IMAGES, max_length=0), "max_length is 0; expected 1 or more"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_margin_counts_the_places_beside_an_object() -> None:
    """An object in the upper left corner of a grid of 4 × 4, and attention on the place to its lower right."""
    scene = compose([SceneObject("ball", "red", x=0.1, y=0.1, size=0.15)], side=32)
    caption = standard_captions([scene])[0]
    weights = torch.zeros(1, len(caption.words), 16)
    weights[:, :, 5] = 1
    beside, on = (attention_on_objects(weights, [scene], [caption], (4, 4), margin=margin) for margin in (1, 0))
    assert (beside.model, on.model) == (1, 0)
    assert (beside.uniform, on.uniform) == pytest.approx((4 / 16, 1 / 16))


def test_places_stand_around_the_middles_of_what_they_see() -> None:
    """Gradients of one feature reach as far to both sides of its middle; an even kernel would tell rows apart."""
    torch.manual_seed(0)
    config = CaptionerConfig(vocab=5, backbone=(4, 4, 4), d_features=4, height=128, width=128)
    layers = ImageEncoder(config).double().eval().layers
    at = middles(layers)
    assert at == (0, 8)
    image = torch.randn(1, 3, 128, 128, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(layers(image)[0, :, 8, 9].sum(), image)
    touched = slope[0].abs().sum(dim=0) > 0
    for axis, place in ((1, 8), (0, 9)):
        lines = touched.any(dim=axis).nonzero().flatten()
        assert (lines.min() + lines.max()) / 2 == at.first + place * at.step
    assert middles(nn.Conv2d(1, 1, 4, stride=4)) == (1.5, 4)


def test_an_offset_moves_places_to_the_upper_left() -> None:
    masks = torch.zeros(1, 8, 8, dtype=torch.bool)
    masks[0, 2, 5] = True
    assert places_of(masks, (2, 2)).nonzero().tolist() == [[0, 1]]
    assert places_of(masks, (2, 2), offset=2).nonzero().tolist() == [[0, 3]]
    assert not places_of(masks, (2, 2), offset=2, middle=True).any()
    masks[0, 0, 4] = True  # 4 pixels on, 2 back: the middle of the upper right place
    assert places_of(masks, (2, 2), offset=2, middle=True).nonzero().tolist() == [[0, 1]]


def test_attention_on_other_objects_is_their_mean() -> None:
    """All attention on the second of three objects: of the other two of its words, none; of each other word, half."""
    scene = compose(
        [SceneObject(kind, "red", x, 0.5, 0.15) for kind, x in (("ball", 0.15), ("star", 0.5), ("fish", 0.85))], side=32
    )
    caption, touched = scene.captions[0], places_of(scene.masks, (8, 8)).float()
    weights = (touched[1] / touched[1].sum()).expand(1, len(caption.words), -1)
    names = [number for number in caption.named if number is not None]
    found = attention_on_objects(weights, [scene], [caption], (8, 8))
    assert found.other == pytest.approx(sum(number != 1 for number in names) / len(names) / 2)
    alone = compose([SceneObject("ball", "red", size=0.3)], side=32)
    one = attention_on_objects(torch.zeros(1, 20, 64), [alone], alone.captions[:1], (8, 8))
    assert math.isnan(one.other)
