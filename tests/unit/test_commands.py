"""Every command line does its work or says in one sentence why not, and a run ends well on any console."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings, strategies as st

from tfbook import __main__ as course_map, console, pretrain, training
from tfbook.data.stories import __main__ as stories_main, corpus as stories
from tfbook.pretrain import driver, finetune, options, storyteller
from tfbook.pretrain.__main__ import main as pretrain_command
from tfbook.pretrain.finetune import Finetuning, finetune_command
from tfbook.pretrain.options import Options, RunOptions
from tfbook.pretrain.storyteller import MODELS, Telling, run_command

pytestmark = pytest.mark.usefixtures("float32")

ROOT = Path(__file__).parents[2]
TEXT = "Wer reitet so spät durch Nacht und Wind? Es ist der Vater mit seinem Kind.\n" * 12
SMALL = "--layers=1 --heads=2 --d-model=8 --context=8 --batch=2 --steps=2 --warmup=1 --sample=5".split()  # noqa: SIM905

Command = Callable[[list[str]], None]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, where every command takes a moment and writes no further."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    for name in ("draft", "storyteller"):
        monkeypatch.setitem(storyteller.MODELS, name, replace(MODELS["draft"], d_model=16, d_ff=32, layers=1))
    monkeypatch.setattr(finetune, "HELD_OUT", 2)
    monkeypatch.setattr(storyteller, "HELD_OUT", 2)
    monkeypatch.setattr(storyteller, "LONGEST", 12)
    monkeypatch.setattr(stories, "SPLITS", {"train": 3, "valid": 1})
    monkeypatch.setattr(stories_main, "SHIPPED", tmp_path / "stories.txt.gz")
    monkeypatch.setattr("tfbook.pretrain.run.matmul_peak", lambda: 1e9)
    monkeypatch.setattr(storyteller, "load_storyteller", storyteller.untrained)
    monkeypatch.setattr(finetune, "load_storyteller", storyteller.untrained)
    return tmp_path


def ended(command: Command, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command and the sentence after "error: ", which is one line."""
    try:
        command(arguments)
    except SystemExit as end:
        code, errors = end.code, capsys.readouterr().err
    else:
        return 0, ""
    assert isinstance(code, int)
    assert "Traceback" not in errors
    _, _, sentence = errors.rpartition("error: ")
    assert sentence.count("\n") == 1 or code == 0, errors
    return code, sentence.strip()


# ---- command lines that are drawn --------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[Command, type[RunOptions] | None, list[str]]] = {
    "pretrain": (pretrain_command, Options, [*SMALL, "--corpus", "text.txt"]),
    "finetune": (finetune_command, Finetuning, ["--model", "draft", "--steps", "2", "--batch", "2"]),
    "storyteller": (run_command, Telling, ["--model", "draft", "--steps", "1"]),
    "stories": (stories_main.stories_command, None, []),
    "map": (course_map.map_command, None, []),
}
INTEGERS = ["0", "-1", "1", "2", "3", "7", "-" + "9" * 9, "9" * 13, "9" * 40, str(2**63), "٣", "1_0", " 1 "]
FLOATS = ["0", "-1", "1", "0.5", "-0.5", "1e-3", "1e3", "1e30", "1e-400", "1e400", "nan", "inf", "-inf", "9" * 40]
WILD = ["", " ", "x", "None", "0x10", "1,5", "1e3", "nan", "-", "--", "é\udcff", "9" * 5000]
WORDS = ["draft", "storyteller", "lora", "full", "last", "rows", "rotary", "sinusoidal", "muon", "adamw", "float32"]
PATHS = [
    "",
    ".",
    "run",
    "new/er",
    "file",
    "file/run",
    "folder",
    "~nobody_x",
    "~nobody_x/run",
    "a" * 300,
    "a\0b",
    "\udcff",
]
PATHS += ["pipe", "broken", "loop", "full", "text.txt", "python-reference"]
VALUES = {int: INTEGERS, float: FLOATS, str: WORDS, bool: WORDS}  # a switch takes no value


