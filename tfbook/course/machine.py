"""Checks of the machine that runs the lessons: `machine.check()` prints one line per check, and how to fix a problem.

Each check imports what it needs, so that a missing package is a finding and not an error.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

MARKS = {"ok": "✓", "note": "○", "problem": "✗"}
OLDEST_PYTHON, OLDEST_TORCH = (3, 11), (2, 9)
PACKAGES = {  # the name for pip: the name for Python
    "torch": "torch",
    "torchvision": "torchvision",
    "numpy": "numpy",
    "pandas": "pandas",
    "scipy": "scipy",
    "matplotlib": "matplotlib",
    "cycler": "cycler",
    "seaborn": "seaborn",
    "pillow": "PIL",
    "ipython": "IPython",
    "tqdm": "tqdm",
    "einops": "einops",
    "jaxtyping": "jaxtyping",
    "platformdirs": "platformdirs",
    "pooch": "pooch",
    "requests": "requests",
    "filelock": "filelock",
    "scikit-learn": "sklearn",
    "sacrebleu": "sacrebleu",
    "mistune": "mistune",
    "latex2mathml": "latex2mathml",
    "tokenizers": "tokenizers",
    "regex": "regex",
    "huggingface_hub": "huggingface_hub",
    "safetensors": "safetensors",
}
VARIABLES = (
    "TFBOOK_SCALE",
    "TFBOOK_PRECISION",
    "TFBOOK_DEVICE",
    "TFBOOK_DATA",
    "TFBOOK_MIRROR",
    "TFBOOK_OFFLINE",
    "TFBOOK_PROGRESS",
    "TFBOOK_REAL",  # the last four concern the tests
    "TFBOOK_CHECK",
    "TFBOOK_PRETENDED",
    "TFBOOK_SITE",
)
MIN_FREE_GB = 1.0  # the size of the real corpora of all lessons, unpacked
MAX_SLOWDOWN = 2.0  # time with all threads ÷ with one; it is 3 to 20 with another program on the cores
TIMEOUT_S = 1.5  # for each address of a corpus


@dataclass(frozen=True)
class Finding:
    """The result of a check: a key of `MARKS`, and in `fix` what to do unless it is "ok"."""

    verdict: str
    text: str
    fix: str = ""


Check = Callable[[], Finding]


def check() -> None:
    """Prints the result of each of `CHECKS`: ✓ works, ○ optional for lessons, ✗ must be fixed. Never raises."""
    width, problems = max(map(len, CHECKS)), 0
    for name, one in CHECKS.items():
        finding = examine(one)
        problems += finding.verdict == "problem"
        print(f"{MARKS[finding.verdict]} {name:{width}}  {finding.text}", flush=True)
        if finding.fix:
            print(textwrap.indent(textwrap.fill(f"→ {finding.fix}", 80, subsequent_indent="  "), " " * (width + 4)))
    lines = "1 line needs" if problems == 1 else f"{problems} lines need"
    print(f"\n{lines} fixing: do what the arrow says, restart, and run this cell again." if problems else "\nReady.")


def examine(one: Check) -> Finding:
    """The finding of a check; an exception inside it becomes a problem with a message, without a traceback."""
    try:
        return one()
    except Exception as error:  # a broken installation can raise anything
        if isinstance(error, ModuleNotFoundError) and error.name in PACKAGES.values():
            return Finding("note", f"not checked: {error}")  # the line on packages says how to fix that
        fix = "Please report this line at https://github.com/OWNER/tfbook/issues."
        return Finding("problem", f"this check stopped with {type(error).__name__}: {_first_line(error)}", fix)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


# ---- Python and its packages -------------------------------------------------------------------------------------


def python() -> Finding:
    """Python is new enough."""
    version, oldest = _dotted(sys.version_info[:3]), _dotted(OLDEST_PYTHON)
    if sys.version_info[:2] < OLDEST_PYTHON:
        fix = f"Install Python {oldest} or newer, then run `make clean lab`."
        return Finding("problem", f"{version} is too old; the course needs {oldest}", fix)
    return Finding("ok", version)


def packages() -> Finding:
    """Every package that a lesson imports is installed."""
    missing = [package for package, module in PACKAGES.items() if find_spec(module) is None]
    if missing:
        fix = f"Run `%pip install {' '.join(missing)}` in a cell."
        return Finding("problem", f"missing: {', '.join(missing)}", fix)
    return Finding("ok", f"all {len(PACKAGES)} are installed")


def torch_and_vision() -> Finding:
    """PyTorch is new enough, and torchvision was built for it."""
    import torch

    if torch.__version__ < OLDEST_TORCH:  # type: ignore[operator] # a TorchVersion compares with tuples
        fix = "Run `%pip install --upgrade torch torchvision` in a cell."
        text = f"{torch.__version__} is too old; the course needs {_dotted(OLDEST_TORCH)}"
        return Finding("problem", text, fix)
    try:
        import torchvision
    except Exception as error:  # RuntimeError "operator torchvision::nms does not exist" when the builds do not match
        fix = "Run `%pip install --force-reinstall torch torchvision` in a cell: they must be installed together."
        return Finding("problem", f"torchvision does not match torch {torch.__version__} ({_first_line(error)})", fix)
    return Finding("ok", f"{torch.__version__}, with torchvision {torchvision.__version__}")


# ---- device and threads ------------------------------------------------------------------------------------------


def compute_device() -> Finding:
    """The device that lessons use works, and no GPU is unused by mistake."""
    import torch

    from tfbook import runtime

    chosen, fix = runtime.device(), "Set TFBOOK_DEVICE=cpu to continue without it."
    try:
        product = (torch.full((2, 3), 2.0, device=chosen) @ torch.ones(3, 2, device=chosen)).tolist()
    except RuntimeError as error:  # this build of torch has no code for the GPU, or its memory is full
        return Finding("problem", f"{chosen} does not work ({_first_line(error)})", fix)
    if product != [[6.0, 6.0], [6.0, 6.0]]:
        return Finding("problem", f"{chosen} computes 2 + 2 + 2 = {product[0][0]:g}", fix)
    by_default = {"TFBOOK_DEVICE", "CUDA_VISIBLE_DEVICES"}.isdisjoint(os.environ)
    if chosen.type == "cpu" and by_default and (gpu := _nvidia_gpu()):
        return Finding("note", f"cpu, while {gpu} is unused", _how_to_use_gpu(torch.version.cuda))
    return Finding("ok", f"{chosen}, {torch.cuda.get_device_name(chosen)}" if chosen.type == "cuda" else str(chosen))


def _nvidia_gpu() -> str:
    """The first GPU's name according to the NVIDIA driver; empty if there is none."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    if not shutil.which(command[0]):
        return ""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=2, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.partition("\n")[0].strip()


