"""Low-rank adapters: the formula, in and out of a model, what is trained and what is saved."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from tfbook.attention import POSITIONS
from tfbook.course.invariants import TOLERANCE, language_model_report
from tfbook.generation.frozen import Frozen
from tfbook.models.adapters import (
    LoraLinear,
    add_lora,
    load_lora,
    lora_state,
    trained_count,
)
from tfbook.models.bert_variants import Albert
from tfbook.models.blocks import Config
from tfbook.models.gpt import GPT2, Gpt
from tfbook.pretrain.storyteller import untrained
from tfbook.training import Recipe, fit, next_token_loss

pytestmark = pytest.mark.usefixtures("float32")

SIZES = replace(GPT2, d_model=16, heads=2, d_ff=24, layers=2, max_length=16, dropout=0.0)
ALL = ("W_Q", "W_K", "W_V", "W_O", "up", "down")


@pytest.fixture
def plain() -> Gpt:
    return Gpt(11, SIZES).eval()


@pytest.fixture
def adapted(plain: Gpt) -> Gpt:
    """With adapters that change what it computes."""
    return stirred(add_lora(copy.deepcopy(plain), rank=2, alpha=3, where=ALL))


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(11, (2, 7))


def stirred(model: Any) -> Any:
    for name, parameter in model.named_parameters():
        if name.endswith(".B"):
            nn.init.normal_(parameter)
    return model


# ---- one layer ---------------------------------------------------------------------------------------------------


@given(
    d_in=st.integers(1, 6), d_out=st.integers(1, 6), rank=st.integers(1, 4), alpha=st.floats(0, 20), bias=st.booleans()
)
@settings(max_examples=40)
def test_a_layer_is_the_formula(d_in: int, d_out: int, rank: int, alpha: float, bias: bool) -> None:
    """h = W₀ x + (α/r) B A x for a single vector (Hu et al., 2021, equation 3 and section 4.1), in float64."""
    frozen = nn.Linear(d_in, d_out, bias=bias).double()
    layer, x = LoraLinear(frozen, rank=rank, alpha=alpha), torch.randn(d_in, dtype=torch.float64)
    torch.testing.assert_close(layer(x), frozen(x), msg="B begins at 0")
    nn.init.normal_(layer.B)
    expected = frozen(x)
    for i in range(d_out):
        for r in range(rank):
            expected[i] = expected[i] + alpha / rank * layer.B[i, r] * (layer.A[r] @ x)
    torch.testing.assert_close(layer(x), expected)
    merged = nn.functional.linear(x, frozen.weight + layer.scale * layer.B @ layer.A, frozen.bias)
    torch.testing.assert_close(layer(x), merged)


def test_only_the_thin_matrices_have_gradients() -> None:
    layer, x = LoraLinear(nn.Linear(5, 4), rank=2, alpha=4), torch.randn(3, 5)
    layer(x).square().sum().backward()
    assert {name for name, parameter in layer.named_parameters() if parameter.grad is not None} == {"A", "B"}
    assert not layer.A.grad.any(), "B is 0, so A has no effect yet"
    assert layer.B.grad.any()


def test_a_begins_with_the_size_that_keeps_a_vectors_size() -> None:
    """Entries of A x as large as those of x."""
    layer = LoraLinear(nn.Linear(400, 3), rank=100, alpha=1)
    assert layer.A.std().item() == pytest.approx(1 / 20, rel=0.05)


@pytest.mark.parametrize("rank", [0, -1])
def test_a_rank_is_positive(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank is {rank}; expected 1 or more"):
        LoraLinear(nn.Linear(2, 2), rank=rank, alpha=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rank": 0}, ValueError, "rank is 0; expected 1 or more"),
        ({"where": "W_Q"}, TypeError, r"where is 'W_Q'; expected a collection of names, such as \['W_Q'\]"),
        ({"where": ["query"]}, ValueError, "where holds 'query'; the linear layers of model are W_K, W_O, W_Q"),
    ],
)
def test_a_model_to_which_no_adapters_can_be_added_is_as_it_was(
    plain: Gpt, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """A string is a collection of its letters, which no layer is called."""
    before = [type(part) for part in plain.modules()]
    with pytest.raises(error, match=message):
        add_lora(plain, **({"rank": 2, "alpha": 1.0} | options))
    assert [type(part) for part in plain.modules()] == before
    assert all(parameter.requires_grad for parameter in plain.parameters())


@pytest.mark.parametrize("shapes", [((0, 8), (8, 0)), ((8,), (8, 1)), ((), ()), ((1, 8), (8,))])
def test_adapters_of_no_rank_or_of_other_axes_are_refused(plain: Gpt, shapes: tuple[tuple[int, ...], ...]) -> None:
    """And the model keeps those that it has."""
    model, (name, *_) = add_lora(plain, rank=2, alpha=1.0), lora_state(plain)
    layer = name.rpartition(".")[0]
    parts = {"A": torch.zeros(shapes[0]), "B": torch.zeros(shapes[1]), "scale": torch.tensor(1.0)}
    before = lora_state(model)
    with pytest.raises(ValueError, match=r"A is \(.*\) and B is \(.*\); expected \(rank, \d+\) and \(\d+, rank\)"):
        load_lora(model, {f"{layer}.{key}": tensor for key, tensor in parts.items()})
    assert lora_state(model).keys() == before.keys()


# ---- a model -----------------------------------------------------------------------------------------------------


def test_new_adapters_change_nothing(plain: Gpt, ids: Tensor) -> None:
    assert torch.equal(add_lora(copy.deepcopy(plain), rank=4, alpha=8, where=ALL)(ids), plain(ids))


def test_the_frozen_weights_are_the_models_own(plain: Gpt) -> None:
    """Not copies, and under the names that they had; nor is anything else in the model replaced."""
    before = dict(plain.named_parameters())
    add_lora(plain, rank=2, alpha=3, where=ALL)
    after = dict(plain.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    assert {name.rpartition(".")[2] for name in after.keys() - before.keys()} == {"A", "B"}
    assert plain.unembed.weight is plain.embed.weight


def test_every_property_of_a_language_model_is_kept(ids: Tensor) -> None:
    """With all weights trainable again, so that every one should have a gradient."""
    for position in ("learned", "rotary"):
        model = stirred(add_lora(Gpt(11, replace(SIZES, position=POSITIONS[position])), rank=2, alpha=3, where=ALL))
        report = language_model_report(model.requires_grad_(), ids)
        assert {name: gap for name, gap in report.items() if gap > TOLERANCE} == {}


@given(
    d=st.sampled_from([4, 8, 12]),
    d_ff=st.integers(1, 20),
    layers=st.integers(1, 3),
    rank=st.integers(1, 5),
    where=st.sets(st.sampled_from(ALL), min_size=1),
)
@settings(max_examples=30)
def test_the_count_of_trained_numbers_is_the_formula(d: int, d_ff: int, layers: int, rank: int, where: set) -> None:
    """rank · (d_in + d_out) for each layer; what the model says of itself stays what it is after merging."""
    model = Gpt(9, Config(d_model=d, heads=2, d_ff=d_ff, layers=layers))
    own, work = model.parameter_count(), model.flops(5)
    add_lora(model, rank=rank, alpha=1, where=where)
    widths = {name: d + (d_ff if name in ("up", "down") else d) for name in ALL}
    assert trained_count(model) == layers * rank * sum(widths[name] for name in where)
    assert (model.parameter_count(), model.flops(5)) == (own, work)


def test_two_hundredths_of_the_storyteller_are_enough_for_rank_8() -> None:
    """Of queries and values, which is what `add_lora` adapts unless it is told otherwise: 24,576 of 1.9 million."""
    model = untrained("storyteller").model
    assert trained_count(model) == model.parameter_count()
    assert trained_count(add_lora(model, rank=8, alpha=16)) == 4 * 2 * 8 * (192 + 192)
    assert trained_count(model) <= 0.02 * model.parameter_count()


def test_training_moves_the_adapters_alone(plain: Gpt, ids: Tensor) -> None:
    """By `fit`, with each of its optimizers; the loss falls."""
    for optimizer in ("adamw", "muon"):
        model = add_lora(copy.deepcopy(plain), rank=2, alpha=4, where=ALL)
        recipe = Recipe(steps=20, lr=0.05, optimizer=optimizer, weight_decay=0.1)
        history = fit(model, next_token_loss, lambda step: ids, recipe)
        assert history.loss[-1] < history.loss[0] - 0.1
        before = plain.state_dict()
        for name, weight in model.state_dict().items():
            if name in before:
                assert torch.equal(weight, before[name]), name
        assert all(state.any() for name, state in lora_state(model).items() if not name.endswith("scale"))


def test_blocks_that_are_one_share_their_adapter() -> None:
    """ALBERT's block stands in the stack several times."""
    model = Albert(11, replace(SIZES, layers=3), d_embed=8)
    add_lora(model, rank=2, alpha=3)
    assert trained_count(model) == 2 * 2 * (16 + 16)
    assert len(lora_state(model)) == 2 * 3


