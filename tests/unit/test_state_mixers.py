"""Mixers with a state of fixed size, each against another way to compute it, and what all of them promise."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MambaConfig
from transformers.models.mamba.modeling_mamba import MambaMixer

from tfbook.attention import Causal, Dense, MultiHeadAttention
from tfbook.course.invariants import TOLERANCE, language_model_report
from tfbook.generation.sampling import generate, greedy
from tfbook.models.blocks import Config, Stack
from tfbook.models.gated import GatedLinearAttention, Lstm, MinGru
from tfbook.models.gpt import Gpt
from tfbook.models.recurrent import LstmState, lstm_step
from tfbook.models.scans import parallel_scan, sequential_scan
from tfbook.models.state_spaces import S4D, Mamba, exp_minus_one, selective_scan, zero_order_hold
from tfbook.models.states import shown_positions

MIXERS: dict[str, Callable[..., Any]] = {
    "minGRU": partial(MinGru, width=10),
    "minGRU by a tree": partial(MinGru, scan=parallel_scan),
    "gated linear attention": partial(GatedLinearAttention, chunk=3),
    "RetNet": partial(GatedLinearAttention, gated=False, chunk=4),
    "LSTM": partial(Lstm, width=6),
    "S4D": partial(S4D, state=3),
    "Mamba": partial(Mamba, state=3),
    "Mamba, narrow": partial(Mamba, width=5, state=2, reach=1, rank=3),
}
EVERY = pytest.mark.parametrize("name", MIXERS)
D, HEADS = 8, 2


def drawn(name: str) -> Any:
    """In float64, all weights away from where they begin."""
    mixer = MIXERS[name](D, HEADS).double().eval()
    with torch.no_grad():
        for weight in mixer.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return mixer


def x_of(batch: int, time: int) -> Tensor:
    return torch.randn(batch, time, D, dtype=torch.float64)


# ---- each against another way to compute it -----------------------------------------------------------------------


def test_min_gru_is_the_formula() -> None:
    """h_t = (1 − z_t) h_{t−1} + z_t h̃_t, word for word."""
    mixer, x = drawn("minGRU"), x_of(2, 7)
    h, states = torch.zeros(2, 10, dtype=torch.float64), []
    for t in range(7):
        z = torch.sigmoid(mixer.W_Z(x[:, t]))
        h = (1 - z) * h + z * mixer.W_H(x[:, t])
        states.append(h)
    torch.testing.assert_close(mixer(x), mixer.W_O(torch.stack(states, dim=1)))


@pytest.mark.parametrize("name", ["gated linear attention", "RetNet"])
def test_gated_linear_attention_is_a_sum_of_outer_products(name: str) -> None:
    """S_t = a_t S_{t−1} + k_t v_tᵀ for one head after the other, each step by itself."""
    mixer, x = drawn(name), x_of(2, 11)
    if name == "RetNet":
        mixer.decay.copy_(torch.tensor([1 - 2**-5, 1 - 2**-6], dtype=torch.float64).logit())
    q, k, v = (W(x).view(2, 11, HEADS, 4) for W in (mixer.W_Q, mixer.W_K, mixer.W_V))
    heads = []
    for head in range(HEADS):
        S, rows = torch.zeros(2, 4, 4, dtype=torch.float64), []
        for t in range(11):
            gate = torch.full((2,), 1 - 2.0 ** (-5 - head), dtype=torch.float64)
            if name != "RetNet":
                gate = torch.sigmoid(x[:, t] @ mixer.W_A.weight[head] + mixer.decay[head])
            S = gate[:, None, None] * S + k[:, t, head, :, None] * v[:, t, head, None] / 2
            rows.append((q[:, t, head, None] @ S)[:, 0])
        y = torch.stack(rows, dim=1)
        heads.append(y / (y.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt())
    torch.testing.assert_close(mixer(x), mixer.W_O(torch.cat(heads, dim=-1)))


def test_the_lstm_is_pytorchs() -> None:
    mixer, x = drawn("LSTM"), x_of(3, 7)
    theirs = nn.LSTM(D, 6, batch_first=True).double()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(mixer.W.weight)
        theirs.weight_hh_l0.copy_(mixer.U.weight)
        theirs.bias_ih_l0.copy_(mixer.bias)
        theirs.bias_hh_l0.zero_()
    torch.testing.assert_close(mixer(x), mixer.W_O(theirs(x)[0]))
    step = lstm_step(x[:, 0] @ mixer.W.weight.T, LstmState(*torch.zeros(2, 3, 6).double()), mixer.U.weight)
    cell = nn.LSTMCell(D, 6, bias=False).double()
    cell.load_state_dict({"weight_ih": mixer.W.weight, "weight_hh": mixer.U.weight})
    torch.testing.assert_close(tuple(step), cell(x[:, 0]))


def test_the_keeping_gate_of_an_lstm_begins_at_one() -> None:
    assert Lstm(4, 1, width=2).bias.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


@given(time=st.integers(1, 40), state=st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=12, deadline=None)
def test_s4_as_convolution_is_s4_as_recurrence(time: int, state: int, seed: int) -> None:
    """And both are h' = A h + u solved exactly from step to step, in plain complex numbers."""
    torch.manual_seed(seed)
    mixer, x = S4D(D, HEADS, state=state).double(), x_of(2, time)
    by_convolution, by_recurrence = mixer(x), mixer(x, cache=mixer.new_cache())
    torch.testing.assert_close(by_convolution, by_recurrence, atol=1e-10, rtol=1e-10)
    A = torch.complex(-mixer.log_decay.exp(), mixer.frequency)
    z = mixer.log_step.exp()[:, None] * A
    C, h, outputs = torch.view_as_complex(mixer.C), torch.zeros(2, D, state, dtype=torch.complex128), []
    for t in range(time):
        h = torch.exp(z) * h + (torch.exp(z) - 1) / A * x[:, t, :, None]
        outputs.append(2 * (C * h).sum(dim=-1).real + mixer.D * x[:, t])
    expected = mixer.W_O(F.gelu(torch.stack(outputs, dim=1)))
    torch.testing.assert_close(by_convolution, expected, atol=1e-10, rtol=1e-8)