def _how_to_use_gpu(cuda: str | None) -> str:
    if cuda is None:
        return "This torch is built for CPUs only: pytorch.org/get-started shows how to install one for your GPU."
    return f"The driver is older than CUDA {cuda}, for which this torch is built: update the driver."


def threads() -> Finding:
    """All threads together are not slower than one, as they would be with another program on a core."""
    import torch

    count = torch.get_num_threads()
    if count == 1:
        return Finding("ok", f"1 on {os.cpu_count()} cores")
    slowdown = _seconds_per_product(count) / _seconds_per_product(1)
    if slowdown > MAX_SLOWDOWN:
        fix = "Close the program that keeps the cores busy, or set OMP_NUM_THREADS=1 before Jupyter starts."
        return Finding("problem", f"{count} together are {slowdown:.0f} times slower than one", fix)
    return Finding("ok", f"{count}, together {1 / slowdown:.1f} times as fast as one")


def _seconds_per_product(threads: int, repeats: int = 15) -> float:
    """Median seconds of a matrix product of the size used in lessons."""
    import torch

    before, seconds = torch.get_num_threads(), []
    states, weights = torch.ones(256, 512), torch.ones(512, 512)
    torch.set_num_threads(threads)
    try:
        for _ in range(repeats):
            start = time.perf_counter()
            states @ weights
            seconds.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    return statistics.median(seconds)


# ---- settings, folders and corpora -------------------------------------------------------------------------------


