"""Answers to lesson 19's exercises on sound and on images with texts, which `answers_modalities` offers."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.lessons.modalities.sound_exercises import clip_loss, cut_pieces, text_chances

# ---- wrong -------------------------------------------------------------------------------------------------------


def cut_by_view(picture: Tensor, bands: int, steps: int) -> Tensor:
    return picture.contiguous().view(picture.shape[0], -1, bands * steps)


def cut_column_by_column(picture: Tensor, bands: int, steps: int) -> Tensor:
    columns = [cut_pieces.reference(part, bands, steps) for part in picture.split(steps, dim=2)]
    return torch.cat(columns, dim=1)


def cut_frame_by_frame(picture: Tensor, bands: int, steps: int) -> Tensor:
    pieces = cut_pieces.reference(picture, bands, steps)
    return pieces.unflatten(-1, (bands, steps)).mT.flatten(-2)


def cut_without_a_batch(picture: Tensor, bands: int, steps: int) -> Tensor:
    return cut_pieces.reference(picture, bands, steps).flatten(0, 1)


def loss_of_images(scores: Tensor, same: Tensor) -> Tensor:
    target = same / same.sum(dim=1, keepdim=True)
    return F.cross_entropy(scores, target)


def loss_without_twins(scores: Tensor, same: Tensor) -> Tensor:
    rows, columns = scores.log_softmax(dim=1).diagonal(), scores.log_softmax(dim=0).diagonal()
    return -(rows.mean() + columns.mean()) / 2


def loss_twice(scores: Tensor, same: Tensor) -> Tensor:
    return 2 * clip_loss.reference(scores, same)


def loss_of_any(scores: Tensor, same: Tensor) -> Tensor:
    rows = scores.logsumexp(dim=1) - scores.masked_fill(~same, -torch.inf).logsumexp(dim=1)
    columns = scores.logsumexp(dim=0) - scores.masked_fill(~same, -torch.inf).logsumexp(dim=0)
    return (rows.mean() + columns.mean()) / 2


def loss_of_whole_targets(scores: Tensor, same: Tensor) -> Tensor:
    rows = -(same * scores.log_softmax(dim=1)).sum(dim=1).mean()
    columns = -(same * scores.log_softmax(dim=0)).sum(dim=0).mean()
    return (rows + columns) / 2


def loss_of_shared_targets(scores: Tensor, same: Tensor) -> Tensor:
    target = same / same.sum(dim=1, keepdim=True)
    return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target.T)) / 2


def loss_of_places(scores: Tensor, same: Tensor) -> Tensor:
    places = torch.arange(len(scores))
    return (F.cross_entropy(scores, places) + F.cross_entropy(scores.T, places)) / 2


def chances_of_images(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    return (scale * F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T).softmax(dim=0)


def chances_of_a_temperature(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    return (F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T / scale).softmax(dim=1)


def chances_of_dot_products(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    return (scale * images @ texts.T).softmax(dim=1)


WRONG = [  # exercise, answer, a part of what it is told
    (cut_pieces, cut_by_view, "nothing was moved"),
    (cut_pieces, cut_column_by_column, "the pieces are in the wrong order"),
    (cut_pieces, cut_frame_by_frame, "yours is frame by frame"),
    (cut_pieces, cut_without_a_batch, "one long list of pieces"),
    (clip_loss, loss_of_images, "only images choose among texts"),
    (clip_loss, loss_without_twins, "a second true text counts as false here"),
    (clip_loss, loss_twice, "the two directions are added"),
    (clip_loss, loss_of_any, "the *sum* of the true texts' probabilities"),
    (clip_loss, loss_of_whole_targets, "they share 1"),
    (clip_loss, loss_of_shared_targets, "shared out along the rows"),
    (clip_loss, loss_of_places, "a second true text counts as false here"),
    (text_chances, chances_of_images, "the softmax still runs over images"),
    (text_chances, chances_of_a_temperature, "dividing by the scale makes all chances nearly equal"),
    (text_chances, chances_of_dot_products, "without unit vectors, long vectors win"),
]

# ---- right -------------------------------------------------------------------------------------------------------


def cut_by_unfolding(picture: Tensor, bands: int, steps: int) -> Tensor:
    windows = picture.unfold(1, bands, bands).unfold(2, steps, steps)  # (batch, row, column, bands, steps)
    return windows.flatten(1, 2).flatten(2)


def cut_by_loops(picture: Tensor, bands: int, steps: int) -> Tensor:
    rows = picture.split(bands, dim=1)
    return torch.stack([piece.flatten(1) for row in rows for piece in row.split(steps, dim=2)], dim=1)


def loss_by_cross_entropy(scores: Tensor, same: Tensor) -> Tensor:
    rows = F.cross_entropy(scores, same / same.sum(dim=1, keepdim=True))
    columns = F.cross_entropy(scores.T, same.T / same.T.sum(dim=1, keepdim=True))
    return (rows + columns) / 2


def loss_by_logsumexp(scores: Tensor, same: Tensor) -> Tensor:
    total = scores.new_zeros(())
    for x, true in ((scores, same), (scores.T, same.T)):
        own = (x * true).sum(dim=1) / true.sum(dim=1)
        total = total + (x.logsumexp(dim=1) - own).mean()
    return total / 2


def chances_by_exponentials(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    images, texts = images / images.norm(dim=1, keepdim=True), texts / texts.norm(dim=1, keepdim=True)
    scores = scale * torch.einsum("id,td->it", images, texts)
    powers = torch.exp(scores - scores.amax(dim=1, keepdim=True))
    return powers / powers.sum(dim=1, keepdim=True)


RIGHT = [
    (cut_pieces, cut_by_unfolding),
    (cut_pieces, cut_by_loops),
    (clip_loss, loss_by_cross_entropy),
    (clip_loss, loss_by_logsumexp),
    (text_chances, chances_by_exponentials),
]
