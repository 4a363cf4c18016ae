"""Lesson 17's study: streams and facts by hand, shares of a state, memory and ratios, and what the stored runs say."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tfbook.attention import MultiHeadAttention
from tfbook.course.experiments import stored
from tfbook.lessons.state_spaces import asking, costs, figures, keeping, recall, stepping, study, telling
from tfbook.models.gated import MinGru, min_gru
from tfbook.models.scans import chunked_scan, sequential_scan
from tfbook.models.state_spaces import selective_scan, step_sizes

pytestmark = pytest.mark.usefixtures("float32")

# ---- the lantern -----------------------------------------------------------------------------------------------------


def test_a_stream_says_who_has_the_lantern() -> None:
    """By a loop over the words: the last name so far."""
    batch = keeping.stream(5, 40, torch.Generator().manual_seed(1))
    for words, holders, since in zip(*(x.tolist() for x in batch), strict=True):
        last, at = -1, 0
        for place, word in enumerate(words):
            if word < len(keeping.HOLDERS):
                last, at = word, place
            assert (holders[place], since[place]) == (last, place - at)
    assert int(batch.words[:, 0].max()) < len(keeping.HOLDERS)
    assert int(batch.words.max()) < len(keeping.HOLDERS + keeping.IDLE)


def test_the_shares_of_words_are_what_the_recurrence_gives() -> None:
    """The state after one word at a time marked with 1; with the share of nothing read they add up to 1."""
    decays = torch.rand(7, 3, generator=torch.Generator().manual_seed(2))
    marked = torch.eye(7)[:, :, None].expand(7, 7, 3)
    a = decays.expand(7, 7, 3)
    last = sequential_scan(a, (1 - a) * marked)[:, -1]
    torch.testing.assert_close(study.shares_left(decays), last)
    torch.testing.assert_close(study.shares_left(decays).sum(dim=0), 1 - decays.prod(dim=0))


class _LastName(nn.Module):
    """Knows the answer, but forgets after so many words."""

    def __init__(self, memory: int):
        super().__init__()
        self.memory = memory

    def forward(self, words: Tensor) -> Tensor:
        names = words < len(keeping.HOLDERS)
        at = torch.where(names, torch.arange(words.shape[1]), 0).cummax(dim=1).values
        known = torch.arange(words.shape[1]) - at < self.memory
        return nn.functional.one_hot(words.gather(1, at), 8).float() * known[..., None]


def test_right_answers_are_sorted_by_distance() -> None:
    shares = study.right_by_gap(_LastName(12))
    assert shares[:3] == [1, 1, 1]
    assert all(share < 0.5 for share in shares[3:])


class _Keeper(nn.Module):
    """The page's readers, with the package's scan."""

    def __init__(self, gated: bool):
        super().__init__()
        self.embed, self.new, self.read = nn.Embedding(16, 32), nn.Linear(32, 32), nn.Linear(32, 8)
        self.keep = nn.Parameter(torch.linspace(-4, 4, 32))
        self.V = nn.Linear(32, 32, bias=False) if gated else None

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        a = torch.sigmoid(self.keep.expand_as(x) if self.V is None else self.V(x) + self.keep)
        return self.read(chunked_scan(a, (1 - a) * self.new(x)))


def _by_hand(decay: float) -> _Keeper:
    """The page's reader by hand: a name is one number, the weather nothing, one decay for all."""
    reader = _Keeper(gated=False)
    with torch.no_grad():
        for weights in reader.parameters():
            weights.zero_()
        reader.embed.weight[:8, :8] = reader.read.weight[:, :8] = torch.eye(8)
        reader.new.weight.copy_(torch.eye(32))
        reader.keep.fill_(torch.logit(torch.tensor(decay)))
    return reader


