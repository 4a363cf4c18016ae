"""What positions are measured on: sentences, additions and windows are what they say; stretched positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from matplotlib import text as mpl_text
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from tfbook.attention import POSITIONS, ALiBi, Learned, Position, Rotary, Sinusoidal
from tfbook.data.text import Text
from tfbook.lessons.positions import figures, reading, study
from tfbook.lessons.positions.figures import STRETCHED
from tfbook.lessons.positions.reading import NOUNS, VERBS, WORDS, Reader
from tfbook.lessons.positions.study import RandomStart, SlowPairsInterpolated
from tfbook.models.language_model import BidirectionalModel, LanguageModel
from tfbook.plot.house import METHODS
from tfbook.training import Loss, next_token_loss

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def text() -> Text:
    """The alphabet again and again, so that one character says what comes next."""
    return Text.split("letters", "abcdefghijklmnopqrstuvwxyz" * 400)


def untrained(position: str, text: Text, kind: type[LanguageModel] = LanguageModel) -> LanguageModel:
    return kind(len(text.characters) + 1, replace(study.SIZES, position=POSITIONS[position])).eval()


# ---- who bites whom ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [3, 7])
def test_a_sentence_holds_a_noun_a_verb_and_another_noun_in_this_order(words: int) -> None:
    ids, roles, before = reading.sentences(200, words, seed=1)
    assert ids.shape == (200, words)
    for sentence, role, previous in zip(ids.tolist(), roles.tolist(), before.tolist(), strict=True):
        words_of = [WORDS[i] for i in sentence]
        kinds = ["noun" if w in NOUNS else "verb" for w in words_of if w in NOUNS + VERBS]
        assert kinds == ["noun", "verb", "noun"]
        nouns = [w for w in words_of if w in NOUNS]
        assert nouns[0] != nouns[1]
        assert [r for r in role if r >= 0] == [0, 1]
        assert [w for w, r in zip(words_of, role, strict=True) if r >= 0] == nouns
        assert previous == [-100, *sentence[:-1]]


def test_sentences_come_from_their_seed_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (reading.sentences(5, 6, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_without_positions_a_reader_cannot_tell_the_two_news_apart() -> None:
    dog, bites, man = (WORDS.index(word) for word in ("dog", "bites", "man"))
    one, other = (
        torch.cat(Reader(position)(torch.tensor([[dog, bites, man], [man, bites, dog]])), dim=-1)
        for position in (Position(), Sinusoidal(32))
    )
    torch.testing.assert_close(one[0], one[1].flip(0))
    assert not torch.allclose(other[0], other[1].flip(0), atol=0.01)


def test_answers_are_counted_where_there_is_one() -> None:
    """A reader that says 'does it' and 'dog' every time is right with every first noun, and behind every dog."""
    model = Reader(Position())
    with torch.no_grad():
        for layer, answer in ((model.role, 0), (model.before, WORDS.index("dog"))):
            layer.weight.zero_()
            layer.bias.copy_(torch.eye(len(layer.bias))[answer])
    _, _, before = reading.sentences(300, 4, seed=10**6 + 4)
    share = float((before[:, 1:] == WORDS.index("dog")).float().mean())
    assert reading.answered(model, 4, count=300) == (0.5, pytest.approx(share))


def test_runs_are_judged_by_name() -> None:
    model = Reader(Position())
    found = reading.judge({"none": [model, model]}, words=5)
    assert found == {"none": [reading.answered(model, 5)] * 2}
    table = reading.shares({"none": [(0.5, 0.25), (1.0, 0.333)]})
    assert table.loc["none"].to_dict() == {"who does it": "50%  100%", "word before": "25%  33%"}


def says(ids: Tensor) -> tuple[Tensor, Tensor]:
    """A model that says: the first word does it, the others suffer it; and before each stands "dog"."""
    roles = torch.zeros(*ids.shape, 2)
    roles[:, 0, 0] = roles[:, 1:, 1] = 50
    return roles, torch.eye(len(WORDS))[0].expand(*ids.shape, -1)


def test_news_has_a_row_for_each_sentence_and_a_column_for_each_noun() -> None:
    table = reading.news(says, "Dog bites man", "man bites dog")
    assert list(table.columns) == ["dog does it", "man does it"]
    assert table.to_numpy().tolist() == [["100%", "0%"], ["0%", "100%"]]


def test_answers_stand_below_their_words() -> None:
    table = reading.answers({"none": says}, "old dog bites man")
    assert list(table.columns) == ["old", "dog", "bites", "man"]
    assert table.loc["none: role"].tolist() == ["", "is the target", "", "is the target"]
    assert table.loc["none: word before"].tolist() == ["", "dog", "dog", "dog"]


def test_a_word_that_no_reader_knows_is_named() -> None:
    with pytest.raises(ValueError, match=r"does not know 'zebra'; its words are dog, man"):
        reading.news(says, "dog bites zebra")


def test_alibi_without_a_mask_reads_backwards_as_forwards() -> None:
    """Its distances have no sign, so a text and its mirror image are the same to the reader."""
    model, ids = Reader(ALiBi(2)), reading.sentences(4, 9, seed=3)[0]
    for forwards, backwards in zip(model(ids), model(ids.flip(1)), strict=True):
        torch.testing.assert_close(forwards, backwards.flip(1))


# ---- what is drawn -----------------------------------------------------------------------------------------------


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl_text.Text) if text.get_text()]


def test_clocks_turn_by_their_speed_and_digits_count() -> None:
    figure = figures.draw_clocks({"fast": math.pi / 2, "slow": 0.1}, count=4)
    (axes,) = figure.axes
    written = [text.get_text() for text in axes.texts if text.get_text().isdigit()]
    assert written == ["0", "0", "0", "1", "1", "0", "2", "0", "1", "3", "1", "1"]  # a position, then its two digits
    hands = [each for each in axes.texts if getattr(each, "arrow_patch", None)]
    x, y = (tip - middle for tip, middle in zip(hands[2].xy, hands[2].xyann, strict=True))  # position 1, fast
    assert x > 0
    assert y == pytest.approx(0, abs=1e-9)


def test_turned_vectors_show_angle_and_product() -> None:
    query, key = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])
    shown = texts(figures.draw_turns(query, key, 0.1, [(0, 0), (5, 2)]))
    assert {"90°", "107°", "m − n = 0:  product 0.00", "m − n = 3:  product −0.30", "q, m = 5"} <= set(shown)


def test_a_ramp_gives_the_weights_of_a_causal_softmax() -> None:
    shown = texts(figures.draw_ramp(torch.ones(2, 2), torch.tensor([[0.0, -1.0], [-1.0, 0.0]])))
    assert {"0.27", "0.73", "1.00", "−1.0"} <= {text.replace("-", "−") for text in shown}


def test_an_encoding_that_ends_is_a_point_and_colors_are_those_of_the_house() -> None:
    curves = {name: ([64, 96], [6.0, 7.0], [0.1, 0.1]) for name in ("rotary", "ALiBi")}
    figure = figures.draw_lengths(curves | {"learned": ([64], [7.8], [0.0])}, (64, 96), 64)
    assert "learned\nends here" in texts(figure)
    colors = {line.get_label(): line.get_color() for line in figure.axes[0].get_lines()}
    assert {name: colors[name] for name in curves} == {name: METHODS[name].color for name in curves}


@pytest.mark.parametrize(
    "draw",
    [
        figures.draw_places,
        lambda: figures.draw_table(torch.zeros(3, 3, dtype=torch.long), 2),
        lambda: figures.draw_peaks((-1.0, 0.3), query=5, count=12),
        lambda: figures.draw_right({"none": [(0.5, 0.2)], "rotary": [(1.0, 0.9)]}, "title"),
        lambda: figures.draw_curves({"none": ([1, 2], [0.0, 1.0], [0.0, 0.0])}, "title", "x", "y", [1, 2], trained=1),
        lambda: figures.draw_stretched(
            {name: ([64, 96], [6.0, 7.0], [0.1, 0.1]) for name in STRETCHED}, (64, 96), trained=64
        ),
    ],
    ids=["places", "table", "peaks", "right", "curves", "stretched"],
)
def test_the_other_pictures_can_be_drawn(draw: Callable[[], Figure]) -> None:
    figure = draw()
    figure.canvas.draw()
    assert len(texts(figure)) > 3


# ---- beyond the trained length -----------------------------------------------------------------------------------


def test_windows_of_every_length_end_at_the_same_places(text: Text) -> None:
    short, long = (study.windows_ending_together(text, length, 5) for length in (64, 512))
    assert short.shape == (5, 65)
    assert long.shape == (5, 513)
    assert torch.equal(long[:, -65:], short)
    valid = text.characters.encode(text.valid)
    assert torch.equal(long[-1], valid[-513:])


def test_perplexity_is_that_of_the_last_characters(text: Text) -> None:
    model, ids = untrained("sinusoidal", text), study.windows_ending_together(text, 96, 40)
    with torch.no_grad():
        losses = F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:], reduction="none")
    expected = math.exp(losses[:, -study.JUDGED :].mean())
    assert study.perplexity(model, text, 96, count=40) == pytest.approx(expected, rel=1e-4)


def test_a_guess_has_the_perplexity_of_its_choices(text: Text) -> None:
    model = untrained("none", text)
    with torch.no_grad():
        model.embed.weight.zero_()
    assert study.perplexity(model, text, 64, count=8) == pytest.approx(27)


def test_training_is_on_short_pieces_and_teaches(text: Text) -> None:
    model, history = study.trained("learned", text, seed=1, steps=40)
    assert isinstance(model.stack.position, Learned)
    assert model.stack.position.embedding.num_embeddings == study.TRAINED
    assert history.loss[-1] < 0.5 * history.loss[0]
    assert study.perplexity(model, text, 64, count=8) < 10


@pytest.mark.parametrize("length", [64, 256])
def test_as_many_characters_a_step_whatever_the_length(
    text: Text, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []

    def loss(model: LanguageModel, ids: Tensor) -> Loss:
        seen.append((ids.shape[0], ids.shape[1] - 1))
        return next_token_loss(model, ids)

    study.tuned(untrained("rotary", text), text, 1, steps=2, length=length, lr=1e-3, loss=loss)
    assert seen == [(study.BATCH * study.TRAINED // length, length)] * 2


def test_masked_characters_are_predicted_from_the_others(text: Text) -> None:
    """The model sees the last id where a character is masked, and the loss counts those places alone."""
    ids = torch.randint(26, (8, 40))
    torch.manual_seed(3)
    masked = torch.rand(ids.shape) < study.MASKED
    model = untrained("none", text, BidirectionalModel)
    with torch.no_grad():
        expected = F.cross_entropy(model(torch.where(masked, 26, ids))[masked], ids[masked])
    torch.manual_seed(3)
    torch.testing.assert_close(study.masked_character_loss(model, ids), expected)


def test_only_pairs_that_never_went_round_are_interpolated() -> None:
    """θ · 64 ≥ 2π holds for the first three of eight pairs: 1, 0.316, 0.1, then 0.0316."""
    positions = torch.arange(0.0, 300, 7)
    plain, stretched = Rotary(16).angles(positions), SlowPairsInterpolated(16, stretch=4).angles(positions)
    torch.testing.assert_close(stretched[:, :3], plain[:, :3])
    torch.testing.assert_close(stretched[:, 3:], plain[:, 3:] / 4)


def test_stretching_leaves_the_model_as_it_is(text: Text) -> None:
    model = untrained("rotary", text)
    stretched = study.interpolate_positions(model, 2)
    assert type(model.stack.position) is Rotary
    assert torch.equal(stretched.embed.weight, model.embed.weight)
    ids = torch.randint(26, (2, 30))
    assert not torch.allclose(stretched(ids), model(ids), atol=1e-4)
    torch.testing.assert_close(study.interpolate_positions(model, 1)(ids), model(ids))


def test_probes_read_positions_where_they_were_added(text: Text) -> None:
    with_waves, without = (
        study.position_probes(untrained(position, text), text, count=40) for position in ("sinusoidal", "none")
    )
    assert len(with_waves) == 1 + study.SIZES.layers
    assert with_waves[0] > 0.9
    assert without[0] < 0.1


@pytest.mark.parametrize("experiment", [study.lengths, study.control])
def test_every_model_has_its_rows(
    experiment: Callable[..., list[dict[str, object]]], text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study.data, "load", lambda *names, **options: text)
    monkeypatch.setattr(study, "LENGTHS", (64, 96))
    monkeypatch.setattr(study, "TUNED", 128)
    rows = experiment((1,), steps=10)
    if experiment is study.control:
        assert [row["model"] for row in rows] == ["bidirectional", "untrained"]
        return
    assert [row["model"] for row in rows if "probes" in row] == list(POSITIONS)
    assert {len(row["perplexity"]) for row in rows if row["model"] != "learned"} == {2}
    (learned,) = (row for row in rows if row["model"] == "learned")
    assert [length for length, _ in learned["perplexity"]] == [64], "the table is at its end"


# ---- additions ---------------------------------------------------------------------------------------------------


def test_sums_are_sums() -> None:
    for row in study.sums(200, 5, seed=1).unflatten(1, (5, 3)).tolist():
        a, b, below = (sum(digit * 10**i for i, digit in enumerate(column)) for column in zip(*row, strict=True))
        assert below == (a + b) % 10**5


def test_some_columns_carry() -> None:
    a, b, below = study.sums(100, 4, seed=1).unflatten(1, (4, 3)).unbind(dim=-1)
    carried = (below - a - b) % 10
    assert set(carried[:, 0].tolist()) == {0}
    assert set(carried[:, 1:].flatten().tolist()) == {0, 1}


def test_an_answer_is_given_before_it_is_seen() -> None:
    """The logits of a third digit depend on the digits before it and on no other."""
    model = LanguageModel(10, study.SIZES).eval()
    ids = study.sums(1, 3, seed=1)
    changed = ids.clone()
    changed[0, 5:] = (ids[0, 5:] + 1) % 10
    first, second = study.sum_digits(model, ids), study.sum_digits(model, changed)
    assert first.shape == (1, 3, 10)
    torch.testing.assert_close(first[:, :2], second[:, :2])
    assert not torch.allclose(first[:, 2], second[:, 2])


def test_an_addition_is_right_when_all_its_digits_are(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = study.sums(4, 2, seed=2)
    logits = F.one_hot(ids[:, 2::3], 10).float()
    logits[0, 1] = logits[0, 1].roll(1)  # one digit of eight
    monkeypatch.setattr(study, "sum_digits", lambda model, ids: logits)
    assert study.right(LanguageModel(10, study.SIZES), 2, count=4) == (0.75, 0.875)


def test_a_random_start_is_for_training_alone() -> None:
    encoding = RandomStart(Sinusoidal(4), latest=30)
    x = torch.zeros(1, 3, 4)
    plain = Sinusoidal(4)
    starts = {float(encoding.add(x)[0, 0, 2]) for _ in range(200)}
    assert starts == {float(plain.add(x, start)[0, 0, 2]) for start in range(31)}
    torch.testing.assert_close(encoding.eval().add(x, 2), plain.add(x, 2))


@pytest.mark.parametrize("name", ["ALiBi", "learned, random start"])
def test_an_adder_has_the_encoding_that_its_name_says(name: str) -> None:
    model = study.adder(name, 1, steps=20)
    position = model.stack.position
    if name == "ALiBi":
        assert isinstance(position, ALiBi)
        return
    assert isinstance(position, RandomStart)
    assert isinstance(position.encoding, Learned)
    assert position.latest + 3 * study.COLUMNS == position.encoding.embedding.num_embeddings == 3 * max(study.TESTED)


def test_every_adder_is_tested_at_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "ADDERS", ("none", "rotary"))
    rows = study.addition((1, 2), steps=20)
    assert [(row["model"], row["seed"]) for row in rows] == [(m, s) for s in (1, 2) for m in ("none", "rotary")]
    assert all([columns for columns, *_ in row["right"]] == list(study.TESTED) for row in rows)
