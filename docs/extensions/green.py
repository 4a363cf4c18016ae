"""The day on which all cells of a lesson last ran and gave what is stored, as continuous integration says."""

from __future__ import annotations

import os
import subprocess
from datetime import date
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "TFBOOK_GREEN"  # "2026-11-28 COMMIT", which .github/workflows/site.yml sets
UNKNOWN = "Last green: not yet (this copy of the site does not come from a run of the tests)"
CHANGED = "Last green: not yet for this version"


def sentence(notebook: str) -> str:
    """When the notebook last ran under nbval; a version that is newer than that run has no date yet."""
    day, commit = known()
    if not day:
        return UNKNOWN
    if changed_since(commit, notebook):
        return CHANGED
    return f"Last green: {day:%B} {day.day}, {day.year} (every cell ran and gave what you see)"


def known() -> tuple[date | None, str]:
    """The day and the commit of the last run that was green. Raises ValueError for another text in the variable."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None, ""
    day, _, commit = text.partition(" ")
    return date.fromisoformat(day), commit


@cache
def changed_since(commit: str, notebook: str) -> bool:
    """Whether the notebook differs from that of the commit, or cannot be compared."""
    done = subprocess.run(["git", "diff", "--quiet", commit, "--", notebook], cwd=ROOT, capture_output=True)
    return not commit or done.returncode != 0
