"""Everything that holds state pickles, so that workers, spawned processes and `torch.save` work."""

import copy
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from inspect import getmembers, isabstract, isclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor, nn

from tfbook import attention, models
from tfbook.attention import efficient, scoring
from tfbook.attention.cache import FixedCache
from tfbook.attention.efficient.linear import LinearState
from tfbook.attention.efficient.lsh import Items
from tfbook.attention.efficient.performer import PerformerState
from tfbook.attention.positions import Rotation, RotationAhead
from tfbook.generation import frozen, integer_products, packed_products, quantization
from tfbook.models import (
    adapters,
    adaptive,
    attentive_cnn,
    audio,
    bert,
    bert_variants,
    blocks,
    captioner,
    clip,
    cnn,
    config,
    conformer,
    conv_mixer,
    convolutions,
    detr,
    experts,
    feed_forward,
    gated,
    gpt,
    graphs,
    language_model,
    memory_network,
    norms,
    outputs,
    patch_mixers,
    pixel_cnn,
    pointer_network,
    recurrent,
    reward,
    sentence_encoder,
    seq2seq,
    state_spaces,
    states,
    swin,
    tabular,
    transformer,
    turing_machine,
    vit,
    wave_net,
)
from tfbook.text import Pair, Vocabulary, batching, pairs, windows

pytestmark = pytest.mark.usefixtures("float32")

SMALL = blocks.Config(d_model=8, heads=2, d_ff=12, position="rotary", dropout=0.1)
BERT = replace(bert.BERT, d_model=8, heads=2, d_ff=12, max_length=12)
VIT = vit.VitConfig(d_model=8, heads=2, d_ff=12, layers=1, height=8, width=8, channels=1)
SWIN = swin.SwinConfig(d_model=8, depths=(1, 2), heads=(2, 2), window=2, patch=2, channels=1)
CONFORMER = conformer.ConformerConfig(d_model=8, heads=2, d_ff=12, layers=1, kernel=3)
WAVE_NET = wave_net.WaveNetConfig(levels=9, d_model=8, d_skip=4, dilations=(1, 2))
PIXEL_CNN = pixel_cnn.PixelCnnConfig(levels=2, d_model=8, layers=1)
CONV_MIXER = conv_mixer.ConvMixerConfig(d_model=8, layers=1, kernel=3, channels=1)
DETR = detr.DetrConfig(d_model=8, heads=2, d_ff=12, layers=1, height=8, width=8, channels=1, backbone=(4,), queries=3)
TABLE = tabular.TableConfig(numbers=5, categories=(8,), d_model=8, heads=2, d_ff=12, layers=1)
GRAPH = graphs.GraphConfig(d_input=8, d_model=8, heads=2, d_ff=12, layers=1)
MEMORY = memory_network.MemoryConfig(vocab=9, sentences=4, d_model=6, hops=2)
CAPTIONER = captioner.CaptionerConfig(vocab=9, height=8, width=8, channels=1, backbone=(4,), d_features=8, d_hidden=6)
AUDIO = audio.AudioConfig(d_model=8, heads=2, d_ff=12, layers=1, window=16, hop=8, bands=4, frames=4, piece=(2, 2))
MACHINE = turing_machine.MachineConfig(d_input=8, d_output=3, slots=6, width=4, d_hidden=5)
POINTER = pointer_network.PointerConfig(d_input=8, d_hidden=6)
WORDS = seq2seq.Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=4, d_hidden=6)
IDS, LENGTHS, IMAGES = torch.tensor([[4, 5, 6, 7], [5, 4, 0, 0]]), torch.tensor([4, 2]), torch.rand(2, 1, 8, 8)
X, HEADS, ALLOWED = torch.randn(2, 5, 8), torch.randn(2, 2, 5, 4), torch.rand(5, 5) < 0.7
EDGES = (ALLOWED | ALLOWED.T).expand(2, 5, 5)
PAIRS = [Pair(("a", "b"), ("c",)), Pair(("b",), ("d", "c")), Pair(("a",), ("d",))]
VOCABULARY = Vocabulary(pair.source + pair.target for pair in PAIRS)


