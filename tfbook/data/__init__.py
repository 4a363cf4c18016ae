"""Corpora: `data.load("tatoeba")` fetches, verifies, caches and reads; the rest turns sentences into batches."""

from tfbook.data.batching import TextBatch, TextBatches
from tfbook.data.download import DataUnavailable
from tfbook.data.images import ImageBatches, Images, LabelledImages, Photographs
from tfbook.data.registry import available, load
from tfbook.data.sentences import Labelled, LabelledTexts
from tfbook.data.text import Characters, Text, Windows
from tfbook.data.tokens import Tokens, read_tokens, write_tokens
from tfbook.data.translation import (
    BOS,
    EOS,
    PAD,
    UNK,
    Batch,
    Batches,
    Pair,
    Translations,
    Vocabulary,
    between,
    collate,
)
from tfbook.data.words import detokenize, tokenize

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "Batches",
    "Characters",
    "DataUnavailable",
    "ImageBatches",
    "Images",
    "Labelled",
    "LabelledImages",
    "LabelledTexts",
    "Pair",
    "Photographs",
    "Text",
    "TextBatch",
    "TextBatches",
    "Tokens",
    "Translations",
    "Vocabulary",
    "Windows",
    "available",
    "between",
    "collate",
    "detokenize",
    "load",
    "read_tokens",
    "tokenize",
    "write_tokens",
]
