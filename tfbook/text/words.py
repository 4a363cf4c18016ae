"""Sentences to words and back.

`tokenize` lower-cases, normalizes Unicode, separates punctuation, and splits where two words are written as one:

| language | text | tokens |
|---|---|---|
| English | `I don't know Tom's dog.` | `i do n't know tom 's dog .` |
| French | `Qu'est-ce que l'homme t'a dit ? Le sais-tu ?` | `qu' est-ce que l' homme t' a dit ? le sais -tu ?` |

A token keeps its apostrophe or hyphen, which shows on which side it was joined, so `detokenize` can put it back.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

# Typographic apostrophes, quotes, hyphens and ellipses become plain ones; soft hyphens and zero-width spaces vanish.
_REPLACEMENTS = str.maketrans(
    {"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', "\u2010": "-", "\u2011": "-"}
    | {"\u2026": "...", "\u00ad": None, "\u200b": None}
)

# Times and decimals (2:30, 1,000), abbreviations (a.m.) and runs of dots are single tokens in every language.
_NUMBER = r"\d+(?:[.,:]\d+)+(?!\w)"
_INITIALS = r"(?<!\w)(?:[^\W\d_]\.){2,}"
_PUNCTUATION = r"\.{2,}|[^\w\s]"

# English contractions; French elisions, pronouns after a hyphen, and words that are written with either.
_CONTRACTION = r"(?:n't|'(?:s|m|re|ve|ll|d))(?!\w)"
_ELISION = r"(?<!\w)(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu)'(?=\w)"
_PRONOUN = "je|tu|ils?|elles?|on|nous|vous|ce|moi|toi|les?|la|lui|leur|en|y"
_CLITIC = rf"-(?:(?:t-)?(?:{_PRONOUN}|ci|là|mêmes?)(?!\w)|[mtl]'(?=\w))"
_FRENCH_WHOLE = r"(?<!\w)(?:aujourd'hui|est-ce|quelqu'une?|prud'hom\w+|rendez-vous)(?!\w)"


@dataclass(frozen=True, kw_only=True)
class _Language:
    """How a language is split into tokens and written again."""

    tokens: re.Pattern[str]  # every match is a token
    no_space_before: re.Pattern[str]
    no_space_after: re.Pattern[str]


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


LANGUAGES = {
    "english": _Language(
        tokens=_pattern(
            _NUMBER,
            _INITIALS,
            r"\w+?(?=n't(?!\w))",
            rf"(?<=\w){_CONTRACTION}",
            rf"\w+(?:(?!{_CONTRACTION})['-]\w+)*",
            _PUNCTUATION,
        ),
        no_space_before=_pattern(_CONTRACTION, r"[.,;:?!%)\]]"),
        no_space_after=_pattern(r"[(\[$€]$"),
    ),
    "french": _Language(
        tokens=_pattern(
            _NUMBER,
            _INITIALS,
            _FRENCH_WHOLE,
            _ELISION,
            rf"(?<=\w){_CLITIC}",
            rf"\w+(?:(?!{_CLITIC})['-]\w+)*",
            _PUNCTUATION,
        ),
        no_space_before=_pattern(r"-\w", r"[.,)\]]"),
        no_space_after=_pattern(r"\w'$", r"[(\[]$"),
    ),
}


def _language(name: str) -> _Language:
    if name not in LANGUAGES:
        raise ValueError(f"language is {name!r}; expected one of {', '.join(map(repr, LANGUAGES))}")
    return LANGUAGES[name]


def tokenize(text: str, language: str) -> tuple[str, ...]:
    """Split a raw sentence into lower-case tokens; spaces of any width (U+00A0, U+202F before `?`) only separate them.

    `language` is `"english"` or `"french"`; any other raises ValueError.
    """
    if not isinstance(text, str):
        raise TypeError(f"text is a {type(text).__name__}; expected one sentence as a string")
    plain = unicodedata.normalize("NFC", text.translate(_REPLACEMENTS).lower())
    return tuple(_language(language).tokens.findall(plain))


def detokenize(tokens: Sequence[str], language: str) -> str:
    """Write tokens as a sentence: `tokenize(detokenize(tokens, language), language)` gives the tokens back.

    The sentence stays in lower case. French `? ! ; :` get an ordinary space before them, as the language requires.
    """
    if isinstance(tokens, str):
        raise TypeError(f"tokens is the string {tokens!r}; expected a sequence of tokens, such as tokenize() returns")
    rules = _language(language)
    text, glued, quoted = "", True, set[str]()
    for token in tokens:
        closes = token in quoted
        apart = text.endswith(".") and token.startswith(".")  # two full stops are not an ellipsis
        glued = glued or closes or bool(rules.no_space_before.match(token))
        text += token if glued and not apart else f" {token}"
        glued = bool(rules.no_space_after.search(token)) or (token in ("'", '"') and not closes)
        if token in ("'", '"'):
            quoted ^= {token}
    return text
