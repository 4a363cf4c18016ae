"""Damaged, swapped and crafted checkpoints: an error and nothing changed, or a run that goes on; no code runs."""

import copy
import io
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from tfbook.training import (
    CheckpointError,
    DamagedCheckpoint,
    History,
    Optimizer,
    adamw,
    load_checkpoint,
    load_weights,
    muon,
    read_about,
    resume,
    save_checkpoint,
)

pytestmark = pytest.mark.usefixtures("unchecked")
ABOUT = {"model": "Gpt", "config": {"layers": 2, "dropout": 0.1, "parts": ["a", None]}, "é": "\ud800"}


class Net(nn.Module):
    """Matrices and vectors of blocks, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def build() -> nn.Module:
    return Net()


OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "AdamW": lambda model: adamw(model.parameters(), lr=0.1, betas=(0.9, 0.99), weight_decay=0.1),
    "Muon": lambda model: muon(model, lr=0.1, betas=(0.9, 0.99), weight_decay=0.0, momentum=0.9, rms=0.2),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
}


def step(model: nn.Module, optimizer: Optimizer) -> None:
    model(torch.ones(3, 3) * torch.arange(3.0)[:, None]).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def saved(path: Path, kind: str, seed: int = 0) -> tuple[nn.Module, Optimizer]:
    """A checkpoint after one step, so that there are moments."""
    torch.manual_seed(seed)
    model = build()
    optimizer = OPTIMIZERS[kind](model)
    step(model, optimizer)
    rows = [{"step": 1.0, "seconds": 0.5, "bleu": 2.0}]
    history = History(loss=[2.0], lr=[0.1], grad_norm=[3.0], seconds=[0.5], evaluations=rows)
    save_checkpoint(path, model, optimizer, history, about=ABOUT)
    return model, optimizer


def snapshot(model: nn.Module, optimizer: Optimizer) -> list[Any]:
    """All that must not change, bit by bit."""
    return copy.deepcopy([[*model.state_dict().values()], [*leaves(optimizer.state_dict())], torch.get_rng_state()])


def leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict | list | tuple):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(each)
    else:
        yield tree


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def survives(path: Path, kind: str) -> str:
    """What `load_checkpoint` says of the file: "read", and then the run goes on; or the error, and nothing changed."""
    torch.manual_seed(1)
    model = build()
    optimizer = OPTIMIZERS[kind](model)
    step(model, optimizer)
    before = snapshot(model, optimizer)
    try:
        history = load_checkpoint(path, model, optimizer)
    except CheckpointError as error:
        said = str(error)
    else:
        step(model, optimizer)
        history.curve("bleu") if any("bleu" in row for row in history.evaluations) else None
        save_checkpoint(path.with_name("next.pt"), model, optimizer, history)
        return "read"
    assert path.name in said
    assert same(snapshot(model, optimizer), before)
    return said


# ---- crafted contents --------------------------------------------------------------------------------------------


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a content, containers included."""
    if path:
        yield path
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from places(value, (*path, key))
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield from places(value, (*path, place))


def odd(dice: Random) -> Any:
    """A value that torch.load reads and that belongs nowhere."""
    tensors = [
        torch.zeros(0),
        torch.zeros(7, 5),
        torch.zeros(1).expand(10**9),
        torch.ones(4, 3, dtype=torch.int64),
        torch.ones(4, 3, dtype=torch.complex64),
        torch.ones(4, 3).to_sparse(),
        torch.ones(3, 4).T,
        torch.full((4, 3), float("nan")),
        torch.tensor(3.0),
        torch.empty(4, 3, device="meta"),
    ]
    plain = [
        None,
        True,
        -1,
        10**400,
        0.5,
        float("inf"),
        "text",
        b"bytes",
        [],
        {},
        (),
        [1, [2]],
        {"a": {"b": 1}},
        {3: 4},
    ]
    return dice.choice([*plain, *tensors])


