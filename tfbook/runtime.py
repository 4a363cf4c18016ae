"""Where and how the course computes: device, threads, precision, seed and scale; and how to swap in edited code.

The environment variables `TFBOOK_SCALE` (quick, cpu, gpu), `TFBOOK_PRECISION` (float32, bfloat16) and `TFBOOK_DEVICE`
override what `setup` would choose.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Any, SupportsIndex, TypeVar

import numpy as np
import torch

SCALES = ("quick", "cpu", "gpu")
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BF16_MIN_SPEEDUP = 2.5  # of one product; with less, a whole training step in bfloat16 was slower
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # the options that `keep_memory` sets, from glibc's <malloc.h>

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The device, threads, precision and scale that `setup` chose."""

    device: torch.device
    threads: int
    precision: str  # "float32" or "bfloat16" (autocast; weights stay float32)
    scale: str  # "quick", "cpu" or "gpu"

    def __str__(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.machine()
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''}"
        return f"{self.device} ({name}, {threads}) · {self.precision} · scale {self.scale} · torch {torch.__version__}"


def _override(variable: str, choices: tuple[str, ...]) -> str | None:
    value = os.environ.get(variable)
    if value and value not in choices:
        raise ValueError(f"{variable} is {value!r}; expected one of {', '.join(choices)}")
    return value or None


@cache
def device() -> torch.device:
    """The accelerator if there is one: CUDA, else Apple's MPS, else the CPU."""
    if name := os.environ.get("TFBOOK_DEVICE"):
        try:
            torch.empty(0, device=name)
        except (RuntimeError, AssertionError) as error:  # an unknown name, or a device that this machine or build lacks
            reason = str(error).partition("\n")[0]
            raise ValueError(f"TFBOOK_DEVICE is {name!r}; expected a device such as cpu or cuda ({reason})") from None
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def scale() -> str:
    """The size at which lessons run: `cpu` (the default), `gpu` (when there is CUDA), or `quick` (a smoke test)."""
    return _override("TFBOOK_SCALE", SCALES) or ("gpu" if device().type == "cuda" else "cpu")


def pick(*, quick: T, cpu: T, gpu: T) -> T:
    """The value for the current scale, so that a lesson can choose its hyperparameters in one cell."""
    return {"quick": quick, "cpu": cpu, "gpu": gpu}[scale()]


def _seconds_per_product(dtype: torch.dtype, size: int = 512, repeats: int = 5) -> float:
    a = torch.ones(size, size, dtype=dtype)
    durations = []
    for _ in range(repeats + 1):  # the first product includes a setup
        start = time.perf_counter()
        a @ a
        durations.append(time.perf_counter() - start)
    return min(durations[1:])


@cache
def precision() -> str:
    """`bfloat16` where it is faster: on GPUs that support it, and on CPUs where a short timing shows it (AMX).

    What the timing says of a kind of CPU is kept in the cache folder: it is noisy, and a lesson's numbers depend on it.
    """
    if chosen := _override("TFBOOK_PRECISION", tuple(PRECISIONS)):
        return chosen
    if device().type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if device().type == "mps":
        return "float32"
    return _remembered(_precision_file(), tuple(PRECISIONS), _faster_precision)


def _faster_precision() -> str:
    speedup = _seconds_per_product(torch.float32) / _seconds_per_product(torch.bfloat16)
    return "bfloat16" if speedup >= BF16_MIN_SPEEDUP else "float32"


def _precision_file() -> Path | None:
    """One for each kind of CPU and version of torch, in the cache folder; None where there is no such folder."""
    if not (folder := os.environ.get("TFBOOK_DATA")):
        from platformdirs import user_cache_dir

        folder = user_cache_dir("tfbook")
    kind = re.sub(r"[^\w.]+", "-", f"{cpu_name()} torch {torch.__version__}")
    with suppress(RuntimeError):  # no home folder
        return Path(folder).expanduser() / "precision" / kind
    return None


def cpu_name() -> str:
    """The CPU's model, as the system names it."""
    with suppress(OSError):
        if found := re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return found[1]
    return platform.processor() or platform.machine()


def _remembered(path: Path | None, choices: tuple[str, ...], measure: Callable[[], str]) -> str:
    """The choice that the file at `path` holds, else the one that is measured, which the file then holds.

    Of processes that measure at once the first decides. A folder that cannot be read or written is no error.
    """
    if path is None:
        return measure()
    if (known := _choice(path, choices)) is not None:
        return known
    measured = measure()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            complete = Path(folder) / path.name
            complete.write_text(measured)
            with suppress(OSError):
                os.link(complete, path)  # refused where there is a file, as that of a faster process
            if _choice(path, choices) is None:  # a damaged file, or a disk without links
                os.replace(complete, path)
    return _choice(path, choices) or measured


def _choice(path: Path, choices: tuple[str, ...]) -> str | None:
    with suppress(OSError, ValueError):  # ValueError: not text
        found = path.read_text().strip()
        return found if found in choices else None
    return None


