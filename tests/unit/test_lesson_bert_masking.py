"""Lesson 08's measures on the story world: words that a story determines, guessers, and search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
import torch

from tfbook.attention import Rotary
from tfbook.course.experiments import stored
from tfbook.data.stories import check_story, told, words_of
from tfbook.lessons.bert_masking import figures, search, stories, study
from tfbook.lessons.bert_masking.stories import Blank
from tfbook.models.sentence_encoder import Found

pytestmark = pytest.mark.usefixtures("float32")


def of_first_stories(count: int) -> list[Blank]:
    """The stored blanks of so many stories."""
    return [blank for blank in stories.load_blanks(stored("bert_masking.blanks").rows) if blank.story < count]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model and few blanks."""
    monkeypatch.setattr(stories, "SIZES", (16, 2, 32, 1))
    few = of_first_stories(2)
    monkeypatch.setattr(stories, "load_blanks", lambda rows: few)


# ---- words that a story determines -------------------------------------------------------------------------------


def test_a_determined_word_is_one_that_no_other_replaces() -> None:
    """Also none of another kind: where “he” would do as well as “Tim”, neither is determined."""
    found = stories.find_blanks(range(1))
    assert found
    assert found == of_first_stories(1)
    for blank in found:
        words = list(told("valid", blank.story).words)
        assert words[blank.place] in stories.KINDS[blank.kind]
        for other in (*stories.KIND_OF, "evening", "the", "not"):
            changed = [*words[: blank.place], other, *words[blank.place + 1 :]]
            assert check_story(changed).consistent == (other == words[blank.place])


def test_what_could_be_otherwise_is_not_determined() -> None:
    """A place that comes once; a name where “he” would do as well."""
    words = words_of(
        "On the hill there lived a shy fox named Tim. How happy Tim was! And Tim lived happily ever after."
    )
    assert check_story(words).consistent
    assert stories.determined(words, words.index("named") + 1)
    assert not stories.determined(words, words.index("was") - 1)
    assert not stories.determined(words, words.index("hill"))


def test_the_stored_blanks_are_what_the_experiment_finds() -> None:
    blanks = stories.load_blanks(stored("bert_masking.blanks").rows)
    assert [blank for blank in blanks if blank.story in (3, 5)] == stories.find_blanks((3, 5))
    assert len(blanks) > 600


def test_a_perfect_guesser_fills_every_blank_and_sees_none() -> None:
    blanks = of_first_stories(3)

    def perfect(texts: list[list[str]], of: Sequence[Blank]) -> list[str]:
        assert all(
            text[blank.place] == "[MASK]" and text.count("[MASK]") == 1 for text, blank in zip(texts, of, strict=True)
        )
        return [told("valid", blank.story).words[blank.place] for blank in of]

    assert set(stories.share_right(perfect, blanks).values()) == {1.0}
    assert set(stories.share_right(lambda texts, of: ["?"] * len(of), blanks).values()) == {0.0}


def test_simple_guessers_know_the_kind() -> None:
    guess = stories.baselines([["Tim", "Tim", "Anna", "kite"], ["drum", "kite"]])
    texts = [["[MASK]", "saw", "Lucy", "and", "a", "drum"]]
    for kind, often, first in (("names", "Tim", "Lucy"), ("things", "kite", "drum"), ("places", "forest", "")):
        blank = [Blank(0, 0, kind)]
        assert list(guess["most frequent of its kind"](texts, blank)) == [often]
        assert list(guess["first of its kind"](texts, blank)) == [first]


def test_what_comes_later_was_not_there_before() -> None:
    blanks = stories.load_blanks(stored("bert_masking.blanks").rows)[:200]
    later = [blank for blank in blanks if stories.comes_later(blank)]
    assert 0 < len(later) < len(blanks)
    for blank in later:
        words = told("valid", blank.story).words
        assert words.index(words[blank.place]) == blank.place
        assert words.count(words[blank.place]) > 1


def test_a_model_that_reads_left_to_right_does_not_see_the_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storyteller's guess at a blank is what it says after the words before it."""
    blanks = of_first_stories(2)
    right = stories.left_to_right(blanks)["all"]
    hits = []
    for blank in blanks:
        words = told("valid", blank.story).words
        ((best, share),) = stories.left_guesses(" ".join(words[: blank.place]), count=1)
        assert 0 < share <= 1
        hits.append(best == words[blank.place])
    assert right == pytest.approx(sum(hits) / len(hits))


