"""Two processes that train one model: what one process would have done, and one stop, file and voice for both."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tfbook import pretrain
from tfbook.pretrain.options import Options
from tfbook.pretrain.run import Progress
from tfbook.training import distributed

pytestmark = pytest.mark.usefixtures("float32")

OPTIONS = Options(layers=1, heads=2, d_model=8, context=8, batch=4, steps=10, warmup=2, evaluate_every=5, sample=5)


def _options(folder: str, name: str, **changed: Any) -> Options:
    return replace(OPTIONS, corpus=f"{folder}/text.txt", out=f"{folder}/{name}", **changed)


def train_in_turns(folder: str) -> None:
    """What each of the two processes does, one run after the other."""
    with distributed.processes():
        rank = distributed.rank()
        found = {
            "count": distributed.count(),
            "mean": distributed.mean(float(rank)),
            "all": distributed.all_gathered(rank),
        }
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
    assert {path.name for path in (folder / "adamw").iterdir()} == files


def test_processes_know_one_another(folder: Path) -> None:
    for found in _found(folder):
        assert (found["count"], found["mean"], found["all"]) == (2, 0.5, [0, 1])


def test_one_process_shares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchrun there is no group, and the model is the model."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    model = nn.Linear(2, 2)
    with distributed.processes(), distributed.first_in_turn():
        assert (distributed.count(), distributed.rank()) == (1, 0)
        assert distributed.mean(2.5) == 2.5
        assert distributed.all_gathered("one") == ["one"]
        assert distributed.shared(model) is model


def test_a_batch_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Wer reitet so spät durch Nacht und Wind?\n" * 20, encoding="utf-8")
    monkeypatch.setattr(distributed, "count", lambda: 3)
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: None)
    with pytest.raises(ValueError, match="batch is 4; expected a multiple of 3, the number of processes"):
        pretrain.pretrain(_options(str(tmp_path), "run"))
