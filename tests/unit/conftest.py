"""What several unit tests share: a precision, a small translator with each decoder, sentences of different lengths."""

from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from tfbook import runtime
from tfbook.data.translation import Batch, Pair, Vocabulary, collate
from tfbook.seq2seq import BahdanauDecoder, Encoder, FixedContextDecoder, LuongDecoder, Seq2SeqSizes, Translator

PAIRS = [
    Pair(("the", "black", "cat", "sleeps"), ("le", "chat", "noir", "dort")),
    Pair(("run",), ("courez",)),
    Pair(("the", "cat"), ("le", "chat")),
    Pair(("a", "dog", "runs"), ("un", "chien", "qui", "court", "vite")),
]


@pytest.fixture
def float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For numbers that are compared exactly, so that no probe chooses bfloat16."""
    monkeypatch.setenv("TFBOOK_PRECISION", "float32")
    runtime.precision.cache_clear()
    yield
    runtime.precision.cache_clear()


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the tests' run-time check of signatures, so that an error is the one that a reader gets."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="session")
def pairs() -> list[Pair]:
    return PAIRS


@pytest.fixture(scope="session")
def source_vocab() -> Vocabulary:
    return Vocabulary(pair.source for pair in PAIRS)


@pytest.fixture(scope="session")
def target_vocab() -> Vocabulary:
    return Vocabulary(pair.target for pair in PAIRS)


@pytest.fixture
def batch(source_vocab: Vocabulary, target_vocab: Vocabulary) -> Batch:
    return collate(PAIRS, source_vocab, target_vocab)


@pytest.fixture
def sizes(source_vocab: Vocabulary, target_vocab: Vocabulary) -> Seq2SeqSizes:
    return Seq2SeqSizes(
        source_vocab=len(source_vocab), target_vocab=len(target_vocab), d_embed=5, d_hidden=4, dropout=0.2
    )


@pytest.fixture(params=[FixedContextDecoder, BahdanauDecoder, LuongDecoder], ids=["fixed", "bahdanau", "luong"])
def translator(request: pytest.FixtureRequest, sizes: Seq2SeqSizes) -> Translator:
    """In double precision and eval mode, so that equal means equal."""
    torch.manual_seed(0)
    return Translator(Encoder(sizes), request.param(sizes)).double().eval()
