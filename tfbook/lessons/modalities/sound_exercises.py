"""Exercises on sound and on images with texts: cutting a spectrogram, CLIP's loss, and a mixed-up retrieval."""

from __future__ import annotations

from functools import partial

import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.exercises import exercise, randn

# ---- cutting a spectrogram -------------------------------------------------------------------------------------------


def _pictures() -> list[tuple[Tensor, int, int]]:
    sizes = [(1, 4, 6, 4, 2), (2, 4, 6, 2, 3), (3, 6, 8, 2, 2), (2, 6, 4, 6, 1), (1, 2, 5, 1, 5)]
    return [
        (randn(batch, mels, frames, seed=10 + i), bands, steps)
        for i, (batch, mels, frames, bands, steps) in enumerate(sizes)
    ]


@exercise(
    cases=_pictures,
    hints=[
        "Split each side, `picture.reshape(batch, mel // bands, bands, frame // steps, steps)`: nothing moves yet.",
        "A piece owns axes 2 and 4. Bring them together with `permute(0, 1, 3, 2, 4)`, then flatten the places of the "
        "pieces and the numbers within one: `reshape(batch, -1, bands * steps)`.",
    ],
)
def cut_pieces(picture: Tensor, bands: int, steps: int) -> Tensor:
    batch, mel, frame = picture.shape
    split = picture.reshape(batch, mel // bands, bands, frame // steps, steps)
    return split.permute(0, 1, 3, 2, 4).reshape(batch, -1, bands * steps)


def _cut(picture: Tensor, bands: int, steps: int, *, to: str) -> Tensor:
    return rearrange(picture, f"batch (row p) (column q) -> {to}", p=bands, q=steps)


cut_pieces.mistakes(
    {
        "nothing was moved: a reshape alone takes numbers in the order of memory, band after band, so a 'piece' is "
        "neighbors of one band. Split the sides first, then permute": (
            lambda picture, bands, steps: picture.reshape(len(picture), -1, bands * steps)
        ),
        "the pieces are in the wrong order: row by row, so all pieces of the lowest bands first, from early to late": (
            partial(_cut, to="batch (column row) (p q)")
        ),
        "inside a piece the order is band by band, and within a band frame by frame; yours is frame by frame": partial(
            _cut, to="batch (row column) (q p)"
        ),
        "`bands` and `steps` are exchanged: a piece is `bands` high and `steps` frames wide": (
            lambda picture, bands, steps: (
                cut_pieces.reference(picture.mT, bands, steps)
                if picture.shape[2] % bands == 0 and picture.shape[1] % steps == 0
                else picture
            )
        ),
        "the batch has become one long list of pieces: each sound keeps a row of its own": partial(
            _cut, to="(batch row column) (p q)"
        ),
    }
)

# ---- CLIP's loss -----------------------------------------------------------------------------------------------------


def _scores() -> list[tuple[Tensor, Tensor]]:
    alike = torch.eye(5, dtype=torch.bool)
    alike[0, 3] = alike[3, 0] = True  # two images with one caption
    chained = torch.eye(4, dtype=torch.bool)
    chained[1, 2] = True  # caption 2 is true of image 1, caption 1 not of image 2
    cases = [torch.eye(2, dtype=torch.bool), torch.eye(4, dtype=torch.bool), alike, chained]
    large = (80 * randn(3, 3, seed=40), torch.eye(3, dtype=torch.bool))  # a softmax has to survive these
    return [*((5 * randn(*same.shape, seed=30 + i), same) for i, same in enumerate(cases)), large]


@exercise(
    cases=_scores,
    hints=[
        "For one direction: `scores.log_softmax(dim=1)` holds log p(text | image). Without twins the loss is the mean "
        "of its diagonal, with a minus.",
        "With twins, the targets of a row are `same / same.sum(dim=1, keepdim=True)`, which sum to 1. The loss of a "
        "row is −Σ target · log p.",
        "The other direction is the same for `scores.T` and `same.T`. Average the two.",
    ],
    differentiable=("scores",),
)
def clip_loss(scores: Tensor, same: Tensor) -> Tensor:
    def one_way(scores: Tensor, same: Tensor) -> Tensor:
        target = same / same.sum(dim=1, keepdim=True)
        return -(target * scores.log_softmax(dim=1)).sum(dim=1).mean()

    return (one_way(scores, same) + one_way(scores.T, same.T)) / 2


def _lost(scores: Tensor, same: Tensor, *, mistake: str) -> Tensor:
    def one_way(scores: Tensor, same: Tensor) -> Tensor:
        log_p = scores.log_softmax(dim=0 if mistake == "axis" else 1)
        if mistake == "twins":
            return -log_p.diagonal().mean()
        if mistake == "any":
            return -log_p.exp().mul(same).sum(dim=1).log().mean()
        target = same.float() if mistake == "whole" else same / same.sum(dim=1, keepdim=True)
        rows = -(target * log_p).sum(dim=1)
        return rows.sum() if mistake == "sum" else rows.mean()

    if mistake in ("images", "texts"):
        return one_way(scores, same) if mistake == "images" else one_way(scores.T, same.T)
    if mistake == "shared":
        target = same / same.sum(dim=1, keepdim=True)
        columns = -(target * scores.log_softmax(dim=0)).sum(dim=0).mean()
        return (one_way(scores, same) + columns) / 2
    total = one_way(scores, same) + one_way(scores.T, same.T)
    return total if mistake == "both" else total / 2


clip_loss.mistakes(
    {
        "only images choose among texts: texts have to choose among images, too": partial(_lost, mistake="images"),
        "only texts choose among images: images have to choose among texts, too": partial(_lost, mistake="texts"),
        "the two directions are added; take their mean": partial(_lost, mistake="both"),
        "a second true text counts as false here: use `same`, not only the diagonal": partial(_lost, mistake="twins"),
        "the targets of a row with two true texts sum to 2; they share 1": partial(_lost, mistake="whole"),
        "this is −log of the *sum* of the true texts' probabilities, which one of them alone can satisfy; the targets "
        "ask for each of them equally": partial(_lost, mistake="any"),
        "the columns use targets that were shared out along the rows: divide `same` by its column sums there": partial(
            _lost, mistake="shared"
        ),
        "the rows are summed; take their mean, so that the loss does not grow with the batch": partial(
            _lost, mistake="sum"
        ),
        "the softmax runs along the wrong axis: the probabilities of the texts of one image sum to 1, and so do those "
        "of the images of one text": partial(_lost, mistake="axis"),
    }
)

# ---- find the bug: mixed-up chances ----------------------------------------------------------------------------------


def _vectors() -> list[tuple[Tensor, Tensor, Tensor]]:
    sizes = [(3, 4, 5), (2, 5, 4), (4, 2, 3)]
    cases = [
        (3 * randn(images, width, seed=50 + i), randn(texts, width, seed=60 + i), torch.tensor(4.0 + i))
        for i, (images, texts, width) in enumerate(sizes)
    ]
    alike = 3 * randn(2, 4, seed=70)
    return [*cases, (alike, alike / 3, torch.tensor(100.0))]  # the hottest scale, and cosines of 1


@exercise(
    cases=_vectors,
    hints=[
        "Print `chances.sum(dim=1)`. Which sums have to be 1 if each image chooses a text?",
        "The scale is about 20 after training. Are chances sharper or flatter with a larger scale, and which of the "
        "two does the model want?",
    ],
    differentiable=False,
)
def text_chances(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    cosines = F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T
    return (scale * cosines).softmax(dim=1)


@text_chances.given
def _mixed_up(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    """As the notebook gives it: two bugs."""
    cosines = F.normalize(images, dim=1) @ F.normalize(texts, dim=1).T
    return (cosines / scale).softmax(dim=0)


def _chances(images: Tensor, texts: Tensor, scale: Tensor, *, axis: int, power: int, unit: int) -> Tensor:
    if unit:
        images, texts = F.normalize(images, dim=1), F.normalize(texts, dim=1)
    return (scale**power * (images @ texts.T)).softmax(dim=axis)


text_chances.mistakes(
    {
        "one bug is left: the softmax still runs over images, so the texts of an image do not share 1": partial(
            _chances, axis=0, power=1, unit=1
        ),
        "one bug is left: dividing by the scale makes all chances nearly equal. It multiplies; a temperature would "
        "divide": partial(_chances, axis=1, power=-1, unit=1),
        "the scale is missing: cosines are at most 1, and a softmax of such numbers is nearly flat": partial(
            _chances, axis=1, power=0, unit=1
        ),
        "without unit vectors, long vectors win; CLIP compares directions": partial(_chances, axis=1, power=1, unit=0),
    }
)
