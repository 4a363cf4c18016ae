"""Lesson 18's machines: tasks against their definitions, the shipped weights at work, and what was stored."""

import itertools

import pytest
import torch

from tfbook.course.experiments import stored
from tfbook.data.stories import told
from tfbook.generation.neighbors import Datastore, last_states
from tfbook.lessons.memory import machine_figures, machines, neighbors, pointing, pondering
from tfbook.lessons.memory.machine_exercises import move_head, write_slots
from tfbook.models.turing_machine import Addressing, Head, address
from tfbook.pretrain import finetune
from tfbook.pretrain.storyteller import load_storyteller
from tfbook.text.vocabulary import PAD

pytestmark = pytest.mark.usefixtures("float32")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- copying -----------------------------------------------------------------------------------------------------


def test_a_task_shows_bits_a_mark_and_silence() -> None:
    task = machines.copies(3, 4, repeats=2, generator=generator())
    assert task.inputs.shape == (3, 4 + 1 + 8, 7)
    assert task.inputs[:, :4, :6].abs().eq(1).all()
    assert task.inputs[:, 4].tolist() == [[0] * 6 + [1]] * 3
    assert task.inputs[:, 5:].eq(0).all()
    heard = (task.inputs[:, :4, :6] + 1) / 2
    assert torch.equal(task.target, torch.cat([heard, heard], dim=1))


def test_the_shipped_machine_copies_twice_its_length() -> None:
    rows = machines.errors(machines.machine(), (5, 10, 20), count=32)
    assert [row["length"] for row in rows] == [5, 10, 20]
    assert max(row["error"] for row in rows) < 0.02


def test_it_writes_each_vector_to_a_slot_of_its_own_and_reads_them_in_that_order() -> None:
    tape = machines.play(machines.machine(), machines.copies(1, 20, generator=generator(3)))
    written = tape.writing[:20].argmax(dim=1).tolist()
    assert len(set(written)) == 20
    assert {(one - other) % 32 for one, other in itertools.pairwise(written)} == {1}
    assert tape.reading[21:40].argmax(dim=1).tolist() == tape.reading[20:39].argmax(dim=1).sub(1).remainder(32).tolist()


def test_its_tape_ends_at_32_vectors() -> None:
    rows = {row["length"]: row["error"] for row in machines.errors(machines.machine(), machines.PAST)}
    assert max(rows[30], rows[32]) < 0.03
    assert min(rows[33], rows[36], rows[40]) > 0.44
    large = stored("memory.copying").frame.query("machine == 'LSTM, 30 times the size' and length == 30 and chosen")
    assert rows[33] > large.error.max()


def test_at_33_its_jump_fails_and_a_longer_tape_mends_it() -> None:
    """The two tables of jumps: what breaks is the place where the reading begins, and slots alone move that limit."""
    model = machines.machine()
    full, past = machines.jump(model, 32), machines.jump(model, 33)
    assert full.landed.eq(0).all()
    assert past.landed.ne(0).all()
    assert (round(past.wrong, 2), round(past.wrong_from_there, 2)) == (0.49, 0.05)
    by_hand = machines.jump(model, 33, by_hand=True)
    assert by_hand.landed.eq(0).all()
    assert by_hand.wrong < 0.03
    longer = {(n, slots): machines.jump(model, n, slots) for n, slots in ((33, 33), (40, 64), (60, 64), (60, 128))}
    assert [int(each.landed.ne(0).sum()) for each in longer.values()] == [0, 2, 7, 11]
    assert max(longer[33, 33].wrong, longer[40, 64].wrong) < 0.025
    table = machines.jump_table({"33": past})
    assert [*table.loc["33"]] == ["0 of 64", "49.3%", "5.4%"]


