"""Verb groups: the verb with its auxiliary, its negation, its adverb and, in French, its clitics."""

from dataclasses import dataclass, field

from . import english, french
from .entries import Adverb, Pronoun
from .lexicon import NEGATIONS, PRONOUNS
from .syntax import Gap, Predicate
from .tokens import Features, Meaning, Phrase, Token, words


@dataclass(frozen=True)
class Meanings:
    """What the words of one verb group may mean; its adverb of frequency comes with its own meanings."""

    verb: Meaning = field(default_factory=Meaning)
    tense: Meaning = field(default_factory=Meaning)  # in ate, will and did; in a, but not in mangé
    negation: Meaning = field(default_factory=Meaning)
    frequency: Phrase = field(default_factory=Phrase)


@dataclass(frozen=True)
class Context:
    """What a predicate must know about the clause around it."""

    english: Features  # of the subject; they differ in "there are", il y a
    french: Features
    antecedent: Features | None = None  # of the relative clause
    clitics: tuple[Token, ...] = ()  # y
    inverted: bool = False
    negated: bool = False  # here or by a verb above
    to: Meaning | None = None  # of an infinitive


def english_verb(p: Predicate, context: Context, m: Meanings) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
    """The auxiliary (will, is, does) and what follows it; a lexical verb needs do before not and in questions."""
    verb, inflected = p.verb, _inflected(p, context.english)
    auxiliary, main = (), ()
    if p.tense == "infinitive":
        main = words(verb.head, m.verb)
    elif p.tense == "future":
        auxiliary, main = words("will", m.tense), words(verb.head, m.verb)
    elif verb.head == "be" or verb.modal:
        auxiliary = words(inflected, m.verb, m.tense)
    elif context.inverted or p.negation == "not":
        do = "did" if p.tense == "past" else english.present("do", context.english)
        auxiliary = words(do, *[m.tense] * _compound(p), possible=(m.tense, m.negation))
        main = words(verb.head, m.verb, possible=(m.tense,))
    else:
        main = words(inflected, m.verb, m.tense)
    before = words(p.negation, m.negation) + m.frequency.english
    return auxiliary, before + main + words(verb.particles, m.verb)


def french_verb(p: Predicate, context: Context, m: Meanings, clitics: tuple[Token, ...]) -> tuple[Token, ...]:
    """The words ne, clitics, verb or auxiliary, pas, adverb and participle, in this order."""
    verb, subject, participle = p.verb, context.french, ()
    if verb.reflexive:
        clitics = words(_reflexive(subject), m.verb) + clitics
    if p.tense == "infinitive":
        return clitics + words(verb.french, m.verb, possible=(context.to,))
    if _compound(p):
        finite = words(french.conjugate(verb.auxiliary, "present", subject), m.tense)
        participle = words(french.participle(verb.french, _agreement(p, context)), m.verb)
    else:
        finite = words(french.conjugate(verb.french, p.tense, subject), m.verb, m.tense)
    ne = words("ne" if p.negation else "", m.negation)
    pas = words(NEGATIONS.get(p.negation, ""), m.negation)
    return ne + clitics + finite + pas + m.frequency.french + participle


def adverb(entry: Adverb | None) -> Phrase:
    """Realize an adverb, if there is one."""
    if entry is None:
        return Phrase()
    meanings = {link: Meaning() for link in entry.links}
    sides = ([], [])
    for side, text in enumerate((entry.english, entry.french)):
        for place, word in enumerate(text.split()):
            sides[side].extend(words(word, *(meaning for link, meaning in meanings.items() if link[side] == place)))
    return Phrase(tuple(sides[0]), tuple(sides[1]))


def _inflected(p: Predicate, subject: Features) -> str:
    if p.tense == "past":
        return english.past_of_be(subject) if p.verb.head == "be" else p.verb.past
    return english.present(p.verb.head, subject)


def _compound(p: Predicate) -> bool:
    """Whether the past is a passé composé, as that of events is; states take the imperfect."""
    return p.tense == "past" and not p.verb.state


def _reflexive(subject: Features) -> str:
    return next(p.reflexive for p in PRONOUNS if p.features[1:] == subject[1:])


def _agreement(p: Predicate, context: Context) -> Features:
    """What the participle agrees with: the subject after être; after avoir a direct object, if it precedes."""
    if p.verb.auxiliary == "être":
        return context.french
    if isinstance(p.object, Gap) and context.antecedent:
        return context.antecedent
    if isinstance(p.object, Pronoun) and not p.verb.governs:
        return p.object.features
    return Features()
