"""What `setup` chooses, random numbers, and edited code in the place of the package's."""

import os
import platform
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from tfbook import attention, runtime
from tfbook.attention import masks
from tfbook.generation import search
from tfbook.lessons.bahdanau_attention import exercises as bahdanau_attention
from tfbook.lessons.gpt_pretraining import ladder
from tfbook.models import blocks, seq2seq

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No choice made for us, none remembered; nothing left replaced."""
    for variable in ("TFBOOK_SCALE", "TFBOOK_PRECISION", "TFBOOK_DEVICE"):
        monkeypatch.delenv(variable, raising=False)
    remembered = (runtime.device, runtime.precision)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()
    runtime.restore()


# ---- device, scale and precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")], ids=str
)
def test_the_device_is_the_first_accelerator_there(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert runtime.device() == torch.device(expected)


def test_a_variable_overrides_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TFBOOK_DEVICE", "cpu")
    assert runtime.device() == CPU


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "CPU "])
def test_a_device_that_cannot_be_used_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TFBOOK_DEVICE", name)
    with pytest.raises(ValueError, match=f"TFBOOK_DEVICE is {name!r}; expected a device such as cpu or cuda"):
        runtime.device()


@pytest.mark.parametrize(("device", "expected"), [("cpu", "cpu"), ("mps", "cpu"), ("cuda", "gpu")])
def test_the_scale_follows_the_device(monkeypatch: pytest.MonkeyPatch, device: str, expected: str) -> None:
    monkeypatch.setattr(runtime, "device", lambda: torch.device(device))
    assert runtime.scale() == expected


@pytest.mark.parametrize("scale", runtime.SCALES)
def test_a_variable_overrides_the_scale_and_pick_follows(monkeypatch: pytest.MonkeyPatch, scale: str) -> None:
    monkeypatch.setenv("TFBOOK_SCALE", scale)
    assert runtime.scale() == scale
    assert runtime.pick(quick="q", cpu="c", gpu="g") == scale[0]


@pytest.mark.parametrize(
    ("variable", "function", "choices"),
    [("TFBOOK_SCALE", runtime.scale, "quick, cpu, gpu"), ("TFBOOK_PRECISION", runtime.precision, "float32, bfloat16")],
)
def test_a_value_that_does_not_exist_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, function: object, choices: str
) -> None:
    monkeypatch.setenv(variable, "huge")
    with pytest.raises(ValueError, match=f"{variable} is 'huge'; expected one of {choices}"):
        function()


def test_an_empty_variable_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "device", lambda: CPU)
    for variable in ("TFBOOK_SCALE", "TFBOOK_DEVICE"):
        monkeypatch.setenv(variable, "")
    assert runtime.scale() == "cpu"


@pytest.mark.parametrize(
    ("bfloat16", "expected"), [(0.1, "bfloat16"), (0.39, "bfloat16"), (0.41, "float32"), (5.0, "float32")]
)
def test_a_cpu_computes_in_bfloat16_where_the_probe_says_that_it_pays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bfloat16: float, expected: str
) -> None:
    """A product in float32 takes 1; with AMX one in bfloat16 takes a fifth, without up to 25 times as long."""
    monkeypatch.setenv("TFBOOK_DATA", str(tmp_path))
    seconds = {torch.float32: 1.0, torch.bfloat16: bfloat16}
    monkeypatch.setattr(runtime, "device", lambda: CPU)
    monkeypatch.setattr(runtime, "_seconds_per_product", lambda dtype: seconds[dtype])
    assert runtime.precision() == expected
    monkeypatch.setattr(runtime, "_seconds_per_product", lambda dtype: 1.0)
    assert runtime.precision() == expected, "it is measured once"


def chosen_by_a_process(folder: Path | str, speedup: float, **variables: str) -> str:
    """The precision that a new process chooses where the probe finds this speedup."""
    code = (
        "import torch\nfrom tfbook import runtime\n"
        f"runtime._seconds_per_product = {{torch.float32: {speedup}, torch.bfloat16: 1.0}}.get\n"
        "print(runtime.precision())"
    )
    free = {name: value for name, value in os.environ.items() if not name.startswith("TFBOOK_")}
    own = {"TFBOOK_DATA": str(folder), "TFBOOK_DEVICE": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=free | own | variables, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_a_machine_keeps_its_precision_whatever_later_probes_find(tmp_path: Path) -> None:
    """Each process measures anew and with noise; the first one decides, unless a variable says otherwise."""
    assert chosen_by_a_process(tmp_path / "new", 9.0) == "bfloat16"
    assert chosen_by_a_process(tmp_path / "new", 1.0) == "bfloat16"
    assert chosen_by_a_process(tmp_path / "new", 1.0, TFBOOK_PRECISION="float32") == "float32"
    assert [path.read_text() for path in (tmp_path / "new" / "precision").iterdir()] == ["bfloat16"]


@pytest.mark.parametrize("folder", ["file", "file/below", "~nobody_of_this_name/cache"])
def test_a_folder_that_cannot_be_written_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str
) -> None:
    """Then each process measures for itself, and nothing is left in the working directory."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFBOOK_DATA", folder)
    monkeypatch.setattr(runtime, "device", lambda: CPU)
    monkeypatch.setattr(runtime, "_faster_precision", lambda: "bfloat16")
    assert runtime.precision() == "bfloat16"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("content", [b"", b"float64", b"\xff\xfe\x00", b"float"])
