"""GPT-2's size, work and beginning. That it computes what Hugging Face's does is tested in `test_hugging_face.py`."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from drawn_configs import configs_of_every_part
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tfbook.attention import softmax
from tfbook.models.blocks import Config
from tfbook.models.gpt import (
    GPT2,
    GPT2_LARGE,
    GPT2_MEDIUM,
    GPT2_SMALL,
    GPT2_XL,
    Gpt,
    flops,
    matrix_count,
    parameter_count,
    utilization,
)

VOCAB = 50_257
TINY = replace(GPT2, d_model=16, heads=2, d_ff=40, layers=3, max_length=12)
GPT3 = replace(GPT2, d_model=12_288, heads=96, d_ff=4 * 12_288, layers=96, max_length=2048)
SMALL_SIZES = configs_of_every_part(max_length=st.integers(8, 20))


# ---- size --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "count"),
    [(GPT2_SMALL, 124_439_808), (GPT2_MEDIUM, 354_823_168), (GPT2_LARGE, 774_030_080), (GPT2_XL, 1_557_611_200)],
    ids=["small", "medium", "large", "XL"],
)
def test_the_published_sizes_have_the_published_parameters(kind: Config, count: int) -> None:
    """Counted in the files that OpenAI published; the paper's 117 million for the first is a mistake of theirs."""
    assert parameter_count(VOCAB, kind) == count


def test_gpt3_has_175_billion() -> None:
    """Brown et al. (2020, table 2.1)."""
    assert round(parameter_count(VOCAB, GPT3) / 1e9) == 175


def test_of_wide_blocks_twelve_matrices_are_the_size() -> None:
    assert matrix_count(VOCAB, GPT2_SMALL) == 12 * 12 * 768**2 + VOCAB * 768


@given(config=SMALL_SIZES, vocab=st.integers(1, 30))
@settings(max_examples=50)
def test_the_formula_counts_the_parameters(config: Config, vocab: int) -> None:
    """Of every encoding, with the norms before or after; the tied table counts once. Nothing is drawn for that."""
    before = torch.get_rng_state()
    formula = parameter_count(vocab, config)
    assert torch.equal(torch.get_rng_state(), before)
    assert formula == sum(weight.numel() for weight in Gpt(vocab, config).parameters())


# ---- work --------------------------------------------------------------------------------------------------------


def counted(model: Gpt, ids: Tensor) -> tuple[int, int]:
    """PyTorch's own count of the operations of all matrix products, forward and in a whole step of training."""
    for block in model.stack.blocks:
        block.mixer.branch.implementation = softmax  # a fused kernel may skip what the mask hides
    with FlopCounterMode(display=False) as counter:
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        forward = counter.get_total_flops()
        loss.backward()
        return forward, counter.get_total_flops()


@given(config=SMALL_SIZES, vocab=st.integers(2, 30), rows=st.integers(1, 3), time=st.integers(1, 8))
@settings(max_examples=50)
def test_the_formula_counts_the_operations(config: Config, vocab: int, rows: int, time: int) -> None:
    """Exactly, with every part; training needs no gradient of the state with which gated linear attention begins."""
    work = rows * time * flops(vocab, config, time)
    reading, training = counted(Gpt(vocab, config), torch.randint(vocab, (rows, time)))
    assert reading == work
    if "GatedLinearAttention" in str(config.mixer):
        assert 2 * work < training < 3 * work
    else:
        assert training == 3 * work


def test_training_takes_six_operations_a_weight_and_those_of_attention() -> None:
    """6 N + 12 · layers · heads · d_head · time (Chowdhery et al., 2022, appendix B)."""
    assert 3 * flops(VOCAB, GPT2_SMALL, 1024) == 6 * matrix_count(VOCAB, GPT2_SMALL) + 12 * 12 * 12 * 64 * 1024


def test_utilisation_is_the_share_of_the_peak() -> None:
    assert utilization(10.0, VOCAB, GPT2_SMALL, 1024, peak=30.0 * flops(VOCAB, GPT2_SMALL, 1024)) == 1
    assert utilization(5.0, VOCAB, GPT2_SMALL, 1024, peak=30.0 * flops(VOCAB, GPT2_SMALL, 1024)) == 0.5


def test_a_published_utilisation_comes_out() -> None:
    """GPT-3 in 34 days: 300 billion tokens on 1,024 A100s at 140 of their 312 TFLOP/s (Narayanan et al., 2021, 5.1).

    They computed each block's forward pass twice, and count 8 operations a weight where the model needs 6.
    """
    found = utilization(300e9 / (34 * 86_400), VOCAB, GPT3, 2048, peak=1024 * 312e12)
    assert found == pytest.approx(6 / 8 * 140 / 312, rel=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flops(VOCAB, GPT2_SMALL, 0), "time is 0; expected 1 or more"),
        (
            lambda: utilization(1.0, VOCAB, GPT2_SMALL, 8, peak=0.0),
            "peak is 0.0; expected more than 0 operations per second",
        ),
        (lambda: utilization(1.0, VOCAB, GPT2_SMALL, 8, peak=math.nan), "peak is nan; expected more than 0"),
    ],
)
def test_impossible_numbers_are_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# ---- beginning ---------------------------------------------------------------------------------------------------


