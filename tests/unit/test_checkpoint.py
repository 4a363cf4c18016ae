"""Checkpoints: a run killed at any step goes on to the same weights, and a file that does not fit changes nothing."""

import copy
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tfbook import files, runtime
from tfbook.attention import POSITIONS
from tfbook.models import gpt
from tfbook.models.blocks import Config
from tfbook.training import (
    CheckpointError,
    DamagedCheckpoint,
    History,
    Optimizer,
    Recipe,
    adamw,
    decay_groups,
    distributed,
    fit,
    load_checkpoint,
    load_weights,
    muon,
    resume,
    save_checkpoint,
    warmup_cosine,
)
from tfbook.training.progress import tqdm

pytestmark = pytest.mark.usefixtures("float32")


STEPS = 40


def run(checkpoint: str | None, fatal: int = 0, every: int = 3) -> dict[str, Any]:
    """Forty steps of a network with all kinds of state; the process kills itself while it makes batch `fatal`.

    Dropout and the data draw from three generators, batch normalisation has buffers, AdamW has moments.
    """

    def batches(step: int) -> torch.Tensor:
        if step + 1 == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(8, 4) + random.random() + float(np.random.rand())  # noqa: NPY002

    runtime.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1))
    recipe = Recipe(steps=STEPS, lr=0.01, schedule=warmup_cosine(5), weight_decay=0.1, checkpoint_every=every)
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


def run_until_moved(checkpoint: str, fatal: int) -> None:
    """The process kills itself when the old checkpoint from step `fatal` on has made room and no new one is there."""
    replace, moves = os.replace, 0

    def half(source: Any, target: Any) -> None:
        nonlocal moves
        replace(source, target)
        moves += str(target).endswith(".previous")
        if moves > fatal // 3:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = half
    run(checkpoint)


def run_under_fire(folder: str) -> None:
    """A run that saves at every step is killed at any moment eight times over, and each time begins again.

    Each is a copy of this process, which has done it all once, so that none has to import PyTorch first.
    A copy has its locks as they are, but no other thread, and one that all copies share stays with a killed one for
    ever: so the progress bar gets a lock of its own, and no thread.
    """
    tqdm.set_lock(threading.RLock())
    tqdm.monitor_interval = 0
    expected, kills = run(f"{folder}/whole.pt", every=1), 0
    start = time.perf_counter()
    run(f"{folder}/warm.pt", every=1)  # the first took longer than any that follows
    patience = (time.perf_counter() - start) / 8  # so that eight of them end before the run does
    for attempt in range(9):
        if not (child := os.fork()):
            run(f"{folder}/run.pt", every=1)
            os._exit(0)
        if attempt < 8:
            time.sleep(random.SystemRandom().uniform(0, patience))
            os.kill(child, signal.SIGKILL)
        kills += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    found = run(f"{folder}/run.pt")  # it is done, so this reads what is there
    torch.save({"found": found, "expected": expected, "kills": kills}, f"{folder}/found.pt")


def finish(folder: str) -> None:
    """What becomes of the killed runs when they go on, and of one that nothing happened to."""
    names = {path.name.partition(".")[0] for path in Path(folder).glob("run*.pt*")}
    found = {name: run(str(Path(folder, f"{name}.pt"))) for name in sorted(names)}
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
    fatal, ways = random.SystemRandom().randint(6, STEPS - 4), ("run", "run_until_half_saved", "run_until_moved")
    for process in [_process(way, str(tmp_path / f"{way}.pt"), fatal) for way in ways]:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL, errors
    assert not (tmp_path / "run_until_moved.pt").exists()
    assert files.previous(tmp_path / "run_until_moved.pt").exists()
    newest = {way: tmp_path / f"{way}.pt" for way in ways}
    newest["run_until_moved"] = files.previous(newest["run_until_moved"])
    done = {way: len(torch.load(path)["history"]["loss"]) for way, path in newest.items()}
    assert 0 < min(done.values()) <= max(done.values()) < STEPS, done
    _, errors = (process := _process("finish", str(tmp_path))).communicate(timeout=300)
    assert process.returncode == 0, errors
    found = torch.load(tmp_path / "found.pt")
    assert len(found["uninterrupted"]["loss"]) == STEPS
    for way in ways:
        for name, expected in found["uninterrupted"].items():
            assert _same(found[way][name], expected), f"{name} differs after a kill at step {fatal}, {way}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has neither fork nor SIGKILL")