def test_fixed_decays_can_hold_the_lantern_but_not_with_errors() -> None:
    """Exact: the last name has the largest share while a < ½. With errors each decay fails somewhere."""
    assert study.right_by_gap(_by_hand(0.4)) == [1.0] * 6
    assert max(study.right_by_gap(_by_hand(0.99))) < 0.85
    for decay in (0.4, 0.7, 0.9, 0.99):
        assert min(study.right_by_gap(_by_hand(decay), noise=1e-3)) < 0.75, decay
    assert study.right_by_gap(_by_hand(0.4)) == [1.0] * 6  # the errors are gone with the hook


class _Halves(nn.Module):
    """Every word halves the state, and the first number forgets all."""

    def embed(self, words: Tensor) -> Tensor:
        return torch.tensor([0.0, 0.5]).expand(len(words), 2)

    def decays(self, x: Tensor) -> Tensor:
        return x


def test_a_reader_holds_the_mean_share_of_each_word() -> None:
    """Shares 0, 0, 1 of one number and ⅛, ¼, ½ of the other."""
    assert study.held_by(_Halves(), ["Rosa", "rain", "Tom"]) == pytest.approx([1 / 12, 1 / 6, 1.0])


def test_only_decays_that_the_input_sets_keep_the_lantern() -> None:
    """The claim of the page, with another seed."""
    far = {}
    for gated in (False, True):
        torch.manual_seed(7)
        far[gated] = study.right_by_gap(study.train_keeper(_Keeper(gated), steps=150, seed=7))[-1]
    assert far[True] > 0.95
    assert far[False] < 0.4


# ---- a step by hand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", study.WORDS)
def test_the_drawn_step_is_mambas(word: str) -> None:
    found = study.one_step(study.WORDS[word])
    u, raw = torch.full((1, 1, 1), stepping.INPUT), torch.full((1, 1, 1), found.raw)
    A, B, C, h = (torch.tensor([each]) for each in (stepping.A, stepping.B, stepping.C, stepping.BEFORE))
    y, state = selective_scan(u, nn.functional.softplus(raw), A, B[None], C[None], h[None])
    torch.testing.assert_close(state.flatten(), torch.tensor(found.state))
    assert float(y + stepping.D * u) == pytest.approx(found.output, rel=1e-5)
    assert [k + w for k, w in zip(found.kept, found.written, strict=True)] == pytest.approx(found.state)
    assert [d * h for d, h in zip(found.decay, stepping.BEFORE, strict=True)] == pytest.approx(found.kept)


def test_what_the_page_says_of_time_scales() -> None:
    """Halved after 0.9 to 693 words: the fastest of eight numbers at the largest step, the slowest at the smallest."""
    steps = step_sizes(10_000)
    assert 0.001 <= float(steps.min()) < 0.0011 < 0.09 < float(steps.max()) <= 0.1
    assert study.half_life(0.1, 8) == pytest.approx(0.87, abs=0.005)
    assert study.half_life(0.001, 1) == pytest.approx(693, abs=0.5)
    assert 2.0 ** -(5 / study.half_life(0.1, 2)) == pytest.approx(float(torch.exp(torch.tensor(-5 * 0.1 * 2))))


# ---- facts -----------------------------------------------------------------------------------------------------------


def test_each_fact_is_asked_for_once() -> None:
    batch = recall.recall_batch(6, 5, torch.Generator().manual_seed(3))
    for names, things, answers in zip(*(x.tolist() for x in batch), strict=True):
        facts = dict(zip(names[:5], things[:5], strict=True))
        assert len(facts) == 5
        assert sorted(names[5:]) == sorted(names[:5])
        assert answers == [facts[name] for name in names[5:]]
        assert set(things[5:]) == {recall.THINGS}


def test_a_reader_that_counts_is_right_as_often_as_the_most_frequent_thing() -> None:
    """Two facts: the same thing in one case of eight, else one of two. One fact: always."""
    assert study.counting(2) == pytest.approx(0.5 + 0.5 / 8, abs=0.01)
    assert study.counting(1) == 1


