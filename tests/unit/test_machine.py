"""Each check of the machine in health and in every failure that it knows, with the message that a reader gets."""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.torch_version import TorchVersion

from tfbook import runtime
from tfbook.course import machine
from tfbook.course.machine import Finding
from tfbook.data import download
from tfbook.data.download import File
from tfbook.data.registry import DATASETS

ROOT = Path(__file__).parents[2]
find_spec = machine.find_spec


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No variable of ours but the folder and the ban on the network; nothing remembered from or for other tests."""
    for name in [name for name in os.environ if name.startswith("TFBOOK_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("TFBOOK_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TFBOOK_OFFLINE", "1")
    remembered = (runtime.device, runtime.precision)  # by name here, since tests replace them
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


def raising(error: BaseException) -> Callable[..., None]:
    """A function that raises `error` whatever it is given."""

    def stand_in(*arguments: object, **options: object) -> None:
        raise error

    return stand_in


class TestReport:
    def test_it_prints_a_verdict_a_line_and_says_that_all_is_well(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(
            machine, "CHECKS", {"a": lambda: Finding("ok", "fine"), "long": lambda: Finding("note", "-")}
        )
        machine.check()
        assert capsys.readouterr().out == "✓ a     fine\n○ long  -\n\nReady.\n"

    @pytest.mark.parametrize(("count", "words"), [(1, "1 line needs fixing"), (2, "2 lines need fixing")])
    def test_it_counts_what_has_to_be_fixed(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int, words: str
    ) -> None:
        checks = {f"c{number}": lambda: Finding("problem", "broken", "Fix it.") for number in range(count)}
        monkeypatch.setattr(machine, "CHECKS", checks)
        machine.check()
        printed = capsys.readouterr().out
        assert printed.startswith("✗ c0  broken\n      → Fix it.\n")
        assert words in printed

    def test_a_check_that_breaks_is_a_problem_with_its_first_line(self) -> None:
        finding = machine.examine(raising(OSError("the disk\nis gone")))
        assert finding.verdict == "problem"
        assert finding.text == "this check stopped with OSError: the disk"
        assert finding.fix == "Please report this line at https://github.com/OWNER/tfbook/issues."

    def test_a_check_that_lacks_a_package_leaves_the_fix_to_the_line_on_packages(self) -> None:
        missing = ModuleNotFoundError("No module named 'einops'", name="einops")
        assert machine.examine(raising(missing)) == Finding("note", "not checked: No module named 'einops'")

    def test_a_module_that_is_no_package_of_ours_is_a_problem(self) -> None:
        missing = ModuleNotFoundError("No module named 'tfbook.data'", name="tfbook.data")
        assert machine.examine(raising(missing)).verdict == "problem"

    def test_on_any_machine_it_ends_within_seconds_and_raises_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        start = time.perf_counter()
        machine.check()
        assert time.perf_counter() - start < 20  # torchvision alone takes three where it is imported for the first time
        lines = capsys.readouterr().out.splitlines()
        assert [line[2:].split("  ")[0] for line in lines if line[:1] in machine.MARKS.values()] == [*machine.CHECKS]

    def test_it_runs_where_no_package_is_installed(self) -> None:
        """Such as the first time in a bare Python: the report is about that, so it must not need torch itself."""
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tfbook.course import machine; machine.check()"
        command = [sys.executable, "-I", "-S", "-c", code]  # without site-packages
        output = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True, encoding="utf-8"
        ).stdout
        assert "✗ packages      missing: torch, " in output
        assert "○ torch         not checked: No module named 'torch'" in output


class TestPython:
    def test_this_one_is_new_enough(self) -> None:
        assert machine.python() == Finding("ok", ".".join(map(str, sys.version_info[:3])))

    def test_an_old_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
        expected = "Install Python 3.11 or newer, then run `make clean lab`."
        assert machine.python() == Finding("problem", "3.10.4 is too old; the course needs 3.11", expected)


class TestPackages:
    def test_they_are_those_of_pyproject(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert {re.split("[<>=]", line)[0] for line in project["dependencies"]} == set(machine.PACKAGES)

    def test_they_are_here(self) -> None:
        assert machine.packages() == Finding("ok", f"all {len(machine.PACKAGES)} are installed")

    def test_missing_ones_are_named_as_pip_calls_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gone = {"sklearn", "tokenizers"}
        monkeypatch.setattr(machine, "find_spec", lambda name: None if name in gone else find_spec(name))
        expected = "Run `%pip install scikit-learn tokenizers` in a cell."
        assert machine.packages() == Finding("problem", "missing: scikit-learn, tokenizers", expected)


class TestTorch:
    def test_bounds_are_those_of_pyproject(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert f"torch>={machine._dotted(machine.OLDEST_TORCH)}" in project["dependencies"]
        assert project["requires-python"] == f">={machine._dotted(machine.OLDEST_PYTHON)}"

    def test_the_pair_fits(self) -> None:
        finding = machine.torch_and_vision()
        assert finding.verdict == "ok"
        assert finding.text.startswith(f"{torch.__version__}, with torchvision 0.")

    @pytest.mark.parametrize("version", ["2.8.0", "1.13.0+cu117"])
    def test_an_old_torch(self, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
        monkeypatch.setattr(torch, "__version__", TorchVersion(version))
        finding = machine.torch_and_vision()
        assert finding.verdict == "problem"
        assert finding.text == f"{version} is too old; the course needs 2.9"
        assert "%pip install --upgrade torch torchvision" in finding.fix

    def test_a_torchvision_of_another_build(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torchvision", None)  # its import now raises
        finding = machine.torch_and_vision()
        assert finding.verdict == "problem"
        assert f"torchvision does not match torch {torch.__version__} (import of torchvision halted" in finding.text
        assert "%pip install --force-reinstall torch torchvision" in finding.fix


class TestDevice:
    @pytest.fixture(autouse=True)
    def no_nvidia(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A machine without accelerators, whatever the tests run on."""
        monkeypatch.setattr(machine, "_nvidia_gpu", lambda: "")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)

    def test_the_cpu(self) -> None:
        assert machine.compute_device() == Finding("ok", "cpu")

    def test_a_gpu_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        full, ones = torch.full, torch.ones
        monkeypatch.setattr(runtime, "device", lambda: torch.device("cuda"))
        monkeypatch.setattr(torch, "full", lambda *arguments, device: full(*arguments))
        monkeypatch.setattr(torch, "ones", lambda *arguments, device: ones(*arguments))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
        assert machine.compute_device() == Finding("ok", "cuda, Tesla T4")

    def test_one_that_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        message = "CUDA error: no kernel image is available\nCompile with TORCH_USE_CUDA_DSA"
        monkeypatch.setattr(torch, "full", raising(RuntimeError(message)))
        expected = "cpu does not work (CUDA error: no kernel image is available)"
        assert machine.compute_device() == Finding("problem", expected, "Set TFBOOK_DEVICE=cpu to continue without it.")

    def test_one_that_computes_nonsense(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "full", lambda *arguments, device: torch.zeros(2, 3))
        assert machine.compute_device().text == "cpu computes 2 + 2 + 2 = 0"

    @pytest.mark.parametrize(
        ("cuda", "fix"),
        [
            (None, "This torch is built for CPUs only: pytorch.org/get-started shows how to install one for your GPU."),
            ("13.2", "The driver is older than CUDA 13.2, for which this torch is built: update the driver."),
        ],
    )
    def test_a_gpu_that_torch_cannot_use(self, monkeypatch: pytest.MonkeyPatch, cuda: str | None, fix: str) -> None:
        monkeypatch.setattr(machine, "_nvidia_gpu", lambda: "Tesla T4")
        monkeypatch.setattr(torch.version, "cuda", cuda)
        assert machine.compute_device() == Finding("note", "cpu, while Tesla T4 is unused", fix)

    @pytest.mark.parametrize("variable", ["TFBOOK_DEVICE", "CUDA_VISIBLE_DEVICES"])
    def test_a_gpu_that_the_reader_left_out(self, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        monkeypatch.setattr(machine, "_nvidia_gpu", lambda: "Tesla T4")
        monkeypatch.setenv(variable, "cpu" if variable == "TFBOOK_DEVICE" else "")
        assert machine.compute_device() == Finding("ok", "cpu")


class TestNvidiaGPU:
    def test_a_machine_without_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "which", lambda name: None)
        assert machine._nvidia_gpu() == ""

    @pytest.mark.parametrize(
        ("run", "name"),
        [
            (lambda *command, **options: SimpleNamespace(stdout="NVIDIA H200\nNVIDIA H200\n"), "NVIDIA H200"),
            (raising(subprocess.TimeoutExpired("nvidia-smi", 2)), ""),
            (raising(subprocess.CalledProcessError(9, "nvidia-smi")), ""),
            (raising(PermissionError("nvidia-smi")), ""),
        ],
        ids=["two GPUs", "it hangs", "it fails", "it may not run"],
    )
    def test_what_the_driver_says(self, monkeypatch: pytest.MonkeyPatch, run: Callable[..., object], name: str) -> None:
        monkeypatch.setattr(shutil, "which", lambda name: name)
        monkeypatch.setattr(subprocess, "run", run)
        assert machine._nvidia_gpu() == name


