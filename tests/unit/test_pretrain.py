"""Pretraining: what is measured, what a run's folder holds, and the command line."""

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from tfbook import pretrain, runtime
from tfbook.data.text import Text
from tfbook.data.tokens import write_tokens
from tfbook.generation import sampling
from tfbook.models import gpt
from tfbook.pretrain import driver
from tfbook.pretrain.__main__ import main
from tfbook.pretrain.corpus import byte_counts, write_corpus
from tfbook.pretrain.measure import evaluation_windows, matmul_peak, score
from tfbook.pretrain.options import Options
from tfbook.pretrain.run import Progress
from tfbook.text import CharacterVocabulary, Tokenizer
from tfbook.training import CheckpointError, History, next_token_loss

pytestmark = pytest.mark.usefixtures("float32")

TEXT = "Wer reitet so spät durch Nacht und Wind? Es ist der Vater mit seinem Kind.\n" * 20
TINY = {
    "layers": 1,
    "heads": 2,
    "d_model": 8,
    "context": 8,
    "batch": 4,
    "steps": 12,
    "warmup": 2,
    "evaluate_every": 4,
    "checkpoint_every": 3,
    "sample": 20,
}


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """A run of a second on a small text."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return Options(**TINY, corpus=str(tmp_path / "text.txt"), out=str(tmp_path / "run"))


# ---- what is measured --------------------------------------------------------------------------------------------


class Bigrams(nn.Module):
    """p(next | this one) from a table, whatever stood before."""

    def __init__(self, probabilities: list[list[float]]):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(probabilities).log())

    def forward(self, ids: Tensor) -> Tensor:
        return self.logits[ids]


def test_bits_a_byte_by_hand() -> None:
    """ "aébé": probabilities ½, ¼ and ⅛ make 1 + 2 + 3 bits, for é, b, é of 2 + 1 + 2 bytes."""
    model = Bigrams([[0.25, 0.25, 0.5], [0.5, 0.375, 0.125], [0.5, 0.25, 0.25]])
    characters = CharacterVocabulary("abé")
    assert byte_counts(characters).tolist() == [1, 1, 2]
    found = score(model, characters.encode("aébé")[None], byte_counts(characters))
    assert found["bits_per_byte"] == pytest.approx((1 + 2 + 3) / (2 + 1 + 2))
    assert found["valid_loss"] == pytest.approx(6 * math.log(2) / 3)
    assert found["perplexity"] == pytest.approx(2 ** (6 / 3))


@given(batch=st.integers(1, 9), windows=st.integers(1, 9), time=st.integers(2, 6))
def test_the_score_is_that_of_all_windows_however_they_are_batched(batch: int, windows: int, time: int) -> None:
    model, ids = Bigrams(torch.rand(5, 5).softmax(dim=1).tolist()), torch.randint(5, (windows, time))
    expected = next_token_loss(model, ids).mean.item()
    found = score(model, ids, torch.tensor([1, 2, 3, 4, 5]), batch=batch)
    assert found["valid_loss"] == pytest.approx(expected, rel=1e-5)
    bits = expected / math.log(2) * windows * (time - 1) / (ids[:, 1:] + 1).sum().item()
    assert found["bits_per_byte"] == pytest.approx(bits, rel=1e-5)


def test_bits_a_byte_do_not_depend_on_the_tokens() -> None:
    """All bytes equally likely, alone or in tokens of several: eight bits each."""
    tokenizer = Tokenizer.learn(["wer reitet so spät"], 259)
    ids, sizes = torch.tensor([tokenizer.encode("er reitet spät")]), byte_counts(tokenizer)
    assert sizes.sum() > 259
    model = Bigrams([(256.0**-sizes).tolist()] * 259)  # softmax makes them sum to 1
    found = score(model, ids, sizes)["bits_per_byte"]
    total = (256.0**-sizes).sum().item()
    assert found == pytest.approx(8 + math.log2(total) * (ids.shape[1] - 1) / sizes[ids[0, 1:]].sum().item(), rel=1e-4)


@pytest.mark.parametrize("specials", [0, 4])
def test_special_tokens_weigh_nothing_in_bits_a_byte(specials: int) -> None:
    """A uniform model over 260 tokens needs log₂ 260 bits for each byte, whatever stands between the bytes."""
    names = [f"<|special number {number}|>" for number in range(4)]
    tokenizer = Tokenizer.learn(["none"], 260, specials=names)
    text = "an umbrella" + "".join(names[:specials]) * 3 + " and a hat"
    ids = torch.tensor([tokenizer.encode(text, specials=True)])
    model = Bigrams([[1 / 260] * 260] * 260)
    found = score(model, ids, byte_counts(tokenizer))
    assert byte_counts(tokenizer).tolist() == [0] * 4 + [1] * 256
    assert found["bits_per_byte"] == pytest.approx(math.log2(260), rel=1e-5)  # 8.022
    assert found["valid_loss"] == pytest.approx(math.log(260), rel=1e-5)
    assert math.isnan(score(model, torch.tensor([[5, 0, 1]]), byte_counts(tokenizer))["bits_per_byte"])


@given(length=st.integers(4, 60), context=st.integers(1, 9), most=st.integers(1, 30))
def test_windows_guess_no_token_twice(length: int, context: int, most: int) -> None:
    """All but the rest of a window if there is room; else some from the beginning to the end."""
    if length <= context:
        with pytest.raises(ValueError, match=rf"the text has {length} tokens; expected context \+ 1 = {context + 1}"):
            evaluation_windows(torch.arange(length), context, limit=most)
        return
    windows, count = evaluation_windows(torch.arange(length), context, limit=most), (length - 1) // context
    assert windows.shape == (min(count, most), context + 1)
    assert torch.equal(windows - windows[:, :1], torch.arange(context + 1).expand(len(windows), -1))
    guessed = windows[:, 1:].flatten().tolist()
    assert len(set(guessed)) == len(guessed)
    assert windows[0, 0] == 0
    if most >= count:
        assert guessed == list(range(1, 1 + count * context))
    elif most > 1:
        assert windows[-1, 0] == (count - 1) * context


def test_the_peak_is_the_best_of_several_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock whose products take 9, 3, 2, 3, 3 … seconds; the first does not count."""
    ticks = iter([0, 1, 1, 4, 4, 6, *(n + part for n in range(6, 100, 3) for part in (0, 3))])
    monkeypatch.setattr("tfbook.pretrain.measure.time.perf_counter", lambda: next(ticks))
    assert matmul_peak(repeats=4) == 2 * 1024**3 / 2


