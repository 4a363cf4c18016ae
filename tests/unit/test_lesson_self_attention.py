"""The tasks of self-attention are what they say, its drawings draw, and its models are as able as the lesson needs."""

import math
from functools import partial

import matplotlib.pyplot as plt
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import MultiHeadAttention, softmax
from tfbook.course.cost import attend, count_flops
from tfbook.lessons.self_attention import captions, figures, pointing, rivals, runs, stall, study, words
from tfbook.lessons.self_attention.depth import NormalizedStack, Stack
from tfbook.lessons.self_attention.study import (
    FIRST,
    IT,
    LEXICON,
    NEAR,
    REASON,
    SECOND,
    SHAPES,
    Scenes,
)


class Painter(nn.Module):
    """The lesson's model."""

    def __init__(self, mix: nn.Module, numbers: int = 3) -> None:
        super().__init__()
        self.kind, self.color, self.mix = nn.Embedding(8, 16), nn.Linear(3, 16), mix
        self.paint = nn.Linear(16, numbers)

    def forward(self, kinds: Tensor, colors: Tensor) -> Tensor:
        x = self.kind(kinds) + self.color(colors)
        return self.paint(x + self.mix(x))


# ---- shapes that must find their color ---------------------------------------------------------------------------


def test_a_scene_has_each_shape_in_color_and_in_gray() -> None:
    scenes = study.twins(50, seed=1)
    assert (scenes.kinds.sort(dim=1).values == torch.arange(8)).all()
    gray = scenes.kinds >= 4
    assert torch.equal(scenes.asked, gray)
    assert (scenes.colors[gray] == study.GRAY).all()
    assert torch.equal(scenes.colors[~gray], scenes.target[~gray])
    assert not (scenes.target[gray] == study.GRAY).all(dim=-1).any()


def test_twins_have_one_color_and_it_is_the_palette_s() -> None:
    scenes = study.twins(20, seed=2)
    for scene in range(20):
        for kind, color in zip(scenes.kinds[scene].tolist(), scenes.target[scene], strict=True):
            assert torch.equal(color, scenes.palette[scene, kind % 4])


def test_a_rim_has_the_color_of_the_next_shape() -> None:
    twins, rims = study.twins(20, seed=3), study.rims(20, seed=3)
    assert torch.equal(rims.target[..., :3], twins.target)
    for scene in range(20):
        for kind, color in zip(rims.kinds[scene].tolist(), rims.target[scene, :, 3:], strict=True):
            assert torch.equal(color, rims.palette[scene, (kind + 1) % 4])


def test_in_a_ring_each_shape_gets_the_next_color() -> None:
    ring = study.ring(20, seed=3)
    assert (ring.kinds.sort(dim=1).values == torch.arange(4)).all()
    assert ring.asked.all()
    for scene in range(20):
        for kind, seen, color in zip(ring.kinds[scene].tolist(), ring.colors[scene], ring.target[scene], strict=True):
            assert torch.equal(seen, ring.palette[scene, kind])
            assert torch.equal(color, ring.palette[scene, (kind + 1) % 4])


@pytest.mark.parametrize("shapes", [4, 16])
def test_twins_of_any_number_of_shapes(shapes: int) -> None:
    scenes = study.many_twins(shapes)(20, 5)
    assert (scenes.kinds.sort(dim=1).values == torch.arange(2 * shapes)).all()
    assert torch.equal(scenes.asked, scenes.kinds >= shapes)
    assert (scenes.colors[scenes.asked] == study.GRAY).all()
    for scene in range(20):
        for kind, color in zip(scenes.kinds[scene].tolist(), scenes.target[scene], strict=True):
            assert torch.equal(color, scenes.palette[scene, kind % shapes])


def test_the_middle_run_is_the_one_with_the_median_share() -> None:
    assert study.middle(["a", "b", "c"], [0.9, 0.2, 0.5]) == "c"
    assert study.middle(["a"], [0.3]) == "a"


