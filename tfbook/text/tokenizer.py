"""The tokenizer: text to ids and back, read from and written to the files of two libraries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import regex

from tfbook.text.bpe import TokenPair, learn_merges
from tfbook.text.spelling import BYTES, GPT2_PATTERN, LETTERS, chunks, read, written

OTHER_IDS = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")  # what a model may ask for
GONE = -1  # in place of a token that was joined to the one before it


class Tokenizer:
    """Byte-pair encoding with given merges: text to ids and back; `specials` stand for no text of their own.

    `tokens` maps each id to its bytes, `merges` holds pairs of ids, the first learned first. Raises ValueError when a
    byte, or what a merge spells, is no token, or a special has no name or no id of its own.
    """

    def __init__(
        self,
        tokens: Mapping[int, bytes],
        merges: Sequence[TokenPair],
        specials: Mapping[str, int] | None = None,
        pattern: str = GPT2_PATTERN,
    ):
        self.tokens, self.merges = dict(tokens), list(merges)
        self.specials, self.pattern = dict(specials or {}), pattern
        self._id_of = {token: number for number, token in self.tokens.items()}
        _check(self.tokens, self.specials, self._id_of)
        self._bytes = self.tokens | {number: text.encode() for text, number in self.specials.items()}
        self._joined: dict[TokenPair, tuple[int, int]] = {}  # pair → (rank, what it becomes)
        for rank, pair in enumerate(self.merges):
            self._joined.setdefault(pair, (rank, self._spelled(pair)))
        self._encode_chunk = lru_cache(maxsize=2**20)(self._join)  # a text has far fewer different words than words

    @classmethod
    def learn(
        cls, texts: Iterable[str], vocab: int, *, specials: Sequence[str] = (), pattern: str = GPT2_PATTERN
    ) -> Tokenizer:
        """Learns merges until there are `vocab` tokens; `specials` are the first.

        Raises ValueError when `vocab` has no room for each byte and special, and when a special is named twice.
        """
        if vocab < len(BYTES) + len(specials):
            expected = f"{len(BYTES)} or more, one token for each byte, and {len(specials)} specials"
            raise ValueError(f"vocab is {vocab}; expected {expected}")
        if len(set(specials)) < len(specials):
            raise ValueError(f"specials is {list(specials)}; expected each name once")
        spelled, first = learn_merges(texts, vocab - len(specials), pattern=pattern), len(specials)
        tokens = {first + number: token for number, token in enumerate(spelled.tokens)}
        merges = [(first + a, first + b) for a, b in spelled.merges]
        return cls(tokens, merges, {text: number for number, text in enumerate(specials)}, pattern)

    def __len__(self) -> int:
        return len(self._bytes)

    def encode(self, text: str, *, specials: bool = False) -> list[int]:
        """The ids of a text; `specials`: their names in it become their ids. Raises ValueError as `chunks` does."""
        if specials and self.specials:
            names = "|".join(map(regex.escape, sorted(self.specials, key=len, reverse=True)))
            pieces = regex.split(f"({names})", text)
            return [
                i
                for piece in pieces
                for i in ([self.specials[piece]] if piece in self.specials else self.encode(piece))
            ]
        return list(chain.from_iterable(map(self._encode_chunk, chunks(text, self.pattern))))

    def _join(self, chunk: str) -> tuple[int, ...]:
        return _join([self._id_of[bytes([byte])] for byte in chunk.encode()], self._joined)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens, exactly. Raises ValueError for an id that is no token's."""
        ids = list(ids)
        try:
            return b"".join([self._bytes[number] for number in ids])
        except KeyError as error:
            raise ValueError(f"ids holds {error}; expected ids of this tokenizer's {len(self):,} tokens") from None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; bytes that are no whole character become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def _spelled(self, pair: TokenPair) -> int:
        """The id of what two tokens spell together."""
        joined = b"".join(self.tokens.get(number, b"") for number in pair)
        if not set(pair) <= self.tokens.keys() or joined not in self._id_of:
            raise ValueError(f"merges holds {pair}; expected two tokens that spell a third")
        return self._id_of[joined]

    # ---- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Writes the JSON file that `tokenizers.Tokenizer.from_file` reads.

        Raises ValueError when a special is named as a token is written.
        """
        Path(path).write_text(json.dumps(self._description(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    def _description(self) -> dict[str, Any]:
        options = {"add_prefix_space": False, "trim_offsets": True}
        by_bytes = {"type": "ByteLevel", **options, "use_regex": self.pattern == GPT2_PATTERN}
        split = {"type": "Split", "pattern": {"Regex": self.pattern}, "behavior": "Isolated", "invert": False}
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": number, "content": text, **flags, "special": True} for text, number in self.specials.items()
            ],
            "normalizer": None,
            "pre_tokenizer": by_bytes
            if by_bytes["use_regex"]
            else {"type": "Sequence", "pretokenizers": [split, by_bytes]},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", **options, "use_regex": True},
            "model": {
                "type": "BPE",
                **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
                **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
                "vocab": self._vocabulary(),
                "merges": [[written(self.tokens[number]) for number in pair] for pair in self.merges],
            },
        }

    def _vocabulary(self) -> dict[str, int]:
        """Names as the files write them: tokens in letters, specials as they are."""
        letters = {written(token): number for number, token in self.tokens.items()}
        if both := letters.keys() & self.specials.keys():
            raise ValueError(f"specials {sorted(both)} are tokens too; expected names that a file can tell from tokens")
        return self.specials | letters

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Reads a byte-level BPE from the JSON of the `tokenizers` library. Raises ValueError for anything else."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            model, specials = content["model"], {added["content"]: added["id"] for added in content["added_tokens"]}
            _check_asked(content)
            merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
            return cls._of_letters(model["vocab"], merges, specials, _pattern(content["pre_tokenizer"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} holds no byte-level BPE of the tokenizers library ({error})") from error

    def save_gpt2(self, folder: str | Path) -> None:
        """Writes GPT-2's pair of files: `encoder.json`, letters → id, and `vocab.bpe`, one merge a line.

        Raises ValueError as `save` does, and for another pattern than GPT-2's, for which they have no place.
        """
        if self.pattern != GPT2_PATTERN:
            raise ValueError(f"pattern is {self.pattern!r}; GPT-2's files stand for its own, so use save()")
        vocabulary = self._vocabulary()
        letters = {number: text for text, number in vocabulary.items()}
        lines = ["#version: 0.2", *(" ".join(letters[number] for number in pair) for pair in self.merges)]
        Path(folder, "encoder.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        Path(folder, "vocab.bpe").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")

    @classmethod
    def load_gpt2(cls, folder: str | Path) -> Tokenizer:
        """Reads GPT-2's pair of files; what no merge spells is a special. Raises ValueError for damaged files."""
        try:
            vocabulary = json.loads(Path(folder, "encoder.json").read_text(encoding="utf-8"))
            lines = Path(folder, "vocab.bpe").read_text(encoding="utf-8").split("\n")
            merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
            made = {*LETTERS, *("".join(pair) for pair in merges)}
            return cls._of_letters(vocabulary, merges, {t: i for t, i in vocabulary.items() if t not in made})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder} holds no pair of GPT-2's files ({error})") from error

    @classmethod
    def _of_letters(
        cls, vocabulary: Mapping[str, int], merges: Sequence[Sequence[str]], specials: Mapping[str, int], *pattern: str
    ) -> Tokenizer:
        unknown = [part for pair in merges for part in pair if part not in vocabulary]
        if unknown:
            raise ValueError(f"a merge holds {unknown[0]!r}, which is no token")
        tokens = {number: read(text) for text, number in vocabulary.items() if text not in specials}
        return cls(tokens, [(vocabulary[a], vocabulary[b]) for a, b in merges], specials, *pattern)


