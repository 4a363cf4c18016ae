"""Lesson 16's study: closed forms of bytes and prices, the rule's distribution, schedules, pooled heads, figures."""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from tfbook.attention.grouped_query import with_groups
from tfbook.course.experiments import stored
from tfbook.course.roofline import H100, Roofline, Work, cache_bytes, decode_work, weight_bytes
from tfbook.generation import sampling
from tfbook.generation.engine import Request, Room, continuous
from tfbook.generation.frozen import Frozen
from tfbook.generation.speculative import accept, residual
from tfbook.lessons.inference import exercises, figures, law, prices, study
from tfbook.lessons.inference.grouping import uptrain
from tfbook.lessons.inference.guessing_ahead import Gain
from tfbook.lessons.inference.levers import bytes_read
from tfbook.lessons.inference.timing import Predicted
from tfbook.models.gpt import Gpt
from tfbook.pretrain.storyteller import MODELS, Storyteller
from tfbook.text.vocabulary import BOS, EOS, PAD

pytestmark = pytest.mark.usefixtures("float32")

ROOT = Path(__file__).parents[2]
SLOW = Roofline(name="a slow machine", peak=10e9, bandwidth=2e9)


@pytest.fixture(scope="module")
def teller() -> Storyteller:
    return study.storyteller()


# ---- bytes and prices ----------------------------------------------------------------------------------------------


def test_bytes_of_a_token_are_those_of_the_model(teller: Storyteller) -> None:
    """The exercise's formula, the package's count, and the numbers on the page: 7.6 MB, and 6 KB per position."""
    model = teller.model
    parameters = weight_bytes(model) // 4
    found = exercises.token_bytes.reference(parameters, 4, 6, 32, 61, 1, 4)
    assert found == decode_work(model, 60).bytes
    assert cache_bytes(model, 1) == 4 * 2 * 192 * 4 == 6144
    assert round(weight_bytes(model) / 1e6, 1) == 7.6


@pytest.mark.parametrize("batch", [1, 64])
def test_a_published_model_has_the_arithmetic_of_the_page(batch: int) -> None:
    work = prices.LLAMA_70B.step(batch)
    token = exercises.token_bytes.reference(69_000_000_000, 80, 8, 128, 1000, batch, 2)
    assert work.bytes == pytest.approx(batch * token)
    assert work.flops == batch * (2 * 69e9 + 4 * 80 * 1000 * 8192)
    assert prices.LLAMA_70B.cache(1, 2) * 8 == 80 * 2 * 64 * 128 * 2  # with 64 heads, 2.6 MB


def test_prices_on_the_page() -> None:
    found = {(price.shape.name, price.batch, price.machine): price for price in prices.prices(SLOW)}
    one, many = found["Llama 2 7B", 1, "one H100"], found["Llama 2 7B", 64, "one H100"]
    assert round(1e3 * one.step, 1) == 4.2
    assert round(many.step / one.step, 1) == 3.4
    alone, together = (found["Llama 2 70B", batch, "2 H100s"] for batch in (1, 64))
    assert alone.dollars == pytest.approx(1e6 * alone.step * 2 * 3 / 3600)
    assert (round(alone.dollars or 0), round(together.dollars or 0, 2)) == (34, 0.62)
    assert "arithmetic is the limit" in found["Llama 2 7B", 64, "this core"].why
    here = found["Llama 2 7B", 1, "this core"]
    assert here.step == pytest.approx((4 * 6.7e9 + 32 * 1000 * 2 * 4096 * 4) / 2e9)  # memory is the limit


def test_questions_have_the_prices_as_answers() -> None:
    questions = prices.price_questions(prices.prices(SLOW))
    assert [question.unit for question in questions] == ["ms"] * 5 + ["dollars"]
    assert questions[1].answer == pytest.approx(1e3 * H100.seconds(prices.LLAMA_7B.step(1)))
    assert "4.2" in f"{questions[1].answer:.1f}"
    assert questions[-1].answer == pytest.approx(0.62, abs=0.01)