def test_it_jumps_by_its_gate_and_says_what_it_read_a_step_earlier() -> None:
    """The gate peaks at the mark, bits are wrong where it is shut there, and the output needs no read."""
    model, task = machines.machine(), machines.copies(64, 20, generator=generator(3))
    tape = machines.play(model, task)
    assert tape.gate[20] == tape.gate.max() > 0.85
    assert 0.25 < tape.gate[21:].min() < tape.gate[21:].max() < 0.55
    kept = model.output.weight[:, machines.SIZES.d_hidden :].detach().clone()
    with torch.no_grad():
        model.output.weight[:, machines.SIZES.d_hidden :] = 0
        assert machines.bit_error(model, task) < 0.005
        model.output.weight[:, machines.SIZES.d_hidden :] = kept
    calls = itertools.count(1)

    def shut_at_the_mark(memory: torch.Tensor, previous: torch.Tensor, head: Head) -> Addressing:
        return address(memory, previous, head._replace(gate=0 * head.gate) if next(calls) == 2 * 21 else head)

    model.address = shut_at_the_mark
    assert 0.4 < machines.bit_error(model, task) < 0.5


def test_a_write_erases_and_then_adds() -> None:
    """The numbers below the figure of a write on a full slot."""
    model, task = machines.machine(), machines.copies(1, 33, generator=generator(3))
    usual, expected = model.write, machines.said(model, task)
    write = machines.written(model, task, 33)
    assert model.write is usual
    torch.testing.assert_close(machines.said(model, task), expected)
    torch.testing.assert_close(write.after, write.before * (1 - write.weight * write.erase) + write.weight * write.add)
    first = machines.written(model, task, 1)
    assert (write.slot, first.slot) == (31, 31)
    assert (write.before - first.after).abs().max() < 0.2
    numbers = [write.weight, *(float(v[0]) for v in (write.before, write.erase, write.add, write.after))]
    assert [round(x, 2) for x in numbers] == [0.77, -0.85, 0.07, 0.94, -0.08]


def test_the_view_is_silent_while_it_listens() -> None:
    tape = machines.play(machines.machine(), machines.copies(1, 6, generator=generator()))
    said = machines.played(tape).said
    assert said[:7].eq(0.5).all()
    assert torch.equal(said[7:], tape.said[7:])


def test_a_readers_focus_runs_in_the_machine() -> None:
    model, task = machines.machine(), machines.copies(2, 6, generator=generator())
    expected = machines.said(model, task)
    model.address = machines.focused_by(machines.plain_focus)
    torch.testing.assert_close(machines.said(model, task), expected)
    model.address = machines.focused_by(machines.focus_by(move_head.reference))
    torch.testing.assert_close(machines.said(model, task), expected)
    model.address = machines.focused_by(lambda content, *_: content)
    assert not torch.allclose(machines.said(model, task), expected, atol=0.1)


def test_a_readers_write_runs_in_the_machine() -> None:
    model, task = machines.machine(), machines.copies(2, 6, generator=generator())
    expected = machines.said(model, task)
    model.write = write_slots.reference
    torch.testing.assert_close(machines.said(model, task), expected)
    model.write = write_slots.start
    assert not torch.allclose(machines.said(model, task), expected, atol=0.1)


def test_the_machines_are_of_the_sizes_that_the_lesson_says() -> None:
    sizes = {name: machines.parameters(build()) for name, build in machines.MACHINES.items()}
    assert abs(sizes["LSTM"] - sizes["Turing machine"]) < 0.05 * sizes["Turing machine"]
    assert 25 < sizes["LSTM, 30 times the size"] / sizes["LSTM"] < 30
    assert sizes["Turing machine"] < sizes["LSTM, 30 times the size"] / 20


def test_a_short_run_learns_something() -> None:
    """A large LSTM remembers one vector; the compiled step of a machine is gone after its run."""
    model = machines.trained(machines.MACHINES["LSTM, 30 times the size"], 1, 1e-2, 150, longest=1)
    assert machines.errors(model, [1])[0]["error"] < 0.1


# ---- pointing ----------------------------------------------------------------------------------------------------


