"""The synchronous rules: each reads one derivation and writes English, French and what links them."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import english, french
from .lexicon import (
    ADJECTIVE_ORDER,
    COMPARISONS,
    CONJUNCTIONS,
    DEGREES,
    DETERMINERS,
    NEGATIONS,
    NUMERALS,
    PREPOSITIONS,
    PRONOUNS,
    QUESTION_WORDS,
    SENSATIONS,
    WHO,
    Adjective,
    Adverb,
    Pronoun,
    Verb,
)
from .syntax import (
    Age,
    Clause,
    Comparison,
    Gap,
    Joined,
    Name,
    Nominal,
    NounPhrase,
    Predicate,
    Prepositional,
    Quality,
    Question,
    Relative,
    Sensation,
    Several,
    Statement,
    That,
    There,
)
from .tokens import Features, Meaning, Phrase, Token, align, concat, words


class Pair(NamedTuple):
    """A sentence in both languages, tokens separated by spaces, and the links between its tokens."""

    english: str
    french: str
    alignment: str


class Verbal(NamedTuple):
    """A realised predicate; the English auxiliary stands apart, because a question puts it before the subject."""

    auxiliary: tuple[Token, ...]
    english: tuple[Token, ...]
    french: tuple[Token, ...]


@dataclass(frozen=True)
class _Meanings:
    """What the words of one verb group may mean."""

    verb: Meaning = field(default_factory=Meaning)
    tense: Meaning = field(default_factory=Meaning)  # of the passé composé: ate is a mangé
    negation: Meaning = field(default_factory=Meaning)


@dataclass(frozen=True)
class _Context:
    """What a predicate must know about the clause round it."""

    english: Features  # of the subject; they differ in "there are", il y a
    french: Features
    antecedent: Features | None = None
    clitics: tuple[Token, ...] = ()
    inverted: bool = False
    negated: bool = False  # here or in a verb above
    to: Meaning | None = None  # of an infinitive


def translate(sentence: Statement | Question) -> Pair:
    """Realise a derivation."""
    asked = isinstance(sentence, Question)
    body = _question(sentence) if asked else _statement(sentence)
    whole = concat(body, _words("?", "?") if asked else _words(".", "."))
    in_english, in_french = english.join(list(whole.english)), french.join(list(whole.french))
    alignment = align(in_english, in_french)
    return Pair(" ".join(t.text for t in in_english), " ".join(t.text for t in in_french), alignment)


def _words(in_english: str, in_french: str) -> Phrase:
    """Translate as a whole: each of these English words is linked with each of the French."""
    meaning = Meaning()
    return Phrase(words(in_english, meaning), words(in_french, meaning))


# Noun phrases


def _nominal(nominal: Nominal | Gap, repeated: tuple[Token, ...] = (), negated: bool = False) -> Phrase:
    """Realise a nominal; French repeats à and de before every part, and turns un and des into de under negation."""
    match nominal:
        case Name(name):
            return _words(name, name)
        case Pronoun():
            return _words(nominal.english, nominal.french)
        case NounPhrase():
            return _noun_phrase(nominal, negated)
        case Several(parts, conjunction):
            return _several([_nominal(part, negated=negated) for part in parts], conjunction, repeated)
        case Gap():
            return Phrase()


def _several(parts: list[Phrase], conjunction: str, repeated: tuple[Token, ...] = ()) -> Phrase:
    phrase = parts[0]
    for index, part in enumerate(parts[1:], 2):
        link = _words(conjunction, CONJUNCTIONS[conjunction]) if index == len(parts) else _words(",", ",")
        phrase = concat(phrase, link, Phrase((), repeated), part)
    return phrase


def _noun_phrase(phrase: NounPhrase, negated: bool) -> Phrase:
    features = phrase.features
    noun = phrase.noun
    head = _words(noun.english_plural if phrase.plural else noun.english, noun.french_plural if phrase.plural else noun.french)
    adjectives = sorted(phrase.adjectives, key=lambda adjective: ADJECTIVE_ORDER.index(adjective.kind))
    realised = [_attribute(adjective, features) for adjective in adjectives]
    before = [words.french for adjective, words in zip(adjectives, realised, strict=True) if adjective.precedes]
    after = [words.french for adjective, words in zip(adjectives, realised, strict=True) if not adjective.precedes]
    determiner, complement = _determiner(phrase, negated, bool(before))
    numeral = _words(phrase.numeral, NUMERALS[phrase.numeral]) if phrase.numeral else Phrase()
    middle = Phrase(
        sum((words.english for words in realised), ()) + head.english,
        sum(before, ()) + head.french + sum(reversed(after), ()),  # the adjective nearest to the noun stays nearest
    )
    modifier = _prepositional(phrase.modifier) if phrase.modifier else Phrase()
    relative = _relative(phrase.relative, phrase) if phrase.relative else Phrase()
    return concat(determiner, numeral, middle, complement, modifier, relative)


def _determiner(phrase: NounPhrase, negated: bool, before_adjective: bool) -> tuple[Phrase, Phrase]:
    """Return what stands before the noun, and the French owner, which stands after it."""
    if phrase.owner:
        return _owned(phrase)
    if phrase.determiner in ("a", "some"):
        indefinite = "a" if phrase.determiner == "a" and not phrase.plural else "some"
        if negated:
            return _words(indefinite.replace("some", "any"), "de"), Phrase()
        if phrase.plural and before_adjective:
            return _words("some", "de"), Phrase()
    if not phrase.determiner:
        return Phrase(), Phrase()
    pairs = DETERMINERS[phrase.determiner].words(phrase.features)
    return concat(*(_articles(*pair) for pair in pairs)), Phrase()


def _articles(in_english: str, in_french: str) -> Phrase:
    meaning = Meaning()
    return Phrase(words(in_english, meaning), words(in_french, meaning, article=True))


def _owned(phrase: NounPhrase) -> tuple[Phrase, Phrase]:
    """Realise "the teacher 's" and "du professeur": 's is both the article of what is owned and de."""
    owner, genitive = _nominal(phrase.owner), Meaning()
    (_, article), = DETERMINERS["the"].words(phrase.features)
    before = Phrase(owner.english + words("'s", genitive), words(article, genitive, article=True))
    return before, Phrase((), words("de", genitive) + owner.french)


