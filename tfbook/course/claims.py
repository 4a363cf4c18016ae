"""Claims of papers, measured: each prints its verdict, and `CLAIMS.md` collects them from the executed notebooks."""

from __future__ import annotations

import html
import math
import operator
import re
from dataclasses import asdict, dataclass
from typing import Any

from tfbook import runtime

RELATIONS = {">=": operator.ge, "<=": operator.le}
SIGNS = {">=": "≥", "<=": "≤"}
MIME = "application/vnd.tfbook.claim+json"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement with the number that was measured for it. Displays itself in a notebook."""

    key: str  # the lesson's slug and the number within it, such as "transformer.12"
    statement: str
    source: str
    measured: float
    relation: str  # ">=" or "<="
    threshold: float
    unit: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*\.\d+", self.key):
            raise ValueError(f"key is {self.key!r}; expected slug and number such as 'transformer.12'")
        if self.relation not in RELATIONS:
            raise ValueError(f"relation is {self.relation!r}; expected one of {', '.join(RELATIONS)}")

    @property
    def lesson(self) -> str:
        """The slug of the lesson that makes the claim."""
        return self.key.partition(".")[0]

    @property
    def number(self) -> int:
        """The claim's number within its lesson."""
        return int(self.key.partition(".")[2])

    @property
    def verdict(self) -> str:
        """`holds` or `does not hold`; `not enforced` at scale quick, where models are too small to tell."""
        if runtime.scale() == "quick":
            return "not enforced"
        holds = math.isfinite(self.measured) and RELATIONS[self.relation](self.measured, self.threshold)
        return "holds" if holds else "does not hold"

    @property
    def _figures(self) -> str:
        required = f"required {SIGNS[self.relation]} {self.threshold:g}{self.unit}"
        return f"measured {self.measured:.3g}{self.unit} · {required} · {self.source}"

    def __repr__(self) -> str:
        return f"Claim {self.number} {self.verdict}: {self.statement}\n  {self._figures}"

    def _repr_html_(self) -> str:
        colour = {"holds": "#1a7f37", "does not hold": "#cf222e"}.get(self.verdict, "#6e7781")
        return (
            f'<div style="border-left: 4px solid {colour}; padding: 0.3em 0.8em; margin: 0.4em 0">'
            f'<b>Claim {self.number} <span style="color: {colour}">{self.verdict}</span></b>: '
            f"{html.escape(self.statement)}"
            f'<br><span style="opacity: 0.75">{html.escape(self._figures)}</span></div>'
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        measured = self.measured if math.isfinite(self.measured) else None  # JSON knows no NaN
        record = asdict(self) | {"measured": measured, "lesson": self.lesson, "verdict": self.verdict}
        return {"text/plain": repr(self), "text/html": self._repr_html_(), MIME: record}


def claim(
    key: str, statement: str, measured: float, relation: str, threshold: float, *, source: str, unit: str = ""
) -> Claim:
    """A measured claim as the last line of a cell: `claim("transformer.1", "…", bleu, ">=", 90, source="…")`.

    It never raises for a number that fails: the printed verdict says so, and nbval compares verdicts.
    """
    figures: dict[str, Any] = {
        "measured": float(measured),
        "relation": relation,
        "threshold": float(threshold),
        "unit": unit,
    }
    return Claim(key=key, statement=statement, source=source, **figures)
