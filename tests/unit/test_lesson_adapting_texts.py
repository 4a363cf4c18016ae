"""Three tasks as texts: what has to be written follows from the story, and the readers see what their masks allow."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tfbook.attention.masks import Dense
from tfbook.data.stories import check_story, questions, told, words_of
from tfbook.lessons.adapting import texts
from tfbook.text.spans import restore_spans
from tfbook.text.vocabulary import BOS, EOS, PAD

pytestmark = pytest.mark.usefixtures("float32")


# ---- tasks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(20))
def test_answers_follow_from_what_is_read(number: int) -> None:
    story = told("train", number)
    source, (answer,) = texts.task_texts(story, "answer", seed=number)
    end = source.index("?") + 1
    assert source[end:] == texts.beginning(story) == list(story.words[: len(source) - end])
    assert answer in source[end:]
    assert answer in {q.answer for q in questions(story) if words_of(q.text) == source[:end]}


@pytest.mark.parametrize("number", range(20))
def test_spans_put_back_give_the_beginning(number: int) -> None:
    story = told("train", number)
    pair = texts.task_texts(story, "restore", seed=number)
    names = [*sorted(set(story.words)), *texts.MARKS]
    source, target = ([names.index(word) for word in words] for words in pair)
    restored = restore_spans(source, target, len(names) - len(texts.MARKS))
    assert [names[i] for i in restored] == texts.beginning(story)


@pytest.mark.parametrize("number", range(20))
def test_a_tale_retold_is_a_play_of_its_world(number: int) -> None:
    story = told("train", number)
    source, play = texts.task_texts(story, "retell")
    assert source[:2] == ["play", ":"]
    read = check_story(play)
    assert not read.faults
    assert not read.unread
    assert [(event.event, event.roles) for event in read.told] == [("begin", story.told[0].roles)]
    hero = story.told[0].roles["A"]
    assert read.state.people[hero] == story.state.people[hero]


def test_examples_are_padded_and_know_their_lengths() -> None:
    batch = texts.texts("valid", range(7))
    for number, (source, length, target) in enumerate(zip(*batch, strict=True)):
        ids, wanted = texts.example("valid", number)
        assert source[:length].tolist() == ids
        assert (source[length:] == PAD).all()
        assert target[: len(wanted)].tolist() == wanted
        assert wanted[0] == BOS
        assert wanted[-1] == EOS
    assert texts.texts("train", range(7)).source.tolist() != batch.source.tolist()


# ---- readers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", ["causal", "prefix"])
def test_a_row_is_read_as_its_mask_says(mask: str) -> None:
    """Against one example at a time, source and target in one row, under a matrix written out."""
    torch.manual_seed(0)
    model, batch = texts.OneStack(mask), texts.texts("train", range(5))
    found = model(batch)
    for row in range(5):
        source, target = texts.example("train", row)
        time = len(source) + len(target)
        allowed = torch.ones(time, time, dtype=torch.bool).tril()
        if mask == "prefix":
            allowed[:, : len(source)] = True
        states = model.stack(model.embed(torch.tensor([source + target])), Dense(allowed))
        expected = states[0, len(source) :] @ model.embed.weight.T
        torch.testing.assert_close(found[row, : len(target)], expected, rtol=1e-4, atol=1e-4)


def test_all_readers_have_as_many_parameters() -> None:
    sizes = [sum(p.numel() for p in make().parameters()) for make in texts.MODELS.values()]
    assert max(sizes) < 1.01 * min(sizes)


@pytest.mark.parametrize("name", texts.MODELS)
def test_work_is_what_pytorch_counts(name: str) -> None:
    """It counts the products with weights; those of queries, keys and values are added here."""
    model, batch = texts.MODELS[name](), texts.texts("train", [0])
    with FlopCounterMode(display=False) as counter:
        model(batch)
    source, target = batch.source.shape[1], batch.target.shape[1]
    pairs = 4 * (source + target) ** 2
    if name == "encoder–decoder":
        pairs = 2 * (source**2 + target**2 + target * source)
    assert model.flops(source, target) == counter.get_total_flops() + 4 * texts.DECODER.d_model * pairs


# ---- scores ------------------------------------------------------------------------------------------------------


def test_scores_are_those_of_a_reader_with_a_pencil() -> None:
    batch = texts.texts("valid", range(6))
    predicted = batch.target[:, 1:].clone()
    assert texts._scores(predicted, batch) == dict.fromkeys(texts.TASKS, 1)
    predicted[3, 0] = UNSEEN  # an answer
    words = [[id for id in texts.example("valid", n)[1][1:-1] if id not in MARKS] for n in (1, 4)]
    place = next(i for i, id in enumerate(predicted[1].tolist()) if id not in MARKS)
    predicted[1, place] = UNSEEN
    predicted[5, 2:4] = UNSEEN  # a play
    found = texts._scores(predicted, batch)
    assert found["answer"] == found["retell"] == 0.5
    assert found["restore"] == pytest.approx(1 - 1 / sum(map(len, words)))


UNSEEN, MARKS = 3, set(texts.VOCABULARY.encode(texts.MARKS))


def test_word_pairs_are_counted_per_task(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, count = texts.texts("valid", range(3)), 60
    monkeypatch.setattr(texts, "PAIRS", count)
    found = texts._word_pairs(batch)
    for task in range(3):
        pairs = Counter[tuple[int, int]]()
        for number in range(task, count, 3):
            target = texts.example("train", number)[1]
            pairs.update(pairwise(target))
        for before, after in zip(texts.example("valid", task)[1], found[task].tolist(), strict=False):
            most = max((n for (a, _), n in pairs.items() if a == before), default=0)
            assert pairs[before, after] == most


def test_the_first_named_is_found_by_hand() -> None:
    right = []
    for number in range(0, 60, 3):
        story = told("valid", number // 3)
        source, (answer,) = texts.task_texts(story, "answer", seed=number // 3)
        hero = story.told[0].roles
        first = story.state.people[hero["A"]].species if source[0] == "what" else hero["p"]
        right.append(first == answer)
    assert texts.first_named(range(0, 60, 3)) == sum(right) / len(right)


def test_runs_come_back_with_rate_size_and_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PAIRS", 9)
    monkeypatch.setattr(texts, "RATES", (0.01, 0.02))
    monkeypatch.setattr(texts, "BATCH", 3)
    monkeypatch.setattr(texts, "KINDS", {"prefix": 1, "encoder–decoder": 2})
    rows = texts.text_to_text((1, 2), steps=1, judged=6)
    assert [row["kind"] for row in rows] == ["baseline", *["prefix"] * 3, *["encoder–decoder"] * 3]
    assert [row["seed"] for row in rows] == [0, 1, 1, 2, 1, 1, 2]
    assert rows[4]["teraflops"] == pytest.approx(rows[1]["teraflops"], rel=0.1)
