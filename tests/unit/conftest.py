"""What several unit tests share: a precision, a small translator of each kind, sentences of different lengths."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from tfbook import runtime
from tfbook.attention import POSITIONS
from tfbook.course.translators import Task
from tfbook.data.translation import Translations
from tfbook.generation import sampling
from tfbook.generation.captured import Captured
from tfbook.models.blocks import Config, PostNorm, PreNorm
from tfbook.models.seq2seq import (
    BahdanauDecoder,
    FixedContextDecoder,
    LuongDecoder,
    RecurrentEncoder,
    Seq2SeqConfig,
    Translator,
)
from tfbook.models.transformer import Decoder, Encoder as Reader, Transformer
from tfbook.text import EOS, Batch, Pair, Vocabulary, collate
from tfbook.training import loop, vocabulary

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside the tests
from recorded import as_it_is
from toy_translators import SHORT, toy_corpus

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
def house_style() -> Iterator[None]:
    """The style in which lessons draw, taken back afterward: a later test may look for a title in the middle."""
    import matplotlib as mpl

    from tfbook import plot

    with mpl.rc_context():
        plot.style()
        yield


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """In training, the host runs ahead of the CPU as it does of CUDA, looks every third step, and pads vocabularies."""
    monkeypatch.setattr(loop, "RUNS_AHEAD", ("cpu",))
    monkeypatch.setattr(loop, "LOOK_EVERY", 3)
    monkeypatch.setattr(vocabulary, "PADDED_ON", ("cpu",))
    monkeypatch.setattr(vocabulary, "SMALLEST", 2)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generating takes a fixed memory, and looks every few tokens."""
    monkeypatch.setattr(sampling, "on_gpu", lambda ids: True)
    monkeypatch.setattr(sampling, "Captured", partial(Captured, record=as_it_is))


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
def config(source_vocab: Vocabulary, target_vocab: Vocabulary) -> Seq2SeqConfig:
    return Seq2SeqConfig(
        source_vocab=len(source_vocab), target_vocab=len(target_vocab), d_embed=5, d_hidden=4, dropout=0.2
    )


RECURRENT = {"fixed": FixedContextDecoder, "bahdanau": BahdanauDecoder, "luong": LuongDecoder}


@pytest.fixture(params=RECURRENT)
def translator(request: pytest.FixtureRequest, config: Seq2SeqConfig) -> Translator:
    """In double precision and eval mode, so that equal means equal."""
    torch.manual_seed(0)
    return Translator(RecurrentEncoder(config), RECURRENT[request.param](config)).double().eval()


@pytest.fixture(params=[*RECURRENT, *POSITIONS, "post-norm"])
def speaker(request: pytest.FixtureRequest, config: Seq2SeqConfig) -> Translator | Transformer:
    """The same and a Transformer with each encoding of positions, with weights that make them say different things."""
    torch.manual_seed(3)
    if request.param in RECURRENT:
        model = Translator(RecurrentEncoder(config), RECURRENT[request.param](config))
    else:
        position, pre_norm = ("sinusoidal", False) if request.param == "post-norm" else (request.param, True)
        blocks = Config(
            d_model=8,
            heads=2,
            d_ff=12,
            dropout=0.2,
            position=POSITIONS[position],
            max_length=16,
            residual=PreNorm if pre_norm else PostNorm,
        )
        model = Transformer(Reader(config.source_vocab, blocks), Decoder(config.target_vocab, blocks, tied=False))
    for parameter in model.parameters():
        if parameter.ndim > 1:  # tied tables repeat themselves and drawn shifts say one word whatever the source
            nn.init.normal_(parameter)
    with torch.no_grad():
        model.decoder.unembed.weight[EOS] *= 2  # some texts end
    return model.double().eval()


# ---- a corpus of the few pairs, and a small Transformer for it ---------------------------------------------------


@pytest.fixture
def corpus(pairs: list[Pair]) -> Translations:
    """With gold links: one that is sure, one that is possible."""
    links = {"sure": frozenset({(0, 0)}), "possible": frozenset({(0, 0), (0, 1)})}
    return toy_corpus([pair._replace(**links) for pair in pairs])


@pytest.fixture
def task(corpus: Translations) -> Task:
    return Task.of(corpus, corpus["train"])


@pytest.fixture
def model(task: Task) -> Transformer:
    runtime.seed(3)
    return SHORT.build(task).eval()
