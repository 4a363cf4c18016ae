"""A GPT of one's own: kept answers, the file that holds them, and that it is tfbook's GPT and GPT-2."""

import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tfbook.__main__ import course_command
from tfbook.course import own, solved
from tfbook.lessons.start_here import exercises as start_here

STORIES = "\n\n".join(
    f"The {animal} has a {color} hat. It is {color}." for animal in ("cat", "owl") for color in ("red",)
)
my_gpt = own.loaded(own.PLAIN)  # as a file, since it is no part of the package
MINE = """
def softmax(scores):
    scores = scores - scores.amax(dim=-1, keepdim=True)
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
"""


@pytest.fixture(autouse=True)
def own_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFBOOK_PROGRESS", str(tmp_path / "notes" / "progress.json"))
    monkeypatch.chdir(tmp_path)


def written(tmp_path: Path, source: str, name: str) -> Any:
    """A function from a file, so that it has a source."""
    path = tmp_path / f"{name}_{random.randrange(10**9)}.py"
    path.write_text(f"import torch\n{source}", encoding="utf-8")
    return runpy.run_path(str(path))[name]


# ---- answers -----------------------------------------------------------------------------------------------------


def test_a_right_answer_is_kept(tmp_path: Path) -> None:
    start_here.softmax.check(written(tmp_path, MINE, "softmax"))
    assert solved.answers() == {"start_here": {"softmax": MINE.lstrip()}}
    start_here.softmax.check(written(tmp_path, MINE.replace("amax", "mean"), "softmax"))
    assert solved.answers() == {"start_here": {"softmax": MINE.lstrip()}}, "a wrong one is not"
    better = MINE.replace("scores.exp() / ", "torch.exp(scores) / ")
    start_here.softmax.check(written(tmp_path, better, "softmax"))
    assert solved.answers()["start_here"]["softmax"] == better.lstrip(), "the last right one is"


@pytest.mark.parametrize("answer", [lambda scores: torch.softmax(scores, dim=-1), torch.nn.Softmax(dim=-1)])
def test_an_answer_without_a_function_of_its_own_is_solved_but_not_kept(answer: Any) -> None:
    start_here.softmax.check(answer)
    assert solved.solved() == {"start_here": ["softmax"]}
    assert solved.answers() == {}


def test_answers_travel_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_here.softmax.check(written(tmp_path, MINE, "softmax"))
    solved.save_answers("taken.json")
    monkeypatch.setenv("TFBOOK_PROGRESS", str(tmp_path / "elsewhere" / "progress.json"))
    assert solved.answers() == {}
    solved.load_answers("taken.json")
    assert solved.answers() == {"start_here": {"softmax": MINE.lstrip()}}
    assert solved.solved() == {"start_here": ["softmax"]}


