"""Random sentences that make sense: what the grammar can say, in about as many words as are asked for."""

from collections.abc import Callable, Collection
from dataclasses import replace

from .entries import Noun, Pronoun, Verb
from .lexicon import FEEL, INTRANSITIVE, MOTION, NAMES, PRONOUNS, TRANSITIVE, WHO
from .sample_nominals import EXISTING, LED_TO_BY_RELATIVES, NOT_EXISTING, PEOPLE, SUBJECT, Actor
from .sample_predicates import TENSES, PredicateSampler, Setting, tells_tense
from .syntax import (
    Clause,
    Gap,
    Joined,
    Nominal,
    NounPhrase,
    Predicate,
    Quality,
    Question,
    Relative,
    Statement,
    There,
)

_CONJUNCTIONS = {"and": 4, "but": 2.5, "because": 2.5, "when": 1.3, "if": 1}
_SUBJECTS = {
    "quality": (
        PEOPLE, PEOPLE, ("animal",), ("garment", "thing"), ("vehicle", "furniture"), ("text", "tale"), ("place",),
        ("food", "drink"),
    ),
    "comparison": (PEOPLE, ("animal",), ("text",), ("vehicle",), ("garment",), ("building",)),
    "sensation": (PEOPLE, PEOPLE, ("animal",)),
    "age": (("boy", "girl", "child", "dog", "cat", "horse"),),
    "location": (PEOPLE, ("animal",), ("thing", "text"), ("thing", "text"), ("vehicle",)),
}  # fmt: skip
_WORKING = ("sleep", "work", "play", "sing")
_MEETING = ("meet", "buy", "find", "lose", "see", "wait for")
_REASONS = ("opinion", "size", "state", "age", "color")


def anaphor(phrase: NounPhrase) -> Pronoun:
    """The pronoun for a noun phrase (he, she, it, they), in its French gender."""
    gender, plural, _ = phrase.features
    singular = {"m": "he", "f": "she"}[gender] if "person" in phrase.noun.classes else "it"
    name = singular if not plural else {"m": "they", "f": "them"}[gender]
    return next(p for p in PRONOUNS if p.english == name and p.features.gender == gender)


