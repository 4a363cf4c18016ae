"""Exercises of lesson 09: targets, attention, the loss, counting, bits per byte, resuming, perplexity."""

from __future__ import annotations

import copy
import math
import unicodedata
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

from tfbook.course.exercises import exercise, randn
from tfbook.lessons.gpt_pretraining.first_exercises import (
    attend as attend,
    count_parameters as count_parameters,
    first_loss as first_loss,
    shift as shift,
)

# ---- bits a byte -------------------------------------------------------------------------------------------------


def _losses() -> list[tuple[float, int, str]]:
    return [
        (3.1, 9, "To be, or not to be: that is the question."),
        (2.2, 40, "Où est-il allé ? À l'école, naturellement."),
        (1.4, 30, "5 € ≈ 6 $, 今日は"),
        (2.0, 11, "\tUn cafe\u0301, İstanbul 🙂 \n"),  # an accent of its own, spaces at both ends
    ]


@exercise(
    cases=_losses,
    hints=[
        "How many nats does the whole text take? Then change the unit: one bit is ln 2 nats.",
        "`text.encode()` gives the bytes of UTF-8, of which é has two and 今 three.",
    ],
)
def bits_per_byte(loss: float, tokens: int, text: str) -> float:
    bits = loss * tokens / math.log(2)
    return bits / len(text.encode())


bits_per_byte.mistakes(
    {
        "these are characters: é has two bytes, € three": lambda loss, tokens, text: (
            loss * tokens / math.log(2) / len(text)
        ),
        "these are nats a byte: divide by ln 2": lambda loss, tokens, text: loss * tokens / len(text.encode()),
        "a nat is more than a bit, 1 / ln 2 = 1.44 of them: divide by ln 2 instead of multiplying": (
            lambda loss, tokens, text: loss * tokens * math.log(2) / len(text.encode())
        ),
        "bits a token, which depend on how the text is cut: times tokens, divided by bytes": (
            lambda loss, tokens, text: loss / math.log(2)
        ),
        "bytes and tokens are exchanged: the whole text takes loss · tokens": (
            lambda loss, tokens, text: loss * len(text.encode()) / tokens / math.log(2)
        ),
        "this is log₂ of the loss, which is a logarithm already: change its unit, dividing by ln 2": (
            lambda loss, tokens, text: math.log2(loss) * tokens / len(text.encode())
        ),
        "bits of the whole text: divide by its bytes": lambda loss, tokens, text: loss * tokens / math.log(2),
        "spaces and line ends at the edges are bytes, too: strip nothing": lambda loss, tokens, text: (
            bits_per_byte.reference(loss, tokens, text.strip())
        ),
        "normalizing the text changes its bytes: e and ´ have three together, é has two": lambda loss, tokens, text: (
            bits_per_byte.reference(loss, tokens, unicodedata.normalize("NFC", text))
        ),
    }
)

# ---- resume exactly ----------------------------------------------------------------------------------------------

Saved = dict[str, Any]