def test_attention_learns_to_recall_and_the_questions_alone_count() -> None:
    model = study.train_reader(MultiHeadAttention, steps=120, pairs=(4,))
    assert study.recalled(model, 4) > 0.95
    batch = recall.recall_batch(3, 4, torch.Generator().manual_seed(5))
    loss = recall.recall_loss(model, batch)
    changed = batch._replace(answers=(batch.answers + 1) % recall.THINGS)
    assert recall.recall_loss(model, changed) > loss + 1


def test_the_numbers_of_a_state_are_counted_right() -> None:
    """Each method's size is that of its cache after a text; a window's is its own positions."""
    for method, readers in recall.READERS.items():
        for mixer, heads, numbers in readers:
            model = recall.Reader(mixer, heads=heads)
            cache = model.stack.new_cache()
            with torch.no_grad():
                model.stack(torch.randn(1, 40, recall.D_MODEL), cache=cache)
            kept = cache.blocks[0].past
            if method in ("attention", "window"):
                assert 2 * kept.length * recall.D_MODEL >= numbers
            else:
                assert kept.nbytes() == 4 * numbers


def test_a_state_is_joined_with_its_question_in_six_ways() -> None:
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(4))
    kinds = {way: asking.AskedGru(8, 1, way=way, width=6) for way in asking.WAYS}
    first = kinds[asking.WAYS[0]]
    for each in kinds.values():
        each.load_state_dict(first.state_dict())
    h = first.scan(*min_gru(first.W_Z(x), first.W_H(x)))
    torch.testing.assert_close(first(x), MinGru.forward(first, x))
    q = first.W_Q(x)
    read = {
        "question added": h + q,
        "question multiplied": h * q,
        "ReLU of the state": h.clamp(min=0),
        "ReLU of the sum": (h + q).clamp(min=0),
        "SiLU of the sum": (h + q) * torch.sigmoid(h + q),
    }
    for way, joined in read.items():
        torch.testing.assert_close(kinds[way](x), first.W_O(joined))
    assert first.parameter_count() == sum(each.numel() for each in first.parameters())
    assert kinds["question multiplied"].flops(5) == 2 * 5 * 4 * 8 * 6
    with pytest.raises(KeyError):
        asking.AskedGru(8, 1, way="question divided")


def test_the_experiments_on_reading_and_length_run_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "train_reader", lambda mixer, **sizes: sizes)
    monkeypatch.setattr(recall, "recalled", lambda sizes, pairs: sizes["lr"] + sizes["seed"] + sizes["steps"])
    rows = asking.asked(steps=2, seeds=(0, 1))
    assert [(row["way"], row["lr"], row["16 facts"]) for row in rows] == [
        (way, 1e-2, 2.01 + seed) for way in asking.WAYS for seed in (0, 1)
    ]
    more = asking.longer(steps=(2, 3), seeds=(5,))
    assert [(row["method"], row["16 facts"]) for row in more] == [
        (method, 5.01 + steps) for method in asking.LONGER for steps in (2, 3)
    ]
    monkeypatch.setattr(recall, "recalled", lambda sizes, pairs: sizes["layers"] + sizes["seed"])
    assert [row["16 facts"] for row in asking.two_blocks(steps=2, seeds=(0, 1))] == [2, 3, 2, 3]
    table = study.by_batches(more, 16)
    assert table.loc["minGRU, 256 numbers", "3 batches"] == "8.01–8.01"


# ---- stories and costs ---------------------------------------------------------------------------------------------


def test_the_mixers_have_equal_parameters() -> None:
    """To one percent; and Mamba's state has as many numbers as the window."""
    counts = [telling.storyteller(mixer).parameter_count() for mixer in telling.MIXERS.values()]
    assert max(counts) / min(counts) < 1.01
    words = telling.state_bytes(telling.storyteller(telling.MAMBA), 50)
    window = 2 * telling.WINDOW * telling.SIZES["d_model"] * telling.SIZES["layers"] * 4
    assert 0.9 < window / words < 1.1


