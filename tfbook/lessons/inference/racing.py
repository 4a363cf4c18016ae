"""The race at the end of lesson 16: several ways to write one story, replayed side by side as they came."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from tfbook.course.cost import busy_clock
from tfbook.generation import sampling
from tfbook.generation.speculative import Passes, Speculation
from tfbook.models.language_model import LanguageModel
from tfbook.text.vocabulary import Vocabulary


class Lane(NamedTuple):
    """The words of a story, and the seconds after which so many of them were there."""

    words: list[str]
    stamps: list[tuple[int, float]]

    @property
    def end(self) -> float:
        """The seconds until the last word."""
        return self.stamps[-1][1]

    def at(self, moment: float) -> int:
        """The words that were there at this moment."""
        return max((count for count, when in self.stamps if when <= moment), default=0)


class StampedPasses(Passes):
    """Counts of speculation that note the clock whenever tokens have come."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "tokens" and value:
            self.__dict__.setdefault("stamps", []).append((value, busy_clock()))


def run_lane(way: LanguageModel | Speculation, ids: Tensor, count: int, vocabulary: Vocabulary) -> Lane:
    """`count` words after `ids` (1, time), always the likeliest one, and when each came."""
    clocks: list[float] = []

    def stamp(logits: Tensor, ids: Tensor) -> Tensor:
        clocks.append(busy_clock())
        return logits

    start, likeliest = busy_clock(), sampling.top_k(1)
    if isinstance(way, Speculation):
        way.passes = passes = StampedPasses()
        text = way.generate(ids, max_new_tokens=count, filters=[likeliest])
        stamps = [(tokens, clock - start) for tokens, clock in passes.__dict__["stamps"]]
    else:
        text = sampling.generate(way, ids, max_new_tokens=count, filters=[stamp, likeliest])
        stamps = [(number, clock - start) for number, clock in enumerate(clocks, start=1)]
    return Lane(list(vocabulary.decode(text[0, ids.shape[1] :])), stamps)


def race_lanes(
    ways: Mapping[str, LanguageModel | Speculation], ids: Tensor, count: int, vocabulary: Vocabulary, rounds: int = 3
) -> dict[str, Lane]:
    """Each way's run of middle length, of so many, in turns."""
    runs = [{name: run_lane(way, ids, count, vocabulary) for name, way in ways.items()} for _ in range(rounds)]
    return {name: sorted((run[name] for run in runs), key=lambda lane: lane.end)[rounds // 2] for name in ways}


def show_race(lanes: Mapping[str, Lane], until: str, *, frames: int = 20, pause: float = 0.1) -> None:
    """Replays the lanes in slow motion up to the end of lane `until`, in `frames` pictures with `pause` seconds each.

    What stays on the page is the last picture.
    """
    from IPython.display import display

    end = lanes[until].end
    handle = None
    for frame in range(1, frames + 1):
        page = picture(lanes, end * frame / frames)
        if handle is None:
            handle = display(page, raw=True, display_id=True)
        else:
            handle.update(page, raw=True)
        time.sleep(pause)


def picture(lanes: Mapping[str, Lane], moment: float) -> dict[str, str]:
    """The lanes at a moment: for each its name, its words counted, a bar, and the text so far."""
    rows, lines = [f"<p>after {1e3 * moment:,.0f} milliseconds</p>"], [f"after {1e3 * moment:,.0f} milliseconds"]
    for name, lane in lanes.items():
        count, total = lane.at(moment), len(lane.words)
        there = " ".join(lane.words[:count])
        rows.append(
            f"<p><b>{html.escape(name)}</b> · {count} of {total} words<br>"
            f'<progress max="{total}" value="{count}" style="width: 30em; max-width: 100%"></progress><br>'
            f"{html.escape(there)}</p>"
        )
        lines.append(f"{name}: {count} of {total} words: {there}")
    return {"text/html": "\n".join(rows), "text/plain": "\n".join(lines)}
