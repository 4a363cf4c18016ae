"""The decoding view as Python writes it: a row for each step, data for the script, the same every time.

What the script makes of it is tested in a browser (tests/browser).
"""

import base64

import numpy as np
import pytest
import torch
from html_pages import HOSTILE, Page, needs_nothing

from tfbook import plot
from tfbook.plot import decoding_view
from tfbook.plot.views import stepper

SOURCE, TARGET = ["the", "black", "cat", "."], ["le", "chat", "noir"]
WEIGHTS = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
CANDIDATES = [[("le", 0.8), ("la", 0.15)], [("chat", 0.7)], [("dort", 0.1), ("noir", 0.6), (".", 0.004)]]


def page(*arguments: object) -> Page:
    return Page(decoding_view(*arguments)._repr_html_())


def test_the_data_holds_words_and_weights_in_hundredths() -> None:
    shown = page(tuple(SOURCE), tuple(TARGET), WEIGHTS.double().requires_grad_())
    cells = np.frombuffer(base64.b64decode(shown.data["weights"]), dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(cells, (100 * WEIGHTS).round().numpy())
    assert (shown.data["source"], shown.data["target"], shown.data["candidates"]) == (SOURCE, TARGET, [])


def test_candidates_come_likeliest_first() -> None:
    shown = page(SOURCE, TARGET, WEIGHTS, CANDIDATES)
    assert shown.data["candidates"] == [
        [["le", 80], ["la", 15]],
        [["chat", 70]],
        [["noir", 60], ["dort", 10], [".", 0]],
    ]


def test_the_table_says_the_same_without_scripts() -> None:
    weights = [[f"{weight:.2f}" for weight in row] for row in WEIGHTS.tolist()]
    plain, whole = page(SOURCE, TARGET, WEIGHTS), page(SOURCE, TARGET, WEIGHTS, CANDIDATES)
    assert plain.rows == [["", *SOURCE], *([word, *row] for word, row in zip(TARGET, weights, strict=True))]
    assert [row[:-1] for row in whole.rows] == plain.rows
    likeliest = ["likeliest", "le 0.80, la 0.15", "chat 0.70", "noir 0.60, dort 0.10, . 0.00"]
    assert [row[-1] for row in whole.rows] == likeliest


def test_words_are_text_whatever_they_hold() -> None:
    """No tag, attribute or script that a word could open, in the table and in the data; MathJax leaves them alone."""
    weights, candidates = torch.full((4, 4), 0.25), [[(word, 0.5)] for word in HOSTILE]
    hostile = page(HOSTILE, HOSTILE, weights, candidates)
    plain = page(list("abcd"), list("abcd"), weights, [[("a", 0.5)]] * 4)
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.rows[0][1:5] == hostile.data["source"] == HOSTILE
    assert [words for ((words, _),) in hostile.data["candidates"]] == HOSTILE
    assert hostile.script == plain.script
    assert "mathjax_ignore" in hostile.tags[0][1]["class"].split()


def test_the_page_needs_nothing_from_elsewhere() -> None:
    needs_nothing(page(SOURCE, TARGET, WEIGHTS, CANDIDATES))


def test_it_is_the_same_every_time_and_short_as_text() -> None:
    """nbval compares both kinds of output."""
    first, second = (decoding_view(SOURCE, TARGET, WEIGHTS, CANDIDATES) for _ in range(2))
    assert first._repr_html_() == second._repr_html_()
    assert repr(first) == repr(second) == "DecodingView(source=4, target=3)"
    assert decoding_view is plot.decoding_view


def test_the_longest_sentence_stays_below_40_kilobytes() -> None:
    """With weights as peaked as a trained decoder's: each colored cell of the table takes 42 letters more."""
    words = [f"word{i}" for i in range(stepper.MAX_WORDS)]
    weights = (5 * torch.eye(len(words))).softmax(-1)
    candidates = [[(f"other{i}", 0.2) for i in range(stepper.MAX_CANDIDATES)]] * len(words)
    assert len(decoding_view(words, words, weights, candidates)._repr_html_().encode()) < 40_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": []}, "source holds 0 words; expected 1 to 26, which fit on a page"),
        ({"target": ["le"] * 29}, "target holds 29 words; expected 1 to 26"),
        ({"weights": WEIGHTS.mT}, r"weights has shape \(4, 3\); expected \(3, 4\): target × source words"),
        ({"weights": WEIGHTS[None]}, r"weights has shape \(1, 3, 4\); expected \(3, 4\)"),
        ({"weights": 3 * WEIGHTS - 1}, r"weights run from -0\.\d+ to \d\.\d+; expected 0 to 1, a softmax"),
        ({"weights": WEIGHTS * torch.nan}, "weights run from nan to nan; expected 0 to 1"),
        ({"weights": WEIGHTS / 2}, "weights of row 0, “le”, sum to 0.5; expected 1"),
        ({"candidates": CANDIDATES[:2]}, "candidates holds 2 steps; expected one for each of 3 target words"),
        ({"candidates": [*CANDIDATES[:2], []]}, "candidates of step 2 are 0; expected 1 to 5"),
        ({"candidates": [[("a", 0.1)] * 6] * 3}, "candidates of step 0 are 6; expected 1 to 5"),
        ({"candidates": [[("a", 1.2)]] * 3}, "candidates of step 0 have probability 1.2; expected 0 to 1"),
        ({"candidates": [[("a", float("nan"))]] * 3}, "candidates of step 0 have probability nan; expected 0 to 1"),
    ],
    ids=[
        *("no words", "too many words", "transposed", "batch", "scores", "not a number", "not a softmax"),
        *("steps", "none at a step", "too many candidates", "not a probability", "not a number either"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], message: str) -> None:
    given = {"source": SOURCE, "target": TARGET, "weights": WEIGHTS} | change
    with pytest.raises(ValueError, match=message):
        decoding_view(**given)


def test_half_precision_may_miss_1_by_a_little() -> None:
    """And a square of weights that somebody transposed is found by its sums."""
    decoding_view(SOURCE, TARGET, WEIGHTS.bfloat16())
    square = torch.tensor([[0.9, 0.1], [0.6, 0.4]])
    with pytest.raises(ValueError, match=r"weights of row 0, “a”, sum to 1\.5; expected 1"):
        decoding_view(["b", "c"], ["a", "d"], square.mT)