def test_the_colors_of_a_scene_can_be_told_apart() -> None:
    """So no color is near to two of them; and they are colors."""
    palette = study.twins(2000, seed=4).palette
    gaps = torch.cdist(palette, palette) + 9 * torch.eye(4)
    assert gaps.min() > NEAR
    assert palette.min() >= 0
    assert palette.max() <= 1


def test_a_seed_gives_the_same_scenes_and_another_gives_others() -> None:
    one, again, other = (study.twins(5, seed).colors for seed in (5, 5, 6))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_names_of_tokens() -> None:
    scenes = study.twins(3, seed=7)
    names = scenes.names(2)
    assert sorted(names) == sorted([*SHAPES, *(shape + "?" for shape in SHAPES)])
    for name, kind in zip(names, scenes.kinds[2].tolist(), strict=True):
        assert name == SHAPES[kind % 4] + ("?" if kind >= 4 else "")


def test_an_exchange_leaves_the_average_and_changes_the_answer() -> None:
    """The proof of the lesson that no network behind the average can be right in both."""
    scenes = study.twins(10, seed=8)
    other = study.exchange(scenes, "●", "▲")
    torch.testing.assert_close(scenes.colors.mean(dim=1), other.colors.mean(dim=1))
    swapped = (scenes.kinds % 4 == 0) | (scenes.kinds % 4 == 1)
    assert torch.equal((scenes.target != other.target).any(dim=-1), swapped)
    assert torch.equal(study.exchange(other, "▲", "●").colors, scenes.colors)


@pytest.mark.parametrize(("draw", "numbers"), [(study.twins, 3), (study.rims, 6)])
def test_painted_right_counts_parts_of_gray_shapes(draw: partial[Scenes], numbers: int) -> None:
    scenes = draw(500, study.TEST)
    assert study.painted_right(lambda kinds, colors: scenes.target, draw) == 1
    assert study.painted_right(lambda kinds, colors: scenes.target + 0.9 * NEAR / math.sqrt(3), draw) == 1
    assert study.painted_right(lambda kinds, colors: scenes.target + 1.1 * NEAR / math.sqrt(3), draw) == 0
    gray_is_wrong = scenes.target.masked_fill((scenes.kinds >= 4)[..., None], study.GRAY)
    assert study.painted_right(lambda kinds, colors: gray_is_wrong, draw) == 0
    half = scenes.target.clone()
    half[..., 3:] = study.GRAY
    assert study.painted_right(lambda kinds, colors: half, draw) == (1 if numbers == 3 else 0.5)


def test_judging_asks_each_run() -> None:
    found = study.judge({"a": [Painter(nn.Identity())] * 2, "b": [Painter(nn.Identity())]}, study.twins)
    assert {name: len(shares) for name, shares in found.items()} == {"a": 2, "b": 1}


def test_one_mixture_serves_one_of_two_colors() -> None:
    """The ceiling of one head that Going further derives: the two shares of variance add up to 1."""
    t, s = torch.randn(2, 100_000, generator=torch.Generator().manual_seed(0))
    for alpha in (0.0, 0.3, 0.5, 1.0):
        mixture = alpha * t + (1 - alpha) * s
        shares = [float(torch.corrcoef(torch.stack([mixture, target]))[0, 1] ** 2) for target in (t, s)]
        assert abs(sum(shares) - 1) < 0.02
        assert abs(shares[0] - alpha**2 / (alpha**2 + (1 - alpha) ** 2)) < 0.02


