"""A progress bar that suits where it is drawn: a widget in notebooks with ipywidgets, a line of text elsewhere.

The stop button ends its loop after the current step, and what follows the loop runs.
"""

import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import TqdmWarning

from tfbook.training.stopping import stop_flag

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TqdmWarning)  # that ipywidgets is missing: a line of text does as well
    from tqdm import auto

__all__ = ["tqdm"]


class tqdm(auto.tqdm):
    """tqdm's bar, whose loop ends after the current step when the stop button is pressed.

    The bar then stays and says after how many steps. A second press raises KeyboardInterrupt at once.
    """

    def __iter__(self) -> Iterator[Any]:
        items = self.iterable
        with stop_flag() as stop:
            self.iterable = self._until(stop, items)
            try:
                yield from super().__iter__()
            finally:
                self.iterable = items

    def _until(self, stop: threading.Event, items: Iterable[Any]) -> Iterator[Any]:
        for done, item in enumerate(items, start=1):
            yield item
            if stop.is_set():
                self.say_stopped(done)
                return

    def say_stopped(self, done: int) -> None:
        """Lets the bar stay and say that it was stopped after `done` steps, unless these were all."""
        if self.disable or done == self.total:
            return
        of = "" if self.total is None else f" of {self.total}"
        self.leave = True
        self.set_description(f"stopped after {done}{of} {'step' if self.unit == 'it' else self.unit}s", refresh=False)
