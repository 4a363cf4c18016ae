"""From strings to batches of ids: words, vocabularies, tokenizers, sentence pairs, masked tokens."""

from tfbook.text.batching import ByLength, Sequences, TextBatch, TextBatches
from tfbook.text.bpe import Spelled, TokenPair, count_pairs, learn_merges, learn_merges_naively, merge
from tfbook.text.masking import (
    BERT_SPECIALS,
    CLS,
    IGNORE_INDEX,
    MASK,
    SEP,
    Masked,
    Masking,
    NextSentence,
    join_segments,
    mask_tokens,
    next_sentence_pairs,
)
from tfbook.text.pairs import Batch, Batches, Links, Pair, between, collate
from tfbook.text.spelling import BYTE_ID, BYTES, GPT2_PATTERN, LETTERS, chunks, read, several, written
from tfbook.text.tokenizer import GONE, OTHER_IDS, Tokenizer
from tfbook.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Characters, Sentence, Vocabulary
from tfbook.text.windows import Windows
from tfbook.text.words import LANGUAGES, detokenize, tokenize

__all__ = [
    "BERT_SPECIALS",
    "BOS",
    "BYTES",
    "BYTE_ID",
    "CLS",
    "EOS",
    "GONE",
    "GPT2_PATTERN",
    "IGNORE_INDEX",
    "LANGUAGES",
    "LETTERS",
    "MASK",
    "OTHER_IDS",
    "PAD",
    "SEP",
    "SPECIALS",
    "UNK",
    "Batch",
    "Batches",
    "ByLength",
    "Characters",
    "Links",
    "Masked",
    "Masking",
    "NextSentence",
    "Pair",
    "Sentence",
    "Sequences",
    "Spelled",
    "TextBatch",
    "TextBatches",
    "TokenPair",
    "Tokenizer",
    "Vocabulary",
    "Windows",
    "between",
    "chunks",
    "collate",
    "count_pairs",
    "detokenize",
    "join_segments",
    "learn_merges",
    "learn_merges_naively",
    "mask_tokens",
    "merge",
    "next_sentence_pairs",
    "read",
    "several",
    "tokenize",
    "written",
]
