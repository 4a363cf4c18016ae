"""The attention view as Python writes it: a table that says the weights, and data for the script, the same every time.

What the script makes of it is tested in a browser (tests/browser).
"""

import base64

import numpy as np
import pytest
import torch
from html_pages import HOSTILE, Page, needs_nothing

from tfbook.plot.views import attention, attention_view
from tfbook.plot.views.attention import BLOCKED_BYTE

TOKENS = ["the", "dog", "barks"]
CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()
WEIGHTS = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0)).softmax(-1)
PAST = WEIGHTS.masked_fill(~CAUSAL, 0)


def page(*arguments: object, **options: object) -> Page:
    return Page(attention_view(*arguments, **options)._repr_html_())


def cells(shown: Page) -> np.ndarray:
    """(layer, head, query, key), hundredths."""
    sizes = [len(shown.data[name]) for name in ("layers", "heads", "queries", "keys")]
    return np.frombuffer(base64.b64decode(shown.data["cells"]), dtype=np.uint8).reshape(sizes)


def test_the_data_holds_every_head_and_their_mean_in_hundredths() -> None:
    shown = page(WEIGHTS.to(torch.float64).requires_grad_(), TOKENS)
    np.testing.assert_array_equal(cells(shown)[:, :4], (100 * WEIGHTS).round().numpy())
    np.testing.assert_array_equal(cells(shown)[:, 4], (100 * WEIGHTS.mean(dim=1)).round().numpy())
    assert shown.data["layers"] == ["1", "2"]
    assert shown.data["heads"] == ["1", "2", "3", "4", "mean"]
    assert shown.data["queries"] == shown.data["keys"] == TOKENS


def test_a_single_head_has_no_mean() -> None:
    shown = page(WEIGHTS[0, :1], TOKENS)
    assert shown.data["heads"] == ["1"]
    assert cells(shown).shape == (1, 1, 3, 3)


@pytest.mark.parametrize(
    ("weights", "layers"),
    [
        (WEIGHTS, ["1", "2"]),
        (WEIGHTS[0], ["1"]),
        (list(WEIGHTS), ["1", "2"]),
        (tuple(WEIGHTS), ["1", "2"]),
        ({"encoder": WEIGHTS[0], "decoder": WEIGHTS[1]}, ["encoder", "decoder"]),
    ],
    ids=["four axes", "three axes", "list", "tuple", "record"],
)
def test_weights_come_as_a_tensor_or_layer_by_layer(weights: object, layers: list[str]) -> None:
    shown = page(weights, TOKENS, heads=["a", "b", "c", "d"])
    assert shown.data["layers"] == layers
    assert shown.data["heads"] == ["a", "b", "c", "d", "mean"]
    np.testing.assert_array_equal(cells(shown)[:, :4], (100 * WEIGHTS[: len(layers)]).round().numpy())


def test_the_table_says_the_mean_of_the_first_layer() -> None:
    """It is what remains where scripts do not run: on GitHub, in a notebook that is not trusted."""
    shown = page(WEIGHTS, TOKENS)
    mean = WEIGHTS[0].mean(dim=0)
    assert shown.rows == [["", *TOKENS], *([t, *(f"{w:.2f}" for w in mean[i])] for i, t in enumerate(TOKENS))]
    assert "Layer 1, mean of the heads" in attention_view(WEIGHTS, TOKENS)._repr_html_()
    assert "Layer decoder, head noun" in attention_view({"decoder": PAST[0, :1]}, TOKENS, heads=["noun"])._repr_html_()


def test_the_table_of_cross_attention_has_a_row_for_each_query() -> None:
    shown = page(WEIGHTS[:, :, :2], ["le", "chien"], TOKENS)
    assert [row[0] for row in shown.rows] == ["", "le", "chien"]
    assert shown.rows[0][1:] == TOKENS


@pytest.mark.parametrize("mask", [CAUSAL, CAUSAL[None, None], CAUSAL.expand(2, 4, 3, 3)], ids=["matrix", "one", "all"])
def test_blocked_cells_are_no_zeros(mask: torch.Tensor) -> None:
    weights = PAST.clone()
    weights[:, :, 2, 0] = 0
    shown = page(weights, TOKENS, mask=mask)
    np.testing.assert_array_equal(cells(shown) == BLOCKED_BYTE, (~CAUSAL).expand(2, 5, 3, 3).numpy())
    assert (cells(shown)[:, :, 2, 0] == 0).all()
    assert shown.rows[1][2:] == ["–", "–"]
    assert shown.rows[3][1] == "0.00"


def test_the_mean_is_blocked_only_where_every_head_is() -> None:
    """Heads may have masks of their own."""
    mask = torch.stack([CAUSAL, torch.eye(3, dtype=torch.bool)])
    weights = WEIGHTS[0, :2].masked_fill(~mask, 0)
    np.testing.assert_array_equal(cells(page(weights, TOKENS, mask=mask))[0, 2] == BLOCKED_BYTE, ~CAUSAL.numpy())


def test_what_bfloat16_rounds_above_1_is_1() -> None:
    shown = page(torch.tensor([[[1.0005]]]), ["a"])
    assert cells(shown).item() == 100


