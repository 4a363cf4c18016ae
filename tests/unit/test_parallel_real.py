"""Real gloo processes, started by torchrun: the same model as one process, and bytes and memory as on paper."""

import json
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from test_parallel import CONFIG, STEPS, shape_of, small_gpt, some_batches
from torch import Tensor

from tfbook.models.gpt import Gpt
from tfbook.parallel import launch
from tfbook.parallel.clock import launch_clock
from tfbook.parallel.elastic import save_whole
from tfbook.parallel.planning import DOUBLE, memory_by_part, peak_bytes, wire_bytes
from tfbook.parallel.whole import alone, largest_difference
from tfbook.parallel.worker import KINDS
from tfbook.training import distributed

PROCESSES = 4
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def one() -> tuple[Gpt, list[float]]:
    model = small_gpt()
    return model, alone(model, some_batches())


@pytest.fixture(scope="module")
def launched() -> dict[str, launch.Launched]:
    return launch.launch_kinds(small_gpt(), some_batches(), list(KINDS), processes=PROCESSES)


def with_weights(state: dict[str, Tensor]) -> Gpt:
    model = deepcopy(small_gpt())
    model.load_state_dict(state)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_processes_train_the_model_of_one(
    kind: str, one: tuple[Gpt, list[float]], launched: dict[str, launch.Launched]
) -> None:
    found = launched[kind]
    assert largest_difference(one[0], with_weights(found.state)) < 1e-10
    assert found.losses == pytest.approx(one[1], abs=1e-12)
    sent = sum(sum(each.values()) for each in found.sent)
    assert sent == pytest.approx(STEPS * wire_bytes(kind, shape_of(one[0]), PROCESSES), rel=0.01)
    if found.loopback is not None:  # by the system's own count; gloo's reduce-scatter sends twice the ring's bytes
        assert found.loopback > 0.95 * sent


def test_each_process_holds_what_the_formula_says(launched: dict[str, launch.Launched]) -> None:
    whole = sum(weight.numel() for weight in small_gpt().parameters())
    for kind, stage in {"data": "data parallel", "sharded": "ZeRO-3"}.items():
        expected = memory_by_part(whole, PROCESSES, stage, DOUBLE)
        for held in launched[kind].held:
            assert held == pytest.approx(expected, rel=0.02), kind
    shape = shape_of(small_gpt())
    for held in launched["tensor"].held:  # norms and the row-split layers' biases are everywhere
        cut = 8 * (shape.around + shape.blocks / PROCESSES)
        assert cut < held["weights"] < 1.15 * cut
    ends = [held["weights"] for held in launched["pipeline"].held]
    assert ends[0] == ends[-1] == pytest.approx(8 * (shape.blocks / 4 + shape.around), rel=0.02)
    assert ends[1] == ends[2] == 8 * shape.blocks // 4


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts the memory that a process had at most")
def test_memory_peaks_where_the_formula_says() -> None:
    """Large enough that a few texts' activations and the runtime's own buffers are little beside it."""
    torch.manual_seed(1)
    model = Gpt(24, replace(CONFIG, d_model=448, d_ff=1792))
    found = launch.launch_kinds(model, some_batches(steps=2), list(KINDS), processes=PROCESSES)
    for kind in KINDS:
        expected = peak_bytes(kind, shape_of(model), PROCESSES)
        for peak in found[kind].peak:
            assert peak == pytest.approx(expected, rel=0.1), kind


def test_a_killed_process_costs_the_steps_since_the_last_checkpoint(one: tuple[Gpt, list[float]]) -> None:
    rows, state = launch.launch_elastic(small_gpt(), some_batches(), processes=2, killed=(7, 1), checkpoint_every=3)
    assert [(row["attempt"], row["step"]) for row in rows] == [
        *((0, step) for step in range(7)),
        *((1, step) for step in range(6, STEPS)),
    ]
    for row in rows:
        assert row["loss"] == pytest.approx(one[1][row["step"]], abs=1e-12)
    assert largest_difference(one[0], with_weights(state)) < 1e-10


def test_ddp_trains_the_model_of_one(one: tuple[Gpt, list[float]], tmp_path: Path) -> None:
    torch.save({"model": small_gpt(), "batches": some_batches()}, tmp_path / "start.pt")
    launch.torchrun(2, "tfbook.parallel.replicas", [str(tmp_path)])
    assert largest_difference(one[0], with_weights(torch.load(tmp_path / "trained.pt"))) < 1e-10


OUT_OF_ORDER = """
import json, os, signal, sys, torch
from pathlib import Path
from torch import distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
a, b = torch.tensor([1.0 + rank]), torch.tensor([100.0 * (1 + rank)])
for each in (a, b) if rank == 0 else (b, a):
    dist.all_reduce(each)
seen = {"sums": [a.item(), b.item()]}
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, which may come first
try:
    dist.all_reduce(a)
except RuntimeError as error:
    seen["error"] = str(error)
Path(sys.argv[1], "seen.json").write_text(json.dumps(seen))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="signals, and gloo's words for what happened")
def test_collectives_out_of_order_are_silent_and_a_killed_process_is_not(tmp_path: Path) -> None:
    """Right would be 3 and 300; the other process's `all_reduce` raises an error, and doesn't wait in vain."""
    with pytest.raises(RuntimeError):
        distributed.launch(OUT_OF_ORDER, str(tmp_path), processes=2, timeout=100)
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert seen["sums"] == [201.0, 102.0]
    assert "peer" in seen["error"]


def test_a_clock_beside_one_and_two_processes() -> None:
    small, large = launch_clock(small_gpt(), [ids[:rows] for ids in some_batches(steps=1) for rows in (2, 4)], rounds=2)
    assert small["tokens"] * 2 == large["tokens"]
    for row in (small, large):
        assert min(row["alone computing"], row["together computing"], row["together sum"]) > 0
        assert row["alone waiting"] == 0
        assert row["alone sum"] < row["together sum"]
        whole = row["together computing"] + row["together waiting"] + row["together sum"]
        assert row["times as fast"] == pytest.approx(row["alone computing"] / whole, rel=0.2)  # medians of two rounds
        assert len(row["ratios"]) == 2


def test_a_failure_says_what_went_wrong() -> None:
    with pytest.raises(RuntimeError, match=r"1 processes of tfbook\.nowhere failed:[\s\S]*No module named"):
        launch.torchrun(1, "tfbook.nowhere", [])


def test_a_checkpoint_is_whole_or_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.pt"
    save_whole(path, {"step": 1})

    def breaks(state: object, beside: BinaryIO) -> None:
        beside.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", breaks)
    with pytest.raises(KeyboardInterrupt):
        save_whole(path, {"step": 2})
    assert torch.load(path) == {"step": 1}
