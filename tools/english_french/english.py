"""English word forms: plurals, verbs, and the choice between "a" and "an"."""

import re
from collections.abc import Sequence
from itertools import pairwise

from .tokens import Features, Token

_BE = {"present": ("am", "is", "are"), "past": ("was", "was", "were")}
_THIRD_PERSON = {"have": "has", "can": "can", "must": "must"}
_SOUNDS_LIKE_CONSONANT = re.compile(r"uni|one|eu|use")
_SOUNDS_LIKE_VOWEL = re.compile(r"[aeiou]|honest|hour")


def plural(noun: str) -> str:
    """The regular plural: box -> boxes, story -> stories, key -> keys."""
    return _with_s(noun)


def past(verb: str) -> str:
    """The regular past: love -> loved, carry -> carried, wait -> waited."""
    if verb.endswith("e"):
        return verb + "d"
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ied"
    return verb + "ed"


def present(verb: str, subject: Features) -> str:
    """The present: (eat, third person singular) -> eats."""
    if verb == "be":
        return _form_of_be("present", subject)
    if subject.plural or subject.person != 3:
        return verb
    return _THIRD_PERSON.get(verb) or _with_s(verb)


def past_of_be(subject: Features) -> str:
    """The past of be: was or were."""
    return _form_of_be("past", subject)


def join(tokens: Sequence[Token]) -> list[Token]:
    """Turn "a" into "an" before a vowel sound: an apple, an honest man, a university."""
    joined = list(tokens)
    for index, (token, following) in enumerate(pairwise(tokens)):
        if token.text == "a" and _starts_with_vowel_sound(following.text):
            joined[index] = token.spelled("an")
    return joined


def _with_s(word: str) -> str:
    if re.search(r"(s|x|z|ch|sh|[^aeiou]o)$", word):
        return word + "es"
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + "s"


def _form_of_be(tense: str, subject: Features) -> str:
    first, third, plural_form = _BE[tense]
    if subject.plural:
        return plural_form
    return first if subject.person == 1 else third


def _starts_with_vowel_sound(word: str) -> bool:
    return bool(_SOUNDS_LIKE_VOWEL.match(word)) and not _SOUNDS_LIKE_CONSONANT.match(word)
