"""The pretended GPU computes what the CPU computes, and a fault of each kind that a real one finds is found here."""

from __future__ import annotations

import re
import textwrap

import kernels
import pytest
from nbformat.v4 import new_code_cell

BEGIN = """
import copy, io
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F
from tfbook import runtime
from tfbook.course.exercises import exercise
from tfbook.course.equality import prove_equal
there = runtime.device()

@exercise(cases=lambda: [(2,), (3,)], hints=[])
def powers(n):
    return 2.0 ** torch.arange(n)

@exercise(cases=lambda: [(torch.tensor([1.0, 2.0]),)], hints=[])
def double(x):
    return 2 * x
"""

RIGHT = {
    "a tensor knows its place": "assert str(torch.zeros(2, device=there).device) == 'elsewhere:0'",
    "numbers are those of the CPU": """
        x = torch.arange(6.0).reshape(2, 3)
        assert torch.equal((x.to(there) @ x.T.to(there)).cpu(), x @ x.T)
    """,
    "a list becomes a tensor": """
        for made in (torch.tensor([1, 2], device=there), torch.ones(2, dtype=int, device=there).new_tensor([1, 2])):
            assert made.tolist() == [1, 2]
            assert str(made.device) == "elsewhere:0"
    """,
    "a single number of the CPU may join": "assert float(torch.ones(2, device=there).sum() + torch.tensor(1.0)) == 3",
    "indices may lie on the CPU": """
        x = torch.ones(2, 3, device=there)
        x[:, [0, 2]] = 5
        assert x[torch.tensor([0, 1]), [0, 1]].tolist() == [5, 1]
    """,
    "weights are indexed in inference mode": """
        with torch.inference_mode():
            weight = nn.Linear(2, 2).to(there).weight
            assert (weight[0] * weight.view(4)[:2]).shape == (2,)
    """,
    "sampling can be undone": """
        with torch.random.fork_rng():
            once = torch.rand(3, device=there)
        assert torch.equal(once.cpu(), torch.rand(3, device=there).cpu())
    """,
    "views share memory": """
        x = torch.zeros(2, 3, device=there)
        x.T[0] = 1
        x.transpose_(0, 1)
        assert x.shape == (3, 2)
        assert x.cpu()[0].tolist() == [1, 1]
    """,
    "gradients": """
        def gradient(device):
            torch.manual_seed(0)
            layer = nn.Linear(3, 2).to(device)
            F.cross_entropy(layer(torch.ones(4, 3, device=device)), torch.ones(4, dtype=int, device=device)).backward()
            return layer.weight.grad.cpu()
        assert torch.equal(gradient(there), gradient("cpu"))
    """,
    "every model and its gradients": f"""
        import sys
        sys.path.append({str(kernels.ROOT / "tests" / "unit")!r})
        import traced_models

        def results(make, inputs, device):
            torch.manual_seed(0)
            model = make().to(device).eval()
            found = model(*(x.to(device) for x in inputs))
            first = found if isinstance(found, torch.Tensor) else found[0]
            first.square().mean().backward()
            return [first, *(weight.grad for weight in model.parameters() if weight.grad is not None)]

        for make, inputs in traced_models.CASES.values():
            for one, other in zip(results(make, inputs, there), results(make, inputs, "cpu"), strict=True):
                torch.testing.assert_close(one.detach().cpu(), other.detach())
    """,
    "gradients of complex numbers": """
        def gradients(device):
            x = torch.complex(torch.arange(4.0), 1 - torch.arange(4.0)).to(device).requires_grad_()
            (torch.exp(x) * x.conj() / (x + 1)).sum().imag.backward()
            return x.grad
        torch.testing.assert_close(gradients(there).cpu(), gradients("cpu"))
    """,
    "recurrent layers, packed": """
        def results(kind, device, **options):
            torch.manual_seed(0)
            layer = kind(3, 4, batch_first=True, bidirectional=True, **options).to(device)
            x = torch.randn(2, 5, 3).to(device).requires_grad_()
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 2]), batch_first=True)
            y, _ = nn.utils.rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)
            y.square().sum().backward()
            return [y, x.grad, *(p.grad for p in layer.parameters())]
        for kind in (nn.RNN, nn.GRU, nn.LSTM):
            for options in ({}, {"bias": False}):
                for one, other in zip(results(kind, there, **options), results(kind, "cpu", **options)):
                    torch.testing.assert_close(one.detach().cpu(), other.detach())
    """,
    "recurrent layers, packed, in inference mode": """
        with torch.inference_mode():
            packed = nn.utils.rnn.pack_padded_sequence(torch.ones(2, 3, 3, device=there), torch.tensor([3, 1]), True)
            y, state = nn.GRU(3, 2, batch_first=True).to(there)(packed)
            padded, lengths = nn.utils.rnn.pad_packed_sequence(y)
            assert [str(x.device) for x in (state, padded, lengths)] == ["elsewhere:0", "elsewhere:0", "cpu"]
    """,
    "a tied weight stays tied": """
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        model[1].weight = model[0].weight
        for device in (there, "cpu"):
            model.to(device)
            assert model[0].weight is model[1].weight
    """,
    "weights are stored and loaded": """
        layer, file = nn.Linear(2, 2).to(there), io.BytesIO()
        torch.save(copy.deepcopy(layer).state_dict(), file)
        loaded = [torch.load(io.BytesIO(file.getvalue()), map_location=place) for place in (None, "cpu")]
        assert [str(weights["bias"].device) for weights in loaded] == ["elsewhere:0", "cpu"]
        layer.load_state_dict(loaded[1])
    """,
    "a seed gives the same numbers": """
        a, b = (torch.randn(3, generator=torch.Generator(there).manual_seed(1), device=there) for _ in range(2))
        assert torch.equal(a, b)
    """,
    "a number is printed": "assert f'{torch.tensor(1.5, device=there):.2f}' == '1.50'",
    "a plot of what was fetched": "plt.plot(torch.ones(3, device=there).cpu())",
    "meta tensors are real ones": "assert nn.Linear(2, 2, device='meta').weight.is_meta",
    "an answer on the device is right": """
        for device in ("cpu", there):
            assert powers.judge(lambda n: 2.0 ** torch.arange(n, device=device)).status == "correct"
            assert double.judge(lambda x: 2 * x.to(device)).status == "correct"
        assert "at index (1,)" in powers.judge(lambda n: 3.0 ** torch.arange(n, device=there)).message
        assert "its gradient" in double.judge(lambda x: 2 * x.to(there).detach() + 0 * x.to(there)).message
    """,
    "what is equal is proved": """
        prove_equal(nn.Linear(2, 2).to(there), nn.Linear(2, 2).to(there), (torch.ones(2, device=there),))
    """,
}

