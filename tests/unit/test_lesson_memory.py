"""Lesson 18: rules of thumb, readers, what is asked of them, and the figures, each on small runs."""

import pandas as pd
import pytest
import torch

from tfbook.course.experiments import stored
from tfbook.data.stories.errand_sets import IDS, ErrandSet, errand_batch
from tfbook.data.stories.errands import (
    ASKING,
    NOBODY,
    Errand,
    ErrandQuestion,
    errand_questions,
    read_errand,
    read_question,
)
from tfbook.lessons.memory import exercises, figures, readers, rules, study, tables, variations
from tfbook.lessons.memory.asking import answers, ask, asked, replaced_by, truth

STORY = (
    "Ann lived in the mill. Ann went to the lake. Bo dreamed of the barn. Ann took the ring. Bo went to the lake. "
    "Ann gave the ring to Bo. Ann asked about the ring. Ann told Bo about the mill."
)


@pytest.fixture(scope="module")
def small() -> ErrandSet:
    return ErrandSet(range(150))


@pytest.mark.parametrize(
    ("rule", "question", "answer"),
    [
        ("first mention", "Where is Ann?", "the mill"),
        ("last mention", "Where is Ann?", "the mill"),
        ("most mentioned", "Where is Bo?", "the mill"),
        ("always “nobody”", "Who has the ring?", NOBODY),
        ("last mention beside the asked name", "Who has the ring?", "Ann"),
        ("last mention beside the asked name", "Where is the ring?", "the mill"),
        ("most mentioned beside the asked name", "Who has the ring?", "Ann"),
    ],
)
def test_rules_do_as_they_say_and_are_wrong(rule: str, question: str, answer: str) -> None:
    acts = read_errand(STORY)
    assert rules.RULES[rule](acts, read_question(question, acts)) == answer


def test_a_rule_that_knows_gets_all_and_one_that_guesses_none(small: ErrandSet) -> None:
    known = {(story.acts, question.act): question.answer for story, question in small.asked}
    right = rules.share_right(lambda acts, question: known[tuple(acts), question], small)
    assert right == dict.fromkeys(ASKING, 1.0)
    assert set(rules.share_right(lambda acts, question: "?", small).values()) == {0.0}


def test_the_best_rule_of_each_kind_is_the_tables_maximum() -> None:
    table = study.rule_table()
    assert list(table.columns) == [*ASKING]
    assert 0.5 < table.loc["last mention beside the asked name", "person"] < 0.7
    assert table.max().max() < 0.7


def test_readers_learn_and_their_looks_are_shares(small: ErrandSet) -> None:
    batch = small.all[torch.arange(200)]
    wider = study.new_sentence_encoder(d_ff=64, tied=False)
    for model, lr in ((study.new_reader(2), 1e-2), (study.new_sentence_encoder(), 3e-3), (wider, 3e-3)):
        before = readers.answer_loss(model, batch.to(readers.runtime.device())).item()
        study.train_reader(model, steps=30, lr=lr)
        assert readers.answer_loss(model, batch.to(readers.runtime.device())).item() < before
    found = study.looks(study.new_reader(2), batch)
    assert all(0 <= share <= 1 for hops in found.values() for hop in hops for share in hop)
    assert {len(hops) for hops in found.values()} == {2}
    assert all(hop[1] == 0 for hop in found["person"]), "one fact: there is no second one to look at"


def test_looks_add_up_the_weights_on_each_fact() -> None:
    acts = read_errand(STORY)
    question = ErrandQuestion(read_question("Where is the ring?", acts), "the lake", (5, 4))
    batch = errand_batch([(Errand(acts), question)])
    model = study.new_reader(2)
    weights = readers.read(model, batch).weights[0]
    expected = [[round(float(hop[5]), 3), round(float(hop[4]), 3)] for hop in weights]
    assert study.looks(model, batch)["thing"] == expected


