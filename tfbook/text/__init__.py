"""From text to batches of ids: words, vocabularies, tokenizers, sentence pairs, masked tokens, answers."""

from tfbook.text.added import AddedToken
from tfbook.text.answers import Answers, Comparison, generated_answers, join_answers
from tfbook.text.bpe import TokenPair, learn_merges
from tfbook.text.byte_level import GPT2_PATTERN, bytes_to_letters, letters_to_bytes, pre_tokenize
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
from tfbook.text.pairs import Batch, Batches, Links, Pair, collate, filter_by_length
from tfbook.text.spans import Corrupted, SpanCorruption, corrupt_spans, restore_spans, span_mask
from tfbook.text.tokenizer import Tokenizer
from tfbook.text.unigram import Unigram
from tfbook.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, CharacterVocabulary, Sentence, Vocabulary
from tfbook.text.windows import Windows
from tfbook.text.wordpiece import WordPiece
from tfbook.text.words import LANGUAGES, detokenize, tokenize

__all__ = [
    "BERT_SPECIALS",
    "BOS",
    "CLS",
    "EOS",
    "GPT2_PATTERN",
    "IGNORE_INDEX",
    "LANGUAGES",
    "MASK",
    "PAD",
    "SEP",
    "SPECIALS",
    "UNK",
    "AddedToken",
    "Answers",
    "Batch",
    "Batches",
    "CharacterVocabulary",
    "Comparison",
    "Corrupted",
    "Links",
    "Masked",
    "Masking",
    "NextSentence",
    "Pair",
    "Sentence",
    "SpanCorruption",
    "TokenPair",
    "Tokenizer",
    "Unigram",
    "Vocabulary",
    "Windows",
    "WordPiece",
    "bytes_to_letters",
    "collate",
    "corrupt_spans",
    "detokenize",
    "filter_by_length",
    "generated_answers",
    "join_answers",
    "join_segments",
    "learn_merges",
    "letters_to_bytes",
    "mask_tokens",
    "next_sentence_pairs",
    "pre_tokenize",
    "restore_spans",
    "span_mask",
    "tokenize",
]