def test_attention_learns_what_the_average_cannot() -> None:
    torch.manual_seed(0)
    painter = Painter(MultiHeadAttention(16, 1))
    optimizer = torch.optim.Adam(painter.parameters(), lr=0.01)
    for step in range(300):
        batch = study.twins(64, seed=step)
        loss = F.mse_loss(painter(batch.kinds, batch.colors), batch.target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert study.painted_right(painter, study.twins) > 0.5


# ---- rivals ------------------------------------------------------------------------------------------------------


def test_rival_painters_have_as_many_parameters_and_the_average_binds_only_behind_a_network() -> None:
    networks, head = (make(4) for make in rivals.PAINTERS.values())
    assert sum(w.numel() for w in networks.parameters()) == sum(w.numel() for w in head.parameters())
    scene = study.twins(3, seed=40)
    other = study.exchange(scene, "●", "▲")
    plain = rivals.Painter(4, rivals.Average(), nn.Linear(rivals.WIDTH, 3))
    for model, blind in ((plain, True), (networks, False)):
        fetched = [model.mix(model.kind(s.kinds) + model.color(s.colors)) for s in (scene, other)]
        assert torch.allclose(*fetched, atol=1e-5) == blind


def test_rival_readers_have_no_more_parameters_than_two_layers() -> None:
    sizes = {name: sum(w.numel() for w in make().parameters()) for name, make in rivals.READERS.items()}
    assert max(sizes.values()) == sizes["two layers"]


def test_a_head_is_pytorch_s_attention() -> None:
    head, x = rivals.Head(), torch.randn(2, 5, rivals.WIDTH)
    expected = F.scaled_dot_product_attention(head.W_Q(x), head.W_K(x), head.W_V(x))
    torch.testing.assert_close(head(x), expected)


def test_rivals_are_trained_for_each_size_rate_and_seed() -> None:
    rows = rivals.binding(shapes=(2, 3), rates=(0.001, 0.01), seeds=(0, 1), steps=2)
    assert len(rows) == 2 * 2 * 2 * 2
    assert [len(runs) for by_shapes in study.by_shapes(rows).values() for runs in by_shapes.values()] == [2] * 4
    found = study.by_steps(rivals.readers(lengths=(1, 2), rates=(0.001,), seeds=(0,)))
    assert {name: list(by_steps) for name, by_steps in found.items()} == {name: [1, 2] for name in rivals.READERS}


def test_runs_of_the_better_rate() -> None:
    rows = [
        {"model": "a", "shapes": 4, "rate": rate, "seed": seed, "right": right}
        for rate, seed, right in ((0.1, 0, 0.2), (0.1, 1, 0.9), (0.01, 0, 0.6), (0.01, 1, 0.4))
    ]
    assert study.by_shapes(rows) == {"a": {4: [0.2, 0.9]}}


# ---- why the first try stalls ------------------------------------------------------------------------------------


def test_a_changed_painter_has_the_same_random_weights_but_for_the_factor() -> None:
    plain = stall.changed_painter(stall.Change(), seed=1)
    changed = stall.changed_painter(stall.Change(kinds=0.5, start_q=0.25, start_k=3), seed=1)
    factors = {"kind.weight": 0.5} | {
        f"mix.W_{name}.{part}": factor for name, factor in (("Q", 0.25), ("K", 3)) for part in ("weight", "bias")
    }
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(changed.get_parameter(name), factors.get(name, 1) * weight)


def test_the_division_is_a_smaller_start_and_a_smaller_rate_of_the_queries_matrix() -> None:
    divided, both = (
        stall.trace(stall.CHANGES[name], seed=2, rate=0.003, when=(0, 7))
        for name in ("divided by √d", "W_Q starts at 1/√d and learns at 1/√d of the rate")
    )
    assert divided[0]["spread"] > 0
    for one, other in zip(divided, both, strict=True):
        assert one["spread"] == pytest.approx(other["spread"], abs=2e-3)
    raw, head = stall.RawHead(), rivals.Head()
    head.load_state_dict(raw.state_dict())
    x = torch.randn(2, 5, rivals.WIDTH)
    torch.testing.assert_close(raw.scores(x), head.scores(x) * math.sqrt(rivals.WIDTH))


def test_only_the_named_matrices_learn_more_slowly() -> None:
    moved = {}
    for change in (stall.Change(), stall.Change(rate_q=0.1, rate_k=0.5)):
        model, start = (stall.changed_painter(change, seed=3) for _ in range(2))
        optimizer = stall._optimizer(model, change, 0.001)
        batch = study.twins(8, seed=0)
        F.mse_loss(model(batch.kinds, batch.colors), batch.target).backward()
        optimizer.step()
        moved[change.rate_q] = {
            name: float((weight - start.get_parameter(name)).detach().abs().max())
            for name, weight in model.named_parameters()
        }
    for name, step in moved[1.0].items():
        share = {"mix.W_Q.weight": 0.1, "mix.W_K.weight": 0.5}.get(name, 1.0)
        if "bias" not in name:
            assert moved[0.1][name] == pytest.approx(share * step, rel=0.02), name


def test_softness_is_of_the_scores_over_the_keys() -> None:
    model = stall.changed_painter(stall.Change(start_q=0.0), seed=0)
    assert stall.softness(model) == {"spread": 0.0, "largest": 0.125}


def test_stored_changes_and_their_tables() -> None:
    rows = [
        {"change": name, "seed": seed, "steps": steps, "right": right + steps / 1000, "spread": 2.0, "largest": 0.5}
        for name, right in zip(stall.CHANGES, (0.0, 0.9, 0.4, 0.4, 0.2, 0.3, 0.9, 0.2, 0.9), strict=True)
        for seed in (0, 1)
        for steps in (0, 20)
    ]
    assert study.better_half(rows) == pytest.approx(0.42)
    table = study.halves(rows)
    assert table.loc["W_Q starts at 1/8", "learns at the full rate"] == "42% (42% to 42%)"
    assert table.loc["W_Q starts as it is", "learns at 1/8 of the rate"] == "22% (22% to 22%)"
    assert study.changes_table(rows).loc["nothing", "median right"] == "2%"


def test_growth_is_traced_without_and_with_the_division_at_each_rate() -> None:
    rows = stall.growth(rates=(0.001, 0.01), seeds=(0, 1), when=(0, 1))
    assert len(rows) == 2 * 2 * 2 * 2
    traces = study.by_division(rows, rate=0.01)
    assert {name: [len(run) for run in found] for name, found in traces.items()} == {
        "undivided": [2, 2],
        "divided by √d": [2, 2],
    }
    assert traces["undivided"][0][0]["spread"] == pytest.approx(8 * traces["divided by √d"][0][0]["spread"], rel=0.01)
    assert list(study.rates_table(rows, steps=1).index) == ["0.001", "0.01"]
    assert [row["change"] for row in stall.stall(seeds=(0,), when=(0,))] == list(stall.CHANGES)


# ---- whom "it" means ---------------------------------------------------------------------------------------------


def test_the_last_word_says_which_animal_it_is() -> None:
    drawn = study.pronouns(200, seed=1)
    for ids, target, place in zip(drawn.ids.tolist(), drawn.target.tolist(), drawn.place.tolist(), strict=True):
        sentence = [LEXICON[i] for i in ids]
        assert place == (FIRST if sentence[REASON] in words.OF_THE_FIRST else SECOND)
        assert LEXICON[target] == sentence[place]
        assert sentence[FIRST] != sentence[SECOND]
        assert {sentence[FIRST], sentence[SECOND]} <= {*words.ANIMALS}
        assert sentence[IT] == "it"
        assert torch.equal(study.encode(" ".join(sentence)), torch.tensor([ids]))


def test_unseen_pairs_meet_nowhere_else_and_every_animal_is_in_both() -> None:
    seen, unseen = (study.pronouns(3000, seed=2, unseen=unseen).ids[:, [FIRST, SECOND]] for unseen in (False, True))
    pairs = [{tuple(pair) for pair in ids.tolist()} for ids in (seen, unseen)]
    assert not pairs[0] & pairs[1]
    assert len(pairs[0] | pairs[1]) == 12 * 11
    assert all(set(ids[:, column].tolist()) == set(ids[:, 0].tolist()) for ids in (seen, unseen) for column in (0, 1))
    assert len(set(unseen[:, 0].tolist())) == 12


def test_no_bag_of_words_can_tell_which_animal_it_is() -> None:
    """Two sentences with the same words in another order have other answers."""
    ids = study.encode("the dog chased the cat because it was hungry")
    other = ids[:, [0, 4, 2, 3, 1, 5, 6, 7, 8]]
    assert torch.equal(ids.sort().values, other.sort().values)

    class FirstNoun(nn.Module):
        def forward(self, ids: Tensor) -> Tensor:
            return F.one_hot(ids[:, FIRST], len(LEXICON)).float()

    rules = study.rules_of_thumb()
    assert abs(study.named_right(FirstNoun()) - rules["the first noun"]) < 1e-6
    assert sum(rules.values()) == pytest.approx(1)
    assert max(rules.values()) < 0.55


def test_weights_of_it_point_at_the_right_animal_or_do_not() -> None:
    sentences = study.pronouns(40, seed=1)
    weights = torch.zeros(40, 9, 9)
    weights[:, IT, FIRST] = 1.0
    assert study.points_right(sentences, weights) == float((sentences.place == FIRST).float().mean())
    weights[torch.arange(40), IT, sentences.place] = 2.0
    assert study.points_right(sentences, weights) == 1


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("the dog sleeps", "the sentence has 3 words; expected 9, such as 'the dog chased"),
        ("the dog ate the cat because it was hungry", "found 'ate' where one of these words can stand: chased"),
        ("The dog chased the cat because he was hungry.", "found 'he' where one of these words can stand: it"),
    ],
)
def test_a_sentence_of_another_form_is_refused_with_the_words_to_choose_from(sentence: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study.encode(sentence)


def test_a_reader_s_states_are_those_of_its_forward_pass_and_a_mask_hides_the_last_word() -> None:
    torch.manual_seed(0)
    reader, ids = rivals.READERS["two layers"](), study.pronouns(5, seed=1).ids
    torch.testing.assert_close(reader.name(pointing.states(reader, ids)[-1][:, IT]), reader(ids))
    other = ids.clone()
    other[:, REASON] = LEXICON.index("hungry")
    everybody = pointing.without_reason([place for place in range(9) if place != REASON])
    hidden = [pointing.states(reader, each, everybody)[-1][:, IT] for each in (ids, other)]
    torch.testing.assert_close(*hidden)
    only_it = [pointing.states(reader, each, pointing.without_reason([IT]))[-1][:, IT] for each in (ids, other)]
    assert not torch.allclose(*only_it)  # the other words still hand it on


def test_readers_are_looked_at_and_counted() -> None:
    rows = pointing.pointing(rates=(0.003,), seeds=(0, 1), steps=1)
    assert [row["seed"] for row in rows] == [0, 1]
    assert rows[0].keys() >= {"without it", "without first", "without second", "without animals"}
    good = {"rate": 0.1, "right": 1.0, "points": 0.8, "other": 0.0, "without it": 1.0, "without animals": 0.5}
    good |= {"without first": 0.5, "without second": 1.0}
    other_way = {"points": 0.0, "without it": 0.5, "without first": 1.0, "without animals": 1.0}
    rows = [good, good, good | other_way, good | {"right": 0.5}, good | {"rate": 0.2}]
    assert study.many_readers(rows, 0.1)["runs"].tolist() == [4, 3, 2, 2, 1, 3, 1]


def test_a_run_is_judged_after_each_number_of_steps() -> None:
    once = runs.reader_share(rivals.READERS["average of all"], 3, 0.01, seed=0)
    assert runs.reader_shares(rivals.READERS["average of all"], [1, 3], 0.01, seed=0)[3] == once


# ---- depth -------------------------------------------------------------------------------------------------------


def test_stacks_of_each_depth_are_trained_both_ways_at_every_rate() -> None:
    rows = study.depth(layers=(1, 2), rates=(0.001, 0.01), seeds=(0,), steps=2)
    assert len(rows) == 8
    best = study.at_best_rates(rows)
    assert best.keys() == {(layers, residual) for layers in (1, 2) for residual in (True, False)}
    for (layers, residual), shares in best.items():
        of_this = [row["right"] for row in rows if (row["layers"], row["residual"]) == (layers, residual)]
        assert shares == [max(of_this)]


def test_a_residual_stack_whose_layers_give_nothing_passes_words_on() -> None:
    """And one without passes nothing on."""
    ids = study.pronouns(4, seed=3).ids
    for residual in (True, False):
        stack = Stack(3, residual=residual)
        for layer in stack.layers:
            nn.init.zeros_(layer.W_O.weight)
            nn.init.zeros_(layer.W_O.bias)
        x = stack.word(ids) + stack.place.weight
        expected = stack.name(x[:, IT] if residual else torch.zeros_like(x[:, IT]))
        torch.testing.assert_close(stack(ids), expected)


def test_a_normalized_stack_has_layers_of_mean_0_and_variance_1() -> None:
    stack, x = NormalizedStack(2), torch.randn(3, 9, 32)
    for layer in stack.layers:
        x = layer(x)
        torch.testing.assert_close(x.mean(dim=-1), torch.zeros(3, 9), atol=1e-5, rtol=0)
        torch.testing.assert_close(x.var(dim=-1, correction=0), torch.ones(3, 9), atol=0.1, rtol=0)
    rows = study.normalized_depth(layers=(1,), rates=(0.001, 0.01), seeds=(0,), steps=1)
    assert study.at_best_rates(rows).keys() == {(1, False)}


def test_the_layer_is_pytorch_s() -> None:
    layer, x, context = study.MultiHead(8, 2), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    other = nn.MultiheadAttention(8, 2, batch_first=True)
    projections = (layer.W_Q, layer.W_K, layer.W_V)
    state = {f"in_proj_{part}": torch.cat([getattr(W, part) for W in projections]) for part in ("weight", "bias")}
    other.load_state_dict(state | {f"out_proj.{name}": w for name, w in layer.W_O.state_dict().items()})
    mask = torch.tensor([[True, True, False, True, False]]).expand(3, -1)
    torch.testing.assert_close(layer(x), other(x, x, x)[0])
    torch.testing.assert_close(layer(x, context, mask), other(x, context, context, attn_mask=~mask)[0])


# ---- drawings ----------------------------------------------------------------------------------------------------


def test_drawings_are_figures_that_fit() -> None:
    x, W = torch.randn(3, 4), torch.randn(3, 4, 2)
    names, scenes = ["red ●", "blue ▲", "gray ▲?"], study.rims(2, seed=1)
    found = {(layers, residual): [0.5, 1.0] for layers in (2, 12) for residual in (True, False)}
    pictures = [
        figures.draw_attention(x, *W, names, ["a", "b", "c", "d"]),
        figures.draw_heads(*torch.randn(3, 2, 3, 2), torch.randn(4, 4)),
        figures.draw_paintings(scenes, {"a": [Painter(nn.Identity(), 6)]}, {"a": [0.5]}, "a"),
        figures.draw_first_tries(scenes, {"a": [Painter(nn.Identity(), 6)]}, {"a": [0.5]})[0],
        figures.draw_rims(scenes, {"a": [Painter(nn.Identity(), 6)]}, {"a": [0.5]})[0],
        figures.draw_moves(study.twins(1, seed=1), torch.rand(1, 8, 3), torch.rand(1, 8, 3), "a"),
        figures.draw_growth(study.by_division(stall.growth((0.001,), (0, 1), (0, 1)), 0.001), "a"),
        figures.draw_maps(scenes, torch.full((2, 8, 8), 1 / 8), "a"),
        figures.draw_pointing(["a", "b"], ["a cat naps"] * 2, torch.tensor([[0.9, 0.1, 0], [0, 0.5, 0.5]]), 1, "a"),
        figures.draw_depth(found, [0.4, 0.6], "a"),
        figures.draw_binding({"a": {4: [0.5, 1.0], 8: [0.1, 0.2]}, "b": {4: [1.0, 1.0], 8: [1.0, 0.9]}}, "a"),
        figures.draw_cost((4, 8), study.operations((4, 8), 4), study.seconds((4, 8), 4, rounds=1)),
    ]
    for figure in pictures:
        figure.canvas.draw()
        assert 5 <= figure.get_figwidth() <= 9.3
        plt.close(figure)
    assert [figure.get_label() for figure in pictures].count("schematic") == 2


# ---- captions ----------------------------------------------------------------------------------------------------


def test_a_caption_names_the_word_with_the_largest_weight() -> None:
    sentences, weights = ["a cat naps", "a cat eats"], torch.tensor([[0.9, 0.1, 0], [0, 0.3, 0.7]])
    assert captions.describe_pointing(sentences, weights, 1) == (
        "In the sentence that ends with “naps”, “cat” looks most at “a” (0.90). "
        "In the sentence that ends with “eats”, “cat” looks most at “eats” (0.70)."
    )


def test_a_caption_says_where_the_gray_shapes_look() -> None:
    scenes = study.twins(1, seed=40)
    assert scenes.names() == ["●", "■", "■?", "▲?", "★", "▲", "★?", "●?"]
    twins = torch.eye(8)[[0, 1, 1, 5, 4, 5, 4, 0]]
    one = captions.describe_maps(scenes, twins[None])
    assert one == (
        "■ in gray looks most at ■ (1.00); ▲ in gray looks most at ▲ (1.00); "
        "★ in gray looks most at ★ (1.00); ● in gray looks most at ● (1.00)."
    )
    astray = twins.clone()
    astray[6] = torch.eye(8)[7]
    assert captions.describe_maps(scenes, torch.stack([twins, astray])) == (
        f"Head 1: {one} Head 2: {one.replace('★ in gray looks most at ★', '★ in gray looks most at ● in gray')}"
    )


def test_a_caption_counts_the_right_parts_of_the_middle_run_s_first_scene() -> None:
    scenes = study.rims(2, seed=1)
    inside_only = scenes.target.clone()
    inside_only[..., 3:] = study.GRAY
    models = {
        "all": [lambda kinds, colors: scenes.target],
        "half": [lambda kinds, colors: scenes.target, lambda kinds, colors: inside_only],
    }
    right = {"all": [1.0], "half": [0.1, 0.2]}  # the second of two is the middle one
    assert captions.describe_paintings(scenes, models, right) == "Right in the gray shapes: all, 8 of 8; half, 4 of 8."


def test_a_caption_counts_the_arrows_that_end_at_their_color() -> None:
    scenes = study.twins(2, seed=1)
    after = scenes.target.clone()
    after[0, :3] = study.GRAY
    assert captions.describe_moves(scenes, after) == "5 of 8 arrows end at the right color."


def test_what_paint_makes_of_grays_lies_in_the_center_of_the_hue_plane() -> None:
    center = figures._hue_plane(torch.tensor([[0.5, 0.5, 0.5], [0.2, 0.2, 0.2]]))
    assert center == [(0.0, 0.0), (0.0, 0.0)]
    red, cyan = figures._hue_plane(torch.tensor([[1.0, 0, 0], [0, 1.0, 1.0]]))
    assert red == pytest.approx((-cyan[0], cyan[1]))


# ---- what it costs -----------------------------------------------------------------------------------------------


def test_operations_are_those_of_the_paper_s_table() -> None:
    powers_of = study.cost_exponents(sizes=(8, 16, 32), fixed=8)
    expected = {"self-attention": (2, 1), "recurrent": (1, 2), "convolution": (1, 2)}
    assert {name: tuple(round(p, 6) for p in powers) for name, powers in powers_of.items()} == expected
    found = study.operations((8, 16), 8)
    assert found["recurrent"] == [2 * 2 * 8 * 8 * 8, 2 * 2 * 16 * 8 * 8]
    projections = [2 * 4 * 8 * 8 * 8, 2 * 4 * 16 * 8 * 8]
    pairs = zip(found["with its linear maps"], found["self-attention"], strict=True)
    assert [whole - alone for whole, alone in pairs] == projections


def test_the_whole_layer_adds_four_projections() -> None:
    projections = count_flops(study.attention_layer(10, 8, softmax)) - count_flops(attend(10, 8))
    assert projections == 2 * 4 * 10 * 8 * 8


def test_each_layer_is_timed_at_each_length() -> None:
    found = study.seconds((4, 8), d=4, rounds=1)
    assert found.keys() == study.TIMED.keys()
    assert all(len(times) == 2 and min(times) > 0 for times in found.values())


def test_stored_times_by_length() -> None:
    rows = study.times((4, 8), d=4, rounds=1)
    assert len(rows) == 2 * len(study.TIMED)
    found = study.by_length(rows, (8, 4))
    assert found["recurrent"] == [row["seconds"] for row in rows if row["layer"] == "recurrent"][::-1]
