"""Random predicates that make sense: people eat food, letters are interesting, and nobody sleeps quickly."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from .entries import Adverb, Pronoun, Verb
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
)
from .sample_nominals import NEGATED, OBJECT, PLACE, Actor, NominalSampler
from .syntax import Age, Comparison, Nominal, Predicate, Prepositional, Quality, Sensation, Statement, Tense, That

TENSES: dict[Tense, float] = {"present": 4, "past": 4, "future": 2}
VERBS = {
    "transitive": TRANSITIVE,
    "intransitive": INTRANSITIVE,
    "motion": MOTION,
    "giving": GIVING,
    "saying": SAYING,
    "control": CONTROL,
    "quality": {"be": BE},
    "comparison": {"be": BE},
    "location": {"be": BE},
    "sensation": {"be": FEEL},
    "age": {"be": FEEL},
}
_WEIGHTS = {
    "transitive": 9, "intransitive": 3.5, "motion": 2, "giving": 2.5, "saying": 1.8, "control": 2.5,
    "quality": 1.8, "comparison": 0.8, "location": 0.8, "sensation": 0.8, "age": 0.25,
}  # fmt: skip
_ROOM = {
    "transitive": 3, "intransitive": 1, "motion": 4, "giving": 3, "saying": 4, "control": 3,
    "quality": 2, "comparison": 5, "location": 4, "sensation": 1, "age": 4,
}  # fmt: skip
_MOVABLE = ("thing", "text", "food", "vehicle")  # what may be somewhere
_PREDICATIVE = ("opinion", "size", "state", "age", "color", "origin", "alone")
_GRADED = ("opinion", "size", "state", "age")  # very old, as old as
_LASTING = ("state", "opinion", "alone")  # what one may become: "will be tired", but not "will be red"
_ACCIDENTS = ("fall", "lose")  # what nobody wants to do
_CLITICS = ("clitic-in-relative", "clitic-in-question")


@dataclass(frozen=True)
class Setting:
    """Where a predicate stands."""

    tense: Tense
    inside: Literal["", "that", "relative", "question"] = ""
    reported: bool = False  # in the past, where only states go well: she said that he was tired
    negated: bool = False  # by a verb above
    timed: bool = False  # there is an adverb of time already, or none is needed
    light: bool = False  # what follows must not be taken for a part of the object


@cache
def _verbs(kind: str, classes: frozenset[str] | None, setting: Setting) -> list[Verb]:
    """The verbs of a kind that go with the subject, where it is known, and with the tense."""
    return [
        verb
        for verb in VERBS[kind].values()
        if (classes is None or not verb.subjects or not verb.subjects.isdisjoint(classes))
        and (setting.tense == "infinitive" or setting.tense in verb.tenses)
        and (verb.state or not (setting.reported and setting.tense == "past"))
    ]


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

    # What every kind has in common

    def kind(self, actor: Actor | None, setting: Setting, suits: Callable[[Verb], bool] = bool) -> str:
        """Draw what kind of predicate comes: one that suits the subject and has room and a suitable verb."""
        weights = {kind: weight for kind, weight in _WEIGHTS.items() if self.room > _ROOM[kind]}
        if actor and actor.classes.isdisjoint(("person", "animal")):
            kinds = ["quality", "comparison"] + ["location"] * (not actor.classes.isdisjoint(_MOVABLE))
            weights = {kind: weight for kind, weight in weights.items() if kind in kinds}
        elif actor:
            weights.pop("age", None)
        if setting.inside == "question":
            weights.pop("saying", None)
        if setting.inside == "relative":
            weights = self._in_relative(weights)
        classes = actor and actor.classes
        possible = {kind: weight for kind, weight in weights.items() if any(map(suits, _verbs(kind, classes, setting)))}
        return self.weighted(possible or {"quality": 1})

    def _in_relative(self, weights: dict[str, float]) -> dict[str, float]:
        if self.licensed == "that-clause-in-relative" and "saying" in weights:
            return {"saying": 1}
        kinds = ("transitive", "giving") if self.licensed == "clitic-in-relative" else weights
        return {kind: weight for kind, weight in weights.items() if kind in kinds and kind != "saying"}

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
        """Draw a negation, an adverb of frequency, both or neither."""
        relative = setting.inside == "relative"
        may_be_negated = setting.inside != "question" and (not relative or self.licensed == "negation-in-relative")
        if may_be_negated and not tells_tense(p.verb, actor, p.tense):
            return replace(p, negation="not")
        subjunctive = kind == "saying" and p.verb.english != "know"  # French does not think that it were so
        sensible = may_be_negated and actor.plain and kind != "age" and not subjunctive
        if sensible and self.likely(0.2, *["negation-in-relative"] * relative):
            self.room -= 2
            p = replace(p, negation=self.weighted({"not": 5, "never": 2, "no longer": 2}))
        repeated = not p.verb.state or kind in ("sensation", "control")
        if repeated and self.room >= 2 and p.negation in ("", "not") and self.chance(0.09):
            self.room -= 1
            names = ["often", "always"] + ["sometimes"] * (not p.negation)
            p = replace(p, frequency=ADVERBS[self.pick(names)])
        return p

    def clitics(self, setting: Setting) -> bool:
        """Whether an object may be a pronoun."""
        if self.depth and self.licensed != "clitic-in-relative":
            return False
        return setting.inside != "question" or self.licensed == "clitic-in-question"

    def pronoun_object(self, actor: Actor) -> Pronoun:
        """Draw me, you, him, her, us or them, but not the person of the subject: I see me."""
        self.room -= 1
        pronouns = [p for p in PRONOUNS[:6] if p.features.person == 3 or p.features.person != actor.features.person]
        return self.pick([p for p in pronouns if p.english != "they" or not self.plurals])

    def adverb(self, kind: str, tense: Tense) -> Adverb:
        """Draw an adverb that goes with the tense."""
        adverbs = [adverb for adverb in ADVERBS.values() if adverb.kind == kind]
        adverb = self.pick([adverb for adverb in adverbs if tense in adverb.tenses or tense == "infinitive"])
        self.room -= len(adverb.english.split())
        return adverb

    def timed(self, p: Predicate, setting: Setting) -> Predicate:
        """Add when, perhaps."""
        if setting.timed or setting.light or p.verb.state or self.room < 1 or not self.chance(0.3):
            return p
        return replace(p, adjuncts=(*p.adjuncts, self.adverb("time", p.tense)))

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

    def object(self, verb: Verb, actor: Actor, negated: bool, heavy: bool = False) -> Nominal:
        """Draw a direct object."""
        if "person" in verb.objects and self.chance(0.1):
            return self.name()
        if not negated and self.room >= 5 and self.chance(0.08 + self.room / 100):
            same = [self.pick(sorted(verb.objects))]
            conjunction = "or" if self.chance(0.15) else "and"
            return self.several(lambda: self.noun_phrase(self.noun(same), OBJECT, actor, heavy=False), conjunction)
        return self.noun_phrase(self.noun(verb.objects), NEGATED if negated else OBJECT, actor, heavy)

    # One method for each kind

    def _transitive(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        if "person" in p.verb.objects and self.clitics(setting) and self.likely(0.35, *_CLITICS):
            return self._with_adjuncts(replace(p, object=self.pronoun_object(actor)), actor, setting)
        tail = setting.light or (self.room >= 4 and self.chance(0.35))
        if p.verb.aspect == "action" and tail and self.room >= 3 and self.chance(0.3):
            p = replace(p, manner=self.adverb("manner", p.tense))
        words = self.room - 3 * (tail and not setting.light)
        negated = bool(p.negation) or setting.negated
        p = replace(p, object=self.within(max(2, words), lambda: self.object(p.verb, actor, negated, not tail)))
        return self._with_adjuncts(p, actor, setting) if tail else p

    def _intransitive(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        if p.verb.aspect == "action" and not setting.light and self.room >= 1 and self.chance(0.2):
            p = replace(p, manner=self.adverb("manner", p.tense))
        return self._with_adjuncts(p, actor, setting)

    def _motion(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 1
        heavy = not setting.light and self.chance(0.7)
        place = self.noun_phrase(self.noun(p.verb.objects), PLACE, actor, heavy)
        p = replace(p, adjuncts=(Prepositional(PREPOSITIONS[p.verb.preposition], place),))
        return p if heavy else self.timed(p, setting)

    def _giving(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        by_pronoun = self.clitics(setting) and self.likely(0.5, *_CLITICS)
        if by_pronoun:
            p = replace(p, recipient=self.pronoun_object(actor))
        else:
            self.room -= 1
            words = max(2, self.room // 2 if p.verb.objects else self.room)
            p = replace(p, recipient=self.within(words, lambda: self.person(heavy=not setting.light)))
        if not p.verb.objects:
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
        kinds = [kind for kind in ("intransitive", "transitive", "motion", "giving") if self.room > _ROOM[kind]]
        possible = {kind: _WEIGHTS[kind] for kind in kinds if _verbs(kind, actor.classes, inner)}
        kind = self.weighted(possible or {"intransitive": 1})
        unwilled = () if p.verb.modal or p.verb.english == "be going" else _ACCIDENTS
        verb = self.verb(kind, actor, inner, lambda verb: not verb.state and verb.english not in unwilled)
        return replace(p, complement=self.predicate(kind, verb, actor, inner))

    def _quality(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        used = {adjective.kind for adjective in actor.described}
        kinds = [kind for kind in (_LASTING if p.tense == "future" else _PREDICATIVE) if kind not in used]
        adjective = self.adjective(actor.classes, kinds) or self.adjective(actor.classes, _PREDICATIVE)
        self.room -= 1
        if adjective.kind in _GRADED and self.room > 0 and self.chance(0.35):
            self.room -= 1
            return replace(p, complement=Quality((adjective,), self.pick(list(DEGREES))))
        other = self.adjective(actor.classes, [kind for kind in kinds if kind in _GRADED and kind != adjective.kind])
        if other and self.room >= 2 and self.chance(0.25):
            self.room -= 2
            return replace(p, complement=Quality((adjective, other)))
        return replace(p, complement=Quality((adjective,)))

    def _comparison(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        used = {adjective.kind for adjective in actor.described}
        adjective = self.adjective(actor.classes, [kind for kind in _GRADED if kind not in used])
        if adjective is None:
            return self._quality(p, actor, setting)
        self.room -= 3
        graded = len(adjective.english) > 5 and not adjective.english.endswith("y")  # more famous, but not more big
        degree = self.pick(list(COMPARISONS) if graded else ["as"])
        if "person" in actor.classes:
            return replace(p, complement=Comparison(degree, adjective, self.person()))
        similar = self.noun(actor.classes & adjective.classes)
        return replace(p, complement=Comparison(degree, adjective, self.noun_phrase(similar, PLACE, actor, False)))

    def _sensation(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        name = self.pick(list(SENSATIONS) if "person" in actor.classes else ["hungry", "thirsty"])
        self.room -= 1
        if name in ("right", "wrong") or self.room < 1 or not self.chance(0.3):
            return replace(p, complement=Sensation(name))
        self.room -= 1
        return replace(p, complement=Sensation(name, self.pick(list(DEGREES))))

    def _age(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 3
        return replace(p, complement=Age(self.pick(list(NUMERALS))))

    def _location(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        return replace(p, adjuncts=(self.location(actor.classes),))
