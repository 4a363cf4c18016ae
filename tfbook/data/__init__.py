"""Corpora: `data.load("tatoeba")` fetches, verifies, caches and reads; `tfbook.text` turns sentences into batches."""

from tfbook.data.download import DataUnavailable
from tfbook.data.images import ImageBatches, Images, LabelledImages, Photographs
from tfbook.data.registry import available, load
from tfbook.data.sentences import Labelled, LabelledTexts
from tfbook.data.text import Text
from tfbook.data.tokens import Tokens, read_tokens, write_tokens
from tfbook.data.translation import Translations

__all__ = [
    "DataUnavailable",
    "ImageBatches",
    "Images",
    "Labelled",
    "LabelledImages",
    "LabelledTexts",
    "Photographs",
    "Text",
    "Tokens",
    "Translations",
    "available",
    "load",
    "read_tokens",
    "write_tokens",
]