def test_numbers_are_sorted_by_their_targets() -> None:
    task = pointing.numbers(20, 7, generator())
    assert task.target[:, -1].eq(7).all()
    items = task.items[..., 0].take_along_dim(task.target[:, :-1], dim=1)
    assert (items.diff(dim=1) > 0).all()


def test_a_hull_turns_left_at_every_corner_and_has_all_points_on_one_side() -> None:
    task = pointing.points(20, 8, generator())
    for cloud, walk in zip(task.items.double(), task.target.tolist(), strict=True):
        corners = walk[: walk.index(8)]
        assert corners[0] == min(corners) == 0
        for one, other in itertools.pairwise([*corners, corners[0]]):
            edge, to = cloud[other] - cloud[one], cloud - cloud[one]
            assert (edge[0] * to[:, 1] - edge[1] * to[:, 0] >= -1e-9).all()


def test_the_shipped_networks_point() -> None:
    assert pointing.exact(pointing.pointer("sort"), pointing.numbers(100, 10, generator(1))) >= 0.95
    assert pointing.exact(pointing.pointer("hull"), pointing.points(100, 10, generator(1))) >= 0.5


def test_what_fills_a_target_up_counts_nothing() -> None:
    network = pointing.pointer("hull")
    task = pointing.points(4, 6, generator())
    corners = [row.index(6) + 1 for row in task.target.tolist()]
    log_p = network(*task).log_softmax(dim=-1).gather(2, task.target[..., None])[..., 0]
    expected = -sum(log_p[row, :count].sum() for row, count in enumerate(corners)) / sum(corners)
    torch.testing.assert_close(pointing.pointing_loss(network, task), expected)


# ---- pondering ---------------------------------------------------------------------------------------------------


def test_walks_end_at_the_first_home_after_their_hops() -> None:
    for hops in range(1, 6):
        task = pondering.walks(30, generator(hops), [hops])
        for row in range(30):
            place, count = int(task.start[row]), 0
            while not task.home[row, place]:
                place, count = int(task.table[row, place]), count + 1
            assert (place, count) == (int(task.end[row]), hops)
            assert int(task.table[row, place]) == place
        assert task.home.sum(dim=1).eq(2).all()


def test_a_walker_learns_to_stop_at_home() -> None:
    rows = pondering.by_hops(pondering.new_walker(1, 0.1, 300, 1e-2), 50)
    assert min(row["right"] for row in rows) > 0.9
    assert rows[4]["steps"] > rows[0]["steps"] + 3


# ---- a store -----------------------------------------------------------------------------------------------------


def test_counts_are_witten_and_bell_s() -> None:
    """By hand: after 4 came 5 twice and 6 once, two kinds; of five tokens that follow another, 5 is two."""
    found = neighbors.counted([[1, 4, 5], [1, 4, 5], [4, 6]], [[4, 5]], 1, 10)
    unigram = (2 + 3 / 10) / (5 + 3)
    assert found == pytest.approx([(2 + 2 * unigram) / (3 + 2)])


def test_a_store_of_plays_lowers_the_loss_on_plays() -> None:
    teller = load_storyteller()
    store = Datastore.of(teller.model, finetune.plays(teller.vocabulary, 8, split="train"), PAD)
    places = neighbors.judged(teller, finetune.plays(teller.vocabulary, 4))
    curve = neighbors.by_share(store, places)
    assert curve[0.8] < curve[0.0] - 3
    torch.testing.assert_close(places.model.sum(dim=1), torch.ones(len(places.model)))


def test_a_lookup_shows_the_places_that_were_found() -> None:
    teller = load_storyteller()
    ids = finetune.plays(teller.vocabulary, 3, split="train")
    words = finetune.play("train", 1)
    table = neighbors.lookup_table(teller, ids, words[:12])
    first = table.iloc[0]
    assert first["next"] == words[12]
    assert first["a place in the store"].endswith(" ".join(words[7:12]))
    assert first["weight"] == table["weight"].max()