def test_a_damaged_note_is_written_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "note"
    path.write_bytes(content)
    assert runtime._remembered(path, ("float32", "bfloat16"), lambda: "bfloat16") == "bfloat16"
    assert runtime._remembered(path, ("float32", "bfloat16"), lambda: "float32") == "bfloat16"
    assert [*tmp_path.iterdir()] == [path]


def test_a_disk_without_links_keeps_the_note_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", link)
    for measured in ("bfloat16", "float32"):
        assert runtime._remembered(tmp_path / "note", ("float32", "bfloat16"), lambda m=measured: m) == "bfloat16"


def test_all_that_measure_at_once_agree(tmp_path: Path) -> None:
    """Eight that begin together, every other one with another result."""
    together = threading.Barrier(8)

    def choose(number: int) -> str:
        def measure() -> str:
            together.wait()
            return ("float32", "bfloat16")[number % 2]

        return runtime._remembered(tmp_path / "new" / "note", ("float32", "bfloat16"), measure)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(choose, range(8)))) == 1


def test_the_note_is_one_for_each_cpu_and_version_of_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TFBOOK_DATA", str(tmp_path))
    paths = set()
    for cpu in ("Some(R) CPU/9 @ 2.00GHz", "Other"):
        for version in ("2.6.0+cpu", "2.7.0"):
            monkeypatch.setattr(runtime, "cpu_name", lambda cpu=cpu: cpu)
            monkeypatch.setattr(torch, "__version__", version)
            paths.add(runtime._precision_file())
    assert len(paths) == 4
    assert {path.parent for path in paths} == {tmp_path / "precision"}


@pytest.mark.parametrize("dtype", runtime.PRECISIONS.values(), ids=runtime.PRECISIONS)
def test_the_probe_measures_a_product(dtype: torch.dtype) -> None:
    assert 0 < runtime._seconds_per_product(dtype, size=8, repeats=2) < 1