def test_far_away_every_lever_is_at_least_as_fast_as_one_text() -> None:
    first, *others = study.far_away()
    assert first.predicted == pytest.approx(1 / H100.seconds(prices.LLAMA_7B.step(1)))
    assert all(run.predicted > 1.5 * first.predicted for run in others)
    assert len(study.far_table()) == len(others) + 1


# ---- the law -------------------------------------------------------------------------------------------------------


def test_a_random_model_has_96_d_squared_bytes() -> None:
    """Two layers of 12 d² weights of four bytes; biases, norms and 64 tokens are little beside them."""
    assert weight_bytes(study.random_model(416)) == pytest.approx(96 * 416**2, rel=0.02)
    assert weight_bytes(study.random_model(1664)) == pytest.approx(96 * 1664**2, rel=0.02)


def test_a_step_is_predicted_by_its_calls_and_the_slower_of_two_limits() -> None:
    works = {1: Work(flops=10, bytes=4e9), 2: Work(flops=50e9, bytes=4e9)}
    found = study.law_steps(works, {1: 3.0, 2: 7.0}, 0.5, SLOW)
    assert [step.predicted for step in found.values()] == [2.5, 5.5]
    assert [step.measured for step in found.values()] == [3.0, 7.0]


def intensity(texts: float, shape: prices.Shape, context: int) -> float:
    """Operations per byte of a step, as the package counts them."""
    return shape.step(1, context).flops * texts / (2 * shape.parameters + texts * shape.cache(context, 2))


def test_the_critical_batch_meets_the_ridge_or_none_does() -> None:
    """By the step's own count: 930 texts of the 70B model after 1,000 tokens; no number of texts of the 7B one."""
    large, small = prices.LLAMA_70B, prices.LLAMA_7B
    texts = study.critical_batch(large.parameters, large.layers, large.d_model, 1000, 2, H100, shared=8)
    assert round(texts) == 930
    assert intensity(texts, large, 1000) == pytest.approx(H100.ridge)
    assert study.critical_batch(small.parameters, small.layers, small.d_model, 1000, 2, H100) == math.inf
    assert intensity(1e9, small, 1000) == pytest.approx(26.6, abs=0.05)
    assert intensity(64, small, 1000) == pytest.approx(19.0, abs=0.05)
    assert round(study.critical_batch(small.parameters, small.layers, small.d_model, 0, 2, H100)) == 295


def test_critical_batches_are_a_table(teller: Storyteller) -> None:
    table = study.critical_table(study.heavier(teller.model, 1536), (60, 900), SLOW)
    assert table["critical batch"].tolist()[2:] == ["295", "none", "295", "930"]
    assert table["tokens before"].tolist() == [60, 900, 0, 1000, 0, 1000]


def test_rates_are_of_steps_after_so_many_tokens(teller: Storyteller) -> None:
    found = study.rates({"six": teller.model, "two": study.converted(teller.model, 2)}, (3, 9), (1, 2), SLOW, 0.1, 1)
    assert [*found] == [3, 9]
    for past, models in found.items():
        assert [*models] == ["six", "two"]
        for texts, rate in models["six"].items():
            assert rate.work == decode_work(teller.model, past, batch=texts)
            assert rate.predicted == pytest.approx(texts / (0.1 + SLOW.seconds(rate.work)))
            assert rate.measured > 0
    figure = figures.draw_contexts(found)
    assert [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes] == [
        "after 3 tokens",
        "after 9 tokens",
    ]


def test_long_texts_are_timed_beside_one_short_one(teller: Storyteller) -> None:
    fast = Frozen(teller.model)
    one, many = study.long_runs(teller.model, fast, {"two": (teller.model, fast)}, SLOW, texts=2)
    assert (one.name, one.tokens, many.name, many.tokens) == ("one text", 1, "two", 2)
    assert one.work == decode_work(teller.model, study.PAST)
    assert many.work == decode_work(teller.model, study.LONG, batch=2)
    assert min(one.measured, many.measured) > 0


