"""Traces every model whole and prints, for each, the largest difference between the graph's numbers and the model's.

A program of its own, since the check of signatures that tests install is no part of a graph.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tfbook.attention import POSITIONS, MultiHeadAttention, fused, softmax
from tfbook.attention.efficient import Banded, BigBird, BlockSparse, Linear, Lsh, Performer, Tiled
from tfbook.attention.grouped_query import GroupedQueryAttention
from tfbook.generation.captured import Captured, can_be_captured
from tfbook.models.audio import AudioConfig, AudioTransformer
from tfbook.models.bert import BERT, Bert, Classifier, MaskedLanguageModel, Tagger
from tfbook.models.bert_variants import Albert
from tfbook.models.blocks import Config, PostNorm
from tfbook.models.clip import Clip, ImageTower, TextTower
from tfbook.models.cnn import Cnn
from tfbook.models.conformer import Conformer, ConformerConfig
from tfbook.models.convolutions import DilatedConvolution, GatedConvolution
from tfbook.models.experts import MixtureOfExperts, dense_dispatch
from tfbook.models.feed_forward import SwiGLU
from tfbook.models.gated import MinGru
from tfbook.models.gpt import GPT2, Gpt
from tfbook.models.graphs import GraphConfig, GraphNet, GraphTransformer
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.models.norms import RMSNorm
from tfbook.models.pixel_cnn import PixelCnn, PixelCnnConfig
from tfbook.models.reward import RewardModel
from tfbook.models.scans import parallel_scan
from tfbook.models.tabular import FTTransformer, TableConfig
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.models.turing_machine import CONTROLLERS, MachineConfig, TuringMachine
from tfbook.models.vit import Deit, Vit, VitConfig
from tfbook.models.wave_net import WaveNet, WaveNetConfig

VOCAB = 50
SIZES: dict[str, Any] = {"d_model": 16, "heads": 4, "d_ff": 32, "layers": 2, "max_length": 32}
SMALL = Config(**SIZES)
IDS, LENGTHS = torch.arange(36).view(3, 12), torch.tensor([12, 7, 3])
IMAGES = torch.linspace(-1, 1, 3 * 3 * 8 * 8).view(3, 3, 8, 8)
BITS = torch.linspace(-1, 1, 3 * 5 * 4).view(3, 5, 4)
FULL = torch.ones(3, 5, 5, dtype=torch.bool).triu(1) | torch.ones(3, 5, 5, dtype=torch.bool).tril(-1)
MACHINE = MachineConfig(d_input=4, d_output=3, slots=6, width=5, d_hidden=8)
IMAGE_SIZES = VitConfig(**SIZES, height=8, width=8, patch=4)


def gpt(**parts: Any) -> LanguageModel:
    return Gpt(VOCAB, replace(SMALL, **parts))


def attending(implementation: Any, model: type[LanguageModel] = Gpt) -> LanguageModel:
    return model(VOCAB, replace(SMALL, mixer=partial(MultiHeadAttention, implementation=implementation)))


def bert() -> Bert:
    return Bert(VOCAB, replace(BERT, **SIZES))


def clip() -> Clip:
    """With s = 1: gradients are compared by their size, and a large s makes rounding large."""
    model = Clip(ImageTower(8, replace(IMAGE_SIZES, tokens=0)), TextTower(VOCAB, 8, SMALL))
    nn.init.zeros_(model.log_scale)
    return model


def strided(blocks: int) -> Tensor:
    number = torch.arange(blocks)
    return (number[:, None] - number) % 2 == 0


EXPERTS = partial(MixtureOfExperts, experts=4, k=2, dispatch=dense_dispatch)
LANGUAGE_MODELS: dict[str, Callable[[], nn.Module]] = {
    **{f"positions: {name}": partial(gpt, position=name) for name in POSITIONS},
    "grouped queries, SwiGLU, RMS norm": partial(
        gpt, position="rotary", mixer=partial(GroupedQueryAttention, groups=2), feed_forward=SwiGLU, norm=RMSNorm
    ),
    "dilated convolutions": partial(gpt, mixer=partial(DilatedConvolution, kernel=3, dilation=2)),
    "gated convolutions": partial(gpt, mixer=GatedConvolution),
    "post-norm": partial(gpt, residual=PostNorm),
    "GPT-2": lambda: Gpt(VOCAB, replace(GPT2, **SIZES)),
    "dense experts": partial(gpt, feed_forward=EXPERTS),
    "dense experts with a capacity": partial(gpt, feed_forward=partial(EXPERTS, capacity_factor=1.0)),
    "softmax": partial(attending, softmax),
    "fused": partial(attending, fused),
    "banded": partial(attending, Banded(4, 4)),
    "block-sparse": partial(attending, BlockSparse(strided, 4)),
    "BigBird": partial(attending, BigBird(block=4)),
    "tiled": partial(attending, Tiled(4)),
    "linear": partial(attending, Linear(chunk=4)),
    "LSH": partial(attending, Lsh(4, 4)),
    **{name: partial(gpt, mixer=name) for name in ("MinGru", "GatedLinearAttention", "Lstm", "S4D", "Mamba")},
    "minGRU by a tree": partial(gpt, mixer=partial(MinGru, scan=parallel_scan)),
    "hybrid": partial(gpt, position="rotary", mixer=("Mamba", MultiHeadAttention)),
    "Performer": partial(attending, Performer(16), BidirectionalModel),  # a causal one halves chunks by their values
}
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    **{name: (make, (IDS,)) for name, make in LANGUAGE_MODELS.items()},
    "reward": (lambda: RewardModel(gpt()), (IDS, LENGTHS)),
    "BERT": (bert, (IDS, LENGTHS)),
    "masked language model": (lambda: MaskedLanguageModel(bert()), (IDS, LENGTHS)),
    "classifier": (lambda: Classifier(bert(), 3), (IDS, LENGTHS)),
    "tagger": (lambda: Tagger(bert(), 3), (IDS, LENGTHS)),
    "ALBERT": (lambda: Albert(VOCAB, replace(BERT, **SIZES), d_embed=8), (IDS, LENGTHS)),
    "encoder–decoder": (lambda: Transformer(Encoder(VOCAB, SMALL), Decoder(VOCAB, SMALL)), (IDS, LENGTHS, IDS[:, :7])),
    "ViT": (lambda: Vit(4, IMAGE_SIZES), (IMAGES,)),
    "ViT by its mean": (lambda: Vit(4, replace(IMAGE_SIZES, tokens=0)), (IMAGES,)),
    "DeiT": (lambda: Deit(4, IMAGE_SIZES), (IMAGES,)),
    "WaveNet": (lambda: WaveNet(WaveNetConfig(levels=VOCAB, d_model=8, dilations=(1, 2, 4))), (IDS,)),
    "Conformer": (lambda: Conformer(ConformerConfig(**SIZES, kernel=5)), (torch.linspace(-1, 1, 576).view(3, 12, 16),)),
    "PixelCNN": (lambda: PixelCnn(PixelCnnConfig(levels=VOCAB, d_model=8)), (IDS.view(3, 3, 4),)),
    "FT-Transformer": (
        lambda: FTTransformer(3, TableConfig(numbers=4, categories=(13, 13), d_model=16, heads=4, layers=1)),
        (BITS[:, 0], IDS[:, :2] // 3),
    ),
    "graph Transformer": (lambda: GraphTransformer(3, GraphConfig(d_input=4, d_model=16)), (BITS, FULL)),
    "GAT": (lambda: GraphNet(4, 3, kind="attention", d_model=16), (BITS, FULL)),
    "CLIP": (clip, (IMAGES, IDS, LENGTHS)),
    "audio": (
        lambda: AudioTransformer(
            4, AudioConfig(**(SIZES | {"max_length": 4}), window=16, hop=8, bands=4, frames=4, piece=(2, 2))
        ),
        (torch.linspace(-1, 1, 120).view(3, 40).sin(),),
    ),
    "CNN": (lambda: Cnn(4, width=4, stages=2), (IMAGES,)),
    **{
        f"Turing machine, {name}": (partial(TuringMachine, replace(MACHINE, controller=name)), (BITS,))
        for name in CONTROLLERS
    },
}


def only_output(output: Any) -> Tensor:
    """The logits of a `Decoded`, any other output itself."""
    return output if isinstance(output, Tensor) else output.logits


def outcome(name: str) -> float | str:
    """The largest difference in the output and the gradients, in double precision; or the error."""
    torch.compiler.reset()
    make, inputs = CASES[name]
    model = make().double().eval()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    try:
        if name in LANGUAGE_MODELS and can_be_captured(model):
            decode(model)
            decode_padded(model)
        traced = results(torch.compile(model, fullgraph=True, backend="eager"), model, inputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return max(float((a - b).abs().max()) for a, b in zip(traced, results(model, model, inputs), strict=True))


def decode(model: nn.Module) -> None:
    """Reads a prompt and three tokens, each in one graph; raises AssertionError unless the logits are the model's."""
    read = Captured(model, 16, record=lambda step: torch.compile(step, fullgraph=True, backend="eager"))
    with torch.inference_mode():
        for end in (9, 10, 11, 12):
            logits = read(IDS[:, :9] if end == 9 else IDS[:, end - 1 : end])
            torch.testing.assert_close(logits, model(IDS[:, :end])[:, -1], rtol=0, atol=1e-6)


def decode_padded(model: nn.Module) -> None:
    """The same after prompts of 9, 7 and 4 tokens, each read alone."""
    padding = torch.tensor([0, 2, 5])
    compiled = partial(torch.compile, fullgraph=True, backend="eager")
    read = Captured(model, 16, padding=padding, record=compiled)
    with torch.inference_mode():
        for end in (9, 10, 11, 12):
            logits = read(IDS[:, :9] if end == 9 else IDS[:, end - 1 : end])
            alone = [model(row[None, first:end])[:, -1] for row, first in zip(IDS, padding.tolist(), strict=True)]
            torch.testing.assert_close(logits, torch.cat(alone), rtol=0, atol=1e-5)


def results(run: Callable[..., Any], model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The output, and the gradient of each parameter that has one."""
    model.zero_grad()
    output = only_output(run(*inputs))
    output.square().sum().backward()
    return [output.detach(), *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps({name: outcome(name) for name in CASES}))