def _check(tokens: Mapping[int, bytes], specials: Mapping[str, int], id_of: Mapping[bytes, int]) -> None:
    missing = [byte for byte in BYTES if byte not in id_of]
    if missing:
        raise ValueError(f"tokens lacks {len(missing)} of the 256 bytes, such as {missing[0]!r}; no text may fail")
    if len(id_of) < len(tokens):
        raise ValueError(f"tokens spells {len(tokens) - len(id_of)} byte strings twice; expected one id for each")
    own = set(specials.values()) - tokens.keys()
    if "" in specials or len(own) < len(specials):
        raise ValueError(f"specials is {dict(specials)}; expected names, each with an id that nothing else has")


def _join(ids: list[int], joined: Mapping[TokenPair, tuple[int, int]]) -> tuple[int, ...]:
    """The ids with their pairs joined, the pair that was learned first before the others and from left to right.

    Each id knows its neighbours, and a heap knows the next pair, so n ids take about n log n steps. What the heap says
    may be old: then the pair no longer stands in its place.
    """
    end = len(ids)
    before, after = [*range(-1, end - 1)], [*range(1, end + 1)]
    heap = [(joined[pair][0], place, pair) for place, pair in enumerate(pairwise(ids)) if pair in joined]
    heapify(heap)
    while heap:
        _, left, pair = heappop(heap)
        right = after[left]
        if right == end or (ids[left], ids[right]) != pair:
            continue
        ids[left], ids[right], after[left] = joined[pair][1], GONE, after[right]
        if after[left] < end:
            before[after[left]] = left
        for first, second in ((before[left], left), (left, after[left])):
            if first >= 0 and second < end and (new := (ids[first], ids[second])) in joined:
                heappush(heap, (joined[new][0], first, new))
    return tuple(number for number in ids if number != GONE)


def _check_asked(content: Mapping[str, Any]) -> None:
    """Raises ValueError when a file asks for what would give other ids."""
    model = {"type": "BPE", **content["model"]}
    asked = {"normalizer": content["normalizer"], **{name: model.get(name) for name in OTHER_IDS}}
    other = {name: value for name, value in asked.items() if value}
    if model["type"] != "BPE":
        other["type"] = model["type"]
    if other:
        raise ValueError(f"it asks for {other}, which this tokenizer does not do")


def _pattern(pre_tokenizer: Any) -> str:
    """The pattern of a byte-level pre-tokenizer: GPT-2's, or that of a split before it."""
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False, **options} if options.get("use_regex", True):
            return GPT2_PATTERN
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
                | {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return pattern
    raise ValueError(f"its pre-tokenizer is {pre_tokenizer}; expected ByteLevel, alone or after one Split by a pattern")