def test_training_lowers_the_loss() -> None:
    model = telling.storyteller(telling.MAMBA)
    before = telling.held_out_loss(model)
    history = telling.train_teller(model, steps=12)
    assert telling.held_out_loss(model) < before - 0.5
    assert history.steps == 12
    assert history.lr[0] == pytest.approx(telling.RATE / telling.WARMUP)


def test_the_rate_rises_and_falls_in_a_line() -> None:
    factor = recall.rise_and_fall(4)
    assert [factor(step, 10) for step in (0, 1, 5, 9)] == pytest.approx([0.25, 0.5 * 0.9, 0.5, 0.1])


# ---- the stop button -------------------------------------------------------------------------------------------------


class _Pressed(nn.Module):
    """A model in whose third training step somebody presses stop."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.calls = model, 0
        model.register_forward_hook(self._press)

    def _press(self, model: nn.Module, *_: Any) -> None:
        self.calls += model.training
        if self.calls == 3 and model.training:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's handler, which a process started in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_after_a_stop_the_next_cells_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All three trainings of the page end after the step in which stop was pressed; what follows reads the model."""
    keeper = _Keeper(gated=True)
    pressed = _Pressed(keeper)
    assert not study.train_keeper(keeper, steps=50).training
    assert pressed.calls == 3
    assert len(study.right_by_gap(keeper)) == len(study.GAPS)
    teller = telling.storyteller(telling.MIXERS["minGRU"])
    pressed = _Pressed(teller)
    assert study.train_teller(teller, steps=50).interrupted
    assert pressed.calls == 3
    assert study.told_by(teller, 1)[0]
    reader = recall.Reader
    monkeypatch.setattr(recall, "Reader", lambda *args, **sizes: _Pressed(reader(*args, **sizes)).model)
    found = study.train_reader(MultiHeadAttention, steps=50)
    assert 0 <= study.recalled(found, 4) <= 1
    assert capsys.readouterr().err.count("stopped after 3 of 50 steps") == 3


def test_a_state_has_one_size_and_a_cache_grows() -> None:
    mamba, attention = (telling.storyteller(telling.MIXERS[name]) for name in ("Mamba", "attention"))
    assert telling.state_bytes(mamba, 10) == telling.state_bytes(mamba, 700) == 9856
    assert telling.state_bytes(attention, 700) == 700 * 2 * 96 * 2 * 4


def test_seconds_are_those_of_each_run() -> None:
    calls: list[int] = []
    assert len(costs.seconds(lambda: calls.append(1), repeats=3, warmup=2)) == 3
    assert len(calls) == 5


@pytest.mark.parametrize(
    ("run", "rows"),
    [
        (lambda: costs.per_word(lengths=(8, 16), repeats=1), 8),
        (lambda: costs.training_steps(lengths=(4,), repeats=1), 8),
        (lambda: telling.stories(("minGRU",), steps=2, seeds=(1,)), 1),
        (lambda: telling.story_rates(("minGRU",), steps=2, seeds=(1,)), 3),
    ],
    ids=["per word", "training steps", "stories", "story rates"],
)
def test_an_experiment_runs_small(run: Callable[[], list[dict[str, Any]]], rows: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(telling, "SAMPLES", 2)
    assert len(run()) == rows


def test_the_recall_experiment_keeps_the_better_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "READERS", {"attention": [(MultiHeadAttention, 1, 0)]})
    monkeypatch.setattr(recall, "recall_run", lambda mixer, heads, lr, steps, seed, layers: {"2 facts": lr + seed})
    rows = recall.recall(seeds=(0, 1))
    assert rows == [
        {"method": "attention", "numbers": 0, "lr": 1e-2, "seed": seed, "2 facts": 1e-2 + seed} for seed in (0, 1)
    ]


