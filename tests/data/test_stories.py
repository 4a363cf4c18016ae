"""The story world: the same stories from the same seeds, in good English, without contradictions that a check finds."""

import gzip
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tfbook import data
from tfbook.data.stories import (
    WORLD,
    Story,
    World,
    check_story,
    endings,
    questions,
    read_stories,
    sentences,
    story,
    summary,
    told,
    words_of,
    world_words,
    written,
)
from tfbook.data.stories.corpus import SPLITS, write_stories
from tfbook.data.stories.lexicon import (
    ABLE,
    ADJECTIVES,
    MALE,
    NAMES,
    NOUNS,
    OBSTACLES,
    PLACES,
    PREPOSITIONS,
    PRONOUNS,
    SPECIES,
    USES,
    article,
)
from tfbook.data.stories.world import EVENTS, PEOPLE, THINGS

SHIPPED = Path(__file__).parents[2] / "data" / "stories.txt.gz"
WORLDS = {
    "tale": World(),
    "species": World(by_species=0.3),
    "small": WORLD,
    "rare": World(rare=True),
    "play": World(dialect="play"),
}


def stories(world: World, count: int, first: int = 0) -> list[Story]:
    return [story(seed, world) for seed in range(first, first + count)]


@pytest.fixture(scope="module")
def tales() -> list[Story]:
    return stories(World(), 300)


# ---- what is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_no_story_contradicts_its_facts(world: World) -> None:
    for tale in stories(world, 100):
        verdict = check_story(tale.words)
        assert verdict.consistent, (tale.text, verdict.faults, verdict.unread)
        assert verdict.ended
        assert verdict.sentences == len(sentences(tale.words))


def test_the_checker_finds_the_facts_that_were_told(tales: list[Story]) -> None:
    for tale in tales:
        read = check_story(tale.text).state
        assert read.people == tale.state.people
        assert {noun: thing.look for noun, thing in read.things.items()} == {
            noun: thing.look for noun, thing in tale.state.things.items()
        }
        for predicate in ("owner", "home"):
            assert {f: v for f, v in read.facts.items() if f[0] == predicate} == {
                f: v for f, v in tale.state.facts.items() if f[0] == predicate
            }, (predicate, tale.text)


def test_a_story_depends_on_its_seed_and_world_alone() -> None:
    random.seed(7)
    first = story(11)
    random.seed(8)
    assert story(11) == first
    assert story(12).words != first.words
    assert story(11, World(dialect="play")).words != first.words


def test_a_seed_that_is_kept() -> None:
    """When this changes, so does the corpus, and every model that was trained on it."""
    assert told("train", 0).text == data.load("stories")["train"][0]
    assert told("rare", 499).text == data.load("stories")["rare"][-1]


def test_text_and_words_are_two_ways_of_writing_one_story(tales: list[Story]) -> None:
    for tale in (*tales, *stories(World(dialect="play"), 50)):
        assert tuple(words_of(tale.text)) == tale.words
        assert tale.text[0].isupper()
        assert "  " not in tale.text
        assert " ," not in tale.text
        assert [word for sentence in sentences(tale.words) for word in sentence] == list(tale.words)


def test_articles_and_prepositions_agree(tales: list[Story]) -> None:
    for tale in tales:
        for first, second in pairwise(tale.words):
            if first in ("a", "an") and second in {*ADJECTIVES, *SPECIES, *NOUNS}:
                assert first == article(second), tale.text
        for (_, word), (the, place) in zip(pairwise(tale.words), pairwise(tale.words[1:]), strict=False):
            if the == "the" and place in PLACES and word in PREPOSITIONS.values():
                assert word == PREPOSITIONS[place], tale.text


def test_pronouns_have_the_gender_of_somebody_in_the_story(tales: list[Story]) -> None:
    for tale in tales:
        genders = {name in MALE for name in tale.state.people}
        for word in tale.words:
            if word in ("he", "him", "his"):
                assert True in genders, tale.text
            if word in ("she", "her"):
                assert False in genders, tale.text


def test_stories_are_varied(tales: list[Story]) -> None:
    plots = Counter(tale.plot for tale in tales)
    assert len(plots) == 8
    assert min(plots.values()) > 10
    assert 0.4 < sum(tale.happy for tale in tales) / len(tales) < 0.8
    assert len({tale.words for tale in tales}) == len(tales)
    assert {told.event for tale in stories(World(), 1000) for told in tale.told} == set(EVENTS)


def test_lengths_keep_to_the_world() -> None:
    for tale in stories(World(shortest=80, longest=100), 50):
        assert 80 <= len(tale.words) <= 100


def test_only_rare_worlds_hold_rare_combinations() -> None:
    for world in (World(), World(rare=True)):
        for tale in stories(world, 100):
            everyone = [*tale.state.people.values(), *tale.state.things.values()]
            assert all(someone.rare == world.rare for someone in everyone)


