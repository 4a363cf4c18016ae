"""Lesson 17's full states: keys of one size, facts held, the page's own matrix; and Mamba's steps on the lantern."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import Causal, MultiHeadAttention
from tfbook.course.experiments import stored
from tfbook.lessons.state_spaces import choosing, figures, filling, recall, selecting, study
from tfbook.models.gated import GatedLinearAttention

pytestmark = pytest.mark.usefixtures("float32")


def page_code(part: str) -> dict[str, Any]:
    """The names that the page's cell with this text defines."""
    path = Path(__file__).parents[2] / "notebooks" / "17_state_spaces.ipynb"
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    (source,) = [cell for cell in cells if part in cell]
    names: dict[str, Any] = {"torch": torch, "F": F}
    exec(source, names)
    return names


# ---- keys of one size ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixer", filling.HELD.values(), ids=filling.HELD)
def test_a_narrow_mixer_has_keys_of_one_size(mixer: Any) -> None:
    """The mixer inside works on key numbers; what a later word holds does not reach an earlier one."""
    narrow = filling.Narrow(12, 4, mixer=mixer, key=6)
    x = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1))
    assert narrow.inside.W_K.weight.shape == (6, 6)
    mask = {"mask": Causal()}
    expected = narrow.inside(x @ narrow.down.weight.T, **mask) @ narrow.up.weight.T
    torch.testing.assert_close(narrow(x, **mask), expected)
    changed = x.clone()
    changed[:, 3:] = 0
    torch.testing.assert_close(narrow(changed, **mask)[:, :3], expected[:, :3])


def test_a_reader_says_how_many_names_it_knows() -> None:
    reader = recall.Reader(MultiHeadAttention, known=32)
    assert 0 <= study.recalled(reader, 32, count=4) <= 1
    with pytest.raises(ValueError, match="33 facts need as many names; the reader knows 32"):
        study.recalled(reader, 33)


def test_more_names_leave_the_texts_of_sixteen_as_they_were() -> None:
    first, same = (
        recall.recall_batch(3, 4, torch.Generator().manual_seed(3), **known) for known in ({}, {"known": recall.NAMES})
    )
    assert all(torch.equal(one, other) for one, other in zip(first, same, strict=True))
    many = recall.recall_batch(3, 60, torch.Generator().manual_seed(3), known=64)
    assert int(many.names.max()) > recall.NAMES


# ---- facts held ----------------------------------------------------------------------------------------------------


def test_the_facts_held_lie_on_a_line_between_two_counts() -> None:
    """Halfway between 8 and 32 in logarithms is 16."""
    assert study.facts_held({4: 1.0, 8: 0.95, 32: 0.85}) == pytest.approx(16)
    assert study.facts_held({4: 1.0, 8: 0.9, 16: 0.4}) == pytest.approx(8)
    assert study.facts_held({4: 1.0, 8: 0.95}) == math.inf
    assert study.facts_held({4: 0.6, 8: 0.4}) == 4


def test_the_overflow_experiment_keeps_the_better_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "HELD", {"gated linear attention": GatedLinearAttention})
    monkeypatch.setattr(filling, "KEYS", (8,))
    monkeypatch.setattr(filling, "train_reader", lambda mixer, **recipe: recipe)
    monkeypatch.setattr(filling, "recalled", lambda recipe, facts: recipe["lr"] + recipe["seed"] + recipe["steps"])
    rows = filling.overflow(steps={"gated linear attention": (2, 7)}, seeds=(0, 1))
    assert [(row["steps"], row["seed"], row["lr"], row["4 facts"]) for row in rows] == [
        (steps, seed, 1e-2, steps + seed + 1e-2) for steps in (2, 7) for seed in (0, 1)
    ]


def test_what_the_page_says_of_full_states() -> None:
    rows = stored("state_spaces.overflow").rows
    found: dict[tuple[str, int, int], list[Any]] = {}
    for row in rows:
        found.setdefault((row["method"], row["key"], row["steps"]), []).append(row)
    assert all(len(runs) == 3 for runs in found.values())
    assert len(found) == 9
    for key in filling.KEYS:
        assert min(row["64 facts"] for row in found["attention", key, 500]) > 0.999
    matrix = "gated linear attention"
    assert all(0.2 < row["64 facts"] < 0.25 for row in found[matrix, 8, 1500])
    held = [study.facts_held({n: row[f"{n} facts"] for n in study.MANY}) for row in found[matrix, 32, 1500]]
    assert all(18 < each < 21 for each in held)
    for key in filling.KEYS:
        short, long = ([row["64 facts"] for row in found[matrix, key, steps]] for steps in (500, 1500))
        assert sum(long) > sum(short)
    table = study.held_table(rows)
    assert table.columns.tolist() == ["500 batches", "1,500 batches"]
    assert table.loc[("attention", 8)].tolist() == ["all 64, all 64, all 64", ""]
    assert table.loc[(matrix, 8), "1,500 batches"] == "under 4, under 4, under 4"


