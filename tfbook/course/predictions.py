"""Stand-in until the engine is on main."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Answers:
    def __init__(self, texts: Mapping[str, str]):
        self.texts = dict(texts)

    @contextmanager
    def __call__(self, key: str) -> Iterator[None]:
        text = self.texts[key]
        yield
        from IPython.display import Markdown, display

        display(Markdown(text))
