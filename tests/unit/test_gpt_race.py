"""The benchmark of pretraining: both sides on tiny sizes, the same measure for both, and its bars."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tfbook import data
from tfbook.models.gpt import Gpt

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpt_race.py"
TEXT = data.Text.split("cats", "the cat and the dog and the bird " * 30)
PRETENDED = """
import sys, pickle
import numpy as np
import torch
from beside import weight  # nanoGPT imports its model.py in this way

options = dict(argument[2:].split("=") for argument in sys.argv[2:])
folder = options["dataset"]
vocab = pickle.load(open(f"{folder}/meta.pkl", "rb"))["vocab_size"]
first = np.fromfile(f"{folder}/train.bin", dtype=np.uint16)[:7].tolist()
print("a line a step")

class Uniform(torch.nn.Module):
    arguments, read = sys.argv, first

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), weight))

    def forward(self, ids, targets):
        return torch.zeros(*ids.shape, vocab), None

model = Uniform()
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def tiny(script: dict[str, Any]) -> Any:
    return script["muon"](3, script["shape"](1, 8, "rotary"))


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """A folder with a train.py that is called as nanoGPT's is and knows nothing."""
    (tmp_path / "train.py").write_text(PRETENDED)
    (tmp_path / "beside.py").write_text("weight = 0.5")
    return tmp_path


def test_each_shape_is_no_larger_than_nanogpt(script: dict[str, Any]) -> None:
    config = [script["weights_of"](Gpt(65, one.config)) for one in script["ENTRANTS"].values()]
    assert 0 < max(config) <= 804_096  # nanoGPT's, positions included


def test_the_factors_end_with_what_enters(script: dict[str, Any]) -> None:
    entrants, factors = script["ENTRANTS"], list(script["FACTORS"].values())
    for entered, factor in zip(entrants.values(), factors[-2:], strict=True):
        assert entered.config == factor.config
        assert entered.batch == factor.batch
        assert 1 < entered.recipe.steps / factor.recipe.steps < 1.2  # a margin for unlucky seeds


def test_ours_trains_and_is_judged(script: dict[str, Any], tiny: Any) -> None:
    outcome, again, other = (script["ours"](tiny, TEXT, seed) for seed in (0, 0, 1))
    assert outcome.read == 3 * 20 * 64
    assert outcome.loss == again.loss != other.loss
    assert 0 < outcome.loss < 4


def test_theirs_runs_as_from_the_command_line(
    script: dict[str, Any], peer: Path, capsys: pytest.CaptureFixture
) -> None:
    where, path, arguments = Path.cwd(), list(sys.path), list(sys.argv)
    outcome = script["theirs"](peer, TEXT)
    assert outcome.loss == pytest.approx(torch.tensor(float(len(TEXT.characters))).log().item())
    assert (outcome.parameters, outcome.read) == (3, 2001 * 12 * 64)
    assert not capsys.readouterr().out
    assert (Path.cwd(), sys.path, sys.argv) == (where, path, arguments)


def test_on_a_gpu_it_is_nanogpts_published_setting(script: dict[str, Any], peer: Path) -> None:
    """2,000 steps of 64 × 256 characters, and a model of ours that is no larger than nanoGPT's 10.8 million."""
    setting = script["SETTINGS"]["gpu"]
    outcome = script["theirs"](peer, data.Text.split("cats", "the cat and the dog and the bird " * 100), setting)
    assert (outcome.parameters, outcome.read) == (3, 2001 * 64 * 256)
    (entrant,) = setting.entrants.values()
    theirs = 6 * (12 * 384**2 + 2 * 384) + 384 + (65 + 256) * 384
    assert script["weights_of"](Gpt(65, entrant.config)) <= theirs
    assert (entrant.batch, entrant.config.max_length, entrant.config.dropout) == (64, 256, 0.2)


def test_the_loss_is_the_mean_over_all_that_follows(script: dict[str, Any]) -> None:
    ids = torch.arange(2 * 64 + 1) % 5
    right = script["loss_on"](ids, guess(lambda read: (read + 1) % 5))
    wrong = script["loss_on"](ids, guess(lambda read: read))
    assert right == pytest.approx(0, abs=1e-6)
    assert wrong == pytest.approx(100, rel=1e-6)


def guess(following: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda read: 100.0 * nn.functional.one_hot(following(read), 5)


def test_both_take_turns_in_changing_order(script: dict[str, Any], tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    inside = script["main"].__globals__
    monkeypatch.setitem(inside, "theirs", lambda folder, text, setting: order.append("nanoGPT"))
    monkeypatch.setitem(inside, "ours", lambda one, text, seed: order.append(f"tfbook {seed}"))
    outcomes = script["race"](Path(), TEXT, rounds=2, entrants={"tfbook": tiny})
    assert order == ["nanoGPT", "tfbook 0", "tfbook 1", "nanoGPT"]
    assert list(outcomes) == ["nanoGPT", "tfbook"]


def test_rows_and_bars(script: dict[str, Any]) -> None:
    outcome = script["Outcome"]
    peer = [outcome(60.0, 1.9, 100, 10), outcome(90.0, 1.9, 100, 10), outcome(120.0, 1.9, 100, 10)]
    ours = [outcome(12.0, 1.85, 100, 10), outcome(45.0, 1.87, 100, 10), outcome(36.0, 1.86, 100, 10)]
    rows = script["rows"]({"nanoGPT": peer, "tfbook": ours})
    assert [row["bar"] for row in rows] == ["", "≤ 0.33"]
    assert rows[1] | {"seconds": 36.0, "share": 0.3, "loss": 1.86, "highest": 1.87} == rows[1]
    assert script["missed"](rows) == []
    late, worse, larger = {"share": 0.34}, {"highest": 1.887}, {"parameters": 101}
    missed = script["missed"]([rows[0], *(rows[1] | change for change in (late, worse, larger))])
    assert script["missed"]([rows[0], rows[1] | late | {"bar": ""}]) == []
    assert [line.partition(":")[2] for line in missed] == [
        " share is 0.34, more than 0.3333",
        " highest is 1.887, more than 1.886",
        " parameters is 101, more than 100",
    ]
