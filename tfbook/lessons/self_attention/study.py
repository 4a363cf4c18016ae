"""Study of lesson 03: shapes that must find their color, words that mean another one, and a layer's cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tfbook.attention.implementations import Implementation
from tfbook.attention.multi_head import MultiHeadAttention
from tfbook.course.cost import attend, convolve, count_flops, exponent, in_turns, recur
from tfbook.course.experiments import experiment
from tfbook.lessons.self_attention.answers import answer as answer
from tfbook.lessons.self_attention.claims import CLAIMS as CLAIMS
from tfbook.lessons.self_attention.depth import at_best_rates as at_best_rates, depth as depth
from tfbook.lessons.self_attention.layer import MultiHead as MultiHead, attention_weights as attention_weights
from tfbook.lessons.self_attention.words import (
    FIRST as FIRST,
    IT as IT,
    LEXICON as LEXICON,
    REASON as REASON,
    SECOND as SECOND,
    encode as encode,
    named_right as named_right,
    pronouns as pronouns,
    rules_of_thumb as rules_of_thumb,
)

# ---- shapes that must find their color -------------------------------------------------------------------------------

SHAPES = ("●", "▲", "■", "★")
GRAY = 0.5
NEAR = 0.25  # distance of RGB values from 0 to 1; the colors of a scene are farther apart
TEST = 10**6  # the seed of the test data


class Scenes(NamedTuple):
    """Scenes of eight tokens in random order: each of `SHAPES` once in its color and once in gray."""

    kinds: Int[Tensor, "scene token"]  # 0 to 3: the shape with its color; 4 to 7: the same shape in gray
    colors: Float[Tensor, "scene token rgb"]  # what is seen
    target: Float[Tensor, "scene token number"]  # to be painted: the inside, then the rim if there is one
    palette: Float[Tensor, "scene shape rgb"]  # the color of each shape

    def names(self, scene: int = 0) -> list[str]:
        """The tokens of a scene, such as "▲" and, for the gray one, "▲?"."""
        return [SHAPES[kind % 4] + "?" * (kind >= 4) for kind in self.kinds[scene].tolist()]


def twins(count: int, seed: int) -> Scenes:
    """Scenes in which every token should be painted in the color of its shape."""
    return _scenes(count, seed, lambda shape: [shape])


def rims(count: int, seed: int) -> Scenes:
    """Scenes in which a shape also has a rim, in the color of the next shape in ● → ▲ → ■ → ★ → ●."""
    return _scenes(count, seed, lambda shape: [shape, (shape + 1) % 4])


def _scenes(count: int, seed: int, sources_of: Callable[[Tensor], list[Tensor]]) -> Scenes:
    generator = torch.Generator().manual_seed(seed)
    palette = _vivid(count, generator)
    kinds = torch.rand(count, 8, generator=generator).argsort(dim=1)
    parts = [_of_shapes(palette, source) for source in sources_of(kinds % 4)]
    return Scenes(kinds, _seen(palette, kinds), torch.cat(parts, dim=-1), palette)


def _of_shapes(palette: Tensor, shapes: Tensor) -> Float[Tensor, "scene token rgb"]:
    """The color of each token's shape."""
    return palette.gather(1, shapes[..., None].expand(-1, -1, 3))


def _seen(palette: Tensor, kinds: Tensor) -> Float[Tensor, "scene token rgb"]:
    """The visible color of each token: its shape's color, or gray."""
    return _of_shapes(palette, kinds % 4).masked_fill((kinds >= 4)[..., None], GRAY)


def _vivid(count: int, generator: torch.Generator) -> Float[Tensor, "scene shape rgb"]:
    """Four equally bright colors in random order, with hues at least 30° apart."""
    gaps = torch.rand(count, 4, generator=generator).sort(dim=1).values * 240 + 30 * torch.arange(4)
    hues = gaps + 360 * torch.rand(count, 1, generator=generator)
    hues = hues.gather(1, torch.rand(count, 4, generator=generator).argsort(dim=1))
    k = (torch.tensor([5.0, 3.0, 1.0]) + hues[..., None] / 60) % 6  # from hue to RGB
    return 0.95 - 0.71 * torch.minimum(k, 4 - k).clamp(0, 1)


def is_right(scenes: Scenes, painting: Float[Tensor, "scene token number"]) -> Bool[Tensor, "scene token part"]:
    """Whether each painted part is within `NEAR` of the right color."""
    return (painting - scenes.target).unflatten(-1, (-1, 3)).norm(dim=-1) < NEAR


def exchange(scenes: Scenes, one: str, other: str) -> Scenes:
    """The same scenes with the colors of two shapes exchanged, inside only."""
    order = torch.arange(4)
    order[[SHAPES.index(one), SHAPES.index(other)]] = torch.tensor([SHAPES.index(other), SHAPES.index(one)])
    palette = scenes.palette[:, order]
    return Scenes(scenes.kinds, _seen(palette, scenes.kinds), _of_shapes(palette, scenes.kinds % 4), palette)