def test_the_states_are_those_of_a_whole_tale() -> None:
    teller = load_storyteller()
    ids = torch.tensor([teller.vocabulary.encode(told("valid", 0).words)])
    assert last_states(teller.model, ids).shape == (1, ids.shape[1], 192)


# ---- stored ------------------------------------------------------------------------------------------------------


def test_the_stored_runs_keep_the_lesson_s_claims() -> None:
    copying = machines.claims_of_copying(stored("memory.copying").frame)
    assert copying[9] <= 0.05
    assert copying[10] >= 0.3
    assert pointing.claims_of_pointing(stored("memory.pointing").frame)[14] >= 0.95
    assert pondering.claims_of_pondering(stored("memory.pondering").frame)[15] >= 3.5


def test_the_text_says_what_was_stored() -> None:
    """The sentences below the figures."""
    rows = stored("memory.copying").frame
    at = rows[rows.seed.isin((1, 2, 3))].set_index(["machine", "lr", "length"]).error
    assert (at["LSTM", 0.01, 5] > 0.2).all()
    assert (at["LSTM, 30 times the size", 0.01, 20] > 0.33).all()
    assert sorted(at["Turing machine", 0.003, 20] > 0.1) == [False, True, True]
    assert (at["Turing machine", 0.003, 10] < 0.01).all()
    layers = rows[(rows.machine == "Transformer") & rows.chosen]
    assert set(layers.parameters) == {18_134}
    assert sorted(round(error, 2) for error in layers[layers.length == 10].error) == [0.2, 0.24, 0.28]
    longer = stored("memory.longer_copying").frame.groupby("length").error
    assert (longer.max()[10], round(longer.mean()[20], 2)) < (0.02, 0.31)
    assert longer.min()[20] > 0.28
    means = rows[rows.chosen].groupby(["machine", "length"]).error.mean()["LSTM, 30 times the size"]
    assert (round(means[10], 2), round(means[20], 2)) == (0.13, 0.33)
    table = neighbors.table_of_storing(stored("memory.storing").frame)
    plays = table.loc["plays", "plays", 400]
    assert (plays["alone"], plays["counts"], plays["store"]) == (7.24, 1.26, 0.95)
    assert table.loc["tales", "training tales", 400]["λ of the store"] == 0


# ---- figures -----------------------------------------------------------------------------------------------------


def test_the_figures_are_drawn() -> None:
    copying, pointed, pondered = (stored(f"memory.{name}").frame for name in ("copying", "pointing", "pondering"))
    head = Head(torch.randn(1, 2), torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 3) / 3, torch.ones(1, 1))
    previous = torch.tensor([[1.0, 0, 0, 0, 0]])
    steps = address(torch.randn(1, 5, 2), previous, head)
    assert machine_figures.draw_addressing(previous[0], head, steps).get_label() == "schematic"
    tape = machines.play(machines.machine(), machines.copies(1, 5, generator=generator()))
    assert len(machine_figures.draw_tape(tape, "Five vectors").axes) == 5
    longer, past = stored("memory.longer_copying").frame, [{"length": 30, "error": 0.0}, {"length": 33, "error": 0.5}]
    axes = machine_figures.draw_copying(copying, longer, past, 32).axes[0]
    assert [30, 33] in [list(line.get_xdata()) for line in axes.get_lines() if line.get_linestyle() == ":"]
    write = machines.written(machines.machine(), machines.copies(1, 5, generator=generator()), 2)
    assert machine_figures.draw_write(write, "A write").get_label() == "schematic"
    assert len(machine_figures.draw_pondering(pondered).axes) == 2
    ends = [text.get_text() for text in machine_figures.draw_pointing(pointed).axes[0].texts]
    assert {"sort", "sort without a mask", "hull"} < set(ends)
    clouds = pointing.points(3, 6, generator())
    assert len(machine_figures.draw_hull(clouds.items, clouds.target, [True, False, True]).axes) == 3
    assert machine_figures.draw_shares({"plays": {0.0: 2.0, 0.5: 1.0}}).axes[0].texts[0].get_text() == "1.00"
