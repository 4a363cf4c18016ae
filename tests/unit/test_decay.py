"""Weight decay: which parameters of each model shrink, by their names, whatever their shapes; and that they do."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn

import tfbook.models
from tfbook.attention import POSITIONS, GroupedQueryAttention
from tfbook.attention.scoring import SCORES
from tfbook.models.adapters import add_lora
from tfbook.models.adaptive import AdaptiveSteps
from tfbook.models.attentive_cnn import AttentiveCnn
from tfbook.models.audio import AudioConfig, AudioTransformer
from tfbook.models.bert import BERT, Bert, BertForPretraining, Classifier, MaskedLanguageModel, Tagger
from tfbook.models.bert_variants import Albert, Electra
from tfbook.models.blocks import Config, PostNorm
from tfbook.models.captioner import Captioner, CaptionerConfig
from tfbook.models.clip import Clip, ImageTower, TextTower
from tfbook.models.cnn import Cnn
from tfbook.models.conformer import Conformer, ConformerConfig
from tfbook.models.conv_mixer import ConvMixer, ConvMixerConfig
from tfbook.models.convolutions import DilatedConvolution, GatedConvolution
from tfbook.models.detr import Detr, DetrConfig
from tfbook.models.experts import MixtureOfExperts
from tfbook.models.feed_forward import SwiGLU
from tfbook.models.gated import GatedLinearAttention, Lstm, MinGru
from tfbook.models.gpt import Gpt
from tfbook.models.graphs import GraphConfig, GraphNet, GraphTransformer
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.models.memory_network import MemoryConfig, MemoryNetwork
from tfbook.models.norms import BatchNorm, RMSNorm
from tfbook.models.patch_mixers import convolutional, mlp_mixer, patch_bag, res_mlp
from tfbook.models.pixel_cnn import PixelCnn, PixelCnnConfig
from tfbook.models.pointer_network import PointerConfig, PointerNetwork
from tfbook.models.reward import RewardModel
from tfbook.models.sentence_encoder import SentenceEncoder
from tfbook.models.seq2seq import (
    BahdanauDecoder,
    FixedContextDecoder,
    LuongDecoder,
    RecurrentEncoder,
    Seq2SeqConfig,
    Translator,
)
from tfbook.models.state_spaces import S4D, Mamba
from tfbook.models.swin import Swin, SwinConfig
from tfbook.models.tabular import FTTransformer, TableConfig
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.models.turing_machine import CONTROLLERS, MachineConfig, TuringMachine
from tfbook.models.vit import Deit, Vit, VitConfig
from tfbook.models.wave_net import WaveNet, WaveNetConfig
from tfbook.parts import Part
from tfbook.training import Recipe, added_vectors, decay_groups, fit

SIZES = Config(d_model=8, heads=2, d_ff=8, layers=2, position=POSITIONS["learned"])
LIKE_BERT = replace(BERT, d_model=8, heads=2, d_ff=8, layers=2, max_length=8)
IMAGES = VitConfig(d_model=8, heads=2, d_ff=8, layers=2, height=8, width=8, patch=4, channels=1)
RECURRENT = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8, d_encoder=4)
BIASES = r"(^|\.)(bias|b_\w+|bias_[ih]h\w*)$"
NORMS = r"(^|\.)(norm|embed_norm)\.weight$"
TOKENS_AND_GRID = r"^(tokens\.\d+|stack\.position\.embedding)$"


def sentence_encoder() -> SentenceEncoder:
    return SentenceEncoder(Bert(9, LIKE_BERT), Tokenizer(WordLevel({"a": 1})), max_length=4)


def lora() -> Gpt:
    return add_lora(Gpt(9, SIZES), rank=1, alpha=1.0)


def electra() -> Electra:
    return Electra(MaskedLanguageModel(Bert(9, LIKE_BERT)), Bert(9, LIKE_BERT))


def recurrent(decoder: type, score: str) -> Translator:
    return Translator(RecurrentEncoder(RECURRENT), decoder(RECURRENT, SCORES[score]))


MODELS: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {  # and the names of what stays as it is
    "language model": (lambda: LanguageModel(9, SIZES), [BIASES, NORMS]),
    "bidirectional": (lambda: BidirectionalModel(9, SIZES), [BIASES, NORMS]),
    **{
        f"GPT, {name}": (lambda name=name: Gpt(9, replace(SIZES, position=POSITIONS[name])), [BIASES, NORMS])
        for name in POSITIONS
    },
    "GPT, other parts": (
        lambda: Gpt(
            9, replace(SIZES, norm=RMSNorm, feed_forward=SwiGLU, residual=PostNorm, mixer=GroupedQueryAttention)
        ),
        [BIASES, NORMS],
    ),
    "GPT, experts": (
        lambda: Gpt(9, replace(SIZES, feed_forward=partial(MixtureOfExperts, experts=1))),
        [BIASES, NORMS],
    ),
    "GPT, LoRA of rank 1": (lora, [BIASES, NORMS]),
    "BERT": (lambda: BertForPretraining(Bert(9, LIKE_BERT)), [BIASES, NORMS]),
    "classifier": (lambda: Classifier(Bert(9, LIKE_BERT), 1), [BIASES, NORMS]),
    "tagger": (lambda: Tagger(Bert(9, LIKE_BERT), 1), [BIASES, NORMS]),
    "ALBERT": (lambda: Albert(9, LIKE_BERT, d_embed=1), [BIASES, NORMS]),
    "ELECTRA": (electra, [BIASES, NORMS]),
    "sentence encoder": (sentence_encoder, [BIASES, NORMS]),
    "reward": (lambda: RewardModel(LanguageModel(9, SIZES)), [BIASES, NORMS]),
    "Transformer": (lambda: Transformer(Encoder(9, SIZES), Decoder(9, SIZES, tied=False)), [BIASES, NORMS]),
    "fixed context": (lambda: Translator(RecurrentEncoder(RECURRENT), FixedContextDecoder(RECURRENT)), [BIASES]),
    **{
        f"{decoder.__name__}, {score}": (partial(recurrent, decoder, score), [BIASES, r"score\.log_sharpness$"])
        for decoder in (BahdanauDecoder, LuongDecoder)
        for score in SCORES
    },
    "ViT": (lambda: Vit(3, IMAGES), [BIASES, NORMS, TOKENS_AND_GRID]),
    "ViT of one patch, no token": (
        lambda: Vit(3, replace(IMAGES, height=4, width=4, tokens=0)),
        [BIASES, NORMS, TOKENS_AND_GRID],
    ),
    "ViT, four tokens, rotary": (
        lambda: Vit(3, replace(IMAGES, tokens=4, position=POSITIONS["rotary"])),
        [BIASES, NORMS, TOKENS_AND_GRID],
    ),
    "DeiT": (lambda: Deit(3, IMAGES), [BIASES, NORMS, TOKENS_AND_GRID]),
    "CNN": (lambda: Cnn(1, channels=1, width=1), [BIASES, r"(stem|layers\.\d+)\.1\.weight$"]),  # batch norms
    "attentive CNN": (
        lambda: AttentiveCnn(2, channels=1, width=8, stages=2),
        [BIASES, r"(stem|layers\.\d+)\.1\.weight$", r"gamma$"],
    ),
    "MLP-Mixer": (lambda: Vit(3, mlp_mixer(IMAGES, d_tokens=4)), [BIASES, NORMS]),
    "ResMLP": (lambda: Vit(3, res_mlp(IMAGES)), [BIASES, NORMS, r"\.scale$"]),
    "bag of patches": (
        lambda: Vit(3, patch_bag(replace(IMAGES, norm=BatchNorm))),
        [BIASES, r"norm\.norm\.weight$"],
    ),
    "ViT with convolutions": (lambda: Vit(3, convolutional(IMAGES)), [BIASES, NORMS]),
    "ConvMixer": (
        lambda: ConvMixer(3, ConvMixerConfig(d_model=8, layers=1, kernel=3, channels=1)),
        [BIASES, r"(patches|places|channels)\.2\.weight$"],
    ),
    "Swin": (
        lambda: Swin(3, SwinConfig(d_model=8, depths=(2, 1), heads=(2, 2), window=2, channels=1)),
        [BIASES, NORMS, r"patch_norm\.weight$", r"\.table$"],  # relative biases, as in the paper's code
    ),
    "DETR": (
        lambda: Detr(2, DetrConfig(d_model=8, heads=2, d_ff=8, layers=1, height=8, width=8, backbone=(4, 8))),
        [BIASES, NORMS, r"^queries$", r"^backbone\.\d+\.1\.weight$"],
    ),
    **{
        f"language model, {mixer.__name__}": (
            partial(LanguageModel, 9, replace(SIZES, mixer=mixer)),
            [BIASES, NORMS, rf"mixer\.branch\.({'|'.join(staying)})$"] if staying else [BIASES, NORMS],
        )
        for mixer, staying in {
            MinGru: (),
            Lstm: (),
            GatedLinearAttention: ("decay",),
            S4D: ("D", "log_step", "log_decay", "frequency"),
            Mamba: ("D", "kernel_bias", "step_bias", "A_log"),
            DilatedConvolution: (),
            GatedConvolution: (),
        }.items()
    },
    "WaveNet": (
        lambda: WaveNet(WaveNetConfig(levels=9, d_model=8, d_skip=4, dilations=(1, 2))),
        [BIASES],
    ),
    "PixelCNN": (lambda: PixelCnn(PixelCnnConfig(levels=2, d_model=8, layers=1)), [BIASES]),
    "Conformer": (
        lambda: Conformer(ConformerConfig(d_model=8, heads=2, d_ff=12, layers=1, kernel=3)),
        [BIASES, NORMS, r"\.norms\.\d\.weight$"],
    ),
    "memory network": (lambda: MemoryNetwork(MemoryConfig(vocab=9, sentences=4, d_model=6, hops=2)), [BIASES]),
    **{
        f"Turing machine, {controller}": (
            lambda controller=controller: TuringMachine(
                MachineConfig(d_input=8, d_output=3, slots=6, width=4, d_hidden=5, controller=controller)
            ),
            [BIASES],
        )
        for controller in CONTROLLERS
    },
    "pointer network": (lambda: PointerNetwork(PointerConfig(d_input=2, d_hidden=6)), [BIASES, r"^(first|stop)$"]),
    "adaptive steps": (lambda: AdaptiveSteps(nn.Linear(8, 8), 8, most=3), [BIASES]),
    "FT-Transformer": (
        lambda: FTTransformer(3, TableConfig(numbers=2, categories=(3,), d_model=8, heads=2, d_ff=8, layers=1)),
        [BIASES, NORMS, r"^token$", r"^tokenizer\.(weight|missing|table_bias)$"],
    ),
    "graph convolution": (lambda: GraphNet(2, 3, kind="convolution", d_model=8, heads=2), [BIASES]),
    "GATv2": (lambda: GraphNet(2, 3, kind="dynamic attention", d_model=8, heads=2), [BIASES, r"\.a$"]),
    "graph Transformer": (
        lambda: GraphTransformer(3, GraphConfig(d_input=2, d_model=8, heads=2, d_ff=8, layers=1)),
        [BIASES, NORMS],
    ),
    "CLIP": (
        lambda: Clip(ImageTower(5, IMAGES), TextTower(9, 5, SIZES)),
        [
            BIASES,
            NORMS,
            r"stack\.position\.embedding$",
            r"images\.(tokens\.0|patches\.layers\.\d+\.1\.weight)$",
            "scale$",
        ],
    ),
    "audio": (lambda: AudioTransformer(3, AudioConfig(d_model=8, heads=2, d_ff=8, layers=1)), [BIASES, NORMS]),
    "captioner": (
        lambda: Captioner(CaptionerConfig(vocab=9, height=8, width=8, backbone=(4, 8), d_features=8)),
        [BIASES, r"^encoder\.position\.embedding$", r"^encoder\.layers\.\d+\.1\.weight$"],
    ),
}


def staying(model: nn.Module) -> set[str]:
    """The names of what does not shrink."""
    groups = decay_groups(model.parameters(), 0.1, vectors=added_vectors(model))
    kept = {id(p) for group in groups if not group["weight_decay"] for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    return {name for name, parameter in model.named_parameters() if id(parameter) in kept}


@pytest.mark.parametrize(("make", "patterns"), MODELS.values(), ids=MODELS)
def test_what_shrinks_is_decided_by_what_it_is(make: Callable[[], nn.Module], patterns: list[str]) -> None:
    model = make()
    expected = {name for name, _ in model.named_parameters() if any(re.search(p, name) for p in patterns)}
    assert staying(model) == expected


def test_every_model_is_in_the_list() -> None:
    """And every part of one, but for classes that others derive from."""
    modules = [
        importlib.import_module(f"tfbook.models.{each.name}") for each in pkgutil.iter_modules(tfbook.models.__path__)
    ]
    classes = {
        held
        for module in modules
        for held in vars(module).values()
        if inspect.isclass(held) and issubclass(held, nn.Module) and held.__module__ == module.__name__
    }
    found = {base for make, _ in MODELS.values() for part in make().modules() for base in type(part).__mro__}
    assert classes - found == set()
    assert Part in found


@pytest.mark.parametrize(
    "layer",
    [nn.Conv1d(3, 1, 2), nn.Conv2d(3, 1, 2), nn.Bilinear(2, 3, 1), nn.Linear(3, 1)],
    ids=str,
)
def test_layers_with_one_output_have_a_matrix_all_the_same(layer: nn.Module) -> None:
    assert staying(layer) == {"bias"}


def test_biases_of_keys_and_values_are_vectors() -> None:
    """PyTorch's have the shape (1, 1, d_model)."""
    layer = nn.MultiheadAttention(4, 2, add_bias_kv=True)
    assert staying(layer) == {"bias_k", "bias_v", "in_proj_bias", "out_proj.bias"}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_class_token_without_a_gradient_keeps_its_length(optimizer: str) -> None:
    """Positions, too, over many steps; a matrix shrinks by 1 − lr · decay in each."""
    torch.manual_seed(0)
    model = Vit(3, IMAGES)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def nothing(model: nn.Module, batch: Tensor) -> Tensor:
        return sum(0 * parameter.sum() for parameter in model.parameters())

    fit(
        model,
        nothing,
        lambda step: torch.zeros(1),
        Recipe(steps=50, lr=0.01, weight_decay=0.1, optimizer=optimizer, mixed_precision=False),
    )
    after = dict(model.named_parameters())
    for name in ("tokens.0", "stack.position.embedding", "stack.norm.weight"):
        torch.testing.assert_close(after[name].data, before[name], rtol=0, atol=0)
    for name in ("head.weight", "patches.weight", "stack.blocks.0.mixer.branch.W_Q.weight"):
        torch.testing.assert_close(after[name].data, before[name] * (1 - 0.001) ** 50)