@torch.no_grad()
def painted_right(model: Callable[[Tensor, Tensor], Tensor], draw: Callable[[int, int], Scenes]) -> float:
    """The share of parts of gray shapes painted in the right color, over 500 new scenes."""
    scenes = draw(500, TEST)
    return float(is_right(scenes, model(scenes.kinds, scenes.colors))[scenes.kinds >= 4].float().mean())


def judge(models: Mapping[str, Sequence[nn.Module]], draw: Callable[[int, int], Scenes]) -> dict[str, list[float]]:
    """The value of `painted_right` for each run of each model."""
    return {name: [painted_right(model, draw) for model in runs] for name, runs in models.items()}


# ---- a word that is a noun or a verb ---------------------------------------------------------------------------------

TAGS = ("article", "adjective", "adverb", "pronoun", "noun", "verb")
WORDS = {
    "article": ("a", "the", "this", "her"),
    "adjective": ("long", "short", "new", "good"),
    "adverb": ("often", "never", "always", "rarely"),
    "pronoun": ("we", "they", "you", "I"),
    "verb": ("ends", "begins", "helps", "matters"),
    "either": ("run", "walk", "play", "talk", "dream", "swim"),  # nouns after an article, verbs after a pronoun
}
EITHER = WORDS["either"]
VOCABULARY = [word for words in WORDS.values() for word in words]
FORMS = {"noun": ("article", "adjective", "either", "verb"), "verb": ("pronoun", "adverb", "adverb", "either")}


class Tagged(NamedTuple):
    """Sentences of four words, one of which can be a noun or a verb and is a noun in half of them."""

    ids: Int[Tensor, "sentence word"]
    tags: Int[Tensor, "sentence word"]  # indices into TAGS

    @property
    def either(self) -> Tensor:
        """True at the words that can be either."""
        return self.ids >= len(VOCABULARY) - len(EITHER)


def sentences(count: int, seed: int) -> Tagged:
    """`count` sentences such as "the long run ends" and as many such as "we never often run"."""
    generator = torch.Generator().manual_seed(seed)
    ids, tags = [], []
    for tag, form in FORMS.items():
        starts = torch.tensor([VOCABULARY.index(WORDS[kind][0]) for kind in form])
        sizes = torch.tensor([len(WORDS[kind]) for kind in form])
        ids.append(starts + (torch.rand(count, 4, generator=generator) * sizes).long())
        tags.append(torch.tensor([TAGS.index(tag if kind == "either" else kind) for kind in form]).expand(count, 4))
    return Tagged(torch.cat(ids), torch.cat(tags))


@torch.no_grad()
def tagged_right(model: nn.Module) -> float:
    """The share of right tags on the ambiguous words, in 500 sentences with nouns and 500 with verbs."""
    tagged = sentences(500, TEST)
    right = model(tagged.ids).argmax(dim=-1) == tagged.tags
    return float(right[tagged.either].float().mean())


# ---- what it costs ---------------------------------------------------------------------------------------------------


COUNTED = {"self-attention": attend, "recurrent": recur, "convolution": convolve}


def attention_layer(n: int, d: int, implementation: Implementation | None = None) -> Callable[[], Tensor]:
    """A whole self-attention layer with one head, projections included; old PyTorch does not count fused operations."""
    layer, x = MultiHeadAttention(d, 1, implementation=implementation), torch.randn(1, n, d)
    return lambda: layer(x)


def recurrent_layer(n: int, d: int) -> Callable[[], Tensor]:
    """PyTorch's recurrent layer, whose loop over time is compiled."""
    layer, x = nn.RNN(d, d, batch_first=True), torch.randn(1, n, d)
    return lambda: layer(x)[0]


TIMED = {"self-attention": attention_layer, "recurrent": recurrent_layer, "convolution": convolve}


@torch.no_grad()
def operations(lengths: Sequence[int], d: int = 64) -> dict[str, list[int]]:
    """Floating-point operations of each of `COUNTED` by length, at width `d`."""
    return {name: [count_flops(layer(n, d)) for n in lengths] for name, layer in COUNTED.items()}


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
    """Seconds of each of `TIMED` by length: the median over `rounds`, in which the layers take turns."""
    runs = {(name, n): layer(n, d) for n in lengths for name, layer in TIMED.items()}
    times = in_turns(runs, rounds)
    return {name: [median(times[name, n]) for n in lengths] for name in TIMED}


@experiment
def times(lengths: Sequence[int] = (64, 128, 256, 512, 1024), d: int = 64, rounds: int = 100) -> list[dict[str, Any]]:
    """The measurement of `seconds`. Run it with OMP_NUM_THREADS=1: other processes disturb a single thread least."""
    measured = seconds(lengths, d, rounds)
    return [
        {"layer": name, "tokens": n, "seconds": taken}
        for name in measured
        for n, taken in zip(lengths, measured[name], strict=True)
    ]


def by_length(rows: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> dict[str, list[float]]:
    """Rows of `times` in the format of `seconds`."""
    found = {(row["layer"], row["tokens"]): row["seconds"] for row in rows}
    return {name: [found[name, n] for n in lengths] for name in TIMED}
