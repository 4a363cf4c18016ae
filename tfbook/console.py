"""Commands that end well: an error or an interruption is one line, whatever becomes of the console."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import TextIOWrapper
from typing import Any

INTERRUPTED, UNREAD = 130, 141  # the exit codes by which shells report Ctrl-C and a closed pipe


@contextmanager
def command(parser: ArgumentParser, *errors: type[Exception], interrupted: str = "stopped") -> Iterator[None]:
    """Runs the body of a command: `errors` end it with one line and exit code 2, Ctrl-C with the line `interrupted`.

    A closed pipe, as in `… | head -1`, ends it without a word. Characters that the console lacks are escaped.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        parser.exit(INTERRUPTED, f"{parser.prog}: {interrupted}\n")
    except BrokenPipeError:
        _discard(sys.stdout)
        parser.exit(UNREAD)
    except errors as error:
        _discard_what_cannot_be_written()
        line = " ".join(str(error).splitlines()) or type(error).__name__
        parser.exit(2, f"{parser.prog}: error: {line}\n")


@contextmanager
def unfailing() -> Iterator[None]:
    """Printing in the body cannot fail, neither at a closed pipe nor at characters that the console lacks."""
    with redirect_stdout(_Unfailing(sys.stdout)), redirect_stderr(_Unfailing(sys.stderr)):
        yield


class _Unfailing:
    """A stream that is written to as far as it can be."""

    def __init__(self, stream: Any):
        self._stream = stream or open(os.devnull, "w")  # noqa: SIM115 (it lives as long as its user)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        with self._tolerated():
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        with self._tolerated():
            self._stream.flush()

    @contextmanager
    def _tolerated(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            _discard(self._stream)
        except OSError:  # a full disk: `command` reports it when all is done
            pass


def _discard_what_cannot_be_written() -> None:
    try:
        sys.stdout.flush()
    except (OSError, AttributeError):  # AttributeError: there is no stdout
        _discard(sys.stdout)


def _discard(stream: Any) -> None:
    """Sends what a stream still holds, and whatever follows, nowhere; else Python complains of it at its own end."""
    with suppress(OSError, ValueError, AttributeError):  # nothing to send: a notebook's stream, or none
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