@pytest.mark.parametrize("mixed_precision", [True, False])
def test_the_peak_is_that_of_the_precision_trained_in(monkeypatch: pytest.MonkeyPatch, mixed_precision: bool) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        "tfbook.pretrain.measure.runtime.autocast", lambda enabled: asked.append(enabled) or nullcontext()
    )
    assert matmul_peak(mixed_precision=mixed_precision, repeats=1) > 0
    assert asked == [mixed_precision]


# ---- a run -------------------------------------------------------------------------------------------------------


def test_a_run_learns_and_leaves_a_model_that_speaks(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    """Its losses fall, its last evaluation is that of the model that `load` returns, and so is its text."""
    history = pretrain.pretrain(replace(options, steps=40, lr=0.03))
    printed = capsys.readouterr().out
    assert history.loss[-1] < history.loss[0] - 0.5
    model, vocabulary = pretrain.load_pretrained(options.out)
    assert not model.training
    corpus = pretrain.read_corpus(options.out)
    again = score(model, evaluation_windows(corpus.valid, 8, limit=10**6), byte_counts(vocabulary))
    assert again["valid_loss"] == pytest.approx(history.evaluations[-1]["valid_loss"], rel=1e-6)
    generator, start = torch.Generator().manual_seed(0), corpus.valid[None, :1].long()
    ids = sampling.generate(model, start, max_new_tokens=8, filters=[sampling.temperature(0.8)], generator=generator)
    assert printed.endswith(vocabulary.decode(ids[0]) + "\n"), "learned positions end after 8"


def test_what_a_run_prints_and_writes_down(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    """Parameters, tokens, machine; a line for each evaluation, whose numbers stand in history.json."""
    history = pretrain.pretrain(options)
    lines = capsys.readouterr().out.splitlines()
    corpus, model = pretrain.read_corpus(options.out), pretrain.load_pretrained(options.out).model
    text = TEXT.encode()
    assert len(TEXT) == len(corpus.train) + len(corpus.valid) < len(text)
    assert lines[0].startswith("text.txt: 1,350 characters train, 150 valid")
    assert lines[1] == f"text: 1,350 training tokens, vocabulary {len(set(TEXT))}"
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert lines[2] == f"model: {weights:,} parameters; 144 validation tokens"
    assert re.fullmatch(r"machine: 1 process on cpu, float32, \d+ GFLOP/s in a matrix product \(.*", lines[3])
    for line, row in zip(lines[4:], history.evaluations, strict=False):
        assert line.startswith(
            f"step {row['step']:>6,}  loss {row['train_loss']:.4f}  validation {row['valid_loss']:.4f}"
        )
        assert f"{row['bits_per_byte']:.4f} bits/byte  {row['tokens_per_second']:,.0f} tokens/s" in line
    assert [row["step"] for row in history.evaluations] == [4, 8, 12]
    assert json.loads(Path(options.out, "history.json").read_text())["evaluations"] == history.evaluations


def test_speed_utilization_and_training_loss_are_those_since_the_evaluation_before(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps of 10 s, then two of 1 s: 2 · 2 · 4 · 8 tokens in 20 s, then in 2 s."""
    monkeypatch.setattr("tfbook.pretrain.run.matmul_peak", lambda: 1e6)
    options = replace(options, accumulate=2)
    progress = Progress(options, pretrain.prepare_corpus(options))
    history = History(loss=[4.0, 3.0], lr=[0.1] * 2, grad_norm=[1.0] * 2, seconds=[10.0, 20.0])
    row = {"valid_loss": 3.0, "perplexity": 20.0, "bits_per_byte": 4.0}
    history.evaluations.append({"step": 2, "seconds": 20.0, **row})
    progress.report(history)
    history.loss += [2.0, 1.0]
    history.seconds += [21.0, 22.0]
    history.evaluations.append({"step": 4, "seconds": 22.0, **row})
    progress.report(history)
    first, second = history.evaluations
    assert (first["train_loss"], second["train_loss"]) == (3.5, 1.5)
    assert (first["tokens_per_second"], second["tokens_per_second"]) == (128 / 20, 128 / 2)
    work = 3 * gpt.flops(progress.vocab, options.config, 8)
    assert second["utilization"] == pytest.approx(work * 64 / 1e6)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_that_is_stopped_goes_on_to_the_same_end(
    options: Options,
    optimizer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bit for bit, with dropout, accumulation and byte-pair encoding."""
    options = replace(options, optimizer=optimizer, dropout=0.2, accumulate=2, vocab=270, position="rotary")
    expected = pretrain.pretrain(replace(options, out=str(tmp_path / "whole")))
    report = Progress.report

    def stop(progress: Progress, history: History) -> None:
        report(progress, history)
        if history.steps == 4:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "report", stop)
    stopped = pretrain.pretrain(options)
    assert stopped.interrupted
    assert stopped.steps == 5
    assert capsys.readouterr().out.endswith("s: stopped; the same command resumes the run\n")
    monkeypatch.setattr(Progress, "report", report)
    assert pretrain.pretrain(options).loss == expected.loss
    weights = [pretrain.load_pretrained(folder).model.state_dict() for folder in (options.out, tmp_path / "whole")]
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_a_run_that_is_done_says_its_text_and_trains_no_more(options: Options) -> None:
    once = pretrain.pretrain(options)
    assert pretrain.pretrain(options) == once
    longer = pretrain.pretrain(replace(options, steps=14))
    assert longer.loss[:12] == once.loss
    assert longer.steps == 14


def test_other_options_are_refused_in_the_folder_of_a_run(options: Options, tmp_path: Path) -> None:
    """Unless they only say how long, how often or where."""
    pretrain.pretrain(options)
    message = "run holds a run with lr 0.001, and lr is 0.01; give the same options to resume it, or another folder"
    with pytest.raises(ValueError, match=message):
        pretrain.pretrain(replace(options, lr=0.01))
    moved = Path(options.out).rename(tmp_path / "moved")
    assert pretrain.pretrain(replace(options, out=str(moved), evaluate_every=3, sample=0)).steps == 12


def test_a_folder_whose_files_are_damaged_is_refused(options: Options) -> None:
    """Each by its name."""
    pretrain.pretrain(options)
    folder = Path(options.out)
    for name, message in {
        "train.tokens": r"train\.tokens is damaged",
        "vocabulary.json": r"vocabulary\.json is damaged",
        "options.json": r"options\.json does not hold the options of a run",
    }.items():
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-5])
        with pytest.raises(ValueError, match=message):
            pretrain.pretrain(options)
        (folder / name).write_bytes(content)
    (folder / "checkpoint.pt").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"checkpoint\.pt is damaged; going on from the one before it"):
        pretrain.load_pretrained(folder)
    (folder / "checkpoint.pt.previous").unlink()
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt is damaged"):
        pretrain.load_pretrained(folder)