def test_a_decay_that_underflows_forgets_and_is_no_nan() -> None:
    """e^{ΔA} is 0 in any precision; its powers are 1, 0, 0, …"""
    mixer = S4D(2, 1, state=1)
    with torch.no_grad():
        mixer.log_decay.fill_(20.0)
    kernel = mixer.kernel(3)
    assert kernel.isfinite().all()
    assert not kernel[:, 1:].any()


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-3, 1.0, 30.0])
def test_a_small_step_keeps_its_digits(size: float) -> None:
    """e^z − 1 in float32 against float64 beyond the precision of e^z itself, by its series where z is small."""
    z = size * torch.complex(torch.tensor([-0.5, -1.0, -0.1]), torch.tensor([3.0, 0.0, -6.0]))
    wide = z.to(torch.complex128)
    expected = torch.exp(wide) - 1 if size > 0.1 else wide + wide**2 / 2 + wide**3 / 6 + wide**4 / 24
    torch.testing.assert_close(exp_minus_one(z).to(torch.complex128), expected, atol=0, rtol=1e-5)


def test_zero_order_hold_is_the_integral() -> None:
    """Ā h + B̄ u is h(Δ) of h' = A h + u, u constant, by ten thousand small steps."""
    A, step, h, u = torch.tensor([-0.5 + 3j], dtype=torch.complex128), torch.tensor(0.3).double(), 0.7, 1.3
    decay, inflow = zero_order_hold(A, step)
    solved = torch.tensor([h], dtype=torch.complex128)
    for _ in range(10_000):
        middle = solved + step / 20_000 * (A * solved + u)
        solved = solved + step / 10_000 * (A * middle + u)
    torch.testing.assert_close(decay * h + inflow * u, solved)


@pytest.mark.parametrize("scan", [sequential_scan, parallel_scan])
@pytest.mark.parametrize("bias", [0.0, 0.4])
def test_mamba_is_that_of_transformers(scan: Callable[..., Tensor], bias: float) -> None:
    """The same weights give the same output, in eval and in training mode."""
    sizes = {"hidden_size": 12, "state_size": 5, "conv_kernel": 3, "expand": 2, "time_step_rank": 2}
    theirs = MambaMixer(MambaConfig(**sizes, num_hidden_layers=1), layer_idx=0).double()
    ours = Mamba(12, 1, state=5, reach=3, rank=2, selective=partial(selective_scan, scan=scan)).double()
    with torch.no_grad():
        theirs.conv1d.bias.fill_(bias)
        for weight in theirs.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
        state = {
            "W_in.weight": theirs.in_proj.weight,
            "kernel": theirs.conv1d.weight[:, 0],
            "kernel_bias": theirs.conv1d.bias,
            "W_x.weight": theirs.x_proj.weight,
            "W_step.weight": theirs.dt_proj.weight,
            "step_bias": theirs.dt_proj.bias,
            "A_log": theirs.A_log,
            "D": theirs.D,
            "W_O.weight": theirs.out_proj.weight,
        }
    ours.load_state_dict(state)
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    for training in (False, True):
        expected = theirs.train(training)(x)
        torch.testing.assert_close(ours.train(training)(x), expected, atol=1e-5, rtol=1e-5)  # they scan in float32


def test_the_steps_of_a_new_mamba_are_between_a_thousandth_and_a_tenth() -> None:
    """As published; and its decays −1 … −state."""
    mixer = Mamba(64, 1, state=4)
    steps = F.softplus(mixer.step_bias)
    assert 0.001 <= steps.min() < 0.003
    assert 0.05 < steps.max() <= 0.1001
    torch.testing.assert_close(-mixer.A_log.exp()[7], torch.tensor([-1.0, -2.0, -3.0, -4.0]))


# ---- what all of them promise -------------------------------------------------------------------------------------


