"""AdamW's groups, Muon against PyTorch's and against singular values, and two optimizers that step together."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from tfbook.attention import POSITIONS
from tfbook.models.blocks import Config
from tfbook.models.cnn import Cnn
from tfbook.models.gpt import GPT2, Gpt
from tfbook.models.language_model import LanguageModel
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.training import (
    QUINTIC,
    STEPS,
    Muon,
    Recipe,
    adamw,
    decay_groups,
    fit,
    hidden_matrices,
    muon,
    orthogonal,
    tied_embeddings,
)

pytestmark = pytest.mark.usefixtures("float32")

SIZES = Config(d_model=8, heads=2, d_ff=12, position=POSITIONS["learned"])


# ---- groups ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [LanguageModel(9, SIZES), Transformer(Encoder(9, SIZES), Decoder(9, SIZES)), nn.GRU(3, 4), nn.Linear(2, 2)],
    ids=lambda model: type(model).__name__,
)
def test_every_parameter_is_in_one_group_and_matrices_shrink(model: nn.Module) -> None:
    """Tied embeddings once, among the matrices; biases and the weights of norms among those that stay."""
    shrinking, staying = decay_groups(model.parameters(), 0.1)
    assert (shrinking["weight_decay"], staying["weight_decay"]) == (0.1, 0.0)
    listed = [id(parameter) for group in (shrinking, staying) for parameter in group["params"]]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(map(id, model.parameters()))
    assert {parameter.ndim for parameter in shrinking["params"]} == {2}
    assert {parameter.ndim for parameter in staying["params"]} == {1}


def test_a_group_without_parameters_is_left_out() -> None:
    """An optimizer warns of an empty one."""
    assert [len(group["params"]) for group in decay_groups(nn.Linear(2, 2, bias=False).parameters(), 0.1)] == [1]
    assert [group["weight_decay"] for group in decay_groups(nn.LayerNorm(2).parameters(), 0.1)] == [0.0]


def test_an_embedding_tied_to_the_output_is_a_group_of_its_own() -> None:
    """Positions, and words that no output shares, are ordinary matrices."""
    model = LanguageModel(9, replace(SIZES, position=POSITIONS["learned"]))
    assert tied_embeddings(model) == {model.embed.weight}
    assert tied_embeddings(Encoder(9, SIZES)) == set()
    groups = decay_groups(
        model.parameters(),
        0.1,
        embeddings=tied_embeddings(model),
        embedding_lr_factor=5,
        embedding_decay_factor=0.5,
    )
    assert [group.get("lr_factor", 1) for group in groups] == [1, 5, 1]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.05, 0.0]
    (embedding,) = groups[1]["params"]
    assert embedding is model.embed.weight


@pytest.mark.parametrize("position", ["learned", "relative", "rotary"])
def test_the_hidden_matrices_are_those_of_the_blocks(position: str) -> None:
    """Six a block: neither the tied embedding nor that of positions."""
    model = Gpt(9, Config(d_model=8, heads=2, d_ff=12, layers=3, position=POSITIONS[position]))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = [names[id(matrix)] for matrix in hidden_matrices(model)]
    parts = [f"mixer.branch.W_{part}" for part in "QKVO"]
    parts += [f"feed_forward.branch.{part}" for part in ("up", "down")]
    assert sorted(found) == sorted(f"stack.blocks.{block}.{part}.weight" for block in range(3) for part in parts)


def test_an_embedding_inside_a_block_is_not_a_hidden_matrix() -> None:
    block = nn.ModuleList([nn.Embedding(5, 4), nn.Linear(4, 4)])
    assert hidden_matrices(nn.Sequential(block)) == [block[1].weight]


def test_the_kernels_of_a_convolutional_network_are_hidden_matrices_but_for_the_first() -> None:
    model = Cnn(3, channels=1, width=2)
    assert hidden_matrices(model) == [layer[0].weight for layer in model.layers]


def test_a_kernel_takes_the_step_of_a_matrix_with_a_row_for_each_channel() -> None:
    """Flattened, it is trained as if it were a matrix."""
    kernel = nn.Parameter(torch.randn(4, 3, 3, 3))
    matrix = nn.Parameter(kernel.detach().flatten(1).clone())
    gradient = torch.randn(4, 3, 3, 3)
    kernel.grad, matrix.grad = gradient, gradient.flatten(1)
    for parameter in (kernel, matrix):
        Muon([parameter], lr=0.1, weight_decay=0.1).step()
    assert torch.equal(kernel.flatten(1), matrix)


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model Sequential has no matrices in an nn.ModuleList; expected blocks"):
        hidden_matrices(nn.Sequential(nn.Linear(2, 2)))


# ---- Muon --------------------------------------------------------------------------------------------------------


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), count=st.integers(1, 3), steps=st.integers(0, 6))
def test_the_iteration_moves_singular_values_alone(rows: int, columns: int, count: int, steps: int) -> None:
    """U p(p(… S / |S| …)) Vᵀ, with p the polynomial of Jordan et al. and U, S, V from LAPACK."""
    x = torch.randn(count, rows, columns, dtype=torch.float64)
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    s = s / s.norm(dim=1, keepdim=True)
    for _ in range(steps):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    torch.testing.assert_close(orthogonal(x, steps), u @ torch.diag_embed(s) @ vt)


def test_five_steps_make_every_direction_about_equally_long() -> None:
    """The docstring's numbers, over all singular values from a hundredth of the norm to the whole of it."""
    a, b, c = QUINTIC
    s = torch.linspace(0.01, 1, 10_000, dtype=torch.float64)
    for _ in range(STEPS):
        s = a * s + b * s**3 + c * s**5
    assert 0.68 < s.min() < 0.69
    assert 1.12 < s.max() < 1.14


