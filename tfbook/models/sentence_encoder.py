"""Sentence embeddings, the mean of BERT's token vectors, and semantic search by cosine similarity.

Shapes: batch, time, d_model; text, one row for each text.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.checks import check_positive
from tfbook.models.bert import Bert
from tfbook.modes import evaluating

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def mean_pooled(
    x: Float[Tensor, "batch time d_model"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch d_model"]:
    """The mean over the first `lengths` positions of each row, excluding padding; 0 for a row that has none."""
    there = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return x.masked_fill(~there[:, :, None], 0.0).sum(dim=1) / lengths[:, None].clamp(min=1)


class SentenceEncoder(nn.Module):
    """Texts to unit vectors, whose dot products are cosine similarities (Reimers and Gurevych, 2019).

    Training gives texts of similar meaning similar vectors. `tokenizer` is one of the `tokenizers` library that adds
    [CLS] and [SEP]; a text of more than `max_length` tokens, these included, is cut.
    """

    def __init__(self, bert: Bert, tokenizer: Tokenizer, *, max_length: int):
        super().__init__()
        longest = bert.config.max_length
        if not 3 <= max_length <= longest:
            raise ValueError(f"max_length is {max_length}; expected 3 to {longest}, the positions that bert has")
        self.bert, self.tokenizer, self.max_length = bert, copy.deepcopy(tokenizer), max_length
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_length)

    def forward(self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> Float[Tensor, "batch d_model"]:
        """BERT's vectors, averaged over the tokens of each text and normalized to length 1."""
        return F.normalize(mean_pooled(self.bert(ids, lengths), lengths), dim=-1)

    def encode(self, texts: Sequence[str], *, batch: int = 32) -> Float[Tensor, "text d_model"]:
        """The vector of each text, without dropout or gradients; texts of similar length share a batch.

        The vector of a text does not depend on its batch, up to rounding. Warns when texts are cut. Raises TypeError
        unless `texts` is a sequence of str, and ValueError when `batch` < 1.
        """
        check_positive(batch=batch)
        ids = self._tokens(texts)
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        vectors = self.bert.embed.weight.detach().new_empty(len(ids), self.bert.config.d_model)
        with evaluating(self), torch.no_grad():  # and not as a decorator, which a warning would name as its place
            for start in range(0, len(ids), batch):
                rows = order[start : start + batch]
                vectors[rows] = self(*self._padded([ids[row] for row in rows]))
        return vectors

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, cut to `max_length`."""
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            found = "a str" if isinstance(texts, str) else "not str throughout"
            raise TypeError(f"texts is {found}; expected a list of str, [text] for one text")
        encodings = self.tokenizer.encode_batch(list(texts))
        if cut := sum(bool(encoding.overflowing) for encoding in encodings):
            found = f"{cut:,} of {len(encodings):,} texts, cut: more than {self.max_length} tokens"
            warnings.warn(f"{found}, the rest of which is not read", stacklevel=3)
        return [encoding.ids for encoding in encodings]

    def _padded(self, ids: list[list[int]]) -> tuple[Int[Tensor, "batch time"], Int[Tensor, " batch"]]:
        """One batch on the model's device; padding is never read."""
        device = self.bert.embed.weight.device
        rows = [torch.tensor(row) for row in ids]
        padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return padded.to(device), torch.tensor([len(row) for row in ids], device=device)


class Found(NamedTuple):
    """A search result."""

    score: float  # cosine similarity to the query: 1 for the same direction
    place: int  # index in the searched texts
    text: str


class SemanticIndex:
    """Texts and their vectors, searched by meaning: `SemanticIndex(encoder, texts).nearest("a question")`.

    Raises ValueError when there are no texts.
    """

    def __init__(self, encoder: SentenceEncoder, texts: Sequence[str]):
        if not texts:
            raise ValueError("texts is empty; expected at least one to search")
        self.encoder, self.texts = encoder, tuple(texts)
        self.vectors = encoder.encode(texts)

    def nearest(self, query: str, count: int = 3) -> list[Found]:
        """The `count` texts most similar to the query, best first; all texts if there are fewer."""
        check_positive(count=count)
        scores = self.vectors @ self.encoder.encode([query])[0]
        best = scores.topk(min(count, len(self.texts)))
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [Found(score, place, self.texts[place]) for score, place in pairs]
