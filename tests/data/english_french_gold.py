"""Derivations with the English and the French that a teacher would write down, and the links of some."""

from typing import Any

from english_french.entries import Pronoun
from english_french.lexicon import (
    ADJECTIVES,
    ADVERBS,
    CONTROL,
    FEEL,
    GIVING,
    INTRANSITIVE,
    MOTION,
    NOUNS,
    PREPOSITIONS,
    PRONOUNS,
    SAYING,
    TRANSITIVE,
    WHO,
)
from english_french.syntax import (
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


def np(noun: str, determiner: str = "the", *adjectives: str, plural: bool = False, **more: Any) -> NounPhrase:
    """A noun phrase by its English words."""
    described = tuple(ADJECTIVES[name] for name in adjectives)
    return NounPhrase(noun=NOUNS[noun], determiner=determiner, plural=plural, adjectives=described, **more)


def nps(noun: str, determiner: str = "the", *adjectives: str, **more: Any) -> NounPhrase:
    """A noun phrase in the plural, by its English words in the singular."""
    return np(noun, determiner, *adjectives, plural=True, **more)


def pronoun(english: str, gender: str = "") -> Pronoun:
    """A pronoun by its English subject; "it" and "them" come in two genders."""
    return next(p for p in PRONOUNS if p.english == english and gender in ("", p.features.gender))


def clause(subject: Nominal | Gap | There, *predicates: Predicate, **more: Any) -> Clause:
    """A subject with one or more predicates."""
    return Clause(subject=subject, predicates=predicates, **more)


def do(name: str, object: Nominal | Gap | None = None, tense: Any = "present", **more: Any) -> Predicate:
    """A predicate by its English verb; "know" is to know someone."""
    verb = next(table[name] for table in (TRANSITIVE, INTRANSITIVE, MOTION, GIVING, CONTROL) if name in table)
    return Predicate(verb=verb, object=object, tense=tense, **more)


def say(name: str, statement: Statement, tense: Any = "present", **more: Any) -> Predicate:
    """To say, think or know that something is so."""
    return Predicate(verb=SAYING[name], tense=tense, complement=That(statement), **more)


def is_(*adjectives: str, degree: str = "", **more: Any) -> Predicate:
    """To be so."""
    return Predicate(complement=Quality(tuple(ADJECTIVES[name] for name in adjectives), degree), **more)


def to(preposition: str, nominal: Nominal) -> tuple[Prepositional]:
    """One adjunct."""
    return (Prepositional(PREPOSITIONS[preposition], nominal),)


def which(role: Any, *predicates: Predicate, subject: Nominal | Gap = Gap()) -> Relative:  # noqa: B008
    """A relative clause."""
    return Relative(role, clause(subject, *predicates))


JE, VOUS, IL, ELLE, NOUS, ILS = (pronoun(name) for name in ("i", "you", "he", "she", "we", "they"))
IT_F, THEM_F = pronoun("it", "f"), pronoun("them", "f")
INFINITIVE: Any = "infinitive"

GOLD: list[tuple[Statement | Question, str, str]] = [
    # Articles, elision, contraction, and the forms before a vowel
    (
        clause(np("man"), do("eat", np("apple", "a"))),
        "the man eats an apple .",
        "l' homme mange une pomme .",
    ),
    (
        clause(np("owl"), do("see", np("hotel"))),
        "the owl sees the hotel .",
        "le hibou voit l' hôtel .",
    ),
    (
        clause(JE, do("come", adjuncts=to("from", np("village")))),
        "i come from the village .",
        "je viens du village .",
    ),
    (
        clause(VOUS, do("go", adjuncts=to("to", nps("shop")))),
        "you go to the shops .",
        "vous allez aux magasins .",
    ),
    (
        clause(np("hero"), do("come", adjuncts=to("from", np("church")))),
        "the hero comes from the church .",
        "le héros vient de l' église .",
    ),
    (
        clause(np("aunt", "her"), do("love", np("tree", "this"))),
        "her aunt loves this tree .",
        "sa tante aime cet arbre .",
    ),
    (
        clause(np("orange", "my"), is_("cold")),
        "my orange is cold .",
        "mon orange est froide .",
    ),
    (
        clause(IL, do("drink", np("water", "some", "cold"))),
        "he drinks some cold water .",
        "il boit de l' eau froide .",
    ),
    (
        clause(JE, do("love", np("bread", "some"))),
        "i love some bread .",
        "j' aime du pain .",
    ),
    (
        clause(ILS, do("speak", recipient=Several((np("king"), np("queen"), Name("anna"))))),
        "they speak to the king , the queen and anna .",
        "ils parlent au roi , à la reine et à anna .",
    ),
    # Adjectives
    (
        clause(np("boy", "a", "honest"), do("sleep")),
        "an honest boy sleeps .",
        "un garçon honnête dort .",
    ),
    (
        clause(ELLE, do("have", np("bird", "a", "white", "beautiful"))),
        "she has a beautiful white bird .",
        "elle a un bel oiseau blanc .",
    ),
    (
        clause(IL, do("see", np("woman", "a", "young", "intelligent"))),
        "he sees an intelligent young woman .",
        "il voit une jeune femme intelligente .",
    ),
    (
        clause(NOUS, do("buy", nps("chair", "a", "old", "green"))),
        "we buy some old green chairs .",
        "nous achetons de vieilles chaises vertes .",
    ),
    (
        clause(np("man", "this", "old"), is_("old", "happy")),
        "this old man is old and happy .",
        "ce vieil homme est vieux et heureux .",
    ),
    (
        clause(nps("queen", "all"), is_("curious", degree="very")),
        "all the queens are very curious .",
        "toutes les reines sont très curieuses .",
    ),
    (
        clause(nps("horse", "many"), is_("beautiful", degree="too")),
        "many horses are too beautiful .",
        "beaucoup de chevaux sont trop beaux .",
    ),
    # Negation
    (
        clause(np("student"), do("eat", np("orange", "a"), negation="not")),
        "the student does not eat an orange .",
        "l' étudiant ne mange pas d' orange .",
    ),
    (
        clause(NOUS, do("buy", nps("egg", "a"), "past", negation="never")),
        "we never bought any eggs .",
        "nous n' avons jamais acheté d' œufs .",
    ),
    (
        clause(There(plural=True), Predicate(verb=FEEL, tense="past", negation="no longer", object=nps("mouse", "a"))),
        "there were no longer any mice .",
        "il n' y avait plus de souris .",
    ),
    (
        clause(ELLE, do("want", negation="not", complement=do("open", np("box", "a"), INFINITIVE))),
        "she does not want to open a box .",
        "elle ne veut pas ouvrir de boîte .",
    ),
    # Past, future, and what the participle agrees with
    (
        clause(np("nurse"), do("arrive", tense="past", frequency=ADVERBS["often"])),
        "the nurse often arrived .",
        "l' infirmière est souvent arrivée .",
    ),
    (
        clause(Several((np("girl"), np("boy"))), do("get up", tense="past", negation="not")),
        "the girl and the boy did not get up .",
        "la fille et le garçon ne se sont pas levés .",
    ),
    (
        clause(
            nps("letter", relative=which("object", do("write", Gap(), "past"), subject=JE)),
            is_("long", tense="future"),
        ),
        "the letters that i wrote will be long .",
        "les lettres que j' ai écrites seront longues .",
    ),
    (
        clause(np("farmer"), do("see", pronoun("she"), "past")),
        "the farmer saw her .",
        "le fermier l' a vue .",
    ),
    (
        clause(IL, do("buy", nps("apple", "", numeral="eleven"), "past"), do("eat", THEM_F, "past")),
        "he bought eleven apples and ate them .",
        "il a acheté onze pommes et les a mangées .",
    ),
    (
        clause(ELLE, do("know", np("song"), "past"), conjunction="and"),
        "she knew the song .",
        "elle connaissait la chanson .",
    ),
    (
        clause(np("witch", "every"), do("hide", tense="future", manner=ADVERBS["slowly"])),
        "every witch will hide slowly .",
        "chaque sorcière se cachera lentement .",
    ),
    # Clitics
    (
        clause(IL, do("give", np("key", "his"), "past", negation="not", recipient=ELLE)),
        "he did not give her his key .",
        "il ne lui a pas donné sa clé .",
    ),
    (
        clause(JE, do("answer", ILS, "future")),
        "i will answer them .",
        "je leur répondrai .",
    ),
    (
        clause(ILS, do("try", complement=do("look for", IL, INFINITIVE), tense="past")),
        "they tried to look for him .",
        "ils ont essayé de le chercher .",
    ),
    (
        clause(VOUS, do("can", negation="not", complement=do("get up", tense=INFINITIVE))),
        "you can not get up .",
        "vous ne pouvez pas vous lever .",
    ),
    # Being and having
    (
        clause(np("child", "my"), Predicate(verb=FEEL, negation="not", complement=Sensation("hungry", "very"))),
        "my child is not very hungry .",
        "mon enfant n' a pas très faim .",
    ),
    (
        clause(np("dog", "their"), Predicate(verb=FEEL, tense="past", complement=Age("eight"))),
        "their dog was eight years old .",
        "leur chien avait huit ans .",
    ),
    (
        clause(np("bear"), Predicate(complement=Comparison("more", ADJECTIVES["dangerous"], np("horse", "a")))),
        "the bear is more dangerous than a horse .",
        "l' ours est plus dangereux qu' un cheval .",
    ),
    # Genitive and prepositions
    (
        clause(np("car", "the", "red", owner=np("teacher", "the", "old")), is_("dirty")),
        "the old teacher 's red car is dirty .",
        "la voiture rouge du vieux professeur est sale .",
    ),
    (
        clause(
            np("key", owner=Name("alice")),
            Predicate(adjuncts=to("near", np("door", modifier=to("of", np("hotel"))[0]))),
        ),
        "alice 's key is near the door of the hotel .",
        "la clé d' alice est près de la porte de l' hôtel .",
    ),
    # Clauses within clauses
    (
        clause(np("man", "a", relative=which("subject", do("have", nps("hat", "", numeral="two")))), do("sing")),
        "a man who has two hats sings .",
        "un homme qui a deux chapeaux chante .",
    ),
    (
        clause(np("witch", relative=Relative("owner", clause(np("cat", "whose"), is_("black")))), do("sleep")),
        "the witch whose cat is black sleeps .",
        "la sorcière dont le chat est noir dort .",
    ),
    (
        clause(JE, do("know", np("school", "a", relative=which("place", do("work"), subject=IL)))),
        "i know a school where he works .",
        "je connais une école où il travaille .",
    ),
    (
        clause(ELLE, say("think", clause(np("island"), is_("small")))),
        "she thinks that the island is small .",
        "elle pense que l' île est petite .",
    ),
    (
        Joined(clause(IL, do("buy", np("car", "a"), "past")), "because", clause(IT_F, is_("old", tense="past"))),
        "he bought a car because it was old .",
        "il a acheté une voiture parce qu' elle était vieille .",
    ),
    (
        Joined(clause(IL, do("come")), "if", clause(ILS, do("sing", tense="future")), in_front=True),
        "if he comes , they will sing .",
        "s' il vient , ils chanteront .",
    ),
    # Questions
    (
        Question(clause(IL, do("live")), "where"),
        "where does he live ?",
        "où est-ce qu' il habite ?",
    ),
    (
        Question(clause(np("woman"), do("eat", Gap(), "past")), "what"),
        "what did the woman eat ?",
        "qu' est-ce que la femme a mangé ?",
    ),
    (
        Question(clause(WHO, do("love", np("princess")))),
        "who loves the princess ?",
        "qui aime la princesse ?",
    ),
    (
        Question(clause(nps("lawyer", "your"), is_("ready"))),
        "are your lawyers ready ?",
        "est-ce que vos avocats sont prêts ?",
    ),
]

LINKS: dict[str, str] = {
    "an honest boy sleeps .": "0-0 1-2 2-1 3-3 4-4",
    "i come from the village .": "0-0 1-1 2-2 3-2 4-3 5-4",
    "i love some bread .": "0-0 1-1 2-2 3-3 4-4",
    "the student does not eat an orange .": "0-0 1-1 2?2 2?3 2?4 3-2 3-4 4-3 5-5 6-6 7-7",
    "the letters that i wrote will be long .": "0-0 1-1 2-2 3-3 4-4 4-5 5-6 6-6 7-7 8-8",
    "he did not give her his key .": "0-0 1?1 1-3 1?4 2-1 2-4 3?3 3-5 4-2 5-6 6-7 7-8",
    "the nurse often arrived .": "0-0 1-1 2-3 3-2 3-4 4-5",
    "every witch will hide slowly .": "0-0 1-1 2-3 3-2 3-3 4-4 5-5",
    "they tried to look for him .": "0-0 1-1 1-2 2-3 2?5 3-5 4-5 5-4 6-6",
    "their dog was eight years old .": "0-0 1-1 2-2 3-3 4-4 5-4 6-5",
    "the old teacher 's red car is dirty .": "0-3 1-4 2-5 3-0 3-3 4-2 5-1 6-6 7-7 8-8",
    "what did the woman eat ?": "0-0 1-1 1-2 1-5 2-3 3-4 4?5 4-6 5-7",
}
