"""Derivations: trees that say what a sentence is made of, for both languages at once."""

from dataclasses import dataclass
from typing import Literal

from .entries import Adjective, Adverb, Noun, Preposition, Pronoun, Verb
from .lexicon import BE, NAMES
from .tokens import Features

Tense = Literal["present", "past", "future", "infinitive"]


@dataclass(frozen=True)
class Gap:
    """The place in a relative clause or a question from which something was taken: the letter that I wrote ␣."""


@dataclass(frozen=True)
class There:
    """The empty subject of "there is", il y a; English agrees with what there is."""

    plural: bool = False

    @property
    def features(self) -> Features:
        """What the English verb agrees with; French always has the singular."""
        return Features(plural=self.plural)


@dataclass(frozen=True)
class Name:
    """A person's name."""

    name: str

    @property
    def features(self) -> Features:
        """Gender, number and person."""
        return NAMES[self.name]


@dataclass(frozen=True, kw_only=True)
class NounPhrase:
    """my two big red books near the bed that you see: everything around one noun."""

    noun: Noun
    determiner: str = "the"  # a key of DETERMINERS, or "" before a numeral
    plural: bool = False
    numeral: str = ""
    adjectives: tuple[Adjective, ...] = ()
    owner: "NounPhrase | Name | None" = None  # the teacher 's book; takes the place of the determiner
    modifier: "Prepositional | None" = None
    relative: "Relative | None" = None

    @property
    def features(self) -> Features:
        """Gender, number and person."""
        return Features(self.noun.gender, self.plural)


@dataclass(frozen=True)
class Several:
    """Coordinated nominals: the man , the woman and the child."""

    parts: "tuple[NounPhrase | Name, ...]"
    conjunction: str = "and"

    @property
    def features(self) -> Features:
        """The plural, feminine if all parts are."""
        gender = "f" if all(part.features.gender == "f" for part in self.parts) else "m"
        return Features(gender, plural=True)


Nominal = NounPhrase | Name | Pronoun | Several


@dataclass(frozen=True)
class Prepositional:
    """A preposition and what follows it."""

    preposition: Preposition
    nominal: Nominal


@dataclass(frozen=True)
class Relative:
    """A relative clause; its `role` says what the antecedent is in it, and where its gap is."""

    role: Literal["subject", "object", "place", "owner"]
    clause: "Clause"


@dataclass(frozen=True)
class Quality:
    """Predicative adjectives: (is) very tired, (are) rich and famous."""

    adjectives: tuple[Adjective, ...]
    degree: str = ""


@dataclass(frozen=True)
class Comparison:
    """(is) more dangerous than the dog, (is) as tall as his father."""

    degree: str
    adjective: Adjective
    nominal: NounPhrase | Name


@dataclass(frozen=True)
class Sensation:
    """What English is and French has: (is) very hungry, a très faim."""

    name: str
    degree: str = ""


@dataclass(frozen=True)
class Age:
    """(is) ten years old, a dix ans."""

    years: str


@dataclass(frozen=True)
class That:
    """(says) that the man sleeps."""

    statement: "Statement"


@dataclass(frozen=True, kw_only=True)
class Predicate:
    """A verb with what goes around it."""

    verb: Verb = BE
    tense: Tense = "present"
    negation: str = ""
    frequency: Adverb | None = None
    manner: Adverb | None = None
    object: Nominal | Gap | None = None
    recipient: Nominal | None = None
    complement: "Quality | Comparison | Sensation | Age | That | Predicate | None" = None  # Predicate: an infinitive
    adjuncts: tuple[Prepositional | Adverb, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A subject and one or more predicates, which share it: she takes the letter and reads it."""

    subject: Nominal | Gap | There
    predicates: tuple[Predicate, ...]
    conjunction: str = "and"
    opening: Adverb | None = None


@dataclass(frozen=True)
class Joined:
    """Two statements and a conjunction between them, or in front: when he came , she slept."""

    left: "Statement"
    conjunction: str
    right: "Statement"
    in_front: bool = False


Statement = Clause | Joined


@dataclass(frozen=True)
class Question:
    """A question about a clause (does he eat ?), or about what is missing in it (what does he eat ?)."""

    clause: Clause
    word: str = ""