def test_a_gradient_of_zeros_moves_nothing() -> None:
    assert torch.equal(orthogonal(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


SHAPES = ((8, 8), (16, 8), (8, 24), (8, 8), (1, 5))


def _matrices() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(shape)) for shape in SHAPES]


def _gradients(step: int) -> list[Tensor]:
    dice = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=dice) for shape in SHAPES]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon; 2.9 and newer have")
@pytest.mark.parametrize("coarse", [True, False])
def test_muon_is_pytorch_s(monkeypatch: pytest.MonkeyPatch, coarse: bool) -> None:
    """It computes in bfloat16 (`coarse`) wherever it is; made to compute in float32, it does the same to the digit."""
    found, expected = _matrices(), _matrices()
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
    ours, theirs = Muon(found, **options), torch.optim.Muon(expected, **options, adjust_lr_fn="match_rms_adamw")
    if not coarse:
        monkeypatch.setattr(torch, "bfloat16", torch.float32)  # one of the two is what its code says, by version
        monkeypatch.setattr(Tensor, "bfloat16", Tensor.clone)
    for step in range(6):
        for one, other, gradient in zip(found, expected, _gradients(step), strict=True):
            one.grad, other.grad = gradient, gradient.clone()
        ours.step()
        theirs.step()
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02 if coarse else 2e-6)
    moved = [float((one - start).detach().abs().mean()) for one, start in zip(found, _matrices(), strict=True)]
    assert min(moved) > 0.08, "hardly anything moved, so the test says nothing"


def test_the_first_update_has_the_size_of_the_learning_rate() -> None:
    """Root mean square lr · rms, whatever the shape and the size of the gradient: a fifth of AdamW's first step."""
    for scale in (1e-4, 1e4):
        matrices = _matrices()[:3]
        for matrix, gradient in zip(matrices, _gradients(1), strict=False):
            matrix.grad = gradient * scale
        before = [matrix.detach().clone() for matrix in matrices]
        Muon(matrices, lr=0.1, rms=0.5).step()
        for matrix, start in zip(matrices, before, strict=True):
            assert float((matrix.detach() - start).square().mean().sqrt()) == pytest.approx(0.05, rel=0.2)


def test_a_matrix_without_gradient_stays() -> None:
    matrices = _matrices()
    matrices[0].grad = torch.ones(8, 8)
    Muon(matrices, lr=0.1, weight_decay=0.5).step()
    moved = [not torch.equal(one, start) for one, start in zip(matrices, _matrices(), strict=True)]
    assert moved == [True, False, False, False, False]


