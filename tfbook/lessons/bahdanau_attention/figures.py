"""Figures of lesson 01, each with its alt text: the bottleneck, attention, one of its steps, and the measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tfbook import plot
from tfbook.course.summaries import bands, unnest
from tfbook.plot.house import FAINT, SOFT
from tfbook.plot.schematic import Schematic
from tfbook.text.pairs import Pair
from tfbook.training import running_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    Picture = tuple[Figure, str]


# ---- schematics ------------------------------------------------------------------------------------------------------

VECTOR: dict[str, Any] = {"cell": (26.0, 14.0), "darkest": 1.0}
STATE: dict[str, Any] = VECTOR | {"cell": (46.0, 14.0)}  # of the decoder
PAST_CONTEXT = 18.0  # pixels: the arrow from the last word passes the narrower context

TITLES = {  # of the figures that answer predictions: a lesson's code does not give them away
    "length": "A fixed context loses quality with length",
    "long_sentences": "Attention loses little up to the lengths it was trained on",
    "changed_order": "Where two words change places, the map steps backward",
}


def bottleneck(source: Sequence[str], target: Sequence[str], width: int) -> Picture:
    """Encoder and decoder with only a fixed context of `width` numbers between them."""
    picture = Schematic("A fixed context: one vector carries the whole sentence", gap=(13, 34))
    states, values = _draw_encoder(picture, source)
    summary = torch.cat([values[-1, :2], values[0, 2:]])
    contexts, first = _draw_decoder(picture, len(source), target, summary.expand(len(target), -1))
    c = picture.matrix(summary[:, None], (len(source), 2), "value", label="$c$", beside="left", **VECTOR)
    picture.arrow(c, first, role="value")
    for end in (states[0], states[-1]):
        picture.arrow(end, c, role="value", sides=("bottom", "left"))
    for one, other in zip([c, *contexts], contexts, strict=False):
        picture.arrow(one, other, role="value")
    size = f"{width} numbers, for 5 words or for 50."
    note = f"$c$ joins the last state of each reader:\n{size}\nEvery step gets the same copy."
    picture.text(note, ((0, len(source) - 1), 3))
    alt = (
        f"{len(source)} source words feed as many encoder states, linked in both directions. The first and the last "
        f"state lead to one vector c. Copies of c feed {len(target)} decoder states, each of which also reads the last "
        "word and writes the next."
    )
    return picture.figure(), alt


def attention(source: Sequence[str], target: Sequence[str], weights: Tensor) -> Picture:
    """The same schematic with attention: `weights` (target, source) mix the context of each step."""
    picture = Schematic("Attention: every step mixes a context of its own", gap=(13, 34))
    states, values = _draw_encoder(picture, source)
    contexts, first = _draw_decoder(picture, len(source), target, weights @ values)
    columns = (0, len(source) - 1)
    grid = picture.matrix(weights, (columns, 2), "weight", cell=(67, 18), darkest=1.0, rows=target)
    for j, state in enumerate(states):
        picture.arrow(state, grid.column(j), role="key")
    picture.arrow(first, grid.row(0), "query", "query", sides=("bottom", "right"), label_side="right")
    picture.arrow(grid, picture.frame(contexts, pad=12), "mix", "value", sides=("right", "left"), label_side="bottom")
    picture.text("row $t$: how much each source word\ncounts at step $t$ (dark = a lot)", (columns, 3))
    picture.outline(grid.row(0))
    picture.outline(contexts[0])
    alt = (
        "The same encoder and decoder. All encoder states lead into a table of weights with a row for each target "
        "word. The rows mix different contexts, one for each decoder state. The first decoder state sends the query "
        "for the first row."
    )
    return picture.figure(), alt


def _draw_encoder(picture: Schematic, source: Sequence[str]) -> tuple[list[Any], Tensor]:
    """One state per word, connected in both directions; returns the nodes and their made-up values."""
    values = torch.rand(len(source), 4, generator=torch.Generator().manual_seed(3))
    states: list[Any] = []
    for j, word in enumerate(source):
        token = picture.box(word, (j, 0), "stream", width=54, size=9.5)
        states.append(picture.matrix(values[j][:, None], (j, 1), "key", **VECTOR))
        picture.arrow(token, states[-1], f"$h_{j + 1}$", "key")
        if j:
            picture.arrow(states[-2], states[-1], role="stream", lane=-8)
            picture.arrow(states[-1], states[-2], role="stream", lane=8)
    return states, values


def _draw_decoder(picture: Schematic, left: int, target: Sequence[str], contexts: Tensor) -> tuple[list[Any], Any]:
    """The states from column `left` on, and for each step the input word, its context and the output word."""
    values = torch.rand(len(target) + 1, 3, generator=torch.Generator().manual_seed(4))
    state = first = picture.matrix(values[0][:, None], (left, 1), "query", label="$s_0$", **STATE)
    drawn = []
    for t, (last, word) in enumerate(zip(["<bos>", *target], target, strict=False), start=1):
        before, state = state, picture.matrix(values[t][:, None], (left + t, 1), "query", **STATE)
        drawn.append(picture.matrix(contexts[t - 1][:, None], (left + t, 2), "value", **VECTOR))
        written = picture.box(word, (left + t, 0), "stream", width=54, size=9.5)
        read = picture.box(last, (left + t, 3), "stream", width=54, size=9.5)
        picture.arrow(before, state, role="query")
        picture.arrow(drawn[-1], state, role="value")
        picture.arrow(read, state, role="stream", lane=PAST_CONTEXT)
        picture.arrow(state, written, f"$s_{t}$", "query")
    return drawn, first


STEP_ROWS = (
    "source words",
    "encoder states",
    "add the query,\ntake tanh",
    "① score",
    "② softmax:\nweights",
    "③ mix the states",
)
WHOLE: dict[str, Any] = {"cell": (78.0, 20.0), "numbers": "{:.0f}", "darkest": 4.0}
PARTS: dict[str, Any] = {"numbers": "{:.2f}", "darkest": 1.4}


def one_step(words: Sequence[str], written: tuple[str, str], query: Tensor, states: Tensor, v: Tensor) -> Picture:
    """One step of additive attention with its numbers; the states (source, d) are both keys and values.

    `written` holds the previous word and the next one.
    """
    inner = torch.tanh(query + states)
    scores = inner @ v
    weights = torch.softmax(scores, dim=-1)
    picture = Schematic("One attention step: where to look for the next word?", gap=(30, 22))
    for row, text in enumerate(STEP_ROWS):
        picture.text(text, (0, row), align="left")
    sums = []
    for j, word in enumerate(words):
        column, first = j + 1, not j
        token = picture.box(word, (column, 0), "stream", width=78)
        state = picture.matrix(states[j][:, None], (column, 1), "key", **WHOLE)
        sums.append(picture.matrix(inner[j][:, None], (column, 2), "stream", cell=(48.0, 20.0), **PARTS))
        score = picture.bars([scores[j].item()], (column, 3), high=4.0)
        weight = picture.bars([weights[j].item()], (column, 4))
        share = picture.matrix((weights[j] * states[j])[:, None], (column, 5), "value", cell=(78.0, 20.0), **PARTS)
        picture.arrow(token, state, f"$h_{column}$", "key")
        picture.arrow(state, sums[-1], "key" * first, "key", label_side="left")
        picture.arrow(sums[-1], score, "$v$", "weight")
        picture.arrow(state, share, "value" * first, "value", lane=33, thickness=1, label_side="right")
        picture.arrow(weight, share, role="weight", thickness=0.8 + 5 * weights[j].item())
        picture.text("=" if j == len(words) - 1 else "+", (column + 0.5, 5), size=14)
    asked = _draw_decoder_step(picture, len(words) + 1, written, query, weights @ states)
    picture.arrow(asked, picture.frame(sums, pad=6), role="query")
    shown = [
        ", ".join(f"{number:.2f}" for number in numbers.tolist()) for numbers in (scores, weights, weights @ states)
    ]
    alt = (
        "Source words with their states. The query is added to each, tanh is taken, and the dot product with v gives "
        f"the scores {shown[0]}. Softmax makes them {shown[1]}. The states, times the weights, sum to the context "
        f"{shown[2]}, which enters the decoder's GRU together with the last word and its state."
    )
    return picture.figure(), alt


def _draw_decoder_step(
    picture: Schematic, column: int, written: tuple[str, str], query: Tensor, context: Tensor
) -> Any:
    """The decoder's side of one step, from `column` on; returns the node of the query."""
    asked = picture.matrix(query[:, None], (column, 2), "query", label="query $q$", **WHOLE)
    last = picture.box(written[0], (column, 3), "stream", note="previous word")
    mixed = picture.matrix(context[:, None], (column, 5), "value", label="$c_t$", cell=(78.0, 20.0), **PARTS)
    before = picture.box("$s_{t-1}$", (column + 1, 2), "query", note="decoder state")
    gru = picture.box("GRU", (column + 1, 5), note="decoder")
    after = picture.box("$s_t$", (column + 2, 5), "query", note="new state")
    word = picture.box(written[1], (column + 2, 4), "stream", note="next word")
    picture.arrow(before, asked, "$W$", "query")
    picture.arrow(before, gru, role="query")
    picture.arrow(last, gru, role="stream", sides=("right", "top"), lane=-18)
    picture.arrow(mixed, gru, role="value")
    picture.arrow(gru, after, role="query")
    picture.arrow(after, word, role="query")
    return asked