class Sampler(PredicateSampler):
    """Draws sentences."""

    def sentence(self, room: int) -> Statement | Question:
        """Draw a sentence of roughly `room` words, the mark included."""
        self.room, self.plurals, self.on_subject, self.depth = room - 1, False, False, 0
        self.names, self.conjunctions = list(NAMES), dict(_CONJUNCTIONS)
        if room <= 16 and self.likely(0.1, "clitic-in-question"):
            return self._question()
        return self.statement(Setting(self.weighted(TENSES)), first=True)

    # Statements

    def statement(self, setting: Setting, first: bool = False) -> Statement:
        """Draw a clause, or several with conjunctions where there is room; `first` begins the sentence."""
        if self.room >= 10 and self.chance(min(0.9, (self.room - 8) / 24)):
            return self._joined(setting, first)
        return self.clause(setting, first)

    def _joined(self, setting: Setting, first: bool) -> Joined:
        conjunction = self._conjunction(setting)
        future_reason = setting.tense == "future" and conjunction in ("because", "if")
        other = replace(setting, tense="present") if future_reason else setting
        self.room -= 1
        words = int(self.room * (0.3 + 0.4 * self.rng.random()))
        if first and conjunction in ("when", "if") and self.chance(0.5):
            self.room -= 1
            subordinate = self.within(words, lambda: self.clause(other))
            return Joined(subordinate, conjunction, self.statement(setting), in_front=True)
        left = self.within(words, lambda: self.statement(setting, first))
        reason = self._reason(left, other) if conjunction == "because" and self.chance(0.5) else None
        return Joined(left, conjunction, reason or self.statement(other))

    def _conjunction(self, setting: Setting) -> str:
        """Draw a conjunction; each but "and" comes once in a sentence."""
        unfit = {"when" if setting.tense == "future" else "if"}
        if setting.reported:
            unfit |= {"because", "when", "if"}
        weights = {name: weight for name, weight in self.conjunctions.items() if name not in unfit}
        conjunction = self.weighted(weights)
        if conjunction != "and":
            del self.conjunctions[conjunction]
        return conjunction

    def _reason(self, cause: Statement, setting: Setting) -> Clause | None:
        """Draw "(he bought the car because) it was old": the pronoun stands for the object before it."""
        last = cause.predicates[-1] if isinstance(cause, Clause) else Predicate()
        thing = last.object
        if last.negation or not isinstance(thing, NounPhrase) or thing.plural:
            return None
        used = {adjective.kind for adjective in thing.adjectives}
        adjective = self.adjective(thing.noun.classes, [kind for kind in _REASONS if kind not in used])
        if adjective is None or not thing.noun.classes.isdisjoint(("person", "animal")):
            return None
        degree = "" if adjective.kind == "color" else self.pick(["", "very", "too"])
        self.room -= 3 + bool(degree)
        quality = Predicate(tense=setting.tense, complement=Quality((adjective,), degree))
        return Clause(subject=anaphor(thing), predicates=(quality,))

    # Clauses

    def clause(self, setting: Setting, first: bool = False) -> Clause:
        """Draw a subject and one or two predicates."""
        if self.room >= 4 and setting.inside != "question" and self.chance(0.04):
            return self._existence(setting)
        kind = self.kind(None, setting)
        verb = self.verb(kind, None, setting)
        opening = None
        if first and not verb.state and self.room >= 5 and self.chance(0.08):
            opening = self.adverb("time", setting.tense)
            setting = replace(setting, timed=True)
        classes = self.pick(_SUBJECTS[kind]) if kind in _SUBJECTS else verb.subjects
        share = 0.7 if self.likely(0, *LED_TO_BY_RELATIVES) else 0.15 + 0.35 * self.rng.random()
        subject, actor = self.within(max(2, int(self.room * share)), lambda: self._subject(classes, setting))
        return Clause(subject=subject, predicates=self._predicates(kind, verb, actor, setting), opening=opening)

    def _subject(self, classes: Collection[str], setting: Setting) -> tuple[Nominal, Actor]:
        human = "person" in classes
        if human and self.chance(0.4):
            pronoun = self._pronoun(setting)
            return pronoun, Actor(PEOPLE, pronoun.features)
        if human and self.chance(0.13):
            name = self.name()
            return name, Actor(PEOPLE, name.features)
        if human and self.room >= 5 and self.chance(0.15):
            people = self.several(self.person)
            return people, Actor(PEOPLE, people.features, plain=False)
        noun = self.noun(classes)
        outer, self.on_subject = self.on_subject, True
        phrase = self.noun_phrase(noun, SUBJECT)
        self.on_subject = outer
        plain = not phrase.numeral and phrase.determiner not in ("a", "every", "several", "many", "all")
        return phrase, Actor(noun.classes, phrase.features, plain, phrase.adjectives)

    def _pronoun(self, setting: Setting) -> Pronoun:
        """Draw a subject pronoun; the corpus has "will" with third persons only, others are "going to"."""
        self.room -= 1
        names = ["he", "she"] + ["they"] * (not self.plurals)
        if setting.tense != "future":
            names += ["i", "we", "you"] * 2
        name = self.pick(names)
        return next(p for p in PRONOUNS if p.english == name)

    def _predicates(self, kind: str, verb: Verb, actor: Actor, setting: Setting) -> tuple[Predicate, ...]:
        """Draw one predicate, or two that share the subject: she takes the letter and reads it."""
        person_or_animal = not actor.classes.isdisjoint(("person", "animal"))
        single = setting.inside == "question" or kind in ("saying", "age") or not person_or_animal or self.room < 5
        if single or not self.chance(0.28):
            return (self.predicate(kind, verb, actor, setting),)
        light = replace(setting, light=True)
        first = self.within(self.room // 2, lambda: self.predicate(kind, verb, actor, light))
        self.room -= 1
        return first, self._second(first, actor, setting)

    def _second(self, first: Predicate, actor: Actor, setting: Setting) -> Predicate:
        thing = first.object
        if isinstance(thing, NounPhrase) and not first.negation and self.clitics(setting) and self.chance(0.8):
            verbs = [verb for verb in self._handling(thing.noun, actor, setting) if verb.english != first.verb.english]
            if verbs and not setting.reported:
                self.room -= 2
                return self.timed(Predicate(verb=self.pick(verbs), tense=setting.tense, object=anaphor(thing)), setting)
        described = first.complement.adjectives if isinstance(first.complement, Quality) else ()
        actor = replace(actor, described=actor.described + described)
        return self._any(actor, setting, lambda verb: verb.state or verb != first.verb)

    def _handling(self, noun: Noun, actor: Actor, setting: Setting) -> list[Verb]:
        """What the subject may do with the thing: verbs with a direct object."""
        return [
            verb
            for verb in TRANSITIVE.values()
            if not verb.governs
            and not verb.state
            and not verb.objects.isdisjoint(noun.classes)
            and not verb.subjects.isdisjoint(actor.classes)
            and tells_tense(verb, actor, setting.tense)
        ]

    def _existence(self, setting: Setting) -> Clause:
        """Draw "there are some birds in the garden"."""
        self.room -= 2
        negation = self.pick(["not", "never", "no longer"]) if self.chance(0.25) else ""
        noun = self.noun(("animal", "thing", "building", "food", "drink"))
        what = self.noun_phrase(noun, NOT_EXISTING if negation else EXISTING, heavy=False)
        where = (self.location(noun.classes),) if self.room >= 3 else ()
        predicate = Predicate(verb=FEEL, tense=setting.tense, negation=negation, object=what, adjuncts=where)
        return Clause(subject=There(what.plural), predicates=(predicate,))

    # Questions

    def _question(self) -> Question:
        """Draw a question without negation: does he work ?, what did she buy ?, who sings ?"""
        words = {"": 5, "who": 1.5, "what": 1.5, "where": 1.2, "why": 1, "when": 0.7}
        word = "" if self.licensed else self.weighted(words)
        setting = Setting(self.weighted(TENSES), "question", timed=word == "when")
        self.room -= 1
        if word == "what":
            verb = self.verb(
                "transitive", None, setting, lambda verb: not verb.governs and "person" not in verb.objects
            )
            subject, actor = self.within(4, lambda: self._subject(("person",), setting))
            return Question(Clause(subject=subject, predicates=(self._with_gap(verb, actor, setting),)), word)
        if word == "where":
            return Question(self._located(setting), word)
        if word == "who":
            someone = Actor(PEOPLE, WHO.features)
            return Question(Clause(subject=WHO, predicates=(self._any(someone, setting),)))
        return Question(self.clause(setting), word)

    def _located(self, setting: Setting) -> Clause:
        """Draw "(where) he works", with nothing in it that says where."""
        verb = self.pick(
            [INTRANSITIVE[name] for name in _WORKING] + [TRANSITIVE[name] for name in _MEETING] + [MOTION["live"]] * 3
        )
        subject, actor = self.within(3, lambda: self._subject(verb.subjects, setting))
        p = self.modified(Predicate(verb=verb, tense=setting.tense), "intransitive", actor, setting)
        if verb.english in _MEETING:
            p = replace(p, object=self.object(verb, actor, negated=bool(p.negation)))
        return Clause(subject=subject, predicates=(self.timed(p, setting),))

    def _any(self, actor: Actor, setting: Setting, suits: Callable[[Verb], bool] = bool) -> Predicate:
        kind = self.kind(actor, setting, suits)
        return self.predicate(kind, self.verb(kind, actor, setting, suits), actor, setting)

    # Relative clauses

    def relative(self, antecedent: NounPhrase) -> Relative | None:
        """Draw a relative clause, at most one within another; None where none suits."""
        weights = self._roles(antecedent.noun)
        if self.depth == 2 or not any(weights.values()):
            return None
        setting = Setting(self.weighted({"present": 4, "past": 6, "future": 0.7}), "relative", timed=True)
        self.depth += 1
        self.room -= 1
        drawn = getattr(self, f"_{self.weighted(weights)}_relative")(antecedent, setting)
        self.depth -= 1
        return drawn

    def _roles(self, noun: Noun) -> dict[str, float]:
        """How often each part of the relative clause is the one that is missing."""
        if self.licensed in ("clitic-in-relative", "that-clause-in-relative"):
            return {"subject": float("person" in noun.classes)}
        if self.licensed == "object-relative-on-subject":
            return {"object": 1.0}
        place, owner = 4.0 * ("place" in noun.classes), 4.0 * ("adult" in noun.classes)
        return {"subject": 5.0, "object": 6.0 * (not self.on_subject), "place": place, "owner": owner}

    def _subject_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative:
        actor = Actor(antecedent.noun.classes, antecedent.features, described=antecedent.adjectives)
        kind = self.kind(actor, setting)
        of_people = self.licensed == "clitic-in-relative" and kind == "transitive"
        verb = self.verb(kind, actor, setting, lambda verb: not of_people or "person" in verb.objects)
        return Relative("subject", Clause(subject=Gap(), predicates=(self.predicate(kind, verb, actor, setting),)))

    def _object_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative | None:
        subject, actor = self.within(3, lambda: self._subject(("person",), setting))
        verbs = [verb for verb in TRANSITIVE.values() if not verb.governs and tells_tense(verb, actor, setting.tense)]
        verbs = [verb for verb in verbs if not verb.objects.isdisjoint(antecedent.noun.classes)]
        if not verbs:
            return None
        predicate = self._with_gap(self.pick(verbs), actor, setting)
        return Relative("object", Clause(subject=subject, predicates=(predicate,)))

    def _with_gap(self, verb: Verb, actor: Actor, setting: Setting) -> Predicate:
        """Draw "(that) he wrote ␣" or "(that) he wants to write ␣"."""
        self.room -= 1
        if not verb.state and self.room >= 2 and self.chance(0.15):
            self.room -= 2
            infinitive = Predicate(verb=verb, tense="infinitive", object=Gap())
            return Predicate(verb=self.verb("control", actor, setting), tense=setting.tense, complement=infinitive)
        p = self.modified(Predicate(verb=verb, tense=setting.tense, object=Gap()), "transitive", actor, setting)
        return self.timed(p, setting)

    def _place_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative:
        return Relative("place", self._located(setting))

    def _owner_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative:
        noun = self.noun(("animal", "garment", "vehicle", "home"))
        self.room -= 2
        owned = NounPhrase(noun=noun, determiner="whose", plural=self.chance(0.3))
        predicate = self._any(Actor(noun.classes, owned.features), setting)
        return Relative("owner", Clause(subject=owned, predicates=(predicate,)))