def test_another_rate_is_run_with_all_seeds_where_it_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {0.002: -5.0, 0.018: 9.0, 0.05: 9.0}
    monkeypatch.setattr(telling, "_told", lambda name, lr, steps, seed: {"loss": losses[lr] + seed, "flops": 2e6})
    rows = telling.story_rates(("minGRU",), seeds=(1, 2))
    assert [(row["lr"], row["seed"]) for row in rows] == [(0.002, 1), (0.018, 1), (0.05, 1), (0.002, 2)]
    losses[0.002] = 5.0
    assert len(telling.story_rates(("minGRU",), seeds=(1, 2))) == 3


def test_the_scoreboard_shows_each_mixer_at_its_best_rate() -> None:
    told = [{"method": "minGRU", "seed": s, "loss": 1 + s / 10, "sentences": 0.5, "flops": 1e6} for s in (1, 2)]
    others = [{**told[0], "lr": 0.002, "loss": 2.0}, {**told[0], "lr": 0.018, "loss": 0.7, "sentences": 0.9}]
    sizes = [("minGRU", 8, 0.2), ("minGRU", 8, 0.4), ("minGRU", 4, 0.1)]
    facts = [{"method": method, "numbers": size, "16 facts": share} for method, size, share in sizes]
    shown = study.scoreboard(told, others, facts, [{**facts[0], "16 facts": 1.0}]).loc["minGRU"]
    assert shown["loss, nats per word"] == "0.70–0.70"
    assert shown["right sentences"] == "90%"
    assert shown["16 facts after 500 batches"] == "30%"
    kept = study.scoreboard(told, others[:1], [], facts[2:]).loc["minGRU"]
    assert kept["16 facts after 500 batches"] == "10%"
    assert kept["loss, nats per word"] == "1.10–1.20"
    assert study.rates_table(told, others).loc["minGRU"].tolist() == [2.0, 1.1, 0.7]


def test_ratios_compare_the_longest_with_the_shortest() -> None:
    rows = [{"method": "a", "length": length, "ms": ms} for length, ms in ((512, 2.0), (8192, 5.0))]
    assert study.largest_ratio(rows) == {"a": 2.5}


# ---- what the stored runs say ----------------------------------------------------------------------------------------


def test_what_the_page_says_of_recall() -> None:
    rows, counting = stored("state_spaces.recall").rows, study.counting(16)

    def shares(method: str, numbers: int) -> list[float]:
        return [row["16 facts"] for row in rows if (row["method"], row["numbers"]) == (method, numbers)]

    for method, numbers in (("minGRU", 32), ("minGRU", 256), ("S4D", 512), ("Mamba", 176)):
        assert all(abs(share - counting) < 0.02 for share in shares(method, numbers)), method
    assert min(shares("attention", 0) + shares("gated linear attention", 256)) > 0.99
    assert all(0.55 < share < 0.65 for share in shares("gated linear attention", 64))
    assert all(0.6 < share < 0.7 for share in shares("LSTM", 256))
    assert max(shares("gated linear attention", 1024)) > 0.99 > 0.7 > min(shares("gated linear attention", 1024))


def test_what_the_page_says_of_the_question() -> None:
    """A product, a ReLU or a SiLU of the sum: from counting to nine in ten; each half alone changes nothing."""
    least = {"question multiplied": 0.95, "ReLU of the sum": 0.9, "SiLU of the sum": 0.985}
    rows = stored("state_spaces.asked").rows
    assert [row["way"] for row in rows] == [way for way in asking.WAYS for _ in range(3)]
    for row in rows:
        if row["way"] in least:
            assert row["16 facts"] > least[row["way"]]
        else:
            assert abs(row["16 facts"] - study.counting(16)) < 0.02


