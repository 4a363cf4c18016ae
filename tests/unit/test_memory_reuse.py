"""The benchmark of kept memory: its rows on given figures, and its steps on few of them."""

import platform
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/memory_reuse.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    names = runpy.run_path(str(SCRIPT))
    for name in ("WARM_UP", "STEPS"):
        monkeypatch.setitem(names["main"].__globals__, name, 1)
    return names


def test_a_ratio_is_the_middle_of_the_rounds(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given = {False: iter([30.0, 20.0, 90.0]), True: iter([20.0, 20.0, 10.0])}
    inside = script["main"].__globals__
    monkeypatch.setitem(inside, "MODELS", {"one": None})
    monkeypatch.setitem(
        inside, "in_new_process", lambda name, keep: {"ms": next(given[keep]), "pages": 1.0, "system": 0.25}
    )
    plain, kept = script["rows"](rounds=3)
    assert plain == {"model": "one", "memory": "as it is", "ms": 30.0, "pages": 1.0, "system": 0.2, "ratio": ""}
    assert kept == {"model": "one", "memory": "kept", "ms": 20.0, "pages": 1.0, "system": 0.2, "ratio": 1.5}


@pytest.mark.parametrize("name", ["translator", "ViT", "GPT"])
def test_every_model_takes_its_steps(script: dict[str, Any], name: str) -> None:
    found = script["measure"](name)
    assert found.keys() == {"ms", "pages", "system"}
    assert found["ms"] > 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator can be asked to keep memory")
def test_a_process_of_its_own_takes_fewer_pages_when_it_keeps_memory(script: dict[str, Any]) -> None:
    pages = [script["in_new_process"]("translator", keep=keep)["pages"] for keep in (False, True)]
    assert pages[1] < pages[0] / 5