# ---- measurements ----------------------------------------------------------------------------------------------------


def bleu(curves: Mapping[str, Mapping[tuple[int, int], float]], title: str) -> Picture:
    """BLEU by sentence length for each model, with the lengths beyond training shaded."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    series = {name: ([sum(length) / 2 for length in found], list(found.values())) for name, found in curves.items()}
    _draw_by_length(axes, series, title, "longer than any training sentence")
    alt = "BLEU against the length of the source sentence. The fixed context falls from the shortest sentences on."
    if "attention" in curves:
        alt += " Attention stays high up to twenty words, falls beyond, and is far above at every length."
    return figure, alt


def _draw_by_length(axes: Any, series: Mapping[str, Any], title: str, beyond: str) -> None:
    """BLEU against sentence length, with the lengths `beyond` training shaded."""
    axes.axvspan(20.5, 50, color=FAINT, zorder=0)
    axes.text(21.2, 93, beyond, fontsize=9.5, color=SOFT)
    axes.set(xlim=(0, 50), ylim=(0, 102), xticks=range(0, 51, 10))
    plot.lines(axes, series, title=title, x="words in the source sentence", y="BLEU")


def losses(curves: Mapping[str, Sequence[float]]) -> Picture:
    """Training losses, averaged over 20 steps."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    smooth = {name: (range(len(values)), running_mean(values, 20)) for name, values in curves.items()}
    plot.lines(axes, smooth, title="Attention pulls ahead after about 100 steps", x="step", y="loss (nats per word)")
    axes.set_ylim(bottom=0)
    alt = (
        "Two loss curves that fall alike at first. Then the one with attention falls much faster and ends far lower, "
        "while the fixed context flattens out."
    )
    return figure, alt


