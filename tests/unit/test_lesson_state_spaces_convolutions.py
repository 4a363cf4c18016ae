"""Lesson 17's convolutions: what is heard in a melody, rivals by their formulas, and what the stored runs say."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from tfbook.course.experiments import stored
from tfbook.data.sounds import from_mu_law, melody, mu_law, plucked
from tfbook.lessons.state_spaces.convolution_contest import packed, rival_rows, scores, unpacked
from tfbook.lessons.state_spaces.convolution_exercises import dilated_convolution
from tfbook.lessons.state_spaces.convolution_listening import (
    HEARD,
    convolve,
    first_melody,
    melody_scores,
    player,
)
from tfbook.lessons.state_spaces.convolution_rivals import (
    by_period,
    level_bits,
    linear_continuation,
    linear_weights,
    linearly,
    loudness_bits,
    ringing_on,
)
from tfbook.lessons.state_spaces.convolution_sights import filter_paths, pixel_sight, stack_sight
from tfbook.lessons.state_spaces.convolutions import (
    DILATED,
    NETWORKS,
    NOTE,
    PROMPT,
    STRINGS,
    UNDILATED,
    bits,
    judged,
    learn_melodies,
    melodies,
    plucks,
    string_of,
    walk,
)
from tfbook.models.wave_net import WaveNet, WaveNetConfig

# ---- melodies and what is heard in them --------------------------------------------------------------------------


def test_a_walk_goes_from_neighbor_to_neighbor() -> None:
    places = walk(200, torch.Generator().manual_seed(0))
    assert set(places) == set(range(len(STRINGS)))
    assert all(abs(one - other) == 1 for one, other in pairwise(places))


@pytest.mark.parametrize("string", range(len(STRINGS)))
def test_each_string_is_recognized(string: int) -> None:
    """Not as the one with twice its period; and hiss is none of them."""
    noise = torch.randn(NOTE, generator=torch.Generator().manual_seed(string))
    note = plucked(STRINGS[string], NOTE)
    assert string_of(note + 0.004 * noise) == string
    assert string_of(note[100:]) == string
    assert string_of(noise) is None


def test_plucks_are_found_where_they_are() -> None:
    sound = torch.cat([plucked(period, length) for period, length in ((36, 300), (24, 500), (18, 400))])
    assert plucks(sound) == pytest.approx([300, 800], abs=5)
    assert plucks(plucked(24, 900)) == []


def test_a_melody_has_full_marks_and_what_is_wrong_has_fewer() -> None:
    right = from_mu_law(melodies(1, 6, seed=3))[0]
    assert set(judged(right).values()) == {1.0}
    jumps = melody([STRINGS[place] for place in (0, 2, 4, 2, 0, 2)], NOTE)
    assert judged(jumps) == {"in tune": 1.0, "a neighbor follows": 0.0, "in time": 1.0}
    slow = melody([STRINGS[place] for place in (0, 1, 2)], 2 * NOTE)
    assert judged(slow) == {"in tune": 0.5, "a neighbor follows": 2 / 5, "in time": 0.0}
    fast = melody([STRINGS[place] for place in (0, 1) * 6], NOTE // 2)
    assert judged(fast) == {"in tune": 1.0, "a neighbor follows": 1.0, "in time": 0.0}
    assert set(judged(torch.zeros(6 * NOTE)).values()) == {0.0}


def test_melodies_differ_and_repeat_by_their_seed() -> None:
    assert torch.equal(melodies(2, 3, seed=1), melodies(2, 3, seed=1))
    assert not torch.equal(melodies(2, 3, seed=1), melodies(2, 3, seed=2))
    assert torch.equal(from_mu_law(melodies(1, 3, seed=1))[0], unpacked(packed(melodies(1, 3, seed=1)[0])))


# ---- networks and rivals -----------------------------------------------------------------------------------------


def test_both_networks_have_as_many_parameters_and_other_receptive_fields() -> None:
    counts = {sum(weight.numel() for weight in WaveNet(config).parameters()) for config in NETWORKS.values()}
    assert len(counts) == 1
    assert (DILATED.receptive_field, UNDILATED.receptive_field) == (512, 10)


def test_a_network_learns_and_repeats_by_its_seed() -> None:
    tiny = WaveNetConfig(d_model=8, d_skip=8, dilations=(1, 2))
    losses: list[float] = []
    models = [
        learn_melodies(
            tiny, steps=60, seed=0, batch=2, length=300, rate=3e-2, report=lambda step, loss: losses.append(loss)
        )
        for _ in range(2)
    ]
    assert losses[59] < losses[0] - 0.5
    assert torch.equal(models[0].unembed.weight, models[1].unembed.weight)
    assert not models[0].training


def test_bits_are_those_of_what_comes_next() -> None:
    ids = torch.tensor([[3, 1, 2]])
    logits = torch.full((1, 3, 4), -torch.inf)
    logits[0, 0, :2] = 0.0  # the 1 that follows has probability ½
    logits[0, 1, 2] = 0.0
    assert float(bits(logits, ids)) == pytest.approx(0.5)


def test_level_bits_are_those_of_a_distribution() -> None:
    """Over all levels it sums to 1; a small scale at the right place costs nothing, far away it costs 18 bits."""
    ids, predicted = torch.arange(256)[None], torch.full((1, 256), 0.3)
    each = torch.stack([level_bits(predicted[:, i : i + 1], ids[:, i : i + 1], 0.05) for i in range(256)])
    assert float((2.0**-each).sum()) == pytest.approx(1, abs=1e-4)
    right = from_mu_law(torch.tensor([[200]]))
    assert level_bits(right, torch.tensor([[200]]), 1e-4) < 0.01
    assert float(level_bits(-right, torch.tensor([[200]]), 1e-4)) == pytest.approx(17.97, abs=0.01)


def test_loudness_alone_costs_the_entropy_of_even_levels() -> None:
    learned = torch.arange(256).repeat(1, 200)
    assert loudness_bits(learned, torch.arange(256).repeat(1, 10)) == pytest.approx(8, abs=1e-4)


def test_linear_prediction_finds_the_law_of_a_sine_and_continues_it() -> None:
    """x_t = 2 cos ω x_{t−1} − x_{t−2}."""
    sound = 0.5 * torch.sin(0.3 * torch.arange(4000.0))[None]
    weights = linear_weights(sound, 2)
    torch.testing.assert_close(weights, torch.tensor([1.9107, -1.0]), atol=2e-3, rtol=0)
    torch.testing.assert_close(linearly(weights)(sound)[:, 2:], sound[:, 2:], atol=2e-3, rtol=0)
    continued = linear_continuation(weights, sound[:, :50], 20)
    torch.testing.assert_close(continued, sound[:, 50:70], atol=0.05, rtol=0)


def test_the_string_s_rule_predicts_a_string_and_rings_on() -> None:
    sound = torch.stack([plucked(period, NOTE) for period in (36, 20)])
    torch.testing.assert_close(by_period(sound)[:, 200:], sound[:, 200:], atol=1e-6, rtol=0)
    torch.testing.assert_close(ringing_on(sound[:, :300], 100), sound[:, 300:], atol=1e-6, rtol=0)


def test_rivals_are_judged_like_networks() -> None:
    asked = melodies(2, 5, seed=7)
    rows = {row["kind"]: row for row in rival_rows(melodies(3, 8, seed=1), asked)}
    assert rows["the melody"].items() >= scores(from_mu_law(asked[:, PROMPT:])).items()
    assert rows["the string rings on"]["in tune"] == 0.5  # one note where two should be
    assert rows["the string rings on"]["bits"] < rows["linear prediction"]["bits"] < rows["loudness alone"]["bits"] < 8
    assert mu_law(unpacked(rows["the melody"]["sound"])).tolist() == asked[0, PROMPT:].tolist()


# ---- what a stack sees -------------------------------------------------------------------------------------------


def test_the_reader_s_convolution_is_measured_by_derivatives() -> None:
    """The solution sees backward as far as the formula says; the given bug sees ahead."""
    assert stack_sight(dilated_convolution.reference, (1, 2, 4)) == list(range(8))
    assert min(stack_sight(dilated_convolution.start, (1, 2, 4))) < 0


def test_paths_through_two_filters_are_those_of_one_convolved_with_itself() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    line = torch.tensor([1.0, 2, 3, 2, 1])
    assert torch.equal(filter_paths(2), line[:, None] * line)
    assert filter_paths(1).sum() == ones.sum() ** 2
    assert (filter_paths(2) > 0).sum() == 25


def test_the_blind_spot_stays_whatever_the_depth() -> None:
    """Right of the diagonal up to the edge: 4 + 3 + 2 + 1 pixels of the 11 × 11."""
    earlier = (torch.arange(121) < 7 * 11 + 5).view(11, 11)
    missed = [int((earlier & ~pixel_sight(layers, 11, (7, 5))).sum()) for layers in (9, 14)]
    assert missed == [10, 10]
    assert not (pixel_sight(9, 11, (7, 5)) & ~earlier).any()


# ---- stored runs -------------------------------------------------------------------------------------------------


def kinds() -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in stored("state_spaces.continued_melodies").rows:
        rows.setdefault(row["kind"], []).append(row)
    return rows


def test_what_the_lesson_says_of_the_stored_runs_holds_for_every_seed() -> None:
    rows = kinds()
    assert [row["seed"] for row in rows["dilated"]] == [row["seed"] for row in rows["not dilated"]] == [0, 1, 2]
    assert {row["parameters"] for kind in NETWORKS for row in rows[kind]} == {rows["dilated"][0]["parameters"]}
    for name in ("in tune", "a neighbor follows", "in time"):
        assert min(row[name] for row in rows["dilated"]) > max(row[name] for row in rows["not dilated"])
        assert rows["the melody"][0][name] == 1
    assert max(row["bits"] for row in rows["dilated"]) < min(row["bits"] for row in rows["not dilated"])
    assert max(row["bits"] for row in rows["not dilated"]) < rows["linear prediction"][0]["bits"]


def test_the_table_and_the_sounds_are_those_of_the_stored_runs() -> None:
    rows = stored("state_spaces.continued_melodies").rows
    table = melody_scores(rows)
    assert list(table.index) == [*HEARD, "loudness alone"]
    times = [row["in time"] for row in rows if row["kind"] == "dilated"]
    assert table["in time"]["dilated"] == f"{sum(times) / 3:.0%} ({min(times):.0%} to {max(times):.0%})"
    assert table["bits per sample"]["the melody"] == ""
    prompt, sounds = first_melody(rows)
    assert list(sounds) == list(HEARD)
    assert all(len(sound) == 13 * NOTE and torch.equal(sound[:PROMPT], prompt) for sound in sounds.values())
    assert len(player(sounds["dilated"]).data) < 20_000


def test_the_page_s_convolution_is_the_solution() -> None:
    for case in dilated_convolution.cases():
        torch.testing.assert_close(convolve(*case), dilated_convolution.reference(*case))


def test_no_learning_rate_closes_the_gap() -> None:
    """Half and twice the rate: the best of the network that sees ten samples is behind the worst of the dilated one."""
    rows = stored("state_spaces.melody_rates").rows
    tried = {kind: [row for row in rows if row["kind"] == kind] for kind in NETWORKS}
    assert [[row["rate"] for row in own] for own in tried.values()] == [[2e-3, 8e-3]] * 2
    assert max(row["bits"] for row in tried["dilated"]) < min(row["bits"] for row in tried["not dilated"])
    assert min(row["in time"] for row in tried["dilated"]) > max(row["in time"] for row in tried["not dilated"])
