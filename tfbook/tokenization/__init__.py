"""Text to tokens: byte-level byte-pair encoding, learned from text and applied to any text.

A text is cut into chunks (roughly words), each chunk into bytes, and the bytes are joined again, the pair that was most
frequent in learning first. Every text can be encoded, because every byte is a token.
"""

from tfbook.tokenization.learning import count_pairs, learn, learn_naively, merge
from tfbook.tokenization.spelling import BYTES, GPT2_PATTERN, chunks
from tfbook.tokenization.tokenizer import Tokenizer

__all__ = ["BYTES", "GPT2_PATTERN", "Tokenizer", "chunks", "count_pairs", "learn", "learn_naively", "merge"]
