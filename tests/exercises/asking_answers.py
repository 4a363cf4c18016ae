"""Answers to lesson 19's exercise on questions about pictures, which `answers_modalities` offers."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.lessons.modalities.asking_exercises import ask_loss


def loss_at_the_word(logits: Tensor, ids: Tensor, answer: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, -ids.shape[1] :][answer], ids[answer])


def loss_from_the_front(logits: Tensor, ids: Tensor, answer: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, : ids.shape[1]][answer], ids[answer])


def loss_of_all_words(logits: Tensor, ids: Tensor, answer: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, -ids.shape[1] - 1 : -1].flatten(0, 1), ids.flatten())


def loss_summed(logits: Tensor, ids: Tensor, answer: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, -ids.shape[1] - 1 : -1][answer], ids[answer], reduction="sum")


def loss_by_loops(logits: Tensor, ids: Tensor, answer: Tensor) -> Tensor:
    tiles, found = logits.shape[1] - ids.shape[1], []
    for row, word in answer.nonzero().tolist():
        found.append(-logits[row, tiles + word - 1].log_softmax(dim=0)[ids[row, word]])
    return torch.stack(found).mean()


def loss_by_weights(logits: Tensor, ids: Tensor, answer: Tensor) -> Tensor:
    log_p = logits[:, -ids.shape[1] - 1 : -1].log_softmax(dim=-1).gather(2, ids[..., None])[..., 0]
    return -(log_p * answer).sum() / answer.sum()


WRONG = [
    (ask_loss, loss_at_the_word, "each place is asked for its own word"),
    (ask_loss, loss_from_the_front, "the tiles are forgotten"),
    (ask_loss, loss_of_all_words, "the question's words and the padding count, too"),
    (ask_loss, loss_summed, "the words are summed"),
]
RIGHT = [(ask_loss, loss_by_loops), (ask_loss, loss_by_weights)]
