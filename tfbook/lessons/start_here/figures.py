"""Figures of lesson 00: what the course builds, tables of letters, softmax, a training step, and the final scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tfbook.plot.attention import attention_map
from tfbook.plot.curves import label_ends
from tfbook.plot.house import COLORS, EDGE, FAINT, INK
from tfbook.plot.schematic import Schematic
from tfbook.plot.views.guessing import ALPHABET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_softmax(scores: Tensor) -> Schematic:
    """Scores (n,), their exponentials, and their softmax weights (n,), as bars."""
    exponentials = scores.exp()
    weights = exponentials / exponentials.sum()
    picture = Schematic("Softmax: exponentiate, then divide by the sum", gap=(60, 20))
    stages = [
        (scores, "stream", scores.max().item(), "{:.0f}", "s_{}"),
        (exponentials, "stream", exponentials.max().item(), "{:.2f}", "e^{{s_{}}}"),
        (weights, "weight", weights.max().item(), "{:.2f}", "p_{}"),
    ]
    bars = []
    for column, (values, role, high, numbers, letter) in enumerate(stages):
        names = [f"${letter.format(number)}$" for number in range(1, len(values) + 1)]
        look: dict[str, Any] = {"high": high, "height": 120, "numbers": numbers, "names": names}
        bars.append(picture.bars(values.tolist(), (column, 0), role, **look))
    for column, text in enumerate(["scores: any numbers", f"sum: {exponentials.sum():.2f}", "weights: they sum to 1"]):
        picture.text(text, (column, 1))
    picture.arrow(bars[0], bars[1], "$e^s$")
    picture.arrow(bars[1], bars[2], "÷ sum", "weight")
    return picture


def draw_broadcast(table: Tensor) -> Schematic:
    """A 3 × 3 table divided by its row sums, without and with `keepdim`."""
    picture = Schematic("The same sums, lined up in two ways", gap=(22, 40))
    sums = table.sum(dim=1)
    _draw_division(picture, 0, "without\nkeepdim", table, sums[None])
    _draw_division(picture, 1, "with\nkeepdim=True", table, sums[:, None])
    return picture


def _draw_division(picture: Schematic, row: int, title: str, table: Tensor, divisor: Tensor) -> None:
    """`table` ÷ `divisor`, a row or a column, = result, with the fate of the first row outlined."""
    look: dict[str, Any] = {"cell": 34, "numbers": "{:.0f}"}
    shape = "(3,): repeated downward" if len(divisor) == 1 else "(3, 1): repeated across"
    picture.text(title, (0, row), size=10.5, weight="bold")
    counts = picture.matrix(table, (1, row), label="counts", shape="(3, 3)", **look)
    picture.text("÷", (2, row), size=14)
    repeated, given = divisor.expand(3, 3), torch.ones_like(divisor, dtype=torch.bool)
    given = torch.nn.functional.pad(given, (0, 3 - divisor.shape[1], 0, 3 - divisor.shape[0]))
    sums = picture.matrix(repeated, (3, row), "parameter", label="row sums", shape=shape, allowed=given, **look)
    picture.text("=", (4, row), size=14)
    result = picture.matrix(table / divisor, (5, row), "weight", label="result", cell=(46.0, 34.0), numbers="{:.2f}")
    picture.outline(counts.row(0), sums.row(0), result.row(0))
    picture.text(f"this row\nsums to {(table / divisor)[0].sum():.2f}", (6, row))


def draw_backward(x: float, w: float, v: Sequence[float], target: int) -> Schematic:
    """A network of one hidden unit: its numbers along the top, and the gradient of the loss with respect to each below.

    Logits are v · relu(w x). Above zero only, where relu changes nothing.
    """
    h = w * x
    logits = h * torch.tensor(v)
    p = torch.softmax(logits, dim=0)
    back = p - torch.nn.functional.one_hot(torch.tensor(target), len(v))
    h_back = (torch.tensor(v) * back).sum()
    picture = Schematic("Forward along the top, back along the bottom", gap=(74, 46))
    forward = [
        picture.box(f"x = {x:g}", (0, 0), "stream", note="input"),
        picture.box(f"h = {h:g}", (1, 0), "stream", note="relu(w x)"),
        picture.box(f"s = {_numbers(logits, 0)}", (2, 0), "stream", note="logits v h"),
        picture.box(f"loss = {-p[target].log():.2f}", (3, 0), "weight", note=f"−ln p of class {target + 1}"),
    ]
    s_back = picture.box(_numbers(back), (2, 1), "weight", note="∂ loss / ∂s = p − y")
    unit_back = picture.box(f"{h_back:.2f}", (1, 1), "weight", note="∂ loss / ∂h")
    w_back = picture.box(f"{x * h_back:.2f}", (0, 1), "parameter", note="∂ loss / ∂w")
    v_back = picture.box(_numbers(h * back), (2, 2), "parameter", note="∂ loss / ∂v")
    for start, end, label in zip(
        forward, forward[1:], (f"w = {w:g}", f"v = ({', '.join(f'{each:g}' for each in v)})", "softmax"), strict=False
    ):
        picture.arrow(start, end, label)
    picture.arrow(forward[3], s_back, "", "weight", sides=("bottom", "right"))
    picture.arrow(s_back, unit_back, "× v, added up", "weight")
    picture.arrow(unit_back, w_back, "× x", "weight")
    picture.arrow(s_back, v_back, "× h", "weight")
    return picture


def _numbers(row: Tensor, places: int = 2) -> str:
    return f"({', '.join(f'{each:.{places}f}'.replace('-', '−') for each in row.tolist())})"


def draw_training_step() -> Schematic:
    """One training step: forward along the top, the gradient back below."""
    picture = Schematic("One training step", gap=(40, 50))
    batch = picture.box("batch", (0, 0), "stream", note="inputs and targets")
    model = picture.box("model", (1, 0), "parameter", note="with parameters θ")
    logits = picture.box("logits", (2, 0), "stream", note="one score per class")
    loss = picture.box("loss", (3, 0), "weight", note="−ln p of the target")
    gradient = picture.box("gradient", (3, 1), "weight", note="∂ loss / ∂θ")
    step = picture.box("θ ← θ − lr · gradient", (1, 1), "parameter", note="the optimizer's step")
    picture.arrow(batch, model)
    picture.arrow(model, logits)
    picture.arrow(logits, loss, "softmax")
    picture.arrow(batch, loss, "targets", sides=("top", "top"))
    picture.arrow(loss, gradient, "zero_grad(), then\nloss.backward()", "weight")
    picture.arrow(gradient, step, "step()", "parameter")
    picture.arrow(step, model, "next step", "parameter")
    return picture


def draw_translation(translation: Mapping[str, Any]) -> Figure:
    """Where a translator looked, a row for each word that it wrote; rings mark the words that belong together."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.6, 5.2))
    source, target = ([*translation[side]] for side in ("source", "target"))
    weights = torch.tensor(translation["weights"])[: len(target), : len(source)]
    links = frozenset((i, j) for i, j in translation["links"])
    attention_map(axes, weights, source, target, title="Where lesson 01's model looked", gold=links)
    axes.set(xlabel="the English sentence", ylabel="French words, as it wrote them")
    return figure


