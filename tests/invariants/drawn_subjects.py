"""Models of every kind as subjects of random cases: each with what it reads, and how it reads it.

Shapes: batch, time, source, d_model.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from drawn_configs import attending
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn

from tfbook.attention import (
    SCORES,
    Band,
    Causal,
    Implementation,
    Lengths,
    Mask,
    MultiHeadAttention,
    fastest,
    fused,
    softmax,
)
from tfbook.attention.efficient import Banded, BigBird, BlockAttention, Lsh
from tfbook.models.adapters import add_lora
from tfbook.models.bert import Bert, BertForPretraining, Classifier, MaskedLanguageModel, Tagger
from tfbook.models.bert_variants import Albert, Electra, student_of
from tfbook.models.blocks import Config, PreNorm, Stack
from tfbook.models.feed_forward import FeedForward
from tfbook.models.gpt import Gpt
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.models.reward import RewardModel, ValueModel
from tfbook.models.sentence_encoder import SentenceEncoder
from tfbook.models.seq2seq import (
    BahdanauDecoder,
    FixedContextDecoder,
    LuongDecoder,
    RecurrentEncoder,
    Seq2SeqConfig,
    Translator,
)
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.models.vit import Deit, Vit, VitConfig, unpatchify

VOCAB = 7
WITHOUT_CACHE = BlockAttention | Lsh  # these need as many queries as keys


class Choices(NamedTuple):
    """What is drawn for a model."""

    config: Config
    own: Implementation  # of self-attention in the first layer, the third, …
    between: Implementation | None  # in the others, if it is another one
    other: Implementation  # of cross-attention
    batch: int
    time: int
    source: int
    option: int  # a number from which each kind of model chooses what it alone has
    dropout: float
    adapted: tuple[str, ...]  # the layers that get adapters


def use(model: nn.Module, choices: Choices) -> None:
    """Gives the attention layers of each stack their implementation, and the model its adapters."""
    stacks: list[Any] = [stack for stack in model.modules() if isinstance(stack, Stack)]
    for stack in stacks:
        for number, block in enumerate(stack.blocks):
            block.mixer.branch.implementation = (choices.own, choices.between or choices.own)[number % 2]
            if block.cross is not None:
                block.cross.branch.implementation = choices.other
    linear = {name.rpartition(".")[2] for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    adapted = [name for name in choices.adapted if name in linear]  # not every mixer has queries
    if adapted and stacks:
        add_lora(model, rank=1 + choices.option % 3, alpha=2.0, where=adapted)


def without_random_blocks(choices: Choices) -> Choices:
    """BigBird's random blocks depend on how many there are, so a shorter text sees others."""
    if not isinstance(choices.own, BigBird):
        return choices
    return choices._replace(own=replace(choices.own, random_blocks=0))


def everywhere(outputs: Tensor, time: int) -> Tensor:
    """The output for a whole text, (batch, …), at each of its positions."""
    return outputs[:, None].expand(-1, time, *outputs.shape[1:])