def seeds(runs: DataFrame, points: DataFrame) -> Picture:
    """Runs with three seeds: BLEU by length after training, and validation BLEU against training time in seconds."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True)
    by_length = unnest(runs, "by_length", ["low", "high", "bleu", "exact"])
    by_length["words"] = (by_length["low"] + by_length["high"]) / 2
    _draw_by_length(
        left, bands(by_length, "decoder", "words", "bleu"), "One average for all words fails", "longer than in training"
    )
    curves = bands(points, "decoder", "seconds", "bleu", at="step")
    title = "Attention also leads after the same time"
    plot.lines(right, curves, title=title, x="seconds of training", y="validation BLEU")
    right.tick_params(labelleft=True)
    alt = (
        "Left: BLEU by length of the sentence. Attention stays level up to twenty words; the plain average of all "
        "states and the fixed context fall from the shortest sentences on. Right: validation BLEU against seconds. "
        "Attention is far above the fixed context except at the very beginning."
    )
    return figure, alt


def alignment(weights: Tensor, pair: Pair, title: str) -> Picture:
    """The weights of one sentence pair, with rings on its gold links."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.8, 5.6))
    plot.attention_map(axes, weights, pair.source, pair.target, gold=pair.sure, title=title)
    alt = (
        f"Attention weights for {' '.join(pair.source)}, which becomes {' '.join(pair.target)}. Each row has one or "
        "a few bright cells, near the diagonal except where words change places."
    )
    if pair.sure:
        hits = sum((weights[t].argmax().item(), t) in pair.sure for t in range(len(pair.target)))
        alt += f" Rings mark the gold links; in {hits} of {len(pair.target)} rows the brightest cell has one."
    return figure, alt


def gradient_curves(reach: Mapping[str, Tensor]) -> Picture:
    """The gradient that is left, by distance, on a logarithmic scale; values below 1e-9 are left out."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    axes.set_yscale("log")
    shown = {name: values[values > 1e-9].tolist() for name, values in reach.items()}
    series = {name: (range(len(values)), values) for name, values in shown.items()}
    title = "In untrained networks, attention keeps the gradient"
    plot.lines(axes, series, title=title, x="distance k (steps)", y="gradient, relative to k = 0")
    alt = (
        "Gradient against distance on a logarithmic scale. RNN and GRU fall along nearly straight lines by many orders "
        "of magnitude. Attention stays level over fifty steps."
    )
    return figure, alt


def recall(shares: Mapping[str, Tensor]) -> Picture:
    """The share of source words that are translated, by position in the sentence."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.4))
    parts = ["first fifth", "second", "middle", "fourth", "last fifth"]
    title = "A fixed context keeps a little of the beginning"
    series = {name: (range(len(parts)), values.tolist()) for name, values in shares.items()}
    plot.lines(axes, series, title=title, x="position in the sentence", y="share of words translated")
    axes.set(ylim=(0, 1), xticks=range(len(parts)), xticklabels=parts)
    alt = (
        "Share of words whose translation is written, in five parts of the sentence. The fixed context has some in the "
        "first part and few in all others. Attention has most of them everywhere."
    )
    return figure, alt
