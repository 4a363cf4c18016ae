"""A pretended accelerator: its tensors are computed on the CPU, and refuse to meet tensors that lie on the CPU.

Without a GPU it finds what a GPU finds: "Expected all tensors to be on the same device", a generator or a list of
lengths on the wrong side, an array that NumPy cannot read. `install` registers it as PyTorch's device `elsewhere`; a
tensor there is a wrapper around a tensor here, and a dispatch mode runs each operation on what is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import recurrent_cells
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "elsewhere"
aten = torch.ops.aten
MOVES = (aten._to_copy, aten.copy_, aten._has_compatible_shallow_copy_type)  # from one side to the other
INDEXES = (aten.index, aten.index_put, aten.index_put_, aten._unsafe_index)  # CUDA, too, takes indices from the CPU
LENGTHS = {  # the place of an argument that has to lie on the CPU
    aten._pack_padded_sequence.default: 1,
    aten._pack_padded_sequence_backward.default: 2,
    aten._pad_packed_sequence.default: 1,
    aten.gru.data: 1,
    aten.lstm.data: 1,
    aten.rnn_tanh.data: 1,
}
JOINS = (aten.cat, aten.stack)  # refuse even a single number that lies on the other side
INSTEAD = {
    aten._thnn_fused_gru_cell: recurrent_cells.gru,
    aten._thnn_fused_gru_cell_backward: recurrent_cells.gru_backward,
    aten._thnn_fused_lstm_cell: recurrent_cells.lstm,
    aten._thnn_fused_lstm_cell_backward_impl: recurrent_cells.lstm_backward,
    aten._conj: aten.conj_physical,  # inside of a dispatch, the bit that says "conjugate me" is not looked at
    aten._neg_view: aten.neg,
}


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
            device=torch.device(NAME, 0),
        )
        wrapper.here = here
        return wrapper

    def __repr__(self, **_: Any) -> str:
        return f"{repr(self.here.detach())[:-1]}, device='{NAME}:0')"

    def __format__(self, specification: str) -> str:
        return format(self.here.item(), specification) if self.dim() == 0 else object.__format__(self, specification)

    def tolist(self) -> Any:
        """The numbers, for which a program waits."""
        return self.here.tolist()

    def numpy(self, **_: Any) -> Any:
        """Raises TypeError, as for a CUDA tensor."""
        raise TypeError(
            f"can't convert {NAME}:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor first."
        )

    __array__ = numpy

    def data_ptr(self) -> int:
        """The address of what is inside, by which tied weights are known."""
        return self.here.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        """The memory of what is inside."""
        return self.here.untyped_storage()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copied: Tensor = Elsewhere(self.here.detach().clone())
            if isinstance(self, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, self.requires_grad)
            memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        arguments = (self.here.detach(), self.dtype, f"{NAME}:0", self.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, arguments

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(function, args, kwargs or {})


class Generator(torch.Generator):
    """A generator of the CPU that says that it lies elsewhere."""

    @property
    def device(self) -> torch.device:
        """Where its numbers go."""
        return torch.device(NAME, 0)


def run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on what lies inside; raises RuntimeError where tensors of both sides meet."""
    _refuse_mixtures(function, args, kwargs)
    inside, options = _mapped(_inside, args), _mapped(_inside, kwargs)
    output = INSTEAD.get(function.overloadpacket, function)(*inside, **options)
    if torch.Tag.inplace_view in function.tags and isinstance(args[0], Elsewhere):
        with no_dispatch():
            function(*args, **kwargs)  # the wrapper's shape changes, too
    alias = function._schema.returns[0].alias_info if function._schema.returns else None
    if alias is not None and alias.is_write and not isinstance(output, tuple | list):
        return kwargs.get("out", args[0] if args else output)  # in place: what the caller holds
    if not goes_there(args, kwargs):
        return output
    if function in (aten._pack_padded_sequence.default, aten._pad_packed_sequence.default):
        return _outside(output[0]), output[1]  # lengths, which stay here
    inference = torch.is_inference_mode_enabled() and alias is None  # a view is what its base is
    with torch.inference_mode(inference):
        return _mapped(_outside, output)


