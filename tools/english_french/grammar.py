"""The synchronous rules: each reads one piece of a derivation and writes English, French and what links them."""

from dataclasses import replace
from typing import NamedTuple

from . import english, french
from .entries import Adjective, Adverb, Pronoun, Verb
from .lexicon import (
    ADJECTIVE_ORDER,
    COMPARISONS,
    CONJUNCTIONS,
    DEGREES,
    DETERMINERS,
    NUMERALS,
    PREPOSITIONS,
    QUESTION_WORDS,
    SENSATIONS,
    WHO,
)
from .syntax import (
    Age,
    Clause,
    Comparison,
    Gap,
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
from .verbs import Context, Meanings, adverb, english_verb, french_verb


class Translation(NamedTuple):
    """A sentence in both languages, its tokens separated by spaces, and the links between them."""

    english: str
    french: str
    alignment: str


def translate(sentence: Statement | Question) -> Translation:
    """Realize a derivation."""
    asked = isinstance(sentence, Question)
    body = _question(sentence) if asked else _statement(sentence)
    whole = concat(body, _words("?", "?") if asked else _words(".", "."))
    in_english, in_french = english.join(whole.english), french.join(whole.french)
    texts = (" ".join(token.text for token in tokens) for tokens in (in_english, in_french))
    return Translation(*texts, align(in_english, in_french))


def _words(in_english: str, in_french: str) -> Phrase:
    """Translate as a whole: each of these English words is linked with each of the French."""
    meaning = Meaning()
    return Phrase(words(in_english, meaning), words(in_french, meaning))


# Noun phrases


def _nominal(nominal: Nominal | Gap, repeated: tuple[Token, ...] = (), negated: bool = False) -> Phrase:
    """Realize a nominal; French repeats à and de before every part, and has de for un and des under negation."""
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
    determiner, owner = _determiner(phrase, negated)
    numeral = _words(phrase.numeral, NUMERALS[phrase.numeral]) if phrase.numeral else Phrase()
    modifier = _prepositional(phrase.modifier) if phrase.modifier else Phrase()
    relative = _relative(phrase.relative, phrase) if phrase.relative else Phrase()
    return concat(determiner, numeral, _described(phrase), owner, modifier, relative)


def _described(phrase: NounPhrase) -> Phrase:
    """Realize a noun with its adjectives; those that follow it in French mirror their English order."""
    noun, plural = phrase.noun, phrase.plural
    head = _words(noun.english_plural if plural else noun.english, noun.french_plural if plural else noun.french)
    in_english, before, after = (), (), ()
    for adjective in sorted(phrase.adjectives, key=lambda adjective: ADJECTIVE_ORDER.index(adjective.kind)):
        attribute = _attribute(adjective, phrase.features)
        in_english += attribute.english
        if adjective.precedes:
            before += attribute.french
        else:
            after = attribute.french + after
    return Phrase(in_english + head.english, before + head.french + after)


def _determiner(phrase: NounPhrase, negated: bool) -> tuple[Phrase, Phrase]:
    """What stands before the noun, and the French owner, which stands after it."""
    if phrase.owner:
        return _owned(phrase.owner, phrase.features)
    if not phrase.determiner:
        return Phrase(), Phrase()
    pairs = DETERMINERS[phrase.determiner].words(phrase.features)
    if phrase.determiner in ("a", "some"):
        before_adjective = any(adjective.precedes for adjective in phrase.adjectives)
        pairs = [_indefinite(*pair, negated, phrase.plural and before_adjective) for pair in pairs]
    return concat(*(_articles(*pair) for pair in pairs)), Phrase()


def _indefinite(in_english: str, in_french: str, negated: bool, plural_before_adjective: bool) -> tuple[str, str]:
    """Choose some or any, and de for un and des: pas de pommes, de belles pommes."""
    if negated:
        return in_english.replace("some", "any"), "de"
    return in_english, "de" if plural_before_adjective else in_french


def _articles(in_english: str, in_french: str) -> Phrase:
    meaning = Meaning()
    return Phrase(words(in_english, meaning), words(in_french, meaning, article=True))


def _owned(owner: NounPhrase | Name, owned: Features) -> tuple[Phrase, Phrase]:
    """Realize "the teacher 's" and "du professeur": 's is both the article of what is owned and de."""
    realized, genitive = _nominal(owner), Meaning()
    ((_, article),) = DETERMINERS["the"].words(owned)
    before = Phrase(realized.english + words("'s", genitive), words(article, genitive, article=True))
    return before, Phrase((), words("de", genitive) + realized.french)


def _adjective(adjective: Adjective, features: Features) -> Phrase:
    form = adjective.feminine if features.gender == "f" else adjective.french
    if features.plural:
        form = french.plural(form)
    meaning = Meaning()
    (token,) = words(form, meaning)
    return Phrase(words(adjective.english, meaning), (token,))


def _attribute(adjective: Adjective, features: Features) -> Phrase:
    """Realize an adjective at its noun; there a masculine singular may have a form before a vowel: un bel arbre."""
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


# Predicates


class _Verbal(NamedTuple):
    """A realized predicate; the English auxiliary stands apart, because a question puts it before the subject."""

    auxiliary: tuple[Token, ...]
    english: tuple[Token, ...]
    french: tuple[Token, ...]


def _predicate(p: Predicate, context: Context) -> _Verbal:
    """Realize a verb and all that goes with it; a clitic is linked with its pronoun alone."""
    m = Meanings(frequency=adverb(p.frequency))
    inner = replace(context, clitics=(), inverted=False, negated=context.negated or bool(p.negation))
    auxiliary, verb = english_verb(p, context, m)
    object_, object_clitic = _object(p, m, inner.negated)
    receiver, recipient, recipient_clitic = _recipient(p)
    complement = _complement(p, inner)
    manner, adjuncts = adverb(p.manner), concat(*(_adjunct(adjunct) for adjunct in p.adjuncts))
    clitics = context.clitics + object_clitic + recipient_clitic
    return _Verbal(
        auxiliary,
        verb + receiver + object_.english + recipient.english + complement.english + manner.english + adjuncts.english,
        french_verb(p, context, m, clitics)
        + manner.french + object_.french + recipient.french + complement.french + adjuncts.french,
    )  # fmt: skip


def _object(p: Predicate, m: Meanings, negated: bool) -> tuple[Phrase, tuple[Token, ...]]:
    """The object in its place and, for a pronoun, the French clitic, which moves before the verb."""
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
    """The English pronoun after the verb (gives him the book), "to the man" in its place, the French clitic."""
    match p.recipient:
        case None:
            return (), Phrase(), ()
        case Pronoun(english_object=text, indirect=indirect):
            meaning = Meaning()
            return words(text if p.object else f"to {text}", meaning), Phrase(), words(indirect, meaning)
        case nominal:
            return (), _prepositional(Prepositional(PREPOSITIONS["to"], nominal)), ()


def _complement(p: Predicate, context: Context) -> Phrase:
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


def _infinitive(p: Predicate, governor: Verb, context: Context) -> Phrase:
    """Realize "to eat": to is what the governor asks for (essaie de manger), and part of the ending of manger."""
    to = Meaning()
    realized = _predicate(p, replace(context, to=to))
    in_english = words("" if governor.modal else "to", to) + realized.english
    return Phrase(in_english, words(governor.governs, to) + realized.french)


def _degree(degree: str) -> Phrase:
    return _words(degree, DEGREES[degree]) if degree else Phrase()


def _adjunct(adjunct: Prepositional | Adverb) -> Phrase:
    return adverb(adjunct) if isinstance(adjunct, Adverb) else _prepositional(adjunct)


# Clauses


def _clause(clause: Clause, antecedent: Features | None = None) -> Phrase:
    subject, context = _subject(clause, antecedent)
    predicates = [_predicate(predicate, context) for predicate in clause.predicates]
    phrases = [Phrase(verbal.auxiliary + verbal.english, verbal.french) for verbal in predicates]
    return concat(adverb(clause.opening), subject, _several(phrases, clause.conjunction))


def _subject(clause: Clause, antecedent: Features | None) -> tuple[Phrase, Context]:
    match clause.subject:
        case There():
            meaning = Meaning()
            context = Context(clause.subject.features, Features(), clitics=words("y", meaning))
            return Phrase(words("there", meaning), words("il", meaning)), context
        case Gap():
            return Phrase(), Context(antecedent, antecedent, antecedent)
        case subject:
            return _nominal(subject), Context(subject.features, subject.features, antecedent)


def _statement(statement: Statement) -> Phrase:
    if isinstance(statement, Clause):
        return _clause(statement)
    left, right = _statement(statement.left), _statement(statement.right)
    conjunction = _words(statement.conjunction, CONJUNCTIONS[statement.conjunction])
    if statement.in_front:
        return concat(conjunction, left, _words(",", ","), right)
    return concat(left, conjunction, right)


def _question(question: Question) -> Phrase:
    """Realize a question: est-ce que is what the English auxiliary before the subject stands for."""
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