def test_a_run_killed_while_it_reads_its_text_reads_it_again(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options are written last, so a folder without them holds nothing that counts."""
    write_corpus(options.out, Text.split("another", "abc" * 100), 0)
    corpus = pretrain.prepare_corpus(options)
    assert corpus.vocabulary.decode(corpus.train.tolist()) == TEXT[: int(0.9 * len(TEXT))]


def test_byte_pairs_are_learned_on_the_training_part_alone(tmp_path: Path) -> None:
    text = Text(name="letters", train="abab" * 50, valid="xyxy" * 50)
    write_corpus(tmp_path, text, 258)
    corpus = pretrain.read_corpus(tmp_path)
    assert [corpus.vocabulary.decode([token]) for token in (256, 257)] == ["ab", "abab"]
    assert corpus.vocabulary.decode(corpus.valid.tolist()) == text.valid
    assert byte_counts(corpus.vocabulary).tolist() == [1] * 256 + [2, 4]


# ---- the command line --------------------------------------------------------------------------------------------


def _arguments(options: Options) -> list[str]:
    return [
        part
        for name in (*TINY, "corpus", "out")
        for part in (f"--{name.replace('_', '-')}", str(getattr(options, name)))
    ]


def test_the_command_runs_and_goes_on(options: Options) -> None:
    """As a reader calls it."""
    root, env = Path(__file__).parents[2], os.environ | {"OMP_NUM_THREADS": "1", "TFBOOK_PRECISION": "float32"}
    command = [sys.executable, "-m", "tfbook.pretrain", *_arguments(options)]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^12 steps in \d+\.\d s: done$", done.stdout, re.MULTILINE)
    assert pretrain.pretrain(options).steps == 12
    assert pretrain.read_options(options.out) == options


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert "torchrun --nproc-per-node 2 -m tfbook.pretrain" in printed
    for name in Options.__dataclass_fields__:
        assert re.search(rf"^  --{name.replace('_', '-')}[ ,]", printed, re.MULTILINE), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--heads", "3"], "heads is 3 and d_model is 8; expected heads to divide d_model"),
        (["--steps", "0"], "steps is 0; expected more than 0"),
        (["--context", "0"], "context is 0; expected 1 or more"),
        (["--vocab", "-1"], "vocab is -1; expected 0 or more"),
        (["--warmup", "-1"], "warmup is -1 and final is 0.1; expected warmup ≥ 0 and 0 ≤ final ≤ 1"),
        (["--vocab", "100"], "vocab is 100; expected 256 or more, one token for each byte, and 0 specials"),
        (
            ["--corpus", "nowhere.txt"],
            "corpus is 'nowhere.txt'; expected tiny-shakespeare, python-reference or the path",
        ),
        (
            ["--context", "150"],
            "the valid part of text.txt has 150 tokens; expected context + 1 = 151 or more",
        ),
        (["--heads", "8", "--position", "rotary"], "d_head is 1; expected an even number"),
        (["--d-model", "9", "--heads", "3", "--position", "sinusoidal"], "d_model is 9; expected an even number"),
        (["--beta2", "1"], "betas is (0.9, 1.0); expected 0 ≤ beta < 1 for both"),
        (["--beta2", "nan"], "betas is (0.9, nan); expected 0 ≤ beta < 1 for both"),
        (["--weight-decay", "nan"], "weight_decay is nan; expected 0 or more"),
        (["--seed", str(2**70)], f"seed is {2**70}; expected 0 to 2⁶³ − 1"),
        (["--optimizer", "sgd"], "argument --optimizer: invalid choice: 'sgd' (choose from"),
        (["--lr", "fast"], "argument --lr: invalid float value: 'fast'"),
        (["--lr", "1e30"], "the loss is "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_in_one_line(
    options: Options, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*_arguments(options), *arguments])
    assert ended.value.code == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith(f"python -m tfbook.pretrain: error: {message}")


# ---- faults ------------------------------------------------------------------------------------------------------


def _error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the command ends with."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    _, found, line = printed.partition("python -m tfbook.pretrain: error: ")  # after what is left of the progress bar
    assert found
    assert line.index("\n") == len(line) - 1
    return line.rstrip("\n")


def _files(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()} if Path(folder).exists() else set()


@pytest.mark.parametrize(
    "mistake",
    [
        ["--context", "100000"],
        ["--context", str(10**12)],
        ["--vocab", "100"],
        ["--heads", "8", "--position", "rotary"],
        ["--d-model", "9", "--heads", "3", "--position", "sinusoidal"],
        ["--beta2", "1"],
        ["--seed", str(2**70)],
    ],
    ids=" ".join,
)
def test_options_are_checked_before_anything_is_written(
    options: Options, mistake: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _error([*_arguments(options), *mistake], capsys)
    assert _files(options.out) == set()
    main(_arguments(options))
    assert capsys.readouterr().out.count("12 steps") == 1


def test_a_run_that_diverged_before_it_saved_can_be_repeated_at_a_lower_rate(
    options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its advice works; what it wrote down meanwhile is gone, and from the first checkpoint on options are fixed."""
    arguments = [*_arguments(options), "--checkpoint-every", "100", "--evaluate-every", "1", "--steps", "12"]
    message = _error([*arguments, "--lr", "1e9"], capsys)
    assert re.fullmatch(r"the (loss|norm of the gradient) is \w+ at step \d+; lower lr or look for .*", message)
    assert "history.json" in _files(options.out)
    pretrain.prepare_corpus(replace(options, lr=1e-2))
    assert "history.json" not in _files(options.out)
    main([*arguments, "--lr", "1e-3"])
    assert "s: done" in capsys.readouterr().out
    assert pretrain.read_options(options.out).lr == 1e-3
    assert "holds a run with lr 0.001, and lr is 0.01" in _error([*arguments, "--lr", "1e-2"], capsys)


def test_a_folder_whose_only_checkpoint_is_the_one_before_is_resumed(options: Options) -> None:
    """As after a kill between two renames: it is no folder to start afresh in."""
    pretrain.pretrain(options)
    Path(options.out, "checkpoint.pt").unlink()
    with pytest.raises(ValueError, match="holds a run with lr"):
        pretrain.pretrain(replace(options, lr=0.5))
    assert pretrain.pretrain(options).steps == 12


def test_a_loss_too_large_for_a_perplexity_is_written_down() -> None:
    """exp(800) is beyond the largest float; training goes on or says itself that it diverged."""
    model = Bigrams([[1.0, 1e-30], [1.0, 1e-30]])
    with torch.no_grad():
        model.logits *= 12  # 829 nats
    found = score(model, torch.tensor([[0, 1, 1]]), torch.tensor([1, 1]))
    assert found["perplexity"] == math.inf
    assert found["valid_loss"] == pytest.approx(828.9, abs=0.1)


def test_two_runs_in_one_folder_are_refused(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second changes nothing, and the first goes on; then the folder is free."""
    report, messages = Progress.report, []

    def second(progress: Progress, history: History) -> None:
        report(progress, history)
        before = {path: path.read_bytes() for path in Path(options.out).iterdir()}
        messages.append(_error(_arguments(options), capsys))
        assert {path: path.read_bytes() for path in Path(options.out).iterdir()} == before

    monkeypatch.setattr(Progress, "report", second)
    assert pretrain.pretrain(options).steps == 12
    message = f"another run is using {options.out}; wait until it ends, or give another folder"
    assert messages == [message] * 3
    assert "run.lock" not in _files(options.out)
    assert pretrain.pretrain(replace(options, steps=13)).steps == 13


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_run_leaves_its_folder_unlocked(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    """Kill −9 leaves the lock's file and no lock."""
    code = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print('locked', flush=True)"
    code += "; input()"
    lock = Path(options.out, "run.lock")
    lock.parent.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], **pipes) as child:
        assert child.stdout.readline() == "locked\n"
        assert "another run is using" in _error(_arguments(options), capsys)
        child.kill()
    assert lock.exists()
    assert pretrain.pretrain(options).steps == 12


