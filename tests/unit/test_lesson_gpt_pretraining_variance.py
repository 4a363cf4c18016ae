"""GPT's residual streams before training."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from tfbook.data.text import Text
from tfbook.lessons.gpt_pretraining import variance
from tfbook.models.gpt import GPT2, Gpt

pytestmark = pytest.mark.usefixtures("float32")

TINY = replace(GPT2, d_model=32, heads=2, d_ff=64, layers=2, max_length=64, dropout=0.0)


@pytest.fixture
def text() -> Text:
    """The alphabet again and again, so that one character says what comes next."""
    return Text.split("letters", "abcdefghijklmnopqrstuvwxyz" * 400)


# ---- the residual stream -----------------------------------------------------------------------------------------


def test_scaled_streams_stay_and_others_grow_with_depth() -> None:
    """Behind the last of many blocks: as behind the last of few, or about in proportion to their number."""
    rows = variance.residual((4, 16))
    grown = {(row["layers"], row["scaled"]): row["variance"][-1] - row["variance"][0] for row in rows}
    assert grown[16, True] == pytest.approx(grown[4, True], rel=0.2)
    assert 3.5 < grown[16, False] / grown[4, False] < 6
    assert grown[4, False] == pytest.approx(8 * grown[4, True], rel=0.2)


def test_each_stream_has_a_variance_before_the_first_block_and_after_each() -> None:
    rows = variance.residual((3, 5), d_model=64)
    assert [(row["layers"], row["scaled"], len(row["variance"])) for row in rows] == [
        (3, True, 4),
        (3, False, 4),
        (5, True, 6),
        (5, False, 6),
    ]
    words_and_positions = 2 * 0.02**2
    assert all(row["variance"][0] == pytest.approx(words_and_positions, rel=0.1) for row in rows)


def test_the_variance_is_that_of_what_enters_the_next_block() -> None:
    model, ids = Gpt(20, TINY).eval(), torch.randint(20, (2, 7))
    entered: list[float] = []
    for layer in (*model.stack.blocks, model.stack.norm):
        layer.register_forward_pre_hook(lambda _, inputs: entered.append(float(inputs[0].detach().pow(2).mean())))
    assert variance.residual_variance(model, ids) == pytest.approx(entered)


def test_unscaled_matrices_are_as_large_as_the_others() -> None:
    model = Gpt(20, replace(TINY, d_model=128, d_ff=512, layers=8))
    writes = [m for b in model.stack.blocks for m in (b.mixer.branch.W_O, b.feed_forward.branch.down)]
    assert all(m.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05) for m in writes)
    variance.unscale(model)
    assert all(m.weight.std().item() == pytest.approx(0.02, rel=0.05) for m in writes)


@pytest.mark.parametrize("vocab", [50, 400])
def test_the_first_loss_is_that_of_a_guess(vocab: int) -> None:
    """ln(vocab), and half the variance of the logits, whose vector has length √d_model."""
    expected = math.log(vocab) + 128 * 0.02**2 / 2
    assert all(row["loss"] == pytest.approx(expected, abs=0.03) for row in variance.residual((2, 8), vocab=vocab))
