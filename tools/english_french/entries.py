"""What is known of a word, and how a line of the lexicon is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import english, french
from .tokens import Features


@dataclass(frozen=True)
class Noun:
    """A noun with its four forms; `classes` holds its classes of meaning and its own English name."""

    english: str
    english_plural: str
    french: str
    french_plural: str
    gender: str
    classes: frozenset[str]

    @property
    def mass(self) -> bool:
        """Whether the noun has no plural and takes "some"."""
        return "mass" in self.classes


@dataclass(frozen=True)
class Adjective:
    """An adjective; `before_vowel` is the masculine singular before a vowel (bel), empty where it is the usual one."""

    english: str
    french: str
    feminine: str
    before_vowel: str
    precedes: bool
    kind: str
    classes: frozenset[str]


@dataclass(frozen=True)
class Verb:
    """A verb; `particles` follow the English head (look for), `governs` is a preposition that only French has."""

    english: str
    past: str  # of the head
    french: str
    governs: str
    reflexive: bool
    aspect: str
    company: str
    subjects: frozenset[str]
    objects: frozenset[str]
    preposition: str

    @property
    def head(self) -> str:
        """The English word that is inflected."""
        return self.english.split()[0]

    @property
    def particles(self) -> str:
        """The English words after the head."""
        return " ".join(self.english.split()[1:])

    @property
    def state(self) -> bool:
        """Whether it lasts: the French past of know, love and be is the imperfect."""
        return self.aspect == "state"

    @property
    def modal(self) -> bool:
        """Whether English uses neither do nor to with the verb."""
        return self.english in ("can", "must")

    @property
    def tenses(self) -> tuple[str, ...]:
        """The tenses that English has for the verb."""
        tenses = ("present", "past") if self.past else ("present",)
        return tenses if self.modal or self.english == "be going" else (*tenses, "future")

    @property
    def auxiliary(self) -> str:
        """The French auxiliary, avoir or être."""
        return "être" if self.reflexive or self.french in french.WITH_ETRE else "avoir"


@dataclass(frozen=True)
class Preposition:
    """A preposition and the classes of nouns that may follow it."""

    english: str
    french: str
    classes: frozenset[str]


@dataclass(frozen=True)
class Determiner:
    """A determiner; `cells` are the columns of its line."""

    cells: tuple[str, ...]

    @property
    def name(self) -> str:
        """The English singular, or the first word of the plural where there is no singular."""
        return self.cells[0] or self.cells[1].partition("|")[0]

    def words(self, features: Features) -> list[tuple[str, str]]:
        """Its words as pairs of English and French, such as all - toutes and the - les."""
        in_english = self.cells[features.plural]
        in_french = self.cells[2 + 2 * features.plural + (features.gender == "f")]
        return list(zip(in_english.split("|"), in_french.split("|"), strict=True))


@dataclass(frozen=True)
class Pronoun:
    """A pronoun: English subject and object, French subject, direct and indirect object and reflexive."""

    english: str
    english_object: str
    features: Features
    french: str
    direct: str
    indirect: str
    reflexive: str


@dataclass(frozen=True)
class Adverb:
    """An adverb, the tenses that it goes with, and the links between its English and its French words."""

    english: str
    french: str
    kind: str
    tenses: frozenset[str]
    links: tuple[tuple[int, int], ...]


def read_rows(table: str) -> list[list[str]]:
    """The columns of each line."""
    return [line.split() for line in table.strip().splitlines()]


def read_noun(row: Sequence[str]) -> Noun:
    """Read "man/men  homme  m  person,adult"."""
    in_english, in_french, gender, classes = row
    singular, plural = _forms(in_english, english.plural)
    return Noun(singular, plural, *_forms(in_french, french.plural), gender, _classes(classes) | {singular})


def read_adjective(row: Sequence[str]) -> Adjective:
    """Read "beautiful  beau/belle/bel  before  opinion  person,thing"."""
    in_english, in_french, place, kind, classes = row
    masculine, feminine, before_vowel = (*in_french.split("/"), "", "")[:3]
    feminine = feminine or french.feminine(masculine)
    return Adjective(in_english, masculine, feminine, before_vowel, place == "before", kind, _classes(classes))


def read_verb(row: Sequence[str]) -> Verb:
    """Read "answer  répondre+à  action  person  person" or "go/went  aller  event  person  to  goal"."""
    base, _, past = row[0].partition("/")
    infinitive, _, governs = _text(row[1]).partition("+")
    aspect, _, company = row[2].partition("+")
    *preposition, objects = row[4:] or ["-"]
    return Verb(
        english=_text(base),
        past=_text(past) if past else english.past(base.split("_")[0]),
        french=infinitive.removeprefix("se "),
        governs=governs,
        reflexive=infinitive.startswith("se "),
        aspect=aspect,
        company=company,
        subjects=_classes(row[3]),
        objects=_classes(objects),
        preposition="".join(preposition),
    )


def read_preposition(row: Sequence[str]) -> Preposition:
    """Read "near  près_de  building,landmark"."""
    return Preposition(_text(row[0]), _text(row[1]), _classes(row[2]))


def read_determiner(row: Sequence[str]) -> Determiner:
    """Read "the  the  le  la  les  les"."""
    return Determiner(tuple(map(_text, row)))


def read_pronoun(row: Sequence[str]) -> Pronoun:
    """Read "he  him  3  singular  m  il  le  lui  se"."""
    subject, object_, person, number, gender, *in_french = row
    return Pronoun(subject, object_, Features(gender, number == "plural", int(person)), *in_french)


def read_adverb(row: Sequence[str]) -> Adverb:
    """Read "last_week  la_semaine_dernière  time  past  0-2 1-0 1-1"; without links the words go in pairs."""
    in_english, in_french, kind, tenses, *links = row
    pairs = [(int(i), int(j)) for i, j in (link.split("-") for link in links)]
    pairs = pairs or [(i, i) for i in range(in_french.count("_") + 1)]
    return Adverb(_text(in_english), _text(in_french), kind, _classes(tenses), tuple(pairs))


def _text(entry: str) -> str:
    return "" if entry == "-" else entry.replace("_", " ")


def _classes(entry: str) -> frozenset[str]:
    return frozenset(_text(entry).split(",")) - {""}


def _forms(entry: str, derive: Callable[[str], str]) -> tuple[str, str]:
    """Read "man/men" as it stands and derive the second form where there is none; a star goes with both."""
    first, _, second = _text(entry).partition("/")
    if second and first.startswith(french.ASPIRATED):
        second = french.ASPIRATED + second
    return first, second or derive(first)
