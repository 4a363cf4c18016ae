"""French word forms: agreement, conjugation, and what happens where words meet (elision, contraction, bel and mon)."""

import re
from collections.abc import Sequence
from functools import cache

from .tokens import Features, Token

WITH_ETRE = frozenset({"aller", "arriver", "entrer", "partir", "rester", "sortir", "tomber", "venir"})
ASPIRATED = "*"  # the mark of a first letter that behaves like a consonant: *hibou, *onze

_ELIDED = {
    "le": "l'", "la": "l'", "de": "d'", "ne": "n'", "je": "j'", "me": "m'", "se": "s'", "que": "qu'",
    "ce": "cet", "ma": "mon", "sa": "son",
}  # fmt: skip
_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}

# Present (je, il, nous, vous, ils), stem of the future, past participle. Regular are -er, -ir (finir) and -re (vendre).
_IRREGULAR = """
être        suis est sommes êtes sont                           ser      été
avoir       ai a avons avez ont                                 aur      eu
aller       vais va allons allez vont                           ir       allé
acheter     achète achète achetons achetez achètent             achèter  acheté
lever       lève lève levons levez lèvent                       lèver    levé
essayer     essaie essaie essayons essayez essaient             essaier  essayé
envoyer     envoie envoie envoyons envoyez envoient             enverr   envoyé
boire       bois boit buvons buvez boivent                      boir     bu
connaître   connais connaît connaissons connaissez connaissent  connaîtr connu
croire      crois croit croyons croyez croient                  croir    cru
devoir      dois doit devons devez doivent                      devr     dû
dire        dis dit disons dites disent                         dir      dit
dormir      dors dort dormons dormez dorment                    dormir   dormi
écrire      écris écrit écrivons écrivez écrivent               écrir    écrit
lire        lis lit lisons lisez lisent                         lir      lu
ouvrir      ouvre ouvre ouvrons ouvrez ouvrent                  ouvrir   ouvert
partir      pars part partons partez partent                    partir   parti
pouvoir     peux peut pouvons pouvez peuvent                    pourr    pu
prendre     prends prend prenons prenez prennent                prendr   pris
rire        ris rit rions riez rient                            rir      ri
savoir      sais sait savons savez savent                       saur     su
sortir      sors sort sortons sortez sortent                    sortir   sorti
suivre      suis suit suivons suivez suivent                    suivr    suivi
venir       viens vient venons venez viennent                   viendr   venu
voir        vois voit voyons voyez voient                       verr     vu
vouloir     veux veut voulons voulez veulent                    voudr    voulu
"""
_FUTURE = ("ai", "a", "ons", "ez", "ont")
_IMPERFECT = ("ais", "ait", "ions", "iez", "aient")


def plural(word: str) -> str:
    """The regular plural: chat -> chats, cheval -> chevaux, gâteau -> gâteaux, bras -> bras."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + ("x" if word.endswith(("eau", "eu")) and word != "bleu" else "s")


def feminine(adjective: str) -> str:
    """The regular feminine: petit -> petite, heureux -> heureuse, bon -> bonne, rouge -> rouge."""
    if adjective.endswith("e"):
        return adjective
    if adjective.endswith("eux"):
        return adjective[:-1] + "se"
    return adjective + ("ne" if adjective.endswith(("en", "on")) else "e")


def participle(infinitive: str, agreement: Features) -> str:
    """The past participle: (voir, feminine plural) -> vues."""
    form = _principal_parts(infinitive)[2]
    if agreement.gender == "f":
        form = form.replace("dû", "du") + "e"
    return plural(form) if agreement.plural else form


def conjugate(infinitive: str, tense: str, subject: Features) -> str:
    """The present, future or imperfect: (manger, future, third person plural) -> mangeront."""
    index = _index(subject)
    present, future, _ = _principal_parts(infinitive)
    if tense == "present":
        return present[index]
    if tense == "future":
        return future + _FUTURE[index]
    stem = "ét" if infinitive == "être" else present[2].removesuffix("ons")
    ending = _IMPERFECT[index]
    return (_soften(stem) if ending.startswith("i") else stem) + ending


def join(tokens: Sequence[Token]) -> list[Token]:
    """Apply elision (l' homme, n' est), the forms before a vowel (cet, mon amie, bel) and contraction (du, aux)."""
    joined: list[Token] = []
    for token in reversed(tokens):
        following = joined[-1] if joined else Token("")
        contracted = _CONTRACTED.get((token.text, following.text)) if following.article else None
        if contracted:
            joined[-1] = token.merged(following, contracted)
        else:
            joined.append(token.spelled(_spelling(token, following.text)))
    return [token.spelled(token.text.removeprefix(ASPIRATED)) for token in reversed(joined)]


def _spelling(token: Token, following: str) -> str:
    if token.text == "si" and following in ("il", "ils"):
        return "s'"
    if re.match(r"[aeiouyàâéêèîôûœh]", following):
        return token.before_vowel or _ELIDED.get(token.text, token.text)
    return token.text


def _index(subject: Features) -> int:
    """Return 0 to 4 for je, il, nous, vous, ils: the course has no tu."""
    if subject.plural:
        return subject.person + 1 if subject.person < 3 else 4
    return 0 if subject.person == 1 else 1


@cache
def _principal_parts(infinitive: str) -> tuple[list[str], str, str]:
    for line in _IRREGULAR.strip().splitlines():
        if line.startswith(infinitive + " "):
            _, *present, future, past = line.split()
            return present, future, past
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "er":
        hard = _harden(stem)
        return [stem + "e", stem + "e", hard + "ons", stem + "ez", stem + "ent"], infinitive, stem + "é"
    if ending == "ir":
        return [stem + "is", stem + "it", stem + "issons", stem + "issez", stem + "issent"], infinitive, stem + "i"
    if ending == "re":
        return [stem + "s", stem, stem + "ons", stem + "ez", stem + "ent"], infinitive[:-1], stem + "u"
    raise ValueError(f"infinitive is {infinitive!r}; expected -er, -ir, -re or a line in the table of irregular verbs")


def _harden(stem: str) -> str:
    """Keep the sound of g and c before o and a: mange-ons, commenç-ons."""
    if stem.endswith("g"):
        return stem + "e"
    return stem[:-1] + "ç" if stem.endswith("c") else stem


def _soften(stem: str) -> str:
    """Undo `_harden` before i: mang-ions, commenc-ions."""
    return re.sub("ç$", "c", re.sub("ge$", "g", stem))
