"""Lesson 17: a state of fixed size, what it keeps and what it has to forget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tfbook.lessons.state_spaces.answers import answer as answer
from tfbook.lessons.state_spaces.asking import WAYS as WAYS, AskedGru as AskedGru
from tfbook.lessons.state_spaces.choosing import (
    chosen as chosen,
    chosen_table as chosen_table,
    steps_taken as steps_taken,
)
from tfbook.lessons.state_spaces.claims import CLAIMS as CLAIMS
from tfbook.lessons.state_spaces.convolution_contest import continued_melodies as continued_melodies
from tfbook.lessons.state_spaces.convolution_listening import (
    TUNE as TUNE,
    TUNE_ALT as TUNE_ALT,
    convolve as convolve,
    first_melody as first_melody,
    melody_scores as melody_scores,
    player as player,
)
from tfbook.lessons.state_spaces.convolution_sights import (
    filter_paths as filter_paths,
    pixel_sight as pixel_sight,
    stack_sight as stack_sight,
)
from tfbook.lessons.state_spaces.convolutions import NOTE as NOTE, RATE as RATE
from tfbook.lessons.state_spaces.costs import (
    per_word as per_word,
    seconds as seconds,
    training_steps as training_steps,
)
from tfbook.lessons.state_spaces.filling import (
    KEYS as KEYS,
    MANY as MANY,
    facts_held as facts_held,
    held_table as held_table,
    overflow as overflow,
)
from tfbook.lessons.state_spaces.keeping import (
    GAPS as GAPS,
    HOLDERS as HOLDERS,
    IDLE as IDLE,
    held_by as held_by,
    right_by_gap as right_by_gap,
    shares_left as shares_left,
    stream as stream,
    train_keeper as train_keeper,
)
from tfbook.lessons.state_spaces.recall import (
    PAIRS as PAIRS,
    Reader as Reader,
    counting as counting,
    recalled as recalled,
    train_reader as train_reader,
)
from tfbook.lessons.state_spaces.selecting import (
    by_word as by_word,
    selected as selected,
    still_loss as still_loss,
)
from tfbook.lessons.state_spaces.stepping import (
    WORDS as WORDS,
    half_life as half_life,
    one_step as one_step,
)
from tfbook.lessons.state_spaces.telling import (
    MIXERS,
    RATE as STORY_RATE,
    SIZES,
    WINDOW,
    as_text as as_text,
    corpus as corpus,
    held_out_loss as held_out_loss,
    state_bytes as state_bytes,
    storyteller as storyteller,
    told_by as told_by,
    train_teller as train_teller,
)

if TYPE_CHECKING:
    from pandas import DataFrame


def largest_ratio(rows: Sequence[Mapping[str, Any]], *, long: int = 8192, short: int = 512) -> dict[str, float]:
    """For each method, the time of one more word after `long` words relative to that after `short`."""
    times = {(row["method"], row["length"]): row["ms"] for row in rows}
    return {method: times[method, long] / times[method, short] for method in dict.fromkeys(m for m, _ in times)}


def gap_table(runs: Mapping[str, Sequence[float]]) -> DataFrame:
    """Right answers of each reader, by the words since the lantern changed hands."""
    import pandas as pd

    columns = [f"{low}–{high - 1} words" for low, high in GAPS]
    return pd.DataFrame.from_dict(dict(runs), orient="index", columns=columns).round(3)


def by_batches(rows: Sequence[Mapping[str, Any]], facts: int) -> DataFrame:
    """Right answers about so many facts after fewer and more batches of training: the range of the seeds."""
    import pandas as pd

    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        name = f"{row['method']}, {row['numbers']} numbers"
        found.setdefault(name, {}).setdefault(f"{row['steps']:,} batches", []).append(row[f"{facts} facts"])
    ranges = {
        name: {count: f"{min(each):.2f}–{max(each):.2f}" for count, each in counts.items()}
        for name, counts in found.items()
    }
    return pd.DataFrame.from_dict(ranges, orient="index")


def selection_table(rows: Sequence[Mapping[str, Any]], whole: Sequence[float]) -> DataFrame:
    """Mamba's loss with parts held still after training and trained without them; `whole` has those as it is."""
    import pandas as pd

    losses: dict[tuple[str, str], list[float]] = {("", kind): list(whole) for kind in ("held", "trained")}
    for row in rows:
        if row.get("still"):
            losses.setdefault((row["still"], row["kind"]), []).append(row["loss"])
    table: dict[str, dict[str, str]] = {}
    for (still, kind), each in losses.items():
        column = {"held": "held at its mean after training", "trained": "trained so"}[kind]
        table.setdefault(still or "nothing", {})[column] = "–".join(dict.fromkeys(f"{x:.2f}" for x in sorted(each)))
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("the same at each word")