def test_without_locks_a_run_goes_on(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network drives."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("no flock here")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    assert pretrain.pretrain(options).steps == 12


def test_what_is_no_folder_for_a_run_is_said_in_one_line(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file, a path below a file, and a folder that cannot be written."""
    file = tmp_path / "file"
    file.write_text("mine")
    message = _error(_arguments(replace(options, out=str(file))), capsys)
    assert message == f"out is {str(file)!r}, which is a file; expected a folder, new or that of a run"
    assert "file" in _error(_arguments(replace(options, out=str(file / "run"))), capsys)
    assert file.read_text() == "mine"

    def refuse(path: Path, *args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert _error(_arguments(options), capsys) == f"[Errno 13] Permission denied: {options.out!r}"


@pytest.mark.parametrize("name", ["train.tokens", "vocabulary.json", "options.json", "checkpoint.pt"])
def test_a_full_disk_is_said_in_one_line(
    options: Options, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is written at that moment, and the same command goes on once there is room."""

    class Crammed(io.FileIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    def cramped(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if path.name.startswith(name) and "w" in mode:
            raw = io.BufferedWriter(Crammed(path, "w"))
            return raw if "b" in mode else io.TextIOWrapper(raw)
        return open_(path, mode, *args, **kwargs)

    open_ = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", cramped)
        assert _error(_arguments(options), capsys) == "[Errno 28] No space left on device"
    assert not any(file.endswith((".part", ".lock")) for file in _files(options.out))
    assert pretrain.pretrain(options).steps == 12


CHARACTERS = '{"characters": "abc"}'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocabulary.json", None, "No such file or directory"),
        ("train.tokens", None, "No such file or directory"),
        ("valid.tokens", None, "No such file or directory"),
        ("options.json", None, "No such file or directory"),
        ("vocabulary.json", "{", "is damaged"),
        ("vocabulary.json", "5", "is not a byte-level BPE of the tokenizers library"),
        ("vocabulary.json", "[1, 2]", "is not a byte-level BPE of the tokenizers library"),
        ("vocabulary.json", '{"characters": 5}', "is not a byte-level BPE of the tokenizers library"),
        ("vocabulary.json", '{"characters": ["a", "b"]}', "is not a byte-level BPE of the tokenizers library"),
        ("vocabulary.json", CHARACTERS, "train.tokens was written with 24 tokens; .* holds 3, so it is another text's"),
        ("train.tokens", "To be, or not to be, that is the question", "train.tokens is not a file of tokens"),
        ("valid.tokens", "", "valid.tokens is not a file of tokens"),
        ("options.json", "[]", "does not hold the options of a run"),
    ],
)
def test_a_missing_or_foreign_file_is_named_in_one_line(
    options: Options, name: str, content: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain.pretrain(options)
    path, saved = Path(options.out, name), Path(options.out, "checkpoint.pt").read_bytes()
    path.unlink()
    if content is not None:
        path.write_text(content)
    found = _error(_arguments(options), capsys)
    assert re.search(message, found)
    assert name in found
    assert Path(options.out, "checkpoint.pt").read_bytes() == saved


def test_the_tokens_of_another_text_are_refused(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    """Sound in themselves, for a vocabulary of another size."""
    pretrain.pretrain(options)
    write_tokens(Path(options.out, "valid.tokens"), torch.arange(7).repeat(99), 7)
    assert "valid.tokens was written with 7 tokens" in _error(_arguments(options), capsys)


@pytest.mark.parametrize("vocab", ["0", "300"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "text is empty; expected at least one character"),
        (b"a", "the train part of text.txt has 0 tokens; expected context + 1 = 9 or more"),
        (b"\xff", "is not a UTF-8 text"),
    ],
    ids=["empty", "one byte", "no text"],
)
def test_a_corpus_without_room_for_a_window_is_refused(
    options: Options, content: bytes, message: str, vocab: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(options.corpus).write_bytes(content)
    assert message in _error([*_arguments(options), "--vocab", vocab], capsys)
    assert _files(options.out) == set()


def test_precision_is_set_for_the_run(options: Options, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TFBOOK_PRECISION", "float32")
    runtime.precision.cache_clear()
    main([*_arguments(options), "--precision", "bfloat16"])
    assert "machine: 1 process on cpu, bfloat16" in capsys.readouterr().out


@pytest.mark.parametrize("log", ["history.json", "log.jsonl"])
def test_a_log_is_json_whatever_was_measured(log: str, tmp_path: Path) -> None:
    """Which has no NaN, as of bits per byte where there is no text, and no infinity, as of a perplexity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    history = History(evaluations=[{"step": 1, "seconds": 2.0, "perplexity": math.inf, "bits_per_byte": math.nan}])
    options = Options(out=str(tmp_path))
    object.__setattr__(options, "log", log)
    driver._write_log(options, history)
    found = json.loads((tmp_path / log).read_text(), parse_constant=refuse)
    row = found["evaluations"][0] if log == "history.json" else found
    assert row == {"step": 1, "seconds": 2.0, "perplexity": None, "bits_per_byte": None}
    assert math.isnan(history.evaluations[0]["bits_per_byte"]), "the history itself keeps what it holds"
