"""Activations are what the layers gave out; probes are scikit-learn's ridge regression, and find what is there."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from tfbook.attention import POSITIONS
from tfbook.course.probing import activations, probe, probe_layers
from tfbook.models.blocks import Config
from tfbook.models.language_model import LanguageModel


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Sequential(nn.ReLU(), nn.Linear(6, 3)))


class TestActivations:
    def test_they_are_what_the_layers_gave_out(self, model: nn.Sequential) -> None:
        x = torch.randn(5, 4)
        seen = activations(model, x, layers=["2", "0", "2.0"])
        model.eval()
        first = model[0](x)
        assert list(seen) == ["2", "0", "2.0"]
        torch.testing.assert_close(seen["0"], first)
        torch.testing.assert_close(seen["2.0"], first.relu())
        torch.testing.assert_close(seen["2"], model(x))

    def test_nothing_is_left_behind(self, model: nn.Sequential) -> None:
        """Mode and hooks as before, and no gradient hangs on what was kept."""
        model.train()
        seen = activations(model, torch.randn(5, 4), layers=["0"])
        assert model.training
        assert not any(module._forward_hooks for module in model.modules())
        assert not seen["0"].requires_grad

    def test_an_error_of_the_model_leaves_nothing_behind(self, model: nn.Sequential) -> None:
        model.train()
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            activations(model, torch.randn(5, 7), layers=["0"])
        assert model.training
        assert not any(module._forward_hooks for module in model.modules())

    def test_a_layer_that_works_in_place_changes_no_earlier_one(self) -> None:
        """What `nn.ReLU(inplace=True)` makes of a layer's output is its own (captum issue 156)."""
        layer, x = nn.Linear(4, 6), torch.randn(5, 4)
        seen = activations(nn.Sequential(layer, nn.ReLU(inplace=True)), x, layers=["0", "1"])
        assert torch.equal(seen["0"], layer(x))
        assert torch.equal(seen["1"], layer(x).relu())

    def test_a_model_of_several_inputs(self) -> None:
        model = nn.Bilinear(2, 3, 4)
        inputs = torch.randn(5, 2), torch.randn(5, 3)
        torch.testing.assert_close(activations(model, *inputs, layers=[""])[""], model(*inputs).detach())

    def test_what_has_no_activations_is_refused(self, model: nn.Sequential) -> None:
        with pytest.raises(ValueError, match=r"layers holds '5'; Sequential has 0, 1, 2, 2\.0, 2\.1"):
            activations(model, torch.randn(1, 4), layers=["0", "5"])
        with pytest.raises(TypeError, match="the layer '' returns a tuple; a probe needs a Tensor"):
            activations(nn.LSTM(2, 2), torch.randn(3, 2), layers=[""])

        class Idle(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.idle = nn.Linear(2, 2)

            def forward(self, x: Tensor) -> Tensor:
                return x

        with pytest.raises(RuntimeError, match="the layer 'idle' did not run"):
            activations(Idle(), torch.randn(1, 2), layers=["idle"])


class OnMps(Tensor):
    """A tensor on a device that lacks float64, as Apple's."""

    def double(self) -> Tensor:
        """Raises PyTorch's error."""
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")

    def cpu(self) -> Tensor:
        """An ordinary tensor."""
        return self.as_subclass(Tensor)


class TestProbe:
    def test_a_device_may_lack_float64(self) -> None:
        x, y = torch.randn(8, 3), torch.randn(8)
        assert probe(x.as_subclass(OnMps), y.as_subclass(OnMps)) == probe(x, y)

    @pytest.mark.parametrize("first", [torch.ones(4), torch.tensor([1.0, 2.0, 3.0, 4.0])], ids=["constant", "other"])
    def test_a_constant_cannot_be_predicted_better_than_by_its_mean(self, first: Tensor) -> None:
        """R² would be 0/0 or −∞ (scikit-learn issue 16857)."""
        with pytest.raises(ValueError, match="y is 1 throughout its second half; expected values that differ"):
            probe(torch.randn(8, 3), torch.cat([first, torch.ones(4)]))

    @pytest.mark.parametrize("ridge", [1e-6, 0.1, 10.0])
    def test_it_is_scikit_learn_s_ridge_regression(self, ridge: float) -> None:
        x, y = 3 + 2 * torch.randn(10, 7, 5), torch.randn(10, 7)
        y = y + x[..., 0] - 2 * x[..., 3]
        scaler = StandardScaler().fit(x[:5].flatten(0, 1))
        fitted = Ridge(alpha=ridge * 35).fit(scaler.transform(x[:5].flatten(0, 1)), y[:5].flatten())
        expected = r2_score(y[5:].flatten(), fitted.predict(scaler.transform(x[5:].flatten(0, 1))))
        assert probe(x, y, ridge=ridge) == pytest.approx(expected, abs=1e-6)

    def test_what_is_there_linearly_is_found(self) -> None:
        x = torch.randn(40, 3)
        assert probe(x, x @ torch.tensor([1.0, -2.0, 0.5]) + 4) > 0.999

    def test_what_is_not_there_is_not(self) -> None:
        x, y = torch.randn(2000, 5), torch.randn(2000)
        assert -0.02 < probe(x, y) < 0.02
        assert probe(x, x[:, 0].square()) < 0.05, "no linear map reads a square off"

    def test_it_is_judged_on_rows_that_it_was_not_fitted_to(self) -> None:
        """As many features as rows: a fit to noise that is perfect at home and worthless elsewhere."""
        assert probe(torch.randn(40, 20), torch.randn(40), ridge=1e-9) < 0

    def test_a_constant_column_does_no_harm(self) -> None:
        x = torch.cat([torch.randn(40, 2), torch.ones(40, 1)], dim=1)
        assert probe(x, x[:, 0]) > 0.99

    def test_integers_will_do(self) -> None:
        y = torch.arange(30).expand(4, 30)
        assert probe(y[..., None].float(), y) > 0.999

    def test_one_row_has_no_halves(self) -> None:
        with pytest.raises(ValueError, match="x has 1 row; expected 2 or more, half to fit and half to evaluate"):
            probe(torch.randn(1, 3, 2), torch.randn(1, 3))


def test_one_call_probes_every_layer() -> None:
    config = Config(d_model=16, heads=2, d_ff=16, layers=2, position=POSITIONS["sinusoidal"])
    model, ids = LanguageModel(9, config), torch.randint(9, (40, 12))
    layers = ["embed", "stack.dropout", "stack.blocks.0", "stack.blocks.1"]
    y = torch.arange(12).expand(40, 12)
    found = probe_layers(model, ids, y=y, layers=layers)
    assert list(found) == layers
    assert found["embed"] < 0.1 < 0.5 < found["stack.dropout"], "positions enter behind the embedding"
    assert found["stack.blocks.1"] == probe(activations(model, ids, layers=layers)["stack.blocks.1"], y)