Rows = Sequence[Mapping[str, Any]]


def best_rates(told: Rows, others: Rows) -> dict[str, list[Mapping[str, Any]]]:
    """For each mixer the stories' runs at the learning rate that is best on the first seed, out of both experiments."""
    runs = [{"lr": STORY_RATE, **row} for row in told] + list(others)
    first = min(row["seed"] for row in runs)
    best = {
        method: min((row for row in runs if (row["method"], row["seed"]) == (method, first)), key=_loss)["lr"]
        for method in dict.fromkeys(row["method"] for row in told)
    }
    return {method: [row for row in runs if (row["method"], row["lr"]) == (method, lr)] for method, lr in best.items()}


def _loss(row: Mapping[str, Any]) -> float:
    return float(row["loss"])


def rates_table(told: Rows, others: Rows) -> DataFrame:
    """Loss on the first seed for each mixer and learning rate."""
    import pandas as pd

    first = min(row["seed"] for row in told)
    runs = [{"lr": STORY_RATE, **row} for row in told] + list(others)
    table = pd.DataFrame([row for row in runs if row["seed"] == first])
    table = table.pivot_table("loss", "method", "lr", sort=False).sort_index(axis=1)
    return table.rename_axis("mixer").rename_axis("learning rate", axis=1).round(2)


def scoreboard(told: Rows, others: Rows, found: Rows, pairs: Rows) -> DataFrame:
    """Each mixer beside the others: loss on stories, sentences that the world allows, recall, and memory.

    Recall is that of the best size in one block, `found`, and, where a mixer has none, in two blocks, `pairs`.
    """
    import pandas as pd

    rows = []
    for method, runs in best_rates(told, others).items():
        losses = [row["loss"] for row in runs]
        rows.append(
            {
                "mixer": method,
                "loss, nats per word": f"{min(losses):.2f}–{max(losses):.2f}",
                "right sentences": f"{fmean(row['sentences'] for row in runs):.0%}",
                "16 facts after 500 batches": _recall(method, found) or _recall(method, pairs),
                "kept after 8,192 words": kept_bytes(method, 8192),
                "MFLOPs per word": round(runs[0]["flops"] / 1e6, 2),
            }
        )
    return pd.DataFrame(rows).set_index("mixer")


def _recall(method: str, rows: Rows) -> str:
    """The mean of the seeds at the best size; nothing where the mixer is not among the rows."""
    shares: dict[int, list[float]] = {}
    for row in rows:
        if row["method"] == method:
            shares.setdefault(row.get("numbers", 0), []).append(row["16 facts"])
    return f"{max(map(fmean, shares.values())):.0%}" if shares else ""


def kept_bytes(method: str, words: int) -> str:
    """The memory of a model's caches after so many words; a window needs its own positions alone."""
    if method == "window":
        return _size(2 * WINDOW * SIZES["d_model"] * SIZES["layers"] * 4)
    return _size(state_bytes(storyteller(MIXERS[method]), words))


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count > 1e6 else f"{count / 1e3:.1f} kB"
