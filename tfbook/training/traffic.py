"""The bytes that processes send one another, counted as they do it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor, distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

KINDS = {"allgather": "all-gather", "reducescatter": "reduce-scatter", "allreduce": "all-reduce"}
NUMBER = 8  # bytes of one, such as a loss to print


class Traffic(TorchDispatchMode):
    """Inside, counts the bytes that this process sends by kind of message, in `sent`; sums of single numbers are free.

    By a ring, each of N processes sends (N − 1) / N of the whole to gather it or to sum and scatter it, and twice that
    to sum it for all (Patarasuk & Yuan, 2009). What gloo or NCCL do on the wire may differ for small messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """The bytes of all messages."""
        return sum(self.sent.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function; adds what it sends if it is a message to all."""
        found = func(*args, **kwargs or {})
        if func.namespace in ("c10d", "_c10d_functional"):
            self._count(func._schema.name.partition("::")[2].replace("_", ""), found, args)
        return found

    def _count(self, name: str, found: Any, args: Any) -> None:
        if name == "send":
            self.sent["send"] += sum(_sizes(args))
        for start, kind in KINDS.items():
            size = max(_sizes(found if kind == "all-gather" else args) or _sizes(args), default=0)
            if name.startswith(start) and (kind != "all-reduce" or size > NUMBER):
                twice = 2 if kind == "all-reduce" else 1
                self.sent[kind] += twice * size * (_processes(args) - 1) // _processes(args)


def _sizes(tree: Any) -> list[int]:
    """The bytes of each tensor in a tree of lists."""
    if isinstance(tree, Tensor):
        return [tree.numel() * tree.element_size()]
    return [size for part in tree for size in _sizes(part)] if isinstance(tree, list | tuple) else []


def _processes(args: Any) -> int:
    """The size of the group that a message goes to, which is given as an object or by its name."""
    for arg in args:
        if isinstance(arg, str) and arg not in ("sum", "avg"):
            return dist.distributed_c10d._resolve_process_group(arg).size()  # type: ignore[arg-type]
        if type(arg).__name__ == "ScriptObject" and "ProcessGroup" in arg._type().qualified_name():
            return dist.ProcessGroup.unbox(arg).size()
    return dist.get_world_size()