@pytest.mark.parametrize("content", ["", "[]", '{"start_here": ["softmax"]}', '{"start_here": {"softmax": 3}}'])
def test_a_file_without_answers_is_refused(content: str) -> None:
    Path("other.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="holds no answers"):
        solved.load_answers("other.json")
    with pytest.raises(ValueError, match="holds no answers"):
        solved.load_answers("missing.json")


KEEPER = """
import sys
from tfbook.course.solved import keep
def answer(): return 0
for number in range(10**6):
    keep("lesson", f"exercise_{number}", answer)
    print(number, flush=True)
"""


def test_no_kill_loses_an_answer(tmp_path: Path) -> None:
    """At random moments: whatever was said to be kept is there. For more of them: TFBOOK_KILLS=100."""
    script = tmp_path / "keeper.py"
    script.write_text(KEEPER, encoding="utf-8")
    draw, kept = random.Random(0), 0
    for _ in range(int(os.environ.get("TFBOOK_KILLS", "5"))):
        process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        last = [int(process.stdout.readline()) for _ in range(draw.randrange(1, 8))][-1]
        time.sleep(draw.random() / 100)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = max(kept, last + 1)
        assert len(solved.answers()["lesson"]) >= kept


# ---- the file ----------------------------------------------------------------------------------------------------


def test_the_plain_file_is_short_and_alone() -> None:
    source = own.PLAIN.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 400
    assert [line for line in source.splitlines() if "tfbook" in line and "import" in line] == [
        "        from tfbook.course.own import check_file"
    ]
    assert len(own.pieces()) == source.count("# piece: ") == 10


@pytest.mark.parametrize("piece", own.pieces(), ids=lambda piece: piece.name)
def test_each_plain_piece_solves_its_exercise(piece: own.Piece) -> None:
    lesson, _, exercise = piece.name.partition(".")
    solved.notes.update_notes(
        solved.answers_file(), solved._sources, lambda known: known.update({lesson: {exercise: piece.source}})
    )
    assert next(each for each in own.pieces() if each.name == piece.name).yours


def test_an_answer_takes_its_place_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under another name, too."""
    source = MINE.replace("softmax", "my_softmax")
    start_here.softmax.check(written(tmp_path, source, "my_softmax"))
    course_command(["own"])
    assert "● start_here.softmax" in capsys.readouterr().out
    text = Path("my_gpt.py").read_text(encoding="utf-8")
    assert "# start_here.softmax: yours\ndef my_softmax(scores):" in text
    assert "softmax = my_softmax" in text
    own.check_file("my_gpt.py")
    assert "✗" not in capsys.readouterr().out


def test_an_answer_that_needs_more_than_the_file_has_stays_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "helper = torch.softmax\ndef softmax(scores):\n    return helper(scores, -1)\n"
    start_here.softmax.check(written(tmp_path, source, "softmax"))
    course_command(["own"])
    assert "○ start_here.softmax           the lesson's; yours, alone in a file," in capsys.readouterr().out
    assert "helper" not in Path("my_gpt.py").read_text(encoding="utf-8").partition("def softmax")[2][:100]


def test_a_file_is_not_replaced_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_gpt.py").write_text("my own work", encoding="utf-8")
    with pytest.raises(SystemExit):
        course_command(["own"])
    assert "my_gpt.py exists; give another name with --out, or --replace" in capsys.readouterr().err
    assert Path("my_gpt.py").read_text(encoding="utf-8") == "my own work"
    course_command(["own", "--replace"])
    assert "class GPT" in Path("my_gpt.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("out", ["", "~nobody_x/my_gpt.py"])
def test_a_path_that_is_none_is_refused(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        course_command(["own", "--out", out])
    assert f"out is {out!r}; expected a path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("is_causal=True", "is_causal=False"),
        ("ids[:, 1:].flatten()", "ids[:, :-1].flatten()"),
        ("first * cos - second * sin", "first * cos + second * sin"),
        ("weight * centered /", "weight * x /"),
        ("x = x + attention(attention_norm(x))", "x = x + attention(x)"),
    ],
)
def test_the_check_finds_a_fault(before: str, after: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = own.PLAIN.read_text(encoding="utf-8")
    assert before in source
    Path("broken.py").write_text(source.replace(before, after), encoding="utf-8")
    with pytest.raises(SystemExit):
        own.check_file("broken.py")
    assert "✗" in capsys.readouterr().out


# ---- what it computes --------------------------------------------------------------------------------------------


def test_it_learns_from_a_text_and_writes(capfd: pytest.CaptureFixture[str]) -> None:
    """As a program, in a folder with nothing else."""
    Path("book.txt").write_text("\n\n".join([STORIES] * 60), encoding="utf-8")
    course_command(["own"])
    subprocess.run([sys.executable, "my_gpt.py", "book.txt", "--seconds", "2"], check=True)
    subprocess.run([sys.executable, "my_gpt.py", "--load", "my_gpt.pt", "--start", "The cat"], check=True)
    out = capfd.readouterr().out
    assert "tokens of" in out
    assert "loss" in out
    assert "The cat" in out


@pytest.mark.parametrize("text", ["", "Too short."])
def test_a_text_that_is_too_short_is_refused(text: str) -> None:
    Path("book.txt").write_text(text, encoding="utf-8")
    run = subprocess.run([sys.executable, own.PLAIN, "book.txt"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "expected more than 128" in run.stderr


TEXTS = ["Hello world!", " I'm  here.\n\nIt's 2026 — “Ärger”, 猫🐈 …", "don't  do_this  ", "\t x\n \n", "A's B'll C'd"]


@pytest.fixture
def gpt2_files(tmp_path: Path) -> Path:
    """A small GPT-2 in the files that are published, written by the libraries."""
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    sizes = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 32, "vocab_size": 300}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    model.save_pretrained(tmp_path / "gpt2")
    learned = tokenizers.ByteLevelBPETokenizer()
    learned.train_from_iterator(TEXTS * 3, vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False)
    learned.save_model(str(tmp_path / "gpt2"))
    torch.save(model, tmp_path / "model.pt")
    return tmp_path / "gpt2"


def test_gpt2s_published_weights_load(gpt2_files: Path, tmp_path: Path) -> None:
    theirs = torch.load(tmp_path / "model.pt", weights_only=False)
    model, tokenizer = my_gpt.gpt2(gpt2_files)
    ids = torch.randint(300, (2, 20))
    torch.testing.assert_close(model(ids), theirs(ids).logits, rtol=0, atol=1e-5)
    state = {name: weight.clone() for name, weight in theirs.state_dict().items() if name != "lm_head.weight"}
    (gpt2_files / "model.safetensors").unlink()
    torch.save(
        {name.removeprefix("transformer."): weight for name, weight in state.items()}, gpt2_files / "pytorch_model.bin"
    )
    torch.testing.assert_close(my_gpt.gpt2(gpt2_files)[0](ids), theirs(ids).logits, rtol=0, atol=1e-5)
    assert my_gpt.write(model, tokenizer, "Hello", count=2)[0].startswith("Hello")


def test_gpt2s_tokens_are_the_librarys(gpt2_files: Path) -> None:
    from tokenizers import ByteLevelBPETokenizer

    theirs = ByteLevelBPETokenizer(str(gpt2_files / "vocab.json"), str(gpt2_files / "merges.txt"))
    _, tokenizer = my_gpt.gpt2(gpt2_files)
    for text in TEXTS:
        assert tokenizer.encode(text) == theirs.encode(text).ids
        assert tokenizer.decode(tokenizer.encode(text)) == text
