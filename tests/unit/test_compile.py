"""Every model is one graph for `torch.compile`: nothing in a forward pass looks at the values of a tensor."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch import Tensor, nn
from traced_models import CASES, IDS, VOCAB, gpt, only_output
from waiting import Waits

from tfbook.checks import may_look, trusted


@pytest.fixture(scope="module")
def differences() -> dict[str, float | str]:
    """What the program beside this file prints."""
    program = Path(__file__).with_name("traced_models.py")
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_one_graph(differences: dict[str, float | str], name: str) -> None:
    """With its gradients: the graph computes what the model computes."""
    found = differences[name]
    assert isinstance(found, float), found
    assert found < 1e-6  # rotations are computed in float32


# ---- values are checked at the door ------------------------------------------------------------------------------


def looks(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """How often a forward and a backward pass read a value from a tensor."""
    with Waits() as waits:
        only_output(model(*inputs)).sum().backward()
    return len(waits.found)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("block-sparse", "BigBird")])
def test_trusted_inputs_are_not_looked_at(name: str) -> None:
    """The layouts of block-sparse attention are looked at on the CPU, where they are made."""
    make, inputs = CASES[name]
    with trusted():
        assert looks(make().train(), inputs) == 0


def test_inputs_are_looked_at_outside() -> None:
    assert may_look()
    assert looks(gpt(), (IDS,)) > 0
    with pytest.raises(ValueError, match="ids holds ids from 50 to 85"):
        gpt()(IDS + VOCAB)
    with trusted():
        assert not may_look()
    assert may_look()


def test_an_error_ends_the_trust() -> None:
    with pytest.raises(RuntimeError, match="stop"), trusted():
        raise RuntimeError("stop")
    assert may_look()
