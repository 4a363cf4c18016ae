"""A counter of what makes a program wait for an accelerator."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Looks(TorchDispatchMode):
    """Counts what makes a program wait for an accelerator: values that are read, and shapes that depend on values."""

    WAITING = ("_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero", "unique", "masked_select")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += any(word in function.name().partition(".")[0] for word in self.WAITING)
        return function(*args, **(kwargs or {}))
