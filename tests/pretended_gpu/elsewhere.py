"""A pretended accelerator: its tensors are computed on the CPU, and refuse to meet tensors that lie on the CPU.

Without a GPU it finds what a GPU finds: "Expected all tensors to be on the same device", a list of lengths that lies on
the wrong side, an array that NumPy cannot read. `install` registers it as PyTorch's device `elsewhere`; a tensor there
is a wrapper around a tensor here, and a dispatch mode runs each operation on what is inside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "elsewhere"
aten = torch.ops.aten
MOVES = (aten._to_copy, aten.copy_)  # may read from one side and write to the other
INDEXES = (aten.index, aten.index_put, aten.index_put_, aten._unsafe_index)  # CUDA, too, takes indices from the CPU
LENGTHS = (aten._pack_padded_sequence,)  # expects lengths on the CPU


class Elsewhere(Tensor):
    """Holds a tensor of the CPU, `here`, and says that it lies elsewhere."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> Elsewhere:
        wrapper = Tensor._make_wrapper_subclass(
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            layout=here.layout,
            device=torch.device(NAME),
        )
        wrapper.here = here
        return wrapper

    def tolist(self) -> Any:
        """The numbers, for which a program waits."""
        return self.here.tolist()

    def numpy(self, **options: Any) -> Any:
        """Raises TypeError, as for a CUDA tensor."""
        raise TypeError(f"can't convert {NAME} device type tensor to numpy. Use Tensor.cpu() to copy the tensor first.")

    __array__ = numpy

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copied: Tensor = Elsewhere(self.here.detach().clone())
            if isinstance(self, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, self.requires_grad)
            memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Elsewhere, (self.here.detach(),)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(function, args, kwargs or {})


def run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on what lies inside; raises RuntimeError where tensors of both sides meet."""
    flat, spec = tree_flatten((args, kwargs))
    away = [x for x in flat if isinstance(x, Elsewhere)]
    near = [x for x in flat if isinstance(x, Tensor) and not isinstance(x, Elsewhere)]
    if away and any(x.dim() for x in near) and function.overloadpacket not in (*MOVES, *INDEXES, *LENGTHS):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {NAME} and cpu, in {function}"
        )
    inside, options = tree_unflatten([_inside(x) for x in flat], spec)
    output = function(*inside, **options)
    if _writes(function) and not isinstance(output, tuple | list):
        return kwargs.get("out", args[0] if args else output)  # in place: what the caller holds
    target = kwargs.get("device")
    there = bool(away) if target is None else torch.device(target).type == NAME
    return tree_map(_outside, output) if there else output


def _inside(x: Any) -> Any:
    if isinstance(x, Elsewhere):
        return x.here
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == NAME else x


def _outside(x: Any) -> Any:
    return Elsewhere(x) if isinstance(x, Tensor) and not isinstance(x, Elsewhere) else x


def _writes(function: Any) -> bool:
    returns = function._schema.returns
    return bool(returns and returns[0].alias_info is not None and returns[0].alias_info.is_write)


class Pretended(TorchDispatchMode):
    """Runs operations without a tensor of either side, such as `torch.zeros(3, device="elsewhere")`."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(function, args, kwargs or {})


def install() -> Pretended:
    """Makes the device known, for the rest of the process."""
    _setup_privateuseone_for_python_backend(NAME)
    mode = Pretended()
    mode.__enter__()
    return mode
