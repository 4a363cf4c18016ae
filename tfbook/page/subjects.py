"""The model of a page, with its vocabulary and the texts to begin with: the storyteller, or a run of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tfbook.data.stories import words_of
from tfbook.data.stories.lexicon import SPEECH
from tfbook.models.gpt import Gpt
from tfbook.pretrain import driver, storyteller as stories
from tfbook.pretrain.corpus import TextVocabulary, read_corpus
from tfbook.pretrain.run import load_pretrained, read_options
from tfbook.text.byte_level import GPT2_PATTERN
from tfbook.text.tokenizer import Tokenizer
from tfbook.text.vocabulary import BOS, EOS, UNK, CharacterVocabulary, Vocabulary

START = (
    "Once there was a shy fox named Lily who lived by the river. Lily had a red kite. One day, the wind blew it to the "
    "very top of a tall tree. “I cannot do it,” said"
)

TIPS = (
    "Try it: head 3.1 looks for the one who speaks. Silence it, and “Lily” falls from 99% to 5%.",
    "Try it: press “Implant”, then “Write on”. The story goes on with Mia, whom your text never mentions: one vector "
    "at the first “Lily” is enough.",
)


class Subject(NamedTuple):
    """A model and everything that its page says of it."""

    model: Gpt
    vocabulary: Vocabulary | TextVocabulary
    longest: int  # tokens that it has been trained to see at once
    title: str
    lead: str
    start: str  # the text that the reader finds …
    other: str  # … and the one that implants come from
    head: tuple[int, int] = (0, 0)  # the block and the head that is chosen at first, from 0 on
    tips: tuple[str, str] = ("", "")  # what to try with a head, and with an implant


def storyteller() -> Subject:
    """The storyteller that ships, with two texts of which one names another fox."""
    teller = stories.load_storyteller()
    return Subject(
        model=teller.model,
        vocabulary=teller.vocabulary,
        longest=stories.MODELS["storyteller"].max_length,
        title="A language model in a page",
        lead="This small GPT knows how stories of a little world go on. Begin one, let it write, and look inside.",
        start=START,
        other=START.replace("Lily", "Mia"),
        head=(2, 0),
        tips=TIPS,
    )


def from_run(folder: str | Path) -> Subject:
    """The model of a run of `python -m tfbook.pretrain`, with texts from its validation part.

    Raises ValueError for a folder without a run, and what `load_pretrained` raises.
    """
    if not driver.options_file(folder).is_file():
        raise ValueError(f"RUN is {str(folder)!r}; expected the folder of a run of python -m tfbook.pretrain")
    model, vocabulary = load_pretrained(folder)
    options, ids = read_options(folder), read_corpus(folder).valid
    size = max(1, options.context // 2)
    start, other = (vocabulary.decode(ids[place * size : (place + 1) * size].long()) for place in (0, 1))
    corpus = Path(options.corpus).name
    return Subject(
        model=model,
        vocabulary=vocabulary,
        longest=options.context,
        title=f"A language model of {corpus}",
        lead=f"This small GPT was trained on {corpus}. Begin a text, let it write, and look inside.",
        start=start,
        other=other or start,
    )


# ---- vocabularies as tokenizers.js reads them ----------------------------------------------------------------------


def described(vocabulary: Vocabulary | TextVocabulary) -> dict[str, Any]:
    """The tokens of a vocabulary, by id, and the rules by which a text becomes tokens.

    Raises ValueError for a byte-pair tokenizer with other rules than those that `Tokenizer.learn` gives by default.
    """
    if isinstance(vocabulary, Vocabulary):
        capitalized = [token for token in vocabulary.tokens if token != token.lower() and words_of(token) == [token]]
        rules = {"bos": BOS, "eos": EOS, "unknown": UNK, "capitalized": capitalized, "speech": sorted(SPEECH)}
        return {"kind": "words", "tokens": vocabulary.tokens, **rules}
    if isinstance(vocabulary, CharacterVocabulary):
        return {"kind": "characters", "tokens": vocabulary.tokens}
    _check_plain(vocabulary)
    tokens = [vocabulary.tokens[number].decode("latin-1") for number in range(len(vocabulary))]
    return {"kind": "bytes", "tokens": tokens, "merges": vocabulary.merges}


def _check_plain(tokenizer: Tokenizer) -> None:
    """Raises ValueError for a tokenizer with more than merges."""
    if tokenizer.pattern != GPT2_PATTERN:
        raise ValueError(f"the tokenizer has the pattern {tokenizer.pattern!r}; a page knows GPT-2's only")
    if tokenizer.added or tokenizer.whole_chunks or any(tokenizer.template):
        raise ValueError("the tokenizer has added tokens, whole chunks or a template; a page knows merges only")
