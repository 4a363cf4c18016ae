"""Prompts with their answers: which tokens of a text are the model's own. Shapes: batch, time; int64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tfbook.text.vocabulary import EOS, PAD


@dataclass(frozen=True)
class Answers:
    """Texts of a prompt and an answer; `answered` is True at the answer's tokens, including its `<eos>`.

    A loss counts these tokens only, not prompts or padding.
    """

    ids: Int[Tensor, "batch time"]
    answered: Bool[Tensor, "batch time"]

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """The length of prompt and answer together; 0 where there is no answer."""
        places = torch.arange(1, self.ids.shape[1] + 1, device=self.ids.device)
        return (self.answered * places).amax(dim=1)

    @property
    def prompts(self) -> Int[Tensor, " batch"]:
        """The lengths of the prompts; under the mask `Prefix(answers.prompts)`, each is read in both directions."""
        return self.answered.int().argmax(dim=1)

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Int[Tensor, " kept"]) -> Answers:
        """The texts `rows`, in that order."""
        return Answers(self.ids[rows], self.answered[rows])

    def to(self, device: torch.device | str) -> Answers:
        """The same on another device."""
        return Answers(self.ids.to(device), self.answered.to(device))


def join_answers(prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], *, pad: int = PAD) -> Answers:
    """Puts each prompt and its answer in a row, padded to the longest; the ids are used as they are, `<eos>` included.

    Raises ValueError for an empty prompt or answer, and unless there is one answer for each prompt.
    """
    if len(prompts) != len(answers) or not all(map(len, [*prompts, *answers])):
        found = f"there are {len(prompts)} prompts and {len(answers)} answers, or one is empty"
        raise ValueError(f"{found}; expected as many, each of one token or more")
    rows = [torch.tensor([*prompt, *answer]) for prompt, answer in zip(prompts, answers, strict=True)]
    ids = pad_sequence(rows, batch_first=True, padding_value=pad)
    starts, ends = torch.tensor([*map(len, prompts)])[:, None], torch.tensor([*map(len, rows)])[:, None]
    time = torch.arange(ids.shape[1])
    return Answers(ids, (starts <= time) & (time < ends))


def generated_answers(
    ids: Int[Tensor, "batch time"], start: int | Int[Tensor, " batch"], *, stop: int = EOS
) -> Answers:
    """The answers that `generate` gave to prompts of `start` tokens: each ends at its first `stop`, or with its row.

    With a start for each row, a row ends with padding where its prompt was shorter than others. Raises ValueError
    unless `start` is 0 to the length of the rows.
    """
    first, last = (int(start.min()), int(start.max())) if isinstance(start, Tensor) else (start, start)
    if not 0 <= first <= last <= ids.shape[1]:
        found = str(first) if first == last else f"{first} to {last}"
        raise ValueError(f"start is {found}; expected 0 to {ids.shape[1]}, the length of the rows")
    since = torch.arange(ids.shape[1], device=ids.device) - torch.as_tensor(start, device=ids.device).view(-1, 1)
    generated = (since >= 0) & (since < ids.shape[1] - last)
    stopped = ((ids == stop) & generated).int()
    before = stopped.cumsum(dim=1) - stopped
    return Answers(ids, generated & (before == 0))


@dataclass(frozen=True)
class Comparison:
    """Pairs of answers to the same prompts, of which the first was preferred."""

    chosen: Answers
    rejected: Answers

    def to(self, device: torch.device | str) -> Comparison:
        """The same on another device."""
        return Comparison(self.chosen.to(device), self.rejected.to(device))