def test_an_ageless_reader_stays_ageless(small: ErrandSet) -> None:
    model = study.ageless_reader(1)
    study.train_reader(model, steps=3)
    assert all(time.weight.abs().max() == 0 for time in model.times)


def test_the_stored_reader_answers_the_story_of_the_ring() -> None:
    story = (
        "Bilbo lived in the Shire. Bilbo traveled to the Misty Mountains. Gollum dropped the ring. "
        "Bilbo picked up the ring. Gollum wept. Bilbo went back to the Shire. Bilbo gave the ring to Frodo. "
        "Frodo set off for Mount Doom. Bilbo thought of the ring. Frodo threw away the ring. "
        "Frodo went back to the Shire. Bilbo dreamed of Mount Doom. Bilbo set off for the Grey Havens."
    )
    expected = {
        "Where is the ring?": "Mount Doom",
        "Where is Bilbo?": "the Grey Havens",
        "Where is Frodo?": "the Shire",
        "Who has the ring?": NOBODY,
    }
    assert answers(study.stored_reader(), story, [*expected]) == expected


def test_what_cannot_be_read_is_said_and_not_raised(capsys: pytest.CaptureFixture[str]) -> None:
    model = study.new_reader(1)
    assert ask(model, "Bilbo sold the ring.", "Who has the ring?") is None
    assert "○ no wording fits 'Bilbo sold the ring.'" in capsys.readouterr().out
    view = ask(model, STORY, "Who has the ring?")
    assert view is not None
    assert view.asked[0].answer in {"Ann", "Bo", "the ring", "the mill", "the lake", "the barn", NOBODY}