def test_the_dial_keeps_to_the_first_names_places_and_things() -> None:
    small = World(names=8, places=8, things=8)
    for tale in stories(small, 100):
        words = set(tale.words)
        assert words.isdisjoint(NAMES[8:])
        assert set(tale.state.things) <= set(NOUNS[:8])
        assert not {place for the, place in pairwise(tale.words) if the == "the"} & set(PLACES[8:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": 4}, "names is 4; expected 8 to 60"),
        ({"places": 99}, "places is 99; expected 8 to 32"),
        ({"things": 7}, "things is 7; expected 8 to 57"),
        ({"by_species": 1.5}, "by_species is 1.5; expected 0 to 1"),
        ({"dialect": "verse"}, "dialect is 'verse'; expected 'tale' or 'play'"),
        ({"longest": 60}, "longest is 60; expected 100 or more"),
        ({"shortest": 0}, "shortest is 0"),
    ],
)
def test_a_world_without_stories_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World(**change)


def test_bits_bound_what_a_story_tells(tales: list[Story]) -> None:
    """No two of 300 stories are alike, so a story holds more than log₂ 300 bits; a token at most log₂ of the words."""
    for tale in tales:
        assert 8 < tale.bits < 9.5 * len(tale.words)


# ---- the table -------------------------------------------------------------------------------------------------------


def test_every_event_has_a_wording_in_each_dialect_that_any_story_can_use() -> None:
    for event in EVENTS.values():
        for wordings in event.wordings.values():
            assert wordings, event.name
            assert any(not wording.leans for wording in wordings), event.name


def test_every_role_of_a_wording_can_be_played() -> None:
    for event in EVENTS.values():
        for need in (*event.needs, *event.changes):
            assert need.roles <= set(PEOPLE + THINGS + "psk"), event.name


def test_the_tables_agree() -> None:
    assert set(PLACES) == set(PREPOSITIONS)
    assert set(NOUNS) == set(USES)
    assert set(ABLE) == set(OBSTACLES)
    assert {kin for able in ABLE.values() for kin in able} <= set(SPECIES)
    assert len(set(NAMES)) == 60
    assert not {name.lower() for name in NAMES} & set(world_words())


def test_world_words_hold_every_story_in_any_dialect() -> None:
    known = set(world_words())
    for world in (World(names=60, by_species=0.2), World(names=60, dialect="play"), WORLD):
        for tale in stories(world, 200, first=5000):
            assert known.issuperset(tale.words)
            assert all(known.issuperset(words_of(f"{q.text} {q.answer}")) for q in questions(tale))


# ---- contradictions that are planted ---------------------------------------------------------------------------------

Plant = Callable[[Story, random.Random], list[str] | None]


def another(words: list[str], at: int, of: list[str] | tuple[str, ...], dice: random.Random) -> list[str]:
    """The story with another word of its kind, that it does not hold, in this place."""
    return [*words[:at], dice.choice([word for word in of if word not in words]), *words[at + 1 :]]


def later(words: list[str], kind: set[str]) -> list[int]:
    """Where a word of a kind stands for the second time or later."""
    seen: set[str] = set()
    found = []
    for at, word in enumerate(words):
        if word in kind:
            found += [at] * (word in seen)
            seen.add(word)
    return found


def strange_name(tale: Story, dice: random.Random) -> list[str] | None:
    words = list(tale.words)
    at = later(words, set(NAMES))
    return another(words, dice.choice(at), NAMES, dice) if at else None


def wrong_pronoun(tale: Story, dice: random.Random) -> list[str] | None:
    words = list(tale.words)
    flips = {"he": "she", "she": "he", "his": "her", "him": "her"}
    at = [number for number, word in enumerate(words) if word in flips]
    if not at:
        return None
    chosen = dice.choice(at)
    return [*words[:chosen], flips[words[chosen]], *words[chosen + 1 :]]


def strange_thing(tale: Story, dice: random.Random) -> list[str] | None:
    words = list(tale.words)
    at = later(words, set(tale.state.things))
    return another(words, dice.choice(at), NOUNS, dice) if at else None


def wrong_place(tale: Story, dice: random.Random) -> list[str] | None:
    """Another place where somebody has to be, or something has to lie."""
    words = list(tale.words)
    needing = [
        told for told in tale.told if any(need.value == "p" and not need.sign for need in EVENTS[told.event].needs)
    ]
    at = [
        number
        for told in needing
        for number in range(told.begin, told.end)
        if words[number] == told.roles["p"] and words[number - 1] == "the"
    ]
    if not at:
        return None
    chosen = dice.choice(at)
    alike = [place for place in PLACES if PREPOSITIONS[place] == PREPOSITIONS[words[chosen]]]
    return another(words, chosen, alike, dice)


def wrong_ending(tale: Story, dice: random.Random) -> list[str]:
    found = endings(tale, seed=dice.randrange(100))
    return words_of(f"{found.beginning} {found.wrong}")