@EVERY
@pytest.mark.usefixtures("float32")
def test_a_model_of_states_has_every_property(name: str) -> None:
    """No future leaks, the cache gives what one pass gives, and the rest of the suite of language models."""
    config = Config(d_model=D, heads=HEADS, d_ff=12, dropout=0.1, position="rotary", mixer=MIXERS[name])
    report = language_model_report(Gpt(11, config), torch.randint(11, (2, 9)))
    assert {prop: gap for prop, gap in report.items() if gap > TOLERANCE} == {}


@EVERY
def test_a_state_has_one_size(name: str) -> None:
    """However many positions were read; and reading in pieces is reading at once."""
    mixer, x = drawn(name), x_of(2, 40)
    cache, sizes, parts = mixer.new_cache(), [], []
    assert cache.nbytes() == 0
    for piece in x.split([1, 4, 0, 35], dim=1):
        parts.append(mixer(piece, cache=cache))
        sizes.append(cache.nbytes())
    torch.testing.assert_close(torch.cat(parts, dim=1), mixer(x), atol=1e-9, rtol=1e-9)
    assert len(set(sizes)) == 1
    assert sizes[0] > 0


@EVERY
def test_padding_in_front_is_not_read(name: str) -> None:
    """A text behind padding has the output that it has alone, and leaves the same state."""
    mixer, x = drawn(name), x_of(1, 9)
    allowed = Causal().dense(9, 9) & (torch.arange(9) >= 4)
    cache, alone = mixer.new_cache(), mixer.new_cache()
    for mask in (allowed, allowed[None, None], Dense(allowed[None, None])):
        torch.testing.assert_close(mixer(x, mask=mask)[:, 4:], mixer(x[:, 4:]))
    mixer(x, mask=Dense(allowed), cache=cache)
    mixer(x[:, 4:], cache=alone)
    assert cache.kept.keys() == alone.kept.keys()
    for kept in cache.kept:
        torch.testing.assert_close(cache.kept[kept], alone.kept[kept])


@EVERY
@pytest.mark.usefixtures("float32")
def test_prompts_of_different_lengths_go_on_as_alone(name: str) -> None:
    torch.manual_seed(3)
    config = Config(d_model=D, heads=HEADS, d_ff=12, position="none", mixer=MIXERS[name])
    model = Gpt(11, config).eval()
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.4)
    prompts = [torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[6, 7]])]
    alone = [generate(model, prompt, max_new_tokens=6, filters=[greedy])[0, prompt.shape[1] :] for prompt in prompts]
    ids = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]])
    together = generate(model, ids, max_new_tokens=6, filters=[greedy], lengths=torch.tensor([5, 2]))
    assert together[0, 5:11].tolist() == alone[0].tolist()
    assert together[1, 2:8].tolist() == alone[1].tolist()


@EVERY
def test_another_sequence_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="key is given; a recurrence reads one sequence and cannot attend to another"):
        drawn(name)(x_of(1, 3), key=x_of(1, 2))


def test_a_mask_of_other_sizes_is_refused() -> None:
    with pytest.raises(ValueError, match="mask is a matrix of 3 queries and 5 keys; expected 4 queries"):
        shown_positions(torch.ones(3, 5, dtype=torch.bool), 4)
    with pytest.raises(ValueError, match="mask is a matrix of 5 queries and 3 keys; expected 5 queries, no fewer keys"):
        shown_positions(torch.ones(5, 3, dtype=torch.bool), 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinGru(8, 2, width=0), "width is 0"),
        (lambda: Lstm(8, 2, width=0), "width is 0"),
        (lambda: GatedLinearAttention(8, 2, chunk=0), "chunk is 0"),
        (lambda: GatedLinearAttention(8, 3), "heads is 3 and d_model is 8"),
        (lambda: S4D(8, 2, state=0), "state is 0"),
        (lambda: Mamba(8, 2, reach=0), "reach is 0"),
        (lambda: Mamba(8, 2, dropout=1.0), "dropout is 1.0"),
    ],
)
def test_impossible_sizes_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# ---- hybrids ------------------------------------------------------------------------------------------------------


def test_layers_take_the_mixers_in_turn() -> None:
    config = Config(d_model=D, heads=HEADS, d_ff=12, layers=5, mixer=("Mamba", MinGru, MultiHeadAttention))
    kinds = [type(block.mixer.branch) for block in Stack(config).blocks]
    assert kinds == [Mamba, MinGru, MultiHeadAttention, Mamba, MinGru]
    again = Config.from_dict(config.to_dict())
    assert again == config
    assert hash(again) == hash(config)
    assert config.of_layer(4) == Config(**{**vars(config), "mixer": MinGru})


def test_no_mixer_at_all_is_refused() -> None:
    with pytest.raises(TypeError, match=r"mixer is \(\); expected a class or function that makes the part"):
        Config(mixer=())


@pytest.mark.usefixtures("float32")
def test_a_hybrid_has_every_property() -> None:
    mixer = (partial(Mamba, state=3), MultiHeadAttention)
    config = Config(d_model=D, heads=HEADS, d_ff=12, layers=3, position="rotary", mixer=mixer)
    report = language_model_report(Gpt(11, config), torch.randint(11, (2, 9)))
    assert {prop: gap for prop, gap in report.items() if gap > TOLERANCE} == {}