class Twice(nn.Module):
    """One linear layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleDict({"linear": nn.Linear(4, 4)})
        self.second = nn.ModuleDict({"linear": self.first["linear"]})

    def forward(self, x: Tensor) -> Tensor:
        return self.second["linear"](torch.tanh(self.first["linear"](x)))


def test_a_layer_of_two_names_has_one_adapter_under_both() -> None:
    """Else one of them alone would be adapted, and the other would stay frozen."""
    x, before = torch.randn(3, 4), Twice()
    model = stirred(add_lora(copy.deepcopy(before), rank=2, alpha=3, where=["linear"]))
    layer = model.first["linear"]
    assert model.second["linear"] is layer
    merged = copy.deepcopy(before)
    with torch.no_grad():
        merged.first["linear"].weight += layer.scale * layer.B @ layer.A
    torch.testing.assert_close(model(x), merged(x))
    loaded = load_lora(copy.deepcopy(before), lora_state(model))
    assert torch.equal(loaded(x), model(x))
    assert torch.equal(load_lora(model, lora_state(loaded))(x), loaded(x))


def test_a_model_with_adapters_is_not_frozen(adapted: Gpt) -> None:
    with pytest.raises(ValueError, match="a linear layer is a LoraLinear; a frozen model supports Linear only"):
        Frozen(adapted)


# ---- saving ------------------------------------------------------------------------------------------------------


def test_the_adapters_alone_are_saved(plain: Gpt, adapted: Gpt, ids: Tensor, tmp_path: Path) -> None:
    """Rank and α come back from the file; two sets of adapters take turns on one model."""
    from safetensors.torch import load_file, save_file

    path = tmp_path / "adapters.safetensors"
    save_file(lora_state(adapted), path)
    assert sum(tensor.numel() for tensor in load_file(path).values()) == trained_count(adapted) + 12
    loaded = load_lora(copy.deepcopy(plain), load_file(path))
    assert torch.equal(loaded(ids), adapted(ids))
    assert trained_count(loaded) == trained_count(adapted)
    other = stirred(add_lora(copy.deepcopy(plain), rank=3, alpha=1))
    assert torch.equal(load_lora(loaded, lora_state(other))(ids), other(ids))
    assert torch.equal(load_lora(loaded, load_file(path))(ids), adapted(ids))


def test_what_was_saved_stays_as_the_model_is_trained_further(adapted: Gpt, ids: Tensor) -> None:
    """So that one can go back to it (pytorch issue 34765)."""
    state, before = lora_state(adapted), adapted(ids)
    stirred(adapted)
    assert not torch.equal(adapted(ids), before)
    assert torch.equal(load_lora(adapted, state)(ids), before)


def test_a_state_of_a_model_loads_into_one_with_adapters(plain: Gpt, adapted: Gpt) -> None:
    """The names of the weights below are those of the model without adapters."""
    found = adapted.load_state_dict(plain.state_dict(), strict=False)
    assert found.unexpected_keys == []
    assert set(found.missing_keys) == set(lora_state(adapted))


# ---- refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            ("W_Q", "query"),
            "where holds 'query'; the linear layers of model are W_K, W_O, W_Q, W_V, down",
        ),
        (("unembed",), "the weight of unembed is tied to another; an adapter would change one of them alone"),
    ],
)
def test_a_layer_that_is_not_there_or_tied_is_refused(plain: Gpt, where: tuple[str, ...], message: str) -> None:
    """Before anything is changed."""
    with pytest.raises(ValueError, match=message):
        add_lora(plain, rank=2, alpha=3, where=where)
    assert trained_count(plain) == plain.parameter_count()


def test_adapters_are_added_once(adapted: Gpt) -> None:
    """A second time the names are no plain linear layers any more."""
    with pytest.raises(ValueError, match="where holds 'W_Q'; the linear layers of model are unembed"):
        add_lora(adapted, rank=2, alpha=3, where=["W_Q"])


def test_adapters_that_do_not_fit_are_refused(plain: Gpt, adapted: Gpt, ids: Tensor) -> None:
    state, before = lora_state(adapted), plain(ids)
    name = "stack.blocks.0.mixer.branch.W_Q"
    wide = r"W_Q: A is \(2, 17\) and B is \(16, 2\); expected \(rank, 16\) and \(16, rank\)"
    for wrong, message in [
        ({}, "state holds no adapters; expected what `lora_state` returns"),
        ({f"{name}.A": state[f"{name}.A"]}, f"state holds '{name}'; expected A, B and scale of a linear layer"),
        ({f"nobody.{key}": state[f"{name}.{key}"] for key in ("A", "B", "scale")}, "state holds 'nobody'"),
        (state | {f"{name}.A": torch.zeros(2, 17)}, wide),
    ]:
        with pytest.raises(ValueError, match=message):
            load_lora(plain, wrong)
    assert torch.equal(plain(ids), before)
