"""Shapes and dtypes are part of each signature; the tests' run-time check names the argument that breaks one.

What a reader meets without that check, at the entry points, is tested beside the function.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jaxtyping
import pytest
import torch
from torch import nn

from tfbook import attention, training
from tfbook.attention import AdditiveScore, cache, masks, positions
from tfbook.course import invariants, metrics
from tfbook.generation import search
from tfbook.models import recurrent, seq2seq, transformer
from tfbook.models.blocks import Block, Config
from tfbook.models.experts import MixtureOfExperts
from tfbook.models.language_model import LanguageModel
from tfbook.models.norms import layer_norm
from tfbook.models.reward import RewardModel

pytestmark = pytest.mark.skipif(os.environ.get("TFBOOK_CHECK") == "0", reason="TFBOOK_CHECK=0 switches the checks off")

X, H, IDS, LENGTHS = torch.ones(2, 3), torch.ones(2, 4), torch.ones(2, 5, dtype=torch.int64), torch.tensor([5, 5])
WEIGHTS = recurrent.CellWeights.of(nn.GRU(3, 4))
SCORE = AdditiveScore(3, 4, 6)
HEADS, ATTENTION = torch.ones(2, 1, 5, 4), attention.MultiHeadAttention(4, 2)
SIZES = seq2seq.Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=3, d_hidden=4)
MODEL = seq2seq.Translator(seq2seq.RecurrentEncoder(SIZES), seq2seq.LuongDecoder(SIZES))
BLOCKS = Config(d_model=4, heads=2, d_ff=5)
TRANSFORMER = transformer.Transformer(transformer.Encoder(9, BLOCKS), transformer.Decoder(9, BLOCKS))
WORDS = torch.ones(2, 5, 4)


@pytest.mark.parametrize(
    ("name", "function", "arguments"),
    [
        ("lengths", masks.padding_mask, (LENGTHS.float(), 5)),
        ("lengths", masks.padding_mask, (LENGTHS[None], 5)),
        ("mask", attention.masked_softmax, (H, torch.ones(2, 4))),
        ("k", attention.softmax, (HEADS, HEADS[..., :3], HEADS)),
        ("v", attention.fused, (HEADS, HEADS, HEADS[:, :, :4])),
        ("mask", attention.fastest, (HEADS, HEADS, HEADS, torch.ones(5, 5))),
        ("x", attention.split_heads, (X, 1)),
        ("x", attention.merge_heads, (X,)),
        ("key", ATTENTION, (torch.ones(2, 5, 4), torch.ones(3, 5, 4))),
        ("h", recurrent.gru_step, (X, torch.ones(3, 4), WEIGHTS)),
        ("h", recurrent.gru_step, (X, torch.ones(2, 1, 4), WEIGHTS)),
        ("x", recurrent.gru_step, (X[None], H, WEIGHTS)),
        ("x", recurrent.gru_step, (X.long(), H, WEIGHTS)),
        ("keys", SCORE.project, (torch.ones(2, 4),)),
        ("projected", SCORE, (torch.ones(2, 1, 3), torch.ones(3, 5, 6))),
        ("query", SCORE, (X, torch.ones(2, 5, 6))),
        ("lengths", MODEL, (IDS, torch.tensor([5]), IDS)),
        ("target", MODEL, (IDS, LENGTHS, IDS[:1])),
        ("source", MODEL, (IDS.float(), LENGTHS, IDS)),
        ("positions", positions.sinusoid, (IDS[0], 4)),
        ("x", positions.Sinusoidal(4).add, (HEADS,)),
        ("x", positions.Rotary(4).rotate, (WORDS,)),
        ("angles", positions.turned, (HEADS, torch.ones(4, 2))),
        ("q", positions.ALiBi(1).bias, (WORDS, 5)),
        ("q", positions.Relative(4).bias, (HEADS.long(), 5)),
        ("v", cache.Cache().extend, (HEADS, HEADS[:, :, :4])),
        ("rows", cache.Cache().select, (X,)),
        ("weight", layer_norm, (X, torch.ones(4), torch.ones(3))),
        ("memory", partial(Block(BLOCKS, cross=True), memory=WORDS[:1]), (WORDS,)),
        ("ids", LanguageModel(9, BLOCKS), (X,)),
        ("source", TRANSFORMER, (IDS.float(), LENGTHS, IDS)),
        ("lengths", TRANSFORMER, (IDS, LENGTHS[:1], IDS)),
        ("target", TRANSFORMER, (IDS, LENGTHS, IDS[:1])),
        ("rows", transformer.Memory(WORDS, LENGTHS).select, (X,)),
        ("targets", training.masked_token_loss, (WORDS[0], IDS[0, :-1])),
        ("rejected", training.bradley_terry_loss, (X[0], H[0])),
        ("answered", partial(training.generalized_advantages, gamma=1, lam=1), (X, X, X)),
        ("reference", training.exact_kl, (X, H)),
        ("x", MixtureOfExperts(4, 5, experts=2), (H,)),
        ("lengths", RewardModel(LanguageModel(9, BLOCKS)), (IDS, LENGTHS[:1])),
        ("lengths", search.greedy_search, (MODEL, IDS, LENGTHS[:1])),
        ("lengths", search.beam_search, (TRANSFORMER, IDS, LENGTHS[:1])),
        ("weights", metrics.hard_alignment, (torch.ones(1, 2, 3),)),
        ("mask", invariants.convexity, (torch.ones(2, 3, 5), torch.ones(2, 3, 4, dtype=torch.bool))),
        ("tokens", invariants.future_leak, (lambda x: x, IDS.float(), 9)),
        ("lengths", invariants.padding_effect, (lambda x, n: x, IDS, torch.tensor([5]))),
        ("x", invariants.permutation_gap, (lambda x: x, IDS)),
        ("x", invariants.dependence, (lambda x: x, X)),
        ("x", invariants.blocked_rows, (attention.softmax, X, masks.Causal())),
        ("lengths", invariants.attention_report, (ATTENTION, WORDS, LENGTHS[:1])),
        ("ids", invariants.language_model_report, (LanguageModel(9, BLOCKS), X)),
    ],
)
def test_the_argument_with_the_wrong_shape_or_dtype_is_named(
    name: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match=f"typechecking parameter '{name}'"):
        function(*arguments)