class _Guesser(nn.Module):
    """Guesses each id from the one before, with dropout; gives out its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.drop, self.out = nn.Embedding(8, 6), nn.Dropout(0.3), nn.Linear(6, 8)

    def forward(self, ids: Tensor) -> Tensor:
        inputs, targets = ids[:, :-1], ids[:, 1:]
        return F.cross_entropy(self.out(self.drop(self.embed(inputs))).flatten(0, 1), targets.flatten())


def _made() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)  # as at the beginning of every run
    model = _Guesser()
    return model, torch.optim.AdamW(model.parameters(), lr=0.0)


def _batch(step: int) -> Tensor:
    return torch.randint(8, (4, 7), generator=torch.Generator().manual_seed(step))


def _rate(step: int, steps: int) -> float:
    return 0.05 * (1.1 + math.cos(math.pi * step / steps))  # not 0 at the end, so a step too many is seen


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, rate: float) -> None:
    optimizer.param_groups[0]["lr"] = rate
    optimizer.zero_grad()
    model(_batch(step)).backward()
    optimizer.step()


def _cut_short() -> list[tuple[Callable, Callable, Callable, Callable, int]]:
    def saved(stop: int, steps: int) -> Saved:
        model, optimizer = _made()
        for step in range(stop):
            _train(model, optimizer, step, _rate(step, steps))
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        return states | {"random": torch.get_rng_state(), "step": stop}

    return [(partial(copy.deepcopy, saved(stop, 12)), _made, _batch, _rate, 12) for stop in (3, 8)] + [
        (partial(copy.deepcopy, saved(4, 9)), _made, _batch, _rate, 9)
    ]


@exercise(
    cases=_cut_short,
    hints=[
        "What does a step depend on? The weights, and what else: what does AdamW remember, where does dropout get its "
        "numbers from, which batch is read, and how large is the learning rate?",
        "`optimizer.load_state_dict`, `torch.set_rng_state` after `make()`, which draws weights of its own, and a loop "
        "over the steps that are left, under their own numbers.",
    ],
)
def finish(load: Callable, make: Callable, batch: Callable, rate: Callable, steps: int) -> Tensor:
    model, optimizer = make()
    saved = load()
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"])
    for step in range(saved["step"], steps):
        optimizer.param_groups[0]["lr"] = rate(step, steps)
        optimizer.zero_grad()
        model(batch(step)).backward()
        optimizer.step()
    return parameters_to_vector(model.parameters()).detach()


@finish.given
def _(load: Callable, make: Callable, batch: Callable, rate: Callable, steps: int) -> Tensor:
    model, optimizer = make()
    saved = load()
    model.load_state_dict(saved["model"])
    left = steps - saved["step"]
    for step in range(left):
        optimizer.param_groups[0]["lr"] = rate(step, left)
        optimizer.zero_grad()
        model(batch(step)).backward()
        optimizer.step()
    return parameters_to_vector(model.parameters()).detach()


def _finished(*run: Any, forgets: tuple[str, ...] = (), left: Callable[[int, int], range] = range) -> Tensor:
    """Finishes a run, the steps `left(done, all)`, with all of a checkpoint but what is named in `forgets`; without its
    "end", the rate takes the number of steps that are left for that of all."""
    load, make, _, rate, steps = run
    saved, (model, optimizer) = load(), make()
    model.load_state_dict(saved["model"])
    if "optimizer" not in forgets:
        optimizer.load_state_dict(saved["optimizer"])
    if "random" not in forgets:
        torch.set_rng_state(saved["random"])
    for step in left(saved["step"], steps):
        before = saved["step"] if "schedule" in forgets else 0
        read = step - saved["step"] if "batches" in forgets else step
        _train(model, optimizer, read, rate(step - before, steps - (saved["step"] if "end" in forgets else before)))
    return parameters_to_vector(model.parameters()).detach()


FORGOTTEN = {
    "optimizer": "AdamW begins without what it remembers of earlier gradients",
    "random": "dropout draws other numbers than it would have (the random state counts after `make()`, which seeds)",
    "batches": "the text is read from its beginning again: the next batch is number `saved['step']`",
    "schedule": "the learning rate starts over: it belongs to the number of the step and to all `steps`",
}
finish.mistakes(
    {
        "; ".join(FORGOTTEN[name] for name in forgets): partial(_finished, forgets=forgets)
        for number in (1, 2, 3)
        for forgets in combinations(FORGOTTEN, number)
    }
    | {
        "`steps` counts the whole run: those before the interruption are done, and yours trains longer": (
            partial(_finished, left=lambda done, steps: range(done, done + steps))
        ),
        "this trains anew from the first step: the result is nearly the same, but what was done is done twice": (
            partial(_finished, forgets=("optimizer", "random"), left=lambda done, steps: range(steps))
        ),
        "one step too many: they count from 0, so the last is number `steps − 1`": (
            partial(_finished, left=lambda done, steps: range(done, steps + 1))
        ),
        "one step is left out: they count from 0, so the first that was not done is number `saved['step']`": (
            partial(_finished, left=lambda done, steps: range(done + 1, steps))
        ),
        "the rate is told how many steps are left, not how many there are: `rate(step, steps)`": (
            partial(_finished, forgets=("end",))
        ),
        "the steps are numbered from 0 again: batch and rate belong to a step's number in the whole run": (
            partial(_finished, left=lambda done, steps: range(steps - done))
        ),
        "the model is in eval mode, so nothing is dropped: the run that nobody cut short trained with dropout": (
            lambda load, make, *rest: finish.reference(load, lambda: ((made := make())[0].eval(), made[1]), *rest)
        ),
    }
)

# ---- the loss of a batch of stories ------------------------------------------------------------------------------

PAD = 0


def _padded() -> list[tuple[Tensor, Tensor, int]]:
    ids = torch.tensor([[1, 4, 2, 5, 3], [1, 5, 3, 0, 0], [1, 2, 3, 0, 0]])
    large = torch.tensor([[2, 0, 4, 1], [2, 3, 1, 1]])
    apart = torch.tensor([0.0, -900.0])[:, None, None]
    return [
        (randn(3, 5, 6, seed=1), ids, PAD),
        (200 * randn(2, 4, 5, seed=2) + apart, large, 1),  # exp overflows in one text and is 0 in the other
        (randn(1, 3, 4, seed=3), torch.tensor([[3, 1, 2]]), PAD),
    ]


@exercise(
    cases=_padded,
    hints=[
        "Which logits predict which ids? Cut both so that position t of the logits stands beside word t + 1.",
        "`logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]` is the log-probability of each target. Sum it "
        "where the target is not `pad`, and divide by how many those are.",
    ],
)
def story_loss(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    targets = ids[:, 1:]
    logp = logits[:, :-1].log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0]
    counts = targets != pad
    return -logp[counts].sum() / counts.sum()


def _surprises(logits: Tensor, targets: Tensor) -> Tensor:
    return -logits.log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0]


def _mean_of_rows(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    counts = ids[:, 1:] != pad
    return ((_surprises(logits[:, :-1], ids[:, 1:]) * counts).sum(dim=1) / counts.sum(dim=1)).mean()


def _after_exp(logits: Tensor, ids: Tensor, pad: int) -> Tensor:
    """The loss with log Σ exp taken as it stands."""
    logp = logits - logits.exp().sum(dim=-1, keepdim=True).log()
    return -logp[:, :-1].gather(-1, ids[:, 1:, None])[..., 0][ids[:, 1:] != pad].mean()


story_loss.mistakes(
    {
        "nothing is shifted: position t has read word t, so its logits belong to word t + 1": (
            lambda logits, ids, pad: _surprises(logits, ids)[ids != pad].mean()
        ),
        "shifted the wrong way: this asks each position for the word before it, which it has already read": (
            lambda logits, ids, pad: _surprises(logits[:, 1:], ids[:, :-1])[ids[:, :-1] != pad].mean()
        ),
        "padding counts: leave out the targets that are `pad`, or the model is trained to predict them": (
            lambda logits, ids, pad: _surprises(logits[:, :-1], ids[:, 1:]).mean()
        ),
        "divided by all positions: padding adds nothing to the sum, and should not count in the mean either": (
            lambda logits, ids, pad: (_surprises(logits[:, :-1], ids[:, 1:]) * (ids[:, 1:] != pad)).mean()
        ),
        "left out by what is read, not by the target: the last word of a story still has `pad` as its target": (
            lambda logits, ids, pad: _surprises(logits[:, :-1], ids[:, 1:])[ids[:, :-1] != pad].mean()
        ),
        "a mean for each story, and then their mean: words of short stories count more. Divide once, by all words": (
            _mean_of_rows
        ),
        "the sum over all words: divide by how many count, or long batches take larger steps": (
            lambda logits, ids, pad: _surprises(logits[:, :-1], ids[:, 1:])[ids[:, 1:] != pad].sum()
        ),
        "the sign: log-probabilities are negative, and the loss should fall as they rise": (
            lambda logits, ids, pad: -story_loss.reference(logits, ids, pad)
        ),
        "`pad` is given and need not be 0, which is a word here like any other": (
            lambda logits, ids, pad: story_loss.reference(logits, ids, 0)
        ),
        "ids below `pad` are left out, too: a target is padding only if it equals `pad`": (
            lambda logits, ids, pad: _surprises(logits[:, :-1], ids[:, 1:])[ids[:, 1:] > pad].mean()
        ),
        "one maximum for all positions: where all logits are far below it, each exp is 0; subtract each row's own": (
            lambda logits, ids, pad: _after_exp(logits - logits.max(), ids, pad)
        ),
        "these are bits: use the natural logarithm": (
            lambda logits, ids, pad: story_loss.reference(logits, ids, pad) / math.log(2)
        ),
    }
)

# ---- find the bug: perplexity of several texts ---------------------------------------------------------------------


def _texts() -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.tensor([0.7, 2.3, 1.1]), torch.tensor([10.0, 400.0, 90.0])),
        (torch.tensor([3.0, 1.0]), torch.tensor([1.0, 3.0])),
        (torch.tensor([1.4]), torch.tensor([7.0])),
    ]


@exercise(
    cases=_texts,
    hints=[
        "Perplexity is the exponential of one number, the mean loss over all words of all texts. How many nats do all "
        "texts take together?",
        "A text with mean loss l and c words takes l · c nats. Add these up, divide by all words, and only then take "
        "the exponential.",
    ],
    differentiable=False,
)
def perplexity(losses: Tensor, counts: Tensor) -> Tensor:
    return ((losses * counts).sum() / counts.sum()).exp()


@perplexity.given
def _(losses: Tensor, counts: Tensor) -> Tensor:
    return losses.exp().mean()


perplexity.mistakes(
    {
        "every text counts the same: one of 400 words should count 40 times as much as one of 10": (
            lambda losses, counts: losses.mean().exp()
        ),
        "the mean of perplexities, weighted by words: first average the losses, then take the exponential once": (
            lambda losses, counts: (losses.exp() * counts).sum() / counts.sum()
        ),
        "all nats of the texts, not their mean: divide by the number of words before the exponential": (
            lambda losses, counts: (losses * counts).sum().exp()
        ),
        "the losses are in nats, so the base is e, not 2": (
            lambda losses, counts: 2 ** ((losses * counts).sum() / counts.sum())
        ),
        "this is the mean loss in nats: perplexity is its exponential": (
            lambda losses, counts: (losses * counts).sum() / counts.sum()
        ),
        "divided by the number of texts instead of the number of words": (
            lambda losses, counts: ((losses * counts).sum() / len(counts)).exp()
        ),
    }
)