def test_a_run_that_is_killed_again_and_again_ends_bit_for_bit_like_one_that_is_not(tmp_path: Path) -> None:
    """By kill −9 from outside, at any moment: between two lines of Python, in a step, in a save."""
    _, errors = (process := _process("run_under_fire", str(tmp_path))).communicate(timeout=300)
    assert process.returncode == 0, errors
    ends = torch.load(tmp_path / "found.pt")
    assert ends["kills"] >= 3
    for name, value in ends["expected"].items():
        assert _same(ends["found"][name], value), f"{name} differs after {ends['kills']} kills"


# ---- one checkpoint ----------------------------------------------------------------------------------------------


def _trained(seed: int = 0, width: int = 2) -> tuple[nn.Module, torch.optim.Optimizer, History]:
    """A model after one step, so that the optimizer has moments."""
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
    """Into another model and another optimizer, in a folder that did not exist; random numbers go on as they would."""
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


@pytest.mark.parametrize("room", [0, 100_000])
def test_a_full_disk_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Where `torch.save` itself fails at closing, as it does for weights larger than a buffer."""

    class Crammed(io.FileIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > room:
                raise OSError(28, "No space left on device")
            return super().write(data)

    path, model = tmp_path / "run.pt", nn.Linear(300, 300)
    monkeypatch.setattr(Path, "open", lambda path, mode: io.BufferedWriter(Crammed(path, "w")))
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, model, torch.optim.SGD(model.parameters()), History())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_what_killed_processes_left_is_removed_by_the_next_save(tmp_path: Path) -> None:
    """And nothing else: neither what a live process is writing, nor what belongs to another path."""
    path = tmp_path / "run [1].pt"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        half = tmp_path / f"{path.name}.{child.pid}.part"
        others = [tmp_path / f"run.pt.{2**22 + 1}.part", tmp_path / f"{path.name}.mine.part", tmp_path / "a.part"]
        for file in (half, *others):
            file.write_bytes(b"half of it")
        save_checkpoint(path, *_trained())
        assert set(tmp_path.iterdir()) == {path, half, *others}
        child.kill()
    save_checkpoint(path, *_trained())
    assert set(tmp_path.iterdir()) == {path, files.previous(path), *others}


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
        (_cut, "is damaged .*; delete it to start over"),
        (_flip, "is damaged .*; delete it to start over"),
        (lambda path: path.write_bytes(b""), "is damaged .*; delete it to start over"),
        (lambda path: path.write_text("not a checkpoint"), "is damaged .*; delete it to start over"),
        (lambda path: torch.save(nn.Linear(2, 2), path), "is damaged .*; delete it to start over"),
        (lambda path: torch.save({"weights": torch.ones(2)}, path), r"is damaged \(KeyError\); delete it"),
        (lambda path: torch.save([1, 2], path), r"is damaged \(TypeError\); delete it"),
        (
            lambda path: save_checkpoint(path, *_trained(width=5)),
            "is another model's; these weights differ: 0.bias, 0.weight, 1.weight",
        ),
        (lambda path: save_checkpoint(path, nn.Linear(3, 2), *_trained()[1:]), "weights differ: 0.bias, 0.weight, 1.b"),
        (
            lambda path: _change(path, "optimizer", {"state": {}, "param_groups": []}),
            "does not fit this optimizer or m",
        ),
        (
            lambda path: _change(path, "random", [_without_torch()]),
            r"does not fit this optimizer or .*KeyError\('torch'\)",
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
        "other optimizer",
        "random state cut",
        "other history",
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    """Neither model nor optimizer nor the random numbers: whoever catches the error can train on."""
    path = tmp_path / "run.pt"
    save_checkpoint(path, *_trained())
    damage(path)
    model, optimizer, _ = _trained(seed=1)
    before = _state(model, optimizer)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(path, model, optimizer)
    assert str(path) in str(caught.value)
    assert _same(_state(model, optimizer), before)


def _gpt(**changes: Any) -> gpt.Gpt:
    return gpt.Gpt(9, replace(Config(d_model=8, heads=2, d_ff=12, layers=2, max_length=4), **changes))


def _adamw(model: nn.Module) -> Optimizer:
    return adamw(model.parameters(), lr=0.1, betas=(0.9, 0.99), weight_decay=0.0)


def _muon(model: nn.Module) -> Optimizer:
    return muon(model, lr=0.1, betas=(0.9, 0.99), weight_decay=0.0, momentum=0.9, rms=0.2)


def _sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(decay_groups(model.parameters(), 0.0), lr=0.1)


def _adam(model: nn.Module) -> Optimizer:
    return torch.optim.Adam(decay_groups(model.parameters(), 0.0), lr=0.1)


def _step(model: nn.Module, optimizer: Optimizer) -> None:
    """So that the optimizer has moments and the model other weights."""
    model(torch.zeros(1, 3, dtype=torch.int64)).logsumexp(-1).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        (_gpt(heads=4), _gpt(), r"its stack\.blocks\.0\.mixer\.branch\.heads is 4; expected 2"),
        (_gpt(heads=1), _gpt(), r"its stack\.blocks\.0\.mixer\.branch\.heads is 1; expected 2"),
        (_gpt(position=POSITIONS["rotary"]), _gpt(), r"its stack\.position is Rotary; expected Sinusoidal"),
        (_gpt(), _gpt(position=POSITIONS["ALiBi"]), r"its stack\.position is Sinusoidal; expected ALiBi"),
        (_gpt(), _gpt(position=POSITIONS["none"]), r"its stack\.position is Sinusoidal; expected Position"),
        (_gpt(), _gpt(position=POSITIONS["learned"]), r"weights differ: stack\.position\.embedding\.weight"),
    ],
    ids=["more heads", "fewer heads", "rotary", "ALiBi", "no positions", "learned"],
)
def test_another_model_with_the_same_shapes_is_refused(
    tmp_path: Path, theirs: nn.Module, ours: nn.Module, message: str
) -> None:
    """Neither a number of heads nor an encoding without weights shows in a shape, and both change what is computed."""
    path, theirs, ours = tmp_path / "run.pt", copy.deepcopy(theirs), copy.deepcopy(ours)
    optimizers = _adamw(theirs), _adamw(ours)
    for model, optimizer in zip((theirs, ours), optimizers, strict=True):
        _step(model, optimizer)
    save_checkpoint(path, theirs, optimizers[0], History())
    before = _state(ours, optimizers[1])
    for read in (lambda: load_checkpoint(path, ours, optimizers[1]), lambda: load_weights(path, ours)):
        with pytest.raises(CheckpointError, match=rf"run\.pt is another model's; .*{message}"):
            read()
    assert _same(_state(ours, optimizers[1]), before)


@pytest.mark.parametrize(
    ("saved", "read", "message"),
    [
        (_adamw, _sgd, "another optimizer's, AdamW; expected SGD"),
        (_sgd, _adamw, "another optimizer's, SGD; expected AdamW"),
        (_adam, _adamw, "another optimizer's, Adam; expected AdamW"),
        (_adamw, _muon, "another optimizer's, AdamW; expected Muon with AdamW"),
        (_muon, _adamw, "another optimizer's, Muon with AdamW; expected AdamW"),
    ],
)
def test_another_optimizer_is_refused(
    tmp_path: Path, saved: Callable[..., Optimizer], read: Callable[..., Optimizer], message: str
) -> None:
    """PyTorch's optimizers take over one another's states without a word when their groups are alike."""
    path, theirs, ours = tmp_path / "run.pt", _gpt(), _gpt()
    optimizers = saved(theirs), read(ours)
    _step(theirs, optimizers[0])
    _step(ours, optimizers[1])
    save_checkpoint(path, theirs, optimizers[0], History())
    before = _state(ours, optimizers[1])
    with pytest.raises(CheckpointError, match=rf"run\.pt is {message}"):
        load_checkpoint(path, ours, optimizers[1])
    assert _same(_state(ours, optimizers[1]), before)
    load_weights(path, ours)
    assert _same(ours.state_dict(), theirs.state_dict())


def test_a_checkpoint_of_before_these_checks_is_read(tmp_path: Path) -> None:
    """It names neither heads nor encodings nor optimizers."""
    path, model, other = tmp_path / "run.pt", _gpt(), _gpt()
    save_checkpoint(path, model, _adamw(model), History())
    content = torch.load(path)
    del content["unshaped"], content["optimizers"]
    torch.save(content, path)
    load_checkpoint(path, other, _adamw(other))
    assert _same(other.state_dict(), model.state_dict())


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.pt"):
        load_checkpoint(tmp_path / "missing.pt", *_trained()[:2])


# ---- the checkpoint before it ------------------------------------------------------------------------------------


def _two(path: Path) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Two checkpoints of one run, after one step and after two; returns what the first holds."""
    model, optimizer, history = _trained()
    save_checkpoint(path, model, optimizer, history)
    first = copy.deepcopy(model), torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    for record in (history.loss, history.lr, history.grad_norm, history.seconds):
        record.append(0.5)
    save_checkpoint(path, model, optimizer, history)
    return first


