"""The generated corpus: what ships, its splits, and its French, English and links against rules written out here.

The rules scan the shipped text. They know the lexicon's nouns and their genders; paradigms, contractions and elisions
are written out again, so that a mistake in the generator cannot hide behind itself.
"""

import gzip
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from english_french_gold import GOLD, LINKS

from tfbook.data.english_french import english, french, translate
from tfbook.data.english_french.lexicon import ADJECTIVES, NAMES, NOUNS
from tfbook.data.english_french.syntax import Question, Statement
from tfbook.data.english_french.tokens import Features

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "data" / "english_french.tsv.gz"
HELD_OUT = (
    "object-relative-on-subject",
    "negation-in-relative",
    "clitic-in-relative",
    "clitic-in-question",
    "that-clause-in-relative",
)


class Row(NamedTuple):
    """A line of the shipped file, its sentences split into tokens and its links read."""

    split: str
    template: str
    english: list[str]
    french: list[str]
    sure: set[tuple[int, int]]
    possible: set[tuple[int, int]]

    def __str__(self) -> str:
        return f"{' '.join(self.english)} = {' '.join(self.french)}"


def _read() -> list[Row]:
    rows = []
    for line in gzip.decompress(SHIPPED.read_bytes()).decode().splitlines()[1:]:
        split, template, source, target, alignment = line.split("\t")
        links: dict[str, set[tuple[int, int]]] = {"-": set(), "?": set()}
        for link in alignment.split(" "):
            i, kind, j = re.fullmatch(r"(\d+)([-?])(\d+)", link).groups()
            links[kind].add((int(i), int(j)))
        rows.append(Row(split, template, source.split(" "), target.split(" "), links["-"], links["?"]))
    return rows


ROWS = _read()
SPLITS = {split: [row for row in ROWS if row.split == split] for split in ("train", "valid", "test", "long", "template")}

# French as a grammar book has it
VOWELS = "aeiouyàâéèêîôûœh"
ASPIRATED = {"hibou", "hiboux", "hérisson", "hérissons", "héros", "hache", "haches", "huit", "onze"}
ELIDED = {
    "le": "l'", "la": "l'", "de": "d'", "ne": "n'", "je": "j'", "me": "m'", "se": "s'", "que": "qu'",
    "ce": "cet", "ma": "mon", "sa": "son", "beau": "bel", "vieux": "vieil", "nouveau": "nouvel",
}  # fmt: skip
PARADIGMS = """
beau belle beaux belles bel
joli jolie jolis jolies
bon bonne bons bonnes
mauvais mauvaise mauvais mauvaises
grand grande grands grandes
petit petite petits petites
long longue longs longues
vieux vieille vieux vieilles vieil
jeune jeune jeunes jeunes
nouveau nouvelle nouveaux nouvelles nouvel
rouge rouge rouges rouges
vert verte verts vertes
bleu bleue bleus bleues
blanc blanche blancs blanches
noir noire noirs noires
gris grise gris grises
fatigué fatiguée fatigués fatiguées
heureux heureuse heureux heureuses
triste triste tristes tristes
riche riche riches riches
malade malade malades malades
prêt prête prêts prêtes
fort forte forts fortes
intelligent intelligente intelligents intelligentes
honnête honnête honnêtes honnêtes
courageux courageuse courageux courageuses
curieux curieuse curieux curieuses
célèbre célèbre célèbres célèbres
dangereux dangereuse dangereux dangereuses
intéressant intéressante intéressants intéressantes
cher chère chers chères
facile facile faciles faciles
lourd lourde lourds lourdes
propre propre propres propres
sale sale sales sales
vide vide vides vides
froid froide froids froides
chaud chaude chauds chaudes
italien italienne italiens italiennes
anglais anglaise anglais anglaises
"""
BEFORE_NOUN = {"beau", "joli", "bon", "mauvais", "grand", "petit", "long", "vieux", "jeune", "nouveau"}
AGREEING = {
    "le": "ms", "un": "ms", "du": "ms", "au": "ms", "ce": "ms", "cet": "ms",
    "la": "fs", "une": "fs", "cette": "fs", "ma": "fs", "sa": "fs", "toutes": "fp", "tous": "mp",
    "les": "mp fp", "des": "mp fp", "aux": "mp fp", "ces": "mp fp", "mes": "mp fp", "ses": "mp fp", "nos": "mp fp",
    "vos": "mp fp", "leurs": "mp fp", "plusieurs": "mp fp",
    "mon": "ms fs", "son": "ms fs", "notre": "ms fs", "votre": "ms fs", "chaque": "ms fs",
}  # fmt: skip