def crafted(dice: Random, content: dict[str, Any]) -> dict[str, Any]:
    """With one to three changes anywhere: another value, none, another name, or two that have changed places."""
    content = copy.deepcopy(content)
    for _ in range(dice.randrange(1, 4)):
        path = dice.choice([*places(content)])
        parent = content
        for key in path[:-1]:
            parent = parent[key]
        way = dice.randrange(4)
        if way == 0 and isinstance(parent, dict):
            del parent[path[-1]]
        elif way == 1 and isinstance(parent, dict):
            parent[dice.choice([3, None, "other", ("a", 1)])] = parent.pop(path[-1])
        elif way == 2:
            other = dice.choice([*parent]) if isinstance(parent, dict) else dice.randrange(len(parent))
            parent[path[-1]], parent[other] = parent[other], parent[path[-1]]
        else:
            parent[path[-1]] = odd(dice)
    return content


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("seed", range(4))
def test_crafted_contents(tmp_path: Path, kind: str, seed: int) -> None:
    """Forty files for each: 480 of them."""
    path, dice, read = tmp_path / "run.pt", Random(f"{kind} {seed}"), 0
    saved(path, kind)
    content = torch.load(path)
    for _ in range(40):
        try:
            torch.save(crafted(dice, content), path)
        except (NotImplementedError, RuntimeError):  # what cannot be written is no file
            continue
        read += survives(path, kind) == "read"
    assert read < 30


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_part_of_another_type(tmp_path: Path, kind: str) -> None:
    """Each key of the content and of its parts, with each odd value in turn where it stands highest."""
    path = tmp_path / "run.pt"
    saved(path, kind)
    content = torch.load(path)
    for place in [*places(content)]:
        if len(place) <= 2:
            changed = copy.deepcopy(content)
            parent = changed if len(place) == 1 else changed[place[0]]
            for value in (None, 3, "text", [], {}, torch.zeros(2)):
                parent[place[-1]] = value
                torch.save(changed, path)
                survives(path, kind)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("model", [1], r"is damaged \(TypeError\)"),
        ("model", {3: torch.ones(2)}, r"is damaged \(TypeError\)"),
        ("random", [], r"is damaged \(TypeError\)"),
        ("unshaped", [3], r"is damaged \(TypeError\)"),
        ("optimizers", [3], r"is damaged \(TypeError\)"),
        ("history", {"loss": "text"}, r"is damaged \(Type\w*Error\)"),
        ("about", "{", r"is damaged \(JSONDecodeError\)"),
        ("about", "[3]", r"is damaged \(TypeError\)"),
        ("about", {"a": 1}, r"is damaged \(TypeError\)"),
    ],
)
def test_a_part_of_another_form_is_damage(tmp_path: Path, part: str, value: Any, message: str) -> None:
    path = tmp_path / "run.pt"
    saved(path, "AdamW")
    torch.save(torch.load(path) | {part: value}, path)
    assert survives(path, "AdamW").startswith(f"checkpoint {path} ")
    with pytest.raises(DamagedCheckpoint, match=message):
        load_weights(path, build())


def test_moments_of_another_shape_are_refused(tmp_path: Path) -> None:
    """PyTorch takes them over, and the next step fails or is a wrong one."""
    path = tmp_path / "run.pt"
    saved(path, "AdamW")
    content = torch.load(path)
    state = content["optimizer"]["state"]
    state[0]["exp_avg"] = torch.zeros(7)
    torch.save(content, path)
    assert "a moment has another shape than its weight" in survives(path, "AdamW")


# ---- damaged bytes -----------------------------------------------------------------------------------------------


