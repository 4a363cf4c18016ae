"""A pointer network (Vinyals et al., 2015): attention weights are the output, so its vocabulary is the input itself.

Shapes: batch, item (of the input), step (of the output), choice (the items, then stop), d_hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook.attention.scoring import AdditiveScore
from tfbook.checks import check_positive, may_look
from tfbook.models.config import Savable
from tfbook.modes import evaluating

Memory = tuple[Tensor, Tensor]  # hidden state and cell of an LSTM, each (1, batch, d_hidden)


@dataclass(frozen=True, kw_only=True)
class PointerConfig(Savable):
    """Sizes of a pointer network; none of them is the number of items."""

    d_input: int = 1
    d_hidden: int = 64
    once: bool = False  # whether an item that was pointed at is masked from then on

    def __post_init__(self) -> None:
        check_positive(d_input=self.d_input, d_hidden=self.d_hidden)


def pointed_at(choices: Int[Tensor, "batch step"], options: int) -> Bool[Tensor, "batch step options"]:
    """Which options earlier steps have pointed at, for each step; none for the first one."""
    chosen = nn.functional.one_hot(choices, options).cumsum(dim=1) > 0
    return torch.cat([torch.zeros_like(chosen[:, :1]), chosen[:, :-1]], dim=1)


class PointerNetwork(nn.Module):
    """An LSTM reads the items in both directions; another one points at one of them per step, or at "stop".

    Choice number `item` means stop, so targets end with it.
    """

    def __init__(self, config: PointerConfig):
        super().__init__()
        d = config.d_hidden
        self.config = config
        self.embed = nn.Linear(config.d_input, d)
        self.encoder = nn.LSTM(d, d, batch_first=True, bidirectional=True)
        self.annotate = nn.Linear(2 * d, d)
        self.first = nn.Parameter(torch.zeros(d))  # the decoder's input before it has pointed at anything
        self.stop = nn.Parameter(torch.randn(d) / d**0.5)  # what "stop" looks like among the items
        self.decoder = nn.LSTM(d, d, batch_first=True)
        self.score = AdditiveScore(d, d, d)

    def encode(
        self, items: Float[Tensor, "batch item d_input"]
    ) -> tuple[Float[Tensor, "batch item d_hidden"], Float[Tensor, "batch choice d_score"], Memory]:
        """The embedded items, the projected keys with that of "stop" last, and the decoder's first state."""
        if not items.shape[1]:
            raise ValueError(f"items has shape {tuple(items.shape)}; expected at least one item")
        embedded = self.embed(items)
        states, _ = self.encoder(embedded)
        annotations = self.annotate(states)
        keys = torch.cat([annotations, self.stop.expand(len(items), 1, -1)], dim=1)
        start = torch.tanh(annotations.mean(dim=1))[None]
        return embedded, self.score.project(keys), (start, torch.zeros_like(start))

    def forward(
        self, items: Float[Tensor, "batch item d_input"], target: Int[Tensor, "batch step"]
    ) -> Float[Tensor, "batch step choice"]:
        """Logits of each step given the targets before it; −∞ for items that `once` masks.

        Raises ValueError for a target that points at none of the items nor at stop.
        """
        count = items.shape[1]
        if may_look() and target.numel() and not 0 <= int(target.min()) <= int(target.max()) <= count:
            low, high = int(target.min()), int(target.max())
            raise ValueError(f"target points at {low} to {high}; expected 0 to {count}, the last of which is stop")
        embedded, keys, memory = self.encode(items)
        shown = torch.cat([embedded, self.first.expand(len(items), 1, -1)], dim=1)  # no step follows stop
        first = self.first.expand(len(items), 1, -1)
        inputs = torch.cat([first, shown.take_along_dim(target[:, :-1, None], dim=1)], dim=1)
        states, _ = self.decoder(inputs, memory)
        logits = self.score(states, keys)
        if not self.config.once:
            return logits
        used = pointed_at(target, count + 1)
        used[..., count] = False  # stop may be repeated: that is how targets are padded
        return logits.masked_fill(used, -torch.inf)

    @torch.no_grad()
    def point(self, items: Float[Tensor, "batch item d_input"]) -> Int[Tensor, "batch step"]:
        """The choices of a greedy decoder in eval mode, as many steps as items and one; after stop come only stops."""
        with evaluating(self):
            embedded, keys, memory = self.encode(items)
            count, rows = items.shape[1], torch.arange(len(items), device=items.device)
            shown = torch.cat([embedded, self.first.expand(len(items), 1, -1)], dim=1)
            used = torch.zeros(len(items), count + 1, dtype=torch.bool, device=items.device)
            x, choices = self.first.expand(len(items), -1), []
            for _ in range(count + 1):
                state, memory = self.decoder(x[:, None], memory)
                choice = self.score(state, keys)[:, 0].masked_fill(used, -torch.inf).argmax(dim=-1)
                used[rows, choice] |= self.config.once
                used[:, count] = False
                used[choice == count, :count] = True
                x = shown[rows, choice]
                choices.append(choice)
            return torch.stack(choices, dim=1)