def _adjective(adjective: Adjective, features: Features) -> Phrase:
    form = adjective.feminine if features.gender == "f" else adjective.french
    if features.plural:
        form = french.plural(form)
    meaning = Meaning()
    (token,) = words(form, meaning)
    return Phrase(words(adjective.english, meaning), (token,))


def _attribute(adjective: Adjective, features: Features) -> Phrase:
    """Realise an adjective at its noun, where a masculine singular has a form of its own before a vowel: un bel arbre."""
    in_english, (token,) = _adjective(adjective, features)
    if features.gender == "m" and not features.plural:
        token = token._replace(before_vowel=adjective.before_vowel)
    return Phrase(in_english, (token,))


def _prepositional(phrase: Prepositional) -> Phrase:
    preposition = _words(phrase.preposition.english, phrase.preposition.french)
    return concat(preposition, _nominal(phrase.nominal, _repeated(preposition.french)))


def _repeated(preposition: tuple[Token, ...]) -> tuple[Token, ...]:
    return tuple(token for token in preposition[-1:] if token.text in ("à", "de"))


def _relative(relative: Relative, antecedent: NounPhrase) -> Phrase:
    person = "person" in antecedent.noun.classes
    pronoun = {
        "subject": ("who" if person else "that", "qui"),
        "object": ("that", "que"),
        "place": ("where", "où"),
        "owner": ("", ""),  # whose is a determiner inside the clause: whose hat, dont le chapeau
    }[relative.role]
    return concat(_words(*pronoun), _clause(relative.clause, antecedent.features))


# Verb groups


def _english_verb(p: Predicate, context: _Context, m: _Meanings) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
    """Return the auxiliary (will, does, is) and the verb; a lexical verb needs do before not and in questions."""
    verb, compound = p.verb, _compound(p)
    inflected = _inflected(p, context.english)
    auxiliary, main = (), ()
    if p.tense == "infinitive":
        main = words(verb.head, m.verb)
    elif p.tense == "future":
        auxiliary, main = words("will", m.verb), words(verb.head, m.verb)
    elif verb.head == "be" or verb.modal:
        auxiliary = words(inflected, m.verb)
    elif context.inverted or p.negation == "not":
        do = "did" if p.tense == "past" else english.present("do", context.english)
        auxiliary = words(do, *[m.tense] * compound, possible=(m.verb, m.negation))
        main = words(verb.head, m.verb, possible=(m.tense,))
    else:
        main = words(inflected, m.verb, m.tense)
    return auxiliary, words(p.negation, m.negation) + _adverb(p.frequency).english + main + words(verb.particles, m.verb)