def test_what_the_page_says_of_longer_training() -> None:
    """Three times the batches help all that are multiplied by the question, and minGRU not at all."""
    rows = stored("state_spaces.longer").rows
    found: dict[tuple[str, int], list[float]] = {(row["method"], row["steps"]): [] for row in rows}
    for row in rows:
        found[row["method"], row["steps"]].append(row["16 facts"])
    assert max(found["Mamba", 500]) < 0.35 < 0.94 < min(found["Mamba", 1500])
    assert max(found["LSTM", 500]) < 0.65 < 0.99 < min(found["LSTM", 1500])
    assert max(found["minGRU", 1500]) < study.counting(16) + 0.02
    assert all(0.7 < share < 0.76 for share in found["gated linear attention", 1500])


def test_what_the_page_says_of_stories() -> None:
    """Each at its best rate: four mixers a tenth of a nat below attention, Mamba and the LSTM before the others."""
    told, rates = stored("state_spaces.stories").rows, stored("state_spaces.story_rates").rows
    best = study.best_rates(told, rates)
    losses = {name: [row["loss"] for row in runs] for name, runs in best.items()}
    assert all(len(each) == 2 for each in losses.values())
    leaders, followers = ("Mamba", "LSTM"), ("hybrid", "minGRU")
    others = (*followers, "window", "gated linear attention")
    assert max(max(losses[name]) for name in leaders) < min(min(losses[name]) for name in others)
    for name in (*leaders, *followers):
        assert max(losses[name]) < min(losses["attention"]) - 0.1, name
    assert max(losses["window"]) < min(losses["attention"])
    assert {row["method"] for row in rates} == set(telling.MIXERS)
    swept = sorted((telling.RATE, *telling.OTHER_RATES))
    assert all(swept[0] < runs[0]["lr"] < swept[-1] for runs in best.values())


def test_what_the_page_says_of_two_blocks() -> None:
    rows = stored("state_spaces.two_blocks").rows
    assert min(row["16 facts"] for row in rows if row["method"] == "hybrid") > 0.995
    assert {row["method"] for row in rows} == set(asking.BLOCKS)


def test_what_the_page_says_of_costs() -> None:
    rows = stored("state_spaces.per_word").rows
    ratios = study.largest_ratio(rows)
    assert 2.5 < ratios.pop("attention") < 3.5
    assert max(ratios.values()) < 1.05


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_every_word_and_run_is_drawn() -> None:
    words = ["a", "b", "c"]
    drawn = figures.draw_fading(words, {"one": [0.1, 0.5, 1.0], "two": [1.0, 0.0, 0.0]}, "title")
    assert [text.get_text() for axes in drawn.axes for text in axes.texts] == words * 2
    runs = {"fixed decays": [[0.5] * 6, [0.4] * 6], "decays set by the input": [[1.0] * 6]}
    assert len(figures.draw_gaps(study.GAPS, runs, "title").axes[0].lines) == 4
    shown = [text.get_text() for text in figures.draw_views([4, 0, 2, 8], [4, 2, 3, 9.5]).axes[2].texts]
    assert {"9.5", "9", "¼"} <= {text for text in shown if text}
    assert figures.draw_mamba().axes
    steps = {word: study.one_step(raw) for word, raw in study.WORDS.items()}
    boxes = [text.get_text() for text in figures.draw_step(steps).axes[0].texts]
    assert {"−4.50", "0.01", "2.99", "6.97", "3.53", "16.21"} <= set(boxes)
    rows = stored("state_spaces.recall").rows
    assert len(figures.draw_recall(rows, 16, 0.26, "title").axes[0].get_yticks()) == len(rows) // 2
    asked = stored("state_spaces.asked").rows
    assert len(figures.draw_asked(asked, {2: 0.5, 16: 0.26}, "title").axes[0].lines) == len(asked) + 1
    table = study.gap_table({"one": [0.125] * 6})
    assert table.loc["one", "48–95 words"] == pytest.approx(0.125)
    assert len(figures.draw_costs(stored("state_spaces.per_word").rows, "title").axes) == 2
