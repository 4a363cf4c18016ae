"""Answers to a lesson's predictions: what a cell shows and the text that explains it, closed until they are opened."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

from tfbook.course.formulas import markdown_with_formulas

WIDGET = "application/vnd.jupyter.widget-view+json"  # a progress bar, which is of use only while it runs
SUMMARY = "Made your prediction? Open the answer."
STYLESHEET = """<style>
.tfbook-answer { margin: 0.4em 0 }
.tfbook-answer > summary { cursor: pointer; width: fit-content; padding: 0.3em 0.8em; border: 1px solid #7f8790;
  border-radius: 0.4em; font-weight: bold }
.tfbook-answer > summary:focus-visible { outline: 2px solid #3f90da; outline-offset: 2px }
.tfbook-answer > div { margin: 0.6em 0 }
.tfbook-answer > div > pre { font-family: var(--jp-code-font-family, monospace); font-size: 0.93em; max-width: 95ch;
  white-space: pre-wrap; overflow-wrap: break-word }
.tfbook-explanation { max-width: 60em }
</style>"""


@dataclass(frozen=True)
class Shown:
    """One thing that a cell shows, as Jupyter's display message has it."""

    data: dict[str, Any]  # by MIME type
    metadata: dict[str, Any] = field(default_factory=dict)

    def show(self, publisher: Any) -> None:
        """Displays it openly."""
        publisher.publish(self.data, self.metadata)

    @property
    def text(self) -> str:
        """Its plain text."""
        return str(self.data.get("text/plain", "")).rstrip("\n")

    @property
    def html(self) -> str:
        """The richest of its kinds that a page can hold."""
        for mime in ("text/html", "image/svg+xml"):
            if mime in self.data:
                return str(self.data[mime])
        if "image/png" in self.data:
            return _picture(self.data["image/png"], self.metadata.get("image/png", {}))
        return (
            markdown_with_formulas(self.data["text/markdown"])
            if "text/markdown" in self.data
            else _preformatted(self.text)
        )


class Printed(Shown):
    """Text from standard output."""

    def show(self, publisher: Any) -> None:
        """Prints it."""
        print(self.data["text/plain"], end="")


class PredictionAnswers:
    """The answers of a lesson by key: `with answer("gradient"):` shows what runs inside and its explanation, closed."""

    def __init__(self, explanations: Mapping[str, str]):
        self.explanations = {key: text.strip() for key, text in explanations.items()}

    @contextmanager
    def __call__(self, key: str) -> Iterator[None]:
        """Gathers what the block prints and displays, and shows it with the explanation of `key` in one closed output.

        When the block raises, all that it showed before is shown openly. Outside of IPython the block prints as
        always, and the explanation follows. Raises KeyError for a key without an answer.
        """
        if key not in self.explanations:
            raise KeyError(f"there is no answer {key!r}; expected one of {', '.join(self.explanations)}")
        shell = _shell()
        if shell is None:
            yield
            print(self.explanations[key])
            return
        publisher = shell.display_pub
        gathered = Gathered(publisher)
        try:
            with gathered.instead_of(shell):
                yield
        except BaseException:
            for shown in gathered.outputs:
                shown.show(publisher)
            raise
        publisher.publish(_bundle(gathered.outputs, self.explanations[key]))


class Gathered:
    """Keeps all that is printed and displayed, in order, in place of IPython's publisher and of standard output."""

    def __init__(self, publisher: Any):
        self.publisher = publisher
        self.outputs: list[Shown] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.publisher, name)

    @contextmanager
    def instead_of(self, shell: Any) -> Iterator[None]:
        """While the block runs."""
        shell.display_pub = self
        try:
            with redirect_stdout(Stream(self.outputs)):
                yield
        finally:
            shell.display_pub = self.publisher

    def publish(self, data: dict[str, Any], metadata: dict[str, Any] | None = None, **options: Any) -> None:
        """Keeps what is displayed, except for a widget, which is seen while it runs."""
        if WIDGET in data or options.get("update"):
            self.publisher.publish(data, metadata, **options)
        else:
            self.outputs.append(Shown(data, metadata or {}))

    def clear_output(self, wait: bool = False) -> None:
        """Forgets what came so far."""
        self.outputs.clear()


class Stream(io.TextIOBase):
    """A stream that joins what is printed to the outputs."""

    def __init__(self, outputs: list[Shown]):
        self.outputs = outputs

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Lengthens the last output where that was printed, or begins another one."""
        if not self.outputs or not isinstance(self.outputs[-1], Printed):
            self.outputs.append(Printed({"text/plain": ""}))
        self.outputs[-1].data["text/plain"] += text
        return len(text)


def _shell() -> Any:
    """IPython's shell, None outside of it."""
    from IPython.core.getipython import get_ipython

    return get_ipython()


def _bundle(outputs: list[Shown], explanation: str) -> dict[str, str]:
    """The closed answer, and its text for search, comparison and a terminal.

    JupyterLab would take Enter on the line that opens it for a command, were its shortcuts not suppressed there.
    """
    shown = "\n".join(f"<div>{output.html}</div>" for output in outputs)
    page = (
        f'<details class="tfbook-answer"><summary data-lm-suppress-shortcuts="true">{SUMMARY}</summary>\n{STYLESHEET}\n'
        f'{shown}\n<div class="tfbook-explanation">\n{markdown_with_formulas(explanation)}</div></details>'
    )
    plain = "\n".join([*filter(None, (output.text for output in outputs)), "", explanation])
    return {"text/html": page, "text/plain": plain}


def _preformatted(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _picture(png: bytes | str, look: Mapping[str, Any]) -> str:
    """A bare image, whose bytes may come in base 64, with its alt text and width."""
    import base64

    from tfbook.plot.house import image_element

    return image_element(base64.b64decode(png) if isinstance(png, str) else png, look.get("alt", ""), look.get("width"))
