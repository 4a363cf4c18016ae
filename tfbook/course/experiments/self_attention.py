"""What self-attention can do that a word alone cannot, what a second head adds, and what it all costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import runtime, training
from tfbook.attention.implementations import Implementation
from tfbook.attention.masks import Band, Lengths
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.course.experiments.cost import attend, convolve, count_flops, exponent, in_turns, recur
from tfbook.text.vocabulary import PAD, Vocabulary

# ---- words that are nouns or verbs -------------------------------------------------------------------------------

TAGS = ("article", "adjective", "adverb", "pronoun", "noun", "verb")
WORDS = {
    "article": ("a", "the", "this", "her"),
    "adjective": ("long", "short", "new", "good"),
    "adverb": ("often", "never", "always", "rarely"),
    "pronoun": ("we", "they", "you", "I"),
    "noun": ("park", "morning", "garden", "evening"),
    "verb": ("ends", "begins", "helps", "matters"),
}
EITHER = ("run", "walk", "play", "talk", "dream", "swim")  # nouns after an article, verbs after a pronoun


class Tagged(NamedTuple):
    """A sentence and the part of speech of each word, as an index into `TAGS`."""

    words: tuple[str, ...]
    tags: tuple[int, ...]


def sentences(count: int, seed: int) -> list[Tagged]:
    """Sentences such as "the long run ends" and "we often run", each with one word of `EITHER`, half of them verbs."""
    generator = np.random.default_rng(seed)

    def word(tag: str) -> str:
        return EITHER[generator.integers(len(EITHER))] if tag.endswith("?") else str(generator.choice(WORDS[tag]))

    forms = [
        ["article", "noun?", "verb"],
        ["article", "adjective", "noun?", "verb"],
        ["article", "adjective", "adjective", "noun?", "verb"],
        ["pronoun", "verb?"],
        ["pronoun", "adverb", "verb?"],
        ["pronoun", "adverb", "adverb", "verb?"],
    ]
    drawn = (forms[generator.integers(len(forms))] for _ in range(count))
    return [Tagged(tuple(map(word, tags)), tuple(TAGS.index(tag.rstrip("?")) for tag in tags)) for tags in drawn]


@dataclass(frozen=True)
class TaggedBatch:
    """Sentences as ids, padded; tags of padding are −100, which the loss leaves out."""

    ids: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    tags: Int[Tensor, "batch time"]

    @classmethod
    def of(cls, tagged: Sequence[Tagged], vocabulary: Vocabulary) -> TaggedBatch:
        """The sentences in their order."""
        rows = [torch.tensor(vocabulary.encode(sentence.words)) for sentence in tagged]
        tags = [torch.tensor(sentence.tags) for sentence in tagged]
        pad = nn.utils.rnn.pad_sequence
        lengths = torch.tensor([len(row) for row in rows])
        return cls(
            pad(rows, batch_first=True, padding_value=PAD), lengths, pad(tags, batch_first=True, padding_value=-100)
        )

    def to(self, device: torch.device | str) -> TaggedBatch:
        """The same batch on another device."""
        return TaggedBatch(*(tensor.to(device) for tensor in vars(self).values()))


class WordTagger(nn.Module):
    """Logits of the tags of each word from its embedding, with self-attention added to it where there are heads."""

    def __init__(self, vocabulary: int, *, d_model: int = 32, heads: int = 0):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, d_model, padding_idx=PAD)
        self.attention = MultiHeadAttention(d_model, heads) if heads else None
        self.tag = nn.Linear(d_model, len(TAGS))

    def forward(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time tag"]:
        """Each word alone, or each word and what it attends to."""
        x = self.embed(ids)
        if self.attention is not None:
            x = x + self.attention(x, mask=Lengths(lengths))
        return self.tag(x)


def tagging_loss(model: WordTagger, batch: TaggedBatch) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats per word, padding left out."""
    return F.cross_entropy(model(batch.ids, batch.lengths).flatten(0, 1).float(), batch.tags.flatten())


@torch.inference_mode()
def accuracy(model: WordTagger, tagged: Sequence[Tagged], vocabulary: Vocabulary, words: Sequence[str] = ()) -> float:
    """Share of right tags among all words, or among `words`."""
    batch = TaggedBatch.of(tagged, vocabulary).to(runtime.device())
    counted = batch.tags >= 0
    if words:
        counted &= torch.isin(batch.ids, torch.tensor(vocabulary.encode(words), device=batch.ids.device))
    right = model(batch.ids, batch.lengths).argmax(dim=-1) == batch.tags
    return float(right[counted].float().mean())


