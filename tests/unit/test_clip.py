"""CLIP: its loss against closed forms in NumPy, towers whose vectors do not depend on what they are batched with."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tfbook.models.blocks import Config
from tfbook.models.clip import HOTTEST, Clip, ConvolutionalPatches, ImageTower, TextTower
from tfbook.models.vit import VitConfig
from tfbook.training.contrastive import contrastive_loss

pytestmark = pytest.mark.usefixtures("float32")

PICTURES = VitConfig(d_model=16, heads=2, d_ff=24, layers=1, height=16, width=24, patch=8, tokens=0)
TEXTS = Config(d_model=12, heads=2, d_ff=24, layers=2, max_length=6, position="learned")


def model() -> Clip:
    torch.manual_seed(0)
    return Clip(ImageTower(8, PICTURES), TextTower(11, 8, TEXTS)).eval()


# ---- the loss --------------------------------------------------------------------------------------------------------


def by_hand(scores: np.ndarray, same: np.ndarray) -> tuple[float, np.ndarray]:
    """The loss and its gradient, ½ (P_rows − T_rows) / n + ½ (P_columns − T_columns) / m, in double precision."""
    loss, gradient = 0.0, np.zeros_like(scores)
    for axis in (1, 0):
        p = np.exp(scores) / np.exp(scores).sum(axis=axis, keepdims=True)
        true = same.any(axis=axis, keepdims=True)
        target = same / np.maximum(same.sum(axis=axis, keepdims=True), 1)
        loss -= 0.5 * (target * np.log(p)).sum() / true.sum()
        gradient += 0.5 * np.where(true, p - target, 0) / true.sum()
    return loss, gradient


@pytest.mark.parametrize(("images", "texts", "share"), [(1, 1, 1.0), (4, 4, 0.3), (6, 9, 0.2), (5, 3, 0.5)])
def test_loss_and_gradient_are_the_closed_form(images: int, texts: int, share: float) -> None:
    generator = torch.Generator().manual_seed(images)
    scores = (3 * torch.randn(images, texts, generator=generator)).requires_grad_()
    same = torch.rand(images, texts, generator=generator) < share
    same[0, 0] = True
    loss = contrastive_loss(scores, same).mean
    (gradient,) = torch.autograd.grad(loss, scores)
    expected, slope = by_hand(scores.detach().double().numpy(), same.numpy())
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(gradient, slope, atol=1e-6)


def test_without_twins_it_is_cross_entropy_both_ways() -> None:
    scores, own = 4 * torch.randn(7, 7), torch.arange(7)
    expected = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
    torch.testing.assert_close(contrastive_loss(scores).mean, expected)
    torch.testing.assert_close(contrastive_loss(scores, torch.eye(7, dtype=torch.bool)).mean, expected)


def test_twins_that_score_alike_are_not_pushed_apart() -> None:
    """Two images with one caption each of the same words: at the best scores there is no gradient between them."""
    same = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    scores = torch.where(same, 30.0, -30.0).requires_grad_()
    contrastive_loss(scores, same).mean.backward()
    assert scores.grad.abs().max() < 1e-6
    scores.grad = None
    contrastive_loss(scores).mean.backward()
    assert scores.grad[0, 1] > 0.1, "as false, the twin would be pushed away"


def test_a_row_without_a_true_text_is_left_out() -> None:
    scores = torch.randn(3, 4)
    same = torch.zeros(3, 4, dtype=torch.bool)
    same[0, 1] = same[2, 3] = True
    others = scores.clone()
    others[1] += 0.7  # rows that are left out still stand in the columns
    rows = contrastive_loss(scores, same).mean - contrastive_loss(others, same).mean
    columns = [F.cross_entropy(x.T[[1, 3]], torch.tensor([0, 2])) / 2 for x in (scores, others)]
    torch.testing.assert_close(rows, columns[0] - columns[1])


def test_scores_without_same_are_square() -> None:
    with pytest.raises(ValueError, match=r"scores has shape \(2, 3\); expected as many texts as images"):
        contrastive_loss(torch.randn(2, 3))


# ---- the model -------------------------------------------------------------------------------------------------------


def test_scores_are_scaled_cosines() -> None:
    clip, images = model(), torch.rand(3, 3, 16, 24)
    ids, lengths = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2])
    with torch.no_grad():
        scores = clip(images, ids, lengths)
        expected = F.cosine_similarity(clip.images(images)[:, None], clip.texts(ids, lengths)[None], dim=-1) / 0.07
    torch.testing.assert_close(scores, expected)


def test_the_scale_is_learned_and_clipped() -> None:
    clip = model()
    clip.scale.backward()
    assert float(clip.log_scale.grad) == pytest.approx(1 / 0.07)
    with torch.no_grad():
        clip.log_scale.fill_(math.log(HOTTEST) + 1)
    assert float(clip.scale) == pytest.approx(100)


def test_padding_and_company_do_not_matter() -> None:
    clip, images = model(), torch.rand(3, 3, 16, 24)
    short, longer = torch.tensor([[4, 5]]), torch.tensor([[4, 5, 0, 0], [6, 7, 8, 9]])
    with torch.no_grad():
        alone = clip.text_vectors(short, torch.tensor([2]))
        torch.testing.assert_close(alone, clip.text_vectors(longer, torch.tensor([2, 4]))[:1])
        torch.testing.assert_close(clip.image_vectors(images)[1:2], clip.image_vectors(images[1:2]))
    torch.testing.assert_close(alone.norm(dim=-1), torch.ones(1))


def test_word_order_changes_a_text() -> None:
    clip = model()
    with torch.no_grad():
        one, other = clip.text_vectors(torch.tensor([[4, 5, 6], [6, 5, 4]]), torch.tensor([3, 3]))
    assert (one - other).abs().max() > 1e-4


def test_an_images_vector_is_the_mean_over_its_places() -> None:
    tower, images = model().images, torch.rand(2, 3, 16, 24)
    with torch.no_grad():
        places = tower.places(images)
        assert places.shape == (2, 6, 8)
        torch.testing.assert_close(places.mean(dim=1), tower(images))


def test_convolutional_patches_are_placed_row_by_row() -> None:
    """A change in one corner of the image changes the patch there and not the one in the opposite corner."""
    stem = ConvolutionalPatches(3, 8, 16).eval()
    images = torch.rand(1, 3, 32, 48)
    changed = images.clone()
    changed[..., :8, 40:] += 1
    with torch.no_grad():
        moved = (stem(images) - stem(changed)).abs().amax(dim=-1)[0].unflatten(0, (4, 6))
    assert moved[0, 5] > 1e-3
    assert moved[2:].max() == moved[:, :3].max() == 0


def test_a_patch_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="patch is 6; expected a power of 2"):
        ConvolutionalPatches(3, 6, 16)