class Subject:
    """A model with what it reads, and how it reads it: at once, or piece by piece."""

    causal = True
    lengths: Tensor | None = None  # of x, where its padding is masked
    sources: Tensor | None = None  # lengths of what else is read
    model: Any
    x: Tensor  # (batch, time, …): tokens, or vectors in float32

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        """Its output for x, which are the beginnings of `rows`; of what else is read, `source` positions."""
        raise NotImplementedError

    def start(self, rows: Tensor) -> Any:
        """What has been read before the first piece; None for a model that reads all at once."""
        return None

    def step(self, piece: Tensor, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Its output for the next piece of `rows`, and the next state."""
        raise NotImplementedError


class StackSubject(Subject):
    """Vectors, of which there may be none, and in half of the cases a memory, which may be empty."""

    def __init__(self, choices: Choices):
        config, own, batch = choices.config, choices.own, choices.batch
        cross, padded, self.causal, banded = (bool(choices.option >> bit & 1) for bit in range(4))
        if not self.causal:
            choices = without_random_blocks(choices)
        self.model = Stack(attending(config) if cross else config, cross=cross)
        use(self.model, choices)
        self.x = torch.randn(batch, choices.time, config.d_model)
        self.mask: Mask | None = Causal() if self.causal else None
        if self.causal and banded and own.supports.masks in (None, Banded.supports.masks):
            self.mask = Band(2, 0)
        if padded:
            self.lengths = torch.randint(choices.time + 1, (batch,))
        if cross:
            self.memory = torch.randn(batch, choices.source, config.d_model)
            self.sources = torch.randint(choices.source + 1, (batch,))
        self.cached = self.causal and not isinstance(own, WITHOUT_CACHE)

    def _read(self, x: Tensor, rows: Tensor, mask: Mask | None, source: int | None, **options: Any) -> Tensor:
        dtype = next(self.model.parameters()).dtype
        if self.sources is not None:
            options["memory"] = self.memory[rows, :source].to(dtype)
            options["memory_mask"] = Lengths(self.sources[rows])
        return self.model(x.to(dtype), mask, **options)

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        if self.lengths is None:
            return self._read(x, rows, self.mask, source)
        padding = Lengths(self.lengths[rows])
        return self._read(x, rows, padding if self.mask is None else self.mask & padding, source)

    def start(self, rows: Tensor) -> Any:
        return self.model.new_cache() if self.cached and self.lengths is None else None

    def step(self, piece: Tensor, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self._read(piece, rows, self.mask, None, cache=state), state


class LanguageSubject(Subject):
    """`LanguageModel` or `Gpt`."""

    def __init__(self, choices: Choices):
        self.model = (LanguageModel, Gpt)[choices.option % 2](VOCAB, choices.config)
        use(self.model, choices)
        self.x = torch.randint(VOCAB, (choices.batch, max(1, choices.time)))
        self.cached = not isinstance(choices.own, WITHOUT_CACHE)

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        return self.model(x)

    def start(self, rows: Tensor) -> Any:
        return self.model.new_cache() if self.cached else None

    def step(self, piece: Tensor, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model(piece, cache=state), state


class FrozenSubject(LanguageSubject):
    """One of the parts that `Frozen` knows."""

    def __init__(self, choices: Choices):
        config, dense = choices.config, (softmax, fused, fastest)
        known: dict[str, Any] = {
            "mixer": partial(MultiHeadAttention, bias=bool(choices.option & 2)),
            "residual": PreNorm,
        }
        if not isinstance(config.feed_forward, partial) or config.feed_forward.func is not FeedForward:
            known["feed_forward"] = FeedForward
        own = choices.own if choices.own in dense else dense[choices.option % 3]
        super().__init__(choices._replace(config=replace(config, **known), own=own, adapted=()))


class ValueSubject(Subject):
    """What else is made of a language model: a value at each token, a reward for each text, or one without a mask."""

    def __init__(self, choices: Choices):
        choices, kind = without_random_blocks(choices), choices.option % 3
        body = (LanguageModel, Gpt)[choices.option // 3 % 2](VOCAB, choices.config)
        self.model = (ValueModel(body), RewardModel(body), BidirectionalModel(VOCAB, choices.config))[kind]
        use(self.model, choices)
        self.causal = isinstance(self.model, ValueModel)
        self.x = torch.randint(VOCAB, (choices.batch, max(1, choices.time)))
        if isinstance(self.model, RewardModel):
            self.lengths = torch.randint(1, self.x.shape[1] + 1, (choices.batch,))

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        if self.lengths is not None:
            return everywhere(self.model(x, self.lengths[rows])[:, None], x.shape[1])
        return self.model(x)[..., None] if self.causal else self.model(x)


Read = Callable[[Any, Tensor, Tensor, Tensor], Tensor]  # model, ids, lengths, segments → (batch, time, …)


def read_tokens(model: Any, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
    return model(ids, lengths, segments)


def read_texts(model: Any, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
    return everywhere(model(ids, lengths, segments), ids.shape[1])


def read_both_tasks(model: Any, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
    pairs = everywhere(model.next_sentence(model.bert(ids, lengths, segments)), ids.shape[1])
    return torch.cat([model(ids, lengths, segments), pairs], dim=-1)


def read_both_models(model: Any, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
    return torch.cat([part(ids, lengths, segments) for part in (model.generator, model.discriminator)], dim=-1)


def read_meanings(model: Any, ids: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
    return everywhere(model(ids, lengths.clamp(min=1)), ids.shape[1])


def sentence_encoder(bert: Bert) -> SentenceEncoder:
    return SentenceEncoder(bert, Tokenizer(WordLevel({"a": 0}, unk_token="a")), max_length=8)


HEADS: list[tuple[Callable[[Bert], nn.Module], Read]] = [
    (lambda bert: bert, read_tokens),
    (MaskedLanguageModel, read_tokens),
    (lambda bert: Tagger(bert, 3), read_tokens),
    (lambda bert: student_of(bert, 1), read_tokens),
    (BertForPretraining, read_both_tasks),
    (lambda bert: Classifier(bert, 3), read_texts),
    (sentence_encoder, read_meanings),
    (lambda bert: Electra(MaskedLanguageModel(student_of(bert, 1)), bert), read_both_models),
]


class BertSubject(Subject):
    """BERT or ALBERT with each head; texts of length 0 among them."""

    causal = False

    def __init__(self, choices: Choices):
        choices = without_random_blocks(choices)
        bert = (Bert, partial(Albert, d_embed=3))[choices.option % 2](VOCAB, choices.config)
        head, self.read = HEADS[choices.option // 2 % len(HEADS)]
        self.model = head(bert)
        use(self.model, choices)
        self.x = torch.randint(VOCAB, (choices.batch, max(1, choices.time)))
        self.segments = torch.randint(2, self.x.shape)
        self.lengths = torch.randint(self.x.shape[1] + 1, (choices.batch,))

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        return self.read(self.model, x, self.lengths[rows], self.segments[rows, : x.shape[1]])


class VitSubject(Subject):
    """ViT or DeiT as a reader of patches, in one row or two; the logits of each image beside each of its patches."""

    causal = False

    def __init__(self, choices: Choices):
        bits = [choices.option >> bit & 1 for bit in range(4)]
        patches, tokens, channels = max(1, choices.time), choices.option // 16 % 3, 1 + bits[1]
        self.grid = (2, patches // 2) if bits[2] and patches % 2 == 0 else (1, patches)
        size = {"height": 2 * self.grid[0], "width": 2 * self.grid[1], "channels": channels, "patch": 2}
        self.model = (Vit, Deit)[bits[0]](3, VitConfig(**vars(choices.config), **size, tokens=tokens))
        if bits[3]:
            self.model = self.model.at(size["height"], size["width"])
        use(self.model, choices)
        self.x = torch.randn(choices.batch, patches, 4 * channels)

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        images = unpatchify(x, 2, self.grid).to(next(self.model.parameters()).dtype)
        patches = self.model.representations(images)[:, self.model.config.tokens :]
        return torch.cat([patches, everywhere(self.model(images), x.shape[1])], dim=-1)


class TransformerSubject(Subject):
    """A Transformer, its output tied or not; sources of length 0 among them."""

    shortest = 0

    def __init__(self, choices: Choices):
        choices = without_random_blocks(choices)
        self.model = self.build(choices)
        use(self.model, choices)
        self.x = torch.randint(VOCAB, (choices.batch, max(1, choices.time)))
        self.source = torch.randint(VOCAB, (choices.batch, max(1, choices.source)))
        self.sources = torch.randint(self.shortest, self.source.shape[1] + 1, (choices.batch,))
        self.cached = not isinstance(choices.own, WITHOUT_CACHE)

    def build(self, choices: Choices) -> nn.Module:
        decoder = Decoder(VOCAB, attending(choices.config), tied=bool(choices.option % 2))
        return Transformer(Encoder(VOCAB, choices.config), decoder)

    def whole(self, x: Tensor, rows: Tensor, source: int | None = None) -> Tensor:
        width = None if source is None else max(1, source)
        return self.model(self.source[rows, :width], self.sources[rows], x).logits

    def start(self, rows: Tensor) -> Any:
        self.memory = self.model.encoder(self.source[rows], self.sources[rows])
        return self.model.decoder.start(self.memory) if self.cached else None

    def step(self, piece: Tensor, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        decoded = self.model.decoder(piece, self.memory.select(rows), state)
        return decoded.logits, decoded.state


class TranslatorSubject(TransformerSubject):
    """A recurrent translator with each decoder and score; every source has a word."""

    shortest = 1

    def build(self, choices: Choices) -> nn.Module:
        scores = [*SCORES]
        score = scores[choices.option // 3 % len(scores)]
        products = {"dot", "scaled dot", "cosine"}  # of queries and keys of one width
        width = 1 + choices.source
        sizes = Seq2SeqConfig(
            source_vocab=VOCAB,
            target_vocab=VOCAB,
            d_embed=1 + choices.time % 3,
            d_hidden=2 * width,
            d_encoder=width if score in products else (None, 1, 3)[choices.batch % 3],
            dropout=choices.dropout,
        )
        decoder = (FixedContextDecoder, BahdanauDecoder, LuongDecoder)[choices.option % 3]
        options: dict[str, Any] = {} if decoder is FixedContextDecoder else {"score": SCORES[score]}
        return Translator(RecurrentEncoder(sizes), decoder(sizes, **options))
