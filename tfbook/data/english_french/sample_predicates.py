"""Random predicates that make sense: people eat food, letters are interesting, and nobody stays quickly."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from .lexicon import (
    ADVERBS,
    BE,
    COMPARISONS,
    CONTROL,
    DEGREES,
    FEEL,
    GIVING,
    INTRANSITIVE,
    MOTION,
    NUMERALS,
    PREPOSITIONS,
    PRONOUNS,
    SAYING,
    SENSATIONS,
    TRANSITIVE,
    Adverb,
    Pronoun,
    Verb,
)
from .sample_nominals import NEGATED, OBJECT, PLACE, Actor, NominalSampler
from .syntax import Age, Comparison, Name, Nominal, NounPhrase, Predicate, Prepositional, Quality, Sensation, Statement, Tense, That

TENSES = {"present": 4.0, "past": 4.0, "future": 2.0}
VERBS = {
    "transitive": TRANSITIVE, "intransitive": INTRANSITIVE, "motion": MOTION, "giving": GIVING, "saying": SAYING, "control": CONTROL,
    "quality": {"be": BE}, "comparison": {"be": BE}, "location": {"be": BE}, "sensation": {"be": FEEL}, "age": {"be": FEEL},
}  # fmt: skip
_FREQUENCY = {
    "transitive": 9, "intransitive": 3.5, "motion": 2, "giving": 2.5, "saying": 1.8, "control": 2.5,
    "quality": 1.8, "comparison": 0.8, "location": 0.8, "sensation": 0.8, "age": 0.25,
}  # fmt: skip
_ROOM = {"transitive": 3, "motion": 4, "giving": 3, "saying": 4, "control": 3, "comparison": 5, "location": 4, "age": 4, "quality": 2}
_MOVABLE = ("thing", "text", "food", "vehicle")
_LASTING = ("state", "opinion")  # what may become so: "will be tired", but not "will be red"


@dataclass(frozen=True)
class Setting:
    """Where a predicate stands."""

    tense: Tense
    inside: Literal["", "that", "relative", "question"] = ""
    reported: bool = False  # in the past, where only states go well: she said that he was tired
    negated: bool = False  # by a verb above
    timed: bool = False  # there is an adverb of time already, or none is wanted
    light: bool = False  # something follows that must not be taken for a part of the object


@cache
def _verbs(kind: str, classes: frozenset[str] | None, setting: Setting) -> list[Verb]:
    return [
        verb
        for verb in VERBS[kind].values()
        if (classes is None or not verb.subjects or not verb.subjects.isdisjoint(classes))
        and (setting.tense == "infinitive" or setting.tense in verb.tenses)
        and (verb.state or not (setting.reported and setting.tense == "past"))
    ]


def is_thing(actor: Actor) -> bool:
    """Whether a subject is neither a person nor an animal."""
    return actor.classes.isdisjoint(("person", "animal"))


def tells_tense(verb: Verb, actor: Actor, tense: Tense) -> bool:
    """Whether the English verb shows which tense it is: "they read" could be the present or the past."""
    third_singular = actor.features.person == 3 and not actor.features.plural
    return tense != "present" or third_singular or verb.past != verb.english


class PredicateSampler(NominalSampler):
    """Draws predicates."""

    depth = 0  # of relative clauses

    @abstractmethod
    def statement(self, setting: Setting) -> Statement:
        """Draw a statement, to be reported."""

    def kind(self, actor: Actor | None, setting: Setting) -> str:
        """Draw what kind of predicate comes, among those that suit the subject and for which there is room."""
        weights = {kind: weight for kind, weight in _FREQUENCY.items() if self.room > _ROOM.get(kind, 1)}
        in_relative = setting.inside == "relative"
        if setting.inside == "question" or (in_relative and self.licensed != "that-clause-in-relative"):
            weights.pop("saying", None)
        elif in_relative and "saying" in weights:
            weights = {"saying": 1}
        if in_relative and self.licensed == "clitic-in-relative":
            weights = {"transitive": 2, "giving": 1}
        if actor and is_thing(actor):
            kinds = ["quality", "comparison"] + ["location"] * (not actor.classes.isdisjoint(_MOVABLE))
            weights = {kind: weight for kind, weight in weights.items() if kind in kinds}
        elif actor:
            weights.pop("age", None)
        classes = actor and actor.classes
        possible = {kind: weight for kind, weight in weights.items() if _verbs(kind, classes, setting)}
        return self.weighted(possible or {"quality": 1})

    def verb(self, kind: str, actor: Actor | None, setting: Setting, suits: Callable[[Verb], bool] = bool) -> Verb:
        """Draw a verb of this kind that goes with the subject and the tense."""
        verbs = [verb for verb in _verbs(kind, actor and actor.classes, setting) if suits(verb)]
        if actor and setting.inside == "relative":
            verbs = [verb for verb in verbs if tells_tense(verb, actor, setting.tense)]
        return self.pick(verbs)

    def predicate(self, kind: str, verb: Verb, actor: Actor, setting: Setting) -> Predicate:
        """Draw a predicate of one kind."""
        self.room -= len(verb.english.split()) + (setting.tense == "future")
        p = Predicate(verb=verb, tense=setting.tense)
        if setting.tense != "infinitive":
            p = self.modified(p, kind, actor, setting)
        return getattr(self, f"_{kind}")(p, actor, setting)

    def modified(self, p: Predicate, kind: str, actor: Actor, setting: Setting) -> Predicate:
        """Draw a negation, an adverb of frequency, or neither."""
        may_be_negated = setting.inside != "question" and (setting.inside != "relative" or self.licensed == "negation-in-relative")
        if setting.inside not in ("question", "relative") and not tells_tense(p.verb, actor, p.tense):
            return replace(p, negation="not")
        sensible = actor.plain and kind != "age" and (kind != "saying" or p.verb.english == "know")  # others want the subjunctive
        if may_be_negated and sensible and self.likely(0.2, *["negation-in-relative"] * (setting.inside == "relative")):
            self.room -= 2
            p = replace(p, negation=self.weighted({"not": 5, "never": 2, "no longer": 2}))
        often = not p.verb.state or kind in ("sensation", "control")
        if often and self.room >= 2 and p.negation in ("", "not") and self.chance(0.09):
            self.room -= 1
            p = replace(p, frequency=ADVERBS[self.pick(["often", "always"] if p.negation else ["often", "always", "sometimes"])])
        return p

    def pronoun_object(self, actor: Actor) -> Pronoun:
        """Draw me, you, him, her, us or them, but not the person of the subject: I see me."""
        self.room -= 1
        pronouns = [p for p in PRONOUNS[:6] if p.features.person == 3 or p.features.person != actor.features.person]
        return self.pick([p for p in pronouns if p.english != "they" or not self.plurals])

    def clitics(self, setting: Setting) -> bool:
        """Whether an object may be a pronoun."""
        in_relative = self.depth == 0 or self.licensed == "clitic-in-relative"
        return in_relative and (setting.inside != "question" or self.licensed == "clitic-in-question")

    def timed(self, p: Predicate, setting: Setting) -> Predicate:
        """Add when, perhaps."""
        if setting.timed or setting.light or p.verb.state or self.room < 1 or not self.chance(0.3):
            return p
        return replace(p, adjuncts=(*p.adjuncts, self.adverb("time", p.tense)))

    def adverb(self, kind: str, tense: str) -> Adverb:
        """Draw an adverb that goes with the tense."""
        adverb = self.pick([a for a in ADVERBS.values() if a.kind == kind and (tense in a.tenses or tense == "infinitive")])
        self.room -= len(adverb.english.split())
        return adverb

    # One method for each kind

    def _transitive(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        if "person" in p.verb.objects and self.clitics(setting) and self.likely(0.35, "clitic-in-relative", "clitic-in-question"):
            return self._with_adjuncts(replace(p, object=self.pronoun_object(actor)), actor, setting)
        tail = setting.light or (self.room >= 4 and self.chance(0.35))
        if p.verb.action and tail and self.room >= 3 and self.chance(0.3):
            p = replace(p, manner=self.adverb("manner", p.tense))
        words = self.room - 3 * (tail and not setting.light)
        negated = bool(p.negation) or setting.negated
        p = replace(p, object=self.within(max(2, words), lambda: self.object(p.verb, actor, negated, heavy=not tail)))
        return self._with_adjuncts(p, actor, setting) if tail else p

    def object(self, verb: Verb, actor: Actor, negated: bool, heavy: bool = False) -> Nominal:
        """Draw a direct object."""
        classes = verb.objects
        if "person" in classes and self.chance(0.1):
            return self.name()
        if not negated and self.room >= 5 and self.chance(0.08 + self.room / 100):
            same = [self.pick(sorted(classes))]
            conjunction = "or" if self.chance(0.15) else "and"
            return self.several(lambda: self.noun_phrase(self.noun(same), OBJECT, actor, heavy=False), conjunction)
        return self.noun_phrase(self.noun(classes), NEGATED if negated else OBJECT, actor, heavy)

    def _intransitive(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        if p.verb.action and not setting.light and self.room >= 1 and self.chance(0.2):
            p = replace(p, manner=self.adverb("manner", p.tense))
        return self._with_adjuncts(p, actor, setting)

    def _motion(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 1
        heavy = not setting.light and self.chance(0.7)
        place = self.noun_phrase(self.noun(p.verb.objects), PLACE, actor, heavy)
        p = replace(p, adjuncts=(Prepositional(PREPOSITIONS[p.verb.preposition], place),))
        return p if heavy else self.timed(p, setting)

    def _giving(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        something = bool(p.verb.objects)
        by_pronoun = self.clitics(setting) and self.likely(0.5, "clitic-in-relative", "clitic-in-question")
        if by_pronoun:
            p = replace(p, recipient=self.pronoun_object(actor))
        else:
            self.room -= 1
            words = max(2, self.room // 2 if something else self.room)
            p = replace(p, recipient=self.within(words, lambda: self.person(heavy=not setting.light)))
        if not something:
            return self.timed(p, setting)
        determiners = NEGATED if p.negation or setting.negated else OBJECT
        heavy = by_pronoun and not setting.light
        return replace(p, object=self.noun_phrase(self.noun(p.verb.objects), determiners, actor, heavy))

    def _saying(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 1
        if p.tense == "past":
            inner = Setting("past", "that", reported=True)
        else:
            inner = Setting("present" if p.tense == "future" else self.weighted(TENSES), "that")
        return replace(p, complement=That(self.statement(inner)))

    def _control(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= not p.verb.modal
        inner = replace(setting, tense="infinitive", timed=True, negated=bool(p.negation))
        kinds = [kind for kind in ("intransitive", "transitive", "motion", "giving") if self.room > _ROOM.get(kind, 0)]
        possible = {kind: _FREQUENCY[kind] for kind in kinds if _verbs(kind, actor.classes, inner)}
        kind = self.weighted(possible or {"intransitive": 1})
        verb = self.verb(kind, actor, inner, lambda verb: not verb.state)
        return replace(p, complement=self.predicate(kind, verb, actor, inner))

    def _quality(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 1
        kinds = ["opinion", "size", "state", "age", "colour", "origin", "alone"]
        used = {adjective.kind for adjective in actor.described}
        kinds = [kind for kind in kinds if kind not in used and (p.tense != "future" or kind in _LASTING)]
        adjective = self.adjective(actor.classes, kinds) or self.adjective(actor.classes, _LASTING + ("size", "age"))
        if adjective.kind not in ("colour", "origin") and self.room > 0 and self.chance(0.35):
            self.room -= 1
            return replace(p, complement=Quality((adjective,), self.pick(list(DEGREES))))
        other = self.adjective(actor.classes, [kind for kind in kinds if kind != adjective.kind and kind in ("opinion", "state", "age")])
        if other and self.room >= 2 and self.chance(0.25):
            self.room -= 2
            return replace(p, complement=Quality((adjective, other)))
        return replace(p, complement=Quality((adjective,)))

    def _comparison(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 3
        used = {adjective.kind for adjective in actor.described}
        kinds = [kind for kind in ("opinion", "size", "state", "age") if kind not in used]
        adjective = self.adjective(actor.classes, kinds)
        if adjective is None:
            return self._quality(p, actor, setting)
        graded = len(adjective.english) > 5 and not adjective.english.endswith("y")  # more famous, but not more big
        degree = self.pick(list(COMPARISONS) if graded else ["as"])
        if "person" in actor.classes:
            return replace(p, complement=Comparison(degree, adjective, self.person()))
        similar = [noun_class for noun_class in sorted(actor.classes & adjective.classes)]
        other = self.noun_phrase(self.noun(similar), PLACE, actor, heavy=False)
        return replace(p, complement=Comparison(degree, adjective, other))

    def _sensation(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        name = self.pick(list(SENSATIONS) if "person" in actor.classes else ["hungry", "thirsty"])
        degree = self.pick(list(DEGREES)) if name in ("hungry", "thirsty") and self.room > 0 and self.chance(0.3) else ""
        self.room -= bool(degree)
        return replace(p, complement=Sensation(name, degree))

    def _age(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 3
        return replace(p, complement=Age(self.pick(list(NUMERALS))))

    def _location(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        small = not actor.classes.isdisjoint(("thing", "text"))
        return replace(p, adjuncts=(self.location(small),))

    def _with_adjuncts(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        """Add where, or with whom, or when; when comes last, but not after a relative clause."""
        if p.verb.state or self.room < 3 or setting.light or not self.chance(0.5):
            return self.timed(p, setting)
        heavy = self.chance(0.6)
        if p.verb.company and "person" in actor.classes and self.chance(0.35):
            self.room -= 1
            adjunct = Prepositional(PREPOSITIONS[p.verb.company], self.person(heavy))
        elif p.verb.governs:
            return self.timed(p, setting)
        elif self.chance(0.3):
            adjunct, heavy = self.adverb("place", p.tense), False
        else:
            adjunct = self.location(heavy=heavy)
        p = replace(p, adjuncts=(adjunct,))
        return p if heavy else self.timed(p, setting)