def test_a_step_is_timed_after_other_data() -> None:
    asked: list[int] = []
    assert study.pushed_out(lambda: asked.append(1), 3, megabytes=1) >= 0
    assert len(asked) == 4  # one that warms up
    assert all(took > 0 for took in study.rows_in_cache((1, 2), 1, shape=(8, 4)).values())


def test_steps_on_the_h100_are_those_of_the_benchmarks_table() -> None:
    """The stored rows are the README's, and the numbers of the page follow from them."""
    rows = stored("inference.one_h100").rows
    readme = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for row in rows:
        peak = "" if row["share of the peak"] is None else f"{row['share of the peak']:.1%}"
        line = f"| {row['task']} | {row['size']} | {row['by']} | {row['per second']:,} | {peak} |"
        assert line.replace("|  |", "| |") in readme
    small, one, many = law.far_steps(rows)
    assert [round(1e3 * step.took, 2) for step in (small, one, many)] == [0.5, 0.87, 1.28]
    assert round(1e3 * law.seconds_per_layer(small), 2) == 0.08
    assert one.work.bytes / 1e6 == pytest.approx(253, abs=0.5)
    assert study.h100_factor(rows) == pytest.approx(1.2, abs=0.01)
    assert study.h100_table(rows)["and layers, ms"].tolist() == ["", "1.04", "1.14"]
    assert 1148 * 2 * 124e6 / H100.peak == pytest.approx(0.0003, abs=2e-5)
    assert round(many.took / one.took, 1) == 1.5
    assert round(one.took / H100.seconds(one.work), -1) == 10


# ---- timing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "new", "past"), [(1, 1, 5), (3, 2, 5), (2, 4, 0)])
def test_a_reading_can_be_repeated_and_reads_what_is_new(teller: Storyteller, batch: int, new: int, past: int) -> None:
    read: list[tuple[int, ...]] = []
    model = Frozen(teller.model)
    run = study.reading(model, batch=batch, new=new, past=past)
    hook = model.register_forward_pre_hook(lambda _, arguments: read.append(tuple(arguments[0].shape)))
    run()
    run()
    hook.remove()
    assert read == [(batch, new)] * 2


def test_every_text_of_a_batch_has_a_cache_of_its_own(teller: Storyteller) -> None:
    model, caches = Frozen(teller.model), []
    hook = model.register_forward_pre_hook(lambda _, args, kwargs: caches.append(kwargs["cache"]), with_kwargs=True)
    study.reading(model, batch=3, past=5)()
    hook.remove()
    keys, _ = caches[-1].blocks[0].past.seen()
    assert keys.shape[:3] == (3, 6, 6)
    assert keys[0].data_ptr() != keys[1].data_ptr()


def test_predictions_are_tokens_per_second_of_the_roofline() -> None:
    (row,) = study.compared({"pass": (Work(20e9, 1e9), 4)}, {"pass": 8.0}, SLOW)
    assert (row.predicted, row.measured) == (2.0, 0.5)
    assert study.table_of([row]).loc["pass", "reached"] == "25%"


def test_the_middle_of_the_times_counts() -> None:
    calls: Counter[str] = Counter()
    found = study.seconds({name: lambda name=name: calls.update([name]) for name in "ab"}, 2, repeats=3)
    assert calls == {"a": 9, "b": 9}  # two rounds, and one that warms up
    assert all(seconds > 0 for seconds in found.values())


# ---- schedules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seats", [0, 1, 3])
@pytest.mark.parametrize("blocks", [0, 1, 2, 9])
def test_the_pages_schedule_is_the_engines(seats: int, blocks: int) -> None:
    waiting = [Request(prompt=[1] * length, max_new_tokens=1) for length in (3, 5, 1)]
    running = [Request(prompt=[1], max_new_tokens=1)]
    room = Room(seats, blocks, 4)
    assert study.for_engine(study.schedule)(waiting, running, room) == continuous(waiting, running, room)