@pytest.mark.parametrize(("supported", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_a_gpu_computes_in_bfloat16_when_it_can_without_emulation(
    monkeypatch: pytest.MonkeyPatch, supported: bool, expected: str
) -> None:
    """A T4, Colab's GPU, emulates it, slowly."""
    monkeypatch.setattr(runtime, "device", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation or supported)
    assert runtime.precision() == expected


@pytest.mark.parametrize(("precision", "dtype"), runtime.PRECISIONS.items())
def test_autocast_computes_products_at_the_chosen_precision(
    monkeypatch: pytest.MonkeyPatch, precision: str, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(runtime, "device", lambda: CPU)
    monkeypatch.setenv("TFBOOK_PRECISION", precision)
    with runtime.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_setup_seeds_and_prints_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TFBOOK_DEVICE", "cpu")
    monkeypatch.setenv("TFBOOK_PRECISION", "float32")
    found = runtime.setup(7)
    printed = capsys.readouterr().out
    assert torch.initial_seed() == 7
    assert printed == f"{found}\n"
    assert re.fullmatch(r"cpu \(.*, \d+ threads?\) · float32 · scale cpu · torch \S+\n", printed)
    assert (found.device, found.precision, found.scale) == (CPU, "float32", "cpu")


def test_synchronize_has_nothing_to_wait_for_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """And waits for the device where there is one."""
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append("cuda"))
    for name in ("cpu", "cuda"):
        monkeypatch.setattr(runtime, "device", lambda name=name: torch.device(name))
        runtime.synchronize()
    assert waited == ["cuda"]


# ---- memory ------------------------------------------------------------------------------------------------------

ROUNDS = """
import resource, sys, torch
from tfbook import runtime

if sys.argv[1] == "keep":
    assert runtime.keep_memory()

def fetched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [torch.ones(10 << 20) for _ in range(2)]  # of more than the 32 MB that glibc may come to keep by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print([fetched() for _ in range(12)][-1])
"""
GLIBC = platform.libc_ver()[0] == "glibc"


def fetched_again(keep: str) -> int:
    """Pages that 84 MB of tensors, which stood there eleven times before, take from the system."""
    asked = subprocess.run([sys.executable, "-c", ROUNDS, keep], capture_output=True, text=True, check=True)
    return int(asked.stdout)


@pytest.mark.skipif(not GLIBC, reason="only glibc's allocator can be asked to keep memory")
def test_memory_that_is_kept_is_not_fetched_again() -> None:
    assert fetched_again("keep") < fetched_again("no") / 10


def test_setup_keeps_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setenv("TFBOOK_PRECISION", "float32")
    monkeypatch.setattr(runtime, "keep_memory", lambda: asked.append(True))
    runtime.setup()
    assert asked == [True]


def test_another_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    runtime.keep_memory.cache_clear()
    assert not runtime.keep_memory()
    runtime.keep_memory.cache_clear()


@pytest.mark.parametrize(("block", "total"), [(0, 1), (2, 1), (1, 1 << 31)])
def test_sizes_that_the_allocator_cannot_take_are_refused(block: int, total: int) -> None:
    with pytest.raises(ValueError, match=rf"block is {block} and total is {total}; expected 0 < block ≤ total"):
        runtime.keep_memory(block, total)


# ---- random numbers ----------------------------------------------------------------------------------------------


def _draws() -> tuple[float, ...]:
    return random.random(), float(np.random.rand()), torch.rand(()).item()  # noqa: NPY002


@pytest.mark.parametrize("number", [0, 1, 2**32 + 5])
def test_a_seed_fixes_every_generator(number: int) -> None:
    runtime.seed(number)
    first = _draws()
    assert _draws() != first
    runtime.seed(number)
    assert _draws() == first
    runtime.seed(number + 1)
    assert all(a != b for a, b in zip(_draws(), first, strict=True))


def test_an_integer_of_numpy_is_a_seed() -> None:
    """As in `for seed in np.arange(3)`; Python's own generator refuses it."""
    runtime.seed(3)
    first = _draws()
    runtime.seed(np.int64(3))
    assert _draws() == first


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(ValueError, match="number is -1; a seed must be 0 or more"):
        runtime.seed(-1)


def test_the_random_state_continues_where_it_was_taken() -> None:
    state = runtime.random_state()
    following = _draws()
    runtime.seed(5)
    runtime.set_random_state(state)
    assert _draws() == following


def test_randomness_is_untouched_by_what_happens_inside_even_an_error() -> None:
    runtime.seed(1)
    expected = _draws()
    runtime.seed(1)
    with pytest.raises(ZeroDivisionError), runtime.fork_rng():
        _ = runtime.seed(9), _draws(), 1 / 0
    assert _draws() == expected


# ---- edited code -------------------------------------------------------------------------------------------------


def test_an_edited_function_reaches_every_module_until_it_is_restored() -> None:
    """The model that is built from the package then calls it; the exercise of that name stays an exercise."""
    original, exercise = attention.masked_softmax, bahdanau_attention.masked_softmax

    @runtime.use
    def masked_softmax(scores: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return torch.full_like(scores, 0.5)

    assert attention.masked_softmax is seq2seq.masked_softmax is masked_softmax
    assert bahdanau_attention.masked_softmax is exercise
    config = seq2seq.Seq2SeqConfig(source_vocab=5, target_vocab=5, d_embed=2, d_hidden=2)
    model = seq2seq.Translator(seq2seq.RecurrentEncoder(config), seq2seq.LuongDecoder(config))
    source = torch.tensor([[4, 4, 2]])
    assert search.greedy_search(model, source, torch.tensor([3]), max_length=1).weights.tolist() == [[[0.5] * 3]]
    runtime.restore()
    assert attention.masked_softmax is seq2seq.masked_softmax is original
    sums = search.greedy_search(model, source, torch.tensor([3]), max_length=1).weights.sum()
    assert sums.item() == pytest.approx(1)


def test_an_edited_class_is_used_by_models_built_afterwards() -> None:
    class AdditiveScore(seq2seq.AdditiveScore):
        pass

    config = seq2seq.Seq2SeqConfig(source_vocab=5, target_vocab=5, d_embed=2, d_hidden=2)
    before = seq2seq.BahdanauDecoder(config)
    assert runtime.use(AdditiveScore) is AdditiveScore
    assert type(seq2seq.BahdanauDecoder(config).score) is AdditiveScore
    assert type(before.score) is not AdditiveScore


def test_using_twice_and_restoring_once_gives_the_package_back() -> None:
    original = masks.padding_mask
    for _ in range(2):

        @runtime.use
        def padding_mask() -> None: ...

    assert seq2seq.padding_mask is padding_mask
    runtime.restore()
    assert masks.padding_mask is seq2seq.padding_mask is original
    runtime.restore()
    assert masks.padding_mask is original


def test_a_name_that_tfbook_does_not_hold_is_refused() -> None:
    def masked_sofmax() -> None: ...

    with pytest.raises(LookupError, match="no loaded module of tfbook holds 'masked_sofmax', so there is nothing to"):
        runtime.use(masked_sofmax)


def test_a_name_that_means_two_things_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a later lesson has an encoder of its own: which one was edited?"""
    other = ModuleType("tfbook.other")
    other.RecurrentEncoder = type("RecurrentEncoder", (), {})
    monkeypatch.setitem(sys.modules, "tfbook.other", other)
    before = seq2seq.RecurrentEncoder
    with pytest.raises(
        LookupError, match=r"'RecurrentEncoder' means different things in .*tfbook\.models\.seq2seq, tfbook\.other"
    ):
        runtime.use(type("RecurrentEncoder", (), {}))
    assert seq2seq.RecurrentEncoder is before


def test_a_class_that_a_lesson_has_for_itself_is_not_the_one_that_was_edited() -> None:
    """Lesson 09 builds a FeedForward of its own, and stores runs of it."""
    of_lesson, of_package = ladder.FeedForward, blocks.FeedForward
    edited = runtime.use(type("FeedForward", (of_package,), {}))
    assert blocks.FeedForward is edited
    assert ladder.FeedForward is of_lesson
    runtime.restore()
    assert blocks.FeedForward is of_package


def test_a_module_that_is_loaded_later_or_has_another_name_for_it_is_restored_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when a lesson edits a function first and imports an experiment that uses it afterwards."""
    before, later = ModuleType("tfbook.before"), ModuleType("tfbook.later")
    before.alias = original = masks.padding_mask
    monkeypatch.setitem(sys.modules, "tfbook.before", before)

    @runtime.use
    def padding_mask() -> None: ...

    assert before.alias is padding_mask
    later.padding_mask = masks.padding_mask
    monkeypatch.setitem(sys.modules, "tfbook.later", later)
    runtime.use(padding_mask)
    runtime.restore()
    assert before.alias is later.padding_mask is masks.padding_mask is original


@pytest.mark.parametrize("edited", [3, "masked_softmax", None, torch.ones(2)], ids=repr)
def test_what_is_no_class_or_function_is_refused(edited: object) -> None:
    with pytest.raises(TypeError, match=f"edited is {type(edited).__name__}; expected a class or a function"):
        runtime.use(edited)