def test_what_the_page_says_of_random_keys() -> None:
    """About as many facts as a key has numbers, with other seeds; and fewer where each key overwrites."""
    names = page_code("def filled")

    def held(d: int) -> float:
        return study.facts_held({n: names["filled"](d, n, 11) for n in (2, 4, 8, 16, 32, 64)})

    added = {d: held(d) for d in (8, 16, 32)}
    assert all(0.75 < each / d < 1.05 for d, each in added.items())
    names["write"] = names["filled"].__globals__["write"] = lambda S, k, v: (
        S + k[:, :, None] * (v - (k[:, None] @ S)[:, 0])[:, None]
    )
    assert all(held(d) < 0.8 * each for d, each in added.items())


# ---- Mamba and the lantern -----------------------------------------------------------------------------------------


def test_without_its_inputs_a_mamba_takes_one_step_at_all_words() -> None:
    torch.manual_seed(1)
    names = ["Rosa", "rain", "fog", "Tom"]
    words = torch.tensor([[0, 8, 13, 1]])
    whole, steady = choosing.MambaKeeper(), choosing.MambaKeeper(selecting.PARTS)
    steps = study.steps_taken(steady, names)
    torch.testing.assert_close(steps, F.softplus(steady.mixer.step_bias).expand(4, -1))
    assert float(study.steps_taken(whole, names).std(dim=0).max()) > 0
    seen: list[Tensor] = []
    selective = whole.mixer.selective

    def watched(x: Tensor, step: Tensor, *rest: Tensor) -> Any:
        seen.append(step)
        return selective(x, step, *rest)

    whole.mixer.selective = watched
    assert whole(words).shape == (1, 4, 8)
    torch.testing.assert_close(study.steps_taken(whole, names), seen[0][0])
    assert isinstance(steady.mixer.selective, selecting.SteadyScan)


def test_the_experiment_on_the_lantern_runs_small() -> None:
    rows = choosing.chosen(steps=1, seeds=(3,))
    assert [row["still"] for row in rows] == ["", "Δ", "B and C", "Δ and B and C"]
    assert all(len(row["right"]) == len(study.GAPS) for row in rows)


def test_what_the_page_says_of_the_lantern() -> None:
    rows = stored("state_spaces.chosen").rows
    far: dict[str, list[float]] = {}
    for row in rows:
        far.setdefault(row["still"], []).append(row["right"][-1])
    assert all(len(each) == 3 for each in far.values())
    assert all(0.5 < share < 0.7 for share in far["Δ"])
    assert max(far["Δ and B and C"]) < 0.5
    assert min(far["B and C"]) > 0.95
    assert max(far["Δ"]) < min(far[""])
    assert study.chosen_table(rows).loc["nothing", "right beyond 48 words"] == "0.85, 0.93, 0.99"


def test_steps_are_long_near_a_name() -> None:
    """Four positions see a name through the filter: their mean step is at least twice that of the weather after."""
    torch.manual_seed(5)
    model: nn.Module = study.train_keeper(choosing.MambaKeeper(), steps=150, seed=5)
    names = ["Rosa", *["rain", "wind", "fog"], *["sun", "snow", "stars"] * 2]
    steps = study.steps_taken(model, names).mean(dim=1)
    assert float(steps[:4].mean()) > 2 * float(steps[4:].mean())


def test_full_states_and_steps_are_drawn() -> None:
    right = {8: [{2: 1.0, 4: 0.9}, {2: 1.0, 4: 0.8}], 16: [{2: 1.0, 4: 1.0}]}
    assert len(figures.draw_filled(right, "title").axes[0].lines) == 3 + 2
    rows = stored("state_spaces.overflow").rows
    assert len(figures.draw_overflow(rows, "title").axes[0].lines) == 9 + 2
    bars = figures.draw_steps_taken(["Rosa", "a", "b", "c", "d"], [0.1] * 5, study.HOLDERS, "title").axes[0].patches
    assert len({bar.get_facecolor() for bar in bars}) == 3
    assert bars[1].get_facecolor() == bars[3].get_facecolor() != bars[4].get_facecolor()
