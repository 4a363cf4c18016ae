"""Fine-tuning on plays: what each method trains and leaves alone, and a command that logs, resumes and refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tfbook.data.stories import check_story, told
from tfbook.models.adapters import LoraLinear
from tfbook.pretrain import finetune, storyteller
from tfbook.pretrain.driver import alone_in
from tfbook.pretrain.finetune import Finetuning, finetune_command, losses, play, plays, prepare, tales
from tfbook.pretrain.storyteller import MODELS, untrained
from tfbook.training.loop import NonFiniteLoss

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a tiny, untrained model that takes seconds."""
    monkeypatch.setitem(storyteller.MODELS, "draft", replace(MODELS["draft"], d_model=16, d_ff=32, layers=1))
    monkeypatch.setattr(finetune, "HELD_OUT", 3)

    def teller(name: str) -> storyteller.Storyteller:
        torch.manual_seed(0)
        return untrained(name)

    monkeypatch.setattr(finetune, "load_storyteller", teller)


def command(out: Path, *more: str, steps: int = 4) -> None:
    finetune_command(["--model", "draft", "--steps", str(steps), "--batch", "2", "--out", str(out), *more])


def logged(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


# ---- plays -------------------------------------------------------------------------------------------------------


def test_a_play_is_right_in_its_world_and_no_tale() -> None:
    words = play("valid", 3)
    assert words == play("valid", 3) != play("train", 3)
    assert check_story(words).consistent
    assert "Enter" in words or "enter" in words
    assert words != told("valid", 3).words


def test_held_out_plays_are_never_trained_on() -> None:
    train = {play("train", number) for number in range(200)}
    assert not train & {play("valid", number) for number in range(60)}


# ---- what is trained ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", finetune.RATES)
def test_a_method_changes_what_it_trains_and_nothing_before_the_first_step(method: str) -> None:
    teller = untrained("draft")
    ids = plays(teller.vocabulary, 2)
    with torch.no_grad():
        before = teller.model(ids)
        model = prepare(teller.model, method)
        torch.testing.assert_close(model(ids), before)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    embedded = model.embed.weight.detach().clone()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    storyteller.story_loss(model, ids).mean.backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert name not in frozen or torch.equal(parameter, frozen[name]), name
    if method != "full":
        rows = (model.embed.weight != embedded).any(dim=1).nonzero().flatten().tolist()
        assert set(rows) <= set(finetune.new_words())
        assert rows
    assert not torch.equal(model(ids), before)


def test_the_last_layer_is_the_output_and_what_new_words_are_read_as() -> None:
    teller = untrained("draft")
    model = prepare(teller.model, "last")
    rows = len(teller.vocabulary) + len(finetune.new_words())
    assert finetune.changed_count(model, "last") == rows * MODELS["draft"].d_model
    assert model.unembed.weight is not model.embed.weight


def test_lora_trains_at_most_two_percent_of_the_storyteller() -> None:
    teller = untrained("storyteller")
    total = teller.model.parameter_count()
    sizes = MODELS["storyteller"]
    expected = sizes.layers * finetune.RANK * (4 * 2 * sizes.d_model + 2 * (sizes.d_model + sizes.d_ff))
    expected += len(finetune.new_words()) * sizes.d_model
    assert finetune.changed_count(prepare(teller.model, "lora"), "lora") == expected <= 0.02 * total


def test_alpha_stays_when_the_rank_changes() -> None:
    scales = {}
    for rank in (1, 4):
        model = prepare(untrained("draft").model, "lora", rank=rank)
        scales[rank] = {float(module.scale) for module in model.modules() if isinstance(module, LoraLinear)}
    assert scales == {1: {finetune.ALPHA}, 4: {finetune.ALPHA / 4}}


def test_losses_are_of_the_two_dialects() -> None:
    teller = untrained("draft")
    found = losses(teller.model, teller.vocabulary, 2)
    assert found["new"] == pytest.approx(float(storyteller.story_loss(teller.model, plays(teller.vocabulary, 2)).mean))
    assert found["old"] == pytest.approx(float(storyteller.story_loss(teller.model, tales(teller.vocabulary, 2)).mean))


# ---- the command -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", finetune.RATES)
def test_the_command_trains_logs_and_saves(method: str, tmp_path: Path, small: None) -> None:
    command(tmp_path, "--method", method)
    assert [row["step"] for row in logged(tmp_path)] == [1, 2, 3, 4]
    assert logged(tmp_path)[-1]["new"] < logged(tmp_path)[0]["new"]
    saved = set(load_file(tmp_path / "trained.safetensors"))
    assert ("unembed.weight" in saved) == (method == "last")
    assert any(name.endswith(".A") for name in saved) == (method == "lora")
    assert ("new_words" in saved) == (method != "full")
    first = (tmp_path / "trained.safetensors").read_bytes()
    command(tmp_path, "--method", method)  # nothing is left to do
    assert (tmp_path / "trained.safetensors").read_bytes() == first


def test_a_run_cut_short_goes_on_bit_for_bit(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    command(tmp_path / "whole")

    def cut(options: Finetuning, vocabulary: object) -> object:
        batch = finetune_batches(options, vocabulary)

        def batches(step: int) -> torch.Tensor:
            if step == 2:
                raise NonFiniteLoss(float("nan"), 0.0, finetune.training.History())
            return batch(step)

        return batches

    finetune_batches = finetune.batches
    monkeypatch.setattr(finetune, "batches", cut)
    with pytest.raises(SystemExit):
        command(tmp_path / "cut")
    assert not (tmp_path / "cut" / "trained.safetensors").exists()
    monkeypatch.setattr(finetune, "batches", finetune_batches)
    command(tmp_path / "cut")
    whole, again = (load_file(tmp_path / name / "trained.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(weight, again[name]) for name, weight in whole.items())


def test_saved_adapters_are_all_that_is_needed(tmp_path: Path, small: None) -> None:
    from tfbook.models.adapters import load_lora

    command(tmp_path)
    base = finetune.load_storyteller("draft")
    state = load_file(tmp_path / "trained.safetensors")
    with torch.no_grad():
        base.model.embed.weight[finetune.new_words()] = state.pop("new_words")
    adapted = load_lora(base.model, state).eval()
    found = losses(adapted, base.vocabulary, 3)
    assert found["new"] == pytest.approx(logged(tmp_path)[-1]["new"], abs=1e-3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--method", "prayer"], "method is 'prayer'; expected one of 'full', 'last', 'lora', 'rows'"),
        (["--model", "shakespeare"], "model is 'shakespeare'; expected one of"),
        (["--lr", "0"], "lr is 0.0; expected more than 0"),
        (["--rank", "0"], "rank is 0"),
    ],
)
def test_options_are_checked(more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        finetune_command([*more, "--out", str(tmp_path)])
    assert message in capsys.readouterr().err


def test_a_folder_of_another_run_and_one_in_use_are_refused(
    tmp_path: Path, small: None, capsys: pytest.CaptureFixture[str]
) -> None:
    command(tmp_path)
    with pytest.raises(SystemExit):
        command(tmp_path, "--seed", "1")
    assert "holds a run with seed 0, and seed is 1" in capsys.readouterr().err
    with alone_in(tmp_path), pytest.raises(SystemExit):
        command(tmp_path)
    assert "another run is using" in capsys.readouterr().err