# ---- two relations at once ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Party:
    """Parties of `people` guests: each has a name and a gift (a vector), follows one of the others and avoids a second.

    What a guest ends up with is the gift of whom it follows minus the gift of whom it avoids.
    """

    guests: Float[Tensor, "batch person feature"]  # one-hot name, one-hot of the followed, of the avoided; the gift
    follows: Int[Tensor, "batch person"]  # positions
    avoids: Int[Tensor, "batch person"]
    outcome: Float[Tensor, "batch person gift"]

    @classmethod
    def draw(cls, count: int, seed: int, *, people: int = 12, gift: int = 4) -> Party:
        """`count` parties; the guests come in a random order."""
        if people < 3:
            raise ValueError(f"people is {people}; expected 3 or more, so that each can follow one and avoid another")
        generator = torch.Generator().manual_seed(seed)
        names = torch.rand(count, people, generator=generator).argsort(dim=1)
        itself_last = torch.rand(count, people, people, generator=generator) + 2 * torch.eye(people)
        follows, avoids = itself_last.argsort(dim=-1)[..., :2].unbind(dim=-1)  # two others
        gifts = torch.randn(count, people, gift, generator=generator)

        def one_hot(index: Tensor) -> Tensor:
            return F.one_hot(index, people).float()

        def of(values: Tensor, index: Tensor) -> Tensor:
            return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))

        named = [one_hot(names.gather(1, index)) for index in (follows, avoids)]
        guests = torch.cat([one_hot(names), *named, gifts], dim=-1)
        return cls(guests, follows, avoids, of(gifts, follows) - of(gifts, avoids))

    def to(self, device: torch.device | str) -> Party:
        """The same parties on another device."""
        return Party(*(tensor.to(device) for tensor in vars(self).values()))


class Guests(nn.Module):
    """One layer of self-attention between two linear maps: what it cannot fetch by attention it does not have."""

    def __init__(self, *, heads: int, people: int = 12, gift: int = 4, d_model: int = 48):
        super().__init__()
        self.enter = nn.Linear(3 * people + gift, d_model)
        self.attention = MultiHeadAttention(d_model, heads)
        self.leave = nn.Linear(d_model, gift)

    def forward(self, guests: Float[Tensor, "batch person feature"]) -> Float[Tensor, "batch person gift"]:
        """The outcome that the model expects for each guest."""
        return self.leave(self.attention(self.enter(guests)))


def party_loss(model: Guests, party: Party) -> Float[Tensor, ""]:
    """Mean squared error."""
    return F.mse_loss(model(party.guests).float(), party.outcome)


def heads_learn(heads: int, seed: int, *, steps: int = 500, d_model: int = 48) -> tuple[Guests, training.History]:
    """Trains `Guests` with that many heads; all have the same number of parameters."""
    torch.manual_seed(seed)
    model = Guests(heads=heads, d_model=d_model).to(runtime.device())
    schedule = training.warmup_cosine(50)
    recipe = training.Recipe(steps=steps, lr=1e-2, schedule=schedule, mixed_precision=False)
    return model, training.fit(model, party_loss, lambda step: Party.draw(64, seed=1000 * seed + step), recipe)


@torch.inference_mode()
def explained(model: Guests, *, seed: int = 0) -> float:
    """R²: the share of the outcome's variance on new parties that the model explains."""
    party = Party.draw(256, seed=10**6 + seed).to(runtime.device())
    return 1 - float(party_loss(model, party) / party.outcome.var(correction=0))


# ---- what it costs -----------------------------------------------------------------------------------------------


COUNTED = {"self-attention": attend, "recurrent": recur, "convolution": convolve}


def attention_layer(n: int, d: int, implementation: Implementation | None = None) -> Callable[[], Tensor]:
    """A whole layer of self-attention with one head, projections included; older PyTorch counts no fused operations."""
    layer, x = MultiHeadAttention(d, 1, implementation=implementation), torch.randn(1, n, d)
    return lambda: layer(x)


def recurrent_layer(n: int, d: int) -> Callable[[], Tensor]:
    """PyTorch's recurrent layer, whose loop over time is compiled."""
    layer, x = nn.RNN(d, d, batch_first=True), torch.randn(1, n, d)
    return lambda: layer(x)[0]


TIMED = {"self-attention": attention_layer, "recurrent": recurrent_layer, "convolution": convolve}


@torch.no_grad()
def cost_exponents(sizes: Sequence[int] = (64, 128, 256, 512), fixed: int = 64) -> dict[str, tuple[float, float]]:
    """Exponents of the operations in n (at width `fixed`) and in d (at length `fixed`): name → (in n, in d)."""
    return {
        name: (
            exponent(sizes, [count_flops(layer(n, fixed)) for n in sizes]),
            exponent(sizes, [count_flops(layer(fixed, d)) for d in sizes]),
        )
        for name, layer in COUNTED.items()
    }


@torch.no_grad()
def seconds(lengths: Sequence[int], d: int = 64, rounds: int = 5) -> dict[str, list[float]]:
    """Seconds of each of `TIMED` by length: median over `rounds`, in which the layers take turns."""
    runs = {(name, n): layer(n, d) for n in lengths for name, layer in TIMED.items()}
    times = in_turns(runs, rounds)
    return {name: [median(times[name, n]) for n in lengths] for name in TIMED}


def layers_until_seen(n: int, window: int | None) -> int:
    """Layers of attention to `window` neighbors on each side (None: to all) until the last position sees the first."""
    if window == 0 and n > 1:
        raise ValueError("window is 0; expected 1 or more, or nothing is ever handed on")
    reach = torch.eye(n, dtype=torch.bool)
    allowed = torch.ones(n, n, dtype=torch.bool) if window is None else Band(window, window).dense(n, n)
    layers = 0
    while not reach[-1, 0]:
        reach = (allowed.float() @ reach.float()) > 0
        layers += 1
    return layers
