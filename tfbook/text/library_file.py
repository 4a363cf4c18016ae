"""The JSON of the `tokenizers` library for byte-level BPE: each of its fields is obeyed, or refused by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol, runtime_checkable

import regex

from tfbook.text.added import AddedToken, Template
from tfbook.text.byte_level import BYTE_LETTERS, GPT2_PATTERN, bytes_to_letters, letters_to_bytes

UNSUPPORTED = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")  # options of a model
WITHOUT_EFFECT = ("unk_token", "fuse_unk", "byte_fallback")  # since every byte is a token, nothing is unknown
FIELDS = {
    "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
    "model",
}  # fmt: skip
MODEL_FIELDS = {"type", "vocab", "merges", "ignore_merges", *UNSUPPORTED, *WITHOUT_EFFECT}
SAME_MEANING = r"\\[pP]\{[^}]*\}|\\[^hHRXKGZ]|\[\^?\]?(?:\\[^hHRX]|\[:\^?\w+:\]|[^\]\\&]|&(?!&))*\]"  # escapes, sets
BY_BYTES = {"type", "add_prefix_space", "trim_offsets", "use_regex"}  # fields of a ByteLevel


@runtime_checkable
class Contents(Protocol):
    """The attributes of a `Tokenizer` that its file holds."""

    tokens: dict[int, bytes]
    merges: list[tuple[int, int]]
    added: tuple[AddedToken, ...]
    pattern: str
    template: Template
    whole_chunks: bool


# ---- reading -----------------------------------------------------------------------------------------------------


def tokenizer_arguments(content: Any) -> dict[str, Any]:
    """The arguments of `Tokenizer`. Raises ValueError, KeyError or TypeError for a field that it cannot obey."""
    model = content["model"]
    _check_supported(content)
    added = [_added_token(fields) for fields in content.get("added_tokens", [])]
    merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    options: dict[str, Any] = {
        "pattern": _pattern_of(content.get("pre_tokenizer")),
        "whole_chunks": bool(model.get("ignore_merges")),
        "template": _template_of(content.get("post_processor")),
    }
    _check_fields("file", content, FIELDS)
    _check_fields("model", model, MODEL_FIELDS)
    _check_ids(added, model["vocab"])
    known = {*model["vocab"].values(), *(token.id for token in added)}
    if unknown := {number for ids in options["template"] for number in ids} - known:
        raise ValueError(f"its post_processor puts {min(unknown)} around a text, which is not the id of a token")
    return from_letters(model["vocab"], merges, added) | options


def from_letters(vocabulary: Any, merges: Any, added: Sequence[AddedToken]) -> dict[str, Any]:
    """The first arguments of `Tokenizer`, from tokens and merges in letters.

    An added token is one of the tokens, too, when a merge makes it or it is a single byte.
    """
    pairs = [(first, second) for first, second in merges]
    if unknown := [part for pair in pairs for part in pair if part not in vocabulary]:
        raise ValueError(f"a merge holds {unknown[0]!r}, which is not a token")
    if len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError("vocab holds an id twice; expected one for each token")
    apart = {token.content for token in added} - {*BYTE_LETTERS, *map("".join, pairs)}
    tokens = {number: letters_to_bytes(text) for text, number in vocabulary.items() if text not in apart}
    ids = [(vocabulary[first], vocabulary[second]) for first, second in pairs]
    return {"tokens": tokens, "merges": ids, "added": added}


def _check_supported(content: Any) -> None:
    """Raises ValueError when a file asks for something that would give other ids here."""
    model = {"type": "BPE", **content["model"]}
    options = {name: content.get(name) for name in ("normalizer", "truncation", "padding")}
    unsupported = {name: value for name, value in options.items() if value is not None}
    unsupported |= {name: model[name] for name in UNSUPPORTED if model.get(name)}
    if model["type"] != "BPE":
        unsupported["type"] = model["type"]
    if content.get("version", "1.0") != "1.0":
        unsupported["version"] = content["version"]
    if unsupported:
        raise ValueError(f"it asks for {unsupported}, which this tokenizer does not support")
    decoder = content.get("decoder")
    if not isinstance(decoder, Mapping) or decoder.get("type") != "ByteLevel":
        raise ValueError(f"its decoder is {decoder}; expected ByteLevel")
    _check_fields("decoder", decoder, BY_BYTES)


def _check_fields(name: str, fields: Any, known: set[str]) -> None:
    if unknown := sorted(fields.keys() - known):
        raise ValueError(f"its {name} has the field {unknown[0]!r}, which this tokenizer does not know")


def _added_token(fields: Any) -> AddedToken:
    token = AddedToken(**fields)
    wrong = [name for name, value in asdict(token).items() if type(value) is not type(_EXAMPLE[name])]
    if wrong:
        raise ValueError(f"added_tokens holds {dict(fields)}, whose {wrong[0]} is of another type than expected")
    return token


_EXAMPLE = asdict(AddedToken(content="", id=0))


def _check_ids(added: Iterable[AddedToken], vocabulary: Any) -> None:
    """Raises ValueError for an id that the library would not give to a token: it counts on from the vocabulary."""
    following = len(vocabulary)
    for token in added:
        expected = vocabulary.get(token.content, following)
        if token.id != expected:
            raise ValueError(f"added_tokens gives {token.content!r} the id {token.id}; expected {expected}")
        following = max(following, token.id + 1)


def _pattern_of(pre_tokenizer: Any) -> str:
    """The pattern of a byte-level pre-tokenizer: GPT-2's, or that of a split before it."""
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False, **options} if options.get("use_regex", True) is True:
            _check_fields("pre_tokenizer", pre_tokenizer, BY_BYTES)
            return GPT2_PATTERN
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
                | {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True} as split,
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False} as by_bytes,
            ],
        }:
            _check_fields("pre_tokenizer", pre_tokenizer, {"type", "pretokenizers"})
            _check_fields("pre_tokenizer", split, {"type", "pattern", "behavior", "invert"})
            _check_fields("pre_tokenizer", by_bytes, BY_BYTES)
            _check_dialect(pattern)
            return pattern
    raise ValueError(f"its pre-tokenizer is {pre_tokenizer}; expected ByteLevel, alone or after one Split by a pattern")


