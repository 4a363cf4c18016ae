"""A view in which the reader continues a text with a language model, token by token, from its likeliest choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import SupportsFloat

from tfbook.plot.views import base

MAX_START = 600  # letters of the text that the reader begins with
MAX_BREADTH = 9  # bars: each has a digit for a key
MAX_BARS = 1000  # of all texts together: more would make a notebook large
ROUNDING = 0.01  # how far above 1 probabilities may add up in half precision
HIDDEN = 0.0005  # share up to which there is no bar for everything else: it may be what rounding left

Pieces = tuple[str, ...]  # what the tokens chosen so far append to the text
Choices = list[tuple[str, float]]  # what a token may append next, with its probability; likeliest first
Predict = Callable[[list[Pieces]], Sequence[Sequence[tuple[str, SupportsFloat]]]]  # see `next_token_view`


@dataclass(frozen=True, eq=False)
class NextTokenView:
    """The view returned by `next_token_view`, which a notebook displays when it is the last line of a cell."""

    start: str
    tree: dict[Pieces, Choices]  # empty: the text is complete; no entry: it was too unlikely to be worked out

    def __repr__(self) -> str:
        return f"NextTokenView(choices={len(self.tree[()])}, texts={len(self.tree)})"

    def _repr_html_(self) -> str:
        """A table, and a script that replaces it with the view; without JavaScript the table stays."""
        pieces = list(dict.fromkeys(piece for choices in self.tree.values() for piece, _ in choices))
        places = {piece: place for place, piece in enumerate(pieces)}
        data = {"start": self.start, "pieces": pieces, "spaces": self._splits_words(), "bars": self._bars((), places)}
        return base.embed("explorer", data, self._table(), uses=["chance"])

    def _bars(self, before: Pieces, places: dict[str, int]) -> list[list[object]]:
        """For each choice its piece, its surprise in thousandths, and the bars after it where the tree continues."""
        bars: list[list[object]] = []
        for piece, share in self.tree[before]:
            after = (*before, piece)
            behind = [self._bars(after, places)] if after in self.tree else []
            bars.append([places[piece], round(-1000 * math.log(share)), *behind])
        return bars

    def _splits_words(self) -> bool:
        """Whether some token continues a word, so that the space before other tokens must be visible."""
        return any(
            (self.start + "".join(before))[-1:].isalnum() and piece[0].isalnum()
            for before, choices in self.tree.items()
            for piece, _ in choices
        )

    def _table(self) -> str:
        """The first choices, and how the text continues if each choice is the likeliest."""
        where = f"After “{self.start}”" if self.start else "At the beginning"
        lead = f"{where}: the likeliest next tokens, their probabilities, and how surprising each would be."
        table = base.table(["probability", "surprise −ln p (nats)"], self._rows())
        greedy: Pieces = ()
        while choices := self.tree.get(greedy):
            greedy = (*greedy, choices[0][0])
        end = "" if greedy in self.tree else " …"
        follow = f"With the likeliest token each time, the text becomes: “{self.start}{''.join(greedy)}{end}”"
        return f"{base.paragraph(lead)}\n{table}\n{base.paragraph(follow)}"

    def _rows(self) -> Iterator[tuple[str, list[str]]]:
        spaces = self._splits_words()
        for piece, share in self.tree[()]:
            yield _label(piece, spaces), [base.cell(f"{share:.2f}", share), base.cell(f"{-math.log(share):z.2f}")]
        rest = 1 - sum(share for _, share in self.tree[()])
        if rest > HIDDEN:
            yield "everything else", [base.cell(f"{rest:.2f}"), base.cell("")]


def _label(piece: str, spaces: bool) -> str:
    """A piece as named in a table: without the space before a word unless `spaces`; blank pieces are always visible."""
    return piece.replace(" ", "␣").replace("\n", "↵") if spaces or not piece.strip() else piece.strip()


def next_token_view(
    start: str,
    predict: Predict,
    *,
    breadth: int = 5,
    depth: int = 12,
    limit: int | None = None,
) -> NextTokenView:
    """A view of a text and its likeliest next tokens, in which the reader chooses one after another.

    A token is known by its piece: the letters that it appends to the text, including the space before them, as in "
    fox". `predict` takes texts, each as the tuple of pieces appended to `start`, and returns for each of them pieces
    with their probabilities, in any order: all tokens or only the likeliest. The `breadth` likeliest are shown, and the
    rest of the probability as "everything else". No pieces at all mean that the text is complete. Tokens that may
    follow the same text need different pieces.

    Everything that the reader may see is computed here: `predict` is called at most `depth` times, first with `start`
    alone, [()], then with texts one token longer than before, so a model can read each list as one batch. Instead of
    every text up to a length, the tree holds the `limit` likeliest by the product of the tokens' probabilities, or as
    many as fit on a page: it is deep where the model is sure. It always includes the texts of one token, so that every
    first choice leads on. The reader can choose at most `depth` tokens.

    Raises ValueError when `start`, `breadth`, `depth` or `limit` is too small or does not fit on a page, and when the
    result of `predict` is not one list per text, names no token after `start` or the same piece twice, has an empty
    piece, or holds probabilities that are not numbers from 0 to 1 with a sum above 0 and up to 1.
    """
    limit = _checked_limit(start, breadth, depth, limit)
    likelihood: dict[Pieces, float] = {(): 1.0}  # parents before children: where they are equal, parents come first
    tree: dict[Pieces, Choices] = {}

    def likeliest(texts: dict[Pieces, float] | dict[Pieces, Choices]) -> list[Pieces]:
        return sorted(texts, key=lambda text: (len(text) > 1, -likelihood[text]))[:limit]

    opened: list[Pieces] = [()]
    for _ in range(depth):
        if not opened:
            break
        tree |= zip(opened, _asked(predict, opened, start, breadth), strict=True)
        longer = {(*text, piece): likelihood[text] * share for text in opened for piece, share in tree[text]}
        likelihood |= longer
        # A text that is not among the likeliest now will not be later, since longer texts are less likely.
        opened = [text for text in likeliest(likelihood) if text in longer]
    return NextTokenView(start, {text: tree[text] for text in likeliest(tree)})


def _checked_limit(start: str, breadth: int, depth: int, limit: int | None) -> int:
    """The number of texts in the tree. Raises ValueError for sizes that make no tree or do not fit on a page."""
    if len(start) > MAX_START:
        raise ValueError(f"start holds {len(start)} letters; expected at most {MAX_START}, which fit on a page")
    if not 2 <= breadth <= MAX_BREADTH:
        raise ValueError(f"breadth is {breadth}; expected 2 to {MAX_BREADTH}, so that each bar has a digit for a key")
    if depth < 1:
        raise ValueError(f"depth is {depth}; expected 1 or more tokens to choose")
    least, most = breadth + 1, MAX_BARS // breadth
    if limit is not None and not least <= limit <= most:
        raise ValueError(f"limit is {limit}; with {breadth} bars for each text, expected {least} to {most} texts")
    return limit or most


def _asked(predict: Predict, texts: list[Pieces], start: str, breadth: int) -> list[Choices]:
    """The checked result of `predict` for each text: the `breadth` likeliest pieces, ties in their original order."""
    found = predict(list(texts))
    if len(found) != len(texts):
        raise ValueError(f"predict returned {len(found)} lists for {len(texts)} texts; expected one for each")
    if not found[0] and texts == [()]:
        raise ValueError(f"predict returned no tokens after “{start}”; expected one or more")
    return [_checked(row, start + "".join(text), breadth) for row, text in zip(found, texts, strict=True)]


def _checked(row: Sequence[tuple[str, SupportsFloat]], text: str, breadth: int) -> Choices:
    after = f"after “{text[-40:]}”"
    choices = [(piece, float(share)) for piece, share in row]
    for piece, share in choices:
        if not piece:
            raise ValueError(f"predict returned an empty piece {after}; expected the letters that the token appends")
        if not 0 <= share <= 1:  # NaN fails too
            raise ValueError(f"“{piece}” {after} has probability {share:.3g}; expected 0 to 1")
    total = sum(share for _, share in choices)
    if choices and not 0 < total <= 1 + ROUNDING:
        raise ValueError(f"probabilities {after} sum to {total:.3g}; expected more than 0 and at most 1")
    likeliest = sorted((choice for choice in choices if choice[1]), key=lambda choice: -choice[1])[:breadth]
    pieces = [piece for piece, _ in likeliest]
    if twice := [piece for piece in pieces if pieces.count(piece) > 1]:
        raise ValueError(f"predict returned “{twice[0]}” twice {after}; expected another piece for each token")
    return likeliest
