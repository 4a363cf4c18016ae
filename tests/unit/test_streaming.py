"""Corpora that are read block by block and windows in the order of the text."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from tfbook import pretrain
from tfbook.data import TextFile, text as texts
from tfbook.data.text import Text, read_text_file
from tfbook.pretrain.corpus import write_corpus
from tfbook.text import Tokenizer
from tfbook.text.windows import Windows

WORDS = "Wer reitet so spät  durch Nacht und Wind?\r\nEs ist\n\n der Vater mit\tseinem Kind. 漢字 "


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("block", [4, 7, 64, 10_000])
def test_blocks_are_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, block: int) -> None:
    """In its two parts, wherever a block ends: within a character, or between CR and LF."""
    monkeypatch.setattr(texts, "BLOCK", block)
    path = tmp_path / "text.txt"
    path.write_bytes((WORDS * 20).encode(encoding))
    file, whole = TextFile.scan(path), Text.split(path.name, read_text_file(path))
    assert "".join(file.blocks("train")) == whole.train
    assert "".join(file.blocks("valid")) == whole.valid
    assert str(file) == str(whole)
    assert max(map(len, file.blocks("train"))) <= block + 100


@pytest.mark.parametrize("vocab", [0, 300])
def test_tokens_do_not_depend_on_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vocab: int) -> None:
    path = tmp_path / "text.txt"
    path.write_text(WORDS * 20, encoding="utf-8")
    write_corpus(tmp_path / "whole", Text.split(path.name, read_text_file(path)), vocab)
    monkeypatch.setattr(texts, "BLOCK", 50)
    write_corpus(tmp_path / "blocks", TextFile.scan(path), vocab)
    for name in ("train.tokens", "valid.tokens", "vocabulary.json"):
        assert (tmp_path / "blocks" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_text_without_spaces_is_cut_where_a_block_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "BLOCK", 30)
    monkeypatch.setattr(texts, "LONGEST_BLOCK", 100)
    path = tmp_path / "text.txt"
    path.write_text("漢字" * 1000, encoding="utf-8")
    blocks = list(TextFile.scan(path).blocks("train"))
    assert "".join(blocks) == "漢字" * 900
    assert 100 < max(map(len, blocks)) <= 110
    assert Tokenizer.learn(blocks, 260).decode(Tokenizer.learn(blocks, 260).encode("漢字")) == "漢字"


PEAK = """
import resource, sys
from tfbook import pretrain
from tfbook.data import text
from tfbook.text.windows import Windows
text.BLOCK = 1 << 16
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pretrain.write_corpus(sys.argv[2], pretrain.load_text(sys.argv[1]), 0)
ids = pretrain.read_corpus(sys.argv[2]).train
windows = Windows(ids, length=65, size=12, seed=0, in_order=True)
for step in range(1000):
    windows(step)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) * 1024, ids.numel())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts differently elsewhere")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """As ids in memory, of 8 bytes each, the longer of the two texts would take 20 MB more than the other."""
    peaks = []
    for count in (10_000, 40_000):
        path = tmp_path / f"{count}.txt"
        path.write_text(WORDS * count, encoding="utf-8")
        command = [sys.executable, "-c", PEAK, str(path), str(tmp_path / str(count))]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        peak, tokens = map(int, run.stdout.splitlines()[-1].split())
        peaks.append(peak)
    assert tokens > 2_500_000
    assert peaks[1] < 8 * tokens
    assert peaks[1] < peaks[0] + 2 * tokens


@given(length=st.integers(2, 9), size=st.integers(1, 6), time=st.integers(9, 60), ranks=st.integers(1, 3))
def test_windows_in_order_read_every_token_once_a_pass(length: int, size: int, time: int, ranks: int) -> None:
    """Whatever the batch; processes share it; and the step alone says where to go on."""
    ids, size = torch.arange(time), size * ranks
    windows = Windows(ids, length=length, size=size, seed=0, in_order=True)
    count = (time - 1) // (length - 1)
    steps = -(-count // size)
    read = torch.cat([windows(step) for step in range(steps)])[:count]
    assert read[:, 1:].flatten().tolist() == list(range(1, 1 + count * (length - 1)))
    assert windows(steps * count)[0, 0] == steps * count * size % count * (length - 1)
    share = partial(Windows, ids, length=length, size=size, seed=1, ranks=ranks, in_order=True)
    shares = [share(rank=rank)(2) for rank in range(ranks)]
    assert torch.equal(torch.stack(shares, dim=1).flatten(0, 1), windows(2))


def test_a_run_in_order_is_another_run(tmp_path: Path) -> None:
    """Whose batches are those of the text's order, and which goes on only as such."""
    (tmp_path / "text.txt").write_text(WORDS * 20, encoding="utf-8")
    sizes = {"layers": 1, "heads": 2, "d_model": 8, "context": 8, "batch": 4, "steps": 2, "sample": 0}
    options = pretrain.Options(**sizes, corpus=str(tmp_path / "text.txt"), out=str(tmp_path / "run"), order="text")
    assert pretrain.pretrain(options).steps == 2
    with pytest.raises(ValueError, match="holds a run with order 'text', and order is 'random'"):
        pretrain.pretrain(pretrain.Options(**sizes, corpus=options.corpus, out=options.out))
    with pytest.raises(ValueError, match="order is 'back'; expected one of 'random', 'text'"):
        pretrain.Options(order="back")