def test_requests_share_the_full_blocks_of_their_opening(teller: Storyteller) -> None:
    opening = [BOS, *teller.vocabulary.encode(study.OPENING.split())]
    tables, _ = study.tables_after(Frozen(teller.model), study.for_engine(study.schedule), opening, steps=17)
    shared = set.intersection(*map(set, tables.values()))
    assert len(shared) == len(opening) // 8 == 2
    own = [set(table) - shared for table in tables.values()]
    assert sum(map(len, own)) == len(set.union(*own))


def test_the_exercises_count_of_blocks_on_paper() -> None:
    assert exercises.blocks_needed.reference([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], 2) == 4


# ---- groups and bits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_pooled_heads_are_those_of_the_package(teller: Storyteller, groups: int) -> None:
    ours, theirs = study.converted(teller.model, groups), with_groups(teller.model, groups)
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight)


def test_the_first_heads_are_kept_as_they_are() -> None:
    W = torch.arange(24.0).view(12, 2)
    assert torch.equal(study.first_heads(W, 6, 2), torch.cat([W[:2], W[6:8]]))


@pytest.mark.slow
def test_some_steps_recover_much_of_what_pooling_lost(teller: Storyteller) -> None:
    ids, model = study.held_out(20, teller), study.converted(teller.model, 3)
    before = study.loss_on(model, ids)
    after = study.loss_on(uptrain(model, 12, 0, 0.01), ids)
    assert before - after > 0.5 * (before - study.loss_on(teller.model, ids))


def test_uptrained_rows_are_averaged_by_conversion() -> None:
    rows = [
        {"pooling": "mean", "groups": 2, "bytes per position": 8, "before": 3.0, "after": after, "right": 0.5}
        for after in (1.0, 2.0)
    ]
    found = study.uptrained([*rows, rows[0] | {"groups": 1, "after": 9.0}], "mean", 2)
    assert (found["after"], found["lowest"], found["highest"]) == (1.5, 1.0, 2.0)


def test_bytes_of_the_formats(teller: Storyteller) -> None:
    """A quarter and a scale per row; an eighth and a scale per 32 weights, the rows filled up to multiples of 16."""
    found = {name: bytes_read(study.in_format(teller.model, name)) for name in study.FORMATS}
    assert found["float32"] == weight_bytes(teller.model)
    layers, vocab = 4 * 12 * 192**2, len(teller.vocabulary) * 192
    rows = 4 * (576 + 192 + 768 + 192) + len(teller.vocabulary)
    other = found["float32"] - 4 * (layers + vocab)  # biases and norms
    assert found["int8, converted first"] == layers + vocab + 4 * rows + other
    assert found["int8"] == layers + vocab + 2 * rows + other
    assert found["int4, rows, converted first"] == (layers + vocab) / 2 + 4 * rows + other
    filled = 192 * (-len(teller.vocabulary) % 16)
    assert found["int4, groups"] == (layers + vocab + filled) * (1 / 2 + 4 / 32) + other


def test_a_cache_in_32_bits_gives_the_loss_of_one_pass(teller: Storyteller) -> None:
    ids = study.held_out(3, teller)
    fast = Frozen(teller.model)
    assert study.cached_loss(fast, ids, eight_bits=False) == pytest.approx(study.loss_on(teller.model, ids), abs=1e-5)
    assert study.cached_loss(fast, ids, eight_bits=True) != study.cached_loss(fast, ids, eight_bits=False)


# ---- speculation ---------------------------------------------------------------------------------------------------

P, Q = torch.tensor([0.1, 0.5, 0.3, 0.1]), torch.tensor([0.4, 0.3, 0.2, 0.1])


def test_the_rule_gives_p_and_accepting_everything_gives_q() -> None:
    counts = study.rule_counts(P, Q, exercises.accept.reference, exercises.residual.reference, 20000)
    assert chisquare(counts.numpy(), (20000 * P).numpy()).pvalue > 0.001
    assert study.chi_square(counts, P) > 0.001
    everything = study.rule_counts(P, Q, lambda p, q, token, u: True, residual, 20000)
    assert study.chi_square(everything, P) < 1e-9
    assert study.chi_square(everything, Q) > 0.001


