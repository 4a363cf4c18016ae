"""A view that takes parts out of a model: the reader's text under each broken version, beside its score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tfbook.plot.views import base

MAX_VERSIONS = 12
MAX_OUTPUT = 4000  # letters
BLANK = "(nothing)"  # an output without letters


@dataclass(frozen=True, eq=False)
class BreakView:
    """The view returned by `break_view`, which a notebook displays when it is the last line of a cell."""

    text: str
    outputs: Mapping[str, str]  # of each version; the first is the whole model
    scores: Mapping[str, float]
    unit: str
    top: float

    def __repr__(self) -> str:
        return f"BreakView(versions={len(self.outputs)})"

    def _repr_html_(self) -> str:
        """A table, and a script that replaces it with the view; without JavaScript the table stays."""
        versions = [
            {"name": name, "output": output or BLANK, "score": self._written(name), "share": self._share(name)}
            for name, output in self.outputs.items()
        ]
        return base.embed("breaking", {"text": self.text, "unit": self.unit, "versions": versions}, self._table())

    def _share(self, name: str) -> float:
        return round(min(max(self.scores[name] / self.top, 0.0), 1.0), 3)

    def _written(self, name: str) -> str:
        score = self.scores[name]
        return f"{score:.0f}" if abs(score) >= 10 else f"{score:.1f}"

    def _table(self) -> str:
        lead = f"“{self.text}” under each version of the model, and its score."
        return f"{base.paragraph(lead)}\n{base.table([self.unit, 'output'], self._rows())}"

    def _rows(self) -> Iterator[tuple[str, list[str]]]:
        for name, output in self.outputs.items():
            yield name, [base.cell(self._written(name), self._share(name)), base.cell(output or BLANK)]


def break_view(
    text: str,
    versions: Mapping[str, Callable[[str], str]],
    scores: Mapping[str, float],
    *,
    unit: str,
    top: float = 100.0,
) -> BreakView:
    """A view of one text under a model and its broken versions, one at a time, each beside its score.

    `versions` maps a name, such as "no residuals", to a function from the reader's text to an output; the first is the
    whole model, from whose output the others' changed words are told. All are called here, once. `scores` has a number
    for each, in `unit`, drawn as a bar that is full at `top`. Raises ValueError when there are fewer than two versions
    or more than fit, when scores are missing or not finite, and when `top` is not positive or an output does not fit.
    """
    if not 2 <= len(versions) <= MAX_VERSIONS:
        raise ValueError(f"versions holds {len(versions)}; expected 2 to {MAX_VERSIONS}, the whole model first")
    if scores.keys() != versions.keys():
        raise ValueError(f"scores are of {', '.join(scores)}; expected one for each of {', '.join(versions)}")
    for name, score in scores.items():
        if not abs(score) < float("inf"):  # NaN fails too
            raise ValueError(f"the score of “{name}” is {score}; expected a finite number")
    if not top > 0:
        raise ValueError(f"top is {top}; expected more than 0")
    outputs = {name: version(text) for name, version in versions.items()}
    for name, output in outputs.items():
        if len(output) > MAX_OUTPUT:
            raise ValueError(f"the output of “{name}” holds {len(output)} letters; expected at most {MAX_OUTPUT}")
    return BreakView(text, outputs, dict(scores), unit, top)