# ---- the model ---------------------------------------------------------------------------------------------------


def test_the_filler_reads_no_padding_and_its_head_is_the_embedding() -> None:
    model = stories.package_filler().eval()
    assert model.head.weight is model.bert.embed.weight
    short, long = stories.encode(["he", "ran", "."]), stories.encode(["she", "ran", "home", "."])
    ids, lengths = stories.padded([short, long])
    with torch.no_grad():
        alone = model.bert(short[None], torch.tensor([len(short)]))
        together = model.bert(ids, lengths)[:1, : len(short)]
    assert torch.allclose(alone, together, atol=1e-5)
    reads = stories.package_bert(*stories.SIZES, stories.ReadsPadding)
    reads.load_state_dict(model.bert.state_dict())
    with torch.no_grad():
        assert torch.allclose(reads(ids)[1], model.bert(ids, lengths)[1], atol=1e-6)


def test_a_seeded_function_repeats_itself() -> None:
    draw = stories.seeded(lambda: torch.rand(3))
    assert torch.equal(draw(), draw())


def test_positions_are_added_and_turned() -> None:
    position = stories.LearnedAndRotary(8, 2, 16)
    x = torch.ones(1, 3, 8)
    assert torch.equal(position.add(x), x + position.embedding.weight[:3])
    heads = torch.ones(1, 2, 3, 4)
    assert torch.equal(position.rotate(heads), Rotary(4).rotate(heads))
    assert not torch.equal(position.rotate(heads), heads)


def test_words_of_the_four_kinds_are_masked_more_often() -> None:
    rates = stories.blank_rates(0.4, 0.1)
    of = dict(zip(stories.TOKENS, rates.tolist(), strict=True))
    assert {round(of[word], 6) for words in stories.KINDS.values() for word in words} == {0.4}
    assert round(of["the"], 6) == 0.1


@pytest.mark.usefixtures("small")
def test_runs_return_what_is_plotted() -> None:
    runs = ((stories.FAVORED, 4, (1, 2)), ("15% of all words", 4, (1,)))
    rows = stories.pretraining(runs, every=2)
    assert [(row["masked"], row["seed"]) for row in rows] == [
        (stories.FAVORED, 1),
        (stories.FAVORED, 2),
        (runs[1][0], 1),
    ]
    for row in rows:
        assert [point["step"] for point in row["curve"]] == [2, 4]
        assert "all" in row["curve"][0]
        for point in row["curve"]:  # the few blanks of this test need not hold every kind
            point |= {"names": 0.5, "things": 0.5, "pronouns": 0.5}
    level = {"all": 0.5, "names": 0.5, "things": 0.5, "pronouns": 0.5}
    _, alt = figures.draw_asked(pd.DataFrame(rows), {"one": level, "other": level})
    assert alt.endswith("one 50%, other 50%.")


@pytest.mark.usefixtures("small")
def test_the_longer_run_has_its_own_depth() -> None:
    (row,) = stories.longer((1,), steps=2, every=2)
    assert row["curve"][-1]["step"] == 2


def test_claims_of_runs_by_hand() -> None:
    def curve(last: float) -> list[dict[str, float]]:
        return [{"all": 0.1}, {"all": last}]

    frame = pd.DataFrame(
        [
            {"masked": stories.FAVORED, "curve": curve(0.7)},
            {"masked": stories.FAVORED, "curve": curve(0.8)},
            {"masked": "15% of all words", "curve": curve(0.4)},
        ]
    )
    longer = pd.DataFrame([{"curve": curve(0.9)}])
    assert study.claims_of_runs(frame, longer) == pytest.approx({2: 0.7, 3: 0.9, 4: 0.35})


# ---- endings and weights ---------------------------------------------------------------------------------------------


def test_stories_without_their_end() -> None:
    texts, labels = study.ending_stories("train", range(4))
    for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
        story = told("train", number)
        assert tuple(text) == story.words[: story.told[-1].begin]
        assert label == story.happy


def test_a_blank_looks_at_all_words() -> None:
    bert = stories.package_bert(*stories.SIZES, stories.ReadsPadding).eval()
    looks = study.looks_of_blank(bert, stories.encode(["Tim", "saw", "[MASK]", "."]), stories.IDS["Tim"])
    ((title, (place, weights)),) = looks.items()
    assert title.startswith("block 2, head ")
    assert place == 3
    assert len(weights) == 6
    assert sum(weights) == pytest.approx(1)


