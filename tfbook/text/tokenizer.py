"""The byte-pair tokenizer: text to ids and back, with files of the `tokenizers` library and of GPT-2."""

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
from tfbook.text.byte_level import (
    BYTE_LETTERS,
    BYTES,
    GPT2_PATTERN,
    bytes_to_letters,
    letters_to_bytes,
    pre_tokenize,
)

UNSUPPORTED = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")  # options of a model
REMOVED = -1  # in place of a token that was merged into the one before it


class Tokenizer:
    """Byte-pair encoding with given merges: text to ids and back.

    `tokens` maps each id to its bytes, `merges` holds pairs of ids in the order in which they were learned, `specials`
    maps the names of special tokens to their ids. With `whole_chunks`, a chunk that is a token is never cut, whether or
    not merges lead to it (Llama 3). Raises ValueError when a byte or the result of a merge is not among the tokens, or
    a special token has no name or shares its id.
    """

    def __init__(
        self,
        tokens: Mapping[int, bytes],
        merges: Sequence[TokenPair],
        specials: Mapping[str, int] | None = None,
        pattern: str = GPT2_PATTERN,
        *,
        whole_chunks: bool = False,
    ):
        self.whole_chunks = whole_chunks
        self.tokens, self.merges = dict(tokens), list(merges)
        self.specials, self.pattern = dict(specials or {}), pattern
        self._id_of = {token: number for number, token in self.tokens.items()}
        _check(self.tokens, self.specials, self._id_of)
        self._bytes = self.tokens | {number: text.encode() for text, number in self.specials.items()}
        self._ranked: dict[TokenPair, tuple[int, int]] = {}  # pair → (rank, id of the merged token)
        for rank, pair in enumerate(self.merges):
            self._ranked.setdefault(pair, (rank, self._merged_id(pair)))
        self._encode_chunk = lru_cache(maxsize=2**20)(self._merge_chunk)  # a text repeats most of its chunks

    @classmethod
    def learn(
        cls, texts: Iterable[str], vocab: int, *, specials: Sequence[str] = (), pattern: str = GPT2_PATTERN
    ) -> Tokenizer:
        """Learns merges until there are `vocab` tokens; special tokens get the first ids.

        Raises ValueError when `vocab` has no room for the bytes and the special tokens, or one of these appears twice.
        """
        if vocab < len(BYTES) + len(specials):
            expected = f"{len(BYTES)} or more, one token for each byte, and {len(specials)} specials"
            raise ValueError(f"vocab is {vocab}; expected {expected}")
        if len(set(specials)) < len(specials):
            raise ValueError(f"specials is {list(specials)}; expected each name once")
        learned, first = learn_merges(texts, vocab - len(specials), pattern=pattern), len(specials)
        tokens = {first + number: token for number, token in enumerate(learned.tokens)}
        merges = [(first + a, first + b) for a, b in learned.merges]
        return cls(tokens, merges, {text: number for number, text in enumerate(specials)}, pattern)

    def __len__(self) -> int:
        return len(self._bytes)

    def encode(self, text: str, *, specials: bool = False) -> list[int]:
        """The ids of a text; with `specials`, the names of special tokens become their ids, else they are plain text.

        Raises ValueError as `pre_tokenize` does.
        """
        if specials and self.specials:
            names = "|".join(map(regex.escape, sorted(self.specials, key=len, reverse=True)))
            parts = regex.split(f"({names})", text)
            ids = ([self.specials[part]] if part in self.specials else self.encode(part) for part in parts)
            return list(chain.from_iterable(ids))
        return list(chain.from_iterable(map(self._encode_chunk, pre_tokenize(text, self.pattern))))

    def _merge_chunk(self, chunk: str) -> tuple[int, ...]:
        if self.whole_chunks and (whole := self._id_of.get(chunk.encode())) is not None:
            return (whole,)
        return _merge_by_rank([self._id_of[bytes([byte])] for byte in chunk.encode()], self._ranked)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens, exactly. Raises ValueError for an unknown id."""
        ids = list(ids)
        try:
            return b"".join([self._bytes[number] for number in ids])
        except KeyError as error:
            raise ValueError(f"ids holds {error}; expected ids of this tokenizer's {len(self):,} tokens") from None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; bytes that do not form a character become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def _merged_id(self, pair: TokenPair) -> int:
        """The id of the token that two tokens spell together."""
        merged = b"".join(self.tokens.get(number, b"") for number in pair)
        if not set(pair) <= self.tokens.keys() or merged not in self._id_of:
            raise ValueError(f"merges holds {pair}; expected two tokens that spell a third")
        return self._id_of[merged]

    # ---- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Writes the JSON file that `tokenizers.Tokenizer.from_file` reads.

        Raises ValueError when the name of a special token is also how an ordinary token is written.
        """
        Path(path).write_text(json.dumps(self._to_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    def _to_json(self) -> dict[str, Any]:
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
                **dict.fromkeys(("fuse_unk", "byte_fallback"), False),
                "ignore_merges": self.whole_chunks,
                "vocab": self._vocabulary(),
                "merges": [[bytes_to_letters(self.tokens[number]) for number in pair] for pair in self.merges],
            },
        }

    def _vocabulary(self) -> dict[str, int]:
        """The ids of all tokens as the files write them: in letters, special tokens by their names."""
        letters = {bytes_to_letters(token): number for number, token in self.tokens.items()}
        if both := letters.keys() & self.specials.keys():
            raise ValueError(f"specials {sorted(both)} are tokens too; expected names that a file can tell from tokens")
        return self.specials | letters

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Reads a byte-level BPE from the JSON of the `tokenizers` library.

        Its pre-tokenizer is ByteLevel, alone or after one split by a pattern. Raises ValueError for a file that is not
        such a BPE or that has a normalizer, dropout or marks at the ends of words: its ids would be others here.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            model, specials = content["model"], {added["content"]: added["id"] for added in content["added_tokens"]}
            _check_supported(content)
            merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
            pattern, whole = _pattern_of(content["pre_tokenizer"]), bool(model.get("ignore_merges"))
            return cls._from_letters(model["vocab"], merges, specials, pattern, whole_chunks=whole)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a byte-level BPE of the tokenizers library ({error})") from error

    def save_gpt2(self, folder: str | Path) -> None:
        """Writes GPT-2's two files: `encoder.json`, letters → id, and `vocab.bpe`, one merge per line.

        Raises ValueError as `save` does, and for what these files cannot hold: `whole_chunks`, or another pattern than
        GPT-2's.
        """
        if self.whole_chunks:
            raise ValueError("whole_chunks is True, which GPT-2's files cannot say; use save()")
        if self.pattern != GPT2_PATTERN:
            raise ValueError(f"pattern is {self.pattern!r}; GPT-2's files imply its own, so use save()")
        vocabulary = self._vocabulary()
        letters = {number: text for text, number in vocabulary.items()}
        lines = ["#version: 0.2", *(" ".join(letters[number] for number in pair) for pair in self.merges)]
        Path(folder, "encoder.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        Path(folder, "vocab.bpe").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")

    @classmethod
    def load_gpt2(cls, folder: str | Path) -> Tokenizer:
        """Reads GPT-2's two files; a token that no merge makes is special. Raises ValueError for damaged files."""
        try:
            vocabulary = json.loads(Path(folder, "encoder.json").read_text(encoding="utf-8"))
            lines = Path(folder, "vocab.bpe").read_text(encoding="utf-8").split("\n")
            merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
            ordinary = {*BYTE_LETTERS, *("".join(pair) for pair in merges)}
            return cls._from_letters(vocabulary, merges, {t: i for t, i in vocabulary.items() if t not in ordinary})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder} does not hold GPT-2's two files ({error})") from error

    @classmethod
    def _from_letters(
        cls,
        vocabulary: Mapping[str, int],
        merges: Sequence[Sequence[str]],
        specials: Mapping[str, int],
        pattern: str = GPT2_PATTERN,
        *,
        whole_chunks: bool = False,
    ) -> Tokenizer:
        unknown = [part for pair in merges for part in pair if part not in vocabulary]
        if unknown:
            raise ValueError(f"a merge holds {unknown[0]!r}, which is not a token")
        tokens = {number: letters_to_bytes(text) for text, number in vocabulary.items() if text not in specials}
        pairs = [(vocabulary[a], vocabulary[b]) for a, b in merges]
        return cls(tokens, pairs, specials, pattern, whole_chunks=whole_chunks)


