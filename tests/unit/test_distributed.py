"""Two processes that train one model: what one process would have done, and one stop, file and voice for both."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook import pretrain
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt
from tfbook.pretrain.options import Options
from tfbook.pretrain.run import Progress
from tfbook.training import History, Loss, LossFunction, Recipe, distributed, fit
from tfbook.training.placement import place, whole_state

pytestmark = pytest.mark.usefixtures("float32")

OPTIONS = Options(layers=1, heads=2, d_model=8, context=8, batch=4, steps=10, warmup=2, evaluate_every=5, sample=5)


def _options(folder: str, name: str, **changed: Any) -> Options:
    return replace(OPTIONS, corpus=f"{folder}/text.txt", out=f"{folder}/{name}", **changed)


LENGTHS = ((2, 2), (3, 5), (12, 12), (4, 7))  # of the rows of four batches: two for each process


def rows(lengths: tuple[int, ...]) -> Tensor:
    """Ids of these lengths, padded with 0; one row is the same whatever its neighbors."""
    ids = [torch.randint(1, 9, [length], generator=torch.Generator().manual_seed(length)) for length in lengths]
    return nn.utils.rnn.pad_sequence(ids, batch_first=True)


def unpadded(model: nn.Module, ids: Tensor) -> Loss:
    """Next-token loss without padding."""
    logits, targets = model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
    return Loss(F.cross_entropy(logits, targets, ignore_index=0, reduction="sum"), (targets != 0).sum())


def two_terms(model: nn.Module, ids: Tensor) -> Loss:
    """The same and a term that counts sentences, of the short ones alone; it looks into the model."""
    first = model.embed(ids[ids[:, 5:].sum(dim=1) == 0, 0])
    return unpadded(model, ids) + Loss(first.square().sum(), len(first))


UNEVEN: dict[str, LossFunction] = {"one term": unpadded, "two terms": two_terms}


def uneven(loss: LossFunction, batches: tuple[tuple[int, ...], ...]) -> tuple[History, dict[str, Tensor]]:
    """Three steps, each with the gradient of all of `batches`; every process begins with other weights."""
    torch.manual_seed(distributed.rank())
    model = Gpt(9, Config(d_model=8, heads=2, d_ff=12, layers=1))
    recipe = Recipe(steps=3, lr=0.01, accumulate=len(batches), clip=1e9)
    history = fit(model, loss, lambda number: rows(batches[number % len(batches)]), recipe)
    return history, whole_state(model)


def train_in_turns(folder: str) -> None:
    """What each of the two processes does, one run after the other."""
    with distributed.processes():
        rank = distributed.rank()
        found = {
            "count": distributed.world_size(),
            "mean": distributed.mean(float(rank)),
            "all": distributed.all_gathered(rank),
        }
        for name, loss in UNEVEN.items():
            for parts in (1, 2):
                shares = LENGTHS[rank::2][:parts]
                torch.save(uneven(loss, shares), Path(folder, f"{name} {parts} {rank}.pt"))
        for name in ("adamw", "muon"):
            pretrain.pretrain(_options(folder, name, optimizer=name, accumulate=2))
        dropped = _options(folder, "stopped", dropout=0.3)
        pretrain.pretrain(replace(dropped, out=f"{folder}/whole"))
        Progress.report, report = _stop_the_second(Progress.report), Progress.report
        found["stopped"] = pretrain.pretrain(dropped).steps
        Progress.report = report
        pretrain.pretrain(dropped)
        found["draws"] = torch.rand(3).tolist()
    Path(folder, f"found{rank}.json").write_text(json.dumps(found))


def _stop_the_second(report: Any) -> Any:
    def stop(progress: Progress, history: Any) -> None:
        report(progress, history)
        if distributed.rank() == 1 and history.steps == 5:
            signal.raise_signal(signal.SIGINT)

    return stop


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have left their runs; they meet as `torchrun` has them meet, and need no network."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "text.txt").write_text("Wer reitet so spät durch Nacht und Wind?\n" * 20, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    shared |= {"TFBOOK_PRECISION": "float32", "TFBOOK_DEVICE": "cpu"}
    shared |= {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    code = f"import runpy; runpy.run_path({__file__!r})['train_in_turns']({str(folder)!r})"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=(folder / f"printed{rank}.txt").open("w"),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    return folder


def _history(run: Path) -> dict[str, Any]:
    return json.loads((run / "history.json").read_text())


def _found(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"found{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_two_processes_do_what_one_does(folder: Path, tmp_path: Path, optimizer: str) -> None:
    """Losses, norms, evaluations and weights, with two batches a step: each process read half of both."""
    options = replace(_options(str(folder), optimizer, optimizer=optimizer, accumulate=2), out=str(tmp_path / "one"))
    one, two = pretrain.pretrain(options), _history(folder / optimizer)
    assert two["loss"] == pytest.approx(one.loss, abs=1e-5)
    assert two["grad_norm"] == pytest.approx(one.grad_norm, abs=1e-5)
    assert one.loss[-1] < one.loss[0], "nothing was learned, so equality says little"
    for row, expected in zip(two["evaluations"], one.evaluations, strict=True):
        assert row["bits_per_byte"] == pytest.approx(expected["bits_per_byte"], abs=1e-5)
    weights = [pretrain.load_pretrained(run).model.state_dict() for run in (tmp_path / "one", folder / optimizer)]
    torch.testing.assert_close(*weights, rtol=0, atol=1e-4)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", UNEVEN)
def test_processes_with_uneven_batches_do_what_one_does_with_all(folder: Path, name: str, parts: int) -> None:
    """Σ total / Σ count over batches and processes, in a loss with one count and in one with two."""
    history, weights = uneven(UNEVEN[name], (sum(LENGTHS[: 2 * parts], ()),))
    for rank in range(2):
        found, own = torch.load(folder / f"{name} {parts} {rank}.pt", weights_only=False)
        assert found.loss == pytest.approx(history.loss, abs=1e-5)
        assert found.grad_norm == pytest.approx(history.grad_norm, abs=1e-5)
        torch.testing.assert_close(own, weights, rtol=0, atol=1e-5)


def test_a_stop_in_one_process_stops_both_after_the_same_step(folder: Path) -> None:
    """It came during the evaluation after step 5."""
    assert [found["stopped"] for found in _found(folder)] == [6, 6]


def test_a_stopped_run_goes_on_in_both_bit_for_bit(folder: Path) -> None:
    """With dropout: each process has random numbers of its own, before and after."""
    stopped, whole = folder / "stopped", folder / "whole"
    assert _history(stopped)["loss"] == _history(whole)["loss"]
    weights = [pretrain.load_pretrained(run).model.state_dict() for run in (stopped, whole)]
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    one, other = (found["draws"] for found in _found(folder))
    assert one != other


def test_one_process_writes_and_speaks(folder: Path) -> None:
    printed = [(folder / f"printed{rank}.txt").read_text() for rank in range(2)]
    assert printed[0].count("machine: 2 processes on cpu") == 4 + 1
    assert printed[1] == ""
    files = {"options.json", "vocabulary.json", "train.tokens", "valid.tokens", "history.json", "checkpoint.pt"}
    found = {path.name for path in (folder / "adamw").iterdir()}
    [parts] = found - files
    assert found == files | {parts}
    assert {path.name for path in (folder / "adamw" / parts).iterdir()} == {
        ".metadata",
        "__0_0.distcp",
        "__1_0.distcp",
    }


def test_processes_know_one_another(folder: Path) -> None:
    for found in _found(folder):
        assert (found["count"], found["mean"], found["all"]) == (2, 0.5, [0, 1])


def test_one_process_shares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchrun there is no group, and the model stays as it is."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    model = nn.Linear(2, 2)
    with distributed.processes(), distributed.first_in_turn(), distributed.arranged(shard=True) as grid:
        assert (distributed.world_size(), distributed.rank()) == (1, 0)
        assert (grid.row, grid.data, grid.tensor) == (0, 1, 1)
        assert distributed.mean(2.5) == 2.5
        assert distributed.total(2.5) == 2.5
        assert distributed.all_gathered("one") == ["one"]
        weight = model.weight
        run = place(model)
        assert torch.equal(run(lambda found, x: found(x), torch.ones(1, 2)), model(torch.ones(1, 2)))
        assert model.weight is weight
        assert type(model) is nn.Linear


def test_a_batch_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Wer reitet so spät durch Nacht und Wind?\n" * 20, encoding="utf-8")
    monkeypatch.setattr(distributed, "world_size", lambda: 6)
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    monkeypatch.setattr(distributed, "_mesh", lambda *sizes: None)
    with pytest.raises(ValueError, match="batch is 4; expected a multiple of 6, the number of processes"):
        pretrain.pretrain(_options(str(tmp_path), "run"))
    with pytest.raises(ValueError, match="expected a multiple of 3, the number of processes / tensor_parallel = 2"):
        pretrain.pretrain(_options(str(tmp_path), "run", tensor_parallel=2))
    with pytest.raises(ValueError, match="tensor_parallel is 4; expected a divisor of 6, the number of processes"):
        pretrain.pretrain(_options(str(tmp_path), "run", tensor_parallel=4, heads=4))


# ---- the functions, where the other process is a stand-in --------------------------------------------------------


class Peer:
    """The second of two processes: it adds its numbers, sends its objects, and notes who waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rank: int = 0):
        self.waits: list[str] = []
        self.numbers: list[Tensor] = []
        monkeypatch.setattr(distributed, "world_size", lambda: 2)
        monkeypatch.setattr(distributed, "rank", lambda: rank)
        groups = SimpleNamespace(get_group=lambda name: name)
        monkeypatch.setattr(distributed, "grid", lambda: distributed.ProcessGrid(data=2, mesh=groups))
        monkeypatch.setattr(
            torch.distributed, "all_reduce", lambda tensor, group=None: tensor.add_(self.numbers.pop(0))
        )
        monkeypatch.setattr(torch.distributed, "barrier", lambda: self.waits.append("barrier"))
        monkeypatch.setattr(torch.distributed, "all_gather_object", self.gather)

    def gather(self, values: list[Any], value: Any) -> None:
        values[:] = [value, "theirs"]


def test_totals_and_means_are_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process gives stays as it is."""
    peer = Peer(monkeypatch)
    mine = torch.tensor([1.0, 2.0])
    peer.numbers = [torch.tensor([10.0, 20.0]), torch.tensor(4, dtype=torch.float64), torch.tensor(5)]
    assert torch.equal(distributed.total(mine), torch.tensor([11.0, 22.0]))
    assert torch.equal(mine, torch.tensor([1.0, 2.0]))
    assert distributed.mean(1.0) == 2.5
    assert distributed.total(7) == 12
    assert distributed.all_gathered("mine") == ["mine", "theirs"]


@pytest.mark.parametrize(("rank", "order"), [(0, ["body", "barrier"]), (1, ["barrier", "body"])])
def test_the_first_goes_first(monkeypatch: pytest.MonkeyPatch, rank: int, order: list[str]) -> None:
    peer = Peer(monkeypatch, rank)
    with distributed.first_in_turn():
        peer.waits.append("body")
    assert peer.waits == order
