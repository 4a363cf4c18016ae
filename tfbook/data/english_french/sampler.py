"""Random sentences that make sense: what the grammar can say, in about as many words as are asked for."""

from dataclasses import replace

from .lexicon import FEEL, INTRANSITIVE, MOTION, PRONOUNS, TRANSITIVE, WHO, Noun, Pronoun, Verb
from .sample_nominals import EXISTING, NEGATED_EXISTING, PEOPLE, SUBJECT, Actor
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
    "quality": (PEOPLE, PEOPLE, ("animal",), ("garment", "thing"), ("vehicle", "furniture"), ("text", "tale"), ("place",), ("food", "drink")),
    "comparison": (PEOPLE, ("animal",), ("text",), ("vehicle",), ("garment",), ("building",)),
    "sensation": (PEOPLE, PEOPLE, ("animal",)),
    "age": (("boy", "girl", "child", "dog", "cat", "horse"),),
    "location": (PEOPLE, ("animal",), ("thing", "text"), ("thing", "text"), ("vehicle",)),
}
_WORKING = ("sleep", "work", "dance", "play", "sing", "hide")
_MEETING = ("meet", "buy", "find", "lose", "see", "wait for")
_QUALITIES = ("opinion", "size", "state", "age", "colour")


def anaphor(phrase: NounPhrase) -> Pronoun:
    """Return him, her, it or them for a noun phrase, in its French gender."""
    gender, plural, _ = phrase.features
    singular = {"m": "he", "f": "she"}[gender] if "person" in phrase.noun.classes else "it"
    name = singular if not plural else {"m": "they", "f": "them"}[gender]
    return next(p for p in PRONOUNS if p.english == name and p.features.gender == gender)