def test_a_cut_connection_is_not_read() -> None:
    """What the blank gets no longer depends on the word that is cut off, and other positions read it as before."""
    ids = stories.encode(["Tim", "saw", "[MASK]", "."])
    everything = torch.ones(1, 1, 1, len(ids), dtype=torch.bool)

    class Reads(torch.nn.Module):
        def forward(self, x: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
            return allowed.expand(1, 1, len(ids), len(ids))[0, 0]

    block = Reads()
    with study.cut(block, ids, stories.IDS["Tim"]):
        inside = block(torch.zeros(1), everything)
    assert (~inside).nonzero().tolist() == [[3, 1]]
    assert block(torch.zeros(1), everything).all()


# ---- search ------------------------------------------------------------------------------------------------------


def test_passages_are_paragraphs_of_the_other_lessons() -> None:
    found = search.course_passages()
    assert len(found) > 300
    assert not any(passage.lesson.startswith("08") for passage in found)
    assert all("](" not in passage.text and "\n" not in passage.text for passage in found)
    numbers = {int(passage.lesson[:2]) for passage in found}
    assert {number for lessons in search.QUESTIONS.values() for number in lessons} <= numbers


def test_exercises_and_going_further_are_left_out(tmp_path: Path) -> None:
    long = "A sentence of this lesson that is long enough to be found, since it has more than enough words in it. " * 2
    sources = ["# Title", long, f"### Exercise 1\n\n{long}", f"## Going further\n\n{long}"]
    cells = [{"cell_type": "markdown", "source": [source]} for source in sources]
    (tmp_path / "01_bahdanau_attention.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (passage,) = search.course_passages(tmp_path)
    assert passage.lesson == "01 · Bahdanau attention"


def test_without_notebooks_docstrings_are_searched(tmp_path: Path) -> None:
    found = search.course_passages(tmp_path)
    assert len(found) > 100
    assert all(passage.lesson.startswith("tfbook.") for passage in found)


def test_counted_words_find_the_text_that_shares_rare_ones() -> None:
    index = search.WordIndex(["the cat and the hat", "the dog and the log", "the end"])
    assert [found.place for found in index.nearest("a dog", 1)] == [1]
    best, second, *_ = index.nearest("the cat", 2)
    assert best.place == 0
    assert best.score > second.score
    assert index.nearest("unknown", 3)[0].score == 0
    with pytest.raises(ValueError, match="texts is empty"):
        search.WordIndex([])


def test_hits_are_counted_in_first_place_and_among_three() -> None:
    lessons = [search.Passage(f"{number:02} · x", str(number)) for number in (1, 2, 3, 9)]

    class Fixed:
        def nearest(self, query: str, count: int = 3) -> list[Found]:
            return [Found(1.0, place, "") for place in (0, 1, 2)]

    assert search.answers(Fixed(), lessons, "any")[:2] == ["01 · x: 1 …", "02 · x: 2 …"]
    found = search.hit_rates(Fixed(), lessons)
    right = list(search.QUESTIONS.values())
    assert found["first"] == sum(1 in each for each in right) / len(right)
    assert found["among three"] == sum(not {1, 2, 3}.isdisjoint(each) for each in right) / len(right)


# ---- pictures ----------------------------------------------------------------------------------------------------


def test_pictures_say_what_they_show() -> None:
    _, alt = figures.draw_masking(0.15, 0.8, 0.1)
    assert "12 become [MASK]" in alt
    assert "1.5 stay as they are" in alt
    _, alt = figures.draw_sides(["a", "fox", "named", "Lucy", "ran"], 3)
    assert "“Lucy” from “a fox named” alone" in alt
    assert "“a fox named [MASK] ran”" in alt
    _, alt = figures.draw_input(["[CLS]", "he", "[SEP]"], [0, 0, 0], 8)
    assert alt.startswith("3 tokens")
    _, alt = figures.draw_task_heads(["[CLS]", "he", "[SEP]"])
    assert alt.count(";") == 2
    _, alt = figures.draw_filled({"a": {"all": 0.5, "names": 0.25}}, {"names": 4})
    assert "names 25%" in alt