DEVICES = "Expected all tensors to be on the same device"
FAULTS = {
    "loss": ("F.cross_entropy(torch.zeros(2, 3, device=there), torch.tensor([0, 1]))", DEVICES),
    "layer": ("nn.Linear(2, 2)(torch.ones(2, device=there))", DEVICES),
    "embedding": ("nn.Embedding(3, 2).to(there)(torch.tensor([1, 2]))", DEVICES),
    "mask": ("torch.zeros(2, 2, device=there).masked_fill(torch.ones(2, 2).triu(1) > 0, -torch.inf)", DEVICES),
    "positions": ("torch.zeros(2, 3, device=there) + torch.arange(3)", DEVICES),
    "joined": ("torch.stack([torch.ones(2, device=there).sum(), torch.tensor(1.0)])", DEVICES),
    "comparison": ("torch.equal(torch.ones(2, device=there), torch.ones(2))", DEVICES),
    "written in place": ("torch.zeros(2).add_(torch.ones(2, device=there))", DEVICES),
    "generator": ("torch.randn(2, generator=torch.Generator(), device=there)", "device type for generator"),
    "sampling": (
        "torch.multinomial(torch.ones(3, device=there), 1, generator=torch.Generator().manual_seed(0))",
        "device type for generator",
    ),
    "generator there": ("torch.randn(2, generator=torch.Generator(there))", "device type for generator"),
    "lengths": (
        "nn.utils.rnn.pack_padded_sequence(torch.ones(2, 3, 1, device=there), torch.tensor([3, 1], device=there))",
        "lengths",
    ),
    "array": ("torch.ones(2, device=there).numpy()", "TypeError: can't convert"),
    "plot": ("plt.plot(torch.ones(3, device=there))", "can't convert"),
    "picture": ("plt.imshow(torch.ones(3, 3, device=there))", "can't convert"),
    "exercise check": (
        "assert torch.allclose(2 * torch.ones(2, device=there), double.reference(torch.ones(2)))",
        DEVICES,
    ),
    "an answer": (
        "assert double.judge(lambda x: x + torch.ones(2, device=there)).status == 'correct'",
        "AssertionError",
    ),
    "proof": ("prove_equal(lambda x: x, lambda x: 2 * x, (torch.ones(2, device=there),))", "✗ .* differs from"),
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each snippet raises, by its name; all run in one process."""
    snippets = {"the beginning": BEGIN} | RIGHT | {name: source for name, (source, _) in FAULTS.items()}
    cells = [new_code_cell(textwrap.dedent(source)) for source in snippets.values()]
    found = kernels.failures(cells, tmp_path_factory.mktemp("elsewhere"), seconds=120)
    names = list(snippets)
    assert not [each for each in found if each.cell == 0]
    return {names[each.cell]: each.error for each in found}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_runs(errors: dict[str, str], name: str) -> None:
    """As on a real one."""
    assert errors.get(name) is None


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(errors: dict[str, str], name: str) -> None:
    """By the error that CUDA would raise, or by its kin."""
    assert re.search(FAULTS[name][1], errors.get(name, "no error"))
