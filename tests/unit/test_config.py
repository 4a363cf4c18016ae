"""Configs go through JSON and back, parts by name are the parts, and an edited class takes its place in both."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

import pytest
import torch
from drawn_configs import configs_of_every_part
from hypothesis import given, settings
from torch import Tensor
from torch.nn import functional as F

from tfbook import runtime
from tfbook.attention import POSITIONS, GroupedQueryAttention, MultiHeadAttention, softmax
from tfbook.attention.efficient import Banded, BlockSparse
from tfbook.generation.frozen import Frozen
from tfbook.models import blocks, feed_forward
from tfbook.models.bert import BERT, BERT_BASE, BERT_LARGE
from tfbook.models.blocks import Config, PostNorm, Stack
from tfbook.models.config import DEFINED_IN, Savable, WithOptions, name_of, named
from tfbook.models.experts import MixtureOfExperts, dense_dispatch
from tfbook.models.feed_forward import FeedForward, SwiGLU
from tfbook.models.gpt import GPT2, GPT2_LARGE, GPT2_MEDIUM, GPT2_SMALL, GPT2_XL, Gpt
from tfbook.models.norms import LayerNorm, RMSNorm
from tfbook.models.seq2seq import Seq2SeqConfig
from tfbook.models.vit import VIT_BASE, VIT_HUGE, VIT_LARGE, VIT_SMALL, VIT_TINY, VitConfig

PUBLISHED = [BERT, BERT_BASE, BERT_LARGE, GPT2, GPT2_SMALL, GPT2_MEDIUM, GPT2_LARGE, GPT2_XL]
PUBLISHED += [VIT_TINY, VIT_SMALL, VIT_BASE, VIT_LARGE, VIT_HUGE]
LLAMA = Config(norm=RMSNorm, feed_forward=SwiGLU, mixer=partial(GroupedQueryAttention, groups=2, bias=False))
MIXTURE = partial(MixtureOfExperts, experts=4, k=2, expert=GPT2.feed_forward, dispatch=dense_dispatch)
OTHERS = [
    Config(),
    LLAMA,
    Config(feed_forward=MIXTURE, residual=PostNorm, position=POSITIONS["ALiBi"]),
    Config(mixer=partial(MultiHeadAttention, implementation=Banded(3)), norm=partial(LayerNorm, eps=0.1)),
    Config(mixer=partial(MultiHeadAttention, implementation=softmax)),
    VitConfig(norm=RMSNorm, tokens=0, position="rotary"),
    Seq2SeqConfig(source_vocab=9, target_vocab=11),
    Seq2SeqConfig(source_vocab=9, target_vocab=11, d_encoder=5, dropout=0.5),
]


def through_json(config: Savable) -> Savable:
    return type(config).from_dict(json.loads(json.dumps(config.to_dict())))


# ---- to JSON and back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [*PUBLISHED, *OTHERS], ids=lambda config: type(config).__name__)
def test_a_config_comes_back_equal(config: Savable) -> None:
    again = through_json(config)
    assert again == config
    assert hash(again) == hash(config)
    assert type(again) is type(config)
    assert all(through_json(replace(config, dropout=dropout)) != config for dropout in (0.25, 0.75))


@given(configs_of_every_part())
@settings(max_examples=50)
def test_every_part_comes_back_and_makes_the_same_model(config: Config) -> None:
    again = through_json(config)
    assert again == config
    outputs = []
    for each in (config, again):
        torch.manual_seed(1)
        outputs.append(Stack(each)(torch.ones(1, 3, config.d_model)))
    assert torch.equal(*outputs)


def test_what_is_written_can_be_read_by_people() -> None:
    assert LLAMA.to_dict() == {
        "d_model": 128,
        "heads": 4,
        "d_ff": 512,
        "layers": 2,
        "dropout": 0.0,
        "max_length": 256,
        "position": "sinusoidal",
        "mixer": {"name": "GroupedQueryAttention", "groups": 2, "bias": False},
        "feed_forward": "SwiGLU",
        "norm": "RMSNorm",
        "residual": "PreNorm",
    }
    activation = {"name": "gelu", "approximate": "tanh"}
    assert GPT2.to_dict()["feed_forward"] == {"name": "FeedForward", "activation": activation}


def test_a_field_that_is_missing_has_its_default() -> None:
    """As in a file that was written before the field was there."""
    assert Config.from_dict({"d_model": 64}) == Config(d_model=64)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: Config.from_dict({"width": 3}), "written holds 'width'; Config has d_model, heads, d_ff"),
        (
            lambda: Config.from_dict({"norm": "os.system"}),
            "'os.system' is not the name of a part; expected one",
        ),
        (lambda: Config.from_dict({"norm": {"eps": 3}}), "'' is not the name of a part"),
        (
            lambda: Config(norm="RMSnorm"),
            "norm is 'RMSnorm'; expected .* part; expected .*LayerNorm",
        ),
        (
            lambda: Config(norm=lambda d_model: RMSNorm(d_model)).to_dict(),
            "<lambda>.* has no name in ",
        ),
        (lambda: Config(norm=partial(RMSNorm, 8)).to_dict(), "has arguments without a name, so it cannot be saved"),
        (
            lambda: Config(mixer=partial(MultiHeadAttention, implementation=BlockSparse(torch.eye))).to_dict(),
            "<built-in method eye.* has no name",
        ),
    ],
)
def test_what_has_no_name_is_neither_written_nor_read(read: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read()


def test_every_name_is_that_of_what_it_names() -> None:
    assert all(name_of(named(name)) == name for name in [*POSITIONS, *DEFINED_IN])


# ---- parts by name -----------------------------------------------------------------------------------------------


NAMED = {
    "position": ("learned", POSITIONS["learned"]),
    "mixer": ("GroupedQueryAttention", GroupedQueryAttention),
    "feed_forward": ("SwiGLU", SwiGLU),
    "norm": ("RMSNorm", RMSNorm),
    "residual": ("PostNorm", PostNorm),
}


@pytest.mark.parametrize("field", blocks.PARTS)
def test_a_part_by_name_is_the_part(field: str) -> None:
    name, part = NAMED[field]
    config = Config(**{field: name})
    assert getattr(config, field) is part
    assert config == Config(**{field: part})


def test_options_are_compared_by_value() -> None:
    """Of a `partial` on either side, too."""
    one, other = (Config(norm=partial(LayerNorm, eps=eps)) for eps in (0.1, 0.2))
    assert one == Config(norm=partial(LayerNorm, eps=0.1)) != other
    assert one.norm == partial(LayerNorm, eps=0.1)
    assert one.norm != LayerNorm
    assert WithOptions(F.gelu) != WithOptions(F.relu)


# ---- edited parts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [Config(), GPT2, Config(feed_forward=FeedForward), Config(feed_forward="FeedForward"), Config.from_dict({})],
    ids=["default", "options", "class", "name", "read"],
)
def test_an_edited_part_is_used_by_models_built_afterwards(config: Config) -> None:
    """Whichever way the config names it, until it is restored; and a frozen model refuses it."""

    class FeedForward(feed_forward.FeedForward):
        def forward(self, x: Tensor) -> Tensor:
            return 0 * x

    model = Gpt(9, config)
    runtime.use(FeedForward)
    try:
        edited = Gpt(9, config)
        assert type(edited.stack.blocks[0].feed_forward.branch) is FeedForward
        with pytest.raises(ValueError, match="a feed-forward network is an edited FeedForward; a frozen model"):
            Frozen(edited)
    finally:
        runtime.restore()
    for built in (model, Gpt(9, config)):
        assert type(built.stack.blocks[0].feed_forward.branch) is feed_forward.FeedForward


def test_configs_are_frozen_dataclasses_of_names_and_numbers() -> None:
    """So that a new field of another kind is thought of."""
    kinds = {type(value) for config in PUBLISHED for field in fields(config) if (value := config.to_dict()[field.name])}
    assert kinds <= {int, float, str, dict}
