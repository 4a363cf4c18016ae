"""Lesson 16's last section: levers in pairs, and the race of the storytellers."""

from functools import partial

import pytest
import torch

from tfbook.generation.frozen import Frozen
from tfbook.generation.speculative import Speculation, accept, residual
from tfbook.lessons.inference import figures, study
from tfbook.lessons.inference.guessing_ahead import Pair
from tfbook.lessons.inference.racing import Lane, picture
from tfbook.pretrain.storyteller import Storyteller
from tfbook.text.vocabulary import BOS

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture(scope="module")
def teller() -> Storyteller:
    return study.storyteller()


# ---- pairs of levers -----------------------------------------------------------------------------------------------


def test_pairs_of_levers_are_timed_in_each_form(teller: Storyteller) -> None:
    draft, rule = Frozen(study.storyteller("draft").model), (accept, residual)
    forms = {"float32": Frozen(teller.model), "2 groups": Frozen(study.converted(teller.model, 2))}
    found = study.lever_pairs(forms, draft, 2, rule, 1, texts=2, long=70, unguessed=["2 groups"])
    assert [*found] == ["float32", "2 groups"]
    assert all(took and took > 0 for took in found["float32"])
    assert found["2 groups"].guessing is None


PAIRS = {"32 bits": Pair(8.0, 4.0, 2.0, 4.0), "8 bits": Pair(4.0, 4.0, 0.5, 2.0), "2 groups": Pair(8.0, None, 2.0, 2.0)}


def test_a_pair_is_compared_with_its_levers_multiplied() -> None:
    """Guesses alone 2 ×, short texts 4 ×, long ones 2 ×; 8 bits alone 2 ×, groups alone 1 ×."""
    base, eight, groups = PAIRS.values()
    keys = ("plain", "guessing", "together", "long")
    assert [base.multiplied(key, base) for key in keys] == [None] * 4
    assert [eight.multiplied(key, base) for key in keys] == [None, 4.0, 8.0, 4.0]
    assert [groups.multiplied(key, base) for key in keys] == [None, None, 4.0, 2.0]
    assert [eight.share(key, base) for key in keys[1:]] == [0.5, 2.0, 1.0]
    assert groups.share("long", base) == 2.0
    with pytest.raises(ValueError, match="plain of this form is no pair"):
        eight.share("plain", base)


def test_the_grid_of_pairs_writes_speeds_and_products() -> None:
    axes = figures.draw_pairs(PAIRS).axes[0]
    written = [text.get_text() for text in axes.texts]
    assert written.count("one lever") == 5
    assert written.count("no lever") == 1
    assert written.count("not tried") == 1
    assert [text for text in written if text.startswith("multiplied")] == [
        "multiplied: 4.0 ×",
        "multiplied: 8.0 ×",
        "multiplied: 4.0 ×",
        "multiplied: 4.0 ×",
        "multiplied: 2.0 ×",
    ]
    fills = [patch.get_facecolor() for patch in axes.patches]
    less, more, level = fills[5], fills[6], fills[7]
    assert len({less, more, level}) == 3
    assert (fills[10], fills[11]) == (level, more)


# ---- the race ------------------------------------------------------------------------------------------------------


def test_all_lanes_write_the_same_words_each_with_its_clock(teller: Storyteller) -> None:
    fast, draft = Frozen(teller.model), Frozen(study.storyteller("draft").model)
    ways = {"plain": fast, "guesses": Speculation(fast, draft, k=3)}
    lanes = study.race_lanes(ways, torch.tensor([[BOS]]), 8, teller.vocabulary, rounds=1)
    assert lanes["plain"].words == lanes["guesses"].words
    assert len(lanes["plain"].words) == 8
    assert [count for count, _ in lanes["plain"].stamps] == [*range(1, 9)]
    counts = [count for count, _ in lanes["guesses"].stamps]
    assert counts == sorted(counts)
    assert counts[-1] == 8
    for lane in lanes.values():
        clocks = [clock for _, clock in lane.stamps]
        assert clocks[0] > 0
        assert clocks == sorted(clocks)
        assert lane.end == clocks[-1]


def test_the_race_stops_when_one_has_arrived(capsys: pytest.CaptureFixture[str]) -> None:
    slow = Lane(["a", "b", "<c>"], [(1, 1.0), (2, 2.0), (3, 3.0)])
    quick = Lane(["a", "b", "<c>"], [(2, 0.5), (3, 2.5)])
    assert [slow.at(moment) for moment in (0.9, 1.0, 2.5, 9)] == [0, 1, 2, 3]
    page = picture({"slow": slow, "quick": quick}, 2.5)
    assert page["text/plain"] == "after 2,500 milliseconds\nslow: 2 of 3 words: a b\nquick: 3 of 3 words: a b <c>"
    assert "<b>quick</b> · 3 of 3 words" in page["text/html"]
    assert "&lt;c&gt;" in page["text/html"]
    study.show_race({"slow": slow, "quick": quick}, "quick", frames=2, pause=0)
    assert "3 of 3 words" in capsys.readouterr().out


def test_the_run_of_middle_throughput_is_shown(teller: Storyteller) -> None:
    schedules = {"mine": study.for_engine(study.schedule)}
    queue = partial(study.queue_of, 2, shortest=2, longest=4)
    found = study.middle_runs(Frozen(teller.model), schedules, queue, rounds=3, seats=2)
    assert found["mine"].summary()["throughput"] > 0