def draw_table(table: Tensor, counts: Tensor, names: Sequence[str]) -> Figure:
    """Probabilities (letter, next) as a grid whose colors follow their square roots; hatched where the count is 0."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import PowerNorm

    figure, axes = plt.subplots(figsize=(7.6, 6.4))
    axes.patch.set(facecolor=FAINT, edgecolor="#b8b8b8", hatch="////")
    image = axes.imshow(table.where(counts > 0, torch.nan), cmap="cividis", norm=PowerNorm(0.5, vmin=0, vmax=1))
    axes.set(title="After q comes u", xlabel="next letter", ylabel="current letter")
    axes.set_xticks(range(len(names)), names)
    axes.get_xticklabels()[0].set(rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.grid(False)
    figure.colorbar(image, label="probability of the next letter", shrink=0.8, ticks=[0, 0.05, 0.2, 0.5, 1])
    return figure


def draw_surprises(letters: str, surprises: Sequence[float], uniform: float) -> Figure:
    """One bar per letter, and a line for a model that knows nothing."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 3.1))
    axes.bar(range(len(letters)), surprises, color=COLORS[0])
    axes.axhline(uniform, color=COLORS[3], linestyle="--")
    axes.text(len(letters) - 0.1, uniform, "a model that\nknows nothing", va="center", color=COLORS[3])
    axes.set_xticks(range(len(letters)), letters)
    axes.grid(False, axis="x")
    axes.set(title="The u after q is no surprise, the q of queen is", ylabel="surprise (nats)")
    axes.set_xlabel("the letter that came (no letter: a space)")
    axes.set_xlim(-0.7, len(letters) - 0.3)
    return figure


def draw_contexts(contexts: Sequence[int], losses: Mapping[str, Sequence[float]]) -> Figure:
    """Nats per letter against the letters that a table sees, for the counted text and, last, for another one."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 3.7))
    for (name, row), color in zip(losses.items(), (INK, COLORS[0]), strict=True):
        axes.plot(contexts, row, label=name, color=color)
    best = min(zip(losses[name], contexts, strict=True))[1]
    axes.set(title=f"On other text, more than {best} letters of context hurt", ylim=(0, None))
    axes.set(xlabel="letters of context", ylabel="nats per letter")
    axes.set_xticks(contexts)
    label_ends(axes)
    return figure


def draw_training(losses: Sequence[float | Tensor], held_out: Sequence[float]) -> Figure:
    """The loss of each batch, and that on held-out text after each round of as many batches."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.4, 3.5))
    numbers = [torch.as_tensor(loss).item() for loss in losses]
    steps = [len(losses) * (k + 1) / len(held_out) for k in range(len(held_out))]
    axes.plot(range(len(numbers)), numbers, ".", markersize=3, color=COLORS[0], label="batches")
    axes.plot(steps, held_out, "o-", color=COLORS[3], label="valid")
    axes.set(title="The gap to text that it has not seen widens", xlabel="step", ylabel="nats per letter")
    axes.set(xlim=(0, len(losses)), ylim=(0, None))
    label_ends(axes, gap=0.1)
    return figure


