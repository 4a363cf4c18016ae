"""The page as one file: its text, style and script, and the model as data."""

from __future__ import annotations

import base64
import html
import json
from importlib import resources
from pathlib import Path
from string import Template

from tfbook import files
from tfbook.page.subjects import Subject, described
from tfbook.page.weights import check_computable, halves, sizes, stored_bytes
from tfbook.text.vocabulary import CharacterVocabulary, Vocabulary

MOST = 6_000_000  # bytes of a page, which a mail can hold and a phone opens at once
SHARED = "tfbook.plot.views"  # the views of the notebooks have the helpers that the page uses, too
STYLES = ((SHARED, "base.css"), ("tfbook.page", "page.css"))
SCRIPTS = (
    *((SHARED, name) for name in ("base.js", "chance.js")),
    *(
        ("tfbook.page", f"{name}.js")
        for name in ("model", "tokenizers", "sampling", "session", "text", "inside", "implant", "page")
    ),
)


def write_page(subject: Subject, path: str | Path, *, bits: int = 16) -> int:
    """Writes the page of a model to `path`, atomically, and returns its size in bytes; `bits` (16 or 8) are a weight's.

    Raises ValueError for a model that the page cannot compute or that makes it larger than `MOST`, and OSError where
    `path` cannot be written.
    """
    content = page_html(subject, bits=bits).encode()
    if len(content) > MOST:
        found = f"the page would have {len(content) / 1e6:.1f} MB; expected at most {MOST / 1e6:.0f} MB"
        raise ValueError(f"{found}, which is a model of about 2.2 million parameters")
    with files.atomic_write(path) as file:
        file.write(content)
    return len(content)


def page_html(subject: Subject, *, bits: int = 16) -> str:
    """The page of a model, which loads nothing from elsewhere, its weights in 16 bits or its matrices in 8.

    Raises ValueError for a model that it cannot compute and for other bits.
    """
    if bits not in (8, 16):
        raise ValueError(f"bits is {bits}; expected 8 or 16")
    check_computable(subject.model)
    weights = halves(subject.model)
    data = {
        "sizes": sizes(subject.model, subject.longest),
        "shapes": {name: list(weight.shape) for name, weight in weights.items()},
        "vocabulary": described(subject.vocabulary),
        "start": subject.start,
        "other": subject.other,
        "head": list(subject.head),
        "bits": bits,
    }
    return Template(_file("tfbook.page", "page.html")).substitute(
        title=html.escape(subject.title),
        lead=html.escape(subject.lead),
        unit=_unit(subject),
        head_tip=html.escape(subject.tips[0]),
        implant_tip=html.escape(subject.tips[1]),
        facts=html.escape(_facts(subject)),
        style="\n".join(_file(*name) for name in STYLES),
        script="\n".join(_file(*name) for name in SCRIPTS),
        data=json.dumps(data).replace("<", "\\u003c"),  # no token ends the script that holds it
        weights=base64.b64encode(b"".join(stored_bytes(weight, bits) for weight in weights.values())).decode(),
        precision="half precision" if bits == 16 else "eight bits",
    )


def _file(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")


def _unit(subject: Subject) -> str:
    """The word by which the page calls a token."""
    if isinstance(subject.vocabulary, Vocabulary):
        return "word"
    return "character" if isinstance(subject.vocabulary, CharacterVocabulary) else "token"


def _facts(subject: Subject) -> str:
    model, numbers = subject.model, sizes(subject.model, subject.longest)
    parts = [
        f"{model.parameter_count():,} parameters",
        f"{numbers['layers']} blocks of {numbers['heads']} heads",
        f"vectors of {numbers['width']} numbers",
        f"a vocabulary of {len(subject.vocabulary):,} tokens",
        f"at most {subject.longest} tokens at once",
    ]
    return f"The model: {', '.join(parts)}."