@pytest.mark.parametrize("token", range(4))
def test_the_exercises_rule_is_the_packages(token: int) -> None:
    for u in (0.0, 0.2, 0.3, 0.9):
        assert exercises.accept.reference(P, Q, token, u) == accept(P, Q, token, u)
    torch.testing.assert_close(exercises.residual.reference(P, Q), residual(P, Q))


def test_the_text_is_one_after_which_two_models_disagree() -> None:
    """Where the large one is not sure; the second text has the larger disagreement, but there it is sure."""
    p = torch.tensor([[[0.5, 0.5, 0.0], [0.5, 0.4, 0.1]], [[0.5, 0.3, 0.2], [0.9, 0.1, 0.0]]]).log()
    q = torch.tensor([[[0.5, 0.5, 0.0], [0.1, 0.4, 0.5]], [[0.5, 0.3, 0.2], [0.0, 0.1, 0.9]]]).log()
    ids = torch.tensor([[1, 2], [3, 4]])
    assert study.where_they_differ(lambda ids: p, lambda ids: q, ids).tolist() == [[1, 2]]
    assert study.where_they_differ(lambda ids: p, lambda ids: q, ids, sure=0.95).tolist() == [[3, 4]]


def test_second_words_are_counted() -> None:
    def write(text: Tensor, *, max_new_tokens: int, generator: torch.Generator) -> Tensor:
        new = torch.randint(7, 9, (1, max_new_tokens), generator=generator)
        return torch.cat([text, new], dim=1)

    counts = study.second_words(write, torch.tensor([[1, 2, 3]]), 40)
    assert set(counts) == {7, 8}
    assert counts.total() == 40
    assert counts == study.second_words(write, torch.tensor([[1, 2, 3]]), 40)


def test_two_samples_of_one_source_and_of_two() -> None:
    one, same, other = (Counter({1: a, 2: b, 3: 1}) for a, b in ((50, 50), (47, 53), (80, 20)))
    assert study.same_source(one, same) > 0.1
    assert study.same_source(one, other) < 0.001


def test_counts_go_back_to_shorter_contexts() -> None:
    draft = study.Counts([[BOS, 7, 8, 9, EOS], [BOS, 7, 8, 5, EOS]], 10, 2)
    after = draft.read(torch.tensor([[BOS, 7, 8]]), 2).softmax(dim=-1)
    assert after[0].argmax() == 8
    torch.testing.assert_close(after[1][[5, 9]], torch.tensor([0.5, 0.5]), atol=0.01, rtol=0)
    unknown = draft.read(torch.tensor([[6, 7]]))[0].softmax(dim=-1)  # 7 was seen, but never after 6
    assert unknown.argmax() == 8


def test_acceptance_is_the_overlap_and_one_for_the_model_itself(teller: Storyteller) -> None:
    ids = study.held_out(3, teller)
    flat = study.Counts(study.counted_stories(teller, 5), len(teller.vocabulary), 0)
    itself, words = study.acceptances(teller.model, {"itself": teller.model, "words": flat}, ids)
    assert itself.overlap == pytest.approx(1, abs=1e-5)
    counts = ids != PAD
    assert itself.loss == pytest.approx(study.loss_on(teller.model, ids), abs=1e-4), counts.sum()
    assert words.loss > itself.loss
    assert words.overlap < 0.5


@pytest.fixture(scope="module")
def gains(teller: Storyteller) -> list[Gain]:
    draft = Frozen(study.storyteller("draft").model)
    return study.gains(Frozen(teller.model), draft, (1, 3), 1, stories=1, length=8)