def _inflected(p: Predicate, subject: Features) -> str:
    if p.tense == "past":
        return english.past_of_be(subject) if p.verb.head == "be" else p.verb.past
    return english.present(p.verb.head, subject)


def _compound(p: Predicate) -> bool:
    """Whether the past is a passé composé: of events; states take the imperfect."""
    return p.tense == "past" and not p.verb.state



def _french_verb(p: Predicate, context: _Context, m: _Meanings, clitics: tuple[Token, ...]) -> tuple[Token, ...]:
    """Return ne, the clitics, the verb or its auxiliary, pas, the adverb and the participle, in this order."""
    verb, subject, participle = p.verb, context.french, ()
    if verb.reflexive:
        clitics = words(_reflexive(subject), m.verb) + clitics
    if p.tense == "infinitive":
        return clitics + words(verb.french, m.verb, possible=(context.to,))
    if _compound(p):
        finite = words(french.conjugate(verb.auxiliary, "present", subject), m.tense)
        participle = words(french.participle(verb.french, _agreement(p, context)), m.verb)
    else:
        finite = words(french.conjugate(verb.french, p.tense, subject), m.verb)
    ne = words("ne" if p.negation else "", m.negation)
    second = words(NEGATIONS.get(p.negation, ""), m.negation)
    return ne + clitics + finite + second + _adverb(p.frequency).french + participle


def _reflexive(subject: Features) -> str:
    return next(p.reflexive for p in PRONOUNS if p.features[1:] == subject[1:])


def _agreement(p: Predicate, context: _Context) -> Features:
    """Return what the participle agrees with: the subject after être, after avoir a direct object that precedes."""
    if p.verb.auxiliary == "être":
        return context.french
    if isinstance(p.object, Gap) and context.antecedent:
        return context.antecedent
    if isinstance(p.object, Pronoun) and not p.verb.governs:
        return p.object.features
    return Features()


def _predicate(p: Predicate, context: _Context) -> Verbal:
    """Realise a verb and all that goes with it; a clitic is linked with its pronoun alone."""
    m = _Meanings()
    inner = replace(context, clitics=(), inverted=False, negated=context.negated or bool(p.negation))
    auxiliary, verb = _english_verb(p, context, m)
    object_, object_clitic = _object(p, m, inner.negated)
    receiver, recipient, recipient_clitic = _recipient(p)
    complement = _complement(p, inner)
    manner, adjuncts = _adverb(p.manner), concat(*(_adjunct(adjunct) for adjunct in p.adjuncts))
    clitics = context.clitics + object_clitic + recipient_clitic
    return Verbal(
        auxiliary,
        verb + receiver + object_.english + recipient.english + complement.english + manner.english + adjuncts.english,
        _french_verb(p, context, m, clitics)
        + manner.french + object_.french + recipient.french + complement.french + adjuncts.french,
    )  # fmt: skip


def _object(p: Predicate, m: _Meanings, negated: bool) -> tuple[Phrase, tuple[Token, ...]]:
    """Return the object in its place and, for a pronoun, the French clitic, which moves before the verb."""
    match p.object:
        case None:
            return Phrase(), ()
        case Pronoun(english_object=text, direct=direct, indirect=indirect):
            meaning = Meaning()
            return Phrase(words(text, meaning), ()), words(indirect if p.verb.governs == "à" else direct, meaning)
        case _:
            governed = words(p.verb.governs, m.verb)
            return concat(Phrase((), governed), _nominal(p.object, _repeated(governed), negated and not governed)), ()


def _recipient(p: Predicate) -> tuple[tuple[Token, ...], Phrase, tuple[Token, ...]]:
    """Return the English pronoun after the verb (gives him the book), "to the man" in its place, the French clitic."""
    match p.recipient:
        case None:
            return (), Phrase(), ()
        case Pronoun(english_object=text, indirect=indirect):
            meaning = Meaning()
            return words(text if p.object else f"to {text}", meaning), Phrase(), words(indirect, meaning)
        case nominal:
            return (), _prepositional(Prepositional(PREPOSITIONS["to"], nominal)), ()