def settings() -> Finding:
    """Every TFBOOK_… variable that is set exists and has a valid value."""
    from tfbook import runtime

    given = sorted(name for name, value in os.environ.items() if name.startswith("TFBOOK_") and value)
    if unknown := [name for name in given if name not in VARIABLES]:
        return Finding(
            "problem", f"no such variable: {', '.join(unknown)}", f"The variables are {', '.join(VARIABLES)}."
        )
    try:
        runtime.scale(), runtime.precision(), runtime.device()
    except ValueError as error:
        return Finding("problem", _first_line(error), "Correct the variable, or unset it.")
    mirror = os.environ.get("TFBOOK_MIRROR", "")
    if mirror and not mirror.startswith(("http://", "https://")) and not Path(mirror).expanduser().is_dir():
        return Finding(
            "problem", f"TFBOOK_MIRROR is {mirror!r}, which is not a folder", "Correct the path, or unset the variable."
        )
    return Finding("ok", f"scale {runtime.scale()}; set by you: {', '.join(given) or 'nothing'}")


def data_folder() -> Finding:
    """Downloads can be cached."""
    from tfbook.data.download import cache_folder

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1024))
    except OSError as error:
        fix = "Set TFBOOK_DATA to a folder that you can write to."
        return Finding("problem", f"{_short(folder)} is not writable ({error.strerror})", fix)
    return Finding("ok", f"{_short(folder)} is writable")


def _short(path: Path) -> str:
    """The path with ~ for the home folder: shorter, and without the user name."""
    return f"~/{path.relative_to(Path.home()).as_posix()}" if path.is_relative_to(Path.home()) else str(path)


def free_disk() -> Finding:
    """The disk with the data folder has room for the real corpora."""
    from tfbook.data.download import cache_folder

    folder = cache_folder().absolute()
    free = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.is_dir())).free / 1e9
    if free < MIN_FREE_GB:
        fix = "Free some space, or set TFBOOK_DATA to a folder on another disk."
        return Finding("problem", f"{free:.1f} GB; the real corpora need up to {MIN_FREE_GB:g} GB", fix)
    return Finding("ok", f"{free:.0f} GB")


def shipped_corpora() -> Finding:
    """The corpora that ship with tfbook are present."""
    names = _corpora(shipped=True)
    if missing := [name for name in names if not _is_available(name)]:
        fix = "Reinstall tfbook, or clone the whole repository: they are in its folder data."
        return Finding("problem", f"missing: {', '.join(missing)}", fix)
    return Finding("ok", f"available: {', '.join(names)}")


def real_corpora() -> Finding:
    """The public corpora are in the data folder, or available from a mirror or the network."""
    names = _corpora(shipped=False)
    with ThreadPoolExecutor() as pool:  # in parallel, so that a dead network costs one timeout
        found = list(pool.map(_is_available, names))
    if missing := [name for name, there in zip(names, found, strict=True) if not there]:
        fix = f"Lessons use the corpora that come with tfbook instead. {_how_to_get_corpora()}"
        return Finding("note", f"not available: {', '.join(missing)}", fix)
    return Finding("ok", f"available: {', '.join(names)}")


def _corpora(*, shipped: bool) -> list[str]:
    from tfbook.data.registry import DATASETS

    return [name for name, dataset in DATASETS.items() if shipped != any(file.urls for file in dataset.files)]


def _is_available(name: str) -> bool:
    from tfbook.data.download import can_fetch
    from tfbook.data.registry import DATASETS

    return all(can_fetch(file, seconds=TIMEOUT_S) for file in DATASETS[name].files)


def _how_to_get_corpora() -> str:
    from tfbook.data.download import is_offline

    if is_offline():
        return "TFBOOK_OFFLINE forbids the network: unset it, or set TFBOOK_MIRROR to a folder that has them."
    if mirror := os.environ.get("TFBOOK_MIRROR"):
        return f"TFBOOK_MIRROR, {mirror}, does not have them, and no public address answers."
    return "Connect to the network, or set TFBOOK_MIRROR to a folder or an address that has them."


CHECKS: dict[str, Check] = {
    "Python": python,
    "packages": packages,
    "torch": torch_and_vision,
    "device": compute_device,
    "threads": threads,
    "settings": settings,
    "data folder": data_folder,
    "free disk": free_disk,
    "corpora": shipped_corpora,
    "real corpora": real_corpora,
}
