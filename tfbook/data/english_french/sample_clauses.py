"""Random clauses and sentences that make sense, in as many words as there is room for."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from .lexicon import (
    ADVERBS, BE, COMPARISONS, CONTROL, DEGREES, FEEL, GIVING, INTRANSITIVE, MOTION, NUMERALS, PREPOSITIONS, PRONOUNS,
    SAYING, SENSATIONS, TRANSITIVE, WHO, Adverb, Pronoun, Verb,
)  # fmt: skip
from .sample_nominals import PERSON, Actor, NominalSampler
from .syntax import (
    Age, Clause, Comparison, Gap, Joined, Nominal, NounPhrase, Predicate, Prepositional, Quality, Question, Relative, Sensation,
    Statement, Tense, That, There,
)  # fmt: skip
from .tokens import Features

Kind = Literal["transitive", "intransitive", "motion", "giving", "saying", "control", "quality", "comparison", "sensation", "age", "location"]

_VERBS: dict[str, dict[str, Verb]] = {
    "transitive": TRANSITIVE, "intransitive": INTRANSITIVE, "motion": MOTION, "giving": GIVING, "saying": SAYING, "control": CONTROL,
    "quality": {"be": BE}, "comparison": {"be": BE}, "location": {"be": BE}, "sensation": {"be": FEEL}, "age": {"be": FEEL},
}  # fmt: skip
_KINDS = {
    "transitive": 9, "intransitive": 3.5, "motion": 2, "giving": 2, "saying": 1.5, "control": 2.5,
    "quality": 2, "comparison": 0.7, "sensation": 0.7, "age": 0.2, "location": 0.8,
}  # fmt: skip
_ROOM = {"transitive": 3, "motion": 4, "giving": 3, "saying": 6, "control": 4, "comparison": 5, "location": 4, "age": 4, "quality": 2}
_THINGS = ("quality", "comparison", "location")  # what can be said of a thing
_SUBJECTS = {
    "quality": (PERSON, PERSON, ("animal",), ("thing", "garment", "vehicle"), ("text", "tale"), ("building", "place"), ("food", "drink")),
    "comparison": (PERSON, ("animal",), ("text",), ("vehicle", "garment"), ("building",)),
    "sensation": (PERSON, PERSON, ("animal",)),
    "age": (("boy", "girl", "child", "dog", "cat", "horse"),),
    "location": (PERSON, ("animal",), ("thing", "text"), ("vehicle",)),
}
_TENSES = {"present": 4, "past": 4, "future": 2.2}
_CONJUNCTIONS = {"and": 4, "but": 3, "because": 2.5, "when": 1.2, "if": 1}
_QUALITIES = ("opinion", "size", "state", "age", "colour", "origin", "alone")


@dataclass(frozen=True)
class Setting:
    """Where a clause stands; `states` asks for a verb whose past is an imperfect, as a reported past needs."""

    tense: Tense
    inside: Literal["", "that", "relative", "question"] = ""
    states: bool = False
    negated: bool = False  # by a verb above
    timed: bool = False  # there is an adverb of time already, or none is wanted
    light: bool = False  # something follows that must not be taken for a part of the object


@cache
def _options(kind: str, classes: frozenset[str] | None, setting: Setting) -> list[Verb]:
    """Return the verbs of this kind that go with the subject and the tense."""
    return [
        verb
        for verb in _VERBS[kind].values()
        if (classes is None or not verb.subjects or not verb.subjects.isdisjoint(classes))
        and (setting.tense == "infinitive" or setting.tense in verb.tenses)
        and (verb.state or not (setting.states and setting.tense == "past"))
    ]


def _anaphor(phrase: NounPhrase) -> Pronoun:
    """Return him, her, it or them for a noun phrase, in its French gender."""
    gender, plural, _ = phrase.features
    singular = {"m": "he", "f": "she"}[gender] if "person" in phrase.noun.classes else "it"
    name = singular if not plural else {"m": "they", "f": "them"}[gender]
    return next(p for p in PRONOUNS if p.english == name and p.features.gender == gender)


class Sampler(NominalSampler):
    """Draws sentences."""

    depth = 0  # of relative clauses

    def sentence(self, room: int) -> Statement | Question:
        """Draw a sentence of roughly `room` words."""
        self.room, self.plurals, self.on_subject, self.depth = room - 1, False, False, 0
        if room <= 14 and self.chance(0.6 if self.licensed == "clitic-in-question" else 0.1):
            return self.question()
        return self.statement(Setting(self.weighted(_TENSES)), first=True)

    # Sentences

    def statement(self, setting: Setting, first: bool = False) -> Statement:
        """Draw a clause, or several with conjunctions where there is room."""
        if self.room >= 9 and self.chance(min(0.95, (self.room - 7) / 12)):
            return self._joined(setting, first)
        return self.clause(setting, first)

    def _joined(self, setting: Setting, first: bool) -> Joined:
        conjunction = self.weighted({"and": 3, "but": 2} if setting.states else _CONJUNCTIONS)
        if conjunction in ("when", "if"):
            conjunction = "if" if setting.tense == "future" else "when"
        other = replace(setting, tense="present") if conjunction == "if" else setting
        if conjunction == "because" and setting.tense == "future":
            other = replace(setting, tense="present")
        self.room -= 1
        words = int(self.room * (0.35 + 0.3 * self.rng.random()))
        if first and conjunction in ("when", "if") and self.chance(0.45):
            self.room -= 1
            subordinate = self.within(words, lambda: self.clause(other))
            return Joined(subordinate, conjunction, self.statement(setting), in_front=True)
        left = self.within(words, lambda: self.statement(setting, first))
        reason = self._reason(left, other) if conjunction == "because" and self.chance(0.5) else None
        return Joined(left, conjunction, reason or self.statement(other))

    def _reason(self, cause: Statement, setting: Setting) -> Clause | None:
        """Draw "(he bought the car because) it was new": the pronoun stands for the object before it."""
        last = cause.predicates[-1] if isinstance(cause, Clause) else None
        thing = last.object if last else None
        if not isinstance(thing, NounPhrase) or thing.plural or not PERSON.isdisjoint(thing.noun.classes) or last.negation:
            return None
        adjective = self.adjective(thing.noun.classes, _QUALITIES)
        if adjective is None:
            return None
        degree = self.pick(["", "very", "too"])
        self.room -= 3 + bool(degree)
        quality = Predicate(tense=setting.tense, complement=Quality((adjective,), degree))
        return Clause(subject=_anaphor(thing), predicates=(quality,))

    def question(self) -> Question:
        """Draw a question without negation: does he work ?, what did she buy ?, who sings ?"""
        word = self.weighted({"": 5, "who": 1.5, "what": 1.5, "where": 1, "why": 1, "when": 0.7})
        setting = Setting(self.weighted(_TENSES), "question")
        self.room -= 1
        if word == "what":
            verb = self._verb("transitive", ("person",), setting, lambda v: v.objects.isdisjoint(("person", "sound")))
            subject, actor = self.within(4, lambda: self.subject(("person",), setting.tense))
            return Question(Clause(subject=subject, predicates=(self._with_gap(verb, actor, setting),)), word)
        if word == "where":
            return Question(self._located(setting), word)
        if word == "who":
            kind = self._kind(PERSON, setting)
            predicate = self._predicate(kind, self._verb(kind, PERSON, setting), Actor(PERSON, Features()), setting)
            return Question(Clause(subject=WHO, predicates=(predicate,)))
        return Question(self.clause(setting), word)

    # Clauses

    def clause(self, setting: Setting, first: bool = False) -> Clause:
        """Draw a subject and one or two predicates."""
        if self.room >= 4 and setting.inside != "question" and self.chance(0.05):
            return self._existence(setting)
        opening = None
        if first and self.room >= 5 and self.chance(0.06):
            opening = self._adverb("time", setting.tense)
            setting = replace(setting, timed=True)
        kind = self._kind(None, setting)
        verb = self._verb(kind, None, setting)
        classes = self.pick(_SUBJECTS[kind]) if kind in _SUBJECTS else verb.subjects
        words = max(2, int(self.room * (0.2 + 0.3 * self.rng.random())))
        subject, actor = self.within(words, lambda: self.subject(classes, setting.tense))
        return Clause(subject=subject, predicates=self._predicates(kind, verb, actor, setting), opening=opening)

    def _existence(self, setting: Setting) -> Clause:
        """Draw "there are some birds in the garden"."""
        self.room -= 2
        negation = self._negation(setting) if self.chance(0.2) else ""
        noun = self.noun(("animal", "thing", "adult", "building", "drink"))
        what = self.noun_phrase(noun, "other", heavy=False, negated=bool(negation), indefinite=True)
        where = (self.location(),) if self.room >= 3 else ()
        predicate = Predicate(verb=FEEL, tense=setting.tense, negation=negation, object=what, adjuncts=where)
        return Clause(subject=There(what.plural), predicates=(predicate,))

    def _kind(self, classes: Collection[str] | None, setting: Setting) -> Kind:
        """Draw what kind of predicate comes, among those that suit the subject and for which there is room."""
        weights = {kind: weight for kind, weight in _KINDS.items() if self.room > _ROOM.get(kind, 1)} or {"quality": 1}
        if not self._may("that-clause-in-relative", setting.inside == "relative") or setting.inside == "question":
            weights.pop("saying", None)
        elif setting.inside == "relative" and "saying" in weights:
            weights["saying"] = 30
        if classes is not None:
            person, animal = "person" in classes, "animal" in classes
            allowed = set(_KINDS) - {"age"} if person else set(_KINDS) - {"saying", "giving", "age"} if animal else _THINGS
            weights = {kind: weight for kind, weight in weights.items() if kind in allowed}
        fits = {kind: weight for kind, weight in weights.items() if _options(kind, classes and frozenset(classes), setting)}
        return self.weighted(fits or {"quality": 1})

    def _verb(self, kind: str, classes: Collection[str] | None, setting: Setting, suits: Callable[[Verb], bool] = bool) -> Verb:
        """Draw a verb of this kind that goes with the subject and the tense."""
        return self.pick([verb for verb in _options(kind, classes and frozenset(classes), setting) if suits(verb)])

    def _predicates(self, kind: Kind, verb: Verb, actor: Actor, setting: Setting) -> tuple[Predicate, ...]:
        """Draw one predicate, or two that share the subject: she takes the letter and reads it."""
        single = setting.inside == "question" or kind == "saying" or self.room < 6 or not self.chance(0.25)
        if single:
            return (self._predicate(kind, verb, actor, setting),)
        words = int(self.room * 0.5)
        first = self.within(words, lambda: self._predicate(kind, verb, actor, setting, light=True))
        self.room -= 1
        return first, self._second(first, actor, setting)

    def _second(self, first: Predicate, actor: Actor, setting: Setting) -> Predicate:
        thing = first.object
        if isinstance(thing, NounPhrase) and not first.negation and self._clitics(setting) and self.chance(0.6):
            fits = [
                verb
                for verb in TRANSITIVE.values()
                if verb != first.verb
                and not verb.governs
                and not verb.objects.isdisjoint(thing.noun.classes)
                and not verb.subjects.isdisjoint(actor.classes)
                and (verb.state or not (setting.states and setting.tense == "past"))
            ]
            if fits:
                self.room -= 2
                return self._finish(Predicate(verb=self.pick(fits), tense=setting.tense, object=_anaphor(thing)), actor)
        kind = self._kind(actor.classes, setting)
        kind = "quality" if kind == "saying" else kind
        return self._predicate(kind, self._verb(kind, actor.classes, setting), actor, setting)

    # Predicates

    def _predicate(self, kind: Kind, verb: Verb, actor: Actor, setting: Setting, light: bool = False) -> Predicate:
        """Draw a predicate of one kind; a light one ends in nothing to which a following word could belong."""
        self.room -= len(verb.english.split()) + (setting.tense == "future")
        p = Predicate(verb=verb, tense=setting.tense)
        if setting.tense != "infinitive":
            p = self._modified(p, kind, actor, setting)
        p = getattr(self, f"_{kind}")(p, actor, replace(setting, light=light or setting.light))
        return self._finish(p, actor)

    def _finish(self, p: Predicate, actor: Actor) -> Predicate:
        """Make sure that the English tells its tense: "they read" could be either, "they do not read" is the present."""
        third_singular = actor.features.person == 3 and not actor.features.plural
        ambiguous = p.verb.past == p.verb.english and p.tense == "present" and not third_singular and p.negation != "not"
        return replace(p, verb=TRANSITIVE["write"]) if ambiguous else p

    def _modified(self, p: Predicate, kind: Kind, actor: Actor, setting: Setting) -> Predicate:
        """Draw a negation or an adverb of frequency, or neither."""
        negatable = actor.plain and setting.inside != "question" and kind != "age"
        if kind == "saying" and p.verb.english != "know":
            negatable = False  # the French clause after it would want the subjunctive
        if negatable and self._may("negation-in-relative", setting.inside == "relative"):
            if self.chance(0.6 if self.licensed == "negation-in-relative" and setting.inside == "relative" else 0.2):
                self.room -= 2
                p = replace(p, negation=self._negation(setting))
        if kind != "age" and self.room >= 2 and p.negation in ("", "not") and self.chance(0.08):
            names = ["often", "always"] + ["sometimes"] * (not p.negation)
            self.room -= 1
            p = replace(p, frequency=ADVERBS[self.pick(names)])
        return p

    def _negation(self, setting: Setting) -> str:
        return self.weighted({"not": 5, "never": 2, "no longer": 1.5})

    def _transitive(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        if "person" in p.verb.objects and self._clitics(setting) and self.chance(0.35):
            p = replace(p, object=self._pronoun_object(actor))
            return self._with_adjuncts(p, actor, setting)
        tail = setting.light or (self.room >= 4 and self.chance(0.35))
        if self.room >= 2 and not p.verb.state and tail and self.chance(0.3):
            p = replace(p, manner=self._adverb("manner", p.tense))
        words = self.room - (3 if tail and not setting.light else 0)
        p = replace(p, object=self.within(max(2, words), lambda: self._object(p, actor, setting, heavy=not tail)))
        return self._with_adjuncts(p, actor, setting) if tail else p

    def _object(self, p: Predicate, actor: Actor, setting: Setting, heavy: bool) -> Nominal:
        classes = p.verb.objects
        negated = bool(p.negation) or setting.negated
        if not negated and self.room >= 5 and self.chance(0.12):
            return self.several(lambda: self.noun_phrase(self.noun(classes), "object", actor, heavy=False))
        if "person" in classes and self.chance(0.1):
            return self._name()
        return self.noun_phrase(self.noun(classes), "object", actor, heavy=heavy, negated=negated)

    def _intransitive(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        if not p.verb.state and not setting.light and self.room >= 1 and self.chance(0.15):
            p = replace(p, manner=self._adverb("manner", p.tense))
        return self._with_adjuncts(p, actor, setting, 0.5)

    def _motion(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 1
        where = Prepositional(PREPOSITIONS[p.verb.preposition], self.place(p.verb.objects))
        return self._timed(replace(p, adjuncts=(where,)), setting)

    def _giving(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        if self._clitics(setting) and self.chance(0.5):
            p = replace(p, recipient=self._pronoun_object(actor))
        else:
            words = self.room - 2 if p.verb.english != "speak" else self.room
            self.room -= 1
            someone = self.within(max(2, words // 2), lambda: self.person(heavy=not setting.light))
            p = replace(p, recipient=someone)
        if p.verb.english != "speak":
            light = not isinstance(p.recipient, Pronoun) or setting.light
            noun = self.noun(p.verb.objects)
            p = replace(p, object=self.noun_phrase(noun, "object", actor, heavy=not light, negated=bool(p.negation) or setting.negated))
        return p

    def _saying(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 1
        if p.tense == "past":
            inner = Setting("past", "that", states=True)
        else:
            inner = Setting("present" if setting.inside else self.weighted(_TENSES), "that", setting.states)
        return replace(p, complement=That(self.statement(inner)))

    def _control(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= not p.verb.modal
        timed = setting.timed or p.verb.modal or p.tense == "past"
        inner = replace(setting, tense="infinitive", timed=timed, negated=bool(p.negation))
        kinds = ["intransitive"] + [kind for kind in ("transitive", "motion", "giving") if self.room > _ROOM[kind]]
        if "person" not in actor.classes:
            kinds = [kind for kind in kinds if kind != "giving"]
        kind = self.weighted({kind: _KINDS[kind] for kind in kinds})
        verb = self._verb(kind, actor.classes, inner, lambda v: not v.state)
        return replace(p, complement=self._predicate(kind, verb, actor, inner, setting.light))

    def _quality(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 1
        degree = ""
        if self.room > 0 and self.chance(0.35):
            self.room -= 1
            degree = self.pick(list(DEGREES))
        adjectives = [self.adjective(actor.classes, _QUALITIES)]
        if self.room >= 2 and not degree and self.chance(0.2):
            other = self.adjective(actor.classes, [kind for kind in _QUALITIES if kind not in (adjectives[0].kind, "colour", "origin")])
            adjectives += [other] if other else []
        return replace(p, complement=Quality(tuple(adjectives), degree))

    def _comparison(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        self.room -= 3
        adjective = self.adjective(actor.classes, ("opinion", "size", "state", "age"))
        graded = len(adjective.english) > 5 and not adjective.english.endswith("y")  # more famous, but not more big
        degree = self.pick(list(COMPARISONS) if graded else ["as"])
        person = "person" in actor.classes
        other = self.person() if person else self.noun_phrase(self.noun(adjective.classes & actor.classes), "other", actor, heavy=False)
        return replace(p, complement=Comparison(degree, adjective, other))

    def _sensation(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        name = self.pick(list(SENSATIONS) if "person" in actor.classes else ["hungry", "thirsty"])
        degree = self.pick(list(DEGREES)) if name in ("hungry", "thirsty") and self.chance(0.3) else ""
        return replace(p, verb=FEEL, complement=Sensation(name, degree))

    def _age(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        return replace(p, verb=FEEL, complement=Age(self.pick(list(NUMERALS))))

    def _location(self, p: Predicate, actor: Actor, setting: Setting) -> Predicate:
        small = not actor.classes.isdisjoint(("thing", "text", "food", "drink"))
        return replace(p, adjuncts=(self.location(small),))

    def _with_adjuncts(self, p: Predicate, actor: Actor, setting: Setting, likelihood: float = 0.4) -> Predicate:
        """Add where or with whom, and when, in this order."""
        if not p.verb.state and self.room >= 3 and self.chance(likelihood):
            if "person" in actor.classes and self.chance(0.25):
                name = self.pick(["with", "for"] if isinstance(p.object, NounPhrase) else ["with"])
                self.room -= 1
                p = replace(p, adjuncts=(Prepositional(PREPOSITIONS[name], self.person(heavy=not setting.light)),))
            elif self.chance(0.2):
                p = replace(p, adjuncts=(self._adverb("place", p.tense),))
            else:
                p = replace(p, adjuncts=(self.location(small=False),))
        return self._timed(p, setting)

    def _timed(self, p: Predicate, setting: Setting) -> Predicate:
        if setting.timed or setting.light or self.room < 1 or p.tense == "infinitive" or not self.chance(0.3):
            return p
        return replace(p, adjuncts=(*p.adjuncts, self._adverb("time", p.tense)))

    def _adverb(self, kind: str, tense: str) -> Adverb:
        options = [a for a in ADVERBS.values() if a.kind == kind and (tense in a.tenses or tense == "infinitive")]
        adverb = self.pick(options)
        self.room -= len(adverb.english.split())
        return adverb

    def _pronoun_object(self, actor: Actor) -> Pronoun:
        """Draw me, you, him, her, us or them, but not the person of the subject: I see me."""
        persons = [p for p in PRONOUNS[:6] if p.features.person == 3 or p.features.person != actor.features.person]
        self.room -= 1
        return self.pick([p for p in persons if p.english != "they" or not self.plurals])

    # What is held out of training

    def _may(self, construction: str, here: bool) -> bool:
        return not here or self.licensed == construction

    def _clitics(self, setting: Setting) -> bool:
        """Whether an object may be a pronoun."""
        in_relative = self._may("clitic-in-relative", self.depth > 0)
        return in_relative and self._may("clitic-in-question", setting.inside == "question")

    # Relative clauses and questions, which lack a part

    def relative(self, antecedent: NounPhrase) -> Relative | None:
        """Draw a relative clause of a kind that the noun allows; None where no verb suits."""
        if self.depth == 2:
            return None
        classes = antecedent.noun.classes
        setting = Setting(self.weighted({"present": 5, "past": 5, "future": 1}), "relative")
        weights = {"subject": 5.0}
        if self._may("object-relative-on-subject", self.on_subject):
            weights["object"] = 50.0 if self.licensed == "object-relative-on-subject" else 5.0
        weights |= {"place": 4.0} if "place" in classes else {}
        weights |= {"owner": 1.2} if "adult" in classes else {}
        self.depth += 1
        self.room -= 1
        drawn = getattr(self, f"_{self.weighted(weights)}_relative")(antecedent, setting)
        self.depth -= 1
        return drawn

    def _subject_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative:
        actor = Actor(antecedent.noun.classes, antecedent.features)
        kind = self._kind(actor.classes, setting)
        verb = self._verb(kind, actor.classes, setting)
        return Relative("subject", Clause(subject=Gap(), predicates=(self._predicate(kind, verb, actor, setting),)))

    def _object_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative | None:
        classes = antecedent.noun.classes
        verbs = [v for v in TRANSITIVE.values() if not v.governs and not v.objects.isdisjoint(classes)]
        if not verbs:
            return None
        verb = self.pick(verbs)
        subject, actor = self.within(3, lambda: self.subject(("person",), setting.tense))
        return Relative("object", Clause(subject=subject, predicates=(self._with_gap(verb, actor, setting),)))

    def _with_gap(self, verb: Verb, actor: Actor, setting: Setting) -> Predicate:
        """Draw "(that) he wrote ␣" or "(that) he wants to write ␣"."""
        self.room -= 1
        if not verb.state and self.room >= 2 and self.chance(0.15):
            control = self._verb("control", actor.classes, setting)
            self.room -= 2
            return Predicate(verb=control, tense=setting.tense, complement=Predicate(verb=verb, tense="infinitive", object=Gap()))
        p = self._modified(Predicate(verb=verb, tense=setting.tense, object=Gap()), "transitive", actor, setting)
        return self._timed(self._finish(p, actor), setting)

    def _place_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative:
        return Relative("place", self._located(setting))

    def _owner_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative:
        noun = self.noun(("animal", "garment", "vehicle", "building"))
        plural = self.chance(0.3)
        self.room -= 2
        owned = NounPhrase(noun=noun, determiner="whose", plural=plural)
        actor = Actor(noun.classes, owned.features)
        predicate = self._predicate("quality", BE, actor, setting)
        return Relative("owner", Clause(subject=owned, predicates=(predicate,)))

    def _located(self, setting: Setting) -> Clause:
        """Draw "(where) he works", with nothing in it that says where."""
        places = {"sleep", "work", "dance", "play", "sing", "rest", "hide"}
        kind = self.weighted({"intransitive": 3, "motion": 1, "transitive": 3 if self.room >= 5 else 0})
        if kind == "motion":
            verb = MOTION["live"]
        elif kind == "intransitive":
            verb = INTRANSITIVE[self.pick(sorted(places))]
        else:
            verb = TRANSITIVE[self.pick(["meet", "buy", "find", "lose", "see", "wait for"])]
        subject, actor = self.within(3, lambda: self.subject(verb.subjects, setting.tense))
        p = Predicate(verb=verb, tense=setting.tense)
        p = self._modified(p, kind, actor, setting)
        if kind == "transitive":
            p = replace(p, object=self._object(p, actor, setting, heavy=False))
        return Clause(subject=subject, predicates=(self._timed(p, setting),))