def test_matrices_begin_small_and_those_that_write_into_the_sum_smaller() -> None:
    """0.02, and 0.02 / √(2 · layers) for W_O and the second feed-forward layer (Radford et al., 2019, section 2.3)."""
    model = Gpt(300, replace(GPT2, d_model=128, d_ff=256, layers=8, max_length=64))
    for name, weight in model.state_dict().items():
        if weight.ndim == 2:
            writes = name.endswith(("W_O.weight", "down.weight"))
            assert float(weight.std()) == pytest.approx(0.02 / 4 if writes else 0.02, rel=0.05), name
            assert abs(float(weight.mean())) < 1e-3
        else:
            assert torch.equal(weight, torch.full_like(weight, float(name.endswith("norm.weight")))), name


def unscaled(model: Gpt) -> Gpt:
    """With the writers as wide as the other matrices."""
    with torch.no_grad():
        for block in model.stack.blocks:
            for writes in (block.mixer.branch.W_O, block.feed_forward.branch.down):
                writes.weight *= (2 * len(model.stack.blocks)) ** 0.5
    return model


@torch.no_grad()
def added_variance(model: Gpt) -> float:
    """Of what the blocks have added to the embeddings when the last of them ends."""
    seen: list[Tensor] = []
    model.stack.blocks[0].register_forward_pre_hook(lambda block, inputs: seen.append(inputs[0]))
    model.stack.blocks[-1].register_forward_hook(lambda block, inputs, output: seen.append(output))
    model(torch.randint(100, (8, 32)))
    first, last = seen
    return float((last - first).var())


def test_the_residual_sum_grows_with_depth_unless_its_writers_begin_smaller() -> None:
    """Each branch adds about the same: 32 blocks add 16 times the variance of 2; scaled, about as much as they."""
    shape = replace(GPT2, d_model=64, d_ff=256, max_length=32, dropout=0.0)
    plain = [added_variance(unscaled(Gpt(100, replace(shape, layers=n)))) for n in (2, 32)]
    scaled = [added_variance(Gpt(100, replace(shape, layers=n))) for n in (2, 32)]
    assert 10 < plain[1] / plain[0] < 30
    assert 0.7 < scaled[1] / scaled[0] < 1.5


@torch.no_grad()
def test_at_the_beginning_all_tokens_are_about_as_probable() -> None:
    """The first loss is ln(vocab): the logits are small beside 1."""
    ids = torch.randint(200, (8, 12))
    loss = F.cross_entropy(Gpt(200, TINY).eval()(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert float(loss) == pytest.approx(math.log(200), abs=0.02)


# ---- the model ---------------------------------------------------------------------------------------------------


def test_one_table_reads_and_writes_and_is_not_multiplied() -> None:
    """What enters the first block is the token's row and the position's, nothing else."""
    model = Gpt(20, TINY).eval()
    assert model.unembed.weight is model.embed.weight
    entered: list[Tensor] = []
    model.stack.blocks[0].register_forward_pre_hook(lambda block, inputs: entered.append(inputs[0]))
    model(torch.tensor([[3, 1, 4]]))
    assert torch.equal(entered[0][0], model.embed.weight[[3, 1, 4]] + model.stack.position.embedding.weight[:3])


def test_dropout_acts_on_embeddings_weights_and_branches_in_training_alone() -> None:
    model = Gpt(20, TINY)
    rates = {module.p for module in model.modules() if isinstance(module, nn.Dropout)}
    assert rates == {0.1}
    assert {block.mixer.branch.dropout for block in model.stack.blocks} == {0.1}
    ids = torch.randint(20, (2, 12))
    assert not torch.equal(model(ids), model(ids))
    assert torch.equal(model.eval()(ids), model(ids))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0, 20]], "ids holds ids from 0 to 20; expected 0 to 19, the model's vocabulary"),
        ([[-1, 3]], "ids holds ids from -1 to 3"),
        ([[]], r"ids has shape \(1, 0\), torch.int64; expected ids of shape \(batch, ids\), at least one token"),
        ([3, 4], r"ids has shape \(2,\)"),
        ([[1] * 13], "the sequence ends at position 12; learned positions end at 11"),
    ],
)
def test_ids_that_it_cannot_read_are_refused(ids: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gpt(20, TINY)(torch.tensor(ids, dtype=torch.int64))


# ---- how far the ids travel --------------------------------------------------------------------------------------

FRAMES = """
import sys
from dataclasses import replace
from pathlib import Path
import tfbook
import torch
from tfbook.models.gpt import GPT2, Gpt

OWN, found = str(Path(tfbook.__file__).parent), []

def watch(frame, event, called):
    if event != "c_call" or getattr(called, "__name__", "") != "scaled_dot_product_attention":
        return
    names = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(OWN):
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    found.append(names[::-1])

model = Gpt(11, replace(GPT2, d_model=16, heads=2, d_ff=24, position=sys.argv[1]))
cache = model.eval().new_cache() if sys.argv[2] == "cache" else None
ids = torch.randint(11, (1, 5))
sys.setprofile(watch)
model(ids, cache=cache)
model(ids[:, :1], cache=cache)
sys.setprofile(None)
assert len(found) == 4, found  # two layers, two calls
print(*max(found, key=len))
"""


@pytest.mark.parametrize("cache", ["cache", "no cache"])
@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_ids_pass_six_functions_of_ours_before_the_kernel(position: str, cache: str) -> None:
    """The deepest stack of the package's functions at the call, without the tests' checks of signatures."""
    command = [sys.executable, "-c", FRAMES, position, cache]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "LanguageModel.forward",
        "Stack.forward",
        "Block.forward",
        "PreNorm.forward",
        "MultiHeadAttention.forward",
        "fastest",
    ]
