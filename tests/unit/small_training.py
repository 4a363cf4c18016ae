"""A model that looks at no value, batches for it, and a loss of two terms."""

import torch
from torch import Tensor, nn

from tfbook.text import PAD, Batch
from tfbook.training import Loss, next_token_loss


class Probe(nn.Module):
    """Words to words through two blocks that look at no value."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.dropout = nn.Dropout(0.1)
        self.unembed = nn.Linear(8, 9)
        self.unembed.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = x + self.dropout(block(x).tanh())
        return self.unembed(x)


def texts(number: int) -> Tensor:
    return torch.randint(1, 9, (4, 6), generator=torch.Generator().manual_seed(number))


def pairs(number: int) -> Batch:
    """Sentences of which half end early."""
    ids, lengths = texts(number), torch.tensor([6, 6, 3, 4])
    ids = ids.masked_fill(torch.arange(6) >= lengths[:, None], PAD)
    return Batch(source=ids, source_lengths=lengths, target_in=ids, target_out=ids, target_lengths=lengths)


def two_terms(model: nn.Module, ids: Tensor) -> Loss:
    return next_token_loss(model, ids) + Loss(model.embed.weight.square().sum(), len(ids))