def autocast(enabled: bool = True) -> AbstractContextManager[None]:
    """A context in which matrix products run at the chosen precision, if `enabled`; weights and losses stay float32."""
    return torch.autocast(device().type, dtype=torch.bfloat16, enabled=enabled and precision() == "bfloat16")


def synchronize() -> None:
    """Waits until the device has finished its queue, as timing requires; a CPU has none."""
    if device().type != "cpu":
        getattr(torch, device().type).synchronize()


@cache
def keep_memory(block: int = 1 << 28, total: int = 1 << 30) -> bool:
    """Lets the process keep the memory of freed tensors of up to `block` bytes, `total` in all; False without glibc.

    Otherwise the memory of a training step returns to the system when it ends and is requested again, page by page, in
    the next one; see benchmarks/memory_reuse.py. Raises ValueError for sizes that glibc does not accept.
    """
    if not 0 < block <= total < 1 << 31:
        raise ValueError(f"block is {block} and total is {total}; expected 0 < block ≤ total < 2³¹ bytes")
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all([library.mallopt(M_MMAP_THRESHOLD, block), library.mallopt(M_TRIM_THRESHOLD, total)])


# ---- random numbers ----------------------------------------------------------------------------------------------


def seed(number: SupportsIndex) -> None:
    """Seeds Python, NumPy and PyTorch; call it once per notebook. Raises ValueError when `number` is negative."""
    number = index(number)  # Python's generator takes no integers of NumPy
    if number < 0:
        raise ValueError(f"number is {number}; a seed must be 0 or more")
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002 (other libraries use the legacy generator)
    torch.manual_seed(number)


def random_state() -> dict[str, Any]:
    """The state of every generator that `seed` seeds, in types that `torch.load` accepts with `weights_only`."""
    legacy: Any = np.random.get_state()  # noqa: NPY002
    _, keys, *position = legacy
    numpy = (torch.from_numpy(keys.astype(np.int64)), *position)
    state = {"python": random.getstate(), "numpy": numpy, "torch": torch.get_rng_state()}
    state |= {"cuda": torch.cuda.get_rng_state_all()} if torch.cuda.is_available() else {}
    return state | ({"mps": torch.mps.get_rng_state()} if torch.backends.mps.is_available() else {})


def set_random_state(state: dict[str, Any]) -> None:
    """Restores the generators to a state that `random_state` returned."""
    random.setstate(state["python"])
    keys, *position = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), *position))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    for number, generator in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(generator, number)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])


@contextmanager
def fork_rng() -> Iterator[None]:
    """Restores the state of every generator afterwards, whatever is sampled or seeded inside."""
    state = random_state()
    try:
        yield
    finally:
        set_random_state(state)


def setup(number: int = 0) -> Runtime:
    """Seeds everything, prints one line (device, threads, precision, scale), and returns it as a `Runtime`.

    From then on the process keeps the memory of freed tensors (`keep_memory`).
    """
    keep_memory()
    seed(number)
    runtime = Runtime(device=device(), threads=torch.get_num_threads(), precision=precision(), scale=scale())
    print(runtime)
    return runtime


# ---- edited classes and functions replace the package's ----------------------------------------------------------

_replaced: list[tuple[object, object]] = []  # (what the package held, what took its place)


def _modules() -> list[ModuleType]:
    return [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == "tfbook"]


def _put(new: object, old: object) -> None:
    """Puts `new` wherever a module of tfbook holds `old`, under whatever name."""
    for module in _modules():
        for name in [name for name, held in vars(module).items() if held is old]:
            setattr(module, name, new)


def use(edited: T) -> T:
    """Puts an edited class or function in place of the package's object of the same name, in every tfbook module.

    Models built afterwards use it; `restore()` undoes it. Shortcuts that assume the package's own code leave it alone.
    Raises LookupError when tfbook has no such name, or different objects of that name. Exercises of that name do not
    count, since they are neither class nor function, nor do classes and functions that a lesson has for itself where
    the package has one.
    """
    name = getattr(edited, "__name__", None)
    if not isinstance(name, str) or not callable(edited):
        raise TypeError(f"edited is {type(edited).__name__}; expected a class or a function")
    holders = [module for module in _modules() if getattr(vars(module).get(name), "__name__", None) == name]
    held = [vars(module)[name] for module in holders]
    of_package = [each for each in held if not each.__module__.startswith("tfbook.lessons.")]
    originals = {id(each): each for each in of_package or held}
    if not originals:
        raise LookupError(f"no loaded module of tfbook holds {name!r}, so there is nothing to replace")
    if len(originals) > 1:
        raise LookupError(f"{name!r} means different things in {', '.join(module.__name__ for module in holders)}")
    [original] = originals.values()
    _replaced.append((original, edited))
    _put(edited, original)
    return edited


def restore() -> None:
    """Undoes every replacement made by `use`, newest first."""
    while _replaced:
        original, edited = _replaced.pop()
        _put(original, edited)