# ---- HTML --------------------------------------------------------------------------------------------------------


def test_tokens_are_text_whatever_they_hold() -> None:
    """No tag, attribute or script that a token could open, in the table and in the data."""
    weights = torch.full((2, 4, 4), 0.25)
    hostile, plain = page(weights, HOSTILE, heads=HOSTILE[:2]), page(weights, list("abcd"))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.rows[0][1:] == [row[0] for row in hostile.rows[1:]] == HOSTILE
    assert hostile.data["queries"] == HOSTILE
    assert hostile.script == plain.script


def test_the_page_needs_nothing_from_elsewhere() -> None:
    needs_nothing(page(WEIGHTS, TOKENS))


def test_math_on_the_page_leaves_tokens_alone() -> None:
    """Between two dollar signs MathJax would see a formula."""
    assert "mathjax_ignore" in page(WEIGHTS, TOKENS).tags[0][1]["class"].split()


def test_it_is_the_same_every_time_and_short_as_text() -> None:
    """nbval compares both kinds of output."""
    first, second = (attention_view(PAST, TOKENS, mask=CAUSAL) for _ in range(2))
    assert first._repr_html_() == second._repr_html_()
    assert repr(first) == repr(second) == "AttentionView(layers=2, heads=4, queries=3, keys=3)"
    assert repr(attention_view(PAST[0, :1], TOKENS)) == "AttentionView(layers=1, heads=1, queries=3, keys=3)"


def test_the_largest_view_stays_far_below_a_notebook_s_megabyte() -> None:
    """Even weights leave the table without colors; one-hot weights color one cell a row."""
    for weights in (torch.full((11, 3, 64, 64), 1 / 64), torch.eye(64).expand(11, 3, 64, 64)):
        assert len(attention_view(weights, ["token"] * 64)._repr_html_()) < 400_000


# ---- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"queries": TOKENS[:2]}, ValueError, "weights has heads of 3 × 3; expected 2 queries × 3 keys"),
        ({"keys": TOKENS[:2]}, ValueError, "weights has heads of 3 × 3; expected 3 queries × 2 keys"),
        (
            {"weights": WEIGHTS[0, 0]},
            ValueError,
            r"weights has shape \(3, 3\); expected \(head, query, key\) or \(layer",
        ),
        ({"weights": WEIGHTS[None]}, ValueError, r"weights has shape \(1, 2, 4, 3, 3\); expected \(head, query, key\)"),
        ({"weights": WEIGHTS[:, :0]}, ValueError, r"weights holds layers of shape \(0, 3, 3\); expected \(head, query"),
        ({"weights": []}, ValueError, r"weights holds layers of shape none; expected \(head, query, key\)"),
        (
            {"weights": [WEIGHTS[0], WEIGHTS[0, :2]]},
            ValueError,
            r"weights holds layers of shape \(2, 3, 3\) and \(4, 3, 3\); expected \(head, query, key\), the same",
        ),
        (
            {"weights": {"a": WEIGHTS}},
            ValueError,
            r"weights holds layers of shape \(2, 4, 3, 3\); expected \(head, query",
        ),
        ({"heads": ["a"]}, ValueError, "heads holds 1 names; expected one for each of 4 heads"),
        (
            {"weights": 3 * WEIGHTS - 1},
            ValueError,
            r"weights run from -0\.\d+ to 1\.\d+; expected 0 to 1, a softmax without dropout",
        ),
        ({"weights": WEIGHTS * torch.nan}, ValueError, "weights run from nan to nan; expected 0 to 1"),
        ({"mask": CAUSAL.float()}, TypeError, "mask has dtype torch.float32; expected torch.bool, where True means"),
        (
            {"mask": CAUSAL[:2]},
            ValueError,
            r"mask has shape \(2, 3\); expected one that broadcasts to weights, \(2, 4, 3",
        ),
        ({"mask": CAUSAL}, ValueError, "mask blocks 24 cells whose weight is not 0; the weights were made without"),
    ],
    ids=[
        *("queries", "keys", "matrix", "batch", "no heads", "no layers", "unequal layers", "batch in a layer", "heads"),
        *("scores", "not a number", "mask's dtype", "mask's size", "another mask"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], kind: type[Exception], message: str) -> None:
    given = {"weights": WEIGHTS, "queries": TOKENS, "keys": TOKENS} | change
    with pytest.raises(kind, match=message):
        attention_view(**given)


@pytest.mark.parametrize("shape", [(1, 1, 65, 1), (1, 1, 1, 65), (7, 7, 64, 64)], ids=str)
def test_more_than_a_page_can_hold_is_refused(shape: tuple[int, ...]) -> None:
    """The message says what came and what fits."""
    message = (
        f"at most {attention.MAX_TOKENS} tokens per side and {attention.MAX_CELLS:,} cells fit on a page: show fewer"
    )
    with pytest.raises(ValueError, match=f"weights holds {shape[0]} layers × .*; {message}"):
        attention_view(torch.zeros(shape), ["a"] * shape[2], ["a"] * shape[3])