@pytest.mark.parametrize(
    ("story", "question", "needs"),
    [
        ("Ann had a house in the mill. Ann took the ring.", "Where is Ann?", "Ann goes somewhere"),
        ("Ann looked for the ring. Ann went to the mill.", "Who has the ring?", "takes, drops, or gives the ring"),
        ("Ann took the ring. Bo went to the mill.", "Where is the ring?", "whoever had it last"),
        ("Ann went to the mill. Bo went to the lake.", "Where was Ann before the mill?", "a walk before it"),
    ],
)
def test_a_question_that_the_story_does_not_answer_gets_a_message(
    story: str, question: str, needs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(study.new_reader(1), story, question) is None
    printed = capsys.readouterr().out
    assert printed.startswith(f"○ {question} The story does not tell")
    assert needs in printed


def test_beside_a_message_the_other_questions_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    story = "Ann took the ring. Bo went to the lake. Bo went to the mill."
    questions = ["Who has the ring?", "Where is Ann?", "Where was Bo before the mill?"]
    view = ask(study.new_reader(1), story, questions)
    assert view is not None
    assert [each.question for each in view.asked] == [questions[0], questions[2]]
    assert capsys.readouterr().out.count("○") == 1


def test_the_moment_matters_rarely_and_the_shipped_network_does_not_know_the_rule() -> None:
    """The sentences below the tables of section 6."""
    reader = {"shipped": study.stored_reader()}
    table = study.moments_table(reader)
    blind = table["last walk of the right person"]
    assert (blind["the last walk is enough"], blind["only the moment tells"]) == (1, 0)
    assert table.loc["all", "questions"] == table["questions"].iloc[:2].sum()
    assert 0.9 < blind["all"] < 0.95
    assert 0.85 < table.loc["only the moment tells", "shipped"] < 0.95
    found = [int(right.split()[0]) for right in study.left_behind_table(reader)["shipped"]]
    assert found == [40, 40, 34, 30]
    for walks in range(4):
        for number in range(tables.STORIES_TRIED):
            told = errand_questions(read_errand(tables.left_behind(walks, number)))
            assert [each.answer for each in told if each.kind == "thing"] == ["the mill"]


def test_a_giving_decides_few_questions_about_holders() -> None:
    assert round(study.given_share(), 2) == 0.11


def test_a_story_with_the_right_sentence_in_sight_is_answered_wrongly() -> None:
    acts = read_errand(
        "Bo went to the barn. Ann went to the mill. Bo slept. Ann took the ring. Ann dropped the ring. "
        "Ann went to the lake. Bo laughed."
    )
    found = asked(study.stored_reader(), acts, read_question("Where is the ring?", acts))
    assert found.answer == "the lake"
    assert (round(found.weights[1][1], 2), round(found.weights[2][5], 2)) == (0.84, 0.87)


def test_hiding_a_fact_hurts_in_the_hops_that_read_it() -> None:
    """The sentences below the table of section 6."""
    model = study.stored_reader()
    hop = model.hop
    table = study.hiding_table(model)
    right = table.iloc[:, 0]
    assert model.hop is hop
    assert right["nothing"] > 0.95
    assert abs(right["nothing"] - right["another sentence, from all hops"]) < 0.01
    assert abs(right["nothing"] - right["the first fact, from hops 2 and 3"]) < 0.01
    assert abs(right["nothing"] - right["the second fact, from hop 1"]) < 0.01
    assert right["the first fact, from hop 1"] < 0.7
    assert right["the second fact, from hops 2 and 3"] < 0.15
    assert study.hiding_claims(table)[8] > 0.8


def test_what_is_left_without_the_first_fact_often_tells_the_same() -> None:
    """The sentences about the answers that are right although the first fact is hidden."""
    rows = readers.unseen()
    rows = rows[rows.kind == [*ASKING].index("thing")]
    asked_about = [(story, each) for story, each in readers.unseen_errands().asked if each.kind == "thing"]
    model = study.stored_reader().cpu()
    with torch.no_grad(), tables.hidden_from(model, rows.support == 1, (1,)):
        right = (model(rows.story, rows.question).logits.argmax(dim=1) == rows.answer).tolist()
    told: dict[str, list[bool]] = {"the same": [], "another": [], "nothing": []}
    for (story, each), answered in zip(asked_about, right, strict=True):
        left = truth([act for number, act in enumerate(story.acts) if number != each.support[0]], each.act)
        told["nothing" if left is None else "the same" if left == each.answer else "another"].append(answered)
    assert (len(right), len(told["the same"])) == (672, 203)
    shares = {name: sum(found) / len(found) for name, found in told.items()}
    assert (round(shares["the same"], 2), round(shares["another"], 2)) == (0.93, 0.04)


def test_a_hidden_sentence_has_no_weight_in_the_hops_that_do_not_see_it(small: ErrandSet) -> None:
    model, batch = study.new_reader(3).cpu(), small.all[torch.arange(6)]
    hidden = batch.support == 1
    with tables.hidden_from(model, hidden, (1, 3)):
        weights = model(batch.story, batch.question).weights
    on = (weights * hidden[:, None]).sum(dim=-1)
    assert on[:, [0, 2]].eq(0).all()
    assert on[:, 1].gt(0).all()


@pytest.mark.parametrize(
    ("story", "question", "answer"),
    [
        ("Ann took the ring. Ann dropped the ring.", "Who has the ring?", NOBODY),
        ("Ann went to the mill. Ann went to the lake.", "Where was Ann before the lake?", "the mill"),
        ("Ann went to the mill. Ann took the ring. Ann went to the lake.", "Where is the ring?", "the lake"),
        ("Ann went to the mill. Ann went to the lake.", "Where was Ann before the mill?", None),
        ("Ann had a house in the mill.", "Where is Ann?", None),
    ],
)
def test_the_truth_is_what_the_sentences_say(story: str, question: str, answer: str | None) -> None:
    acts = read_errand(story)
    assert truth(acts, read_question(question, acts)) == answer


def test_older_sentences_alone_move_the_ring() -> None:
    """Section 6: no sentence is added, its age is, and the answer flips as it does after any last sentence."""
    model = study.stored_reader()
    usual = model.age
    told = variations.said_when_older(model)
    assert model.age is usual
    assert [answer for answer, _ in told] == ["the mill", "the lake", "the mill", "the lake"]
    for aside in (
        "Bo laughed.",
        "Bo slept.",
        "Bo sang.",
        "Bo wept.",
        "Ann sang.",
        "Cy sang.",
        "Bo dreamed of the barn.",
    ):
        acts = read_errand(f"{variations.BROKEN} {aside}")
        found = asked(model, acts, read_question(variations.ASKS, acts))
        assert (found.answer, round(found.probability, 2)) == ("the lake", 0.91)
        acts = read_errand(f"{aside} {variations.BROKEN}")
        assert asked(model, acts, read_question(variations.ASKS, acts)).answer == "the mill", "ages as before"


def test_ages_grow_up_to_the_oldest_and_padding_has_none() -> None:
    filled = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert variations.aged(filled, 2).tolist() == [[4, 3, 2, 0], [2, 0, 0, 0]]
    assert variations.aged(filled, 99).max() == 15
    torch.manual_seed(0)
    grown = variations.any_age(filled.repeat(200, 1)) - variations.aged(filled, 0).repeat(200, 1)
    assert set(grown[::2, 0].tolist()) == set(range(14))
    assert (grown[::2, :3] == grown[::2, :1]).all(), "all sentences of a story grow older together"


def test_stand_ins_of_one_pool_tell_no_kinds_apart(small: ErrandSet) -> None:
    batch = small.all[torch.arange(40)]
    dealt = variations.from_one_pool(batch, torch.Generator().manual_seed(1))
    names = [IDS[word] for word in IDS if word[-1:].isdigit()]
    is_name = torch.isin(batch.story, torch.tensor(names))
    assert torch.equal(torch.isin(dealt.story, torch.tensor(names)), is_name)
    assert torch.equal(dealt.story[~is_name], batch.story[~is_name])
    words = {number: word for word, number in IDS.items()}
    kinds = {words[int(name)].rstrip("0123456789") for name in dealt.answer[batch.kind == 0]}
    assert kinds == {"person", "thing", "place"}
    same = batch.story[0].flatten()[:, None] == batch.story[0].flatten()
    assert torch.equal(dealt.story[0].flatten()[:, None] == dealt.story[0].flatten(), same)


def test_the_text_says_what_the_varied_runs_found() -> None:
    """Sections 6 and Going further, and what Exercise 6 says about our failures."""
    runs = stored("memory.varied").frame.set_index(["reader", "seed"])
    usual, plain, pool, any_age = (runs.loc[name] for name in variations.VARIED)
    hops = stored("memory.hops").frame.set_index(["reader", "seed"])
    assert [*usual["right"]] == [*hops.loc["3 hops"]["right"]], "the same runs, once more"
    flips = [[by for by, (answer, _) in enumerate(story) if answer != "the mill"] for story in usual["story"]]
    assert flips == [[3], [2], [1]]
    assert max(chance for story in usual["story"] for _, chance in story) < 0.82
    assert all(any(answer == "the lake" for answer, _ in story) for story in any_age["story"])
    assert [*usual["long_ago"]] == [[*range(12)], [*range(11)], [*range(10)]]
    first = {walks: [older[walks][0] for older in usual["older"]] for walks in "123"}
    assert first == {"1": [40, 40, 40], "2": [34, 37, 34], "3": [11, 27, 28]}
    assert 0.965 < usual["given"].min() < usual["given"].max() < 0.995
    assert 0.405 < plain["given"].min() < plain["given"].max() < 0.465
    means = {name: tables.mean_right(runs.reset_index(), name) for name in ("3 hops", "3 hops, one pool")}
    lost = {kind: round(100 * (means["3 hops"][kind] - means["3 hops, one pool"][kind])) for kind in ASKING}
    assert lost == {"person": 1, "holder": 2, "thing": 11, "before": 1}
    assert len(pool) == 3
    table = variations.older_table(study.stored_reader(), runs.reset_index())
    assert [*table.loc[1]] == ["the lake, 91%", "the mill, 51%", "the mill, 78%", "the lake, 55%"]
    oldest = {walks: [older[walks][3] for older in usual["older"]] for walks in "13"}
    assert oldest == {"1": [35, 40, 37], "3": [29, 39, 38]}
    assert {w: [older[w][0] for older in any_age["older"]] for w in "13"} == {"1": [37, 37, 39], "3": [29, 32, 28]}
    counts = variations.older_counts(study.stored_reader(), runs.reset_index())
    assert [*counts.loc["trained as usual", 3]] == ["11 · 27 · 28", "12 · 26 · 29", "23 · 35 · 32", "29 · 39 · 38"]
    assert [counts.iloc[row, 0] for row in range(3)] == ["40", "34", "30"]


def test_a_last_sentence_that_changes_nothing_breaks_some_stories_and_repairs_others() -> None:
    table = variations.aside_table(study.stored_reader())
    assert table.to_numpy().tolist() == [[40, 3, 0], [34, 1, 2], [30, 0, 1]]


def test_a_broken_story_is_told_from_one_that_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    model = study.stored_reader()
    story = "Bo went to the barn. Ann went to the mill. Bo slept. Ann took the ring. Ann dropped the ring. "
    assert study.break_it(model, story + "Bo laughed.", "Where is the ring?") is not None
    assert capsys.readouterr().out.startswith("○ not broken: it says the mill, with ")
    study.break_it(model, story + "Ann went to the lake.", "Where is the ring?")
    assert capsys.readouterr().out.startswith("○ not broken: it says the mill, with ")
    study.break_it(model, story + "Ann went to the lake. Bo laughed.", "Where is the ring?")
    assert capsys.readouterr().out == "✓ broken: it says the lake, with 91%, but the story says the mill\n"
    assert study.break_it(model, story, "Who has the hat?") is None


def test_a_readers_stand_ins_carry_names_into_the_network() -> None:
    acts = read_errand(STORY)
    question = read_question("Who has the ring?", acts)
    model = study.stored_reader()
    expected = asked(model, acts, question)
    assert asked(model, acts, question, exercises.stand_ins.reference) == expected

    def backwards(story: list[list[str]], kinds: dict[str, str]) -> list[list[str]]:
        numbers = {name: str(3 - [*kinds].index(name) % 4) for name in kinds}
        return [[kinds[word] + numbers[word] if word in kinds else word for word in line] for line in story]

    assert replaced_by(backwards, read_errand("Ann took the ring."))["Ann"] == "person3"
    assert asked(model, acts, question, lambda story, kinds: [["took"] * len(line) for line in story]) != expected


def test_a_readers_pieces_run_in_the_network(small: ErrandSet) -> None:
    batch = small.all[torch.arange(6)]
    pieces = {"bag": exercises.bag.reference, "hop": exercises.hop.reference, "age": exercises.ages.reference}
    whole, own = (study.new_reader(3, **each).cpu() for each in ({}, pieces))
    torch.testing.assert_close(own(batch.story, batch.question).logits, whole(batch.story, batch.question).logits)
    still = study.new_reader(3, age=torch.zeros_like).cpu()
    with pytest.raises(RuntimeError):
        still(batch.story, batch.question)  # ages are numbers, not a mask: the part is used
    query, memory = torch.randn(2, 4), [torch.randn(2, 3, 4) for _ in range(3)]
    filled = torch.tensor([[True, True, False], [True] * 3])
    reread = study.reread_by(study.memory_hop)
    torch.testing.assert_close(reread(query, memory, filled), exercises.reread.reference(query, memory, filled))


def test_a_readers_tensors_lie_where_its_arguments_lie() -> None:
    made = readers.placed(lambda x: torch.arange(3))
    assert made(torch.zeros(1)).device.type == "cpu"
    assert made(torch.zeros(1, device="meta")).device.type == "meta"


def test_an_encoder_of_sentences_sees_no_padding_and_knows_ages(small: ErrandSet) -> None:
    model, batch = study.new_sentence_encoder(layers=1).cpu().double(), small.all[torch.arange(8)]
    logits = model(batch.story, batch.question).logits
    longest = int(batch.story.ne(0).any(dim=-1).sum(dim=1).max())
    torch.testing.assert_close(model(batch.story[:, :longest], batch.question).logits, logits)
    swapped = batch.story.clone()
    swapped[:, [0, 1]] = swapped[:, [1, 0]]
    assert not torch.allclose(model(swapped, batch.question).logits, logits)


def _runs() -> pd.DataFrame:
    right = {"person": 0.9, "holder": 0.8, "thing": 0.4, "before": 0.5}
    looks = {kind: [[0.7, 0.1]] for kind in ASKING}
    rows = []
    for hops in (1, 2, 3):
        for seed in (1, 2):
            better = {kind: min(1.0, share + 0.1 * hops + 0.01 * seed) for kind, share in right.items()}
            name = f"{hops} hop{'s' * (hops > 1)}"
            rows.append(
                {"reader": name, "seed": seed, "right": better, "looks": {k: v * hops for k, v in looks.items()}}
            )
    for name in ("3 hops, plain bags", "3 hops, no ages"):
        rows.append({"reader": name, "seed": 1, "right": right, "looks": looks})
    return pd.DataFrame(rows)


def test_claims_are_differences_of_what_was_measured() -> None:
    runs = _runs()
    assert tables.hop_claims(runs) == pytest.approx({2: 0.52, 3: 0.61 - 0.52, 4: 0.1})
    right = {"person": 0.99, "holder": 0.97, "thing": 0.9, "before": 0.95}
    rule = {"person": 0.6, "holder": 0.5, "thing": 0.6, "before": 0.5}
    assert tables.reader_claims(right, rule) == pytest.approx({5: 0.97, 6: 0.9, 7: 0.3})
    assert tables.part_claims(runs) == pytest.approx({12: 1 - 0.8, 13: 1 - 0.9})
    layered = pd.DataFrame(
        {
            "reader": f"{layers} layer{'s' * (layers > 1)} over sentences",
            "right": dict.fromkeys(ASKING, 0.3 * layers + 0.01 * seed),
        }
        for layers in (1, 2)
        for seed in (1, 2)
    )
    longer = pd.DataFrame({"right": [dict.fromkeys(ASKING, 0.9), dict.fromkeys(ASKING, 0.8)]})
    longer["reader"] = "2 layers over sentences, longer"
    board = tables.scoreboard(rule, layered, longer, runs)
    assert [*board] == ["best rule", "1 hop", "1 layer", "2 hops", "2 layers, 8,000 steps"]
    assert board["1 layer"]["thing"] == pytest.approx(0.315)
    assert board["2 layers, 8,000 steps"]["thing"] == pytest.approx(0.85)
    assert tables.layer_claims(longer) == {11: 0.8}


def test_figures_show_what_they_are_given() -> None:
    runs = _runs()
    figure, alt = figures.draw_hops(runs)
    assert len(figure.axes[0].get_lines()) == 4
    assert "dashed" in alt
    figure, _ = figures.draw_looks(runs)
    assert [len(axes.patches) for axes in figure.axes] == [3, 6, 9]
    figure, alt = figures.draw_readings(study.readings(study.new_reader(2)))
    assert len(figure.axes) == 2
    assert "Where is the boat?" in alt
    question = torch.tensor([4.0, 0.0])
    figure, alt = figures.draw_hop(("a", "b"), ("x", "y"), question, torch.eye(2), 3 * torch.eye(2))
    assert "(4.00, 0.00)" in alt


def test_an_answer_is_a_name_of_the_story_or_nobody() -> None:
    acts = read_errand("Ann took the ring.")
    answer = asked(study.new_reader(1), acts, read_question("Who has the ring?", acts))
    assert answer.answer in {"Ann", "the ring", NOBODY}
    assert len(answer.weights[0]) == 1
