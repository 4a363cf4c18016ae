"""Added tokens: strings that become one token each, before the rest of a text is split into chunks.

They follow the rules of the `tokenizers` library, whose files describe them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import regex

Template = tuple[tuple[int, ...], tuple[int, ...]]  # the ids before and after a text

SPACE = regex.compile(r"\p{White_Space}*")
WORD = regex.compile(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]")  # a letter, digit or the like


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A string that becomes the token `id` wherever it occurs; by default only where special tokens are asked for."""

    content: str
    id: int
    special: bool = True  # plain text unless special tokens are asked for
    normalized: bool = False  # searched for in what the others leave over
    single_word: bool = False  # not within a longer word
    lstrip: bool = False  # takes the whitespace before it along
    rstrip: bool = False  # takes the whitespace after it along


class AddedTokens:
    """Finds added tokens in a text, at each place the longest."""

    def __init__(self, tokens: Iterable[AddedToken]):
        self.tokens = tuple(tokens)
        groups = ({t.content: t for t in self.tokens if t.normalized is last} for last in (False, True))
        self._searches = [(_any_of(group), group) for group in groups if group]
        self._any_words = not all(token.special for token in self.tokens)

    def split(self, text: str, *, specials: bool) -> list[str | int]:
        """The ids of the tokens found and the text between them; special ones are text unless `specials`."""
        parts: list[str | int] = [text]
        for pattern, group in self._searches if specials or self._any_words else ():
            pieces = (_cut(part, pattern, group, specials) if isinstance(part, str) else [part] for part in parts)
            parts = [piece for some in pieces for piece in some]
        return parts


def _any_of(names: Iterable[str]) -> regex.Pattern[str]:
    return regex.compile("|".join(map(regex.escape, sorted(names, key=len, reverse=True))))


def _cut(
    text: str, pattern: regex.Pattern[str], tokens: Mapping[str, AddedToken], specials: bool
) -> Iterator[str | int]:
    done = 0
    for match in pattern.finditer(text):
        token, start, end = tokens[match[0]], match.start(), match.end()
        if (token.special and not specials) or (token.single_word and _within_word(text, start, end)):
            continue
        while token.lstrip and start > done and SPACE.fullmatch(text[start - 1]):
            start -= 1
        if token.rstrip:
            end = SPACE.match(text, end).end()
        yield text[done:start]
        if end > done or not token.lstrip:  # else the token before it took all of it along
            yield token.id
        done = end
    yield text[done:]


def _within_word(text: str, start: int, end: int) -> bool:
    return bool(WORD.match(text, end) or (start and WORD.match(text, start - 1)))
