"""Errands: their facts against a simulation that reads the sentences, reading back, and rules that fail."""

from collections import Counter

import pytest
import torch

from tfbook.data.stories.errand_sets import IDS, PERMUTED, WORDS, ErrandSet, errand_batch, ids
from tfbook.data.stories.errands import (
    ASKING,
    FACTS,
    KINDS,
    LONGEST,
    NOBODY,
    WORDINGS,
    Act,
    Errand,
    errand,
    errand_questions,
    placeholders,
    read_errand,
    read_question,
    vocabulary,
)

STORIES = [errand(seed) for seed in range(300)]
RING = (
    "Bilbo traveled to the cave. Gollum dropped the ring. Bilbo picked up the ring. Bilbo went back to the Shire. "
    "Bilbo gave the ring to Frodo. Frodo set off for Mount Doom. Frodo threw away the ring. "
    "Frodo went back to the Shire."
)


class Simulation:
    """Where everybody is and who holds what, after each sentence in turn; it knows nothing of `errand_questions`."""

    def __init__(self, story: Errand):
        self.at: dict[str, list[str]] = {}
        self.holder: dict[str, str] = {}
        self.lies: dict[str, str | None] = {}
        for act in story.acts:
            names = dict(act.names)
            if act.event == "go":
                self.at.setdefault(names["A"], []).append(names["p"])
            elif act.event in ("take", "give"):
                self.holder[names["x"]] = names.get("B", names["A"])
            elif act.event == "drop":
                self.holder[names["x"]] = NOBODY
                self.lies[names["x"]] = self.at.get(names["A"], [None])[-1]

    def answer(self, act: Act) -> str | None:
        names = dict(act.names)
        if act.event == "person":
            return self.at[names["A"]][-1]
        if act.event == "holder":
            return self.holder[names["x"]]
        if act.event == "thing":
            holder = self.holder[names["x"]]
            return self.lies[names["x"]] if holder == NOBODY else self.at[holder][-1]
        went = self.at[names["A"]]
        return went[went.index(names["p"]) - 1]


def test_answers_are_those_of_a_simulation() -> None:
    asked = [(question, Simulation(story)) for story in STORIES for question in story.questions]
    assert all(question.answer == world.answer(question.act) for question, world in asked)
    kinds = Counter(question.kind for question, _ in asked)
    assert set(kinds) == set(ASKING)
    assert min(kinds.values()) > 100


def test_facts_are_chained_and_each_one_is_needed() -> None:
    """The first fact shares a name with the question; the last one names the answer, unless that is nobody."""
    for story in STORIES:
        for question in story.questions:
            facts = [{name for _, name in story.acts[number].names} for number in question.support]
            asked = {name for _, name in question.act.names}
            assert len(facts) == FACTS[question.kind]
            assert facts[0] & asked
            assert question.answer in facts[-1] | {NOBODY}
            if question.kind == "thing":
                assert not facts[1] & asked
                assert facts[0] & facts[1]


def test_a_story_depends_on_its_seed_alone_and_its_text_on_nothing_else() -> None:
    assert errand(5) == errand(5) != errand(6)
    assert all(4 <= len(story.acts) <= LONGEST for story in STORIES)
    assert len({story.text() for story in STORIES}) == len(STORIES)


def test_a_story_is_told_so_that_it_can_happen() -> None:
    """Who gives a thing holds it, who takes one finds it without a holder."""
    for story in STORIES:
        holder: dict[str, str] = {}
        for act in story.acts:
            names = dict(act.names)
            if act.event in ("give", "drop"):
                assert holder.pop(names["x"]) == names["A"]
            if act.event in ("take", "give"):
                assert names["x"] not in holder
                holder[names["x"]] = names.get("B", names["A"])


def test_what_is_written_is_read_back() -> None:
    for story in STORIES:
        acts = read_errand(story.text())
        assert acts == story.acts
        assert sorted(errand_questions(acts)) == sorted(story.questions)
        assert all(read_question(question.act.text(), acts) == question.act for question in story.questions)