def goes_there(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether the result lies elsewhere: where the caller wants it, or where an argument lies."""
    target = kwargs.get("device")
    if target is None:
        return any(isinstance(x, Elsewhere) for x in _items((args, kwargs)))
    return torch.device(target).type == NAME


def _refuse_mixtures(function: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Raises RuntimeError where CUDA would; a single number may lie on the CPU."""
    place = LENGTHS.get(function)
    if place is not None:
        if isinstance(args[place], Elsewhere):
            raise RuntimeError(f"lengths must be on the CPU, but got a {NAME}:0 Long tensor (in {function})")
        args = (*args[:place], *args[place + 1 :])
    tensors = [x for x in _items((args, kwargs)) if isinstance(x, Tensor)]
    away = any(isinstance(x, Elsewhere) for x in tensors)
    least = 0 if function.overloadpacket in JOINS else 1
    near = any(not isinstance(x, Elsewhere) and x.dim() >= least for x in tensors)
    if away and near and function.overloadpacket not in (*MOVES, *INDEXES):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{NAME}:0 and cpu! (in {function})"
        )


def _items(value: Any) -> Iterator[Any]:
    """What tuples, lists and dictionaries hold."""
    if isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _items(item)
    else:
        yield value


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """The value, with what tuples, lists and dictionaries hold changed."""
    if isinstance(value, dict):
        return {key: _mapped(change, item) for key, item in value.items()}
    return type(value)([_mapped(change, x) for x in value]) if isinstance(value, tuple | list) else change(value)


def _inside(x: Any) -> Any:
    if isinstance(x, Elsewhere):
        return x.here
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == NAME else x


def _outside(x: Any) -> Any:
    return Elsewhere(x) if isinstance(x, Tensor) and not isinstance(x, Elsewhere) else x


class Pretended(TorchDispatchMode):
    """Runs operations without a tensor of either side, such as `torch.zeros(3, device="elsewhere")`."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(function, args, kwargs or {})


class Calls(TorchFunctionMode):
    """Looks at what the other mode is not shown: generators, and calls that ask for memory of the device."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(generator := kwargs.get("generator"), torch._C.Generator):
            _refuse_generator(generator, goes_there(args, kwargs))
        if function in (torch.tensor, torch.as_tensor) and goes_there((), kwargs):
            return _made_here(function, *args, **kwargs)
        if function is Tensor.new_tensor and isinstance(args[0], Elsewhere):
            return _made_here(torch.tensor, *args[1:], **{"dtype": args[0].dtype, "device": args[0].device} | kwargs)
        if function in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], Elsewhere):
            args = (args[0], _listed(args[1]), *args[2:])
        if function is Tensor.pin_memory:
            return args[0]
        return function(*args, **kwargs)


def _listed(index: Any) -> Any:
    """An index in which lists of numbers are tensors of the CPU."""
    if isinstance(index, tuple):
        return tuple(map(_listed, index))
    return torch.tensor(index) if isinstance(index, list) else index


def _refuse_generator(generator: torch.Generator, there: bool) -> None:
    """Raises RuntimeError for a generator of the other side, as CUDA does."""
    if isinstance(generator, Generator) != there:
        wanted = NAME if there else "cpu"
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{generator.device.type}'")


def _made_here(function: Any, *args: Any, device: Any, requires_grad: bool = False, **options: Any) -> Tensor:
    """A tensor made of numbers, then moved."""
    return function(*args, **options).to(device).requires_grad_(requires_grad)


class Backend(_DummyBackendModule):
    """What `torch.cuda` offers and the course asks for."""

    def synchronize(self, device: Any = None) -> None:
        """Returns at once: nothing waits in a queue."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """The precisions of autocast."""
        return [torch.bfloat16, torch.float16]

    def get_rng_state(self, device: Any = None) -> Tensor:
        """The state of the generator of both sides, which is the CPU's."""
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        """Restores what `get_rng_state` returned."""
        torch.set_rng_state(state)


class _AnyGenerator(type(torch.Generator)):
    """The class that `torch.Generator` names: makes one of either side, and counts both as its own."""

    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        kind = Generator if torch.device(device).type == NAME else torch._C.Generator
        return kind.__new__(kind, "cpu")

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


def _keep_tied_weights() -> None:
    """Makes a module that moves swap its weights in place, as `Parameter.data = …` does between the CPU and CUDA."""
    plain = torch.nn.Module._apply

    def swapping(self: torch.nn.Module, function: Any, recurse: bool = True) -> torch.nn.Module:
        before = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return plain(self, function, recurse)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)

    torch.nn.Module._apply = swapping


def install() -> None:
    """Makes the device known, for the rest of the process; to be called before tfbook is imported."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=Backend())
    torch.Generator = _AnyGenerator("Generator", (torch._C.Generator,), {})
    _keep_tied_weights()
    Pretended().__enter__()
    Calls().__enter__()
