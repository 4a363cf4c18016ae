"""Study of lesson 15: a book to search, the online softmax, layouts, random features, and hashing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention.efficient.lsh import Lsh
from tfbook.attention.efficient.performer import Performer, log_features, projection
from tfbook.attention.implementations import attention_weights, softmax
from tfbook.attention.masks import Causal
from tfbook.course.cost import peak_memory
from tfbook.data.stories import story
from tfbook.lessons.efficient_attention.answers import answer as answer
from tfbook.lessons.efficient_attention.claims import CLAIMS as CLAIMS
from tfbook.lessons.efficient_attention.costs import (
    ROUNDS,
    cost_exponents as cost_exponents,
    time_ratios as time_ratios,
    time_shares as time_shares,
)
from tfbook.lessons.efficient_attention.facts import (
    ALSO_TRAINED as ALSO_TRAINED,
    BEYOND as BEYOND,
    VALUES as VALUES,
    by_distance as by_distance,
    far_answers as far_answers,
)

# ---- a secret in a book ----------------------------------------------------------------------------------------------

CONTEXT = 8  # characters that identify a position in a text
D_HEAD = 64
EMPTY = "·"  # the answer for a row of zeros
SHARPNESS = 8.0  # q · k / √d of two vectors with the same direction, one of them of length 1


@dataclass(frozen=True)
class Book:
    """A text of n characters that ends with the secret, which also occurs much earlier in it.

    Row x[i] is the query and the key of position i: a random direction for the last `CONTEXT` characters, the same
    wherever the same characters occur. Row v[i] is the next character, one-hot, or all zeros in the question at the
    end.
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
        """The likeliest next character at each asked position, and "·" where the output is all zeros."""
        rows = output.reshape(len(self.x), -1)[self.asked]
        return "".join(self.alphabet[int(row.argmax())] if row.any() else EMPTY for row in rows)

    def found(self, output: Float[Tensor, "*one n character"]) -> float:
        """Share of characters that are right."""
        pairs = list(zip(self.read(output), self.answer, strict=True))
        return sum(one == other for one, other in pairs) / len(pairs)


