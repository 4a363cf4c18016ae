"""Measured claims, mostly of papers: tables show their verdicts; `CLAIMS.md` collects them from executed notebooks."""

from __future__ import annotations

import html
import math
import operator
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

RELATIONS = {">=": operator.ge, "<=": operator.le}
SIGNS = {">=": "≥", "<=": "≤"}
MIME = "application/vnd.tfbook.claim+json"
CHIPS = {"holds": "#1a7f37", "does not hold": "#b42318"}  # white on either has a contrast ratio above 4.5
LEFT = "text-align: left; vertical-align: top"  # with each cell, since JupyterLab takes style sheets from foreign pages
CHIP = "color: white; border-radius: 0.7em; padding: 0.1em 0.6em; white-space: nowrap"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement with the number measured for it."""

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
        from tfbook import runtime  # here, so that the tools read claims without loading PyTorch

        if runtime.scale() == "quick":
            return "not enforced"
        holds = math.isfinite(self.measured) and RELATIONS[self.relation](self.measured, self.threshold)
        return "holds" if holds else "does not hold"

    @property
    def number_measured(self) -> str:
        """The measured number with its unit."""
        return f"{self.measured:.3g}{self.unit}"

    @property
    def required(self) -> str:
        """The bound with its unit."""
        return f"{SIGNS[self.relation]} {self.threshold:g}{self.unit}"

    def __repr__(self) -> str:
        details = f"measured {self.number_measured} · required {self.required} · {self.source}"
        return f"Claim {self.number} {self.verdict}: {self.statement}\n  {details}"

    @property
    def record(self) -> dict[str, Any]:
        """The claim for the ledger, as JSON, which has no NaN."""
        measured = self.measured if math.isfinite(self.measured) else None
        return asdict(self) | {"measured": measured, "lesson": self.lesson, "verdict": self.verdict}


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
    """Claims that were measured together. A notebook shows them in the table of their section, not here."""

    claims: tuple[Claim, ...]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.claims))

    def _ipython_display_(self) -> None:
        """Shows nothing where the verdicts are a cell's last line."""


@dataclass(frozen=True)
class Table:
    """The claims of a section, displayed in a notebook as a closed table."""

    claims: tuple[Claim, ...]

    @property
    def summary(self) -> str:
        """How many claims there are, and how many of them hold."""
        if not self.claims:
            return "No claim of this section has been measured yet: run its cells first"
        counts = Counter(claim.verdict for claim in self.claims)
        verdicts = ", ".join(_counted(count, verdict) for verdict, count in sorted(counts.items(), reverse=True))
        return f"{len(self.claims)} claim{'s' * (len(self.claims) > 1)} of this section: {verdicts}"

    def __repr__(self) -> str:
        return "\n".join([self.summary, *map(repr, self.claims)])

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th scope="col" style="{LEFT}">{name}</th>'
            for name in ("Claim", "Verdict", "Measured", "Required", "Source")
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_row, self.claims))}</tbody></table>"
        summary = f'<summary style="cursor: pointer">{html.escape(self.summary)}</summary>'
        return f'<details class="tfbook-claims">{summary}{table if self.claims else ""}</details>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        records = [claim.record for claim in self.claims]
        return {"text/plain": repr(self), "text/html": self._repr_html_(), MIME: records}


class Claims:
    """The claims of a lesson by number: cells measure them, and a table at the end of each section shows them."""

    def __init__(self, lesson: str, bounds: Mapping[int, Bound]):
        self.lesson, self.bounds = lesson, dict(bounds)
        self._measured: dict[int, Claim] = {}
        self._fresh: set[int] = set()  # the numbers that were measured since the last table
        self._sections: list[set[int]] = []  # the numbers of each table, the latest first

    def check(self, measured: Mapping[int, float]) -> Verdicts:
        """Measures claims, as the last line of a cell: `study.CLAIMS.check({2: gain, 3: growth})`.

        A number that misses its bound raises nothing: the verdict says so. Raises ValueError for a number that is not
        one of the lesson's claims.
        """
        if unknown := measured.keys() - self.bounds.keys():
            known = ", ".join(map(str, self.bounds))
            raise ValueError(f"{self.lesson} has no claim {min(unknown)}; expected some of {known}")
        claims = {
            number: Claim(key=f"{self.lesson}.{number}", measured=float(value), **asdict(self.bounds[number]))
            for number, value in measured.items()
        }
        self._measured |= claims
        self._fresh |= claims.keys()
        return Verdicts(tuple(claims.values()))

    def table(self) -> Table:
        """The table of the claims that were measured since the last table, by number: `study.CLAIMS.table()`.

        Where all of these have been in one table before, because cells run again, that table comes again.
        """
        section = next((numbers for numbers in self._sections if self._fresh <= numbers), self._fresh)
        self._sections = [section, *(numbers for numbers in self._sections if numbers != section)]
        self._fresh = set()
        return Table(tuple(self._measured[number] for number in sorted(section)))


def _counted(count: int, verdict: str) -> str:
    """The verdict on so many claims, as in "2 hold"."""
    words = {"holds": ("holds", "hold"), "does not hold": ("fails", "fail")}.get(verdict, (verdict, verdict))
    return f"{count} {words[count > 1]}"


def _row(claim: Claim) -> str:
    chip = f'<span style="background: {CHIPS.get(claim.verdict, "#59636e")}; {CHIP}">{claim.verdict}</span>'
    cells = (
        f'<th scope="row" style="{LEFT}; font-weight: normal">{claim.number}. {html.escape(claim.statement)}</th>',
        f'<td style="{LEFT}">{chip}</td>',
        f'<td style="{LEFT}" class="measured">{html.escape(claim.number_measured)}</td>',
        f'<td style="{LEFT}; white-space: nowrap">{html.escape(claim.required)}</td>',
        f'<td style="{LEFT}">{html.escape(claim.source)}</td>',
    )
    return f"<tr>{''.join(cells)}</tr>"
