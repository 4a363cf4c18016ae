"""A secret hidden in a long text, for one head of attention to find: no weights are learned."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.data.stories import story

CONTEXT = 8  # characters that say where in a text one is
D_HEAD = 64
EMPTY = "·"  # the answer of a row of zeros
SHARPNESS = 8.0  # q · k / √d of a vector with another of its direction, divided by its length


@dataclass(frozen=True)
class Book:
    """A text of n characters that ends with the secret, which also stands in it much earlier.

    The row x[i] is the query and the key of position i: a random direction for the last `CONTEXT` characters, the same
    wherever the same characters stand. The row v[i] is the next character, as a one in a row of zeros, and all
    zeros in the question, at the end.
    """

    text: str
    alphabet: str
    asked: slice
    x: Float[Tensor, "n d_head"]
    v: Float[Tensor, "n character"]

    @property
    def answer(self) -> str:
        """The characters that attention should find."""
        return self.text[self.asked.start + 1 : self.asked.stop + 1]

    def read(self, output: Float[Tensor, "*one n character"]) -> str:
        """The likeliest next character at each asked position, and "·" where the output is a row of zeros."""
        rows = output.reshape(len(self.x), -1)[self.asked]
        return "".join(self.alphabet[int(row.argmax())] if row.any() else EMPTY for row in rows)

    def found(self, output: Float[Tensor, "*one n character"]) -> float:
        """The share of characters that are right."""
        pairs = list(zip(self.read(output), self.answer, strict=True))
        return sum(one == other for one, other in pairs) / len(pairs)


def hide(secret: str, n: int = 16384, place: int = 1000, *, d_head: int = D_HEAD) -> Book:
    """A book of stories with the secret at `place`, and once more at the end; queries and keys have `d_head` numbers.

    Raises ValueError for a secret of less than 24 characters, or more than 100 or a quarter of the book.
    """
    secret = " ".join(secret.split())
    if not 24 <= len(secret) <= min(100, n // 4):
        raise ValueError(f"the secret has {len(secret)} characters; expected 24 to {min(100, n // 4)}")
    stories = ""
    for seed in count():
        if len(stories) >= n:
            break
        stories += story(seed).text + " "
    place = min(place, n // 4)
    book = stories[:place] + f" {secret} " + stories[place:]
    text = book[: n - len(secret)] + secret + " "  # one character more than positions: the last one's next
    alphabet = "".join(sorted(set(text)))
    asked = slice(n - len(secret) + CONTEXT - 1, n - 1)
    return Book(text, alphabet, asked, *_vectors(text, alphabet, n - len(secret), d_head))


def _vectors(text: str, alphabet: str, question: int, d_head: int) -> tuple[Tensor, Tensor]:
    n, known = len(text) - 1, dict[str, int]()
    places = [known.setdefault(text[max(0, i + 1 - CONTEXT) : i + 1], len(known)) for i in range(n)]
    directions = torch.randn(len(known), d_head, generator=torch.Generator().manual_seed(0))
    following = F.one_hot(torch.tensor([alphabet.index(c) for c in text[1:]]), len(alphabet)).float()
    following[question:] = 0
    return SHARPNESS * d_head**0.5 * F.normalize(directions, dim=-1)[places], following
