"""Processes that train one model together: who they are, what they tell one another, and the grid that they form.

`torchrun --nproc-per-node 4 -m tfbook.pretrain` starts four; without it there is one process, and nothing here takes
any time. How a model is placed on the grid is in `placement`.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed as dist, nn

from tfbook import runtime

T = TypeVar("T", bound=float | Tensor)


@contextmanager
def processes() -> Iterator[None]:
    """Makes the processes that `torchrun` started one group, each with a GPU of its own where there are GPUs.

    What the hosts have to agree on, such as a stop, then goes from host to host, and no GPU is waited for.
    """
    if "WORLD_SIZE" not in os.environ:
        yield
        return
    on_gpu = runtime.device().type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", **_meeting_place())
    try:
        with arranged():
            yield
    finally:
        _mesh.cache_clear()
        dist.destroy_process_group()


def _meeting_place() -> dict[str, Any]:
    """After a restart by `torchrun` another one than before, where the addresses of the dead still stand."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0":
        return {}
    store, number, count = next(dist.rendezvous("env://"))
    return {"store": dist.PrefixStore(f"restart {attempt}", store), "rank": number, "world_size": count}


def world_size() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0; process 0 writes files and prints."""
    return dist.get_rank() if world_size() > 1 else 0


# ---- the grid: data × tensor -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProcessGrid:
    """`data` rows of `tensor` processes each: a row reads its share of a batch, and splits the matrices among itself.

    With `shard`, each row also keeps only its share of weights, gradients and moments.
    """

    data: int = 1
    tensor: int = 1
    shard: bool = False
    mesh: Any = None  # the `DeviceMesh` (replica, shard, tensor); None for one process

    @property
    def row(self) -> int:
        """The row of this process, from 0."""
        return rank() // self.tensor

    def __str__(self) -> str:
        processes = self.data * self.tensor
        split = f", {self.data} × {self.tensor} (data × tensor)" if self.tensor > 1 else ""
        return f"{processes} process{'es' if processes > 1 else ''}{split}{', sharded' if self.shard else ''}"


_grids = [ProcessGrid()]  # the one in use last


def grid() -> ProcessGrid:
    """The grid in use: all processes in one column, unless they are `arranged` otherwise."""
    return _grids[-1]


@contextmanager
def arranged(*, shard: bool = False, tensor_parallel: int = 1) -> Iterator[ProcessGrid]:
    """Inside, the processes form a grid with rows of `tensor_parallel`; with `shard`, the rows share the weights.

    One process is a grid of its own, whatever `shard` says. Raises ValueError when the rows cannot be filled.
    """
    data, rest = divmod(world_size(), tensor_parallel) if tensor_parallel > 0 else (0, 0)
    if rest or not data:
        found = f"tensor_parallel is {tensor_parallel}"
        raise ValueError(
            f"{found}; expected a divisor of {world_size()}, the number of processes that torchrun started"
        )
    _grids.append(ProcessGrid(data, tensor_parallel, shard, _mesh(data, tensor_parallel, shard)))
    try:
        yield grid()
    finally:
        _grids.pop()


@cache
def _mesh(data: int, tensor: int, shard: bool) -> Any:
    """The mesh of a grid, None for one process; whose groups are made once, since to make them is to meet."""
    if data * tensor == 1:
        return None
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)  # it has advice on speed
    from torch.distributed.device_mesh import init_device_mesh  # here, because one process does without

    shape = (1, data, tensor) if shard else (data, 1, tensor)
    return init_device_mesh(runtime.device().type, shape, mesh_dim_names=("replica", "shard", "tensor"))


# ---- what they tell one another ----------------------------------------------------------------------------------


def mean(value: float) -> float:
    """Mean over the processes, the same number in each."""
    if world_size() == 1:
        return float(value)
    everywhere = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(everywhere)
    return float(everywhere) / world_size()


def total(value: T) -> T | Tensor:
    """Sum over the rows of the grid, the same in each process; of tensors where they are, of numbers on the CPU."""
    if grid().data == 1:
        return value
    everywhere = torch.as_tensor(value).clone()
    dist.all_reduce(everywhere, group=_rows())
    return everywhere


def _rows() -> Any:
    """The group of the processes that are in this one's place in the other rows."""
    return grid().mesh.get_group("shard" if grid().shard else "replica")


def all_gathered(value: Any) -> list[Any]:
    """The value of each process, in the order of their numbers."""
    values = [value] * world_size()
    if world_size() > 1:
        dist.all_gather_object(values, value)
    return values


def broadcast(model: nn.Module) -> None:
    """Every process gets the weights of the first, and every row of the grid those that the first row has split."""
    if world_size() == 1:
        return
    for weight in model.state_dict().values():
        if hasattr(weight, "to_local"):
            dist.broadcast(weight.to_local(), group=_rows(), group_src=0)
        else:
            dist.broadcast(weight, 0)


@contextmanager
def first_in_turn() -> Iterator[None]:
    """Process 0 runs the body before the others do, so that they find the files that it wrote."""
    if rank() > 0:
        dist.barrier()
    yield
    if world_size() > 1 and rank() == 0:
        dist.barrier()


# ---- processes of one's own --------------------------------------------------------------------------------------


def launch(
    script: str | Path,
    *arguments: str,
    processes: int = 2,
    restarts: int = 0,
    timeout: float = 300,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs a script under `torchrun` in so many processes on this machine's CPUs; returns what they print.

    `script` is the path of a file, or the text of a program. When a process dies, all begin again, up to `restarts`
    times. Each has one thread and this process's environment, with `environment` on top. Raises RuntimeError, with the
    end of what was printed, when they fail or take more than `timeout` seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(script, str):
            path = Path(folder, "script.py")
            path.write_text(script, encoding="utf-8")
        else:
            path = script
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(processes)]
        command += ["--master-addr", "127.0.0.1", "--master-port", str(_free_port())]
        command += ["--max-restarts", str(restarts), str(path), *arguments]
        return _printed(command, timeout, environment or {})


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _printed(command: list[str], timeout: float, environment: Mapping[str, str]) -> str:
    root = str(Path(__file__).parents[2])  # so that the script finds this tfbook, installed or not
    own = {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))), "OMP_NUM_THREADS": "1"}
    own |= {"TFBOOK_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1", "TQDM_DISABLE": "1"}
    own |= {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    own |= environment
    run = subprocess.Popen(
        command, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    )
    try:
        printed, _ = run.communicate(timeout=timeout)
    except BaseException as error:  # the stop button, too, leaves no process behind
        run.terminate()
        printed, _ = run.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise RuntimeError(f"the processes took more than {timeout:g} s; they printed\n{printed[-2000:]}") from None
    if run.returncode:
        raise RuntimeError(f"the processes failed; they printed\n{printed[-4000:]}")
    return printed
