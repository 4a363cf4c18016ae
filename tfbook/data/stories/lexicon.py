"""The words of the story world: who and what there is, what a thing is for, and who can do what.

To extend the world, add a word to a table. Every word is one token, and no name may also be a common word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple
from zlib import crc32

BOYS = (
    "Tim Ben Max Leo Sam Tom Jack Finn Omar Hugo Paul Oscar Felix Henry Ravi Anton Jonas Oliver Theo Noah Milo Bruno "
    "Kofi Emil Karl Luke Diego Nick Ralph Victor"
).split()
GIRLS = (
    "Lily Anna Mia Rosa Lucy Sue Kate Emma Nina Clara Aisha Ida Lena Maya Nora Mei Ruby Sara Tina Wilma Zoe Alice "
    "Bella Priya Fay Greta Hanna Ivy Jane Molly"
).split()
NAMES = tuple(name for pair in zip(BOYS, GIRLS, strict=True) for name in pair)  # common ones first
MALE = frozenset(BOYS)

SPECIES = (
    "fox rabbit mouse bear owl frog duck cat dog hedgehog squirrel mole turtle crow goat pig horse otter bat swan "
    "monkey elephant lamb goose beaver badger deer wolf dragon giant robot elf"
).split()
KIND = "kind gentle friendly brave cheerful clever young little helpful shy curious quiet wise merry small".split()
MEAN = "greedy proud selfish grumpy rude mean".split()

PLACES = (  # common ones first
    "forest park hill river garden lake village farm beach market meadow castle mill pond school bridge barn island "
    "valley cave town mountain harbor sea station orchard field jungle desert well fair gate"
).split()
_PLACES_BY_PREPOSITION = {
    "in": "forest garden meadow village park barn castle field orchard valley cave desert jungle town",
    "at": "lake market mill school station harbor beach fair",
    "by": "river bridge pond well sea gate",
    "on": "hill farm island mountain",
}
PREPOSITIONS = {place: word for word, places in _PLACES_BY_PREPOSITION.items() for place in places.split()}

NOUNS = (  # common ones first
    "kite ball cake drum hat boat apple bell book lamp doll bike coin scarf pie flute crown map whistle pear shell "
    "basket letter cookie horn raft ring fiddle candle pillow marble necklace bun key top lantern feather mask sled "
    "cherry mirror trumpet carrot cap button umbrella scooter plum clock pebble coat peach bucket ribbon wheel muffin "
    "pancake"
).split()
_NOUNS_BY_USE = {
    "fly": "kite",
    "kick": "ball",
    "play": "drum flute fiddle trumpet",
    "ring": "bell",
    "read": "book map letter",
    "wear": "hat scarf crown mask cap necklace coat ring",
    "light": "lamp lantern candle",
    "ride": "bike sled scooter",
    "sail": "boat raft",
    "hug": "doll pillow",
    "blow": "whistle horn",
    "carry": "bucket basket umbrella",
    "admire": "shell feather coin marble button ribbon pebble key mirror clock",
    "spin": "top wheel",
    "eat": "cake pie apple pear cookie bun carrot cherry pancake plum muffin peach",
}
USES = {noun: use for use, nouns in _NOUNS_BY_USE.items() for noun in nouns.split()}
FOOD = frozenset(noun for noun, use in USES.items() if use == "eat")
FRAGILE = frozenset(
    "kite drum boat bell lamp doll bike flute whistle shell basket raft fiddle candle necklace lantern mask sled "
    "mirror trumpet umbrella scooter clock wheel".split()
)
LOOKS = "red blue green yellow white black golden silver purple orange tiny big pretty old new magic lovely".split()
TASTES = "sweet big small fresh warm tasty lovely golden".split()
ADJECTIVES = frozenset((*KIND, *MEAN, *LOOKS, *TASTES))

SPOTS = (
    "under a leaf,behind a tree,under a bench,in the grass,beside a stone,between two rocks,behind a bush,"
    "in an old boot,under a log,in a hollow tree,behind a fence,in a nest"
).split(",")


# What keeps a thing out of reach: where one sees it, why one fails and what a helper does (as a tale, as a play).
OBSTACLES = {
    "water": {
        "is": "on the other side of the wide water",
        "try": "the water was too deep",
        "tries": "the water is too deep",
        "do": "swam across and brought it back",
        "does": "swims across and brings it back",
    },
    "tree": {
        "is": "at the very top of a tall tree",
        "try": "the branches were too high",
        "tries": "the branches are too high",
        "do": "climbed up and brought it down",
        "does": "climbs up and brings it down",
    },
    "rock": {
        "is": "under a heavy rock",
        "try": "the rock did not move",
        "tries": "the rock does not move",
        "do": "pushed the rock away",
        "does": "pushes the rock away",
    },
    "hole": {
        "is": "deep down in a narrow hole",
        "try": "the hole was too small",
        "tries": "the hole is too small",
        "do": "crept into the hole and pulled it out",
        "does": "creeps into the hole and pulls it out",
    },
    "dark": {
        "is": "far inside a dark tunnel",
        "try": "it was too dark to see",
        "tries": "it is too dark to see",
        "do": "walked through the dark and came back with it",
        "does": "walks through the dark and comes back with it",
    },
}
ABLE = {  # who overcomes it
    "water": "frog duck otter turtle swan beaver".split(),
    "tree": "squirrel monkey cat bat owl crow".split(),
    "rock": "bear horse elephant giant dragon robot".split(),
    "hole": "mouse mole rabbit hedgehog".split(),
    "dark": "owl bat wolf badger fox".split(),
}

PRONOUNS = {"he": ("she", "he"), "him": ("her", "him"), "his": ("her", "his")}  # by whether a name is a boy's
SPEECH = frozenset("said cried asked shouted thought laughed".split())


class Person(NamedTuple):
    """A character: {name} is {a trait species}."""

    name: str
    species: str
    trait: str

    @property
    def key(self) -> str:
        """Its identifier in facts."""
        return self.name

    @property
    def rare(self) -> bool:
        """True if no training story combines this name and species."""
        return _rare(self.name, self.species)


class Thing(NamedTuple):
    """An object: a {look noun}. A story has at most one of each noun."""

    noun: str
    look: str

    @property
    def key(self) -> str:
        """Its identifier in facts."""
        return self.noun

    @property
    def rare(self) -> bool:
        """True if no training story combines this look and noun."""
        return _rare(self.look, self.noun)


Value = Person | Thing | str  # what a role of an event stands for; places, spots and obstacles are strings


def key(value: Value) -> str:
    """The identifier of a value in facts."""
    return value if isinstance(value, str) else value.key


@cache
def _rare(first: str, second: str) -> bool:
    """True for one combination in eight, chosen by a hash and so always the same."""
    return crc32(f"{first} {second}".encode()) % 8 == 0


def article(word: str) -> str:
    """ "a" or "an"."""
    return "an" if word[0] in "aeiou" else "a"


# ---- tokens and text -----------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"[A-Za-z]+|[“”.,:!?]")
_ENDS = frozenset(".!?")
_CAPITALIZED = frozenset((*NAMES, "I"))


def words_of(text: str) -> list[str]:
    """Words and punctuation marks of a text, in lower case but for names and "I": `written` gives the text back."""
    return [word if word in _CAPITALIZED else word.lower() for word in _TOKEN.findall(text)]


def written(words: Iterable[str]) -> str:
    """Tokens as a person would write them: capitals at the beginning of sentences, spaces where they belong."""
    text, starts, before = [], True, ""
    for word in words:
        glued = word in ".,:!?”" or before in ("“", "")
        continues = before == "”" and word in SPEECH
        text.append(("" if glued else " ") + (word[0].upper() + word[1:] if starts and not continues else word))
        starts = word in _ENDS or word in "“:" or (starts and word == "”")
        before = word
    return "".join(text)


def sentences(words: Iterable[str]) -> list[list[str]]:
    """The sentences of a story; what is said aloud and who says it belong together."""
    found: list[list[str]] = [[]]
    for word in words:
        last = found[-1]
        quoted = last[-1:] == ["”"] and word not in SPEECH
        ended = not _ENDS.isdisjoint(last[-2:-1] if quoted else last[-1:])
        if ended and word != "”":
            found.append([])
        found[-1].append(word)
    return found if found[-1] else []
