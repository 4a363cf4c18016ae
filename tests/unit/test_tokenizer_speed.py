"""The benchmark of the tokenizer: its rows on a short text."""

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/tokenizer_speed.py"
TEXT = "the cat and the dog and the bird " * 20


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM"):  # the script sets them for good
        monkeypatch.setenv(name, "unset")
    names = runpy.run_path(str(SCRIPT))
    monkeypatch.setitem(names["main"].__globals__, "VOCAB", 280)
    return names


def test_each_is_timed_in_each_round(script: dict[str, Any]) -> None:
    for task, peers in (("learning", 2), ("encoding", 4)):
        seconds = script[task](TEXT, 2)
        assert len(seconds) == peers
        assert all(len(times) == 2 and min(times) > 0 for times in seconds.values())


def test_the_work_is_the_same(script: dict[str, Any]) -> None:
    theirs, ours = script["rust"](TEXT), script["Tokenizer"].learn([TEXT], 280)
    assert theirs.get_vocab_size() == len(ours)
    assert theirs.encode(TEXT).ids == ours.encode(TEXT)


def test_other_ids_are_no_race(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    other = script["rust"]("another text")
    monkeypatch.setitem(script["main"].__globals__, "rust", lambda text: other)
    with pytest.raises(ValueError, match="text gives other ids in tfbook than in tokenizers; expected the same"):
        script["encoding"](TEXT, 1)


def test_a_ratio_is_the_middle_of_the_rounds(script: dict[str, Any]) -> None:
    rows = script["rows"](
        "learn", {"tfbook": [1.0, 2.0, 4.0], "tokenizers": [2.0, 6.0, 4.0], "minbpe": [300.0] * 3}, 2_000_000
    )
    assert [row["ratio"] for row in rows] == [1.0, 2.0, 150.0]
    assert [row["bar"] for row in rows] == ["", 0.5, 100.0]
    assert rows[0]["M chars/s"] == 1.0