def test_guessing_is_timed_beside_plain_decoding_and_in_parts(gains: list[Gain]) -> None:
    assert [gain.k for gain in gains] == [1, 3]
    assert gains[0].plain == gains[1].plain
    for gain in gains:
        assert min(gain.guessing, gain.step, gain.judging, gain.draft) > 0
        assert 1 <= gain.tokens <= gain.k + 1
        assert 0 <= gain.acceptance <= 1
    assert study.gain_table({"large": gains}, 3).loc["large", "measured"] == f"{gains[1].measured:.1f} ×"


def test_the_gain_that_follows_from_the_parts() -> None:
    """α = 1/2 and k = 2: 1.75 tokens per round, which takes two quarters of a step and a judging of two steps."""
    slow = Gain(2, 0.5, 1.75, plain=3.0, guessing=2.0, step=1.0, judging=2.0, draft=0.25)
    assert slow.predicted == pytest.approx(1.75 / 2.5)
    assert slow.measured == 1.5
    assert study.best_gain([slow, slow._replace(k=3, guessing=1.0), slow]).k == 3


def test_the_rule_of_the_page_is_the_one_that_is_timed(teller: Storyteller) -> None:
    asked: list[int] = []

    def never(p: Tensor, q: Tensor, token: int, u: float) -> bool:
        asked.append(token)
        return False

    draft = Frozen(study.storyteller("draft").model)
    (gain,) = study.gains(Frozen(teller.model), draft, (2,), 1, rule=(never, residual), stories=1, length=6)
    assert asked
    assert (gain.acceptance, gain.tokens) == (0, 1)


def test_a_race_measures_seconds_per_token(teller: Storyteller) -> None:
    fast = Frozen(teller.model)
    found = study.race({"plain": lambda ids, **how: sampling.generate(fast, ids, **how)}, 1, stories=1, length=3)
    assert 0 < found["plain"] < 10


def test_speculation_is_predicted_from_its_parts() -> None:
    large, small = (Gpt(11, MODELS[name]) for name in ("storyteller", "draft"))
    gain = Gain(4, 0.9, 3.0, plain=2.0, guessing=0.5, step=1.0, judging=1.0, draft=0.1)
    found = study.speculation_run(gain, large, small, SLOW)
    step, draft = (SLOW.seconds(decode_work(model, study.PAST)) for model in (large, small))
    assert found.work.flops == large.flops(5, past=study.PAST)
    judging = max(step, found.work.flops / SLOW.peak)
    assert found.predicted == pytest.approx(3 / (4 * draft + judging))
    assert found.measured == 2.0


# ---- the heavy storyteller -----------------------------------------------------------------------------------------