def _check(tokens: Mapping[int, bytes], specials: Mapping[str, int], id_of: Mapping[bytes, int]) -> None:
    missing = [byte for byte in BYTES if byte not in id_of]
    if missing:
        found = f"tokens lacks {len(missing)} of the 256 bytes, such as {missing[0]!r}"
        raise ValueError(f"{found}; expected all of them, so that no text fails")
    if len(id_of) < len(tokens):
        raise ValueError(f"tokens spells {len(tokens) - len(id_of)} byte strings twice; expected one id for each")
    unique = set(specials.values()) - tokens.keys()
    if "" in specials or len(unique) < len(specials):
        raise ValueError(f"specials is {dict(specials)}; expected names, each with an id of its own")


def _merge_by_rank(ids: list[int], ranked: Mapping[TokenPair, tuple[int, int]]) -> tuple[int, ...]:
    """Merges the pairs of a chunk in the order of learning, equal ones from left to right.

    Each token knows its neighbors and a heap finds the next pair, so n tokens take about
    n log n steps. An entry of the heap is skipped when its pair is no longer there.
    """
    end = len(ids)
    before, after = [*range(-1, end - 1)], [*range(1, end + 1)]
    heap = [(ranked[pair][0], place, pair) for place, pair in enumerate(pairwise(ids)) if pair in ranked]
    heapify(heap)
    while heap:
        _, left, pair = heappop(heap)
        right = after[left]
        if right == end or (ids[left], ids[right]) != pair:
            continue
        ids[left], ids[right], after[left] = ranked[pair][1], REMOVED, after[right]
        if after[left] < end:
            before[after[left]] = left
        for first, second in ((before[left], left), (left, after[left])):
            if first >= 0 and second < end and (new := (ids[first], ids[second])) in ranked:
                heappush(heap, (ranked[new][0], first, new))
    return tuple(number for number in ids if number != REMOVED)


def _check_supported(content: Mapping[str, Any]) -> None:
    """Raises ValueError when a file asks for something that would give other ids here."""
    model = {"type": "BPE", **content["model"]}
    options = {"normalizer": content["normalizer"], **{name: model.get(name) for name in UNSUPPORTED}}
    unsupported = {name: value for name, value in options.items() if value}
    if model["type"] != "BPE":
        unsupported["type"] = model["type"]
    if unsupported:
        raise ValueError(f"it asks for {unsupported}, which this tokenizer does not support")


def _pattern_of(pre_tokenizer: Any) -> str:
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
