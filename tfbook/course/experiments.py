"""Experiments too long for a lesson: functions of its folder in `tfbook.lessons`, with results under `data/results`.

`python tools/experiment.py positions.addition` runs one again and stores what it returns with the command, the commit,
the date and the machine. A lesson reads it with `stored("positions.addition")`.
"""

from __future__ import annotations

import json
import pkgutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tfbook import files, runtime
from tfbook.course.lessons import LESSONS, slug_of
from tfbook.data.download import SHIPPED

if TYPE_CHECKING:
    from pandas import DataFrame

Experiment = Callable[..., list[dict[str, Any]]]  # returns rows; stored results come from its default arguments
_REGISTERED: dict[str, Experiment] = {}


def experiment(run: Experiment) -> Experiment:
    """Registers a function whose rows are stored under the lesson's slug and its own name: `positions.addition`."""
    _REGISTERED[f"{slug_of(run)}.{run.__name__}"] = run
    return run


def registered() -> dict[str, Experiment]:
    """All experiments of all lessons, by name."""
    for lesson in LESSONS:
        if lesson.written:
            folder = import_module(f"tfbook.lessons.{lesson.slug}")
            for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
                import_module(module.name)
    return dict(sorted(_REGISTERED.items()))


@dataclass(frozen=True, kw_only=True)
class Result:
    """The rows that an experiment returned, and their provenance."""

    rows: list[dict[str, Any]]
    command: str
    commit: str
    date: str
    machine: str
    seconds: float

    @property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __str__(self) -> str:
        return f"stored: {self.command} · {self.date} · {self.commit} · {self.machine} · {self.seconds / 60:.0f} min"


def stored(name: str) -> Result:
    """The stored result called `name`. Raises KeyError when there is none.

    Nothing is printed: the last words of a figure's caption say that its runs are stored, and `print` tells the rest.
    """
    path = _path(name)
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.json"))
        raise KeyError(f"no result is called {name!r}; known: {', '.join(known) or 'none'}")
    return Result(**json.loads(path.read_text(encoding="utf-8")))


def store(name: str, rows: list[dict[str, Any]], *, command: str, commit: str, seconds: float) -> Path:
    """Writes the rows of an experiment with their provenance to the checkout's `data/results`."""
    result = Result(
        rows=rows,
        command=command,
        commit=commit,
        date=datetime.now(UTC).date().isoformat(),
        machine=machine(),
        seconds=round(seconds, 1),
    )
    path = _path(name)
    files.write_text(path, json.dumps(asdict(result), indent=1, default=_plain) + "\n")
    return path


def _plain(number: Any) -> Any:
    """A number of NumPy or PyTorch as one of Python's, which JSON can hold, and an array as a list."""
    if not hasattr(number, "tolist"):
        raise TypeError(f"rows hold {number!r}, a {type(number).__name__}; expected what JSON can hold")
    return number.tolist()


def machine() -> str:
    """The machine that computed a result: processor or GPU, threads, precision, and version of torch."""
    device = runtime.device()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else runtime.cpu_name()
    threads = torch.get_num_threads()
    return f"{name}, {threads} thread{'s' if threads != 1 else ''}, {runtime.precision()}, torch {torch.__version__}"


def current_commit() -> str:
    """The checkout's commit; ask before an experiment starts, since others may commit while it runs."""
    here = Path(__file__).parent
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "no commit"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a Markdown table, headed by the keys of the first row."""
    heads = list(rows[0])
    return "\n".join([_line(heads), "|" + "---|" * len(heads), *(_line([row[head] for head in heads]) for row in rows)])


def _line(cells: Sequence[Any]) -> str:
    """A line of the table: no `|` and no line end of a cell's text ends the cell."""
    return "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


def _path(name: str) -> Path:
    folder = next(folder for folder in SHIPPED if folder.is_dir())
    return folder / "results" / f"{name}.json"