def damaged(dice: Random, sound: bytes, other: bytes) -> bytes:
    """Cut, flipped, filled, doubled, or with a piece of another checkpoint."""
    first, second = sorted(dice.sample(range(len(sound)), 2))
    return dice.choice(
        [
            sound[:first],
            sound[first:],
            sound[:first] + bytes([sound[first] ^ (1 << dice.randrange(8))]) + sound[first + 1 :],
            sound[:first] + bytes(second - first) + sound[second:],
            sound[:first] + sound[second:],
            sound[:first] + dice.randbytes(second - first) + sound[second:],
            sound[:first] + other[first:second] + sound[second:],
            sound[:second] + sound[first:],
            dice.randbytes(first),
        ]
    )


@pytest.mark.parametrize("seed", range(5))
def test_damaged_bytes(tmp_path: Path, seed: int) -> None:
    """Sixty files for each seed: 300 of them. What is read is one of the two checkpoints, or as good."""
    path, dice = tmp_path / "run.pt", Random(seed)
    saved(path, "AdamW", seed=5)
    other = path.read_bytes()
    saved(path, "AdamW")
    sound = path.read_bytes()
    for _ in range(60):
        path.write_bytes(damaged(dice, sound, other))
        survives(path, "AdamW")


class _Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("old", [False, True], ids=["archive", "file of before"])
def test_no_code_of_a_file_runs(tmp_path: Path, old: bool) -> None:
    path, marker = tmp_path / "run.pt", tmp_path / "marker"
    saved(path, "AdamW")
    content = torch.load(path) | {"history": _Evil(marker)}
    torch.save(content, path, _use_new_zipfile_serialization=not old)
    model = build()
    for read in (load_weights, lambda path, model: resume(path, model, OPTIMIZERS["AdamW"](model))):
        path.with_name("run.pt.previous").unlink(missing_ok=True)
        with pytest.raises(DamagedCheckpoint, match="is damaged"):
            read(path, model)
    path.write_bytes(pickle.dumps(_Evil(marker)))
    with pytest.raises(DamagedCheckpoint, match="is damaged"):
        read_about(path)
    assert not marker.exists()


def test_an_archive_that_unpacks_to_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    """A hundred megabytes of zeros in a hundred kilobytes; torch itself compresses nothing."""
    path = tmp_path / "run.pt"
    saved(path, "AdamW")
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as sound, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in sound.infolist():
            archive.writestr(part.filename, sound.read(part))
        archive.writestr("archive/data/zeros", bytes(10**8))
    path.write_bytes(packed.getvalue())
    assert "is damaged (ValueError)" in survives(path, "AdamW")


@pytest.mark.skipif(os.name != "posix", reason="Windows has no named pipes")
def test_neither_a_pipe_nor_a_folder_is_read_or_written(tmp_path: Path) -> None:
    for make in (os.mkfifo, os.mkdir):
        path = tmp_path / make.__name__
        make(path)
        assert survives(path, "SGD") == f"checkpoint {path} is not a regular file"
        with pytest.raises(OSError, match="Not a regular file"):
            saved(path, "SGD")


# ---- what it is about ------------------------------------------------------------------------------------------------


def test_what_it_is_about_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    saved(path, "SGD")
    assert read_about(path) == ABOUT
    assert survives(path, "SGD") == "read"
    assert read_about(tmp_path / "next.pt") is None


def test_a_checkpoint_without_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    saved(path, "SGD")
    content = torch.load(path)
    del content["about"]
    torch.save(content, path)
    assert read_about(path) is None
    assert survives(path, "SGD") == "read"


@pytest.mark.parametrize("about", [{"a": torch.ones(2)}, {"a": float("nan")}, {"a": {1, 2}}, {"a": build}])
def test_what_json_cannot_hold_is_refused(tmp_path: Path, about: dict[str, Any]) -> None:
    path = tmp_path / "run.pt"
    model, optimizer = saved(path, "SGD")
    before = path.read_bytes()
    with pytest.raises((TypeError, ValueError), match="JSON"):
        save_checkpoint(path, model, optimizer, History(), about=about)
    assert path.read_bytes() == before
