"""Names for what a derivation is made of, and the constructions that training never shows."""

from collections.abc import Iterator

from .entries import Pronoun
from .syntax import (
    Clause,
    Comparison,
    Gap,
    Joined,
    Nominal,
    NounPhrase,
    Predicate,
    Prepositional,
    Question,
    Relative,
    Several,
    Statement,
    That,
    There,
)

HELD_OUT = (
    "object-relative-on-subject",  # the letter that i wrote is long
    "negation-in-relative",  # the man who does not sleep
    "clitic-in-relative",  # the man who sees her
    "clitic-in-question",  # does he see her ?
    "that-clause-in-relative",  # the man who says that she sleeps
)

_NAMES = (
    "past", "future", "negated", "clitic", "dative", "reflexive", "infinitive", "that-clause", "existential",
    "genitive", "coordination", "comparison", "subject-relative", "object-relative", "place-relative", "owner-relative",
    *HELD_OUT,
)  # fmt: skip
_IN_RELATIVE = {
    "negated": "negation-in-relative",
    "clitic": "clitic-in-relative",
    "that-clause": "that-clause-in-relative",
}


def template(sentence: Statement | Question) -> str:
    """The construction of a sentence: its shape and what occurs in it, as in "clause/negated/clitic"."""
    found = set(_sentence(sentence))
    shape = "question" if isinstance(sentence, Question) else "joined" if isinstance(sentence, Joined) else "clause"
    return "/".join([shape, *(name for name in _NAMES if name in found)])


def _sentence(sentence: Statement | Question) -> Iterator[str]:
    match sentence:
        case Question(clause):
            found = list(_clause(clause))
            yield from found
            if "clitic" in found:
                yield "clitic-in-question"
        case Joined(left, _, right):
            yield from _sentence(left)
            yield from _sentence(right)
        case Clause():
            yield from _clause(sentence)


def _clause(clause: Clause) -> Iterator[str]:
    if isinstance(clause.subject, There):
        yield "existential"
    else:
        on_subject = list(_nominal(clause.subject))
        yield from on_subject
        if "object-relative" in on_subject:
            yield "object-relative-on-subject"
    if len(clause.predicates) > 1:
        yield "coordination"
    for predicate in clause.predicates:
        yield from _predicate(predicate)


def _predicate(p: Predicate) -> Iterator[str]:
    if p.tense in ("past", "future"):
        yield p.tense
    if p.negation:
        yield "negated"
    if p.verb.reflexive:
        yield "reflexive"
    for nominal in (p.object, p.recipient):
        if isinstance(nominal, Pronoun):
            yield "clitic"
        elif nominal is not None:
            yield from _nominal(nominal)
    if p.recipient or (p.verb.governs == "à" and not isinstance(p.complement, Predicate)):
        yield "dative"
    match p.complement:
        case Predicate():
            yield "infinitive"
            yield from _predicate(p.complement)
        case That(statement):
            yield "that-clause"
            yield from _sentence(statement)
        case Comparison(nominal=nominal):
            yield "comparison"
            yield from _nominal(nominal)
    for adjunct in p.adjuncts:
        if isinstance(adjunct, Prepositional):
            yield from _nominal(adjunct.nominal)


def _nominal(nominal: Nominal | Gap) -> Iterator[str]:
    match nominal:
        case Several(parts):
            yield "coordination"
            for part in parts:
                yield from _nominal(part)
        case NounPhrase(owner=owner, modifier=modifier, relative=relative):
            if owner:
                yield "genitive"
            if modifier:
                yield from _nominal(modifier.nominal)
            if relative:
                yield from _relative(relative)


def _relative(relative: Relative) -> Iterator[str]:
    yield f"{relative.role}-relative"
    found = list(_clause(relative.clause))
    yield from found
    yield from (name for mark, name in _IN_RELATIVE.items() if mark in found)
