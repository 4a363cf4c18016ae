"""The Neural Turing Machine: each step of addressing against written sums, and a machine set by hand that copies."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tfbook.models.turing_machine import (
    EMPTY,
    Head,
    MachineConfig,
    TuringMachine,
    address,
    content_weights,
    gated,
    read_memory,
    sharpened,
    shifted,
    write_memory,
)

SMALL = MachineConfig(d_input=3, d_output=2, slots=5, width=4, d_hidden=6)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights(rows: int, slots: int, seed: int = 0) -> Tensor:
    return drawn(rows, slots, seed=seed).softmax(dim=-1)


def head(rows: int, width: int, reach: int, seed: int = 0) -> Head:
    strength, gate, sharpness = drawn(3, rows, 1, seed=seed)
    shift = drawn(rows, 2 * reach + 1, seed=seed + 1).softmax(-1)
    return Head(drawn(rows, width, seed=seed + 2), strength.exp(), gate.sigmoid(), shift, 1 + sharpness.exp())


# ---- addressing --------------------------------------------------------------------------------------------------


def test_content_is_a_softmax_of_cosines() -> None:
    memory, key, strength = drawn(2, 5, 3), drawn(2, 3, seed=1), torch.tensor([[0.5], [4.0]])
    found = content_weights(memory, key, strength)
    for row in range(2):
        cosines = [
            float(memory[row, i] @ key[row]) / math.dist(memory[row, i], [0] * 3) / math.dist(key[row], [0] * 3)
            for i in range(5)
        ]
        powers = [math.exp(float(strength[row]) * cosine) for cosine in cosines]
        torch.testing.assert_close(found[row], torch.tensor([power / sum(powers) for power in powers]))


def test_the_gate_mixes_old_and_new() -> None:
    old, new = weights(2, 5), weights(2, 5, seed=1)
    assert torch.equal(gated(new, old, torch.zeros(2, 1)), old)
    assert torch.equal(gated(new, old, torch.ones(2, 1)), new)
    torch.testing.assert_close(gated(new, old, torch.full((2, 1), 0.25)), old + (new - old) / 4)


@pytest.mark.parametrize("reach", [1, 2])
def test_a_shift_is_a_circular_convolution(reach: int) -> None:
    """By its sum over slots, and by the theorem: a product of Fourier transforms."""
    before, shift = weights(3, 7), weights(3, 2 * reach + 1, seed=1)
    found = shifted(before, shift)
    for row, i in ((row, i) for row in range(3) for i in range(7)):
        terms = [before[row, (i - offset) % 7] * shift[row, offset + reach] for offset in range(-reach, reach + 1)]
        assert float(found[row, i]) == pytest.approx(float(sum(terms)), abs=1e-6)
    kernel = torch.zeros(3, 7)
    for offset in range(-reach, reach + 1):
        kernel[:, offset % 7] = shift[:, offset + reach]
    torch.testing.assert_close(found, torch.fft.irfft(torch.fft.rfft(before) * torch.fft.rfft(kernel), n=7))


def test_a_sure_shift_moves_every_weight_by_one_and_around_the_end() -> None:
    before, forward = torch.tensor([[0.1, 0.2, 0.3, 0.4]]), torch.tensor([[0.0, 0.0, 1.0]])
    assert shifted(before, forward).tolist() == torch.tensor([[0.4, 0.1, 0.2, 0.3]]).tolist()
    assert torch.equal(shifted(shifted(before, forward), forward.flip(-1)), before)


def test_sharpening_takes_powers() -> None:
    before, sharpness = weights(2, 5), torch.tensor([[1.0], [3.0]])
    torch.testing.assert_close(sharpened(before, sharpness), before**sharpness / (before**sharpness).sum(1)[:, None])
    torch.testing.assert_close(sharpened(before, sharpness)[0], before[0])


def test_a_large_power_of_small_weights_is_finite_with_its_gradient() -> None:
    even = torch.full((1, 128), 1 / 128, requires_grad=True)
    sharp = sharpened(even, torch.full((1, 1), 60.0))
    torch.testing.assert_close(sharp, torch.full((1, 128), 1 / 128))
    sharp[0, 0].backward()
    assert even.grad is not None
    assert even.grad.isfinite().all()


def test_the_four_steps_follow_one_another() -> None:
    memory, before, told = drawn(3, 6, 4), weights(3, 6, seed=7), head(3, 4, 1)
    found = address(memory, before, told)
    torch.testing.assert_close(found.content, content_weights(memory, told.key, told.strength))
    torch.testing.assert_close(found.gated, gated(found.content, before, told.gate))
    torch.testing.assert_close(found.shifted, shifted(found.gated, told.shift))
    torch.testing.assert_close(found.weights, sharpened(found.shifted, told.sharpness))
    for each in found:
        torch.testing.assert_close(each.sum(dim=-1), torch.ones(3))


# ---- reading and writing -----------------------------------------------------------------------------------------


def test_a_read_is_a_mean_of_slots() -> None:
    memory, where = drawn(2, 5, 3), weights(2, 5)
    torch.testing.assert_close(read_memory(memory, where), torch.einsum("bs,bsw->bw", where, memory))
    one = F.one_hot(torch.tensor([3, 0]), 5).float()
    assert torch.equal(read_memory(memory, one), torch.stack([memory[0, 3], memory[1, 0]]))


def test_a_sure_write_replaces_one_slot_and_leaves_the_others() -> None:
    memory, add = drawn(2, 5, 3), drawn(2, 3, seed=1)
    before = memory.clone()
    one = F.one_hot(torch.tensor([3, 0]), 5).float()
    after = write_memory(memory, one, torch.ones(2, 3), add)
    expected = memory.clone()
    expected[0, 3], expected[1, 0] = add
    torch.testing.assert_close(after, expected)
    assert torch.equal(memory, before)


def test_a_write_erases_and_adds_by_weight() -> None:
    memory, where, erase, add = drawn(2, 5, 3), weights(2, 5), drawn(2, 3, seed=1).sigmoid(), drawn(2, 3, seed=2)
    found = write_memory(memory, where, erase, add)
    for b, i, j in ((b, i, j) for b in range(2) for i in range(5) for j in range(3)):
        expected = memory[b, i, j] * (1 - where[b, i] * erase[b, j]) + where[b, i] * add[b, j]
        assert float(found[b, i, j]) == pytest.approx(float(expected), abs=1e-6)


# ---- the machine -------------------------------------------------------------------------------------------------


def by_hand(slots: int) -> TuringMachine:
    """A machine whose weights were chosen: input columns are value, "write", "read"; it copies one number per step.

    The write head moves on after each step with "write", the read head after each with "read".
    """
    config = MachineConfig(d_input=3, d_output=1, slots=slots, width=1, d_hidden=3)
    model = TuringMachine(config)
    for weight in model.parameters():
        torch.nn.init.zeros_(weight)
    sure = 40.0
    with torch.no_grad():
        model.controller.layer.weight[0, 0] = 1e-3  # tanh is straight there
        model.controller.layer.weight[1, 1] = model.controller.layer.weight[2, 2] = sure
        for layer, told in ((model.write_head, 1), (model.read_head, 2)):
            layer.bias[2] = -sure  # the gate stays closed: content counts nothing
            layer.bias[4] = sure  # where it is …
            layer.weight[5, told] = 2 * sure  # … or one further, when told
        model.change.weight[0, 1] = 2 * sure  # erase when told to write
        model.change.bias[0] = -sure
        model.change.weight[1, 0] = 1e3
        model.output.weight[0, 3] = 1.0
    return model


@torch.no_grad()
@pytest.mark.parametrize("slots", [8, 13])
def test_a_machine_set_by_hand_copies(slots: int) -> None:
    """Five numbers written, then read in the same order: the bookkeeping of heads and tape, without training."""
    numbers = torch.tensor([0.3, -0.2, 0.1, 0.25, -0.4])
    inputs = torch.zeros(1, 10, 3)
    inputs[0, :5, 0], inputs[0, :5, 1], inputs[0, 5:, 2] = numbers, 1, 1
    run = by_hand(slots)(inputs)
    torch.testing.assert_close(run.logits[0, 5:, 0], torch.tanh(numbers), atol=1e-3, rtol=0)
    assert run.writing.argmax(dim=-1).tolist() == [[1, 2, 3, 4, 5, 5, 5, 5, 5, 5]]
    assert run.reading.argmax(dim=-1).tolist() == [[0, 0, 0, 0, 0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("controller", ["feed_forward", "lstm"])
@torch.no_grad()
def test_a_run_is_its_steps_and_rows_do_not_mix(controller: str) -> None:
    torch.manual_seed(0)
    model = TuringMachine(MachineConfig(d_input=3, d_output=2, slots=5, width=4, d_hidden=6, controller=controller))
    inputs = drawn(3, 4, 3)
    run, state = model(inputs), model.start(inputs[:, 0])
    for t in range(4):
        logits, state = model.step(inputs[:, t], state)
        torch.testing.assert_close(logits, run.logits[:, t])
        torch.testing.assert_close(state.reading, run.reading[:, t])
        torch.testing.assert_close(state.writing, run.writing[:, t])
    torch.testing.assert_close(state.memory, run.memory)
    torch.testing.assert_close(model(inputs[1:2]).logits, run.logits[1:2])


@torch.no_grad()
def test_an_untrained_machine_runs_on_any_tape() -> None:
    model = TuringMachine(SMALL)
    run = model(drawn(2, 6, 3), 11)
    assert run.memory.shape == (2, 11, 4)
    assert run.writing.shape == (2, 6, 11)
    start = model.start(drawn(2, 3), 11)
    assert torch.equal(start.memory, torch.full((2, 11, 4), EMPTY))
    assert start.reading.tolist() == start.writing.tolist() == [[1.0] + [0.0] * 10] * 2


def test_heads_stay_in_their_ranges() -> None:
    told = TuringMachine(SMALL).head(100 * drawn(50, 4 + 1 + 1 + 3 + 1))
    assert (told.strength >= 0).all()
    assert ((told.gate >= 0) & (told.gate <= 1)).all()
    torch.testing.assert_close(told.shift.sum(dim=-1), torch.ones(50))
    assert (told.sharpness >= 1).all()
    assert told.key.shape == (50, 4)


@pytest.mark.parametrize("controller", ["feed_forward", "lstm"])
def test_every_weight_learns_from_the_last_step(controller: str) -> None:
    """Gradients reach all weights through heads and tape, and they are finite."""
    torch.manual_seed(0)
    model = TuringMachine(MachineConfig(d_input=3, d_output=2, slots=5, width=4, d_hidden=6, controller=controller))
    model(drawn(2, 6, 3)).logits[:, -1].square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().max() > 0, name


def test_a_piece_can_be_exchanged() -> None:
    """A reader's addressing takes the place of the package's."""
    torch.manual_seed(0)
    model, inputs, calls = TuringMachine(SMALL), drawn(1, 2, 3), []
    expected = model(inputs).logits

    def counted(memory: Tensor, previous: Tensor, told: Head):  # type: ignore[no-untyped-def] # the module's
        calls.append(told)
        return address(memory, previous, told)

    model.address = counted
    assert torch.equal(model(inputs).logits, expected)
    assert len(calls) == 4


# ---- errors ------------------------------------------------------------------------------------------------------


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="width is 0; expected 1 or more"):
        MachineConfig(d_input=1, d_output=1, width=0)
    with pytest.raises(ValueError, match="controller is 'gru'; expected one of feed_forward, lstm"):
        MachineConfig(d_input=1, d_output=1, controller="gru")
    with pytest.raises(ValueError, match=r"slots is 4; expected more than 2 · reach = 4"):
        MachineConfig(d_input=1, d_output=1, slots=4, reach=2)
    with pytest.raises(ValueError, match=r"slots is 2; expected more than 2 · reach = 2"):
        TuringMachine(SMALL)(drawn(1, 2, 3), 2)


def test_a_config_comes_back_from_json() -> None:
    assert MachineConfig.from_dict(SMALL.to_dict()) == SMALL
