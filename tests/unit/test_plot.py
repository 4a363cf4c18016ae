"""Figures: drawn headless, the same bytes every time, with the text for whoever cannot see them."""

import base64
import html
import io
import math
import struct
from collections.abc import Callable
from itertools import pairwise

import IPython.display
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from html_pages import Page
from matplotlib import cbook
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from tfbook import plot
from tfbook.generation.search import BeamStep, gnmt_penalty
from tfbook.plot.bars import grouped_bars

pytestmark = pytest.mark.usefixtures("house_style")

SOURCE, TARGET = ("the", "black", "cat", "."), ("le", "chat", "noir")
WEIGHTS = torch.softmax(3 * torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
SERIES = {
    "fixed context": ([0, 10, 20], [90.0, 50.0, 10.0]),
    "attention": ([0, 10, 20], [91.0, 90.0, 89.0], [1.0, 1.0, 1.0]),
    "after the recurrence": ([0, 10, 20], [92.0, 91.0, 89.5]),
}

TOKENS = ("the", "dog", "saw", "me", ".")
ROWS = {"words": ["un", "<unk>"], "letters": ["u", "n", "d", "o"]}
CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()
HEADS = torch.randn(6, 5, 5, generator=torch.Generator().manual_seed(1)).masked_fill(~CAUSAL, -torch.inf).softmax(-1)


def _step(parents: list[int], words: list[int], scores: list[float], kept: str, ended: str) -> BeamStep:
    """One source; "x" where a candidate is kept or has ended."""
    marks = [torch.tensor([[mark == "x" for mark in row]]) for row in (kept, ended)]
    return BeamStep(torch.tensor([parents]), torch.tensor([words]), torch.tensor([scores]), *marks)


WORDS = ("<eos>", "le", "chat", "noir", "un")
BEAM = [  # two texts are kept: "le", "un"; then "un chat", "le noir"; "le" ends at once, "un chat" wins in the end
    _step([0, 0, 1, 1], [1, 4, 2, 2], [-0.5, -0.6, -torch.inf, -torch.inf], "xx..", "...."),
    _step([1, 0, 0, 1], [2, 0, 3, 3], [-0.7, -1.5, -2.0, -3.0], "x.x.", ".x.."),
    _step([0, 0, 1, 1], [0, 3, 0, 1], [-0.9, -1.0, -4.0, -5.0], ".x.x", "x..."),
]


def _heads(axes: Axes) -> None:
    figure = axes.figure
    axes.remove()
    plot.head_maps(figure, HEADS, TOKENS, title="Six heads", mask=CAUSAL)


DRAWINGS: dict[str, Callable[[Axes], None]] = {
    "lines": lambda axes: plot.lines(axes, SERIES, title="Long sentences", x="words", y="BLEU"),
    "attention map": lambda axes: plot.attention_map(axes, WEIGHTS, SOURCE, TARGET, title="Who looks where"),
    "maps of heads": _heads,
    "picture of a mask": lambda axes: plot.mask_picture(axes, CAUSAL, TOKENS, title="Only the past"),
    "tree of a beam": lambda axes: plot.beam_tree(axes, BEAM, WORDS.__getitem__, title="A beam of two"),
    "rows of tokens": lambda axes: plot.token_rows(axes, ROWS, title="Two ways of cutting"),
}


@pytest.fixture
def axes() -> Axes:
    return plt.subplots()[1]


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight", metadata={"Software": None})
    return file.getvalue()


def _chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """Name and content of every chunk of a PNG."""
    found, place = [], 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        found.append((png[place + 4 : place + 8], png[place + 8 : place + 8 + length]))
        place += length + 12
    return found


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_a_figure_is_the_same_bytes_every_time_and_not_empty(draw: Callable[[Axes], None]) -> None:
    """A notebook that is executed again changes nothing in the repository."""
    first, second = (plt.subplots() for _ in range(2))
    empty = _png(plt.figure())
    for figure, axes in (first, second):
        figure.canvas.draw()
        draw(axes)
    assert _png(first[0]) == _png(second[0])
    assert len(_png(first[0])) > 3 * len(empty)


def test_lines_differ_in_color_and_in_marker() -> None:
    """The markers are for print in gray; `test_contrast.py` looks at the colors."""
    cycle = list(mpl.rcParams["axes.prop_cycle"])
    assert [step["color"] for step in cycle] == list(plot.COLORS)
    assert len({step["marker"] for step in cycle}) == len({step["color"] for step in cycle}) == 4


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What is displayed, by kind of text."""
    found: list[dict[str, str]] = []
    monkeypatch.setattr(IPython.display, "display", lambda data, *, raw: found.append(data))
    return found


def _picture(page: str) -> bytes:
    """The PNG in a page of HTML."""
    return base64.b64decode(page.partition("data:image/png;base64,")[2].partition('"')[0])


def test_show_leaves_a_png_with_its_text_and_nothing_that_changes(shown: list[dict[str, str]], axes: Axes) -> None:
    """As HTML, which every front end shows with the text; the figure is closed, so it is not shown twice."""
    DRAWINGS["lines"](axes)
    plot.show(axes.figure, "BLEU falls from 90 to 10 without attention.", "Look at the end.")
    [data] = shown
    assert data.keys() == {"text/html", "text/plain"}
    assert data["text/plain"] == "BLEU falls from 90 to 10 without attention."
    page = data["text/html"]
    assert page.startswith('<figure class="tfbook-figure">\n<img alt="BLEU falls from 90 to 10 without attention." ')
    assert 300 < int(page.partition('width="')[2].partition('"')[0]) < 1000
    assert "<figcaption>Look at the end.</figcaption>" in page
    png = _picture(page)
    assert Image.open(io.BytesIO(png)).mode == "P", "a palette keeps notebooks small"
    texts = [content for name, content in _chunks(png) if name in (b"tEXt", b"iTXt", b"zTXt", b"tIME")]
    assert texts == []
    assert not plt.fignum_exists(axes.figure.number)


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_a_shown_figure_is_a_valid_png_with_clear_corners(
    shown: list[dict[str, str]], axes: Axes, draw: Callable[[Axes], None]
) -> None:
    """Browsers draw black what lies beyond the palette: every index that is painted has a color."""
    figure = axes.figure
    draw(axes)
    plot.show(figure, "a figure")
    png = _picture(shown[0]["text/html"])
    picture = Image.open(io.BytesIO(png))
    picture.load()
    colors = len(dict(_chunks(png))[b"PLTE"]) // 3
    assert picture.getextrema()[1] < colors <= 256
    corners = [(x, y) for x in (0, picture.width - 1) for y in (0, picture.height - 1)]
    assert [picture.convert("RGBA").getpixel(corner)[3] for corner in corners] == [0] * 4
    assert picture.convert("RGBA").getpixel((picture.width // 2, 2)) == (255, 255, 255, 255)


@pytest.mark.parametrize("text", ['say "q·k" & <b>', "a > b, it's"])
def test_the_texts_of_a_figure_are_no_markup(shown: list[dict[str, str]], axes: Axes, text: str) -> None:
    plot.show(axes.figure, text, text)
    page = shown[0]["text/html"]
    assert [found["alt"] for tag, found in Page(page).tags if tag == "img"] == [text]
    caption = page.partition("<figcaption>")[2].partition("</figcaption>")[0]
    assert "<" not in caption
    assert html.unescape(caption) == text


def test_a_figure_says_whether_it_was_drawn_or_photographed(shown: list[dict[str, str]], axes: Axes) -> None:
    """A photograph keeps its colors on a dark page."""
    axes.figure.set_label("schematic")
    plot.show(axes.figure, "a drawing")
    plot.show(plt.figure(), "a photograph", photograph=True)
    drawn, photographed = (data["text/html"].partition("\n")[0] for data in shown)
    assert drawn == '<figure class="tfbook-figure schematic">'
    assert photographed == '<figure class="tfbook-figure photograph">'
    assert ":not(.photograph) img" in shown[0]["text/html"]


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_show_refuses_a_figure_without_text(axes: Axes, alt: str) -> None:
    with pytest.raises(ValueError, match="alt is empty; describe what the figure shows in a sentence"):
        plot.show(axes.figure, alt)


# ---- lines -------------------------------------------------------------------------------------------------------


def test_lines_draws_each_series_with_its_band_and_its_label(axes: Axes) -> None:
    DRAWINGS["lines"](axes)
    drawn = {line.get_label(): line for line in axes.get_lines()}
    assert drawn.keys() == SERIES.keys()
    for label, (xs, ys, *_) in SERIES.items():
        assert drawn[label].get_xydata().tolist() == [[x, y] for x, y in zip(xs, ys, strict=True)]
    labels = {text.get_text(): to_hex(text.get_color()) for text in axes.texts}
    assert labels == {label: to_hex(line.get_color()) for label, line in drawn.items()}
    (band,) = axes.collections
    assert (band.get_datalim(axes.transData).y0, band.get_datalim(axes.transData).y1) == (88, 92)
    assert (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()) == ("Long sentences", "words", "BLEU")


def test_labels_of_lines_that_end_together_do_not_touch(axes: Axes) -> None:
    """Each in the order of the ends, beside the last point."""
    ends = {f"line {i}": ([0, 1], [0.0, 1 + i / 1000]) for i in range(4)} | {"far": ([0, 1], [0.0, 3.0])}
    plot.lines(axes, ends, title="", x="", y="")
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in sorted(axes.texts, key=lambda text: text.get_window_extent().y0)]
    assert all(below.y1 <= above.y0 + 1 for below, above in pairwise(boxes))
    assert [text.get_text() for text in sorted(axes.texts, key=lambda t: t.get_window_extent().y0)] == list(ends)
    edge = axes.transData.transform((1, 0))[0]
    assert all(box.x0 > edge for box in boxes)


def test_a_line_that_ends_without_a_value_is_labeled_where_it_was_drawn_last(axes: Axes) -> None:
    """As a loss that became NaN; the labels of other lines stay where they belong."""
    nan = float("nan")
    lines = {"lost": ([1, 2, 3], [1.0, 2.0, nan]), "whole": ([1, 2, 3], [3.0, 2.5, 0.0]), "never": ([1], [nan])}
    plot.lines(axes, lines | {"empty": ([], [])}, title="", x="", y="")
    axes.figure.canvas.draw()
    assert {text.get_text(): text.xy for text in axes.texts} == {"lost": (2, 2.0), "whole": (3, 0.0)}
    assert all(np.isfinite(text.get_window_extent().get_points()).all() for text in axes.texts)


# ---- bars --------------------------------------------------------------------------------------------------------


def test_bars_of_a_group_stand_side_by_side_around_their_tick(axes: Axes) -> None:
    rows = {"a": {"x": 0.1, "y": 0.25}, "b": {"x": 0.5, "y": 0.75}, "c": {"x": 1.0, "y": 0.0}}
    grouped_bars(axes, rows, plot.COLORS, width=0.9)
    groups = [[container.patches[i] for container in axes.containers] for i in range(2)]
    for tick, (key, bars) in enumerate(zip("xy", groups, strict=True)):
        assert [bar.get_height() for bar in bars] == [100 * shares[key] for shares in rows.values()]
        assert np.mean([bar.get_center()[0] for bar in bars]) == pytest.approx(tick)
        assert all(one.get_x() + one.get_width() < other.get_x() for one, other in pairwise(bars))
        assert bars[-1].get_x() + bars[-1].get_width() - bars[0].get_x() < 0.9
    assert axes.get_legend_handles_labels()[1] == ["a", "b", "c"]
    assert [text.get_text() for text in axes.texts] == ["10", "25", "50", "75", "100", "0"]


# ---- attention maps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bar", [True, False])
def test_an_attention_map_shows_the_weights_from_0_to_1(axes: Axes, bar: bool) -> None:
    """A row a target word, the words upright, whatever the precision of the model."""
    weights = WEIGHTS.to(torch.bfloat16).requires_grad_()
    plot.attention_map(axes, weights, SOURCE, TARGET, title="Who looks where", bar=bar)
    mesh = axes.collections[0]
    np.testing.assert_array_equal(mesh.get_array().reshape(3, 4), weights.detach().float().numpy())
    assert mesh.get_clim() == (0, 1)
    assert [label.get_text() for label in axes.get_xticklabels()] == list(SOURCE)
    assert [label.get_text() for label in axes.get_yticklabels()] == list(TARGET)
    assert {label.get_rotation() for label in axes.get_yticklabels()} == {0}
    assert axes.yaxis_inverted(), "the first word stands at the top"
    assert len(axes.figure.axes) == (2 if bar else 1)


def test_rings_mark_the_gold_links(axes: Axes) -> None:
    """At (source, target), in the middle of the cell."""
    gold = frozenset({(0, 0), (2, 1), (1, 2)})
    plot.attention_map(axes, WEIGHTS, SOURCE, TARGET, title="", gold=gold)
    rings = {(float(line.get_xdata()[0]) - 0.5, float(line.get_ydata()[0]) - 0.5) for line in axes.get_lines()}
    assert rings == gold


@pytest.mark.parametrize("weights", [WEIGHTS.T, WEIGHTS[:2], WEIGHTS[None]], ids=["transposed", "a word less", "batch"])
def test_words_must_fit_the_weights(axes: Axes, weights: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"weights have shape \(.*\); expected 3 target × 4 source words"):
        plot.attention_map(axes, weights, SOURCE, TARGET, title="")


# ---- many heads --------------------------------------------------------------------------------------------------


def _panels(figure: Figure) -> list[Axes]:
    """The maps, without the color bar, which has no title."""
    return [axes for axes in figure.axes if axes.get_title(loc="left")]


@pytest.fixture
def page() -> Figure:
    return plt.figure(figsize=(9, 6))


def test_every_head_has_its_map_on_one_scale(page: Figure) -> None:
    """One color bar; tokens only where a panel has none beside or below it."""
    plot.head_maps(page, HEADS[:5].to(torch.bfloat16).requires_grad_(), TOKENS, title="Five heads", columns=3)
    panels = _panels(page)
    assert [axes.get_title(loc="left") for axes in panels] == [f"head {number}" for number in range(1, 6)]
    for axes, weights in zip(panels, HEADS.to(torch.bfloat16).float(), strict=False):
        assert axes.collections[0].get_clim() == (0, 1)
        np.testing.assert_array_equal(axes.collections[0].get_array().reshape(5, 5), weights.numpy())
    assert len(page.axes) == 6
    assert page.get_suptitle() == "Five heads"
    named = [
        (axes.yaxis.get_tick_params()["labelleft"], axes.xaxis.get_tick_params()["labelbottom"]) for axes in panels
    ]
    assert named == [(True, False), (False, False), (False, True), (True, True), (False, True)]
    assert tuple(label.get_text() for label in panels[3].get_xticklabels()) == TOKENS
    assert {label.get_rotation() for label in panels[3].get_yticklabels()} == {0}


@pytest.mark.parametrize(("heads", "shape"), [(1, (1, 1)), (4, (1, 4)), (6, (2, 3)), (9, (3, 3))])
def test_the_rows_of_a_page_are_even(page: Figure, heads: int, shape: tuple[int, int]) -> None:
    plot.head_maps(page, HEADS[:1].expand(heads, 5, 5), TOKENS, title="")
    assert _panels(page)[0].get_gridspec().get_geometry() == shape


@pytest.mark.parametrize("mask", [CAUSAL, CAUSAL[None], CAUSAL.expand(6, 5, 5)], ids=["matrix", "one", "each head"])
def test_blocked_cells_are_no_zeros(page: Figure, mask: torch.Tensor) -> None:
    """A cell of weight 0 has the darkest color; a blocked one has none, so the hatched ground is seen."""
    weights = HEADS.clone()
    weights[:, 4, 0] = 0
    plot.head_maps(page, weights, TOKENS, title="", mask=mask)
    for axes in _panels(page):
        drawn = axes.collections[0].get_array().reshape(5, 5)
        np.testing.assert_array_equal(np.ma.getmaskarray(drawn), ~CAUSAL.numpy())
        assert axes.patch.get_hatch()
    assert page.axes[-1].get_ylabel() == "attention weight (hatched: blocked)"


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"queries": TOKENS[:4]}, ValueError, r"weights has shape \(6, 5, 5\); expected \(head, 4 queries, 5 keys\)"),
        ({"keys": TOKENS[:4]}, ValueError, r"weights has shape \(6, 5, 5\); expected \(head, 5 queries, 4 keys\)"),
        ({"weights": HEADS[0]}, ValueError, r"weights has shape \(5, 5\); expected \(head, 5 queries, 5 keys\)"),
        ({"names": ["a", "b"]}, ValueError, "names holds 2; expected one for each of 6 heads"),
        ({"mask": CAUSAL.float()}, TypeError, r"mask has dtype torch.float32; expected torch.bool, where True means"),
        ({"mask": CAUSAL[:4]}, ValueError, r"mask has shape \(4, 5\); expected one that broadcasts to weights, \(6, 5"),
        ({"mask": CAUSAL.T}, ValueError, "mask blocks 60 cells whose weight is not 0; the weights were made without"),
    ],
    ids=["queries", "keys", "one head", "names", "dtype", "size", "another mask"],
)
def test_what_does_not_fit_the_heads_is_named(
    page: Figure, change: dict[str, object], kind: type[Exception], message: str
) -> None:
    given = {"weights": HEADS, "queries": TOKENS, "keys": TOKENS, "title": ""} | change
    with pytest.raises(kind, match=message):
        plot.head_maps(page, **given)


# ---- masks -------------------------------------------------------------------------------------------------------


def test_a_mask_is_filled_where_a_query_may_attend(axes: Axes) -> None:
    """A row a query, the first at the top; a tick in each filled cell."""
    mask = CAUSAL[:3]
    plot.mask_picture(axes, mask, TOKENS[:3], TOKENS, title="Only the past")
    drawn = axes.collections[0].get_array().reshape(3, 5)
    np.testing.assert_array_equal(np.ma.getmaskarray(drawn), ~mask.numpy())
    ticks = {(int(text.get_position()[1]), int(text.get_position()[0])) for text in axes.texts}
    assert ticks == {(query, key) for query, key in mask.nonzero().tolist()}
    assert tuple(label.get_text() for label in axes.get_yticklabels()) == TOKENS[:3]
    assert tuple(label.get_text() for label in axes.get_xticklabels()) == TOKENS
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title(loc="left")) == ("key", "query", "Only the past")
    assert axes.yaxis_inverted()
    assert axes.patch.get_hatch()


def test_a_mask_of_all_or_of_nothing_is_drawn(axes: Axes) -> None:
    """The same color for "may attend", whatever else there is."""
    colors = set()
    for mask in (torch.ones(3, 3, dtype=torch.bool), CAUSAL):
        _, axes = plt.subplots()
        plot.mask_picture(axes, mask, title="")
        axes.figure.canvas.draw()
        colors |= {to_hex(color) for color in axes.collections[0].get_facecolor() if color[3]}
    assert len(colors) == 1
    plot.mask_picture(axes, torch.zeros(3, 3, dtype=torch.bool), title="")


@pytest.mark.parametrize(("size", "few"), [(20, False), (128, True)])
def test_a_large_mask_has_no_borders_and_few_numbers(axes: Axes, size: int, few: bool) -> None:
    plot.mask_picture(axes, torch.ones(size, size, dtype=torch.bool).tril(), title="")
    numbers = [int(label.get_text()) for label in axes.get_xticklabels()]
    assert [place - 0.5 for place in axes.get_xticks()] == numbers
    assert numbers[0] == 0
    assert max(numbers) < size
    assert (len(numbers) < 12) == few
    assert (not axes.texts) == few
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key (position)", "query (position)")


@pytest.mark.parametrize(
    ("mask", "tokens", "kind", "message"),
    [
        (CAUSAL.int(), (), TypeError, "mask has dtype torch.int32; expected torch.bool, where True means 'may attend'"),
        (CAUSAL[None], (), ValueError, r"mask has shape \(1, 5, 5\); expected any queries × any keys"),
        (CAUSAL, (TOKENS[:4],), ValueError, r"mask has shape \(5, 5\); expected 4 queries × 4 keys"),
        (CAUSAL, (TOKENS, TOKENS[:4]), ValueError, r"mask has shape \(5, 5\); expected 5 queries × 4 keys"),
    ],
    ids=["dtype", "batch", "queries", "keys"],
)
def test_what_does_not_fit_the_mask_is_named(
    axes: Axes, mask: torch.Tensor, tokens: tuple[tuple[str, ...], ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        plot.mask_picture(axes, mask, *tokens, title="")


# ---- a beam as a tree --------------------------------------------------------------------------------------------


def test_nodes_are_what_the_search_kept_or_ended() -> None:
    """Parents are places in the list; what was neither kept nor ended, or has probability 0, is no node."""
    nodes = plot.beam_nodes(BEAM)
    assert [(node.length, WORDS[node.word], node.parent, node.ended) for node in nodes] == [
        (1, "le", -1, False),
        (1, "un", -1, False),
        (2, "chat", 1, False),
        (2, "<eos>", 0, True),
        (2, "noir", 0, False),
        (3, "<eos>", 2, True),
        (3, "noir", 2, False),
        (3, "le", 4, False),
    ]
    assert [round(node.score, 1) for node in nodes[:3]] == [-0.5, -0.6, -0.7]


def test_nodes_are_those_of_the_source_that_is_asked_for() -> None:
    both = BeamStep(*(torch.cat(fields) for fields in zip(BEAM[1], BEAM[0], strict=True)))
    assert plot.beam_nodes([both], row=1) == plot.beam_nodes(BEAM[:1])


def test_the_text_that_won_stands_out(axes: Axes) -> None:
    """Every node has its word and its probability; ended texts have their score ÷ penalty beside them."""
    plot.beam_tree(axes, BEAM, WORDS.__getitem__, title="A beam of two", penalty=gnmt_penalty(0.6))
    bold = [text.get_text() for text in axes.texts if text.get_fontweight() == "bold"]
    assert bold == ["un", "chat", "<eos>", f"−{0.9 / (8 / 6) ** 0.6:.2f}"]
    assert f"−{1.5 / (7 / 6) ** 0.6:.2f}" in [text.get_text() for text in axes.texts]
    assert (len(axes.get_lines()), len(axes.texts)) == (8, 8 + 8 + 2), "two scores"
    shares = [text.get_text() for text in axes.texts if text.get_va() == "top"]
    assert shares[:3] == [f"{math.exp(-0.5):.2f}", f"{math.exp(-0.6):.2f}", f"{math.exp(-0.1):.2f}"]
    colored = [line for line in axes.get_lines() if to_hex(line.get_color()) == plot.COLORS[1]]
    assert len(colored) == 3
    assert axes.yaxis_inverted()


def test_a_penalty_can_make_the_longer_text_win(axes: Axes) -> None:
    """−0.9 for three words against −0.8 for two: without a penalty the shorter one wins."""
    ends_sooner = [*BEAM[:1], BEAM[1]._replace(scores=torch.tensor([[-0.7, -0.8, -2.0, -3.0]])), BEAM[2]]
    won = []
    for penalty in (gnmt_penalty(0.0), gnmt_penalty(1.0)):
        _, axes = plt.subplots()
        plot.beam_tree(axes, ends_sooner, WORDS.__getitem__, title="", penalty=penalty)
        won.append([text.get_text() for text in axes.texts if text.get_fontweight() == "bold"][:-1])
    assert won == [["le", "<eos>"], ["un", "chat", "<eos>"]]


def test_branches_do_not_cross(axes: Axes) -> None:
    """Each leaf has a row of its own, and a line leads level into its word from under its parent's."""
    plot.beam_tree(axes, BEAM, WORDS.__getitem__, title="")
    lines = [line.get_xydata() for line in axes.get_lines()]
    ends = [tuple(line[-1]) for line in lines]
    assert len(set(ends)) == len(ends)
    starts = {tuple(line[0]) for line in lines} - {(0.0, lines[1][0, 1])}
    assert starts <= set(ends)
    assert all(line[-1, 1] == line[-2, 1] for line in lines)


def test_a_search_without_an_end_is_no_tree(axes: Axes) -> None:
    with pytest.raises(ValueError, match="steps holds 1 steps in which no text ends; expected at least one that does"):
        plot.beam_tree(axes, BEAM[:1], WORDS.__getitem__, title="")


def test_a_token_is_as_wide_as_it_has_letters_and_an_unknown_one_stands_out(axes: Axes) -> None:
    plot.token_rows(axes, ROWS, title="", marked={"<unk>"})
    boxes = [(bar.get_y() + bar.get_height() / 2, round(bar.get_width(), 6)) for bar in axes.patches]
    assert boxes == [(0, 2.4), (0, 5.4), *((1, 1.4),) * 4]
    assert [text.get_text() for text in axes.texts] == ["un", "<unk>", "u", "n", "d", "o"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["words · 2", "letters · 4"]
    marked = [to_hex(bar.get_facecolor()) == plot.COLORS[1] for bar in axes.patches]
    assert marked == [False, True, False, False, False, False]
    assert all(a.get_x() + a.get_width() < b.get_x() for a, b in pairwise(axes.patches) if a.get_y() == b.get_y())


@pytest.mark.parametrize("rows", [{}, {"words": ["a", ""]}])
def test_a_row_of_tokens_needs_letters(axes: Axes, rows: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match="rows is empty or holds an empty token"):
        plot.token_rows(axes, rows, title="")


READERS_WORDS = ["$$", r"\frac", "$5", "or", "$6", "a_b^c"]
N = len(READERS_WORDS)
WITH_WORDS: dict[str, Callable[[Axes], object]] = {
    "map": lambda axes: plot.attention_map(axes, torch.full((N, N), 1 / N), READERS_WORDS, READERS_WORDS, title=""),
    "mask": lambda axes: plot.mask_picture(axes, torch.ones(N, N, dtype=torch.bool), READERS_WORDS, title=""),
    "tokens": lambda axes: plot.token_rows(axes, {"row": READERS_WORDS}, title=""),
    "beam": lambda axes: plot.beam_tree(axes, BEAM, READERS_WORDS[:1].__mul__(9).__getitem__, title=""),
}


def drawn_words(figure: Figure) -> list[str]:
    """The texts of the figure as they are drawn; matplotlib fails where one begins a formula and is none."""
    figure.canvas.draw()
    texts = [text.get_text() for text in figure.findobj(mpl.text.Text)]
    assert not any(cbook.is_math_text(text) for text in texts)
    return [text.replace(r"\$", "$") for text in texts]


@pytest.mark.parametrize("draw", WITH_WORDS.values(), ids=WITH_WORDS)
def test_a_readers_words_are_drawn_letter_by_letter(draw: Callable[[Axes], object], axes: Axes) -> None:
    draw(axes)
    assert "$$" in drawn_words(axes.figure)


def test_a_readers_words_are_no_formulas_in_shaded_texts_and_schematics() -> None:
    shaded, _ = plot.shaded_text(READERS_WORDS, {"a step": (0, [1 / N] * N)})
    picture = plot.Schematic("words")
    picture.tokens(READERS_WORDS, (0, 0))
    chips = picture.figure()
    assert {"$5 0.17", r"\frac 0.17"} <= set(drawn_words(shaded))
    assert set(READERS_WORDS) <= set(drawn_words(chips))