def _bert(vocab: int = 9) -> bert.Bert:
    return bert.Bert(vocab, BERT)


def _translator(decoder: type[seq2seq.RecurrentDecoder]) -> seq2seq.Translator:
    return seq2seq.Translator(seq2seq.RecurrentEncoder(WORDS), decoder(WORDS))


def _transformer() -> transformer.Transformer:
    return transformer.Transformer(transformer.Encoder(9, SMALL), transformer.Decoder(9, SMALL))


def _clip() -> clip.Clip:
    return clip.Clip(clip.ImageTower(5, VIT), clip.TextTower(9, 5, SMALL))


def _encoder() -> sentence_encoder.SentenceEncoder:
    tokenizer = Tokenizer(WordLevel({"a": 1, "b": 2, "[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return sentence_encoder.SentenceEncoder(_bert().eval(), tokenizer, max_length=8)


def _used(model: language_model.LanguageModel) -> blocks.StackCache:
    """A cache that holds keys, values and rotations computed ahead."""
    cache = model.new_cache()
    with torch.no_grad():
        for piece in IDS.split((3, 1), dim=1):
            model(piece, cache=cache)
    return cache


def _recent() -> convolutions.RecentInputs:
    """A cache of a convolution that has read something."""
    cache = convolutions.RecentInputs()
    cache.extend(X, 3)
    return cache


def _tensors(made: Any) -> Any:
    """What can be compared: the tensors inside, in order."""
    if isinstance(made, Tensor):
        return [made]
    values = made.values() if isinstance(made, dict) else made if isinstance(made, (list, tuple)) else ()
    return [tensor for value in values for tensor in _tensors(value)]


# What to make of a class, and what to do with it: a pickled copy has to give the same tensors.
Use = Callable[[Any], Any]
MODULES: dict[type, tuple[Callable[[], Any], Use]] = {
    attention.MultiHeadAttention: (lambda: attention.MultiHeadAttention(8, 2), lambda m: m(X)),
    attention.GroupedQueryAttention: (lambda: attention.GroupedQueryAttention(8, 2), lambda m: m(X)),
    attention.Position: (attention.Position, lambda m: m.add(X)),
    attention.Sinusoidal: (lambda: attention.Sinusoidal(8), lambda m: m.add(X)),
    attention.Learned: (lambda: attention.Learned(6, 8), lambda m: m.add(X)),
    attention.Rotary: (lambda: attention.Rotary(4), lambda m: m.rotate(HEADS)),
    attention.InterpolatedRotary: (lambda: attention.InterpolatedRotary(4, stretch=2.0), lambda m: m.rotate(HEADS)),
    Rotation: (lambda: attention.Rotary(4).prepared(0, 5), lambda m: m.rotate(HEADS)),
    RotationAhead: (lambda: attention.Rotary(4).prepared(3, 1), lambda m: m.rotate(HEADS[:, :, :1], 3)),
    attention.Relative: (lambda: attention.Relative(4), lambda m: m.bias(HEADS, 5)),
    attention.ALiBi: (lambda: attention.ALiBi(2), lambda m: m.bias(HEADS, 5)),
    feed_forward.FeedForward: (lambda: SMALL.make("feed_forward", 8, 12, dropout=0.0), lambda m: m(X)),
    feed_forward.SwiGLU: (lambda: feed_forward.SwiGLU(8, 12), lambda m: m(X)),
    experts.MixtureOfExperts: (lambda: experts.MixtureOfExperts(8, 12, experts=3), lambda m: m(X)),
    norms.LayerNorm: (lambda: norms.LayerNorm(8), lambda m: m(X)),
    norms.RMSNorm: (lambda: norms.RMSNorm(8), lambda m: m(X)),
    norms.BatchNorm: (lambda: norms.BatchNorm(8), lambda m: m(X)),
    blocks.PreNorm: (lambda: SMALL.branch(feed_forward.FeedForward(8, 12)), lambda m: m(X)),
    blocks.PostNorm: (lambda: BERT.branch(feed_forward.FeedForward(8, 12)), lambda m: m(X)),
    blocks.Block: (lambda: blocks.Block(SMALL), lambda m: m(X)),
    blocks.Stack: (lambda: blocks.Stack(SMALL), lambda m: m(X)),
    language_model.ScaledEmbedding: (lambda: language_model.ScaledEmbedding(9, 8), lambda m: m(IDS)),
    language_model.LanguageModel: (lambda: language_model.LanguageModel(9, SMALL), lambda m: m(IDS)),
    language_model.BidirectionalModel: (lambda: language_model.BidirectionalModel(9, SMALL), lambda m: m(IDS)),
    gpt.Gpt: (lambda: gpt.Gpt(9, replace(gpt.GPT2, d_model=8, heads=2, d_ff=12)), lambda m: m(IDS)),
    frozen.Frozen: (lambda: frozen.Frozen(gpt.Gpt(9, SMALL).eval()), lambda m: m(IDS)),
    frozen.Product: (lambda: frozen.Product(nn.Linear(8, 3), dtype=torch.bfloat16), lambda m: m(X)),
    packed_products.PackedProduct: (
        lambda: packed_products.PackedProduct(nn.Linear(8, 3).weight.detach(), None),
        lambda m: m(X),
    ),
    integer_products.IntegerProduct: (
        lambda: integer_products.IntegerProduct(quantization.QuantizedLinear(nn.Linear(16, 3))),
        lambda m: m(X.repeat(1, 1, 2)),
    ),
    frozen.FrozenBlock: (lambda: frozen.FrozenBlock(blocks.Block(SMALL), torch.float32), lambda m: m(X)),
    frozen.FrozenStack: (lambda: frozen.FrozenStack(blocks.Stack(SMALL), torch.float32), lambda m: m(X)),
    adapters.LoraLinear: (lambda: adapters.LoraLinear(nn.Linear(8, 3), rank=2, alpha=2), lambda m: m(X)),
    bert.Bert: (_bert, lambda m: m(IDS, LENGTHS)),
    bert.MaskedTokenHead: (lambda: bert.MaskedTokenHead(_bert()), lambda m: m(X)),
    bert.PooledHead: (lambda: bert.PooledHead(BERT, 3), lambda m: m(X)),
    bert.MaskedLanguageModel: (lambda: bert.MaskedLanguageModel(_bert()), lambda m: m(IDS, LENGTHS)),
    bert.Classifier: (lambda: bert.Classifier(_bert(), 3), lambda m: m(IDS, LENGTHS)),
    bert.Tagger: (lambda: bert.Tagger(_bert(), 3), lambda m: m(IDS, LENGTHS)),
    bert.BertForPretraining: (lambda: bert.BertForPretraining(_bert()), lambda m: m(IDS, LENGTHS)),
    bert_variants.FactorizedEmbedding: (lambda: bert_variants.FactorizedEmbedding(9, 3, 8), lambda m: m(IDS)),
    bert_variants.Albert: (lambda: bert_variants.Albert(9, BERT, d_embed=4), lambda m: m(IDS, LENGTHS)),
    bert_variants.Electra: (
        lambda: bert_variants.Electra(bert.MaskedLanguageModel(_bert()), _bert()),
        lambda m: m.discriminator(IDS, LENGTHS),
    ),
    reward.ValueModel: (lambda: reward.ValueModel(gpt.Gpt(9, SMALL)), lambda m: m(IDS)),
    reward.RewardModel: (lambda: reward.RewardModel(gpt.Gpt(9, SMALL)), lambda m: m(IDS, LENGTHS)),
    cnn.Cnn: (lambda: cnn.Cnn(3, channels=1, width=2), lambda m: m(IMAGES)),
    vit.PatchEmbedding: (lambda: vit.PatchEmbedding(1, 4, 8), lambda m: m(IMAGES)),
    vit.LearnedGrid: (lambda: vit.LearnedGrid((1, 5), 8), lambda m: m.add(X)),
    vit.Vit: (lambda: vit.Vit(3, VIT), lambda m: m(IMAGES)),
    vit.Deit: (lambda: vit.Deit(3, VIT), lambda m: m(IMAGES)),
    attentive_cnn.FeatureAttention: (
        lambda: attentive_cnn.FeatureAttention(5, narrower=5),
        lambda m: m(X[..., None].mT),
    ),
    attentive_cnn.AttentiveCnn: (lambda: attentive_cnn.AttentiveCnn(3, channels=1, width=8), lambda m: m(IMAGES)),
    patch_mixers.TokenMlp: (lambda: patch_mixers.TokenMlp(8, 2, time=5, d_tokens=4), lambda m: m(X)),
    patch_mixers.NoMixer: (lambda: patch_mixers.NoMixer(8, 2), lambda m: m(X)),
    patch_mixers.TokenLinear: (lambda: patch_mixers.TokenLinear(8, 2, time=5), lambda m: m(X)),
    patch_mixers.DepthwiseConvolution: (lambda: patch_mixers.DepthwiseConvolution(8, 2, columns=5), lambda m: m(X)),
    patch_mixers.Affine: (lambda: patch_mixers.Affine(8), lambda m: m(X)),
    patch_mixers.LayerScaled: (
        lambda: patch_mixers.LayerScaled(8, 12, part=feed_forward.FeedForward),
        lambda m: m(X),
    ),
    convolutions.DilatedConvolution: (lambda: convolutions.DilatedConvolution(8, 2), lambda m: m(X)),
    convolutions.GatedConvolution: (lambda: convolutions.GatedConvolution(8, 2), lambda m: m(X)),
    wave_net.WaveNetLayer: (lambda: wave_net.WaveNetLayer(WAVE_NET, 2), lambda m: list(m(X))),
    wave_net.WaveNet: (lambda: wave_net.WaveNet(WAVE_NET), lambda m: m(IDS)),
    conformer.ConvolutionModule: (lambda: conformer.ConvolutionModule(8, kernel=3), lambda m: m(X)),
    conformer.ConformerBlock: (lambda: conformer.ConformerBlock(CONFORMER), lambda m: m(X)),
    conformer.Conformer: (lambda: conformer.Conformer(CONFORMER), lambda m: m(X)),
    pixel_cnn.MaskedConvolution: (
        lambda: pixel_cnn.MaskedConvolution(1, 3, 3, center=True),
        lambda m: m(IMAGES),
    ),
    pixel_cnn.PixelCnn: (lambda: pixel_cnn.PixelCnn(PIXEL_CNN), lambda m: m((IMAGES[:, 0] > 0.5).long())),
    conv_mixer.ConvMixerBlock: (lambda: conv_mixer.ConvMixerBlock(CONV_MIXER), lambda m: m(X.mT[..., None])),
    conv_mixer.ConvMixer: (lambda: conv_mixer.ConvMixer(3, CONV_MIXER), lambda m: m(IMAGES)),
    swin.WindowAttention: (lambda: swin.WindowAttention(8, 2, window=2, shift=1), lambda m: m(X, size=(1, 5))),
    swin.SwinBlock: (lambda: swin.SwinBlock(8, 2, SWIN, shift=1), lambda m: m(X, (1, 5))),
    swin.PatchMerging: (lambda: swin.PatchMerging(8), lambda m: m(X, (1, 5))[0]),
    swin.SwinStage: (lambda: swin.SwinStage(0, SWIN), lambda m: m(X, (1, 5))[0]),
    swin.Swin: (lambda: swin.Swin(3, SWIN), lambda m: m(IMAGES)),
    detr.SinusoidalGrid: (lambda: detr.SinusoidalGrid((1, 5), 8), lambda m: m.add(X)),
    detr.BoxHead: (lambda: detr.BoxHead(8), lambda m: m(X)),
    detr.Detr: (lambda: detr.Detr(3, DETR), lambda m: list(m(IMAGES))),
    captioner.ImageEncoder: (lambda: captioner.ImageEncoder(CAPTIONER), lambda m: list(m(IMAGES))),
    captioner.CaptionDecoder: (lambda: captioner.Captioner(CAPTIONER), lambda m: m(IMAGES, IDS).weights),
    captioner.Captioner: (lambda: captioner.Captioner(CAPTIONER), lambda m: m(IMAGES, IDS).logits),
    audio.AudioTransformer: (lambda: audio.AudioTransformer(3, AUDIO), lambda m: m(X.reshape(2, 40))),
    clip.ConvolutionalPatches: (lambda: clip.ConvolutionalPatches(1, 4, 8), lambda m: m(IMAGES)),
    clip.ImageTower: (lambda: clip.ImageTower(5, VIT), lambda m: [m(IMAGES), m.places(IMAGES)]),
    clip.TextTower: (lambda: clip.TextTower(9, 5, SMALL), lambda m: m(IDS, LENGTHS)),
    clip.Clip: (_clip, lambda m: m(IMAGES, IDS, LENGTHS)),
    tabular.FeatureTokenizer: (lambda: tabular.FeatureTokenizer(5, (8,), 8), lambda m: m(X[..., 0], IDS[:, :1])),
    tabular.FTTransformer: (lambda: tabular.FTTransformer(3, TABLE), lambda m: m(X[..., 0], IDS[:, :1])),
    graphs.GraphConvolution: (lambda: graphs.GraphConvolution(8, 4), lambda m: m(X, EDGES)),
    graphs.GraphAttention: (lambda: graphs.GraphAttention(8, 4, 2), lambda m: m(X, EDGES)),
    graphs.GraphNet: (lambda: graphs.GraphNet(8, 3, kind="dynamic attention"), lambda m: m(X, EDGES)),
    graphs.GraphTransformer: (lambda: graphs.GraphTransformer(3, GRAPH), lambda m: m(X, EDGES)),
    memory_network.MemoryNetwork: (
        lambda: memory_network.MemoryNetwork(MEMORY),
        lambda m: list(m(IDS.reshape(1, 4, 2), IDS[:1])),
    ),
    seq2seq.RecurrentEncoder: (lambda: seq2seq.RecurrentEncoder(WORDS), lambda m: list(m(IDS, LENGTHS))),
    seq2seq.FixedContextDecoder: (
        lambda: _translator(seq2seq.FixedContextDecoder),
        lambda m: m(IDS, LENGTHS, IDS).logits,
    ),
    seq2seq.BahdanauDecoder: (lambda: _translator(seq2seq.BahdanauDecoder), lambda m: m(IDS, LENGTHS, IDS).logits),
    seq2seq.LuongDecoder: (lambda: _translator(seq2seq.LuongDecoder), lambda m: m(IDS, LENGTHS, IDS).logits),
    seq2seq.Translator: (lambda: _translator(seq2seq.LuongDecoder), lambda m: m(IDS, LENGTHS, IDS).logits),
    transformer.Encoder: (lambda: transformer.Encoder(9, SMALL), lambda m: m(IDS, LENGTHS).states),
    transformer.Decoder: (lambda: _transformer().decoder, lambda m: m(IDS, transformer.Memory(X, LENGTHS)).logits),
    transformer.Transformer: (_transformer, lambda m: m(IDS, LENGTHS, IDS).logits),
    turing_machine.FeedForwardController: (
        lambda: turing_machine.FeedForwardController(8, 5),
        lambda m: m(X[0], m.start(X[0]))[0],
    ),
    turing_machine.LstmController: (
        lambda: turing_machine.LstmController(8, 5),
        lambda m: list(m(X[0], m.start(X[0]))[1]),
    ),
    turing_machine.TuringMachine: (lambda: turing_machine.TuringMachine(MACHINE), lambda m: list(m(X))),
    pointer_network.PointerNetwork: (lambda: pointer_network.PointerNetwork(POINTER), lambda m: m.point(X)),
    adaptive.AdaptiveSteps: (lambda: adaptive.AdaptiveSteps(nn.Linear(8, 8), 8, most=3), lambda m: m(X[0]).state),
    **{
        kind: (partial(kind, 8, 2), lambda m: m(X))
        for kind in (gated.MinGru, gated.GatedLinearAttention, gated.Lstm, state_spaces.S4D, state_spaces.Mamba)
    },
    **{
        kind: (partial(kind, 4, 4, 3), lambda m: m(X[..., :4], m.project(X[..., :4])))
        for kind in scoring.SCORES.values()
    },
}
VALUES: dict[type, tuple[Callable[[], Any], Use]] = {
    attention.Band: (lambda: attention.Band(2, 1), lambda m: m.dense(5, 5)),
    attention.Causal: (attention.Causal, lambda m: m.dense(5, 5)),
    attention.Lengths: (lambda: attention.Lengths(LENGTHS), lambda m: m.dense(5, 5)),
    attention.Prefix: (lambda: attention.Prefix(LENGTHS), lambda m: m.dense(5, 5)),
    attention.Dense: (lambda: attention.Dense(ALLOWED), lambda m: m.dense(5, 5)),
    attention.Both: (lambda: attention.Causal() & attention.Lengths(LENGTHS), lambda m: m.dense(5, 5)),
    efficient.Blocks: (lambda: efficient.Blocks(ALLOWED, 1), lambda m: m.dense(5, 5)),
    efficient.Banded: (lambda: efficient.Banded(2), lambda m: m(HEADS, HEADS, HEADS)),
    efficient.BigBird: (lambda: efficient.BigBird(block=2), lambda m: m(HEADS, HEADS, HEADS)),
    efficient.BlockSparse: (lambda: efficient.BlockSparse(torch.eye), lambda m: [torch.tensor(m.block)]),
    efficient.Linear: (efficient.Linear, lambda m: m(HEADS, HEADS, HEADS)),
    efficient.Lsh: (efficient.Lsh, lambda m: m(HEADS, HEADS, HEADS)),
    efficient.Performer: (efficient.Performer, lambda m: m(HEADS, HEADS, HEADS)),
    efficient.Tiled: (efficient.Tiled, lambda m: m(HEADS, HEADS, HEADS)),
    efficient.Axial: (lambda: efficient.Axial(5), lambda m: m(HEADS, HEADS, HEADS)),
    efficient.Neighborhood: (lambda: efficient.Neighborhood(5), lambda m: m(HEADS, HEADS, HEADS)),
    efficient.Windowed: (lambda: efficient.Windowed(5, 2, 1), lambda m: m(HEADS, HEADS, HEADS)),
    efficient.Visibility: (lambda: efficient.Visibility(2, 3, 1, 0, LENGTHS), lambda m: m.lengths),
    Items: (lambda: Items(*[X] * 6), list),
    LinearState: (lambda: LinearState(X, X), list),
    PerformerState: (lambda: PerformerState(X, X), list),
    attention.Cache: (lambda: _used(gpt.Gpt(9, SMALL)).blocks[0].past, lambda m: m.seen()),
    FixedCache: (lambda: FixedCache(torch.randn(1, 2, 3, 4), torch.tensor(1)), lambda m: (m.length, *m.seen())),
    attention.Supports: (lambda: attention.Supports(masks=(attention.Causal,)), lambda m: [torch.tensor(m.bias)]),
    blocks.BlockCache: (lambda: _used(gpt.Gpt(9, SMALL)).blocks[0], lambda m: m.past.seen()),
    blocks.StackCache: (
        lambda: _used(gpt.Gpt(9, SMALL)),
        lambda m: [*m.blocks[1].past.seen(), m.position.rotate(HEADS[:, :, :1], m.length)],
    ),
    blocks.Config: (lambda: SMALL, lambda m: blocks.Stack(m)(X).abs().sign()),
    vit.VitConfig: (lambda: VIT, lambda m: [torch.tensor(m.time)]),
    swin.SwinConfig: (lambda: SWIN, lambda m: [torch.tensor(m.width(1))]),
    conformer.ConformerConfig: (lambda: CONFORMER, lambda m: [torch.tensor(m.kernel)]),
    wave_net.WaveNetConfig: (lambda: WAVE_NET, lambda m: [torch.tensor(m.receptive_field)]),
    pixel_cnn.PixelCnnConfig: (lambda: PIXEL_CNN, lambda m: [torch.tensor(m.layers)]),
    convolutions.RecentInputs: (_recent, lambda m: m.inputs),
    conv_mixer.ConvMixerConfig: (lambda: CONV_MIXER, lambda m: [torch.tensor(m.kernel)]),
    detr.DetrConfig: (lambda: DETR, lambda m: [torch.tensor(m.grid)]),
    captioner.CaptionerConfig: (lambda: CAPTIONER, lambda m: [torch.tensor(m.grid)]),
    audio.AudioConfig: (lambda: AUDIO, lambda m: [torch.tensor(m.samples)]),
    detr.Detections: (lambda: detr.Detections(X, X[..., :4]), list),
    captioner.Captioned: (lambda: captioner.Captioned(IDS, X), list),
    captioner.CaptionState: (lambda: captioner.CaptionState(X[0], X[1], X), list),
    tabular.TableConfig: (lambda: TABLE, lambda m: [torch.tensor(m.time)]),
    graphs.GraphConfig: (lambda: GRAPH, lambda m: [torch.tensor(m.d_input)]),
    memory_network.MemoryConfig: (lambda: MEMORY, lambda m: [torch.tensor(m.hops)]),
    memory_network.MemoryReading: (lambda: memory_network.MemoryReading(X, X), list),
    seq2seq.Seq2SeqConfig: (lambda: WORDS, lambda m: [torch.tensor(m.d_memory)]),
    turing_machine.MachineConfig: (lambda: MACHINE, lambda m: [torch.tensor(m.slots)]),
    turing_machine.Head: (lambda: turing_machine.Head(*X[0].split((4, 1, 1, 1, 1), dim=-1)), list),
    turing_machine.Addressing: (lambda: turing_machine.Addressing(X[0], X[1], X[0], X[1]), list),
    turing_machine.MachineState: (
        lambda: turing_machine.TuringMachine(MACHINE).start(X[0]),
        lambda m: [m.memory, m.reading, m.writing, m.read],
    ),
    turing_machine.MachineRun: (lambda: turing_machine.MachineRun(X, X, X, X), list),
    pointer_network.PointerConfig: (lambda: POINTER, lambda m: [torch.tensor(m.d_hidden)]),
    adaptive.Halting: (lambda: adaptive.halting(X[0].sigmoid()), lambda m: [m.weights, m.ponder]),
    adaptive.Thought: (lambda: adaptive.Thought(X[0], adaptive.halting(X[0].sigmoid())), lambda m: m.state),
    config.WithOptions: (lambda: SMALL.mixer and config.WithOptions(torch.full, (2,), 3.0), lambda m: m()),
    experts.Routes: (lambda: experts.top_experts(X[0], 2), list),
    outputs.Decoded: (lambda: outputs.Decoded(X, None, None), lambda m: m.logits),
    recurrent.LstmState: (lambda: recurrent.LstmState(X, X), list),
    states.RecurrentState: (
        lambda: _used(gpt.Gpt(9, replace(SMALL, mixer="Mamba"))).blocks[0].past,
        lambda m: [m.get("inputs"), m.get("h")],
    ),
    recurrent.CellWeights: (lambda: recurrent.CellWeights.of(nn.GRU(2, 3)), list),
    seq2seq.Annotations: (lambda: seq2seq.Annotations(X, X, ALLOWED), list),
    seq2seq.DecoderState: (lambda: seq2seq.DecoderState(X, None), lambda m: m.hidden),
    transformer.Memory: (lambda: transformer.Memory(X, LENGTHS), list),
    vit.Heads: (lambda: vit.Heads(X, X), list),
    vit.Cost: (lambda: vit.cost(VIT), lambda m: torch.tensor(m)),
    sentence_encoder.SentenceEncoder: (_encoder, lambda m: m.encode(["a b", "b"])),
    sentence_encoder.SemanticIndex: (
        lambda: sentence_encoder.SemanticIndex(_encoder(), ["a b", "b"]),
        lambda m: torch.tensor(m.nearest("b a")[0].score),
    ),
    sentence_encoder.Found: (lambda: sentence_encoder.Found(0.5, 1, "a"), lambda m: torch.tensor(m.score)),
    batching.Sequences: (lambda: batching.Sequences([[4], [5, 6]], pad=0), lambda m: m.padded(torch.arange(2))),
    batching.LengthGroupedSampler: (lambda: batching.LengthGroupedSampler(LENGTHS, size=1, seed=1), lambda m: m(3)),
    pairs.Batch: (lambda: pairs.collate(PAIRS, VOCABULARY, VOCABULARY), lambda m: m.source),
    pairs.Batches: (
        lambda: pairs.Batches(PAIRS, VOCABULARY, VOCABULARY, size=2, seed=1),
        lambda m: [m(3).source, m(0).target_out],
    ),
    pairs.Pair: (lambda: PAIRS[0], lambda m: torch.tensor(VOCABULARY.encode(m.source))),
    windows.Windows: (lambda: windows.Windows(torch.arange(40), length=8, size=2, seed=1), lambda m: m(3)),
}
ABSTRACT = {  # nothing is made of these themselves
    attention.Mask,
    attention.Score,
    config.Savable,
    convolutions.CausalConvolution,
    efficient.EfficientAttention,
    efficient.BlockAttention,
    efficient.GridAttention,
    seq2seq.RecurrentDecoder,
    states.Recurrence,
}
ELSEWHERE = {
    sentence_encoder.SentenceEncoder,
    sentence_encoder.SemanticIndex,
}  # hold a tokenizer; see tests/data/test_hub
CASES = MODULES | VALUES


def _classes(*packages: Any) -> set[type]:
    """The public classes that the modules of these packages define."""
    names = [module.name for p in packages for module in pkgutil.walk_packages(p.__path__, f"{p.__name__}.")]
    others = [frozen, integer_products, packed_products, batching, pairs, windows]
    loaded = [import_module(name) for name in names] + others
    return {
        kind
        for module in loaded
        for name, kind in getmembers(module, isclass)
        if kind.__module__ == module.__name__ and not name.startswith("_") and not isabstract(kind)
    }


def test_no_class_is_forgotten() -> None:
    """A new one is tried here, or said to be abstract."""
    assert _classes(attention, models) - set(CASES) == ABSTRACT


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
@torch.no_grad()
def test_a_pickled_copy_gives_the_same(kind: type) -> None:
    make, use = CASES[kind]
    made = make()
    if isinstance(made, nn.Module):
        made.eval()
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made)
    expected, found = _tensors(use(made)), _tensors(use(again))
    assert expected
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_a_copied_module_has_the_same_state_and_shares_none(kind: type) -> None:
    made = MODULES[kind][0]()
    again = copy.deepcopy(made)
    state = again.state_dict()
    assert [*state] == [*made.state_dict()]
    theirs = {value.data_ptr() for value in made.state_dict().values()}
    assert all(value.data_ptr() not in theirs for value in state.values() if value.numel())


def test_batches_that_were_used_pickle_too() -> None:
    """What they keep of an epoch may go or stay; the batches are the same."""
    batches = pairs.Batches(PAIRS, VOCABULARY, VOCABULARY, size=1, seed=4)
    expected = [batches(step).source for step in range(7)]
    again = pickle.loads(pickle.dumps(batches))
    assert all(torch.equal(again(step).source, expected[step]) for step in (6, 0, 3))


def test_pickled_windows_are_no_larger_than_their_text() -> None:
    """A view of all windows would be written as a copy, `length` times as large."""
    text = torch.arange(5000, dtype=torch.int32)
    assert len(pickle.dumps(windows.Windows(text, length=100, size=2, seed=1))) < 5000 * 4 + 2000


# ---- other processes ---------------------------------------------------------------------------------------------

SPAWNED = """
import sys, torch
torch.set_num_threads(1)
model, ids, expected, batches, source = torch.load(sys.argv[1], weights_only=False)
assert torch.equal(model(ids), expected)
assert torch.equal(batches(1).source, source)
print(type(model).__name__, model.stack.position.__class__.__name__)
"""


@pytest.mark.parametrize("kind", [gpt.Gpt, frozen.Frozen], ids=lambda kind: kind.__name__)
@torch.no_grad()
def test_another_process_loads_a_saved_model(kind: type[nn.Module], tmp_path: Path) -> None:
    """A fresh interpreter, as `spawn` starts, which has imported nothing of the package; with its batches."""
    model, batches = MODULES[kind][0]().eval(), VALUES[pairs.Batches][0]()
    torch.save((model, IDS, model(IDS), batches, batches(1).source), tmp_path / "model.pt")
    command = [sys.executable, "-c", SPAWNED, str(tmp_path / "model.pt")]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [kind.__name__, "Rotary" if kind is frozen.Frozen else "Learned"]