def test_the_checkpoint_before_the_newest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    _two(path)
    twin, twins, _ = _trained(seed=1)
    assert load_checkpoint(path, twin, twins).steps == 3
    assert load_checkpoint(files.previous(path), twin, twins).steps == 2
    assert {file.name for file in tmp_path.iterdir()} == {"run.pt", "run.pt.previous"}


def test_without_a_checkpoint_a_run_begins(tmp_path: Path) -> None:
    model, optimizer, _ = _trained()
    before = _state(model, optimizer)
    assert resume(tmp_path / "run.pt", model, optimizer) == History()
    assert _same(_state(model, optimizer), before)


def _at(share: float, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Damage at a place of the file, from 0 to 1, and after it."""

    def damage(path: Path) -> None:
        content = path.read_bytes()
        place = int(share * (len(content) - 1))
        path.write_bytes(content[:place] + change(content[place:]))

    return damage


CUTS = {f"cut at {share:.0%}": _at(share, lambda rest: b"") for share in (0, 0.01, 0.3, 0.6, 0.99, 1)}
ZEROS = {f"zeros from {share:.0%}": _at(share, lambda rest: bytes(len(rest))) for share in (0, 0.5, 0.9)}


@pytest.mark.parametrize("damage", [*CUTS.values(), *ZEROS.values(), _flip], ids=[*CUTS, *ZEROS, "one byte"])
def test_in_the_place_of_a_damaged_checkpoint_comes_the_one_before(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    """With a warning that names the file. It is put aside, so that the next save keeps the sound one."""
    path = tmp_path / "run.pt"
    first, _ = _two(path)
    if damage is _flip:  # looks for the weights of the first
        files.previous(path).replace(tmp_path / "first")
        save_checkpoint(files.previous(path), *_trained())
        path.unlink()
        save_checkpoint(path, *_trained())
    damage(path)
    model, optimizer, _ = _trained(seed=1)
    with pytest.warns(UserWarning, match=r"run\.pt is damaged; going on from the one before it, .*run\.pt\.previous"):
        history = resume(path, model, optimizer)
    assert history.steps == 2
    assert _same(model.state_dict(), first.state_dict())
    assert (tmp_path / "run.pt.damaged").exists()
    assert not path.exists()
    save_checkpoint(path, model, optimizer, history)
    assert load_checkpoint(files.previous(path), *_trained(seed=1)[:2]).steps == 2


def test_whatever_byte_is_wrong_a_run_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    """From the newest where the byte does not matter, such as one of a date, and else from the one before it."""
    path, dice, seen = tmp_path / "run.pt", random.Random(0), set()
    first, _ = _two(path)
    newest, sound = _trained(seed=1)[0], path.read_bytes()
    load_weights(path, newest)
    for place in dice.sample(range(len(sound)), 150):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ (1 << dice.randrange(8))]) + sound[place + 1 :])
        model, optimizer, _ = _trained(seed=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            steps = resume(path, model, optimizer).steps
        assert _same(model.state_dict(), {3: newest, 2: first}[steps].state_dict()), f"byte {place} of {len(sound)}"
        seen.add(steps)
    assert 2 in seen


def test_a_run_goes_on_after_damage_to_the_same_end(tmp_path: Path) -> None:
    """`fit` takes the steps since the sound checkpoint again, bit for bit."""

    def trained(checkpoint: Path | None) -> tuple[list[float], dict[str, Any]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Linear(4, 1))
        recipe = Recipe(steps=20, lr=0.01, checkpoint_every=6)
        history = fit(
            model, lambda m, x: m(x).square().mean(), lambda step: torch.randn(8, 4), recipe, checkpoint=checkpoint
        )
        return history.loss, model.state_dict()

    expected, path = trained(None), tmp_path / "run.pt"
    assert _same(trained(path), expected)
    _cut(path)
    with pytest.warns(UserWarning, match="is damaged; going on"):
        assert _same(trained(path), expected)


def test_where_both_are_damaged_nothing_is_made_up(tmp_path: Path) -> None:
    """Neither file is touched, and the error names the second."""
    path = tmp_path / "run.pt"
    _two(path)
    _cut(path)
    _cut(files.previous(path))
    for read in (lambda: resume(path, *_trained()[:2]), lambda: load_weights(path, _trained()[0])):
        with pytest.raises(DamagedCheckpoint, match=r"run\.pt\.previous is damaged .*; delete it to start over"):
            read()
    assert {file.name for file in tmp_path.iterdir()} == {"run.pt", "run.pt.previous"}


def test_another_models_checkpoint_is_no_reason_to_take_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    _two(path)
    save_checkpoint(path, *_trained(width=5))
    with pytest.raises(CheckpointError, match=r"run\.pt is another model's; these weights differ"):
        resume(path, *_trained()[:2])
    assert path.exists()


def test_weights_alone_are_those_of_the_newest_sound_checkpoint(tmp_path: Path) -> None:
    """Into a model that no optimizer trains; the damaged file stays where it is, since nothing is written."""
    path = tmp_path / "run.pt"
    first, _ = _two(path)
    newest, model = _trained(seed=1)[0], _trained(seed=2)[0]
    load_checkpoint(path, newest, _trained(seed=1)[1])
    load_weights(path, model)
    assert _same(model.state_dict(), newest.state_dict())
    with pytest.raises(CheckpointError, match="another model's"):
        load_weights(path, nn.Linear(2, 2))
    _cut(path)
    with pytest.warns(UserWarning, match="is damaged; going on"):
        load_weights(path, model)
    assert _same(model.state_dict(), first.state_dict())
    assert path.exists()
    with pytest.raises(FileNotFoundError, match=r"missing\.pt"):
        load_weights(tmp_path / "missing.pt", model)


@pytest.mark.parametrize(("saved", "rank", "own"), [(1, 0, 0), (1, 1, 0), (2, 1, 1), (2, 3, 1), (3, 2, 2)])
def test_each_process_goes_on_with_its_random_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: int, rank: int, own: int
) -> None:
    """Where more processes go on than have saved, they take the states in turn."""
    model, optimizer, history = _trained()
    states = []
    for seed in range(saved):
        runtime.seed(seed)
        states.append((runtime.random_state(), _draws()))
    monkeypatch.setattr(distributed, "all_gathered", lambda state: [state for state, _ in states])
    save_checkpoint(tmp_path / "run.pt", model, optimizer, history)
    monkeypatch.setattr(distributed, "rank", lambda: rank)
    load_checkpoint(tmp_path / "run.pt", model, optimizer)
    assert _draws() == states[own][1]