def test_the_heavy_storyteller_says_the_same_and_reads_more(teller: Storyteller) -> None:
    heavy, ids = study.heavier(teller.model, 3072), study.held_out(4, teller)
    with torch.no_grad():
        expected = teller.model(ids)
        torch.testing.assert_close(heavy(ids), expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(Frozen(heavy, packed=True)(ids), expected, atol=1e-3, rtol=1e-3)
    assert weight_bytes(heavy) - weight_bytes(teller.model) == 4 * 4 * (2 * 192 + 1) * (3072 - 768)
    assert all(block.feed_forward.branch.up.weight[768:].std() > 0 for block in heavy.stack.blocks)


@pytest.mark.parametrize("name", ["int8, converted first", "int4, rows, converted first"])
def test_few_bits_do_to_the_heavy_storyteller_what_they_do_to_the_light_one(teller: Storyteller, name: str) -> None:
    """Zeros are codes of zero, and change no scale: the page shows the losses of the light one alone."""
    ids = study.held_out(4, teller)
    light, heavy = (study.in_format(model, name) for model in (teller.model, study.heavier(teller.model, 1024)))
    assert study.loss_on(heavy, ids) == pytest.approx(study.loss_on(light, ids), abs=1e-4)


def test_the_page_says_how_much_heavier(teller: Storyteller) -> None:
    heavy = decode_work(study.heavier(teller.model, 24576), study.PAST)
    assert round(heavy.bytes / decode_work(teller.model, study.PAST).bytes) == 19
    assert heavy.bytes / 1e6 == pytest.approx(155, abs=1)


def test_it_has_no_fewer_neurons(teller: Storyteller) -> None:
    with pytest.raises(ValueError, match="d_ff is 700; expected at least the storyteller's 768"):
        study.heavier(teller.model, 700)


# ---- scoreboard and figures ----------------------------------------------------------------------------------------


def run(name: str = "one", predicted: float = 100.0, measured: float = math.nan) -> Predicted:
    return Predicted(name, Work(2e6, 4e6), 1, predicted, measured)


def test_the_scoreboard_compares_with_what_was_measured_beside() -> None:
    board = study.Scoreboard()
    board.add("lever", run(predicted=200, measured=60), run(measured=40), "nothing")
    board.add("lever", run(predicted=300, measured=60), run(measured=40), "nothing")
    assert board.table().values.tolist() == [["3.0 ×", "1.5 ×", "nothing"]]
    assert [each.name for each in board.runs] == ["lever"]
    board.add("later", run(measured=3), run(measured=2), "nothing")
    assert [each.measured for each in board.runs] == [90.0, 135.0]  # 60 / 40 of 60, and 3 / 2 of that
    assert [each.name for each in board.points("lever")] == ["later"]


def test_the_roofline_has_an_open_mark_on_the_roof_for_each_run() -> None:
    figure = figures.draw_roofline([(SLOW, [run(predicted=500, measured=250)]), (H100, study.far_away())], "Title")
    roof, _, predicted, measured = figure.axes[0].get_lines()
    assert predicted.get_ydata()[0] == 500 * 2e6
    assert measured.get_ydata()[0] == 250 * 2e6
    assert max(roof.get_ydata()) == SLOW.peak


def test_stories_hold_their_seats_until_they_end() -> None:
    figure = figures.draw_timeline({"toy": [[0, 1], [1, 2], [2]]}, 2)
    bars = [(round(bar.get_y() + 0.43), bar.get_x(), bar.get_width()) for bar in figure.axes[0].patches]
    assert bars == [(0, 0, 1), (1, 0, 2), (0, 1, 2)]
    assert "toy: 3 steps" in [figure.axes[0].get_title(loc=side) for side in ("left", "center")]


def test_blocks_show_who_uses_them() -> None:
    figure = figures.draw_pool({"a": [0, 1], "b": [0, 3]}, 4)
    assert [text.get_text() for text in figure.axes[0].texts] == ["all", "a", "", "b"]


def test_the_other_figures_are_drawn() -> None:
    row = {"bytes": 6144, "before": 4.0, "after": 0.5, "lowest": 0.4, "highest": 0.6}
    assert len(figures.draw_groups({6: row, 2: row}, 0.48).axes) == 2
    figures.draw_travel()
    figures.draw_heads()
    steps = {1: law.Step(1e6, 0.001, 0.002), 16: law.Step(4e6, 0.002, 0.003)}
    assert len(figures.draw_batches({"one": steps, "other": steps}).axes) == 2
    lines = figures.draw_law(steps, 0.0005, SLOW).axes[0].get_lines()
    assert [line.get_label() for line in lines[1:]] == ["calls", "predicted", "measured"]
    assert lines[2].get_ydata()[-1] == pytest.approx(0.5 + 2)  # calls, and 4 MB at 2 GB/s
    assert lines[-1].get_ydata().tolist() == [2.0, 3.0]
    figures.draw_round()
    assert len(figures.draw_rule("abcd", P.tolist(), Q.tolist()).axes[0].containers) == 3
    gain = Gain(2, 0.5, 1.75, plain=3.0, guessing=2.0, step=1.0, judging=2.0, draft=0.25)
    lines = figures.draw_speeds({"light": [gain], "heavy": [gain]}).axes[0].get_lines()
    assert [line.get_ydata()[0] for line in lines[:2]] == pytest.approx([0.7, 1.5])