@pytest.mark.parametrize("plant", [strange_name, wrong_pronoun, strange_thing, wrong_place, wrong_ending])
def test_planted_contradictions_are_found(plant: Plant, tales: list[Story]) -> None:
    """At least 95 of 100, of each kind."""
    dice = random.Random(0)
    planted = [words for tale in tales if (words := plant(tale, dice))]
    missed = [written(words) for words in planted if check_story(words).consistent]
    assert len(planted) > 40
    assert len(missed) <= 0.05 * len(planted), missed[:3]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Tim was a shy fox who lived on the hill. Ben began to cry.", "name"),
        ("Tim was a shy fox who lived on the hill. She had a red kite.", "pronoun"),
        ("Tim was a shy fox who lived on the hill. Tim was so happy to fly the kite.", "thing"),
        ("Tim was a shy fox who lived on the hill. Tim loved to eat his red kite.", "use"),
        ("Tim was a shy fox who lived on the hill. Tim had a red kite. Tim loved to fly his blue kite.", "thing"),
        ("Tim was a shy fox who lived on the hill. Tim met a kind owl called Mia in the park.", "place"),
        ("Tim was a shy fox who lived on the hill. Tim began to cry.", "plot"),
        ("Tim was a shy fox who lived on the hill. And Tim lived happily ever after. Tim was very glad.", "plot"),
    ],
)
def test_faults_have_kinds(text: str, kind: str) -> None:
    verdict = check_story(text)
    assert kind in {fault.kind for fault in verdict.faults}, verdict
    assert not verdict.consistent


def test_what_the_world_never_tells_is_unread() -> None:
    verdict = check_story("Once there was a shy fox named Tim who lived on the hill. Tim wrote a book. Then Sue sang.")
    assert verdict.unread == ("Tim wrote a book .", "then Sue sang .")
    assert [fault.kind for fault in verdict.faults] == ["name"]
    assert not verdict.ended


def test_any_words_can_be_read() -> None:
    """A model that has learned nothing may say anything."""
    dice, words = random.Random(0), world_words()
    for length in (1, 2, 5, 40):
        for _ in range(20):
            babble = dice.choices(words, k=length)
            verdict = check_story(babble)
            assert not verdict.consistent
            assert verdict.sentences == len(sentences(babble)) >= len(verdict.unread)
            assert [word for sentence in sentences(babble) for word in sentence] == babble
            assert written(babble)


def test_an_empty_story_is_not_consistent() -> None:
    assert not check_story("").consistent


def test_summary_counts_stories(tales: list[Story]) -> None:
    good = check_story(tales[0].words)
    bad = check_story("Tim had a kite.")
    table = summary([good, bad])
    assert table["consistent"] == 0.5
    assert table["names"] == 0.5 or bad.unread
    with pytest.raises(ValueError, match="verdicts is empty"):
        summary([])


# ---- questions and endings -------------------------------------------------------------------------------------------


def test_answers_follow_from_their_sentences(tales: list[Story]) -> None:
    for tale in tales:
        lines = sentences(tale.words)
        for question in questions(tale):
            support = [word for number in question.support for word in lines[number]]
            assert question.support, question
            if question.kind in ("home", "animal", "meeting"):
                assert question.answer in support, (question, tale.text)


def test_owners_are_those_of_the_facts(tales: list[Story]) -> None:
    found = Counter(question.kind for tale in tales for question in questions(tale))
    assert {"home", "animal", "meeting", "owner", "ending"} == set(found)
    for tale in tales:
        for question in questions(tale):
            if question.kind == "owner":
                noun = question.text.split()[3]
                assert tale.state.facts["owner", noun] == question.answer


def test_one_ending_follows_and_the_other_contradicts(tales: list[Story]) -> None:
    for tale in tales[:100]:
        found = endings(tale)
        assert f"{found.beginning} {found.right}" == tale.text
        assert check_story(f"{found.beginning} {found.right}").consistent
        assert not check_story(f"{found.beginning} {found.wrong}").consistent


# ---- the corpus ------------------------------------------------------------------------------------------------------


def test_the_shipped_file_is_what_the_world_tells(tmp_path: Path) -> None:
    corpus = data.load("stories")
    for split, count in SPLITS.items():
        assert len(corpus[split]) == count
        for number in range(0, count, count // 20):
            assert corpus[split][number] == corpus.behind(split, number).text


def test_splits_share_no_story() -> None:
    corpus = data.load("stories")
    everything = [text for split in SPLITS for text in corpus[split]]
    assert len(set(everything)) == len(everything)


def test_the_file_is_written_the_same_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfbook.data.stories.corpus.SPLITS", {"train": 20, "valid": 2})
    write_stories(tmp_path / "a.gz")
    write_stories(tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    corpus = read_stories(tmp_path / "a.gz")
    assert corpus["valid"] == [told("valid", 0).text, told("valid", 1).text]
    assert str(corpus) == "stories: 20 train, 2 valid"
    with pytest.raises(KeyError, match="split is 'test'"):
        corpus["test"]


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stories.txt.gz"
    path.write_bytes(gzip.compress(b"Once upon a time.\n"))
    with pytest.raises(ValueError, match="holds 1 stories; expected 17,500"):
        read_stories(path)


def test_the_vocabulary_is_the_worlds() -> None:
    corpus = data.load("stories")
    assert set(world_words()) < set(corpus.vocabulary.tokens)
    assert replace(corpus, splits={}).vocabulary.tokens == corpus.vocabulary.tokens


def test_pronouns_have_two_forms() -> None:
    assert all(len(forms) == 2 for forms in PRONOUNS.values())
