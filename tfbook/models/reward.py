"""Scalar heads on a language model: a reward for a whole text, or a value for each of its prefixes.

Shapes: batch, time, d_model.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tfbook.checks import check_lengths, may_look
from tfbook.models.language_model import LanguageModel


class ValueModel(nn.Module):
    """v_t = w · h_t + b from the last layer of a language model: the return expected after the first t tokens.

    PPO's critic (Schulman et al., 2017, section 5). It shares the embedding and blocks of `body`, so pass a copy
    (`copy.deepcopy`) of a model that is also used elsewhere. w starts with variance 1 / (d_model + 1) and b at 0
    (Stiennon et al., 2020, appendix B.1).
    """

    def __init__(self, body: LanguageModel):
        super().__init__()
        self.embed, self.stack, self.mask = body.embed, body.stack, body.mask
        d_model = body.unembed.in_features
        self.head = nn.Linear(d_model, 1)
        nn.init.normal_(self.head.weight, std=(d_model + 1) ** -0.5)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """A value at each token, given the tokens up to it."""
        return self.head(self.stack(self.embed(ids), self.mask))[..., 0]


class RewardModel(nn.Module):
    """r(text): the value at the last token, which attends to the whole text (Ouyang et al., 2022, section 3.5)."""

    def __init__(self, body: LanguageModel):
        super().__init__()
        self.value = ValueModel(body)

    def forward(self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """One number for each text, excluding padding.

        Raises ValueError unless there is one length for each text, from 1 to the width of `ids`.
        """
        check_lengths(lengths, len(ids), "texts")
        if may_look():
            low, high = map(int, lengths.aminmax())
            if not 1 <= low <= high <= ids.shape[1]:
                raise ValueError(f"lengths run from {low} to {high}; expected 1 to {ids.shape[1]}, the width of ids")
        return self.value(ids)[torch.arange(len(ids), device=ids.device), lengths - 1]
