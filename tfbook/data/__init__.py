"""Corpora: `data.load("tatoeba")` fetches, verifies, caches and reads; the rest turns sentences into batches."""

from tfbook.data.batching import TextBatch, TextBatches
from tfbook.data.download import DataUnavailable
from tfbook.data.registry import available, load
from tfbook.data.sentences import Labelled, LabelledTexts
from tfbook.data.text import Characters, Text, Windows
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
    "Labelled",
    "LabelledTexts",
    "Pair",
    "Text",
    "TextBatch",
    "TextBatches",
    "Translations",
    "Vocabulary",
    "Windows",
    "available",
    "between",
    "collate",
    "detokenize",
    "load",
    "tokenize",
]
