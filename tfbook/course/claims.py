"""Measured claims, mostly of papers: each shows its verdict, and `CLAIMS.md` collects them from executed notebooks."""

from __future__ import annotations

import html
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfbook import runtime

RELATIONS = {">=": operator.ge, "<=": operator.le}
SIGNS = {">=": "≥", "<=": "≤"}
MIME = "application/vnd.tfbook.claim+json"
CHIPS = {"holds": "#1a7f37", "does not hold": "#b42318"}  # white on either has a contrast ratio above 4.5


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement with the number measured for it, displayed in a notebook."""

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
        """The slug of the claim's lesson."""
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
    def figures(self) -> tuple[str, str, str]:
        """The measured number, the required one and the source, in words."""
        required = f"required {SIGNS[self.relation]} {self.threshold:g}{self.unit}"
        return f"measured {self.measured:.3g}{self.unit}", required, self.source

    def __repr__(self) -> str:
        return f"Claim {self.number} {self.verdict}: {self.statement}\n  {' · '.join(self.figures)}"

    def _repr_html_(self) -> str:
        return _table([self])

    @property
    def record(self) -> dict[str, Any]:
        """The claim for the ledger, as JSON, which has no NaN."""
        measured = self.measured if math.isfinite(self.measured) else None
        return asdict(self) | {"measured": measured, "lesson": self.lesson, "verdict": self.verdict}

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        return {"text/plain": repr(self), "text/html": self._repr_html_(), MIME: [self.record]}


@dataclass(frozen=True)
class Bound:
    """The statement of a claim, and the bound that a measured number must keep for it to hold."""

    statement: str
    relation: str  # ">=" or "<="
    threshold: float
    source: str
    unit: str = ""


@dataclass(frozen=True)
class Verdicts:
    """Claims that were measured together, displayed in a notebook as one small table."""

    claims: tuple[Claim, ...]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.claims))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        records = [claim.record for claim in self.claims]
        return {"text/plain": repr(self), "text/html": _table(self.claims), MIME: records}


class Claims:
    """The claims of a lesson by number, stated next to the experiments that measure them."""

    def __init__(self, lesson: str, bounds: Mapping[int, Bound]):
        self.lesson, self.bounds = lesson, dict(bounds)

    def check(self, measured: Mapping[int, float]) -> Verdicts:
        """The verdicts, as the last line of a cell: `study.CLAIMS.check({2: gain, 3: growth})`.

        A number that misses its bound raises nothing: the verdict says so. Raises ValueError for a number that is not
        one of the lesson's claims.
        """
        if unknown := measured.keys() - self.bounds.keys():
            known = ", ".join(map(str, self.bounds))
            raise ValueError(f"{self.lesson} has no claim {min(unknown)}; expected some of {known}")
        claims = (
            Claim(key=f"{self.lesson}.{number}", measured=float(value), **asdict(self.bounds[number]))
            for number, value in measured.items()
        )
        return Verdicts(tuple(claims))


def _table(claims: Sequence[Claim]) -> str:
    rows = "".join(map(_row, claims))
    return f'<table style="font-size: 0.93em; margin: 0.4em 0"><tbody>{rows}</tbody></table>'


def _row(claim: Claim) -> str:
    chip = (
        f"background: {CHIPS.get(claim.verdict, '#59636e')}; color: white; border-radius: 0.7em; padding: 0.1em 0.6em"
    )
    measured, required, source = claim.figures
    left = '<td style="text-align: left'
    return (
        f'<tr><td style="white-space: nowrap">Claim {claim.number} <span style="{chip}">{claim.verdict}</span></td>'
        f'{left}"><b>{html.escape(claim.statement)}</b><br>{html.escape(source)}</td>'
        f'{left}; white-space: nowrap">{html.escape(measured)}<br>{html.escape(required)}</td></tr>'
    )
