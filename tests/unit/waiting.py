"""What makes the host of an accelerator wait: values that are read, and shapes that depend on values."""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
ASKING = {  # their result on the host, or its shape, depends on values
    *(aten._local_scalar_dense, aten.item, aten.is_nonzero, aten.equal, aten.nonzero, aten.masked_select),
    aten.multinomial,  # looks at its probabilities
    *(aten._unique2, aten.unique_dim, aten.unique_consecutive, aten.repeat_interleave),
}
READING = {Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__}  # of which no operator of a CPU tensor tells

CHOOSING = {torch.where, Tensor.where}  # a number is sent to CUDA as a tensor, and the copy is waited for


class Waits(TorchDispatchMode):
    """Inside, `found` names every operation for which the host of an accelerator would have to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.calls = Calls(self.found)

    def __enter__(self) -> "Waits":
        self.calls.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.calls.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operation = func.overloadpacket
        by_mask = operation in (aten.index, aten.index_put, aten.index_put_) and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        home = operation is aten._to_copy and args[0].device.type != "cpu" == torch.device(kwargs.get("device")).type
        if operation in ASKING or by_mask or home:
            self.found.append(str(operation))
        return func(*args, **kwargs)


class Calls(TorchFunctionMode):
    """Inside, `found` names every method that reads all of a tensor, and choices that CUDA copies a number for."""

    def __init__(self, found: list[str]):
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READING or (func in CHOOSING and any(isinstance(value, int | float) for value in args)):
            self.found.append(func.__name__)
        return func(*args, **kwargs or {})