def hide(secret: str, n: int = 16384, place: int = 1000, *, d_head: int = D_HEAD) -> Book:
    """A book of stories with the secret at `place` and again at the end; queries and keys have `d_head` numbers.

    Raises ValueError for a secret of fewer than 24 characters, or of more than 100 or a quarter of the book.
    """
    secret = " ".join(secret.split())
    if not 24 <= len(secret) <= min(100, n // 4):
        raise ValueError(f"secret has {len(secret)} characters; expected 24 to {min(100, n // 4)}")
    stories = ""
    for seed in count():
        if len(stories) >= n:
            break
        stories += story(seed).text + " "
    place = min(place, n // 4)
    book = stories[:place] + f" {secret} " + stories[place:]
    text = book[: n - len(secret)] + secret + " "  # one more character than positions: the target of the last one
    alphabet = "".join(sorted(set(text)))
    asked = slice(n - len(secret) + CONTEXT - 1, n - 1)
    return Book(text, alphabet, asked, *_vectors(text, alphabet, n - len(secret), d_head))


def _vectors(text: str, alphabet: str, question: int, d_head: int) -> tuple[Tensor, Tensor]:
    n, known = len(text) - 1, dict[str, int]()
    indices = [known.setdefault(text[max(0, i + 1 - CONTEXT) : i + 1], len(known)) for i in range(n)]
    directions = torch.randn(len(known), d_head, generator=torch.Generator().manual_seed(0))
    following = F.one_hot(torch.tensor([alphabet.index(c) for c in text[1:]]), len(alphabet)).float()
    following[question:] = 0
    return SHARPNESS * d_head**0.5 * F.normalize(directions, dim=-1)[indices], following


def megabytes(attend: Callable[[Tensor, Tensor, Tensor], Tensor], book: Book) -> float:
    """Peak memory of the tensors while attention reads the book, in millions of bytes."""
    return peak_memory(partial(attend, book.x, book.x, book.v)) / 1e6


# ---- the online softmax ----------------------------------------------------------------------------------------------

State = tuple[Tensor, Tensor, Tensor]  # of the online softmax: maximum, sum of weights, weighted sum of values


def tile_step(state: State, Q: Tensor, K: Tensor, V: Tensor, seen: Bool[Tensor, "query key"]) -> State:
    """The state of a block of queries after one more tile of keys, of which each query may see some or none."""
    m, total, mixture = state
    scores = (Q @ K.T / math.sqrt(Q.shape[-1])).masked_fill(~seen, -torch.inf)
    m_new = m.maximum(scores.amax(dim=-1, keepdim=True))
    c, weights = (torch.exp(x - m_new).nan_to_num() for x in (m, scores))  # −∞ − (−∞) where nothing was seen
    return m_new, c * total + weights.sum(dim=-1, keepdim=True), c * mixture + weights @ V


def merge(one: State, other: State) -> State:
    """The online softmax's state for all keys, from the states of two machines that have read some each."""
    higher = one[0].maximum(other[0])
    first, second = torch.exp(one[0] - higher), torch.exp(other[0] - higher)
    return higher, first * one[1] + second * other[1], first * one[2] + second * other[2]


def two_machines(book: Book, merge: Callable[[State, State], State]) -> Float[Tensor, "n character"]:
    """Attention of the asked positions to both halves of the book, merged; zeros elsewhere."""
    states, half = [], len(book.x) // 2
    for keys in (slice(0, half), slice(half, None)):
        scores = book.x[book.asked] @ book.x[keys].T / math.sqrt(book.x.shape[1])
        highest = scores.amax(dim=-1, keepdim=True)
        weights = torch.exp(scores - highest)
        states.append((highest, weights.sum(dim=-1, keepdim=True), weights @ book.v[keys]))
    _, total, mixture = merge(*states)
    output = torch.zeros_like(book.v)
    output[book.asked] = mixture / total
    return output


# ---- patterns --------------------------------------------------------------------------------------------------------


def layers_until_met(layout: Bool[Tensor, "block block"]) -> int:
    """Number of layers until every block has read all others that it can ever reach through others."""
    reach, layers = layout.float(), 1
    while True:
        further = ((layout.float() @ reach) > 0).float()
        if torch.equal(further, reach):
            return layers
        reach, layers = further, layers + 1


# ---- random features -------------------------------------------------------------------------------------------------


class Errors(NamedTuple):
    """Errors of random features over many draws: root mean squares over all entries."""

    product: float  # φ(q) · φ(k) against exp(q · k / √d)
    off: float  # the mean product against the same, in standard errors: about 1 without bias
    output: float  # the normalized output against the softmax's
    bias: float  # the mean output against the same
    chance: float  # the `bias` to expect by chance, from the spread of the draws
    mean: float  # the values' plain mean against the same: no attention at all


def estimates(q: Tensor, k: Tensor, features: int, draws: int) -> Float[Tensor, "draw query key"]:
    """φ(q) · φ(k) for each draw of the directions; q is (query, d_head), k is (key, d_head)."""
    found = []
    for seed in range(draws):
        directions = projection(features, q.shape[-1], torch.Generator().manual_seed(seed)).to(q)
        found.append(log_features(q, directions).exp() @ log_features(k, directions).exp().mT)
    return torch.stack(found)


def performer_errors(features: int, draws: int = 400, *, n: int = 16, d: int = 8, size: float = 0.4) -> Errors:
    """Errors of `Performer(features)` on n queries and keys whose entries have standard deviation `size`."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, n, d, dtype=torch.float64, generator=generator)
    q, k = size * q, size * k
    products, exact = estimates(q, k, features, draws), (q @ k.mT / math.sqrt(d)).exp()
    shaped = [x[None, None] for x in (q, k, v)]
    expected = softmax(*shaped)
    outputs = torch.stack([Performer(features, seed=seed)(*shaped) for seed in range(draws)])
    error = products.std(dim=0) / math.sqrt(draws)
    return Errors(
        product=_rms(products - exact),
        off=_rms((products.mean(dim=0) - exact) / error),
        output=_rms(outputs - expected),
        bias=_rms(outputs.mean(dim=0) - expected),
        chance=_rms(outputs.std(dim=0) / math.sqrt(draws)),
        mean=_rms(v.mean(dim=0) - expected),
    )


def _rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


# ---- hashing ---------------------------------------------------------------------------------------------------------


def clustered(n: int, noise: float, *, d: int = 32, kinds: int = 32, seed: int = 0) -> Float[Tensor, "1 1 n d"]:
    """n vectors of one head around `kinds` directions, each with normal noise of standard deviation `noise`.

    Their length makes q · k / √d equal to 8 for a vector and itself divided by its length: a sharp softmax.
    """
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(kinds, d, generator=generator)
    x = centers[torch.randint(kinds, (n,), generator=generator)] + noise * torch.randn(n, d, generator=generator)
    return 8 * math.sqrt(d) * F.normalize(x, dim=-1)[None, None]


class Recall(NamedTuple):
    """How much of dense attention hashing finds."""

    top: float  # share of each query's largest weights whose keys it meets
    weight: float  # share of the total weight on keys that it meets
    pairs: float  # share of all allowed pairs that meet: the recall of as many random keys


@torch.no_grad()
def recall(implementation: Lsh, x: Float[Tensor, "1 1 n d"], top: int = 8) -> Recall:
    """Recall for causal attention of x to x, where keys are x divided by its norm and no query reads its own key."""
    n = x.shape[2]
    others = torch.ones(n, n, dtype=torch.bool).tril(-1)
    met = implementation.mask(x, x, Causal()).dense(n, n)[0, 0] & others
    weights = torch.where(others, attention_weights(x, F.normalize(x, dim=-1), Causal())[0, 0], 0.0)
    late = torch.arange(n) >= top  # queries with at least `top` keys
    best = weights[late].topk(top, dim=-1).indices
    found = met[late].gather(1, best).float().mean()
    shares = (weights * met).sum(dim=-1)[1:] / weights.sum(dim=-1)[1:]
    return Recall(float(found), float(shares.mean()), float(met.sum() / others.sum()))


def recalls(x: Float[Tensor, "1 1 n d"]) -> list[Recall]:
    """The recall of 32 buckets and a window of 64, for each of `ROUNDS`."""
    return [recall(Lsh(buckets=32, window=64, rounds=rounds), x) for rounds in ROUNDS]
