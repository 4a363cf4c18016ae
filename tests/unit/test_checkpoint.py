"""Checkpoints: a run killed at any step goes on to the same weights, and a file that does not fit changes nothing."""

import copy
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tfbook import runtime
from tfbook.train import CheckpointError, History, Recipe, fit, load_checkpoint, save_checkpoint, warmup_cosine

pytestmark = pytest.mark.usefixtures("float32")


STEPS = 40


def run(checkpoint: str | None, fatal: int = 0) -> dict[str, Any]:
    """Forty steps of a network with all kinds of state; the process kills itself while it makes batch `fatal`.

    Dropout and the data draw from three generators, batch normalisation has buffers, AdamW has moments.
    """

    def batches(step: int) -> torch.Tensor:
        if step + 1 == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(8, 4) + random.random() + float(np.random.rand())  # noqa: NPY002

    runtime.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1))
    recipe = Recipe(steps=STEPS, lr=0.01, schedule=warmup_cosine(5), weight_decay=0.1, checkpoint_every=3)
    history = fit(model, lambda m, x: (m(x) - x[:, :1]).pow(2).mean(), batches, recipe, checkpoint=checkpoint)
    found = {"weights": model.state_dict(), "random": runtime.random_state()}
    return found | {"loss": history.loss, "lr": history.lr, "norm": history.grad_norm}


def run_until_half_saved(checkpoint: str, fatal: int) -> None:
    """The process kills itself half way through writing the first checkpoint from step `fatal` on."""
    save = torch.save

    def half(content: dict[str, Any], file: Any) -> None:
        if len(content["history"]["loss"]) >= fatal:
            file.write(b"half of it")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        save(content, file)

    torch.save = half
    run(checkpoint)


def finish(folder: str) -> None:
    """What becomes of the killed runs when they go on, and of one that nothing happened to."""
    found = {path.stem: run(str(path)) for path in sorted(Path(folder).glob("run*.pt"))}
    torch.save(found | {"uninterrupted": run(None)}, Path(folder, "found.pt"))


def _process(function: str, *arguments: object) -> subprocess.Popen[str]:
    """One of the functions above in a process of its own, where no check of signatures draws random numbers."""
    code = f"import runpy; runpy.run_path({__file__!r})[{function!r}](*{arguments!r})"
    root, env = Path(__file__).parents[2], os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code], cwd=root, env=env, stderr=subprocess.PIPE, text=True)


def _same(one: Any, other: Any) -> bool:
    """Bit for bit, through dictionaries, lists and tuples."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_run_that_is_killed_ends_bit_for_bit_like_one_that_is_not(tmp_path: Path) -> None:
    """Weights, buffers, losses, rates, norms and random numbers, wherever it was killed: another step every time."""
    fatal, ways = random.SystemRandom().randint(4, STEPS - 1), ("run", "run_until_half_saved")
    for process in [_process(way, str(tmp_path / f"{way}.pt"), fatal) for way in ways]:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, errors
    done = {way: len(torch.load(tmp_path / f"{way}.pt")["history"]["loss"]) for way in ways}
    assert 0 < min(done.values()) <= max(done.values()) < STEPS, done
    _, errors = (process := _process("finish", str(tmp_path))).communicate(timeout=120)
    assert process.returncode == 0, errors
    found = torch.load(tmp_path / "found.pt")
    assert len(found["uninterrupted"]["loss"]) == STEPS
    for way in ways:
        for name, expected in found["uninterrupted"].items():
            assert _same(found[way][name], expected), f"{name} differs after a kill at step {fatal}, {way}"


# ---- one checkpoint ----------------------------------------------------------------------------------------------


def _trained(seed: int = 0, width: int = 2) -> tuple[nn.Module, torch.optim.Optimizer, History]:
    """A model after one step, so that the optimiser has moments."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, width), nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    return model, optimizer, History(loss=[2.0, 1.0], lr=[0.1, 0.1], grad_norm=[3.0, 2.0], seconds=[0.5, 1.0])


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """All that a checkpoint holds; but for Python's generator, of which the run-time check of signatures makes use."""
    generators = {name: state for name, state in runtime.random_state().items() if name != "python"}
    return copy.deepcopy((model.state_dict(), optimizer.state_dict(), generators))