def test_what_is_no_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match=r"matrices holds a parameter of shape \(3,\); expected rows and columns"):
        Muon([nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3))], lr=0.1)


# ---- both together -----------------------------------------------------------------------------------------------


def _model() -> Gpt:
    torch.manual_seed(0)
    return Gpt(9, SIZES)


OPTIONS = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1, "momentum": 0.9, "rms": 0.2}


def _stepped(optimizer: Any, model: nn.Module, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.tensor([[1, 2, 3]])).square().sum().backward()
        optimizer.step()


def test_muon_moves_the_matrices_of_blocks_and_adamw_the_rest() -> None:
    """Each as it would alone."""
    together, apart = _model(), _model()
    _stepped(muon(together, **OPTIONS), together)
    matrices = hidden_matrices(apart)
    rest = [parameter for parameter in apart.parameters() if not any(parameter is matrix for matrix in matrices)]
    first = Muon(matrices, lr=0.01, momentum=0.9, weight_decay=0.1, rms=0.2)
    second = adamw(rest, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    for _ in range(2):
        apart.zero_grad()
        apart(torch.tensor([[1, 2, 3]])).square().sum().backward()
        first.step()
        second.step()
    torch.testing.assert_close(together.state_dict(), apart.state_dict(), rtol=0, atol=0)


def test_the_groups_are_those_of_the_parts() -> None:
    """A learning rate that is set there reaches them, also after a state was loaded."""
    optimizer = muon(_model(), **OPTIONS)
    optimizer.load_state_dict(optimizer.state_dict())
    for group in optimizer.param_groups:
        group["lr"] = 0.5
    assert {group["lr"] for part in optimizer.parts for group in part.param_groups} == {0.5}


def test_a_state_goes_on_where_it_was_saved() -> None:
    model = _model()
    optimizer = muon(model, **OPTIONS)
    _stepped(optimizer, model)
    twin, state = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict())
    other = muon(twin, **OPTIONS)
    other.load_state_dict(state)
    _stepped(optimizer, model)
    _stepped(other, twin)
    torch.testing.assert_close(twin.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_a_state_of_which_one_part_does_not_fit_changes_no_part() -> None:
    """The first part fits and is taken back."""
    model, other = _model(), _model()
    optimizer, stranger = muon(model, **OPTIONS), muon(other, **OPTIONS)
    _stepped(optimizer, model)
    _stepped(stranger, other, steps=3)
    before, state = copy.deepcopy(optimizer.state_dict()), stranger.state_dict()
    state["parts"][1]["param_groups"] = state["parts"][1]["param_groups"][:1]
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(state)
    torch.testing.assert_close(optimizer.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_fit_learns_a_text_with_either(optimizer: str) -> None:
    """From ln 9 to nearly nothing: the same eight words again and again."""
    torch.manual_seed(0)
    model, ids = Gpt(9, replace(SIZES, layers=2, feed_forward=GPT2.feed_forward)), torch.arange(9)[None]

    def loss(model: nn.Module, ids: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:])

    history = fit(model, loss, lambda step: ids, Recipe(steps=60, lr=0.02, optimizer=optimizer))
    assert history.loss[0] == pytest.approx(2.2, abs=0.2)
    assert history.loss[-1] < 0.05


def test_every_option_of_muon_reaches_its_part() -> None:
    """None of them is the default of a part."""
    options = {"lr": 0.03, "weight_decay": 0.3, "momentum": 0.6, "rms": 0.5}
    optimizer = muon(
        LanguageModel(9, SIZES), **options, betas=(0.7, 0.8), embedding_lr_factor=2, embedding_decay_factor=3
    )
    (hidden,), rest = optimizer.parts[0].param_groups, optimizer.parts[1].param_groups
    assert {name: hidden[name] for name in options} == options
    assert {group["betas"] for group in rest} == {(0.7, 0.8)}
    assert {group["lr"] for group in rest} == {0.03}
    found = {(round(group["weight_decay"], 9), group.get("lr_factor", 1)) for group in rest}
    assert found == {(0.3, 1), (0.9, 2), (0.0, 1)}, "positions, tied embeddings, vectors"