def draw_scores(on_test: Mapping[str, float], in_game: Mapping[str, float], yours: Sequence[str]) -> Figure:
    """Nats per letter of everybody on `test` and in the game, the worst there on top; `yours` in another color.

    Whoever is not in `on_test` has no bar there.
    """
    import matplotlib.pyplot as plt

    names = sorted(in_game, key=lambda name: in_game[name])
    figure, panels = plt.subplots(1, 2, figsize=(10.2, 0.45 * len(names) + 1.4), sharey=True)
    for axes, losses, title in zip(panels, (on_test, in_game), ("On test", "In your game, 53 letters"), strict=True):
        for place, name in enumerate(names):
            axes.barh(place, losses.get(name, 0), color=COLORS[1 if name in yours else 0], edgecolor=EDGE)
            if name in losses:
                axes.text(losses[name] + 0.05, place, f"{losses[name]:.2f}", va="center")
        axes.set_yticks(range(len(names)), names)
        axes.grid(False, axis="y")
        axes.set(title=title, xlabel="nats per letter (shorter is better)", xlim=(0, 1.15 * max(in_game.values())))
    return figure


@torch.no_grad()
def draw_flow(network: Any, letters: str, likeliest: int = 4) -> Schematic:
    """A network on its way from `letters`: their vectors, the hidden units after relu, the likeliest next letters."""
    vectors = network.embed(torch.tensor([[ALPHABET.index(letter) for letter in letters]]))
    hidden = torch.relu(network.hidden(vectors.flatten(1)))
    p, places = network.out(hidden).softmax(dim=-1)[0].topk(likeliest)
    units = hidden.view(16, -1)
    picture = Schematic(f"“{letters}” on its way through your network", gap=(84, 30))
    rows = [_name(letter) for letter in letters]
    shape = f"({len(letters)}, {vectors.shape[-1]})"
    first = picture.matrix(vectors[0], (0, 0), "stream", cell=13, label="embed", shape=shape, rows=rows)
    look: dict[str, Any] = {"label": "hidden units", "shape": f"({hidden.shape[-1]})", "allowed": units > 0}
    second = picture.matrix(units, (1, 0), "stream", cell=11, **look)
    names = [_name(ALPHABET[place]) for place in places.tolist()]
    last = picture.bars(p.tolist(), (2, 0), "weight", height=120, names=names)
    picture.arrow(first, second, "flatten,\nhidden, relu")
    picture.arrow(second, last, "out,\nsoftmax", "weight")
    return picture


def _name(letter: str) -> str:
    return letter.replace(" ", "␣")


def draw_embeddings(words: Tensor, names: Sequence[str], kinds: Sequence[str]) -> Figure:
    """The two directions in which vectors differ most, of words of four kinds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 5.4))
    _draw_names(axes, words, names, kinds, 7.5)
    axes.set_title("Lesson 09's words lie with their kind")
    return figure


def _draw_names(axes: Axes, vectors: Tensor, names: Sequence[str], kinds: Sequence[str], size: float) -> None:
    """The names of vectors at their first two principal components, in a color for each kind.

    A name that would cover one of the names before it is a dot.
    """
    spots, taken = _flattened(vectors), list[tuple[str, float, float]]()
    colors = dict(zip(dict.fromkeys(kinds), COLORS, strict=False))
    for name, kind, (x, y) in zip(names, kinds, spots.tolist(), strict=True):
        near = (
            other
            for other, u, v in taken
            if abs(y - v) < 0.004 * size and abs(x - u) < 0.001 * size * len(name + other)
        )
        if any(near):
            axes.plot(x, y, ".", color=colors[kind], markersize=size / 2)
        else:
            axes.text(x, y, name, ha="center", va="center", color=colors[kind], size=size)
            taken.append((name, x, y))
    for kind, color in colors.items():
        axes.plot([], [], "s", color=color, label=kind)
    axes.set(xticks=[], yticks=[], xlim=(-0.06, 1.06), ylim=(-0.06, 1.06))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, frameon=False, handletextpad=0.1, columnspacing=1)
    axes.grid(False)


def _flattened(vectors: Tensor) -> Tensor:
    """(row, d_model) → (row, 2): the first two principal components, each stretched to 0 to 1."""
    centered = vectors - vectors.mean(dim=0)
    spots = centered @ torch.linalg.svd(centered, full_matrices=False).Vh[:2].T
    least = spots.min(dim=0).values
    return (spots - least) / (spots.max(dim=0).values - least)
