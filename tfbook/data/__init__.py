"""Data sets: `data.load("tatoeba")` downloads, verifies, caches and reads one; `tfbook.text` makes batches of it."""

from tfbook.data.download import DataUnavailable
from tfbook.data.images import ImageBatches, Images, LabeledImages, Photographs
from tfbook.data.registry import available, load
from tfbook.data.sentences import LabeledText, LabeledTexts
from tfbook.data.text import Text, TextFile, read_text_file
from tfbook.data.tokens import Tokens, read_tokens, write_token_blocks, write_tokens
from tfbook.data.translation import Translations

__all__ = [
    "DataUnavailable",
    "ImageBatches",
    "Images",
    "LabeledImages",
    "LabeledText",
    "LabeledTexts",
    "Photographs",
    "Text",
    "TextFile",
    "Tokens",
    "Translations",
    "available",
    "load",
    "read_text_file",
    "read_tokens",
    "write_token_blocks",
    "write_tokens",
]
