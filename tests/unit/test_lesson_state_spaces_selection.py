"""Lesson 17's selection: Δ, B and C held at their means or never there, and masked attention's gradient."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tfbook.course.experiments import stored
from tfbook.lessons.state_spaces import selecting, study, telling
from tfbook.models.gpt import Gpt
from tfbook.models.state_spaces import selective_scan
from tfbook.text.vocabulary import PAD

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def teller() -> Gpt:
    """A small untrained Mamba whose Δ, B and C follow the word."""
    torch.manual_seed(1)
    model = telling.storyteller(telling.MAMBA)
    for mixer in selecting.mixers_of(model):
        nn.init.normal_(mixer.W_step.weight)
        nn.init.normal_(mixer.W_x.weight)
        nn.init.normal_(mixer.W_O.weight)
    return model


def test_parts_held_at_their_means_no_longer_vary(teller: Gpt) -> None:
    """Held parts change the loss, the means are those over words alone, and the model is left as it was."""
    before = telling.held_out_loss(teller)
    seen = study.selected(teller)[0]
    words = telling.held_out()[:, :-1] != PAD
    assert len(seen.step) == len(seen.B) == int(words.sum())
    lily = telling.held_out()[:, :-1][words] == telling.corpus().vocabulary.encode(["Lily"])[0]
    torch.testing.assert_close(study.by_word(seen)["Lily"].C, seen.C[lily].mean(dim=0))
    assert selecting.varying(seen.B.mean(dim=0).expand(5, -1)) < 1e-6 < selecting.varying(seen.B)
    losses = {study.still_loss(teller, parts) for parts in (("Δ",), ("B and C",), selecting.PARTS)}
    assert len(losses | {before}) == 4
    assert study.still_loss(teller, ()) == telling.held_out_loss(teller) == before


def test_an_unselective_mamba_does_not_see_the_word(teller: Gpt) -> None:
    mixer = selecting.unselective(8, 1, without=selecting.PARTS)
    inner = mixer.selective
    steps: list[Tensor] = []
    inner.register_forward_pre_hook(lambda scan, given: steps.append(given[1]))
    mixer(torch.randn(2, 5, 8))
    assert selecting.varying(steps[0].flatten(0, 1)) < 1e-9
    x, step, A = torch.randn(2, 5, 3), torch.rand(2, 5, 3), -torch.rand(3, 8)
    changing = [torch.randn(2, 5, 8) for _ in range(4)]
    start = torch.zeros(2, 3, 8)
    first, second = inner(x, step, A, *changing[:2], start)[0], inner(x, step, A, *changing[2:], start)[0]
    torch.testing.assert_close(first, second)
    same = [part.expand(2, 5, 8) for part in (inner.B, inner.C)]
    torch.testing.assert_close(first, selective_scan(x, step, A, *same, start)[0])


def test_the_experiment_on_selection_runs_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selecting, "train_teller", lambda model, **recipe: None)
    monkeypatch.setattr(selecting, "held_out_loss", lambda model: 1.0)
    rows = selecting.selection(seeds=(1, 2))
    assert [(row["seed"], row["still"]) for row in rows if row["kind"] == "trained"] == [
        (1, ""), (1, "Δ"), (1, "B and C"), (1, "Δ and B and C"), (2, "Δ"), (2, "B and C"),
    ]  # fmt: skip
    assert [row["kind"] for row in rows if row["kind"] != "trained"] == ["held"] * 3 + ["seen"] * 2


def test_what_the_page_says_of_selection() -> None:
    """Held after training, B and C matter much more than Δ; trained without either, hardly anything is lost."""
    rows = stored("state_spaces.selection").rows
    loss = {(row["kind"], row["still"], row["seed"]): row["loss"] for row in rows if row["kind"] != "seen"}
    told = {row["seed"]: row["loss"] for row in stored("state_spaces.story_rates").rows
            if (row["method"], row["lr"]) == ("Mamba", selecting.BEST)}  # fmt: skip
    assert loss["trained", "", 1] == told[1]
    assert told[1] + 0.03 < loss["held", "Δ", 1] < told[1] + 0.05 < told[1] + 0.2 < loss["held", "B and C", 1]
    for seed in told:
        assert loss["trained", "Δ", seed] < told[seed] + 0.01
        assert loss["trained", "B and C", seed] < told[seed] + 0.03
    assert loss["trained", "Δ and B and C", 1] < told[1] + 0.03
    table = study.selection_table(rows, list(told.values()))
    assert table.index.tolist() == ["nothing", "Δ", "B and C", "Δ and B and C"]
    for row in rows:
        if row["kind"] == "seen":
            assert row["step"] < min(row["B"], row["C"])


def test_masked_attention_has_a_gradient_at_200_words() -> None:
    """The page's own code: what is masked before exp cannot overflow, nor make the gradient 0 · ∞."""
    path = Path(__file__).parents[2] / "notebooks" / "17_state_spaces.ipynb"
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    (source,) = [cell for cell in cells if "def masked_attention" in cell]
    names: dict[str, Any] = {"torch": torch}
    exec(source.split("\n\n\n")[0], names)
    q, k, v = torch.randn(3, 200, 8, generator=torch.Generator().manual_seed(1))
    a = torch.rand(200, generator=torch.Generator().manual_seed(2)).requires_grad_()
    names["masked_attention"](q, k, v, a).square().sum().backward()
    assert a.grad is not None
    assert a.grad.isfinite().all()
    assert a.grad.abs().sum() > 0
