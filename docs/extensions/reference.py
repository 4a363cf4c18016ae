"""The reference of the package from its docstrings: a page for each room, a section for each module."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from lessons import ROOT, write_changed
from sphinx.application import Sphinx

ROOMS = {
    "attention": "masks, implementations, heads, positions, caches",
    "models": "blocks made of parts, and the models made of blocks",
    "training": "the loop, losses, schedules, optimizers, checkpoints",
    "pretrain": "the commands that train a model on a text of any size",
    "parallel": "several processes on one machine, real and simulated",
    "generation": "sampling, search, speculation, quantization, the engine",
    "text": "tokenizers and vocabularies",
    "data": "corpora that ship, and real ones that are fetched and verified",
    "interop": "weights of other libraries",
    "page": "a model in one HTML page",
    "plot": "figures and interactive views",
    "course": "what lessons share: exercises, claims, costs, invariants, grading",
}
FIELD = re.compile(r"Alias for field number \d+\s*$")
CODE = re.compile(r"(`+[^`]+`+)")


def modules(folder: Path) -> list[str]:
    """The public modules of a room by their full names."""
    paths = [path.relative_to(ROOT).with_suffix("") for path in sorted(folder.rglob("*.py")) if documented(path)]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not any(part.startswith("_") for part in name.split("."))]


def documented(path: Path) -> bool:
    """Whether a module defines a public name, so that its section would not be empty."""
    tree = ast.parse(path.read_bytes())
    defined = [one for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
    return any(not one.name.startswith("_") and ast.get_docstring(one) for one in defined)


def sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def section(module: str) -> str:
    return f"## `{module}`\n\n```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n```\n"


def write_reference(app: Sphinx) -> None:
    """Writes a page for each room, one for the modules outside of rooms, and their list."""
    folder = Path(app.srcdir) / "reference"
    pages = {
        room: (f"`tfbook.{room}`\n\n{sentence(about)}", modules(ROOT / "tfbook" / room))
        for room, about in ROOMS.items()
    }
    single = [f"tfbook.{p.stem}" for p in sorted((ROOT / "tfbook").glob("[a-z]*.py")) if documented(p)]
    pages["runtime"] = "`tfbook.runtime`, `checks`, `files`, `parts`\n\nWhat all rooms use.", single
    for name, (title, names) in pages.items():
        text = "\n".join([f"# {title}\n", *map(section, names)])
        write_changed(folder / f"{name}.md", text.encode())
    listed = "\n".join(pages)
    rooms = "\n".join(f"- [`tfbook.{room}`]({room}.md): {about}" for room, about in ROOMS.items())
    rooms += "\n- [`tfbook.runtime`](runtime.md), `checks`, `files`, `parts`: used by all rooms"
    about = "What the package offers, from its docstrings, room by room. A lesson shows the code of what it explains."
    text = f"# Reference\n\n{about}\n\n{rooms}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    write_changed(folder / "index.md", text.encode())


def plain(app: Sphinx, what: str, name: str, thing: object, options: Any, lines: list[str]) -> None:
    """Our docstrings are no reStructuredText: outside of `code`, stars, bars and underscores mean themselves.

    Indented lines are commands, which stay as they are. What Python says of a named tuple's fields is left away.
    """
    written: list[str] = []
    for line in lines:
        if not line.startswith("    "):
            parts = CODE.split(line)
            line = "".join(
                one if CODE.fullmatch(one) else re.sub(r"([*|\\]|_(?=\W|$)|`)", r"\\\1", one) for one in parts
            )
        elif written[-1:] == [""]:
            written += ["::", ""]
        written.append(line)
    lines[:] = [] if FIELD.match("\n".join(lines)) else written


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", plain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