class TestThreads:
    def test_one_thread_is_not_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        monkeypatch.setattr(machine, "_seconds_per_product", raising(AssertionError("timed")))
        assert machine.threads() == Finding("ok", f"1 on {os.cpu_count()} cores")

    def test_four_that_help(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
        monkeypatch.setattr(machine, "_seconds_per_product", {1: 0.3, 4: 0.1}.get)
        assert machine.threads() == Finding("ok", "4, together 3.0 times as fast as one")

    def test_two_that_stand_in_each_others_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
        monkeypatch.setattr(machine, "_seconds_per_product", {1: 0.1, 2: 1.7}.get)
        expected = "Close the program that keeps the cores busy, or set OMP_NUM_THREADS=1 before Jupyter starts."
        assert machine.threads() == Finding("problem", "2 together are 17 times slower than one", expected)

    def test_timing_leaves_the_number_of_threads_as_it_was(self) -> None:
        before = torch.get_num_threads()
        assert 0 < machine._seconds_per_product(before + 1, repeats=3) < 5
        assert torch.get_num_threads() == before


class TestSettings:
    def test_what_is_set_is_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TFBOOK_SCALE", "quick")
        monkeypatch.setenv("TFBOOK_MIRROR", "")
        expected = "scale quick; set by you: TFBOOK_DATA, TFBOOK_OFFLINE, TFBOOK_SCALE"
        assert machine.settings() == Finding("ok", expected)

    def test_nothing_is_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TFBOOK_DATA")
        monkeypatch.delenv("TFBOOK_OFFLINE")
        assert machine.settings() == Finding("ok", f"scale {runtime.scale()}; set by you: nothing")

    def test_a_misspelt_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TFBOOK_SCLAE", "quick")
        finding = machine.settings()
        assert (finding.verdict, finding.text) == ("problem", "no such variable: TFBOOK_SCLAE")
        assert finding.fix.startswith("The variables are TFBOOK_SCALE, ")

    @pytest.mark.parametrize(
        ("variable", "text"),
        [
            ("TFBOOK_SCALE", "TFBOOK_SCALE is 'huge'; expected one of quick, cpu, gpu"),
            ("TFBOOK_PRECISION", "TFBOOK_PRECISION is 'huge'; expected one of float32, bfloat16"),
            ("TFBOOK_DEVICE", "TFBOOK_DEVICE is 'huge'; expected a device such as cpu or cuda"),
        ],
    )
    def test_an_impossible_value(self, monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> None:
        monkeypatch.setenv(variable, "huge")
        finding = machine.settings()
        assert finding.verdict == "problem"
        assert finding.text.startswith(text)
        assert finding.fix == "Correct the variable, or unset it."

    def test_a_mirror_that_is_no_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TFBOOK_MIRROR", "no/such/folder")
        expected = "TFBOOK_MIRROR is 'no/such/folder', which is not a folder"
        assert machine.settings() == Finding("problem", expected, "Correct the path, or unset the variable.")

    @pytest.mark.parametrize("mirror", [str(ROOT), "http://127.0.0.1:9/corpora"])
    def test_a_mirror_that_may_be_one(self, monkeypatch: pytest.MonkeyPatch, mirror: str) -> None:
        monkeypatch.setenv("TFBOOK_MIRROR", mirror)
        assert machine.settings().verdict == "ok"

    def test_the_variables_are_those_that_the_project_reads(self) -> None:
        files = [*(ROOT / "tfbook").rglob("*.py"), ROOT / "Makefile", ROOT / "tests" / "conftest.py"]
        read = {name for file in files for name in re.findall(r"\bTFBOOK_[A-Z]+", file.read_text(encoding="utf-8"))}
        assert read == set(machine.VARIABLES)


class TestDataFolder:
    def test_it_is_made(self, tmp_path: Path) -> None:
        assert machine.data_folder().verdict == "ok"
        assert [*(tmp_path / "data").iterdir()] == []

    def test_the_home_folder_is_not_spelt_out(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(Path, "home", lambda: tmp_path)
        assert machine.data_folder() == Finding("ok", "~/data is writable")

    def test_a_file_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "data").touch()
        finding = machine.data_folder()
        assert finding.verdict == "problem"
        assert finding.text.startswith(f"{tmp_path / 'data'} is not writable (")
        assert finding.fix == "Set TFBOOK_DATA to a folder that you can write to."

    def test_a_disk_that_may_only_be_read(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(Path, "mkdir", raising(OSError(30, "Read-only file system")))
        assert machine.data_folder().text == f"{tmp_path / 'data'} is not writable (Read-only file system)"


class TestFreeDisk:
    def test_it_asks_the_disk_of_the_folder_that_will_be(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked = []
        monkeypatch.setattr(shutil, "disk_usage", lambda path: asked.append(path) or SimpleNamespace(free=12.3e9))
        assert machine.free_disk() == Finding("ok", "12 GB")
        assert asked == [tmp_path]

    def test_a_full_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0.31e9))
        expected = "Free some space, or set TFBOOK_DATA to a folder on another disk."
        assert machine.free_disk() == Finding("problem", "0.3 GB; the real corpora need up to 1 GB", expected)


class TestCorpora:
    @pytest.fixture(autouse=True)
    def two_corpora(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """One that ships and one from elsewhere, in a package whose own folder is empty."""
        small = File(path="small.txt")
        large = File(path="large.txt", urls=("http://127.0.0.1:9/large.txt",), check=Path.read_bytes)
        registry = {name: SimpleNamespace(files=(file,)) for name, file in [("small", small), ("large", large)]}
        monkeypatch.setattr("tfbook.data.registry.DATASETS", registry)
        monkeypatch.setattr(download, "SHIPPED", (tmp_path,))

    def test_the_shipped_one(self, tmp_path: Path) -> None:
        (tmp_path / "small.txt").touch()
        assert machine.shipped_corpora() == Finding("ok", "available: small")

    def test_the_shipped_one_is_gone(self) -> None:
        expected = "Reinstall tfbook, or clone the whole repository: they are in its folder data."
        assert machine.shipped_corpora() == Finding("problem", "missing: small", expected)

    def test_a_mirror_has_the_other_one(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "mirror").mkdir()
        (tmp_path / "mirror" / "large.txt").touch()
        monkeypatch.setenv("TFBOOK_MIRROR", str(tmp_path / "mirror"))
        assert machine.real_corpora() == Finding("ok", "available: large")

    @pytest.mark.parametrize(
        ("variables", "way"),
        [
            ({"TFBOOK_OFFLINE": "1"}, "TFBOOK_OFFLINE forbids the network: unset it, or set TFBOOK_MIRROR to"),
            ({"TFBOOK_MIRROR": "lost"}, "TFBOOK_MIRROR, lost, does not have them, and no public address answers."),
            ({}, "Connect to the network, or set TFBOOK_MIRROR to a folder or an address that has them."),
        ],
        ids=["offline", "an empty mirror", "no network"],
    )
    def test_the_other_one_is_out_of_reach(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], way: str
    ) -> None:
        monkeypatch.delenv("TFBOOK_OFFLINE")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        finding = machine.real_corpora()
        assert (finding.verdict, finding.text) == ("note", "not available: large")
        assert finding.fix.startswith(f"Lessons use the corpora that come with tfbook instead. {way}")

    def test_a_network_that_swallows_everything_costs_the_time_of_one_corpus(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As behind some firewalls, where nothing is refused and nothing answers."""
        registry = {f"c{n}": SimpleNamespace(files=(File(path=f"{n}", urls=("u",), sha256="0"),)) for n in range(4)}
        monkeypatch.setattr("tfbook.data.registry.DATASETS", registry)
        monkeypatch.setattr("tfbook.data.download.can_fetch", lambda file, seconds: bool(time.sleep(seconds / 3)))
        start = time.perf_counter()
        assert machine.real_corpora().text == "not available: c0, c1, c2, c3"
        assert time.perf_counter() - start < machine.TIMEOUT_S


def test_the_real_registry_has_both_kinds() -> None:
    """So that neither line of the report is empty."""
    names = machine._corpora(shipped=True), machine._corpora(shipped=False)
    assert all(names)
    assert {*names[0], *names[1]} == set(DATASETS)