def _check_dialect(pattern: str) -> None:
    """Raises ValueError for syntax that the library's regular expressions (Oniguruma) read differently from ours."""
    bare = regex.sub(SAME_MEANING, "", pattern)
    if found := regex.search(r"[\^$]|\}\+|\(\?[\w-]*m|\\.|&&", bare):
        raise ValueError(f"its pre-tokenizer has the pattern {pattern!r}, whose {found[0]} has another meaning here")


def _template_of(processor: Any) -> Template:
    """The ids that a post-processor puts before and after a text; ByteLevel only changes offsets."""
    match processor:
        case None:
            return (), ()
        case {"type": "ByteLevel"}:
            _check_fields("post_processor", processor, BY_BYTES)
            return (), ()
        case {"type": "RobertaProcessing" | "BertProcessing", "cls": [_, int(first)], "sep": [_, int(last)]}:
            _check_fields("post_processor", processor, {"cls", "sep", "type", "trim_offsets", "add_prefix_space"})
            return (first,), (last,)
        case {"type": "TemplateProcessing", "single": list(pieces), "special_tokens": specials}:
            _check_fields("post_processor", processor, {"type", "single", "pair", "special_tokens"})
            return _around(pieces, specials)
        case {"type": "Sequence", "processors": list(processors)}:
            _check_fields("post_processor", processor, {"type", "processors"})
            before: tuple[int, ...] = ()
            after: tuple[int, ...] = ()
            for first_ids, last_ids in map(_template_of, processors):
                before, after = first_ids + before, after + last_ids
            return before, after
    raise ValueError(f"its post_processor is {processor}; expected ByteLevel, or special tokens around the text")


def _around(pieces: Sequence[Any], specials: Any) -> Template:
    texts = [place for place, piece in enumerate(pieces) if piece.get("Sequence", {}).get("id") == "A"]
    ids = [tuple(specials[piece["SpecialToken"]["id"]]["ids"]) if "SpecialToken" in piece else () for piece in pieces]
    if len(texts) != 1 or sum("SpecialToken" in piece for piece in pieces) != len(pieces) - 1:
        raise ValueError(f"its post_processor has the template {list(pieces)}; expected the text A once")
    return sum(ids[: texts[0]], ()), sum(ids[texts[0] :], ())


# ---- writing -----------------------------------------------------------------------------------------------------


def file_content(tokenizer: Contents) -> dict[str, Any]:
    """The content of the file. Raises ValueError when an added token is also how another token is written."""
    options = {"add_prefix_space": False, "trim_offsets": True}
    by_bytes = {"type": "ByteLevel", **options, "use_regex": tokenizer.pattern == GPT2_PATTERN}
    split = {"type": "Split", "pattern": {"Regex": tokenizer.pattern}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [asdict(token) for token in sorted(tokenizer.added, key=lambda token: token.id)],
        "normalizer": None,
        "pre_tokenizer": by_bytes
        if by_bytes["use_regex"]
        else {"type": "Sequence", "pretokenizers": [split, by_bytes]},
        "post_processor": _post_processor(tokenizer),
        "decoder": {"type": "ByteLevel", **options, "use_regex": True},
        "model": {
            "type": "BPE",
            **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
            **dict.fromkeys(("fuse_unk", "byte_fallback"), False),
            "ignore_merges": tokenizer.whole_chunks,
            "vocab": to_letters(tokenizer),
            "merges": [[bytes_to_letters(tokenizer.tokens[number]) for number in pair] for pair in tokenizer.merges],
        },
    }


def to_letters(tokenizer: Contents) -> dict[str, int]:
    """The ids of all tokens as the files write them: in letters, added tokens by their names."""
    names = {token.content: token.id for token in tokenizer.added}
    letters = {bytes_to_letters(token): number for number, token in tokenizer.tokens.items()}
    if both := [name for name in sorted(names) if letters.get(name, names[name]) != names[name]]:
        raise ValueError(f"specials {both} are tokens too; expected names that a file can tell from tokens")
    return names | letters


def _post_processor(tokenizer: Contents) -> dict[str, Any] | None:
    before, after = tokenizer.template
    if not before and not after:
        return None
    names = {number: text for text, number in to_letters(tokenizer).items()}
    single = [{"SpecialToken": {"id": names[number], "type_id": 0}} for number in (*before, *after)]
    single.insert(len(before), {"Sequence": {"id": "A", "type_id": 0}})
    specials = {names[n]: {"id": names[n], "ids": [n], "tokens": [names[n]]} for n in (*before, *after)}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}
