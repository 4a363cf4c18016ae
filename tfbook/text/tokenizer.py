"""The byte-pair tokenizer: text to ids and back, with files of the `tokenizers` library and of GPT-2."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from pathlib import Path
from sys import getsizeof

from tfbook.files import write_text
from tfbook.text import library_file
from tfbook.text.added import AddedToken, AddedTokens, Template
from tfbook.text.bpe import REMOVED, TokenPair, learn_merges
from tfbook.text.byte_level import (
    BYTE_LETTERS,
    BYTES,
    GPT2_PATTERN,
    bytes_to_letters,
    check_characters,
    check_texts,
    pre_tokenize,
)
from tfbook.text.ids import Ids, id_list

CACHED_BYTES = 2**26  # about as many bytes at most does a tokenizer keep of the chunks that it has encoded


class _Chunks(dict[str, tuple[int, ...]]):
    """The ids of each chunk, kept since a text repeats most of its chunks; emptied before it takes too much memory."""

    def __init__(self, encode: Callable[[str], tuple[int, ...]]):
        super().__init__()
        self.encode, self.bytes = encode, 0

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        ids = self.encode(chunk)
        size = getsizeof(chunk) + getsizeof(ids) + 32 * len(ids) + 100  # 100: its share of the table
        if self.bytes + size > CACHED_BYTES:
            self.clear()
            self.bytes = 0
        if size <= CACHED_BYTES:
            self[chunk] = ids
            self.bytes += size
        return ids

    def __reduce__(self) -> tuple[type[_Chunks], tuple[Callable[[str], tuple[int, ...]]]]:
        """Pickled and copied empty."""
        return _Chunks, (self.encode,)


class Tokenizer:
    """Byte-pair encoding with given merges: text to ids and back.

    `tokens` maps each id to its bytes, `merges` holds pairs of ids in the order in which they were learned, `specials`
    maps the names of special tokens to their ids, and `added` holds those with options. With `whole_chunks`, a chunk
    that is a token is never cut, whether or not merges lead to it (Llama 3). `template` holds the ids that are put
    before and after a text where special tokens are asked for. Raises ValueError when a byte or the result of a merge
    is not among the tokens, or a special token has no name or shares the id of another one.
    """

    def __init__(
        self,
        tokens: Mapping[int, bytes],
        merges: Sequence[TokenPair],
        specials: Mapping[str, int] | None = None,
        pattern: str = GPT2_PATTERN,
        *,
        added: Iterable[AddedToken] = (),
        whole_chunks: bool = False,
        template: Template = ((), ()),
    ):
        self.whole_chunks, self.pattern, self.template = whole_chunks, pattern, template
        self.tokens, self.merges = dict(tokens), list(merges)
        self.added = (*(AddedToken(content=text, id=number) for text, number in (specials or {}).items()), *added)
        self.specials = {token.content: token.id for token in self.added if token.special}
        self._id_of = {token: number for number, token in self.tokens.items()}
        _check(self.tokens, self.added, self._id_of)
        self._added = AddedTokens(self.added)
        self._bytes = {token.id: token.content.encode() for token in self.added} | self.tokens
        if unknown := {*template[0], *template[1]} - self._bytes.keys():
            raise ValueError(f"template holds {min(unknown)}, which is not the id of a token")
        self._ranked: dict[TokenPair, tuple[int, int]] = {}  # pair → (rank, id of the merged token)
        for rank, pair in enumerate(self.merges):
            self._ranked.setdefault(pair, (rank, self._merged_id(pair)))
        self._ids_of = _Chunks(self._merge_chunk)

    @classmethod
    def learn(
        cls, texts: Iterable[str], vocab: int, *, specials: Sequence[str] = (), pattern: str = GPT2_PATTERN
    ) -> Tokenizer:
        """Learns merges until there are `vocab` tokens; special tokens get the first ids.

        Raises ValueError when `vocab` has no room for the bytes and the special tokens, or one of these appears twice,
        and TypeError for a single string in place of several.
        """
        check_texts(specials, "specials")
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

        `specials` also puts the ids of the template around the text. Raises ValueError as `pre_tokenize` does.
        """
        check_characters(text)
        before, after = self.template if specials else ((), ())
        parts = self._added.split(text, specials=specials)
        ids = ([part] if isinstance(part, int) else self._encode(part) for part in parts)
        return [*before, *chain.from_iterable(ids), *after]

    def _encode(self, text: str) -> Iterator[int]:
        return chain.from_iterable(map(self._ids_of.__getitem__, pre_tokenize(text, self.pattern)))

    def _merge_chunk(self, chunk: str) -> tuple[int, ...]:
        if self.whole_chunks and (whole := self._id_of.get(chunk.encode())) is not None:
            return (whole,)
        return _merge_by_rank([self._id_of[bytes([byte])] for byte in chunk.encode()], self._ranked)

    def decode_bytes(self, ids: Ids) -> bytes:
        """The bytes of the tokens, exactly. Raises ValueError for an unknown id."""
        try:
            return b"".join([self._bytes[number] for number in id_list(ids)])
        except KeyError as error:
            raise ValueError(f"ids holds {error}; expected ids of this tokenizer's {len(self):,} tokens") from None

    def decode(self, ids: Ids) -> str:
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
        write_text(path, json.dumps(library_file.file_content(self), ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Reads a byte-level BPE from the JSON of the `tokenizers` library.

        Its pre-tokenizer is ByteLevel, alone or after one split by a pattern. Raises ValueError for a file that is not
        such a BPE, and for a field that would give other ids here, such as a normalizer or dropout.
        """
        try:
            return cls(**library_file.tokenizer_arguments(json.loads(Path(path).read_text(encoding="utf-8"))))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is not a byte-level BPE of the tokenizers library ({error})") from error

    def save_gpt2(self, folder: str | Path) -> None:
        """Writes GPT-2's two files: `encoder.json`, letters → id, and `vocab.bpe`, one merge per line.

        Raises ValueError as `save` does, and for what these files cannot hold: `whole_chunks`, another pattern than
        GPT-2's, added tokens that are more than special, and a template.
        """
        if self.whole_chunks:
            raise ValueError("whole_chunks is True, which GPT-2's files cannot say; use save()")
        if self.pattern != GPT2_PATTERN:
            raise ValueError(f"pattern is {self.pattern!r}; GPT-2's files imply its own, so use save()")
        plain = tuple(AddedToken(content=text, id=number) for text, number in self.specials.items())
        if self.added != plain or any(self.template):
            raise ValueError("added or template says more than GPT-2's files can; use save()")
        vocabulary = library_file.to_letters(self)
        letters = {number: text for text, number in vocabulary.items()}
        lines = ["#version: 0.2", *(" ".join(letters[number] for number in pair) for pair in self.merges)]
        write_text(Path(folder, "encoder.json"), json.dumps(vocabulary))
        write_text(Path(folder, "vocab.bpe"), "\n".join(lines) + "\n")

    @classmethod
    def load_gpt2(cls, folder: str | Path) -> Tokenizer:
        """Reads GPT-2's two files; a token that no merge makes is special. Raises ValueError for damaged files."""
        try:
            vocabulary = json.loads(Path(folder, "encoder.json").read_text(encoding="utf-8"))
            lines = Path(folder, "vocab.bpe").read_text(encoding="utf-8").split("\n")
            merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
            ordinary = {*BYTE_LETTERS, *("".join(pair) for pair in merges)}
            specials = [AddedToken(content=t, id=i) for t, i in vocabulary.items() if t not in ordinary]
            return cls(**library_file.from_letters(vocabulary, merges, specials))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{folder} does not hold GPT-2's two files ({error})") from error


def _check(tokens: Mapping[int, bytes], added: Sequence[AddedToken], id_of: Mapping[bytes, int]) -> None:
    missing = [byte for byte in BYTES if byte not in id_of]
    if missing:
        found = f"tokens lacks {len(missing)} of the 256 bytes, such as {missing[0]!r}"
        raise ValueError(f"{found}; expected all of them, so that no text fails")
    if len(id_of) < len(tokens):
        raise ValueError(f"tokens spells {len(tokens) - len(id_of)} byte strings twice; expected one id for each")
    names = {token.content: token.id for token in added}
    others = [number for name, number in names.items() if bytes_to_letters(tokens.get(number, b"")) not in ("", name)]
    if "" in names or others or not len(set(names.values())) == len(names) == len(added):
        raise ValueError(f"specials is {names}; expected names, each with an id of its own")


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