def _complement(p: Predicate, context: _Context) -> Phrase:
    match p.complement:
        case Quality(adjectives, degree):
            qualities = [_adjective(adjective, context.french) for adjective in adjectives]
            return concat(_degree(degree), _several(qualities, "and"))
        case Comparison(degree, adjective, nominal):
            more, than = COMPARISONS[degree]
            links = _words(degree, more), _words(than, "que")
            return concat(links[0], _adjective(adjective, context.french), links[1], _nominal(nominal))
        case Sensation(name, degree):
            return concat(_degree(degree), _words(name, SENSATIONS[name]))
        case Age(years):
            return concat(_words(years, NUMERALS[years]), _words("years old", "ans"))
        case That(statement):
            return concat(_words("that", CONJUNCTIONS["that"]), _statement(statement))
        case Predicate():
            return _infinitive(p.complement, p.verb, context)
        case None:
            return Phrase()


def _infinitive(p: Predicate, governor: Verb, context: _Context) -> Phrase:
    """Realise "to eat": to is what the governor asks for (essaie de manger), and part of the ending of manger."""
    to = Meaning()
    realised = _predicate(p, replace(context, to=to))
    return Phrase(words("" if governor.modal else "to", to) + realised.english, words(governor.governs, to) + realised.french)


def _degree(degree: str) -> Phrase:
    return _words(degree, DEGREES[degree]) if degree else Phrase()


def _adverb(adverb: Adverb | None) -> Phrase:
    if adverb is None:
        return Phrase()
    meanings = {link: Meaning() for link in adverb.links}
    in_english = [words(word, *(m for (i, _), m in meanings.items() if i == n)) for n, word in enumerate(adverb.english.split())]
    in_french = [words(word, *(m for (_, j), m in meanings.items() if j == n)) for n, word in enumerate(adverb.french.split())]
    return Phrase(sum(in_english, ()), sum(in_french, ()))


def _adjunct(adjunct: Prepositional | Adverb) -> Phrase:
    return _adverb(adjunct) if isinstance(adjunct, Adverb) else _prepositional(adjunct)


# Clauses


def _clause(clause: Clause, antecedent: Features | None = None) -> Phrase:
    subject, context = _subject(clause, antecedent)
    predicates = [_predicate(predicate, context) for predicate in clause.predicates]
    phrases = [Phrase(verbal.auxiliary + verbal.english, verbal.french) for verbal in predicates]
    return concat(_adverb(clause.opening), subject, _several(phrases, clause.conjunction))


def _subject(clause: Clause, antecedent: Features | None) -> tuple[Phrase, _Context]:
    match clause.subject:
        case There():
            meaning = Meaning()
            context = _Context(clause.subject.features, Features(), clitics=words("y", meaning))
            return Phrase(words("there", meaning), words("il", meaning)), context
        case Gap():
            return Phrase(), _Context(antecedent, antecedent, antecedent)
        case subject:
            return _nominal(subject), _Context(subject.features, subject.features, antecedent)


def _statement(statement: Statement) -> Phrase:
    if isinstance(statement, Clause):
        return _clause(statement)
    left, right = _statement(statement.left), _statement(statement.right)
    conjunction = _words(statement.conjunction, CONJUNCTIONS[statement.conjunction])
    if statement.in_front:
        return concat(conjunction, left, _words(",", ","), right)
    return concat(left, conjunction, right)


def _question(question: Question) -> Phrase:
    """Realise a question: est-ce que is what the English auxiliary before the subject stands for."""
    clause = question.clause
    if clause.subject == WHO:
        return _clause(clause)
    subject, context = _subject(clause, None)
    verbal = _predicate(clause.predicates[0], replace(context, inverted=True))
    word = _words(question.word, QUESTION_WORDS[question.word]) if question.word else Phrase()
    meaning = Meaning()
    auxiliary = tuple(token._replace(sure=token.sure | {meaning}) for token in verbal.auxiliary)
    asking = Phrase(auxiliary, words("est-ce que", meaning))
    return concat(word, asking, subject, Phrase(verbal.english, verbal.french))
