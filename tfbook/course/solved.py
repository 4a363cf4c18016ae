"""The exercises solved on this machine. Nothing leaves it, and no name is kept.

The file is the one that TFBOOK_PROGRESS names, else lies in TFBOOK_DATA or in the platform's folder for user data.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from tfbook.files import atomic_write


def progress_file() -> Path:
    """Where the solved exercises are noted."""
    if file := os.environ.get("TFBOOK_PROGRESS"):
        return Path(file).expanduser()
    if folder := os.environ.get("TFBOOK_DATA"):
        return Path(folder).expanduser() / "progress.json"
    from platformdirs import user_data_path

    return user_data_path("tfbook", appauthor=False) / "progress.json"


def solved() -> dict[str, list[str]]:
    """Slug of a lesson → names of its solved exercises; empty where nothing legible was noted."""
    try:
        found = json.loads(progress_file().read_text(encoding="utf-8"))
        return {slug: [str(name) for name in names] for slug, names in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def note(lesson: str, exercise: str) -> None:
    """Notes that an exercise was solved. A folder that cannot be written is no reason to fail."""
    known = solved()
    if exercise in known.get(lesson, ()):
        return
    known[lesson] = sorted({*known.get(lesson, ()), exercise})
    with suppress(OSError), atomic_write(progress_file()) as file:
        file.write(json.dumps(known, indent=1).encode())
