"""The storyteller: the weights that ship load the same each time and tell stories; its command trains and resumes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tfbook.data.stories import check_story, story_ids, summary, told
from tfbook.pretrain import storyteller
from tfbook.pretrain.storyteller import (
    LONGEST,
    MODELS,
    Storyteller,
    entropy_bound,
    load_storyteller,
    run_command,
    save_storyteller,
    story_loss,
    tell,
    untrained,
)
from tfbook.text.vocabulary import BOS, EOS, PAD

SHIPPED = Path(__file__).parents[2] / "data" / "storyteller"
LIMIT = 8_000_000  # bytes


@pytest.fixture(scope="module")
def teller() -> Storyteller:
    return load_storyteller()


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_that_ship_are_small_and_load_the_same_each_time(name: str) -> None:
    assert (SHIPPED / f"{name}.safetensors").stat().st_size <= LIMIT
    first, second = load_storyteller(name).model, load_storyteller(name).model
    assert not first.training
    assert first.unembed.weight is first.embed.weight
    for (key, weight), again in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(weight, again), key
        assert torch.equal(weight, weight.half().float()), key  # as they are stored


def test_a_file_of_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that is missing would stay random without a word (pytorch issue 141256)."""
    weights = load_file(SHIPPED / "draft.safetensors")
    weights["other"] = weights.pop(query := "stack.blocks.0.mixer.branch.W_Q.weight")
    save_file(weights, tmp_path / "draft.safetensors")
    monkeypatch.setattr(storyteller, "fetch", lambda file: tmp_path / "draft.safetensors")
    with pytest.raises(ValueError, match=rf"another model's; these weights differ: other, {query}"):
        load_storyteller("draft")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="name is 'shakespeare'; expected one of 'storyteller', 'draft'"):
        load_storyteller("shakespeare")


def test_weights_survive_saving(tmp_path: Path) -> None:
    teller = untrained("draft")
    save_storyteller(teller, tmp_path / "draft.safetensors")
    from safetensors.torch import load_file

    saved = load_file(tmp_path / "draft.safetensors")
    for key, weight in saved.items():
        assert torch.equal(weight, teller.model.state_dict()[key].half()), key


def test_the_storyteller_tells_consistent_stories(teller: Storyteller, unchecked: None) -> None:
    """The card says what 1,000 stories showed; these are 60."""
    found = summary([check_story(words) for words in tell(teller, 60, temperature=0.7)])
    assert found["consistent"] >= 0.7
    assert found["names"] >= 0.93
    assert found["ends"] >= 0.9


def test_its_loss_is_near_what_the_world_leaves_open(teller: Storyteller, unchecked: None) -> None:
    stories = [told("test", number) for number in range(100)]
    ids = story_ids([story.words for story in stories], teller.vocabulary)
    with torch.no_grad():
        loss = float(story_loss(teller.model, ids).mean)
    assert loss < entropy_bound(stories) + 0.015


def test_a_story_goes_on_from_its_beginning(teller: Storyteller) -> None:
    beginning = "Once there was a shy fox named Lily"
    stories = tell(teller, 3, beginning=beginning, seed=1)
    for words in stories:
        assert " ".join(words).startswith("once there was a shy fox named Lily")
        assert len(words) < LONGEST
    assert tell(teller, 3, beginning=beginning, seed=1) == stories
    assert tell(teller, 3, beginning=beginning, seed=2) != stories


def test_padding_is_no_target() -> None:
    teller = untrained("draft")
    short, long = told("train", 1).words, told("train", 2).words
    both = story_ids([short, long], teller.vocabulary)
    assert both[0, 0] == BOS
    assert EOS in both[0]
    assert (both == PAD).any()
    alone = [story_loss(teller.model, story_ids([words], teller.vocabulary)) for words in (short, long)]
    together = story_loss(teller.model, both)
    total = sum(loss.totals[0].item() for loss in alone)
    assert together.totals[0].item() == pytest.approx(total, rel=1e-4)
    assert int(together.counts[0]) == len(short) + len(long) + 2


def test_the_command_trains_logs_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unchecked: None) -> None:
    monkeypatch.setitem(storyteller.MODELS, "draft", replace(MODELS["draft"], d_model=16, d_ff=32, layers=1))
    monkeypatch.setattr(storyteller, "HELD_OUT", 4)
    run_command(["--model", "draft", "--steps", "2", "--out", str(tmp_path)])
    first = (tmp_path / "draft.safetensors").read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert lines[0]["loss"] > 4
    run_command(["--model", "draft", "--steps", "2", "--out", str(tmp_path)])  # nothing is left to do
    assert (tmp_path / "draft.safetensors").read_bytes() == first


def test_a_file_in_the_way_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(SystemExit):
        run_command(["--out", str(tmp_path / "run"), "--steps", "1"])
    assert "error:" in capsys.readouterr().err