def _draws() -> list[float]:
    return [random.random(), float(np.random.rand()), torch.rand(()).item()]  # noqa: NPY002


def test_what_was_saved_is_restored(tmp_path: Path) -> None:
    """Into another model and another optimiser, in a folder that did not exist; random numbers go on as they would."""
    path = tmp_path / "new" / "folder" / "run.pt"
    model, optimizer, history = _trained()
    history.evaluations.append({"step": 2, "seconds": 1.0, "bleu": 12.5})
    save_checkpoint(path, model, optimizer, history)
    saved, following = _state(model, optimizer), _draws()
    twin, twins, _ = _trained(seed=1)
    assert load_checkpoint(path, twin, twins) == history
    assert _same(_state(twin, twins), saved)
    assert _draws() == following


def test_a_save_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the disk is full half way through."""
    path = tmp_path / "run.pt"
    model, optimizer, history = _trained()
    save_checkpoint(path, model, optimizer, history)
    before = path.read_bytes()

    def half(content: object, file: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, *_trained(seed=1))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    """One wrong byte in the middle of the weights: the archive's checksum must notice."""
    content = bytearray(path.read_bytes())
    weights = content.index(_trained()[0][0].weight.detach().numpy().tobytes())
    content[weights] ^= 0xFF
    path.write_bytes(content)


def _change(path: Path, part: str, value: object) -> None:
    torch.save(torch.load(path) | {part: value}, path)


def _without_torch() -> dict[str, Any]:
    """The state of some of the generators, after other draws."""
    np.random.rand()  # noqa: NPY002
    return {name: state for name, state in runtime.random_state().items() if name != "torch"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "is damaged .*; delete it to start afresh"),
        (_flip, "is damaged .*; delete it to start afresh"),
        (lambda path: path.write_bytes(b""), "is damaged .*; delete it to start afresh"),
        (lambda path: path.write_text("not a checkpoint"), "is damaged .*; delete it to start afresh"),
        (lambda path: torch.save(nn.Linear(2, 2), path), "is damaged .*; delete it to start afresh"),
        (lambda path: torch.save({"weights": torch.ones(2)}, path), r"is damaged \(KeyError\); delete it"),
        (lambda path: torch.save([1, 2], path), r"is damaged \(TypeError\); delete it"),
        (
            lambda path: save_checkpoint(path, *_trained(width=5)),
            "is another model's; these weights differ: 0.bias, 0.weight, 1.weight",
        ),
        (lambda path: save_checkpoint(path, nn.Linear(3, 2), *_trained()[1:]), "weights differ: 0.bias, 0.weight, 1.b"),
        (
            lambda path: _change(path, "optimizer", {"state": {}, "param_groups": []}),
            "does not fit this optimiser or m",
        ),
        (
            lambda path: _change(path, "random", _without_torch()),
            r"does not fit this optimiser or .*KeyError\('torch'\)",
        ),
        (lambda path: _change(path, "history", {"loss": [1.0], "taste": 3}), r"is damaged \(TypeError\)"),
    ],
    ids=[
        "cut",
        "one byte",
        "empty",
        "text",
        "pickled object",
        "other file of torch",
        "list",
        "other sizes",
        "other layers",
        "other optimiser",
        "random state cut",
        "other history",
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    """Neither model nor optimiser nor the random numbers: whoever catches the error can train on."""
    path = tmp_path / "run.pt"
    save_checkpoint(path, *_trained())
    damage(path)
    model, optimizer, _ = _trained(seed=1)
    before = _state(model, optimizer)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(path, model, optimizer)
    assert str(path) in str(caught.value)
    assert _same(_state(model, optimizer), before)


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.pt"):
        load_checkpoint(tmp_path / "missing.pt", *_trained()[:2])