def clutter(folder: Path) -> None:
    """What may be in the way of a run: a file, a pipe, links, and a folder where a file should be."""
    (folder / "file").write_text("mine")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "broken").symlink_to("nowhere/at/all")
    (folder / "loop").symlink_to("loop")
    (folder / "full" / "checkpoint.pt").mkdir(parents=True)


def drawn_line(dice: random.Random, kind: type[RunOptions] | None, base: list[str]) -> list[str]:
    """The line of a run of a moment, with one to three more options of values that mostly have the right type."""
    line = list(base)
    kinds = {name: kinds[0] for name, kinds in options._kinds(kind).items()} if kind else {}
    for _ in range(dice.randint(1, 3)):
        name = dice.choice([*kinds]) if kinds and dice.random() < 0.95 else dice.choice(["help", "nonsense", "s"])
        pool = WILD if dice.random() < 0.1 else PATHS if name in ("out", "corpus") else VALUES[kinds.get(name, int)]
        value, flag = dice.choice(pool), f"--{name.replace('_', '-')}"
        line += (
            [value]
            if not kinds and dice.random() < 0.8
            else [f"{flag}={value}"]
            if dice.random() < 0.8
            else [flag, value]
        )
    return line


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_drawn_command_line_works_or_says_why_not(
    name: str, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never with a traceback, nor with an endless run: 60 lines of each command, with the longest runs cut short."""

    fit = training.fit

    def short(model: Any, loss: Any, batches: Any, recipe: training.Recipe, **more: Any) -> training.History:
        steps, accumulate = min(recipe.steps, 2), min(recipe.accumulate, 2)
        return fit(model, loss, batches, replace(recipe, steps=steps, accumulate=accumulate), **more)

    monkeypatch.setattr(training, "fit", short)
    command, kind, base = COMMANDS[name]
    dice, codes = random.Random(name), []
    clutter(tiny)
    for number in range(60):
        line = drawn_line(dice, kind, [*base, "--out", f"out{number}"] if kind else base)
        code, sentence = ended(command, line, capsys)
        codes.append(code)
        assert code in (0, 2), (line, sentence)
        assert code == 0 or len(sentence) > 10, (line, sentence)
    assert (tiny / "file").read_text() == "mine"
    assert codes.count(0) >= (0 if name == "map" else 4), "some lines are runs"


@pytest.mark.parametrize(
    ("command", "line", "sentence"),
    [
        (run_command, "--judge 0", "judge is 0; expected 1 or more"),
        (run_command, "--judge -3", "judge is -3; expected 1 or more"),
        (run_command, f"--judge {10**9}", "the run needs "),
        (run_command, "--steps 0", "steps is 0; expected 1 or more"),
        (run_command, "--steps -1", "steps is -1; expected 1 or more"),
        (run_command, f"--steps {10**30}", f"steps is {10**30}; expected at most 1,000,000,000"),
        (run_command, "--out=", "out is ''; expected a folder, new or that of a run"),
        (run_command, "--out ~nobody_x", "out is '~nobody_x'; expected a folder (Could not determine home directory.)"),
        (finetune_command, "--steps 0", "steps is 0; expected 1 or more"),
        (finetune_command, "--seed -1", "seed is -1; expected 0 to 2⁶³ − 1"),
        (finetune_command, "--lr inf", "lr is inf; expected a finite number"),
        (finetune_command, f"--rank {10**9}", "the run needs "),
        (finetune_command, f"--batch {10**9}", "the run needs "),
        (pretrain_command, "--lr inf", "lr is inf; expected a finite number"),
        (pretrain_command, "--weight-decay inf", "weight_decay is inf; expected a finite number"),
        (pretrain_command, f"--layers {10**9}", "the run needs "),
        (pretrain_command, f"--batch {10**10}", f"batch is {10**10}; expected at most 1,000,000,000"),
        (pretrain_command, "--batch 100000000 --context 100000", "the run needs "),
        (stories_main.stories_command, "0", "count is 0; expected 1 or more"),
        (stories_main.stories_command, "-- -5", "count is -5; expected 1 or more"),
        (course_map.map_command, "own it", "unrecognized arguments: own it"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_no_run_can_be_is_refused_before_anything_is_done(
    command: Command, line: str, sentence: str, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", "draft"] if command in (run_command, finetune_command) else []
    before = sorted(tiny.rglob("*"))
    code, found = ended(command, [*model, *line.split()], capsys)
    assert (code, found[: len(sentence)]) == (2, sentence)
    assert sorted(tiny.rglob("*")) == before


def test_a_rate_without_a_limit_on_the_gradient_is_a_run(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An infinite `clip` is the way to turn clipping off."""
    assert ended(pretrain_command, [*SMALL, "--corpus", "text.txt", "--clip", "inf"], capsys) == (0, "")


def test_a_folder_in_the_home_of_the_user(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As bash leaves it after `--out=`."""
    monkeypatch.setenv("HOME", str(tiny / "home"))
    monkeypatch.setenv("USERPROFILE", str(tiny / "home"))
    pretrain_command([*SMALL, "--corpus", "text.txt", "--out=~/run"])
    assert (tiny / "home" / "run" / "checkpoint.pt").exists()
    assert not (tiny / "~").exists()


# ---- the folder of a run -----------------------------------------------------------------------------------------

RUNS: dict[str, tuple[Command, list[str], list[str]]] = {  # command, options, and another run's options of equal sizes
    "pretrain": (pretrain_command, [*SMALL, "--corpus", "text.txt"], ["--seed", "1", "--corpus", "other.txt"]),
    "finetune": (finetune_command, ["--model", "draft", "--steps", "2", "--batch", "2"], ["--seed", "1"]),
    "storyteller": (run_command, ["--model", "draft", "--steps", "2"], ["--model", "storyteller"]),
}


@pytest.fixture(params=RUNS)
def two_runs(request: pytest.FixtureRequest, tiny: Path) -> tuple[Command, list[str], Path, Path]:
    """A command, the line of its first run, and the folders of two runs."""
    command, line, other = RUNS[request.param]
    (tiny / "other.txt").write_text(TEXT[::-1], encoding="utf-8")
    command([*line, "--out", "first"])
    command([*line, *other, "--out", "second"])
    return command, [*line, "--out", "first"], tiny / "first", tiny / "second"


def test_a_file_of_another_run_is_noticed(
    two_runs: tuple[Command, list[str], Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused by its name, or, where the checkpoint holds it all, written again."""
    command, line, first, second = two_runs
    derived = ("log.jsonl", "history.json", "trained.safetensors")
    for path in sorted(first.iterdir()):
        other = second / path.name
        if not other.exists() or path.read_bytes() == other.read_bytes():
            continue
        kept = {file: file.read_bytes() for file in first.iterdir()}
        path.write_bytes(other.read_bytes())
        if path.name == "checkpoint.pt.previous":  # which is read where the newest is damaged
            (first / "checkpoint.pt").write_bytes(b"")
        with warnings.catch_warnings(action="ignore"):
            code, sentence = ended(command, line, capsys)
        assert code == (0 if path.name in derived else 2), path.name
        assert not code or path.name in sentence or sentence.startswith("first holds a run with "), sentence
        assert path.name not in derived or path.read_bytes() == kept[path]
        for file, content in kept.items():
            file.write_bytes(content)
    assert ended(command, line, capsys) == (0, "")


@pytest.mark.parametrize("name", ["vocabulary.json", "checkpoint.pt", "options.json"])
def test_a_model_is_not_loaded_with_the_file_of_another_run(name: str, tiny: Path) -> None:
    line = [*SMALL, "--corpus", "text.txt"]
    (tiny / "other.txt").write_text(TEXT.translate(str.maketrans("abc", "xyz")), encoding="utf-8")
    pretrain_command([*line, "--out", "first"])
    pretrain_command([*line, "--out", "second", "--corpus", "other.txt", "--lr", "0.01"])
    assert pretrain.load_pretrained("first").vocabulary.tokens != pretrain.load_pretrained("second").vocabulary.tokens
    shutil.copy(tiny / "second" / name, tiny / "first" / name)
    with pytest.raises(training.CheckpointError, match="belongs to another run; its "):
        pretrain.load_pretrained("first")


def test_a_run_of_an_earlier_release_goes_on(
    two_runs: tuple[Command, list[str], Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its checkpoint does not say whose it is, and a storyteller's folder had no options."""
    command, line, first, _ = two_runs
    content = torch.load(first / "checkpoint.pt", weights_only=True)
    del content["about"]
    torch.save(content, first / "checkpoint.pt")
    if command is run_command:
        (first / "options.json").unlink()
    assert ended(command, line, capsys) == (0, "")
    assert (first / "options.json").exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CHANGED = {"batch": JSON, "seed": JSON, "lr": JSON, "out": JSON, "model": JSON, "nonsense": JSON}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(JSON.map(json.dumps), st.text(), st.fixed_dictionaries({}, optional=CHANGED).map(json.dumps)))
@example(content="[" * 100_000)
@example(content='{"a":' * 100_000)
@example(content="9" * 5000)
@example(content='{"lr": 1e999}')
@example(content="\ufeff{}")
@pytest.mark.parametrize("kind", [Options, Finetuning, Telling])
def test_whatever_is_in_options_json_they_are_options_or_a_sentence(
    kind: type[RunOptions], content: str, unchecked: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "options.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    found, message = None, f"{path} does not hold the options of a run ("
    try:
        found = options.read(kind, path)
    except ValueError as error:
        message = str(error)
    assert message.startswith(f"{path} does not hold the options of a run (")
    if found is None:
        return
    given = json.loads(content)
    assert {name: getattr(found, name) for name in given} == given
    assert isinstance(found.seed if kind is not Telling else 0, int)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
@pytest.mark.parametrize("name", ["options.json", "checkpoint.pt", "log.jsonl", "run.lock", "trained.safetensors"])
def test_what_is_no_file_is_refused_before_the_run(
    name: str, make: Callable[[Path], None], tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tiny / "run").mkdir()
    make(tiny / "run" / name)
    code, sentence = ended(finetune_command, ["--model", "draft", "--out", "run"], capsys)
    assert code == 2
    assert sentence.startswith(f"{Path('run', name)} is not a regular file; expected a folder")
    assert [path.name for path in (tiny / "run").iterdir()] == [name]


def test_a_lock_that_is_a_link_leaves_its_target_alone(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tiny / "run").mkdir()
    (tiny / "victim").write_text("mine")
    (tiny / "run" / "run.lock").symlink_to(tiny / "victim")
    code, sentence = ended(finetune_command, ["--model", "draft", "--out", "run"], capsys)
    assert (code, "is a link to" in sentence) == (2, True)
    assert (tiny / "victim").read_text() == "mine"


@pytest.mark.parametrize("name", RUNS)
def test_a_second_run_in_a_folder_is_refused(name: str, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, line, _ = RUNS[name]
    with driver.alone_in(tiny / "run"):
        code, sentence = ended(command, [*line, "--out", "run"], capsys)
    assert (code, sentence) == (2, "another run is using run; wait until it ends, or give another folder")


# ---- Ctrl-C ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("stage", ["begin_run", "training.fit", "_write_log"])
def test_ctrl_c_outside_of_the_steps_is_one_line_and_the_same_command_goes_on(
    stage: str, name: str, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, line, _ = RUNS[name]

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"tfbook.pretrain.driver.{stage}", interrupted)
        with pytest.raises(SystemExit) as end:
            command([*line, "--out", "run"])
    assert end.value.code == 130
    assert capsys.readouterr().err.endswith(": stopped; the same command resumes the run\n")
    assert not (tiny / "run" / "run.lock").exists()
    assert ended(command, [*line, "--out", "run"], capsys) == (0, "")


@pytest.mark.parametrize("name", ["finetune", "storyteller"])
def test_a_run_stopped_between_steps_says_so_and_ends_like_one_that_was_not(
    name: str, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bit for bit, with a log that repeats nothing, and no weights before its end."""
    command, line, _ = RUNS[name]
    line = [*line, "--steps", "4"]
    command([*line, "--out", "whole"])
    say_row = driver.say_row

    def stop(history: training.History) -> None:
        say_row(history)
        if history.steps == 1:
            os.kill(os.getpid(), 2)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "say_row", stop)
        command([*line, "--out", "cut"])
    assert capsys.readouterr().out.endswith("s: stopped; the same command resumes the run\n")
    assert not list((tiny / "cut").glob("*.safetensors"))
    command([*line, "--out", "cut"])
    assert capsys.readouterr().out.endswith("s: done\n")
    (weights,) = (tiny / "whole").glob("*.safetensors")
    assert (tiny / "cut" / weights.name).read_bytes() == weights.read_bytes()
    logs = [
        [json.loads(row) for row in (tiny / run / "log.jsonl").read_text().splitlines()] for run in ("whole", "cut")
    ]
    timeless = [[{k: v for k, v in row.items() if k not in ("seconds", "minutes")} for row in log] for log in logs]
    assert timeless[0] == timeless[1]
    assert [row["step"] for row in logs[1]] == [1, 2, 3, 4]


def test_ctrl_c_leaves_the_corpus_that_ships(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stories_main.stories_command([])
    before, told = (tiny / "stories.txt.gz").read_bytes(), stories.told

    def interrupted(split: str, number: int) -> Any:
        if number == 2:
            raise KeyboardInterrupt
        return told(split, number)

    monkeypatch.setattr(stories, "told", interrupted)
    with pytest.raises(SystemExit) as end:
        stories_main.stories_command([])
    assert end.value.code == 130
    assert capsys.readouterr().err == "python -m tfbook.data.stories: stopped\n"
    assert {path.name for path in tiny.iterdir()} == {"stories.txt.gz", "text.txt"}
    assert (tiny / "stories.txt.gz").read_bytes() == before


# ---- consoles ----------------------------------------------------------------------------------------------------


class Broken(io.RawIOBase):
    """A console that is gone, or whose disk is full."""

    def __init__(self, error: OSError):
        self.error = error

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise self.error


@pytest.mark.parametrize("name", ["pretrain", "finetune", "storyteller"])
@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device")])
def test_a_run_goes_on_without_a_console(
    name: str, error: OSError, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, line, _ = RUNS[name]
    stream = io.TextIOWrapper(io.BufferedWriter(Broken(error)), encoding="utf-8", write_through=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        with console.unfailing():
            command([*line, "--out", "run"])
    names = {path.name for path in (tiny / "run").iterdir()}
    assert {"pretrain": "history.json", "finetune": "trained.safetensors", "storyteller": "draft.safetensors"}[
        name
    ] in names


def test_a_run_ends_on_a_console_that_cannot_show_its_text(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called from Python, too."""
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, encoding="ascii", write_through=True))
    (tiny / "text.txt").write_text("äöü—" * 100, encoding="utf-8")
    small = Options(layers=1, heads=1, d_model=4, context=8, batch=2, steps=1, sample=9, corpus="text.txt", out="run")
    pretrain.pretrain(small)
    assert rb"\xe4" in content.getvalue()


def test_without_any_stdout_a_run_goes_on(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `>&-`."""
    monkeypatch.setattr(sys, "stdout", None)
    finetune_command([*RUNS["finetune"][1], "--out", "run"])
    assert (tiny / "run" / "trained.safetensors").exists()


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of the shell in which `tfbook` is the package."""
    variables = (
        os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TFBOOK_PRECISION": "float32"} | environment
    )
    line = line.replace("python", f"'{sys.executable}'")
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the line is bash's")
def test_a_closed_pipe_ends_the_printing_of_stories_in_silence(tmp_path: Path) -> None:
    done = shell("set -o pipefail; python -m tfbook.data.stories 100000000 | head -n 1", tmp_path)
    assert (done.returncode, done.stderr) == (141, "")
    assert len(done.stdout) > 100


@pytest.mark.skipif(sys.platform == "win32", reason="the line is bash's")
def test_a_run_piped_into_head_on_an_ascii_console_is_finished(tmp_path: Path) -> None:
    """Progress bar and all."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    run = f"python -m tfbook.pretrain {' '.join(SMALL)} --corpus text.txt"
    done = shell(f"set -o pipefail; {run} 2>&1 | head -n 1", tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "pretrained" / "checkpoint.pt").exists()
    done = shell(run, tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    for module in ("tfbook", "tfbook.pretrain"):
        done = shell(f"python -m {module} {'--help' if module != 'tfbook' else ''}", tmp_path, PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")


# ---- held-out stories --------------------------------------------------------------------------------------------

HELD_OUT = [
    *(seeds for split, seeds in stories.SEEDS.items() if split != "train"),
    finetune.SEEDS["valid"],
]


@given(st.integers(0, 2**80), st.integers(0, 2**80))
@example(10_000_000, 40_000_000)
@example(9_999_999, 39_999_999)
def test_no_number_of_training_is_held_out(first: int, second: int) -> None:
    """And no two numbers are one story."""
    for seeds in (stories.SEEDS, finetune.SEEDS):
        found = [stories.split_seed(seeds, "train", number) for number in (first, second)]
        assert (found[0] == found[1]) == (first == second)
        assert not any(seed in block for seed in found for block in HELD_OUT)


@given(st.sampled_from([stories.SEEDS, finetune.SEEDS]), st.integers(-(2**40), 2**40), st.data())
def test_a_held_out_number_stays_in_its_split_or_is_refused(seeds: dict[str, range], number: int, data: Any) -> None:
    split = data.draw(st.sampled_from([name for name in seeds if name != "train"]))
    if 0 <= number < len(seeds[split]):
        assert stories.split_seed(seeds, split, number) in seeds[split]
        return
    with pytest.raises(ValueError, match=f"number is {number}; expected 0 to 9,999,999 in the split '{split}'"):
        stories.split_seed(seeds, split, number)


@given(seed=st.integers(0, 2**63 - 1), step=st.integers(0, 10**9), batch=st.integers(1, 3))
@example(seed=40, step=0, batch=2)
def test_no_seed_of_finetuning_reaches_a_held_out_play(seed: int, step: int, batch: int) -> None:
    told: list[int] = []

    def tell(number: int, world: Any) -> Any:
        told.append(number)
        return stories.story(0, world)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "story", tell)
        finetune.batches(Finetuning(seed=seed, batch=batch), stories.Vocabulary([stories.world_words()]))(step)
    assert len(set(told)) == batch
    assert not any(number in block for number in told for block in HELD_OUT)


def test_the_stories_of_small_numbers_are_those_that_models_were_trained_on() -> None:
    """The draft's, the storyteller's, and the plays of the first 40 seeds."""
    assert [stories.split_seed(stories.SEEDS, split, 7) for split in stories.SPLITS] == [
        7,
        10**7 + 7,
        2 * 10**7 + 7,
        3 * 10**7 + 7,
    ]
    assert stories.split_seed(finetune.SEEDS, "train", 3_000_005) == 53_000_005
    assert stories.split_seed(finetune.SEEDS, "valid", 5) == 90_000_005


def test_a_negative_number_is_no_story() -> None:
    """Python's generators are the same for a seed and its negative."""
    for tell in (stories.told, finetune.play):
        with pytest.raises(ValueError, match="number is -1; expected 0 or more in the split 'train'"):
            tell("train", -1)


# ---- texts that editors write ------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_corpus_is_the_same_text_in_any_encoding_that_says_so(encoding: str, end: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(TEXT.replace("\n", end).encode(encoding))
    found = pretrain.load_text(str(tmp_path / "text.txt"))
    assert "".join([*found.blocks("train"), *found.blocks("valid")]) == TEXT


@pytest.mark.parametrize("content", [TEXT.encode("utf-16-le"), b"a\0b", TEXT.encode("latin-1")])
def test_what_is_no_text_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(ValueError, match=r"holds a NUL character|is not a UTF-8 text"):
        pretrain.load_text(str(tmp_path / "text.txt"))
