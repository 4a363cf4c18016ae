"""The Conformer is Hugging Face's with the same weights; padding changes nothing; its two reaches are what they say."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import Wav2Vec2ConformerEncoderLayer

from tfbook.attention import Lengths
from tfbook.models.conformer import Conformer, ConformerBlock, ConformerConfig, ConvolutionModule

pytestmark = pytest.mark.usefixtures("float32")

SMALL = ConformerConfig(d_model=16, heads=4, d_ff=24, layers=2, kernel=5)
NAMES = {  # our part: theirs
    "norms.0": "ffn1_layer_norm",
    "norms.1": "self_attn_layer_norm",
    "norms.2": "conv_module.layer_norm",
    "norms.3": "ffn2_layer_norm",
    "norms.4": "final_layer_norm",
    "first.up": "ffn1.intermediate_dense",
    "first.down": "ffn1.output_dense",
    "second.up": "ffn2.intermediate_dense",
    "second.down": "ffn2.output_dense",
    "mixer.W_Q": "self_attn.linear_q",
    "mixer.W_K": "self_attn.linear_k",
    "mixer.W_V": "self_attn.linear_v",
    "mixer.W_O": "self_attn.linear_out",
    "convolution.W_1": "conv_module.pointwise_conv1",
    "convolution.depthwise": "conv_module.depthwise_conv",
    "convolution.norm.norm": "conv_module.batch_norm",
    "convolution.W_2": "conv_module.pointwise_conv2",
}


def theirs(**options: Any) -> Any:
    config = transformers.Wav2Vec2ConformerConfig(
        hidden_size=16,
        num_attention_heads=4,
        intermediate_size=24,
        conv_depthwise_kernel_size=5,
        hidden_act="swish",
        position_embeddings_type=None,
        attention_dropout=0.0,
        activation_dropout=0.0,
        hidden_dropout=0.0,
        conformer_conv_dropout=0.0,
        attn_implementation="eager",
        **options,
    )
    layer = Wav2Vec2ConformerEncoderLayer(config)
    with torch.no_grad():
        for weight in [*layer.parameters(), layer.conv_module.batch_norm.running_mean]:
            weight.add_(0.3 * torch.randn_like(weight))
        layer.conv_module.batch_norm.running_var.uniform_(0.5, 2)
    return layer


def with_weights_of(layer: nn.Module) -> ConformerBlock:
    block = ConformerBlock(SMALL)
    given, state = layer.state_dict(), {}
    for name, ours in block.state_dict().items():
        part, _, kind = name.rpartition(".")
        state[name] = given.pop(f"{NAMES[part]}.{kind}").reshape(ours.shape)
    assert given == {}, "all of their weights have a place"
    block.load_state_dict(state)
    return block


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_a_block_is_hugging_face_s_with_the_same_weights(training: bool) -> None:
    """Outputs and derivatives, and in training the running means of the batch norm, too."""
    layer, x = theirs().train(training), torch.randn(3, 11, 16)
    block = with_weights_of(layer).train(training)
    results = []
    for run in (block, layer):
        inputs = x.clone().requires_grad_()
        output = run(inputs)
        output = output if isinstance(output, Tensor) else output[0]
        output.square().sum().backward()
        results.append((output.detach(), inputs.grad))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    ours: Any = block.convolution.norm
    torch.testing.assert_close(ours.norm.running_mean, layer.conv_module.batch_norm.running_mean)


@torch.no_grad()
def test_padding_changes_nothing_before_it() -> None:
    model, x, lengths = Conformer(SMALL).eval(), torch.randn(3, 9, 16), torch.tensor([9, 4, 1])
    whole = model(x, lengths)
    for row, length in zip(range(3), lengths.tolist(), strict=True):
        torch.testing.assert_close(whole[row, :length], model(x[row : row + 1, :length])[0])


def test_lengths_without_a_mask_in_the_convolution_would_leak() -> None:
    """The control of the test above: attention's mask alone is not enough."""
    block, x = ConformerBlock(SMALL).eval(), torch.randn(1, 9, 16)
    changed, lengths = torch.cat([x[:, :5], torch.randn(1, 4, 16)], dim=1), torch.tensor([5])
    outputs = [block(each, Lengths(lengths))[:, :5] for each in (x, changed)]
    assert not torch.allclose(*outputs)


def test_the_module_alone_sees_its_kernel_and_attention_sees_all() -> None:
    module = ConvolutionModule(16, kernel=5).eval()
    block = ConformerBlock(SMALL).eval()
    seen = []
    for run in (module, block):
        x = torch.randn(1, 13, 16, requires_grad=True)
        (gradient,) = torch.autograd.grad(run(x)[0, 6].square().sum(), x)
        seen.append(gradient[0].abs().sum(dim=1).nonzero().flatten().tolist())
    assert seen == [[4, 5, 6, 7, 8], list(range(13))]


def test_counts_are_pytorch_s() -> None:
    model, module, x = Conformer(SMALL), ConvolutionModule(16, kernel=5), torch.randn(2, 7, 16)
    counted = [sum(weight.numel() for weight in part.parameters()) for part in (model.blocks[0], module)]
    assert counted == [model.blocks[0].parameter_count(), module.parameter_count()]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(x)
    assert counter.get_total_flops() == 2 * module.flops(7)


def test_its_config_comes_back() -> None:
    assert ConformerConfig.from_dict(SMALL.to_dict()) == SMALL


@pytest.mark.usefixtures("unchecked")
def test_an_even_kernel_and_a_length_too_few_are_refused() -> None:
    for make in (lambda: ConformerConfig(kernel=4), lambda: ConvolutionModule(8, kernel=4)):
        with pytest.raises(ValueError, match="kernel is 4; expected an odd number"):
            make()
    with pytest.raises(ValueError, match="lengths holds 1 numbers; expected one for each of 2 sequences of x"):
        Conformer(SMALL)(torch.randn(2, 3, 16), torch.tensor([3]))
