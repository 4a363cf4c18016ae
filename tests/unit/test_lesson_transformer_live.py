"""A part taken out of the page's own translator: the same as in the stored runs, from the same weights."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tfbook.lessons.transformer import ablation, exercises, inside, live
from tfbook.text.vocabulary import PAD

pytestmark = pytest.mark.usefixtures("float32")

WORDS, SIZES = (11, 13), (16, 2, 32, 2)
STORED = {part: f"no {part}" for part in live.REMOVALS}


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the page's cells define, up to the whole machine."""
    notebook = Path(__file__).parents[2] / "notebooks" / "05_transformer.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"torch": torch, "nn": nn, "math": math, "partial": partial, "PAD": PAD}
    solved = ("normalize", "pre_norm_block", "three_masks")
    names |= {name: getattr(exercises, name).reference for name in solved}
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and source.startswith(("class ", "def attention(")):
            exec(source.partition("\n\n\nwith study")[0], names)
    return names


def built(page: dict[str, Any], part: str) -> Any:
    """The page's translator without a part, its embedding large enough to be told from rounding."""
    torch.manual_seed(1)
    return live.take_out(page["Transformer"](*WORDS, *SIZES), part)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Two sources, one of them padded, and targets of one length."""
    return torch.tensor([[4, 5, 6, 3], [7, 8, 3, PAD]]), torch.tensor([[1, 4, 5, 6], [1, 7, 8, 9]])


@pytest.mark.parametrize("part", live.REMOVALS)
def test_a_part_is_as_gone_as_in_the_stored_runs(
    part: str, page: dict[str, Any], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """The package's whole machine with the page's weights, taken apart by `ablation`, gives the same scores."""
    torch.manual_seed(1)
    whole = page["Transformer"](*WORDS, *SIZES)
    package = inside.package_model(*WORDS, *SIZES)
    renamed = {}
    for name, weight in whole.state_dict().items():
        table = inside.parameter_names(SIZES[-1])
        prefix = next((ours for ours in table if name.startswith(ours)), "")
        renamed[table.get(prefix, "") + name.removeprefix(prefix)] = weight
    package.load_state_dict(renamed)
    (ablation.MACHINES | ablation.WITHOUT_ATTENTION)[STORED[part]].remove(package)
    with torch.no_grad():
        expected = package(*batch)
        assert torch.allclose(live.take_out(whole, part)(*batch), expected, atol=1e-5)


@pytest.mark.parametrize("part", live.REMOVALS)
def test_what_is_left_is_another_machine_that_learns(
    part: str, page: dict[str, Any], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    torch.manual_seed(1)
    whole, less = page["Transformer"](*WORDS, *SIZES), built(page, part)
    assert not torch.allclose(less(*batch), whole(*batch), atol=1e-3)
    exercises.training_loss.reference(less, *batch).backward()
    assert less.decoder.embed.weight.grad.abs().sum() > 0


def test_a_part_that_there_is_not_is_refused(page: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"part is 'dropout'; expected one of 'residuals', 'norms'"):
        built(page, "dropout")
