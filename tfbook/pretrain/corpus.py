"""The corpus of a run: a text, its vocabulary, and its token ids in files.

Shapes: time, vocab.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int64, Integer
from torch import Tensor

from tfbook import data, files
from tfbook.data.text import Text, TextFile
from tfbook.text.tokenizer import Tokenizer
from tfbook.text.vocabulary import CharacterVocabulary

CORPORA = ("tiny-shakespeare", "python-reference")
PARTS = ("train", "valid")
FILES = ("vocabulary.json", "train.tokens", "valid.tokens")  # in the folder of a run

TextVocabulary = CharacterVocabulary | Tokenizer


class Corpus(NamedTuple):
    """A text as ids, in two parts, and the vocabulary that encodes and decodes them."""

    vocabulary: TextVocabulary
    train: Integer[Tensor, " time"]
    valid: Integer[Tensor, " time"]


def load_text(corpus: str) -> Text | TextFile:
    """One of `CORPORA`, or a text file, of any size; the second corpus when the first is not available.

    Raises ValueError when `corpus` is neither, and as `read_text_file` does.
    """
    if corpus in CORPORA:
        return data.load(corpus, fallback=CORPORA[1] if corpus == CORPORA[0] else None)
    path = Path(corpus)
    if not path.is_file():
        raise ValueError(f"corpus is {corpus!r}; expected {', '.join(CORPORA)} or the path of a text file")
    text = TextFile.scan(path)
    print(text)
    return text


def byte_counts(vocabulary: TextVocabulary) -> Int64[Tensor, " vocab"]:
    """The number of UTF-8 bytes that each token stands for in a text: 0 for a special one, whose name is not text."""
    if isinstance(vocabulary, CharacterVocabulary):
        return torch.tensor([len(character.encode()) for character in vocabulary.tokens])
    tokens, special = range(len(vocabulary)), {*vocabulary.specials.values()} - vocabulary.tokens.keys()
    return torch.tensor([0 if token in special else len(vocabulary.decode_bytes(token)) for token in tokens])


def write_corpus(folder: str | Path, text: Text | TextFile, vocab: int, *, context: int = 0) -> None:
    """Tokenizes the text, block by block, and writes the ids and their vocabulary into `folder`.

    `vocab` is the size of a byte-pair vocabulary learned on the training part, or 0 for characters. Raises ValueError,
    and leaves nothing there, when it is too small or a part of the text has no more than `context` tokens.
    """
    vocabulary = Tokenizer.learn(text.blocks("train"), vocab) if vocab else text.characters
    try:
        for part in PARTS:
            ids = (torch.as_tensor(vocabulary.encode(block), dtype=torch.int64) for block in text.blocks(part))
            count = data.write_token_blocks(_tokens(folder, part), ids, len(vocabulary))
            if count <= context:
                found = f"the {part} part of {text.name} has {count} tokens"
                raise ValueError(f"{found}; expected context + 1 = {context + 1} or more")
    except BaseException:
        for part in PARTS:
            _tokens(folder, part).unlink(missing_ok=True)
        raise
    if isinstance(vocabulary, Tokenizer):
        vocabulary.save(_vocabulary(folder))
    else:
        files.write_text(_vocabulary(folder), json.dumps({"characters": "".join(vocabulary.tokens)}))


def read_corpus(folder: str | Path) -> Corpus:
    """The corpus that `write_corpus` wrote, its ids memory-mapped.

    Raises FileNotFoundError, and ValueError for a damaged file and for ids of another vocabulary.
    """
    vocabulary, ids = read_vocabulary(folder), []
    for path in (_tokens(folder, part) for part in PARTS):
        tokens = data.read_tokens(path)
        if tokens.vocab != len(vocabulary):
            found = f"{path} was written with {tokens.vocab:,} tokens"
            raise ValueError(f"{found}; {_vocabulary(folder)} holds {len(vocabulary):,}, so it is another text's")
        ids.append(tokens.ids)
    return Corpus(vocabulary, *ids)


def read_vocabulary(folder: str | Path) -> TextVocabulary:
    """The vocabulary that `write_corpus` wrote. Raises FileNotFoundError, and ValueError when the file is damaged."""
    path = _vocabulary(folder)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error})") from error
    match content:
        case {"characters": str(characters)} if characters:
            return CharacterVocabulary(characters)
    return Tokenizer.load(path)


def _tokens(folder: str | Path, part: str) -> Path:
    return Path(folder, f"{part}.tokens")


def _vocabulary(folder: str | Path) -> Path:
    return Path(folder, "vocabulary.json")
