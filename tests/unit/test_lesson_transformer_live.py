"""A part taken out of the page's own translator: the same as in the stored runs, from the same weights."""

from __future__ import annotations

import json
import math
import re
import signal
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tfbook.lessons.transformer import ablation, exercises, inside, live
from tfbook.text.vocabulary import PAD
from tfbook.training.progress import tqdm

pytestmark = pytest.mark.usefixtures("float32")

WORDS, SIZES = (11, 13), (16, 2, 32, 2)
STORED = {part: f"no {part}" for part in live.REMOVALS}
MACHINES = ablation.MACHINES | ablation.WITHOUT_ATTENTION
DEFINITIONS = ("class ", "def attention(", "def sinusoids(", "def train(")


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the page's cells define, up to the whole machine, and its loop."""
    notebook = Path(__file__).parents[2] / "notebooks" / "05_transformer.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"torch": torch, "nn": nn, "math": math, "partial": partial, "PAD": PAD, "words": WORDS}
    names |= dict(zip(("d_model", "heads", "d_ff", "layers"), SIZES, strict=True)) | {"peak_rate": 0.01}
    solved = ("normalize", "pre_norm_block", "three_masks", "training_loss")
    names |= {name: getattr(exercises, name).reference for name in solved}
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and source.startswith(DEFINITIONS):
            defined = re.split(r"\n\n\n(?!class |def )", source)[0]
            exec(defined, names)
    return names


def whole(page: dict[str, Any]) -> Any:
    """The page's translator with every part, from the same weights each time."""
    torch.manual_seed(1)
    d_model, *_ = SIZES
    around, back = (partial(page[name], *SIZES[:3]) for name in ("EncoderBlock", "DecoderBlock"))
    return page["machine"](page["PlacedEmbedding"], around, back, partial(page["LayerNorm"], d_model))


def built(page: dict[str, Any], part: str) -> Any:
    """The page's translator without a part."""
    return live.take_out(whole(page), part)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Two sources, one of them padded, and targets of one length."""
    return torch.tensor([[4, 5, 6, 3], [7, 8, 3, PAD]]), torch.tensor([[1, 4, 5, 6], [1, 7, 8, 9]])


@pytest.mark.parametrize("part", live.REMOVALS)
def test_a_part_is_as_gone_as_in_the_stored_runs(
    part: str, page: dict[str, Any], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """The package's whole machine with the page's weights, taken apart by `ablation`, gives the same scores."""
    ours = whole(page)
    package = inside.package_model(*WORDS, *SIZES)
    renamed = {}
    for name, weight in ours.state_dict().items():
        table = inside.parameter_names(SIZES[-1])
        prefix = next((start for start in table if name.startswith(start)), "")
        renamed[table.get(prefix, "") + name.removeprefix(prefix)] = weight
    package.load_state_dict(renamed)
    MACHINES["no norms" if part == "all norms" else STORED[part]].remove(package)
    if part == "all norms":
        package.encoder.stack.norm = package.decoder.stack.norm = nn.Identity()
    with torch.no_grad():
        expected = package(*batch)
        assert torch.allclose(live.take_out(ours, part)(*batch), expected, atol=1e-5)


@pytest.mark.parametrize("part", live.REMOVALS)
def test_what_is_left_is_another_machine_that_learns(
    part: str, page: dict[str, Any], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    less = built(page, part)
    assert not torch.allclose(less(*batch), whole(page)(*batch), atol=1e-3)
    exercises.training_loss.reference(less, *batch).backward()
    assert less.decoder.embed.weight.grad.abs().sum() > 0


def test_a_part_that_there_is_not_is_refused(page: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"part is 'dropout'; expected one of 'residuals', 'norms'"):
        built(page, "dropout")


def test_the_mask_that_the_page_takes_away_is_the_one_of_take_out(
    page: dict[str, Any], batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    ours = whole(page)
    for block in ours.decoder.blocks:
        block.attend = page["SeesAll"](block.attend)
    assert torch.equal(ours(*batch), built(page, "causal mask")(*batch))


# ---- the stop button -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pressed", [1, 3, 6])
def test_a_run_that_is_stopped_returns_the_losses_of_its_steps(pressed: int, page: dict[str, Any]) -> None:
    """Stopped in the first step, in the middle, or in the last, as the page's text says."""
    source, target = torch.tensor([[4, 5, 3]]), torch.tensor([[1, 4, 5]])
    batch = SimpleNamespace(source=source, target_in=target, target_out=torch.tensor([[4, 5, 2]]))
    asked = []

    def batches(step: int) -> SimpleNamespace:
        asked.append(step)
        if len(asked) == pressed:
            signal.raise_signal(signal.SIGINT)
        return SimpleNamespace(to=lambda device: batch)

    seen = page | {"batches": batches, "tqdm": partial(tqdm, disable=True), "here": SimpleNamespace(device="cpu")}
    train = FunctionType(page["train"].__code__, seen, argdefs=page["train"].__defaults__)
    losses = train(page["AttentionAlone"](*WORDS, 16, 2), 6)
    assert len(losses) == len(asked) == pressed
    assert all(map(math.isfinite, losses))
