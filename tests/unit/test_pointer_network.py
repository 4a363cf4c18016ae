"""The pointer network against its formulas step by step, its greedy decoder against its own logits, and errors."""

import pytest
import torch
from torch import Tensor

from tfbook.models.pointer_network import PointerConfig, PointerNetwork, pointed_at

ITEMS = torch.rand(3, 5, 2, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([[2, 0, 4, 5, 5, 5], [1, 3, 0, 2, 4, 5], [4, 5, 5, 5, 5, 5]])


def network(*, once: bool, seed: int = 0) -> PointerNetwork:
    torch.manual_seed(seed)
    model = PointerNetwork(PointerConfig(d_input=2, d_hidden=6, once=once))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.4 * torch.randn_like(weight))
    return model


def test_what_was_pointed_at() -> None:
    found = pointed_at(torch.tensor([[2, 0, 2]]), 4)
    assert found.int().tolist() == [[[0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0]]]


@torch.no_grad()
def test_each_step_follows_from_the_paper_s_equations() -> None:
    """u_j = vᵀ tanh(W d + U e_j) over the items and "stop", by loops over steps and choices (Vinyals et al., eq. 3)."""
    model = network(once=False)
    logits = model(ITEMS, TARGET)
    for row, (items, target) in enumerate(zip(ITEMS, TARGET, strict=True)):
        embedded = [model.embed(item) for item in items]
        states = model.encoder(torch.stack(embedded)[None])[0][0]
        annotations = [model.annotate(state) for state in states]
        h = torch.tanh(sum(annotations) / 5)
        memory, x = (h[None, None], torch.zeros(1, 1, 6)), model.first
        for step, choice in enumerate(target.tolist()):
            state, memory = model.decoder(x[None, None], memory)
            score = model.score
            expected = [
                float(score.v.weight[0] @ torch.tanh(score.W.weight @ state[0, 0] + score.U(key)))
                for key in [*annotations, model.stop]
            ]
            torch.testing.assert_close(logits[row, step], torch.tensor(expected), atol=1e-5, rtol=1e-5)
            x = embedded[choice] if choice < 5 else model.first


@torch.no_grad()
def test_a_mask_hides_what_was_pointed_at_and_nothing_else() -> None:
    free, masked = network(once=False)(ITEMS, TARGET), network(once=True)(ITEMS, TARGET)
    for row, target in enumerate(TARGET.tolist()):
        for step in range(6):
            hidden = set(target[:step]) - {5}
            assert {i for i in range(6) if masked[row, step, i] == -torch.inf} == hidden
            kept = [i for i in range(6) if i not in hidden]
            assert torch.equal(masked[row, step, kept], free[row, step, kept])


@pytest.mark.parametrize("once", [False, True])
@torch.no_grad()
def test_the_greedy_decoder_follows_its_own_logits(once: bool) -> None:
    """Fed with its own choices, the model agrees with each of them; after stop come only stops."""
    for seed in range(5):
        model = network(once=once, seed=seed)
        choices = model.point(ITEMS)
        assert choices.shape == (3, 6)
        again = model(ITEMS, choices).argmax(dim=-1)
        for row, (chosen, best) in enumerate(zip(choices.tolist(), again.tolist(), strict=True)):
            end = chosen.index(5) + 1 if 5 in chosen else 6
            assert chosen[:end] == best[:end], (seed, row)
            assert set(chosen[end:]) <= {5}


@torch.no_grad()
def test_with_the_mask_no_item_comes_twice() -> None:
    for seed in range(10):
        for chosen in network(once=True, seed=seed).point(ITEMS).tolist():
            items = [choice for choice in chosen if choice < 5]
            assert len(items) == len(set(items))


def test_every_weight_learns() -> None:
    model = network(once=True)
    logits = model(ITEMS, TARGET)
    torch.nn.functional.cross_entropy(logits[:, :2].flatten(0, 1), TARGET[:, :2].flatten()).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name


def test_errors_name_what_came() -> None:
    model = network(once=True)
    with pytest.raises(ValueError, match="target points at 0 to 6; expected 0 to 5, the last of which is stop"):
        model(ITEMS, TARGET + (TARGET == 5).long())
    with pytest.raises(ValueError, match=r"items has shape \(3, 0, 2\); expected at least one item"):
        model.point(ITEMS[:, :0])
    with pytest.raises(ValueError, match="d_hidden is 0; expected 1 or more"):
        PointerConfig(d_hidden=0)


def test_the_model_keeps_its_mode_and_config() -> None:
    model = network(once=True).train()
    model.point(ITEMS)
    assert model.training
    assert PointerConfig.from_dict(model.config.to_dict()) == model.config


def test_any_number_of_items() -> None:
    points: Tensor = torch.rand(2, 9, 2)
    assert network(once=True).point(points).shape == (2, 10)