class Sampler(PredicateSampler):
    """Draws sentences."""

    def sentence(self, room: int) -> Statement | Question:
        """Draw a sentence of roughly `room` words, the mark included."""
        self.room, self.plurals, self.on_subject, self.depth = room - 1, False, False, 0
        self.conjunctions = dict(_CONJUNCTIONS)
        if room <= 16 and self.likely(0.1, "clitic-in-question"):
            return self.question()
        return self.statement(Setting(self.weighted(TENSES)), first=True)

    # Statements

    def statement(self, setting: Setting, first: bool = False) -> Statement:
        """Draw a clause, or several with conjunctions where there is room."""
        if self.room >= 10 and self.chance(min(0.9, (self.room - 8) / 24)):
            return self._joined(setting, first)
        return self.clause(setting, first)

    def _joined(self, setting: Setting, first: bool) -> Joined:
        conjunction = self._conjunction(setting)
        other = setting
        if setting.tense == "future" and conjunction in ("because", "if"):
            other = replace(setting, tense="present")
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
        wrong = "when" if setting.tense == "future" else "if"
        weights = {name: weight for name, weight in self.conjunctions.items() if name != wrong}
        if setting.reported:
            weights = {name: weight for name, weight in weights.items() if name in ("and", "but")}
        conjunction = self.weighted(weights)
        if conjunction != "and":
            del self.conjunctions[conjunction]
        return conjunction

    def _reason(self, cause: Statement, setting: Setting) -> Clause | None:
        """Draw "(he bought the car because) it was new": the pronoun stands for the object before it."""
        last = cause.predicates[-1] if isinstance(cause, Clause) else Predicate()
        thing = last.object
        if last.negation or not isinstance(thing, NounPhrase) or thing.plural or not thing.noun.classes.isdisjoint(("person", "animal")):
            return None
        used = {adjective.kind for adjective in thing.adjectives}
        adjective = self.adjective(thing.noun.classes, [kind for kind in _QUALITIES if kind not in used])
        if adjective is None:
            return None
        degree = "" if adjective.kind == "colour" else self.pick(["", "very", "too"])
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
        share = 0.7 if self.licensed == "object-relative-on-subject" else 0.15 + 0.35 * self.rng.random()
        subject, actor = self.within(max(2, int(self.room * share)), lambda: self.subject(classes, setting))
        return Clause(subject=subject, predicates=self._predicates(kind, verb, actor, setting), opening=opening)

    def subject(self, classes: frozenset[str], setting: Setting) -> tuple[Nominal, Actor]:
        """Draw a subject and say what it is."""
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
        """Draw a pronoun: "will" comes with a third person, the first and the second are "going to"."""
        self.room -= 1
        names = ["he", "she"] + ["they"] * (not self.plurals)
        if setting.tense != "future":
            names += ["i", "we", "you"] * 2
        name = self.pick(names)
        return next(p for p in PRONOUNS if p.english == name)

    def _predicates(self, kind: str, verb: Verb, actor: Actor, setting: Setting) -> tuple[Predicate, ...]:
        """Draw one predicate, or two that share the subject: she takes the letter and reads it."""
        if setting.inside == "question" or kind in ("saying", "age") or self.room < 5 or not self.chance(0.28):
            return (self.predicate(kind, verb, actor, setting),)
        light = replace(setting, light=True)
        first = self.within(int(self.room * 0.5), lambda: self.predicate(kind, verb, actor, light))
        self.room -= 1
        return first, self._second(first, actor, setting)

    def _second(self, first: Predicate, actor: Actor, setting: Setting) -> Predicate:
        thing = first.object
        if isinstance(thing, NounPhrase) and not first.negation and not setting.reported and self.clitics(setting) and self.chance(0.7):
            pronoun = anaphor(thing)
            verbs = [verb for verb in self._verbs_for(thing.noun, actor, setting) if verb.english != first.verb.english]
            if verbs:
                self.room -= 2
                return self.timed(Predicate(verb=self.pick(verbs), tense=setting.tense, object=pronoun), setting)
        kind = self.kind(actor, setting)
        return self.predicate(kind, self.verb(kind, actor, setting), actor, setting)

    def _verbs_for(self, noun: Noun, actor: Actor, setting: Setting) -> list[Verb]:
        """Return what the subject may do with the thing: verbs with a direct object that are no states."""
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
        negation = self.pick(["not", "never", "no longer"]) if setting.inside != "relative" and self.chance(0.25) else ""
        noun = self.noun(("animal", "thing", "building", "food", "drink"))
        what = self.noun_phrase(noun, NEGATED_EXISTING if negation else EXISTING, heavy=False)
        where = (self.location(small="thing" in noun.classes),) if self.room >= 3 else ()
        predicate = Predicate(verb=FEEL, tense=setting.tense, negation=negation, object=what, adjuncts=where)
        return Clause(subject=There(what.plural), predicates=(predicate,))

    # Questions

    def question(self) -> Question:
        """Draw a question without negation: does he work ?, what did she buy ?, who sings ?"""
        word = "" if self.licensed else self.weighted({"": 5, "who": 1.5, "what": 1.5, "where": 1.2, "why": 1, "when": 0.7})
        setting = Setting(self.weighted(TENSES), "question")
        self.room -= 1
        if word == "what":
            verb = self.verb("transitive", None, setting, lambda verb: verb.objects.isdisjoint(("person", "sound")))
            subject, actor = self.within(4, lambda: self.subject(("person",), setting))
            return Question(Clause(subject=subject, predicates=(self._with_gap(verb, actor, setting),)), word)
        if word == "where":
            return Question(self._located(setting), word)
        if word == "who":
            someone = Actor(PEOPLE, WHO.features)
            kind = self.kind(someone, setting)
            predicate = self.predicate(kind, self.verb(kind, someone, setting), someone, setting)
            return Question(Clause(subject=WHO, predicates=(predicate,)))
        return Question(self.clause(replace(setting, timed=word == "when")), word)

    def _located(self, setting: Setting) -> Clause:
        """Draw "(where) he works", with nothing in it that says where."""
        verb = self.pick([INTRANSITIVE[name] for name in _WORKING] + [TRANSITIVE[name] for name in _MEETING] + [MOTION["live"]] * 3)
        subject, actor = self.within(3, lambda: self.subject(verb.subjects, setting))
        p = self.modified(Predicate(verb=verb, tense=setting.tense), "motion", actor, setting)
        if verb.english in _MEETING:
            p = replace(p, object=self.object(verb, actor, negated=bool(p.negation)))
        return Clause(subject=subject, predicates=(self.timed(p, setting),))

    # Relative clauses

    def relative(self, antecedent: NounPhrase) -> Relative | None:
        """Draw a relative clause, at most one within another, and none with an object gap on a subject."""
        if self.depth == 2:
            return None
        classes = antecedent.noun.classes
        setting = Setting(self.weighted({"present": 5, "past": 5, "future": 1}), "relative", timed=True)
        weights = {"subject": 5.0, "place": 4.0 * ("place" in classes), "owner": 4.0 * ("adult" in classes)}
        if self.licensed in ("clitic-in-relative", "that-clause-in-relative"):
            weights = {"subject": 5.0 * ("person" in classes)}
        elif self.licensed == "object-relative-on-subject":
            weights = {"object": 5.0}
        elif not self.on_subject:
            weights["object"] = 6.0
        if not any(weights.values()):
            return None
        self.depth += 1
        self.room -= 1
        drawn = getattr(self, f"_{self.weighted(weights)}_relative")(antecedent, setting)
        self.depth -= 1
        return drawn

    def _subject_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative:
        actor = Actor(antecedent.noun.classes, antecedent.features, described=antecedent.adjectives)
        kind = self.kind(actor, setting)
        wants_person = self.licensed == "clitic-in-relative" and kind == "transitive"
        verb = self.verb(kind, actor, setting, lambda verb: not wants_person or "person" in verb.objects)
        return Relative("subject", Clause(subject=Gap(), predicates=(self.predicate(kind, verb, actor, setting),)))

    def _object_relative(self, antecedent: NounPhrase, setting: Setting) -> Relative | None:
        subject, actor = self.within(3, lambda: self.subject(("person",), setting))
        classes = antecedent.noun.classes
        verbs = [verb for verb in TRANSITIVE.values() if not verb.governs and not verb.objects.isdisjoint(classes) and tells_tense(verb, actor, setting.tense)]
        if not verbs:
            return None
        return Relative("object", Clause(subject=subject, predicates=(self._with_gap(self.pick(verbs), actor, setting),)))

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
        actor = Actor(noun.classes, owned.features)
        kind = self.kind(actor, setting)
        return Relative("owner", Clause(subject=owned, predicates=(self.predicate(kind, self.verb(kind, actor, setting), actor, setting),)))