def test_a_story_of_strangers_is_read() -> None:
    acts = read_errand(RING)
    answers = {question.act.text(): question.answer for question in errand_questions(acts)}
    assert answers["Where is the ring?"] == "Mount Doom"
    assert answers["Where is Frodo?"] == answers["Where is Bilbo?"] == "the Shire"
    assert answers["Who has the ring?"] == NOBODY
    assert read_question("Where is the ring now?", acts) == Act("thing", "Where is x", (("x", "the ring"),))
    assert placeholders(acts)["Frodo"] == "person2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Bilbo took the ring. Bilbo sold the ring.", "'Bilbo sold the ring.'"),
        ("", "the story has 0 sentences; expected 1 to 16"),
        ("Bilbo slept. " * 17, "the story has 17 sentences; expected 1 to 16"),
        ("Bilbo took the ring. Bilbo went to the ring.", "'the ring' is used as a thing and as a place"),
        ("".join(f"Ann{n} slept. " for n in range(7)), "'Ann6' is person number 7; the model has 6"),
    ],
)
def test_a_story_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_errand(text)


@pytest.mark.parametrize("text", ["Who has Bilbo?", "Where is Sam?", "Why did Bilbo go?", "Who has the lamp?"])
def test_a_question_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ask Where is A"):
        read_question(text, read_errand(RING))


def test_every_word_has_an_id_and_fits() -> None:
    words = vocabulary()
    assert len(words) == len(set(words)) == len(IDS)
    for wordings in (*WORDINGS.values(), ASKING.values()):
        assert all(len(wording.split()) <= WORDS for wording in wordings)
        assert all(word in KINDS or word.lower() in IDS for wording in wordings for word in wording.split())


def test_tensors_hold_the_story_the_question_and_its_facts() -> None:
    story = Errand(read_errand(RING))
    question = next(each for each in errand_questions(story.acts) if each.kind == "thing")
    batch = errand_batch([(story, question)])
    words = vocabulary()
    assert [words[i] for i in batch.story[0, 4].tolist()] == ["person0", "gave", "thing0", "to", "person2", "", ""]
    assert [words[i] for i in batch.question[0].tolist()] == ["where", "is", "thing0", "", "", "", ""]
    assert words[int(batch.answer)] == "place2"
    assert batch.support[0].tolist() == [0, 0, 0, 0, 0, 2, 1, *[0] * 9]
    assert ids([], {}).shape == (0, WORDS)


def test_dealing_renames_within_a_kind_and_everywhere_alike() -> None:
    batch = ErrandSet(range(20)).all
    dealt = batch.dealt(torch.Generator().manual_seed(1))
    assert not torch.equal(dealt.story, batch.story)
    for row in range(len(batch)):
        before = torch.cat([batch.story[row].flatten(), batch.question[row], batch.answer[row : row + 1]])
        after = torch.cat([dealt.story[row].flatten(), dealt.question[row], dealt.answer[row : row + 1]])
        pairs = {*zip(before.tolist(), after.tolist(), strict=True)}
        assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
        kinds = [
            {first for first, most in PERMUTED.items() if first <= x < first + most} for pair in pairs for x in pair
        ]
        assert kinds[::2] == kinds[1::2]
        assert all(a == b for (a, b), kind in zip(pairs, kinds[::2], strict=True) if not kind)


def test_batches_are_the_same_again_and_hold_every_kind_alike() -> None:
    errands = ErrandSet(range(200))
    one, other = errands.batch(3), errands.batch(3)
    assert torch.equal(one.story, other.story)
    assert not torch.equal(one.story, errands.batch(4).story)
    assert not torch.equal(one.story, errands.batch(3, seed=1).story)
    counts = torch.bincount(errands.batch(0, rows=4000).kind)
    assert counts.min() > 900
